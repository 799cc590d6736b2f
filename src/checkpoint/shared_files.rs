//! Memory of files that keep their names, on a file system in memory that is not the container's alone: multiprocessing.shared_memory and
//! MPI's segments on the host's /dev/shm.
//!
//! criu maps such a file again by its name, and keeps nothing of it. So its content is copied into the image while the tree is stopped, and
//! back before criu makes the processes again: to the very file, or to a new one where there is none. What is there else stays as it is.
//! Which files a restore has made stands in the image: where it was killed, or the program has ended since, the next one takes them for
//! the program's. So do the images of the program that follow: it may come back to a node where an older copy is left. That is as much the
//! program's as the file of an image of this node that is restored again, and is written over only where nobody has it.
//!
//! It is done over one user id, which can write no file that the program could not. Where ids are several, memory on the host's /dev/shm
//! is refused, and any other is a file as all are: podman copies its own.

use super::image::Image;
use super::inside::Inside;
use super::others::{self, Unseen, Users};
use super::{memory_fs, reach};
use crate::store::ContainerDir;
use rt_sys::error::{Context, Error, Result};
use rt_sys::fd::Use;
use rt_sys::mount::Mounted;
use rt_sys::{bail, caller, disk, err, fd, tree};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, AtFlags, FallocateFlags, FileType, FlockOperation, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What helps.
const REMEDY: &str = "give the container a /dev/shm of its own: --ipc private";

/// What helps where a process uses a file at the restore.
const NOT_USED: &str = "end that process, or remove the file";

/// The file of an image that says what restores have made, a line each.
const MADE: &str = "shared-made";

/// The file in a container's state that says the same of the files that its program has had, on this node and on others; and how many of
/// them an image takes over, the last ones.
const KNOWN: &str = "shared-known";
const MOST_KNOWN: usize = 1000;

/// How long one restore of an image waits for another one.
const LOCKED_WITHIN: Duration = Duration::from_secs(60);

/// Where the kernel names this start of this machine. Devices and inodes in memory are others after the next one.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// Those of an image.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SharedFiles(Vec<SharedFile>);

/// A file. The content of the Nth is in the file `shared-file-N.img`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SharedFile {
    path: PathBuf,
    mode: u32,
    size: u64,
    identity: Identity,
}

/// What tells a file in memory from all others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    boot: String,
    device: u64,
    inode: u64,
    born: Option<(i64, u32)>,
}

impl Identity {
    fn of(file: &OwnedFd) -> Result<Identity> {
        let (stat, born) = (fd::stat(file)?, disk::born(file.as_fd())?);
        Ok(Identity { boot: boot()?, device: stat.st_dev, inode: stat.st_ino, born })
    }

    /// The device, the inode and `path`, as procfs writes them.
    fn in_procfs(&self, path: &Path) -> [String; 3] {
        [reach::device_number(self.device), self.inode.to_string(), path.display().to_string()]
    }
}

fn boot() -> Result<String> {
    let text = fd::read_file(Path::new(BOOT)).context(|| format!("read {BOOT}"))?;
    Ok(String::from_utf8_lossy(&text).trim().to_owned())
}

/// Why such memory at `path` is refused where the container has several ids.
pub(super) fn refused_of_several(shown: &str, path: &str) -> Error {
    err!("{shown} has {path} in its memory, which is the host's, and the container has several ids")
        .hint(REMEDY)
}

/// Why the clones of a program with it cannot be made.
pub(super) fn refused_for_clones(path: &str) -> Error {
    err!("the program has {path} in its memory, and each clone would have that file").hint(REMEDY)
}

/// True for the host's /dev/shm, or what this process has there.
pub(super) fn is_of_host(file: &Stat) -> Result<bool> {
    match fs::stat("/dev/shm") {
        Err(Errno::NOENT) => Ok(false),
        shm => Ok(shm.context(|| "look at /dev/shm")?.st_dev == file.st_dev),
    }
}

