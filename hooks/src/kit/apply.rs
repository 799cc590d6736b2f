//! Applying [`Edits`] to a container that has its mounts but not yet its root (before pivot_root).
//!
//! The hook joins the user namespace and mount namespace of the container's first process. There it still sees the
//! host's files, and has the privilege to mount (CAP_SYS_ADMIN) even if a plain user calls. Every place in the container
//! is a descriptor that was resolved inside the root. The image is not written: new files are in a tmpfs of the
//! container.
//!
//! An engine and the runtime may both run the hook, so each edit first looks whether it has been done.

use super::bundle::{Bundle, State};
use super::edits::{Access, Bind, Edits, NewFile};
use super::tree::Tree;
use rt_sys::error::{Context, Result};
use rt_sys::mount::{self, Attr, Mounted, Param, Recursive};
use rt_sys::ns::{self, Namespace, Namespaces};
use rt_sys::rootfs::{Image, MountPoint, Rootfs, Symlink, open_in};
use rt_sys::{bail, caps, fd};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, FileType, Mode, OFlags, Stat, StatxAttributes};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::iter;
use std::path::{Path, PathBuf};

/// Moves this process into the user and mount namespace of the container.
pub(crate) fn enter(state: &State, bundle: &Bundle) -> Result<()> {
    if !bundle.has_mount_namespace {
        bail!("the container has no mount namespace of its own (add one to linux.namespaces in config.json)");
    }
    let proc = fd::open_proc()?;
    let pid = state.pid.to_string();
    let differs = |kind: Namespace| -> Result<bool> {
        let other = ns::id(&proc, &pid, kind).context(|| format!("look at the container's process {pid}"))?;
        Ok(other != ns::id(&proc, "self", kind)?)
    };
    let mut foreign = Namespaces::NONE;
    for kind in [Namespace::User, Namespace::Mount] {
        if differs(kind)? {
            foreign = foreign.with(kind);
        }
    }
    // Hooks of the stage createContainer run in these namespaces already.
    if foreign.is_empty() {
        return Ok(());
    }
    let Some(process) = Pid::from_raw(state.pid) else { bail!("the container's state has no pid") };
    let pidfd = rustix::process::pidfd_open(process, PidfdFlags::empty()).context(|| "open the container")?;
    ns::join(&pidfd, foreign).context(|| "join the container's user and mount namespace")?;
    if foreign.contains(Namespace::User) && rustix::process::getuid().as_raw() != 0 && !is_mapped()? {
        become_root()?;
    }
    Ok(())
}

/// True where the user of this process exists in its user namespace.
fn is_mapped() -> Result<bool> {
    let overflow = std::fs::read_to_string("/proc/sys/kernel/overflowuid").unwrap_or_default();
    Ok(overflow.trim() != rustix::process::getuid().as_raw().to_string())
}

/// Makes this process root of its user namespace. The kernel lets no process make files whose id is not mapped
/// (EOVERFLOW).
fn become_root() -> Result<()> {
    let (uid, gid) = (fs::Uid::ROOT, fs::Gid::ROOT);
    rustix::thread::set_keep_capabilities(true)?;
    rustix::thread::set_thread_res_gid(gid, gid, gid).context(|| "become the container's root group")?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).context(|| "become the container's root")?;
    caps::raise()
}

/// Applies `edits` to the container of `bundle`, into whose namespaces this process has moved. Sources are below
/// `host`.
pub(crate) fn apply(edits: &Edits, bundle: &Bundle, host: &Path) -> Result<()> {
    if edits.is_empty() {
        return Ok(());
    }
    let mut root = ContainerRoot::open(edits, bundle, host)?;
    let result = root.apply(edits);
    // Also after a failure: some engines run the container nevertheless, and its mounts must be read-only again.
    let closed = root.close();
    result.and(closed)
}

/// The container's root while it is being changed.
struct ContainerRoot {
    rootfs: Rootfs<'static>,
    host: OwnedFd,
    /// tmpfs mounts of the container that were read-only, and will be again.
    opened: Vec<OwnedFd>,
    /// Where new files are made, and how many there are.
    files: Option<OwnedFd>,
    made: usize,
    /// Device numbers of the container's own file systems.
    own: HashSet<u64>,
}

