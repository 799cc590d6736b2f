//! tmpcopyup: a new tmpfs is filled with what the image has at its place.
//!
//! How much is copied is bounded by the tmpfs, whose pages are charged to the caller's cgroup.

use super::new_fs::names_id;
use crate::container::plan::MountPlan;
use rt_sys::error::Result;
use rt_sys::fd;
use rt_sys::rootfs::Rootfs;
use rt_sys::tree::{self, Manner};
use rustix::fd::OwnedFd;
use rustix::fs::OFlags;
use rustix::io::Errno;

/// Fills a new tmpfs, which is still detached, with what the image has at its destination.
pub(super) fn fill(rootfs: &Rootfs<'_>, mount: &MountPlan, tmpfs: &OwnedFd) -> Result<()> {
    let dir = match rootfs.open(&mount.destination, OFlags::RDONLY | OFlags::DIRECTORY) {
        Ok(dir) => dir,
        Err(Errno::NOENT) => return Ok(()),
        Err(e) => return Err(e.into()),
    };
    tree::copy(&dir, tmpfs, Manner::default()).map_err(|e| {
        let full = e.is(libc::ENOSPC);
        let e = e.context("copy the image's directory");
        if full { e.hint("the tmpfs is too small for it: set size= and nr_inodes=") } else { e }
    })?;
    if !mount.options.data.iter().any(names_id) {
        fd::chown_like(tmpfs, &fd::stat(&dir)?);
    }
    Ok(())
}
