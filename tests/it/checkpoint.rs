//! `rt checkpoint`, `rt restore` and `rt run --checkpoint` as far as they need no criu: what they refuse, and what becomes of the
//! container then. integration/checkpoint.sh has the rest.

use crate::client::Caller;
use crate::fixture::{Cmd, Container, Ctx, eventually};
use crate::runner::tests;
use crate::sys::Step;
use serde_json::{Value, json};
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

tests! {
    BOTH {
        without_criu, what_one_id_cannot_have, states_that_have_no_image, images_that_are_none, images_of_others, a_restore_can_be_ended,
        a_job_that_is_being_restored_is_run_again,
        not_in_a_mount_namespace_of_others,
        images_of_other_machines, run_says_it_at_the_start, an_image_replaces_images_alone, places_of_others,
        loaders_of_others, images_that_are_damaged, streams_keep_their_permissions, gpus_are_given_back, gpus_without_cuda_checkpoint, gpus_that_cannot_be_kept,
        gpus_of_a_killed_checkpoint, gpus_that_are_not_here, forks_that_fail, the_tmpdir_of_a_job_keeps_no_image,
        filters_that_refuse_criu_its_calls,
        one_run_has_a_directory, streams_of_others_are_told_at_the_start, a_job_that_runs_again_has_its_directory, the_image_of_another_run_stays,
    }
    ROOT { mounts_below_an_old_draft_stay, the_null_device_keeps_its_mode }
}

/// A criu that is none, so that the host's does not matter.
fn no_criu(ctx: &Ctx) -> PathBuf {
    ctx.path("no-criu")
}

fn rt(ctx: &Ctx, words: &[&str]) -> Cmd {
    ctx.rt(words).env("RT_CRIU", no_criu(ctx))
}

fn without_criu(ctx: &Ctx) {
    let container = ctx.started(&ctx.bundle().ops(&["ready", "sleep 60000"]));
    let image = ctx.path("image");
    let checkpoint = || rt(ctx, &["checkpoint", "--image-path", image.to_str().unwrap(), &container.id]);
    checkpoint().fails(&["no-criu", "no such program", "criu 4.2 or later", "RT_CRIU"]);
    assert_eq!(container.status(), "running");
    assert!(!image.exists());
    // A program that is not criu.
    let error = checkpoint().env("RT_CRIU", ctx.rt_path()).run();
    assert_eq!((error.code, container.status()), (1, "running".to_owned()), "{error:?}");
    assert!(!image.exists());
}

/// `--version` of a criu that can do nothing else: the program of the tests stands for it.
pub fn say_version() -> i32 {
    println!("Version: 4.2");
    0
}

/// What a call that was killed has left is removed before an image is written, but not what somebody has mounted in it.
fn mounts_below_an_old_draft_stay(ctx: &Ctx) {
    let (old, precious) = (ctx.mkdir(".image.new/deep/mount"), ctx.mkdir("precious"));
    fs::write(precious.join("file"), "stays").unwrap();
    ctx.file(".image.new/draft", "");
    let status = Command::new("mount").arg("--bind").args([&precious, &old]).status().unwrap();
    assert!(status.success());
    let bundle =
        ctx.bundle().with("/annotations", json!({ "rt.init": "true" })).ops(&["ready", "sleep 60000"]);
    let container = ctx.started(&bundle);
    let checkpoint = ctx
        .rt(["checkpoint", "--image-path", ctx.path("image").to_str().unwrap(), &container.id])
        .env("RT_CRIU", ctx.helper())
        .run();
    assert!(
        checkpoint.stderr.contains("deep/mount") && checkpoint.stderr.contains("mounted"),
        "{checkpoint:?}"
    );
    assert_eq!(fs::read_to_string(precious.join("file")).unwrap(), "stays");
    assert!(Command::new("umount").arg(&old).status().unwrap().success());
}

fn what_one_id_cannot_have(ctx: &Ctx) {
    for (words, text) in [
        (&["--lazy-pages"][..], "--lazy-pages cannot be had"),
        (&["--pre-dump"], "--pre-dump cannot be had"),
        (&["--parent-path", "../x"], "--parent-path cannot be had"),
        (&["--page-server", "localhost:1"], "--page-server cannot be had"),
        (&["--status-fd", "3"], "--status-fd cannot be had"),
        (&["--manage-cgroups-mode", "full"], "--manage-cgroups-mode full cannot be had"),
        (&["--manage-cgroups-mode", "most"], "soft, full, strict or ignore"),
    ] {
        rt(ctx, &["checkpoint"]).args(words).arg("none").fails(&[text]);
    }
    rt(ctx, &["restore", "--lazy-pages", "none"]).fails(&["--lazy-pages cannot be had"]);
    // What is said by runc's clients, and needs nothing here.
    let said =
        ["--tcp-established", "--ext-unix-sk", "--shell-job", "--file-locks", "--manage-cgroups-mode=ignore"];
    rt(ctx, &["checkpoint"]).args(said).arg("none").fails(&["none"]);
}

