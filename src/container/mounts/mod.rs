//! Mounting, inside init: every mount of the plan, through the root's descriptor.
//!
//! | what | where |
//! |---|---|
//! | the order of one mount's steps, the place that it comes to | here |
//! | binds, id-mapped ones among them | [`binds`] |
//! | new file systems, and what takes their place where the kernel refuses them | [`new_fs`] |
//! | host files that are copied into a root | [`host_files`] |
//! | overlays with long paths | [`overlay`] |
//! | the cgroup tree | [`cgroup`] |
//! | `tmpcopyup` | [`copy_up`] |
//! | masked and read-only paths | [`masks`] |

mod binds;
mod cgroup;
mod copy_up;
mod host_files;
mod masks;
mod new_fs;
mod overlay;

pub(super) use binds::{open_early, open_sources};
pub(super) use masks::{make_readonly, mask};

use super::hidden_state::HiddenState;
use super::plan::{MountKind, MountPlan, Plan};
use rt_sys::error::{Context, Error, Result};
use rt_sys::mount::{self, Attr, Follow, PropagationType, Recursive};
use rt_sys::rootfs::{MountPoint, PROC_MAGIC, Place, Rootfs, SYSFS_MAGIC, Symlink};
use rt_sys::{bail, fd};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, FileType};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Detached trees for the binds of the plan that were made beforehand, by the mount's place in the plan.
pub(super) type Trees = Vec<Option<OwnedFd>>;

/// A mount that is ready to be attached.
enum Detached {
    /// A file system that was made for this container alone: mount points can be made in it.
    Own(OwnedFd),
    /// A mount that shows what others use as well: files of the host, or a file system of the kernel's.
    Foreign(OwnedFd),
}

/// Mounts everything in order. `copies` are the trees that the runtime has made for init, `opened` those that init has
/// opened itself before its ids changed. State directories that they show are covered.
pub(super) fn mount_all(
    rootfs: &mut Rootfs,
    plan: &Plan,
    copies: &[Option<OwnedFd>],
    mut opened: Trees,
    state: &HiddenState,
) -> Result<()> {
    state
        .cover(rootfs.as_fd(), &fd::stat(rootfs.as_fd())?, plan.propagation.is_none())
        .context(|| format!("rootfs {}", plan.rootfs.display()))?;
    let image = Image::of(plan)?;
    for (n, mount) in plan.mounts.iter().enumerate() {
        if mount.copied && host_files::copy(rootfs, plan, &mount.destination) {
            continue;
        }
        let tree = match (opened.get_mut(n).and_then(Option::take), &mount.kind) {
            (None, MountKind::Bind(source)) => {
                Some(binds::clone_source(copies, n, mount, source).context(|| describe(mount))?)
            }
            (tree, _) => tree,
        };
        mount_one(rootfs, plan, mount, tree, &image, state).context(|| describe(mount))?;
    }
    Ok(())
}

/// A procfs of this process's PID namespace, as `mount` asks for it.
pub(super) fn new_proc(mount: &MountPlan) -> Result<OwnedFd> {
    let MountKind::New { source, .. } = &mount.kind else { bail!("{}: no procfs", describe(mount)) };
    mount::new_fs("proc", source, &mount.options.data, attributes_of_new(mount)).context(|| describe(mount))
}

fn describe(mount: &MountPlan) -> String {
    let what = match &mount.kind {
        MountKind::Bind(source) => source.display().to_string(),
        MountKind::Cgroup => "cgroup".to_owned(),
        MountKind::New { fstype, .. } => fstype.clone(),
    };
    format!("mount {what:?} to {:?}", mount.destination.display().to_string())
}

