//! The `rt` command.
#![no_main]

#[global_allocator]
static ALLOCATOR: rt_sys::alloc::Bump = rt_sys::alloc::Bump::new();

rt_sys::start::entry!(rt::cli::main, ALLOCATOR);
