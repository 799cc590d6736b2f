//! What criu says in its log, as part of an error.

use rt_sys::error::{Context, Error, Result};
use rt_sys::fd;
use rt_sys::mount::{self, Param};
use rustix::fd::OwnedFd;
use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;

/// How many bytes of a log are looked at.
const MOST: usize = 64 << 20;

/// Lines that stand in the log of a run without root that has succeeded, too.
const HARMLESS: [&str; 3] = ["Unexpected error: -1", "RLIMIT_NOFILE", "for xtlocks check"];

/// Makes the empty file `name` in `dir`. criu would write through a link that is there.
pub(super) fn make(dir: &OwnedFd, name: &str) -> Result<OwnedFd> {
    match fs::unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(e) => return Err(e).context(|| format!("remove {name}")),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    fs::openat(dir, name, flags, Mode::RUSR | Mode::WUSR).context(|| format!("make {name}"))
}

/// The same, in a file system in memory where nothing can be written to `dir`: returns that, and why. It ends with its descriptors.
pub(super) fn make_anywhere(dir: &OwnedFd, name: &str) -> Result<Option<(OwnedFd, Error)>> {
    const REFUSED: [i32; 5] = [libc::EROFS, libc::ENOSPC, libc::EDQUOT, libc::EACCES, libc::EPERM];
    match make(dir, name) {
        Err(e) if REFUSED.iter().any(|errno| e.is(*errno)) => {
            let memory = mount::new_fs("tmpfs", "tmpfs", &[Param::Value("mode".into(), "700".into())], 0)?;
            make(&memory, name)?;
            Ok(Some((memory, e)))
        }
        made => made.map(|_| None),
    }
}

/// The error with the first two that criu has written to `name` in `dir`.
pub(super) fn explain_in(error: Error, dir: &OwnedFd, name: &str) -> Error {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let read = fs::openat(dir, name, flags, Mode::empty())
        .map_err(Error::from)
        .and_then(|file| fd::read_regular(file, MOST));
    // Without a log the error says what there is to say.
    let Ok(Some(text)) = read else { return error };
    let text = String::from_utf8_lossy(&text).into_owned();
    let said: Vec<&str> = text.lines().filter_map(of_line).take(2).collect();
    match said.is_empty() {
        false => error.hint(said.join("; ")),
        // Nobody could be told where the disk was full from the first byte on.
        true => match probe(dir, name) {
            Ok(()) => error,
            Err(reason) => error.hint(reason.to_string()),
        },
    }
}

/// Writes a byte more to the log `name` in `dir`.
fn probe(dir: &OwnedFd, name: &str) -> Result<()> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let written = fs::openat(dir, name, flags, Mode::empty())
        .map_err(Error::from)
        .and_then(|log| fd::write_all(log, b"\n"));
    written.context(|| format!("write {name}"))
}

/// The text of a line `(00.123456) Error (criu/files.c:12): TEXT`.
fn of_line(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("Error (")?;
    let (_, text) = rest.split_once("): ")?;
    let text = text.trim();
    (!HARMLESS.iter().any(|harmless| text.contains(harmless))).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_found() {
        let line = "(00.042) Error (criu/files-reg.c:1865): Can't lookup mount=24 for fd=0 path=/dev/null";
        assert_eq!(of_line(line), Some("Can't lookup mount=24 for fd=0 path=/dev/null"));
        assert_eq!(of_line("(00.1) Error (criu/net.c:1): Unexpected error: -1(Not a)"), None);
        assert_eq!(of_line("(00.1) Warn  (criu/net.c:1): x"), None);
    }
}
