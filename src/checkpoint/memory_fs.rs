//! What a program has written to file systems in memory (tmpfs). criu keeps processes and no mounts, so their content is copied
//! into the image while the tree is stopped, and back before criu makes the processes again.

use super::files::is_one;
use super::image::Image;
use super::reach;
use rt_spec::{Spec, host_files, mounts};
use rt_sys::error::{Context, Error, Result};
use rt_sys::mount::{self, Mounted, Propagation, PropagationType};
use rt_sys::tree::{self, Manner};
use rt_sys::{bail, disk, fd, look};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// TMPFS_MAGIC (linux/magic.h).
pub(super) const TMPFS: u64 = 0x0102_1994;

/// How a file of the image is made.
const NEW: OFlags = OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::CLOEXEC);

/// Around what is mounted inside, whose content is none of the file system in memory.
const MANNER: Manner = Manner { around_mounts: true, whole: true };

/// Where the config mounts file systems in memory that can be written to, and nothing over them: a directory of the host's there is no
/// content of the container's. /dev is made anew with its devices.
pub(super) fn of_config(spec: &Spec) -> Vec<PathBuf> {
    let all = spec.mounts().as_deref().unwrap_or_default();
    let of_memory = all.iter().enumerate().filter(|(number, mount)| {
        let read_only = mount.options().iter().flatten().any(|option| option == "ro");
        let place = mount.destination();
        let is_covered = || all[number + 1..].iter().any(|later| place.starts_with(later.destination()));
        mount.typ().as_deref() == Some("tmpfs") && !read_only && !mounts::is_bind(mount) && !is_covered()
    });
    let mut places: Vec<PathBuf> = of_memory.map(|(_, mount)| mount.destination().clone()).collect();
    places.retain(|place| place != Path::new("/dev"));
    places
}

/// Those to which no path of the host leads. Where the root is shared, all that is mounted below it can be on the host, too.
pub(super) fn own(spec: &Spec) -> Vec<PathBuf> {
    let propagation = spec.linux().as_ref().and_then(|linux| linux.rootfs_propagation().as_deref());
    if let Some(Propagation { kind: PropagationType::Shared, .. }) = propagation.and_then(mounts::propagation)
    {
        return Vec::new();
    }
    of_config(spec)
}

/// Where `places` of the config are in the container of the process with the directory `process` in procfs: the image can have links there.
/// None that a link leads to is one of the `hosts`.
pub(super) fn find(mut places: Vec<PathBuf>, process: &Path, hosts: &[Mounted]) -> Result<Vec<PathBuf>> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root =
        fs::open(process.join("root"), flags, Mode::empty()).context(|| "open the container's root")?;
    let open =
        |place: &Path, how| fs::openat2(&root, place, flags, Mode::empty(), how | ResolveFlags::IN_ROOT);
    for place in &mut places {
        // What else is wrong with it is said by who opens it.
        if !matches!(open(place, ResolveFlags::NO_SYMLINKS), Err(Errno::LOOP)) {
            continue;
        }
        let shown = || format!("open {}", place.display());
        let dir = open(place, ResolveFlags::empty()).context(shown)?;
        let (id, mounts) = (disk::mount_id(dir.as_fd()), mount::table_in(process)?);
        let is_own = |mount: &&Mounted| {
            mount.fstype == b"tmpfs" && !hosts.iter().any(|hosts| hosts.device == mount.device)
        };
        let mount = mounts.iter().find(|mount| Some(mount.id) == id).filter(is_own);
        let is_its_root = |mount: &Mounted| -> Result<bool> {
            Ok(is_one(&fd::stat(&dir)?, &fd::stat(&open(&mount.point, ResolveFlags::NO_SYMLINKS)?)?))
        };
        match mount {
            Some(mount) if is_its_root(mount).context(shown)? => *place = mount.point.clone(),
            _ => bail!("{}: it leads to no file system in memory of the container's own", place.display()),
        }
    }
    Ok(places)
}

