//! The seccomp filters of a plan, compiled before the first process is made.

use crate::store::Confinement;
use oci_spec::OciSpecError;
use oci_spec::runtime::{
    LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompArgBuilder, LinuxSeccompBuilder,
    LinuxSeccompOperator, LinuxSyscall, LinuxSyscallBuilder,
};
use rt_spec::emulation::{self, RootEmulation};
use rt_spec::{ANNOTATION_ROOT_EMULATION, KEY_CALLS};
use rt_sys::error::{Context, Error, Result};
use rt_sys::seccomp::Filter;
use rt_sys::{bail, err};
use std::path::PathBuf;

/// Plans the filter of a process whose owners are recorded: `section` with the questions to a supervisor.
pub(super) fn plan_supervised(
    section: Option<&LinuxSeccomp>,
    emulation: RootEmulation,
) -> Result<SeccompPlan> {
    let asks = |section: &LinuxSeccomp| {
        section.syscalls().iter().flatten().any(|rule| rule.action() == LinuxSeccompAction::ScmpActNotify)
    };
    if section.is_some_and(asks) {
        bail!("{ANNOTATION_ROOT_EMULATION}: the config's filter has a listener already (SCMP_ACT_NOTIFY)");
    }
    let section = match section {
        Some(section) => emulation::with_root_emulation(section, emulation)?,
        None => emulation::root_emulation(emulation)?,
    };
    let program = compile(&section).context(|| "config.json: linux.seccomp")?;
    Ok(SeccompPlan {
        filter: filter_of(&program),
        unknown: Vec::new(),
        listener: None,
        metadata: String::new(),
        supervised: true,
        restored: None,
    })
}

/// The filter and where its notifications go.
#[derive(Debug)]
pub(crate) struct SeccompPlan {
    /// The filter.
    pub filter: Filter,
    /// System calls that the section names and no kernel has.
    pub unknown: Vec<String>,
    /// The socket that gets the listener.
    pub listener: Option<PathBuf>,
    /// What is sent with it.
    pub metadata: String,
    /// The notifications go to a supervisor of the runtime's.
    pub supervised: bool,
    /// What a restored program has in its place, if that is another filter ([`without_capset`]).
    restored: Option<LinuxSeccomp>,
}

impl SeccompPlan {
    /// The filter that a checkpoint keeps.
    pub(in crate::container) fn kept_filter(&self) -> Result<Filter> {
        match &self.restored {
            Some(section) => Ok(filter_of(&compile(section)?)),
            None => Ok(self.filter.clone()),
        }
    }

    /// True where that is another one than the kernel has.
    pub(in crate::container) fn is_kept_as_another(&self) -> bool {
        self.restored.is_some()
    }
}

/// Compiles a seccomp section.
pub(super) fn plan_filter(section: &LinuxSeccomp) -> Result<SeccompPlan> {
    let mut program = compile(section).context(|| "config.json: linux.seccomp")?;
    let listener = section.listener_path().clone().filter(|p| !p.as_os_str().is_empty());
    if program.notifies && listener.is_none() {
        bail!("config.json: linux.seccomp: SCMP_ACT_NOTIFY needs a listenerPath");
    }
    let unknown = std::mem::take(&mut program.unknown);
    Ok(SeccompPlan {
        filter: filter_of(&program),
        unknown,
        listener,
        metadata: section.listener_metadata().clone().unwrap_or_default(),
        supervised: false,
        restored: without_capset(section),
    })
}

/// A section that answers capset(2) with success, without this answer; none where it has no such answer. criu loads the filters of a
/// program before it takes capabilities away from it, which it would take for done.
fn without_capset(section: &LinuxSeccomp) -> Option<LinuxSeccomp> {
    const CALL: &str = "capset";
    let is_answer = |rule: &LinuxSyscall| {
        rule.action() == LinuxSeccompAction::ScmpActErrno
            && rule.errno_ret() == Some(0)
            && rule.names().iter().any(|name| name == CALL)
    };
    let mut rules = section.syscalls().clone()?;
    if !rules.iter().any(is_answer) {
        return None;
    }
    for rule in &mut rules {
        let names = rule.names().iter().filter(|name| *name != CALL).cloned().collect();
        rule.set_names(names);
    }
    rules.retain(|rule| !rule.names().is_empty());
    // Where the section allows what it names alone.
    let allowed = LinuxSyscallBuilder::default()
        .names([CALL.to_owned()])
        .action(LinuxSeccompAction::ScmpActAllow)
        .build();
    if section.default_action() != LinuxSeccompAction::ScmpActAllow {
        rules.push(allowed.ok()?);
    }
    let mut section = section.clone();
    section.set_syscalls(Some(rules));
    Some(section)
}

fn compile(section: &LinuxSeccomp) -> Result<oci_seccomp::Program> {
    oci_seccomp::compile(section).map_err(|e| Error::new(e.to_string()))
}

/// The kernel's form of a compiled program.
fn filter_of(program: &oci_seccomp::Program) -> Filter {
    let instruction =
        |i: &oci_seccomp::Instruction| libc::sock_filter { code: i.code, jt: i.jt, jf: i.jf, k: i.k };
    Filter {
        instructions: program.instructions.iter().map(instruction).collect(),
        flags: program.flags,
        notifies: program.notifies,
    }
}

