//! `rt state`

use super::Call;
use super::Named;
use crate::store::{State, Status, Store};
use rt_spec::OCI_VERSION;
use rt_spec::slurm::Step;
use rt_sys::error::{Error, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// Prints the state of a container.
pub(super) fn run(call: &Call) -> Result<u8> {
    let Named { store, id, .. } = super::find(call)?;
    let state = store.load(&id)?;
    let mut json = serde_json::to_string_pretty(&View::new(&store, &state)).map_err(not_json)?;
    json.push('\n');
    super::print(json)
}

/// A path that is not UTF-8.
pub(super) fn not_json(e: serde_json::Error) -> Error {
    Error::new(e.to_string()).context("write JSON")
}

/// A state as `state` and `list` print it: runtime.md's, with what runc adds.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct View<'a> {
    oci_version: &'static str,
    pub id: &'a str,
    /// 0 where the container has stopped.
    pub pid: i32,
    pub status: &'static str,
    pub bundle: &'a Path,
    rootfs: &'a Path,
    pub created: &'a str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: &'a BTreeMap<String, String>,
    /// `#` and the uid, as runc writes it where the uid has no name. rt asks no name service.
    pub owner: String,
    /// The Slurm job and step that it belongs to.
    #[serde(flatten)]
    pub step: Option<&'a Step>,
}

impl<'a> View<'a> {
    /// `state` as it is now.
    pub(super) fn new(store: &Store, state: &'a State) -> View<'a> {
        let status = store.status(state);
        View {
            oci_version: OCI_VERSION,
            id: &state.id,
            pid: if status == Status::Stopped { 0 } else { state.pid },
            status: status.as_str(),
            bundle: &state.bundle,
            rootfs: &state.rootfs,
            created: &state.created,
            annotations: &state.annotations,
            owner: format!("#{}", state.owner),
            step: state.step.as_ref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_runcs() {
        let view = View {
            oci_version: "1.3.0",
            id: "c1",
            pid: 42,
            status: "running",
            bundle: Path::new("/b"),
            rootfs: Path::new("/b/rootfs"),
            created: "2026-01-02T03:04:05.000000006Z",
            annotations: &BTreeMap::from([("a.b".into(), "c".into())]),
            owner: "#1000".into(),
            step: None,
        };
        // Text, not values: runc's order of the keys is part of what people read.
        assert_eq!(
            serde_json::to_string_pretty(&view).unwrap(),
            r##"{
  "ociVersion": "1.3.0",
  "id": "c1",
  "pid": 42,
  "status": "running",
  "bundle": "/b",
  "rootfs": "/b/rootfs",
  "created": "2026-01-02T03:04:05.000000006Z",
  "annotations": {
    "a.b": "c"
  },
  "owner": "#1000"
}"##
        );
    }
}