/// Mounts one. `bound` is the tree of a bind.
fn mount_one(
    rootfs: &mut Rootfs,
    plan: &Plan,
    mount: &MountPlan,
    bound: Option<OwnedFd>,
    image: &Image,
    state: &HiddenState,
) -> Result<()> {
    let detached = match &mount.kind {
        MountKind::Bind(_) => bound.map(Detached::Foreign),
        MountKind::Cgroup => {
            if cgroup::came_with_sys(rootfs, plan, mount)? {
                return Ok(());
            }
            Some(Detached::Foreign(cgroup::tree(plan, mount)?))
        }
        MountKind::New { fstype, source } => {
            let params = new_fs::parameters(rootfs, mount)?;
            if new_fs::mount_in_one_call(rootfs, mount, fstype, source, &params)? {
                return Ok(());
            }
            match new_fs::detached(mount, fstype, source, &params) {
                Err(e) if e.is(libc::EINVAL) && fstype == "overlay" => {
                    let mounted = overlay::mount_with_one_parameter(rootfs, mount, source, &params)?;
                    return if mounted { Ok(()) } else { Err(e) };
                }
                made => made?,
            }
        }
    };
    match detached {
        Some(Detached::Own(tree)) => {
            if mount.options.copy_up {
                copy_up::fill(rootfs, mount, &tree)?;
            }
            attach(rootfs, mount, &tree, MountPoint::Directory)?;
            note_mounted(rootfs, mount, None);
            if attributes_of_new(mount) & mount::ATTR_RDONLY != 0 {
                rootfs.add_readonly(&tree, &mount.destination)?;
            }
            rootfs.add_own_fs(tree, &mount.destination);
        }
        Some(Detached::Foreign(tree)) => {
            match &mount.kind {
                MountKind::Bind(source) => {
                    let stat = fd::stat(&tree)?;
                    if mount.options.attr.clear & mount::ATTR_NODEV == 0 && image.has(source)? {
                        // As dead as at their own place are the image's device nodes at a second one.
                        mount::set_attr(&tree, Recursive::No, Attr::setting(mount::ATTR_NODEV))?;
                    }
                    attach(rootfs, mount, &tree, kind_of(&stat))?;
                    state.cover(tree.as_fd(), &stat, mount.options.propagation.is_empty())?;
                }
                _ => attach(rootfs, mount, &tree, MountPoint::Directory)?,
            }
            note_mounted(rootfs, mount, Some(tree));
        }
        // Left out, which has been logged.
        None => {}
    }
    Ok(())
}

/// Where the image is.
struct Image<'a> {
    /// As the plan names it.
    path: &'a Path,
    /// Without links; `None` where it does not matter by what path a bind leads there: nobody but root has device nodes in an image.
    real: Option<PathBuf>,
}

impl Image<'_> {
    fn of(plan: &Plan) -> Result<Image<'_>> {
        let has_binds = || plan.mounts.iter().any(|mount| matches!(mount.kind, MountKind::Bind(_)));
        let real = (plan.may_mknod && has_binds()).then(|| canonicalize(&plan.rootfs)).transpose()?;
        Ok(Image { path: &plan.rootfs, real })
    }

    /// True where `source` leads into it.
    fn has(&self, source: &Path) -> Result<bool> {
        if source.starts_with(self.path) {
            return Ok(true);
        }
        self.real.as_ref().map_or(Ok(false), |real| Ok(canonicalize(source)?.starts_with(real)))
    }
}

fn canonicalize(path: &Path) -> Result<PathBuf> {
    std::fs::canonicalize(path).context(|| path.display().to_string())
}

/// On what a tree can be mounted whose root has `stat`.
fn kind_of(stat: &fs::Stat) -> MountPoint {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => MountPoint::Directory,
        _ => MountPoint::File,
    }
}

/// Attaches `tree` at the destination, which is made as `point` where it is missing.
fn attach(rootfs: &mut Rootfs, mount: &MountPlan, tree: &OwnedFd, point: MountPoint) -> Result<()> {
    let place = rootfs.place(&mount.destination, point, symlink(mount))?;
    if let Place::At(fd) = &place {
        guard_proc(mount, fd, || fd::require_proc(tree).is_ok())?;
    }
    match place.attach(tree) {
        // A directory cannot be mounted on a file, nor the other way round. For that move_mount(2) says EINVAL, as for
        // much else; mount(2) says ENOTDIR, which is what people understand.
        Err(e) if e.is(libc::EINVAL) && !rootfs.is(&mount.destination, point) => {
            return Err(Error::from_errno(libc::ENOTDIR));
        }
        result => result?,
    }
    set_propagation(mount, tree)
}

