//! How far a piece of work is, told from one thread to another.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a piece of work, counted by the thread that does it and shown by another one.
#[derive(Debug, Default)]
pub struct Meter {
    have: AtomicU64,
    all: AtomicU64,
}

impl Meter {
    /// A meter of `all` bytes.
    pub fn of(all: u64) -> Meter {
        Meter { have: AtomicU64::new(0), all: AtomicU64::new(all) }
    }

    /// Bytes that are done.
    pub fn have(&self) -> u64 {
        self.have.load(Ordering::Relaxed)
    }

    /// Bytes that are to be done; zero where it is not known.
    pub fn all(&self) -> u64 {
        self.all.load(Ordering::Relaxed)
    }

    /// Adds to the bytes that are to be done.
    pub fn expect(&self, bytes: u64) {
        self.all.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Sets the bytes that are done.
    pub fn set(&self, bytes: u64) {
        self.have.store(bytes, Ordering::Relaxed);
    }

    /// Adds to the bytes that are done.
    pub fn add(&self, bytes: u64) {
        self.have.fetch_add(bytes, Ordering::Relaxed);
    }
}
