//! What a section says about a call, read straight from its rules.

use super::bpf::Call;
use super::libseccomp::Library;
use oci_spec::runtime::{
    Arch, LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompOperator, LinuxSyscall,
};
use std::collections::BTreeSet;

const X32_BIT: u32 = 0x4000_0000;

/// The calls that socketcall(2) and ipc(2) select by their first argument.
const SOCKETCALLS: [&str; 20] = [
    "socket",
    "bind",
    "connect",
    "listen",
    "accept",
    "getsockname",
    "getpeername",
    "socketpair",
    "send",
    "recv",
    "sendto",
    "recvfrom",
    "shutdown",
    "setsockopt",
    "getsockopt",
    "sendmsg",
    "recvmsg",
    "accept4",
    "recvmmsg",
    "sendmmsg",
];
const IPC: [(u64, &str); 12] = [
    (1, "semop"),
    (2, "semget"),
    (3, "semctl"),
    (4, "semtimedop"),
    (11, "msgsnd"),
    (12, "msgrcv"),
    (13, "msgget"),
    (14, "msgctl"),
    (21, "shmat"),
    (22, "shmdt"),
    (23, "shmget"),
    (24, "shmctl"),
];

/// A section and the machines that it is for: those of one kernel, the native one first.
pub struct Meaning<'a> {
    library: &'a Library,
    section: &'a LinuxSeccomp,
    /// The architectures to filter, and the highest number that the section names on each.
    machines: Vec<(Arch, Option<u32>)>,
}

impl<'a> Meaning<'a> {
    pub fn of(library: &'a Library, machines: &[Arch], section: &'a LinuxSeccomp) -> Self {
        let named = |arch: &Arch| {
            *arch == machines[0] || section.architectures().iter().flatten().any(|other| other == arch)
        };
        let calls: BTreeSet<&String> =
            section.syscalls().iter().flatten().flat_map(|entry| entry.names()).collect();
        let highest = |arch: Arch| {
            // A call that others go through is named with them.
            let through = |name: &str| {
                multiplexed(arch)
                    && calls.iter().any(|call| match name {
                        "socketcall" => SOCKETCALLS.contains(&call.as_str()),
                        "ipc" => IPC.iter().any(|(_, other)| other == call),
                        _ => false,
                    })
            };
            let known = |number: &i32| {
                library.name(arch, *number).is_some_and(|name| calls.contains(&name) || through(&name))
            };
            let base = base(arch);
            (base..base + 600).rev().find(known).filter(|highest| *highest > 0).map(|highest| highest as u32)
        };
        let machines = machines.iter().copied().filter(named).map(|arch| (arch, highest(arch))).collect();
        Meaning { library, section, machines }
    }

    /// The architecture of a call, if the filter knows it.
    fn machine(&self, call: &Call) -> Option<(Arch, Option<u32>)> {
        self.machines.iter().copied().find(|(arch, _)| match arch {
            Arch::ScmpArchX32 => call.arch == Arch::ScmpArchX86_64 as u32 && call.number >= X32_BIT,
            Arch::ScmpArchX86_64 => call.arch == *arch as u32 && call.number < X32_BIT,
            _ => call.arch == *arch as u32,
        })
    }

    /// The answer if the call is newer than the section, as runc has it.
    pub fn newer(&self, call: &Call) -> Option<u32> {
        use LinuxSeccompAction::*;
        if matches!(self.section.default_action(), ScmpActAllow | ScmpActLog | ScmpActTrace) {
            return None;
        }
        let (arch, highest) = self.machine(call)?;
        let enosys = if (4000..7000).contains(&base(arch)) { 89 } else { 38 }; // mips has its own
        let unknown_on_s390 = matches!(arch, Arch::ScmpArchS390 | Arch::ScmpArchS390x) && call.number == 0;
        (call.number > highest? || unknown_on_s390).then_some(0x0005_0000 | enosys)
    }

