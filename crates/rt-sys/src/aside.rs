//! Work in a process beside this one, whose answer and errors come back: it joins namespaces or becomes a user, which this one must not,
//! or it waits for what may never answer.

use crate::error::{Context, Error, Result};
use crate::ns::Namespaces;
use crate::process::{self, Child, Memory};
use crate::{err, fd};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::pipe::{PipeFlags, pipe_with};
use std::time::{Duration, Instant};

/// Does `work` in a child, which has its own copy of the memory, and waits for it. What the child prints is the error's text,
/// too.
pub fn run(work: impl FnOnce() -> Result<()>) -> Result<()> {
    start(work)?.finish()
}

/// The same, where `work` returns what this process is to know.
pub fn ask(work: impl FnOnce() -> Result<Vec<u8>>) -> Result<Vec<u8>> {
    start(|| fd::write_all(rustix::stdio::stdout(), &work()?))?.said()
}

/// The same as [`ask`]; `None` where the work is not done within `limit`. Whatever it waits for in the kernel, this process does not.
pub fn ask_within(limit: Duration, work: impl FnOnce() -> Result<Vec<u8>>) -> Result<Option<Vec<u8>>> {
    let Aside { child, printed } = start(|| fd::write_all(rustix::stdio::stdout(), &work()?))?;
    let end = Instant::now() + limit;
    let (mut said, mut part) = (Vec::new(), [0; 4096]);
    let mut waits_for = printed.as_fd();
    while process::poll(&mut [PollFd::from_borrowed_fd(waits_for, PollFlags::IN)], Some(left_until(end)))? > 0
    {
        match waits_for.as_raw_fd() == printed.as_raw_fd() {
            false => return ended(&child, said).map(Some),
            true => match rustix::io::read(&printed, &mut part)? {
                0 => waits_for = child.pidfd.as_fd(),
                read => said.extend_from_slice(&part[..read]),
            },
        }
    }
    // It may wait where no signal ends it.
    child.kill();
    Ok(None)
}

fn left_until(end: Instant) -> Duration {
    end.saturating_duration_since(Instant::now())
}

/// A process that [`start`] has made.
#[derive(Debug)]
pub struct Aside {
    child: Child,
    /// What it prints.
    printed: OwnedFd,
}

/// Begins what [`run`] does.
pub fn start(work: impl FnOnce() -> Result<()>) -> Result<Aside> {
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC).context(|| "make a pipe")?;
    let child = process::spawn(Namespaces::NONE, Memory::Copied, || {
        let printed = rustix::stdio::dup2_stdout(&theirs).and_then(|()| rustix::stdio::dup2_stderr(&theirs));
        match printed.map_err(Error::from).and_then(|()| work()) {
            Ok(()) => 0,
            Err(e) => report(&e),
        }
    })?;
    Ok(Aside { child, printed: ours })
}

impl Aside {
    /// Waits until the work is done.
    pub fn finish(self) -> Result<()> {
        self.said().map(drop)
    }

    /// The same. Returns what was printed.
    fn said(self) -> Result<Vec<u8>> {
        match fd::read_all(self.printed) {
            Ok(said) => ended(&self.child, said),
            Err(e) => {
                process::wait(self.child.pid)?;
                Err(e)
            }
        }
    }
}

/// What a child that ends has said.
fn ended(child: &Child, said: Vec<u8>) -> Result<Vec<u8>> {
    match process::exit_code(process::wait(child.pid)?) {
        0 => Ok(said),
        _ => {
            let said = String::from_utf8_lossy(&said).into_owned();
            let last =
                said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it ended without a word");
            Err(err!("{}", last.trim()))
        }
    }
}

/// Says why this process ends, in a child of [`run`]. Its exit code.
pub fn report(error: &Error) -> i32 {
    let _ = fd::write_all(rustix::stdio::stderr(), format!("{error}\n").as_bytes());
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn much_is_said_in_time_or_nothing() {
        let much = vec![b'x'; 1 << 20];
        assert_eq!(ask_within(Duration::from_secs(20), || Ok(much.clone())).unwrap(), Some(much));
        let begun = Instant::now();
        let waits = || {
            std::thread::sleep(Duration::from_secs(30));
            Ok(Vec::new())
        };
        assert_eq!(ask_within(Duration::from_millis(50), waits).unwrap(), None);
        assert!(begun.elapsed() < Duration::from_secs(20));
        let error = ask_within(Duration::from_secs(20), || Err(err!("no"))).unwrap_err();
        assert_eq!(error.to_string(), "no");
    }
}
