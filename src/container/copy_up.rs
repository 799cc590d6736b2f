//! tmpcopyup: a new tmpfs is filled with what the image has at its place.
//!
//! The image is hostile, so nothing here grows with it but a list of directories: no recursion, and two directories
//! open at a time. How much is copied is bounded by the tmpfs, whose pages are charged to the caller's cgroup; what
//! is sparse stays sparse.

use rt_sys::error::{Context, Error, Result};
use rt_sys::{bail, fd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, ResolveFlags, SeekFrom, Stat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const FLAGS: OFlags = OFlags::CLOEXEC.union(OFlags::NOFOLLOW);
const DIRECTORY: OFlags = FLAGS.union(OFlags::RDONLY).union(OFlags::DIRECTORY);

/// The longest path that the kernel takes, with its end.
const PATH_MAX: usize = libc::PATH_MAX as usize;

/// Copies directories, files and links below `from` to `to`, with owners and modes; what else may be there is left
/// out.
pub(super) fn copy_tree(from: &OwnedFd, to: &OwnedFd) -> Result<()> {
    let mut found = Vec::new();
    copy_entries(
        &open_below(from, Path::new("."))?,
        &open_below(to, Path::new("."))?,
        Path::new(""),
        &mut found,
    )?;
    // Each directory comes after the one it is in; the list grows meanwhile.
    let mut next = 0;
    while let Some((path, _)) = found.get(next) {
        let path: PathBuf = path.clone();
        let (source, target) = (open_below(from, &path), open_below(to, &path));
        source
            .and_then(|source| Ok((source, target?)))
            .map_err(Error::from)
            .and_then(|(source, target)| copy_entries(&source, &target, &path, &mut found))
            .context(|| path.display())?;
        next += 1;
    }
    // Only now: a directory that its owner may not search could not have been filled. The inner ones first.
    for (path, stat) in found.iter().rev() {
        let dir = open_below(to, path).context(|| path.display())?;
        fd::chown_like(&dir, stat);
        fs::fchmod(&dir, mode_of(stat)).context(|| path.display())?;
    }
    Ok(())
}

/// Somebody may exchange directories of the image meanwhile.
fn open_below(root: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    fs::openat2(root, path, DIRECTORY, Mode::empty(), resolve)
}

/// Copies what is in one directory, whose path is `path`; of the directories in it the place alone, and adds them to
/// `found`.
fn copy_entries(from: &OwnedFd, to: &OwnedFd, path: &Path, found: &mut Vec<(PathBuf, Stat)>) -> Result<()> {
    for entry in fs::Dir::read_from(from)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        let stat = fs::statat(from, name, AtFlags::SYMLINK_NOFOLLOW)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let path = path.join(name);
                if path.as_os_str().len() >= PATH_MAX {
                    bail!("a path in it has more than {PATH_MAX} bytes");
                }
                fs::mkdirat(to, name, Mode::RWXU)?;
                found.push((path, stat));
            }
            FileType::Symlink => fs::symlinkat(fs::readlinkat(from, name, Vec::new())?, to, name)?,
            FileType::RegularFile => {
                copy_file(from.as_fd(), to.as_fd(), name).context(|| Path::new(name).display())?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn copy_file(from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &OsStr) -> Result<()> {
    // A fifo that has taken the file's place must not block.
    let source = fs::openat(from, name, OFlags::RDONLY | OFlags::NONBLOCK | FLAGS, Mode::empty())?;
    let stat = fs::fstat(&source)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Ok(());
    }
    let create = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | FLAGS;
    let file = fs::openat(to, name, create, Mode::RUSR | Mode::WUSR)?;
    let size = stat.st_size as u64;
    fs::ftruncate(&file, size)?;
    let mut at = 0;
    while let Some((start, end)) = next_data(&source, at, size)? {
        copy_range(&source, &file, start, end)?;
        at = end;
    }
    fd::chown_like(&file, &stat);
    fs::fchmod(&file, mode_of(&stat))?;
    Ok(())
}

/// Where the next data of `file` is, from `at` on and below `size`.
fn next_data(file: &OwnedFd, at: u64, size: u64) -> Result<Option<(u64, u64)>, Errno> {
    if at >= size {
        return Ok(None);
    }
    let start = match fs::seek(file, SeekFrom::Data(at)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        Err(e) => return Err(e),
    };
    let end = fs::seek(file, SeekFrom::Hole(start))?.min(size);
    Ok((start < end).then_some((start, end)))
}

fn copy_range(from: &OwnedFd, to: &OwnedFd, start: u64, end: u64) -> Result<(), Errno> {
    fs::seek(to, SeekFrom::Start(start))?;
    let mut at = start;
    while at < end {
        let most = usize::try_from(end - at).unwrap_or(usize::MAX);
        match fs::sendfile(to, from, Some(&mut at), most) {
            // It has become shorter.
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