/// Those of `files`, each a device, an inode and a path as procfs writes them, that are on none of the file systems `memory` among
/// `mounts`: the content of these is copied whole.
pub(super) fn apart(
    files: &BTreeSet<[String; 3]>,
    memory: &[PathBuf],
    mounts: &[Mounted],
) -> BTreeSet<[String; 3]> {
    let is_copied = |device: &str| {
        let device = reach::decimal(device);
        mounts.iter().any(|mount| memory.contains(&mount.point) && Some(&mount.device) == device.as_ref())
    };
    files.iter().filter(|[device, ..]| !is_copied(device)).cloned().collect()
}

/// Copies `files` into `image`.
pub(super) fn save(inside: &Inside<'_>, files: &BTreeSet<[String; 3]>, image: &Image) -> Result<SharedFiles> {
    let mut saved: Vec<SharedFile> = Vec::new();
    for [device, inode, path] in files {
        let (path, shown) = (PathBuf::from(path), || format!("save {path}"));
        let is_wanted = |there| reach::device_number(there) == *device;
        let other = || err!("{}: another file is there by now", path.display());
        let (above, name) = parts_of(&path)?;
        let dir = inside.directory(above, is_wanted).context(shown)?.ok_or_else(other)?;
        let file = fd::open_entry(&dir, name, OFlags::RDONLY | OFlags::NONBLOCK).context(shown)?;
        let stat = fd::stat(&file)?;
        if !reach::is_file(&stat, &[device, inode]) {
            return Err(other());
        }
        let identity = Identity::of(&file)?;
        if let Some(other) = saved.iter().find(|other| other.identity == identity) {
            let (one, other) = (other.path.display(), path.display());
            return Err(err!("the program has one file in its memory as {one} and as {other}")
                .hint("have it use one name"));
        }
        let create = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let content =
            fs::openat(&image.dir, name_of(saved.len()), create, Mode::RUSR | Mode::WUSR).context(shown)?;
        let size = stat.st_size.unsigned_abs();
        tree::copy_content(file.as_fd(), content.as_fd(), size).context(shown)?;
        fd::chown_like(&content, &stat);
        tree::copy_attributes(&file, &content).context(shown).map_err(memory_fs::not_everywhere)?;
        saved.push(SharedFile { path, mode: stat.st_mode & 0o7777, size, identity });
    }
    Ok(SharedFiles(saved))
}

fn name_of(number: usize) -> String {
    format!("shared-file-{number}.img")
}

/// The files that a restore has made. They are removed again unless it comes to its end.
#[derive(Debug, Default)]
pub(super) struct Made(Vec<(PathBuf, Identity)>);

impl SharedFiles {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keeps other restores of `image` from them for as long as the descriptor, or a copy of it, is open and locked, or waits for the one
    /// that does. `None` where there are none, or the image cannot be locked.
    ///
    /// # Errors
    /// A process has one of them, which a restore would change. This process must be where all processes are seen.
    pub(super) fn take(&self, image: &Image) -> Result<Option<OwnedFd>> {
        if self.is_empty() {
            return Ok(None);
        }
        let lock = lock(image)?;
        self.check_unused(image)?;
        Ok(lock)
    }

    fn check_unused(&self, image: &Image) -> Result<()> {
        let (boot, made) = (boot()?, made_of(image)?);
        let own = self.0.iter().map(|file| (&file.path, &file.identity));
        let of_restores = made.iter().map(|(path, identity)| (path, identity));
        let here = own.chain(of_restores).filter(|(_, identity)| identity.boot == boot);
        let is_of_all = |path: &Path| self.0.iter().any(|file| file.path == path && file.is_of_all());
        let (of_all, own): (Vec<_>, Vec<_>) = here.partition(|(path, _)| is_of_all(path));
        for (files, users) in [(own, Users::Of(vec![caller::uid()])), (of_all, Users::All)] {
            let files: Vec<_> = files.into_iter().map(|(path, identity)| identity.in_procfs(path)).collect();
            let files: Vec<&[String; 3]> = files.iter().collect();
            // Whom the procfs hides is seen by the file ([`SharedFile::find`]).
            if let Some(had) = others::had_by_other(&files, &users, Unseen::HaveNot, |_| false)? {
                let (path, how) = (had.path, had.how);
                return Err(err!("the program had {path} in its memory, which {how}").hint(NOT_USED));
            }
        }
        Ok(())
    }

