//! `rt-image`'s commands, which only `rt` calls. Each has an open image and a socket, and answers there first.
//!
//! | call | what it does |
//! |---|---|
//! | `serve IMAGE LINK DEVICE OWNER SAY PATH` | serves the image on DEVICE, from when a byte comes, until it is unmounted |
//! | `unpack IMAGE LINK TARGET OWNER SAY PATH` | unpacks the image into the directory TARGET, and says what it has left out |
//! | `config IMAGE LINK OWNER SAY PATH` | answers, and ends |
//!
//! Words in capitals up to TARGET are descriptors. OWNER is UID:GID, to whom all files belong, or - for those that the image
//! names. SAY is `config` where the answer is to have the config of the image, and else -.

use crate::call::{Given, accept, refuse, silent};
use crate::confine::confine;
use crate::file;
use crate::{extract, run_file, serve};
use ::log::LevelFilter;
use rt_cli::command::{Command, ONE_ID, Program};
use rt_cli::parse::Call;
use rt_spec::OCI_VERSION;
use rt_sys::error::{Context, Result};
use rt_sys::{err, log};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::fs::File;

static PROGRAM: Program = Program {
    summary: "serve images that are one file; rt calls it",
    commands: &[
        Command { name: "serve", operands: 6..=6, hidden: true, run: serve::run, ..ONE_ID },
        Command { name: "unpack", operands: 6..=6, hidden: true, run: unpack, ..ONE_ID },
        Command { name: "config", operands: 5..=5, hidden: true, run: config, ..ONE_ID },
    ],
    version: || rt_cli::version(OCI_VERSION),
    log_format: log::Format::Text,
    log_level: LevelFilter::Error,
};

/// `rt-image`'s main, and that of a program of one file.
pub fn main() -> u8 {
    let run = match run_file::called() {
        Ok(None) => return rt_cli::run(&PROGRAM),
        Ok(Some((path, parts, as_rt))) => run_file::run(&path, &parts, as_rt),
        Err(e) => Err(e),
    };
    run.unwrap_or_else(|e| {
        rt_cli::report(&e);
        1
    })
}

fn unpack(call: &Call) -> Result<u8> {
    /// For blocks that several files share.
    const CACHE: usize = 16 << 20;
    let mut given = Given::take(call, 3)?;
    let target = given.others.pop().ok_or_else(|| err!("no directory"))?;
    let unpacked =
        given.link.try_clone().context(|| "duplicate a descriptor").and_then(end_with).and_then(|()| {
            let part = file::part(&given.image)?;
            let image = given.image.try_clone().context(|| "duplicate a descriptor")?;
            extract::extract(&file::filesystem(image, part, CACHE)?, target)
        });
    // Whether the answer arrives or not, the caller is the one who says what came of it.
    Ok(match unpacked {
        Ok(left_out) => accept(&mut given.link, left_out.text().as_bytes()).map_or_else(silent, |()| 0),
        Err(e) => silent(refuse(&mut given.link, e)),
    })
}

/// Ends this process when nobody waits for its answer any more. It is nobody's child, so that it would go on for a caller that
/// was killed.
fn end_with(link: File) -> Result<()> {
    let watch = move || {
        let hung_up = PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR;
        loop {
            let mut polled = [PollFd::new(&link, PollFlags::RDHUP)];
            match poll(&mut polled, None) {
                Err(Errno::INTR) => {}
                Ok(_) if !polled[0].revents().intersects(hung_up) => {}
                _ => std::process::exit(1),
            }
        }
    };
    // Near RLIMIT_NPROC there is no thread, and the process must not panic for it.
    std::thread::Builder::new().spawn(watch).context(|| "start a thread")?;
    Ok(())
}

fn config(call: &Call) -> Result<u8> {
    let mut given = Given::take(call, 2)?;
    let confined = confine().map_err(|e| refuse(&mut given.link, e));
    let opened = confined.and_then(|()| given.part()).and_then(|part| given.open(call, part, 0));
    Ok(opened.and_then(|(_, config)| accept(&mut given.link, &config)).map_or_else(silent, |()| 0))
}
