//! The layer over the image that takes what the program writes: `--writable`, `--overlay`, `--as-root`, `--read-only`.

use crate::client::Caller;
use crate::fixture::{Bundle, Ctx, errno, tree};
use crate::run::in_place;
use crate::runner::{skip, tests};
use crate::sys::{Step, c};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;

tests! {
    EVERY {
        writable_leaves_the_image_alone, overlay_keeps_what_is_written, mount_points_are_made_in_the_layer,
        as_root_can_write, what_is_lost_is_said, what_pip_loses_is_said, a_layer_on_disk_is_gone_too,
    }
    ALL {
        removed_files_stay_hidden, directories_cannot_be_renamed, joined_programs_see_the_layer,
        overlay_in_use_is_refused, overlay_can_be_used_again_at_once, one_writes_or_many_read, read_only_root, masks_hold_over_a_layer,
        working_directory_is_made, an_overlay_becomes_an_image,
    }
    BOTH {
        wrong_layers_are_refused, mounts_in_the_image_are_refused, nodes_of_the_image_stay_dead,
        callers_home_by_flag, hooks_see_the_layer, layer_under_a_shared_root,
        host_files_are_copied_into_the_layer, links_of_the_image_stay_inside, layers_of_somebody_else,
    }
    USER { image_of_somebody_else }
    ROOT { overlay_on_an_overlay_is_refused, overlay_of_another_image, layer_of_many_ids }
}

/// A bundle as `rt pull` makes one, with a file and a directory to change.
fn image(ctx: &Ctx) -> Bundle {
    let bundle = ctx.bundle().with("/root/readonly", json!(true));
    bundle.mkdir("d/sub");
    bundle.file("d/file", "image");
    bundle.file("d/sub/deep", "image");
    bundle
}

fn run(ctx: &Ctx, bundle: &Bundle, flags: &[&str]) -> Vec<Value> {
    let out = ctx.rt(["run"]).args(flags).arg(&bundle.dir).ok();
    // What is gone is said; here it is not the matter.
    let may_lose = flags.contains(&"--as-root") && out.stderr.lines().count() == 1;
    assert!(out.stderr.is_empty() || may_lose && out.stderr.contains("--overlay DIR"), "{out:?}");
    // What has run in place is removed by the next command.
    ctx.rt(["list", "-q"]).ok();
    out.all()
}

const CHANGES: [&str; 7] = [
    "write /d/new x",
    "append /d/file +more",
    "rm /d/sub/deep",
    "mkdir /made",
    "cat /d/file",
    "ls /d/sub",
    "stat /",
];

fn writable_leaves_the_image_alone(ctx: &Ctx) {
    // Also where the image could be written to, and where this process becomes the program.
    for bundle in [image(ctx), image(ctx).with("/root/readonly", json!(false)), in_place(image(ctx))] {
        let bundle = bundle.ops(&CHANGES);
        fs::set_permissions(bundle.rootfs(), fs::Permissions::from_mode(0o751)).unwrap();
        let before = bundle.strict_tree();
        for _ in 0..2 {
            let all = run(ctx, &bundle, &["--writable"]);
            assert_eq!(all[..4], [json!(null), json!(null), json!(null), json!(null)], "{all:?}");
            assert_eq!((&all[4], &all[5]), (&json!("image+more"), &json!([])));
            assert_eq!(all[6]["mode"], 0o751, "the root looks as the image's");
            assert_eq!(bundle.strict_tree(), before);
        }
    }
    assert_eq!(run(ctx, &image(ctx).ops(&["write /d/new x"]), &[])[0], errno(libc::EROFS));
}

fn overlay_keeps_what_is_written(ctx: &Ctx) {
    for (n, bundle) in [image(ctx), in_place(image(ctx))].into_iter().enumerate() {
        let dir = ctx.path(&format!("layer{n}"));
        let flags = ["--overlay", dir.to_str().unwrap()];
        let before = bundle.strict_tree();
        run(ctx, &bundle.ops(&CHANGES), &flags);
        let bundle = image(ctx);
        let bundle = Bundle { dir: ctx.path(&format!("bundle{}", n + 1)), ..bundle };
        let bundle =
            bundle.ops(&["cat /d/new", "cat /d/file", "exists /d/sub/deep", "exists /made", "write /x y"]);
        let kept = [json!("x"), json!("image+more"), json!(false), json!(true), json!(null)];
        assert_eq!(run(ctx, &bundle, &flags), kept);
        // The same, seen only.
        let seen = run(ctx, &bundle, &[&flags[..], &["--read-only"]].concat());
        assert_eq!((&seen[..4], &seen[4]), (&kept[..4], &errno(libc::EROFS)));
        assert_eq!(bundle.strict_tree(), before);
        assert_eq!(fs::read_to_string(dir.join("upper/d/new")).unwrap(), "x");
        let mode = fs::metadata(&dir).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o700, "nobody else looks into it");
    }
    // By a path from where the caller is.
    let bundle = image(ctx).ops(&["write /d/new x"]);
    ctx.rt(["run", "--overlay", "here"]).arg(&bundle.dir).cwd(&ctx.dir).ok();
    assert!(ctx.path("here/upper/d/new").exists());
}

