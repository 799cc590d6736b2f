//! /etc/ld.so.cache: reading it in all of glibc's forms, adding libraries, writing the current form.
//!
//! The form is that of glibc's dl-cache.h: an array of entries, sorted for a binary search, then strings, then
//! extensions. Older caches begin with the form of libc5 and have this one behind it; every glibc since 2.2
//! reads this one alone, too.

use crate::error::{Error, Result};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;

/// Where glibc keeps what it knows.
pub const LD_CACHE: &str = "/etc/ld.so.cache";
const OLD_MAGIC: &[u8] = b"ld.so-1.7.0";
const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const HEADER: usize = 48;
const ENTRY: usize = 24;
const OLD_ENTRY: usize = 12;
/// The longest string (PATH_MAX), and how long all may be together: entries share strings, so that a small cache of an
/// image's can be a huge one when each is written out.
const LONGEST: usize = 4096;
const MOST_STRINGS: usize = 16 << 20;
/// cache_file_new_flags_endian_little.
const LITTLE_ENDIAN: u8 = 2;
const EXTENSION_MAGIC: u32 = 0xeaa4_2174;
const TAG_GENERATOR: u32 = 0;
const TAG_HWCAPS: u32 = 1;
/// DL_CACHE_HWCAP_EXTENSION: the low half of `hwcap` is an index into the names of subdirectories.
const HWCAP_EXTENSION: u64 = 1 << 62;

/// One library that the dynamic loader finds by name.
///
/// A node has thousands of them, so an entry that was parsed borrows its strings from the bytes of the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheEntry<'a> {
    /// Kind and ABI (`FLAG_*` of glibc's ldconfig.h), see [`crate::elf::Elf::cache_flags`].
    pub flags: i32,
    /// What programs ask for: the SONAME, or the name of a link.
    pub name: Cow<'a, OsStr>,
    /// Where it is.
    pub path: Cow<'a, OsStr>,
    /// The least kernel version that it needs, as old caches have it.
    pub os_version: u32,
    /// Needed processor features as a mask, of caches before glibc 2.33; else the ISA level in the upper half.
    pub hwcap: u64,
    /// The glibc-hwcaps subdirectory that it is in.
    pub subdirectory: Option<&'a OsStr>,
}

impl<'a> CacheEntry<'a> {
    /// A library for every processor.
    pub fn new(
        name: &'a (impl AsRef<OsStr> + ?Sized),
        path: &'a (impl AsRef<OsStr> + ?Sized),
        flags: i32,
    ) -> CacheEntry<'a> {
        CacheEntry::of(Cow::Borrowed(name.as_ref()), Cow::Borrowed(path.as_ref()), flags)
    }

    /// A library for every processor, with strings of its own.
    pub fn owned(name: impl AsRef<OsStr>, path: impl AsRef<OsStr>, flags: i32) -> CacheEntry<'a> {
        CacheEntry::of(Cow::Owned(name.as_ref().to_owned()), Cow::Owned(path.as_ref().to_owned()), flags)
    }

    fn of(name: Cow<'a, OsStr>, path: Cow<'a, OsStr>, flags: i32) -> CacheEntry<'a> {
        CacheEntry { flags, name, path, os_version: 0, hwcap: 0, subdirectory: None }
    }
}

/// Which names of libraries are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameMatch<'n> {
    /// This name, such as `libcuda.so.1`.
    Exact(&'n str),
    /// This name, and this name with any version behind it: `libcuda.so` stands for `libcuda.so.1` too.
    AnyVersion(&'n str),
}

impl NameMatch<'_> {
    /// True where the library called `name` is looked for.
    pub fn matches(self, name: &OsStr) -> bool {
        match self {
            NameMatch::Exact(wanted) => name == wanted,
            NameMatch::AnyVersion(stem) => {
                let rest = name.as_bytes().strip_prefix(stem.as_bytes());
                rest.is_some_and(|rest| rest.first().is_none_or(|byte| *byte == b'.'))
            }
        }
    }
}

