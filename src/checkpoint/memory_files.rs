//! Files in memory (memfd_create(2)) that a process has mapped and another one, or itself, has open.
//!
//! A criu without privilege cannot open what is mapped (proc_pid_map_files(5)). It takes such memory for one without a file, and makes it
//! beside the file: what is written to one of them the other does not show. So the image is changed when criu has written it: the
//! memory is that of the open file, as in an image that a criu of root's writes.

use super::image::Image;
use super::numbers::{self, Change};
use super::processes::Mapped;
use super::reach::unknown_form;
use rt_sys::error::Result;
use std::collections::BTreeMap;
use std::ops::Range;

/// criu's list of what files in memory hold. MemfdInodeEntry (memfd.proto): the inode, by which its content is found, its seals (F_SEAL_*)
/// and its number.
const CONTENTS: &str = "memfd.img";
const INODE: u64 = 5;
const SEALS: u64 = 6;
const NUMBER: u64 = 7;
/// FileEntry.memfd (fdinfo.proto), and of that its id and the number of what it holds.
const FILE: u64 = 20;
const FILE_ID: u64 = 1;
const FILE_NUMBER: u64 = 5;
/// MmEntry.vmas (mm.proto), and of those (vma.proto) the number of the memory or of the file, the flags of mmap(2), what it is, and how
/// criu opens the file for it.
const MAPPED: u64 = 14;
const SHARED_ID: u64 = 4;
const FLAGS: u64 = 6;
const KIND: u64 = 7;
const OPENED: u64 = 10;
/// VMA_FILE_SHARED, VMA_ANON_SHARED and VMA_AREA_MEMFD (image.h).
const OF_FILE: u64 = 1 << 7;
const OF_NO_FILE: u64 = 1 << 8;
const OF_MEMORY: u64 = 1 << 14;

/// Which of it is mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// The first bytes, as many everywhere, and by all that can be written to the file itself.
    First(u64),
    /// Other ones, or not the same everywhere.
    Other,
}

impl Part {
    /// That of one mapping.
    pub(super) fn of(mapped: &Mapped<'_>) -> Part {
        match mapped.is_shared && mapped.offset == 0 {
            true => Part::First(mapped.addresses.end - mapped.addresses.start),
            false => Part::Other,
        }
    }

    /// That of both.
    pub(super) fn and(self, other: Part) -> Part {
        if self == other { self } else { Part::Other }
    }

    /// True for all of a file of `size` bytes: what of the last page it does not have counts for nothing.
    pub(super) fn is_all_of(self, size: u64) -> bool {
        let page = rt_sys::start::page_size() as u64;
        self == Part::First(size.next_multiple_of(page))
    }
}

/// Memory that is shared, of which criu keeps what it reads in the first process that it finds with it: from where that has it first on,
/// as many bytes as anybody has of it.
#[derive(Debug, Default)]
pub(super) struct Shared(BTreeMap<String, Vec<Piece>>);

/// What a process has of it.
#[derive(Debug)]
struct Piece {
    /// The place of the process in its tree.
    process: usize,
    addresses: Range<u64>,
    offset: u64,
}

impl Shared {
    /// Notes what the process with the place `process` in its tree has mapped. A process is read as a whole, by addresses.
    pub(super) fn note(&mut self, process: usize, mapped: &Mapped<'_>) {
        let key = format!("{} {}", mapped.device, mapped.inode);
        let piece = Piece { process, addresses: mapped.addresses.clone(), offset: mapped.offset };
        self.0.entry(key).or_default().push(piece);
    }

    /// The place of a process that has another part of such memory than criu would keep, which it does not notice.
    pub(super) fn damaged(&self) -> Option<usize> {
        self.0.values().find_map(|pieces| {
            let end = |piece: &Piece| piece.offset + (piece.addresses.end - piece.addresses.start);
            let size = pieces.iter().map(end).max()?;
            let has_all = |process: &[Piece]| {
                let Some(first) = process.first().filter(|first| first.offset == 0) else { return false };
                let in_row = process.windows(2).take_while(|two| {
                    two[0].addresses.end == two[1].addresses.start && end(&two[0]) == two[1].offset
                });
                in_row.last().map_or(end(first), |two| end(&two[1])) >= size
            };
            let mut processes = pieces.chunk_by(|one, other| one.process == other.process);
            let lacks = processes.clone().find(|process| !has_all(process))?[0].process;
            // The program's first process is the one that criu reads first.
            let is_kept = processes.next().is_some_and(|first| first[0].process == 0 && has_all(first));
            (!is_kept).then_some(lacks)
        })
    }
}

