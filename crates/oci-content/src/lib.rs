//! What a registry client and an unpacker of layers have in common.
//!
//! | module | what it knows |
//! |---|---|
//! | `digest` | content digests, as the image-spec's descriptor page defines them |
//! | `interrupt` | a flag by which threads end early: after a signal, or because another thread failed |
//! | `meter` | how far a piece of work is |
//! | `notes` | remarks on work that goes on |
//!
//! Errors are those of the crate `rt-sys`, whose kind says whether content is damaged or the work was interrupted.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod digest;
pub mod interrupt;
pub mod meter;
pub mod notes;

/// The example of the README works.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
