//! The `rt-image` command, which `rt` executes where an image is one file.

mod bundle;
mod commands;
mod confine;
mod extract;
mod file;
mod fuse;
mod hold;
mod mount;
mod own_config;
mod serve;
mod sif;

fn main() -> std::process::ExitCode {
    rt_sys::start::protect_constants();
    commands::main().into()
}
