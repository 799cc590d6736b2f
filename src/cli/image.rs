//! The commands about images. `rt` has only their flags: it executes `rt-pull` and `rt-image`, as git does with its
//! commands, so that the runtime holds no network, no archive and no decompression code.

use rt_cli::parse::Call;
use rt_sys::bail;
use rt_sys::error::{Context, Result};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;

/// Executes `rt-pull` with this process's words. Returns only where that fails.
pub(super) fn execute(_: &Call) -> Result<u8> {
    become_companion("rt-pull")
}

/// Executes `rt-image` with this process's words. Returns only where that fails.
pub(super) fn execute_mount(_: &Call) -> Result<u8> {
    become_companion("rt-image")
}

fn become_companion(name: &str) -> Result<u8> {
    let beside = std::env::current_exe().context(|| "find rt itself")?.with_file_name(name);
    for program in [beside.as_path(), name.as_ref()] {
        let e = std::process::Command::new(program).args(std::env::args_os().skip(1)).exec();
        if e.kind() != ErrorKind::NotFound {
            return Err(e).context(|| format!("execute {}", program.display()));
        }
    }
    bail!("{name} is installed neither as {} nor in PATH", beside.display())
}
