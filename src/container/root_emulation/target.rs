//! The file that a call names, looked up as the thread would that made it: from its root, its directory and its descriptors.

use super::call::Named;
use rt_sys::notify::{Call, read_path};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;

/// A thread's own directory in procfs. A supervisor has no `self` in the container's procfs, or one of its own.
const OWN: [&[u8]; 2] = [b"/proc/self/", b"/proc/thread-self/"];
/// The links in it that lead to a file.
const LINKS: [&str; 3] = ["cwd", "exe", "root"];
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
    /// The view of this process, which has entered the container's mount namespace.
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
        if own_link(&path).is_some() || !same_root() {
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
    if let Some((link, rest)) = own_link(&path) {
        return match rest {
            None => open_own(proc, call, &link, flags),
            Some(rest) => {
                let dir = open_own(proc, call, &link, OFlags::PATH)?;
                as_the_thread(view, call, Some(dir), || look_up(&rest, flags, Mode::empty()))
            }
        };
    }
    as_the_thread(view, call, directory(view, call, named.at, &path)?, || {
        look_up(&path, flags, Mode::empty())
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
    as_the_thread(view, call, directory(view, call, named.at, &path)?, || match waits() {
        true => look_up(&path, flags, mode),
        false => Err(Errno::SRCH),
    })
}

/// Opens a path that a program has said, from the working directory. No link of procfs is followed that leads to a file without
/// a name: where the supervisor has a `self` in the container's procfs, its descriptors lead out of the container.
fn look_up(path: &[u8], flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    fs::openat2(CWD, path, flags | OFlags::CLOEXEC, mode, ResolveFlags::NO_MAGICLINKS)
}

/// The directory from which a thread looks up `path`; none where that is its root.
fn directory(view: &View<'_>, call: &Call, at: i32, path: &[u8]) -> Result<Option<OwnedFd>, Errno> {
    if path.starts_with(b"/") { Ok(None) } else { open_at(view.proc, call, at).map(Some) }
}

/// Does `work` in the thread's root and in that directory, by default its root. Root and working directory are afterwards what
/// they were before.
fn as_the_thread<T>(
    view: &View<'_>,
    call: &Call,
    dir: Option<OwnedFd>,
    work: impl FnOnce() -> Result<T, Errno>,
) -> Result<T, Errno> {
    let root = open_own(view.proc, call, "root", OFlags::PATH | OFlags::DIRECTORY)?;
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
        number => open_own(proc, call, &format!("fd/{number}"), OFlags::PATH).map_err(|e| match e {
            Errno::NOENT => Errno::BADF,
            e => e,
        }),
    }
}

/// Opens a link of the thread's directory in procfs. It is not a name: it leads to the file itself. `link` holds no word of a
/// program's, since `..` leads from this procfs to the files of the host.
fn open_own(proc: BorrowedFd<'_>, call: &Call, link: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    fs::openat(proc, format!("{}/{link}", call.thread), flags | OFlags::CLOEXEC, Mode::empty())
}

/// The link in the thread's own directory through which a path leads, and the rest of the path behind it.
fn own_link(path: &[u8]) -> Option<(String, Option<Vec<u8>>)> {
    if let Some((_, link)) = STREAMS.iter().find(|(name, _)| *name == path) {
        return Some(((*link).to_owned(), None));
    }
    let own = OWN.iter().find_map(|prefix| path.strip_prefix(*prefix));
    let numbered = path.strip_prefix(b"/dev/fd/").or_else(|| own?.strip_prefix(b"fd/"));
    let mut parts = numbered.or(own)?.splitn(2, |byte| *byte == b'/');
    let name = std::str::from_utf8(parts.next()?).ok()?;
    let link = match numbered {
        Some(_) if name.starts_with('+') => return None,
        Some(_) => format!("fd/{}", name.parse::<u32>().ok()?),
        None => LINKS.contains(&name).then(|| name.to_owned())?,
    };
    // A rest of slashes alone means the directory itself.
    Some((link, parts.next().map(|rest| [b"./", rest].concat())))
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
        for (path, expected) in [
            ("/proc/self/fd/3", Some(("fd/3", None))),
            ("/proc/self/fd/3/../x", Some(("fd/3", Some("./../x")))),
            ("/proc/thread-self/cwd/x", Some(("cwd", Some("./x")))),
            ("/proc/self/root/", Some(("root", Some("./")))),
            ("/dev/fd/7", Some(("fd/7", None))),
            ("/dev/stdout", Some(("fd/1", None))),
            ("/dev/fd/..", None),
            ("/dev/fd/../x", None),
            ("/dev/fd/+3", None),
            ("/proc/self/..", None),
            ("/proc/self/../1/root", None),
            ("/proc/self/fd/../cwd", None),
            ("/proc/self/task/1/root", None),
            ("/proc/self//etc", None),
            ("/proc/selfish/x", None),
            ("/etc/passwd", None),
        ] {
            let expected = expected
                .map(|(link, rest)| (link.to_owned(), rest.map(|rest: &str| rest.as_bytes().to_vec())));
            assert_eq!(own_link(path.as_bytes()), expected, "{path}");
        }
    }
}
