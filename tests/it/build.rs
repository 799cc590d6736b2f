//! `rt build`: each instruction, the cache, stages, mounts of RUN, and files that mean harm.

use crate::client::Caller;
use crate::devices::definition;
use crate::fixture::{Cmd, Ctx, Out, errno, eventually};
use crate::images::{give_to, search_path};
use crate::runner::{skip, tests};
use crate::sys;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

tests! {
    ALL { an_image_is_built_and_run, run_is_root_of_one_id, flags_of_docker }
    BOTH {
        what_the_config_says, layers_and_history, nothing_is_done_twice, what_changes_is_done_again, stages_that_are_needed,
        base_images, images_stay_while_a_build_runs, copies_follow_the_rules, archives_are_unpacked, what_begins_as_an_archive_is_one, volumes_are_as_the_image_has_them, images_share_files, shared_files_are_not_written_to, holes_stay_holes, heredocs, users_and_directories, a_command_that_fails, mount_points_are_in_no_layer,
        what_is_not_there_is_refused, destinations_over_links, links_lead_nowhere, ctrl_c_leaves_the_cache, a_killed_build_leaves_no_command, mounts_of_run, mounts_stay_as_they_were, mounts_of_images_of_somebody_else, owners_of_mounts, caches_of_one_run, archives_are_what_their_key_says, no_hooks_in_builds, secrets_stay_secret, files_of_the_caller_are_read_first,
        layers_are_pruned, places_for_builds, outputs_of_every_kind, outputs_follow_the_umask, modes_are_narrowed_under_each_name, triggers_run_once,
    }
    USER { places_of_somebody_else, bases_of_somebody_else }
}

/// The beginning of most files: the tests' program as the shell.
pub const BASE: &str = "FROM scratch\nCOPY base /\nSHELL [\"/probe\"]\n";

/// `rt` with a store, a cache and a place for builds of the test's own.
pub fn rt(ctx: &Ctx, words: &[&str]) -> Cmd {
    let rt = ctx.rt_path();
    let cmd = ctx.rt(words).env("PATH", format!("{}:{}", rt.parent().unwrap().display(), search_path(ctx)));
    let cmd = cmd.env("RT_IMAGES", ctx.path("images")).env("RT_CACHE", ctx.path("cache"));
    cmd.env("RT_BUILD_DIR", ctx.path("build")).cwd(&ctx.dir)
}

/// A context with the tests' program.
pub fn context(ctx: &Ctx) -> PathBuf {
    let dir = ctx.mkdir("context");
    // The tests' program, and what it is linked with.
    let root = ctx.bare_bundle().rootfs();
    assert!(Command::new("cp").arg("-a").arg(root).arg(dir.join("base")).status().unwrap().success());
    dir
}

/// Writes a file of the context.
pub fn put(ctx: &Ctx, name: &str, text: &str) {
    let path = Path::new("context").join(name);
    if let Some(parent) = path.parent().filter(|parent| *parent != Path::new("context")) {
        for dir in parent.ancestors().collect::<Vec<_>>().into_iter().rev().skip(2) {
            if !ctx.path(dir.to_str().unwrap()).exists() {
                ctx.mkdir(dir.to_str().unwrap());
            }
        }
    }
    ctx.file(path.to_str().unwrap(), text);
}

pub fn build(ctx: &Ctx, file: &str, flags: &[&str]) -> Cmd {
    put(ctx, "Containerfile", file);
    rt(ctx, &[&["build"], flags, &["context"]].concat())
}

/// A build that must fail, its steps aside with one line that has each of `texts`.
#[track_caller]
pub fn refused(cmd: Cmd, texts: &[&str]) -> Out {
    let out = cmd.run();
    assert_ne!(out.code, 0, "should have failed: {out:?}");
    let errors: Vec<&str> = out.stderr.lines().filter(|line| line.starts_with("rt: ")).collect();
    assert_eq!(errors.len(), 1, "{out:?}");
    for text in texts {
        assert!(errors[0].contains(text), "stderr lacks {text:?}: {out:?}");
    }
    out
}

#[track_caller]
pub fn built(ctx: &Ctx, file: &str, flags: &[&str]) -> Out {
    build(ctx, file, flags).ok()
}

