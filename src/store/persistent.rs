//! Containers that outlive their processes: what they are made from, and where the layer is with what was written to them.
//!
//! The file `kept.json` in the container's directory says so. While it is there, the end of the last process leaves the
//! directory as it is.

use super::{Access, ContainerDir, Store, list_names};
use rt_sys::error::{Context, Result};
use rt_sys::owned::Owned;
use rt_sys::{bail, err, fd, look, tree};
use rustix::fd::OwnedFd;
use rustix::fs::{self, AtFlags, FileType, FlockOperation, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The file's name.
pub(super) const PERSISTENT: &str = "kept.json";

/// What stands before a step's name in the note of the directory that it saves its container to.
pub(super) const PLACE: &str = "save.";

/// How the names of the directories for layers begin.
const LAYERS: &str = "rt-layers";

/// What stands before a step's name in the note that the container is to be saved for it, and is not saved yet.
const UNSAVED: &str = "unsaved.";
/// What it leads to where none has come to its end, and what stands before the file where a save has failed.
const PENDING: &str = "pending";
const FAILED: &str = "failed:";

/// How far a container has come that is to be saved, and is not: what was written to it is in its layer alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unsaved {
    /// Tasks have ended, and no save has come to its end.
    Pending,
    /// The save to this file has failed, and that was said. `rt list` says it again, since nobody may have read it.
    Failed(PathBuf),
}

/// What is known of a container that outlives its processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PersistentContainer {
    /// The bundle or the image file that it is made from.
    pub image: PathBuf,
    /// It is a file.
    pub is_file: bool,
    /// Which file, as [`file_note`] has it: a layer fits no other one. None in what an older `rt` has written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The image as it was asked for: a name keeps its meaning here, also where the registry gives it another one. Empty where
    /// nothing says it.
    #[serde(default, rename = "asked")]
    pub image_name: String,
    /// The directory of the layer.
    pub layer: PathBuf,
    /// Which directory the layer is in, by device and inode: in another mount namespace its path may lead elsewhere. None in what an
    /// older `rt` has written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layers: Option<String>,
    /// It is there until it is removed, and not for its job alone.
    pub global: bool,
    /// The step that has made it, `JOB.STEP`.
    pub maker: String,
}

impl PersistentContainer {
    /// Refuses an image file that has come into the place of the one that the container was made from.
    pub(crate) fn check_file(&self) -> Result<()> {
        match self.is_same_file()? {
            true => Ok(()),
            false => Err(err!("{}: another file than the container was made from", self.image.display())
                .hint("what was written to it fits that one alone")),
        }
    }

    fn is_same_file(&self) -> Result<bool> {
        self.file.as_ref().map_or(Ok(true), |noted| Ok(*noted == file_note(&self.image)?))
    }

    /// Whether the layer is there; `None` where this process cannot see that: TmpFS may be a job's own (job_container/tmpfs), and this
    /// process in no task of it.
    pub(crate) fn has_layer(&self) -> Option<bool> {
        let found = layers_note(&self.layer)?;
        if self.layers.as_ref().is_some_and(|noted| *noted != found) {
            return None;
        }
        look::is_dir(&self.layer).ok()
    }

    /// False where the image is not there, or another file is in its place, without which nothing comes of the layer. Where the kernel does
    /// not say, it counts as there.
    pub(crate) fn has_image(&self) -> bool {
        look::exists(&self.image).unwrap_or(true) && self.is_same_file().unwrap_or(true)
    }
}

/// Which directory a layer is in.
pub(crate) fn layers_note(layer: &Path) -> Option<String> {
    fs::stat(layer.parent()?).ok().map(|stat| place_note(&stat))
}

/// What tells an image file from one that comes into its place. Its inode does not: some network file systems give another number
/// after each mount.
pub(crate) fn file_note(path: &Path) -> Result<String> {
    let stat = fs::stat(path).context(|| format!("image file {}", path.display()))?;
    Ok(format!("{}:{}.{:09}", stat.st_size, stat.st_mtime, stat.st_mtime_nsec))
}

impl Store {
    /// What is known of container `id`, if it is one that outlives its processes.
    pub(crate) fn persistent(&self, id: &str) -> Result<Option<PersistentContainer>> {
        super::check_id(id)?;
        if self.holds(id)? { self.container(id)?.persistent() } else { Ok(None) }
    }

