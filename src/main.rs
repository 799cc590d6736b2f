//! The `rt` command.
#![no_main]

#[global_allocator]
static ALLOCATOR: rt::sys::alloc::Bump = rt::sys::alloc::Bump::new();

rt::sys::start::entry!(rt::cli::main, ALLOCATOR);
