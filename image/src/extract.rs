//! Unpacks an image with as many threads as there are processors, for hosts on which FUSE is closed.
//!
//! The target is a tmpfs of this mount namespace, in which nobody else makes anything, and it goes with the namespace.
//! Everything belongs to the caller. As in a pulled bundle, devices are left out, and extended attributes that the caller may
//! not set, or that say something to this host's kernel. What is left out is counted, and said to `rt`.

use crate::file::of_image;
use rt_sys::bail;
use rt_sys::error::{Context, Error, Result};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, XattrFlags};
use rustix::io::Errno;
use squashfs::{Body, Entries, FilePart, Filesystem, Inode, InodeRef, Piece, Position, Xattr};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::num::NonZero;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most directories below each other. Each has a descriptor while it is unpacked.
const DEEPEST: usize = 400;
/// How much of a file is one thread's work.
const CHUNK: u64 = 4 << 20;
/// How much work may wait.
const QUEUE: usize = 64;
const MOST_THREADS: usize = 16;
/// How many names of attributes are said. An image may have as many as it likes.
const MOST_NAMES: usize = 8;
/// The most blocks that are holes: 8 TiB with the usual size of blocks. They take no memory, which bounds all else that is
/// made, and a small image can name one file of them any number of times.
const MOST_HOLES: u64 = 1 << 26;
/// The most devices, and the most attributes, that are left out, for the same reason. Where SELinux is, every file has an
/// attribute that is.
const MOST_DEVICES: u64 = 1 << 21;
const MOST_ATTRIBUTES: u64 = 1 << 24;

/// A part of a file to be written.
struct Work {
    file: Arc<OpenFile>,
    inode: InodeRef,
    body: squashfs::File,
    from: u64,
}

/// A file that is written by several threads, the last of which finishes it.
struct OpenFile {
    file: File,
    inode: Inode,
}

impl OpenFile {
    /// Sets what writing would change, if nobody else has a part of this file to write.
    fn finish(this: Arc<OpenFile>, fs: &Filesystem<FilePart>, left_out: &Mutex<LeftOut>) -> Result<()> {
        let Some(OpenFile { file, inode }) = Arc::into_inner(this) else { return Ok(()) };
        // A write takes capabilities and the set-id bits from a file (inode(7)).
        set_metadata(&file, fs, &inode, left_out)
    }
}

/// What of an image is not in the tree.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct LeftOut {
    devices: u64,
    /// Attributes, by their names, and how many files had them.
    attributes: BTreeMap<Vec<u8>, u64>,
    /// Attributes of other names.
    other_attributes: u64,
    /// Attributes of all names.
    all_attributes: u64,
}

impl LeftOut {
    fn device(&mut self) -> Result<()> {
        self.devices += 1;
        within("devices", self.devices, MOST_DEVICES)
    }

    fn attribute(&mut self, name: &[u8]) -> Result<()> {
        if let Some(count) = self.attributes.get_mut(name) {
            *count += 1;
        } else if self.attributes.len() < MOST_NAMES {
            self.attributes.insert(name.to_vec(), 1);
        } else {
            self.other_attributes += 1;
        }
        self.all_attributes += 1;
        within("attributes", self.all_attributes, MOST_ATTRIBUTES)
    }

    /// For the log; empty where all is there.
    pub(crate) fn text(&self) -> String {
        let device_nodes = match self.devices {
            0 => None,
            1 => Some("1 device node".to_owned()),
            n => Some(format!("{n} device nodes")),
        };
        let named = self.attributes.iter().map(|(name, n)| format!("{} ({n})", name.escape_ascii()));
        let others = (self.other_attributes > 0).then(|| format!("others ({})", self.other_attributes));
        let names: Vec<String> = named.chain(others).collect();
        let attributes = (!names.is_empty()).then(|| format!("the attributes {}", names.join(", ")));
        let all: Vec<String> = device_nodes.into_iter().chain(attributes).collect();
        if all.is_empty() { String::new() } else { format!("left out: {}", all.join("; ")) }
    }
}

/// # Errors
/// More is left out than an image may have of it.
fn within(what: &str, count: u64, most: u64) -> Result<()> {
    if count > most {
        bail!("too much of the image is left out: more than {most} {what}");
    }
    Ok(())
}

