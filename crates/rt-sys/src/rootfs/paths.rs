//! Paths inside the root: resolved by the kernel, and walked by hand where a part of them is missing.

use super::Rootfs;
use crate::bail;
use crate::error::Result;
use crate::fd;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// How many symlinks one path may hold, as in the kernel (MAXSYMLINKS).
const MOST_LINKS: usize = 40;

/// Where a path ends in the root.
pub(super) struct Missing {
    /// The deepest directory that exists.
    pub parent: OwnedFd,
    /// Its path in the root, free of links.
    pub done: PathBuf,
    /// What is missing below it.
    pub rest: Vec<OsString>,
}

/// Opens `path` inside `root` by openat2(2).
///
/// RESOLVE_IN_ROOT takes `root` for / while the path is resolved: absolute links and `..` stay inside. Where a rename
/// or a mount came between, the kernel cannot say whether `..` has stayed inside and answers EAGAIN, so the call is
/// repeated. RESOLVE_NO_MAGICLINKS refuses the links of procfs (/proc/PID/fd/N, /proc/PID/root), which jump to a file
/// without a path and so lead out of any root.
pub fn open_in(root: BorrowedFd<'_>, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    resolve_in(root, path, flags, ResolveFlags::empty())
}

/// As [`open_in`], and through no mount: in a root that others can write, one may be a file system of theirs that never answers.
///
/// # Errors
/// EXDEV for a mount; those of openat2(2).
pub fn open_in_unmounted(root: BorrowedFd<'_>, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    resolve_in(root, path, flags, ResolveFlags::NO_XDEV)
}

/// As [`open_in`], and through nothing that another user serves by FUSE, who need not answer. Where something else is mounted on the way,
/// it is gone one name after the other, each in the directory that was opened before: what is mounted there meanwhile is not met.
///
/// # Errors
/// EXDEV for what another user serves; those of openat2(2).
pub fn open_in_unserved(root: BorrowedFd<'_>, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    match open_in_unmounted(root, path, flags) {
        Err(Errno::XDEV) => walk_in_unserved(root, path, flags),
        opened => opened,
    }
}

#[cold]
fn walk_in_unserved(root: BorrowedFd<'_>, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    const PLACE: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW);
    let mut todo = components(path);
    // Each directory from the root on that has been gone through.
    let mut way: Vec<OwnedFd> = Vec::new();
    let mut links = 0;
    while let Some(name) = todo.pop_front() {
        if name == ".." {
            way.pop();
            continue;
        }
        let dir = way.last().map_or(root, AsFd::as_fd);
        let found = fd::open_unserved(dir, &*name, PLACE, ResolveFlags::BENEATH)?;
        let is_asked = todo.is_empty() && flags.contains(OFlags::NOFOLLOW);
        if is_asked || FileType::from_raw_mode(fs::fstat(&found)?.st_mode) != FileType::Symlink {
            way.push(found);
            continue;
        }
        links += 1;
        if links > MOST_LINKS {
            return Err(Errno::LOOP);
        }
        let target = fs::readlinkat(&found, "", Vec::new())?;
        let target = Path::new(OsStr::from_bytes(target.as_bytes()));
        if target.is_absolute() {
            way.clear();
        }
        let mut front = components(target);
        front.append(&mut todo);
        todo = front;
    }
    let end = match way.pop() {
        Some(end) => end,
        None => fs::openat(root, ".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?,
    };
    if flags.difference(OFlags::CLOEXEC) == PLACE || flags.difference(OFlags::CLOEXEC) == OFlags::PATH {
        return Ok(end);
    }
    // A link here is one that is not to be followed.
    if FileType::from_raw_mode(fs::fstat(&end)?.st_mode) == FileType::Symlink {
        return Err(Errno::LOOP);
    }
    fs::open(fd::link(&end), flags.difference(OFlags::NOFOLLOW) | OFlags::CLOEXEC, Mode::empty())
}

fn resolve_in(root: BorrowedFd<'_>, path: &Path, flags: OFlags, how: ResolveFlags) -> Result<OwnedFd, Errno> {
    // openat2(2) refuses an empty path.
    let path = if path.as_os_str().is_empty() { Path::new("/") } else { path };
    let resolve = how | ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..128 {
        match fs::openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
            Err(Errno::AGAIN) => {}
            result => return result,
        }
    }
    Err(Errno::AGAIN)
}

