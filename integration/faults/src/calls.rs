//! The system calls that can be made to fail: where the path of each is, and which faults are plausible for it.

use std::fs;

use crate::sys::{self, Entry};

/// Which argument says what a call is about.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// None does.
    Nothing,
    /// The path in this argument.
    Path(usize),
    /// The path in the second of these arguments, below the directory of the first.
    At(usize, usize),
    /// The descriptor in this argument.
    Descriptor(usize),
}
use Place::{At, Descriptor, Nothing, Path};

/// What is done to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It is not made, and gives this errno.
    Errno(i32),
    /// It is made with a length of half of what was asked, at least 1.
    Short,
    /// It is not made, and gives 0: the end of a file.
    Zero,
    /// The process gets this signal in place of the call.
    Signal(i32),
}

const ERRNOS: &[(&str, i32)] = &[
    ("EIO", libc::EIO),
    ("ENOMEM", libc::ENOMEM),
    ("EMFILE", libc::EMFILE),
    ("ENOSPC", libc::ENOSPC),
    ("EACCES", libc::EACCES),
    ("EINTR", libc::EINTR),
    ("EPERM", libc::EPERM),
    ("EAGAIN", libc::EAGAIN),
    ("ECONNRESET", libc::ECONNRESET),
    ("ENOENT", libc::ENOENT),
];

impl Kind {
    /// The kind of a name as it stands on the command line.
    pub(crate) fn parse(name: &str) -> Option<Kind> {
        match name {
            "SHORT" => Some(Kind::Short),
            "ZERO" => Some(Kind::Zero),
            "SIGKILL" => Some(Kind::Signal(libc::SIGKILL)),
            "SIGTERM" => Some(Kind::Signal(libc::SIGTERM)),
            _ => ERRNOS.iter().find(|(known, _)| *known == name).map(|(_, errno)| Kind::Errno(*errno)),
        }
    }
}

/// One call: its number, its name, what it is about, the faults for it, and the argument that is its length.
struct Call(i64, &'static str, Place, &'static str, Option<usize>);

const OPEN: &str = "EIO EMFILE ENOMEM EACCES";
const LOOK: &str = "EIO ENOMEM EACCES";
// EACCES is what these are asked for.
const ACCESS: &str = "EIO ENOMEM";
const CHANGE: &str = "EIO ENOSPC EACCES";
const META: &str = "EIO EPERM";
const MOUNT: &str = "EPERM ENOMEM EIO";

