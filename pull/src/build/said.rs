//! What a RUN says, on its way to the caller's standard error.
//!
//! The command has a pipe of the build's, and never the caller's own file: through /proc/self/fd it could read what is in that, empty
//! it, or take what is typed at a terminal.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use oci_content::interrupt::Interrupt;
use rt_sys::error::{Context, Result};
use rt_sys::process::poll;

/// What a command says without an end of a line is passed on in pieces of so many bytes.
const LONGEST_LINE: usize = 16 << 10;
/// A pipe has room for so much where poll(2) says that it can be written to, so that a write does not wait for who reads it.
const PIECE: usize = 4096;
/// How often somebody who waits for a reader looks whether the build is to end.
const LOOK: Duration = Duration::from_millis(100);

/// The pipe in which a command says something.
pub(super) struct Said {
    reader: OwnedFd,
    buffer: Vec<u8>,
    /// Stands before each line, where stages are built side by side.
    prefix: Option<Vec<u8>>,
    /// A line that has not ended, with its prefix.
    line: Vec<u8>,
    has_ended: bool,
}

impl Said {
    /// Makes a pipe, and returns the end for the command as well. With a prefix only whole lines are passed on.
    pub(super) fn pipe(prefix: Option<&str>) -> Result<(Said, OwnedFd)> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).context(|| "make a pipe")?;
        rustix::fs::fcntl_setfl(&reader, OFlags::NONBLOCK).context(|| "set the flags of a pipe")?;
        let prefix = prefix.map(|prefix| format!("[{prefix}] ").into_bytes());
        let (line, buffer) = (prefix.clone().unwrap_or_default(), vec![0; 64 << 10]);
        Ok((Said { reader, buffer, prefix, line, has_ended: false }, writer))
    }

    /// What to wait for; none once nobody can say anything any more.
    pub(super) fn waits_for(&self) -> Option<BorrowedFd<'_>> {
        (!self.has_ended).then(|| self.reader.as_fd())
    }

    /// Passes on what was said, as far as one read gives it, and returns how much that was.
    pub(super) fn pass_on(&mut self, interrupt: &Interrupt) -> Result<usize> {
        let length = match rustix::io::read(&self.reader, &mut self.buffer[..]) {
            Err(Errno::AGAIN | Errno::INTR) => return Ok(0),
            length => length.context(|| "read what RUN says")?,
        };
        self.has_ended |= length == 0;
        let Some(prefix) = &self.prefix else {
            write(&self.buffer[..length], interrupt);
            return Ok(length);
        };
        for piece in self.buffer[..length].split_inclusive(|byte| *byte == b'\n') {
            for piece in piece.chunks(LONGEST_LINE) {
                self.line.extend_from_slice(piece);
                let ends = piece.ends_with(b"\n");
                if ends || self.line.len() >= LONGEST_LINE {
                    self.line.extend_from_slice(if ends { b"" } else { b"\n" });
                    write(&self.line, interrupt);
                    self.line.truncate(prefix.len());
                }
            }
        }
        Ok(length)
    }

    /// Passes on what is left when the command has ended. Nobody is waited for who still has the pipe.
    pub(super) fn end(mut self, interrupt: &Interrupt) -> Result<()> {
        let mut left = rustix::io::ioctl_fionread(&self.reader).context(|| "ask what is left in a pipe")?;
        while left > 0 {
            match self.pass_on(interrupt)? {
                0 => break,
                length => left = left.saturating_sub(length as u64),
            }
        }
        if self.prefix.is_some_and(|prefix| self.line.len() > prefix.len()) {
            self.line.push(b'\n');
            write(&self.line, interrupt);
        }
        Ok(())
    }
}

/// Writes to standard error, other threads' lines not in between. What is not read is gone after a signal, and who closed standard error
/// does not want to know.
fn write(mut bytes: &[u8], interrupt: &Interrupt) {
    let stderr = std::io::stderr().lock();
    while !bytes.is_empty() {
        let mut fds = [PollFd::new(&stderr, PollFlags::OUT)];
        match poll(&mut fds, Some(LOOK)) {
            Ok(0) if interrupt.check().is_err() => return,
            Ok(0) => continue,
            Ok(_) => {}
            Err(_) => return,
        }
        match rustix::io::write(&stderr, &bytes[..bytes.len().min(PIECE)]) {
            Ok(length) => bytes = &bytes[length..],
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_keeps_the_pipe_is_not_waited_for() {
        let (mut said, writer) = Said::pipe(None).unwrap();
        let interrupt = Interrupt::default();
        assert_eq!(said.pass_on(&interrupt).unwrap(), 0);
        assert!(said.waits_for().is_some());
        rustix::io::write(&writer, b"\n").unwrap();
        said.end(&interrupt).unwrap();
        drop(writer);
        let (mut said, writer) = Said::pipe(Some("a")).unwrap();
        drop(writer);
        assert_eq!(said.pass_on(&interrupt).unwrap(), 0);
        assert!(said.waits_for().is_none());
    }
}
