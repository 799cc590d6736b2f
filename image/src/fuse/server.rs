//! Answers the kernel's requests from an image.
//!
//! What makes it fast is what the kernel does not ask for: names, attributes, links and directories are kept for good,
//! and so are names that are not there; OPEN, OPENDIR, FLUSH and GETXATTR are asked for once and never again (ENOSYS).
//! A node is the place of its inode in the image, so there is no table of nodes and FORGET means nothing.

use super::abi::{self, Answer, Attributes, BLOCK, DirectoryEntry, Init, Request, flag, opcode};
use rt_sys::error::{Context, Result};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use squashfs::{Body, FileType, Filesystem, Inode, InodeRef, Piece, Position, Source, Superblock};
use std::io::IoSlice;

/// The longest request: the kernel wants room for a write of 4 KiB with its head.
const REQUEST_SIZE: usize = 16 << 10;
/// Nodes are places in the image, behind 0, which means nothing, and [`abi::ROOT`].
const FIRST_NODE: u64 = 2;
/// Bytes of one read. In blocks of 4 KiB, which are the smallest, that is fewer parts than one writev(2) takes (IOV_MAX),
/// with pages of 64 KiB, too.
const MOST_READ: usize = 1 << 20;
/// Positions of a directory behind "." and "..".
const FIRST_POSITION: u64 = 2;

/// What holes are answered with.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// To whom files belong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// To those that the image names.
    OfImage,
    /// All to this user and group.
    One(u32, u32),
}

/// A mounted image.
#[derive(Debug)]
pub(crate) struct Server<S> {
    fs: Filesystem<S>,
    owner: Owner,
}

/// What a request is answered with.
enum Reply {
    /// What stands in the answer.
    Answer,
    /// The contents of a file.
    Contents(Vec<Piece>),
    /// An errno(3) value.
    Error(i32),
    /// Nothing: the kernel expects no answer.
    None,
}

impl From<squashfs::Error> for Reply {
    fn from(error: squashfs::Error) -> Self {
        // Nobody reads what a server says, so all that is left of it is the errno.
        Reply::Error(error.errno())
    }
}

impl<S: Source> Server<S> {
    pub(crate) fn new(fs: Filesystem<S>, owner: Owner) -> Self {
        Server { fs, owner }
    }

    /// The image.
    pub(crate) fn image(&self) -> &Filesystem<S> {
        &self.fs
    }

    /// Answers requests until the file system is unmounted everywhere.
    ///
    /// # Errors
    /// Requests are left without an answer: whoever waits for one waits until the session ends.
    pub(crate) fn serve(&self, device: &OwnedFd) -> Result<()> {
        let mut buffer = vec![0; REQUEST_SIZE];
        let mut answer = Answer::default();
        loop {
            let length = match rustix::io::read(device, &mut buffer) {
                Ok(length) => length,
                Err(e) if is_end(e) => return Ok(()),
                // The program that waited for an answer was killed before this read.
                Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => continue,
                Err(e) => return Err(e).context(|| "read a request"),
            };
            let Some(request) = Request::parse(&buffer[..length]) else { continue };
            answer.start();
            let reply = self.act(&request, &mut answer).unwrap_or_else(Reply::from);
            let sent = match send(device, request.unique, &mut answer, &reply) {
                // The kernel does not take this answer. The program that waits for it is told so, and is the only one.
                Err(e) if !is_end(e) && e != Errno::NOENT => {
                    send(device, request.unique, &mut answer, &Reply::Error(libc::EIO))
                }
                sent => sent,
            };
            match sent {
                // The program that waited is gone.
                Ok(()) | Err(Errno::NOENT) => {}
                Err(e) if is_end(e) => return Ok(()),
                Err(e) => return Err(e).context(|| "answer a request"),
            }
        }
    }

    /// What a request does, without a device.
    pub(crate) fn answer_one(&self, bytes: &[u8]) {
        let mut answer = Answer::default();
        answer.start();
        if let Some(request) = Request::parse(bytes) {
            let _ = self.act(&request, &mut answer);
        }
    }

