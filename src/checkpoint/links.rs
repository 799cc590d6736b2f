//! Keeps criu from following links.
//!
//! criu opens, makes, changes and removes files of a program by their paths, with all capabilities of the container's user namespace,
//! while others can exchange what is there: a look before it or after it comes too early or too late. The kernel had resolved these
//! paths when the image was written, so that they need no link. Until `rt` has looked at what was restored, no mount of the
//! container follows any (MOUNT_ATTR_NOSYMFOLLOW, mount_setattr(2), Linux 5.14) but procfs, which criu needs, and to which
//! nothing leads from elsewhere then.

use rt_sys::disk;
use rt_sys::error::{Context, Result};
use rt_sys::mount::{self, ATTR_NOSYMFOLLOW, Attr, Mounted, Recursive};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;

/// That no link is followed, until [`NoLinks::end`].
#[derive(Debug)]
pub(super) struct NoLinks {
    /// The mounts as they were.
    before: Vec<Mounted>,
}

impl NoLinks {
    /// In this process's mount namespace, which is the container's.
    ///
    /// # Errors
    /// The kernel refuses it; before Linux 5.14 it knows no such mount.
    pub(super) fn begin() -> Result<NoLinks> {
        let before = mount::table()?;
        set("/", Attr::setting(ATTR_NOSYMFOLLOW))?;
        set("/proc", Attr::clearing(ATTR_NOSYMFOLLOW))?;
        Ok(NoLinks { before })
    }

    /// The mounts are as before. No path leads to one that another covers: where such a one followed no links, none is changed that is
    /// covered, and others that are follow none any more.
    pub(super) fn end(&self) -> Result<()> {
        let others = self.before.iter().filter(|mount| !mount.follows_links).map(open_mount);
        let others = others.collect::<Result<Vec<_>>>()?;
        if others.iter().any(Option::is_none) {
            let followed = self.before.iter().filter(|mount| mount.follows_links);
            return followed.filter_map(|mount| open_mount(mount).transpose()).try_for_each(|opened| {
                let again = mount::set_attr(opened?, Recursive::No, Attr::clearing(ATTR_NOSYMFOLLOW));
                again.context(|| "have a mount follow links again")
            });
        }
        set("/", Attr::clearing(ATTR_NOSYMFOLLOW))?;
        others.into_iter().flatten().try_for_each(|opened| {
            let again = mount::set_attr(opened, Recursive::No, Attr::setting(ATTR_NOSYMFOLLOW));
            again.context(|| "have a mount follow no links again")
        })
    }
}

/// Opens a mount, to which its path leads; `None` where that leads to another one.
fn open_mount(mount: &Mounted) -> Result<Option<OwnedFd>> {
    match fs::open(&mount.point, PLACE, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => Ok(None),
        opened => {
            let opened = opened.context(|| format!("open {}", mount.point.display()))?;
            Ok(Some(opened).filter(|opened| disk::mount_id(opened.as_fd()) == Some(mount.id)))
        }
    }
}

const PLACE: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Changes the mount at `path` and all below.
fn set(path: &str, attr: Attr) -> Result<()> {
    let opened = fs::open(path, PLACE, Mode::empty()).context(|| format!("open {path}"))?;
    let changed = mount::set_attr(opened, Recursive::Yes, attr);
    changed.context(|| format!("say whether the mounts below {path} follow links"))
}
