//! Namespaces (namespaces(7)): kinds, joining, identity, and the id maps of user namespaces.

use super::check;
use crate::error::{Context, Result};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{self, Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::path::Path;

/// A kind of namespace; its value is its `CLONE_NEW*` bit (sched.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Namespace {
    /// Mounts.
    Mount = libc::CLONE_NEWNS as u64,
    /// The root of the cgroup trees.
    Cgroup = libc::CLONE_NEWCGROUP as u64,
    /// Host and domain name.
    Uts = libc::CLONE_NEWUTS as u64,
    /// System V IPC and POSIX message queues.
    Ipc = libc::CLONE_NEWIPC as u64,
    /// User and group ids, capabilities.
    User = libc::CLONE_NEWUSER as u64,
    /// Process ids.
    Pid = libc::CLONE_NEWPID as u64,
    /// Network devices, addresses, ports.
    Network = libc::CLONE_NEWNET as u64,
    /// Monotonic and boot time. libc has the constant for some targets only.
    Time = 0x0000_0080,
}

impl Namespace {
    /// The file name in /proc/PID/ns.
    pub fn file(self) -> &'static str {
        match self {
            Namespace::Mount => "mnt",
            Namespace::Cgroup => "cgroup",
            Namespace::Uts => "uts",
            Namespace::Ipc => "ipc",
            Namespace::User => "user",
            Namespace::Pid => "pid",
            Namespace::Network => "net",
            Namespace::Time => "time",
        }
    }
}

/// A set of kinds of namespaces, as clone(2), unshare(2) and setns(2) take it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Namespaces(u64);

impl Namespaces {
    /// No namespace.
    pub const NONE: Namespaces = Namespaces(0);

    /// True where `kind` is in the set.
    pub const fn contains(self, kind: Namespace) -> bool {
        self.0 & kind as u64 != 0
    }

    /// True where the set has no kind at all.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The set with `kind`.
    #[must_use]
    pub const fn with(self, kind: Namespace) -> Namespaces {
        Namespaces(self.0 | kind as u64)
    }

    /// The set without `kind`.
    #[must_use]
    pub const fn without(self, kind: Namespace) -> Namespaces {
        Namespaces(self.0 & !(kind as u64))
    }

    /// Those of the set that are also among `kinds`.
    #[must_use]
    pub fn only(self, kinds: impl Into<Namespaces>) -> Namespaces {
        Namespaces(self.0 & kinds.into().0)
    }

    /// The `CLONE_NEW*` bits.
    pub const fn bits(self) -> u64 {
        self.0
    }
}

impl From<Namespace> for Namespaces {
    fn from(kind: Namespace) -> Self {
        Namespaces::NONE.with(kind)
    }
}

impl FromIterator<Namespace> for Namespaces {
    fn from_iter<I: IntoIterator<Item = Namespace>>(kinds: I) -> Self {
        kinds.into_iter().fold(Namespaces::NONE, Namespaces::with)
    }
}

/// Moves this process into new namespaces of these kinds (unshare(2)).
pub fn unshare(kinds: impl Into<Namespaces>) -> Result<()> {
    // SAFETY: no pointer is passed. The flags are kinds of namespaces only (never CLONE_FILES), so no
    // descriptor's owner is cheated.
    check(unsafe { libc::syscall(libc::SYS_unshare, kinds.into().bits()) })?;
    Ok(())
}

/// Gives this thread a working directory, a root and a umask of its own: until then all threads of a process share one of each
/// (CLONE_FS, unshare(2)).
pub fn own_directory() -> Result<()> {
    // SAFETY: no pointer is passed, and descriptors stay shared.
    check(unsafe { libc::syscall(libc::SYS_unshare, libc::CLONE_FS) })?;
    Ok(())
}

/// Joins namespaces (setns(2)): `fd` is a file of /proc/PID/ns with the one kind that it is of, or a pidfd with
/// several kinds.
///
/// With an empty set nothing happens: setns(2) would refuse it for a pidfd, and would take it for "whatever kind this
/// is" for a file.
pub fn join(fd: impl AsFd, kinds: impl Into<Namespaces>) -> Result<()> {
    let kinds = kinds.into();
    if kinds.is_empty() {
        return Ok(());
    }
    // SAFETY: no pointer is passed.
    check(unsafe { libc::syscall(libc::SYS_setns, fd.as_fd().as_raw_fd(), kinds.bits()) })?;
    Ok(())
}

