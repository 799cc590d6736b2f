//! What is recorded of a file whose owner one mapped id cannot give it.
//!
//! The record is an extended attribute of the file in the form of containers/storage, which podman and fuse-overlayfs read:
//! `uid:gid:mode[:type]`, the mode in octal digits. A device, which nobody without rights can make, is an empty file with a
//! record whose type is `char-MAJOR-MINOR` or `block-MAJOR-MINOR`.
//!
//! Links, pipes and sockets take no attributes of users (xattr(7)). [`BareRecord`] is what stands for them.

use std::fmt;
use std::str::FromStr;

use rustix::fs::{FileType, XattrFlags, getxattr, removexattr, setxattr};
use rustix::io::Errno;
use rustix::path::Arg;

/// The attribute that has the record.
pub const OWNER_RECORD: &str = "user.containers.override_stat";

/// No record is longer.
pub const LONGEST_RECORD: usize = 128;

/// What a record says of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnerRecord {
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The permissions when the record was written. chmod(2) works without a record, so those of the file count.
    pub mode: u32,
    /// What the empty file stands for, where it is a device.
    pub device: Option<Device>,
}

/// A device node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Device {
    /// A block device; otherwise a character device.
    pub block: bool,
    /// Its major number.
    pub major: u32,
    /// Its minor number.
    pub minor: u32,
}

impl fmt::Display for OwnerRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{:o}", self.uid, self.gid, self.mode & 0o7777)?;
        match self.device {
            Some(Device { block, major, minor }) => {
                write!(f, ":{}-{major}-{minor}", if block { "block" } else { "char" })
            }
            None => Ok(()),
        }
    }
}

/// The attribute that has the record of a link, a pipe or a socket.
///
/// It is the one attribute that root of a user namespace may set on any file of its ids. As a capability it counts at execve(2) alone,
/// which takes neither of the three. Like the owner it belongs to the inode: other names have it, overlayfs copies it, and it goes with
/// the file. chown(2) takes it away, so whoever answers that writes it anew.
pub const BARE_RECORD: &str = "security.capability";

/// True for what takes no attributes of users, and so has a [`BareRecord`].
pub fn is_bare(kind: FileType) -> bool {
    matches!(kind, FileType::Symlink | FileType::Fifo | FileType::Socket)
}

/// The owner that is recorded of a link, a pipe or a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BareRecord {
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// The revisions of the attribute (`struct vfs_cap_data`, `struct vfs_ns_cap_data` in linux/capability.h): the kernel shows the second
/// outside of the user namespace of whoever has set the third, and inside of it the second one in its place.
const REVISIONS: [(u32, usize); 2] = [(0x0200_0000, 20), (0x0300_0000, 24)];
/// What the numbers of capabilities above 31 are in a record. There are no such capabilities.
const MARK: [u32; 2] = [0x7274_6f77, !0x7274_6f77];

