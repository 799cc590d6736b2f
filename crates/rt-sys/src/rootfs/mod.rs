//! The container's root file system: the only holder of its descriptor.
//!
//! A rootfs is hostile: any path in it may be a link to anywhere, and may change while it is looked at. So
//! every path is resolved by openat2(2) with RESOLVE_IN_ROOT to a descriptor, and that descriptor is used ([`open_in`]).
//!
//! A rootfs also belongs to others: it may be read-only, on a shared file system, in use by a hundred containers.
//! Where it lacks a mount point, the directory above is *covered*: a tmpfs is mounted there which shows the
//! same entries (each bound from the original) and can hold new ones. Directories with many entries are
//! covered by an overlay instead. Only where the config makes the root writable and the caller can write
//! there is the mount point really made, noted first in the state directory, and removed with the container.
//!
//! What is bound into the container is the caller's data. What the program writes there must arrive, so nothing
//! that can be written is covered: a missing mount point is made in the source.

mod cover;
mod filesystems;
mod missing;
mod notes;
mod paths;
mod place;

pub use filesystems::{PROC_MAGIC, SYSFS_MAGIC, is_in_memory, name_of_overlay_stranger};
pub use notes::{DirLock, IMAGES, MadeList};
pub use paths::{open_in, open_in_unmounted, open_in_unserved};
pub use place::{NewEntry, Place};

use crate::bail;
use crate::error::{Context, Error, Result};
use crate::mount::{self, Attr, Recursive};
use paths::{is_at_or_below, split};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::cell::Cell;
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

/// How often a lock is tried for, every two milliseconds: ten seconds.
const LOCK_TRIES: u32 = 5000;

/// How often a lock is tried for by a container that is being started: half a second. Everybody who can read a directory can lock it, so nobody's
/// lock may hold a start up. Without the lock the container starts, too: what it lacks is covered.
const START_TRIES: u32 = 250;

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// What there must be to mount on: the kernel mounts directories on directories and files on files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountPoint {
    /// A directory.
    Directory,
    /// Anything that is not a directory.
    File,
}

/// What becomes of a link that is the last part of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symlink {
    /// What it leads to, inside the root, is meant.
    Follow,
    /// It is the place itself.
    Keep,
    /// It is refused, and so is anything else that is no directory.
    Refuse,
}

/// The directory on the host that becomes the container's root.
#[derive(Clone, Copy, Debug)]
pub struct Image<'a> {
    /// Its path.
    pub path: &'a Path,
    /// The config wants the root read-only in the end.
    pub readonly: bool,
}

/// A file system made for this container, in which entries may be made freely.
#[derive(Debug)]
struct OwnFs {
    /// Where it is mounted; empty where its entries may not be made by name (see [`OwnFs::forget_path`]).
    path: PathBuf,
    root: OwnedFd,
}

impl OwnFs {
    /// The path leads elsewhere from now on. The file system is still known by its device number.
    fn forget_path(&mut self) {
        self.path = PathBuf::new();
    }
}

/// A file system that is made read-only at the end, when all is in it that belongs there.
#[derive(Debug)]
struct Sealed {
    /// Where it is mounted.
    path: PathBuf,
    /// Its device number, which proves what is found at the path.
    device: u64,
}

/// A file system of the kernel's at its usual place, in which masks and read-only paths must not miss their targets.
#[derive(Debug)]
struct KernelFs {
    path: &'static str,
    magic: u64,
    /// Known from the mount itself, or looked up.
    root: Option<OwnedFd>,
}

/// The root of the container, mounted but not yet pivoted to.
#[derive(Debug)]
pub struct Rootfs<'a> {
    root: OwnedFd,
    /// Where the image is on the host.
    image: PathBuf,
    /// The image's directory, locked.
    held: Option<OwnedFd>,
    /// The id of the image's own mount (statx(2)), once it is needed: what is mounted in it has another.
    image_mount: Option<u64>,
    /// The config wants the root read-only in the end.
    readonly: bool,
    own_fs: Vec<OwnFs>,
    /// Which of these is the working directory.
    entered: Cell<Option<usize>>,
    kernel_fs: Vec<KernelFs>,
    host_sys: bool,
    /// tmpfs and overlay mounts over directories that lacked something, to be made read-only in the end.
    covers: Vec<OwnedFd>,
    /// File systems of this container's own that are made so, too.
    sealed: Vec<Sealed>,
    /// The container's state directory, for notes of what is made where others see it; `None` where nothing may be.
    state: Option<BorrowedFd<'a>>,
    /// Directories outside the image in which something was made, locked as the image is.
    bound: Vec<OwnedFd>,
    /// An overlay has taken the image's place. It keeps the image's owners and modes.
    layered: bool,
    /// Somebody else holds the root's descriptor: what is mounted over the root itself would be lost.
    root_is_fixed: bool,
}

