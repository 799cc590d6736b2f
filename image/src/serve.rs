//! The processes that serve a mounted image: a keeper, and a worker that answers the kernel.
//!
//! A worker can be killed, for memory for instance. The keeper holds every descriptor of the mount, so it goes on, and another
//! worker is asked again for what the last one has not answered (FUSE_NOTIFY_RESEND, Linux 6.9). A request says all that the
//! answer depends on, so a worker knows nothing that the next one does not. Before Linux 6.9 the keeper ends as well, and
//! the programs get an error.

use crate::call::{Given, accept, refuse, silent};
use crate::confine;
use crate::fuse::{self, Owner, Server};
use rt_cli::parse::Call;
use rt_sys::err;
use rt_sys::error::{Context, Result};
use rt_sys::ns::Namespaces;
use rt_sys::process::{self, Memory};
use rustix::fd::OwnedFd;
use rustix::fs::{self, Advice, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use squashfs::Source;
use std::fs::File;
use std::num::NonZero;
use std::time::{Duration, Instant};

/// Bytes that the cache of blocks may take.
const CACHE: usize = 16 << 20;
/// The most threads: each has a decoder and a block of its own.
const MOST_THREADS: usize = 16;
/// The most threads where blocks are large.
const MOST_THREADS_LARGE: usize = 4;
/// Blocks from this size on are large.
const LARGE_BLOCK: u32 = 512 << 10;
/// How much of the tables is read ahead at the start.
const AHEAD: u64 = 8 << 20;
/// How long a worker that is killed has lived, for another one to be made: what ends one at once ends the next one, too.
const SHORTEST_LIFE: Duration = Duration::from_secs(1);

/// Serves until the image is unmounted everywhere.
pub(crate) fn run(call: &Call) -> Result<u8> {
    // The kernel has named this process after the file that it was executed by.
    let _ = rustix::thread::set_name(c"rt-image");
    let mut given = Given::take(call, 3)?;
    let owner = match call.operand(3, "the owner")? {
        "-" => Owner::OfImage,
        ids => ids
            .split_once(':')
            .and_then(|(uid, gid)| Some(Owner::One(uid.parse().ok()?, gid.parse().ok()?)))
            .ok_or_else(|| err!("{ids:?} is not UID:GID"))?,
    };
    let device = given.others.pop().ok_or_else(|| err!("no device"))?;
    // What opens files comes first, and what reads the image, whose every byte may be hostile, comes last.
    let most = std::thread::available_parallelism().map_or(1, NonZero::get);
    let mut spare: Vec<OwnedFd> = (1..most.min(MOST_THREADS)).map_while(|_| open_device()).collect();
    let ready_to_read = release_streams().and_then(|()| confine::confine());
    if let Err(e) = ready_to_read {
        return Ok(silent(refuse(&mut given.link, e)));
    }
    let opened = given.part().and_then(|part| Ok((part, given.open(call, part, CACHE)?)));
    let (part, (fs, config)) = match opened {
        Ok(opened) => opened,
        Err(e) => return Ok(silent(e)),
    };
    let Given { image: advised, link, .. } = given;
    let mut link = Some(link);
    let server = Server::new(fs, owner);
    let superblock = *server.image().superblock();
    if superblock.block_size >= LARGE_BLOCK {
        spare.truncate(MOST_THREADS_LARGE - 1);
    }
    let mut began = Instant::now();
    let worker = spawn(|keeper| {
        // Taken in the worker's own memory, and closed by it alone: the keeper still has it.
        if !link.take().map_or(Ok(false), is_ready)? {
            return Ok(());
        }
        // The keeper has the same descriptors, so what is done to them here is done for all workers.
        let is_clone = |clone: &&OwnedFd| rt_sys::fuse::clone_session(clone, &device).is_ok();
        let clones: Vec<&OwnedFd> = spare.iter().filter(is_clone).collect();
        let tables = superblock.bytes_used - superblock.inode_table;
        if let Some(length) = NonZero::new(tables.min(AHEAD)) {
            // Everything begins with the tables of inodes and directories.
            let _ =
                fs::fadvise(&advised, part.offset + superblock.inode_table, Some(length), Advice::WillNeed);
        }
        serve(&server, &device, &clones, keeper)
    });
    // The image is as good as served once there is a worker, and not before: without one nobody would answer its mount.
    let mut link = link.ok_or_else(|| err!("no link"))?;
    let mut worker = match worker {
        Ok(worker) => worker,
        Err(e) => return Ok(silent(refuse(&mut link, e.context("make a server of rt-image")))),
    };
    if let Err(e) = accept(&mut link, &config) {
        return Ok(silent(e));
    }
    drop(link);
    loop {
        let end = process::wait(worker)?;
        let asked_again = || fuse::ask_again(&device).is_ok();
        if end.terminating_signal().is_none() || began.elapsed() < SHORTEST_LIFE || !asked_again() {
            return Ok(process::exit_code(end));
        }
        began = Instant::now();
        // One that is no clone ends its thread.
        worker = spawn(|keeper| serve(&server, &device, &spare.iter().collect::<Vec<_>>(), keeper))?;
    }
}

/// Makes a worker, which ends with its keeper.
fn spawn(work: impl FnOnce(Pid) -> Result<()>) -> Result<Pid> {
    let keeper = rustix::process::getpid();
    let worker = process::spawn(Namespaces::NONE, Memory::Copied, || {
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
        // The signal comes for a death that is yet to happen. Whoever waits for the keeper's word waits for this process, too,
        // which has the other end of its link.
        if getppid() != Some(keeper) {
            return 1;
        }
        let code = work(keeper).map_or(1, |()| 0);
        // The image is unmounted.
        wake(keeper);
        code
    })?;
    Ok(worker.pid)
}

/// Serves with one thread for each descriptor until the image is unmounted everywhere.
fn serve<S: Source + Sync>(
    server: &Server<S>,
    device: &OwnedFd,
    clones: &[&OwnedFd],
    keeper: Pid,
) -> Result<()> {
    std::thread::scope(|scope| {
        for clone in clones {
            let thread = std::thread::Builder::new().stack_size(STACK);
            // One thread is enough where no other can be made.
            let _ = thread.spawn_scoped(scope, move || match server.serve(clone) {
                // It is no clone of the session.
                Err(e) if e.is(libc::EPERM) => {}
                served => give_up(served, keeper),
            });
        }
        give_up(server.serve(device), keeper);
    });
    Ok(())
}

/// Ends this process where a thread of it cannot go on, since the others wait for requests and would do so for ever. With the
/// descriptors of the keeper, which ends as well, the session ends: programs that wait for an answer get an error (ENOTCONN).
fn give_up(served: Result<()>, keeper: Pid) {
    if served.is_err() {
        wake(keeper);
        process::exit_now(1);
    }
}

/// Has the keeper go on. A program of the container's may have stopped it, as of the same user.
fn wake(keeper: Pid) {
    let _ = rustix::process::kill_process(keeper, Signal::CONT);
}

/// The stack of a thread. Buffers are on the heap, but for two blocks of metadata.
const STACK: usize = 256 << 10;

fn open_device() -> Option<OwnedFd> {
    fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// Lets go of the caller's standard streams, whose readers would else wait for this process too.
fn release_streams() -> Result<()> {
    let null =
        fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).context(|| "open /dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}

/// Waits for the mount. False where there will be none.
fn is_ready(ready: File) -> Result<bool> {
    loop {
        match rustix::io::read(&ready, &mut [0u8; 1]) {
            Ok(count) => return Ok(count == 1),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e).context(|| "wait for the mount"),
        }
    }
}
