//! registries.conf of a site or a user: where an image is asked for.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| rt_pull::fuzz::registries(text));
