//! Whose a lease or a directory is, and whether that process is gone.
//!
//! A process is gone where the kernel of its machine says so, by ESRCH and ENOENT. No other error is that answer. What a
//! process of another machine does shows in times alone.

use std::fmt;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use rt_sys::error::{Context, Result};
use rt_sys::log::one_line;
use rt_sys::{disk, fd, process};

/// What was not renewed for so long counts as given up. It is several times the interval of renewals, since a node or the
/// file server may be busy.
pub(crate) const STALE: Duration = Duration::from_secs(30);

/// The text that says whose something is, is not longer.
pub(crate) const TEXT_LIMIT: usize = 4096;

/// A process: as much as it takes to see that it is dead, if it was one of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    /// Host name, boot and PID namespace: where the process's number means something.
    place: String,
    pid: i32,
    /// Its start time, since a number goes to another process one day.
    started: String,
}

impl Holder {
    /// This process.
    ///
    /// # Errors
    /// The kernel does not say what tells it from others.
    pub(crate) fn this_process() -> Result<Holder> {
        static KNOWN: OnceLock<Holder> = OnceLock::new();
        if let Some(known) = KNOWN.get() {
            return Ok(known.clone());
        }
        let found = Holder::of(std::process::id() as i32)?;
        Ok(KNOWN.get_or_init(|| found).clone())
    }

    /// Process `pid` of this machine.
    pub(crate) fn of(pid: i32) -> Result<Holder> {
        let host = rt_sys::process::host_name();
        let boot = "/proc/sys/kernel/random/boot_id";
        let boot = match std::fs::read_to_string(boot) {
            // Without procfs nobody can say whether a process lives: this one is of a place of its own.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                let place = format!("{host} - {}", rt_sys::unique::name());
                return Ok(Holder { place, pid, started: "-".into() });
            }
            read => read.context(|| format!("read {boot}"))?,
        };
        let namespace = "/proc/self/ns/pid";
        let namespace = std::fs::read_link(namespace).context(|| format!("read {namespace}"))?;
        let place = format!("{host} {} {}", boot.trim(), namespace.display());
        let stat = process::stat(fd::open_proc()?, &pid.to_string());
        let stat = stat.context(|| format!("look at process {pid}"))?;
        Ok(Holder { place, pid, started: stat.start_time.to_string() })
    }

    /// The form that [`Holder::parse`] reads.
    pub(crate) fn text(&self) -> String {
        format!("{}\n{}\n{}\n", self.place, self.pid, self.started)
    }

    /// Reads what [`Holder::text`] has written; what stands behind it is not looked at. None for what says no process.
    pub(crate) fn parse(text: &[u8]) -> Option<Holder> {
        let mut lines = std::str::from_utf8(text).ok()?.lines();
        let (place, pid, started) = (lines.next()?, lines.next()?, lines.next()?);
        let pid = pid.parse().ok().filter(|pid| *pid > 0)?;
        Some(Holder { place: place.to_owned(), pid, started: started.to_owned() })
    }

    /// True for a process of this machine, which can be looked at.
    fn is_beside(&self, me: &Holder) -> bool {
        self.place == me.place
    }

    /// True where this is a process of this machine that has ended. A zombie, whose parent has not asked for its end yet,
    /// does nothing any more.
    ///
    /// # Errors
    /// The kernel does not say: nobody may take the process for dead.
    pub(crate) fn is_gone(&self, me: &Holder) -> Result<bool> {
        if !self.is_beside(me) {
            return Ok(false);
        }
        match process::stat(fd::open_proc()?, &self.pid.to_string()) {
            Ok(stat) => Ok(stat.dead || stat.start_time.to_string() != self.started),
            // It is not there, or is another user's and /proc is mounted with hidepid=2 (proc(5)).
            Err(e) if e.is(libc::ENOENT) || e.is(libc::ESRCH) => Ok(!rt_sys::process::lives(self.pid)),
            // Another user's, with hidepid=1.
            Err(e) if e.is(libc::EACCES) || e.is(libc::EPERM) => Ok(false),
            Err(e) => Err(e.context(format!("look at process {}", self.pid))),
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Whoever may write there can have written anything. Host names have 64 bytes at most (gethostname(2)).
        let host: String = self.place.split(' ').next().unwrap_or_default().chars().take(64).collect();
        write!(f, "process {} on {}", self.pid, one_line(&host))
    }
}

