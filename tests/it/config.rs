//! Keys of the Linux config that no other topic has: honoured, noted as not applied, or refused before
//! anything is made. And configs that are broken.

use crate::client::Caller;
use crate::fixture::Ctx;
use crate::runner::tests;
use serde_json::{Value, json};
use std::fs;

tests! {
    ALL { devices_are_made_or_bound, resources_and_cgroups_path_are_not_applied }
    BOTH {
        unknown_fields_are_ignored, broken_json_fails, wrong_types_fail, device_errors, intel_rdt,
        empty_sections, missing_linux_section, config_is_refused_before_anything_is_made, windows_and_vm_sections,
        annotations_of_clients, device_defaults_cannot_be_replaced, huge_config, deep_config, config_that_is_no_file,
        unicode_everywhere, nul_in_strings_fails, dev_stays_usable_with_many_devices,
    }
}

fn unknown_fields_are_ignored(ctx: &Ctx) {
    let bundle = ctx
        .bundle()
        .with("/future", json!({ "field": 1 }))
        .with("/process/future", json!([1, 2]))
        .with("/linux/future", json!("x"))
        .with("/root/future", json!(true))
        .with("/mounts/0/future", json!({}));
    assert_eq!(ctx.run(&bundle.ops(&["ready"])).all()[0], "ready");
}

fn broken_json_fails(ctx: &Ctx) {
    let bundle = ctx.bundle();
    for text in ["", "{", "null", "[]", "\"text\"", "{\"ociVersion\": \"1.0.0\",}", "\u{feff}{}", "{}"] {
        bundle.raw(text);
        ctx.run(&bundle).failed(&["config.json"]);
    }
    fs::write(bundle.dir.join("config.json"), b"{\"ociVersion\": \"\xff\xfe\"}").unwrap();
    ctx.run(&bundle).failed(&["config.json"]);
    // The place of the mistake is named.
    bundle.raw("{\n  \"ociVersion\": \"1.0.0\",\n  \"process\": oops\n}");
    ctx.run(&bundle).failed(&["line 3 column"]);
    // Of two values for one key readers may take either.
    bundle.raw("{\n  \"ociVersion\": \"1.0.0\",\n  \"hostname\": \"a\", \"hostname\": \"b\"\n}");
    ctx.run(&bundle).failed(&["duplicate field `hostname`", "line 3 column"]);
}

fn wrong_types_fail(ctx: &Ctx) {
    for (pointer, value) in [
        ("/process", json!([])),
        ("/process/args", json!("text")),
        ("/process/args", json!([1])),
        ("/process/env", json!({})),
        ("/process/user/uid", json!(-1)),
        ("/process/user/uid", json!(4_294_967_296u64)),
        ("/process/user/gid", json!("0")),
        ("/root/readonly", json!("yes")),
        ("/mounts", json!({})),
        ("/mounts", json!([{ "source": "no destination" }])),
        ("/linux/namespaces", json!(["pid"])),
        ("/process/rlimits", json!([{ "type": "RLIMIT_NOFILE", "soft": -1, "hard": 1 }])),
        ("/linux/sysctl", json!({ "kernel.msgmax": 1 })),
        ("/hooks", json!({ "prestart": [{}] })),
        ("/hostname", json!(7)),
    ] {
        let bundle = ctx.bundle().with(pointer, value);
        let id = ctx.id();
        ctx.rt(["create", "--bundle"]).arg(&bundle.dir).arg(&id).fails(&[]);
        assert!(!ctx.state.join(&id).exists(), "{pointer}: state was made");
    }
}

