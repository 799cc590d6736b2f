//! The command line itself: forms of flags, logs, texts and exit codes (clients.md sections 1, 3 and 5).

use crate::fixture::Ctx;
use crate::runner::tests;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;

tests! {
    BOTH {
        global_flags_in_both_forms, log_is_one_json_object, log_appends, log_as_text, log_of_success_is_empty,
        unknown_words, version_text, help_texts, what_clients_ask_of_checkpoints, features_in_the_specs_form,
        features_needs_nothing, closed_stdout_is_no_panic, closed_stderr_is_no_panic, flags_after_the_id, flags_end_at_the_operand, a_models_config_is_no_bundles, accepted_flags,
        state_is_silent_on_stderr, adaptation_is_not_on_stderr, unwritable_log, errors_are_one_line,
        no_arguments, config_flag, log_times_parse, as_podman_calls, as_containerd_calls, as_buildah_calls,
        spec_writes_a_config, spec_host_runs, spec_does_not_overwrite, spec_host_follows_no_link, single_dash_flags, notify_socket_does_not_hang, regular_expressions_for_ids,
    }
}

fn global_flags_in_both_forms(ctx: &Ctx) {
    let bundle = ctx.bundle().ops(&["pause"]);
    let (id, other) = (ctx.id(), ctx.path("other"));
    let state = ctx.state.display().to_string();
    let rt = |flags: &[&str]| ctx.command(ctx.rt_path()).args(flags);
    // The last one wins, in either form: conmon-rs sends --root and --systemd-cgroup twice.
    let log = ctx.path("log");
    rt(&[
        "--root",
        other.to_str().unwrap(),
        &format!("--root={state}"),
        "--systemd-cgroup",
        "--systemd-cgroup",
    ])
    .args([&format!("--log={}", log.display()), "--log-format", "text", "--log-format=json", "--debug"])
    .args([
        "--rootless",
        "auto",
        "--rootless=true",
        "--cgroup-manager=cgroupfs",
        "--cgroup-manager",
        "disabled",
    ])
    .args(["create", "--bundle=/nowhere", "-b"])
    .arg(&bundle.dir)
    .args(["--no-pivot", "--no-pivot=false", "--no-new-keyring", "--preserve-fds=0", &id])
    .silent();
    assert!(!other.exists() || fs::read_dir(&other).unwrap().next().is_none());
    assert_eq!(ctx.rt(["state", &id]).ok().json()["status"], "created");
}

fn single_dash_flags(ctx: &Ctx) {
    // Go's flag package takes one dash for two; go-runc sends `-no-subreaper`.
    let id = ctx.id();
    let out = ctx.rt(["run", "-no-subreaper", "-bundle"]).arg(&ctx.bundle().dir).arg(&id).run();
    assert_eq!(out.code, 0, "{out:?}");
}

fn log_is_one_json_object(ctx: &Ctx) {
    // podman parses the whole file as one object, so a failed create appends exactly one line.
    let log = ctx.path("log.json");
    let bundle = ctx.bundle().with("/process/args", json!(["/not/there"]));
    let out = ctx
        .command(ctx.rt_path())
        .arg("--log-format=json")
        .arg("--log")
        .arg(&log)
        .arg("--root")
        .arg(&ctx.state)
        .args(["create", "--bundle"])
        .arg(&bundle.dir)
        .arg(ctx.id())
        .run();
    assert_ne!(out.code, 0);
    let text = fs::read_to_string(&log).unwrap();
    let entry: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text:?}"));
    assert!(text.ends_with('\n'));
    assert_eq!(entry["level"], "error");
    let message = entry["msg"].as_str().expect("msg");
    assert!(
        message.contains("exec: \"/not/there\": stat /not/there: no such file or directory"),
        "{message}"
    );
    assert!(crate::lifecycle::is_rfc3339(entry["time"].as_str().expect("time")), "{entry}");
    // The same text is on stderr, for clients that know no log.
    out.failed(&["exec: \"/not/there\": stat /not/there: no such file or directory"]);
}

fn log_times_parse(ctx: &Ctx) {
    let log = ctx.path("log.json");
    ctx.rt(["--log"]).arg(&log).args(["--log-format", "json", "state", "gone"]).fails(&["does not exist"]);
    let entry: Value = serde_json::from_str(&fs::read_to_string(&log).unwrap()).unwrap();
    assert_eq!(entry.as_object().unwrap().len(), 3, "{entry}");
}

