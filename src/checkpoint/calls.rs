//! System calls that wait, and that a checkpoint has fail with EINTR, which programs without signal handlers do not expect.
//!
//! criu writes that failure into the image and into the program where the kernel would have gone on by a note of its own
//! (restart_syscall(2)); some calls the kernel itself ends so when a program is stopped (signal(7)). So the registers of the threads, which are
//! stopped, say before criu looks at them that the call is to be made anew, as the kernel has them say of others. What waits until a
//! time does so until then, and what waits for a time does so for all of it: its arguments stay, as programs expect that they do. This is
//! for x86-64. On aarch64 the kernel has the registers made for the call once more before a tracer sees them.

use super::processes::{self, Status, Tree};
use super::stops::{STOPS_WITHIN, stops_before};
use rt_sys::error::Result;
use rt_sys::inject::Held;
use std::time::Instant;

/// Calls that have done nothing when they return EINTR. The numbers are those of x86-64.
const ANEW: [u64; 24] = [
    0,   // read
    1,   // write
    7,   // poll
    19,  // readv
    20,  // writev
    35,  // nanosleep
    43,  // accept
    44,  // sendto
    45,  // recvfrom
    46,  // sendmsg
    47,  // recvmsg
    65,  // semop
    128, // rt_sigtimedwait
    202, // futex
    208, // io_getevents
    220, // semtimedop
    230, // clock_nanosleep
    232, // epoll_wait
    281, // epoll_pwait
    288, // accept4
    299, // recvmmsg
    307, // sendmmsg
    333, // io_pgetevents
    441, // epoll_pwait2
];

/// Makes them anew in the threads of a tree, as far as they are stopped.
///
/// # Errors
/// That of the first thread of which it could not be said. All others have been looked at.
pub(super) fn make_anew(tree: &Tree) -> Result<()> {
    let end = Instant::now() + STOPS_WITHIN;
    let mut made = Ok(());
    for process in &tree.processes {
        for thread in processes::threads(process.pid)? {
            made = made.and(make_thread_anew(process.pid, thread, end));
        }
    }
    made
}

fn make_thread_anew(pid: i32, thread: i32, end: Instant) -> Result<()> {
    // To hold one that is not stopped would itself interrupt it.
    if !stops_before(pid, thread, end)? {
        return Ok(());
    }
    let held = Held::begin(thread)?;
    match held.interrupted()? {
        Some(number) if ANEW.contains(&number) && !has_signal(pid, &held)? => held.make_again(number),
        _ => Ok(()),
    }
}

/// Whether a signal waits for the thread whose handler ends the call, as ever: criu would have the call made anew behind it.
fn has_signal(pid: i32, held: &Held) -> Result<bool> {
    let Some(status) = Status::of_thread(pid, held.id)? else { return Ok(false) };
    let waiting = status.mask("SigPnd")? | status.mask("ShdPnd")?;
    Ok(waiting & status.mask("SigCgt")? & !held.blocked()? != 0)
}
