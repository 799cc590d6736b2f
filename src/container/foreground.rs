//! Waiting for a foreground process: signals go to it, its terminal is shown on ours.

use super::Signalled;
use rt_sys::error::{Context, Result};
use rt_sys::process::{self, Child};
use rt_sys::{signal, tty};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::WaitOptions;
use std::collections::VecDeque;
use std::time::Duration;

/// Waits for `child`, passing signals on that `signalled` leaves it, and returns its exit code. Every signal must be blocked. `look` is
/// called where a child has ended, as another may be the one.
pub(super) fn wait(
    child: &Child,
    signalled: impl Fn(i32) -> Result<Signalled>,
    look: impl Fn() -> Result<()>,
) -> Result<u8> {
    loop {
        if let Some(code) = ended(child)? {
            return Ok(code);
        }
        let signal = signal::take().number;
        if signal == libc::SIGCHLD {
            look()?;
            continue;
        }
        match signalled(signal)? {
            Signalled::PassOn => pass_on(child, signal),
            Signalled::Taken => {}
            Signalled::Ended(code) => {
                process::wait(child.pid)?;
                return Ok(code);
            }
        }
    }
}

/// Waits for a child in this process's session and group, as [`wait`] does: what a key of the terminal sends it has had itself,
/// and where it stops, this process stops too, so that the caller's shell sees its job stop.
pub(super) fn wait_beside(child: &Child) -> Result<u8> {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    loop {
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED;
        match rustix::process::waitpid(Some(child.pid), options).context(|| "wait for the container")? {
            Some((_, status)) if status.stopped() => signal::send(own, libc::SIGSTOP)?,
            Some((_, status)) => return Ok(process::exit_code(status)),
            None => match signal::take() {
                signal if signal.by_kernel || signal.number == libc::SIGCHLD => {}
                signal => pass_on(child, signal.number),
            },
        }
    }
}

fn ended(child: &Child) -> Result<Option<u8>> {
    match rustix::process::waitpid(Some(child.pid), WaitOptions::NOHANG)
        .context(|| "wait for the container")?
    {
        Some((_, status)) => Ok(Some(process::exit_code(status))),
        None => Ok(None),
    }
}

fn pass_on(child: &Child, signal: i32) {
    // An error means that the process has just ended, which the next waitpid(2) tells.
    let _ = signal::send_pidfd(&child.pidfd, signal);
}

/// Shows the terminal `master` on standard input and output until `child` has ended and everything it wrote
/// is out. Signals that `signalled` leaves it go to it. `look` is called where a child has ended, as another may be the one.
pub(super) fn relay(
    child: &Child,
    master: &OwnedFd,
    signalled: impl Fn(i32) -> Result<Signalled>,
    look: impl Fn() -> Result<()>,
) -> Result<u8> {
    let signals = signal::receive_all()?;
    let (stdin, stdout) = (rustix::stdio::stdin(), rustix::stdio::stdout());
    tty::copy_size(stdin, master);
    let raw = tty::RawMode::enter(stdin);
    let mut input = Pipe::new(4096);
    let mut output = Pipe::new(64 * 1024);
    let mut code = None;
    let mut stdin_open = true;
    loop {
        let mut fds = Vec::with_capacity(4);
        fds.push((Polled::Signals, PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)));
        if stdin_open && input.has_room() {
            fds.push((Polled::Stdin, PollFd::from_borrowed_fd(stdin, PollFlags::IN)));
        }
        let mut wanted = PollFlags::empty();
        if output.has_room() {
            wanted |= PollFlags::IN;
        }
        if !input.is_empty() {
            wanted |= PollFlags::OUT;
        }
        fds.push((Polled::Master, PollFd::from_borrowed_fd(master.as_fd(), wanted)));
        if !output.is_empty() {
            fds.push((Polled::Stdout, PollFd::from_borrowed_fd(stdout, PollFlags::OUT)));
        }
        let ready = poll(&mut fds)?;
        for (polled, events) in ready {
            match polled {
                Polled::Signals => {
                    while let Some(signal) = signal::next(&signals)? {
                        match signal {
                            libc::SIGCHLD if code.is_none() => {
                                code = ended(child)?;
                                look()?;
                            }
                            libc::SIGCHLD => {}
                            libc::SIGWINCH => tty::copy_size(stdin, master),
                            _ => match signalled(signal)? {
                                Signalled::PassOn => pass_on(child, signal),
                                Signalled::Taken => {}
                                Signalled::Ended(with) => code = Some(with),
                            },
                        }
                    }
                }
                Polled::Stdin => stdin_open = input.fill(stdin),
                Polled::Master => {
                    if events.contains(PollFlags::OUT) {
                        input.drain(master.as_fd());
                    }
                    // read(2) of a terminal's master fails with EIO when no process has the slave open any more.
                    let gone =
                        events.intersects(PollFlags::IN | PollFlags::HUP) && !output.fill(master.as_fd());
                    if gone && output.is_empty() {
                        drop(raw);
                        return match code {
                            Some(code) => Ok(code),
                            None => Ok(process::exit_code(process::wait(child.pid)?)),
                        };
                    }
                }
                Polled::Stdout => {
                    if !output.drain(stdout) {
                        output = Pipe::sink();
                    }
                }
            }
        }
        if !stdin_open && input.is_empty() && !input.ended {
            // The end of our input is the terminal's end-of-file character.
            input.ended = true;
            if raw.is_none() {
                input.bytes.push_back(4);
            }
        }
        if let Some(code) = code
            && output.is_empty()
            && !output.fill(master.as_fd())
        {
            drop(raw);
            return Ok(code);
        }
        if code.is_some() && output.is_empty() && !readable(master)? {
            drop(raw);
            return Ok(code.unwrap_or(255));
        }
    }
}