fn states_that_have_no_image(ctx: &Ctx) {
    rt(ctx, &["checkpoint", "none"]).fails(&["container does not exist: none"]);
    let container = ctx.create(&ctx.bundle().ops(&["ready", "sleep 60000"]));
    let checkpoint = || rt(ctx, &["checkpoint", &container.id]);
    checkpoint().fails(&["cannot be checkpointed in created state"]);
    container.start();
    container.line(0);
    // As containerd does. It stays paused.
    ctx.rt(["pause", &container.id]).silent();
    checkpoint().arg("--leave-running").env("RT_CRIU", some_criu(ctx)).ok();
    assert_eq!(container.status(), "paused");
    ctx.rt(["resume", &container.id]).silent();
    container.kill("KILL");
    container.ended();
    checkpoint().fails(&["container not running"]);
}

/// An image that could be whole, with `change` of its manifest.
fn image(ctx: &Ctx, name: &str, change: impl FnOnce(&mut Value)) -> PathBuf {
    let dir = ctx.mkdir(name);
    let mut manifest = json!({
        "form": 5, "created": "2026-01-01T00:00:00Z", "architecture": std::env::consts::ARCH, "cpu": [], "program": 2,
        "highest": 2, "streams": ["", "", ""], "memory": [], "ownNetwork": false,
    });
    change(&mut manifest);
    ctx.file(&format!("{name}/rt.json"), &manifest.to_string());
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).unwrap();
    dir
}

fn restore(ctx: &Ctx, image: &Path) -> Cmd {
    let bundle = ctx.bundle().ops(&["ready"]);
    let id = ctx.id();
    rt(ctx, &["restore", "--bundle"]).arg(&bundle.dir).arg("--image-path").arg(image).arg(id)
}

fn images_that_are_none(ctx: &Ctx) {
    restore(ctx, &ctx.path("nowhere")).fails(&["nowhere", "no such file or directory"]);
    let empty = ctx.mkdir("empty");
    fs::set_permissions(&empty, fs::Permissions::from_mode(0o700)).unwrap();
    restore(ctx, &empty).fails(&["no image of rt checkpoint", "rt.json is missing"]);
    for (name, text) in [("cut", "{\"form\":1,"), ("other", "[]"), ("words", "no JSON")] {
        let dir = image(ctx, name, |_| {});
        fs::write(dir.join("rt.json"), text).unwrap();
        restore(ctx, &dir).fails(&["rt.json"]);
    }
    let form = image(ctx, "form", |manifest| manifest["form"] = json!(6));
    restore(ctx, &form).fails(&["form 6 is another rt's"]);
    for (name, key, value) in [
        ("most", "highest", json!(i32::MAX)),
        ("none", "program", json!(0)),
        ("low", "highest", json!(1)),
        ("few", "streams", json!([])),
    ] {
        let dir = image(ctx, name, |manifest| manifest[key] = value);
        restore(ctx, &dir).fails(&["the numbers of its processes are none"]);
    }
    // A whole one gets as far as criu.
    restore(ctx, &image(ctx, "whole", |_| {})).fails(&["no-criu", "no such program"]);
}

/// criu would wait for ever for memory that is missing.
fn images_that_are_damaged(ctx: &Ctx) {
    let (container, dir) = (started(ctx), ctx.path("image"));
    checkpoint(ctx, &dir, &container.id).ok();
    let pages = dir.join("pages-1.img");
    let whole = fs::read(&pages).unwrap();
    assert!(!whole.is_empty());
    fs::write(&pages, &whole[1..]).unwrap();
    let was = format!("pages-1.img has {} bytes, and had {}", whole.len() - 1, whole.len());
    restore(ctx, &dir).fails(&["image is damaged", &was]);
    let mut other = whole.clone();
    other[0] ^= 1;
    fs::write(&pages, &other).unwrap();
    restore(ctx, &dir).fails(&["image is damaged", "pages-1.img has another content"]);
    // A whole one gets as far as criu.
    fs::write(&pages, &whole).unwrap();
    restore(ctx, &dir).fails(&["no-criu", "no such program"]);
    fs::remove_file(&pages).unwrap();
    restore(ctx, &dir).fails(&["image is damaged", "pages-1.img is missing"]);
}

