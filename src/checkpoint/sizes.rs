//! Files that have another size than when their image was written: criu restores no program that has one open, unless it only appends.

use super::image::Image;
use super::{numbers, reach};
use rt_sys::err;
use rt_sys::error::Error;
use rustix::fs::{self, FileType};
use std::path::PathBuf;

/// A file that criu compares with what it was.
#[derive(Debug, PartialEq, Eq)]
struct Sized {
    path: PathBuf,
    /// How long it was, in bytes.
    was: u64,
    /// The program has it open to write.
    is_written: bool,
}

/// The error that says of the first such file, in this process's root, what has become of it; none where criu has failed for something else.
pub(super) fn changed(image: &Image) -> Option<Error> {
    let text = match image.file(numbers::FILES) {
        Ok(text) => text?,
        Err(e) => {
            log::debug!("{e}");
            return None;
        }
    };
    find(&text)?.iter().find_map(Sized::changed)
}

impl Sized {
    fn changed(&self) -> Option<Error> {
        let stat = match fs::stat(&self.path) {
            Ok(stat) => stat,
            // As where the caller's file is none of the container's.
            Err(e) => {
                log::debug!("look at {}: {e}", self.path.display());
                return None;
            }
        };
        let now = u64::try_from(stat.st_size).ok()?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || now == self.was {
            return None;
        }
        let (path, was) = (self.path.display(), self.was);
        let error = err!("{path} has {now} bytes, and had {was} when the image was written");
        Some(match self.is_written && now > was {
            true => error.hint(format!(
                "cut it back to {was} bytes: the program writes the rest again. What it opens to append may grow"
            )),
            false => error.hint("the program goes on with the file that it had"),
        })
    }
}

/// The files of criu's list that it compares; none for what is no such list.
fn find(text: &[u8]) -> Option<Vec<Sized>> {
    let mut found = Vec::new();
    for entry in numbers::messages(text)? {
        for file in numbers::fields(text, entry, numbers::FILE)? {
            let Some(was) = numbers::last(text, file.clone(), numbers::FILE_SIZE)? else { continue };
            let flags = numbers::last(text, file.clone(), numbers::FILE_FLAGS)?.unwrap_or(0);
            let is_written = flags & libc::O_ACCMODE as u64 != libc::O_RDONLY as u64;
            let names = numbers::fields(text, file, numbers::FILE_NAME)?;
            found.extend(names.into_iter().map(|name| Sized {
                path: reach::path_of(&text[name]),
                was,
                is_written,
            }));
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_with_a_size_are_found() {
        let entry = |flags: u8, size: Option<u8>, name: &[u8]| {
            let mut file = vec![8, 1, 16, flags, 50, name.len() as u8];
            file.extend_from_slice(name);
            file.extend(size.map(|size| [64, size]).into_iter().flatten());
            [&[8, 1, 16, 1, 26, file.len() as u8][..], &file].concat()
        };
        let mut text = vec![0; numbers::MAGIC];
        for message in [entry(1, Some(21), b"/w/plain"), entry(0, Some(9), b"/input"), entry(1, None, b"log")]
        {
            text.extend((message.len() as u32).to_le_bytes());
            text.extend(message);
        }
        let sized = |path: &str, was, is_written| Sized { path: path.into(), was, is_written };
        assert_eq!(find(&text), Some(vec![sized("/w/plain", 21, true), sized("/input", 9, false)]));
        assert_eq!(find(&text[..text.len() - 1]), None);
    }
}