fn config_is_refused_before_anything_is_made(ctx: &Ctx) {
    // What cannot be had is said before there is a process, a mount or a hook run.
    let journal = ctx.file("journal", "");
    let note = format!("to {} say ran", journal.display());
    for (pointer, value) in [
        ("/linux/intelRdt", json!({ "closID": "x", "enableMonitoring": true })),
        ("/linux/namespaces", json!([{ "type": "mount" }, { "type": "nonsense" }])),
        ("/process/capabilities", json!("ALL")),
        ("/linux/seccomp", json!({ "defaultAction": "SCMP_ACT_NONSENSE" })),
        ("/process/rlimits", json!([{ "type": "RLIMIT_NONSENSE", "soft": 1, "hard": 1 }])),
        ("/process/cwd", json!("relative")),
        ("/process/args", json!([])),
        ("/linux/rootfsPropagation", json!("sideways")),
        ("/linux/personality", json!({ "domain": "VMS" })),
    ] {
        let bundle = ctx.bundle().hook("createRuntime", &ctx.helper(), &[&note]).with(pointer, value);
        let id = ctx.id();
        let out = ctx.rt(["create", "--bundle"]).arg(&bundle.dir).arg(&id).run();
        if pointer == "/linux/intelRdt" && out.code == 0 {
            // Not applied and noted is right, too.
            ctx.rt(["delete", "--force", &id]).silent();
            fs::write(&journal, "").unwrap();
            continue;
        }
        out.failed(&[]);
        assert_eq!(fs::read_to_string(&journal).unwrap(), "", "{pointer}: a hook ran");
        assert!(!ctx.state.join(&id).exists(), "{pointer}: state was made");
    }
}

fn devices_are_made_or_bound(ctx: &Ctx) {
    let device = |path: &str, major: u32, minor: u32, mode: u32| json!({ "path": path, "type": "c", "major": major, "minor": minor, "fileMode": mode, "uid": 0, "gid": 0 });
    let bundle = ctx
        .bundle()
        .push("/linux/devices", device("/dev/zero", 1, 5, 0o666))
        .push("/linux/devices", device("/dev/urandom", 1, 9, 0o666))
        .ops(&["stat /dev/zero", "head /dev/zero 1", "stat /dev/urandom", "open /dev/null"]);
    let all = ctx.run(&bundle).all();
    assert_eq!((&all[0]["kind"], &all[0]["major"], &all[0]["minor"]), (&json!("char"), &json!(1), &json!(5)));
    assert_eq!((&all[1], &all[2]["minor"], &all[3]), (&json!("\0"), &json!(9), &Value::Null));
    if ctx.caller == Caller::Root {
        // Under another name and mode, in a new directory: only mknod can do that.
        let bundle = ctx
            .bundle()
            .push("/linux/devices", device("/dev/sub/mine", 1, 5, 0o640))
            .push("/linux/devices", json!({ "path": "/dev/pipe", "type": "p", "fileMode": 0o600 }))
            .ops(&["stat /dev/sub/mine", "stat /dev/pipe"]);
        let all = ctx.run(&bundle).all();
        assert_eq!(
            (&all[0]["mode"], &all[0]["minor"], &all[1]["kind"]),
            (&json!(0o640), &json!(5), &json!("fifo"))
        );
    }
}

fn dev_stays_usable_with_many_devices(ctx: &Ctx) {
    let mut bundle = ctx.bundle();
    for name in ["null", "zero", "full", "random", "urandom", "tty"] {
        use std::os::unix::fs::MetadataExt;
        let rdev = fs::metadata(format!("/dev/{name}")).unwrap().rdev();
        let device = json!({ "path": format!("/dev/{name}"), "type": "c", "major": libc::major(rdev), "minor": libc::minor(rdev) });
        bundle = bundle.push("/linux/devices", device);
    }
    assert_eq!(
        ctx.run(&bundle.ops(&["write /dev/null x", "head /dev/zero 1"])).all(),
        [Value::Null, json!("\0")]
    );
}

fn device_errors(ctx: &Ctx) {
    let bundle =
        ctx.bundle().push("/linux/devices", json!({ "path": "/dev/x", "type": "q", "major": 1, "minor": 3 }));
    ctx.run(&bundle).failed(&[]);
    let bundle = ctx
        .bundle()
        .push("/linux/devices", json!({ "path": "dev/relative", "type": "c", "major": 1, "minor": 3 }));
    let out = ctx.run(&bundle.ops(&["ready"]));
    assert!(out.code == 0 || out.stderr.contains("dev/relative"), "{out:?}");
    if ctx.caller == Caller::User {
        // A device that the host has not cannot be bound.
        let bundle = ctx.bundle().push(
            "/linux/devices",
            json!({ "path": "/dev/not-there", "type": "c", "major": 250, "minor": 77 }),
        );
        ctx.run(&bundle).failed(&["/dev/not-there"]);
    }
}

