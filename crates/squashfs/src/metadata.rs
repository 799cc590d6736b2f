//! Metadata: tables of inodes, directories, fragments, ids and attributes, in compressed blocks of 8 KiB.

use crate::cache::Cost;
use crate::error::{Error, Result};
use crate::filesystem::Filesystem;
use crate::source::Source;
use std::sync::Arc;

/// The length of a block, decompressed. Only the last one of a table is shorter.
pub(crate) const METADATA_SIZE: usize = 8192;
/// The bit of a block's header that says that it is stored as it is.
const STORED: u16 = 0x8000;

/// A decompressed block.
#[derive(Debug)]
pub(crate) struct MetadataBlock {
    bytes: Box<[u8]>,
    /// Where the next block begins.
    next: u64,
}

impl Cost for MetadataBlock {
    fn cost(&self) -> usize {
        // With what the cache itself needs for an entry.
        self.bytes.len() + 128
    }
}

impl MetadataBlock {
    /// Reads the block at `at`, in a table that ends at `end`.
    pub(crate) fn read<S: Source>(fs: &Filesystem<S>, what: &'static str, at: u64, end: u64) -> Result<Self> {
        let mut raw = [0u8; 2 + METADATA_SIZE];
        // Its length stands in front of it. To read the most that it can have spares a second call.
        let room = end.saturating_sub(at).min(raw.len() as u64) as usize;
        let raw = &mut raw[..room];
        if room < 2 {
            return Err(Error::damaged(what, at, "a block begins behind the end of its table"));
        }
        fs.source().read_exact_at(raw, at).map_err(|e| Error::io(what, at, &e))?;
        let header = u16::from_le_bytes([raw[0], raw[1]]);
        let size = usize::from(header & !STORED);
        if size == 0 || size > METADATA_SIZE {
            return Err(Error::damaged(what, at, format!("a block of {size} bytes")));
        }
        let stored = raw.get(2..2 + size);
        let stored = stored.ok_or_else(|| Error::damaged(what, at, "a block goes beyond its table"))?;
        let next = at + 2 + size as u64;
        if header & STORED != 0 {
            return Ok(MetadataBlock { bytes: stored.into(), next });
        }
        let mut plain = [0u8; METADATA_SIZE];
        let length = fs.superblock().compression.decompress(stored, &mut plain);
        match length.map_err(|e| Error::damaged(what, at, e))? {
            0 => Err(Error::damaged(what, at, "an empty block")),
            length => Ok(MetadataBlock { bytes: plain[..length].into(), next }),
        }
    }
}

/// A place in a table, from which values are read one after the other, over the ends of blocks.
pub(crate) struct Cursor<'a, S> {
    fs: &'a Filesystem<S>,
    /// What is read, for errors.
    what: &'static str,
    /// Where the table ends.
    end: u64,
    /// Where `block` begins.
    at: u64,
    block: Arc<MetadataBlock>,
    offset: usize,
}

/// A place that a cursor can go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Place {
    /// Where the block begins in the image.
    pub block: u64,
    /// Where in the decompressed block.
    pub offset: usize,
}

impl<'a, S: Source> Cursor<'a, S> {
    /// A cursor in a table that ends at `end`.
    pub(crate) fn new(fs: &'a Filesystem<S>, what: &'static str, place: Place, end: u64) -> Result<Self> {
        let block = fs.metadata_block(what, place.block, end)?;
        if place.offset > METADATA_SIZE {
            return Err(Error::damaged(what, place.block, format!("offset {} in a block", place.offset)));
        }
        Ok(Cursor { fs, what, end, at: place.block, block, offset: place.offset })
    }

    /// Where it is.
    pub(crate) fn place(&self) -> Place {
        Place { block: self.at, offset: self.offset }
    }

    /// An error about what stands here.
    pub(crate) fn damaged(&self, why: impl Into<std::borrow::Cow<'static, str>>) -> Error {
        Error::damaged(self.what, self.at, why)
    }

    /// What is left of this block, which is never nothing.
    fn rest(&mut self) -> Result<&[u8]> {
        while self.offset >= self.block.bytes.len() {
            // A block that is shorter than the others is the last one of its table, and what is behind its end is not there.
            if self.block.bytes.len() < METADATA_SIZE {
                return Err(self.damaged("the table ends here"));
            }
            self.offset -= self.block.bytes.len();
            self.at = self.block.next;
            self.block = self.fs.metadata_block(self.what, self.at, self.end)?;
        }
        Ok(&self.block.bytes[self.offset..])
    }

    /// Fills `buffer`.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Result<()> {
        let mut full = 0;
        while full < buffer.len() {
            let rest = self.rest()?;
            let n = rest.len().min(buffer.len() - full);
            buffer[full..full + n].copy_from_slice(&rest[..n]);
            self.offset += n;
            full += n;
        }
        Ok(())
    }

    /// Goes `count` bytes further.
    pub(crate) fn skip(&mut self, count: u64) -> Result<()> {
        let mut left = count;
        while left > 0 {
            let n = (self.rest()?.len() as u64).min(left);
            self.offset += n as usize;
            left -= n;
        }
        Ok(())
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.read(&mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }
}
