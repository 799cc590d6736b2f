//! What `rt`'s caller says on the command line to hooks, and how it reaches them. An image cannot say it.

use super::Process;
use rt_sys::bail;
use rt_sys::error::Result;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

pub use super::annotations::{ANNOTATION_ENV, ANNOTATION_MPI};

/// The variable that asks for the host's MPI library: `host`, or `image` for that of the image.
pub const MPI: &str = "RT_MPI";

/// The key by which `rt` passes [`CallerRequest`] on: in the state, and in the config that precreate hooks get. An image can give
/// a container variables and annotations, but no key beside those of the specification.
pub const CALLER_REQUEST: &str = "rtCaller";

/// Beginnings of the names of variables that say something to our hooks, beside those of launchers.
pub const PREFIXES: [&str; 10] =
    ["NVIDIA_", "CUDA_", "AMD_", "ROCR_", "HIP_", "ZE_", "HABANA_", "RT_", "MELLANOX_", "NCCL_"];

/// What `rt`'s caller has said on the command line, and no image can have said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallerRequest {
    /// `NAME=VALUE` each (`-e`), of the names that mean something to our hooks.
    #[serde(default)]
    pub env: Vec<String>,
    /// CDI names (`--device`).
    #[serde(default)]
    pub devices: Vec<String>,
    /// The program, where a hook looks at it: the command line changes what the bundle's config says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<Program>,
    /// Where the container's root is, by no link: of an image that is a file, which `rt` has mounted, or in a bundle of others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rootfs: Option<PathBuf>,
    /// Others can put something else in the place of the root, at any time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub others_root: bool,
    /// The config as `rt` heeds it, where others can have written that of the bundle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
}

/// What a container will run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The program's name and its arguments.
    pub args: Vec<String>,
    /// Its directory.
    pub cwd: PathBuf,
    /// The variables by which it and its libraries are searched for, `NAME=VALUE` each.
    #[serde(default)]
    pub search: Vec<String>,
}

impl Program {
    /// The program of a config.
    pub fn of(process: &Process) -> Program {
        let is_search = |v: &&String| v.starts_with("PATH=") || v.starts_with("LD_LIBRARY_PATH=");
        let env = process.env().as_deref().unwrap_or_default();
        Program {
            args: process.args().clone().unwrap_or_default(),
            cwd: process.cwd().clone(),
            search: env.iter().filter(is_search).cloned().collect(),
        }
    }
}

impl CallerRequest {
    /// True where nothing was said.
    pub fn is_empty(&self) -> bool {
        *self == CallerRequest::default()
    }
}

/// Whether a word, of `--mpi`, [`MPI`] or [`ANNOTATION_MPI`], asks for the host's MPI library.
pub fn is_host_mpi(word: &str) -> Result<bool> {
    match word {
        "host" => Ok(true),
        "image" | "" => Ok(false),
        other => bail!("MPI {other:?} is neither host nor image"),
    }
}

/// True for what only the caller and the site may say: paths of the host, devices whose descriptions bring mounts and
/// hooks, and what gives power over the node's GPUs. Everything else in a container's environment chooses among what
/// any container may have, and may come from its image.
pub fn is_callers(name: &str, value: &str) -> bool {
    match name {
        "CUDA_MPS_PIPE_DIRECTORY"
        | "NVIDIA_MIG_CONFIG_DEVICES"
        | "NVIDIA_MIG_MONITOR_DEVICES"
        | "RT_MPI_LIBRARY" => true,
        "NVIDIA_VISIBLE_DEVICES" => value.contains('='),
        _ => false,
    }
}
