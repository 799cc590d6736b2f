//! State is written by `rt` alone: no container sees the directory that it lies in, nor the places where `rt` looks for one.

use crate::client::Caller;
use crate::fixture::Ctx;
use crate::runner::{skip, tests};
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

tests! {
    EVERY { state_is_hidden_in_binds }
    ROOT { state_is_hidden_at_a_second_path, later_mounts_show_no_state, a_taken_place_is_named }
    BOTH { a_bind_of_the_state_is_refused, state_is_hidden_behind_links, state_is_hidden_in_the_root }
    USER {
        root_inside_cannot_uncover_state, nobody_forges_the_default_place, the_place_of_other_calls_is_hidden, the_place_behind_a_link_is_hidden, no_state_in_a_runtime_directory_of_others, state_is_not_in_shared_memory, many_first_calls_at_once,
    }
}

/// Skips a test that mounts on the host by util-linux, where that is not installed.
macro_rules! has_mount_programs {
    () => {
        for program in ["/usr/bin/unshare", "/usr/bin/setpriv", "/usr/bin/mount"] {
            if !Path::new(program).exists() {
                skip!("no {program}");
            }
        }
    };
}

/// What a program in the container does to a state directory that it sees at `state`.
fn attack(state: &str, id: &str) -> Vec<String> {
    vec![
        format!("ls {state}"),
        format!("umount {state}"),
        format!("ls {state}"),
        format!("append {state}/{id}/state.json x"),
        format!("mkdir {state}/forged"),
        format!("rename {state} {state}.old"),
    ]
}

fn state_is_hidden_in_binds(ctx: &Ctx) {
    let dir = ctx.state.parent().unwrap().to_owned();
    let name = ctx.state.file_name().unwrap().to_str().unwrap().to_owned();
    let id = ctx.id();
    let operations = attack(&format!("/host/{name}"), &id);
    let operations: Vec<&str> = operations.iter().map(String::as_str).collect();
    let bundle =
        ctx.bundle().ops(&operations).mount("/host", "bind", dir.to_str().unwrap(), &["rbind", "rw"]);
    let out = ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(&id).ok();
    let got = out.all();
    assert_eq!((&got[0], &got[2]), (&json!([]), &json!([])), "{got:?}");
    for answer in [&got[1], &got[3], &got[4], &got[5]] {
        assert!(answer["errno"].is_number(), "{got:?}");
    }
    assert!(!ctx.state.join("forged").exists() && ctx.state.exists());
}

fn state_is_hidden_behind_links(ctx: &Ctx) {
    let dir = ctx.state.parent().unwrap().to_owned();
    let link = ctx.mkdir("links").join("link");
    std::os::unix::fs::symlink(&dir, &link).unwrap();
    ctx.give_link(&link);
    let name = ctx.state.file_name().unwrap().to_str().unwrap().to_owned();
    let bundle = ctx.bundle().ops(&[&format!("ls /host/{name}")]);
    let bundle = bundle.mount("/host", "bind", link.to_str().unwrap(), &["bind", "rw"]);
    assert_eq!(ctx.run(&bundle).all(), [json!([])]);
}

/// The host has mounted the directory above the state a second time, and that is bound.
fn state_is_hidden_at_a_second_path(ctx: &Ctx) {
    has_mount_programs!();
    let second = ctx.mkdir("shown/second");
    let name = ctx.state.file_name().unwrap().to_str().unwrap().to_owned();
    let id = ctx.id();
    let operations = attack(&format!("/host/second/{name}"), &id);
    let operations: Vec<&str> = operations.iter().map(String::as_str).collect();
    let shown = ctx.path("shown");
    let bundle =
        ctx.bundle().ops(&operations).mount("/host", "bind", shown.to_str().unwrap(), &["rbind", "rw"]);
    let mut words = vec!["-m".to_owned(), "sh".to_owned(), "-ec".to_owned()];
    words.push("mount --bind \"$1\" \"$2\"; shift 2; exec \"$@\"".to_owned());
    words.extend(["sh".to_owned(), ctx.state.parent().unwrap().display().to_string()]);
    words.push(second.display().to_string());
    let run = ctx.command("/usr/bin/unshare").args(words).arg(ctx.rt_path()).arg("--root").arg(&ctx.state);
    let got = run.args(["run", "--bundle"]).arg(&bundle.dir).arg(&id).ok().all();
    assert_eq!((&got[0], &got[2]), (&json!([]), &json!([])), "{got:?}");
    assert!(!ctx.state.join("forged").exists() && ctx.state.exists());
}