/// Writes into `dir` that it is this process's, as `mark`.
pub(crate) fn sign(dir: BorrowedFd, mark: &[u8]) -> Result<()> {
    let text = Holder::this_process()?.text();
    let mut file = disk::create_file(dir, mark, 0o600)?;
    file.write_all(text.as_bytes()).context(|| format!("write {}", fd::shown(&file)))
}

/// Whether the process that [signed](sign) `dir` is dead, or of another machine and silent for long. None where no mark of
/// the caller's says whose it is.
///
/// # Errors
/// The mark or the process could not be looked at.
pub(crate) fn abandoned(dir: BorrowedFd, mark: &[u8]) -> Result<Option<bool>> {
    let text = match disk::open_file(dir, mark) {
        Err(e) if e.is(libc::ENOENT) => return Ok(None),
        opened => {
            let file = opened?;
            match disk::only_ours(&file)? {
                true => fd::read_regular(file, TEXT_LIMIT).context(|| "read the mark of a directory")?,
                false => None,
            }
        }
    };
    let Some(holder) = text.and_then(|text| Holder::parse(&text)) else { return Ok(None) };
    let me = Holder::this_process()?;
    Ok(Some(match holder.is_beside(&me) {
        true => holder.is_gone(&me)?,
        false => silent(dir)?,
    }))
}

/// True where nobody has renewed `dir` for long.
pub(crate) fn silent(dir: impl AsFd) -> Result<bool> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Ok(now.saturating_sub(disk::modified(dir)?) > STALE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn own() -> Holder {
        Holder::this_process().unwrap()
    }

    #[test]
    fn the_dead_are_known() {
        let me = own();
        assert_eq!(Holder::parse(me.text().as_bytes()), Some(me.clone()));
        assert_eq!(Holder::parse(format!("{}more\n", me.text()).as_bytes()), Some(me.clone()));
        for text in ["", "a\n", "a\n0\n1\n", "a\n-3\n1\n", "a\n99999999999\n1\n", "a\nx\n1\n"] {
            assert_eq!(Holder::parse(text.as_bytes()), None, "{text:?}");
        }
        assert!(!me.is_gone(&me).unwrap());
        assert!(Holder { pid: i32::MAX - 7, ..me.clone() }.is_gone(&me).unwrap());
        assert!(
            Holder { started: "1".into(), ..me.clone() }.is_gone(&me).unwrap(),
            "the number went to another"
        );
        let far = Holder { place: "a\x1b[2Jb c d".into(), pid: i32::MAX - 7, started: "1".into() };
        assert!(!far.is_gone(&me).unwrap());
        assert!(!far.to_string().contains('\x1b'), "{far}");
    }

    #[test]
    fn marks_tell_the_dead() {
        let path = std::env::temp_dir().join(format!("rt-holder-{}", rt_sys::unique::name()));
        fs::create_dir_all(&path).unwrap();
        let dir = disk::open_root(&path).unwrap();
        let mark = |holder: &Holder| {
            fs::write(path.join("mark"), holder.text()).unwrap();
            abandoned(dir.as_fd(), b"mark").unwrap()
        };
        assert_eq!(abandoned(dir.as_fd(), b"mark").unwrap(), None);
        sign(dir.as_fd(), b"mark").unwrap();
        assert_eq!(abandoned(dir.as_fd(), b"mark").unwrap(), Some(false));
        assert_eq!(mark(&Holder { pid: i32::MAX - 7, ..own() }), Some(true));
        assert_eq!(mark(&Holder { started: "1".into(), ..own() }), Some(true));
        // Of another machine by its age alone; what nobody signed never.
        let far = Holder { place: "other".into(), pid: 1, started: "1".into() };
        assert_eq!(mark(&far), Some(false));
        fs::File::open(&path).unwrap().set_modified(SystemTime::now() - STALE * 2).unwrap();
        assert_eq!(abandoned(dir.as_fd(), b"mark").unwrap(), Some(true));
        fs::write(path.join("mark"), "").unwrap();
        assert_eq!(abandoned(dir.as_fd(), b"mark").unwrap(), None);
        fs::remove_file(path.join("mark")).unwrap();
        std::os::unix::fs::symlink("nowhere", path.join("mark")).unwrap();
        assert!(abandoned(dir.as_fd(), b"mark").is_err(), "a mark that cannot be read says nothing");
        fs::remove_dir_all(&path).unwrap();
    }
}
