//! `rt slurm state`, `kill` and `delete`: what Slurm calls as root when the step has ended.

use super::{as_user, id};
use crate::cli::{Call, kill as signals};
use crate::container;
use crate::store::Store;
use rt_spec::OCI_VERSION;
use rt_spec::state::Status;
use rt_sys::error::Result;
use rt_sys::fd;

/// How long Slurm waits for an answer, in seconds: by itself it has no limit, and the user's file system may never answer.
const WITHIN: u32 = 20;

/// The state directory, as its owner.
fn owners_store(call: &Call) -> Result<Store> {
    match crate::cli::root(call)? {
        Some(root) => Store::open_as_owner(&root),
        None => Store::open(None),
    }
}

/// Prints the state of a task, or of all tasks of a step. Whatever is wrong, the answer is that none runs: it is
/// then deleted, and nothing is reported into the job's output.
pub(super) fn state(call: &Call) -> Result<u8> {
    let id = id(call)?;
    let look = |store: &Store| Ok(container::tasks_status(store, id)?.as_str().into());
    let said = as_user(WITHIN, || owners_store(call), look);
    // Behind what may have been logged.
    let status = said.ok().and_then(|said| Some(String::from_utf8(said).ok()?.lines().last()?.to_owned()));
    let status = status.as_deref().unwrap_or(Status::Stopped.as_str());
    // Less than a state of the specification: a task has no bundle of its own, and Slurm reads the status alone.
    let json = serde_json::json!({ "ociVersion": OCI_VERSION, "id": id, "status": status });
    crate::cli::print_json(&json)
}

pub(super) fn kill(call: &Call) -> Result<u8> {
    let signal = call.operands.get(1).map_or(Ok(15), |name| signals::signal(&name.to_string_lossy()))?;
    let id = id(call)?;
    logged(as_user(
        WITHIN,
        || owners_store(call),
        |store| container::tasks_kill(store, id, signal).map(|()| Vec::new()),
    ))
}

pub(super) fn delete(call: &Call) -> Result<u8> {
    let id = id(call)?;
    logged(as_user(
        WITHIN,
        || owners_store(call),
        |store| container::tasks_delete(store, id).map(|()| Vec::new()),
    ))
}

/// Passes on what has been logged.
fn logged(said: Result<Vec<u8>>) -> Result<u8> {
    fd::write_all(rustix::stdio::stderr(), &said?)?;
    Ok(0)
}
