//! The processes of a container, found by namespace identity in /proc: there is no cgroup to ask.

use crate::store::{Record, Store, open_pidfd};
use rt_spec::state::Status;
use rt_sys::error::{Context, Result};
use rt_sys::ns::{self, MountNamespaceId, Namespace, NamespaceId};
use rt_sys::{bail, fd, signal};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, Mode, OFlags};

/// The processes of a container, as they are found in /proc. By which criterion is decided once, before any of them is
/// signalled, because the decision needs the first process.
pub(super) struct Members<'a> {
    proc: OwnedFd,
    criterion: Criterion,
    record: &'a Record,
}

/// What the processes of a container have in common, and no other process has.
enum Criterion {
    /// A namespace of the container's own. The descriptor keeps the kernel from giving its inode to another one.
    Held { kind: Namespace, id: NamespaceId, _file: OwnedFd },
    /// The mount namespace with this id, which the kernel never gives to another one.
    UniqueMount(u64),
    /// The first process alone: the container has no namespace of its own.
    Alone,
    /// No process of the container can be left.
    Nobody,
    /// The first process has ended, and there are processes in a mount namespace with the inode of the container's. It
    /// can be the container's, or a later one that was given the same inode.
    Unknown,
}

impl<'a> Members<'a> {
    /// Finds out what the processes of the container of `record` are known by. `store` is where the container is.
    pub(super) fn of(store: &Store, record: &'a Record) -> Result<Members<'a>> {
        let proc = fd::open_proc()?;
        let criterion = criterion(proc.as_fd(), store, record)?;
        Ok(Members { proc, criterion, record })
    }

    /// An error where it cannot be told any more which processes are the container's.
    pub(super) fn known(&self) -> Result<()> {
        if let Criterion::Unknown = self.criterion {
            bail!(
                "the container's first process has ended, and before Linux 6.11 nothing tells whether the processes \
                 that are left are the container's"
            );
        }
        Ok(())
    }

    /// The pids of all the container's processes as the caller sees them, ascending.
    pub(super) fn list(&self) -> Result<Vec<i32>> {
        self.known()?;
        if let Criterion::Nobody = self.criterion {
            return Ok(Vec::new());
        }
        let mut own = Vec::new();
        for pid in pids(self.proc.as_fd())? {
            if self.has(pid)? {
                own.push(pid);
            }
        }
        Ok(own)
    }

    /// True where process `pid` is the container's. A process that the caller may not look at is not.
    fn has(&self, pid: i32) -> Result<bool> {
        let (proc, name) = (self.proc.as_fd(), pid.to_string());
        match &self.criterion {
            Criterion::Held { kind, id, .. } => {
                Ok(seen(ns::id(proc, &name, *kind))?.is_some_and(|found| found == *id))
            }
            Criterion::UniqueMount(id) => Ok(seen(ns::mount_namespace_id(proc, &name))?
                .is_some_and(|found| found == MountNamespaceId::Unique(*id))),
            Criterion::Alone => Ok(pid == self.record.pid),
            Criterion::Nobody | Criterion::Unknown => Ok(false),
        }
    }

    /// Sends `number` to every process, again until no new one turns up. The first process comes last: while it lives,
    /// another `rt` finds the rest. It is not looked for in /proc, since it is undumpable while it waits for start.
    pub(super) fn signal(&self, number: i32) -> Result<()> {
        let mut done = std::collections::HashSet::from([self.record.pid]);
        loop {
            let mut new = self.list()?;
            new.retain(|pid| done.insert(*pid));
            if new.is_empty() {
                break;
            }
            // Children, which mostly have higher numbers, go on before a parent can find that they have stopped.
            for pid in new.into_iter().rev() {
                self.send(pid, number)?;
            }
        }
        signal_first(self.record, number)?;
        Ok(())
    }

    /// Sends `number` to process `pid`, if that is still the container's.
    fn send(&self, pid: i32, number: i32) -> Result<()> {
        let Some(pidfd) = open_pidfd(pid)? else { return Ok(()) };
        if !self.has(pid)? {
            return Ok(());
        }
        signal::send_pidfd(pidfd, number).context(|| format!("signal process {pid}"))?;
        Ok(())
    }

    /// Stops every process. It takes several rounds, since a process that still runs may make others.
    pub(super) fn stop(&self) -> Result<()> {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while std::time::Instant::now() < deadline {
            let mut running = self.list()?;
            running.retain(|pid| runs(self.proc.as_fd(), *pid));
            if running.is_empty() {
                return Ok(());
            }
            for pid in running {
                self.send(pid, libc::SIGSTOP)?;
            }
            // SIGSTOP takes effect when the process is scheduled next.
            let pause = rustix::time::Timespec { tv_sec: 0, tv_nsec: 500_000 };
            let _ = rustix::thread::nanosleep(&pause);
        }
        self.signal(libc::SIGCONT)?;
        bail!("the container makes processes faster than they can be stopped");
    }
}

/// What was found of a process; `None` where it has ended (ENOENT, ESRCH), or the caller may not look (EACCES, EPERM).
fn seen<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(e) if [libc::ENOENT, libc::ESRCH, libc::EACCES, libc::EPERM].iter().any(|errno| e.is(*errno)) => {
            Ok(None)
        }
        Err(e) => Err(e),
    }
}

