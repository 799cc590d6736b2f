//! Marks of files in the lower layers of an overlay, by which its copies of them are known in the upper layer.
//!
//! overlayfs notes itself what it has copied, but not of a file with several names, which a tree that shares files has many of. What it
//! copies with a file are attributes and inode flags (ioctl_iflags(2)). Programs copy attributes, too (`cp -a`), and no flags. Of the
//! flags FS_NOATIME_FL means least in a tree into which nobody writes.
//!
//! It is a usual tuning as well (`chattr +A` on a home directory): a directory gives it to what is made in it. So no directory that an
//! overlay writes in, or copies, may have it; there only marks and their copies do.

use std::os::fd::BorrowedFd;
use std::sync::LazyLock;

use crate::error::{Context, Result};
use crate::fd;
use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
use rustix::io::Errno;

/// Overlays copy the flag.
static IS_COPIED: LazyLock<bool> = LazyLock::new(|| is_copied_by(&crate::kernel_release()));

/// Marks an open file; one that is marked stays so. False where nothing can be known by that: the file is somebody else's, or its file
/// system or this kernel does not do it.
///
/// # Errors
/// As of ioctl(2).
pub fn mark(file: BorrowedFd) -> Result<bool> {
    if !*IS_COPIED {
        return Ok(false);
    }
    let done = ioctl_getflags(file).and_then(|flags| match flags.contains(IFlags::NOATIME) {
        true => Ok(()),
        false => ioctl_setflags(file, flags | IFlags::NOATIME),
    });
    match done {
        Ok(()) => Ok(true),
        Err(Errno::NOTTY | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => Ok(false),
        Err(Errno::PERM | Errno::ACCESS | Errno::ROFS) => Ok(false),
        Err(e) => Err(e).context(|| format!("mark {}", fd::shown(file))),
    }
}

/// Takes the flag from an open directory, so that it gives it to no file. Nothing happens to one of somebody else.
///
/// # Errors
/// As of ioctl(2).
pub fn clear(dir: BorrowedFd) -> Result<()> {
    if !is_marked(dir)? {
        return Ok(());
    }
    match ioctl_getflags(dir).and_then(|flags| ioctl_setflags(dir, flags - IFlags::NOATIME)) {
        Ok(()) | Err(Errno::PERM | Errno::ACCESS | Errno::ROFS) => Ok(()),
        Err(e) => Err(e).context(|| format!("set the flags of {}", fd::shown(dir))),
    }
}

/// True where an open file or directory is marked, or is a copy of one that is. A directory gives its flag to what is made in it.
///
/// # Errors
/// As of ioctl(2).
pub fn is_marked(file: BorrowedFd) -> Result<bool> {
    match ioctl_getflags(file) {
        Ok(flags) => Ok(*IS_COPIED && flags.contains(IFlags::NOATIME)),
        Err(Errno::NOTTY | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => Ok(false),
        Err(e) => Err(e).context(|| format!("read the flags of {}", fd::shown(file))),
    }
}

/// Linux 5.15 is the first whose overlayfs copies flags (72db82115d2b).
fn is_copied_by(release: &str) -> bool {
    crate::kernel_numbers(release) >= Some((5, 15))
}

#[cfg(test)]
mod tests {
    use super::is_copied_by;

    #[test]
    fn kernels_that_copy_flags() {
        for (release, copies) in [
            ("5.14.0-427.el9", false),
            ("4.18.0", false),
            ("5.15.0-25-generic", true),
            ("6.1", true),
            ("7", true),
        ] {
            assert_eq!(is_copied_by(release), copies, "{release}");
        }
    }
}
