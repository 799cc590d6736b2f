//! Descriptors: which are passed on, which are closed, and which are proven to be procfs.

use super::{caller, check};
use crate::error::{Context, Error, Result};
use crate::owned::Owned;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use rustix::path::Arg;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Marks every descriptor from `first` up close-on-exec (close_range(2)).
pub fn cloexec_from(first: u32) -> Result<()> {
    // SAFETY: no pointer is passed; no descriptor is closed, so no owner is cheated.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) })?;
    Ok(())
}

/// True where `fd` was open when this program began. F_GETFD is 0 for a descriptor without close-on-exec, and every
/// descriptor that the program opens itself has it.
pub fn is_inherited(fd: RawFd) -> bool {
    // SAFETY: F_GETFD takes no pointer and changes nothing.
    unsafe { libc::fcntl(fd, libc::F_GETFD) == 0 }
}

/// True where `fd` was open when this program began, and is a socket.
pub fn is_inherited_socket(fd: RawFd) -> bool {
    if !is_inherited(fd) {
        return false;
    }
    // SAFETY: it is open, and nothing closes it during this call.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    fs::fstat(fd).is_ok_and(|stat| fs::FileType::from_raw_mode(stat.st_mode) == fs::FileType::Socket)
}

/// The pid of the process that has made the other end of a pair of sockets (unix(7), SO_PEERCRED), where `fd` is one that was
/// open when this program began; `None` where it is no such socket, or the process has no pid here.
pub fn peer(fd: RawFd) -> Option<i32> {
    if !is_inherited(fd) {
        return None;
    }
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes `len` bytes at most, which `peer` has.
    let done = unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut peer).cast(), &raw mut len)
    };
    (done == 0 && peer.pid > 0).then_some(peer.pid)
}

/// True for a directory that is there, belongs to root or to this process, and whose path has no link in it.
pub fn is_trusted_directory(path: &Path) -> bool {
    // Whoever serves a file system says whose its files are, as he likes, or nothing.
    if !matches!(crate::mount::is_on_others_fuse(path), Ok(false)) {
        return false;
    }
    let is_directory = |stat: &fs::Stat| fs::FileType::from_raw_mode(stat.st_mode) == fs::FileType::Directory;
    open_without_links(path).is_ok_and(|(_, stat)| is_directory(&stat) && caller::is_trusted(stat.st_uid))
}

/// Opens `path`, which has no link in it, without reading it, and says what it is.
pub fn open_without_links(path: &Path) -> Result<(OwnedFd, fs::Stat), Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = fs::openat2(fs::CWD, path, flags, Mode::empty(), fs::ResolveFlags::NO_SYMLINKS)?;
    let stat = fs::fstat(&fd)?;
    Ok((fd, stat))
}

/// The path of a descriptor in procfs, for calls that take no descriptor without the right to read or write.
pub fn link(fd: impl AsFd) -> String {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
}

/// What [`walk`] has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// A directory on the way.
    Directory,
    /// A link on the way, or the last one.
    Link,
    /// What the path leads to.
    End,
}

