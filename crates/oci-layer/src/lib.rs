//! Layers of OCI images, unpacked to one tree by an unprivileged user, all at the same time.
//!
//! | module | what it knows |
//! |---|---|
//! | `decode` | decompression, and the pipe to the thread that writes |
//! | `tar` | a reader and a writer of archives; pure |
//! | `merge` | which layer has a path: whiteouts, opaque directories, hard links over several layers |
//! | `unpack` | one layer, from its compressed bytes into the tree; a directory as the tree |
//! | `owner` | records of owners that an unprivileged user cannot give a file |
//!
//! A layer is never trusted. Every call that makes something takes a descriptor of a directory and one name, so that no path
//! of a layer is ever followed, and everything that a layer may ask for has a bound. What the tree is can be chosen by a type
//! that implements [`unpack::LayerTarget`].

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod decode;
#[doc(hidden)]
pub mod fuzz;
pub mod merge;
pub mod owner;
pub mod tar;
pub mod unpack;

/// The example of the README works.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
