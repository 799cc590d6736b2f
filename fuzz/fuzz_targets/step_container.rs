//! What a step of Slurm asks of its container: the variables `RT_CONTAINER_*`, with the mounts of pyxis.
//! Nothing leaves the container's root; what is read again elsewhere is the same.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| rt_launch::fuzz::request(text));
