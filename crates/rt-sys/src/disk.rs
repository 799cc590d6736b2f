//! The few system calls that make a tree, one name below one directory descriptor each.
//!
//! Every call takes a descriptor and a single path component and never follows a link, so nothing
//! that a layer says can reach outside the tree: `..`, absolute names and symbolic links in the
//! way do not exist at this level.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{
    self, AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatxFlags, Timespec, Timestamps, XattrFlags,
};
use rustix::io::Errno;

use crate::error::{Context, Error, Result};
use crate::owned::Owned;
use crate::owner::LONGEST_RECORD;
use crate::{check, err, fd};

/// Opens a directory to be the parent of names. With O_PATH no read permission is needed, and O_NOFOLLOW makes a link an
/// error (ENOTDIR, with O_DIRECTORY).
pub fn open_dir(parent: BorrowedFd, name: &[u8]) -> Result<OwnedFd> {
    check_component(name)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    open_unserved(parent, name, flags).context(|| format!("open directory {}", at(parent, name)))
}

/// As [`fd::open_unserved`], of a name alone, and an error of EXDEV says what is mounted there.
fn open_unserved(parent: BorrowedFd, name: &[u8], flags: OFlags) -> Result<OwnedFd> {
    fd::open_unserved(parent, name, flags | OFlags::NOFOLLOW, ResolveFlags::BENEATH)
        .map_err(fd::unserved_error)
}

/// Opens a directory that the user named, whatever links lead to it.
pub fn open_root(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    fs::openat(CWD, path, flags, Mode::empty()).context(|| format!("open {}", fd::shown_path(path)))
}

/// Makes a directory that only the caller may enter; its final mode comes at the end.
pub fn make_dir(parent: BorrowedFd, name: &[u8]) -> Result<()> {
    check_component(name)?;
    fs::mkdirat(parent, name, Mode::RWXU).context(|| format!("make directory {}", at(parent, name)))
}

/// Makes a file that was not there. O_EXCL refuses any name that exists, a link included.
pub fn create_file(parent: BorrowedFd, name: &[u8], mode: u32) -> Result<File> {
    check_component(name)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = fs::openat(parent, name, flags, Mode::from_raw_mode(mode))
        .context(|| format!("create {}", at(parent, name)))?;
    Ok(File::from(fd))
}

/// Makes a file that was not there, for the caller alone, to be written and read.
pub fn create_own_file(parent: BorrowedFd, name: &[u8]) -> Result<File> {
    check_component(name)?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = fs::openat(parent, name, flags, Mode::RUSR | Mode::WUSR)
        .context(|| format!("create {}", at(parent, name)))?;
    Ok(File::from(fd))
}

/// Opens a regular file for reading. What it is can only be asked once it is open, since its name can become another
/// file's at any time; so it is opened in a way that does not wait for a fifo's writer ([`READ`]).
pub fn open_file(parent: BorrowedFd, name: &[u8]) -> Result<File> {
    check_component(name)?;
    let fd = open_unserved(parent, name, READ).context(|| format!("open {}", at(parent, name)))?;
    require_file(&fd::stat(&fd)?).context(|| at(parent, name))?;
    Ok(File::from(fd))
}

/// Opens a regular file for reading; none where something else has that name, a link among them.
///
/// # Errors
/// EXDEV where something is mounted there, which is not asked.
pub fn open_if_file(parent: BorrowedFd, name: &[u8]) -> Result<Option<File>> {
    check_component(name)?;
    let fd = match fd::open_entry(parent, name, READ) {
        // ELOOP is O_NOFOLLOW's answer to a link; ENXIO that of a socket, and of a device without a driver (open(2)).
        Err(Errno::LOOP | Errno::NXIO) => return Ok(None),
        opened => opened.context(|| format!("open {}", at(parent, name)))?,
    };
    let stat = fd::stat(&fd)?;
    Ok(require_file(&stat).is_ok().then(|| File::from(fd)))
}

