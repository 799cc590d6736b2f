//! Where a store is: the default places, and what makes a directory fit to be one.

use super::JOBS;
use rt_image_store::word::changeable_by_others;
use rt_sys::bail;
use rt_sys::caller::{self, Caller};
use rt_sys::error::{Context, Result};
use rt_sys::fd;
use rt_sys::ns::IdMaps;
use rt_sys::owned::Owned;
use rustix::fd::OwnedFd;
use rustix::fs::{self, Access, Mode, OFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Who has chosen the path of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chosen {
    /// The caller, by `--root`: the path may lead through links, and an unusable one is an error.
    ByCaller,
    /// This module ([`default_roots`]): an unusable path is passed over.
    ByDefault,
}

/// The places of a store that nobody has named, best first. A tmpfs is wanted: records mean nothing after a reboot.
/// `/dev/shm` is one, and the last resort: containers of the hpc profile and the steps of Slurm have the host's.
///
/// # Errors
/// The kernel does not say to uid 0 whose uid 0 it is.
pub(super) fn default_roots() -> Result<impl Iterator<Item = PathBuf>> {
    let maps = if caller::uid() == 0 { Some(rt_sys::ns::own_maps()?) } else { None };
    roots_of(maps)
}

/// The places of [`default_roots`] for the caller; `maps` are the id maps of uid 0, whose places depend on them.
fn roots_of(maps: Option<IdMaps>) -> Result<impl Iterator<Item = PathBuf>> {
    let uid = caller::uid();
    let system = maps.as_ref().filter(|maps| rt_sys::ns::is_initial(maps)).map(|_| PathBuf::from("/run/rt"));
    let users = system.is_none();
    let runtime_dir = match caller::path("XDG_RUNTIME_DIR").filter(|dir| users && dir.is_absolute()) {
        Some(dir) if is_callers(&dir)? => Some(dir.join("rt")),
        _ => None,
    };
    // Users who are uid 0 of a user namespace each share the names of uid 0; the first of them has taken those.
    let host = maps.filter(|_| users).and_then(|maps| Some(maps.uid.first()?.host));
    let nested = host.map(|host| PathBuf::from(format!("/tmp/rt-{uid}-of-{host}")));
    let of_user = if users { Some(of_user(uid)?) } else { None };
    Ok(system.into_iter().chain(runtime_dir).chain(of_user.into_iter().flatten()).chain(nested))
}

/// True for a runtime directory to which nobody but the caller and root can change the way. Where no session manager has made it,
/// its name, as in /tmp, is anybody's.
///
/// # Errors
/// The kernel does not say.
fn is_callers(dir: &Path) -> Result<bool> {
    if dir == Path::new(&format!("/run/user/{}", caller::uid())) {
        return Ok(true);
    }
    // A start asks twice: where its state is, and what containers must not see. The walk up takes some 17 system calls.
    static KNOWN: OnceLock<(u32, PathBuf)> = OnceLock::new();
    let uid = caller::uid();
    if KNOWN.get().is_some_and(|known| known.0 == uid && known.1 == dir) {
        return Ok(true);
    }
    // The mount table first: the server of another user's mount need not answer.
    if rt_sys::mount::is_on_others_fuse(dir)? {
        return Ok(false);
    }
    let is_callers = match changeable_by_others(dir) {
        Err(e) if e.is(libc::ENAMETOOLONG) => false,
        found => found.context(|| "XDG_RUNTIME_DIR")?.is_none(),
    };
    if is_callers {
        // Of two, the first one stays.
        let _ = KNOWN.set((uid, dir.to_owned()));
    }
    Ok(is_callers)
}

/// The places of the user `uid` that no environment names. `/dev/shm` is one only where nobody can make anything in `/tmp`,
/// as in a container without one, and not where somebody has taken the name there.
fn of_user(uid: u32) -> Result<[PathBuf; 2]> {
    let shared = if may_write(Path::new("/tmp"))? { "/tmp" } else { "/dev/shm" };
    Ok([PathBuf::from(format!("/run/user/{uid}/rt")), PathBuf::from(format!("{shared}/rt-{uid}"))])
}

/// Where calls of `caller`, or of root for Slurm, look for state that nobody names: containers must not write there.
///
/// # Errors
/// The kernel does not say.
pub(crate) fn default_places(caller: &Caller) -> Result<Vec<PathBuf>> {
    let maps = (caller.uid == 0).then(|| caller.maps.clone());
    Ok(roots_of(maps)?.chain([PathBuf::from(JOBS)]).collect())
}

/// True where nothing is at `path` and a store could be made there. A call then looks at no later place: `rt` would have
/// taken this one, so somebody else has made what is there.
///
/// # Errors
/// The kernel does not say.
pub(super) fn could_be_made(path: &Path) -> Result<bool> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    match fd::open_beside_others(path, OFlags::PATH) {
        Err(Errno::NOENT) => may_write(parent),
        Err(e) if !is_no_store(e) => {
            Err(e).context(|| format!("open the state directory {}", path.display()))
        }
        _ => Ok(false),
    }
}

