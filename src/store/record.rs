//! What is recorded of a container, so that other calls of `rt` find it and its first process.

use super::process_identity;
use rt_spec::state::Step;
use rt_spec::state::{State, Status};
use rt_sys::error::Result;
use rt_sys::fd;
use rt_sys::ns::MountNamespaceId;
use rustix::fd::OwnedFd;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What is recorded of a container: the first line of its state.json.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
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
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// Set by pause, cleared by resume.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// The processes that a checkpoint has parted from their GPUs, by their numbers inside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parted: Vec<i32>,
    /// The runtime's process became the program. No process is left to remove the record, so the container counts as gone
    /// when the program has ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_place: bool,
    /// The container has a pid namespace of its own: its processes are those in it.
    #[serde(default)]
    pub own_pid_namespace: bool,
    /// The container has a mount namespace of its own, by which its processes are found otherwise.
    #[serde(default)]
    pub mount_ns: Option<MountNamespaceId>,
    /// The step of a Slurm job that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Step>,
    /// What people call the run whose processes share it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The tasks of the step, or the ranks of the run, share it: `pid` is the first of them, and when loaded one that lives.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
    /// Its programs have the session keyrings of their callers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keeps_keyring: bool,
    /// What its programs are kept from.
    #[serde(default, rename = "kept_from")]
    pub confinement: Confinement,
    /// An image, or somebody else than the caller, may have written its config.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_image: bool,
    /// Others could change its bundle, which lay in a store.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_others: bool,
    /// The processors that its program began with, in words of 64 bits; empty where its first process is an init of `rt`'s own, which
    /// has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processors: Vec<u64>,
}

/// What no namespace keeps apart, and a filter of `rt`'s own refuses beside that of the config.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Confinement {
    /// Keys: the kernel gives a user's to whoever has his uid.
    pub keys: bool,
    /// New user namespaces. In one the host's root has the capabilities that he lacks in the container, and mounts the host's
    /// cgroups, whose files are his by the uid.
    pub user_namespaces: bool,
}

impl Confinement {
    /// True where there is something.
    pub(crate) fn any(self) -> bool {
        self.keys || self.user_namespaces
    }
}

impl Record {
    /// The state of the container as the specification shapes it, where `status` is its status. What only `state` and
    /// `list` print is not in it.
    pub(crate) fn oci_state(&self, status: Status) -> State {
        State {
            oci_version: rt_spec::OCI_VERSION.to_owned(),
            id: self.id.clone(),
            pid: if status == Status::Stopped { 0 } else { self.pid },
            status: status.as_str().to_owned(),
            bundle: self.bundle.clone(),
            annotations: Some(self.annotations.clone()),
            ..State::default()
        }
    }

    /// A descriptor of the first process (pidfd_open(2)); `None` where that has ended.
    pub(crate) fn open_first_process(&self) -> Result<Option<OwnedFd>> {
        let Some(pidfd) = process_identity::open_pidfd(self.pid)? else { return Ok(None) };
        // The pidfd is opened first and the start time looked at after that: the pid was not reused in between.
        Ok(self.is_alive()?.then_some(pidfd))
    }

    /// True while the first process lives; a zombie does not.
    ///
    /// # Errors
    /// Where the kernel does not say.
    pub(crate) fn is_alive(&self) -> Result<bool> {
        if self.pid <= 0 {
            return Ok(false);
        }
        process_identity::lives_since(fd::open_proc()?, self.pid, self.start_time)
    }
}