/// Opens a regular file that the user named, or an image by its digest, whatever links lead to it.
pub fn open_named(path: &Path) -> Result<File> {
    // Asked first, since opening a device can have effects: a tape rewinds when it is closed. The file may be another by the time it is
    // open, so it is asked again.
    require_file(&fs::stat(path).context(|| format!("open {}", path.display()))?)
        .context(|| path.display().to_string())?;
    let fd = fs::open(path, READ, Mode::empty()).context(|| format!("open {}", path.display()))?;
    require_file(&fd::stat(&fd)?).context(|| path.display().to_string())?;
    Ok(File::from(fd))
}

/// Opens whatever has that name to ask what it is. With O_PATH a link is opened itself, and a device or fifo is not
/// touched.
///
/// # Errors
/// EXDEV for another user's file system ([`fd::open_unserved`]), which may never say what it is.
pub fn open_any(parent: BorrowedFd, name: &[u8]) -> Result<File> {
    check_component(name)?;
    let fd = open_unserved(parent, name, OFlags::PATH).context(|| format!("open {}", at(parent, name)))?;
    Ok(File::from(fd))
}

/// Opens what a directory has said to be a regular file, for reading. None where it is not, or where something keeps it from being
/// opened so: [`open_any`] says what.
pub fn open_entry_if_file(parent: BorrowedFd, name: &[u8]) -> Option<(File, Metadata)> {
    let (Ok(()), Ok(opened)) = (check_component(name), fd::open_entry(parent, name, READ)) else {
        return None;
    };
    let file = File::from(opened);
    match file.metadata() {
        Ok(metadata) if metadata.is_file() => Some((file, metadata)),
        _ => None,
    }
}

/// The target of a symbolic link that [`open_any`] has opened. readlinkat(2) takes an empty path for such a descriptor.
pub fn read_link(link: BorrowedFd) -> Result<Vec<u8>> {
    Ok(fs::readlinkat(link, "", Vec::new())
        .context(|| format!("read link {}", fd::shown(link)))?
        .into_bytes())
}

/// Reads a regular file that need not be there.
///
/// # Errors
/// The file cannot be read, is something else than a regular file, or has more than `most` bytes.
pub fn read_if_there(parent: BorrowedFd, name: &[u8], most: usize) -> Result<Option<Vec<u8>>> {
    let file = match open_file(parent, name) {
        Err(e) if e.is(libc::ENOENT) => return Ok(None),
        opened => opened?,
    };
    let mut text = Vec::new();
    // The limit is far below what a u64 can say.
    file.take(most as u64 + 1).read_to_end(&mut text).context(|| format!("read {}", at(parent, name)))?;
    if text.len() > most {
        return Err(err!("{}: more than {most} bytes", at(parent, name)));
    }
    Ok(Some(text))
}

/// How files are opened that may be anything: O_NONBLOCK, or a fifo would be waited for (fifo(7)); O_NOCTTY, or a terminal
/// could become the controlling one of this process.
const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

fn require_file(stat: &fs::Stat) -> Result<()> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(()),
        _ => Err(err!("not a regular file")),
    }
}

/// True where nobody but the caller and root can change what the file contains, or the names in the directory, nor serves the
/// file system that it is on.
pub fn only_ours(file: &impl AsFd) -> Result<bool> {
    let owned = Owned::of(file)?;
    Ok([0, caller().uid].contains(&owned.stat.st_uid) && !owned.others_can_write(file, false)?)
}

/// True where what has that name belongs to the caller or to root; of a link, the link itself.
pub fn is_own(parent: BorrowedFd, name: &[u8]) -> bool {
    fd::stat_entry(parent, name).is_ok_and(|stat| [0, caller().uid].contains(&stat.st_uid))
}

