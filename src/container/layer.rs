//! The layer that takes what the program writes to the root, in place of the image (`--writable`, `--overlay`): an
//! overlay over the image, whose upper layer is a tmpfs or a directory of the caller's.
//!
//! It is mounted before everything else, so mount points that the image lacks are made in it, as is whatever else is to
//! appear in the root.
//!
//! A layer that is kept has one container that writes to it, or many that only show it. The kernel keeps two writers apart: it
//! refuses an upper layer that another overlay has. A reader has the layer as a lower one, which the kernel does not count. So
//! its upper layer, which stays empty but for mount points, is beside the layer, as its *mark*: the kernel has it in use for as
//! long as the overlay is mounted anywhere, whatever becomes of the reader's processes. Whoever writes mounts first and then
//! tries the marks; whoever reads mounts first and then tries the layer. One of the two sees the other. A lock keeps those apart
//! that try at the same time.

use super::plan::{Layer, Plan};
use rt_sys::caller::{Caller, Privilege};
use rt_sys::error::{Context, Error, Result};
use rt_sys::mount::{self, Attr, Param, PropagationType, Recursive};
use rt_sys::ns::{IdMap, Namespace};
use rt_sys::owned::Owned;
use rt_sys::rootfs::{Rootfs, name_of_overlay_stranger};
use rt_sys::{bail, fd, log, look, tree};
use rustix::fd::OwnedFd;
use rustix::fs::{self, AtFlags, FlockOperation, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The parts of a directory that keeps a layer.
pub(super) const UPPER: &str = rt_spec::OVERLAY_UPPER;
/// What overlayfs needs beside the upper layer, on the same file system.
const WORK: &str = "work";
/// How its directories are opened.
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Has the marks of those that show the layer, by their containers' ids.
const READERS: &str = "readers";
/// The parts of a mark: as those of a layer, and an empty lower layer.
const MARK: [&str; 3] = [UPPER, WORK, "lower"];
/// Has the id of the container that writes to the layer, or was the last one.
const WRITER: &str = "writer";
/// So many marks come together before a reader removes those that are left over.
const MOST_MARKS: usize = 256;
/// A younger mark may be one that is about to be mounted.
const YOUNG: Duration = Duration::from_secs(60);

/// The longest pause, in milliseconds, before a directory is tried again that another overlay uses. The kernel frees the
/// directory of a container only some time after its last process has ended. Each pause is twice the one before, because
/// the kernel logs each failure.
const LONGEST_PAUSE: i64 = 1000;

/// How long a directory is waited for, in milliseconds.
const PATIENCE: i64 = 1000;

/// How long the directory of a step's layer is waited for, in milliseconds: the processes of a step that was cancelled may take Slurm's KillWait to end, and more.
const PATIENCE_OF_A_STEP: i64 = 15_000;

/// After so many milliseconds the wait is said.
const SILENCE: i64 = 2000;

/// The parts of a layer that is kept, as device and inode: what was looked at before init has its namespaces is what init
/// opens in them.
pub(super) type Seen = Vec<(u64, u64)>;

/// Makes the directory of a layer that is kept, and what belongs into it. Called by the runtime, who is the caller. `id` is the
/// container's.
pub(super) fn prepare(plan: &mut Plan, id: &str) -> Result<()> {
    let Some(Layer::Overlay(path) | Layer::Shown(path)) = &plan.layer else { return Ok(()) };
    let context = || format!("--overlay {}", path.display());
    // A slash behind a link would have it followed.
    let path: PathBuf = path.components().collect();
    let made = match fs::mkdir(&path, Mode::RWXU) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(e) => return Err(e).context(context),
    };
    let parts = make_parts(plan, &path, id);
    if parts.is_err() && made {
        let _ = fs::rmdir(&path);
    }
    plan.layer_seen = parts.context(context)?;
    plan.layer_user = id.to_owned();
    Ok(())
}