fn removed_files_stay_hidden(ctx: &Ctx) {
    let bundle = image(ctx).ops(&["rm /d/sub/deep", "rmdir /d/sub", "ls /d", "mkdir /d/sub", "ls /d/sub"]);
    let dir = ctx.path("layer");
    let all = run(ctx, &bundle, &["--overlay", dir.to_str().unwrap()]);
    assert_eq!((&all[2], &all[3], &all[4]), (&json!(["file"]), &json!(null), &json!([])));
    let again = bundle.ops(&["ls /d/sub"]);
    assert_eq!(run(ctx, &again, &["--overlay", dir.to_str().unwrap()])[0], json!([]));
}

fn directories_cannot_be_renamed(ctx: &Ctx) {
    // overlayfs answers EXDEV, as between two file systems, and mv(1) copies then. Files, and new directories, move.
    let ops =
        ["rename /d/sub /d/other", "rename /d/file /d/moved", "cat /d/moved", "mkdir /n", "rename /n /m"];
    let all = run(ctx, &image(ctx).ops(&ops), &["--writable"]);
    assert_eq!(all, [errno(libc::EXDEV), json!(null), json!("image"), json!(null), json!(null)]);
}

fn mount_points_are_made_in_the_layer(ctx: &Ctx) {
    let data = ctx.mkdir("data");
    ctx.file("data/f", "host");
    let bind = |to: &str| format!("{}:{to}", data.display());
    let bundle = image(ctx).ops(&[
        "cat /new/place/f",
        "cat /d/one",
        "write /new/beside x",
        "write /new/place/here y",
        "ls /new",
    ]);
    let before = bundle.strict_tree();
    let (place, file) = (bind("/new/place"), format!("{}/f:/d/one", data.display()));
    let all = run(ctx, &bundle, &["--writable", "-v", &place, "-v", &file]);
    let expected = [json!("host"), json!("host"), json!(null), json!(null), json!(["beside", "place"])];
    assert_eq!(all, expected);
    assert_eq!(fs::read_to_string(data.join("here")).unwrap(), "y", "what is written to a volume arrives");
    assert_eq!(bundle.strict_tree(), before);
}

fn as_root_can_write(ctx: &Ctx) {
    let bundle = image(ctx).with("/annotations", json!({ "rt.user": "caller" }));
    let bundle = match ctx.caller {
        // Whoever is root of several ids is not to become the caller's own.
        Caller::Root | Caller::Range => bundle.with("/annotations", json!({})),
        _ => bundle,
    };
    let bundle = bundle.ops(&["id", "write /d/new x"]);
    let before = bundle.strict_tree();
    let all = run(ctx, &bundle, &["--as-root"]);
    assert_eq!(
        (&all[0]["uid"], &all[0]["gid"], &all[1]),
        (&json!([0, 0, 0]), &json!([0, 0, 0]), &json!(null))
    );
    assert_eq!(bundle.strict_tree(), before);
    assert_eq!(run(ctx, &bundle, &["--as-root", "--read-only"])[1], errno(libc::EROFS));
    // Where the image can be written to, it is.
    let open = image(ctx).with("/root/readonly", json!(false)).ops(&["write /d/new x"]);
    run(ctx, &open, &["--as-root"]);
    assert!(open.rootfs().join("d/new").exists());
    ctx.rt(["run", "--as-root", "--user-map=caller"])
        .arg(&bundle.dir)
        .fails(&["--as-root", "--user-map caller"]);
    run(ctx, &bundle, &["--as-root", "--user-map=root"]);
}

/// In one line at the end, and only where the caller has not asked for a root that forgets.
fn what_is_lost_is_said(ctx: &Ctx) {
    let data = ctx.mkdir("data");
    let volume = format!("{}:/data", data.display());
    for (n, bundle) in [image(ctx), in_place(image(ctx))].into_iter().enumerate() {
        let layer = ctx.path(&format!("layer{n}"));
        let overlay = ["--overlay", layer.to_str().unwrap()];
        let said = |flags: &[&str], ops: &[&str]| {
            let bundle = Bundle { dir: bundle.dir.clone(), config: bundle.config.clone(), ids: bundle.ids };
            let bundle = bundle.ops(&[ops, &["exit 3"]].concat());
            let flags = [&["--tmpfs", "/tmp", "-v", &volume], flags].concat();
            let out = ctx.rt(["run"]).args(flags).arg(&bundle.dir).run();
            assert_eq!(out.code, 3, "{out:?}");
            assert!(!out.stdout.contains("errno"), "{out:?}");
            ctx.rt(["list", "-q"]).ok();
            out.stderr
        };
        let writes = |ops: &[&str]| {
            let text = said(&["--as-root"], ops);
            assert!(text.starts_with("rt: what the program has written to the root"), "{text:?}");
            assert!(text.contains("--overlay DIR") && text.lines().count() == 1, "{text:?}");
        };
        for ops in [["write /d/new x"], ["mkdir /made"], ["append /d/file x"], ["rm /d/file"]] {
            writes(&ops);
        }
        for (flags, ops) in [
            (&["--as-root"][..], &["cat /d/file", "write /data/new x", "write /tmp/new x"][..]),
            (&["--as-root", "-v", &format!("{}:/a/b", data.display())], &["write /a/b/more x"]),
            (&["--as-root"], &["write /new x", "rm /new"]),
            (&["--as-root", "--writable"], &["write /d/new x"]),
            (&["--writable"], &["write /d/new x"]),
            (&["--as-root", overlay[0], overlay[1]], &["write /d/new x"]),
            (&[], &["cat /d/file"]),
        ] {
            assert_eq!(said(flags, ops), "", "{flags:?} {ops:?}");
        }
    }
}

