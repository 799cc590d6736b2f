//! Stops that are `rt`'s and criu's, and not the program's: the program is not to notice them.
//!
//! The kernel tells a parent by SIGCHLD that a child has stopped (SA_NOCLDSTOP, sigaction(2)). Some stop themselves then, as script(1),
//! and wait to be continued. Those signals wait for parents that are stopped, too, and are taken away before these go on. So is the
//! SIGCONT by which a process goes on. A parent that asks for it (WCONTINUED, wait(2)) learns that a child has gone on: only it can
//! take that away.

use super::processes::{self, Process, Status, Tree};
use crate::store::open_pidfd;
use rt_sys::error::{Context, Result};
use rt_sys::inject::Held;
use rt_sys::signal;
use rustix::fd::{AsFd, BorrowedFd};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long a tree may take to be stopped, and how long once all of it has the signal.
const ALL_STOP_WITHIN: Duration = Duration::from_secs(5);
pub(super) const STOPS_WITHIN: Duration = Duration::from_secs(1);

/// How long all processes together may be looked at for those signals: how many others wait lies with the program.
const FORGOTTEN_WITHIN: Duration = Duration::from_secs(10);

/// SIGCHLD, as a bit of a mask.
const OF_CHILDREN: u64 = 1 << (libc::SIGCHLD - 1);

/// Stops the tree that `look` finds: parents first, as one may wait in vfork(2) for a child that still has to run. Calls are made anew
/// while all is stopped, and criu leaves so what it finds so, also where it fails.
///
/// # Errors
/// It could not be looked at or signalled. Some of it may be stopped.
pub(super) fn stop(look: impl Fn() -> Result<Tree>) -> Result<()> {
    let end = Instant::now() + ALL_STOP_WITHIN;
    loop {
        let tree = look()?;
        let runs = |process: &&Process| !process.ends && process.state != 'T';
        if Instant::now() > end || !tree.processes.iter().any(|process| runs(&process)) {
            return forget(&tree.processes);
        }
        for process in tree.processes.iter().filter(runs) {
            let Some(pidfd) = open_pidfd(process.pid)? else { continue };
            if Process::read(process.pid)?.is_some_and(|now| now.inside == process.inside && now.state != 'T')
            {
                signal::send_pidfd(pidfd, libc::SIGSTOP).context(|| format!("stop {}", process.shown()))?;
                stops_before(process.pid, process.pid, end)?;
            }
        }
    }
}

/// Whether a thread is stopped, or will be so in a moment.
pub(super) fn is_stopped(pid: i32, thread: i32) -> Result<bool> {
    stops_before(pid, thread, Instant::now() + STOPS_WITHIN)
}

/// Whether a thread is stopped, or is so before `end`: neither criu nor a signal's sender waits for that.
pub(super) fn stops_before(pid: i32, thread: i32, end: Instant) -> Result<bool> {
    loop {
        let Some(status) = Status::of_thread(pid, thread)? else { return Ok(false) };
        match status.text("State").and_then(|text| text.chars().next()) {
            Some('T') => return Ok(true),
            Some('Z' | 'X') => return Ok(false),
            _ if Instant::now() > end => return Ok(false),
            _ => std::thread::sleep(Duration::from_micros(500)),
        }
    }
}

/// Takes from each of the processes, which are stopped, the signal that a child has stopped. criu stops them once more.
///
/// # Errors
/// That of the first one of which it could not be taken.
pub(super) fn forget(processes: &[Process]) -> Result<()> {
    let end = Instant::now() + FORGOTTEN_WITHIN;
    processes.iter().try_for_each(|process| forget_of(process, processes, end))
}

fn forget_of(process: &Process, all: &[Process], end: Instant) -> Result<()> {
    let Some(status) = Status::of_thread(process.pid, process.pid)? else { return Ok(()) };
    let is_stopped = status.text("State").is_some_and(|state| state.starts_with('T'));
    if !is_stopped || status.mask("ShdPnd")? & OF_CHILDREN == 0 {
        return Ok(());
    }
    let has_ended = || -> Result<bool> {
        for child in all.iter().filter(|child| child.parent == process.pid) {
            if Process::read(child.pid)?.is_none_or(|child| child.has_ended()) {
                return Ok(true);
            }
        }
        Ok(false)
    };
    // One signal tells of several children. Of one that has ended meanwhile the parent has still to hear.
    if has_ended()? {
        return Ok(());
    }
    let Some(held) = hold(process.pid, end)? else { return Ok(()) };
    if !held.forget_stop_of_child()? || !has_ended()? {
        return Ok(());
    }
    drop(held);
    signal::send(process.pid, libc::SIGCHLD).context(|| format!("tell {} of its child", process.shown()))
}

