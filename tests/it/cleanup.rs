//! Nothing is left: after kill -9 at any point, after every failing step, after many containers. Every other
//! test checks the same at its end.

use crate::client::Caller;
use crate::fixture::{Bundle, Ctx, children, eventually};
use crate::runner::{skip, tests};
use crate::sys;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::time::Duration;

tests! {
    ALL { killed_at_any_moment_of_create, killed_at_any_moment_of_run, sixty_four_at_once, thousand_one_after_another }
    BOTH {
        killed_at_any_system_call, every_failing_step, init_killed_during_create, pid_file_that_cannot_be_written, pid_file_goes_through_no_link,
        state_root_that_cannot_be_written, killed_exec_leaves_nothing, interrupted_by_a_signal, failed_start_leaves_nothing,
        delete_in_a_loop_with_create, killed_during_hooks,
    }
}

/// A bundle whose start takes many steps: hooks, missing mount points, a covered root.
fn elaborate(ctx: &Ctx) -> Bundle {
    let data = ctx.mkdir("data");
    ctx.bundle()
        .namespace("network", None)
        .mount("/deep/er/missing", "bind", data.to_str().unwrap(), &["bind"])
        .mount("/sys", "sysfs", "sysfs", &["ro"])
        .hook("createRuntime", &ctx.helper(), &["ready"])
        .hook("createContainer", &ctx.helper(), &["ready"])
}

/// No descendant is left, and once `delete --force` has been called, no state.
fn nothing_left(ctx: &Ctx, id: &str, what: &str) {
    ctx.rt(["delete", "--force", id]).silent();
    assert!(!ctx.state.join(id).exists(), "{what}: state is left");
    wait_for_the_end_of_all(ctx, what);
}

/// Reaps what was left to this process until there is nothing more.
fn wait_for_the_end_of_all(ctx: &Ctx, what: &str) {
    let client = ctx.client_pid() as u32;
    eventually(&format!("{what}: the end of every process"), || {
        let mut left = children(std::process::id());
        left.retain(|pid| *pid != client && !matches!(sys::reap(*pid as i32), Ok(Some(_)) | Err(_)));
        left.is_empty().then_some(())
    });
}

fn killed_at_any_moment_of_create(ctx: &Ctx) {
    let bundle = elaborate(ctx);
    let before = bundle.tree();
    for n in 0..40u64 {
        let id = ctx.id();
        let mut job = ctx.rt(["create", "--bundle"]).arg(&bundle.dir).arg(&id).spawn();
        // Not a wait for something: the moment of the attack.
        std::thread::sleep(Duration::from_micros(n * 400));
        let _ = job.child.kill();
        job.wait();
        nothing_left(ctx, &id, &format!("create killed after {} us", n * 400));
    }
    assert_eq!(bundle.tree(), before, "mount points are left in the rootfs");
}

fn killed_at_any_moment_of_run(ctx: &Ctx) {
    for (way, bundle) in [elaborate(ctx), crate::run::in_place(ctx.bundle())].into_iter().enumerate() {
        let bundle = bundle.ops(&["deaf"]);
        let before = bundle.tree();
        for n in 0..20u64 {
            let id = ctx.id();
            let mut job = ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(&id).spawn();
            std::thread::sleep(Duration::from_micros(n * 900));
            let _ = job.child.kill();
            job.wait();
            // The container of a killed run ends by itself; only its state waits for delete.
            let what = format!("run {way} killed after {} us", n * 900);
            wait_for_the_end_of_all(ctx, &what);
            nothing_left(ctx, &id, &what);
        }
        assert_eq!(bundle.tree(), before, "mount points are left in the rootfs");
    }
}

