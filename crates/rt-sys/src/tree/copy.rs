//! Copies of directory trees.
//!
//! Nothing here grows with a tree but a list of its directories: no recursion, which would need stack for every level, and two
//! directories open at a time. Sparse files stay sparse, since a file of a terabyte can be all holes.

use crate::error::{Context, Error, Result};
use crate::{bail, fd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, ResolveFlags, SeekFrom, Stat, Timestamps};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const FLAGS: OFlags = OFlags::CLOEXEC.union(OFlags::NOFOLLOW);
const DIRECTORY: OFlags = FLAGS.union(OFlags::RDONLY).union(OFlags::DIRECTORY);

/// The longest path that the kernel takes, with its end.
const PATH_MAX: usize = libc::PATH_MAX as usize;

/// A directory of the source that was found and made, and is yet to be filled.
struct Directory {
    /// Its path below the one that is copied.
    path: PathBuf,
    /// Its owner and mode.
    stat: Stat,
}

/// What a copy does beside copying.
#[derive(Debug, Clone, Copy, Default)]
pub struct Manner {
    /// Nothing that is mounted in the source or in the target is entered, and what the target has already stays.
    pub around_mounts: bool,
    /// Fifos are made, and times are kept.
    pub whole: bool,
}

/// Copies directories, files and links below `from` to `to`, with owners and modes. Devices, sockets and fifos are left
/// out.
///
/// # Errors
/// What cannot be read or made, named by its path below `from`.
pub fn copy(from: impl AsFd, to: impl AsFd, manner: Manner) -> Result<()> {
    let (from, to) = (from.as_fd(), to.as_fd());
    let mut found: Vec<Directory> = Vec::new();
    copy_entries(
        &open_below(from, Path::new("."), manner)?,
        &open_below(to, Path::new("."), manner)?,
        Path::new(""),
        manner,
        &mut found,
    )?;
    // Each directory comes after the one it is in; the list grows meanwhile.
    let mut next = 0;
    while let Some(directory) = found.get(next) {
        let path = directory.path.clone();
        let (source, target) = (open_below(from, &path, manner), open_below(to, &path, manner));
        source
            .and_then(|source| Ok((source, target?)))
            .map_err(Error::from)
            .and_then(|(source, target)| copy_entries(&source, &target, &path, manner, &mut found))
            .context(|| path.display())?;
        next += 1;
    }
    // Modes are set at the end: a directory that its owner may not search or write could not have been filled. The inner
    // ones come first, since they could not be reached through such a directory.
    for Directory { path, stat } in found.iter().rev() {
        let dir = open_below(to, path, manner).context(|| path.display())?;
        fd::chown_like(&dir, stat);
        fs::fchmod(&dir, mode_of(stat)).context(|| path.display())?;
        if manner.whole {
            fs::futimens(&dir, &times_of(stat)).context(|| path.display())?;
        }
    }
    Ok(())
}

/// Opens the directory `path` below `root`. Somebody may replace a directory of the source by a link meanwhile, so no link
/// is followed, and nothing outside `root` is reached (openat2(2), Linux 5.6).
fn open_below(root: BorrowedFd<'_>, path: &Path, manner: Manner) -> Result<OwnedFd, Errno> {
    let mut resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    resolve.set(ResolveFlags::NO_XDEV, manner.around_mounts);
    fs::openat2(root, path, DIRECTORY, Mode::empty(), resolve)
}

