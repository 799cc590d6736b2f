//! The record of a file's owner, an attribute that a layer's program can write.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rt_spec::fuzz::owner(bytes));
