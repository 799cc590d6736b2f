//! Owners of a base image, in what is built on it.

use super::Place;
use super::image::{Image, Layer};
use super::others::{OTHER, can_give};
use super::uploads::{Fault, Uploads};
use oci_layer::tar::{EntryKind, Header, Reader};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io::BufReader;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

/// An image in a registry whose layers replace each other's entries of several owners.
fn base(place: &Place, server: &Uploads) -> String {
    use EntryKind::{Directory, Fifo, File, Hardlink, Symlink};
    let lower = Layer::default()
        .owned(File, "a", "", 0o444, (33, 34), b"a")
        .owned(Hardlink, "b", "a", 0o444, (33, 34), b"")
        .owned(Directory, "d/", "", 0o755, (100, 0), b"")
        .owned(File, "d/root", "", 0o644, (0, 0), b"x")
        .owned(File, "gone", "", 0o644, (5, 5), b"x")
        .owned(Directory, "e/", "", 0o755, (7, 7), b"")
        .owned(File, "e/x", "", 0o644, (6, 6), b"x")
        .owned(File, "again", "", 0o644, (8, 8), b"x")
        .owned(Symlink, "link", "a", 0o777, (33, 34), b"")
        .owned(Symlink, "again-link", "a", 0o777, (8, 8), b"")
        .owned(Fifo, "pipe", "", 0o644, (0, 35), b"")
        .owned(File, "large", "", 0o644, (3_000_000, 3_000_001), b"x");
    let upper = Layer::default()
        .file(".wh.gone", "")
        .file("e/.wh..wh..opq", "")
        .owned(File, "e/y", "", 0o644, (0, 9), b"y")
        .file("again", "roots")
        .owned(Symlink, "again-link", "b", 0o777, (0, 0), b"");
    Image::with_config(vec![lower, upper], json!({})).layout(&place.join("image"));
    let name = server.name("team/base:1");
    place.good(&["push", "-q", "--plain-http", "oci:image:t", &name]);
    name
}

/// The owners of the entries of a layout's first layer.
fn owners(place: &Place, layout: &str) -> BTreeMap<String, (u64, u64)> {
    let blob = |digest: &Value| place.join(layout).join("blobs/sha256").join(&digest.as_str().unwrap()[7..]);
    let read = |path| -> Value { serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap() };
    let index = read(place.join(layout).join("index.json"));
    let manifest = read(blob(&index["manifests"][0]["digest"]));
    let layer = std::fs::File::open(blob(&manifest["layers"][0]["digest"])).unwrap();
    let mut reader = Reader::new(BufReader::new(flate2::read::MultiGzDecoder::new(layer)));
    let mut all = BTreeMap::new();
    while let Some(entry) = reader.next().unwrap() {
        let path = String::from_utf8(entry.path.clone()).unwrap();
        all.insert(path.trim_end_matches('/').to_owned(), (entry.uid, entry.gid));
    }
    all
}

/// The owners of the entries of an image that is nothing but this base.
fn owners_built_on(place: &Place, name: &str) -> BTreeMap<String, (u64, u64)> {
    std::fs::create_dir_all(place.join("context")).unwrap();
    std::fs::write(place.join("context/Containerfile"), format!("FROM {name}\n")).unwrap();
    let out = place
        .command()
        .env("RT_IMAGES", place.join("images"))
        .env("RT_BUILD_DIR", place.join("build"))
        .args(["build", "-q", "--plain-http", "-o", "oci:built:t", "context"])
        .output()
        .unwrap();
    assert!(out.status.success() && out.stderr.is_empty(), "{out:?}");
    owners(place, "built")
}

fn is_owned_as_the_base(place: &Place, name: &str) {
    let owners = owners_built_on(place, name);
    for (path, owner) in [
        ("a", (33, 34)),
        ("b", (33, 34)),
        ("d", (100, 0)),
        ("d/root", (0, 0)),
        ("e", (7, 7)),
        ("e/y", (0, 9)),
        ("again", (0, 0)),
        ("link", (33, 34)),
        ("again-link", (0, 0)),
        ("pipe", (0, 35)),
        ("large", (3_000_000, 3_000_001)),
    ] {
        assert_eq!(owners.get(path), Some(&owner), "{path} in {owners:?}");
    }
    assert!(!owners.contains_key("gone") && !owners.contains_key("e/x"), "{owners:?}");
}

