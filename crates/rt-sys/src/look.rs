//! What a path leads to.
//!
//! The functions of these names in [`std::path::Path`] say "no" whatever the kernel says, so that a file that cannot be looked
//! at passes for one that is not there. clippy.toml refuses them.
//!
//! "No" is ENOENT, ENOTDIR and ENAMETOOLONG, which is said of what no file can be called. Every other error of stat(2) is
//! an error that names the path.

use crate::error::{Context, Error, Result};
use crate::{fd, mount};
use rustix::fd::AsFd;
use rustix::fs::{self, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What kind of file `path` leads to, links followed; `None` where there is none.
///
/// # Errors
/// The kernel does not say.
pub fn kind(path: impl AsRef<Path>) -> Result<Option<FileType>> {
    answer(path.as_ref(), fs::stat(path.as_ref()))
}

/// As [`kind`], and of the root of a FUSE file system of another user's, who need not answer, nothing is asked.
///
/// # Errors
/// The kernel does not say; EXDEV for such a root.
pub fn kind_unserved(path: impl AsRef<Path>) -> Result<Option<FileType>> {
    let path = path.as_ref();
    let file = match fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        Ok(file) => file,
        Err(e) => return answer(path, Err(e)),
    };
    match mount::others_server_at(&file)? {
        Some(_) => Err(fd::unserved_error(Errno::XDEV)).context(|| format!("look at {}", path.display())),
        None => answer(path, fs::fstat(file)),
    }
}

/// True where `path` leads to a file of any kind, links followed.
///
/// # Errors
/// The kernel does not say.
pub fn exists(path: impl AsRef<Path>) -> Result<bool> {
    Ok(kind(path)?.is_some())
}

/// True where `path` leads to a directory, links followed.
///
/// # Errors
/// The kernel does not say.
pub fn is_dir(path: impl AsRef<Path>) -> Result<bool> {
    Ok(kind(path)? == Some(FileType::Directory))
}

/// True where `path` leads to a regular file, links followed.
///
/// # Errors
/// The kernel does not say.
pub fn is_file(path: impl AsRef<Path>) -> Result<bool> {
    Ok(kind(path)? == Some(FileType::RegularFile))
}

/// As [`is_file`], by [`kind_unserved`].
///
/// # Errors
/// Those of [`kind_unserved`].
pub fn is_file_unserved(path: impl AsRef<Path>) -> Result<bool> {
    Ok(kind_unserved(path)? == Some(FileType::RegularFile))
}

/// True where `path` itself is a symbolic link, also one to nothing.
///
/// # Errors
/// The kernel does not say.
pub fn is_link(path: impl AsRef<Path>) -> Result<bool> {
    Ok(answer(path.as_ref(), fs::lstat(path.as_ref()))? == Some(FileType::Symlink))
}

/// The first of `paths` that leads to a regular file. What may not be looked at is passed over, as execvp(3) does in PATH:
/// it is an error only where none of the others is a file.
///
/// # Errors
/// The kernel does not say.
pub fn first_file(paths: impl IntoIterator<Item = PathBuf>) -> Result<Option<PathBuf>> {
    let mut refused = None;
    for path in paths {
        match is_file(&path) {
            Ok(true) => return Ok(Some(path)),
            Ok(false) => {}
            Err(e) if e.is(libc::EACCES) => {
                refused.get_or_insert(e);
            }
            Err(e) => return Err(e),
        }
    }
    refused.map_or(Ok(None), Err)
}

/// The paths of what is in the directory `dir`, sorted; empty where there is no such directory. Unlike
/// [`std::fs::read_dir`], it does not panic where close(2) fails.
///
/// # Errors
/// The kernel does not say.
pub fn entries(dir: impl AsRef<Path>) -> Result<Vec<PathBuf>> {
    let dir = dir.as_ref();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match fs::open(dir, flags, Mode::empty()).and_then(names) {
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(Vec::new()),
        names => {
            let mut names = names.context(|| format!("list {}", dir.display()))?;
            names.sort();
            Ok(names.iter().map(|name| dir.join(OsStr::from_bytes(name))).collect())
        }
    }
}

/// The names in an open directory, but for `.` and `..`.
///
/// # Errors
/// What the kernel says.
pub fn names(dir: impl AsFd) -> Result<Vec<Vec<u8>>, Errno> {
    let mut names = Vec::new();
    for entry in fs::Dir::read_from(dir)? {
        let name = entry?.file_name().to_bytes().to_owned();
        if name != b"." && name != b".." {
            names.push(name);
        }
    }
    Ok(names)
}

fn answer(path: &Path, found: Result<fs::Stat, Errno>) -> Result<Option<FileType>> {
    match found {
        Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG) => Ok(None),
        Err(e) => Err(Error::from(e)).context(|| format!("look at {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_means_no_is_no() {
        let own = std::env::current_exe().unwrap();
        assert!(is_file(&own).unwrap() && !is_dir(&own).unwrap() && !is_link(&own).unwrap());
        assert!(is_dir("/proc/self").unwrap() && is_link("/proc/self").unwrap());
        for none in ["/nowhere/x".to_owned(), own.join("x").display().to_string(), "x".repeat(300)] {
            assert_eq!(kind(&none).unwrap(), None, "{none}");
        }
        let dir = std::env::temp_dir().join(format!("rt-look-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let turns = dir.join("turns");
        std::os::unix::fs::symlink("turns", &turns).unwrap();
        let error = exists(&turns).unwrap_err();
        assert!(error.is(libc::ELOOP) && error.to_string().contains("turns"), "{error}");
        assert!(is_link(&turns).unwrap());
        assert!(first_file([dir.clone(), turns.clone(), own.clone()]).unwrap_err().is(libc::ELOOP));
        assert_eq!(first_file([dir.clone(), own.clone(), turns]).unwrap(), Some(own));
        std::fs::remove_dir_all(dir).unwrap();
    }
}
