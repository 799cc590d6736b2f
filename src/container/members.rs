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
    let Some((kind, id)) = identity(proc.as_fd(), state)? else { return Ok(Vec::new()) };
    let readable =
        fs::openat(&proc, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut pids = Vec::new();
    for entry in fs::Dir::new(readable).context(|| "list /proc")? {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        let Ok(pid) = name.parse() else { continue };
        // Of a process that may not be looked at, the identity cannot be the container's.
        if ns::id(&proc, name, kind).is_ok_and(|found| found == id) {
            pids.push(pid);
        }
    }
    pids.sort_unstable();
    Ok(pids)
}

/// By which namespace the container's processes are known; `None` where none can be left.
fn identity(proc: BorrowedFd<'_>, state: &State) -> Result<Option<(Kind, u64)>> {
    if !state.own_pid_namespace {
        return Ok((state.mount_ns != 0).then_some((Kind::MOUNT, state.mount_ns)));
    }
    if !state.is_alive() {
        return Ok(None);
    }
    let id = ns::id(proc, &state.pid.to_string(), Kind::PID)
        .context(|| "look at the container's pid namespace")?;
    let own = ns::id(proc, "self", Kind::PID)?;
    // Never take the caller's own world for the container.
    if id == own {
        bail!("the container's pid namespace is the caller's");
    }
    Ok(Some((Kind::PID, id)))
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
    let Some((kind, id)) = identity(proc.as_fd(), state)? else { return Ok(()) };
    if !ns::id(&proc, &pid.to_string(), kind).is_ok_and(|found| found == id) {
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
    for _ in 0..1000 {
        let running: Vec<i32> = list(state)?.into_iter().filter(|pid| runs(proc.as_fd(), *pid)).collect();
        if running.is_empty() {
            return Ok(());
        }
        for pid in running {
            send(state, pid, libc::SIGSTOP)?;
        }
        rustix::thread::sched_yield();
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