/// Unpacks `fs` into the empty directory `target`. Returns what is not there.
pub(crate) fn extract(fs: &Filesystem<FilePart>, target: OwnedFd) -> Result<LeftOut> {
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get).clamp(1, MOST_THREADS);
    let (work, queue) = sync_channel::<Work>(QUEUE);
    let queue = Mutex::new(queue);
    let failed: Mutex<Option<Error>> = Mutex::new(None);
    let (left_out, holes) = (Mutex::default(), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            // After a failure the threads that there are end, since nobody sends them work.
            let thread = std::thread::Builder::new().name("extract".into());
            let write = || write_all(fs, &queue, &failed, &left_out, &holes);
            thread.spawn_scoped(scope, write).context(|| "start a thread")?;
        }
        let (files, seen) = (HashMap::new(), HashSet::new());
        let mut tree = Tree { fs, root: target, files, seen, work, failed: &failed, left_out: &left_out };
        let done = tree.unpack();
        // Ends the threads, which read until nobody can send any more.
        drop(tree);
        done
    })?;
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(e) => Err(e),
        None => Ok(left_out.into_inner().unwrap_or_else(PoisonError::into_inner)),
    }
}

/// A directory that is being unpacked.
struct Level<'a> {
    dir: OwnedFd,
    /// From the root, for errors and hard links; empty for the root, else with '/' at its end.
    path: Vec<u8>,
    inode: Inode,
    entries: Entries<'a, FilePart>,
}

struct Tree<'a> {
    fs: &'a Filesystem<FilePart>,
    root: OwnedFd,
    /// The first path of each file with several names.
    files: HashMap<InodeRef, Vec<u8>>,
    /// Directories, of which each has one place.
    seen: HashSet<InodeRef>,
    work: SyncSender<Work>,
    failed: &'a Mutex<Option<Error>>,
    left_out: &'a Mutex<LeftOut>,
}

