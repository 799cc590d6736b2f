//! `rt pull`: a program of its own, so that the runtime holds no network and no archive code.

use super::parse::Call;
use crate::bail;
use crate::error::{Context, Result};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Executes rt-pull. Returns only where that fails.
pub fn run(call: &Call) -> Result<u8> {
    let beside = std::env::current_exe().context(|| "pull: find rt itself")?.with_file_name("rt-pull");
    for program in [beside.as_path(), "rt-pull".as_ref()] {
        let e = Command::new(program).arg("pull").args(call.rest).exec();
        if e.kind() != ErrorKind::NotFound {
            return Err(e).context(|| format!("pull: execute {}", program.display()));
        }
    }
    bail!("pull: rt-pull is installed neither as {} nor in PATH", beside.display())
}
