//! The file that a call names, looked up as the thread would that made it: from its root, its directory and its descriptors.

use super::call::Named;
use rt_sys::notify::{Call, read_path};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Where descriptors are shown. A supervisor has no `self` in the container's procfs, so these are looked up by the thread.
const OWN: [&[u8]; 2] = [b"/proc/self/", b"/proc/thread-self/"];
/// The same by links that containers have in /dev.
const STREAMS: [(&[u8], &str); 3] =
    [(b"/dev/stdin", "fd/0"), (b"/dev/stdout", "fd/1"), (b"/dev/stderr", "fd/2")];

/// Opens the file that `named` means, for its path only.
pub(super) fn open(proc: BorrowedFd<'_>, call: &Call, named: &Named) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | if named.follow { OFlags::empty() } else { OFlags::NOFOLLOW };
    let Some(address) = named.path else { return open_at(proc, call, named.at) };
    let path = read_path(call.thread, address)?;
    if path.is_empty() {
        return if named.empty { open_at(proc, call, named.at) } else { Err(Errno::NOENT) };
    }
    if let Some(rest) = own_file(&path) {
        return open_own(proc, call, &rest, flags);
    }
    as_the_thread(proc, call, named.at, &path, || {
        fs::openat(CWD, &path[..], flags | OFlags::CLOEXEC, Mode::empty())
    })
}

/// Makes the empty file that `named` means, with this mode. The caller has seen that the call waits.
pub(super) fn create(
    proc: BorrowedFd<'_>,
    call: &Call,
    named: &Named,
    mode: Mode,
    waits: impl Fn() -> bool,
) -> Result<OwnedFd, Errno> {
    let path = read_path(call.thread, named.path.ok_or(Errno::FAULT)?)?;
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    as_the_thread(proc, call, named.at, &path, || match waits() {
        true => fs::openat(CWD, &path[..], flags, mode),
        false => Err(Errno::SRCH),
    })
}

/// Does `work` in the root and the directory from which the thread looks up `path`; the working directory is `proc` again
/// afterwards.
fn as_the_thread<T>(
    proc: BorrowedFd<'_>,
    call: &Call,
    at: i32,
    path: &[u8],
    work: impl FnOnce() -> Result<T, Errno>,
) -> Result<T, Errno> {
    let root = open_own(proc, call, "root", OFlags::PATH | OFlags::DIRECTORY)?;
    let dir = if path.starts_with(b"/") { None } else { Some(open_at(proc, call, at)?) };
    let entered = rustix::process::fchdir(&root)
        .and_then(|()| rustix::process::chroot("."))
        .and_then(|()| dir.map_or(Ok(()), rustix::process::fchdir));
    let done = entered.and_then(|()| work());
    rustix::process::fchdir(proc)?;
    done
}

/// Opens what a descriptor of the thread's, or AT_FDCWD, stands for.
fn open_at(proc: BorrowedFd<'_>, call: &Call, at: i32) -> Result<OwnedFd, Errno> {
    match at {
        libc::AT_FDCWD => open_own(proc, call, "cwd", OFlags::PATH),
        number if number < 0 => Err(Errno::BADF),
        number => open_own(proc, call, &format!("fd/{number}"), OFlags::PATH).map_err(|e| match e {
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
