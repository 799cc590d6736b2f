//! `rt run IMAGE`: what an operand means, the store of images, and its marks of use.

use crate::client::{Caller, UID};
use crate::devices::{definition, definitions, other_package};
use crate::fixture::{Cmd, Ctx, SYSTEM_PATH, errno, eventually};
use crate::runner::{skip, tests};
use crate::sys::{self, Step};
use serde_json::json;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

tests! {
    ALL { an_image_is_run_by_its_name, a_name_in_the_store_needs_no_rt_pull, an_image_in_use_stays }
    BOTH {
        operands_that_are_no_bundle, flags_for_images, rt_pull_that_is_missing, ctrl_c_ends_both, stores_of_others,
        starts_leave_one_mark, stores_that_are_read_only, words_of_somebody_else, words_of_somebody_else_are_not_read, words_below_a_mount_of_somebodys,
        programs_of_somebody_else_beside_rt,
        names_in_the_configured_registry, directories_above_are_exchanged, a_teams_bundle_by_a_config_of_the_callers,
        hooks_beside_a_teams_bundle, relative_paths_to_bundles_of_others, configs_that_come_meanwhile, directories_of_others_with_mounts,
        a_mount_beside_a_root_of_others, contexts_of_others_with_mounts, fifos_of_others_are_not_waited_for,
    }
    USER {
        stores_of_each_user, stores_behind_links_of_others, bundles_of_a_team, bundles_of_the_callers_group, a_teams_bundle_that_was_moved, mounts_in_a_teams_bundle, marks_of_somebody_else, a_mark_below_a_mount_of_somebodys, words_with_an_acl,
    }
}

/// The directory with `rt-pull`, for PATH.
pub fn path(ctx: &Ctx) -> String {
    const PACKAGES: [&str; 10] = [
        "pull",
        "crates/dockerfile",
        "crates/oci-content",
        "crates/oci-layer",
        "crates/oci-registry",
        "crates/rt-image-store",
        "crates/rt-cli",
        "crates/rt-spec",
        "crates/rt-sys",
        "crates/oci-seccomp",
    ];
    let program = other_package(ctx, "rt-pull", &PACKAGES);
    program.parent().unwrap().display().to_string()
}

/// PATH with that directory.
pub fn search_path(ctx: &Ctx) -> String {
    format!("{}:{SYSTEM_PATH}", path(ctx))
}

/// `rt` with a store in the test's directory, and with `rt-pull`.
fn rt(ctx: &Ctx, words: &[&str]) -> Cmd {
    let cmd = ctx.rt(words).env("PATH", search_path(ctx));
    cmd.env("RT_IMAGES", ctx.path("images")).env("RT_CACHE", ctx.path("cache"))
}

/// An image-spec layout of the tests' payload, tagged `t`; returns its name.
fn image(ctx: &Ctx) -> String {
    let bundle = ctx.bundle().ops(&["say config"]);
    let name = format!("oci:{}:t", ctx.path("layout").display());
    rt(ctx, &["save", "-q"]).arg(&bundle.dir).arg(&name).ok();
    name
}

/// Removes the states of containers that have ended in place, under the ids that rt made up.
fn forget(ctx: &Ctx) {
    assert_eq!(ctx.rt(["list", "-q"]).ok().stdout, "");
}

/// Gives the image the name of one in a registry.
fn name(ctx: &Ctx, name: &str) -> PathBuf {
    let names = ctx.path("images/names");
    let first = fs::read_dir(&names).unwrap().next().unwrap().unwrap().path();
    let link = names.join(format!("{},{}", name.replace('/', "%2F"), std::env::consts::ARCH));
    symlink(fs::read_link(first).unwrap(), &link).unwrap();
    ctx.give_link(&link);
    link
}

fn an_image_is_run_by_its_name(ctx: &Ctx) {
    let image = image(ctx);
    for _ in 0..2 {
        let out = rt(ctx, &["run", &image, "--", "/probe", "say hello", "exit 7"]).run();
        assert_eq!((out.code, out.line(0), out.stderr.as_str()), (7, json!("hello"), ""), "{out:?}");
    }
    assert_eq!(fs::read_dir(ctx.path("images/bundles")).unwrap().count(), 1);
    // A relative name, and the program of the image.
    let out = rt(ctx, &["run", "-e", "X=1", "oci:layout:t", "--", "/probe", "env"]).cwd(&ctx.dir).ok();
    assert_eq!(out.line(0)["X"], "1");
    rt(ctx, &["run", "oci:layout:other"]).cwd(&ctx.dir).fails(&["no image \"other\""]);
    // A detached one is a container as any other.
    let out = rt(ctx, &["run", "-d", &image, "--", "/probe", "pause"]).ok();
    let listed = ctx.rt(["list", "--format", "json"]).ok().json();
    let container = listed.as_array().unwrap()[0].clone();
    assert!(container["bundle"].as_str().unwrap().contains("/images/bundles/sha256-"), "{out:?}");
    ctx.rt(["delete", "--force", container["id"].as_str().unwrap()]).silent();
    sys::reap(container["pid"].as_i64().unwrap() as i32).unwrap();
    forget(ctx);
}

/// The second start costs no program: the name is a link.
fn a_name_in_the_store_needs_no_rt_pull(ctx: &Ctx) {
    let image = image(ctx);
    rt(ctx, &["pull", "--store", "-q", &image]).ok();
    let link = name(ctx, "example.org/x:1");
    let run = |image: &str| {
        let cmd = ctx.rt(["run", image, "--", "/probe", "say hello"]);
        cmd.env("PATH", "/not/there").env("RT_IMAGES", ctx.path("images"))
    };
    for name in ["example.org/x:1", "docker://example.org/x:1"] {
        let out = run(name).run();
        assert_eq!((out.code, out.line(0), out.stderr.as_str()), (0, json!("hello"), ""), "{out:?}");
    }
    run("example.org/x:2").fails(&["rt-pull is installed neither"]);
    // The digest that `rt images -q` prints is a name, and of no registry.
    let bundles = fs::read_dir(ctx.path("images/bundles")).unwrap().next().unwrap().unwrap();
    let digest = bundles.file_name().to_str().unwrap().replacen('-', ":", 1);
    assert_eq!(run(&digest).ok().line(0), "hello");
    let other = format!("sha256:{}", "0".repeat(64));
    run(&other).fails(&[&other, "not in the store", "rt images"]);
    // A name that leads out of the store is an error, whatever is there.
    let bundle = ctx.bundle();
    for target in [bundle.dir.to_str().unwrap(), "../../", "../bundles/../../x"] {
        fs::remove_file(&link).unwrap();
        symlink(target, &link).unwrap();
        ctx.give_link(&link);
        run("example.org/x:1").fails(&["leads to no bundle of the store"]);
    }
    forget(ctx);
}

fn operands_that_are_no_bundle(ctx: &Ctx) {
    let rt = |operand: &str| {
        let cmd = ctx.rt(["run", operand]).env("PATH", "/not/there").env("RT_IMAGES", ctx.path("images"));
        cmd.cwd(&ctx.dir)
    };
    ctx.file("image.tar", "");
    ctx.file("data", "");
    ctx.mkdir("empty");
    rt("image.tar").fails(&["image.tar: a file", "oci-archive:image.tar"]);
    rt("./data").fails(&["./data: a file", "config.json"]);
    rt("empty").fails(&["empty: a directory without config.json", "docker://empty"]);
    rt("./empty").fails(&["./empty: a directory without config.json"]);
    // What Apptainer and Charliecloud run is one that holds a root.
    ctx.mkdir("sandbox");
    ctx.mkdir("sandbox/bin");
    for root in ["sandbox", "./sandbox"] {
        rt(root).fails(&["sandbox: a directory without config.json", "rt convert", "FILE.sqsh"]);
    }
    rt("/not/there").fails(&["bundle /not/there"]);
    rt("../not/there").fails(&["bundle ../not/there"]);
    // Everything else is an image, for which rt-pull is asked.
    for image in ["debian", "debian:12", "team/x", "docker://empty", "oci:empty", "docker-archive:image.tar"]
    {
        rt(image).fails(&["rt-pull is installed neither"]);
    }
    // In a bundle, runc's form: the operand is an id, also of a file that is there.
    let bundle = ctx.bundle().ops(&["say bundle"]);
    fs::write(bundle.dir.join("c1"), "").unwrap();
    for id in ["c1", "debian"] {
        let out = ctx.rt(["run", id]).cwd(&bundle.dir).ok();
        assert_eq!(out.line(0), "bundle");
    }
    let cmd = ctx.rt(["run", "debian:12"]).cwd(&bundle.dir).env("PATH", "/not/there");
    cmd.env("RT_IMAGES", ctx.path("images")).fails(&["rt-pull is installed neither"]);
    // -b says what the bundle is, and the operand is an id.
    ctx.rt(["run", "-b"]).arg(&bundle.dir).arg("debian:12").fails(&["invalid container ID"]);
    // Where the variable is missing, the account has a home; a relative one is none.
    let homeless = ctx.rt(["run", "debian:12"]).cwd(&ctx.dir).env("HOME", "no/path");
    homeless.fails(&["no home directory to keep images in", "RT_IMAGES"]);
    forget(ctx);
}

fn flags_for_images(ctx: &Ctx) {
    let (image, bundle) = (image(ctx), ctx.bundle());
    for flags in [&["--pull", "never"][..], &["--platform", "arm64"]] {
        ctx.rt([&["run"], flags].concat()).arg(&bundle.dir).fails(&["for images only"]);
        ctx.rt([&["run"], flags].concat()).arg("-b").arg(&bundle.dir).arg("c1").fails(&["for images only"]);
    }
    rt(ctx, &["run", "--pull", "often", &image]).fails(&["use always, missing or never"]);
    rt(ctx, &["run", "--pull", "never", &image]).fails(&["not in the store"]);
    rt(ctx, &["run", "--pull", "always", &image, "--", "/probe", "ready"]).ok();
    rt(ctx, &["run", "--pull", "never", &image, "--", "/probe", "ready"]).ok();
    // The name is that of this machine's image.
    rt(ctx, &["run", "--pull", "never", "--platform", "linux/arm64", &image]).fails(&["not in the store"]);
    // An error of rt-pull is in the log too.
    let log = ctx.file("log", "");
    let cmd = ctx.command(ctx.rt_path()).arg("--log").arg(&log).args(["--log-format=json", "run", "oci:x"]);
    let cmd =
        cmd.env("PATH", path(ctx)).env("RT_IMAGES", ctx.path("images")).env("RT_CACHE", ctx.path("cache"));
    cmd.fails(&["x"]);
    let text = fs::read_to_string(&log).unwrap();
    assert!(text.lines().count() == 1 && text.contains("\"level\":\"error\""), "{text}");
    forget(ctx);
}

fn rt_pull_that_is_missing(ctx: &Ctx) {
    let cmd = ctx.rt(["run", "debian:12"]).env("PATH", "/not/there").env("RT_IMAGES", ctx.path("images"));
    cmd.fails(&["rt-pull is installed neither as ", " nor in PATH"]);
    assert!(!ctx.path("images").exists());
}

/// The container's processes tell that an image is used, whoever of them lives, also under an overlay.
fn an_image_in_use_stays(ctx: &Ctx) {
    let image = image(ctx);
    for flags in [&[][..], &["--writable"]] {
        in_use_by_an_orphan(ctx, &image, flags);
    }
    forget(ctx);
}

fn in_use_by_an_orphan(ctx: &Ctx, image: &str, flags: &[&str]) {
    // A container whose first process ends and leaves another one behind.
    let words = [&["run"], flags, &[image, "--", "/probe", "orphan deaf", "exit 0"]].concat();
    assert_eq!(rt(ctx, &words).ok().code, 0);
    for dir in fs::read_dir(ctx.path("images/uses")).unwrap().flatten() {
        let old = std::time::SystemTime::now() - std::time::Duration::from_secs(60);
        fs::File::open(dir.path()).unwrap().set_modified(old).unwrap();
    }
    let users = || rt(ctx, &["images", "--json"]).ok().json()[0]["users"].clone();
    let pids = eventually("its process", || users()[0]["pids"].as_array().cloned());
    rt(ctx, &["rmi", image]).fails(&["in use by processes", "--force"]);
    rt(ctx, &["prune", "--all"]).ok();
    assert_eq!(fs::read_dir(ctx.path("images/bundles")).unwrap().count(), 1);
    for pid in pids {
        sys::kill(pid.as_i64().unwrap() as i32, libc::SIGKILL).unwrap();
    }
    eventually("its end", || (users() == json!([])).then_some(()));
    rt(ctx, &["rmi", image]).ok();
    for dir in ["bundles", "names", "uses", "leases"] {
        assert_eq!(fs::read_dir(ctx.path("images").join(dir)).unwrap().count(), 0, "{dir}");
    }
}

