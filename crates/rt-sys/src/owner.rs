//! What is recorded of a file whose owner one mapped id cannot give it.
//!
//! The record is an extended attribute of the file in the form of containers/storage, which podman and fuse-overlayfs read:
//! `uid:gid:mode[:type]`, the mode in octal digits. A device, which nobody without rights can make, is an empty file with a
//! record whose type is `char-MAJOR-MINOR` or `block-MAJOR-MINOR`.

use std::fmt;
use std::str::FromStr;

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