impl<'a> Rootfs<'a> {
    /// Takes the mounted tree `root` of `image`. `state` is the container's state directory, for the notes.
    pub fn new(root: OwnedFd, image: Image<'_>, state: Option<BorrowedFd<'a>>) -> Self {
        // The shared lock keeps other runtimes from removing mount points from the image (they take it exclusively)
        // while one of them may be about to be used here. Where the lock cannot be had, nothing is made in the image.
        let held = match state {
            Some(_) if !image.readonly => open_directory(image.path)
                .ok()
                .filter(|dir| lock(dir, FlockOperation::NonBlockingLockShared, START_TRIES)),
            _ => None,
        };
        Rootfs {
            root,
            image: image.path.to_owned(),
            held,
            image_mount: None,
            readonly: image.readonly,
            own_fs: Vec::new(),
            entered: Cell::new(None),
            kernel_fs: Vec::new(),
            host_sys: false,
            covers: Vec::new(),
            sealed: Vec::new(),
            state,
            bound: Vec::new(),
            layered: false,
            root_is_fixed: false,
        }
    }

    /// The root of a container that a runtime has mounted and will pivot to: for hooks. Nothing is made in the
    /// image, nor in what is bound.
    pub fn for_hook(root: OwnedFd, image: Image<'_>) -> Self {
        Rootfs { root_is_fixed: true, ..Self::new(root, image, None) }
    }

    /// Takes `overlay`, which has been mounted over the image, for the root. It is this container's own: whatever the root
    /// lacks is made in it, and nothing in the image.
    pub fn replace_image(&mut self, overlay: OwnedFd) -> Result<()> {
        self.held = None;
        self.image_mount = None;
        self.layered = true;
        // Without its path: an entry in it may not be made without a look at links, which the image has.
        self.add_own_fs(overlay.try_clone()?, Path::new(""));
        self.root = overlay;
        Ok(())
    }

    /// The root directory itself.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// True where `path` leads to something that can be mounted on as `kind`.
    pub fn is(&self, path: &Path, kind: MountPoint) -> bool {
        let is_directory =
            |fd| fs::fstat(fd).is_ok_and(|s| FileType::from_raw_mode(s.st_mode) == FileType::Directory);
        self.resolve(path).is_ok_and(|fd| is_directory(fd) == (kind == MountPoint::Directory))
    }

    /// The place to mount at: `path` inside the root, made where it is missing.
    pub fn place<'p>(&'p mut self, path: &'p Path, kind: MountPoint, link: Symlink) -> Result<Place<'p>> {
        // In a directory that is the container's own most things are missing, and nothing is a link. To make the entry
        // at once saves the look-up.
        match self.make_in_own_fs(path, kind) {
            Some((own_fs, name)) => Ok(self.entry(own_fs, name)),
            None => {
                // Whoever mounts at a descriptor by mount(2) changes the working directory to it.
                self.entered.set(None);
                self.resolve_or_make(path, kind, link).map(Place::At)
            }
        }
    }

    /// The place to mount at if `path` was missing in a directory of the container's own; it has just been made then.
    pub fn new_place<'p>(&'p self, path: &'p Path, kind: MountPoint) -> Option<Place<'p>> {
        self.make_in_own_fs(path, kind).map(|(own_fs, name)| self.entry(own_fs, name))
    }

