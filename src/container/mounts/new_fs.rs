//! New file systems, and what takes the place of those that the kernel refuses.

use super::binds::{Readonly, set_attributes};
use super::{Detached, attributes_of_new, describe, guard_proc, note_mounted, overlay, symlink};
use crate::container::plan::{MountKind, MountPlan};
use rt_sys::error::{Error, Result};
use rt_sys::fd;
use rt_sys::mount::{self, Follow, Param, Recursive};
use rt_sys::rootfs::{MountPoint, Place, Rootfs};
use rustix::fd::OwnedFd;
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use std::borrow::Cow;
use std::path::Path;

/// The parameters of a new file system.
///
/// A tmpfs without `mode=` gets the mode of the directory that it covers: for /tmp that is 1777, and /etc stays root's.
/// The kernel's own default is 1777 for every tmpfs, which would let everybody write to any directory.
pub(super) fn parameters<'a>(rootfs: &Rootfs<'_>, mount: &'a MountPlan) -> Result<Cow<'a, [Param]>> {
    let given = &mount.options.data;
    let is_mode = |param: &Param| matches!(param, Param::Value(key, _) if key == "mode");
    let tmpfs = matches!(&mount.kind, MountKind::New { fstype, .. } if fstype == "tmpfs");
    if !tmpfs || given.iter().any(is_mode) {
        return Ok(Cow::Borrowed(given));
    }
    match rootfs.resolve(&mount.destination) {
        Ok(there) => {
            let mode = format!("{:o}", fd::stat(there)?.st_mode & 0o7777);
            Ok(given.iter().cloned().chain([Param::Value("mode".to_owned(), mode)]).collect())
        }
        // Nothing is covered.
        Err(Errno::NOENT) => Ok(Cow::Borrowed(given)),
        Err(e) => Err(e.into()),
    }
}

/// True for a parameter that names an id.
pub(super) fn names_id(param: &Param) -> bool {
    matches!(param, Param::Value(key, _) if key == "uid" || key == "gid")
}

/// Mounts a new file system by one mount(2), where fsopen(2) and what follows are six calls.
///
/// False where mount(2) has no words for what is asked for, or where it failed. [`detached`] is tried then: its errors
/// have the kernel's own text, and it knows what to do instead.
pub(super) fn mount_in_one_call(
    rootfs: &mut Rootfs<'_>,
    mount: &MountPlan,
    fstype: &str,
    source: &str,
    params: &[Param],
) -> Result<bool> {
    let options = &mount.options;
    let attr = attributes_of_new(mount);
    // These take a descriptor of the mount. Read-only is among them, because mount(2) makes the file system itself
    // read-only and not only the mount.
    if options.copy_up || !options.propagation.is_empty() || attr & mount::ATTR_RDONLY != 0 {
        return Ok(false);
    }
    // An SELinux label of mqueue is set through a descriptor (see `detached`).
    if fstype == "mqueue" && !params.is_empty() {
        return Ok(false);
    }
    // Entries will be made in a tmpfs without a look at links, so its descriptor must be proven to be its root. In a
    // directory that only this process can change, opening the entry again is proof; elsewhere fsmount(2)'s
    // descriptor is.
    if fstype == "tmpfs" && !rootfs.is_in_own_fs(&mount.destination) {
        return Ok(false);
    }
    let place = rootfs.place(&mount.destination, MountPoint::Directory, symlink(mount))?;
    let inside = match &place {
        Place::At(_) if fstype == "tmpfs" => return Ok(false),
        Place::At(fd) => {
            guard_proc(mount, fd, || fstype == "proc")?;
            None
        }
        Place::In(entry) => Some((entry.dir, entry.name)),
    };
    if place.mount(fstype, source, params, attr).is_none_or(|done| done.is_err()) {
        return Ok(false);
    }
    let root = match inside {
        Some((dir, name)) if fstype == "tmpfs" => {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            Some(fs::openat(dir, name, flags, Mode::empty())?)
        }
        _ => None,
    };
    note_mounted(rootfs, mount, None);
    if let Some(root) = root {
        rootfs.add_own_fs(root, &mount.destination);
    }
    Ok(true)
}