fn killed_at_any_system_call(ctx: &Ctx) {
    if !Path::new("/usr/bin/strace").exists() {
        skip!("no strace");
    }
    // The runtime's own process (not its children) is killed as it enters its nth system call.
    let bundle = elaborate(ctx);
    let before = bundle.tree();
    let mut n = 1;
    let mut killed = 0;
    loop {
        let id = ctx.id();
        let inject = format!("inject=all:signal=KILL:when={n}");
        let cmd =
            ctx.command("/usr/bin/strace").args(["-qq", "-o", "/dev/null", "-e", "trace=all", "-e", &inject]);
        let out = cmd
            .arg(ctx.rt_path())
            .arg("--root")
            .arg(&ctx.state)
            .args(["create", "--bundle"])
            .arg(&bundle.dir)
            .arg(&id)
            .run();
        nothing_left(ctx, &id, &format!("create killed at system call {n}"));
        if out.code == 0 {
            break;
        }
        killed += 1;
        n += if ctx.caller == Caller::User { 2 } else { 4 };
        assert!(n < 5000, "create makes no end of system calls: {out:?}");
    }
    assert!(killed > 3, "killed {killed} times only");
    assert_eq!(bundle.tree(), before, "mount points are left in the rootfs");
}

fn every_failing_step(ctx: &Ctx) {
    let base = || elaborate(ctx);
    let seccomp = json!({ "defaultAction": "SCMP_ACT_NONSENSE" });
    let cases: Vec<(&str, Bundle)> = vec![
        ("a broken config", base().with("/process", json!(7))),
        ("a missing root", base().with("/root/path", json!("absent"))),
        ("a bind source", base().mount("/mnt", "bind", "/not/there", &["bind"])),
        ("a file system", base().mount("/mnt", "nonsensefs", "x", &[])),
        ("a mount option", base().mount("/mnt", "tmpfs", "tmpfs", &["size=nonsense"])),
        ("a mount on a file", base().mount("/etc/passwd/x", "tmpfs", "tmpfs", &[])),
        ("a prestart hook", base().hook("prestart", &ctx.helper(), &["exit 1"])),
        ("a createRuntime hook", base().hook("createRuntime", &ctx.helper(), &["exit 1"])),
        ("a createContainer hook", base().hook("createContainer", &ctx.helper(), &["exit 1"])),
        ("a hook's program", base().hook("createContainer", Path::new("/not/there"), &[])),
        ("the command", base().with("/process/args", json!(["/not/there"]))),
        ("the working directory", base().with("/process/cwd", json!("/etc/passwd"))),
        ("a namespace path", base().namespace("ipc", Some("/not/there"))),
        ("a sysctl", base().with("/linux/sysctl", json!({ "net.not.there": "1" }))),
        ("seccomp", base().with("/linux/seccomp", seccomp)),
        (
            "a limit",
            base().with("/process/rlimits", json!([{ "type": "RLIMIT_NONSENSE", "soft": 1, "hard": 1 }])),
        ),
        (
            "a device",
            base().push(
                "/linux/devices",
                json!({ "path": "/etc/passwd/x", "type": "c", "major": 1, "minor": 3 }),
            ),
        ),
        ("the terminal", base().with("/process/terminal", json!(true))),
        ("propagation", base().with("/linux/rootfsPropagation", json!("sideways"))),
    ];
    for (what, bundle) in cases {
        let before = bundle.tree();
        for command in ["create", "run"] {
            if command == "run" && what == "the terminal" {
                continue;
            }
            let id = ctx.id();
            let out = ctx.rt([command, "--bundle"]).arg(&bundle.dir).arg(&id).run();
            assert_ne!(out.code, 0, "{what}");
            assert!(!ctx.state.join(&id).exists(), "{what}: state is left without any delete");
            nothing_left(ctx, &id, what);
        }
        assert_eq!(bundle.tree(), before, "{what}: left in the rootfs");
    }
}

fn failed_start_leaves_nothing(ctx: &Ctx) {
    let container = ctx.create(&elaborate(ctx).hook("startContainer", Path::new("/probe"), &["exit 1"]));
    ctx.rt(["start", &container.id]).run();
    container.reap();
    assert_eq!(container.status(), "stopped");
    container.delete();
}

