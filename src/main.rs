//! The `rt` command.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: rt::sys::alloc::Bump = rt::sys::alloc::Bump::new();

fn main() -> ExitCode {
    rt::sys::start::protect_constants();
    // The process ends here: whatever has a destructor is the kernel's to take back.
    rt::sys::process::exit_now(rt::cli::main().into())
}
