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

use crate::bundle;
use crate::confine::confine;
use crate::file;
use crate::{extract, run_file, serve};
use ::log::LevelFilter;
use rt_cli::command::{Command, ONE_ID, Program};
use rt_cli::parse::Call;
use rt_image_store::run_file::Part;
use rt_spec::OCI_VERSION;
use rt_sys::error::{Context, Error, Result};
use rt_sys::{err, fd, log};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::fs::File;
use std::io::Write;
use std::path::Path;

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

/// What every command has been given.
pub(crate) struct Given {
    pub image: File,
    pub link: File,
    /// The descriptors between LINK and OWNER.
    pub others: Vec<OwnedFd>,
}

impl Given {
    /// Takes the descriptors, of which there are `count`, and closes all others: what the caller has left open for its
    /// program is none of this process's.
    pub(crate) fn take(call: &Call, count: usize) -> Result<Given> {
        let mut numbers = Vec::new();
        for n in 0..count {
            let word = call.operand(n, "a descriptor")?;
            numbers.push(word.parse().map_err(|_| err!("{word:?} is no descriptor"))?);
        }
        fd::close_all_but(3, &numbers)?;
        let mut taken = numbers.into_iter().map(fd::take_inherited).collect::<Result<Vec<_>>>()?;
        let others = taken.split_off(2);
        let (Some(link), Some(image)) = (taken.pop(), taken.pop()) else { return Err(err!("no image")) };
        Ok(Given { image: File::from(image), link: File::from(link), others })
    }

    /// Finds the image in its file. Whatever is read of the file comes after [`confine`].
    pub(crate) fn part(&mut self) -> Result<Part> {
        file::part(&self.image).map_err(|e| refuse(&mut self.link, e))
    }

    /// Opens the image, and finds out what the caller wants to know of it. Reads the superblock and the root first.
    pub(crate) fn open(&mut self, call: &Call, part: Part, cache: usize) -> Result<(file::Opened, Vec<u8>)> {
        let (say, path) = (call.operands.iter().rev().nth(1), call.operands.last());
        let opened = file::filesystem(self.image.try_clone()?, part, cache).and_then(|fs| {
            let config = match (say, path) {
                (Some(say), Some(path)) if say.to_str() == Some("config") => {
                    bundle::config(&fs, Path::new(path))?
                }
                _ => Vec::new(),
            };
            Ok((fs, config))
        });
        opened.map_err(|e| refuse(&mut self.link, e))
    }
}

/// Answers that the image is sound, with what the caller wants to know of it.
pub(crate) fn accept(link: &mut File, config: &[u8]) -> Result<()> {
    say_all(link, 0, config)
}

/// Answers with an error.
pub(crate) fn refuse(link: &mut File, e: Error) -> Error {
    let _ = say_all(link, e.errno().unwrap_or(-1), e.to_string().as_bytes());
    e
}

fn say_all(link: &mut File, errno: i32, text: &[u8]) -> Result<()> {
    let head = [errno.to_le_bytes(), (text.len() as u32).to_le_bytes()].concat();
    Ok(link.write_all(&[&head, text].concat())?)
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

/// The exit code of an error that the caller has been told.
pub(crate) fn silent(_: Error) -> u8 {
    1
}