    /// Those to which other users may write, as procfs has them. A process of theirs has one perhaps, and may not be looked at.
    pub(super) fn of_all(&self) -> BTreeSet<[String; 3]> {
        let of_all = self.0.iter().filter(|file| file.is_of_all());
        of_all.map(|file| file.identity.in_procfs(&file.path)).collect()
    }

    /// Has the container with the state `dir` know which files the program has had, by `image`, from which it was restored.
    pub(super) fn note(&self, image: &Image, dir: &ContainerDir) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let own = self.0.iter().map(|file| (file.path.clone(), file.identity.clone()));
        let known: Vec<_> = made_of(image)?.into_iter().chain(own).collect();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let shown = || format!("write {KNOWN} of {}", dir.id);
        let file = fs::openat(dir.fd(), KNOWN, flags, Mode::RUSR | Mode::WUSR).context(shown)?;
        fd::write_all(&file, &lines_of(&known)?).context(shown)
    }

    /// Has `image`, which is new, know of them what the container with the state `dir` does.
    pub(super) fn take_over(&self, image: &Image, dir: &ContainerDir) -> Result<()> {
        let shown = || format!("read {KNOWN} of {}", dir.id);
        if self.is_empty() {
            return Ok(());
        }
        let file = match fd::open_entry(dir.fd(), KNOWN, OFlags::RDONLY | OFlags::NONBLOCK) {
            Err(Errno::NOENT) => return Ok(()),
            file => file.context(shown)?,
        };
        let text = fd::read_regular(file, MOST_KNOWN << 14).context(shown)?;
        let mut known: Vec<(PathBuf, Identity)> = Vec::new();
        for one in made_in(text.as_deref().unwrap_or_default()).into_iter().rev() {
            let is_own = |(path, identity): &(PathBuf, Identity)| {
                self.0.iter().any(|file| file.path == *path && file.identity != *identity)
            };
            if is_own(&one) && !known.contains(&one) && known.len() < MOST_KNOWN {
                known.push(one);
            }
        }
        known.reverse();
        match known.is_empty() {
            true => Ok(()),
            false => write_made(image, &lines_of(&known)?),
        }
    }

    /// Copies them back. `users` are the program's.
    ///
    /// # Errors
    /// Another file is at the path of one, or something else than a file.
    pub(super) fn restore(&self, image: &Image, users: &BTreeSet<u32>) -> Result<Made> {
        let mut made = Made::default();
        if self.is_empty() {
            return Ok(made);
        }
        let of_restores = made_of(image)?;
        for (number, file) in self.0.iter().enumerate() {
            let shown = || format!("restore {}", file.path.display());
            let known: Vec<&Identity> = of_restores
                .iter()
                .filter(|(path, _)| *path == file.path)
                .map(|(_, identity)| identity)
                .chain([&file.identity])
                .collect();
            let content =
                fd::open_entry(&image.dir, name_of(number).as_str(), OFlags::RDONLY).context(shown)?;
            match file.find(&known, users)? {
                Some(there) => {
                    // It is not emptied by its size: another user, who may read it, has it mapped perhaps, and would be ended by SIGBUS.
                    let size = fd::stat(&there)?.st_size.unsigned_abs();
                    // Who opens it now waits until it is written, unless somebody reads it, too.
                    let lease = fd::lease(there.as_fd(), Use::Any)?;
                    if size > file.size && lease.is_none() {
                        let path = file.path.display();
                        return Err(err!(
                            "{path}: it has become longer, and a process has it open or mapped"
                        )
                        .hint(NOT_USED));
                    }
                    let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                    if size > 0 {
                        fs::fallocate(&there, how, 0, size).context(shown)?;
                    }
                    file.fill(&content, &there).context(shown)?;
                }
                None => made.0.push((file.path.clone(), file.make(&content, image).context(shown)?)),
            }
        }
        Ok(made)
    }
}

impl SharedFile {
    /// True where others may write to it: the group, or whom an access list (acl(5)) names, whose bits are the group's, or all.
    fn is_of_all(&self) -> bool {
        self.mode & 0o022 != 0
    }

    /// The directory that it is in, and its name there.
    fn place(&self) -> Result<(OwnedFd, &OsStr)> {
        let (above, name) = parts_of(&self.path)?;
        Ok((open_dir(above)?, name))
    }