fn device_defaults_cannot_be_replaced(ctx: &Ctx) {
    // A config's own /dev/null must be the null device or be refused.
    let bundle = ctx.bundle().push("/linux/devices", json!({ "path": "/dev/null", "type": "c", "major": 1, "minor": 3, "fileMode": 0o666, "uid": 0, "gid": 0 }));
    let all = ctx.run(&bundle.ops(&["stat /dev/null", "write /dev/null x"])).all();
    assert_eq!((&all[0]["minor"], &all[1]), (&json!(3), &Value::Null));
}

fn resources_and_cgroups_path_are_not_applied(ctx: &Ctx) {
    let resources = json!({
        "memory": { "limit": 4096, "swap": 4096 }, "cpu": { "quota": 1000, "period": 100_000, "cpus": "77" },
        "pids": { "limit": 1 }, "blockIO": { "weight": 10 }, "hugepageLimits": [{ "pageSize": "2MB", "limit": 1 }],
        "devices": [{ "allow": false, "access": "rwm" }], "network": { "classID": 1 }, "unified": { "memory.max": "1" },
        "rdma": { "mlx5_0": { "hcaHandles": 1 } },
    });
    let before = fs::read_to_string("/proc/self/cgroup").unwrap();
    let bundle = ctx.bundle().with("/linux/resources", resources).with("/linux/cgroupsPath", json!("/a/b/c"));
    let container = ctx.started(&bundle.ops(&["fork pause", "open /dev/null", "pause"]));
    assert_eq!(
        fs::read_to_string(format!("/proc/{}/cgroup", container.pid)).unwrap(),
        before,
        "the caller's cgroup"
    );
    assert_eq!(container.state()["status"], "running");
    container.end();
}

fn intel_rdt(ctx: &Ctx) {
    // Not applied and said so, or refused; never silently taken as done, never a mkdir in /sys/fs/resctrl.
    let log = ctx.path("log");
    let bundle = ctx.bundle().with("/linux/intelRdt", json!({ "closID": "x", "l3CacheSchema": "L3:0=f" }));
    let out =
        ctx.rt(["--debug", "--log"]).arg(&log).args(["run", "--bundle"]).arg(&bundle.dir).arg(ctx.id()).run();
    if out.code == 0 {
        let text = fs::read_to_string(&log).unwrap_or_default();
        assert!(text.contains("intelRdt"), "{text}");
    } else {
        out.failed(&["ntelRdt"]);
    }
}

fn empty_sections(ctx: &Ctx) {
    // What podman rootless sends: resources {} and cgroupsPath null.
    let bundle = ctx
        .bundle()
        .with("/linux/resources", json!({}))
        .with("/linux/cgroupsPath", json!(null))
        .with("/linux/devices", json!([]))
        .with("/linux/sysctl", json!({}))
        .with("/linux/seccomp", json!(null))
        .with("/linux/maskedPaths", json!(null))
        .with("/linux/readonlyPaths", json!([]))
        .with("/hooks", json!({}))
        .with("/annotations", json!({}))
        .with("/process/rlimits", json!([]))
        .with("/process/user/additionalGids", json!([]))
        .with("/process/oomScoreAdj", json!(null));
    let out = ctx.run(&bundle.ops(&["ready"]));
    assert_eq!((out.code, out.stderr.as_str()), (0, ""));
}

fn missing_linux_section(ctx: &Ctx) {
    // No namespaces at all: an error or a container in a mount namespace; never the host's root.
    let bundle =
        ctx.bundle().unset("", "linux").unset("", "hostname").ops(&["exists /probe", "exists /usr/bin/env"]);
    let out = ctx.run(&bundle);
    if out.code == 0 {
        assert_eq!((out.line(0), out.line(1)), (json!(true), json!(false)));
    } else {
        out.failed(&[]);
    }
}

fn windows_and_vm_sections(ctx: &Ctx) {
    // Other platforms' sections are not ours.
    let bundle = ctx.bundle().with("/solaris", json!({})).with("/zos", json!({}));
    assert_eq!(ctx.run(&bundle).code, 0);
}

fn annotations_of_clients(ctx: &Ctx) {
    let annotations = json!({
        "run.oci.keep_original_groups": "1", "io.podman.annotations.autoremove": "FALSE",
        "org.systemd.property.TimeoutStopUSec": "uint64 10000000", "run.oci.handler": "krun",
        "io.kubernetes.cri-o.TTY": "false", "org.opencontainers.image.stopSignal": "15",
    });
    let out = ctx.run(&ctx.bundle().with("/annotations", annotations).ops(&["ready"]));
    assert_eq!((out.code, out.stderr.as_str()), (0, ""));
    ctx.run(&ctx.bundle().with("/annotations", json!({ "rt.user": "nonsense" }))).failed(&["nonsense"]);
}

