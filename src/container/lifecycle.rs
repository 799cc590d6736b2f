//! start, kill, delete, pause, resume: what is done to a container that exists.

use super::hooks;
use super::members::{Members, signal_first};
use crate::store::{Record, Store};
use rt_spec::state::Status;
use rt_sys::error::{Context, Error, Result};
use rt_sys::{bail, signal};
use rustix::fd::OwnedFd;

/// Releases a created container.
pub(crate) fn start(store: &Store, id: &str) -> Result<()> {
    let dir = store.container(id)?;
    let record = store.load(id)?;
    match store.status(&record) {
        Status::Created => {}
        Status::Stopped => bail!("cannot start a container that has stopped"),
        Status::Creating => bail!("cannot start a container that is being created"),
        _ => bail!("cannot start an already running container"),
    }
    let Some(fifo) = dir.open_fifo()? else { bail!("cannot start a container that has stopped") };
    // Whoever removes the fifo is the one that starts.
    if dir.remove_fifo().is_err() {
        bail!("cannot start an already running container");
    }
    rustix::io::write(&fifo, b"s").context(|| "release the container")?;
    let hooks = hooks::saved(&dir)?;
    if hooks.poststart().is_none() {
        return Ok(());
    }
    // Init has the fifo open until its exec, or its end.
    let mut fds = [rustix::event::PollFd::new(&fifo, rustix::event::PollFlags::empty())];
    rustix::event::poll(&mut fds, None).context(|| "wait for the program")?;
    hooks::run_poststart(&hooks, &record).inspect_err(|_| {
        // The container is stopped and destroyed (runtime.md "Lifecycle" step 9).
        if let Err(e) = delete(store, id, true) {
            log::debug!("{e}");
        }
    })
}

/// Sends `number` to the container's first process, or to all its processes.
pub(crate) fn kill(store: &Store, id: &str, number: i32, all: bool) -> Result<()> {
    let record = store.load(id)?;
    if all {
        // Also after the first process has ended: others may live on in a shared pid namespace.
        return Members::of(store, &record)?.signal(number);
    }
    match store.status(&record) {
        Status::Stopped | Status::Creating => bail!("container not running: {id}"),
        _ => {}
    }
    if number == libc::SIGKILL && !record.own_pid_namespace {
        // As runc does: what the first process leaves behind has nobody to end it, and may not be found any more.
        return Members::of(store, &record)?.signal(number);
    }
    if !signal_first(&record, number)? {
        bail!("container not running: {id}");
    }
    if record.paused && number == libc::SIGKILL {
        // A stopped process takes a SIGKILL at once; its container is not paused any more.
        let _ = Members::of(store, &record).and_then(|members| members.signal(libc::SIGCONT));
    }
    Ok(())
}

/// Removes a stopped container, or with `force` any container; `force` of an unknown id is no error.
pub(crate) fn delete(store: &Store, id: &str, force: bool) -> Result<()> {
    let dir = match store.container(id) {
        Err(_) if force && crate::store::check_id(id).is_ok() => return Ok(()),
        result => result?,
    };
    if force && dir.load().is_ok_and(|record| record.pid == 0) {
        dir.wait_until_made()?;
    }
    let record = match dir.load() {
        // What cannot be read can still be removed.
        Err(_) if force => return store.remove(&dir),
        result => result?,
    };
    match store.status(&record) {
        Status::Stopped => {}
        Status::Creating if force => return store.remove(&dir),
        Status::Creating => bail!("cannot delete container {id} that is being created"),
        Status::Running | Status::Paused if !force => {
            bail!("cannot delete container {id} that is not stopped: {}", store.status(&record).as_str())
        }
        Status::Created | Status::Running | Status::Paused => {}
    }
    let unknown = end_all(store, &record)?;
    // Root runs no program of a user's: it is in nobody's job.
    let hooks = hooks::saved(&dir).ok().filter(|_| !store.was_root());
    store.remove(&dir)?;
    store.forget_in_place(&record);
    if let Some(hooks) = hooks {
        hooks::run_poststop(&hooks, &record);
    }
    match unknown {
        Some(e) if force => Err(e),
        // Who puts a stopped container away has not asked for anybody's end.
        Some(e) => {
            log::warn!("{e}");
            Ok(())
        }
        None => Ok(()),
    }
}

/// Kills all processes of the container and waits for the end of the first. Where nobody knows any more which they
/// are, the error that says so is returned, and nobody is killed.
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
        // It cannot escape any more: it waits for a member that its new parent has not reaped.
        log::warn!("the container's first process ({}) has not ended within 10 s of SIGKILL", record.pid);
    }
    Ok(())
}

/// Waits until the process behind `pidfd` has ended, `seconds` at most. True where it has.
pub(super) fn wait_for_end(pidfd: &OwnedFd, seconds: i64) -> Result<bool> {
    let mut fds = [rustix::event::PollFd::new(pidfd, rustix::event::PollFlags::IN)];
    let limit = rustix::event::Timespec { tv_sec: seconds, tv_nsec: 0 };
    Ok(rustix::event::poll(&mut fds, Some(&limit))? > 0)
}

/// Stops every process of the container until `resume`.
pub(crate) fn pause(store: &Store, id: &str) -> Result<()> {
    let dir = store.container(id)?;
    let record = store.load(id)?;
    match store.status(&record) {
        Status::Running | Status::Created => {}
        Status::Paused => bail!("container is already paused"),
        _ => bail!("container not running: {id}"),
    }
    Members::of(store, &record)?.stop()?;
    dir.save(&Record { paused: true, ..record })
}

/// Continues a paused container.
pub(crate) fn resume(store: &Store, id: &str) -> Result<()> {
    let dir = store.container(id)?;
    let record = store.load(id)?;
    if store.status(&record) != Status::Paused {
        bail!("container not paused");
    }
    let record = Record { paused: false, ..record };
    dir.save(&record)?;
    Members::of(store, &record)?.signal(libc::SIGCONT)
}