/// What takes the place of a standard stream is the caller's, whatever an image says of it.
fn streams_keep_their_permissions(ctx: &Ctx) {
    for own in [0o600, 0o640] {
        let image = image(ctx, "image", |manifest| {
            manifest["streams"] = json!(["file[1:2]", "", ""]);
            manifest["kinds"] = json!(["file", "other", "other"]);
        });
        ctx.file("private", "key");
        let file = ctx.path("private");
        ctx.give(&file);
        fs::set_permissions(&file, fs::Permissions::from_mode(own)).unwrap();
        let stdin = fs::File::open(&file).unwrap();
        let restore = restore(ctx, &image).env("RT_CRIU", some_criu(ctx));
        let failed = restore.before([Step::Dup(stdin.as_raw_fd(), 0)]).fails(&["criu failed"]);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, own, "{failed:?}");
        fs::remove_file(&file).unwrap();
    }
}

/// While criu works, no mount follows links.
fn not_in_a_mount_namespace_of_others(ctx: &Ctx) {
    let image = image(ctx, "image", |_| {});
    let namespaces =
        json!([{ "type": "pid" }, { "type": "uts" }, { "type": "mount", "path": "/proc/self/ns/mnt" }]);
    let bundle = ctx.bundle().with("/linux/namespaces", namespaces).ops(&["say no"]);
    let restore = rt(ctx, &["restore", "--bundle"]).arg(&bundle.dir).arg("--image-path").arg(&image);
    restore.arg(ctx.id()).env("RT_CRIU", some_criu(ctx)).fails(&["joins a mount namespace"]);
}

/// criu can wait for what never comes, and take minutes.
fn a_restore_can_be_ended(ctx: &Ctx) {
    for (signal, flag) in [(libc::SIGTERM, None), (libc::SIGINT, None), (libc::SIGTERM, Some("--detach"))] {
        let image = image(ctx, "image", |_| {});
        ctx.file("image/wait", "");
        let bundle = ctx.bundle().ops(&["ready"]);
        let restore = rt(ctx, &["restore"]).args(flag).arg("--bundle").arg(&bundle.dir).arg("--image-path");
        let job = restore.arg(&image).arg(ctx.id()).env("RT_CRIU", some_criu(ctx)).spawn();
        crate::fixture::eventually("criu waits", || image.join("waits").exists().then_some(()));
        crate::sys::kill(job.pid(), signal).unwrap();
        let out = job.wait();
        assert_eq!((out.code, out.stderr.contains("a signal has ended it")), (1, true), "{out:?}");
        assert_eq!(ctx.rt(["list", "-q"]).ok().stdout, "");
        fs::remove_dir_all(&image).unwrap();
    }
}

