//! The few system calls that make a tree, one name below one directory descriptor each.
//!
//! Every call takes a descriptor and a single path component and never follows a link, so nothing
//! that a layer says can reach outside the tree: `..`, absolute names and symbolic links in the
//! way do not exist at this level. The only file of `pull` that names rustix.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{self, AtFlags, CWD, FileType, Mode, OFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;

use crate::err;
use crate::error::{Context, Error, Result};

/// A directory, open to be the parent of one-component names.
pub fn open_dir(parent: BorrowedFd, name: &[u8]) -> Result<OwnedFd> {
    check_component(name)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat(parent, name, flags, Mode::empty()).context(|| format!("open directory {}", show(name)))
}

/// The directory that the user named, whatever links lead to it.
pub fn open_root(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    fs::openat(CWD, path, flags, Mode::empty()).context(|| format!("open {}", path.display()))
}

/// Makes a directory that only the caller may enter; its final mode comes at the end.
pub fn make_dir(parent: BorrowedFd, name: &[u8]) -> Result<()> {
    check_component(name)?;
    fs::mkdirat(parent, name, Mode::RWXU).context(|| format!("make directory {}", show(name)))
}

/// Makes a file that was not there.
pub fn create_file(parent: BorrowedFd, name: &[u8], mode: u32) -> Result<File> {
    check_component(name)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = fs::openat(parent, name, flags, Mode::from_raw_mode(mode))
        .context(|| format!("create {}", show(name)))?;
    Ok(File::from(fd))
}

/// Opens a regular file for reading.
pub fn open_file(parent: BorrowedFd, name: &[u8]) -> Result<File> {
    check_component(name)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = fs::openat(parent, name, flags, Mode::empty()).context(|| format!("open {}", show(name)))?;
    Ok(File::from(fd))
}

/// Makes a symbolic link.
pub fn symlink(parent: BorrowedFd, name: &[u8], target: &[u8]) -> Result<()> {
    check_component(name)?;
    fs::symlinkat(target, parent, name).context(|| format!("make symbolic link {}", show(name)))
}

/// Makes a FIFO.
pub fn fifo(parent: BorrowedFd, name: &[u8], mode: u32) -> Result<()> {
    check_component(name)?;
    fs::mknodat(parent, name, FileType::Fifo, Mode::from_raw_mode(mode), 0)
        .context(|| format!("make fifo {}", show(name)))
}

/// Gives a file a second name. The first is not followed if it is a symbolic link.
pub fn link(from: BorrowedFd, from_name: &[u8], to: BorrowedFd, to_name: &[u8]) -> Result<()> {
    check_component(from_name)?;
    check_component(to_name)?;
    fs::linkat(from, from_name, to, to_name, AtFlags::empty())
        .context(|| format!("link {} to {}", show(to_name), show(from_name)))
}

/// Removes a name that is no directory; one that is not there is fine.
pub fn unlink(parent: BorrowedFd, name: &[u8]) -> Result<()> {
    check_component(name)?;
    match fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(e) => Err(Error::from(e).context(format!("remove {}", show(name)))),
    }
}

/// Moves a name.
pub fn rename(from: BorrowedFd, from_name: &[u8], to: BorrowedFd, to_name: &[u8]) -> Result<()> {
    check_component(from_name)?;
    check_component(to_name)?;
    fs::renameat(from, from_name, to, to_name).context(|| format!("move {}", show(from_name)))
}

/// Moves a path to one that must not be there.
///
/// # Errors
/// EEXIST where it is. Where the file system has no RENAME_NOREPLACE (NFS), a directory that is
/// not empty is still never replaced, because rename(2) refuses that.
pub fn rename_new(from: &Path, to: &Path) -> Result<()> {
    let doing = || format!("rename {} to {}", from.display(), to.display());
    match fs::renameat_with(CWD, from, CWD, to, fs::RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) if fs::lstat(to).is_err() => {
            fs::rename(from, to).context(doing)
        }
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            Err(Error::from_errno(Errno::EXIST.raw_os_error()).context(doing()))
        }
        other => other.context(doing),
    }
}

/// Swaps two paths, or moves the first over a second that is gone to the wayside.
pub fn exchange(one: &Path, other: &Path) -> Result<()> {
    fs::renameat_with(CWD, one, CWD, other, fs::RenameFlags::EXCHANGE)
        .context(|| format!("exchange {} and {}", one.display(), other.display()))
}

/// Sets both times of an open file.
pub fn set_times(file: BorrowedFd, mtime: (i64, u32)) -> Result<()> {
    fs::futimens(file, &stamps(mtime)).context(|| "set times")
}

/// Sets both times of a name, without following it.
pub fn set_times_at(parent: BorrowedFd, name: &[u8], mtime: (i64, u32)) -> Result<()> {
    check_component(name)?;
    fs::utimensat(parent, name, &stamps(mtime), AtFlags::SYMLINK_NOFOLLOW)
        .context(|| format!("set times of {}", show(name)))
}

/// Renews a file's modification time by the file server's clock.
pub fn touch(path: &Path) -> Result<()> {
    let now = Timespec { tv_sec: 0, tv_nsec: fs::UTIME_NOW };
    let stamps = Timestamps { last_access: now, last_modification: now };
    fs::utimensat(CWD, path, &stamps, AtFlags::SYMLINK_NOFOLLOW)
        .context(|| format!("touch {}", path.display()))
}

