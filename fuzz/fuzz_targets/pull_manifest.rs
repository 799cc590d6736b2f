//! Manifests, indexes and configs.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rt_pull::fuzz::manifest(bytes));
