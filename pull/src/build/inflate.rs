//! What compresses an archive that a build unpacks: what a layer may be compressed with, and xz.

use std::io::{self, BufRead, ErrorKind, Read};

use lzma_rust2::XzReader;

use oci_layer::decode;
use rt_sys::err;
use rt_sys::error::{Error, Result};

/// What a stream of xz begins with.
const XZ: &[u8] = b"\xfd7zXZ\0";
/// The most memory that one may ask for, in KiB: four times what `xz -9` makes.
const XZ_MEMORY: u32 = 256 << 10;

/// The plain bytes of `source`.
pub(super) fn plain<'a>(mut source: impl BufRead + Send + 'a) -> Result<Box<dyn Read + Send + 'a>> {
    if source.fill_buf()?.starts_with(XZ) {
        return Ok(Box::new(XzReader::new_mem_limit(source, true, XZ_MEMORY)));
    }
    decode::plain(source).map_err(|_| {
        err!("an archive of bzip2, which is not unpacked").hint("gzip, xz, zstd and plain tar are unpacked")
    })
}

/// Why a stream cannot be an archive for want of memory; any other stream of which no head can be read is a file as any other.
pub(super) fn wants_memory(e: &io::Error) -> Option<Error> {
    (e.kind() == ErrorKind::OutOfMemory)
        .then(|| err!("an archive of xz that wants more than {} MiB of memory", XZ_MEMORY >> 10))
}
