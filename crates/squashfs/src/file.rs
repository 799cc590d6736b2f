//! Contents of files: blocks, holes, and ends that several files share a block for.

use crate::cache::Cost;
use crate::error::{Error, Result};
use crate::filesystem::Filesystem;
use crate::inode::{File, InodeRef};
use crate::metadata::{Cursor, Place};
use crate::source::Source;
use crate::superblock::SUPERBLOCK_SIZE;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

const WHAT: &str = "file contents";
/// The most blocks that a file may have: 2 TiB with the usual size of blocks. To find the last one takes reading the
/// lengths of all.
pub(crate) const MOST_BLOCKS: u64 = 1 << 24;
/// The bit of a block's length that says that it is stored as it is.
const STORED: u32 = 1 << 24;
/// A place in the list of blocks is remembered every so many blocks.
const STRIDE: u64 = 2048;
/// Spare buffers that are kept.
const SPARE: usize = 4;

/// A decompressed block of data, whose memory is used again.
#[derive(Debug)]
pub struct DataBlock {
    /// As long as a block of this image can be.
    buffer: Vec<u8>,
    length: usize,
    spare: Arc<Spare>,
}

/// Buffers to be used again.
#[derive(Debug, Default)]
pub(crate) struct Spare(Mutex<Vec<Vec<u8>>>);

impl Spare {
    fn take(self: &Arc<Self>, size: usize) -> DataBlock {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let buffer = kept.unwrap_or_else(|| vec![0; size]);
        DataBlock { buffer, length: 0, spare: Arc::clone(self) }
    }
}

impl Drop for DataBlock {
    fn drop(&mut self) {
        let mut spare = self.spare.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < SPARE {
            spare.push(std::mem::take(&mut self.buffer));
        }
    }
}

impl Cost for DataBlock {
    fn cost(&self) -> usize {
        self.buffer.len()
    }
}

impl DataBlock {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

/// A part of what was read.
#[derive(Debug, Clone)]
pub enum Piece {
    /// This part of this block.
    Block(Arc<DataBlock>, Range<usize>),
    /// So many zeros.
    Hole(usize),
}

impl Piece {
    /// How many bytes it stands for.
    pub fn size(&self) -> usize {
        match self {
            Piece::Block(_, range) => range.len(),
            Piece::Hole(length) => *length,
        }
    }
}

/// Where a block stands, as the list of blocks says.
#[derive(Debug, Clone, Copy)]
struct Stored {
    at: u64,
    /// The length, with [`STORED`]. 0 is a hole.
    length: u32,
}

/// Places in the lists of blocks of a few large files.
#[derive(Debug, Default)]
pub(crate) struct Landmarks(Mutex<Vec<(InodeRef, Vec<Landmark>)>>);

/// The place of a block in the list, and where its bytes are.
#[derive(Debug, Clone, Copy)]
struct Landmark {
    list: Place,
    data: u64,
}

/// Files whose places are kept.
const REMEMBERED: usize = 64;

impl Landmarks {
    /// The last known place at or before `block`.
    fn before(&self, file: InodeRef, block: u64) -> Option<(u64, Landmark)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, marks) = all.iter().find(|(of, _)| *of == file)?;
        // The n-th stands for block (n + 1) * STRIDE.
        let n = (block / STRIDE).min(marks.len() as u64);
        let mark = marks.get((n as usize).checked_sub(1)?)?;
        Some((n * STRIDE, *mark))
    }

    fn add(&self, file: InodeRef, block: u64, mark: Landmark) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.iter().position(|(of, _)| *of == file);
        let n = known.unwrap_or_else(|| {
            if all.len() >= REMEMBERED {
                all.remove(0);
            }
            all.push((file, Vec::new()));
            all.len() - 1
        });
        let marks = &mut all[n].1;
        if (marks.len() as u64 + 1) * STRIDE == block {
            marks.push(mark);
        }
    }
}

/// Reads up to `length` bytes at `offset`, less at the end of the file.
pub(crate) fn read<S: Source>(
    fs: &Filesystem<S>,
    inode: InodeRef,
    file: &File,
    offset: u64,
    length: usize,
) -> Result<Vec<Piece>> {
    let end = offset.saturating_add(length as u64).min(file.size);
    let block_size = u64::from(fs.superblock().block_size);
    // Where the end of the file is in a fragment, there are only whole blocks.
    let whole = match file.fragment {
        Some(_) => file.size / block_size,
        None => file.size.div_ceil(block_size),
    };
    let mut pieces = Vec::new();
    let mut list = None;
    let mut at = offset;
    while at < end {
        let number = at / block_size;
        let from = (at % block_size) as usize;
        let full = (file.size - number * block_size).min(block_size) as usize;
        let to = ((end - number * block_size) as usize).min(full);
        if number < whole {
            let list = match &mut list {
                Some(list) => list,
                None => list.insert(BlockList::at(fs, inode, file, number)?),
            };
            let stored = list.next()?;
            // A block of which all is asked for is not asked for again: the kernel keeps it.
            let once = from == 0 && to == full;
            pieces.push(match stored.length {
                0 => Piece::Hole(to - from),
                _ => Piece::Block(fs.data_block(stored.at, stored.length, full, once)?, from..to),
            });
        } else {
            pieces.push(fragment(fs, file, full, from..to)?);
        }
        at = number * block_size + to as u64;
    }
    Ok(pieces)
}

