//! Definitions of hooks.d: for which containers they are, and what they add to them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rt::hooks::definitions::fuzz::definition(bytes));