/// The last image of a batch job is whole: who preempts the job meanwhile has it run again.
fn a_job_that_is_being_restored_is_run_again(ctx: &Ctx) {
    let asked = ctx.path("asked");
    ctx.mkdir("bin");
    let scontrol = format!("#!/bin/sh\n[ \"$2\" = show ] || echo \"$@\" >>{}\n", asked.display());
    ctx.file("bin/scontrol", &scontrol);
    fs::set_permissions(ctx.path("bin/scontrol"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", ctx.path("bin").display());
    ctx.mkdir("kept");
    let last = ctx.path("kept/last");
    let ended_by = |signal: i32, run: &dyn Fn(Cmd) -> Cmd| {
        image(ctx, "kept/last", |_| {});
        ctx.file("kept/last/wait", "");
        let bundle = ctx.bundle().ops(&["ready"]);
        bundle.write();
        let checkpointed = rt(ctx, &["run", "--checkpoint"]).arg(ctx.path("kept"));
        let job = run(checkpointed).arg(&bundle.dir).env("RT_CRIU", some_criu(ctx)).spawn();
        crate::fixture::eventually("criu waits", || last.join("waits").exists().then_some(()));
        crate::sys::kill(job.pid(), signal).unwrap();
        job.wait()
    };
    for (signal, is_asked) in [(libc::SIGTERM, false), (libc::SIGUSR1, true)] {
        let of_job = |run: Cmd| run.arg("--name").arg(ctx.id()).env("SLURM_JOB_ID", "7").env("PATH", &path);
        let out = ended_by(signal, &of_job);
        assert_eq!((out.code, out.stderr.contains("is there for the next call")), (75, true), "{out:?}");
        assert_eq!(fs::read_to_string(&asked).ok().is_some_and(|text| text == "requeue 7\n"), is_asked);
        assert!(last.join("rt.json").exists());
        assert_eq!(ctx.rt(["list", "-q"]).ok().stdout, "");
        fs::remove_dir_all(&last).unwrap();
    }
    // Others end it as they end `rt restore`.
    let out = ended_by(libc::SIGINT, &|run| run);
    assert_eq!((out.code, out.stderr.contains("a signal has ended it")), (1, true), "{out:?}");
}

fn images_of_others(ctx: &Ctx) {
    let open = image(ctx, "open", |_| {});
    fs::set_permissions(&open, fs::Permissions::from_mode(0o750)).unwrap();
    restore(ctx, &open).fails(&["others may enter it", "chmod 700"]);
    let linked = image(ctx, "linked", |_| {});
    symlink("/etc/passwd", linked.join("pages-1.img")).unwrap();
    restore(ctx, &linked).fails(&["pages-1.img is neither a file nor a directory"]);
    let whole = image(ctx, "whole", |_| {});
    let link = ctx.path("link");
    symlink(&whole, &link).unwrap();
    let error = restore(ctx, &link).run();
    assert_eq!(error.code, 1, "{error:?}");
    assert!(error.stderr.contains("image "), "a link leads to no image: {error:?}");
    fs::remove_file(link).unwrap();
}

/// What was a file is none any more: the null device does not get that file's permissions.
fn the_null_device_keeps_its_mode(ctx: &Ctx) {
    let null = ctx.path("null");
    let made = Command::new("mknod").args(["-m", "666"]).arg(&null).args(["c", "1", "3"]).status();
    assert!(made.unwrap().success());
    let image = image(ctx, "image", |manifest| {
        manifest["streams"] = json!(["file[1:2]", "", ""]);
        manifest["kinds"] = json!(["file", "other", "other"]);
    });
    let bundle = ctx.bundle().ops(&["ready"]);
    bundle.write();
    let restored = ctx
        .command("sh")
        .args(["-c", "exec \"$@\" <\"$0\""])
        .arg(&null)
        .arg(ctx.rt_path())
        .arg("--root")
        .arg(ctx.path("state"))
        .args(["restore", "--bundle"])
        .arg(&bundle.dir)
        .arg("--image-path")
        .arg(&image)
        .arg(ctx.id())
        .env("RT_CRIU", some_criu(ctx))
        .run();
    assert_eq!(fs::metadata(&null).unwrap().permissions().mode() & 0o777, 0o666);
    restored.failed(&["standard stream 0 was a file, and is none now"]);
    fs::remove_file(null).unwrap();
}

/// A criu that writes something.
fn some_criu(ctx: &Ctx) -> PathBuf {
    let path = ctx.path("criu");
    if !path.exists() {
        fs::copy(std::env::current_exe().unwrap(), &path).unwrap();
    }
    path
}

/// A container with a program that `checkpoint` can write.
fn started(ctx: &Ctx) -> Container<'_> {
    ctx.started(&ctx.bundle().ops(&["ready", "sleep 60000"]))
}

fn checkpoint(ctx: &Ctx, image: &Path, id: &str) -> Cmd {
    rt(ctx, &["checkpoint", "--leave-running", "--image-path"])
        .arg(image)
        .arg(id)
        .env("RT_CRIU", some_criu(ctx))
}

fn an_image_replaces_images_alone(ctx: &Ctx) {
    let container = started(ctx);
    let above = ctx.mkdir("above");
    let image = above.join("image");
    let names = || {
        let names =
            fs::read_dir(&above).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect::<std::collections::BTreeSet<_>>()
    };
    // What a caller makes beforehand, as containerd does.
    ctx.mkdir("above/image");
    for _ in 0..2 {
        checkpoint(ctx, &image, &container.id).ok();
        assert_eq!(names(), ["image".to_owned()].into());
        assert!(image.join("pages-1.img").exists() && !image.join("draft").exists());
        assert_eq!(fs::metadata(&image).unwrap().permissions().mode() & 0o7777, 0o700);
    }
    // What a call that was killed has left.
    ctx.mkdir("above/.image.new");
    ctx.file("above/.image.new/draft", "");
    checkpoint(ctx, &image, &container.id).ok();
    assert_eq!(names(), ["image".to_owned()].into());
    // A removal that was killed: what is left is no image, and is replaced.
    ctx.file("above/image/draft", "");
    restore(ctx, &image).fails(&["did not come to its end"]);
    checkpoint(ctx, &image, &container.id).ok();
    // Directories with something else in them stay, and so does the program.
    for name in ["results", ".image.new"] {
        let dir = ctx.mkdir(&format!("above/{name}"));
        let file = ctx.file(&format!("above/{name}/out.h5"), "precious");
        let image = if name == "results" { dir } else { image.clone() };
        checkpoint(ctx, &image, &container.id).fails(&[name, "is no image of rt checkpoint"]);
        assert_eq!(
            (fs::read_to_string(file).unwrap().as_str(), container.status().as_str()),
            ("precious", "running")
        );
    }
}

fn loaders_of_others(ctx: &Ctx) {
    let dir = ctx.mkdir("open");
    ctx.mkdir("open/lib64");
    for name in ["ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"] {
        ctx.file(&format!("open/lib64/{name}"), "no loader");
    }
    ctx.mkdir("open/lib");
    ctx.file("open/lib/ld-linux-aarch64.so.1", "no loader");
    ctx.mkdir("open/bin");
    fs::copy(std::env::current_exe().unwrap(), dir.join("bin/criu")).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
    let open = || ctx.rt(["checkpoint", &started(ctx).id]).env("RT_CRIU", dir.join("bin/criu"));
    open().fails(&["criu's libraries are not taken from there", "open"]);
}

fn places_of_others(ctx: &Ctx) {
    let container = started(ctx);
    let above = ctx.mkdir("shared");
    fs::set_permissions(&above, fs::Permissions::from_mode(0o777)).unwrap();
    let refused = &["image", "others can put something else at", "name a directory in one of your own"];
    checkpoint(ctx, &above.join("image"), &container.id).fails(refused);
    assert_eq!(fs::read_dir(&above).unwrap().count(), 0);
    image(ctx, "shared/image", |_| {});
    restore(ctx, &above.join("image")).fails(refused);
    fs::set_permissions(&above, fs::Permissions::from_mode(0o1777)).unwrap();
    checkpoint(ctx, &above.join("image"), &container.id).ok();
    // A directory for the log is as much the caller's, and no link in it is followed.
    let work = ctx.mkdir("work");
    fs::set_permissions(&work, fs::Permissions::from_mode(0o777)).unwrap();
    let with_work = || checkpoint(ctx, &above.join("image"), &container.id).arg("--work-path").arg(&work);
    with_work().fails(&["--work-path", "others can put something else at"]);
    fs::set_permissions(&work, fs::Permissions::from_mode(0o700)).unwrap();
    let file = ctx.file("precious", "kept");
    symlink(&file, work.join("dump.log")).unwrap();
    with_work().ok();
    assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
    assert!(fs::symlink_metadata(work.join("dump.log")).unwrap().is_file());
}

fn images_of_other_machines(ctx: &Ctx) {
    let machine = image(ctx, "machine", |manifest| manifest["architecture"] = json!("vax"));
    restore(ctx, &machine).fails(&["a machine of vax"]);
    let newer = image(ctx, "newer", |manifest| manifest["cpu"] = json!(["fpu9000"]));
    restore(ctx, &newer).fails(&["the processor lacks", "fpu9000"]);
}

fn run_says_it_at_the_start(ctx: &Ctx) {
    let bundle = ctx.bundle().ops(&["ready"]);
    bundle.write();
    let dir = ctx.path("kept");
    let run = |flags: &[&str]| {
        rt(ctx, &["run", "--checkpoint"]).arg(&dir).args(flags).arg("--bundle").arg(&bundle.dir).arg(ctx.id())
    };
    run(&[]).fails(&["no-criu", "no such program"]);
    run(&["--detach"]).fails(&["--checkpoint and --detach exclude each other"]);
    assert!(!dir.exists(), "nothing is made before there is something to keep");
    ctx.mkdir("kept");
    ctx.mkdir("kept/last");
    ctx.file("kept/last/f", "precious");
    let bundle_of =
        || rt(ctx, &["run", "--checkpoint"]).arg(&dir).arg(&bundle.dir).env("RT_CRIU", some_criu(ctx));
    bundle_of().fails(&["last", "is no image of rt checkpoint"]);
    assert!(dir.join("last/f").exists());
    for flag in ["--writable", "--writable=disk", "--as-root"] {
        let error = rt(ctx, &["run", flag, "--checkpoint"]).arg(&dir).arg(&bundle.dir);
        error.fails(&["--checkpoint and a root in memory exclude each other", "--overlay DIR keeps it"]);
    }
    // A job that Slurm has requeued, without an image.
    let job = |count: &str| {
        let job = rt(ctx, &["run", "--checkpoint"]).arg(ctx.path("none")).arg(&bundle.dir);
        job.env("RT_CRIU", some_criu(ctx)).env("SLURM_JOB_ID", "7").env("SLURM_RESTART_COUNT", count).run()
    };
    let said = ["job 7 runs again, and", "none has no checkpoint: the program begins anew"];
    for (count, is_said) in [("1", true), ("0", false)] {
        let ended = job(count);
        assert_eq!(ended.code, 0, "{ended:?}");
        // Once, also where rt executes a copy of itself.
        let times = usize::from(is_said);
        assert!(said.iter().all(|text| ended.stderr.matches(text).count() == times), "{ended:?}");
    }
}

/// As a prolog of a site makes one, and an epilog removes it.
fn the_tmpdir_of_a_job_keeps_no_image(ctx: &Ctx) {
    let bundle = ctx.bundle().ops(&["ready"]);
    bundle.write();
    let job = |dir: &str, tmpdir: &str| {
        ctx.mkdir(tmpdir);
        let job = rt(ctx, &["run", "--checkpoint"]).arg(ctx.path(dir)).arg(&bundle.dir);
        job.env("RT_CRIU", some_criu(ctx)).env("SLURM_JOB_ID", "7").env("TMPDIR", ctx.path(tmpdir))
    };
    job("tmp/7/ck", "tmp/7").fails(&["tmp/7/ck", "it is in a directory of job 7's own", "all nodes share"]);
    job("tmp/job.7", "tmp/job.7").fails(&["it is in a directory of job 7's own"]);
    // Elsewhere, and where TMPDIR is nobody's own.
    job("ck.7", "tmp/7").ok();
    job("tmp/ck.7", "tmp").ok();
}

/// criu found it at the signal only, and what it does last when the program had ended for good.
fn filters_that_refuse_criu_its_calls(ctx: &Ctx) {
    let refusing = |rule: Value| {
        let section = json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [rule] });
        ctx.bundle().with("/linux/seccomp", section).ops(&["ready", "sleep 60000"])
    };
    // For root criu suspends the filter when it writes the image.
    let of_user = json!({ "names": ["vmsplice", "mkdir"], "action": "SCMP_ACT_ERRNO" });
    let dumpable = json!([{ "index": 0, "value": libc::PR_SET_DUMPABLE, "op": "SCMP_CMP_EQ" }]);
    let of_all = json!({ "names": ["prctl"], "action": "SCMP_ACT_ERRNO", "args": dumpable });
    for (rule, call, is_refused) in
        [(of_user, "vmsplice", ctx.caller != Caller::Root), (of_all, "prctl(PR_SET_DUMPABLE)", true)]
    {
        let said = ["the config's seccomp filter refuses criu", call, "allow that by linux.seccomp"];
        let bundle = refusing(rule);
        bundle.write();
        let run = rt(ctx, &["run", "--checkpoint"]).arg(ctx.path("kept")).arg("--name").arg(ctx.id());
        let run = run.arg(&bundle.dir).env("RT_CRIU", some_criu(ctx));
        let container = ctx.started(&bundle);
        let image = ctx.path(call);
        let checkpoint = checkpoint(ctx, &image, &container.id);
        if is_refused {
            run.fails(&said);
            checkpoint.fails(&said);
            assert_eq!((container.status().as_str(), image.exists()), ("running", false));
        } else {
            checkpoint.ok();
        }
    }
}

