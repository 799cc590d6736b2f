//! Slurm's lists of nodes.
//! Each node has the place that a plain reader gives it.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| rt_launch::fuzz::hostlist(text));
