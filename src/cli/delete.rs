//! `rt delete`

use super::args::*;
use super::kill;
use super::parse::Call;
use crate::container;
use crate::error::Result;
use crate::store::Status;

/// Removes a container.
pub fn run(call: &Call) -> Result<u8> {
    let store = super::store(call)?;
    let (id, force) = (call.id()?, call.flags.has(&FORCE));
    if !call.flags.has(&REGEX) {
        container::delete(&store, id, force)?;
        return Ok(0);
    }
    for id in kill::matching(&store, id)? {
        // One that is gone by now needs no removing.
        let stopped = |state| matches!(store.status(&state), Status::Stopped | Status::Created);
        if force || store.load(&id).is_ok_and(stopped) {
            container::delete(&store, &id, force)?;
        }
    }
    Ok(0)
}
