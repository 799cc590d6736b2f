//! What is hidden from a container that shows the host's /proc and /dev, and whose program is the host's root.
//!
//! A user namespace does not help: where uid 0 inside is uid 0 of the host, the kernel lets it write the host's settings
//! and open the host's disks, as the owner of the files.

use super::Plan;
use rt_spec::rootless::UserMap;
use rt_spec::{Spec, annotations};
use rt_sys::caller::{Caller, Privilege};
use rt_sys::error::Result;
use rustix::fs::{self, FileType, Mode, OFlags};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Settings of the whole host.
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];
/// What shows the memory and the keys of the whole host.
const MASKED: [&str; 6] = ["/proc/kcore", "/proc/keys", "/dev/mem", "/dev/kmem", "/dev/port", "/dev/kmsg"];
/// How deep /dev is looked through for disks.
const DEPTH: usize = 3;

/// Hides it, where root itself runs a bundle that shows the host, as those of the profile hpc do. What a client has
/// written into a config of its own stays as it is.
pub(super) fn protect_host(
    plan: &mut Plan,
    spec: &Spec,
    caller: &Caller,
    asked: Option<UserMap>,
) -> Result<()> {
    if caller.privilege != Privilege::Root {
        return Ok(());
    }
    let map = match asked {
        Some(map) => Some(map),
        None => annotations::user_map(spec)?,
    };
    if !matches!(map, Some(UserMap::Caller | UserMap::Root)) {
        return Ok(());
    }
    let shows = |path: &str| {
        spec.mounts().iter().flatten().any(|mount| {
            mount.destination() == Path::new(path)
                && mount.source().as_deref() == Some(Path::new(path))
                && mount.options().iter().flatten().any(|word| matches!(word.as_str(), "bind" | "rbind"))
        })
    };
    let (proc, dev) = (shows("/proc"), shows("/dev"));
    let below = |path: &&&str| if path.starts_with("/proc") { proc } else { dev };
    let there = |path: &&&str| Path::new(path).exists();
    plan.readonly.extend(READ_ONLY.iter().filter(below).filter(there).map(PathBuf::from));
    plan.masked.extend(MASKED.iter().filter(below).filter(there).map(PathBuf::from));
    if dev {
        let asked = |path: &Path| {
            let linux = spec.linux().as_ref();
            linux.and_then(|l| l.devices().as_ref()).is_some_and(|all| all.iter().any(|d| d.path() == path))
                || spec.mounts().iter().flatten().any(|mount| mount.destination() == path)
        };
        let mut disks = Vec::new();
        block_devices(Path::new("/dev"), DEPTH, &mut disks);
        plan.masked.extend(disks.into_iter().filter(|path| !asked(path)));
    }
    Ok(())
}

/// The block devices below a directory of /dev. What vanishes meanwhile needs no mask.
fn block_devices(dir: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(entries) = fs::open(dir, flags, Mode::empty()).and_then(fs::Dir::new) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_bytes();
        let path = dir.join(OsStr::from_bytes(name));
        match entry.file_type() {
            FileType::BlockDevice => found.push(path),
            FileType::Directory if depth > 1 && name != b"." && name != b".." && name != b"shm" => {
                block_devices(&path, depth - 1, found);
            }
            _ => {}
        }
    }
}
