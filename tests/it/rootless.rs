//! What "rootless" does to a config that was made for root: each row of the design's table, and `--strict`.

use crate::fixture::{Bundle, Ctx, errno};
use crate::runner::{skip, tests};
use serde_json::{Value, json};
use std::fs;

tests! {
    USER {
        runs_a_config_made_for_root, user_namespace_is_added, several_ranges_become_one, process_user_is_the_caller,
        additional_groups_are_left_out, devices_are_bound, mount_options_of_foreign_ids_are_left_out,
        refused_mounts_become_binds, locked_flags_are_kept, cgroups_are_not_applied, annotation_chooses_the_id,
        flag_beats_the_annotation, strict_refuses_each_adaptation, strict_takes_what_fits, every_adaptation_is_in_the_log,
        files_have_the_callers_ids, subuids_are_not_looked_for, exec_uses_the_same_user, an_unprivileged_pod,
    }
    NESTED { inside_a_users_namespace_the_config_rules, nested_devices_and_gid5, nested_additional_groups,
        nested_other_user }
    ROOT { root_is_not_adapted }
}

/// What containerd or `runc spec` makes for root.
fn for_root(ctx: &Ctx) -> Bundle {
    let bundle = ctx
        .bundle()
        .without_namespace("user")
        .unset("/linux", "uidMappings")
        .unset("/linux", "gidMappings")
        .namespace("network", None)
        .without_mount("/dev/pts")
        .mount(
            "/dev/pts",
            "devpts",
            "devpts",
            &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"],
        )
        .mount("/dev/mqueue", "mqueue", "mqueue", &["nosuid", "noexec", "nodev"])
        .mount("/sys", "sysfs", "sysfs", &["nosuid", "noexec", "nodev", "ro"])
        .mount("/sys/fs/cgroup", "cgroup", "cgroup", &["nosuid", "noexec", "nodev", "relatime", "ro"])
        .with(
            "/linux/resources",
            json!({ "devices": [{ "allow": false, "access": "rwm" }], "cpu": { "shares": 1024 } }),
        )
        .with("/linux/cgroupsPath", json!("/default/c1"))
        .with("/process/user", json!({ "uid": 0, "gid": 0, "additionalGids": [0, 1, 2, 3, 4, 6, 10] }))
        .with("/process/oomScoreAdj", json!(-998))
        .with("/process/rlimits", json!([{ "type": "RLIMIT_NOFILE", "soft": 1_048_576, "hard": 1_048_576 }]));
    let device = |path: &str, minor: u32| json!({ "path": path, "type": "c", "major": 1, "minor": minor, "fileMode": 438, "uid": 0, "gid": 0 });
    bundle.push("/linux/devices", device("/dev/zero", 5)).push("/linux/devices", device("/dev/null", 3))
}

fn runs_a_config_made_for_root(ctx: &Ctx) {
    let out = ctx.run(&for_root(ctx).ops(&[
        "id",
        "open /dev/ptmx",
        "write /dev/null x",
        "ls /sys/class/net",
        "names",
        "ls /dev/mqueue",
    ]));
    assert_eq!((out.code, out.stderr.as_str()), (0, ""));
    let all = out.all();
    assert_eq!(all[0]["uid"], json!([0, 0, 0]));
    assert_eq!(all[1..3], [Value::Null, Value::Null]);
    assert_eq!(all[4][0], "probe");
}

fn user_namespace_is_added(ctx: &Ctx) {
    let bundle =
        ctx.bundle().without_namespace("user").unset("/linux", "uidMappings").unset("/linux", "gidMappings");
    let all = ctx.run(&bundle.ops(&["cat /proc/self/uid_map", "ns"])).all();
    let (uid, _) = ctx.caller.host_ids();
    assert_eq!(numbers(&all[0]), [0, uid, 1]);
    assert_ne!(all[1]["user"], crate::fixture::namespace(std::process::id() as i32, "user"));
}

fn numbers(map: &Value) -> Vec<u32> {
    map.as_str().unwrap().split_whitespace().map(|w| w.parse().unwrap()).collect()
}

