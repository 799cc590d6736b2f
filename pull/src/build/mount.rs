//! The namespaces of a build, and overlays in them.
//!
//! The build is in a user namespace of its own, in which the caller has the id that it has outside, and in a mount namespace. So it
//! may mount overlays, nobody else sees them, and they end with it, however it ends. It stays one thread until then.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};

use rt_sys::error::{Context, Result};
use rt_sys::ns::{self, IdMap, IdMaps, Namespace, Namespaces, Setgroups};
use rt_sys::{disk, err, fd, mount};

/// The kernel takes a page of options: more layers than these do not fit.
pub(super) const MOST_LAYERS: usize = 400;

/// Why a base, or an image that files are taken from, is refused.
pub(super) const NOTHING: &str = "nothing may be mounted in an image";

/// Moves this process into namespaces of its own.
pub(super) fn enter() -> Result<()> {
    let caller = disk::caller();
    let one = |id| vec![IdMap { container: id, host: id, size: 1 }];
    let proc = fd::open_proc()?;
    ns::unshare(Namespaces::from_iter([Namespace::User, Namespace::Mount])).map_err(|e| {
        e.context("make a user namespace, which every build needs")
            .hint("rt doctor says what keeps this host from it")
    })?;
    IdMaps { uid: one(caller.uid), gid: one(caller.gid) }.write(&proc, "self", Setgroups::Deny)?;
    // Mounts of the host still appear, and none of the build's on the host.
    rustix::mount::mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .context(|| "keep the build's mounts apart from the host's")
}

/// A file system in memory that only the build sees, mounted over a directory.
pub(super) fn memory(at: &Path) -> Result<Mounted> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount("tmpfs", at, "tmpfs", flags, c"mode=0700")
        .context(|| format!("mount a tmpfs on {}", at.display()))?;
    Ok(Mounted(at.to_owned()))
}

/// Shows what `source` is at `at`.
pub(super) fn bind(source: BorrowedFd, at: &Path) -> Result<Mounted> {
    attach(source, mount::Recursive::No, at)
}

/// Keeps the bundle `dir` of a store in use, until this is dropped: `rt prune` finds it in the list of the build's mounts. A mark
/// counts for too short a time, and between two instructions nothing else of it is mounted or open.
pub(super) fn keep_in_use(dir: BorrowedFd, at: &Path) -> Result<Mounted> {
    // In a user namespace nothing is shown without what is mounted in it.
    attach(dir, mount::Recursive::Yes, at).context(|| "keep it in use")
}

fn attach(source: BorrowedFd, mounts_too: mount::Recursive, at: &Path) -> Result<Mounted> {
    let tree = mount::clone_fd(source, mounts_too)?;
    mount::attach_to(&tree, at)?;
    Ok(Mounted(at.to_owned()))
}

/// What is mounted, until this is dropped.
pub(super) struct Mounted(PathBuf);

impl Mounted {
    /// The root of what is mounted.
    pub(super) fn root(&self) -> Result<OwnedFd> {
        disk::open_root(&self.0)
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// Mounts an overlay at `at`. `lower`: its layers, the lowest first, at least one. `draft` has the directories `upper` and `work`;
/// without one nothing can be written, and there must be two layers.
pub(super) fn overlay(lower: &[OwnedFd], draft: Option<&Path>, at: &Path) -> Result<Mounted> {
    let open = |path: PathBuf| {
        rustix::fs::open(&path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .context(|| format!("open {}", path.display()))
    };
    let numbers: Vec<String> = lower.iter().rev().map(|dir| dir.as_raw_fd().to_string()).collect();
    // Without `volatile` the end of each overlay waits for the disk. A layer that a crash has cut off is in no key.
    let mut options = format!("userxattr,lowerdir={}", numbers.join(":"));
    let parts = draft
        .map(|draft| Ok::<_, rt_sys::error::Error>((open(draft.join("upper"))?, open(draft.join("work"))?)));
    let parts = parts.transpose()?;
    if let Some((upper, work)) = &parts {
        options = format!("{options},volatile,upperdir={},workdir={}", upper.as_raw_fd(), work.as_raw_fd());
    }
    let options = CString::new(options).map_err(|e| err!("{e}"))?;
    // Paths of layers are long, and all of them have to fit into a page: here a layer's path is the number of its descriptor.
    let here =
        rustix::fs::openat(CWD, ".", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .context(|| "open the current directory")?;
    rustix::process::chdir("/proc/self/fd").context(|| "enter /proc/self/fd")?;
    let mounted = rustix::mount::mount("overlay", at, "overlay", MountFlags::NODEV, &*options);
    fd::enter(here.as_fd())?;
    mounted.context(|| "mount an overlay").map_err(|e| match e.errno() {
        Some(libc::ENODEV) => e.hint("this kernel has no overlayfs"),
        Some(libc::EPERM) => e.hint("without root overlays need Linux 5.11"),
        // As the build has a user namespace, and others' mounts would be uncovered.
        Some(libc::EINVAL) => e.hint(NOTHING),
        _ => e,
    })?;
    Ok(Mounted(at.to_owned()))
}