    /// Opens it where it is there, and one of the `known`.
    fn find(&self, known: &[&Identity], users: &BTreeSet<u32>) -> Result<Option<OwnedFd>> {
        let (dir, name) = self.place()?;
        let shown = || format!("open {}", self.path.display());
        let open = |flags: OFlags| fd::open_entry(&dir, name, flags);
        let refused = |what: &str| {
            Err(err!("{}: {what} is there, which is not the program's memory", self.path.display())
                .hint("remove it, or restore on another node"))
        };
        let is_it = |file: &OwnedFd| -> Result<bool> {
            let stat = fd::stat(file)?;
            let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
            Ok(is_file && users.contains(&stat.st_uid) && known.contains(&&Identity::of(file)?))
        };
        // What it is comes before it is opened.
        let found = match open(OFlags::PATH) {
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::XDEV) => return refused("what is mounted"),
            found => found.context(shown)?,
        };
        if !is_it(&found)? {
            return refused("another file");
        }
        let to_read = open(OFlags::RDONLY | OFlags::NONBLOCK).context(shown)?;
        if !is_it(&to_read)? {
            return refused("another file");
        }
        if fd::lease(to_read.as_fd(), Use::Write)?.is_none() {
            return Err(err!("{}: a process has it open or mapped to write to it", self.path.display())
                .hint(NOT_USED));
        }
        let file = open(OFlags::RDWR | OFlags::NONBLOCK).context(shown)?;
        if is_it(&file)? { Ok(Some(file)) } else { refused("another file") }
    }

    /// Gives the empty `file` content, group, attributes and mode.
    fn fill(&self, content: &OwnedFd, file: &OwnedFd) -> Result<()> {
        tree::copy_content(content.as_fd(), file.as_fd(), self.size)?;
        fd::chown_like(file, &fd::stat(content)?);
        tree::copy_attributes(content, file).map_err(memory_fs::not_in_memory)?;
        Ok(fs::fchmod(file, Mode::from_raw_mode(self.mode))?)
    }

    /// Makes it anew. It has its name when it is whole, and known to the next restore.
    fn make(&self, content: &OwnedFd, image: &Image) -> Result<Identity> {
        let (dir, name) = self.place()?;
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = fs::openat(&dir, ".", flags, Mode::RUSR | Mode::WUSR)?;
        self.fill(content, &file)?;
        let identity = Identity::of(&file)?;
        note_made(image, &self.path, &identity)?;
        disk::link_open(file.as_fd(), dir.as_fd(), name.as_bytes())?;
        Ok(identity)
    }
}

impl Made {
    /// They stay.
    pub(super) fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for (path, identity) in &self.0 {
            remove(path, identity).unwrap_or_else(|e| log::warn!("remove {}: {e}", path.display()));
        }
    }
}

fn remove(path: &Path, identity: &Identity) -> Result<()> {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    let dir = open_dir(above)?;
    match fd::open_entry(&dir, name, OFlags::PATH) {
        Ok(file) if Identity::of(&file)? == *identity => Ok(fs::unlinkat(&dir, name, AtFlags::empty())?),
        _ => Ok(()),
    }
}

/// The directory of a file, and its name there.
fn parts_of(path: &Path) -> Result<(&Path, &OsStr)> {
    match (path.parent(), path.file_name()) {
        (Some(above), Some(name)) => Ok((above, name)),
        _ => bail!("{}: it is no path of a file", path.display()),
    }
}

/// Opens a directory of a file system in memory, to which no link leads.
fn open_dir(path: &Path) -> Result<OwnedFd> {
    let shown = || format!("open {}", path.display());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = fs::openat2(fs::CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS).context(shown)?;
    match fd::file_system(&dir)? {
        memory_fs::TMPFS => Ok(dir),
        _ => bail!("{}: no file system in memory", path.display()),
    }
}

/// See [`SharedFiles::take`]. The directory is locked, which no image is too full or too read-only for; or else a file in it.
fn lock(image: &Image) -> Result<Option<OwnedFd>> {
    let shown = || format!("lock {}", image.path.display());
    // Opened anew: the lock is that of the open file.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = fs::openat(&image.dir, ".", flags, Mode::empty()).context(shown)?;
    if lock_open(&dir, image)? {
        return Ok(Some(dir));
    }
    match open_made(image, OFlags::RDWR).context(shown)? {
        Some(file) if lock_open(&file, image)? => Ok(Some(file)),
        _ => Ok(None),
    }
}

