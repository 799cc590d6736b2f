//! `rt state`

use super::Call;
use super::Named;
use crate::store::{Record, Store};
use rt_spec::state::State;
use rt_sys::error::{Error, Result};

/// Prints the state of a container.
pub(super) fn run(call: &Call) -> Result<u8> {
    let Named { store, id, .. } = super::find(call)?;
    let state = printed(&store, &store.load(&id)?)?;
    super::print_json(&serde_json::to_string_pretty(&state).map_err(not_json)?)
}

/// A path that is not UTF-8.
pub(super) fn not_json(e: serde_json::Error) -> Error {
    Error::new(e.to_string()).context("write JSON")
}

/// The state as `state` and `list` print it: runtime.md's, with what runc adds.
pub(super) fn printed(store: &Store, record: &Record) -> Result<State> {
    let state = record.oci_state(store.status(record)?);
    Ok(State {
        rootfs: Some(record.rootfs.clone()),
        created: Some(record.created.clone()),
        annotations: state.annotations.filter(|annotations| !annotations.is_empty()),
        // runc writes a uid without a name so. rt asks no name service.
        owner: Some(format!("#{}", record.owner)),
        step: record.step.clone(),
        ..state
    })
}