const CALLS: &[Call] = &[
    Call(libc::SYS_openat, "openat", At(0, 1), OPEN, None),
    Call(libc::SYS_openat2, "openat2", At(0, 1), OPEN, None),
    Call(libc::SYS_read, "read", Descriptor(0), "EIO EINTR SHORT ZERO", Some(2)),
    Call(libc::SYS_pread64, "pread64", Descriptor(0), "EIO EINTR SHORT ZERO", Some(2)),
    Call(libc::SYS_readv, "readv", Descriptor(0), "EIO EINTR", None),
    Call(libc::SYS_write, "write", Descriptor(0), "EIO ENOSPC EINTR SHORT", Some(2)),
    Call(libc::SYS_pwrite64, "pwrite64", Descriptor(0), "EIO ENOSPC EINTR SHORT", Some(2)),
    Call(libc::SYS_writev, "writev", Descriptor(0), "EIO ENOSPC EINTR", None),
    Call(libc::SYS_close, "close", Descriptor(0), "EIO", None),
    Call(libc::SYS_newfstatat, "newfstatat", At(0, 1), LOOK, None),
    Call(libc::SYS_statx, "statx", At(0, 1), LOOK, None),
    Call(libc::SYS_fstat, "fstat", Descriptor(0), "EIO ENOMEM", None),
    Call(libc::SYS_faccessat, "faccessat", At(0, 1), ACCESS, None),
    Call(libc::SYS_faccessat2, "faccessat2", At(0, 1), ACCESS, None),
    Call(libc::SYS_readlinkat, "readlinkat", At(0, 1), LOOK, None),
    Call(libc::SYS_statfs, "statfs", Path(0), LOOK, None),
    Call(libc::SYS_fstatfs, "fstatfs", Descriptor(0), "EIO ENOMEM", None),
    Call(libc::SYS_getdents64, "getdents64", Descriptor(0), "EIO ENOMEM", None),
    Call(libc::SYS_getcwd, "getcwd", Nothing, "ENOMEM EACCES", None),
    Call(libc::SYS_chdir, "chdir", Path(0), LOOK, None),
    Call(libc::SYS_fchdir, "fchdir", Descriptor(0), "EIO EACCES", None),
    Call(libc::SYS_mkdirat, "mkdirat", At(0, 1), CHANGE, None),
    Call(libc::SYS_unlinkat, "unlinkat", At(0, 1), "EIO EACCES", None),
    Call(libc::SYS_renameat, "renameat", At(0, 1), CHANGE, None),
    Call(libc::SYS_renameat2, "renameat2", At(0, 1), CHANGE, None),
    Call(libc::SYS_linkat, "linkat", At(2, 3), CHANGE, None),
    Call(libc::SYS_symlinkat, "symlinkat", At(1, 2), CHANGE, None),
    Call(libc::SYS_mknodat, "mknodat", At(0, 1), CHANGE, None),
    Call(libc::SYS_fchmod, "fchmod", Descriptor(0), META, None),
    Call(libc::SYS_fchmodat, "fchmodat", At(0, 1), META, None),
    Call(libc::SYS_fchown, "fchown", Descriptor(0), META, None),
    Call(libc::SYS_fchownat, "fchownat", At(0, 1), META, None),
    Call(libc::SYS_utimensat, "utimensat", At(0, 1), META, None),
    Call(libc::SYS_ftruncate, "ftruncate", Descriptor(0), "EIO ENOSPC", None),
    Call(libc::SYS_fallocate, "fallocate", Descriptor(0), "EIO ENOSPC", None),
    Call(libc::SYS_fsync, "fsync", Descriptor(0), "EIO ENOSPC", None),
    Call(libc::SYS_fdatasync, "fdatasync", Descriptor(0), "EIO ENOSPC", None),
    Call(libc::SYS_syncfs, "syncfs", Descriptor(0), "EIO ENOSPC", None),
    Call(libc::SYS_flock, "flock", Descriptor(0), "EINTR EIO", None),
    Call(libc::SYS_ioctl, "ioctl", Descriptor(0), "EIO ENOMEM", None),
    Call(libc::SYS_lseek, "lseek", Descriptor(0), "EIO", None),
    Call(libc::SYS_copy_file_range, "copy_file_range", Descriptor(2), "EIO ENOSPC SHORT", Some(4)),
    Call(libc::SYS_sendfile, "sendfile", Descriptor(0), "EIO ENOSPC SHORT", Some(3)),
    Call(libc::SYS_splice, "splice", Descriptor(0), "EIO ENOMEM SHORT", Some(4)),
    Call(libc::SYS_getxattr, "getxattr", Path(0), "EIO ENOMEM", None),
    Call(libc::SYS_lgetxattr, "lgetxattr", Path(0), "EIO ENOMEM", None),
    Call(libc::SYS_fgetxattr, "fgetxattr", Descriptor(0), "EIO ENOMEM", None),
    Call(libc::SYS_listxattr, "listxattr", Path(0), "EIO ENOMEM", None),
    Call(libc::SYS_llistxattr, "llistxattr", Path(0), "EIO ENOMEM", None),
    Call(libc::SYS_flistxattr, "flistxattr", Descriptor(0), "EIO ENOMEM", None),
    Call(libc::SYS_setxattr, "setxattr", Path(0), "EIO ENOSPC", None),
    Call(libc::SYS_lsetxattr, "lsetxattr", Path(0), "EIO ENOSPC", None),
    Call(libc::SYS_fsetxattr, "fsetxattr", Descriptor(0), "EIO ENOSPC", None),
    Call(libc::SYS_memfd_create, "memfd_create", Nothing, "EMFILE ENOMEM", None),
    Call(libc::SYS_mmap, "mmap", Descriptor(4), "ENOMEM", None),
    Call(libc::SYS_mount, "mount", Path(1), MOUNT, None),
    Call(libc::SYS_umount2, "umount2", Path(0), "EPERM ENOMEM", None),
    Call(libc::SYS_fsopen, "fsopen", Path(0), "EPERM ENOMEM EMFILE", None),
    Call(libc::SYS_fsconfig, "fsconfig", Path(2), MOUNT, None),
    Call(libc::SYS_fsmount, "fsmount", Nothing, "EPERM ENOMEM EMFILE", None),
    Call(libc::SYS_move_mount, "move_mount", At(2, 3), MOUNT, None),
    Call(libc::SYS_open_tree, "open_tree", At(0, 1), "EPERM ENOMEM EMFILE", None),
    Call(libc::SYS_mount_setattr, "mount_setattr", At(0, 1), MOUNT, None),
    Call(libc::SYS_pivot_root, "pivot_root", Path(0), MOUNT, None),
    Call(libc::SYS_chroot, "chroot", Path(0), MOUNT, None),
    Call(libc::SYS_unshare, "unshare", Nothing, "EPERM ENOMEM", None),
    Call(libc::SYS_setns, "setns", Descriptor(0), "EPERM ENOMEM", None),
    Call(libc::SYS_clone, "clone", Nothing, "EAGAIN ENOMEM", None),
    Call(libc::SYS_clone3, "clone3", Nothing, "EAGAIN ENOMEM", None),
    Call(libc::SYS_execve, "execve", Path(0), "EIO ENOMEM EACCES", None),
    Call(libc::SYS_execveat, "execveat", At(0, 1), "EIO ENOMEM EACCES", None),
    Call(libc::SYS_seccomp, "seccomp", Nothing, "ENOMEM", None),
    Call(libc::SYS_setresuid, "setresuid", Nothing, "EPERM EAGAIN", None),
    Call(libc::SYS_setresgid, "setresgid", Nothing, "EPERM", None),
    Call(libc::SYS_setgroups, "setgroups", Nothing, "EPERM ENOMEM", None),
    Call(libc::SYS_capset, "capset", Nothing, "EPERM", None),
    Call(libc::SYS_sethostname, "sethostname", Nothing, "EPERM", None),
    Call(libc::SYS_wait4, "wait4", Nothing, "EINTR", None),
    Call(libc::SYS_waitid, "waitid", Nothing, "EINTR ENOMEM", None),
    Call(libc::SYS_kill, "kill", Nothing, "EPERM", None),
    Call(libc::SYS_pidfd_open, "pidfd_open", Nothing, "EMFILE ENOMEM", None),
    Call(libc::SYS_pidfd_send_signal, "pidfd_send_signal", Nothing, "EPERM ENOMEM", None),
    Call(libc::SYS_socket, "socket", Nothing, "EMFILE ENOMEM EACCES", None),
    Call(libc::SYS_socketpair, "socketpair", Nothing, "EMFILE ENOMEM", None),
    Call(libc::SYS_connect, "connect", Descriptor(0), "ENOMEM EACCES", None),
    Call(libc::SYS_setsockopt, "setsockopt", Descriptor(0), "ENOMEM", None),
    Call(libc::SYS_sendto, "sendto", Descriptor(0), "ECONNRESET ENOMEM EINTR SHORT", Some(2)),
    Call(libc::SYS_recvfrom, "recvfrom", Descriptor(0), "ECONNRESET ENOMEM EINTR SHORT ZERO", Some(2)),
    Call(libc::SYS_sendmsg, "sendmsg", Descriptor(0), "ECONNRESET ENOMEM EINTR", None),
    Call(libc::SYS_recvmsg, "recvmsg", Descriptor(0), "ECONNRESET ENOMEM EINTR", None),
    Call(libc::SYS_pipe2, "pipe2", Nothing, "EMFILE ENOMEM", None),
    Call(libc::SYS_eventfd2, "eventfd2", Nothing, "EMFILE ENOMEM", None),
    Call(libc::SYS_epoll_create1, "epoll_create1", Nothing, "EMFILE ENOMEM", None),
    Call(libc::SYS_ppoll, "ppoll", Nothing, "EINTR ENOMEM", None),
    Call(libc::SYS_dup3, "dup3", Descriptor(0), "EMFILE", None),
    // What only x86_64 has.
    #[cfg(target_arch = "x86_64")]
    Call(libc::SYS_open, "open", Path(0), OPEN, None),
    #[cfg(target_arch = "x86_64")]
    Call(libc::SYS_stat, "stat", Path(0), LOOK, None),
    #[cfg(target_arch = "x86_64")]
    Call(libc::SYS_lstat, "lstat", Path(0), LOOK, None),
    #[cfg(target_arch = "x86_64")]
    Call(libc::SYS_access, "access", Path(0), ACCESS, None),
    #[cfg(target_arch = "x86_64")]
    Call(libc::SYS_readlink, "readlink", Path(0), LOOK, None),
    #[cfg(target_arch = "x86_64")]
    Call(libc::SYS_mkdir, "mkdir", Path(0), CHANGE, None),
    #[cfg(target_arch = "x86_64")]
    Call(libc::SYS_rmdir, "rmdir", Path(0), "EIO EACCES", None),
    #[cfg(target_arch = "x86_64")]
    Call(libc::SYS_unlink, "unlink", Path(0), "EIO EACCES", None),
    #[cfg(target_arch = "x86_64")]
    Call(libc::SYS_rename, "rename", Path(0), CHANGE, None),
    #[cfg(target_arch = "x86_64")]
    Call(libc::SYS_link, "link", Path(1), CHANGE, None),
    #[cfg(target_arch = "x86_64")]
    Call(libc::SYS_symlink, "symlink", Path(1), CHANGE, None),
    #[cfg(target_arch = "x86_64")]
    Call(libc::SYS_chmod, "chmod", Path(0), META, None),
    #[cfg(target_arch = "x86_64")]
    Call(libc::SYS_fork, "fork", Nothing, "EAGAIN ENOMEM", None),
    #[cfg(target_arch = "x86_64")]
    Call(libc::SYS_vfork, "vfork", Nothing, "EAGAIN ENOMEM", None),
    #[cfg(target_arch = "x86_64")]
    Call(libc::SYS_poll, "poll", Nothing, "EINTR ENOMEM", None),
];