/// `rt run --checkpoint DIR` of a program that does `operations`, and sees the test's directory `seen` as `/seen`.
fn kept_in(ctx: &Ctx, dir: &str, flags: &[&str], operations: &[&str]) -> Cmd {
    let seen = ctx.mkdir("seen");
    let bundle = ctx.bundle().mount("/seen", "bind", seen.to_str().unwrap(), &["bind"]).ops(operations);
    bundle.write();
    let run = rt(ctx, &["run", "--checkpoint"]).arg(ctx.path(dir)).args(flags).arg("--name").arg(ctx.id());
    run.arg(&bundle.dir).env("RT_CRIU", some_criu(ctx))
}

/// As in a script of root's that writes its log: the first call made an image, and no later one could restore it.
fn streams_of_others_are_told_at_the_start(ctx: &Ctx) {
    let path = ctx.file("log", "");
    crate::sys::chown(&path, 0, 0).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let log = fs::File::options().append(true).open(&path).unwrap();
    let run = kept_in(ctx, "kept", &[], &["ready"]).before([Step::Dup(log.as_raw_fd(), 1)]).ok();
    let said = "no later call could go on from a checkpoint: standard stream 1 is a file that this user may not open";
    assert_eq!(run.stderr.contains(said), ctx.caller != Caller::Root, "{run:?}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "\"ready\"\n");
}

