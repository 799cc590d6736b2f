//! Writing an archive: ustar, with a pax header before an entry where ustar cannot say it.

use std::io::{self, Write};

use super::{BLOCK, EntryKind, Header};

/// Writes one entry's header, with a pax header before it where ustar cannot say it. The caller
/// writes `entry.size` bytes of data after it, then [`pad`]s them.
pub fn write_header(out: &mut impl Write, entry: &Header) -> io::Result<()> {
    let mut pax = Vec::new();
    let mut record = |key: &str, value: &[u8]| {
        // The length counts its own digits.
        let rest = key.len() + value.len() + 3;
        let mut length = rest + 1;
        while length != rest + length.to_string().len() {
            length = rest + length.to_string().len();
        }
        pax.extend_from_slice(format!("{length} {key}=").as_bytes());
        pax.extend_from_slice(value);
        pax.push(b'\n');
    };
    if entry.path.len() > 100 || !entry.path.is_ascii() {
        record("path", &entry.path);
    }
    if entry.link.len() > 100 || !entry.link.is_ascii() {
        record("linkpath", &entry.link);
    }
    if entry.size >= 1 << 33 {
        record("size", entry.size.to_string().as_bytes());
    }
    if entry.mtime.0 < 0 || entry.mtime.0 >= 1 << 33 {
        record("mtime", entry.mtime.0.to_string().as_bytes());
    }
    for (name, value) in &entry.xattrs {
        record(&format!("SCHILY.xattr.{}", String::from_utf8_lossy(name)), value);
    }
    if !pax.is_empty() {
        let head = raw_header(b"PaxHeaders.0/entry", b"", b'x', 0o644, (0, 0), pax.len() as u64, 0);
        out.write_all(&head)?;
        out.write_all(&pax)?;
        pad(out, pax.len() as u64)?;
    }
    let flag = match entry.kind {
        EntryKind::File => b'0',
        EntryKind::Hardlink => b'1',
        EntryKind::Symlink => b'2',
        EntryKind::Character => b'3',
        EntryKind::Block => b'4',
        EntryKind::Directory => b'5',
        EntryKind::Fifo => b'6',
        EntryKind::Other(flag) => flag,
    };
    let size = if entry.size >= 1 << 33 { 0 } else { entry.size };
    let mtime = u64::try_from(entry.mtime.0).ok().filter(|&t| t < 1 << 33).unwrap_or(0);
    out.write_all(&raw_header(
        &entry.path,
        &entry.link,
        flag,
        entry.mode,
        (entry.uid, entry.gid),
        size,
        mtime,
    ))
}

/// Fills the block after `size` bytes of data.
pub fn pad(out: &mut impl Write, size: u64) -> io::Result<()> {
    out.write_all(&[0; BLOCK][..(size.wrapping_neg() % BLOCK as u64) as usize])
}

/// Ends the archive.
pub fn write_end(out: &mut impl Write) -> io::Result<()> {
    out.write_all(&[0; 2 * BLOCK])
}

pub(super) fn raw_header(
    path: &[u8],
    link: &[u8],
    flag: u8,
    mode: u32,
    owner: (u64, u64),
    size: u64,
    mtime: u64,
) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut text = |at: usize, most: usize, value: &[u8]| {
        let n = value.len().min(most);
        block[at..at + n].copy_from_slice(&value[..n]);
    };
    text(0, 100, path);
    text(100, 7, format!("{:07o}", mode & 0o7777).as_bytes());
    text(108, 7, format!("{:07o}", owner.0.min(0o7777777)).as_bytes());
    text(116, 7, format!("{:07o}", owner.1.min(0o7777777)).as_bytes());
    text(124, 11, format!("{size:011o}").as_bytes());
    text(136, 11, format!("{mtime:011o}").as_bytes());
    text(148, 8, b"        ");
    text(156, 1, &[flag]);
    text(157, 100, link);
    text(257, 8, b"ustar\x0000");
    let sum: u32 = block.iter().map(|&b| u32::from(b)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}
