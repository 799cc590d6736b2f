//! The container's root file system: the only holder of its descriptor.
//!
//! A rootfs is hostile: any path in it may be a link to anywhere, and may change while it is looked at. So
//! every path is resolved by openat2(2) with RESOLVE_IN_ROOT to a descriptor, and that descriptor is used.
//!
//! A rootfs is also not ours: it may be read-only, on a shared file system, in use by a hundred containers.
//! Where it lacks a mount point, the directory above is *covered*: a tmpfs is mounted there which shows the
//! same entries (each bound from the original) and can hold new ones. Directories with many entries are
//! covered by an overlay instead. Only where the config makes the root writable and the caller can write
//! there is the mount point really made, noted first in the container's state, and removed with it.
//!
//! What is bound into the container is the caller's data. What the program writes there must arrive, so nothing
//! that can be written is covered: a missing mount point is made in the source.

mod notes;

pub use notes::{Held, IMAGES, Made};

use crate::error::{Context, Error, Result};
use crate::mount::{self, Attr, Follow, Mounted, Param, Recursive};
use crate::{bail, fd};
use notes::{Notes, Root};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, FileType, FlockOperation, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// Above this many entries a directory is covered by an overlay rather than by single binds.
const MOST_BINDS: usize = 64;
/// How many symlinks one path may hold, as in the kernel.
const MOST_LINKS: usize = 40;
/// procfs, as statfs(2) calls it.
pub const PROC: u64 = fs::PROC_SUPER_MAGIC as u64;
/// sysfs, as statfs(2) calls it.
pub const SYSFS: u64 = 0x6265_6572;
/// How often a lock is tried for, every two milliseconds.
const MANY: u32 = 5000;

/// What a mount point must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// A directory.
    Directory,
    /// Anything that is not a directory.
    File,
}

/// What becomes of a link that is the last part of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symlink {
    /// What it leads to, inside the root.
    Follow,
    /// It is the place itself.
    Keep,
    /// It is refused, and what else is no directory.
    Refuse,
}

/// A place to mount at.
#[derive(Debug)]
pub enum Place<'a> {
    /// What the descriptor refers to.
    At(OwnedFd),
    /// An entry that has just been made in a file system of this container's own.
    In(Entry<'a>),
}

/// An entry of a file system of the container's own.
#[derive(Debug)]
pub struct Entry<'a> {
    /// The directory.
    pub dir: BorrowedFd<'a>,
    /// The entry's name in it.
    pub name: &'a OsStr,
    /// Which of the container's own file systems is the working directory.
    entered: &'a Cell<Option<usize>>,
    own: usize,
}

impl Entry<'_> {
    /// Makes its directory the working directory, and returns its name.
    fn enter(&self) -> Result<&OsStr, Errno> {
        if self.entered.get() != Some(self.own) {
            rustix::process::fchdir(self.dir)?;
            self.entered.set(Some(self.own));
        }
        Ok(self.name)
    }
}

impl Place<'_> {
    /// Mounts the detached `tree` here.
    pub fn attach(self, tree: impl AsFd) -> Result<()> {
        match self {
            Place::At(fd) => {
                let attached = mount::attach(tree, &fd);
                crate::fd::leave_open(fd);
                attached
            }
            Place::In(entry) => mount::attach_at(tree, entry.dir, entry.name),
        }
    }

    /// Shows the host's `source`, not a directory, here.
    pub fn bind(self, source: &Path) -> Result<()> {
        match self {
            Place::At(_) => {
                let tree = mount::clone_path(source, Recursive::No, Follow::Links)?;
                self.attach(&tree)?;
                crate::fd::leave_open(tree);
                Ok(())
            }
            Place::In(entry) => Ok(mount::bind(source, entry.enter()?, Recursive::No)?),
        }
    }

    /// Mounts a new file system on this directory by mount(2). `None` where that cannot say it.
    pub fn mount(self, fstype: &str, source: &str, params: &[Param], attr: u64) -> Option<Result<()>> {
        let at = match &self {
            Place::At(fd) => rustix::process::fchdir(fd).map(|()| OsStr::new(".")),
            Place::In(entry) => entry.enter(),
        };
        let mounted = match at {
            Ok(at) => mount::mount_new(fstype, source, params, attr, at),
            Err(e) => Some(Err(e.into())),
        };
        if let Place::At(fd) = self {
            crate::fd::leave_open(fd);
        }
        mounted
    }
}

