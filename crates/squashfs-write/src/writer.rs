//! An image from its first byte to its last.

use crate::blocks::{Blocks, FileId, Fragment};
use crate::compress::{Compression, Compressor};
use crate::inodes;
use crate::metadata;
use crate::pool::Pool;
use crate::tables;
use crate::tree::Tree;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;

const SUPERBLOCK_SIZE: usize = 96;
/// "hsqs".
const MAGIC: u32 = 0x7371_7368;
/// Loop devices, and readers that map the image, want whole pages.
const PAGE: u64 = 4096;
/// What stands for a table that is not there.
const NO_TABLE: u64 = u64::MAX;

// Flags of the superblock.
const STORED_INODES: u16 = 0x0001;
const STORED_DATA: u16 = 0x0002;
const STORED_FRAGMENTS: u16 = 0x0008;
const NO_FRAGMENTS: u16 = 0x0010;
const DUPLICATES_FOUND: u16 = 0x0040;
const STORED_XATTRS: u16 = 0x0100;
const NO_XATTRS: u16 = 0x0200;
const COMPRESSOR_OPTIONS: u16 = 0x0400;
const STORED_IDS: u16 = 0x0800;

/// How an image is written.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// How it is compressed.
    pub compression: Compression,
    /// Bytes of a block before compression: a power of two from 4 KiB to 1 MiB.
    pub block_size: u32,
    /// Threads that compress.
    pub threads: usize,
    /// When the image was made, in seconds since 1970.
    pub time: u32,
}

impl Default for Options {
    /// zstd at level 3, blocks of 128 KiB, one thread, 1970.
    fn default() -> Options {
        Options { compression: Compression::Zstd(3), block_size: 128 << 10, threads: 1, time: 0 }
    }
}

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Bytes of the image.
    pub bytes: u64,
    /// Files, directories and the rest.
    pub inodes: u32,
    /// Files whose content was there already.
    pub duplicates: u64,
    /// Extended attributes that the format does not have.
    pub xattrs_left_out: u64,
}

/// Writes an image.
pub struct ImageWriter {
    options: Options,
    compressor: Compressor,
    blocks: Blocks,
}

impl ImageWriter {
    /// Begins an image in `out`, an empty file that is open for reading and writing.
    ///
    /// # Errors
    /// EINVAL for a block size that the format does not have, and what the threads and the file return.
    pub fn new(out: File, options: Options) -> io::Result<ImageWriter> {
        if !options.block_size.is_power_of_two() || !(4096..=1 << 20).contains(&options.block_size) {
            let text = format!("{} is no power of two from 4096 to 1048576", options.block_size);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let mut position = SUPERBLOCK_SIZE as u64;
        if let Some(said) = options.compression.options() {
            let mut block = Vec::new();
            metadata::append_block(&mut block, &said, None);
            out.write_all_at(&block, position)?;
            position += block.len() as u64;
        }
        let pool = Pool::start(options.threads, options.compression)?;
        Ok(ImageWriter {
            options,
            compressor: Compressor::new(options.compression)?,
            blocks: Blocks::new(out, position, options.block_size as usize, pool, options.threads),
        })
    }

    /// Writes the content of a file, `size` bytes of `content`. What is compressed and not yet written is bounded by the
    /// number of threads.
    ///
    /// # Errors
    /// UnexpectedEof where `content` is shorter, and what reading and writing return.
    pub fn add_file(&mut self, content: &mut dyn Read, size: u64) -> io::Result<FileId> {
        self.blocks.add(content, size)
    }

    /// Writes the content of a file of `size` bytes of which only the ranges `data` are there, in their order; all else is
    /// zeros. `content` has the bytes of these ranges, one after the other.
    ///
    /// # Errors
    /// UnexpectedEof where `content` is shorter, and what reading and writing return.
    pub fn add_sparse_file(
        &mut self,
        content: &mut dyn Read,
        size: u64,
        data: &[Range<u64>],
    ) -> io::Result<FileId> {
        self.blocks.add_sparse(content, size, data)
    }

    /// Writes the tree, and the superblock last: before that the file is no image.
    ///
    /// # Errors
    /// What writing returns, and where the tree is more than the format can say.
    pub fn finish(mut self, tree: &Tree) -> io::Result<Written> {
        let duplicates = self.blocks.duplicates;
        let (out, mut position, contents, fragments) = self.blocks.finish()?;
        let mut for_directories = Compressor::new(self.options.compression)?;
        let tables = inodes::write(tree, &contents, &mut self.compressor, &mut for_directories)?;
        let mut append = |bytes: &[u8]| -> io::Result<u64> {
            let start = position;
            out.write_all_at(bytes, start)?;
            position += bytes.len() as u64;
            Ok(start)
        };
        let inode_table = append(&tables.inodes)?;
        let directory_table = append(&tables.directories)?;
        let after = directory_table + tables.directories.len() as u64;
        let (bytes, fragment_table) =
            tables::indexed(&fragment_table(&fragments), after, &mut self.compressor)?;
        append(&bytes)?;
        let after = after + bytes.len() as u64;
        let (bytes, id_table) = tables::indexed(&tables.ids.bytes(), after, &mut self.compressor)?;
        append(&bytes)?;
        let after = after + bytes.len() as u64;
        let xattrs = tables.xattrs.table(after, &mut self.compressor)?;
        if let Some((bytes, _)) = &xattrs {
            append(bytes)?;
        }
        let bytes_used = position;
        out.set_len(bytes_used.next_multiple_of(PAGE))?;

        let mut flags = 0;
        for (there, flag) in [
            (
                self.options.compression == Compression::None,
                STORED_INODES | STORED_DATA | STORED_FRAGMENTS | STORED_XATTRS | STORED_IDS,
            ),
            (fragments.is_empty(), NO_FRAGMENTS),
            (true, DUPLICATES_FOUND),
            (xattrs.is_none(), NO_XATTRS),
            (self.options.compression.options().is_some(), COMPRESSOR_OPTIONS),
        ] {
            flags |= if there { flag } else { 0 };
        }
        let mut head = Vec::with_capacity(SUPERBLOCK_SIZE);
        for word in [MAGIC, tables.count, self.options.time, self.options.block_size, fragments.len() as u32]
        {
            head.extend_from_slice(&word.to_le_bytes());
        }
        let block_log = self.options.block_size.trailing_zeros() as u16;
        // The last two are the version of the format.
        for half in [self.options.compression.id(), block_log, flags, tables.ids.len(), 4, 0] {
            head.extend_from_slice(&half.to_le_bytes());
        }
        for double in [
            tables.root,
            bytes_used,
            id_table,
            xattrs.map_or(NO_TABLE, |(_, head)| head),
            inode_table,
            directory_table,
            fragment_table,
            // The table for NFS servers.
            NO_TABLE,
        ] {
            head.extend_from_slice(&double.to_le_bytes());
        }
        out.write_all_at(&head, 0)?;
        Ok(Written {
            bytes: bytes_used.next_multiple_of(PAGE),
            inodes: tables.count,
            duplicates,
            xattrs_left_out: tables.xattrs.left_out,
        })
    }
}

fn fragment_table(fragments: &[Fragment]) -> Vec<u8> {
    let mut table = Vec::with_capacity(16 * fragments.len());
    for fragment in fragments {
        table.extend_from_slice(&fragment.start.to_le_bytes());
        table.extend_from_slice(&fragment.size.to_le_bytes());
        table.extend_from_slice(&0u32.to_le_bytes());
    }
    table
}
