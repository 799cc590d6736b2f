//! `rt-hook-gpu`: the OCI hook that puts GPUs into a container.
#![no_main]

#[global_allocator]
static ALLOCATOR: rt::sys::alloc::Bump = rt::sys::alloc::Bump::new();

rt::sys::start::entry!(rt::hook::gpu::main, ALLOCATOR);
