//! `rt delete`

use super::Call;
use super::table::*;
use super::{Named, kill};
use crate::container::{self, Deletion};
use rt_spec::state::Status;
use rt_sys::bail;
use rt_sys::error::Result;

/// Removes a container.
pub(super) fn run(call: &Call) -> Result<u8> {
    let force = call.flags.has(&FORCE);
    let deletion = if force { Deletion::Forced } else { Deletion::IfStopped };
    if !call.flags.has(&REGEX) {
        let Named { store, id, task } = super::find(call)?;
        match task {
            Some(task) if force => container::tasks_delete(&store, &task.id)?,
            Some(task) => bail!("cannot delete task {} that is not stopped: running", task.id),
            None => container::delete(&store, &id, deletion)?,
        }
        return Ok(0);
    }
    let store = super::store(call)?;
    for id in kill::matching(&store, call.id()?)? {
        let stopped = || -> Result<bool> {
            let record = match store.load(&id) {
                // It has gone meanwhile.
                Err(_) if !store.holds(&id)? => return Ok(false),
                record => record?,
            };
            Ok(matches!(store.status(&record)?, Status::Stopped | Status::Created))
        };
        if force || stopped()? {
            container::delete(&store, &id, deletion)?;
        }
    }
    Ok(0)
}
