//! Whose files a program has open, has in its memory, or executes.
//!
//! criu opens them by their paths, and with all capabilities of the container's user namespace: it could give a program what somebody
//! has put in the place of a file, which the program itself may not open, or wait for ever for the other end of a pipe. So what is
//! there has to be of the same kind; and where criu can do more than the program's user, it is the very file, or another one of the same
//! owner that the program itself may open.

use super::aside;
use super::inside::Inside;
use super::processes::{Mapped, Process, Rights};
use rt_sys::error::{Context, Result};
use rt_sys::process::act_as;
use rt_sys::rootfs::PROC_MAGIC;
use rt_sys::{bail, disk, err, fd};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// What procfs writes behind the path of a removed file.
pub(super) const REMOVED: &str = " (deleted)";

/// What is known of a file: its owner and group as the container's user namespace shows them, its kind and permissions (st_mode,
/// inode(7)), and what tells it from all others of its file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    #[serde(rename = "u")]
    uid: u32,
    #[serde(rename = "g")]
    gid: u32,
    #[serde(rename = "m")]
    mode: u32,
    #[serde(rename = "i")]
    inode: u64,
    /// When it was made: an inode can be given to another file once this one is gone. Nothing where the file system does not tell.
    #[serde(rename = "b")]
    born: Option<(i64, u32)>,
    /// It is on a file system in memory that is the container's alone, and copied into a new one by `rt`.
    #[serde(rename = "o")]
    own: bool,
}

impl Note {
    fn of(found: &At) -> Note {
        let stat = &found.stat;
        let (inode, born, own) = (stat.st_ino, found.born, found.own);
        Note { uid: stat.st_uid, gid: stat.st_gid, mode: stat.st_mode, inode, born, own }
    }

    /// True where `now` is the very file. Who had it open has it open, whatever owner and permissions it has got since.
    fn is_same(&self, now: &At) -> bool {
        now.born.is_some() && (self.inode, self.born) == (now.stat.st_ino, now.born)
    }

    /// Compares what was noted of `path` with what is there now. `users` are those of the program, to whom their own directories and
    /// fifos are open whatever the permissions; `None` where the container has one user id, by which criu opens nothing that this user
    /// cannot, so that only the kind counts.
    fn compare(&self, now: &At, users: Option<&BTreeSet<u32>>, path: &Path) -> Result<()> {
        let is = &now.stat;
        let is_file = FileType::from_raw_mode(is.st_mode) == FileType::RegularFile;
        let what = match users {
            _ if (self.mode ^ is.st_mode) & libc::S_IFMT != 0 => "something of another kind",
            None => return Ok(()),
            // A terminal gets other owners.
            Some(_) if is_device(is) || self.is_same(now) => return Ok(()),
            Some(_) if (self.uid, self.gid) != (is.st_uid, is.st_gid) => "a file of another owner",
            Some(users) if self.mode != is.st_mode && (is_file || !users.contains(&is.st_uid)) => {
                "a file with other permissions"
            }
            Some(_) => return Ok(()),
        };
        Err(err!("{}: {what} has taken the place of what the program had there", path.display())
            .hint("the program itself could not open it, or would wait for it"))
    }
}

/// What is found somewhere.
pub(super) struct At {
    stat: Stat,
    born: Option<(i64, u32)>,
    /// As in a [`Note`].
    own: bool,
}

impl At {
    /// What `opened` is, which can be open for its path only.
    pub(super) fn of(inside: &Inside<'_>, opened: &OwnedFd) -> Result<At> {
        let (own, born) = (inside.is_own(opened), disk::born(opened.as_fd())?);
        Ok(At { stat: fd::stat(opened)?, born, own })
    }

    /// True where it is the file with `stat`.
    pub(super) fn is(&self, stat: &Stat) -> bool {
        is_one(&self.stat, stat)
    }

    /// What is at `path`, to which no link leads, where criu looks next.
    fn find(inside: &Inside<'_>, path: &Path) -> Result<Option<At>> {
        inside.find(path, |_| true)?.map(|found| At::of(inside, &found)).transpose()
    }
}

/// True where a process with these user ids may open a file so: by the bits of `access`, those of a mode for others. What groups and
/// access control lists allow is not asked.
pub(super) fn may_open(stat: &Stat, users: &[u32], access: u32) -> bool {
    users.contains(&stat.st_uid) || stat.st_mode & access == access
}

