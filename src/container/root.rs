//! The container's root: mounted from the image before everything else, and pivoted to when all is in it.

use super::plan::Plan;
use rt_image_store::others::OthersRoot;
use rt_sys::error::{Context, Result};
use rt_sys::mount::{self, Attr, Follow, Propagation, PropagationType, Recursive};
use rt_sys::ns::Namespace;
use rt_sys::rootfs::{Image, Rootfs};
use rt_sys::{bail, fd};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{self, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, UnmountFlags};
use std::path::{Path, PathBuf};

/// Mounts the image over itself, in this mount namespace only. `state` is the container's state directory.
///
/// pivot_root(2) takes a mount as new root, not a directory, and the attributes of the root must not be those of the
/// host's mount.
pub(super) fn attach<'a>(plan: &Plan, state: BorrowedFd<'a>) -> Result<Rootfs<'a>> {
    let context = || format!("mount rootfs {}", plan.rootfs.display());
    if stays_shared(plan) {
        make_parent_private(&plan.rootfs)?;
    } else if !plan.makes(Namespace::User) {
        // Mounts that are made here must not appear on the host. Where the mount namespace was made together with a
        // user namespace, the kernel has turned every shared mount into a slave already (mount_namespaces(7)).
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = fs::open("/", flags, Mode::empty()).context(|| "open the host's root directory")?;
        mount::set_attr(&root, Recursive::Yes, Attr::SLAVE).context(|| "change the propagation of /")?;
    }
    // Recursive, because a part of the image may be a mount of its own. The copy is a slave, as with runc: what the host
    // mounts below the image later, such as an automounted home, is seen inside.
    // By its descriptor where others can exchange it, and what is above it.
    let opened = plan.others_root.as_ref().map(OthersRoot::open).transpose().context(context)?;
    let tree = match &opened {
        Some(root) => clone_of_others(root),
        None => mount::clone_path(&plan.rootfs, Recursive::Yes, Follow::Links),
    };
    let tree = tree.context(context)?;
    require_found(plan, &fd::stat(&tree)?)?;
    // No device node of the image itself may work, since no device cgroup stands before the host's disks. The devices
    // of the config are on mounts of their own.
    mount::set_attr(&tree, Recursive::No, Attr::setting(mount::ATTR_NODEV)).context(context)?;
    match &opened {
        Some(root) => mount::attach(&tree, root),
        None => mount::attach_to(&tree, &plan.rootfs),
    }
    .context(context)?;
    let image = Image { path: &plan.rootfs, readonly: plan.readonly_root };
    Ok(Rootfs::new(tree, image, Some(state)))
}

/// A copy of a root that others can change, without what they have mounted in it, now or later: their file system may never answer.
///
/// # Errors
/// EINVAL where something is mounted in it and this mount namespace is a user namespace's, in which nothing can be uncovered.
fn clone_of_others(root: &OwnedFd) -> Result<OwnedFd> {
    let tree = mount::clone_fd(root, Recursive::No).map_err(|e| match e.is(libc::EINVAL) {
        true => e.hint("others can change this image, so nothing may be mounted in it"),
        false => e,
    })?;
    mount::set_attr(&tree, Recursive::No, Attr::propagating(PropagationType::Private))?;
    Ok(tree)
}

/// Fails where the path of the root leads to another directory than the way from the bundle did: who can rename in a directory
/// above exchanges it meanwhile. `stat` is that of what was mounted.
fn require_found(plan: &Plan, stat: &Stat) -> Result<()> {
    let Some(found) = &plan.root_found else { return Ok(()) };
    let mounted = (stat.st_dev, stat.st_ino);
    if mounted == found.id {
        return Ok(());
    }
    // An automount point was another directory, until it was entered.
    let now = fs::stat(found.way.join(".")).context(|| format!("rootfs {}", plan.rootfs.display()))?;
    if mounted == (now.st_dev, now.st_ino) {
        return Ok(());
    }
    bail!("rootfs {}: somebody has put another directory in its place", plan.rootfs.display())
}

/// True where mounts made in the container are to reach the host: only root may ask for that.
fn stays_shared(plan: &Plan) -> bool {
    let shared = matches!(plan.propagation, Some(Propagation { kind: PropagationType::Shared, .. }));
    shared && !plan.makes(Namespace::User)
}

