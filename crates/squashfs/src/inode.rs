//! Inodes.

use crate::error::{Error, Result};
use crate::filesystem::Filesystem;
use crate::metadata::{Cursor, Place};
use crate::source::Source;

/// The longest target of a symbolic link, as Linux has it (PATH_MAX without the end).
pub const LONGEST_TARGET: u32 = 4095;
/// "No attributes", "no fragment".
const NONE: u32 = u32::MAX;
const WHAT: &str = "inode";

/// Where an inode stands: the offset of its block in the table of inodes, and in the lower 16 bits its offset in the
/// decompressed block. It never changes, and takes no more than 48 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InodeRef(pub u64);

impl InodeRef {
    /// The reference as a directory has it.
    pub(crate) fn from_parts(block: u32, offset: u16) -> Self {
        InodeRef(u64::from(block) << 16 | u64::from(offset))
    }
}

/// An inode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inode {
    /// Where it stands.
    pub reference: InodeRef,
    /// Its number, which stat(2) shows.
    pub number: u32,
    /// The permission bits, with set-id and sticky bits, without the type.
    pub mode: u16,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// When it was modified, in seconds since 1970.
    pub mtime: u32,
    /// How many names it has, and for a directory also its subdirectories'.
    pub links: u32,
    /// The index of its extended attributes.
    pub xattrs: Option<u32>,
    /// What it is.
    pub body: Body,
}

/// What an inode is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// A directory.
    Directory(Directory),
    /// A regular file.
    File(File),
    /// A symbolic link with this target.
    Symlink(Box<[u8]>),
    /// A block device, by the kernel's number.
    BlockDevice(u32),
    /// A character device, by the kernel's number.
    CharDevice(u32),
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

/// What inode(7) calls the file type, as in st_mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum FileType {
    /// S_IFDIR.
    Directory = 0o040_000,
    /// S_IFREG.
    File = 0o100_000,
    /// S_IFLNK.
    Symlink = 0o120_000,
    /// S_IFBLK.
    BlockDevice = 0o060_000,
    /// S_IFCHR.
    CharDevice = 0o020_000,
    /// S_IFIFO.
    Fifo = 0o010_000,
    /// S_IFSOCK.
    Socket = 0o140_000,
}

impl FileType {
    /// By the number that directories and basic inodes have.
    pub(crate) fn from_number(number: u16) -> Option<Self> {
        use FileType::*;
        let all = [Directory, File, Symlink, BlockDevice, CharDevice, Fifo, Socket];
        all.get(usize::from(number).checked_sub(1)?).copied()
    }
}

/// Where a directory's entries stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Directory {
    /// The number of its parent's inode.
    pub parent: u32,
    /// How many bytes its entries take.
    pub(crate) size: u32,
    /// Its first header: the block's offset in the table of directories, and the offset in the block.
    pub(crate) block: u32,
    pub(crate) offset: u16,
    /// Its index, where it has one, and how many entries that has.
    pub(crate) index: Option<(Place, u16)>,
}

/// Where a file's contents stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct File {
    /// Its length.
    pub size: u64,
    /// Of it, how much is holes.
    pub sparse: u64,
    /// Where its first block begins.
    pub(crate) start: u64,
    /// The fragment with its end, and the offset in it.
    pub(crate) fragment: Option<(u32, u32)>,
    /// The list of its blocks.
    pub(crate) list: Place,
}

impl Inode {
    /// Its type.
    pub fn file_type(&self) -> FileType {
        match self.body {
            Body::Directory(_) => FileType::Directory,
            Body::File(_) => FileType::File,
            Body::Symlink(_) => FileType::Symlink,
            Body::BlockDevice(_) => FileType::BlockDevice,
            Body::CharDevice(_) => FileType::CharDevice,
            Body::Fifo => FileType::Fifo,
            Body::Socket => FileType::Socket,
        }
    }

    /// What stat(2) has as st_mode.
    pub fn st_mode(&self) -> u32 {
        self.file_type() as u32 | u32::from(self.mode)
    }

    /// What stat(2) has as st_size.
    pub fn size(&self) -> u64 {
        match &self.body {
            // As the kernel's driver shows it: with three bytes for "." and "..".
            Body::Directory(directory) => u64::from(directory.size) + 3,
            Body::File(file) => file.size,
            Body::Symlink(target) => target.len() as u64,
            _ => 0,
        }
    }

