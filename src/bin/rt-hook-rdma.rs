//! `rt-hook-rdma`: the OCI hook that puts RDMA devices into a container.

#[global_allocator]
static ALLOCATOR: rt::sys::alloc::Bump = rt::sys::alloc::Bump::new();

fn main() -> std::process::ExitCode {
    rt::hook::rdma::main()
}
