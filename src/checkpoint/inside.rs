//! A container as its processes have it: its root, its mounts, and what of them was made for it alone.

use rt_sys::error::{Context, Error, Result};
use rt_sys::mount::{self, Mounted};
use rt_sys::{caller, disk, fd};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, AtFlags, Mode, OFlags, ResolveFlags, Stat, StatxFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

/// What is known of it.
#[derive(Debug)]
pub(super) struct Inside<'a> {
    /// Its root, open for its path only.
    pub root: OwnedFd,
    /// Its mounts.
    pub mounts: Vec<Mounted>,
    /// The numbers of those that another user serves by FUSE.
    served: Vec<u64>,
    /// Directories of the host's root's, by device and inode, as far as [`Inside::note_roots`] has noted them.
    of_root: BTreeSet<(u64, u64)>,
    /// Where file systems in memory are that are its alone ([`super::memory_fs::own`]).
    own: &'a [PathBuf],
}

impl<'a> Inside<'a> {
    /// What the process with the directory `process` in procfs has.
    pub(super) fn of(process: &Path, own: &'a [PathBuf]) -> Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = fs::open(process.join("root"), flags, Mode::empty());
        let root = root.context(|| "open the container's root")?;
        let (mounts, mut served) = (mount::table_in(process)?, Vec::new());
        for mount in &mounts {
            if mount.is_others_fuse()? {
                served.push(mount.id);
            }
        }
        Ok(Inside { root, mounts, served, of_root: BTreeSet::new(), own })
    }

    /// Notes which directories are the host's root's, of those `near` and those where file systems in memory are mounted. In a user
    /// namespace he looks like everybody who is not known there, so that this comes before it is entered.
    pub(super) fn note_roots<'p>(&mut self, near: impl Iterator<Item = &'p Path>) -> Result<()> {
        let mounts = self.mounts.iter().filter(|mount| mount.fstype == b"tmpfs");
        let mounts = mounts.map(|mount| (mount.point.as_path(), true));
        for (path, is_mount) in mounts.chain(near.map(|path| (path, false))) {
            let stat = match self.open(path, OFlags::DIRECTORY, |_| false) {
                // What is not known to be his is not taken for his.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::ACCESS) => continue,
                dir => fd::stat(dir.context(|| format!("look at {}", path.display()))?)?,
            };
            // The config has chosen what is mounted, and nobody exchanges that.
            if stat.st_uid == 0 || is_mount && caller::may_be_hosts_root(stat.st_uid) {
                self.of_root.insert((stat.st_dev, stat.st_ino));
            }
        }
        Ok(())
    }

    /// True for a directory that is known to be the host's root's.
    pub(super) fn is_roots(&self, stat: &Stat) -> bool {
        self.of_root.contains(&(stat.st_dev, stat.st_ino))
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

    /// Opens, for its path only, the directory at `path`, to which no link leads; `None` where `is_wanted` does not take its device.
    ///
    /// # Errors
    /// It is none, or not there for this user.
    pub(super) fn directory(
        &self,
        path: &Path,
        is_wanted: impl Fn(u64) -> bool,
    ) -> Result<Option<OwnedFd>, Errno> {
        match self.open(path, OFlags::DIRECTORY, &is_wanted) {
            Ok(place) => Ok(is_wanted(on(&place)?.0).then_some(place)),
            Err(Errno::XDEV) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Opens, for its path only, what is at `path`, to which no link leads; `None` where nothing is, or a link. `is_wanted` takes the
    /// device that it should be on.
    ///
    /// # Errors
    /// EXDEV: another user serves what is there by now.
    pub(super) fn find(&self, path: &Path, is_wanted: impl Fn(u64) -> bool) -> Result<Option<OwnedFd>> {
        match self.open(path, OFlags::empty(), is_wanted) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG) => Ok(None),
            Err(Errno::XDEV) => {
                let said = format!("{}: another user has mounted something there", path.display());
                Err(Error::from_parts(said, Some(libc::EXDEV)))
            }
            found => found.map(Some).context(|| format!("look at {}", path.display())),
        }
    }

    /// All come to a path by this, which asks nobody whom the program does not: who serves a file system may not answer. So of each mount
    /// on the way it is known first whose it is. What another user serves is entered where `is_wanted` takes its device, and so is
    /// what has been mounted since the table was read.
    fn open(&self, path: &Path, flags: OFlags, is_wanted: impl Fn(u64) -> bool) -> Result<OwnedFd, Errno> {
        let open = |at: &OwnedFd, path: &Path, flags: OFlags, how: ResolveFlags| {
            let flags = OFlags::PATH | OFlags::CLOEXEC | flags;
            fs::openat2(at, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS | how)
        };
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV;
        let mut at = open(&self.root, Path::new("."), OFlags::empty(), within)?;
        let mut parts = path.strip_prefix("/").unwrap_or(path).components();
        loop {
            let rest = parts.as_path();
            if rest.as_os_str().is_empty() {
                return Ok(at);
            }
            match open(&at, rest, flags, within) {
                Err(Errno::XDEV) => {}
                opened => return opened,
            }
            // Nothing leads up.
            let Some(Component::Normal(part)) = parts.next() else { return Err(Errno::LOOP) };
            let (part, is_last) = (Path::new(part), parts.as_path().as_os_str().is_empty());
            let flags = if is_last { flags } else { OFlags::empty() };
            at = match open(&at, part, flags, within) {
                Err(Errno::XDEV) => open(&at, part, flags, ResolveFlags::empty())?,
                opened => {
                    at = opened?;
                    continue;
                }
            };
            let (device, mount) = on(&at)?;
            let is_known = self.has(mount) && mount.is_none_or(|id| !self.served.contains(&id));
            if !is_known && !is_wanted(device) {
                return Err(Errno::XDEV);
            }
        }
    }
}

/// The device and the mount that `opened` is on. The kernel knows them: no server of a file system is asked.
fn on(opened: &OwnedFd) -> Result<(u64, Option<u64>), Errno> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let known = fs::statx(opened, "", flags, StatxFlags::MNT_ID)?;
    let mount = StatxFlags::from_bits_retain(known.stx_mask).contains(StatxFlags::MNT_ID);
    Ok((fs::makedev(known.stx_dev_major, known.stx_dev_minor), mount.then_some(known.stx_mnt_id)))
}
