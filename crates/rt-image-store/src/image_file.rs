//! What kind of image a file begins as. What the image is worth is for `rt-image` to see.

use crate::run_file::RunFile;
use rt_sys::error::Result;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The first bytes of a squashfs.
const SQUASHFS: &[u8] = b"hsqs";
/// What stands in a SIF image, behind the line that executes it, and where.
pub const SIF: &[u8] = b"SIF_MAGIC\0";
/// See [`SIF`].
pub const SIF_AT: usize = 32;

/// An image that is one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageKind {
    /// A squashfs.
    Squashfs,
    /// Apptainer's.
    Sif,
    /// A program of one file, with a squashfs in it.
    Program,
}

impl ImageKind {
    /// What `file` is; `None` for all else.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn of(file: &File) -> Result<Option<ImageKind>> {
        let mut begin = [0; SIF_AT + SIF.len()];
        let read = file.read_at(&mut begin, 0)?;
        let begin = &begin[..read];
        Ok(match begin {
            _ if begin.starts_with(SQUASHFS) => Some(ImageKind::Squashfs),
            _ if begin.get(SIF_AT..) == Some(SIF) => Some(ImageKind::Sif),
            _ => RunFile::of(file)?.map(|_| ImageKind::Program),
        })
    }
}
