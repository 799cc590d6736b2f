//! Mounting, inside init: every mount of the plan through the root's descriptor.

use super::copy_up::copy_tree;
use super::init::Init;
use super::plan::{MountKind, MountPlan, Plan};
use rt_sys::bail;
use rt_sys::error::{Context, Error, Result};
use rt_sys::mount::{self, Attr, Follow, Param, PropagationType, Recursive};
use rt_sys::ns::{self, IdMaps, Namespace, Setgroups};
use rt_sys::process::{self, Memory};
use rt_sys::rootfs::{MountPoint, PROC_MAGIC, Place, Rootfs, SYSFS_MAGIC, Symlink};
use rt_sys::{caps, fd};
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Bind sources that were opened before init changed its ids, by the mount's place in the plan.
pub(super) type Sources = Vec<Option<OwnedFd>>;

/// Opens the source of every bind mount now.
pub(super) fn open_sources(init: &Init<'_>) -> Result<Sources> {
    let open = |(n, mount): (usize, &MountPlan)| match &mount.kind {
        MountKind::Bind(source) => clone_source(init, n, mount, source).map(Some).context(|| describe(mount)),
        _ => Ok(None),
    };
    init.plan.mounts.iter().enumerate().map(open).collect()
}

/// Mounts everything in order.
pub(super) fn mount_all(rootfs: &mut Rootfs, init: &Init<'_>, mut sources: Sources) -> Result<()> {
    for (n, mount) in init.plan.mounts.iter().enumerate() {
        let source = match (sources.get_mut(n).and_then(Option::take), &mount.kind) {
            (None, MountKind::Bind(path)) => {
                Some(clone_source(init, n, mount, path).context(|| describe(mount))?)
            }
            (source, _) => source,
        };
        mount_one(rootfs, init, mount, source).context(|| describe(mount))?;
    }
    Ok(())
}

fn describe(mount: &MountPlan) -> String {
    let what = match &mount.kind {
        MountKind::Bind(source) => source.display().to_string(),
        MountKind::Cgroup => "cgroup".to_owned(),
        MountKind::New { fstype, .. } => fstype.clone(),
    };
    format!("mount {what:?} to {:?}", mount.destination.display().to_string())
}

fn mount_one(rootfs: &mut Rootfs, init: &Init<'_>, mount: &MountPlan, source: Option<OwnedFd>) -> Result<()> {
    let data = parameters(rootfs, mount)?;
    if let MountKind::New { fstype, source } = &mount.kind
        && mount_plainly(rootfs, mount, fstype, source, &data)?
    {
        return Ok(());
    }
    if matches!(mount.kind, MountKind::Cgroup) && is_there(rootfs, init, mount)? {
        return Ok(());
    }
    let made = match &mount.kind {
        MountKind::Bind(_) => source.map(|tree| (tree, false)),
        MountKind::Cgroup => Some((cgroup(init, mount)?, false)),
        MountKind::New { fstype, source } => match new_mount(mount, fstype, source, &data) {
            Err(e) if e.is(libc::EINVAL) && fstype == "overlay" => {
                return if mount_in_one_page(rootfs, mount, source, &data)? { Ok(()) } else { Err(e) };
            }
            made => made?,
        },
    };
    let Some((tree, own)) = made else { return Ok(()) };
    let want = match &mount.kind {
        MountKind::Bind(_) if FileType::from_raw_mode(fs::fstat(&tree)?.st_mode) != FileType::Directory => {
            MountPoint::File
        }
        _ => MountPoint::Directory,
    };
    if mount.options.copy_up && own {
        copy_up(rootfs, mount, &tree)?;
    }
    let place = rootfs.place(&mount.destination, want, link(mount))?;
    if let Place::At(fd) = &place {
        guard_proc(mount, fd, || fd::require_proc(&tree).is_ok())?;
    }
    // move_mount(2) says EINVAL where mount(2) says what is wrong.
    match place.attach(&tree) {
        Err(e) if e.is(libc::EINVAL) && !rootfs.is(&mount.destination, want) => {
            return Err(Error::from_errno(libc::ENOTDIR));
        }
        result => result?,
    }
    set_propagation(mount, &tree)?;
    if !own {
        mounted(rootfs, mount, Some(tree));
        return Ok(());
    }
    mounted(rootfs, mount, None);
    if asked_attr(mount) & mount::ATTR_RDONLY != 0 {
        rootfs.add_readonly(&tree, &mount.destination)?;
    }
    rootfs.add_own_fs(tree, &mount.destination);
    Ok(())
}