#[test]
fn a_base_that_a_build_pulls() {
    let place = Place::new("owners-new");
    let server = Uploads::start(Fault::None);
    let name = base(&place, &server);
    is_owned_as_the_base(&place, &name);
    // Others than rt take modes from the records.
    let bundles = std::fs::read_dir(place.join("images/bundles")).unwrap().flatten();
    let files: Vec<_> = bundles.map(|bundle| bundle.path().join("rootfs/a")).filter(|a| a.exists()).collect();
    assert!(!files.is_empty());
    for file in files {
        let mut value = [0; 64];
        let length = rustix::fs::getxattr(&file, "user.containers.override_stat", &mut value).unwrap();
        assert_eq!(std::str::from_utf8(&value[..length]), Ok("33:34:444"), "{file:?}");
    }
}

/// What a pull leaves out is in the headers of the layers, which are in the cache.
#[test]
fn a_base_that_was_there() {
    let place = Place::new("owners-old");
    let server = Uploads::start(Fault::None);
    let name = base(&place, &server);
    let pulled = place
        .command()
        .env("RT_IMAGES", place.join("images"))
        .args(["pull", "-q", "--store", "--plain-http", &name])
        .status();
    assert!(pulled.unwrap().success());
    is_owned_as_the_base(&place, &name);
    // The note that they are recorded is nobody else's to write, though a build has no umask.
    let bundles = std::fs::read_dir(place.join("images/bundles")).unwrap().flatten();
    let notes: Vec<_> = bundles.filter_map(|bundle| bundle.path().join("records").metadata().ok()).collect();
    assert!(!notes.is_empty());
    for note in notes {
        assert_eq!(note.permissions().mode() & 0o022, 0, "{note:?}");
    }
}

/// The files of a base in a store of somebody else's, as a site's, are not for everybody to read and write over: it is pulled again.
#[test]
fn a_base_of_another_users_store() {
    let place = Place::new("owners-site");
    if !can_give(&place) {
        return;
    }
    let server = Uploads::start(Fault::None);
    let name = base(&place, &server);
    let site = place.join("site");
    std::fs::create_dir(&site).unwrap();
    std::fs::set_permissions(&site, Permissions::from_mode(0o755)).unwrap();
    let words = ["pull", "-q", "--store", "--plain-http", &name];
    assert!(place.command().env("RT_IMAGES", &site).args(words).status().unwrap().success());
    let bundle = std::fs::read_dir(site.join("bundles")).unwrap().flatten().next().unwrap().path();
    std::fs::set_permissions(bundle.join("rootfs/d/root"), Permissions::from_mode(0o600)).unwrap();
    // The name has another meaning by now: what is built on is still the image that is here.
    let other = Layer::default().file("other", "x");
    Image::with_config(vec![other], json!({})).layout(&place.join("other"));
    place.good(&["push", "-q", "--plain-http", "oci:other:t", &name]);
    let home = place.join("home");
    std::fs::create_dir_all(home.join("context")).unwrap();
    std::fs::write(home.join("context/Containerfile"), format!("FROM {name}\n")).unwrap();
    for path in [&home, &home.join("context")] {
        std::os::unix::fs::chown(path, Some(OTHER), Some(OTHER)).unwrap();
    }
    let build = |images: &str| {
        let mut command = place.command();
        command.uid(OTHER).gid(OTHER).current_dir(&home).env("RT_CACHE", home.join("cache"));
        command.env("RT_IMAGES", images);
        command.env("RT_BUILD_DIR", home.join("build"));
        command
            .args(["build", "-q", "--retries", "0", "--plain-http", "-o", "oci:built:t", "context"])
            .output()
            .unwrap()
    };
    let out = build(&format!("{}:{}", home.join("images").display(), site.display()));
    assert!(out.status.success() && out.stderr.is_empty(), "{out:?}");
    assert_eq!(owners(&place, "home/built")["a"], (33, 34));
    // Nor does the copy take the name.
    let names = std::fs::read_dir(home.join("images/names")).unwrap().flatten();
    let names: Vec<_> = names.map(|name| name.file_name().into_string().unwrap()).collect();
    assert!(!names.is_empty() && names.iter().all(|name| name.contains("sha256")), "{names:?}");
    let out = build(site.to_str().unwrap());
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(said.contains("site/bundles") && said.contains("d/root"), "{said}");
}

