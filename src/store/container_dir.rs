//! The directory of one container: its record with the config, and the fifo that init waits on.

use super::persistent::{PERSISTENT, PLACE};
use super::step::ENDED;
use super::{Record, does_not_exist, names_of_files};
use rt_spec::{Config, Spec};
use rt_sys::error::{Context, Error, Result};
use rt_sys::{bail, err, fd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// Held by who makes an image of the container.
const IMAGES_LOCK: &str = "images.lock";

/// The file with the record and the config.
pub(super) const STATE: &str = "state.json";
/// The fifo of a container that was created and not started.
pub(super) const FIFO: &str = "start.fifo";
/// What the program of a detached container has written, where nobody else takes it.
pub(super) const LOG: &str = "log";
/// How long the state may be. Root reads states that users have written.
const MOST: usize = 16 << 20;

/// The directory of one container, open.
#[derive(Debug)]
pub(crate) struct ContainerDir {
    /// The container's id.
    pub id: String,
    pub(super) fd: OwnedFd,
}

impl ContainerDir {
    /// Waits until no process is making the container any more, ten seconds at most.
    pub(crate) fn wait_until_made(&self) -> Result<()> {
        let doing = || format!("lock {}", fd::shown(&self.fd));
        for _ in 0..1000 {
            match fs::flock(&self.fd, fs::FlockOperation::NonBlockingLockShared) {
                Ok(()) => return fs::flock(&self.fd, fs::FlockOperation::Unlock).context(doing),
                Err(Errno::WOULDBLOCK) => {
                    let pause = rustix::time::Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
                    let _ = rustix::thread::nanosleep(&pause);
                }
                Err(e) => return Err(e).context(doing),
            }
        }
        bail!("container {} is being created", self.id)
    }

    /// True where another process holds the lock: the runtime that makes the container, or waits for its end.
    pub(crate) fn is_locked(&self) -> Result<bool> {
        let doing = || format!("lock {}", fd::shown(&self.fd));
        match fs::flock(&self.fd, fs::FlockOperation::NonBlockingLockShared) {
            Err(Errno::WOULDBLOCK) => Ok(true),
            locked => {
                locked.context(doing)?;
                fs::flock(&self.fd, fs::FlockOperation::Unlock).context(doing)?;
                Ok(false)
            }
        }
    }

    /// Waits until no other process makes an image of the container, and keeps them from it for as long as the descriptor, or a copy of
    /// it, is open: what one of them has stopped is not to be continued by another one. A criu that outlives its `rt` is waited for, too.
    /// Where nobody has made an image, there is no lock yet, which `how` makes, or there is `None`.
    ///
    /// # Errors
    /// ETIMEDOUT: somebody still makes one.
    pub(crate) fn lock_images_within(&self, most: Duration, how: OFlags) -> Result<Option<OwnedFd>> {
        let end = Instant::now() + most;
        loop {
            match self.try_lock_images(how) {
                Err(e) if e.is(libc::ENOENT) => return Ok(None),
                Ok(None) if Instant::now() < end => {}
                Ok(None) => {
                    return Err(Error::from_errno(libc::ETIMEDOUT).context("wait for a checkpoint"));
                }
                lock => return lock,
            }
        }
    }

    /// `None` where another process has the lock, after a moment.
    fn try_lock_images(&self, how: OFlags) -> Result<Option<OwnedFd>> {
        let doing = || format!("lock the state of {}", self.id);
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | how;
        let lock = fs::openat(&self.fd, IMAGES_LOCK, flags, Mode::RUSR | Mode::WUSR).context(doing)?;
        match fs::flock(&lock, fs::FlockOperation::NonBlockingLockExclusive) {
            // Another container can have taken the place of this one meanwhile.
            Ok(()) if fd::stat(&lock)?.st_nlink > 0 => Ok(Some(lock)),
            Ok(()) | Err(Errno::WOULDBLOCK) => {
                std::thread::sleep(Duration::from_millis(20));
                Ok(None)
            }
            Err(e) => Err(e).context(doing),
        }
    }

    /// A descriptor of the directory.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Removes what is left of a container that was here before, but not that it outlives its processes.
    pub(super) fn clear(&self) -> Result<()> {
        // A step whose first tasks have ended before its last ones begin is still one step.
        let stays =
            |file: &&String| *file == PERSISTENT || file.starts_with(PLACE) || file.starts_with(ENDED);
        for file in names_of_files(&self.fd)?.iter().filter(|file| !stays(file)) {
            fs::unlinkat(&self.fd, file.as_str(), AtFlags::empty())
                .context(|| format!("replace the state of {}", self.id))?;
        }
        Ok(())
    }

    /// Writes the first record, with the config behind it. The directory must hold none yet.
    pub(crate) fn save_new(&self, record: &Record, config: &[u8]) -> Result<()> {
        self.write(STATE, OFlags::EXCL, record, config)
    }

    /// Replaces the record and keeps the config.
    pub(crate) fn save(&self, record: &Record) -> Result<()> {
        let config = self.config()?;
        let new = "state.json.new";
        let replaced = self.write(new, OFlags::TRUNC, record, &config).and_then(|()| {
            fs::renameat(&self.fd, new, &self.fd, STATE)
                .context(|| format!("replace the state of {}", self.id))
        });
        if replaced.is_err() {
            // Nothing is lost where it stays: the next one is written over it.
            let _ = fs::unlinkat(&self.fd, new, AtFlags::empty());
        }
        replaced
    }

    fn write(&self, name: &str, how: OFlags, record: &Record, config: &[u8]) -> Result<()> {
        let context = || format!("write the state of {}", self.id);
        let mut text = serde_json::to_vec(record).map_err(|e| err!("{e}"))?;
        text.push(b'\n');
        text.extend_from_slice(config);
        if text.len() > MOST {
            return Err(err!("more than {MOST} bytes").context(context()));
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | how;
        let file = fs::openat(&self.fd, name, flags, Mode::RUSR | Mode::WUSR).context(context)?;
        fd::write_all(&file, &text).context(context)
    }

    /// Opens the file `name` to read it.
    pub(super) fn open_file(&self, name: &str) -> Result<OwnedFd, Errno> {
        // O_NONBLOCK: the user may have put a fifo in the file's place, on which open(2) and read(2) would wait.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        fs::openat2(&self.fd, name, flags, Mode::empty(), super::OF_ONE_FILE_SYSTEM)
    }

    fn read(&self) -> Result<Vec<u8>> {
        match self.open_file(STATE) {
            Ok(file) => fd::read_regular(file, MOST)
                .context(|| format!("read the state of {}", self.id))?
                .ok_or_else(|| err!("the state of {} is no file of at most {MOST} bytes", self.id)),
            Err(Errno::NOENT) => Ok(Vec::new()),
            Err(e) => Err(e).context(|| format!("read the state of {}", self.id)),
        }
    }

    /// The record; its pid is 0 where none was written yet. Of a shared container whose first process has ended, a
    /// member that lives stands in the place of that process.
    pub(crate) fn load(&self) -> Result<Record> {
        let mut record = self.read_record()?;
        if record.shared
            && !record.is_alive()?
            && let Some(member) = self.living_members()?.first()
        {
            (record.pid, record.start_time) = (member.pid, member.start_time);
        }
        Ok(record)
    }

    /// The record as it was written.
    fn read_record(&self) -> Result<Record> {
        let text = self.read()?;
        // The record is not written yet: the container is being created.
        if text.is_empty() {
            let owner = fd::stat(&self.fd)?.st_uid;
            return Ok(Record { id: self.id.clone(), owner, ..Record::default() });
        }
        let end = text.iter().position(|&b| b == b'\n').unwrap_or(text.len());
        let record: Record = serde_json::from_slice(&text[..end])
            .map_err(|e| err!("the state of {} is damaged: {e}", self.id))?;
        Ok(Record { id: self.id.clone(), ..record })
    }

    /// What a damaged record still says of the container's processes: the pid and the start time of the first one, and
    /// whether they have a PID namespace of their own. `None` where it does not say the first two.
    ///
    /// # Errors
    /// The record cannot be read.
    pub(crate) fn salvage(&self) -> Result<Option<Record>> {
        let text = match self.read() {
            // The record is no file that could be read.
            Err(e) if e.errno().is_none() => return Ok(None),
            text => text?,
        };
        let line = text.split(|&b| b == b'\n').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        let (Some(pid), Some(start_time)) = (number(&line, "pid"), number(&line, "startTime")) else {
            return Ok(None);
        };
        let Ok(pid) = i32::try_from(pid) else { return Ok(None) };
        let own_pid_namespace = line.contains("\"ownPidNamespace\":true");
        Ok(Some(Record { id: self.id.clone(), pid, start_time, own_pid_namespace, ..Record::default() }))
    }

    /// True where nobody makes the container: its runtime has ended before it wrote a record, and could not remove the
    /// directory. Until ten seconds have passed that is not said, since a maker locks the directory after it has made it.
    pub(super) fn is_abandoned(&self) -> Result<bool> {
        const SECONDS: i64 = 10;
        let doing = || format!("lock {}", fd::shown(&self.fd));
        match fs::flock(&self.fd, fs::FlockOperation::NonBlockingLockShared) {
            Err(Errno::WOULDBLOCK) => return Ok(false),
            locked => locked.context(doing)?,
        }
        fs::flock(&self.fd, fs::FlockOperation::Unlock).context(doing)?;
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec;
        Ok(fd::stat(&self.fd)?.st_mtime + SECONDS <= now)
    }

    /// The config as it was loaded.
    pub(crate) fn config(&self) -> Result<Vec<u8>> {
        let text = self.read()?;
        match text.iter().position(|&b| b == b'\n') {
            Some(end) => Ok(text[end + 1..].to_vec()),
            None => Err(does_not_exist(&self.id)),
        }
    }

    /// The config, parsed.
    pub(crate) fn spec(&self) -> Result<Spec> {
        Ok(*Config::parse(self.config()?)?.spec)
    }

    /// Makes the fifo that the container's init waits on, and opens it for init.
    pub(crate) fn make_fifo(&self) -> Result<OwnedFd> {
        fs::mknodat(&self.fd, FIFO, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .context(|| format!("make {}/{FIFO}", fd::shown(&self.fd)))?;
        // Opened for writing too, since read(2) of a fifo that has no writer returns at once: so it waits for `start`.
        fs::openat(&self.fd, FIFO, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .context(|| format!("open {}/{FIFO}", fd::shown(&self.fd)))
    }

    /// Opens the fifo to release init; `None` where init does not wait any more.
    pub(crate) fn open_fifo(&self) -> Result<Option<OwnedFd>> {
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match fs::openat(&self.fd, FIFO, flags, Mode::empty()) {
            Ok(fd) => Ok(Some(fd)),
            Err(Errno::NOENT | Errno::NXIO) => Ok(None),
            Err(e) => Err(e).context(|| format!("open {}/{FIFO}", fd::shown(&self.fd))),
        }
    }

    /// Makes the log, to which several processes append.
    pub(crate) fn make_log(&self) -> Result<OwnedFd> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        fs::openat(&self.fd, LOG, flags, Mode::RUSR | Mode::WUSR)
            .context(|| format!("make {}/{LOG}", fd::shown(&self.fd)))
    }

    /// Opens the log to read it; `None` where the container has none.
    pub(crate) fn log(&self) -> Result<Option<OwnedFd>> {
        let context = || format!("open the log of {}", self.id);
        let file = match self.open_file(LOG) {
            Err(Errno::NOENT) => return Ok(None),
            opened => opened.context(context)?,
        };
        match FileType::from_raw_mode(fd::stat(&file)?.st_mode) {
            FileType::RegularFile => Ok(Some(file)),
            _ => bail!("the log of {} is no file", self.id),
        }
    }

    /// Removes the fifo: of two callers one succeeds.
    pub(crate) fn remove_fifo(&self) -> Result<(), Errno> {
        fs::unlinkat(&self.fd, FIFO, AtFlags::empty())
    }
}

/// The whole number that the key `key` has in a line of JSON that may be cut or damaged. In a text of JSON the quotes around a
/// key would have a backslash.
fn number(line: &str, key: &str) -> Option<u64> {
    let rest = line.split_once(&format!("\"{key}\":"))?.1;
    // What is cut off may have had more digits.
    let end = rest.find([',', '}'])?;
    rest[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_whole_or_not_there() {
        let line = r#"{"id":"a","pid":12,"startTime":345,"annotations":{"x":"\"pid\":9,"},"bun"#;
        assert_eq!((number(line, "pid"), number(line, "startTime")), (Some(12), Some(345)));
        assert_eq!(number(&line[9..], "pid"), Some(12));
        for cut in
            [r#"{"id":"a","pid":1"#, r#""annotations":{"x":"\"pid\":9,"}"#, r#"{"pid":-1,"#, r#"{"pid":"7","#]
        {
            assert_eq!(number(cut, "pid"), None, "{cut}");
        }
    }
}
