//! The hooks of a container at each point of its life, and the state that they read.

use crate::hooks::{self, Stage};
use crate::store::{ContainerDir, Record};
use oci_spec::runtime::Hooks;
use rt_spec::caller_request::CallerRequest;
use rt_spec::state::{State, Status};
use rt_sys::error::Result;
use std::path::Path;

/// The state that a hook of a container with this status reads, as JSON.
pub(super) fn state_json(record: &Record, status: Status) -> Result<Vec<u8>> {
    record.oci_state(status).to_json()
}

/// The state that a hook reads while the container is made, with what the caller has said to hooks.
pub(super) fn creation_state_json(
    record: &Record,
    status: Status,
    request: &CallerRequest,
) -> Result<Vec<u8>> {
    State { caller_request: request.clone(), ..record.oci_state(status) }.to_json()
}

/// The hooks that the container was made with.
pub(super) fn saved(dir: &ContainerDir) -> Result<Hooks> {
    Ok(dir.spec()?.hooks().clone().unwrap_or_default())
}

/// Where hooks start: in the bundle, as with runc; in the root of the host where others can change the bundle, since they would say what
/// is there by the name of a relative argument.
pub(super) fn place(bundle: &Path, of_others: bool) -> &Path {
    if of_others { Path::new("/") } else { bundle }
}

/// Runs the hooks that run in the runtime's namespaces while init waits before pivot_root(2).
pub(super) fn run_runtime_hooks(hooks: &Hooks, state: &[u8], place: &Path) -> Result<()> {
    #[allow(deprecated, reason = "configs still carry prestart hooks")]
    hooks::run_all(Stage::Prestart, hooks.prestart(), state, place)?;
    hooks::run_all(Stage::CreateRuntime, hooks.create_runtime(), state, place)
}

/// Runs the poststart hooks of a container whose program runs.
pub(super) fn run_poststart(hooks: &Hooks, record: &Record) -> Result<()> {
    let place = place(&record.bundle, record.of_others);
    hooks::run_all(Stage::Poststart, hooks.poststart(), &state_json(record, Status::Running)?, place)
}

/// Runs the poststop hooks. A failing one is logged and does not count (runtime.md "Lifecycle" step 13).
pub(super) fn run_poststop(hooks: &Hooks, record: &Record) {
    let place = place(&record.bundle, record.of_others);
    for hook in hooks.poststop().iter().flatten() {
        let ran = state_json(record, Status::Stopped).and_then(|state| hooks::run_one(hook, &state, place));
        if let Err(e) = ran {
            log::warn!("poststop hook: {e}");
        }
    }
}
