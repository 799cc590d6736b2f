//! Leases: one worker at a time for a piece of work, across processes and nodes.
//!
//! A lease is a file that its holder renews by touching it. A lock of flock(2) or fcntl(2) would end with its process as
//! well, but network file systems are often mounted without locks, or with locks that only one node sees.
//!
//! A lease that has not been renewed for [`STALE`], or whose holder is a dead process of this machine, is passed over: the
//! next holder makes the lease with the next number. Nothing is taken by renaming or removing, so a takeover needs no right
//! over another user's files. Of two processes that take over at once, one makes the link(2); link is atomic over NFS too
//! (open(2), O_EXCL).
//!
//! Nodes can disagree about the time, so only times of the file server are compared: "now" is the time of a file that was
//! just made. A holder that was stopped and goes on later does no harm, since each holder writes into a file of its own.
//!
//! What belongs to one process alone needs no lease: a mark inside says whose it is ([`sign`]).

use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use super::disk;
use rt_sys::error::{Context, Result};
use rt_sys::{fd, process};

/// A lease that was not renewed for so long counts as given up. It is several times [`RENEW`], since the holder's node or
/// the file server may be busy.
const STALE: Duration = Duration::from_secs(30);
/// How often leases are renewed.
const RENEW: Duration = Duration::from_secs(4);

/// The text that says whose a lease is, is not longer.
const TEXT_LIMIT: usize = 4096;

/// A held lease; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Lease {
    dir: Arc<OwnedFd>,
    name: String,
    /// Of a lease that was won.
    renewal: Option<Renewal>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.renewal = None;
        let _ = disk::unlink(self.dir.as_fd(), self.name.as_bytes());
    }
}

/// Touches a name in a directory every few seconds, for other machines to see that somebody lives; until dropped.
#[derive(Debug)]
pub(crate) struct Renewal(Renewed);

/// A name in a directory, which is renewed.
#[derive(Debug, Clone)]
struct Renewed {
    dir: Arc<OwnedFd>,
    name: String,
}

impl Renewal {
    /// Begins to.
    ///
    /// # Errors
    /// The thread that renews cannot be started.
    pub(crate) fn start(dir: &Arc<OwnedFd>, name: &str) -> Result<Renewal> {
        start_renewing()?;
        let renewed_name = Renewed { dir: dir.clone(), name: name.to_owned() };
        renewed().push(renewed_name.clone());
        Ok(Renewal(renewed_name))
    }
}

impl Drop for Renewal {
    fn drop(&mut self) {
        let Renewed { dir, name } = &self.0;
        renewed().retain(|other| !Arc::ptr_eq(&other.dir, dir) || other.name != *name);
    }
}

/// Takes the lease on `name` in `dir`; none where somebody else has it.
pub(crate) fn acquire(dir: &Arc<OwnedFd>, name: &str) -> Result<Option<Lease>> {
    let here = dir.as_fd();
    let known = list(here, name)?;
    let me = Holder::this_process();
    // This is asked again and again while another process works, so it writes nothing where the answer needs no clock.
    if known.iter().any(|(_, name)| Holder::read(here, name).and_then(|h| h.lives_beside(&me)) == Some(true))
    {
        return Ok(None);
    }
    let draft = format!("{name}.draft-{}", unique());
    let made = (|| -> Result<Option<Lease>> {
        write_new(here, &draft, &me.text())?;
        let now = modified(here, &draft).unwrap_or_default();
        if known.iter().any(|(_, name)| fresh(here, name, now, &me)) {
            return Ok(None);
        }
        let number = known.iter().map(|(number, _)| u64::from(*number)).max().unwrap_or(0) + 1;
        let won = format!("{name}.lease.{number}");
        if !claim(here, &draft, &won, &me)? {
            return Ok(None);
        }
        let mut lease = Lease { dir: dir.clone(), name: won, renewal: None };
        // Another process may have seen other leases when it chose its number, since one was given back meanwhile. Whoever
        // sees a second one gives up; both may, and then both try again.
        let others = list(here, name)?;
        let mut others = others.iter().filter(|(_, name)| *name != lease.name);
        if others.any(|(_, name)| fresh(here, name, now, &me)) {
            return Ok(None);
        }
        for (_, name) in known {
            let _ = disk::unlink(here, name.as_bytes());
        }
        lease.renewal = Some(Renewal::start(dir, &lease.name)?);
        Ok(Some(lease))
    })();
    let _ = disk::unlink(here, draft.as_bytes());
    made
}