fn make_parts(plan: &Plan, path: &Path, id: &str) -> Result<Seen> {
    let fd = open_top(path)?;
    let stranger = name_of_overlay_stranger(&fd)?;
    let shown = matches!(plan.layer, Some(Layer::Shown(_)));
    if let Some(name) = stranger.filter(|_| !shown) {
        return Err(Error::new(format!("it is on {name}, which cannot hold the upper layer of an overlay"))
            .hint("name a directory of a local file system, such as one in /tmp, or take --writable"));
    }
    let dir = Directory::of(fd)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let image = match &plan.others_root {
        Some(others) => others.open()?,
        None => fs::open(&plan.rootfs, flags, Mode::empty())?,
    };
    if fd::path_of(&dir.fd)?.starts_with(fd::path_of(&image)?) {
        bail!("it is in the image, which is not to be written to");
    }
    // The root of an overlay has the mode of its upper layer.
    let mode = fd::stat(&image)?.st_mode & 0o7777 | 0o700;
    let mode = Mode::from_raw_mode(if dir.closed { mode } else { mode & !0o022 });
    let root = containers_root(plan);
    let mut seen = vec![dir.part(&dir.fd, UPPER, mode, root)?.1];
    // Nobody can write to a layer on such a file system.
    if stranger.is_none() {
        seen.push(dir.part(&dir.fd, WORK, Mode::RWXU, root)?.1);
        dir.part(&dir.fd, READERS, Mode::RWXU, root)?;
        if shown {
            seen.extend(dir.mark(id, mode, root)?);
        }
    }
    Ok(seen)
}

/// Who the container's root is outside, where that is another id than the caller's.
type Root = (Option<Uid>, Option<Gid>);

/// Opens a directory that keeps a layer.
fn open_top(path: &Path) -> Result<OwnedFd> {
    fs::open(path, DIRECTORY, Mode::empty()).map_err(no_link)
}

/// A directory that keeps a layer.
struct Directory {
    fd: OwnedFd,
    /// Others cannot enter it, so it does not matter what they may do to what is in it.
    closed: bool,
    /// Who calls.
    caller: u32,
}

impl Directory {
    fn of(fd: OwnedFd) -> Result<Directory> {
        let caller = rustix::process::geteuid().as_raw();
        let owned = Owned::of(&fd)?;
        let stat = owned.stat;
        require_owner(&stat, &[caller])?;
        if owned.others_can_write(&fd, false)? {
            return Err(others_write());
        }
        Ok(Directory { fd, closed: stat.st_mode & 0o011 == 0, caller })
    }

    /// The directory `name` in `dir`, which is made where it is missing, and its identity.
    fn part(&self, dir: &OwnedFd, name: &str, mode: Mode, root: Root) -> Result<(OwnedFd, (u64, u64))> {
        let part = || -> Result<(OwnedFd, (u64, u64))> {
            let made = match fs::mkdirat(dir, name, Mode::RWXU) {
                Ok(()) => true,
                Err(Errno::EXIST) => false,
                Err(e) => return Err(e.into()),
            };
            let path_only = if made { OFlags::empty() } else { OFlags::PATH };
            let part = fs::openat(dir, name, DIRECTORY | path_only, Mode::empty()).map_err(no_link)?;
            let (uid, gid) = root;
            if made {
                fs::fchmod(&part, mode)?;
                if uid.is_some() || gid.is_some() {
                    fs::fchown(&part, uid, gid)?;
                }
            }
            let owned = Owned::of(&part)?;
            let stat = owned.stat;
            require_owner(&stat, &[self.caller, uid.map_or(self.caller, Uid::as_raw)])?;
            if !self.closed && owned.others_can_write(&part, false)? {
                return Err(others_write());
            }
            Ok((part, identity(&stat)))
        };
        part().context(|| name.to_owned())
    }