    pub(crate) fn read<S: Source>(fs: &Filesystem<S>, reference: InodeRef) -> Result<Self> {
        let superblock = fs.superblock();
        let block = superblock.inode_table.saturating_add(reference.0 >> 16);
        if block >= superblock.directory_table {
            let why = format!("the reference {:#x} leads out of the table of inodes", reference.0);
            return Err(Error::damaged(WHAT, block, why));
        }
        let place = Place { block, offset: (reference.0 & 0xffff) as usize };
        let mut at = Cursor::new(fs, WHAT, place, superblock.directory_table)?;
        let kind = at.u16()?;
        let mode = at.u16()? & 0o7777;
        let (uid, gid) = (at.u16()?, at.u16()?);
        let mtime = at.u32()?;
        let number = at.u32()?;
        let mut inode = Inode {
            reference,
            number,
            mode,
            uid: fs.id(uid)?,
            gid: fs.id(gid)?,
            mtime,
            links: 1,
            xattrs: None,
            body: Body::Socket,
        };
        // The types from 8 on are those from 1 on with wider fields and attributes.
        let extended = kind > 7;
        let basic = if extended { kind - 7 } else { kind };
        match FileType::from_number(basic) {
            Some(FileType::Directory) if extended => inode.extended_directory(&mut at)?,
            Some(FileType::Directory) => inode.directory(&mut at)?,
            Some(FileType::File) if extended => inode.extended_file(&mut at, superblock.block_size)?,
            Some(FileType::File) => inode.file(&mut at)?,
            Some(kind) => inode.special(&mut at, kind, extended)?,
            None => return Err(at.damaged(format!("the type {kind} does not exist"))),
        }
        Ok(inode)
    }

    fn directory<S: Source>(&mut self, at: &mut Cursor<S>) -> Result<()> {
        let block = at.u32()?;
        self.links = at.u32()?;
        let size = u32::from(at.u16()?).saturating_sub(3);
        let offset = at.u16()?;
        let parent = at.u32()?;
        self.body = Body::Directory(Directory { parent, size, block, offset, index: None });
        Ok(())
    }

    fn extended_directory<S: Source>(&mut self, at: &mut Cursor<S>) -> Result<()> {
        self.links = at.u32()?;
        let size = at.u32()?.saturating_sub(3);
        let block = at.u32()?;
        let parent = at.u32()?;
        let indices = at.u16()?;
        let offset = at.u16()?;
        self.xattrs = at.u32().map(some)?;
        let index = (indices > 0).then(|| (at.place(), indices));
        self.body = Body::Directory(Directory { parent, size, block, offset, index });
        Ok(())
    }

    fn file<S: Source>(&mut self, at: &mut Cursor<S>) -> Result<()> {
        let start = u64::from(at.u32()?);
        let fragment = fragment(at)?;
        let size = u64::from(at.u32()?);
        self.body = Body::File(File { size, sparse: 0, start, fragment, list: at.place() });
        Ok(())
    }

    fn extended_file<S: Source>(&mut self, at: &mut Cursor<S>, block_size: u32) -> Result<()> {
        let start = at.u64()?;
        let size = at.u64()?;
        let sparse = at.u64()?;
        self.links = at.u32()?;
        let fragment = fragment(at)?;
        self.xattrs = at.u32().map(some)?;
        let most = crate::file::MOST_BLOCKS * u64::from(block_size);
        if size > most {
            return Err(Error::too_large("length of a file", at.place().block, size, most));
        }
        self.body = Body::File(File { size, sparse, start, fragment, list: at.place() });
        Ok(())
    }

    fn special<S: Source>(&mut self, at: &mut Cursor<S>, kind: FileType, extended: bool) -> Result<()> {
        self.links = at.u32()?;
        self.body = match kind {
            FileType::Symlink => {
                let length = at.u32()?;
                if length > LONGEST_TARGET {
                    let (at, most) = (at.place().block, LONGEST_TARGET);
                    return Err(Error::too_large("target of a link", at, length.into(), most.into()));
                }
                let mut target = vec![0; length as usize];
                at.read(&mut target)?;
                Body::Symlink(target.into())
            }
            FileType::BlockDevice => Body::BlockDevice(at.u32()?),
            FileType::CharDevice => Body::CharDevice(at.u32()?),
            FileType::Fifo => Body::Fifo,
            _ => Body::Socket,
        };
        if extended {
            self.xattrs = at.u32().map(some)?;
        }
        Ok(())
    }
}

fn some(index: u32) -> Option<u32> {
    Some(index).filter(|index| *index != NONE)
}

fn fragment<S: Source>(at: &mut Cursor<S>) -> Result<Option<(u32, u32)>> {
    let (index, offset) = (at.u32()?, at.u32()?);
    Ok(some(index).map(|index| (index, offset)))
}