/// Signals reach rt-pull, which tidies up, and rt ends with it.
fn ctrl_c_ends_both(ctx: &Ctx) {
    let (begun, engine) = (ctx.path("begun"), ctx.file("docker", ""));
    fs::write(&engine, format!("#!/bin/sh\necho $$ >{}\nexec sleep 60\n", begun.display())).unwrap();
    fs::set_permissions(&engine, fs::Permissions::from_mode(0o755)).unwrap();
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let _ = fs::remove_file(&begun);
        let job = rt(ctx, &["run", "docker-daemon:x"]).spawn();
        eventually("the engine's start", || fs::read_to_string(&begun).ok().filter(|t| t.ends_with('\n')));
        sys::kill(job.pid(), signal).unwrap();
        let out = job.wait();
        assert_eq!(out.code, 1, "{out:?}");
        assert!(out.stderr.contains("interrupted") && out.stderr.lines().count() == 1, "{out:?}");
    }
    // The check at the end of every test finds processes that are left.
    for dir in ["bundles", "leases"] {
        assert_eq!(fs::read_dir(ctx.path("images").join(dir)).unwrap().count(), 0, "{dir}");
    }
}

fn starts_leave_one_mark(ctx: &Ctx) {
    let image = image(ctx);
    rt(ctx, &["pull", "--store", "-q", &image]).ok();
    name(ctx, "x.org/x:1");
    let marks = || fs::read_dir(ctx.path("images/uses")).unwrap().flatten().collect::<Vec<_>>();
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    fs::File::open(marks()[0].path()).unwrap().set_modified(old).unwrap();
    for _ in 0..3 {
        rt(ctx, &["run", "x.org/x:1", "--", "/probe", "ready"]).ok();
    }
    let marks = marks();
    assert_eq!(marks.len(), 1);
    assert!(marks[0].metadata().unwrap().modified().unwrap() > old + std::time::Duration::from_secs(3000));
    fs::remove_file(marks[0].path()).unwrap();
    rt(ctx, &["run", "x.org/x:1", "--", "/probe", "ready"]).ok();
    assert_eq!(fs::read_dir(ctx.path("images/uses")).unwrap().count(), 1);
    forget(ctx);
}

/// A store that everybody can write says nothing, and root does not run what a user has chosen.
fn stores_of_others(ctx: &Ctx) {
    let image = image(ctx);
    rt(ctx, &["pull", "--store", "-q", &image]).ok();
    name(ctx, "x.org/x:1");
    let run = || rt(ctx, &["run", "--pull", "never", "x.org/x:1", "--", "/probe", "ready"]);
    run().ok();
    for dir in ["images", "images/names", "images/bundles"] {
        let mode = fs::metadata(ctx.path(dir)).unwrap().permissions();
        fs::set_permissions(ctx.path(dir), fs::Permissions::from_mode(0o777)).unwrap();
        run().fails(&[ctx.path(dir).to_str().unwrap()]);
        fs::set_permissions(ctx.path(dir), mode).unwrap();
    }
    forget(ctx);
    if !Caller::tests_are_root() {
        skip!("only root gives files to others");
    }
    let owner = if ctx.caller == Caller::Root { 12345 } else { 0 };
    sys::chown(&ctx.path("images"), owner, owner).unwrap();
    if ctx.caller == Caller::Root {
        run().fails(&["belongs to uid 12345"]);
    }
    // Names that are another's than the store's owner are not followed.
    sys::chown(&ctx.path("images/names"), 54321, 54321).unwrap();
    run().fails(&[]);
    forget(ctx);
}

/// Whoever is first to make `debian` in a directory that everybody can write is not what `rt run debian` means.
fn words_of_somebody_else(ctx: &Ctx) {
    if !Caller::tests_are_root() {
        skip!("only root gives files to others");
    }
    const OTHER: u32 = 12345;
    let here = ctx.mkdir("here");
    fs::set_permissions(&here, fs::Permissions::from_mode(0o1777)).unwrap();
    let marker = ctx.path("hook-ran");
    let bundle =
        ctx.bundle().hook("createRuntime", &ctx.helper(), &[&format!("to {} say evil", marker.display())]);
    let bundle = bundle.ops(&["say it runs"]);
    bundle.write();
    let (debian, library) = (here.join("debian"), here.join("library"));
    let config = debian.join("config.json");
    fs::rename(&bundle.dir, &debian).unwrap();
    let own = ctx.caller.host_ids().0;
    let give = |path: &PathBuf, uid: u32| sys::chown(path, uid, uid).unwrap();
    let run = |words: &[&str]| {
        let cmd = ctx.rt(["run"]).args(words).env("PATH", "/not/there").env("RT_IMAGES", ctx.path("images"));
        cmd.cwd(&here)
    };
    let whose = format!("uid {OTHER}");
    let is_refused = |word: &str, text: &str| {
        let out = run(&[word]).fails(&[text, &format!("./{word}"), &format!("docker://{word}")]);
        assert_eq!(out.stderr.trim_end().lines().count(), 1, "{out:?}");
        assert!(!marker.exists(), "{word}: the hook ran");
        let prepare = ctx.rt(["slurm", "prepare"]).env("SLURM_JOB_ID", "42").env("SLURM_STEP_ID", "0");
        let prepare = prepare.env("RT_CONTAINER_IMAGE", word).env("RT_CONTAINER_SUBMIT_DIR", &here);
        prepare.env("RT_IMAGES", ctx.path("images")).fails(&[text]);
        let save = rt(ctx, &["save", "--runfile", ctx.path("saved").to_str().unwrap(), word]);
        save.cwd(&here).fails(&[text]);
    };
    let runs = |words: &[&str]| {
        let out = run(words).ok();
        assert_eq!(out.line(0), json!("it runs"), "{words:?}: {out:?}");
        fs::remove_file(&marker).unwrap();
    };
    runs(&["debian"]);
    for path in [&debian, &config] {
        give(path, OTHER);
        is_refused("debian", &whose);
        runs(&["./debian"]);
        runs(&[debian.to_str().unwrap()]);
        ctx.give(path);
        for mode in [0o777, 0o775, 0o757] {
            let usual = fs::metadata(path).unwrap().permissions();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
            is_refused("debian", "others can write");
            fs::set_permissions(path, usual).unwrap();
        }
    }
    runs(&["debian"]);
    // The current directory is the bundle of a word that can be an id.
    give(&debian, OTHER);
    let inside = |words: &[&str]| run(words).cwd(&debian);
    inside(&["alpine"]).fails(&[&whose, "--bundle \"$PWD\"", "docker://alpine"]);
    inside(&["--bundle", ".", &ctx.id()]).fails(&["others can write", "hooks", "its whole path"]);
    assert!(!marker.exists());
    inside(&["--bundle", debian.to_str().unwrap(), &ctx.id()]).ok();
    fs::remove_file(&marker).unwrap();
    ctx.give(&debian);
    inside(&[&ctx.id()]).ok();
    fs::remove_file(&marker).unwrap();
    // A link to the caller's own, and one of the caller's to somebody else's.
    let link = here.join("alpine");
    symlink("debian", &link).unwrap();
    give(&link, OTHER);
    is_refused("alpine", &whose);
    give(&link, own);
    runs(&["alpine"]);
    give(&debian, OTHER);
    is_refused("alpine", &whose);
    ctx.give(&debian);
    // One of the caller's to his own, through a directory in which others rename.
    let team = here.join("team");
    fs::create_dir(&team).unwrap();
    give(&team, own);
    fs::rename(&debian, team.join("debian")).unwrap();
    fs::remove_file(&link).unwrap();
    for target in [PathBuf::from("team/debian"), team.join("debian")] {
        symlink(&target, &link).unwrap();
        give(&link, own);
        runs(&["alpine"]);
        fs::set_permissions(&team, fs::Permissions::from_mode(0o777)).unwrap();
        is_refused("alpine", "others can put something else");
        runs(&["./alpine"]);
        fs::set_permissions(&team, fs::Permissions::from_mode(0o1777)).unwrap();
        runs(&["alpine"]);
        fs::set_permissions(&team, fs::Permissions::from_mode(0o755)).unwrap();
        fs::remove_file(&link).unwrap();
    }
    fs::rename(team.join("debian"), &debian).unwrap();
    // A directory between.
    fs::create_dir(&library).unwrap();
    symlink("../debian", library.join("debian")).unwrap();
    give(&library.join("debian"), own);
    give(&library, OTHER);
    is_refused("library/debian", &whose);
    // A file whose name does not say that it is one.
    for name in ["tool", "tool.sqsh"] {
        fs::write(here.join(name), "nothing").unwrap();
        give(&here.join(name), OTHER);
    }
    is_refused("tool", &whose);
    for word in ["./tool", "tool.sqsh"] {
        run(&[word]).fails(&["a file, and neither a squashfs nor a SIF image"]);
    }
    give(&debian, own);
    // A directory of data, or a layout, is no image of somebody's choice either, and no bundle for a layer of the caller's.
    let (data, target) = (here.join("data"), ctx.path("data.sqsh").display().to_string());
    fs::create_dir(&data).unwrap();
    fs::write(data.join("oci-layout"), "{}").unwrap();
    ctx.mkdir("overlay/work");
    let overlay = ctx.mkdir("overlay/upper").parent().unwrap().to_owned();
    give(&overlay, own);
    let overlay = overlay.display().to_string();
    let fails = |words: &[&str], text: &str| rt(ctx, words).cwd(&here).fails(&[text]);
    let commands: [&[&str]; 6] = [
        &["convert", "data", &target],
        &["inspect", "data"],
        &["save", "data", "oci:saved"],
        &["save", "--overlay", &overlay, "data", "oci:saved"],
        &["push", "data", "127.0.0.1:1/x:1"],
        &["push", "--overlay", &overlay, "data", "127.0.0.1:1/x:1"],
    ];
    for file in ["oci-layout", "config.json", "nothing"] {
        fs::rename(data.join("oci-layout"), data.join(file)).unwrap();
        give(&data, OTHER);
        // A user's rt save is in a user namespace, where all others have one number.
        commands.iter().for_each(|words| drop(fails(words, "data belongs to uid ")));
        fs::rename(data.join(file), data.join("oci-layout")).unwrap();
    }
    let digest = ctx.rt(["slurm", "digest", "data"]).cwd(&here).env("RT_IMAGES", ctx.path("images"));
    digest.fails(&[&whose]);
    fs::remove_dir_all(&data).unwrap();
}

