//! `rt build`: what an error names, and how much of it is shown.

use crate::build::{BASE, build, built, context, put, refused};
use crate::client::Caller;
use crate::fixture::Ctx;
use crate::runner::{skip, tests};
use crate::sys::Step;
use serde_json::{Value, json};
use std::ffi::CString;
use std::fs;
use std::os::unix::fs::MetadataExt;

tests! {
    BOTH { volumes_are_absolute, a_full_disk_is_named, long_commands_are_cut, times_of_entries_without_a_layer }
}

fn volumes_are_absolute(ctx: &Ctx) {
    context(ctx);
    for path in ["data", "/a/../b", "$NONE"] {
        let file = format!("FROM scratch\nCOPY base /\nVOLUME [\"/good\", \"{path}\"]\n");
        refused(build(ctx, &file, &[]), &["line 3: VOLUME", "not an absolute path"]);
    }
}

/// What has no room is named, as what it was copied from.
fn a_full_disk_is_named(ctx: &Ctx) {
    if !Caller::tests_are_root() {
        skip!("only root mounts what is small");
    }
    context(ctx);
    put(ctx, "large", &"x".repeat(3 << 20));
    let small = ctx.mkdir("small");
    let path = CString::new(small.to_str().unwrap()).unwrap();
    let tmpfs = || c"tmpfs".to_owned();
    let options =
        CString::new(format!("size=2m,mode=0700,uid={}", fs::metadata(&ctx.dir).unwrap().uid())).unwrap();
    let private = Step::Mount(
        c"none".to_owned(),
        c"/".to_owned(),
        c"".to_owned(),
        libc::MS_REC | libc::MS_PRIVATE,
        c"".to_owned(),
    );
    let steps = [Step::Unshare(libc::CLONE_NEWNS), private, Step::Mount(tmpfs(), path, tmpfs(), 0, options)];
    let cmd = build(ctx, "FROM scratch\nCOPY large /to\n", &[]).env("RT_BUILD_DIR", small.join("b"));
    let out = refused(
        cmd.before(steps),
        &["line 2: COPY large /to", "\"large\" in the context", "o space left on device"],
    );
    assert!(out.stderr.contains("/to: ") && !out.stderr.contains("write :"), "{out:?}");
}

/// An error that names an instruction shows its beginning, as each step does.
fn long_commands_are_cut(ctx: &Ctx) {
    context(ctx);
    let long = "ü ".repeat(20_000);
    let file = format!("{BASE}RUN [\"/probe\",\"exit 3\",\"{long}\"]\n");
    let out = refused(build(ctx, &file, &[]), &["line 4: RUN [\"/probe\",\"exit 3\"", "...: exit code 3"]);
    assert!(out.stderr.len() < 2000, "{}", out.stderr.len());
}

/// An entry without a layer is as old as the first layer of the build.
fn times_of_entries_without_a_layer(ctx: &Ctx) {
    context(ctx);
    let history = |file: &str, flags: &[&str]| -> Vec<Value> {
        let out = built(ctx, file, flags);
        let image = fs::read(crate::build::bundle(ctx, &out).join("image.json")).unwrap();
        serde_json::from_slice::<Value>(&image).unwrap()["history"].as_array().unwrap().clone()
    };
    let file = format!("{BASE}ENV A=b\nRUN write /x y\nCMD [\"x\"]\n");
    let entries = history(&file, &["-t", "base"]);
    let first = &entries[0]["created"];
    assert!(first.is_string(), "{entries:?}");
    for entry in entries.iter().filter(|entry| entry["empty_layer"] == json!(true)) {
        assert_eq!(&entry["created"], first, "{entries:?}");
    }
    for file in ["FROM base\nENV C=d\n", "FROM scratch\nCOPY base /\nENV C=d\n"] {
        let entries = history(file, &[]);
        assert!(entries.iter().all(|entry| entry["created"].is_string()), "{entries:?}");
        let entries = history(file, &["--build-arg", "SOURCE_DATE_EPOCH=0"]);
        assert_eq!(entries.last().unwrap()["created"], "1970-01-01T00:00:00.000000000Z", "{entries:?}");
    }
}