impl ContainerRoot {
    fn open(edits: &Edits, bundle: &Bundle, host: &Path) -> Result<ContainerRoot> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open =
            |path: &Path| fs::open(path, flags, Mode::empty()).context(|| format!("open {}", path.display()));
        let root = bundle.open_root()?;
        let path = fd::path_of(&root).context(|| format!("rootfs {}", bundle.rootfs.display()))?;
        let mut rootfs = Rootfs::for_hook(root, Image { path: &path, readonly: bundle.readonly });
        let mut opened = Vec::new();
        let mut own = HashSet::new();
        for mount in own_mounts(&mount::table()?, &path) {
            let used = edits.places().any(|place| place.starts_with(&mount.path));
            if !used {
                continue;
            }
            let Ok(root) = rootfs.resolve(&mount.path) else { continue };
            let device = fs::fstat(&root)?.st_dev;
            if number(device) != mount.device {
                continue;
            }
            // Where it is mounted several times, this is the one that is seen there.
            if fs::fstatvfs(&root)?.f_flag.contains(fs::StatVfsMountFlags::RDONLY) {
                // A mount that was locked with its namespace stays read-only. What must be made in it then fails by itself.
                if mount::set_attr(&root, Recursive::No, Attr::clearing(mount::ATTR_RDONLY)).is_ok() {
                    opened.push(root.try_clone()?);
                }
            }
            own.insert(device);
            rootfs.add_own_fs(root, &mount.path);
        }
        Ok(ContainerRoot { rootfs, host: open(host)?, opened, files: None, made: 0, own })
    }

    fn apply(&mut self, edits: &Edits) -> Result<()> {
        if let Some(private) = &edits.private {
            self.cover(private).context(|| format!("make {}", private.display()))?;
        }
        for path in &edits.masks {
            self.cover(path).context(|| format!("hide {}", path.display()))?;
        }
        for bind in edits.devices.iter().chain(&edits.binds) {
            self.bind(bind).context(|| {
                format!("bind {} at {} in the container", bind.source.display(), bind.path.display())
            })?;
        }
        for file in &edits.files {
            self.file(edits, file).context(|| format!("make {} in the container", file.path.display()))?;
        }
        for link in &edits.links {
            let text = link.target.to_string_lossy();
            self.prepare(&link.path)
                .and_then(|()| self.rootfs.symlink(&text, &link.path))
                .context(|| format!("make the link {} in the container", link.path.display()))?;
        }
        Ok(())
    }

    /// The directory in which something will be made.
    fn prepare(&mut self, path: &Path) -> Result<()> {
        path.parent().map_or(Ok(()), |dir| self.rootfs.add_own_dir(dir))
    }

    /// Makes an empty directory at `path` that is this container's own, unless that has been done.
    fn cover(&mut self, path: &Path) -> Result<()> {
        match self.rootfs.resolve(path) {
            // A missing directory is made in the cover of its parent, and needs no tmpfs of its own.
            Err(Errno::NOENT) => return self.rootfs.add_own_dir(path),
            Ok(there) if self.own.contains(&fs::fstat(&there)?.st_dev) => return Ok(()),
            _ => {}
        }
        // The image is other containers' too, and nothing is written to it.
        let params = [Param::Value("mode".into(), "755".into())];
        let attr = mount::ATTR_NOSUID | mount::ATTR_NODEV;
        let tmpfs = mount::new_fs("tmpfs", "tmpfs", &params, attr).context(|| "make a tmpfs")?;
        self.rootfs.place(path, MountPoint::Directory, Symlink::Follow)?.attach(&tmpfs)?;
        self.rootfs.mounted_over(path);
        self.own.insert(fs::fstat(&tmpfs)?.st_dev);
        self.rootfs.add_own_fs(tmpfs, path);
        Ok(())
    }

    fn bind(&mut self, bind: &Bind) -> Result<()> {
        let source = open_in(self.host.as_fd(), &bind.source, OFlags::PATH)?;
        let stat = fs::fstat(&source)?;
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        let want = if is_directory { MountPoint::Directory } else { MountPoint::File };
        self.prepare(&bind.path)?;
        let place = self.rootfs.new_place(&bind.path, want);
        if place.is_none() {
            let there = self.rootfs.resolve(&bind.path);
            if there.is_ok_and(|there| fs::fstat(&there).is_ok_and(|s| same(&s, &stat))) {
                return Ok(());
            }
        }
        let tree = clone(&source, want)?;
        if bind.access == Access::ReadOnly {
            restrict(&tree, want)?;
        }
        let attached = match place {
            Some(place) => place.attach(&tree),
            None => self.rootfs.place(&bind.path, want, Symlink::Follow)?.attach(&tree),
        };
        match attached {
            Err(e) if e.is(libc::EINVAL) => bail!("the image has something of another kind there"),
            attached => attached?,
        }
        [source, tree].into_iter().for_each(fd::leave_open);
        Ok(())
    }

    /// Makes a new file: by writing it where the directory is of the container's own file systems, else in the private
    /// directory, from where it is bound to its place.
    fn file(&mut self, edits: &Edits, file: &NewFile) -> Result<()> {
        match self.rootfs.open(&file.path, OFlags::RDONLY | OFlags::NONBLOCK) {
            Ok(there) => {
                if contents(&there, file.contents.len()).is_some_and(|c| c == file.contents) {
                    return Ok(());
                }
            }
            Err(Errno::NOENT | Errno::NOTDIR) => {
                let parent = file.path.parent().unwrap_or(Path::new("/"));
                let name = file.path.file_name().unwrap_or_default();
                if let Ok(dir) = self.rootfs.resolve(parent)
                    && self.own.contains(&fs::fstat(&dir)?.st_dev)
                {
                    return write_new(&dir, name, &file.contents);
                }
            }
            Err(e) => return Err(e.into()),
        }
        let Some(private) = &edits.private else { bail!("there is no place for new files") };
        if self.files.is_none() {
            self.files = Some(self.rootfs.resolve_or_make(
                &private.join("files"),
                MountPoint::Directory,
                Symlink::Follow,
            )?);
        }
        let Some(dir) = &self.files else { bail!("there is no place for new files") };
        let name = format!("{}-{}", self.made, file.path.file_name().unwrap_or_default().to_string_lossy());
        self.made += 1;
        write_new(dir, OsStr::new(&name), &file.contents)?;
        let made = fs::openat(dir, &*name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let tree = mount::clone_fd(&made, Recursive::No)?;
        restrict(&tree, MountPoint::File)?;
        self.prepare(&file.path)?;
        self.rootfs.place(&file.path, MountPoint::File, Symlink::Follow)?.attach(&tree)
    }

    fn close(&self) -> Result<()> {
        self.rootfs.finish_covers()?;
        self.opened.iter().try_for_each(|fd| mount::set_attr(fd, Recursive::No, Attr::READONLY))
    }
}

