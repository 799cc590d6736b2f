//! The directory of an image: memory of programs, and with it keys and passwords. It is the caller's alone (0700), its files
//! are 0600 by the umask, no link is followed, and a whole image is replaced by a whole one in one rename(2).
//!
//! Everything is done by the descriptor of the directory above, in which nobody else can rename, and nothing is removed but
//! images, and what a call that was killed has left of one. Whoever writes or removes an image holds the lock of its directory
//! (flock(2)), which ends with its process; a file system without locks gives it to everybody.

use super::files::{is_one, lock_at_once};
use super::manifest;
use rt_image_store::word::changeable_by_others;
use rt_sys::error::{Context, Error, Result};
use rt_sys::{bail, err, fd, look, tree};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// How long a list of criu's may be, in bytes. One filter is up to 32 KiB, and each process has its own copies.
const MOST: usize = 64 << 20;

/// The file that says that a directory is an image that is being written.
const MARK: &str = "draft";

/// Where an image is, or will be.
#[derive(Debug)]
pub(super) struct Place {
    /// The directory that it is in.
    above: OwnedFd,
    /// Its name there.
    name: OsString,
    /// Both, absolute.
    path: PathBuf,
}

/// An open image.
#[derive(Debug)]
pub(super) struct Image {
    /// Where it is, absolute.
    pub path: PathBuf,
    /// Its directory.
    pub dir: OwnedFd,
}

/// An image that is being written, under another name than its own. It is removed where it is not finished.
#[derive(Debug)]
pub(super) struct Draft {
    /// What is written.
    pub image: Image,
    /// Where it will be.
    place: Place,
    /// The lock of its directory, by a descriptor of its own, which no child has.
    _lock: OwnedFd,
    finished: bool,
}

