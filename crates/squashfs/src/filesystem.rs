//! An image: its tables, its caches, and what can be asked of it.

use crate::cache::Cache;
use crate::directory::{self, Entries, Position};
use crate::error::{Error, Kind, Result};
use crate::file::{self, DataBlock, Landmarks, Piece, Spare};
use crate::inode::{Body, Directory, File, Inode, InodeRef};
use crate::metadata::{Cursor, MetadataBlock, Place};
use crate::source::Source;
use crate::superblock::Superblock;
use crate::xattr::{Xattr, XattrTable};
use std::sync::Arc;

/// Entries of the table of fragments in a block of metadata, and bytes of each.
const FRAGMENTS_PER_BLOCK: u32 = 512;
const FRAGMENT_SIZE: usize = 16;
/// The least that the caches take: a few blocks of each kind.
const LEAST_CACHE: usize = 4 << 20;

/// An image that is open. All of it can be used by several threads at a time.
#[derive(Debug)]
pub struct Filesystem<S> {
    source: S,
    superblock: Superblock,
    ids: Box<[u32]>,
    xattrs: Option<XattrTable>,
    metadata: Cache<MetadataBlock>,
    data: Cache<DataBlock>,
    spare: Arc<Spare>,
    landmarks: Landmarks,
}

impl<S: Source> Filesystem<S> {
    /// Opens an image, with caches of `cache` bytes in all.
    ///
    /// # Errors
    /// Where it is no squashfs 4.0, or its tables are not where they can be.
    pub fn open(source: S, cache: usize) -> Result<Self> {
        let superblock = Superblock::read(&source)?;
        let xattrs = match superblock.xattr_table {
            Some(at) => XattrTable::read(&source, at, superblock.bytes_used)?,
            None => None,
        };
        let cache = cache.max(LEAST_CACHE);
        let mut fs = Filesystem {
            source,
            superblock,
            ids: Box::default(),
            xattrs,
            metadata: Cache::new(cache / 4),
            data: Cache::new(cache - cache / 4),
            spare: Arc::default(),
            landmarks: Landmarks::default(),
        };
        fs.ids = fs.read_ids()?;
        match fs.inode(fs.root())?.body {
            Body::Directory(_) => Ok(fs),
            _ => Err(Error::damaged("superblock", 32, "the root is no directory")),
        }
    }

    /// The superblock.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Where the bytes come from.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// The inode of the root.
    pub fn root(&self) -> InodeRef {
        InodeRef(self.superblock.root)
    }

    /// True where any file of the image may have extended attributes.
    pub fn has_xattrs(&self) -> bool {
        self.xattrs.is_some()
    }

    /// Reads an inode.
    ///
    /// # Errors
    /// Where there is none, or it is damaged.
    pub fn inode(&self, reference: InodeRef) -> Result<Inode> {
        Inode::read(self, reference)
    }

    /// The inode of a name in a directory.
    ///
    /// # Errors
    /// Where the directory is damaged.
    pub fn find(&self, directory: &Directory, name: &[u8]) -> Result<Option<InodeRef>> {
        directory::find(self, directory, name)
    }