/// Joins one namespace by its file, unless the process is in it already.
///
/// The kernel refuses to join the user namespace that one is in, and refuses namespaces of others to those without
/// rights over them, one's own among these. Being in it already is all that was asked for, so it counts as success.
pub fn enter(file: impl AsFd, kind: Namespace) -> Result<()> {
    let joined = join(&file, kind);
    if joined.is_err()
        && let (Ok(wanted), Ok(own)) = (fs::fstat(&file), fs::stat(format!("/proc/self/ns/{}", kind.file())))
        && NamespaceId::of(&wanted) == NamespaceId::of(&own)
    {
        return Ok(());
    }
    joined.context(|| format!("join the {} namespace", kind.file()))
}

/// Opens a namespace file and checks that it is one (of nsfs or procfs).
pub fn open(path: &Path) -> Result<OwnedFd> {
    let fd = fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let magic = crate::fd::file_system(&fd)?;
    if magic != 0x6e73_6673 && magic != crate::rootfs::PROC_MAGIC {
        crate::bail!("not a namespace");
    }
    Ok(fd)
}

/// True where two files are of one namespace.
pub fn same_namespace(a: &Path, b: &Path) -> bool {
    match (fs::stat(a), fs::stat(b)) {
        (Ok(a), Ok(b)) => NamespaceId::of(&a) == NamespaceId::of(&b),
        _ => false,
    }
}

/// What identifies a namespace while it exists, that is, while a process is in it or a descriptor holds it. The kernel
/// gives the same inode to another namespace soon after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceId {
    /// The device number of nsfs.
    pub device: u64,
    /// The inode of the namespace's file.
    pub inode: u64,
}

impl NamespaceId {
    fn of(stat: &fs::Stat) -> Self {
        NamespaceId { device: stat.st_dev, inode: stat.st_ino }
    }
}

/// What identifies the namespace `kind` of process `pid` ("self" for this one).
pub fn id(proc: impl AsFd, pid: &str, kind: Namespace) -> Result<NamespaceId> {
    let file = file_of(pid, kind);
    let stat =
        fs::statat(proc, file.as_str(), fs::AtFlags::empty()).context(|| format!("stat /proc/{file}"))?;
    Ok(NamespaceId::of(&stat))
}

/// True where this process is in the PID namespace that the machine has begun with.
///
/// # Errors
/// The kernel does not show it.
pub fn is_initial_pid_namespace() -> Result<bool> {
    /// PROC_PID_INIT_INO (include/linux/proc_ns.h), the same on every machine since Linux 3.8.
    const INODE: u64 = 0xefff_fffc;
    Ok(id(crate::fd::open_proc()?, "self", Namespace::Pid)?.inode == INODE)
}

/// A descriptor that keeps the namespace `kind` of process `pid` in existence, and what identifies it as long.
pub fn hold(proc: impl AsFd, pid: &str, kind: Namespace) -> Result<(OwnedFd, NamespaceId)> {
    let fd = open_of(proc, pid, kind)?;
    let id = NamespaceId::of(&fs::fstat(&fd)?);
    Ok((fd, id))
}

fn open_of(proc: impl AsFd, pid: &str, kind: Namespace) -> Result<OwnedFd> {
    let file = file_of(pid, kind);
    fs::openat(proc, file.as_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .context(|| format!("open /proc/{file}"))
}

fn file_of(pid: &str, kind: Namespace) -> String {
    format!("{pid}/ns/{}", kind.file())
}

/// What identifies a mount namespace over its whole life and after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MountNamespaceId {
    /// An id that is never given to another (ioctl_nsfs(2) NS_GET_MNTNS_ID, Linux 6.11).
    Unique(u64),
    /// On older kernels the inode, which is soon given to another when this one has gone.
    Inode(u64),
}

