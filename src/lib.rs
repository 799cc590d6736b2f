//! `rt`: a low-level OCI container runtime for HPC.
//!
//! The modules stand in layers, and a module uses only those of lower layers (`tests/tidy.rs`
//! keeps this):
//!
//! | layer | module | what it is |
//! |---|---|---|
//! | 0 | [`error`], [`log`], [`sys`] | errors and log lines; the only unsafe code |
//! | 1 | [`spec`], [`seccomp`] | the config: loaded, checked, adapted; its filter compiled |
//! | 1 | [`rootfs`] | the only holder of the root's descriptor: hostile paths end here |
//! | 2 | [`store`], [`sync`], [`hook`] | the state directory; runtime-to-init messages; hooks |
//! | 3 | [`container`] | the life of a container |
//! | 3 | [`pull`] | images to bundles; only in `rt-pull` |
//! | 4 | [`cli`] | the command line, one file per command |

pub mod cli;
pub mod container;
pub mod error;
pub mod hook;
pub mod log;
pub mod pull;
pub mod rootfs;
pub mod seccomp;
pub mod spec;
pub mod store;
pub mod sync;
pub mod sys;
