//! Loading a compiled filter (seccomp(2)).

use super::check;
use crate::error::{Context, Result};
use rustix::fd::{FromRawFd, OwnedFd};

const SET_MODE_FILTER: libc::c_uint = 1;
const FLAG_NEW_LISTENER: u32 = 1 << 3;
const FLAG_TSYNC: u32 = 1 << 0;
const FLAG_TSYNC_ESRCH: u32 = 1 << 4;
const FLAG_WAIT_KILLABLE_RECV: u32 = 1 << 5;

/// A filter as the kernel takes it.
#[derive(Debug, Clone)]
pub struct Filter {
    /// The BPF program, at most BPF_MAXINSNS (4096) instructions.
    pub instructions: Vec<libc::sock_filter>,
    /// `SECCOMP_FILTER_FLAG_*`.
    pub flags: u32,
    /// True where the program asks a listener (SECCOMP_RET_USER_NOTIF).
    pub notifies: bool,
}

/// Puts `filter` in force for this thread; returns the listener where the program notifies one.
///
/// Needs no_new_privs or CAP_SYS_ADMIN.
pub fn load(filter: &Filter) -> Result<Option<OwnedFd>> {
    load_with(filter, 0)
}

/// Puts `filter` in force for this thread, with a supervisor of the runtime's as its listener: once that has a call, only a signal
/// that kills interrupts it, so no call is made again because of another signal. Before Linux 5.19 some are, which give the same
/// once more.
pub fn load_supervised(filter: &Filter) -> Result<Option<OwnedFd>> {
    match load_with(filter, FLAG_WAIT_KILLABLE_RECV) {
        Err(e) if e.is(libc::EINVAL) => load_with(filter, 0),
        loaded => loaded,
    }
}

fn load_with(filter: &Filter, more: u32) -> Result<Option<OwnedFd>> {
    let program = libc::sock_fprog {
        len: filter.instructions.len() as u16,
        filter: filter.instructions.as_ptr().cast_mut(),
    };
    let mut flags = filter.flags | more;
    if filter.notifies {
        flags |= FLAG_NEW_LISTENER;
        if flags & FLAG_TSYNC != 0 {
            flags |= FLAG_TSYNC_ESRCH;
        }
    }
    // SAFETY: `program` names as many instructions as there are.
    let ret = check(unsafe { libc::syscall(libc::SYS_seccomp, SET_MODE_FILTER, flags, &raw const program) })
        .context(|| "load the seccomp filter")?;
    if !filter.notifies {
        return Ok(None);
    }
    // SAFETY: with NEW_LISTENER the kernel returns a new descriptor.
    Ok(Some(unsafe { OwnedFd::from_raw_fd(ret as i32) }))
}
