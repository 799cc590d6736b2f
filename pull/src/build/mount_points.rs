//! What a RUN lacks to mount on. `rt` makes it in the new layer and removes it again, but as the caller, who may not write in every
//! directory of an image. What is left of it the build removes, so that it is in no layer.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use serde_json::Value;

use rt_sys::error::{Context, Error, Result};
use rt_sys::fd;
use rt_sys::rootfs::open_in;

/// Mount points that are not there yet: paths without links, each before what is in it.
pub(super) struct MountPoints(Vec<PathBuf>);

impl MountPoints {
    /// Those of the `mounts` of a config that `root` lacks.
    pub(super) fn missing(root: &OwnedFd, mounts: &Value) -> Result<MountPoints> {
        let mut missing = MountPoints(Vec::new());
        for mount in mounts.as_array().into_iter().flatten() {
            missing.add(root, mount["destination"].as_str().unwrap_or_default())?;
        }
        Ok(missing)
    }

    fn add(&mut self, root: &OwnedFd, destination: &str) -> Result<()> {
        let top = fd::path_of(root)?;
        let mut there = PathBuf::new();
        let mut parts = Path::new(destination.trim_start_matches('/')).components();
        while let Some(part) = parts.next() {
            let next = there.join(part);
            let opened = match open_in(root.as_fd(), &next, OFlags::PATH) {
                Ok(opened) => opened,
                Err(Errno::NOENT) => {
                    let steps = parts.scan(next.clone(), |path, part| {
                        path.push(part);
                        Some(path.clone())
                    });
                    self.0.extend(std::iter::once(next).chain(steps));
                    return Ok(());
                }
                // rt says that nothing can be mounted there.
                Err(Errno::NOTDIR | Errno::LOOP) => return Ok(()),
                Err(e) => return Err(Error::from(e).context(destination)),
            };
            let path = fd::path_of(&opened)?;
            there = path.strip_prefix(&top).map(Path::to_owned).unwrap_or_default();
        }
        Ok(())
    }

    /// Removes what is still there and empty.
    pub(super) fn remove(&self, root: &OwnedFd) -> Result<()> {
        for path in self.0.iter().rev() {
            remove(root, path).context(|| format!("remove the mount point /{}", path.display()))?;
        }
        Ok(())
    }
}

fn remove(root: &OwnedFd, path: &Path) -> Result<(), Errno> {
    let Some(name) = path.file_name() else { return Ok(()) };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Where the command has put a link in a directory's place, the mount point went with the directory.
    let links = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let is_gone = |e| matches!(e, Errno::NOENT | Errno::NOTDIR | Errno::LOOP);
    let dir = match rustix::fs::openat2(root, parent, flags, Mode::empty(), links) {
        Err(e) if is_gone(e) => return Ok(()),
        dir => dir?,
    };
    let stat = match rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(e) if is_gone(e) => return Ok(()),
        stat => stat?,
    };
    let removed = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => rustix::fs::unlinkat(&dir, name, AtFlags::REMOVEDIR),
        FileType::RegularFile if stat.st_size == 0 => rustix::fs::unlinkat(&dir, name, AtFlags::empty()),
        _ => Ok(()),
    };
    match removed {
        // The command has made something in it.
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
        removed => removed,
    }
}
