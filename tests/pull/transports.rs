//! Layouts, archives and images saved back, with skopeo and podman as the other side.

use std::process::Command;

use super::image::{Image, Layer};
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