/// Makes a directory that only the caller may enter, and opens it.
///
/// # Errors
/// Also where somebody else who may write in `parent` has put something in its place.
pub fn make_own_dir(parent: BorrowedFd, name: &[u8]) -> Result<OwnedFd> {
    make_dir(parent, name)?;
    let opened = open_own_dir(parent, name).and_then(|dir| match entries(dir.as_fd())?.is_empty() {
        true => Ok(dir),
        false => Err(not_ours(parent, name)),
    });
    if opened.is_err() {
        // A file server that gives root's files to another user (root_squash) has made it all the same. Of what somebody
        // else has put there, only an empty directory can go by this.
        let _ = fs::unlinkat(parent, name, AtFlags::REMOVEDIR);
    }
    opened
}

/// Opens a directory of the caller's that nobody else may enter, to be read as well, and nothing that is mounted there.
pub fn open_own_dir(parent: BorrowedFd, name: &[u8]) -> Result<OwnedFd> {
    check_component(name)?;
    let dir = fd::open_entry(parent, name, OFlags::RDONLY | OFlags::DIRECTORY)
        .context(|| format!("open {}", at(parent, name)))?;
    let owned = Owned::as_told(&dir)?;
    let stat = owned.stat;
    if stat.st_uid != caller().uid || stat.st_mode & 0o077 != 0 || owned.others_can_write(&dir, false)? {
        return Err(not_ours(parent, name));
    }
    Ok(dir)
}

fn not_ours(parent: BorrowedFd, name: &[u8]) -> Error {
    err!("{}: not the directory that was made for this user alone", at(parent, name))
        .hint("somebody else changes what is beside it, or its file system gives files to another user")
}

/// Opens a directory to be the parent of names ([`open_dir`]); none where there is no directory of that name, or a link, or the caller may not look.
pub fn open_if_dir(parent: BorrowedFd, name: &[u8]) -> Result<Option<OwnedFd>> {
    match open_dir(parent, name) {
        Err(e) if [libc::ENOENT, libc::ENOTDIR, libc::ELOOP, libc::EACCES].iter().any(|no| e.is(*no)) => {
            Ok(None)
        }
        opened => opened.map(Some),
    }
}

/// What is in a directory, and what each is as far as the file system tells.
pub fn entries(dir: BorrowedFd) -> Result<Vec<(Vec<u8>, FileType)>> {
    let readable = reopen_self(dir)?;
    let mut entries = Vec::new();
    for entry in fs::Dir::new(readable).context(|| format!("read {}", fd::shown(dir)))? {
        let entry = entry.context(|| format!("read {}", fd::shown(dir)))?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            entries.push((name.to_vec(), entry.file_type()));
        }
    }
    Ok(entries)
}

/// Removes an empty directory.
pub fn remove_dir(parent: BorrowedFd, name: &[u8]) -> Result<()> {
    check_component(name)?;
    fs::unlinkat(parent, name, AtFlags::REMOVEDIR).context(|| format!("remove {}", at(parent, name)))
}

/// Makes a symbolic link.
pub fn symlink(parent: BorrowedFd, name: &[u8], target: &[u8]) -> Result<()> {
    check_component(name)?;
    fs::symlinkat(target, parent, name).context(|| format!("make symbolic link {}", at(parent, name)))
}

/// Makes a FIFO.
pub fn fifo(parent: BorrowedFd, name: &[u8], mode: u32) -> Result<()> {
    check_component(name)?;
    fs::mknodat(parent, name, FileType::Fifo, Mode::from_raw_mode(mode), 0)
        .context(|| format!("make fifo {}", at(parent, name)))
}

/// Gives a file a second name. Without AT_SYMLINK_FOLLOW, linkat(2) links a symbolic link itself.
pub fn link(from: BorrowedFd, from_name: &[u8], to: BorrowedFd, to_name: &[u8]) -> Result<()> {
    check_component(from_name)?;
    check_component(to_name)?;
    fs::linkat(from, from_name, to, to_name, AtFlags::empty())
        .context(|| format!("link {} to {}", at(to, to_name), at(from, from_name)))
}

