//! Notes of the mount points that were made where others see them, in an image or in a directory that is bound, so
//! that they can be removed.
//!
//! There is a list per directory, named by that directory's device and inode: whatever takes its place or its path
//! later is not touched. A list is records that end in NUL: `r` and an image's path or `b` and a bound directory's,
//! then `d` or `f` and the path, below it, of each directory or file that is about to be made; `x` and the path
//! takes one of these back.

use super::{LOCK_TRIES, MountPoint, lock};
use crate::error::{Context, Result};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, FileType, FlockOperation, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The directory, in the state directory, with the lists.
pub const IMAGES: &str = ".images";

/// What a list is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListOf {
    /// An image, used by the containers that have it as root.
    Image,
    /// A directory of the host's, bound into whatever containers.
    Bound,
}

/// A list that takes notes.
#[derive(Debug)]
pub(super) struct Notes {
    list: OwnedFd,
    /// What the next note is below, from the root on.
    path: PathBuf,
}

impl Notes {
    /// Opens the list of the directory `root`, whose path on the host is `path`, for what will be made in `below`.
    /// `state` is the container's state directory. `None` where there can be no list.
    pub(super) fn open(
        state: BorrowedFd<'_>,
        root: &OwnedFd,
        kind: ListOf,
        path: &Path,
        below: &Path,
    ) -> Result<Option<Notes>> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let name = format!("../{IMAGES}/{}", name_of(root)?);
        let open = || fs::openat(state, name.as_str(), flags, Mode::RUSR | Mode::WUSR);
        let list = open().or_else(|_| {
            let _ = fs::mkdirat(state, format!("../{IMAGES}").as_str(), Mode::RWXU);
            open()
        });
        let Ok(list) = list else { return Ok(None) };
        let notes = Notes { list, path: below.to_owned() };
        notes.write(if kind == ListOf::Image { b'r' } else { b'b' }, path)?;
        Ok(Some(notes))
    }

    /// Notes that `name` is about to be made, in what was noted before.
    pub(super) fn add(&mut self, name: &OsStr, kind: MountPoint) -> Result<()> {
        self.path.push(name);
        self.write(if kind == MountPoint::File { b'f' } else { b'd' }, &self.path)
    }

    /// Takes the last note back: the entry could not be made, or somebody else had made it.
    pub(super) fn take_back(&self) -> Result<()> {
        self.write(b'x', &self.path)
    }

    /// One write(2) per record. The list is open with O_APPEND, by which the kernel makes finding the end and writing there
    /// one step (open(2)): records of several containers do not mix.
    fn write(&self, kind: u8, path: &Path) -> Result<()> {
        let record = [&[kind], path.as_os_str().as_bytes(), &[0]].concat();
        rustix::io::write(&self.list, &record).context(|| "note a new mount point")?;
        Ok(())
    }
}

fn name_of(root: impl AsFd) -> Result<String> {
    let stat = fs::fstat(root)?;
    Ok(format!("{:x}-{:x}", stat.st_dev, stat.st_ino))
}

/// What a list says was made.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct MadeList {
    /// Where the root is on the host, as those who made something in it called it.
    pub roots: Vec<PathBuf>,
    /// The directory was bound, so any container may use it, whatever its image is.
    pub bound: bool,
    entries: Vec<(MountPoint, PathBuf)>,
}

/// The directory that a list is about, when its lock was asked for.
#[derive(Debug)]
pub enum DirLock {
    /// Locked against containers that are being set up in it.
    Locked(OwnedFd),
    /// Somebody else has the lock.
    Busy,
    /// It is not there any more.
    Gone,
}

impl MadeList {
    /// Reads the text of a list.
    pub fn parse(text: &[u8]) -> MadeList {
        let mut made = MadeList::default();
        for record in text.split(|&b| b == 0) {
            let Some((&kind, path)) = record.split_first() else { continue };
            let path = PathBuf::from(OsStr::from_bytes(path));
            match kind {
                b'r' | b'b' => {
                    made.bound |= kind == b'b';
                    if !made.roots.contains(&path) {
                        made.roots.push(path);
                    }
                }
                b'd' => made.entries.push((MountPoint::Directory, path)),
                b'f' => made.entries.push((MountPoint::File, path)),
                b'x' => {
                    if let Some(n) = made.entries.iter().rposition(|(_, noted)| *noted == path) {
                        made.entries.remove(n);
                    }
                }
                _ => {}
            }
        }
        made
    }

    /// Finds the directory that the list called `name` is about, and locks it.
    pub fn lock_dir(&self, name: &str) -> DirLock {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = |path: &PathBuf| fs::open(path, flags, Mode::empty()).ok();
        // Root does not wait for what a user can lock.
        let tries = if crate::process::outside_of_jobs() { 1 } else { LOCK_TRIES };
        let is_it = |dir: &OwnedFd| name_of(dir).is_ok_and(|found| found == name);
        match self.roots.iter().filter_map(open).find(is_it) {
            Some(root) if lock(&root, FlockOperation::NonBlockingLockExclusive, tries) => {
                DirLock::Locked(root)
            }
            Some(_) => DirLock::Busy,
            None => DirLock::Gone,
        }
    }

    /// Removes from `root` what the list names, where it is still empty.
    pub fn remove_from(&self, root: &OwnedFd) {
        for (kind, path) in self.entries.iter().rev() {
            let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else { continue };
            let Ok(dir) = open_below(root, dir) else { continue };
            let _ = match kind {
                MountPoint::Directory => fs::unlinkat(&dir, name, AtFlags::REMOVEDIR),
                MountPoint::File if is_empty_file(&dir, name) => fs::unlinkat(&dir, name, AtFlags::empty()),
                MountPoint::File => Ok(()),
            };
        }
    }
}

/// Opens the directory `dir` of a note below `root`. The paths that are noted have no links in them. Where a link has
/// taken a directory's place since, it is not followed: it could lead to other people's directories.
fn open_below(root: &OwnedFd, dir: &Path) -> Result<OwnedFd, Errno> {
    let below =
        dir.strip_prefix("/").ok().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    fs::openat2(root, below, flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS)
}

fn is_empty_file(dir: &OwnedFd, name: &OsStr) -> bool {
    fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| stat.st_size == 0 && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_back_is_not_removed() {
        let made = MadeList::parse(b"r/image\0d/a\0f/a/b\0d/a\0x/a\0x/c\0r/image\0b/data\0");
        let path = PathBuf::from;
        assert_eq!(made.roots, [path("/image"), path("/data")]);
        assert!(made.bound);
        assert_eq!(made.entries, [(MountPoint::Directory, path("/a")), (MountPoint::File, path("/a/b"))]);
        assert_eq!(MadeList::parse(b""), MadeList::default());
    }
}
