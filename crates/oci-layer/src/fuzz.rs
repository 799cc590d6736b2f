//! What the fuzz targets (`fuzz/` at the root of the sources) call, for they see only what is public. Each function
//! panics where a promise is broken.

use std::path::PathBuf;
use std::sync::OnceLock;

use oci_content::interrupt::Interrupt;
use rt_sys::disk;

use crate::decode::Expected;
use crate::merge::MergedTree;
use crate::tar::Reader;
use crate::unpack::{self, Counts, DirectoryTarget, UnpackContext};

/// Every stream ends, in an error or at its end.
pub fn tar(bytes: &[u8]) {
    let mut reader = Reader::new(bytes);
    while let Ok(Some(entry)) = reader.next() {
        assert!(!entry.path.contains(&0));
        while let Ok(piece) = reader.piece() {
            if piece.is_empty() {
                break;
            }
            let n = piece.len();
            reader.consume(n);
        }
    }
}

/// The bytes are cut in two layers and applied; a canary beside the tree stays as it is.
pub fn layers(bytes: &[u8]) {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    let place =
        PLACE.get_or_init(|| std::env::temp_dir().join(format!("rt-fuzz-{}", rt_sys::unique::name())));
    for dir in ["tree", "trash", "canary"] {
        std::fs::create_dir_all(place.join(dir)).expect("make a directory");
    }
    let root = disk::open_root(&place.join("tree")).expect("open the tree");
    let trash = disk::open_root(&place.join("trash")).expect("open the trash");
    let counts = Counts::default();
    let below = disk::open_dir_again(std::os::fd::AsFd::as_fd(&root)).expect("open again");
    let tree = MergedTree::new(DirectoryTarget::new(below, trash, true, true, &counts));
    let interrupt = Interrupt::default();
    let max_bytes = 1 << 20;
    let (counts, interrupt) = (&counts, &interrupt);
    let context = UnpackContext {
        tree: &tree,
        root: Some(&root),
        max_bytes,
        counts,
        interrupt,
        frame_threads: 3,
        pieces: 4,
    };
    let parts = [&bytes[..bytes.len() / 2], &bytes[bytes.len() / 2..]];
    let mut deferred = Vec::new();
    for number in [2u16, 1] {
        let part = parts[usize::from(number) - 1];
        deferred.extend(
            unpack::apply(&context, number, part.len() as u64, (part, Expected::Any)).unwrap_or_default(),
        );
    }
    let _ =
        unpack::finish_links(&context, deferred, |number| (parts[usize::from(number) - 1], Expected::Any));
    let _ = tree.finish_dirs();
    let canary = std::fs::read_dir(place.join("canary")).expect("the canary is there").count();
    let beside = std::fs::read_dir(place).expect("the place is there").count();
    assert!(canary == 0 && beside == 3, "something left the tree");
    for dir in ["tree", "trash"] {
        std::fs::remove_dir_all(place.join(dir)).expect("remove the tree");
    }
}

#[cfg(test)]
mod tests {
    /// The targets themselves work; their search is cargo-fuzz's.
    #[test]
    fn targets_run() {
        super::tar(&[0; 1024]);
        super::layers(&[1; 1024]);
    }
}
