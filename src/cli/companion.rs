//! The programs that `rt` executes for images: `rt-pull` and `rt-image`. `rt` has only the flags of their commands, as git
//! has of its, so that the runtime holds no network, no archive and no decompression code.

use rt_cli::parse::Call;
use rt_sys::error::{Context, Result};
use rt_sys::{bail, err, start};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Executes `rt-pull` with this process's words. Returns only where that fails.
pub(super) fn execute(_: &Call) -> Result<u8> {
    become_companion("rt-pull")
}

/// Executes `rt-image` with this process's words. Returns only where that fails.
pub(super) fn execute_mount(_: &Call) -> Result<u8> {
    become_companion("rt-image")
}

fn become_companion(name: &str) -> Result<u8> {
    let mut failed = Ok(0);
    with_companion(name, |program| {
        let e = Command::new(program).args(std::env::args_os().skip(1)).exec();
        let missing = e.kind() == ErrorKind::NotFound;
        failed = Err(e).context(|| format!("execute {}", program.display()));
        !missing
    })?;
    failed
}

/// Calls `run` with the program `name` beside this executable, and where that says that it is not there, with that of
/// PATH.
pub(super) fn with_companion(name: &str, mut run: impl FnMut(&Path) -> bool) -> Result<()> {
    let beside = start::program().ok_or_else(|| err!("find rt itself: /proc/self/exe cannot be read"))?;
    let beside = beside.with_file_name(name);
    if run(&beside) || run(Path::new(name)) {
        return Ok(());
    }
    bail!("{name} is installed neither as {} nor in PATH", beside.display())
}
