//! Layouts, archives and images saved back, with skopeo and podman as the other side.

use std::path::Path;
use std::process::Command;

use super::image::{Image, Layer, Store, digest, gzip};
use super::{Place, have};
use serde_json::{Value, json};

fn sample(place: &Place) {
    let layers = vec![
        Layer::default().dir("etc").file("etc/passwd", "web:x:33:34::/srv:/bin/sh\n").file("f", "one"),
        Layer::default().file("f", "two").symlink("l", "f").link("h", "f"),
    ];
    let config = json!({ "User": "web", "Cmd": ["/bin/x"], "Env": ["A=b"], "Labels": { "k": "v" } });
    let kind = "application/vnd.oci.image.layer.v1.tar+gzip";
    Image::stored(layers, config, |_, tar| (kind, super::image::gzip(tar))).layout(&place.join("image"));
}

fn is_right(place: &Place, bundle: &str) {
    let read = |name: &str| std::fs::read_to_string(place.join(format!("{bundle}/rootfs/{name}"))).unwrap();
    assert_eq!((read("f"), read("l"), read("h")), ("two".into(), "two".into(), "two".into()));
    let text = std::fs::read(place.join(format!("{bundle}/config.json"))).unwrap();
    let config: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(config["process"]["user"]["uid"], 33);
    assert_eq!(config["process"]["user"]["gid"], 34);
    assert_eq!(config["process"]["args"], json!(["/bin/x"]));
    assert_eq!(config["annotations"]["k"], "v");
}

