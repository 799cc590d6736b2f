//! Records of owners that the caller's one id cannot give a file ([`rt_sys::owner`]): builds and pulls write them, and a layer that
//! is written has the owners.

use std::os::fd::{AsFd, BorrowedFd};

use rt_sys::bail;
use rt_sys::disk;
use rt_sys::error::{Context, Result};
use rt_sys::fd;
use rt_sys::owner::{BareRecord, Device, OWNER_RECORD, OwnerRecord};

/// Who a file belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl Owner {
    /// The owner of what has no record.
    pub const ROOT: Owner = Owner { uid: 0, gid: 0 };

    /// The owner that a tar header says; root where its numbers are none of this kernel's.
    pub fn of_header(uid: u64, gid: u64) -> Owner {
        let id = |id: u64| u32::try_from(id).ok().filter(|id| *id != u32::MAX);
        match (id(uid), id(gid)) {
            (Some(uid), Some(gid)) => Owner { uid, gid },
            _ => Owner::ROOT,
        }
    }
}

/// Records that an open file or directory, which has no record, belongs to `owner`.
///
/// # Errors
/// Its file system keeps no attributes of users.
pub fn record(file: BorrowedFd, owner: Owner) -> Result<()> {
    if !record_if_kept(file, owner, None)? {
        bail!("{}: its file system cannot keep a record of its owner", fd::shown(file));
    }
    Ok(())
}

/// Records that an open file or directory, which may have a record of another owner, belongs to `owner`.
///
/// # Errors
/// As of [`record`].
pub fn replace(file: BorrowedFd, owner: Owner) -> Result<()> {
    disk::remove_xattr(file, OWNER_RECORD.as_bytes())?;
    record(file, owner)
}

/// Records that an open file or directory, which has no record, belongs to `owner`; with `device`, that the empty file stands for
/// that device. False where its file system keeps no attributes of users.
pub fn record_if_kept(file: BorrowedFd, owner: Owner, device: Option<Device>) -> Result<bool> {
    record_of_mode(file, owner, disk::mode(file)?, device)
}

/// As [`record_if_kept`], of what gets the permissions `mode` later. `rt` takes the owner alone from a record; fuse-overlayfs and podman
/// take the mode, too.
pub fn record_of_mode(file: BorrowedFd, owner: Owner, mode: u32, device: Option<Device>) -> Result<bool> {
    if owner == Owner::ROOT && device.is_none() {
        return Ok(true);
    }
    let record = OwnerRecord { uid: owner.uid, gid: owner.gid, mode: mode & 0o7777, device };
    disk::set_xattr(file, OWNER_RECORD.as_bytes(), record.to_string().as_bytes())
}

/// Records that a link, pipe or socket in `dir`, which is new, belongs to `owner`. False where its file system keeps no record of it.
///
/// # Errors
/// It cannot be opened, or the kernel refuses for another reason.
pub fn record_bare(dir: BorrowedFd, name: &[u8], owner: Owner) -> Result<bool> {
    match owner {
        Owner::ROOT => Ok(true),
        owner => record_bare_of(disk::open_any(dir, name)?.as_fd(), owner),
    }
}

/// Records of a link, pipe or socket, opened by O_PATH, that it belongs to `owner`, also where that is root.
///
/// # Errors
/// As of [`record_bare`].
pub fn record_bare_of(any: BorrowedFd, owner: Owner) -> Result<bool> {
    let record = BareRecord { uid: owner.uid, gid: owner.gid };
    record.write(fd::link(any)).context(|| format!("record the owner of {}", fd::shown(any)))
}

/// The owner that is recorded of a link, pipe or socket, opened by O_PATH.
///
/// # Errors
/// As of getxattr(2).
pub fn recorded_bare(any: BorrowedFd) -> Result<Option<Owner>> {
    let record =
        BareRecord::read(fd::link(any)).context(|| format!("read the owner of {}", fd::shown(any)))?;
    Ok(record.map(|BareRecord { uid, gid }| Owner { uid, gid }))
}

/// The owner that is recorded of an open file.
pub fn recorded(file: BorrowedFd) -> Result<Option<Owner>> {
    let record = disk::short_xattr(file, OWNER_RECORD.as_bytes())?;
    let record = record.and_then(|value| OwnerRecord::parse(&value));
    Ok(record.map(|record| Owner { uid: record.uid, gid: record.gid }))
}
