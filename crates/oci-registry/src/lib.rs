//! A client of container registries (OCI distribution-spec and Docker's API, version 2): blocking, for several threads.
//!
//! | module | what it knows |
//! |---|---|
//! | `reference` | names of images |
//! | `registries_conf` | mirrors, blocked and insecure registries, certificates of hosts |
//! | `credentials` | docker's and podman's files, credential helpers, netrc |
//! | `auth` | what a registry asks for before it answers |
//! | `file` | a file of a web server that is no registry |
//! | `http` | requests, redirects without credentials, patience, connections that end at an interrupt |
//! | `own_file` | files of the user's configuration, and who can have written them |
//! | `program` | what the program that uses the crate calls itself |
//! | `registry` | manifests and blobs, fetched and sent |
//!
//! A registry is never trusted: answers have bounds, credentials follow no redirect, and what has a digest is compared with it.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod auth;
pub mod credentials;
pub mod file;
#[doc(hidden)]
pub mod fuzz;
mod http;
mod own_file;
mod program;
pub mod reference;
pub mod registries_conf;
pub mod registry;

pub use self::http::LeastRate;
pub use self::program::Program;

/// The example of the README works.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
