//! `rt`: a low-level OCI container runtime for HPC.
//!
//! | module | what it is |
//! |---|---|
//! | [`cli`] | the command line, one file per command |
//! | `container` | the life of a container |
//! | `checkpoint` | its processes as files, and back |
//! | `doctor` | what keeps containers from starting here |
//! | `hooks` | running OCI hooks, and the definitions in hooks.d |
//! | `pattern` | regular expressions of users |
//! | `store` | the state directory |
//!
//! What stands below these, and what `rt-pull` and the hooks share, are crates of their own: ARCHITECTURE.md has the
//! map.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod checkpoint;
pub mod cli;
mod container;
mod doctor;
pub mod hooks;
mod pattern;
mod store;
