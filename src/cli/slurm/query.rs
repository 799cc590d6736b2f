//! `rt slurm state`, `kill` and `delete`: what Slurm calls as root when the step has ended.

use super::id;
use crate::cli::{Call, kill as signals};
use crate::container;
use crate::store::Store;
use rt_spec::OCI_VERSION;
use rt_spec::state::Status;
use rt_sys::error::Result;
use rt_sys::process;

/// The state directory, as its owner. Slurm waits for this call without a limit, and the user's file system may never
/// answer.
fn owners_store(call: &Call) -> Result<Store> {
    process::end_after(20);
    match crate::cli::root(call)? {
        Some(root) => Store::open_as_owner(&root),
        None => Store::open(None),
    }
}

/// Prints the state of a task, or of all tasks of a step. Whatever is wrong, the answer is that none runs: it is
/// then deleted, and nothing is reported into the job's output.
pub(super) fn state(call: &Call) -> Result<u8> {
    let id = id(call)?;
    let status = owners_store(call).and_then(|store| container::tasks_status(&store, id));
    let status = status.unwrap_or(Status::Stopped).as_str();
    // Less than a state of the specification: a task has no bundle of its own, and Slurm reads the status alone.
    let json = serde_json::json!({ "ociVersion": OCI_VERSION, "id": id, "status": status });
    crate::cli::print_json(&json)
}

pub(super) fn kill(call: &Call) -> Result<u8> {
    let signal = call.operands.get(1).map_or(Ok(15), |name| signals::signal(&name.to_string_lossy()))?;
    container::tasks_kill(&owners_store(call)?, id(call)?, signal)?;
    Ok(0)
}

pub(super) fn delete(call: &Call) -> Result<u8> {
    container::tasks_delete(&owners_store(call)?, id(call)?)?;
    Ok(0)
}
