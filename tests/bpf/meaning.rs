//! What a section says about a call, read straight from its rules.

use super::bpf::Call;
use super::libseccomp::Library;
use oci_spec::runtime::{
    Arch, LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompOperator, LinuxSyscall,
};
use std::collections::BTreeSet;

const ENOSYS: u32 = 0x0005_0026;
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

/// The architecture of a call, if the filter knows it.
pub fn architecture(machines: &[Arch], section: &LinuxSeccomp, call: &Call) -> Option<Arch> {
    let named = |arch: &Arch| {
        *arch == machines[0] || section.architectures().iter().flatten().any(|other| other == arch)
    };
    machines.iter().copied().filter(named).find(|arch| match arch {
        Arch::ScmpArchX32 => call.arch == Arch::ScmpArchX86_64 as u32 && call.number >= X32_BIT,
        Arch::ScmpArchX86_64 => call.arch == *arch as u32 && call.number < X32_BIT,
        _ => call.arch == *arch as u32,
    })
}

/// The answer if the call is newer than the section, as runc has it.
pub fn newer(library: &Library, arch: Arch, section: &LinuxSeccomp, call: &Call) -> Option<u32> {
    use LinuxSeccompAction::*;
    if matches!(section.default_action(), ScmpActAllow | ScmpActLog | ScmpActTrace) {
        return None;
    }
    if matches!(arch, Arch::ScmpArchS390 | Arch::ScmpArchS390x) && call.number == 0 {
        return highest(library, arch, section).map(|_| ENOSYS);
    }
    highest(library, arch, section).filter(|highest| call.number > *highest).map(|_| ENOSYS)
}

fn highest(library: &Library, arch: Arch, section: &LinuxSeccomp) -> Option<u32> {
    let named = |number: &i32| {
        library.name(arch, *number).is_some_and(|name| {
            section.syscalls().iter().flatten().any(|entry| entry.names().contains(&name))
        })
    };
    let base = base(arch);
    (base..base + 600).rev().find(named).filter(|highest| *highest > 0).map(|highest| highest as u32)
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

/// The answers of all rules that a call matches: the default's if there are none. `machines` are
/// those of one kernel, the native one first.
pub fn answers(library: &Library, machines: &[Arch], section: &LinuxSeccomp, call: &Call) -> BTreeSet<u32> {
    let default = section.default_action().as_u32(section.default_errno_ret());
    let Some(arch) = architecture(machines, section, call) else {
        let skipped = call.arch == Arch::ScmpArchX86_64 as u32 && call.number == u32::MAX;
        return [if skipped { default } else { 0 }].into();
    };
    if let Some(answer) = newer(library, arch, section, call) {
        return [answer].into();
    }
    let mut answers = BTreeSet::new();
    let known = call.number >= base(arch) as u32;
    let name = library.name(arch, call.number as i32).filter(|_| known);
    let Some(name) = name else { return [default].into() };
    for entry in section.syscalls().iter().flatten() {
        let answer = entry.action().as_u32(entry.errno_ret());
        if answer == default {
            continue;
        }
        for (conditions, selector) in rules(entry, arch, &name) {
            let vacuous = |argument: &LinuxSeccompArg| bits(arch, argument.value()) == 0 && masked(argument);
            let first = |argument: &&LinuxSeccompArg| selector.is_none() || argument.index() != 0;
            let conditions: Vec<_> = conditions.iter().filter(first).filter(|a| !vacuous(a)).collect();
            if conditions.is_empty() && selector.is_none() {
                return [answer].into();
            }
            let selected = selector.is_none_or(|selector| bits(arch, call.arguments[0]) == selector);
            if selected && conditions.iter().all(|condition| holds(condition, arch, call)) {
                answers.insert(answer);
            }
        }
    }
    // A rule without conditions settles the call wherever it stands.
    if answers.is_empty() { [default].into() } else { answers }
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
    let multiplexed = match arch {
        Arch::ScmpArchX86 | Arch::ScmpArchPpc | Arch::ScmpArchPpc64 | Arch::ScmpArchPpc64le => true,
        Arch::ScmpArchS390 | Arch::ScmpArchS390x | Arch::ScmpArchMips | Arch::ScmpArchMipsel => true,
        _ => false,
    };
    let mut selectors: Vec<Option<u64>> = Vec::new();
    for other in entry.names() {
        if other == name {
            selectors.push(None);
        }
        if multiplexed && name == "socketcall" {
            let at = SOCKETCALLS.iter().position(|call| call == other);
            selectors.extend(at.map(|at| Some(at as u64 + 1)));
        }
        if multiplexed && name == "ipc" {
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
