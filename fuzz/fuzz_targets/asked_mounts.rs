//! Mounts of the command line: `-v`, `--tmpfs` and `--mount`.
//! What is taken has an absolute destination and known options, and is the same when it is written and read again.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| rt_spec::fuzz::asked_mounts(text));
