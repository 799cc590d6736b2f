//! What the dynamic loader reads of a shared object: machine, SONAME, NEEDED, symbol versions, notes.
//!
//! As the loader does, everything is found by the program headers and the dynamic section (elf(5)), so a
//! stripped section table does not matter, and of a library of 100 MB only some kilobytes are read. Any input
//! may be hostile: it comes from an image.

use crate::error::{Error, Result};
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// A file, or bytes in memory, of which parts are read.
pub trait ReadAt {
    /// Reads at `offset` until `buffer` is full or the end is met; returns how many bytes.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize>;
}

impl ReadAt for File {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            let Some(at) = offset.checked_add(done as u64) else { break };
            match FileExt::read_at(self, &mut buffer[done..], at) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(done)
    }
}

impl ReadAt for [u8] {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|at| self.get(at..)).unwrap_or_default();
        let n = rest.len().min(buffer.len());
        buffer[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
}

/// A file of which the first bytes have been read already: nearly all of what is asked for is in them.
struct Begun<'a, S: ?Sized> {
    head: &'a [u8],
    file: &'a S,
}

impl<S: ReadAt + ?Sized> ReadAt for Begun<'_, S> {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|at| self.head.get(at..));
        match rest.and_then(|rest| rest.get(..buffer.len())) {
            Some(bytes) => {
                buffer.copy_from_slice(bytes);
                Ok(bytes.len())
            }
            None => self.file.read_at(offset, buffer),
        }
    }
}

/// The machines of `e_machine` (elf(5)) whose flags in ld.so.cache are known.
pub mod machine {
    /// Intel 80386.
    pub const I386: u16 = 3;
    /// 64-bit PowerPC.
    pub const PPC64: u16 = 21;
    /// AMD x86-64, and x32 where the class is 32.
    pub const X86_64: u16 = 62;
    /// 64-bit ARM.
    pub const AARCH64: u16 = 183;
    /// RISC-V.
    pub const RISCV: u16 = 243;
}

/// The class of an ELF file: how wide its addresses are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// 32 bits (ELFCLASS32).
    Elf32,
    /// 64 bits (ELFCLASS64).
    #[default]
    Elf64,
}

/// A shared object as the dynamic loader sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Elf {
    /// 32-bit or 64-bit.
    pub class: Class,
    /// `e_machine`.
    pub machine: u16,
    /// DT_SONAME.
    pub soname: Option<String>,
    /// DT_NEEDED, in order.
    pub needed: Vec<String>,
    /// The versions that it defines, but for the one that stands for the file.
    pub defines: Vec<String>,
    /// The versions that it needs. Weak ones are left out.
    pub requires: Vec<VersionNeed>,
    /// The directories of DT_RPATH, as they are written. They count only where there is no DT_RUNPATH.
    pub rpath: Vec<String>,
    /// The directories of DT_RUNPATH, as they are written.
    pub runpath: Vec<String>,
    notes: Vec<NoteSegment>,
}

/// A symbol version that a library needs of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionNeed {
    /// The SONAME of the other library.
    pub library: String,
    /// The version, such as `GLIBC_2.34`.
    pub version: String,
}

/// Where the notes of a PT_NOTE segment are.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NoteSegment {
    offset: u64,
    size: u64,
    align: u64,
}

/// One note of an ELF file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElfNote {
    /// Who defined it, without the final NUL.
    pub owner: String,
    /// What it says.
    pub kind: u32,
    /// Its contents.
    pub description: Vec<u8>,
}

/// The most bytes of one table that are read.
const MOST: u64 = 1 << 20;
/// The bytes of one table that are read first: nearly all tables end within them.
const SOME: u64 = 16 << 10;
/// The longest string of a table.
const LONGEST: u64 = 4096;
/// The most entries of a version table, needed libraries, and notes that are read.
const MOST_ENTRIES: usize = 4096;
/// The most bytes of strings that are kept of one file.
const MOST_STRINGS: usize = 1 << 20;
/// The most segments of notes that are read.
const MOST_NOTES: usize = 16;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_NOTE: u32 = 4;