impl Place {
    /// Finds the place `path`, whose directory above is there.
    ///
    /// # Errors
    /// ENOENT where it is not. Others could put something else in the image's place.
    pub(super) fn find(path: &Path) -> Result<Place> {
        let path = fd::absolute(path)?;
        let shown = || format!("image {}", path.display());
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            bail!("{}: an image has a name", shown());
        };
        require_own(parent, &shown())?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let above = fs::open(parent, flags, Mode::empty()).context(shown)?;
        Ok(Place { above, name: name.to_owned(), path })
    }

    /// The same, with directories made that are missing.
    pub(super) fn make(path: &Path) -> Result<Place> {
        let path = fd::absolute(path)?;
        if let Some(above) = path.parent() {
            make_all(above)?;
        }
        Self::find(&path)
    }

    /// The directory that it is in, open.
    pub(super) fn above(&self) -> &OwnedFd {
        &self.above
    }

    /// Where that is.
    pub(super) fn dir(&self) -> &Path {
        self.path.parent().unwrap_or(&self.path)
    }

    /// The image that is there, or the one that has lost its place to one that did not come ([`Draft::finish`]).
    pub(super) fn last(&self) -> Result<Option<Image>> {
        for name in [self.name.clone(), self.beside("old")] {
            match self.open(&name) {
                Ok(image) if is_whole(&image.dir)? => {
                    return Ok(Some(image));
                }
                Err(e) if !e.is(libc::ENOENT) => return Err(e),
                _ => {}
            }
        }
        Ok(None)
    }

    /// Fails where something has the name that an image must not replace.
    pub(super) fn require_free(&self) -> Result<()> {
        self.removable(&self.name).map(drop)
    }

    /// Removes the image, and what calls that were killed have left of it.
    pub(super) fn forget(&self) -> Result<()> {
        [self.name.clone(), self.beside("old"), self.beside("new")]
            .iter()
            .try_for_each(|name| self.remove(name))
    }

    /// Begins an image. What a call that was killed has left is removed.
    ///
    /// # Errors
    /// Something else has the name.
    fn begin(self) -> Result<Draft> {
        self.removable(&self.name)?;
        let name = self.beside("new");
        self.remove(&name)?;
        let path = self.path_of(&name);
        fs::mkdirat(&self.above, &*name, Mode::RWXU).context(|| format!("make {}", path.display()))?;
        // From here on the draft is removed where it is not finished.
        let dir = fs::openat(&self.above, &*name, DIRECTORY, Mode::empty());
        let dir = dir.context(|| format!("open {}", path.display()))?;
        let _lock = self.lock(&name, &dir)?;
        let draft = Draft { image: Image { path, dir }, place: self, _lock, finished: false };
        draft.mark()?;
        Ok(draft)
    }

    fn open(&self, name: &OsStr) -> Result<Image> {
        let path = self.path_of(name);
        let dir = fs::openat(&self.above, name, DIRECTORY, Mode::empty());
        let dir = dir.context(|| format!("image {}", path.display()))?;
        Ok(Image { path, dir })
    }

    /// Removes the image `name`, if it is there.
    fn remove(&self, name: &OsStr) -> Result<()> {
        if !self.removable(name)? {
            return Ok(());
        }
        let shown = || format!("remove {}", self.path_of(name).display());
        let dir = fs::openat(&self.above, name, DIRECTORY, Mode::empty()).context(shown)?;
        let _lock = self.lock(name, &dir)?;
        self.remove_locked(name, &dir)
    }

    /// Removes the image `name`, whose directory is `dir`. Its mark goes last: what is left of a removal that was killed is removed,
    /// too.
    fn remove_locked(&self, name: &OsStr, dir: &OwnedFd) -> Result<()> {
        let shown = || format!("remove {}", self.path_of(name).display());
        // A new name, and no new file: a disk may be full.
        let last = match fs::renameat(dir, manifest::NAME, dir, MARK) {
            // It has its mark, or there is nothing in it.
            Ok(()) | Err(Errno::NOENT) => MARK,
            // A file system may want room for that, too. Who is killed now leaves what is refused as damaged, and can be removed.
            Err(Errno::DQUOT | Errno::NOSPC) => manifest::NAME,
            Err(e) => return Err(e).context(shown),
        };
        tree::remove_contents(dir, Some(last.as_bytes())).context(shown)?;
        match fs::unlinkat(dir, last, AtFlags::empty()) {
            Err(Errno::NOENT) => {}
            removed => removed.context(shown)?,
        }
        // Not what has the name meanwhile.
        fs::unlinkat(&self.above, name, AtFlags::REMOVEDIR).context(shown)
    }

    /// Locks the image `name`, whose directory is `dir`.
    ///
    /// # Errors
    /// Another call writes or removes it, or has put it in its place meanwhile.
    fn lock(&self, name: &OsStr, dir: &OwnedFd) -> Result<OwnedFd> {
        let shown = || format!("lock {}", self.path_of(name).display());
        let lock = fs::openat(dir, ".", DIRECTORY, Mode::empty()).context(shown)?;
        match lock_at_once(&lock).context(shown)? && self.has(name, dir)? {
            true => Ok(lock),
            false => Err(self.has_another_writer()),
        }
    }

    /// True where `dir` has the name.
    fn has(&self, name: &OsStr, dir: &OwnedFd) -> Result<bool> {
        match fs::statat(&self.above, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(there) => Ok(is_one(&there, &fd::stat(dir)?)),
            Err(Errno::NOENT) => Ok(false),
            Err(e) => Err(e).context(|| format!("look at {}", self.path_of(name).display())),
        }
    }

    fn has_another_writer(&self) -> Error {
        err!("another checkpoint writes to {}, too", self.path.display())
            .hint("name a directory for each container")
    }

    /// False where nothing has the name.
    ///
    /// # Errors
    /// What has it is no image, no draft of one, and no empty directory of the caller's.
    fn removable(&self, name: &OsStr) -> Result<bool> {
        let path = self.path_of(name);
        let shown = || format!("look at {}", path.display());
        let dir = match fs::openat(&self.above, name, DIRECTORY, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(false),
            dir => dir.context(shown)?,
        };
        let stat = fd::stat(&dir)?;
        let has_mark = is_there(&dir, manifest::NAME)? || is_there(&dir, MARK)?;
        let is_empty = || look::names(&dir).context(shown).map(|names| names.is_empty());
        if stat.st_uid == rt_sys::caller::uid() && (has_mark || is_empty()?) {
            return Ok(true);
        }
        Err(err!("{} is there, and is no image of rt checkpoint", path.display())
            .hint("name another directory"))
    }

    /// The name of a directory that belongs to the image.
    fn beside(&self, what: &str) -> OsString {
        let mut own = OsString::from(".");
        own.push(&self.name);
        own.push(format!(".{what}"));
        own
    }

    fn path_of(&self, name: &OsStr) -> PathBuf {
        self.path.with_file_name(name)
    }
}

