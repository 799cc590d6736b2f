//! The file that a call names, looked up as the thread would that made it: from its root, its directory and its descriptors.

use super::call::Named;
use rt_sys::notify::{Call, read_path};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, CWD, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Where descriptors are shown. A supervisor has no `self` in the container's procfs, so these are looked up by the thread.
const OWN: [&[u8]; 2] = [b"/proc/self/", b"/proc/thread-self/"];
/// Links to descriptors that containers have in /dev.
const STREAMS: [(&[u8], &str); 3] =
    [(b"/dev/stdin", "fd/0"), (b"/dev/stdout", "fd/1"), (b"/dev/stderr", "fd/2")];

/// From where a supervisor looks: the procfs of its own PID namespace, which is its working directory, and the root of the
/// container's mount namespace, which is its own.
pub(super) struct View<'a> {
    pub proc: BorrowedFd<'a>,
    root: OwnedFd,
    identity: Identity,
}

/// What tells one directory from another: mount, device and inode.
type Identity = (u64, u32, u32, u64);

impl View<'_> {
    /// That of this process, which has entered the container's mount namespace.
    pub(super) fn new(proc: BorrowedFd<'_>) -> Result<View<'_>, Errno> {
        let root = fs::open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(View { proc, root, identity: identity("/")? })
    }

    /// The path by which this process finds the file that the thread means, without opening anything; none where it takes more than
    /// a path. Who makes the call can have it mean another file: it must not be written by. True where a link at the end is followed, as
    /// those in /proc are for the file that a descriptor stands for.
    pub(super) fn path(&self, call: &Call, named: &Named) -> Option<(Vec<u8>, bool)> {
        let thread = call.thread;
        let dir = match named.at {
            libc::AT_FDCWD => format!("{thread}/cwd"),
            number => format!("{thread}/fd/{number}"),
        };
        let path = match named.path {
            None => return Some((dir.into_bytes(), true)),
            Some(address) => read_path(thread, address).ok()?,
        };
        if path.is_empty() {
            return named.empty.then(|| (dir.into_bytes(), true));
        }
        let same_root = || identity(format!("{thread}/root")).is_ok_and(|root| root == self.identity);
        if own_file(&path).is_some() || !same_root() {
            return None;
        }
        let path = if path.starts_with(b"/") { path } else { [dir.as_bytes(), b"/", &path].concat() };
        Some((path, named.follow))
    }
}

fn identity(path: impl rustix::path::Arg) -> Result<Identity, Errno> {
    let found = fs::statx(CWD, path, AtFlags::empty(), StatxFlags::INO | StatxFlags::MNT_ID)?;
    Ok((found.stx_mnt_id, found.stx_dev_major, found.stx_dev_minor, found.stx_ino))
}

/// Opens the file that `named` means, for its path only.
pub(super) fn open(view: &View<'_>, call: &Call, named: &Named) -> Result<OwnedFd, Errno> {
    let proc = view.proc;
    let flags = OFlags::PATH | if named.follow { OFlags::empty() } else { OFlags::NOFOLLOW };
    let Some(address) = named.path else { return open_at(proc, call, named.at) };
    let path = read_path(call.thread, address)?;
    if path.is_empty() {
        return if named.empty { open_at(proc, call, named.at) } else { Err(Errno::NOENT) };
    }
    if let Some(rest) = own_file(&path) {
        return open_own(proc, call, &rest, flags);
    }
    as_the_thread(view, call, named.at, &path, || {
        fs::openat(CWD, &path[..], flags | OFlags::CLOEXEC, Mode::empty())
    })
}

/// Makes the empty file that `named` means, with this mode. The caller has seen that the call waits.
pub(super) fn create(
    view: &View<'_>,
    call: &Call,
    named: &Named,
    mode: Mode,
    waits: impl Fn() -> bool,
) -> Result<OwnedFd, Errno> {
    let path = read_path(call.thread, named.path.ok_or(Errno::FAULT)?)?;
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    as_the_thread(view, call, named.at, &path, || match waits() {
        true => fs::openat(CWD, &path[..], flags, mode),
        false => Err(Errno::SRCH),
    })
}

