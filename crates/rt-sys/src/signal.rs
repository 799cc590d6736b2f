//! Signals: what a new program starts with, and receiving them in order.

use super::check;
use crate::error::Result;
use rustix::fd::{AsFd, FromRawFd, OwnedFd};

/// The highest signal number on Linux.
pub const MAX: i32 = 64;

fn full_set() -> libc::sigset_t {
    // SAFETY: sigfillset initialises the set it is given.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigfillset(&raw mut set);
        set
    }
}

fn set_of(signals: impl Iterator<Item = i32>) -> libc::sigset_t {
    // SAFETY: sigemptyset initialises the set, which lives over the calls.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, signal);
        }
        set
    }
}

/// Gives the `ignored` signals their default disposition and blocks none, as a new program expects. execve(2) resets
/// the signals that have a handler, but not those that are ignored or blocked.
pub fn reset(ignored: u64) {
    // SAFETY: SIG_DFL is a valid handler for every signal; KILL, STOP and the C library's own are
    // refused, which does no harm. The empty set is initialised before use.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = libc::SIG_DFL;
        for signal in (1..=MAX).filter(|n| ignored & (1 << (n - 1)) != 0) {
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// Blocks every signal, so that [`take`] gets them in order and none ends this process, and makes sure that an ended
/// child can be waited for.
pub fn block_all() {
    let set = full_set();
    // SAFETY: both structures are initialised; null old values are allowed.
    unsafe {
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        // Where the caller has left SIGCHLD ignored, the kernel reaps children itself and wait(2) finds none.
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = libc::SIG_DFL;
        libc::sigaction(libc::SIGCHLD, &raw const action, std::ptr::null_mut());
    }
}

/// Blocks `signals`.
pub fn block(signals: &[i32]) {
    let set = set_of(signals.iter().copied());
    // SAFETY: the set is initialised; a null old set is allowed.
    unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
}

/// A signal that has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// Its number.
    pub number: i32,
    /// The kernel has sent it, as for a key of the terminal: to all processes of the foreground's group.
    pub by_kernel: bool,
}

/// Has SIGALRM come after `seconds` (alarm(2)); 0 takes the last such order back.
pub fn alarm(seconds: u32) {
    // SAFETY: no pointer is passed.
    unsafe { libc::alarm(seconds) };
}

/// Waits for the next signal (sigwaitinfo(2)).
pub fn take() -> Taken {
    let set = full_set();
    loop {
        // SAFETY: `set` and `info` live over the call; zeros are a valid siginfo.
        let (number, info) = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            (libc::sigwaitinfo(&raw const set, &raw mut info), info)
        };
        if number > 0 {
            return Taken { number, by_kernel: info.si_code == libc::SI_KERNEL };
        }
    }
}

/// Blocks every signal and returns a descriptor that delivers them instead (signalfd(2)).
pub fn receive_all() -> Result<OwnedFd> {
    let set = full_set();
    // SAFETY: `set` is initialised; a null old set is allowed.
    unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
    // SAFETY: -1 asks for a new descriptor; `set` lives over the call.
    let fd =
        check(unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) }.into())?;
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// A descriptor that can be read as long as one of `signals`, which are blocked, waits to be taken (signalfd(2)). Those that this
/// process ignores, as under nohup(1), are left out: the kernel keeps them as well while they are blocked.
pub fn waiting(signals: &[i32]) -> Result<OwnedFd> {
    // SAFETY: zeros are a valid sigaction, which lives over the call.
    let is_heard = |signal: &i32| unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(*signal, std::ptr::null(), &raw mut action);
        action.sa_sigaction != libc::SIG_IGN
    };
    let set = set_of(signals.iter().copied().filter(is_heard));
    // SAFETY: -1 asks for a new descriptor; `set` lives over the call.
    let fd = check(unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC) }.into())?;
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// The next pending signal number behind a descriptor of [`receive_all`].
pub fn next(fd: impl AsFd) -> Result<Option<i32>> {
    // struct signalfd_siginfo is 128 bytes and begins with the number.
    let mut info = [0u8; 128];
    match rustix::io::read(fd, &mut info) {
        Ok(128) => Ok(Some(i32::from_ne_bytes([info[0], info[1], info[2], info[3]]))),
        Ok(_) => Ok(None),
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Sends `signal` to process `pid`; 0 only asks whether it could be sent.
pub fn send(pid: i32, signal: i32) -> Result<()> {
    // SAFETY: no pointer is passed.
    check(unsafe { libc::kill(pid, signal) }.into())?;
    Ok(())
}

/// Sends `signal` to the process behind `pidfd` (pidfd_send_signal(2)). False where it has ended and has been waited for.
pub fn send_pidfd(pidfd: impl AsFd, signal: i32) -> Result<bool> {
    use rustix::fd::AsRawFd;
    // SAFETY: a null siginfo asks for the one of kill(2).
    let sent = check(unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_fd().as_raw_fd(),
            signal,
            std::ptr::null::<libc::siginfo_t>(),
            0,
        )
    });
    match sent {
        Err(e) if e.is(libc::ESRCH) => Ok(false),
        sent => sent.map(|_| true),
    }
}

#[cfg(test)]
mod tests {
    use super::send_pidfd;
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    use std::process::Command;

    #[test]
    fn who_has_ended_gets_no_signal() {
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let pid = Pid::from_child(&child);
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        assert!(send_pidfd(&pidfd, libc::SIGKILL).unwrap());
        child.wait().unwrap();
        assert!(!send_pidfd(&pidfd, libc::SIGKILL).unwrap());
    }
}
