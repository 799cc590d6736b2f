//! What is hidden from a container that shows the host's /proc and /dev, and whose program is the host's root.
//!
//! A user namespace does not help: where uid 0 inside is uid 0 of the host, the kernel lets it write the host's settings
//! and open the host's disks, as the owner of the files.

use super::{MountKind, Plan};
use rt_spec::rootless::UserMap;
use rt_spec::{Spec, annotations, hpc};
use rt_sys::caller::Caller;
use rt_sys::error::{Context, Result};
use rt_sys::{err, fd, look, mount};
use rustix::fd::OwnedFd;
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use serde_json::Value;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Of procfs, beside [`hpc::READ_ONLY`].
const READ_ONLY: [&str; 2] = ["/proc/driver", "/proc/pressure"];
/// Of procfs what has the kernel say more, beside [`hpc::MASKED`].
const MASKED: [&str; 1] = ["/proc/dynamic_debug"];
/// What shows the memory of the whole host, and its messages. Nobody can ask for them.
const MEMORY: [&str; 4] = ["/dev/mem", "/dev/kmem", "/dev/port", "/dev/kmsg"];
/// Where the profile hpc shows what the host's root has power over.
const HOSTS: [&str; 2] = ["/proc", "/dev"];
/// The beginnings of paths below /dev of what jobs compute with, which some sites give to a group only.
const FOR_JOBS: [&str; 9] =
    ["accel/", "dri/", "fuse", "gdrdrv", "habanalabs", "hl", "infiniband/uverbs", "kfd", "nvidia"];
/// File systems below /dev that have no devices of the host's but the program's own terminal.
const OTHERS: [&str; 4] = ["hugepages", "mqueue", "pts", "shm"];
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// How deep /dev is looked through; a directory that is deeper is hidden as a whole.
const DEPTH: usize = 4;

/// Hides it, where root itself runs a bundle that shows the host, as those of the profile hpc do. What a client has
/// written into a config of its own stays as it is. True where something is hidden, which the program must not unmount.
pub(super) fn protect_host(
    plan: &mut Plan,
    spec: &Spec,
    caller: &Caller,
    asked: Option<UserMap>,
    of_image: bool,
) -> Result<bool> {
    if !caller.has_hosts_root_uid()? {
        return Ok(false);
    }
    let map = match asked {
        Some(map) => Some(map),
        None => annotations::user_map(spec)?,
    };
    // An image's own config may leave the map out, or name another one: its mounts are those of the profile all the same.
    if !of_image && !matches!(map, Some(UserMap::Caller | UserMap::Root)) && !is_hpc(spec)? {
        return Ok(false);
    }
    let (proc, dev) = (cover_kernels_settings(plan)?, shows_dev(plan));
    if dev {
        cover(&mut plan.masked, Path::new("/dev"), &MEMORY)?;
        // The program's own terminal is there.
        let has_terminal = plan.process.terminal;
        let asked = |path: &Path| {
            let linux = spec.linux().as_ref();
            linux.and_then(|l| l.devices().as_ref()).is_some_and(|all| all.iter().any(|d| d.path() == path))
                || spec.mounts().iter().flatten().any(|mount| mount.destination() == path)
                || has_terminal && path == Path::new("/dev/console")
        };
        let mut hidden = Vec::new();
        let opened = fs::open("/dev", DIRECTORY, Mode::empty()).context(|| "list /dev")?;
        hosts_devices(&opened, "", DEPTH, &mut hidden)?;
        hidden.into_iter().filter(|path| !asked(path)).for_each(|path| add(&mut plan.masked, path));
        // Devices can be used where their file system is read-only. Other files than devices are not made there.
        for mount in plan.mounts.iter_mut().filter(|mount| mount.destination == Path::new("/dev")) {
            mount.options.attr.set |= mount::ATTR_RDONLY;
        }
    }
    Ok(proc || dev)
}

