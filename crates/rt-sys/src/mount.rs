//! The mount API of Linux 5.2 and later: mount_setattr(2), and fsopen(2) with its error log.

use super::ns::{Namespace, Namespaces};
use super::{check, process};
use crate::error::{Context, Error, Result};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs;
use rustix::mount::{
    self, FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, OpenTreeFlags,
};
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// `MOUNT_ATTR_IDMAP` (linux/mount.h): the mount translates ids through a user namespace.
const ATTR_IDMAP: u64 = 0x0010_0000;
/// `MOUNT_ATTR_RDONLY`.
pub const ATTR_RDONLY: u64 = 0x0000_0001;
/// `MOUNT_ATTR_NOSUID`.
pub const ATTR_NOSUID: u64 = 0x0000_0002;
/// `MOUNT_ATTR_NODEV`.
pub const ATTR_NODEV: u64 = 0x0000_0004;
/// `MOUNT_ATTR_NOEXEC`.
pub const ATTR_NOEXEC: u64 = 0x0000_0008;
/// `MOUNT_ATTR__ATIME`: the bits of the access time policy.
pub const ATTR_ATIME: u64 = 0x0000_0070;
/// `MOUNT_ATTR_NOATIME`.
pub const ATTR_NOATIME: u64 = 0x0000_0010;
/// `MOUNT_ATTR_STRICTATIME`.
pub const ATTR_STRICTATIME: u64 = 0x0000_0020;
/// `MOUNT_ATTR_NODIRATIME`.
pub const ATTR_NODIRATIME: u64 = 0x0000_0080;
/// `MOUNT_ATTR_NOSYMFOLLOW`.
pub const ATTR_NOSYMFOLLOW: u64 = 0x0020_0000;

/// Whether a call is about one mount alone, or also about everything that is mounted below it (AT_RECURSIVE).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recursive {
    /// The mount alone.
    #[default]
    No,
    /// The mount and all below it.
    Yes,
}

/// What a path stands for whose last part is a symbolic link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Follow {
    /// What the link leads to.
    #[default]
    Links,
    /// The link itself.
    Not,
}

/// The propagation type of a mount (mount_namespaces(7)): where mounts that are made below it appear too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum PropagationType {
    /// In every copy of the mount, and from there here.
    Shared = libc::MS_SHARED,
    /// What is made below the mount that this one was copied from appears here, and not the other way round.
    Slave = libc::MS_SLAVE,
    /// Nowhere.
    Private = libc::MS_PRIVATE,
    /// Nowhere, and the mount cannot be bound.
    Unbindable = libc::MS_UNBINDABLE,
}

/// A change of propagation types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Propagation {
    /// What the mounts become.
    pub kind: PropagationType,
    /// Which mounts.
    pub recursive: Recursive,
}

/// What mount_setattr(2) changes on a mount or, recursively, on a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attr {
    /// `MOUNT_ATTR_*` bits to set.
    pub set: u64,
    /// `MOUNT_ATTR_*` bits to clear.
    pub clear: u64,
    /// The new propagation type.
    pub propagation: Option<PropagationType>,
}

impl Attr {
    /// Read-only.
    pub const READONLY: Attr = Attr::setting(ATTR_RDONLY);
    /// A slave of the mount that it was copied from.
    pub const SLAVE: Attr = Attr::propagating(PropagationType::Slave);

    /// Sets these bits and leaves the rest.
    pub const fn setting(bits: u64) -> Attr {
        Attr { set: bits, clear: 0, propagation: None }
    }

    /// Clears these bits and leaves the rest.
    pub const fn clearing(bits: u64) -> Attr {
        Attr { set: 0, clear: bits, propagation: None }
    }

    /// Changes the propagation type alone.
    pub const fn propagating(kind: PropagationType) -> Attr {
        Attr { set: 0, clear: 0, propagation: Some(kind) }
    }

    /// True where nothing would change.
    pub fn is_empty(&self) -> bool {
        *self == Attr::default()
    }

    fn raw(self) -> libc::mount_attr {
        libc::mount_attr {
            attr_set: self.set,
            attr_clr: self.clear,
            propagation: self.propagation.map_or(0, |kind| kind as u64),
            userns_fd: 0,
        }
    }
}

