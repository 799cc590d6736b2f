//! Layers on disk that are gone with their containers (`rt run --writable=disk`).
//!
//! Each is a directory of `rt-writable-UID` in a directory for temporary files, and locked for as long as its runtime lives, which
//! removes it. What a runtime that was killed has left, the next one removes.

use super::CLONES;
use super::persistent::{open_own, own_directory, remove_layer};
use rt_image_store::word;
use rt_sys::error::{Context, Error, Result};
use rt_sys::rootfs::{is_in_memory, name_of_overlay_stranger};
use rt_sys::{caller, err, look, process};
use rustix::fd::OwnedFd;
use rustix::fs::{self, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where temporary files are, besides TMPDIR.
const PLACES: [&str; 2] = ["/tmp", "/var/tmp"];

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A layer of this process's container.
#[derive(Debug)]
pub(crate) struct Scratch {
    /// The directory of the layer.
    pub dir: PathBuf,
    /// Holds the lock.
    _lock: OwnedFd,
}

impl Scratch {
    /// Makes the layer of container `id`.
    pub(crate) fn make(id: &str) -> Result<Scratch> {
        Self::make_in(own_directory(&place()?, "rt-writable")?, id)
    }

    /// Makes a directory for what becomes clones of container `id`, in the state directory `store`: no container sees that, whose
    /// program could change it meanwhile.
    pub(crate) fn for_clones(store: &Path, id: &str) -> Result<Scratch> {
        const TRIES: u32 = 10;
        let own = store.join(CLONES);
        for _ in 1..TRIES {
            match Self::make_for_clones(&own, id) {
                // Another call has ended, and removed it.
                Err(e) if e.is(libc::ENOENT) => {}
                made => return made,
            }
        }
        Self::make_for_clones(&own, id)
    }

    fn make_for_clones(own: &Path, id: &str) -> Result<Scratch> {
        match fs::mkdir(own, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(e).context(|| format!("make {}", own.display())),
        }
        Self::make_in(own.to_owned(), id)
    }

    fn make_in(own: PathBuf, id: &str) -> Result<Scratch> {
        let context = || own.display().to_string();
        let names = open_own(&own)?;
        // Nobody takes a layer that is not locked yet for one that is left over.
        lock(&names).context(context)?;
        let mut left = left_over(&names, &own)?;
        // Containers of different state directories can have the same id.
        let name = format!("{id}.{}", std::process::id());
        let dir = own.join(&name);
        if let Some(at) = left.iter().position(|(path, _)| *path == dir) {
            remove_layer(&left.swap_remove(at).0)?;
        }
        fs::mkdirat(&names, name.as_str(), Mode::RWXU).context(|| dir.display())?;
        let lock = fs::openat(&names, name.as_str(), DIRECTORY, Mode::empty()).context(|| dir.display())?;
        fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).context(|| dir.display())?;
        fs::flock(&names, FlockOperation::Unlock).context(context)?;
        for (path, _lock) in &left {
            remove_layer(path)?;
        }
        Ok(Scratch { dir, _lock: lock })
    }

    /// Removes it with all that is in it, and the directory for clones where it was the last there.
    pub(crate) fn remove(&self) -> Result<()> {
        remove_layer(&self.dir)?;
        if let Some(own) = self.dir.parent().filter(|own| own.ends_with(CLONES)) {
            let _ = fs::rmdir(own);
        }
        Ok(())
    }
}

/// Locks `names` for as long as a layer is made. A program in a container that shows the directory can lock it, too, and for ever.
fn lock(names: &OwnedFd) -> Result<(), Errno> {
    const TRIES: u32 = 100;
    for _ in 1..TRIES {
        match fs::flock(names, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK | Errno::INTR) => std::thread::sleep(Duration::from_millis(100)),
            locked => return locked,
        }
    }
    fs::flock(names, FlockOperation::NonBlockingLockExclusive)
}

/// The layers in `names`, the directory `own`, whose runtimes have ended, with their locks.
fn left_over(names: &OwnedFd, own: &Path) -> Result<Vec<(PathBuf, OwnedFd)>> {
    let mut left = Vec::new();
    for name in look::names(names).context(|| own.display())? {
        let path = own.join(OsStr::from_bytes(&name));
        let dir = match fs::openat(names, name.as_slice(), DIRECTORY, Mode::empty()) {
            // Another one has removed it; or it is nothing that a runtime makes.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
            dir => dir.context(|| path.display())?,
        };
        match fs::flock(&dir, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => left.push((path, dir)),
            Err(Errno::WOULDBLOCK) => {}
            Err(e) => return Err(e).context(|| path.display()),
        }
    }
    Ok(left)
}

/// The first directory for temporary files that can hold a layer on disk.
fn place() -> Result<PathBuf> {
    let asked = caller::path("TMPDIR").filter(|dir| dir.is_absolute());
    let mut why = Vec::new();
    for place in asked.into_iter().chain(PLACES.map(PathBuf::from)) {
        match holds_layers(&place) {
            Ok(None) => return Ok(place),
            Ok(Some(reason)) => why.push(format!("{} is {reason}", place.display())),
            Err(e) => why.push(format!("{}: {e}", place.display())),
        }
    }
    let error: Error = err!("--writable=disk: no directory on a local disk: {}", why.join("; "));
    Err(error.hint("TMPDIR names another one"))
}

/// Why no layer on disk can be in `place`; `None` where one can.
fn holds_layers(place: &Path) -> Result<Option<&'static str>> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = fs::open(place, flags, Mode::empty())?;
    if let Some(name) = name_of_overlay_stranger(&dir)? {
        return Ok(Some(name));
    }
    let may = process::may_access(&dir, libc::W_OK | libc::X_OK)?;
    // Anything of the caller's can be given the name of his layers there, and what is left over is removed.
    if word::changeable_by_others(place)?.is_some() {
        return Ok(Some("a place where others can rename"));
    }
    Ok(match (is_in_memory(&dir)?, may) {
        (true, _) => Some("memory"),
        (_, false) => Some("closed to the caller"),
        _ => None,
    })
}