/// Programs of the same installation lie beside `rt`; in a directory that others can write, anybody can have put them there.
fn programs_of_somebody_else_beside_rt(ctx: &Ctx) {
    if !Caller::tests_are_root() {
        skip!("only root gives files to others");
    }
    const OTHER: u32 = 12345;
    let shared = ctx.mkdir("shared");
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
    let own = shared.join("rt");
    fs::copy(ctx.rt_path(), &own).unwrap();
    ctx.give(&own);
    let marker = ctx.path("ran");
    ctx.give(&ctx.path(""));
    for name in ["rt-pull", "rt-hook-mpi"] {
        let program = shared.join(name);
        fs::write(&program, format!("#!/bin/sh\ntouch {}\n", marker.display())).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let bundle = ctx.bundle();
    bundle.write();
    let images = || ctx.command(&own).arg("images").env("PATH", "/usr/bin:/bin");
    let mpi = || {
        let run = ctx.command(&own).arg("--root").arg(&ctx.state).args(["run", "--mpi", "host"]);
        run.arg(&bundle.dir).env("PATH", "/usr/bin:/bin")
    };
    let give = |uid: u32| {
        for name in ["rt-pull", "rt-hook-mpi"] {
            sys::chown(&shared.join(name), uid, uid).unwrap();
        }
    };
    give(OTHER);
    images().fails(&["rt-pull is not in PATH", "somebody else's"]);
    mpi().fails(&["rt-hook-mpi"]);
    assert!(!marker.exists());
    give(ctx.caller.host_ids().0);
    // A second name of a file that others may write.
    fs::set_permissions(shared.join("rt-pull"), fs::Permissions::from_mode(0o775)).unwrap();
    images().fails(&["rt-pull is not in PATH", "others can write it"]);
    assert!(!marker.exists());
    fs::set_permissions(shared.join("rt-pull"), fs::Permissions::from_mode(0o755)).unwrap();
    images().ok();
    assert!(marker.exists());
}

/// Where each user has a group of the same number, that group may write. With an ACL the same bits are what a named user may.
fn words_with_an_acl(ctx: &Ctx) {
    if !Caller::tests_are_root() {
        skip!("only root becomes another user");
    }
    const ACL: &str = "system.posix_acl_access";
    let bundle = ctx.bundle().ops(&["say it runs"]);
    bundle.write();
    let here = ctx.mkdir("here");
    let debian = here.join("debian");
    fs::rename(&bundle.dir, &debian).unwrap();
    let all = [here.clone(), debian.clone(), debian.join("config.json")];
    for (path, mode) in all.iter().zip([0o775, 0o775, 0o664]) {
        sys::chown(path, UID, UID).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let run = || {
        let cmd = ctx.rt(["run", "debian"]).env("PATH", "/not/there").env("RT_IMAGES", ctx.path("images"));
        cmd.cwd(&here).by_tests().after([Step::Groups(vec![UID]), Step::Ids(UID, UID)])
    };
    assert_eq!(run().ok().line(0), json!("it runs"));
    for path in &all {
        // Version 2 (acl(5)): the owner, user 12345, the group, the mask, all others.
        let entry = |tag: u16, may: u16, id: u32| {
            [&tag.to_le_bytes()[..], &may.to_le_bytes(), &id.to_le_bytes()].concat()
        };
        let none = u32::MAX;
        let entries = [(1, 7, none), (2, 7, 12345), (4, 5, none), (0x10, 7, none), (0x20, 5, none)];
        let acl = entries.map(|(tag, may, id)| entry(tag, may, id)).concat();
        let acl = [&2u32.to_le_bytes()[..], &acl].concat();
        if let Err(e) = rustix::fs::setxattr(path, ACL, &acl, rustix::fs::XattrFlags::empty()) {
            skip!("no ACLs here: {e}");
        }
        run().fails(&["others can"]);
        rustix::fs::removexattr(path, ACL).unwrap();
    }
    assert_eq!(run().ok().line(0), json!("it runs"));
}

/// Who can rename in a directory above the bundle puts another one in its place, here by a hook. Config and root are of one
/// bundle, or nothing starts.
fn directories_above_are_exchanged(ctx: &Ctx) {
    for name in ["own", "others"] {
        let bundle = ctx.bundle().without_namespace("pid").ops(&["cat /mark"]);
        bundle.file("mark", name);
        bundle.write();
        fs::rename(&bundle.dir, ctx.mkdir(name).join("bundle")).unwrap();
    }
    let (own, others, aside) = (ctx.path("own"), ctx.path("others"), ctx.path("aside"));
    let exchange = format!(
        "/bin/mv {own} {aside} && /bin/mv {others} {own} && /bin/cat",
        own = own.display(),
        aside = aside.display(),
        others = others.display()
    );
    let hook =
        definition(Path::new("/bin/sh"), &["-c", &exchange], json!({ "always": true }), &["precreate"]);
    let hooks = definitions(ctx, "exchange.json", &hook).display().to_string();
    let run = |flags: &[&str]| ctx.rt(["run"]).args(flags).arg("bundle").cwd(&own);
    assert_eq!(run(&[]).ok().line(0), json!("own"));
    for flags in [&[][..], &["--share", "mine"]] {
        run(&[&["--hooks-dir", &hooks], flags].concat())
            .fails(&["own/bundle/rootfs", "somebody has put another directory in its place"]);
        fs::rename(&own, &others).unwrap();
        fs::rename(&aside, &own).unwrap();
    }
}

/// The store of the caller's data directory is not where another user's link leads.
fn stores_behind_links_of_others(ctx: &Ctx) {
    if !Caller::tests_are_root() {
        skip!("only root gives files to others");
    }
    const OTHER: u32 = 12345;
    rt(ctx, &["pull", "--store", "-q", &image(ctx)]).ok();
    name(ctx, "example.org/x:1");
    let (share, home) = (ctx.mkdir("share"), ctx.mkdir("home"));
    ctx.mkdir("share/rt");
    fs::rename(ctx.path("images"), share.join("rt/images")).unwrap();
    ctx.mkdir("home/.local");
    let link = home.join(".local/share");
    symlink(&share, &link).unwrap();
    let run = || {
        let cmd = ctx.rt(["run", "example.org/x:1", "--", "/probe", "say hello"]);
        cmd.env("PATH", "/not/there").env("HOME", &home)
    };
    ctx.give_link(&link);
    assert_eq!(run().ok().line(0), "hello");
    sys::chown(&link, OTHER, OTHER).unwrap();
    run().fails(&["can change", "home/.local/share"]);
    ctx.give_link(&link);
    sys::chown(&home, OTHER, OTHER).unwrap();
    run().fails(&["no images in HOME: others than root and the caller can change"]);
    forget(ctx);
}

/// Nothing is read before it is known whose it is: what somebody else has put here can be without end, or never answer.
fn words_of_somebody_else_are_not_read(ctx: &Ctx) {
    if !Caller::tests_are_root() {
        skip!("only root gives files to others");
    }
    const OTHER: u32 = 12345;
    let here = ctx.mkdir("here");
    fs::set_permissions(&here, fs::Permissions::from_mode(0o1777)).unwrap();
    let give = |path: &PathBuf| sys::chown(path, OTHER, OTHER).unwrap();
    let huge = |path: PathBuf| {
        fs::File::create(&path).and_then(|file| file.set_len(3 << 40)).unwrap();
        give(&path);
        path
    };
    let run = |words: &[&str]| {
        let cmd = ctx.rt(["run"]).args(words).env("PATH", "/not/there").env("RT_IMAGES", ctx.path("images"));
        cmd.cwd(&here).before([Step::Memory(512 << 20)])
    };
    fs::create_dir(here.join("debian")).unwrap();
    give(&here.join("debian"));
    huge(here.join("debian/config.json"));
    run(&["debian"]).fails(&["debian belongs to uid 12345", "docker://debian"]);
    // The working directory is no bundle, so the word is the name of an image, which nothing can pull here.
    let config = huge(here.join("config.json"));
    run(&["alpine"]).fails(&["rt-pull is installed neither"]);
    fs::remove_file(&config).unwrap();
    sys::mkfifo(&config).unwrap();
    give(&config);
    run(&["alpine"]).fails(&["rt-pull is installed neither"]);
    fs::remove_file(&config).unwrap();
    symlink("/proc/kmsg", &config).unwrap();
    run(&["alpine"]).fails(&["rt-pull is installed neither"]);
    fs::remove_file(&config).unwrap();
    // A lease on the file has every open of it fail (fcntl(2), F_SETLEASE).
    fs::write(&config, "{}").unwrap();
    let leased = fs::File::options().read(true).write(true).open(&config).unwrap();
    assert_eq!(sys::set_write_lease(&leased), 0);
    give(&config);
    run(&["alpine"]).fails(&["rt-pull is installed neither"]);
    drop(leased);
    // Where others can rename what is the caller's, a word means nothing of it; a path does.
    let (team, own) = (ctx.mkdir("team"), ctx.bundle().ops(&["say it runs"]));
    own.write();
    fs::rename(&own.dir, team.join("own")).unwrap();
    fs::set_permissions(&team, fs::Permissions::from_mode(0o777)).unwrap();
    let in_team = |word: &str| run(&[word]).cwd(&team);
    in_team("own").fails(&["others can put something else in its place", "./own"]);
    assert_eq!(in_team("./own").ok().line(0), json!("it runs"));
    // Nothing mounted is asked.
    for name in ["alpine", "alpine.file", "config.json"] {
        let at = here.join(name);
        if name == "alpine" {
            fs::create_dir(&at).unwrap()
        } else {
            fs::write(&at, "").unwrap()
        }
        give(&at);
        let server = sys::silent_fuse(&at, OTHER, ",allow_other");
        if server.is_none() {
            skip!("no /dev/fuse");
        }
        let text = if name == "config.json" { "rt-pull is installed neither" } else { "others can write" };
        run(&[if name == "config.json" { "debian:12" } else { name }]).fails(&[text]);
        if name != "config.json" {
            let target = ctx.path("target.sqsh").display().to_string();
            // To a pull the word is the name of an image alone.
            let pull = rt(ctx, &["pull", "--plain-http", "--retries", "0", name, &target]).cwd(&here);
            pull.env("http_proxy", "http://127.0.0.1:1")
                .env("https_proxy", "http://127.0.0.1:1")
                .fails(&[name]);
            let commands: [&[&str]; 4] = [
                &["convert", name, &target],
                &["inspect", name],
                &["save", name, "oci:saved"],
                &["push", name, "127.0.0.1:1/x:1"],
            ];
            commands.iter().for_each(|words| drop(rt(ctx, words).cwd(&here).fails(&[text])));
        }
        sys::umount(at.to_str().unwrap(), libc::MNT_DETACH).unwrap();
        drop(server);
        if name == "alpine" { fs::remove_dir(&at).unwrap() } else { fs::remove_file(&at).unwrap() }
    }
}

/// A user serves his directory in one that only root writes, and would say of all in it that it is root's. He is not asked.
fn words_below_a_mount_of_somebodys(ctx: &Ctx) {
    if !Caller::tests_are_root() {
        skip!("only root mounts for others");
    }
    const OTHER: u32 = 12345;
    let here = ctx.mkdir("here");
    fs::set_permissions(&here, fs::Permissions::from_mode(0o755)).unwrap();
    sys::chown(&here, 0, 0).unwrap();
    let home = here.join("home");
    fs::create_dir(&home).unwrap();
    sys::chown(&home, OTHER, OTHER).unwrap();
    for (name, target) in [("link", "home/tool"), ("around", "./link"), ("whole", "home")] {
        symlink(target, here.join(name)).unwrap();
        ctx.give_link(&here.join(name));
    }
    for options in [",allow_other", ""] {
        let Some(server) = sys::silent_fuse(&home, OTHER, options) else {
            skip!("no /dev/fuse");
        };
        let is_refused = |word: &str, text: &str| {
            let commands: [&[&str]; 3] = [&["run"], &["inspect"], &["save", "--runfile", "saved"]];
            for words in commands {
                rt(ctx, &[words, &[word]].concat()).cwd(&here).fails(&[
                    word,
                    text,
                    &format!("docker://{word}"),
                ]);
            }
        };
        is_refused("home", "home is on a file system that uid 12345 serves");
        is_refused("home/tool", "home is on a file system that uid 12345 serves");
        is_refused("home/../home/tool", "home is on a file system that uid 12345 serves");
        for link in ["link", "around", "whole", "whole/tool"] {
            is_refused(link, "in which others can put something else at any time");
        }
        sys::umount(home.to_str().unwrap(), libc::MNT_DETACH).unwrap();
        drop(server);
    }
}

/// The owner of a directory can mount on what is in it, whatever its mode is: where the caller stands, or below a HOME that su left.
fn directories_of_others_with_mounts(ctx: &Ctx) {
    store_with_an_image(ctx);
    give_to(&ctx.path("images"), ctx.caller.host_ids().0);
    name(ctx, "word:latest");
    let bundle = ctx.bundle();
    bundle.write();
    let bundle = bundle.dir.to_str().unwrap();
    let (here, home) = (ctx.mkdir("here"), ctx.mkdir("home"));
    fs::write(here.join("config.json"), "").unwrap();
    fs::create_dir_all(home.join(".config/rt")).unwrap();
    for dir in [&here, &home] {
        give_to(dir, 12345);
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let places = [here.join("config.json"), home.join(".config/rt"), home.join(".config"), home.clone()];
    for place in places {
        let Some(server) = sys::silent_fuse(&place, 12345, ",allow_other") else { skip!("no /dev/fuse") };
        let runs: [&[&str]; 4] = [
            &["run", "word", "--", "/probe", "ready"],
            &["run", "--pull", "never", "word", "--", "/probe", "ready"],
            &["run", bundle, "--", "/probe", "ready"],
            &["images", "-q"],
        ];
        for words in runs {
            let mut job = rt(ctx, words).env("HOME", &home).cwd(&here).spawn();
            let what = format!("{words:?} with {} mounted", place.display());
            eventually(&what, || job.child.try_wait().unwrap());
            let out = job.wait();
            assert_eq!(out.code, 0, "{what}: {out:?}");
        }
        drop(server);
        sys::umount(place.to_str().unwrap(), libc::MNT_DETACH).unwrap();
    }
    forget(ctx);
}

/// What `rt` says, which ends although another user serves `place` and answers nothing.
fn with_silent_mount(ctx: &Ctx, place: &Path, cwd: &Path, words: &[&str]) -> Option<crate::fixture::Out> {
    let server = sys::silent_fuse(place, 12345, ",allow_other")?;
    let mut job = rt(ctx, words).cwd(cwd).spawn();
    eventually(&format!("{words:?} with {} mounted", place.display()), || job.child.try_wait().unwrap());
    let out = job.wait();
    drop(server);
    sys::umount(place.to_str().unwrap(), libc::MNT_DETACH).unwrap();
    Some(out)
}

/// The file of a bundle of others that says whether images share its files.
fn a_mount_beside_a_root_of_others(ctx: &Ctx) {
    if !Caller::tests_are_root() {
        skip!("only root mounts for others");
    }
    let bundle = ctx.bundle().with("/root/readonly", json!(false)).ops(&["say done"]);
    bundle.write();
    let place = bundle.dir.join("shares-files");
    fs::write(&place, "").unwrap();
    give_to(&bundle.dir, 12345);
    let path = bundle.dir.to_str().unwrap();
    rt(ctx, &["run", path]).fails(&["other images have the same files"]);
    let Some(out) = with_silent_mount(ctx, &place, &ctx.dir, &["run", path]) else { skip!("no /dev/fuse") };
    let is_said = |text: &str| out.stderr.contains(text);
    assert!(
        out.code != 0 && is_said("shares-files") && is_said("another user's file system is mounted there"),
        "{out:?}"
    );
    fs::remove_file(&place).unwrap();
    rt(ctx, &["run", path]).ok();
}

/// Nothing that the owner of a context mounts in it is asked, and an error names it.
fn contexts_of_others_with_mounts(ctx: &Ctx) {
    if !Caller::tests_are_root() {
        skip!("only root mounts for others");
    }
    let here = ctx.mkdir("theirs");
    fs::create_dir(here.join("dir")).unwrap();
    fs::create_dir(here.join("deep")).unwrap();
    fs::write(here.join("deep/x"), "").unwrap();
    for (name, text) in [
        ("Containerfile", "FROM scratch\nCOPY file /\nCOPY dir/x link /\n"),
        ("file", ""),
        ("dir/x", ""),
        ("dir/y", ""),
    ] {
        fs::write(here.join(name), text).unwrap();
    }
    symlink("/deep/x", here.join("link")).unwrap();
    fs::set_permissions(&here, fs::Permissions::from_mode(0o755)).unwrap();
    give_to(&here, 12345);
    let file = here.join("Containerfile").to_str().unwrap().to_owned();
    let other = ctx.mkdir("other").to_str().unwrap().to_owned();
    let made = ctx.path("made.sqsh").display().to_string();
    let build = ["build", "--no-cache", "-o", &made];
    let cases: [(&str, &[&str], &str); 11] = [
        ("Containerfile", &["."], "Containerfile"),
        ("Containerfile", &["-f", &file, &other], "Containerfile"),
        ("Containerfile.dockerignore", &["."], "Containerfile.dockerignore"),
        ("Containerfile.dockerignore", &["-f", &file, &other], "Containerfile.dockerignore"),
        (".containerignore", &["."], ".containerignore"),
        (".dockerignore", &["."], ".dockerignore"),
        ("file", &["."], "file"),
        ("dir", &["."], "dir/x"),
        ("dir/x", &["."], "dir/x"),
        ("deep", &["."], "link"),
        ("", &[here.to_str().unwrap()], "theirs"),
    ];
    for (place, words, shown) in cases {
        let place = if place.is_empty() { here.clone() } else { here.join(place) };
        let is_new = !place.exists();
        if is_new {
            fs::write(&place, "").unwrap();
        }
        let cwd = if words == ["."] { &here } else { &ctx.dir };
        let words = [&build[..], words].concat();
        let Some(out) = with_silent_mount(ctx, &place, cwd, &words) else { skip!("no /dev/fuse") };
        let is_said = |text: &str| out.stderr.contains(text);
        assert!(
            out.code != 0 && is_said(shown) && is_said("another user's file system is mounted there"),
            "{}: {out:?}",
            place.display()
        );
        if is_new {
            fs::remove_file(&place).unwrap();
        }
    }
    // What root has mounted there is as any directory, with a link through it and out of it.
    let deep = here.join("deep");
    sys::mount("tmpfs", deep.to_str().unwrap(), "tmpfs", 0, "mode=755").unwrap();
    symlink("../dir/y", deep.join("x")).unwrap();
    let built = rt(ctx, &[&build[..], &["."]].concat()).cwd(&here).run();
    sys::umount(deep.to_str().unwrap(), libc::MNT_DETACH).unwrap();
    assert_eq!(built.code, 0, "{built:?}");
    forget(ctx);
}

/// Whose a fifo is says who is waited for.
fn fifos_of_others_are_not_waited_for(ctx: &Ctx) {
    if !Caller::tests_are_root() {
        skip!("only root gives files to others");
    }
    let bundle = ctx.bundle().ops(&["say done"]);
    bundle.write();
    let (dir, config) = (bundle.dir.to_str().unwrap().to_owned(), bundle.dir.join("config.json"));
    let text = fs::read_to_string(&config).unwrap();
    let fifo = ctx.path("fifo");
    sys::mkfifo(&fifo).unwrap();
    fs::set_permissions(&fifo, fs::Permissions::from_mode(0o666)).unwrap();
    let id = ctx.id();
    let ends = |words: &[&str], why: &str| {
        let mut job = rt(ctx, words).spawn();
        eventually(&format!("{words:?}"), || job.child.try_wait().unwrap());
        let out = job.wait();
        let is_a_line = out.stderr.trim_end().lines().count() == 1;
        assert!(out.code != 0 && is_a_line && out.stderr.contains(why), "{words:?}: {out:?}");
    };
    give_to(&fifo, 12345);
    let named = fifo.to_str().unwrap();
    ends(&["run", "-f", named, &dir], "fifo: not a file, and another user's");
    ends(&["run", "-f", named, "-b", &dir, &id], "fifo: not a file, and another user's");
    // The caller's own is read once somebody writes to it, and so is a pipe.
    ctx.give(&fifo);
    let job = rt(ctx, &["run", "-f", named, &dir]).spawn();
    fs::write(&fifo, &text).unwrap();
    let out = job.wait();
    assert!(out.code == 0 && out.stdout.contains("done"), "{out:?}");
    for script in [
        "exec \"$@\" -f <(sleep 0.1; cat config.json) .",
        "exec \"$@\" -f /dev/stdin . <<<\"$(cat config.json)\"",
        "sleep 0.1 | cat config.json - | \"$@\" -f /dev/stdin .",
        "exec \"$@\" -f /proc/self/fd/7 . 7<config.json",
    ] {
        let cmd = ctx.command("/bin/bash").args(["-c", script, "bash"]).arg(ctx.rt_path());
        let cmd = cmd.arg("--root").arg(ctx.mkdir("state")).arg("run");
        let out = cmd.cwd(&bundle.dir).run();
        assert!(out.code == 0 && out.stdout.contains("done"), "{script}: {out:?}");
    }
    // A bundle's own is a file.
    fs::rename(&fifo, &config).unwrap();
    for owner in [12345, ctx.caller.host_ids().0] {
        give_to(&config, owner);
        ends(&["run", "-b", &dir, &id], "config.json: not a file");
    }
}

/// A name without a registry is one of the configured registry to every command, also where the store has an image that was
/// pulled under the name before.
fn names_in_the_configured_registry(ctx: &Ctx) {
    const SITE: &str = "127.0.0.1:1";
    let image = image(ctx);
    rt(ctx, &["pull", "--store", "-q", &image]).ok();
    name(ctx, "debian:12");
    ctx.mkdir("config/rt");
    let config = ctx.file("config/rt/config.toml", &format!("[pull]\nregistry = \"{SITE}\"\nretries = 0\n"));
    let config = config.parent().unwrap().parent().unwrap().to_owned();
    let run = || rt(ctx, &["run", "--pull", "never", "debian:12", "--", "/probe", "ready"]);
    run().ok();
    let site = |words: &[&str]| rt(ctx, words).env("XDG_CONFIG_HOME", &config);
    let run_at_site = |word: &str| {
        let out = site(&["run", "--pull", "never", word, "--", "/probe", "ready"]).run();
        assert!(out.code == 0 || out.stderr.contains("not in the store of images"), "{out:?}");
        out.code == 0
    };
    assert!(!run_at_site("debian:12") && !run_at_site("docker://debian:12"));
    assert!(run_at_site("docker.io/debian:12"));
    // All commands ask that registry, which nobody serves here.
    let bundle = ctx.bundle();
    bundle.write();
    let (bundle, file) = (bundle.dir.display().to_string(), ctx.path("file").display().to_string());
    let commands: [&[&str]; 8] = [
        &["run", "debian:12"],
        &["run", "--pull", "always", "debian:12"],
        &["pull", "debian:12", &file],
        &["pull", "--store", "debian:12"],
        &["inspect", "debian:12"],
        &["save", "--runfile", &file, "debian:12"],
        &["convert", "debian:12", "oci:converted"],
        &["push", &bundle, "team/tool:1"],
    ];
    for words in commands {
        site(words).cwd(&ctx.dir).fails(&[SITE]);
    }
    let prepare = site(&["slurm", "prepare"]).env("SLURM_JOB_ID", "42").env("SLURM_STEP_ID", "0");
    prepare.env("RT_CONTAINER_IMAGE", "debian:12").fails(&[SITE]);
    site(&["slurm", "digest", "debian:12"]).fails(&[SITE]);
    site(&["rmi", "debian:12"]).fails(&["debian:12: no such image"]);
    run().ok();
    // What was pulled there has its name, is found by it, and is removed by it.
    name(ctx, &format!("{SITE}/debian:12"));
    assert!(run_at_site("debian:12") && run_at_site("docker://debian:12"));
    // Nor does a name that somebody has put into the store steer a terminal.
    name(ctx, "oci:/evil%E2%80%AE%C2%9B31m");
    let images = site(&["images"]).ok().stdout;
    assert!(images.contains("evil") && !images.contains(['\u{202e}', '\u{9b}']), "{images:?}");
    let images = site(&["images", "--json"]).ok();
    assert!(!images.stdout.contains(['\u{202e}', '\u{9b}']), "{images:?}");
    let images = site(&["images"]).ok().stdout;
    assert!(images.contains(&format!("{SITE}/debian:12 ")), "{images}");
    assert_eq!(site(&["rmi", "debian:12"]).ok().stdout, format!("untagged {SITE}/debian:12\n"));
    assert!(!run_at_site("debian:12"));
    run().ok();
    forget(ctx);
}

/// A site's store: its images are run, and nothing is written into it.
fn stores_that_are_read_only(ctx: &Ctx) {
    if !Caller::tests_are_root() {
        skip!("only root gives files to others");
    }
    fs::create_dir(ctx.path("images")).unwrap();
    ctx.give(&ctx.path("images"));
    fs::set_permissions(ctx.path("images"), fs::Permissions::from_mode(0o755)).unwrap();
    let image = image(ctx);
    rt(ctx, &["pull", "--store", "-q", &image]).ok();
    name(ctx, "x.org/x:1");
    let marks = ctx.path("images/uses");
    fs::remove_file(fs::read_dir(&marks).unwrap().next().unwrap().unwrap().path()).unwrap();
    give_to_root(&ctx.path("images"));
    let out = rt(ctx, &["run", "x.org/x:1", "--", "/probe", "say hello"]).run();
    assert_eq!((out.code, out.line(0), out.stderr.as_str()), (0, json!("hello"), ""), "{out:?}");
    let written = fs::read_dir(&marks).unwrap().count();
    assert_eq!(written, usize::from(ctx.caller == Caller::Root));
    let listed = rt(ctx, &["images", "--json"]).ok().json();
    assert_eq!(listed[0]["readOnly"], ctx.caller != Caller::Root, "{listed}");
    if ctx.caller != Caller::Root {
        rt(ctx, &["rmi", "x.org/x:1"]).fails(&["no store of images that could be changed"]);
        rt(ctx, &["pull", "--store", "oci:other"]).fails(&["RT_IMAGES"]);
        rt(ctx, &["prune", "--all"]).ok();
    }
    // With a store of one's own in front, that is where new images go.
    let both = format!("{}:{}", ctx.path("own").display(), ctx.path("images").display());
    let out = rt(ctx, &["run", "x.org/x:1", "--", "/probe", "say hello"]).env("RT_IMAGES", &both).ok();
    assert_eq!(out.line(0), "hello");
    ctx.give(&ctx.path("images"));
    forget(ctx);
}

fn give_to_root(path: &std::path::Path) {
    sys::chown(path, 0, 0).unwrap();
    if path.is_dir() && !path.is_symlink() {
        fs::read_dir(path).unwrap().flatten().for_each(|entry| give_to_root(&entry.path()));
    }
}

/// Gives the store's bundle a hook that leaves a file, and a bind of a directory of the host.
fn with_hook_and_bind(ctx: &Ctx) -> PathBuf {
    let bundle = fs::read_dir(ctx.path("images/bundles")).unwrap().next().unwrap().unwrap().path();
    let config = bundle.join("config.json");
    let mut spec: serde_json::Value = serde_json::from_slice(&fs::read(&config).unwrap()).unwrap();
    let touch = format!("echo x >{}", ctx.path("hooked").display());
    spec["hooks"] = json!({ "createRuntime": [{ "path": "/bin/sh", "args": ["sh", "-c", touch] }] });
    let bind = json!({ "destination": "/mnt", "type": "bind", "source": ctx.path(""), "options": ["bind"] });
    spec["mounts"].as_array_mut().unwrap().push(bind);
    fs::write(&config, spec.to_string()).unwrap();
    bundle
}

/// Pulls an image into a store that others can enter, where the tests can give files to others.
fn store_with_an_image(ctx: &Ctx) {
    if !Caller::tests_are_root() {
        skip!("only root gives files to others");
    }
    fs::set_permissions(ctx.mkdir("images"), fs::Permissions::from_mode(0o755)).unwrap();
    let image = image(ctx);
    rt(ctx, &["pull", "--store", "-q", &image]).ok();
    name(ctx, "x.org/x:1");
}

/// A store whose place a variable gives is the caller's own: another user may have made the directory first.
fn stores_of_each_user(ctx: &Ctx) {
    store_with_an_image(ctx);
    ctx.mkdir("config");
    ctx.mkdir("config/rt");
    ctx.file("config/rt/config.toml", "[images]\nstores = [\"$BASE/$WHO\"]\n");
    let run = |who: &str| {
        let cmd = ctx.rt(["run", "--pull", "never", "x.org/x:1", "--", "/probe", "say hello", "ls /mnt"]);
        cmd.env("XDG_CONFIG_HOME", ctx.path("config")).env("BASE", ctx.path("")).env("WHO", who)
    };
    assert_eq!(run("images").ok().line(0), "hello");
    // Whose files they are shows where root in the container writes over the image.
    let words = ["run", "--pull", "never", "--as-root", "x.org/x:1", "--", "/probe", "say hello"];
    let is_anothers = || rt(ctx, &words).ok().stderr.contains("the image's files belong to uid 12345");
    assert!(!is_anothers());
    symlink(ctx.path("images"), ctx.path("link")).unwrap();
    run("link").fails(&["the store of images"]);
    with_hook_and_bind(ctx);
    give_to(&ctx.path("images"), 12345);
    run("images").fails(&["belongs to uid 12345"]);
    assert!(is_anothers());
    assert!(!ctx.path("hooked").exists(), "the hook of another user has run");
    // A file system of another user's, which says whose it is, or says nothing.
    let shared = ctx.mkdir("shared");
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
    let place = ctx.mkdir("shared/images");
    if let Some(server) = sys::silent_fuse(&place, 12345, ",allow_other") {
        run("images").env("BASE", &shared).fails(&["the store of images"]);
        run("images/below").env("BASE", &shared).fails(&["the store of images"]);
        sys::umount(place.to_str().unwrap(), libc::MNT_DETACH).unwrap();
        drop(server);
    }
    // In a user namespace its owner looks like the host's root.
    give_to(&ctx.path("images"), ctx.caller.host_ids().0);
    sys::chown(&ctx.path("images"), 12345, 12345).unwrap();
    let in_namespace = |program: &str| {
        let cmd = ctx
            .command(program)
            .args(["-r"])
            .arg(ctx.rt_path())
            .args(["--root".as_ref(), ctx.state.as_os_str()]);
        cmd.args(["run", "--pull", "never", "x.org/x:1", "--", "/probe"])
            .env("RT_IMAGES", ctx.path("images"))
            .run()
    };
    if Path::new("/usr/bin/unshare").exists() {
        let out = in_namespace("/usr/bin/unshare");
        assert!(out.code == 0 && out.stderr.contains("others can rename what is in"), "{out:?}");
        assert!(!ctx.path("hooked").exists(), "a bundle that another user may have put there");
    }
    give_to(&ctx.path("images"), 12345);
    // Whoever names the store chooses its owner, who still has no program run on the host.
    let cmd = rt(ctx, &["run", "--pull", "never", "x.org/x:1", "--", "/probe", "say hello", "ls /mnt"]);
    let out = cmd.ok();
    assert_eq!((out.line(0), out.line(1)), (json!("hello"), json!([])), "a bind of another user's");
    assert!(!ctx.path("hooked").exists(), "the hook of another user has run");
    give_to(&ctx.path("images"), ctx.caller.host_ids().0);
    forget(ctx);
}

/// In a store of a team, what another one of the team can change asks for nothing of the host.
fn bundles_of_a_team(ctx: &Ctx) {
    let image = image(ctx);
    rt(ctx, &["pull", "--store", "-q", &image]).ok();
    name(ctx, "x.org/x:1");
    let bundle = with_hook_and_bind(ctx);
    // A hook of the caller's hears what counts of the config.
    let told = ctx.path("told");
    let mut definition = definition("/bin/sh".as_ref(), &[], json!({ "always": true }), &["createRuntime"]);
    definition["hook"]["args"] = json!(["sh", "-c", format!("cat >{}", told.display())]);
    let hooks = definitions(ctx, "told.json", &definition).display().to_string();
    // The caller's own config that does not count says so.
    let run = || {
        let words = ["run", "--hooks-dir", &hooks, "--pull", "never", "x.org/x:1", "--", "/probe", "ls /mnt"];
        let out = rt(ctx, &words).ok();
        let lost = out.stderr.contains("of its config does not count: hooks, mount /mnt\n");
        assert_eq!(lost, out.line(0) == json!([]), "{}", out.stderr);
        out.line(0)
    };
    let config = || {
        let state: serde_json::Value = serde_json::from_slice(&fs::read(&told).unwrap()).unwrap();
        state["rtCaller"]["config"]
            .as_str()
            .map(|text| serde_json::from_str::<serde_json::Value>(text).unwrap())
    };
    assert_ne!(run(), json!([]));
    assert!(ctx.path("hooked").exists(), "the caller's own hook runs");
    assert_eq!(config(), None);
    let callers = ctx.file("callers.json", &fs::read_to_string(bundle.join("config.json")).unwrap());
    let callers = callers.to_str().unwrap();
    // One that names the root of this bundle from elsewhere, by a link of the caller's.
    symlink(&bundle, ctx.path("by-link")).unwrap();
    let mut elsewhere: serde_json::Value = serde_json::from_slice(&fs::read(callers).unwrap()).unwrap();
    elsewhere["root"]["path"] = json!(ctx.path("by-link/rootfs"));
    ctx.mkdir("mine");
    let elsewhere = ctx.file("mine/config.json", &elsewhere.to_string());
    let mine = elsewhere.parent().unwrap().to_str().unwrap();
    rt(ctx, &["run", mine, "--", "/probe"]).ok();
    fs::remove_file(ctx.path("hooked")).unwrap();
    // One of a store of the caller's own, whose root is a link to that of this bundle.
    let own_stored = ctx.mkdir(&format!("own/bundles/sha256-{}", "ee".repeat(32)));
    symlink(bundle.join("rootfs"), own_stored.join("rootfs")).unwrap();
    fs::copy(callers, own_stored.join("config.json")).unwrap();
    let own_stored = own_stored.to_str().unwrap();
    let says_of_root = ["rootfs: not a directory, and others"];
    // Mounts whose sources start at the bundle.
    let mut relative: serde_json::Value = serde_json::from_slice(&fs::read(callers).unwrap()).unwrap();
    let bind = json!({ "destination": "/mnt", "type": "bind", "source": "rootfs/tmp", "options": ["bind"] });
    relative["mounts"].as_array_mut().unwrap().push(bind);
    let relative = ctx.file("relative.json", &relative.to_string());
    let by_relative = || {
        rt(ctx, &["run", "--pull", "never", "-f", relative.to_str().unwrap(), "x.org/x:1", "--", "/probe"])
    };
    by_relative().ok();
    fs::remove_file(ctx.path("hooked")).unwrap();
    // One whose source is a link in it, by an absolute path.
    let (through, inner_link) = (bundle.join("through"), bundle.join("inner"));
    symlink(ctx.path(""), &through).unwrap();
    let absolute = fs::read_to_string(&relative).unwrap().replace("rootfs/tmp", through.to_str().unwrap());
    let absolute = ctx.file("absolute.json", &absolute).display().to_string();
    let by_absolute = || rt(ctx, &["run", "--pull", "never", "-f", &absolute, "x.org/x:1", "--", "/probe"]);
    by_absolute().ok();
    fs::remove_file(ctx.path("hooked")).unwrap();
    // A bundle of the caller's own store, and a link to it.
    let private = ctx.mkdir(&format!("own/bundles/sha256-{}", "dd".repeat(32)));
    fs::create_dir(private.join("rootfs")).unwrap();
    fs::copy(callers, private.join("config.json")).unwrap();
    symlink(&private, &inner_link).unwrap();
    let by_inner_link = |words: &[&str]| {
        let all = words.iter().map(|word| word.replace("LINK", inner_link.to_str().unwrap()));
        rt(ctx, &all.collect::<Vec<_>>().iter().map(String::as_str).collect::<Vec<_>>())
    };
    by_inner_link(&["save", "-q", "LINK", "oci-archive:private.tar"]).ok();
    // What the caller has unpacked where others can rename can be brought among the bundles.
    for path in [bundle.join("config.json"), bundle.clone(), bundle.parent().unwrap().to_owned()] {
        fs::remove_file(ctx.path("hooked")).unwrap_or_default();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode | 0o020)).unwrap();
        assert_eq!(run(), json!([]), "{}", path.display());
        let config = config().unwrap();
        by_relative().fails(&["mount /mnt: rootfs/tmp starts at a bundle that others can change"]);
        by_absolute().fails(&["mount /mnt: ", "/through starts at a bundle that others can change"]);
        for words in [
            &["run", "LINK"][..],
            &["save", "-q", "LINK", "oci-archive:x.tar"],
            &["save", "-q", "LINK", "x.sqsh"],
            &["save", "-q", "--runfile", "x.run", "LINK"],
            &["convert", "-q", "LINK", "x.sqsh"],
        ] {
            by_inner_link(words).fails(&["symbolic link"]);
        }
        assert_eq!(config["root"]["path"], json!("rootfs"));
        assert!(!config["mounts"].to_string().contains("/mnt"), "{config}");
        assert!(!ctx.path("hooked").exists(), "{}", path.display());
        // Nor does a link in the root's place show a directory of the host, or a file that can be exchanged for one to an image.
        let (root, aside) = (bundle.join("rootfs"), bundle.join("aside"));
        fs::rename(&root, &aside).unwrap();
        for make in [|root: &Path| symlink("/", root), |root: &Path| fs::write(root, "")] {
            make(&root).unwrap();
            let says = ["rootfs: not a directory, and others"];
            rt(ctx, &["run", "--pull", "never", "x.org/x:1"]).fails(&says);
            // Nor by a config of the caller's.
            rt(ctx, &["run", "-f", callers, "--pull", "never", "x.org/x:1"]).fails(&says);
            let elsewhere = elsewhere.to_str().unwrap();
            rt(ctx, &["run", "-f", elsewhere, "--pull", "never", "x.org/x:1"]).fails(&says);
            rt(ctx, &["run", mine]).fails(&says);
            rt(ctx, &["run", own_stored]).fails(&says);
            rt(ctx, &["save", "-q", mine, "oci-archive:x.tar"]).fails(&says);
            rt(ctx, &["save", "-q", own_stored, "oci-archive:x.tar"]).fails(&["not a directory"]);
            fs::remove_file(&root).unwrap();
        }
        fs::rename(&aside, &root).unwrap();
        rt(ctx, &["run", mine, "--", "/probe"]).ok();
        rt(ctx, &["run", own_stored, "--", "/probe"]).ok();
        fs::remove_file(ctx.path("hooked")).unwrap();
        // A bundle that somebody has put below the root of this one, by any way.
        let inner = root.join("tmp/inner");
        fs::create_dir_all(&inner).unwrap();
        fs::copy(callers, inner.join("config.json")).unwrap();
        symlink("../..", inner.join("rootfs")).unwrap();
        for (cwd, way) in [
            (Path::new("/"), inner.as_path()),
            (&bundle, "./rootfs/tmp/inner".as_ref()),
            (inner.parent().unwrap(), "./inner".as_ref()),
            (&inner, ".".as_ref()),
        ] {
            rt(ctx, &["run", way.to_str().unwrap(), "--", "/probe"]).cwd(cwd).fails(&says_of_root);
            assert!(!ctx.path("hooked").exists(), "{} from {}", way.display(), cwd.display());
        }
        fs::remove_dir_all(&inner).unwrap();
        // What has the place of its config is not asked for where the caller has another.
        let config = bundle.join("config.json");
        fs::rename(&config, &aside).unwrap();
        symlink(&aside, &config).unwrap();
        let out = rt(ctx, &["run", "-f", callers, "--pull", "never", "x.org/x:1", "--", "/probe"]).ok();
        assert!(
            out.stderr.contains("these annotations count as its labels, as nothing: rt.user"),
            "{}",
            out.stderr
        );
        rt(ctx, &["run", "--pull", "never", "x.org/x:1"]).fails(&["config.json", "symbolic links"]);
        fs::rename(&aside, &config).unwrap();
        // Nor is it the caller's word by its path.
        fs::remove_file(ctx.path("hooked")).unwrap_or_default();
        for from in [config.to_str().unwrap(), "by-link/config.json"] {
            rt(ctx, &["run", "-f", from, "./by-link"])
                .fails(&["config.json: others can", "name a copy of your own"]);
        }
        assert!(!ctx.path("hooked").exists(), "{}", path.display());
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    // What is no bundle is data, and no link leads to that of the caller's.
    let (secret, leak) = (ctx.mkdir("secret"), ctx.path("leak.sqsh"));
    fs::write(secret.join("key"), "k").unwrap();
    fs::set_permissions(&bundle, fs::Permissions::from_mode(0o775)).unwrap();
    let aside = ctx.path("images/aside");
    for place in [bundle.join("rootfs"), bundle.clone()] {
        fs::rename(&place, &aside).unwrap();
        symlink(&secret, &place).unwrap();
        for way in [&place, &ctx.path("by-link").join(place.strip_prefix(&bundle).unwrap())] {
            for command in ["save", "convert"] {
                let flags: &[&[&str]] = &[&[command, "-q"], &[command, "-q", "--runfile"]];
                for flags in flags {
                    let target = leak.to_str().unwrap();
                    let words = if flags.len() == 2 {
                        [way.to_str().unwrap(), target]
                    } else {
                        [target, way.to_str().unwrap()]
                    };
                    rt(ctx, &[flags, &words[..]].concat()).fails(&[]);
                    assert!(!leak.exists(), "{flags:?} {words:?}");
                }
            }
        }
        fs::remove_file(&place).unwrap();
        fs::rename(&aside, &place).unwrap();
    }
    fs::set_permissions(&bundle, fs::Permissions::from_mode(0o755)).unwrap();
    // What is in no store, and whose word would count there: a link to it comes in the place of the bundle, or of all bundles,
    // between the moment in which a name is resolved and that in which the bundle is entered.
    fs::remove_file(ctx.path("hooked")).unwrap_or_default();
    let (bundles, aside) = (bundle.parent().unwrap(), ctx.path("images/aside"));
    // A link of the caller's own, from a time when the place was an honest one.
    let own = ctx.path("tool");
    symlink(&bundle, &own).unwrap();
    rt(ctx, &["run", own.to_str().unwrap(), "--", "/probe"]).ok();
    fs::remove_file(ctx.path("hooked")).unwrap();
    // And a way that goes through the place, and out again.
    let (up, through) = (ctx.path("up"), bundle.join("rootfs/.."));
    symlink("tool/rootfs/..", &up).unwrap();
    rt(ctx, &["run", up.to_str().unwrap(), "--", "/probe"]).ok();
    fs::remove_file(ctx.path("hooked")).unwrap();
    for (place, inner) in [(bundle.as_path(), ""), (bundles, bundle.file_name().unwrap().to_str().unwrap())] {
        fs::rename(place, &aside).unwrap();
        let elsewhere = ctx.path("elsewhere");
        symlink(&aside, &elsewhere).unwrap();
        rt(ctx, &["run", "--no-hooks", elsewhere.join(inner).to_str().unwrap(), "--", "/probe"]).ok();
        assert!(ctx.path("hooked").exists(), "by that path it is the caller's choice");
        fs::remove_file(ctx.path("hooked")).unwrap();
        symlink(&elsewhere, place).unwrap();
        let says = ["bundle", "the store itself can be one"];
        for way in [&bundle, &own, &up, &through] {
            rt(ctx, &["run", way.to_str().unwrap(), "--", "/probe"]).fails(&says);
        }
        for way in [&own, &up] {
            rt(ctx, &["save", "-q", way.to_str().unwrap(), "oci-archive:x.tar"]).fails(&says[1..]);
        }
        if place == bundle {
            let name = bundle.file_name().unwrap().to_str().unwrap();
            rt(ctx, &["run", &format!("./{name}"), "--", "/probe"]).cwd(bundles).fails(&says);
        }
        assert!(!ctx.path("hooked").exists(), "{}", place.display());
        fs::remove_file(place).unwrap();
        fs::remove_file(&elsewhere).unwrap();
        fs::rename(&aside, place).unwrap();
    }
    forget(ctx);
}

/// What the usual umask lets the caller's private group write is no team's.
fn bundles_of_the_callers_group(ctx: &Ctx) {
    store_with_an_image(ctx);
    let bundle = with_hook_and_bind(ctx);
    let (config, hooked) = (bundle.join("config.json"), ctx.path("hooked"));
    give_to(&ctx.path("images"), UID);
    sys::chown(&ctx.path(""), UID, UID).unwrap();
    for (path, mode) in config.ancestors().take(4).zip([0o664, 0o775, 0o775, 0o775]) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let is_callers = || {
        let cmd = rt(ctx, &["run", "--pull", "never", "x.org/x:1", "--", "/probe"]);
        cmd.by_tests().after([Step::Groups(vec![UID]), Step::Ids(UID, UID)]).ok();
        fs::remove_file(&hooked).is_ok()
    };
    assert!(is_callers());
    for path in config.ancestors().take(4) {
        sys::chown(path, UID, 12345).unwrap();
        assert!(!is_callers(), "{}", path.display());
        sys::chown(path, UID, UID).unwrap();
    }
    assert!(is_callers());
    forget(ctx);
}

/// A name that others change makes nothing of a bundle in which the caller stands.
fn a_teams_bundle_that_was_moved(ctx: &Ctx) {
    store_with_an_image(ctx);
    let bundle = with_hook_and_bind(ctx);
    let (bundles, name) = (ctx.path("images/bundles"), bundle.file_name().unwrap().to_str().unwrap());
    let (aside, renamed) = (ctx.path("images/aside"), bundles.join("renamed"));
    let hooked = ctx.path("hooked");
    let anothers_config = |owner: u32| {
        fs::set_permissions(&bundle, fs::Permissions::from_mode(0o775)).unwrap();
        sys::chown(&bundle, owner, 12345).unwrap();
        sys::chown(&bundle.join("config.json"), 12345, 12345).unwrap();
    };
    let id = ctx.id();
    let by_id = ["--bundle", ".", &id];
    let leak = ctx.path("leak.sqsh").display().to_string();
    let leak = leak.as_str();
    fs::write(ctx.mkdir("secret").join("key"), "k").unwrap();
    let callers = ctx.bundle().ops(&["say own"]);
    callers.write();
    let callers = callers.dir.to_str().unwrap();
    // Nor is its config the caller's word for another bundle.
    let configs = [
        ["-f", "config.json", callers],
        ["-f", "./rootfs/../config.json", callers],
        ["-f", "/proc/self/cwd/config.json", callers],
        ["-f", "config.json", "."],
    ];
    let configs_above = [["-f", "../config.json", callers], ["-f", "../config.json", ".."]];
    let by_config_and_id = ["-b", ".", "-f", "./config.json", &id];
    for is_callers_directory in [false, true] {
        give_to(&ctx.path("images"), 12345);
        let moves = match is_callers_directory {
            true => &[(&bundle, &renamed)][..],
            false => &[(&bundle, &renamed), (&bundles, &aside)],
        };
        if is_callers_directory {
            anothers_config(ctx.caller.host_ids().0);
        }
        for (from, to) in moves {
            fs::rename(from, to).unwrap();
            let at = if *from == &bundle { renamed.clone() } else { aside.join(name) };
            let (inside, above) = (at.join("rootfs"), at.parent().unwrap());
            let entry = format!("./{}", at.file_name().unwrap().to_str().unwrap());
            let by_entry = [entry.as_str()];
            let mut ways: Vec<(&Path, &[&str])> =
                vec![(&at, &["."]), (&at, &by_id), (&at, &["/proc/self/cwd"]), (&at, &["./rootfs/.."])];
            if !is_callers_directory {
                ways.extend([(inside.as_path(), &[".."][..]), (above, &by_entry)]);
            }
            ways.extend(configs.iter().map(|words| (at.as_path(), &words[..])));
            ways.extend(configs_above.iter().map(|words| (inside.as_path(), &words[..])));
            ways.push((&at, &by_config_and_id));
            for (cwd, words) in ways {
                let run = rt(ctx, &[&["run"], words].concat()).cwd(cwd);
                run.fails(&["others can write", "hooks, mount /mnt", "its whole path names it"]);
                assert!(!hooked.exists(), "{words:?} in {}", cwd.display());
            }
            let (root, own) = (at.join("rootfs"), ctx.path("secret"));
            fs::rename(&root, at.join("root")).unwrap();
            symlink(&own, &root).unwrap();
            for words in [&["save", "-q", ".", leak][..], &["save", "-q", "--runfile", leak, "."]] {
                rt(ctx, words).cwd(&at).fails(&[]);
                assert!(!Path::new(leak).exists(), "{words:?}");
            }
            fs::remove_file(&root).unwrap();
            fs::rename(at.join("root"), &root).unwrap();
            // By its whole path it is the caller's choice.
            let config = at.join("config.json");
            for words in [&[at.to_str().unwrap()][..], &["-f", config.to_str().unwrap(), callers]] {
                rt(ctx, &[&["run"], words, &["--", "/probe"]].concat()).ok();
                fs::remove_file(&hooked).unwrap();
            }
            fs::rename(to, from).unwrap();
        }
    }
    // One that asks for nothing runs, and so do the caller's own, where a group can write it, and another's from a directory of his own.
    let text = fs::read_to_string(bundle.join("config.json")).unwrap();
    let mut spec: serde_json::Value = serde_json::from_str(&text).unwrap();
    spec["hooks"] = json!({});
    spec["mounts"].as_array_mut().unwrap().pop();
    fs::write(bundle.join("config.json"), spec.to_string()).unwrap();
    fs::rename(&bundle, &renamed).unwrap();
    rt(ctx, &["run", ".", "--", "/probe"]).cwd(&renamed).ok();
    rt(ctx, &["run", "-f", "config.json", ".", "--", "/probe"]).cwd(&renamed).ok();
    fs::write(renamed.join("config.json"), text).unwrap();
    give_to(&renamed, 12345);
    let home = ctx.mkdir("home");
    let own = home.join("bundle");
    fs::rename(&renamed, &own).unwrap();
    rt(ctx, &["run", "./bundle", "--", "/probe"]).cwd(&home).ok();
    fs::remove_file(&hooked).unwrap();
    give_to(&own, ctx.caller.host_ids().0);
    for path in [&home, &own, &own.join("config.json")] {
        let mode = fs::metadata(path).unwrap().permissions().mode();
        fs::set_permissions(path, fs::Permissions::from_mode(mode | 0o020)).unwrap();
        sys::chown(path, ctx.caller.host_ids().0, 12345).unwrap();
    }
    for (cwd, way) in [(&own, "."), (&home, "./bundle")] {
        rt(ctx, &["run", way, "--", "/probe"]).cwd(cwd).ok();
        fs::remove_file(&hooked).unwrap();
    }
    forget(ctx);
}

/// What a bundle of another user's asks for counts by a relative path as by its whole one where it takes nothing of the host.
fn relative_paths_to_bundles_of_others(ctx: &Ctx) {
    if !Caller::tests_are_root() {
        skip!("only root gives files to others");
    }
    let limits = json!([{ "type": "RLIMIT_NOFILE", "soft": 100, "hard": 200 }]);
    let bundle = ctx.bundle().with("/process/rlimits", limits).with("/root/readonly", json!(false));
    let bundle = bundle.ops(&["rlimit 7", "say done"]);
    bundle.write();
    let config = bundle.dir.join("config.json");
    let says_limits = fs::read_to_string(&config).unwrap();
    fs::remove_file(&config).unwrap();
    ctx.rt(["spec", "--bundle"]).arg(&bundle.dir).silent();
    let mut spec: serde_json::Value = serde_json::from_str(&fs::read_to_string(&config).unwrap()).unwrap();
    spec["process"]["args"] = json!(["/probe", "say done"]);
    for text in [says_limits, spec.to_string()] {
        fs::write(&config, &text).unwrap();
        give_to(&bundle.dir, 12345);
        let id = ctx.id();
        for words in [&["run", "."][..], &["run", "-b", ".", &id], &["run", "-f", "config.json", "."]] {
            let out = rt(ctx, words).cwd(&bundle.dir).ok();
            assert!(out.stdout.ends_with("\"done\"\n"), "{words:?}: {out:?}");
            // It counts as an image's own, and what of it does not is said.
            assert!(!out.stdout.contains("[100,200]"), "{words:?}: {out:?}");
            let lost = "does not count: limits, a writable root";
            assert_eq!(out.stderr.contains(lost), text.contains("RLIMIT"), "{words:?}: {out:?}");
        }
    }
    // What would give the caller's files or powers away: as another form of the same, and by what is of the container alone.
    let file = |text: &serde_json::Value| fs::write(&config, text.to_string()).unwrap();
    let (secret, hooked) = (ctx.mkdir("secret"), ctx.path("hooked"));
    let touch = json!(["/bin/sh", ["sh", "-c", format!("echo x >{}", hooked.display())]]);
    fs::write(secret.join("file"), "secret").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o700)).unwrap();
    let mut hostile = spec.clone();
    let bind = json!(["/run/secret", "bind", secret, ["rbind", "rw"]]);
    hostile["mounts"].as_array_mut().unwrap().push(bind);
    hostile["hooks"] =
        json!([null, [touch.clone()], [touch.clone()], [touch.clone()], [touch.clone()], [touch]]);
    file(&hostile);
    give_to(&config, 12345);
    let id = ctx.id();
    let ways = [&["run", "."][..], &["run", "-b", ".", &id], &["run", "-f", "config.json", "."]];
    for words in ways {
        rt(ctx, words).cwd(&bundle.dir).fails(&["hooks, mount /run/secret", "its whole path names it"]);
    }
    hostile["mounts"].as_array_mut().unwrap().pop();
    hostile.as_object_mut().unwrap().remove("hooks");
    hostile["root"]["readonly"] = json!(false);
    hostile.as_object_mut().unwrap().remove("hostname");
    hostile["linux"]["rootfsPropagation"] = json!("shared");
    let map = json!([{ "containerID": 0, "hostID": ctx.caller.host_ids().0, "size": 1 }]);
    hostile["linux"]["namespaces"] = json!([{ "type": "user" }, { "type": "mount" }]);
    (hostile["linux"]["uidMappings"], hostile["linux"]["gidMappings"]) = (map.clone(), map);
    hostile["process"]["args"] =
        json!(["/probe", "write /probe x", "write /new x", "cat /proc/self/mountinfo"]);
    hostile["process"]["oomScoreAdj"] = json!(100);
    file(&hostile);
    give_to(&config, 12345);
    for words in ways {
        let out = rt(ctx, words).cwd(&bundle.dir).ok();
        assert_eq!(
            [out.line(0), out.line(1)],
            [errno(libc::EROFS), errno(libc::EROFS)],
            "{words:?}: {out:?}"
        );
        assert!(!hooked.exists() && !out.stdout.contains("shared:"), "{words:?}: {out:?}");
        let lost = "does not count: a writable root, oomScoreAdj, rootfsPropagation";
        assert!(out.stderr.contains(lost), "{words:?}: {out:?}");
    }
    // Also from a directory of the caller's own that lies in it.
    let mut hooks = spec.clone();
    hooks["hooks"] = json!({ "createRuntime": [{ "path": "/bin/true" }] });
    file(&hooks);
    give_to(&config, 12345);
    let own = bundle.dir.join("own");
    fs::create_dir(&own).unwrap();
    give_to(&own, ctx.caller.host_ids().0);
    let name = bundle.dir.file_name().unwrap().to_str().unwrap();
    for way in ["..", &format!("../../{name}"), &format!("../own/../../{name}")] {
        rt(ctx, &["run", way]).cwd(&own).fails(&["hooks", "its whole path names it"]);
        rt(ctx, &["run", "-f", &format!("{way}/config.json"), way]).cwd(&own).fails(&["hooks"]);
    }
    rt(ctx, &["run", bundle.dir.to_str().unwrap()]).cwd(&own).ok();
    fs::remove_dir(&own).unwrap();
    // A pipe has no name, and is the caller's. The tests make it, and only root opens theirs.
    if ctx.caller.host_ids().0 == 0 {
        let hooked = ctx.path("hooked");
        let touch = format!("echo x >{}", hooked.display());
        spec["hooks"] = json!({ "createRuntime": [{ "path": "/bin/sh", "args": ["sh", "-c", touch] }] });
        let by_pipe = ["run", "-f", "/dev/stdin", bundle.dir.to_str().unwrap()];
        rt(ctx, &by_pipe).input(spec.to_string()).ok();
        fs::remove_file(&hooked).unwrap();
        return forget(ctx);
    }
    // In a user namespace the host's root looks like everybody else who has no id there.
    give_to(&bundle.dir, 0);
    let mut spec: serde_json::Value = serde_json::from_str(&fs::read_to_string(&config).unwrap()).unwrap();
    spec["hooks"] = json!({ "createRuntime": [{ "path": "/bin/true" }] });
    fs::write(&config, spec.to_string()).unwrap();
    let run = |way: &str| {
        let inside = ctx.command("/usr/bin/unshare").arg("-Ur").arg(ctx.rt_path()).arg("--root");
        inside.arg(ctx.mkdir("inside")).args(["run", way]).cwd(&bundle.dir)
    };
    run(".").fails(&["its owner has no id in this user namespace", "hooks", "its whole path names it"]);
    run(bundle.dir.to_str().unwrap()).ok();
    forget(ctx);
}