/// Sends `number` to the first process; false where that has ended.
pub(super) fn signal_first(record: &Record, number: i32) -> Result<bool> {
    let Some(pidfd) = record.open_first_process()? else { return Ok(false) };
    signal::send_pidfd(pidfd, number).context(|| format!("signal {number}"))
}

fn criterion(proc: BorrowedFd<'_>, store: &Store, record: &Record) -> Result<Criterion> {
    let kind = match (record.own_pid_namespace, record.mount_ns) {
        (true, _) => Namespace::Pid,
        (false, Some(MountNamespaceId::Unique(id))) => return Ok(Criterion::UniqueMount(id)),
        (false, Some(MountNamespaceId::Inode(_))) => Namespace::Mount,
        (false, None) => return Ok(Criterion::Alone),
    };
    let held = match hold(proc, record, kind) {
        // A container that waits for start has one process, which is undumpable: /proc shows its namespaces to root only.
        Err(e) if e.is(libc::EACCES) && matches!(store.status(record), Ok(Status::Created)) => {
            return Ok(Criterion::Alone);
        }
        held => held?,
    };
    if let Some((file, id)) = held {
        // The caller's own namespace is never taken for the container's: its processes would be signalled.
        if id == ns::id(proc, "self", kind)? {
            bail!("the container's {} namespace is the caller's", kind.file());
        }
        return Ok(Criterion::Held { kind, id, _file: file });
    }
    match record.mount_ns {
        Some(MountNamespaceId::Inode(inode)) if kind == Namespace::Mount => {
            after_the_first(proc, store, inode)
        }
        // The kernel ends every process of a PID namespace with the first one.
        _ => Ok(Criterion::Nobody),
    }
}

/// The namespace of the first process; `None` where that has ended.
fn hold(proc: BorrowedFd<'_>, record: &Record, kind: Namespace) -> Result<Option<(OwnedFd, NamespaceId)>> {
    if !record.is_alive()? {
        return Ok(None);
    }
    let held = ns::hold(proc, &record.pid.to_string(), kind);
    // Asked again after the namespace was opened: the pid was not given to another process in between.
    if !record.is_alive()? {
        return Ok(None);
    }
    held.map(Some).context(|| "look at the container's namespace")
}

/// The criterion where the first process has ended and the mount namespace is known by its inode alone, which the
/// kernel may have given to another one. Nothing of the container is left where no process is in a namespace with this
/// inode, or where another container has it by now. In any other case it cannot be told.
fn after_the_first(proc: BorrowedFd<'_>, store: &Store, inode: u64) -> Result<Criterion> {
    let is_in = |pid: i32| -> Result<bool> {
        Ok(seen(ns::id(proc, &pid.to_string(), Namespace::Mount))?.is_some_and(|found| found.inode == inode))
    };
    let mut anybody = false;
    for pid in pids(proc)? {
        anybody |= is_in(pid)?;
    }
    if !anybody {
        return Ok(Criterion::Nobody);
    }
    for record in store.records()? {
        if record.mount_ns == Some(MountNamespaceId::Inode(inode))
            && is_in(record.pid)?
            && record.is_alive()?
        {
            return Ok(Criterion::Nobody);
        }
    }
    Ok(Criterion::Unknown)
}

/// Every pid that `proc` shows, ascending.
fn pids(proc: BorrowedFd<'_>) -> Result<Vec<i32>> {
    let readable = fs::openat(proc, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .context(|| "open /proc")?;
    let mut pids = Vec::new();
    for entry in fs::Dir::new(readable).context(|| "list /proc")? {
        let entry = entry.context(|| "list /proc")?;
        pids.extend(entry.file_name().to_str().ok().and_then(|name| name.parse::<i32>().ok()));
    }
    pids.sort_unstable();
    Ok(pids)
}

/// True unless every thread of `pid` is stopped, dead, or cannot be seen any more.
fn runs(proc: BorrowedFd<'_>, pid: i32) -> bool {
    let stat = match fd::read_at(proc, format!("{pid}/stat").as_str()) {
        Ok(stat) => stat,
        // What cannot be looked at may run.
        Err(e) => return !e.is(libc::ENOENT) && !e.is(libc::ESRCH),
    };
    let state = stat.iter().rposition(|&b| b == b')').and_then(|end| stat.get(end + 2));
    !matches!(state, None | Some(b'T' | b't' | b'Z' | b'X' | b'x'))
}
