//! Any ld.so.cache either is refused or is written again as the same libraries in the same order.
#![no_main]

use ld_so_cache::{Cache, CacheEntry};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(mut cache) = Cache::parse(bytes) else { return };
    let written = cache.to_bytes();
    let again = Cache::parse(&written).expect("what is written reads back");
    // The index of a subdirectory that has a name, and the mark for it, are the writer's business.
    for (a, b) in again.entries.iter().zip(&cache.entries) {
        assert_eq!((&a.name, &a.path, a.flags, &a.subdirectory), (&b.name, &b.path, b.flags, &b.subdirectory));
    }
    assert_eq!(again.entries.len(), cache.entries.len());
    cache.add_first(vec![CacheEntry::new("libnew.so.1", "/new/libnew.so.1", 0x303)]);
    assert_eq!(cache.find("libnew.so.1", 0x303).and_then(|p| p.to_str()), Some("/new/libnew.so.1"));
});
