//! What nobody may remove while it is saved. Slurm empties a job's own /tmp as soon as the job ends (job_container/tmpfs), also under
//! a save that reads a layer there: what that has read is no image of the container.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rt_sys::error::{Context, Result};
use rt_sys::{disk, err};
use rustix::fs::FileType;

/// A directory, and how many entries were in it and below at first.
pub(crate) struct Whole {
    path: PathBuf,
    dir: OwnedFd,
    entries: u64,
}

impl Whole {
    /// Counts what is in `path`.
    pub(crate) fn of(path: &Path) -> Result<Whole> {
        let dir = disk::open_root(path)?;
        let entries = count(dir.as_fd()).context(|| format!("look at {}", path.display()))?;
        Ok(Whole { path: path.to_owned(), dir, entries })
    }

    /// # Errors
    /// There are fewer by now.
    pub(crate) fn check(&self) -> Result<()> {
        let entries = count(self.dir.as_fd()).context(|| format!("look at {}", self.path.display()))?;
        match entries < self.entries {
            true => Err(err!("{}: somebody has removed files in it meanwhile", self.path.display())),
            false => Ok(()),
        }
    }
}

fn count(top: BorrowedFd) -> Result<u64> {
    let level = |dir: OwnedFd| disk::entries(dir.as_fd()).map(|names| (dir, names));
    let mut count = 0;
    let mut levels = vec![level(disk::open_dir_again(top)?)?];
    while let Some((dir, names)) = levels.last_mut() {
        let Some((name, kind)) = names.pop() else {
            levels.pop();
            continue;
        };
        count += 1;
        if kind != FileType::Directory {
            continue;
        }
        match disk::open_dir(dir.as_fd(), &name).and_then(level) {
            // ENOENT: it was removed. EACCES: its owner may not list it, now and later.
            Err(e) if e.is(libc::ENOENT) || e.is(libc::EACCES) => {}
            found => levels.push(found?),
        }
    }
    Ok(count)
}
