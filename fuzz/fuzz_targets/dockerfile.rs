//! A Containerfile, which comes with whatever somebody wants to be built.
//! No file makes the parser, the expansion of variables or the patterns of .dockerignore panic.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dockerfile::fuzz(bytes));
