//! Bundles in a store of images that somebody else has made, or could change: what they ask of the host does not count.
//!
//! A name chose such a bundle, and not the caller, so its config counts as an image's own does ([`own_config`]). Whoever
//! names a bundle by its path outside of a store has chosen its owner.

use rt_image_store::ROOT;
use rt_spec::own_config;
use rt_sys::error::{Context, Error, Result};
use rt_sys::owned::Owned;
use rt_sys::{bail, caller, err, fd};
use rustix::fd::OwnedFd;
use rustix::fs::{self, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::path::Path;

const CONFIG: &str = "config.json";

/// How long such a config may be, in bytes.
const MOST: usize = 16 << 20;

/// The config of the bundle that is the working directory, without what reaches beyond the container. `None` where it may
/// ask for everything: it is in no store, or nobody but root and the caller can have written it. `is_stored`: the way by which it
/// was found was one into a store.
pub(super) fn config(bundle: &Path, is_stored: bool) -> Result<Option<Vec<u8>>> {
    if !is_stored && !rt_image_store::is_stored(bundle) {
        return Ok(None);
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let here = fs::open(".", flags, Mode::empty()).context(|| "the bundle")?;
    let (file, is_own) = match open_config(here)? {
        // The usual way says that it is missing.
        None => return Ok(None),
        Some(opened) => opened,
    };
    if is_own {
        return Ok(None);
    }
    log::debug!(
        "{}: others can have written it, so it names no hook and no path of the host",
        bundle.display()
    );
    open_root()?;
    let uid = caller::uid();
    let gid = rustix::process::getegid().as_raw();
    let text = fd::read_regular(file, MOST)?.ok_or_else(|| err!("{CONFIG}: longer than {MOST} bytes"))?;
    let config = own_config::config(&text, Path::new(ROOT), uid, gid)?;
    Ok(Some(config.to_string().into_bytes()))
}

/// Refuses a config that Slurm has made of a bundle in a store of images that others can write: who wrote the bundle chose
/// what Slurm has taken over, hooks among it, and nothing tells it from the words of the job any more.
pub(super) fn refuse_merged(root: &Path) -> Result<()> {
    let context = || format!("root {}", root.display());
    // By the way that the config names, on which others can have put a link, and by where that leads.
    let led = std::fs::canonicalize(root).context(context)?;
    let found = match rt_image_store::first_stored(root)? {
        None => rt_image_store::first_stored(&led)?,
        found => found,
    };
    let Some(bundle) = found else { return Ok(()) };
    let dir = rt_image_store::open_stored(&bundle).map_err(|e| e.context(context()))?;
    if open_config(dir)?.is_some_and(|(_, is_own)| is_own) {
        return Ok(());
    }
    bail!(
        "{}: others can write this bundle, and Slurm has taken over all that it says; name the image by --container-image",
        bundle.display()
    )
}

/// Opens the root of the bundle that is the working directory, and in which others can have written: a link or an image there would
/// show what they choose of the caller's files.
pub(crate) fn open_root() -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::open(ROOT, flags, Mode::empty()).map_err(|e| match e {
        Errno::NOTDIR | Errno::LOOP => err!("{ROOT}: not a directory, and others can write this bundle"),
        e => Error::from(e).context(ROOT),
    })
}

/// The config in the directory of a bundle, where there is one, and true where nobody but root and the caller can have written it.
fn open_config(dir: OwnedFd) -> Result<Option<(OwnedFd, bool)>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match fs::openat(&dir, CONFIG, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        file => file.context(|| format!("{CONFIG} of a bundle of a store"))?,
    };
    let (of_file, of_dir) = (Owned::of(&file)?, Owned::of(&dir)?);
    if FileType::from_raw_mode(of_file.stat.st_mode) != FileType::RegularFile {
        bail!("{CONFIG}: not a file");
    }
    let is_own = is_own(&file, &of_file)? && is_own(&dir, &of_dir)?;
    Ok(Some((file, is_own)))
}

/// True where nobody but root and the caller can have written it.
fn is_own(file: &OwnedFd, owned: &Owned) -> Result<bool> {
    Ok(caller::is_trusted(owned.stat.st_uid) && !owned.others_can_write(file, false)?)
}