fn several_ranges_become_one(ctx: &Ctx) {
    // umoci's and podman's: the range that holds process.user is the one that is kept.
    let ranges = json!([{ "containerID": 0, "hostID": 100_000, "size": 1000 }, { "containerID": 1000, "hostID": 1000, "size": 1 }]);
    let bundle = ctx
        .bundle()
        .with("/linux/uidMappings", ranges.clone())
        .with("/linux/gidMappings", ranges)
        .with("/process/user", json!({ "uid": 1000, "gid": 1000 }));
    let all = ctx.run(&bundle.ops(&["id", "cat /proc/self/uid_map", "cat /proc/self/gid_map"])).all();
    let (uid, gid) = ctx.caller.host_ids();
    assert_eq!(all[0]["uid"], json!([1000, 1000, 1000]));
    assert_eq!((numbers(&all[1]), numbers(&all[2])), (vec![1000, uid, 1], vec![1000, gid, 1]));
}

fn process_user_is_the_caller(ctx: &Ctx) {
    let bundle = ctx.bundle().with("/process/user", json!({ "uid": 33, "gid": 34 }));
    let all = ctx.run(&bundle.ops(&["id", "stat /probe", "write /etc/made x", "stat /etc/made"])).all();
    assert_eq!((&all[0]["uid"], &all[0]["gid"]), (&json!([33, 33, 33]), &json!([34, 34, 34])));
    assert_eq!((&all[3]["uid"], &all[3]["gid"]), (&json!(33), &json!(34)));
}

fn exec_uses_the_same_user(ctx: &Ctx) {
    let bundle = ctx.bundle().with("/process/user", json!({ "uid": 33, "gid": 34 }));
    let container = ctx.started(&bundle.ops(&["pause"]));
    assert_eq!(container.exec(&["id"]).all()[0]["uid"], json!([33, 33, 33]));
    // conmon's exec of a config made for root.
    let process = json!({ "args": ["/probe", "id"], "cwd": "/", "env": [], "user": { "uid": 0, "gid": 0, "additionalGids": [7] } });
    let file = ctx.file("process.json", &process.to_string());
    let out = ctx.rt(["exec", "--process"]).arg(file).arg(&container.id).run();
    if out.code == 0 {
        assert_eq!(out.line(0)["uid"][0], 33, "the one id there is");
    } else {
        out.failed(&["0"]);
    }
}

fn additional_groups_are_left_out(ctx: &Ctx) {
    let bundle = ctx.bundle().with("/process/user/additionalGids", json!([10, 20]));
    let out = ctx.run(&bundle.ops(&["id"]));
    assert_eq!((out.code, out.stderr.as_str()), (0, ""));
    assert!(!out.line(0)["groups"].as_array().unwrap().contains(&json!(10)));
}

fn devices_are_bound(ctx: &Ctx) {
    let device = json!({ "path": "/dev/zero", "type": "c", "major": 1, "minor": 5, "fileMode": 0o600, "uid": 7, "gid": 8 });
    let all = ctx
        .run(&ctx.bundle().push("/linux/devices", device).ops(&["stat /dev/zero", "head /dev/zero 1"]))
        .all();
    assert_eq!((&all[0]["kind"], &all[0]["minor"], &all[1]), (&json!("char"), &json!(5), &json!("\0")));
}

fn mount_options_of_foreign_ids_are_left_out(ctx: &Ctx) {
    let bundle = ctx.bundle().mount("/mnt", "tmpfs", "tmpfs", &["uid=1000", "gid=1000", "mode=750"]).mount(
        "/home",
        "tmpfs",
        "tmpfs",
        &["uid=0", "gid=0"],
    );
    let all = ctx.run(&bundle.ops(&["stat /mnt", "stat /home"])).all();
    assert_eq!((&all[0]["uid"], &all[0]["mode"], &all[1]["uid"]), (&json!(0), &json!(0o750), &json!(0)));
}

fn refused_mounts_become_binds(ctx: &Ctx) {
    // Host network, IPC and pids, as `docker run --net=host --ipc=host --pid=host` sends them.
    let bundle = ctx
        .bundle()
        .without_namespace("pid")
        .without_namespace("ipc")
        .mount("/sys", "sysfs", "sysfs", &["nosuid", "noexec", "nodev", "ro"])
        .mount("/dev/mqueue", "mqueue", "mqueue", &["nosuid", "noexec", "nodev"]);
    let out = ctx.run(&bundle.ops(&[
        "ls /sys/class/net",
        "stat /proc/self",
        "write /sys/kernel/mm/x y",
        "mkdir /sys/fs/cgroup/x",
        "ls /dev/mqueue",
    ]));
    let all = out.all();
    assert!(all[0].is_array() && all[1]["kind"] == "dir", "{out:?}");
    for denied in &all[2..4] {
        assert!(
            [libc::EROFS, libc::EACCES, libc::EPERM, libc::ENOENT].map(errno).contains(denied),
            "{denied}"
        );
    }
}

