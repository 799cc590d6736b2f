//! Layers that want out of the tree, and images that are too much.

use std::io::Write;
use std::os::unix::fs::MetadataExt;

use oci_layer::tar::{EntryKind, Header};

use super::Place;
use super::faults::{Fault, Server};
use super::image::{Image, Layer, digest, gzip, noise};
use serde_json::json;

/// Pulls and returns what was said, if it failed; nothing outside may have changed.
fn pull(name: &str, layers: Vec<Layer>) -> Result<Place, String> {
    let place = Place::new(name);
    std::fs::create_dir(place.join("outside")).unwrap();
    std::fs::write(place.join("outside/victim"), "safe").unwrap();
    let target = place.join("outside").to_str().unwrap().to_owned();
    // Names in the layers are for this place.
    let layers = layers
        .into_iter()
        .map(|layer| Layer(String::from_utf8(layer.0).map_or_else(|e| e.into_bytes(), |t| t.into_bytes())))
        .collect();
    Image::new(layers).layout(&place.join("image"));
    let output = place.run(&["pull", "oci:image:t", "b"]);
    assert_eq!(place.names("outside"), ["victim"], "{target}");
    assert_eq!(std::fs::read_to_string(place.join("outside/victim")).unwrap(), "safe");
    place.is_clean();
    match output.status.success() {
        true => Ok(place),
        false => {
            assert!(!place.join("b").exists());
            Err(String::from_utf8(output.stderr).unwrap())
        }
    }
}

fn outside(name: &str) -> String {
    std::env::temp_dir()
        .join(format!("rt-pull-test-{}-{name}/outside", std::process::id()))
        .display()
        .to_string()
}

#[test]
fn dots_lead_nowhere() {
    for (at, path) in ["../evil", "a/../../evil", "/../evil", "./../evil"].iter().enumerate() {
        let said = pull(&format!("dots{at}"), vec![Layer::default().file(path, "x")]).err().unwrap();
        assert!(said.contains("leaves the image"), "{said}");
    }
    let said = pull("dots-link", vec![Layer::default().link("a", "../../outside/victim")]).err().unwrap();
    assert!(said.contains("leaves the image"), "{said}");
    let said = pull("dots-white", vec![Layer::default().file("../outside/.wh.victim", "")]).err().unwrap();
    assert!(said.contains("leaves the image"), "{said}");
    for (at, name) in [".wh...", ".wh..", ".wh."].iter().enumerate() {
        assert!(pull(&format!("white{at}"), vec![Layer::default().file(name, "")]).is_err());
    }
}

#[test]
fn absolute_names_are_inside() {
    let place = pull("absolute", vec![Layer::default().file("/etc/x", "x")]).unwrap();
    assert_eq!(std::fs::read_to_string(place.join("b/rootfs/etc/x")).unwrap(), "x");
}

#[test]
fn links_are_not_followed_out() {
    // In one layer: as if the link were inside. Across layers: the link is replaced.
    let out = outside("link-same");
    let place =
        pull("link-same", vec![Layer::default().symlink("a", &out).file("a/victim", "evil")]).unwrap();
    assert_eq!(std::fs::read_to_string(place.join(format!("b/rootfs{out}/victim"))).unwrap(), "evil");
    let out = outside("link-next");
    let layers = vec![Layer::default().symlink("a", &out), Layer::default().file("a/victim", "evil")];
    let place = pull("link-next", layers).unwrap();
    assert_eq!(std::fs::read_to_string(place.join("b/rootfs/a/victim")).unwrap(), "evil");
    let out = outside("link-dots");
    let layer = Layer::default().symlink("a", "../../../../../../..").file(&format!("a{out}/victim"), "evil");
    pull("link-dots", vec![layer]).unwrap();
    // A file over a link, a whiteout and an opaque mark through one.
    let out = outside("link-over");
    let layers = vec![
        Layer::default().symlink("victim", &format!("{out}/victim")).symlink("dir", &out),
        Layer::default().file("victim", "evil").file("dir/.wh.victim", "").file("dir/.wh..wh..opq", ""),
    ];
    let place = pull("link-over", layers).unwrap();
    assert_eq!(std::fs::read_to_string(place.join("b/rootfs/victim")).unwrap(), "evil");
    // A hard link to a link, and a write through that.
    let out = outside("link-hard");
    let layer = Layer::default().symlink("a", &format!("{out}/victim")).link("b", "a").file("b", "evil");
    pull("link-hard", vec![layer]).unwrap();
    let loops = Layer::default().symlink("a", "b").symlink("b", "a").file("a/x", "x");
    assert!(pull("link-loop", vec![loops]).unwrap_err_text().contains("too many levels"));
}

