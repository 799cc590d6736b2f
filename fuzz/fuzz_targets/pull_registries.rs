//! registries.conf of a site or a user: where an image is asked for.
//! Mirrors come first and the registry last, each with a host; the order of tables means nothing.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| oci_registry::fuzz::registries(text));
