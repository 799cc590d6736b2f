//! Containers that the tasks of a step share: who makes one, who joins, and who is the last.
//!
//! The container's directory is its lock. Who makes the container, or removes it, holds the lock alone; who
//! joins holds it together with others. Both hold it until their exec or their end, so the kernel lets go
//! where they are killed. Each member is a link `task.N` to its pid and start time, made when the member is in
//! the namespaces. A container without a living member is nobody's: who comes next clears it and makes it anew.

use super::{Entry, IN_PLACE, State, Store, check_id, does_not_exist, list_names, open_dir};
use crate::err;
use crate::error::{Context, Result};
use crate::sys::{fd, process};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, FileType, FlockOperation, Mode};
use rustix::io::Errno;

const MEMBER: &str = "task.";

/// What a task finds when it comes.
#[derive(Debug)]
pub enum Found {
    /// Nobody lives in the container: the task makes it, and has the lock alone.
    Nobody(Entry),
    /// A member lives, and `State` names it as the first process, of which there is a pidfd. The task has the lock
    /// with others.
    Member(Entry, Box<State>, OwnedFd),
}

/// A process that a task has become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// The task's number on this node.
    pub task: u32,
    /// Its pid.
    pub pid: i32,
    /// Its start time in clock ticks since boot.
    pub start_time: u64,
}

impl Member {
    /// True while the process lives; a zombie does not.
    pub fn is_alive(&self) -> bool {
        fd::open_proc().is_ok_and(|proc| self.lives(proc))
    }

    fn lives(&self, proc: impl AsFd) -> bool {
        process::stat(proc, &self.pid.to_string())
            .is_ok_and(|stat| stat.start_time == self.start_time && !stat.dead)
    }

    fn parse(name: &str, text: &str) -> Option<Member> {
        let (pid, start_time) = text.split_once(' ')?;
        Some(Member {
            task: name.strip_prefix(MEMBER)?.parse().ok()?,
            pid: pid.parse().ok()?,
            start_time: start_time.parse().ok()?,
        })
    }
}

impl Store {
    /// Enters the directory of the shared container `id`, which is made where it is missing. `alone` waits until
    /// nobody is making or joining it, whatever is found.
    pub fn enter_shared(&self, id: &str, alone: bool) -> Result<Found> {
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
            if let Some((state, first)) = entry.living() {
                return Ok(Found::Member(entry, Box::new(state), first));
            }
            // Waits for those who are joining, of whom one may live on.
            lock(&entry, FlockOperation::LockExclusive)?;
            if let Some((state, first)) = entry.living() {
                lock(&entry, FlockOperation::LockShared)?;
                return Ok(Found::Member(entry, Box::new(state), first));
            }
            if entry.is_removed() {
                continue;
            }
            entry.clear()?;
            return Ok(Found::Nobody(entry));
        }
    }

    /// Removes member `task` of a shared container, and the container with the last one. True for that.
    pub fn leave(&self, entry: &Entry, task: u32) -> Result<bool> {
        lock(entry, FlockOperation::LockExclusive)?;
        entry.remove_member(task);
        let last = entry.living().is_none();
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
        if entry.living().is_some() {
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
    pub fn note_shared(&self, id: &str) -> Result<()> {
        let root = self.dir.as_ref().ok_or_else(does_not_exist)?;
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
    pub fn forget_shared(&self, id: &str) {
        if let Some(root) = &self.dir {
            let _ = fs::unlinkat(root, format!("{IN_PLACE}/{id}").as_str(), fs::AtFlags::empty());
            let _ = fs::unlinkat(root, IN_PLACE, fs::AtFlags::REMOVEDIR);
        }
    }
}

impl Entry {
    /// Makes `member` known. It is in the container's namespaces.
    pub fn add_member(&self, member: Member) -> Result<()> {
        let name = format!("{MEMBER}{}", member.task);
        let text = format!("{} {}", member.pid, member.start_time);
        loop {
            match fs::symlinkat(text.as_str(), &self.dir, name.as_str()) {
                // A task of this number that was there before, in a step that is run again.
                Err(Errno::EXIST) => self.remove_member(member.task),
                result => return result.context(|| format!("note task {}", member.task)),
            }
        }
    }

    /// Forgets a member.
    pub fn remove_member(&self, task: u32) {
        let _ = fs::unlinkat(&self.dir, format!("{MEMBER}{task}").as_str(), fs::AtFlags::empty());
    }

    /// The members that were made known, ascending; some may have ended.
    pub fn members(&self) -> Vec<Member> {
        let names = list_names(&self.dir, FileType::Symlink).unwrap_or_default();
        let read = |name: &String| {
            let text = fs::readlinkat(&self.dir, name.as_str(), Vec::new()).ok()?;
            Member::parse(name, text.to_str().ok()?)
        };
        let mut members: Vec<Member> = names.iter().filter_map(read).collect();
        members.sort_unstable_by_key(|member| member.task);
        members
    }

    /// The members that live.
    pub fn living_members(&self) -> Vec<Member> {
        let Ok(proc) = fd::open_proc() else { return Vec::new() };
        self.members().into_iter().filter(|member| member.lives(&proc)).collect()
    }

    /// The state with a living member as first process, and a pidfd of that; `None` where there is none.
    fn living(&self) -> Option<(State, OwnedFd)> {
        let mut state = self.load_first().ok()?;
        if let Some(first) = state.open_first().ok()? {
            return Some((state, first));
        }
        self.take_living(&mut state);
        let first = state.open_first().ok()??;
        Some((state, first))
    }

    /// Lets others make, join or remove the container.
    pub fn unlock(&self) -> Result<()> {
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
