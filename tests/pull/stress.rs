//! Many at once, and killed at any moment.

use std::time::Duration;

use super::Place;
use super::faults::{Fault, Server};
use super::image::{Image, Layer, digest, noise};

fn sample() -> Image {
    let mut layers = Vec::new();
    for number in 0..4u64 {
        let mut layer = Layer::default();
        for file in 0..20 {
            layer = layer.file(&format!("l{number}/f{file}"), noise(20_000, number * 100 + file));
        }
        layers.push(layer);
    }
    Image::new(layers)
}

fn is_right(place: &Place, bundle: &str) {
    for number in 0..4u64 {
        for file in 0..20 {
            let path = place.join(format!("{bundle}/rootfs/l{number}/f{file}"));
            assert_eq!(std::fs::read(path).unwrap(), noise(20_000, number * 100 + file));
        }
    }
}

#[test]
fn thirty_two_at_once_fetch_once() {
    let place = Place::new("crowd");
    let server = Server::start(sample(), Fault::Slow(Duration::from_millis(5)));
    let children: Vec<_> = (0..32)
        .map(|n| {
            let mut command = place.quiet();
            command.args(["pull", "-q", "--plain-http", &server.name(), &format!("b{n}")]);
            command.spawn().unwrap()
        })
        .collect();
    for child in children {
        assert!(child.wait_with_output().unwrap().status.success());
    }
    for n in 0..32 {
        is_right(&place, &format!("b{n}"));
    }
    assert_eq!(server.count("GET /v2/team/x/blobs/"), 5, "four layers and a config, once each");
    assert_eq!(server.count("GET /v2/team/x/manifests/"), 1);
    place.is_clean();
    assert!(place.names("cache/partial").is_empty());
}

#[test]
fn many_for_one_target() {
    let place = Place::new("target");
    let server = Server::start(sample(), Fault::None);
    let children: Vec<_> = (0..8)
        .map(|_| place.quiet().args(["pull", "-q", "--plain-http", &server.name(), "b"]).spawn().unwrap())
        .collect();
    let good =
        children.into_iter().filter_map(|c| c.wait_with_output().ok()).filter(|o| o.status.success()).count();
    assert_eq!(good, 8, "who comes late finds what it wanted");
    is_right(&place, "b");
    place.is_clean();
}

#[test]
fn killed_at_any_moment() {
    let place = Place::new("kill");
    let server = Server::start(sample(), Fault::Slow(Duration::from_millis(8)));
    for round in 0..12u64 {
        let mut child =
            place.quiet().args(["pull", "-q", "--plain-http", &server.name(), "b"]).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(3 + round * 23));
        let _ = child.kill();
        let _ = child.wait();
        if place.join("b").exists() {
            // Whole, or not at all.
            is_right(&place, "b");
            place.good(&["pull", "-q", "--plain-http", "--force", &server.name(), "b"]);
        }
    }
    place.good(&["pull", "-q", "--plain-http", "--force", &server.name(), "b"]);
    is_right(&place, "b");
    let left: Vec<_> = place.names(".").into_iter().filter(|n| n.contains("partial")).collect();
    assert!(left.is_empty(), "left: {left:?}");
    // In the cache only what belongs to a blob that was complete when its process died: old age takes it.
    let whole = place.names("cache/blobs/sha256");
    for dir in ["cache/leases", "cache/partial"] {
        let left = place.names(dir);
        let of_whole = |name: &String| whole.iter().any(|hex| name.starts_with(hex.as_str()));
        assert!(left.iter().all(of_whole), "{dir}: {left:?}");
    }
    place.good(&["cache", "prune", "--max-size", "1T"]);
    assert!(!place.names("cache/blobs/sha256").is_empty(), "what is kept");
    // What is older than a week belongs to nobody who could still come.
    for (dir, name) in [("leases", "ab.lease.3"), ("leases", "ab.draft-0"), ("partial", "ab.0")] {
        let path = place.join("cache").join(dir).join(name);
        std::fs::write(&path, "far\n1\n1\n").unwrap();
        let old = std::time::SystemTime::now() - Duration::from_secs(8 * 24 * 3600);
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
    }
    place.good(&["cache", "prune", "--max-size", "1T"]);
    for (dir, name) in [("leases", "ab.lease.3"), ("leases", "ab.draft-0"), ("partial", "ab.0")] {
        assert!(!place.join("cache").join(dir).join(name).exists(), "{dir}/{name}");
    }
    place.good(&["cache", "prune"]);
    for dir in ["blobs/sha256", "leases", "partial"] {
        assert!(place.names(&format!("cache/{dir}")).is_empty(), "{dir}: everything");
    }
}

/// Three layers whose decoders want 128 MB each, of which one at a time gets it, and many entries.
#[test]
fn memory_is_bounded() {
    use std::io::Write;
    let place = Place::new("memory");
    let large = |n: usize| {
        let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(27).unwrap();
        encoder
            .write_all(&Layer::default().file(&format!("big/{n}"), vec![n as u8; 150 << 20]).done())
            .unwrap();
        encoder.finish().unwrap()
    };
    let mut many = Layer::default();
    for n in 0..30_000 {
        many = many.file(&format!("usr/lib/python3/package-{}/module_with_a_long_name_{n}.py", n / 1000), "");
    }
    let mut layers = vec![("application/vnd.oci.image.layer.v1.tar+gzip", super::image::gzip(&many.done()))];
    layers.extend((0..3).map(|n| ("application/vnd.oci.image.layer.v1.tar+zstd", large(n))));
    // So that nothing of it is written.
    layers.push(("application/vnd.oci.image.layer.v1.tar", Layer::default().file(".wh.big", "").done()));
    // The config's digests of plain layers are not looked at.
    let ids = (0..layers.len()).map(|n| digest(&[n as u8])).collect();
    Image::raw(layers, ids, serde_json::json!({})).layout(&place.join("image"));
    let command = format!("ulimit -d 210000; exec {} pull -q oci:image:t b", env!("CARGO_BIN_EXE_rt-pull"));
    let output = std::process::Command::new("sh")
        .args(["-c", &command])
        .current_dir(place.join("."))
        .env("RT_CACHE", place.join("cache"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(place.join("b/rootfs/usr/lib/python3/package-29/module_with_a_long_name_29999.py").exists());
    assert!(!place.join("b/rootfs/big").exists());
}
