//! Names of files of which the kernel tells the inodes alone.

use super::inside::Inside;
use rt_sys::error::{Context, Result};
use rt_sys::mount::Mounted;
use rt_sys::{bail, err, fd};
use rustix::fs::{self, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How many names are read.
const MOST: usize = 200_000;

/// A name of each of these inodes of the file system in memory with that device, as a table of mounts has it, that has one which the
/// container sees.
///
/// # Errors
/// A directory cannot be read in which `users` may make names.
pub(super) fn find(
    inside: &Inside<'_>,
    device: &[u8],
    inodes: &BTreeSet<u64>,
    users: &BTreeSet<u32>,
) -> Result<BTreeMap<u64, PathBuf>> {
    let is_of = |mount: &&Mounted| mount.device == device;
    let mut todo: Vec<PathBuf> =
        inside.mounts.iter().filter(is_of).map(|mount| mount.point.clone()).collect();
    let (mut found, mut read) = (BTreeMap::new(), 0);
    while let Some(dir) = todo.pop() {
        for (name, inode, is_directory) in entries(inside, &dir, device, users)? {
            read += 1;
            if read > MOST {
                return Err(err!("{}: it has too many files to look for one", dir.display()));
            }
            let path = dir.join(OsStr::from_bytes(&name));
            if is_directory {
                todo.push(path);
            } else if inodes.contains(&inode)
                && let Some(there) = inside.find(&path)?
                && is_on(&fd::stat(&there)?, device)
            {
                found.insert(inode, path);
            }
        }
    }
    Ok(found)
}

/// What is in the directory `path`: names, inodes, and whether they are directories. Nothing where it is on another file system.
fn entries(
    inside: &Inside<'_>,
    path: &Path,
    device: &[u8],
    users: &BTreeSet<u32>,
) -> Result<Vec<(Vec<u8>, u64, bool)>> {
    let shown = || format!("look through {}", path.display());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::IN_ROOT;
    let dir = match fs::openat2(&inside.root, path, flags, Mode::empty(), resolve) {
        // It is removed by now, or a file is mounted there.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(Vec::new()),
        Err(Errno::ACCESS) => match inside.find(path) {
            Ok(Some(dir)) if may_be_written(&fd::stat(&dir)?, users) => {
                bail!("{}: its mode does not let this user do so", shown())
            }
            Err(e) if !e.is(libc::EACCES) => return Err(e),
            _ => return Ok(Vec::new()),
        },
        dir => dir.context(shown)?,
    };
    if !is_on(&fd::stat(&dir)?, device) {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for entry in fs::Dir::read_from(&dir).context(shown)? {
        let entry = entry.context(shown)?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            // A file system in memory says of all what they are.
            found.push((name.to_vec(), entry.ino(), entry.file_type() == FileType::Directory));
        }
    }
    Ok(found)
}

/// True for a directory in which `users` may make names.
fn may_be_written(dir: &fs::Stat, users: &BTreeSet<u32>) -> bool {
    users.contains(&dir.st_uid) || dir.st_mode & 0o022 != 0
}

fn is_on(stat: &fs::Stat, device: &[u8]) -> bool {
    format!("{}:{}", fs::major(stat.st_dev), fs::minor(stat.st_dev)).as_bytes() == device
}