/// A whole cache, in the order in which the loader looks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cache<'a> {
    /// The libraries.
    pub entries: Vec<CacheEntry<'a>>,
}

impl<'a> Cache<'a> {
    /// Parses a cache of any form.
    pub fn parse(bytes: &'a [u8]) -> Result<Cache<'a>> {
        let reader = CacheReader::parse(bytes)?;
        // Room for the libraries that callers add.
        let mut entries = Vec::with_capacity(reader.count() + 32);
        let mut strings = 0;
        for raw in reader.table.chunks_exact(reader.width) {
            let Some(entry) = reader.entry(raw)? else { continue };
            strings += entry.name.len() + entry.path.len();
            if strings > MOST_STRINGS {
                return Err(Error::malformed(format!(
                    "its entries have more than {MOST_STRINGS} bytes of strings"
                )));
            }
            entries.push(entry);
        }
        Ok(Cache { entries })
    }

    /// The path that the loader takes for `name`, of processors without special features.
    pub fn find(&self, name: &str, flags: i32) -> Option<&OsStr> {
        let plain = |e: &&CacheEntry| e.flags == flags && &*e.name == name && e.subdirectory.is_none();
        self.entries.iter().find(plain).map(|e| &*e.path)
    }

    /// Adds libraries so that they are found before those of the same name that are there already.
    pub fn add_first(&mut self, new: Vec<CacheEntry<'a>>) {
        // Within a name, the loader prefers subdirectories for better processors, whatever stands first.
        self.entries.retain(|old| {
            let same = |e: &CacheEntry| e.name == old.name && e.flags == old.flags;
            !new.iter().any(|e| same(e) && (old.subdirectory.is_some() || e.path == old.path))
        });
        self.entries.splice(0..0, new);
        // The sort is stable, so what stood first within a name still does.
        self.entries.sort_by(|a, b| compare(&b.name, &a.name).then(b.flags.cmp(&a.flags)));
    }

    /// The cache in glibc's current form.
    pub fn to_bytes(&self) -> Vec<u8> {
        let strings_begin = HEADER + self.entries.len() * ENTRY;
        let mut subdirectories: Vec<&OsStr> = self.entries.iter().filter_map(|e| e.subdirectory).collect();
        subdirectories.sort_unstable();
        subdirectories.dedup();
        let strings: usize = self.entries.iter().map(|e| e.path.len() + e.name.len() + 2).sum();
        let mut bytes = Vec::with_capacity(strings_begin + strings + 1024);
        bytes.resize(strings_begin, 0);
        for (n, entry) in self.entries.iter().enumerate() {
            let path = add(&mut bytes, &entry.path);
            let name = match tail(&entry.path, &entry.name) {
                Some(skipped) => path + skipped as u32,
                None => add(&mut bytes, &entry.name),
            };
            let index = entry.subdirectory.and_then(|s| subdirectories.binary_search(&s).ok());
            let hwcap = match index {
                Some(index) => HWCAP_EXTENSION | (entry.hwcap & !0xffff_ffff) | index as u64,
                None => entry.hwcap,
            };
            let raw = &mut bytes[HEADER + n * ENTRY..][..ENTRY];
            raw[..4].copy_from_slice(&entry.flags.to_le_bytes());
            raw[4..8].copy_from_slice(&name.to_le_bytes());
            raw[8..12].copy_from_slice(&path.to_le_bytes());
            raw[12..16].copy_from_slice(&entry.os_version.to_le_bytes());
            raw[16..].copy_from_slice(&hwcap.to_le_bytes());
        }
        let names: Vec<u32> = subdirectories.iter().map(|s| add(&mut bytes, s)).collect();
        let strings_size = bytes.len() - strings_begin;
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        let extension = bytes.len();
        bytes[..20].copy_from_slice(MAGIC);
        bytes[20..24].copy_from_slice(&(self.entries.len() as u32).to_le_bytes());
        bytes[24..28].copy_from_slice(&(strings_size as u32).to_le_bytes());
        bytes[28] = LITTLE_ENDIAN;
        bytes[32..36].copy_from_slice(&(extension as u32).to_le_bytes());
        bytes.extend(extensions(extension, &names));
        bytes
    }
}

/// Adds a string to a cache under construction; returns where it is.
fn add(bytes: &mut Vec<u8>, text: &OsStr) -> u32 {
    let at = bytes.len();
    bytes.extend(text.as_bytes());
    bytes.push(0);
    at as u32
}

/// Looks libraries up in the bytes of a cache, without reading all of it as [`Cache::parse`] does.
#[derive(Debug)]
pub struct CacheReader<'a> {
    /// The entries, and the size of one.
    table: &'a [u8],
    width: usize,
    /// What their strings are counted from.
    strings: &'a [u8],
    /// The names of the glibc-hwcaps subdirectories.
    subdirectories: Vec<&'a OsStr>,
}

