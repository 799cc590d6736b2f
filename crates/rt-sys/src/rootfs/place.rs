//! Places to mount at, and the calls that mount there.

use crate::error::Result;
use crate::fd;
use crate::mount::{self, Follow, Param, Recursive};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::cell::Cell;
use std::ffi::OsStr;
use std::path::Path;

/// A place to mount at.
#[derive(Debug)]
pub enum Place<'a> {
    /// What the descriptor refers to. A mount that is attached to a descriptor comes to this very directory or file,
    /// whatever has happened to the path meanwhile.
    At(OwnedFd),
    /// An entry that has just been made in a file system of this container's own. No link can stand there, so it is
    /// mounted on by name, which needs no descriptor of it.
    In(NewEntry<'a>),
}

/// An entry that has just been made in a file system of the container's own.
#[derive(Debug)]
pub struct NewEntry<'a> {
    /// The directory.
    pub dir: BorrowedFd<'a>,
    /// The entry's name in it.
    pub name: &'a OsStr,
    /// Which of the container's own file systems is the working directory, by its number in the list.
    pub(super) entered: &'a Cell<Option<usize>>,
    /// The number of the one that `dir` is the root of.
    pub(super) own_fs: usize,
}

impl NewEntry<'_> {
    /// Makes its directory the working directory, and returns its name.
    ///
    /// mount(2) takes no descriptors. Relative to the working directory a name without a slash is resolved in that
    /// directory alone. One fchdir(2) serves all entries that are made in a directory one after another.
    fn enter(&self) -> Result<&OsStr, Errno> {
        if self.entered.get() != Some(self.own_fs) {
            rustix::process::fchdir(self.dir)?;
            self.entered.set(Some(self.own_fs));
        }
        Ok(self.name)
    }
}

impl Place<'_> {
    /// Mounts the detached `tree` here.
    pub fn attach(self, tree: impl AsFd) -> Result<()> {
        match self {
            Place::At(fd) => {
                let attached = mount::attach(tree, &fd);
                fd::leave_open(fd);
                attached
            }
            Place::In(entry) => mount::attach_at(tree, entry.dir, entry.name),
        }
    }

    /// Shows the host's `source`, which is no directory, here.
    pub fn bind(self, source: &Path) -> Result<()> {
        match self {
            Place::At(_) => {
                let tree = mount::clone_path(source, Recursive::No, Follow::Links)?;
                self.attach(&tree)?;
                fd::leave_open(tree);
                Ok(())
            }
            // One mount(2) costs less than open_tree(2) and move_mount(2).
            Place::In(entry) => Ok(mount::bind(source, entry.enter()?, Recursive::No)?),
        }
    }

    /// Mounts a new file system on this directory by mount(2). `None` where that call has no words for `params`.
    pub fn mount(self, fstype: &str, source: &str, params: &[Param], attr: u64) -> Option<Result<()>> {
        // "." after fchdir(2) names the directory of the descriptor, as the kernel does not resolve a path again.
        let at = match &self {
            Place::At(fd) => rustix::process::fchdir(fd).map(|()| OsStr::new(".")),
            Place::In(entry) => entry.enter(),
        };
        let mounted = match at {
            Ok(at) => mount::mount_new(fstype, source, params, attr, at),
            Err(e) => Some(Err(e.into())),
        };
        if let Place::At(fd) = self {
            fd::leave_open(fd);
        }
        mounted
    }
}