fn locked_flags_are_kept(ctx: &Ctx) {
    // A bind of something that is nosuid,nodev,noexec on the host, asked for with none of these.
    let bundle = ctx.bundle().mount("/mnt", "bind", "/proc/sys", &["bind", "ro"]);
    let out = ctx.run(&bundle.ops(&["ls /mnt", "write /mnt/kernel/domainname x"]));
    assert!(out.all()[0].is_array(), "{out:?}");
    assert_ne!(out.line(1), Value::Null);
}

fn cgroups_are_not_applied(ctx: &Ctx) {
    let bundle = for_root(ctx).ops(&["cat /proc/self/cgroup"]);
    let own = fs::read_to_string("/proc/self/cgroup").unwrap();
    assert_eq!(ctx.run(&bundle).all()[0], own);
}

fn annotation_chooses_the_id(ctx: &Ctx) {
    let (uid, gid) = ctx.caller.host_ids();
    for (word, expected) in [("caller", (uid, gid)), ("root", (0, 0)), ("config", (33, 34))] {
        let bundle = ctx
            .bundle()
            .with("/process/user", json!({ "uid": 33, "gid": 34 }))
            .with("/annotations", json!({ "rt.user": word }));
        let id = ctx.run(&bundle.ops(&["id"])).all().remove(0);
        assert_eq!((&id["uid"][0], &id["gid"][0]), (&json!(expected.0), &json!(expected.1)), "{word}");
    }
}

fn flag_beats_the_annotation(ctx: &Ctx) {
    let (uid, _) = ctx.caller.host_ids();
    let bundle = ctx
        .bundle()
        .with("/process/user", json!({ "uid": 33, "gid": 34 }))
        .with("/annotations", json!({ "rt.user": "root" }))
        .ops(&["id"]);
    for (word, expected) in [("caller", uid), ("root", 0), ("config", 33)] {
        let out = ctx.run_with(&bundle, &["--user-map", word]);
        assert_eq!((out.code, &out.line(0)["uid"][0]), (0, &json!(expected)), "{word}");
    }
    let out = ctx.run_with(&bundle, &["--user-map=nonsense"]);
    out.failed(&["nonsense"]);
}

fn strict_refuses_each_adaptation(ctx: &Ctx) {
    let user = json!([{ "containerID": 0, "hostID": ctx.caller.host_ids().0, "size": 1 }, { "containerID": 1, "hostID": 100_000, "size": 10 }]);
    let cases: Vec<(&str, Bundle)> = vec![
        (
            "no user namespace",
            ctx.bundle()
                .without_namespace("user")
                .unset("/linux", "uidMappings")
                .unset("/linux", "gidMappings"),
        ),
        ("several ranges", ctx.bundle().with("/linux/uidMappings", user)),
        ("another user", ctx.bundle().with("/process/user", json!({ "uid": 33, "gid": 34 }))),
        ("groups", ctx.bundle().with("/process/user/additionalGids", json!([10]))),
        (
            "device",
            ctx.bundle()
                .push("/linux/devices", json!({ "path": "/dev/zero", "type": "c", "major": 1, "minor": 5 })),
        ),
        (
            "gid of devpts",
            ctx.bundle().without_mount("/dev/pts").mount(
                "/dev/pts",
                "devpts",
                "devpts",
                &["newinstance", "gid=5"],
            ),
        ),
        ("sysfs of the host", ctx.bundle().mount("/sys", "sysfs", "sysfs", &["ro"])),
        ("resources", ctx.bundle().with("/linux/resources", json!({ "memory": { "limit": 1_000_000 } }))),
        ("cgroupsPath", ctx.bundle().with("/linux/cgroupsPath", json!("/a/b"))),
    ];
    let mut taken = Vec::new();
    for (what, bundle) in cases {
        let id = ctx.id();
        let out = ctx.rt(["create", "--strict", "--bundle"]).arg(&bundle.dir).arg(&id).run();
        if out.code == 0 {
            taken.push(what);
        } else {
            out.failed(&[]);
            assert!(!ctx.state.join(&id).exists(), "{what}: state was made");
        }
        // And without --strict it runs.
        assert_eq!(ctx.run(&bundle).code, 0, "{what}");
    }
    assert!(taken.is_empty(), "--strict took {taken:?}");
}

