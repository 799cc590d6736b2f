//! One layer, from its blob into the tree: a thread inflates, another reads the tar and writes.

mod content;
mod directory;
mod links;
mod tree;

use std::io::{BufReader, Read};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

pub use self::content::{Content, Pieces};
pub use self::directory::DirectoryTarget;
pub use self::links::finish_links;
pub use self::tree::TreeWriter;
use crate::decode::{self, Expected, PipeReader};
use crate::merge::{DeferredLink, DirMetadata, LayerNumber, LayerWriter, MergedTree, Outcome, Target, clean};
use crate::tar::{EntryKind, Header, Reader};
use oci_content::interrupt::Interrupt;
use rt_sys::bail;
use rt_sys::disk;
use rt_sys::error::{Context, Error, Result};

/// Free space is looked at each time that many bytes were written.
const SPACE_STEP: u64 = 64 << 20;
/// Bytes that are always left to others.
const SPACE_RESERVE: u64 = 32 << 20;
/// Inodes that are always left to others.
const INODES_RESERVE: u64 = 64;

/// What was done, for the summary; shared by all layers.
#[derive(Debug, Default)]
pub struct Counts {
    /// Regular files in the tree.
    pub files: AtomicU64,
    /// Bytes written.
    pub bytes: AtomicU64,
    /// Entries that a higher layer hides, and their bytes, which were not written.
    pub hidden: AtomicU64,
    /// Bytes of hidden files.
    pub hidden_bytes: AtomicU64,
    /// Entries of other owners than the caller.
    pub owners: AtomicU64,
    /// Device nodes left out.
    pub devices: AtomicU64,
    /// Extended attributes that the caller may not set.
    pub xattrs: AtomicU64,
    /// Modes that would have locked the owner out.
    pub repaired: AtomicU64,
    /// Modes that are not safe on a file system that others see.
    pub guarded: AtomicU64,
    /// Entries of types that no layer should have.
    pub unknown: AtomicU64,
}

/// What the entries of layers are written to.
pub trait LayerTarget: Target {
    /// A file that was made, and has no content yet.
    type NewFile;

    /// Makes a file.
    fn create(&self, dir: &Self::Dir, name: &[u8], entry: &Header) -> Result<Self::NewFile>;
    /// Writes the content that stands behind the header of a file, and gives the file the rest of its metadata.
    fn write(&self, file: Self::NewFile, entry: &Header, content: Content<'_>) -> Result<()>;
    /// Makes a symbolic link, a FIFO or a device.
    fn special(&self, dir: &Self::Dir, name: &[u8], entry: &Header) -> Result<()>;
    /// False where devices are left out.
    fn has_devices(&self) -> bool;
    /// Counts what the target does not keep of an entry.
    fn count_changes(&self, entry: &Header);
}

/// All that the threads of the layers share.
pub struct UnpackContext<'a, T: LayerTarget> {
    /// The tree.
    pub tree: &'a MergedTree<T>,
    /// Any file on the target's file system, to ask for free space; `None` for a target that is smaller than what it is given.
    pub root: Option<&'a OwnedFd>,
    /// Bytes of the tree at most.
    pub max_bytes: u64,
    /// What was done.
    pub counts: &'a Counts,
    /// When to stop.
    pub interrupt: &'a Interrupt,
    /// Threads that inflate one layer, where its format allows several.
    pub frame_threads: usize,
    /// Pieces that a layer may be inflated ahead of what is written.
    pub pieces: usize,
}

/// Applies a layer from its (compressed) bytes; returns the links that have to wait.
///
/// # Errors
/// A damaged stream or another one than is expected, an entry that leaves the tree, a full disk.
pub fn apply<T: LayerTarget>(
    context: &UnpackContext<T>,
    layer: LayerNumber,
    blob_size: u64,
    source: (impl Read + Send, Expected),
) -> Result<Vec<DeferredLink>> {
    let writer = context.tree.writer(layer);
    let mut unpacker = Unpacker { context, writer, since_check: SPACE_STEP };
    with_entries(context, source, decode::bomb_limit(blob_size), |reader| unpacker.run(reader))?;
    Ok(unpacker.writer.deferred)
}

/// Runs `work` on the entries of a compressed stream that another thread inflates.
fn with_entries<T: LayerTarget, V>(
    context: &UnpackContext<T>,
    (source, expected): (impl Read + Send, Expected),
    limit: u64,
    work: impl FnOnce(&mut Reader<PipeReader>) -> Result<V>,
) -> Result<V> {
    std::thread::scope(|scope| {
        let (writer, pipe) = decode::pipe(context.pieces, limit);
        let source = BufReader::with_capacity(128 << 10, source);
        let inflate = move || decode::inflate(source, context.frame_threads, expected, &writer);
        std::thread::Builder::new()
            .name("inflate".into())
            .spawn_scoped(scope, inflate)
            .context(|| "start a thread")?;
        let mut reader = Reader::new(pipe);
        let result = work(&mut reader);
        // Dropping the pipe ends the other thread after a failure.
        drop(reader);
        result
    })
}

