//! Cgroups: never touched, whatever their layout; the basics run in each layout.

use crate::client::{Caller, Cgroups};
use crate::fixture::{Cmd, Ctx};
use crate::runner::{skip, tests};
use crate::sys;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

tests! {
    ALL { nothing_below_a_cgroup_mount_is_written }
    BOTH { pure_v2_view, v1_view, machines_own_view }
}

fn nothing_below_a_cgroup_mount_is_written(ctx: &Ctx) {
    if !Path::new("/usr/bin/strace").exists() {
        skip!("no strace");
    }
    let mut bundle = everything_about_cgroups(ctx);
    let mut count = 0;
    let mut traced = |args: &[&str]| {
        let file = ctx.path(&format!("trace{count}"));
        count += 1;
        let cmd = ctx.command("/usr/bin/strace").args(["-f", "-y", "-qq", "-s", "200", "-o"]).arg(&file);
        (cmd.arg(ctx.rt_path()).arg("--root").arg(&ctx.state).args(args), file)
    };
    let id = ctx.id();
    let pid_file = ctx.path("pid");
    let dir = bundle.dir.display().to_string();
    // strace follows the container's process, too, and so ends with it.
    let (create, create_trace) =
        traced(&["create", "--bundle", &dir, "--pid-file", pid_file.to_str().unwrap(), &id]);
    let create = create.spawn();
    crate::fixture::eventually("created", || {
        let state = ctx.rt(["state", &id]).run();
        (state.code == 0 && state.stdout.contains("\"created\"") && pid_file.exists()).then_some(())
    });
    let mut trace = |args: &[&str]| {
        let (cmd, file) = traced(args);
        let out = cmd.run();
        check_trace(&fs::read_to_string(&file).unwrap_or_default(), args);
        out
    };
    for args in [
        &["start", &id][..],
        &["state", &id],
        &["exec", &id, "/probe", "ready"],
        &["ps", "--format", "json", &id],
        &["events", "--stats", &id],
        &["pause", &id],
        &["resume", &id],
        &["list"],
        &["kill", "--all", &id, "KILL"],
    ] {
        let out = trace(args);
        assert_eq!(out.code, 0, "{out:?}");
    }
    create.wait();
    check_trace(&fs::read_to_string(create_trace).unwrap(), &["create"]);
    let pid: i32 = fs::read_to_string(&pid_file).unwrap().parse().unwrap();
    crate::fixture::eventually("its end", || (!matches!(sys::reap(pid), Ok(None))).then_some(()));
    let out = trace(&["delete", &id]);
    assert_eq!(out.code, 0, "{out:?}");
    let resources = ctx.file("resources.json", r#"{"memory":{"limit":1000000}}"#);
    trace(&["update", "--resources", resources.to_str().unwrap(), "gone"]);
    bundle.set("/process/args", json!(["/probe", "ready"]));
    for _ in 0..2 {
        let id = ctx.id();
        let out = trace(&["run", "--bundle", &dir, &id]);
        assert_eq!(out.code, 0, "{out:?}");
        // Without a new pid namespace it ends by exec.
        bundle = crate::run::in_place(bundle);
    }
    // Others of this machine may make theirs meanwhile.
    let is_ours = |group: &PathBuf| group.components().any(|name| name.as_os_str() == "rt-test");
    let made: Vec<PathBuf> = groups().into_iter().filter(is_ours).collect();
    assert!(made.is_empty(), "cgroups were made: {made:?}");
}

/// A bundle that asks for all that has to do with cgroups.
fn everything_about_cgroups(ctx: &Ctx) -> crate::fixture::Bundle {
    let resources = json!({ "memory": { "limit": 1_000_000_000 }, "cpu": { "shares": 1024 }, "pids": { "limit": 100 },
        "devices": [{ "allow": false, "access": "rwm" }], "unified": { "memory.high": "max" } });
    ctx.bundle()
        .namespace("cgroup", None)
        .namespace("network", None)
        .mount("/sys", "sysfs", "sysfs", &["nosuid", "noexec", "nodev", "ro"])
        .mount("/sys/fs/cgroup", "cgroup", "cgroup", &["nosuid", "noexec", "nodev", "relatime", "ro"])
        .with("/linux/resources", resources)
        .with("/linux/cgroupsPath", json!("/rt-test/group"))
        .ops(&["pause"])
}

/// No open for writing, no mkdir, no writable mount of anything in a cgroup file system.
fn check_trace(trace: &str, args: &[&str]) {
    assert!(trace.lines().count() > 5, "strace recorded nothing of {args:?}");
    for line in trace.lines() {
        // The config and the errors about it name cgroups, too: what counts are arguments that are paths.
        let about = line.contains("/sys/fs/cgroup") || line.contains("\"cgroup") || line.contains("/cgroup/");
        if !about || line.contains("config.json") {
            continue;
        }
        let call = line.split_once(' ').map_or(line, |(_, rest)| rest.trim_start());
        let opens_for_writing = call.starts_with("open") || call.starts_with("creat");
        let bad = opens_for_writing
            && ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC"].iter().any(|flag| call.contains(flag))
            || call.starts_with("creat(")
            || call.starts_with("mkdir") && call.contains("/sys/fs/cgroup") && !call.contains("rootfs")
            || (call.starts_with("write") || call.starts_with("pwrite")) && call.contains("</sys/fs/cgroup")
            || call.starts_with("unlink") && call.contains("</sys/fs/cgroup")
            || call.starts_with("mount(") && call.contains("\"cgroup") && !call.contains("MS_RDONLY")
            || call.starts_with("fsmount(") && call.contains("cgroup") && !call.contains("MOUNT_ATTR_RDONLY");
        assert!(!bad, "{args:?}: {line}");
    }
}

/// Every cgroup of the machine.
fn groups() -> Vec<PathBuf> {
    let mut all = Vec::new();
    let mut todo = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|t| t.is_dir()) {
                todo.push(entry.path());
            }
        }
        all.push(dir);
    }
    all
}