fn a_bind_of_the_state_is_refused(ctx: &Ctx) {
    assert_eq!(ctx.mkdir("state"), ctx.state);
    let bundle = ctx.bundle().mount("/state", "bind", ctx.state.to_str().unwrap(), &["rbind", "rw"]);
    ctx.run(&bundle).failed(&["state directory of rt", "shown to no container"]);
}

fn root_inside_cannot_uncover_state(ctx: &Ctx) {
    let dir = ctx.state.parent().unwrap().to_owned();
    let name = ctx.state.file_name().unwrap().to_str().unwrap().to_owned();
    let id = ctx.id();
    let mut operations = attack(&format!("/host/{name}"), &id);
    operations.push("id".to_owned());
    let operations: Vec<&str> = operations.iter().map(String::as_str).collect();
    let mut bundle =
        ctx.bundle().ops(&operations).mount("/host", "bind", dir.to_str().unwrap(), &["rbind", "rw"]);
    bundle.set("/annotations", json!({ "rt.user": "root" }));
    let bundle = bundle.unset("/process", "capabilities");
    let got = ctx.rt(["run", "--as-root", "--bundle"]).arg(&bundle.dir).arg(&id).ok().all();
    assert_eq!((&got[0], &got[2]), (&json!([]), &json!([])), "{got:?}");
    for answer in [&got[1], &got[3], &got[4], &got[5]] {
        assert!(answer["errno"].is_number(), "{got:?}");
    }
    assert_eq!(got[6]["uid"], json!([0, 0, 0]), "{got:?}");
    // What exec starts has no more.
    let bundle = bundle.ops(&["ready", "pause"]);
    let id = ctx.id();
    let run = ctx.rt(["run", "--as-root", "--detach", "--bundle"]).arg(&bundle.dir).arg(&id);
    run.ok();
    let out = ctx.rt(["exec", &id, "/probe", &format!("umount /host/{name}")]).run();
    ctx.rt(["delete", "--force", &id]).ok();
    assert!(out.line(0)["errno"].is_number(), "{out:?}");
}

fn nobody_forges_the_default_place(ctx: &Ctx) {
    let uid = Caller::User.host_ids().0;
    let place = format!("/tmp/rt-{uid}");
    // What a test of a runtime without covers has left.
    let _ = fs::remove_dir(Path::new(&place).join("forged"));
    let operations = [
        format!("mkdir /host/rt-{uid}"),
        format!("mkdir /host/rt-{uid}/forged"),
        format!("rmdir /host/rt-{uid}"),
    ];
    let operations: Vec<&str> = operations.iter().map(String::as_str).collect();
    let bundle = ctx.bundle().ops(&operations).mount("/host", "bind", "/tmp", &["rbind", "rw"]);
    let got = ctx.run(&bundle).all();
    for answer in &got {
        assert!(answer["errno"].is_number(), "{got:?}");
    }
    assert!(!Path::new(&place).join("forged").exists());
}

/// The place of calls without --root is kept free of forgeries by a call with it, too.
fn the_place_of_other_calls_is_hidden(ctx: &Ctx) {
    let runtime = ctx.mkdir("shown/runtime");
    ctx.give(&ctx.path("shown"));
    let shown = ctx.path("shown");
    let bundle = ctx.bundle().ops(&["mkdir /host/runtime/rt/forged", "mkdir /host/runtime/rt"]);
    let bundle = bundle.mount("/host", "bind", shown.to_str().unwrap(), &["rbind", "rw"]);
    let run = ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(ctx.id()).env("XDG_RUNTIME_DIR", &runtime);
    let got = run.ok().all();
    assert!(got.iter().all(|answer| answer["errno"].is_number()), "{got:?}");
    assert!(!runtime.join("rt/forged").exists());
}

