//! One layer, from its blob into the tree: a thread inflates, another reads the tar and writes.

mod links;

use std::fs::File;
use std::io::{BufReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use self::links::finish_links;
use super::decode::{self, Expected, PipeReader};
use super::disk::{self, Ids};
use super::interrupt::Interrupt;
use super::merge::{DeferredLink, DirMetadata, LayerNumber, LayerWriter, MergedTree, Outcome, clean};
use super::tar::{EntryKind, Header, Reader};
use rt_sys::error::{Context, Result};
use rt_sys::{bail, err};

/// Free space is looked at each time that many bytes were written.
const SPACE_STEP: u64 = 64 << 20;
/// Bytes that are always left to others.
const SPACE_RESERVE: u64 = 32 << 20;
/// Inodes that are always left to others.
const INODES_RESERVE: u64 = 64;

/// What was done, for the summary; shared by all layers.
#[derive(Debug, Default)]
pub(crate) struct Counts {
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

/// How entries are written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// The caller's user and group.
    pub caller: Ids,
    /// Others may look into the bundle: no write permission but the caller's, no setuid, no file capabilities.
    pub shared: bool,
    /// Bytes of the tree at most.
    pub max_bytes: u64,
}

/// All that the threads of the layers share.
pub(crate) struct UnpackContext<'a> {
    /// The tree.
    pub tree: &'a MergedTree,
    /// Any file on the target's file system, to ask for free space.
    pub root: &'a OwnedFd,
    /// How to write.
    pub rules: Rules,
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
pub(crate) fn apply(
    context: &UnpackContext,
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
fn with_entries<T>(
    context: &UnpackContext,
    (source, expected): (impl Read + Send, Expected),
    limit: u64,
    work: impl FnOnce(&mut Reader<PipeReader>) -> Result<T>,
) -> Result<T> {
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

struct Unpacker<'a, 'b> {
    context: &'a UnpackContext<'a>,
    writer: LayerWriter<'b>,
    since_check: u64,
}

impl Unpacker<'_, '_> {
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
        let path = clean(&entry.path)?;
        let name = path.rsplit(|&b| b == b'/').next().unwrap_or_default();
        if let Some(hidden) = name.strip_prefix(b".wh.") {
            return self.whiteout(&path, name, hidden);
        }
        let counts = self.context.counts;
        let caller = self.context.rules.caller;
        if entry.kind != EntryKind::Hardlink
            && (entry.uid, entry.gid) != (caller.uid.into(), caller.gid.into())
        {
            add(&counts.owners, 1);
        }
        match entry.kind {
            EntryKind::File => self.file(reader, &path, entry),
            EntryKind::Directory => {
                let mode = self.dir_mode(entry.mode);
                let meta = DirMetadata { mode, mtime: entry.mtime, xattrs: entry.xattrs.clone() };
                self.writer.directory(&path, meta).map(drop)
            }
            EntryKind::Symlink => {
                if entry.link.is_empty() {
                    bail!("a symbolic link without a target");
                }
                let outcome = self.writer.place_symlink(&path, &entry.link, |dir, name| {
                    disk::symlink(dir.as_fd(), name, &entry.link)?;
                    disk::set_times_at(dir.as_fd(), name, entry.mtime)
                })?;
                self.hidden(&outcome, 0);
                Ok(())
            }
            EntryKind::Hardlink => self.writer.hard_link(&path, &entry.link).map(drop),
            EntryKind::Fifo => {
                let mode = self.file_mode(entry.mode);
                let outcome = self.writer.place(&path, |dir, name| disk::fifo(dir.as_fd(), name, mode))?;
                self.hidden(&outcome, 0);
                Ok(())
            }
            EntryKind::Character | EntryKind::Block => {
                add(&counts.devices, 1);
                self.writer.leave_out(&path).map(drop)
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
        let mode = self.file_mode(entry.mode);
        // The kernel takes setuid and setgid bits away when the file is written (inode(7)), and sets no attributes of a
        // file that its owner may not write.
        let late = mode & 0o7000 != 0 || !entry.xattrs.is_empty();
        let first = if late { 0o600 } else { mode };
        let outcome = self.writer.place(path, |dir, name| disk::create_file(dir.as_fd(), name, first))?;
        self.hidden(&outcome, entry.stored());
        let Outcome::Done(file) = outcome else { return Ok(()) };
        self.space(entry.stored())?;
        self.write_data(reader, &file, entry)?;
        add(&self.context.counts.files, 1);
        self.attributes(&file, &entry.xattrs)?;
        if late {
            disk::set_mode(file.as_fd(), mode)?;
        }
        disk::set_times(file.as_fd(), entry.mtime)
    }

    /// Writes the entry's data, holes left as holes.
    fn write_data(&self, reader: &mut Reader<PipeReader>, file: &File, entry: &Header) -> Result<()> {
        let whole = [super::tar::Extent { offset: 0, length: entry.size }];
        let map = entry.sparse.as_deref().unwrap_or(&whole);
        for extent in map {
            let (mut at, end) = (extent.offset, extent.offset + extent.length);
            while at < end {
                self.context.interrupt.check()?;
                let piece = reader.piece()?;
                if piece.is_empty() {
                    return Err(err!("the layer ends in the middle of a file"));
                }
                let n = piece.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
                file.write_all_at(&piece[..n], at).context(|| "write")?;
                reader.consume(n);
                at += n as u64;
            }
        }
        if entry.sparse.is_some() {
            file.set_len(entry.size).context(|| "set length")?;
        }
        Ok(())
    }

    fn attributes(&self, file: &File, xattrs: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        for (name, value) in xattrs {
            if !set_attribute(file, name, value, &self.context.rules)? {
                add(&self.context.counts.xattrs, 1);
            }
        }
        Ok(())
    }

    /// The mode of a file on disk: its owner can read it.
    fn file_mode(&self, asked: u32) -> u32 {
        self.mode(asked, 0o400, guard_file)
    }

    /// The mode of a directory on disk: its owner can do everything in it, or could not even remove the tree.
    fn dir_mode(&self, asked: u32) -> u32 {
        self.mode(asked, 0o700, guard_dir)
    }

    /// A mode with what its owner needs and, in a tree that others see, without what `guard` takes.
    fn mode(&self, asked: u32, needed: u32, guard: fn(u32) -> u32) -> u32 {
        if asked & needed != needed {
            add(&self.context.counts.repaired, 1);
        }
        let mode = asked | needed;
        if !self.context.rules.shared {
            return mode;
        }
        let guarded = guard(mode);
        if guarded != mode {
            add(&self.context.counts.guarded, 1);
        }
        guarded
    }

    fn hidden<T>(&self, outcome: &Outcome<T>, bytes: u64) {
        if matches!(outcome, Outcome::Hidden) {
            add(&self.context.counts.hidden, 1);
            add(&self.context.counts.hidden_bytes, bytes);
        }
    }

    /// Counts bytes, and looks at the disk now and then.
    fn space(&mut self, bytes: u64) -> Result<()> {
        let written = self.context.counts.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if written > self.context.rules.max_bytes {
            bail!("the image is larger than the {} bytes of --max-size", self.context.rules.max_bytes);
        }
        self.since_check = self.since_check.saturating_add(bytes);
        if self.since_check < SPACE_STEP {
            return Ok(());
        }
        self.since_check = 0;
        let free = disk::free_space(self.context.root)?;
        if free.bytes < bytes.saturating_add(SPACE_RESERVE) || free.inodes < INODES_RESERVE {
            bail!("no space left on device: {} bytes and {} inodes are free", free.bytes, free.inodes);
        }
        Ok(())
    }
}

/// A file's mode in a tree that other users see. They would run a setuid file as the caller, outside any container, and
/// could put their own code into what they may write.
fn guard_file(mode: u32) -> u32 {
    mode & !0o6022
}

/// The same of a directory. One with the sticky bit is no danger: others can make files in it, and replace none.
fn guard_dir(mode: u32) -> u32 {
    match mode & 0o1000 {
        0 => mode & !0o022,
        _ => mode,
    }
}

/// Sets what an unprivileged user may set; false for the rest.
fn set_attribute(file: &File, name: &[u8], value: &[u8], rules: &Rules) -> Result<bool> {
    // An overlay mount obeys user.overlay.* of its layers, so an image could steer it (mount option userxattr).
    let harmless = name.starts_with(b"user.") && !name.starts_with(b"user.overlay.");
    // Access lists could let others write. Everybody who can execute a file with capabilities that root has unpacked gets
    // them, also outside any container.
    let powerful = name == b"security.capability" || name.starts_with(b"system.posix_acl_");
    let allowed = harmless || powerful && !rules.shared;
    if !allowed {
        return Ok(false);
    }
    disk::set_xattr(file.as_fd(), name, value)
}

fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

/// Sets modes, times and attributes of all directories, once nothing is written any more.
pub(crate) fn finish_directories(context: &UnpackContext) -> Result<u64> {
    context.tree.finish_dirs(|dir, meta| {
        for (name, value) in &meta.xattrs {
            if !set_attribute(dir, name, value, &context.rules)? {
                add(&context.counts.xattrs, 1);
            }
        }
        disk::set_mode(dir.as_fd(), meta.mode)?;
        disk::set_times(dir.as_fd(), meta.mtime)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_that_others_may_see() {
        assert_eq!(guard_file(0o4755), 0o755);
        assert_eq!(guard_file(0o2755), 0o755);
        assert_eq!(guard_file(0o6777), 0o755);
        assert_eq!(guard_file(0o777), 0o755);
        assert_eq!(guard_file(0o644), 0o644);
        assert_eq!(guard_dir(0o1777), 0o1777);
        assert_eq!(guard_dir(0o2775), 0o2755);
    }
}