fn strict_takes_what_fits(ctx: &Ctx) {
    let out = ctx.run_with(&ctx.bundle().ops(&["id"]), &["--strict"]);
    assert_eq!((out.code, out.stderr.as_str()), (0, ""), "{out:?}");
}

fn every_adaptation_is_in_the_log(ctx: &Ctx) {
    let log = ctx.path("log");
    let run = ctx
        .rt(["--debug", "--log"])
        .arg(&log)
        .args(["run", "--bundle"])
        .arg(&for_root(ctx).dir)
        .arg(ctx.id());
    let out = run.before([crate::sys::Step::FileLimit(1024, 4096)]).run();
    assert_eq!((out.code, out.stderr.as_str()), (0, ""));
    let text = fs::read_to_string(&log).unwrap();
    for word in
        ["user namespace", "additionalGids", "gid=5", "resources", "cgroupsPath", "RLIMIT_NOFILE", "oom"]
    {
        assert!(text.contains(word), "{word} is not in the log:\n{text}");
    }
    assert!(!text.contains("level=error"), "{text}");
}

/// A pod as Kubernetes makes it: root with the default capabilities and no_new_privs, and a /proc of which parts are masked
/// and read-only, so that the kernel lets nobody mount a new one.
fn an_unprivileged_pod(ctx: &Ctx) {
    const DEFAULT: &str = "+chown,+dac_override,+fsetid,+fowner,+mknod,+net_raw,+setgid,+setuid,+setpcap,\
        +net_bind_service,+sys_chroot,+kill,+audit_write";
    for program in ["/usr/bin/unshare", "/usr/bin/setpriv", "/usr/bin/mount"] {
        if !std::path::Path::new(program).exists() {
            skip!("no {program}");
        }
    }
    let bundle = for_root(ctx).ops(&["exists /proc/self/status", "pid"]);
    bundle.write();
    let state = ctx.mkdir("pod-state");
    ctx.give(&state);
    let pod = |capabilities: &str| {
        let script = format!(
            "mount -t proc proc /proc && mount --bind /dev/null /proc/timer_list && mount -t tmpfs -o ro none /proc/irq \
             && mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro,nosuid,nodev,noexec /proc/sys && \
             exec setpriv --no-new-privs --bounding-set=-all,{capabilities} --inh-caps=-all {} --root {} run {}",
            ctx.rt_path().display(),
            state.display(),
            bundle.dir.display()
        );
        ctx.command("unshare").args(["-rmpf", "sh", "-c", &script]).run()
    };
    let out = pod(&format!("{DEFAULT},+setfcap"));
    assert_eq!(out.code, 0, "{out:?}");
    assert_eq!((out.line(0), out.line(1)["pid"].clone()), (json!(true), json!(1)), "{out:?}");
    // A pod that drops all of them can run as another user, but not as root.
    let out = pod(DEFAULT);
    assert!(out.code != 0 && out.stderr.contains("only with CAP_SETFCAP can root's id be mapped"), "{out:?}");
}

fn files_have_the_callers_ids(ctx: &Ctx) {
    use std::os::unix::fs::MetadataExt;
    let data = ctx.mkdir("data");
    let bundle = ctx.bundle().mount("/mnt", "bind", data.to_str().unwrap(), &["bind"]);
    let all = ctx
        .run(&bundle.ops(&[
            "write /mnt/file x",
            "mkdir /mnt/dir",
            "chown /mnt/file 0 0",
            "chown /mnt/file 1 1",
        ]))
        .all();
    assert_eq!(all[..3], [Value::Null, Value::Null, Value::Null]);
    assert_eq!(all[3], errno(libc::EINVAL), "no such id inside");
    let meta = fs::metadata(data.join("file")).unwrap();
    assert_eq!((meta.uid(), meta.gid()), ctx.caller.host_ids());
}

