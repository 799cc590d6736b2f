//! Unpacks an image with as many threads as there are processors, for hosts on which FUSE is closed.
//!
//! The target is a tmpfs of this mount namespace, in which nobody else makes anything, and it goes with the namespace.
//! Everything belongs to the caller. Devices and sockets are left out, and so are extended attributes: a tmpfs has those of
//! users only since Linux 6.6.

use crate::file::of_image;
use rt_sys::bail;
use rt_sys::error::{Context, Error, Result};
use rustix::fd::OwnedFd;
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT};
use squashfs::{Body, Entries, FilePart, Filesystem, Inode, InodeRef, Piece, Position};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::num::NonZero;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

/// The most directories below each other. Each has a descriptor while it is unpacked.
const DEEPEST: usize = 400;
/// How much of a file is one thread's work.
const CHUNK: u64 = 4 << 20;
/// How much work may wait.
const QUEUE: usize = 64;
const MOST_THREADS: usize = 16;

/// A part of a file to be written.
struct Work {
    file: Arc<OpenFile>,
    inode: InodeRef,
    body: squashfs::File,
    from: u64,
}

/// A file that is written by several threads; its mode and time are set when the last one has finished.
struct OpenFile {
    file: File,
    mode: Mode,
    mtime: u32,
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        // A write takes the set-id bits from a file (inode(7)).
        let _ = fs::fchmod(&self.file, self.mode);
        // A compiled Python module is used only where it has the time of its source.
        let _ = fs::futimens(&self.file, &times(self.mtime));
    }
}

/// Unpacks `fs` into the empty directory `target`.
pub(crate) fn extract(fs: &Filesystem<FilePart>, target: OwnedFd) -> Result<()> {
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get).clamp(1, MOST_THREADS);
    let (work, queue) = sync_channel::<Work>(QUEUE);
    let queue = Mutex::new(queue);
    let failed: Mutex<Option<Error>> = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| write_all(fs, &queue, &failed));
        }
        let mut tree =
            Tree { fs, root: target, files: HashMap::new(), seen: HashSet::new(), work, failed: &failed };
        let done = tree.unpack();
        // Ends the threads, which read until nobody can send any more.
        drop(tree);
        done
    })?;
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(e) => Err(e),
        None => Ok(()),
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
                    // Its mode and time at the end, when nothing is made in it any more.
                    fs::fchmod(&level.dir, mode(&level.inode))?;
                    fs::futimens(&level.dir, &times(level.inode.mtime))?;
                    levels.pop();
                }
            }
            if self.failed.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
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
            Body::BlockDevice(_) | Body::CharDevice(_) | Body::Socket | Body::Directory(_) => return Ok(()),
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
        let file = Arc::new(OpenFile { file, mode: mode(inode), mtime: inode.mtime });
        for from in (0..body.size).step_by(CHUNK as usize) {
            let work = Work { file: Arc::clone(&file), inode: inode.reference, body: *body, from };
            if self.work.send(work).is_err() {
                bail!("the threads that write have ended");
            }
        }
        Ok(())
    }
}

/// What each thread does until there is no more work. After a failure it only takes what is there.
fn write_all(fs: &Filesystem<FilePart>, queue: &Mutex<Receiver<Work>>, failed: &Mutex<Option<Error>>) {
    loop {
        let Ok(work) = queue.lock().unwrap_or_else(PoisonError::into_inner).recv() else { return };
        if failed.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
            continue;
        }
        if let Err(e) = write(fs, &work) {
            failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e.context("unpack a file"));
        }
    }
}

fn write(fs: &Filesystem<FilePart>, work: &Work) -> Result<()> {
    let mut at = work.from;
    for piece in fs.read(work.inode, &work.body, work.from, CHUNK as usize).map_err(of_image)? {
        if let Piece::Block(block, range) = &piece {
            work.file.file.write_all_at(&block.bytes()[range.clone()], at)?;
        }
        at += piece.size() as u64;
    }
    Ok(())
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
