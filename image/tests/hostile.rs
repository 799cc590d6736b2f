//! Images that are none, are damaged, or are made to harm.

use crate::crafted::Crafted;
use crate::{Place, callers, within};
use std::time::Duration;

#[test]
fn what_is_no_image_is_said_so() {
    let place = Place::new("no-image");
    let mnt = place.text("mnt");
    std::fs::write(place.join("text"), "not an image").unwrap();
    std::fs::write(place.join("zeros"), [0; 4096]).unwrap();
    let whole = std::fs::read(place.seed("gzip.sqsh")).unwrap();
    std::fs::write(place.join("cut"), &whole[..whole.len() - 100]).unwrap();
    for caller in callers() {
        let said = |name: &str| place.bad(caller, &["rt", "mount", &place.text(name), &mnt, "--", "true"]);
        assert!(said("text").ends_with("text: not a squashfs: it has only 12 bytes\n"));
        assert!(said("zeros").ends_with("zeros: not a squashfs: the first four bytes are not \"hsqs\"\n"));
        assert!(said("cut").contains("cut: superblock at byte 0x28: the image is cut off: it has"));
        assert!(said("missing").ends_with("missing: no such file or directory\n"));
        assert!(said("mnt").ends_with("mnt: not a regular file\n"));
    }
}

/// Wherever an image is damaged, reading it gives errors; the server lives and answers what is sound.
#[test]
fn damage_is_an_error_of_the_file() {
    let place = Place::new("damaged");
    let mnt = place.text("mnt");
    let good = std::fs::read(place.seed("stored.sqsh")).unwrap();
    for caller in callers() {
        for at in (96..good.len()).step_by(good.len() / 24) {
            let mut bad = good.clone();
            bad[at..].iter_mut().take(40).for_each(|byte| *byte = 0xa5);
            let image = place.text("bad.sqsh");
            std::fs::write(&image, bad).unwrap();
            let script = "cd \"$0\" && { find . >/dev/null 2>&1; cat dir/* dir/deep/* >/dev/null 2>&1; \
                stat -f . >/dev/null && echo alive; }";
            let output = place
                .run(caller, &["timeout", "20", "rt", "mount", &image, &mnt, "--", "sh", "-c", script, &mnt]);
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            // What the root needs may be what is damaged: then there is no mount.
            let refused = String::from_utf8_lossy(&output.stderr).contains("at byte");
            assert!(said == "alive\n" || refused, "{caller:?} at {at}: {output:?}");
        }
    }
}

/// Unpacks an image of `crafted`, which has to fail within a minute; what is said of it.
fn refused(name: &str, image: Vec<u8>) -> Vec<String> {
    let place = Place::new(name);
    let (path, mnt) = (place.text("x.sqsh"), place.text("mnt"));
    std::fs::write(&path, image).unwrap();
    let said = |caller| {
        let words = ["timeout", "60", "rt", "mount", "--extract", &path, &mnt, "--", "true"];
        let output = place.run(caller, &words);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && output.status.code() != Some(124), "{caller:?}: {said}");
        assert!(
            std::fs::read_dir(place.join("mnt")).unwrap().next().is_none(),
            "{caller:?}: something is left"
        );
        said
    };
    callers().into_iter().map(said).collect()
}

/// A file of holes takes no memory, and reading its list takes time: with many names it would take hours.
#[test]
fn holes_of_many_names_have_a_bound() {
    let mut image = Crafted::default();
    let (file, kind) = image.holes(1 << 20);
    let names: Vec<_> = (0..40_000).map(|n| (format!("{n:05}"), file, kind)).collect();
    let listing = image.listing(&names);
    let root = image.directory(listing);
    for said in refused("many-holes", image.image(root)) {
        assert!(said.contains("too many holes"), "{said}");
    }
}

/// Devices are left out, so nothing of the file system bounds how many there are: directories can share their names.
#[test]
fn what_is_left_out_has_a_bound() {
    let mut image = Crafted::default();
    let (device, kind) = image.device();
    let names: Vec<_> = (0..1_000_000).map(|_| ("x".to_owned(), device, kind)).collect();
    let listing = image.listing(&names);
    let directories: Vec<_> = (0..4000)
        .map(|n| {
            let (directory, kind) = image.directory(listing);
            (format!("{n:05}"), directory, kind)
        })
        .collect();
    let listing = image.listing(&directories);
    let root = image.directory(listing);
    for said in refused("many-devices", image.image(root)) {
        assert!(said.contains("too much of the image is left out"), "{said}");
    }
}

/// Who unpacks an image ends with the `rt` that waits for it.
#[test]
fn a_killed_rt_leaves_nobody_unpacking() {
    let place = Place::new("orphan");
    let mut image = Crafted::default();
    let (device, kind) = image.device();
    let names: Vec<_> = (0..1_000_000).map(|_| ("x".to_owned(), device, kind)).collect();
    let listing = image.listing(&names);
    let directories: Vec<_> = (0..10)
        .map(|n| {
            let (directory, kind) = image.directory(listing);
            (n.to_string(), directory, kind)
        })
        .collect();
    let listing = image.listing(&directories);
    let root = image.directory(listing);
    let (path, mnt) = (place.text("x.sqsh"), place.text("mnt"));
    std::fs::write(&path, image.image(root)).unwrap();
    let unpacking = || {
        let of = |entry: std::fs::DirEntry| std::fs::read(entry.path().join("cmdline")).ok();
        let own = |words: &Vec<u8>| {
            words.split(|byte| *byte == 0).nth(1) == Some(b"unpack")
                && String::from_utf8_lossy(words).contains(&path)
        };
        std::fs::read_dir("/proc").unwrap().flatten().filter_map(of).filter(own).count()
    };
    for caller in callers() {
        let mut child =
            place.command(caller, &["rt", "mount", "--extract", &path, &mnt, "--", "true"]).spawn().unwrap();
        assert!(within(Duration::from_secs(10), || unpacking() == 1), "{caller:?}");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(within(Duration::from_secs(1), || unpacking() == 0), "{caller:?}: it goes on");
    }
}

/// As many holes as the log of logins of a user with a large number has.
#[test]
fn terabytes_of_holes_are_unpacked() {
    let place = Place::new("lastlog");
    let mut image = Crafted::default();
    let (file, kind) = image.holes(1 << 24);
    let listing = image.listing(&[("lastlog".to_owned(), file, kind)]);
    let root = image.directory(listing);
    let (path, mnt) = (place.text("x.sqsh"), place.text("mnt"));
    std::fs::write(&path, image.image(root)).unwrap();
    for caller in callers() {
        let words =
            ["rt", "mount", "--extract", &path, &mnt, "--", "stat", "-c", "%s %b", &format!("{mnt}/lastlog")];
        assert_eq!(place.good(caller, &words), format!("{} 0\n", (1u64 << 24) * 4096), "{caller:?}");
    }
}
