//! The dynamic symbols of a shared object or program: which it defines for others, and which it takes from others.
//!
//! As the loader does, what is defined is found by the hash table, and what is taken by the relocations: no section table
//! is needed. Only 64-bit files are read.

use crate::elf::{Class, Linked, ReadAt, machine, place, read, u16_at, u32_at, u64_at};
use crate::error::{Error, Result};
use std::collections::BTreeMap;

/// The most bytes of one table that are read, and of all names together: symbols can share a name, so that a small file
/// can have a huge number of bytes of them.
const MOST: u64 = 16 << 20;
/// sizeof(Elf64_Sym), sizeof(Elf64_Rela).
const SYMBOL: usize = 24;
const RELOCATION: usize = 24;

/// The dynamic symbols of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symbols {
    /// What others may take, by name.
    pub defines: BTreeMap<String, Defined>,
    /// What the loader must find elsewhere, by name. Weak ones are left out: the loader does without them.
    pub takes: BTreeMap<String, Taken>,
}

/// A symbol that a file has for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defined {
    /// How many bytes it has.
    pub size: u64,
    /// It is data, not code.
    pub is_data: bool,
}

/// How a file takes a symbol of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// By its address.
    Address,
    /// As a copy of that many bytes, for which the program has the place (a copy relocation). The library's must have as
    /// many.
    Copy(u64),
}

impl Symbols {
    /// Reads the dynamic symbols of a little-endian 64-bit file.
    pub fn read(file: &(impl ReadAt + ?Sized)) -> Result<Symbols> {
        let linked = Linked::read(file)?;
        if linked.class != Class::Elf64 {
            return Err(Error::OtherFormat("not a 64-bit ELF file"));
        }
        let mut symbols = Symbols::default();
        let (Some(strings), Some(table)) = (linked.value(5), linked.value(6)) else { return Ok(symbols) };
        if linked.value(11).is_some_and(|size| size != SYMBOL as u64) {
            return Err(Error::malformed("its symbols have an unknown size"));
        }
        let strings = part(file, &linked, strings, linked.value(10).unwrap_or(0))?;
        let uses = uses(file, &linked)?;
        let hashed = hashed(file, &linked)?;
        let count = uses.iter().map(|(index, _)| *index as usize + 1).max().unwrap_or(0).max(hashed);
        let table = part(file, &linked, table, count as u64 * SYMBOL as u64)?;
        let at = |index: usize| table.get(index.checked_mul(SYMBOL)?..)?.get(..SYMBOL).map(Symbol);
        let mut left = MOST as usize;
        let mut name = |symbol: &Symbol<'_>| {
            let name = symbol.name(&strings)?;
            left = left
                .checked_sub(name.len())
                .ok_or_else(|| Error::malformed("the names of its symbols are too long"))?;
            Ok::<String, Error>(name)
        };
        for symbol in (1..hashed).map_while(at).filter(Symbol::is_exported) {
            symbols.defines.insert(name(&symbol)?, symbol.defined());
        }
        for (index, kind) in uses {
            let Some(symbol) = at(index as usize) else {
                return Err(Error::malformed("a relocation names a symbol that is not there"));
            };
            let taken = match copies(linked.machine, kind) {
                true => Taken::Copy(symbol.defined().size),
                false if symbol.is_missing() => Taken::Address,
                false => continue,
            };
            let before = symbols.takes.entry(name(&symbol)?).or_insert(taken);
            if taken != Taken::Address {
                *before = taken;
            }
        }
        // A copy is the program's own symbol, too, but no other's.
        symbols.defines.retain(|name, _| !matches!(symbols.takes.get(name), Some(Taken::Copy(_))));
        Ok(symbols)
    }
}

/// An Elf64_Sym.
struct Symbol<'a>(&'a [u8]);

impl Symbol<'_> {
    fn name(&self, strings: &[u8]) -> Result<String> {
        let rest = strings.get(u32_at(self.0, 0)? as usize..);
        let rest = rest.ok_or_else(|| Error::malformed("the name of a symbol is not there"))?;
        let end = rest.iter().take(4096).position(|&b| b == 0);
        let end = end.ok_or_else(|| Error::malformed("the name of a symbol has no end"))?;
        Ok(String::from_utf8_lossy(&rest[..end]).into_owned())
    }

    fn binding(&self) -> u8 {
        self.0[4] >> 4
    }

    fn section(&self) -> u16 {
        u16_at(self.0, 6).unwrap_or(0)
    }

    /// Defined, global, weak or unique, and neither hidden nor internal.
    fn is_exported(&self) -> bool {
        self.section() != 0 && matches!(self.binding(), 1 | 2 | 10) && matches!(self.0[5] & 3, 0 | 3)
    }

    /// Undefined, and not weak.
    fn is_missing(&self) -> bool {
        self.section() == 0 && self.binding() == 1
    }

    fn defined(&self) -> Defined {
        Defined { size: u64_at(self.0, 16).unwrap_or(0), is_data: self.0[4] & 15 == 1 }
    }
}