fn log_appends(ctx: &Ctx) {
    let log = ctx.file("log.json", "{\"earlier\":true}\n");
    for _ in 0..2 {
        ctx.rt(["--log"]).arg(&log).args(["--log-format=json", "state", "gone"]).run();
    }
    let text = fs::read_to_string(&log).unwrap();
    let lines: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!((lines.len(), &lines[0]["earlier"]), (3, &json!(true)), "{text}");
}

fn log_as_text(ctx: &Ctx) {
    let log = ctx.path("log.txt");
    ctx.rt(["--log"]).arg(&log).args(["state", "gone"]).run();
    let text = fs::read_to_string(&log).unwrap();
    assert!(text.starts_with("time=\"") && text.contains("level=error msg=\""), "{text}");
    assert_eq!(text.lines().count(), 1);
}

fn log_of_success_is_empty(ctx: &Ctx) {
    let log = ctx.path("log.json");
    let rt = |args: &[&str]| ctx.rt(["--log"]).arg(&log).args(["--log-format=json"]).args(args);
    let id = ctx.id();
    let bundle = ctx.bundle().ops(&["pause"]);
    rt(&["create", "--bundle", bundle.dir.to_str().unwrap(), &id]).silent();
    rt(&["start", &id]).silent();
    rt(&["state", &id]).ok();
    rt(&["kill", &id, "9"]).silent();
    rt(&["delete", "--force", &id]).silent();
    let text = fs::read_to_string(&log).unwrap_or_default();
    assert!(!text.contains("\"error\""), "{text}");
    for line in text.lines() {
        serde_json::from_str::<Value>(line).expect("JSON lines");
    }
}

