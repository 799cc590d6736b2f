//! What is made beside its place and then renamed into it: there whole, or not at all.
//!
//! ```text
//! <name>.partial-<random>/      of the caller, 0700
//! <name>.partial-<random>/mark  whose it is: a process that may be dead
//! <name>.partial-<random>/...   what is made, and what is needed for it
//! ```
//!
//! Others may write in the directory around it, and so can rename it, and put something else in its place. Therefore the
//! directory is held open from the moment at which it was made, and checked to be the caller's own. Every call goes by its
//! descriptor, and what is made is renamed out of it.
//!
//! What another process left is removed if it belongs to the caller, if nobody else may enter it, and if its mark says that
//! its process is dead. Its name says nothing, since anybody can make such a name.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use super::holder;
use super::lease::Renewal;
use rt_sys::error::{Context, Error, Result};
use rt_sys::{disk, err, tree};

const MARK: &[u8] = b"mark";
/// What was at the target, and has no name but this for the moment. Whoever removes the draft puts it back.
const TAKEN: &[u8] = b"taken";
/// What stands behind the name of the target.
const PARTIAL: &[u8] = b".partial-";

/// A place to make something in; dropped, it goes away with all that is still in it.
pub(crate) struct Draft {
    parent: OwnedFd,
    /// What the result is to be called there.
    target: Vec<u8>,
    name: Vec<u8>,
    dir: Arc<OwnedFd>,
    /// While it lives, no other machine takes this for abandoned.
    _renewal: Renewal,
}

impl Draft {
    /// Makes one beside the target `shown`, and clears away what dead processes left there.
    pub(crate) fn beside(shown: &Path) -> Result<Draft> {
        let (parent, target) = place(shown)?;
        Draft::within(parent, target)
    }

    /// The same, in a directory that was opened before, beside the name that the result gets.
    pub(crate) fn within(parent: OwnedFd, target: Vec<u8>) -> Result<Draft> {
        sweep_beside(parent.as_fd(), &target);
        let prefix = [&target, PARTIAL].concat();
        let name = [&prefix, rt_sys::unique::name().as_bytes()].concat();
        let dir = disk::make_own_dir(parent.as_fd(), &name);
        let dir = dir.context(|| format!("make a place beside {}", disk::at(parent.as_fd(), &target)))?;
        let dir = Arc::new(dir);
        let renewal = Renewal::start(&dir, ".").inspect_err(|_| {
            let _ = disk::remove_dir(parent.as_fd(), &name);
        })?;
        let draft = Draft { parent, target, name, dir, _renewal: renewal };
        holder::sign(draft.dir(), MARK)?;
        Ok(draft)
    }

    /// The place.
    pub(crate) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// Renames `made` in it to the target.
    ///
    /// # Errors
    /// EEXIST where something is there.
    pub(crate) fn publish(&self, made: &[u8]) -> Result<()> {
        disk::rename_new(self.dir(), made, self.parent.as_fd(), &self.target)
    }

    /// Renames `made` in it to the target, over a file or a link that is there.
    pub(crate) fn put(&self, made: &[u8]) -> Result<()> {
        disk::rename(self.dir(), made, self.parent.as_fd(), &self.target)
    }

    /// Puts `made` where `old` is, which goes away with this.
    ///
    /// # Errors
    /// EEXIST where something else is there.
    pub(crate) fn replace(&self, made: &[u8], old: &OwnedFd) -> Result<()> {
        let (dir, parent, target) = (self.dir(), self.parent.as_fd(), &self.target[..]);
        let changed = || {
            let target = String::from_utf8_lossy(target);
            let text = format!("{target}: something else has come into its place");
            Error::from_parts(text, Some(libc::EEXIST))
        };
        if disk::exchange(dir, made, parent, target).is_ok() {
            if disk::is_same(dir, made, old) {
                return Ok(());
            }
            if let Err(e) = disk::exchange(dir, made, parent, target) {
                // Somebody else's, which is not to go away with this.
                disk::rename(dir, made, dir, TAKEN)?;
                return Err(e);
            }
            return Err(changed());
        }
        // Without RENAME_EXCHANGE (NFS) there is a moment without a bundle. What was at the target is looked at where nobody
        // else can change it, and moved back if it is not what was to be replaced.
        disk::rename(parent, target, dir, TAKEN)?;
        let published = match disk::is_same(dir, TAKEN, old) {
            true => self.publish(made),
            false => Err(changed()),
        };
        match published {
            Ok(()) => disk::rename(dir, TAKEN, dir, b"old"),
            Err(e) => Err(match put_back(parent, target, dir)? {
                Some(name) => e.hint(format!("what was there is {} now", String::from_utf8_lossy(&name))),
                None => e,
            }),
        }
    }

    /// Writes the directory of the target to its device: what was renamed there is found after a crash.
    pub(crate) fn sync_place(&self) -> Result<()> {
        match disk::reopen_self(self.parent.as_fd()).and_then(disk::sync_file) {
            // A file system that has no such call for directories, or a directory that may be written and not read.
            Err(e) if e.is(libc::EINVAL) || e.is(libc::EACCES) => Ok(()),
            synced => synced,
        }
    }
}