/// Sets what a mount in its place has as propagation.
fn set_propagation(mount: &MountPlan, tree: &OwnedFd) -> Result<()> {
    let asked = &mount.options.propagation;
    // A bind has got its private propagation with its attributes.
    if mount.options.bind && asked.iter().all(|change| change.kind == PropagationType::Private) {
        return Ok(());
    }
    asked
        .iter()
        .try_for_each(|change| mount::set_attr(tree, change.recursive, Attr::propagating(change.kind)))
}

/// The attributes of a new mount: below it there is nothing yet that a recursive one could spare.
fn asked_attr(mount: &MountPlan) -> u64 {
    mount.options.attr.set | mount.options.recursive_attr.set
}

/// The parameters of a new file system. A tmpfs is as open as the directory that it covers: for /tmp that is 1777, and
/// /etc stays root's.
fn parameters<'a>(rootfs: &Rootfs<'_>, mount: &'a MountPlan) -> Result<Cow<'a, [Param]>> {
    let given = &mount.options.data;
    let is_mode = |param: &Param| matches!(param, Param::Value(key, _) if key == "mode");
    let tmpfs = matches!(&mount.kind, MountKind::New { fstype, .. } if fstype == "tmpfs");
    if !tmpfs || given.iter().any(is_mode) {
        return Ok(Cow::Borrowed(given));
    }
    match rootfs.resolve(&mount.destination) {
        Ok(there) => {
            let mode = format!("{:o}", fs::fstat(there)?.st_mode & 0o7777);
            Ok(given.iter().cloned().chain([Param::Value("mode".to_owned(), mode)]).collect())
        }
        // Nothing is covered.
        Err(Errno::NOENT) => Ok(Cow::Borrowed(given)),
        Err(e) => Err(e.into()),
    }
}

/// Whether a link at the destination is followed. Not at the places of the kernel's file systems, which would be
/// elsewhere then (CVE-2019-19921).
fn link(mount: &MountPlan) -> Symlink {
    let kernels =
        matches!(&mount.kind, MountKind::New { fstype, .. } if matches!(fstype.as_str(), "proc" | "sysfs"));
    match mount.destination.as_os_str().as_bytes() {
        b"/proc" | b"/sys" | b"/dev" => Symlink::Refuse,
        _ if kernels => Symlink::Refuse,
        _ if mount.options.follow_destination == Follow::Not => Symlink::Keep,
        _ => Symlink::Follow,
    }
}

/// Tells the root what is at the destination now; `tree` is the mount, where it is known.
fn mounted(rootfs: &mut Rootfs<'_>, mount: &MountPlan, tree: Option<OwnedFd>) {
    rootfs.mounted_over(&mount.destination);
    let host_sys = matches!(&mount.kind, MountKind::Bind(source) if source.as_os_str() == "/sys");
    let new_sys = matches!(&mount.kind, MountKind::New { fstype, .. } if fstype == "sysfs");
    match mount.destination.as_os_str().as_bytes() {
        // Nothing but procfs comes there.
        b"/proc" => rootfs.add_kernel_fs("/proc", PROC_MAGIC, tree),
        b"/sys" if new_sys || host_sys => rootfs.add_kernel_fs("/sys", SYSFS_MAGIC, tree),
        _ => tree.into_iter().for_each(fd::leave_open),
    }
    let at_sys = mount.destination.as_os_str() == "/sys";
    if at_sys && host_sys && mount.options.recursive == Recursive::Yes && mount.options.idmap.is_none() {
        rootfs.add_host_sys();
    }
}

