//! The `rt-image` command.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

fn main() -> std::process::ExitCode {
    rt_sys::start::protect_constants();
    rt_image::commands::main().into()
}
