//! `rt-hook-gpu`, `rt-hook-mpi` and `rt-hook-rdma`: OCI hooks (config.md "POSIX-platform Hooks"), and the kit they are written with.
//!
//! A hook reads the container's state, looks at the bundle and the host, computes [`kit::edits::Edits`],
//! and applies them. What is public here is used by the programs, by tests and by fuzz targets.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod amd;
pub mod cdi;
mod command;
mod drm;
pub mod gpu;
mod intel;
pub mod kit;
pub mod mpi;
pub mod nvidia;
pub mod rdma;