/// Gives an open file another name, whatever its own name is by now.
pub fn link_open(file: BorrowedFd, to: BorrowedFd, to_name: &[u8]) -> Result<()> {
    check_component(to_name)?;
    fs::linkat(fs::CWD, fd::link(file), to, to_name, AtFlags::SYMLINK_FOLLOW)
        .context(|| format!("link {} to {}", at(to, to_name), fd::shown(file)))
}

/// Removes a name that is no directory; one that is not there is fine.
pub fn unlink(parent: BorrowedFd, name: &[u8]) -> Result<()> {
    check_component(name)?;
    match fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(e) => Err(Error::from(e).context(format!("remove {}", at(parent, name)))),
    }
}

/// Moves a name.
pub fn rename(from: BorrowedFd, from_name: &[u8], to: BorrowedFd, to_name: &[u8]) -> Result<()> {
    check_component(from_name)?;
    check_component(to_name)?;
    fs::renameat(from, from_name, to, to_name).context(|| format!("move {}", at(from, from_name)))
}

/// Moves a name to one that must not be there.
///
/// # Errors
/// EEXIST where it is. Where the file system has no RENAME_NOREPLACE (NFS), a directory that is
/// not empty is still never replaced, because rename(2) refuses that.
pub fn rename_new(from: BorrowedFd, from_name: &[u8], to: BorrowedFd, to_name: &[u8]) -> Result<()> {
    check_component(from_name)?;
    check_component(to_name)?;
    let doing = || format!("rename {} to {}", at(from, from_name), at(to, to_name));
    match fs::renameat_with(from, from_name, to, to_name, fs::RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) if mode_at(to, to_name)?.is_none() => {
            fs::renameat(from, from_name, to, to_name).context(doing)
        }
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            Err(Error::from_errno(Errno::EXIST.raw_os_error()).context(doing()))
        }
        other => other.context(doing),
    }
}

/// Gives a new directory its name, where another process may do the same. False where that was faster.
///
/// Without RENAME_NOREPLACE (NFS), rename(2) would replace the other's directory while that is empty, and a client can take it
/// for missing as long as it keeps attributes. There mkdir(2) decides, and `name` appears with fewer rights than `mode` at most.
pub fn name_new_dir(parent: BorrowedFd, draft: &[u8], name: &[u8], mode: u32) -> Result<bool> {
    check_component(name)?;
    match fs::renameat_with(parent, draft, parent, name, fs::RenameFlags::NOREPLACE) {
        Ok(()) => return Ok(true),
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
        Err(Errno::EXIST) => return Ok(false),
        Err(e) => return Err(e).context(|| format!("rename {} to {}", at(parent, draft), at(parent, name))),
    }
    match fs::mkdirat(parent, name, Mode::from_raw_mode(mode)) {
        Ok(()) => set_mode(OwnedFd::from(reopen_dir(parent, name)?).as_fd(), mode).map(|()| false),
        Err(Errno::EXIST) => Ok(false),
        Err(e) => Err(e).context(|| format!("make {}", at(parent, name))),
    }
}

/// Swaps two names in one step, so that neither is missing at any moment. Not all file systems can (NFS cannot).
pub fn exchange(one: BorrowedFd, one_name: &[u8], other: BorrowedFd, other_name: &[u8]) -> Result<()> {
    check_component(one_name)?;
    check_component(other_name)?;
    fs::renameat_with(one, one_name, other, other_name, fs::RenameFlags::EXCHANGE)
        .context(|| format!("exchange {} and {}", at(one, one_name), at(other, other_name)))
}

/// True where the name is that of this open directory, and not a link to it. Device and inode number name a file.
pub fn is_same(parent: BorrowedFd, name: &[u8], dir: impl AsFd) -> bool {
    let there = fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| (stat.st_dev, stat.st_ino));
    let known = fs::fstat(dir).map(|stat| (stat.st_dev, stat.st_ino));
    there.is_ok() && there == known
}

