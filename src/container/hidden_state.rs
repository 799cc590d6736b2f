//! Keeps state directories out of containers.
//!
//! Whoever can write a container's state has `rt` run hooks, enter namespaces and remove directories on the host as the
//! user who calls it next. A container's program often has that user's uid, so modes keep it out of nothing. A root or bind that
//! shows a state directory, or the place of one, therefore gets an empty read-only directory over it.
//!
//! A directory is recognised by device and inode of what has been mounted, and not by the path of the bind's source: that
//! path may lead through links, and may be changed until it is mounted.
//!
//! The host may show the directory at a second path, by a mount that the administrator has made. Those paths are looked up in
//! the mount table. A plain start of the profile hpc does not pay for that: it binds /proc, /sys and /dev, where no state lies,
//! and files of /etc, which show no directory.

use super::plan::{MountKind, MountPlan, Plan};
use rt_spec::hpc::HOST_FILES;
use rt_sys::error::{Context, Error, Result};
use rt_sys::mount::{self, Attr, Mounted, Param, PropagationType, Recursive};
use rt_sys::{bail, fd};
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat, StatxFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// State directories, and what is above them on the host.
pub(super) struct HiddenState {
    above: Vec<Above>,
}

/// A directory of the host with a state directory in it, at any depth.
struct Above {
    device: u64,
    inode: u64,
    /// The path of the state directory from there; empty for that directory itself.
    below: PathBuf,
    /// The state directory is the one in use, which is there.
    in_use: bool,
}

impl HiddenState {
    /// Looks for the state directory that `container` is in, the directory of the container that is being made, and for
    /// `places`, where state is looked for when nobody names a place. `proc` is the host's procfs. `plan` says what is shown.
    pub(super) fn find(
        proc: BorrowedFd<'_>,
        container: BorrowedFd<'_>,
        places: &[PathBuf],
        plan: &Plan,
    ) -> Result<Self> {
        let link = format!("self/fd/{}", container.as_raw_fd());
        let path =
            fs::readlinkat(proc, link.as_str(), Vec::new()).context(|| "look for the state directory")?;
        let own = Path::new(OsStr::from_bytes(path.to_bytes())).parent().unwrap_or(Path::new("/"));
        Ok(HiddenState { above: above(&plan.rootfs, &plan.mounts, own, places)? })
    }

    /// Covers the state directories that the attached mount `tree` shows. `stat` is that of its root. `follows`: mounts that
    /// the host makes later are to appear there, too, and nobody has asked for that by name. They do not then: logind mounts
    /// a user's runtime directory, with a state directory in it, when that user comes.
    pub(super) fn cover(&self, tree: BorrowedFd<'_>, stat: &Stat, follows: bool) -> Result<()> {
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return Ok(());
        }
        let mut shown = self.above.iter().filter(|above| above.is(stat)).peekable();
        if follows && shown.peek().is_some() {
            mount::set_attr(tree, Recursive::Yes, Attr::propagating(PropagationType::Private))
                .context(|| "keep later mounts of the host out")?;
        }
        shown.try_for_each(|above| above.cover(tree))
    }
}

impl Above {
    fn is(&self, stat: &Stat) -> bool {
        self.device == stat.st_dev && self.inode == stat.st_ino
    }

    /// True for what says the same, letter by letter.
    fn is_same(&self, other: &Above) -> bool {
        (self.device, self.inode, self.in_use) == (other.device, other.inode, other.in_use)
            && self.below.as_os_str() == other.below.as_os_str()
    }

    fn cover(&self, tree: BorrowedFd<'_>) -> Result<()> {
        if self.below.as_os_str().is_empty() {
            bail!("it is a state directory of rt, which is shown to no container");
        }
        let context = || format!("hide the state directory {} in it", self.below.display());
        let Some(target) = self.target(tree).context(context)? else { return Ok(()) };
        let params =
            [Param::Value("mode".into(), "555".into()), Param::Value("nr_blocks".into(), "1".into())];
        let empty = mount::new_fs("tmpfs", "tmpfs", &params, mount::ATTR_RDONLY).context(context)?;
        mount::attach(&empty, &target).context(context)?;
        fd::leave_open(target);
        fd::leave_open(empty);
        Ok(())
    }

