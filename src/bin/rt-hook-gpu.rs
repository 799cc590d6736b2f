//! `rt-hook-gpu`: the OCI hook that puts GPUs into a container.

#[global_allocator]
static ALLOCATOR: rt::sys::alloc::Bump = rt::sys::alloc::Bump::new();

fn main() -> std::process::ExitCode {
    rt::hook::gpu::main()
}
