//! Removal of directory trees that may be hostile.

use std::path::Path;
use std::time::Instant;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{Context, Error, Result};
use crate::{disk, err, fd};

/// Directories that are open at the same time while a tree is removed; the soft limit of descriptors can be 1024.
const OPEN_AT_ONCE: usize = 128;

/// Removes the file or directory at `path`, as [`remove`] does. The directories above it may be reached by links.
///
/// # Errors
/// The first thing that could not be removed. That nothing is there is no error.
pub fn remove_path(path: &Path) -> Result<()> {
    let Some(name) = path.file_name() else { return Err(err!("remove {}: it has no name", path.display())) };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match fs::open(parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
        Err(Errno::NOENT) => Ok(()),
        opened => {
            remove(opened.context(|| format!("open {}", parent.display()))?, name.as_encoded_bytes(), None)
        }
    }
}

/// Removes the entry `name` of `parent`: a file, a link, or a directory with all that is in it, however deep it is. No link is
/// followed. Directories whose owner has taken his own rights away are opened up. What is mounted in the tree is not entered,
/// since its server may never answer; it stays, and so do the directories that lead to it. What else can be removed is removed.
/// After `until` nothing more is begun.
///
/// # Errors
/// The first thing that could not be removed, and EBUSY only where nothing but what is mounted was in the way; ETIMEDOUT after `until`. That
/// nothing is there is no error.
pub fn remove(parent: impl AsFd, name: &[u8], until: Option<Instant>) -> Result<()> {
    let parent = parent.as_fd();
    disk::check_component(name)?;
    if unlink(parent, name, FileType::Unknown)? {
        return Ok(());
    }
    let Some(dir) = open(parent, name)? else { return Ok(()) };
    empty(dir, None, until)?;
    remove_dir(parent, name)
}

/// Removes what is in the directory `top` but for the entry `kept`, as [`remove`] does.
///
/// # Errors
/// The first thing that could not be removed.
pub fn remove_contents(top: impl AsFd, kept: Option<&[u8]>) -> Result<()> {
    empty(disk::reopen_self(top.as_fd())?.into(), kept, None)
}

/// A directory that is being emptied.
struct Level {
    dir: OwnedFd,
    /// Its name in the level above.
    name: Vec<u8>,
    /// The entries that are still to be removed.
    left: Vec<(Vec<u8>, FileType)>,
}

impl Level {
    fn of(dir: OwnedFd, name: Vec<u8>) -> Result<Level> {
        Ok(Level { left: disk::entries(dir.as_fd())?, dir, name })
    }
}

/// Empties the directory `top`. The levels above the one that is at work are held open, so that no path is looked up again.
fn empty(top: OwnedFd, kept: Option<&[u8]>, until: Option<Instant>) -> Result<()> {
    let mut first = Level::of(top, Vec::new())?;
    first.left.retain(|(name, _)| Some(name.as_slice()) != kept);
    let mut stack = vec![first];
    let mut moved = 0;
    let mut result = Ok(());
    while let Some(level) = stack.last_mut() {
        if until.is_some_and(|until| Instant::now() > until) {
            let late =
                Error::from_errno(libc::ETIMEDOUT).context(format!("remove {}", fd::shown(&level.dir)));
            return result.and(Err(late));
        }
        let Some((name, kind)) = level.left.pop() else {
            let emptied = stack.pop().map(|level| level.name).unwrap_or_default();
            if let Some(above) = stack.last() {
                result = worse(result, remove_dir(above.dir.as_fd(), &emptied));
            }
            continue;
        };
        let step = match unlink(level.dir.as_fd(), &name, kind) {
            Ok(true) => Ok(()),
            Ok(false) if stack.len() < OPEN_AT_ONCE => enter(&mut stack, name),
            Ok(false) => {
                moved += 1;
                move_up(&mut stack, &name, moved)
            }
            Err(e) => Err(e),
        };
        result = worse(result, step);
    }
    result
}

/// The first error, but one that something mounted is the reason for (EBUSY, and ENOTEMPTY of the directories that lead to it) only where
/// there is no other.
fn worse(first: Result<()>, next: Result<()>) -> Result<()> {
    let is_of_mount = |e: &Error| e.is(libc::EBUSY) || e.is(libc::ENOTEMPTY);
    match (first, next) {
        (Err(e), Err(next)) if is_of_mount(&e) && !is_of_mount(&next) => Err(next),
        (first, next) => first.and(next),
    }
}

/// Goes on with the directory `name` of the innermost level.
fn enter(stack: &mut Vec<Level>, name: Vec<u8>) -> Result<()> {
    let Some(level) = stack.last() else { return Ok(()) };
    if let Some(dir) = open(level.dir.as_fd(), &name)? {
        stack.push(Level::of(dir, name)?);
    }
    Ok(())
}

/// Moves the directory `name` of the innermost level to the outermost one, to be removed there: a tree may be deeper than
/// descriptors may be open.
fn move_up(stack: &mut [Level], name: &[u8], number: u64) -> Result<()> {
    let (Some(level), Some(top)) = (stack.last(), stack.first()) else { return Ok(()) };
    // Its owner must be able to write it, since its `..` changes.
    if open(level.dir.as_fd(), name)?.is_none() {
        return Ok(());
    }
    let new = format!(".deep-{}-{number}", std::process::id()).into_bytes();
    disk::rename(level.dir.as_fd(), name, top.dir.as_fd(), &new)?;
    stack[0].left.push((new, FileType::Directory));
    Ok(())
}

