//! CDI specs, JSON and YAML: what is taken is written and read as the same.
#![no_main]

use rt_hooks::cdi::{self, Format};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    for format in [Format::Json, Format::Yaml] {
        let Ok(spec) = cdi::parse(bytes, format) else { continue };
        let text = serde_json::to_vec(&spec).expect("a spec is JSON");
        assert_eq!(cdi::parse(&text, Format::Json).expect("what is written reads back"), spec);
        let _ = cdi::merge(&spec.container_edits, &mut serde_json::json!({}));
    }
});
