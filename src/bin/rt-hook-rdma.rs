//! `rt-hook-rdma`: the OCI hook that puts RDMA devices into a container.
#![no_main]

#[global_allocator]
static ALLOCATOR: rt::sys::alloc::Bump = rt::sys::alloc::Bump::new();

rt::sys::start::entry!(rt::hook::rdma::main, ALLOCATOR);
