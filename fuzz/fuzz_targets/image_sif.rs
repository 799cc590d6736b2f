//! A SIF image, or a squashfs: where the file system is in it, and what it says of how it is run.
//! All that is found is within the file.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    rt_image::fuzz::sif(bytes);
    rt_image::fuzz::config(bytes);
});
