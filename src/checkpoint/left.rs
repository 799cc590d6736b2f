//! What a criu that was killed has left of removed files.
//!
//! criu makes such a file under a name of its own beside the one that it had, and does not where that is taken; it then even removes
//! what is there. So `rt` looks before. A file in an image says that a restore of it has begun: where that was killed, what has a name
//! of criu's, and could be what criu was making, is removed. All else stays, and is named.

use super::files::{is_one, lock_at_once};
use super::image::Image;
use super::inside::Inside;
use super::numbers;
use super::places::{Removed, removed_in};
use super::reach::unknown_form;
use rt_sys::error::{Context, Result};
use rt_sys::{err, fd};
use rustix::fd::OwnedFd;
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use rustix::time::Timespec;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// The file that says so, with a byte in it. Who restores has it locked.
const MARK: &str = "restoring";
/// How much of a removed file's image says what it was.
const HEAD: usize = 4096;

/// How often and after which time a mark is looked at that another call has: half a minute.
const TRIES: usize = 600;
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// That a restore of an image with removed files has begun.
#[derive(Debug)]
pub(super) struct Begun<'a> {
    image: &'a Image,
    /// Held, so that the lock is.
    _mark: OwnedFd,
}

/// A removed file in an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ghost {
    uid: u32,
    mode: u32,
    size: u64,
}

/// Removes what a restore of `image` that was killed has left in this process's root, when no other one of this image is at work: clones
/// of a program are made side by side. What is in the container's own file systems in memory no other one has made.
///
/// # Errors
/// Something else has the name.
pub(super) fn begin<'a>(image: &'a Image, inside: &Inside<'_>) -> Result<Option<Begun<'a>>> {
    let mut ghosts = Vec::new();
    for Removed { id, path, ghost } in removed_in(image)? {
        if let Some(place) = Place::of(&path)?
            && !inside.is_own(&place.dir)
        {
            ghosts.push((id, place, ghost));
        }
    }
    if ghosts.is_empty() {
        return Ok(None);
    }
    let mark = open_mark(image)?;
    let was_killed = match &mark {
        Some(mark) => fd::stat(mark)?.st_size > 0,
        None => false,
    };
    ghosts.iter().try_for_each(|(id, place, ghost)| ghost.make_room(place, *id, was_killed))?;
    let Some(mark) = mark else { return Ok(None) };
    match rustix::io::pwrite(&mark, b"1", 0) {
        Err(Errno::NOSPC | Errno::DQUOT) => {}
        written => written.map(drop).context(|| format!("write {}/{MARK}", image.path.display()))?,
    }
    Ok(Some(Begun { image, _mark: mark }))
}

/// Opens and locks the mark of `image`, and makes it where it is missing; `None` where that cannot be done, or another call has it for
/// long.
fn open_mark(image: &Image) -> Result<Option<OwnedFd>> {
    let shown = || format!("write {}/{MARK}", image.path.display());
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    for _ in 0..TRIES {
        let mark = match fs::openat(&image.dir, MARK, flags, Mode::RUSR | Mode::WUSR) {
            Err(Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::NOSPC | Errno::DQUOT) => return Ok(None),
            mark => mark.context(shown)?,
        };
        if !lock_at_once(&mark).context(shown)? {
            let _ = rustix::thread::nanosleep(&PAUSE);
            continue;
        }
        // Whoever had it may have removed it meanwhile.
        if fd::stat(&mark)?.st_nlink > 0 {
            return Ok(Some(mark));
        }
    }
    Ok(None)
}

/// Where a removed file was.
#[derive(Debug)]
struct Place {
    dir: OwnedFd,
    /// Its path.
    at: PathBuf,
    name: OsString,
}

impl Place {
    /// That of the removed file `path`. Where its directory has been removed, criu takes the one above.
    fn of(path: &Path) -> Result<Option<Place>> {
        let (Some(name), Some(above)) = (path.file_name(), path.parent()) else { return Ok(None) };
        for at in above.ancestors() {
            if let Some(dir) = directory(at)? {
                return Ok(Some(Place { dir, at: at.to_owned(), name: name.to_owned() }));
            }
        }
        Ok(None)
    }

    fn remove(&self, name: &OsStr) -> Result<()> {
        match fs::unlinkat(&self.dir, name, AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            removed => removed.context(|| format!("remove {}", self.at.join(name).display())),
        }
    }
}

impl Begun<'_> {
    /// criu has removed by itself what it has made.
    pub(super) fn end(&self) {
        if let Err(e) = fs::unlinkat(&self.image.dir, MARK, AtFlags::empty()) {
            log::debug!("remove {}/{MARK}: {e}", self.image.path.display());
        }
    }
}

impl Ghost {
    /// What the image has of the removed file or directory `id`.
    pub(super) fn read(image: &Image, id: u64) -> Result<Ghost> {
        let (text, length) = read_head(image, id)?;
        Ghost::of(&text, length).ok_or_else(|| unknown_form(image, &file_of(id)))
    }

    pub(super) fn is_directory(&self) -> bool {
        FileType::from_raw_mode(self.mode) == FileType::Directory
    }

