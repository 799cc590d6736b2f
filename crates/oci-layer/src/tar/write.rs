//! Writing an archive: ustar, with a pax header before an entry where ustar cannot say it.

use std::io::{self, Write};

use super::{BLOCK, EntryKind, Header};

/// The first number that the eleven octal digits of a field have no room for.
const TOO_LARGE: u64 = 1 << 33;

/// The largest id that the seven octal digits of a field have room for.
const LARGEST_ID: u64 = 0o7777777;

/// Writes one entry's header, with a pax header before it where ustar cannot say it. The caller writes
/// [`stored`](Header::stored) bytes of data after it, of a sparse file one piece after the other, then [`pad`]s them.
///
/// A sparse file is as GNU tar writes it in its pax format 1.0: the map of its pieces stands before them.
pub fn write_header(out: &mut impl Write, header: &Header) -> io::Result<()> {
    let Some(map) = &header.sparse else { return write_plain(out, header, &[]) };
    let lines = map.iter().map(|extent| format!("{}\n{}\n", extent.offset, extent.length));
    let mut text: Vec<u8> = format!("{}\n{}", map.len(), lines.collect::<String>()).into_bytes();
    text.resize(text.len().next_multiple_of(BLOCK), 0);
    let size = header.size.to_string();
    let records: [(&str, &[u8]); 4] = [
        ("GNU.sparse.major", b"1"),
        ("GNU.sparse.minor", b"0"),
        ("GNU.sparse.name", &header.path),
        ("GNU.sparse.realsize", size.as_bytes()),
    ];
    // Who knows nothing of such files makes one of this name, and not a wrong one of the right name.
    let name = header.path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let path = [b"GNUSparseFile.0/", &name[..name.len().min(80)]].concat();
    let stored = text.len() as u64 + header.stored();
    write_plain(out, &Header { path, size: stored, sparse: None, ..header.clone() }, &records)?;
    out.write_all(&text)
}

/// Writes the header of what is no sparse file; `records` come into its pax header.
fn write_plain(out: &mut impl Write, header: &Header, records: &[(&str, &[u8])]) -> io::Result<()> {
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
    records.iter().for_each(|(key, value)| record(key, value));
    if header.path.len() > 100 || !header.path.is_ascii() {
        record("path", &header.path);
    }
    if header.link.len() > 100 || !header.link.is_ascii() {
        record("linkpath", &header.link);
    }
    if header.size >= TOO_LARGE {
        record("size", header.size.to_string().as_bytes());
    }
    for (key, id) in [("uid", header.uid), ("gid", header.gid)] {
        if id > LARGEST_ID {
            record(key, id.to_string().as_bytes());
        }
    }
    if header.mtime.0 < 0 || header.mtime.0 >= TOO_LARGE as i64 {
        record("mtime", header.mtime.0.to_string().as_bytes());
    }
    for (name, value) in &header.xattrs {
        record(&format!("SCHILY.xattr.{}", String::from_utf8_lossy(name)), value);
    }
    if !pax.is_empty() {
        let size = pax.len() as u64;
        let kind = EntryKind::Other(b'x');
        let head = Header { size, ..Header::new(b"PaxHeaders.0/entry".to_vec(), kind, 0o644) };
        out.write_all(&ustar_block(&head))?;
        out.write_all(&pax)?;
        pad(out, pax.len() as u64)?;
    }
    out.write_all(&ustar_block(header))
}

/// Fills the block after `size` bytes of data.
pub fn pad(out: &mut impl Write, size: u64) -> io::Result<()> {
    out.write_all(&[0; BLOCK][..(size.wrapping_neg() % BLOCK as u64) as usize])
}

/// Ends the archive.
pub fn write_end(out: &mut impl Write) -> io::Result<()> {
    out.write_all(&[0; 2 * BLOCK])
}

/// The block of a header (ustar in pax(1)), names and numbers cut to what it has room for.
pub(super) fn ustar_block(header: &Header) -> [u8; BLOCK] {
    let flag = match header.kind {
        EntryKind::File => b'0',
        EntryKind::Hardlink => b'1',
        EntryKind::Symlink => b'2',
        EntryKind::Character => b'3',
        EntryKind::Block => b'4',
        EntryKind::Directory => b'5',
        EntryKind::Fifo => b'6',
        EntryKind::Other(flag) => flag,
    };
    // What is larger stands in the pax header.
    let size = if header.size < TOO_LARGE { header.size } else { 0 };
    let mtime = u64::try_from(header.mtime.0).ok().filter(|&time| time < TOO_LARGE).unwrap_or(0);
    let mut block = [0; BLOCK];
    let mut text = |at: usize, most: usize, value: &[u8]| {
        let n = value.len().min(most);
        block[at..at + n].copy_from_slice(&value[..n]);
    };
    text(0, 100, &header.path);
    text(100, 7, format!("{:07o}", header.mode & 0o7777).as_bytes());
    text(108, 7, format!("{:07o}", header.uid.min(LARGEST_ID)).as_bytes());
    text(116, 7, format!("{:07o}", header.gid.min(LARGEST_ID)).as_bytes());
    text(124, 11, format!("{size:011o}").as_bytes());
    text(136, 11, format!("{mtime:011o}").as_bytes());
    // The checksum is taken with blanks in its place.
    text(148, 8, b"        ");
    text(156, 1, &[flag]);
    text(157, 100, &header.link);
    text(257, 8, b"ustar\x0000");
    for (at, number) in [(329, header.device.0), (337, header.device.1)] {
        text(at, 7, format!("{:07o}", number.min(0o7777777)).as_bytes());
    }
    let sum: u32 = block.iter().map(|&b| u32::from(b)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}