fn setattr(dir: BorrowedFd<'_>, path: &OsStr, recursive: Recursive, attr: libc::mount_attr) -> Result<()> {
    let path = CString::new(path.as_bytes()).map_err(|_| Error::from_errno(libc::EINVAL))?;
    let flags = libc::AT_EMPTY_PATH
        | match recursive {
            Recursive::Yes => libc::AT_RECURSIVE,
            Recursive::No => 0,
        };
    // SAFETY: the path is a C string, `attr` lives over the call and its size is given.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            dir.as_raw_fd(),
            path.as_ptr(),
            flags,
            &raw const attr,
            size_of::<libc::mount_attr>(),
        )
    })?;
    Ok(())
}

/// Changes the attributes of the mount that `fd` is the root of.
pub fn set_attr(fd: impl AsFd, recursive: Recursive, attr: Attr) -> Result<()> {
    setattr(fd.as_fd(), OsStr::new(""), recursive, attr.raw())
}

/// Changes the attributes of the mount at the entry `name` of `dir`.
pub fn set_attr_at(dir: impl AsFd, name: &OsStr, recursive: Recursive, attr: Attr) -> Result<()> {
    setattr(dir.as_fd(), name, recursive, attr.raw())
}

/// Makes a detached mount translate ids through the user namespace `userns`.
pub fn set_idmap(fd: impl AsFd, recursive: Recursive, userns: impl AsFd) -> Result<()> {
    let userns_fd = userns.as_fd().as_raw_fd() as u64;
    let attr = libc::mount_attr { userns_fd, ..Attr::setting(ATTR_IDMAP).raw() };
    setattr(fd.as_fd(), OsStr::new(""), recursive, attr)
}

/// A detached copy of the mount at `path`, cut to what is below it.
pub fn clone_path(path: &Path, recursive: Recursive, follow: Follow) -> Result<OwnedFd> {
    let nofollow = match follow {
        Follow::Links => OpenTreeFlags::empty(),
        Follow::Not => OpenTreeFlags::AT_SYMLINK_NOFOLLOW,
    };
    open_tree(rustix::fs::CWD, path.as_os_str(), recursive, nofollow)
}

/// A detached copy of the mount at the entry `name` of `dir`, cut to what is below it. A link is not followed.
pub fn clone_entry(dir: impl AsFd, name: &OsStr, recursive: Recursive) -> Result<OwnedFd> {
    open_tree(dir, name, recursive, OpenTreeFlags::AT_SYMLINK_NOFOLLOW)
}

/// A detached copy of the mount that `fd` is in, cut to what `fd` stands for and what is below it.
pub fn clone_fd(fd: impl AsFd, recursive: Recursive) -> Result<OwnedFd> {
    open_tree(fd, OsStr::new(""), recursive, OpenTreeFlags::AT_EMPTY_PATH)
}

/// Detached copies of the mounts at `paths`, cut to what each path leads to: whoever gets such a descriptor comes to nothing
/// above it. Mounts below are not copied.
///
/// A short-lived process makes them, in a mount namespace of its own, as the kernel asks of a caller without root.
///
/// # Errors
/// EINVAL where something is mounted below one of them.
pub fn apart(paths: &[&Path]) -> Result<Vec<OwnedFd>> {
    let mut new = Namespaces::from(Namespace::Mount);
    if !crate::caps::may_administer()? {
        new = new.with(Namespace::User);
    }
    let copy = |path: &&Path| {
        clone_path(path, Recursive::No, Follow::Links)
            .context(|| format!("copy the mount of {}", path.display()))
    };
    let mut copied = None;
    let child = process::spawn_sharing_descriptors(new, || {
        copied = Some(paths.iter().map(copy).collect());
        0
    })?;
    process::wait(child.pid)?;
    copied.unwrap_or_else(|| crate::bail!("the process that copies mounts died"))
}

fn open_tree(dir: impl AsFd, path: &OsStr, recursive: Recursive, flags: OpenTreeFlags) -> Result<OwnedFd> {
    let below = match recursive {
        Recursive::Yes => OpenTreeFlags::AT_RECURSIVE,
        Recursive::No => OpenTreeFlags::empty(),
    };
    let flags = flags | below | OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    Ok(mount::open_tree(dir, path, flags)?)
}

