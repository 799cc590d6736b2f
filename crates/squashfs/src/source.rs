//! Where the bytes of an image come from.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes that can be read anywhere by several threads at a time.
pub trait Source: Send + Sync {
    /// Fills `buffer` with what stands at `offset`.
    ///
    /// # Errors
    /// What the system says; `UnexpectedEof` where there is less.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// How many bytes there are.
    fn size(&self) -> u64;
}

/// A part of a file, such as a partition of a SIF image.
#[derive(Debug)]
pub struct FilePart {
    file: File,
    offset: u64,
    size: u64,
}

impl FilePart {
    /// The part of `file` that begins at `offset`: `size` bytes, or up to the end of the file.
    ///
    /// # Errors
    /// `UnexpectedEof` where the file is shorter.
    pub fn new(file: File, offset: u64, size: Option<u64>) -> io::Result<Self> {
        let rest = file.metadata()?.len().checked_sub(offset).ok_or(io::ErrorKind::UnexpectedEof)?;
        let size = size.unwrap_or(rest);
        if size > rest {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(FilePart { file, offset, size })
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Where the part begins in the file.
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

impl Source for FilePart {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, self.offset.saturating_add(offset))
    }

    fn size(&self) -> u64 {
        self.size
    }
}

impl Source for &[u8] {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let from = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let bytes = self.get(from..).and_then(|rest| rest.get(..buffer.len()));
        buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn size(&self) -> u64 {
        self.len() as u64
    }
}
