//! The `rt` command.

fn main() -> std::process::ExitCode {
    rt::cli::main()
}