    /// The files that steps were to save container `id` as, and could not: of the caller's own containers.
    ///
    /// # Errors
    /// Where the kernel does not say.
    pub(crate) fn failed_saves(&self, id: &str) -> Result<Vec<PathBuf>> {
        let dir = if self.access == Access::Own { self.find(id)? } else { None };
        dir.map_or(Ok(Vec::new()), |dir| dir.failed_saves())
    }

    /// Removes the caller's layers below `tmpfs` whose name `is_meant`, and whose container is not there: nothing leads to them
    /// any more. What holds up one of them keeps no other.
    pub(crate) fn sweep_layers(&self, tmpfs: &Path, is_meant: impl Fn(&str) -> bool) -> Result<()> {
        let first = format!("{LAYERS}-{}", rustix::process::geteuid().as_raw());
        let places = look::entries(tmpfs).context(|| format!("list {}", tmpfs.display()))?;
        let is_place = |path: &PathBuf| {
            let rest = path.file_name().and_then(|name| name.to_str()?.strip_prefix(&first));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let mut swept = Ok(());
        for own in places.into_iter().filter(is_place) {
            if !matches!(look_at(&own), Ok(Place::Callers)) {
                continue;
            }
            for name in look::names(&open_own(&own)?).context(|| format!("list {}", own.display()))? {
                let Ok(name) = std::str::from_utf8(&name) else { continue };
                if is_meant(name) {
                    let removed = self.holds(name).and_then(|holds| match holds {
                        true => Ok(()),
                        false => remove_layer(&own.join(name)),
                    });
                    swept = swept.and(removed);
                }
            }
        }
        swept
    }
}

impl ContainerDir {
    /// True where the container outlives its processes.
    ///
    /// # Errors
    /// Where the kernel does not say: nobody may remove it then.
    pub(crate) fn is_kept(&self) -> Result<bool> {
        // Not by stat(2), which asks what is mounted there.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match fs::openat2(&self.fd, PERSISTENT, flags, Mode::empty(), super::OF_ONE_FILE_SYSTEM) {
            Ok(_) => Ok(true),
            // ELOOP and EXDEV: a link, or what is mounted there, which no `rt` has made.
            Err(Errno::NOENT | Errno::LOOP | Errno::XDEV) => Ok(false),
            Err(e) => Err(e).context(|| format!("look at the state of {}", self.id)),
        }
    }

    /// What is known of it, if it does.
    pub(crate) fn persistent(&self) -> Result<Option<PersistentContainer>> {
        let context = || format!("read what container {} is made from", self.id);
        let file = match self.open_file(PERSISTENT) {
            Err(Errno::NOENT) => return Ok(None),
            file => file.context(context)?,
        };
        let text = fd::read_regular(file, 1 << 16).context(context)?;
        let text = text.ok_or_else(|| err!("no small file")).context(context)?;
        serde_json::from_slice(&text).map(Some).map_err(|e| err!("{e}").context(context()))
    }

    /// Has the container outlive its processes. It may do so already.
    pub(crate) fn keep(&self, kept: &PersistentContainer) -> Result<()> {
        let context = || format!("write what container {} is made from", self.id);
        if self.is_kept()? {
            return Ok(());
        }
        // Whole before it has its name: tasks that join read it at any time.
        let new = format!("{PERSISTENT}.{}", std::process::id());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = fs::openat(&self.fd, new.as_str(), flags, Mode::RUSR | Mode::WUSR).context(context)?;
        let text = serde_json::to_vec(kept).map_err(|e| err!("{e}"))?;
        fd::write_all(&file, &text).context(context)?;
        let linked = fs::linkat(&self.fd, new.as_str(), &self.fd, PERSISTENT, AtFlags::empty());
        let _ = fs::unlinkat(&self.fd, new.as_str(), AtFlags::empty());
        match linked {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(e) => Err(e).context(context),
        }
    }

