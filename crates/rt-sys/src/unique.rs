//! Names that nobody else uses.

use std::hash::{BuildHasher, Hasher, RandomState};

/// A name of 16 hex digits that no other process uses: for a file beside others, which is then renamed.
pub fn name() -> String {
    // The keys of std's hashes are random, and differ in each of them.
    format!("{:016x}", RandomState::new().build_hasher().finish())
}
