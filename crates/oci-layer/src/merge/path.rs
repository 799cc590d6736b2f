//! Paths as layers write them. Pure.

use std::borrow::Cow;

use rt_sys::bail;
use rt_sys::error::Result;

/// A longer path is refused, as every tool refuses it that goes by paths: PATH_MAX is 4096 with the NUL. So no tree is
/// deeper than half of this.
pub const MAX_PATH: usize = 4095;
/// A longer file name is refused: NAME_MAX of Linux.
const MAX_NAME: usize = 255;

/// An entry's name without leading slashes and without `.`; `x/..` is nothing. Empty for the root.
///
/// # Errors
/// A name that climbs out of the tree, or is too long.
pub fn clean(path: &[u8]) -> Result<Cow<'_, [u8]>> {
    if path.len() > MAX_PATH {
        bail!("a path of {} bytes, longer than {MAX_PATH}", path.len());
    }
    let mut trimmed = path;
    while let Some(rest) = trimmed.strip_prefix(b"/").or_else(|| trimmed.strip_prefix(b"./")) {
        trimmed = rest;
    }
    while let Some(rest) = trimmed.strip_suffix(b"/") {
        trimmed = rest;
    }
    // Nearly all names are clean, and need no memory of their own.
    let is_clean = |part: &[u8]| !matches!(part, b"" | b"." | b"..") && part.len() <= MAX_NAME;
    if trimmed.split(|&b| b == b'/').all(is_clean) {
        return Ok(Cow::Borrowed(trimmed));
    }
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in trimmed.split(|&b| b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                if parts.pop().is_none() {
                    bail!("{:?} leaves the image", show(path));
                }
            }
            _ if part.len() > MAX_NAME => {
                bail!("a file name of {} bytes, longer than {MAX_NAME}", part.len())
            }
            _ => parts.push(part),
        }
    }
    Ok(Cow::Owned(parts.join(&b'/')))
}

/// The directory part and the last component of a clean path.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&b| b == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    }
}

/// The components of a clean path; none of the root's.
pub(super) fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&b| b == b'/').filter(|part| !part.is_empty())
}

/// A path for people: no byte of it can steer a terminal.
pub(super) fn show(path: &[u8]) -> String {
    String::from_utf8_lossy(path).escape_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_clean() {
        for (path, want) in [
            ("a/b", "a/b"),
            ("./a/b/", "a/b"),
            ("//a//./b", "a/b"),
            ("a/../b", "b"),
            ("/", ""),
            ("./", ""),
            ("", ""),
        ] {
            assert_eq!(clean(path.as_bytes()).unwrap(), want.as_bytes(), "{path}");
        }
        for path in ["..", "a/../..", "/../a", &"x".repeat(256), &"x/".repeat(2048)] {
            assert!(clean(path.as_bytes()).is_err(), "{path}");
        }
    }
}
