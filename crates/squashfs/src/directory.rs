//! Directories: runs of entries whose inodes stand in the same block, each with a header.

use crate::error::{Error, Result};
use crate::filesystem::Filesystem;
use crate::inode::{Directory, FileType, InodeRef};
use crate::metadata::{Cursor, METADATA_SIZE, Place};
use crate::source::Source;

const WHAT: &str = "directory";
/// Entries of one run.
const LONGEST_RUN: u32 = 256;
/// Bytes of a header, and of an entry without its name.
const HEADER_SIZE: u64 = 12;
const ENTRY_SIZE: u64 = 8;
/// The longest name, as Linux has it (NAME_MAX). The format would have room for one byte more.
pub const LONGEST_NAME: usize = 255;
/// The most that a directory's entries may take: some ten million of them.
const LARGEST: u32 = 256 << 20;
/// Bits of a [`Position`] for the place in a run, which takes at most 256 * (8 + 256) bytes.
const RUN_BITS: u32 = 20;

/// A place in a directory from which it can be read on. The start is 0.
///
/// It is the offset of a run's header, and the offset of the entry behind it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Position(pub u64);

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name: neither empty nor "." nor "..", without '/' and NUL.
    pub name: Vec<u8>,
    /// Its inode.
    pub inode: InodeRef,
    /// The number of its inode, as the directory has it.
    pub number: u32,
    /// The type of its inode, as the directory has it.
    pub file_type: FileType,
    /// Where the next entry stands.
    pub next: Position,
}

/// Reads a directory.
pub struct Entries<'a, S> {
    /// `None` where there is nothing to read.
    cursor: Option<Cursor<'a, S>>,
    size: u64,
    /// How many bytes of the entries are read.
    read: u64,
    run: Run,
}

/// The header of a run, and what is left of it.
#[derive(Debug, Clone, Copy, Default)]
struct Run {
    /// Its offset among the directory's entries.
    at: u64,
    left: u32,
    block: u32,
    number: u32,
}

impl<'a, S: Source> Entries<'a, S> {
    pub(crate) fn new(fs: &'a Filesystem<S>, directory: &Directory, position: Position) -> Result<Self> {
        let mut entries = Self::at(fs, directory, first_place(fs, directory), 0)?;
        let (header, in_run) = (position.0 >> RUN_BITS, position.0 & ((1 << RUN_BITS) - 1));
        if let Some(cursor) = &mut entries.cursor {
            if header + in_run > entries.size {
                return Err(cursor.damaged("a position behind the end of the directory"));
            }
            cursor.skip(header)?;
            entries.read = header;
        }
        if in_run > 0 {
            entries.header()?;
            let target = header + in_run;
            while entries.read < target && entries.run.left > 0 {
                entries.skip_entry()?;
            }
            if entries.read != target {
                return Err(Error::damaged(WHAT, position.0, "a position between two entries"));
            }
        }
        Ok(entries)
    }

    /// Begins at a header, of which `read` bytes of entries stand before.
    fn at(fs: &'a Filesystem<S>, directory: &Directory, place: Place, read: u64) -> Result<Self> {
        let superblock = fs.superblock();
        if directory.size > LARGEST {
            let (found, most) = (directory.size.into(), LARGEST.into());
            return Err(Error::too_large(WHAT, place.block, found, most));
        }
        if place.block >= superblock.directory_end && directory.size > 0 {
            return Err(Error::damaged(WHAT, place.block, "it begins outside of the table of directories"));
        }
        let cursor = match directory.size {
            0 => None,
            _ => Some(Cursor::new(fs, WHAT, place, superblock.directory_end)?),
        };
        Ok(Entries { cursor, size: directory.size.into(), read, run: Run::default() })
    }

    /// The next entry, or `None` at the end.
    ///
    /// # Errors
    /// Where the directory is damaged.
    pub fn next_entry(&mut self) -> Result<Option<Entry>> {
        if self.run.left == 0 {
            if self.read >= self.size {
                return Ok(None);
            }
            self.header()?;
        }
        self.entry().map(Some)
    }

