//! The superblock: where the tables are, and how everything is compressed.

use crate::decompress::Compression;
use crate::error::{Error, Kind, Result};
use crate::source::Source;

/// The length of the superblock. Nothing else of the image begins before its end.
pub const SUPERBLOCK_SIZE: u64 = 96;
/// Offset of a table that the image does not have.
const NO_TABLE: u64 = u64::MAX;
const MAGIC: u32 = 0x7371_7368;
/// "hsqs" the other way round: an image of version 3 or older, written on a big-endian machine.
const MAGIC_SWAPPED: u32 = 0x6873_7173;
const SMALLEST_BLOCK: u32 = 4 << 10;
const LARGEST_BLOCK: u32 = 1 << 20;
/// The image has no attributes, whatever the table says.
const FLAG_NO_XATTRS: u16 = 0x200;

/// A checked superblock. Offsets are of the image, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Superblock {
    /// How many inodes there are.
    pub inodes: u32,
    /// When the image was made, in seconds since 1970.
    pub made: u32,
    /// The size of data blocks.
    pub block_size: u32,
    /// How many fragments there are.
    pub fragments: u32,
    /// How blocks are compressed.
    pub compression: Compression,
    /// How many user and group ids there are.
    pub ids: u16,
    /// The reference of the root's inode.
    pub root: u64,
    /// Where the image ends; the file may be padded.
    pub bytes_used: u64,
    /// The index of the table of ids.
    pub id_table: u64,
    /// The table of extended attributes, if there are any.
    pub xattr_table: Option<u64>,
    /// The inodes, up to `directory_table`.
    pub inode_table: u64,
    /// The directories, up to `directory_end`.
    pub directory_table: u64,
    /// The end of the directories.
    pub directory_end: u64,
    /// The index of the table of fragments, if there are any.
    pub fragment_table: Option<u64>,
}

impl Superblock {
    /// Reads and checks it.
    pub(crate) fn read(source: &impl Source) -> Result<Self> {
        let mut bytes = [0u8; SUPERBLOCK_SIZE as usize];
        if source.size() < SUPERBLOCK_SIZE {
            let why = format!("not a squashfs: it has only {} bytes", source.size());
            return Err(Error::new(Kind::NotSquashfs, "superblock", 0, why));
        }
        source.read_exact_at(&mut bytes, 0).map_err(|e| Error::io("superblock", 0, &e))?;
        let superblock = Self::parse(&bytes)?;
        superblock.check(source.size())?;
        Ok(superblock)
    }

    fn parse(bytes: &[u8; SUPERBLOCK_SIZE as usize]) -> Result<Self> {
        let u16 = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let u32 = |at: usize| u32::from(u16(at)) | u32::from(u16(at + 2)) << 16;
        let u64 = |at: usize| u64::from(u32(at)) | u64::from(u32(at + 4)) << 32;
        let table = |at: usize| Some(u64(at)).filter(|at| *at != NO_TABLE);
        match u32(0) {
            MAGIC => {}
            MAGIC_SWAPPED => return Err(unsupported(0, "squashfs of a big-endian machine")),
            _ => {
                let why = "not a squashfs: the first four bytes are not \"hsqs\"";
                return Err(Error::new(Kind::NotSquashfs, "superblock", 0, why));
            }
        }
        if (u16(28), u16(30)) != (4, 0) {
            return Err(unsupported(28, format!("squashfs {}.{}, not 4.0", u16(28), u16(30))));
        }
        let compression = Compression::from_id(u16(20))
            .ok_or_else(|| unsupported(20, format!("compression {} is not known", u16(20))))?;
        let block_size = u32(12);
        if !block_size.is_power_of_two() || !(SMALLEST_BLOCK..=LARGEST_BLOCK).contains(&block_size) {
            return Err(damaged(12, format!("a block size of {block_size}")));
        }
        if u32::from(u16(22)) != block_size.trailing_zeros() {
            return Err(damaged(22, format!("block size {block_size} and its logarithm {} differ", u16(22))));
        }
        let (directory_table, id_table) = (u64(72), u64(48));
        let (fragments, fragment_table) = (u32(16), table(80));
        Ok(Superblock {
            inodes: u32(4),
            made: u32(8),
            block_size,
            fragments,
            compression,
            ids: u16(26),
            root: u64(32),
            bytes_used: u64(40),
            id_table,
            xattr_table: table(56).filter(|_| u16(24) & FLAG_NO_XATTRS == 0),
            inode_table: u64(64),
            directory_table,
            // The tables behind it have their blocks before their index, so that only an upper bound is known.
            directory_end: [fragment_table, table(88), Some(id_table)]
                .into_iter()
                .flatten()
                .filter(|at| *at > directory_table)
                .min()
                .unwrap_or(id_table),
            fragment_table: fragment_table.filter(|_| fragments > 0),
        })
    }

    /// The order of the tables, which keeps each of them inside the image.
    fn check(&self, size: u64) -> Result<()> {
        if self.bytes_used > size {
            let why = format!("the image is cut off: it has {size} bytes of {}", self.bytes_used);
            return Err(damaged(40, why));
        }
        if self.inodes == 0 || self.ids == 0 {
            return Err(damaged(4, "no inodes or no ids"));
        }
        if self.fragments > 0 && self.fragment_table.is_none() {
            return Err(damaged(80, format!("{} fragments and no table of them", self.fragments)));
        }
        let in_order = SUPERBLOCK_SIZE <= self.inode_table
            && self.inode_table < self.directory_table
            && self.directory_table <= self.directory_end
            && self.directory_end < self.bytes_used;
        if !in_order {
            return Err(damaged(64, "the tables of inodes and directories are not in order"));
        }
        let others = [Some(self.id_table), self.xattr_table, self.fragment_table];
        if others.into_iter().flatten().any(|at| at < self.directory_table || at >= self.bytes_used) {
            return Err(damaged(48, "a table begins outside of the image"));
        }
        Ok(())
    }
}

fn unsupported(at: u64, why: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(Kind::Unsupported, "superblock", at, why)
}

fn damaged(at: u64, why: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::damaged("superblock", at, why)
}
