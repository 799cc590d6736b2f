//! What all parts of `rt` build on: errors, log lines, the system calls that no safe library covers with small
//! sequences around them, and the container's root ([`rootfs`]), inside which hostile paths are resolved.
//!
//! This crate and the border of Slurm's plugin (spank/src/ffi.rs) are the only places with `unsafe`. A system call that
//! rustix offers as a safe function is called from rustix where it is needed. Here are the calls that rustix lacks, and
//! those whose safety needs an argument about memory.
//! All of it assumes a single-threaded process, as the runtime is.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(unsafe_code, reason = "this is where system calls are made")]

pub mod account;
pub mod alloc;
pub mod aside;
pub mod caller;
pub mod caps;
pub mod cgroup;
pub mod disk;
pub mod error;
pub mod fd;
pub mod fuse;
pub mod inject;
pub mod log;
pub mod look;
pub mod mount;
pub mod nearest;
pub mod net;
mod netlink;
pub mod nfs4_acl;
pub mod notify;
pub mod ns;
pub mod origin;
pub mod output;
pub mod owned;
pub mod owner;
pub mod process;
pub mod rootfs;
pub mod seccomp;
pub mod signal;
pub mod start;
pub mod time;
pub mod trace;
pub mod tree;
pub mod tty;
pub mod unique;

use crate::error::{Error, Result};

/// The kernel's release (uname(2)), such as `6.1.0-13-amd64`.
pub fn kernel_release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// The first two numbers of a kernel's `release`, of which the second is 0 where there is none; none where it begins with no number.
pub fn kernel_numbers(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|n| n.parse().ok());
    Some((numbers.next()?, numbers.next().unwrap_or(0)))
}

/// Turns the C convention (-1 and errno) into a result.
fn check(ret: libc::c_long) -> Result<libc::c_long> {
    if ret == -1 { Err(Error::from(std::io::Error::last_os_error())) } else { Ok(ret) }
}