impl<'a> Tree<'a> {
    fn unpack(&mut self) -> Result<()> {
        let root =
            fs::openat(&self.root, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let mut levels = vec![self.level(root, Vec::new(), self.fs.root())?];
        while let Some(level) = levels.last_mut() {
            match level.entries.next_entry().map_err(of_image)? {
                Some(entry) => {
                    let path = [&level.path[..], &entry.name].concat();
                    let context = || format!("unpack /{}", String::from_utf8_lossy(&path));
                    let inode = self.fs.inode(entry.inode).map_err(of_image).context(context)?;
                    if matches!(inode.body, Body::Directory(_)) {
                        let dir = make_directory(&level.dir, &entry.name).context(context)?;
                        let path = [&path[..], b"/"].concat();
                        let next = self.level(dir, path, entry.inode)?;
                        if levels.len() >= DEEPEST {
                            bail!(
                                "unpack /{}: more than {DEEPEST} directories below each other",
                                String::from_utf8_lossy(&next.path)
                            );
                        }
                        levels.push(next);
                    } else {
                        self.make(&level.dir, &entry.name, &path, &inode).context(context)?;
                    }
                }
                None => {
                    // At the end, when nothing is made in it any more.
                    let shown = || format!("unpack /{}", String::from_utf8_lossy(&level.path));
                    set_metadata(&level.dir, self.fs, &level.inode, self.left_out).context(shown)?;
                    levels.pop();
                }
            }
            if lock(self.failed).is_some() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn level(&mut self, dir: OwnedFd, path: Vec<u8>, reference: InodeRef) -> Result<Level<'a>> {
        let shown = || format!("unpack /{}", String::from_utf8_lossy(&path));
        let inode = self.fs.inode(reference).map_err(of_image).context(shown)?;
        let Body::Directory(directory) = &inode.body else { bail!("{}: not a directory", shown()) };
        if !self.seen.insert(reference) {
            bail!("{}: the directory is in the image twice", shown());
        }
        let entries = self.fs.entries(directory, Position::default()).map_err(of_image).context(shown)?;
        Ok(Level { dir, path, inode, entries })
    }

    fn make(&mut self, dir: &OwnedFd, name: &[u8], path: &[u8], inode: &Inode) -> Result<()> {
        match &inode.body {
            Body::File(file) => return self.make_file(dir, name, path, inode, file),
            Body::Symlink(target) => fs::symlinkat(&**target, dir, name)?,
            Body::Fifo => fs::mknodat(dir, name, FileType::Fifo, mode(inode), 0)?,
            Body::Socket => fs::mknodat(dir, name, FileType::Socket, mode(inode), 0)?,
            Body::BlockDevice(_) | Body::CharDevice(_) => {
                return lock(self.left_out).device();
            }
            Body::Directory(_) => return Ok(()),
        }
        // Such files have no attributes of users (xattr(7)), only some for the kernel.
        for attribute in self.fs.xattrs(inode).map_err(of_image)? {
            lock(self.left_out).attribute(&attribute.name)?;
        }
        Ok(fs::utimensat(dir, name, &times(inode.mtime), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    fn make_file(
        &mut self,
        dir: &OwnedFd,
        name: &[u8],
        path: &[u8],
        inode: &Inode,
        body: &squashfs::File,
    ) -> Result<()> {
        if inode.links > 1 {
            if let Some(first) = self.files.get(&inode.reference) {
                return Ok(fs::linkat(&self.root, &first[..], dir, name, AtFlags::empty())?);
            }
            self.files.insert(inode.reference, path.to_vec());
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(fs::openat(dir, name, flags, Mode::RUSR | Mode::WUSR)?);
        // What is not written is a hole.
        file.set_len(body.size)?;
        let file = Arc::new(OpenFile { file, inode: inode.clone() });
        for from in (0..body.size).step_by(CHUNK as usize) {
            let work = Work { file: Arc::clone(&file), inode: inode.reference, body: *body, from };
            if self.work.send(work).is_err() {
                bail!("the threads that write have ended");
            }
        }
        OpenFile::finish(file, self.fs, self.left_out)
    }
}

/// What each thread does until there is no more work. After a failure it only takes what is there.
fn write_all(
    fs: &Filesystem<FilePart>,
    queue: &Mutex<Receiver<Work>>,
    failed: &Mutex<Option<Error>>,
    left_out: &Mutex<LeftOut>,
    holes: &AtomicU64,
) {
    loop {
        let Ok(work) = lock(queue).recv() else { return };
        if lock(failed).is_some() {
            continue;
        }
        if let Err(e) = write(fs, &work, holes).and_then(|()| OpenFile::finish(work.file, fs, left_out)) {
            lock(failed).get_or_insert(e.context("unpack a file"));
        }
    }
}

fn write(fs: &Filesystem<FilePart>, work: &Work, holes: &AtomicU64) -> Result<()> {
    let (mut at, mut empty) = (work.from, 0);
    for piece in fs.read(work.inode, &work.body, work.from, CHUNK as usize).map_err(of_image)? {
        match &piece {
            Piece::Block(block, range) => {
                work.file.file.write_all_at(&block.bytes()[range.clone()], at)?;
            }
            Piece::Hole(_) => empty += 1,
        }
        at += piece.size() as u64;
    }
    if holes.fetch_add(empty, Ordering::Relaxed) + empty > MOST_HOLES {
        bail!("too many holes: more than {MOST_HOLES} blocks of the image's files are empty");
    }
    Ok(())
}

/// Sets attributes, mode and time, in this order: with its mode the owner might not be allowed to set attributes.
fn set_metadata(
    file: impl AsFd,
    image: &Filesystem<FilePart>,
    inode: &Inode,
    left_out: &Mutex<LeftOut>,
) -> Result<()> {
    for Xattr { name, value } in image.xattrs(inode).map_err(of_image)? {
        // As in a pulled bundle. Capabilities mean nothing on this mount, which is nosuid.
        let harmless = name.starts_with(b"user.") && !rt_sys::disk::is_steering(&name);
        if !harmless && name != b"security.capability" {
            lock(left_out).attribute(&name)?;
            continue;
        }
        match fs::fsetxattr(&file, &name[..], &value, XattrFlags::empty()) {
            Ok(()) => {}
            // The caller may not do it, or the file system has none: a tmpfs has those of users from Linux 6.6 on. EINVAL:
            // capabilities of a form that the kernel does not take. The last two: the name or the value is too long.
            Err(
                Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS | Errno::INVAL | Errno::RANGE | Errno::TOOBIG,
            ) => lock(left_out).attribute(&name)?,
            Err(e) => {
                return Err(Error::from(e).context(format!("set the attribute {}", name.escape_ascii())));
            }
        }
    }
    fs::fchmod(&file, mode(inode))?;
    // A compiled Python module is used only where it has the time of its source.
    Ok(fs::futimens(&file, &times(inode.mtime))?)
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

fn make_directory(dir: &OwnedFd, name: &[u8]) -> Result<OwnedFd> {
    fs::mkdirat(dir, name, Mode::RWXU)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(fs::openat(dir, name, flags, Mode::empty())?)
}

fn mode(inode: &Inode) -> Mode {
    Mode::from_raw_mode(inode.mode.into())
}

/// A modification time, and no access time.
fn times(mtime: u32) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: mtime.into(), tv_nsec: 0 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_said_in_one_line() {
        let mut left_out = LeftOut::default();
        assert_eq!(left_out.text(), "");
        left_out.devices = 1;
        assert_eq!(left_out.text(), "left out: 1 device node");
        left_out.attribute(b"trusted.a\n").unwrap();
        left_out.attribute(b"trusted.a\n").unwrap();
        assert_eq!(left_out.text(), "left out: 1 device node; the attributes trusted.a\\n (2)");
        left_out.devices = 0;
        for n in 0..20 {
            left_out.attribute(format!("trusted.b{n}").as_bytes()).unwrap();
        }
        let text = left_out.text();
        assert!(text.starts_with("left out: the attributes trusted.a\\n (2), trusted.b0 (1), "), "{text}");
        assert!(text.ends_with(", trusted.b6 (1), others (13)"), "{text}");
    }
}
