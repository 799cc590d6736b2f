//! Names of files of which the kernel tells the inodes alone.
//!
//! Of what is mapped, and nobody has open, it does not tell how many names there are either, so that one is looked for also where there
//! is none. Who else makes names on that file system must not decide whether the program is kept. So it is the directories of the
//! program's users that have to be read.

use super::inside::Inside;
use super::reach;
use rt_sys::error::{Context, Result};
use rt_sys::mount::Mounted;
use rt_sys::{bail, err, fd};
use rustix::fd::OwnedFd;
use rustix::fs::{self, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How many names are read in directories of the program's users, and how many in those of others, and how long those may take.
const MOST: usize = 200_000;
const OTHERS_WITHIN: Duration = Duration::from_secs(2);

/// What is looked for: files of the file system in memory with this device, as proc_pid_maps(5) writes it.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    pub inodes: BTreeSet<u64>,
    /// Where they have had names. All that is there is read, and first.
    pub near: BTreeSet<PathBuf>,
}

/// A name of each of these inodes that has one which the container sees, and at which nobody but root and `users` can put something else.
///
/// # Errors
/// A directory of one of `users` cannot be read, or others can put something else at all names of a file.
pub(super) fn find(
    inside: &Inside<'_>,
    device: &str,
    wanted: &Wanted,
    users: &BTreeSet<u32>,
) -> Result<BTreeMap<u64, PathBuf>> {
    let (found, seen, of_others) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
    let (own, others) = (Vec::new(), Vec::new());
    let mut search = Search { inside, device, wanted, users, found, of_others, seen, own, others, end: None };
    let number = reach::decimal(device);
    let is_of = |mount: &&Mounted| Some(&mount.device) == number.as_ref();
    for path in wanted.near.iter().chain(inside.mounts.iter().filter(is_of).map(|mount| &mount.point)) {
        search.read(path, Whose::Near)?;
    }
    search.end = Some(Instant::now() + OTHERS_WITHIN);
    let mut read = [0; 2];
    while search.found.len() < wanted.inodes.len() {
        let (path, whose) = match search.own.pop() {
            Some(path) => (path, Whose::Users),
            None => match search.others.pop() {
                Some(path) => (path, Whose::Others),
                None => break,
            },
        };
        let (more, is_own) = search.read(&path, whose)?;
        let read = &mut read[usize::from(is_own)];
        *read += more;
        match *read > MOST {
            true if is_own => return Err(err!("{}: it has too many files to look for one", path.display())),
            false if is_own || !search.is_over() => {}
            _ => search.others.clear(),
        }
    }
    match search.of_others.into_iter().find(|(inode, _)| !search.found.contains_key(inode)) {
        Some((_, path)) => {
            Err(err!("{}: it is memory of the program, and others can rename there", path.display())
                .hint("have the program make names where only root and its user can"))
        }
        None => Ok(search.found),
    }
}

struct Search<'a> {
    inside: &'a Inside<'a>,
    device: &'a str,
    wanted: &'a Wanted,
    users: &'a BTreeSet<u32>,
    found: BTreeMap<u64, PathBuf>,
    /// Names at which others can put something else, which the program would open, and perhaps wait for.
    of_others: BTreeMap<u64, PathBuf>,
    /// The inodes of directories that have been read.
    seen: BTreeSet<u64>,
    /// Directories of the program's users, and of others.
    own: Vec<PathBuf>,
    others: Vec<PathBuf>,
    /// When no more of others is read.
    end: Option<Instant>,
}

/// Whose a directory is, as far as that is known before it is opened.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    Users,
    Others,
    /// Anybody's, and files have had names there.
    Near,
}