fn huge_config(ctx: &Ctx) {
    let env: Vec<String> = (0..5000).map(|n| format!("VARIABLE_{n}={}", "x".repeat(20))).collect();
    let bundle = ctx
        .bundle()
        .with("/process/env", json!(env))
        .with("/annotations", json!({ "big": "y".repeat(1_000_000) }));
    let out = ctx.run(&bundle.ops(&["env"]));
    assert_eq!(out.all()[0]["VARIABLE_4999"], "x".repeat(20));
}

fn deep_config(ctx: &Ctx) {
    let bundle = ctx.bundle();
    bundle.raw(&format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)));
    ctx.run(&bundle).failed(&["config.json"]);
    bundle.raw(&format!("{{\"a\":{}1{}}}", "{\"a\":".repeat(50_000), "}".repeat(50_000)));
    ctx.run(&bundle).failed(&["config.json"]);
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for (section, key) in [
        ("linux", "seccomp"),
        ("linux", "intelRdt"),
        ("linux", "resources"),
        ("hooks", "poststop"),
        ("process", "args"),
        ("process", "scheduler"),
    ] {
        bundle.raw(&format!("{{\"ociVersion\":\"1.0.0\",\"{section}\":{{\"{key}\":{deep}}}}}"));
        // Refused while it is read, not for what the config lacks.
        ctx.run(&bundle).failed(&["config.json", "line 1 column"]);
    }
    // What nobody reads is passed over, also where the stack would not do for it.
    let bundle = ctx.bundle().ops(&["ready"]);
    let text = serde_json::to_string(&bundle.config).unwrap();
    bundle.raw(&text.replacen('{', &format!("{{\"unknown\":{deep},"), 1));
    assert_eq!(ctx.run(&bundle).all()[0], "ready");
    let container = ctx.started(&ctx.bundle().ops(&["pause"]));
    let file = ctx.file("process.json", &format!("{{\"cwd\":\"/\",\"user\":{deep}}}"));
    let out = ctx.rt(["exec", "--process"]).arg(&file).arg(&container.id).run();
    assert!(out.code == 255 && out.stderr.contains("process.json"), "{out:?}");
    ctx.rt(["delete", "--force", &container.id]).silent();
}

fn config_that_is_no_file(ctx: &Ctx) {
    let bundle = ctx.bundle();
    let path = bundle.dir.join("config.json");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    ctx.run(&bundle).failed(&["is a directory"]);
    fs::remove_dir(&path).unwrap();
    crate::sys::mkfifo(&path).unwrap();
    ctx.give(&path);
    ctx.run(&bundle).failed(&["config.json", "not a file"]);
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/dev/null", &path).unwrap();
    ctx.run(&bundle).failed(&["config.json"]);
}

fn unicode_everywhere(ctx: &Ctx) {
    let bundle = ctx.bundle();
    bundle.mkdir("dönêr 日本");
    let bundle =
        bundle.with("/process/cwd", json!("/dönêr 日本")).with("/process/env", json!(["ÄÖ=ü€", "PATH=/bin"]));
    let all = ctx.run(&bundle.ops(&["cwd", "env"])).all();
    assert_eq!((&all[0], &all[1]["ÄÖ"]), (&json!("/dönêr 日本"), &json!("ü€")));
}

fn nul_in_strings_fails(ctx: &Ctx) {
    for (pointer, value) in [
        ("/process/args", json!(["/probe", "a\u{0}b"])),
        ("/process/env", json!(["A=\u{0}"])),
        ("/process/cwd", json!("/\u{0}")),
        ("/root/path", json!("rootfs\u{0}")),
        ("/hostname", json!("a\u{0}b")),
        ("/mounts/0/destination", json!("/proc\u{0}/x")),
        ("/mounts/0/source", json!("proc\u{0}")),
    ] {
        let out = ctx.run(&ctx.bundle().with(pointer, value));
        assert_ne!(out.code, 0, "{pointer}: {out:?}");
        assert!(out.code != 101 && out.code != 134 && !out.stderr.contains("panicked"), "{pointer}: {out:?}");
    }
}