    /// Makes the directories of the mark of reader `id`, whose root has this mode, and returns their identities.
    fn mark(&self, id: &str, mode: Mode, root: Root) -> Result<Seen> {
        let (readers, _) = self.part(&self.fd, READERS, Mode::RWXU, root)?;
        let (mark, _) = self.part(&readers, id, Mode::RWXU, root)?;
        let mode = |name: &str| if name == UPPER { mode } else { Mode::RWXU };
        MARK.iter().map(|name| Ok(self.part(&mark, name, mode(name), root)?.1)).collect()
    }
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

fn containers_root(plan: &Plan) -> Root {
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

/// The directories of a layer, which only the caller may be able to reach.
#[derive(Debug)]
pub(super) struct Parts {
    upper: OwnedFd,
    work: OwnedFd,
}

/// What says that somebody shows a layer.
#[derive(Debug)]
pub(super) struct Mark {
    parts: Parts,
    lower: OwnedFd,
}

/// What is beside a layer, opened by the caller: the container's root may be somebody who cannot get there.
#[derive(Debug)]
pub(super) struct Top {
    /// The marks.
    readers: OwnedFd,
    /// The file with the id of who writes.
    writer: OwnedFd,
}

/// A layer that is ready to be put over the image.
#[derive(Debug)]
pub(super) enum Opened {
    /// One in memory.
    Memory,
    /// A layer that is kept in `dir`.
    Overlay { dir: PathBuf, parts: Parts, top: Top },
    /// A layer that is kept in `dir`, and only shown.
    Shown { dir: PathBuf, parts: Parts, mark: Mark, top: Top },
    /// The upper layer of one where nobody can write to it.
    Fixed(OwnedFd),
}

/// Opens what the plan's layer needs, in init's mount namespace, before init becomes the container's root. `None` where the
/// plan has no layer.
pub(super) fn open(plan: &Plan) -> Result<Option<Opened>> {
    Ok(match &plan.layer {
        None => None,
        Some(Layer::Memory) => Some(Opened::Memory),
        Some(Layer::Overlay(dir) | Layer::Shown(dir)) => {
            Some(reopen(plan, dir).context(|| format!("--overlay {}", dir.display()))?)
        }
    })
}

/// Opens the parts of a layer that is kept. Overlayfs takes only what is opened in its own mount namespace, so they are
/// opened again, and must be those that were looked at.
fn reopen(plan: &Plan, dir: &Path) -> Result<Opened> {
    let path: PathBuf = dir.components().collect();
    let top = fs::open(&path, DIRECTORY | OFlags::PATH, Mode::empty())?;
    let shown = matches!(plan.layer, Some(Layer::Shown(_)));
    let mark = Path::new(READERS).join(&plan.layer_user);
    let mut found = Vec::new();
    let mut open = |name: &Path| -> Result<OwnedFd> {
        let part = fs::openat(&top, name, DIRECTORY | OFlags::PATH, Mode::empty())?;
        found.push(identity(&fd::stat(&part)?));
        Ok(part)
    };
    let upper = open(Path::new(UPPER))?;
    let opened = if plan.layer_seen.len() == 1 {
        Opened::Fixed(upper)
    } else {
        let parts = Parts { upper, work: open(Path::new(WORK))? };
        let beside = Top::open(&top)?;
        match shown {
            false => Opened::Overlay { dir: path, parts, top: beside },
            true => {
                let mark = Mark::open(|name| open(&mark.join(name)))?;
                Opened::Shown { dir: path, parts, mark, top: beside }
            }
        }
    };
    if plan.layer_seen != found {
        bail!("somebody has put another directory in its place");
    }
    Ok(opened)
}

impl Opened {
    /// Puts the layer over the image that `rootfs` has mounted. Whatever is made in the root from here on is made in the
    /// layer. Returns the file system of a layer in memory.
    pub(super) fn put_over(self, plan: &Plan, rootfs: &mut Rootfs<'_>) -> Result<Option<OwnedFd>> {
        refuse_mounts_in_image(rootfs)?;
        // A mount in the image's place must not appear on the host, where the image's own mount is shared.
        mount::set_attr(rootfs.as_fd(), Recursive::No, Attr::propagating(PropagationType::Private))
            .context(|| format!("rootfs {}: keep its mount apart from the host's", plan.rootfs.display()))?;
        let image = rootfs.as_fd().try_clone_to_owned().context(|| "duplicate a descriptor")?;
        let (overlay, at) = match self {
            Opened::Overlay { dir, parts, top } => {
                let _alone = top.lock().context(|| format!("--overlay {}", dir.display()))?;
                let overlay = new_overlay(plan, &[&image], &parts)?;
                begin_to_write(&dir, &top, &plan.layer_user)?;
                (overlay, None)
            }
            Opened::Memory => {
                let (parts, tmpfs) = parts_in_memory(plan, &image, &image)?;
                (new_overlay(plan, &[&image], &parts)?, Some(tmpfs))
            }
            Opened::Fixed(layer) => {
                let (parts, tmpfs) = parts_in_memory(plan, &layer, &image)?;
                (new_overlay(plan, &[&layer, &image], &parts)?, Some(tmpfs))
            }
            Opened::Shown { dir, parts, mark, top } => {
                let _alone = top.lock().context(|| format!("--overlay {}", dir.display()))?;
                let overlay = new_overlay(plan, &[&parts.upper, &image], &mark.parts)?;
                // As whoever writes mounts it, so the kernel says whether it was made over this image, too.
                exclusively(&image, &parts).map_err(|e| refused(plan, &image, e))?;
                top.sweep_many().context(|| format!("--overlay {}", dir.display()))?;
                (overlay, None)
            }
        };
        mount::attach(&overlay, at.as_ref().unwrap_or(&image))
            .context(|| "mount an overlay over the image")?;
        rootfs.replace_image(overlay)?;
        Ok(at)
    }
}

impl Mark {
    /// Opens its parts by `open`, in the order of [`MARK`].
    fn open(open: impl FnMut(&str) -> Result<OwnedFd>) -> Result<Mark> {
        let [upper, work, lower] = MARK.map(open);
        Ok(Mark { parts: Parts { upper: upper?, work: work? }, lower: lower? })
    }

    /// Mounts it alone, for the time that the overlay is there.
    ///
    /// # Errors
    /// EBUSY where somebody has it mounted.
    fn mount(&self) -> Result<OwnedFd> {
        exclusively(&self.lower, &self.parts)
    }
}

/// An overlay that the kernel refuses with EBUSY where another overlay has one of these directories as its upper layer.
fn exclusively(lower: &OwnedFd, parts: &Parts) -> Result<OwnedFd> {
    let mut params = layers(&[lower], parts);
    params.extend([Param::Value("index".into(), "on".into()), Param::Flag("userxattr".into())]);
    patiently(PATIENCE, || mount::new_fs("overlay", "overlay", &params, mount::ATTR_NODEV))
}

impl Top {
    fn open(top: &OwnedFd) -> Result<Top> {
        let readers = fs::openat(top, READERS, DIRECTORY, Mode::empty()).context(|| READERS)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let writer = fs::openat(top, WRITER, flags, Mode::RUSR | Mode::WUSR).context(|| WRITER)?;
        Ok(Top { readers, writer })
    }

    /// Waits until nobody else tries whether the layer is in use, for as long as what is returned is there.
    fn lock(&self) -> Result<OwnedFd> {
        let locked = || {
            let alone = fs::openat(&self.readers, ".", DIRECTORY, Mode::empty())?;
            rustix::io::retry_on_intr(|| fs::flock(&alone, FlockOperation::LockExclusive))?;
            Ok::<_, Errno>(alone)
        };
        locked().context(|| format!("lock {READERS}"))
    }

    /// Removes the marks of readers that have ended, where many have come together.
    fn sweep_many(&self) -> Result<()> {
        if self.marks()?.len() > MOST_MARKS { self.sweep().map(drop) } else { Ok(()) }
    }

    /// Removes the marks of readers that have ended. Returns one that has not.
    fn sweep(&self) -> Result<Option<String>> {
        let mut reader = None;
        let readers = &self.readers;
        for name in self.marks()? {
            let open = |part: &str| -> Result<OwnedFd> {
                Ok(fs::openat(readers, format!("{name}/{part}"), DIRECTORY | OFlags::PATH, Mode::empty())?)
            };
            let mounted = match Mark::open(open) {
                // The mark is being made, or removed.
                Err(e) if e.is(libc::ENOENT) => continue,
                mark => mark.and_then(|mark| mark.mount()),
            };
            match mounted {
                Err(e) if e.is(libc::EBUSY) => reader = Some(name),
                // The layer was mounted over another lower layer, and is no longer.
                Err(e) if !e.is(libc::ESTALE) => {
                    return Err(e.context(format!("look whether {name} reads it")));
                }
                _ => remove_old(readers, &name)?,
            }
        }
        Ok(reader)
    }

    /// The names of the marks.
    fn marks(&self) -> Result<Vec<String>> {
        let names = look::names(&self.readers).context(|| READERS)?;
        Ok(names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect())
    }
}

/// Says beside the layer in `dir` that the container `id` writes to the layer, which it has mounted.
///
/// # Errors
/// Somebody shows the layer.
fn begin_to_write(dir: &Path, top: &Top, id: &str) -> Result<()> {
    let shown = || format!("--overlay {}", dir.display());
    if let Some(reader) = top.sweep().context(shown)? {
        return Err(Error::from_errno(libc::EBUSY)
            .context(format!("{}: container {reader} reads it", shown()))
            .hint("many can have it with --read-only, or one can write to it"));
    }
    let writer = &top.writer;
    fs::ftruncate(writer, 0)
        .map_err(Error::from)
        .and_then(|()| fd::write_all(writer, id.as_bytes()))
        .context(shown)
}

/// Who is noted as the one that writes to the layer in `dir`, for the end of a sentence.
fn noted_writer(dir: &Path) -> String {
    let noted = fd::read_hostile(&dir.join(WRITER), 4096);
    noted.map(|id| format!(" ({})", log::one_line(&String::from_utf8_lossy(&id)))).unwrap_or_default()
}

/// The error of a mark that could not be mounted in `dir`.
#[cold]
fn written_to(dir: &Path, e: Error) -> Error {
    match e.errno() {
        Some(libc::EBUSY) => Error::from_errno(libc::EBUSY)
            .context(format!(
                "--overlay {}: another container writes to it{}",
                dir.display(),
                noted_writer(dir)
            ))
            .hint("many can have it with --read-only, or one can write to it"),
        _ => e.context(format!("--overlay {}: mark that it is read", dir.display())),
    }
}

fn remove_old(readers: &OwnedFd, name: &str) -> Result<()> {
    let path = PathBuf::from(format!("{}/{name}", fd::link(readers)));
    let age = std::fs::metadata(&path).and_then(|found| found.modified()).map(|made| made.elapsed());
    if matches!(age, Ok(Ok(age)) if age > YOUNG) {
        tree::remove(readers, name.as_bytes(), None).context(|| format!("remove the mark {name}"))?;
    }
    Ok(())
}

/// Keeps others from writing to the layer in `dir` for as long as this process's mount namespace, which is its own, is there.
/// `id` says to them who reads it.
pub(super) fn keep_from_writers(dir: &Path, id: &str) -> Result<()> {
    let path: PathBuf = dir.components().collect();
    let keep = || -> Result<()> {
        let directory = Directory::of(open_top(&path)?)?;
        let open = |name: &Path| -> Result<OwnedFd> {
            fs::openat(&directory.fd, name, DIRECTORY | OFlags::PATH, Mode::empty())
                .context(|| name.display())
        };
        let upper = open(Path::new(UPPER))?;
        if name_of_overlay_stranger(&directory.fd)?.is_some() {
            return Ok(());
        }
        let parts = Parts { work: open(Path::new(WORK))?, upper };
        directory.mark(id, Mode::RWXU, (None, None))?;
        let place = Path::new(READERS).join(id);
        let mark = Mark::open(|name| open(&place.join(name)))?;
        let top = Top::open(&directory.fd)?;
        let _alone = top.lock()?;
        mount::attach(&mark.mount()?, &open(&place)?)?;
        // Root's overlay would note this lower layer as the image where none is noted. Root has no writer there then.
        let may_note = Caller::current()?.privilege == Privilege::Root;
        if may_note && !has_origin(&parts.upper)? {
            return Ok(());
        }
        match exclusively(&mark.lower, &parts) {
            // The layer is over another lower layer, the image.
            Err(e) if e.is(libc::ESTALE) => Ok(()),
            tried => tried.map(drop),
        }
    };
    keep().map_err(|e| match e.errno() {
        Some(libc::EBUSY) => written_to(dir, e),
        _ => e.context(format!("--overlay {}", dir.display())),
    })
}

/// True where overlayfs has noted in an upper layer over which image it is.
fn has_origin(upper: &OwnedFd) -> Result<bool> {
    let path = fd::link(upper);
    match fs::getxattr(&*path, "user.overlay.origin", &mut [0u8; 256][..]) {
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(false),
        found => found.map(|_| true).context(|| "look over which image it is"),
    }
}

/// An overlay shows the image's directories, not what is mounted on them. What another user has mounted, on what is his in a
/// directory that the image leaves open to everybody, is nothing of the image's, and stops nobody.
fn refuse_mounts_in_image(rootfs: &Rootfs<'_>) -> Result<()> {
    let image = fd::path_of(rootfs.as_fd())?;
    for found in mount::table()? {
        if found.point != image && found.point.starts_with(&image) && !found.is_others_fuse()? {
            bail!(
                "{} is a mount of its own in the image, which an overlay cannot show",
                found.point.display()
            );
        }
    }
    Ok(())
}

/// A new tmpfs with the parts of a layer, mounted on `at`: overlayfs takes layers from mounted file systems only. The root will
/// look as `like` does.
fn parts_in_memory(plan: &Plan, like: &OwnedFd, at: &OwnedFd) -> Result<(Parts, OwnedFd)> {
    let stat: Stat = fd::stat(like)?;
    let mode = |bits: u32| Param::Value("mode".into(), format!("{bits:o}"));
    let mut params = vec![mode(0o700)];
    params.extend(plan.layer_bound.map(|bytes| Param::Value("size".into(), bytes.to_string())));
    let tmpfs =
        mount::new_fs("tmpfs", "tmpfs", &params, 0).context(|| "make a tmpfs for the root's changes")?;
    mount::attach(&tmpfs, at)?;
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

/// The parameters of an overlay, the lower layers from the top.
fn layers(lower: &[&OwnedFd], parts: &Parts) -> Vec<Param> {
    // Overlayfs takes layers as text. Through /proc/self/fd the text names the directories of the descriptors, whatever is
    // mounted on top of them by now.
    let name = |dir: &OwnedFd| fd::link(dir);
    let lower: Vec<_> = lower.iter().map(|dir| name(dir)).collect();
    let layer = |key: &str, text: String| Param::Value(key.into(), text);
    vec![
        layer("lowerdir", lower.join(":")),
        layer("upperdir", name(&parts.upper)),
        layer("workdir", name(&parts.work)),
    ]
}

fn new_overlay(plan: &Plan, lower: &[&OwnedFd], parts: &Parts) -> Result<OwnedFd> {
    let mut params = layers(lower, parts);
    let kept = matches!(plan.layer, Some(Layer::Overlay(_)));
    if kept {
        // With it, the kernel refuses an upper layer that another overlay uses (EBUSY); else two would spoil each other's
        // files.
        params.push(Param::Value("index".into(), "on".into()));
    }
    // In a user namespace overlayfs may not use attributes trusted.*. Whoever uses a directory that is kept
    // must find the attributes that others have set.
    if kept || lower.len() > 1 || !plan.may_mknod {
        params.push(Param::Flag("userxattr".into()));
    }
    // The layers' text says nothing to whoever looks at the mounts of a container for the image that it uses, as `rt prune`
    // does. The source of a mount can be any text of 255 bytes.
    let source = plan.bundle.to_str().filter(|bundle| bundle.len() < 256).unwrap_or("overlay");
    let image = lower[lower.len() - 1];
    let patience = if plan.waits_for_layer { PATIENCE_OF_A_STEP } else { PATIENCE };
    patiently(patience, || mount::new_fs("overlay", source, &params, mount::ATTR_NODEV))
        .map_err(|e| refused(plan, image, e))
}

/// Mounts by `mount`, and waits up to `patience` milliseconds for directories that another overlay uses.
fn patiently(patience: i64, mount: impl Fn() -> Result<OwnedFd>) -> Result<OwnedFd> {
    let (mut pause, mut waited) = (4, 0);
    loop {
        match mount() {
            Err(e) if e.is(libc::EBUSY) && waited < patience => {
                wait(pause);
                if waited < SILENCE && waited + pause >= SILENCE {
                    log::tell("waiting for the end of processes that still use the container's files");
                }
                waited += pause;
                pause = LONGEST_PAUSE.min(pause * 2);
            }
            mounted => return mounted,
        }
    }
}

/// Sleeps for so many milliseconds, or until a signal comes.
fn wait(milliseconds: i64) {
    let (tv_sec, tv_nsec) = (milliseconds / 1000, milliseconds % 1000 * 1_000_000);
    let _ = rustix::thread::nanosleep(&rustix::time::Timespec { tv_sec, tv_nsec });
}

/// What can be done where another container writes to the layer.
#[cold]
fn each_its_own(plan: &Plan) -> String {
    let each = "each container that writes needs a directory of its own";
    match &plan.apart {
        Some(apart) => format!("{each}, and a rank with {apart} shares none"),
        None => each.to_owned(),
    }
}

/// The error of an overlay that the kernel has not made, with what can be done.
#[cold]
fn refused(plan: &Plan, image: &OwnedFd, e: Error) -> Error {
    let in_user_namespace = plan.makes(Namespace::User) || !plan.may_mknod;
    let foreign = name_of_overlay_stranger(image).ok().flatten();
    let errno = e.errno().unwrap_or(0);
    match (&plan.layer, errno) {
        (Some(Layer::Overlay(dir)), libc::EBUSY) => Error::from_errno(errno)
            .context(format!("--overlay {}: another container uses it{}", dir.display(), noted_writer(dir)))
            .hint(each_its_own(plan)),
        (Some(Layer::Shown(dir)), libc::EBUSY) => written_to(dir, e),
        (Some(Layer::Overlay(dir)), libc::ESTALE) => Error::from_errno(errno)
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
