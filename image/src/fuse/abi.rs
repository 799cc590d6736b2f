//! The kernel's protocol (linux/fuse.h), as far as a read-only file system needs it: requests are read from bytes and
//! answers are written to bytes, in the machine's byte order.

use squashfs::FileType;

/// The version of the protocol that this server speaks: that of Linux 5.14, with what later ones ask for by flags.
pub(crate) const MAJOR: u32 = 7;
pub(crate) const MINOR: u32 = 34;
/// The node of the root.
pub(crate) const ROOT: u64 = 1;

/// A notification (`enum fuse_notify_code`).
pub(crate) const NOTIFY_RESEND: u32 = 7;

/// What tells the kernel something that it has not asked for (`struct fuse_out_header` with the code in the place of the
/// error, and of no request).
pub(crate) fn notification(code: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&16u32.to_ne_bytes());
    bytes[4..8].copy_from_slice(&code.to_ne_bytes());
    bytes
}

/// What a request asks for (`enum fuse_opcode`).
pub(crate) mod opcode {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const READ: u32 = 15;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const IOCTL: u32 = 39;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const READDIRPLUS: u32 = 44;
}

/// Flags of INIT.
pub(crate) mod flag {
    pub(crate) const ASYNC_READ: u32 = 1 << 0;
    pub(crate) const DO_READDIRPLUS: u32 = 1 << 13;
    pub(crate) const READDIRPLUS_AUTO: u32 = 1 << 14;
    pub(crate) const ASYNC_DIO: u32 = 1 << 15;
    pub(crate) const NO_OPEN_SUPPORT: u32 = 1 << 17;
    pub(crate) const PARALLEL_DIROPS: u32 = 1 << 18;
    pub(crate) const MAX_PAGES: u32 = 1 << 22;
    pub(crate) const CACHE_SYMLINKS: u32 = 1 << 23;
    pub(crate) const NO_OPENDIR_SUPPORT: u32 = 1 << 24;
}

/// A request (`struct fuse_in_header`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    pub opcode: u32,
    pub unique: u64,
    pub node: u64,
    /// What the request has besides.
    pub body: Body<'a>,
}

/// The arguments of a request. What it does not have reads as 0.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Body<'a>(&'a [u8]);

impl<'a> Request<'a> {
    const SIZE: usize = 40;

    /// `None` where the bytes are too few for a request, which the kernel never sends.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let head = Body(bytes.get(..Self::SIZE)?);
        let length = head.u32(0) as usize;
        Some(Request {
            opcode: head.u32(4),
            unique: head.u64(8),
            node: head.u64(16),
            body: Body(bytes.get(Self::SIZE..length)?),
        })
    }
}

impl<'a> Body<'a> {
    pub(crate) fn u32(self, at: usize) -> u32 {
        let bytes = self.0.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u32::from_ne_bytes)
    }

    pub(crate) fn u64(self, at: usize) -> u64 {
        let bytes = self.0.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_ne_bytes)
    }

    /// The name that stands from `at` up to a NUL byte.
    pub(crate) fn name(self, at: usize) -> &'a [u8] {
        let rest = self.0.get(at..).unwrap_or_default();
        rest.split(|byte| *byte == 0).next().unwrap_or_default()
    }
}

/// An answer that is being written.
#[derive(Debug, Default)]
pub(crate) struct Answer(Vec<u8>);

impl Answer {
    const HEAD: usize = 16;

    /// Begins an answer, in the memory of an earlier one.
    pub(crate) fn start(&mut self) {
        self.0.clear();
        self.0.resize(Self::HEAD, 0);
    }

    /// Writes its head (`struct fuse_out_header`). `more` bytes follow that are not in it.
    pub(crate) fn finish(&mut self, unique: u64, errno: i32, more: usize) -> &[u8] {
        let length = (self.0.len() + more) as u32;
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        self.0[4..8].copy_from_slice(&(-errno).to_ne_bytes());
        self.0[8..16].copy_from_slice(&unique.to_ne_bytes());
        &self.0
    }

