//! The content of files: data blocks and fragments, compressed by the pool, written in order.

use crate::pool::{Hash, PackedBlock, Pool, hash};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// The content of a file that was added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileId(pub(crate) u32);

/// Set in the size of a block that is stored as it is.
const STORED: u32 = 1 << 24;

/// Where the content of a file is.
#[derive(Default)]
pub(crate) struct Content {
    pub size: u64,
    /// Bytes in blocks of zeros, which are not written.
    pub sparse: u64,
    /// Where the first block is, from the image's start.
    pub start: u64,
    /// The size of each block on disk, as an inode has it.
    pub blocks: Vec<u32>,
    /// The fragment with the content of a file that is smaller than a block, and the place in it.
    pub fragment: Option<(u32, u32)>,
}

/// A fragment: a block of small files.
pub(crate) struct Fragment {
    pub start: u64,
    pub size: u32,
}

/// What is written in this order, once its block is compressed.
enum Pending {
    /// A block of a file.
    Block {
        number: u64,
        file: u32,
    },
    /// Blocks that are not written, since they are zeros.
    Holes {
        count: u64,
        file: u32,
    },
    /// All blocks of the file stand before this.
    FileEnd {
        file: u32,
    },
    Fragment {
        number: u64,
    },
}

/// Writes blocks.
pub(crate) struct Blocks {
    out: File,
    /// Where the next block goes.
    position: u64,
    block_size: usize,
    pool: Pool,
    /// The most blocks between reading and writing: they bound the memory.
    ahead: usize,
    next_number: u64,
    pending: VecDeque<Pending>,
    packed: BTreeMap<u64, PackedBlock>,
    files: Vec<Content>,
    /// The hashes of the blocks of the file that is being written.
    written: Vec<u8>,
    /// Files of one block and more, by their blocks' hashes.
    known_files: HashMap<Hash, u32>,
    /// Small files by their hash.
    known_tails: HashMap<Hash, (u32, u32)>,
    /// The fragment that is being filled.
    tail: Vec<u8>,
    fragments: Vec<Fragment>,
    /// Fragments that were given to the pool.
    filled: u32,
    pub duplicates: u64,
}

impl Blocks {
    pub(crate) fn new(out: File, position: u64, block_size: usize, pool: Pool, threads: usize) -> Blocks {
        Blocks {
            out,
            position,
            block_size,
            pool,
            ahead: 4 * threads + 4,
            next_number: 0,
            pending: VecDeque::new(),
            packed: BTreeMap::new(),
            files: Vec::new(),
            written: Vec::new(),
            known_files: HashMap::new(),
            known_tails: HashMap::new(),
            tail: Vec::with_capacity(block_size),
            fragments: Vec::new(),
            filled: 0,
            duplicates: 0,
        }
    }

    /// Adds a file of `size` bytes.
    pub(crate) fn add(&mut self, content: &mut dyn Read, size: u64) -> io::Result<FileId> {
        let file = u32::try_from(self.files.len()).map_err(|_| io::Error::other("too many files"))?;
        self.files.push(Content { size, ..Content::default() });
        let mut left = size;
        if size < self.block_size as u64 {
            let block = read_block(content, size as usize)?;
            self.add_tail(file, &block)?;
            return Ok(FileId(file));
        }
        while left > 0 {
            let length = left.min(self.block_size as u64);
            let block = read_block(content, length as usize)?;
            left -= length;
            let number = self.submit(block)?;
            self.pending.push_back(Pending::Block { number, file });
        }
        self.pending.push_back(Pending::FileEnd { file });
        Ok(FileId(file))
    }

    /// Adds a file of `size` bytes of which only `data` is there, ranges in their order: `content` has these bytes, one range
    /// after the other. Whole blocks of the rest take neither time nor room.
    pub(crate) fn add_sparse(
        &mut self,
        content: &mut dyn Read,
        size: u64,
        data: &[Range<u64>],
    ) -> io::Result<FileId> {
        let file = u32::try_from(self.files.len()).map_err(|_| io::Error::other("too many files"))?;
        self.files.push(Content { size, ..Content::default() });
        let block_size = self.block_size as u64;
        let (mut at, mut data) = (0, data);
        while at < size {
            while let [first, rest @ ..] = data
                && first.end <= at
            {
                data = rest;
            }
            let next = data.first().map_or(size, |range| range.start.clamp(at, size));
            let count = (next - at) / block_size;
            if count > 0 {
                self.pending.push_back(Pending::Holes { count, file });
                at += count * block_size;
                continue;
            }
            let end = size.min(at + block_size);
            let mut block = vec![0; (end - at) as usize];
            for range in data.iter().take_while(|range| range.start < end) {
                let (from, to) = (range.start.max(at) - at, range.end.min(end) - at);
                content.read_exact(&mut block[from as usize..to as usize])?;
            }
            at = end;
            if size < block_size {
                self.add_tail(file, &block)?;
                return Ok(FileId(file));
            }
            let number = self.submit(block)?;
            self.pending.push_back(Pending::Block { number, file });
        }
        if size >= block_size {
            self.pending.push_back(Pending::FileEnd { file });
        }
        Ok(FileId(file))
    }

    fn add_tail(&mut self, file: u32, block: &[u8]) -> io::Result<()> {
        if block.is_empty() {
            return Ok(());
        }
        let hash = hash(block);
        if let Some(&place) = self.known_tails.get(&hash) {
            self.duplicates += 1;
            self.files[file as usize].fragment = Some(place);
            return Ok(());
        }
        if self.tail.len() + block.len() > self.block_size {
            self.end_fragment()?;
        }
        let place = (self.filled, self.tail.len() as u32);
        self.tail.extend_from_slice(block);
        self.known_tails.insert(hash, place);
        self.files[file as usize].fragment = Some(place);
        Ok(())
    }