/// Sets both times of an open file.
pub fn set_times(file: BorrowedFd, mtime: (i64, u32)) -> Result<()> {
    fs::futimens(file, &stamps(mtime)).context(|| format!("set times of {}", fd::shown(file)))
}

/// Sets both times of a name, without following it.
pub fn set_times_at(parent: BorrowedFd, name: &[u8], mtime: (i64, u32)) -> Result<()> {
    check_component(name)?;
    fs::utimensat(parent, name, &stamps(mtime), AtFlags::SYMLINK_NOFOLLOW)
        .context(|| format!("set times of {}", at(parent, name)))
}

/// Has the next look-ups in a directory see what other nodes have put there. A client of NFS remembers for seconds that a
/// name was missing; statx(2) with AT_STATX_FORCE_SYNC has it ask the server for the directory's state, and what it
/// remembers ends where that has changed.
pub fn look_afresh(dir: BorrowedFd) {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    // Where that fails, a look-up says what it would have said anyway.
    let _ = fs::statx(dir, "", flags, StatxFlags::MTIME | StatxFlags::CTIME);
}

/// Renews the modification time of a name, or of the directory itself by `.`, by the file server's clock.
pub fn touch(dir: BorrowedFd, name: &[u8]) -> Result<()> {
    let now = Timespec { tv_sec: 0, tv_nsec: fs::UTIME_NOW };
    let stamps = Timestamps { last_access: now, last_modification: now };
    fs::utimensat(dir, name, &stamps, AtFlags::SYMLINK_NOFOLLOW)
        .context(|| format!("touch {}", at(dir, name)))
}

/// Sets permission bits.
pub fn set_mode(file: BorrowedFd, mode: u32) -> Result<()> {
    fs::fchmod(file, Mode::from_raw_mode(mode)).context(|| format!("set mode of {}", fd::shown(file)))
}

/// True for an attribute by which whoever made an image or an archive would steer what becomes of it: an overlay mount obeys
/// user.overlay.* of its layers (mount option userxattr), and the record of an owner is believed where layers are written.
pub fn is_steering(name: &[u8]) -> bool {
    name.starts_with(b"user.overlay.") || name == crate::owner::OWNER_RECORD.as_bytes()
}

/// Sets an extended attribute; false where the file system has none of its kind or length, or the kernel does not allow it.
pub fn set_xattr(file: BorrowedFd, name: &[u8], value: &[u8]) -> Result<bool> {
    let text = String::from_utf8_lossy(name);
    match fs::fsetxattr(file, text.as_ref(), value, XattrFlags::empty()) {
        Ok(()) => Ok(true),
        Err(Errno::NOSPC | Errno::DQUOT) => Err(err!("set {text}: no space left on device")),
        // EINVAL: capabilities or an access list of a form or with ids that the kernel does not take. The last two: the name
        // or the value is too long (setxattr(2)).
        Err(Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS | Errno::INVAL | Errno::RANGE | Errno::TOOBIG) => {
            Ok(false)
        }
        Err(e) => Err(e).context(|| format!("set the attribute {}", show(name))),
    }
}

/// Removes an extended attribute; one that is not there is fine.
pub fn remove_xattr(file: BorrowedFd, name: &[u8]) -> Result<()> {
    match fs::fremovexattr(file, String::from_utf8_lossy(name).as_ref()) {
        Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
        Err(e) => Err(e).context(|| format!("remove the attribute {} of {}", show(name), fd::shown(file))),
    }
}

/// True where an open file has an extended attribute of that name.
pub fn has_xattr(file: BorrowedFd, name: &[u8]) -> Result<bool> {
    // With no room for the value, fgetxattr(2) says how long it is.
    match fs::fgetxattr(file, name, &mut [0u8; 0][..]) {
        Ok(_) => Ok(true),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(false),
        Err(e) => Err(e).context(|| format!("read the attribute {} of {}", show(name), fd::shown(file))),
    }
}

