//! Containers that the tasks of a step, or the ranks of a run, share: which task makes one, which join it, and which is the last.
//!
//! The lock is the container's directory (flock(2)). A task that makes the container holds it exclusively, a task that
//! joins holds it shared, and both hold it until their exec or their end: the descriptor is close-on-exec, so the
//! kernel releases the lock also where a task is killed. Who removes the container holds the lock exclusively.
//!
//! Each member is a link `task.N` to its pid and identity. It is made when the member is in the namespaces, because
//! from then on others can join by it. A link `first` has everything that a joining task must know, so that it costs
//! one system call. A container without a living member, or a process that holds it for the ranks to come, is dead: the next
//! task clears its directory and makes it anew.

use super::{ContainerDir, IN_PLACE, ProcessIdentity, Store, check_id, does_not_exist, list_names, open_dir};
use rt_sys::error::{Context, Result};
use rt_sys::{err, fd, process};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const MEMBER: &str = "task.";
const FIRST: &str = "first";
/// What stands in `first` in the place of a task's number.
const HOLDS: &str = "hold";
/// What a note of a task that has ended begins with.
pub(super) const ENDED: &str = "ended.";
/// The config that `rt-image` has made for an image without one.
const IMAGE_CONFIG: &str = "image.json";

/// What a task has to do for a shared container, with the container's directory.
#[derive(Debug)]
pub(crate) enum Role {
    /// The process makes the container, in which nobody lives. It holds the lock exclusively.
    Maker(ContainerDir),
    /// The process joins a member that lives. It holds the lock shared.
    Joiner(ContainerDir, JoinTarget),
}

/// How a task first asks for the lock of a shared container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lock {
    /// With others that join at the same time.
    Shared,
    /// Alone: it waits until nobody makes or joins the container any more.
    Exclusive,
}

/// A member of a shared container that lives, and what a task must know to join it.
#[derive(Debug)]
pub(crate) struct JoinTarget {
    /// The member.
    pub member: Member,
    /// A descriptor of the process (pidfd_open(2)).
    pub pidfd: OwnedFd,
    /// The signals that the first task was started with ignored, bit n-1 for signal n. One process starts all tasks.
    pub ignored: u64,
    /// The root file system of the container, absolute.
    pub rootfs: PathBuf,
    /// It is no task, but the process that holds the container for ranks to come.
    pub holds: bool,
}

/// A process that a task has become, as the container's directory names it. It may have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Member {
    /// The task's number on this node.
    pub task: u32,
    /// Its pid.
    pub pid: i32,
    /// What tells it from a later process with that pid.
    pub identity: ProcessIdentity,
    /// The number that its launcher gives it, where it is not known by that.
    pub rank: Option<u32>,
}

/// A member that lived a moment ago, with what a [`super::Record`] has of a first process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LivingMember {
    /// The task's number on this node.
    pub task: u32,
    /// Its pid.
    pub pid: i32,
    /// Its start time in clock ticks since boot.
    pub start_time: u64,
    /// The number that its launcher gives it.
    pub rank: u32,
}

impl Member {
    /// A descriptor of the process (pidfd_open(2)); `None` where it has ended. `proc` is /proc.
    pub(crate) fn open(&self, proc: impl AsFd) -> Result<Option<OwnedFd>> {
        self.identity.open(self.pid, proc)
    }

    fn living(&self, proc: &OwnedFd) -> Result<Option<LivingMember>> {
        let Some(_held) = self.open(proc)? else { return Ok(None) };
        match process::stat(proc, &self.pid.to_string()) {
            Ok(stat) => {
                let Member { task, pid, rank, .. } = *self;
                Ok(Some(LivingMember { task, pid, start_time: stat.start_time, rank: rank.unwrap_or(task) }))
            }
            // The member has ended meanwhile.
            Err(e) if e.is(libc::ENOENT) || e.is(libc::ESRCH) => Ok(None),
            Err(e) => Err(e.context(format!("look at process {}", self.pid))),
        }
    }

