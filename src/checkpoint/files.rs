//! Whose files a program has open, has in its memory, or executes.
//!
//! criu opens them by their paths, and with all capabilities of the container's user namespace: it could give a program what somebody
//! has put in the place of a file, which the program itself may not open, or wait for ever for the other end of a pipe. So what is
//! there has to be of the same kind, and of the same owner.

use super::processes::{Mapped, Process};
use rt_sys::error::{Context, Result};
use rt_sys::rootfs::PROC_MAGIC;
use rt_sys::{bail, err, fd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// What procfs writes behind the path of a removed file.
pub(super) const REMOVED: &str = " (deleted)";

/// What is known of a file: its owner and group as the container's user namespace shows them, and its kind and permissions (st_mode,
/// inode(7)), and its inode. criu compares the permissions of regular files alone, and of all or of none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Note(u32, u32, u32, u64);

/// In the mode of a [`Note`]: the permissions do not count.
const KIND_ALONE: u32 = 1 << 31;

impl Note {
    /// `users` are those of the program, to whom their own directories and fifos are open whatever the permissions.
    fn of(stat: &Stat, users: &BTreeSet<u32>) -> Note {
        let is_own = users.contains(&stat.st_uid);
        let mode = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => stat.st_mode,
            _ if is_own => stat.st_mode & libc::S_IFMT | KIND_ALONE,
            _ => stat.st_mode,
        };
        Note(0, 0, mode, stat.st_ino).like(stat)
    }

    /// The same of what is there now.
    fn like(self, stat: &Stat) -> Note {
        let kind = stat.st_mode & libc::S_IFMT;
        match FileType::from_raw_mode(stat.st_mode) {
            // A terminal gets other owners.
            FileType::CharacterDevice => Note(0, 0, kind | KIND_ALONE, 0),
            _ if self.2 & KIND_ALONE != 0 => Note(stat.st_uid, stat.st_gid, kind | KIND_ALONE, stat.st_ino),
            _ => Note(stat.st_uid, stat.st_gid, stat.st_mode, stat.st_ino),
        }
    }

    /// Compares what was noted of `path` with what is there now.
    fn compare(self, now: &Stat, path: &Path) -> Result<()> {
        let now = self.like(now);
        let what = match () {
            () if (self.2 ^ now.2) & libc::S_IFMT != 0 => "something of another kind",
            () if (self.0, self.1) != (now.0, now.1) => "a file of another owner",
            () if self.2 != now.2 => "a file with other permissions",
            () => return Ok(()),
        };
        Err(err!("{}: {what} has taken the place of what the program had there", path.display())
            .hint("the program itself could not open it, or would wait for it"))
    }
}

/// True where a process with these user ids may open a file so: by the bits of `access`, those of a mode for others. What groups and
/// access control lists allow is not asked.
pub(super) fn may_open(stat: &Stat, users: &[u32], access: u32) -> bool {
    users.contains(&stat.st_uid) || stat.st_mode & access == access
}

/// What a process has of a file.
#[derive(Debug)]
pub(super) struct Had<'a> {
    /// Whose it is.
    pub process: &'a Process,
    /// The user ids of that.
    pub users: &'a [u32],
    /// How it is open, as [`may_open`] takes it.
    pub access: u32,
}

/// Notes of files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Files {
    /// Of what is at a path in the container that a program has open, mapped or otherwise in use: criu opens it by that path.
    paths: BTreeMap<String, Note>,
    /// Of what each process has, by its number inside and a name in its directory of procfs, such as `7/fd/3`. A path says less:
    /// that of a removed file can be another one's, and criu makes such a file again under a name that it chooses.
    had: BTreeMap<String, Note>,
    /// Of what each process has mapped, by its number inside and the first address, with what is behind the last one.
    mapped: BTreeMap<i32, BTreeMap<u64, (u64, Note)>>,
    /// Of sockets with names, and of what is watched, by its path, where the container has several ids: procfs has no link to it.
    watched: Option<BTreeMap<String, Note>>,
    /// The program's user ids.
    pub(super) users: BTreeSet<u32>,
}

impl Files {
    /// Notes what `name`, a link in the directory of `process` in procfs, leads to; `path` is what the link says.
    pub(super) fn note(&mut self, process: &Process, name: &str, path: &Path) -> Result<()> {
        if !is_noted(path) {
            return Ok(());
        }
        let link = process.dir().join(name);
        let stat = match fs::stat(&link) {
            // It is gone by now.
            Err(Errno::NOENT | Errno::SRCH) => return Ok(()),
            stat => stat.context(|| format!("look at {}", path.display()))?,
        };
        if is_kernels(&link)? {
            return Ok(());
        }
        self.had.insert(key(process, name), Note::of(&stat, &self.users));
        // A terminal is made by criu.
        let there = fs::stat(process.dir().join("root").join(path.strip_prefix("/").unwrap_or(path)));
        if !is_device(&stat)
            && there.is_ok_and(|there| (there.st_dev, there.st_ino) == (stat.st_dev, stat.st_ino))
        {
            self.note_path(path, &stat);
        }
        Ok(())
    }