    /// The answers of all rules that a call matches: the default's if there are none.
    pub fn answers(&self, call: &Call) -> BTreeSet<u32> {
        let default = self.section.default_action().as_u32(self.section.default_errno_ret());
        let Some((arch, _)) = self.machine(call) else {
            let skipped = call.arch == Arch::ScmpArchX86_64 as u32 && call.number == u32::MAX;
            return [if skipped { default } else { 0 }].into();
        };
        if let Some(answer) = self.newer(call) {
            return [answer].into();
        }
        let known = call.number >= base(arch) as u32;
        let name = self.library.name(arch, call.number as i32).filter(|_| known);
        let Some(name) = name else { return [default].into() };
        let mut answers = BTreeSet::new();
        for entry in self.section.syscalls().iter().flatten() {
            let answer = entry.action().as_u32(entry.errno_ret());
            if answer == default {
                continue;
            }
            for (conditions, selector) in rules(entry, arch, &name) {
                let counts = |argument: &&LinuxSeccompArg| {
                    let vacuous = masked(argument) && bits(arch, argument.value()) == 0;
                    !vacuous && (selector.is_none() || argument.index() != 0)
                };
                let conditions: Vec<_> = conditions.iter().filter(counts).collect();
                if conditions.is_empty() && selector.is_none() {
                    return [answer].into(); // It settles the call, whatever came before.
                }
                let selected = selector.is_none_or(|selector| bits(arch, call.arguments[0]) == selector);
                if selected && conditions.iter().all(|condition| holds(condition, arch, call)) {
                    answers.insert(answer);
                }
            }
        }
        if answers.is_empty() { [default].into() } else { answers }
    }
}

/// Where an architecture's numbers start.
pub fn base(arch: Arch) -> i32 {
    match arch {
        Arch::ScmpArchX32 => X32_BIT as i32,
        Arch::ScmpArchMips | Arch::ScmpArchMipsel => 4000,
        Arch::ScmpArchMips64 | Arch::ScmpArchMipsel64 => 5000,
        Arch::ScmpArchMips64n32 | Arch::ScmpArchMipsel64n32 => 6000,
        _ => 0,
    }
}

/// Whether old programs of an architecture use socketcall(2) and ipc(2).
fn multiplexed(arch: Arch) -> bool {
    use Arch::*;
    matches!(
        arch,
        ScmpArchX86
            | ScmpArchPpc
            | ScmpArchPpc64
            | ScmpArchPpc64le
            | ScmpArchS390
            | ScmpArchS390x
            | ScmpArchMips
            | ScmpArchMipsel
    )
}

/// The rules of an entry for a call: their conditions, and the selector that must come with them.
fn rules<'a>(entry: &'a LinuxSyscall, arch: Arch, name: &str) -> Vec<(&'a [LinuxSeccompArg], Option<u64>)> {
    let arguments = entry.args().as_deref().unwrap_or_default();
    let twice = (0..6).any(|index| arguments.iter().filter(|a| a.index() == index).count() > 1);
    let parts: Vec<_> = if arguments.is_empty() {
        vec![arguments]
    } else {
        arguments.chunks(if twice { 1 } else { 6 }).collect()
    };
    let mut selectors: Vec<Option<u64>> = Vec::new();
    for other in entry.names() {
        if other == name {
            selectors.push(None);
        }
        if multiplexed(arch) && name == "socketcall" {
            let at = SOCKETCALLS.iter().position(|call| call == other);
            selectors.extend(at.map(|at| Some(at as u64 + 1)));
        }
        if multiplexed(arch) && name == "ipc" {
            selectors.extend(IPC.iter().find(|(_, call)| call == other).map(|(at, _)| Some(*at)));
        }
    }
    selectors.iter().flat_map(|selector| parts.iter().map(|part| (*part, *selector))).collect()
}

fn masked(argument: &LinuxSeccompArg) -> bool {
    argument.op() == LinuxSeccompOperator::ScmpCmpMaskedEq
}

/// The bits of a value that count.
fn bits(arch: Arch, value: u64) -> u64 {
    let wide = arch as u32 & 0x8000_0000 != 0 && arch as u32 & 0x2000_0000 == 0;
    if wide { value } else { value & 0xffff_ffff }
}

fn holds(condition: &LinuxSeccompArg, arch: Arch, call: &Call) -> bool {
    use LinuxSeccompOperator::*;
    let argument = bits(arch, call.arguments[condition.index()]);
    let value = bits(arch, condition.value());
    match condition.op() {
        ScmpCmpNe => argument != value,
        ScmpCmpLt => argument < value,
        ScmpCmpLe => argument <= value,
        ScmpCmpEq => argument == value,
        ScmpCmpGe => argument >= value,
        ScmpCmpGt => argument > value,
        ScmpCmpMaskedEq => argument & value == bits(arch, condition.value_two().unwrap_or(0)) & value,
    }
}