trait ErrText {
    fn unwrap_err_text(self) -> String;
}

impl ErrText for Result<Place, String> {
    fn unwrap_err_text(self) -> String {
        match self {
            Ok(_) => panic!("it succeeded"),
            Err(text) => text,
        }
    }
}

#[test]
fn accounts_of_the_host_are_not_read() {
    let place = Place::new("passwd");
    let layer = Layer::default().dir("etc").symlink("etc/passwd", "/etc/passwd");
    Image::with_config(vec![layer], json!({ "User": "daemon" })).layout(&place.join("image"));
    let said = place.bad(&["pull", "--profile", "isolated", "oci:image:t", "b"]);
    assert!(said.contains("not in the image's /etc/passwd"), "{said}");
}

#[test]
fn devices_and_modes() {
    let layer = Layer::default()
        .entry(EntryKind::Character, "null", "", 0o666, b"")
        .entry(EntryKind::File, "suid", "", 0o4755, b"x")
        .entry(EntryKind::File, "open", "", 0o666, b"x")
        .entry(EntryKind::File, "closed", "", 0o000, b"x")
        .entry(EntryKind::Directory, "locked/", "", 0o000, b"")
        .file("locked/in", "x");
    let place = pull("modes", vec![layer]).unwrap();
    let mode = |path: &str| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::symlink_metadata(place.join(path)).map(|m| m.permissions().mode() & 0o7777)
    };
    assert!(mode("b/rootfs/null").is_err());
    assert_eq!(mode("b/rootfs/suid").unwrap(), 0o755, "others would run it as who has pulled it");
    assert_eq!(mode("b/rootfs/open").unwrap(), 0o644);
    assert_eq!(mode("b/rootfs/closed").unwrap(), 0o400);
    assert_eq!(mode("b/rootfs/locked").unwrap(), 0o700);
    place.good(&["pull", "--private", "oci:image:t", "p"]);
    assert_eq!((mode("p/rootfs/suid").unwrap(), mode("p").unwrap()), (0o4755, 0o700));
    // Newcomers take it for something that broke: it is for who looks for it.
    let said = |flags: &[&str], name: &str| {
        String::from_utf8(place.run(&[flags, &["pull", "oci:image:t", name]].concat()).stderr).unwrap()
    };
    let (plain, debug) = (said(&[], "c"), said(&["--debug"], "d"));
    for note in ["device nodes left out", "modes repaired", "modes narrowed"] {
        assert!(!plain.contains(note) && debug.contains(note), "{note}: {plain} {debug}");
    }
}

/// Root pulls for everybody, and nobody becomes root by what the image has: neither in a bundle that others see nor in
/// one that keeps it.
#[test]
fn what_root_pulls_makes_nobody_root() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    let place = Place::new("setcap");
    // cap_setuid+ep, in the second version of the attribute.
    let capability: &[u8] = &[1, 0, 0, 2, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let own = std::fs::File::create(place.join("probe")).unwrap();
    if rustix::fs::fsetxattr(&own, "security.capability", capability, rustix::fs::XattrFlags::empty())
        .is_err()
    {
        let _ = writeln!(std::io::stderr(), "SKIP only root sets capabilities, and not everywhere");
        return;
    }
    let mut layer = Layer::default();
    for (path, mode, xattrs) in [
        ("caps", 0o755, vec![(b"security.capability".to_vec(), capability.to_vec())]),
        ("suid", 0o4755, Vec::new()),
        ("sgid", 0o2755, Vec::new()),
    ] {
        let entry = Header { xattrs, ..Header::new(path.into(), EntryKind::File, mode) };
        oci_layer::tar::write_header(&mut layer.0, &entry).unwrap();
    }
    Image::new(vec![layer]).layout(&place.join("image"));
    std::fs::set_permissions(place.join("."), std::fs::Permissions::from_mode(0o755)).unwrap();
    for (flags, kept) in [
        (&[][..], false),
        (&["--user-map", "root"], false),
        (&["--writable"], false),
        (&["--private"], true),
        (&["--profile", "isolated"], true),
    ] {
        place.good(&[&["pull", "-q", "--force", "oci:image:t", "b"], flags].concat());
        let mode = |name: &str| place.join(name).metadata().unwrap().permissions().mode() & 0o7777;
        let file = std::fs::File::open(place.join("b/rootfs/caps")).unwrap();
        let has = rustix::fs::fgetxattr(&file, "security.capability", &mut [0; 64]).is_ok();
        assert_eq!(
            (has, mode("b/rootfs/suid"), mode("b/rootfs/sgid")),
            match kept {
                true => (true, 0o4755, 0o2755),
                false => (false, 0o755, 0o755),
            },
            "{flags:?}"
        );
        // What keeps it nobody else reaches.
        let mut other = std::process::Command::new("cat");
        other.arg(place.join("b/rootfs/suid")).stderr(std::process::Stdio::null()).uid(4711).gid(4711);
        assert_eq!(other.status().unwrap().success(), !kept, "{flags:?}");
        assert_eq!(mode("b") & 0o077 == 0, kept, "{flags:?}");
    }
}