/// Gives a draft its name as a lease. False where another was faster.
fn claim(dir: BorrowedFd, draft: &str, name: &str, me: &Holder) -> Result<bool> {
    let linked = match disk::link(dir, draft.as_bytes(), dir, name.as_bytes()) {
        // File systems without hard links. A process that reads the lease before its text is there goes by its time.
        Err(e) if !e.is(libc::EEXIST) => write_new(dir, name, &me.text()),
        linked => linked,
    };
    match linked {
        Err(e) if e.is(libc::EEXIST) => Ok(false),
        linked => linked.map(|()| true),
    }
}

fn write_new(dir: BorrowedFd, name: &str, text: &str) -> Result<()> {
    let mut file = disk::create_file(dir, name.as_bytes(), 0o644)?;
    file.write_all(text.as_bytes()).context(|| format!("write {}", fd::shown(&file)))
}

/// True while somebody holds a lease on `name`.
pub(crate) fn held(dir: BorrowedFd, name: &str) -> bool {
    let me = Holder::this_process();
    list(dir, name).unwrap_or_default().iter().any(|(_, name)| fresh(dir, name, now(), &me))
}

fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// A name that no other process uses.
pub(crate) fn unique() -> String {
    use std::hash::{BuildHasher, Hasher};
    format!("{:016x}", std::collections::hash_map::RandomState::new().build_hasher().finish())
}

/// Writes into `dir` whose it is, as `mark`.
pub(crate) fn sign(dir: BorrowedFd, mark: &[u8]) -> Result<()> {
    let text = Holder::this_process().text();
    let mut file = disk::create_file(dir, mark, 0o600)?;
    file.write_all(text.as_bytes()).context(|| format!("write {}", fd::shown(&file)))
}

/// Whether the process that [signed](sign) `dir` is dead, or of another machine and silent for long. None where no mark of
/// the caller's says whose it is.
pub(crate) fn abandoned(dir: BorrowedFd, mark: &[u8]) -> Option<bool> {
    let file = disk::open_file(dir, mark).ok().filter(disk::only_ours)?;
    let holder = Holder::parse(fd::read_regular(file, TEXT_LIMIT).ok()??)?;
    Some(holder.lives_beside(&Holder::this_process()).map_or_else(|| silent(dir), |lives| !lives))
}

/// True where nobody has [renewed](Renewal) `dir` for long.
pub(crate) fn silent(dir: impl AsFd) -> bool {
    disk::modified(dir).is_some_and(|at| now().saturating_sub(at) > STALE)
}

fn list(dir: BorrowedFd, name: &str) -> Result<Vec<(u32, String)>> {
    let mut leases = Vec::new();
    for (file, _) in disk::entries(dir)? {
        let file = String::from_utf8(file).unwrap_or_default();
        let number = file.strip_prefix(name).and_then(|f| f.strip_prefix(".lease."));
        if let Some(number) = number.and_then(|n| n.parse().ok()) {
            leases.push((number, file));
        }
    }
    Ok(leases)
}

fn fresh(dir: BorrowedFd, name: &str, now: Duration, me: &Holder) -> bool {
    match Holder::read(dir, name).and_then(|holder| holder.lives_beside(me)) {
        Some(lives) => lives,
        None => modified(dir, name).is_some_and(|at| now.saturating_sub(at) < STALE),
    }
}

