//! A tar reader and writer for layers: POSIX ustar and pax, GNU's long names and sparse files.
//!
//! Own code, because the data of an entry is handed out as slices of the inflated pieces (no copy
//! between inflate and write), pax sparse files and `SCHILY.xattr` are needed, and every length of
//! a hostile header is bounded. Pure: it reads bytes and opens nothing. Format: pax(1) of POSIX
//! and "Basic Tar Format" of the GNU tar manual.

use std::io::{self, BufRead, Read, Write};

/// The block of the format.
const BLOCK: usize = 512;
/// Names and pax headers are not longer (Go's reader has the same limit).
const META_LIMIT: u64 = 1 << 20;
/// Pieces of one sparse file at most.
const SPARSE_LIMIT: usize = 1 << 17;
/// A sparse file is not longer: /var/log/lastlog has 1.3 TB where the largest user number has logged in.
const SPARSE_SIZE: u64 = 4 << 40;
/// Extended attributes of an entry at most: the kernel lists 64 KiB of names.
const XATTR_LIMIT: usize = 1024;
/// What follows the end of an archive is not longer. Writers pad to 10 KiB, or to the blocks of a tape.
const TRAILER_LIMIT: usize = 64 << 20;

/// What an entry makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A file with data.
    File,
    /// A second name.
    Hardlink,
    /// A symbolic link.
    Symlink,
    /// A character device.
    Character,
    /// A block device.
    Block,
    /// A directory.
    Directory,
    /// A FIFO.
    Fifo,
    /// A type that no layer needs, by its flag.
    Other(u8),
}

/// A part of a sparse file that has data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Where in the file.
    pub offset: u64,
    /// How many bytes.
    pub length: u64,
}

/// One entry, its data still in the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name as it is in the archive.
    pub path: Vec<u8>,
    /// Target of a link.
    pub link: Vec<u8>,
    /// What it makes.
    pub kind: Kind,
    /// Permission bits, with setuid, setgid and sticky.
    pub mode: u32,
    /// Owner.
    pub uid: u64,
    /// Group.
    pub gid: u64,
    /// Size of the file.
    pub size: u64,
    /// Modification time, seconds and nanoseconds.
    pub mtime: (i64, u32),
    /// Extended attributes, name and value.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Where the data of a sparse file go; all of it in one piece otherwise.
    pub sparse: Option<Vec<Extent>>,
}

impl Entry {
    /// Bytes of data that the archive has of the file: less than its size where it has holes.
    pub fn stored(&self) -> u64 {
        self.sparse.as_ref().map_or(self.size, |map| map.iter().map(|extent| extent.length).sum())
    }
}

/// Reads entries one after the other.
pub struct Reader<R> {
    inner: R,
    data: u64,
    padding: u64,
}

fn bad(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("tar: {}", why.into()))
}

/// What pax and GNU headers before an entry say about it.
#[derive(Default)]
struct Pending {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    mtime: Option<(i64, u32)>,
    uid: Option<u64>,
    gid: Option<u64>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    sparse_major: Option<u64>,
    sparse_name: Option<Vec<u8>>,
    sparse_size: Option<u64>,
    sparse_map: Option<Vec<Extent>>,
    sparse_offset: Option<u64>,
}

impl<R: BufRead> Reader<R> {
    /// A reader at the start of an archive.
    pub fn new(inner: R) -> Reader<R> {
        Reader { inner, data: 0, padding: 0 }
    }