/// Goes to `path` from `at`, one part after the other and through its links, and asks `trusts` of each directory on the way before
/// anything is looked up in it, of each link before it is followed, and of what `path` leads to. A link that somebody else than root
/// and the caller has made is not followed in any case. Gives the first that is not trusted, as it is to be shown; `None` where all
/// are trusted, also where nothing is there. It mounts nothing: what an automounter serves is there once somebody has looked into it.
///
/// # Errors
/// The kernel does not say; ELOOP for more links than it follows.
pub fn walk(
    at: impl AsFd,
    path: &Path,
    trusts: impl Fn(BorrowedFd<'_>, &Owned, Seen) -> Result<bool>,
) -> Result<Option<String>> {
    walk_by(at, path, |found, _| Owned::of(found).map(Some), trusts)
}

/// As [`walk`], and what another user serves by FUSE is neither trusted nor asked, also where the path leads to.
///
/// # Errors
/// As of [`walk`].
pub fn walk_unserved(
    at: impl AsFd,
    path: &Path,
    trusts: impl Fn(BorrowedFd<'_>, &Owned, Seen) -> Result<bool>,
) -> Result<Option<String>> {
    // What is below a mount is gone through it.
    let owned_of = |found: BorrowedFd<'_>, part: &OsStr| match part == "/" {
        false if crate::mount::others_server_at(found)?.is_some() => Ok(None),
        _ => Owned::of(found).map(Some),
    };
    walk_by(at, path, owned_of, trusts)
}

fn walk_by(
    at: impl AsFd,
    path: &Path,
    owned_of: impl Fn(BorrowedFd<'_>, &OsStr) -> Result<Option<Owned>>,
    trusts: impl Fn(BorrowedFd<'_>, &Owned, Seen) -> Result<bool>,
) -> Result<Option<String>> {
    let open = |at: BorrowedFd<'_>, part: &OsStr, flags| {
        fs::openat(at, part, OFlags::PATH | OFlags::CLOEXEC | flags, Mode::empty())
    };
    let parts = |path: &Path| path.components().rev().map(|part| part.as_os_str().to_owned()).collect();
    // What is still to be gone, the next part last.
    let mut rest: Vec<OsString> = parts(path);
    // Another user can serve where this process stands.
    let first = rest.pop_if(|_| path.is_absolute()).unwrap_or_else(|| ".".into());
    let mut dir = open(at.as_fd(), &first, OFlags::DIRECTORY).context(|| "look at a directory")?;
    let mut owned = Owned::of(&dir)?;
    // So many the kernel follows, too (path_resolution(7)).
    let mut links = 40;
    while let Some(part) = rest.pop() {
        if part != "/" && !trusts(dir.as_fd(), &owned, Seen::Directory)? {
            return Ok(Some(shown(&dir)));
        }
        let found = match open(dir.as_fd(), &part, OFlags::NOFOLLOW) {
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            found => found.context(|| format!("look at {}", shown_path(Path::new(&part))))?,
        };
        let Some(entry) = owned_of(found.as_fd(), &part)? else { return Ok(Some(shown(&found))) };
        if fs::FileType::from_raw_mode(entry.stat.st_mode) != fs::FileType::Symlink {
            (dir, owned) = (found, entry);
            continue;
        }
        // Of the host's root, who may look like anybody else, where nobody else can have put it.
        let is_roots = owned.stat.st_mode & 0o022 == 0 && caller::may_be_hosts_root(entry.stat.st_uid);
        let is_own = caller::is_trusted(entry.stat.st_uid) || is_roots;
        if !is_own || !trusts(found.as_fd(), &entry, Seen::Link)? {
            return Ok(Some(shown(&found)));
        }
        if links == 0 {
            return Err(Errno::LOOP).context(|| path.display());
        }
        links -= 1;
        let target =
            fs::readlinkat(&found, "", Vec::new()).context(|| format!("read the link {}", part.display()))?;
        rest.append(&mut parts(Path::new(OsStr::from_bytes(target.to_bytes()))));
    }
    Ok((!trusts(dir.as_fd(), &owned, Seen::End)?).then(|| shown(&dir)))
}

/// Device and inode of the caller's file, directory or socket `path`, whose path has no link in it; of a socket also where it is
/// root's. `None` for all else.
pub fn own_identity(path: &Path) -> Option<(u64, u64)> {
    // As in `is_trusted_directory`.
    if !matches!(crate::mount::is_on_others_fuse(path), Ok(false)) {
        return None;
    }
    let (_, stat) = open_without_links(path).ok()?;
    let kind = fs::FileType::from_raw_mode(stat.st_mode);
    let is_socket = kind == fs::FileType::Socket;
    let is_file = is_socket || matches!(kind, fs::FileType::RegularFile | fs::FileType::Directory);
    let own = stat.st_uid == caller::uid();
    (is_file && (own || is_socket && stat.st_uid == 0)).then_some((stat.st_dev, stat.st_ino))
}

/// Takes over a descriptor that this program was started with, and sets close-on-exec. Fails where it is not open, or was
/// not passed on but opened by this program, which owns it then. That also refuses to take it over twice.
pub fn take_inherited(fd: RawFd) -> Result<OwnedFd> {
    if !is_inherited(fd) {
        return Err(crate::error::Error::from_errno(libc::EBADF))
            .context(|| format!("take over descriptor {fd}"));
    }
    // SAFETY: it is open, and nothing in this program has opened it, so nothing else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: F_SETFD takes no pointer.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) }.into())?;
    Ok(fd)
}

/// Takes close-on-exec from `fd`, for the program that this process becomes.
pub fn keep_over_exec(fd: RawFd) -> Result<()> {
    // SAFETY: F_SETFD takes no pointer; the descriptor stays open, so no owner is cheated.
    check(unsafe { libc::fcntl(fd, libc::F_SETFD, 0) }.into())?;
    Ok(())
}

/// Leaves a close-on-exec descriptor to be closed by exec or exit: the kernel closes many at once for less than the
/// system calls of closing each. For a process that is about to do one of the two.
///
/// Where many are open, the descriptor is closed after all, so that a long plan does not reach RLIMIT_NOFILE.
pub fn leave_open(fd: OwnedFd) {
    if fd.as_raw_fd() < 200 {
        std::mem::forget(fd);
    }
}

/// Closes every descriptor from `first` up but those in `keep` (close_range(2), Linux 5.9), for a process that is about
/// to wait or exec and uses no others.
pub fn close_all_but(first: u32, keep: &[RawFd]) -> Result<()> {
    let mut keep: Vec<u32> = keep.iter().map(|fd| *fd as u32).filter(|fd| *fd >= first).collect();
    keep.sort_unstable();
    let mut from = first;
    for fd in keep.into_iter().chain([u32::MAX]) {
        // `first` is above 0, so that nothing here wraps.
        let last = if fd == u32::MAX { fd } else { fd - 1 };
        if from <= last {
            // SAFETY: no pointer is passed. Owners of these descriptors never run again in this process.
            check(unsafe { libc::syscall(libc::SYS_close_range, from, last, 0) })?;
        }
        from = fd.wrapping_add(1);
    }
    Ok(())
}

/// Closes these descriptors, for a process that is about to wait or exec, by close(2): a seccomp filter may refuse
/// close_range(2), and every filter allows close(2).
pub fn close_each(fds: &[RawFd]) {
    for fd in fds {
        // SAFETY: no pointer is passed. Owners of these descriptors never run again in this process.
        unsafe { libc::close(*fd) };
    }
}

/// The path of the file behind `fd`, free of links, as the kernel knows it.
pub fn path_of(fd: impl AsFd) -> Result<PathBuf> {
    let link = link(fd);
    let text = fs::readlink(&link, Vec::with_capacity(128)).context(|| format!("read {link}"))?;
    Ok(PathBuf::from(OsStr::from_bytes(text.as_bytes())))
}

/// The path from the root on, as std::path::absolute has it; an error names it.
pub fn absolute(path: impl AsRef<Path>) -> Result<PathBuf> {
    let path = path.as_ref();
    std::path::absolute(path).context(|| format!("find the directory that {} is below", path.display()))
}

/// A path as errors show it: as it was given, but the working directory by its name.
pub fn shown_path(path: &Path) -> String {
    let is_here = path == Path::new(".");
    let here = is_here.then(std::env::current_dir).and_then(std::result::Result::ok);
    here.as_deref().unwrap_or(path).display().to_string()
}

/// What the kernel knows of an open file; an error names it.
pub fn stat(fd: impl AsFd) -> Result<fs::Stat> {
    fs::fstat(&fd).context(|| format!("stat {}", shown(&fd)))
}

/// Whose use of a file counts in [`lease`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Those who may write to it. The descriptor is for reading alone.
    Write,
    /// All.
    Any,
}

/// A lease of a file. Who opens it so that it would be used waits until this is dropped, or for /proc/sys/fs/lease-break-time.
#[derive(Debug)]
pub struct Lease<'a>(BorrowedFd<'a>);

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        let _ = set_lease(self.0, libc::F_SETLEASE, libc::F_UNLCK);
    }
}