/// Where others can write, they put a config in the place of the caller's, or where there was none, while a command looks.
fn configs_that_come_meanwhile(ctx: &Ctx) {
    if !Caller::tests_are_root() {
        skip!("only root gives files to others");
    }
    let bundle = ctx.bundle().ops(&["say done"]);
    bundle.write();
    fs::set_permissions(&bundle.dir, fs::Permissions::from_mode(0o1777)).unwrap();
    let config = bundle.dir.join("config.json");
    let mut hostile: serde_json::Value = serde_json::from_str(&fs::read_to_string(&config).unwrap()).unwrap();
    let hooked = ctx.path("hooked");
    let touch = json!({ "path": "/bin/sh", "args": ["sh", "-c", format!("echo x >{}", hooked.display())] });
    hostile["hooks"] = json!({ "createRuntime": [touch] });
    let theirs = ctx.file("theirs.json", &hostile.to_string());
    give_to(&theirs, 12345);
    let secret = ctx.mkdir("secret");
    fs::write(secret.join("the-secret"), "secret").unwrap();
    hostile["root"]["path"] = json!(secret);
    let aside = ctx.path("aside.json");
    let turns = |rounds: usize, one: &dyn Fn()| {
        let ended = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                    for (from, to) in
                        [(&config, &aside), (&theirs, &config), (&config, &theirs), (&aside, &config)]
                    {
                        fs::rename(from, to).unwrap();
                        std::thread::sleep(std::time::Duration::from_micros(20));
                    }
                }
            });
            (0..rounds).for_each(|_| one());
            ended.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    };
    turns(80, &|| drop(rt(ctx, &["run", "."]).cwd(&bundle.dir).run()));
    assert!(!hooked.exists(), "another user's hook ran");
    // What an image says of itself, too.
    let labels = json!({ "rt.home": "bind", "org.opencontainers.image.title": "x" });
    let mut labelled = bundle;
    labelled.set("/annotations", labels).write();
    let of_image = ctx.file(&format!("{}/image.json", labelled.dir.file_name().unwrap().display()), "{}");
    give_to(&of_image, 12345);
    for words in [&["run", "."][..], &["save", "-q", ".", "oci:x"]] {
        rt(ctx, words).cwd(&labelled.dir).fails(&["image.json: another user has put it there"]);
    }
    fs::remove_file(&of_image).unwrap();
    let bundle = labelled;
    fs::write(&theirs, hostile.to_string()).unwrap();
    let image = ctx.path("image");
    turns(40, &|| {
        let out =
            rt(ctx, &["save", "-q", "."]).arg(format!("oci:{}", image.display())).cwd(&bundle.dir).run();
        let saved =
            rt(ctx, &["run", &format!("oci:{}", image.display()), "/probe", "stat /the-secret"]).run();
        assert!(!saved.stdout.contains("\"size\""), "{out:?}: {saved:?}");
    });
    forget(ctx);
}

