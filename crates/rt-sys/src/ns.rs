//! Namespaces (namespaces(7)): kinds, joining, identity, and the id maps of user namespaces.

use super::check;
use crate::error::{Context, Result};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::path::Path;

/// A namespace kind: its `CLONE_NEW*` bit (sched.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind(pub u64);

impl Kind {
    /// Mount namespace.
    pub const MOUNT: Kind = Kind(0x0002_0000);
    /// Cgroup namespace.
    pub const CGROUP: Kind = Kind(0x0200_0000);
    /// UTS namespace (host and domain name).
    pub const UTS: Kind = Kind(0x0400_0000);
    /// IPC namespace.
    pub const IPC: Kind = Kind(0x0800_0000);
    /// User namespace.
    pub const USER: Kind = Kind(0x1000_0000);
    /// PID namespace.
    pub const PID: Kind = Kind(0x2000_0000);
    /// Network namespace.
    pub const NETWORK: Kind = Kind(0x4000_0000);
    /// Time namespace.
    pub const TIME: Kind = Kind(0x0000_0080);

    /// The file name in /proc/PID/ns.
    pub fn file(self) -> &'static str {
        match self {
            Kind::MOUNT => "mnt",
            Kind::CGROUP => "cgroup",
            Kind::UTS => "uts",
            Kind::IPC => "ipc",
            Kind::USER => "user",
            Kind::PID => "pid",
            Kind::NETWORK => "net",
            _ => "time",
        }
    }
}

/// Moves this process into new namespaces of the kinds in `flags` (unshare(2)).
pub fn unshare(flags: u64) -> Result<()> {
    // SAFETY: no pointer is passed. The flags are namespace kinds only (never CLONE_FILES), so no
    // descriptor's owner is cheated.
    check(unsafe { libc::syscall(libc::SYS_unshare, flags) })?;
    Ok(())
}

/// Joins the namespace(s) behind `fd`: one of /proc/PID/ns with its kind, or a pidfd with several.
///
/// No flags, no change.
pub fn join(fd: impl AsFd, flags: u64) -> Result<()> {
    if flags == 0 {
        return Ok(());
    }
    // SAFETY: no pointer is passed.
    check(unsafe { libc::syscall(libc::SYS_setns, fd.as_fd().as_raw_fd(), flags) })?;
    Ok(())
}

/// Joins one namespace by its file. That the caller is in it already is enough, also where it has no right to it.
pub fn enter(file: impl AsFd, kind: Kind) -> Result<()> {
    let joined = join(&file, kind.0);
    if joined.is_err()
        && let (Ok(wanted), Ok(own)) = (fs::fstat(&file), fs::stat(format!("/proc/self/ns/{}", kind.file())))
        && (wanted.st_dev, wanted.st_ino) == (own.st_dev, own.st_ino)
    {
        return Ok(());
    }
    joined.context(|| format!("join the {} namespace", kind.file()))
}

/// Opens a namespace file and checks that it is one (of nsfs or procfs).
pub fn open(path: &Path) -> Result<OwnedFd> {
    let fd = fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let magic = fs::fstatfs(&fd)?.f_type as u64;
    if magic != 0x6e73_6673 && magic != 0x9fa0 {
        crate::bail!("not a namespace");
    }
    Ok(fd)
}

/// True where two files are of one namespace.
pub fn same_namespace(a: &Path, b: &Path) -> bool {
    match (fs::stat(a), fs::stat(b)) {
        (Ok(a), Ok(b)) => (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino),
        _ => false,
    }
}

/// Device and inode of a namespace's file. They are its own while a process is in it or a descriptor holds it,
/// and soon another's after that.
pub type Id = (u64, u64);

/// What identifies the namespace `kind` of process `pid` ("self" for this one).
pub fn id(proc: impl AsFd, pid: &str, kind: Kind) -> Result<Id> {
    let stat = fs::statat(proc, file_of(pid, kind).as_str(), fs::AtFlags::empty())?;
    Ok((stat.st_dev, stat.st_ino))
}