/// The id of the mount namespace of process `pid` ("self" for this one).
pub fn mount_namespace_id(proc: impl AsFd, pid: &str) -> Result<MountNamespaceId> {
    const NS_GET_MNTNS_ID: libc::c_ulong = 0x8008_b705;
    let fd = open_of(proc, pid, Namespace::Mount)?;
    let mut id = 0u64;
    // SAFETY: the request writes one u64.
    match unsafe { libc::ioctl(fd.as_raw_fd(), NS_GET_MNTNS_ID as _, &raw mut id) } {
        0 => Ok(MountNamespaceId::Unique(id)),
        _ => Ok(MountNamespaceId::Inode(fs::fstat(&fd)?.st_ino)),
    }
}

/// One line of a uid_map or gid_map (user_namespaces(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdMap {
    /// First id inside.
    pub container: u32,
    /// First id in the parent namespace.
    pub host: u32,
    /// How many follow.
    pub size: u32,
}

/// The text that the kernel takes for `maps`.
fn map_text(maps: &[IdMap]) -> String {
    let mut text = String::with_capacity(maps.len() * 16);
    for map in maps {
        let _ = writeln!(text, "{} {} {}", map.container, map.host, map.size);
    }
    text
}

/// Parses /proc/PID/uid_map.
fn parse_map(text: &str) -> Vec<IdMap> {
    text.lines()
        .filter_map(|line| {
            let mut numbers = line.split_ascii_whitespace().map(str::parse);
            Some(IdMap {
                container: numbers.next()?.ok()?,
                host: numbers.next()?.ok()?,
                size: numbers.next()?.ok()?,
            })
        })
        .collect()
}

/// The maps of a user namespace, written where it has just been made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdMaps {
    /// User ids.
    pub uid: Vec<IdMap>,
    /// Group ids.
    pub gid: Vec<IdMap>,
}

/// What becomes of setgroups(2) in a user namespace that gets its maps (user_namespaces(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setgroups {
    /// The namespace's root may call it. The writer of gid_map needs CAP_SETGID in the parent namespace.
    Allow,
    /// Nobody inside may call it. Without privilege the kernel takes a gid_map only then (since Linux 3.19): a process
    /// could otherwise leave a group that a file's mode denies something to (CVE-2014-8989).
    Deny,
}

impl IdMaps {
    /// True where `id` exists inside.
    pub fn has(maps: &[IdMap], id: u32) -> bool {
        maps.iter().any(|m| id >= m.container && id - m.container < m.size)
    }

    /// Writes the maps of process `pid` ("self" for this one).
    pub fn write(&self, proc: impl AsFd, pid: &str, setgroups: Setgroups) -> Result<()> {
        let proc = proc.as_fd();
        let put =
            |file: &str, text: &str| super::fd::write_proc(proc, &format!("{pid}/{file}"), text.as_bytes());
        // Before gid_map: once that is written, the file takes no "deny" any more.
        if setgroups == Setgroups::Deny {
            put("setgroups", "deny")?;
        }
        put("uid_map", &map_text(&self.uid)).context(|| "map user ids")?;
        put("gid_map", &map_text(&self.gid)).context(|| "map group ids")
    }
}

/// The maps of the user namespace that this process is in.
pub fn own_maps() -> Result<IdMaps> {
    maps_of(Path::new("/proc/self"))
}

/// The maps of the user namespace of the process whose directory in procfs is `process`. What is outside depends on who reads
/// them (user_namespaces(7)).
pub fn maps_of(process: &Path) -> Result<IdMaps> {
    let read = |name: &str| -> Result<Vec<IdMap>> {
        let path = process.join(name);
        Ok(parse_map(&std::fs::read_to_string(&path).context(|| format!("read {}", path.display()))?))
    };
    Ok(IdMaps { uid: read("uid_map")?, gid: read("gid_map")? })
}

/// True where `maps` is the initial user namespace's.
pub fn is_initial(maps: &IdMaps) -> bool {
    maps.uid == [IdMap { container: 0, host: 0, size: u32::MAX }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_read_back_what_they_write() {
        let maps =
            vec![IdMap { container: 0, host: 1000, size: 1 }, IdMap { container: 1, host: 7, size: 9 }];
        assert_eq!(map_text(&maps), "0 1000 1\n1 7 9\n");
        assert_eq!(parse_map("         0       1000          1\n 1 7 9\n"), maps);
        assert!(IdMaps::has(&maps, 9) && !IdMaps::has(&maps, 10));
    }
}
