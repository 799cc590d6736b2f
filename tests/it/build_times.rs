//! `rt build`: the same files make the same image, byte for byte.

use crate::build::{BASE, build, built, bundle, context, put, refused, rt};
use crate::fixture::{Cmd, Ctx, Out};
use crate::runner::{skip, tests};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

tests! {
    ALL { every_user_makes_the_same_bytes }
    BOTH { the_same_bytes_twice, times_that_are_too_late, times_that_are_none, layers_by_zstd }
}

/// Makes the directory of builds and the store new, and the context, too.
fn elsewhere(ctx: &Ctx, cmd: Cmd, context: &str) -> Cmd {
    let copied = Command::new("cp").args(["-r", "context", context]).current_dir(&ctx.dir).status();
    assert!(copied.unwrap().success());
    let cmd = cmd.env("RT_BUILD_DIR", ctx.path("other-build")).env("RT_IMAGES", ctx.path("other-images"));
    cmd.env("RT_CACHE", ctx.path("other-cache"))
}

fn blobs(ctx: &Ctx, layout: &str) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(ctx.path(layout).join("blobs/sha256"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn the_same_bytes_twice(ctx: &Ctx) {
    context(ctx);
    put(ctx, "data/file", "text");
    put(
        ctx,
        "Containerfile",
        &format!(
            "{BASE}COPY data /data\nRUN [\"/probe\",\"write /made x\",\"mkdir /dir\",\"write /dir/in y\"]\n\
             RUN rm /data/file\nWORKDIR /w\nCOPY <<E /heredoc\ntext\nE\n"
        ),
    );
    for (n, how) in
        [["--timestamp", "1000000000"], ["--build-arg", "SOURCE_DATE_EPOCH=1000000000"]].iter().enumerate()
    {
        let (one, two, copy) = (format!("one{n}"), format!("two{n}"), format!("copy{n}"));
        let words = |layout: &str, context: &str| {
            let out = format!("oci:{layout}:t");
            [&["build"], &how[..], &["-t", "x", "-o", &out, context]].concat().join(" ")
        };
        let run = |words: String| rt(ctx, &words.split(' ').collect::<Vec<_>>());
        let first = run(words(&one, "context")).ok();
        std::thread::sleep(Duration::from_millis(1100));
        let second = elsewhere(ctx, run(words(&two, &copy)), &copy).ok();
        assert_eq!((&first.stdout, blobs(ctx, &one)), (&second.stdout, blobs(ctx, &two)), "{how:?}");
        // The layers of the cache make the same image as those that were just made.
        let third = run(words(&format!("three{n}"), "context")).ok();
        assert_eq!(first.stdout, third.stdout, "{how:?}");
    }
    // And without a time another one.
    assert_ne!(
        rt(ctx, &["build", "context"]).ok().stdout,
        rt(ctx, &["build", "--timestamp", "7", "context"]).ok().stdout
    );
    let file = |name: &str| rt(ctx, &["build", "--timestamp", "7", "-o", name, "context"]);
    file("one.sqsh").ok();
    std::thread::sleep(Duration::from_millis(1100));
    elsewhere(ctx, file("two.sqsh"), "copy").ok();
    assert!(fs::read(ctx.path("one.sqsh")).unwrap() == fs::read(ctx.path("two.sqsh")).unwrap());
}

/// What this image is depends on nothing but the file and the context: root and users make the same.
fn every_user_makes_the_same_bytes(ctx: &Ctx) {
    if cfg!(not(target_arch = "x86_64")) {
        skip!("the image names its architecture");
    }
    ctx.mkdir("context");
    put(ctx, "file", "text");
    let file = "FROM scratch\nCOPY --chown=7:8 file /dir/\nWORKDIR /w\nENV A=b\n";
    let out = built(ctx, file, &["--timestamp", "1700000000"]);
    assert_eq!(out.stdout.trim(), "sha256:6757e7aa6de5c54106b1b26aff285d7c70f03def15437bd667471e130b1b9417");
}

fn times_that_are_too_late(ctx: &Ctx) {
    let dir = context(ctx);
    for (name, time) in [("old", 5), ("new", 2_000_000_000)] {
        put(ctx, name, name);
        let file = fs::File::open(dir.join(name)).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(time)).unwrap();
    }
    let file = format!(
        "{BASE}ARG SOURCE_DATE_EPOCH\nCOPY old new /d/\nRUN [\"/probe\",\"env\",\"write /made x\"]\n"
    );
    let epoch = |cmd: Cmd| cmd.env("SOURCE_DATE_EPOCH", "1234567890");
    let times = |out: &Out| {
        ["d/old", "d/new", "made"]
            .map(|path| fs::metadata(bundle(ctx, out).join("rootfs").join(path)).unwrap().mtime())
    };
    let created = |out: &Out| {
        let image = fs::read(bundle(ctx, out).join("image.json")).unwrap();
        let image: serde_json::Value = serde_json::from_slice(&image).unwrap();
        let entry = image["history"].as_array().unwrap().last().unwrap()["created"].clone();
        assert_eq!(image["created"], entry);
        entry.as_str().unwrap()[..19].to_owned()
    };
    let out = epoch(build(ctx, &file, &[])).ok();
    assert_eq!(times(&out), [5, 1_234_567_890, 1_234_567_890]);
    assert_eq!(created(&out), "2009-02-13T23:31:30");
    assert!(out.stderr.contains("\"SOURCE_DATE_EPOCH\":\"1234567890\""), "{out:?}");
    assert!(!out.stderr.contains("--build-arg"), "{out:?}");
    // The argument counts more than the variable, and the flag more than both.
    let argument = ["--build-arg", "SOURCE_DATE_EPOCH=7"];
    let out = epoch(build(ctx, &file, &argument)).ok();
    assert_eq!((times(&out), created(&out).as_str()), ([5, 7, 7], "1970-01-01T00:00:07"));
    let out = epoch(build(ctx, &file, &[&argument[..], &["--timestamp", "9"]].concat())).ok();
    assert_eq!((times(&out), created(&out).as_str()), ([9, 9, 9], "1970-01-01T00:00:09"));
    // A file can say it for all of its images.
    let out = built(
        ctx,
        &format!("ARG SOURCE_DATE_EPOCH=6\n{BASE}COPY old new made /d/\n").replace(" made", ""),
        &[],
    );
    assert_eq!(created(&out), "1970-01-01T00:00:06");
}

fn times_that_are_none(ctx: &Ctx) {
    context(ctx);
    for bad in ["-1", "x", "1e9", "999999999999", "1.5"] {
        refused(build(ctx, BASE, &["--timestamp", bad]), &["--timestamp", bad, "seconds since 1970"]);
        let argument = format!("SOURCE_DATE_EPOCH={bad}");
        refused(build(ctx, BASE, &["--build-arg", &argument]), &["SOURCE_DATE_EPOCH", bad]);
    }
    // As a variable that is not set.
    build(ctx, BASE, &[]).env("SOURCE_DATE_EPOCH", "").ok();
}

fn layers_by_zstd(ctx: &Ctx) {
    context(ctx);
    let sniff = |layout: &str, kind: &str, magic: &[u8]| {
        let blob = |digest: &serde_json::Value| {
            fs::read(ctx.path(layout).join("blobs/sha256").join(&digest.as_str().unwrap()[7..])).unwrap()
        };
        let json = |bytes: Vec<u8>| serde_json::from_slice::<serde_json::Value>(&bytes).unwrap();
        let index = json(fs::read(ctx.path(layout).join("index.json")).unwrap());
        let layer = json(blob(&index["manifests"][0]["digest"]))["layers"][0].clone();
        assert_eq!(layer["mediaType"], format!("application/vnd.oci.image.layer.v1.tar+{kind}"));
        assert!(blob(&layer["digest"]).starts_with(magic));
    };
    built(ctx, BASE, &["--compression", "zstd", "-o", "oci:small:t"]);
    sniff("small", "zstd", &[0x28, 0xb5, 0x2f, 0xfd]);
    rt(ctx, &["pull", "--verify", "oci:small:t", "pulled"]).ok();
    assert!(ctx.path("pulled/rootfs/probe").exists());
    built(ctx, BASE, &["-o", "oci:usual:t"]);
    sniff("usual", "gzip", &[0x1f, 0x8b]);
    refused(build(ctx, BASE, &["--compression", "xz"]), &["--compression xz", "gzip or zstd"]);
}