    /// The next entry; data of the last that was not read is skipped.
    ///
    /// # Errors
    /// A header that is damaged, cut or beyond the limits.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> io::Result<Option<Entry>> {
        let mut pending = Pending::default();
        let mut meta = 0u64;
        loop {
            self.skip_data()?;
            let Some(block) = self.block()? else {
                return if meta == 0 { Ok(None) } else { Err(bad("it ends after an extended header")) };
            };
            if block.iter().all(|&b| b == 0) {
                return if meta == 0 { Ok(None) } else { Err(bad("it ends after an extended header")) };
            }
            check_sum(&block)?;
            let flag = block[156];
            if !matches!(flag, b'x' | b'g' | b'L' | b'K') {
                return self.entry(&block, flag, pending).map(Some);
            }
            let size = number(&block[124..136])?;
            meta = meta.saturating_add(size).saturating_add(BLOCK as u64);
            if meta > META_LIMIT {
                return Err(bad("extended headers longer than 1 MiB"));
            }
            let text = self.meta(size)?;
            match flag {
                b'x' => pending.pax(&text)?,
                b'L' => pending.path = Some(until_nul(&text).to_vec()),
                b'K' => pending.link = Some(until_nul(&text).to_vec()),
                // Global headers carry comments (git archive); Docker and umoci ignore them too.
                _ => {}
            }
        }
    }

    /// The next piece of the entry's data; empty at its end. [`consume`](Self::consume) takes it.
    pub fn piece(&mut self) -> io::Result<&[u8]> {
        if self.data == 0 {
            return Ok(&[]);
        }
        let piece = self.inner.fill_buf()?;
        if piece.is_empty() {
            return Err(bad("it ends in the middle of a file"));
        }
        let most = usize::try_from(self.data).unwrap_or(usize::MAX).min(piece.len());
        Ok(&piece[..most])
    }

    /// Takes `amount` bytes of the piece.
    pub fn consume(&mut self, amount: usize) {
        self.inner.consume(amount);
        self.data -= amount as u64;
    }

    /// Reads what follows the last entry, so that the decoder sees its end and checks its sums.
    ///
    /// # Errors
    /// More than any writer appends.
    pub fn drain(&mut self) -> io::Result<()> {
        let mut drained = 0;
        while drained <= TRAILER_LIMIT {
            let n = self.inner.fill_buf()?.len();
            if n == 0 {
                return Ok(());
            }
            self.inner.consume(n);
            drained += n;
        }
        Err(bad("more than 64 MiB behind its end"))
    }

    /// Where the bytes come from.
    pub fn get_ref(&self) -> &R {
        &self.inner
    }

    fn entry(&mut self, block: &[u8; BLOCK], flag: u8, mut pending: Pending) -> io::Result<Entry> {
        let mut path = match pending.path.take() {
            Some(path) => path,
            None => header_name(block),
        };
        let link = pending.link.take().unwrap_or_else(|| until_nul(&block[157..257]).to_vec());
        let kind = match flag {
            0 | b'0' | b'7' | b'S' if path.ends_with(b"/") => Kind::Directory,
            0 | b'0' | b'7' | b'S' => Kind::File,
            b'1' => Kind::Hardlink,
            b'2' => Kind::Symlink,
            b'3' => Kind::Character,
            b'4' => Kind::Block,
            b'5' => Kind::Directory,
            b'6' => Kind::Fifo,
            other => Kind::Other(other),
        };
        let stored = match pending.size {
            Some(size) => size,
            None => number(&block[124..136])?,
        };
        // Of these types only the header is in the archive, whatever size they claim.
        let stored = match kind {
            Kind::File | Kind::Other(_) => stored,
            _ => 0,
        };
        if stored > i64::MAX as u64 {
            return Err(bad("a file larger than 2^63 bytes"));
        }
        self.data = stored;
        self.padding = stored.wrapping_neg() % BLOCK as u64;
        let mut size = stored;
        let mut sparse = None;
        if flag == b'S' {
            size = number(&block[483..495])?;
            sparse = Some(self.gnu_sparse(block)?);
        } else if pending.sparse_major == Some(1) {
            size = pending.sparse_size.ok_or_else(|| bad("sparse file without size"))?;
            sparse = Some(self.pax_sparse()?);
        } else if let Some(map) = pending.sparse_map.take() {
            size = pending.sparse_size.ok_or_else(|| bad("sparse file without size"))?;
            sparse = Some(map);
        }
        if let Some(map) = &sparse {
            check_map(map, size, self.data)?;
        }
        if let Some(name) = pending.sparse_name {
            path = name;
        }
        let clean = |bytes: &[u8]| if bytes.contains(&0) { Err(bad("a name with a NUL")) } else { Ok(()) };
        clean(&path)?;
        clean(&link)?;
        Ok(Entry {
            path,
            link,
            kind,
            mode: (number(&block[100..108]).unwrap_or(0) & 0o7777) as u32,
            uid: pending.uid.map_or_else(|| number(&block[108..116]), Ok).unwrap_or(0),
            gid: pending.gid.map_or_else(|| number(&block[116..124]), Ok).unwrap_or(0),
            size,
            mtime: pending.mtime.unwrap_or((signed_number(&block[136..148]).unwrap_or(0), 0)),
            xattrs: pending.xattrs,
            sparse,
        })
    }

    /// The map of GNU's old sparse format: four pieces in the header, 21 in each block after it.
    fn gnu_sparse(&mut self, block: &[u8; BLOCK]) -> io::Result<Vec<Extent>> {
        let mut map = Vec::new();
        let take = |bytes: &[u8], map: &mut Vec<Extent>| -> io::Result<()> {
            for pair in bytes.chunks_exact(24) {
                if pair[0] == 0 || pair[12] == 0 {
                    break;
                }
                map.push(Extent { offset: number(&pair[..12])?, length: number(&pair[12..])? });
                if map.len() > SPARSE_LIMIT {
                    return Err(bad("a sparse file of too many pieces"));
                }
            }
            Ok(())
        };
        take(&block[386..482], &mut map)?;
        let mut more = block[482] != 0;
        while more {
            let next = self.block()?.ok_or_else(|| bad("it ends in a sparse map"))?;
            let known = map.len();
            take(&next[..504], &mut map)?;
            if map.len() == known {
                return Err(bad("a sparse map that goes on with nothing"));
            }
            more = next[504] != 0;
        }
        Ok(map)
    }

    /// The map of pax sparse format 1.0: decimal lines at the start of the data, padded to a block.
    fn pax_sparse(&mut self) -> io::Result<Vec<Extent>> {
        let mut taken = 0u64;
        let mut line = |reader: &mut Self| -> io::Result<u64> {
            let mut value = 0u64;
            let mut digits = 0;
            loop {
                let byte = *reader.piece()?.first().ok_or_else(|| bad("it ends in a sparse map"))?;
                reader.consume(1);
                taken += 1;
                match byte {
                    b'\n' if digits > 0 => return Ok(value),
                    b'0'..=b'9' if digits < 19 => {
                        value = value * 10 + u64::from(byte - b'0');
                        digits += 1;
                    }
                    _ => return Err(bad("a damaged sparse map")),
                }
            }
        };
        let count = line(self)?;
        if count > SPARSE_LIMIT as u64 {
            return Err(bad("a sparse file of too many pieces"));
        }
        let mut map = Vec::new();
        for _ in 0..count {
            map.push(Extent { offset: line(self)?, length: line(self)? });
        }
        let mut pad = taken.wrapping_neg() % BLOCK as u64;
        while pad > 0 {
            let n = self.piece()?.len().min(pad as usize);
            if n == 0 {
                return Err(bad("it ends in a sparse map"));
            }
            self.consume(n);
            pad -= n as u64;
        }
        Ok(map)
    }

    fn skip_data(&mut self) -> io::Result<()> {
        let mut left = std::mem::take(&mut self.data);
        let padding = std::mem::take(&mut self.padding);
        left += padding;
        while left > 0 {
            let n = self.inner.fill_buf()?.len();
            if n == 0 {
                // Some writers leave the last padding away.
                return if left <= padding { Ok(()) } else { Err(bad("it ends in the middle of a file")) };
            }
            let n = n.min(usize::try_from(left).unwrap_or(usize::MAX));
            self.inner.consume(n);
            left -= n as u64;
        }
        Ok(())
    }

    fn block(&mut self) -> io::Result<Option<[u8; BLOCK]>> {
        let mut block = [0; BLOCK];
        let mut filled = 0;
        while filled < BLOCK {
            let n = self.inner.read(&mut block[filled..])?;
            if n == 0 {
                return if filled == 0 { Ok(None) } else { Err(bad("it ends in the middle of a header")) };
            }
            filled += n;
        }
        Ok(Some(block))
    }

    fn meta(&mut self, size: u64) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        self.inner.by_ref().take(size).read_to_end(&mut text)?;
        if (text.len() as u64) < size {
            return Err(bad("it ends in an extended header"));
        }
        self.padding = size.wrapping_neg() % BLOCK as u64;
        Ok(text)
    }
}

