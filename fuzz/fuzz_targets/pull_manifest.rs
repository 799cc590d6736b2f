//! Manifests, indexes and configs.
//! A name in them is clean, and is the same when it is printed and read again.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rt_pull::fuzz::manifest(bytes));