/// The directory and the name of a path as the plan has them: absolute, without `//` and `.`. It is cut by bytes, which
/// costs a tenth of what `Path::components` costs.
pub(super) fn split(path: &Path) -> Option<(&OsStr, &OsStr)> {
    let bytes = path.as_os_str().as_bytes();
    let slash = bytes.iter().rposition(|&b| b == b'/')?;
    let (dir, name) = (&bytes[..slash], &bytes[slash + 1..]);
    let dir = if dir.is_empty() { b"/" } else { dir };
    let plain = !name.is_empty() && name != b"." && name != b"..";
    plain.then(|| (OsStr::from_bytes(dir), OsStr::from_bytes(name)))
}

/// True where `path` is `outer` or lies below it; both as for [`split`].
pub(super) fn is_at_or_below(path: &Path, outer: &Path) -> bool {
    let rest = path.as_os_str().as_bytes().strip_prefix(outer.as_os_str().as_bytes());
    rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/' || outer.as_os_str() == "/")
}

fn components(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter_map(|c| match c {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some(OsString::from("..")),
            _ => None,
        })
        .collect()
}

impl Rootfs<'_> {
    /// Resolves `path` inside the root to an O_PATH descriptor.
    pub fn resolve(&self, path: &Path) -> Result<OwnedFd, Errno> {
        self.open(path, OFlags::PATH)
    }

    /// Opens `path` inside the root.
    pub fn open(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        open_in(self.as_fd(), path, flags)
    }

    /// Walks `path` to where it ends. `None` where nothing is missing any more.
    ///
    /// The kernel says of a path that something is missing, but not what. The walk follows links itself, since the
    /// missing part must be made where the link leads. Somebody may change the image during the walk. Each look-up
    /// stays inside the root, so the worst result is another place in the same image.
    pub(super) fn find_missing(&self, path: &Path) -> Result<Option<Missing>> {
        let mut todo: VecDeque<OsString> = components(path);
        let mut done = PathBuf::from("/");
        let mut links = 0;
        while let Some(name) = todo.pop_front() {
            if name == ".." {
                done.pop();
                continue;
            }
            let next = done.join(&name);
            match self.open(&next, OFlags::PATH | OFlags::NOFOLLOW) {
                Ok(fd) => {
                    let kind = FileType::from_raw_mode(fs::fstat(&fd)?.st_mode);
                    if kind == FileType::Symlink {
                        links += 1;
                        if links > MOST_LINKS {
                            return Err(Errno::LOOP.into());
                        }
                        let target = fs::readlinkat(&fd, "", Vec::new())?;
                        let target = Path::new(OsStr::from_bytes(target.as_bytes())).to_owned();
                        if target.is_absolute() {
                            done = PathBuf::from("/");
                        }
                        let mut front = components(&target);
                        front.append(&mut todo);
                        todo = front;
                    } else if kind != FileType::Directory && !todo.is_empty() {
                        return Err(Errno::NOTDIR.into());
                    } else {
                        done = next;
                    }
                }
                Err(Errno::NOENT) => {
                    let mut rest = vec![name];
                    for name in todo {
                        if name == ".." {
                            rest.pop();
                        } else {
                            rest.push(name);
                        }
                    }
                    if rest.is_empty() {
                        bail!("{} leads nowhere", path.display());
                    }
                    let parent = self.resolve(&done)?;
                    return Ok(Some(Missing { parent, done, rest }));
                }
                Err(e) => return Err(e.into()),
            }
        }
        Ok(None)
    }
}