/// An extended attribute of an open file that is no longer than [`LONGEST_RECORD`]; none where it has none of that name, or a
/// longer one.
pub fn short_xattr(file: BorrowedFd, name: &[u8]) -> Result<Option<Vec<u8>>> {
    let mut value = [0u8; LONGEST_RECORD];
    match fs::fgetxattr(file, name, &mut value[..]) {
        Ok(n) => Ok(Some(value[..n].to_vec())),
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::RANGE) => Ok(None),
        Err(e) => Err(e).context(|| format!("read the attribute {} of {}", show(name), fd::shown(file))),
    }
}

/// The extended attributes of an open file that the caller may read.
///
/// # Errors
/// They could not be read. A file system that has none is no error.
pub fn xattrs(file: BorrowedFd) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    // Most files have none. What is as long as the kernel may say is allocated for the others alone.
    if matches!(fs::flistxattr(file, &mut [0u8; 256][..]), Ok(0)) {
        return Ok(Vec::new());
    }
    let mut names = vec![0u8; 64 << 10];
    let n = match fs::flistxattr(file, &mut names[..]) {
        Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        listed => listed.context(|| format!("list the attributes of {}", fd::shown(file)))?,
    };
    let mut value = vec![0u8; 64 << 10];
    let mut all = Vec::new();
    for name in names[..n].split(|&b| b == 0).filter(|name| !name.is_empty()) {
        match fs::fgetxattr(file, name, &mut value[..]) {
            Ok(n) => all.push((name.to_vec(), value[..n].to_vec())),
            // Removed since it was listed; one of a kind that is listed and not kept; not for the caller (xattr(7)).
            Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::ACCESS | Errno::PERM) => {}
            Err(e) => {
                return Err(e)
                    .context(|| format!("read the attribute {} of {}", show(name), fd::shown(file)));
            }
        }
    }
    Ok(all)
}

/// Opens a directory to read it, or to change its mode and times, for which the kernel takes no O_PATH descriptor (EBADF).
///
/// # Errors
/// As of [`open_any`].
pub fn reopen_dir(parent: BorrowedFd, name: &[u8]) -> Result<File> {
    check_component(name)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let fd = open_unserved(parent, name, flags).context(|| format!("open {}", at(parent, name)))?;
    Ok(File::from(fd))
}

/// A second descriptor of a directory.
pub fn open_dir_again(dir: BorrowedFd) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    fs::openat(dir, ".", flags, Mode::empty()).context(|| format!("open {}", fd::shown(dir)))
}

/// Opens the directory behind an O_PATH descriptor for reading.
pub fn reopen_self(dir: BorrowedFd) -> Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(File::from(fs::openat(dir, ".", flags, Mode::empty()).context(|| format!("open {}", fd::shown(dir)))?))
}

/// Type and mode of what has a name, of a link itself; none where there is nothing.
///
/// # Errors
/// As of [`open_any`].
pub fn mode_at(parent: BorrowedFd, name: &[u8]) -> Result<Option<u32>> {
    match open_any(parent, name) {
        Ok(any) => Ok(Some(fd::stat(any)?.st_mode)),
        Err(e) if e.is(libc::ENOENT) || e.is(libc::ENOTDIR) => Ok(None),
        Err(e) => Err(e),
    }
}

/// What the caller may still use of a file system.
#[derive(Debug, Clone, Copy)]
pub struct FreeSpace {
    /// Bytes.
    pub bytes: u64,
    /// Inodes.
    pub inodes: u64,
}