    /// The state directory in `tree`; `None` where `tree` does not show it.
    fn target(&self, tree: BorrowedFd<'_>) -> Result<Option<OwnedFd>> {
        let open = || {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            fs::openat2(tree, &self.below, flags, Mode::empty(), resolve)
        };
        match open() {
            Ok(target) => Ok(Some(target)),
            // A bind without what is mounted below it.
            Err(Errno::NOENT) if self.in_use => Ok(None),
            // The program could make it, and fill it for a later call. So it is made here, empty. Where this process may not
            // do that, or what is above it is missing, the program cannot either.
            Err(Errno::NOENT) => match fs::mkdirat(tree, &self.below, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => match open() {
                    Ok(target) => Ok(Some(target)),
                    Err(Errno::LOOP | Errno::NOTDIR) => Ok(None),
                    Err(e) => Err(e.into()),
                },
                Err(
                    Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::NOENT | Errno::NOTDIR | Errno::LOOP,
                ) => Ok(None),
                Err(e) => Err(e.into()),
            },
            // Somebody else's link or file, which no call takes for a state directory.
            Err(Errno::LOOP | Errno::NOTDIR | Errno::ACCESS) if !self.in_use => Ok(None),
            Err(e) => Err(e.into()),
        }
    }
}

/// Directories of the kernel's own file systems, in which no state lies by a second path. /dev/shm is below one, and is a
/// place of state where nothing can be made in /tmp: by its own path.
const KERNELS: [&str; 3] = ["/proc", "/sys", "/dev"];

/// The host's directories and files that `mounts` bind.
fn sources(mounts: &[MountPlan]) -> impl Iterator<Item = &Path> {
    mounts.iter().filter_map(|mount| match &mount.kind {
        MountKind::Bind(source) => Some(source.as_path()),
        _ => None,
    })
}

/// What is above `own`, the state directory in use, and above `places`, for a container of this root and these mounts.
fn above(rootfs: &Path, mounts: &[MountPlan], own: &Path, places: &[PathBuf]) -> Result<Vec<Above>> {
    let may_show = sources(mounts).any(|source| !is_plain(source));
    let table = if may_show || own.starts_with(rootfs) { mount::table()? } else { Vec::new() };
    ancestors(own, places, &table)
}

/// True for what every container of the profile hpc binds: no second path to a state directory leads through it. The mount
/// table is a tenth of a start's time.
fn is_plain(source: &Path) -> bool {
    KERNELS.iter().any(|dir| source.starts_with(dir))
        || HOST_FILES.iter().any(|file| source == Path::new(file))
}

