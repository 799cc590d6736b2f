//! The `rt-pull` command, which `rt pull`, `login`, `logout`, `cache`, `inspect` and `save` execute.

fn main() -> std::process::ExitCode {
    rt::pull::cli::main()
}
