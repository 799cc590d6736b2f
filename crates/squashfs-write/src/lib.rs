//! Writes squashfs 4.0 images, the format of `mksquashfs`, as Linux's `fs/squashfs/squashfs_fs.h` describes it.
//!
//! The content of files is written as it comes ([`ImageWriter::add_file`]), so no tree has to exist anywhere. Names,
//! modes and links are a [`Tree`] that [`ImageWriter::finish`] writes behind the content. Blocks are compressed by several
//! threads and written in the order in which they came: the same input gives the same bytes, whatever the number of threads.
//!
//! ```
//! use squashfs_write::{Compression, ImageWriter, Kind, Metadata, Options, Tree};
//! # let path = std::env::temp_dir().join(format!("squashfs-write-doc-{}", std::process::id()));
//! let file = std::fs::File::create_new(&path)?;
//! let mut image = ImageWriter::new(file, Options { compression: Compression::Zstd(3), ..Options::default() })?;
//! let content = image.add_file(&mut &b"hello\n"[..], 6)?;
//! let mut tree = Tree::new(Metadata { mode: 0o755, ..Metadata::default() });
//! let hello = tree.add(Metadata { mode: 0o644, ..Metadata::default() }, Kind::File(content));
//! tree.insert(Tree::ROOT, b"hello", hello)?;
//! image.finish(&tree)?;
//! # std::fs::remove_file(path)?;
//! # Ok::<(), std::io::Error>(())
//! ```

mod blocks;
mod compress;
mod inodes;
mod metadata;
mod pool;
mod tables;
mod tree;
mod writer;

pub use blocks::FileId;
pub use compress::Compression;
pub use tree::{Kind, Metadata, NodeId, Tree};
pub use writer::{ImageWriter, Options, Written};

/// The example of the README works.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
