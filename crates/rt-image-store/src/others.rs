//! Bundles of a store that others than root and the caller can write, or can have put there: where they lead to is others' choice.

use crate::{Word, open_stored, stored_on_way, word};
use rt_sys::error::{Context, Error, Result};
use rt_sys::owned::Owned;
use rt_sys::{bail, caller, err, fd};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::path::{Component, Path, PathBuf};

/// The config of a bundle.
pub const CONFIG: &str = "config.json";

/// How ways in a bundle are gone that others can change: out of it by no name and no link, and through no mount, since a file system of
/// theirs need not answer, and nothing ends a process that waits for it, nor a Slurm job with such a process.
pub(crate) const INSIDE: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_XDEV);

/// Opens what is at `way` in `dir`, of a bundle that others can change.
///
/// # Errors
/// Those of openat2(2): ELOOP for a link, EXDEV for a mount or a way out.
pub fn open_inside(dir: impl AsFd, way: &Path, flags: OFlags) -> std::result::Result<OwnedFd, Errno> {
    fs::openat2(dir, way, flags | OFlags::CLOEXEC, Mode::empty(), INSIDE)
}

const PLACE: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// What is seen of a bundle of a store.
#[derive(Debug)]
pub struct Seen {
    /// Its config, or why there is none to be read.
    pub config: Result<OwnedFd>,
    /// What others than root and the caller can do to it, as it is to be shown; `None` where they can do nothing.
    pub others: Option<String>,
}

impl Seen {
    /// Looks at the bundle `path`, whose directory is `dir`: others can write it or its config, or rename on the way to it, so that they
    /// can bring there what the caller has unpacked elsewhere.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn of(dir: &OwnedFd, path: &Path) -> Result<Seen> {
        let config = open_config(dir);
        let others = match &config {
            Ok(file) if !only_callers(file)? => Some(written(file)?),
            Ok(_) => who_changes_dir(dir, path)?,
            Err(e) => match e.errno().map(Errno::from_raw_os_error) {
                Some(Errno::NOENT) => who_changes_dir(dir, path)?,
                // The caller's own can be read, and is a file.
                None | Some(Errno::ACCESS | Errno::LOOP | Errno::XDEV) => Some(e.to_string()),
                Some(_) => return Err(e.clone()),
            },
        };
        Ok(Seen { config, others })
    }
}

/// Why what is of `file` is not the caller's own. In a user namespace one number stands for the host's root and for all who have none
/// there, so nobody is taken for him who could say by a bundle what is to be done.
fn written(file: &OwnedFd) -> Result<String> {
    let is_unknown = caller::may_be_hosts_root(Owned::of(file)?.stat.st_uid);
    let text = if is_unknown {
        "its owner has no id in this user namespace"
    } else {
        "others can write this bundle"
    };
    Ok(text.to_owned())
}

fn open_config(dir: impl AsFd) -> Result<OwnedFd> {
    open_file(dir, CONFIG)
}

fn open_file(dir: impl AsFd, name: &str) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let file = fd::open_unserved(dir, name, flags, how).map_err(fd::unserved_error).context(|| name)?;
    match FileType::from_raw_mode(fd::stat(&file)?.st_mode) {
        FileType::RegularFile => Ok(file),
        _ => bail!("{name}: not a file"),
    }
}

/// True where nobody but root and the caller can write `file`. Members of the caller's own group count as he does where user and group
/// have one number: most umasks let them write.
fn only_callers(file: &OwnedFd) -> Result<bool> {
    let owned = Owned::of(file)?;
    Ok(caller::is_trusted(owned.stat.st_uid) && !owned.strangers_can_write(file)?)
}

