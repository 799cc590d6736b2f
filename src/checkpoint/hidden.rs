//! Processes that the procfs at /proc does not show this one (proc(5), hidepid): other users', and of the user's own those that may not be
//! traced. What nobody sees is no "no".

use super::processes;
use rt_sys::error::{Context, Result};
use rt_sys::{caps, disk, fd, mount, ns};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open, test_kill_process};
use rustix::thread::CapabilitySet;
use std::path::Path;

/// The highest number of a process where the kernel does not tell it (PID_MAX_LIMIT).
const HIGHEST: i32 = 1 << 22;

/// What is hidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hidden {
    /// What is in the directories of processes.
    Content,
    /// Their directories, too.
    Processes,
    /// The same, whatever groups this process is in.
    Untraceable,
}

impl Hidden {
    /// The option that does it.
    pub(super) fn option(self) -> &'static str {
        match self {
            Hidden::Content => "hidepid=1",
            Hidden::Processes => "hidepid=2",
            Hidden::Untraceable => "hidepid=4",
        }
    }

    /// What the `options` of a procfs say; `is_in` tells whether this process is in a group. Since Linux 5.8 the values have names.
    fn said(options: &[Vec<u8>], is_in: impl Fn(u32) -> bool) -> Option<Hidden> {
        let value = |key: &str| options.iter().find_map(|option| option.strip_prefix(key.as_bytes()));
        let hidden = match value("hidepid=")? {
            b"0" | b"off" => return None,
            b"1" | b"noaccess" => Hidden::Content,
            b"2" | b"invisible" => Hidden::Processes,
            _ => return Some(Hidden::Untraceable),
        };
        // Without the option it is root's group.
        let group = value("gid=").map_or(Some(0), |group| str::from_utf8(group).ok()?.parse().ok());
        (!group.is_some_and(is_in)).then_some(hidden)
    }
}

/// What the procfs at /proc hides from this process.
pub(super) fn find() -> Result<Option<Hidden>> {
    // In another user namespace it may have the right over some processes alone, and a group that is not known there has another number.
    let is_initial = ns::is_initial(&ns::own_maps()?);
    if is_initial && caps::current()?.effective.contains(CapabilitySet::SYS_PTRACE) {
        return Ok(None);
    }
    let proc = fd::open_proc()?;
    let options = match disk::mount_id(proc.as_fd()) {
        Some(mount) => mount::options_of(mount)?,
        None => Vec::new(),
    };
    let groups = rustix::process::getgroups().context(|| "look at this process's groups")?;
    let is_in = |group: u32| {
        is_initial
            && (rustix::process::getegid().as_raw() == group
                || groups.iter().any(|own| own.as_raw() == group))
    };
    match Hidden::said(&options, is_in) {
        None => seen(&proc),
        said => Ok(said),
    }
}

/// What is seen of it: each PID namespace has a process 1.
fn seen(proc: &OwnedFd) -> Result<Option<Hidden>> {
    match fs::statat(proc, "1", AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(Some(Hidden::Processes)),
        first => first.context(|| "look at /proc/1")?,
    };
    match fs::openat(proc, "1/status", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
        Ok(_) => Ok(None),
        Err(Errno::PERM | Errno::ACCESS) => Ok(Some(Hidden::Content)),
        Err(e) => Err(e).context(|| "look at /proc/1/status"),
    }
}

/// A process of this user's that is not shown: kill(2) asks for its ids alone.
pub(super) fn own() -> Result<Option<i32>> {
    const PATH: &str = "/proc/sys/kernel/pid_max";
    let highest = match fd::read_file(Path::new(PATH)) {
        // A procfs that has processes only (subset=pid).
        Err(e) if e.is(libc::ENOENT) => HIGHEST,
        text => {
            let text = text.context(|| format!("read {PATH}"))?;
            String::from_utf8_lossy(&text).trim().parse().unwrap_or(HIGHEST)
        }
    };
    for pid in (1..=highest).filter_map(Pid::from_raw) {
        let shown = || format!("look for process {}", pid.as_raw_nonzero());
        let is_own = || match test_kill_process(pid) {
            Err(Errno::SRCH | Errno::PERM) => Ok(false),
            told => told.map(|()| true).context(shown),
        };
        if !is_own()? {
            continue;
        }
        match pidfd_open(pid, PidfdFlags::empty()) {
            // It has ended, or is a thread of a process.
            Err(Errno::SRCH | Errno::INVAL | Errno::NOENT) => continue,
            opened => opened.context(shown)?,
        };
        let number = pid.as_raw_nonzero().get();
        match fs::stat(processes::dir_of(number)) {
            Err(Errno::NOENT) if is_own()? => return Ok(Some(number)),
            Ok(_) | Err(Errno::NOENT | Errno::SRCH) => {}
            Err(e) => return Err(e).context(shown),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_say_what_is_hidden_from_whom() {
        let said = |options: &str, own: u32| {
            let options: Vec<Vec<u8>> = options.split(',').map(|option| option.into()).collect();
            Hidden::said(&options, |group| group == own)
        };
        for (value, hidden) in [
            ("1", Hidden::Content),
            ("noaccess", Hidden::Content),
            ("2", Hidden::Processes),
            ("invisible", Hidden::Processes),
        ] {
            assert_eq!(said(&format!("rw,gid=7,hidepid={value}"), 8), Some(hidden));
            assert_eq!(said(&format!("rw,gid=7,hidepid={value}"), 7), None);
            assert_eq!(said(&format!("rw,hidepid={value}"), 0), None);
            assert_eq!(said(&format!("rw,hidepid={value}"), 7), Some(hidden));
        }
        assert_eq!(said("rw,gid=7,hidepid=ptraceable", 7), Some(Hidden::Untraceable));
        assert_eq!(said("rw,hidepid=4", 0), Some(Hidden::Untraceable));
        assert_eq!(said("rw,hidepid=off", 8), None);
        assert_eq!(said("rw,gid=7", 8), None);
    }
}
