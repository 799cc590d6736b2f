//! Images as one file, read back by the reader that serves them.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use oci_layer::tar::{EntryKind, Header};
use squashfs::{Body, FilePart, Filesystem, Inode, Piece, Position};
use squashfs_write::{ImageWriter, Metadata, Options, Tree};

use super::Place;
use super::image::{Image, Layer, digest};
use super::trees::{random_layers, scan};

type Opened = Filesystem<FilePart>;

fn open(path: &Path) -> Opened {
    Filesystem::open(FilePart::new(File::open(path).unwrap(), 0, None).unwrap(), 1 << 20).unwrap()
}

/// Every path with its inode, the root's not among them.
fn walk(image: &Opened) -> BTreeMap<String, Inode> {
    let mut all = BTreeMap::new();
    let mut stack = vec![(String::new(), image.inode(image.root()).unwrap())];
    while let Some((path, inode)) = stack.pop() {
        if let Body::Directory(directory) = &inode.body {
            let mut entries = image.entries(directory, Position::default()).unwrap();
            while let Some(entry) = entries.next_entry().unwrap() {
                let slash = if path.is_empty() { "" } else { "/" };
                let name = format!("{path}{slash}{}", String::from_utf8(entry.name).unwrap());
                stack.push((name, image.inode(entry.inode).unwrap()));
            }
        }
        if !path.is_empty() {
            all.insert(path, inode);
        }
    }
    all
}

fn content(image: &Opened, inode: &Inode) -> Vec<u8> {
    let Body::File(file) = &inode.body else { panic!("not a file") };
    let mut bytes = Vec::new();
    for piece in image.read(inode.reference, file, 0, file.size as usize).unwrap() {
        match piece {
            Piece::Block(block, range) => bytes.extend_from_slice(&block.bytes()[range]),
            Piece::Hole(length) => bytes.resize(bytes.len() + length, 0),
        }
    }
    bytes
}

/// As [`scan`] says it of a directory.
fn scan_image(path: &Path) -> BTreeMap<String, String> {
    let image = open(path);
    let inodes = walk(&image);
    let mut names: HashMap<u32, Vec<String>> = HashMap::new();
    let mut tree = BTreeMap::new();
    for (name, inode) in &inodes {
        let mut text = format!("{:o} ", inode.st_mode());
        match &inode.body {
            Body::Directory(_) => {}
            Body::Symlink(target) => text += &format!("-> {}", String::from_utf8_lossy(target)),
            _ => {
                let data = content(&image, inode);
                text += &format!("{} {} {}", data.len(), digest(&data), inode.mtime);
                names.entry(inode.number).or_default().push(name.clone());
            }
        }
        tree.insert(name.clone(), text);
    }
    for names in names.into_values().filter(|names| names.len() > 1) {
        for name in &names {
            *tree.get_mut(name).unwrap() += &format!(" = {}", names[0]);
        }
    }
    tree
}

#[test]
fn a_file_has_the_tree_of_the_bundle() {
    let place = Place::new("files");
    for seed in 0..60u64 {
        let image = format!("oci:image{seed}:t");
        Image::new(random_layers(seed)).layout(&place.join(format!("image{seed}")));
        place.good(&["pull", "-q", "--private", &image, &format!("b{seed}")]);
        let file = format!("f{seed}.sqsh");
        place.good(&["pull", "-q", &image, &file]);
        let mut bundle = scan(&place.join(format!("b{seed}/rootfs")));
        let mut inside = scan_image(&place.join(&file));
        // What only the file has, and files of the time of the pull.
        for name in [".rt", ".rt/config.json", ".rt/image.json"] {
            inside.remove(name).unwrap();
        }
        for name in ["hosts", "resolv.conf", "hostname", "localtime", "machine-id"] {
            let name = format!("etc/{name}");
            assert!(bundle.remove(&name).is_some() && inside.remove(&name).is_some(), "seed {seed}: {name}");
        }
        let differing: Vec<_> =
            inside.iter().filter(|(path, text)| bundle.get(*path) != Some(text)).collect();
        assert!(
            differing.is_empty() && inside.len() == bundle.len(),
            "seed {seed}: {differing:#?} {bundle:#?}"
        );
    }
}