/// Two would write over each other's images, and whose program ends first removed that of the other.
fn one_run_has_a_directory(ctx: &Ctx) {
    let mut first = kept_in(ctx, "kept", &[], &["ready", "sleep 60000"]).spawn();
    first.line(0);
    let refused = ["kept: another run has its image there"];
    kept_in(ctx, "kept", &[], &["ready"]).fails(&[refused[0], "name a directory for each run"]);
    let task = kept_in(ctx, "kept", &[], &["ready"]).env("SLURM_JOB_ID", "7").env("SLURM_STEP_ID", "0");
    task.fails(&[refused[0], "name one for each task: srun sh -c", "kept/$SLURM_PROCID"]);
    kept_in(ctx, "other", &[], &["ready"]).ok();
    // However it ends, the directory is free then.
    crate::sys::kill(first.pid(), libc::SIGKILL).unwrap();
    first.wait();
    kept_in(ctx, "kept", &[], &["ready"]).ok();
    assert_eq!(fs::read_dir(ctx.path("kept")).unwrap().count(), 0);
}

/// A server of NFS 3 keeps the lock of a node that has died.
fn a_job_that_runs_again_has_its_directory(ctx: &Ctx) {
    let run = |restarts: &str| {
        let run = kept_in(ctx, "kept", &[], &["ready", "sleep 60000"]);
        run.env("SLURM_JOB_ID", "7").env("SLURM_RESTART_COUNT", restarts)
    };
    let mut first = run("0").spawn();
    first.line(0);
    run("0").fails(&["kept: another run has its image there"]);
    let mut second = run("1").spawn();
    second.line(0);
    run("1").fails(&["kept: another run has its image there"]);
    // The first one writes no image over the second one's.
    crate::sys::kill(first.pid(), libc::SIGUSR1).unwrap();
    eventually("the first one's refusal", || {
        first.errors().contains("a later run of this job has").then_some(())
    });
    assert!(!ctx.path("kept/last").exists());
    for run in [first, second] {
        crate::sys::kill(run.pid(), libc::SIGKILL).unwrap();
        run.wait();
    }
}

