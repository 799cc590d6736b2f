//! tmpcopyup: a new tmpfs is filled with what the image has at its place.
//!
//! The image is hostile, so nothing here grows with it but a list of directories: no recursion, which would need stack
//! for every level, and two directories open at a time. How much is copied is bounded by the tmpfs, whose pages are
//! charged to the caller's cgroup. Sparse files stay sparse, since a file of a terabyte can be all holes.

use super::new_fs::names_id;
use crate::container::plan::MountPlan;
use rt_sys::error::{Context, Error, Result};
use rt_sys::rootfs::Rootfs;
use rt_sys::{bail, fd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, ResolveFlags, SeekFrom, Stat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const FLAGS: OFlags = OFlags::CLOEXEC.union(OFlags::NOFOLLOW);
const DIRECTORY: OFlags = FLAGS.union(OFlags::RDONLY).union(OFlags::DIRECTORY);

/// The longest path that the kernel takes, with its end.
const PATH_MAX: usize = libc::PATH_MAX as usize;

/// A directory of the image that was found and made, and is yet to be filled.
struct Directory {
    /// Its path below the one that is copied.
    path: PathBuf,
    /// Its owner and mode.
    stat: Stat,
}

/// Fills a new tmpfs, which is still detached, with what the image has at its destination.
pub(super) fn fill(rootfs: &Rootfs<'_>, mount: &MountPlan, tmpfs: &OwnedFd) -> Result<()> {
    let dir = match rootfs.open(&mount.destination, OFlags::RDONLY | OFlags::DIRECTORY) {
        Ok(dir) => dir,
        Err(Errno::NOENT) => return Ok(()),
        Err(e) => return Err(e.into()),
    };
    copy_tree(&dir, tmpfs).map_err(|e| {
        let full = e.is(libc::ENOSPC);
        let e = e.context("copy the image's directory");
        if full { e.hint("the tmpfs is too small for it: set size= and nr_inodes=") } else { e }
    })?;
    if !mount.options.data.iter().any(names_id) {
        fd::chown_like(tmpfs, &fd::stat(&dir)?);
    }
    Ok(())
}

/// Copies directories, files and links below `from` to `to`, with owners and modes. Devices, sockets and fifos are left
/// out.
fn copy_tree(from: &OwnedFd, to: &OwnedFd) -> Result<()> {
    let mut found: Vec<Directory> = Vec::new();
    copy_entries(
        &open_below(from, Path::new("."))?,
        &open_below(to, Path::new("."))?,
        Path::new(""),
        &mut found,
    )?;
    // Each directory comes after the one it is in; the list grows meanwhile.
    let mut next = 0;
    while let Some(directory) = found.get(next) {
        let path = directory.path.clone();
        let (source, target) = (open_below(from, &path), open_below(to, &path));
        source
            .and_then(|source| Ok((source, target?)))
            .map_err(Error::from)
            .and_then(|(source, target)| copy_entries(&source, &target, &path, &mut found))
            .context(|| path.display())?;
        next += 1;
    }
    // Modes are set at the end: a directory that its owner may not search or write could not have been filled. The inner
    // ones come first, since they could not be reached through such a directory.
    for Directory { path, stat } in found.iter().rev() {
        let dir = open_below(to, path).context(|| path.display())?;
        fd::chown_like(&dir, stat);
        fs::fchmod(&dir, mode_of(stat)).context(|| path.display())?;
    }
    Ok(())
}

/// Opens the directory `path` below `root`. Somebody may replace a directory of the image by a link meanwhile, so no link
/// is followed, and nothing outside `root` is reached (openat2(2), Linux 5.6).
fn open_below(root: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    fs::openat2(root, path, DIRECTORY, Mode::empty(), resolve)
}

/// Copies what is in one directory, whose path is `path`. The directories in it are made empty, and added to `found`.
fn copy_entries(from: &OwnedFd, to: &OwnedFd, path: &Path, found: &mut Vec<Directory>) -> Result<()> {
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
                found.push(Directory { path, stat });
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
    // Without O_NONBLOCK, the open of a fifo that has taken the file's place would wait for a writer for ever.
    let source = fs::openat(from, name, OFlags::RDONLY | OFlags::NONBLOCK | FLAGS, Mode::empty())?;
    let stat = fd::stat(&source)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Ok(());
    }
    let create = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | FLAGS;
    let file = fs::openat(to, name, create, Mode::RUSR | Mode::WUSR)?;
    let size = stat.st_size as u64;
    // The file has its full size first, as one hole. Only the parts with data are written then.
    fs::ftruncate(&file, size)?;
    let mut at = 0;
    while let Some(data) = next_data(&source, at, size)? {
        at = data.end;
        copy_range(&source, &file, data)?;
    }
    // In this order: chown(2) clears the set-user-ID and set-group-ID bits.
    fd::chown_like(&file, &stat);
    fs::fchmod(&file, mode_of(&stat))?;
    Ok(())
}

/// Where the next data of `file` is, from `at` on and below `size` (lseek(2), SEEK_DATA and SEEK_HOLE). A file system that
/// knows nothing of holes shows the whole file as data.
fn next_data(file: &OwnedFd, at: u64, size: u64) -> Result<Option<Range<u64>>, Errno> {
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
fn copy_range(from: &OwnedFd, to: &OwnedFd, part: Range<u64>) -> Result<(), Errno> {
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
