//! The `rt-image` command, which `rt` executes where an image is one file.

mod commands;
mod confine;
mod file;
mod fuse;
mod mount;
mod serve;

fn main() -> std::process::ExitCode {
    rt_sys::start::protect_constants();
    commands::main().into()
}
