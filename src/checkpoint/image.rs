//! The directory of an image: memory of programs, and with it keys and passwords. It is the caller's alone (0700), its files
//! are 0600 by the umask, no link is followed, and a whole image is replaced by a whole one in one rename(2).

use rt_sys::error::{Context, Result};
use rt_sys::{bail, err, fd, tree};
use rustix::fd::OwnedFd;
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// An open image.
#[derive(Debug)]
pub(super) struct Image {
    /// Where it is, absolute.
    pub path: PathBuf,
    /// Its directory.
    pub dir: OwnedFd,
}

/// An image that is being written, under another name than its own. It is removed where it is not finished.
#[derive(Debug)]
pub(super) struct Draft {
    /// What is written.
    pub image: Image,
    /// The name that it will have.
    target: PathBuf,
    finished: bool,
}

impl Image {
    /// Opens an image to restore it.
    ///
    /// # Errors
    /// Somebody else owns it or can write to it, or there is a link or something of somebody else's in it.
    pub(super) fn open(path: &Path) -> Result<Image> {
        let path = fd::absolute(path)?;
        let shown = || format!("image {}", path.display());
        let dir = fs::open(&path, DIRECTORY, Mode::empty()).context(shown)?;
        check(&dir, &path)?;
        let image = Image { path, dir };
        for name in rt_sys::look::names(&image.dir).context(|| format!("list {}", image.path.display()))? {
            let stat = fs::statat(&image.dir, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW);
            let stat = stat.context(|| format!("look at image {}", image.path.display()))?;
            let name = String::from_utf8_lossy(&name).into_owned();
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile | FileType::Directory if stat.st_uid == rt_sys::caller::uid() => {}
                FileType::RegularFile | FileType::Directory => {
                    bail!("image {}: {name} is another user's", image.path.display())
                }
                _ => bail!("image {}: {name} is neither a file nor a directory", image.path.display()),
            }
        }
        Ok(image)
    }
}

impl Draft {
    /// Begins an image that will be at `target`; the directory above it is there. What a call that was killed has left is
    /// removed.
    pub(super) fn begin(target: &Path) -> Result<Draft> {
        let target = fd::absolute(target)?;
        let path = beside(&target, "new")?;
        let shown = || format!("make {}", path.display());
        if let Some(above) = target.parent() {
            make_all(above)?;
        }
        tree::remove_path(&path)?;
        fs::mkdir(&path, Mode::RWXU).context(shown)?;
        let dir = fs::open(&path, DIRECTORY, Mode::empty()).context(shown)?;
        // An access control list of the directory above may have given more than the mode asks for.
        fs::fchmod(&dir, Mode::RWXU).context(shown)?;
        check(&dir, &path)?;
        Ok(Draft { image: Image { path, dir }, target, finished: false })
    }

    /// Puts it on the disk and then in its place. An image that is there goes only when this one is there.
    pub(super) fn finish(mut self) -> Result<()> {
        sync_all(&self.image.dir, &self.image.path)?;
        let path = &self.image.path;
        let shown = || format!("rename {} to {}", path.display(), self.target.display());
        match fs::renameat_with(fs::CWD, path, fs::CWD, &self.target, RenameFlags::EXCHANGE) {
            Ok(()) => tree::remove_path(path)?,
            Err(Errno::NOENT) => fs::rename(path, &self.target).context(shown)?,
            // A file system that exchanges nothing, as NFS. Between the two calls the old image has the other name, where
            // `Draft::last` finds it.
            Err(Errno::INVAL | Errno::NOSYS) => {
                let old = beside(&self.target, "old")?;
                tree::remove_path(&old)?;
                fs::rename(&self.target, &old).context(shown)?;
                fs::rename(path, &self.target).context(shown)?;
                tree::remove_path(&old)?;
            }
            Err(e) => return Err(e).context(shown),
        }
        self.finished = true;
        let above = self.target.parent().ok_or_else(|| err!("{}: no image", self.target.display()))?;
        sync_dir(above)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.finished
            && let Err(e) = tree::remove_path(&self.image.path)
        {
            log::warn!("{e}");
        }
    }
}

/// The whole image at `path`, or the one that has lost its place to one that did not come ([`Draft::finish`]).
pub(super) fn last(path: &Path) -> Result<Option<PathBuf>> {
    for path in [fd::absolute(path)?, beside(path, "old")?] {
        match fs::lstat(path.join(super::manifest::NAME)) {
            Ok(_) => return Ok(Some(path)),
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            Err(e) => return Err(e).context(|| format!("look at image {}", path.display())),
        }
    }
    Ok(None)
}

/// Removes the image at `path`, and what calls that were killed have left of it.
pub(super) fn forget(path: &Path) -> Result<()> {
    tree::remove_path(path)?;
    ["old", "new"].iter().try_for_each(|what| tree::remove_path(&beside(path, what)?))
}

/// The name of a directory that belongs to the image at `path`.
fn beside(path: &Path, what: &str) -> Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| err!("{}: an image has a name", path.display()))?;
    let mut own = std::ffi::OsString::from(".");
    own.push(name);
    own.push(format!(".{what}"));
    Ok(path.with_file_name(own))
}

fn check(dir: &OwnedFd, path: &Path) -> Result<()> {
    let stat = fd::stat(dir)?;
    if stat.st_uid != rt_sys::caller::uid() {
        bail!("image {}: it is another user's", path.display());
    }
    if stat.st_mode & 0o077 != 0 {
        return Err(err!("image {}: others may enter it", path.display())
            .hint(format!("it holds the memory of programs: chmod 700 {}", path.display())));
    }
    Ok(())
}

/// Makes a directory and those above it. What is there stays as it is.
fn make_all(path: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.context(|| format!("make {}", path.display()))
}

/// Has the kernel write every file and directory of an image, the outermost last.
fn sync_all(dir: &OwnedFd, path: &Path) -> Result<()> {
    let mut dirs = vec![path.to_owned()];
    let mut next = 0;
    while let Some(dir) = dirs.get(next).cloned() {
        next += 1;
        let entries = match rt_sys::look::entries(&dir) {
            // As in `sync_file`.
            Err(e) if e.is(libc::EACCES) => continue,
            entries => entries?,
        };
        for entry in entries {
            let kind = fs::lstat(&entry).context(|| format!("look at {}", entry.display()))?.st_mode;
            match FileType::from_raw_mode(kind) {
                FileType::Directory => dirs.push(entry),
                FileType::RegularFile => sync_file(&entry)?,
                // Their directory holds all that they are.
                _ => {}
            }
        }
    }
    dirs.iter().skip(1).rev().try_for_each(|dir| sync_dir(dir))?;
    fs::fsync(dir).context(|| format!("write {}", path.display()))
}

fn sync_file(path: &Path) -> Result<()> {
    let shown = || format!("write {}", path.display());
    match fs::open(path, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
        // The content of a file system in memory keeps its modes. A file that its owner may not read is synced by its
        // file system in its own time.
        Err(Errno::ACCESS) => Ok(()),
        file => fs::fsync(file.context(shown)?).context(shown),
    }
}

fn sync_dir(path: &Path) -> Result<()> {
    let shown = || format!("write {}", path.display());
    match fs::open(path, DIRECTORY, Mode::empty()) {
        Err(Errno::ACCESS) => Ok(()),
        dir => fs::fsync(dir.context(shown)?).context(shown),
    }
}
