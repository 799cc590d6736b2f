//! `rt-pull`: registries, archives and layouts become bundles.
//!
//! Each module has one concern. In the order in which a pull goes through them:
//!
//! | module | what it knows |
//! |---|---|
//! | `pull`, `image_file`, `run_file`, `save`, `push` | the story of a pull into a bundle, into an image file, into a program; the way back, to a file and to a registry |
//! | `reference`, `platform`, `manifest` | names and documents; pure |
//! | `source`, `layout`, `archive` | where manifests and blobs come from |
//! | `cache`, `lease`, `blob` | blobs by digest, fetched once |
//! | `squashfs_target` | layers to an image file |
//! | `trees` | layers that lie on the disk as trees, to a bundle |
//! | `image_config`, `profile`, `filter` | the config |
//! | `draft`, `bundle` | there whole or not at all |
//! | `build` | a Containerfile to an image of the store |
//! | `images` | the store of images, from which `rt run` starts containers |
//! | `commands` | the command line |
//! | `progress`, `limits`, `each` | people, the job's limits, threads |
//! | `fuzz` | what the fuzz targets call |
//!
//! How to talk to a registry is in the crate `oci_registry`, layers to a tree in `oci_layer`, and digests and Ctrl-C in
//! `oci_content`. `commands` is for the program, and `fuzz` for the fuzz targets. Nothing else is public.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod archive;
mod blob;
mod build;
mod bundle;
mod cache;
pub mod commands;
mod disk_full;
mod draft;
mod each;
mod filter;
mod foreign;
pub mod fuzz;
mod holder;
mod image_config;
mod image_file;
mod images;
mod layout;
mod lease;
mod limits;
mod manifest;
mod platform;
mod profile;
mod progress;
mod pull;
mod push;
mod reference;
mod run_file;
mod save;
mod source;
mod squashfs_target;
mod trees;
