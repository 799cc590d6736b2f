//! Many at once, and killed at any moment.

use std::io::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::faults::{Fault, Server};
use super::image::{Image, Layer, digest, noise};
use super::{Place, failing, filtered, have};

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

/// One of two is slow after each directory that it has made.
#[test]
fn two_make_one_cache() {
    if !have("strace") {
        return;
    }
    let place = Place::new("cache");
    let mut slow = traced(&place, "mkdirat:delay_exit=300000", "cache list");
    let slow = slow.stdout(Stdio::null()).spawn().unwrap();
    while !place.join("cache").exists() || place.names("cache").is_empty() {
        std::thread::sleep(Duration::from_millis(5));
    }
    place.good(&["cache", "list"]);
    assert!(slow.wait_with_output().unwrap().status.success());
    assert_eq!(place.names("cache"), ["blobs", "leases", "partial"]);
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
    // One that was killed before it could sign its directory, or while it did, left no more than the mark: old age takes it.
    let aged = std::time::SystemTime::now() - Duration::from_secs(60);
    let partial = || place.names(".").into_iter().filter(|n| n.contains("partial")).collect::<Vec<_>>();
    for name in partial() {
        assert!(place.names(&name).iter().all(|part| part == "mark"), "{name}: {:?}", place.names(&name));
        std::fs::File::open(place.join(&name)).unwrap().set_modified(aged).unwrap();
    }
    place.good(&["pull", "-q", "--plain-http", "--force", &server.name(), "b"]);
    assert_eq!(partial(), [""; 0]);
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

/// A call that fails says neither that there is no name nor that a file system has no attributes.
#[test]
fn a_call_that_fails_is_no_answer() {
    use oci_layer::tar::{EntryKind, Header};
    let place = Place::new("no-answer");
    let mut layer = Layer::default().file("a", "x");
    let xattrs = vec![(b"user.colour".to_vec(), b"blue".to_vec())];
    let header = Header { xattrs, ..Header::new("f".into(), EntryKind::File, 0o644) };
    oci_layer::tar::write_header(&mut layer.0, &header).unwrap();
    Image::new(vec![layer]).layout(&place.join("image"));
    let command = |words: &[&str]| {
        let mut command = place.command();
        command.env("RT_IMAGES", place.join("images")).args(words);
        command
    };
    let said = |calls: &[&str], errno, words: &[&str]| {
        let output = failing(command(words), calls, errno);
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let pull = ["pull", "-q", "oci:image:t", "b"];
    let (good, why) = said(&["fsetxattr"], libc::EIO, &pull);
    assert!(!good && why.contains("user.colour") && !place.join("b").exists(), "{why}");
    // The answers that mean: not here, or not for you.
    assert!(said(&["fsetxattr"], libc::EOPNOTSUPP, &pull).0);
    assert!(command(&["pull", "-q", "--store", "oci:image:t"]).output().unwrap().status.success());
    for words in [&["rmi", "oci:image:t"][..], &["images"], &["prune"]] {
        let (good, why) = said(&["readlinkat"], libc::EIO, words);
        assert!(!good && !why.contains("no such image") && why.contains("oci:"), "{words:?}: {why}");
    }
    assert!(command(&["rmi", "oci:image:t"]).output().unwrap().status.success());
}

/// A file that cannot be looked at is not missing: a loop of links stands for every error of stat(2) and open(2).
#[test]
fn what_cannot_be_looked_at_is_not_missing() {
    let place = Place::new("no-look");
    sample().layout(&place.join("image"));
    let said = |words: &[&str]| {
        let mut command = place.command();
        command.env_remove("CONTAINERS_REGISTRIES_CONF").env("RT_IMAGES", place.join("images")).args(words);
        let output = command.output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let fails = |path: &str, words: &[&str]| {
        let path = place.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(path.file_name().unwrap(), &path).unwrap();
        let (good, why) = said(words);
        assert!(!good && why.contains(&path.display().to_string()), "{words:?}: {why}");
        assert_eq!(why.lines().count(), 1, "{why}");
        std::fs::remove_file(path).unwrap();
    };
    let server = Server::start(sample(), Fault::Basic);
    let (name, host) = (server.name(), format!("127.0.0.1:{}", server.port));
    let pull = ["pull", "-q", "--plain-http", &name, "b"];
    let certificates = [format!("certs.d/{host}"), format!("certs.d/{host}/a.crt")];
    let others = ["registries.conf", "registries.conf.d", "auth.json"].map(str::to_owned);
    for path in certificates.iter().chain(&others) {
        fails(&format!("home/.config/containers/{path}"), &pull);
    }
    assert!(said(&["pull", "-q", "--store", "oci:image:t"]).0);
    let bundle = place.names("images/bundles").remove(0);
    let mut images = place.command();
    images.env("RT_IMAGES", place.join("images")).arg("images");
    let output = failing(images, &["openat2"], libc::EIO);
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && why.contains(&bundle) && why.lines().count() == 1, "{why}");
    // A link in a config's place is none: whoever owns a bundle in a team's store would stop everybody.
    let config = place.join(format!("images/bundles/{bundle}/config.json"));
    std::fs::remove_file(&config).unwrap();
    std::os::unix::fs::symlink("config.json", &config).unwrap();
    assert!(said(&["images"]).0);
}

#[test]
fn what_cannot_be_removed_is_said() {
    let place = Place::new("unremoved");
    let server = Server::start(sample(), Fault::None);
    place.good(&["pull", "-q", "--plain-http", &server.name(), "b"]);
    std::fs::write(place.join("cache/partial/ab.0"), "left").unwrap();
    let blobs = place.names("cache/blobs/sha256");
    for (errno, names) in [(libc::EACCES, "cache/"), (libc::EROFS, "cache/"), (libc::EIO, "cache/")] {
        let mut command = place.command();
        command.args(["cache", "prune"]);
        let output = failing(command, &["unlinkat"], errno);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(names), "{errno}: {output:?}");
        assert_eq!(said.matches('\n').count(), 1, "{said}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "0 B freed\n");
    }
    assert_eq!(place.names("cache/blobs/sha256"), blobs);
    // On a full disk no file can be made that tells the file server's time.
    let mut command = place.command();
    command.args(["cache", "prune"]);
    let create = libc::O_CREAT as u64;
    let flags =
        serde_json::json!({ "index": 2, "op": "SCMP_CMP_MASKED_EQ", "value": create, "valueTwo": create });
    let output = filtered(
        command,
        serde_json::json!([
            { "names": ["openat"], "action": "SCMP_ACT_ERRNO", "errnoRet": libc::ENOSPC, "args": [flags] },
        ]),
    );
    assert!(output.status.success(), "{output:?}");
    assert!(place.names("cache/blobs/sha256").is_empty(), "{output:?}");
    assert!(place.names("cache/blobs/sha256").is_empty() && place.names("cache/leases").is_empty());
}

/// Three layers whose decoders want 128 MB each, of which one at a time gets it, and many entries.
#[test]
fn memory_is_bounded() {
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
    // The config's digests of plain layers are looked at where a layer is not compressed.
    let last = layers.len() - 1;
    let ids = (0..last).map(|n| digest(&[n as u8])).chain([digest(&layers[last].1)]).collect();
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

/// Under strace(1), which interferes with system calls as `inject` says and writes those into `trace`. The process's
/// number is in `pid`.
fn traced(place: &Place, inject: &str, arguments: &str) -> std::process::Command {
    let script = format!("echo $$ >pid; exec {} {arguments}", env!("CARGO_BIN_EXE_rt-pull"));
    let calls = inject.split(':').next().unwrap();
    let mut command = std::process::Command::new("strace");
    command.args([
        "-f",
        "-qq",
        "-o",
        "trace",
        "-e",
        &format!("trace={calls}"),
        "-e",
        &format!("inject={inject}"),
    ]);
    command.args(["sh", "-c", &script]).current_dir(place.join(".")).env("RT_CACHE", place.join("cache"));
    command
}

/// NFS has neither RENAME_EXCHANGE nor RENAME_NOREPLACE.
#[test]
fn bundles_are_replaced_where_renames_have_no_flags() {
    if !have("strace") {
        return;
    }
    let place = Place::new("rename");
    for name in ["one", "two"] {
        Image::new(vec![Layer::default().file("which", name)]).layout(&place.join(name));
    }
    place.good(&["cache", "list"]);
    let pull = |arguments: &str| {
        let output = traced(&place, "renameat2:error=EINVAL", arguments).output().unwrap();
        let trace = std::fs::read_to_string(place.join("trace")).unwrap();
        (output, trace.matches("(INJECTED)").count(), trace)
    };
    let which = || std::fs::read_to_string(place.join("b/rootfs/which")).unwrap();
    let (output, refused, trace) = pull("pull -q oci:one:t b");
    assert!(output.status.success() && refused == 1 && trace.contains("NOREPLACE"), "{output:?} {trace}");
    assert_eq!(which(), "one");
    let (output, refused, _) = pull("pull -q oci:two:t b");
    assert!(!output.status.success() && refused == 0, "a bundle is replaced by --force only: {output:?}");
    let (output, refused, trace) = pull("pull -q --force oci:two:t b");
    assert!(output.status.success() && refused == 2 && trace.contains("EXCHANGE"), "{output:?} {trace}");
    assert_eq!(which(), "two");
    assert_eq!(place.names("b"), ["config.json", "image.json", "rootfs"]);
    assert_eq!(place.names("."), ["b", "cache", "one", "pid", "trace", "two"]);
}

/// Leases and blobs appear by link(2), where there is one.
#[test]
fn caches_without_hard_links() {
    if !have("strace") {
        return;
    }
    let place = Place::new("links");
    let server = Server::start(sample(), Fault::None);
    let arguments = format!("pull -q --plain-http {} b", server.name());
    let output = traced(&place, "linkat:error=EPERM", &arguments).output().unwrap();
    let refused = std::fs::read_to_string(place.join("trace")).unwrap().matches("(INJECTED)").count();
    assert!(output.status.success() && refused >= 10, "{refused} {output:?}");
    is_right(&place, "b");
    place.is_clean();
    assert_eq!((place.names("cache/blobs/sha256").len(), place.names("cache/partial").len()), (6, 0));
    place.good(&["cache", "verify"]);
}

/// Each write takes so long that the whole file would take a minute.
#[test]
fn a_large_file_is_interrupted_in_its_middle() {
    if !have("strace") {
        return;
    }
    let place = Place::new("large");
    Image::new(vec![Layer::default().file("large", vec![0; 150 << 20])]).layout(&place.join("image"));
    let mut child = traced(&place, "pwrite64:delay_enter=100000", "pull -q oci:image:t b")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begun =
        || std::fs::read_to_string(place.join("trace")).is_ok_and(|t| t.matches("pwrite64").count() > 8);
    let start = Instant::now();
    while !begun() && start.elapsed() < Duration::from_secs(60) && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = std::fs::read_to_string(place.join("pid")).unwrap();
    let signalled = Instant::now();
    assert!(std::process::Command::new("kill").args(["-INT", pid.trim()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("interrupted"), "{said}");
    assert!(signalled.elapsed() < Duration::from_secs(20), "{:?}", signalled.elapsed());
    let writes = std::fs::read_to_string(place.join("trace")).unwrap().matches("pwrite64").count();
    assert!(writes < 300, "{writes} of 600 writes");
    assert!(!place.join("b").exists());
    place.is_clean();
}

/// Many layers, all of them compressed by zstd with the windows of its usual levels.
#[test]
fn ordinary_images_need_less_than_100_mb() {
    let place = Place::new("peak");
    let layer = |n: u64| {
        let pieces = Layer::default().file(&format!("noise/{n}"), noise(3 << 20, n));
        pieces.file(&format!("big/{n}"), vec![n as u8; 40 << 20])
    };
    let image = Image::stored((0..10).map(layer).collect(), serde_json::json!({}), |_, tar| {
        let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(23).unwrap();
        encoder.write_all(tar).unwrap();
        ("application/vnd.oci.image.layer.v1.tar+zstd", encoder.finish().unwrap())
    });
    let server = Server::start(image, Fault::None);
    let mut child = place
        .command()
        .args(["pull", "-q", "--plain-http", &server.name(), "b"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // The peak so far, as often as it can be asked.
    let mut peak = 0;
    let status = loop {
        let text = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
        peak = line.and_then(|kb| kb.parse().ok()).unwrap_or(0u64).max(peak);
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    assert!(status.success());
    assert!((1000..100_000).contains(&peak), "{peak} KB");
}
