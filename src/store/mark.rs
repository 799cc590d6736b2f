//! What tells a process from a later one with the same pid.

use rt_sys::fd::leave_open;
use rt_sys::process;
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::time::Timespec;

/// The file system of pidfds whose inodes are never used again (linux/magic.h, PID_FS_MAGIC; Linux 6.9).
const PIDFS: u64 = 0x5049_4446;

/// What a process alone has of all that ever had its pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// The inode of its pidfd. It is asked of a descriptor, where the start time makes the kernel fill a directory of
    /// /proc.
    Inode(u64),
    /// Its start time in clock ticks since boot (proc_pid_stat(5) field 22).
    Start(u64),
}

impl Mark {
    /// The inode of this process's pidfd, `pid` being its own; `None` where pidfds have none of their own. `like` is
    /// another process's mark on this machine, if one is at hand.
    pub(crate) fn own(pid: Pid, like: Option<Mark>) -> Option<Mark> {
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        let unique = match like {
            Some(Mark::Inode(_)) => true,
            _ => cfg!(target_pointer_width = "64") && fs::fstatfs(&pidfd).ok()?.f_type as u64 == PIDFS,
        };
        let inode = fs::fstat(&pidfd).ok()?.st_ino;
        leave_open(pidfd);
        unique.then_some(Mark::Inode(inode))
    }

    /// A descriptor of process `pid`, where that has this mark and lives; a zombie does not. `proc` is /proc.
    pub(crate) fn open(self, pid: i32, proc: impl AsFd) -> Option<OwnedFd> {
        let pidfd = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        // Only now it is certain that the pid was not reused in between.
        let lives = match self {
            Mark::Inode(inode) => fs::fstat(&pidfd).ok()?.st_ino == inode && !has_ended(&pidfd),
            Mark::Start(time) => lives_since(proc, pid, time),
        };
        lives.then_some(pidfd)
    }

    /// The form that [`Mark::parse`] reads.
    pub(crate) fn text(self) -> String {
        match self {
            Mark::Inode(inode) => format!("i{inode}"),
            Mark::Start(time) => time.to_string(),
        }
    }

    /// Reads what [`Mark::text`] has written.
    pub(crate) fn parse(text: &str) -> Option<Mark> {
        match text.strip_prefix('i') {
            Some(inode) => inode.parse().ok().map(Mark::Inode),
            None => text.parse().ok().map(Mark::Start),
        }
    }
}

/// True while process `pid` lives and was started at `time`, in clock ticks since boot; a zombie does not live.
pub(super) fn lives_since(proc: impl AsFd, pid: i32, time: u64) -> bool {
    process::stat(proc, &pid.to_string()).is_ok_and(|stat| stat.start_time == time && !stat.dead)
}

/// A pidfd is readable when its process has ended, also as a zombie (pidfd_open(2)).
fn has_ended(pidfd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rt_sys::fd;

    #[test]
    fn a_process_is_known_by_its_mark() {
        let proc = fd::open_proc().unwrap();
        let own = rustix::process::getpid();
        let pid = own.as_raw_nonzero().get();
        let start = Mark::Start(process::stat(&proc, "self").unwrap().start_time);
        for mark in [Some(start), Mark::own(own, None)].into_iter().flatten() {
            assert_eq!(Mark::parse(&mark.text()), Some(mark));
            assert!(mark.open(pid, &proc).is_some(), "{mark:?}");
            let other = match mark {
                Mark::Inode(inode) => Mark::Inode(inode + 1),
                Mark::Start(time) => Mark::Start(time + 1),
            };
            assert!(other.open(pid, &proc).is_none(), "{other:?}");
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
        let inode = Mark::Inode(fs::fstat(&pidfd).unwrap().st_ino);
        for mark in [inode, Mark::Start(stat.start_time)] {
            assert!(mark.open(pid, &proc).is_some(), "{mark:?}");
        }
        drop(child.stdin.take());
        let mut ended = [PollFd::new(&pidfd, PollFlags::IN)];
        assert_eq!(rustix::event::poll(&mut ended, None).unwrap(), 1);
        for mark in [inode, Mark::Start(stat.start_time)] {
            assert!(mark.open(pid, &proc).is_none(), "{mark:?}");
        }
        child.wait().unwrap();
    }

    #[test]
    fn nothing_else_is_a_mark() {
        for text in ["", "i", "x1", "-1", "i-1"] {
            assert_eq!(Mark::parse(text), None, "{text:?}");
        }
    }
}