impl Pending {
    /// Takes the records of a pax header: `LENGTH KEY=VALUE\n`.
    fn pax(&mut self, mut text: &[u8]) -> io::Result<()> {
        while !text.is_empty() {
            let space =
                text.iter().take(20).position(|&b| b == b' ').ok_or_else(|| bad("a damaged pax header"))?;
            let length: usize = decimal(&text[..space]).and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
            if length <= space + 2 || length > text.len() || text[length - 1] != b'\n' {
                return Err(bad("a damaged pax header"));
            }
            let record = &text[space + 1..length - 1];
            text = &text[length..];
            let equals = record.iter().position(|&b| b == b'=').ok_or_else(|| bad("a damaged pax header"))?;
            let (key, value) = (&record[..equals], &record[equals + 1..]);
            self.record(key, value)?;
        }
        Ok(())
    }

    fn record(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        let whole = || decimal(value).ok_or_else(|| bad("a damaged number in a pax header"));
        match key {
            b"path" if !value.is_empty() => self.path = Some(value.to_vec()),
            b"linkpath" if !value.is_empty() => self.link = Some(value.to_vec()),
            b"size" => self.size = Some(whole()?),
            b"uid" => self.uid = Some(whole()?),
            b"gid" => self.gid = Some(whole()?),
            b"mtime" => self.mtime = Some(pax_time(value)?),
            b"GNU.sparse.major" => self.sparse_major = Some(whole()?),
            b"GNU.sparse.name" => self.sparse_name = Some(value.to_vec()),
            b"GNU.sparse.size" | b"GNU.sparse.realsize" => self.sparse_size = Some(whole()?),
            b"GNU.sparse.offset" => self.sparse_offset = Some(whole()?),
            b"GNU.sparse.numbytes" => {
                let offset = self.sparse_offset.take().ok_or_else(|| bad("a damaged sparse map"))?;
                self.extend_map(Extent { offset, length: whole()? })?;
            }
            b"GNU.sparse.map" => {
                let mut numbers = value.split(|&b| b == b',').map(decimal);
                while let Some(offset) = numbers.next() {
                    let (Some(offset), Some(Some(length))) = (offset, numbers.next()) else {
                        return Err(bad("a damaged sparse map"));
                    };
                    self.extend_map(Extent { offset, length })?;
                }
            }
            _ => {
                if let Some(name) = key.strip_prefix(b"SCHILY.xattr.")
                    && !name.is_empty()
                    && !name.contains(&0)
                {
                    self.xattrs.retain(|(known, _)| known != name);
                    if self.xattrs.len() >= XATTR_LIMIT {
                        return Err(bad(format!("more than {XATTR_LIMIT} extended attributes")));
                    }
                    self.xattrs.push((name.to_vec(), value.to_vec()));
                }
            }
        }
        Ok(())
    }

