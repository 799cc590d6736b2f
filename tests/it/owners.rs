//! Owners that one id cannot give (`--root-emulation`): of `rt build`, as they are in the image's layers, and of
//! `rt run --as-root --overlay`.

use crate::build::{BASE, build, built, context, is_clean, put, refused, said};
use crate::fixture::{Ctx, Out};
use crate::runner::tests;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

tests! {
    ALL { owners_of_a_run_are_in_the_image }
    BOTH {
        what_is_recorded_is_told, links_and_names_share_an_owner,
    }
}

/// Builds `file`, and lists the entries of its layers: mode and kind as ls(1) shows them, owner, group, and for a device its number
/// in place of the size. A later layer's entry comes in place of an earlier one's.
fn layers(ctx: &Ctx, file: &str, flags: &[&str]) -> (BTreeMap<String, String>, Out) {
    let out = built(ctx, file, &[flags, &["-o", "oci:layout:t"]].concat());
    let entries = entries(ctx, "layout");
    fs::remove_dir_all(ctx.path("layout")).unwrap();
    (entries, out)
}

fn entries(ctx: &Ctx, layout: &str) -> BTreeMap<String, String> {
    let blob = |digest: &Value| {
        ctx.path(layout).join("blobs/sha256").join(&digest.as_str().unwrap()["sha256:".len()..])
    };
    let read = |path| -> Value { serde_json::from_slice(&fs::read(path).unwrap()).unwrap() };
    let manifest = read(blob(&read(ctx.path(layout).join("index.json"))["manifests"][0]["digest"]));
    let mut all = BTreeMap::new();
    for layer in manifest["layers"].as_array().unwrap() {
        let listed = Command::new("tar")
            .args(["--numeric-owner", "--full-time", "-tvzf"])
            .arg(blob(&layer["digest"]))
            .output()
            .unwrap();
        assert!(listed.status.success(), "{listed:?}");
        for line in String::from_utf8(listed.stdout).unwrap().lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let device = if "bc".contains(&words[0][..1]) { format!(" {}", words[2]) } else { String::new() };
            all.insert(
                words[5].trim_end_matches('/').to_owned(),
                format!("{} {}{device}", words[0], words[1]),
            );
        }
    }
    all
}

#[track_caller]
fn has(entries: &BTreeMap<String, String>, wanted: &[(&str, &str)]) {
    for (path, entry) in wanted {
        assert_eq!(entries.get(*path).map(String::as_str), Some(*entry), "{path} in {entries:?}");
    }
}

fn owners_of_a_run_are_in_the_image(ctx: &Ctx) {
    context(ctx);
    let file = format!(
        "{BASE}RUN [\"/probe\", \"write /x y\", \"chown /x 33 34\", \"mkdir /d\", \"chown /d 100 0\", \"write /root r\", \
         \"write /setuid s\", \"chown /setuid 0 42\", \"chmod /setuid 2541\", \"mknod /null 1 3\", \"mkdisk /disk 8 1\", \
         \"write /back b\", \"chown /back 5 5\", \"chown /back 0 0\", \"lstat /x\", \"lstat /null\"]\n\
         RUN chown /root 7 8\n"
    );
    let (entries, out) = layers(ctx, &file, &[]);
    has(
        &entries,
        &[
            ("x", "-rw-r--r-- 33/34"),
            ("d", "drwxr-xr-x 100/0"),
            ("root", "-rw-r--r-- 7/8"),
            ("setuid", "-rwsr-xr-x 0/42"),
            ("null", "crw-r--r-- 0/0 1,3"),
            ("disk", "brw------- 0/0 8,1"),
            ("back", "-rw-r--r-- 0/0"),
            ("probe", "-rwxr-xr-x 0/0"),
        ],
    );
    let lines = said(&out);
    let (x, null) = (&lines[13], &lines[14]);
    assert_eq!((&x["uid"], &x["gid"], &x["kind"]), (&json!(33), &json!(34), &json!("file")), "{out:?}");
    assert_eq!((&null["major"], &null["minor"]), (&json!(1), &json!(3)), "{out:?}");
    is_clean(ctx);
}

/// By every call that asks, and only in mode full.
fn what_is_recorded_is_told(ctx: &Ctx) {
    context(ctx);
    let steps = "RUN [\"/probe\", \"write /x y\", \"chown /x 33 34\", \"stat /x\"]\n";
    for (mode, told, kept) in [("full", 33, "33/34"), ("fast", 0, "33/34"), ("off", 0, "0/0")] {
        let (entries, out) = layers(ctx, &format!("{BASE}{steps}"), &["--root-emulation", mode]);
        assert_eq!(said(&out)[2]["uid"], told, "{mode}: {out:?}");
        has(&entries, &[("x", &format!("-rw-r--r-- {kept}"))]);
    }
    refused(build(ctx, BASE, &["--root-emulation", "half"]), &["half", "full, fast and off"]);
}

/// A record is the file's, whatever it is called.
fn links_and_names_share_an_owner(ctx: &Ctx) {
    context(ctx);
    put(ctx, "below", "from the layer below");
    let file = format!(
        "{BASE}COPY below /below\nRUN [\"/probe\", \"symlink below /to\", \"chown /to 3 4\", \"write /a a\", \"chown /a 5 6\", \"link /a /b\", \
         \"rename /a /c\", \"stat /b\", \"symlink nowhere /l\"]\n"
    );
    let (entries, out) = layers(ctx, &file, &[]);
    assert_eq!(said(&out)[6]["gid"], 6, "{out:?}");
    has(&entries, &[("below", "-rw-r--r-- 3/4"), ("b", "-rw-r--r-- 5/6"), ("c", "hrw-r--r-- 5/6")]);
}
