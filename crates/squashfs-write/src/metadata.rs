//! Metadata blocks: inodes, directories and tables, in compressed pieces of 8 KiB.

use crate::compress::Compressor;
use std::io;

/// What a metadata block holds at most, before compression.
pub(crate) const METADATA_SIZE: usize = 8192;
/// Set in the length of a metadata block that is stored as it is.
const STORED: u16 = 1 << 15;

/// A place in a row of metadata blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Place {
    /// Where the block begins, from the first one.
    pub block: u64,
    /// The place in the block, before compression.
    pub offset: u16,
}

impl Place {
    /// As inodes and extended attributes are referred to.
    pub(crate) fn reference(self) -> u64 {
        self.block << 16 | u64::from(self.offset)
    }
}

/// A row of metadata blocks in memory.
pub(crate) struct MetadataRow<'a> {
    compressor: &'a mut Compressor,
    block: Vec<u8>,
    bytes: Vec<u8>,
    /// Where each block begins.
    pub starts: Vec<u64>,
}

impl<'a> MetadataRow<'a> {
    pub(crate) fn new(compressor: &'a mut Compressor) -> MetadataRow<'a> {
        MetadataRow {
            compressor,
            block: Vec::with_capacity(METADATA_SIZE),
            bytes: Vec::new(),
            starts: Vec::new(),
        }
    }

    /// Where the next byte goes.
    pub(crate) fn place(&self) -> Place {
        Place { block: self.bytes.len() as u64, offset: self.block.len() as u16 }
    }

    pub(crate) fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let (now, rest) = bytes.split_at(bytes.len().min(METADATA_SIZE - self.block.len()));
            self.block.extend_from_slice(now);
            bytes = rest;
            if self.block.len() == METADATA_SIZE {
                self.end_block()?;
            }
        }
        Ok(())
    }

    fn end_block(&mut self) -> io::Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        self.starts.push(self.bytes.len() as u64);
        append_block(&mut self.bytes, &self.block, self.compressor.compress(&self.block)?);
        self.block.clear();
        Ok(())
    }

    /// The blocks as they are written, and where each begins.
    pub(crate) fn finish(mut self) -> io::Result<(Vec<u8>, Vec<u64>)> {
        self.end_block()?;
        Ok((self.bytes, self.starts))
    }
}

/// A block behind its length.
pub(crate) fn append_block(out: &mut Vec<u8>, plain: &[u8], compressed: Option<Vec<u8>>) {
    match compressed {
        Some(bytes) => {
            out.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
            out.extend_from_slice(&bytes);
        }
        None => {
            out.extend_from_slice(&(plain.len() as u16 | STORED).to_le_bytes());
            out.extend_from_slice(plain);
        }
    }
}
