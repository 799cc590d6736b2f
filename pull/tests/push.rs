//! Pushes, to registries that behave and registries that do not.

use super::Place;
use super::image::{Image, Layer, gzip, noise};
use super::uploads::{Fault, Uploads};
use serde_json::{Value, json};
use std::io::Read;

/// A bundle `b` of an image with two layers, one of which does not compress.
fn bundle(place: &Place) {
    let layers = vec![
        Layer::default().dir("bin").file("bin/x", noise(3_000_000, 1)),
        Layer::default().file("f", "two"),
    ];
    let config = json!({ "Entrypoint": ["/bin/x"], "Cmd": ["a"], "Env": ["A=b"] });
    Image::stored(layers, config, |_, tar| ("application/vnd.oci.image.layer.v1.tar+gzip", gzip(tar)))
        .layout(&place.join("image"));
    place.good(&["pull", "-q", "oci:image:t", "b"]);
}

fn is_right(place: &Place, server: &Uploads, name: &str) {
    place.good(&["pull", "-q", "--plain-http", &server.name(name), "back"]);
    assert_eq!(std::fs::read(place.join("back/rootfs/bin/x")).unwrap(), noise(3_000_000, 1));
    let text = std::fs::read(place.join("back/image.json")).unwrap();
    let image: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(image["config"], json!({ "Entrypoint": ["/bin/x"], "Cmd": ["a"], "Env": ["A=b"] }));
    place.is_clean();
}

/// The push succeeds in spite of the fault.
fn survives(name: &str, fault: Fault, flags: &[&str]) -> Uploads {
    let place = Place::new(name);
    bundle(&place);
    let server = Uploads::start(fault);
    let target = format!("docker://{}", server.name("team/x:1"));
    let digest = place.good(&[&["push", "-q", "--plain-http"], flags, &["b", &target]].concat());
    let stored = server.state().manifests.contains_key(digest.trim());
    assert!(stored, "{digest}");
    is_right(&place, &server.beside(Fault::None), "team/x:1");
    server
}

/// It fails, says `why`, and changes no tag.
fn fails(name: &str, fault: Fault, why: &str) -> Uploads {
    let place = Place::new(name);
    bundle(&place);
    let server = Uploads::start(fault);
    let said = place.bad(&["push", "--plain-http", "--retries", "1", "b", &server.name("team/x:1")]);
    assert!(said.contains(why), "{said}");
    assert_eq!(place.names("cache/partial"), [""; 0]);
    place.is_clean();
    server
}

#[test]
fn a_push_and_again() {
    let place = Place::new("push");
    bundle(&place);
    let server = Uploads::start(Fault::None);
    let push = |source: &str, name: &str| -> Value {
        let text = place.good(&["push", "--json", "--plain-http", source, &server.name(name)]);
        serde_json::from_str(&text).unwrap()
    };
    let first = push("b", "team/x:1");
    assert!(first["sentBytes"].as_u64().unwrap() > 3_000_000 && first["presentBytes"] == 0, "{first}");
    let received = server.state().received;
    let again = push("b", "team/x:2");
    assert_eq!(
        (&again["digest"], &again["sentBytes"]),
        (&first["digest"], &json!(0)),
        "nothing is sent twice"
    );
    assert!(server.state().received < received + 2000);
    assert_eq!(server.count("POST "), 2);
    // The same as an archive.
    place.good(&["save", "-q", "b", "oci-archive:b.tar:v"]);
    place.good(&["save", "-q", "b", "oci:b.oci"]);
    for source in ["oci-archive:b.tar:v", "oci:b.oci"] {
        assert_eq!(push(source, "team/x:3")["digest"], first["digest"], "{source}");
    }
    is_right(&place, &server, "team/x:3");
    // An image of several layers, one of them in the registry already.
    assert_eq!(push("oci:image:t", "team/y:1")["presentBytes"], 0, "other repositories are others");
    place.good(&["pull", "-q", "--plain-http", &server.name("team/y:1"), "layers"]);
    assert_eq!(std::fs::read(place.join("layers/rootfs/f")).unwrap(), b"two");
}