fn subuids_are_not_looked_for(ctx: &Ctx) {
    // No helper in PATH is called, whatever is there.
    let trap = ctx.mkdir("bin");
    let journal = ctx.file("journal", "");
    for name in ["newuidmap", "newgidmap", "getsubids", "getent"] {
        let script =
            ctx.file(&format!("bin/{name}"), &format!("#!/bin/sh\necho {name} >> {}\n", journal.display()));
        fs::set_permissions(script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    let bundle = for_root(ctx).ops(&["id"]);
    let out = ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(ctx.id()).env("PATH", &trap).run();
    assert_eq!((out.code, fs::read_to_string(journal).unwrap().as_str()), (0, ""));
}

fn inside_a_users_namespace_the_config_rules(ctx: &Ctx) {
    // rt is "root" there: no second user namespace, and the ids are the client's.
    let all = ctx.run(&ctx.bundle().ops(&["ns", "id"])).all();
    assert_eq!(all[0]["user"], crate::fixture::namespace(ctx.client_pid(), "user"));
    assert_eq!(all[1]["uid"], json!([0, 0, 0]));
}

fn nested_devices_and_gid5(ctx: &Ctx) {
    let device = json!({ "path": "/dev/zero", "type": "c", "major": 1, "minor": 5, "fileMode": 438, "uid": 0, "gid": 0 });
    let bundle = ctx.bundle().push("/linux/devices", device).without_mount("/dev/pts").mount(
        "/dev/pts",
        "devpts",
        "devpts",
        &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"],
    );
    let all = ctx.run(&bundle.ops(&["head /dev/zero 1", "open /dev/ptmx"])).all();
    assert_eq!(all, [json!("\0"), Value::Null]);
}

fn nested_additional_groups(ctx: &Ctx) {
    // buildah and podman send groups also where setgroups is denied.
    let bundle = ctx.bundle().with("/process/user/additionalGids", json!([0, 10]));
    let out = ctx.run(&bundle.ops(&["id"]));
    assert_eq!((out.code, out.stderr.as_str()), (0, ""));
}

fn nested_other_user(ctx: &Ctx) {
    // Of one id there is no other: refused, with a remedy.
    let user = json!({ "uid": 1000, "gid": 1000 });
    let texts = ["uid 1000 does not exist", "one id, 0", "/etc/subuid"];
    ctx.run(&ctx.bundle().with("/process/user", user.clone()).ops(&["id"])).failed(&texts);
    let container = ctx.started(&ctx.bundle().ops(&["pause"]));
    container.exec_with(&["--user", "1000"], &["id"]).fails(&["uid 1000", "does not exist", "/etc/subuid"]);
    container.end();
    // In a user namespace of the container's own it is the caller.
    let map = json!([{ "containerID": 0, "hostID": 0, "size": 1 }]);
    let bundle = ctx
        .bundle()
        .namespace("user", None)
        .with("/linux/uidMappings", map.clone())
        .with("/linux/gidMappings", map)
        .with("/process/user", user)
        .ops(&["id", "cat /proc/self/uid_map", "pause"]);
    let container = ctx.started(&bundle);
    assert_eq!(container.line(0)["uid"], json!([1000, 1000, 1000]));
    assert_eq!(container.line(0)["gid"], json!([1000, 1000, 1000]));
    assert_eq!(
        container.line(1).as_str().unwrap().split_whitespace().collect::<Vec<_>>(),
        ["1000", "0", "1"]
    );
    assert_eq!(container.exec(&["id"]).line(0)["uid"], json!([1000, 1000, 1000]));
    container.end();
    let out = ctx.rt(["run", "--strict", "--bundle"]).arg(&bundle.dir).arg(ctx.id());
    out.fails(&["uid mappings", "--strict"]);
}

fn root_is_not_adapted(ctx: &Ctx) {
    let all = ctx.run(&for_root(ctx).ops(&["id", "ns", "stat /dev/pts/ptmx"])).all();
    assert_eq!(all[0]["groups"], json!([0, 1, 2, 3, 4, 6, 10]));
    assert_eq!(all[1]["user"], crate::fixture::namespace(std::process::id() as i32, "user"));
}