/// Attaches the detached mount `tree` on top of what `target` refers to.
pub fn attach(tree: impl AsFd, target: impl AsFd) -> Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    mount::move_mount(tree, "", &target, "", flags)
        .context(|| format!("mount on {}", crate::fd::shown(&target)))
}

/// Attaches `tree` on top of the entry `name` of `dir`, a directory in which nobody else makes links.
pub fn attach_at(tree: impl AsFd, dir: impl AsFd, name: &OsStr) -> Result<()> {
    Ok(mount::move_mount(tree, "", dir, name, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

/// Attaches `tree` on top of what `path` leads to, through links too.
pub fn attach_to(tree: impl AsFd, path: &Path) -> Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH
        | MoveMountFlags::MOVE_MOUNT_T_SYMLINKS
        | MoveMountFlags::MOVE_MOUNT_T_AUTOMOUNTS;
    Ok(mount::move_mount(tree, "", rustix::fs::CWD, path, flags)?)
}

/// A parameter of a new file system instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Param {
    /// `key` alone.
    Flag(String),
    /// `key=value`.
    Value(String, String),
}

/// A new, detached mount of a new instance of `fstype`, with the `MOUNT_ATTR_*` bits `attr`. `source` is the name that
/// mountinfo shows, and for some file systems the device.
///
/// An error's text has what the kernel wrote into the log of the file system context.
pub fn new_fs(fstype: &str, source: &str, params: &[Param], attr: u64) -> Result<OwnedFd> {
    let fs = mount::fsopen(fstype, FsOpenFlags::FSOPEN_CLOEXEC)?;
    let configured = (|| {
        mount::fsconfig_set_string(fs.as_fd(), "source", source)?;
        for param in params {
            match param {
                Param::Flag(key) => mount::fsconfig_set_flag(fs.as_fd(), key.as_str())?,
                Param::Value(key, value) => {
                    mount::fsconfig_set_string(fs.as_fd(), key.as_str(), value.as_str())?
                }
            }
        }
        mount::fsconfig_create(fs.as_fd())?;
        let attr = MountAttrFlags::from_bits_retain(attr as u32);
        mount::fsmount(fs.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attr)
    })();
    if configured.is_ok() {
        super::fd::leave_open(fs);
        return Ok(configured?);
    }
    configured.map_err(|e| {
        let error = Error::from(e);
        let mut log = [0u8; 256];
        match rustix::io::read(&fs, &mut log) {
            // Each line is "e text"; the first says it.
            Ok(n) if n > 2 => {
                let text = String::from_utf8_lossy(&log[2..n]);
                let errno = error.errno();
                Error::from_parts(format!("{error}: {}", text.trim_end()), errno)
            }
            _ => error,
        }
    })
}

/// Mounts a new instance of `fstype` at `at` (mount(2)): one call instead of the six of [`new_fs`] and [`attach`].
///
/// An error is a bare errno, and the mount comes without a descriptor. `ATTR_RDONLY` makes the file system itself
/// read-only, not only this mount of it.
///
/// `None` where mount(2) has no words for `params`; nothing has been mounted then.
pub fn mount_new(fstype: &str, source: &str, params: &[Param], attr: u64, at: &OsStr) -> Option<Result<()>> {
    let data = mount_data(params)?;
    Some(mount::mount(source, at, fstype, mount_flags(attr), data.as_deref()).map_err(Error::from))
}

/// Shows `source` at `at` too (mount(2) with MS_BIND).
pub fn bind(source: &Path, at: &OsStr, recursive: Recursive) -> Result<(), rustix::io::Errno> {
    match recursive {
        Recursive::Yes => mount::mount_bind_recursive(source, at),
        Recursive::No => mount::mount_bind(source, at),
    }
}

/// Parameters in one line, as mount(2) takes them; `None` where that has no place for them.
fn mount_data(params: &[Param]) -> Option<Option<CString>> {
    /// A page, less the end.
    const MOST: usize = 4095;
    if params.is_empty() {
        return Some(None);
    }
    let mut line = String::new();
    for param in params {
        if !line.is_empty() {
            line.push(',');
        }
        let start = line.len();
        match param {
            Param::Flag(key) => line.push_str(key),
            Param::Value(key, value) => {
                line.push_str(key);
                line.push('=');
                line.push_str(value);
            }
        }
        if line[start..].contains(',') {
            return None;
        }
    }
    (line.len() <= MOST).then(|| CString::new(line).ok()).flatten().map(Some)
}

fn mount_flags(attr: u64) -> MountFlags {
    let pairs = [
        (ATTR_RDONLY, MountFlags::RDONLY),
        (ATTR_NOSUID, MountFlags::NOSUID),
        (ATTR_NODEV, MountFlags::NODEV),
        (ATTR_NOEXEC, MountFlags::NOEXEC),
        (ATTR_NOATIME, MountFlags::NOATIME),
        (ATTR_STRICTATIME, MountFlags::STRICTATIME),
        (ATTR_NODIRATIME, MountFlags::NODIRATIME),
        (ATTR_NOSYMFOLLOW, MountFlags::from_bits_retain(libc::MS_NOSYMFOLLOW as u32)),
    ];
    pairs
        .into_iter()
        .filter(|(bit, _)| attr & bit != 0)
        .fold(MountFlags::empty(), |all, (_, flag)| all | flag)
}

/// A line of proc_pid_mountinfo(5), as far as it is needed.
#[derive(Debug, PartialEq, Eq)]
pub struct Mounted {
    /// The mount's id, as statx(2) has it.
    pub id: u64,
    /// The id of the mount that it is mounted on.
    pub parent: u64,
    /// The device number, as written there: that of the file system, not always that of its files.
    pub device: Vec<u8>,
    /// Which directory of the file system is shown.
    pub root: PathBuf,
    /// Where.
    pub point: PathBuf,
    /// Links in it are followed.
    pub follows_links: bool,
    /// Of what type.
    pub fstype: Vec<u8>,
    /// Who has mounted it, where it is FUSE and says so (fuse(4), `user_id`).
    pub user: Option<u32>,
}

/// True for the root of a mount, also of a directory that is bound to itself (statx(2), Linux 5.8).
///
/// # Errors
/// Those of statx(2); ENOSYS where the kernel does not tell.
pub fn is_root(dir: impl AsFd) -> Result<bool> {
    let found = fs::statx(dir, "", fs::AtFlags::EMPTY_PATH, fs::StatxFlags::empty())?;
    if !found.stx_attributes_mask.contains(fs::StatxAttributes::MOUNT_ROOT) {
        return Err(rustix::io::Errno::NOSYS.into());
    }
    Ok(found.stx_attributes.contains(fs::StatxAttributes::MOUNT_ROOT))
}

/// The mounts of this process's mount namespace, each after the one that it is mounted on.
///
/// # Errors
/// The kernel does not show them. The error has no number: what open(2) and read(2) say here is said of no file that somebody looks at.
pub fn table() -> Result<Vec<Mounted>> {
    table_in(Path::new("/proc/self")).map_err(|e| Error::new(e.to_string()))
}

/// The mounts of the mount namespace of the process whose directory in procfs is `process`, as [`table`] has them.
pub fn table_in(process: &Path) -> Result<Vec<Mounted>> {
    let text = super::fd::read_file(&process.join("mountinfo")).context(|| "read the mount table")?;
    Ok(parse_table(&text))
}

/// The mounts of a text in the form of proc_pid_mountinfo(5), in its order.
pub fn parse_table(text: &[u8]) -> Vec<Mounted> {
    text.split(|byte| *byte == b'\n').filter_map(parse_mounted).collect()
}

/// True where mount `id` shows a piece of what is mounted at `root`, at its own place. A cover binds the entries of what it covers one by
/// one, and each of these binds has an id of its own.
pub fn shows_piece(table: &[Mounted], id: u64, root: &Path) -> bool {
    let piece = table.iter().rfind(|m| m.id == id);
    piece.is_some_and(|piece| {
        piece.point.strip_prefix(root).is_ok_and(|below| {
            let is_whole = |m: &Mounted| m.point == root && m.device == piece.device;
            table.iter().any(|m| is_whole(m) && m.root.join(below) == piece.root)
        })
    })
}

/// The options of the file system that mount `id` of this process's mount namespace shows; empty where there is no such mount.
///
/// # Errors
/// Those of open(2) and read(2).
pub fn options_of(id: u64) -> Result<Vec<Vec<u8>>> {
    let text = super::fd::read_file(Path::new("/proc/self/mountinfo")).context(|| "read the mount table")?;
    Ok(options_in(&text, id))
}

fn options_in(table: &[u8], id: u64) -> Vec<Vec<u8>> {
    let of_line = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b' ');
        let own = fields.next().and_then(|field| str::from_utf8(field).ok()?.parse::<u64>().ok());
        own.filter(|own| *own == id)?;
        fields.by_ref().find(|field| *field == b"-")?;
        Some(fields.nth(2)?.split(|byte| *byte == b',').map(<[u8]>::to_vec).collect())
    };
    table.split(|byte| *byte == b'\n').find_map(of_line).unwrap_or_default()
}

