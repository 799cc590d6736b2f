//! The seccomp compiler: an OCI `linux.seccomp` section becomes a classic BPF program.
//!
//! Pure: no system call, no file. Follows the runtime-spec's config-linux.md "Seccomp" and
//! seccomp(2); the meaning of rules is libseccomp's, as runc uses it:
//!
//! - The native architecture is always filtered. A call from an architecture that the section does
//!   not name kills the thread, as does a call of x32 where x32 is not named.
//! - The first rule without arguments settles a call. Rules with arguments are alternatives, and
//!   the arguments of one rule must all match; but where one rule names an argument twice, each
//!   of its arguments is a rule of its own. Where rules with different actions match, the one on
//!   the later argument wins ([`verdicts`] has the whole order), and two actions for the same
//!   arguments are an error.
//! - A rule with the default action says nothing. A name that no kernel has is no error.
//! - 32-bit architectures, x32 among them, compare the lower 32 bits of an argument.
//! - socketcall(2) and ipc(2) follow the rules of the calls that go through them.
//!
//! One thing is runc's own: a call with a number above all that the section names is newer than
//! the section, and it fails with ENOSYS, unless the default action lets it pass. Docker's and
//! containerd's profiles answer EPERM by default, and a C library that tries a new call first falls
//! back to an old one on ENOSYS only.
//!
//! How it works: names become numbers by a hash table made at build time ([`arch`]); each
//! architecture has an array from number to outcome ([`verdicts`]); runs of one outcome become
//! a balanced search tree, whose leaves are actions or argument checks ([`code`]).

mod arch;
mod code;
mod tables;
mod verdicts;

use crate::error::{Context, Result};
use crate::{bail, err};
use arch::Machine;
use oci_spec::runtime::{Arch, LinuxSeccomp, LinuxSeccompAction, LinuxSeccompFilterFlag};
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
    /// What the section names and no known kernel has (syscalls, in the order given). Not an error.
    pub unknown: Vec<String>,
}

/// Compiles `section` for the machine that runs this program.
pub fn compile(section: &LinuxSeccomp) -> Result<Program> {
    compile_for(arch::NATIVE, section)
}

/// Compiles `section` for a machine whose kernel is of architecture `native`.
///
/// Only architectures that such a kernel runs get code. libseccomp gives every named one its code;
/// the others' could never run, and a call from them, were there one, would kill the thread.
pub fn compile_for(native: Arch, section: &LinuxSeccomp) -> Result<Program> {
    let default = action(section.default_action(), section.default_errno_ret())
        .context(|| "linux.seccomp: defaultAction")?;
    if section.default_action() == LinuxSeccompAction::ScmpActNotify {
        bail!("linux.seccomp: SCMP_ACT_NOTIFY cannot be used as default action");
    }
    let machines = machines(native, section.architectures().as_deref().unwrap_or_default());
    let mut verdicts = Verdicts::new(&machines, default)?;
    let mut notifies = false;
    let mut unknown = Vec::new();
    for (at, entry) in section.syscalls().iter().flatten().enumerate() {
        let place = || format!("linux.seccomp.syscalls[{at}]");
        let answer = action(entry.action(), entry.errno_ret()).context(place)?;
        if entry.action() == LinuxSeccompAction::ScmpActNotify {
            // Whoever hands the listener over must be able to write.
            if entry.names().iter().any(|name| name == "write") {
                return Err(err!("SCMP_ACT_NOTIFY cannot be used for the write syscall").context(place()));
            }
            notifies = true;
        }
        let rules = verdicts.entry(answer, entry.args().as_deref().unwrap_or_default()).context(place)?;
        for name in entry.names() {
            match arch::Name::find(name) {
                Some(name) => verdicts.add(&rules, name).context(place)?,
                None if name.is_empty() => return Err(err!("a syscall's name is empty").context(place())),
                None => unknown.push(name.clone()),
            }
        }
    }
    let instructions = verdicts.assemble().context(|| "linux.seccomp")?;
    Ok(Program { instructions, flags: flags(section, notifies), notifies, unknown })
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
    let errno_or_eperm = errno.unwrap_or(libc::EPERM as u32);
    match action {
        ScmpActErrno if errno_or_eperm > 4095 => bail!("errno {errno_or_eperm}: the highest is 4095"),
        ScmpActTrace if errno_or_eperm > 0xffff => bail!("errno {errno_or_eperm}: the highest is 65535"),
        ScmpActErrno => Ok(libc::SECCOMP_RET_ERRNO | errno_or_eperm),
        ScmpActTrace => Ok(libc::SECCOMP_RET_TRACE | errno_or_eperm),
        _ if errno.is_some() => bail!("errno value specified for action `{action}`"),
        ScmpActKill | ScmpActKillThread => Ok(libc::SECCOMP_RET_KILL_THREAD),
        ScmpActKillProcess => Ok(libc::SECCOMP_RET_KILL_PROCESS),
        ScmpActTrap => Ok(libc::SECCOMP_RET_TRAP),
        ScmpActNotify => Ok(libc::SECCOMP_RET_USER_NOTIF),
        ScmpActLog => Ok(libc::SECCOMP_RET_LOG),
        ScmpActAllow => Ok(libc::SECCOMP_RET_ALLOW),
    }
}

/// `SECCOMP_FILTER_FLAG_*` bits, by runc's rules: SPEC_ALLOW where the section has no `flags` at
/// all, and TSYNC is left out, since the loader has one thread. WAIT_KILLABLE_RECV needs a listener.
fn flags(section: &LinuxSeccomp, notifies: bool) -> u32 {
    use LinuxSeccompFilterFlag::*;
    let Some(flags) = section.flags() else { return libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW as u32 };
    flags.iter().fold(0, |bits, flag| {
        bits | match flag {
            SeccompFilterFlagLog => libc::SECCOMP_FILTER_FLAG_LOG as u32,
            SeccompFilterFlagSpecAllow => libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW as u32,
            SeccompFilterFlagWaitKillableRecv if notifies => {
                libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV as u32
            }
            SeccompFilterFlagWaitKillableRecv | SeccompFilterFlagTsync => 0,
        }
    })
}