/// What is known of a call by its name.
fn named(name: &str) -> Option<&'static Call> {
    CALLS.iter().find(|call| call.1 == name)
}

/// The faults that are plausible for a call on this path; of signals, both.
pub(crate) fn faults(name: &str, path: &str) -> Vec<&'static str> {
    let Some(call) = named(name) else { return Vec::new() };
    // The kernel's own files, and those in memory, do not end early, nor does a pipe or a socket of this machine whose other
    // end lives; an empty file of a state is that of a container that is being made; nobody knows how long a log is; and rt
    // images lists a damaged image with what is known of it.
    let kernels = ["/proc", "/sys", "pipe:", "unix:", "/memfd:"].iter().any(|start| path.starts_with(start));
    let whole =
        kernels || path.ends_with("/state.json") || path.ends_with("/log") || is_config_of_store(path);
    // A place that the caller may not enter is somebody else's, and so is a mark of use.
    // Root, whom another machine's file server may refuse the way to HOME, has no files there then.
    let above_home = name == "openat"
        && (["/", "//dev", "/dev", "/dev/shm", ".", "./home"].contains(&path)
            || path.starts_with("/dev/shm/rt-faults"));
    let others = above_home || ["./run", "./run/rt"].contains(&path) || path.contains("/images/uses/");
    let means_no = |kind: &str| whole && kind == "ZERO" || others && kind == "EACCES";
    call.3.split(' ').filter(|kind| !means_no(kind)).chain(["SIGKILL", "SIGTERM"]).collect()
}