/// Has memory in `image` be that of the open file in memory that it is of.
pub(super) fn join(image: &Image) -> Result<()> {
    let Some(text) = image.file(CONTENTS)? else { return Ok(()) };
    let contents = contents(&text).ok_or_else(|| unknown_form(image, CONTENTS))?;
    let files = image.file(numbers::FILES)?.unwrap_or_default();
    let files = files_of(&files, &contents).ok_or_else(|| unknown_form(image, numbers::FILES))?;
    numbers::change_each(image, "mm-", usize::MAX, |text| joined(text, &files))
}

/// What a file in memory holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Content {
    inode: u64,
    /// Nobody can write to it any more (F_SEAL_WRITE). Then nobody has it mapped by a descriptor that is open for writing, either.
    is_sealed: bool,
}

/// An open file in memory.
#[derive(Debug, PartialEq, Eq)]
struct Opened {
    id: u64,
    content: Content,
}

/// What the list `text` holds, by its numbers; none where it has another form.
fn contents(text: &[u8]) -> Option<BTreeMap<u64, Content>> {
    let mut found = BTreeMap::new();
    for entry in numbers::messages(text)? {
        let number = |field| numbers::last(text, entry.clone(), field);
        let is_sealed = number(SEALS)?? & libc::F_SEAL_WRITE as u64 != 0;
        found.insert(number(NUMBER)??, Content { inode: number(INODE)??, is_sealed });
    }
    Some(found)
}

/// The open files in memory, of each inode one.
fn files_of(text: &[u8], contents: &BTreeMap<u64, Content>) -> Option<BTreeMap<u64, Opened>> {
    let mut found = BTreeMap::new();
    for entry in numbers::messages(text)? {
        for file in numbers::fields(text, entry, FILE)? {
            let number = |field| numbers::last(text, file.clone(), field);
            let content = *contents.get(&number(FILE_NUMBER)??)?;
            found.insert(content.inode, Opened { id: number(FILE_ID)??, content });
        }
    }
    Some(found)
}

