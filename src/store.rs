//! The state directory: one directory per container, named by its id.
//!
//! `<root>/<id>/` is made by mkdir, which is the lock against a second create of the same id.
//! `state.json` in it is replaced by rename only. `start.fifo` is there from create to start.
//! Everything goes through descriptors, and no link is ever followed out of the directory.

use crate::error::{Context, Error, Result};
use crate::{bail, err};
use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The OCI runtime-spec version that state and features name.
pub const OCI_VERSION: &str = "1.3.0";

/// The status of a container (runtime.md "State"; `paused` is runc's addition).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Reserved; the environment is being made.
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
    /// The word that `state` prints.
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

/// What `state.json` holds.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// The container's id.
    pub id: String,
    /// The first process, in the runtime's pid namespace; 0 until there is one.
    pub pid: i32,
    /// The first process's start time in clock ticks since boot (proc_pid_stat(5) field 22), so that a
    /// reused pid is never signalled.
    pub start_time: u64,
    /// The bundle directory, absolute.
    pub bundle: PathBuf,
    /// The root file system, absolute.
    pub rootfs: PathBuf,
    /// When the container was created (RFC 3339, UTC).
    pub created: String,
    /// The uid that created the container.
    pub owner: u32,
    /// The config's annotations.
    pub annotations: BTreeMap<String, String>,
    /// Set by pause, cleared by resume.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// True where the runtime's process became the container's: nobody is there to remove the state, so
    /// a dead one counts as gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_place: bool,
    /// Identity of the container's pid namespace (inode), where it has one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid_ns: Option<u64>,
    /// Identity of the container's mount namespace (inode).
    #[serde(default)]
    pub mount_ns: u64,
    /// The config as it was loaded, with the command line's changes.
    pub config: Box<RawValue>,
}

/// The state directory of one user.
#[derive(Debug)]
pub struct Store {
    root: PathBuf,
}