/// A runtime directory whose name another user has taken, as in /tmp, holds no state: he could move it to where a container sees it.
fn no_state_in_a_runtime_directory_of_others(ctx: &Ctx) {
    if !Caller::tests_are_root() {
        skip!("only root gives files to others");
    }
    const OTHER: u32 = 12345;
    let shared = ctx.mkdir("shared");
    let theirs = ctx.mkdir("shared/theirs");
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let others_link = shared.join("link");
    let own = ctx.mkdir("own");
    std::os::unix::fs::symlink(&own, &others_link).unwrap();
    std::os::unix::fs::lchown(&others_link, Some(OTHER), Some(OTHER)).unwrap();
    std::os::unix::fs::chown(&theirs, Some(OTHER), Some(OTHER)).unwrap();
    mode(&theirs, 0o777);
    mode(&shared, 0o1777);
    let bundle = ctx.bundle().ops(&["pause"]);
    for runtime in [&theirs, &others_link] {
        let id = ctx.id();
        let rt = |args: &[&str]| ctx.command(ctx.rt_path()).args(args).env("XDG_RUNTIME_DIR", runtime);
        rt(&["create", "--bundle", bundle.dir.to_str().unwrap(), &id]).silent();
        assert_eq!(rt(&["state", &id]).ok().json()["status"], "created");
        let found = [&theirs, &own].map(|dir| dir.join("rt").exists());
        rt(&["delete", "--force", &id]).silent();
        assert_eq!(found, [false, false], "{}", runtime.display());
    }
}

/// Calls that make the state directory at the same time, as the ranks of a user who has never called `rt` before.
fn many_first_calls_at_once(ctx: &Ctx) {
    let bundle = ctx.bundle().ops(&["ready"]);
    for round in 0..20 {
        let runtime = ctx.mkdir(&format!("runtime{round}"));
        ctx.give(&runtime);
        fs::set_permissions(&runtime, fs::Permissions::from_mode(0o700)).unwrap();
        let call = |_| {
            let run = ctx.command(ctx.rt_path()).args(["run", "--bundle"]).arg(&bundle.dir).arg(ctx.id());
            run.env("XDG_RUNTIME_DIR", &runtime).spawn()
        };
        let calls: Vec<_> = (0..8).map(call).collect();
        for call in calls {
            let out = call.wait();
            assert_eq!((out.code, out.stderr.as_str()), (0, ""), "{out:?}");
        }
    }
}

/// The place of calls without --root has a link in its path.
fn the_place_behind_a_link_is_hidden(ctx: &Ctx) {
    let real = ctx.mkdir("shown/real/run");
    ctx.give(&ctx.path("shown"));
    ctx.give(&ctx.path("shown/real"));
    let link = ctx.path("shown/link");
    std::os::unix::fs::symlink(ctx.path("shown/real"), &link).unwrap();
    ctx.give_link(&link);
    let bundle = ctx.bundle().ops(&["mkdir /host/real/run/rt/forged", "mkdir /host/real/run/rt"]);
    let bundle = bundle.mount("/host", "bind", ctx.path("shown").to_str().unwrap(), &["rbind", "rw"]);
    let run = ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(ctx.id());
    let got = run.env("XDG_RUNTIME_DIR", link.join("run")).ok().all();
    assert!(got.iter().all(|answer| answer["errno"].is_number()), "{got:?}");
    assert!(!real.join("rt/forged").exists());
}

