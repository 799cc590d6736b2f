//! Whole layers, whiteouts and links included, into a tree: nothing may leave it.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rt_pull::fuzz::layers(bytes));
