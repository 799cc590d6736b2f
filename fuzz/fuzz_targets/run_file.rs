//! The end of a program of one file, which says where its parts are.
//! Its parts are within it, in front of what says where they are.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rt_image_store::fuzz::run_file(bytes));