    /// Notes the file `opened`, which `process` has mapped.
    pub(super) fn note_mapped(
        &mut self,
        process: &Process,
        mapped: &Mapped<'_>,
        opened: &OwnedFd,
    ) -> Result<()> {
        if fd::file_system(opened)? != PROC_MAGIC {
            let stat = fd::stat(opened)?;
            let (of_process, addresses) = (self.mapped.entry(process.inside).or_default(), &mapped.addresses);
            of_process.insert(addresses.start, (addresses.end, Note::of(&stat, &self.users)));
            self.note_path(Path::new(mapped.path), &stat);
        }
        Ok(())
    }

    fn note_path(&mut self, path: &Path, stat: &Stat) {
        let note = Note::of(stat, &self.users);
        self.paths.entry(name_of(path)).or_insert(note);
    }

    /// Notes the working directory and the program of `process`.
    pub(super) fn note_links(&mut self, process: &Process) -> Result<()> {
        for name in ["cwd", "exe"] {
            let link = process.dir().join(name);
            let path = std::fs::read_link(&link).context(|| format!("read {}", link.display()))?;
            self.note(process, name, &path)?;
        }
        Ok(())
    }

    /// Notes what is at `paths` in the directory `root`: sockets, and what somebody watches.
    pub(super) fn note_watched(&mut self, root: BorrowedFd<'_>, paths: &[PathBuf]) -> Result<()> {
        let mut watched = BTreeMap::new();
        for path in paths {
            if let Some(stat) = stat_in(root, path)? {
                watched.insert(name_of(path), Note::of(&stat, &self.users));
            }
        }
        self.watched = Some(watched);
        Ok(())
    }

    /// Compares them with what is there, for a process whose root is the container's. What is missing criu misses, too.
    ///
    /// # Errors
    /// Something of another kind or owner is in the place of a file.
    pub(super) fn check(&self) -> Result<()> {
        let root = fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).context(|| "open /")?;
        for (name, note) in self.paths.iter().chain(self.watched.iter().flatten()) {
            let path = &path_of(name);
            // A link is found by whoever looks at paths.
            if let Some(stat) = stat_in(root.as_fd(), path)? {
                note.compare(&stat, path)?;
            }
        }
        Ok(())
    }

    /// The first of them that is not there.
    pub(super) fn missing(&self) -> Option<PathBuf> {
        let is_missing = |path: &PathBuf| matches!(fs::lstat(path), Err(Errno::NOENT | Errno::NOTDIR));
        self.paths.keys().map(|name| path_of(name)).find(is_missing)
    }

    /// True where `process` had something by this name.
    pub(super) fn has(&self, process: &Process, name: &str) -> bool {
        self.had.contains_key(&key(process, name))
    }

    /// Compares what a restored process has by a name that [`Files::note`] knows; `path` is what the link says.
    ///
    /// # Errors
    /// It is another file than the program had, as far as its note says that.
    pub(super) fn compare(&self, had: &Had<'_>, name: &str, path: &Path) -> Result<()> {
        if !is_noted(path) {
            return Ok(());
        }
        let link = had.process.dir().join(name);
        let stat = fs::stat(&link).context(|| format!("look at {}", path.display()))?;
        // It takes the place of the caller's streams.
        if fd::is_null_device(&stat) || is_kernels(&link)? {
            return Ok(());
        }
        match self.had.get(&key(had.process, name)) {
            Some(note) => self.compare_note(*note, &stat, had, path),
            None => bail!("it has {}, which the program had not", path.display()),
        }
    }

    /// Compares the file with `stat`, which a restored process has mapped.
    ///
    /// # Errors
    /// It is another file than the program had, as far as its note says that.
    pub(super) fn compare_mapped(&self, had: &Had<'_>, mapped: &Mapped<'_>, stat: &Stat) -> Result<()> {
        let (path, start) = (Path::new(mapped.path), mapped.addresses.start);
        let of_process = self.mapped.get(&had.process.inside);
        let below = of_process.and_then(|of_process| of_process.range(..=start).next_back());
        match below {
            Some((_, (end, note))) if start < *end => self.compare_note(*note, stat, had, path),
            _ => bail!("it has {} in its memory, which the program had not", path.display()),
        }
    }

    /// Of several ids another file of the same owner and permissions counts only where the process itself may open it: a program can
    /// have opened one before it gave up its rights.
    fn compare_note(&self, note: Note, stat: &Stat, had: &Had<'_>, path: &Path) -> Result<()> {
        note.compare(stat, path)?;
        let has_one_id = self.watched.is_none();
        if has_one_id || is_device(stat) || note.3 == stat.st_ino || may_open(stat, had.users, had.access) {
            return Ok(());
        }
        Err(err!("{}: another file has taken the place of what the program had there", path.display())
            .hint("the program itself could not open it"))
    }

    /// Looks at what an inotify(7) descriptor watches, by the lines `info` of fdinfo (proc_pid_fdinfo(5)), in the container whose root
    /// is `root`. criu opens it by a path, with all capabilities.
    ///
    /// # Errors
    /// It is nothing of which there is a note.
    pub(super) fn compare_watches(&self, root: BorrowedFd<'_>, info: &str) -> Result<()> {
        let Some(watched) = &self.watched else { return Ok(()) };
        for line in info.lines().filter(|line| line.starts_with("inotify ")) {
            let number = |name| {
                line.split(' ').find_map(|word| u64::from_str_radix(word.strip_prefix(name)?, 16).ok())
            };
            let (inode, device) = (number("ino:"), number("sdev:"));
            let mut is_noted = false;
            for (name, note) in watched {
                let stat = stat_in(root, &path_of(name))?;
                is_noted |= stat.is_some_and(|stat| {
                    let kernels = u64::from(fs::major(stat.st_dev)) << 20 | u64::from(fs::minor(stat.st_dev));
                    (Some(stat.st_ino), Some(kernels)) == (inode, device) && *note == note.like(&stat)
                });
            }
            if !is_noted {
                return Err(err!("it watches a file or directory that is not known to be the program's")
                    .hint("have it watch what stays where it is, and on one file system"));
            }
        }
        Ok(())
    }
}