fn set_lease(fd: BorrowedFd<'_>, command: libc::c_int, value: libc::c_int) -> Result<()> {
    // SAFETY: the commands take a number.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), command, value) }.into()).map(|_| ())
}

/// A lease (fcntl(2), F_SETLEASE) of the regular file that `fd` is. `None` where a process, whoever's it is, has it open or mapped by another
/// way than this descriptor. The caller must own it.
///
/// # Errors
/// The kernel does not say.
pub fn lease(fd: BorrowedFd<'_>, by: Use) -> Result<Option<Lease<'_>>> {
    // What the kernel sends who has a lease that somebody waits for, instead of SIGIO, which ends a process: nobody minds this one.
    const F_SETSIG: libc::c_int = 10;
    let kind = if by == Use::Write { libc::F_RDLCK } else { libc::F_WRLCK };
    set_lease(fd, F_SETSIG, libc::SIGURG)?;
    match set_lease(fd, libc::F_SETLEASE, kind) {
        Err(e) if e.is(libc::EAGAIN) => Ok(None),
        leased => leased.map(|()| Some(Lease(fd))).context(|| format!("ask who uses {}", shown(fd))),
    }
}

/// Device and inode of what `path` leads to, as the kernel knows them: no server of a file system is asked, which may never answer, and
/// nothing is mounted for it. The inode is 0 where only the server may tell it.
pub fn known_identity(path: impl Arg) -> Result<(u64, u64), Errno> {
    let flags = fs::AtFlags::NO_AUTOMOUNT | fs::AtFlags::STATX_DONT_SYNC;
    let known = fs::statx(fs::CWD, path, flags, fs::StatxFlags::empty())?;
    Ok((fs::makedev(known.stx_dev_major, known.stx_dev_minor), known.stx_ino))
}

/// True for the null device (null(4)), whatever its name is.
pub fn is_null_device(stat: &fs::Stat) -> bool {
    fs::FileType::from_raw_mode(stat.st_mode) == fs::FileType::CharacterDevice
        && stat.st_rdev == fs::makedev(1, 3)
}

/// The number of the file system that an open file is on (statfs(2), f_type); an error names the file.
pub fn file_system(fd: impl AsFd) -> Result<u64> {
    let found = fs::fstatfs(&fd).context(|| format!("look at the file system of {}", shown(&fd)))?;
    Ok(found.f_type as u64)
}

/// True where an open file is on a mount on which no device node works (`MS_NODEV`); an error names the file.
pub fn is_nodev(fd: impl AsFd) -> Result<bool> {
    let found = fs::fstatvfs(&fd).context(|| format!("look at the mount of {}", shown(&fd)))?;
    Ok(found.f_flag.contains(fs::StatVfsMountFlags::NODEV))
}

/// Opens the entry `name` of `dir`, and no link. What is mounted there is not asked: it may be another user's file system,
/// which refuses everybody else or never answers.
///
/// # Errors
/// EXDEV where something is mounted there.
pub fn open_entry<N: Arg + Copy>(dir: impl AsFd, name: N, flags: OFlags) -> Result<OwnedFd, Errno> {
    open_unmounted(dir.as_fd(), name, flags | OFlags::NOFOLLOW, fs::ResolveFlags::BENEATH)
}

fn open_unmounted<N: Arg + Copy>(
    dir: BorrowedFd<'_>,
    name: N,
    flags: OFlags,
    how: fs::ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC;
    match fs::openat2(dir, name, flags, Mode::empty(), how | fs::ResolveFlags::NO_XDEV) {
        // A filter that is older than the call.
        Err(Errno::NOSYS) => fs::openat(dir, name, flags | OFlags::NOFOLLOW, Mode::empty()),
        opened => opened,
    }
}

/// The error for what [`open_unserved`] has returned: EXDEV says whose it is.
pub fn unserved_error(errno: Errno) -> Error {
    match errno {
        Errno::XDEV => Error::from_parts(
            "another user's file system is mounted there".to_owned(),
            Some(errno.raw_os_error()),
        ),
        errno => errno.into(),
    }
}

/// Opens the entry `name` of `dir`, unless it is on a FUSE file system that another user has mounted there: who waits for its server
/// waits past any signal. `how` is for openat2(2).
///
/// # Errors
/// EXDEV where another user's is mounted there.
pub fn open_unserved<N: Arg + Copy>(
    dir: impl AsFd,
    name: N,
    flags: OFlags,
    how: fs::ResolveFlags,
) -> Result<OwnedFd, Errno> {
    match open_unmounted(dir.as_fd(), name, flags, how) {
        Err(Errno::XDEV) => {
            // The root of what is mounted, of which nothing is asked so.
            let place_flags =
                (flags & (OFlags::DIRECTORY | OFlags::NOFOLLOW)) | OFlags::PATH | OFlags::CLOEXEC;
            let place = fs::openat2(&dir, name, place_flags, Mode::empty(), how)?;
            let server = crate::mount::others_server(&place, None);
            match server.map_err(|e| Errno::from_raw_os_error(e.errno().unwrap_or(libc::EIO)))? {
                Some(_) => Err(Errno::XDEV),
                None if flags.contains(OFlags::PATH) => Ok(place),
                None => {
                    let again = format!("/proc/self/fd/{}", place.as_raw_fd());
                    fs::open(again, flags.difference(OFlags::NOFOLLOW) | OFlags::CLOEXEC, Mode::empty())
                }
            }
        }
        opened => opened,
    }
}

/// Opens `path`, which the caller has named, links followed, unless it is the root of a FUSE file system that another user has mounted. What
/// it is can be waited for, as a fifo.
///
/// # Errors
/// EXDEV where another user's is mounted there; those of open(2).
pub fn open_named_unserved(path: &Path, flags: OFlags) -> Result<OwnedFd> {
    let place = fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    match crate::mount::others_server_at(&place)? {
        Some(_) => Err(unserved_error(Errno::XDEV)),
        None => Ok(fs::open(link(&place), flags | OFlags::CLOEXEC, Mode::empty())?),
    }
}

/// The state of the entry `name` of `dir`, of a link itself, in the same way as [`open_entry`] opens it.
///
/// # Errors
/// EXDEV where something is mounted there.
pub fn stat_entry<N: Arg + Copy>(dir: impl AsFd, name: N) -> Result<fs::Stat, Errno> {
    fs::fstat(open_entry(dir, name, OFlags::PATH)?)
}

/// Opens `path`, which is no link. Where others can make names in the directory above, as in /tmp, nothing that is mounted
/// there is opened nor asked ([`open_entry`]); where it is another user's, who can mount on what is his, nothing that he serves
/// ([`open_unserved`]).
///
/// # Errors
/// EXDEV where something is mounted there.
pub fn open_beside_others(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // "." and a slash at the end are no names.
    let path: PathBuf = path.components().collect();
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return fs::open(&path, flags, Mode::empty());
    };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let parent = fs::open(parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let above = fs::fstat(&parent)?;
    match above.st_mode & 0o022 {
        0 if caller::is_trusted(above.st_uid) => fs::openat(&parent, name, flags, Mode::empty()),
        0 => open_unserved(&parent, name, flags, fs::ResolveFlags::BENEATH),
        _ => open_entry(&parent, name, flags),
    }
}

/// Makes a directory the working directory; an error names it.
pub fn enter(dir: impl AsFd) -> Result<()> {
    rustix::process::fchdir(&dir).context(|| format!("enter {}", shown(&dir)))
}

/// The path of what `fd` is, for an error.
pub fn shown(fd: impl AsFd) -> String {
    match path_of(fd) {
        Ok(path) => path.display().to_string().escape_default().to_string(),
        Err(_) => "an open file".to_owned(),
    }
}

/// Gives the file behind `fd` the owner that `stat` has; one that does not exist in this user namespace is left out.
pub fn chown_like(fd: impl AsFd, stat: &fs::Stat) {
    chown_entry_like(fd, "", stat);
}

/// The same for the entry `name` of `dir`, a link itself.
pub fn chown_entry_like<N: Arg>(dir: impl AsFd, name: N, stat: &fs::Stat) {
    let (uid, gid) = (fs::Uid::from_raw(stat.st_uid), fs::Gid::from_raw(stat.st_gid));
    let flags = fs::AtFlags::EMPTY_PATH | fs::AtFlags::SYMLINK_NOFOLLOW;
    let _ = fs::chownat(dir, name, Some(uid), Some(gid), flags);
}

/// Opens the proc file system at /proc, refusing anything else that may be mounted there: a client's container may have
/// a /proc whose files swallow what is written to them.
pub fn open_proc() -> Result<OwnedFd> {
    let proc = fs::open("/proc", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .context(|| "open /proc")?;
    require_proc(&proc).context(|| "/proc")?;
    Ok(proc)
}

/// Fails unless `fd` lies on a proc file system.
pub fn require_proc(fd: impl AsFd) -> Result<()> {
    let magic = file_system(fd)?;
    if magic != fs::PROC_SUPER_MAGIC as u64 {
        crate::bail!("not a proc file system (type {magic:#x})");
    }
    Ok(())
}

/// Writes `text` to the file `path` below `proc`, through no link (RESOLVE_BENEATH, O_NOFOLLOW) and through no mount on
/// top of procfs (RESOLVE_NO_XDEV). In one write(2), since the kernel takes each write to such a file as a whole value.
pub fn write_proc(proc: impl AsFd, path: &str, text: &[u8]) -> Result<()> {
    let file = fs::openat2(
        proc,
        Path::new(path),
        OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW,
        Mode::empty(),
        fs::ResolveFlags::NO_XDEV | fs::ResolveFlags::BENEATH,
    )
    .context(|| format!("open /proc/{path}"))?;
    rustix::io::write(&file, text).context(|| format!("write to /proc/{path}"))?;
    leave_open(file);
    Ok(())
}

/// Writes all of `bytes`.
pub fn write_all(file: impl AsFd, bytes: &[u8]) -> Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        rest = &rest[rustix::io::write(&file, rest)?..];
    }
    Ok(())
}