    fn extend_map(&mut self, extent: Extent) -> io::Result<()> {
        let map = self.sparse_map.get_or_insert_default();
        if map.len() >= SPARSE_LIMIT {
            return Err(bad("a sparse file of too many pieces"));
        }
        map.push(extent);
        Ok(())
    }
}

/// A sparse map's pieces are in order, inside the file, and together as long as the data.
fn check_map(map: &[Extent], size: u64, data: u64) -> io::Result<()> {
    let (mut end, mut sum) = (0u64, 0u64);
    for extent in map {
        let next = extent.offset.checked_add(extent.length).filter(|&next| next <= size);
        let Some(next) = next.filter(|_| extent.offset >= end) else {
            return Err(bad("a damaged sparse map"));
        };
        end = next;
        sum += extent.length;
    }
    if size > SPARSE_SIZE {
        return Err(bad(format!("a sparse file of {size} bytes")));
    }
    if sum != data { Err(bad("a sparse map that does not fit its data")) } else { Ok(()) }
}

fn check_sum(block: &[u8; BLOCK]) -> io::Result<()> {
    let claimed = number(&block[148..156])?;
    let (mut unsigned, mut signed) = (0u64, 0i64);
    for (at, &byte) in block.iter().enumerate() {
        let byte = if (148..156).contains(&at) { b' ' } else { byte };
        unsigned += u64::from(byte);
        signed += i64::from(byte as i8);
    }
    if claimed == unsigned || i64::try_from(claimed).is_ok_and(|c| c == signed) {
        Ok(())
    } else {
        Err(bad("a header whose checksum is wrong (not a tar archive, or a damaged one)"))
    }
}

fn header_name(block: &[u8; BLOCK]) -> Vec<u8> {
    let name = until_nul(&block[..100]);
    // GNU's own format (ustar, two blanks) has times where POSIX has the prefix.
    if &block[257..263] == b"ustar\0" {
        let prefix = until_nul(&block[345..500]);
        if !prefix.is_empty() {
            return [prefix, b"/", name].concat();
        }
    }
    name.to_vec()
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|&b| b == 0).next().unwrap_or_default()
}

