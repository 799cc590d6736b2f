//! NVIDIA_REQUIRE_*: no text makes the reader panic.
#![no_main]

use rt_hooks::nvidia::require::{Facts, holds};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let facts = Facts { cuda: "12.2".into(), driver: "535.1".into(), arch: "8.0".into(), brand: "tesla".into() };
    let _ = holds(text, &facts);
});
