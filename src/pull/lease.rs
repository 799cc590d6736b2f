//! One worker at a time, across processes and nodes, without lock files on which the dead sit.
//!
//! A lease is a file that its holder renews by touching it; one that was not renewed for
//! [`STALE`], or whose holder is a dead process of this very machine, is passed by making the lease
//! with the next number. Nothing is ever stolen by renaming or removing, so a takeover needs no
//! right over another user's files, and two that take over at once meet at link(2), which only one
//! of them wins, also over NFS. Times are compared by the file server's clock alone: "now" is the
//! time of a file that was just made.
//!
//! A holder that was stopped and wakes up again does no harm: each writes into a file of its own.
//!
//! What belongs to one process alone needs no lease: its name says whose it is ([`signed`]).

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, SystemTime};

use super::digest::Digest;
use super::disk;
use crate::error::{Context, Result};
use crate::sys::{fd, process};

/// A lease that was not renewed for so long is given up.
const STALE: Duration = Duration::from_secs(30);
/// How often leases are renewed.
const RENEW: Duration = Duration::from_secs(4);

/// A held lease; dropping it gives it back.
#[derive(Debug)]
pub struct Lease {
    path: PathBuf,
    /// Of a lease that was won.
    renewal: Option<Renewal>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.renewal = None;
        let _ = fs::remove_file(&self.path);
    }
}

/// Touches a path every few seconds, for other machines to see that somebody lives; until dropped.
#[derive(Debug)]
pub struct Renewal(PathBuf);

impl Renewal {
    /// Begins to.
    pub fn start(path: &Path) -> Renewal {
        renewed().push(path.to_owned());
        Renewal(path.to_owned())
    }
}

impl Drop for Renewal {
    fn drop(&mut self) {
        renewed().retain(|path| *path != self.0);
    }
}

/// Takes the lease on `name` in `dir`, or says (by none) that somebody else has it.
pub fn acquire(dir: &Path, name: &str) -> Result<Option<Lease>> {
    let known = list(dir, name)?;
    let me = Holder::this_process();
    // Without a write, where the holder is a living process of this machine.
    if known.iter().any(|(_, path)| Holder::read(path).is_some_and(|h| h.lives_beside(&me) == Some(true))) {
        return Ok(None);
    }
    let draft = dir.join(format!("{name}.draft-{}", unique()));
    let made = (|| -> Result<Option<Lease>> {
        let mut file = fs::File::options()
            .write(true)
            .create_new(true)
            .mode(0o644)
            .open(&draft)
            .context(|| "make a lease")?;
        file.write_all(me.text().as_bytes()).context(|| "write a lease")?;
        let now = modified(&draft).unwrap_or_default();
        if known.iter().any(|(_, path)| fresh(path, now, &me)) {
            return Ok(None);
        }
        let number = known.iter().map(|(number, _)| *number).max().unwrap_or(0) + 1;
        let path = dir.join(format!("{name}.lease.{number}"));
        if !claim(&draft, &path, &me)? {
            return Ok(None);
        }
        let mut lease = Lease { path, renewal: None };
        // Another may have counted from a lease that was given back meanwhile.
        let others = list(dir, name)?;
        let mut others = others.iter().filter(|(_, path)| *path != lease.path);
        if others.any(|(_, path)| fresh(path, now, &me)) {
            return Ok(None);
        }
        for (_, path) in known {
            let _ = fs::remove_file(path);
        }
        lease.renewal = Some(Renewal::start(&lease.path));
        Ok(Some(lease))
    })();
    let _ = fs::remove_file(&draft);
    made
}

/// Gives a draft its name as a lease. False where another was faster.
fn claim(draft: &Path, path: &Path, me: &Holder) -> Result<bool> {
    let taken = |e: &std::io::Error| e.kind() == std::io::ErrorKind::AlreadyExists;
    match fs::hard_link(draft, path) {
        Ok(()) => return Ok(true),
        Err(e) if taken(&e) => return Ok(false),
        // File systems without hard links; who reads it before it is written goes by its time.
        Err(_) => {}
    }
    match fs::File::options().write(true).create_new(true).mode(0o644).open(path) {
        Ok(mut file) => file.write_all(me.text().as_bytes()).context(|| "write a lease").map(|()| true),
        Err(e) if taken(&e) => Ok(false),
        Err(e) => Err(e).context(|| format!("make {}", path.display())),
    }
}