/// Tells `each` the id and the device of every mount of the mount namespace of the process whose directory in procfs is `process`. How long
/// that table is lies with the process: nothing of it is kept here, and an error of `each` ends it.
///
/// # Errors
/// That of `each`; those of open(2) and read(2).
pub fn each_in(process: &Path, mut each: impl FnMut(u64, u64) -> Result<()>) -> Result<()> {
    let mut table = BufReader::new(File::open(process.join("mountinfo"))?);
    let mut line = Vec::new();
    while table.read_until(b'\n', &mut line)? > 0 {
        if let Some((id, device)) = parse_device(&line) {
            each(id, device)?;
        }
        line.clear();
    }
    Ok(())
}

/// The id and the device of a line of proc_pid_mountinfo(5).
fn parse_device(line: &[u8]) -> Option<(u64, u64)> {
    let mut fields = line.split(|byte| *byte == b' ').map(|field| str::from_utf8(field).ok());
    let id = fields.next()??.parse().ok()?;
    let (major, minor) = fields.nth(1)??.split_once(':')?;
    let (major, minor) = (major.parse().ok()?, minor.parse().ok()?);
    Some((id, rustix::fs::makedev(major, minor)))
}

/// FUSE_SUPER_MAGIC (linux/magic.h).
pub const FUSE: u64 = 0x6573_5546;