#[test]
fn truncated_layers_leave_nothing() {
    let tar = Layer::default().file("a", vec![7; 200_000]).done();
    let whole = gzip(&tar);
    for (at, bytes) in [
        whole[..whole.len() / 2].to_vec(),
        tar[..100_000].to_vec(),
        b"no archive at all, but long enough".repeat(40),
    ]
    .into_iter()
    .enumerate()
    {
        let place = Place::new(&format!("cut{at}"));
        let image =
            Image::raw(vec![("application/vnd.oci.image.layer.v1.tar", bytes)], vec![digest(b"")], json!({}));
        image.layout(&place.join("image"));
        place.bad(&["pull", "oci:image:t", "b"]);
        assert!(!place.join("b").exists());
        place.is_clean();
    }
}

#[test]
fn bombs_are_bounded() {
    let place = Place::new("bomb");
    Image::new(vec![Layer::default().file("zeros", vec![0; 30_000_000])]).layout(&place.join("image"));
    let said = place.bad(&["pull", "--max-size", "20M", "oci:image:t", "b"]);
    assert!(said.contains("--max-size"), "{said}");
    place.is_clean();
    // A size that no disk has, in a header alone.
    let mut layer = Layer::default();
    let entry = Header { size: 1 << 60, ..Header::new(b"huge".to_vec(), EntryKind::File, 0o644) };
    oci_layer::tar::write_header(&mut layer.0, &entry).unwrap();
    let said = pull("huge", vec![layer]).unwrap_err_text();
    assert!(said.contains("inflates") || said.contains("no space"), "{said}");
}

/// `/var/log/lastlog` of a user with a large number has terabytes of holes, and is no bomb.
#[test]
fn holes_are_no_bomb() {
    const SIZE: u64 = 6 << 30;
    let place = Place::new("holes");
    let layer = sparse("var/log/lastlog", SIZE).file("after", "more");
    Image::new(vec![layer]).layout(&place.join("image"));
    place.good(&["pull", "oci:image:t", "b"]);
    let lastlog = std::fs::metadata(place.join("b/rootfs/var/log/lastlog")).unwrap();
    assert_eq!(lastlog.len(), SIZE);
    // What is written has the size of a page at least, on a tmpfs.
    let (blocks, unit) = (lastlog.blocks(), lastlog.blksize());
    assert!(blocks < 100 * unit.max(4096) / 4096, "{blocks} blocks");
    assert_eq!(std::fs::read(place.join("b/rootfs/after")).unwrap(), b"more");
}

/// A file with a sparse map of pax, of `size` bytes and with 5 bytes of data.
fn sparse(path: &str, size: u64) -> Layer {
    let mut records = String::new();
    for (key, value) in [("GNU.sparse.size", size.to_string()), ("GNU.sparse.map", "0,5".into())] {
        // Both are of two digits.
        records += &format!("{} {key}={value}\n", key.len() + value.len() + 5);
    }
    let layer = Layer::default().entry(EntryKind::Other(b'x'), "pax", "", 0o644, records.as_bytes());
    layer.file(path, "hello")
}

#[test]
fn holes_have_a_bound() {
    let said = pull("endless", vec![sparse("lastlog", 1 << 60)]).unwrap_err_text();
    assert!(said.contains("a sparse file of 1152921504606846976 bytes"), "{said}");
}

