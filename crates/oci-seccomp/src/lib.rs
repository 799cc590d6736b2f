//! Compiles the `linux.seccomp` section of an OCI runtime config to a classic BPF program for seccomp(2).
//!
//! ```
//! use oci_seccomp::LinuxSeccomp;
//!
//! let section: LinuxSeccomp = serde_json::from_str(r#"{
//!     "defaultAction": "SCMP_ACT_ALLOW",
//!     "syscalls": [{ "names": ["ptrace", "no_such_call"], "action": "SCMP_ACT_ERRNO" }]
//! }"#)?;
//! let program = oci_seccomp::compile(&section)?;
//! assert!(!program.instructions.is_empty());
//! assert_eq!(program.unknown, ["no_such_call"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Loading
//!
//! This crate makes no system call. An [`Instruction`] is laid out as the kernel's `struct sock_filter`, so a program is
//! loaded as it is:
//!
//! ```no_run
//! # let program = oci_seccomp::Program::default();
//! let filter = libc::sock_fprog {
//!     len: program.instructions.len() as libc::c_ushort,
//!     filter: program.instructions.as_ptr().cast_mut().cast(),
//! };
//! // Without CAP_SYS_ADMIN the kernel takes a filter only from a process that cannot gain privileges any more.
//! // SAFETY: the kernel copies the program during the call.
//! let loaded = unsafe {
//!     libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
//!     libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, program.flags, &raw const filter)
//! };
//! assert_eq!(loaded, 0, "{}", std::io::Error::last_os_error());
//! ```
//!
//! Where [`Program::notifies`] is true, add `SECCOMP_FILTER_FLAG_NEW_LISTENER` to the flags; the call returns the
//! listener's descriptor then.
//!
//! # What a section means
//!
//! The rules are those of "Seccomp" in the runtime-spec's config-linux.md and of seccomp(2). Where these leave something
//! open, a section means what libseccomp makes of it under runc:
//!
//! - The native architecture is always filtered. A call from an architecture that the section does
//!   not name kills the thread, as does a call of x32 where x32 is not named.
//! - The first rule without arguments settles a call. Rules with arguments are alternatives, and
//!   the arguments of one rule must all match; but where one rule names an argument twice, each
//!   of its arguments is a rule of its own. Where rules with different actions match, the one on
//!   the later argument wins (`rules` has the whole order), and two actions for the same
//!   arguments are an error.
//! - A rule with the default action says nothing. A name that no kernel has is no error.
//! - 32-bit architectures, x32 among them, compare the lower 32 bits of an argument.
//! - socketcall(2) and ipc(2) follow the rules of the calls that go through them.
//!
//! One rule is runc's own: a call with a number above all that the section names is newer than
//! the section, and it fails with ENOSYS, unless the default action lets it pass. Docker's and
//! containerd's profiles answer EPERM by default, and a C library that tries a new call first falls
//! back to an old one on ENOSYS only.
//!
//! # How it works
//!
//! Names become numbers by a hash table made at build time (`arch`); each
//! architecture has an array from number to outcome (`verdicts`); runs of one outcome become
//! a balanced search tree, whose leaves are actions or argument checks (`code`).

mod arch;
mod code;
mod error;
mod rules;
mod tables;
mod verdicts;

use arch::Machine;
use error::bail;
pub use error::{Error, Result};
#[doc(no_inline)]
pub use oci_spec::runtime::{Arch, LinuxSeccomp};
use oci_spec::runtime::{LinuxSeccompAction, LinuxSeccompFilterFlag};
use verdicts::Verdicts;

/// One classic BPF instruction, laid out as the kernel's `struct sock_filter` (linux/filter.h).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Operation code.
    pub code: u16,
    /// Relative jump when the test holds.
    pub jt: u8,
    /// Relative jump when it does not.
    pub jf: u8,
    /// The operand.
    pub k: u32,
}

