//! Tar streams, headers and sparse maps included.
//! Every stream ends.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| oci_layer::fuzz::tar(bytes));