#[test]
fn what_follows_an_archive_has_a_bound() {
    for (length, good) in [(1 << 20, true), (100 << 20, false)] {
        let place = Place::new("behind");
        let mut tar = Layer::default().file("f", "x").done();
        tar.resize(tar.len() + length, 0);
        let id = digest(&tar);
        let kind = "application/vnd.oci.image.layer.v1.tar+gzip";
        Image::raw(vec![(kind, gzip(&tar))], vec![id], json!({})).layout(&place.join("image"));
        let output = place.run(&["pull", "-q", "oci:image:t", "b"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() == good && (good || said.contains("after the end of the archive")),
            "{said}"
        );
        place.is_clean();
    }
}

/// As deep as a path can say, with few descriptors: made, replaced, saved, and removed after a failure.
#[test]
fn deep_trees() {
    let place = Place::new("deep");
    let few = |arguments: &str| {
        let line = format!("ulimit -n 400; exec {} {arguments}", env!("CARGO_BIN_EXE_rt-pull"));
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &line]).current_dir(place.join(".")).env("RT_CACHE", place.join("cache"));
        command.output().unwrap()
    };
    let path = |levels: usize| format!("{}f", "d/".repeat(levels));
    Image::new(vec![Layer::default().file("f", "x")]).layout(&place.join("flat"));
    Image::new(vec![Layer::default().file(&path(2047), "x")]).layout(&place.join("deep"));
    Image::new(vec![Layer::default().file(&path(2047), "x").file("../x", "")]).layout(&place.join("bad"));
    Image::new(vec![Layer::default().file(&path(2048), "x")]).layout(&place.join("deeper"));
    let long = "e".repeat(200);
    let mut grown = Layer::default();
    let mut link = "l0".to_owned();
    grown = grown.symlink("l0", &vec![long.as_str(); 15].join("/"));
    for n in 1..3 {
        let next = format!("{link}/l{n}");
        grown = grown.symlink(&next, &vec![long.as_str(); 15].join("/"));
        link = next;
    }
    Image::new(vec![grown.file(&format!("{link}/f"), "x")]).layout(&place.join("grown"));
    for (image, why) in [("bad", "leaves the image"), ("deeper", "a path of 4097"), ("grown", "a path of")] {
        let output = few(&format!("pull -q oci:{image}:t b"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{image}: {said}");
        place.is_clean();
    }
    let good = |arguments: &str| {
        let output = few(arguments);
        assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    };
    good("pull -q oci:deep:t b");
    let output = place.run(&["save", "-q", "b", "oci-archive:saved.tar:t"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    good("pull -q --force oci:flat:t b");
    place.is_clean();
    assert_eq!(std::fs::read(place.join("b/rootfs/f")).unwrap(), b"x");
    good("pull -q --force oci-archive:saved.tar:t b");
    good("pull -q --force oci:flat:t b");
    place.is_clean();
}

/// Documents whose parts lie in each other as deep as their length allows.
#[test]
fn nesting_is_an_error() {
    let place = Place::new("nested");
    let deep = "[".repeat(1_000_000);
    let bad = |what: &str, output: std::process::Output| {
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{what}: {said}");
    };
    let image = |config| Image::with_config(vec![Layer::default().file("f", "x")], config);
    image(json!({})).layout(&place.join("image"));
    place.good(&["pull", "-q", "oci:image:t", "b"]);
    let bundle = std::fs::read_to_string(place.join("b/config.json")).unwrap();
    std::fs::write(place.join("b/config.json"), bundle.replacen('{', &format!("{{\"x\":{deep},"), 1))
        .unwrap();
    bad("bundle", place.run(&["pull", "-q", "oci:image:t", "b"]));
    bad("saved bundle", place.run(&["save", "b", "oci:saved"]));
    std::fs::write(place.join("image/index.json"), &deep).unwrap();
    bad("index", place.run(&["pull", "oci:image:t", "c"]));
    let mut nested = image(json!({}));
    nested.manifest = format!("{{\"schemaVersion\":2,\"x\":{deep}").into_bytes();
    nested.layout(&place.join("manifest"));
    bad("manifest", place.run(&["pull", "oci:manifest:t", "c"]));
    let server = Server::start(image(json!({})), Fault::Basic);
    let pull = |set: &dyn Fn(&mut std::process::Command)| {
        let mut command = place.command();
        set(command.args(["pull", "--plain-http", &server.name(), "c"]));
        command.output().unwrap()
    };
    std::fs::write(place.join("auth.json"), &deep).unwrap();
    bad(
        "credentials",
        pull(&|command| {
            command.args(["--authfile", "auth.json"]);
        }),
    );
    std::fs::write(place.join("registries.conf"), format!("x = {deep}")).unwrap();
    let conf = place.join("registries.conf");
    bad(
        "registries.conf",
        pull(&|command| {
            command.env("CONTAINERS_REGISTRIES_CONF", &conf);
        }),
    );
}

/// A config asks for directories that no layer has.
#[test]
fn directories_of_the_config_have_a_bound() {
    let place = Place::new("config-dirs");
    let deep = "/d".repeat(500_000);
    let volumes: serde_json::Map<_, _> = (0..1000).map(|n| (format!("/v{n}"), json!({}))).collect();
    let mut one = serde_json::Map::new();
    one.insert(deep.clone(), json!({}));
    for (config, why) in [
        (json!({ "WorkingDir": deep }), "a path of 1000000 bytes"),
        (json!({ "Volumes": one }), "a path of 1000000 bytes"),
        (json!({ "Volumes": volumes }), "more than 256 volumes"),
        (json!({ "Cmd": ["x".repeat(5 << 20)] }), "larger than 4194304 bytes"),
    ] {
        let _ = std::fs::remove_dir_all(place.join("image"));
        Image::with_config(vec![Layer::default().file("f", "x")], config).layout(&place.join("image"));
        let said = place.bad(&["pull", "-q", "oci:image:t", "b"]);
        assert!(said.contains(why), "{said}");
        place.is_clean();
    }
}

/// `rt-pull` in namespaces of its own, with a file system of so many bytes at `small`.
fn on_a_small_disk(place: &Place, bytes: u64, arguments: &[&str]) -> Option<std::process::Output> {
    std::fs::create_dir_all(place.join("small")).unwrap();
    let script = format!(
        "mount -t tmpfs -o size={bytes} tmpfs small || exit 99; $RT_PULL \"$@\"; status=$?; ls -A small; exit $status"
    );
    let mut command = place.command();
    let (program, environment) = (command.get_program().to_owned(), command.get_envs());
    let environment: Vec<_> =
        environment.filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned()))).collect();
    command = std::process::Command::new("unshare");
    command.args(["-rm", "sh", "-c", &script, "sh"]).args(arguments).current_dir(place.join("."));
    let output = command.env_clear().envs(environment).env("RT_PULL", program).output().unwrap();
    if output.status.code() == Some(99) || String::from_utf8_lossy(&output.stderr).contains("unshare failed")
    {
        let _ = writeln!(std::io::stderr(), "SKIP no file system can be mounted here");
        return None;
    }
    Some(output)
}

