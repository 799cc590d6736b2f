//! start, kill, delete, pause, resume: what is done to a container that exists.

use super::hooks;
use super::members::{Members, signal_first};
use crate::store::{ContainerDir, Record, Store};
use rt_spec::state::Status;
use rt_sys::error::{Context, Error, Result};
use rt_sys::process;
use rt_sys::{bail, signal};
use rustix::fd::OwnedFd;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::time::Duration;

/// Starts the program of a created container.
pub(crate) fn start(store: &Store, id: &str) -> Result<()> {
    let dir = store.container(id)?;
    let record = store.load(id)?;
    match store.status(&record)? {
        Status::Created => {}
        Status::Stopped => bail!("cannot start a container that has stopped"),
        Status::Creating => bail!("cannot start a container that is being created"),
        _ => bail!("cannot start an already running container"),
    }
    let Some(fifo) = dir.open_fifo()? else { bail!("cannot start a container that has stopped") };
    // Of several that start the container, the one that removes the fifo does it: unlink(2) succeeds once.
    match dir.remove_fifo() {
        Ok(()) => {}
        Err(Errno::NOENT) => bail!("cannot start an already running container"),
        Err(e) => return Err(e).context(|| format!("release the container {id}")),
    }
    rustix::io::write(&fifo, b"s").context(|| format!("release the container {id}"))?;
    let hooks = hooks::saved(&dir)?;
    if hooks.poststart().is_none() {
        return Ok(());
    }
    // Init has the fifo open until its exec, or its end. poll(2) then reports an error on this end.
    let mut fds = [rustix::event::PollFd::new(&fifo, rustix::event::PollFlags::empty())];
    process::poll(&mut fds, None).context(|| "wait for the program")?;
    hooks::run_poststart(&hooks, &record).inspect_err(|_| {
        // The container is stopped and destroyed (runtime.md "Lifecycle" step 9).
        if let Err(e) = delete(store, id, Deletion::Forced) {
            log::debug!("{e}");
        }
    })
}

/// Which processes of a container a signal is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Receiver {
    /// The first process.
    FirstProcess,
    /// Every process, also where the first has ended.
    AllProcesses,
}

/// What `delete` may do to a container that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deletion {
    /// Nothing: that it runs is an error.
    IfStopped,
    /// The container is killed. A container that is not there is no error.
    Forced,
    /// The container is killed for Slurm, which ends what is left of a step. A container that is not there is no error, nor is it
    /// that processes are there of which nobody can know whether they are the container's.
    ForcedForSlurm,
}

/// Sends `number` to processes of a container.
pub(crate) fn kill(store: &Store, id: &str, number: i32, receiver: Receiver) -> Result<()> {
    let record = store.load(id)?;
    if receiver == Receiver::AllProcesses {
        // Also after the first process has ended: others may live on in a shared pid namespace.
        return Members::of(store, &record)?.signal(number);
    }
    match store.status(&record)? {
        Status::Stopped | Status::Creating => bail!("container not running: {id}"),
        _ => {}
    }
    if number == libc::SIGKILL && !record.own_pid_namespace {
        // As runc does. Without a PID namespace the kernel ends the first process alone, and without that the others may
        // not be found any more.
        return Members::of(store, &record)?.signal(number);
    }
    if !signal_first(&record, number)? {
        bail!("container not running: {id}");
    }
    if record.paused && number == libc::SIGKILL {
        // SIGKILL ends a stopped process too. The others go on: the container is not paused any more.
        let _ = Members::of(store, &record).and_then(|members| members.signal(libc::SIGCONT));
    }
    Ok(())
}

/// Removes a container.
pub(crate) fn delete(store: &Store, id: &str, deletion: Deletion) -> Result<()> {
    let force = deletion != Deletion::IfStopped;
    let dir = match store.container(id) {
        Err(e) if force && e.errno().is_none() && crate::store::check_id(id).is_ok() => return Ok(()),
        result => result?,
    };
    if force && dir.load().is_ok_and(|record| record.pid == 0) {
        dir.wait_until_made()?;
    }
    let record = match dir.load() {
        // A record that is damaged keeps nobody from removing the container. One that cannot be read now, which the
        // kernel's errno says, may be read later, and its processes are ended then.
        Err(e) if force && e.errno().is_none() => return discard_damaged(store, &dir, e, deletion),
        result => result?,
    };
    let status = store.status(&record)?;
    match status {
        // The container's runtime ended before there was a process.
        Status::Stopped if record.pid == 0 => return discard(store, &dir),
        Status::Stopped => {}
        Status::Creating if force => return discard(store, &dir),
        Status::Creating => bail!("cannot delete container {id} that is being created"),
        Status::Running | Status::Paused if !force => {
            bail!("cannot delete container {id} that is not stopped: {}", status.as_str())
        }
        Status::Created | Status::Running | Status::Paused => {}
    }
    let hooks = match hooks::saved(&dir) {
        // What cannot be read now may be read later.
        Err(e) if e.errno().is_some_and(|errno| errno != libc::ENOENT) => return Err(e),
        hooks => hooks.ok(),
    };
    let unknown = end_all(store, &record)?;
    discard(store, &dir)?;
    store.forget_in_place(&record);
    if let Some(hooks) = hooks {
        hooks::run_poststop(&hooks, &record);
    }
    match unknown {
        Some(e) if deletion == Deletion::Forced => Err(e),
        // A caller that removes a stopped container has not asked to end any process. Slurm has its own way to end them.
        Some(e) => {
            log::warn!("{e}");
            Ok(())
        }
        None => Ok(()),
    }
}

