//! Requests that the kernel could send, about an image that is sound, and about one that is the input too.
//! All that is found is within the file; files are as long as they say.
#![no_main]

const SOUND: &[u8] = include_bytes!("../../crates/squashfs/tests/seeds/xattrs.sqsh");

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    rt_image::fuzz::requests(SOUND, bytes);
    if let Some((requests, image)) = bytes.split_at_checked(512) {
        rt_image::fuzz::requests(image, requests);
    }
});