struct Unpacker<'a, T: LayerTarget> {
    context: &'a UnpackContext<'a, T>,
    writer: LayerWriter<'a, T>,
    since_check: u64,
}

impl<T: LayerTarget> Unpacker<'_, T> {
    fn run(&mut self, reader: &mut Reader<PipeReader>) -> Result<()> {
        while let Some(entry) = reader.next()? {
            self.context.interrupt.check()?;
            self.entry(reader, &entry)
                .map_err(|e| e.context(String::from_utf8_lossy(&entry.path).escape_default()))?;
        }
        Ok(reader.drain()?)
    }

    fn entry(&mut self, reader: &mut Reader<PipeReader>, entry: &Header) -> Result<()> {
        if !reader.get_ref().may_bring(entry.stored()) {
            return Err(decode::bomb().into());
        }
        self.apply(entry, |unpacker, path| unpacker.file(reader, path, entry))
    }

    /// Makes what an entry says; a regular file by `file`, which is given its path.
    fn apply(&mut self, entry: &Header, file: impl FnOnce(&mut Self, &[u8]) -> Result<()>) -> Result<()> {
        let path = clean(&entry.path)?;
        let name = path.rsplit(|&b| b == b'/').next().unwrap_or_default();
        if let Some(hidden) = name.strip_prefix(b".wh.") {
            return self.whiteout(&path, name, hidden);
        }
        let counts = self.context.counts;
        let target = &self.context.tree.target;
        if entry.kind != EntryKind::Hardlink {
            target.count_changes(entry);
        }
        match entry.kind {
            EntryKind::File => file(self, &path),
            EntryKind::Directory => self.writer.directory(&path, DirMetadata::of(entry)).map(drop),
            EntryKind::Symlink => {
                if entry.link.is_empty() {
                    bail!("a symbolic link without a target");
                }
                let make = |dir: &T::Dir, name: &[u8]| target.special(dir, name, entry);
                let outcome = self.writer.place_symlink(&path, &entry.link, make)?;
                self.hidden(&outcome, 0);
                Ok(())
            }
            EntryKind::Hardlink => self.writer.hard_link(&path, &entry.link).map(drop),
            EntryKind::Character | EntryKind::Block if !target.has_devices() => {
                add(&counts.devices, 1);
                self.writer.leave_out(&path).map(drop)
            }
            EntryKind::Fifo | EntryKind::Character | EntryKind::Block => {
                let outcome = self.writer.place(&path, |dir, name| target.special(dir, name, entry))?;
                self.hidden(&outcome, 0);
                Ok(())
            }
            EntryKind::Other(_) => {
                add(&counts.unknown, 1);
                Ok(())
            }
        }
    }

    fn whiteout(&mut self, path: &[u8], name: &[u8], hidden: &[u8]) -> Result<()> {
        let parent = &path[..path.len() - name.len()];
        match hidden {
            b".wh..opq" => self.writer.opaque(parent).map(drop),
            b"" | b"." | b".." => bail!("a whiteout without a name"),
            // aufs kept its own files under such names.
            _ if hidden.starts_with(b".wh.") => Ok(()),
            _ => self.writer.whiteout(&[parent, hidden].concat()).map(drop),
        }
    }

    fn file(&mut self, reader: &mut Reader<PipeReader>, path: &[u8], entry: &Header) -> Result<()> {
        let target = &self.context.tree.target;
        let outcome = self.writer.place(path, |dir, name| target.create(dir, name, entry))?;
        self.hidden(&outcome, entry.stored());
        let Outcome::Done(file) = outcome else { return Ok(()) };
        self.space(entry.stored())?;
        target.write(file, entry, Content::new(reader, entry, self.context.interrupt))?;
        add(&self.context.counts.files, 1);
        Ok(())
    }

    fn hidden<V>(&self, outcome: &Outcome<V>, bytes: u64) {
        if matches!(outcome, Outcome::Hidden) {
            add(&self.context.counts.hidden, 1);
            add(&self.context.counts.hidden_bytes, bytes);
        }
    }

    /// Counts bytes, and looks at the disk now and then.
    fn space(&mut self, bytes: u64) -> Result<()> {
        let written = self.context.counts.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if written > self.context.max_bytes {
            bail!("the image is larger than the {} bytes that are allowed", self.context.max_bytes);
        }
        let Some(root) = self.context.root else { return Ok(()) };
        self.since_check = self.since_check.saturating_add(bytes);
        if self.since_check < SPACE_STEP {
            return Ok(());
        }
        self.since_check = 0;
        let free = disk::free_space(root)?;
        if free.bytes < bytes.saturating_add(SPACE_RESERVE) || free.inodes < INODES_RESERVE {
            return Err(Error::from_errno(libc::ENOSPC));
        }
        Ok(())
    }
}

fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}