fn unwritable_log(ctx: &Ctx) {
    // Also where there is nothing to say: the caller will look into it.
    for command in [&["state", "gone"][..], &["list"], &["--log-level=debug", "list"]] {
        let out = ctx.rt([&["--log", "/not/there/log", "--log-format=json"], command].concat()).run();
        assert_eq!(out.code, 1, "{out:?}");
        assert_eq!(out.stderr, "rt: open log /not/there/log: no such file or directory\n", "{out:?}");
    }
    if ctx.caller == crate::client::Caller::User {
        ctx.rt(["--log", "/etc/log", "list"]).fails(&["open log /etc/log"]);
        // A file that may be written in a directory that may not.
        let dir = ctx.mkdir("closed");
        let log = ctx.file("closed/log", "");
        fs::set_permissions(&dir, std::os::unix::fs::PermissionsExt::from_mode(0o555)).unwrap();
        ctx.rt(["--log"]).arg(&log).args(["state", "gone"]).fails(&["does not exist"]);
        assert!(fs::read_to_string(&log).unwrap().contains("does not exist"));
        fs::set_permissions(&dir, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
}

fn unknown_words(ctx: &Ctx) {
    // As runc's delete takes it.
    ctx.rt(["slurm", "delete", "--force", "n.u.1.0.0"]).silent();
    ctx.rt(["frobnicate"]).fails(&["frobnicate"]);
    ctx.rt(["--frobnicate", "list"]).fails(&["frobnicate"]);
    ctx.rt(["state", "--frobnicate", "x"]).fails(&["frobnicate"]);
    ctx.rt(["state"]).fails(&[]);
    ctx.rt(["state", "a", "b"]).fails(&[]);
    ctx.rt(["create", "--bundle"]).fails(&["bundle"]);
    ctx.rt(["create", "--preserve-fds", "many", "x"]).fails(&["preserve-fds"]);
    ctx.rt(["--log-format", "xml", "list"]).fails(&["xml"]);
    ctx.rt(["list", "--format", "yaml"]).fails(&["format"]);
}

fn no_arguments(ctx: &Ctx) {
    let out = ctx.command(ctx.rt_path()).run();
    assert!(format!("{}{}", out.stdout, out.stderr).contains("help"), "{out:?}");
}

fn version_text(ctx: &Ctx) {
    for flag in ["--version", "-v"] {
        let out = ctx.command(ctx.rt_path()).arg(flag).ok();
        let mut lines = out.stdout.lines();
        let first = lines.next().unwrap();
        assert!(first.starts_with("rt version ") || ctx.foreign(), "{first}");
        assert!(out.stdout.lines().any(|l| l.starts_with("spec: 1.")), "{out:?}");
        assert!(out.stdout.lines().any(|l| l.starts_with("commit: ")), "{out:?}");
        assert_eq!(out.stderr, "");
    }
}

fn help_texts(ctx: &Ctx) {
    for args in
        [&["--help"][..], &["-h"], &["help"], &["create", "--help"], &["run", "-h"], &["exec", "--help"]]
    {
        let out = ctx.command(ctx.rt_path()).args(args).ok();
        assert!(out.stdout.lines().count() > 3 && out.stderr.is_empty(), "{out:?}");
    }
    let out = ctx.command(ctx.rt_path()).arg("--help").ok();
    for command in [
        "create", "start", "state", "kill", "delete", "run", "exec", "ps", "list", "events", "features",
        "spec", "pause", "resume", "update",
    ] {
        assert!(out.stdout.contains(command), "--help does not name {command}");
        ctx.command(ctx.rt_path()).args([command, "--help"]).ok();
    }
}

fn what_clients_ask_of_checkpoints(ctx: &Ctx) {
    // podman and CRI-O take a success for a runtime that can checkpoint.
    let out = ctx.rt(["checkpoint", "--help"]).ok();
    assert!(out.stdout.contains("--image-path"), "{out:?}");
    // And these words for one that can put a restored container into a pod, which needs a program that is process 1.
    let out = ctx.rt(["restore", "--lsm-mount-context"]).run();
    assert_ne!(out.code, 0);
    for text in ["requires an argument", "flag needs an argument"] {
        assert!(!out.stderr.contains(text) && !out.stdout.contains(text), "{out:?}");
    }
}

fn features_in_the_specs_form(ctx: &Ctx) {
    let out = ctx.command(ctx.rt_path()).arg("features").ok();
    assert_eq!(out.stderr, "");
    let features = out.json();
    assert_eq!(features["ociVersionMin"], "1.0.0");
    assert!(features["ociVersionMax"].as_str().unwrap() >= "1.2.0");
    let has = |pointer: &str, word: &str| {
        let list = features.pointer(pointer).and_then(Value::as_array).unwrap_or_else(|| panic!("{pointer}"));
        assert!(list.contains(&json!(word)), "{pointer} lacks {word}");
    };
    for hook in ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"] {
        has("/hooks", hook);
    }
    for option in ["rro", "ro", "rbind", "bind", "tmpcopyup", "nosuid", "rprivate"] {
        has("/mountOptions", option);
    }
    for namespace in ["user", "pid", "mount", "network", "ipc", "uts", "cgroup", "time"] {
        has("/linux/namespaces", namespace);
    }
    has("/linux/capabilities", "CAP_SYS_ADMIN");
    for action in ["SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO", "SCMP_ACT_NOTIFY", "SCMP_ACT_KILL_PROCESS"] {
        has("/linux/seccomp/actions", action);
    }
    has("/linux/seccomp/operators", "SCMP_CMP_MASKED_EQ");
    has("/linux/seccomp/archs", "SCMP_ARCH_X86_64");
    assert_eq!(features["linux"]["seccomp"]["enabled"], true);
    for (key, value) in features["linux"]["cgroup"].as_object().expect("linux.cgroup") {
        assert_ne!(value, true, "{key}: cgroups are never touched");
    }
    assert!(features["linux"]["mountExtensions"]["idmap"]["enabled"].is_boolean());
    assert_ne!(features["linux"]["intelRdt"]["enabled"], true);
}

fn features_needs_nothing(ctx: &Ctx) {
    let mut cmd = ctx.command(ctx.rt_path()).arg("features");
    cmd.command.env_clear();
    cmd.ok();
}

fn closed_stdout_is_no_panic(ctx: &Ctx) {
    for args in [&["features"][..], &["--version"], &["--help"], &["list"]] {
        let mut job = ctx.rt(args).piped().spawn();
        drop(job.child.stdout.take());
        let mut stderr = job.child.stderr.take().unwrap();
        let out = job.wait();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut stderr, &mut text).unwrap();
        assert!(!text.contains("panicked") && out.code != 101 && out.code != 134, "{args:?}: {text} {out:?}");
    }
}

