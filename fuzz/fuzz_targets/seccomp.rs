//! Any `linux.seccomp` section either is refused or becomes a program that the kernel takes and
//! that answers every call.
//!
//! The input is a line of numbers for calls, then the section's JSON. With a stable compiler:
//!
//! ```sh
//! mkdir -p fuzz/corpus/seccomp
//! RUSTC_BOOTSTRAP=1 cargo fuzz run -s none seccomp fuzz/corpus/seccomp fuzz/seeds/seccomp -- \
//!     -dict=fuzz/seeds/seccomp.dict -max_len=6000 -max_total_time=300
//! ```

#![no_main]

#[path = "../../crates/oci-seccomp/tests/seccomp/bpf.rs"]
mod bpf;

use bpf::Call;
use libfuzzer_sys::fuzz_target;
use oci_spec::runtime::{Arch, LinuxSeccomp};

fuzz_target!(|input: &[u8]| {
    let Some(end) = input.iter().position(|byte| *byte == b'\n') else { return };
    let (calls, json) = input.split_at(end);
    let Ok(section) = serde_json::from_slice::<LinuxSeccomp>(json) else { return };
    for native in [Arch::ScmpArchX86_64, Arch::ScmpArchAarch64, Arch::ScmpArchS390x, Arch::ScmpArchMipsel] {
        let Ok(program) = oci_seccomp::compile_for(native, &section) else { continue };
        if let Err(error) = bpf::check(&program.instructions) {
            panic!("{native}: {error}");
        }
        for call in calls.chunks(8) {
            let mut bytes = [0; 8];
            bytes[..call.len()].copy_from_slice(call);
            let value = u64::from_le_bytes(bytes);
            let mut call = Call { number: value as u32 % 600, arch: native as u32, ..Call::default() };
            for little_endian in [true, false] {
                bpf::run(&program.instructions, &call, little_endian);
                call.number = (value >> 32) as u32;
                call.arguments = [value, !value, value << 32, value >> 32, 0, value & 0xff];
                bpf::run(&program.instructions, &call, little_endian);
            }
        }
    }
});
