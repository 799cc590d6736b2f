//! The layer that takes what the program writes to the root, in place of the image (`--writable`, `--overlay`): an
//! overlay over the image, whose upper layer is a tmpfs or a directory of the caller's.
//!
//! It is mounted before everything else, so mount points that the image lacks are made in it, as is whatever else is to
//! appear in the root.

use super::plan::{Layer, Plan};
use rt_sys::error::{Context, Error, Result};
use rt_sys::mount::{self, Attr, Param, PropagationType, Recursive};
use rt_sys::ns::{IdMap, Namespace};
use rt_sys::rootfs::{Rootfs, name_of_overlay_stranger};
use rt_sys::{bail, fd};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{self, AtFlags, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// The parts of a directory that keeps a layer.
pub(super) const UPPER: &str = "upper";
/// What overlayfs needs beside the upper layer, on the same file system.
const WORK: &str = "work";

/// The longest pause, in milliseconds, before a directory is tried again that another overlay uses. The kernel frees the
/// directory of a container only some time after its last process has ended. Each pause is twice the one before, because
/// the kernel logs each failure.
const LONGEST_PAUSE: i64 = 1000;

/// How long a directory is waited for, in milliseconds.
const PATIENCE: i64 = 1000;

/// The same for the layer of a step: the processes of one that was cancelled may take Slurm's KillWait to end, and more.
const PATIENCE_OF_A_STEP: i64 = 15_000;

/// After so many milliseconds the wait is said.
const SILENCE: i64 = 2000;

/// The parts of a layer that is kept, as device and inode: what was looked at before init has its namespaces is what init
/// opens in them.
pub(super) type Seen = [(u64, u64); 2];

/// Makes the directory of a layer that is kept, and what belongs into it. Called by the runtime, who is the caller.
pub(super) fn prepare(plan: &mut Plan) -> Result<()> {
    let Some(Layer::Kept(path)) = &plan.layer else { return Ok(()) };
    let context = || format!("--overlay {}", path.display());
    // A slash behind a link would have it followed.
    let path: PathBuf = path.components().collect();
    let made = match fs::mkdir(&path, Mode::RWXU) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(e) => return Err(e).context(context),
    };
    let parts = make_parts(plan, &path);
    if parts.is_err() && made {
        let _ = fs::rmdir(&path);
    }
    plan.layer_seen = Some(parts.context(context)?);
    Ok(())
}

fn make_parts(plan: &Plan, path: &Path) -> Result<Seen> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = fs::open(path, flags, Mode::empty()).map_err(no_link)?;
    if let Some(name) = name_of_overlay_stranger(&dir)? {
        return Err(Error::new(format!("it is on {name}, which cannot hold the upper layer of an overlay"))
            .hint("name a directory of a local file system, such as one in /tmp, or take --writable"));
    }
    let image = fs::open(&plan.rootfs, flags.difference(OFlags::NOFOLLOW) | OFlags::PATH, Mode::empty())?;
    if fd::path_of(&dir)?.starts_with(fd::path_of(&image)?) {
        bail!("it is in the image, which is not to be written to");
    }
    let callers = rustix::process::geteuid().as_raw();
    let stat = fd::stat(&dir)?;
    require_owner(&stat, &[callers])?;
    if stat.st_mode & 0o022 != 0 {
        return Err(others_write());
    }
    // Where others cannot enter the directory, it does not matter what they may do to what is in it.
    let closed = stat.st_mode & 0o011 == 0;
    // The root of an overlay has the mode of its upper layer.
    let mode = fd::stat(&image)?.st_mode & 0o7777 | 0o700;
    let mode = Mode::from_raw_mode(if closed { mode } else { mode & !0o022 });
    let (uid, gid) = containers_root(plan);
    let owners = [callers, uid.map_or(callers, Uid::as_raw)];
    let part = |name: &str, mode: Mode| -> Result<(u64, u64)> {
        let made = match fs::mkdirat(&dir, name, Mode::RWXU) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(e) => return Err(e.into()),
        };
        let path_only = if made { OFlags::empty() } else { OFlags::PATH };
        let part = fs::openat(&dir, name, flags | path_only, Mode::empty()).map_err(no_link)?;
        if made {
            fs::fchmod(&part, mode)?;
            if uid.is_some() || gid.is_some() {
                fs::fchown(&part, uid, gid)?;
            }
        }
        let stat = fd::stat(&part)?;
        require_owner(&stat, &owners)?;
        if !closed && stat.st_mode & 0o022 != 0 {
            return Err(others_write());
        }
        Ok(identity(&stat))
    };
    let part = |name: &str, mode: Mode| part(name, mode).context(|| name.to_owned());
    Ok([part(UPPER, mode)?, part(WORK, Mode::RWXU)?])
}

fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// O_NOFOLLOW answers ELOOP for a link, and ENOTDIR with O_DIRECTORY, which is true for whoever looks at it.
fn no_link(e: Errno) -> Error {
    match e {
        Errno::LOOP => Error::new("a link: name the directory itself".to_owned()),
        e => e.into(),
    }
}

/// What is in a layer becomes the container's root, so whoever owns it would choose the programs that the caller runs.
fn require_owner(stat: &Stat, owners: &[u32]) -> Result<()> {
    if !owners.contains(&stat.st_uid) {
        return Err(Error::new(format!("it belongs to uid {}", stat.st_uid))
            .hint("a layer belongs to whoever runs the container"));
    }
    Ok(())
}

#[cold]
fn others_write() -> Error {
    Error::new("others than its owner can write in it".to_owned()).hint("chmod go-w")
}

/// Who the container's root is outside, where that is another id than the caller's.
fn containers_root(plan: &Plan) -> (Option<Uid>, Option<Gid>) {
    let Some(maps) = plan.maps.as_ref().filter(|_| !plan.own_maps) else { return (None, None) };
    let outside = |maps: &[IdMap], other: u32| {
        let of = |id: u32| {
            maps.iter().find_map(|m| Some(m.host + id.checked_sub(m.container).filter(|n| *n < m.size)?))
        };
        of(0).or_else(|| of(other))
    };
    let uid = outside(&maps.uid, plan.process.uid).map(Uid::from_raw);
    let gid = outside(&maps.gid, plan.process.gid).map(Gid::from_raw);
    (uid, gid)
}

/// The directories of a layer that is kept, which only the caller may be able to reach.
#[derive(Debug)]
struct Parts {
    upper: OwnedFd,
    work: OwnedFd,
}

/// A layer that is ready to be put over the image.
#[derive(Debug)]
pub(super) struct Opened(Option<Parts>);

/// Opens what the plan's layer needs, in init's mount namespace, before init becomes the container's root. `None` where the
/// plan has no layer.
pub(super) fn open(plan: &Plan) -> Result<Option<Opened>> {
    Ok(match &plan.layer {
        None => None,
        Some(Layer::Memory) => Some(Opened(None)),
        Some(Layer::Kept(dir)) => Some(Opened(Some(reopen(plan, dir)?))),
    })
}

/// Opens the parts of a layer that is kept. Overlayfs takes only what is opened in its own mount namespace, so they are
/// opened again, and must be those that were looked at.
fn reopen(plan: &Plan, dir: &Path) -> Result<Parts> {
    let context = || format!("--overlay {}", dir.display());
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let path: PathBuf = dir.components().collect();
    let top = fs::open(&path, flags, Mode::empty()).context(context)?;
    let open = |name: &str| fs::openat(&top, name, flags, Mode::empty()).context(context);
    let parts = Parts { upper: open(UPPER)?, work: open(WORK)? };
    let found = [identity(&fd::stat(&parts.upper)?), identity(&fd::stat(&parts.work)?)];
    if plan.layer_seen != Some(found) {
        bail!("--overlay {}: somebody has put another directory in its place", dir.display());
    }
    Ok(parts)
}

impl Opened {
    /// Puts the layer over the image that `rootfs` has mounted. Whatever is made in the root from here on is made in the
    /// layer.
    pub(super) fn put_over(self, plan: &Plan, rootfs: &mut Rootfs<'_>) -> Result<()> {
        refuse_mounts_in_image(rootfs)?;
        // A mount in the image's place must not appear on the host, where the image's own mount is shared.
        mount::set_attr(rootfs.as_fd(), Recursive::No, Attr::propagating(PropagationType::Private))
            .context(|| format!("rootfs {}: keep its mount apart from the host's", plan.rootfs.display()))?;
        let image = rootfs.as_fd().try_clone_to_owned().context(|| "duplicate a descriptor")?;
        let (parts, at) = match self.0 {
            Some(parts) => (parts, None),
            None => {
                let (parts, tmpfs) = parts_in_memory(&image)?;
                (parts, Some(tmpfs))
            }
        };
        let overlay = new_overlay(plan, &image, &parts)?;
        mount::attach(&overlay, at.as_ref().unwrap_or(&image))
            .context(|| "mount an overlay over the image")?;
        rootfs.replace_image(overlay)
    }
}

/// An overlay shows the image's directories, not what is mounted on them.
fn refuse_mounts_in_image(rootfs: &Rootfs<'_>) -> Result<()> {
    let image = fd::path_of(rootfs.as_fd())?;
    let inside = |m: &mount::Mounted| m.point != image && m.point.starts_with(&image);
    if let Some(found) = mount::table()?.iter().find(|m| inside(m)) {
        bail!("{} is a mount of its own in the image, which an overlay cannot show", found.point.display());
    }
    Ok(())
}

