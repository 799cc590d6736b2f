//! Slurm's lists of nodes.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| rt_spec::fuzz::hostlist(text));