impl Elf {
    /// Reads a shared object or dynamic executable, little-endian ones only.
    pub fn read(file: &(impl ReadAt + ?Sized)) -> Result<Elf> {
        let (head, class) = head(file)?;
        let machine = u16_at(&head, 18)?;
        let file = &Begun { head: &head, file };
        let headers = program_headers(file, class)?;
        let mut elf = Elf { class, machine, ..Elf::default() };
        for header in headers.iter().filter(|h| h.kind == PT_NOTE).take(MOST_NOTES) {
            let Segment { offset, size, align, .. } = *header;
            elf.notes.push(NoteSegment { offset, size, align });
        }
        if let Some(dynamic) = headers.iter().find(|h| h.kind == PT_DYNAMIC) {
            elf.read_dynamic(file, &headers, dynamic)?;
        }
        Ok(elf)
    }

    /// Reads the notes of all PT_NOTE segments.
    pub fn notes(&self, file: &(impl ReadAt + ?Sized)) -> Result<Vec<ElfNote>> {
        let mut all = Vec::new();
        for segment in &self.notes {
            let bytes = read(file, segment.offset, segment.size.min(MOST))?;
            parse_notes(&bytes, if segment.align == 8 { 8 } else { 4 }, &mut all);
        }
        Ok(all)
    }

    /// The flags that ld.so.cache has for such a file, if its machine is known.
    pub fn cache_flags(&self) -> Option<i32> {
        cache_flags(self.machine, self.class)
    }

    fn read_dynamic(
        &mut self,
        file: &(impl ReadAt + ?Sized),
        headers: &[Segment],
        dynamic: &Segment,
    ) -> Result<()> {
        let table = Dynamic::read(file, dynamic, self.class)?;
        let place = |address| place(headers, address);
        let (Some(strings), size) = (table.strings, table.strings_size) else { return Ok(()) };
        let (offset, rest) = place(strings)?;
        let (part, left) = (RefCell::default(), Cell::new(MOST_STRINGS));
        let strings = Strings { file, offset, size: size.min(rest), part, left };
        self.soname = table.soname.map(|at| strings.get(at)).transpose()?;
        self.needed = table.needed.iter().map(|at| strings.get(*at)).collect::<Result<_>>()?;
        let dirs = |at: Option<u64>| -> Result<Vec<String>> {
            let text = at.map(|at| strings.get(at)).transpose()?.unwrap_or_default();
            Ok(text.split(':').filter(|dir| !dir.is_empty()).map(str::to_owned).collect())
        };
        (self.rpath, self.runpath) = (dirs(table.rpath)?, dirs(table.runpath)?);
        if let Some(address) = table.version_needs {
            let (offset, rest) = place(address)?;
            self.requires = whole(file, offset, rest, |bytes| version_needs(bytes, &strings))?;
        }
        if let Some(address) = table.version_definitions {
            let (offset, rest) = place(address)?;
            self.defines = whole(file, offset, rest, |bytes| version_definitions(bytes, &strings))?;
        }
        Ok(())
    }
}

/// The first bytes of an ELF file, and its class.
fn head(file: &(impl ReadAt + ?Sized)) -> Result<(Vec<u8>, Class)> {
    let head = read(file, 0, 4096)?;
    if head.get(..4) != Some(b"\x7fELF") {
        return Err(Error::OtherFormat("not an ELF file"));
    }
    let class = match (head.get(4), head.get(5)) {
        (Some(2), Some(1)) => Class::Elf64,
        (Some(1), Some(1)) => Class::Elf32,
        _ => return Err(Error::OtherFormat("not a little-endian ELF file")),
    };
    Ok((head, class))
}

/// What a file's dynamic section says, for readers of tables that the loader needs no copy of.
pub(crate) struct Linked {
    pub machine: u16,
    pub class: Class,
    pub headers: Vec<Segment>,
    /// The entries of the dynamic section.
    pub entries: Vec<(u64, u64)>,
}

impl Linked {
    pub(crate) fn read(file: &(impl ReadAt + ?Sized)) -> Result<Linked> {
        let (head, class) = head(file)?;
        let machine = u16_at(&head, 18)?;
        let headers = program_headers(&Begun { head: &head, file }, class)?;
        let entries = match headers.iter().find(|h| h.kind == PT_DYNAMIC) {
            Some(dynamic) => dynamic_entries(&read(file, dynamic.offset, dynamic.size)?, class).collect(),
            None => Vec::new(),
        };
        Ok(Linked { machine, class, headers, entries })
    }

    /// The value of an entry.
    pub(crate) fn value(&self, tag: u64) -> Option<u64> {
        self.entries.iter().find(|(t, _)| *t == tag).map(|(_, value)| *value)
    }
}