/// Another user than root and the caller, who serves a FUSE file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// Who has mounted it.
    Uid(u32),
    /// Nobody says who: it is not mounted here any more, or in another mount namespace.
    Unknown,
}

impl std::fmt::Display for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Server::Uid(uid) => write!(f, "uid {uid}"),
            Server::Unknown => f.write_str("an unknown user"),
        }
    }
}

/// What the kernel knows of the mount of an open file without a question to whoever serves it.
struct Known {
    /// The number of the device; none where a filter is older than the call that tells it.
    device: Option<u64>,
    /// The id, which no other mount has while the file is open.
    id: u64,
}

impl Known {
    fn of(file: impl AsFd) -> Result<Known> {
        use rustix::fs::{AtFlags, StatxFlags, makedev, statx};
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        // Nothing is asked for, so that FUSE gives everybody the device without its server. The kernel adds the id itself: who asks for it is
        // refused by the file system of a user who has not allowed others.
        let context = || format!("look at {}", super::fd::shown(&file));
        let (device, id) = match statx(&file, "", flags, StatxFlags::empty()) {
            Ok(found) => (
                Some(makedev(found.stx_dev_major, found.stx_dev_minor)),
                (found.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(found.stx_mnt_id),
            ),
            Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => (None, None),
            Err(e) => return Err(e).context(context),
        };
        let id = id.map_or_else(|| id_of(&file).context(context), Ok)?;
        Ok(Known { device, id })
    }
}

/// The id of the mount that an open file is on, by procfs.
#[cold]
fn id_of(file: impl AsFd) -> Result<u64> {
    let info = format!("/proc/self/fdinfo/{}", file.as_fd().as_raw_fd());
    let text = super::fd::read_file(Path::new(&info)).context(|| info)?;
    let line = text.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"mnt_id:"));
    let id = line.and_then(|id| str::from_utf8(id).ok()?.trim().parse().ok());
    id.ok_or_else(|| rustix::io::Errno::NOSYS.into())
}

