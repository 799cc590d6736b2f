//! The `rt` command.

#[global_allocator]
static ALLOCATOR: rt::sys::alloc::Bump = rt::sys::alloc::Bump::new();

fn main() -> std::process::ExitCode {
    rt::cli::main()
}