/// A compiled filter, ready for seccomp(2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// The BPF program; never empty and never above BPF_MAXINSNS (4096).
    pub instructions: Vec<Instruction>,
    /// `SECCOMP_FILTER_FLAG_*` bits the section asks for.
    pub flags: u32,
    /// True where some rule answers SCMP_ACT_NOTIFY: the loader must ask for a listener.
    pub notifies: bool,
    /// The system calls of the section that no kernel is known to have, in the order given. They are no error, since
    /// profiles name calls of newer kernels; a caller may want to tell its user.
    pub unknown: Vec<String>,
}

// linux/seccomp.h
const SECCOMP_RET_KILL_PROCESS: u32 = 0x8000_0000;
const SECCOMP_RET_KILL_THREAD: u32 = 0;
const SECCOMP_RET_TRAP: u32 = 0x0003_0000;
const SECCOMP_RET_ERRNO: u32 = 0x0005_0000;
const SECCOMP_RET_USER_NOTIF: u32 = 0x7fc0_0000;
const SECCOMP_RET_TRACE: u32 = 0x7ff0_0000;
const SECCOMP_RET_LOG: u32 = 0x7ffc_0000;
const SECCOMP_RET_ALLOW: u32 = 0x7fff_0000;
const SECCOMP_RET_ACTION_FULL: u32 = 0xffff_0000;
const SECCOMP_FILTER_FLAG_LOG: u32 = 1 << 1;
const SECCOMP_FILTER_FLAG_SPEC_ALLOW: u32 = 1 << 2;
const SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV: u32 = 1 << 5;
/// errno(3), the same everywhere.
const EPERM: u32 = 1;

/// Compiles `section` for the architecture that this program was built for.
///
/// # Errors
/// A section that contradicts itself, or that needs more instructions than the kernel takes. The text begins with the
/// place in the config.
pub fn compile(section: &LinuxSeccomp) -> Result<Program> {
    compile_for(arch::NATIVE, section)
}

/// Compiles `section` for a machine whose kernel is of architecture `native`.
///
/// Only architectures that such a kernel runs get code. libseccomp gives every named one its code;
/// the others' could never run, and a call from them, were there one, would kill the thread.
///
/// # Errors
/// Those of [`compile`].
///
/// ```
/// use oci_seccomp::{Arch, LinuxSeccomp};
///
/// let section: LinuxSeccomp = serde_json::from_str(r#"{"defaultAction": "SCMP_ACT_ALLOW"}"#)?;
/// let program = oci_seccomp::compile_for(Arch::ScmpArchAarch64, &section)?;
/// // The program looks at the architecture first (AUDIT_ARCH_AARCH64).
/// assert_eq!(program.instructions[1].k, 0xc000_00b7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn compile_for(native: Arch, section: &LinuxSeccomp) -> Result<Program> {
    let default = action(section.default_action(), section.default_errno_ret())
        .map_err(|e| e.at("linux.seccomp: defaultAction"))?;
    if section.default_action() == LinuxSeccompAction::ScmpActNotify {
        bail!("linux.seccomp: SCMP_ACT_NOTIFY cannot be used as default action");
    }
    let machines = machines(native, section.architectures().as_deref().unwrap_or_default());
    let mut verdicts = Verdicts::new(&machines, default)?;
    let mut notifies = false;
    let mut unknown = Vec::new();
    for (at, entry) in section.syscalls().iter().flatten().enumerate() {
        let place = || format!("linux.seccomp.syscalls[{at}]");
        let answer = action(entry.action(), entry.errno_ret()).map_err(|e| e.at(place()))?;
        if entry.action() == LinuxSeccompAction::ScmpActNotify {
            // Whoever hands the listener over must be able to write.
            if entry.names().iter().any(|name| name == "write") {
                bail!("{}: SCMP_ACT_NOTIFY cannot be used for the write syscall", place());
            }
            notifies = true;
        }
        let rules =
            verdicts.entry(answer, entry.args().as_deref().unwrap_or_default()).map_err(|e| e.at(place()))?;
        for name in entry.names() {
            match arch::Name::find(name) {
                Some(name) => verdicts.add(&rules, name).map_err(|e| e.at(place()))?,
                None if name.is_empty() => bail!("{}: a syscall's name is empty", place()),
                None => unknown.push(name.clone()),
            }
        }
    }
    let instructions = verdicts.assemble().map_err(|e| e.at("linux.seccomp"))?;
    Ok(Program { instructions, flags: flags(section, notifies), notifies, unknown })
}

