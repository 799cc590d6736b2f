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
use rt_sys::error::{Context, Result};
use rt_sys::mount::{self, Attr, Param, Recursive};
use rt_sys::ns::{self, Namespace, Namespaces};
use rt_sys::rootfs::{Image, MountPoint, Rootfs, Symlink, open_in};
use rt_sys::{bail, caps, fd};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStringExt;
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
        let root = open(&bundle.rootfs)?;
        let path = fd::path_of(&root).context(|| format!("rootfs {}", bundle.rootfs.display()))?;
        let mut rootfs = Rootfs::for_hook(root, Image { path: &path, readonly: bundle.readonly });
        let table = fd::read_file(Path::new("/proc/self/mountinfo")).context(|| "read the mount table")?;
        let mut opened = Vec::new();
        let mut own = HashSet::new();
        for mount in own_mounts(&table, &path) {
            let used = edits.places().any(|place| place.starts_with(&mount.path));
            if !used {
                continue;
            }
            let Ok(root) = rootfs.resolve(&mount.path) else { continue };
            let device = fs::fstat(&root)?.st_dev;
            if device != mount.device {
                continue;
            }
            if mount.readonly {
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

/// The same file, or the same device.
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
    device: u64,
    readonly: bool,
}

/// The tmpfs mounts below `rootfs` that are nowhere else: what is made in them belongs to this container only.
///
/// `table` is /proc/self/mountinfo. A tmpfs of the host that is bound into the container is seen twice there.
fn own_mounts(table: &[u8], rootfs: &Path) -> Vec<OwnMount> {
    let mut seen: HashMap<u64, usize> = HashMap::new();
    let mut all = Vec::new();
    for line in table.split(|&b| b == b'\n') {
        let mut fields = line.split(|&b| b == b' ');
        let (Some(numbers), Some(root), Some(point), Some(options)) =
            (fields.nth(2), fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let Some(device) = device_number(numbers) else { continue };
        let fstype = fields.skip_while(|f| *f != b"-").nth(1);
        let point = PathBuf::from(std::ffi::OsString::from_vec(mount::unescape(point)));
        let inside = point.strip_prefix(rootfs);
        // Parts of a tmpfs of the container's own may be bound within it.
        if inside.is_err() || root == b"/" {
            *seen.entry(device).or_default() += 1;
        }
        let Ok(inside) = inside else { continue };
        if fstype == Some(b"tmpfs") && root == b"/" {
            let readonly = options.split(|&b| b == b',').any(|o| o == b"ro");
            all.push(OwnMount { path: Path::new("/").join(inside), device, readonly });
        }
    }
    all.retain(|mount| seen.get(&mount.device) == Some(&1));
    all
}

/// `major:minor` as st_dev.
fn device_number(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let (major, minor) = text.split_once(':')?;
    Some(fs::makedev(major.parse().ok()?, minor.parse().ok()?))
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
";
        let mount = |path: &str, minor, readonly| OwnMount {
            path: path.into(),
            device: fs::makedev(0, minor),
            readonly,
        };
        assert_eq!(
            own_mounts(table, Path::new("/b/root fs")),
            [mount("/dev", 30, false), mount("/run", 31, true)]
        );
        assert!(own_mounts(b"garbage\n\n1 2 3\n", Path::new("/")).is_empty());
    }
}
