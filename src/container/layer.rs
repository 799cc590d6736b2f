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
use std::path::Path;

/// The parts of a directory that keeps a layer.
pub(super) const UPPER: &str = "upper";
/// What overlayfs needs beside the upper layer, on the same file system.
const WORK: &str = "work";

/// The longest pause, in milliseconds, before a directory is tried again that another overlay uses. The kernel frees the
/// directory of a container only some time after its last process has ended. Each pause is twice the one before, because
/// the kernel logs each failure.
const LONGEST_PAUSE: i64 = 1000;

/// Makes the directory of a layer that is kept, and what belongs into it. Called by the runtime, who is the caller.
pub(super) fn prepare(plan: &Plan) -> Result<()> {
    let Some(Layer::Kept(path)) = &plan.layer else { return Ok(()) };
    let context = || format!("--overlay {}", path.display());
    let made = match fs::mkdir(path, Mode::RWXU) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(e) => return Err(e).context(context),
    };
    let parts = make_parts(plan, path);
    if parts.is_err() && made {
        let _ = fs::rmdir(path);
    }
    parts.context(context)
}

fn make_parts(plan: &Plan, path: &Path) -> Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = fs::open(path, flags, Mode::empty())?;
    if let Some(name) = name_of_overlay_stranger(&dir)? {
        return Err(Error::new(format!("it is on {name}, which cannot hold the upper layer of an overlay"))
            .hint("name a directory of a local file system, such as one in /tmp, or take --writable"));
    }
    let image = fs::open(&plan.rootfs, flags | OFlags::PATH, Mode::empty())?;
    if fd::path_of(&dir)?.starts_with(fd::path_of(&image)?) {
        bail!("it is in the image, which is not to be written to");
    }
    // The root of an overlay has the mode of its upper layer.
    let mode = Mode::from_raw_mode(fs::stat(&plan.rootfs)?.st_mode & 0o7777 | 0o700);
    for (name, mode) in [(UPPER, mode), (WORK, Mode::RWXU)] {
        match fs::mkdirat(&dir, name, Mode::RWXU) {
            Ok(()) => {
                fs::chmodat(&dir, name, mode, AtFlags::empty())?;
                give_to_container(plan, &dir, name)?;
            }
            Err(Errno::EXIST) => {}
            Err(e) => return Err(e).context(|| name),
        }
    }
    Ok(())
}

/// Has the container's root own a part, where that is another id than the caller's.
fn give_to_container(plan: &Plan, dir: &OwnedFd, name: &str) -> Result<()> {
    let Some(maps) = plan.maps.as_ref().filter(|_| !plan.own_maps) else { return Ok(()) };
    let outside = |maps: &[IdMap], other: u32| {
        let of = |id: u32| {
            maps.iter().find_map(|m| Some(m.host + id.checked_sub(m.container).filter(|n| *n < m.size)?))
        };
        of(0).or_else(|| of(other))
    };
    let uid = outside(&maps.uid, plan.process.uid).map(Uid::from_raw);
    let gid = outside(&maps.gid, plan.process.gid).map(Gid::from_raw);
    fs::chownat(dir, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW).context(|| name)
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
    let open = |path: &Path, name: &str| -> Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let path = path.join(name);
        fs::open(&path, flags, Mode::empty()).context(|| format!("--overlay: {}", path.display()))
    };
    Ok(match &plan.layer {
        None => None,
        Some(Layer::Memory) => Some(Opened(None)),
        Some(Layer::Kept(dir)) => {
            Some(Opened(Some(Parts { upper: open(dir, UPPER)?, work: open(dir, WORK)? })))
        }
    })
}

impl Opened {
    /// Puts the layer over the image that `rootfs` has mounted. Whatever is made in the root from here on is made in the
    /// layer.
    pub(super) fn put_over(self, plan: &Plan, rootfs: &mut Rootfs<'_>) -> Result<()> {
        refuse_mounts_in_image(rootfs)?;
        // A mount in the image's place must not appear on the host, where the image's own mount is shared.
        mount::set_attr(rootfs.as_fd(), Recursive::No, Attr::propagating(PropagationType::Private))?;
        let image = rootfs.as_fd().try_clone_to_owned().context(|| "duplicate a descriptor")?;
        let (parts, at) = match self.0 {
            Some(parts) => (parts, None),
            None => {
                let (parts, tmpfs) = parts_in_memory(&image)?;
                (parts, Some(tmpfs))
            }
        };
        let attr = if plan.may_mknod { 0 } else { mount::ATTR_NODEV };
        let overlay = new_overlay(plan, &image, &parts, attr)?;
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
    let stat: Stat = fs::fstat(image)?;
    let mode = |bits: u32| Param::Value("mode".into(), format!("{bits:o}"));
    let tmpfs = mount::new_fs("tmpfs", "tmpfs", &[mode(0o700)], 0)
        .context(|| "make a tmpfs for the root's changes")?;
    mount::attach(&tmpfs, image)?;
    let part = |name: &str, bits: u32| -> Result<OwnedFd> {
        fs::mkdirat(&tmpfs, name, Mode::RWXU)?;
        fs::chmodat(&tmpfs, name, Mode::from_raw_mode(bits), AtFlags::empty())?;
        Ok(fs::openat(&tmpfs, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
    };
    let (upper, work) = (part(UPPER, stat.st_mode & 0o7777 | 0o700)?, part(WORK, 0o700)?);
    fd::chown_like(&upper, &stat);
    Ok((Parts { upper, work }, tmpfs))
}

fn new_overlay(plan: &Plan, image: &OwnedFd, parts: &Parts, attr: u64) -> Result<OwnedFd> {
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
    let mut pause = 4;
    loop {
        match mount::new_fs("overlay", source, &params, attr) {
            Err(e) if e.is(libc::EBUSY) && pause < LONGEST_PAUSE => {
                let time = rustix::time::Timespec { tv_sec: 0, tv_nsec: pause * 1_000_000 };
                let _ = rustix::thread::nanosleep(&time);
                pause *= 2;
            }
            made => return made.map_err(|e| refused(plan, image, e)),
        }
    }
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