    /// The names in a directory from `position` on, without "." and "..".
    ///
    /// # Errors
    /// Where the directory is damaged, or does not have this position.
    pub fn entries(&self, directory: &Directory, position: Position) -> Result<Entries<'_, S>> {
        Entries::new(self, directory, position)
    }

    /// Reads up to `length` bytes of a file; less only at its end. `inode` is the file's.
    ///
    /// # Errors
    /// Where the contents are damaged.
    pub fn read(&self, inode: InodeRef, file: &File, offset: u64, length: usize) -> Result<Vec<Piece>> {
        file::read(self, inode, file, offset, length)
    }

    /// All of a regular file of at most `most` bytes. None of anything else.
    ///
    /// # Errors
    /// Where the contents are damaged.
    pub fn contents(&self, inode: &Inode, most: usize) -> Result<Option<Vec<u8>>> {
        let Body::File(file) = &inode.body else { return Ok(None) };
        if file.size > most as u64 {
            return Ok(None);
        }
        let mut bytes = Vec::with_capacity(file.size as usize);
        for piece in self.read(inode.reference, file, 0, most)? {
            match &piece {
                Piece::Block(block, range) => bytes.extend_from_slice(&block.bytes()[range.clone()]),
                Piece::Hole(length) => bytes.resize(bytes.len() + length, 0),
            }
        }
        Ok(Some(bytes))
    }

    /// The extended attributes of an inode.
    ///
    /// # Errors
    /// Where they are damaged.
    pub fn xattrs(&self, inode: &Inode) -> Result<Vec<Xattr>> {
        match (&self.xattrs, inode.xattrs) {
            (Some(table), Some(index)) => table.attributes(self, index),
            _ => Ok(Vec::new()),
        }
    }

    /// The user or group id of this index.
    pub(crate) fn id(&self, index: u16) -> Result<u32> {
        let id = self.ids.get(usize::from(index));
        id.copied().ok_or_else(|| {
            let why = format!("id {index} of {}", self.ids.len());
            Error::damaged("table of ids", self.superblock.id_table, why)
        })
    }

    pub(crate) fn metadata_block(&self, what: &'static str, at: u64, end: u64) -> Result<Arc<MetadataBlock>> {
        self.metadata.get_or_make(at, || MetadataBlock::read(self, what, at, end))
    }

    /// A block of data by where it stands. `expected` is its length, or 0 for that of any. With `once`, it is not kept.
    pub(crate) fn data_block(
        &self,
        at: u64,
        length: u32,
        expected: usize,
        once: bool,
    ) -> Result<Arc<DataBlock>> {
        let make = || file::read_block(self, at, length, expected);
        let block = match once {
            true => match self.data.get(at) {
                Some(block) => block,
                None => return make().map(Arc::new),
            },
            false => self.data.get_or_make(at, make)?,
        };
        // These bytes may have been read before as a part of something else, of another length.
        if expected != 0 && block.bytes().len() != expected {
            let why = format!("a block of {} bytes where there should be {expected}", block.bytes().len());
            return Err(Error::damaged("file contents", at, why));
        }
        Ok(block)
    }

    /// Where the block of a fragment stands, and its length.
    pub(crate) fn fragment(&self, index: u32) -> Result<(u64, u32)> {
        const WHAT: &str = "table of fragments";
        let count = self.superblock.fragments;
        let table = self
            .superblock
            .fragment_table
            .filter(|_| index < count)
            .ok_or_else(|| Error::damaged(WHAT, 0, format!("fragment {index} of {count}")))?;
        let at = table + u64::from(index / FRAGMENTS_PER_BLOCK) * 8;
        let block = self.table_index(WHAT, at, table)?;
        let offset = (index % FRAGMENTS_PER_BLOCK) as usize * FRAGMENT_SIZE;
        let mut cursor = Cursor::new(self, WHAT, Place { block, offset }, table)?;
        Ok((cursor.u64()?, cursor.u32()?))
    }

    /// An entry of the index of a table: where one of its blocks of metadata begins, which is before `end`.
    pub(crate) fn table_index(&self, what: &'static str, at: u64, end: u64) -> Result<u64> {
        let mut bytes = [0u8; 8];
        self.source.read_exact_at(&mut bytes, at).map_err(|e| Error::io(what, at, &e))?;
        let block = u64::from_le_bytes(bytes);
        match block < end {
            true => Ok(block),
            false => Err(Error::damaged(what, at, format!("a block at byte {block:#x}, behind its index"))),
        }
    }

    pub(crate) fn spare(&self) -> &Arc<Spare> {
        &self.spare
    }

    pub(crate) fn landmarks(&self) -> &Landmarks {
        &self.landmarks
    }

    fn read_ids(&self) -> Result<Box<[u32]>> {
        const WHAT: &str = "table of ids";
        let Superblock { id_table, ids, .. } = self.superblock;
        let mut all = Vec::with_capacity(ids.into());
        for block in 0..ids.div_ceil(2048) {
            let at = self.table_index(WHAT, id_table + u64::from(block) * 8, id_table)?;
            let mut cursor = Cursor::new(self, WHAT, Place { block: at, offset: 0 }, id_table)?;
            for _ in 0..(ids - block * 2048).min(2048) {
                all.push(cursor.u32()?);
            }
        }
        Ok(all.into())
    }
}

/// What a failed system call would say about an error (errno(3)): EIO for what is damaged.
impl Error {
    /// The errno(3) value that a file system returns for it.
    pub fn errno(&self) -> i32 {
        const EIO: i32 = 5;
        const EFBIG: i32 = 27;
        match self.kind() {
            Kind::Io(Some(errno)) => errno,
            Kind::TooLarge => EFBIG,
            _ => EIO,
        }
    }
}
