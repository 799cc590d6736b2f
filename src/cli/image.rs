//! The commands about images. `rt` has only their flags: it executes `rt-pull` and `rt-image`, as git does with its
//! commands, so that the runtime holds no network, no archive and no decompression code.

use super::PROGRAM;
use crate::container::MountRequest;
use rt_cli::flag::{MOUNTED, ROOT};
use rt_cli::parse::{self, Call, Flags};
use rt_sys::error::{Error, Result};
use rt_sys::{err, start};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;

/// Executes `rt-pull` with this process's words. Returns only where that fails.
pub(super) fn execute(_: &Call) -> Result<u8> {
    Err(become_companion("rt-pull", std::env::args_os().skip(1).collect()))
}

/// Executes `rt-image` with this process's words. Returns only where that fails.
pub(super) fn execute_mount(_: &Call) -> Result<u8> {
    Err(become_companion("rt-image", std::env::args_os().skip(1).collect()))
}

/// Executes `rt-image`, which mounts images and executes this call again. Returns only the error.
pub(super) fn mount_images(request: &MountRequest<'_>) -> Error {
    match words_for_mounting(request) {
        Ok(words) => become_companion("rt-image", words),
        Err(e) => e,
    }
}

/// `[LOG-FLAGS...] hold [--bundle] [--more] [--from DIR] AT FILE... -- RT --mounted-images AT WORDS...`
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
    if request.bundle {
        words.push("--bundle".into());
    }
    if request.extract {
        words.push("--extract".into());
    }
    if request.more {
        words.push("--more".into());
    }
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

/// Executes the program `name` beside this one, or in PATH. Returns only the error.
fn become_companion(name: &str, words: Vec<OsString>) -> Error {
    let beside = match this_program() {
        Ok(program) => program.with_file_name(name),
        Err(e) => return e,
    };
    for program in [beside.as_path(), name.as_ref()] {
        let e = std::process::Command::new(program).args(&words).exec();
        if e.kind() != ErrorKind::NotFound {
            return Error::from(e).context(format!("execute {}", program.display()));
        }
    }
    err!("{name} is installed neither as {} nor in PATH", beside.display())
}