/// Who mounted the FUSE file system that an open file is on, where that is neither root nor the caller; `None` on all others, and
/// on the device `known`, of which that is known. Its server is not asked, which may never answer. What the mount table does not have
/// counts as another user's: he can have taken it away once it was open, and his server answers no more than before.
///
/// # Errors
/// The kernel does not say.
pub fn others_server(file: impl AsFd, known: Option<u64>) -> Result<Option<Server>> {
    use rustix::fs::{major, minor};
    let Known { device, id } = Known::of(&file)?;
    // What is on a disk has the disk's number.
    if device.is_some_and(|device| major(device) != 0 || Some(device) == known) {
        return Ok(None);
    }
    let table = table()?;
    // The id alone where files have another device than the table says (btrfs, overlayfs); the device alone where the file was opened in
    // another mount namespace, which shows the same file system.
    let number = device.map(|device| format!("{}:{}", major(device), minor(device)).into_bytes());
    let by_device = || table.iter().find(|mounted| Some(&mounted.device) == number.as_ref());
    match table.iter().find(|mounted| mounted.id == id).or_else(by_device) {
        Some(mounted) if mounted.is_others_fuse()? => Ok(mounted.user.map(Server::Uid)),
        Some(_) => Ok(None),
        None => Ok((!is_in_no_table(id)).then_some(Server::Unknown)),
    }
}

/// True for the id of a mount that is in no table and no user's: that with the root directory of this process, which may be a directory
/// in it (chroot(2)), and those that the kernel itself has for pipes and for memory.
#[cold]
fn is_in_no_table(id: u64) -> bool {
    let flags = fs::OFlags::PATH | fs::OFlags::DIRECTORY | fs::OFlags::CLOEXEC;
    let root = || fs::open("/", flags, fs::Mode::empty());
    let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map(|(end, _)| end);
    let memory = || fs::memfd_create("rt", fs::MemfdFlags::CLOEXEC);
    let is_on = |file: std::result::Result<OwnedFd, rustix::io::Errno>| {
        file.is_ok_and(|file| Known::of(file).is_ok_and(|known| known.id == id))
    };
    is_on(root()) || is_on(pipe()) || is_on(memory())
}

/// As [`others_server`], of the root of a mount alone: `None` where nothing is mounted at the open directory itself. So the mount table is
/// not read at a start, which costs a twentieth of it on a file system without a disk's number, such as NFS.
///
/// # Errors
/// The kernel does not say.
pub fn others_server_at(dir: impl AsFd) -> Result<Option<Server>> {
    use rustix::fs::{AtFlags, StatxAttributes, StatxFlags, statx};
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let is_root = StatxAttributes::MOUNT_ROOT;
    match statx(&dir, "", flags, StatxFlags::empty()) {
        // Linux says it from 5.8 on.
        Ok(found)
            if found.stx_attributes_mask.contains(is_root) && !found.stx_attributes.contains(is_root) =>
        {
            Ok(None)
        }
        _ => {
            let server = others_server(&dir, Some(UNSERVED.load(Ordering::Relaxed)))?;
            if server.is_none() {
                UNSERVED.store(super::fd::stat(&dir)?.st_dev, Ordering::Relaxed);
            }
            Ok(server)
        }
    }
}

/// The device of the root for which it was last found that no other user serves it: the way to it is gone several times at a start.
static UNSERVED: AtomicU64 = AtomicU64::new(0);

/// Who mounted the FUSE file system that a file with this state is on.
fn server(stat: &rustix::fs::Stat) -> Result<u32> {
    let device =
        format!("{}:{}", rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev)).into_bytes();
    let mounted = table()?.into_iter().find(|mounted| mounted.device == device);
    // A kind that says nobody is one that only root mounts (virtiofs). What no line describes is nobody's that is known.
    Ok(mounted.map_or(u32::MAX, |mounted| mounted.user.unwrap_or(0)))
}

/// The owner who can be believed of a file with this state, which is on a FUSE file system: whoever serves it, where that is another
/// user.
pub(crate) fn believed_owner(stat: &rustix::fs::Stat) -> Result<u32> {
    let server = server(stat)?;
    Ok(if is_others(server)? { server } else { stat.st_uid })
}

/// True for the id of whoever has mounted a FUSE file system, where that is neither root nor the caller. The mount table has the
/// one that he has outside of this user namespace.
fn is_others(server: u32) -> Result<bool> {
    let maps = crate::ns::own_maps()?;
    let own = maps.uid.iter().find_map(|range| {
        let inside = crate::caller::uid().checked_sub(range.container)?;
        (inside < range.size).then(|| range.host + inside)
    });
    Ok(server != 0 && Some(server) != own)
}