fn who_changes_dir(dir: &OwnedFd, path: &Path) -> Result<Option<String>> {
    if !only_callers(dir)? {
        return written(dir).map(Some);
    }
    // In a user namespace all who have no id there look like the host's root, who may own what is above a store, but not a store with
    // bundles of the caller's.
    for (above, shown) in [("..", path.parent()), ("../..", path.parent().and_then(Path::parent))] {
        let above = fs::openat(dir, above, PLACE, Mode::empty()).context(|| path.display())?;
        if !caller::is_trusted(Owned::of(above)?.stat.st_uid) {
            return Ok(Some(renamed(shown.unwrap_or(path).display())));
        }
    }
    Ok(word::changeable_by_others(path)?.map(renamed))
}

fn renamed(place: impl std::fmt::Display) -> String {
    format!("others can rename what is in {place}")
}

/// Whose word the bundle `dir` is, to which `path` led. Others may have moved it out of their store where a relative path led there
/// from a directory that tells no more where it was when the caller entered it. Who has named a bundle by its whole path has chosen
/// its owner, and so has he who names one in a directory of his own.
pub(crate) fn word_of(path: &Path, dir: &OwnedFd) -> Result<Word> {
    match path.is_relative() && names_what_moves(path)? {
        true => word_by_owner(dir),
        false => Ok(Word::Callers),
    }
}

/// True for a relative path to a directory that is found there whatever its owner has made of its name.
fn names_what_moves(path: &Path) -> Result<bool> {
    let starts_at_others = || -> Result<bool> {
        let here = fs::open(".", PLACE, Mode::empty()).context(|| "look at the current directory")?;
        Ok(!is_own(here)?)
    };
    // No name at its end: the directory, or one above it. Below one of others the caller may stand in one of his own.
    let is_above = path.components().any(|part| part == Component::ParentDir);
    Ok(path.file_name().is_none() || is_above || path.iter().any(crate::is_bundle_of) || starts_at_others()?)
}

fn is_own(file: impl AsFd) -> Result<bool> {
    Ok(caller::is_trusted(Owned::of(file)?.stat.st_uid))
}

/// Opens the file `path` that the caller has named, once, to be read. Also says whether it counts as another user's: it is his or in a
/// directory of his, and a relative path names it, or one through a descriptor, which both lead there whatever has become of its name.
/// A pipe has no name, and is the caller's. One with a name, which is waited for, has to be made by root or the caller, as all but files.
///
/// # Errors
/// Those of openat2(2); EXDEV where another user's file system is mounted there. It is no file, and another user's.
pub fn open_named_file(path: &Path) -> Result<(OwnedFd, bool)> {
    /// PIPEFS_MAGIC (linux/magic.h).
    const PIPES: u64 = 0x5049_5045;
    let name = path.file_name().ok_or(Errno::ISDIR)?;
    let above = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let dir = fs::open(above, PLACE, Mode::empty())?;
    // Looked at first: the open of a fifo waits for whoever writes to it, that of a device can have effects.
    let place =
        fd::open_unserved(&dir, name, OFlags::PATH, ResolveFlags::empty()).map_err(fd::unserved_error)?;
    let way = fs::openat2(
        fs::CWD,
        path,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::NO_MAGICLINKS,
    );
    let is_by_descriptor = matches!(way, Err(Errno::LOOP));
    let is_pipe = || -> Result<bool> { Ok(fd::file_system(&place)? == PIPES) };
    let is_file = FileType::from_raw_mode(fd::stat(&place)?.st_mode) == FileType::RegularFile;
    if !is_file && !is_pipe()? && !(is_own(&place)? && (is_by_descriptor || is_own(&dir)?)) {
        bail!("not a file, and another user's");
    }
    let may_be_moved = is_by_descriptor || path.is_relative() && names_what_moves(above)?;
    let is_anothers = may_be_moved && !is_pipe()? && !(is_own(&place)? && is_own(&dir)?);
    // A pipe stays as it is for those who have it open, too.
    let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok((fs::open(fd::link(&place), flags, Mode::empty())?, is_anothers))
}

