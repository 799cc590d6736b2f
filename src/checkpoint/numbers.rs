//! Numbers in files of criu (images/*.proto of its sources), which are changed when it has written them.
//!
//! A file of criu has two magic numbers of four bytes, and messages as protobuf encodes them, each behind its length of four bytes.
//! Most have one.

use super::image::Image;
use rt_sys::error::{Context, Result};
use rt_sys::{bail, fd, look};
use rustix::fd::OwnedFd;
use rustix::fs::{self, Mode, OFlags};
use std::ops::Range;

/// How long such a file may be, in bytes.
const MOST: usize = 1 << 20;
/// The magic numbers.
pub(super) const MAGIC: usize = 8;
/// What stands before the first message.
pub(super) const HEAD: usize = MAGIC + LENGTH;
/// The length of a message.
const LENGTH: usize = 4;

/// InventoryEntry.root_ids.pid_ns_id: the PID namespace that criu was in.
const OWN_PID_NAMESPACE: [u64; 2] = [3, 5];
/// CoreEntry.thread_core.pdeath_sig: the signal that the process gets when its parent ends.
const DEATH_SIGNAL: [u64; 2] = [5, 8];
/// criu's list of open files.
pub(super) const FILES: &str = "files.img";
/// FileEntry.reg in it, and of that the name, the flags of open(2), the size and the mode of the file.
pub(super) const FILE: u64 = 3;
pub(super) const FILE_NAME: u64 = 6;
pub(super) const FILE_FLAGS: u64 = 2;
pub(super) const FILE_SIZE: u64 = 8;
const FILE_MODE: u64 = 10;
/// A field that such an entry does not have, and that criu skips. Its key is one byte long, as those of the size and the mode.
const NO_FIELD: u8 = 15;
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

/// Has criu take files of any size for those that it calls `names`, and append to them: their places are those of other files.
pub(super) fn append_to_others(image: &Image, names: &[&str]) -> Result<()> {
    if names.is_empty() {
        return Ok(());
    }
    change(image, FILES, usize::MAX, |text| append_all(text, names))
}

/// Has criu open files whatever mode they have: it refuses a directory that has got the sticky bit or the set-group-ID bit since. `rt`
/// itself compares what counts.
pub(super) fn forget_modes(image: &Image) -> Result<()> {
    match change(image, FILES, usize::MAX, |text| without_modes(text)) {
        // Nothing is open.
        Err(e) if e.is(libc::ENOENT) => Ok(()),
        changed => changed,
    }
}

/// Which parts of a file's text have been changed.
pub(super) type Change = Vec<Range<usize>>;

/// Has `edit` change the text of a file of `image`, which has `most` bytes at the most, and writes the parts that it returns. The text
/// gets no shorter.
fn change(
    image: &Image,
    name: &str,
    most: usize,
    edit: impl FnOnce(&mut Vec<u8>) -> Option<Change>,
) -> Result<()> {
    let shown = || format!("change {}/{name}", image.path.display());
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = fs::openat(&image.dir, name, flags, Mode::empty()).context(shown)?;
    let Some(mut text) = fd::read_regular(file.try_clone()?, most).context(shown)? else {
        bail!("{}: no file of at most {most} bytes", shown());
    };
    let Some(changed) = edit(&mut text) else {
        bail!("{}: criu wrote it in a form that rt does not know", shown());
    };
    changed.into_iter().try_for_each(|part| write_at(&file, &text, &part).context(shown))
}

/// The same in all files of `image` of which there is one for each process, or thread: their names begin with `kind`.
pub(super) fn change_each(
    image: &Image,
    kind: &str,
    most: usize,
    edit: impl Fn(&mut Vec<u8>) -> Option<Change>,
) -> Result<()> {
    for name in look::names(&image.dir).context(|| format!("list {}", image.path.display()))? {
        let name = String::from_utf8(name).unwrap_or_default();
        if name.starts_with(kind) && name.ends_with(".img") {
            change(image, &name, most, &edit)?;
        }
    }
    Ok(())
}

