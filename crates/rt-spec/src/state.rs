//! The state of a container as runtime.md ("State") shapes it: what `rt state` and `rt list` print, and what hooks read
//! on standard input.

use super::caller_request::{CALLER_REQUEST, CallerRequest};
use super::json_error;
use rt_sys::bail;
use rt_sys::error::Result;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The status of a container (runtime.md "State"; `paused` is runc's addition).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The id is reserved; the environment is being made.
    Creating,
    /// The program waits for `start`.
    Created,
    /// The program runs.
    Running,
    /// Every process is stopped by `pause`.
    Paused,
    /// The first process has ended.
    Stopped,
}

impl Status {
    /// The word for it in a state.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Creating => "creating",
            Status::Created => "created",
            Status::Running => "running",
            Status::Paused => "paused",
            Status::Stopped => "stopped",
        }
    }
}

/// The state of a container: the specification's keys, those that runc adds, and `rt`'s own. The order of the fields is
/// runc's, which is part of what people read. Other runtimes leave out some of them, so only the bundle must be there.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// The version of the specification.
    #[serde(default)]
    pub oci_version: String,
    /// The container's id.
    #[serde(default)]
    pub id: String,
    /// The first process as the runtime sees it; 0 where there is none.
    #[serde(default)]
    pub pid: i32,
    /// A word of [`Status`], or one of another runtime's own.
    #[serde(default)]
    pub status: String,
    /// The bundle's directory, absolute.
    pub bundle: PathBuf,
    /// The root file system, absolute (runc's).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rootfs: Option<PathBuf>,
    /// When the container was created (runc's; RFC 3339, UTC).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// The annotations of the config.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,
    /// Who created the container (runc's).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The step of a job that the container belongs to (`rt`'s).
    #[serde(flatten)]
    pub step: Option<Step>,
    /// What the caller of `rt` has said to hooks.
    #[serde(default, rename = "rtCaller", skip_serializing_if = "CallerRequest::is_empty")]
    pub caller_request: CallerRequest,
}

/// A step of a batch system's job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The job's number.
    pub job: String,
    /// The step's number, or `batch`, `interactive`, `extern`.
    pub step: String,
    /// What users call the job where it is one of an array: `281_1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<String>,
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.array.as_ref().unwrap_or(&self.job), self.step)
    }
}

impl State {
    /// Parses the state that a runtime passes to a hook.
    pub fn parse(text: &[u8]) -> Result<State> {
        let state: State = serde_json::from_slice(text)
            .map_err(|e| json_error(e).context("the container's state on stdin"))?;
        if !state.bundle.is_absolute() {
            bail!("the container's state on stdin: bundle {} is not absolute", state.bundle.display());
        }
        Ok(state)
    }

    /// The JSON that hooks read.
    pub fn to_json(&self) -> Result<Vec<u8>> {
        // Through a map, which orders the keys by name.
        let value = serde_json::to_value(self).map_err(json_error)?;
        debug_assert!(self.caller_request.is_empty() || value.get(CALLER_REQUEST).is_some());
        Ok(value.to_string().into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        State {
            oci_version: "1.3.0".to_owned(),
            id: "c1".to_owned(),
            pid: 42,
            status: Status::Running.as_str().to_owned(),
            bundle: "/b".into(),
            annotations: Some(BTreeMap::from([("a.b".to_owned(), "c".to_owned())])),
            ..State::default()
        }
    }

    #[test]
    fn what_is_printed_is_runcs() {
        let state = State {
            rootfs: Some("/b/rootfs".into()),
            created: Some("2026-01-02T03:04:05.000000006Z".to_owned()),
            owner: Some("#1000".to_owned()),
            ..state()
        };
        // Text, not values: runc's order of the keys is part of what people read.
        assert_eq!(
            serde_json::to_string_pretty(&state).unwrap(),
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

    #[test]
    fn hooks_read_what_they_always_read() {
        let text = |state: State| String::from_utf8(state.to_json().unwrap()).unwrap();
        assert_eq!(
            text(state()),
            r#"{"annotations":{"a.b":"c"},"bundle":"/b","id":"c1","ociVersion":"1.3.0","pid":42,"status":"running"}"#
        );
        let said = CallerRequest { env: vec!["A=1".to_owned()], ..CallerRequest::default() };
        assert_eq!(
            text(State { caller_request: said.clone(), annotations: Some(BTreeMap::new()), ..state() }),
            r#"{"annotations":{},"bundle":"/b","id":"c1","ociVersion":"1.3.0","pid":42,"rtCaller":{"devices":[],"env":["A=1"]},"status":"running"}"#
        );
        let read = State::parse(text(State { caller_request: said.clone(), ..state() }).as_bytes()).unwrap();
        assert_eq!((read.caller_request, read.annotations, read.step), (said, state().annotations, None));
    }

    #[test]
    fn states_of_other_runtimes_are_read() {
        let text = br#"{"ociVersion":"1.0.2","id":"x","status":"their own","pid":7,"bundle":"/b","annotations":null}"#;
        let state = State::parse(text).unwrap();
        assert_eq!((state.pid, state.status.as_str(), state.annotations), (7, "their own", None));
        assert_eq!(State::parse(br#"{"bundle":"/b","more":{"a":[1]}}"#).unwrap().pid, 0);
        assert!(State::parse(br#"{"pid":7,"bundle":"b"}"#).is_err());
        assert!(State::parse(br#"{"pid":7}"#).is_err());
        assert!(State::parse(b"").is_err());
    }
}
