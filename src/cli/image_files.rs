//! Images that are files: `rt-image` mounts them and executes this call again.

use super::companion::with_companion;
use super::{PROGRAM, create, operand};
use crate::container::{self, MountRequest};
use rt_cli::flag::{MOUNTED, ROOT};
use rt_cli::parse::{self, Call, Flags};
use rt_sys::error::{Error, Result};
use rt_sys::{err, start};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The bundle of an image file, which `rt-image` makes. The first call does not come back.
pub(super) fn bundle(call: &Call, file: &Path) -> Result<PathBuf> {
    if operand::is_archive(file) {
        return Err(operand::archive_is_no_bundle(file));
    }
    container::bundle_of_image(&super::new_store(call)?, &create::images(call), file)
}

/// Executes `rt-image`, which mounts images and executes this call again. Returns only the error.
pub(super) fn mount(request: &MountRequest<'_>) -> Error {
    let mut failed = err!("rt-image was not executed");
    let tried = words_for_mounting(request).and_then(|words| {
        with_companion("rt-image", |program| {
            let e = Command::new(program).args(&words).exec();
            let missing = e.kind() == ErrorKind::NotFound;
            failed = Error::from(e).context(format!("execute {}", program.display()));
            !missing
        })
    });
    match tried {
        Ok(()) => failed,
        Err(e) => e,
    }
}

/// `[LOG-FLAGS...] hold [FLAGS...] AT FILE... -- RT --mounted-images AT WORDS...`
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
    words.push(start::program().ok_or_else(|| err!("find rt itself"))?.into());
    words.extend([format!("--{}", MOUNTED.long).into(), request.at.into()]);
    words.extend(own);
    Ok(words)
}