/// Makes a bundle of another user's of `bundle`, in a store.
fn in_a_store_of_others(ctx: &Ctx, bundle: &Path) -> PathBuf {
    let stored = ctx.mkdir("team/bundles").join(format!("sha256-{}", "ab".repeat(32)));
    fs::rename(bundle, &stored).unwrap();
    give_to(&ctx.path("team"), 12345);
    stored
}

/// A config of the caller's with a bundle of others' confines the program as with one of his own.
fn a_teams_bundle_by_a_config_of_the_callers(ctx: &Ctx) {
    if !Caller::tests_are_root() {
        skip!("only root gives files to others");
    }
    // KEYCTL_GET_KEYRING_ID of the session keyring; unshare(CLONE_NEWUSER) on x86_64.
    let asks = ["syscall 250 0 -3 0", "syscall 272 0x10000000"];
    let labels = json!({ "rt.environment": "caller", "org.opencontainers.image.title": "x" });
    let bundle = ctx.bundle().with("/annotations", labels).ops(&asks);
    bundle.write();
    fs::write(bundle.dir.join("image.json"), "{}").unwrap();
    let config = fs::read_to_string(bundle.dir.join("config.json")).unwrap();
    let config = ctx.file("callers.json", &config).display().to_string();
    let run = |dir: &Path| {
        let out = rt(ctx, &["run", "-f", &config, dir.to_str().unwrap()]).ok();
        [out.line(0), out.line(1)]
    };
    let own = run(&bundle.dir);
    assert_eq!(own[0], errno(libc::EPERM));
    assert_eq!(run(&in_a_store_of_others(ctx, &bundle.dir)), own);
    forget(ctx);
}