/// What is mapped in `text`, with that of the `files`, which stand by their inodes.
fn joined(text: &mut Vec<u8>, files: &BTreeMap<u64, Opened>) -> Option<Change> {
    let mut new = text[..numbers::HEAD].to_vec();
    let mut copied = numbers::HEAD;
    for mapped in numbers::fields(text, numbers::message(text)?, MAPPED)? {
        let number = |field| numbers::last(text, mapped.clone(), field);
        let (shared, kind, flags) = (number(SHARED_ID)??, number(KIND)??, number(FLAGS)??);
        let Some(file) = files.get(&shared).filter(|_| kind & OF_NO_FILE != 0) else { continue };
        let mut entry = text[mapped.clone()].to_vec();
        // Of a field that is there twice the last one counts.
        let kind = kind & !OF_NO_FILE | OF_FILE | OF_MEMORY;
        let flags = flags & !(libc::MAP_ANONYMOUS as u64);
        for (field, value) in [(SHARED_ID, file.id), (FLAGS, flags), (KIND, kind)] {
            numbers::append(&mut entry, field, value);
        }
        if file.content.is_sealed {
            // criu seals it when everything is mapped, which the kernel refuses where something could become writable.
            numbers::append(&mut entry, OPENED, libc::O_RDONLY as u64);
        }
        let length = mapped.end - mapped.start;
        new.extend_from_slice(&text[copied..mapped.start - numbers::varint_of(length as u64).len()]);
        new.extend(numbers::varint_of(entry.len() as u64));
        new.extend(entry);
        copied = mapped.end;
    }
    if copied == numbers::HEAD {
        return Some(Vec::new());
    }
    new.extend_from_slice(&text[copied..]);
    let length = u32::try_from(new.len() - numbers::HEAD).ok()?;
    new[numbers::MAGIC..numbers::HEAD].copy_from_slice(&length.to_le_bytes());
    *text = new;
    let all = 0..text.len();
    Some(Vec::from([all]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_that_of_the_open_file() {
        let file = |messages: &[&[u8]]| {
            let mut text = vec![0; numbers::MAGIC];
            for message in messages {
                text.extend((message.len() as u32).to_le_bytes());
                text.extend_from_slice(message);
            }
            text
        };
        // Inode 300 with number 2, whose seals are 7; id 9 of it.
        let listed = contents(&file(&[&[0x28, 0xac, 0x02, 0x30, 7, 0x38, 2]])).unwrap();
        let open = file(&[&[8, 18, 16, 9, 0xa2, 1, 4, 8, 9, 0x28, 2], &[8, 1, 16, 3]]);
        let mut files = files_of(&open, &listed).unwrap();
        let content = Content { inode: 300, is_sealed: false };
        assert_eq!(files, BTreeMap::from([(300, Opened { id: 9, content })]));
        // F_SEAL_WRITE.
        let sealed = contents(&file(&[&[0x28, 0xac, 0x02, 0x30, 15, 0x38, 2]])).unwrap();
        assert_eq!(sealed, BTreeMap::from([(2, Content { inode: 300, is_sealed: true })]));
        assert_eq!(contents(&file(&[&[0x28, 0xac, 0x02, 0x38, 2]])), None);
        // Two mappings: shared memory 300 without a file, and one that is private.
        let first = [0x20, 0xac, 0x02, 0x30, 0x21, 0x38, 0x81, 2];
        let second = [0x20, 0, 0x30, 0x22, 0x38, 0x81, 4];
        let message = [&[8, 1, 0x72, 8][..], &first, &[0x72, 7], &second, &[0x78, 1]].concat();
        let before = file(&[&message]);
        let mut text = before.clone();
        let changed = joined(&mut text, &files).unwrap();
        let more = [0x20, 9, 0x30, 1, 0x38, 0x81, 0x81, 1];
        let message = [&[8, 1, 0x72, 16][..], &first, &more, &[0x72, 7], &second, &[0x78, 1]].concat();
        let all = 0..text.len();
        assert_eq!((&text, changed), (&file(&[&message]), Vec::from([all])));
        // A sealed one is opened for reading alone.
        files = files_of(&open, &sealed).unwrap();
        let mut text = before.clone();
        let changed = joined(&mut text, &files).unwrap();
        let message =
            [&[8, 1, 0x72, 18][..], &first, &more, &[0x50, 0], &[0x72, 7], &second, &[0x78, 1]].concat();
        let all = 0..text.len();
        assert_eq!((&text, changed), (&file(&[&message]), Vec::from([all])));
        // Nothing of it is open, and another form.
        let mut text = before.clone();
        assert_eq!(joined(&mut text, &BTreeMap::new()), Some(Vec::new()));
        assert_eq!(text, before);
        assert_eq!(joined(&mut before[..before.len() - 1].to_vec(), &files), None);
    }

    #[test]
    fn parts_of_shared_memory_are_found() {
        let shared = |pieces: &[(usize, Range<u64>, u64)]| {
            let mut shared = Shared::default();
            for (process, addresses, offset) in pieces {
                let text = format!(
                    "{:x}-{:x} rw-s {offset:x} 00:01 7 /dev/zero (deleted)",
                    addresses.start, addresses.end
                );
                let mapped = super::super::processes::mapped_in(&text).next().unwrap();
                shared.note(*process, &mapped);
            }
            shared.damaged()
        };
        // All, in two pieces; and twice.
        assert_eq!(shared(&[(1, 0x1000..0x3000, 0), (1, 0x3000..0x4000, 0x2000)]), None);
        assert_eq!(shared(&[(1, 0x1000..0x3000, 0), (1, 0x5000..0x7000, 0)]), None);
        // The first part is missing, the pieces are elsewhere, and another process has more.
        assert_eq!(shared(&[(0, 0x1000..0x3000, 0x1000)]), Some(0));
        assert_eq!(shared(&[(1, 0x1000..0x3000, 0), (1, 0x4000..0x5000, 0x2000)]), Some(1));
        assert_eq!(shared(&[(1, 0x1000..0x3000, 0), (2, 0x1000..0x4000, 0)]), Some(1));
        // The first process has all of it.
        assert_eq!(shared(&[(0, 0x1000..0x3000, 0), (1, 0x1000..0x2000, 0x1000)]), None);
        assert_eq!(shared(&[(0, 0x1000..0x2000, 0), (1, 0x1000..0x3000, 0)]), Some(0));
    }

    #[test]
    fn the_whole_of_a_file_is_told() {
        let page = rt_sys::start::page_size() as u64;
        let whole = Part::First(2 * page);
        assert!(whole.is_all_of(page + 1) && whole.is_all_of(2 * page) && !whole.is_all_of(page));
        assert_eq!(whole.and(Part::First(page)), Part::Other);
        assert!(!Part::Other.is_all_of(page));
    }
}