/// True while somebody holds a lease on `name`.
pub fn held(dir: &Path, name: &str) -> bool {
    let me = Holder::this_process();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    list(dir, name).unwrap_or_default().iter().any(|(_, path)| fresh(path, now, &me))
}

/// A name that no other process uses.
pub fn unique() -> String {
    use std::hash::{BuildHasher, Hasher};
    format!("{:016x}", std::collections::hash_map::RandomState::new().build_hasher().finish())
}

/// A name that no other process uses and that tells this process from the dead.
pub fn signed() -> String {
    let me = Holder::this_process();
    format!("{}.{}.{}.{}", me.place_digest(), me.pid, me.started, unique())
}

/// True where the process that made `path` and [`signed`] it so is dead, or of another machine and
/// silent for long.
pub fn abandoned(path: &Path, signature: &str) -> bool {
    let parts: Vec<&str> = signature.split('.').collect();
    let [place, pid, started, _] = parts[..] else { return false };
    let me = Holder::this_process();
    match pid.parse() {
        Ok(pid) if place == me.place_digest() => !alive(pid, started),
        Ok(_) => {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            modified(path).is_some_and(|at| now.saturating_sub(at) > STALE)
        }
        Err(_) => false,
    }
}

fn list(dir: &Path, name: &str) -> Result<Vec<(u64, PathBuf)>> {
    let mut leases = Vec::new();
    for entry in fs::read_dir(dir).context(|| format!("read {}", dir.display()))?.flatten() {
        let file = entry.file_name();
        let number = file.to_str().and_then(|f| f.strip_prefix(name)).and_then(|f| f.strip_prefix(".lease."));
        if let Some(number) = number.and_then(|n| n.parse().ok()) {
            leases.push((number, entry.path()));
        }
    }
    Ok(leases)
}

fn fresh(path: &Path, now: Duration, me: &Holder) -> bool {
    match Holder::read(path).and_then(|holder| holder.lives_beside(me)) {
        Some(lives) => lives,
        None => modified(path).is_some_and(|at| now.saturating_sub(at) < STALE),
    }
}

/// Opened before it is asked, which makes NFS look at the server.
fn modified(path: &Path) -> Option<Duration> {
    let metadata = fs::File::open(path).and_then(|file| file.metadata()).ok()?;
    Some(Duration::new(u64::try_from(metadata.mtime()).ok()?, u32::try_from(metadata.mtime_nsec()).ok()?))
}

/// The leases of this process, and the thread that renews them.
fn renewed() -> std::sync::MutexGuard<'static, Vec<PathBuf>> {
    static HELD: OnceLock<Mutex<Vec<PathBuf>>> = OnceLock::new();
    let held = HELD.get_or_init(|| {
        std::thread::spawn(|| {
            loop {
                std::thread::sleep(RENEW);
                for path in renewed().iter() {
                    let _ = disk::touch(path);
                }
            }
        });
        Mutex::default()
    });
    held.lock().unwrap_or_else(|e| e.into_inner())
}

/// Who holds a lease: enough to see that a process of this machine is dead.
#[derive(Debug, PartialEq, Eq)]
struct Holder {
    /// Host name, boot and PID namespace: where the number means something.
    place: String,
    pid: i32,
    started: String,
}

impl Holder {
    fn this_process() -> Holder {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let place = format!("{} {} {}", disk::host_name(), boot.trim(), namespace.display());
        let pid = std::process::id() as i32;
        Holder { place, pid, started: start_time(pid) }
    }

    fn text(&self) -> String {
        format!("{}\n{}\n{}\n", self.place, self.pid, self.started)
    }