/// Reads a whole small file, with as few calls as it takes.
pub fn read_file(path: &Path) -> Result<Vec<u8>> {
    read_at(fs::CWD, path)
}

/// As [`read_file`], of a regular file alone: the open waits for no writer of a fifo and takes no terminal.
///
/// # Errors
/// The kernel does not open or read it, or it is something else.
pub fn read_regular_file(path: &Path) -> Result<Vec<u8>> {
    let file = fs::open(path, WAITS_FOR_NOBODY | OFlags::CLOEXEC, Mode::empty())?;
    match fs::FileType::from_raw_mode(fs::fstat(&file)?.st_mode) {
        fs::FileType::RegularFile => read_all(file),
        fs::FileType::Directory => Err(Errno::ISDIR.into()),
        _ => crate::bail!("not a file"),
    }
}

/// Reads a file that a container may have put there: a regular one of `most` bytes at the most, else `None`. The open
/// waits for no writer of a fifo and takes no terminal.
///
/// # Errors
/// The kernel does not open or read what is there.
pub fn read_if_regular(path: &Path, most: usize) -> Result<Option<Vec<u8>>> {
    let opened = fs::open(path, WAITS_FOR_NOBODY | OFlags::CLOEXEC, Mode::empty());
    read_opened(opened.map_err(Error::from), most).context(|| format!("read {}", path.display()))
}

