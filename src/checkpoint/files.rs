//! Whose files a program has open, has in its memory, or executes.
//!
//! criu opens them by their paths, and with all capabilities of the container's user namespace: it could give a program what somebody
//! has put in the place of a file, which the program itself may not open, or wait for ever for the other end of a pipe. So what is
//! there has to be of the same kind, and of the same owner.

use super::processes::Process;
use rt_sys::error::{Context, Result};
use rt_sys::rootfs::PROC_MAGIC;
use rt_sys::{bail, err, fd};
use rustix::fs::{self, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// What procfs writes behind the path of a removed file.
pub(super) const REMOVED: &str = " (deleted)";

/// What is known of a file: its owner and group as the container's user namespace shows them, and its kind with, of a regular file,
/// its permissions (st_mode, inode(7)). criu compares those of all files or of none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Note(u32, u32, u32);

impl Note {
    fn of(stat: &Stat) -> Note {
        let kind = stat.st_mode & libc::S_IFMT;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Note(stat.st_uid, stat.st_gid, stat.st_mode),
            // A terminal gets other owners.
            FileType::CharacterDevice => Note(0, 0, kind),
            _ => Note(stat.st_uid, stat.st_gid, kind),
        }
    }

    /// Compares what was noted of `path` with what is there now.
    fn compare(self, now: Note, path: &Path) -> Result<()> {
        let what = match () {
            () if (self.2 ^ now.2) & libc::S_IFMT != 0 => "something of another kind",
            () if (self.0, self.1) != (now.0, now.1) => "a file of another owner",
            () if self != now => "a file with other permissions",
            () => return Ok(()),
        };
        Err(err!("{}: {what} has taken the place of what the program had there", path.display())
            .hint("the program itself could not open it, or would wait for it"))
    }
}

/// Notes of all files by their paths in the container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Files(BTreeMap<String, Note>);

impl Files {
    /// Notes what is at `path`, which the link `link` of procfs leads to. Of what is gone by now there is nothing to note.
    pub(super) fn note(&mut self, path: &Path, link: &Path) -> Result<()> {
        let Some(name) = name(path).filter(|name| !self.0.contains_key(name)) else { return Ok(()) };
        let stat = match fs::stat(link) {
            Err(Errno::NOENT | Errno::SRCH) => return Ok(()),
            stat => stat.context(|| format!("look at {}", path.display()))?,
        };
        if is_kernels(link)? {
            return Ok(());
        }
        self.0.insert(name, Note::of(&stat));
        Ok(())
    }

    /// Notes the working directory and the program of `process`.
    pub(super) fn note_links(&mut self, process: &Process) -> Result<()> {
        for link in ["cwd", "exe"].map(|name| process.dir().join(name)) {
            let path = std::fs::read_link(&link).context(|| format!("read {}", link.display()))?;
            self.note(&path, &link)?;
        }
        Ok(())
    }

    /// Compares them with what is there, for a process whose root is the container's. What is missing criu misses, too.
    ///
    /// # Errors
    /// Something of another kind or owner is in the place of a file.
    pub(super) fn check(&self) -> Result<()> {
        for (name, note) in &self.0 {
            let path = &path_of(name);
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            match fs::openat2(fs::CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
                Ok(found) => note.compare(Note::of(&fd::stat(&found)?), path)?,
                // A link is found by whoever looks at paths.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(e) => return Err(e).context(|| format!("look at {}", path.display())),
            }
        }
        Ok(())
    }

    /// The first of them that is not there.
    pub(super) fn missing(&self) -> Option<PathBuf> {
        let is_missing = |path: &PathBuf| {
            !path.to_string_lossy().ends_with(REMOVED)
                && matches!(fs::lstat(path), Err(Errno::NOENT | Errno::NOTDIR))
        };
        self.0.keys().map(|name| path_of(name)).find(is_missing)
    }

    /// True where there is a note of `path`.
    pub(super) fn has(&self, path: &Path) -> bool {
        name(path).is_some_and(|name| self.0.contains_key(&name))
    }

    /// Compares what a restored process has of `path`, which the link `link` of procfs leads to.
    ///
    /// # Errors
    /// It is another file than the program had, as far as its notes say that.
    pub(super) fn compare(&self, path: &Path, link: &Path) -> Result<()> {
        let Some(name) = name(path) else { return Ok(()) };
        let stat = fs::stat(link).context(|| format!("look at {}", path.display()))?;
        // It takes the place of the caller's streams.
        if fd::is_null_device(&stat) || is_kernels(link)? {
            return Ok(());
        }
        match self.0.get(&name) {
            Some(note) => note.compare(Note::of(&stat), path),
            None => bail!("it has {}, which the program had not", path.display()),
        }
    }
}

/// How `path` is noted: each byte as the character with its number, so that names of any bytes are told apart; with what procfs writes
/// behind that of a removed file, which criu makes again and opens by a path as well. None for what is no path, and for the
/// container's root, which nobody replaces, and which a layer can give another owner.
fn name(path: &Path) -> Option<String> {
    let is_noted = path.is_absolute() && path != Path::new("/");
    is_noted.then(|| path.as_os_str().as_bytes().iter().map(|byte| char::from(*byte)).collect())
}

fn path_of(name: &str) -> PathBuf {
    PathBuf::from(OsString::from_vec(name.chars().map(|c| c as u8).collect()))
}

/// True for a file of procfs, whose owner changes with the process.
fn is_kernels(link: &Path) -> Result<bool> {
    let on = fs::statfs(link).context(|| format!("look at {}", link.display()))?;
    Ok(on.f_type as u64 == PROC_MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_has_the_kind_and_the_owner_of_before() {
        let note = Note(1000, 1000, libc::S_IFREG);
        let compare = |now| note.compare(now, Path::new("/x")).map_err(|e| e.to_string());
        assert_eq!(compare(note), Ok(()));
        assert!(compare(Note(1000, 1000, libc::S_IFIFO)).unwrap_err().contains("another kind"));
        assert!(compare(Note(0, 1000, libc::S_IFREG)).unwrap_err().contains("another owner"));
        assert!(compare(Note(1000, 0, libc::S_IFREG)).unwrap_err().contains("another owner"));
        assert!(compare(Note(1000, 1000, libc::S_IFREG | 0o4)).unwrap_err().contains("other permissions"));
        let names = ["/a", "/", "/a (deleted)", "pipe:[7]"].map(|path| name(Path::new(path)).is_some());
        assert_eq!(names, [true, false, true, false]);
        let odd = path_of("/\u{ff}");
        assert_eq!((odd.as_os_str().as_bytes(), name(&odd).as_deref()), (&b"/\xff"[..], Some("/\u{ff}")));
    }
}
