//! The `rt` command.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: rt_sys::alloc::Bump = rt_sys::alloc::Bump::new();

fn main() -> ExitCode {
    rt_sys::start::protect_constants();
    // The process ends here: whatever has a destructor is the kernel's to take back.
    rt_sys::process::exit_now(rt::cli::main().into())
}