/// Copies the content of all `places` of this process's mount namespace into the image. None of them is one of the `hosts`.
pub(super) fn save(places: &[PathBuf], hosts: &[Mounted], image: &Image) -> Result<()> {
    for (number, place) in places.iter().enumerate() {
        let shown = || format!("save {}", place.display());
        let name = format!("memory-{number}");
        fs::mkdirat(&image.dir, name.as_str(), Mode::RWXU).context(shown)?;
        // What lies in an image itself is its owner's.
        fs::mkdirat(&image.dir, root_of(number), Mode::RWXU).context(shown)?;
        let target = open_below(&image.dir, Path::new(&root_of(number))).context(shown)?;
        // A list that it inherits from the directory of the image is not the program's.
        tree::remove_access_lists(&target).context(shown)?;
        let source = open(place, hosts)?;
        copy(&source, &target).context(shown).map_err(not_everywhere)?;
        let list = fs::openat(&image.dir, list_of(number), NEW, Mode::RUSR | Mode::WUSR).context(shown)?;
        fd::write_all(&list, list_files(&target).context(shown)?.as_bytes()).context(shown)?;
    }
    Ok(())
}

/// What file systems say that have no second names or extended attributes, or not so many or so long; ext4 says that there is no space.
const NOT_EVERYWHERE: [i32; 8] = [
    libc::EOPNOTSUPP,
    libc::EPERM,
    libc::ENOSYS,
    libc::EXDEV,
    libc::EMLINK,
    libc::E2BIG,
    libc::ERANGE,
    libc::ENOSPC,
];

/// Says of an error that it can be the file system's of the image.
pub(super) fn not_everywhere(e: Error) -> Error {
    match e.errno() {
        Some(errno) if NOT_EVERYWHERE.contains(&errno) => {
            e.hint("the image's file system cannot hold that: name a directory on another one")
        }
        _ => e,
    }
}

/// Says of an error that it can be the kernel's, of a file system in memory.
pub(super) fn not_in_memory(e: Error) -> Error {
    match e.is(libc::EOPNOTSUPP) {
        true => e.hint("this node's kernel cannot hold that in memory: user attributes need Linux 6.6"),
        false => e,
    }
}

/// Where an image has the content of the file system `number`, whose root's owner and mode the directory has.
fn root_of(number: usize) -> String {
    format!("memory-{number}/root")
}

/// Where an image says what files that content has. It is compared as criu's own lists are ([`super::contents`]).
fn list_of(number: usize) -> String {
    format!("memory-{number}.img")
}

/// What files `dir` has: how many, with how many bytes, and a hash of their names, kinds and sizes.
fn list_files(dir: &OwnedFd) -> Result<String> {
    let (mut count, mut bytes, mut hash) = (0_u64, 0_u64, 0);
    let mut dirs = vec![PathBuf::new()];
    while let Some(path) = dirs.pop() {
        let from = open_below(dir, &Path::new(".").join(&path)).context(|| path.display())?;
        // File systems list them in an order of their own.
        let mut names = look::names(&from).context(|| path.display())?;
        names.sort();
        for name in names {
            let below = path.join(OsStr::from_bytes(&name));
            let stat = fs::statat(&from, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW);
            let stat = stat.context(|| below.display())?;
            let kind = FileType::from_raw_mode(stat.st_mode);
            let size = if kind == FileType::RegularFile { stat.st_size.unsigned_abs() } else { 0 };
            (count, bytes) = (count + 1, bytes.saturating_add(size));
            let line = format!("{hash:x} {:o} {size} ", kind.as_raw_mode()).into_bytes();
            hash = host_files::hash(&[&line, below.as_os_str().as_bytes()].concat());
            if kind == FileType::Directory {
                dirs.push(below);
            }
        }
    }
    Ok(format!("{count} files, {bytes} bytes, hash {hash:016x}\n"))
}

