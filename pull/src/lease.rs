//! Leases: one worker at a time for a piece of work, across processes and nodes.
//!
//! A lease is a file that its holder renews by touching it. A lock of flock(2) or fcntl(2) would end with its process as
//! well, but network file systems are often mounted without locks, or with locks that only one node sees.
//!
//! A lease that has not been renewed for [`STALE`], or whose holder is a dead process of this machine, is passed over: the
//! next holder makes the lease with the next number. A process that was stopped lives and renews nothing, so it is passed
//! over like any other. Nothing is taken by renaming or removing, so a takeover needs no right over another user's files. Of
//! two processes that take over at once, one makes the link(2); link is atomic over NFS too (open(2), O_EXCL).
//!
//! Nodes can disagree about the time, so only times of the file server are compared: "now" is the time of a file that was
//! just made. Where a lease is of a later time than that, nobody knows how old it is, and whoever waits watches whether its
//! time changes. A holder that was stopped and goes on later does no harm, since each holder writes into a file of its own.

use std::collections::HashMap;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use super::holder::{Holder, STALE, TEXT_LIMIT};
use oci_content::interrupt::Interrupt;
use rt_sys::error::{Context, Result};
use rt_sys::{disk, fd};

/// How often leases are renewed.
const RENEW: Duration = Duration::from_secs(4);
/// After this time of waiting, the log says for whom a process waits.
const SILENT_WAIT: Duration = Duration::from_secs(2);

/// A held lease; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Lease {
    dir: Arc<OwnedFd>,
    name: String,
    /// The text of its file: whose the lease is, and a random line that tells two leases of one name apart.
    text: String,
    /// What keeps the lease fresh once it was won.
    renewal: Option<Renewal>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.renewal = None;
        // Where this process was stopped for long, others have taken over, and the name can be that of their lease by now.
        // What cannot be read is taken for this process's own, as it is but for that.
        let read = disk::open_file(self.dir.as_fd(), self.name.as_bytes());
        let text = read.and_then(|file| fd::read_regular(file, TEXT_LIMIT));
        if !matches!(text, Ok(Some(text)) if text != self.text.as_bytes()) {
            let _ = disk::unlink(self.dir.as_fd(), self.name.as_bytes());
        }
    }
}

/// Touches a name in a directory every few seconds, for others to see that somebody works; until dropped.
#[derive(Debug)]
pub(crate) struct Renewal(Renewed);

/// A name in a directory, which is renewed.
#[derive(Debug, Clone)]
struct Renewed {
    dir: Arc<OwnedFd>,
    name: String,
}

impl Renewal {
    /// Starts the thread that touches the name.
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
    Wanted::new(dir, name, name).acquire()
}

/// A lease that a process wants and asks for until it has it, with what it has seen of those that others have.
pub(crate) struct Wanted<'a> {
    dir: &'a Arc<OwnedFd>,
    name: &'a str,
    /// What it is called in messages.
    shown: &'a str,
    seen: Watch,
    /// Who has it.
    holder: Option<Holder>,
    began: Instant,
    pause: Duration,
    /// The log has said for whom this process waits.
    announced: bool,
}

