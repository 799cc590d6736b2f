//! What the files of an image were when it was whole. A damaged image is refused before criu reads it: criu would wait for ever
//! for memory that is missing, and restore another program from numbers that are wrong.
//!
//! It tells an accident, as a node that died or a copy that was cut. Whoever owns an image can change this record, too.

use super::image::Image;
use super::manifest;
use rt_spec::host_files;
use rt_sys::error::{Context, Result};
use rt_sys::{bail, fd, look};
use rustix::fd::OwnedFd;
use rustix::fs::{self, FileType, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// Up to how many bytes a file is compared as a whole. What is longer is memory of the program, which takes as long to read as
/// to restore.
const WHOLE: usize = 1 << 20;

/// A file of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Part {
    /// Its name in the directory.
    name: String,
    /// How many bytes it has.
    size: u64,
    /// The hash of the content of a file that is not longer than [`WHOLE`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hash: Option<u64>,
}

impl Part {
    /// Looks at a file of `image`; `None` for what is no file.
    fn of(image: &Image, name: &str) -> Result<Option<Part>> {
        let shown = || format!("read {}/{name}", image.path.display());
        let file = open(image, name).context(shown)?;
        let stat = fd::stat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(None);
        }
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let text = fd::read_regular(&file, WHOLE).context(shown)?;
        let hash = text.map(|text| host_files::hash(&text));
        Ok(Some(Part { name: name.to_owned(), size, hash }))
    }
}

/// The files of `image`, which is complete but for its manifest. What criu says about its work is none of it.
pub(super) fn of(image: &Image) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    for name in look::names(&image.dir).context(|| format!("list {}", image.path.display()))? {
        // criu's names are ASCII.
        let Ok(name) = String::from_utf8(name) else { continue };
        if name.ends_with(".img") {
            parts.extend(Part::of(image, &name)?);
        }
    }
    parts.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(parts)
}

/// Fails where a file of `image` is not as `parts` has it.
pub(super) fn check(image: &Image, parts: &[Part]) -> Result<()> {
    for part in parts {
        let (shown, name) = (format!("image {} is damaged", image.path.display()), &part.name);
        if !name.ends_with(".img") || name.contains('/') {
            bail!("{}/{}: {name:?} is no file of an image", image.path.display(), manifest::NAME);
        }
        match Part::of(image, name) {
            Ok(Some(found)) if found == *part => {}
            Ok(Some(found)) if found.size != part.size => {
                bail!("{shown}: {name} has {} bytes, and had {}", found.size, part.size)
            }
            Ok(Some(_)) => bail!("{shown}: {name} has another content than at the checkpoint"),
            Ok(None) => bail!("{shown}: {name} is no file"),
            Err(e) if e.is(libc::ENOENT) => bail!("{shown}: {name} is missing"),
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn open(image: &Image, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    fs::openat(&image.dir, name, flags, Mode::empty())
}
