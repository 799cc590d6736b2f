//! Trees of nasty layers, compared with umoci's and with what was meant.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use super::image::{Image, Layer, noise};
use super::{Place, have};

/// Path to type, mode, time and content; files with several names carry the first of them.
pub(super) fn scan(root: &Path) -> BTreeMap<String, String> {
    let mut tree = BTreeMap::new();
    let mut inodes: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let mut stack = vec![root.to_owned()];
    while let Some(dir) = stack.pop() {
        for entry in std::fs::read_dir(&dir).unwrap().flatten() {
            let path = entry.path();
            let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
            let metadata = path.symlink_metadata().unwrap();
            let mode = metadata.permissions().mode();
            let mut text = format!("{mode:o} ");
            if metadata.is_dir() {
                stack.push(path.clone());
            } else if metadata.is_symlink() {
                text += &format!("-> {}", std::fs::read_link(&path).unwrap().display());
            } else {
                let data = std::fs::read(&path).unwrap();
                text += &format!("{} {}", data.len(), super::image::digest(&data));
                text += &format!(" {}", metadata.mtime());
                inodes.entry(metadata.ino()).or_default().push(name.clone());
            }
            tree.insert(name, text);
        }
    }
    for mut names in inodes.into_values().filter(|names| names.len() > 1) {
        names.sort();
        for name in &names {
            *tree.get_mut(name).unwrap() += &format!(" = {}", names[0]);
        }
    }
    tree
}

/// Layers that replace each other's entries in every way that a seed gives.
pub(super) fn random_layers(seed: u64) -> Vec<Layer> {
    let mut state = seed;
    let mut next = move |most: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % most
    };
    let names = ["a", "b", "c", "d/a", "d/b", "d/e/a", "d/e/b", "f/a", "f/g/h"];
    let mut layers = Vec::new();
    for number in 0..6 {
        let mut layer = Layer::default();
        let mut used: Vec<String> = Vec::new();
        // A well-formed layer: no path twice, parents as directory entries.
        let free = |used: &[String], path: &str| {
            used.iter().all(|u| {
                u != path && !u.starts_with(&format!("{path}/")) && !path.starts_with(&format!("{u}/"))
            })
        };
        for _ in 0..6 {
            let path = names[next(names.len() as u64) as usize];
            if !free(&used, path) {
                continue;
            }
            let mut parent = String::new();
            for part in path.split('/').rev().skip(1).collect::<Vec<_>>().into_iter().rev() {
                parent = if parent.is_empty() { part.to_owned() } else { format!("{parent}/{part}") };
                layer = layer.dir(&parent);
            }
            let (dir, base) = path.rsplit_once('/').map_or(("", path), |(d, b)| (d, b));
            let prefix = if dir.is_empty() { String::new() } else { format!("{dir}/") };
            match next(8) {
                0 | 1 => layer = layer.file(path, format!("{number} {path}")),
                2 => layer = layer.file(path, noise(70_000, seed + number)),
                3 => layer = layer.symlink(path, "../somewhere"),
                4 => layer = layer.dir(path).file(&format!("{path}/inner{number}"), "x"),
                5 if number > 0 => layer = layer.file(&format!("{prefix}.wh.{base}"), ""),
                6 if number > 0 && !dir.is_empty() => {
                    layer = layer.file(&format!("{prefix}.wh..wh..opq"), "")
                }
                _ => {
                    layer = layer.file(path, "linked").link(&format!("{path}-link{number}"), path);
                    used.push(format!("{path}-link{number}"));
                }
            }
            used.push(path.to_owned());
        }
        layers.push(layer);
    }
    layers
}

#[test]
pub(super) fn random_layers_make_umocis_trees() {
    if !have("umoci") {
        return;
    }
    let place = Place::new("random");
    for seed in 0..150u64 {
        let image = format!("image{seed}");
        // umoci of Debian knows no zstd: the compressions are mixed elsewhere.
        Image::stored(random_layers(seed), serde_json::json!({}), |_, tar| {
            ("application/vnd.oci.image.layer.v1.tar+gzip", super::image::gzip(tar))
        })
        .layout(&place.join(&image));
        let bundle = format!("rt{seed}");
        place.good(&["pull", "--private", "-q", "--profile", "isolated", &format!("oci:{image}:t"), &bundle]);
        let status = Command::new("umoci")
            .current_dir(place.join("."))
            .args(["unpack", "--rootless", "--image", &format!("{image}:t"), &format!("umoci{seed}")])
            .output()
            .unwrap();
        assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stderr));
        let mut ours = scan(&place.join(format!("{bundle}/rootfs")));
        let theirs = scan(&place.join(format!("umoci{seed}/rootfs")));
        // Mount points that the config needs.
        for made in ["proc", "dev", "sys"] {
            ours.remove(made);
        }
        let differing: Vec<_> = ours
            .iter()
            .filter(|(path, text)| theirs.get(*path) != Some(text))
            .chain(theirs.iter().filter(|(path, _)| !ours.contains_key(*path)))
            .collect();
        assert!(differing.is_empty() && ours.len() == theirs.len(), "seed {seed}: {differing:#?}");
        // The result does not depend on which layer comes when.
        for again in 0..1 {
            let bundle = format!("again{seed}-{again}");
            place.good(&[
                "pull",
                "--private",
                "-q",
                "--profile",
                "isolated",
                &format!("oci:{image}:t"),
                &bundle,
            ]);
            let mut tree = scan(&place.join(format!("{bundle}/rootfs")));
            for made in ["proc", "dev", "sys"] {
                tree.remove(made);
            }
            assert_eq!(ours, tree, "seed {seed}, again");
        }
    }
}

