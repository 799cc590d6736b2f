//! ELF files of an image: headers, versions and notes, whatever is in them.
#![no_main]

use rt::hook::elf::Elf;
use rt::hook::nvidia::compat;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(elf) = Elf::read(bytes) else { return };
    let _ = elf.cache_flags();
    for note in elf.notes(bytes).unwrap_or_default() {
        compat::parse_note(&note.description);
    }
});
