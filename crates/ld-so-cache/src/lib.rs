//! What glibc's dynamic loader reads: shared objects ([`elf`], [`symbols`]) and /etc/ld.so.cache ([`Cache`], [`CacheReader`]).
//!
//! Every input may be hostile: sizes have bounds, and what contradicts itself is an error. No program is executed,
//! and of a library only the headers, the dynamic section and the tables that it names are read.
//!
//! ```
//! use ld_so_cache::elf::{Class, cache_flags, machine};
//! use ld_so_cache::{Cache, CacheEntry, CacheReader, NameMatch};
//!
//! // A cache with one library, for the loader of 64-bit x86.
//! let flags = cache_flags(machine::X86_64, Class::Elf64).unwrap();
//! let mut cache = Cache::default();
//! cache.add_first(vec![CacheEntry::new("libx.so.1", "/opt/x/libx.so.1", flags)]);
//! let bytes = cache.to_bytes();
//!
//! let reader = CacheReader::parse(&bytes).unwrap();
//! assert_eq!(reader.named(NameMatch::AnyVersion("libx.so")).count(), 1);
//! ```

mod cache;
pub mod elf;
mod error;
pub mod symbols;

pub use cache::*;
pub use error::{Error, Result};