/// As [`read_if_regular`], of a file that another user's file system need not answer for ([`open_named_unserved`]).
///
/// # Errors
/// EXDEV where another user's is mounted there; the kernel does not open or read what is there.
pub fn read_if_regular_unserved(path: &Path, most: usize) -> Result<Option<Vec<u8>>> {
    read_opened(open_named_unserved(path, WAITS_FOR_NOBODY), most)
}

/// For what may be a fifo or a terminal.
const WAITS_FOR_NOBODY: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

fn read_opened(file: Result<OwnedFd>, most: usize) -> Result<Option<Vec<u8>>> {
    match file {
        // ENXIO is said of a socket, and of a device without a driver (open(2)).
        Err(e) if [libc::ENOENT, libc::ENOTDIR, libc::ENXIO].iter().any(|no| e.is(*no)) => Ok(None),
        file => read_regular(file?, most),
    }
}

/// The content of a file that can be done without, as of [`read_if_regular`]: what cannot be read is as good as nothing.
pub fn read_hostile(path: &Path, most: usize) -> Option<Vec<u8>> {
    read_if_regular(path, most).ok()?
}

/// Reads an open file that a container may have put there: a regular one of `most` bytes at the most, else `None`. What is
/// added to it meanwhile is not read.
///
/// # Errors
/// The kernel does not read it.
pub fn read_regular(file: impl AsFd, most: usize) -> Result<Option<Vec<u8>>> {
    let stat = stat(&file)?;
    if fs::FileType::from_raw_mode(stat.st_mode) != fs::FileType::RegularFile || stat.st_size as usize > most
    {
        return Ok(None);
    }
    let mut text = vec![0; stat.st_size as usize];
    let mut read = 0;
    // A file system may give less than there is.
    while read < text.len() {
        match rustix::io::read(&file, &mut text[read..]) {
            Ok(0) => break,
            Ok(n) => read += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    text.truncate(read);
    Ok(Some(text))
}

/// Reads the whole small file `path` below `dir`.
pub fn read_at(dir: impl AsFd, path: impl rustix::path::Arg) -> Result<Vec<u8>> {
    read_all(fs::openat(dir, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Reads an open file to its end.
pub fn read_all(file: OwnedFd) -> Result<Vec<u8>> {
    let mut text = Vec::with_capacity(16 * 1024);
    loop {
        match rustix::io::read(&file, rustix::buffer::spare_capacity(&mut text)) {
            Ok(0) => {
                // What is allocated next stands on the same pages.
                text.shrink_to_fit();
                return Ok(text);
            }
            Ok(_) => text.reserve(16 * 1024),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_links_are_followed_as_by_the_kernel() {
        let path = std::env::temp_dir().join(format!("rt-fd-links-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        let link = |n: u32| path.join(n.to_string());
        std::os::unix::fs::symlink("/proc", link(1)).unwrap();
        (2..42).for_each(|n| std::os::unix::fs::symlink((n - 1).to_string(), link(n)).unwrap());
        let way = |n| walk(fs::CWD, &link(n), |_, _, what| Ok(what != Seen::End));
        assert!(std::fs::metadata(link(40)).is_ok() && std::fs::metadata(link(41)).is_err());
        assert_eq!(way(40).unwrap().as_deref(), Some("/proc"));
        assert!(way(41).unwrap_err().is(libc::ELOOP));
        std::fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn who_uses_a_file_is_known() {
        let path = std::env::temp_dir().join(format!("rt-fd-used-{}", std::process::id()));
        std::fs::write(&path, b"x").unwrap();
        let reads = std::fs::File::open(&path).unwrap();
        let used = |by| lease(reads.as_fd(), by).unwrap().is_none();
        // A child of another test has a copy of what is closed here until it executes its program.
        let is_free = || {
            (0..1000).any(|_| {
                std::thread::sleep(std::time::Duration::from_millis(1));
                !used(Use::Any)
            })
        };
        assert!(is_free() && !used(Use::Write));
        let other = std::fs::File::open(&path).unwrap();
        assert!(!used(Use::Write) && used(Use::Any));
        drop(other);
        assert!(is_free());
        let writes = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        assert!(used(Use::Write) && used(Use::Any));
        drop(writes);
        assert!(is_free());
        std::fs::remove_file(path).unwrap();
    }
}