fn closed_stderr_is_no_panic(ctx: &Ctx) {
    // podman 4 closes the read end of stderr before it reads the state from stdout.
    let container = ctx.started(&ctx.bundle().ops(&["pause"]));
    for (args, code) in [(["state", container.id.as_str()], 0), (["state", "gone"], 1)] {
        let mut job = ctx.rt(args).piped().spawn();
        drop(job.child.stderr.take());
        let mut stdout = job.child.stdout.take().unwrap();
        assert_eq!(job.wait().code, code, "{args:?}");
        let mut text = String::new();
        std::io::Read::read_to_string(&mut stdout, &mut text).unwrap();
        assert_eq!(text.contains("running"), code == 0);
    }
}

fn flags_after_the_id(ctx: &Ctx) {
    // buildah and people put some flags last.
    let container = ctx.started(&ctx.bundle().ops(&["deaf"]));
    let out = ctx.rt(["delete", &container.id, "--force"]).run();
    assert!(out.code == 0 || ctx.foreign(), "{out:?}");
}

/// As with docker and Apptainer: what follows the image or the bundle is the program's, with and without `--`.
fn flags_end_at_the_operand(ctx: &Ctx) {
    let bundle = ctx.bundle();
    for words in [&["/probe", "args", "-c", "--detach"][..], &["--", "/probe", "args", "-c", "--detach"]] {
        let out = ctx.rt(["run"]).arg(&bundle.dir).args(words).ok();
        assert_eq!(out.line(0), json!(["/probe", "args", "-c", "--detach"]), "{out:?}");
    }
    // A second `--` is the program's.
    let out = ctx.rt(["run"]).arg(&bundle.dir).args(["--", "/probe", "args", "--"]).ok();
    assert_eq!(out.line(0), json!(["/probe", "args", "--"]), "{out:?}");
}

/// A directory with somebody else's config.json, as models have it, is no bundle: neither itself nor what is run in it.
fn a_models_config_is_no_bundles(ctx: &Ctx) {
    let model = ctx.mkdir("llama");
    fs::write(model.join("config.json"), r#"{"architectures":["LlamaForCausalLM"],"root":true}"#).unwrap();
    let run = |dir: &std::path::Path, name: &str| {
        let run = ctx.rt(["run", "--pull", "never", name, "true"]).cwd(dir).env("HOME", &ctx.dir);
        run.env("RT_IMAGES", ctx.path("images")).run()
    };
    // Images are for rt-pull, which is not beside this rt.
    let out = run(&model, "nosuchimage");
    assert!(out.code != 0 && out.stderr.contains("rt-pull"), "{out:?}");
    let out = run(&ctx.dir, "llama");
    assert!(out.code != 0 && out.stderr.contains("config.json has no ociVersion and root"), "{out:?}");
}

fn accepted_flags(ctx: &Ctx) {
    let container = ctx.started(&ctx.bundle().ops(&["pause"]));
    let flags = ["--ignore-paused", "--cgroup", "/x", "--no-new-privs", "--additional-gids", "0"];
    let out = container.exec_with(&flags, &["ready"]).run();
    assert_eq!((out.code, out.stderr.as_str()), (0, ""), "{out:?}");
    let socket = ctx.path("pidfd.sock");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    ctx.give(&socket);
    let id = ctx.id();
    ctx.rt(["create", "--pidfd-socket"])
        .arg(&socket)
        .arg("--bundle")
        .arg(&ctx.bundle().dir)
        .arg(&id)
        .silent();
    let (stream, _) = listener.accept().unwrap();
    let (_, fds) = crate::sys::receive(std::os::fd::AsRawFd::as_raw_fd(&stream)).unwrap();
    assert_eq!(fds.len(), 1);
    let link = fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fds[0]))).unwrap();
    assert!(link.to_string_lossy().contains("pidfd"), "{link:?}");
}

fn state_is_silent_on_stderr(ctx: &Ctx) {
    // go-runc reads state and ps with stdout and stderr in one: a warning would break the JSON.
    let container = ctx.started(&ctx.bundle().ops(&["pause"]));
    for args in [
        &["state", &container.id][..],
        &["ps", "--format", "json", &container.id],
        &["list", "--format", "json"],
        &["events", "--stats", &container.id],
        &["--debug", "state", &container.id],
    ] {
        let out = ctx.rt(args).ok();
        out.json();
        assert_eq!(out.stderr, "", "{args:?}");
    }
}