#[test]
fn everything_is_as_in_the_image_and_always_the_same() {
    let place = Place::new("file-as-is");
    let special = |kind, path: &str, mode, xattrs: Vec<(Vec<u8>, Vec<u8>)>| Header {
        uid: 7,
        gid: 70_000,
        device: (1, 3),
        xattrs,
        ..Header::new(path.into(), kind, mode)
    };
    let mut layer = Layer::default();
    let attributes = vec![
        (b"security.capability".to_vec(), b"caps".to_vec()),
        // An overlay above the file would obey it.
        (b"user.overlay.opaque".to_vec(), b"y".to_vec()),
    ];
    for header in [
        special(EntryKind::Character, "null", 0o666, Vec::new()),
        special(EntryKind::Fifo, "fifo", 0o600, Vec::new()),
        special(EntryKind::File, "suid", 0o4755, attributes),
        special(EntryKind::Directory, "locked/", 0o000, Vec::new()),
        special(EntryKind::File, "locked/secret", 0o000, Vec::new()),
    ] {
        oci_layer::tar::write_header(&mut layer.0, &header).unwrap();
    }
    Image::new(vec![layer]).layout(&place.join("image"));
    let first = place.good(&["pull", "-q", "oci:image:t", "first.sqsh"]);
    assert_eq!(Path::new(first.trim()), place.join("first.sqsh"));
    let image = open(&place.join("first.sqsh"));
    let inodes = walk(&image);
    let of = |name: &str| (inodes[name].st_mode(), inodes[name].uid, inodes[name].gid);
    assert_eq!(of("null"), (0o020_666, 7, 70_000));
    assert_eq!(inodes["null"].body, Body::CharDevice(0x103));
    assert_eq!(of("fifo"), (0o010_600, 7, 70_000));
    assert_eq!(of("suid"), (0o104_755, 7, 70_000));
    assert_eq!(of("locked"), (0o040_000, 7, 70_000));
    assert_eq!(of("locked/secret"), (0o100_000, 7, 70_000));
    let xattrs = image.xattrs(&inodes["suid"]).unwrap();
    assert_eq!(xattrs.len(), 1, "{xattrs:?}");
    let config: serde_json::Value =
        serde_json::from_slice(&content(&image, &inodes[".rt/config.json"])).unwrap();
    assert_eq!(config["annotations"]["rt.image.name"], "oci:image:t");
    assert!(config["linux"].get("uidMappings").is_none(), "{config}");

    for (flags, same) in [(&[][..], true), (&["--compress", "lz4"], false), (&["--compress", "zstd:3"], true)]
    {
        place.good(&[&["pull", "-q", "--force", "oci:image:t", "again.sqsh"], flags].concat());
        let read = |name| std::fs::read(place.join(name)).unwrap();
        assert_eq!(read("first.sqsh") == read("again.sqsh"), same, "{flags:?}");
    }
    assert_eq!(place.join("first.sqsh").metadata().unwrap().permissions().mode() & 0o400, 0o400);
}

#[test]
fn a_bundle_is_saved_as_a_file() {
    let place = Place::new("file-save");
    Image::new(random_layers(3)).layout(&place.join("image"));
    place.good(&["pull", "-q", "--private", "oci:image:t", "b"]);
    // What a program changed since the pull is saved.
    std::fs::write(place.join("b/rootfs/installed"), "later").unwrap();
    let path = place.good(&["save", "-q", "./b", "b.sqsh"]);
    assert_eq!(Path::new(path.trim()), place.join("b.sqsh"));
    let bundle = scan(&place.join("b/rootfs"));
    let mut inside = scan_image(&place.join("b.sqsh"));
    for name in [".rt", ".rt/config.json", ".rt/image.json"] {
        inside.remove(name).unwrap();
    }
    assert_eq!(inside, bundle);
    let said = place.bad(&["save", "./b", "b.sqsh"]);
    assert!(said.contains("--force"), "{said}");
    place.good(&["save", "-q", "--force", "--compress", "gzip:1", "./b", "b.sqsh"]);
    assert!(scan_image(&place.join("b.sqsh")).contains_key("installed"));
    place.bad(&["save", "./nothing", "n.sqsh"]);
    place.is_clean();
}