/// The lines of a build that say what the program in RUN has said.
pub fn said(out: &Out) -> Vec<Value> {
    out.stderr.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// How many instructions of a build came from the cache, and how many did not.
pub fn cached(out: &Out) -> (usize, usize) {
    let steps = out.stderr.lines().filter(|line| line.starts_with('['));
    let (hit, miss): (Vec<_>, Vec<_>) = steps.partition(|line| line.ends_with(": cached"));
    (hit.len(), miss.len())
}

/// The bundle of the image that a build has printed the digest of.
pub fn bundle(ctx: &Ctx, out: &Out) -> PathBuf {
    ctx.path("images/bundles").join(out.stdout.trim().replacen(':', "-", 1))
}

fn config(ctx: &Ctx, out: &Out) -> Value {
    serde_json::from_slice(&fs::read(bundle(ctx, out).join("image.json")).unwrap()).unwrap()
}

fn read(ctx: &Ctx, out: &Out, path: &str) -> String {
    fs::read_to_string(bundle(ctx, out).join("rootfs").join(path)).unwrap_or_else(|e| format!("{path}: {e}"))
}

/// Nothing is left of a build but what is to stay.
pub fn is_clean(ctx: &Ctx) {
    assert_eq!(fs::read_dir(ctx.path("build/sessions")).unwrap().count(), 0);
    assert_eq!(ctx.rt(["list", "-q"]).ok().stdout, "");
}

fn an_image_is_built_and_run(ctx: &Ctx) {
    context(ctx);
    let file = format!("{BASE}RUN write /made hello\nENTRYPOINT [\"/probe\"]\nCMD [\"cat /made\"]\n");
    let out = built(ctx, &file, &["-t", "mine", "-t", "team/mine:2", "--iidfile", "id"]);
    assert_eq!(fs::read_to_string(ctx.path("id")).unwrap(), out.stdout.trim());
    for name in ["mine", "docker.io/library/mine:latest", "team/mine:2"] {
        assert_eq!(rt(ctx, &["run", "--pull", "never", name]).ok().line(0), "hello");
    }
    let digests = rt(ctx, &["images", "-q"]).ok().stdout;
    assert_eq!(digests.trim(), out.stdout.trim());
    is_clean(ctx);
}

fn run_is_root_of_one_id(ctx: &Ctx) {
    context(ctx);
    let run = r#"RUN ["/probe","id","write /x y","chown /x 33 33","lstat /x","mkdir /d","cwd","umask","status","exists /etc/resolv.conf"]"#;
    let out = built(ctx, &format!("{BASE}WORKDIR /w\n{run}\n"), &[]);
    let said = said(&out);
    assert_eq!((&said[0]["uid"], &said[0]["gid"]), (&json!([0, 0, 0]), &json!([0, 0, 0])), "{out:?}");
    assert_eq!(
        (&said[2], &said[4], &said[5], &said[6]),
        (&Value::Null, &Value::Null, &json!("/w"), &json!(0o022)),
        "{out:?}"
    );
    // A filter of the config's, and one of rt's own for what no namespace keeps apart.
    assert_eq!(said[7]["Seccomp_filters"], "2", "{out:?}");
    if ctx.caller == Caller::Root {
        // unshare is 272 on x86_64, and CLONE_NEWUSER 0x10000000.
        let out = built(ctx, &format!("{BASE}RUN syscall 272 0x10000000\n"), &[]);
        assert_eq!(self::said(&out), [errno(libc::EPERM)], "{out:?}");
    }
    // Mount points that only RUN needed are in no layer.
    let root = bundle(ctx, &out).join("rootfs");
    assert_eq!(fs::read(root.join("x")).unwrap(), b"y");
    let top: Vec<_> = fs::read_dir(ctx.path("build/layers"))
        .unwrap()
        .flatten()
        .flat_map(|layer| fs::read_dir(layer.path().join("upper")).unwrap().flatten())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    for name in ["proc", "sys", "dev", "etc"] {
        assert!(!top.contains(&name.to_owned()), "{name} in {top:?}");
    }
}

fn flags_of_docker(ctx: &Ctx) {
    context(ctx);
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let platform = format!("linux/{arch}");
    let run = "[\"/probe\",\"readlink /proc/self/ns/net\"]";
    let file = format!("{BASE}RUN {run}\nRUN --network=default {run}\nRUN --network=host {run}\n");
    let own = |network: &[&str]| {
        let flags = ["--rm", "--force-rm=false", "--layers", "--platform", &platform];
        let out = built(ctx, &file, &[&flags[..], network].concat());
        let said = said(&out);
        let host = &said[2];
        (&said[0] != host, &said[1] != host)
    };
    assert_eq!(own(&["--network", "none"]), (true, true));
    // Another network is another layer.
    assert_eq!(own(&["--network", "host"]), (false, false));
    for (flags, why) in [
        (["--network", "bridge"], "--network bridge is not supported: use host or none"),
        (["--platform", "linux/s390x"], "--platform=linux/s390x is not supported: it is not this machine's"),
        (["--squash", "-q"], "unknown flag --squash (rt build -o FILE.sqsh"),
    ] {
        build(ctx, BASE, &flags).fails(&[why]);
    }
}

fn what_the_config_says(ctx: &Ctx) {
    context(ctx);
    let file = r#"ARG WORD=first
FROM scratch
ARG WORD
ARG OTHER=$WORD-x
MAINTAINER me
ENV A=1 B="two  words" C=$OTHER
ENV A=2 D=$A
ENV E one two
LABEL l.one=$A "l two"='$A'
EXPOSE 80 8000-8001/udp $A
VOLUME /data /$A
STOPSIGNAL SIG${NONE:-INT}
HEALTHCHECK --interval=2s CMD check it
ENTRYPOINT ["/e", "$A"]
CMD run $A
USER 7:8
ONBUILD RUN x
"#;
    let out = built(ctx, file, &["--label", "from=flag"]);
    let image = config(ctx, &out);
    let config = &image["config"];
    let path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    assert_eq!(config["Env"], json!([path, "A=2", "B=two  words", "C=first-x", "D=1", "E=one two"]));
    assert_eq!(config["Labels"], json!({ "l.one": "2", "l two": "$A", "from": "flag" }));
    assert_eq!(config["ExposedPorts"], json!({ "80/tcp": {}, "8000/udp": {}, "8001/udp": {}, "2/tcp": {} }));
    assert_eq!(config["Volumes"], json!({ "/data": {}, "/2": {} }));
    assert_eq!(config["StopSignal"], "SIGINT");
    assert_eq!(
        config["Healthcheck"],
        json!({ "Test": ["CMD-SHELL", "check it"], "Interval": 2_000_000_000u64 })
    );
    assert_eq!(config["Entrypoint"], json!(["/e", "$A"]));
    assert_eq!(config["Cmd"], json!(["/bin/sh", "-c", "run $A"]));
    assert_eq!((&config["User"], &config["OnBuild"]), (&json!("7:8"), &json!(["RUN x"])));
    assert_eq!((&image["author"], &image["os"]), (&json!("me"), &json!("linux")));
    // A value of the command line counts more than that of the file, and one that nothing asks for is said.
    let out = built(ctx, file, &["--build-arg", "WORD=second", "--build-arg", "NONE=x"]);
    assert_eq!(self::config(ctx, &out)["config"]["Env"][3], "C=second-x");
    assert!(out.stderr.contains("--build-arg NONE"), "{out:?}");
}

fn layers_and_history(ctx: &Ctx) {
    context(ctx);
    let file = format!("{BASE}ENV A=b\nRUN write /a 1\nWORKDIR /w\nARG X=y\nRUN rm /a\n");
    let out = built(ctx, &file, &["-o", "oci:layout:t"]);
    let blob = |digest: &Value| {
        fs::read(ctx.path("layout/blobs/sha256").join(&digest.as_str().unwrap()[7..])).unwrap()
    };
    let index: Value = serde_json::from_slice(&fs::read(ctx.path("layout/index.json")).unwrap()).unwrap();
    let manifest: Value = serde_json::from_slice(&blob(&index["manifests"][0]["digest"])).unwrap();
    let image: Value = serde_json::from_slice(&blob(&manifest["config"]["digest"])).unwrap();
    let layers = manifest["layers"].as_array().unwrap();
    let history = image["history"].as_array().unwrap();
    let with_layer: Vec<&str> = history
        .iter()
        .filter(|entry| entry["empty_layer"] != json!(true))
        .map(|entry| entry["created_by"].as_str().unwrap())
        .collect();
    assert_eq!(
        with_layer,
        [
            "COPY base / # buildkit",
            "RUN /probe write /a 1 # buildkit",
            "WORKDIR /w",
            "RUN |1 X=y /probe rm /a # buildkit"
        ]
    );
    assert_eq!((layers.len(), image["rootfs"]["diff_ids"].as_array().unwrap().len()), (4, 4));
    // With --verify a pull compares each layer with its diff_id; and what a layer removes is gone.
    rt(ctx, &["pull", "--verify", "oci:layout:t", "pulled"]).ok();
    let root = ctx.path("pulled/rootfs");
    assert!(root.join("probe").exists() && root.join("w").exists() && !root.join("a").exists(), "{out:?}");
}

fn nothing_is_done_twice(ctx: &Ctx) {
    let dir = context(ctx);
    put(ctx, "data/file", "one");
    let file = format!("{BASE}RUN write /a 1\nCOPY data /data\nENV X=1\nWORKDIR /w\nRUN write /b 2\n");
    let first = built(ctx, &file, &["-t", "x"]);
    assert_eq!(cached(&first), (0, 5), "{first:?}");
    let names = |dir: &str| {
        let mut names: Vec<_> =
            fs::read_dir(ctx.path(dir)).unwrap().flatten().map(|e| e.file_name()).collect();
        names.sort();
        names
    };
    let layers = names("build/layers");
    // Times do not count.
    fs::File::open(dir.join("data/file")).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    let second = built(ctx, &file, &["-t", "y"]);
    assert_eq!((cached(&second), &second.stdout), ((5, 0), &first.stdout), "{second:?}");
    assert_eq!(names("build/layers"), layers);
    assert_eq!(names("images/bundles").len(), 1);
    let again = built(ctx, &file, &["--no-cache", "-t", "x"]);
    assert_eq!(cached(&again), (0, 5), "{again:?}");
    // What was made without the cache is what is found from now on.
    let then = built(ctx, &file, &["-t", "x"]);
    assert_eq!((cached(&then), then.stdout), ((5, 0), again.stdout));
    is_clean(ctx);
}

fn what_changes_is_done_again(ctx: &Ctx) {
    let dir = context(ctx);
    put(ctx, "data/file", "one");
    let file = |word: &str| format!("{BASE}RUN write /a {word}\nCOPY data /data\nARG V=1\nRUN write /b 2\n");
    let hits = |file: &str, flags: &[&str]| cached(&built(ctx, file, flags));
    assert_eq!(hits(&file("1"), &[]), (0, 4));
    put(ctx, "data/file", "two");
    assert_eq!(hits(&file("1"), &[]), (2, 2), "another content");
    fs::set_permissions(dir.join("data/file"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(hits(&file("1"), &[]), (2, 2), "another mode");
    fs::rename(dir.join("data/file"), dir.join("data/other")).unwrap();
    assert_eq!(hits(&file("1"), &[]), (2, 2), "another name");
    assert_eq!(hits(&file("1"), &["--build-arg", "V=2"]), (3, 1), "another argument");
    assert_eq!(hits(&file("2"), &[]), (1, 3), "another command");
    assert_eq!(hits(&file("1"), &[]), (4, 0), "what was there before");
}

fn stages_that_are_needed(ctx: &Ctx) {
    context(ctx);
    let file = r#"ARG FIRST=a
FROM scratch AS base
COPY base /
SHELL ["/probe"]
ENV FROM_BASE=1
ARG KEPT=arg
FROM base AS A
RUN write /a one
FROM base AS broken
RUN exit 3
FROM ${FIRST} AS b
RUN env
COPY --from=A /a /copy
COPY --from=1 /a /by-number
FROM b
RUN write /c two
"#;
    let out = built(ctx, file, &["-t", "x"]);
    assert!(!out.stderr.contains("broken"), "a stage that nobody needs: {out:?}");
    let env = said(&out).into_iter().find(|line| line.is_object()).unwrap();
    assert_eq!((&env["FROM_BASE"], &env["KEPT"]), (&json!("1"), &json!("arg")));
    for (path, text) in [("a", "one"), ("copy", "one"), ("by-number", "one"), ("c", "two")] {
        assert_eq!(read(ctx, &out, path), text);
    }
    for (target, has_c) in [("B", false), ("3", false), ("4", true)] {
        let out = built(ctx, file, &["--target", target]);
        assert_eq!(bundle(ctx, &out).join("rootfs/c").exists(), has_c, "{target}");
    }
    refused(build(ctx, file, &["--target", "broken"]), &["line 10: RUN exit 3: exit code 3"]);
    refused(build(ctx, file, &["--target", "none"]), &["--target none"]);
    refused(build(ctx, "FROM scratch\nCOPY --from=3 a b\n", &[]), &["line 2", "no stage before this one"]);
    for takes in ["COPY --from=One a b", "RUN --mount=from=one,target=/m true"] {
        let file = format!("FROM scratch AS one\n{takes}\n");
        refused(build(ctx, &file, &[]), &["line 2", "this stage itself"]);
    }
}

/// What was built is the base of what is built, by its name in the store.
fn base_images(ctx: &Ctx) {
    context(ctx);
    let base = built(
        ctx,
        &format!("{BASE}RUN write /etc-like base\nENV A=b\nCMD [\"x\"]\nENTRYPOINT [\"/probe\"]\nUSER 5\n"),
        &["-t", "team/base:1"],
    );
    let file = "FROM team/base:1\nUSER 0\nRUN rm /etc-like\nRUN mkdir /new\nENTRYPOINT [\"/y\"]\n";
    let out = built(ctx, file, &["-t", "derived", "-o", "oci-archive:derived.tar:t"]);
    let image = config(ctx, &out);
    assert_eq!(image["config"]["Env"][1], "A=b");
    assert_eq!(image["config"]["Cmd"], Value::Null, "an entrypoint takes the base's command away");
    let layers = image["history"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|entry| entry["empty_layer"] != json!(true))
        .count();
    assert_eq!((layers, image["rootfs"]["diff_ids"].as_array().unwrap().len()), (3, 3), "{image}");
    let root = bundle(ctx, &out).join("rootfs");
    assert!(root.join("new").exists() && root.join("probe").exists() && !root.join("etc-like").exists());
    assert!(bundle(ctx, &base).join("rootfs/etc-like").exists(), "the base is as it was");
    rt(ctx, &["pull", "--verify", "oci-archive:derived.tar:t", "pulled"]).ok();
    assert!(ctx.path("pulled/rootfs/new").exists() && !ctx.path("pulled/rootfs/etc-like").exists());
    let copied = built(ctx, "FROM scratch\nCOPY --from=team/base:1 /etc-like /x\n", &[]);
    assert_eq!(read(ctx, &copied, "x"), "base");
    assert_eq!(cached(&built(ctx, file, &["-t", "derived"])), (2, 0));
    // A file names no file of the host.
    for from in ["oci-archive:derived.tar:t", "oci:layout", "docker-daemon:x"] {
        refused(build(ctx, &format!("FROM {from}\n"), &[]), &["line 1", "not the name of an image"]);
    }
}

/// Between two instructions, too, and wherever their store is: the second one's path is longer than what a mount shows as its source.
fn images_stay_while_a_build_runs(ctx: &Ctx) {
    context(ctx);
    let far = format!("images/{}/{}", "d".repeat(120), "e".repeat(60));
    ctx.mkdir("images");
    ctx.mkdir(far.rsplit_once('/').unwrap().0);
    for (n, store) in ["images", &far, "chained"].into_iter().enumerate() {
        let in_store = |cmd: Cmd| cmd.env("RT_IMAGES", ctx.path(store));
        in_store(build(ctx, &format!("{BASE}RUN write /from-base x\n"), &["-t", "team/base:1"])).ok();
        let first = format!("FROM team/base:1 AS first\nRUN write /made {n}\n");
        // The last one is a chain that has used no image yet.
        let (first, early, made) = match n {
            2 => (String::new(), "", ""),
            _ => (first, "COPY --from=team/base:1 /from-base /\n", "COPY --from=first /made /\n"),
        };
        let file = format!(
            "{first}FROM scratch\n{early}COPY base /\nSHELL [\"/probe\"]\n\
             RUN --mount=type=cache,target=/c [\"/probe\",\"write /c/ready{n} x\",\"until /c/go{n}\"]\n\
             {made}COPY --from=team/base:1 /from-base /again\n"
        );
        put(ctx, "Containerfile", &file);
        let job = in_store(rt(ctx, &["build", "context"])).spawn();
        let cache = eventually("the last stage", || {
            let caches = fs::read_dir(ctx.path("build/caches")).ok()?.flatten();
            caches.map(|cache| cache.path()).find(|cache| cache.join(format!("ready{n}")).exists())
        });
        // A mark of this machine counts for a second.
        std::thread::sleep(std::time::Duration::from_millis(1200));
        let said = in_store(rt(ctx, &["prune", "--all"])).ok();
        assert!(!said.stdout.contains("removed team/base"), "{said:?}");
        let kept = in_store(rt(ctx, &["rmi", "team/base:1"])).run();
        assert_ne!(kept.code, 0, "{kept:?}");
        fs::write(cache.join(format!("go{n}")), "").unwrap();
        let out = job.wait();
        assert_eq!(out.code, 0, "{out:?}");
    }
}

fn copies_follow_the_rules(ctx: &Ctx) {
    let dir = context(ctx);
    for (name, text) in [
        ("a.txt", "a"),
        ("b.txt", "b"),
        ("d/x", "x"),
        ("d/sub/y", "y"),
        ("d/secret", "s"),
        ("skip/z", "z"),
        (".dockerignore", "skip\n**/secret\n# a comment\n!skip/keep\n"),
        ("skip/keep", "k"),
    ] {
        put(ctx, name, text);
    }
    symlink("a.txt", dir.join("link")).unwrap();
    symlink("x", dir.join("d/inner")).unwrap();
    fs::set_permissions(dir.join("d/sub/y"), fs::Permissions::from_mode(0o4750)).unwrap();
    let file = r#"FROM scratch
WORKDIR /w
COPY a.txt one
COPY *.txt /txt/
COPY d /d
COPY [?.txt, "d/sub", "/both/"]
COPY ["b.txt", "/with blank/"]
COPY link /followed
COPY --chmod=0711 --chown=7:8 d/sub /mode/
COPY skip /skip
COPY ../../a.txt /cut
COPY --exclude=*.txt --exclude=d . /rest
COPY --exclude=x --exclude=sub/* d /less
COPY --link a.txt /linked/deep/a
COPY nothing* /none/
"#
    .replace("[?.txt, \"d/sub\", \"/both/\"]", "[\"?.txt\", \"d/sub\", \"/both/\"]");
    let out = built(ctx, &file, &["-t", "x", "-o", "oci:layout:t"]);
    for (path, text) in [
        ("w/one", "a"),
        ("txt/a.txt", "a"),
        ("txt/b.txt", "b"),
        ("d/x", "x"),
        ("d/sub/y", "y"),
        ("both/a.txt", "a"),
        ("both/y", "y"),
        ("with blank/b.txt", "b"),
        ("followed", "a"),
        ("mode/y", "y"),
        ("skip/keep", "k"),
        ("cut", "a"),
        ("rest/link", "rest/link"),
        ("linked/deep/a", "a"),
    ] {
        if path != "rest/link" {
            assert_eq!(read(ctx, &out, path), text);
        }
    }
    let root = bundle(ctx, &out).join("rootfs");
    assert_eq!(
        fs::read_link(root.join("d/inner")).unwrap(),
        Path::new("x"),
        "links below a source stay links"
    );
    for gone in ["d/secret", "skip/z", "rest/a.txt", "rest/d", "none", "less/x", "less/sub/y"] {
        assert!(fs::symlink_metadata(root.join(gone)).is_err(), "{gone}");
    }
    let mode = |path: &str| fs::metadata(root.join(path)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("mode/y"), mode("d/sub")), (0o711, 0o755));
    for (copy, why) in [
        ("COPY gone /x", "not found in the context"),
        ("COPY skip/z /x", "left out of the context"),
        ("COPY a.txt b.txt /x", "must be a directory"),
        ("COPY --chmod=rwx a.txt /x", "--chmod=rwx"),
        ("COPY --chown=nobody a.txt /x", "nobody"),
        ("COPY d /w/one", "no directory"),
    ] {
        let file = format!("FROM scratch\nWORKDIR /w\nCOPY a.txt one\n{copy}\n");
        refused(build(ctx, &file, &["-t", "never"]), &["Containerfile: line 4: COPY", why]);
    }
    rt(ctx, &["run", "--pull", "never", "never"]).fails(&["not in the store"]);
    is_clean(ctx);
}

/// A copy of a file that is nearly all hole takes no more of the disk than the file does.
fn holes_stay_holes(ctx: &Ctx) {
    use std::os::unix::fs::{FileExt, MetadataExt};
    context(ctx);
    let big = fs::File::create(ctx.path("context/big")).unwrap();
    big.set_len(1 << 28).unwrap();
    big.write_all_at(b"end", (1 << 28) - 3).unwrap();
    ctx.give(&ctx.path("context/big"));
    let file = "FROM scratch AS a\nCOPY big /\nFROM scratch\nCOPY --from=a /big /again\n";
    let out = built(ctx, file, &[]);
    let copy = bundle(ctx, &out).join("rootfs/again");
    let kept = fs::read_dir(ctx.path("build/layers")).unwrap().flatten().flat_map(|layer| {
        ["big", "again"]
            .map(|name| layer.path().join("upper").join(name))
            .into_iter()
            .filter(|path| path.exists())
    });
    let all: Vec<PathBuf> = kept.chain([copy]).collect();
    assert_eq!(all.len(), 3, "{all:?}");
    for path in all {
        let file = fs::metadata(&path).unwrap();
        assert_eq!(file.len(), 1 << 28);
        assert!(file.blocks() * 512 < 1 << 22, "{}: {} blocks", path.display(), file.blocks());
    }
}

fn archives_are_unpacked(ctx: &Ctx) {
    let dir = context(ctx);
    let tree = ctx.mkdir("tree");
    fs::create_dir(tree.join("in")).unwrap();
    fs::write(tree.join("in/file"), "text").unwrap();
    symlink("file", tree.join("in/link")).unwrap();
    fs::hard_link(tree.join("in/file"), tree.join("in/second")).unwrap();
    for (name, flag) in [("plain.tar", "-cf"), ("packed.tgz", "-czf")] {
        let status = Command::new("tar").arg("-C").arg(&tree).arg(flag).arg(dir.join(name)).arg(".").status();
        assert!(status.unwrap().success());
        ctx.give(&dir.join(name));
    }
    put(ctx, "text", "no archive");
    put(ctx, "bz.tar.bz2", "BZh91AY");
    let out = built(ctx, "FROM scratch\nADD plain.tar packed.tgz text /to/\nCOPY plain.tar /copied\n", &[]);
    for path in ["to/in/file", "to/in/link", "to/in/second"] {
        assert_eq!(read(ctx, &out, path), "text");
    }
    assert_eq!(read(ctx, &out, "to/text"), "no archive");
    assert!(bundle(ctx, &out).join("rootfs/copied").is_file());
    refused(build(ctx, "FROM scratch\nADD bz.tar.bz2 /\n", &[]), &["line 2: ADD", "bzip2"]);
    // An archive reaches nothing but the image, over links of its own or of the image.
    let escape = ctx.path("escaped");
    let hostile = ctx.mkdir("hostile");
    symlink(&ctx.dir, hostile.join("out")).unwrap();
    let status = Command::new("sh").arg("-c")
        .arg("cd hostile && tar -cf ../context/evil.tar out && mkdir real && echo x >real/escaped && tar --transform s,real,out, -rf ../context/evil.tar real/escaped")
        .current_dir(&ctx.dir).status();
    assert!(status.unwrap().success());
    ctx.give(&dir.join("evil.tar"));
    let _ = build(ctx, "FROM scratch\nADD evil.tar /\n", &[]).run();
    assert!(!escape.exists());
}

/// Whether a file is an archive is said by its first block: what cannot be read behind that is an error, and no file of the image.
fn what_begins_as_an_archive_is_one(ctx: &Ctx) {
    let dir = context(ctx);
    let header = |kind: u8, size: &str| {
        let mut block = [0u8; 512];
        block[..4].copy_from_slice(b"name");
        block[124..124 + size.len()].copy_from_slice(size.as_bytes());
        block[156] = kind;
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        block
    };
    // An extended header of 8 MiB, longer than any.
    for (name, block, why) in [
        ("long", header(b'x', "00040000000"), "extended headers"),
        ("cut", header(b'x', "00000001000"), "archive ends"),
        ("number", header(b'0', "junk"), "number"),
    ] {
        fs::write(dir.join(name), block).unwrap();
        ctx.give(&dir.join(name));
        refused(build(ctx, &format!("FROM scratch\nADD {name} /to/\n"), &[]), &["line 2: ADD", why]);
    }
    // Without the sum of a header, and with blocks of zeros alone, it is any file.
    let mut block = header(b'0', "0");
    block[0] = b'o';
    for (name, block) in [("other", block), ("zeros", [0; 512])] {
        fs::write(dir.join(name), block).unwrap();
        ctx.give(&dir.join(name));
        let out = built(ctx, &format!("FROM scratch\nADD {name} /to/\n"), &[]);
        assert_eq!(fs::read(bundle(ctx, &out).join("rootfs/to").join(name)).unwrap(), block);
    }
}

/// A volume has the mode and the content of the image's directory, as PostgreSQL asks of its own.
fn volumes_are_as_the_image_has_them(ctx: &Ctx) {
    context(ctx);
    let file = format!(
        "{BASE}RUN [\"/probe\", \"mkdir /data\", \"write /data/file text\", \"chmod /data {}\"]\nVOLUME /data /new\n",
        0o750
    );
    built(ctx, &file, &["-t", "volumes"]);
    let out = rt(
        ctx,
        &[
            "run",
            "volumes",
            "--",
            "/probe",
            "stat /data",
            "cat /data/file",
            "write /data/mine x",
            "stat /new",
        ],
    );
    let all = out.ok().all();
    // Whoever comes next removes what is left of a container that ran in the caller's place.
    ctx.rt(["list"]).ok();
    let modes = (&all[0]["mode"], &all[3]["mode"]);
    assert_eq!((modes, &all[1], &all[2]), ((&json!(0o750), &json!(0o755)), &json!("text"), &Value::Null));
}

/// Files of an image are further names of those of its base and of the layers: nothing is copied, and each image is whole by itself.
fn images_share_files(ctx: &Ctx) {
    context(ctx);
    put(ctx, "file", "text");
    let base = built(
        ctx,
        &format!("{BASE}COPY file /file\nCOPY file /gone\nRUN link /file /second\n"),
        &["-t", "base"],
    );
    let file = "FROM base\nSHELL [\"/probe\"]\nCOPY file /copied\nRUN rm /gone\nRUN append /second more\n";
    let out = built(ctx, file, &["-t", "shared"]);
    let inode =
        |out: &Out, path: &str| fs::metadata(bundle(ctx, out).join("rootfs").join(path)).unwrap().ino();
    assert_eq!(inode(&base, "probe"), inode(&out, "probe"));
    assert_ne!(inode(&base, "second"), inode(&out, "second"));
    assert_eq!((read(ctx, &base, "second"), read(ctx, &out, "second")), ("text".into(), "textmore".into()));
    assert_eq!((read(ctx, &out, "copied"), read(ctx, &out, "file")), ("text".into(), "text".into()));
    assert!(
        !bundle(ctx, &out).join("rootfs/gone").exists() && bundle(ctx, &base).join("rootfs/gone").exists()
    );
    // What is made by way of archives is the same image, and the same tree.
    built(ctx, file, &["-o", "oci:layout:t"]);
    rt(ctx, &["pull", "oci:layout:t", "other"]).ok();
    let config = |bundle: PathBuf| fs::read_to_string(bundle.join("image.json")).unwrap();
    assert_eq!(config(bundle(ctx, &out)), config(ctx.path("other")));
    let list = |root: PathBuf| {
        let found = Command::new("find")
            .arg(".")
            .args(["-printf", "%P %y %m %l %n\n"])
            .current_dir(root)
            .output()
            .unwrap();
        let mut lines: Vec<_> = String::from_utf8(found.stdout).unwrap().lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let names = |lines: Vec<String>| {
        lines.into_iter().map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(list(bundle(ctx, &out).join("rootfs"))), names(list(ctx.path("other/rootfs"))));
    // Into an image that its containers may write nothing of another image is linked.
    ctx.mkdir("config-home");
    ctx.mkdir("config-home/rt");
    ctx.file("config-home/rt/config.toml", "[pull]\nwritable = true\n");
    let writable = build(ctx, &format!("{file}LABEL a=b\n"), &["-t", "writable"]);
    let writable = writable.env("XDG_CONFIG_HOME", ctx.path("config-home")).ok();
    assert_ne!(inode(&base, "probe"), inode(&writable, "probe"));
    // An image stays what it was when those that it shares files with have gone.
    rt(ctx, &["rmi", "base", "writable"]).ok();
    assert_eq!(read(ctx, &out, "second"), "textmore");
}

/// Whatever the config of a stored bundle says later.
fn shared_files_are_not_written_to(ctx: &Ctx) {
    context(ctx);
    let base = built(ctx, &format!("{BASE}RUN write /g good\n"), &["-t", "base"]);
    let child = built(ctx, "FROM base\nCMD [\"/probe\"]\n", &["-t", "child"]);
    let set = |out: &Out, readonly: bool| {
        let path = bundle(ctx, out).join("config.json");
        let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        config["root"]["readonly"] = json!(readonly);
        fs::write(path, config.to_string()).unwrap();
    };
    let run = |words: &[&str]| rt(ctx, &[&["run", "--pull", "never"], words].concat());
    let write = ["--", "/probe", "append /g bad"];
    for (image, out) in [("base", &base), ("child", &child)] {
        set(out, false);
        let started = run(&[&[image][..], &write].concat());
        refused(started, &["other images have the same files", "rt pull IMAGE DIR"]);
        let layer = format!("layer-{image}");
        for flags in [&["--writable"][..], &["--overlay", &layer]] {
            run(&[flags, &[image], &write].concat()).ok();
        }
        run(&["--read-only", image, "--", "/probe", "cat /g"]).ok();
        set(out, true);
        // Of a config elsewhere the same holds.
        let root = bundle(ctx, out).join("rootfs");
        let other = ctx.bundle().with("/root", json!({ "path": root, "readonly": false }));
        ctx.run_with(&other, &[]).failed(&["other images have the same files"]);
    }
    assert_eq!((read(ctx, &base, "g"), read(ctx, &child, "g")), ("good".into(), "good".into()));
    // What is nobody else's is written to.
    built(ctx, &format!("{BASE}RUN write /g good\n"), &["-o", "own"]);
    let mut config: Value = serde_json::from_slice(&fs::read(ctx.path("own/config.json")).unwrap()).unwrap();
    config["root"]["readonly"] = json!(false);
    fs::write(ctx.path("own/config.json"), config.to_string()).unwrap();
    rt(ctx, &[&["run", "./own"][..], &write].concat()).ok();
    assert_eq!(fs::read_to_string(ctx.path("own/rootfs/g")).unwrap(), "goodbad");
}

fn heredocs(ctx: &Ctx) {
    context(ctx);
    let file = format!(
        "{BASE}ENV V=val\nCOPY <<one <<\"two\" /d/\n$V ${{V}}\none\n$V\ntwo\nCOPY <<-E /single\n\ttab\n\tE\nRUN <<E\nwrite /from-run x\nE\nRUN <<  'a b'\nwrite /by-blank y\na b\nCOPY << 'x y' << two /d/\n$V\nx y\n$V\ntwo\nRUN <<E\n#!/probe /dev/pipes\nE\n"
    );
    let out = build(ctx, &file, &[]).run();
    // The last one is a program by its first line: the probe gets its path as an operation that it does not know.
    assert_eq!(out.code, 0, "{out:?}");
    assert_eq!((read(ctx, &out, "d/one"), read(ctx, &out, "d/two")), ("val val\n".into(), "val\n".into()));
    assert_eq!((read(ctx, &out, "by-blank"), read(ctx, &out, "d/x y")), ("y".into(), "$V\n".into()));
    assert_eq!((read(ctx, &out, "single"), read(ctx, &out, "from-run")), ("tab\n".into(), "x".into()));
}

fn users_and_directories(ctx: &Ctx) {
    context(ctx);
    put(ctx, "passwd", "root:x:0:0::/root:/x\napp:x:33:34::/home/app:/x\n");
    let file = format!(
        "{BASE}COPY passwd /etc/passwd\nWORKDIR /a\nWORKDIR b/../c\nUSER app\nRUN [\"/probe\",\"id\",\"cwd\",\"env\",\"write /a/c/mine x\"]\n"
    );
    let out = built(ctx, &file, &[]);
    let said = said(&out);
    assert_eq!(
        (&said[0]["uid"], &said[0]["gid"], &said[1]),
        (&json!([33, 33, 33]), &json!([34, 34, 34]), &json!("/a/c")),
        "{out:?}"
    );
    assert_eq!(said[2]["HOME"], "/home/app");
    // Nothing of the caller's own environment is in it.
    assert_eq!(said[2]["RT_IMAGES"], Value::Null);
    assert_eq!(read(ctx, &out, "a/c/mine"), "x");
    refused(build(ctx, &format!("{BASE}USER nobody\nRUN say x\n"), &[]), &["line 5: RUN say x", "nobody"]);
}

fn a_command_that_fails(ctx: &Ctx) {
    context(ctx);
    let file = format!(
        "{BASE}RUN write /a 1\n\nRUN [\"/probe\", \"say before\", \\\n  \"exit 7\"]\nRUN write /never x\n"
    );
    let out = build(ctx, &file, &["-t", "x"]).run();
    assert_eq!(out.code, 1);
    let last = out.stderr.lines().last().unwrap();
    assert!(
        last.contains("Containerfile: line 6: RUN [\"/probe\", \"say before\",   \"exit 7\"]: exit code 7"),
        "{out:?}"
    );
    assert_eq!(said(&out), [Value::Null, json!("before")]);
    for dir in ["bundles", "names"] {
        let there = fs::read_dir(ctx.path("images").join(dir)).map(|dir| dir.count());
        assert_eq!(there.unwrap_or(0), 0, "{dir}");
    }
    // What was made before is not made again.
    assert_eq!(cached(&build(ctx, &file, &[]).run()), (2, 1));
    // Where no command could be started there is one line as well, which says why.
    let out = refused(
        build(ctx, &format!("{BASE}RUN [\"/not/there\"]\n"), &[]),
        &["line 4: RUN", "/not/there: no such file"],
    );
    assert_eq!(out.stderr.lines().filter(|line| !line.starts_with('[')).count(), 1, "{out:?}");
    is_clean(ctx);
}

/// Whatever a command makes of the directory that a mount point is in, the mount point is in no layer.
fn mount_points_are_in_no_layer(ctx: &Ctx) {
    context(ctx);
    let file = format!(
        "{BASE}RUN mkdir /etc\nRUN --mount=type=tmpfs,target=/etc/deep/er/t [\"/probe\",\"write /etc/mine x\",\"chmod /etc 365\",\"chmod /etc/deep/er 0\"]\n"
    );
    let out = built(ctx, &file, &["-t", "x", "-o", "oci:layout:t"]);
    let root = bundle(ctx, &out).join("rootfs");
    assert_eq!(fs::read(root.join("etc/mine")).unwrap(), b"x");
    let layers = fs::read_dir(ctx.path("layout/blobs/sha256")).unwrap().flatten();
    let lists = layers.map(|blob| Command::new("tar").arg("-tzf").arg(blob.path()).output().unwrap().stdout);
    let names: Vec<String> = lists
        .flat_map(|list| String::from_utf8(list).unwrap().lines().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    assert!(names.iter().any(|name| name == "etc/mine"), "{names:?}");
    for name in ["etc/hosts", "etc/resolv.conf", "etc/hostname", "etc/deep/", "proc/", "dev/"] {
        assert!(!names.iter().any(|known| known == name), "{name} in {names:?}");
    }
}

fn what_is_not_there_is_refused(ctx: &Ctx) {
    context(ctx);
    for (line, why) in [
        ("RUN --mount=type=ssh,required say x", "no agent \"default\""),
        ("RUN --mount=type=ssh,mode=0666 say x", "mode=666 is not supported"),
        ("RUN --security=insecure say x", "--security=insecure is not supported"),
        ("RUN --network=bridge say x", "--network=bridge is not supported"),
        ("RUN --device=a say x", "--device=a is not supported"),
        ("RUN --mount=type=cache,target=/c,uid=app say x", "uid=app: not a number"),
        ("RUN --mount=type=bind,target=/ say x", "cannot be /"),
        ("ADD ftp://example.org/x /x", "use http or https, or git"),
        ("ADD file:///etc/x.git /x", "use http or https, or git"),
        ("ADD https://a/x https://a/y /x", "must be a directory and end in /"),
        ("ADD --checksum=sha256:x base /x", "--checksum: for one URL alone"),
        ("ADD --keep-git-dir=maybe base /x", "neither true nor false"),
        ("EXPOSE x", "not a port"),
        ("ENV A=${B:?needed}", "B: needed"),
        ("NOTHING x", "unknown instruction"),
    ] {
        let out = refused(build(ctx, &format!("{BASE}{line}\n"), &[]), &["line 4", why]);
        assert_eq!(out.stderr.lines().filter(|line| !line.starts_with('[')).count(), 1, "{out:?}");
    }
    refused(
        build(ctx, "FROM --platform=linux/s390x scratch\n", &[]),
        &["line 1", "--platform=linux/s390x is not supported"],
    );
    for context in ["ftp://example.org/x", "gone"] {
        rt(ctx, &["build", context]).fails(&["context", context]);
    }
    rt(ctx, &["build", "-o", "type=local,dest=x", "context"]).fails(&["--output", "not supported"]);
    rt(ctx, &["build", "-o", "docker-daemon:x", "context"])
        .fails(&["docker-daemon:x: images are written to"]);
    rt(ctx, &["build", "-t", "oci:x", "context"]).fails(&["--tag"]);
    rt(ctx, &["build", "--progress", "json", "context"]).fails(&["--progress json"]);
    fs::remove_file(ctx.path("context/Containerfile")).unwrap();
    rt(ctx, &["build", "context"]).fails(&["neither a Containerfile nor a Dockerfile"]);
    rt(ctx, &["build", "-f", "gone", "context"]).fails(&["gone"]);
}

/// What a destination names, over links of the image.
fn destinations_over_links(ctx: &Ctx) {
    context(ctx);
    put(ctx, "file", "text");
    let links = [
        "symlink made /relative",
        "symlink /deep/er /absolute",
        "symlink loop /loop",
        "mkdir /dir",
        "symlink ../up /dir/link",
    ];
    let runs: String = links.map(|link| format!("RUN {link}\n")).concat();
    let copies = "COPY file /relative/a/\nCOPY file /absolute/b/c\nCOPY file /none/../cleaned\nCOPY file /dir/link/d\nWORKDIR /w\nCOPY file .\n";
    let out = built(ctx, &format!("{BASE}{runs}{copies}"), &["-t", "x"]);
    for path in ["made/a/file", "deep/er/b/c", "cleaned", "up/d", "w/file"] {
        assert_eq!(read(ctx, &out, path), "text");
    }
    assert!(!bundle(ctx, &out).join("rootfs/none").exists());
    refused(build(ctx, &format!("{BASE}{runs}COPY file /loop/x\n"), &[]), &["line 9: COPY", "loop"]);
}

/// Neither the context nor an image leads to what is outside of it.
fn links_lead_nowhere(ctx: &Ctx) {
    let dir = context(ctx);
    ctx.file("outside", "secret");
    symlink("../outside", dir.join("up")).unwrap();
    symlink(ctx.path("outside"), dir.join("absolute")).unwrap();
    symlink(&ctx.dir, dir.join("dir")).unwrap();
    symlink("/proc/self/root", dir.join("magic")).unwrap();
    for source in
        ["up", "absolute", "dir/outside", "dir", "magic", "../outside", "magic/etc/hostname", "*/outside"]
    {
        let out = build(ctx, &format!("FROM scratch\nCOPY {source} /x/\n"), &["-o", "oci:layout:t"]).run();
        let _ = fs::remove_dir_all(ctx.path("layout"));
        assert!(out.code != 0 || out.stderr.contains("nothing that it could copy"), "{source}: {out:?}");
    }
    // Below a directory they are copied as links.
    put(ctx, "d/file", "x");
    symlink(ctx.path("outside"), dir.join("d/link")).unwrap();
    let out = built(ctx, "FROM scratch\nCOPY d /d\n", &[]);
    assert!(fs::symlink_metadata(bundle(ctx, &out).join("rootfs/d/link")).unwrap().is_symlink());
    // A link of the image stays in the image: as a destination, as a directory on the way, as a file to be written.
    let target = ctx.mkdir("target");
    let file = format!(
        "{BASE}RUN symlink {} /out\nRUN symlink ../../../../../../.. /up\nRUN symlink {}/new /file\nCOPY d/file /up/top\nCOPY d/file /out/sub/\nWORKDIR /out/w\n",
        target.display(),
        target.display()
    );
    let out = build(ctx, &file, &[]).run();
    assert_eq!(fs::read_dir(&target).unwrap().count(), 0, "{out:?}");
    assert_eq!(fs::read_to_string(ctx.path("outside")).unwrap(), "secret");
    // A fifo is copied as one and waits for nobody, and a socket belongs to its program.
    Command::new("mkfifo").arg(dir.join("d/fifo")).status().unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(dir.join("d/socket")).unwrap();
    let out = built(ctx, "FROM scratch\nCOPY d /d\n", &[]);
    let there = |name: &str| fs::symlink_metadata(bundle(ctx, &out).join("rootfs/d").join(name)).is_ok();
    assert!(there("fifo") && !there("socket"));
    is_clean(ctx);
}

fn ctrl_c_leaves_the_cache(ctx: &Ctx) {
    context(ctx);
    let file = format!("{BASE}RUN write /a 1\nRUN [\"/probe\",\"deaf\"]\n");
    for (signal, cached_before) in [(libc::SIGINT, 0), (libc::SIGTERM, 2)] {
        put(ctx, "Containerfile", &file);
        let job = rt(ctx, &["build", "-t", "x", "context"]).spawn();
        let is_deaf = |line: &str| line == "\"ready\"";
        eventually("the program in RUN", || job.errors().lines().any(is_deaf).then_some(()));
        sys::kill(job.pid(), signal).unwrap();
        let out = job.wait();
        assert_eq!(out.code, 1, "{out:?}");
        assert!(
            out.stderr.lines().last().unwrap().contains("interrupted; the layers that were made are kept"),
            "{out:?}"
        );
        assert_eq!(cached(&out).0, cached_before);
        is_clean(ctx);
    }
    assert!(
        !ctx.path("images/names").exists() || fs::read_dir(ctx.path("images/names")).unwrap().count() == 0
    );
}

/// Nobody knows of the container of a build that was killed, so it ends with the build.
fn a_killed_build_leaves_no_command(ctx: &Ctx) {
    context(ctx);
    let word = format!("/c/{}", ctx.id());
    let file = format!(
        "{BASE}RUN --mount=type=cache,target=/c [\"/probe\",\"write /c/ready x\",\"until {word}\"]\n"
    );
    put(ctx, "Containerfile", &file);
    let job = rt(ctx, &["build", "context"]).spawn();
    eventually("the command", || {
        let caches = fs::read_dir(ctx.path("build/caches")).ok()?;
        caches.flatten().any(|cache| cache.path().join("ready").exists()).then_some(())
    });
    let runs = || {
        let all = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path().join("cmdline"));
        all.filter(|path| fs::read(path).is_ok_and(|text| String::from_utf8_lossy(&text).contains(&word)))
            .count()
    };
    assert!(runs() > 0);
    sys::kill(job.pid(), libc::SIGKILL).unwrap();
    job.wait();
    eventually("the end of the command", || (runs() == 0).then_some(()));
    built(ctx, BASE, &[]);
    is_clean(ctx);
}

fn mounts_of_run(ctx: &Ctx) {
    context(ctx);
    put(ctx, "data/file", "shown");
    put(ctx, "data/secret", "hidden");
    put(ctx, ".dockerignore", "**/secret\n");
    let file = format!(
        "{BASE}WORKDIR /w\nRUN --mount=type=bind,source=data,target=in [\"/probe\",\"cat /w/in/file\",\"exists /w/in/secret\",\"write /w/in/new x\"]\n\
         RUN --mount=type=bind,source=data/file,target=/f,rw [\"/probe\",\"cat /f\"]\n\
         RUN --mount=type=bind,source=data,target=/d,rw [\"/probe\",\"write /d/new x\",\"cat /d/new\"]\n\
         RUN --mount=type=tmpfs,target=/t,size=1m [\"/probe\",\"write /t/x y\",\"size /t\"]\n\
         RUN --mount=type=cache,target=/cache [\"/probe\",\"exists /cache/left\",\"write /cache/left x\"]\n\
         RUN --mount=type=cache,target=/cache [\"/probe\",\"cat /cache/left\"]\n\
         RUN --network=none [\"/probe\",\"ls /sys/class/net\"]\n"
    );
    let out = built(ctx, &file, &[]);
    let said = said(&out);
    assert_eq!(
        (&said[0], &said[1], &said[2]["errno"]),
        (&json!("shown"), &json!(false), &json!(libc::EROFS)),
        "{out:?}"
    );
    assert_eq!((&said[3], &said[4], &said[5]), (&json!("shown"), &Value::Null, &json!("x")), "{out:?}");
    assert_eq!(said[6], Value::Null);
    assert_eq!((&said[8], &said[9], &said[10]), (&json!(false), &Value::Null, &json!("x")), "{out:?}");
    let root = bundle(ctx, &out).join("rootfs");
    for gone in ["w/in", "f", "d", "t", "cache"] {
        assert!(!root.join(gone).exists(), "{gone}: a mount point that only RUN needed");
    }
    assert!(!ctx.path("context/data/new").exists());
    // What a bind shows counts, and what a cache has does not.
    assert_eq!(cached(&built(ctx, &file, &[])).1, 0);
    put(ctx, "data/secret", "other");
    assert_eq!(cached(&built(ctx, &file, &[])).1, 0, "what .dockerignore leaves out");
    put(ctx, "data/file", "other");
    assert!(cached(&built(ctx, &file, &[])).1 > 0);
    // Who asks for a cache alone waits for whoever has it.
    let cache = fs::read_dir(ctx.path("build/caches")).unwrap().next().unwrap().unwrap().path();
    let held = fs::File::open(cache).unwrap();
    held.lock().unwrap();
    let locked = "RUN --mount=type=cache,target=/cache,sharing=locked [\"/probe\",\"say alone\"]";
    put(ctx, "Containerfile", &format!("{BASE}{locked}\n"));
    let job = rt(ctx, &["build", "context"]).spawn();
    std::thread::sleep(std::time::Duration::from_millis(700));
    assert!(sys::kill(job.pid(), 0).is_ok(), "it waits");
    held.unlock().unwrap();
    assert_eq!(self::said(&job.wait()), [json!("alone")]);
    let stages = format!(
        "{BASE}RUN write /made x\nFROM scratch AS last\nCOPY base /\nRUN --mount=type=bind,from=0,target=/m [\"/probe\",\"cat /m/made\"]\n"
    );
    assert!(self::said(&built(ctx, &stages, &[])).contains(&json!("x")));
}

/// A cache that is new and a secret belong to whom their mount says, and to the user of a RUN that has no other id.
fn owners_of_mounts(ctx: &Ctx) {
    context(ctx);
    ctx.file("key", "key");
    let mounts = "--mount=type=cache,target=/c,uid=7,gid=8,mode=0710 --mount=type=secret,id=key,target=/k,uid=9,mode=0440";
    let run = r#"["/probe","stat /c","stat /k","cat /k","write /c/x y"]"#;
    let file = format!("{BASE}RUN {mounts} {run}\nUSER 7:8\nRUN {mounts} {run}\n");
    let out = built(ctx, &file, &["--secret", "id=key,src=key"]);
    let said = said(&out);
    let of = |at: usize| [&said[at]["uid"], &said[at]["gid"], &said[at]["mode"]].map(Value::clone);
    assert_eq!(of(0), [json!(7), json!(8), json!(0o710)], "{out:?}");
    assert_eq!(of(1), [json!(9), json!(0), json!(0o440)], "{out:?}");
    assert_eq!(
        (&of(4)[..2], &said[6], &said[7]),
        (&[json!(7), json!(8)][..], &json!("key"), &Value::Null),
        "{out:?}"
    );
    refused(
        build(ctx, &format!("{BASE}RUN --mount=type=bind,target=/a,uid=5 x\n"), &[]),
        &["line 4: RUN", "unexpected key \"uid\""],
    );
}

/// Who asks for a cache of his own gets another one where one is taken.
fn caches_of_one_run(ctx: &Ctx) {
    context(ctx);
    let run = "RUN --mount=type=cache,target=/c,sharing=private [\"/probe\",\"exists /c/left\",\"write /c/left x\"]";
    let file = format!("{BASE}{run}\n");
    let has_left = || said(&built(ctx, &file, &["--no-cache"]))[0].clone();
    assert_eq!((has_left(), has_left()), (json!(false), json!(true)));
    let cache = fs::read_dir(ctx.path("build/caches")).unwrap().next().unwrap().unwrap().path();
    let held = fs::File::open(cache).unwrap();
    held.lock().unwrap();
    assert_eq!((has_left(), has_left()), (json!(false), json!(true)));
    held.unlock().unwrap();
    assert_eq!(fs::read_dir(ctx.path("build/caches")).unwrap().count(), 2);
}

/// What a mount of RUN shows is what its key says, whatever becomes of the context meanwhile.
fn mounts_stay_as_they_were(ctx: &Ctx) {
    context(ctx);
    put(ctx, "data/file", "good");
    let file = format!(
        "{BASE}RUN --mount=type=bind,source=data,target=/d --mount=type=cache,target=/c \
         [\"/probe\",\"write /c/ready x\",\"until /c/go\",\"cat /d/file\"]\n"
    );
    put(ctx, "Containerfile", &file);
    let job = rt(ctx, &["build", "context"]).spawn();
    let cache = eventually("the command", || {
        let caches = fs::read_dir(ctx.path("build/caches")).ok()?;
        caches.flatten().map(|cache| cache.path()).find(|cache| cache.join("ready").exists())
    });
    put(ctx, "data/file", "evil");
    fs::write(cache.join("go"), "").unwrap();
    let out = job.wait();
    assert_eq!(said(&out).last(), Some(&json!("good")), "{out:?}");
}

/// The same for what a mount shows of an image in a store that others can write, or of a stage on one.
fn mounts_of_images_of_somebody_else(ctx: &Ctx) {
    context(ctx);
    built(ctx, &format!("{BASE}WORKDIR /d\nRUN write /d/file good\n"), &["-t", "base"]);
    let bundles = ctx.path("images/bundles");
    fs::set_permissions(&bundles, fs::Permissions::from_mode(0o775)).unwrap();
    for (from, target) in [("base", "/one"), ("stage", "/two")] {
        let write = |text: &str| {
            let files = fs::read_dir(&bundles).unwrap().map(|one| one.unwrap().path().join("rootfs/d/file"));
            files.filter(|file| file.exists()).for_each(|file| fs::write(file, text).unwrap());
        };
        write("good");
        let file = format!(
            "FROM base AS stage\n{BASE}RUN --mount=type=bind,from={from},source=/d,target=/d \
             --mount=type=cache,target={target} \
             [\"/probe\",\"write {target}/ready x\",\"until {target}/go\",\"cat /d/file\"]\n"
        );
        put(ctx, "Containerfile", &file);
        let job = rt(ctx, &["build", "context"]).spawn();
        let cache = eventually("the command", || {
            let caches = fs::read_dir(ctx.path("build/caches")).ok()?;
            let mut caches = caches.flatten().map(|cache| cache.path());
            caches.find(|cache| cache.join("ready").exists() && !cache.join("go").exists())
        });
        write("evil");
        fs::write(cache.join("go"), "").unwrap();
        let out = job.wait();
        assert_eq!(said(&out).last(), Some(&json!("good")), "{from}: {out:?}");
    }
}

/// Somebody who can write in the context exchanges an archive between its two readings, and puts it back.
fn archives_are_what_their_key_says(ctx: &Ctx) {
    use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
    context(ctx);
    for content in ["good", "evil"] {
        put(ctx, "file", content);
        let made =
            Command::new("tar").args(["-cf", content, "file"]).current_dir(ctx.path("context")).status();
        assert!(made.unwrap().success());
        fs::rename(ctx.path("context").join(content), ctx.path(content)).unwrap();
    }
    let archive = ctx.path("context/a.tar");
    fs::copy(ctx.path("good"), &archive).unwrap();
    let watch = inotify::init(CreateFlags::CLOEXEC).unwrap();
    inotify::add_watch(&watch, ctx.path("context"), WatchFlags::CLOSE_NOWRITE).unwrap();
    let (evil, target) = (ctx.path("evil"), archive.clone());
    let exchange = std::thread::spawn(move || {
        let mut events = [0; 4096];
        loop {
            let n = rustix::io::read(&watch, &mut events[..]).unwrap();
            if events[..n].windows(5).any(|name| name == b"a.tar") {
                return fs::rename(&evil, &target).unwrap();
            }
        }
    });
    let file = format!("{BASE}ADD a.tar /d/\n");
    put(ctx, "Containerfile", &file);
    rt(ctx, &["build", "context"]).run();
    exchange.join().unwrap();
    fs::copy(ctx.path("good"), &archive).unwrap();
    built(ctx, &file, &["-t", "x"]);
    let out = rt(ctx, &["run", "--entrypoint", "/probe", "x", "cat /d/file"]).ok();
    assert_eq!(out.line(0), "good", "{out:?}");
    // A program that has taken rt's place leaves its state to the next call.
    rt(ctx, &["list"]).ok();
}

/// What a site's or a user's hooks bring into containers is in no image.
fn no_hooks_in_builds(ctx: &Ctx) {
    context(ctx);
    built(ctx, BASE, &["-t", "base"]);
    let dir = ctx.mkdir("home/.config/rt/hooks.d");
    let marker = ctx.path("hook-ran");
    let say = format!("to {} say ran", marker.display());
    let hook = definition(&ctx.helper(), &[&say], json!({ "always": true }), &["createRuntime"]);
    fs::write(dir.join("a.json"), hook.to_string()).unwrap();
    ctx.give(&dir.join("a.json"));
    let home = ctx.path("home");
    build(ctx, "FROM base\nRUN write /a 1\n", &["-t", "x"]).env("HOME", &home).ok();
    assert!(!marker.exists());
    let run = |flags: &[&str]| {
        rt(ctx, &[&["run"], flags, &["--entrypoint", "/probe", "x", "cat /a"]].concat())
            .env("HOME", &home)
            .ok();
        // A program that has taken rt's place leaves its state to the next call.
        rt(ctx, &["list"]).ok();
    };
    run(&["--no-hooks"]);
    assert!(!marker.exists());
    run(&[]);
    assert!(marker.exists());
}

fn secrets_stay_secret(ctx: &Ctx) {
    context(ctx);
    // They are in no program of the test.
    let (file_value, variable) = (format!("f-{}", std::process::id()), format!("v-{}", std::process::id()));
    ctx.file("token", &file_value);
    let file = format!(
        "{BASE}RUN --mount=type=secret,id=t,required [\"/probe\",\"cat /run/secrets/t\",\"stat /run/secrets/t\"]\n\
         RUN --mount=type=secret,id=t,target=/elsewhere,mode=0444 [\"/probe\",\"cat /elsewhere\"]\n\
         RUN --mount=type=secret,id=v,env=TOKEN [\"/probe\",\"env\"]\n"
    );
    let flags =
        ["--secret", "id=t,src=token", "--secret", "id=v,env=OF_CALLER", "-t", "x", "-o", "oci:layout:t"];
    put(ctx, "Containerfile", &file);
    let run = || rt(ctx, &[&["build"], &flags[..], &["context"]].concat()).env("OF_CALLER", &variable);
    let out = run().ok();
    let said = said(&out);
    assert_eq!((&said[0], &said[2]), (&json!(file_value), &json!(file_value)), "{out:?}");
    assert_eq!(said[1]["mode"].as_u64().unwrap() & 0o777, 0o400, "{said:?}");
    assert_eq!(said[3]["TOKEN"], json!(variable));
    for place in ["build", "images", "layout"] {
        let found = Command::new("grep")
            .args(["-ra", "-e", &file_value, "-e", &variable])
            .arg(ctx.path(place))
            .output()
            .unwrap();
        assert!(found.stdout.is_empty(), "{place}: {}", String::from_utf8_lossy(&found.stdout));
    }
    assert!(!bundle(ctx, &out).join("rootfs/run/secrets").exists());
    // Not in an error either.
    fs::write(ctx.path("token"), "with\0zero").unwrap();
    let out = build(ctx, &file.replace("id=t,required", "id=t,env=X"), &flags[..4]).run();
    let said = out.stderr.contains("\"X\" contains a NUL byte");
    assert!(out.code == 1 && said && !out.stderr.contains("zero"), "{out:?}");
    // Another value is no reason to run again.
    ctx.file("token", "another");
    put(ctx, "Containerfile", &file);
    fs::remove_dir_all(ctx.path("layout")).unwrap();
    assert_eq!(cached(&run().ok()).1, 0);
    refused(build(ctx, &file, &["--no-cache"]), &["line 4", "no secret \"t\"", "--secret id=t"]);
}

/// A file that the caller names can be a pipe, and what is wrong with it is told before anything is done.
fn files_of_the_caller_are_read_first(ctx: &Ctx) {
    context(ctx);
    let run = "RUN --mount=type=secret,id=t [\"/probe\",\"cat /run/secrets/t\"";
    let file = format!("{BASE}{run}]\n{run},\"cwd\"]\n");
    let pipe = ctx.path("pipe");
    sys::mkfifo(&pipe).unwrap();
    ctx.give(&pipe);
    // Whoever opens one end of it waits for the other.
    let write = |text: &str| {
        let (pipe, text) = (pipe.clone(), text.to_owned());
        std::thread::spawn(move || fs::write(pipe, text).unwrap())
    };
    let writer = write("of a pipe");
    let out = build(ctx, &file, &["--secret", "id=t,src=pipe"]).ok();
    writer.join().unwrap();
    assert_eq!((&said(&out)[0], &said(&out)[1]), (&json!("of a pipe"), &json!("of a pipe")), "{out:?}");
    put(ctx, "Containerfile", "NOTHING");
    let writer = write(&file);
    rt(ctx, &["build", "-f", "pipe", "context"]).ok();
    writer.join().unwrap();
    ctx.file("long", &"x".repeat((500 << 10) + 1));
    for (src, why) in [
        ("gone", "no such file or directory"),
        ("long/gone", "not a directory"),
        ("context", "a directory"),
        ("long", "longer than 500 KiB"),
        ("/dev/zero", "longer than 500 KiB"),
    ] {
        let out =
            build(ctx, BASE, &["--secret", &format!("id=t,src={src}")]).fails(&["secret \"t\"", src, why]);
        assert_eq!(out.stderr.lines().count(), 1, "{out:?}");
    }
    rt(ctx, &["build", "-f", "context", "context"]).fails(&["context: a directory"]);
}

fn layers_are_pruned(ctx: &Ctx) {
    context(ctx);
    // A directory with this mode keeps its owner out.
    put(ctx, "in/locked/file", "x");
    let file = format!("{BASE}COPY --chmod=0000 in /in\n");
    built(ctx, &file, &["-t", "x"]);
    let layers = || fs::read_dir(ctx.path("build/layers")).unwrap().count();
    rt(ctx, &["prune"]).ok();
    rt(ctx, &["prune", "--all", "--dry-run"]).ok();
    rt(ctx, &["prune", "--all", "--older", "1h"]).ok();
    assert_eq!(layers(), 2);
    let out = rt(ctx, &["prune", "--all"]).ok();
    assert!(out.stderr.contains("removed 2 layers") && layers() == 0, "{out:?}");
    // The directory can be removed as well.
    built(ctx, &file, &["-t", "x"]);
    fs::remove_dir_all(ctx.path("build")).unwrap();
    assert_eq!(cached(&built(ctx, &file, &["-t", "x"])), (0, 2));
}

fn places_for_builds(ctx: &Ctx) {
    context(ctx);
    let dir = ctx.mkdir("open");
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
    refused(build(ctx, BASE, &[]).env("RT_BUILD_DIR", &dir), &["open", "nobody else may enter"]);
    ctx.file("no-dir", "");
    refused(build(ctx, BASE, &[]).env("RT_BUILD_DIR", ctx.path("no-dir")), &["no-dir", "RT_BUILD_DIR"]);
    // What a build has left that was killed is removed by the next one.
    let dead = ctx.path("build/sessions/dead");
    built(ctx, BASE, &[]);
    fs::create_dir(&dead).unwrap();
    ctx.give(&dead);
    built(ctx, BASE, &[]);
    is_clean(ctx);
}

/// Where others can put layers of their own, no build keeps any.
fn places_of_somebody_else(ctx: &Ctx) {
    if !Caller::tests_are_root() {
        skip!("only root gives files to others");
    }
    const OTHER: u32 = 12345;
    context(ctx);
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let own = |name: &str| {
        let dir = ctx.mkdir(name);
        mode(&dir, 0o700);
        dir
    };
    let refused = |place: PathBuf| {
        refused(build(ctx, BASE, &[]).env("RT_BUILD_DIR", place), &["others can put something else at"]);
        rt(ctx, &["prune", "--all"]).ok();
    };
    // A directory that a group can write, one of another user, and another user's link in a directory like /tmp.
    own("team/build");
    sys::chown(&ctx.path("team"), 0, OTHER).unwrap();
    mode(&ctx.path("team"), 0o775);
    refused(ctx.path("team/build"));
    own("his/build");
    sys::chown(&ctx.path("his"), OTHER, OTHER).unwrap();
    mode(&ctx.path("his"), 0o777);
    refused(ctx.path("his/build"));
    for dir in ["private", "private/layers", "private/layers/mine"] {
        own(dir);
    }
    ctx.mkdir("shared");
    sys::chown(&ctx.path("shared"), 0, 0).unwrap();
    mode(&ctx.path("shared"), 0o1777);
    symlink(ctx.path("private"), ctx.path("shared/build")).unwrap();
    std::os::unix::fs::lchown(ctx.path("shared/build"), Some(OTHER), Some(OTHER)).unwrap();
    refused(ctx.path("shared/build"));
    // The caller's own directory of other things loses none of them.
    self::refused(build(ctx, BASE, &[]).env("RT_BUILD_DIR", ctx.path("private")), &["private", "not empty"]);
    assert!(ctx.path("private/layers/mine").is_dir());
    // Without a home builds are below /tmp, where another user can have made the directory before.
    own("his/own");
    sys::chown(&ctx.path("his/own"), OTHER, OTHER).unwrap();
    rt(ctx, &["prune", "--all"]).env("RT_BUILD_DIR", ctx.path("his/own")).ok();
    // In a directory like /tmp what is one's own stays so.
    own("shared/own");
    build(ctx, BASE, &[]).env("RT_BUILD_DIR", ctx.path("shared/own")).ok();
}

/// What is made of a bundle that others can change is not taken for what the bundle's name says.
fn bases_of_somebody_else(ctx: &Ctx) {
    if !Caller::tests_are_root() {
        skip!("only root gives files to others");
    }
    context(ctx);
    built(ctx, &format!("{BASE}RUN write /tool good\n"), &["-t", "base"]);
    let build = || cached(&built(ctx, "FROM base\nRUN write /a 1\n", &["-t", "x"]));
    let bundles = ctx.path("images/bundles");
    let set = |gid: Option<u32>, mode: u32| {
        std::os::unix::fs::chown(&bundles, None, gid).unwrap();
        fs::set_permissions(&bundles, fs::Permissions::from_mode(mode)).unwrap();
    };
    let before = fs::metadata(&bundles).unwrap().permissions().mode();
    set(Some(12345), 0o775);
    assert_eq!([build(), build()], [(0, 1), (0, 1)]);
    set(None, before & 0o755);
    assert_eq!([build(), build()], [(0, 1), (1, 0)]);
    // Where what they have is taken since its registry does not answer, that is said in any case.
    let images = ctx.path("images");
    assert!(Command::new("chmod").args(["-R", "a+rX"]).arg(&images).status().unwrap().success());
    give_to(&images, 12345);
    let stores = format!("{}:{}", ctx.path("own").display(), images.display());
    let quiet = self::build(ctx, "FROM base\nRUN write /a 2\n", &["-q", "-t", "x"]);
    let out = quiet.env("RT_IMAGES", stores).ok();
    assert!(out.stderr.contains("base: that of another user's store is taken"), "{out:?}");
    give_to(&images, ctx.caller.host_ids().0);
}

fn outputs_of_every_kind(ctx: &Ctx) {
    context(ctx);
    let file = format!("{BASE}RUN write /a 1\nCMD [\"/probe\", \"cat /a\"]\n");
    let out = built(ctx, &file, &["-o", "made.sqsh"]);
    assert!(ctx.path("made.sqsh").is_file(), "{out:?}");
    built(ctx, &file, &["-o", "made"]);
    assert_eq!(rt(ctx, &["run", "./made"]).ok().line(0), "1");
    built(ctx, &file, &["-o", "docker-archive:made.tar:x:1"]);
    rt(ctx, &["pull", "docker-archive:made.tar", "again"]).ok();
    assert_eq!(fs::read_to_string(ctx.path("again/rootfs/a")).unwrap(), "1");
    // Without a name nothing is put into the store.
    assert_eq!(rt(ctx, &["images", "-q"]).ok().stdout, "");
    is_clean(ctx);
}

fn outputs_follow_the_umask(ctx: &Ctx) {
    context(ctx);
    // The root of an image from nothing, too.
    let file = format!("{BASE}RUN stat /\n");
    let places = ["made.sqsh", "made.tar", "oci.tar", "layout", "layout/index.json", "id", "bundle"];
    let outputs = ["made.sqsh", "docker-archive:made.tar:x:1", "oci-archive:oci.tar", "oci:layout", "bundle"];
    for (umask, file_mode, dir_mode) in [(0o077, 0o600, 0o700), (0o022, 0o644, 0o755)] {
        for output in outputs {
            let build = build(ctx, &file, &["-o", output, "--iidfile", "id"]);
            let out = build.before([sys::Step::Umask(umask)]).ok();
            assert_eq!(
                said(&out).first().map_or(json!(0o755), |root| root["mode"].clone()),
                0o755,
                "{out:?}"
            );
        }
        for place in places {
            let of = fs::metadata(ctx.path(place)).unwrap();
            // A bundle is for its owner, or for all, as rt pull makes it.
            let most = if of.is_dir() { dir_mode } else { file_mode };
            assert_eq!(of.permissions().mode() & 0o777 & !most, 0, "{place} with umask {umask:o}");
        }
        for output in ["made.sqsh", "made.tar", "oci.tar", "id"] {
            fs::remove_file(ctx.path(output)).unwrap();
        }
        for output in ["layout", "bundle"] {
            fs::remove_dir_all(ctx.path(output)).unwrap();
        }
    }
    is_clean(ctx);
}

/// A store that others can enter shows them a file no wider than it may be, also by a second name whose first one a higher layer has
/// removed: nobody becomes the caller by it, nor writes into the layer.
fn modes_are_narrowed_under_each_name(ctx: &Ctx) {
    context(ctx);
    fs::set_permissions(ctx.mkdir("images"), fs::Permissions::from_mode(0o755)).unwrap();
    let made = ["/first", "/alone"].map(|path| format!("\"write {path} x\",\"chmod {path} {}\"", 0o6777));
    let file = format!("{BASE}RUN [\"/probe\",{},\"link /first /second\"]\nRUN rm /first\n", made.join(","));
    let out = build(ctx, &file, &["-t", "x"]).before([sys::Step::Umask(0o022)]).ok();
    let of = |path: &str| fs::metadata(bundle(ctx, &out).join("rootfs").join(path)).unwrap();
    assert_eq!(["alone", "second"].map(|path| format!("{:o}", of(path).mode())), ["100755", "100755"]);
    assert_eq!(of("second").nlink(), 1, "a name of the layer's file");
}

fn triggers_run_once(ctx: &Ctx) {
    context(ctx);
    put(ctx, "file", "text");
    built(ctx, &format!("{BASE}ONBUILD COPY file /by-trigger\nONBUILD ENV T=1\n"), &["-t", "base"]);
    let out = built(ctx, "FROM base\nRUN write /a 1\n", &["-t", "child"]);
    assert_eq!(read(ctx, &out, "by-trigger"), "text");
    assert_eq!(config(ctx, &out)["config"]["OnBuild"], Value::Null);
    assert_eq!(config(ctx, &out)["config"]["Env"][1], "T=1");
    fs::remove_file(ctx.path("context/file")).unwrap();
    built(ctx, "FROM child\nRUN write /b 1\n", &[]);
    refused(
        build(ctx, "FROM base\nRUN write /a 1\n", &[]),
        &["line 1: FROM base: ONBUILD COPY file", "not found"],
    );
    // Texts go with their trigger.
    let file = format!(
        "{BASE}ONBUILD COPY <<-E <<'F' /d/\n\t$V\n\tE\n$V\nF\nONBUILD RUN << 'G'\nwrite /made x\nG\n"
    );
    built(ctx, &file, &["-t", "texts"]);
    let out = built(ctx, "FROM texts\n", &["--build-arg", "V=ignored"]);
    let made = ["d/E", "d/F", "made"].map(|path| read(ctx, &out, path));
    assert_eq!(made, ["\n", "$V\n", "x"]);
    // An image that a trigger takes files from is got before the first one runs.
    let file = format!("{BASE}ONBUILD RUN write /a 1\nONBUILD COPY --from=oci:/not/there:t a b\n");
    built(ctx, &file, &["-t", "base"]);
    let out = build(ctx, "FROM base\nRUN write /b 1\n", &[]).run();
    out.failed(&["line 1: ", "/not/there"]);
    assert!(!out.stderr.contains("ONBUILD 1/2"), "{out:?}");
}
