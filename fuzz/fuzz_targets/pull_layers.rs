//! Whole layers, whiteouts and links included, into a tree: nothing may leave it.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| oci_layer::fuzz::layers(bytes));