/// Mounts a new file system in the fewest calls. False where that says too little or failed: the long way
/// says more, and knows what to do instead.
fn mount_plainly(
    rootfs: &mut Rootfs<'_>,
    mount: &MountPlan,
    fstype: &str,
    source: &str,
    data: &[Param],
) -> Result<bool> {
    let options = &mount.options;
    let attr = asked_attr(mount);
    if options.copy_up || !options.propagation.is_empty() || attr & mount::ATTR_RDONLY != 0 {
        return Ok(false);
    }
    // Its label is set through a descriptor.
    if fstype == "mqueue" && !data.is_empty() {
        return Ok(false);
    }
    // What is to be mounted in a tmpfs needs a descriptor of it, proven to be its root.
    if fstype == "tmpfs" && !rootfs.is_in_own_fs(&mount.destination) {
        return Ok(false);
    }
    let place = rootfs.place(&mount.destination, MountPoint::Directory, link(mount))?;
    let inside = match &place {
        Place::At(_) if fstype == "tmpfs" => return Ok(false),
        Place::At(fd) => {
            guard_proc(mount, fd, || fstype == "proc")?;
            None
        }
        Place::In(entry) => Some((entry.dir, entry.name)),
    };
    if place.mount(fstype, source, data, attr).is_none_or(|done| done.is_err()) {
        return Ok(false);
    }
    let root = match inside {
        Some((dir, name)) if fstype == "tmpfs" => {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            Some(fs::openat(dir, name, flags, Mode::empty())?)
        }
        _ => None,
    };
    mounted(rootfs, mount, None);
    if let Some(root) = root {
        rootfs.add_own_fs(root, &mount.destination);
    }
    Ok(true)
}

/// Refuses what would put something else in procfs' place: the container's programs trust it
/// (CVE-2019-16884). The files that lxcfs and the like replace are allowed.
fn guard_proc(mount: &MountPlan, place: &OwnedFd, is_proc: impl FnOnce() -> bool) -> Result<()> {
    let at_proc = mount.destination.as_os_str() == "/proc" || fd::require_proc(place).is_ok();
    if at_proc && !rt_spec::allowed_below_proc(&mount.destination) && !is_proc() {
        bail!("only a proc file system may be mounted on /proc");
    }
    Ok(())
}

/// A detached copy of what is bound, with the attributes asked for.
fn clone_source(init: &Init<'_>, n: usize, mount: &MountPlan, source: &Path) -> Result<OwnedFd> {
    let options = &mount.options;
    let tree = match init.opened.get(n) {
        Some(Some(tree)) => tree.try_clone().context(|| "duplicate a descriptor")?,
        _ => mount::clone_path(source, options.recursive, options.follow_source)?,
    };
    set_attrs(&tree, mount, source.starts_with("/sys"))?;
    Ok(tree)
}