/// A new file system as a detached mount.
///
/// Where the kernel refuses one that belongs to a namespace of the host, the host's instance is bound instead. `None`
/// where the host has none either and it can be done without.
pub(super) fn detached(
    mount: &MountPlan,
    fstype: &str,
    source: &str,
    params: &[Param],
) -> Result<Option<Detached>> {
    // A tmpfs is made read-only after everything else, because mount points are made in it.
    let attr = attributes_of_new(mount) & !if fstype == "tmpfs" { mount::ATTR_RDONLY } else { 0 };
    // The kernel has made the mqueue file system together with the IPC namespace, without a label. `context=` of a
    // later mount of it is an error, so the label is set on its root.
    let is_label =
        |param: &&Param| matches!(param, Param::Value(key, _) if fstype == "mqueue" && key == "context");
    let label = params.iter().find(is_label);
    let unlabelled: Vec<Param>;
    let params = match label {
        Some(_) => {
            unlabelled = params.iter().filter(|param| !is_label(param)).cloned().collect();
            &unlabelled
        }
        None => params,
    };
    let layers = match fstype {
        "overlay" => overlay::layers_by_descriptor(params, overlay::MOST_IN_A_VALUE)?,
        _ => None,
    };
    let params = layers.as_ref().map_or(params, |layers| &layers.params);
    let made = match mount::new_fs(fstype, source, params, attr) {
        Err(e) if e.is(libc::EINVAL) && params.iter().any(names_id) => {
            // An id that the user namespace does not have is EINVAL. Of a namespace that is joined, the plan did not
            // know the ids.
            log::debug!("{}: {e}; tried again without uid= and gid=", describe(mount));
            let params: Vec<Param> = params.iter().filter(|p| !names_id(p)).cloned().collect();
            mount::new_fs(fstype, source, &params, attr)
        }
        made => made,
    };
    let refused = match made {
        Ok(tree) => {
            if let Some(Param::Value(_, label)) = label {
                set_label(mount, &tree, label);
            }
            let own = fstype == "tmpfs";
            return Ok(Some(if own { Detached::Own(tree) } else { Detached::Foreign(tree) }));
        }
        Err(e) => e,
    };
    // The kernel gives a new proc to those with privilege over the PID namespace, sysfs over the network namespace and
    // mqueue over the IPC namespace. It also answers EPERM where the host's instance is covered in part, since a new
    // one would show what is hidden there. EBUSY is taken for the same answer.
    let host = match fstype {
        "proc" => "/proc",
        "sysfs" => "/sys",
        "mqueue" => "/dev/mqueue",
        _ => return Err(refused),
    };
    if !refused.is(libc::EPERM) && !refused.is(libc::EBUSY) {
        return Err(refused);
    }
    match mount::clone_path(Path::new(host), Recursive::Yes, Follow::Not) {
        Ok(tree) => {
            log::debug!("{}: {refused}; the host's {host} is bound instead", describe(mount));
            set_attributes(&tree, mount, Readonly::AllBelow)?;
            Ok(Some(Detached::Foreign(tree)))
        }
        // Message queues work without their file system.
        Err(e) if fstype == "mqueue" && e.is(libc::ENOENT) => {
            log::debug!("{}: {refused}; this host has no {host} to bind, so it is left out", describe(mount));
            Ok(None)
        }
        Err(_) => Err(refused),
    }
}

/// Labels the root of a file system, as far as the policy lets this process.
#[cold]
fn set_label(mount: &MountPlan, tree: &OwnedFd, label: &str) {
    // fsmount(2)'s descriptor is an O_PATH one, which takes no fsetxattr(2).
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let set = fs::openat(tree, ".", flags, Mode::empty())
        .and_then(|root| fs::fsetxattr(root, "security.selinux", label.as_bytes(), fs::XattrFlags::empty()));
    if let Err(e) = set {
        log::debug!("{}: not labelled: {}", describe(mount), Error::from(e));
    }
}