/// Hooks start in the bundle, but in none of others', who would say what a relative argument names.
fn hooks_beside_a_teams_bundle(ctx: &Ctx) {
    if !Caller::tests_are_root() {
        skip!("only root gives files to others");
    }
    let (bundle, places) = (ctx.bundle().ops(&["say x"]), ctx.path("places"));
    bundle.write();
    let mut spec: serde_json::Value =
        serde_json::from_slice(&fs::read(bundle.dir.join("config.json")).unwrap()).unwrap();
    let tells = |n: usize| {
        let line = format!("read _; echo {n} $(pwd -P) >>{}", places.display());
        json!({ "path": "/bin/sh", "args": ["sh", "-c", line] })
    };
    let stages = ["prestart", "createRuntime", "createContainer", "poststart", "poststop"];
    for (n, stage) in stages.iter().enumerate() {
        spec["hooks"][stage] = json!([tells(n)]);
    }
    let config = ctx.file("callers.json", &spec.to_string()).display().to_string();
    let mut filter = definition("/bin/sh".as_ref(), &[], json!({ "always": true }), &["precreate"]);
    let line = format!("echo {} $(pwd -P) >>{}; cat", stages.len(), places.display());
    filter["hook"]["args"] = json!(["sh", "-c", line]);
    let definitions = definitions(ctx, "place.json", &filter).display().to_string();
    let run = |dir: &Path, words: &[&str]| {
        let flags = ["--hooks-dir", &definitions, "-f", &config];
        rt(ctx, &[words, &flags].concat()).arg(dir).ok();
    };
    let starts_in = |place: &Path| {
        let text = fs::read_to_string(&places).unwrap();
        let mut told: Vec<_> = text.lines().map(str::to_owned).collect();
        told.sort();
        let all = (0..=stages.len()).map(|n| format!("{n} {}", place.display()));
        assert_eq!(told, all.collect::<Vec<_>>());
        fs::remove_file(&places).unwrap();
    };
    run(&bundle.dir, &["run"]);
    starts_in(&bundle.dir);
    let stored = in_a_store_of_others(ctx, &bundle.dir);
    run(&stored, &["run"]);
    starts_in(Path::new("/"));
    // Also where another process starts and removes the container.
    let id = ctx.id();
    run(&stored, &["run", "-d", "--name", &id]);
    eventually("the program has ended", || ctx.rt(["delete", &id]).run().code.eq(&0).then_some(()));
    starts_in(Path::new("/"));
    forget(ctx);
}