#[test]
fn links_across_layers() {
    let place = Place::new("links");
    let layers = vec![
        Layer::default().file("low", "low").file("replaced", "old").file("target", "t1"),
        // Links to a lower layer's files, one of which a higher layer replaces.
        Layer::default()
            .link("to-low", "low")
            .link("to-replaced", "replaced")
            .file("hidden", "content")
            .link("seen", "hidden"),
        // Hides the first name of a file whose second name stays, and of a chain.
        Layer::default().file("replaced", "new").file(".wh.hidden", "").link("chain", "to-replaced"),
    ];
    Image::new(layers).layout(&place.join("image"));
    for n in 0..5 {
        let bundle = format!("b{n}");
        place.good(&["pull", "-q", "oci:image:t", &bundle]);
        let read =
            |name: &str| std::fs::read_to_string(place.join(format!("{bundle}/rootfs/{name}"))).unwrap();
        assert_eq!(read("to-low"), "low");
        assert_eq!(read("to-replaced"), "old");
        assert_eq!(read("replaced"), "new");
        assert_eq!(read("seen"), "content");
        assert_eq!(read("chain"), "old");
        let inode =
            |name: &str| place.join(format!("{bundle}/rootfs/{name}")).symlink_metadata().unwrap().ino();
        assert_eq!(inode("low"), inode("to-low"));
        assert!(!place.join(format!("{bundle}/rootfs/hidden")).exists());
    }
    Image::new(vec![Layer::default().link("a", "nothing")]).layout(&place.join("broken"));
    let said = place.bad(&["pull", "oci:broken:t", "x"]);
    assert!(said.contains("no layer has"), "{said}");
}

#[test]
fn real_tar_with_odd_names_holes_and_attributes() {
    let place = Place::new("odd");
    let source = place.join("source");
    let deep = source.join("d".repeat(200)).join("e".repeat(200)).join("f".repeat(150));
    std::fs::create_dir_all(&deep).unwrap();
    for name in ["new\nline", "t\tb", "ümläut", "\u{1F600}", "-rf", "back\\slash", " ", "*"] {
        std::fs::write(deep.join(name), name).unwrap();
    }
    let sparse = std::fs::File::create(source.join("holes")).unwrap();
    sparse.set_len(50 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"end", (50 << 20) - 3).unwrap();
    let attributed = source.join("attributed");
    std::fs::write(&attributed, "x").unwrap();
    let set = Command::new("setfattr").args(["-n", "user.rt", "-v", "value"]).arg(&attributed).status();
    let attributes = set.is_ok_and(|s| s.success());
    for format in ["posix", "gnu"] {
        let tar = place.join(format!("{format}.tar"));
        let mut command = Command::new("tar");
        command.args(["--sparse", "--format", format, "-cf"]).arg(&tar).arg("-C").arg(&source);
        if format == "posix" && attributes {
            command.args(["--xattrs"]);
        }
        assert!(command.arg(".").status().unwrap().success());
        let bytes = std::fs::read(&tar).unwrap();
        let id = super::image::digest(&bytes);
        let image = Image::raw(
            vec![("application/vnd.oci.image.layer.v1.tar", bytes)],
            vec![id],
            serde_json::json!({}),
        );
        image.layout(&place.join(format!("image-{format}")));
        place.good(&[
            "pull",
            "-q",
            "--private",
            "--profile",
            "isolated",
            &format!("oci:image-{format}:t"),
            format,
        ]);
        let mut ours = scan(&place.join(format!("{format}/rootfs")));
        for made in ["proc", "dev", "sys"] {
            ours.remove(made);
        }
        assert_eq!(ours, scan(&source), "{format}");
        let holes = place.join(format!("{format}/rootfs/holes")).symlink_metadata().unwrap();
        assert!(holes.blocks() < 1000, "{} blocks: the holes were filled", holes.blocks());
    }
}