/// Every architecture that a section can name, except `SCMP_ARCH_NATIVE`, which stands for one of them.
pub fn architectures() -> impl Iterator<Item = Arch> {
    arch::MACHINES.iter().map(|machine| machine.arch)
}

/// The architectures of programs that this machine's kernel can run, the native one first.
pub fn native_architectures() -> impl Iterator<Item = Arch> {
    let native = Machine::of(arch::NATIVE, arch::NATIVE);
    let others =
        arch::MACHINES.iter().filter(|machine| machine.runs_beside(native) && machine.arch != native.arch);
    std::iter::once(native.arch).chain(others.map(|machine| machine.arch))
}

/// Every system call that any architecture has, by name, in alphabetical order.
pub fn names() -> impl Iterator<Item = &'static str> {
    tables::NAMES.split_ascii_whitespace()
}

/// The architectures to filter: the native one, then others of its family in the order named.
fn machines(native: Arch, named: &[Arch]) -> Vec<&'static Machine> {
    let mut machines = Vec::with_capacity(3);
    machines.push(Machine::of(native, native));
    for arch in named {
        let machine = Machine::of(*arch, native);
        if machine.runs_beside(machines[0]) && !machines.iter().any(|m| m.arch == machine.arch) {
            machines.push(machine);
        }
    }
    machines
}

/// What the filter returns for an action: a `SECCOMP_RET_*` value with its data.
fn action(action: LinuxSeccompAction, errno: Option<u32>) -> Result<u32> {
    use LinuxSeccompAction::*;
    let errno_or_eperm = errno.unwrap_or(EPERM);
    match action {
        ScmpActErrno if errno_or_eperm > 4095 => bail!("errno {errno_or_eperm}: the highest is 4095"),
        ScmpActTrace if errno_or_eperm > 0xffff => bail!("errno {errno_or_eperm}: the highest is 65535"),
        ScmpActErrno => Ok(SECCOMP_RET_ERRNO | errno_or_eperm),
        ScmpActTrace => Ok(SECCOMP_RET_TRACE | errno_or_eperm),
        _ if errno.is_some() => bail!("errno value specified for action `{action}`"),
        ScmpActKill | ScmpActKillThread => Ok(SECCOMP_RET_KILL_THREAD),
        ScmpActKillProcess => Ok(SECCOMP_RET_KILL_PROCESS),
        ScmpActTrap => Ok(SECCOMP_RET_TRAP),
        ScmpActNotify => Ok(SECCOMP_RET_USER_NOTIF),
        ScmpActLog => Ok(SECCOMP_RET_LOG),
        ScmpActAllow => Ok(SECCOMP_RET_ALLOW),
    }
}

/// `SECCOMP_FILTER_FLAG_*` bits, by runc's rules: SPEC_ALLOW where the section has no `flags` at
/// all, and TSYNC is left out, since the loader has one thread. WAIT_KILLABLE_RECV needs a listener.
fn flags(section: &LinuxSeccomp, notifies: bool) -> u32 {
    use LinuxSeccompFilterFlag::*;
    let Some(flags) = section.flags() else { return SECCOMP_FILTER_FLAG_SPEC_ALLOW };
    flags.iter().fold(0, |bits, flag| {
        bits | match flag {
            SeccompFilterFlagLog => SECCOMP_FILTER_FLAG_LOG,
            SeccompFilterFlagSpecAllow => SECCOMP_FILTER_FLAG_SPEC_ALLOW,
            SeccompFilterFlagWaitKillableRecv if notifies => SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV,
            SeccompFilterFlagWaitKillableRecv | SeccompFilterFlagTsync => 0,
        }
    })
}

