//! Where what a program watches is (inotify(7)): the kernel names it by its inode. criu opens it by that as the host's root alone, else
//! it has to be told.

use super::files::{Watched, watches};
use super::inside::Inside;
use super::preflight::Descriptor;
use super::processes::Tree;
use super::{criu_log, numbers};
use rt_sys::caller::{Caller, Privilege};
use rt_sys::error::{Context, Result};
use rt_sys::fd;
use rustix::fd::OwnedFd;
use rustix::fs::{self, FileType, Mode, OFlags};
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
) -> Result<Vec<(Watched, PathBuf)>> {
    let watchers: BTreeMap<Watched, &Descriptor<'_>> = descriptors
        .iter()
        .flat_map(|descriptor| watches(&descriptor.info).flatten().map(move |watched| (watched, descriptor)))
        .collect();
    let mut search = Search { inside, wanted: watchers.keys().copied().collect(), found: Vec::new() };
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

/// criu's list of what it has found where, in the directory where it works, and the numbers that it begins with.
const CACHE: &str = "irmap-cache";
const MAGIC: [u32; 2] = [0x5510_5940, 0x5700_4059];
/// IrmapCacheEntry (images/fh.proto of criu).
const DEVICE: u64 = 1;
const INODE: u64 = 2;
const PATH: u64 = 3;

/// Tells criu, which works in `dir`, where what is watched is. Else it reads all directories below those that it is told, and also those
/// that others have mounted there, who may not answer.
pub(super) fn tell(dir: &OwnedFd, watched: &[(Watched, PathBuf)]) -> Result<()> {
    if watched.is_empty() {
        return Ok(());
    }
    let file = criu_log::make(dir, CACHE)?;
    fd::write_all(file, &cache_of(watched)).context(|| format!("write {CACHE}"))
}

fn cache_of(watched: &[(Watched, PathBuf)]) -> Vec<u8> {
    let mut text = MAGIC.map(u32::to_le_bytes).concat();
    for (watched, path) in watched {
        let mut entry = Vec::new();
        numbers::append(&mut entry, DEVICE, watched.device_number());
        numbers::append(&mut entry, INODE, watched.inode());
        // It takes away the slash that a path begins with.
        let path = if path == Path::new("/") { Path::new("/.") } else { path };
        numbers::append_bytes(&mut entry, PATH, path.as_os_str().as_bytes());
        text.extend_from_slice(&u32::try_from(entry.len()).unwrap_or_default().to_le_bytes());
        text.append(&mut entry);
    }
    text
}

/// Removes what [`tell`] has written.
pub(super) fn forget(dir: &OwnedFd) {
    let _ = fs::unlinkat(dir, CACHE, fs::AtFlags::empty());
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
    found: Vec<(Watched, PathBuf)>,
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
        let is_wanted = |device| self.wanted.iter().any(|watched| watched.is_on(device));
        match self.inside.find(&path, is_wanted) {
            Err(e) if e.is(libc::EACCES) || e.is(libc::EXDEV) => Ok(()),
            there => match there? {
                Some(there) => fd::stat(&there).map(|stat| self.take(&stat, path)),
                None => Ok(()),
            },
        }
    }

    /// Takes note of `path`, at which this is, where it is looked for.
    fn take(&mut self, stat: &fs::Stat, path: PathBuf) {
        let watched = Watched::of(stat);
        if self.wanted.remove(&watched) {
            self.found.push((watched, path));
        }
    }

    /// Looks through the directories `starts`, and where the file systems are mounted of which something is watched: what lies
    /// nearest comes first.
    fn below(&mut self, starts: Vec<PathBuf>) -> Result<()> {
        let devices: BTreeSet<Vec<u8>> = self.wanted.iter().map(|watched| watched.device()).collect();
        let inodes: BTreeSet<u64> = self.wanted.iter().map(|watched| watched.inode()).collect();
        let mounts = self.inside.mounts.iter().filter(|mount| devices.contains(&mount.device));
        let mut todo: VecDeque<PathBuf> =
            starts.into_iter().chain(mounts.map(|mount| mount.point.clone())).collect();
        let is_wanted = |device| devices.contains(&Watched::new(device, 0).device());
        let (mut seen, mut read) = (BTreeSet::new(), 0);
        while let Some(path) = todo.pop_front() {
            if self.wanted.is_empty() || read > MOST {
                break;
            }
            let Ok(Some(place)) = self.inside.directory(&path, is_wanted) else { continue };
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let Ok(dir) = fs::openat(&place, ".", flags, Mode::empty()) else { continue };
            let stat = fd::stat(&dir)?;
            self.take(&stat, path.clone());
            if !seen.insert(Watched::of(&stat)) {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn criu_reads_what_it_is_told() {
        let watched = |device, inode| Watched::new(fs::makedev(0, device), inode);
        let text = cache_of(&[(watched(52, 300), "/a".into()), (watched(1, 1), "/".into())]);
        assert_eq!(text[..8], [0x40, 0x59, 0x10, 0x55, 0x59, 0x40, 0x00, 0x57]);
        assert_eq!(text[8..21], [9, 0, 0, 0, 8, 52, 16, 0xac, 2, 26, 2, b'/', b'a']);
        assert_eq!(text[21..], [8, 0, 0, 0, 8, 1, 16, 1, 26, 2, b'/', b'.']);
    }
}
