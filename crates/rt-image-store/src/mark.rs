//! Marks of use: a file for each bundle, host and user, whose time is that of the last start.
//!
//! The name is `BUNDLE.BOOT.PIDNS.UID.HOST`. The boot id and the number of the PID namespace tell whoever removes images
//! whether it sees the processes that the mark speaks of. There is one mark however many containers are started, so that
//! a job of many tasks leaves no more files than it has nodes. Which processes use a bundle is told by the processes.

use crate::{ImageStore, USES, is_bundle_name};
use rt_sys::error::{Context, Result};
use rt_sys::fd;
use rustix::fd::OwnedFd;
use rustix::fs::{self, AtFlags, Mode, OFlags, Timespec, Timestamps, UTIME_NOW};
use rustix::io::Errno;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::Path;

/// The longest name of a file (NAME_MAX).
const LONGEST: usize = 255;

/// Who has used a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// The bundle's name.
    pub bundle: String,
    /// The machine, from its start to its end, and the PID namespace in it.
    pub machine: Machine,
    /// The user, as that user sees it.
    pub uid: u32,
    /// The machine's name, for people.
    pub host: String,
}

/// Where a process's number means something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// The boot id without dashes.
    boot: String,
    /// The inode of the PID namespace.
    pid_namespace: String,
}

impl Machine {
    /// The machine and the PID namespace of this process.
    pub fn current() -> Result<Machine> {
        let boot = "/proc/sys/kernel/random/boot_id";
        let boot = fd::read_file(Path::new(boot)).context(|| format!("read {boot}"))?;
        let boot = boot.iter().filter(|b| b.is_ascii_hexdigit()).map(|b| char::from(*b)).collect();
        let namespace = "/proc/self/ns/pid";
        let namespace =
            fs::readlink(namespace, Vec::with_capacity(32)).context(|| format!("read {namespace}"))?;
        let digits = namespace.as_bytes().iter().filter(|b| b.is_ascii_digit());
        Ok(Machine { boot, pid_namespace: digits.map(|b| char::from(*b)).collect() })
    }
}

impl Mark {
    /// The mark of this process's user on this machine.
    pub fn of_caller(bundle: &str) -> Result<Mark> {
        let host = rt_sys::process::host_name();
        let uid = rustix::process::geteuid().as_raw();
        Ok(Mark { bundle: bundle.to_owned(), machine: Machine::current()?, uid, host })
    }

    /// The file's name.
    pub fn file_name(&self) -> String {
        let Machine { boot, pid_namespace } = &self.machine;
        let name = format!("{}.{boot}.{pid_namespace}.{}.", self.bundle, self.uid);
        // No slash and nothing that is not ASCII comes into the name; a host is recognized by its boot id.
        let plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        let host = self.host.chars().filter(plain).take(LONGEST - name.len().min(LONGEST));
        name.chars().chain(host).collect()
    }

    /// Reads a file's name.
    pub fn parse(name: &str) -> Option<Mark> {
        let mut parts = name.splitn(5, '.');
        let bundle = parts.next().filter(|bundle| is_bundle_name(bundle))?.to_owned();
        let mut number = || parts.next().filter(|part| part.bytes().all(|b| b.is_ascii_hexdigit()));
        let (boot, pid_namespace, uid) =
            (number()?.to_owned(), number()?.to_owned(), number()?.parse().ok()?);
        let host = parts.next()?.to_owned();
        Some(Mark { bundle, machine: Machine { boot, pid_namespace }, uid, host })
    }
}

