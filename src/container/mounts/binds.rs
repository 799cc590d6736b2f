//! Binds: detached copies of what the host has, with attributes and translated ids.
//!
//! A bind is copied first (open_tree(2)), changed while nobody can see it (mount_setattr(2)), and attached then. With
//! mount(2) it would be visible with the source's attributes until a second call, the remount, has changed them.

use super::{Trees, describe};
use crate::container::plan::{MountKind, MountPlan, Plan};
use crate::container::refused;
use rt_sys::error::{Context, Error, Result};
use rt_sys::mount::{self, Attr, PropagationType, Recursive};
use rt_sys::ns::{self, IdMaps, Namespace, Setgroups};
use rt_sys::process::{self, Memory};
use rt_sys::{bail, caps, fd};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use std::path::Path;

/// Opens the source of every bind now, before init becomes the container's root, who may not be able to reach it.
/// `copies` are those that the runtime has opened already.
pub(in crate::container) fn open_sources(plan: &Plan, copies: &[Option<OwnedFd>]) -> Result<Trees> {
    let open = |(n, mount): (usize, &MountPlan)| match &mount.kind {
        MountKind::Bind(source) => {
            clone_source(copies, n, mount, source).map(Some).context(|| describe(mount))
        }
        _ => Ok(None),
    };
    plan.mounts.iter().enumerate().map(open).collect()
}

/// A detached copy of `source`, the source of the plan's mount `n`, with the attributes asked for.
pub(super) fn clone_source(
    copies: &[Option<OwnedFd>],
    n: usize,
    mount: &MountPlan,
    source: &Path,
) -> Result<OwnedFd> {
    let options = &mount.options;
    let tree = match copies.get(n) {
        Some(Some(tree)) => tree.try_clone().context(|| "duplicate a descriptor")?,
        _ if options.without_links => {
            let (found, stat) = fd::open_without_links(source)?;
            if options.identity.is_some_and(|seen| seen != (stat.st_dev, stat.st_ino)) {
                bail!("{}: somebody has put something else in its place", source.display());
            }
            mount::clone_fd(found, options.recursive)?
        }
        _ => mount::clone_path(source, options.recursive, options.follow_source)
            .map_err(|e| uncovering(source, options.recursive, e))?,
    };
    // Hierarchies of cgroup v1 are mounts of their own below /sys/fs/cgroup. Where /sys is to be read-only, they must
    // not stay writable.
    let readonly = if source.starts_with("/sys") { Readonly::AllBelow } else { Readonly::ThisMount };
    set_attributes(&tree, mount, readonly)?;
    Ok(tree)
}

/// The error of a copy, with what helps where the kernel has refused to show what mounts of the host cover: in a user namespace
/// they are locked together (mount_namespaces(7)).
#[cold]
fn uncovering(source: &Path, recursive: Recursive, e: Error) -> Error {
    let is_below = |at: &Path| at != source && at.starts_with(source);
    let covers = || mount::table().is_ok_and(|table| table.iter().any(|mount| is_below(&mount.point)));
    if recursive == Recursive::No && e.is(libc::EINVAL) && covers() {
        return e
            .hint(format!("without root, what is mounted below {} comes along: rbind", source.display()));
    }
    e
}

/// What the option `ro` reaches.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Readonly {
    /// The mount itself, as mount(8) has it.
    ThisMount,
    /// Also what is mounted below it.
    AllBelow,
}

/// Applies the options' attributes to a tree that came from the host.
///
/// A mount namespace that a new user namespace owns gets the host's mounts with their flags locked
/// (mount_namespaces(7)): the kernel refuses to clear them, and to change the policy of access times. They stay then.
pub(super) fn set_attributes(tree: &OwnedFd, mount: &MountPlan, readonly: Readonly) -> Result<()> {
    let options = &mount.options;
    let mut top = options.attr;
    let mut all = options.recursive_attr;
    if readonly == Readonly::AllBelow && top.set & mount::ATTR_RDONLY != 0 {
        all.set |= top.set;
        all.clear |= top.clear;
        top = Attr::default();
    }
    let asked = &options.propagation;
    if !asked.is_empty() && asked.iter().all(|change| change.kind == PropagationType::Private) {
        all.propagation = Some(PropagationType::Private);
    }
    // The kernel locks the whole access time policy together (MNT_LOCK_ATIME).
    let times = mount::ATTR_ATIME | mount::ATTR_NODIRATIME;
    for (attr, recursive) in [(all, Recursive::Yes), (top, Recursive::No)] {
        if attr.is_empty() {
            continue;
        }
        match mount::set_attr(tree, recursive, attr) {
            Err(e) if e.is(libc::EPERM) && (attr.clear != 0 || attr.set & times != 0) => {
                log::debug!("{}: flags of the source are locked and stay", describe(mount));
                let keep = Attr { clear: 0, set: attr.set & !times, ..attr };
                mount::set_attr(tree, recursive, keep)?;
            }
            result => result?,
        }
    }
    Ok(())
}

