//! OCI hooks (config.md "POSIX-platform Hooks"): running them, and the kit that ours are written with.
//!
//! A hook of ours reads the container's state, looks at the bundle and the host, computes [`edits::Edits`],
//! and applies them.

mod amd;
pub mod apply;
pub mod bundle;
pub mod cdi;
pub mod command;
pub mod definitions;
mod drm;
pub mod edits;
pub mod elf;
pub mod fit;
mod generate;
pub mod gpu;
mod intel;
pub mod ldcache;
pub mod libraries;
pub mod numbering;
pub mod nvidia;
pub mod rdma;
mod run;
pub mod tree;

pub use run::{Inside, Stage, run_all, run_inside, run_one};
