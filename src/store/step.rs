//! Containers that the tasks of a step share: who makes one, who joins, and who is the last.
//!
//! The container's directory is its lock. Who makes the container, or removes it, holds the lock alone; who
//! joins holds it together with others. Both hold it until their exec or their end, so the kernel lets go
//! where they are killed. Each member is a link `task.N` to its pid and mark, made when the member is in the
//! namespaces. A link `first` says all that one who joins must know, for one system call. A container without
//! a living member is nobody's: who comes next clears it and makes it anew.

use super::{Entry, IN_PLACE, Mark, Store, check_id, does_not_exist, list_names, open_dir};
use rt_sys::error::{Context, Result};
use rt_sys::{err, fd, process};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, FileType, FlockOperation, Mode};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const MEMBER: &str = "task.";
const FIRST: &str = "first";

/// What a task finds when it comes.
#[derive(Debug)]
pub(crate) enum Found {
    /// Nobody lives in the container: the task makes it, and has the lock alone.
    Nobody(Entry),
    /// A member lives. The task has the lock with others.
    Member(Entry, Living),
}

/// A member that lives in a shared container.
#[derive(Debug)]
pub(crate) struct Living {
    /// Who it is.
    pub member: Note,
    /// A descriptor of the process (pidfd_open(2)).
    pub pidfd: OwnedFd,
    /// The signals that the first task was started with ignored, bit n-1 for signal n. One process starts all tasks.
    pub ignored: u64,
    /// The root file system of the container, absolute.
    pub rootfs: PathBuf,
}

/// A process that a task has become, as it is noted. It may have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Note {
    /// The task's number on this node.
    pub task: u32,
    /// Its pid.
    pub pid: i32,
    /// What tells it from a later process with that pid.
    pub mark: Mark,
}

/// The same, alive a moment ago.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Member {
    /// The task's number on this node.
    pub task: u32,
    /// Its pid.
    pub pid: i32,
    /// Its start time in clock ticks since boot.
    pub start_time: u64,
}

impl Note {
    /// A descriptor of the process (pidfd_open(2)); `None` where it has ended. `proc` is /proc.
    pub(crate) fn open(&self, proc: impl AsFd) -> Option<OwnedFd> {
        self.mark.open(self.pid, proc)
    }

    fn living(&self, proc: &OwnedFd) -> Option<Member> {
        let _held = self.open(proc)?;
        let start_time = process::stat(proc, &self.pid.to_string()).ok()?.start_time;
        Some(Member { task: self.task, pid: self.pid, start_time })
    }

    fn parse(task: &str, pid: &str, mark: &str) -> Option<Note> {
        Some(Note { task: task.parse().ok()?, pid: pid.parse().ok()?, mark: Mark::parse(mark)? })
    }
}

impl Store {
    /// Enters the directory of the shared container `id`, which is made where it is missing. `alone` waits until
    /// nobody is making or joining it, whatever is found. `proc` is /proc.
    pub(crate) fn enter_shared(&self, id: &str, alone: bool, proc: BorrowedFd<'_>) -> Result<Found> {
        check_id(id)?;
        let root = self.dir.as_ref().ok_or_else(|| err!("the state directory is missing"))?;
        loop {
            let dir = match open_dir(root, id) {
                Ok(dir) => dir,
                Err(Errno::NOENT) => match fs::mkdirat(root, id, Mode::RWXU) {
                    Ok(()) | Err(Errno::EXIST) => continue,
                    Err(e) => return Err(e).context(|| format!("make {}", self.root.join(id).display())),
                },
                Err(e) => return Err(e).context(|| format!("open {}", self.root.join(id).display())),
            };
            let entry = Entry { id: id.to_owned(), dir };
            let kind = if alone { FlockOperation::LockExclusive } else { FlockOperation::LockShared };
            lock(&entry, kind)?;
            if let Some(living) = entry.living(proc) {
                return Ok(Found::Member(entry, living));
            }
            // Waits for those who are joining, of whom one may live on.
            lock(&entry, FlockOperation::LockExclusive)?;
            if let Some(living) = entry.living(proc) {
                lock(&entry, FlockOperation::LockShared)?;
                return Ok(Found::Member(entry, living));
            }
            if entry.is_removed() {
                continue;
            }
            entry.clear()?;
            return Ok(Found::Nobody(entry));
        }
    }

    /// Removes member `task` of a shared container, and the container with the last one. True for that.
    pub(crate) fn leave(&self, entry: &Entry, task: u32) -> Result<bool> {
        lock(entry, FlockOperation::LockExclusive)?;
        entry.remove_member(task);
        let last = entry.living(fd::open_proc()?.as_fd()).is_none();
        if last && !entry.is_removed() {
            self.forget_shared(&entry.id);
            self.remove(entry)?;
        }
        entry.unlock()?;
        Ok(last)
    }

    /// Removes the shared container `id` if nobody lives in it or is about to. True where it is gone.
    pub(super) fn forget_dead_shared(&self, id: &str) -> Result<bool> {
        let Ok(entry) = self.entry(id) else { return Ok(true) };
        match fs::flock(&entry.dir, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Ok(false),
            result => result?,
        }
        if entry.living(fd::open_proc()?.as_fd()).is_some() {
            return Ok(false);
        }
        if !entry.is_removed() {
            // First: whoever makes the container anew notes it again.
            self.forget_shared(id);
            self.remove(&entry)?;
        }
        Ok(true)
    }

