//! A tar reader and writer for layers: POSIX ustar and pax, GNU's long names and sparse files.
//!
//! Own code, because the data of an entry is handed out as slices of the inflated pieces (no copy between inflate and
//! write), pax sparse files and `SCHILY.xattr` are needed, and every length of a hostile header is bounded. Pure: it reads
//! bytes and opens nothing. Format: pax(1) of POSIX and "Basic Tar Format" of the GNU tar manual.
//!
//! | file | what is in it |
//! |---|---|
//! | `read.rs` | headers in their order, and the data after them |
//! | `extended.rs` | what pax and GNU write before a header |
//! | `sparse.rs` | the maps of sparse files |
//! | `field.rs` | the fields of a header's block |
//! | `write.rs` | the way back |

mod extended;
mod field;
mod read;
mod sparse;
mod write;

use std::io;

pub use self::read::Reader;
pub use self::sparse::{SPARSE_LIMIT, SPARSE_SIZE};
pub use self::write::{pad, write_end, write_header};

/// The block of the format.
const BLOCK: usize = 512;

/// Bytes at the beginning of an archive that say that it is one.
pub const HEAD: usize = BLOCK;

/// True for the first bytes of an archive that has an entry, whatever is in the rest.
pub fn is_head(bytes: &[u8]) -> bool {
    bytes.first_chunk().is_some_and(|block| block.iter().any(|&b| b != 0) && field::check_sum(block).is_ok())
}

/// What an entry is, by its type flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
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

/// What the headers of one entry say; its data are still in the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The name as it is in the archive.
    pub path: Vec<u8>,
    /// Target of a link.
    pub link: Vec<u8>,
    /// What it makes.
    pub kind: EntryKind,
    /// Permission bits, with setuid, setgid and sticky.
    pub mode: u32,
    /// Owner.
    pub uid: u64,
    /// Group.
    pub gid: u64,
    /// Major and minor number of a device.
    pub device: (u32, u32),
    /// Size of the file.
    pub size: u64,
    /// Modification time, seconds and nanoseconds.
    pub mtime: (i64, u32),
    /// Extended attributes, name and value.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Where the data of a sparse file go; all of it in one piece otherwise.
    pub sparse: Option<Vec<Extent>>,
}

impl Header {
    /// The header of something that is empty and root's, of 1970.
    pub fn new(path: Vec<u8>, kind: EntryKind, mode: u32) -> Header {
        Header {
            path,
            link: Vec::new(),
            kind,
            mode,
            uid: 0,
            gid: 0,
            device: (0, 0),
            size: 0,
            mtime: (0, 0),
            xattrs: Vec::new(),
            sparse: None,
        }
    }

    /// Where the data of the file go.
    pub fn extents(&self) -> impl Iterator<Item = Extent> {
        let whole = Extent { offset: 0, length: self.size };
        let whole = self.sparse.is_none().then_some(whole);
        self.sparse.iter().flatten().copied().chain(whole)
    }

    /// Bytes of data that the archive has of the file: less than its size where it has holes.
    pub fn stored(&self) -> u64 {
        self.sparse.as_ref().map_or(self.size, |map| map.iter().map(|extent| extent.length).sum())
    }
}

fn bad(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("tar: {}", why.into()))
}
