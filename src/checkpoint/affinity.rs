//! On which processors threads run, where they have chosen that themselves: criu does not keep it (sched_setaffinity(2)).

use super::processes::{Status, Tree, threads};
use rt_sys::error::{Context, Result};
use rt_sys::process::{affinity_of, set_affinity_of};
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

    /// Of all threads of `tree`, whose container has begun with the processors `began_with`; where that is empty, with those of the
    /// program's parent.
    pub(super) fn of(tree: &Tree, began_with: &[u64]) -> Result<Pinned> {
        let of_caller = match began_with {
            [] => processors(tree.init())?,
            mask => Some(numbers_in(mask)),
        };
        let Some(of_caller) = of_caller else { return Ok(Pinned::default()) };
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
            let mask = mask_of(wanted.iter().filter(|cpu| may.contains(cpu)));
            // Where it may use none of them, it runs on all that there are.
            if !mask.is_empty() {
                match set_affinity_of(*thread, &mask) {
                    Err(e) if !e.is(libc::ESRCH) => {
                        return Err(e).context(|| format!("give thread {thread} its processors"));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// The processors of `thread`, 0 for this one; none where it has ended.
fn processors(thread: i32) -> Result<Option<Vec<usize>>> {
    match affinity_of(thread) {
        Err(e) if e.is(libc::ESRCH) => Ok(None),
        mask => mask
            .map(|mask| Some(numbers_in(&mask)))
            .context(|| format!("ask for the processors of thread {thread}")),
    }
}

/// The bits of a mask in words of 64.
fn numbers_in(mask: &[u64]) -> Vec<usize> {
    (0..mask.len() * 64).filter(|cpu| mask[cpu / 64] >> (cpu % 64) & 1 != 0).collect()
}

fn mask_of<'a>(numbers: impl Iterator<Item = &'a usize>) -> Vec<u64> {
    let mut mask = Vec::new();
    for cpu in numbers {
        let word = cpu / 64;
        mask.resize(mask.len().max(word + 1), 0);
        mask[word] |= 1 << (cpu % 64);
    }
    mask
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_can_be_more_than_1024_processors() {
        for numbers in [vec![], vec![0, 63, 64], vec![1023, 1024, 8191]] {
            assert_eq!(numbers_in(&mask_of(numbers.iter())), numbers);
        }
        assert_eq!(processors(0).unwrap(), Some(numbers_in(&affinity_of(0).unwrap())));
        assert_eq!(processors(i32::MAX).unwrap(), None);
    }
}