/// The same of one that another user may have put there: his, where it or its config is his.
pub(crate) fn word_by_owner(dir: &OwnedFd) -> Result<Word> {
    let owned = Owned::of(dir)?;
    if !caller::is_trusted(owned.stat.st_uid) {
        return Ok(Word::Stores);
    }
    let is_writable = owned.strangers_can_write(dir)?;
    match open_config(dir) {
        Ok(file) if !is_own(&file)? => Ok(Word::Stores),
        // What is no file that the caller can read is not his, but in a directory that is his alone.
        Err(e) if is_writable && !e.is(Errno::NOENT.raw_os_error()) => Ok(Word::Stores),
        _ if is_writable => Ok(Word::Owners),
        _ => Ok(Word::Callers),
    }
}

/// Opens the file `name` of the bundle `dir`, in which others can write.
///
/// # Errors
/// It is another user's, or none; those of openat2(2).
pub fn open_own(dir: impl AsFd, name: &str) -> Result<OwnedFd> {
    let file = open_file(dir, name)?;
    if !is_own(&file)? {
        bail!("{name}: another user has put it there");
    }
    Ok(file)
}

/// The first bundle on the way to `path` that others can change, the way that is left from it on, and what they can do.
///
/// # Errors
/// The kernel does not say, or a link has the place of a bundle.
pub fn first_on_way(path: &Path) -> Result<Option<(PathBuf, PathBuf, String)>> {
    let mut why = None;
    let found = stored_on_way(path, |bundle, _| {
        why = who_changes(bundle)?;
        Ok(why.is_some())
    })?;
    Ok(found.zip(why).map(|((bundle, way), why)| (bundle, way, why)))
}

/// What others can do to a bundle of a store.
pub(crate) fn who_changes(bundle: &Path) -> Result<Option<String>> {
    let look = || Seen::of(&open_stored(bundle)?, bundle);
    Ok(look().map_err(|e| e.context(bundle.display().to_string()))?.others)
}

/// The root of a container in a bundle in which others can have written: a link or an image there would show what they choose of the
/// caller's files.
#[derive(Debug, Clone)]
pub struct OthersRoot {
    /// The bundle, in a store, by no link; `None` for the working directory.
    bundle: Option<PathBuf>,
    way: PathBuf,
}

impl OthersRoot {
    /// That at `way` from the bundle on that is the working directory.
    pub fn here(way: &Path) -> OthersRoot {
        OthersRoot { bundle: None, way: way.to_owned() }
    }

    /// That to which the absolute `path` leads; `None` where it leads through no such bundle.
    ///
    /// # Errors
    /// As of [`first_on_way`].
    pub fn on_way(path: &Path) -> Result<Option<OthersRoot>> {
        Ok(first_on_way(path)?.map(|(bundle, way, _)| OthersRoot { bundle: Some(bundle), way }))
    }

    /// Where it is, by no link, where that is not at `way` in the working directory.
    pub fn place(&self) -> Option<PathBuf> {
        self.bundle.as_ref().map(|bundle| bundle.join(&self.way))
    }

    /// Opens it, as a place in the tree (O_PATH).
    ///
    /// # Errors
    /// It leads out of the bundle or through a mount, or is the bundle itself, or no directory; those of openat2(2).
    pub fn open(&self) -> Result<OwnedFd> {
        if let Some(bundle) = self.bundle.as_ref().filter(|_| self.way.as_os_str().is_empty()) {
            return Err(err!(
                "{}: a bundle that others can change, and no root or image file",
                bundle.display()
            ));
        }
        let stored = self.bundle.as_deref().map(open_stored).transpose()?;
        let bundle = stored.as_ref().map_or(fs::CWD, AsFd::as_fd);
        let shown = self.way.display();
        open_inside(bundle, &self.way, PLACE | OFlags::NOFOLLOW).map_err(|e| match e {
            Errno::NOTDIR | Errno::LOOP => {
                err!("{shown}: not a directory, and others can change this bundle")
            }
            Errno::XDEV => err!("{shown}: leads out of a bundle that others can change, or to a mount in it")
                .hint("an absolute path names another root"),
            e => Error::from(e).context(shown),
        })
    }
}