/// Copies what is in `from`, and its owner, attributes and mode.
fn copy(from: &OwnedFd, to: &OwnedFd) -> Result<()> {
    tree::copy(from, to, MANNER)?;
    let stat = fd::stat(from)?;
    fd::chown_like(to, &stat);
    tree::copy_attributes(from, to)?;
    Ok(fs::fchmod(to, Mode::from_raw_mode(stat.st_mode & 0o7777))?)
}

/// Copies it back. `places` are those of the image: only what the config mounts in memory, too, is written to, and none of the `hosts`.
pub(super) fn restore(
    places: &[PathBuf],
    of_config: &[PathBuf],
    hosts: &[Mounted],
    image: &Image,
) -> Result<()> {
    for (number, place) in places.iter().enumerate() {
        let shown = || format!("restore {}", place.display());
        if !of_config.contains(place) {
            bail!(
                "{}: the config mounts no file system in memory there, as it did at the checkpoint",
                shown()
            );
        }
        let damaged = || format!("image {} is damaged: memory-{number}", image.path.display());
        let source = open_below(&image.dir, Path::new(&root_of(number))).context(damaged)?;
        if image.file(&list_of(number))? != Some(list_files(&source).context(damaged)?.into_bytes()) {
            bail!("{} has other files than at the checkpoint", damaged());
        }
        let target = open(place, hosts)?;
        // What the image of the container has there (tmpcopyup) the program may have changed or removed.
        match tree::remove_contents(&target, None) {
            // A mount stays, and is not entered.
            Err(e) if e.is(libc::EBUSY) => {}
            removed => removed.context(shown)?,
        }
        copy(&source, &target).context(shown).map_err(not_in_memory)?;
    }
    Ok(())
}

/// Opens a file system in memory of this container, which none of the `hosts` is: by a link of the image's, a mount of the config's can
/// lie over another place than it says.
fn open(place: &Path, hosts: &[Mounted]) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let how = ResolveFlags::NO_SYMLINKS;
    let dir = fs::openat2(fs::CWD, place, flags, Mode::empty(), how)
        .context(|| format!("open {}", place.display()))?;
    if fd::file_system(&dir)? != TMPFS {
        bail!("{}: no file system in memory", place.display());
    }
    let device = reach::decimal(&reach::device_number(fd::stat(&dir)?.st_dev));
    if hosts.iter().any(|mount| Some(&mount.device) == device.as_ref()) {
        bail!("{}: it leads to no file system in memory of the container's own", place.display());
    }
    Ok(dir)
}

fn open_below(dir: &OwnedFd, name: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(fs::openat2(dir, name, flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_another_mount_lies_over_is_none() {
        let places = |mounts: serde_json::Value| {
            let spec: Spec =
                serde_json::from_value(json!({ "ociVersion": "1.0.2", "mounts": mounts })).unwrap();
            of_config(&spec).iter().map(|place| place.display().to_string()).collect::<Vec<_>>()
        };
        let mount = |place: &str, kind: &str| json!({ "destination": place, "type": kind, "options": [] });
        let (memory, host) = (|place| mount(place, "tmpfs"), |place| mount(place, "bind"));
        assert_eq!(places(json!([memory("/tmp"), host("/tmp/below")])), ["/tmp"]);
        assert_eq!(places(json!([host("/tmp"), memory("/tmp")])), ["/tmp"]);
        assert_eq!(places(json!([memory("/tmp"), memory("/tmp/")])), ["/tmp/"]);
        assert_eq!(places(json!([memory("/tmp"), host("/tmp/")])), [""; 0]);
        assert_eq!(places(json!([memory("/data/cache"), memory("/tmp"), host("/data")])), ["/tmp"]);
        assert_eq!(places(json!([memory("/data/cache"), host("/data/cach")])), ["/data/cache"]);
    }
}