/// Applies the options' attributes to a tree that came from the host. `deep` makes read-only recursive.
///
/// MountKind the parent namespace has locked stays: to clear a locked flag fails, or to change those of access times, and is
/// left out then.
fn set_attrs(tree: &OwnedFd, mount: &MountPlan, deep: bool) -> Result<()> {
    let options = &mount.options;
    let mut top = options.attr;
    let mut all = options.recursive_attr;
    // A read-only /sys must not show a writable cgroup tree below it.
    if deep && top.set & mount::ATTR_RDONLY != 0 {
        all.set |= top.set;
        all.clear |= top.clear;
        top = Attr::default();
    }
    // Private is set along with the rest; anything else once the mount is in place.
    let asked = &options.propagation;
    if !asked.is_empty() && asked.iter().all(|change| change.kind == PropagationType::Private) {
        all.propagation = Some(PropagationType::Private);
    }
    // These are locked together.
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

/// A detached copy of what is bound with translated ids, or from where init may not go once it is in a user namespace
/// with several ids. Made by the runtime: it takes privilege over the file system, which that namespace has not.
pub(super) fn open_early(plan: &Plan, proc: BorrowedFd<'_>) -> Result<Vec<Option<OwnedFd>>> {
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

/// As every bind of init's, which copies mounts that are slaves already.
fn clone_slave(mount: &MountPlan, source: &Path) -> Result<OwnedFd> {
    let tree = mount::clone_path(source, mount.options.recursive, mount.options.follow_source)?;
    mount::set_attr(&tree, Recursive::Yes, Attr::SLAVE)?;
    Ok(tree)
}

fn idmapped(
    plan: &Plan,
    proc: BorrowedFd<'_>,
    mount: &MountPlan,
    source: &Path,
    recursive: Recursive,
) -> Result<OwnedFd> {
    let joined = plan.join.iter().find(|(kind, _)| *kind == Namespace::User);
    // Without maps of its own it is the container's.
    let userns = match (mount.maps.as_ref().or(plan.maps.as_ref()), joined) {
        (Some(maps), _) => {
            user_namespace(maps, proc, if plan.own_maps { Setgroups::Deny } else { Setgroups::Allow })?
        }
        (None, Some((_, path))) => ns::open(path)?,
        (None, None) => bail!("an idmap mount needs id maps, or a user namespace of the container"),
    };
    let tree = clone_slave(mount, source)?;
    mount::set_idmap(&tree, recursive, userns).context(|| "make an idmap mount")?;
    Ok(tree)
}

/// A namespace lives as long as a process in it, or a descriptor: one process sleeps until that is open.
fn user_namespace(maps: &IdMaps, proc: BorrowedFd<'_>, setgroups: Setgroups) -> Result<OwnedFd> {
    let child = process::spawn(Namespace::User as u64, Memory::Copied, || {
        let _ = rustix::thread::nanosleep(&rustix::time::Timespec { tv_sec: 60, tv_nsec: 0 });
        0
    })
    .map_err(|e| super::refused::namespaces(e, Namespace::User))?;
    let pid = child.pid.as_raw_nonzero().to_string();
    let opened = maps.write(proc, &pid, setgroups).and_then(|()| {
        let path = format!("{pid}/ns/user");
        Ok(fs::openat(proc, path.as_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
    });
    child.end();
    opened
}

/// A new file system; true where it is this container's own. Where the kernel refuses one that belongs to a
/// namespace of the host, the host's instance is bound instead, or nothing where the host has none.
fn new_mount(
    mount: &MountPlan,
    fstype: &str,
    source: &str,
    data: &[Param],
) -> Result<Option<(OwnedFd, bool)>> {
    // MountKind belongs into a tmpfs is made in it first.
    let attr = asked_attr(mount) & !if fstype == "tmpfs" { mount::ATTR_RDONLY } else { 0 };
    // The kernel has made the file system with the namespace, without a label, which no parameter changes then.
    let is_label =
        |param: &&Param| matches!(param, Param::Value(key, _) if fstype == "mqueue" && key == "context");
    let label = data.iter().find(is_label);
    let unlabelled: Vec<Param>;
    let data = match label {
        Some(_) => {
            unlabelled = data.iter().filter(|param| !is_label(param)).cloned().collect();
            &unlabelled
        }
        None => data,
    };
    let layers = if fstype == "overlay" { layers_by_descriptor(data, MOST_IN_A_VALUE)? } else { None };
    let data = layers.as_ref().map_or(data, |(data, _)| data);
    let made = match mount::new_fs(fstype, source, data, attr) {
        Err(e) if e.is(libc::EINVAL) && data.iter().any(names_id) => {
            // The ids of a namespace that was joined are not known beforehand.
            log::debug!("{}: {e}; tried again without uid= and gid=", describe(mount));
            let data: Vec<Param> = data.iter().filter(|p| !names_id(p)).cloned().collect();
            mount::new_fs(fstype, source, &data, attr)
        }
        made => made,
    };
    let refused = match made {
        Ok(tree) => {
            if let Some(Param::Value(_, label)) = label {
                set_label(mount, &tree, label);
            }
            return Ok(Some((tree, fstype == "tmpfs")));
        }
        Err(e) => e,
    };
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
            set_attrs(&tree, mount, true)?;
            Ok(Some((tree, false)))
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
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let set = fs::openat(tree, ".", flags, Mode::empty())
        .and_then(|root| fs::fsetxattr(root, "security.selinux", label.as_bytes(), fs::XattrFlags::empty()));
    if let Err(e) = set {
        log::debug!("{}: not labelled: {}", describe(mount), Error::from(e));
    }
}

/// Mounts an overlay by mount(2), with all layers in one parameter: before Linux 6.7, fsconfig(2) takes no more of them
/// than fit into 255 bytes. False where there are fewer, or too many for a page.
#[cold]
fn mount_in_one_page(
    rootfs: &mut Rootfs<'_>,
    mount: &MountPlan,
    source: &str,
    data: &[Param],
) -> Result<bool> {
    let Some((data, layers)) = layers_by_descriptor(data, usize::MAX)? else { return Ok(false) };
    if !data.iter().any(is_long) {
        return Ok(false);
    }
    let place = rootfs.place(&mount.destination, MountPoint::Directory, link(mount))?;
    if let Place::At(fd) = &place {
        guard_proc(mount, fd, || false)?;
    }
    let Some(done) = place.mount("overlay", source, &data, asked_attr(mount)) else { return Ok(false) };
    drop(layers);
    done?;
    mounted(rootfs, mount, None);
    set_propagation(mount, &rootfs.resolve(&mount.destination)?)?;
    Ok(true)
}

const MOST_IN_A_VALUE: usize = 255;

fn is_long(param: &Param) -> bool {
    matches!(param, Param::Value(_, value) if value.len() > MOST_IN_A_VALUE)
}

/// The layers of an overlay as files of /proc/self/fd, with what keeps them open: fsconfig(2) takes values of 255
/// bytes, and the paths of clients' images are longer. `None` where they are not. Where the lower ones have more than
/// `most` bytes together, they are given one by one.
fn layers_by_descriptor(data: &[Param], most: usize) -> Result<Option<(Vec<Param>, Vec<OwnedFd>)>> {
    if !data.iter().any(is_long) {
        return Ok(None);
    }
    let mut open = Vec::new();
    let mut by_descriptor = |path: &Path| -> Result<String> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = fs::open(path, flags, Mode::empty()).context(|| path.display())?;
        let name = format!("/proc/self/fd/{}", fd.as_raw_fd());
        open.push(fd);
        Ok(name)
    };
    let mut short = Vec::new();
    for param in data {
        match param {
            Param::Value(key, value) if key == "lowerdir" => {
                let layers = split_layers(value);
                let names = layers.iter().map(|l| by_descriptor(Path::new(l))).collect::<Result<Vec<_>>>()?;
                let all = names.join(":");
                if all.len() <= most {
                    short.push(Param::Value(key.clone(), all));
                } else {
                    // Since Linux 6.7.
                    short.extend(names.into_iter().map(|name| Param::Value("lowerdir+".to_owned(), name)));
                }
            }
            Param::Value(key, value) if key == "upperdir" || key == "workdir" => {
                let [path] = &split_layers(value)[..] else { bail!("{key} {value:?} is not one directory") };
                short.push(Param::Value(key.clone(), by_descriptor(Path::new(path))?));
            }
            other => short.push(other.clone()),
        }
    }
    Ok(Some((short, open)))
}

/// The directories in an overlay's parameter: a colon stands between them, and a backslash before any other.
fn split_layers(value: &str) -> Vec<String> {
    let mut layers = vec![String::new()];
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match (c, layers.last_mut()) {
            ('\\', Some(layer)) => layer.extend(chars.next()),
            (':', _) => layers.push(String::new()),
            (c, Some(layer)) => layer.push(c),
            _ => {}
        }
    }
    layers
}

fn names_id(param: &Param) -> bool {
    matches!(param, Param::Value(key, _) if key == "uid" || key == "gid")
}

/// Where the host has its cgroup tree.
const CGROUP: &str = "/sys/fs/cgroup";

/// True where the container may have a cgroup file system of its own.
fn owns_cgroup(init: &Init<'_>) -> bool {
    init.plan.may_mknod || init.plan.makes(Namespace::Cgroup)
}

/// True where the host's cgroup tree came with its /sys to where the config wants it. It then has the mount's own
/// attributes too. To copy and attach it a second time would cost a start 2 %.
fn is_there(rootfs: &Rootfs, init: &Init<'_>, mount: &MountPlan) -> Result<bool> {
    let plain = mount.options.propagation.is_empty() && !owns_cgroup(init);
    if !plain || !rootfs.has_host_sys() || mount.destination.as_os_str() != CGROUP {
        return Ok(false);
    }
    let at = rootfs.resolve_in_kernel_fs(&mount.destination).map_err(Error::from);
    match at.and_then(|at| set_attrs(&at, mount, true)) {
        Ok(()) => Ok(true),
        // It is no mount there: this host has none.
        Err(e) if e.is(libc::EINVAL) || e.is(libc::ENOENT) => Ok(false),
        Err(e) => Err(e),
    }
}

/// The cgroup tree as the host shows it, or of the container's own cgroup namespace where there is only
/// cgroup2.
fn cgroup(init: &Init<'_>, mount: &MountPlan) -> Result<OwnedFd> {
    const CGROUP2_MAGIC: u64 = 0x6367_7270;
    if owns_cgroup(init)
        && fs::statfs(CGROUP).is_ok_and(|s| s.f_type as u64 == CGROUP2_MAGIC)
        && let Ok(tree) = mount::new_fs("cgroup2", "cgroup", &[], mount.options.attr.set)
    {
        return Ok(tree);
    }
    let tree = mount::clone_path(Path::new(CGROUP), Recursive::Yes, Follow::Not)
        .context(|| format!("bind {CGROUP}"))?;
    set_attrs(&tree, mount, true)?;
    Ok(tree)
}

/// Fills a new tmpfs with what the image has at its destination.
fn copy_up(rootfs: &Rootfs<'_>, mount: &MountPlan, tmpfs: &OwnedFd) -> Result<()> {
    let dir = match rootfs.open(&mount.destination, OFlags::RDONLY | OFlags::DIRECTORY) {
        Ok(dir) => dir,
        Err(Errno::NOENT) => return Ok(()),
        Err(e) => return Err(e.into()),
    };
    copy_tree(&dir, tmpfs).map_err(|e| {
        let full = e.is(libc::ENOSPC);
        let e = e.context("copy the image's directory");
        if full { e.hint("the tmpfs is too small for it: set size= and nr_inodes=") } else { e }
    })?;
    if !mount.options.data.iter().any(names_id) {
        fd::chown_like(tmpfs, &fs::fstat(&dir)?);
    }
    Ok(())
}

/// Hides `paths`: files behind the null device, directories behind an empty read-only one.
pub(super) fn mask(rootfs: &Rootfs<'_>, paths: &[PathBuf]) -> Result<()> {
    if paths.is_empty() {
        return Ok(());
    }
    let proc = rootfs.kernel_fs("/proc");
    let mut masks = Masks { null: host_null()?, empty: None };
    enter(proc)?;
    for path in paths {
        let context = || format!("mask path {:?}", path.display().to_string());
        if let (Some(proc), Some(name)) = (proc, entry_of_proc(path))
            && masks.in_proc(proc, name).context(context)?
        {
            continue;
        }
        match rootfs.resolve_in_kernel_fs(path) {
            Ok(target) => masks.at(target).context(context)?,
            Err(Errno::NOENT) => {}
            Err(e) => return Err(e).context(context),
        }
    }
    Ok(())
}

/// MountKind paths are hidden behind.
struct Masks<'a> {
    null: OwnedFd,
    /// The empty directory that serves all, once there is one.
    empty: Option<Empty<'a>>,
}

enum Empty<'a> {
    /// A mount of its own.
    Mount(OwnedFd),
    /// MountKind is mounted on an entry of the container's own procfs.
    Entry(&'a OwnedFd, &'a OsStr),
}

