//! The record of what stood at the places of host files when `rt` could still replace it: a file in the bundle.
//!
//! A bind of a host's file keeps programs from renaming over it and from removing it. In a root that its programs may
//! write, host files are therefore copied. The record tells a copy, and what the image itself had there, from what a
//! program or a user has written since: that stays.
//!
//! A line is the content's hash and length, and the path inside. Lines are only added, each by one write(2), so that
//! several starts may write at a time. Whoever can change the record, or make a content of the same hash, has a file of
//! their own root replaced by the host's at the next start, and nothing else.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The record's name, beside config.json.
pub const RECORD: &str = "host-files";
/// The longest file that is copied, in bytes. Files of hosts are far shorter.
pub const MOST: usize = 4 << 20;

/// What a record says.
#[derive(Debug, Default)]
pub struct Record {
    text: Vec<u8>,
}

impl Record {
    /// The record whose text this is.
    pub fn of(text: Vec<u8>) -> Record {
        Record { text }
    }

    /// True where `content` at `path` is what was recorded, unchanged.
    pub fn has(&self, path: &Path, content: &[u8]) -> bool {
        let wanted = line(path, content);
        self.lines().any(|line| line == wanted.trim_ascii_end())
    }

    /// True where anything was recorded for `path`.
    pub fn knows(&self, path: &Path) -> bool {
        self.lines().any(|line| line.splitn(3, |&b| b == b' ').nth(2) == Some(path.as_os_str().as_bytes()))
    }

    fn lines(&self) -> impl Iterator<Item = &[u8]> {
        self.text.split(|&b| b == b'\n')
    }
}

/// The line that records `content` at `path`.
pub fn line(path: &Path, content: &[u8]) -> Vec<u8> {
    let head = format!("{:016x} {} ", hash(content), content.len());
    [head.as_bytes(), path.as_os_str().as_bytes(), b"\n"].concat()
}

/// FNV-1a, 64 bits. It tells an accident from a change; nothing is protected by it.
pub fn hash(content: &[u8]) -> u64 {
    content
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// True where a line can hold `path`.
pub fn fits(path: &OsStr) -> bool {
    !path.as_bytes().contains(&b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_is_known_at_its_path() {
        let (hosts, other) = (Path::new("/etc/hosts"), Path::new("/etc/host"));
        let record =
            Record::of([line(hosts, b"a"), line(hosts, b""), line(Path::new("/a b"), b"c")].concat());
        assert!(record.has(hosts, b"a") && record.has(hosts, b"") && record.has(Path::new("/a b"), b"c"));
        assert!(!record.has(hosts, b"c") && !record.has(other, b"a"));
        assert!(record.knows(hosts) && record.knows(Path::new("/a b")) && !record.knows(other));
        assert!(!Record::of(b"\n\xff\ngarbage\n".to_vec()).knows(other));
        // The vector of FNV's authors for 64 bits: other versions of rt read the same records.
        assert_eq!(line(hosts, b"foobar"), b"85944171f73967e8 6 /etc/hosts\n");
    }
}