fn adaptation_is_not_on_stderr(ctx: &Ctx) {
    // A config made for root: what was adapted is noted in the log only.
    let resources = json!({ "memory": { "limit": 1_000_000_000 }, "cpu": { "shares": 1024 }, "pids": { "limit": 100 },
        "devices": [{ "allow": false, "access": "rwm" }] });
    let bundle =
        ctx.bundle().with("/linux/resources", resources).with("/linux/cgroupsPath", json!("/test/rt"));
    let log = ctx.path("log.json");
    let out = ctx
        .rt(["--log"])
        .arg(&log)
        .args(["--log-format=json", "--debug", "run", "--bundle"])
        .arg(&bundle.ops(&["ready"]).dir)
        .arg(ctx.id())
        .run();
    assert_eq!((out.code, out.stderr.as_str()), (0, ""));
    let text = fs::read_to_string(&log).unwrap_or_default();
    assert!(text.contains("resources") && text.contains("cgroupsPath"), "{text}");
    assert!(!text.contains("\"error\""), "{text}");
}

fn errors_are_one_line(ctx: &Ctx) {
    for (pointer, value) in [
        ("/process/cwd", json!("relative")),
        ("/root/path", json!("/not/there")),
        ("/process/args", json!(["/not/there"])),
        ("/mounts", json!([{ "destination": "/x", "type": "nonsensefs", "source": "x" }])),
        ("/linux/namespaces", json!([{ "type": "mount" }, { "type": "ipc", "path": "/not/there" }])),
        ("/hooks", json!({ "createRuntime": [{ "path": "/not/there" }] })),
    ] {
        let bundle = ctx.bundle().with(pointer, value);
        let id = ctx.id();
        let out = ctx.rt(["create", "--bundle"]).arg(&bundle.dir).arg(&id).run();
        out.failed(&[]);
        assert!(!out.stderr.contains("os error"), "{out:?}");
        assert!(!out.stderr.trim_end().ends_with('.'), "{out:?}");
        ctx.rt(["state", &id]).fails(&["does not exist"]);
    }
}

fn config_flag(ctx: &Ctx) {
    let bundle = ctx.bundle().ops(&["say other"]);
    fs::rename(bundle.dir.join("config.json"), bundle.dir.join("other.json")).unwrap();
    let flag = bundle.dir.join("other.json");
    let out = ctx.rt(["run", "--config"]).arg(&flag).arg("--bundle").arg(&bundle.dir).arg(ctx.id()).ok();
    assert_eq!(out.line(0), "other");
}

fn as_podman_calls(ctx: &Ctx) {
    let (id, log) = (ctx.id(), ctx.path("oci-log"));
    let bundle = ctx.bundle().ops(&["signals"]);
    let pid_file = ctx.path("pidfile");
    let runtime_dir = ctx.mkdir("xdg");
    let rt = |args: &[&str]| {
        let mut cmd = ctx.command(ctx.rt_path()).args(args).env("XDG_RUNTIME_DIR", &runtime_dir);
        cmd.command.env_remove("PATH");
        cmd
    };
    let (bundle_dir, log, pid_file) =
        (bundle.dir.to_str().unwrap(), log.to_str().unwrap(), pid_file.to_str().unwrap());
    let head = ["--log-format=json", "--log", log, "--cgroup-manager", "disabled"];
    // conmon leaves a pipe open to podman and starts the runtime with SIGPIPE ignored.
    let steps = [crate::sys::Step::Dup(0, 5), crate::sys::Step::Ignore(libc::SIGPIPE)];
    let create = rt(&head)
        .args(["create", "--bundle", bundle_dir, "--pid-file", pid_file, "--no-pivot", &id])
        .after(steps);
    let out = create.out.clone();
    create.silent();
    rt(&["state", &id]).ok();
    rt(&["start", &id]).silent();
    crate::fixture::eventually("ready", || fs::read_to_string(&out).ok().filter(|t| t.contains("ready")));
    let process = json!({ "args": ["/probe", "fds", "exit 0"], "cwd": "/", "env": ["PATH=/bin"],
        "user": { "uid": 0, "gid": 0 }, "terminal": false });
    let file = ctx.file("exec-process", &process.to_string());
    let exec_pid = ctx.path("exec.pid");
    rt(&head)
        .args(["exec", "--pid-file", exec_pid.to_str().unwrap(), "--process"])
        .arg(&file)
        .args(["--detach", &id])
        .run();
    let pid = fs::read_to_string(&exec_pid).unwrap().parse().unwrap();
    crate::fixture::eventually("exec's end", || crate::sys::reap(pid).unwrap());
    rt(&["kill", &id, "15"]).silent();
    let pid = fs::read_to_string(pid_file).unwrap().parse().unwrap();
    assert_eq!(crate::fixture::eventually("its end", || crate::sys::reap(pid).unwrap()), 7);
    rt(&["kill", "--all", &id, "9"]).silent();
    rt(&["delete", "--force", &id]).silent();
    rt(&["delete", "--force", &id]).silent();
    rt(&["state", &id]).fails(&["does not exist"]);
    // The clean-up process of podman knows XDG_RUNTIME_DIR and nothing else.
    let _ = fs::set_permissions(&runtime_dir, fs::Permissions::from_mode(0o700));
}

