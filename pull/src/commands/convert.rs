//! `rt convert`: by way of what `rt pull`, `rt save` and `rt mount` do.

use super::save::{self, Origin};
use super::{is_image_file, operand};
use crate::draft::Draft;
use crate::save::SaveTarget;
use oci_content::interrupt::{self, Interrupt};
use rt_cli::image::{COMPRESS, CONVERT, OVER, REPLACE, RUN_FILE, SILENT};
use rt_cli::parse::Call;
use rt_image_store::{PullPolicy, word};
use rt_sys::error::{Context, Result};
use rt_sys::{bail, disk, err, fd, look, start};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Makes of one form of an image another one.
pub(super) fn run(call: &Call) -> Result<u8> {
    // Before anything is made that would be left.
    let interrupt = &Interrupt::install();
    let target = match (call.flags.path(&RUN_FILE), call.operands.get(1)) {
        (Some(target), None) => return run_file(call, &target, interrupt),
        (Some(_), Some(extra)) => bail!("convert: extra operand {extra:?}: --runfile names what is made"),
        (None, _) => super::target(call, &CONVERT)?,
    };
    let path = Path::new(target);
    // What has a transport in front is an image, and what can be no such is an error.
    let saved = !is_image_file(path) && target.contains(':');
    if saved {
        SaveTarget::parse(target)?;
    }
    let overlay = call.flags.given(&OVER);
    if overlay && !saved && !is_image_file(path) {
        return Err(err!("{target}: --overlay makes an image, and no bundle")
            .hint(format!("{target}.sqsh is a file with the image")));
    }
    let as_is = is_image_file(path) && !call.flags.given(&COMPRESS) && !overlay;
    match Origin::of(call)? {
        Origin::Bundle(_) if !saved && !is_image_file(path) => {
            Err(err!("{target}: a bundle, as what it is made of").hint("cp -a copies a bundle"))
        }
        Origin::Data(from) if !is_image_file(path) => Err(err!(
            "{}: a directory without config.json, which becomes a file of data only",
            from.display()
        )
        .hint(format!("{target}.sqsh is one; docker://{} is the image of that name", from.display()))),
        Origin::Bundle(from) | Origin::Data(from) => save::bundle(call, from, target),
        Origin::File(from, true) if as_is => save::file(call, from, path, false),
        Origin::File(from, _) if saved || is_image_file(path) => {
            mounted(call, from, &[OsString::from(target)], interrupt)
        }
        Origin::File(from, _) => {
            let scratch = Scratch::beside(path)?;
            let layout = format!("oci:{}:image", scratch.join("layout")?.display());
            match quietly(call, from, &layout, interrupt)? {
                0 => interrupt.check().and_then(|()| save::pulled(call, &layout, path.to_owned())),
                code => Ok(code),
            }
        }
        Origin::Layout(_) => Err(super::is_a_layout(operand(call, 0)?)),
        Origin::Image(name) if overlay => {
            save::bundle(call, &super::images::stored(call, name, PullPolicy::Missing)?, target)
        }
        Origin::Image(name) if saved => {
            let scratch = Scratch::beside(Path::new(".rt-convert"))?;
            let bundle = scratch.join("bundle")?;
            let mut own = own(&["pull", "--quiet", "--private"], &[name.into(), bundle.clone().into()])?;
            // The path of what is gone afterwards.
            own.stdout(std::process::Stdio::null());
            match finished(own, interrupt)? {
                0 => interrupt.check().and_then(|()| save::bundle(call, &bundle, target)),
                code => Ok(code),
            }
        }
        Origin::Image(name) => save::pulled(call, name, path.to_owned()),
    }
}

fn run_file(call: &Call, target: &Path, interrupt: &Interrupt) -> Result<u8> {
    match Origin::of(call)? {
        Origin::File(from, squashfs)
            if !squashfs || [&COMPRESS, &OVER].iter().any(|f| call.flags.given(f)) =>
        {
            mounted(call, from, &["--runfile".into(), target.into()], interrupt)
        }
        _ => save::run_file(call, target),
    }
}

