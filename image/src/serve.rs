//! The process that serves a mounted image.

use crate::commands::{Given, silent};
use crate::confine;
use crate::fuse::{Owner, Server};
use rt_cli::parse::Call;
use rt_sys::err;
use rt_sys::error::{Context, Result};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, Advice, Mode, OFlags};
use rustix::io::Errno;
use std::num::NonZero;

/// Bytes that the cache of blocks may take.
const CACHE: usize = 16 << 20;
/// The most threads: each has a decoder and a block of its own.
const MOST_THREADS: usize = 16;
/// The same where blocks are large.
const MOST_THREADS_LARGE: usize = 4;
/// Blocks from this size on are large.
const LARGE_BLOCK: u32 = 512 << 10;
/// How much of the tables is read ahead at the start.
const AHEAD: u64 = 8 << 20;

/// Serves until the image is unmounted everywhere.
pub(crate) fn run(call: &Call) -> Result<u8> {
    // The kernel has named this process after the file that it was executed by.
    let _ = rustix::thread::set_name(c"rt-image");
    let mut given = match Given::take(call, 3) {
        Ok(given) => given,
        Err(e) => return Ok(silent(e)),
    };
    let owner = match call.operand(3, "the owner")? {
        "-" => Owner::OfImage,
        ids => ids
            .split_once(':')
            .and_then(|(uid, gid)| Some(Owner::One(uid.parse().ok()?, gid.parse().ok()?)))
            .ok_or_else(|| err!("{ids:?} is not UID:GID"))?,
    };
    let fs = match given.answer(call, CACHE) {
        Ok(fs) => fs,
        Err(e) => return Ok(silent(e)),
    };
    let device = given.others.pop().ok_or_else(|| err!("no device"))?;
    let Given { image: advised, part, link: ready, .. } = given;
    let server = Server::new(fs, owner);
    let superblock = *server.image().superblock();
    let threads = match superblock.block_size {
        LARGE_BLOCK.. => MOST_THREADS_LARGE,
        _ => MOST_THREADS,
    };
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get).clamp(1, threads);
    let spare: Vec<OwnedFd> = (1..threads).map_while(|_| open_device()).collect();
    release_streams()?;
    if !is_ready(&ready)? {
        return Ok(0);
    }
    drop(ready);
    let clones: Vec<OwnedFd> =
        spare.into_iter().filter(|clone| rt_sys::fuse::clone_session(clone, &device).is_ok()).collect();
    confine::confine()?;
    let tables = superblock.bytes_used - superblock.inode_table;
    if let Some(length) = NonZero::new(tables.min(AHEAD)) {
        // Everything begins with the tables of inodes and directories.
        let _ = fs::fadvise(&advised, part.offset + superblock.inode_table, Some(length), Advice::WillNeed);
    }
    std::thread::scope(|scope| {
        for clone in &clones {
            let server = &server;
            let thread = std::thread::Builder::new().stack_size(STACK);
            // One thread is enough where no other can be made.
            let _ = thread.spawn_scoped(scope, move || server.serve(clone));
        }
        server.serve(&device)
    })?;
    Ok(0)
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
fn is_ready(ready: impl AsFd) -> Result<bool> {
    loop {
        match rustix::io::read(ready.as_fd(), &mut [0u8; 1]) {
            Ok(count) => return Ok(count == 1),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e).context(|| "wait for the mount"),
        }
    }
}
