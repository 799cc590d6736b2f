//! The `rt-pull` command, which `rt pull`, `inspect`, `save`, `login`, `logout` and `cache` execute.

fn main() -> std::process::ExitCode {
    rt_sys::start::protect_constants();
    rt_pull::commands::main().into()
}
