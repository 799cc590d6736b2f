//! An image file: where the squashfs is in it.

use crate::sif;
use rt_image_store::run_file::{Part, RunFile};
use rt_sys::error::{Error, Result};
use squashfs::{FilePart, Filesystem, Source};
use std::fs::File;

/// An image that is open.
pub(crate) type Opened = Filesystem<FilePart>;

/// Finds the squashfs in a file.
pub(crate) fn part(file: &File) -> Result<Part> {
    let whole = FilePart::new(file.try_clone()?, 0, None)?;
    let size = whole.size();
    if let Some(parts) = RunFile::of(file)? {
        return Ok(parts.image);
    }
    Ok(sif::partition(&whole, size)?.unwrap_or(Part { offset: 0, size }))
}

/// Reads the squashfs in a part of a file, with a cache of `cache` bytes.
pub(crate) fn filesystem(file: File, part: Part, cache: usize) -> Result<Opened> {
    let source = FilePart::new(file, part.offset, Some(part.size))?;
    Filesystem::open(source, cache).map_err(of_image)
}

/// What the reader says of an image, as an error of ours.
pub(crate) fn of_image(e: squashfs::Error) -> Error {
    Error::from_parts(e.to_string(), Some(e.errno()))
}
