//! What `rt`'s caller says on the command line to hooks, and how it reaches them. An image cannot say it.

use serde::{Deserialize, Serialize};

pub use super::annotations::ANNOTATION_ENV;

/// The key by which `rt` passes [`Said`] on: in the state, and in the config that precreate hooks get. An image can give
/// a container variables and annotations, but no key beside those of the specification.
pub const SAID: &str = "rtCaller";

/// Variables that say something to our hooks.
pub const PREFIXES: [&str; 10] =
    ["NVIDIA_", "CUDA_", "AMD_", "ROCR_", "HIP_", "ZE_", "HABANA_", "RT_", "MELLANOX_", "SLURM_"];

/// What `rt`'s caller has said on the command line, and no image can have said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Said {
    /// `NAME=VALUE` each (`-e`), of the names that mean something to our hooks.
    #[serde(default)]
    pub env: Vec<String>,
    /// CDI names (`--device`).
    #[serde(default)]
    pub devices: Vec<String>,
}

impl Said {
    /// True where nothing was said.
    pub fn is_empty(&self) -> bool {
        self.env.is_empty() && self.devices.is_empty()
    }
}

/// True for what only the caller and the site may say: paths of the host, devices whose descriptions bring mounts and
/// hooks, and what gives power over the node's GPUs. Everything else in a container's environment chooses among what
/// any container may have, and may come from its image.
pub fn is_callers(name: &str, value: &str) -> bool {
    match name {
        "CUDA_MPS_PIPE_DIRECTORY" | "NVIDIA_MIG_CONFIG_DEVICES" | "NVIDIA_MIG_MONITOR_DEVICES" => true,
        "NVIDIA_VISIBLE_DEVICES" => value.contains('='),
        _ => false,
    }
}