/// The example of the README works.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn compiled(section: Value) -> Result<Program> {
        compile_for(Arch::ScmpArchX86_64, &serde_json::from_value(section).expect("a seccomp section"))
    }

    fn error(section: Value) -> String {
        compiled(section).expect_err("the section is wrong").to_string()
    }

    #[test]
    fn the_smallest_filter_still_knows_its_architecture() {
        let program = compiled(json!({"defaultAction": "SCMP_ACT_ALLOW"})).unwrap();
        let codes: Vec<_> = program.instructions.iter().map(|i| (i.code, i.jt, i.jf, i.k)).collect();
        let expected = [
            (0x20, 0, 0, 4),
            (0x15, 0, 3, 0xc000_003e),
            (0x20, 0, 0, 0),
            (0x35, 0, 2, 0x4000_0000),
            (0x35, 1, 0, 0xffff_ffff),
            (0x06, 0, 0, 0),
            (0x06, 0, 0, 0x7fff_0000),
        ];
        assert_eq!(codes, expected);
        assert_eq!(program.flags, SECCOMP_FILTER_FLAG_SPEC_ALLOW);
        assert!(!program.notifies);
    }

    #[test]
    fn unknown_calls_are_listed_and_the_rest_counts() {
        let names = ["read", "no_such_call", "write", "another"];
        let section = |names: &[&str]| {
            json!({
                "defaultAction": "SCMP_ACT_ERRNO",
                "syscalls": [{"names": names, "action": "SCMP_ACT_ALLOW"}],
            })
        };
        let program = compiled(section(&names)).unwrap();
        assert_eq!(program.unknown, ["no_such_call", "another"]);
        assert_eq!(program.instructions, compiled(section(&["read", "write"])).unwrap().instructions);
    }

    #[test]
    fn flags_are_runcs() {
        let flags = |flags: Value, action: &str| {
            let syscalls = json!([{"names": ["mknod"], "action": action}]);
            let section = json!({"defaultAction": "SCMP_ACT_ALLOW", "flags": flags, "syscalls": syscalls});
            compiled(section).unwrap().flags
        };
        const WAIT: &str = "SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV";
        assert_eq!(flags(Value::Null, "SCMP_ACT_KILL"), 4);
        assert_eq!(flags(json!([]), "SCMP_ACT_KILL"), 0);
        assert_eq!(
            flags(json!(["SECCOMP_FILTER_FLAG_LOG", "SECCOMP_FILTER_FLAG_TSYNC"]), "SCMP_ACT_KILL"),
            2
        );
        assert_eq!(flags(json!(["SECCOMP_FILTER_FLAG_SPEC_ALLOW"]), "SCMP_ACT_KILL"), 4);
        assert_eq!(flags(json!([WAIT]), "SCMP_ACT_NOTIFY"), 32);
        assert_eq!(flags(json!([WAIT]), "SCMP_ACT_KILL"), 0);
    }

    #[test]
    fn notify_has_its_limits() {
        let section = |default: &str, name: &str| {
            json!({
                "defaultAction": default,
                "syscalls": [{"names": [name], "action": "SCMP_ACT_NOTIFY"}],
            })
        };
        assert!(compiled(section("SCMP_ACT_ALLOW", "mknod")).unwrap().notifies);
        assert_eq!(
            error(section("SCMP_ACT_ALLOW", "write")),
            "linux.seccomp.syscalls[0]: SCMP_ACT_NOTIFY cannot be used for the write syscall"
        );
        assert_eq!(
            error(section("SCMP_ACT_NOTIFY", "mknod")),
            "linux.seccomp: SCMP_ACT_NOTIFY cannot be used as default action"
        );
    }

    #[test]
    fn errno_goes_with_actions_that_carry_one() {
        let section = |action: &str, errno: u32| {
            json!({
                "defaultAction": "SCMP_ACT_ALLOW",
                "syscalls": [{"names": ["mknod"], "action": action, "errnoRet": errno}],
            })
        };
        assert!(compiled(section("SCMP_ACT_ERRNO", 4095)).is_ok());
        assert!(compiled(section("SCMP_ACT_TRACE", 65535)).is_ok());
        let place = "linux.seccomp.syscalls[0]:";
        assert_eq!(
            error(section("SCMP_ACT_ERRNO", 4096)),
            format!("{place} errno 4096: the highest is 4095")
        );
        assert_eq!(
            error(section("SCMP_ACT_KILL", 1)),
            format!("{place} errno value specified for action `SCMP_ACT_KILL`")
        );
        assert_eq!(
            error(json!({"defaultAction": "SCMP_ACT_LOG", "defaultErrnoRet": 1})),
            "linux.seccomp: defaultAction: errno value specified for action `SCMP_ACT_LOG`"
        );
    }

    #[test]
    fn wrong_rules_are_refused() {
        let section = |rules: &[(&str, &str, Value)]| {
            let entry = |(name, action, args): &(&str, &str, Value)| json!({"names": [name], "action": action, "args": args});
            let entries: Vec<_> = rules.iter().map(entry).collect();
            json!({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": entries})
        };
        let equal = |index: u32, value: u64| json!({"index": index, "value": value, "op": "SCMP_CMP_EQ"});
        assert_eq!(
            error(section(&[("read", "SCMP_ACT_ERRNO", json!([equal(6, 0)]))])),
            "linux.seccomp.syscalls[0]: argument index 6: a system call has six arguments, 0 to 5"
        );
        assert_eq!(
            error(section(&[("", "SCMP_ACT_ERRNO", json!([]))])),
            "linux.seccomp.syscalls[0]: a syscall's name is empty"
        );
        let one = ("read", "SCMP_ACT_ERRNO", json!([equal(0, 1)]));
        let two = ("read", "SCMP_ACT_KILL", json!([equal(0, 1)]));
        let other = ("read", "SCMP_ACT_KILL", json!([equal(0, 2)]));
        assert!(compiled(section(&[one.clone(), other])).is_ok());
        assert_eq!(
            error(section(&[one, two])),
            "linux.seccomp.syscalls[1]: read: two actions for the same arguments"
        );
    }

    #[test]
    fn what_no_kernel_takes_is_refused() {
        let section = |rules: u64| {
            let rule = |value: u64| {
                json!({"names": ["ioctl"], "action": "SCMP_ACT_ERRNO", "args": [
                    {"index": 1, "value": value << 32, "op": "SCMP_CMP_NE"},
                    {"index": 2, "value": value, "op": "SCMP_CMP_GE"},
                ]})
            };
            let rules: Vec<_> = (1..rules).map(rule).collect();
            json!({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": rules})
        };
        assert!(compiled(section(500)).unwrap().instructions.len() > 3000);
        assert_eq!(error(section(1000)), "linux.seccomp: the filter has more than 4096 instructions");
    }

    #[test]
    fn every_architecture_compiles_as_the_native_one() {
        let section = json!({
            "defaultAction": "SCMP_ACT_ERRNO",
            "syscalls": [{"names": ["read", "socket", "semop"], "action": "SCMP_ACT_ALLOW"}],
        });
        let section = serde_json::from_value(section).unwrap();
        for native in architectures() {
            let program = compile_for(native, &section).unwrap();
            assert!(program.instructions.len() > 6, "{native}");
            assert!(program.unknown.is_empty());
        }
        assert_eq!(architectures().count(), 23);
    }

    #[test]
    fn architectures_that_the_kernel_does_not_run_cost_nothing() {
        let program = |archs: &[&str]| {
            compiled(json!({
                "defaultAction": "SCMP_ACT_ERRNO",
                "architectures": archs,
                "syscalls": [{"names": ["read", "mmap"], "action": "SCMP_ACT_ALLOW"}],
            }))
            .unwrap()
        };
        let native = program(&[]);
        assert_eq!(native, program(&["SCMP_ARCH_X86_64", "SCMP_ARCH_NATIVE"]));
        assert_eq!(native, program(&["SCMP_ARCH_ARM", "SCMP_ARCH_S390X", "SCMP_ARCH_MIPS64N32"]));
        assert_ne!(native, program(&["SCMP_ARCH_X86"]));
    }
}
