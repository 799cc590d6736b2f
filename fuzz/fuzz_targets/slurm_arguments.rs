//! The arguments of a task as Slurm writes them, and the word that they are passed on in.
//! They come back as they were.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rt_launch::fuzz::arguments(bytes));
