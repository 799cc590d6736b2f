//! `rt build`: where its results go, and what is there already.

use crate::build::{BASE, build, built, context, refused, rt};
use crate::client::Caller;
use crate::fixture::{Ctx, Out};
use crate::runner::tests;
use crate::sys;
use serde_json::{Value, json};
use std::fs;
use std::io::Read;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};

tests! {
    BOTH { digests_go_through_no_link, digests_to_what_is_no_file, layouts_lose_no_image, images_are_saved_by_name, what_is_no_image_stays }
}

/// No instruction was done.
#[track_caller]
fn is_told_first(out: &Out) {
    assert!(!out.stderr.lines().any(|line| line.starts_with('[')), "{out:?}");
}

fn names(ctx: &Ctx, dir: &str) -> Vec<String> {
    let entries = fs::read_dir(ctx.path(dir)).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// In a directory where others write, they choose no file that the digest is written to.
fn digests_go_through_no_link(ctx: &Ctx) {
    context(ctx);
    let precious = ctx.file("precious", "precious");
    fs::set_permissions(ctx.mkdir("team"), fs::Permissions::from_mode(0o777)).unwrap();
    symlink(&precious, ctx.path("team/id")).unwrap();
    let build = |file: &str| build(ctx, BASE, &["--iidfile", file]).before([sys::Step::Umask(0o027)]);
    for _ in 0..2 {
        let out = build("team/id").ok();
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
        let made = fs::symlink_metadata(ctx.path("team/id")).unwrap();
        assert!(made.is_file(), "{made:?}");
        assert_eq!(made.permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_to_string(ctx.path("team/id")).unwrap(), out.stdout.trim());
        assert_eq!(names(ctx, "team"), ["id"]);
    }
    for (file, why) in
        [("gone/id", "gone"), ("team", "neither a file nor a pipe"), ("precious/id", "precious")]
    {
        is_told_first(&refused(build(file), &["--iidfile", why]));
    }
    if Caller::tests_are_root() {
        let dir = ctx.mkdir("sticky");
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o1777)).unwrap();
        fs::write(dir.join("file"), "").unwrap();
        symlink("file", dir.join("link")).unwrap();
        sys::mkfifo(&dir.join("pipe")).unwrap();
        for place in ["", "file", "link", "pipe"] {
            std::os::unix::fs::lchown(dir.join(place), Some(12345), Some(12345)).unwrap();
        }
        for name in ["file", "link"] {
            let why = ["--iidfile sticky/", "it belongs to uid 12345, and only its owner may replace it"];
            is_told_first(&refused(build(&format!("sticky/{name}")), &why));
        }
        // Root may open it, and nobody reads it.
        let out = build("sticky/pipe").run();
        assert!(out.code != 0, "{out:?}");
        if ctx.caller != Caller::Root {
            is_told_first(&refused(build("sticky/pipe"), &["it is not for the caller to write"]));
        }
    }
}

fn digests_to_what_is_no_file(ctx: &Ctx) {
    context(ctx);
    let pipe = ctx.path("pipe");
    sys::mkfifo(&pipe).unwrap();
    ctx.give(&pipe);
    let build = |file: &str| build(ctx, BASE, &["--iidfile", file]);
    // Nobody reads it, and nobody would be waited for.
    refused(build("pipe"), &["pipe", "no such device or address"]);
    let mut reader = fs::File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&pipe).unwrap();
    let out = build("pipe").ok();
    let mut read = String::new();
    reader.read_to_string(&mut read).unwrap();
    assert_eq!(read, out.stdout.trim());
    let digest = read;
    // Behind what is there, as every other write to it.
    for stream in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
        assert_eq!(build(stream).ok().stdout, format!("{digest}{digest}\n"), "{stream}");
    }
    build("/dev/null").ok();
}

fn images_are_saved_by_name(ctx: &Ctx) {
    context(ctx);
    built(ctx, &format!("{BASE}CMD [\"/probe\", \"say hello\"]\n"), &["-t", "mine"]);
    rt(ctx, &["save", "-q", "--compress", "gzip:1", "mine", "mine.sqsh"]).ok();
    // Which compression it has (squashfs, superblock).
    assert_eq!(fs::read(ctx.path("mine.sqsh")).unwrap()[20], 1);
    // Whichever program is in front of the image.
    fs::copy("/bin/true", ctx.path("rt-image")).unwrap();
    rt(ctx, &["save", "-q", "--runfile", "program", "mine"]).ok();
    assert!(fs::metadata(ctx.path("program")).unwrap().permissions().mode() & 0o100 != 0);
    rt(ctx, &["pull", "--store", "--compress", "gzip", "mine"]).fails(&["--compress is for an image file"]);
}

fn layouts_lose_no_image(ctx: &Ctx) {
    context(ctx);
    let file = format!("{BASE}RUN write /a 1\n");
    let index = || fs::read_to_string(ctx.path("layout/index.json")).unwrap();
    for name in ["oci:layout:1", "oci:layout:1"] {
        built(ctx, &file, &["-o", name]);
    }
    let before = index();
    for (name, base) in [("oci:layout:2", "FROM gone\n"), ("oci:layout", &file)] {
        let texts = ["--output: layout: has other images", ": 1 (name another directory)"];
        is_told_first(&refused(build(ctx, base, &["-o", name]), &texts));
    }
    assert_eq!(index(), before);
    // Of many a few are named, and one without a name by its digest.
    let value: Value = serde_json::from_str(&before).unwrap();
    let entry = |tag: &str| {
        let mut entry = value["manifests"][0].clone();
        entry["annotations"] = json!({ "org.opencontainers.image.ref.name": tag });
        entry
    };
    let mut nameless = entry("");
    nameless.as_object_mut().unwrap().remove("annotations");
    let put = |entries: Vec<Value>| {
        ctx.file("layout/index.json", &json!({ "schemaVersion": 2, "manifests": entries }).to_string())
    };
    put(["1", "2", "2", "3", "4", "5"].map(entry).to_vec());
    refused(build(ctx, &file, &["-o", "oci:layout:1"]), &[": 2, 3, 4 and 1 more (name another"]);
    put(vec![nameless]);
    refused(build(ctx, &file, &["-o", "oci:layout:1"]), &["lost: sha256:"]);
    built(ctx, &file, &["-o", "oci:layout"]);
    put(vec![]);
    built(ctx, &file, &["-o", "oci:layout:6"]);
    assert!(index().contains("\"6\""));
}

fn what_is_no_image_stays(ctx: &Ctx) {
    context(ctx);
    ctx.mkdir("data");
    ctx.file("data/mine", "mine");
    ctx.file("mine.sqsh", "mine");
    for (output, why) in [
        ("-", "no image is written to standard output (./- is a file of that name)"),
        ("dest=-", "no image is written to standard output"),
        ("data", "data: exists, and is not a bundle"),
        ("mine.sqsh", "mine.sqsh: exists, and is not an image file"),
        ("oci:data", "data: exists, and is not an OCI layout"),
        ("oci-archive:data", "data: exists, and is not a file"),
        ("gone/made", "gone"),
    ] {
        let out = refused(build(ctx, BASE, &["-o", output]), &[why]);
        is_told_first(&out);
        assert!(!out.stderr.contains("--force"), "{out:?}");
    }
    assert_eq!(names(ctx, "data"), ["mine"]);
    assert!(!ctx.path("-").exists());
}
