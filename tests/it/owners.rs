//! Owners that one id cannot give (`--root-emulation`): of `rt build`, as they are in the image's layers, and of
//! `rt run --as-root --overlay`.

use crate::build::{BASE, build, built, context, is_clean, put, refused, rt, said};
use crate::client::Caller;
use crate::fixture::{Ctx, Out, children, eventually};
use crate::runner::{skip, tests};
use crate::sys;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

tests! {
    ALL { owners_of_a_run_are_in_the_image }
    USER { layers_of_a_run_keep_owners, names_lead_to_no_descriptor_of_the_supervisor, what_cannot_be_marked_stays_roots, what_cannot_be_marked_and_has_the_mark }
    BOTH {
        what_is_recorded_is_told, links_and_names_share_an_owner, links_pipes_and_sockets_have_owners,
        links_and_pipes_keep_owners, links_of_users_are_theirs, copies_belong_to_whom_chown_names, users_own_what_they_make,
        what_other_names_share_stays_whose_it_was, directories_that_give_the_mark,
        images_keep_their_owners, a_dead_supervisor_ends_its_container,
        a_hostile_program_harms_itself, names_lead_out_of_no_build,
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

/// What takes none of a user's attributes has owners all the same: as its file has them, whatever it is called.
fn links_pipes_and_sockets_have_owners(ctx: &Ctx) {
    context(ctx);
    let steps = "RUN [\"/probe\", \"symlink nowhere /l\", \"lchown /l 33 34\", \"lstat /l\", \"mkfifo /p\", \"chown /p 5 6\", \
                 \"chown /p 4294967295 7\", \"stat /p\", \"mksocket /s\", \"chown /s 8 9\", \"stat /s\", \"symlink nowhere /back\", \
                 \"lchown /back 1 1\", \"lchown /back 0 0\", \"symlink nowhere /group\", \"lchown /group 4294967295 42\", \
                 \"symlink nowhere /new\", \"lchown /new 3 3\", \"rm /new\", \"symlink nowhere /new\"]\n\
                 RUN [\"/probe\", \"rename /l /m\", \"lstat /m\", \"link /p /q\", \"lchown /group 41 4294967295\"]\n";
    for (mode, told) in [("full", true), ("fast", false)] {
        let (entries, out) = layers(ctx, &format!("{BASE}{steps}"), &["--root-emulation", mode]);
        has(
            &entries,
            &[
                ("m", "lrwxrwxrwx 33/34"),
                ("p", "prw------- 5/7"),
                ("q", "prw------- 5/7"),
                ("back", "lrwxrwxrwx 0/0"),
                ("group", "lrwxrwxrwx 41/42"),
                ("new", "lrwxrwxrwx 0/0"),
            ],
        );
        let lines = said(&out);
        let owner = |at: usize| (lines[at]["uid"].as_u64().unwrap(), lines[at]["gid"].as_u64().unwrap());
        let wanted = if told { [(33, 34), (5, 7), (8, 9), (33, 34)] } else { [(0, 0); 4] };
        assert_eq!([2, 6, 9, 20].map(owner), wanted, "{mode}: {out:?}");
    }
    is_clean(ctx);
}

/// An archive in the context with `what` of its directory `data`, which belongs to 44 and 45.
fn packed(ctx: &Ctx, what: &str) {
    let packed = Command::new("tar")
        .args(["--owner=44", "--group=45", "-cf"])
        .arg(ctx.path("context/archive.tar"))
        .arg("-C")
        .arg(ctx.path("context/data"))
        .arg(what)
        .status();
    assert!(packed.unwrap().success());
}

/// By COPY and ADD, and in what is made of an image and on it.
fn links_and_pipes_keep_owners(ctx: &Ctx) {
    context(ctx);
    put(ctx, "data/file", "x");
    std::os::unix::fs::symlink("file", ctx.path("context/data/link")).unwrap();
    sys::mkfifo(&ctx.path("context/data/pipe")).unwrap();
    fs::set_permissions(ctx.path("context/data/pipe"), fs::Permissions::from_mode(0o644)).unwrap();
    packed(ctx, ".");
    let base = BASE.replacen("scratch", "scratch AS first", 1);
    let file = format!(
        "{base}COPY --chown=5:6 data /new\nCOPY data /plain\nADD archive.tar /unpacked\nADD --chown=9:9 archive.tar /unpacked-9\n\
         RUN [\"/probe\", \"lstat /unpacked/link\"]\n\
         FROM first\nCOPY --from=0 /new /from-stage\nCOPY --from=0 --chown=1:1 /new /from-stage-1\n"
    );
    let wanted = [
        ("new/link", "lrwxrwxrwx 5/6"),
        ("new/pipe", "prw-r--r-- 5/6"),
        ("plain/link", "lrwxrwxrwx 0/0"),
        ("unpacked/link", "lrwxrwxrwx 44/45"),
        ("unpacked/pipe", "prw-r--r-- 44/45"),
        ("unpacked-9/link", "lrwxrwxrwx 9/9"),
        ("from-stage/link", "lrwxrwxrwx 5/6"),
        ("from-stage/pipe", "prw-r--r-- 5/6"),
        ("from-stage-1/link", "lrwxrwxrwx 1/1"),
        ("from-stage-1/pipe", "prw-r--r-- 1/1"),
    ];
    let (all, out) = layers(ctx, &file, &[]);
    has(&all, &wanted);
    assert_eq!(said(&out)[0]["uid"], 44, "{out:?}");
    let stored = built(ctx, &file, &["-t", "mine", "-o", "mine.sqsh"]);
    rt(ctx, &["save", crate::build::bundle(ctx, &stored).to_str().unwrap(), "oci:saved:t"]).ok();
    has(&entries(ctx, "saved"), &wanted);
    let on_it = "FROM mine\nRUN [\"/probe\", \"rename /new/link /new/other\", \"lstat /new/pipe\"]\n";
    let (all, out) = layers(ctx, on_it, &[]);
    has(&all, &wanted[1..]);
    has(&all, &[("new/other", "lrwxrwxrwx 5/6")]);
    assert_eq!(said(&out)[1]["gid"], 6, "{out:?}");
    if Command::new("unsquashfs").arg("-version").output().is_ok() {
        let out =
            Command::new("unsquashfs").args(["-lln", "mine.sqsh"]).current_dir(&ctx.dir).output().unwrap();
        let listed = String::from_utf8(out.stdout).unwrap();
        let line = listed.lines().find(|line| line.contains("squashfs-root/new/link")).unwrap();
        assert!(line.contains("5/6"), "{line}");
    }
    is_clean(ctx);
}

/// What a RUN makes that is not root's, and what it only moves.
fn links_of_users_are_theirs(ctx: &Ctx) {
    context(ctx);
    let base = format!(
        "{BASE}RUN [\"/probe\", \"mkdir /d\", \"chmod /d 511\", \"symlink nowhere /d/roots\", \"symlink nowhere /d/others\", \
         \"lchown /d/others 5 6\", \"mkfifo /d/pipe\"]\n"
    );
    let user = "USER 70:71\nRUN [\"/probe\", \"symlink nowhere /d/new\", \"mkfifo /d/made\", \"rename /d/roots /d/moved\", \
                \"rename /d/others /d/away\", \"rename /d/pipe /d/far\"]\n";
    let wanted = [
        ("d/new", "lrwxrwxrwx 70/71"),
        ("d/made", "prw------- 70/71"),
        ("d/moved", "lrwxrwxrwx 0/0"),
        ("d/away", "lrwxrwxrwx 5/6"),
        ("d/far", "prw------- 0/0"),
    ];
    has(&layers(ctx, &format!("{base}{user}"), &[]).0, &wanted);
    built(ctx, &base, &["-t", "base"]);
    has(&layers(ctx, &format!("FROM base\nSHELL [\"/probe\"]\n{user}"), &[]).0, &wanted);
    is_clean(ctx);
}

/// `USER`, `--chown` and passwd(5) for them.
const ACCOUNTS: &str = "COPY <<EOF /etc/passwd\nroot:x:0:0::/:/x\napp:x:70:71::/:/x\nEOF\n\
                        COPY <<EOF /etc/group\nroot:x:0:\napp:x:71:\nother:x:72:\nEOF\n";

fn copies_belong_to_whom_chown_names(ctx: &Ctx) {
    context(ctx);
    put(ctx, "data/file", "x");
    put(ctx, "data/sub/file", "y");
    packed(ctx, "file");
    let base = BASE.replacen("scratch", "scratch AS first", 1);
    let file = format!(
        "{base}{ACCOUNTS}COPY --chown=app data /new/by-name\nCOPY --chown=5 data/file /number\nCOPY --chown=app:other data/file /group\n\
         COPY --chown=5:6 --link data/file /linked\nCOPY --chown=7:8 <<EOF /heredoc\ntext\nEOF\nCOPY data /plain\nADD archive.tar /unpacked\n\
         ADD --chown=9:9 archive.tar /unpacked-9\n\
         FROM first\nCOPY --from=0 /new /from-stage\nCOPY --from=0 --chown=1:1 /new /from-stage-1\n"
    );
    let (entries, out) = layers(ctx, &file, &[]);
    has(
        &entries,
        &[
            ("new", "drwxr-xr-x 70/71"),
            ("new/by-name", "drwxr-xr-x 70/71"),
            ("new/by-name/file", "-rw-r--r-- 70/71"),
            ("new/by-name/sub", "drwxr-xr-x 70/71"),
            ("new/by-name/sub/file", "-rw-r--r-- 70/71"),
            ("number", "-rw-r--r-- 5/5"),
            ("group", "-rw-r--r-- 70/72"),
            ("linked", "-rw-r--r-- 5/6"),
            ("heredoc", "-rw-r--r-- 7/8"),
            ("plain/sub/file", "-rw-r--r-- 0/0"),
            ("unpacked/file", "-rw-r--r-- 44/45"),
            ("unpacked-9/file", "-rw-r--r-- 9/9"),
            ("from-stage", "drwxr-xr-x 0/0"),
            ("from-stage/by-name", "drwxr-xr-x 70/71"),
            ("from-stage/by-name/sub/file", "-rw-r--r-- 70/71"),
            ("from-stage-1/by-name/sub/file", "-rw-r--r-- 1/1"),
        ],
    );
    assert!(!out.stderr.contains("belongs to root"), "{out:?}");
    refused(build(ctx, &format!("{BASE}COPY --chown=nobody data /d\n"), &[]), &["nobody"]);
}

fn users_own_what_they_make(ctx: &Ctx) {
    context(ctx);
    let file = format!(
        "{BASE}{ACCOUNTS}RUN [\"/probe\", \"write /before b\", \"mkdir /dir\", \"chown /dir 3 3\"]\nUSER app\nWORKDIR /work/dir\n\
         RUN [\"/probe\", \"id\", \"write /new n\", \"mkdir /work/made\", \"write /work/made/f f\", \"append /before more\", \
         \"write /dir/f f\"]\n\
         COPY <<EOF /copied\nx\nEOF\n"
    );
    let (entries, out) = layers(ctx, &file, &[]);
    assert_eq!(said(&out)[3]["uid"], json!([70, 70, 70]), "{out:?}");
    has(
        &entries,
        &[
            ("work", "drwxr-xr-x 70/71"),
            ("work/dir", "drwxr-xr-x 70/71"),
            ("new", "-rw-r--r-- 70/71"),
            ("work/made", "drwxr-xr-x 70/71"),
            ("work/made/f", "-rw-r--r-- 70/71"),
            ("before", "-rw-r--r-- 0/0"),
            ("dir", "drwxr-xr-x 3/3"),
            ("dir/f", "-rw-r--r-- 70/71"),
            ("copied", "-rw-r--r-- 0/0"),
        ],
    );
}

/// overlayfs does not mark what it copies of a file with several names: of one that the image itself has twice, and of one that a stored
/// image shares with a base or a layer.
fn what_other_names_share_stays_whose_it_was(ctx: &Ctx) {
    context(ctx);
    let base = format!(
        "{BASE}RUN [\"/probe\", \"write /changed x\", \"chmod /changed 438\", \"write /renamed x\", \"write /twice x\", \"link /twice /second\", \
         \"write /replaced x\", \"write /others x\", \"chown /others 5 6\", \"mkdir /d\", \"write /d/f x\"]\n"
    );
    let user = "USER 70:71\nRUN [\"/probe\", \"append /changed y\", \"rename /renamed /new-name\", \"append /twice y\", \
                \"rename /second /third\", \"write /r x\", \"rename /r /replaced\", \"append /others y\", \"write /d/new x\", \
                \"link /d/f /d/linked\", \"append /d/f y\"]\n";
    let wanted = [
        ("changed", "-rw-rw-rw- 0/0"),
        ("new-name", "-rw-r--r-- 0/0"),
        ("twice", "-rw-r--r-- 0/0"),
        ("third", "-rw-r--r-- 0/0"),
        ("replaced", "-rw-r--r-- 70/71"),
        ("others", "-rw-r--r-- 5/6"),
        ("d/new", "-rw-r--r-- 70/71"),
        ("d/f", "-rw-r--r-- 0/0"),
        ("d/linked", "hrw-r--r-- 0/0"),
    ];
    let has_all = |file: &str, flags: &[&str]| has(&layers(ctx, file, flags).0, &wanted);
    has_all(&format!("{base}{user}"), &[]);
    let stored = built(ctx, &base, &["-t", "base"]);
    let inode = |root: PathBuf| fs::metadata(root.join("changed")).unwrap().ino();
    let root = crate::build::bundle(ctx, &stored).join("rootfs");
    let layers_of_build =
        fs::read_dir(ctx.path("build/layers")).unwrap().flatten().map(|layer| layer.path().join("upper"));
    let mut shared = layers_of_build.filter(|upper| upper.join("changed").exists());
    assert!(shared.any(|upper| inode(upper) == inode(root.clone())), "nothing is shared");
    let again = user.replacen("70:71", "70:71\nENV A=b", 1);
    has_all(&format!("{base}{again}"), &[]);
    has_all(&format!("FROM base\nSHELL [\"/probe\"]\n{user}"), &[]);
    has_all(&format!("FROM base\nSHELL [\"/probe\"]\n{user}"), &["--no-cache"]);
    is_clean(ctx);
}

/// A usual tuning of a home directory: what is made in it has the flag that marks files.
fn give_the_mark(ctx: &Ctx) {
    for name in ["build", "images"] {
        fs::set_permissions(ctx.mkdir(name), fs::Permissions::from_mode(0o700)).unwrap();
        if !Command::new("chattr").arg("+A").arg(ctx.path(name)).status().is_ok_and(|status| status.success())
        {
            skip!("no chattr(1), or a file system without flags");
        }
    }
}

fn directories_that_give_the_mark(ctx: &Ctx) {
    give_the_mark(ctx);
    what_other_names_share_stays_whose_it_was(ctx);
}

fn what_cannot_be_marked_and_has_the_mark(ctx: &Ctx) {
    give_the_mark(ctx);
    what_cannot_be_marked_stays_roots(ctx);
}

/// Nothing is marked in a base that others can change. Its files have several names here, as a layer of the build shares them; the first
/// one is marked by that.
fn what_cannot_be_marked_stays_roots(ctx: &Ctx) {
    if !Caller::tests_are_root() {
        skip!("only root gives files to others");
    }
    context(ctx);
    let base =
        built(ctx, &format!("{BASE}RUN [\"/probe\", \"write /a x\", \"write /f x\"]\n"), &["-t", "base"]);
    let bundles = ctx.path("images/bundles");
    std::os::unix::fs::chown(&bundles, None, Some(12345)).unwrap();
    fs::set_permissions(&bundles, fs::Permissions::from_mode(0o775)).unwrap();
    let file =
        "FROM base\nSHELL [\"/probe\"]\nUSER 70:71\nRUN [\"/probe\", \"append /f y\", \"write /new n\"]\n";
    let (entries, _) = layers(ctx, file, &[]);
    has(&entries, &[("f", "-rw-r--r-- 0/0"), ("new", "-rw-r--r-- 70/71")]);
    assert!(!crate::build::bundle(ctx, &base).join("marked-links").exists());
}

/// What is in the store is built on, saved, and written as one file.
fn images_keep_their_owners(ctx: &Ctx) {
    context(ctx);
    let file = format!(
        "{BASE}RUN [\"/probe\", \"write /x y\", \"chown /x 33 34\", \"mkdir /d\", \"chown /d 100 0\", \"chmod /x 292\", \"mknod /null 1 3\"]\n"
    );
    let out = built(ctx, &file, &["-t", "mine", "-o", "mine.sqsh"]);
    let wanted = [("x", "-r--r--r-- 33/34"), ("d", "drwxr-xr-x 100/0"), ("null", "crw-r--r-- 0/0 1,3")];
    let stored = crate::build::bundle(ctx, &out);
    rt(ctx, &["save", stored.to_str().unwrap(), "oci:saved:t"]).ok();
    has(&entries(ctx, "saved"), &wanted);
    let on_it = "FROM mine\nRUN [\"/probe\", \"stat /x\", \"write /new n\", \"append /x z\"]\n";
    let (all, out) = layers(ctx, on_it, &[]);
    has(&all, &wanted);
    assert_eq!(said(&out)[0]["uid"], 33, "{out:?}");
    assert_eq!(rt(ctx, &["run", "--pull", "never", "mine", "/probe", "cat /x"]).ok().line(0), "y");
    if Command::new("unsquashfs").arg("-version").output().is_ok() {
        let listed =
            Command::new("unsquashfs").args(["-lln", "mine.sqsh"]).current_dir(&ctx.dir).output().unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        for (path, owner) in [("x", "33/34"), ("d", "100/0")] {
            let line = listed.lines().find(|line| line.ends_with(&format!("squashfs-root/{path}"))).unwrap();
            assert!(line.contains(owner), "{line}");
        }
    }
    is_clean(ctx);
}

/// The layer of `rt run --overlay`, and the one capability that a layer has in a form of its own.
fn layers_of_a_run_keep_owners(ctx: &Ctx) {
    let bundle = ctx.bare_bundle();
    let run = |flags: &[&str], steps: &[&str]| {
        let words = [
            &["run", "--bundle", bundle.dir.to_str().unwrap(), "--as-root"],
            flags,
            &["id", "--", "/probe"],
            steps,
        ]
        .concat();
        rt(ctx, &words)
    };
    let out = run(
        &["--overlay", "layer", "--root-emulation", "full"],
        &["write /x y", "chown /x 33 34", "stat /x"],
    )
    .ok();
    let told: Value = serde_json::from_str(out.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(told["gid"], 34, "{out:?}");
    rt(ctx, &["save", bundle.dir.to_str().unwrap(), "--overlay", "layer", "oci:saved:t"]).ok();
    has(&entries(ctx, "saved"), &[("x", "-rw-r--r-- 33/34")]);
    for flags in [&["--root-emulation", "full"][..], &["--root-emulation", "half", "--overlay", "layer"]] {
        run(flags, &["id"]).fails(&["root"]);
    }
}

fn a_dead_supervisor_ends_its_container(ctx: &Ctx) {
    context(ctx);
    let file = format!("{BASE}RUN [\"/probe\", \"write /x y\", \"pause\"]\n");
    let job = build(ctx, &file, &[]).spawn();
    let supervisor = eventually("the supervisor", || {
        let runtime = children(job.pid() as u32).into_iter().next()?;
        let two = children(runtime);
        let filter = |pid: &u32| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            status.lines().any(|line| line.starts_with("Seccomp:") && line.ends_with('2'))
        };
        let program = two.iter().find(|pid| {
            filter(pid) && fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe.ends_with("probe"))
        });
        program.and_then(|_| two.iter().find(|pid| !filter(pid)).copied())
    });
    sys::kill(supervisor as i32, libc::SIGKILL).unwrap();
    let out = job.wait();
    assert_ne!(out.code, 0, "{out:?}");
    assert!(out.stderr.contains("the supervisor of root's calls has died"), "{out:?}");
    is_clean(ctx);
}

fn a_hostile_program_harms_itself(ctx: &Ctx) {
    context(ctx);
    let file = format!(
        "{BASE}RUN [\"/probe\", \"hostile-chowns\", \"write /x y\", \"chown /x 33 34\", \"stat /x\", \"rm /text\"]\n"
    );
    let (entries, out) = layers(ctx, &file, &[]);
    let lines = said(&out);
    let got = &lines[0];
    let errno = |name: &str| got[name].as_i64().unwrap() as i32;
    assert_eq!((errno("edge"), errno("longest")), (0, 0), "{out:?}");
    assert_eq!((errno("endless"), errno("nowhere")), (libc::EFAULT, libc::EFAULT), "{out:?}");
    assert_eq!((errno("too long"), errno("empty")), (libc::ENAMETOOLONG, libc::ENOENT), "{out:?}");
    assert_eq!(errno("descriptor"), libc::EBADF, "{out:?}");
    // A path that was half one and half the other is that of no file.
    let changing: Vec<i32> = serde_json::from_value(got["changing"].clone()).unwrap();
    assert!(changing.iter().all(|code| [0, libc::ENOENT].contains(code)), "{out:?}");
    assert_eq!(lines[3]["uid"], 33, "the supervisor answers as before: {out:?}");
    has(&entries, &[("edge", "-rw-r--r-- 7/8"), ("one", "-rw-r--r-- 7/8"), ("x", "-rw-r--r-- 33/34")]);
    is_clean(ctx);
}

/// Steps that try to give away a set-id file of the caller's on the host: the real chown(2) below takes its set-id bit.
fn steps_out(ctx: &Ctx, prefixes: impl Iterator<Item = String>) -> (PathBuf, Vec<String>) {
    let secret = ctx.path("secret");
    ctx.command("install").args(["-m", "4755", "/dev/null"]).arg(&secret).ok();
    let steps = prefixes.map(|prefix| format!("chown {prefix}{} 77 78", secret.display())).collect();
    (secret, steps)
}

fn mode(file: &Path) -> u32 {
    fs::metadata(file).unwrap().mode() & 0o7777
}

/// The supervisor opens a thread's own links in a procfs of the host's: nothing else is looked up there.
fn names_lead_out_of_no_build(ctx: &Ctx) {
    context(ctx);
    let out =
        ["/proc/self/../..", "/proc/thread-self/../../..", "/dev/fd/../../..", "/proc/self/fd/../../.."];
    let (secret, steps) = steps_out(ctx, out.map(str::to_owned).into_iter());
    let steps: Vec<String> = steps.iter().map(|step| format!("{step:?}")).collect();
    let file = format!("{BASE}RUN [\"/probe\", {}, \"rm /text\"]\n", steps.join(", "));
    built(ctx, &file, &["-o", "oci:layout:t"]);
    assert_eq!(mode(&secret), 0o4755);
}

/// In a container without a PID namespace the supervisor has a `self` in the container's procfs.
fn names_lead_to_no_descriptor_of_the_supervisor(ctx: &Ctx) {
    let links = (3..12)
        .map(|number| format!("fd/{number}/../../.."))
        .chain(["cwd/../..".to_owned(), "root".to_owned()]);
    let (secret, steps) = steps_out(ctx, links.map(|link| format!("/proc/./self/{link}")));
    let bundle = ctx
        .bare_bundle()
        .with("/annotations", json!({ "rt.user": "root" }))
        .with("/linux/namespaces", json!([{ "type": "mount" }, { "type": "uts" }]))
        .with("/mounts", json!([]))
        .mount("/proc", "bind", "/proc", &["rbind", "nosuid", "noexec", "nodev"]);
    bundle.write();
    let flags = ["--as-root", "--root-emulation", "full", "--overlay", "layer", "id", "--", "/probe"];
    let words = [&["run", "--bundle", bundle.dir.to_str().unwrap()], &flags[..]].concat();
    let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
    let out = rt(ctx, &[&words[..], &steps, &["write /x y", "chown /x 33 34", "stat /x"]].concat()).ok();
    assert!(out.stdout.contains("\"gid\":34"), "there is a supervisor: {out:?}");
    assert_eq!(mode(&secret), 0o4755, "{out:?}");
}
