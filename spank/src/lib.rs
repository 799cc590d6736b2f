//! Slurm's plugin for containers: `srun --container-image=debian:12 ...` (spank(7)).
//!
//! It is thin. It reads options in srun, sbatch, salloc and slurmstepd, puts them into the step's environment, executes
//! `rt slurm prepare` once per node and step, and has Slurm start `rt-slurm-task` in the place of each task's program.
//! All meaning of the options is in `rt`.
//!
//! It runs inside of srun, slurmd and slurmstepd, the last two as root and with threads of their own. So it starts no
//! thread, changes nothing of the process, and lets no panic out: [`entries`] has every entry, and each catches them.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod arguments;
mod entries;
mod ffi;
mod mounts;
mod options;
mod plugin;
mod program;