/// The free space on the file system of `file`.
pub fn free_space(file: impl AsFd) -> Result<FreeSpace> {
    let stat = fs::fstatvfs(&file).context(|| format!("look up the space of {}", fd::shown(&file)))?;
    // File systems without an inode table (btrfs, Lustre clients at times) say zero of zero.
    let inodes = if stat.f_files == 0 { u64::MAX } else { stat.f_favail };
    Ok(FreeSpace { bytes: stat.f_bavail.saturating_mul(stat.f_frsize), inodes })
}

/// How much of a file system is in use, in percent of what the caller could use, as df(1) has it.
pub fn percent_used(file: impl AsFd) -> Result<f64> {
    let stat = fs::fstatvfs(&file).context(|| format!("look up the space of {}", fd::shown(&file)))?;
    let used = stat.f_blocks.saturating_sub(stat.f_bfree) as f64;
    let usable = used + stat.f_bavail as f64;
    Ok(if usable > 0.0 { used / usable * 100.0 } else { 0.0 })
}

/// The size of a file system in bytes.
pub fn size(file: impl AsFd) -> Result<u64> {
    let stat = fs::fstatvfs(&file).context(|| format!("look up the space of {}", fd::shown(&file)))?;
    Ok(stat.f_blocks.saturating_mul(stat.f_frsize))
}

/// True where the caller may make and remove names in a directory.
///
/// # Errors
/// The kernel does not say.
pub fn may_write(dir: BorrowedFd) -> Result<bool> {
    let wanted = fs::Access::WRITE_OK | fs::Access::EXEC_OK;
    match fs::accessat(dir, ".", wanted, AtFlags::EACCESS) {
        Ok(()) => Ok(true),
        Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) => Ok(false),
        Err(e) => Err(e).context(|| format!("look at {}", fd::shown(dir))),
    }
}

/// True where this process may use what `file` is, which can be open for its path only, by the bits of `access`, those of a mode for
/// others (faccessat2(2), Linux 5.8).
///
/// # Errors
/// The kernel does not say.
pub fn may(file: BorrowedFd, access: u32) -> Result<bool> {
    let flags = libc::AT_EMPTY_PATH | libc::AT_EACCESS;
    // SAFETY: the path is a constant with its zero byte.
    let answer =
        unsafe { libc::syscall(libc::SYS_faccessat2, file.as_raw_fd(), c"".as_ptr(), access, flags) };
    match check(answer) {
        Ok(_) => Ok(true),
        Err(e) if [libc::EACCES, libc::EPERM, libc::EROFS].into_iter().any(|errno| e.is(errno)) => Ok(false),
        Err(e) => Err(e).context(|| format!("look at {}", fd::shown(file))),
    }
}

/// When a file was made, in seconds and nanoseconds since 1970, where its file system tells (statx(2)). What gets its inode later has
/// another time.
pub fn born(file: BorrowedFd) -> Result<Option<(i64, u32)>> {
    let stat = fs::statx(file, "", AtFlags::EMPTY_PATH, fs::StatxFlags::BTIME)?;
    let known = fs::StatxFlags::from_bits_retain(stat.stx_mask).contains(fs::StatxFlags::BTIME);
    Ok(known.then_some((stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec)))
}

/// The number of the mount that a directory is on (statx(2), Linux 5.8). The kernel knows it: no server of a file system is asked.
pub fn mount_id(dir: BorrowedFd) -> Option<u64> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = fs::statx(dir, "", flags, fs::StatxFlags::MNT_ID).ok()?;
    let known = fs::StatxFlags::from_bits_retain(stat.stx_mask).contains(fs::StatxFlags::MNT_ID);
    known.then_some(stat.stx_mnt_id)
}

/// The owner of what has a name, of a link itself. What is mounted there is not asked ([`fd::stat_entry`]).
pub fn owner_at(parent: BorrowedFd, name: &[u8]) -> Result<u32> {
    check_component(name)?;
    Ok(fd::stat_entry(parent, name).context(|| format!("stat {}", at(parent, name)))?.st_uid)
}