/// What is above `own`, the state directory in use, and above `places`, also at the other paths at which `table`, the mount
/// table, shows them. A directory that is not there is left out: nothing can be bound from it.
fn ancestors(own: &Path, places: &[PathBuf], table: &[Mounted]) -> Result<Vec<Above>> {
    let mut seen: Vec<(PathBuf, Option<(u64, u64)>)> = Vec::new();
    let mut all = Vec::new();
    let mut paths = vec![(own.to_owned(), true)];
    paths.extend(places.iter().filter(|place| *place != own).map(|place| (place.clone(), false)));
    if !table.is_empty() {
        // /tmp may be a link, or the directory that XDG_RUNTIME_DIR names lie behind one.
        for (place, in_use) in paths.clone() {
            paths.extend(real(&place)?.map(|real| (real, in_use)));
        }
        let second: Vec<_> = paths
            .iter()
            .flat_map(|(place, in_use)| second_paths(place, table).into_iter().map(|path| (path, *in_use)))
            .collect();
        paths.extend(second);
    }
    for (place, in_use) in paths {
        // From the root on: nothing is below what is not there.
        for (dir, below) in splits(&place) {
            // Byte by byte: to compare paths by their components takes ten times as long, and one that is spelt in two ways is
            // looked at twice.
            let id = match seen.iter().find(|(path, _)| path.as_os_str() == dir.as_os_str()) {
                Some((_, id)) => *id,
                None => {
                    let is_place = below.as_os_str().is_empty();
                    let id = if is_place && !in_use { identity_of_place(dir)? } else { identity(dir)? };
                    seen.push((dir.to_owned(), id));
                    id
                }
            };
            let Some((device, inode)) = id else { break };
            let above = Above { device, inode, below: below.to_owned(), in_use };
            if !all.iter().any(|known: &Above| known.is_same(&above)) {
                all.push(above);
            }
        }
    }
    Ok(all)
}

/// The directories that the absolute path `place` leads through, from the root to itself, each with the rest of the path.
fn splits(place: &Path) -> impl Iterator<Item = (&Path, &Path)> {
    let bytes = place.as_os_str().as_bytes();
    let path = |bytes| Path::new(OsStr::from_bytes(bytes));
    let ends = (0..=bytes.len()).filter(|end| match bytes.get(*end) {
        Some(b'/') => *end == 0 || bytes[end - 1] != b'/',
        Some(_) => false,
        None => bytes.last() != Some(&b'/'),
    });
    ends.map(move |end| {
        let rest = &bytes[end..];
        let rest = &rest[rest.iter().take_while(|byte| **byte == b'/').count()..];
        (path(&bytes[..end.max(1)]), path(rest))
    })
}

/// The device and inode of `path`, where state may lie, and where somebody else can have mounted something that never answers:
/// nothing is mounted for this, and the kernel says what it knows without asking a server.
fn identity_of_place(path: &Path) -> Result<Option<(u64, u64)>> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    match fs::statx(fs::CWD, path, flags, StatxFlags::INO) {
        Ok(stat) => Ok(Some((fs::makedev(stat.stx_dev_major, stat.stx_dev_minor), stat.stx_ino))),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => Ok(None),
        Err(e) => Err(e).context(|| format!("look at {}", path.display())),
    }
}

/// Device and inode of what is at `path`; `None` where nothing is, or where the caller may not look: nothing can be bound
/// from there either.
fn identity(path: &Path) -> Result<Option<(u64, u64)>> {
    match fs::stat(path) {
        Ok(stat) => Ok(Some((stat.st_dev, stat.st_ino))),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => Ok(None),
        Err(e) => Err(e).context(|| format!("look at {}", path.display())),
    }
}

/// `place` without links in the path of what is there of it; `None` where it has none.
fn real(place: &Path) -> Result<Option<PathBuf>> {
    for dir in place.ancestors().skip(1) {
        if let Some(real) = canonical(dir)? {
            let whole = place.strip_prefix(dir).map(|rest| real.join(rest)).ok();
            return Ok(whole.filter(|path| path != place));
        }
    }
    Ok(None)
}

/// `path` without links; `None` where nothing is there, or nothing that the caller may look at.
fn canonical(path: &Path) -> Result<Option<PathBuf>> {
    let out_of_reach = [libc::ENOENT, libc::ENOTDIR, libc::ELOOP, libc::EACCES];
    match std::fs::canonicalize(path).map_err(Error::from) {
        Err(e) if out_of_reach.iter().any(|errno| e.is(*errno)) => Ok(None),
        real => real.map(Some).context(|| format!("look at {}", path.display())),
    }
}