    /// Notes that the step `step` is to save the container, and which directory `dir` is that it saves it to, by device and inode. A
    /// task calls it before its program runs: the programs of the step may be able to put something else in the place of `dir`, and
    /// other users may fill the file system of the notes. The first task's notes stay, also where the directory was missing.
    pub(crate) fn note_save(&self, step: &str, dir: &Path) -> Result<()> {
        let found = match fs::stat(dir) {
            Ok(stat) => place_note(&stat),
            // The end of the step says what is wrong with it.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP) => "-".to_owned(),
            Err(e) => return Err(e).context(|| format!("look at {}", dir.display())),
        };
        for (target, note) in [(&*found, PLACE), (PENDING, UNSAVED)] {
            match fs::symlinkat(target, &self.fd, format!("{note}{step}")) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(e) => return Err(e).context(|| format!("note where container {} is saved", self.id)),
            }
        }
        Ok(())
    }

    /// Opens the directory `dir` that the step `step` saves the container to. The note stays until it is saved ([`Self::note_saved`]):
    /// a save that was cut off is made again.
    ///
    /// # Errors
    /// It is not the directory that it was when the step began. One that was not there then may have no link in its path.
    pub(crate) fn open_place(&self, step: &str, dir: &Path) -> Result<OwnedFd> {
        let name = format!("{PLACE}{step}");
        let noted = match fs::readlinkat(&self.fd, name.as_str(), Vec::new()) {
            Ok(noted) => Some(noted.into_string().unwrap_or_default()),
            Err(Errno::NOENT) => None,
            Err(e) => return Err(e).context(|| format!("read where container {} is saved", self.id)),
        };
        let noted = noted.filter(|noted| noted != "-");
        let resolve = if noted.is_some() { ResolveFlags::empty() } else { ResolveFlags::NO_SYMLINKS };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = match fs::openat2(fs::CWD, dir, flags, Mode::empty(), resolve) {
            Err(Errno::LOOP) => {
                bail!("{}: a link in its path was not there when the step began", dir.display())
            }
            opened => opened.context(|| format!("open {}", dir.display()))?,
        };
        let found = place_note(&fd::stat(&opened)?);
        if noted.is_some_and(|noted| noted != found) {
            bail!("{}: not the directory that it was when the step began", dir.display());
        }
        Ok(opened)
    }

    /// Notes that the container is not saved for the step `step`, in place of what was noted of that step. Who makes the container
    /// anew forgets it.
    pub(crate) fn note_unsaved(&self, step: &str, unsaved: &Unsaved) -> Result<()> {
        let context = || format!("note that container {} is not saved", self.id);
        if self.unsaved(step)?.as_ref() == Some(unsaved) {
            return Ok(());
        }
        let target = match unsaved {
            Unsaved::Pending => PENDING.as_bytes().to_owned(),
            Unsaved::Failed(file) => [FAILED.as_bytes(), file.as_os_str().as_bytes()].concat(),
        };
        // At no time is there no note: who finds none removes the layer.
        let new = format!("new.{UNSAVED}{}", std::process::id());
        let _ = fs::unlinkat(&self.fd, new.as_str(), AtFlags::empty());
        match fs::symlinkat(target, &self.fd, new.as_str()) {
            // A link holds no longer path.
            Err(Errno::NAMETOOLONG) => fs::symlinkat(FAILED, &self.fd, new.as_str()),
            made => made,
        }
        .context(context)?;
        fs::renameat(&self.fd, new.as_str(), &self.fd, format!("{UNSAVED}{step}")).context(context)
    }

    /// Notes that the step `step` has saved it.
    pub(crate) fn note_saved(&self, step: &str) -> Result<()> {
        for note in [PLACE, UNSAVED].map(|note| format!("{note}{step}")) {
            match fs::unlinkat(&self.fd, note, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(e) => return Err(e).context(|| format!("note that container {} is saved", self.id)),
            }
        }
        Ok(())
    }

    /// What is noted of that for the step `step`; `None` where it is saved, or never was to be.
    ///
    /// # Errors
    /// Where the kernel does not say.
    pub(crate) fn unsaved(&self, step: &str) -> Result<Option<Unsaved>> {
        match fs::readlinkat(&self.fd, format!("{UNSAVED}{step}"), Vec::new()) {
            Ok(target) => Ok(Some(match target.as_bytes().strip_prefix(FAILED.as_bytes()) {
                Some(file) => Unsaved::Failed(OsStr::from_bytes(file).into()),
                None => Unsaved::Pending,
            })),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(e).context(|| format!("look at the state of {}", self.id)),
        }
    }

    /// The files that it was to be saved as, and could not.
    ///
    /// # Errors
    /// As of [`ContainerDir::unsaved`].
    fn failed_saves(&self) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for name in list_names(&self.fd, FileType::Symlink)? {
            let Some(step) = name.strip_prefix(UNSAVED) else { continue };
            if let Some(Unsaved::Failed(file)) = self.unsaved(step)? {
                files.push(file);
            }
        }
        Ok(files)
    }

    /// True where any step is to save it, and has not.
    ///
    /// # Errors
    /// Where the kernel does not say: nobody may remove it then.
    pub(crate) fn is_unsaved(&self) -> Result<bool> {
        let names = list_names(&self.fd, FileType::Symlink)?;
        Ok(names.iter().any(|name| name.starts_with(UNSAVED)))
    }

    /// Ends that, and removes the layer.
    pub(crate) fn unkeep(&self) -> Result<()> {
        let Some(kept) = self.persistent()? else { return Ok(()) };
        remove_layer(&kept.layer)?;
        match fs::unlinkat(&self.fd, PERSISTENT, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(e).context(|| format!("remove the state of {}", self.id)),
        }
    }
}

