//! `rt-hook-gpu`: the OCI hook that puts GPUs into a container.
#![no_main]

#[global_allocator]
static ALLOCATOR: rt_sys::alloc::Bump = rt_sys::alloc::Bump::new();

rt_sys::start::entry!(rt_hooks::gpu::main, ALLOCATOR);