/// Removes a container whose record is damaged, after its processes where the record still names the first one. A caller hears
/// which of them were ended.
fn discard_damaged(store: &Store, dir: &ContainerDir, e: Error, deletion: Deletion) -> Result<()> {
    let salvaged = dir.salvage()?;
    if let Some(record) = &salvaged {
        end(record)?;
    }
    discard(store, dir)?;
    let e = e.hint(match salvaged {
        // The kernel ends every process of a PID namespace with the first one.
        Some(record) if record.own_pid_namespace => "it is removed, and its processes were ended",
        Some(_) => "it is removed, and its first process was ended; others of it are not known",
        None => "it is removed; its processes are not known, and were not ended",
    });
    if deletion == Deletion::Forced {
        return Err(e);
    }
    // Slurm ends what is left of a step itself.
    log::warn!("{e}");
    Ok(())
}

/// Removes a container's directory, and its layer where it outlives its processes.
fn discard(store: &Store, dir: &ContainerDir) -> Result<()> {
    dir.unkeep()?;
    store.remove(dir)
}

/// Kills all processes of the container and waits for the end of the first. Where it cannot be told which processes are
/// the container's, none is killed, and the error that says so is returned in `Some`.
fn end_all(store: &Store, record: &Record) -> Result<Option<Error>> {
    // A PID namespace ends with its first process.
    if !record.own_pid_namespace {
        let members = Members::of(store, record)?;
        if let Err(unknown) = members.known() {
            return Ok(Some(unknown));
        }
        members.signal(libc::SIGKILL)?;
    }
    end(record)?;
    Ok(None)
}

/// Kills the first process and waits until it has ended, ten seconds at most.
pub(super) fn end(record: &Record) -> Result<()> {
    let Some(pidfd) = record.open_first_process()? else { return Ok(()) };
    signal::send_pidfd(&pidfd, libc::SIGKILL).context(|| "kill the container")?;
    if !wait_for_end(&pidfd, 10)? {
        // The process will end. The first process of a PID namespace waits until all others in it have been reaped, some of them by
        // a parent outside.
        log::warn!("the container's first process ({}) has not ended within 10 s of SIGKILL", record.pid);
    }
    Ok(())
}

/// Ends a container of which there is an image. Where its runtime is there, that removes it.
pub(crate) fn end_dumped(store: &Store, id: &str) -> Result<()> {
    let dir = store.container(id)?;
    if dir.is_locked()? {
        return end_all(store, &dir.load()?)?.map_or(Ok(()), Err);
    }
    delete(store, id, Deletion::Forced)
}

/// Waits until the process behind `pidfd` has ended, `seconds` at most. True where it has.
pub(super) fn wait_for_end(pidfd: &OwnedFd, seconds: u64) -> Result<bool> {
    let mut fds = [rustix::event::PollFd::new(pidfd, rustix::event::PollFlags::IN)];
    Ok(process::poll(&mut fds, Some(Duration::from_secs(seconds)))? > 0)
}

/// How long `pause` and `resume` wait for a checkpoint to come to its end: one that somebody keeps waiting is not to keep the program.
pub(crate) const DUMPED_WITHIN: Duration = Duration::from_secs(60);

/// Stops every process of the container until `resume`.
pub(crate) fn pause(store: &Store, id: &str) -> Result<()> {
    let dir = store.container(id)?;
    // A checkpoint that has found the container running continues it.
    let _lock = dir.lock_images_within(DUMPED_WITHIN, OFlags::CREATE)?;
    let record = store.load(id)?;
    match store.status(&record)? {
        Status::Running | Status::Created => {}
        Status::Paused => bail!("container is already paused"),
        _ => bail!("container not running: {id}"),
    }
    // The record comes first: where it cannot be written, nothing has been stopped, and whatever happens later, `resume`
    // finds a container that is paused.
    let record = Record { paused: true, ..record };
    dir.save(&record)?;
    let Err(e) = Members::of(store, &record).and_then(|members| members.stop()) else { return Ok(()) };
    Err(match go_on(store, &dir, record) {
        Ok(()) => e,
        Err(undoing) => e.hint(undoing),
    })
}

/// Notes that a container is about to be stopped, as [`pause`] does, by somebody else, or that this one has continued it.
pub(crate) fn note_paused(store: &Store, id: &str, paused: bool) -> Result<()> {
    let record = Record { paused, ..store.load(id)? };
    store.container(id)?.save(&record)
}

/// Notes which processes are parted from their GPUs, by their numbers inside.
pub(crate) fn note_parted(store: &Store, id: &str, processes: &[i32]) -> Result<()> {
    let record = Record { parted: processes.to_vec(), ..store.load(id)? };
    store.container(id)?.save(&record)
}

/// Continues a paused container.
pub(crate) fn resume(store: &Store, id: &str) -> Result<()> {
    let dir = store.container(id)?;
    let record = store.load(id)?;
    if store.status(&record)? != Status::Paused {
        bail!("container not paused");
    }
    go_on(store, &dir, record)
}

/// Continues every process of a container, and says so in its record. The processes come first: a state directory that is full
/// keeps none of them stopped.
fn go_on(store: &Store, dir: &ContainerDir, record: Record) -> Result<()> {
    Members::of(store, &record)?.signal(libc::SIGCONT)?;
    dir.save(&Record { paused: false, ..record })
        .context(|| format!("the processes of {} go on, but its state still says that it is paused", dir.id))
}
