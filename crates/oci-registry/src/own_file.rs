//! Files of the caller's own configuration: where he is known, whom he trusts, what is executed for him. HOME and the variables
//! beside it can be another user's, after su(1) for instance, so it counts who can have written a file, or put it there.

use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rt_sys::error::{Context, Error, Result};
use rt_sys::owned::{self, Own};
use rt_sys::{err, fd};
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, OFlags};

/// What is at a path.
enum Found {
    /// No regular file.
    Nothing,
    /// What others can have written or put there, and why that may be.
    Strangers(String),
    File(OwnedFd),
}

fn find(path: &Path) -> Result<Found> {
    Ok(match owned::open(path, OFlags::RDONLY)? {
        Own::Missing => Found::Nothing,
        Own::Strangers(why) => Found::Strangers(why),
        Own::Opened(file, owned) => match FileType::from_raw_mode(owned.stat.st_mode) {
            FileType::RegularFile if owned.others_can_write(&file, false)? => {
                Found::Strangers("others than its owner can write it".to_owned())
            }
            FileType::RegularFile => Found::File(file),
            _ => Found::Nothing,
        },
    })
}

/// The contents of a file that only root and the caller can have written and put there. Any other one is left out, with a warning.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    let context = || format!("read {}", path.display());
    match find(path) {
        Ok(Found::Nothing) => Ok(None),
        Ok(Found::Strangers(why)) => {
            log::warn!("{}: {why}, and it is not read", path.display());
            Ok(None)
        }
        Ok(Found::File(file)) => fd::read_all(file).map(Some).context(context),
        // After su(1), XDG_RUNTIME_DIR may be another user's.
        Err(e) if e.is(libc::EACCES) => not_for_the_caller(path),
        Err(e) => Err(e.context(context())),
    }
}

/// Fails for a file that others than root and the caller can write or put there, also where it is still missing.
pub(crate) fn require(path: &Path) -> Result<()> {
    let why = match (owned::strangers_place(path)?, find(path)?) {
        (Some(place), _) => format!("others than root and the caller can change {place}"),
        (None, Found::Strangers(why)) => why,
        (None, _) => return Ok(()),
    };
    Err(err!("{}: {why}", path.display()).hint("REGISTRY_AUTH_FILE names another file"))
}

/// The contents of a file that the caller has named, whoever wrote it. `None` where there is no regular file.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn read_any(path: &Path) -> Result<Option<Vec<u8>>> {
    // A fifo would be waited for.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = fs::File::options().read(true).custom_flags(flags.bits() as i32).open(path);
    let context = || format!("read {}", path.display());
    match opened.map_err(Error::from) {
        Ok(file) if is_file(&file).context(context)? => fd::read_all(file.into()).map(Some).context(context),
        Ok(_) => Ok(None),
        Err(e) if e.is(libc::ENOENT) || e.is(libc::ENOTDIR) => Ok(None),
        Err(e) if e.is(libc::EACCES) => not_for_the_caller(path),
        Err(e) => Err(e.context(context())),
    }
}

fn is_file(file: &File) -> std::io::Result<bool> {
    Ok(file.metadata()?.is_file())
}

fn not_for_the_caller(path: &Path) -> Result<Option<Vec<u8>>> {
    log::warn!("{}: not this user's to read, and it is left out", path.display());
    Ok(None)
}