/// Octal digits, or GNU's base-256 with the top bit set; negative numbers are refused.
fn number(field: &[u8]) -> io::Result<u64> {
    u64::try_from(signed_number(field)?).map_err(|_| bad("a negative number"))
}

fn signed_number(field: &[u8]) -> io::Result<i64> {
    if field[0] & 0x80 != 0 {
        let negative = field[0] & 0x40 != 0;
        let mut value: i128 = if negative { -1 } else { 0 };
        for (at, &byte) in field.iter().enumerate() {
            let byte = if at == 0 && !negative { byte & 0x7f } else { byte };
            value = (value << 8) | i128::from(byte);
        }
        return i64::try_from(value).map_err(|_| bad("a number beyond 63 bits"));
    }
    let text: &[u8] = until_nul(field).trim_ascii();
    let mut value = 0i64;
    for &byte in text {
        if !(b'0'..=b'7').contains(&byte) {
            return Err(bad("a number that is not octal"));
        }
        value = value
            .checked_mul(8)
            .and_then(|v| v.checked_add(i64::from(byte - b'0')))
            .ok_or_else(|| bad("a number beyond 63 bits"))?;
    }
    Ok(value)
}

fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// `[-]SECONDS[.FRACTION]`.
fn pax_time(text: &[u8]) -> io::Result<(i64, u32)> {
    let wrong = || bad("a damaged time in a pax header");
    let text = std::str::from_utf8(text).map_err(|_| wrong())?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let negative = whole.starts_with('-');
    let mut seconds: i64 = whole.parse().map_err(|_| wrong())?;
    if !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return Err(wrong());
    }
    let mut nanoseconds = 0u32;
    for at in 0..9 {
        nanoseconds = nanoseconds * 10 + fraction.as_bytes().get(at).map_or(0, |b| u32::from(b - b'0'));
    }
    if negative && nanoseconds > 0 {
        seconds = seconds.checked_sub(1).ok_or_else(wrong)?;
        nanoseconds = 1_000_000_000 - nanoseconds;
    }
    Ok((seconds, nanoseconds))
}