fn as_containerd_calls(ctx: &Ctx) {
    let id = ctx.id();
    let bundle = ctx.bundle().ops(&["signals"]);
    let log = bundle.dir.join("log.json");
    let init_pid = bundle.dir.join("init.pid");
    let rt = |args: &[&str]| ctx.rt(["--log"]).arg(&log).args(["--log-format", "json"]).args(args);
    rt(&["create", "--bundle"])
        .arg(&bundle.dir)
        .arg("--pid-file")
        .arg(&init_pid)
        .arg(&id)
        .after([crate::sys::Step::Dup(0, 3)])
        .silent();
    rt(&["start", &id]).silent();
    let pid: i32 = fs::read_to_string(&init_pid).unwrap().parse().unwrap();
    let ps = rt(&["ps", "--format", "json", &id]).ok().json();
    assert_eq!(ps, json!([pid]));
    rt(&["pause", &id]).silent();
    assert_eq!(rt(&["state", &id]).ok().json()["status"], "paused");
    rt(&["resume", &id]).silent();
    rt(&["kill", &id, "9"]).silent();
    crate::fixture::eventually("its end", || crate::sys::reap(pid).unwrap());
    let again = rt(&["kill", &id, "9"]).run();
    again.failed(&["container not running"]);
    rt(&["delete", &id]).silent();
    rt(&["delete", &id]).fails(&["does not exist"]);
    rt(&["delete", "--force", &id]).silent();
    // The log is shared by all calls; containerd keeps the last error.
    let text = fs::read_to_string(&log).unwrap();
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert!(last["msg"].as_str().unwrap().contains("does not exist"), "{text}");
}

fn as_buildah_calls(ctx: &Ctx) {
    let id = ctx.id();
    let bundle = ctx.bundle().ops(&["signals"]);
    let pid_file = ctx.path("pid");
    let create = ctx.rt(["create", "--bundle"]).arg(&bundle.dir).arg("--pid-file").arg(&pid_file).args([
        "--no-pivot",
        "--no-new-keyring",
        &id,
    ]);
    let out = create.out.clone();
    create.silent();
    ctx.rt(["start", &id]).silent();
    crate::fixture::eventually("ready", || fs::read_to_string(&out).ok().filter(|t| t.contains("ready")));
    ctx.rt(["kill", &id]).silent();
    let pid = fs::read_to_string(&pid_file).unwrap().parse().unwrap();
    // It polls the state through the exit race.
    crate::fixture::eventually("stopped", || {
        let state = ctx.rt(["state", &id]).ok().json();
        assert!(state["status"] == "stopped" || state["status"] == "running", "{state}");
        (state["status"] == "stopped").then_some(())
    });
    crate::fixture::eventually("its end", || crate::sys::reap(pid).unwrap());
    ctx.rt(["delete", &id]).silent();
}