/// pip installs into the user's directory, and says that it has succeeded.
fn what_pip_loses_is_said(ctx: &Ctx) {
    let home = ctx.mkdir("home");
    let bundle = image(ctx).with("/process/env", json!(["PATH=/bin"]));
    bundle.write();
    let said = |flags: &[&str], words: &[&str]| {
        let run = ctx.rt(["run"]).args(flags).arg(&bundle.dir).args(words).env("HOME", &home);
        run.run().stderr.contains("rt: what pip installs here is gone with the container (--home keeps it")
    };
    assert!(said(&[], &["pip", "install", "six"]) && said(&[], &["python3", "-m", "pip", "install", "six"]));
    for flags in [&["--home"][..], &["--writable"], &["-e", "HOME=/data"], &["-e", "PYTHONUSERBASE=/data"]] {
        assert!(!said(flags, &["pip", "install", "six"]), "{flags:?}");
    }
    for words in [
        &["pip", "list"][..],
        &["pip", "install", "--target=/data", "six"],
        &["/work/bin/pip", "install", "x"],
    ] {
        assert!(!said(&[], words), "{words:?}");
    }
}

/// What was written, what a killed runtime has left, and nothing of one that lives.
fn a_layer_on_disk_is_gone_too(ctx: &Ctx) {
    let tmp = ctx.mkdir("tmp");
    let disk = |bundle: &Bundle, flags: &[&str]| {
        let cmd = ctx.rt(["run", "--writable=disk"]).args(flags).arg("-b").arg(&bundle.dir);
        cmd.env("TMPDIR", &tmp).arg(ctx.id())
    };
    let own = tmp.join(format!("rt-writable-{}", crate::step_container::sys_uid(ctx)));
    let layers = || fs::read_dir(&own).map_or(0, Iterator::count);
    for bundle in [image(ctx), in_place(image(ctx))] {
        let bundle = bundle.ops(&["write /d/new x", "rm /d/sub/deep", "exit 3"]);
        let before = bundle.strict_tree();
        let out = disk(&bundle, &[]).run();
        assert_eq!((out.code, out.stderr.as_str(), out.line(0)), (3, "", json!(null)), "{out:?}");
        assert_eq!((layers(), bundle.strict_tree()), (0, before));
        assert_eq!(fs::metadata(&own).unwrap().permissions().mode() & 0o777, 0o700);
        disk(&bundle.ops(&["say no"]), &["-w", "relative"]).fails(&["relative"]);
        assert_eq!(layers(), 0, "what has not run leaves nothing");
        let bundle = image(ctx).ops(&["write /d/new x", "mkdir /made", "pause"]);
        let start = || {
            let mut job = disk(&bundle, &[]).spawn();
            assert_eq!(job.line(1), json!(null));
            job
        };
        let (lives, killed) = (start(), start());
        assert_eq!(layers(), 2);
        crate::sys::kill(killed.pid(), libc::SIGKILL).unwrap();
        killed.wait();
        let quick = image(ctx).ops(&["exit 0"]);
        crate::fixture::eventually("only the layer of the one that lives", || {
            disk(&quick, &[]).ok();
            (layers() == 1).then_some(())
        });
        crate::sys::kill(lives.pid(), libc::SIGTERM).unwrap();
        assert_eq!((lives.wait().code, layers()), (0, 0));
        ctx.rt(["delete", "--force", "--regex", ".*"]).run();
    }
    // Where no disk is.
    let bundle = image(ctx).ops(&["say no"]);
    let run = |flag: &str| ctx.rt(["run", flag]).arg(&bundle.dir);
    run("--writable=here").fails(&["--writable", "here", "memory or disk"]);
    ctx.rt(["run", "-d", "--writable=disk"]).arg(&bundle.dir).fails(&["--detach", "--overlay DIR"]);
    // Somebody has taken the place, which holds nobody up.
    if ctx.caller == Caller::User && Caller::tests_are_root() {
        let place = ctx.mkdir("taken");
        let theirs = place.join(format!("rt-writable-{}", crate::step_container::sys_uid(ctx)));
        fs::create_dir(&theirs).unwrap();
        fs::set_permissions(&theirs, fs::Permissions::from_mode(0o777)).unwrap();
        run("--writable=disk").env("TMPDIR", &place).ok();
        assert!(theirs.with_extension("1").exists());
        // All names that can be told beforehand.
        fs::remove_dir(theirs.with_extension("1")).unwrap();
        (1..100).for_each(|n| fs::create_dir(theirs.with_extension(n.to_string())).unwrap());
        fs::set_permissions(&place, fs::Permissions::from_mode(0o1777)).unwrap();
        let count = || fs::read_dir(&place).unwrap().count();
        run("--writable=disk").env("TMPDIR", &place).ok();
        run("--writable=disk").env("TMPDIR", &place).ok();
        assert_eq!(count(), 101, "the second one finds the directory of the first");
        // Where others rename, a directory of the caller's has been given the name.
        fs::set_permissions(&theirs, fs::Permissions::from_mode(0o700)).unwrap();
        let precious = theirs.join("results");
        fs::create_dir(&precious).unwrap();
        [&theirs, &precious].into_iter().for_each(|dir| ctx.give(dir));
        fs::set_permissions(&place, fs::Permissions::from_mode(0o777)).unwrap();
        run("--writable=disk").env("TMPDIR", &place).run();
        assert!(precious.exists());
    }
}