#[test]
fn what_is_there_is_not_lost() {
    let place = Place::new("file-there");
    Image::new(vec![Layer::default().file("a", "a")]).layout(&place.join("image"));
    std::fs::write(place.join("notes.sqsh"), "my notes").unwrap();
    for (flags, target, says) in [
        (&[][..], "notes.sqsh", "exists"),
        (&["--force"], "notes.sqsh", "not an image file"),
        (&["--profile", "isolated"], "x.sqsh", "needs a bundle"),
        (&["--compress", "bzip2"], "x.sqsh", "--compress bzip2"),
        (&["--compress", "zstd"], "bundle", "for an image file"),
    ] {
        let said = place.bad(&[&["pull", "oci:image:t", target], flags].concat());
        assert!(said.contains(says), "{said}");
    }
    assert_eq!(std::fs::read_to_string(place.join("notes.sqsh")).unwrap(), "my notes");
    // A layer that is cut in the middle leaves nothing.
    let mut broken = Layer::default();
    oci_layer::tar::write_header(
        &mut broken.0,
        &Header { size: 1 << 20, ..Header::new("x".into(), EntryKind::File, 0o644) },
    )
    .unwrap();
    Image::new(vec![broken]).layout(&place.join("broken"));
    place.bad(&["pull", "oci:broken:t", "y.sqsh"]);
    assert!(!place.join("y.sqsh").exists());
    place.is_clean();
}

/// As a second pull to a bundle: it costs a question, and nothing is written.
#[test]
fn an_unchanged_image_is_not_written_again() {
    let place = Place::new("file-again");
    let first = Image::new(random_layers(5));
    first.layout(&place.join("image"));
    for compression in ["zstd:3", "lz4", "gzip:1", "none"] {
        place.good(&["pull", "-q", "--force", "--compress", compression, "oci:image:t", "x.sqsh"]);
        let before = place.join("x.sqsh").metadata().unwrap();
        for flags in [&[][..], &["--no-cache"], &["--json"]] {
            let output = place.run(&[&["pull", "oci:image:t", "x.sqsh"], flags].concat());
            let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
            assert!(output.status.success(), "{compression} {flags:?}: {said}");
            let unchanged = format!("unchanged: {}\n", digest(&first.manifest));
            let json = said.contains("\"unchanged\":true");
            assert!(if flags == ["--json"] { json } else { said.contains(&unchanged) }, "{flags:?}: {said}");
            let after = place.join("x.sqsh").metadata().unwrap();
            assert_eq!((before.ino(), before.mtime_nsec()), (after.ino(), after.mtime_nsec()), "{flags:?}");
        }
    }
    place.is_clean();
    // What the tag means has changed.
    Image::new(vec![Layer::default().file("b", "b")]).layout(&place.join("image"));
    let said = place.bad(&["pull", "oci:image:t", "x.sqsh"]);
    assert!(said.contains("x.sqsh: exists, with another image") && said.contains("--force"), "{said}");
    place.good(&["pull", "-q", "--force", "oci:image:t", "x.sqsh"]);
    assert!(scan_image(&place.join("x.sqsh")).contains_key("b"));
    place.good(&["pull", "oci:image:t", "x.sqsh"]);
}