/// False on a file system that has no locks, or none for what cannot be written.
fn lock_open(file: &OwnedFd, image: &Image) -> Result<bool> {
    let end = Instant::now() + LOCKED_WITHIN;
    loop {
        match fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) if Instant::now() < end => std::thread::sleep(Duration::from_millis(20)),
            Err(Errno::WOULDBLOCK) => {
                return Err(err!("{}: it is being restored", image.path.display()).hint("try again"));
            }
            Err(
                Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS | Errno::BADF | Errno::INVAL | Errno::ISDIR,
            ) => {
                return Ok(false);
            }
            Err(e) => return Err(e).context(|| format!("lock {}", image.path.display())),
        }
    }
}

/// What restores of `image` have made. A line that one has not written whole says nothing.
fn made_of(image: &Image) -> Result<Vec<(PathBuf, Identity)>> {
    Ok(made_in(&image.file(MADE)?.unwrap_or_default()))
}

fn made_in(text: &[u8]) -> Vec<(PathBuf, Identity)> {
    text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

/// Notes that this restore makes a file. Where an image cannot be written, the next restore finds another file than the program's.
fn note_made(image: &Image, path: &Path, identity: &Identity) -> Result<()> {
    write_made(image, &lines_of(&[(path.to_owned(), identity.clone())])?)
}

/// What stands in [`MADE`] of these.
fn lines_of(known: &[(PathBuf, Identity)]) -> Result<Vec<u8>> {
    let mut lines = Vec::new();
    for one in known {
        lines.extend(serde_json::to_vec(one).map_err(|e| err!("{e}"))?);
        lines.push(b'\n');
    }
    Ok(lines)
}

fn write_made(image: &Image, lines: &[u8]) -> Result<()> {
    let shown = || format!("write {}/{MADE}", image.path.display());
    let Some(file) = open_made(image, OFlags::WRONLY | OFlags::APPEND).context(shown)? else { return Ok(()) };
    match fd::write_all(&file, lines) {
        Err(e) if e.is(libc::ENOSPC) || e.is(libc::EDQUOT) => Ok(()),
        written => written.context(shown),
    }
}

/// Opens the file that says what restores have made, which the first of them makes. `None` where the image cannot be written.
fn open_made(image: &Image, how: OFlags) -> Result<Option<OwnedFd>, Errno> {
    let flags = OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | how;
    match fs::openat(&image.dir, MADE, flags, Mode::RUSR | Mode::WUSR) {
        Err(Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::NOSPC | Errno::DQUOT) => Ok(None),
        file => file.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_copied_whole_is_not_copied_twice() {
        let file = |device: &str| [device, "7", "/x"].map(str::to_owned);
        let files = BTreeSet::from([file("00:1a"), file("00:1b")]);
        let mount = |point: &str, device: &[u8]| {
            let mut mount = rt_sys::mount::table().unwrap().remove(0);
            (mount.point, mount.device) = (PathBuf::from(point), device.to_owned());
            mount
        };
        let mounts = [mount("/tmp", b"0:26"), mount("/dev/shm", b"0:27")];
        assert_eq!(apart(&files, &[PathBuf::from("/tmp")], &mounts), BTreeSet::from([file("00:1b")]));
        assert_eq!(apart(&files, &[], &mounts), files);
    }

    #[test]
    fn a_line_that_is_not_whole_says_nothing() {
        let identity = |inode| Identity { boot: "b".to_owned(), device: 1, inode, born: Some((2, 3)) };
        let made: Vec<_> = [7, 8].map(|inode| (PathBuf::from("/dev/shm/x"), identity(inode))).into();
        let lines: Vec<_> = made.iter().map(|one| serde_json::to_string(one).unwrap()).collect();
        assert_eq!(made_in(lines.join("\n").as_bytes()), made);
        assert_eq!(made_in(format!("{}\n{}", &lines[0][..9], lines[1]).as_bytes()), made[1..]);
        assert_eq!(made_in(b""), []);
    }
}
