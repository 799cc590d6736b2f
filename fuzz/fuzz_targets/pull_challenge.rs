//! `WWW-Authenticate` as a hostile registry sends it.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| rt_pull::fuzz::challenge(text));
