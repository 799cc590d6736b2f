//! What glibc's dynamic loader reads: shared objects ([`elf`]) and /etc/ld.so.cache ([`Cache`], [`View`]).
//!
//! Every input may be hostile: sizes have bounds, and what contradicts itself is an error. Nothing is executed, and
//! of a library only the headers, the dynamic section and the version tables are read.
//!
//! ```
//! use ld_so_cache::{Cache, Entry, View};
//!
//! // A cache with one library, for the loader of 64-bit x86.
//! let flags = ld_so_cache::elf::cache_flags(ld_so_cache::elf::machine::X86_64, true).unwrap();
//! let mut cache = Cache::default();
//! cache.add_first(vec![Entry::new("libx.so.1", "/opt/x/libx.so.1", flags)]);
//! let bytes = cache.to_bytes();
//! assert!(View::parse(&bytes).is_ok());
//! ```

mod cache;
pub mod elf;
mod error;

pub use cache::*;
pub use error::{Error, Result};