    fn act(&self, request: &Request, answer: &mut Answer) -> squashfs::Result<Reply> {
        match request.opcode {
            opcode::LOOKUP => return self.lookup(request, answer),
            opcode::GETATTR => {
                let inode = self.inode(request.node)?;
                answer.attributes_out(&self.attributes(&inode));
            }
            opcode::READLINK => match self.inode(request.node)?.body {
                Body::Symlink(target) => answer.bytes(&target),
                _ => return Ok(Reply::Error(libc::EINVAL)),
            },
            opcode::READ => return self.read(request),
            opcode::READDIR => return self.read_directory(request, answer, false),
            opcode::READDIRPLUS => return self.read_directory(request, answer, true),
            opcode::STATFS => {
                let Superblock { bytes_used, inodes, .. } = *self.fs.superblock();
                answer.statfs(bytes_used.div_ceil(BLOCK.into()), inodes.into());
            }
            opcode::GETXATTR | opcode::LISTXATTR if self.fs.has_xattrs() => {
                return self.attribute(request, answer);
            }
            opcode::INIT => return Ok(init(request, answer)),
            opcode::DESTROY => {}
            opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT => return Ok(Reply::None),
            // No file of an image takes a request. Programs try whether a file is a terminal.
            opcode::IOCTL => return Ok(Reply::Error(libc::ENOTTY)),
            // OPEN, OPENDIR, FLUSH, STATX, LSEEK and the rest: the kernel does them itself, and does not ask again.
            _ => return Ok(Reply::Error(libc::ENOSYS)),
        }
        Ok(Reply::Answer)
    }

    fn reference(&self, node: u64) -> InodeRef {
        match node {
            abi::ROOT => self.fs.root(),
            node => InodeRef(node.wrapping_sub(FIRST_NODE)),
        }
    }

    fn node(&self, reference: InodeRef) -> u64 {
        if reference == self.fs.root() { abi::ROOT } else { reference.0 + FIRST_NODE }
    }

    fn inode(&self, node: u64) -> squashfs::Result<Inode> {
        self.fs.inode(self.reference(node))
    }

    fn attributes(&self, inode: &Inode) -> Attributes {
        let (uid, gid) = match self.owner {
            Owner::OfImage => (inode.uid, inode.gid),
            Owner::One(uid, gid) => (uid, gid),
        };
        let size = inode.size();
        let (device, sparse) = match &inode.body {
            Body::BlockDevice(number) | Body::CharDevice(number) => (*number, 0),
            Body::File(file) => (0, file.sparse),
            _ => (0, 0),
        };
        Attributes {
            ino: inode.number.into(),
            size,
            blocks: size.saturating_sub(sparse).div_ceil(512),
            time: inode.mtime.into(),
            mode: inode.st_mode(),
            links: inode.links,
            uid,
            gid,
            device,
        }
    }

    fn lookup(&self, request: &Request, answer: &mut Answer) -> squashfs::Result<Reply> {
        let Body::Directory(directory) = self.inode(request.node)?.body else {
            return Ok(Reply::Error(libc::ENOTDIR));
        };
        match self.fs.find(&directory, request.body.name(0))? {
            Some(found) => {
                let inode = self.fs.inode(found)?;
                answer.entry(self.node(found), &self.attributes(&inode));
            }
            // Node 0: there is no such name, and the kernel may keep that in mind.
            None => answer.entry(0, &Attributes::default()),
        }
        Ok(Reply::Answer)
    }

    fn read(&self, request: &Request) -> squashfs::Result<Reply> {
        let (offset, size) = (request.body.u64(8), (request.body.u32(16) as usize).min(MOST_READ));
        let reference = self.reference(request.node);
        match self.fs.inode(reference)?.body {
            Body::File(file) => Ok(Reply::Contents(self.fs.read(reference, &file, offset, size)?)),
            _ => Ok(Reply::Error(libc::EINVAL)),
        }
    }

    fn read_directory(&self, request: &Request, answer: &mut Answer, plus: bool) -> squashfs::Result<Reply> {
        let (mut position, room) = (request.body.u64(8), request.body.u32(16) as usize);
        let inode = self.inode(request.node)?;
        let Body::Directory(directory) = &inode.body else { return Ok(Reply::Error(libc::ENOTDIR)) };
        let parent = if request.node == abi::ROOT { inode.number } else { directory.parent };
        for (ino, name) in [(inode.number, &b"."[..]), (parent, b"..")].into_iter().skip(position as usize) {
            position += 1;
            let file_type = FileType::Directory;
            let entry = DirectoryEntry { ino: ino.into(), next: position, file_type, name };
            if !answer.directory_entry(&entry, None, plus, room) {
                return Ok(Reply::Answer);
            }
        }
        let mut entries = self.fs.entries(directory, Position(position - FIRST_POSITION))?;
        while let Some(found) = entries.next_entry()? {
            let next = found.next.0 + FIRST_POSITION;
            let entry = DirectoryEntry {
                ino: found.number.into(),
                next,
                file_type: found.file_type,
                name: &found.name,
            };
            let attributes = match plus {
                true => Some(self.attributes(&self.fs.inode(found.inode)?)),
                false => None,
            };
            let with = attributes.as_ref().map(|attributes| (self.node(found.inode), attributes));
            if !answer.directory_entry(&entry, with, plus, room) {
                break;
            }
        }
        Ok(Reply::Answer)
    }