/// Sets permission bits.
pub fn set_mode(file: BorrowedFd, mode: u32) -> Result<()> {
    fs::fchmod(file, Mode::from_raw_mode(mode)).context(|| "set mode")
}

/// Sets an extended attribute; false where the file system or the kernel does not allow it.
pub fn set_xattr(file: BorrowedFd, name: &[u8], value: &[u8]) -> Result<bool> {
    let text = String::from_utf8_lossy(name);
    match fs::fsetxattr(file, text.as_ref(), value, XattrFlags::empty()) {
        Ok(()) => Ok(true),
        Err(Errno::NOSPC | Errno::DQUOT) => Err(err!("set {text}: no space left on device")),
        Err(_) => Ok(false),
    }
}

/// The extended attributes of an open file that the caller may read.
pub fn xattrs(file: BorrowedFd) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut names = vec![0u8; 64 << 10];
    let Ok(n) = fs::flistxattr(file, &mut names[..]) else { return Vec::new() };
    let mut value = vec![0u8; 64 << 10];
    let mut all = Vec::new();
    for name in names[..n].split(|&b| b == 0).filter(|name| !name.is_empty()) {
        let Ok(text) = std::str::from_utf8(name) else { continue };
        if let Ok(n) = fs::fgetxattr(file, text, &mut value[..]) {
            all.push((name.to_vec(), value[..n].to_vec()));
        }
    }
    all
}

/// A directory again, this time to change its mode and times.
pub fn reopen_dir(parent: BorrowedFd, name: &[u8]) -> Result<File> {
    check_component(name)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = fs::openat(parent, name, flags, Mode::empty()).context(|| format!("open {}", show(name)))?;
    Ok(File::from(fd))
}

/// A second descriptor of a directory.
pub fn open_dir_again(dir: BorrowedFd) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    fs::openat(dir, ".", flags, Mode::empty()).context(|| "open .")
}

/// The directory behind a path descriptor, readable.
pub fn reopen_self(dir: BorrowedFd) -> Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(File::from(fs::openat(dir, ".", flags, Mode::empty()).context(|| "open .")?))
}

/// Type and mode of a name, not followed; none where there is nothing.
pub fn mode_at(parent: BorrowedFd, name: &[u8]) -> Result<Option<u32>> {
    check_component(name)?;
    match fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat.st_mode)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(e) => Err(Error::from(e).context(format!("stat {}", show(name)))),
    }
}

/// Bytes and inodes that the caller may still use on the file system of `file`.
pub fn free_space(file: impl AsFd) -> Result<(u64, u64)> {
    let stat = fs::fstatvfs(file).context(|| "statvfs")?;
    // File systems without an inode table (btrfs, Lustre clients at times) say zero of zero.
    let inodes = if stat.f_files == 0 { u64::MAX } else { stat.f_favail };
    Ok((stat.f_bavail.saturating_mul(stat.f_frsize), inodes))
}

/// True where `path` is on the file system of `file`.
pub fn same_file_system(file: impl AsFd, path: &Path) -> Result<bool> {
    let other = fs::stat(path).context(|| format!("stat {}", path.display()))?;
    Ok(fs::fstat(file).context(|| "stat")?.st_dev == other.st_dev)
}

/// Writes what the file system holds back to its device.
pub fn sync(file: impl AsFd) -> Result<()> {
    fs::syncfs(file).context(|| "syncfs")
}

/// Files are made with the mode that is asked for; returns the mask that the user had.
pub fn clear_umask() -> u32 {
    rustix::process::umask(Mode::empty()).as_raw_mode()
}

/// The caller's effective user and group.
pub fn caller() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

/// Raises the soft limit of open files to the hard one.
pub fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// The processors that this process may use.
pub fn affinity() -> usize {
    rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count().max(1) as usize)
}

/// Width of the terminal on standard error; none where there is no terminal.
pub fn terminal_width() -> Option<usize> {
    rustix::termios::tcgetwinsize(std::io::stderr()).ok().map(|size| usize::from(size.ws_col).max(20))
}

/// True where a process of this machine has that number.
pub fn process_lives(pid: i32) -> bool {
    match rustix::process::Pid::from_raw(pid) {
        Some(pid) => !matches!(rustix::process::test_kill_process(pid), Err(Errno::SRCH)),
        None => false,
    }
}

/// This machine's host name.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Turns the echo of a terminal on standard input off or on again.
pub fn set_echo(on: bool) -> Result<()> {
    use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
    let mut modes = tcgetattr(std::io::stdin()).context(|| "tcgetattr")?;
    modes.local_modes.set(LocalModes::ECHO, on);
    tcsetattr(std::io::stdin(), OptionalActions::Now, &modes).context(|| "tcsetattr")
}

fn stamps((seconds, nanoseconds): (i64, u32)) -> Timestamps {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() };
    Timestamps { last_access: time, last_modification: time }
}

fn check_component(name: &[u8]) -> Result<()> {
    match name {
        b"" | b"." | b".." => Err(err!("{:?} is not a file name", show(name))),
        _ if name.contains(&b'/') => Err(err!("{:?} is not a file name", show(name))),
        _ => Ok(()),
    }
}

fn show(name: &[u8]) -> String {
    String::from_utf8_lossy(name).escape_default().to_string()
}
