//! `rt-pull`, which `rt` executes for the commands about images. `rt` has only the flags of them, as git has of its, so that
//! the runtime holds no network, no archive and no decompression code.

use rt_cli::parse::Call;
use rt_sys::error::{Context, Result};
use rt_sys::{err, look, start};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Executes `rt-pull` with this process's words. Returns only where that fails.
pub(super) fn execute(call: &Call) -> Result<u8> {
    if let Some(dir) = call.flags.path(&rt_cli::image::OVER) {
        crate::container::keep_layer(&dir)?;
    }
    become_companion("rt-pull", super::own_words())
}

/// `rt inspect`: docker's knows containers, too, and whoever means one here is not told of an image of that name.
pub(super) fn inspect(call: &Call) -> Result<u8> {
    if let Some(name) = call.operands[0].to_str()
        && super::store(call)?.holds(name)?
        && !look::exists(name)?
    {
        return Err(err!("inspect: {name} is a container here")
            .hint(format!("rt state {name} shows it; docker://{name} is the image of that name")));
    }
    execute(call)
}

/// Executes the program `name` with `words`. Returns only where that fails.
pub(super) fn become_companion(name: &str, words: Vec<OsString>) -> Result<u8> {
    let mut failed = Ok(0);
    with_companion(name, |program| {
        let e = Command::new(program).args(&words).exec();
        let missing = e.kind() == ErrorKind::NotFound;
        failed = Err(e).context(|| format!("execute {}", program.display()));
        !missing
    })?;
    failed
}

/// Calls `run` with each place where the program `name` may be, until `run` says that it is there.
pub(super) fn with_companion(name: &str, run: impl FnMut(&Path) -> bool) -> Result<()> {
    match start::companions(name)?.iter().map(PathBuf::as_path).any(run) {
        true => Ok(()),
        false => Err(start::no_companion(name)),
    }
}