impl BareRecord {
    /// The value of the attribute, by which the kernel knows in which user namespace it was set: that of `root`.
    pub fn value(self, root: u32) -> Vec<u8> {
        let words = [REVISIONS[1].0, self.uid, self.gid, MARK[0], MARK[1], root];
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Reads the value of the attribute; none where it is no record.
    pub fn parse(value: &[u8]) -> Option<BareRecord> {
        let (words, []) = value.as_chunks() else { return None };
        let words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
        let [revision, uid, gid, low, high, ..] = words[..] else { return None };
        let is_record = REVISIONS.contains(&(revision, value.len()))
            && [low, high] == MARK
            && uid != u32::MAX
            && gid != u32::MAX;
        is_record.then_some(BareRecord { uid, gid })
    }

    /// What is recorded of the file behind a link of procfs to a descriptor.
    ///
    /// # Errors
    /// As of getxattr(2). That there is no record is none.
    pub fn read(link: impl Arg) -> Result<Option<BareRecord>, Errno> {
        let mut value = [0u8; LONGEST_RECORD];
        match getxattr(link, BARE_RECORD, &mut value[..]) {
            Ok(length) => Ok(BareRecord::parse(&value[..length])),
            // OVERFLOW: another user's.
            Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::OVERFLOW | Errno::RANGE) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Records it of the file behind a link of procfs to a descriptor. False where the file is not this user namespace's, or its file
    /// system keeps no such attribute.
    ///
    /// # Errors
    /// As of setxattr(2).
    pub fn write(self, link: impl Arg) -> Result<bool, Errno> {
        let root = rustix::process::geteuid().as_raw();
        match setxattr(link, BARE_RECORD, &self.value(root), XattrFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS | Errno::INVAL) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Takes the record of such a file away.
    ///
    /// # Errors
    /// As of removexattr(2). That there is no record is none.
    pub fn remove(link: impl Arg) -> Result<(), Errno> {
        match removexattr(link, BARE_RECORD) {
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
            removed => removed,
        }
    }
}

/// The text is no record.
#[derive(Debug, PartialEq, Eq)]
pub struct NoRecord;

impl FromStr for OwnerRecord {
    type Err = NoRecord;

    fn from_str(text: &str) -> Result<OwnerRecord, NoRecord> {
        let mut fields = text.split(':');
        let mut next = || fields.next().ok_or(NoRecord);
        let (uid, gid) = (number(next()?, 10)?, number(next()?, 10)?);
        let mode = number(next()?, 8)? & 0o7777;
        let device = match fields.next() {
            Some(kind) => device(kind)?,
            None => None,
        };
        if fields.next().is_some() || uid == u32::MAX || gid == u32::MAX {
            return Err(NoRecord);
        }
        Ok(OwnerRecord { uid, gid, mode, device })
    }
}

impl OwnerRecord {
    /// Reads the value of the attribute; none where it is no record.
    pub fn parse(value: &[u8]) -> Option<OwnerRecord> {
        std::str::from_utf8(value).ok()?.parse().ok()
    }
}

/// The device of a type; none of a type that the file itself has.
fn device(kind: &str) -> Result<Option<Device>, NoRecord> {
    let mut fields = kind.split('-');
    let block = match fields.next() {
        Some("block") => true,
        Some("char") => false,
        Some("file" | "dir" | "pipe" | "socket" | "symlink") if fields.next().is_none() => return Ok(None),
        _ => return Err(NoRecord),
    };
    let mut next = || number(fields.next().ok_or(NoRecord)?, 10);
    let (major, minor) = (next()?, next()?);
    if fields.next().is_some() {
        return Err(NoRecord);
    }
    Ok(Some(Device { block, major, minor }))
}

/// A number of digits alone: `from_str_radix` takes a sign, too.
fn number(text: &str, radix: u32) -> Result<u32, NoRecord> {
    if !text.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(NoRecord);
    }
    u32::from_str_radix(text, radix).map_err(|_| NoRecord)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_and_written() {
        let record = OwnerRecord { uid: 33, gid: 42, mode: 0o4755, device: None };
        let char = Device { block: false, major: 1, minor: 3 };
        for (text, want) in [
            ("33:42:4755", record),
            ("33:42:4755:char-1-3", OwnerRecord { device: Some(char), ..record }),
            ("33:42:4755:block-1-3", OwnerRecord { device: Some(Device { block: true, ..char }), ..record }),
        ] {
            assert_eq!(text.parse(), Ok(want), "{text}");
            assert_eq!(want.to_string(), text);
        }
        assert_eq!("33:42:0104755:file".parse(), Ok(record), "as containers/storage writes it");
        assert_eq!(OwnerRecord::parse(b"33:42:4755:dir"), Some(record));
    }

    #[test]
    fn records_of_links_are_read_and_written() {
        let record = BareRecord { uid: 33, gid: 3_000_000 };
        let value = record.value(1000);
        assert_eq!(BareRecord::parse(&value), Some(record));
        let second = [&REVISIONS[0].0.to_le_bytes()[..], &value[4..20]].concat();
        assert_eq!(BareRecord::parse(&second), Some(record), "as the kernel shows it inside");
        let capability = [&value[..12], &[0; 8], &value[20..]].concat();
        let nobody = BareRecord { uid: u32::MAX, gid: 0 }.value(0);
        for none in [&value[..20], &value[..23], &capability, &nobody, &[]] {
            assert_eq!(BareRecord::parse(none), None, "{none:?}");
        }
    }

    #[test]
    fn what_is_no_record() {
        for text in [
            "",
            "1",
            "1:2",
            "1:2:",
            "a:2:3",
            "1:2:8",
            "+1:2:3",
            "-1:2:3",
            "1:2:3:",
            "1:2:3:char",
            "1:2:3:char-1",
            "1:2:3:char-1-2-3",
            "1:2:3:file-1",
            "1:2:3:dir:x",
            "4294967295:0:0",
            "4294967296:0:0",
            " 1:2:3",
        ] {
            assert_eq!(text.parse::<OwnerRecord>(), Err(NoRecord), "{text:?}");
        }
        assert_eq!(OwnerRecord::parse(b"\xff"), None);
    }
}