fn joined_programs_see_the_layer(ctx: &Ctx) {
    let id = ctx.id();
    let bundle = image(ctx).ops(&["write /d/new x", "pause"]);
    ctx.rt(["run", "-d", "--writable", "-b"]).arg(&bundle.dir).arg(&id).ok();
    crate::fixture::eventually("the file", || {
        let out = ctx.rt(["exec", &id, "/probe", "cat /d/new", "write /d/more y", "ls /d"]).ok();
        (out.line(0) == "x").then(|| assert_eq!(out.line(2), json!(["file", "more", "new", "sub"])))
    });
    ctx.rt(["delete", "--force", &id]).silent();
    assert!(!bundle.rootfs().join("d/more").exists());
}

fn overlay_in_use_is_refused(ctx: &Ctx) {
    for (n, bundle) in [image(ctx), in_place(image(ctx))].into_iter().enumerate() {
        let dir = ctx.path(&format!("layer{n}"));
        let flags = ["run", "--overlay", dir.to_str().unwrap()];
        let bundle = bundle.ops(&["pause"]);
        let id = ctx.id();
        let mut job = ctx.rt(flags).arg("-b").arg(&bundle.dir).arg(&id).spawn();
        job.line(0);
        let out = ctx.rt(flags).arg(&bundle.dir).fails(&["--overlay", "layer", "another container uses it"]);
        assert_eq!(out.code, 1);
        let other = ctx.path(&format!("other{n}"));
        let exit = bundle.ops(&["exit 4"]);
        assert_eq!(ctx.rt(["run", "--overlay"]).arg(&other).arg(&exit.dir).run().code, 4);
        ctx.rt(["kill", &id, "TERM"]).silent();
        assert_eq!(job.wait().code, 0);
        ctx.rt(["list", "-q"]).ok();
    }
}

/// Also where nothing of rt stays beside the program.
fn one_writes_or_many_read(ctx: &Ctx) {
    for (n, bundle) in [image(ctx), in_place(image(ctx))].into_iter().enumerate() {
        let dir = ctx.path(&format!("layer{n}"));
        let write = ["run", "--overlay", dir.to_str().unwrap()];
        let read = [&write[..], &["--read-only"]].concat();
        let install = Bundle { dir: bundle.dir.clone(), config: bundle.config.clone(), ids: bundle.ids };
        let install = install.ops(&["write /d/new x", "rm /d/sub/deep"]);
        ctx.rt(write).arg(&install.dir).ok();
        let bundle = bundle.ops(&["cat /d/new", "ls /d/sub", "write /d/more x", "pause"]);
        let start = |flags: &[&str]| {
            let id = ctx.id();
            let mut job = ctx.rt(flags).arg("-b").arg(&bundle.dir).arg(&id).spawn();
            assert_eq!((job.line(0), job.line(1)), (json!("x"), json!([])));
            (id, job)
        };
        let readers = [start(&read), start(&read)];
        let refused = ctx.rt(write).arg(&bundle.dir).run();
        refused.failed(&["--overlay", "layer", "reads it"]);
        assert!(readers.iter().any(|(id, _)| refused.stderr.contains(id)), "{}", refused.stderr);
        for (id, mut job) in readers {
            assert_eq!(job.line(2), errno(libc::EROFS));
            ctx.rt(["kill", &id, "TERM"]).silent();
            assert_eq!(job.wait().code, 0);
        }
        let (id, mut writer) = start(&write);
        ctx.rt(&read[..]).arg(&bundle.dir).fails(&["--overlay", "layer", "writes to it", &id]);
        ctx.rt(["kill", &id, "TERM"]).silent();
        assert_eq!((writer.line(2), writer.wait().code), (json!(null), 0));
        ctx.rt(["list", "-q"]).ok();
    }
}

