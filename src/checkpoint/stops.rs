//! Stops that are `rt`'s and criu's, and not the program's: the program is not to notice them.
//!
//! The kernel tells a parent by SIGCHLD that a child has stopped (SA_NOCLDSTOP, sigaction(2)). Some stop themselves then, as script(1),
//! and wait to be continued. Those signals wait for parents that are stopped, too, and are taken away before these go on.

use super::processes::{Process, Status, Tree};
use crate::store::open_pidfd;
use rt_sys::error::{Context, Result};
use rt_sys::inject::Held;
use rt_sys::{look, signal};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long a tree may take to be stopped, and how long once all of it has the signal.
const ALL_STOP_WITHIN: Duration = Duration::from_secs(5);
pub(super) const STOPS_WITHIN: Duration = Duration::from_secs(1);

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
    for process in processes.iter().filter(|process| process.state == 'T') {
        let Some(status) = Status::of_thread(process.pid, process.pid)? else { continue };
        if status.mask("ShdPnd")? & (1 << (libc::SIGCHLD - 1)) == 0 {
            continue;
        }
        // One signal tells of several children. Of one that has ended meanwhile the parent has still to hear.
        if processes.iter().any(|child| child.parent == process.pid && child.has_ended()) {
            continue;
        }
        Held::begin(process.pid)?.forget_stop_of_child()?;
    }
    Ok(())
}

/// All processes of this one's /proc but this one, with how many of the others each comes from. criu has left them stopped, or does not
/// wait until they are.
fn restored() -> Result<Vec<(usize, Process)>> {
    let end = Instant::now() + STOPS_WITHIN;
    let own = std::process::id().cast_signed();
    let mut found = BTreeMap::new();
    for entry in look::entries("/proc")? {
        let number = entry.file_name().and_then(|name| name.to_str()?.parse::<i32>().ok());
        let Some(pid) = number.filter(|pid| *pid != own) else { continue };
        stops_before(pid, pid, end)?;
        found.extend(Process::read(pid)?.map(|process| (pid, process)));
    }
    let depth = |process: &Process| {
        let parent_of = |process: &&Process| found.get(&process.parent);
        std::iter::successors(Some(process), parent_of).take(found.len()).count()
    };
    Ok(found.values().map(|process| (depth(process), process.clone())).collect())
}

/// Takes those signals from all that has been restored.
pub(super) fn forget_restored() -> Result<()> {
    let processes: Vec<Process> = restored()?.into_iter().map(|(_, process)| process).collect();
    forget(&processes)
}

/// Continues all that has been restored, children first: a parent that waits for stops (waitpid(2), WUNTRACED) is to find none. The first
/// process of the PID namespace stays: its end is that of this one.
pub(super) fn go_on() -> Result<()> {
    let mut processes = restored()?;
    processes.sort_by_key(|(depth, _)| Reverse(*depth));
    let each = processes.iter().map(|(_, process)| process.pid).filter(|pid| *pid != 1);
    for pid in each.chain([-1]) {
        match signal::send(pid, libc::SIGCONT) {
            // It has ended, or there is none but the first one of the PID namespace.
            Err(e) if e.is(libc::ESRCH) => {}
            sent => sent.context(|| "continue the restored processes")?,
        }
    }
    Ok(())
}
