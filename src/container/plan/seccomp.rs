//! The seccomp filters of a plan, compiled before the first process is made.

use oci_spec::runtime::{
    LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArgBuilder, LinuxSeccompBuilder, LinuxSeccompOperator,
    LinuxSyscallBuilder,
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
    let section = refused.into_iter().collect::<Result<Vec<_>, _>>().and_then(|refused| {
        LinuxSeccompBuilder::default()
            .default_action(LinuxSeccompAction::ScmpActAllow)
            .architectures(oci_seccomp::native_architectures().collect::<Vec<_>>())
            .syscalls(refused)
            .build()
    });
    section.map_err(|e| err!("{e}"))
}
