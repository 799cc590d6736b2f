//! `rt-hook-rdma`: the OCI hook that puts RDMA devices into a container.
#![no_main]

#[global_allocator]
static ALLOCATOR: rt_sys::alloc::Bump = rt_sys::alloc::Bump::new();

rt_sys::start::entry!(rt_hooks::rdma::main, ALLOCATOR);