impl<'a> CacheReader<'a> {
    /// Finds the parts of a cache of any form.
    pub fn parse(bytes: &'a [u8]) -> Result<CacheReader<'a>> {
        if bytes.starts_with(MAGIC) {
            return CacheReader::of_new(bytes);
        }
        if !bytes.starts_with(OLD_MAGIC) {
            return Err(Error::OtherFormat("not an ld.so.cache"));
        }
        let count = u32_at(bytes, 12)? as usize;
        let end = count.checked_mul(OLD_ENTRY).and_then(|n| n.checked_add(16));
        let end = end.filter(|end| *end <= bytes.len()).ok_or_else(cut_off)?;
        match bytes.get(end.next_multiple_of(8)..) {
            Some(new) if new.starts_with(MAGIC) => CacheReader::of_new(new),
            // libc5's form: strings are counted from behind the table.
            _ => Ok(CacheReader {
                table: &bytes[16..end],
                width: OLD_ENTRY,
                strings: &bytes[end..],
                subdirectories: Vec::new(),
            }),
        }
    }

    fn of_new(bytes: &'a [u8]) -> Result<CacheReader<'a>> {
        if !matches!(bytes.get(28), Some(0 | &LITTLE_ENDIAN)) {
            return Err(Error::OtherFormat("an ld.so.cache of the other byte order"));
        }
        let count = u32_at(bytes, 20)? as usize;
        let end = count.checked_mul(ENTRY).and_then(|n| n.checked_add(HEADER));
        let table = end.and_then(|end| bytes.get(HEADER..end)).ok_or_else(cut_off)?;
        let subdirectories = match u32_at(bytes, 32)? {
            0 => Vec::new(),
            at => subdirectories(bytes, at as usize)?,
        };
        Ok(CacheReader { table, width: ENTRY, strings: bytes, subdirectories })
    }

    /// The number of all entries, the damaged ones too: what [`CacheReader::named`] scans.
    pub fn count(&self) -> usize {
        self.table.len() / self.width
    }

    /// The libraries whose names match `name`, in the order of the cache. Damaged entries are left out.
    pub fn named(&self, name: NameMatch<'_>) -> impl Iterator<Item = CacheEntry<'a>> {
        let (stem, versions) = match name {
            NameMatch::Exact(name) => (name.as_bytes().to_owned(), false),
            NameMatch::AnyVersion(stem) => (stem.as_bytes().to_owned(), true),
        };
        let called = move |raw: &&[u8]| {
            let rest = u32_at(raw, 4).ok().and_then(|at| self.strings.get(at as usize..));
            let Some(rest) = rest else { return false };
            // Nearly all names begin with the same letters, and few are of that length: this comparison is the fast one.
            let end = rest.get(stem.len());
            (end == Some(&0) || (versions && end == Some(&b'.'))) && rest.starts_with(&stem)
        };
        self.table.chunks_exact(self.width).filter(called).filter_map(|raw| self.entry(raw).ok()?)
    }

    /// An entry; `None` for what the loader skips.
    fn entry(&self, raw: &[u8]) -> Result<Option<CacheEntry<'a>>> {
        let name = string(self.strings, u32_at(raw, 4)? as usize)?;
        let path = string(self.strings, u32_at(raw, 8)? as usize)?;
        let mut entry = CacheEntry::new(name, path, u32_at(raw, 0)? as i32);
        if self.width == OLD_ENTRY {
            return Ok(Some(entry));
        }
        entry.os_version = u32_at(raw, 12)?;
        let hwcap = u64::from(u32_at(raw, 16)?) | u64::from(u32_at(raw, 20)?) << 32;
        if hwcap & HWCAP_EXTENSION == 0 {
            entry.hwcap = hwcap;
            return Ok(Some(entry));
        }
        // What an older ldconfig could not name.
        let Some(name) = self.subdirectories.get((hwcap & 0xffff_ffff) as usize) else { return Ok(None) };
        entry.subdirectory = Some(name);
        entry.hwcap = hwcap & !HWCAP_EXTENSION & !0xffff_ffff;
        Ok(Some(entry))
    }
}

/// How many bytes of `path` stand before `name`, where it ends with it.
fn tail(path: &OsStr, name: &OsStr) -> Option<usize> {
    path.as_bytes().ends_with(name.as_bytes()).then(|| path.len() - name.len())
}

/// The extension directory at `begin` and its sections: who made the cache, and the names of subdirectories.
fn extensions(begin: usize, names: &[u32]) -> Vec<u8> {
    let generator = concat!("rt ", env!("CARGO_PKG_VERSION"));
    let count = if names.is_empty() { 1 } else { 2 };
    let mut at = (begin + 8 + count * 16) as u32;
    let mut bytes = Vec::new();
    let words = |bytes: &mut Vec<u8>, words: &[u32]| words.iter().for_each(|w| bytes.extend(w.to_le_bytes()));
    words(&mut bytes, &[EXTENSION_MAGIC, count as u32]);
    if !names.is_empty() {
        let size = names.len() as u32 * 4;
        words(&mut bytes, &[TAG_HWCAPS, 0, at, size]);
        at += size;
    }
    words(&mut bytes, &[TAG_GENERATOR, 0, at, generator.len() as u32]);
    words(&mut bytes, names);
    bytes.extend(generator.as_bytes());
    bytes
}

/// The names of the glibc-hwcaps subdirectories.
fn subdirectories(bytes: &[u8], at: usize) -> Result<Vec<&OsStr>> {
    if u32_at(bytes, at)? != EXTENSION_MAGIC {
        return Err(Error::malformed("the extensions of the ld.so.cache are of an unknown form"));
    }
    let count = u32_at(bytes, at + 4)?;
    for n in 0..count.min(64) as usize {
        let section = at + 8 + n * 16;
        if u32_at(bytes, section)? == TAG_HWCAPS {
            let begin = u32_at(bytes, section + 8)? as usize;
            let size = u32_at(bytes, section + 12)? as usize;
            let list = begin.checked_add(size).and_then(|end| bytes.get(begin..end)).ok_or_else(cut_off)?;
            return list.chunks_exact(4).map(|word| string(bytes, u32_at(word, 0)? as usize)).collect();
        }
    }
    Ok(Vec::new())
}

/// glibc's order of names (_dl_cache_libcmp): digits compare as numbers, and come after everything else.
pub fn compare(a: &OsStr, b: &OsStr) -> Ordering {
    let (mut a, mut b) = (a.as_bytes(), b.as_bytes());
    while let Some(&x) = a.first() {
        let Some(&y) = b.first() else { return Ordering::Greater };
        match (x.is_ascii_digit(), y.is_ascii_digit()) {
            (true, true) => {
                // glibc subtracts, which for more digits than any library has makes circles of what should be an order.
                match number(&mut a).cmp(&number(&mut b)) {
                    Ordering::Equal => {}
                    unequal => return unequal,
                }
            }
            (true, false) => return Ordering::Greater,
            (false, true) => return Ordering::Less,
            (false, false) if x != y => return (x as c_char).cmp(&(y as c_char)),
            _ => (a, b) = (&a[1..], &b[1..]),
        }
    }
    if b.is_empty() { Ordering::Equal } else { Ordering::Less }
}

fn number(text: &mut &[u8]) -> i32 {
    let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
    let (number, rest) = text.split_at(digits);
    *text = rest;
    number.iter().fold(0i32, |n, b| n.wrapping_mul(10).wrapping_add(i32::from(b - b'0')))
}

fn string(bytes: &[u8], at: usize) -> Result<&OsStr> {
    let rest = bytes.get(at..).ok_or_else(cut_off)?;
    let rest = &rest[..rest.len().min(LONGEST)];
    let text = CStr::from_bytes_until_nul(rest).map_err(|_| cut_off())?;
    Ok(OsStr::from_bytes(text.to_bytes()))
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32> {
    let word = bytes.get(at..).and_then(|b| b.first_chunk()).ok_or_else(cut_off)?;
    Ok(u32::from_le_bytes(*word))
}

fn cut_off() -> Error {
    Error::malformed("the ld.so.cache is cut off")
}

#[cfg(test)]
mod tests {
    use super::*;

    const AMD64: i32 = 0x303;

    #[test]
    fn a_small_cache_is_no_huge_one() {
        let bomb = |length: usize, count: u32| {
            let mut bytes = vec![0; HEADER];
            bytes[..20].copy_from_slice(MAGIC);
            bytes[20..24].copy_from_slice(&count.to_le_bytes());
            bytes[28] = LITTLE_ENDIAN;
            let text = (HEADER + ENTRY * count as usize) as u32;
            for _ in 0..count {
                [3, text, text, 0, 0, 0].iter().for_each(|word: &u32| bytes.extend(word.to_le_bytes()));
            }
            bytes.extend(vec![b'x'; length]);
            bytes.push(0);
            bytes
        };
        assert_eq!(Cache::parse(&bomb(100, 100)).unwrap().entries.len(), 100);
        for (length, count, why) in [(1 << 20, 1, "cut off"), (4000, 100_000, "bytes of strings")] {
            let error = Cache::parse(&bomb(length, count)).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    fn sample() -> Cache<'static> {
        let mut cache = Cache::default();
        let mut better = CacheEntry::new("libz.so.1", "/usr/lib/glibc-hwcaps/x86-64-v3/libz.so.1", AMD64);
        better.subdirectory = Some(OsStr::new("x86-64-v3"));
        better.hwcap = 3 << 32;
        cache.add_first(vec![
            CacheEntry::new("libz.so.1", "/usr/lib/libz.so.1", AMD64),
            CacheEntry::new("libc.so.6", "/lib/libc.so.6", AMD64),
            CacheEntry::new("libc.so.6", "/lib32/libc.so.6", 3),
            CacheEntry::new("libodd.so.1", "/usr/lib/other-name.so", AMD64),
        ]);
        let at = cache.entries.iter().position(|e| &*e.name == "libz.so.1").unwrap();
        cache.entries.insert(at, better);
        cache
    }

    #[test]
    fn what_is_written_reads_back() {
        let cache = sample();
        assert_eq!(Cache::parse(&cache.to_bytes()).unwrap(), cache);
        let empty = Cache::default();
        assert_eq!(Cache::parse(&empty.to_bytes()).unwrap(), empty);
    }

    #[test]
    fn new_libraries_come_first_and_hide_better_processors() {
        let mut cache = sample();
        cache.add_first(vec![CacheEntry::new("libz.so.1", "/run/rt/libz.so.1", AMD64)]);
        assert_eq!(cache.find("libz.so.1", AMD64), Some(OsStr::new("/run/rt/libz.so.1")));
        assert_eq!(cache.find("libc.so.6", 3), Some(OsStr::new("/lib32/libc.so.6")));
        assert!(cache.entries.iter().all(|e| e.subdirectory.is_none()));
        let before = cache.clone();
        cache.add_first(vec![CacheEntry::new("libz.so.1", "/run/rt/libz.so.1", AMD64)]);
        assert_eq!(cache, before, "a second time changes nothing");
    }

    #[test]
    fn names_are_ordered_as_glibc_orders_them() {
        let order = |a: &str, b: &str| compare(OsStr::new(a), OsStr::new(b));
        assert_eq!(order("libc.so.6", "libc.so.6"), Ordering::Equal);
        assert_eq!(order("libc.so.10", "libc.so.6"), Ordering::Greater);
        assert_eq!(order("lib1.so", "liba.so"), Ordering::Greater);
        assert_eq!(order("liba.so", "liba.so.1"), Ordering::Less);
        assert_eq!(order("liba.so.01", "liba.so.1"), Ordering::Equal);
        // Whatever an image has: a sort panics where there is no order. In 32 bits the last of these is negative.
        let numbers = ["0", "2000000000", "4000000000"];
        let circle = (0..3).all(|n| order(numbers[n], numbers[(n + 1) % 3]) == order(numbers[0], numbers[1]));
        assert!(!circle);
    }

    #[test]
    fn caches_with_the_old_form_in_front_are_read() {
        let new = sample();
        let mut bytes = OLD_MAGIC.to_vec();
        bytes.resize(12, 0);
        bytes.extend(1u32.to_le_bytes());
        for word in [3u32, 0, 4] {
            bytes.extend(word.to_le_bytes());
        }
        let old_only = [&bytes[..], b"lib\0/lib\0"].concat();
        assert_eq!(Cache::parse(&old_only).unwrap().entries, [CacheEntry::new("lib", "/lib", 3)]);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes.extend(new.to_bytes());
        assert_eq!(Cache::parse(&bytes).unwrap(), new);
    }

    #[test]
    fn a_reader_finds_what_the_cache_has() {
        let cache = sample();
        let bytes = cache.to_bytes();
        let reader = CacheReader::parse(&bytes).unwrap();
        for (name, count) in [
            (NameMatch::Exact("libz.so.1"), 2),
            (NameMatch::AnyVersion("libz.so"), 2),
            (NameMatch::Exact("libz.so"), 0),
            (NameMatch::AnyVersion("libc"), 2),
            (NameMatch::AnyVersion("lib"), 0),
        ] {
            let found: Vec<CacheEntry> = reader.named(name).collect();
            assert_eq!(found.len(), count, "{name:?}");
            assert!(found.iter().eq(cache.entries.iter().filter(|e| name.matches(&e.name))), "{name:?}");
        }
    }

    #[test]
    fn damage_is_an_error() {
        let bytes = sample().to_bytes();
        for end in 0..bytes.len() {
            let _ = Cache::parse(&bytes[..end]);
        }
        assert!(Cache::parse(&bytes[..HEADER + 3]).is_err());
        assert!(Cache::parse(b"").is_err());
    }

    #[test]
    fn the_host_cache_is_read() {
        let Ok(bytes) = std::fs::read("/etc/ld.so.cache") else { return };
        let cache = Cache::parse(&bytes).unwrap();
        assert!(cache.entries.iter().any(|e| &*e.name == "libc.so.6"));
        let mut sorted = cache.clone();
        sorted.add_first(Vec::new());
        assert_eq!(sorted, cache, "our order is ldconfig's");
        assert_eq!(Cache::parse(&cache.to_bytes()).unwrap(), cache);
    }
}
