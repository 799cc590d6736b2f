//! Loading a compiled filter (seccomp(2)).

use super::check;
use crate::error::{Context, Result};
use rustix::fd::{FromRawFd, OwnedFd};

const SET_MODE_FILTER: libc::c_uint = 1;
const FLAG_NEW_LISTENER: u32 = 1 << 3;
const FLAG_TSYNC: u32 = 1 << 0;
const FLAG_TSYNC_ESRCH: u32 = 1 << 4;
const FLAG_WAIT_KILLABLE_RECV: u32 = 1 << 5;

/// `AUDIT_ARCH_*` of this machine (linux/audit.h); 0 where `rt` knows no number of a system call.
#[cfg(target_arch = "x86_64")]
pub const NATIVE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
pub const NATIVE: u32 = 0xc000_00b7;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub const NATIVE: u32 = 0;

/// What a filter answers to a system call (linux/seccomp.h), as far as it is told apart here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The kernel does it.
    Done,
    /// It returns this error number, and does nothing; 0 is success.
    Failed(u16),
    /// It ends the thread, or asks somebody else.
    Other,
}

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

impl Filter {
    /// What it answers to a native call. `None` for a program with instructions that the compiler of filters does not make.
    pub fn answer(&self, number: u32, arguments: [u64; 6]) -> Option<Answer> {
        const ERRNO: u32 = 0x0005_0000;
        const LOG: u32 = 0x7ffc_0000;
        const ALLOW: u32 = 0x7fff_0000;
        let returned = self.run(&data(number, arguments))?;
        Some(match returned & 0xffff_0000 {
            ALLOW | LOG => Answer::Done,
            ERRNO => Answer::Failed(returned as u16),
            _ => Answer::Other,
        })
    }

    /// What the program returns for `data`.
    fn run(&self, data: &[u8]) -> Option<u32> {
        // linux/bpf_common.h: load a word, and by a constant; jump, and where it is equal, greater, at least, or has bits in common; return.
        const LOAD: u16 = 0x20;
        const AND: u16 = 0x54;
        const JUMP: u16 = 0x05;
        const EQUAL: u16 = 0x15;
        const GREATER: u16 = 0x25;
        const AT_LEAST: u16 = 0x35;
        const ANY_OF: u16 = 0x45;
        const RETURN: u16 = 0x06;
        let (mut word, mut at) = (0u32, 0usize);
        loop {
            let instruction = self.instructions.get(at)?;
            let k = instruction.k;
            let branch = |holds: bool| usize::from(if holds { instruction.jt } else { instruction.jf });
            // A program only ever jumps ahead, and so comes to its end.
            at += 1;
            match instruction.code {
                LOAD => word = u32::from_ne_bytes(*data.get(k as usize..)?.first_chunk()?),
                AND => word &= k,
                JUMP => at += k as usize,
                EQUAL => at += branch(word == k),
                GREATER => at += branch(word > k),
                AT_LEAST => at += branch(word >= k),
                ANY_OF => at += branch(word & k != 0),
                RETURN => return Some(k),
                _ => return None,
            }
        }
    }
}

/// `struct seccomp_data` of a native call.
fn data(number: u32, arguments: [u64; 6]) -> Vec<u8> {
    let address = 0u64;
    let mut data = [number.to_ne_bytes(), NATIVE.to_ne_bytes()].concat();
    data.extend([address].into_iter().chain(arguments).flat_map(u64::to_ne_bytes));
    data
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