impl Search<'_> {
    fn is_over(&self) -> bool {
        self.end.is_some_and(|end| Instant::now() > end)
    }

    fn directory(&self, path: &Path) -> Result<Option<OwnedFd>, Errno> {
        self.inside.directory(path, |device| reach::device_number(device) == self.device)
    }

    fn is_roots(&self, stat: &Stat) -> bool {
        stat.st_uid == 0 || self.inside.is_roots(stat)
    }

    /// True where only root and the users can put something else at `path`, where this file is.
    fn is_kept(&self, path: &Path, file: &Stat) -> Result<bool> {
        let mut is_kept = file.st_uid == 0 || self.users.contains(&file.st_uid);
        for above in path.ancestors().skip(1) {
            let dir = match self.directory(above) {
                // What lies above is mounted by the config.
                Ok(None) => break,
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(false),
                Ok(Some(dir)) if self.inside.is_own(&dir) => return Ok(true),
                Ok(Some(dir)) => fd::stat(dir)?,
                Err(e) => return Err(e).context(|| format!("look at {}", above.display())),
            };
            let is_theirs = self.is_roots(&dir) || self.users.contains(&dir.st_uid);
            is_kept &= is_theirs && (dir.st_mode & 0o022 == 0 || dir.st_mode & libc::S_ISVTX != 0);
        }
        Ok(is_kept)
    }

    /// Reads the directory `path`. Returns how many names it has, and whether it is one of the users'.
    fn read(&mut self, path: &Path, whose: Whose) -> Result<(usize, bool)> {
        let shown = || format!("look through {}", path.display());
        let is_own = whose == Whose::Users;
        let may_not = |e: Errno| matches!(e, Errno::ACCESS | Errno::PERM | Errno::NAMETOOLONG);
        let place = match self.directory(path) {
            // It is removed by now, or something else is mounted there.
            Ok(None) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok((0, is_own)),
            Err(e) if !is_own && may_not(e) => return Ok((0, is_own)),
            Err(e) => return Err(e).context(shown),
            Ok(Some(place)) => place,
        };
        let stat = fd::stat(&place)?;
        let is_own = is_own || self.users.contains(&stat.st_uid);
        if !self.seen.insert(stat.st_ino) {
            return Ok((0, is_own));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // Where they may make names, too, there is perhaps one. In what another user has made there is one by his will alone.
        let may_have = whose == Whose::Near && stat.st_mode & 0o022 != 0 && self.is_roots(&stat);
        let counts = is_own || may_have;
        let dir = match fs::openat(&place, ".", flags, Mode::empty()) {
            Err(e) if !counts && may_not(e) => return Ok((0, is_own)),
            Err(Errno::ACCESS) => bail!("{}: its mode does not let this user do so", shown()),
            dir => dir.context(shown)?,
        };
        let mut read = 0;
        for entry in fs::Dir::read_from(&dir).context(shown)? {
            let entry = entry.context(shown)?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if !is_own && self.is_over() {
                break;
            }
            read += 1;
            let path = || path.join(OsStr::from_bytes(name.to_bytes()));
            // A file system in memory says of all what they are.
            if entry.file_type() == FileType::Directory {
                match fd::stat_entry(&dir, name) {
                    // What is mounted there is looked at by its own path.
                    Err(Errno::XDEV | Errno::NOENT) => {}
                    Ok(stat) if self.users.contains(&stat.st_uid) => self.own.push(path()),
                    _ if self.others.len() < MOST => self.others.push(path()),
                    _ => {}
                }
            } else if self.wanted.inodes.contains(&entry.ino()) {
                match fd::stat_entry(&dir, name) {
                    Ok(stat) if stat.st_ino == entry.ino() => {
                        let is_kept = self.is_kept(&path(), &stat)?;
                        let names = if is_kept { &mut self.found } else { &mut self.of_others };
                        names.insert(entry.ino(), path());
                    }
                    // Another file has the name by now, or is mounted there.
                    Ok(_) | Err(Errno::XDEV | Errno::NOENT) => {}
                    Err(e) if !counts && may_not(e) => {}
                    Err(e) => return Err(e).context(shown),
                }
            }
        }
        Ok((read, is_own))
    }
}
