//! /dev: device nodes, the usual links, and the terminal.

use super::plan::{DevicePlan, Plan};
use rt_sys::error::{Context, Error, Result};
use rt_sys::mount::{self, Recursive};
use rt_sys::rootfs::{MountPoint, Rootfs, Symlink};
use rt_sys::tty::{self, Pty};
use rt_sys::{bail, err, fd};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{self, FileType, Mode, OFlags};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Where programs look for what opens a terminal.
const PTMX: &str = "/dev/ptmx";

/// The links that every /dev has (config-linux.md "Default Devices", runtime-linux.md "Dev symbolic links").
const LINKS: [(&str, &str); 5] = [
    ("/proc/self/fd", "/dev/fd"),
    ("/proc/self/fd/0", "/dev/stdin"),
    ("/proc/self/fd/1", "/dev/stdout"),
    ("/proc/self/fd/2", "/dev/stderr"),
    ("pts/ptmx", PTMX),
];

/// Makes the devices of the plan, and the links of /dev where /dev is the container's own.
///
/// mknod(2) of a device takes CAP_MKNOD in the initial user namespace. Without it the host's node is bound, which keeps
/// the rights that the caller has on it.
pub(super) fn make(rootfs: &mut Rootfs, plan: &Plan) -> Result<()> {
    // A node with the number of the host's ptmx opens terminals of the host's devpts. The link to pts/ptmx, which is
    // made below, leads to the container's own.
    let is_link = |device: &&DevicePlan| plan.own_dev && device.path.as_os_str() == PTMX;
    let mut dead_here = Vec::new();
    for device in plan.devices.iter().filter(|device| !is_link(device)) {
        if !make_one(rootfs, device, plan.may_mknod).context(|| describe(device))? {
            dead_here.push(device);
        }
    }
    if !dead_here.is_empty() {
        bind_nodes(rootfs, &dead_here)?;
    }
    if plan.own_dev {
        for (target, path) in LINKS {
            rootfs.symlink(target, Path::new(path)).context(|| format!("link {path}"))?;
        }
    }
    Ok(())
}

fn describe(device: &DevicePlan) -> String {
    format!("device {}", device.path.display())
}

/// False where a node would be dead at its place, on a mount with `nodev`. Nothing has been made then.
fn make_one(rootfs: &mut Rootfs, device: &DevicePlan, may_mknod: bool) -> Result<bool> {
    let kind = FileType::from_raw_mode(device.mode);
    // A fifo is no device and needs no privilege.
    if kind == FileType::Fifo || may_mknod {
        let (Some(dir), Some(name)) = (device.path.parent(), device.path.file_name()) else {
            bail!("not a file name")
        };
        let dir = rootfs.resolve_or_make(dir, MountPoint::Directory, Symlink::Follow)?;
        if kind != FileType::Fifo && fd::is_nodev(&dir)? {
            return Ok(false);
        }
        return make_node(&dir, name, device, kind).map(|()| true);
    }
    let source = if device.default { device.path.clone() } else { host_node(device, kind)? };
    rootfs
        .place(&device.path, MountPoint::File, Symlink::Keep)?
        .bind(&source)
        .context(|| format!("bind {}", source.display()))?;
    Ok(true)
}

/// Makes the nodes in a tmpfs of their own, and binds each to its place.
fn bind_nodes(rootfs: &mut Rootfs, devices: &[&DevicePlan]) -> Result<()> {
    let attr = mount::ATTR_NOSUID | mount::ATTR_NOEXEC;
    let tmpfs = mount::new_fs("tmpfs", "tmpfs", &[], attr).context(|| "make a tmpfs for the devices")?;
    // Their paths may have the same last part.
    let names: Vec<String> = (0..devices.len()).map(|n| n.to_string()).collect();
    for (device, name) in devices.iter().zip(&names) {
        let kind = FileType::from_raw_mode(device.mode);
        make_node(&tmpfs, OsStr::new(name), device, kind).context(|| describe(device))?;
    }
    let trees = rootfs.clone_from_tmpfs(&tmpfs, &names).context(|| "copy a tmpfs with devices")?;
    for (device, tree) in devices.iter().zip(trees) {
        rootfs
            .place(&device.path, MountPoint::File, Symlink::Keep)
            .and_then(|place| place.attach(&tree))
            .context(|| describe(device))?;
    }
    Ok(())
}