fn fragment<S: Source>(fs: &Filesystem<S>, file: &File, full: usize, part: Range<usize>) -> Result<Piece> {
    let Some((index, offset)) = file.fragment else {
        return Err(Error::damaged(WHAT, file.start, "it has no fragment"));
    };
    let (at, length) = fs.fragment(index)?;
    let offset = offset as usize;
    let block = fs.data_block(at, length, 0, false)?;
    match offset.checked_add(full) {
        Some(end) if end <= block.bytes().len() => {
            Ok(Piece::Block(block, offset + part.start..offset + part.end))
        }
        _ => Err(Error::damaged(WHAT, at, "the end of a file is not within its fragment")),
    }
}

/// Reads the list of a file's blocks.
struct BlockList<'a, S> {
    fs: &'a Filesystem<S>,
    cursor: Cursor<'a, S>,
    inode: InodeRef,
    number: u64,
    /// Where the next block begins.
    data: u64,
}

impl<'a, S: Source> BlockList<'a, S> {
    /// A list whose next block is `number`.
    fn at(fs: &'a Filesystem<S>, inode: InodeRef, file: &File, number: u64) -> Result<Self> {
        let landmarks = fs.landmarks();
        let start = (0, Landmark { list: file.list, data: file.start });
        let (known, mark) = landmarks.before(inode, number).unwrap_or(start);
        let cursor = Cursor::new(fs, "list of blocks", mark.list, fs.superblock().directory_table)?;
        let mut list = BlockList { fs, cursor, inode, number: known, data: mark.data };
        while list.number < number {
            list.next()?;
        }
        Ok(list)
    }

    fn next(&mut self) -> Result<Stored> {
        let length = self.cursor.u32()?;
        let size = length & !STORED;
        if size > self.fs.superblock().block_size {
            return Err(self.cursor.damaged(format!("a block of {size} bytes")));
        }
        let stored = Stored { at: self.data, length };
        self.data = self.data.saturating_add(size.into());
        self.number += 1;
        if self.number.is_multiple_of(STRIDE) {
            let mark = Landmark { list: self.cursor.place(), data: self.data };
            self.fs.landmarks().add(self.inode, self.number, mark);
        }
        Ok(stored)
    }
}

/// Reads and decompresses a block. `expected` is its length, or 0 for that of any.
pub(crate) fn read_block<S: Source>(
    fs: &Filesystem<S>,
    at: u64,
    length: u32,
    expected: usize,
) -> Result<DataBlock> {
    thread_local! {
        /// What is read, before it is decompressed.
        static COMPRESSED: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) };
    }
    let superblock = fs.superblock();
    let size = (length & !STORED) as usize;
    if size == 0 || size > superblock.block_size as usize {
        return Err(Error::damaged(WHAT, at, format!("a block of {size} bytes")));
    }
    let end = at.saturating_add(size as u64);
    if at < SUPERBLOCK_SIZE || end > superblock.bytes_used {
        return Err(Error::damaged(WHAT, at, "a block outside of the image"));
    }
    let mut block = fs.spare().take(superblock.block_size as usize);
    let read = |buffer: &mut [u8]| fs.source().read_exact_at(buffer, at).map_err(|e| Error::io(WHAT, at, &e));
    block.length = match length & STORED {
        0 => COMPRESSED.with_borrow_mut(|compressed| {
            if compressed.len() < size {
                compressed.resize(size, 0);
            }
            read(&mut compressed[..size])?;
            let plain = superblock.compression.decompress(&compressed[..size], &mut block.buffer);
            plain.map_err(|e| Error::damaged(WHAT, at, e))
        })?,
        _ => {
            read(&mut block.buffer[..size])?;
            size
        }
    };
    if expected != 0 && block.length != expected {
        let why = format!("a block of {} bytes where there should be {expected}", block.length);
        return Err(Error::damaged(WHAT, at, why));
    }
    Ok(block)
}