impl<'a> Masks<'a> {
    /// Hides an entry of the container's own procfs, the working directory, where no link leads astray, by one
    /// mount(2). False where that cannot be.
    ///
    /// Of the names that configs have, it is known which are directories. The others are looked at: to be wrong
    /// costs the kernel thirty times as much as to be right.
    fn in_proc(&mut self, proc: &'a OwnedFd, name: &'a OsStr) -> Result<bool> {
        let directory = match name.as_bytes() {
            b"acpi" | b"asound" | b"scsi" => true,
            b"kcore" | b"keys" | b"latency_stats" | b"sched_debug" | b"timer_list" | b"timer_stats" => false,
            _ => match fs::statat(proc, name, AtFlags::empty()) {
                Ok(stat) => FileType::from_raw_mode(stat.st_mode) == FileType::Directory,
                Err(Errno::NOENT) => return Ok(true),
                Err(_) => return Ok(false),
            },
        };
        let made = match &self.empty {
            _ if !directory => mount::bind(Path::new(NULL), name, Recursive::No).map_err(Error::from),
            Some(_) => return Ok(fs::statat(proc, name, AtFlags::empty()).err() == Some(Errno::NOENT)),
            None => match mount::mount_new("tmpfs", "tmpfs", &empty_params(), mount::ATTR_RDONLY, name) {
                Some(made) => made,
                None => return Ok(false),
            },
        };
        match made {
            Ok(()) if directory => self.empty = Some(Empty::Entry(proc, name)),
            Ok(()) => {}
            Err(e) => return Ok(e.is(libc::ENOENT)),
        }
        Ok(true)
    }