/// True where the directory `dir` is there, and the caller may make something in it.
fn may_write(dir: &Path) -> Result<bool> {
    match fs::access(dir, Access::WRITE_OK) {
        Ok(()) => Ok(true),
        Err(e) if is_no_store(e) || is_closed(e) => Ok(false),
        Err(e) => Err(e).context(|| format!("look whether {} can be written", dir.display())),
    }
}

/// True for what is said where nothing can be made by this user.
pub(super) fn is_closed(e: Errno) -> bool {
    matches!(e, Errno::ACCESS | Errno::PERM | Errno::ROFS)
}

/// True for what open(2) and openat2(2) say of a directory of somebody else's, of a mount ([`super::OF_ONE_FILE_SYSTEM`]), of
/// a name that no directory can have, and of what is no directory; and where the kernel is too old for it, and has started no
/// container. Whatever else the kernel says, a store may be there.
pub(super) fn is_no_store(e: Errno) -> bool {
    matches!(
        e,
        Errno::NOENT
            | Errno::NOTDIR
            | Errno::LOOP
            | Errno::XDEV
            | Errno::ACCESS
            | Errno::NAMETOOLONG
            | Errno::NOSYS
    )
}

/// Opens a store's directory after checking that nobody else can have put something into it. `None` where it
/// does not exist, or is not usable and was not asked for by name.
///
/// # Errors
/// It was asked for by name and is not usable, or the kernel does not say: its containers are not taken for gone, and none is
/// made elsewhere.
pub(super) fn open_root(path: &Path, chosen: Chosen) -> Result<Option<OwnedFd>> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let required = chosen == Chosen::ByCaller;
    let dir = match required {
        true => fs::open(path, flags, Mode::empty()),
        // In /tmp every user can make a link of this name, or mount a file system at it.
        false => fd::open_beside_others(path, flags),
    };
    let dir = match dir {
        Ok(dir) => dir,
        Err(Errno::NOENT) => return Ok(None),
        Err(e) if !required && is_no_store(e) => return Ok(None),
        Err(e) => return Err(e).context(|| format!("open the state directory {}", path.display())),
    };
    if !is_fit(&dir, &Owned::of(&dir)?)? {
        if !required {
            return Ok(None);
        }
        bail!(
            "the state directory {} must belong to uid {} and be writable by nobody else",
            path.display(),
            caller::uid()
        );
    }
    Ok(Some(dir))
}

/// True for a directory in which nobody but this process's user can have put something.
///
/// # Errors
/// The kernel does not say.
pub(super) fn is_fit(dir: &OwnedFd, owned: &Owned) -> Result<bool> {
    Ok(owned.stat.st_uid == caller::uid() && !owned.others_can_write(dir, false)?)
}