impl ImageStore {
    /// Notes that this process is about to use `bundle`. Whoever calls this looks after it whether the bundle is still
    /// there ([`ImageStore::has`]): whoever removes one first takes its name away, and then looks at the marks.
    ///
    /// False where the store is not to be written by the caller, or has no room; a container starts all the same.
    pub fn mark_use(&self, bundle: &str) -> Result<bool> {
        let uses = match self.open_subdirectory(USES) {
            Ok(Some(uses)) => uses,
            Ok(None) => return Ok(false),
            Err(e) if [Errno::NOTDIR, Errno::ACCESS].iter().any(|no| e.is(no.raw_os_error())) => {
                return Ok(false);
            }
            Err(e) => return Err(e),
        };
        let name = Mark::of_caller(bundle)?.file_name();
        let touch = |name: &str| {
            let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
            let times = Timestamps { last_access: now, last_modification: now };
            fs::utimensat(&uses, name, &times, AtFlags::SYMLINK_NOFOLLOW)
        };
        let make = |name: &str| {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::EXCL | OFlags::CLOEXEC;
            fs::openat(&uses, name, flags, Mode::from_raw_mode(0o644)).map(drop)
        };
        let look = |name: &str| fd::stat_entry(&uses, name);
        let marked = match look(&name) {
            Err(Errno::NOENT) => match make(&name) {
                // Another process was faster.
                Err(Errno::EXIST) => look(&name).map(|stat| is_mine(&stat)),
                made => made.map(|()| true),
            },
            found => found.map(|stat| is_mine(&stat)),
        };
        let marked = match marked {
            Ok(true) => touch(&name),
            Err(e) if is_closed(e) => Err(e),
            // Another user who was first to make it could give it any time, now or later, or has mounted something there.
            Ok(false) | Err(_) => match own_beside(&uses, &name) {
                Some(own) => touch(&own),
                None => make(&beside(&name)),
            },
        };
        match marked {
            Ok(()) => Ok(true),
            Err(e) if is_closed(e) => Ok(false),
            Err(e) => Err(e).context(|| format!("write {}", self.path().join(USES).join(&name).display())),
        }
    }
}

/// True for what is said where this user can make no mark, for lack of rights or of room.
fn is_closed(e: Errno) -> bool {
    matches!(e, Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::NOSPC | Errno::DQUOT)
}

/// True for what this process's user has made. A file server can give root's files to another user (root_squash), whom
/// nobody can tell from others; nobody but root's own store is root's.
fn is_mine(stat: &fs::Stat) -> bool {
    let me = rustix::process::geteuid();
    me.is_root() || stat.st_uid == me.as_raw()
}

/// The mark of this user's that stands in place of `name`, which is somebody else's.
fn own_beside(uses: &OwnedFd, name: &str) -> Option<String> {
    let start = short(name);
    let dir = fs::openat(uses, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let entries = fs::Dir::read_from(dir.ok()?).ok()?;
    let names = entries.flatten().filter_map(|entry| entry.file_name().to_str().map(str::to_owned).ok());
    names
        .filter(|other| other.starts_with(start) && other != name)
        .find(|other| fd::stat_entry(uses, other.as_str()).is_ok_and(|stat| is_mine(&stat)))
}

/// A name for such a mark, which nobody can have taken before.
fn beside(name: &str) -> String {
    // std seeds each hasher from getrandom(2), so the hash of nothing is a random number.
    format!("{}.{:016x}", short(name), RandomState::new().build_hasher().finish())
}

/// As much of a name as leaves room for what distinguishes marks of one user.
fn short(name: &str) -> &str {
    &name[..name.len().min(LONGEST - 17)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_leads_back() {
        let bundle = crate::bundle_name("sha512", &"0f".repeat(64));
        let mark = Mark::of_caller(&bundle).unwrap();
        assert!(mark.machine.boot.len() == 32 && mark.machine.pid_namespace.len() >= 8, "{mark:?}");
        let long = Mark { host: "n/\u{e9}ode.".repeat(99), uid: u32::MAX, ..mark.clone() };
        assert_eq!(Mark::parse(&mark.file_name()), Some(mark));
        assert_eq!(long.file_name().len(), LONGEST);
        let back = Mark::parse(&long.file_name()).unwrap();
        assert!(back.host.starts_with("node.node."), "{back:?}");
        for bad in ["", "x.1.2.3.h", &bundle, &format!("{bundle}.1.2"), &format!("{bundle}.1.2.-3.h")] {
            assert_eq!(Mark::parse(bad), None, "{bad}");
        }
    }
}
