//! `rt-hook-gpu`: the OCI hook that puts GPUs into a container.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: rt::sys::alloc::Bump = rt::sys::alloc::Bump::new();

fn main() -> ExitCode {
    rt::sys::start::begin((&raw const ALLOCATOR).addr());
    rt::sys::process::exit_now(rt::hook::gpu::main().into())
}
