//! ELF files of an image: headers, versions, symbols and notes, whatever is in them.
#![no_main]

use ld_so_cache::elf::Elf;
use ld_so_cache::symbols::Symbols;
use rt_hooks::nvidia::compat;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = Symbols::read(bytes);
    let Ok(elf) = Elf::read(bytes) else { return };
    let _ = elf.cache_flags();
    for note in elf.notes(bytes).unwrap_or_default() {
        compat::parse_note(&note.description);
    }
});