/// A detached copy of the mount of `source`, a file or a directory.
///
/// open_tree(2) refuses with EINVAL to clone a directory alone where mounts below it are locked, because what they hide
/// would show. Then they are cloned along.
fn clone(source: &OwnedFd, kind: MountPoint) -> Result<OwnedFd> {
    match mount::clone_fd(source, Recursive::No) {
        Err(e) if kind == MountPoint::Directory && e.is(libc::EINVAL) => {
            mount::clone_fd(source, Recursive::Yes)
        }
        tree => tree,
    }
}

/// Makes a detached mount read-only, without set-user-ID programs and devices; that of a directory with what is mounted
/// below.
fn restrict(tree: &OwnedFd, kind: MountPoint) -> Result<()> {
    let recursive = if kind == MountPoint::Directory { Recursive::Yes } else { Recursive::No };
    let set = mount::ATTR_RDONLY | mount::ATTR_NOSUID | mount::ATTR_NODEV;
    mount::set_attr(tree, recursive, Attr::setting(set))
}

/// True for one file, or two nodes of one device.
fn same(a: &Stat, b: &Stat) -> bool {
    let kind = |s: &Stat| FileType::from_raw_mode(s.st_mode);
    let device = |s: &Stat| matches!(kind(s), FileType::CharacterDevice | FileType::BlockDevice);
    (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)
        || (device(a) && device(b) && kind(a) == kind(b) && a.st_rdev == b.st_rdev)
}

/// What is in a regular file of that size.
fn contents(file: &OwnedFd, size: usize) -> Option<Vec<u8>> {
    let stat = fs::fstat(file).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || stat.st_size as usize != size {
        return None;
    }
    let mut bytes = vec![0; size];
    let n = rustix::io::pread(file, &mut bytes, 0).ok()?;
    (n == size).then_some(bytes)
}

fn write_new(dir: &OwnedFd, name: &OsStr, contents: &[u8]) -> Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = fs::openat(dir, name, flags, Mode::from_raw_mode(0o644))?;
    // The umask must not keep the container's users from reading it.
    fs::fchmod(&file, Mode::from_raw_mode(0o644))?;
    fd::write_all(&file, contents)
}

/// A file system that was made for this container.
#[derive(Debug, PartialEq, Eq)]
struct OwnMount {
    /// In the container.
    path: PathBuf,
    device: Vec<u8>,
}

/// True where `place` is a directory that is no bind's: the image's, where a hook makes things
/// in a cover, or a tmpfs of the container's own. A link is neither.
pub(super) fn is_own(container: &Tree, place: &Path) -> bool {
    let Some(found) = container.directory(place) else { return false };
    if !found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
        return true;
    }
    let (Ok(table), Some(root)) = (mount::table(), container.shown()) else { return false };
    let device = number(fs::makedev(found.stx_dev_major, found.stx_dev_minor));
    mount::shows_piece(&table, found.stx_mnt_id, root)
        || own_mounts(&table, root).contains(&OwnMount { path: place.to_owned(), device })
}