/// A new tmpfs with the parts of a layer, mounted on `image`: overlayfs takes layers from mounted file systems only.
fn parts_in_memory(image: &OwnedFd) -> Result<(Parts, OwnedFd)> {
    let stat: Stat = fd::stat(image)?;
    let mode = |bits: u32| Param::Value("mode".into(), format!("{bits:o}"));
    let tmpfs = mount::new_fs("tmpfs", "tmpfs", &[mode(0o700)], 0)
        .context(|| "make a tmpfs for the root's changes")?;
    mount::attach(&tmpfs, image)?;
    let part = |name: &str, bits: u32| -> Result<OwnedFd> {
        fs::mkdirat(&tmpfs, name, Mode::RWXU)?;
        fs::chmodat(&tmpfs, name, Mode::from_raw_mode(bits), AtFlags::empty())?;
        Ok(fs::openat(&tmpfs, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
    };
    let part =
        |name: &str, bits: u32| part(name, bits).context(|| format!("make {name} in a tmpfs over the image"));
    let (upper, work) = (part(UPPER, stat.st_mode & 0o7777 | 0o700)?, part(WORK, 0o700)?);
    fd::chown_like(&upper, &stat);
    Ok((Parts { upper, work }, tmpfs))
}

fn new_overlay(plan: &Plan, image: &OwnedFd, parts: &Parts) -> Result<OwnedFd> {
    // Overlayfs takes layers as text. Through /proc/self/fd the text names the directories of the descriptors, whatever is
    // mounted on top of them by now.
    let layer = |key: &str, dir: &OwnedFd| {
        Param::Value(key.into(), format!("/proc/self/fd/{}", dir.as_fd().as_raw_fd()))
    };
    let mut params =
        vec![layer("lowerdir", image), layer("upperdir", &parts.upper), layer("workdir", &parts.work)];
    let kept = matches!(plan.layer, Some(Layer::Kept(_)));
    if kept {
        // With it, the kernel refuses an upper layer that another overlay uses (EBUSY); else two would spoil each other's
        // files.
        params.push(Param::Value("index".into(), "on".into()));
    }
    // In a user namespace overlayfs may not use attributes trusted.*. Whoever uses a directory that is kept
    // must find the attributes that others have set.
    if kept || !plan.may_mknod {
        params.push(Param::Flag("userxattr".into()));
    }
    // The layers' text says nothing to whoever looks at the mounts of a container for the image that it uses, as `rt prune`
    // does. The source of a mount can be any text of 255 bytes.
    let source = plan.bundle.to_str().filter(|bundle| bundle.len() < 256).unwrap_or("overlay");
    let patience = if plan.waits_for_layer { PATIENCE_OF_A_STEP } else { PATIENCE };
    let (mut pause, mut waited) = (4, 0);
    loop {
        match mount::new_fs("overlay", source, &params, mount::ATTR_NODEV) {
            Err(e) if e.is(libc::EBUSY) && waited < patience => {
                wait(pause);
                if waited < SILENCE && waited + pause >= SILENCE {
                    super::tell("waiting for the end of processes that still use the container's files");
                }
                waited += pause;
                pause = LONGEST_PAUSE.min(pause * 2);
            }
            made => return made.map_err(|e| refused(plan, image, e)),
        }
    }
}

/// Sleeps for so many milliseconds, or until a signal comes.
fn wait(milliseconds: i64) {
    let (tv_sec, tv_nsec) = (milliseconds / 1000, milliseconds % 1000 * 1_000_000);
    let _ = rustix::thread::nanosleep(&rustix::time::Timespec { tv_sec, tv_nsec });
}

/// The error of an overlay that the kernel has not made, with what can be done.
#[cold]
fn refused(plan: &Plan, image: &OwnedFd, e: Error) -> Error {
    let in_user_namespace = plan.makes(Namespace::User) || !plan.may_mknod;
    let foreign = name_of_overlay_stranger(image).ok().flatten();
    let errno = e.errno().unwrap_or(0);
    match (&plan.layer, errno) {
        (Some(Layer::Kept(dir)), libc::EBUSY) => Error::from_errno(errno)
            .context(format!("--overlay {}: another container uses it", dir.display()))
            .hint("each container that runs needs a directory of its own"),
        (Some(Layer::Kept(dir)), libc::ESTALE) => Error::from_errno(errno)
            .context(format!("--overlay {}: it was made over another image", dir.display()))
            .hint("what is in it belongs to that image: take a new directory"),
        (_, libc::ENODEV) => e.context("make an overlay over the image").hint(
            "this kernel has no overlay file system: ask the administrator for the kernel module overlay",
        ),
        (_, libc::EPERM) if in_user_namespace => e
            .context("make an overlay over the image")
            .hint("this kernel has no overlays in user namespaces: take a bundle whose root can be written (rt pull --writable)"),
        (_, libc::EINVAL) if foreign.is_some() => e
            .context(format!("make an overlay over the image, which is on {}", foreign.unwrap_or_default()))
            .hint("copy the bundle to a local file system"),
        _ => e.context(format!("make an overlay over the image {}", plan.rootfs.display())),
    }
}