fn skopeo(place: &Place, from: &str, to: &str) {
    let mut command = Command::new("skopeo");
    command.current_dir(place.join(".")).args(["copy", "--insecure-policy", from, to]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn every_transport_gives_the_same() {
    let place = Place::new("transports");
    sample(&place);
    place.good(&["pull", "-q", "oci:image:t", "layout"]);
    is_right(&place, "layout");
    assert!(place.bad(&["pull", "oci:image:none", "x"]).contains("no image"));
    if !have("skopeo") {
        return;
    }
    skopeo(&place, "oci:image:t", "docker-archive:docker.tar:some/name:tag");
    skopeo(&place, "oci:image:t", "oci-archive:oci.tar:t");
    place.good(&["pull", "-q", "docker-archive:docker.tar", "docker"]);
    is_right(&place, "docker");
    assert!(place.bad(&["pull", "docker-archive:docker.tar:other", "x"]).contains("no such image"));
    place.good(&["pull", "-q", "oci-archive:oci.tar", "oci"]);
    is_right(&place, "oci");
    let gzip = Command::new("gzip").arg(place.join("docker.tar")).status().unwrap();
    assert!(gzip.success());
    place.good(&["pull", "-q", "docker-archive:docker.tar.gz", "gzip"]);
    is_right(&place, "gzip");
}

/// An archive of docker save that has one layer of a file `f`; `store` is what it keeps of the layer.
/// Whoever reads it among the lines of others sees who speaks: the tasks of a Slurm step pull an image that `prepare` had no time
/// for.
#[test]
fn what_no_terminal_shows_says_who_speaks() {
    let place = Place::new("speaker");
    sample(&place);
    for words in [&["oci:image:t", "bundle"][..], &["--store", "oci:image:t"], &["oci:image:none", "x"]] {
        let said = String::from_utf8(place.run(&[&["pull"], words].concat()).stderr).unwrap();
        assert!(!said.is_empty() && said.lines().all(|line| line.starts_with("rt: ")), "{said}");
    }
}

fn docker_archive(path: &Path, store: Store, diff_id: impl Fn(&[u8]) -> String) {
    let tar = Layer::default().file("f", "content").done();
    let config =
        json!({ "os": "linux", "config": {}, "rootfs": { "type": "layers", "diff_ids": [diff_id(&tar)] } });
    let manifest = json!([{ "Config": "config.json", "RepoTags": ["x:t"], "Layers": ["layer.tar"] }]);
    let archive = Layer::default()
        .file("manifest.json", manifest.to_string())
        .file("config.json", config.to_string())
        .file("layer.tar", store(&tar));
    std::fs::write(path, archive.done()).unwrap();
}

/// The digests of plain layers are the only ones that docker's archive has.
#[test]
fn docker_archives_are_checked() {
    let place = Place::new("docker-ids");
    let stores: [(&str, Store); 3] =
        [("plain", &|tar| tar.to_vec()), ("gzip", &gzip), ("zstd", &|tar| zstd::encode_all(tar, 1).unwrap())];
    for (name, store) in stores {
        docker_archive(&place.join("good.tar"), store, digest);
        place.good(&["pull", "-q", "docker-archive:good.tar", name]);
        assert_eq!(std::fs::read(place.join(name).join("rootfs/f")).unwrap(), b"content");
        docker_archive(&place.join("bad.tar"), store, |_| digest(b"another"));
        let said = place.bad(&["pull", "-q", "docker-archive:bad.tar", "b"]);
        assert!(said.contains("the image's config says"), "{name}: {said}");
        assert!(!place.join("b").exists());
        place.is_clean();
    }
}

/// What is no layer at all is not said to hash to something: nobody has hashed it.
#[test]
fn garbage_is_said_to_be_no_layer() {
    let place = Place::new("garbage");
    let kind = "application/vnd.oci.image.layer.v1.tar+gzip";
    Image::raw(vec![(kind, super::image::noise(5000, 3))], vec![digest(b"tar")], json!({}))
        .layout(&place.join("image"));
    let said = place.bad(&["pull", "-q", "oci:image:t", "b"]);
    assert!(said.contains("neither gzip nor zstd") && said.contains(&digest(b"tar")), "{said}");
    assert!(!said.contains("hashes to"), "{said}");
}

/// A layer that is not what its config says: found where that costs nothing, and where it is asked for.
#[test]
fn uncompressed_layers_are_what_the_config_says() {
    let place = Place::new("diff-ids");
    let many = [Layer::default().file("f", "content"), Layer::default().file("g", vec![7; 3 << 20])];
    let pzstd =
        |tar: &[u8]| tar.chunks(1 << 20).flat_map(|part| zstd::encode_all(part, 1).unwrap()).collect();
    let stores: [(&str, Store); 4] = [
        ("tar", &|tar| tar.to_vec()),
        ("tar+gzip", &gzip),
        ("tar+zstd", &|tar| zstd::encode_all(tar, 1).unwrap()),
        ("tar+zstd", &pzstd),
    ];
    for (at, (kind, store)) in stores.into_iter().enumerate() {
        let kind = format!("application/vnd.oci.image.layer.v1.{kind}");
        let plain: Vec<Vec<u8>> = many.iter().cloned().map(Layer::done).collect();
        let stored = || plain.iter().map(|tar| (kind.as_str(), store(tar))).collect();
        let ids: Vec<String> = plain.iter().map(|tar| digest(tar)).collect();
        let (good, bad, name) = (format!("good{at}"), format!("bad{at}"), format!("b{at}"));
        Image::raw(stored(), ids.clone(), json!({})).layout(&place.join(&good));
        Image::raw(stored(), vec![ids[0].clone(), digest(b"another")], json!({})).layout(&place.join(&bad));
        place.good(&["pull", "-q", "--verify", &format!("oci:{good}:t"), &name]);
        let bad = format!("oci:{bad}:t");
        let free = place.run(&["pull", "-q", &bad, &format!("free{at}")]).status.success();
        assert_eq!(free, at > 0, "only the digest of a layer that is not compressed costs nothing");
        let said = place.bad(&["pull", "-q", "--verify", &bad, "b"]);
        assert!(said.contains("the image's config says") && said.contains("layer 2"), "{said}");
        assert!(!place.join("b").exists());
        place.is_clean();
        for ids in [vec![], vec![ids[0].clone()], [&ids[..], &ids[..]].concat()] {
            Image::raw(stored(), ids, json!({})).layout(&place.join("count"));
            let said = place.bad(&["pull", "-q", "oci:count:t", "b"]);
            assert!(said.contains("the manifest has 2 layers"), "{said}");
            std::fs::remove_dir_all(place.join("count")).unwrap();
        }
    }
}

#[test]
fn saved_and_loaded() {
    let place = Place::new("save");
    sample(&place);
    place.good(&["pull", "-q", "--private", "oci:image:t", "b"]);
    let one = place.good(&["save", "-q", "b", "oci-archive:saved.tar:v1"]);
    let two = place.good(&["save", "-q", "b", "oci:saved:v1"]);
    assert_eq!(one, two, "the same tree gives the same digest");
    assert!(place.bad(&["save", "b", "oci:saved:v1"]).contains("saved: exists (use --force to replace it)"));
    let lost = "saved: has other images, which would be lost: v1 (name another directory)";
    assert!(place.bad(&["save", "b", "oci:saved:v2"]).contains(lost));
    let piped = place.bad(&["save", "b", "docker-archive:-"]);
    assert!(piped.contains("no image is written to standard output") && !place.join("-").exists(), "{piped}");
    place.good(&["pull", "-q", "oci-archive:saved.tar:v1", "again"]);
    is_right(&place, "again");
    if have("skopeo") {
        skopeo(&place, "oci-archive:saved.tar:v1", "dir:loaded");
        skopeo(&place, "oci:saved:v1", "docker-archive:converted.tar");
        place.good(&["pull", "-q", "docker-archive:converted.tar", "converted"]);
        is_right(&place, "converted");
    }
    assert_eq!(place.names(".").iter().filter(|n| n.contains("partial")).count(), 0);
}

/// A config with everything that an image can say.
fn rich() -> Value {
    json!({ "User": "web", "Entrypoint": ["/bin/e", "a b"], "Cmd": ["x", "y"], "Env": ["A=b", "E="], "WorkingDir": "srv",
        "Labels": { "k": "v", "org.opencontainers.image.title": "T", "rt.user": "root" }, "Volumes": { "/data": {} },
        "ExposedPorts": { "80/tcp": {} }, "StopSignal": "SIGINT", "ArgsEscaped": true,
        "Healthcheck": { "Test": ["CMD", "/bin/e"], "Interval": 30000000000u64 } })
}

/// An image with a manifest and a config that have more than what a pull needs.
fn rich_image(place: &Place) {
    let layers = vec![
        Layer::default().dir("etc").file("etc/passwd", "web:x:33:34::/srv:/bin/sh\n").dir("srv"),
        Layer::default().file("f", "two"),
    ];
    let kind = "application/vnd.oci.image.layer.v1.tar+gzip";
    let mut image = Image::stored(layers, rich(), |_, tar| (kind, gzip(tar)));
    let mut manifest: Value = serde_json::from_slice(&image.manifest).unwrap();
    let old = manifest["config"]["digest"].as_str().unwrap().to_owned();
    let mut config: Value = serde_json::from_slice(&image.blobs.remove(&old).unwrap()).unwrap();
    config["author"] = json!("somebody");
    config["created"] = json!("2024-01-02T03:04:05Z");
    config["history"] = json!([{ "created_by": "one", "created": "2024-01-01T00:00:00Z" },
        { "created_by": "two" }, { "created_by": "three", "empty_layer": true }]);
    config["container_config"] = json!({ "Cmd": ["stale"] });
    let config = config.to_string().into_bytes();
    manifest["config"]["digest"] = json!(digest(&config));
    manifest["config"]["size"] = json!(config.len());
    manifest["annotations"] = json!({ "of.the": "manifest", "rt.user": "root" });
    image.manifest = manifest.to_string().into_bytes();
    image.blobs.insert(digest(&config), config);
    image.layout(&place.join("image"));
}

fn json_file(place: &Place, path: &str) -> Value {
    serde_json::from_slice(&std::fs::read(place.join(path)).unwrap()).unwrap()
}

/// The config of a bundle, without what says from where it was pulled.
fn bundle_config(place: &Place, bundle: &str) -> Value {
    let mut config = json_file(place, &format!("{bundle}/config.json"));
    for key in ["name", "digest", "resolved"] {
        let removed = config["annotations"].as_object_mut().unwrap().remove(&format!("rt.image.{key}"));
        assert!(removed.is_some(), "{key}");
    }
    // What a pull puts into a tree is in the saved one already, and then counted.
    config["annotations"].as_object_mut().unwrap().remove("rt.image.bytes");
    config
}

/// What a pull makes of an image is what it makes of the image that is saved from that.
#[test]
fn a_saved_image_gives_the_same_bundle() {
    let place = Place::new("round");
    rich_image(&place);
    for (flags, name) in [
        (&["--profile", "hpc"][..], "hpc"),
        (&["--profile", "isolated"], "isolated"),
        (&["--user-map", "root"], "root"),
    ] {
        let saved = |target: &str| format!("{target}:{name}.{target}");
        place.good(&[&["pull", "-q"], flags, &["oci:image:t", name]].concat());
        for target in ["oci", "oci-archive", "docker-archive"] {
            place.good(&["save", "-q", name, &saved(target)]);
            let again = format!("{name}-{target}");
            place.good(&[&["pull", "-q"], flags, &[&saved(target), &again]].concat());
            let (mut before, after) = (bundle_config(&place, name), bundle_config(&place, &again));
            if target == "docker-archive" {
                // Such an archive has no place for the annotations of a manifest.
                before["annotations"].as_object_mut().unwrap().remove("of.the");
            }
            assert_eq!(before, after, "{name} {target}");
            let image = json_file(&place, &format!("{again}/image.json"));
            let mut config = rich();
            config["WorkingDir"] = json!("srv");
            assert_eq!(image["config"], config, "{name} {target}");
            assert_eq!(
                (&image["author"], &image["created"]),
                (&json!("somebody"), &json!("2024-01-02T03:04:05Z"))
            );
            assert!(image.get("container_config").is_none());
            let history = image["history"].as_array().unwrap();
            let layers = history.iter().filter(|entry| entry["empty_layer"] != json!(true));
            assert_eq!((history.len(), layers.count()), (4, 1), "{image}");
            assert_eq!(history[0]["created_by"], "one");
        }
    }
    if have("skopeo") {
        skopeo(&place, "oci:hpc.oci", "docker-archive:by-skopeo.tar:x:1");
        let inspect = |image: &str| {
            let output = Command::new("skopeo")
                .current_dir(place.join("."))
                .args(["inspect", "--config", image])
                .output();
            let output = output.unwrap();
            assert!(output.status.success(), "{image}: {output:?}");
            serde_json::from_slice::<Value>(&output.stdout).unwrap()
        };
        for image in ["oci:hpc.oci", "oci-archive:hpc.oci-archive", "docker-archive:hpc.docker-archive"] {
            let config = inspect(image);
            assert_eq!(config["config"]["Entrypoint"], json!(["/bin/e", "a b"]), "{image}");
            assert_eq!(config["config"]["Volumes"], json!({ "/data": {} }), "{image}");
        }
    }
}

/// What an image said is not dropped where it cannot be read: author, volumes and stop signal are only there.
#[test]
fn a_config_that_cannot_be_read_is_not_left_out() {
    let place = Place::new("no-image-json");
    rich_image(&place);
    place.good(&["pull", "-q", "oci:image:t", "b"]);
    let file = place.join("b/image.json");
    let check = |what: &str| {
        for words in
            [&["save", "b", "oci:saved"][..], &["save", "b", "x.sqsh"], &["push", "b", "localhost:1/x"]]
        {
            let output = place.run(words);
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(
                (output.status.code(), said.lines().count()),
                (Some(1), 1),
                "{what} {words:?}: {said}"
            );
            assert!(said.contains("image.json"), "{what} {words:?}: {said}");
            assert!(!place.join("saved").exists() && !place.join("x.sqsh").exists(), "{what} {words:?}");
        }
    };
    for text in ["", "{", "[]", "null"] {
        std::fs::write(&file, text).unwrap();
        check(text);
    }
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    check("directory");
    // A bundle that was not pulled has none.
    std::fs::remove_dir(&file).unwrap();
    place.good(&["save", "-q", "b", "oci:saved"]);
}

/// The config of a bundle in a store, which others may have written, does not say which of the caller's directories is saved.
#[test]
fn the_root_of_a_stored_bundle_is_in_it() {
    let place = Place::new("stored-root");
    sample(&place);
    let bundle = format!("images/bundles/sha256-{}", "a".repeat(64));
    std::fs::create_dir_all(place.join("images/bundles")).unwrap();
    place.good(&["pull", "-q", "oci:image:t", &bundle]);
    let secret = place.join("secret");
    std::fs::create_dir(&secret).unwrap();
    std::fs::write(secret.join("key"), "of the caller").unwrap();
    let config = place.join(format!("{bundle}/config.json"));
    let mut text: Value = serde_json::from_slice(&std::fs::read(&config).unwrap()).unwrap();
    text["root"]["path"] = json!(secret);
    std::fs::write(&config, text.to_string()).unwrap();
    let names = || {
        place.good(&["save", "-q", &bundle, "oci:saved:t"]);
        place.good(&["pull", "-q", "--force", "oci:saved:t", "back"]);
        let names = place.names("back/rootfs");
        std::fs::remove_dir_all(place.join("saved")).unwrap();
        names
    };
    let of_image = names();
    // By a link of the caller's, too; and none that somebody else has put into the store.
    let link = place.join("link");
    std::os::unix::fs::symlink(place.join(&bundle), &link).unwrap();
    place.good(&["save", "-q", "link", "oci:saved:t"]);
    place.good(&["pull", "-q", "--force", "oci:saved:t", "back"]);
    assert_eq!(place.names("back/rootfs"), of_image);
    std::fs::remove_dir_all(place.join("saved")).unwrap();
    std::fs::remove_file(&link).unwrap();
    std::fs::rename(place.join(&bundle), &link).unwrap();
    std::os::unix::fs::symlink(&link, place.join(&bundle)).unwrap();
    let said = place.bad(&["save", "-q", &bundle, "oci:saved:t"]);
    assert!(said.contains("symbolic links"), "{said}");
    std::fs::remove_file(place.join(&bundle)).unwrap();
    std::fs::rename(&link, place.join(&bundle)).unwrap();
    assert!(of_image.contains(&"etc".to_owned()) && !of_image.contains(&"key".to_owned()), "{of_image:?}");
    let root = place.join(format!("{bundle}/rootfs"));
    std::fs::rename(&root, place.join("aside")).unwrap();
    std::os::unix::fs::symlink(&secret, &root).unwrap();
    let said = place.bad(&["save", "-q", &bundle, "oci:saved:t"]);
    assert!(said.contains("rootfs"), "{said}");
}

/// A name that Apptainer's users give a file makes no directory.
#[test]
fn files_of_others_are_not_written() {
    let place = Place::new("sif");
    sample(&place);
    for name in ["deb.sif", "deb.img"] {
        let said = place.bad(&["pull", "oci:image:t", name]);
        assert!(said.contains(name) && said.contains("deb.sqsh"), "{said}");
        assert!(!place.join(name).exists());
    }
    // What a tree of a caller without root has otherwise is for those who look for it.
    let said = place.command().args(["pull", "oci:image:t", "b"]).output().unwrap().stderr;
    assert_eq!(String::from_utf8_lossy(&said).matches("written").count(), 1);
}

/// Attributes are not left out where they cannot be read.
#[test]
fn attributes_that_cannot_be_read_are_an_error() {
    let place = Place::new("no-xattrs");
    rich_image(&place);
    place.good(&["pull", "-q", "oci:image:t", "b"]);
    let path = place.join("b/rootfs/attributed");
    std::fs::write(&path, "").unwrap();
    let has = rustix::fs::setxattr(&path, "user.x", b"y", rustix::fs::XattrFlags::empty()).is_ok();
    let save = |calls: &[&str], errno| {
        let mut command = place.command();
        command.args(["save", "-q", "--force", "b", "oci:saved"]);
        super::failing(command, calls, errno)
    };
    for errno in [libc::EIO, libc::ENOMEM] {
        for call in ["flistxattr", "fgetxattr"] {
            let output = save(&[call], errno);
            let said = String::from_utf8(output.stderr).unwrap();
            let failed = has || call == "flistxattr";
            assert_eq!(output.status.code(), Some(i32::from(failed)), "{call} {errno}: {said}");
            assert_eq!(said.contains("attribute"), failed, "{call} {errno}: {said}");
        }
    }
    // These say that there are none.
    assert!(save(&["flistxattr"], libc::EOPNOTSUPP).status.success());
    assert!(save(&["fgetxattr"], libc::ENODATA).status.success());
}

/// Where a thread cannot be had, as at the limit of a user's processes, that is an error like others.
#[test]
fn no_more_threads_is_an_error() {
    let place = Place::new("no-threads");
    rich_image(&place);
    place.good(&["pull", "-q", "oci:image:t", "b"]);
    for words in [
        &["pull", "oci:image:t", "new"][..],
        &["pull", "oci:image:t", "new.sqsh"],
        &["pull", "--store", "oci:image:t"],
        &["save", "b", "oci:new"],
        &["save", "b", "new.sqsh"],
    ] {
        let mut command = place.command();
        command.args(words).env("RT_IMAGES", place.join("images"));
        let output = super::threadless(command);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{words:?}: {said}");
        assert!(said.contains("start a thread"), "{words:?}: {said}");
        assert!(!["new", "new.sqsh"].iter().any(|name| place.join(name).exists()), "{words:?}");
        place.is_clean();
    }
}

/// What a user changes in config.json is saved.
#[test]
fn an_edited_config_is_saved() {
    let place = Place::new("edited");
    rich_image(&place);
    place.good(&["pull", "-q", "oci:image:t", "b"]);
    let mut config = json_file(&place, "b/config.json");
    assert_eq!(config["annotations"]["rt.image.entrypoint"], r#"["/bin/e","a b"]"#);
    assert_eq!(config["annotations"]["rt.image.cmd"], r#"["x","y"]"#);
    config["process"]["args"] = json!(["/bin/e", "a b", "z"]);
    config["process"]["env"].as_array_mut().unwrap().push(json!("NEW=1"));
    config["process"]["cwd"] = json!("/etc");
    config["process"]["user"] = json!({ "uid": 5, "gid": 6 });
    config["annotations"]["k"] = json!("w");
    std::fs::write(place.join("b/config.json"), config.to_string()).unwrap();
    place.good(&["save", "-q", "b", "oci:saved"]);
    place.good(&["pull", "-q", "oci:saved", "again"]);
    let image = json_file(&place, "again/image.json");
    let mut wanted = rich();
    wanted["Cmd"] = json!(["z"]);
    wanted["Env"] = json!(["A=b", "E=", "NEW=1"]);
    wanted["WorkingDir"] = json!("/etc");
    wanted["User"] = json!("5:6");
    wanted["Labels"]["k"] = json!("w");
    assert_eq!(image["config"], wanted);
}

#[test]
fn only_images_are_replaced() {
    let place = Place::new("replace-image");
    sample(&place);
    place.good(&["pull", "-q", "oci:image:t", "b"]);
    std::fs::create_dir(place.join("dir")).unwrap();
    std::fs::write(place.join("dir/data"), "mine").unwrap();
    for (target, path) in [("oci", "dir"), ("oci-archive", "dir"), ("docker-archive", "dir")] {
        let target = format!("{target}:{path}");
        // Nor is --force proposed, which would not help.
        for command in [&["save"][..], &["save", "--force"]] {
            let said = place.bad(&[command, &["b", &target]].concat());
            assert!(said.contains("are replaced") && !said.contains("--force"), "{said}");
        }
    }
    assert_eq!(place.names("dir"), ["data"]);
    for target in ["oci:x", "oci-archive:x.tar", "docker-archive:x.docker.tar:name"] {
        let one = place.good(&["save", "-q", "b", target]);
        assert!(place.bad(&["save", "b", target]).contains("exists"));
        assert_eq!(place.good(&["save", "-q", "-f", "b", target]), one, "{target}");
        // The root is gone: what was there stays.
        std::fs::rename(place.join("b/rootfs"), place.join("b/aside")).unwrap();
        place.bad(&["save", "-q", "-f", "b", target]);
        std::fs::rename(place.join("b/aside"), place.join("b/rootfs")).unwrap();
        place.good(&["pull", "-q", "--force", target, "again"]);
        is_right(&place, "again");
    }
    place.good(&["pull", "-q", "docker-archive:x.docker.tar:name:latest", "named"]);
    assert!(place.bad(&["save", "b", "docker-archive:y:No"]).contains("lower case"));
    assert!(place.bad(&["save", "b", "docker://localhost/x"]).contains("rt push"));
    place.is_clean();
}

/// A signal in the middle leaves nothing.
#[test]
fn an_interrupted_save_leaves_nothing() {
    let place = Place::new("save-signal");
    let layer = Layer::default().file("f", super::image::noise(300_000_000, 3));
    let kind = "application/vnd.oci.image.layer.v1.tar";
    Image::stored(vec![layer], json!({}), |_, tar| (kind, tar.to_vec())).layout(&place.join("image"));
    place.good(&["pull", "-q", "oci:image:t", "b"]);
    let mut child = place
        .command()
        .args(["save", "b", "oci:saved"])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let start = std::time::Instant::now();
    while !place.names(".").iter().any(|name| name.contains("partial")) {
        assert!(start.elapsed().as_secs() < 20);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let mut said = String::new();
    std::io::Read::read_to_string(child.stderr.as_mut().unwrap(), &mut said).unwrap();
    assert!(said.contains("interrupted; nothing was written"), "{said}");
    assert_eq!(place.names("."), ["b", "cache", "image"]);
}

#[test]
fn engines_save_for_us() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new("engine");
    if !have("skopeo") {
        return;
    }
    sample(&place);
    skopeo(&place, "oci:image:t", "docker-archive:docker.tar:some/name:tag");
    std::fs::create_dir_all(place.join("bin")).unwrap();
    let script = "#!/bin/sh\necho \"$0 $*\" >>log\ncase \"$*\" in *none*) exit 4 ;; esac\ncat docker.tar\n";
    let path = format!("{}:{}", place.join("bin").display(), std::env::var("PATH").unwrap());
    for (program, source) in [("docker", "docker-daemon:some/name:tag"), ("podman", "podman:some/name:tag")] {
        let file = place.join("bin").join(program);
        std::fs::write(&file, script).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        let run = |source: &str, bundle: &str| {
            place.command().env("PATH", &path).args(["pull", "-q", source, bundle]).output().unwrap()
        };
        let output = run(source, program);
        assert!(output.status.success(), "{output:?}");
        is_right(&place, program);
        let output = run(&source.replace("some/name:tag", "none"), "x");
        assert!(
            String::from_utf8_lossy(&output.stderr).contains(&format!("run {program} save")),
            "{output:?}"
        );
        assert!(!place.join("x").exists());
    }
    let log = std::fs::read_to_string(place.join("log")).unwrap();
    assert!(
        log.contains("docker save -- some/name:tag") && log.contains("save --format docker-archive -- some"),
        "{log}"
    );
}

/// What the site or the user has configured counts where no flag and no variable says otherwise.
#[test]
fn defaults_are_configured() {
    let place = Place::new("configured");
    let layers =
        vec![Layer::default().file("f", "one").dir("etc").file("etc/passwd", "web:x:33:34::/srv:/bin/sh\n")];
    let config = json!({ "User": "web", "Cmd": ["/bin/x"], "Env": ["A=b", "RT_MOUNTS=/home", "RT_CONTAINER_MOUNTS=/home", "RT_X=1"] });
    let kind = "application/vnd.oci.image.layer.v1.tar+gzip";
    Image::stored(layers, config, |_, tar| (kind, gzip(tar))).layout(&place.join("image"));
    let home = place.join("home/.config/rt");
    std::fs::create_dir_all(&home).unwrap();
    let file = home.join("config.toml");
    let write = |text: &str| {
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    };
    let config = |bundle: &str| -> Value {
        serde_json::from_slice(&std::fs::read(place.join(format!("{bundle}/config.json"))).unwrap()).unwrap()
    };
    let own = place.join("own-cache");
    write(&format!("[pull]\nprofile = \"isolated\"\nwritable = true\ncache = {own:?}\n"));
    place.good(&["pull", "-q", "oci:image:t", "configured"]);
    assert_eq!(config("configured")["hostname"], "rt", "of the isolated profile");
    // Slurm mixes an image's variables into those of the job, where this one would say what is mounted.
    let env = config("configured")["process"]["env"].to_string();
    assert!(env.contains("RT_X=1") && !env.contains("RT_MOUNTS") && !env.contains("RT_CONTAINER"), "{env}");
    place.good(&["pull", "-q", "--profile", "hpc", "--writable=false", "oci:image:t", "flags"]);
    assert_eq!(config("flags")["hostname"], Value::Null);
    assert_eq!(config("flags")["root"]["readonly"], true);
    // RT_CACHE counts more than the file.
    assert!(!own.exists(), "{own:?}");
    let listed = place.command().env_remove("RT_CACHE").args(["cache", "list", "--json"]).output().unwrap();
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(listed["path"], json!(own));
    write("[pull]\nregistry = \"registry.invalid\"\nretries = 0\n");
    let said = place.bad(&["pull", "-q", "debian:12", "x"]);
    assert!(said.contains("registry.invalid"), "{said}");
    write("[pull]\nprofil = \"hpc\"\n");
    let said = place.bad(&["pull", "-q", "oci:image:t", "x"]);
    assert!(
        said.contains(&format!("{}:2: unknown key \"profil\"; did you mean profile?", file.display())),
        "{said}"
    );
}

#[test]
fn files_are_looked_for_before_registries() {
    let place = Place::new("local-files");
    sample(&place);
    std::fs::write(place.join("image.tar"), "x").unwrap();
    let said = place.bad(&["pull", "image.tar", "x"]);
    assert!(said.contains("image.tar is a file here") && said.contains("oci-archive:image.tar"), "{said}");
    // Here nothing is made of it, so what it is needs not be said.
    let said = place.bad(&["inspect", "./image.tar"]);
    assert!(said.contains("./image.tar: ") && said.lines().count() == 1, "{said}");
    let said = place.bad(&["pull", "image", "x"]);
    assert!(said.contains("image is an image layout here") && said.contains("oci:image"), "{said}");
}

/// A bundle, an image file and an archive say what their image says in a registry.
#[test]
fn what_is_here_is_inspected() {
    let place = Place::new("inspect-here");
    rich_image(&place);
    place.good(&["pull", "-q", "oci:image:t", "b"]);
    place.good(&["pull", "-q", "oci:image:t", "x.sqsh"]);
    place.good(&["save", "-q", "b", "oci-archive:x.tar:t"]);
    place.good(&["save", "-q", "b", "docker-archive:y.tar:n:t"]);
    let inspect =
        |name: &str| -> Value { serde_json::from_str(&place.good(&["inspect", "--json", name])).unwrap() };
    let image = inspect("oci:image:t");
    assert_eq!(inspect("image")["digest"], image["digest"]);
    for name in ["b", "./b", "x.sqsh", "./x.sqsh"] {
        let here = inspect(name);
        for key in ["digest", "resolved", "config", "author", "created", "architecture"] {
            assert_eq!(here[key], image[key], "{name} {key}");
        }
        assert_eq!((&here["name"], &here["layers"]), (&json!("oci:image:t"), &json!([])), "{name}");
        assert_eq!(place.good(&["inspect", "--pinned", name]), format!("{name}\n"));
    }
    for name in ["x.tar", "y.tar"] {
        let here = inspect(name);
        assert_eq!((&here["config"]["Cmd"], &here["author"]), (&image["config"]["Cmd"], &image["author"]));
        assert_eq!(here["layers"].as_array().unwrap().len(), 1, "{name}");
    }
    // A bundle that no image was pulled to says what it runs.
    std::fs::create_dir_all(place.join("plain/rootfs")).unwrap();
    let config = json!({ "ociVersion": "1.0.2", "root": { "path": "rootfs" },
        "process": { "args": ["/bin/x", "y"], "env": ["A=b"], "cwd": "/srv" } });
    std::fs::write(place.join("plain/config.json"), config.to_string()).unwrap();
    let said = place.good(&["inspect", "plain"]);
    for line in ["cmd          /bin/x y\n", "env          A=b\n", "workdir      /srv\n"] {
        assert!(said.contains(line), "{said}");
    }
    assert!(!said.contains("compressed"), "{said}");
}

/// What reads as a file's name is no image of a registry's, which would be somebody else's.
#[test]
fn a_file_that_is_not_there_is_not_asked_for() {
    let place = Place::new("no-file");
    for name in ["nosuch.sqsh", "dir/nosuch.sif", "./nosuch.sqsh", "nosuch.tar"] {
        for words in [&["pull", name, "x"][..], &["pull", "--store", name], &["inspect", name]] {
            let said = place.bad(words);
            assert!(said.contains(&format!("{name}: no file here, and no such image")), "{words:?}: {said}");
            assert!(said.contains(&format!("(docker://{name} ")) && said.lines().count() == 1, "{said}");
        }
    }
}

/// As `apptainer pull FILE IMAGE` has them.
#[test]
fn operands_in_the_order_of_others_are_told() {
    let place = Place::new("order");
    for (words, right) in [
        (["deb.sif", "docker://debian:12"], "rt pull docker://debian:12 deb.sqsh"),
        (["deb.sqsh", "docker://debian:12"], "rt pull docker://debian:12 deb.sqsh"),
        (["b", "oci-archive:x.tar"], "rt pull oci-archive:x.tar b"),
    ] {
        let said = place.bad(&["pull", words[0], words[1]]);
        assert!(said.contains(&format!("({right})")) && said.lines().count() == 1, "{said}");
    }
}

/// An error names the working directory, which "." says to nobody.
#[test]
fn a_closed_working_directory_is_named() {
    let place = Place::new("closed-here");
    if !have("unshare") {
        return;
    }
    // Who owns a directory is no owner with rights of root's in a user namespace without a map.
    let data = Place::new("closed-data");
    let (program, data) = (env!("CARGO_BIN_EXE_rt-pull"), data.join("."));
    let script = format!("chmod 0 . && exec {program} save {} x.sqsh", data.display());
    let output = place
        .command()
        .get_envs()
        .fold(Command::new("unshare"), |mut command, (name, value)| {
            command.env(name, value.unwrap_or_default());
            command
        })
        .args(["-U", "sh", "-c", &script])
        .current_dir(place.join("."))
        .output()
        .unwrap();
    std::fs::set_permissions(place.join("."), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let here = std::fs::canonicalize(place.join(".")).unwrap();
    assert!(said.contains(&format!("open {}: permission denied", here.display())), "{said}");
}

/// A name without an index is of one platform, whatever was asked for.
#[test]
fn a_single_image_of_another_platform_is_told() {
    let place = Place::new("platform");
    sample(&place);
    let said = place.bad(&["pull", "--platform", "linux/s390x", "oci:image:t", "x"]);
    assert!(said.contains("the image is for linux/amd64 alone, not for linux/s390x"), "{said}");
    assert!(!place.join("x").exists());
    place.good(&["pull", "--platform", "linux/amd64", "oci:image:t", "y"]);
}

/// What a full place has none of, as root of a mount namespace.
#[test]
fn a_place_without_room_is_named() {
    let place = Place::new("room");
    let layers = vec![(0..64).fold(Layer::default(), |layer, n| layer.file(&format!("f{n}"), "x"))];
    let kind = "application/vnd.oci.image.layer.v1.tar+gzip";
    Image::stored(layers, json!({ "Cmd": ["/bin/x"] }), |_, tar| (kind, gzip(tar)))
        .layout(&place.join("image"));
    std::fs::create_dir(place.join("full")).unwrap();
    let pull = env!("CARGO_BIN_EXE_rt-pull");
    let pull_of = |options: &str, env: &str, words: &str| {
        let script =
            format!("mount -t tmpfs -o {options} none full && exec env {env} {pull} pull -q {words}");
        let mut command = Command::new("unshare");
        command.args(["-Urm", "sh", "-c", &script]).current_dir(place.join("."));
        let output =
            command.env("HOME", place.join("home")).env("RT_CACHE", place.join("cache")).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let pulled = |options: &str, env: &str| pull_of(options, env, "oci:image:t full/b");
    if !have("unshare") {
        return;
    }
    let (code, said) = pulled("nr_inodes=40", "A=b");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("no space left on device") && said.contains("/full has "), "{said}");
    assert!(said.contains(" inodes: rt prune and rt cache prune make room"), "{said}");
    let (_, store) = pull_of("nr_inodes=50", "RT_IMAGES=$PWD/full/store", "--store oci:image:t");
    assert!(
        store.contains("/full/store has ")
            && store.contains("rt prune makes room in the store, and RT_IMAGES"),
        "{store}"
    );
    for (options, lacks) in
        [("nr_inodes=10", "the cache full has "), ("nr_inodes=2", "--no-cache needs none")]
    {
        let (code, said) = pulled(options, "RT_CACHE=full");
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(lacks) && said.contains("RT_CACHE or --cache names another place"), "{said}");
    }
}

/// What could not be removed is named, and goes with the next command for the same target, whether or not that makes anything.
#[test]
fn drafts_that_stay_are_named_and_swept() {
    let place = Place::new("drafts");
    rich_image(&place);
    place.good(&["pull", "-q", "oci:image:t", "b"]);
    for (words, target) in [
        (&["save", "-q", "b", "oci-archive:saved.tar"][..], "saved.tar"),
        (&["save", "-q", "b", "docker-archive:saved.docker:x:1"], "saved.docker"),
        (&["save", "-q", "b", "saved.sqsh"], "saved.sqsh"),
        (&["pull", "-q", "oci:image:t", "saved"], "saved"),
        (&["pull", "-q", "oci:image:t", "pulled.sqsh"], "pulled.sqsh"),
    ] {
        let left =
            || place.names(".").into_iter().find(|name| name.starts_with(&format!("{target}.partial-")));
        let mut command = place.command();
        command.args(words);
        let output = super::failing(command, &["unlinkat", "unlink"], libc::EIO);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{words:?}: {said}");
        let name = left().expect("a draft that cannot be removed");
        assert!(said.lines().count() == 1 && said.contains(&name) && said.contains(": remove "), "{said}");
        assert!(place.join(target).exists());
        // Most of these say that there is something already.
        let _ = place.run(words);
        assert_eq!(left(), None, "{words:?}");
    }
    place.is_clean();
}

/// An error names the file by its path: a name alone may be anywhere in an image or a store.
#[test]
fn errors_name_the_whole_path() {
    let place = Place::new("paths");
    rich_image(&place);
    place.good(&["pull", "-q", "oci:image:t", "b"]);
    let here = std::fs::canonicalize(place.join(".")).unwrap().display().to_string();
    let failed = |words: &[&str], call: &str, errno| {
        let mut command = place.command();
        command.args(words);
        let said = String::from_utf8(super::failing(command, &[call], errno).stderr).unwrap();
        let first = said.lines().next().unwrap_or_default().to_owned();
        assert!(first.contains(&format!("{here}/")), "{words:?} {call}: {said}");
    };
    for words in [
        &["save", "-q", "b", "oci:new"][..],
        &["save", "-q", "b", "new.sqsh"],
        &["pull", "-q", "oci:image:t", "new"],
        &["pull", "-q", "oci:image:t", "new.sqsh"],
    ] {
        for call in ["fchmod", "mkdirat", "getdents64", "renameat2"] {
            failed(words, call, libc::EACCES);
        }
    }
}

/// A tree with a file that is mostly a hole, longer than anybody could write or read in the time of a test.
#[test]
fn holes_are_saved_as_holes() {
    use std::os::unix::fs::{FileExt, MetadataExt};
    const LONG: u64 = 1 << 40;
    let place = Place::new("holes");
    sample(&place);
    place.good(&["pull", "-q", "--writable", "oci:image:t", "b"]);
    let in_b = |name: &str| place.join(format!("b/rootfs/{name}"));
    let pieces: [(u64, &[u8]); 3] = [(0, b"first"), ((1 << 39) + 77, &[7; 300_000]), (LONG - 4, b"last")];
    let file = std::fs::File::create(in_b("long")).unwrap();
    file.set_len(LONG).unwrap();
    pieces.iter().for_each(|(at, bytes)| file.write_all_at(bytes, *at).unwrap());
    std::fs::File::create(in_b("empty")).unwrap().set_len(1 << 30).unwrap();
    let is_right = |file: &Path, stored: u64| {
        let found = std::fs::File::open(file).unwrap();
        let metadata = found.metadata().unwrap();
        assert_eq!(metadata.len(), LONG, "{}", file.display());
        assert!(metadata.blocks() * 512 < stored, "{}: {} blocks", file.display(), metadata.blocks());
        for (at, bytes) in pieces {
            let mut read = vec![0; bytes.len() + 8];
            let from = at.saturating_sub(4);
            let n = found.read_at(&mut read, from).unwrap();
            assert_eq!(&read[(at - from) as usize..][..bytes.len()], bytes, "{n}");
        }
    };
    let start = std::time::Instant::now();
    for target in ["oci:layout:t", "oci-archive:a.tar", "docker-archive:d.tar"] {
        place.good(&["save", "-q", "b", target]);
        let bundle = format!("of-{}", &target[..3]);
        place.good(&["pull", "-q", target, &bundle]);
        is_right(&place.join(format!("{bundle}/rootfs/long")), 4 << 20);
        assert_eq!(place.join(format!("{bundle}/rootfs/empty")).metadata().unwrap().len(), 1 << 30);
        std::fs::remove_dir_all(place.join(&bundle)).unwrap();
    }
    assert!(place.join("a.tar").metadata().unwrap().len() < 4 << 20);
    // GNU tar reads the layer, too.
    std::fs::create_dir_all(place.join("d/x")).unwrap();
    let tar = |arguments: &[&str]| {
        let output = Command::new("tar").current_dir(place.join("d")).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let names = tar(&["-xvf", "../d.tar"]);
    let layer = names.lines().find(|name| name.ends_with(".tar")).unwrap();
    tar(&["-C", "x", "-xf", layer, "long", "empty"]);
    is_right(&place.join("d/x/long"), 4 << 20);
    // Image files.
    place.good(&["save", "-q", "b", "b.sqsh"]);
    place.good(&["convert", "-q", "oci-archive:a.tar", "c.sqsh"]);
    for image in ["b.sqsh", "c.sqsh"] {
        assert!(place.join(image).metadata().unwrap().len() < 4 << 20, "{image}");
    }
    if have("unsquashfs") {
        let mut command = Command::new("unsquashfs");
        command.current_dir(place.join(".")).args(["-n", "-q", "-d", "u", "b.sqsh", "empty", "f"]);
        assert!(command.output().unwrap().status.success());
        assert_eq!(place.join("u/empty").metadata().unwrap().len(), 1 << 30);
    }
    // Together they are no bomb.
    for n in 0..4 {
        std::fs::File::create(in_b(&format!("long{n}"))).unwrap().set_len(LONG).unwrap();
    }
    for target in ["oci:more:t", "more.sqsh"] {
        let said = place.bad(&["save", "-q", "b", target]);
        assert!(said.contains("more than 4 TiB"), "{said}");
    }
    assert!(start.elapsed().as_secs() < 120, "{:?}", start.elapsed());
}
