//! A container as its processes have it: its root, its mounts, and what of them was made for it alone.

use rt_sys::error::{Context, Result};
use rt_sys::mount::{self, Mounted};
use rt_sys::{disk, fd};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// What is known of it.
#[derive(Debug)]
pub(super) struct Inside<'a> {
    /// Its root, open for its path only.
    pub root: OwnedFd,
    /// Its mounts.
    pub mounts: Vec<Mounted>,
    /// Where file systems in memory are that are its alone ([`super::memory_fs::own`]).
    own: &'a [PathBuf],
}

impl<'a> Inside<'a> {
    /// What the process with the directory `process` in procfs has.
    pub(super) fn of(process: &Path, own: &'a [PathBuf]) -> Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = fs::open(process.join("root"), flags, Mode::empty());
        let root = root.context(|| "open the container's root")?;
        Ok(Inside { root, mounts: mount::table_in(process)?, own })
    }

    /// True where the mount with this number is one of the container's.
    pub(super) fn has(&self, mount: Option<u64>) -> bool {
        mount.is_some_and(|id| self.mounts.iter().any(|known| known.id == id))
    }

    /// True where `opened` is on a file system in memory that is the container's alone.
    pub(super) fn is_own(&self, opened: &OwnedFd) -> bool {
        let id = disk::mount_id(opened.as_fd());
        let mount = self.mounts.iter().find(|known| Some(known.id) == id);
        mount.is_some_and(|mount| self.is_own_mount(mount))
    }

    /// The same of all of a device, as mountinfo writes it.
    pub(super) fn is_own_device(&self, device: &[u8]) -> bool {
        self.mounts.iter().any(|mount| mount.device == device && self.is_own_mount(mount))
    }

    fn is_own_mount(&self, mount: &Mounted) -> bool {
        mount.fstype == b"tmpfs" && self.own.contains(&mount.point)
    }

    /// Opens, for its path only, the directory at `path`, to which no link leads; `None` where `is_wanted` does not take its device. All
    /// walks come to a directory by this: who serves another file system may not answer, and is not asked.
    ///
    /// # Errors
    /// It is none, or not there for this user.
    pub(super) fn directory(
        &self,
        path: &Path,
        is_wanted: impl Fn(u64) -> bool,
    ) -> Result<Option<OwnedFd>, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::IN_ROOT;
        let place = fs::openat2(&self.root, path, flags, Mode::empty(), resolve)?;
        let (device, _) = fd::known_identity(fd::link(&place))?;
        Ok(is_wanted(device).then_some(place))
    }

    /// Opens, for its path only, what is at `path`, to which no link leads; `None` where nothing is, or a link.
    pub(super) fn find(&self, path: &Path) -> Result<Option<OwnedFd>> {
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::IN_ROOT;
        match fs::openat2(&self.root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG) => Ok(None),
            found => found.map(Some).context(|| format!("look at {}", path.display())),
        }
    }
}
