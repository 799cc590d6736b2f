//! `rt delete`

use super::Call;
use super::table::*;
use super::{Named, kill};
use crate::container::{self, Deletion};
use rt_spec::state::Status;
use rt_sys::bail;
use rt_sys::error::Result;

/// Removes containers: `rt delete` takes one, as in runc, and `rt rm` several.
pub(super) fn run(call: &Call) -> Result<u8> {
    let force = call.flags.has(&FORCE);
    let deletion = if force { Deletion::Forced } else { Deletion::IfStopped };
    if !call.flags.has(&REGEX) {
        return super::for_each(call, |name| {
            let Named { store, id, task } = super::find_named(call, name)?;
            match task {
                Some(task) if force => container::tasks_delete(&store, &task.id),
                Some(task) => bail!("cannot delete task {} that is not stopped: running", task.id),
                None => container::delete(&store, &id, deletion),
            }
        });
    }
    super::for_each(call, |expression| matching(call, expression, deletion))
}

/// Removes the containers whose ids `expression` matches; those that run only with [`Deletion::Forced`].
fn matching(call: &Call, expression: &str, deletion: Deletion) -> Result<()> {
    let store = super::store(call)?;
    for id in kill::matching(&store, expression)? {
        let stopped = || -> Result<bool> {
            let record = match store.load(&id) {
                // The container has gone meanwhile.
                Err(_) if !store.holds(&id)? => return Ok(false),
                record => record?,
            };
            Ok(matches!(store.status(&record)?, Status::Stopped | Status::Created))
        };
        if matches!(deletion, Deletion::Forced) || stopped()? {
            container::delete(&store, &id, deletion)?;
        }
    }
    Ok(())
}