    fn cursor(&mut self) -> Result<&mut Cursor<'a, S>> {
        self.cursor.as_mut().ok_or_else(|| Error::damaged(WHAT, 0, "it is empty"))
    }

    /// Takes `count` bytes from what the directory says that its entries take.
    fn take(&mut self, count: u64) -> Result<()> {
        self.read += count;
        let (read, size) = (self.read, self.size);
        match read > size {
            true => Err(self.cursor()?.damaged("the entries go beyond the end of the directory")),
            false => Ok(()),
        }
    }

    fn header(&mut self) -> Result<()> {
        let at = self.read;
        self.take(HEADER_SIZE)?;
        let cursor = self.cursor()?;
        let left = cursor.u32()?.saturating_add(1);
        let (block, number) = (cursor.u32()?, cursor.u32()?);
        if left > LONGEST_RUN {
            return Err(cursor.damaged(format!("a run of {left} entries")));
        }
        self.run = Run { at, left, block, number };
        Ok(())
    }

    /// The fixed part of an entry: offset of the inode, difference of its number, type, length of the name.
    fn fixed(&mut self) -> Result<(u16, i16, u16, usize)> {
        let cursor = self.cursor()?;
        let (offset, difference) = (cursor.u16()?, cursor.u16()? as i16);
        let (kind, length) = (cursor.u16()?, usize::from(cursor.u16()?) + 1);
        if length > LONGEST_NAME {
            return Err(cursor.damaged(format!("a name of {length} bytes")));
        }
        self.take(ENTRY_SIZE + length as u64)?;
        self.run.left -= 1;
        Ok((offset, difference, kind, length))
    }

    fn skip_entry(&mut self) -> Result<()> {
        let (.., length) = self.fixed()?;
        self.cursor()?.skip(length as u64)
    }

    fn entry(&mut self) -> Result<Entry> {
        let (offset, difference, kind, length) = self.fixed()?;
        let run = self.run;
        let next = match run.left {
            0 => Position(self.read << RUN_BITS),
            _ => Position(run.at << RUN_BITS | (self.read - run.at)),
        };
        let cursor = self.cursor()?;
        let mut name = vec![0; length];
        cursor.read(&mut name)?;
        if name.iter().any(|byte| matches!(byte, 0 | b'/')) || name == b"." || name == b".." {
            return Err(cursor.damaged(format!("the name {:?}", String::from_utf8_lossy(&name))));
        }
        let file_type = FileType::from_number(kind)
            .ok_or_else(|| cursor.damaged(format!("an entry of type {kind}, which does not exist")))?;
        let inode = InodeRef::from_parts(run.block, offset);
        let number = run.number.wrapping_add_signed(difference.into());
        Ok(Entry { name, inode, number, file_type, next })
    }
}

/// Finds a name.
pub(crate) fn find<S: Source>(
    fs: &Filesystem<S>,
    directory: &Directory,
    name: &[u8],
) -> Result<Option<InodeRef>> {
    if name.is_empty() || name.len() > LONGEST_NAME {
        return Ok(None);
    }
    let (place, read) = match directory.index {
        Some((index, count)) => from_index(fs, directory, index, count, name)?,
        None => (first_place(fs, directory), 0),
    };
    let mut entries = Entries::at(fs, directory, place, read)?;
    while let Some(entry) = entries.next_entry()? {
        if entry.name == name {
            return Ok(Some(entry.inode));
        }
        // Entries are in the order of their bytes. The kernel relies on the first byte alone, so that is what writers keep.
        if entry.name[0] > name[0] {
            break;
        }
    }
    Ok(None)
}

fn first_place<S: Source>(fs: &Filesystem<S>, directory: &Directory) -> Place {
    let block = fs.superblock().directory_table.saturating_add(directory.block.into());
    Place { block, offset: directory.offset.into() }
}

/// The last run whose first name does not come after `name`, and how many bytes of entries stand before it.
fn from_index<S: Source>(
    fs: &Filesystem<S>,
    directory: &Directory,
    index: Place,
    count: u16,
    name: &[u8],
) -> Result<(Place, u64)> {
    let table = fs.superblock().directory_table;
    let mut found = (first_place(fs, directory), 0);
    let mut cursor = Cursor::new(fs, "index of a directory", index, table)?;
    let mut first = [0; LONGEST_NAME + 1];
    for _ in 0..count {
        let (before, block) = (cursor.u32()?, cursor.u32()?);
        let length = cursor.u32()?.saturating_add(1) as usize;
        let first = first.get_mut(..length).ok_or_else(|| cursor.damaged("a name in it is too long"))?;
        cursor.read(first)?;
        if &*first > name {
            break;
        }
        let offset = (u64::from(before) + u64::from(directory.offset)) % METADATA_SIZE as u64;
        if before >= directory.size {
            return Err(cursor.damaged("it leads behind the end of the directory"));
        }
        found = (Place { block: table.saturating_add(block.into()), offset: offset as usize }, before.into());
    }
    Ok(found)
}
