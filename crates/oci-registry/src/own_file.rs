//! Files of the caller's own configuration: where he is known, whom he trusts, what is executed for him. HOME and the variables
//! beside it can be another user's, after su(1) for instance, so it counts who can have written a file.

use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rt_sys::error::{Context, Error, Result};
use rt_sys::{disk, fd};
use rustix::fs::OFlags;

/// The contents of a file that only root and the caller can have written. Any other one is left out, with a warning.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    let Some(file) = open(path)? else { return Ok(None) };
    if !disk::only_ours(&file)? {
        log::warn!("{}: others than root and the caller can write it, and it is not read", path.display());
        return Ok(None);
    }
    contents(file, path)
}

/// The contents of a file that the caller has named, whoever wrote it.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn read_any(path: &Path) -> Result<Option<Vec<u8>>> {
    open(path)?.map_or(Ok(None), |file| contents(file, path))
}

/// `None` where there is no regular file, or none that is the caller's to read: after su(1), XDG_RUNTIME_DIR may be another user's.
fn open(path: &Path) -> Result<Option<File>> {
    // A fifo would be waited for.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = fs::File::options().read(true).custom_flags(flags.bits() as i32).open(path);
    let context = || format!("read {}", path.display());
    match opened.map_err(Error::from) {
        Ok(file) => Ok(file.metadata().context(context)?.is_file().then_some(file)),
        Err(e) if e.is(libc::ENOENT) || e.is(libc::ENOTDIR) => Ok(None),
        Err(e) if e.is(libc::EACCES) => {
            log::warn!("{}: not this user's to read, and it is left out", path.display());
            Ok(None)
        }
        Err(e) => Err(e.context(context())),
    }
}

fn contents(file: File, path: &Path) -> Result<Option<Vec<u8>>> {
    fd::read_all(file.into()).map(Some).context(|| format!("read {}", path.display()))
}
