//! `WWW-Authenticate` as a hostile registry sends it.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| oci_registry::fuzz::challenge(text));