pub fn give_to(path: &std::path::Path, id: u32) {
    sys::chown(path, id, id).unwrap();
    if path.is_dir() && !path.is_symlink() {
        fs::read_dir(path).unwrap().flatten().for_each(|entry| give_to(&entry.path(), id));
    }
}

/// A file system that somebody has mounted in a team's bundle is not asked, or a start would wait for it past any signal.
fn mounts_in_a_teams_bundle(ctx: &Ctx) {
    if !std::path::Path::new("/dev/fuse").exists() {
        skip!("there is no /dev/fuse");
    }
    store_with_an_image(ctx);
    let bundle = fs::read_dir(ctx.path("images/bundles")).unwrap().next().unwrap().unwrap().path();
    let (by_name, by_path) = (["run", "--pull", "never", "x.org/x:1"], ["run", bundle.to_str().unwrap()]);
    for dir in bundle.ancestors().take(3) {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o775)).unwrap();
    }
    fs::create_dir(bundle.join("rootfs/there")).unwrap();
    for file in ["rootfs/there/x", "rootfs/file", "records"] {
        fs::write(bundle.join(file), "").unwrap();
    }
    let run_in = |cwd: &Path, place: &Path, words: &[&str]| {
        let mut job = rt(ctx, words).cwd(cwd).spawn();
        eventually(&format!("{words:?} with {} mounted", place.display()), || job.child.try_wait().unwrap());
        job.wait()
    };
    let run = |place: &Path, words: &[&str]| run_in(&ctx.dir, place, words);
    fs::create_dir(ctx.path("context")).unwrap();
    let containerfile = ctx.path("Containerfile").to_str().unwrap().to_owned();
    fs::write(&containerfile, "FROM x.org/x:1\nRUN [\"/probe\"]\n").unwrap();
    let copies = ["COPY --from=x.org/x:1 /there/x /", "COPY --from=x.org/x:1 / /all/"];
    for (n, copy) in copies.iter().enumerate() {
        fs::write(ctx.path(&format!("copy{n}")), format!("FROM scratch\n{copy}\n")).unwrap();
    }
    let mut places = vec![bundle.clone(), bundle.parent().unwrap().to_owned()];
    places.push(ctx.path("images"));
    let inside = ["rootfs/there", "rootfs/file", "rootfs", "config.json", "image.json", "records"];
    places.extend(inside.map(|place| bundle.join(place)));
    for place in places {
        let Some(server) = sys::silent_fuse(&place, 12345, ",allow_other") else { skip!("no /dev/fuse") };
        for image in [&by_name[..], &by_path] {
            let out = run(&place, &[image, &["--", "/probe", "say hello", "ls /there"]].concat());
            // Root, who needs no namespace of users, starts it without what is mounted in the image. Nobody asks for the records.
            let is_left_out = place.starts_with(bundle.join("rootfs")) && !place.ends_with("rootfs")
                || place.ends_with("records");
            let is_left_out = is_left_out && out.code == 0 && out.stdout.contains("hello");
            assert!(out.code != 0 || is_left_out, "{}: {out:?}", place.display());
        }
        let out = run(
            &place,
            &["build", "--no-cache", "-f", &containerfile, ctx.path("context").to_str().unwrap()],
        );
        let inside = place.strip_prefix(&bundle).map(|inside| inside.to_str().unwrap());
        let why = match inside {
            Ok("rootfs/there" | "rootfs/file") => "nothing may be mounted in an image",
            Ok("rootfs" | "image.json" | "records") => "another user's file system is mounted there",
            _ => "rt: ",
        };
        assert!(out.code != 0 && out.stderr.contains(why), "{}: {out:?}", place.display());
        // Nor by a way that begins in the bundle, in which the job stood before.
        let is_there = inside.as_ref().is_ok_and(|inside| !inside.is_empty());
        let (root, above) = (bundle.join("rootfs"), bundle.parent().unwrap());
        let entry = format!("./{}", bundle.file_name().unwrap().to_str().unwrap());
        let archive = format!("oci-archive:{}", ctx.path("saved.tar").display());
        let program = ctx.path("saved.run").display().to_string();
        let is_served = matches!(inside, Ok("config.json"));
        let ways: [(&Path, &str); 4] =
            [(&bundle, "."), (&root, ".."), (above, &entry), (&ctx.dir, bundle.to_str().unwrap())];
        for (cwd, way) in ways.into_iter().filter(|(cwd, _)| is_there && *cwd != place) {
            let all: [&[&str]; 4] = [
                &["run", way, "--", "/probe", "ready"],
                &["save", "-f", way, &archive],
                &["save", "-f", "--runfile", &program, way],
                &["push", "-q", "--plain-http", way, "127.0.0.1:1/x"],
            ];
            // Else the registry that is not there is asked again and again.
            for words in all.into_iter().filter(|words| is_served || words[0] != "push") {
                let out = run_in(cwd, &place, words);
                let says = !is_served || out.stderr.contains("another user's file system is mounted there");
                assert!(says, "{words:?} in {}: {out:?}", cwd.display());
            }
        }
        let out = run(&place, &["save", "-f", "x.org/x:1", "saved.sqsh"]);
        // What is mounted in the image is left out.
        let is_left_out = matches!(inside, Ok("records" | "rootfs/there" | "rootfs/file"));
        assert_eq!(out.code == 0, is_left_out, "{}: {out:?}", place.display());
        for (n, copy) in copies.iter().enumerate() {
            let file = format!("copy{n}");
            let out = run(&place, &["build", "--no-cache", "-o", "copied.sqsh", "-f", &file, "context"]);
            let is_asked = match inside {
                Ok("records" | "config.json") => false,
                Ok("rootfs/file") => n == 1,
                _ => true,
            };
            assert_eq!(out.code != 0, is_asked, "{copy} of {}: {out:?}", place.display());
        }
        drop(server);
        sys::umount(place.to_str().unwrap(), libc::MNT_DETACH).unwrap();
    }
    for image in [&by_name[..], &by_path] {
        rt(ctx, &[image, &["--", "/probe"]].concat()).ok();
    }
    forget(ctx);
}

