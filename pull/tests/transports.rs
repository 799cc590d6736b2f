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
    assert!(place.bad(&["save", "b", "oci:saved:v1"]).contains("exists"));
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
    let config = json!({ "User": "web", "Cmd": ["/bin/x"], "Env": ["A=b", "RT_MOUNTS=/home", "RT_X=1"] });
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
    assert!(env.contains("RT_X=1") && !env.contains("RT_MOUNTS"), "{env}");
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
