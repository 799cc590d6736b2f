//! What a server gives up before it reads the first byte of an image: everything but its descriptors.

use oci_spec::runtime::{
    LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArgBuilder, LinuxSeccompBuilder, LinuxSeccompOperator,
    LinuxSyscallBuilder,
};
use rt_sys::caps;
use rt_sys::error::{Context, Error, Result};
use rt_sys::seccomp::{self, Filter};
use rustix::process::DumpableBehavior;

/// The calls that a server makes: it reads its image, answers the kernel, and has memory and threads. Nothing among them
/// opens, executes or connects.
const CALLS: &[&str] = &[
    "pread64",
    // Sizes of files, of which the library asks in one of these ways.
    "fstat",
    "newfstatat",
    "statx",
    // Seeds of hash tables.
    "getrandom",
    // Who calls, for the config.
    "geteuid",
    "getegid",
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
    "getppid",
    // A keeper's worker.
    "clock_gettime",
    "wait4",
];

/// Calls that are allowed with one value of their second argument: a second descriptor of an open file, and one of a mount.
const WITH_ARGUMENT: &[(&str, u64)] =
    &[("fcntl", libc::F_DUPFD_CLOEXEC as u64), ("ioctl", rt_sys::fuse::FUSE_DEV_IOC_CLONE as u64)];

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
    let rule = |name: &str, arguments: &[(usize, u64)]| {
        let is = |(index, value): &(usize, u64)| {
            let argument = LinuxSeccompArgBuilder::default().index(*index).value(*value);
            argument.op(LinuxSeccompOperator::ScmpCmpEq).build()
        };
        let arguments = arguments.iter().map(is).collect::<std::result::Result<Vec<_>, _>>()?;
        LinuxSyscallBuilder::default()
            .names([name.to_owned()])
            .action(LinuxSeccompAction::ScmpActAllow)
            .args(arguments)
            .build()
    };
    // A worker lets its keeper, which is this process, go on and end with it.
    let keeper = u64::from(std::process::id());
    let awake = rule("kill", &[(0, keeper), (1, libc::SIGCONT as u64)]);
    let with_arguments: std::result::Result<Vec<_>, _> =
        WITH_ARGUMENT.iter().map(|(name, value)| rule(name, &[(1, *value)])).chain([awake]).collect();
    allowed
        .and_then(|allowed| Ok((allowed, with_arguments?)))
        .and_then(|(allowed, with_arguments)| {
            LinuxSeccompBuilder::default()
                .default_action(LinuxSeccompAction::ScmpActErrno)
                .architectures(oci_seccomp::native_architectures().take(1).collect::<Vec<_>>())
                .syscalls(std::iter::once(allowed).chain(with_arguments).collect::<Vec<_>>())
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