/// What was installed over an image becomes its second layer, and what was removed is gone.
fn an_overlay_becomes_an_image(ctx: &Ctx) {
    let ops = [
        "write /d/new x",
        "append /d/file +more",
        "rm /d/sub/deep",
        "rmdir /d/sub",
        "mkdir /d/sub",
        "write /d/sub/other y",
    ];
    let bundle = image(ctx).ops(&ops);
    let dir = ctx.path("layer");
    run(ctx, &bundle, &["--overlay", dir.to_str().unwrap()]);
    let before = tree(&dir.join("upper"), true);
    let rt = |words: &[&str]| {
        let path = crate::images::search_path(ctx);
        let rt = ctx.rt(words).env("PATH", path).env("RT_IMAGES", ctx.path("images"));
        rt.env("RT_CACHE", ctx.path("cache")).cwd(&ctx.dir)
    };
    let over = ["--overlay", dir.to_str().unwrap(), bundle.dir.to_str().unwrap()];
    rt(&[&["save", "-q"], &over[..], &["oci:saved:t"]].concat()).ok();
    rt(&[&["convert", "-q"], &over[..], &["docker-archive:x.tar:x:1"]].concat()).ok();
    for (n, name) in ["oci:saved:t", "docker-archive:x.tar:x:1"].into_iter().enumerate() {
        let made = format!("made{n}");
        rt(&["pull", "-q", name, &made]).ok();
        let at = |path: &str| ctx.path(&made).join("rootfs/d").join(path);
        let read = |path: &str| fs::read_to_string(at(path)).unwrap();
        assert_eq!(
            (read("new"), read("file"), read("sub/other")),
            ("x".into(), "image+more".into(), "y".into())
        );
        assert!(!at("sub/deep").exists(), "{name}");
    }
    assert_eq!(tree(&dir.join("upper"), true), before);
    // Nobody writes to it meanwhile; others may read it.
    let id = ctx.id();
    let pause = Bundle { dir: bundle.dir.clone(), ..image(ctx) }.ops(&["pause"]);
    let start = |flags: &[&str]| {
        let mut job =
            ctx.rt(["run", "--overlay"]).arg(&dir).args(flags).arg("-b").arg(&pause.dir).arg(&id).spawn();
        job.line(0);
        job
    };
    for (flags, may) in [(&["--read-only"][..], true), (&[], false)] {
        let job = start(flags);
        let save = rt(&[&["save", "-q", "-f"], &over[..], &["oci:saved:t"]].concat()).run();
        match may {
            true => assert_eq!(save.code, 0, "{save:?}"),
            false => save.failed(&["--overlay", "writes to it", &id]),
        }
        ctx.rt(["kill", &id, "TERM"]).silent();
        assert_eq!(job.wait().code, 0);
    }
}

fn overlay_can_be_used_again_at_once(ctx: &Ctx) {
    for (n, bundle) in [image(ctx), in_place(image(ctx))].into_iter().enumerate() {
        let dir = ctx.path(&format!("layer{n}"));
        bundle.file("count", "");
        let bundle = bundle.ops(&["append /count x", "cat /count"]);
        for times in 1..8 {
            let all = run(ctx, &bundle, &["--overlay", dir.to_str().unwrap()]);
            assert_eq!(all[1], "x".repeat(times));
        }
    }
}

fn read_only_root(ctx: &Ctx) {
    let bundle = image(ctx).with("/root/readonly", json!(false)).ops(&["write /d/new x", "mkdir /made"]);
    assert_eq!(run(ctx, &bundle, &["--read-only"]), [errno(libc::EROFS), errno(libc::EROFS)]);
    assert_eq!(run(ctx, &bundle, &[]), [json!(null), json!(null)]);
}

fn masks_hold_over_a_layer(ctx: &Ctx) {
    let bundle = image(ctx)
        .push("/linux/maskedPaths", json!("/d/file"))
        .push("/linux/maskedPaths", json!("/d/sub"))
        .push("/linux/readonlyPaths", json!("/home"))
        .ops(&[
            "cat /d/file",
            "ls /d/sub",
            "write /home/x y",
            "write /proc/sys/kernel/hostname x",
            "write /d/x y",
        ]);
    let all = run(ctx, &bundle, &["--writable"]);
    let expected = [json!(""), json!([]), errno(libc::EROFS), errno(libc::EROFS), json!(null)];
    assert_eq!(all, expected);
}

