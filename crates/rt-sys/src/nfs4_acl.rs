//! Access control lists of NFS 4 (RFC 8881, section 6), as a client of Linux gives them in `system.nfs4_acl`: in XDR, the number of
//! entries, and of each its kind, flags, rights and whom it is for. A server with lists of its own can let somebody write who is in no
//! bit of the mode, and Linux's shows the rights of all who are named in the bits of the group.

/// The attribute.
pub const NAME: &str = "system.nfs4_acl";

/// Kinds of entries that decide (RFC 8881, section 6.2.1.1). The others are for the server's log.
const ALLOW: u32 = 0;
const DENY: u32 = 1;
/// Flags: the entry is for what will be made in the directory, and its name is a group's.
const INHERIT_ONLY: u32 = 0x8;
const IDENTIFIER_GROUP: u32 = 0x40;

/// Rights to read a file or to list a directory, and to execute or to enter it.
const READ: u32 = 0x1 | 0x20;
/// Rights by which the content, the names in a directory, or the rights themselves change: WRITE_DATA, APPEND_DATA, DELETE_CHILD,
/// DELETE, WRITE_ACL and WRITE_OWNER.
const WRITE: u32 = 0x2 | 0x4 | 0x40 | 0x1_0000 | 0x4_0000 | 0x8_0000;

/// Whom an entry is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who<'a> {
    Owner,
    Group,
    Everyone,
    User(&'a [u8]),
    /// The members of a group, or whom another special name means, which ends in an `@` (section 6.2.1.5).
    Others,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry<'a> {
    kind: u32,
    rights: u32,
    who: Who<'a>,
}

/// A list.
#[derive(Debug)]
pub struct List<'a>(Vec<Entry<'a>>);