/// True where another user than root and the caller has mounted a FUSE file system on the entry `name` of `dir`: by the mount
/// table, so that its server is not asked.
///
/// # Errors
/// The kernel does not say what is mounted.
pub fn is_others_fuse_at(dir: impl AsFd, name: &OsStr) -> Result<bool> {
    let path = super::fd::path_of(dir.as_fd())?.join(name);
    let found = table()?.into_iter().rev().find(|mounted| mounted.point == path);
    found.map_or(Ok(false), |mounted| mounted.is_others_fuse())
}

impl Mounted {
    /// True for a FUSE file system that another user than root and the caller has mounted.
    ///
    /// # Errors
    /// The kernel does not say who the caller is outside of this user namespace.
    pub fn is_others_fuse(&self) -> Result<bool> {
        self.user.map_or(Ok(false), is_others)
    }
}

/// True where the absolute path `path`, which has no link in it, leads to a FUSE file system that somebody else than root and the
/// caller has mounted: by the mount table, so that its server is not asked.
///
/// # Errors
/// The kernel does not say what is mounted.
pub fn is_on_others_fuse(path: &Path) -> Result<bool> {
    let mut above = table()?;
    above.retain(|mounted| path.starts_with(&mounted.point));
    // Of several at one place the last one.
    let on = above.iter().max_by_key(|mounted| mounted.point.components().count());
    match on.filter(|on| on.fstype.starts_with(b"fuse")) {
        Some(on) if on.user.is_some() => on.is_others_fuse(),
        // A kind that does not say who has mounted it.
        on => Ok(on.is_some()),
    }
}

fn parse_mounted(line: &[u8]) -> Option<Mounted> {
    let mut fields = line.split(|byte| *byte == b' ');
    let mut number = || std::str::from_utf8(fields.next()?).ok()?.parse().ok();
    let (id, parent) = (number()?, number()?);
    let device = fields.next()?.to_owned();
    let mut path = || Some(PathBuf::from(OsString::from_vec(unescape(fields.next()?))));
    let (root, point) = (path()?, path()?);
    let follows_links = !fields.next()?.split(|byte| *byte == b',').any(|option| option == b"nosymfollow");
    let fstype = fields.skip_while(|field| *field != b"-").nth(1)?.to_owned();
    let user = if fstype.starts_with(b"fuse") { user_id(line) } else { None };
    Some(Mounted { id, parent, device, root, point, follows_links, fstype, user })
}

/// The option `user_id` of a line of proc_pid_mountinfo(5).
fn user_id(line: &[u8]) -> Option<u32> {
    let options = line.rsplit(|byte| *byte == b' ').next()?.split(|byte| *byte == b',');
    let uid = options.into_iter().find_map(|option| option.strip_prefix(b"user_id="))?;
    std::str::from_utf8(uid).ok()?.parse().ok()
}