/// True for a path that is noted: not for what is none, nor for the container's root, which nobody replaces, and which a layer can
/// give another owner.
fn is_noted(path: &Path) -> bool {
    path.is_absolute() && path != Path::new("/")
}

fn key(process: &Process, name: &str) -> String {
    format!("{}/{name}", process.inside)
}

/// Opens, for its path only, what is at `path` in the directory `root`, to which no link leads; `None` where nothing is, or a link.
pub(super) fn open_in(root: BorrowedFd<'_>, path: &Path) -> Result<Option<OwnedFd>> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::IN_ROOT;
    match fs::openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        found => found.map(Some).context(|| format!("look at {}", path.display())),
    }
}

fn stat_in(root: BorrowedFd<'_>, path: &Path) -> Result<Option<Stat>> {
    open_in(root, path)?.map(|found| fd::stat(&found)).transpose()
}

/// How `path` is noted: each byte as the character with its number, so that names of any bytes are told apart.
fn name_of(path: &Path) -> String {
    path.as_os_str().as_bytes().iter().map(|byte| char::from(*byte)).collect()
}

fn path_of(name: &str) -> PathBuf {
    PathBuf::from(OsString::from_vec(name.chars().map(|c| c as u8).collect()))
}

/// True for a character device, terminals among them.
fn is_device(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
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
        let stat = |uid, gid, mode| {
            let mut stat = fs::stat("/").unwrap();
            (stat.st_uid, stat.st_gid, stat.st_mode) = (uid, gid, mode);
            stat
        };
        let said = |then: Stat, now: Stat| {
            let note = Note::of(&then, &BTreeSet::from([5]));
            note.compare(&now, Path::new("/x")).map_or_else(|e| e.to_string(), |()| String::new())
        };
        let file = || stat(1000, 1000, libc::S_IFREG | 0o644);
        assert_eq!(said(file(), file()), "");
        assert!(said(file(), stat(1000, 1000, libc::S_IFIFO | 0o644)).contains("another kind"));
        assert!(said(file(), stat(0, 1000, libc::S_IFREG | 0o644)).contains("another owner"));
        assert!(said(file(), stat(1000, 0, libc::S_IFREG | 0o644)).contains("another owner"));
        assert!(said(file(), stat(1000, 1000, libc::S_IFREG | 0o640)).contains("other permissions"));
        // Of directories those of others alone; a terminal is anybody's.
        let dir = |uid, mode| stat(uid, 1000, libc::S_IFDIR | mode);
        assert!(said(dir(6, 0o755), dir(6, 0o700)).contains("other permissions"));
        assert_eq!(said(dir(5, 0o755), dir(5, 0o700)), "");
        assert!(said(dir(5, 0o755), dir(6, 0o755)).contains("another owner"));
        assert_eq!(said(stat(1, 2, libc::S_IFCHR | 0o600), stat(3, 4, libc::S_IFCHR | 0o620)), "");
        let noted = ["/a", "/", "/a (deleted)", "pipe:[7]"].map(|path| is_noted(Path::new(path)));
        assert_eq!(noted, [true, false, true, false]);
        let odd = path_of("/\u{ff}");
        assert_eq!((odd.as_os_str().as_bytes(), &*name_of(&odd)), (&b"/\xff"[..], "/\u{ff}"));
    }
}