/// Copies what is in one directory, whose path is `path`. The directories in it are made empty, and added to `found`.
fn copy_entries(
    from: &OwnedFd,
    to: &OwnedFd,
    path: &Path,
    manner: Manner,
    found: &mut Vec<Directory>,
) -> Result<()> {
    for entry in fs::Dir::read_from(from)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        let stat = match manner.around_mounts {
            false => fs::statat(from, name, AtFlags::SYMLINK_NOFOLLOW)?,
            true => match fd::stat_entry(from, name) {
                Err(Errno::XDEV) => continue,
                stat => stat?,
            },
        };
        let made = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let path = path.join(name);
                if path.as_os_str().len() >= PATH_MAX {
                    bail!("a path in it has more than {PATH_MAX} bytes");
                }
                let made = fs::mkdirat(to, name, Mode::RWXU).map_err(Error::from);
                let is_mount =
                    || manner.around_mounts && matches!(fd::stat_entry(to, name), Err(Errno::XDEV));
                if made.is_ok() || manner.around_mounts && !is_mount() {
                    found.push(Directory { path, stat });
                }
                made
            }
            FileType::Symlink => fs::symlinkat(fs::readlinkat(from, name, Vec::new())?, to, name)
                .map(|()| fd::chown_entry_like(to, name, &stat))
                .map_err(Error::from),
            FileType::RegularFile => copy_file(from.as_fd(), to.as_fd(), name, manner),
            FileType::Fifo if manner.whole => {
                let made = fs::mknodat(to, name, FileType::Fifo, mode_of(&stat), 0);
                made.map(|()| fd::chown_entry_like(to, name, &stat)).map_err(Error::from)
            }
            _ => Ok(()),
        };
        match made {
            // A mount point that this container has anyway.
            Err(e) if manner.around_mounts && e.is(libc::EEXIST) => {}
            made => made.context(|| Path::new(name).display())?,
        }
    }
    Ok(())
}

fn copy_file(from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &OsStr, manner: Manner) -> Result<()> {
    // Without O_NONBLOCK, the open of a fifo that has taken the file's place would wait for a writer for ever.
    let source = fs::openat(from, name, OFlags::RDONLY | OFlags::NONBLOCK | FLAGS, Mode::empty())?;
    let stat = fd::stat(&source)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Ok(());
    }
    let create = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | FLAGS;
    let file = fs::openat(to, name, create, Mode::RUSR | Mode::WUSR)?;
    copy_content(source.as_fd(), file.as_fd(), stat.st_size as u64)?;
    // In this order: chown(2) clears the set-user-ID and set-group-ID bits.
    fd::chown_like(&file, &stat);
    fs::fchmod(&file, mode_of(&stat))?;
    if manner.whole {
        fs::futimens(&file, &times_of(&stat))?;
    }
    Ok(())
}

/// Copies the content of a file of `size` bytes to an empty one, and leaves out its holes.
///
/// # Errors
/// Those of ftruncate(2), lseek(2) and sendfile(2).
pub fn copy_content(from: BorrowedFd<'_>, to: BorrowedFd<'_>, size: u64) -> Result<()> {
    // The file has its full size first, as one hole. Only the parts with data are written then.
    fs::ftruncate(to, size)?;
    let mut at = 0;
    while let Some(data) = next_data(from, at, size)? {
        at = data.end;
        copy_range(from, to, data)?;
    }
    Ok(())
}

/// Where the next data of `file` is, from `at` on and below `size` (lseek(2), SEEK_DATA and SEEK_HOLE). A file system that
/// knows nothing of holes shows the whole file as data.
fn next_data(file: BorrowedFd<'_>, at: u64, size: u64) -> Result<Option<Range<u64>>, Errno> {
    if at >= size {
        return Ok(None);
    }
    let start = match fs::seek(file, SeekFrom::Data(at)) {
        Ok(start) => start,
        // Only a hole is left.
        Err(Errno::NXIO) => return Ok(None),
        Err(e) => return Err(e),
    };
    let end = fs::seek(file, SeekFrom::Hole(start))?.min(size);
    Ok((start < end).then_some(start..end))
}

/// Copies a part of a file inside the kernel (sendfile(2)), to the same place.
fn copy_range(from: BorrowedFd<'_>, to: BorrowedFd<'_>, part: Range<u64>) -> Result<(), Errno> {
    fs::seek(to, SeekFrom::Start(part.start))?;
    let mut at = part.start;
    while at < part.end {
        let most = usize::try_from(part.end - at).unwrap_or(usize::MAX);
        match fs::sendfile(to, from, Some(&mut at), most) {
            // The file has become shorter meanwhile.
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn mode_of(stat: &Stat) -> Mode {
    Mode::from_raw_mode(stat.st_mode & 0o7777)
}

fn times_of(stat: &Stat) -> Timestamps {
    let time = |tv_sec, tv_nsec| fs::Timespec { tv_sec, tv_nsec: tv_nsec as _ };
    Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
    }
}
