//! Work in a process beside this one ([`rt_sys::aside`]), and criu in another one.

use rt_sys::error::Result;
use rt_sys::process::{self, Child};
use rt_sys::{bail, err};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, BorrowedFd};
use std::time::Duration;

pub(super) use rt_sys::aside::{Aside, ask, ask_within, report, run, start};

/// The process for which this one waits. Where it has ended, what this one waits for is ended, too, when it has not used a processor for
/// so long.
#[derive(Debug)]
pub(super) struct Runtime<'a> {
    process: Option<BorrowedFd<'a>>,
    still: Duration,
}

impl<'a> Runtime<'a> {
    pub(super) fn new(process: Option<BorrowedFd<'a>>, still: Duration) -> Self {
        Runtime { process, still }
    }

    /// Waits until there is something to read, which comes from `child`, or is its end.
    pub(super) fn wait_beside(&self, child: &Child, readable: impl AsFd) -> Result<()> {
        let readable = || PollFd::from_borrowed_fd(readable.as_fd(), PollFlags::IN);
        if let Some(process) = self.process {
            let mut fds = [readable(), PollFd::from_borrowed_fd(process, PollFlags::IN)];
            process::poll(&mut fds, None)?;
            if !fds[0].revents().is_empty() {
                return Ok(());
            }
        }
        let still = self.process.map(|_| self.still);
        loop {
            let used = child.processor_time();
            if process::poll(&mut [readable()], still)? > 0 {
                return Ok(());
            }
            if still.is_some_and(|still| still.is_zero()) || used.is_some() && used == child.processor_time()
            {
                child.end();
                bail!("the runtime has died");
            }
        }
    }

    /// Waits until `child` has ended.
    pub(super) fn wait_for(&self, child: &Child) -> Result<()> {
        self.wait_beside(child, &child.pidfd)
    }
}

/// Waits for `child`.
///
/// # Errors
/// It has ended with another code than 0.
pub(super) fn succeeded(child: &Child, name: &str) -> Result<()> {
    match process::exit_code(process::wait(child.pid)?) {
        0 => Ok(()),
        code => Err(err!("{name} failed with code {code}")),
    }
}
