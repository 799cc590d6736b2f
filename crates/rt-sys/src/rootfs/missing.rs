//! Mount points that the root lacks: where each may be made.
//!
//! A new entry in the image is seen by everybody who uses the image, and an entry in a directory that is bound is
//! in the caller's data. What is done therefore depends on what the deepest directory that exists belongs to:
//!
//! | it belongs to | a missing mount point is |
//! |---|---|
//! | a file system of this container's own | made; in a layer over the image where the caller may, otherwise the directory is covered |
//! | the image | made and noted where the config makes the root writable and the caller may; otherwise the directory is covered |
//! | something read-only, or the kernel | covered: nobody can write data there that a cover would lose |
//! | anything else that is writable | made in the source and noted, because a cover would keep what the program writes from arriving there |

use super::filesystems::{is_kernel_fs, is_shared_fs};
use super::notes::{ListOf, Notes};
use super::paths::Missing;
use super::{DIRECTORY, MountPoint, Rootfs, START_TRIES, create, lock, mount_id, same_file};
use crate::error::{Context, Error, Result};
use crate::fd;
use crate::mount::{self, Mounted};
use rustix::fd::OwnedFd;
use rustix::fs::{self, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// A directory in which a mount point can be made.
pub(super) struct ParentDir {
    pub dir: OwnedFd,
    /// The list that takes a note of it, if others see what is made.
    pub notes: Option<Notes>,
}

impl ParentDir {
    /// Makes the directories `rest`, the last of them as `kind` says, and returns the last.
    pub(super) fn make(self, rest: &[OsString], kind: MountPoint) -> Result<OwnedFd> {
        let ParentDir { mut dir, mut notes } = self;
        for (n, name) in rest.iter().enumerate() {
            let kind = if n + 1 == rest.len() { kind } else { MountPoint::Directory };
            // The note comes first: a process that is killed between the two must not leave an entry without a note.
            if let Some(notes) = &mut notes {
                notes.add(name, kind)?;
            }
            let made = create(&dir, name, kind);
            if let (Some(notes), Err(_)) = (&notes, &made) {
                notes.take_back()?;
            }
            match made {
                // Another container may have made the same in a shared image.
                Ok(()) | Err(Errno::EXIST) => {}
                Err(e) => return Err(e).context(|| format!("make {}", Path::new(name).display())),
            }
            dir = fs::openat(&dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        }
        Ok(dir)
    }
}

impl Rootfs<'_> {
    /// A directory that shows what `missing.parent` shows, in which entries can be made and no data is lost.
    pub(super) fn writable_parent(&mut self, missing: Missing) -> Result<ParentDir> {
        // In a layer over an image of somebody else's, a directory may be closed to the caller. It is covered then.
        let may_make = |dir: &OwnedFd| if self.layered { may_make_in(dir) } else { Ok(true) };
        if self.is_own_device(fs::fstat(&missing.parent)?.st_dev)? && may_make(&missing.parent)? {
            return Ok(ParentDir { dir: missing.parent, notes: None });
        }
        let mount = mount_id(&missing.parent, OsStr::new(""))?;
        let table = if mount == self.image_mount()? { None } else { Some(mount::table()?) };
        let elsewhere = match &table {
            Some(table) if !mount::shows_piece(table, mount, &fd::path_of(self.as_fd())?) => table,
            _ => {
                let notes = self.notes_of_image(&missing)?;
                let dir = missing.parent;
                return match notes {
                    Some(_) => Ok(ParentDir { dir, notes }),
                    None => self.cover(dir, self.readonly),
                };
            }
        };
        // statvfs(3) shows the flags of the mount, so a read-only bind of a writable file system counts as well.
        if fs::fstatvfs(&missing.parent)?.f_flag.contains(fs::StatVfsMountFlags::RDONLY) {
            return self.cover(missing.parent, true);
        }
        if is_kernel_fs(crate::fd::file_system(&missing.parent)?) {
            return self.cover(missing.parent, self.readonly);
        }
        self.parent_outside_image(missing, elsewhere, mount)
    }

    /// The list for what is made in the image; `None` where the image may not be changed.
    fn notes_of_image(&self, missing: &Missing) -> Result<Option<Notes>> {
        let (Some(state), Some(held)) = (self.state, &self.held) else { return Ok(None) };
        if is_shared_fs(crate::fd::file_system(&missing.parent)?) || !may_make_in(&missing.parent)? {
            return Ok(None);
        }
        Notes::open(state, held, ListOf::Image, &self.image, &missing.done)
    }

    /// A directory that is neither the image's nor the container's own: mostly one that is bound.
    fn parent_outside_image(&mut self, missing: Missing, table: &[Mounted], mount: u64) -> Result<ParentDir> {
        let dir = missing.parent;
        let root = fd::path_of(self.as_fd())?;
        let source = host_path(table, mount, &dir, &root);
        let may_make = may_make_in(&dir)?;
        let Some(state) = self.state.filter(|_| may_make) else {
            let place = source.as_deref().unwrap_or(&missing.done).display().to_string();
            let name = missing.rest.iter().collect::<PathBuf>();
            return Err(Error::from(Errno::ACCESS)
                .context(format!("make {} in {place}", name.display()))
                .hint(format!("make it in {place} beforehand, or mount at another place")));
        };
        // What other nodes see is made without a note and stays: rmdir(2) of a directory unmounts what any mount
        // namespace has on it (Linux 3.18), and nobody here knows about the containers of the other nodes.
        let shared = is_shared_fs(crate::fd::file_system(&dir)?);
        let noted = source.filter(|_| !shared).and_then(|source| {
            let held = fs::openat(&dir, ".", DIRECTORY, Mode::empty()).ok()?;
            lock(&held, FlockOperation::NonBlockingLockShared, START_TRIES).then_some((source, held))
        });
        let notes = match noted {
            Some((source, held)) => {
                let notes = Notes::open(state, &held, ListOf::Bound, &source, Path::new("/"))?;
                self.bound.push(held);
                notes
            }
            None => None,
        };
        Ok(ParentDir { dir, notes })
    }
}

fn may_make_in(dir: &OwnedFd) -> Result<bool> {
    crate::process::may_access(dir, libc::W_OK | libc::X_OK)
}

/// Where the host has the directory `dir`, which `mount` shows below `root`, the container's root. The mount table gives
/// candidates; device and inode prove which of them is the directory.
fn host_path(table: &[Mounted], mount: u64, dir: &OwnedFd, root: &Path) -> Option<PathBuf> {
    let shown = table.iter().rfind(|m| m.id == mount)?;
    let path = fd::path_of(dir).ok()?;
    let inside = shown.root.join(path.strip_prefix(&shown.point).ok()?);
    table.iter().filter(|m| m.device == shown.device && !m.point.starts_with(root)).find_map(|host| {
        let path = host.point.join(inside.strip_prefix(&host.root).ok()?);
        let found = fs::open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
        same_file(&found, dir).ok()?.then_some(path)
    })
}
