//! The `rt-pull` command, which `rt pull`, `inspect`, `save`, `login`, `logout` and `cache` execute.

fn main() -> std::process::ExitCode {
    rt::sys::start::protect_constants();
    rt::cli::image::main().into()
}