/// Makes the settings read-only that procfs and sysfs have of the whole host, wherever they are mounted, and of whichever kind they
/// are: a new procfs for a PID namespace has the host's too. True where there are such.
fn cover_kernels_settings(plan: &mut Plan) -> Result<bool> {
    let mut found = false;
    for mount in &mut plan.mounts {
        let (is_proc, is_sys) = match &mount.kind {
            MountKind::Bind(source) => (source == Path::new("/proc"), source == Path::new("/sys")),
            MountKind::New { fstype, .. } => (fstype == "proc", fstype == "sysfs"),
            MountKind::Cgroup => (false, false),
        };
        if is_sys {
            mount.options.attr.set |= mount::ATTR_RDONLY;
            mount.options.recursive_attr.set |= mount::ATTR_RDONLY;
        }
        if is_proc {
            let at = &mount.destination;
            cover(&mut plan.readonly, at, hpc::READ_ONLY.iter().chain(&READ_ONLY))?;
            cover(&mut plan.masked, at, hpc::MASKED.iter().chain(&MASKED))?;
        }
        found |= is_proc || is_sys;
    }
    Ok(found)
}

/// Adds to `covered` those of `paths`, of the host's /proc or /dev, that are there, as the container has them: in `at`.
fn cover<'a>(
    covered: &mut Vec<PathBuf>,
    at: &Path,
    paths: impl IntoIterator<Item = &'a &'a str>,
) -> Result<()> {
    for path in paths {
        if look::exists(path)? {
            // Without the root and the directory itself.
            let below: PathBuf = Path::new(path).iter().skip(2).collect();
            add(covered, at.join(below));
        }
    }
    Ok(())
}

fn add(paths: &mut Vec<PathBuf>, path: PathBuf) {
    if !paths.contains(&path) {
        paths.push(path);
    }
}

/// True where the host's /dev is shown at its place.
fn shows_dev(plan: &Plan) -> bool {
    let dev = Path::new("/dev");
    plan.mounts.iter().any(|mount| {
        mount.destination == dev && matches!(&mount.kind, MountKind::Bind(source) if source == dev)
    })
}

/// True where a mount is one of the profile hpc, as `rt pull` writes them, with its very options.
fn is_hpc(spec: &Spec) -> Result<bool> {
    let usual = hpc::mounts();
    for mount in spec.mounts().iter().flatten() {
        let mount = serde_json::to_value(mount).map_err(|e| err!("{e}"))?;
        if usual.contains(&mount)
            && mount["type"] == "bind"
            && HOSTS.map(Value::from).contains(&mount["destination"])
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// True for a device that every user may read and write, and for one that jobs compute with: root has no power over the host
/// by it. Disks, what commands them past their block devices, buses, terminals and clocks are for root alone, or for a group.
fn is_for_everybody(path: &str, mode: u32) -> bool {
    mode & 0o006 == 0o006 || FOR_JOBS.iter().any(|beginning| path.starts_with(beginning))
}

/// The devices of `dir`, which is `below` from /dev on, that are not for everybody. What vanishes meanwhile needs no mask, and
/// what the caller may not list is open to nobody in the container, who has no more rights. What is mounted there is not asked,
/// since a user may have mounted it: it is hidden.
fn hosts_devices(dir: &OwnedFd, below: &str, depth: usize, found: &mut Vec<PathBuf>) -> Result<()> {
    let doing = || format!("list /dev/{below}");
    for entry in fs::Dir::read_from(dir).context(doing)? {
        let entry = entry.context(doing)?;
        let name = entry.file_name();
        let shown = format!("{below}{}", name.to_string_lossy());
        let path = Path::new("/dev").join(below).join(OsStr::from_bytes(name.to_bytes()));
        match entry.file_type() {
            FileType::BlockDevice => found.push(path),
            FileType::CharacterDevice => match fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) if is_for_everybody(&shown, stat.st_mode) => {}
                Err(Errno::NOENT) => {}
                looked => {
                    looked.context(|| path.display().to_string())?;
                    found.push(path);
                }
            },
            FileType::Directory if name == c"." || name == c".." || OTHERS.contains(&&*shown) => {}
            FileType::Directory if depth == 1 => found.push(path),
            FileType::Directory => match fd::open_entry(dir, name, DIRECTORY) {
                Ok(opened) => hosts_devices(&opened, &format!("{shown}/"), depth - 1, found)?,
                Err(Errno::XDEV) => found.push(path),
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => {}
                Err(e) => return Err(e).context(|| path.display().to_string()),
            },
            _ => {}
        }
    }
    Ok(())
}
