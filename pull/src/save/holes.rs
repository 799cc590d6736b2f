//! Holes of files: what an archive of a sparse file says of them.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;

use oci_layer::tar::{self, Extent};
use rt_sys::error::{Context, Result};
use rt_sys::fd;
use rustix::fs::{self, SeekFrom};
use rustix::io::Errno;

/// The pieces of a file that have data (lseek(2), SEEK_DATA and SEEK_HOLE); none where nearly all of it has. After the most
/// pieces that an archive can say, all of the rest is data.
pub(super) fn sparse_map(file: &File, metadata: &Metadata) -> Result<Option<Vec<Extent>>> {
    let size = metadata.len();
    // Of what is shorter than this an archive should not depend on the file system.
    const WORTH: u64 = 16 << 20;
    if size.saturating_sub(metadata.blocks().saturating_mul(512)) < WORTH || size > tar::SPARSE_SIZE {
        return Ok(None);
    }
    let context = || format!("look for the holes of {}", fd::shown(file));
    let mut map = Vec::new();
    let mut at = 0;
    while at < size {
        let offset = match fs::seek(file, SeekFrom::Data(at)) {
            Ok(offset) if offset < size => offset,
            // Only a hole is left.
            Ok(_) | Err(Errno::NXIO) => break,
            // The file system knows nothing of holes.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(None),
            Err(e) => return Err(e).context(context),
        };
        let end = match map.len() + 2 < tar::SPARSE_LIMIT {
            true => fs::seek(file, SeekFrom::Hole(offset)).context(context)?.min(size),
            false => size,
        };
        map.push(Extent { offset, length: end - offset });
        at = end;
    }
    let stored: u64 = map.iter().map(|extent| extent.length).sum();
    // A piece of nothing at the end says how long the file is, as GNU tar has it.
    map.push(Extent { offset: size, length: 0 });
    Ok((size - stored >= WORTH).then_some(map))
}
