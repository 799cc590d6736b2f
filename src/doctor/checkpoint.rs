//! Checkpoints: criu, and what the kernel lets it do.

use super::{Check, text_of};
use crate::checkpoint::{Criu, Cuda};

pub(super) fn checks() -> Vec<Check> {
    const NAME: &str = "checkpoints";
    // Whoever needs none has no criu, which is as it should be.
    let criu = match Criu::find() {
        Err(e) => return vec![Check::ok(NAME, format!("none: {e}"))],
        Ok(criu) => criu,
    };
    let found = format!("{}, version {}", criu.path.display(), criu.version);
    if text_of("/proc/sys/kernel/yama/ptrace_scope") == "3" {
        return vec![
            Check::note(NAME, format!("{found}: no process may be traced here"))
                .remedy("kernel.yama.ptrace_scope of 2 or less, from the next start of the machine on"),
        ];
    }
    let of_criu = match criu.version.shortcoming() {
        Some(lacks) => Check::note(NAME, format!("{found}: {lacks}")),
        None => Check::ok(NAME, found),
    };
    std::iter::once(of_criu).chain(of_gpus()).collect()
}

/// What keeps programs on GPUs, where there are some that it is for.
fn of_gpus() -> Option<Check> {
    const NAME: &str = "checkpoints of GPUs";
    if text_of("/proc/driver/nvidia/version").is_empty() {
        return None;
    }
    Some(match Cuda::find() {
        Ok(Some(cuda)) => Check::ok(NAME, cuda.path.display().to_string()),
        Ok(None) => Check::ok(NAME, "none: cuda-checkpoint is not in PATH"),
        Err(e) => Check::note(NAME, e.to_string()),
    })
}