/// True where a process with `rights` comes to a path by itself, what is there, on a device that is known or not, is what `is_it` takes,
/// and the process may use that by the bits of `access`. The kernel is asked in a process that has its ids and capabilities.
pub(super) fn opens(
    inside: &Inside<'_>,
    (path, device): (&Path, Option<u64>),
    rights: &Rights,
    access: u32,
    is_it: impl Fn(&Stat) -> bool,
) -> Result<bool> {
    let said = aside::ask(|| {
        act_as(rights.uid, rights.gid, &rights.groups, rights.caps)?;
        let found = match inside.find(path, |there| Some(there) == device) {
            Err(e) if e.is(libc::EACCES) || e.is(libc::EXDEV) => None,
            found => found?,
        };
        let Some(found) = found else { return Ok(Vec::new()) };
        let is_it = is_it(&fd::stat(&found)?);
        Ok(if is_it && disk::may(found.as_fd(), access)? { vec![1] } else { Vec::new() })
    })?;
    Ok(!said.is_empty())
}

/// What a process has of a file.
#[derive(Debug)]
pub(super) struct Had<'a> {
    /// Whose it is.
    pub process: &'a Process,
    /// What that may do.
    pub rights: &'a Rights,
    /// How it is open, as [`may_open`] takes it.
    pub access: u32,
    /// What the kernel has allowed.
    pub allowed: &'a Allowed,
}

/// What processes may open, of which many have the same libraries.
#[derive(Debug, Default)]
pub(super) struct Allowed(RefCell<BTreeSet<Use>>);

/// That processes with these rights open the file with that device and inode by its path.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Use {
    rights: Rights,
    path: PathBuf,
    access: u32,
    device: u64,
    inode: u64,
}

impl Allowed {
    /// As [`opens`], for the file with `stat`.
    fn opens(&self, inside: &Inside<'_>, path: &Path, had: &Had<'_>, stat: &Stat) -> Result<bool> {
        let wanted = Use {
            rights: had.rights.clone(),
            path: path.to_owned(),
            access: had.access,
            device: stat.st_dev,
            inode: stat.st_ino,
        };
        if self.0.borrow().contains(&wanted) {
            return Ok(true);
        }
        let place = (path, Some(stat.st_dev));
        let is_open = opens(inside, place, had.rights, had.access, |found| is_one(stat, found))?;
        if is_open {
            self.0.borrow_mut().insert(wanted);
        }
        Ok(is_open)
    }
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
    pub(super) fn note(
        &mut self,
        inside: &Inside<'_>,
        process: &Process,
        name: &str,
        path: &Path,
    ) -> Result<()> {
        if !is_noted(path) {
            return Ok(());
        }
        let opened = match open_link(process, name, path) {
            // It is gone by now.
            Err(e) if e.is(libc::ENOENT) || e.is(libc::ESRCH) => return Ok(()),
            opened => opened?,
        };
        if fd::file_system(&opened)? == PROC_MAGIC {
            return Ok(());
        }
        let found = At::of(inside, &opened)?;
        self.had.insert(key(process, name), Note::of(&found));
        // A terminal is made by criu.
        let there = inside.find(path, |device| device == found.stat.st_dev)?;
        let there = there.map(|there| fd::stat(&there)).transpose()?;
        if !is_device(&found.stat) && there.is_some_and(|there| is_one(&there, &found.stat)) {
            self.note_path(path, &found);
        }
        Ok(())
    }

    /// Notes the file `opened`, which `process` has mapped.
    pub(super) fn note_mapped(
        &mut self,
        inside: &Inside<'_>,
        process: &Process,
        mapped: &Mapped<'_>,
        opened: &OwnedFd,
    ) -> Result<()> {
        if fd::file_system(opened)? != PROC_MAGIC {
            let found = At::of(inside, opened)?;
            let (of_process, addresses) = (self.mapped.entry(process.inside).or_default(), &mapped.addresses);
            of_process.insert(addresses.start, (addresses.end, Note::of(&found)));
            self.note_path(Path::new(mapped.path), &found);
        }
        Ok(())
    }

    fn note_path(&mut self, path: &Path, found: &At) {
        self.paths.entry(name_of(path)).or_insert_with(|| Note::of(found));
    }

    /// Notes the working directory and the program of `process`.
    pub(super) fn note_links(&mut self, inside: &Inside<'_>, process: &Process) -> Result<()> {
        for name in ["cwd", "exe"] {
            let link = process.dir().join(name);
            let path = std::fs::read_link(&link).context(|| format!("read {}", link.display()))?;
            self.note(inside, process, name, &path)?;
        }
        Ok(())
    }

    /// Notes what is at `paths`: sockets, and what somebody watches.
    pub(super) fn note_watched(&mut self, inside: &Inside<'_>, paths: &[PathBuf]) -> Result<()> {
        let mut watched = BTreeMap::new();
        for path in paths {
            if let Some(found) = inside.find(path, |_| false)? {
                watched.insert(name_of(path), Note::of(&At::of(inside, &found)?));
            }
        }
        self.watched = Some(watched);
        Ok(())
    }