/// A descriptor that holds the namespace `kind` of process `pid`, and what identifies it meanwhile.
pub fn hold(proc: impl AsFd, pid: &str, kind: Kind) -> Result<(OwnedFd, Id)> {
    let fd = open_of(proc, pid, kind)?;
    let stat = fs::fstat(&fd)?;
    Ok((fd, (stat.st_dev, stat.st_ino)))
}

fn open_of(proc: impl AsFd, pid: &str, kind: Kind) -> Result<OwnedFd, Errno> {
    fs::openat(proc, file_of(pid, kind).as_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

fn file_of(pid: &str, kind: Kind) -> String {
    format!("{pid}/ns/{}", kind.file())
}

/// By what a mount namespace is known over its whole life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MountId {
    /// An id that is never given to another (ioctl_nsfs(2) NS_GET_MNTNS_ID, Linux 6.11).
    Unique(u64),
    /// On older kernels the inode, which is soon given to another when this one has gone.
    Inode(u64),
}

/// The id of the mount namespace of process `pid` ("self" for this one).
pub fn mount_id(proc: impl AsFd, pid: &str) -> Result<MountId> {
    const NS_GET_MNTNS_ID: libc::c_ulong = 0x8008_b705;
    let fd = open_of(proc, pid, Kind::MOUNT)?;
    let mut id = 0u64;
    // SAFETY: the request writes one u64.
    match unsafe { libc::ioctl(fd.as_raw_fd(), NS_GET_MNTNS_ID as _, &raw mut id) } {
        0 => Ok(MountId::Unique(id)),
        _ => Ok(MountId::Inode(fs::fstat(&fd)?.st_ino)),
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
pub fn map_text(maps: &[IdMap]) -> String {
    let mut text = String::with_capacity(maps.len() * 16);
    for map in maps {
        let _ = writeln!(text, "{} {} {}", map.container, map.host, map.size);
    }
    text
}

/// Parses /proc/PID/uid_map.
pub fn parse_map(text: &str) -> Vec<IdMap> {
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

impl IdMaps {
    /// The container's view of a host id, if it has one.
    pub fn to_container(maps: &[IdMap], host: u32) -> Option<u32> {
        maps.iter().find(|m| host >= m.host && host - m.host < m.size).map(|m| m.container + (host - m.host))
    }

    /// True where `id` exists inside.
    pub fn has(maps: &[IdMap], id: u32) -> bool {
        maps.iter().any(|m| id >= m.container && id - m.container < m.size)
    }

    /// Writes the maps of process `pid` ("self" for this one). Without privilege, setgroups must be denied
    /// first.
    pub fn write(&self, proc: impl AsFd, pid: &str, deny_setgroups: bool) -> Result<()> {
        let proc = proc.as_fd();
        let put =
            |file: &str, text: &str| super::fd::write_proc(proc, &format!("{pid}/{file}"), text.as_bytes());
        if deny_setgroups {
            put("setgroups", "deny")?;
        }
        put("uid_map", &map_text(&self.uid)).context(|| "map user ids")?;
        put("gid_map", &map_text(&self.gid)).context(|| "map group ids")
    }
}

/// The ids that this process can see in its own user namespace: `(uid_map, gid_map)`.
pub fn own_maps() -> Result<IdMaps> {
    let read = |path: &str| -> Result<Vec<IdMap>> {
        Ok(parse_map(&std::fs::read_to_string(path).context(|| format!("read {path}"))?))
    };
    Ok(IdMaps { uid: read("/proc/self/uid_map")?, gid: read("/proc/self/gid_map")? })
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
        assert_eq!(IdMaps::to_container(&maps, 8), Some(2));
        assert_eq!(IdMaps::to_container(&maps, 16), None);
        assert!(IdMaps::has(&maps, 9) && !IdMaps::has(&maps, 10));
    }
}