/// Writes `part` of `text`, which a file has, where it is in that.
pub(super) fn write_at(file: &OwnedFd, text: &[u8], part: &Range<usize>) -> Result<()> {
    let (mut rest, mut at) = (&text[part.clone()], part.start as u64);
    while !rest.is_empty() {
        match rustix::io::pwrite(file, rest, at)? {
            0 => bail!("nothing was written"),
            n => (rest, at) = (&rest[n..], at + n as u64),
        }
    }
    Ok(())
}

/// Changes the entries of the files that are called `names`, and returns where; `None` where `text` has another form.
fn append_all(text: &mut [u8], names: &[&str]) -> Option<Vec<Range<usize>>> {
    let mut changed = Vec::new();
    for entry in messages(text)? {
        for file in fields(text, entry, FILE)? {
            let named = fields(text, file.clone(), FILE_NAME)?;
            if !named
                .into_iter()
                .any(|name| names.iter().any(|known| *known.as_bytes() == text[name.clone()]))
            {
                continue;
            }
            for flags in fields(text, file.clone(), FILE_FLAGS)? {
                let appends = number(text, flags.clone())? | u64::from(OFlags::APPEND.bits());
                replace(&mut text[flags.clone()], appends)?;
                changed.push(flags);
            }
            changed.extend(fields(text, file, FILE_SIZE)?.into_iter().map(|size| skip(text, &size)));
        }
    }
    Some(changed)
}

/// Has criu skip the field with the value `value`, and returns where its key is.
fn skip(text: &mut [u8], value: &Range<usize>) -> Range<usize> {
    replaced(text, value.start - 1, NO_FIELD << 3)
}

/// Changes all entries of files, and returns where; `None` where `text` has another form.
fn without_modes(text: &mut [u8]) -> Option<Vec<Range<usize>>> {
    let mut modes = Vec::new();
    for entry in messages(text)? {
        modes.extend(nested(text, entry, &[FILE, FILE_MODE])?);
    }
    Some(modes.iter().map(|mode| skip(text, mode)).collect())
}

/// Writes `number` in as many bytes as `place` has; `None` where it is longer.
pub(super) fn replace(place: &mut [u8], number: u64) -> Option<()> {
    let last = place.len().checked_sub(1)?;
    for (n, byte) in place.iter_mut().enumerate() {
        let part = number.checked_shr(7 * n as u32).unwrap_or(0);
        *byte = (part & 0x7f) as u8 | if n < last { 0x80 } else { 0 };
    }
    (number.checked_shr(7 * place.len() as u32).unwrap_or(0) == 0).then_some(())
}

/// All messages of a file.
pub(super) fn messages(text: &[u8]) -> Option<Vec<Range<usize>>> {
    let (mut found, mut at) = (Vec::new(), MAGIC);
    text.get(..at)?;
    while at < text.len() {
        let message = message_at(text, at)?;
        at = message.end;
        found.push(message);
    }
    Some(found)
}

/// The message whose length stands at `at`.
pub(super) fn message_at(text: &[u8], at: usize) -> Option<Range<usize>> {
    let start = at + LENGTH;
    let length = u32::from_le_bytes(text.get(at..start)?.try_into().ok()?);
    let message = start..start.checked_add(usize::try_from(length).ok()?)?;
    text.get(message.clone())?;
    Some(message)
}

/// Sets the number behind `path` in a file of an image; false where it has none of one byte, which is one below 128.
fn set(image: &Image, name: &str, path: &[u64], number: u8) -> Result<bool> {
    let mut at = None;
    change(image, name, MOST, |text| {
        at = place(text, path);
        Some(at.into_iter().map(|at| replaced(text, at, number)).collect())
    })?;
    Ok(at.is_some())
}

/// Writes a byte, and returns where.
fn replaced(text: &mut [u8], at: usize, byte: u8) -> Range<usize> {
    text[at] = byte;
    at..at + 1
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

/// The values of all fields behind `chain` in the message that is `part` of `text`: of each field of the first number those of the
/// second, and so on; none where one is no message.
pub(super) fn nested(text: &[u8], part: Range<usize>, chain: &[u64]) -> Option<Vec<Range<usize>>> {
    let Some((field, rest)) = chain.split_first() else { return Some(vec![part]) };
    let mut found = Vec::new();
    for part in fields(text, part, *field)? {
        found.extend(nested(text, part, rest)?);
    }
    Some(found)
}

/// The values of all fields `wanted` of the message that is `part` of `text`; none where it is no message.
pub(super) fn fields(text: &[u8], part: Range<usize>, wanted: u64) -> Option<Vec<Range<usize>>> {
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
        if key >> 3 == wanted {
            found.push(start..end);
        }
        at = end;
    }
    Some(found)
}

