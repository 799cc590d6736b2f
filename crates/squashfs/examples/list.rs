//! Lists what is in an image: `list IMAGE`.

#![expect(clippy::print_stdout, reason = "it is what the example answers")]

use squashfs::{Body, FilePart, Filesystem, InodeRef, Position};
use std::error::Error;
use std::fs::File;
use std::io;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or_else(|| io::Error::other("needs IMAGE"))?;
    let filesystem = Filesystem::open(FilePart::new(File::open(path)?, 0, None)?, 16 << 20)?;
    // Directories that are still to be read: an image may nest them deeper than a stack is.
    let mut left: Vec<(String, InodeRef)> = vec![(String::new(), filesystem.root())];
    while let Some((path, reference)) = left.pop() {
        let inode = filesystem.inode(reference)?;
        let shown = if path.is_empty() { "/" } else { &path };
        println!("{:06o} {:>10} {}", inode.st_mode(), inode.size(), Path::new(shown).display());
        if let Body::Directory(directory) = &inode.body {
            let mut entries = filesystem.entries(directory, Position::default())?;
            while let Some(entry) = entries.next_entry()? {
                left.push((format!("{path}/{}", String::from_utf8_lossy(&entry.name)), entry.inode));
            }
        }
    }
    Ok(())
}
