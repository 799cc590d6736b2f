//! Mounts of the command line: `-v`, `--tmpfs` and `--mount`.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| rt_spec::fuzz::asked_mounts(text));
