//! A tree of files as hooks look at it: the host's root, another driver's, or a container's.
//!
//! Every path is resolved inside the tree, links too.

use crate::error::{Context, Result};
use crate::rootfs::open_in;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, Stat};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How much of a file is read at the most: ld.so.cache is some 100 KB.
const MOST: usize = 16 << 20;

/// A root directory and what is below it.
#[derive(Debug)]
pub struct Tree {
    root: OwnedFd,
    path: PathBuf,
}

impl Tree {
    /// Opens the tree at `path`.
    pub fn open(path: &Path) -> Result<Tree> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = fs::open(path, flags, Mode::empty()).context(|| format!("open {}", path.display()))?;
        Ok(Tree { root, path: path.to_owned() })
    }

    /// Where the tree is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens `path` for reading, only where it is a regular file or, as in procfs and sysfs, says that it is.
    pub fn file(&self, path: impl AsRef<Path>) -> Option<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = open_in(self.root.as_fd(), path.as_ref(), flags).ok()?;
        let stat = fs::fstat(&file).ok()?;
        (FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile).then_some(file)
    }

    /// The contents of a file; `None` where it is missing, no regular file, unreadable, or absurdly large.
    pub fn read(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        let file = self.file(path)?;
        let mut bytes = Vec::with_capacity(4096);
        loop {
            match rustix::io::read(&file, rustix::buffer::spare_capacity(&mut bytes)) {
                Ok(0) => return Some(bytes),
                Ok(_) if bytes.len() > MOST => return None,
                Ok(_) => bytes.reserve(bytes.len().max(4096)),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return None,
            }
        }
    }

    /// The same as text, without white space around it.
    pub fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        Some(String::from_utf8_lossy(&self.read(path)?).trim().to_owned())
    }

    /// The names in a directory, sorted; none where there is no such directory.
    pub fn list(&self, path: impl AsRef<Path>) -> Vec<String> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let Ok(dir) = open_in(self.root.as_fd(), path.as_ref(), flags) else { return Vec::new() };
        let Ok(dir) = fs::Dir::new(dir) else { return Vec::new() };
        let mut names: Vec<String> = dir
            .filter_map(|entry| {
                let name = OsStr::from_bytes(entry.ok()?.file_name().to_bytes()).to_str()?.to_owned();
                (name != "." && name != "..").then_some(name)
            })
            .collect();
        names.sort_unstable();
        names
    }

    /// What `path` leads to, if anything.
    pub fn stat(&self, path: impl AsRef<Path>) -> Option<Stat> {
        fs::fstat(open_in(self.root.as_fd(), path.as_ref(), OFlags::PATH).ok()?).ok()
    }

    /// True where `path` leads to something.
    pub fn has(&self, path: impl AsRef<Path>) -> bool {
        open_in(self.root.as_fd(), path.as_ref(), OFlags::PATH).is_ok()
    }

    /// True where `path` leads to a directory.
    pub fn has_dir(&self, path: impl AsRef<Path>) -> bool {
        self.stat(path).is_some_and(|s| FileType::from_raw_mode(s.st_mode) == FileType::Directory)
    }

    /// The text of the link at `path`, if it is one.
    pub fn link(&self, path: impl AsRef<Path>) -> Option<PathBuf> {
        let path = path.as_ref();
        let dir = open_in(self.root.as_fd(), path.parent()?, OFlags::PATH).ok()?;
        let target = fs::readlinkat(dir, path.file_name()?, Vec::new()).ok()?;
        Some(PathBuf::from(OsStr::from_bytes(target.as_bytes())))
    }

    /// Where `path` leads to, without links, as a path in the tree.
    pub fn real(&self, path: impl AsRef<Path>) -> Option<PathBuf> {
        let path = path.as_ref();
        let found = open_in(self.root.as_fd(), path, OFlags::PATH).ok()?;
        let shown = |fd: &OwnedFd| fs::readlink(format!("/proc/self/fd/{}", fd.as_raw_fd()), Vec::new()).ok();
        let (found, root) = (shown(&found)?, shown(&self.root)?);
        let found = Path::new(OsStr::from_bytes(found.as_bytes()));
        let root = Path::new(OsStr::from_bytes(root.as_bytes()));
        Some(Path::new("/").join(found.strip_prefix(root).ok()?))
    }

    /// The last name of the link at `path`: how sysfs says to which device or driver something belongs.
    pub fn link_name(&self, path: impl AsRef<Path>) -> Option<String> {
        Some(self.link(path)?.file_name()?.to_str()?.to_owned())
    }

    /// True where `path` itself is a directory entry, wherever it leads.
    pub fn has_entry(&self, path: impl AsRef<Path>) -> bool {
        let path = path.as_ref();
        let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else { return false };
        open_in(self.root.as_fd(), dir, OFlags::PATH)
            .is_ok_and(|dir| fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_inside() {
        let dir = std::env::temp_dir().join(format!("rt-tree-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(dir.join("etc")).unwrap();
        std::fs::write(dir.join("etc/name"), "inside\n").unwrap();
        std::os::unix::fs::symlink("/etc/name", dir.join("link")).unwrap();
        let tree = Tree::open(&dir).unwrap();
        assert_eq!(tree.text("/link").as_deref(), Some("inside"));
        assert_eq!(tree.real("/link").as_deref(), Some(Path::new("/etc/name")));
        assert_eq!(tree.link("/link").as_deref(), Some(Path::new("/etc/name")));
        assert_eq!(tree.list("/"), ["etc", "link"]);
        assert!(tree.has_dir("/etc") && !tree.has("/etc/passwd") && tree.read("/etc").is_none());
        std::fs::remove_dir_all(dir).unwrap();
    }
}
