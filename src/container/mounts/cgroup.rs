//! The cgroup tree inside the container.

use super::binds::{Readonly, set_attributes};
use crate::container::plan::{MountPlan, Plan};
use rt_sys::error::{Context, Error, Result};
use rt_sys::mount::{self, Follow, Recursive};
use rt_sys::ns::Namespace;
use rt_sys::rootfs::Rootfs;
use rustix::fd::OwnedFd;
use rustix::fs;
use rustix::io::Errno;
use std::path::Path;

/// Where the host has its cgroup tree.
const CGROUP: &str = "/sys/fs/cgroup";

/// True where the container may have a cgroup file system of its own: the kernel lets only root, or the owner of a
/// cgroup namespace, mount one.
fn may_mount(plan: &Plan) -> bool {
    plan.may_mknod || plan.makes(Namespace::Cgroup)
}

/// True where the host's cgroup tree came with its /sys to where the config wants it. It gets the attributes of the
/// config's mount too then. To copy and attach it a second time would cost a start 2 %.
pub(super) fn came_with_sys(rootfs: &Rootfs, plan: &Plan, mount: &MountPlan) -> Result<bool> {
    let plain = mount.options.propagation.is_empty() && !may_mount(plan);
    if !plain || !rootfs.has_host_sys() || mount.destination.as_os_str() != CGROUP {
        return Ok(false);
    }
    let at = rootfs.resolve_in_kernel_fs(&mount.destination).map_err(Error::from);
    match at.and_then(|at| set_attributes(&at, mount, Readonly::AllBelow)) {
        Ok(()) => Ok(true),
        // EINVAL: nothing is mounted there, so this host has no cgroup tree at the usual place.
        Err(e) if e.is(libc::EINVAL) || e.is(libc::ENOENT) => Ok(false),
        Err(e) => Err(e),
    }
}

/// The cgroup tree as the host shows it, or that of the container's own cgroup namespace where there is only cgroup2.
pub(super) fn tree(plan: &Plan, mount: &MountPlan) -> Result<OwnedFd> {
    if may_mount(plan) && is_cgroup2()? {
        match mount::new_fs("cgroup2", "cgroup", &[], mount.options.attr.set) {
            // The host shows less of its own than a new one would show (mount_namespaces(7)).
            Err(e) if e.is(libc::EPERM) || e.is(libc::EACCES) || e.is(libc::EBUSY) => {}
            tree => return tree,
        }
    }
    // Recursive: with cgroup v1 every controller is a mount of its own, and what the kernel has locked together in a
    // mount namespace of another user namespace can only be copied together.
    let tree = mount::clone_path(Path::new(CGROUP), Recursive::Yes, Follow::Not)
        .context(|| format!("bind {CGROUP}"))?;
    set_attributes(&tree, mount, Readonly::AllBelow)?;
    Ok(tree)
}

/// True where the host has only cgroup2.
fn is_cgroup2() -> Result<bool> {
    const CGROUP2_MAGIC: u64 = 0x6367_7270;
    match fs::statfs(CGROUP) {
        Err(Errno::NOENT) => Ok(false),
        found => Ok(found.context(|| format!("look at {CGROUP}"))?.f_type as u64 == CGROUP2_MAGIC),
    }
}
