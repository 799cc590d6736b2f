//! OCI hooks (config.md "POSIX-platform Hooks"): the definitions in hooks.d, and running hooks.

pub mod definitions;
mod run;

pub(crate) use run::{Inside, Stage, precreate_path, run_all, run_inside, run_one};
