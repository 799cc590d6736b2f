//! CDI specs, JSON and YAML: what is taken is written and read as the same.
#![no_main]

use rt_hooks::cdi;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    for yaml in [false, true] {
        let Ok(spec) = cdi::parse(bytes, yaml) else { continue };
        let text = serde_json::to_vec(&spec).expect("a spec is JSON");
        assert_eq!(cdi::parse(&text, false).expect("what is written reads back"), spec);
        let _ = cdi::merge(&spec.container_edits, &mut serde_json::json!({}));
    }
});