/// A field of proc_pid_mountinfo(5) without its octal escapes.
pub(crate) fn unescape(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let code = after.get(..3).filter(|_| first == b'\\');
        let code = code.and_then(|c| u8::from_str_radix(OsStr::from_bytes(c).to_str()?, 8).ok());
        match code {
            Some(byte) => {
                plain.push(byte);
                rest = &after[3..];
            }
            None => {
                plain.push(first);
                rest = after;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_those_of_the_mount() {
        let table = b"21 1 0:20 / /proc rw shared:5 - proc proc rw,gid=5,hidepid=invisible\n22 1 0:21 / /a rw - tmpfs - rw\n";
        assert_eq!(options_in(table, 21), [b"rw".to_vec(), b"gid=5".to_vec(), b"hidepid=invisible".to_vec()]);
        assert_eq!(options_in(table, 22), [b"rw".to_vec()]);
        assert_eq!(options_in(table, 2), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn parameters_become_one_line() {
        let value = |v: &str| Param::Value("mode".into(), v.into());
        let line = mount_data(&[Param::Flag("newinstance".into()), value("620")]).unwrap().unwrap();
        assert_eq!(line.to_str(), Ok("newinstance,mode=620"));
        assert_eq!(mount_data(&[]), Some(None));
        for cannot in [value("a,b"), value("\0"), value(&"x".repeat(4096))] {
            assert_eq!(mount_data(&[cannot]), None);
        }
    }

    /// Another user takes his file system away between the open of a file and the look at the mount table, as with `fusermount -uz`.
    #[test]
    fn what_is_not_mounted_any_more_is_a_strangers() {
        // Only root mounts for others.
        let Ok(server) = File::options().read(true).write(true).open("/dev/fuse") else { return };
        rustix::io::ioctl_fionbio(&server, true).unwrap();
        let at = std::env::temp_dir().join(format!("rt-mount-gone-{}", std::process::id()));
        std::fs::create_dir(&at).unwrap();
        let data =
            format!("fd={},rootmode=40000,user_id=12345,group_id=12345,allow_other", server.as_raw_fd());
        let data = CString::new(data).unwrap();
        if mount::mount("gone", &at, "fuse", MountFlags::empty(), Some(&*data)).is_err() {
            return std::fs::remove_dir(at).unwrap();
        }
        let open = |path: &Path| fs::open(path, fs::OFlags::PATH | fs::OFlags::CLOEXEC, fs::Mode::empty());
        let file = open(&at).unwrap();
        let before = (others_server(&file, None).unwrap(), others_server_at(&file).unwrap());
        mount::unmount(&at, mount::UnmountFlags::DETACH).unwrap();
        let found = others_server(&file, None).unwrap();
        assert!(before.0.is_some() && before.1.is_some() && found.is_some(), "{before:?} and then {found:?}");
        assert!(others_server_at(&file).unwrap().is_some());
        let again = crate::fd::link(&file);
        let error = crate::look::kind_unserved(&again).unwrap_err();
        assert!(error.is(libc::EXDEV), "{error}");
        let error = crate::fd::open_unserved(fs::CWD, &*again, fs::OFlags::RDONLY, fs::ResolveFlags::empty());
        assert_eq!(error.unwrap_err(), rustix::io::Errno::XDEV);
        // FUSE_INIT, with which the kernel begins, and nothing else.
        let mut request = [0; 1 << 17];
        assert_ne!(rustix::io::read(&server, &mut request).unwrap(), 0);
        assert_eq!(rustix::io::read(&server, &mut request).unwrap_err(), rustix::io::Errno::AGAIN);
        std::fs::remove_dir(at).unwrap();
    }

    #[test]
    fn what_the_kernel_has_without_a_place_is_no_strangers() {
        let (pipe, _end) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let memory = fs::memfd_create("memory", fs::MemfdFlags::CLOEXEC).unwrap();
        let own = File::open("/proc/self").unwrap();
        for file in [OwnedFd::from(own), pipe, memory] {
            assert_eq!(others_server(&file, None).unwrap(), None);
            let known = Known::of(&file).unwrap();
            assert_eq!(known.id, id_of(&file).unwrap());
        }
        assert!(!is_in_no_table(u64::MAX) && is_in_no_table(id_of(File::open("/").unwrap()).unwrap()));
    }

    #[test]
    fn mount_tables_are_read() {
        let line = b"3 1 8:1 /b/root\\040fs /b/at\\040here rw,nosuid shared:1 - ext4 /dev/sda rw";
        let (root, point) = ("/b/root fs".into(), "/b/at here".into());
        let (device, fstype) = (b"8:1".into(), b"ext4".into());
        assert_eq!(
            parse_mounted(line),
            Some(Mounted { id: 3, parent: 1, device, root, point, follows_links: true, fstype, user: None })
        );
        assert_eq!(parse_mounted(b"garbage"), None);
        assert_eq!(parse_device(line), Some((3, rustix::fs::makedev(8, 1))));
        assert_eq!(parse_device(b"garbage"), None);
        let user = |line: &[u8]| parse_mounted(line).unwrap().user;
        assert_eq!(user(b"4 1 0:50 / /m rw - fuse.sshfs a:b rw,user_id=7,group_id=8"), Some(7));
        assert_eq!(user(b"4 1 0:50 / /m rw - virtiofs a rw"), None);
    }

    #[test]
    fn attributes_become_flags() {
        let flags = mount_flags(ATTR_NOSUID | ATTR_STRICTATIME | ATTR_NOSYMFOLLOW);
        assert_eq!(u64::from(flags.bits()), libc::MS_NOSUID | libc::MS_STRICTATIME | libc::MS_NOSYMFOLLOW);
    }
}
