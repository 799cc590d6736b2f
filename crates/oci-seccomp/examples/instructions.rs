//! Compiles the seccomp section of a config.json and prints its instructions: `instructions CONFIG`.

#![expect(clippy::print_stdout, reason = "it is what the example answers")]

use std::error::Error;
use std::io;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or_else(|| io::Error::other("needs CONFIG"))?;
    let config: serde_json::Value = serde_json::from_slice(&std::fs::read(path)?)?;
    let program = oci_seccomp::compile(&serde_json::from_value(config["linux"]["seccomp"].clone())?)?;
    for (n, i) in program.instructions.iter().enumerate() {
        println!("{n:>5}: code {:#06x} jt {:>3} jf {:>3} k {:#010x}", i.code, i.jt, i.jf, i.k);
    }
    Ok(())
}
