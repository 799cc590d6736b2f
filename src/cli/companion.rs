//! The programs that `rt` executes for images: `rt-pull` and `rt-image`. `rt` has only the flags of their commands, as git
//! has of its, so that the runtime holds no network, no archive and no decompression code.

use super::PROGRAM;
use crate::container::MountRequest;
use rt_cli::flag::{MOUNTED, ROOT};
use rt_cli::parse::{self, Call, Flags};
use rt_sys::error::{Context, Error, Result};
use rt_sys::{bail, err, start};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Executes `rt-pull` with this process's words. Returns only where that fails.
pub(super) fn execute(_: &Call) -> Result<u8> {
    become_companion("rt-pull", std::env::args_os().skip(1).collect())
}

/// Executes `rt-image` with this process's words. Returns only where that fails.
pub(super) fn execute_mount(_: &Call) -> Result<u8> {
    become_companion("rt-image", std::env::args_os().skip(1).collect())
}

/// Executes `rt-image`, which mounts images and executes this call again. Returns only the error.
pub(super) fn mount_images(request: &MountRequest<'_>) -> Error {
    match words_for_mounting(request).and_then(|words| become_companion("rt-image", words)) {
        Ok(_) => err!("execute rt-image: it has returned"),
        Err(e) => e,
    }
}

/// `[LOG-FLAGS...] hold [--bundle] [--extract] [--more] [--from DIR] AT FILE... -- RT --mounted-images AT WORDS...`
fn words_for_mounting(request: &MountRequest<'_>) -> Result<Vec<OsString>> {
    let own: Vec<OsString> = std::env::args_os().skip(1).collect();
    // The flags that say where errors are logged are for `rt-image` too.
    let mut globals = Flags::default();
    parse::globals(&PROGRAM, &own, &mut globals)?;
    let mut words = Vec::new();
    for (flag, value) in globals.iter().filter(|(flag, _)| !std::ptr::eq(*flag, &ROOT)) {
        let mut word = OsString::from(format!("--{}=", flag.long));
        word.push(value);
        words.push(word);
    }
    words.push("hold".into());
    let switches = [("--bundle", request.bundle), ("--extract", request.extract), ("--more", request.more)];
    words.extend(switches.into_iter().filter(|(_, set)| *set).map(|(switch, _)| switch.into()));
    if let Some(dir) = request.called_in {
        words.extend(["--from".into(), dir.into()]);
    }
    words.push(request.at.into());
    words.extend(request.files.iter().map(OsString::from));
    words.push("--".into());
    words.push(this_program()?.into());
    words.extend([format!("--{}", MOUNTED.long).into(), request.at.into()]);
    words.extend(own);
    Ok(words)
}

fn this_program() -> Result<PathBuf> {
    start::program().ok_or_else(|| err!("find rt itself: /proc/self/exe cannot be read"))
}

fn become_companion(name: &str, words: Vec<OsString>) -> Result<u8> {
    let mut failed = Ok(0);
    with_companion(name, |program| {
        let e = Command::new(program).args(&words).exec();
        let missing = e.kind() == ErrorKind::NotFound;
        failed = Err(e).context(|| format!("execute {}", program.display()));
        !missing
    })?;
    failed
}

/// Calls `run` with the program `name` beside this executable, and where that says that it is not there, with that of
/// PATH.
pub(super) fn with_companion(name: &str, mut run: impl FnMut(&Path) -> bool) -> Result<()> {
    let beside = this_program()?.with_file_name(name);
    if run(&beside) || run(Path::new(name)) {
        return Ok(());
    }
    bail!("{name} is installed neither as {} nor in PATH", beside.display())
}