impl<'a> List<'a> {
    /// The list in `bytes`; `None` where they are none, or more than one.
    pub fn parse(bytes: &'a [u8]) -> Option<List<'a>> {
        let mut rest = bytes;
        let count = word(&mut rest)?;
        let mut entries = Vec::new();
        for _ in 0..count {
            let (kind, flags, rights) = (word(&mut rest)?, word(&mut rest)?, word(&mut rest)?);
            let who = match text(&mut rest)? {
                b"OWNER@" => Who::Owner,
                b"GROUP@" => Who::Group,
                b"EVERYONE@" => Who::Everyone,
                name if flags & IDENTIFIER_GROUP != 0 || name.ends_with(b"@") => Who::Others,
                name => Who::User(name),
            };
            if flags & INHERIT_ONLY == 0 && matches!(kind, ALLOW | DENY) {
                entries.push(Entry { kind, rights, who });
            }
        }
        rest.is_empty().then_some(List(entries))
    }

    /// True where others than the owner, root and the user `uid` may change the file; with `trusts_group`, its group may. What an
    /// entry refuses counts for nothing, since it may come after one that allows it, or be for somebody else.
    pub fn lets_others_write(&self, uid: u32, trusts_group: bool) -> bool {
        let is_trusted = |who| match who {
            Who::Owner => true,
            Who::Group => trusts_group,
            Who::Everyone | Who::Others => false,
            Who::User(name) => {
                name == b"0" || name.starts_with(b"root@") || name == uid.to_string().as_bytes()
            }
        };
        self.0.iter().any(|entry| entry.kind == ALLOW && entry.rights & WRITE != 0 && !is_trusted(entry.who))
    }

    /// True where the mode may not tell who can read the file: somebody is named, or others than the owner are refused to.
    pub fn says_more_than_a_mode(&self) -> bool {
        self.0.iter().any(|entry| match entry.who {
            Who::Owner => false,
            Who::Group | Who::Everyone => entry.kind == DENY && entry.rights & READ != 0,
            Who::User(_) | Who::Others => true,
        })
    }
}

/// Takes a number off.
fn word(rest: &mut &[u8]) -> Option<u32> {
    let (first, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(u32::from_be_bytes(*first))
}

/// Takes a text off, which is filled up to a multiple of four bytes.
fn text<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = word(rest)? as usize;
    let (whole, after) = rest.split_at_checked(length.checked_next_multiple_of(4)?)?;
    *rest = after;
    whole.get(..length)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: u32 = 23456;

    /// A list in XDR.
    fn list(entries: &[(u32, u32, u32, &str)]) -> Vec<u8> {
        let mut bytes = (entries.len() as u32).to_be_bytes().to_vec();
        for (kind, flags, rights, who) in entries {
            for number in [*kind, *flags, *rights, who.len() as u32] {
                bytes.extend(number.to_be_bytes());
            }
            bytes.extend(who.as_bytes());
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes
    }

    fn writes(entries: &[(u32, u32, u32, &str)], trusts_group: bool) -> bool {
        List::parse(&list(entries)).unwrap().lets_others_write(ME, trusts_group)
    }

    #[test]
    fn who_can_write() {
        let owner = (ALLOW, 0, 0x16_01e7, "OWNER@");
        let read = 0x12_0081;
        let mode = [owner, (ALLOW, 0x40, read, "GROUP@"), (ALLOW, 0, read, "EVERYONE@")];
        assert!(!writes(&mode, false));
        for bit in [0x2, 0x4, 0x40, 0x1_0000, 0x4_0000, 0x8_0000] {
            assert!(writes(&[owner, (ALLOW, 0, read | bit, "34102")], true), "{bit:#x}");
        }
        assert!(writes(&[owner, (ALLOW, 0x40, 0x2, "team@example.org")], true));
        assert!(writes(&[owner, (ALLOW, 0, 0x2, "EVERYONE@")], true));
        assert!(writes(&[owner, (ALLOW, 0x40, 0x2, "GROUP@")], false));
        assert!(!writes(&[owner, (ALLOW, 0x40, 0x2, "GROUP@")], true));
        for trusted in ["23456", "0", "root@example.org"] {
            assert!(!writes(&[owner, (ALLOW, 0, 0x2, trusted)], false), "{trusted}");
        }
        // A group of that name, which has members. The special names have no groups, whatever the flag says.
        for group in ["23456", "0", "root@example.org"] {
            assert!(writes(&[owner, (ALLOW, 0x40, 0x2, group)], true), "{group}");
        }
        assert!(!writes(&[(ALLOW, 0x40, 0x2, "OWNER@")], false));
        for special in ["root@", "ANONYMOUS@", "AUTHENTICATED@", "INTERACTIVE@"] {
            assert!(writes(&[owner, (ALLOW, 0, 0x2, special)], true), "{special}");
        }
        // Refused, for the log, and for what will be made in the directory.
        for (kind, flags) in [(DENY, 0), (2, 0), (3, 0), (ALLOW, INHERIT_ONLY)] {
            assert!(!writes(&[owner, (kind, flags, 0x2, "34102")], false));
        }
        assert!(writes(&[(DENY, 0, 0x2, "34102"), (ALLOW, 0, 0x2, "34102")], false));
    }

    #[test]
    fn what_a_mode_tells() {
        let more = |entries: &[_]| List::parse(&list(entries)).unwrap().says_more_than_a_mode();
        assert!(!more(&[(ALLOW, 0, 0x3, "OWNER@"), (ALLOW, 0x40, 1, "GROUP@"), (ALLOW, 0, 1, "EVERYONE@")]));
        assert!(!more(&[(DENY, 0, 1, "OWNER@"), (DENY, 0, 2, "EVERYONE@")]));
        assert!(more(&[(DENY, 0, 0x20, "EVERYONE@")]));
        assert!(more(&[(DENY, 0, 1, "34102")]));
        assert!(more(&[(ALLOW, 0, 1, "34102")]));
    }

    #[test]
    fn what_is_no_list() {
        let whole = list(&[(ALLOW, 0, 2, "OWNER@"), (DENY, 0, 2, "somebody@x")]);
        assert!(List::parse(&whole).is_some());
        assert!(List::parse(&list(&[])).is_some());
        (0..whole.len()).for_each(|end| assert!(List::parse(&whole[..end]).is_none(), "{end}"));
        assert!(List::parse(&[whole.clone(), vec![0]].concat()).is_none());
        // A count and a length that nothing has.
        assert!(List::parse(&[0xff; 4]).is_none());
        assert!(List::parse(&[&1u32.to_be_bytes()[..], &[0; 12], &[0xff; 4]].concat()).is_none());
    }
}