impl Image {
    /// Opens an image to restore it.
    ///
    /// # Errors
    /// Somebody else owns it or can write to it, or there is a link or something of somebody else's in it.
    pub(super) fn open(path: &Path) -> Result<Image> {
        let place = Place::find(path)?;
        place.open(&place.name)?.checked()
    }

    /// The same of one that is open.
    pub(super) fn checked(self) -> Result<Image> {
        check(&fd::stat(&self.dir)?, &self.path)?;
        if is_there(&self.dir, MARK)? {
            bail!("image {}: a checkpoint or a removal did not come to its end", self.path.display());
        }
        for name in look::names(&self.dir).context(|| format!("list {}", self.path.display()))? {
            let stat = fs::statat(&self.dir, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW);
            let stat = stat.context(|| format!("look at image {}", self.path.display()))?;
            let name = String::from_utf8_lossy(&name).into_owned();
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile | FileType::Directory if stat.st_uid == rt_sys::caller::uid() => {}
                FileType::RegularFile | FileType::Directory => {
                    bail!("image {}: {name} is another user's", self.path.display())
                }
                _ => bail!("image {}: {name} is neither a file nor a directory", self.path.display()),
            }
        }
        Ok(self)
    }

    /// The content of criu's list `name`; `None` where it has none.
    ///
    /// # Errors
    /// It is no regular file, or longer than [`MOST`].
    pub(super) fn file(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let shown = || format!("image {}: {name}", self.path.display());
        let file = match fd::open_entry(&self.dir, name, OFlags::RDONLY) {
            Err(Errno::NOENT) => return Ok(None),
            file => file.context(shown)?,
        };
        let text = fd::read_regular(file, MOST).context(shown)?;
        text.map(Some).ok_or_else(|| err!("{}: no file of at most {MOST} bytes", shown()))
    }
}

impl Draft {
    /// Begins an image that will be at `target`.
    pub(super) fn begin(target: &Path) -> Result<Draft> {
        Place::make(target)?.begin()
    }

    /// Says that it is one, and keeps others away.
    fn mark(&self) -> Result<()> {
        let Image { path, dir } = &self.image;
        let shown = || format!("make {}", path.display());
        // An access control list of the directory above may have given more than the mode asks for.
        fs::fchmod(dir, Mode::RWXU).context(shown)?;
        check(&fd::stat(dir)?, path)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        fs::openat(dir, MARK, flags, Mode::RUSR | Mode::WUSR).context(shown)?;
        Ok(())
    }

    /// Puts it on the disk and then in its place. An image that is there goes only when this one is there. Returns its directory.
    pub(super) fn finish(self) -> Result<OwnedFd> {
        let path = || format!("write {}", self.image.path.display());
        fs::unlinkat(&self.image.dir, MARK, AtFlags::empty()).context(path)?;
        sync_all(&self.image)?;
        self.take_place()
    }

    /// True unless another call has taken it for what one that was killed has left, and removed it: where there are no locks.
    fn is_there(&self) -> Result<bool> {
        self.place.has(&self.place.beside("new"), &self.image.dir)
    }