fn working_directory_is_made(ctx: &Ctx) {
    let bundle = image(ctx).ops(&["cwd", "write here x"]);
    let before = bundle.strict_tree();
    let data = ctx.mkdir("data");
    let volume = format!("{}:/data", data.display());
    // One that nobody can write to is probably a name with an error in it, or was meant to be bound.
    for (dir, flags, read_only) in [
        ("/made/here", &[][..], true),
        ("/made/here", &["--writable"], false),
        ("/data/new", &["-v", &volume], false),
        ("/d", &[], true),
    ] {
        let out = ctx.rt(["run", "-w", dir]).args(flags).arg(&bundle.dir).ok();
        assert_eq!(out.line(0), dir);
        assert_eq!(out.line(1), if read_only { errno(libc::EROFS) } else { json!(null) }, "{flags:?}");
        let said =
            format!("rt: the working directory {dir} is in no image and no mount: it is empty and read-only");
        assert_eq!(out.stderr.starts_with(&said), read_only && dir != "/d", "{flags:?}: {}", out.stderr);
    }
    assert_eq!(bundle.strict_tree(), before);
    ctx.rt(["run", "-w", "relative"]).arg(&bundle.dir).fails(&["relative", "absolute"]);
    ctx.rt(["run", "-w", "/d/file"]).arg(&bundle.dir).fails(&["/d/file"]);
}

fn wrong_layers_are_refused(ctx: &Ctx) {
    let bundle = image(ctx);
    let refused = |flags: &[&str], texts: &[&str]| {
        ctx.rt(["run"]).args(flags).arg(&bundle.dir).fails(texts);
    };
    refused(&["--writable", "--overlay", "x"], &["--writable", "--overlay", "exclude"]);
    refused(&["--writable", "--read-only"], &["--writable", "--read-only", "exclude"]);
    refused(&["--overlay", "/not/there/x"], &["--overlay /not/there/x", "no such file"]);
    let file = ctx.file("file", "");
    refused(&["--overlay", file.to_str().unwrap()], &["--overlay", "not a directory"]);
    refused(&["--overlay", "/proc/self"], &["--overlay /proc/self"]);
    if ctx.caller == Caller::User {
        refused(&["--overlay", "/"], &["--overlay /", "it belongs to uid 0"]);
    }
    // A container that cannot be started makes no directory beside those that it was asked for.
    let names: Vec<_> = fs::read_dir(&ctx.state).into_iter().flatten().collect();
    assert!(names.is_empty(), "{names:?}");
    let inside = bundle.rootfs().join("d");
    let before = bundle.tree();
    for dir in [inside.join("layer"), inside, bundle.rootfs()] {
        refused(&["--overlay", dir.to_str().unwrap()], &["--overlay", "it is in the image"]);
    }
    assert_eq!(bundle.tree(), before);
}

/// Gives the child mounts of its own.
fn own_mounts() -> [Step; 2] {
    let private = Step::Mount(c("none"), c("/"), c(""), libc::MS_REC | libc::MS_PRIVATE, c(""));
    [Step::Unshare(libc::CLONE_NEWNS), private]
}

fn mounts_in_the_image_are_refused(ctx: &Ctx) {
    let bundle = image(ctx);
    let at = bundle.rootfs().join("mnt");
    let [unshare, private] = own_mounts();
    let mount = [unshare, private, Step::Mount(c("none"), c(&at), c("tmpfs"), 0, c(""))];
    if !Caller::tests_are_root() {
        skip!("to mount in an image takes root");
    }
    let run = ctx.rt(["run", "--writable"]).arg(&bundle.dir).before(mount);
    run.fails(&["rootfs/mnt is a mount of its own in the image"]);
}

fn nodes_of_the_image_stay_dead(ctx: &Ctx) {
    let bundle = image(ctx).ops(&["mknod /d/null 1 3", "open /d/null"]);
    let all = run(ctx, &bundle, &["--writable"]);
    if all[0] == json!(null) && !ctx.root_has(27) {
        assert_eq!(all[1], errno(libc::EACCES), "a device node that works has been made");
    }
}

fn callers_home_by_flag(ctx: &Ctx) {
    let home = ctx.mkdir("home/jo");
    ctx.file("home/jo/file", "mine");
    let file = home.join("file");
    let bundle = image(ctx).ops(&[&format!("cat {}", file.display())]);
    let read = |flags: &[&str]| {
        let run = ctx.rt(["run"]).args(flags).arg(&bundle.dir).env("HOME", &home);
        run.ok().line(0)
    };
    assert_eq!(read(&[]), errno(libc::ENOENT));
    assert_eq!(read(&["--home"]), "mine");
    assert_eq!(read(&["--home", "--writable"]), "mine");
    assert_eq!(read(&["--home=false"]), errno(libc::ENOENT));
}

