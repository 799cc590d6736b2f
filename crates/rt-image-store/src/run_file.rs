//! A program of one file: `rt-image`, `rt` and an image behind each other, and at the end where they are.
//!
//! ```text
//! rt-image          what the kernel executes
//! rt
//! zeros             up to a page
//! squashfs
//! trailer           magic, and offset and length of rt and of the squashfs
//! ```

use rt_sys::error::Result;
use std::fs::File;
use std::os::unix::fs::FileExt;

const MAGIC: &[u8; 16] = b"\x7frt-run-file\0\0\0\x01";
/// The length of the trailer.
const TRAILER: usize = MAGIC.len() + 4 * 8;
/// What the parts begin at, but for the first ones: file systems and loop devices want whole pages.
pub const PAGE: u64 = 4096;

/// A part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Where it begins.
    pub offset: u64,
    /// How long it is.
    pub size: u64,
}

/// Where the parts of a run file are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunFile {
    /// The program `rt`.
    pub runtime: Part,
    /// The squashfs.
    pub image: Part,
}

impl RunFile {
    /// The parts of a file; none where it is no run file, or where they are not within it.
    pub fn of(file: &File) -> Result<Option<RunFile>> {
        let length = file.metadata()?.len();
        let Some(end) = length.checked_sub(TRAILER as u64) else { return Ok(None) };
        let mut trailer = [0; TRAILER];
        file.read_exact_at(&mut trailer, end)?;
        Ok(RunFile::parse(&trailer, end))
    }

    /// The parts of a file that is in memory, as [`RunFile::of`] finds them.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Option<RunFile> {
        let end = bytes.len().checked_sub(TRAILER)?;
        RunFile::parse(&bytes[end..], end as u64)
    }

    fn parse(trailer: &[u8], end: u64) -> Option<RunFile> {
        let numbers = trailer.strip_prefix(MAGIC)?;
        let numbers: Vec<u64> =
            numbers.chunks_exact(8).filter_map(|n| Some(u64::from_le_bytes(n.try_into().ok()?))).collect();
        let &[a, b, c, d] = &numbers[..] else { return None };
        let (runtime, image) = (Part { offset: a, size: b }, Part { offset: c, size: d });
        let within = |part: &Part| part.offset.checked_add(part.size).is_some_and(|part_end| part_end <= end);
        [runtime, image].iter().all(within).then_some(RunFile { runtime, image })
    }

    /// What stands at the end of the file.
    pub fn trailer(&self) -> Vec<u8> {
        let numbers = [self.runtime.offset, self.runtime.size, self.image.offset, self.image.size];
        MAGIC.iter().copied().chain(numbers.into_iter().flat_map(u64::to_le_bytes)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailers_are_read_as_they_were_written() {
        let file = RunFile { runtime: Part { offset: 7, size: 3 }, image: Part { offset: 4096, size: 100 } };
        let trailer = file.trailer();
        assert_eq!(trailer.len(), TRAILER);
        assert_eq!(RunFile::parse(&trailer, 4196), Some(file));
        assert_eq!(RunFile::parse(&trailer, 4195), None);
        let endless = RunFile { image: Part { offset: 4096, size: u64::MAX }, ..file };
        assert_eq!(RunFile::parse(&endless.trailer(), 5000), None);
        assert_eq!(RunFile::parse(&[0; TRAILER], 5000), None);
    }
}