    fn parse(task: &str, pid: &str, identity: &str) -> Option<Member> {
        let identity = ProcessIdentity::parse(identity)?;
        Some(Member { task: task.parse().ok()?, pid: pid.parse().ok()?, identity, rank: None })
    }
}

/// What the link `first` says.
struct First {
    /// The member that has made the container, or the process that holds it.
    member: Member,
    /// It is the latter.
    holds: bool,
    /// The signals that it was started with ignored.
    ignored: u64,
    /// The container's root file system.
    rootfs: PathBuf,
}

impl Store {
    /// Opens and locks the directory of the shared container `id`, which is made where it is missing, and says what
    /// the task has to do. `lock` is what it asks for first. With `noted` a directory that is made is swept away where nobody
    /// lives to remove it, which is Slurm's matter otherwise. `proc` is /proc.
    pub(crate) fn enter_shared(
        &self,
        id: &str,
        lock: Lock,
        noted: bool,
        proc: BorrowedFd<'_>,
    ) -> Result<Role> {
        check_id(id)?;
        let root = self.dir.as_ref().ok_or_else(|| err!("the state directory is missing"))?;
        loop {
            let fd = match open_dir(root, id) {
                Ok(fd) => fd,
                Err(Errno::NOENT) => {
                    if noted {
                        // Before: this process may be killed at any time.
                        self.note_shared(id)?;
                    }
                    match fs::mkdirat(root, id, Mode::RWXU) {
                        Ok(()) | Err(Errno::EXIST) => continue,
                        Err(e) => return Err(e).context(|| format!("make {}", self.root.join(id).display())),
                    }
                }
                Err(e) => return Err(e).context(|| format!("open {}", self.root.join(id).display())),
            };
            let dir = ContainerDir { id: id.to_owned(), fd };
            dir.flock(match lock {
                Lock::Shared => FlockOperation::LockShared,
                Lock::Exclusive => FlockOperation::LockExclusive,
            })?;
            if let Some(target) = dir.join_target(proc)? {
                return Ok(Role::Joiner(dir, target));
            }
            // flock(2) waits for the tasks that are joining, of which one may live on. It lets go of the shared lock
            // first, so another task can have made the container by the time it returns.
            dir.flock(FlockOperation::LockExclusive)?;
            if let Some(target) = dir.join_target(proc)? {
                dir.flock(FlockOperation::LockShared)?;
                return Ok(Role::Joiner(dir, target));
            }
            // The last member may have removed the directory while this task waited for it: the lock is then one on a
            // directory without a name, which no other task can find.
            if dir.is_removed()? {
                continue;
            }
            dir.clear()?;
            return Ok(Role::Maker(dir));
        }
    }

    /// Removes member `task` of a shared container, and the container with the last one. True where this was the last.
    pub(crate) fn leave(&self, dir: &ContainerDir, task: u32) -> Result<bool> {
        dir.flock(FlockOperation::LockExclusive)?;
        dir.remove_member(task);
        let last = dir.join_target(fd::open_proc()?.as_fd())?.is_none();
        if last && !dir.is_removed()? {
            self.forget_shared(&dir.id);
            self.remove(dir)?;
        }
        dir.unlock()?;
        Ok(last)
    }

