//! `rt stop`

use super::logs::has_ended;
use super::table::TIME;
use super::{Call, Named};
use crate::container::{self, Receiver};
use crate::store::Store;
use rt_sys::bail;
use rt_sys::error::Result;
use std::time::{Duration, Instant};

/// How long a program has to end by itself, in seconds.
const GRACE: u32 = 10;
/// How long the kernel has to end a program, which may wait for a file system.
const LIMIT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

/// Ends containers, one after the other.
pub(super) fn run(call: &Call) -> Result<u8> {
    let grace = Duration::from_secs(call.flags.given_number(&TIME)?.unwrap_or(GRACE).into());
    super::for_each(call, |name| stop(super::find_named(call, name)?, grace))
}

/// Ends a container: by TERM, and by KILL where that is not enough. One that has ended is no error.
fn stop(named: Named, grace: Duration) -> Result<()> {
    let Named { store, id, task } = named;
    if let Some(task) = task {
        bail!("task {} is ended by rt kill, or with its step by scancel", task.id);
    }
    // The container must be there.
    store.container(&id)?;
    for (signal, limit) in [(libc::SIGTERM, grace), (libc::SIGKILL, LIMIT)] {
        if has_ended(&store, &id)? {
            return Ok(());
        }
        match container::kill(&store, &id, signal, Receiver::FirstProcess) {
            // The container ended just now.
            Err(_) if has_ended(&store, &id)? => return Ok(()),
            sent => sent?,
        }
        if ends_within(&store, &id, limit)? {
            return Ok(());
        }
    }
    bail!("container {id} has not ended {} s after KILL", LIMIT.as_secs())
}

fn ends_within(store: &Store, id: &str, limit: Duration) -> Result<bool> {
    let begun = Instant::now();
    while !has_ended(store, id)? {
        if begun.elapsed() >= limit {
            return Ok(false);
        }
        std::thread::sleep(PAUSE);
    }
    Ok(true)
}
