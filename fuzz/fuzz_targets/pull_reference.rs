//! Names of images: no text makes the parsers panic, and what they take is a clean name.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    oci_registry::fuzz::reference(text);
    rt_pull::fuzz::source(text);
});