    fn read(path: &Path) -> Option<Holder> {
        let text = fs::read_to_string(path).ok()?;
        let mut lines = text.lines();
        let (place, pid, started) = (lines.next()?, lines.next()?, lines.next()?);
        Some(Holder { place: place.to_owned(), pid: pid.parse().ok()?, started: started.to_owned() })
    }

    /// None where the holder is not of this machine.
    fn lives_beside(&self, me: &Holder) -> Option<bool> {
        (self.place == me.place).then(|| alive(self.pid, &self.started))
    }

    /// The place in a few letters, for names.
    fn place_digest(&self) -> String {
        Digest::of(self.place.as_bytes()).hex()[..16].to_owned()
    }
}

fn alive(pid: i32, started: &str) -> bool {
    disk::process_lives(pid) && start_time(pid) == started
}

/// In ticks since the boot; empty where there is no such process.
fn start_time(pid: i32) -> String {
    let stat = fd::open_proc().and_then(|proc| process::stat(proc, &pid.to_string()));
    stat.map(|stat| stat.start_time.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holder_and_takeover() {
        let dir = std::env::temp_dir().join(format!("rt-lease-{}", unique()));
        fs::create_dir_all(&dir).unwrap();
        let first = acquire(&dir, "x").unwrap().expect("free");
        assert!(acquire(&dir, "x").unwrap().is_none());
        assert!(held(&dir, "x"));
        assert!(acquire(&dir, "y").unwrap().is_some());
        drop(first);
        assert!(!held(&dir, "x"));

        // A dead process of this machine is seen at once.
        let dead = Holder { pid: i32::MAX - 7, ..Holder::this_process() };
        fs::write(dir.join("x.lease.4"), dead.text()).unwrap();
        let second = acquire(&dir, "x").unwrap().expect("its holder is dead");
        assert!(second.path.ends_with("x.lease.5"));
        assert!(!dir.join("x.lease.4").exists());
        drop(second);

        // One of another machine by its age alone.
        let far = Holder { place: "other".into(), pid: 1, started: "1".into() };
        let path = dir.join("x.lease.1");
        fs::write(&path, far.text()).unwrap();
        assert!(acquire(&dir, "x").unwrap().is_none());
        let old = SystemTime::now() - STALE * 2;
        fs::File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
        assert!(acquire(&dir, "x").unwrap().is_some());
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0, "nothing is left");
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn signatures_tell_the_dead() {
        let here = std::env::temp_dir();
        let mine = signed();
        assert!(!abandoned(&here, &mine));
        let parts: Vec<&str> = mine.split('.').collect();
        let [place, pid, started, unique] = parts[..] else { panic!("{mine}") };
        assert!(abandoned(&here, &format!("{place}.{}.{started}.{unique}", i32::MAX - 7)));
        assert!(abandoned(&here, &format!("{place}.{pid}.1.{unique}")), "the number went to another");
        // Of another machine by its age alone; what nobody signed never.
        let far = format!("0123456789abcdef.{pid}.{started}.{unique}");
        let file = here.join(format!("rt-signed-{unique}"));
        fs::write(&file, "").unwrap();
        assert!(!abandoned(&file, &far));
        let old = SystemTime::now() - STALE * 2;
        fs::File::options().write(true).open(&file).unwrap().set_modified(old).unwrap();
        assert!(abandoned(&file, &far));
        assert!(!abandoned(&file, "old") && !abandoned(&file, "a.b.c.d"));
        fs::remove_file(&file).unwrap();
    }

    #[test]
    fn of_many_one() {
        let dir = std::env::temp_dir().join(format!("rt-lease-{}", unique()));
        fs::create_dir_all(&dir).unwrap();
        let holders: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..16).map(|_| scope.spawn(|| acquire(&dir, "x").unwrap())).collect();
            let leases: Vec<_> = threads.into_iter().filter_map(|t| t.join().unwrap()).collect();
            leases.len()
        });
        assert!(holders <= 1, "{holders} holders");
        fs::remove_dir_all(&dir).unwrap();
    }
}
