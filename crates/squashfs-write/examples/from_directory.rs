//! Writes a directory as an image: `from_directory DIR IMAGE [none|gzip|lz4|zstd] [THREADS]`. For comparisons with
//! mksquashfs; `rt save` is the command for people.

use squashfs_write::{Compression, ImageWriter, Kind, Metadata, NodeId, Options, Tree};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

fn main() -> io::Result<()> {
    let words: Vec<_> = std::env::args_os().collect();
    let [_, dir, out, more @ ..] = &words[..] else {
        return Err(io::Error::other("needs DIR IMAGE"));
    };
    let compression = match more.first().and_then(|word| word.to_str()) {
        None | Some("zstd") => Compression::Zstd(3),
        Some("none") => Compression::None,
        Some("gzip") => Compression::Gzip(9),
        Some("lz4") => Compression::Lz4,
        Some(_) => return Err(io::Error::other("compression: none, gzip, lz4 or zstd")),
    };
    let threads = more.get(1).and_then(|word| word.to_str()).and_then(|word| word.parse().ok()).unwrap_or(2);
    let image = File::options().read(true).write(true).create_new(true).open(out)?;
    let mut image = ImageWriter::new(image, Options { compression, threads, ..Options::default() })?;
    let mut tree = Tree::new(of(&Path::new(dir).symlink_metadata()?));
    add(&mut image, &mut tree, Tree::ROOT, Path::new(dir), &mut HashMap::new())?;
    image.finish(&tree).map(drop)
}

fn of(metadata: &std::fs::Metadata) -> Metadata {
    Metadata {
        mode: (metadata.mode() & 0o7777) as u16,
        uid: metadata.uid(),
        gid: metadata.gid(),
        mtime: metadata.mtime() as u32,
        xattrs: BTreeMap::new(),
    }
}

fn add(
    image: &mut ImageWriter,
    tree: &mut Tree,
    dir: NodeId,
    path: &Path,
    seen: &mut HashMap<(u64, u64), NodeId>,
) -> io::Result<()> {
    let mut entries: Vec<_> = std::fs::read_dir(path)?.collect::<io::Result<_>>()?;
    entries.sort_by_key(|entry| entry.file_name());
    for entry in entries {
        let metadata = entry.path().symlink_metadata()?;
        let inode = (metadata.dev(), metadata.ino());
        let name = entry.file_name();
        if let Some(&first) = seen.get(&inode) {
            tree.insert(dir, name.as_bytes(), first)?;
            continue;
        }
        let kind = metadata.file_type();
        let kind = if kind.is_dir() {
            Kind::Directory(BTreeMap::new())
        } else if kind.is_symlink() {
            Kind::Symlink(std::fs::read_link(entry.path())?.as_os_str().as_bytes().to_vec())
        } else if kind.is_file() {
            Kind::File(image.add_file(&mut File::open(entry.path())?, metadata.len())?)
        } else if kind.is_fifo() {
            Kind::Fifo
        } else {
            Kind::Socket
        };
        let node = tree.add(of(&metadata), kind);
        tree.insert(dir, name.as_bytes(), node)?;
        if metadata.is_dir() {
            add(image, tree, node, &entry.path(), seen)?;
        } else if metadata.nlink() > 1 {
            seen.insert(inode, node);
        }
    }
    Ok(())
}
