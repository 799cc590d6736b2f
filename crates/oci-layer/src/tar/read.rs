//! Reading an archive: headers, and the data after them in pieces.

use std::io::{self, BufRead, Read};

use super::extended::ExtendedHeader;
use super::field::{check_sum, header_name, number, signed_number, until_nul};
use super::sparse::check_map;
use super::{BLOCK, EntryKind, Header, bad};

/// Names and pax headers are not longer (Go's reader has the same limit).
const META_LIMIT: u64 = 1 << 20;
/// What follows the end of an archive is not longer. Writers pad to 10 KiB, or to the blocks of a tape.
const TRAILER_LIMIT: usize = 64 << 20;

/// Reads entries one after the other.
pub struct Reader<R> {
    pub(super) inner: R,
    data: u64,
    padding: u64,
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
    pub fn next(&mut self) -> io::Result<Option<Header>> {
        let mut pending = ExtendedHeader::default();
        let mut meta = 0u64;
        loop {
            self.skip_data()?;
            let Some(block) = self.block()? else {
                return if meta == 0 {
                    Ok(None)
                } else {
                    Err(bad("the archive ends after an extended header"))
                };
            };
            if block.iter().all(|&b| b == 0) {
                return if meta == 0 {
                    Ok(None)
                } else {
                    Err(bad("the archive ends after an extended header"))
                };
            }
            check_sum(&block)?;
            let flag = block[156];
            if !matches!(flag, b'x' | b'g' | b'L' | b'K') {
                return self.entry(&block, flag, pending).map(Some);
            }
            let size = number(&block[124..136])?;
            meta = meta.saturating_add(size).saturating_add(BLOCK as u64);
            if meta > META_LIMIT {
                return Err(bad("extended headers of more than 1 MiB"));
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
            return Err(bad("the archive ends in the middle of a file"));
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
        Err(bad("more than 64 MiB after the end of the archive"))
    }

    /// Where the bytes come from.
    pub fn get_ref(&self) -> &R {
        &self.inner
    }

    fn entry(&mut self, block: &[u8; BLOCK], flag: u8, mut pending: ExtendedHeader) -> io::Result<Header> {
        let mut path = match pending.path.take() {
            Some(path) => path,
            None => header_name(block),
        };
        let link = pending.link.take().unwrap_or_else(|| until_nul(&block[157..257]).to_vec());
        let kind = match flag {
            0 | b'0' | b'7' | b'S' if path.ends_with(b"/") => EntryKind::Directory,
            0 | b'0' | b'7' | b'S' => EntryKind::File,
            b'1' => EntryKind::Hardlink,
            b'2' => EntryKind::Symlink,
            b'3' => EntryKind::Character,
            b'4' => EntryKind::Block,
            b'5' => EntryKind::Directory,
            b'6' => EntryKind::Fifo,
            other => EntryKind::Other(other),
        };
        let stored = match pending.size {
            Some(size) => size,
            None => number(&block[124..136])?,
        };
        // Of these types only the header is in the archive, whatever size they claim.
        let stored = match kind {
            EntryKind::File | EntryKind::Other(_) => stored,
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
            size = pending.sparse_size.ok_or_else(|| bad("a sparse file without a size"))?;
            sparse = Some(self.pax_sparse()?);
        } else if let Some(map) = pending.sparse_map.take() {
            size = pending.sparse_size.ok_or_else(|| bad("a sparse file without a size"))?;
            sparse = Some(map);
        }
        if let Some(map) = &sparse {
            check_map(map, size, self.data)?;
        }
        if let Some(name) = pending.sparse_name {
            path = name;
        }
        let clean =
            |bytes: &[u8]| if bytes.contains(&0) { Err(bad("a name with a NUL byte")) } else { Ok(()) };
        clean(&path)?;
        clean(&link)?;
        Ok(Header {
            path,
            link,
            kind,
            mode: (number(&block[100..108]).unwrap_or(0) & 0o7777) as u32,
            uid: pending.uid.map_or_else(|| number(&block[108..116]), Ok).unwrap_or(0),
            gid: pending.gid.map_or_else(|| number(&block[116..124]), Ok).unwrap_or(0),
            device: (device_number(&block[329..337]), device_number(&block[337..345])),
            size,
            mtime: pending.mtime.unwrap_or((signed_number(&block[136..148]).unwrap_or(0), 0)),
            xattrs: pending.xattrs,
            sparse,
        })
    }

    fn skip_data(&mut self) -> io::Result<()> {
        let mut left = std::mem::take(&mut self.data);
        let padding = std::mem::take(&mut self.padding);
        left += padding;
        while left > 0 {
            let n = self.inner.fill_buf()?.len();
            if n == 0 {
                // Some writers leave the last padding away.
                return if left <= padding {
                    Ok(())
                } else {
                    Err(bad("the archive ends in the middle of a file"))
                };
            }
            let n = n.min(usize::try_from(left).unwrap_or(usize::MAX));
            self.inner.consume(n);
            left -= n as u64;
        }
        Ok(())
    }

    pub(super) fn block(&mut self) -> io::Result<Option<[u8; BLOCK]>> {
        let mut block = [0; BLOCK];
        let mut filled = 0;
        while filled < BLOCK {
            let n = self.inner.read(&mut block[filled..])?;
            if n == 0 {
                return if filled == 0 {
                    Ok(None)
                } else {
                    Err(bad("the archive ends in the middle of a header"))
                };
            }
            filled += n;
        }
        Ok(Some(block))
    }

    fn meta(&mut self, size: u64) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        self.inner.by_ref().take(size).read_to_end(&mut text)?;
        if (text.len() as u64) < size {
            return Err(bad("the archive ends in an extended header"));
        }
        self.padding = size.wrapping_neg() % BLOCK as u64;
        Ok(text)
    }
}

/// A device's number. As with owners, one that cannot be read is none.
fn device_number(field: &[u8]) -> u32 {
    number(field).ok().and_then(|number| u32::try_from(number).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::{pad, write_end, write_header};
    use super::*;

    fn file(path: &str, size: u64) -> Header {
        Header {
            uid: 7,
            gid: 8,
            size,
            mtime: (1_700_000_000, 0),
            xattrs: vec![(b"user.a".to_vec(), b"b\nc=".to_vec())],
            ..Header::new(path.into(), EntryKind::File, 0o4755)
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
}