/// Writes one entry's header, with a pax header before it where ustar cannot say it. The caller
/// writes `entry.size` bytes of data after it, then [`pad`]s them.
pub fn write_header(out: &mut impl Write, entry: &Entry) -> io::Result<()> {
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
        Kind::File => b'0',
        Kind::Hardlink => b'1',
        Kind::Symlink => b'2',
        Kind::Character => b'3',
        Kind::Block => b'4',
        Kind::Directory => b'5',
        Kind::Fifo => b'6',
        Kind::Other(flag) => flag,
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

fn raw_header(
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

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, size: u64) -> Entry {
        Entry {
            path: path.into(),
            link: Vec::new(),
            kind: Kind::File,
            mode: 0o4755,
            uid: 7,
            gid: 8,
            size,
            mtime: (1_700_000_000, 0),
            xattrs: vec![(b"user.a".to_vec(), b"b\nc=".to_vec())],
            sparse: None,
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let long = format!("{}/ü", "d".repeat(300));
        let mut out = Vec::new();
        for entry in [file("a", 3), file(&long, 0), file("b", 512)] {
            write_header(&mut out, &entry).unwrap();
            out.extend(vec![b'z'; entry.size as usize]);
            pad(&mut out, entry.size).unwrap();
        }
        write_end(&mut out).unwrap();
        let mut reader = Reader::new(&out[..]);
        assert_eq!(reader.next().unwrap(), Some(file("a", 3)));
        assert_eq!(reader.piece().unwrap(), b"zzz");
        assert_eq!(reader.next().unwrap(), Some(file(&long, 0)));
        assert_eq!(reader.next().unwrap(), Some(file("b", 512)));
        assert_eq!(reader.next().unwrap(), None);
        reader.drain().unwrap();
    }

    /// umoci's layers end so.
    #[test]
    fn the_last_padding_may_be_missing() {
        let mut out = Vec::new();
        write_header(&mut out, &file("name", 1000)).unwrap();
        out.extend([b'z'; 1000]);
        // Whether the data are read or passed over.
        for read in [true, false] {
            let mut reader = Reader::new(&out[..]);
            reader.next().unwrap();
            while read && !reader.piece().unwrap().is_empty() {
                let n = reader.piece().unwrap().len();
                reader.consume(n);
            }
            assert_eq!(reader.next().unwrap(), None);
        }
    }

    #[test]
    fn every_cut_is_an_error_or_an_end() {
        let mut out = Vec::new();
        write_header(&mut out, &file("name", 1000)).unwrap();
        out.extend([b'z'; 1000]);
        pad(&mut out, 1000).unwrap();
        for cut in 1..out.len() - 24 {
            let mut reader = Reader::new(&out[..cut]);
            let whole = (|| -> io::Result<()> {
                while reader.next()?.is_some() {}
                Ok(())
            })();
            assert!(whole.is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn sparse_formats_of_gnu_tar() {
        for format in ["--format=gnu", "--format=posix", "--sparse-version=0.0", "--sparse-version=0.1"] {
            let dir = std::env::temp_dir().join(format!("rt-tar-{}-{}", std::process::id(), format.len()));
            std::fs::create_dir_all(&dir).unwrap();
            let path = dir.join("holes");
            let f = std::fs::File::create(&path).unwrap();
            f.set_len(9 << 20).unwrap();
            for at in 0..40u64 {
                std::os::unix::fs::FileExt::write_all_at(&f, b"data", at * 200_000).unwrap();
            }
            let mut command = std::process::Command::new("tar");
            command.arg("-C").arg(&dir).args(["--sparse", "-cf", "-"]);
            if format.starts_with("--sparse") {
                command.arg("--format=posix");
            }
            let out = command.arg(format).arg("holes").output().unwrap();
            assert!(out.status.success());
            let mut reader = Reader::new(&out.stdout[..]);
            let entry = reader.next().unwrap().unwrap();
            assert_eq!((entry.path.as_slice(), entry.size), (&b"holes"[..], 9 << 20), "{format}");
            let map = entry.sparse.expect("a sparse map");
            let mut whole = vec![0u8; 9 << 20];
            for extent in map {
                let mut at = extent.offset as usize;
                let end = at + extent.length as usize;
                while at < end {
                    let piece = reader.piece().unwrap();
                    let n = piece.len().min(end - at);
                    whole[at..at + n].copy_from_slice(&piece[..n]);
                    reader.consume(n);
                    at += n;
                }
            }
            assert!(whole == std::fs::read(&path).unwrap(), "{format}");
            assert_eq!(reader.next().unwrap(), None);
            std::fs::remove_dir_all(&dir).unwrap();
        }
    }

    #[test]
    fn attributes_are_counted() {
        let mut entry = file("name", 0);
        let mut out = Vec::new();
        for (most, good) in [(XATTR_LIMIT, true), (XATTR_LIMIT + 1, false)] {
            entry.xattrs = (0..most).map(|n| (format!("user.{n}").into_bytes(), b"x".to_vec())).collect();
            out.clear();
            write_header(&mut out, &entry).unwrap();
            assert_eq!(Reader::new(&out[..]).next().is_ok(), good);
        }
    }

    /// Each block of GNU's map says that another follows, and none has a piece.
    #[test]
    fn sparse_maps_go_on_with_something() {
        let mut block = raw_header(b"name", b"", b'S', 0o644, (0, 0), 0, 0);
        block[482] = 1;
        block[483..494].copy_from_slice(b"00000001000");
        block[148..156].copy_from_slice(b"        ");
        let sum: u32 = block.iter().map(|&b| u32::from(b)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let mut next = [0; BLOCK];
        next[504] = 1;
        let endless = block.into_iter().chain(std::iter::repeat_n(next, 1000).flatten());
        let endless: Vec<u8> = endless.collect();
        let e = Reader::new(&endless[..]).next().unwrap_err();
        assert!(e.to_string().contains("goes on with nothing"), "{e}");
    }

    #[test]
    fn numbers_and_times() {
        assert_eq!(signed_number(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfe").unwrap(), -2);
        assert_eq!(number(b"\x80\0\0\0\0\0\0\0\0\0\x01\0").unwrap(), 256);
        assert!(number(b"\x80\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff").is_err());
        assert_eq!(pax_time(b"1.5").unwrap(), (1, 500_000_000));
        assert_eq!(pax_time(b"-1.25").unwrap(), (-2, 750_000_000));
        assert!(pax_time(b"x").is_err());
    }
}
