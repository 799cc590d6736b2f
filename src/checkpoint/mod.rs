//! Checkpoints: a container's processes become files, and files become processes, without root and with one id.
//!
//! [criu(8)](https://criu.org) of the host does both, as a program that is executed. It joins all namespaces of the container, whose
//! mounts, devices, masks and hooks are made anew by `rt` from the config: criu keeps processes only.
//! docs/checkpoint.md says what can be kept, docs/design/checkpoint.md why it is done so.

mod affinity;
mod aside;
mod calls;
mod claim;
mod contents;
mod criu;
mod criu_log;
mod dump;
mod exchange;
mod files;
mod filters;
mod fork;
mod gate;
mod gpu;
mod groups;
mod hidden;
mod image;
mod inside;
mod left;
mod links;
mod made_calls;
mod manifest;
mod memory_files;
mod memory_fs;
mod names;
mod numbers;
mod others;
mod places;
mod preflight;
mod processes;
mod reach;
mod removed;
mod requeue;
mod restore;
mod shared_files;
mod sizes;
mod stops;
mod watches;

pub(crate) use criu::Criu;
pub(crate) use dump::{DumpOptions, dump, resume};
pub(crate) use fork::{ForkOptions, fork};
pub(crate) use gate::main as gate_main;
pub(crate) use gpu::Cuda;
pub(crate) use requeue::own_job;
pub(crate) use restore::Restore;