fn hooks_see_the_layer(ctx: &Ctx) {
    let noted = ctx.path("noted");
    let bundle = image(ctx).ops(&["write /d/new x"]);
    let root = bundle.rootfs();
    let look = format!("to {} ls {}/d", noted.display(), root.display());
    let bundle = bundle.hook("createContainer", &ctx.helper(), &[&look]);
    let dir = ctx.path("layer");
    run(ctx, &bundle, &["--overlay", dir.to_str().unwrap()]);
    run(ctx, &bundle, &["--overlay", dir.to_str().unwrap()]);
    let seen = fs::read_to_string(&noted).unwrap();
    assert_eq!(seen.lines().last().unwrap(), r#"["file","new","sub"]"#, "{seen}");
}

/// Gives a root to somebody else. The program in it, which is one file in the roots of all tests, becomes a copy before.
fn give_root(bundle: &Bundle, id: u32) {
    let program = bundle.rootfs().join("bin/probe");
    let copy = program.with_extension("copy");
    fs::copy(&program, &copy).and_then(|_| fs::rename(&copy, &program)).unwrap();
    for (path, _) in tree(&bundle.rootfs(), false) {
        if !path.is_symlink() {
            crate::sys::chown(&path, id, id).unwrap();
        }
    }
}

fn image_of_somebody_else(ctx: &Ctx) {
    if !Caller::tests_are_root() {
        skip!("to give files to somebody else takes root");
    }
    let bundle = image(ctx);
    give_root(&bundle, 0);
    let bundle =
        bundle.ops(&["write /d/new x", "append /d/file x", "write /new x", "write /tmp/new x", "ls /home"]);
    let before = bundle.strict_tree();
    // His files are nobody's here, as they would be without a layer, and a layer cannot take over an owner who does not
    // exist inside. The root is the layer's own, and mount points appear.
    for flag in ["--writable", "--as-root"] {
        let out = ctx.rt(["run", flag, "--tmpfs", "/home/mnt"]).arg(&bundle.dir).ok();
        let all = out.all();
        let is_said = out.stderr.contains("the image's files belong to uid 0 and stay as they are");
        assert_eq!(is_said, flag == "--as-root", "{out:?}");
        ctx.rt(["list", "-q"]).ok();
        let denied = errno(libc::EACCES);
        let expected = [denied.clone(), denied, json!(null), errno(libc::EOVERFLOW), json!(["mnt"])];
        assert_eq!(all, expected, "{flag}");
    }
    assert_eq!(bundle.strict_tree(), before);
}

/// Another user's layer would have the caller run that user's programs, and links in it would have the caller change what
/// they lead to.
fn layers_of_somebody_else(ctx: &Ctx) {
    let bundle = image(ctx).ops(&["write /d/new x"]);
    let refused = |dir: &std::path::Path, texts: &[&str]| {
        ctx.rt(["run", "--overlay"]).arg(dir).arg(&bundle.dir).fails(texts);
    };
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let chmod = |path: &std::path::Path, bits| {
        fs::set_permissions(path, fs::Permissions::from_mode(bits)).unwrap();
    };
    let mine = ctx.mkdir("mine");
    chmod(&mine, 0o700);
    for bits in [0o777, 0o1777, 0o770] {
        let open = ctx.mkdir(&format!("open{bits:o}"));
        chmod(&open, bits);
        refused(&open, &["--overlay", "others than its owner can write in it"]);
        assert_eq!(fs::read_dir(&open).unwrap().count(), 0, "nothing was made in it");
    }
    let link = ctx.path("link");
    std::os::unix::fs::symlink(&mine, &link).unwrap();
    refused(&link, &["--overlay"]);
    refused(&link.join(""), &["--overlay"]);
    for part in ["upper", "work"] {
        let dir = ctx.mkdir(&format!("linked-{part}"));
        std::os::unix::fs::symlink(&mine, dir.join(part)).unwrap();
        refused(&dir, &["--overlay", part]);
        let dir = ctx.mkdir(&format!("open-{part}"));
        chmod(&ctx.mkdir(&format!("open-{part}/{part}")), 0o777);
        refused(&dir, &["--overlay", part, "others than its owner can write in it"]);
        // Nobody else can enter this one.
        chmod(&dir, 0o700);
        run(ctx, &bundle, &["--overlay", dir.to_str().unwrap()]);
    }
    assert_eq!((mode(&mine), fs::read_dir(&mine).unwrap().count()), (0o700, 0), "a link was followed");
    // In a directory for everybody, such as /tmp.
    let tmp = ctx.mkdir("tmp");
    chmod(&tmp, 0o1777);
    let inside = tmp.join("layer");
    run(ctx, &bundle, &["--overlay", inside.to_str().unwrap()]);
    if !Caller::tests_are_root() {
        skip!("to give directories to somebody else takes root");
    }
    let (dir, theirs) = (ctx.mkdir("theirs"), ctx.mkdir("inside"));
    crate::sys::chown(&dir, 12_345, 12_345).unwrap();
    refused(&dir, &["--overlay", "it belongs to uid 12345"]);
    let upper = ctx.mkdir("inside/upper");
    crate::sys::chown(&upper, 12_345, 12_345).unwrap();
    refused(&theirs, &["--overlay", "upper", "it belongs to uid 12345"]);
}

fn links_of_the_image_stay_inside(ctx: &Ctx) {
    let outside = ctx.mkdir("outside");
    let data = ctx.mkdir("data");
    ctx.file("data/f", "host");
    let bundle = image(ctx);
    bundle.link("d/absolute", outside.to_str().unwrap());
    bundle.link("d/up", &format!("../../../../../../../..{}", outside.display()));
    bundle.mkdir(outside.strip_prefix("/").unwrap().to_str().unwrap());
    let inside = outside.join("a/f");
    let bundle =
        bundle.ops(&[&format!("cat {}", inside.display()), "cat /d/up/b/f", "write /d/absolute/new x"]);
    let volumes = ["/d/absolute/a", "/d/up/b"].map(|to| format!("{}:{to}", data.display()));
    let all = run(ctx, &bundle, &["--writable", "-v", &volumes[0], "-v", &volumes[1]]);
    assert_eq!(all, [json!("host"), json!("host"), json!(null)]);
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "something was made on the host");
}