/// True for R_X86_64_COPY and R_AARCH64_COPY.
fn copies(of: u16, kind: u32) -> bool {
    match of {
        machine::X86_64 => kind == 5,
        machine::AARCH64 => kind == 1024,
        _ => false,
    }
}

/// The symbols that relocations name, by their indices, with the kind of relocation.
fn uses(file: &(impl ReadAt + ?Sized), linked: &Linked) -> Result<Vec<(u32, u32)>> {
    let mut all = Vec::new();
    // DT_RELA and DT_JMPREL with their sizes.
    for (table, size) in [(7, 8), (23, 2)] {
        let (Some(address), Some(size)) = (linked.value(table), linked.value(size)) else { continue };
        let bytes = part(file, linked, address, size)?;
        for entry in bytes.chunks_exact(RELOCATION) {
            let (kind, index) = (u32_at(entry, 8)?, u32_at(entry, 12)?);
            if index != 0 {
                all.push((index, kind));
            }
        }
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

/// How many symbols the hash table covers, counted from the first of the symbol table.
fn hashed(file: &(impl ReadAt + ?Sized), linked: &Linked) -> Result<usize> {
    const GNU_HASH: u64 = 0x6fff_fef5;
    if let Some(address) = linked.value(4) {
        return Ok(u32_at(&part(file, linked, address, 8)?, 4)? as usize);
    }
    let Some(address) = linked.value(GNU_HASH) else { return Ok(0) };
    // Where the table ends is not said: it has an entry for each symbol from the first on, and the last of a chain is odd.
    let bytes = part(file, linked, address, MOST)?;
    let (buckets, first, words) =
        (u32_at(&bytes, 0)? as usize, u32_at(&bytes, 4)? as usize, u32_at(&bytes, 8)? as usize);
    let begin = 16 + words * 8;
    let mut last = 0;
    for n in 0..buckets {
        last = last.max(u32_at(&bytes, begin + n * 4)? as usize);
    }
    if last < first {
        return Ok(0);
    }
    let chains = begin + buckets * 4;
    while u32_at(&bytes, chains + (last - first) * 4)? & 1 == 0 {
        last += 1;
    }
    Ok(last + 1)
}

/// The bytes of a table at `address`, less where its segment or the file ends.
fn part(file: &(impl ReadAt + ?Sized), linked: &Linked, address: u64, size: u64) -> Result<Vec<u8>> {
    if size > MOST {
        return Err(Error::malformed(format!("a table of {size} bytes")));
    }
    let (offset, rest) = place(&linked.headers, address)?;
    read(file, offset, size.min(rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn a_program_takes_what_its_libraries_define() {
        // The test itself is linked to the C library, unless it is static.
        let own = Symbols::read(&File::open("/proc/self/exe").unwrap()).unwrap();
        if own.takes.is_empty() {
            return;
        }
        assert!(own.takes.contains_key("malloc"), "{:?}", own.takes.keys().take(20).collect::<Vec<_>>());
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let libc = maps.split_whitespace().find(|word| word.contains("/libc.so")).unwrap();
        let libc = Symbols::read(&File::open(libc).unwrap()).unwrap();
        assert!(!libc.defines["malloc"].is_data && libc.defines["environ"].is_data);
        assert_eq!(libc.defines["environ"].size, size_of::<usize>() as u64);
    }

    #[test]
    fn damage_is_an_error_or_less() {
        let mut bytes = std::fs::read("/proc/self/exe").unwrap();
        bytes.truncate(1 << 20);
        for at in (0..4096).step_by(3) {
            let old = std::mem::replace(&mut bytes[at], 0xff);
            let _ = Symbols::read(&bytes[..]);
            bytes[at] = old;
        }
        for end in (0..bytes.len()).step_by(9973) {
            let _ = Symbols::read(&bytes[..end]);
        }
        assert!(Symbols::read(&b"\x7fELF\x01\x01"[..]).is_err());
    }
}