/// Makes the mount that the image is in private, where the rest stays shared: pivot_root(2) refuses a new root whose
/// parent mount is shared, since the change would propagate to other namespaces.
fn make_parent_private(rootfs: &Path) -> Result<()> {
    let rootfs = rootfs.canonicalize()?;
    let point = mount::table()?
        .into_iter()
        .map(|mounted| mounted.point)
        .filter(|point| rootfs.starts_with(point))
        .max_by_key(|point| point.as_os_str().len())
        .unwrap_or_else(|| PathBuf::from("/"));
    let fd = fs::open(&point, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    mount::set_attr(fd, Recursive::No, Attr::propagating(PropagationType::Private))
        .context(|| format!("make the mount {} private", point.display()))
}

/// Makes the image the root and lets go of the host's.
pub(super) fn pivot(plan: &Plan, rootfs: &Rootfs<'_>) -> Result<()> {
    fd::enter(rootfs.as_fd())?;
    if plan.no_pivot || !change_root(plan)? {
        move_root(plan, rootfs)?;
    }
    // After the pivot: a root that is shared earlier could not be pivoted to.
    if let Some(Propagation { kind, recursive }) = plan.propagation {
        mount::set_attr(rootfs.as_fd(), recursive, Attr::propagating(kind))
            .context(|| "set rootfsPropagation")?;
    }
    Ok(())
}

/// Pivots and detaches the old root. False where that is impossible; nothing has changed then.
fn change_root(plan: &Plan) -> Result<bool> {
    let old = match stays_shared(plan) {
        true => Some(
            fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
                .context(|| "open the host's root directory")?,
        ),
        false => None,
    };
    if !pivot_root()? {
        return Ok(false);
    }
    if let Some(old) = old {
        // The unmount of a shared mount propagates, and would unmount on the host.
        mount::set_attr(&old, Recursive::Yes, Attr::SLAVE)
            .context(|| "change the propagation of the old root")?;
    }
    // The working directory is the new root, and the old one is mounted on top of it, so "." names the old one.
    // MNT_DETACH, because the old root is a whole tree of mounts, and this process has descriptors in it.
    rustix::mount::unmount(".", UnmountFlags::DETACH).context(|| "detach the old root")?;
    Ok(true)
}

/// pivot_root(2), which the kernel's first root file system does not allow: false where that is the host's, as on a
/// node without a disk that has stayed in its initramfs.
///
/// With "." for both, the old root ends up on top of the new one (pivot_root(2), "pivot_root(".", ".")"): no directory
/// is needed in the image to put it at.
fn pivot_root() -> Result<bool> {
    match rustix::process::pivot_root(".", ".") {
        Ok(()) => Ok(true),
        Err(Errno::INVAL) if is_first_root()? => Ok(false),
        Err(e) => Err(e).context(|| "pivot_root"),
    }
}

/// True where nothing is below this process's root, as mountinfo shows it.
fn is_first_root() -> Result<bool> {
    let table = mount::table()?;
    Ok(table
        .iter()
        .rfind(|mounted| mounted.point == Path::new("/"))
        .is_some_and(|root| root.fstype == b"rootfs"))
}

/// Mounts the image over the host's root, which stays below.
///
/// Whoever makes a user namespace may mount a new procfs or sysfs in it where its mount namespace shows one in full
/// (the kernel's mount_too_revealing). The host's, whose files are not masked, count too while they are mounted below,
/// so they must go first.
fn move_root(plan: &Plan, rootfs: &Rootfs<'_>) -> Result<()> {
    let image = fd::path_of(rootfs.as_fd())?;
    let hosts = mount::table()?.into_iter().filter(|mounted| {
        matches!(mounted.fstype.as_slice(), b"proc" | b"sysfs")
            && mounted.root == Path::new("/")
            && !mounted.point.starts_with(&image)
    });
    for mounted in hosts {
        let context = || format!("hide the host's {}", mounted.point.display());
        match hide_hosts(plan, &mounted.point) {
            // The mount was below another one, which is gone already.
            Err(e) if e.is(libc::ENOENT) => {}
            result => result.context(context)?,
        }
    }
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    rustix::mount::move_mount(rootfs.as_fd(), "", fs::CWD, "/", flags).context(|| "move the root")?;
    // A process's root is a directory of a mount and does not change when something is mounted over it.
    rustix::process::chroot(".").context(|| "chroot")
}

/// Unmounts what the host has at `point`, in this namespace. Where the kernel has locked it, so that it cannot be
/// unmounted alone (EINVAL, mount_namespaces(7)), it is covered.
fn hide_hosts(plan: &Plan, point: &Path) -> Result<()> {
    if stays_shared(plan) {
        let at = fs::open(point, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        mount::set_attr(at, Recursive::Yes, Attr::SLAVE)?;
    }
    match rustix::mount::unmount(point, UnmountFlags::DETACH) {
        Err(Errno::INVAL | Errno::PERM) => {
            let tmpfs = mount::new_fs("tmpfs", "tmpfs", &[], mount::ATTR_RDONLY)?;
            mount::attach_to(&tmpfs, point)
        }
        result => Ok(result?),
    }
}