    /// True where criu can do more than the program's user.
    pub(super) fn has_several_ids(&self) -> bool {
        self.watched.is_some()
    }

    /// The program's users, where the container has several ids.
    fn users(&self) -> Option<&BTreeSet<u32>> {
        self.has_several_ids().then_some(&self.users)
    }

    /// Compares them with what is there. What is missing criu misses, too.
    ///
    /// # Errors
    /// Something of another kind or owner is in the place of a file.
    pub(super) fn check(&self, inside: &Inside<'_>) -> Result<()> {
        for (name, note) in self.paths.iter().chain(self.watched.iter().flatten()) {
            let path = &path_of(name);
            // A link is found by whoever looks at paths.
            if let Some(now) = At::find(inside, path)? {
                note.compare(&now, self.users(), path)?;
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
    pub(super) fn compare(&self, inside: &Inside<'_>, had: &Had<'_>, name: &str, path: &Path) -> Result<()> {
        if !is_noted(path) {
            return Ok(());
        }
        let opened = open_link(had.process, name, path)?;
        let now = At::of(inside, &opened)?;
        // It takes the place of the caller's streams.
        if fd::is_null_device(&now.stat) || fd::file_system(&opened)? == PROC_MAGIC {
            return Ok(());
        }
        match self.had.get(&key(had.process, name)) {
            Some(note) => self.compare_note(inside, note, &now, had, path),
            None => bail!("it has {}, which the program had not", path.display()),
        }
    }

    /// Compares the file `now`, which a restored process has mapped.
    ///
    /// # Errors
    /// It is another file than the program had, as far as its note says that.
    pub(super) fn compare_mapped(
        &self,
        inside: &Inside<'_>,
        had: &Had<'_>,
        mapped: &Mapped<'_>,
        now: &At,
    ) -> Result<()> {
        let (path, start) = (Path::new(mapped.path), mapped.addresses.start);
        let of_process = self.mapped.get(&had.process.inside);
        let below = of_process.and_then(|of_process| of_process.range(..=start).next_back());
        match below {
            Some((_, (end, note))) if start < *end => self.compare_note(inside, note, now, had, path),
            _ => bail!("it has {} in its memory, which the program had not", path.display()),
        }
    }

    /// Of several ids another file of the same owner and permissions counts only where the process itself comes to it and may open it:
    /// a program can have opened one before it gave up its rights, and criu goes through everybody's directories. Removed files criu has
    /// made, and those on the container's own file systems in memory `rt`.
    fn compare_note(
        &self,
        inside: &Inside<'_>,
        note: &Note,
        now: &At,
        had: &Had<'_>,
        path: &Path,
    ) -> Result<()> {
        note.compare(now, self.users(), path)?;
        if self.users().is_none() || is_device(&now.stat) || note.is_same(now) || (note.own && now.own) {
            return Ok(());
        }
        let is_open = match now.stat.st_nlink {
            0 => may_open(&now.stat, &had.rights.uids, had.access),
            _ => had.allowed.opens(inside, path, had, &now.stat)?,
        };
        match is_open {
            true => Ok(()),
            false => Err(err!(
                "{}: another file has taken the place of what the program had there",
                path.display()
            )
            .hint("the program itself could not open it")),
        }
    }

    /// Looks at what an inotify(7) descriptor watches, by the lines `info` of fdinfo (proc_pid_fdinfo(5)). criu opens it by a path, with
    /// all capabilities; with `had` that process has to come to it, too.
    ///
    /// # Errors
    /// It is nothing of which there is a note.
    pub(super) fn compare_watches(
        &self,
        inside: &Inside<'_>,
        info: &str,
        had: Option<&Had<'_>>,
    ) -> Result<()> {
        let Some(watched) = &self.watched else { return Ok(()) };
        for watch in watches(info) {
            let mut is_noted = false;
            for (name, note) in watched {
                let path = path_of(name);
                let found = At::find(inside, &path)?;
                let Some(found) = found.filter(|found| Some(Watched::of(&found.stat)) == watch) else {
                    continue;
                };
                is_noted |= match had {
                    Some(had) => self.compare_note(inside, note, &found, had, &path).is_ok(),
                    None => note.compare(&found, self.users(), &path).is_ok(),
                };
            }
            if !is_noted {
                return Err(err!("it watches a file or directory that is not known to be the program's")
                    .hint("have it watch what stays where it is, and on one file system"));
            }
        }
        Ok(())
    }
}

/// What is watched, as the kernel shows it: an inode, and the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Watched(u64, u64);

impl Watched {
    pub(super) fn of(stat: &Stat) -> Watched {
        Watched::new(stat.st_dev, stat.st_ino)
    }

    pub(super) fn new(device: u64, inode: u64) -> Watched {
        Watched(inode, u64::from(fs::major(device)) << 20 | u64::from(fs::minor(device)))
    }

    pub(super) fn inode(self) -> u64 {
        self.0
    }

    /// The number of the device, as the kernel shows it.
    pub(super) fn device_number(self) -> u64 {
        self.1
    }

    pub(super) fn is_on(self, device: u64) -> bool {
        self.1 == Watched::new(device, 0).1
    }

    /// The device, as a table of mounts has it (proc_pid_mountinfo(5)).
    pub(super) fn device(self) -> Vec<u8> {
        format!("{}:{}", self.1 >> 20, self.1 & 0xf_ffff).into_bytes()
    }
}

/// What the lines `info` of an inotify(7) descriptor say (proc_pid_fdinfo(5)); `None` for a line that says something else.
pub(super) fn watches(info: &str) -> impl Iterator<Item = Option<Watched>> {
    info.lines().filter(|line| line.starts_with("inotify ")).map(|line| {
        let number =
            |name| line.split(' ').find_map(|word| u64::from_str_radix(word.strip_prefix(name)?, 16).ok());
        Some(Watched(number("ino:")?, number("sdev:")?))
    })
}

/// Opens, for its path only, what the link `name` of `process` in procfs leads to, by which `path` is known.
fn open_link(process: &Process, name: &str, path: &Path) -> Result<OwnedFd> {
    let opened = fs::open(process.dir().join(name), OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    opened.context(|| format!("look at {}", path.display()))
}

/// True where both are of one file.
pub(super) fn is_one(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

/// Locks `file` for this process alone, or says that another has it. A file system without locks gives it to everybody.
pub(super) fn lock_at_once(file: &OwnedFd) -> rustix::io::Result<bool> {
    match fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Ok(false),
        Ok(()) | Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => Ok(true),
        Err(e) => Err(e),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_has_the_kind_and_the_owner_of_before() {
        let at = |uid, gid, mode| {
            let mut stat = fs::stat("/").unwrap();
            (stat.st_uid, stat.st_gid, stat.st_mode) = (uid, gid, mode);
            At { stat, born: None, own: false }
        };
        let program = BTreeSet::from([5]);
        let among = |users: Option<&BTreeSet<u32>>, then: At, now: At| {
            let compared = Note::of(&then).compare(&now, users, Path::new("/x"));
            compared.map_or_else(|e| e.to_string(), |()| String::new())
        };
        let said = |then, now| among(Some(&program), then, now);
        let file = || at(1000, 1000, libc::S_IFREG | 0o644);
        assert_eq!(said(file(), file()), "");
        assert!(said(file(), at(1000, 1000, libc::S_IFIFO | 0o644)).contains("another kind"));
        assert!(said(file(), at(0, 1000, libc::S_IFREG | 0o644)).contains("another owner"));
        assert!(said(file(), at(1000, 0, libc::S_IFREG | 0o644)).contains("another owner"));
        assert!(said(file(), at(1000, 1000, libc::S_IFREG | 0o640)).contains("other permissions"));
        // Of directories those of others alone; a terminal is anybody's.
        let dir = |uid, mode| at(uid, 1000, libc::S_IFDIR | mode);
        assert!(said(dir(6, 0o755), dir(6, 0o700)).contains("other permissions"));
        assert_eq!(said(dir(5, 0o755), dir(5, 0o700)), "");
        assert!(said(dir(5, 0o755), dir(6, 0o755)).contains("another owner"));
        assert_eq!(said(at(1, 2, libc::S_IFCHR | 0o600), at(3, 4, libc::S_IFCHR | 0o620)), "");
        // Of one id the kind counts alone, and of the very file nothing else either.
        assert_eq!(among(None, file(), at(0, 0, libc::S_IFREG)), "");
        assert!(among(None, file(), at(1000, 1000, libc::S_IFIFO | 0o644)).contains("another kind"));
        let born = |mode, second| At { born: Some((second, 0)), ..at(6, 6, libc::S_IFREG | mode) };
        assert_eq!(said(born(0o644, 7), born(0o600, 7)), "");
        assert!(said(born(0o644, 7), born(0o600, 8)).contains("other permissions"));
        let noted = ["/a", "/", "/a (deleted)", "pipe:[7]"].map(|path| is_noted(Path::new(path)));
        assert_eq!(noted, [true, false, true, false]);
        let odd = path_of("/\u{ff}");
        assert_eq!((odd.as_os_str().as_bytes(), &*name_of(&odd)), (&b"/\xff"[..], "/\u{ff}"));
    }
}