/// What is built before the owners of its base are known stays as it was when they become known.
#[test]
fn owners_that_become_known_change_no_image() {
    let place = Place::new("owners-late");
    let server = Uploads::start(Fault::None);
    let name = base(&place, &server);
    let run = |words: &[&str]| {
        let images = [("RT_IMAGES", place.join("images")), ("RT_BUILD_DIR", place.join("build"))];
        let out = place.command().envs(images).args(words).output().unwrap();
        assert!(out.status.success(), "{words:?}: {out:?}");
        String::from_utf8_lossy(&out.stderr).into_owned()
    };
    let build = |tag: &str, file: &str| {
        std::fs::create_dir_all(place.join("context")).unwrap();
        std::fs::write(place.join("context/Containerfile"), format!("FROM {name}\n{file}")).unwrap();
        run(&["build", "--plain-http", "-t", tag, "context"])
    };
    run(&["pull", "-q", "--store", "--plain-http", &name]);
    std::fs::rename(place.join("cache"), place.join("away")).unwrap();
    let said = build("one", "COPY Containerfile /x\n");
    assert!(said.contains("all of it belongs to root"), "{said}");
    run(&["save", "-q", "one", "oci:before:t"]);
    std::fs::remove_dir_all(place.join("cache")).unwrap();
    std::fs::rename(place.join("away"), place.join("cache")).unwrap();
    let said = build("two", "COPY Containerfile /y\n");
    assert!(!said.contains("belongs to root"), "{said}");
    run(&["save", "-q", "one", "oci:after:t"]);
    let index = |layout: &str| std::fs::read_to_string(place.join(layout).join("index.json")).unwrap();
    assert_eq!(index("before"), index("after"));
    assert_eq!(owners(&place, "after")["a"], (0, 0));
    run(&["save", "-q", "two", "oci:two:t"]);
    assert_eq!(owners(&place, "two")["a"], (33, 34));
}

/// An image does not say by an attribute what `rt` records itself.
#[test]
fn records_of_an_image_are_not_believed() {
    let place = Place::new("records");
    let mut layer = Layer::default();
    let header = Header {
        xattrs: vec![(b"user.containers.override_stat".to_vec(), b"7:8:666:block-8-0".to_vec())],
        ..Header::new("f".into(), EntryKind::File, 0o644)
    };
    oci_layer::tar::write_header(&mut layer.0, &header).unwrap();
    // A record of a link that says 7 and 8, as `rt` writes it.
    let words: [u32; 6] = [0x0300_0000, 7, 8, 0x7274_6f77, !0x7274_6f77, 0];
    let value = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let header = Header {
        link: b"f".to_vec(),
        xattrs: vec![(b"security.capability".to_vec(), value)],
        ..Header::new("l".into(), EntryKind::Symlink, 0o777)
    };
    oci_layer::tar::write_header(&mut layer.0, &header).unwrap();
    Image::new(vec![layer]).layout(&place.join("image"));
    place.good(&["pull", "-q", "oci:image:t", "bundle"]);
    place.good(&["pull", "-q", "oci:image:t", "file.sqsh"]);
    place.good(&["convert", "-q", "./file.sqsh", "back"]);
    for bundle in ["bundle", "back"] {
        let saved = format!("saved-{bundle}");
        place.good(&["save", "-q", &format!("./{bundle}"), &format!("oci:{saved}:t")]);
        assert_eq!(owners(&place, &saved)["f"], (0, 0), "{bundle}");
        assert_eq!(owners(&place, &saved)["l"], (0, 0), "{bundle}");
    }
    let server = Uploads::start(Fault::None);
    let name = server.name("team/base:1");
    place.good(&["push", "-q", "--plain-http", "oci:image:t", &name]);
    let built = owners_built_on(&place, &name);
    assert_eq!((built["f"], built["l"]), ((0, 0), (0, 0)));
}