/// A descriptor that the relay waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Polled {
    Signals,
    Stdin,
    Stdout,
    Master,
}

fn poll(fds: &mut [(Polled, PollFd<'_>)]) -> Result<Vec<(Polled, PollFlags)>> {
    let mut plain: Vec<PollFd<'_>> = fds.iter().map(|(_, fd)| fd.clone()).collect();
    match rustix::event::poll(&mut plain, None) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(e) => return Err(e).context(|| "poll the terminal"),
    }
    let events = plain.iter().map(PollFd::revents);
    Ok(fds.iter().map(|(polled, _)| *polled).zip(events).filter(|(_, events)| !events.is_empty()).collect())
}

fn readable(fd: &OwnedFd) -> Result<bool> {
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    process::poll(&mut fds, Some(Duration::ZERO)).context(|| "poll the terminal")?;
    Ok(fds[0].revents().contains(PollFlags::IN))
}

/// Bytes on their way from one descriptor to another.
struct Pipe {
    bytes: VecDeque<u8>,
    most: usize,
    ended: bool,
}

impl Pipe {
    fn new(most: usize) -> Self {
        Pipe { bytes: VecDeque::with_capacity(most), most, ended: false }
    }

    /// Forgets everything: its reader is gone.
    fn sink() -> Self {
        Pipe { bytes: VecDeque::new(), most: 0, ended: true }
    }

    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn has_room(&self) -> bool {
        self.most == 0 || self.bytes.len() < self.most
    }

    /// Reads what is there; false at the end.
    fn fill(&mut self, from: BorrowedFd<'_>) -> bool {
        let mut chunk = [0u8; 16 * 1024];
        let room = if self.most == 0 { chunk.len() } else { (self.most - self.bytes.len()).min(chunk.len()) };
        if room == 0 {
            return true;
        }
        match rustix::io::read(from, &mut chunk[..room]) {
            Ok(0) => false,
            Ok(n) => {
                if self.most > 0 {
                    self.bytes.extend(&chunk[..n]);
                }
                true
            }
            Err(Errno::INTR | Errno::AGAIN) => true,
            Err(_) => false,
        }
    }

    /// Writes what it can; false where nobody reads.
    fn drain(&mut self, to: BorrowedFd<'_>) -> bool {
        let (front, _) = self.bytes.as_slices();
        // A terminal's line buffer takes 4095 bytes; more could block.
        match rustix::io::write(to, &front[..front.len().min(4095)]) {
            Ok(n) => {
                self.bytes.drain(..n);
                true
            }
            Err(Errno::INTR | Errno::AGAIN) => true,
            Err(_) => false,
        }
    }
}
