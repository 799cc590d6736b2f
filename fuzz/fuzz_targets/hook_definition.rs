//! Definitions of hooks.d: for which containers they are, and what they add to them.
//! The order of keys means nothing; a definition is for a container where each condition alone is; it is added once for
//! each stage.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rt::hooks::definitions::fuzz::definition(bytes));
