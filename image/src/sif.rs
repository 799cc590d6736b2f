//! SIF, the image format of Apptainer and SingularityCE: finds the squashfs in a file of several parts.
//!
//! The layout is that of github.com/apptainer/sif: a header of 128 bytes, and descriptors of 585 bytes.

use rt_image_store::image_file::{SIF, SIF_AT};
use rt_image_store::run_file::Part;
use rt_sys::bail;
use rt_sys::error::{Context, Result};
use squashfs::Source;

const HEADER_SIZE: usize = 128;
const DESCRIPTOR_SIZE: usize = 585;
/// The most descriptors that are looked at. Apptainer makes room for 48.
const MOST_DESCRIPTORS: u64 = 4096;

/// `DataPartition`
const PARTITION: u32 = 0x4004;
/// `PartPrimSys`: the root file system that is run.
const PRIMARY_SYSTEM: u32 = 2;
/// `FsSquash`
const SQUASHFS: u32 = 1;

/// The primary system partition of a SIF image. `None` where the file is no SIF.
pub(crate) fn partition(file: &impl Source, size: u64) -> Result<Option<Part>> {
    let mut header = [0; HEADER_SIZE];
    if size < HEADER_SIZE as u64 {
        return Ok(None);
    }
    file.read_exact_at(&mut header, 0).context(|| "read the header")?;
    if !header[SIF_AT..].starts_with(SIF) {
        return Ok(None);
    }
    let total = number(&header, 88);
    let at = number(&header, 96);
    if total > MOST_DESCRIPTORS {
        bail!("SIF with {total} descriptors, more than {MOST_DESCRIPTORS}");
    }
    if at < HEADER_SIZE as u64 || at.saturating_add(total * DESCRIPTOR_SIZE as u64) > size {
        bail!("SIF whose descriptors are not within the file");
    }
    let mut descriptors = vec![0; total as usize * DESCRIPTOR_SIZE];
    file.read_exact_at(&mut descriptors, at).context(|| "read the descriptors")?;
    let primary = descriptors.chunks_exact(DESCRIPTOR_SIZE).find(|descriptor| {
        // Type, whether it is in use, and what kind of partition it is.
        word(descriptor, 0) == PARTITION && descriptor[4] != 0 && word(descriptor, 205) == PRIMARY_SYSTEM
    });
    let Some(descriptor) = primary else { bail!("SIF without a primary system partition") };
    match word(descriptor, 201) {
        SQUASHFS => {}
        2 => bail!("SIF with an ext3 file system; only squashfs can be mounted without root"),
        4 => bail!("SIF with a raw partition; only squashfs can be mounted without root"),
        5 | 6 => bail!("SIF with an encrypted file system, which needs Apptainer and its key"),
        other => bail!("SIF with a file system of type {other}, which is not known"),
    }
    let part = Part { offset: number(descriptor, 17), size: number(descriptor, 25) };
    if part.offset.saturating_add(part.size) > size {
        bail!("SIF whose primary partition is not within the file: it is cut off");
    }
    Ok(Some(part))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn number(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
}
