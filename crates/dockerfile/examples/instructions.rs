//! Prints what a Dockerfile says: `instructions FILE`.

#![expect(clippy::print_stdout, reason = "it is what the example answers")]

use dockerfile::Dockerfile;
use std::error::Error;
use std::io;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or_else(|| io::Error::other("needs FILE"))?;
    for instruction in Dockerfile::parse(&std::fs::read(path)?)?.instructions {
        println!("{}: {:?} {:?}", instruction.line, instruction.kind, instruction.flags);
    }
    Ok(())
}