fn spec_writes_a_config(ctx: &Ctx) {
    let bundle = ctx.bundle();
    fs::remove_file(bundle.dir.join("config.json")).unwrap();
    let mut cmd = ctx.rt(["spec", "--bundle"]).arg(&bundle.dir);
    if ctx.foreign() && ctx.caller != crate::client::Caller::Root {
        cmd = cmd.arg("--rootless");
    }
    cmd.silent();
    let text = fs::read_to_string(bundle.dir.join("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(config["root"]["path"], "rootfs");
    config["process"]["terminal"] = json!(false);
    config["process"]["args"] = json!(["/probe", "id", "ls /dev", "status"]);
    bundle.raw(&config.to_string());
    let out = ctx.run(&bundle);
    assert_eq!((out.code, out.stderr.as_str()), (0, ""), "its own config runs");
    assert_eq!(out.line(0)["uid"][0], 0);
    for device in ["full", "null", "ptmx", "pts", "random", "shm", "tty", "urandom", "zero"] {
        assert!(out.line(1).as_array().unwrap().contains(&json!(device)), "/dev/{device} is missing");
    }
}

fn spec_does_not_overwrite(ctx: &Ctx) {
    let bundle = ctx.bundle();
    let before = fs::read_to_string(bundle.dir.join("config.json")).unwrap();
    ctx.rt(["spec", "--bundle"]).arg(&bundle.dir).fails(&["config.json"]);
    assert_eq!(fs::read_to_string(bundle.dir.join("config.json")).unwrap(), before);
}

fn spec_host_follows_no_link(ctx: &Ctx) {
    let (dir, elsewhere) = (ctx.mkdir("host"), ctx.mkdir("elsewhere"));
    std::os::unix::fs::symlink(&elsewhere, dir.join("rootfs")).unwrap();
    ctx.rt(["spec", "--host", "-b"]).arg(&dir).fails(&["rootfs", "no link"]);
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
}

fn spec_host_runs(ctx: &Ctx) {
    let dir = ctx.mkdir("host");
    ctx.rt(["spec", "--host", "-b"]).arg(&dir).silent();
    let out = ctx
        .rt(["run"])
        .arg(&dir)
        .args(["--", "/bin/sh", "-c", "id -u; cat /etc/hostname; ls /tmp | wc -l"])
        .run();
    assert_eq!(out.code, 0, "{out:?}");
    let uid = ctx.caller.host_ids().0.to_string();
    let lines: Vec<_> = out.stdout.lines().collect();
    assert_eq!(lines.first(), Some(&uid.as_str()), "{out:?}");
    assert_eq!(lines.last().map(|l| l.trim()), Some("0"), "a private /tmp: {out:?}");
    let out =
        ctx.rt(["run"]).arg(&dir).args(["--", "/bin/sh", "-c", "echo x > /usr/x || echo x > /etc/x"]).run();
    assert_ne!(out.code, 0, "the host's directories are read-only: {out:?}");
}

fn notify_socket_does_not_hang(ctx: &Ctx) {
    // runc waits for ever for a READY that never comes.
    let bundle = ctx.bundle().ops(&["env"]);
    let socket = ctx.path("notify");
    let _listener = std::os::unix::net::UnixDatagram::bind(&socket).unwrap();
    ctx.give(&socket);
    let run = ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(ctx.id());
    run.env("NOTIFY_SOCKET", &socket).env("LISTEN_FDS", "0").ok();
}

fn regular_expressions_for_ids(ctx: &Ctx) {
    // crun's --regex: act on each container whose id matches.
    let bundle = ctx.bundle().ops(&["deaf"]);
    let (a, b, c) = (ctx.started(&bundle), ctx.started(&bundle), ctx.started(&bundle));
    let number = |id: &str| id.rsplit('-').next().unwrap().to_string();
    let expression = format!(".*-({}|{})$", number(&a.id), number(&b.id));
    ctx.rt(["kill", "--regex", &expression, "KILL"]).silent();
    assert_eq!((a.reap(), b.reap()), (137, 137));
    assert_eq!(c.status(), "running");
    ctx.rt(["delete", "--regex", &expression]).silent();
    ctx.rt(["state", &a.id]).fails(&["does not exist"]);
    assert_eq!(c.status(), "running");
    ctx.rt(["delete", "--force", "--regex", "^.*$"]).silent();
    assert_eq!(c.reap(), 137);
    ctx.rt(["kill", "--regex", "([", "KILL"]).fails(&["(["]);
}
