//! The compressors of the format.

use std::io::{self, Write};

/// How an image is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Nothing is compressed: largest, and fastest to read.
    None,
    /// zlib, which every reader knows, at this level (1 to 9).
    Gzip(u32),
    /// lz4: fast to read and to write.
    Lz4,
    /// Zstandard at this level (1 to 22).
    Zstd(i32),
}

/// zlib's level that a reader assumes where the image does not say another.
const GZIP_DEFAULT: u32 = 9;

impl Compression {
    /// The number in the superblock. An image without compression has to name one too: that which all readers have.
    pub(crate) fn id(self) -> u16 {
        match self {
            Compression::None | Compression::Gzip(_) => 1,
            Compression::Lz4 => 5,
            Compression::Zstd(_) => 6,
        }
    }

    /// The options that stand behind the superblock, where the format wants or allows them.
    pub(crate) fn options(self) -> Option<Vec<u8>> {
        match self {
            Compression::None | Compression::Gzip(GZIP_DEFAULT) => None,
            Compression::Gzip(level) => {
                // Level, window of 2^15 bytes, the default strategy.
                Some([&level.to_le_bytes()[..], &15u16.to_le_bytes(), &0u16.to_le_bytes()].concat())
            }
            // Version 1, not the slow encoder.
            Compression::Lz4 => Some([1u32.to_le_bytes(), 0u32.to_le_bytes()].concat()),
            Compression::Zstd(level) => Some(level.to_le_bytes().to_vec()),
        }
    }
}

/// Compresses blocks; each thread has its own, since the state of zstd is large.
pub(crate) enum Compressor {
    None,
    Gzip(u32),
    Lz4,
    Zstd(Box<zstd::bulk::Compressor<'static>>),
}

impl Compressor {
    pub(crate) fn new(compression: Compression) -> io::Result<Compressor> {
        Ok(match compression {
            Compression::None => Compressor::None,
            Compression::Gzip(level) => Compressor::Gzip(level),
            Compression::Lz4 => Compressor::Lz4,
            Compression::Zstd(level) => Compressor::Zstd(Box::new(zstd::bulk::Compressor::new(level)?)),
        })
    }

    /// The compressed block, or nothing where it would not be smaller: then it is stored as it is.
    pub(crate) fn compress(&mut self, block: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let compressed = match self {
            Compressor::None => return Ok(None),
            Compressor::Gzip(level) => {
                let mut encoder = flate2::write::ZlibEncoder::new(
                    Vec::with_capacity(block.len() / 2),
                    flate2::Compression::new(*level),
                );
                encoder.write_all(block)?;
                encoder.finish()?
            }
            Compressor::Lz4 => lz4_flex::block::compress(block),
            Compressor::Zstd(encoder) => encoder.compress(block)?,
        };
        Ok((compressed.len() < block.len()).then_some(compressed))
    }
}
