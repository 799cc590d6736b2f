//! Whose the files are that the caller's one id has made.

use std::os::fd::AsFd;
use std::path::Path;

use crate::disk;
use crate::owner::{self, Owner};
use rt_sys::error::{Context, Result};
use rustix::fs::FileType;

/// What overlayfs sets on what it has copied from a layer below.
const COPIED: &[u8] = b"user.overlay.origin";

/// Records `owner` of what a program of that USER has made: the files and directories of an upper layer that come from no layer
/// below, and have no record.
pub(super) fn give_new(upper: &Path, owner: Owner) -> Result<()> {
    let root = disk::open_root(upper)?;
    let mut left = vec![disk::reopen_self(root.as_fd())?];
    while let Some(dir) = left.pop() {
        for (name, kind) in disk::entries(dir.as_fd())? {
            let shown = || disk::at(dir.as_fd(), &name);
            let file = match kind {
                FileType::Directory => disk::reopen_dir(dir.as_fd(), &name)?,
                FileType::RegularFile => disk::open_file(dir.as_fd(), &name)?,
                // The kernel keeps no attributes of others.
                _ => continue,
            };
            let known = disk::xattr(file.as_fd(), COPIED).context(shown)?.is_some()
                || owner::recorded(file.as_fd()).context(shown)?.is_some();
            if !known {
                owner::record(file.as_fd(), owner).context(shown)?;
            }
            if kind == FileType::Directory {
                left.push(file);
            }
        }
    }
    Ok(())
}