/// The flags of ld.so.cache (glibc's FLAG_ELF_LIBC6 and the ABI's) for a machine (`e_machine`) and a class.
pub fn cache_flags(machine: u16, class: Class) -> Option<i32> {
    const LIBC6: i32 = 3;
    let abi = match (machine, class) {
        (machine::X86_64, Class::Elf64) => 0x0300,
        (machine::X86_64, Class::Elf32) => 0x0800,
        (machine::I386, Class::Elf32) => 0,
        (machine::AARCH64, Class::Elf64) => 0x0a00,
        (machine::PPC64, Class::Elf64) => 0x0500,
        (machine::RISCV, Class::Elf64) => 0x1000,
        _ => return None,
    };
    Some(LIBC6 | abi)
}

/// Where an address is in the file, and how many bytes its segment has from there on.
pub(crate) fn place(headers: &[Segment], address: u64) -> Result<(u64, u64)> {
    headers
        .iter()
        .filter(|h| h.kind == PT_LOAD)
        .find(|h| address >= h.address && address - h.address < h.size)
        .and_then(|h| Some((h.offset.checked_add(address - h.address)?, h.size - (address - h.address))))
        .ok_or_else(|| Error::malformed("an address of the dynamic section is in no segment"))
}

/// A program header.
pub(crate) struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    size: u64,
    align: u64,
}

fn program_headers(file: &Begun<'_, impl ReadAt + ?Sized>, class: Class) -> Result<Vec<Segment>> {
    let head = file.head;
    let (offset, size, count) = match class {
        Class::Elf64 => (u64_at(head, 32)?, u16_at(head, 54)?, u16_at(head, 56)?),
        Class::Elf32 => (u32_at(head, 28)?.into(), u16_at(head, 42)?, u16_at(head, 44)?),
    };
    let least = match class {
        Class::Elf64 => 56,
        Class::Elf32 => 32,
    };
    if size < least {
        return Err(Error::malformed(format!("program headers of {size} bytes")));
    }
    let bytes = read(file, offset, u64::from(size) * u64::from(count))?;
    bytes
        .chunks_exact(size.into())
        .map(|h| {
            Ok(match class {
                Class::Elf64 => Segment {
                    kind: u32_at(h, 0)?,
                    offset: u64_at(h, 8)?,
                    address: u64_at(h, 16)?,
                    size: u64_at(h, 32)?,
                    align: u64_at(h, 48)?,
                },
                Class::Elf32 => Segment {
                    kind: u32_at(h, 0)?,
                    offset: u32_at(h, 4)?.into(),
                    address: u32_at(h, 8)?.into(),
                    size: u32_at(h, 16)?.into(),
                    align: u32_at(h, 28)?.into(),
                },
            })
        })
        .collect()
}

/// What is used of the dynamic section.
#[derive(Default)]
struct Dynamic {
    strings: Option<u64>,
    strings_size: u64,
    soname: Option<u64>,
    needed: Vec<u64>,
    rpath: Option<u64>,
    runpath: Option<u64>,
    version_needs: Option<u64>,
    version_definitions: Option<u64>,
}

impl Dynamic {
    fn read(file: &(impl ReadAt + ?Sized), segment: &Segment, class: Class) -> Result<Dynamic> {
        let bytes = read(file, segment.offset, segment.size)?;
        let mut table = Dynamic::default();
        for (tag, value) in dynamic_entries(&bytes, class) {
            match tag {
                1 if table.needed.len() < MOST_ENTRIES => table.needed.push(value),
                5 => table.strings = Some(value),
                10 => table.strings_size = value,
                14 => table.soname = Some(value),
                15 => table.rpath = Some(value),
                29 => table.runpath = Some(value),
                0x6fff_fffe => table.version_needs = Some(value),
                0x6fff_fffc => table.version_definitions = Some(value),
                _ => {}
            }
        }
        Ok(table)
    }
}

/// The entries of a dynamic section: tags and values, up to DT_NULL.
pub(crate) fn dynamic_entries(bytes: &[u8], class: Class) -> impl Iterator<Item = (u64, u64)> {
    let size = match class {
        Class::Elf64 => 16,
        Class::Elf32 => 8,
    };
    let entry = move |entry: &[u8]| match class {
        Class::Elf64 => Some((u64_at(entry, 0).ok()?, u64_at(entry, 8).ok()?)),
        Class::Elf32 => Some((u32_at(entry, 0).ok()?.into(), u32_at(entry, 4).ok()?.into())),
    };
    bytes.chunks_exact(size).map_while(entry).take_while(|(tag, _)| *tag != 0)
}