/// The owner of a site's store removes no image under another user's container, whatever somebody has made of the marks.
fn marks_of_somebody_else(ctx: &Ctx) {
    store_with_an_image(ctx);
    let uses = ctx.path("images/uses");
    let mark = || fs::read_dir(&uses).unwrap().next().unwrap().unwrap().path();
    give_to(&ctx.path("images"), 12345);
    let chmod = |bits| fs::set_permissions(&uses, fs::Permissions::from_mode(bits)).unwrap();
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(90 * 86_400);
    let as_owner = |words: &[&str]| {
        let mut command = std::process::Command::new(ctx.rt_path());
        command.args(words).current_dir("/").env_clear().env("PATH", path(ctx));
        command.env("RT_IMAGES", ctx.path("images")).uid(12345).gid(12345);
        let out = command.output().unwrap();
        (out.status.success(), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    let there = || fs::read_dir(ctx.path("images/bundles")).unwrap().count();
    // The mark that the caller would make is another user's, who can give it any time. 1777, writable by all.
    chmod(0o1777);
    let planted = mark();
    fs::set_permissions(&planted, fs::Permissions::from_mode(0o666)).unwrap();
    for _ in 0..3 {
        rt(ctx, &["run", "x.org/x:1", "--", "/probe", "ready"]).ok();
    }
    fs::File::open(&planted).unwrap().set_modified(old).unwrap();
    assert_eq!(fs::read_dir(&uses).unwrap().count(), 2, "one of one's own beside it, however many starts");
    let out = as_owner(&["prune", "--all", "--older", "1d"]);
    assert_eq!((out.0, there()), (true, 1), "{out:?}");
    // The mark of somebody whose process root would not see behind a /proc that hides it.
    let some_time = std::time::SystemTime::now() - std::time::Duration::from_secs(86_400);
    give_to(&ctx.path("images"), 0);
    for file in fs::read_dir(&uses).unwrap().flatten() {
        fs::File::open(file.path()).unwrap().set_modified(some_time).unwrap();
        give_to(&file.path(), 12345);
    }
    let blind =
        ctx.command("/usr/bin/setpriv").args(["--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"]);
    let blind = blind.arg(ctx.rt_path()).args(["prune", "--all"]).env("PATH", path(ctx));
    let out = blind.env("RT_IMAGES", ctx.path("images")).by_tests().run();
    assert_eq!((out.code, there()), (0, 1), "{out:?}");
    give_to(&ctx.path("images"), 12345);
    // Nobody can mark: who does not see all processes removes nothing.
    for file in fs::read_dir(&uses).unwrap().flatten() {
        fs::remove_file(file.path()).unwrap();
    }
    chmod(0o755);
    let mut job = rt(ctx, &["run", "x.org/x:1", "--", "/probe", "say ready", "pause"]).spawn();
    job.line(0);
    let out = as_owner(&["prune", "--all"]);
    assert_eq!(there(), 1, "{out:?}");
    sys::kill(job.pid(), libc::SIGKILL).unwrap();
    job.wait();
    let out = as_owner(&["prune", "--all"]);
    assert!(out.1.contains("chmod 1777"), "{out:?}");
    assert_eq!(there(), 1);
    give_to(&ctx.path("images"), ctx.caller.host_ids().0);
    forget(ctx);
}

/// Another user has been first to make the mark that the caller would make, and has mounted a file system on it.
fn a_mark_below_a_mount_of_somebodys(ctx: &Ctx) {
    if !Caller::tests_are_root() || !std::path::Path::new("/dev/fuse").exists() {
        skip!("the tests do not run as root, or there is no /dev/fuse");
    }
    store_with_an_image(ctx);
    give_to(&ctx.path("images"), 0);
    let (uses, bundles) = (ctx.path("images/uses"), ctx.path("images/bundles"));
    fs::set_permissions(&uses, fs::Permissions::from_mode(0o1777)).unwrap();
    let planted = fs::read_dir(&uses).unwrap().next().unwrap().unwrap().path();
    std::os::unix::fs::chown(&planted, Some(12345), Some(12345)).unwrap();
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(90 * 86_400);
    let prune = || {
        let words = ["prune", "--all"];
        rt(ctx, &words).by_tests().run()
    };
    for options in ["", ",allow_other", "gone"] {
        let server = sys::silent_fuse(&planted, 12345, options.trim_start_matches("gone"));
        let server = server.filter(|_| options != "gone");
        let start = std::time::Instant::now();
        for _ in 0..2 {
            rt(ctx, &["run", "x.org/x:1", "--", "/probe", "ready"]).ok();
        }
        assert_eq!(fs::read_dir(&uses).unwrap().count(), 2, "{options}: one of one's own beside it");
        // As on a node where the container ran long ago, or in another PID namespace: only the mark is left.
        for file in fs::read_dir(&uses).unwrap().flatten().filter(|file| file.path() != planted) {
            fs::File::open(file.path()).unwrap().set_modified(old).unwrap();
        }
        let out = prune();
        assert_eq!((out.code, fs::read_dir(&bundles).unwrap().count()), (0, 1), "{options}: {out:?}");
        assert!(start.elapsed() < std::time::Duration::from_secs(20), "{options}: {:?}", start.elapsed());
        drop(server);
        sys::umount(planted.to_str().unwrap(), libc::MNT_DETACH).unwrap();
    }
    forget(ctx);
}