fn is_config_of_store(path: &str) -> bool {
    path.contains("/images/bundles/") && path.ends_with("/config.json")
}

/// The argument that is a call's length.
pub(crate) fn length(name: &str) -> Option<usize> {
    named(name)?.4
}

/// The name of a call and what it is about; none for calls that cannot fail or whose failure means nothing.
pub(crate) fn describe(pid: i32, entry: &Entry) -> Option<(&'static str, String)> {
    let call = CALLS.iter().find(|call| call.0 == entry.number)?;
    let argument = |index: usize| entry.arguments[index];
    let path = |index| match argument(index) {
        0 => String::new(),
        address => sys::text(pid, address).map_or("?".into(), |t| String::from_utf8_lossy(&t).into_owned()),
    };
    let descriptor = |index| {
        let number = argument(index) as i32;
        match number {
            libc::AT_FDCWD => String::new(),
            _ => opened(pid, number),
        }
    };
    // Memory of no file: what Rust does then is to end the process.
    if call.1 == "mmap" && argument(4) as i32 == -1 {
        return None;
    }
    let about = match call.2 {
        Nothing => String::new(),
        Path(index) => path(index),
        Descriptor(index) => descriptor(index),
        At(dir, index) => match path(index) {
            name if name.starts_with('/') => name,
            name if name.is_empty() => descriptor(dir),
            name => match descriptor(dir) {
                dir if dir.is_empty() => name,
                dir => format!("{dir}/{name}"),
            },
        },
    };
    Some((call.1, about))
}

/// What a descriptor leads to. Sockets of this machine (unix(7)) are told from those of the network.
fn opened(pid: i32, number: i32) -> String {
    let Ok(target) = fs::read_link(format!("/proc/{pid}/fd/{number}")) else { return "?".into() };
    let target = target.to_string_lossy().into_owned();
    let inode = target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
    let is_unix = |inode: &str| {
        let all = fs::read_to_string(format!("/proc/{pid}/net/unix")).unwrap_or_default();
        all.lines().any(|line| line.split_whitespace().nth(6) == Some(inode))
    };
    match inode {
        Some(inode) if is_unix(inode) => format!("unix:[{inode}]"),
        _ => target,
    }
}
