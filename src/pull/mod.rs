//! `rt pull`: registries, archives and layouts become bundles.
//!
//! One concern a file, in the order in which a pull goes through them:
//!
//! | file | what it knows |
//! |---|---|
//! | `cli`, `command/` | the command line; one file per command |
//! | `reference`, `digest`, `platform`, `manifest` | names and documents; pure |
//! | `registries_conf`, `credentials`, `auth`, `http`, `registry` | how to talk to a registry |
//! | `source`, `layout`, `archive` | where manifests and blobs come from |
//! | `cache`, `lease`, `blob` | blobs by digest, fetched once |
//! | `decode`, `tar`, `merge`, `disk`, `layer` | layers to a tree |
//! | `image_config`, `profile`, `bundle` | the config and the final rename |
//! | `progress`, `limits`, `interrupt` | people, the job's limits, Ctrl-C |

/// Writes to standard output; a reader that has gone away is no error.
macro_rules! say {
    ($($arg:tt)*) => {
        drop(std::io::Write::write_fmt(&mut std::io::stdout(), format_args!($($arg)*)))
    };
}

/// The same to standard error.
macro_rules! tell {
    ($($arg:tt)*) => {
        drop(std::io::Write::write_fmt(&mut std::io::stderr(), format_args!($($arg)*)))
    };
}

mod archive;
mod auth;
mod blob;
mod bundle;
mod cache;
pub mod cli;
mod command;
mod credentials;
pub mod decode;
mod digest;
mod disk;
pub mod fuzz;
mod http;
mod image_config;
mod interrupt;
mod layer;
mod layout;
mod lease;
mod limits;
mod manifest;
mod merge;
mod platform;
mod profile;
mod progress;
mod reference;
mod registries_conf;
mod registry;
mod source;
pub mod tar;
