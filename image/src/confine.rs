//! What a server gives up before it reads the first request: everything but its descriptors.

use oci_spec::runtime::{LinuxSeccomp, LinuxSeccompAction, LinuxSeccompBuilder, LinuxSyscallBuilder};
use rt_sys::caps;
use rt_sys::error::{Context, Error, Result};
use rt_sys::seccomp::{self, Filter};
use rustix::process::DumpableBehavior;

/// The calls that a server makes: it reads its image, answers the kernel, and has memory and threads. Nothing among them
/// opens, executes, connects or signals.
const CALLS: &[&str] = &[
    "pread64",
    "read",
    "write",
    "writev",
    "fadvise64",
    "close",
    // Memory.
    "brk",
    "madvise",
    "mmap",
    "mprotect",
    "mremap",
    "munmap",
    // Threads.
    "clone",
    "clone3",
    "exit",
    "exit_group",
    "futex",
    "gettid",
    "getpid",
    "membarrier",
    "restart_syscall",
    "rseq",
    "rt_sigaction",
    "rt_sigprocmask",
    "rt_sigreturn",
    "sched_getaffinity",
    "sched_yield",
    "set_robust_list",
    "sigaltstack",
    // Names of threads, and the end with the keeper.
    "prctl",
    // A keeper's worker.
    "clock_gettime",
    "wait4",
];

/// Drops all capabilities and privileges to come, and loads the filter. Threads are made after this.
pub(crate) fn confine() -> Result<()> {
    rustix::thread::set_no_new_privs(true).context(|| "set no_new_privs")?;
    // Nobody looks into its memory or takes its descriptors by /proc.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    caps::set(&caps::Sets::default())?;
    rustix::process::chdir("/").context(|| "enter /")?;
    seccomp::load(&filter()?)?;
    Ok(())
}

fn section() -> Result<LinuxSeccomp> {
    let allowed = LinuxSyscallBuilder::default()
        .names(CALLS.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
        .action(LinuxSeccompAction::ScmpActAllow)
        .build();
    allowed
        .and_then(|allowed| {
            LinuxSeccompBuilder::default()
                .default_action(LinuxSeccompAction::ScmpActErrno)
                .architectures(oci_seccomp::native_architectures().take(1).collect::<Vec<_>>())
                .syscalls([allowed])
                .build()
        })
        .map_err(|e| Error::new(e.to_string()))
}

fn filter() -> Result<Filter> {
    let program = oci_seccomp::compile(&section()?).map_err(|e| Error::new(e.to_string()))?;
    let instruction =
        |i: &oci_seccomp::Instruction| libc::sock_filter { code: i.code, jt: i.jt, jf: i.jf, k: i.k };
    Ok(Filter {
        instructions: program.instructions.iter().map(instruction).collect(),
        flags: program.flags,
        notifies: program.notifies,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_knows_all_its_calls() {
        let program = oci_seccomp::compile(&section().unwrap()).unwrap();
        assert!(program.unknown.is_empty(), "{:?}", program.unknown);
    }
}