/// Removes an entry that is no directory; false where it is one.
fn unlink(parent: BorrowedFd, name: &[u8], kind: FileType) -> Result<bool> {
    if kind == FileType::Directory {
        return Ok(false);
    }
    match fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::ISDIR) => Ok(false),
        Err(e) => Err(e).context(|| format!("remove {}", disk::at(parent, name))),
    }
}

/// Removes an empty directory. That another process has removed it is no error.
fn remove_dir(parent: BorrowedFd, name: &[u8]) -> Result<()> {
    match fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(e) => Err(e).context(|| format!("remove {}", disk::at(parent, name))),
    }
}

/// Opens a directory to empty it, with all rights of its owner; none where it is not there any more.
fn open(parent: BorrowedFd, name: &[u8]) -> Result<Option<OwnedFd>> {
    let doing = || format!("remove {}", disk::at(parent, name));
    let open = |flags: OFlags| fd::open_entry(parent, name, OFlags::DIRECTORY | flags);
    let opened = match open(OFlags::RDONLY) {
        Err(Errno::ACCESS) => {
            open(OFlags::PATH).and_then(|dir| open_up(&dir)).and_then(|()| open(OFlags::RDONLY))
        }
        opened => opened,
    };
    let dir = match opened {
        Ok(dir) => dir,
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::XDEV) => {
            return Err(Error::from_errno(libc::EBUSY).context(doing()).hint("something is mounted there"));
        }
        Err(e) => return Err(e).context(doing),
    };
    if fd::stat(&dir)?.st_mode & 0o700 != 0o700 {
        match fs::fchmod(&dir, Mode::RWXU) {
            // Somebody else's, or read-only: whether something can be removed there, the kernel says then.
            Ok(()) | Err(Errno::PERM | Errno::ROFS) => {}
            Err(e) => return Err(e).context(doing),
        }
    }
    Ok(Some(dir))
}

/// Gives the owner all rights to a directory that has been opened by its path alone, which fchmod(2) does not take.
fn open_up(dir: &OwnedFd) -> Result<(), Errno> {
    match fs::chmod(fd::link(dir), Mode::RWXU) {
        // The descriptor is open, so it is procfs that is missing, and not the directory. It is kept out of it as before.
        Err(Errno::NOENT) => Err(Errno::ACCESS),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs as files;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;
    use std::time::Duration;

    fn place(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("rt-remove-{name}-{}", std::process::id()));
        files::create_dir(&path).unwrap();
        path
    }

    #[test]
    fn a_tree_goes_and_what_its_links_lead_to_stays() {
        let place = place("links");
        files::create_dir_all(place.join("tree/a/b")).unwrap();
        files::write(place.join("tree/a/b/file"), "").unwrap();
        files::write(place.join("outside"), "stays").unwrap();
        symlink(&place, place.join("tree/a/link")).unwrap();
        symlink("/nowhere", place.join("tree/dangling")).unwrap();
        // Not even its owner may enter them.
        for closed in ["tree/a/b", "tree/a", "tree"] {
            files::set_permissions(place.join(closed), files::Permissions::from_mode(0o000)).unwrap();
        }
        remove_path(&place.join("tree")).unwrap();
        assert!(files::symlink_metadata(place.join("tree")).is_err());
        assert_eq!(files::read(place.join("outside")).unwrap(), b"stays");
        // Nothing is there, not even the directory above.
        remove_path(&place.join("tree")).unwrap();
        remove_path(&place.join("none/tree")).unwrap();
        // A link itself, and a file.
        symlink(place.join("outside"), place.join("link")).unwrap();
        remove_path(&place.join("link")).unwrap();
        assert!(place.join("outside").exists());
        remove_path(&place).unwrap();
        assert!(!place.exists());
    }

    #[test]
    fn no_tree_is_too_deep() {
        let place = place("deep");
        let mut dir = disk::open_root(&place).unwrap();
        for n in 0..1000 {
            disk::make_dir(dir.as_fd(), b"d").unwrap();
            let inner = disk::open_dir(dir.as_fd(), b"d").unwrap();
            if n % 100 == 50 {
                disk::set_mode(disk::reopen_self(inner.as_fd()).unwrap().as_fd(), 0o300).unwrap();
            }
            dir = inner;
        }
        drop(disk::create_own_file(dir.as_fd(), b"file").unwrap());
        remove_path(&place).unwrap();
        assert!(!place.exists());
    }

    #[test]
    fn what_is_kept_stays_and_time_ends() {
        let place = place("kept");
        files::create_dir_all(place.join("a/b")).unwrap();
        files::write(place.join("mark"), "").unwrap();
        let dir = disk::open_root(&place).unwrap();
        let past = Instant::now().checked_sub(Duration::from_secs(1));
        assert!(remove(&dir, b"a", past).unwrap_err().is(libc::ETIMEDOUT));
        assert!(place.join("a/b").exists());
        remove_contents(&dir, Some(b"mark")).unwrap();
        let left: Vec<_> = files::read_dir(&place).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["mark"]);
        assert!(remove(&dir, b"..", None).is_err());
        remove_path(&place).unwrap();
    }
}
