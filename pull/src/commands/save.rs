//! `rt save`

use super::pull::pull_options;
use super::{image_file as form_of, images, operand, source, tell};
use crate::bundle;
use crate::image_file;
use crate::progress::{Style, size};
use crate::pull;
use crate::save::{self, SaveTarget, What};
use rt_cli::image::{OVER, REPLACE, REPLACE_IMAGE, RUN_FILE, SAVE, SILENT, WHOLE};
use rt_cli::parse::Call;
use rt_cli::print;
use rt_image_store::{PullPolicy, others, word};
use rt_spec::asked_mounts::is_image;
use rt_sys::error::{Context, Result};
use rt_sys::{bail, disk, err, look};
use rustix::fs::FileType;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Writes a bundle's tree as an image and prints its digest, or the path of an image file.
pub(super) fn run(call: &Call) -> Result<u8> {
    let Some(target) = call.flags.path(&RUN_FILE) else {
        let target = super::target(call, &SAVE)?;
        return bundle(call, &source_bundle(call)?, target);
    };
    if let Some(extra) = call.operands.get(1) {
        bail!("save: extra operand {extra:?}: --runfile names what is made");
    }
    // As without --runfile, what is in the store by that name is not asked for elsewhere.
    if !call.flags.given(&OVER)
        && let Origin::Image(name) = Origin::of(call)?
        && let Some(found) = images::find(call, name)?
    {
        return bundle(call, &found, text(&target)?);
    }
    run_file(call, &target)
}

/// The bundle that is the first operand: one that is here, or an image of the store by its name. Only where a layer has been
/// written over that is a missing one pulled: else the name may be a path with an error in it.
pub(super) fn source_bundle(call: &Call) -> Result<PathBuf> {
    let (word, over) = (call.operands[0], call.flags.given(&OVER));
    let path = Path::new(word);
    let has_transport = word.to_str().is_some_and(|name| name.contains("://"));
    let here = if has_transport { None } else { word::own(path)? };
    if here == Some(FileType::Directory) && word::has_own_config(path)? {
        return Ok(path.to_owned());
    }
    let is_name = over || !word.as_bytes().starts_with(b".") && !path.is_absolute() && here.is_none();
    match (is_name, over) {
        (false, _) => Ok(path.to_owned()),
        (true, true) => images::stored(call, operand(call, 0)?, PullPolicy::Missing),
        (true, false) => images::stored(call, operand(call, 0)?, PullPolicy::Never)
            .map_err(|e| e.hint("nor is there a bundle of that name")),
    }
}

/// True for a directory that is neither a bundle nor an image: what is in it is data.
///
/// # Errors
/// As of [`is_others_bundle`].
fn is_data(path: &Path) -> Result<bool> {
    Ok(!is_others_bundle(path)?
        && look::kind_unserved(path)? == Some(FileType::Directory)
        && !has(path, "config.json")?
        && !has(path, "oci-layout")?)
}

/// True where something is in the directory `dir` by that name, which another user may serve.
fn has(dir: &Path, name: &str) -> Result<bool> {
    Ok(look::kind_unserved(dir.join(name))?.is_some())
}

/// True for a bundle of a store that others can change, or one in such a one.
///
/// # Errors
/// It is something else there: they could put a link to what is the caller's.
fn is_others_bundle(path: &Path) -> Result<bool> {
    let Some((bundle, _, why)) = others::first_on_way(path)? else { return Ok(false) };
    let config = match bundle::open(path) {
        Err(e) if e.is(libc::ENOENT) || e.is(libc::ENOTDIR) => None,
        dir => disk::mode_at(dir?.as_fd(), b"config.json")?,
    };
    if config.is_some() {
        return Ok(true);
    }
    Err(err!("{}: not a bundle, and of {}: {why}", path.display(), bundle.display())
        .hint("cp -a makes a copy of your own"))
}

/// Where a run file, or another one, comes from.
pub(super) enum Origin<'a> {
    Bundle(&'a Path),
    /// A directory of something else.
    Data(&'a Path),
    /// An image layout.
    Layout(&'a Path),
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
        // What is here is looked at once, before anything of it is opened: others can change what has a name meanwhile.
        match word::own_or_file(path, is_image)? {
            Some(_) if is_others_bundle(path)? => Ok(Origin::Bundle(path)),
            Some(FileType::RegularFile) => {
                let is_squashfs = image_file::is_squashfs(&disk::open_named(path)?);
                Ok(Origin::File(path, is_squashfs.context(|| path.display().to_string())?))
            }
            Some(FileType::Directory) if word::has_own_config(path)? => Ok(Origin::Bundle(path)),
            Some(FileType::Directory) if has(path, "oci-layout")? => Ok(Origin::Layout(path)),
            Some(FileType::Directory) if !has(path, "config.json")? => Ok(Origin::Data(path)),
            _ => operand(call, 0).map(Origin::Image),
        }
    }
}

/// Makes a program.
pub(super) fn run_file(call: &Call, target: &Path) -> Result<u8> {
    match Origin::of(call)? {
        Origin::Bundle(path) | Origin::Data(path) => bundle(call, path, text(target)?),
        Origin::File(path, true) if !call.flags.given(&OVER) => file(call, path, target, true),
        Origin::File(path, true) => {
            Err(err!("{}: --overlay is for bundles and images by name", path.display())
                .hint("rt convert mounts an image file"))
        }
        Origin::File(path, false) => {
            Err(err!("{}: neither a bundle nor a squashfs", path.display())
                .hint("rt convert mounts a SIF image"))
        }
        Origin::Layout(_) => Err(super::is_a_layout(operand(call, 0)?)),
        Origin::Image(name) if call.flags.given(&OVER) => {
            bundle(call, &images::stored(call, name, PullPolicy::Missing)?, text(target)?)
        }
        Origin::Image(name) => pulled(call, name, target.to_owned()),
    }
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| err!("{}: not UTF-8", path.display()))
}

/// Saves a bundle.
pub(super) fn bundle(call: &Call, bundle: &Path, target: &str) -> Result<u8> {
    let quiet = call.flags.has(&SILENT);
    let (replace, style) = (replaces(call), Style::of_terminal(quiet));
    let overlay = call.flags.path(&OVER);
    let what = What { bundle, overlay: overlay.as_deref() };
    if let Some(form) = form_of(&call.flags, Path::new(target))? {
        let file = Path::new(target);
        let written = match is_data(bundle)? && !form.runs && overlay.is_none() {
            true => image_file::save_data(bundle, file, replace, form, style)?,
            false => {
                let whole = call.flags.path(&WHOLE);
                image_file::save(what, whole.as_deref(), file, replace, form, style)?
            }
        };
        if !quiet {
            tell(&format!("{} files and directories in {}\n", written.inodes, size(written.bytes)));
        }
        return print_path(Path::new(target));
    }
    let target = SaveTarget::parse(target)?;
    let saved = save::save(what, &target, replace, style)?;
    if !quiet {
        let layers = if saved.layers == 1 { "one layer" } else { "two layers" };
        tell(&format!("{} in {layers} of {}\n", size(saved.plain), size(saved.stored)));
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
    let summary = pull::run(&options)?;
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