/// Mounts an image file as a bundle, and saves that with `words`.
fn mounted(call: &Call, from: &Path, words: &[OsString], interrupt: &Interrupt) -> Result<u8> {
    let mut flags: Vec<OsString> = Vec::new();
    flags.extend(call.flags.has(&SILENT).then(|| "--quiet".into()));
    flags.extend(call.flags.has(&REPLACE).then(|| "--force".into()));
    if let Some(compression) = call.flags.text(&COMPRESS)? {
        flags.extend(["--compress".into(), compression.into()]);
    }
    if let Some(overlay) = call.flags.path(&OVER) {
        flags.extend(["--overlay".into(), overlay.into()]);
    }
    let scratch = Scratch::elsewhere()?;
    finished(save_mounted(from, &scratch, &flags, words)?, interrupt)
}

/// Saves a mounted image into a layout that is removed afterwards, and prints nothing about it.
fn quietly(call: &Call, from: &Path, layout: &str, interrupt: &Interrupt) -> Result<u8> {
    if call.flags.given(&COMPRESS) {
        bail!("--compress is for an image file");
    }
    let scratch = Scratch::elsewhere()?;
    let mut command = save_mounted(from, &scratch, &["--quiet".into()], &[layout.into()])?;
    command.stdout(std::process::Stdio::null());
    finished(command, interrupt)
}

/// `rt mount --bundle FROM DIR -- rt-pull save FLAGS DIR WORDS`
fn save_mounted(from: &Path, scratch: &Scratch, flags: &[OsString], words: &[OsString]) -> Result<Command> {
    let rt = look::first_file(start::companions("rt")?)?;
    let mut command = Command::new(rt.ok_or_else(|| start::no_companion("rt"))?);
    let at = scratch.mount_point()?;
    command.args(["mount", "--bundle"]).arg(from).arg(&at).arg("--");
    let own = own(&["save"], flags)?;
    command.arg(own.get_program()).args(own.get_args()).arg(&at).args(words);
    Ok(command)
}

/// This program with these words.
fn own(command: &[&str], words: &[OsString]) -> Result<Command> {
    let mut own = Command::new(start::program()?);
    own.args(command).args(words);
    Ok(own)
}

/// The exit code of a program, which says itself what went wrong.
fn finished(mut command: Command, interrupt: &Interrupt) -> Result<u8> {
    let shown = Path::new(command.get_program()).display().to_string();
    // Whoever ends this process means the other one, which removes what it has begun. That of a terminal has the signal, too.
    let mut child = command.spawn().context(|| format!("execute {shown}"))?;
    let mut told = false;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) => {}
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e).context(|| format!("wait for {shown}")),
        }
        if interrupt.signalled() && !told {
            told = true;
            rt_sys::process::terminate(&child);
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    match status.signal() {
        Some(_) if told => Err(interrupt::interrupted()),
        Some(signal) => bail!("{shown} was ended by signal {signal}"),
        None => Ok(status.code().unwrap_or(1) as u8),
    }
}

/// Where what is needed meanwhile is: it goes with this process, or with the next one that makes such a place there.
struct Scratch(Draft);

impl Scratch {
    /// Beside what becomes of it, where nobody else can rename: other programs get a path in it.
    fn beside(target: &Path) -> Result<Scratch> {
        let above = target.parent().filter(|above| !above.as_os_str().is_empty());
        match word::changeable_by_others(above.unwrap_or(Path::new(".")))? {
            None => Draft::beside(target).map(Scratch),
            Some(_) => Scratch::elsewhere(),
        }
    }

    /// In the directory for temporary files.
    fn elsewhere() -> Result<Scratch> {
        Draft::beside(&word::temporary_directory()?.join("rt-convert")).map(Scratch)
    }

    /// The path of `name` in it.
    fn join(&self, name: &str) -> Result<PathBuf> {
        Ok(fd::path_of(self.0.dir()).context(|| "look up a path")?.join(name))
    }

    /// A directory in it to mount something on.
    fn mount_point(&self) -> Result<PathBuf> {
        disk::make_dir(self.0.dir(), b"mnt")?;
        self.join("mnt")
    }
}
