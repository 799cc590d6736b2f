//! Two numbers in files of criu (images/*.proto of its sources), which are changed when it has written them.
//!
//! A file of criu has two magic numbers and the length of a message, four bytes each, and the message as protobuf encodes it.

use super::image::Image;
use rt_sys::error::{Context, Result};
use rt_sys::{bail, fd};
use rustix::fs::{self, Mode, OFlags};
use std::ops::Range;

/// How long such a file may be, in bytes.
const MOST: usize = 1 << 20;
/// What stands before the message.
const HEAD: usize = 12;

/// InventoryEntry.root_ids.pid_ns_id: the PID namespace that criu was in.
const OWN_PID_NAMESPACE: [u64; 2] = [3, 5];
/// CoreEntry.thread_core.pdeath_sig: the signal that the process gets when its parent ends.
const DEATH_SIGNAL: [u64; 2] = [5, 8];
/// A number that criu gives to no namespace: it counts from 1, and there are ten kinds of them.
const OTHER: u8 = 127;

/// Says in an image that criu was in another PID namespace than the tree. Then it makes one when it restores, without which it
/// makes no first process; nothing else of an image depends on that number.
pub(super) fn ask_for_pid_namespace(image: &Image) -> Result<()> {
    if set(image, "inventory.img", &OWN_PID_NAMESPACE, OTHER)? {
        return Ok(());
    }
    bail!("{}/inventory.img: criu wrote it in a form that rt does not know", image.path.display())
}

/// Has the program `pid` outlive its parent, which is criu when it is restored. `rt` asks for a signal where a container is to end
/// with its runtime.
pub(super) fn forget_death_signal(image: &Image, pid: i32) -> Result<()> {
    set(image, &format!("core-{pid}.img"), &DEATH_SIGNAL, 0).map(|_| ())
}

/// Sets the number behind `path` in a file of an image; false where it has none of one byte, which is one below 128.
fn set(image: &Image, name: &str, path: &[u64], number: u8) -> Result<bool> {
    let shown = || format!("change {}/{name}", image.path.display());
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = fs::openat(&image.dir, name, flags, Mode::empty()).context(shown)?;
    let Some(text) = fd::read_regular(file.try_clone()?, MOST).context(shown)? else {
        bail!("{}: no file of at most {MOST} bytes", shown());
    };
    let Some(at) = place(&text, path) else { return Ok(false) };
    match rustix::io::pwrite(&file, &[number], at as u64).context(shown)? {
        1 => Ok(true),
        _ => bail!("{}: nothing was written", shown()),
    }
}

/// Where the number behind `path` is.
fn place(text: &[u8], path: &[u64]) -> Option<usize> {
    let found = path.iter().try_fold(message(text)?, |part, wanted| fields(text, part, *wanted)?.pop())?;
    (found.len() == 1).then_some(found.start)
}

/// The message of a file.
pub(super) fn message(text: &[u8]) -> Option<Range<usize>> {
    (text.len() >= HEAD).then_some(HEAD..text.len())
}

/// The values of all fields `wanted` of the message that is `part` of `text`; none where it is no message.
pub(super) fn fields(text: &[u8], part: Range<usize>, wanted: u64) -> Option<Vec<Range<usize>>> {
    Some(all(text, part)?.into_iter().filter(|(key, _)| key >> 3 == wanted).map(|(_, value)| value).collect())
}

/// The strings and messages in the message that is `part` of `text`; none where it is no message.
pub(super) fn strings(text: &[u8], part: Range<usize>) -> Option<Vec<Range<usize>>> {
    Some(all(text, part)?.into_iter().filter(|(key, _)| key & 7 == 2).map(|(_, value)| value).collect())
}

/// All fields of the message that is `part` of `text`, each by its key and its value; none where it is no message.
fn all(text: &[u8], part: Range<usize>) -> Option<Vec<(u64, Range<usize>)>> {
    let (mut found, mut at) = (Vec::new(), part.start);
    while at < part.end {
        let (key, start) = varint(text, at)?;
        let (start, end) = match key & 7 {
            0 => (start, varint(text, start)?.1),
            1 => (start, start.checked_add(8)?),
            2 => {
                let (length, start) = varint(text, start)?;
                (start, start.checked_add(usize::try_from(length).ok()?)?)
            }
            5 => (start, start.checked_add(4)?),
            _ => return None,
        };
        if end > part.end {
            return None;
        }
        found.push((key, start..end));
        at = end;
    }
    Some(found)
}

/// The number that is all of `part`.
pub(super) fn number(text: &[u8], part: Range<usize>) -> Option<u64> {
    varint(text, part.start).filter(|(_, end)| *end == part.end).map(|(number, _)| number)
}

/// The number that begins at `at`, and where the next byte is.
fn varint(text: &[u8], at: usize) -> Option<(u64, usize)> {
    let mut number = 0;
    for (n, byte) in text.get(at..)?.iter().take(10).enumerate() {
        number |= u64::from(byte & 0x7f) << (7 * n).min(63);
        if byte & 0x80 == 0 {
            return Some((number, at + n + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_found() {
        // img_version 2; fdinfo_per_id; root_ids with vm_id 1, files_id 300 and pid_ns_id 4.
        let mut text = vec![0; HEAD];
        text.extend([0x08, 2, 0x10, 1, 0x1a, 7, 0x08, 1, 0x10, 0xac, 0x02, 0x28, 4, 0x20, 1]);
        assert_eq!(place(&text, &OWN_PID_NAMESPACE).map(|at| (at, text[at])), Some((HEAD + 12, 4)));
        // The last two bytes are a field behind it.
        for cut in 0..text.len() - 2 {
            assert_eq!(place(&text[..cut], &OWN_PID_NAMESPACE), None, "{cut}");
        }
        // Two bytes are none of criu's.
        let mut long = vec![0; HEAD];
        long.extend([0x1a, 3, 0x28, 0x84, 0x01]);
        assert_eq!(place(&long, &OWN_PID_NAMESPACE), None);
    }
}