fn the_image_of_another_run_stays(ctx: &Ctx) {
    let mut run = kept_in(ctx, "kept", &[], &["ready", "until /seen/go"]).spawn();
    run.line(0);
    // As where there are no locks.
    let last = image(ctx, "kept/last", |_| {});
    ctx.file("seen/go", "");
    let out = run.wait();
    assert_eq!(
        (out.code, out.stderr.contains("kept/last is not of this run, and stays")),
        (0, true),
        "{out:?}"
    );
    assert!(last.join("rt.json").exists());
    // What it has written itself goes.
    fs::remove_dir_all(&last).unwrap();
    fs::remove_file(ctx.path("seen/go")).unwrap();
    let mut run = kept_in(ctx, "kept", &["--checkpoint-every=600"], &["ready", "until /seen/go"]).spawn();
    run.line(0);
    crate::sys::kill(run.pid(), libc::SIGALRM).unwrap();
    eventually("its image", || last.join("rt.json").exists().then_some(()));
    ctx.file("seen/go", "");
    let out = run.wait();
    assert_eq!((out.code, last.exists()), (0, false), "{out:?}");
}

/// A directory with a cuda-checkpoint (see cuda.rs).
fn cuda(ctx: &Ctx) -> PathBuf {
    let dir = ctx.mkdir("cuda");
    fs::copy(std::env::current_exe().unwrap(), dir.join("cuda-checkpoint")).unwrap();
    dir
}

/// A container whose program has a file open that stands for a GPU.
fn on_gpu<'a>(ctx: &'a Ctx, operations: &[&str]) -> Container<'a> {
    let device = ctx.file("nvidia0", "");
    let bundle =
        ctx.bundle().mount("/dev/nvidia0", "bind", device.to_str().unwrap(), &["bind"]).ops(operations);
    ctx.started(&bundle)
}

const HOLDS: [&str; 3] = ["hold /dev/nvidia0", "ready", "sleep 60000"];

/// What cuda-checkpoint has done since the last look.
fn done(dir: &Path) -> String {
    let log = dir.join("log");
    let text = fs::read_to_string(&log).unwrap_or_default();
    let _ = fs::remove_file(log);
    text.trim().replace('\n', " ")
}

fn gpus_are_given_back(ctx: &Ctx) {
    let (dir, container, image) = (cuda(ctx), on_gpu(ctx, &HOLDS), ctx.path("image"));
    let with_cuda =
        || checkpoint(ctx, &image, &container.id).env("RT_CUDA_CHECKPOINT", dir.join("cuda-checkpoint"));
    with_cuda().silent();
    assert_eq!(
        (done(&dir).as_str(), container.status().as_str()),
        ("lock checkpoint restore unlock", "running")
    );
    let manifest: Value = serde_json::from_str(&fs::read_to_string(image.join("rt.json")).unwrap()).unwrap();
    let program = &manifest["program"];
    assert_eq!(manifest["gpus"], json!({ "processes": [program], "devices": [{ "uuid": "", "model": "" }] }));
    // Where the dump fails, or is refused, they are given back as well.
    with_cuda().env("RT_CRIU", ctx.helper()).run();
    assert_eq!(container.status(), "running");
    done(&dir);
    ctx.mkdir("full/image");
    ctx.file("full/image/precious", "");
    let refused = || {
        checkpoint(ctx, &ctx.path("full/image"), &container.id)
            .env("RT_CUDA_CHECKPOINT", dir.join("cuda-checkpoint"))
    };
    refused().fails(&["is no image of rt checkpoint"]);
    assert_eq!(
        (done(&dir).as_str(), container.status().as_str()),
        ("lock checkpoint restore unlock", "running")
    );
    // A paused process answers nobody.
    ctx.rt(["pause", &container.id]).silent();
    with_cuda().fails(&["is paused, and has processes on GPUs", "rt resume"]);
    ctx.rt(["resume", &container.id]).silent();
    assert_eq!(done(&dir), "");
}

