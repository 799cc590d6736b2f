//! What an image file of another program says of how it is run. `rt-image` reads it, confined, as it does for `rt run`.

use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use rt_sys::error::{Context, Error, Result};
use rt_sys::{disk, err, look, start};

/// The config of a bundle for the image in the file at `path`, a squashfs or a SIF image.
///
/// # Errors
/// `rt-image` is not there, or says what is wrong with the image.
pub(crate) fn config(path: &Path) -> Result<Value> {
    let shown = || path.display().to_string();
    let program = look::first_file(start::companions("rt-image")?)?;
    let program = program.ok_or_else(|| start::no_companion("rt-image"))?;
    let image = disk::open_named(path)?;
    let (mut link, its_link) = UnixStream::pair().context(|| "make a socket pair")?;
    // Duplicates are passed on to the program, which closes all that it is not told of.
    let image = rustix::io::dup(&image).context(|| "dup")?;
    let its_link = rustix::io::dup(its_link).context(|| "dup")?;
    let mut command = Command::new(&program);
    command.arg("config").args([&image, &its_link].map(|fd| fd.as_raw_fd().to_string()));
    // "-" stands for the owner, of which nothing is needed here.
    command.args(["-", "config"]).arg(path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().context(|| format!("execute {}", program.display()))?;
    drop((image, its_link));
    let mut answer = Vec::new();
    let read = link.read_to_end(&mut answer);
    child.wait().context(|| format!("wait for {}", program.display()))?;
    read.context(|| format!("read the answer of {}", program.display()))?;
    let text = text_of(&answer).map_err(|e| e.context(shown()))?;
    serde_json::from_slice(text).map_err(|e| err!("{}: its config: {e}", shown()))
}

/// The text of an answer: behind an errno and the length.
fn text_of(answer: &[u8]) -> Result<&[u8]> {
    let cut = || err!("rt-image ended without an answer");
    let (errno, rest) = answer.split_first_chunk::<4>().ok_or_else(cut)?;
    let (length, text) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
    let text = text.get(..u32::from_le_bytes(*length) as usize).ok_or_else(cut)?;
    match i32::from_le_bytes(*errno) {
        0 => Ok(text),
        errno => Err(Error::from_parts(
            String::from_utf8_lossy(text).into_owned(),
            Some(errno).filter(|errno| *errno > 0),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_texts_or_errors() {
        let answer = |errno: i32, text: &[u8]| {
            [&errno.to_le_bytes()[..], &(text.len() as u32).to_le_bytes(), text].concat()
        };
        assert_eq!(text_of(&answer(0, b"{}")).unwrap(), b"{}");
        let error = text_of(&answer(libc::EIO, b"read x: input/output error")).unwrap_err();
        assert_eq!(
            (error.errno(), error.to_string().as_str()),
            (Some(libc::EIO), "read x: input/output error")
        );
        assert_eq!(text_of(&answer(-1, b"no image")).unwrap_err().errno(), None);
        for cut in 0..9 {
            assert!(text_of(&answer(0, b"{}")[..cut]).is_err(), "{cut}");
        }
    }
}