    /// Notes a shared container, so that it is swept away when its last member has ended.
    pub(crate) fn note_shared(&self, id: &str) -> Result<()> {
        let root = self.dir.as_ref().ok_or_else(|| does_not_exist(id))?;
        let name = format!("{IN_PLACE}/{id}");
        loop {
            match fs::symlinkat(id, root, name.as_str()) {
                Ok(()) | Err(Errno::EXIST) => return Ok(()),
                Err(Errno::NOENT) => match fs::mkdirat(root, IN_PLACE, Mode::RWXU) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(e) => return Err(e.into()),
                },
                Err(e) => return Err(e).context(|| "note the container"),
            }
        }
    }

    /// Removes that note.
    pub(crate) fn forget_shared(&self, id: &str) {
        if let Some(root) = &self.dir {
            let _ = fs::unlinkat(root, format!("{IN_PLACE}/{id}").as_str(), fs::AtFlags::empty());
            let _ = fs::unlinkat(root, IN_PLACE, fs::AtFlags::REMOVEDIR);
        }
    }
}

impl Entry {
    /// Makes `member` known. It is in the container's namespaces.
    pub(crate) fn add_member(&self, member: Note) -> Result<()> {
        let name = format!("{MEMBER}{}", member.task);
        let text = format!("{} {}", member.pid, member.mark.text());
        loop {
            match fs::symlinkat(text.as_str(), &self.dir, name.as_str()) {
                // A task of this number that was there before, in a step that is run again.
                Err(Errno::EXIST) => self.remove_member(member.task),
                result => return result.context(|| format!("note task {}", member.task)),
            }
        }
    }

    /// Makes the container known to those who join, by the member that has made it and the signals that it was
    /// started with ignored.
    pub(crate) fn note_first(&self, member: Note, ignored: u64, rootfs: &Path) -> Result<()> {
        let Note { task, pid, mark } = member;
        let mut text = format!("{task} {pid} {} {ignored} ", mark.text()).into_bytes();
        text.extend_from_slice(rootfs.as_os_str().as_bytes());
        fs::symlinkat(text, &self.dir, FIRST).context(|| "note the container's first task")
    }

    /// Who has made the container, the signals that it ignored, and its root file system.
    fn first(&self) -> Option<(Note, u64, PathBuf)> {
        let text = fs::readlinkat(&self.dir, FIRST, Vec::with_capacity(256)).ok()?;
        let mut fields = text.to_bytes().splitn(5, |&byte| byte == b' ');
        let mut word = || std::str::from_utf8(fields.next()?).ok();
        let note = Note::parse(word()?, word()?, word()?)?;
        let ignored = word()?.parse().ok()?;
        Some((note, ignored, OsStr::from_bytes(fields.next()?).into()))
    }

    /// Forgets a member.
    pub(crate) fn remove_member(&self, task: u32) {
        let _ = fs::unlinkat(&self.dir, format!("{MEMBER}{task}").as_str(), fs::AtFlags::empty());
    }

    /// The members that were made known, ascending; some may have ended.
    pub(crate) fn members(&self) -> Vec<Note> {
        let names = list_names(&self.dir, FileType::Symlink).unwrap_or_default();
        let read = |name: &String| {
            let task = name.strip_prefix(MEMBER)?;
            let text = fs::readlinkat(&self.dir, name.as_str(), Vec::new()).ok()?;
            let (pid, mark) = text.to_str().ok()?.split_once(' ')?;
            Note::parse(task, pid, mark)
        };
        let mut members: Vec<Note> = names.iter().filter_map(read).collect();
        members.sort_unstable_by_key(|member| member.task);
        members
    }

    /// The members that live.
    pub(crate) fn living_members(&self) -> Vec<Member> {
        let Ok(proc) = fd::open_proc() else { return Vec::new() };
        self.members().iter().filter_map(|member| member.living(&proc)).collect()
    }

    /// A member that lives; `None` where there is none, and nobody is making one.
    fn living(&self, proc: BorrowedFd<'_>) -> Option<Living> {
        let (first, ignored, rootfs) = self.first()?;
        let mut others = None;
        let mut member = first;
        loop {
            if let Some(pidfd) = member.open(proc) {
                return Some(Living { member, pidfd, ignored, rootfs });
            }
            member = others.get_or_insert_with(|| self.members().into_iter()).next()?;
        }
    }

    /// Lets others make, join or remove the container.
    pub(crate) fn unlock(&self) -> Result<()> {
        Ok(fs::flock(&self.dir, FlockOperation::Unlock)?)
    }

    /// True where the directory has been removed since it was opened.
    fn is_removed(&self) -> bool {
        fs::fstat(&self.dir).is_ok_and(|stat| stat.st_nlink == 0)
    }
}

/// Waits for the lock. Signals end this process as usual.
fn lock(entry: &Entry, kind: FlockOperation) -> Result<()> {
    loop {
        match fs::flock(&entry.dir, kind) {
            Err(Errno::INTR) => {}
            result => return result.context(|| format!("lock the state of {}", entry.id)),
        }
    }
}