/// The other paths at which mounts of `table` show `place`, or would show it if it were there.
fn second_paths(place: &Path, table: &[Mounted]) -> Vec<PathBuf> {
    // The last mount whose point is above is the one that a path leads through.
    let Some(home) = table
        .iter()
        .filter(|mounted| place.starts_with(&mounted.point))
        .max_by_key(|mounted| mounted.point.components().count())
    else {
        return Vec::new();
    };
    let Ok(below) = place.strip_prefix(&home.point) else { return Vec::new() };
    let in_file_system = home.root.join(below);
    table
        .iter()
        .filter(|mounted| mounted.device == home.device)
        .filter_map(|mounted| Some(mounted.point.join(in_file_system.strip_prefix(&mounted.root).ok()?)))
        // A path that ends with "/" where nothing is below it is the same one.
        .map(|path| path.components().collect::<PathBuf>())
        .filter(|path| path != place)
        .collect()
}

/// True where the root or a bind of `mounts`, as far as that can be told before it is mounted, shows a state directory.
/// `own` is the one in use.
pub(super) fn is_shown(rootfs: &Path, mounts: &[MountPlan], own: &Path, places: &[PathBuf]) -> Result<bool> {
    let own = canonical(own)?.unwrap_or_else(|| own.to_owned());
    let above = above(rootfs, mounts, &own, places)?;
    for source in sources(mounts).chain([rootfs]) {
        let found = identity(source)?;
        if above.iter().any(|above| found == Some((above.device, above.inode))) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_of_the_profile_hpc_needs_no_mount_table() {
        let mounts = rt_spec::hpc::mounts();
        let binds = mounts.iter().filter(|mount| mount["type"] == "bind");
        let sources: Vec<_> = binds.map(|mount| Path::new(mount["source"].as_str().unwrap())).collect();
        assert!(sources.len() > 3 && sources.iter().all(|source| is_plain(source)), "{sources:?}");
        assert!(!["/", "/etc", "/home/me", "/run", "/tmp"].iter().any(|source| is_plain(Path::new(source))));
    }

    #[test]
    fn a_path_leads_through_each_directory_once() {
        let of = |place| {
            let text = |path: &Path| path.to_str().unwrap().to_owned();
            splits(Path::new(place)).map(|(dir, below)| (text(dir), text(below))).collect::<Vec<_>>()
        };
        let pair = |dir: &str, below: &str| (dir.to_owned(), below.to_owned());
        assert_eq!(of("/"), [pair("/", "")]);
        assert_eq!(
            of("/run/user/rt"),
            [
                pair("/", "run/user/rt"),
                pair("/run", "user/rt"),
                pair("/run/user", "rt"),
                pair("/run/user/rt", "")
            ]
        );
        assert_eq!(of("/run//rt/"), [pair("/", "run//rt/"), pair("/run", "rt/"), pair("/run//rt", "")]);
    }

    #[test]
    fn second_paths_are_those_of_the_same_file_system() {
        let mount = |id, device: &str, root: &str, point: &str| Mounted {
            id,
            parent: 1,
            device: device.into(),
            root: root.into(),
            point: point.into(),
            follows_links: true,
            fstype: b"ext4".to_vec(),
            user: None,
        };
        let table = [
            mount(1, "8:1", "/", "/"),
            mount(2, "0:40", "/", "/run"),
            mount(3, "8:1", "/scratch/7/tmp", "/tmp"),
            mount(4, "0:40", "/user", "/srv/root/run/user"),
            mount(5, "0:41", "/", "/srv/other"),
        ];
        let of = |place: &str| second_paths(Path::new(place), &table);
        assert_eq!(of("/tmp/rt-7"), [PathBuf::from("/scratch/7/tmp/rt-7")]);
        assert_eq!(of("/run/user/7/rt"), [PathBuf::from("/srv/root/run/user/7/rt")]);
        assert_eq!(of("/scratch/7/tmp"), [PathBuf::from("/tmp")]);
        assert_eq!(of("/srv/other/x"), Vec::<PathBuf>::new());
    }
}