/// Gives what was taken from the target, by this process or one that is dead, its name back, or one beside it where something else has
/// come to its place: that name is returned.
fn put_back(parent: BorrowedFd, target: &[u8], dir: BorrowedFd) -> Result<Option<Vec<u8>>> {
    if disk::mode_at(dir, TAKEN)?.is_none() {
        return Ok(None);
    }
    match disk::rename_new(dir, TAKEN, parent, target) {
        Err(e) if e.is(libc::EEXIST) => {}
        moved => return moved.map(|()| None),
    }
    let name = [target, b".old-", rt_sys::unique::name().as_bytes()].concat();
    disk::rename_new(dir, TAKEN, parent, &name)?;
    log::warn!(
        "{}: was replaced meanwhile, and is {} now",
        disk::at(parent, target),
        String::from_utf8_lossy(&name)
    );
    Ok(Some(name))
}

impl Drop for Draft {
    fn drop(&mut self) {
        // What was made is in its place or not by now, so that this is no error of the command.
        if let Err(e) = remove(self.parent.as_fd(), &self.name, self.dir.as_fd()) {
            let left = disk::at(self.parent.as_fd(), &self.name);
            log::error!("{left} is left, for the next command that writes there to remove: {e}");
        }
    }
}

/// The directory that `target` is to be in, and its name there.
pub(crate) fn place(target: &Path) -> Result<(OwnedFd, Vec<u8>)> {
    let name = target.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| err!("{}: not a file name", target.display()))?;
    let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty());
    Ok((disk::open_root(parent.unwrap_or(Path::new(".")))?, name.into()))
}

/// Removes a draft. The mark goes last: whatever is left can be swept later.
fn remove(parent: BorrowedFd, name: &[u8], dir: BorrowedFd) -> Result<()> {
    let end = name.windows(PARTIAL.len()).rposition(|part| part == PARTIAL);
    put_back(parent, &name[..end.unwrap_or(name.len())], dir)?;
    tree::remove_contents(dir, Some(MARK))?;
    disk::unlink(dir, MARK)?;
    // By its name, which can be another's by now: rmdir(2) removes only what is empty.
    match disk::remove_dir(parent, name) {
        // Somebody else has moved it, or put something in its place; or another process sweeps.
        Err(e) if [libc::ENOENT, libc::ENOTDIR, libc::ENOTEMPTY].contains(&e.errno().unwrap_or(0)) => Ok(()),
        removed => removed,
    }
}

/// Removes a draft in which there is nothing, or nothing but a mark without an end.
fn remove_unsigned(parent: BorrowedFd, name: &[u8], dir: &OwnedFd) -> Result<()> {
    if let [(only, _)] = &disk::entries(dir.as_fd())?[..]
        && only == MARK
        && disk::is_own(dir.as_fd(), MARK)
    {
        disk::unlink(dir.as_fd(), MARK)?;
    }
    disk::remove_dir(parent, name)
}

/// Removes the drafts of dead processes beside `target`.
pub(crate) fn sweep_beside(parent: BorrowedFd, target: &[u8]) {
    let prefix = [target, PARTIAL].concat();
    sweep(parent, |name| name.starts_with(&prefix));
}

/// Removes the drafts of dead processes, whatever they were to become.
pub(crate) fn sweep_all(parent: BorrowedFd) {
    sweep(parent, |name| name.windows(PARTIAL.len()).any(|part| part == PARTIAL));
}

/// Removes the drafts of dead processes that have such names.
fn sweep(parent: BorrowedFd, of: impl Fn(&[u8]) -> bool) {
    for (name, _) in disk::entries(parent).unwrap_or_default() {
        if of(&name)
            && let Ok(dir) = disk::open_own_dir(parent, &name)
        {
            match holder::abandoned(dir.as_fd(), MARK) {
                // What cannot be removed now is there for the next command.
                Ok(Some(true)) => drop(remove(parent, &name, dir.as_fd())),
                // Its process died between mkdir(2) and the mark, or while it wrote that; one that is alive would have signed it
                // long ago.
                Ok(None) if holder::silent(&dir).unwrap_or(false) => {
                    drop(remove_unsigned(parent, &name, &dir))
                }
                // What could not be looked at stays: nothing but room is lost.
                Ok(_) | Err(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_was_taken_from_its_place_is_never_removed() {
        let place = std::env::temp_dir().join(format!("rt-draft-{}", rt_sys::unique::name()));
        fs::create_dir(&place).unwrap();
        let target = place.join("image");
        // As where a rename is refused, or the process is killed, between the two that replace it.
        let taken = |text: &str| {
            fs::write(&target, text).unwrap();
            let draft = Draft::beside(&target).unwrap();
            disk::rename(draft.parent.as_fd(), &draft.target, draft.dir(), TAKEN).unwrap();
            draft
        };
        drop(taken("first"));
        assert_eq!(fs::read_to_string(&target).unwrap(), "first");
        // Somebody else's has come there meanwhile.
        let draft = taken("second");
        fs::write(&target, "another").unwrap();
        drop(draft);
        assert_eq!(fs::read_to_string(&target).unwrap(), "another");
        let names: Vec<_> = fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().path()).collect();
        let old: Vec<_> = names.iter().filter(|name| **name != target).collect();
        assert_eq!(old.len(), 1, "{names:?}");
        assert_eq!(fs::read_to_string(old[0]).unwrap(), "second");
        fs::remove_dir_all(&place).unwrap();
    }
}
