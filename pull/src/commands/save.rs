//! `rt save`

use super::pull::pull_options;
use super::{image_file as form_of, operand, source, tell};
use crate::image_file;
use crate::progress::{Style, size};
use crate::run;
use crate::save::{self, SaveTarget};
use rt_cli::image::{REPLACE, REPLACE_IMAGE, RUN_FILE, SILENT};
use rt_cli::parse::Call;
use rt_cli::print;
use rt_sys::error::{Context, Result};
use rt_sys::{bail, err, look};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Writes a bundle's tree as an image and prints its digest, or the path of an image file.
pub(super) fn run(call: &Call) -> Result<u8> {
    let Some(target) = call.flags.path(&RUN_FILE) else {
        let target = operand(call, 1)?;
        return bundle(call, Path::new(call.operands[0]), target);
    };
    if let Some(extra) = call.operands.get(1) {
        bail!("save: extra operand {extra:?}: --runfile names what is made");
    }
    run_file(call, &target)
}

/// Where a run file, or another one, comes from.
pub(super) enum Origin<'a> {
    Bundle(&'a Path),
    /// A file, and whether it is a squashfs.
    File(&'a Path, bool),
    Image(&'a str),
}

impl Origin<'_> {
    pub(super) fn of<'a>(call: &Call<'a>) -> Result<Origin<'a>> {
        let path = Path::new(call.operands[0]);
        // A name that says where it is means nothing that is here.
        if call.operands[0].to_str().is_some_and(|name| name.contains("://")) {
            return operand(call, 0).map(Origin::Image);
        }
        if look::is_file(path.join("config.json"))? {
            return Ok(Origin::Bundle(path));
        }
        if !look::is_file(path)? {
            return operand(call, 0).map(Origin::Image);
        }
        let file = File::open(path).context(|| format!("open {}", path.display()))?;
        let is_squashfs = image_file::is_squashfs(&file).context(|| path.display().to_string())?;
        Ok(Origin::File(path, is_squashfs))
    }
}

/// Makes a program.
pub(super) fn run_file(call: &Call, target: &Path) -> Result<u8> {
    match Origin::of(call)? {
        Origin::Bundle(path) => {
            let text = target.to_str().ok_or_else(|| err!("{}: not UTF-8", target.display()))?;
            bundle(call, path, text)
        }
        Origin::File(path, true) => file(call, path, target, true),
        Origin::File(path, false) => {
            Err(err!("{}: neither a bundle nor a squashfs", path.display())
                .hint("rt convert mounts a SIF image"))
        }
        Origin::Image(name) => pulled(call, name, target.to_owned()),
    }
}

/// Saves a bundle.
pub(super) fn bundle(call: &Call, bundle: &Path, target: &str) -> Result<u8> {
    let quiet = call.flags.has(&SILENT);
    let (replace, style) = (replaces(call), Style::of_terminal(quiet));
    if let Some(form) = form_of(&call.flags, Path::new(target))? {
        let written = image_file::save(bundle, Path::new(target), replace, form, style)?;
        if !quiet {
            tell(&format!("{} files and directories in {}\n", written.inodes, size(written.bytes)));
        }
        return print_path(Path::new(target));
    }
    let target = SaveTarget::parse(target)?;
    let saved = save::save(bundle, &target, replace, style)?;
    if !quiet {
        tell(&format!("{} in one layer of {}\n", size(saved.plain), size(saved.stored)));
    }
    print(format!("{}\n", saved.digest))
}

/// Copies a squashfs as it is.
pub(super) fn file(call: &Call, from: &Path, target: &Path, runs: bool) -> Result<u8> {
    let bytes = image_file::copy(from, target, replaces(call), runs)?;
    if !call.flags.has(&SILENT) {
        tell(&format!("{}\n", size(bytes)));
    }
    print_path(target)
}

/// Pulls an image.
pub(super) fn pulled(call: &Call, name: &str, target: PathBuf) -> Result<u8> {
    let mut options = pull_options(call, name.to_owned(), source(name)?, target)?;
    options.force = replaces(call);
    let summary = run::run(&options)?;
    if !call.flags.has(&SILENT) {
        super::pull::tell_summary(&summary);
    }
    print_path(&options.target)
}

fn replaces(call: &Call) -> bool {
    [&REPLACE, &REPLACE_IMAGE].iter().any(|flag| call.flags.has(flag))
}

fn print_path(path: &Path) -> Result<u8> {
    print(format!("{}\n", rt_sys::fd::absolute(path)?.display()))
}