/// Detached copies that the runtime makes for init: binds with translated ids, which take privilege over the source's
/// file system that init's user namespace does not have, and binds from where init cannot go once it is in a user
/// namespace with several ids.
pub(in crate::container) fn open_early(plan: &Plan, proc: BorrowedFd<'_>) -> Result<Trees> {
    let closed = closed_sources(plan)?;
    let open = |(n, mount): (usize, &MountPlan)| match (&mount.kind, mount.options.idmap) {
        (MountKind::Bind(source), Some(recursive)) => {
            idmapped(plan, proc, mount, source, recursive).map(Some).context(|| describe(mount))
        }
        (MountKind::Bind(source), None) if closed.contains(&n) => {
            clone_slave(mount, source).map(Some).context(|| describe(mount))
        }
        _ => Ok(None),
    };
    if closed.is_empty() && plan.mounts.iter().all(|m| m.options.idmap.is_none()) {
        return Ok(Vec::new());
    }
    plan.mounts.iter().enumerate().map(open).collect()
}

/// The mounts whose sources are below directories that this process may enter by its capabilities alone.
///
/// In a new user namespace init's capabilities count for files only whose owner is mapped there (user_namespaces(7)). The
/// look-up is therefore tried without capabilities.
fn closed_sources(plan: &Plan) -> Result<Vec<usize>> {
    if plan.maps.is_none() || plan.own_maps {
        return Ok(Vec::new());
    }
    caps::lower()?;
    let is_closed = |mount: &MountPlan| match &mount.kind {
        MountKind::Bind(source) => {
            matches!(fs::open(source, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()), Err(Errno::ACCESS))
        }
        _ => false,
    };
    let closed = (0..plan.mounts.len()).filter(|n| is_closed(&plan.mounts[*n])).collect();
    caps::raise()?;
    Ok(closed)
}

/// A copy that is a slave of the host's mounts. Init's own binds are slaves because it copies what its mount namespace
/// has made slaves already; the runtime copies in the host's namespace, where mounts are mostly shared.
fn clone_slave(mount: &MountPlan, source: &Path) -> Result<OwnedFd> {
    let tree = mount::clone_path(source, mount.options.recursive, mount.options.follow_source)?;
    mount::set_attr(&tree, Recursive::Yes, Attr::SLAVE)?;
    Ok(tree)
}

/// A detached copy that translates ids (Linux 5.12). The ids must be set before it is attached: afterwards the kernel
/// refuses it.
fn idmapped(
    plan: &Plan,
    proc: BorrowedFd<'_>,
    mount: &MountPlan,
    source: &Path,
    recursive: Recursive,
) -> Result<OwnedFd> {
    let joined = plan.join.iter().find(|(kind, _)| *kind == Namespace::User);
    // A mount without maps of its own gets those of the container.
    let userns = match (mount.maps.as_ref().or(plan.maps.as_ref()), joined) {
        (Some(maps), _) => {
            let setgroups = if plan.own_maps { Setgroups::Deny } else { Setgroups::Allow };
            user_namespace(maps, proc, setgroups)?
        }
        (None, Some((_, path))) => ns::open(path)?,
        (None, None) => bail!("an idmap mount needs id maps, or a user namespace of the container"),
    };
    let tree = clone_slave(mount, source)?;
    mount::set_idmap(&tree, recursive, userns).context(|| "make an idmap mount")?;
    Ok(tree)
}

/// A user namespace with these maps.
///
/// The kernel takes maps for a mount only as a user namespace, and makes one only for a process. A process sleeps in it
/// until it is opened; the descriptor keeps it in existence after that.
fn user_namespace(maps: &IdMaps, proc: BorrowedFd<'_>, setgroups: Setgroups) -> Result<OwnedFd> {
    let child = process::spawn(Namespace::User, Memory::Copied, || {
        let _ = rustix::thread::nanosleep(&rustix::time::Timespec { tv_sec: 60, tv_nsec: 0 });
        0
    })
    .map_err(|e| refused::namespaces(e, Namespace::User))?;
    let pid = child.pid.as_raw_nonzero().to_string();
    let opened = maps.write(proc, &pid, setgroups).and_then(|()| {
        let path = format!("{pid}/ns/user");
        Ok(fs::openat(proc, path.as_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
    });
    child.end();
    opened
}
