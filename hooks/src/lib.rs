//! `rt-hook-gpu` and `rt-hook-rdma`: OCI hooks (config.md "POSIX-platform Hooks"), and the kit they are written with.
//!
//! A hook reads the container's state, looks at the bundle and the host, computes [`edits::Edits`],
//! and applies them.

mod amd;
pub mod apply;
pub mod bundle;
pub mod cdi;
pub mod command;
mod drm;
pub mod edits;
pub mod fit;
mod generate;
pub mod gpu;
mod intel;
pub mod libraries;
pub mod numbering;
pub mod nvidia;
pub mod rdma;
pub mod tree;
