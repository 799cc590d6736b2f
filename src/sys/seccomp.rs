//! Loading a compiled filter (seccomp(2)).

use super::check;
use crate::error::{Context, Result};
use crate::seccomp::Program;
use rustix::fd::{FromRawFd, OwnedFd};

const SET_MODE_FILTER: libc::c_uint = 1;
const FLAG_NEW_LISTENER: u32 = 1 << 3;
const FLAG_TSYNC: u32 = 1 << 0;
const FLAG_TSYNC_ESRCH: u32 = 1 << 4;

/// Puts `program` in force for this thread; returns the listener where the program notifies one.
///
/// Needs no_new_privs or CAP_SYS_ADMIN.
pub fn load(program: &Program) -> Result<Option<OwnedFd>> {
    let filter = libc::sock_fprog {
        len: program.instructions.len() as u16,
        filter: program.instructions.as_ptr().cast_mut().cast(),
    };
    let mut flags = program.flags;
    if program.notifies {
        flags |= FLAG_NEW_LISTENER;
        if flags & FLAG_TSYNC != 0 {
            flags |= FLAG_TSYNC_ESRCH;
        }
    }
    // SAFETY: Instruction has sock_filter's layout, and `filter` names as many as there are.
    let ret = check(unsafe { libc::syscall(libc::SYS_seccomp, SET_MODE_FILTER, flags, &raw const filter) })
        .context(|| "load the seccomp filter")?;
    if !program.notifies {
        return Ok(None);
    }
    // SAFETY: with NEW_LISTENER the kernel returns a new descriptor.
    Ok(Some(unsafe { OwnedFd::from_raw_fd(ret as i32) }))
}
