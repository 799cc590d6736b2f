//! The seccomp filters of a plan, compiled before the first process is made.

use oci_spec::OciSpecError;
use oci_spec::runtime::{
    LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArgBuilder, LinuxSeccompBuilder, LinuxSeccompOperator,
    LinuxSyscall, LinuxSyscallBuilder,
};
use rt_sys::error::{Context, Error, Result};
use rt_sys::seccomp::Filter;
use rt_sys::{bail, err};
use std::path::PathBuf;

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
    })
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
    let argument = |index: usize, op, value: u32, value_two: u32| {
        LinuxSeccompArgBuilder::default()
            .index(index)
            .op(op)
            .value(u64::from(value))
            .value_two(u64::from(value_two))
            .build()
    };
    let kind = |index, kind| argument(index, LinuxSeccompOperator::ScmpCmpMaskedEq, libc::S_IFMT, kind);
    let refused = |name: &str, args: Vec<_>| {
        LinuxSyscallBuilder::default()
            .names([name.to_owned()])
            .action(LinuxSeccompAction::ScmpActErrno)
            .args(args)
            .build()
    };
    let section = [("mknod", 1), ("mknodat", 2)]
        .into_iter()
        .map(|(name, mode)| {
            let numbered = argument(mode + 1, LinuxSeccompOperator::ScmpCmpNe, 0, 0)?;
            Ok([
                refused(name, vec![kind(mode, libc::S_IFCHR)?, numbered])?,
                refused(name, vec![kind(mode, libc::S_IFBLK)?])?,
            ])
        })
        .collect::<Result<Vec<_>, _>>()
        .and_then(|refused| section_of(refused.concat()));
    section.map_err(|e: OciSpecError| err!("{e}"))
}

/// A section that lets all pass but what `refused` says, from every architecture that the kernel runs.
fn section_of(refused: Vec<LinuxSyscall>) -> Result<LinuxSeccomp, OciSpecError> {
    LinuxSeccompBuilder::default()
        .default_action(LinuxSeccompAction::ScmpActAllow)
        .architectures(oci_seccomp::native_architectures().collect::<Vec<_>>())
        .syscalls(refused)
        .build()
}

/// The filter that keeps a program from typing into the terminal of its session.
pub(crate) fn terminal_filter() -> Result<Filter> {
    Ok(filter_of(&compile(&terminal_section()?)?))
}

/// The section that refuses what puts input into a terminal as if it had been typed there: TIOCSTI, and the selections of
/// a console (TIOCLINUX). The kernel takes the lower 32 bits of the command, so these are what is compared.
fn terminal_section() -> Result<LinuxSeccomp> {
    let refused = [libc::TIOCSTI, libc::TIOCLINUX].map(|command| {
        let command = LinuxSeccompArgBuilder::default()
            .index(1usize)
            .op(LinuxSeccompOperator::ScmpCmpMaskedEq)
            .value(u64::from(u32::MAX))
            // The C libraries differ in the type of these constants.
            .value_two(command as u32)
            .build()?;
        LinuxSyscallBuilder::default()
            .names(["ioctl".to_owned()])
            .action(LinuxSeccompAction::ScmpActErrno)
            .args([command])
            .build()
    });
    let section = refused.into_iter().collect::<Result<Vec<_>, _>>().and_then(section_of);
    section.map_err(|e| err!("{e}"))
}
