//! Where what a program watches is (inotify(7)): the kernel names it by its inode. criu opens it by that as the host's root alone, else
//! it looks through the trees that it is told.

use super::files::{Watched, watches};
use super::inside::Inside;
use super::preflight::Descriptor;
use super::processes::Tree;
use rt_sys::caller::{Caller, Privilege};
use rt_sys::error::{Context, Result};
use rt_sys::fd;
use rustix::fd::OwnedFd;
use rustix::fs::{self, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How many names are read in search of what nobody has open.
const MOST: usize = 200_000;

/// The paths of all that `tree` watches.
///
/// # Errors
/// Something has none, and criu needs it.
pub(super) fn find(
    descriptors: &[Descriptor<'_>],
    tree: &Tree,
    inside: &Inside<'_>,
) -> Result<BTreeSet<PathBuf>> {
    let watchers: BTreeMap<Watched, &Descriptor<'_>> = descriptors
        .iter()
        .flat_map(|descriptor| watches(&descriptor.info).flatten().map(move |watched| (watched, descriptor)))
        .collect();
    let mut search = Search { inside, wanted: watchers.keys().copied().collect(), found: BTreeSet::new() };
    let works_in = || tree.processes.iter().map(|process| process.dir().join("cwd"));
    // `tail -f` has the file open.
    let opened = descriptors.iter().filter(|d| d.target.is_absolute()).map(Descriptor::path);
    search.among(opened.chain(works_in()))?;
    if !search.wanted.is_empty() {
        let mut starts = Vec::new();
        for link in works_in() {
            starts.extend(path_of(&link)?);
        }
        search.below(starts)?;
    }
    match search.wanted.first().and_then(|watched| watchers.get(watched)) {
        Some(watcher) if Caller::current()?.privilege != Privilege::Root => Err(watcher.refused(
            "a watch on a file or directory of which no name was found",
            "criu needs one: have the program watch below its working directory, or have open what it watches",
        )),
        _ => Ok(search.found),
    }
}

/// What a link in procfs says; `None` where its descriptor is closed by now, or its process has ended.
fn path_of(link: &Path) -> Result<Option<PathBuf>> {
    match fs::readlink(link, Vec::new()) {
        Err(Errno::NOENT | Errno::SRCH | Errno::ACCESS) => Ok(None),
        path => {
            let path = path.context(|| format!("read {}", link.display()))?;
            Ok(Some(PathBuf::from(OsStr::from_bytes(path.to_bytes()))))
        }
    }
}

struct Search<'a> {
    inside: &'a Inside<'a>,
    /// What has not been found yet.
    wanted: BTreeSet<Watched>,
    /// Where the rest is.
    found: BTreeSet<PathBuf>,
}

impl Search<'_> {
    /// Looks at what the `links` in procfs lead to. One to a removed file says no name of it.
    fn among(&mut self, links: impl Iterator<Item = PathBuf>) -> Result<()> {
        for link in links {
            let (device, inode) = match fd::known_identity(&link) {
                // It is closed by now, or its process has ended.
                Err(Errno::NOENT | Errno::SRCH | Errno::ACCESS) => continue,
                known => known.context(|| format!("look at {}", link.display()))?,
            };
            if self.wanted.contains(&Watched::new(device, inode))
                && let Some(path) = path_of(&link)?
            {
                self.look_at(path)?;
            }
        }
        Ok(())
    }

    /// Looks at what is at `path` in the container, unless this user may not.
    fn look_at(&mut self, path: PathBuf) -> Result<()> {
        let there = match self.inside.find(&path) {
            Err(e) if e.is(libc::EACCES) => None,
            there => there?,
        };
        if let Some(there) = there
            && self.wanted.remove(&Watched::of(&fd::stat(&there)?))
        {
            self.found.insert(path);
        }
        Ok(())
    }

    /// Looks through the directories `starts`, and where the file systems are mounted of which something is watched: what lies
    /// nearest comes first.
    fn below(&mut self, starts: Vec<PathBuf>) -> Result<()> {
        let devices: BTreeSet<Vec<u8>> = self.wanted.iter().map(|watched| watched.device()).collect();
        let inodes: BTreeSet<u64> = self.wanted.iter().map(|watched| watched.inode()).collect();
        let mounts = self.inside.mounts.iter().filter(|mount| devices.contains(&mount.device));
        let mut todo: VecDeque<PathBuf> =
            starts.into_iter().chain(mounts.map(|mount| mount.point.clone())).collect();
        let (mut seen, mut read) = (BTreeSet::new(), 0);
        while let Some(path) = todo.pop_front() {
            if self.wanted.is_empty() || read > MOST {
                break;
            }
            let Ok(Some(dir)) = self.open(&path, &devices) else { continue };
            let watched = Watched::of(&fd::stat(&dir)?);
            if self.wanted.remove(&watched) {
                self.found.insert(path.clone());
            }
            if !seen.insert(watched) {
                continue;
            }
            for entry in fs::Dir::read_from(&dir).into_iter().flatten() {
                // What cannot be read is not found there.
                let Ok(entry) = entry else { break };
                let name = entry.file_name().to_bytes();
                if matches!(name, b"." | b"..") {
                    continue;
                }
                read += 1;
                let path = path.join(OsStr::from_bytes(name));
                if inodes.contains(&entry.ino()) {
                    self.look_at(path.clone())?;
                }
                if matches!(entry.file_type(), FileType::Directory | FileType::Unknown) {
                    todo.push_back(path);
                }
            }
        }
        Ok(())
    }

    /// Opens the directory `path` of the container; `None` where it is on none of `devices`: who serves another file system may not answer.
    ///
    /// # Errors
    /// It is none, or not there for this user.
    fn open(&self, path: &Path, devices: &BTreeSet<Vec<u8>>) -> Result<Option<OwnedFd>, Errno> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::IN_ROOT;
        let place = fs::openat2(&self.inside.root, path, flags | OFlags::PATH, Mode::empty(), resolve)?;
        let (device, inode) = fd::known_identity(fd::link(&place))?;
        match devices.contains(&Watched::new(device, inode).device()) {
            true => fs::openat(&place, ".", flags | OFlags::RDONLY, Mode::empty()).map(Some),
            false => Ok(None),
        }
    }
}
