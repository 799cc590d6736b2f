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

use crate::bail;
use crate::error::{Context, Error, Result};
use crate::sys::mount::{self, Attr, Param};
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

/// What a mount point must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// A directory.
    Directory,
    /// Anything that is not a directory.
    File,
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
                crate::sys::fd::leave_open(fd);
                attached
            }
            Place::In(entry) => mount::attach_at(tree, entry.dir, entry.name),
        }
    }

    /// Shows the host's `source`, not a directory, here.
    pub fn bind(self, source: &Path) -> Result<()> {
        match self {
            Place::At(_) => {
                let tree = mount::clone_tree(fs::CWD, source, false, false)?;
                self.attach(&tree)?;
                crate::sys::fd::leave_open(tree);
                Ok(())
            }
            Place::In(entry) => Ok(mount::bind(source, entry.enter()?, false)?),
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
            crate::sys::fd::leave_open(fd);
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

/// The root of the container, mounted but not yet pivoted to.
#[derive(Debug)]
pub struct Rootfs {
    root: OwnedFd,
    /// Where the image is on the host.
    image: PathBuf,
    /// The image's directory, locked.
    held: Option<OwnedFd>,
    /// The image's own mount and device number (statx(2)), once they are needed: what is mounted in it later
    /// has another.
    base: Option<(u64, u64)>,
    /// The config wants the root read-only in the end.
    readonly: bool,
    own: Vec<Own>,
    /// Which of these is the working directory.
    entered: Cell<Option<usize>>,
    own_proc: bool,
    host_sys: bool,
    /// tmpfs and overlay mounts over directories that lacked something.
    covers: Vec<OwnedFd>,
    /// Where mount points made in the image itself are noted; `None` where none may be made.
    notes: Option<OwnedFd>,
    /// Somebody else holds the root's descriptor: what is mounted over the root itself would be lost.
    root_is_fixed: bool,
}

impl Rootfs {
    /// Takes the mounted tree `root` of the image at `image`. `state` is the container's state directory, for
    /// the notes.
    pub fn new(root: OwnedFd, image: &Path, readonly: bool, state: Option<BorrowedFd<'_>>) -> Result<Self> {
        let notes = match state {
            Some(dir) if !readonly => Some(dir.try_clone_to_owned()?),
            _ => None,
        };
        // Nobody removes mount points from the image while one of them may be about to be used.
        let held = match notes {
            Some(_) => open_image(image)
                .and_then(|dir| Ok(fs::flock(&dir, FlockOperation::LockShared).map(|()| dir)?))
                .ok(),
            None => None,
        };
        let image = image.to_owned();
        Ok(Rootfs {
            root,
            image,
            held,
            base: None,
            readonly,
            own: Vec::new(),
            entered: Cell::new(None),
            own_proc: false,
            host_sys: false,
            covers: Vec::new(),
            notes,
            root_is_fixed: false,
        })
    }

    /// The root of a container that a runtime has mounted and will pivot to: for hooks. Nothing is made in the
    /// image.
    pub fn of_container(root: OwnedFd, image: &Path, readonly: bool) -> Result<Self> {
        Ok(Rootfs { root_is_fixed: true, ..Self::new(root, image, readonly, None)? })
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
    pub fn place<'a>(&'a mut self, path: &'a Path, want: Want, nofollow: bool) -> Result<Place<'a>> {
        // In a directory that is the container's own most things are missing, and nothing is a link.
        match self.made_in_own(path, want) {
            Some((own, name)) => Ok(self.entry(own, name)),
            None => {
                // Who mounts there makes it the working directory.
                self.entered.set(None);
                self.target(path, want, nofollow).map(Place::At)
            }
        }
    }

    /// The same where `path` is missing in a directory of the container's own, and so was made just now.
    pub fn new_place<'a>(&'a self, path: &'a Path, want: Want) -> Option<Place<'a>> {
        self.made_in_own(path, want).map(|(own, name)| self.entry(own, name))
    }

    fn made_in_own<'a>(&self, path: &'a Path, want: Want) -> Option<(usize, &'a OsStr)> {
        let (dir, name) = split(path)?;
        let own = self.own.iter().position(|own| own.path.as_os_str() == dir)?;
        create(&self.own[own].root, name, want).ok().map(|()| (own, name))
    }

    fn entry<'a>(&'a self, own: usize, name: &'a OsStr) -> Place<'a> {
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
    pub fn target(&mut self, path: &Path, want: Want, nofollow: bool) -> Result<OwnedFd> {
        let flags = if nofollow { OFlags::PATH | OFlags::NOFOLLOW } else { OFlags::PATH };
        match self.open(path, flags) {
            Ok(fd) => return Ok(fd),
            Err(Errno::NOENT) => {}
            Err(e) => return Err(e.into()),
        }
        let Some(missing) = self.find_missing(path)? else { return Ok(self.resolve(path)?) };
        let parent = self.writable_place(missing.parent, &missing.done, &missing.rest, want)?;
        self.make(parent, &missing.rest, want)
    }

    /// Makes a symlink at `path` unless something is there already.
    pub fn symlink(&mut self, target: &str, path: &Path) -> Result<()> {
        let Some((dir, name)) = split(path) else { return Ok(()) };
        if let Some(own) = self.own.iter().find(|own| own.path.as_os_str() == dir)
            && fs::symlinkat(target, &own.root, name).is_ok()
        {
            return Ok(());
        }
        let dir = self.target(Path::new(dir), Want::Directory, false)?;
        match fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => {}
            Ok(_) => return Ok(()),
            Err(e) => return Err(e.into()),
        }
        let Some(missing) = self.find_missing(path)? else { return Ok(()) };
        let parent = self.writable_place(missing.parent, &missing.done, &missing.rest, Want::File)?;
        Ok(fs::symlinkat(target, parent, name)?)
    }

    /// Says that `root` is a file system made for this container, mounted at `path`.
    pub fn add_own(&mut self, root: OwnedFd, path: &Path) {
        self.own.push(Own { path: path.to_owned(), root });
    }

    /// Makes the directory `path` where it is missing, and looks it up once for all that will be made in it, where it
    /// is in a file system of this container's own.
    pub fn add_own_dir(&mut self, path: &Path) -> Result<()> {
        if self.own.iter().any(|own| own.path == path) {
            return Ok(());
        }
        let dir = self.target(path, Want::Directory, false)?;
        if self.is_own(fs::fstat(&dir)?.st_dev)? {
            self.add_own(dir, path);
        }
        Ok(())
    }

    /// True where `device` is a file system of this container's own.
    fn is_own(&self, device: u64) -> Result<bool> {
        for own in &self.own {
            if fs::fstat(&own.root)?.st_dev == device {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Says that a proc file system of the container's own is at /proc.
    pub fn add_proc(&mut self) {
        self.own_proc = true;
    }

    /// Says that the host's /sys is at /sys, with all that is mounted in it.
    pub fn add_host_sys(&mut self) {
        self.host_sys = true;
    }

    /// True while it is there, and nothing has been mounted over a part of it.
    pub fn has_host_sys(&self) -> bool {
        self.host_sys
    }

    /// The container's own proc file system, where it is at /proc.
    pub fn own_proc(&self) -> Option<OwnedFd> {
        let proc = self.own_proc.then(|| self.resolve(Path::new("/proc")).ok()).flatten()?;
        crate::sys::fd::require_proc(&proc).ok().map(|()| proc)
    }

    /// Says that something has been mounted at `path`: what was the container's own there is hidden.
    pub fn covered(&mut self, path: &Path) {
        self.own
            .iter_mut()
            .filter(|own| is_at_or_below(&own.path, path))
            .for_each(|own| own.path = PathBuf::new());
        self.own_proc &= !is_at_or_below(Path::new("/proc"), path);
        let sys = Path::new("/sys");
        self.host_sys &= !is_at_or_below(sys, path) && !is_at_or_below(path, sys);
    }

    /// Mount id and device number of the image itself.
    fn base(&mut self) -> Result<(u64, u64)> {
        if let Some(base) = self.base {
            return Ok(base);
        }
        let base = (mount_id(&self.root, OsStr::new(""))?, fs::fstat(&self.root)?.st_dev);
        self.base = Some(base);
        Ok(base)
    }

    /// Lets others remove what is not used in the image: everything is mounted.
    pub fn release(&mut self) {
        self.held = None;
    }

    /// Makes the root and what covers parts of it read-only, where the config wants that.
    pub fn finish(&self) -> Result<()> {
        self.finish_covers()?;
        if self.readonly { make_readonly(&self.root) } else { Ok(()) }
    }

    /// The same for what covers parts of the root, not for the root itself.
    pub fn finish_covers(&self) -> Result<()> {
        if self.readonly { self.covers.iter().try_for_each(make_readonly) } else { Ok(()) }
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

    /// A directory equal to `parent` in which entries can be made without changing the image, or the image's
    /// own where that may be changed.
    fn writable_place(
        &mut self,
        parent: OwnedFd,
        done: &Path,
        rest: &[OsString],
        want: Want,
    ) -> Result<OwnedFd> {
        let device = fs::fstat(&parent)?.st_dev;
        if self.is_own(device)? {
            return Ok(parent);
        }
        if device == self.base()?.1 && self.note_in_image(&parent, done, rest, want)? {
            return Ok(parent);
        }
        self.cover(parent)
    }

    /// True where the image's own directory may be changed; what will be made there is noted first, so that
    /// nothing stays behind whatever happens next.
    fn note_in_image(&self, parent: &OwnedFd, done: &Path, rest: &[OsString], want: Want) -> Result<bool> {
        let (Some(state), Some(held)) = (&self.notes, &self.held) else { return Ok(false) };
        if is_shared(fs::fstatfs(parent)?.f_type as u64)
            || !crate::sys::process::may_access(parent, libc::W_OK | libc::X_OK)
        {
            return Ok(false);
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let stat = fs::fstat(held)?;
        let list = format!("../{IMAGES}/{:x}-{:x}", stat.st_dev, stat.st_ino);
        let open = || fs::openat(state, list.as_str(), flags, Mode::RUSR | Mode::WUSR);
        let notes = open().or_else(|_| {
            let _ = fs::mkdirat(state, format!("../{IMAGES}").as_str(), Mode::RWXU);
            open()
        });
        let Ok(notes) = notes else { return Ok(false) };
        let mut path = done.to_owned();
        let mut text = Vec::new();
        text.push(b'r');
        text.extend_from_slice(self.image.as_os_str().as_bytes());
        text.push(0);
        for (n, name) in rest.iter().enumerate() {
            path.push(name);
            let last = n + 1 == rest.len();
            text.push(if last && want == Want::File { b'f' } else { b'd' });
            text.extend_from_slice(path.as_os_str().as_bytes());
            text.push(0);
        }
        rustix::io::write(&notes, &text).context(|| "note a new mount point")?;
        Ok(true)
    }

    /// Makes the directories `rest`, the last one as `want` says, and returns the last.
    fn make(&self, parent: OwnedFd, rest: &[OsString], want: Want) -> Result<OwnedFd> {
        let mut dir = parent;
        for (n, name) in rest.iter().enumerate() {
            let last = n + 1 == rest.len();
            match create(&dir, name, if last { want } else { Want::Directory }) {
                // Another container may have made the same in a shared image.
                Ok(()) | Err(Errno::EXIST) => {}
                Err(e) => return Err(Error::from(e).context(format!("make {}", Path::new(name).display()))),
            }
            dir = fs::openat(&dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        }
        Ok(dir)
    }

    /// Covers the directory `dir` with a file system that shows the same and can hold more.
    ///
    /// What is mounted below `dir` already is bound along.
    fn cover(&mut self, dir: OwnedFd) -> Result<OwnedFd> {
        let is_root = same_file(&dir, &self.root)?;
        if is_root && self.root_is_fixed {
            bail!("the image lacks a directory at its root, where a hook can add none (add it to the image)");
        }
        let image = self.base()?.0;
        let entries = list(&dir).context(|| "list a directory that lacks a mount point")?;
        let mode = fs::fstat(&dir)?.st_mode & 0o7777;
        let params = [Param::Value("mode".into(), format!("{mode:o}"))];
        let tmpfs =
            mount::new_fs("tmpfs", Some("tmpfs"), &params, 0).context(|| "make a tmpfs for mount points")?;
        let cover = if entries.len() > MOST_BINDS {
            mount::attach(&tmpfs, &dir)?;
            cover_by_overlay(&dir, tmpfs)?
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
        // Its path is not looked for: what is in it was the image's, links among it.
        self.add_own(cover.try_clone()?, Path::new(""));
        self.covers.push(cover.try_clone()?);
        if is_root {
            self.root = cover.try_clone()?;
        }
        Ok(cover)
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
            let tree = mount::clone_tree(dir, Path::new(&name), true, true)
                .context(|| format!("bind {}", Path::new(&name).display()))?;
            if self.readonly && mount_id(dir, &name)? == image {
                mount::set_attr(&tree, false, Attr { set: mount::ATTR_RDONLY, ..Attr::default() })?;
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
    let readonly = Attr { set: mount::ATTR_RDONLY, ..Attr::default() };
    mount::set_attr(mount, false, readonly).context(|| "make the root read-only")
}

fn create(dir: &OwnedFd, name: &OsStr, want: Want) -> Result<(), Errno> {
    match want {
        Want::File => fs::mknodat(dir, name, FileType::RegularFile, Mode::from_raw_mode(0o644), 0),
        Want::Directory => fs::mkdirat(dir, name, Mode::from_raw_mode(0o755)),
    }
}

/// The directory, in the state directory, with a list per image of the mount points made in it.
pub const IMAGES: &str = ".images";

/// The images that the list `created` of mount points is about.
pub fn images_of(created: &[u8]) -> Vec<PathBuf> {
    let mut images: Vec<PathBuf> =
        created.split(|&b| b == 0).filter(|e| e.first() == Some(&b'r')).map(note_path).collect();
    images.dedup();
    images
}

fn note_path(note: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(&note[1..]))
}

/// The images, locked against containers that are being set up in them; `None` where that takes too long.
pub fn hold_image(images: &[PathBuf]) -> Option<Vec<OwnedFd>> {
    let mut held = Vec::new();
    for image in images {
        let Ok(dir) = open_image(image) else { continue };
        let mut tries = 0;
        while fs::flock(&dir, FlockOperation::NonBlockingLockExclusive).is_err() {
            tries += 1;
            if tries > 5000 {
                return None;
            }
            let pause = rustix::time::Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
            let _ = rustix::thread::nanosleep(&pause);
        }
        held.push(dir);
    }
    Some(held)
}

fn open_image(image: &Path) -> Result<OwnedFd> {
    Ok(fs::open(image, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Removes the mount points that the list `created` names from their image, where they are still empty.
pub fn remove_created(created: &[u8]) -> Result<()> {
    let Some(image) = images_of(created).pop() else { return Ok(()) };
    let root = fs::open(image, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    for note in created.split(|&b| b == 0).rev().filter(|e| e.len() > 1) {
        let path = note_path(note);
        let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else { continue };
        let Ok(dir) = open_in(root.as_fd(), dir, OFlags::PATH | OFlags::DIRECTORY) else { continue };
        match note[0] {
            b'd' => {
                let _ = fs::unlinkat(&dir, name, AtFlags::REMOVEDIR);
            }
            b'f' => {
                let empty_file = fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|s| {
                    s.st_size == 0 && FileType::from_raw_mode(s.st_mode) == FileType::RegularFile
                });
                if empty_file {
                    let _ = fs::unlinkat(&dir, name, AtFlags::empty());
                }
            }
            _ => {}
        }
    }
    Ok(())
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

/// An overlay over `dir`, its upper layer in `tmpfs`, which is mounted on `dir` already.
fn cover_by_overlay(dir: &OwnedFd, tmpfs: OwnedFd) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let part = |name: &str| -> Result<OwnedFd> {
        let mode = Mode::from_raw_mode(fs::fstat(dir)?.st_mode & 0o7777);
        fs::mkdirat(&tmpfs, name, mode)?;
        Ok(fs::openat(&tmpfs, name, flags, Mode::empty())?)
    };
    let (upper, work) = (part("upper")?, part("work")?);
    // The descriptors stand for the directories whatever is mounted on top of them.
    let path = |fd: &OwnedFd| format!("/proc/self/fd/{}", fd.as_raw_fd());
    let mut params = vec![
        Param::Value("lowerdir".into(), path(dir)),
        Param::Value("upperdir".into(), path(&upper)),
        Param::Value("workdir".into(), path(&work)),
    ];
    params.push(Param::Flag("userxattr".into()));
    let overlay = mount::new_fs("overlay", Some("overlay"), &params, 0)
        .context(|| "make an overlay for mount points")?;
    mount::attach(&overlay, &tmpfs)?;
    Ok(overlay)
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

    fn image(name: &str) -> (PathBuf, Rootfs) {
        let dir = std::env::temp_dir().join(format!("rt-rootfs-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(dir.join("a/b")).unwrap();
        let fd = fs::open(&dir, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let rootfs = Rootfs::new(fd, &dir, true, None).unwrap();
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