/// A file system made for this container, in which entries may be made freely.
#[derive(Debug)]
struct Own {
    /// Where it is mounted.
    path: PathBuf,
    root: OwnedFd,
}

/// A file system of the kernel's at its usual place, in which masks and the like must not miss.
#[derive(Debug)]
struct Kernels {
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
    base: Option<u64>,
    /// The config wants the root read-only in the end.
    readonly: bool,
    own: Vec<Own>,
    /// Which of these is the working directory.
    entered: Cell<Option<usize>>,
    kernels: Vec<Kernels>,
    host_sys: bool,
    /// tmpfs and overlay mounts over directories that lacked something, to be made read-only in the end.
    covers: Vec<OwnedFd>,
    /// The paths and device numbers of file systems of this container's own that are made so, too.
    sealed: Vec<(PathBuf, u64)>,
    /// The container's state directory, for notes of what is made where others see it; `None` where nothing may be.
    state: Option<BorrowedFd<'a>>,
    /// Directories outside the image in which something was made, locked as the image is.
    bound: Vec<OwnedFd>,
    /// Somebody else holds the root's descriptor: what is mounted over the root itself would be lost.
    root_is_fixed: bool,
}

impl<'a> Rootfs<'a> {
    /// Takes the mounted tree `root` of the image at `image`. `state` is the container's state directory, for
    /// the notes.
    pub fn new(root: OwnedFd, image: &Path, readonly: bool, state: Option<BorrowedFd<'a>>) -> Self {
        // Nobody removes mount points from the image while one of them may be about to be used.
        let held = match state {
            Some(_) if !readonly => open_directory(image)
                .and_then(|dir| fs::flock(&dir, FlockOperation::LockShared).map(|()| dir))
                .ok(),
            _ => None,
        };
        let image = image.to_owned();
        Rootfs {
            root,
            image,
            held,
            base: None,
            readonly,
            own: Vec::new(),
            entered: Cell::new(None),
            kernels: Vec::new(),
            host_sys: false,
            covers: Vec::new(),
            sealed: Vec::new(),
            state,
            bound: Vec::new(),
            root_is_fixed: false,
        }
    }

    /// The root of a container that a runtime has mounted and will pivot to: for hooks. Nothing is made in the
    /// image, nor in what is bound.
    pub fn of_container(root: OwnedFd, image: &Path, readonly: bool) -> Self {
        Rootfs { root_is_fixed: true, ..Self::new(root, image, readonly, None) }
    }

    /// The root directory itself.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Resolves `path` inside the root to an O_PATH descriptor.
    pub fn resolve(&self, path: &Path) -> Result<OwnedFd, Errno> {
        self.open(path, OFlags::PATH)
    }

    /// True where what `path` leads to is as `want` says.
    pub fn is(&self, path: &Path, want: Want) -> bool {
        let is_directory =
            |fd| fs::fstat(fd).is_ok_and(|s| FileType::from_raw_mode(s.st_mode) == FileType::Directory);
        self.resolve(path).is_ok_and(|fd| is_directory(fd) == (want == Want::Directory))
    }

    /// Opens `path` inside the root.
    pub fn open(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        open_in(self.root.as_fd(), path, flags)
    }

    /// The place to mount at: `path` inside the root, made where it is missing.
    pub fn place<'p>(&'p mut self, path: &'p Path, want: Want, link: Symlink) -> Result<Place<'p>> {
        // In a directory that is the container's own most things are missing, and nothing is a link.
        match self.made_in_own(path, want) {
            Some((own, name)) => Ok(self.entry(own, name)),
            None => {
                // Who mounts there makes it the working directory.
                self.entered.set(None);
                self.target(path, want, link).map(Place::At)
            }
        }
    }

