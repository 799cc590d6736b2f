//! Keeps criu from following links.
//!
//! criu opens, makes, changes and removes files of a program by their paths, with all capabilities of the container's user namespace,
//! while others can exchange what is there: a look before it or after it comes too early or too late. The kernel had resolved these
//! paths when the image was written, so that they need no link. Until `rt` has looked at what was restored, no mount of the
//! container follows any (MOUNT_ATTR_NOSYMFOLLOW, mount_setattr(2), Linux 5.14) but procfs, which criu needs, and to which
//! nothing leads from elsewhere then.

use rt_sys::error::{Context, Result};
use rt_sys::mount::{self, ATTR_NOSYMFOLLOW, Attr, Recursive};
use rustix::fd::OwnedFd;
use rustix::fs::{self, Mode, OFlags};
use std::path::{Path, PathBuf};

/// That no link is followed, until [`NoLinks::end`].
#[derive(Debug)]
pub(super) struct NoLinks {
    /// The mounts that follow none anyway.
    others: Vec<PathBuf>,
}

impl NoLinks {
    /// In this process's mount namespace, which is the container's.
    ///
    /// # Errors
    /// The kernel refuses it; before Linux 5.14 it knows no such mount.
    pub(super) fn begin() -> Result<NoLinks> {
        let known = mount::table()?.into_iter().filter(|mounted| !mounted.follows_links);
        let others = known.map(|mounted| mounted.point).collect();
        set("/", Attr::setting(ATTR_NOSYMFOLLOW))?;
        set("/proc", Attr::clearing(ATTR_NOSYMFOLLOW))?;
        Ok(NoLinks { others })
    }

    /// The mounts are as before.
    pub(super) fn end(&self) -> Result<()> {
        set("/", Attr::clearing(ATTR_NOSYMFOLLOW))?;
        for point in &self.others {
            let again = mount::set_attr(open(point)?, Recursive::No, Attr::setting(ATTR_NOSYMFOLLOW));
            again.context(|| format!("have {} follow no links again", point.display()))?;
        }
        Ok(())
    }
}

/// Changes the mount at `path` and all below.
fn set(path: &str, attr: Attr) -> Result<()> {
    let changed = mount::set_attr(open(Path::new(path))?, Recursive::Yes, attr);
    changed.context(|| format!("say whether the mounts below {path} follow links"))
}

fn open(path: &Path) -> Result<OwnedFd> {
    let opened = fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
    opened.context(|| format!("open {}", path.display()))
}
