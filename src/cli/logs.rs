//! `rt logs`

use super::table::FOLLOW;
use super::{Call, Named};
use crate::store::Store;
use rt_spec::state::Status;
use rt_sys::bail;
use rt_sys::error::{Context, Result};
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::time::Duration;

/// How often a log that is followed is looked at.
const PAUSE: Duration = Duration::from_millis(100);

/// Prints what the program of a detached container has written; with `--follow` also what it will write, until its end.
pub(super) fn run(call: &Call) -> Result<u8> {
    let Named { store, id, .. } = super::find(call)?;
    let Some(log) = store.container(&id)?.log()? else {
        bail!("container {id} has no log: what it writes goes where rt run was told to write");
    };
    let mut log = File::from(log);
    let mut stdout = std::io::stdout().lock();
    loop {
        // Before the log is read, or what is written last would be missed.
        let ended = !call.flags.has(&FOLLOW) || has_ended(&store, &id)?;
        match std::io::copy(&mut log, &mut stdout).and_then(|_| stdout.flush()) {
            // Nobody wants more.
            Err(e) if e.kind() == ErrorKind::BrokenPipe => return Ok(0),
            copied => copied.context(|| format!("print the log of {id}"))?,
        }
        if ended {
            return Ok(0);
        }
        std::thread::sleep(PAUSE);
    }
}

/// True where the container has ended, or is there no more.
pub(super) fn has_ended(store: &Store, id: &str) -> Result<bool> {
    match store.load(id) {
        Err(_) if !store.holds(id)? => Ok(true),
        record => Ok(store.status(&record?)? == Status::Stopped),
    }
}