    /// The same where `path` is missing in a directory of the container's own, and so was made just now.
    pub fn new_place<'p>(&'p self, path: &'p Path, want: Want) -> Option<Place<'p>> {
        self.made_in_own(path, want).map(|(own, name)| self.entry(own, name))
    }

    fn made_in_own<'p>(&self, path: &'p Path, want: Want) -> Option<(usize, &'p OsStr)> {
        let (dir, name) = split(path)?;
        let own = self.own.iter().position(|own| own.path.as_os_str() == dir)?;
        create(&self.own[own].root, name, want).ok().map(|()| (own, name))
    }

    fn entry<'p>(&'p self, own: usize, name: &'p OsStr) -> Place<'p> {
        Place::In(Entry { dir: self.own[own].root.as_fd(), name, entered: &self.entered, own })
    }

    /// Makes `dir` the working directory.
    pub fn enter(&self, dir: impl AsFd) -> Result<(), Errno> {
        self.entered.set(None);
        rustix::process::fchdir(dir)
    }

    /// True where the directory of `path` is the container's own.
    pub fn holds(&self, path: &Path) -> bool {
        split(path).is_some_and(|(dir, _)| self.own.iter().any(|own| own.path.as_os_str() == dir))
    }

    /// The same as a descriptor.
    pub fn target(&mut self, path: &Path, want: Want, link: Symlink) -> Result<OwnedFd> {
        let flags = match link {
            Symlink::Follow => OFlags::PATH,
            Symlink::Keep => OFlags::PATH | OFlags::NOFOLLOW,
            Symlink::Refuse => OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY,
        };
        match self.open(path, flags) {
            Ok(fd) => return Ok(fd),
            Err(Errno::NOENT) => {}
            Err(Errno::NOTDIR) if link == Symlink::Refuse => {
                return Err(Error::from(Errno::NOTDIR)
                    .context(path.display())
                    .hint("the image has a link or a file there"));
            }
            Err(e) => return Err(e.into()),
        }
        let Some(missing) = self.find_missing(path)? else { return Ok(self.resolve(path)?) };
        let rest = missing.rest.clone();
        self.room(missing)?.make(&rest, want)
    }

    /// Makes a symlink at `path` unless something is there already.
    pub fn symlink(&mut self, target: &str, path: &Path) -> Result<()> {
        let Some((dir, name)) = split(path) else { return Ok(()) };
        if let Some(own) = self.own.iter().find(|own| own.path.as_os_str() == dir)
            && fs::symlinkat(target, &own.root, name).is_ok()
        {
            return Ok(());
        }
        let dir = self.target(Path::new(dir), Want::Directory, Symlink::Follow)?;
        match fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => {}
            Ok(_) => return Ok(()),
            Err(e) => return Err(e.into()),
        }
        let Some(missing) = self.find_missing(path)? else { return Ok(()) };
        Ok(fs::symlinkat(target, self.room(missing)?.dir, name)?)
    }

    /// Says that `root` is a file system made for this container, mounted at `path`.
    pub fn add_own(&mut self, root: OwnedFd, path: &Path) {
        self.own.push(Own { path: path.to_owned(), root });
    }

    /// Has the file system `root`, mounted at `path`, made read-only at the end, when all is in it that belongs there.
    pub fn add_readonly(&mut self, root: &OwnedFd, path: &Path) -> Result<()> {
        self.sealed.push((path.to_owned(), fs::fstat(root)?.st_dev));
        Ok(())
    }

    /// Makes the directory `path` where it is missing, and looks it up once for all that will be made in it, where it
    /// is in a file system of this container's own.
    pub fn add_own_dir(&mut self, path: &Path) -> Result<()> {
        if self.own.iter().any(|own| own.path == path) {
            return Ok(());
        }
        let dir = self.target(path, Want::Directory, Symlink::Follow)?;
        if self.is_own(fs::fstat(&dir)?.st_dev)? {
            self.add_own(dir, path);
        }
        Ok(())
    }

    /// True where `device` is a file system of this container's own. Not by the mount: a cover shows it by another.
    fn is_own(&self, device: u64) -> Result<bool> {
        for own in &self.own {
            if fs::fstat(&own.root)?.st_dev == device {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Says that a file system of the kernel's is mounted at `path`, of the type that statfs(2) calls `magic`; `root` is
    /// its root, where that is known.
    pub fn add_kernels(&mut self, path: &'static str, magic: u64, root: Option<OwnedFd>) {
        self.kernels.push(Kernels { path, magic, root });
    }

    /// Looks up those that are not known by a descriptor. Somebody may have moved them, and would see them without
    /// masks: then nothing may go on.
    pub fn find_kernels(&mut self) -> Result<()> {
        for n in 0..self.kernels.len() {
            let Kernels { path, magic, root: None } = self.kernels[n] else { continue };
            let found = self.resolve(Path::new(path)).context(|| path)?;
            if fs::fstatfs(&found)?.f_type as u64 != magic {
                bail!(
                    "{path} is not what was mounted there: somebody changes the root file system meanwhile"
                );
            }
            self.kernels[n].root = Some(found);
        }
        Ok(())
    }

    /// The root of the kernel's file system that is mounted at `path`.
    pub fn kernels(&self, path: &str) -> Option<&OwnedFd> {
        self.kernels.iter().find(|kernels| kernels.path == path)?.root.as_ref()
    }

    /// Resolves `path`, from the kernel's file system on where it is in one and does not lead out again.
    pub fn resolve_in_kernels(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let inside = |kernels: &Kernels| {
            let below = path.strip_prefix(kernels.path).ok()?;
            let stays = below.components().all(|part| part != Component::ParentDir);
            let root = kernels.root.as_ref().filter(|_| stays)?;
            Some(open_in(root.as_fd(), below, OFlags::PATH))
        };
        self.kernels.iter().find_map(inside).unwrap_or_else(|| self.resolve(path))
    }

    /// Says that the host's /sys is at /sys, with all that is mounted in it.
    pub fn add_host_sys(&mut self) {
        self.host_sys = true;
    }

    /// True while it is there, and nothing has been mounted over a part of it.
    pub fn has_host_sys(&self) -> bool {
        self.host_sys
    }

    /// Says that something has been mounted at `path`: what was the container's own there is hidden.
    pub fn covered(&mut self, path: &Path) {
        self.own
            .iter_mut()
            .filter(|own| is_at_or_below(&own.path, path))
            .for_each(|own| own.path = PathBuf::new());
        self.kernels.retain(|kernels| !is_at_or_below(Path::new(kernels.path), path));
        let sys = Path::new("/sys");
        self.host_sys &= !is_at_or_below(sys, path) && !is_at_or_below(path, sys);
    }

    /// The id of the image's own mount.
    fn base(&mut self) -> Result<u64> {
        let base = self.base.map_or_else(|| mount_id(&self.root, OsStr::new("")), Ok)?;
        self.base = Some(base);
        Ok(base)
    }

    /// Lets others remove what is not used in the image: everything is mounted.
    pub fn release(&mut self) {
        self.held = None;
        self.bound.clear();
    }

    /// Makes the root, what covers parts of it and file systems of its own read-only, where the config wants that.
    pub fn finish(&self) -> Result<()> {
        self.finish_covers()?;
        for (path, device) in &self.sealed {
            // By its path: a cover may show a copy of the mount. What something else hides needs nothing.
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

    /// The same for what covers parts of the root, not for the root itself.
    pub fn finish_covers(&self) -> Result<()> {
        self.covers.iter().try_for_each(make_readonly)
    }

    /// Walks `path` by hand to where it ends. `None` where it has appeared in the meantime.
    fn find_missing(&self, path: &Path) -> Result<Option<Missing>> {
        let mut todo: VecDeque<OsString> = components(path);
        let mut done = PathBuf::from("/");
        let mut links = 0;
        while let Some(name) = todo.pop_front() {
            if name == ".." {
                done.pop();
                continue;
            }
            let next = done.join(&name);
            match self.open(&next, OFlags::PATH | OFlags::NOFOLLOW) {
                Ok(fd) => {
                    let kind = FileType::from_raw_mode(fs::fstat(&fd)?.st_mode);
                    if kind == FileType::Symlink {
                        links += 1;
                        if links > MOST_LINKS {
                            return Err(Errno::LOOP.into());
                        }
                        let target = fs::readlinkat(&fd, "", Vec::new())?;
                        let target = Path::new(OsStr::from_bytes(target.as_bytes())).to_owned();
                        if target.is_absolute() {
                            done = PathBuf::from("/");
                        }
                        let mut front = components(&target);
                        front.append(&mut todo);
                        todo = front;
                    } else if kind != FileType::Directory && !todo.is_empty() {
                        return Err(Errno::NOTDIR.into());
                    } else {
                        done = next;
                    }
                }
                Err(Errno::NOENT) => {
                    let mut rest = vec![name];
                    for name in todo {
                        if name == ".." {
                            rest.pop();
                        } else {
                            rest.push(name);
                        }
                    }
                    if rest.is_empty() {
                        bail!("{} leads nowhere", path.display());
                    }
                    let parent = self.resolve(&done)?;
                    return Ok(Some(Missing { parent, done, rest }));
                }
                Err(e) => return Err(e.into()),
            }
        }
        Ok(None)
    }

    /// A directory equal to `missing.parent` in which entries can be made and no data is lost.
    fn room(&mut self, missing: Missing) -> Result<Room> {
        if self.is_own(fs::fstat(&missing.parent)?.st_dev)? {
            return Ok(Room { dir: missing.parent, notes: None });
        }
        let mount = mount_id(&missing.parent, OsStr::new(""))?;
        let table = if mount == self.base()? { None } else { Some(mount::table()?) };
        let elsewhere = match &table {
            Some(table) if !self.shows_image(table, mount)? => table,
            _ => {
                let notes = self.notes_of_image(&missing)?;
                let dir = missing.parent;
                return match notes {
                    Some(_) => Ok(Room { dir, notes }),
                    None => self.cover(dir, self.readonly),
                };
            }
        };
        // No data can be made there, so none is lost.
        if fs::fstatvfs(&missing.parent)?.f_flag.contains(fs::StatVfsMountFlags::RDONLY) {
            return self.cover(missing.parent, true);
        }
        if is_kernels(fs::fstatfs(&missing.parent)?.f_type as u64) {
            return self.cover(missing.parent, self.readonly);
        }
        self.room_outside(missing, elsewhere, mount)
    }

    /// True where `mount` is a piece of the image at its own place, as covers show them.
    fn shows_image(&self, table: &[Mounted], mount: u64) -> Result<bool> {
        let root = fd::path_of(&self.root)?;
        let piece = table.iter().rfind(|m| m.id == mount);
        Ok(piece.is_some_and(|piece| {
            piece.point.strip_prefix(&root).is_ok_and(|below| {
                let is_whole = |m: &Mounted| m.point == root && m.device == piece.device;
                table.iter().any(|m| is_whole(m) && m.root.join(below) == piece.root)
            })
        }))
    }

    /// Where to note what is made in the image; `None` where it may not be changed.
    fn notes_of_image(&self, missing: &Missing) -> Result<Option<Notes>> {
        let (Some(state), Some(held)) = (self.state, &self.held) else { return Ok(None) };
        if is_shared(fs::fstatfs(&missing.parent)?.f_type as u64) || !may_make_in(&missing.parent) {
            return Ok(None);
        }
        Notes::open(state, held, Root::Image, &self.image, &missing.done)
    }

    /// A directory that is neither the image's nor the container's own: one that is bound, mostly.
    fn room_outside(&mut self, missing: Missing, table: &[Mounted], mount: u64) -> Result<Room> {
        let dir = missing.parent;
        let root = fd::path_of(&self.root)?;
        let source = host_path(table, mount, &dir, &root);
        let Some(state) = self.state.filter(|_| may_make_in(&dir)) else {
            let place = source.as_deref().unwrap_or(&missing.done).display().to_string();
            let name = missing.rest.iter().collect::<PathBuf>();
            return Err(Error::from(Errno::ACCESS)
                .context(format!("make {} in {place}", name.display()))
                .hint(format!("make it in {place} beforehand, or mount at another place")));
        };
        // Where other nodes use it, its removal would take their mounts away.
        let shared = is_shared(fs::fstatfs(&dir)?.f_type as u64);
        let noted = source.filter(|_| !shared).and_then(|source| {
            let held = fs::openat(&dir, ".", DIRECTORY, Mode::empty()).ok()?;
            lock(&held, FlockOperation::NonBlockingLockShared, MANY).then_some((source, held))
        });
        let notes = match noted {
            Some((source, held)) => {
                let notes = Notes::open(state, &held, Root::Bound, &source, Path::new("/"))?;
                self.bound.push(held);
                notes
            }
            None => None,
        };
        Ok(Room { dir, notes })
    }

    /// Covers the directory `dir` with a file system that shows the same and can hold more.
    ///
    /// What is mounted below `dir` already is bound along. With `readonly` the cover is made so in the end.
    fn cover(&mut self, dir: OwnedFd, readonly: bool) -> Result<Room> {
        let is_root = same_file(&dir, &self.root)?;
        if is_root && self.root_is_fixed {
            bail!("the image lacks a directory at its root, where a hook can add none (add it to the image)");
        }
        let image = self.base()?;
        let entries = list(&dir).context(|| "list a directory that lacks a mount point")?;
        let stat = fs::fstat(&dir)?;
        let params = [Param::Value("mode".into(), format!("{:o}", stat.st_mode & 0o7777))];
        let tmpfs =
            mount::new_fs("tmpfs", "tmpfs", &params, 0).context(|| "make a tmpfs for mount points")?;
        fd::chown_like(&tmpfs, &stat);
        // An overlay would show what is below the mounts.
        let cover = if entries.len() > MOST_BINDS && !has_mounts_below(&dir)? {
            mount::attach(&tmpfs, &dir)?;
            cover_by_overlay(&dir, &stat, tmpfs)?
        } else {
            let trees = self.clone_entries(&dir, &tmpfs, entries, image)?;
            mount::attach(&tmpfs, &dir)?;
            for (name, tree) in trees {
                let place = fs::openat(
                    &tmpfs,
                    &name,
                    OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
                    Mode::empty(),
                )?;
                mount::attach(tree, place)?;
            }
            tmpfs
        };
        // What was mounted before has been copied along: the copies are what counts now.
        self.own.iter_mut().for_each(|own| own.path = PathBuf::new());
        self.kernels.iter_mut().for_each(|kernels| kernels.root = None);
        // Its path is not looked for: what is in it was the image's, links among it.
        self.add_own(cover.try_clone()?, Path::new(""));
        if readonly {
            self.covers.push(cover.try_clone()?);
        }
        if is_root {
            self.root = cover.try_clone()?;
        }
        Ok(Room { dir: cover, notes: None })
    }

    /// Repeats `entries` of `dir` in `tmpfs`: links as links, everything else as a place to bind the original.
    fn clone_entries(
        &self,
        dir: &OwnedFd,
        tmpfs: &OwnedFd,
        entries: Vec<(OsString, FileType)>,
        image: u64,
    ) -> Result<Vec<(OsString, OwnedFd)>> {
        let mut trees = Vec::with_capacity(entries.len());
        for (name, kind) in entries {
            match kind {
                FileType::Symlink => {
                    let target = fs::readlinkat(dir, &name, Vec::new())?;
                    fs::symlinkat(target, tmpfs, &name)?;
                    continue;
                }
                FileType::Directory => create(tmpfs, &name, Want::Directory)?,
                _ => create(tmpfs, &name, Want::File)?,
            }
            let tree = mount::clone_entry(dir, &name, Recursive::Yes)
                .context(|| format!("bind {}", Path::new(&name).display()))?;
            if self.readonly && mount_id(dir, &name)? == image {
                mount::set_attr(&tree, Recursive::No, Attr::READONLY)?;
            }
            trees.push((name, tree));
        }
        Ok(trees)
    }
}

/// The directory and the name of a path as the plan has them: absolute, without `//` and `.`. By bytes, which
/// costs a tenth of what components cost.
fn split(path: &Path) -> Option<(&OsStr, &OsStr)> {
    let bytes = path.as_os_str().as_bytes();
    let slash = bytes.iter().rposition(|&b| b == b'/')?;
    let (dir, name) = (&bytes[..slash], &bytes[slash + 1..]);
    let dir = if dir.is_empty() { b"/" } else { dir };
    let plain = !name.is_empty() && name != b"." && name != b"..";
    plain.then(|| (OsStr::from_bytes(dir), OsStr::from_bytes(name)))
}

/// True where `path` is `outer` or lies below it; both as for [`split`].
fn is_at_or_below(path: &Path, outer: &Path) -> bool {
    let rest = path.as_os_str().as_bytes().strip_prefix(outer.as_os_str().as_bytes());
    rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/' || outer.as_os_str() == "/")
}

fn make_readonly(mount: &OwnedFd) -> Result<()> {
    mount::set_attr(mount, Recursive::No, Attr::READONLY).context(|| "make a part of the root read-only")
}

fn create(dir: &OwnedFd, name: &OsStr, want: Want) -> Result<(), Errno> {
    match want {
        Want::File => fs::mknodat(dir, name, FileType::RegularFile, Mode::from_raw_mode(0o644), 0),
        Want::Directory => fs::mkdirat(dir, name, Mode::from_raw_mode(0o755)),
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

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

/// A directory in which a mount point can be made.
struct Room {
    dir: OwnedFd,
    /// Where it is noted, if others see it.
    notes: Option<Notes>,
}

impl Room {
    /// Makes the directories `rest`, the last one as `want` says, and returns the last.
    fn make(self, rest: &[OsString], want: Want) -> Result<OwnedFd> {
        let Room { mut dir, mut notes } = self;
        for (n, name) in rest.iter().enumerate() {
            let want = if n + 1 == rest.len() { want } else { Want::Directory };
            if let Some(notes) = &mut notes {
                notes.add(name, want)?;
            }
            let made = create(&dir, name, want);
            if let (Some(notes), Err(_)) = (&notes, &made) {
                notes.take_back()?;
            }
            match made {
                // Another container may have made the same in a shared image.
                Ok(()) | Err(Errno::EXIST) => {}
                Err(e) => return Err(e).context(|| format!("make {}", Path::new(name).display())),
            }
            dir = fs::openat(&dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        }
        Ok(dir)
    }
}

fn may_make_in(dir: &OwnedFd) -> bool {
    crate::process::may_access(dir, libc::W_OK | libc::X_OK)
}

/// True where something is mounted below `dir`.
fn has_mounts_below(dir: &OwnedFd) -> Result<bool> {
    let path = fd::path_of(dir)?;
    Ok(mount::table()?.iter().any(|m| m.point != path && m.point.starts_with(&path)))
}

/// Where the host has the directory `dir`, which `mount` shows below `root`, the container's root. Proven to be it.
fn host_path(table: &[Mounted], mount: u64, dir: &OwnedFd, root: &Path) -> Option<PathBuf> {
    let shown = table.iter().rfind(|m| m.id == mount)?;
    let path = fd::path_of(dir).ok()?;
    let inside = shown.root.join(path.strip_prefix(&shown.point).ok()?);
    table.iter().filter(|m| m.device == shown.device && !m.point.starts_with(root)).find_map(|host| {
        let path = host.point.join(inside.strip_prefix(&host.root).ok()?);
        let found = fs::open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
        same_file(&found, dir).ok()?.then_some(path)
    })
}

/// Where a path ends in the root.
struct Missing {
    /// The deepest directory that exists.
    parent: OwnedFd,
    /// Its path in the root, free of links.
    done: PathBuf,
    /// What is missing below it.
    rest: Vec<OsString>,
}

fn components(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter_map(|c| match c {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some(OsString::from("..")),
            _ => None,
        })
        .collect()
}

fn mount_id(dir: &OwnedFd, name: &OsStr) -> Result<u64> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    Ok(fs::statx(dir, name, flags, fs::StatxFlags::MNT_ID)?.stx_mnt_id)
}

fn same_file(a: &OwnedFd, b: &OwnedFd) -> Result<bool> {
    let (a, b) = (fs::fstat(a)?, fs::fstat(b)?);
    Ok((a.st_dev, a.st_ino) == (b.st_dev, b.st_ino))
}

/// openat2(2) with everything that keeps a path inside `root`; repeated when a rename got in the way.
pub fn open_in(root: BorrowedFd<'_>, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    // An empty path would ask for the descriptor itself.
    let path = if path.as_os_str().is_empty() { Path::new("/") } else { path };
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..128 {
        match fs::openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
            Err(Errno::AGAIN) => {}
            result => return result,
        }
    }
    Err(Errno::AGAIN)
}

fn list(dir: &OwnedFd) -> Result<Vec<(OsString, FileType)>> {
    let readable = fs::openat(dir, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut entries = Vec::new();
    for entry in fs::Dir::new(readable)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => {
                FileType::from_raw_mode(fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode)
            }
            kind => kind,
        };
        entries.push((name.to_owned(), kind));
    }
    Ok(entries)
}

/// An overlay over `dir`, whose owner and mode are in `stat`, its upper layer in `tmpfs`, which is mounted on `dir` already.
fn cover_by_overlay(dir: &OwnedFd, stat: &fs::Stat, tmpfs: OwnedFd) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let part = |name: &str| -> Result<OwnedFd> {
        fs::mkdirat(&tmpfs, name, Mode::RWXU)?;
        Ok(fs::openat(&tmpfs, name, flags, Mode::empty())?)
    };
    let (upper, work) = (part("upper")?, part("work")?);
    // The overlay's root is as the upper layer's; a hook's umask does not count.
    fd::chown_like(&upper, stat);
    fs::chmodat(&tmpfs, "upper", Mode::from_raw_mode(stat.st_mode & 0o7777), AtFlags::empty())?;
    // The descriptors stand for the directories whatever is mounted on top of them.
    let path = |fd: &OwnedFd| format!("/proc/self/fd/{}", fd.as_raw_fd());
    let mut params = vec![
        Param::Value("lowerdir".into(), path(dir)),
        Param::Value("upperdir".into(), path(&upper)),
        Param::Value("workdir".into(), path(&work)),
    ];
    params.push(Param::Flag("userxattr".into()));
    let overlay =
        mount::new_fs("overlay", "overlay", &params, 0).context(|| "make an overlay for mount points")?;
    mount::attach(&overlay, &tmpfs)?;
    Ok(overlay)
}

/// File systems in which a new directory is an order to the kernel (statfs(2) magic numbers), or none can be made.
fn is_kernels(magic: u64) -> bool {
    matches!(
        magic,
        0x6367_7270         // cgroup2
        | 0x0027_e0eb       // cgroup
        | 0x6265_6570       // configfs
        | 0x0765_5821       // resctrl
        | 0x7472_6163       // tracefs
        | 0x6462_6720       // debugfs
        | SYSFS
        | PROC
    )
}

/// File systems on which other nodes may use the same image at the same time (statfs(2) magic numbers).
fn is_shared(magic: u64) -> bool {
    matches!(
        magic,
        0x6969              // NFS
        | 0x0bd0_0bd0       // Lustre
        | 0x4750_4653       // GPFS
        | 0x1983_0326       // BeeGFS
        | 0x00c3_6400       // Ceph
        | 0x6573_5546       // FUSE
        | 0xaad7_aaea       // PanFS
        | 0x5346_414f       // AFS
        | 0xfe53_4d42       // SMB2
        | 0x0102_1997       // 9P
        | 0x7461_636f // OCFS2
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(name: &str) -> (PathBuf, Rootfs<'static>) {
        let dir = std::env::temp_dir().join(format!("rt-rootfs-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(dir.join("a/b")).unwrap();
        let fd = fs::open(&dir, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let rootfs = Rootfs::new(fd, &dir, true, None);
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
