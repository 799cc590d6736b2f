//! The record of a file's owner, an attribute that a layer's program can write, and that of a link's: it is the same when it was
//! written and read again.
#![no_main]

use rt_sys::owner::{BareRecord, LONGEST_RECORD, OwnerRecord};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some(record) = OwnerRecord::parse(bytes) {
        let text = record.to_string();
        assert!(text.len() <= LONGEST_RECORD, "{text}");
        assert_eq!(OwnerRecord::parse(text.as_bytes()), Some(record), "{text}");
    }
    if let Some(record) = BareRecord::parse(bytes) {
        assert_eq!(BareRecord::parse(&record.value(0)), Some(record), "{bytes:?}");
    }
});