/// Only what a pull has written is taken for the image, and only where nobody else can have changed it.
#[test]
fn another_file_is_not_taken_for_the_image() {
    let place = Place::new("file-other");
    Image::new(vec![Layer::default().file("a", "a")]).layout(&place.join("image"));
    place.good(&["pull", "-q", "--private", "oci:image:t", "b"]);
    std::fs::write(place.join("b/rootfs/installed"), "later").unwrap();
    place.good(&["save", "-q", "./b", "saved.sqsh"]);
    place.good(&["pull", "-q", "oci:image:t", "open.sqsh"]);
    let set_mode = |name, mode| {
        std::fs::set_permissions(place.join(name), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    set_mode("open.sqsh", 0o666);
    place.good(&["pull", "-q", "oci:image:t", "whole.sqsh"]);
    let bytes = std::fs::read(place.join("whole.sqsh")).unwrap();
    // Behind bytes_used of the superblock is padding.
    let used = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
    std::fs::write(place.join("cut.sqsh"), &bytes[..used - 1]).unwrap();
    std::fs::create_dir(place.join("dir.sqsh")).unwrap();
    std::os::unix::fs::symlink("whole.sqsh", place.join("link.sqsh")).unwrap();
    for (name, says) in [
        ("saved.sqsh", "exists, and is not an image file that rt pull made"),
        ("open.sqsh", "exists, and others can change it"),
        ("cut.sqsh", "exists, and is not an image file that rt pull made"),
        ("dir.sqsh", "exists, and is not an image file that rt pull made"),
    ] {
        set_mode("open.sqsh", 0o666);
        let said = place.bad(&["pull", "oci:image:t", name]);
        assert!(said.contains(says), "{name}: {said}");
    }
    assert!(scan_image(&place.join("saved.sqsh")).contains_key("installed"));
    place.good(&["pull", "-q", "oci:image:t", "link.sqsh"]);
    place.is_clean();
}

/// A value can have many names, and is no larger in the file for it.
#[test]
fn attributes_of_one_file_are_bounded() {
    let place = Place::new("file-attributes");
    for (count, good) in [(16, true), (17, false)] {
        let path = place.join(format!("{count}.sqsh"));
        let value = vec![b'x'; 64 << 10];
        let name = |n: u32| format!("user.{n}").into_bytes();
        let xattrs = (0..count).map(|n| (name(n), value.clone())).collect();
        let tree = Tree::new(Metadata { mode: 0o755, xattrs, ..Metadata::default() });
        let out = File::create_new(&path).unwrap();
        ImageWriter::new(out, Options::default()).unwrap().finish(&tree).unwrap();
        let image = open(&path);
        let read = image.xattrs(&image.inode(image.root()).unwrap());
        assert_eq!(read.is_ok(), good, "{count}: {:?}", read.err());
    }
}

/// An upper layer as overlayfs writes one without root: nodes of device 0:0 and attributes say what is hidden.
#[test]
fn an_overlay_becomes_a_layer() {
    let place = Place::new("overlay");
    let layers = vec![
        Layer::default()
            .dir("d")
            .file("d/file", "one")
            .file("d/gone", "hidden")
            .link("d/kept", "d/gone")
            .dir("d/sub")
            .file("d/sub/deep", "x"),
    ];
    Image::new(layers).layout(&place.join("image"));
    place.good(&["pull", "-q", "oci:image:t", "b"]);
    let upper = place.join("layer/upper");
    let write = |path: &str, text: &str| {
        std::fs::create_dir_all(upper.join(path).parent().unwrap()).unwrap();
        std::fs::write(upper.join(path), text).unwrap();
    };
    write("d/new", "n");
    write("d/file", "changed");
    write("d/sub/other", "o");
    write("d/marked", "");
    let attribute = |path: &str, name: &str, value: &[u8]| {
        rustix::fs::setxattr(upper.join(path), name, value, rustix::fs::XattrFlags::empty()).is_ok()
    };
    if !attribute("d/sub", "user.overlay.opaque", b"y") {
        println!("no user attributes here");
        return;
    }
    attribute("d", "user.overlay.impure", b"y");
    attribute("d/file", "user.overlay.origin", b"x");
    attribute("d/file", "user.mine", b"m");
    attribute("d/marked", "user.overlay.whiteout", b"y");
    let node = rustix::fs::FileType::CharacterDevice;
    rustix::fs::mknodat(rustix::fs::CWD, upper.join("d/gone"), node, rustix::fs::Mode::empty(), 0).unwrap();
    let save = |target: &str| place.good(&["save", "-q", "--overlay", "layer", "b", target]);
    let digest = save("oci:saved:t");
    assert_eq!(save("oci-archive:saved.tar:t"), digest, "the same trees give the same digest");
    save("docker-archive:docker.tar:x:1");
    save("x.sqsh");
    place.good(&["convert", "-q", "--overlay", "layer", "b", "oci:converted:t"]);
    place.good(&["pull", "-q", "oci:saved:t", "back"]);
    let expected = scan(&place.join("back/rootfs"));
    let names: Vec<&str> = expected
        .keys()
        .map(String::as_str)
        .filter(|name| !name.starts_with("dev") && name.starts_with('d'))
        .collect();
    assert_eq!(names, ["d", "d/file", "d/kept", "d/new", "d/sub", "d/sub/other"]);
    let read = |path: &str| std::fs::read_to_string(place.join("back/rootfs").join(path)).unwrap();
    assert_eq!(
        (read("d/file"), read("d/kept"), read("d/new")),
        ("changed".into(), "hidden".into(), "n".into())
    );
    let mut names = [0; 1000];
    let n = rustix::fs::listxattr(place.join("back/rootfs/d/file"), &mut names[..]).unwrap();
    assert_eq!(&names[..n], b"user.mine\0");
    for source in ["docker-archive:docker.tar:x:1", "oci-archive:saved.tar:t", "oci:converted:t"] {
        let _ = std::fs::remove_dir_all(place.join("other"));
        place.good(&["pull", "-q", source, "other"]);
        assert_eq!(scan(&place.join("other/rootfs")), expected, "{source}");
    }
    let mut file = scan_image(&place.join("x.sqsh"));
    file.retain(|path, _| path.starts_with('d') && !path.starts_with("dev"));
    let mut directory = expected;
    directory.retain(|path, _| path.starts_with('d') && !path.starts_with("dev"));
    assert_eq!(file, directory);
    let index: serde_json::Value =
        serde_json::from_slice(&std::fs::read(place.join("saved/index.json")).unwrap()).unwrap();
    let blob = |digest: &serde_json::Value| -> serde_json::Value {
        let path = place.join("saved/blobs").join(digest.as_str().unwrap().replace(':', "/"));
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    };
    let manifest = blob(&index["manifests"][0]["digest"]);
    let config = blob(&manifest["config"]["digest"]);
    assert_eq!(manifest["layers"].as_array().unwrap().len(), 2);
    assert_eq!(config["rootfs"]["diff_ids"].as_array().unwrap().len(), 2);
    // What only the kernel can resolve is no layer, and neither is another directory.
    assert!(attribute("d/sub", "user.overlay.redirect", b"/d/other"));
    assert!(place.bad(&["save", "--overlay", "layer", "b", "oci:n:t"]).contains("user.overlay.redirect"));
    assert!(place.bad(&["save", "--overlay", "b", "b", "oci:n:t"]).contains("no layer of rt run --overlay"));
    assert!(place.bad(&["convert", "--overlay", "layer", "b", "c"]).contains("no bundle"));
    let said = place.bad(&["push", "--overlay", "layer", "oci:saved:t", "localhost/x:1"]);
    assert!(said.contains("--overlay is for bundles"), "{said}");
    place.is_clean();
}

/// A directory without config.json is data.
#[test]
fn a_directory_becomes_a_file() {
    let place = Place::new("data");
    std::fs::create_dir_all(place.join("set/deep")).unwrap();
    std::fs::write(place.join("set/deep/f"), "one").unwrap();
    place.good(&["save", "-q", "set", "a.sqsh"]);
    place.good(&["convert", "-q", "--compress", "gzip", "set", "b.sqsh"]);
    for file in ["a.sqsh", "b.sqsh"] {
        let image = open(&place.join(file));
        let names: Vec<String> = walk(&image).into_keys().collect();
        assert_eq!(names, ["deep", "deep/f"], "{file}");
    }
    // It is no image.
    assert!(place.bad(&["save", "set", "oci:x:t"]).contains("not a bundle"));
    assert!(place.bad(&["save", "--runfile", "p", "set"]).contains("not a bundle"));
    assert!(place.bad(&["convert", "set", "oci:x:t"]).contains("a directory without config.json"));
    assert!(place.bad(&["convert", "set", "bundle"]).contains("docker://set"));
    place.is_clean();
}

/// A layer that somebody empties while it is read, as Slurm does at the end of a job, is no image.
#[test]
fn what_is_emptied_meanwhile_is_not_saved() {
    let place = Place::new("file-whole");
    Image::new(vec![Layer::default().file("a", "a")]).layout(&place.join("image"));
    place.good(&["pull", "-q", "--private", "oci:image:t", "b"]);
    let mut state = 1u64;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33).to_le_bytes()
    });
    // It takes a while to be read.
    std::fs::write(place.join("b/rootfs/long"), noise.take(3 << 20).flatten().collect::<Vec<u8>>()).unwrap();
    let upper = place.join("layer/upper");
    let words = ["save", "-q", "--image-file", "--force", "--whole", "layer/upper", "b", "out.sqsh"];
    let fill = || {
        std::fs::create_dir_all(upper.join("a/b")).unwrap();
        for name in ["a/1", "a/b/2", "a/b/3"] {
            std::fs::write(upper.join(name), name).unwrap();
        }
    };
    fill();
    place.good(&words);
    let image = std::fs::read(place.join("out.sqsh")).unwrap();
    let save_during = |meanwhile: &dyn Fn()| {
        let child = place.command().args(words).stderr(std::process::Stdio::piped()).spawn().unwrap();
        while !place.names(".").iter().any(|name| name.starts_with("out.sqsh.partial-")) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        meanwhile();
        let output = child.wait_with_output().unwrap();
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let said = save_during(&|| std::fs::remove_dir_all(upper.join("a/b")).unwrap());
    assert!(said.contains("layer/upper: somebody has removed files in it meanwhile"), "{said}");
    assert!(std::fs::read(place.join("out.sqsh")).unwrap() == image);
    fill();
    // What was to be replaced may go meanwhile.
    assert_eq!(save_during(&|| std::fs::remove_file(place.join("out.sqsh")).unwrap()), "");
    assert!(std::fs::read(place.join("out.sqsh")).unwrap() == image);
    place.is_clean();
}