impl<'a> Wanted<'a> {
    /// The lease on `name` in `dir`, which is called `shown` in messages.
    pub(crate) fn new(dir: &'a Arc<OwnedFd>, name: &'a str, shown: &'a str) -> Wanted<'a> {
        Wanted {
            dir,
            name,
            shown,
            seen: Watch::default(),
            holder: None,
            began: Instant::now(),
            pause: Duration::from_millis(20),
            announced: false,
        }
    }

    /// Takes it; none where somebody else has it.
    ///
    /// # Errors
    /// Also where it cannot be found out whether the holder of a lease lives.
    pub(crate) fn acquire(&mut self) -> Result<Option<Lease>> {
        let here = self.dir.as_fd();
        let known = list(here, self.name)?;
        let me = Holder::this_process()?;
        // This is asked again and again while another process works, so it writes nothing where the answer needs no clock.
        for (_, file) in &known {
            if let Some(found) = Found::living(here, file, &me)?
                && self.seen.counts_still(file, found.modified)
            {
                self.holder = found.holder;
                return Ok(None);
            }
        }
        let draft = format!("{}.draft-{}", self.name, rt_sys::unique::name());
        let made = self.make_lease(&known, &draft, &me);
        let _ = disk::unlink(here, draft.as_bytes());
        made
    }

    /// Makes the lease with the next number, unless one of those that are `known` counts.
    fn make_lease(&mut self, known: &[(u32, String)], draft: &str, me: &Holder) -> Result<Option<Lease>> {
        let (here, name) = (self.dir.as_fd(), self.name);
        // The last line tells two leases of one process apart.
        let text = format!("{}{}\n", me.text(), rt_sys::unique::name());
        write_new(here, draft, &text)?;
        let now = disk::modified(disk::open_file(here, draft.as_bytes())?)?;
        if self.is_held(known.iter().map(|(_, file)| file), now, me)? {
            return Ok(None);
        }
        let number = next_number(known);
        let won = format!("{name}.lease.{number}");
        if !claim(here, draft, &won, &text)? {
            return Ok(None);
        }
        let mut lease = Lease { dir: self.dir.clone(), name: won, text, renewal: None };
        // Another process may have seen other leases when it chose its number, since one was given back meanwhile. Whoever
        // sees a second one gives up; both may, and then both try again.
        let others = list(here, name)?;
        let others = others.iter().map(|(_, file)| file).filter(|file| **file != lease.name);
        if self.is_held(others, now, me)? {
            return Ok(None);
        }
        for (_, file) in known {
            let _ = disk::unlink(here, file.as_bytes());
        }
        lease.renewal = Some(Renewal::start(self.dir, &lease.name)?);
        Ok(Some(lease))
    }

    /// True where one of the leases in `files` counts. `now` is the file server's time.
    fn is_held<'f>(
        &mut self,
        files: impl Iterator<Item = &'f String>,
        now: Duration,
        me: &Holder,
    ) -> Result<bool> {
        for file in files {
            if let Some(found) = Found::living(self.dir.as_fd(), file, me)?
                && self.seen.counts(file, found.modified, now)
            {
                self.holder = found.holder;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Sleeps until it is to be asked for again, each time longer, and says once for whom.
    ///
    /// # Errors
    /// This process was asked to stop.
    pub(crate) fn wait(&mut self, interrupt: &Interrupt) -> Result<()> {
        if !self.announced && self.began.elapsed() >= SILENT_WAIT {
            self.announced = true;
            match &self.holder {
                Some(holder) => log::info!("{}: waiting for {holder}, which works on it", self.shown),
                None => log::info!("{}: waiting for somebody who works on it", self.shown),
            }
        }
        interrupt.sleep(self.pause)?;
        self.pause = (self.pause * 2).min(Duration::from_millis(500));
        Ok(())
    }
}

/// Until when leases count that nobody renews: for each its time, and a moment of this process's own clock.
#[derive(Debug, Default)]
struct Watch(HashMap<String, (Duration, Instant)>);

impl Watch {
    /// True where a lease counts by what was seen of it before. Otherwise it needs the file server's clock to say.
    fn counts_still(&mut self, file: &str, modified: Duration) -> bool {
        let Some((before, until)) = self.0.get_mut(file) else { return false };
        if modified > *before {
            (*before, *until) = (modified, Instant::now() + STALE);
            return true;
        }
        modified == *before && Instant::now() < *until
    }

    /// True where a lease of this time counts at the time `now`.
    fn counts(&mut self, file: &str, modified: Duration, now: Duration) -> bool {
        let seen = self.0.get(file).filter(|(before, _)| *before == modified);
        let until = match (now.checked_sub(modified), seen) {
            (Some(age), _) => Instant::now() + STALE.saturating_sub(age),
            // The file server's clock may be ahead of it. Such a lease is old once this process has watched it for long.
            (None, Some((_, until))) => *until,
            (None, None) => Instant::now() + STALE,
        };
        self.0.insert(file.to_owned(), (modified, until));
        Instant::now() < until
    }
}

/// A lease of which nobody knows that its holder is dead.
struct Found {
    /// None where its text says nobody: a process that reads it before its text is there goes by its time.
    holder: Option<Holder>,
    /// When it was renewed.
    modified: Duration,
}

impl Found {
    /// What is in the lease `file`; none where there is none any more, or its holder is dead.
    ///
    /// # Errors
    /// The kernel does not say whether the lease's holder lives.
    fn living(dir: BorrowedFd, file: &str, me: &Holder) -> Result<Option<Found>> {
        // The file is opened before it is asked for its time: then an NFS client asks the server (close-to-open consistency,
        // nfs(5)), and does not answer from its cache.
        let opened = match disk::open_if_file(dir, file.as_bytes()) {
            // It has been given back. ESTALE is what NFS says of a file that another node has removed.
            Err(e) if e.is(libc::ENOENT) || e.is(libc::ESTALE) => return Ok(None),
            // Somebody has mounted something on it: it is no lease.
            Err(e) if e.is(libc::EXDEV) => return Ok(None),
            // Somebody does not let others read it.
            Err(e) if e.is(libc::EACCES) || e.is(libc::EPERM) => {
                let modified = disk::modified(disk::open_any(dir, file.as_bytes())?)?;
                return Ok(Some(Found { holder: None, modified }));
            }
            opened => opened?,
        };
        // A link, a fifo or the like is no lease.
        let Some(opened) = opened else { return Ok(None) };
        let modified = disk::modified(&opened)?;
        let text = match fd::read_regular(&opened, TEXT_LIMIT) {
            Err(e) if e.is(libc::ESTALE) => return Ok(None),
            text => text.context(|| format!("read the lease {file}"))?,
        };
        let holder = text.and_then(|text| Holder::parse(&text));
        let gone = holder.as_ref().map_or(Ok(false), |holder| holder.is_gone(me))?;
        Ok((!gone).then_some(Found { holder, modified }))
    }
}

/// Gives a draft its name as a lease. False where another was faster.
fn claim(dir: BorrowedFd, draft: &str, name: &str, text: &str) -> Result<bool> {
    let linked = match disk::link(dir, draft.as_bytes(), dir, name.as_bytes()) {
        // File systems without hard links. A process that reads the lease before its text is there goes by its time.
        Err(e) if !e.is(libc::EEXIST) => write_new(dir, name, text),
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

/// Which leases are held, as of one moment.
pub(crate) struct Moment<'a> {
    dir: BorrowedFd<'a>,
    now: Duration,
    me: Holder,
}

impl Moment<'_> {
    /// This moment, by the clock of the file server that has `dir`.
    ///
    /// # Errors
    /// Nothing can be made in `dir`.
    pub(crate) fn of(dir: BorrowedFd) -> Result<Moment> {
        let file = format!("now.draft-{}", rt_sys::unique::name());
        let now = write_new(dir, &file, "")
            .and_then(|()| disk::open_file(dir, file.as_bytes()))
            .and_then(disk::modified);
        let _ = disk::unlink(dir, file.as_bytes());
        let now = match now {
            // Room is about to be made. Nodes differ by less than leases last, as a rule.
            Err(e) if e.is(libc::ENOSPC) || e.is(libc::EDQUOT) => {
                SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
            }
            now => now?,
        };
        Ok(Moment { dir, now, me: Holder::this_process()? })
    }

    /// Removes the leases of dead processes, and those that nobody renews, with the drafts of such.
    pub(crate) fn sweep(&self) -> Result<()> {
        for (file, _) in disk::entries(self.dir)? {
            let Ok(file) = String::from_utf8(file) else { continue };
            if [".lease.", ".draft-"].iter().any(|part| file.contains(part)) && !self.counts(&file)? {
                match disk::unlink(self.dir, file.as_bytes()) {
                    // A lease of another user stays. EBUSY: somebody has mounted something on it.
                    Err(e) if [libc::EPERM, libc::EACCES, libc::EBUSY].iter().any(|no| e.is(*no)) => {}
                    unlinked => unlinked?,
                }
            }
        }
        Ok(())
    }

    fn counts(&self, file: &str) -> Result<bool> {
        let found = Found::living(self.dir, file, &self.me)?;
        Ok(found.is_some_and(|found| Watch::default().counts(file, found.modified, self.now)))
    }

    /// True where somebody holds a lease on `name`.
    pub(crate) fn held(&self, name: &str) -> Result<bool> {
        for (_, file) in list(self.dir, name)? {
            if self.counts(&file)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The number of the next lease: after all that are known. Whoever can write in the directory can have made the name of the
/// highest number, after which the lowest free one is taken: one that [`list`] does not read would be nobody's.
fn next_number(known: &[(u32, String)]) -> u32 {
    let taken = |number: &u32| known.iter().any(|(other, _)| other == number);
    let highest = known.iter().map(|(number, _)| *number).max().unwrap_or(0);
    highest.checked_add(1).unwrap_or_else(|| (1..u32::MAX).find(|number| !taken(number)).unwrap_or(u32::MAX))
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    fn place() -> (PathBuf, Arc<OwnedFd>) {
        let path = std::env::temp_dir().join(format!("rt-lease-{}", rt_sys::unique::name()));
        fs::create_dir_all(&path).unwrap();
        let dir = disk::open_root(&path).unwrap();
        (path, Arc::new(dir))
    }

    fn age(path: PathBuf) {
        let old = SystemTime::now() - STALE * 2;
        fs::File::open(&path).unwrap().set_modified(old).unwrap();
    }

    fn held(dir: &Arc<OwnedFd>, name: &str) -> bool {
        Moment::of(dir.as_fd()).unwrap().held(name).unwrap()
    }

    #[test]
    fn one_holder_and_takeover() {
        let (path, dir) = place();
        let first = acquire(&dir, "x").unwrap().expect("free");
        assert!(acquire(&dir, "x").unwrap().is_none());
        assert!(held(&dir, "x"));
        assert!(acquire(&dir, "y").unwrap().is_some());
        drop(first);
        assert!(!held(&dir, "x"));

        // A dead process of this machine is seen at once.
        let mine = Holder::this_process().unwrap().text();
        let dead = mine.replace(&format!("\n{}\n", std::process::id()), "\n2147483640\n");
        fs::write(path.join("x.lease.4"), dead).unwrap();
        let second = acquire(&dir, "x").unwrap().expect("its holder is dead");
        assert_eq!(second.name, "x.lease.5");
        assert!(!path.join("x.lease.4").exists());
        drop(second);

        // One of another machine by its age alone, and a living one of this machine as well, since it renews nothing.
        for text in ["other\n1\n1\n", &mine] {
            fs::write(path.join("x.lease.1"), text).unwrap();
            assert!(acquire(&dir, "x").unwrap().is_none() && held(&dir, "x"));
            age(path.join("x.lease.1"));
            assert!(!held(&dir, "x"));
            assert!(acquire(&dir, "x").unwrap().is_some());
        }
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0, "nothing is left");
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn a_process_that_has_ended_holds_nothing() {
        let (path, dir) = place();
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let holder = Holder::of(child.id() as i32).unwrap();
        fs::write(path.join("x.lease.1"), holder.text()).unwrap();
        assert!(acquire(&dir, "x").unwrap().is_none());
        // It ends, and nobody waits for it: a zombie.
        drop(child.stdin.take());
        let end = Instant::now() + Duration::from_secs(20);
        while !holder.is_gone(&Holder::this_process().unwrap()).unwrap() && Instant::now() < end {
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
        assert!(!held(&dir, "x"));
        assert!(acquire(&dir, "x").unwrap().is_some());
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn times_are_watched() {
        let (at, mut watch) = (Duration::from_secs, Watch::default());
        assert!(!watch.counts_still("x", at(100)), "nothing is known yet");
        assert!(watch.counts("x", at(100), at(110)) && watch.counts_still("x", at(100)));
        assert!(!watch.counts("x", at(100), at(100) + STALE), "it is old");
        assert!(!watch.counts_still("x", at(100)));
        assert!(watch.counts_still("x", at(101)), "it was renewed");
        assert!(!watch.counts_still("x", at(99)), "a clock was set back");
        // A time to come: the lease is old once it has been watched for long.
        assert!(watch.counts("y", at(500), at(100)) && watch.counts_still("y", at(500)));
        watch.0.insert("y".into(), (at(500), Instant::now()));
        assert!(!watch.counts_still("y", at(500)) && !watch.counts("y", at(500), at(100)));
        assert!(watch.counts_still("y", at(501)), "it was renewed");
    }

    /// A process that was stopped for long finds its name with somebody else.
    #[test]
    fn only_ones_own_is_given_back() {
        let (path, dir) = place();
        let lease = acquire(&dir, "x").unwrap().expect("free");
        fs::write(path.join(&lease.name), Holder::this_process().unwrap().text()).unwrap();
        let file = path.join(&lease.name);
        drop(lease);
        assert!(file.exists());
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
