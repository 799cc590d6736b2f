//! /dev/fuse: the one request of it that is neither a read nor a write (fuse(4)).

use super::check;
use crate::error::Result;
use rustix::fd::{AsFd, AsRawFd};

/// `FUSE_DEV_IOC_CLONE` (linux/fuse.h): _IOR(229, 0, uint32_t).
pub const FUSE_DEV_IOC_CLONE: u32 = 0x8004_e500;

/// Makes `device`, a /dev/fuse that was just opened, a second descriptor of the mount that `session` serves: a request
/// that is read from one of them is answered there.
pub fn clone_session(device: impl AsFd, session: impl AsFd) -> Result<()> {
    let session = session.as_fd().as_raw_fd() as u32;
    // SAFETY: the request reads one u32.
    check(unsafe {
        libc::ioctl(device.as_fd().as_raw_fd(), FUSE_DEV_IOC_CLONE as _, &raw const session).into()
    })?;
    Ok(())
}