/// The layer of what was pulled from the same registry is taken over from its repository.
/// docker's order: what was pulled by its name is given another one and sent.
#[test]
fn what_is_stored_is_pushed_by_its_name() {
    let place = Place::new("push-stored");
    bundle(&place);
    let server = Uploads::start(Fault::None);
    let source = server.name("team/source:1");
    place.good(&["push", "-q", "--plain-http", "b", &source]);
    place.good(&["pull", "-q", "--plain-http", "--store", &source]);
    place.good(&["push", "-q", "--plain-http", &source, &server.name("team/x:1")]);
    is_right(&place, &server, "team/x:1");
    place.good(&["save", "-q", &source, "x.sqsh"]);
    assert!(place.join("x.sqsh").is_file());
    // The digest of `rt images -q` is a name of the store, and of nothing else.
    let digest = place.good(&["images", "-q"]).trim().to_owned();
    place.good(&["push", "-q", "--plain-http", &digest, &server.name("team/y:1")]);
    is_right(&place, &server, "team/y:1");
    place.good(&["save", "-q", &digest, "z.sqsh"]);
    let other = format!("sha256:{}", "0".repeat(64));
    for words in [&["save", "-q", &other, "y.sqsh"][..], &["inspect", &other], &["pull", &other, "y"]] {
        let said = place.bad(words);
        assert!(said.contains(&other) && said.contains("store") && !said.contains("docker.io"), "{said}");
    }
    // What is nowhere is not fetched for that: it may be a path with an error in it.
    for words in [&["push", "--plain-http", "c", &source][..], &["save", "c", "y.sqsh"]] {
        let said = place.bad(words);
        assert!(said.contains("not in the store") && said.contains("nor is there a bundle"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    let converted = place.good(&["convert", "-q", "oci:image:t", "docker-archive:x.tar:x:1"]);
    assert_eq!(converted.lines().count(), 1, "the digest alone: {converted}");
}

#[test]
fn blobs_are_mounted() {
    let place = Place::new("mount");
    bundle(&place);
    let server = Uploads::start(Fault::None);
    place.good(&["push", "-q", "--plain-http", "b", &server.name("team/x:1")]);
    place.good(&["pull", "-q", "--plain-http", &server.name("team/x:1"), "c"]);
    let text = place.good(&["push", "--json", "--plain-http", "c", &server.name("other/y:1")]);
    let pushed: Value = serde_json::from_str(&text).unwrap();
    assert!(pushed["mountedBytes"].as_u64().unwrap() > 3_000_000, "{pushed}");
    assert!(server.count("from=team%2Fx") > 0);
    is_right(&place, &server, "other/y:1");
}

#[test]
fn broken_uploads_go_on() {
    let server = survives("push-cut", Fault::Cut(700_000), &[]);
    let received = server.state().received;
    assert!(received < 3_400_000, "{received} bytes for a layer of 3 MB");
    assert!(server.count("PATCH ") >= 5);
    assert!(server.count("GET /v2/any/blobs/uploads/") >= 4, "what has arrived is asked");
}

#[test]
fn lost_uploads_begin_again() {
    survives("push-forgotten", Fault::Forgotten, &[]);
    let server = survives("push-joined", Fault::BadlyJoined(900_000), &[]);
    assert!(server.count("POST ") >= 3, "what is damaged is sent as a whole once more");
    survives("push-lost-answer", Fault::LostAnswer, &[]);
}

#[test]
fn busy_registries() {
    survives("push-429", Fault::Busy, &[]);
    survives("push-503", Fault::BusyUpload, &[]);
}

#[test]
fn places_of_uploads() {
    survives("push-absolute", Fault::Absolute, &[]);
}

/// Tokens are asked for with the right to push, and again when they end.
#[test]
fn tokens_to_push() {
    let server = survives("push-tokens", Fault::Tokens(2), &[]);
    assert!(server.count("/token") >= 3, "a new token each time");
    assert!(server.count("scope=repository%3Ateam%2Fx%3Apull%2Cpush") > 0);
    survives("push-basic", Fault::Basic, &["--creds", "me:secret"]);
    fails("push-no-password", Fault::Basic, "rt login 127.0.0.1");
}

/// Another host that an upload goes to gets the bytes and no credentials.
#[test]
fn credentials_stay_with_the_registry() {
    for redirected in [false, true] {
        let place = Place::new(if redirected { "push-redirected" } else { "push-elsewhere" });
        bundle(&place);
        let storage = Uploads::start(Fault::None);
        let fault = if redirected { Fault::Redirected(storage.port) } else { Fault::Elsewhere(storage.port) };
        // Storage that asks for credentials does not get them either.
        let greedy = storage.beside(Fault::Basic);
        let registry = storage.beside(fault);
        place.good(&["push", "-q", "--plain-http", "--creds", "me:secret", "b", &registry.name("team/x:1")]);
        let authorized = registry.state().authorized.clone();
        assert!(authorized.contains(&registry.port) && !authorized.contains(&storage.port), "{authorized:?}");
        assert!(storage.count("PATCH ") > 0);
        is_right(&place, &storage, "team/x:1");
        let fault = if redirected { Fault::Redirected(greedy.port) } else { Fault::Elsewhere(greedy.port) };
        let registry = Uploads::start(fault);
        let arguments = ["push", "--plain-http", "--creds", "me:secret", "b", &registry.name("team/x:1")];
        let said = place.bad(&arguments);
        assert!(said.contains("only the registry may get"), "{said}");
        assert!(!greedy.state().authorized.contains(&greedy.port), "a password went to another host");
    }
}

#[test]
fn refusals_are_told() {
    let server = fails("push-quota", Fault::Quota, "exceeds the quota");
    assert!(server.state().manifests.is_empty() && server.state().received == 0);
    fails(
        "push-unsupported",
        Fault::Unsupported,
        "does not take manifests of application/vnd.oci.image.manifest",
    );
    fails("push-digest", Fault::OtherDigest, "the registry stored sha256:");
}

/// The push ends within `seconds` by itself, says `why`, and has asked no more than `most` times.
fn ends(name: &str, fault: Fault, seconds: u64, most: usize, why: &str) {
    let place = Place::new(name);
    bundle(&place);
    let server = Uploads::start(fault);
    let target = server.name("team/x:1");
    // A time that has passed is a failure that may pass.
    let retries = if fault == Fault::Interim { "0" } else { "3" };
    let mut child = place
        .command()
        .args(["push", "-q", "--plain-http", "--retries", retries, "b", &target])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let start = std::time::Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed().as_secs() > seconds {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{fault:?}: still there after {seconds} s and {} requests", server.state().requests.len());
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains(why), "{fault:?}: {said}");
    let asked = server.state().requests.len();
    assert!(asked <= most, "{fault:?}: {asked} requests");
    place.is_clean();
}

/// What a registry says to have of an upload keeps nobody at it: only a good part more than ever before is progress.
#[test]
fn uploads_that_get_nowhere_end() {
    ends("push-forgetful", Fault::Forgetful, 40, 40, "503");
    ends("push-backwards", Fault::Backwards, 40, 40, "503");
    ends("push-one-more", Fault::OneMore, 40, 40, "503");
    ends("push-circling", Fault::Circling, 20, 20, "more than 8 redirects");
}

#[test]
fn uploads_go_to_registries_only() {
    ends("push-file", Fault::Location("file:///etc/passwd"), 20, 10, "file:///etc/passwd");
    ends("push-gopher", Fault::Location("gopher://127.0.0.1/"), 20, 10, "gopher://127.0.0.1/");
    ends("push-nowhere", Fault::Location("http://"), 20, 10, "http");
}

/// Neither words nor headers nor trailers without end, fast or slow, hold a push up.
#[test]
fn answers_without_end_are_cut_off() {
    ends("push-words", Fault::EndlessWords, 20, 10, "403");
    std::thread::scope(|scope| {
        scope.spawn(|| ends("push-slow", Fault::SlowWords, 60, 10, "403"));
        scope.spawn(|| ends("push-trailers", Fault::Trailers, 60, 10, "403"));
        scope.spawn(|| ends("push-interim", Fault::Interim, 60, 10, "127.0.0.1"));
    });
}

#[test]
fn what_cannot_be_pushed() {
    let place = Place::new("push-bad");
    bundle(&place);
    for file in ["x.sqsh", "x.tar"] {
        std::fs::write(place.join(file), "hsqs").unwrap();
    }
    for (source, target, why) in [
        ("x.sqsh", "localhost:1/x", "as it is (rt convert x.sqsh oci:DIR, and then rt push oci:DIR)"),
        ("x.tar", "localhost:1/x", "as it is (oci-archive:x.tar)"),
        ("b", "oci:x", "rt save"),
        (
            "b",
            "localhost:1/x@sha256:0000000000000000000000000000000000000000000000000000000000000000",
            "push to a tag",
        ),
        ("b", "localhost:1/Upper", "lower case"),
        ("docker-archive:x", "localhost:1/x", "rt pull it"),
        ("image", "localhost:1/x", "not a bundle"),
        ("none", "localhost:1/x", "none"),
        ("oci:image:none", "localhost:1/x", "no image"),
    ] {
        let said = place.bad(&["push", "--plain-http", "--retries", "0", source, target]);
        assert!(said.contains(why), "{source} {target}: {said}");
    }
    place.is_clean();
}

/// registries.conf: what it blocks is not written, and mirrors are only read.
#[test]
fn registries_conf_counts() {
    let place = Place::new("push-conf");
    bundle(&place);
    let (server, mirror) = (Uploads::start(Fault::None), Uploads::start(Fault::None));
    let push = |conf: String| {
        std::fs::write(place.join("registries.conf"), conf).unwrap();
        let mut command = place.command();
        command.env("CONTAINERS_REGISTRIES_CONF", place.join("registries.conf"));
        command.args(["push", "-q", "b", "site.example/team/x:1"]).output().unwrap()
    };
    let table = format!(
        "[[registry]]\nprefix = \"site.example\"\nlocation = \"127.0.0.1:{}\"\ninsecure = true\n\
         [[registry.mirror]]\nlocation = \"127.0.0.1:{}\"\ninsecure = true\n",
        server.port, mirror.port
    );
    let output = push(table.clone());
    assert!(output.status.success(), "{output:?}");
    assert_eq!(mirror.state().requests, [""; 0]);
    is_right(&place, &server, "team/x:1");
    let output = push(format!("{table}[[registry]]\nprefix = \"site.example/team\"\nblocked = true\n"));
    assert!(String::from_utf8_lossy(&output.stderr).contains("blocked"), "{output:?}");
}

/// Whoever made a layout chooses no file of the caller's that is sent.
#[test]
fn no_link_leads_out_of_a_layout() {
    let place = Place::new("push-links");
    let server = Uploads::start(Fault::None);
    Image::new(vec![Layer::default().file("f", "x")]).layout(&place.join("image"));
    let name = server.name("team/x:1");
    let push = ["push", "-q", "--plain-http", "oci:image:t", &name];
    place.good(&push);
    let index: serde_json::Value =
        serde_json::from_slice(&std::fs::read(place.join("image/index.json")).unwrap()).unwrap();
    let blob = |digest: &serde_json::Value| {
        place.join("image/blobs/sha256").join(&digest.as_str().unwrap()["sha256:".len()..])
    };
    let manifest: serde_json::Value =
        serde_json::from_slice(&std::fs::read(blob(&index["manifests"][0]["digest"])).unwrap()).unwrap();
    for (number, moved) in
        [blob(&manifest["layers"][0]["digest"]), blob(&manifest["config"]["digest"])].iter().enumerate()
    {
        let elsewhere = place.join(format!("secret{number}"));
        std::fs::rename(moved, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, moved).unwrap();
        let said = place.bad(&["push", "-q", "--plain-http", "oci:image:t", &server.name("team/y:1")]);
        assert!(said.contains("blobs/sha256"), "{said}");
        std::fs::remove_file(moved).unwrap();
        // A link within it is followed.
        let inside = place.join(format!("image/inside{number}"));
        std::fs::rename(&elsewhere, &inside).unwrap();
        std::os::unix::fs::symlink(format!("../../inside{number}"), moved).unwrap();
    }
    place.good(&push);
}

/// What is changed in a layer's tree when the first one is at the registry is in that layer, which is written meanwhile.
#[test]
fn a_layer_is_sent_while_the_next_one_is_written() {
    let place = Place::new("push-meanwhile");
    let server = Uploads::start(Fault::None);
    Image::new(vec![Layer::default().file("a", "a")]).layout(&place.join("image"));
    place.good(&["pull", "-q", "oci:image:t", "b"]);
    let upper = place.join("layer/upper");
    std::fs::create_dir_all(upper.join("z")).unwrap();
    std::fs::write(upper.join("large"), noise(48 << 20, 1)).unwrap();
    // One processor takes half a second or more to deflate that.
    let all = rustix::thread::sched_getaffinity(None).unwrap();
    let mut one = rustix::thread::CpuSet::new();
    one.set((0..rustix::thread::CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)).unwrap());
    rustix::thread::sched_setaffinity(None, &one).unwrap();
    let words = ["push", "-q", "--plain-http", "--overlay", "layer", "b", &server.name("team/x:1")];
    let mut push = place.quiet().args(words).spawn().unwrap();
    rustix::thread::sched_setaffinity(None, &all).unwrap();
    while !server.state().requests.iter().any(|request| request.starts_with("PUT")) {
        assert!(push.try_wait().unwrap().is_none(), "it has ended");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    std::fs::write(upper.join("z/late"), "late").unwrap();
    assert!(push.wait().unwrap().success());
    let state = server.state();
    let has_late = |blob: &Vec<u8>| {
        let mut plain = Vec::new();
        let inflated = flate2::read::MultiGzDecoder::new(&blob[..]).read_to_end(&mut plain);
        inflated.is_ok() && plain.windows(6).any(|window| window == b"z/late")
    };
    assert!(state.blobs.values().any(has_late), "the second layer was written before the first was sent");
}
