//! The processes of a container, found by namespace identity in /proc: there is no cgroup to ask.

use crate::bail;
use crate::error::{Context, Result};
use crate::store::State;
use crate::sys::ns::{self, Kind};
use crate::sys::{fd, signal};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{self, Mode, OFlags};
use rustix::process::{Pid, PidfdFlags};

/// The pids of all the container's processes as the caller sees them, ascending.
pub fn list(state: &State) -> Result<Vec<i32>> {
    let proc = fd::open_proc()?;
    let Some(identity) = identity(proc.as_fd(), state)? else { return Ok(Vec::new()) };
    let readable =
        fs::openat(&proc, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut pids = Vec::new();
    for entry in fs::Dir::new(readable).context(|| "list /proc")? {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        let Ok(pid) = name.parse() else { continue };
        if is_member(proc.as_fd(), name, &identity) {
            pids.push(pid);
        }
    }
    pids.sort_unstable();
    Ok(pids)
}

/// By what the container's processes are known.
enum Identity {
    /// A namespace that its living first process is in: the inode cannot be another's meanwhile.
    Namespace(Kind, u64),
    /// The mount namespace with this id, which no other will ever have.
    UniqueMount(u64),
    /// The first process alone: all namespaces are somebody else's.
    Alone(i32),
}

/// `None` where no process can be left, or none can be told from a stranger's.
fn identity(proc: BorrowedFd<'_>, state: &State) -> Result<Option<Identity>> {
    let pid = state.pid.to_string();
    let alive = state.is_alive();
    let kind = match (state.own_pid_namespace, state.mount_ns) {
        (true, _) if !alive => return Ok(None),
        (true, _) => Kind::PID,
        (false, Some(id)) if id != 0 => return Ok(Some(Identity::UniqueMount(id))),
        (false, _) if !alive => return Ok(None),
        (false, Some(_)) => Kind::MOUNT,
        (false, None) => return Ok(Some(Identity::Alone(state.pid))),
    };
    let id = ns::id(proc, &pid, kind).context(|| "look at the container's namespace")?;
    // Never take the caller's own world for the container.
    if id == ns::id(proc, "self", kind)? {
        bail!("the container's {} namespace is the caller's", kind.file());
    }
    Ok(Some(Identity::Namespace(kind, id)))
}

/// Of a process that may not be looked at, the answer is no.
fn is_member(proc: BorrowedFd<'_>, pid: &str, identity: &Identity) -> bool {
    match identity {
        Identity::Namespace(kind, id) => ns::id(proc, pid, *kind).is_ok_and(|found| found == *id),
        Identity::UniqueMount(id) => ns::unique_mount_id(proc, pid) == Some(*id),
        Identity::Alone(first) => pid == first.to_string(),
    }
}

/// Sends `number` to every process, again until no new one turns up.
pub fn signal_all(state: &State, number: i32) -> Result<()> {
    let mut done = std::collections::HashSet::new();
    loop {
        let new: Vec<i32> = list(state)?.into_iter().filter(|pid| !done.contains(pid)).collect();
        if new.is_empty() {
            return Ok(());
        }
        for pid in new {
            done.insert(pid);
            send(state, pid, number)?;
        }
    }
}

/// Sends to one process that still is the container's.
fn send(state: &State, pid: i32, number: i32) -> Result<()> {
    let Some(handle) = Pid::from_raw(pid) else { return Ok(()) };
    let Ok(pidfd) = rustix::process::pidfd_open(handle, PidfdFlags::empty()) else { return Ok(()) };
    let proc = fd::open_proc()?;
    let Some(identity) = identity(proc.as_fd(), state)? else { return Ok(()) };
    if !is_member(proc.as_fd(), &pid.to_string(), &identity) {
        return Ok(());
    }
    match signal::send_pidfd(pidfd, number) {
        Err(e) if e.is(libc::ESRCH) => Ok(()),
        result => result.context(|| format!("signal process {pid}")),
    }
}

/// Stops every process: again and again, since one that still runs may make others.
pub fn stop_all(state: &State) -> Result<()> {
    let proc = fd::open_proc()?;
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while std::time::Instant::now() < deadline {
        let running: Vec<i32> = list(state)?.into_iter().filter(|pid| runs(proc.as_fd(), *pid)).collect();
        if running.is_empty() {
            return Ok(());
        }
        for pid in running {
            send(state, pid, libc::SIGSTOP)?;
        }
        // A stopped process needs a moment to get there.
        let pause = rustix::time::Timespec { tv_sec: 0, tv_nsec: 500_000 };
        let _ = rustix::thread::nanosleep(&pause);
    }
    signal_all(state, libc::SIGCONT)?;
    bail!("the container makes processes faster than they can be stopped");
}

/// True unless every thread of `pid` is stopped, dead, or cannot be seen any more.
fn runs(proc: BorrowedFd<'_>, pid: i32) -> bool {
    let stat = fd::read_at(proc, format!("{pid}/stat").as_str()).unwrap_or_default();
    let state = stat.iter().rposition(|&b| b == b')').and_then(|end| stat.get(end + 2));
    !matches!(state, None | Some(b'T' | b't' | b'Z' | b'X' | b'x'))
}
