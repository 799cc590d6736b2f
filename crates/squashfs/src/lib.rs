//! Reads squashfs 4.0 images, for file system servers: any place at any time, by several threads, in bounded memory.
//!
//! | module | what it knows |
//! |---|---|
//! | `source` | where the bytes come from |
//! | `superblock` | where the tables are |
//! | `decompress` | gzip, LZMA, LZO, XZ, LZ4, Zstandard |
//! | `cache` | blocks that are kept, each made once |
//! | `metadata` | blocks of tables, and a cursor in them |
//! | `inode`, `directory`, `file`, `xattr` | the parts of a file system |
//! | `filesystem` | all of it together |
//!
//! An image is never trusted. Every offset, length and count is compared with a bound before it is used, and what is wrong
//! is an [`Error`] that says in which structure and at which byte. Nothing recurses by what an image says. An inode is
//! named by its place ([`InodeRef`]), so that a server needs no table of inodes.

mod cache;
mod decompress;
mod directory;
mod error;
mod file;
mod filesystem;
mod inode;
mod metadata;
mod source;
mod superblock;
mod xattr;

pub use decompress::Compression;
pub use directory::{Entries, Entry, LONGEST_NAME, Position};
pub use error::{Error, Kind, Result};
pub use file::{DataBlock, Piece};
pub use filesystem::Filesystem;
pub use inode::{Body, Directory, File, FileType, Inode, InodeRef, LONGEST_TARGET};
pub use source::{FilePart, Source};
pub use superblock::{SUPERBLOCK_SIZE, Superblock};
pub use xattr::Xattr;

/// The example of the README works.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