    fn at(&mut self, target: OwnedFd) -> Result<()> {
        let directory = FileType::from_raw_mode(fs::fstat(&target)?.st_mode) == FileType::Directory;
        let tree = match &self.empty {
            _ if !directory => mount::clone_fd(&self.null, Recursive::No)?,
            Some(Empty::Mount(tree)) => mount::clone_fd(tree, Recursive::No)?,
            Some(Empty::Entry(proc, name)) => mount::clone_entry(proc, name, Recursive::No)?,
            None => mount::new_fs("tmpfs", "tmpfs", &empty_params(), mount::ATTR_RDONLY)?,
        };
        mount::attach(&tree, &target)?;
        fd::leave_open(target);
        if directory && self.empty.is_none() {
            self.empty = Some(Empty::Mount(tree));
        } else {
            fd::leave_open(tree);
        }
        Ok(())
    }
}

/// The parameters of an empty file system that stays so.
fn empty_params() -> [Param; 2] {
    [Param::Value("mode".into(), "755".into()), Param::Value("nr_blocks".into(), "1".into())]
}

/// Makes the container's own procfs the working directory, for mount(2) on its entries by name.
fn enter(proc: Option<&OwnedFd>) -> Result<()> {
    Ok(proc.map_or(Ok(()), rustix::process::fchdir)?)
}