    fn end_fragment(&mut self) -> io::Result<()> {
        let block = std::mem::replace(&mut self.tail, Vec::with_capacity(self.block_size));
        let number = self.submit(block)?;
        self.pending.push_back(Pending::Fragment { number });
        self.filled += 1;
        Ok(())
    }

    /// Gives a block to the pool, and writes what has come back.
    fn submit(&mut self, block: Vec<u8>) -> io::Result<u64> {
        let number = self.next_number;
        self.next_number += 1;
        if block.iter().all(|&byte| byte == 0) && block.len() == self.block_size {
            // A hole: nothing to compress. Its place in the order is kept.
            self.packed.insert(number, PackedBlock { bytes: Vec::new(), compressed: true, hash: [0; 32] });
        } else {
            self.pool.submit(number, block)?;
        }
        while let Some((number, packed)) = self.pool.poll()? {
            self.packed.insert(number, packed);
        }
        self.write_pending()?;
        while self.pending.len() > self.ahead && !self.front_is_packed() {
            let (number, packed) = self.pool.wait()?;
            self.packed.insert(number, packed);
            self.write_pending()?;
        }
        Ok(number)
    }

    fn front_is_packed(&self) -> bool {
        match self.pending.front() {
            Some(Pending::Block { number, .. } | Pending::Fragment { number }) => {
                self.packed.contains_key(number)
            }
            Some(Pending::FileEnd { .. } | Pending::Holes { .. }) | None => true,
        }
    }

    /// Writes what is next in the order, as far as it is compressed.
    fn write_pending(&mut self) -> io::Result<()> {
        while self.front_is_packed() {
            match self.pending.pop_front() {
                None => break,
                Some(Pending::FileEnd { file }) => self.end_file(file),
                Some(Pending::Holes { count, file }) => self.write_holes(file, count)?,
                Some(Pending::Block { number, file }) => {
                    let Some(block) = self.packed.remove(&number) else { break };
                    self.write_file_block(file, block)?;
                }
                Some(Pending::Fragment { number }) => {
                    let Some(block) = self.packed.remove(&number) else { break };
                    let start = self.position;
                    let size = self.write_block(&block)?;
                    self.fragments.push(Fragment { start, size });
                }
            }
        }
        Ok(())
    }

    fn write_holes(&mut self, file: u32, count: u64) -> io::Result<()> {
        self.begin_file(file);
        let content = &mut self.files[file as usize];
        let blocks = usize::try_from(count).map_err(|_| io::Error::other("too many blocks"))?;
        content.blocks.resize(content.blocks.len() + blocks, 0);
        content.sparse += count * self.block_size as u64;
        // In the place of their hashes.
        self.written.extend_from_slice(&[0; 32]);
        self.written.extend_from_slice(&count.to_le_bytes());
        Ok(())
    }

    /// Notes where the first block of a file goes.
    fn begin_file(&mut self, file: u32) {
        let content = &mut self.files[file as usize];
        if content.blocks.is_empty() {
            content.start = self.position;
            self.written.clear();
        }
    }

    fn write_file_block(&mut self, file: u32, block: PackedBlock) -> io::Result<()> {
        self.begin_file(file);
        let size = match block.bytes.is_empty() {
            true => 0,
            false => self.write_block(&block)?,
        };
        let block_size = self.block_size as u64;
        let content = &mut self.files[file as usize];
        if size == 0 {
            content.sparse += block_size;
        }
        content.blocks.push(size);
        self.written.extend_from_slice(&block.hash);
        Ok(())
    }

    fn write_block(&mut self, block: &PackedBlock) -> io::Result<u32> {
        self.out.write_all_at(&block.bytes, self.position)?;
        self.position += block.bytes.len() as u64;
        let size = block.bytes.len() as u32;
        Ok(if block.compressed { size } else { size | STORED })
    }

    /// All blocks of a file are written. Where another file has the same, they are written over by what comes next.
    fn end_file(&mut self, file: u32) {
        let size = self.files[file as usize].size;
        self.written.extend_from_slice(&size.to_le_bytes());
        let hash = hash(&self.written);
        let Some(&first) = self.known_files.get(&hash) else {
            self.known_files.insert(hash, file);
            return;
        };
        self.duplicates += 1;
        self.position = self.files[file as usize].start;
        let (start, blocks) = {
            let first = &self.files[first as usize];
            (first.start, first.blocks.clone())
        };
        let content = &mut self.files[file as usize];
        content.start = start;
        content.blocks = blocks;
    }

    /// Writes all that is left. Returns the file, the place behind the last block, the contents and the fragments.
    pub(crate) fn finish(mut self) -> io::Result<(File, u64, Vec<Content>, Vec<Fragment>)> {
        if !self.tail.is_empty() {
            self.end_fragment()?;
        }
        self.write_pending()?;
        while !self.pending.is_empty() {
            let (number, packed) = self.pool.wait()?;
            self.packed.insert(number, packed);
            self.write_pending()?;
        }
        Ok((self.out, self.position, self.files, self.fragments))
    }
}

/// Reads exactly `length` bytes.
fn read_block(content: &mut dyn Read, length: usize) -> io::Result<Vec<u8>> {
    let mut block = Vec::with_capacity(length);
    content.take(length as u64).read_to_end(&mut block)?;
    if block.len() != length {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "the content of a file is shorter than its size",
        ));
    }
    Ok(block)
}