/// Gives an attached mount the propagation types that its options ask for.
///
/// The types are set after the mount is attached: below a shared mount it becomes shared itself, whatever it was. Private is the
/// exception, since the root is shared only where the config asks for that.
fn set_propagation(mount: &MountPlan, tree: &OwnedFd) -> Result<()> {
    let asked = &mount.options.propagation;
    // Binds have become private together with getting their attributes, by the same call.
    if mount.options.bind && asked.iter().all(|change| change.kind == PropagationType::Private) {
        return Ok(());
    }
    asked
        .iter()
        .try_for_each(|change| mount::set_attr(tree, change.recursive, Attr::propagating(change.kind)))
}

/// The attributes of a new mount. Nothing is mounted below it yet, so recursive ones are the same as others.
fn attributes_of_new(mount: &MountPlan) -> u64 {
    let asked = mount.options.attr.set | mount.options.recursive_attr.set;
    // The layers of an overlay are what images and containers have written: podman's volumes with :O. Device nodes among it
    // are as dead as those of the image.
    let is_overlay = matches!(&mount.kind, MountKind::New { fstype, .. } if fstype == "overlay");
    let with_devices = !is_overlay || mount.options.attr.clear & mount::ATTR_NODEV != 0;
    asked | if with_devices { 0 } else { mount::ATTR_NODEV }
}

/// What becomes of a link at the destination.
///
/// At the places of the kernel's file systems a link is refused: the file system would be mounted where the link
/// leads, and the masks, which protect /proc and /sys, would be set on the image's own files (CVE-2019-19921).
fn symlink(mount: &MountPlan) -> Symlink {
    let is_kernels =
        matches!(&mount.kind, MountKind::New { fstype, .. } if matches!(fstype.as_str(), "proc" | "sysfs"));
    match mount.destination.as_os_str().as_bytes() {
        b"/proc" | b"/sys" | b"/dev" => Symlink::Refuse,
        _ if is_kernels => Symlink::Refuse,
        _ if mount.options.follow_destination == Follow::Not => Symlink::Keep,
        _ => Symlink::Follow,
    }
}

/// Tells the root what is at the destination now. `tree` is a descriptor of the attached mount's root; `None` where the
/// caller has none.
fn note_mounted(rootfs: &mut Rootfs<'_>, mount: &MountPlan, tree: Option<OwnedFd>) {
    rootfs.mounted_over(&mount.destination);
    let leave_open = |tree: Option<OwnedFd>| tree.into_iter().for_each(fd::leave_open);
    match mount.destination.as_os_str().as_bytes() {
        // The check of the config lets only procfs be mounted at /proc, so its type is not asked here.
        b"/proc" => rootfs.add_kernel_fs("/proc", PROC_MAGIC, tree),
        b"/sys" => match &mount.kind {
            MountKind::Bind(source) if source.as_os_str() == "/sys" => {
                rootfs.add_kernel_fs("/sys", SYSFS_MAGIC, tree);
                if mount.options.recursive == Recursive::Yes && mount.options.idmap.is_none() {
                    rootfs.add_host_sys();
                }
            }
            MountKind::New { fstype, .. } if fstype == "sysfs" => {
                rootfs.add_kernel_fs("/sys", SYSFS_MAGIC, tree);
            }
            _ => leave_open(tree),
        },
        _ => leave_open(tree),
    }
}

/// Refuses what would put something else in procfs' place: programs of the container, and `rt` itself, write to files
/// of /proc by which the kernel confines a process (CVE-2019-16884). The files that lxcfs and the like replace are
/// allowed.
fn guard_proc(mount: &MountPlan, place: &OwnedFd, is_proc: impl FnOnce() -> bool) -> Result<()> {
    let at_proc = mount.destination.as_os_str() == "/proc" || fd::require_proc(place).is_ok();
    if at_proc && !rt_spec::allowed_below_proc(&mount.destination) && !is_proc() {
        bail!("only a proc file system may be mounted on /proc");
    }
    Ok(())
}