fn init_killed_during_create(ctx: &Ctx) {
    // A hook that kills the container's first process: create fails, and does not wait for ever.
    let script = ctx.file("killer", "#!/bin/sh\nkill -9 $(sed 's/.*\"pid\": *\\([0-9]*\\).*/\\1/')\n");
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let id = ctx.id();
    let bundle = ctx.bundle().push("/hooks/createRuntime", json!({ "path": script }));
    ctx.rt(["create", "--bundle"]).arg(&bundle.dir).arg(&id).fails(&[]);
    assert!(!ctx.state.join(&id).exists());
    nothing_left(ctx, &id, "init killed");
}

fn killed_during_hooks(ctx: &Ctx) {
    for kind in ["prestart", "createRuntime", "createContainer"] {
        let journal = ctx.file("journal", "");
        let note = format!("to {} say here", journal.display());
        let bundle =
            ctx.bundle().mount(journal.to_str().unwrap(), "bind", journal.to_str().unwrap(), &["bind"]);
        let bundle = bundle.hook(kind, &ctx.helper(), &[&note, "sleep 60000"]);
        let id = ctx.id();
        let mut job = ctx.rt(["create", "--bundle"]).arg(&bundle.dir).arg(&id).spawn();
        eventually("the hook", || fs::read_to_string(&journal).ok().filter(|t| !t.is_empty()));
        job.child.kill().unwrap();
        job.wait();
        nothing_left(ctx, &id, kind);
    }
}

/// Who can write in the directory of a pid file, as a program in a container to which it is bound, makes nobody write elsewhere.
fn pid_file_goes_through_no_link(ctx: &Ctx) {
    let bundle = ctx.bundle();
    bundle.write();
    let dir = ctx.mkdir("pids");
    let profile = ctx.path("profile");
    fs::write(&profile, "mine").unwrap();
    ctx.give_link(&profile);
    for name in [".pid", "pid"] {
        std::os::unix::fs::symlink(&profile, dir.join(name)).unwrap();
        ctx.give_link(&dir.join(name));
    }
    let id = ctx.id();
    let create =
        ctx.rt(["create", "--pid-file"]).arg(dir.join("pid")).arg("--bundle").arg(&bundle.dir).arg(&id);
    create.silent();
    assert_eq!(fs::read_to_string(&profile).unwrap(), "mine");
    let pid = fs::symlink_metadata(dir.join("pid")).unwrap();
    assert!(pid.is_file(), "a file in the link's place");
    assert!(fs::read_to_string(dir.join("pid")).unwrap().parse::<i32>().is_ok());
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
    ctx.rt(["delete", "--force", &id]).silent();
}

fn pid_file_that_cannot_be_written(ctx: &Ctx) {
    let bundle = elaborate(ctx);
    for command in ["create", "run"] {
        let id = ctx.id();
        let cmd = ctx.rt([command, "--pid-file", "/not/there/pid", "--bundle"]).arg(&bundle.dir).arg(&id);
        cmd.fails(&["/not/there/pid"]);
        assert!(!ctx.state.join(&id).exists());
        nothing_left(ctx, &id, command);
    }
}

fn state_root_that_cannot_be_written(ctx: &Ctx) {
    let file = ctx.file("a-file", "");
    for root in [file.join("below"), "/proc/not-there".into(), file.clone()] {
        let cmd = ctx
            .command(ctx.rt_path())
            .arg("--root")
            .arg(&root)
            .args(["create", "--bundle"])
            .arg(&ctx.bundle().dir);
        cmd.arg("id").fails(&[root.to_str().unwrap()]);
    }
}

