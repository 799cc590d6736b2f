//! What a launcher says of a task, and what becomes of a container's config because of it.
//!
//! [`task`], [`request`] and [`adapt()`] know no launcher: they are about ranks of a node, their directories and namespaces. What one
//! launcher says, and where, is read by the module of its name into a [`task::TaskContext`]. [`launchers`] has a row for each,
//! by which `rt run` knows that a process is a rank.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod adapt;
pub mod fuzz;
pub mod job_environment;
pub mod launchers;
pub mod request;
pub mod single_copy;
pub mod slurm;
pub mod task;

pub use adapt::{adapt, show_callers_pmix};
