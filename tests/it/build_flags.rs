//! `rt build`: flags that docker's and podman's users know.

use crate::build::{BASE, build, built, cached, context, is_clean, refused, said};
use crate::build_stages::two_stages;
use crate::fixture::Ctx;
use crate::runner::tests;
use serde_json::{Value, json};
use std::fs;

tests! {
    BOTH {
        annotations_of_the_manifest, outputs_in_dockers_words, metadata_for_programs, bases_as_pull_says, stages_without_the_cache,
        stages_one_by_one, hosts_of_run, what_is_not_supported_says_why,
    }
}

fn manifest(ctx: &Ctx, layout: &str) -> Value {
    let read = |path: &str| -> Value {
        serde_json::from_slice(&fs::read(ctx.path(layout).join(path)).unwrap()).unwrap()
    };
    let digest = read("index.json")["manifests"][0]["digest"].as_str().unwrap().to_owned();
    read(&format!("blobs/{}", digest.replacen(':', "/", 1)))
}

fn annotations_of_the_manifest(ctx: &Ctx) {
    context(ctx);
    let flags = ["-o", "oci:layout:t", "--annotation", "a.b=c=d", "--annotation", "manifest:e="];
    let out = built(ctx, BASE, &flags);
    assert_eq!(manifest(ctx, "layout")["annotations"], json!({ "a.b": "c=d", "e": "" }));
    // They are part of what the digest stands for, and no layer is made anew for them.
    let other = built(ctx, BASE, &["-t", "x", "--annotation", "a.b=other"]);
    assert_eq!(cached(&other), (1, 0));
    assert_ne!(out.stdout, other.stdout);
    assert_eq!(built(ctx, BASE, &["-t", "x", "--annotation", "a.b=other"]).stdout, other.stdout);
    refused(build(ctx, BASE, &["--annotation", "index:a=b"]), &["--annotation index:a=b", "manifest"]);
    is_clean(ctx);
}

fn outputs_in_dockers_words(ctx: &Ctx) {
    context(ctx);
    for (text, made) in [
        ("type=oci,dest=a.tar", "a.tar"),
        ("type=oci,tar=false,dest=layout", "layout/index.json"),
        ("type=docker,dest=b.tar", "b.tar"),
    ] {
        built(ctx, BASE, &["-o", text]);
        assert!(ctx.path(made).is_file(), "{text}");
    }
    assert!(!ctx.path("images/names").exists());
    built(ctx, BASE, &["-t", "x", "--output", "type=docker"]);
    assert!(ctx.path("images/names").exists());
    refused(
        build(ctx, BASE, &["-o", "type=local,dest=out"]),
        &["--output type=local,dest=out: not supported", "DIR/rootfs"],
    );
    refused(build(ctx, BASE, &["-o", "type=registry"]), &["rt push NAME"]);
}

fn metadata_for_programs(ctx: &Ctx) {
    context(ctx);
    let out = built(ctx, BASE, &["-t", "x", "-t", "y:2", "--metadata-file", "m.json"]);
    let text: Value = serde_json::from_slice(&fs::read(ctx.path("m.json")).unwrap()).unwrap();
    assert_eq!(text, json!({ "containerimage.digest": out.stdout.trim(), "image.name": "x,y:2" }));
    refused(build(ctx, BASE, &["--metadata-file", "gone/m"]), &["--metadata-file gone/m"]);
}

fn bases_as_pull_says(ctx: &Ctx) {
    context(ctx);
    built(ctx, BASE, &["-t", "localhost:1/base"]);
    for flag in ["--pull=never", "--pull=missing", "--pull=false"] {
        built(ctx, "FROM localhost:1/base\nENV A=b\n", &[flag]);
    }
    for flag in ["--pull", "--pull=always", "--pull=true", "--pull=newer"] {
        refused(
            build(ctx, "FROM localhost:1/base\n", &[flag, "--retries=0"]),
            &["line 1: FROM localhost:1/base"],
        );
    }
    refused(build(ctx, "FROM localhost:1/none\n", &["--pull=never"]), &["line 1: FROM localhost:1/none"]);
    refused(build(ctx, BASE, &["--pull=maybe"]), &["--pull=maybe: use always, missing or never"]);
}

fn stages_without_the_cache(ctx: &Ctx) {
    context(ctx);
    let from = |name: &str| BASE.replacen("scratch", &format!("scratch AS {name}"), 1);
    let file = format!(
        "{}RUN write /a 1\n{}RUN write /b 1\nFROM scratch\nCOPY --from=A /a /\nCOPY --from=b /b /\n",
        from("A"),
        from("b")
    );
    let steps = |flags: &[&str]| cached(&built(ctx, &file, &[&["--jobs=1"], flags].concat()));
    // Both stages begin in the same way.
    assert_eq!(steps(&[]), (1, 5));
    assert_eq!(steps(&[]), (6, 0));
    // What is copied of it is the same; the other stage begins with a layer that was made anew.
    assert_eq!(steps(&["--no-cache-filter", "a,none"]), (3, 3));
    assert_eq!(steps(&["--no-cache-filter", "a", "--no-cache-filter=B,2"]), (0, 6));
}

fn stages_one_by_one(ctx: &Ctx) {
    context(ctx);
    let file = two_stages();
    let out = built(ctx, &file, &["--jobs", "1"]);
    // Lines of stages that are built side by side have a prefix.
    assert!(out.stderr.contains("\n\"in-a\"\n") && out.stderr.contains("\n\"in-b\"\n"), "{out:?}");
    built(ctx, &file, &["--jobs=0", "--no-cache"]);
}

fn hosts_of_run(ctx: &Ctx) {
    context(ctx);
    let file = format!("{BASE}RUN cat /etc/hosts\n");
    let hosts = fs::read_to_string("/etc/hosts").unwrap_or_default();
    let added = ["--add-host", "db:192.0.2.7", "--add-host=six:[2001:db8::1]"];
    let seen = said(&built(ctx, &file, &added));
    assert_eq!(seen, [json!(format!("192.0.2.7\tdb\n2001:db8::1\tsix\n{hosts}"))]);
    // Names count in the key, and addresses do not.
    let others = ["--add-host", "db:192.0.2.8", "--add-host=six:::2"];
    assert_eq!(cached(&built(ctx, &file, &others)), (2, 0));
    assert_eq!(cached(&built(ctx, &file, &added[..2])), (1, 1));
    assert_eq!(cached(&built(ctx, &file, &[])), (1, 1));
    refused(build(ctx, &file, &["--add-host", "db"]), &["--add-host db: use NAME:ADDRESS"]);
    is_clean(ctx);
}

fn what_is_not_supported_says_why(ctx: &Ctx) {
    context(ctx);
    built(ctx, BASE, &["--format", "oci", "--isolation=oci"]);
    for (flag, why) in [
        ("--format=docker", "-o docker-archive:FILE writes docker's form"),
        ("--isolation=chroot", "--isolation chroot is not supported: each RUN is a container of rt"),
        ("--push", "rt push NAME after it"),
        ("--add-host=db:host-gateway", "localhost is the host"),
    ] {
        refused(build(ctx, BASE, &[flag]), &[why]);
    }
}