fn killed_exec_leaves_nothing(ctx: &Ctx) {
    let container = ctx.started(&ctx.bundle().ops(&["pause"]));
    for n in 0..20u64 {
        let mut job = container.exec_with(&[], &["deaf"]).spawn();
        std::thread::sleep(Duration::from_micros(n * 500));
        let _ = job.child.kill();
        job.wait();
    }
    assert_eq!(container.status(), "running");
    // What an exec that was killed left inside ends with the container, at the latest; a pid namespace ends
    // only once all its processes have been reaped, and those of a killed exec are this process's now.
    container.kill("KILL");
    wait_for_the_end_of_all(ctx, "killed execs");
    nothing_left(ctx, &container.id, "killed execs");
}

fn interrupted_by_a_signal(ctx: &Ctx) {
    // ^C during the start of a run.
    for n in 0..15u64 {
        let id = ctx.id();
        let bundle = elaborate(ctx).ops(&["pause"]);
        let job = ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(&id).spawn();
        std::thread::sleep(Duration::from_micros(n * 700));
        let _ = sys::kill(job.pid(), libc::SIGTERM);
        // It arrived before the program could take it: init of a pid namespace ignores it then.
        let pid = job.pid();
        let mut job = job;
        for _ in 0..200 {
            if job.child.try_wait().unwrap().is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
            let _ = sys::kill(pid, libc::SIGTERM);
        }
        job.wait();
        nothing_left(ctx, &id, "interrupted");
    }
}

fn delete_in_a_loop_with_create(ctx: &Ctx) {
    // One creates, another deletes by force, at the same time and of the same id.
    let bundle = ctx.bundle();
    let id = ctx.id();
    for _ in 0..20 {
        let create = ctx.rt(["create", "--bundle"]).arg(&bundle.dir).arg(&id).spawn();
        let delete = ctx.rt(["delete", "--force", &id]).spawn();
        assert_eq!(delete.wait().code, 0);
        create.wait();
        nothing_left(ctx, &id, "delete beside create");
    }
}

fn sixty_four_at_once(ctx: &Ctx) {
    let bundle = ctx.bundle().ops(&["pause"]);
    let ids: Vec<String> = (0..64).map(|_| ctx.id()).collect();
    let mut jobs: Vec<_> =
        ids.iter().map(|id| ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(id).spawn()).collect();
    jobs.iter_mut().for_each(|job| assert_eq!(job.line(0), "ready"));
    let list = ctx.rt(["list", "--format", "json"]).ok().json();
    let running = list.as_array().unwrap().iter().filter(|c| c["status"] == "running").count();
    assert_eq!(running, 64);
    let kills: Vec<_> = ids.iter().map(|id| ctx.rt(["kill", id, "TERM"]).spawn()).collect();
    kills.into_iter().for_each(|kill| assert_eq!(kill.wait().code, 0));
    jobs.into_iter().for_each(|job| assert_eq!(job.wait().code, 0));
    assert_eq!(ctx.rt(["list", "-q"]).ok().stdout, "");
    ids.iter().for_each(|id| assert!(!ctx.state.join(id).exists()));
}

fn thousand_one_after_another(ctx: &Ctx) {
    // The full number where it matters most; elsewhere enough to see a leak.
    let count = if ctx.caller == Caller::User { 1000 } else { 100 };
    let before = fs::read_to_string("/proc/self/mountinfo").unwrap();
    for (bundle, share) in
        [(ctx.bundle(), count / 2), (crate::run::in_place(ctx.bundle()), count - count / 2)]
    {
        // Made short: what is counted is what is left.
        let bundle = bundle.ops(&["exit 0"]);
        let cmd = || ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg("again");
        for n in 0..share {
            let out = cmd().run();
            assert_eq!(out.code, 0, "number {n}: {out:?}");
        }
    }
    ctx.rt(["delete", "--force", "again"]).silent();
    assert_eq!(ctx.rt(["list", "-q"]).ok().stdout, "");
    assert_eq!(fs::read_to_string("/proc/self/mountinfo").unwrap(), before);
    let left: Vec<Value> = fs::read_dir(&ctx.state).unwrap().flatten().map(|e| json!(e.path())).collect();
    assert!(left.len() <= 1, "{left:?}");
}