#[test]
fn what_does_not_fit_is_not_begun() {
    let place = Place::new("space");
    let server =
        Server::start(Image::new(vec![Layer::default().file("f", noise(3_000_000, 7))]), Fault::None);
    let name = server.name();
    let Some(output) = on_a_small_disk(&place, 2 << 20, &["pull", "--plain-http", &name, "small/b"]) else {
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("the image needs more than "), "{said}");
    assert!(said.contains(": no space left on device (") && said.contains("/small has "), "{said}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "nothing is left");
    assert_eq!(server.count("GET /v2/team/x/blobs/"), 1, "the config, and no layer");
}

#[test]
fn a_disk_that_fills_up_leaves_nothing() {
    let place = Place::new("full");
    // Less than twice the space: what layers replace of each other may make room.
    Image::new(vec![Layer::default().file("f", vec![0; 60 << 20])]).layout(&place.join("image"));
    let Some(output) = on_a_small_disk(&place, 40 << 20, &["pull", "oci:image:t", "small/b"]) else { return };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("no space left on device"), "{said}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "nothing is left");
}

#[test]
fn an_image_file_needs_no_more_room_than_it_takes() {
    let place = Place::new("small-file");
    let files = (0..3).fold(Layer::default(), |layer, n| layer.file(&format!("f{n}"), vec![0; 40 << 20]));
    Image::new(vec![files]).layout(&place.join("image"));
    place.good(&["pull", "oci:image:t", "b"]);
    for words in [&["save", "-q", "./b", "small/b.sqsh"][..], &["pull", "oci:image:t", "small/b.sqsh"]] {
        let Some(output) = on_a_small_disk(&place, 4 << 20, words) else { return };
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(String::from_utf8_lossy(&output.stdout).ends_with("b.sqsh\n"), "{words:?}");
    }
}