/// A user's runtime directory is mounted when that user comes, which may be after a start. A bind that shows it follows the
/// host's mounts only where somebody asks for that.
fn later_mounts_show_no_state(ctx: &Ctx) {
    has_mount_programs!();
    let runtime = ctx.mkdir("shown/runtime");
    let shown = ctx.path("shown");
    let ready = ctx.path("ready");
    let _ = fs::remove_file(&ready);
    let made = std::process::Command::new("mkfifo").arg(&ready).status();
    if !made.is_ok_and(|status| status.success()) {
        skip!("no mkfifo");
    }
    let bundle = ctx.bundle().ops(&["write /ready x", "sleep 500", "ls /host/runtime"]);
    let bundle = bundle.mount("/host", "bind", shown.to_str().unwrap(), &["rbind", "rw"]).mount(
        "/ready",
        "bind",
        ready.to_str().unwrap(),
        &["bind", "rw"],
    );
    bundle.write();
    let script = format!(
        "mount --make-rshared /; chown {uid} {state} {ready}; chmod 700 {state}; \
         setpriv --reuid {uid} --regid {uid} --clear-groups {rt} --root {state} run --bundle {bundle} {id} & \
         cat {ready} >/dev/null; \
         mount -t tmpfs late {runtime}; mkdir {runtime}/rt; wait",
        rt = ctx.rt_path().display(),
        state = ctx.mkdir("users").display(),
        uid = Caller::User.host_ids().0,
        bundle = bundle.dir.display(),
        id = ctx.id(),
        ready = ready.display(),
        runtime = runtime.display(),
    );
    let run = ctx.command("/usr/bin/unshare").args(["-m", "--propagation", "unchanged", "unshare", "-m"]);
    let run = run.args(["--propagation", "private", "sh", "-ec", &script]).env("XDG_RUNTIME_DIR", &runtime);
    assert_eq!(run.ok().all().last(), Some(&json!([])), "the late mount is seen");
}

/// Another user has made the directory in /tmp, and there is no other place.
fn a_taken_place_is_named(ctx: &Ctx) {
    has_mount_programs!();
    let bundle = ctx.bundle().ops(&["ready"]);
    bundle.write();
    let uid = Caller::User.host_ids().0;
    let script = format!(
        "exec 3<{rt}; mount --bind {bundle} /mnt; mount -t tmpfs -o mode=1777 none /tmp; mkdir /tmp/rt-{uid}; \
         [ ! -d /run/user ] || mount -t tmpfs none /run/user; \
         exec setpriv --reuid {uid} --regid {uid} --clear-groups /proc/self/fd/3 run /mnt",
        rt = ctx.rt_path().display(),
        bundle = bundle.dir.display(),
    );
    let out = ctx.command("/usr/bin/unshare").args(["-m", "sh", "-ec", &script]).run();
    out.failed(&[
        &format!("/tmp/rt-{uid}"),
        "somebody else has taken that name",
        "XDG_RUNTIME_DIR or --root",
    ]);
}

/// A root that is above the state directory shows it as a bind does.
fn state_is_hidden_in_the_root(ctx: &Ctx) {
    let mut bundle = ctx.bundle();
    let root = bundle.rootfs();
    let state = root.join("state");
    fs::create_dir(&state).unwrap();
    ctx.give(&state);
    fs::set_permissions(&state, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    bundle.set("/root/readonly", json!(false));
    let bundle = bundle.ops(&["ls /state", "mkdir /state/forged"]);
    let run = ctx.command(ctx.rt_path()).arg("--root").arg(&state).args(["run", "--bundle"]);
    let out = run.arg(&bundle.dir).arg(ctx.id()).run();
    if out.code == 0 {
        let got = out.all();
        assert_eq!(got[0], json!([]), "{got:?}");
        assert!(got[1]["errno"].is_number(), "{got:?}");
    }
    assert!(!state.join("forged").exists(), "{out:?}");
}

fn state_is_not_in_shared_memory(ctx: &Ctx) {
    // The host's /dev/shm is in every container of the hpc profile.
    let uid = Caller::User.host_ids().0;
    let forged = format!("/dev/shm/rt-{uid}");
    let bundle = ctx.bundle().ops(&[&format!("mkdir {forged}"), &format!("mkdir {forged}/forged")]);
    let bundle = bundle.without_mount("/dev/shm").mount("/dev/shm", "bind", "/dev/shm", &["rbind", "rw"]);
    ctx.run(&bundle);
    let listed = ctx.command(ctx.rt_path()).args(["list", "-q"]).ok();
    let _ = fs::remove_dir_all(&forged);
    assert!(!listed.stdout.contains("forged"), "{listed:?}");
}
