//! Decompression of one block into a buffer of a given size, whatever the block says.

mod lzo;

use flate2::{Decompress, FlushDecompress, Status};
use std::cell::RefCell;
use std::io::Read;

/// How an image is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// zlib.
    Gzip,
    /// LZMA with the header of lzma-utils.
    Lzma,
    /// LZO1X.
    Lzo,
    /// XZ, with a filter for machine code where the image has one.
    Xz,
    /// LZ4 without a frame.
    Lz4,
    /// Zstandard.
    Zstd,
}

/// The most that a decoder of XZ or LZMA may ask for, in KiB. Their dictionaries are no larger than a block, 1 MiB.
const LZMA_MEMORY: u32 = 4 << 10;

thread_local! {
    /// Decoders whose memory is worth keeping.
    static ZLIB: RefCell<Decompress> = RefCell::new(Decompress::new(true));
    static ZSTD: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
}

impl Compression {
    pub(crate) fn from_id(id: u16) -> Option<Self> {
        let all = [Self::Gzip, Self::Lzma, Self::Lzo, Self::Xz, Self::Lz4, Self::Zstd];
        all.get(usize::from(id).checked_sub(1)?).copied()
    }

    /// Decompresses `input` into `output` and returns how many bytes came out. More than `output` holds is an error.
    pub(crate) fn decompress(self, input: &[u8], output: &mut [u8]) -> Result<usize, String> {
        match self {
            Self::Gzip => zlib(input, output),
            Self::Lzma => {
                let reader = lzma_rust2::LzmaReader::new_mem_limit(input, LZMA_MEMORY, None);
                fill(reader.map_err(|e| e.to_string())?, output)
            }
            Self::Lzo => lzo::decompress(input, output).map_err(str::to_owned),
            Self::Xz => fill(lzma_rust2::XzReader::new_mem_limit(input, false, LZMA_MEMORY), output),
            Self::Lz4 => lz4_flex::block::decompress_into(input, output).map_err(|e| e.to_string()),
            Self::Zstd => ZSTD.with_borrow_mut(|decoder| {
                let decoder = match decoder {
                    Some(decoder) => decoder,
                    None => decoder.insert(zstd::bulk::Decompressor::new().map_err(|e| e.to_string())?),
                };
                decoder.decompress_to_buffer(input, output).map_err(|e| e.to_string())
            }),
        }
    }
}

fn zlib(input: &[u8], output: &mut [u8]) -> Result<usize, String> {
    ZLIB.with_borrow_mut(|decoder| {
        decoder.reset(true);
        match decoder.decompress(input, output, FlushDecompress::Finish) {
            Ok(Status::StreamEnd) => Ok(decoder.total_out() as usize),
            Ok(_) => Err("the stream does not end within the block".to_owned()),
            Err(e) => Err(e.to_string()),
        }
    })
}

/// Reads to the end, which has to come where `output` is full at the latest.
fn fill(mut reader: impl Read, output: &mut [u8]) -> Result<usize, String> {
    let mut full = 0;
    while full < output.len() {
        match reader.read(&mut output[full..]).map_err(|e| e.to_string())? {
            0 => return Ok(full),
            n => full += n,
        }
    }
    match reader.read(&mut [0]).map_err(|e| e.to_string())? {
        0 => Ok(full),
        _ => Err("the stream is longer than the block".to_owned()),
    }
}