/// What tells a directory from others.
fn place_note(stat: &fs::Stat) -> String {
    format!("{}:{}", stat.st_dev, stat.st_ino)
}

/// The directory for a container's layer, below `tmpfs`, a directory of the node for temporary files: that of the caller is
/// made where it is missing. The layer's own is made later, or is there.
pub(crate) fn layer_directory(tmpfs: &Path, id: &str) -> Result<PathBuf> {
    Ok(own_directory(tmpfs, LAYERS)?.join(id))
}

/// The caller's directory for layers below `tmpfs`, whose name is `kind` and the caller's id. Where somebody else has made
/// something of that name, which everybody can in /tmp, it is one of the next names, the first that the caller has: all tasks of
/// a step come to the same. Where others have all of them, it is one of a random name, which is found again by its owner.
pub(super) fn own_directory(tmpfs: &Path, kind: &str) -> Result<PathBuf> {
    const NAMES: u32 = 100;
    let me = rustix::process::geteuid().as_raw();
    let first = tmpfs.join(format!("{kind}-{me}"));
    let names =
        || std::iter::once(first.clone()).chain((1..NAMES).map(|n| tmpfs.join(format!("{kind}-{me}.{n}"))));
    // Whoever makes one meanwhile takes a name.
    for _ in 0..NAMES {
        let mut free = None;
        for own in names() {
            match look_at(&own)? {
                Place::Callers => return Ok(own),
                Place::Free => free = free.or(Some(own)),
                Place::Others => {}
            }
        }
        let Some(own) = free else { break };
        match fs::mkdir(&own, Mode::RWXU) {
            Ok(()) => return Ok(own),
            Err(Errno::EXIST) => {}
            Err(e) => return Err(e).context(|| format!("the directory for layers {}", own.display())),
        }
    }
    of_random_name(tmpfs, &format!("{kind}-{me}."))
}

/// True where the caller's layers are in `tmpfs` already, or may be made there.
pub(crate) fn takes_layers(tmpfs: &Path) -> bool {
    let own = tmpfs.join(format!("{LAYERS}-{}", rustix::process::geteuid().as_raw()));
    let access = fs::accessat(fs::CWD, tmpfs, fs::Access::WRITE_OK | fs::Access::EXEC_OK, AtFlags::EACCESS);
    !matches!(access, Err(Errno::ACCESS | Errno::PERM | Errno::ROFS))
        || matches!(look_at(&own), Ok(Place::Callers))
}

/// The caller's directory below `tmpfs` whose name begins with `prefix`, whatever follows; made where there is none.
fn of_random_name(tmpfs: &Path, prefix: &str) -> Result<PathBuf> {
    const TRIES: u32 = 20;
    let context = || format!("a directory for layers in {}", tmpfs.display());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let names = fs::open(tmpfs, flags, Mode::empty()).context(context)?;
    for _ in 0..TRIES {
        if let Some(own) = first_own(tmpfs, &names, prefix)? {
            return Ok(own);
        }
        // So that tasks which begin at once come to the same. Others can hold the lock, too, which holds nobody up for long.
        match fs::flock(&names, FlockOperation::NonBlockingLockExclusive) {
            // A file system without locks has them for nobody.
            Ok(()) | Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => break,
            Err(Errno::WOULDBLOCK | Errno::INTR) => std::thread::sleep(Duration::from_millis(50)),
            Err(e) => return Err(e).context(context),
        }
    }
    if let Some(own) = first_own(tmpfs, &names, prefix)? {
        return Ok(own);
    }
    let own = tmpfs.join(format!("{prefix}{}", rt_sys::unique::name()));
    fs::mkdir(&own, Mode::RWXU).context(context)?;
    Ok(own)
}

