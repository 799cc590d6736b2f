//! The content of a file, which stands behind its header in the archive.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

use crate::decode::PipeReader;
use crate::tar::{Extent, Header, Reader};
use oci_content::interrupt::Interrupt;
use rt_sys::err;
use rt_sys::error::{Context, Result};
use rt_sys::fd;

/// The content of an entry, to be written once.
pub struct Content<'a> {
    reader: &'a mut Reader<PipeReader>,
    interrupt: &'a Interrupt,
    /// What is left of the file: holes between extents, in order.
    extents: std::vec::IntoIter<Extent>,
    current: Extent,
    sparse: bool,
    size: u64,
    position: u64,
}

impl<'a> Content<'a> {
    /// The content behind the header `entry`, which `reader` has just read.
    pub(super) fn new(
        reader: &'a mut Reader<PipeReader>,
        entry: &Header,
        interrupt: &'a Interrupt,
    ) -> Content<'a> {
        let whole = || vec![Extent { offset: 0, length: entry.size }];
        let extents = entry.sparse.clone().unwrap_or_else(whole).into_iter();
        let current = Extent { offset: 0, length: 0 };
        Content {
            reader,
            interrupt,
            extents,
            current,
            sparse: entry.sparse.is_some(),
            size: entry.size,
            position: 0,
        }
    }

    /// Writes it to an empty file, holes left as holes.
    pub fn write_to(self, file: &File) -> Result<()> {
        for Extent { offset, length } in self.extents {
            let (mut at, end) = (offset, offset + length);
            while at < end {
                self.interrupt.check()?;
                let piece = self.reader.piece()?;
                if piece.is_empty() {
                    return Err(err!("the layer ends in the middle of a file"));
                }
                let n = piece.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
                file.write_all_at(&piece[..n], at).context(|| format!("write {}", fd::shown(file)))?;
                self.reader.consume(n);
                at += n as u64;
            }
        }
        if self.sparse {
            file.set_len(self.size).context(|| format!("set the length of {}", fd::shown(file)))?;
        }
        Ok(())
    }
}

/// The bytes of a sparse file that are there, one piece after the other.
pub struct Pieces<'a>(pub Content<'a>);

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let piece = self.0.reader.piece()?;
        let n = buffer.len().min(piece.len());
        buffer[..n].copy_from_slice(&piece[..n]);
        self.0.reader.consume(n);
        Ok(n)
    }
}

/// All bytes of the file, holes as zeros.
impl Read for Content<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.position >= self.current.offset + self.current.length {
            let end = Extent { offset: self.size, length: 0 };
            self.current = self.extents.next().unwrap_or(end);
            if self.current == end {
                break;
            }
        }
        let most = |length: u64| usize::try_from(length).unwrap_or(usize::MAX);
        let n;
        if self.position < self.current.offset {
            n = buffer.len().min(most(self.current.offset - self.position));
            buffer[..n].fill(0);
        } else {
            let piece = self.reader.piece()?;
            let left = self.current.offset + self.current.length - self.position;
            n = buffer.len().min(piece.len()).min(most(left));
            buffer[..n].copy_from_slice(&piece[..n]);
            self.reader.consume(n);
        }
        self.position += n as u64;
        Ok(n)
    }
}