fn pure_v2_view(ctx: &Ctx) {
    basics(ctx, Some(Cgroups::V2));
}

fn v1_view(ctx: &Ctx) {
    if !Path::new("/sys/fs/cgroup/memory").is_dir() && !Path::new("/sys/fs/cgroup/pids").is_dir() {
        skip!("this machine has no cgroup v1 hierarchy");
    }
    basics(ctx, Some(Cgroups::V1));
}

fn machines_own_view(ctx: &Ctx) {
    basics(ctx, None);
}

fn basics(ctx: &Ctx, view: Option<Cgroups>) {
    if view.is_some() && !Caller::tests_are_root() {
        skip!("a private view of cgroups needs root");
    }
    let seen = |cmd: Cmd| cmd.before(view.map(Cgroups::steps).unwrap_or_default());
    let bundle = everything_about_cgroups(ctx);
    let id = ctx.id();
    let pid_file = ctx.path("pid");
    seen(ctx.rt(["create", "--pid-file"]).arg(&pid_file).arg("--bundle").arg(&bundle.dir).arg(&id)).silent();
    seen(ctx.rt(["start", &id])).silent();
    let exec = seen(ctx.rt([
        "exec",
        &id,
        "/probe",
        "cat /proc/self/mountinfo",
        "mkdir /sys/fs/cgroup/x",
        "ls /sys/fs/cgroup",
    ]))
    .run();
    let all = exec.all();
    let table = all[0].as_str().unwrap();
    let cgroups: Vec<&str> = table.lines().filter(|l| l.contains(" - cgroup")).collect();
    match view {
        Some(Cgroups::V2) => assert!(cgroups.iter().all(|l| l.contains(" - cgroup2 ")), "{cgroups:#?}"),
        Some(Cgroups::V1) => assert!(cgroups.iter().all(|l| l.contains(" - cgroup cgroup ")), "{cgroups:#?}"),
        None => {}
    }
    for line in &cgroups {
        assert!(line.split(' ').nth(5).unwrap().split(',').any(|o| o == "ro"), "{line}");
    }
    assert_ne!(all[1], Value::Null);
    let machine_has_some = fs::read_dir("/sys/fs/cgroup").is_ok_and(|mut entries| entries.next().is_some());
    assert!(all[2].as_array().is_some_and(|l| !l.is_empty() || !machine_has_some), "{}", all[2]);
    let stats = seen(ctx.rt(["events", "--stats", &id])).ok().json();
    assert!(stats["data"].is_object(), "{stats}");
    seen(ctx.rt(["pause", &id])).silent();
    seen(ctx.rt(["resume", &id])).silent();
    seen(ctx.rt(["kill", "--all", &id, "KILL"])).silent();
    let pid = fs::read_to_string(&pid_file).unwrap().parse().unwrap();
    assert_eq!(crate::fixture::eventually("its end", || sys::reap(pid).unwrap()), 137);
    seen(ctx.rt(["delete", &id])).silent();
    // run, too, in place and not.
    let bundle = ctx.bundle().ops(&["exit 3"]);
    assert_eq!(seen(ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(ctx.id())).run().code, 3);
    let bundle = crate::run::in_place(ctx.bundle()).ops(&["exit 4"]);
    assert_eq!(seen(ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(ctx.id())).run().code, 4);
}