    /// How long the arguments are so far.
    pub(crate) fn len(&self) -> usize {
        self.0.len() - Self::HEAD
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.bytes(&value.to_ne_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.bytes(&value.to_ne_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.bytes(&value.to_ne_bytes());
    }

    fn zeros(&mut self, count: usize) {
        self.0.resize(self.0.len() + count, 0);
    }

    /// `struct fuse_init_out`.
    pub(crate) fn init(&mut self, init: &Init) {
        self.u32(MAJOR);
        self.u32(MINOR);
        self.u32(init.max_readahead);
        self.u32(init.flags);
        self.u16(init.background);
        self.u16(init.background / 4 * 3);
        // The largest write, of which there is none. The kernel wants a buffer for one.
        self.u32(4096);
        // Granularity of times in nanoseconds.
        self.u32(1_000_000_000);
        self.u16(init.max_pages);
        self.zeros(64 - 30);
    }

    /// `struct fuse_attr`.
    fn attributes(&mut self, attr: &Attributes) {
        self.u64(attr.ino);
        self.u64(attr.size);
        self.u64(attr.blocks);
        for _ in 0..3 {
            self.u64(attr.time);
        }
        self.zeros(12);
        for value in [attr.mode, attr.links, attr.uid, attr.gid, attr.device, BLOCK, 0] {
            self.u32(value);
        }
    }

    /// `struct fuse_attr_out`.
    pub(crate) fn attributes_out(&mut self, attr: &Attributes) {
        self.u64(ENDLESS);
        self.u64(0);
        self.attributes(attr);
    }

    /// `struct fuse_entry_out`.
    pub(crate) fn entry(&mut self, node: u64, attr: &Attributes) {
        for value in [node, 0, ENDLESS, ENDLESS, 0] {
            self.u64(value);
        }
        self.attributes(attr);
    }

    /// `struct fuse_dirent`, and with `plus` a `struct fuse_direntplus`. False where it does not fit into `room` bytes.
    pub(crate) fn directory_entry(
        &mut self,
        entry: &DirectoryEntry,
        plus: Option<(u64, &Attributes)>,
        is_plus: bool,
        room: usize,
    ) -> bool {
        const PLUS: usize = 128;
        let start = self.0.len();
        let length = (24 + entry.name.len()).next_multiple_of(8) + if is_plus { PLUS } else { 0 };
        if self.len() + length > room {
            return false;
        }
        match plus {
            Some((node, attributes)) => self.entry(node, attributes),
            None if is_plus => self.zeros(PLUS),
            None => {}
        }
        self.u64(entry.ino);
        self.u64(entry.next);
        self.u32(entry.name.len() as u32);
        // As readdir(3) has it: the type's bits of the mode.
        self.u32(entry.file_type as u32 >> 12);
        self.bytes(entry.name);
        self.0.resize(start + length, 0);
        true
    }

    /// `struct fuse_statfs_out`.
    pub(crate) fn statfs(&mut self, blocks: u64, files: u64) {
        for value in [blocks, 0, 0, files, 0] {
            self.u64(value);
        }
        for value in [BLOCK, squashfs::LONGEST_NAME as u32, BLOCK] {
            self.u32(value);
        }
        self.zeros(28);
    }
}

/// How many seconds the kernel may keep names and attributes: nothing ever changes.
const ENDLESS: u64 = 1 << 30;
/// The unit of st_blksize, which programs take for the size of their buffers: that of most local file systems.
pub(crate) const BLOCK: u32 = 4096;

/// What INIT is answered with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Init {
    pub max_readahead: u32,
    pub flags: u32,
    /// Requests that the kernel may have under way that nobody waits for.
    pub background: u16,
    pub max_pages: u16,
}

/// What stat(2) shows.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Attributes {
    pub ino: u64,
    pub size: u64,
    pub blocks: u64,
    /// All three times.
    pub time: u64,
    pub mode: u32,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    pub device: u32,
}

/// A name in a directory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DirectoryEntry<'a> {
    pub ino: u64,
    /// Where the next one is read.
    pub next: u64,
    pub file_type: FileType,
    pub name: &'a [u8],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_the_sizes_of_the_kernels_structures() {
        let size = |write: &dyn Fn(&mut Answer)| {
            let mut answer = Answer::default();
            answer.start();
            write(&mut answer);
            answer.len()
        };
        let attributes = Attributes::default();
        let init = Init { max_readahead: 0, flags: 0, background: 64, max_pages: 32 };
        assert_eq!(size(&|a| a.init(&init)), 64);
        assert_eq!(size(&|a| a.attributes_out(&attributes)), 104);
        assert_eq!(size(&|a| a.entry(1, &attributes)), 128);
        assert_eq!(size(&|a| a.statfs(1, 1)), 80);
        let entry = DirectoryEntry { ino: 1, next: 1, file_type: FileType::File, name: b"abcdefghi" };
        assert_eq!(size(&|a| assert!(a.directory_entry(&entry, None, false, 40))), 40);
        assert_eq!(size(&|a| assert!(!a.directory_entry(&entry, None, false, 39))), 0);
        assert_eq!(size(&|a| assert!(a.directory_entry(&entry, None, true, 168))), 168);
        assert_eq!(size(&|a| assert!(a.directory_entry(&entry, Some((1, &attributes)), true, 168))), 168);
    }

    #[test]
    fn short_requests_are_none() {
        assert!(Request::parse(&[0; 39]).is_none());
        let mut bytes = [0; 48];
        bytes[0] = 48;
        bytes[40] = 7;
        let request = Request::parse(&bytes).unwrap();
        assert_eq!((request.body.u32(0), request.body.u32(4), request.body.u64(4)), (7, 0, 0));
        bytes[0] = 49;
        assert!(Request::parse(&bytes).is_none());
    }
}
