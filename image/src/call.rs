//! A call of `rt`: what it hands over, and how it is answered.

use crate::{bundle, file};
use rt_cli::parse::Call;
use rt_image_store::run_file::Part;
use rt_sys::error::{Error, Result};
use rt_sys::{err, fd};
use rustix::fd::OwnedFd;
use std::fs::File;
use std::io::Write;
use std::path::Path;

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

    /// Finds the image in its file. Whatever is read of the file comes after [`crate::confine`].
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

/// The exit code of an error that the caller has been told.
pub(crate) fn silent(_: Error) -> u8 {
    1
}