/// A string table. Only those parts are read that are asked for: the table of a large library has megabytes of symbols.
struct Strings<'a, S: ?Sized> {
    file: &'a S,
    offset: u64,
    size: u64,
    /// The last part: where it begins, and what is in it.
    part: RefCell<(u64, Vec<u8>)>,
    /// How many bytes may still be asked for: a small file can name one long string thousands of times.
    left: Cell<usize>,
}

impl<S: ReadAt + ?Sized> Strings<'_, S> {
    fn get(&self, at: u64) -> Result<String> {
        let text = self.find(at)?;
        let left = self
            .left
            .get()
            .checked_sub(text.len())
            .ok_or_else(|| Error::malformed("its strings are too long"))?;
        self.left.set(left);
        Ok(text)
    }

    fn find(&self, at: u64) -> Result<String> {
        let mut part = self.part.borrow_mut();
        let in_part = at.checked_sub(part.0).and_then(|at| usize::try_from(at).ok());
        if let Some(text) = in_part.and_then(|at| ended(part.1.get(at..)?)) {
            return Ok(text);
        }
        let rest = self
            .size
            .checked_sub(at)
            .ok_or_else(|| Error::malformed("a string lies outside of its table"))?;
        let offset = self
            .offset
            .checked_add(at)
            .ok_or_else(|| Error::malformed("a string lies outside of its table"))?;
        *part = (at, read(self.file, offset, rest.min(LONGEST))?);
        ended(&part.1).ok_or_else(|| Error::malformed("a string has no end"))
    }
}

/// The text in front of the first NUL, if there is one.
fn ended(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|&b| b == 0)?;
    Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

/// What `parse` makes of a table at `offset`. Nothing says how large the table is, so its first part is tried first.
fn whole<T>(
    file: &(impl ReadAt + ?Sized),
    offset: u64,
    rest: u64,
    parse: impl Fn(&[u8]) -> Result<T>,
) -> Result<T> {
    parse(&read(file, offset, rest.min(SOME))?).or_else(|_| parse(&read(file, offset, rest.min(MOST))?))
}

/// Elf64_Verneed and Elf64_Vernaux, which are the same in both classes.
fn version_needs(bytes: &[u8], strings: &Strings<'_, impl ReadAt + ?Sized>) -> Result<Vec<VersionNeed>> {
    const WEAK: u16 = 2;
    let mut all = Vec::new();
    let mut at = 0usize;
    let mut left = MOST_ENTRIES;
    for _ in 0..MOST_ENTRIES {
        let library = strings.get(u32_at(bytes, at + 4)?.into())?;
        let mut inner = step(at, u32_at(bytes, at + 8)?)?;
        for _ in 0..u16_at(bytes, at + 2)? {
            // Entries may overlap, so that few bytes are many of them.
            if left == 0 {
                return Ok(all);
            }
            left -= 1;
            if u16_at(bytes, inner + 4)? & WEAK == 0 {
                let version = strings.get(u32_at(bytes, inner + 8)?.into())?;
                all.push(VersionNeed { library: library.clone(), version });
            }
            match u32_at(bytes, inner + 12)? {
                0 => break,
                next => inner = step(inner, next)?,
            }
        }
        match u32_at(bytes, at + 12)? {
            0 => break,
            next => at = step(at, next)?,
        }
    }
    Ok(all)
}

/// Elf64_Verdef and the first Elf64_Verdaux of each.
fn version_definitions(bytes: &[u8], strings: &Strings<'_, impl ReadAt + ?Sized>) -> Result<Vec<String>> {
    const BASE: u16 = 1;
    let mut all = Vec::new();
    let mut at = 0usize;
    for _ in 0..MOST_ENTRIES {
        if u16_at(bytes, at + 2)? & BASE == 0 {
            let name = step(at, u32_at(bytes, at + 12)?)?;
            all.push(strings.get(u32_at(bytes, name)?.into())?);
        }
        match u32_at(bytes, at + 16)? {
            0 => break,
            next => at = step(at, next)?,
        }
    }
    Ok(all)
}