/// The filter that keeps a program from making device nodes, with which it would have the host's disks and memory.
pub(crate) fn devices_filter() -> Result<Filter> {
    Ok(filter_of(&compile(&devices_section()?)?))
}

/// The section that refuses the nodes of devices. A character device of number 0:0 opens nothing: overlays keep what was
/// removed as such. The kernel takes the lower 16 bits of the mode and the lower 32 of the number.
fn devices_section() -> Result<LinuxSeccomp> {
    let kind = |index, kind| masked(index, libc::S_IFMT, kind);
    let numbered = |index: usize| {
        LinuxSeccompArgBuilder::default()
            .index(index)
            .op(LinuxSeccompOperator::ScmpCmpNe)
            .value(0u64)
            .value_two(0u64)
            .build()
    };
    section_of([("mknod", 1), ("mknodat", 2)].into_iter().flat_map(|(name, mode)| {
        [
            refused(&[name], libc::EPERM, [kind(mode, libc::S_IFCHR), numbered(mode + 1)]),
            refused(&[name], libc::EPERM, [kind(mode, libc::S_IFBLK)]),
        ]
    }))
}

/// The filter by which criu asks `rt` of filters, and not the kernel, which tells root alone: its requests
/// PTRACE_SECCOMP_GET_FILTER and PTRACE_SECCOMP_GET_METADATA, and the option PTRACE_O_SUSPEND_SECCOMP, go to the listener.
pub(crate) fn criu_filter() -> Result<Filter> {
    const SETOPTIONS: u32 = 0x4200;
    const GET_FILTER: u32 = 0x420c;
    const GET_METADATA: u32 = 0x420d;
    const SUSPEND_SECCOMP: u32 = 1 << 21;
    let request = |number| masked(0, u32::MAX, number);
    let asked = |args: Vec<Result<LinuxSeccompArg, OciSpecError>>| {
        LinuxSyscallBuilder::default()
            .names(["ptrace".to_owned()])
            .action(LinuxSeccompAction::ScmpActNotify)
            .args(args.into_iter().collect::<Result<Vec<_>, _>>()?)
            .build()
    };
    let section = section_of([
        asked(vec![request(GET_FILTER)]),
        asked(vec![request(GET_METADATA)]),
        asked(vec![request(SETOPTIONS), masked(3, SUSPEND_SECCOMP, SUSPEND_SECCOMP)]),
    ])?;
    Ok(filter_of(&compile(&section)?))
}

/// The filter that keeps a program from typing into the terminal of its session.
pub(crate) fn terminal_filter() -> Result<Filter> {
    Ok(filter_of(&compile(&terminal_section()?)?))
}

/// The section that refuses what puts input into a terminal as if it had been typed there: TIOCSTI, and the selections of
/// a console (TIOCLINUX). The kernel takes the lower 32 bits of the command, so these are what is compared.
fn terminal_section() -> Result<LinuxSeccomp> {
    // The C libraries differ in the type of these constants.
    section_of(
        [libc::TIOCSTI as u32, libc::TIOCLINUX as u32]
            .map(|command| refused(&["ioctl"], libc::EPERM, [masked(1, u32::MAX, command)])),
    )
}

/// The filter that keeps a program from what namespaces do not keep apart.
pub(crate) fn shared_filter(confinement: Confinement) -> Result<Filter> {
    let mut rules = Vec::new();
    if confinement.keys {
        rules.push(refused(&KEY_CALLS, libc::EPERM, []));
    }
    if confinement.user_namespaces {
        const NEW: u32 = libc::CLONE_NEWUSER as u32;
        rules.push(refused(&["unshare", "clone"], libc::EPERM, [masked(0, NEW, NEW)]));
        // Its flags are in memory, where no filter looks; C libraries make the older call then.
        rules.push(refused(&["clone3"], libc::ENOSYS, []));
    }
    Ok(filter_of(&compile(&section_of(rules)?)?))
}

/// A rule that answers the system calls `names` with `errno` where all of `args` hold.
fn refused<const N: usize>(
    names: &[&str],
    errno: i32,
    args: [Result<LinuxSeccompArg, OciSpecError>; N],
) -> Result<LinuxSyscall, OciSpecError> {
    LinuxSyscallBuilder::default()
        .names(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
        .action(LinuxSeccompAction::ScmpActErrno)
        .errno_ret(errno.unsigned_abs())
        .args(args.into_iter().collect::<Result<Vec<_>, _>>()?)
        .build()
}

/// Holds where argument `index` has `value` in the bits of `mask`.
fn masked(index: usize, mask: u32, value: u32) -> Result<LinuxSeccompArg, OciSpecError> {
    LinuxSeccompArgBuilder::default()
        .index(index)
        .op(LinuxSeccompOperator::ScmpCmpMaskedEq)
        .value(u64::from(mask))
        .value_two(u64::from(value))
        .build()
}

/// A section that lets all pass but what `refused` says, from every architecture that the kernel runs.
fn section_of(refused: impl IntoIterator<Item = Result<LinuxSyscall, OciSpecError>>) -> Result<LinuxSeccomp> {
    let section = refused.into_iter().collect::<Result<Vec<_>, _>>().and_then(|refused| {
        LinuxSeccompBuilder::default()
            .default_action(LinuxSeccompAction::ScmpActAllow)
            .architectures(oci_seccomp::native_architectures().collect::<Vec<_>>())
            .syscalls(refused)
            .build()
    });
    section.map_err(|e| err!("{e}"))
}
