//! Covers: a file system over a directory that lacks a mount point, which shows the same entries and can hold new ones.

use super::missing::ParentDir;
use super::{MountPoint, OwnFs, Rootfs, create, make_readonly, mount_id, same_file};
use crate::error::{Context, Result};
use crate::mount::{self, Attr, Param, Recursive};
use crate::{bail, fd};
use rustix::fd::OwnedFd;
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Above this many entries a directory is covered by an overlay rather than by single binds.
const MOST_BINDS: usize = 64;

impl Rootfs<'_> {
    /// Covers the directory `dir`. With `readonly` the cover is made so in the end.
    ///
    /// Binds are preferred: what the program writes to a bound file reaches the original. Below an overlay it would
    /// stay in memory and be lost. Each bind costs some system calls, though, so a directory with many entries, such as
    /// /usr/bin, gets an overlay. An overlay shows what is below the mounts in its lower directory, not the mounts, so
    /// a directory in which something is mounted gets binds however large it is.
    pub(super) fn cover(&mut self, dir: OwnedFd, readonly: bool) -> Result<ParentDir> {
        let is_root = same_file(&dir, &self.root)?;
        if is_root && self.root_is_fixed {
            bail!("the image lacks a directory at its root, where a hook can add none (add it to the image)");
        }
        let image = self.image_mount()?;
        let entries = list(&dir).context(|| "list a directory that lacks a mount point")?;
        let stat = fs::fstat(&dir)?;
        let params = [Param::Value("mode".into(), format!("{:o}", stat.st_mode & 0o7777))];
        // Device nodes that are dead in the directory stay so in what covers it.
        let attr = if fd::is_nodev(&dir)? { mount::ATTR_NODEV } else { 0 };
        let tmpfs =
            mount::new_fs("tmpfs", "tmpfs", &params, attr).context(|| "make a tmpfs for mount points")?;
        fd::chown_like(&tmpfs, &stat);
        let mut cover = None;
        let large = entries.len() > MOST_BINDS && !has_mounts_below(&dir)?;
        if large {
            mount::attach(&tmpfs, &dir)?;
            cover = match cover_by_overlay(&dir, &stat, &tmpfs, attr) {
                // A kernel without overlayfs. The binds take longer, and show the same.
                Err(e) if e.is(libc::ENODEV) => None,
                overlay => Some(overlay?),
            };
        }
        let cover = match cover {
            Some(overlay) => overlay,
            None => {
                // Before Linux 6.15 nothing can be mounted inside a tree that is still detached. The descriptor of the
                // directory leads to the originals, whatever is mounted on it.
                let trees = self.clone_entries(&dir, &tmpfs, entries, image)?;
                if !large {
                    mount::attach(&tmpfs, &dir)?;
                }
                for (name, tree) in trees {
                    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                    mount::attach(tree, fs::openat(&tmpfs, &name, flags, Mode::empty())?)?;
                }
                tmpfs
            }
        };
        // What was mounted below the directory has been copied along. The descriptors that are held refer to the mounts
        // that are hidden now: what is mounted next must go to the copies, and masks must be set on them.
        self.own_fs.iter_mut().for_each(OwnFs::forget_path);
        self.kernel_fs.iter_mut().for_each(|kernel_fs| kernel_fs.root = None);
        // It is registered with an empty path. To mount on an entry by its name (`Place::In`) needs the path, and must not be
        // done here: the cover repeats the links of an image that may be hostile.
        self.add_own_fs(cover.try_clone()?, Path::new(""));
        if readonly {
            self.covers.push(cover.try_clone()?);
        }
        if is_root {
            self.root = cover.try_clone()?;
        }
        Ok(ParentDir { dir: cover, notes: None })
    }

    /// Repeats `entries` of `dir` in `tmpfs`: links as links, everything else as a place to bind the original. Returns
    /// the originals, by name, as detached trees.
    fn clone_entries(
        &self,
        dir: &OwnedFd,
        tmpfs: &OwnedFd,
        entries: Vec<(OsString, FileType)>,
        image: u64,
    ) -> Result<Vec<(OsString, OwnedFd)>> {
        let mut trees = Vec::with_capacity(entries.len());
        for (name, kind) in entries {
            match kind {
                FileType::Symlink => {
                    let target = fs::readlinkat(dir, &name, Vec::new())?;
                    fs::symlinkat(target, tmpfs, &name)?;
                    continue;
                }
                FileType::Directory => create(tmpfs, &name, MountPoint::Directory)?,
                _ => create(tmpfs, &name, MountPoint::File)?,
            }
            let tree = mount::clone_entry(dir, &name, Recursive::Yes)
                .context(|| format!("bind {}", Path::new(&name).display()))?;
            // Each bind is a mount of its own, which the read-only flag of the root does not reach. What is mounted
            // here already has its own flags and keeps them.
            if self.readonly && mount_id(dir, &name)? == image {
                mount::set_attr(&tree, Recursive::No, Attr::READONLY)?;
            }
            trees.push((name, tree));
        }
        Ok(trees)
    }

    /// Makes the covers of read-only parts of the root read-only, but not the root itself. Until all is mounted they
    /// must be writable, since mount points are made in them.
    pub fn finish_covers(&self) -> Result<()> {
        self.covers.iter().try_for_each(make_readonly)
    }
}

