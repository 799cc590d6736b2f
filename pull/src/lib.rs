//! `rt-pull`: registries, archives and layouts become bundles.
//!
//! Each module has one concern. In the order in which a pull goes through them:
//!
//! | module | what it knows |
//! |---|---|
//! | `run`, `image_file`, `run_file`, `save`, `push` | the story of a pull into a bundle, into an image file, into a program; the way back, to a file and to a registry |
//! | `reference`, `digest`, `platform`, `manifest` | names and documents; pure |
//! | `registries_conf`, `credentials`, `auth`, `http`, `registry` | how to talk to a registry |
//! | `source`, `layout`, `archive` | where manifests and blobs come from |
//! | `cache`, `lease`, `blob` | blobs by digest, fetched once |
//! | `decode`, `tar`, `merge`, `disk`, `layer` | layers to a tree |
//! | `image_config`, `profile`, `filter` | the config |
//! | `draft`, `bundle` | there whole or not at all |
//! | `build` | a Containerfile to an image of the store |
//! | `images` | the store of images, from which `rt run` starts containers |
//! | `commands` | the command line |
//! | `progress`, `limits`, `interrupt` | people, the job's limits, Ctrl-C |
//! | `fuzz` | what the fuzz targets call |
//!
//! `commands` is for the program, `fuzz` for the fuzz targets, and `tar` for the tests, which make layers with it. Nothing
//! else is public.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod archive;
mod auth;
mod blob;
mod build;
mod bundle;
mod cache;
pub mod commands;
mod credentials;
mod decode;
mod digest;
mod disk;
mod disk_full;
mod draft;
mod filter;
mod foreign;
pub mod fuzz;
mod holder;
mod http;
mod image_config;
mod image_file;
mod images;
mod interrupt;
mod layer;
mod layout;
mod lease;
mod limits;
mod manifest;
mod merge;
mod owner;
mod platform;
mod profile;
mod progress;
mod pull;
mod push;
mod reference;
mod registries_conf;
mod registry;
mod run_file;
mod save;
mod source;
pub mod tar;
