//! On which processors threads run, where they have chosen that themselves: criu does not keep it (sched_setaffinity(2)).

use super::processes::{Status, Tree, threads};
use rt_sys::error::{Context, Result};
use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The processors of threads by their numbers inside, of those alone that have others than the container got from its caller.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Pinned(BTreeMap<i32, Vec<usize>>);

impl Pinned {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Of all threads of `tree`.
    pub(super) fn of(tree: &Tree) -> Result<Pinned> {
        let Some(of_caller) = processors(tree.init())? else { return Ok(Pinned::default()) };
        let mut pinned = Pinned::default();
        for process in &tree.processes {
            for thread in threads(process.pid)? {
                let Some(own) = processors(thread)?.filter(|own| *own != of_caller) else { continue };
                if let Some(status) = Status::of_thread(process.pid, thread)? {
                    pinned.0.insert(status.last("NSpid")?, own);
                }
            }
        }
        Ok(pinned)
    }

    /// Gives restored threads their processors again, as far as this process may use them: another job can have others.
    pub(super) fn restore(&self) -> Result<()> {
        let Some(may) = processors(0)? else { return Ok(()) };
        for (thread, wanted) in &self.0 {
            let mut set = CpuSet::new();
            wanted.iter().filter(|cpu| may.contains(cpu)).for_each(|cpu| set.set(*cpu));
            // Where it may use none of them, it runs on all that there are.
            if set.count() != 0 {
                match sched_setaffinity(Pid::from_raw(*thread), &set) {
                    Ok(()) | Err(Errno::SRCH) => {}
                    Err(e) => return Err(e).context(|| format!("give thread {thread} its processors")),
                }
            }
        }
        Ok(())
    }
}

/// The processors of `thread`, 0 for this one; none where it has ended.
fn processors(thread: i32) -> Result<Option<Vec<usize>>> {
    match sched_getaffinity(Pid::from_raw(thread)) {
        Ok(set) => Ok(Some((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())),
        Err(Errno::SRCH) => Ok(None),
        Err(e) => Err(e).context(|| format!("ask for the processors of thread {thread}")),
    }
}
