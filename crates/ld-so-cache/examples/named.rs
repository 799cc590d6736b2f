//! Prints where a cache has the versions of a library: `named CACHE libc.so`.

#![expect(clippy::print_stdout, reason = "it is what the example answers")]

use ld_so_cache::{CacheReader, NameMatch};
use std::error::Error;
use std::io;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().collect();
    let [_, cache, name] = &words[..] else {
        return Err(io::Error::other("needs CACHE NAME").into());
    };
    let bytes = std::fs::read(cache)?;
    for entry in CacheReader::parse(&bytes)?.named(NameMatch::AnyVersion(name)) {
        println!("{entry:?}");
    }
    Ok(())
}