    fn take_place(mut self) -> Result<OwnedFd> {
        if !self.is_there()? {
            return Err(self.place.has_another_writer());
        }
        let Draft { image, place, .. } = &self;
        let dir = image.dir.try_clone().context(|| format!("keep {} open", image.path.display()))?;
        let shown = || format!("rename {} to {}", image.path.display(), place.path.display());
        let (new, name) = (place.beside("new"), place.name.as_os_str());
        let rename =
            |from: &OsStr, to: &OsStr| fs::renameat(&place.above, from, &place.above, to).context(shown);
        match fs::renameat_with(&place.above, &*new, &place.above, name, RenameFlags::EXCHANGE) {
            // The new image has its place, and the next checkpoint removes the old one.
            Ok(()) => {
                if let Err(e) = place.remove(&new) {
                    log::warn!("the old image stays: {e}");
                }
            }
            Err(Errno::NOENT) => rename(&new, name)?,
            // A file system that exchanges nothing, as NFS. Between the two calls the old image has the other name, where
            // `Place::last` finds it.
            Err(Errno::INVAL | Errno::NOSYS) => {
                let old = place.beside("old");
                place.remove(&old)?;
                rename(name, &old)?;
                rename(&new, name)?;
                place.remove(&old)?;
            }
            Err(e) => return Err(e).context(shown),
        }
        fs::fsync(&place.above).context(|| format!("write the directory above {}", place.path.display()))?;
        self.finished = true;
        Ok(dir)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        let Draft { image, place, .. } = &self;
        let remove = |is_there: bool| match is_there {
            true => place.remove_locked(&place.beside("new"), &image.dir),
            false => Ok(()),
        };
        if !self.finished
            && let Err(e) = self.is_there().and_then(remove)
        {
            log::warn!("{e}");
        }
    }
}

/// True for an image that is neither being written nor being removed.
fn is_whole(dir: &OwnedFd) -> Result<bool> {
    Ok(is_there(dir, manifest::NAME)? && !is_there(dir, MARK)?)
}

/// Fails where others can put something else at the directory `path`, or on the way to it. `what` it is for.
pub(super) fn require_own(path: &Path, what: &str) -> Result<()> {
    match changeable_by_others(path)? {
        None => Ok(()),
        Some(place) => Err(err!("{what}: others can put something else at {place}")
            .hint("an image has the memory of programs: name a directory in one of your own")),
    }
}

fn is_there(dir: &OwnedFd, name: &str) -> Result<bool> {
    match fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(e) => Err(e).context(|| format!("look at {name}")),
    }
}

fn check(stat: &Stat, path: &Path) -> Result<()> {
    if stat.st_uid != rt_sys::caller::uid() {
        bail!("image {}: it is another user's", path.display());
    }
    if stat.st_mode & 0o077 != 0 {
        return Err(err!("image {}: others may enter it", path.display())
            .hint(format!("it holds the memory of programs: chmod 700 {}", path.display())));
    }
    Ok(())
}

/// Makes a directory and those above it. What is there stays as it is.
pub(super) fn make_all(path: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.context(|| format!("make {}", path.display()))
}

/// Has the kernel write every file and directory of an image, the outermost last.
fn sync_all(image: &Image) -> Result<()> {
    let shown = |path: &Path| format!("write {}", image.path.join(path).display());
    let mut dirs = vec![PathBuf::from(".")];
    let (mut next, mut all_open) = (0, true);
    while let Some(path) = dirs.get(next).cloned() {
        next += 1;
        let Some(dir) = open_part(image, &path, OFlags::DIRECTORY).context(|| shown(&path))? else {
            all_open = false;
            continue;
        };
        for name in look::names(&dir).context(|| shown(&path))? {
            let below = path.join(OsStr::from_bytes(&name));
            let stat =
                fs::statat(&dir, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW).context(|| shown(&below))?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => dirs.push(below),
                FileType::RegularFile => {
                    all_open &= sync_part(image, &below, OFlags::empty()).context(|| shown(&below))?
                }
                // Their directory holds all that they are.
                _ => {}
            }
        }
    }
    for path in dirs.iter().rev() {
        sync_part(image, path, OFlags::DIRECTORY).context(|| shown(path))?;
    }
    match all_open {
        true => Ok(()),
        // All of its file system: what is not open cannot be written alone.
        false => fs::syncfs(&image.dir).context(|| shown(Path::new(""))),
    }
}

/// False where it may not be opened.
fn sync_part(image: &Image, path: &Path, flags: OFlags) -> Result<bool> {
    let part = open_part(image, path, flags)?;
    Ok(part.map(fs::fsync).transpose()?.is_some())
}