fn step(at: usize, by: u32) -> Result<usize> {
    at.checked_add(by as usize).ok_or_else(|| Error::malformed("a version table leads out of itself"))
}

/// Notes of one segment; what is cut off ends the list.
fn parse_notes(bytes: &[u8], align: usize, all: &mut Vec<ElfNote>) {
    let mut at = 0usize;
    while all.len() < MOST_ENTRIES {
        let (Ok(name), Ok(size), Ok(kind)) =
            (u32_at(bytes, at), u32_at(bytes, at + 4), u32_at(bytes, at + 8))
        else {
            return;
        };
        let begin = at + 12;
        let Some(owner) = bytes.get(begin..).and_then(|b| b.get(..name as usize)) else { return };
        let inner = (begin + name as usize).next_multiple_of(align);
        let Some(description) = bytes.get(inner..).and_then(|b| b.get(..size as usize)) else { return };
        let owner = owner.split(|&b| b == 0).next().unwrap_or_default();
        all.push(ElfNote {
            owner: String::from_utf8_lossy(owner).into_owned(),
            kind,
            description: description.to_vec(),
        });
        at = (inner + size as usize).next_multiple_of(align);
    }
}

/// Reads `size` bytes at `offset`, less where the file ends; an error where a table is absurdly large.
pub(crate) fn read(file: &(impl ReadAt + ?Sized), offset: u64, size: u64) -> Result<Vec<u8>> {
    if size > 16 * MOST {
        return Err(Error::malformed(format!("a table of {size} bytes")));
    }
    let mut bytes = vec![0; size as usize];
    let n = file.read_at(offset, &mut bytes)?;
    bytes.truncate(n);
    Ok(bytes)
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N]> {
    bytes
        .get(at..)
        .and_then(|b| b.first_chunk())
        .copied()
        .ok_or_else(|| Error::malformed("the ELF file is cut off"))
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Result<u16> {
    bytes_at(bytes, at).map(u16::from_le_bytes)
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Result<u32> {
    bytes_at(bytes, at).map(u32::from_le_bytes)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Result<u64> {
    bytes_at(bytes, at).map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_reads_itself() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let elf = Elf::read(&file).unwrap();
        assert_eq!(elf.class == Class::Elf64, cfg!(target_pointer_width = "64"));
        assert!(elf.cache_flags().is_some());
        if !cfg!(target_feature = "crt-static") {
            assert!(elf.needed.iter().any(|n| n.starts_with("libc.")), "{elf:?}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for bytes in [&b""[..], b"\x7fELF", b"\x7fELF\x02\x02", &[0x7f; 64], b"#!/bin/sh\n"] {
            assert!(Elf::read(bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn small_files_are_little_work() {
        let text = [vec![b'x'; 1000], vec![0]].concat();
        let (part, left) = (RefCell::default(), Cell::new(MOST_STRINGS));
        let strings = Strings { file: &text[..], offset: 0, size: 1001, part, left };
        let got = (0..100_000).take_while(|_| strings.get(0).is_ok()).count();
        assert_eq!(got, MOST_STRINGS / 1000);
        // More weak entries than are read, and one that counts behind them.
        let words = |flags: u16, next: u32| {
            let mut entry = vec![0; 16];
            entry[4..6].copy_from_slice(&flags.to_le_bytes());
            entry[8..12].copy_from_slice(&1000u32.to_le_bytes());
            entry[12..].copy_from_slice(&next.to_le_bytes());
            entry
        };
        let mut table = vec![1, 0, 0xff, 0xff, 0xe8, 3, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0];
        (0..MOST_ENTRIES).for_each(|_| table.extend(words(2, 16)));
        table.extend(words(0, 0));
        assert_eq!(version_needs(&table, &strings).unwrap(), []);
        assert_eq!(version_needs(&[&table[..16], &words(0, 0)].concat(), &strings).unwrap().len(), 1);
    }

    #[test]
    fn notes_are_split_and_cut_ones_end_the_list() {
        let mut bytes = Vec::new();
        for word in [7u32, 5, 3] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(b"NVIDIA\0\0hello\0\0\0");
        bytes.extend([1, 2, 3]);
        let mut notes = Vec::new();
        parse_notes(&bytes, 4, &mut notes);
        let note = ElfNote { owner: "NVIDIA".into(), kind: 3, description: b"hello".to_vec() };
        assert_eq!(notes, [note]);
    }
}
