//! `rt-image`'s commands. `rt` has the same flags and executes this program.

use crate::file::ImageFile;
use crate::mount::{Session, mount_point};
use crate::{hold, serve};
use ::log::LevelFilter;
use rt_cli::command::{Command, ONE_ID, Program, Rest};
use rt_cli::image::{EXTRACT, MOUNT};
use rt_cli::parse::Call;
use rt_spec::OCI_VERSION;
use rt_sys::error::{Context, Result};
use rt_sys::{bail, log};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

static PROGRAM: Program = Program {
    summary: "mount images that are one file, without root",
    commands: &[
        Command { run: mount, ..MOUNT },
        Command {
            name: "hold",
            operands: 2..=1000,
            rest: Rest::AfterDashes,
            flags: &[&hold::BUNDLE, &hold::MORE, &hold::FROM, &EXTRACT],
            hidden: true,
            run: hold::run,
            ..ONE_ID
        },
        Command { name: "serve", operands: 7..=7, hidden: true, run: serve::run, ..ONE_ID },
    ],
    version: || rt_cli::version(OCI_VERSION),
    log_format: log::Format::Text,
    log_level: LevelFilter::Error,
};

/// `rt-image`'s main.
pub(crate) fn main() -> u8 {
    rt_cli::run(&PROGRAM)
}

/// `rt mount FILE DIR -- COMMAND`: becomes the command, which alone sees the image at the directory.
fn mount(call: &Call) -> Result<u8> {
    let image = ImageFile::open(Path::new(call.operands[0]))?;
    let dir = PathBuf::from(call.operands[1]);
    // Before anything is made.
    mount_point(&dir)?;
    let session = Session::start(vec![image], hold::way(call))?;
    session.mount(|_| Ok((mount_point(&dir)?, ())))?;
    let shell =
        || std::env::var_os("SHELL").filter(|shell| !shell.is_empty()).unwrap_or_else(|| "/bin/sh".into());
    let command: Vec<OsString> = if call.rest.is_empty() { vec![shell()] } else { call.rest.to_vec() };
    become_program(&command)
}

/// Becomes a program of the host's.
pub(crate) fn become_program(command: &[OsString]) -> Result<u8> {
    let Some((program, words)) = command.split_first() else { bail!("no program to execute") };
    let e = std::process::Command::new(program).args(words).exec();
    Err(e).context(|| format!("execute {}", Path::new(program).display()))
}
