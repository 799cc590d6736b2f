//! Names of images: no text makes the parser panic, and what it takes is a clean name.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| rt_pull::fuzz::reference(text));