/// True where something is mounted below `dir`.
fn has_mounts_below(dir: &OwnedFd) -> Result<bool> {
    let path: PathBuf = fd::path_of(dir)?;
    Ok(mount::table()?.iter().any(|m| m.point != path && m.point.starts_with(&path)))
}

fn list(dir: &OwnedFd) -> Result<Vec<(OsString, FileType)>> {
    // An O_PATH descriptor cannot be read; "." opens the same directory again.
    let readable = fs::openat(dir, ".", super::DIRECTORY, Mode::empty())?;
    let mut entries = Vec::new();
    for entry in fs::Dir::new(readable)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        let kind = match entry.file_type() {
            // Some file systems leave the type to stat(2).
            FileType::Unknown => {
                FileType::from_raw_mode(fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode)
            }
            kind => kind,
        };
        entries.push((name.to_owned(), kind));
    }
    Ok(entries)
}

/// An overlay over `dir`, whose owner and mode are in `stat`. Its upper layer is in `tmpfs`, which is mounted on `dir`
/// already: overlayfs takes layers from mounted file systems only. Where there is no overlay, `tmpfs` is empty.
fn cover_by_overlay(dir: &OwnedFd, stat: &fs::Stat, tmpfs: &OwnedFd, attr: u64) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let part = |name: &str| -> Result<OwnedFd> {
        fs::mkdirat(tmpfs, name, Mode::RWXU)?;
        Ok(fs::openat(tmpfs, name, flags, Mode::empty())?)
    };
    let (upper, work) = (part("upper")?, part("work")?);
    // The overlay's root has the owner and mode of the upper layer. The mode is set by chmod(2), because a hook's umask
    // would take bits from that of mkdir(2).
    fd::chown_like(&upper, stat);
    fs::chmodat(tmpfs, "upper", Mode::from_raw_mode(stat.st_mode & 0o7777), AtFlags::empty())?;
    // Overlayfs takes layers as text. Through /proc/self/fd the text names the directories of the descriptors, whatever
    // is mounted on top of them by now.
    let path = |fd: &OwnedFd| fd::link(fd);
    let params = [
        Param::Value("lowerdir".into(), path(dir)),
        Param::Value("upperdir".into(), path(&upper)),
        Param::Value("workdir".into(), path(&work)),
        // In a user namespace overlayfs may not use trusted.* attributes (Linux 5.11).
        Param::Flag("userxattr".into()),
    ];
    let overlay = mount::new_fs("overlay", "overlay", &params, attr).inspect_err(|_| {
        for part in ["upper", "work"] {
            let _ = fs::unlinkat(tmpfs, part, AtFlags::REMOVEDIR);
        }
    });
    let overlay = overlay.context(|| "make an overlay for mount points")?;
    mount::attach(&overlay, tmpfs)?;
    Ok(overlay)
}