    /// GETXATTR and LISTXATTR. A size of 0 asks how long the answer is.
    fn attribute(&self, request: &Request, answer: &mut Answer) -> squashfs::Result<Reply> {
        let size = request.body.u32(0) as usize;
        let mut all = self.fs.xattrs(&self.inode(request.node)?)?;
        all.retain(|xattr| !rt_sys::disk::is_steering(&xattr.name));
        let value = match request.opcode {
            opcode::LISTXATTR => {
                all.iter().flat_map(|xattr| xattr.name.iter().copied().chain([0])).collect::<Vec<u8>>()
            }
            _ => {
                let name = request.body.name(8);
                match all.into_iter().find(|xattr| xattr.name == name) {
                    Some(xattr) => xattr.value,
                    None => return Ok(Reply::Error(libc::ENODATA)),
                }
            }
        };
        match size {
            0 => {
                answer.u32(value.len() as u32);
                answer.u32(0);
            }
            _ if value.len() > size => return Ok(Reply::Error(libc::ERANGE)),
            _ => answer.bytes(&value),
        }
        Ok(Reply::Answer)
    }
}

fn init(request: &Request, answer: &mut Answer) -> Reply {
    let (major, max_readahead, offered) = (request.body.u32(0), request.body.u32(8), request.body.u32(12));
    if major != abi::MAJOR {
        return Reply::Error(libc::EPROTO);
    }
    let wanted = flag::ASYNC_READ
        | flag::DO_READDIRPLUS
        | flag::READDIRPLUS_AUTO
        | flag::ASYNC_DIO
        | flag::NO_OPEN_SUPPORT
        | flag::PARALLEL_DIROPS
        | flag::MAX_PAGES
        | flag::CACHE_SYMLINKS
        | flag::NO_OPENDIR_SUPPORT;
    let max_pages = (MOST_READ / rt_sys::start::page_size()) as u16;
    answer.init(&Init { max_readahead, flags: offered & wanted, background: 64, max_pages });
    Reply::Answer
}

/// True for what the kernel says of a file system that is unmounted, or was given up.
fn is_end(e: Errno) -> bool {
    matches!(e, Errno::NODEV | Errno::CONNABORTED)
}

/// Has the kernel ask again for everything that was read from the session of `device` and is not answered.
///
/// # Errors
/// Before Linux 6.9.
pub(crate) fn ask_again(device: impl AsFd) -> Result<()> {
    Ok(rustix::io::write(device, &abi::notification(abi::NOTIFY_RESEND)).map(drop)?)
}

/// Writes an answer, which has to be one write(2).
fn send(device: impl AsFd, unique: u64, answer: &mut Answer, reply: &Reply) -> Result<(), Errno> {
    match reply {
        Reply::None => Ok(()),
        Reply::Answer => write_one(device, answer.finish(unique, 0, 0)),
        Reply::Error(errno) => {
            answer.start();
            write_one(device, answer.finish(unique, *errno, 0))
        }
        Reply::Contents(pieces) => {
            let length = pieces.iter().map(Piece::size).sum();
            let mut parts = vec![IoSlice::new(answer.finish(unique, 0, length))];
            for piece in pieces {
                match piece {
                    Piece::Block(block, range) => parts.push(IoSlice::new(&block.bytes()[range.clone()])),
                    Piece::Hole(length) => {
                        let whole = length / ZEROS.len();
                        parts.extend(std::iter::repeat_n(IoSlice::new(&ZEROS), whole));
                        parts.push(IoSlice::new(&ZEROS[..length % ZEROS.len()]));
                    }
                }
            }
            let all = parts.iter().map(|part| part.len()).sum();
            whole(rustix::io::writev(device, &parts)?, all)
        }
    }
}

fn write_one(device: impl AsFd, bytes: &[u8]) -> Result<(), Errno> {
    whole(rustix::io::write(device, bytes)?, bytes.len())
}

/// An answer of which the kernel took only a part is none.
fn whole(taken: usize, all: usize) -> Result<(), Errno> {
    if taken == all { Ok(()) } else { Err(Errno::IO) }
}