/// The first of the caller's directories for layers among `names` of `tmpfs` that begin with `prefix`.
fn first_own(tmpfs: &Path, names: &OwnedFd, prefix: &str) -> Result<Option<PathBuf>> {
    let mut names = look::names(names).context(|| format!("list {}", tmpfs.display()))?;
    names.retain(|name| name.starts_with(prefix.as_bytes()));
    names.sort_unstable();
    for name in names {
        let own = tmpfs.join(OsStr::from_bytes(&name));
        if matches!(look_at(&own)?, Place::Callers) {
            return Ok(Some(own));
        }
    }
    Ok(None)
}

/// What is at a name for the caller's layers.
enum Place {
    Free,
    Callers,
    Others,
}

fn look_at(own: &Path) -> Result<Place> {
    match fd::open_beside_others(own, OFlags::PATH) {
        Ok(dir) if is_own_directory(&dir)? => Ok(Place::Callers),
        // A link, a file's name in the path, or a mount.
        Ok(_) | Err(Errno::LOOP | Errno::NOTDIR | Errno::XDEV) => Ok(Place::Others),
        Err(Errno::NOENT) => Ok(Place::Free),
        Err(e) => Err(e).context(|| format!("the directory for layers {}", own.display())),
    }
}

/// Opens that directory to read it.
pub(super) fn open_own(own: &Path) -> Result<OwnedFd> {
    open_layers(own, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// Opens the directory for the caller's layers. Everybody can make something of this name in /tmp, and a program in a container
/// can have it.
fn open_layers(own: &Path, how: OFlags) -> Result<OwnedFd> {
    let me = rustix::process::geteuid().as_raw();
    let remedy = "TmpFS in slurm.conf, or with oci.conf RT_CONTAINER_TMPFS, names another directory; without Slurm, TMPDIR does";
    let context = || format!("the directory for layers {}", own.display());
    let dir = match fd::open_beside_others(own, how) {
        Err(Errno::XDEV) => {
            return Err(err!("somebody has mounted something there").hint(remedy).context(context()));
        }
        dir => dir.context(context)?,
    };
    if !is_own_directory(&dir)? {
        return Err(err!("it must be a directory of uid {me} that nobody else can write")
            .hint(remedy)
            .context(context()));
    }
    Ok(dir)
}

/// Opens the directory of a layer, which is there: that of the caller's that [`layer_directory`] has named, and nothing that a
/// program has put into its place.
pub(crate) fn open_layer(layer: &Path) -> Result<OwnedFd> {
    let context = || format!("the layer {}", layer.display());
    let (Some(parent), Some(name)) = (layer.parent(), layer.file_name()) else {
        bail!("{}: no layer", layer.display())
    };
    let dir = fd::open_entry(open_layers(parent, OFlags::PATH)?, name, OFlags::PATH).context(context)?;
    if !is_own_directory(&dir)? {
        return Err(err!("it is no directory of the caller's, or others can write in it").context(context()));
    }
    Ok(dir)
}

fn is_own_directory(dir: &OwnedFd) -> Result<bool> {
    let found = Owned::as_told(dir)?;
    Ok(FileType::from_raw_mode(found.stat.st_mode) == FileType::Directory
        && found.stat.st_uid == rustix::process::geteuid().as_raw()
        && !found.others_can_write(dir, false)?)
}

/// Removes a layer with all that is in it. One that is not there is no error.
pub(crate) fn remove_layer(layer: &Path) -> Result<()> {
    let context = || format!("remove the layer {}", layer.display());
    let (Some(parent), Some(name)) = (layer.parent(), layer.file_name()) else {
        bail!("{}: no layer", layer.display())
    };
    let me = rustix::process::geteuid().as_raw();
    match fd::open_beside_others(parent, OFlags::PATH | OFlags::DIRECTORY) {
        Ok(dir) if Owned::as_told(&dir)?.stat.st_uid == me => {
            tree::remove(dir, name.as_encoded_bytes(), None).context(context)
        }
        // Somebody else has taken the name since, and nothing of the caller's is there.
        Ok(_) | Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR | Errno::XDEV) => Ok(()),
        Err(e) => Err(e).context(context),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_layer_fits_one_image_file() {
        let image = std::env::temp_dir().join(format!("rt-image-{}.sqsh", std::process::id()));
        std::fs::write(&image, "hsqs one").unwrap();
        let file = file_note(&image).unwrap();
        let kept = r#"{"image":"","is_file":true,"layer":"","global":false,"maker":""}"#;
        let older: PersistentContainer = serde_json::from_str(kept).unwrap();
        let older = PersistentContainer { image: image.clone(), ..older };
        let kept = PersistentContainer { file: Some(file), ..older.clone() };
        kept.check_file().unwrap();
        // Another one of the same length.
        std::fs::write(&image, "hsqs two").unwrap();
        let later = std::time::SystemTime::now() + std::time::Duration::from_millis(1);
        std::fs::File::open(&image).unwrap().set_modified(later).unwrap();
        assert!(kept.check_file().unwrap_err().to_string().contains("another file"));
        older.check_file().unwrap();
        std::fs::remove_file(&image).unwrap();
        assert!(kept.check_file().unwrap_err().is(libc::ENOENT));
    }

    #[test]
    fn a_layer_is_removed_whatever_is_in_it() {
        let base = std::env::temp_dir().join(format!("rt-layer-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&base);
        std::fs::create_dir(&base).unwrap();
        std::fs::write(base.join("outside"), "stays").unwrap();
        let layer = layer_directory(&base, "x").unwrap();
        std::fs::create_dir_all(layer.join("upper/a/b")).unwrap();
        std::fs::create_dir_all(layer.join("work/work")).unwrap();
        std::fs::write(layer.join("upper/a/b/f"), "").unwrap();
        symlink(&base, layer.join("upper/link")).unwrap();
        for closed in ["upper/a/b", "upper/a", "work/work"] {
            std::fs::set_permissions(layer.join(closed), PermissionsExt::from_mode(0o000)).unwrap();
        }
        remove_layer(&layer).unwrap();
        assert!(!layer.exists() && base.join("outside").exists());
        remove_layer(&layer).unwrap();
        // What somebody else could have made, by which nobody is held up, in whatever order it comes.
        let (own, open) = (layer.parent().unwrap(), |mode| PermissionsExt::from_mode(mode));
        std::fs::set_permissions(own, open(0o777)).unwrap();
        let name = |n| PathBuf::from(format!("{}.{n}", own.display()));
        std::fs::write(name(1), "").unwrap();
        assert_eq!(layer_directory(&base, "x").unwrap(), name(2).join("x"));
        std::fs::remove_file(name(1)).unwrap();
        assert_eq!(layer_directory(&base, "x").unwrap(), name(2).join("x"));
        std::fs::set_permissions(own, open(0o700)).unwrap();
        assert_eq!(layer_directory(&base, "x").unwrap(), layer);
        // All names that are tried.
        std::fs::set_permissions(own, open(0o777)).unwrap();
        std::fs::remove_dir(name(2)).unwrap();
        (1..100).for_each(|n| std::fs::write(name(n), "").unwrap());
        std::fs::create_dir(name(100)).unwrap();
        std::fs::set_permissions(name(100), open(0o777)).unwrap();
        let tasks: Vec<_> = (0..8)
            .map(|_| (base.clone(), "x"))
            .map(|(base, id)| std::thread::spawn(move || layer_directory(&base, id).unwrap()))
            .collect();
        let found: Vec<_> = tasks.into_iter().map(|task| task.join().unwrap()).collect();
        assert!(found.iter().all(|one| *one == found[0] && one.parent().unwrap().is_dir()), "{found:?}");
        // Also where somebody holds the lock.
        let _lock = std::fs::File::open(&base).map(|dir| dir.lock().map(|()| dir)).unwrap();
        assert_eq!(layer_directory(&base, "x").unwrap(), found[0]);
        std::fs::remove_dir(found[0].parent().unwrap()).unwrap();
        assert!(layer_directory(&base, "x").unwrap().parent().unwrap().is_dir());
        std::fs::remove_dir_all(&base).unwrap();
    }
}