/// Opens what is below an image. `None` for what its owner may not read: the content of a file system in memory keeps its
/// modes.
fn open_part(image: &Image, path: &Path, flags: OFlags) -> Result<Option<OwnedFd>> {
    let flags = flags | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    match fs::openat2(image.dir.as_fd(), path, flags, Mode::empty(), how) {
        Err(Errno::ACCESS) => Ok(None),
        opened => Ok(Some(opened?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory of a test's, which goes with it, and the place of an image in it.
    struct Own(PathBuf);

    impl Own {
        fn new(name: &str) -> (Own, PathBuf) {
            let own = Own(std::env::temp_dir().join(format!("rt-draft-{}-{name}", std::process::id())));
            let target = own.0.join("image");
            (own, target)
        }
    }

    impl Drop for Own {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn says_another<T: std::fmt::Debug>(result: Result<T>) {
        let said = result.unwrap_err().to_string();
        assert!(said.contains("another checkpoint writes to"), "{said}");
    }

    #[test]
    fn a_draft_is_not_removed_while_it_is_written() {
        let (own, target) = Own::new("locked");
        let first = Draft::begin(&target).unwrap();
        std::fs::write(first.image.path.join(manifest::NAME), "{}").unwrap();
        // Before and behind the moment in which it has no mark any more, as where it is at work on the disk.
        says_another(Draft::begin(&target));
        fs::unlinkat(&first.image.dir, MARK, AtFlags::empty()).unwrap();
        says_another(Draft::begin(&target));
        first.take_place().unwrap();
        assert_eq!(look::entries(&own.0).unwrap(), std::slice::from_ref(&target));
        assert!(target.join(manifest::NAME).exists());
        // What is left of one that was killed has no lock.
        let killed = std::mem::ManuallyDrop::new(Draft::begin(&target).unwrap());
        fs::flock(&killed._lock, fs::FlockOperation::Unlock).unwrap();
        Draft::begin(&target).unwrap();
        assert_eq!(look::entries(&own.0).unwrap(), [target]);
    }

    #[test]
    fn an_old_image_that_is_held_holds_up_no_new_one() {
        let (own, target) = Own::new("held");
        let begun = || {
            let draft = Draft::begin(&target).unwrap();
            std::fs::write(draft.image.path.join(manifest::NAME), "{}").unwrap();
            draft
        };
        begun().finish().unwrap();
        let held = fs::open(&target, DIRECTORY, Mode::empty()).unwrap();
        fs::flock(&held, fs::FlockOperation::LockExclusive).unwrap();
        begun().finish().unwrap();
        assert_eq!(look::entries(&own.0).unwrap().len(), 2);
        says_another(Draft::begin(&target));
        drop(held);
        begun().finish().unwrap();
        assert_eq!(look::entries(&own.0).unwrap(), [target]);
    }

    #[test]
    fn what_has_its_place_meanwhile_is_not_removed() {
        let (own, target) = Own::new("meanwhile");
        let first = Draft::begin(&target).unwrap();
        std::fs::write(first.image.path.join(manifest::NAME), "{}").unwrap();
        let place = Place::find(&target).unwrap();
        let seen = place.open(&place.beside("new")).unwrap();
        first.finish().unwrap();
        says_another(place.lock(&place.beside("new"), &seen.dir));
        assert_eq!(look::entries(&own.0).unwrap(), [target]);
    }

    #[test]
    fn a_draft_takes_no_place_by_that_of_another() {
        let (own, target) = Own::new("place");
        let first = Draft::begin(&target).unwrap();
        // As where there are no locks.
        std::fs::rename(&first.image.path, own.0.join("emptied")).unwrap();
        let second = Draft::begin(&target).unwrap();
        says_another(first.take_place());
        assert!(second.is_there().unwrap() && !look::exists(&target).unwrap());
        std::fs::remove_dir_all(own.0.join("emptied")).unwrap();
        second.finish().unwrap();
        assert_eq!(look::entries(&own.0).unwrap(), [target]);
    }
}
