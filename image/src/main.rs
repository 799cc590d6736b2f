//! The `rt-image` command.

fn main() -> std::process::ExitCode {
    rt_sys::start::protect_constants();
    rt_image::commands::main().into()
}
