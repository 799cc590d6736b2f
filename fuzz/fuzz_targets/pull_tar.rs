//! Tar streams, headers and sparse maps included.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rt_pull::fuzz::tar(bytes));