fn host_files_are_copied_into_the_layer(ctx: &Ctx) {
    ctx.mkdir("host");
    let file = ctx.file("host/file", "host");
    let path = file.to_str().unwrap();
    let bundle = image(ctx).mount(path, "bind", path, &["bind", "ro", "nosuid", "nodev"]);
    let bundle = bundle.with("/annotations", json!({ "rt.mounts.copied": path }));
    bundle.mkdir(ctx.path("host").strip_prefix("/").unwrap().to_str().unwrap());
    // What the image has itself is in the bundle's record, as rt pull writes it.
    bundle.file(path.trim_start_matches('/'), "the image's");
    let record = rt_spec::host_files::line(&file, b"the image's");
    fs::write(bundle.dir.join(rt_spec::host_files::RECORD), record).unwrap();
    let cat = format!("cat {path}");
    let bundle = bundle.ops(&[&cat, "write /new package", &format!("rename /new {path}"), &cat]);
    let before = tree(&bundle.dir, true);
    let dir = ctx.path("layer");
    let expected = |first: &str| [json!(first), json!(null), json!(null), json!("package")];
    for flags in [&["--as-root"][..], &["--as-root"], &["--as-root", "--overlay", dir.to_str().unwrap()]] {
        assert_eq!(run(ctx, &bundle, flags), expected("host"), "{flags:?}");
    }
    // What has been written there since stays.
    let flags = ["--as-root", "--overlay", dir.to_str().unwrap()];
    assert_eq!(run(ctx, &bundle, &flags), expected("package"));
    assert_eq!(tree(&bundle.dir, true), before, "neither the image nor what is beside it has changed");
}

fn layer_under_a_shared_root(ctx: &Ctx) {
    let bundle = image(ctx).with("/linux/rootfsPropagation", json!("shared")).ops(&["write /d/new x"]);
    let before = bundle.strict_tree();
    run(ctx, &bundle, &["--writable"]);
    assert_eq!(bundle.strict_tree(), before, "the fixture looks for mounts on the host");
}

fn overlay_on_an_overlay_is_refused(ctx: &Ctx) {
    let bundle = image(ctx);
    let (lower, upper, work, merged) = (ctx.mkdir("l"), ctx.mkdir("u"), ctx.mkdir("w"), ctx.mkdir("m"));
    let data =
        format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display());
    let [unshare, private] = own_mounts();
    let mount = [unshare, private, Step::Mount(c("overlay"), c(&merged), c("overlay"), 0, c(data.as_str()))];
    let dir = merged.join("layer");
    let run = ctx.rt(["run", "--overlay"]).arg(&dir).arg(&bundle.dir).before(mount);
    run.fails(&["--overlay", "it is on an overlay", "--writable"]);
    assert!(!upper.join("layer").exists());
}

fn overlay_of_another_image(ctx: &Ctx) {
    if rustix::fs::setxattr(ctx.path(""), "user.test", b"", rustix::fs::XattrFlags::empty()).is_err() {
        skip!("no user.* attributes in {}, as in a tmpfs before Linux 6.6", ctx.path("").display());
    }
    let dir = ctx.path("layer");
    let flags = ["--overlay", dir.to_str().unwrap()];
    run(ctx, &image(ctx).ops(&["write /d/new x"]), &flags);
    let other = image(ctx).ops(&["cat /d/new"]);
    let run = ctx.rt(["run"]).args(flags).arg(&other.dir);
    run.fails(&["--overlay", "made over another image", "new directory"]);
}

fn layer_of_many_ids(ctx: &Ctx) {
    let bundle = image(ctx)
        .namespace("user", None)
        .with("/linux/uidMappings", json!([{ "containerID": 0, "hostID": 400_000, "size": 65_536 }]))
        .with("/linux/gidMappings", json!([{ "containerID": 0, "hostID": 400_000, "size": 65_536 }]));
    give_root(&bundle, 400_000);
    let bundle = bundle.ops(&["write /d/new x", "stat /d/new", "stat /"]);
    let before = bundle.strict_tree();
    let dir = ctx.path("layer");
    for flags in [&["--writable"][..], &["--overlay", dir.to_str().unwrap()]] {
        let all = run(ctx, &bundle, flags);
        assert_eq!(
            (&all[0], &all[1]["uid"], &all[2]["uid"]),
            (&json!(null), &json!(0), &json!(0)),
            "{flags:?}"
        );
    }
    assert_eq!(bundle.strict_tree(), before);
    assert!(dir.join("upper/d/new").exists());
}