fn make_node(dir: &OwnedFd, name: &OsStr, device: &DevicePlan, kind: FileType) -> Result<()> {
    let number = fs::makedev(device.major, device.minor);
    let mode = Mode::from_raw_mode(device.mode & 0o7777);
    match fs::mknodat(dir, name, kind, mode, number) {
        Ok(()) => {}
        // The image, or an earlier entry of the config, has a node there. The right one will do; a wrong one must not pass
        // for it. A link at this place is not followed.
        Err(rustix::io::Errno::EXIST) => {
            let found = fs::statat(dir, name, fs::AtFlags::SYMLINK_NOFOLLOW)?;
            if FileType::from_raw_mode(found.st_mode) != kind || found.st_rdev != number {
                bail!("something else is there");
            }
            return Ok(());
        }
        Err(e) => return Err(e.into()),
    }
    let (uid, gid) = (fs::Uid::from_raw(device.uid), fs::Gid::from_raw(device.gid));
    // By chown(2) rather than by making it as that user: mknod(2) gives the new node this process's ids.
    fs::chownat(dir, name, Some(uid), Some(gid), fs::AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(())
}

/// The host's node of the same kind and number: at the same path, or where the kernel's device model says that udev
/// makes it (DEVNAME in sysfs).
fn host_node(device: &DevicePlan, kind: FileType) -> Result<PathBuf> {
    let DevicePlan { major, minor, .. } = *device;
    let number = fs::makedev(major, minor);
    let fits = |path: &Path| {
        fs::stat(path).is_ok_and(|s| FileType::from_raw_mode(s.st_mode) == kind && s.st_rdev == number)
    };
    if fits(&device.path) {
        return Ok(device.path.clone());
    }
    let class = if kind == FileType::BlockDevice { "block" } else { "char" };
    let event =
        fd::read_file(Path::new(&format!("/sys/dev/{class}/{major}:{minor}/uevent"))).unwrap_or_default();
    let named = String::from_utf8_lossy(&event)
        .lines()
        .find_map(|line| line.strip_prefix("DEVNAME="))
        .map(|name| Path::new("/dev").join(name));
    match named {
        Some(path) if fits(&path) => Ok(path),
        _ => Err(err!("this host has no {class} device {major}:{minor}, and without root none can be made")),
    }
}

/// Opens a terminal of the container's own devpts and puts it at /dev/console.
///
/// `proc` is the host's procfs.
pub(super) fn make_console(
    rootfs: &mut Rootfs,
    proc: BorrowedFd<'_>,
    size: Option<tty::Size>,
) -> Result<Pty> {
    let pts = open_devpts(rootfs)?;
    let beside = || tty::open_ptmx(rootfs.resolve(Path::new(PTMX))?, proc);
    let pty = tty::open_pty(&pts, beside).map_err(closed_ptmx)?;
    // Before the program runs, which may read the size only once.
    tty::set_size(&pty.slave, size)?;
    // The slave was opened by an ioctl, without a path. What is to be mounted needs one; the device number proves that
    // nobody has put another node there.
    let node = fs::openat(
        &pts,
        pty.number.to_string().as_str(),
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    if fd::stat(&node)?.st_rdev != fd::stat(&pty.slave)?.st_rdev {
        bail!("/dev/pts/{} is not the terminal that was opened", pty.number);
    }
    // A link of the image's at /dev/console is not followed: the terminal would be mounted on another file, and what
    // that file guards would be gone (CVE-2025-52565).
    let target = rootfs
        .resolve_or_make(Path::new("/dev/console"), MountPoint::File, Symlink::Keep)
        .context(|| "/dev/console")?;
    let tree = mount::clone_fd(&node, Recursive::No)?;
    mount::attach(tree, target).context(|| "bind the terminal to /dev/console")?;
    Ok(pty)
}

/// /dev/pts of the root, proven to be a devpts: a ptmx elsewhere could be the host's, or an ordinary file.
fn open_devpts(rootfs: &Rootfs) -> Result<OwnedFd> {
    let pts =
        rootfs.open(Path::new("/dev/pts"), OFlags::PATH | OFlags::DIRECTORY).context(|| "open /dev/pts")?;
    require_devpts(pts)
}

/// Opens a terminal of the devpts at /dev/pts of this process's root, which may be hostile. `proc` is the host's procfs.
pub(super) fn open_terminal(proc: BorrowedFd<'_>) -> Result<Pty> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let pts = fs::open("/dev/pts", flags | OFlags::DIRECTORY, Mode::empty()).context(|| "open /dev/pts")?;
    let beside = || tty::open_ptmx(fs::open(PTMX, flags, Mode::empty())?, proc);
    tty::open_pty(require_devpts(pts)?, beside).map_err(closed_ptmx)
}

/// Says what helps where no ptmx may be opened.
fn closed_ptmx(e: Error) -> Error {
    if e.is(libc::EACCES) { e.hint("mount the devpts at /dev/pts with ptmxmode=0666") } else { e }
}

/// Fails unless `pts` is on a devpts.
fn require_devpts(pts: OwnedFd) -> Result<OwnedFd> {
    const DEVPTS_MAGIC: u64 = 0x1cd1;
    if fd::file_system(&pts)? != DEVPTS_MAGIC {
        bail!("a terminal needs a devpts at /dev/pts");
    }
    Ok(pts)
}
