//! config.toml of a site or a user, and the values of variables that say the same.
//! An error names a line that there is; each value is what its key takes; written and read again it is the same.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    rt_config::fuzz::config(text);
    rt_config::fuzz::variable_values(text);
});
