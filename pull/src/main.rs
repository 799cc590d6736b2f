//! The `rt-pull` command, which `rt pull`, `inspect`, `save`, `login`, `logout` and `cache` execute.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

fn main() -> std::process::ExitCode {
    rt_sys::start::protect_constants();
    rt_pull::commands::main().into()
}
