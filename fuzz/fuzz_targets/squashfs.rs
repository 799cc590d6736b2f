//! A squashfs image, whatever is in it: every inode, directory, file and attribute that it leads to, up to a bound.
//! All that is found is within the file; files are as long as they say.
#![no_main]

use squashfs::{Body, Filesystem, Position};
use std::collections::HashSet;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(fs) = Filesystem::open(bytes, 0) else { return };
    let mut seen = HashSet::new();
    let mut todo = vec![fs.root()];
    while let Some(reference) = todo.pop() {
        if seen.len() > 100 || !seen.insert(reference) {
            continue;
        }
        let Ok(inode) = fs.inode(reference) else { continue };
        let _ = fs.xattrs(&inode);
        match &inode.body {
            Body::Directory(directory) => {
                let _ = fs.find(directory, b"numbers");
                let Ok(mut entries) = fs.entries(directory, Position::default()) else { continue };
                for _ in 0..200 {
                    let Ok(Some(entry)) = entries.next_entry() else { break };
                    // Every place that a server hands out is one from which it is read on.
                    let mut rest = fs.entries(directory, entry.next).expect("a position that was given out");
                    let _ = rest.next_entry();
                    todo.push(entry.inode);
                }
            }
            Body::File(file) => {
                for at in [0, file.size.saturating_sub(5), u64::MAX] {
                    if let Ok(pieces) = fs.read(reference, file, at, 100_000) {
                        let length: usize = pieces.iter().map(squashfs::Piece::size).sum();
                        assert!(length as u64 == file.size.saturating_sub(at).min(100_000));
                    }
                }
            }
            _ => {}
        }
    }
});