    /// Removes the shared container `id` if nobody lives in it or is about to. True where it is gone.
    pub(super) fn forget_dead_shared(&self, id: &str) -> Result<bool> {
        let Ok(dir) = self.container(id) else { return Ok(true) };
        match fs::flock(&dir.fd, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Ok(false),
            result => result?,
        }
        if dir.join_target(fd::open_proc()?.as_fd())?.is_some() || dir.is_kept()? {
            return Ok(false);
        }
        if !dir.is_removed()? {
            // The note goes first: a task that makes the container anew writes it again.
            self.forget_shared(id);
            self.remove(&dir)?;
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

impl ContainerDir {
    /// Makes `member` known. It is in the container's namespaces.
    pub(crate) fn add_member(&self, member: Member) -> Result<()> {
        let name = format!("{MEMBER}{}", member.task);
        let rank = member.rank.map(|rank| format!(" {rank}")).unwrap_or_default();
        let text = format!("{} {}{rank}", member.pid, member.identity.text());
        loop {
            match fs::symlinkat(text.as_str(), &self.fd, name.as_str()) {
                // The link of an earlier task of this number: the step is run again.
                Err(Errno::EXIST) => self.remove_member(member.task),
                result => return result.context(|| format!("note task {}", member.task)),
            }
        }
    }

    /// Makes the container known to the tasks that join. `member` has made it, and was started with the signals
    /// `ignored` ignored.
    pub(crate) fn note_first(&self, member: Member, ignored: u64, rootfs: &Path) -> Result<()> {
        let Member { task, pid, identity, .. } = member;
        let mut text = format!("{task} {pid} {} {ignored} ", identity.text()).into_bytes();
        text.extend_from_slice(rootfs.as_os_str().as_bytes());
        fs::symlinkat(text, &self.fd, FIRST).context(|| "note the container's first task")
    }

    /// Makes known that process `pid` holds the container that [`ContainerDir::note_first`] has made known: the tasks that come
    /// join by it.
    pub(crate) fn note_holder(&self, pid: i32, identity: ProcessIdentity) -> Result<()> {
        let context = || format!("note the process that holds {}", self.id);
        let text = fs::readlinkat(&self.fd, FIRST, Vec::with_capacity(256)).context(context)?;
        let mut fields = text.to_bytes().splitn(4, |&byte| byte == b' ');
        let rest = fields.nth(3).unwrap_or_default();
        let mut text = format!("{HOLDS} {pid} {} ", identity.text()).into_bytes();
        text.extend_from_slice(rest);
        fs::unlinkat(&self.fd, FIRST, fs::AtFlags::empty()).context(context)?;
        fs::symlinkat(text, &self.fd, FIRST).context(context)
    }

    /// How many tasks have been made known.
    pub(crate) fn count_members(&self) -> Result<usize> {
        Ok(list_names(&self.fd, FileType::Symlink)?.iter().filter(|name| name.starts_with(MEMBER)).count())
    }

    /// Keeps the config that was made for the image, for the tasks that join.
    pub(crate) fn save_image_config(&self, config: &[u8]) -> Result<()> {
        let context = || format!("write the image's config of {}", self.id);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = fs::openat(&self.fd, IMAGE_CONFIG, flags, Mode::RUSR | Mode::WUSR).context(context)?;
        fd::write_all(&file, config).context(context)
    }

    /// The config that was made for the image.
    pub(crate) fn image_config(&self) -> Result<Vec<u8>> {
        fd::read_at(&self.fd, IMAGE_CONFIG).context(|| format!("read the image's config of {}", self.id))
    }

    /// What was made known by [`ContainerDir::note_first`].
    fn first(&self) -> Result<Option<First>> {
        let text = match fs::readlinkat(&self.fd, FIRST, Vec::with_capacity(256)) {
            Ok(text) => text,
            // EINVAL: no link, hence nothing that a task has written.
            Err(Errno::NOENT | Errno::INVAL) => return Ok(None),
            Err(e) => return Err(e).context(|| format!("read the first task of {}", self.id)),
        };
        let mut fields = text.to_bytes().splitn(5, |&byte| byte == b' ');
        let mut parsed = || {
            let mut word = || std::str::from_utf8(fields.next()?).ok();
            let task = word()?;
            let holds = task == HOLDS;
            let member = Member::parse(if holds { "0" } else { task }, word()?, word()?)?;
            let ignored = word()?.parse().ok()?;
            Some(First { member, holds, ignored, rootfs: OsStr::from_bytes(fields.next()?).into() })
        };
        Ok(parsed())
    }

    /// Notes that task `task` of `step` has ended. Returns how many of that step have.
    pub(crate) fn note_end(&self, step: &str, task: u32) -> Result<usize> {
        match fs::symlinkat(step, &self.fd, format!("{ENDED}{step}.{task}")) {
            Ok(()) | Err(Errno::EXIST) => self.ended(step),
            Err(e) => Err(e).context(|| format!("note the end of task {task}")),
        }
    }

    /// How many tasks of `step` have been noted to have ended.
    pub(crate) fn ended(&self, step: &str) -> Result<usize> {
        Ok(self.ends(step)?.len())
    }

    /// The notes of that.
    fn ends(&self, step: &str) -> Result<Vec<String>> {
        let begin = format!("{ENDED}{step}.");
        let mut names = list_names(&self.fd, FileType::Symlink)?;
        names.retain(|name| name.starts_with(&begin));
        Ok(names)
    }

    /// Forgets which tasks of `step` have ended: a job that is requeued has the same step again.
    pub(crate) fn forget_ends(&self, step: &str) -> Result<()> {
        for name in self.ends(step)? {
            match fs::unlinkat(&self.fd, name.as_str(), fs::AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(e) => return Err(e).context(|| format!("forget {name} of {}", self.id)),
            }
        }
        Ok(())
    }

    /// Forgets a member.
    pub(crate) fn remove_member(&self, task: u32) {
        let _ = fs::unlinkat(&self.fd, format!("{MEMBER}{task}").as_str(), fs::AtFlags::empty());
    }

    /// The members that were made known, ascending; some may have ended.
    pub(crate) fn members(&self) -> Result<Vec<Member>> {
        let parse = |task: &str, text: &str| {
            let mut words = text.split(' ');
            let member = Member::parse(task, words.next()?, words.next()?)?;
            Some(Member { rank: words.next().and_then(|rank| rank.parse().ok()), ..member })
        };
        let mut members = Vec::new();
        for name in list_names(&self.fd, FileType::Symlink)? {
            let Some(task) = name.strip_prefix(MEMBER) else { continue };
            match fs::readlinkat(&self.fd, name.as_str(), Vec::new()) {
                Ok(text) => members.extend(text.to_str().ok().and_then(|text| parse(task, text))),
                // The member has left meanwhile.
                Err(Errno::NOENT) => {}
                Err(e) => return Err(e).context(|| format!("read task {task} of {}", self.id)),
            }
        }
        members.sort_unstable_by_key(|member: &Member| member.task);
        Ok(members)
    }

    /// The members that live.
    pub(crate) fn living_members(&self) -> Result<Vec<LivingMember>> {
        let proc = fd::open_proc()?;
        self.members()?.iter().filter_map(|member| member.living(&proc).transpose()).collect()
    }

    /// A member that lives, the first before the others; `None` where there is none.
    fn join_target(&self, proc: BorrowedFd<'_>) -> Result<Option<JoinTarget>> {
        let Some(First { member, holds, ignored, rootfs }) = self.first()? else { return Ok(None) };
        if let Some(pidfd) = member.open(proc)? {
            return Ok(Some(JoinTarget { member, pidfd, ignored, rootfs, holds }));
        }
        for member in self.members()? {
            if let Some(pidfd) = member.open(proc)? {
                return Ok(Some(JoinTarget { member, pidfd, ignored, rootfs, holds: false }));
            }
        }
        Ok(None)
    }

    /// Lets others make, join or remove the container.
    pub(crate) fn unlock(&self) -> Result<()> {
        Ok(fs::flock(&self.fd, FlockOperation::Unlock)?)
    }

    /// Waits for the lock. A signal that this process handles interrupts flock(2), which is then called again.
    fn flock(&self, operation: FlockOperation) -> Result<()> {
        loop {
            match fs::flock(&self.fd, operation) {
                Err(Errno::INTR) => {}
                result => return result.context(|| format!("lock the state of {}", self.id)),
            }
        }
    }

    /// True where the directory has been removed since it was opened: its link count is 0 then.
    fn is_removed(&self) -> Result<bool> {
        Ok(fd::stat(&self.fd)?.st_nlink == 0)
    }
}
