//! What a program has written to a layer in memory, which is gone with the container: said once at the end, to callers who have
//! not asked for that (`--as-root` without `--writable`).
//!
//! What counts is what the layer's tmpfs has in use, compared with when everything was mounted. So writes to binds, and to
//! tmpfs of their own such as /tmp and /run, do not count, and no tree is walked. Init sends the runtime a descriptor of the
//! tmpfs, since that is in the container's mount namespace, which has ended when the question comes up.

use rt_sys::error::{Context, Result};
use rt_sys::{log, process, tty};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs;
use std::time::Duration;

/// The two ends by which the layer comes from init to the runtime.
#[derive(Debug)]
pub(super) struct Watch {
    receiver: OwnedFd,
    sender: OwnedFd,
}

/// What a tmpfs has in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct InUse {
    bytes: u64,
    /// Files, directories and what removes those of the image.
    entries: u64,
}

impl Watch {
    /// Made by the runtime before init.
    pub(super) fn new() -> Result<Watch> {
        let (receiver, sender) = tty::socket_pair()?;
        Ok(Watch { receiver, sender })
    }

    /// Called by init when it makes nothing more in the layer, whose file system `tmpfs` is.
    pub(super) fn begin(&self, tmpfs: &OwnedFd) -> Result<()> {
        let InUse { bytes, entries } = InUse::of(tmpfs.as_fd())?;
        let payload = [bytes.to_ne_bytes(), entries.to_ne_bytes()].concat();
        tty::send_fds(&self.sender, &payload, &[tmpfs.as_fd()]).context(|| "send the layer in memory")
    }

    /// Says what is gone, if there is something, when the container has ended.
    pub(super) fn end(&self) -> Result<()> {
        // Init may have ended before it had anything to say.
        let mut has_come = [PollFd::new(&self.receiver, PollFlags::IN)];
        if process::poll(&mut has_come, Some(Duration::ZERO)).context(|| "ask for the layer in memory")? == 0
        {
            return Ok(());
        }
        let (tmpfs, payload) =
            tty::receive_fd_with::<16>(&self.receiver).context(|| "receive the layer in memory")?;
        let number = |at: usize| payload[at..at + 8].try_into().map_or(0, u64::from_ne_bytes);
        let before = InUse { bytes: number(0), entries: number(8) };
        if let Some(lost) = InUse::of(tmpfs.as_fd())?.beyond(before) {
            log::tell(format_args!(
                "what the program has written to the root{lost} is gone with the container (--overlay DIR keeps it; \
                 --writable throws it away in silence)"
            ));
        }
        Ok(())
    }
}

impl InUse {
    fn of(tmpfs: BorrowedFd<'_>) -> Result<InUse> {
        let found = fs::fstatfs(tmpfs).context(|| "look at the layer in memory")?;
        let bytes = found.f_blocks.saturating_sub(found.f_bfree) * found.f_bsize as u64;
        Ok(InUse { bytes, entries: found.f_files.saturating_sub(found.f_ffree) })
    }

    /// How much is in use beyond `before`, for a sentence; `None` where that is nothing.
    fn beyond(self, before: InUse) -> Option<String> {
        let bytes = self.bytes.saturating_sub(before.bytes);
        let is_more = bytes > 0 || self.entries > before.entries;
        is_more.then(|| match bytes {
            0 => String::new(),
            1..1_000_000 => format!(", {} kB,", bytes.div_ceil(1000)),
            1_000_000.. => format!(", {} MB,", bytes.div_ceil(1_000_000)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::InUse;

    #[test]
    fn more_is_said_in_units() {
        let before = InUse { bytes: 4096, entries: 3 };
        let more = |bytes, entries| InUse { bytes, entries }.beyond(before);
        assert_eq!([more(4096, 3), more(0, 2)], [None, None]);
        assert_eq!(more(4096, 4).unwrap(), "");
        assert_eq!(more(8192, 4).unwrap(), ", 5 kB,");
        assert_eq!(more(300_004_096, 9).unwrap(), ", 300 MB,");
    }
}