/// Continues the processes, which are stopped, children first: their parents learn neither that they have stopped nor that they go on,
/// which a handler that waits for a child (wait(2)) would wait for. The first process of this one's PID namespace, whose end is that of this
/// one, is last.
pub(super) fn go_on(processes: &[Process]) -> Result<()> {
    let depth = |process: &Process| {
        let parent_of = |child: &&Process| processes.iter().find(|process| process.pid == child.parent);
        std::iter::successors(Some(process), parent_of).take(processes.len()).count()
    };
    let mut levels: BTreeMap<usize, Vec<&Process>> = BTreeMap::new();
    for process in processes.iter().filter(|process| !process.ends) {
        levels.entry(depth(process)).or_default().push(process);
    }
    // It goes on in any case.
    let end = Instant::now() + FORGOTTEN_WITHIN;
    let hide = |process: &Process| {
        let hidden = forget_of(process, processes, end);
        hidden.unwrap_or_else(|e| log::debug!("hide SIGCHLD from {}: {e}", process.shown()));
    };
    // The kernel shows that a child has stopped before it tells the parent.
    processes.iter().for_each(hide);
    for level in levels.values().rev() {
        level.iter().copied().for_each(hide);
        for process in level {
            let Some(pidfd) = open_pidfd(process.pid)? else { continue };
            if Process::read(process.pid)?.is_some_and(|now| now.inside == process.inside) {
                go_on_alone(process.pid, pidfd.as_fd(), end)
                    .context(|| format!("continue {}", process.shown()))?;
            }
        }
    }
    Ok(())
}

/// Continues process `pid`, which is that of `pidfd`, by a signal that its program does not see: one with a handler for it, or that waits
/// for it, would take it for somebody's. Its parent has been told then.
fn go_on_alone(pid: i32, pidfd: BorrowedFd<'_>, end: Instant) -> Result<()> {
    let held = hold_stopped(pid, end);
    signal::send_pidfd(pidfd, libc::SIGCONT)?;
    let hide = |held: Vec<Held>| match held.first() {
        // Whichever thread goes on first tells the parent before anything else.
        Some(first) => first.come_round().and_then(|()| first.forget_continue()).map(drop),
        None => Ok(()),
    };
    // It goes on in any case, or has been ended by one that went on before.
    held.and_then(hide).unwrap_or_else(|e| log::debug!("hide SIGCONT from process {pid}: {e}"));
    Ok(())
}

/// Holds all threads of a process that are stopped. One that waits in vfork(2) for its child is not.
fn hold_stopped(pid: i32, end: Instant) -> Result<Vec<Held>> {
    let mut held = Vec::new();
    for thread in processes::threads(pid)? {
        let state = Status::of_thread(pid, thread)?.and_then(|status| status.text("State"));
        if state.is_some_and(|state| state.starts_with('T')) {
            match hold(thread, end)? {
                Some(thread) => held.push(thread),
                None => return Ok(Vec::new()),
            }
        }
    }
    Ok(held)
}

/// Holds a thread. `None` where this process may not: init has given up its capabilities when it continues a program with other ids, which
/// then sees the signals.
fn hold(thread: i32, end: Instant) -> Result<Option<Held>> {
    match Held::begin_until(thread, end) {
        Err(e) if e.is(libc::EPERM) => Ok(None),
        held => held.map(Some),
    }
}

/// All processes of this one's /proc but this one. criu has left them stopped, or does not wait until they are.
fn restored() -> Result<Vec<Process>> {
    let end = Instant::now() + STOPS_WITHIN;
    let own = std::process::id().cast_signed();
    let mut found = Vec::new();
    for pid in processes::all()?.into_iter().filter(|pid| *pid != own) {
        stops_before(pid, pid, end)?;
        found.extend(Process::read(pid)?);
    }
    Ok(found)
}

/// Takes those signals from all that has been restored.
pub(super) fn forget_restored() -> Result<()> {
    forget(&restored()?)
}

/// Continues all that has been restored.
pub(super) fn go_on_restored() -> Result<()> {
    go_on(&restored()?)
}