fn gpus_without_cuda_checkpoint(ctx: &Ctx) {
    let container = on_gpu(ctx, &HOLDS);
    let without = || checkpoint(ctx, &ctx.path("image"), &container.id).env("PATH", ctx.path("empty"));
    without().fails(&[
        "process ",
        "(probe): descriptor ",
        "/dev/nvidia0",
        "cuda-checkpoint of NVIDIA",
        "RT_CUDA_CHECKPOINT",
    ]);
    without()
        .env("RT_CUDA_CHECKPOINT", ctx.path("none"))
        .fails(&["none: no such program", "checkpoint.cuda"]);
    assert_eq!(container.status(), "running");
    assert!(!ctx.path("image").exists());
}

fn gpus_that_cannot_be_kept(ctx: &Ctx) {
    let (dir, container) = (cuda(ctx), on_gpu(ctx, &HOLDS));
    let with_cuda = || {
        checkpoint(ctx, &ctx.path("image"), &container.id)
            .env("RT_CUDA_CHECKPOINT", dir.join("cuda-checkpoint"))
    };
    for (action, undone) in [("lock", ""), ("checkpoint", "lock unlock")] {
        ctx.file("cuda/fails", action);
        let said = format!("--action {action}");
        with_cuda().fails(&["(probe)", &said, "Could not", "cannot be performed", "no managed memory"]);
        assert_eq!((done(&dir).as_str(), container.status().as_str()), (undone, "running"));
        assert!(!ctx.path("image").exists());
    }
    // What cannot be given back is said, and tried again by the next call.
    ctx.file("cuda/fails", "restore");
    with_cuda().fails(&["--action restore"]);
    assert_eq!(done(&dir), "lock checkpoint");
    fs::remove_file(dir.join("fails")).unwrap();
    with_cuda().silent();
    assert_eq!(done(&dir), "restore unlock lock checkpoint restore unlock");
}

fn gpus_of_a_killed_checkpoint(ctx: &Ctx) {
    let (dir, container) = (cuda(ctx), on_gpu(ctx, &HOLDS));
    let with_cuda = |cmd: Cmd| cmd.env("RT_CUDA_CHECKPOINT", dir.join("cuda-checkpoint"));
    let begin = || with_cuda(checkpoint(ctx, &ctx.path("image"), &container.id));
    for (action, undone) in [("lock", "unlock"), ("checkpoint", "restore unlock")] {
        ctx.file("cuda/hangs", action);
        let job = begin().spawn();
        eventually("cuda-checkpoint has done it", || {
            fs::read_to_string(dir.join("log"))
                .is_ok_and(|log| log.ends_with(&format!("{action}\n")))
                .then_some(())
        });
        assert!(Command::new("kill").args(["-KILL", &job.pid().to_string()]).status().unwrap().success());
        job.wait();
        fs::remove_file(dir.join("hangs")).unwrap();
        done(&dir);
        with_cuda(ctx.rt(["resume", &container.id])).silent();
        assert_eq!((done(&dir).as_str(), container.status().as_str()), (undone, "running"));
        begin().silent();
        assert_eq!(done(&dir), "lock checkpoint restore unlock");
    }
    with_cuda(ctx.rt(["resume", &container.id])).fails(&["container not paused"]);
}

fn gpus_that_are_not_here(ctx: &Ctx) {
    let gpus = json!({ "processes": [2], "devices": [{ "uuid": "GPU-1", "model": "Stand-in" }] });
    let image = image(ctx, "image", |manifest| manifest["gpus"] = gpus);
    restore(ctx, &image)
        .env("RT_CRIU", some_criu(ctx))
        .fails(&["had 1 GPUs", "none is left here for one: Stand-in"]);
}

fn forks_that_fail(ctx: &Ctx) {
    let container = started(ctx);
    let fork = |names: &[&str]| rt(ctx, &["fork", &container.id]).args(names).env("RT_CRIU", some_criu(ctx));
    let id = container.id.as_str();
    fork(&[]).fails(&["fork"]);
    fork(&["new", "new"]).fails(&["new: it is to be made twice"]);
    fork(&["new", id]).fails(&[id, "exists"]);
    fork(&["../new"]).fails(&["../new"]);
    fork(&["new"]).env("RT_CRIU", no_criu(ctx)).fails(&["no-criu: no such program"]);
    // A criu that restores nothing.
    let failed = fork(&["first", "second"]).fails(&["first: criu failed"]);
    assert_eq!(failed.stderr.lines().count(), 1, "{failed:?}");
    assert_eq!(container.status(), "running");
    ctx.rt(["state", "first"]).fails(&["does not exist"]);
    // Where the images of clones are.
    assert!(!ctx.path("state/.clones").exists());
    container.kill("KILL");
    container.ended();
    fork(&["new"]).fails(&["container not running", id]);
    let created = ctx.create(&ctx.bundle().ops(&["ready"]));
    let fork = rt(ctx, &["fork", &created.id, "new"]).env("RT_CRIU", some_criu(ctx));
    fork.fails(&["cannot be checkpointed in created state"]);
}
