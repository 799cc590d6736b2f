//! `rt-image`: images that are one file, served by FUSE. `rt` executes it where an image is one file.
//!
//! `commands` is for the program, `fuzz` for the fuzz targets. Nothing else is public.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod bundle;
mod call;
pub mod commands;
mod confine;
mod extract;
mod file;
mod fuse;
pub mod fuzz;
mod inside;
mod run_file;
mod serve;
mod sif;
