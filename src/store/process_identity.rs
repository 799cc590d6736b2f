//! The identity of a process: what tells it from a later one with the same pid.
//!
//! The kernel gives a pid to another process once its process has been reaped. A file can name a process by its pid
//! only together with something that no later process has.

use rt_sys::error::{Context, Result};
use rt_sys::fd::leave_open;
use rt_sys::process;
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::time::Duration;

/// The file system of pidfds whose inodes are never used again (linux/magic.h, PID_FS_MAGIC; Linux 6.9).
const PIDFS: u64 = 0x5049_4446;

/// What one process has, and no other process that ever gets its pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessIdentity {
    /// The inode of its pidfd, which is never used again since Linux 6.9. It is preferred because fstat(2) of a
    /// descriptor tells it. For the start time the kernel would have to make a directory of /proc.
    PidfdInode(u64),
    /// Its start time in clock ticks since boot (proc_pid_stat(5) field 22).
    StartTime(u64),
}

impl ProcessIdentity {
    /// The identity of process `pid`, this one or a child, by the inode of its pidfd. `None` on kernels whose pidfds all have
    /// one inode. `like` is the identity of another process on this machine, if one is at hand: where that has such an
    /// inode, the kernel need not be asked.
    pub(crate) fn of(pid: Pid, like: Option<ProcessIdentity>) -> Option<ProcessIdentity> {
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        let unique = match like {
            Some(ProcessIdentity::PidfdInode(_)) => true,
            _ => cfg!(target_pointer_width = "64") && fs::fstatfs(&pidfd).ok()?.f_type as u64 == PIDFS,
        };
        let inode = fs::fstat(&pidfd).ok()?.st_ino;
        leave_open(pidfd);
        unique.then_some(ProcessIdentity::PidfdInode(inode))
    }

    /// A descriptor of process `pid`, where that has this identity and lives; a zombie does not. `proc` is /proc.
    ///
    /// # Errors
    /// Where the kernel does not say: nobody may take the process for dead.
    pub(crate) fn open(self, pid: i32, proc: impl AsFd) -> Result<Option<OwnedFd>> {
        let Some(pidfd) = open_pidfd(pid)? else { return Ok(None) };
        // The pidfd is opened first: a process that had the pid only until then is not the one that is looked at.
        let lives = match self {
            ProcessIdentity::PidfdInode(inode) => fs::fstat(&pidfd)?.st_ino == inode && !has_ended(&pidfd)?,
            ProcessIdentity::StartTime(time) => lives_since(proc, pid, time)?,
        };
        Ok(lives.then_some(pidfd))
    }

    /// The form that [`ProcessIdentity::parse`] reads.
    pub(crate) fn text(self) -> String {
        match self {
            ProcessIdentity::PidfdInode(inode) => format!("i{inode}"),
            ProcessIdentity::StartTime(time) => time.to_string(),
        }
    }

    /// Reads what [`ProcessIdentity::text`] has written.
    pub(crate) fn parse(text: &str) -> Option<ProcessIdentity> {
        match text.strip_prefix('i') {
            Some(inode) => inode.parse().ok().map(ProcessIdentity::PidfdInode),
            None => text.parse().ok().map(ProcessIdentity::StartTime),
        }
    }
}

/// A descriptor of process `pid`; `None` where there is none.
pub(crate) fn open_pidfd(pid: i32) -> Result<Option<OwnedFd>> {
    let Some(pid) = Pid::from_raw(pid) else { return Ok(None) };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => Ok(Some(pidfd)),
        // EINVAL: no process has this number, only a thread or, before Linux 6.15, one that is just being reaped.
        Err(Errno::SRCH | Errno::INVAL) => Ok(None),
        Err(e) => Err(e).context(|| format!("look at process {}", pid.as_raw_nonzero())),
    }
}

/// True while process `pid` lives and was started at `time`, in clock ticks since boot; a zombie does not live.
///
/// # Errors
/// Where the kernel does not say. ENOENT is the answer of procfs for a process that is not there, and ESRCH that for one
/// that ends between open(2) and read(2).
pub(super) fn lives_since(proc: impl AsFd, pid: i32, time: u64) -> Result<bool> {
    match process::stat(proc, &pid.to_string()) {
        Ok(stat) => Ok(stat.start_time == time && !stat.dead),
        Err(e) if e.is(libc::ENOENT) || e.is(libc::ESRCH) => Ok(false),
        Err(e) => Err(e.context(format!("look at process {pid}"))),
    }
}

/// A pidfd is readable when its process has ended, also as a zombie (pidfd_open(2)).
fn has_ended(pidfd: &OwnedFd) -> Result<bool> {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    Ok(process::poll(&mut fds, Some(Duration::ZERO))? > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rt_sys::fd;

    #[test]
    fn a_process_is_known_by_its_identity() {
        let proc = fd::open_proc().unwrap();
        let own = rustix::process::getpid();
        let pid = own.as_raw_nonzero().get();
        let start = ProcessIdentity::StartTime(process::stat(&proc, "self").unwrap().start_time);
        for identity in [Some(start), ProcessIdentity::of(own, None)].into_iter().flatten() {
            assert_eq!(ProcessIdentity::parse(&identity.text()), Some(identity));
            assert!(identity.open(pid, &proc).unwrap().is_some(), "{identity:?}");
            let other = match identity {
                ProcessIdentity::PidfdInode(inode) => ProcessIdentity::PidfdInode(inode + 1),
                ProcessIdentity::StartTime(time) => ProcessIdentity::StartTime(time + 1),
            };
            assert!(other.open(pid, &proc).unwrap().is_none(), "{other:?}");
        }
    }

    #[test]
    fn a_zombie_does_not_live() {
        let proc = fd::open_proc().unwrap();
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let pid = child.id() as i32;
        let stat = process::stat(&proc, &pid.to_string()).unwrap();
        let pidfd = pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()).unwrap();
        let inode = ProcessIdentity::PidfdInode(fs::fstat(&pidfd).unwrap().st_ino);
        for identity in [inode, ProcessIdentity::StartTime(stat.start_time)] {
            assert!(identity.open(pid, &proc).unwrap().is_some(), "{identity:?}");
        }
        drop(child.stdin.take());
        let mut ended = [PollFd::new(&pidfd, PollFlags::IN)];
        assert_eq!(rustix::event::poll(&mut ended, None).unwrap(), 1);
        for identity in [inode, ProcessIdentity::StartTime(stat.start_time)] {
            assert!(identity.open(pid, &proc).unwrap().is_none(), "{identity:?}");
        }
        child.wait().unwrap();
    }

    #[test]
    fn nothing_else_is_an_identity() {
        for text in ["", "i", "x1", "-1", "i-1"] {
            assert_eq!(ProcessIdentity::parse(text), None, "{text:?}");
        }
    }
}