/// The file is opened before it is asked for its time: then an NFS client asks the server (close-to-open consistency,
/// nfs(5)), and does not answer from its cache.
fn modified(dir: BorrowedFd, name: &str) -> Option<Duration> {
    disk::modified(disk::open_file(dir, name.as_bytes()).ok()?)
}

/// The names that this process renews.
fn renewed() -> MutexGuard<'static, Vec<Renewed>> {
    static HELD: Mutex<Vec<Renewed>> = Mutex::new(Vec::new());
    HELD.lock().unwrap_or_else(|e| e.into_inner())
}

/// Starts the thread that renews, with the first name.
fn start_renewing() -> Result<()> {
    static STARTED: Mutex<bool> = Mutex::new(false);
    let mut started = STARTED.lock().unwrap_or_else(|e| e.into_inner());
    if !*started {
        let renew = || loop {
            std::thread::sleep(RENEW);
            for Renewed { dir, name } in renewed().iter() {
                let _ = disk::touch(dir.as_fd(), name.as_bytes());
            }
        };
        std::thread::Builder::new().name("renew".into()).spawn(renew).context(|| "start a thread")?;
        *started = true;
    }
    Ok(())
}

/// Who holds a lease: as much as it takes to see that a process of this machine is dead.
#[derive(Debug, PartialEq, Eq)]
struct Holder {
    /// Host name, boot and PID namespace: where the process's number means something.
    place: String,
    pid: i32,
    /// Its start time, since a number goes to another process one day.
    started: String,
}

impl Holder {
    fn this_process() -> Holder {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let place = format!("{} {} {}", disk::host_name(), boot.trim(), namespace.display());
        let pid = std::process::id() as i32;
        Holder { place, pid, started: start_time(pid) }
    }

    fn text(&self) -> String {
        format!("{}\n{}\n{}\n", self.place, self.pid, self.started)
    }

    fn read(dir: BorrowedFd, name: &str) -> Option<Holder> {
        Holder::parse(disk::read_small(dir, name.as_bytes(), TEXT_LIMIT)?)
    }

    fn parse(text: Vec<u8>) -> Option<Holder> {
        let text = String::from_utf8(text).ok()?;
        let mut lines = text.lines();
        let (place, pid, started) = (lines.next()?, lines.next()?, lines.next()?);
        Some(Holder { place: place.to_owned(), pid: pid.parse().ok()?, started: started.to_owned() })
    }

    /// None where the holder is not of this machine.
    fn lives_beside(&self, me: &Holder) -> Option<bool> {
        (self.place == me.place).then(|| alive(self.pid, &self.started))
    }
}

/// A zombie, whose parent has not asked for its end yet, does nothing any more.
fn alive(pid: i32, started: &str) -> bool {
    let stat = stat(pid);
    disk::process_lives(pid) && !stat.as_ref().is_some_and(|stat| stat.dead) && shown(stat) == started
}

/// A process's start time in ticks since the boot (proc_pid_stat(5)); empty where there is no such process.
fn start_time(pid: i32) -> String {
    shown(stat(pid))
}

fn stat(pid: i32) -> Option<process::Stat> {
    fd::open_proc().and_then(|proc| process::stat(proc, &pid.to_string())).ok()
}

