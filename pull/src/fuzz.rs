//! What the fuzz targets (`fuzz/` at the root of the sources) call, for they see only what is public. Each function
//! panics where a promise is broken.

use std::path::PathBuf;
use std::sync::OnceLock;

use super::decode::Expected;
use super::interrupt::Interrupt;
use super::layer::{self, Counts, DirectoryTarget, UnpackContext};
use super::merge::MergedTree;
use super::reference::{Reference, Source};
use super::registries_conf::Registries;
use super::tar::Reader;
use super::{auth, disk, lease, manifest};

/// A name that parses is clean, and parses again to the same.
pub fn reference(text: &str) {
    if let Ok(Source::Registry(reference)) = text.parse::<Source>() {
        assert!(!reference.repository.split('/').any(|part| matches!(part, "" | "." | "..")));
        let user = reference.user.clone();
        let again: Reference = reference.to_string().parse().expect("a printed name parses");
        assert_eq!(Reference { user, ..again }, reference);
    }
}

/// No header makes the parser panic.
pub fn challenge(text: &str) {
    let _ = auth::parse(text);
    let _ = auth::unbase64(text);
}

/// No document makes the parsers panic.
pub fn manifest(bytes: &[u8]) {
    if let Ok(manifest::Document::Manifest(manifest)) = manifest::parse(bytes) {
        let _ = manifest.check();
    }
    let _ = manifest::parse_config(bytes);
    let _ = auth::Token::parse(bytes);
}

/// What registries.conf says of an image: mirrors first and the registry itself at the end, each with a host and a
/// repository. The order of its tables means nothing, and a file that is read twice says the same. The first line names an
/// image.
pub fn registries(text: &str) {
    let (name, text) = text.split_once('\n').unwrap_or(("debian", text));
    let Ok(registries) = Registries::parse(text) else { return };
    let mut turned = registries.clone();
    turned.turn();
    let mut twice = registries.clone();
    twice.add(registries.clone());
    let digest = format!("a.b.corp/x@sha256:{}", "a".repeat(64));
    for name in [name, "debian", "quay.io/x/y:1", "a.b.corp/x", &digest] {
        let Ok(reference) = name.parse::<Reference>() else { continue };
        let endpoints = registries.endpoints(&reference).ok();
        if registries.has_one_table_each() {
            assert_eq!(turned.endpoints(&reference).ok(), endpoints, "{name}: in another order");
            assert_eq!(twice.endpoints(&reference).ok(), endpoints, "{name}: read twice");
        }
        let Some(endpoints) = endpoints else { continue };
        let (own, mirrors) = endpoints.split_last().expect("a place to ask");
        assert!(!own.mirror && mirrors.iter().all(|endpoint| endpoint.mirror), "{endpoints:?}");
        for endpoint in &endpoints {
            assert!(!endpoint.host.is_empty() && !endpoint.repository.is_empty(), "{name}: {endpoint:?}");
        }
    }
}

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
    let place = PLACE.get_or_init(|| std::env::temp_dir().join(format!("rt-fuzz-{}", lease::unique())));
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
    let context =
        UnpackContext { tree: &tree, root: &root, max_bytes, counts, interrupt, frame_threads: 3, pieces: 4 };
    let parts = [&bytes[..bytes.len() / 2], &bytes[bytes.len() / 2..]];
    let mut deferred = Vec::new();
    for number in [2u16, 1] {
        let part = parts[usize::from(number) - 1];
        deferred.extend(
            layer::apply(&context, number, part.len() as u64, (part, Expected::Any)).unwrap_or_default(),
        );
    }
    let _ = layer::finish_links(&context, deferred, |number| (parts[usize::from(number) - 1], Expected::Any));
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
        super::reference("docker://debian:12");
        super::challenge("Bearer realm=\"x\"");
        super::manifest(b"{}");
        super::registries(
            "a.b.corp/x\n[[registry]]\nlocation='b.corp'\n[[registry]]\nprefix='*.corp'\nlocation='c'",
        );
        super::tar(&[0; 1024]);
        super::layers(&[1; 1024]);
    }
}