/// True where both are on one file system.
pub fn same_file_system(one: impl AsFd, other: impl AsFd) -> Result<bool> {
    Ok(fd::stat(one)?.st_dev == fd::stat(other)?.st_dev)
}

/// Size and modification time of a name, which is not followed. What is mounted there is not asked ([`fd::stat_entry`]).
pub fn size_and_time(parent: BorrowedFd, name: &[u8]) -> Result<(u64, SystemTime)> {
    let stat = fd::stat_entry(parent, name).context(|| format!("stat {}", at(parent, name)))?;
    let (seconds, nanoseconds) = (u64::try_from(stat.st_mtime), u32::try_from(stat.st_mtime_nsec));
    let since = Duration::new(seconds.unwrap_or(0), nanoseconds.unwrap_or(0));
    Ok((u64::try_from(stat.st_size).unwrap_or(0), SystemTime::UNIX_EPOCH + since))
}

/// Permission bits of an open file.
pub fn mode(file: impl AsFd) -> Result<u32> {
    Ok(fd::stat(&file)?.st_mode & 0o7777)
}

/// A file whose errors name it: what writes through a buffer or a compressor knows no path.
pub struct Named<F>(pub F);

impl<F: AsFd> Named<F> {
    /// An error of a write to it, with its name.
    pub fn name(&self, e: io::Error) -> io::Error {
        match e.kind() {
            io::ErrorKind::Interrupted => e,
            _ => io::Error::other(Error::from(e).context(format!("write {}", fd::shown(&self.0)))),
        }
    }
}

impl<F: AsFd + Write> Write for Named<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(|e| self.name(e))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(|e| self.name(e))
    }
}

/// The length of an open file.
pub fn length(file: &File) -> Result<u64> {
    Ok(metadata(file)?.len())
}

/// What the kernel knows of an open file.
pub fn metadata(file: &File) -> Result<Metadata> {
    file.metadata().context(|| format!("stat {}", fd::shown(file)))
}

/// The time since 1970 of an open file's last change of contents.
pub fn modified(file: impl AsFd) -> Result<Duration> {
    let stat = fd::stat(&file)?;
    let (seconds, nanoseconds) = (u64::try_from(stat.st_mtime), u32::try_from(stat.st_mtime_nsec));
    Ok(Duration::new(seconds.unwrap_or(0), nanoseconds.unwrap_or(0)))
}

/// Writes what the file system holds back to its device.
pub fn sync(file: impl AsFd) -> Result<()> {
    fs::syncfs(&file).context(|| format!("flush the file system of {}", fd::shown(&file)))
}

/// Writes what is in a file to its device, and hears what went wrong with that: on a network's file system, or a full one below,
/// write(2) has succeeded by then.
///
/// # Errors
/// Those of fsync(2).
pub fn sync_file(file: impl AsFd) -> Result<()> {
    fs::fsync(&file).context(|| format!("write {} to its device", fd::shown(&file)))
}

/// A user and a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ids {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

/// The caller's effective user and group.
pub fn caller() -> Ids {
    Ids { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
}

fn stamps((seconds, nanoseconds): (i64, u32)) -> Timestamps {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() };
    Timestamps { last_access: time, last_modification: time }
}

pub(crate) fn check_component(name: &[u8]) -> Result<()> {
    match name {
        b"" | b"." | b".." => Err(err!("{:?} is not a file name", show(name))),
        _ if name.contains(&b'/') => Err(err!("{:?} is not a file name", show(name))),
        _ => Ok(()),
    }
}

/// The path of a name in an open directory, for an error. A name alone can be in any directory of an image or a store.
pub fn at(parent: BorrowedFd, name: &[u8]) -> String {
    match fd::path_of(parent) {
        Ok(dir) => show(dir.join(OsStr::from_bytes(name)).as_os_str().as_encoded_bytes()),
        Err(_) => show(name),
    }
}

fn show(name: &[u8]) -> String {
    String::from_utf8_lossy(name).escape_default().to_string()
}