/// The number that is all of `part`.
pub(super) fn number(text: &[u8], part: Range<usize>) -> Option<u64> {
    varint(text, part.start).filter(|(_, end)| *end == part.end).map(|(number, _)| number)
}

/// The number that is the last value of the field `wanted` in the message that is `part` of `text`, if it has one; none where it is no
/// message.
pub(super) fn last(text: &[u8], part: Range<usize>, wanted: u64) -> Option<Option<u64>> {
    match fields(text, part, wanted)?.pop() {
        Some(value) => number(text, value).map(Some),
        None => Some(None),
    }
}

/// Appends a field with `number` to a message.
pub(super) fn append(message: &mut Vec<u8>, field: u64, number: u64) {
    message.extend(varint_of(field << 3));
    message.extend(varint_of(number));
}

/// The same with a field of bytes.
pub(super) fn append_bytes(message: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    message.extend(varint_of(field << 3 | 2));
    message.extend(varint_of(bytes.len() as u64));
    message.extend_from_slice(bytes);
}

/// `number` in as many bytes as it needs.
pub(super) fn varint_of(number: u64) -> Vec<u8> {
    let mut bytes = vec![0; (64 - (number | 1).leading_zeros()).div_ceil(7) as usize];
    let _ = replace(&mut bytes, number);
    bytes
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

    /// A file of criu with `messages`.
    fn file_of(messages: &[&[u8]]) -> Vec<u8> {
        let mut text = vec![0; MAGIC];
        for message in messages {
            text.extend((message.len() as u32).to_le_bytes());
            text.extend_from_slice(message);
        }
        text
    }

    #[test]
    fn files_are_appended_to() {
        // type 1, id 1, reg with id 1, flags 0x8001, name a and size 300; one without a size; one that is no file.
        let named =
            [0x08, 1, 0x10, 1, 0x1a, 12, 0x08, 1, 0x10, 0x81, 0x80, 0x02, 0x32, 1, b'a', 0x40, 0xac, 0x02];
        let without = [0x08, 1, 0x10, 2, 0x1a, 7, 0x08, 2, 0x10, 1, 0x32, 1, b'b'];
        let pipe = [0x08, 2, 0x10, 3, 0x2a, 2, 0x08, 3];
        let whole = file_of(&[&without, &pipe, &named]);
        let mut text = whole.clone();
        assert_eq!(append_all(&mut text, &["aa"]), Some(Vec::new()));
        assert_eq!(text, whole);
        let end = text.len();
        assert_eq!(append_all(&mut text, &["a"]), Some(vec![end - 9..end - 6, end - 3..end - 2]));
        assert_eq!(text[end - 9..], [0x81, 0x88, 0x02, 0x32, 1, b'a', 0x78, 0xac, 0x02]);
        // Its flags have no byte more.
        assert_eq!(append_all(&mut text, &["b"]), None);
        assert_eq!(append_all(&mut text[..end - 1], &["a"]), None);
    }

    #[test]
    fn modes_are_forgotten() {
        // type 1, id 1, reg with id 1, name a and mode 042755.
        let named = [0x08, 1, 0x10, 1, 0x1a, 9, 0x08, 1, 0x32, 1, b'a', 0x50, 0xed, 0x8b, 0x01];
        let pipe = [0x08, 2, 0x10, 3, 0x2a, 2, 0x50, 3];
        let mut text = file_of(&[&named, &pipe, &named]);
        let (first, end) = (HEAD + 11, text.len());
        assert_eq!(without_modes(&mut text), Some(vec![first..first + 1, end - 4..end - 3]));
        assert_eq!(text[end - 4..], [0x78, 0xed, 0x8b, 0x01]);
        assert_eq!(without_modes(&mut text[..end - 1]), None);
    }

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