/// Does `work` in the root and the directory from which the thread looks up `path`. Root and working directory are afterwards what
/// they were before.
fn as_the_thread<T>(
    view: &View<'_>,
    call: &Call,
    at: i32,
    path: &[u8],
    work: impl FnOnce() -> Result<T, Errno>,
) -> Result<T, Errno> {
    let root = open_own(view.proc, call, "root", OFlags::PATH | OFlags::DIRECTORY)?;
    let dir = if path.starts_with(b"/") { None } else { Some(open_at(view.proc, call, at)?) };
    let entered = enter_root(&root).and_then(|()| dir.map_or(Ok(()), rustix::process::fchdir));
    let done = entered.and_then(|()| work());
    enter_root(&view.root)?;
    rustix::process::fchdir(view.proc)?;
    done
}

fn enter_root(root: &OwnedFd) -> Result<(), Errno> {
    rustix::process::fchdir(root)?;
    rustix::process::chroot(".")
}

/// Opens what a descriptor of the thread's, or AT_FDCWD, stands for.
fn open_at(proc: BorrowedFd<'_>, call: &Call, at: i32) -> Result<OwnedFd, Errno> {
    match at {
        libc::AT_FDCWD => open_own(proc, call, "cwd", OFlags::PATH),
        number if number < 0 => Err(Errno::BADF),
        number => open_own(proc, call, format!("fd/{number}"), OFlags::PATH).map_err(|e| match e {
            Errno::NOENT => Errno::BADF,
            e => e,
        }),
    }
}

/// Opens a file of the thread's directory in procfs. The links in it are not names: they lead to the file itself.
fn open_own(
    proc: BorrowedFd<'_>,
    call: &Call,
    rest: impl AsRef<OsStr>,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    let path = Path::new(&call.thread.to_string()).join(rest.as_ref());
    fs::openat(proc, &path, flags | OFlags::CLOEXEC, Mode::empty())
}

/// The rest of a path that leads through the thread's own directory in procfs.
fn own_file(path: &[u8]) -> Option<std::ffi::OsString> {
    if let Some((_, file)) = STREAMS.iter().find(|(name, _)| *name == path) {
        return Some((*file).into());
    }
    let rest = OWN.iter().find_map(|prefix| path.strip_prefix(*prefix)).map(<[u8]>::to_vec);
    let rest = rest.or_else(|| Some([b"fd/", path.strip_prefix(b"/dev/fd/")?].concat()))?;
    // An absolute path would not be below the thread's directory.
    (!rest.starts_with(b"/")).then(|| OsStr::from_bytes(&rest).to_owned())
}

/// The umask of the thread.
pub(super) fn umask(proc: BorrowedFd<'_>, call: &Call) -> Result<u32, Errno> {
    let file = open_status(proc, call)?;
    let text = rt_sys::fd::read_all(file).map_err(|_| Errno::SRCH)?;
    let text = String::from_utf8_lossy(&text);
    let umask =
        text.lines().find_map(|line| u32::from_str_radix(line.strip_prefix("Umask:")?.trim(), 8).ok());
    umask.ok_or(Errno::SRCH)
}

fn open_status(proc: BorrowedFd<'_>, call: &Call) -> Result<OwnedFd, Errno> {
    fs::openat(proc, format!("{}/status", call.thread), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// The metadata of an open file.
pub(super) fn stat(file: &OwnedFd) -> Result<fs::Stat, Errno> {
    fs::statat(file, "", AtFlags::EMPTY_PATH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_through_the_own_directory() {
        for (path, rest) in [
            ("/proc/self/fd/3", Some("fd/3")),
            ("/proc/thread-self/cwd/x", Some("cwd/x")),
            ("/dev/fd/7", Some("fd/7")),
            ("/dev/stdout", Some("fd/1")),
            ("/proc/self//etc", None),
            ("/proc/selfish/x", None),
            ("/etc/passwd", None),
        ] {
            assert_eq!(own_file(path.as_bytes()).as_deref(), rest.map(OsStr::new), "{path}");
        }
    }
}