/// The tmpfs mounts of the container that are nowhere else: what is made in them belongs to this container only.
///
/// A tmpfs of the host that is bound into the container, or is a part of the image, is seen outside the container's root, too.
/// One of the container's own may be seen several times in the root: a cover copies what is mounted below it, and a bind of a
/// directory that has the bundle in it brings the root along, with what is mounted there.
fn own_mounts(table: &[Mounted], rootfs: &Path) -> Vec<OwnMount> {
    let Some(root) = containers_root(table, rootfs) else { return Vec::new() };
    let parents: HashMap<u64, u64> = table.iter().map(|line| (line.id, line.parent)).collect();
    // The lines are in no order. A table that is read in pieces could also show a loop.
    let is_inside = |line: &Mounted| {
        let up = iter::successors(Some(line.id), |id| parents.get(id).copied());
        up.take(table.len()).any(|id| id == root)
    };
    let (inside, outside): (Vec<_>, Vec<_>) = table.iter().partition(|line| is_inside(line));
    let elsewhere: HashSet<&[u8]> = outside.iter().map(|line| &*line.device).collect();
    let mut all = Vec::new();
    for line in inside {
        if line.fstype == b"tmpfs"
            && line.root == Path::new("/")
            && !elsewhere.contains(&*line.device)
            && let Ok(path) = line.point.strip_prefix(rootfs)
        {
            let mount = OwnMount { path: Path::new("/").join(path), device: line.device.clone() };
            if !all.contains(&mount) {
                all.push(mount);
            }
        }
    }
    all
}

/// The mount that the runtime has made of the image, on which all else of the container is mounted: the lowest one at
/// `rootfs`, or the one on it that shows the same, where the image is a mount of the host's.
fn containers_root(table: &[Mounted], rootfs: &Path) -> Option<u64> {
    let there = || table.iter().filter(|line| line.point == rootfs);
    let lowest = there().find(|line| !there().any(|below| below.id == line.parent))?;
    let shows_the_same = |line: &&Mounted| {
        line.parent == lowest.id && (&line.device, &line.root) == (&lowest.device, &lowest.root)
    };
    Some(there().find(shows_the_same).unwrap_or(lowest).id)
}

/// A device number as the mount table has it.
fn number(device: u64) -> Vec<u8> {
    format!("{}:{}", fs::major(device), fs::minor(device)).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_mounts_are_those_that_the_host_has_not() {
        let table = b"\
1 0 8:1 / / rw - ext4 /dev/sda rw
2 1 0:20 / /dev/shm rw,nosuid - tmpfs tmpfs rw
3 1 8:1 /b/rootfs /b/root\\040fs rw - ext4 /dev/sda rw
4 3 0:30 / /b/root\\040fs/dev rw,nosuid - tmpfs tmpfs rw
5 4 0:20 / /b/root\\040fs/dev/shm rw - tmpfs tmpfs rw
6 3 0:31 / /b/root\\040fs/run ro - tmpfs tmpfs rw
7 3 0:32 / /b/root\\040fs/proc rw - proc proc rw
8 6 0:31 /part /b/root\\040fs/run/part rw - tmpfs tmpfs rw
9 3 8:1 /b /b/root\\040fs/b rw - ext4 /dev/sda rw
10 9 0:31 / /b/root\\040fs/b/root\\040fs/run ro - tmpfs tmpfs rw
11 3 0:33 / /b/root\\040fs rw - tmpfs tmpfs rw
12 11 0:31 / /b/root\\040fs/run ro - tmpfs tmpfs rw
13 1 0:34 / /b/root\\040fs/image rw - tmpfs tmpfs rw
14 3 0:34 / /b/root\\040fs/image rw - tmpfs tmpfs rw
";
        let mount = |path: &str, minor| OwnMount { path: path.into(), device: number(fs::makedev(0, minor)) };
        assert_eq!(
            own_mounts(&mount::parse_table(table), Path::new("/b/root fs")),
            [mount("/dev", 30), mount("/run", 31), mount("/b/root fs/run", 31), mount("/", 33)]
        );
        // The image is itself a tmpfs of the host's.
        let table = b"\
1 0 8:1 / / rw - ext4 /dev/sda rw
2 1 0:20 / /b/rootfs rw - tmpfs tmpfs rw
3 2 0:20 / /b/rootfs rw - tmpfs tmpfs rw
4 3 0:30 / /b/rootfs/run rw - tmpfs tmpfs rw
";
        assert_eq!(own_mounts(&mount::parse_table(table), Path::new("/b/rootfs")), [mount("/run", 30)]);
        assert!(own_mounts(&mount::parse_table(b"garbage\n\n1 2 3\n"), Path::new("/")).is_empty());
    }
}
