//! Slurm's prolog: root makes the directory in which a user keeps the state of his jobs' containers.
//!
//! Root waits for nobody here. It locks nothing that others can open, asks no file system that is mounted there (a FUSE server
//! of a user's may never answer), and follows no link.

use rt_sys::error::{Context, Result};
use rt_sys::{bail, err, tree};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{self, AtFlags, Gid, Mode, OFlags, RenameFlags, ResolveFlags, Uid};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::ffi::OsStr;
use std::path::Path;
use std::time::{Duration, Instant};

/// How often it is looked again at what is there: prologs of several jobs may run at once.
const TRIES: u32 = 16;

/// How long what others have left there may be removed. The rest stays, under another name.
const LIMIT: Duration = Duration::from_secs(5);

/// Makes `root` a directory of `uid`'s and `gid`'s own, in a directory that only root can write. Called by root.
pub(crate) fn make_for_job(root: &Path, uid: u32, gid: u32) -> Result<()> {
    let context = || format!("make the state directory {}", root.display());
    let (Some(parent), Some(name)) = (root.parent(), root.file_name()) else { bail!("--root: no directory") };
    let parent = closed(parent).context(context)?;
    for _ in 0..TRIES {
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let done = match fs::openat2(&parent, name, flags, Mode::empty(), how) {
            // Without NO_XDEV a file system of the user's would be asked.
            Ok(dir) if fs::fstat(&dir).context(context)?.st_uid == uid => return Ok(()),
            Ok(_) | Err(Errno::LOOP | Errno::NOTDIR) => set_aside(&parent, name),
            Err(Errno::XDEV) => unmount(&parent, name),
            Err(Errno::NOENT) => make(&parent, name, uid, gid),
            Err(e) => Err(e),
        };
        match done {
            // Another prolog was faster.
            Ok(()) | Err(Errno::NOENT | Errno::EXIST) => {}
            Err(e) => return Err(e).context(context),
        }
    }
    Err(err!("somebody changes it again and again").context(context()))
}

/// The directory of all users, which nobody but root may change: what is looked at in it is then what is used.
fn closed(parent: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || fs::open(parent, flags, Mode::empty());
    let dir = match open() {
        Err(Errno::NOENT) => {
            match fs::mkdir(parent, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(e) => return Err(e.into()),
            }
            open()?
        }
        dir => dir?,
    };
    fs::fchown(&dir, Some(Uid::ROOT), Some(Gid::ROOT))?;
    fs::fchmod(&dir, Mode::from_raw_mode(0o755))?;
    Ok(dir)
}

/// Makes the directory, whole before it has its name.
fn make(parent: &OwnedFd, name: &OsStr, uid: u32, gid: u32) -> Result<(), Errno> {
    let new = own_name("new", 0);
    // What a prolog of this number has left that was killed.
    let _ = fs::unlinkat(parent, new.as_str(), AtFlags::REMOVEDIR);
    fs::mkdirat(parent, new.as_str(), Mode::RWXU)?;
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    let made = fs::chownat(parent, new.as_str(), Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
        .and_then(|()| fs::renameat_with(parent, new.as_str(), parent, name, RenameFlags::NOREPLACE));
    if made.is_err() {
        let _ = fs::unlinkat(parent, new.as_str(), AtFlags::REMOVEDIR);
    }
    made
}

/// Takes away what is there and is no directory of the user's. It is given another name first, since to remove it may take
/// longer than a job can wait.
fn set_aside(parent: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    let free = (0..1000).map(|n| own_name("old", n));
    for old in free {
        match fs::renameat_with(parent, name, parent, old.as_str(), RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => continue,
            renamed => renamed?,
        }
        if fs::unlinkat(parent, old.as_str(), AtFlags::empty()).is_err()
            && let Err(e) = tree::remove(parent, old.as_bytes(), Instant::now().checked_add(LIMIT))
        {
            log::warn!("remove {old:?} of the directory of states: {e}");
        }
        return Ok(());
    }
    Err(Errno::EXIST)
}

/// Detaches what is mounted there. Its server is not asked.
fn unmount(parent: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    let path = Path::new("/proc/self/fd").join(parent.as_raw_fd().to_string()).join(name);
    match rustix::mount::unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
        // The path is no mount any more.
        Err(Errno::INVAL) => Ok(()),
        unmounted => unmounted,
    }
}

/// A name that no user's directory has.
fn own_name(what: &str, number: u32) -> String {
    format!(".{what}-{}-{number}", std::process::id())
}