    /// That of the first bytes of a file of `length` bytes: a message (GhostFileEntry of criu's ghost-file.proto), and the content behind
    /// it, unless that is in parts.
    fn of(text: &[u8], length: u64) -> Option<Ghost> {
        const UID: u64 = 1;
        const MODE: u64 = 3;
        const SIZE: u64 = 10;
        let message = numbers::message_at(text, numbers::MAGIC)?;
        let number = |field| numbers::last(text, message.clone(), field);
        Some(Ghost {
            uid: u32::try_from(number(UID)??).ok()?,
            mode: u32::try_from(number(MODE)??).ok()?,
            size: match number(SIZE)? {
                Some(size) => size,
                None => length.checked_sub(message.end as u64)?,
            },
        })
    }

    /// Removes what has criu's name for the removed file that was in `place`, where a criu `was_killed` that can have made it.
    fn make_room(&self, place: &Place, id: u64, was_killed: bool) -> Result<()> {
        if self.is_directory() {
            // criu would take any directory of that name for its own, and remove it in the end.
            return match look(&place.dir, &place.name)? {
                None => Ok(()),
                Some(_) => {
                    let path = place.at.join(&place.name);
                    Err(err!("{}: it has the name of a removed directory of the program", path.display())
                        .hint("give it another name until the program is restored"))
                }
            };
        }
        let own = name_of_criu(&place.name, id);
        let Some(found) = look(&place.dir, &own)? else { return Ok(()) };
        if !was_killed || !self.can_be(&found) {
            let path = place.at.join(&own);
            return Err(err!("{}: it is in the way of a removed file of the program", path.display()).hint(
                "another restore makes it, or it is what one has left that was killed: remove it then",
            ));
        }
        // It is a moment in which it has the program's name, too, or another one where that is taken.
        for name in [place.name.clone(), with(&place.name, ".cr_link")] {
            let other = look(&place.dir, &name)?;
            if other.is_some_and(|other| is_one(&other, &found)) {
                place.remove(&name)?;
            }
        }
        place.remove(&own)
    }

    /// True for what criu makes of it: as its own user, before it has the file's.
    fn can_be(&self, found: &Stat) -> bool {
        let kind = FileType::from_raw_mode(found.st_mode);
        let is_short = kind != FileType::RegularFile || found.st_size.unsigned_abs() <= self.size;
        let users = [self.uid, rustix::process::geteuid().as_raw()];
        kind == FileType::from_raw_mode(self.mode) && is_short && users.contains(&found.st_uid)
    }
}

/// The file of an image that the removed file `id` is in.
pub(super) fn file_of(id: u64) -> String {
    format!("ghost-file-{id:x}.img")
}

/// How that begins, and how long it is.
pub(super) fn read_head(image: &Image, id: u64) -> Result<(Vec<u8>, u64)> {
    let shown = || format!("read {}/{}", image.path.display(), file_of(id));
    let file = fd::open_entry(&image.dir, file_of(id).as_str(), OFlags::RDONLY).context(shown)?;
    let length = fd::stat(&file)?.st_size.unsigned_abs();
    let mut text = vec![0; HEAD];
    let read = rustix::io::pread(&file, &mut text[..], 0).context(shown)?;
    text.truncate(read);
    Ok((text, length))
}

/// The name by which criu makes the removed file `id`, which was called `name`.
pub(super) fn name_of_criu(name: &OsStr, id: u64) -> OsString {
    with(name, &format!(".cr.{id:x}.ghost"))
}

fn with(name: &OsStr, end: &str) -> OsString {
    let mut name = name.to_owned();
    name.push(end);
    name
}

/// Opens a directory, to which no link leads; `None` where it is not there.
fn directory(path: &Path) -> Result<Option<OwnedFd>> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match fs::openat2(fs::CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        Err(Errno::NOENT) => Ok(None),
        dir => dir.map(Some).context(|| format!("open {}", path.display())),
    }
}

/// What has the name `name` in `dir`, a link itself.
fn look(dir: &OwnedFd, name: &OsStr) -> Result<Option<Stat>> {
    match fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT) {
        Err(Errno::NOENT) => Ok(None),
        found => found.map(Some).context(|| format!("look at {}", name.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_files_are_told() {
        let mut text = vec![0; numbers::MAGIC];
        text.extend([12, 0, 0, 0, 8, 7, 16, 8, 24, 0xa4, 0x83, 0x02, 0x48, 1, 0x50, 9, b'x']);
        assert_eq!(Ghost::of(&text, 100), Some(Ghost { uid: 7, mode: 0o100_644, size: 9 }));
        // Its content stands behind it.
        let mut plain = vec![0; numbers::MAGIC];
        plain.extend([8, 0, 0, 0, 8, 7, 16, 8, 24, 0xa4, 0x83, 0x02, b'a', b'b']);
        let length = plain.len() as u64;
        assert_eq!(Ghost::of(&plain, length), Some(Ghost { uid: 7, mode: 0o100_644, size: 2 }));
        assert_eq!(Ghost::of(&plain[..numbers::MAGIC + 8], length), None);
    }
}
