//! An image file: where the squashfs is in it.

use crate::sif;
use rt_sys::bail;
use rt_sys::error::{Context, Error, Result};
use squashfs::{FilePart, Filesystem};
use std::fs::File;
use std::path::{Path, PathBuf};

/// A file that holds a squashfs.
#[derive(Debug)]
pub(crate) struct ImageFile {
    /// As it was named.
    pub path: PathBuf,
    /// Open for reading.
    pub file: File,
    /// The part of the file that is the squashfs.
    pub part: Part,
}

/// A part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    /// Where it begins.
    pub offset: u64,
    /// How long it is at the most.
    pub size: u64,
}

impl ImageFile {
    /// Opens `path` and finds the squashfs in it, whose superblock and root are read and checked.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let context = || format!("image {}", path.display());
        let file = File::open(path).context(context)?;
        let meta = file.metadata().context(context)?;
        if !meta.is_file() {
            bail!("image {}: not a regular file", path.display());
        }
        let whole = Part { offset: 0, size: meta.len() };
        let part = sif::partition(&file, meta.len()).context(context)?.unwrap_or(whole);
        let image = ImageFile { path: path.to_owned(), file, part };
        image.filesystem(0).context(context)?;
        Ok(image)
    }

    /// Reads the squashfs, with a cache of `cache` bytes.
    pub(crate) fn filesystem(&self, cache: usize) -> Result<Filesystem<FilePart>> {
        filesystem(self.file.try_clone()?, self.part, cache)
    }
}

/// Reads the squashfs in a part of a file.
pub(crate) fn filesystem(file: File, part: Part, cache: usize) -> Result<Filesystem<FilePart>> {
    let source = FilePart::new(file, part.offset, Some(part.size))?;
    Filesystem::open(source, cache).map_err(|e| Error::from_parts(e.to_string(), Some(e.errno())))
}