fn shown(stat: Option<process::Stat>) -> String {
    stat.map(|stat| stat.start_time.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    fn place() -> (PathBuf, Arc<OwnedFd>) {
        let path = std::env::temp_dir().join(format!("rt-lease-{}", unique()));
        fs::create_dir_all(&path).unwrap();
        let dir = disk::open_root(&path).unwrap();
        (path, Arc::new(dir))
    }

    fn age(path: PathBuf) {
        let old = SystemTime::now() - STALE * 2;
        fs::File::open(&path).unwrap().set_modified(old).unwrap();
    }

    #[test]
    fn one_holder_and_takeover() {
        let (path, dir) = place();
        let first = acquire(&dir, "x").unwrap().expect("free");
        assert!(acquire(&dir, "x").unwrap().is_none());
        assert!(held(dir.as_fd(), "x"));
        assert!(acquire(&dir, "y").unwrap().is_some());
        drop(first);
        assert!(!held(dir.as_fd(), "x"));

        // A dead process of this machine is seen at once.
        let dead = Holder { pid: i32::MAX - 7, ..Holder::this_process() };
        fs::write(path.join("x.lease.4"), dead.text()).unwrap();
        let second = acquire(&dir, "x").unwrap().expect("its holder is dead");
        assert_eq!(second.name, "x.lease.5");
        assert!(!path.join("x.lease.4").exists());
        drop(second);

        // One of another machine by its age alone.
        let far = Holder { place: "other".into(), pid: 1, started: "1".into() };
        fs::write(path.join("x.lease.1"), far.text()).unwrap();
        assert!(acquire(&dir, "x").unwrap().is_none());
        age(path.join("x.lease.1"));
        assert!(acquire(&dir, "x").unwrap().is_some());
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0, "nothing is left");
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn a_process_that_has_ended_holds_nothing() {
        let (path, dir) = place();
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let pid = child.id() as i32;
        let holder = Holder { pid, started: start_time(pid), ..Holder::this_process() };
        fs::write(path.join("x.lease.1"), holder.text()).unwrap();
        assert!(acquire(&dir, "x").unwrap().is_none());
        // It ends, and nobody waits for it: a zombie.
        drop(child.stdin.take());
        let end = std::time::Instant::now() + Duration::from_secs(20);
        while stat(pid).is_some_and(|stat| !stat.dead) && std::time::Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(acquire(&dir, "x").unwrap().is_some());
        child.wait().unwrap();
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn what_is_no_lease_holds_nothing() {
        let (path, dir) = place();
        disk::fifo(dir.as_fd(), b"x.lease.4294967295", 0o666).unwrap();
        std::os::unix::fs::symlink("/dev/zero", path.join("x.lease.7")).unwrap();
        fs::write(path.join("x.lease.18446744073709551615"), "").unwrap();
        fs::write(path.join("x.lease.9"), vec![b'x'; 1 << 20]).unwrap();
        age(path.join("x.lease.9"));
        assert!(!held(dir.as_fd(), "x"));
        assert!(acquire(&dir, "x").unwrap().is_some());
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn marks_tell_the_dead() {
        let (path, dir) = place();
        let mark = |holder: &Holder| {
            fs::write(path.join("mark"), holder.text()).unwrap();
            abandoned(dir.as_fd(), b"mark")
        };
        assert_eq!(abandoned(dir.as_fd(), b"mark"), None);
        sign(dir.as_fd(), b"mark").unwrap();
        assert_eq!(abandoned(dir.as_fd(), b"mark"), Some(false));
        assert_eq!(mark(&Holder { pid: i32::MAX - 7, ..Holder::this_process() }), Some(true));
        let another = Holder { started: "1".into(), ..Holder::this_process() };
        assert_eq!(mark(&another), Some(true), "the number went to another");
        // Of another machine by its age alone; what nobody signed never.
        let far = Holder { place: "other".into(), pid: 1, started: "1".into() };
        assert_eq!(mark(&far), Some(false));
        age(path.clone());
        assert_eq!(abandoned(dir.as_fd(), b"mark"), Some(true));
        fs::write(path.join("mark"), "").unwrap();
        assert_eq!(abandoned(dir.as_fd(), b"mark"), None);
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn of_many_one() {
        let (path, dir) = place();
        let holders: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..16).map(|_| scope.spawn(|| acquire(&dir, "x").unwrap())).collect();
            let leases: Vec<_> = threads.into_iter().filter_map(|t| t.join().unwrap()).collect();
            leases.len()
        });
        assert!(holders <= 1, "{holders} holders");
        fs::remove_dir_all(&path).unwrap();
    }
}
