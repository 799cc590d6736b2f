//! The hooks of a container at each point of its life, and the state that they read.

use crate::hooks::{self, Stage};
use crate::store::{Entry, State};
use oci_spec::runtime::Hooks;
use rt_spec::said::{SAID, Said};
use rt_sys::error::Result;
use std::path::Path;

/// The container's state as the spec shapes it (runtime.md "State"), for hooks.
pub(super) fn state_json(state: &State, status: &str) -> Vec<u8> {
    creation_state_json(state, status, &Said::default())
}

/// The same while the container is made, with what the caller has said.
pub(super) fn creation_state_json(state: &State, status: &str, said: &Said) -> Vec<u8> {
    let mut value = serde_json::json!({
        "ociVersion": rt_spec::OCI_VERSION,
        "id": state.id,
        "status": status,
        "pid": if status == "stopped" { 0 } else { state.pid },
        "bundle": state.bundle,
        "annotations": state.annotations,
    });
    if !said.is_empty() {
        value[SAID] = serde_json::json!(said);
    }
    value.to_string().into_bytes()
}

/// The hooks that the container was made with.
pub(super) fn saved(entry: &Entry) -> Result<Hooks> {
    Ok(entry.spec()?.hooks().clone().unwrap_or_default())
}

/// Runs what runs in the runtime's namespaces while init waits before pivot_root.
pub(super) fn run_runtime_hooks(hooks: &Hooks, state: &[u8], bundle: &Path) -> Result<()> {
    #[allow(deprecated, reason = "configs still carry prestart hooks")]
    hooks::run_all(Stage::Prestart, hooks.prestart(), state, bundle)?;
    hooks::run_all(Stage::CreateRuntime, hooks.create_runtime(), state, bundle)
}

/// Runs the poststart hooks of a container whose program runs.
pub(super) fn run_poststart(hooks: &Hooks, state: &State) -> Result<()> {
    hooks::run_all(Stage::Poststart, hooks.poststart(), &state_json(state, "running"), &state.bundle)
}

/// Runs the poststop hooks. A failing one is logged and does not count (runtime.md "Lifecycle" step 13).
pub(super) fn run_poststop(hooks: &Hooks, state: &State) {
    for hook in hooks.poststop().iter().flatten() {
        if let Err(e) = hooks::run_one(hook, &state_json(state, "stopped"), &state.bundle) {
            log::warn!("poststop hook: {e}");
        }
    }
}