/// NAME where `path` is /proc/NAME.
fn entry_of_proc(path: &Path) -> Option<&OsStr> {
    let name = path.as_os_str().as_bytes().strip_prefix(b"/proc/")?;
    let plain = !name.is_empty() && !name.contains(&b'/') && !name.starts_with(b".");
    plain.then(|| OsStr::from_bytes(name))
}

const NULL: &str = "/dev/null";

/// The host's null device, proven to be it.
fn host_null() -> Result<OwnedFd> {
    let null = fs::open(NULL, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).context(|| "open /dev/null")?;
    let stat = fs::fstat(&null)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::CharacterDevice || stat.st_rdev != fs::makedev(1, 3)
    {
        bail!("/dev/null of this host is not the null device");
    }
    Ok(null)
}

/// Makes `paths` and everything mounted below them read-only.
pub(super) fn make_readonly(rootfs: &Rootfs<'_>, paths: &[PathBuf]) -> Result<()> {
    let proc = rootfs.kernel_fs("/proc");
    enter(proc)?;
    for path in paths {
        let context = || format!("make {:?} read-only", path.display().to_string());
        if let (Some(proc), Some(name)) = (proc, entry_of_proc(path)) {
            match mount::bind(Path::new(name), name, Recursive::Yes) {
                Ok(()) => mount::set_attr_at(proc, name, Recursive::Yes, Attr::READONLY).context(context)?,
                Err(Errno::NOENT) => {}
                Err(e) => return Err(e).context(context),
            }
            continue;
        }
        let target = match rootfs.resolve_in_kernel_fs(path) {
            Ok(target) => target,
            Err(Errno::NOENT) => continue,
            Err(e) => return Err(e).context(context),
        };
        let tree = mount::clone_fd(&target, Recursive::Yes).context(context)?;
        mount::set_attr(&tree, Recursive::Yes, Attr::READONLY).context(context)?;
        mount::attach(&tree, &target).context(context)?;
        fd::leave_open(tree);
        fd::leave_open(target);
    }
    Ok(())
}