    /// Makes `path` where its directory is the root of a file system of the container's own and it is missing there.
    fn make_in_own_fs<'p>(&self, path: &'p Path, kind: MountPoint) -> Option<(usize, &'p OsStr)> {
        let (dir, name) = split(path)?;
        let own_fs = self.own_fs.iter().position(|own_fs| own_fs.path.as_os_str() == dir)?;
        create(&self.own_fs[own_fs].root, name, kind).ok().map(|()| (own_fs, name))
    }

    fn entry<'p>(&'p self, own_fs: usize, name: &'p OsStr) -> Place<'p> {
        Place::In(NewEntry { dir: self.own_fs[own_fs].root.as_fd(), name, entered: &self.entered, own_fs })
    }

    /// Makes `dir` the working directory.
    pub fn enter(&self, dir: impl AsFd) -> Result<(), Errno> {
        self.entered.set(None);
        rustix::process::fchdir(dir)
    }

    /// Detached copies of entries of `tmpfs`, a detached mount of the container's own, to be attached elsewhere in the root.
    ///
    /// Before Linux 6.15, open_tree(2) copies only what is mounted in this mount namespace. The tmpfs is therefore mounted
    /// on the root for a moment, where no other process of the container can see it yet. The copies keep the file system
    /// in existence after it has been unmounted.
    pub fn clone_from_tmpfs<N: AsRef<OsStr>>(
        &self,
        tmpfs: &OwnedFd,
        names: impl IntoIterator<Item = N>,
    ) -> Result<Vec<OwnedFd>> {
        mount::attach(tmpfs, &self.root)?;
        let trees =
            names.into_iter().map(|name| mount::clone_entry(tmpfs, name.as_ref(), Recursive::No)).collect();
        // umount2(2) takes a path. "." is the mount itself, whatever the path of the root is by now. MNT_DETACH, since the
        // working directory is in it.
        self.enter(tmpfs)?;
        rustix::mount::unmount(".", rustix::mount::UnmountFlags::DETACH)?;
        trees
    }

    /// True where the directory of `path` is the root of a file system of the container's own.
    pub fn is_in_own_fs(&self, path: &Path) -> bool {
        split(path).is_some_and(|(dir, _)| self.own_fs.iter().any(|own_fs| own_fs.path.as_os_str() == dir))
    }

    /// A descriptor of `path` inside the root, which is made where it is missing.
    pub fn resolve_or_make(&mut self, path: &Path, kind: MountPoint, link: Symlink) -> Result<OwnedFd> {
        let flags = match link {
            Symlink::Follow => OFlags::PATH,
            Symlink::Keep => OFlags::PATH | OFlags::NOFOLLOW,
            // Of a link, O_NOFOLLOW with O_PATH opens the link itself; O_DIRECTORY makes that an error.
            Symlink::Refuse => OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY,
        };
        match self.open(path, flags) {
            Ok(fd) => return Ok(fd),
            Err(Errno::NOENT) => {}
            Err(Errno::NOTDIR) if link == Symlink::Refuse => {
                // The kernel says so as well of the directory of an image whose server has ended.
                self.open(path, OFlags::PATH | OFlags::NOFOLLOW)
                    .and_then(fs::fstat)
                    .context(|| path.display())?;
                return Err(Error::from(Errno::NOTDIR)
                    .context(path.display())
                    .hint("the image has a link or a file there"));
            }
            Err(e) => return Err(e.into()),
        }
        let Some(missing) = self.find_missing(path)? else { return Ok(self.resolve(path)?) };
        let rest = missing.rest.clone();
        self.writable_parent(missing)?.make(&rest, kind)
    }

    /// Makes a symlink at `path` unless something is there already.
    pub fn symlink(&mut self, target: &str, path: &Path) -> Result<()> {
        let Some((dir, name)) = split(path) else { return Ok(()) };
        if let Some(own_fs) = self.own_fs.iter().find(|own_fs| own_fs.path.as_os_str() == dir)
            && fs::symlinkat(target, &own_fs.root, name).is_ok()
        {
            return Ok(());
        }
        let dir = self.resolve_or_make(Path::new(dir), MountPoint::Directory, Symlink::Follow)?;
        match fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => {}
            Ok(_) => return Ok(()),
            Err(e) => return Err(e.into()),
        }
        let Some(missing) = self.find_missing(path)? else { return Ok(()) };
        Ok(fs::symlinkat(target, self.writable_parent(missing)?.dir, name)?)
    }

    /// Says that `root` is a file system made for this container, mounted at `path`.
    pub fn add_own_fs(&mut self, root: OwnedFd, path: &Path) {
        self.own_fs.push(OwnFs { path: path.to_owned(), root });
    }

    /// Has the file system `root`, mounted at `path`, made read-only at the end, when all is in it that belongs there.
    pub fn add_readonly(&mut self, root: &OwnedFd, path: &Path) -> Result<()> {
        self.sealed.push(Sealed { path: path.to_owned(), device: fs::fstat(root)?.st_dev });
        Ok(())
    }

    /// Makes the directory `path` where it is missing. Where it is in a file system of this container's own, it is kept
    /// open for all that will be made in it, so that it is looked up once.
    pub fn add_own_dir(&mut self, path: &Path) -> Result<()> {
        if self.own_fs.iter().any(|own_fs| own_fs.path == path) {
            return Ok(());
        }
        let dir = self.resolve_or_make(path, MountPoint::Directory, Symlink::Follow)?;
        if self.is_own_device(fs::fstat(&dir)?.st_dev)? {
            self.add_own_fs(dir, path);
        }
        Ok(())
    }

    /// True where `device` is a file system of this container's own. The device number decides and not the mount id,
    /// because a cover shows the same file system by another mount.
    fn is_own_device(&self, device: u64) -> Result<bool> {
        for own_fs in &self.own_fs {
            if fs::fstat(&own_fs.root)?.st_dev == device {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Says that a file system of the kernel's is mounted at `path`, of the type that statfs(2) calls `magic`; `root` is
    /// its root, where that is known.
    pub fn add_kernel_fs(&mut self, path: &'static str, magic: u64, root: Option<OwnedFd>) {
        self.kernel_fs.push(KernelFs { path, magic, root });
    }

    /// Looks up the file systems of the kernel's whose root is not known by a descriptor.
    ///
    /// Somebody with access to the image on the host may have moved such a mount by renaming a directory above it. Its
    /// masks would then be set elsewhere, and the container would see it unmasked: nothing may go on.
    pub fn find_kernel_fs(&mut self) -> Result<()> {
        for n in 0..self.kernel_fs.len() {
            let KernelFs { path, magic, root: None } = self.kernel_fs[n] else { continue };
            let found = self.resolve(Path::new(path)).context(|| path)?;
            if crate::fd::file_system(&found)? != magic {
                bail!(
                    "{path} is not what was mounted there: somebody changes the root file system meanwhile"
                );
            }
            self.kernel_fs[n].root = Some(found);
        }
        Ok(())
    }

    /// The root of the kernel's file system that is mounted at `path`.
    pub fn kernel_fs(&self, path: &str) -> Option<&OwnedFd> {
        self.kernel_fs.iter().find(|kernel_fs| kernel_fs.path == path)?.root.as_ref()
    }

    /// Resolves `path`. If it is in a file system of the kernel's, and has no `..` that could lead out of it again, it is
    /// resolved from the root of that file system on and not from the root of the image.
    pub fn resolve_in_kernel_fs(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let inside = |kernel_fs: &KernelFs| {
            let below = path.strip_prefix(kernel_fs.path).ok()?;
            let stays = below.components().all(|part| part != Component::ParentDir);
            let root = kernel_fs.root.as_ref().filter(|_| stays)?;
            Some(open_in(root.as_fd(), below, OFlags::PATH))
        };
        self.kernel_fs.iter().find_map(inside).unwrap_or_else(|| self.resolve(path))
    }

    /// Says that the host's /sys is at /sys, with all that is mounted in it.
    pub fn add_host_sys(&mut self) {
        self.host_sys = true;
    }

    /// True while it is there, and nothing has been mounted over a part of it.
    pub fn has_host_sys(&self) -> bool {
        self.host_sys
    }

    /// Says that something has been mounted at `path`: what was known to be there is hidden now.
    pub fn mounted_over(&mut self, path: &Path) {
        self.own_fs
            .iter_mut()
            .filter(|own_fs| is_at_or_below(&own_fs.path, path))
            .for_each(OwnFs::forget_path);
        self.kernel_fs.retain(|kernel_fs| !is_at_or_below(Path::new(kernel_fs.path), path));
        let sys = Path::new("/sys");
        self.host_sys &= !is_at_or_below(sys, path) && !is_at_or_below(path, sys);
    }

    /// The directory `path`, if it is the image's own: nothing that was mounted in the image is in the way.
    pub fn image_dir(&mut self, path: &Path) -> Result<Option<OwnedFd>> {
        let dir = match self.open(path, DIRECTORY) {
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            opened => opened?,
        };
        let own = mount_id(&dir, OsStr::new(""))? == self.image_mount()?;
        Ok(own.then_some(dir))
    }

    /// The id of the image's own mount.
    fn image_mount(&mut self) -> Result<u64> {
        let id = self.image_mount.map_or_else(|| mount_id(&self.root, OsStr::new("")), Ok)?;
        self.image_mount = Some(id);
        Ok(id)
    }

    /// Lets others remove what is not used in the image: everything is mounted.
    pub fn release_locks(&mut self) {
        self.held = None;
        self.bound.clear();
    }

    /// Makes the root, what covers parts of it and file systems of its own read-only, where the config wants that.
    pub fn finish(&self) -> Result<()> {
        self.finish_covers()?;
        for Sealed { path, device } in &self.sealed {
            // By its path, since a cover may show a copy of the mount, and the copy counts. What something else hides
            // needs nothing.
            let at = match self.resolve(path) {
                Ok(at) => at,
                Err(Errno::NOENT | Errno::NOTDIR) => continue,
                Err(e) => return Err(e).context(|| path.display()),
            };
            if fs::fstat(&at)?.st_dev == *device {
                make_readonly(&at)?;
            }
        }
        if self.readonly { make_readonly(&self.root) } else { Ok(()) }
    }
}

fn make_readonly(mount: &OwnedFd) -> Result<()> {
    mount::set_attr(mount, Recursive::No, Attr::READONLY).context(|| "make a part of the root read-only")
}

fn create(dir: &OwnedFd, name: &OsStr, kind: MountPoint) -> Result<(), Errno> {
    match kind {
        // mknod(2) makes a regular file too, and leaves no descriptor to close.
        MountPoint::File => fs::mknodat(dir, name, FileType::RegularFile, Mode::from_raw_mode(0o644), 0),
        MountPoint::Directory => fs::mkdirat(dir, name, Mode::from_raw_mode(0o755)),
    }
}

fn open_directory(path: &Path) -> Result<OwnedFd, Errno> {
    fs::open(path, DIRECTORY, Mode::empty())
}

/// Tries for the lock `how` on `dir`; false where somebody else keeps it.
fn lock(dir: &OwnedFd, how: FlockOperation, tries: u32) -> bool {
    let pause = rustix::time::Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
    (0..tries).any(|n| {
        if n > 0 {
            let _ = rustix::thread::nanosleep(&pause);
        }
        fs::flock(dir, how).is_ok()
    })
}

/// The id of the mount that the entry `name` of `dir` is in, or `dir` itself where the name is empty.
fn mount_id(dir: &OwnedFd, name: &OsStr) -> Result<u64> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    Ok(fs::statx(dir, name, flags, fs::StatxFlags::MNT_ID)?.stx_mnt_id)
}

fn same_file(a: &OwnedFd, b: &OwnedFd) -> Result<bool> {
    let (a, b) = (fs::fstat(a)?, fs::fstat(b)?);
    Ok((a.st_dev, a.st_ino) == (b.st_dev, b.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(name: &str) -> (PathBuf, Rootfs<'static>) {
        let dir = std::env::temp_dir().join(format!("rt-rootfs-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(dir.join("a/b")).unwrap();
        let fd = fs::open(&dir, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let rootfs = Rootfs::new(fd, Image { path: &dir, readonly: true }, None);
        (dir, rootfs)
    }

    #[test]
    fn links_never_lead_out() {
        let (dir, rootfs) = image("links");
        std::os::unix::fs::symlink("/etc", dir.join("a/out")).unwrap();
        std::os::unix::fs::symlink("../../../../../../etc", dir.join("a/up")).unwrap();
        for path in ["/a/out/passwd", "/a/up/passwd", "/../../etc/passwd"] {
            assert_eq!(rootfs.resolve(Path::new(path)).unwrap_err(), Errno::NOENT, "{path}");
        }
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn missing_parts_are_found_behind_links() {
        let (dir, rootfs) = image("missing");
        std::os::unix::fs::symlink("/a/b/../new", dir.join("link")).unwrap();
        std::os::unix::fs::symlink("loop", dir.join("loop")).unwrap();
        let missing = rootfs.find_missing(Path::new("/link/x/../y")).unwrap().unwrap();
        assert_eq!(missing.done, Path::new("/a"));
        assert_eq!(missing.rest, ["new", "y"]);
        assert!(rootfs.find_missing(Path::new("/a/b")).unwrap().is_none());
        assert!(rootfs.find_missing(Path::new("/loop")).is_err());
        std::fs::remove_dir_all(dir).unwrap();
    }
}
