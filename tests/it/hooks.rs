//! Hooks: six kinds, their order and surroundings, what they are told, time limits, failures.

use crate::fixture::{Bundle, Ctx, eventually, namespace};
use crate::runner::tests;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

tests! {
    ALL { all_six_in_order, state_on_stdin }
    BOTH {
        create_and_start_split_them, poststart_sees_the_program, failing_create_hook_fails_create, failing_start_hooks, failing_poststart_ends_the_container,
        failing_poststop_is_a_warning,
        surroundings, timeouts, environment_and_arguments, missing_hook_program, relative_path_is_refused,
        hooks_in_their_namespaces, several_of_a_kind_in_order, prestart_sees_the_final_namespaces,
        hook_output_does_not_mix, hook_descriptors_are_clean, hooks_of_a_detached_run, timeout_kills_children,
        start_container_hooks_are_confined, exec_during_start_container_hooks, hooks_have_the_callers_umask, create_container_hook_mounts, poststop_runs_on_forced_delete, hook_before_anything_is_left,
    }
}

const KINDS: [&str; 6] =
    ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"];

/// The hooks append to this file.
fn journal(ctx: &Ctx) -> PathBuf {
    ctx.file("journal", "")
}

fn lines(journal: &Path) -> Vec<Value> {
    let text = fs::read_to_string(journal).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line:?}: {e}"))).collect()
}

/// A bundle in which hooks of the container (startContainer runs inside) reach the journal, too.
fn with_journal(ctx: &Ctx, journal: &Path) -> Bundle {
    let path = journal.to_str().unwrap();
    ctx.bundle().mount(path, "bind", path, &["bind", "rw"])
}

/// The program of a hook: startContainer's is looked up inside.
fn program(ctx: &Ctx, kind: &str) -> PathBuf {
    if kind == "startContainer" { "/probe".into() } else { ctx.helper() }
}

fn all_six_in_order(ctx: &Ctx) {
    let journal = journal(ctx);
    let note = |what: &str| format!("to {} say {what}", journal.display());
    let mut bundle = with_journal(ctx, &journal).ops(&[&note("program"), "exit 3"]);
    for kind in KINDS {
        bundle = bundle.hook(kind, &program(ctx, kind), &[&note(kind)]);
    }
    assert_eq!(ctx.run(&bundle).code, 3);
    let seen = lines(&journal);
    // poststart runs beside the program: its place is after startContainer and before poststop.
    let order: Vec<_> = seen.iter().filter(|l| **l != "poststart").cloned().collect();
    assert_eq!(
        order,
        ["prestart", "createRuntime", "createContainer", "startContainer", "program", "poststop"]
    );
    assert_eq!(seen.iter().filter(|l| **l == "poststart").count(), 1);
    assert_eq!(seen.last().unwrap(), "poststop");
}

/// As with runc since 1.5, which ran them before the program was told to start.
fn poststart_sees_the_program(ctx: &Ctx) {
    let journal = journal(ctx);
    let script = format!(
        "pid=$(sed -n 's/.*\"pid\":\\([0-9]*\\).*/\\1/p'); tr '\\000' ' ' </proc/$pid/cmdline >{}",
        journal.display()
    );
    let hook = json!({ "path": "/bin/sh", "args": ["sh", "-c", script] });
    let bundle = ctx.bundle().push("/hooks/poststart", hook).ops(&["pause"]);
    let read = || fs::read_to_string(&journal).unwrap();
    let container = ctx.create(&bundle);
    assert_eq!(read(), "");
    container.start();
    assert!(read().contains("pause"), "{:?}", read());
    container.end();
    fs::write(&journal, "").unwrap();
    let container = ctx.started(&bundle);
    eventually("the hook of rt run", || read().contains("pause").then_some(()));
    container.end();
}

fn create_and_start_split_them(ctx: &Ctx) {
    let journal = journal(ctx);
    let mut bundle = with_journal(ctx, &journal).ops(&["pause"]);
    for kind in KINDS {
        bundle = bundle.hook(kind, &program(ctx, kind), &[&format!("to {} say {kind}", journal.display())]);
    }
    let container = ctx.create(&bundle);
    assert_eq!(lines(&journal), KINDS[..3], "create runs these");
    container.start();
    container.line(0);
    let mut started = lines(&journal)[3..].to_vec();
    started.sort_by_key(|l| l.as_str().map(str::to_owned));
    assert_eq!(started, ["poststart", "startContainer"], "start returned after poststart");
    container.kill("KILL");
    container.reap();
    assert_eq!(lines(&journal).len(), 5);
    container.delete();
    assert_eq!(lines(&journal)[5..], ["poststop"]);
}

fn several_of_a_kind_in_order(ctx: &Ctx) {
    let journal = journal(ctx);
    let mut bundle = ctx.bundle();
    for n in 0..4 {
        bundle = bundle.hook(
            "createRuntime",
            &ctx.helper(),
            &["sleep 2", &format!("to {} say {n}", journal.display())],
        );
    }
    assert_eq!(ctx.run(&bundle).code, 0);
    assert_eq!(lines(&journal), ["0", "1", "2", "3"]);
}

fn state_on_stdin(ctx: &Ctx) {
    let journal = journal(ctx);
    let read = format!("to {} readall", journal.display());
    let mut bundle =
        with_journal(ctx, &journal).with("/annotations", json!({ "a.key": "value" })).ops(&["pause"]);
    for kind in KINDS {
        bundle = bundle.hook(kind, &program(ctx, kind), &[&read]);
    }
    let container = ctx.create(&bundle);
    container.start();
    container.line(0);
    container.kill("KILL");
    container.reap();
    container.delete();
    let states: Vec<Value> = lines(&journal)
        .iter()
        .map(|l| {
            let text = l["text"].as_str().unwrap();
            serde_json::from_str(text).unwrap_or_else(|e| {
                panic!("no state on stdin: {e}: {text:?}: {:?}", fs::read_to_string(&journal))
            })
        })
        .collect();
    assert_eq!(states.len(), 6);
    for (n, state) in states.iter().enumerate() {
        assert_eq!(state["id"], json!(container.id), "hook {n}");
        assert_eq!(state["bundle"], json!(bundle.dir), "hook {n}");
        assert_eq!(state["annotations"]["a.key"], "value", "hook {n}");
        assert!(state["ociVersion"].is_string(), "hook {n}");
    }
    let status = |n: usize| states[n]["status"].as_str().unwrap();
    for n in 0..3 {
        assert!(["creating", "created"].contains(&status(n)), "{}", status(n));
    }
    // The spec: creating for the create hooks, created for startContainer, running, stopped.
    assert_eq!(status(0), "creating");
    let mut later: Vec<_> = states[3..5].iter().map(|s| s["status"].as_str().unwrap()).collect();
    later.sort_unstable();
    assert_eq!(later, ["created", "running"]);
    assert_eq!(status(5), "stopped");
    for n in [0, 1, 2] {
        // createContainer runs in the container's namespaces: its pid may be the one that is seen there.
        let pid = states[n]["pid"].as_i64().expect("a pid") as i32;
        assert!(pid == container.pid || n == 2, "hook {n}: pid {pid}, not {}", container.pid);
    }
}

fn prestart_sees_the_final_namespaces(ctx: &Ctx) {
    // docker's libnetwork-setkey opens /proc/PID/ns/net of the pid in the state.
    let script = ctx.file(
        "setkey",
        "#!/bin/sh\npid=$(sed 's/.*\"pid\": *\\([0-9]*\\).*/\\1/')\nreadlink /proc/$pid/ns/net > \"$1\"\n",
    );
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let out = ctx.file("netns", "");
    let bundle = ctx.bundle().namespace("network", None).ops(&["pause"]);
    let bundle = bundle.push("/hooks/prestart", json!({ "path": script, "args": ["setkey", out] }));
    let container = ctx.create(&bundle);
    assert_eq!(fs::read_to_string(out).unwrap().trim(), namespace(container.pid, "net"));
    container.delete();
}

fn surroundings(ctx: &Ctx) {
    let journal = journal(ctx);
    let note = |what: &str| format!("to {} {what}", journal.display());
    let bundle =
        ctx.bundle().hook("createRuntime", &ctx.helper(), &[&note("cwd"), &note("env"), &note("args")]);
    let out = ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(ctx.id()).env("CALLER_SECRET", "x").run();
    assert_eq!(out.code, 0, "{out:?}");
    let seen = lines(&journal);
    assert_eq!(seen[0], json!(bundle.dir), "a hook's working directory is the bundle");
    assert!(seen[1].get("TERM").is_none(), "the container's environment does not reach hooks: {}", seen[1]);
}

fn environment_and_arguments(ctx: &Ctx) {
    let journal = journal(ctx);
    let args = ["probe", &format!("to {} env", journal.display()), &format!("to {} args", journal.display())];
    let hook = json!({ "path": ctx.helper(), "args": args, "env": ["ONLY=this", "EMPTY="] });
    let bundle = ctx.bundle().push("/hooks/createRuntime", hook);
    let out = ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(ctx.id()).env("CALLER_SECRET", "x").run();
    assert_eq!(out.code, 0, "{out:?}");
    let seen = lines(&journal);
    assert_eq!(seen[0], json!({ "ONLY": "this", "EMPTY": "" }));
    assert_eq!(seen[1], json!(args));
}

fn failing_create_hook_fails_create(ctx: &Ctx) {
    for kind in ["prestart", "createRuntime", "createContainer"] {
        let journal = journal(ctx);
        let bundle = with_journal(ctx, &journal)
            .hook(kind, &ctx.helper(), &["stderr hook-trouble", "exit 5"])
            .hook("poststop", &ctx.helper(), &[&format!("to {} say poststop", journal.display())]);
        let id = ctx.id();
        let out = ctx.rt(["create", "--bundle"]).arg(&bundle.dir).arg(&id).run();
        assert_ne!(out.code, 0, "{kind}");
        assert!(out.stderr.contains("hook") && out.stderr.contains("5"), "{kind}: {out:?}");
        ctx.rt(["state", &id]).fails(&["does not exist"]);
        // runtime.md "Lifecycle" steps 3 to 5: what they have done is undone by the poststop hooks.
        assert_eq!(lines(&journal), ["poststop"], "{kind}");
        fs::remove_file(&journal).unwrap();
    }
}

fn failing_start_hooks(ctx: &Ctx) {
    // startContainer: the program must not run.
    let bundle = ctx.bundle().hook("startContainer", Path::new("/probe"), &["exit 6"]).ops(&["say ran"]);
    let out = ctx.run(&bundle);
    assert_ne!(out.code, 0, "{out:?}");
    assert!(!out.stdout.contains("ran"), "{out:?}");
}

/// runtime.md "Lifecycle" step 9, since 1.2.1: an error, and the container is stopped and destroyed.
fn failing_poststart_ends_the_container(ctx: &Ctx) {
    let journal = journal(ctx);
    let bundle = ctx
        .bundle()
        .hook("poststart", &ctx.helper(), &["exit 6"])
        .hook("poststart", &ctx.helper(), &[&format!("to {} say second", journal.display())])
        .hook("poststop", &ctx.helper(), &[&format!("to {} say poststop", journal.display())])
        .ops(&["pause"]);
    let container = ctx.create(&bundle);
    ctx.rt(["start", &container.id]).fails(&["poststart hook #0", "6"]);
    ctx.rt(["state", &container.id]).fails(&["does not exist"]);
    container.reap();
    assert_eq!(lines(&journal), ["poststop"], "the hooks after the failing one do not run");
    fs::remove_file(&journal).unwrap();
    assert_ne!(ctx.run(&bundle).code, 0);
    assert_eq!(lines(&journal), ["poststop"]);
}

fn failing_poststop_is_a_warning(ctx: &Ctx) {
    let journal = journal(ctx);
    let bundle = ctx
        .bundle()
        .hook("poststop", &ctx.helper(), &["exit 6"])
        .hook("poststop", &ctx.helper(), &[&format!("to {} say second", journal.display())])
        .ops(&["exit 2"]);
    assert_eq!(ctx.run(&bundle).code, 2);
    assert_eq!(lines(&journal), ["second"], "the next one runs all the same");
    let container = ctx.create(&bundle);
    container.kill("KILL");
    container.reap();
    ctx.rt(["delete", &container.id]).ok();
}

fn timeouts(ctx: &Ctx) {
    let hook = json!({ "path": ctx.helper(), "args": ["probe", "sleep 60000"], "timeout": 1 });
    let bundle = ctx.bundle().push("/hooks/createRuntime", hook);
    let started = std::time::Instant::now();
    let out = ctx.run(&bundle);
    assert_ne!(out.code, 0);
    assert!(out.stderr.contains("hook"), "{out:?}");
    let took = started.elapsed().as_secs_f64();
    assert!((0.9..10.0).contains(&took), "after {took} s");
    let hook = json!({ "path": ctx.helper(), "args": ["probe", "sleep 1"], "timeout": 60 });
    let bundle = ctx.bundle().push("/hooks/createRuntime", hook);
    let started = std::time::Instant::now();
    assert_eq!(ctx.run(&bundle).code, 0);
    assert!(started.elapsed().as_secs() < 10, "a time limit is not a delay");
}

fn timeout_kills_children(ctx: &Ctx) {
    // The check at the end of every test finds the hook's child where it survives.
    let hook = json!({ "path": ctx.helper(), "args": ["probe", "fork pause", "sleep 60000"], "timeout": 1 });
    let out = ctx.run(&ctx.bundle().push("/hooks/prestart", hook));
    assert_ne!(out.code, 0, "{out:?}");
}

fn missing_hook_program(ctx: &Ctx) {
    let bundle = ctx.bundle().hook("createRuntime", Path::new("/not/there"), &[]);
    let id = ctx.id();
    ctx.rt(["create", "--bundle"])
        .arg(&bundle.dir)
        .arg(&id)
        .fails(&["/not/there", "no such file or directory"]);
    ctx.rt(["state", &id]).fails(&["does not exist"]);
}

fn relative_path_is_refused(ctx: &Ctx) {
    let bundle = ctx.bundle().hook("createRuntime", Path::new("relative"), &[]);
    ctx.run(&bundle).failed(&["relative"]);
}

fn hooks_in_their_namespaces(ctx: &Ctx) {
    let journal = journal(ctx);
    let mut bundle = with_journal(ctx, &journal).ops(&["pause"]);
    for kind in KINDS {
        bundle = bundle.hook(kind, &program(ctx, kind), &[&format!("to {} ns", journal.display())]);
    }
    let container = ctx.create(&bundle);
    container.start();
    container.line(0);
    let inside = namespace(container.pid, "mnt");
    container.kill("KILL");
    container.reap();
    container.delete();
    let seen = lines(&journal);
    let mnt: Vec<&str> = seen.iter().map(|l| l["mnt"].as_str().unwrap()).collect();
    assert_eq!(
        (mnt[0] == inside, mnt[1] == inside),
        (false, false),
        "prestart and createRuntime are the runtime's"
    );
    assert_eq!(mnt[2], inside, "createContainer is the container's");
    assert!(mnt[3..5].contains(&inside.as_str()), "startContainer is the container's");
    assert_ne!(mnt[5], inside);
}

/// As in runc and crun: a hook that runs inside has the container's environment and filter.
fn start_container_hooks_are_confined(ctx: &Ctx) {
    let filter = json!({ "defaultAction": "SCMP_ACT_ALLOW", "architectures": ["SCMP_ARCH_X86_64"], "syscalls": [
        { "names": ["memfd_create", "mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO" } ] });
    for no_new_privs in [true, false] {
        let journal = journal(ctx);
        let note = |what: &str| format!("to {} {what}", journal.display());
        let bundle = with_journal(ctx, &journal).with("/process/noNewPrivileges", json!(no_new_privs));
        let mut bundle = bundle.with("/process/env", json!(["OF=container"])).ops(&["exit 0"]);
        let notes = [note("status"), note("env"), note("mkdir /new")];
        let notes: Vec<&str> = notes.iter().map(String::as_str).collect();
        bundle = bundle.hook("startContainer", Path::new("/probe"), &notes);
        if no_new_privs {
            // Without, the filter is loaded before, and is also the runtime's.
            bundle = bundle.with("/linux/seccomp", filter.clone());
        }
        let run = ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(ctx.id()).env("CALLER_SECRET", "x");
        let out = run.run();
        assert_eq!(out.code, 0, "{out:?}");
        let seen = lines(&journal);
        assert_eq!(seen[0]["NoNewPrivs"], if no_new_privs { "1" } else { "0" }, "{}", seen[0]);
        assert_eq!(seen[1], json!({ "OF": "container", "HOME": "/root" }));
        if no_new_privs {
            assert_eq!(seen[0]["Seccomp"], "2", "the hook runs without the filter");
            assert_eq!(seen[2]["errno"], 1, "{}", seen[2]);
        }
        fs::remove_file(&journal).unwrap();
    }
}

/// Nobody looks into init while programs of the image run beside it. Root may all the same.
fn exec_during_start_container_hooks(ctx: &Ctx) {
    let shared = ctx.mkdir("shared");
    let (shown, begun, go) = (shared.to_str().unwrap(), ctx.file("shared/begun", ""), shared.join("go"));
    let ops = [format!("to {} ready", begun.display()), format!("until {}", go.display())];
    let bundle = ctx
        .bundle()
        .mount(shown, "bind", shown, &["bind", "rw"])
        .hook("startContainer", Path::new("/probe"), &[&ops[0], &ops[1]])
        .ops(&["pause"]);
    let container = ctx.create(&bundle);
    container.start();
    eventually("the hook", || (!fs::read_to_string(&begun).unwrap().is_empty()).then_some(()));
    let exec = || container.exec_with(&[], &["names"]).run();
    let out = exec();
    if out.code != 0 {
        assert!(out.stderr.contains("startContainer hooks"), "{out:?}");
    }
    fs::write(&go, "").unwrap();
    eventually("exec", || (exec().code == 0).then_some(()));
}

fn hooks_have_the_callers_umask(ctx: &Ctx) {
    let journal = journal(ctx);
    let note = format!("to {} umask", journal.display());
    let mut bundle = with_journal(ctx, &journal).ops(&["exit 0"]);
    for kind in ["createRuntime", "createContainer", "startContainer"] {
        bundle = bundle.hook(kind, &program(ctx, kind), &[&note]);
    }
    let run = ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(ctx.id());
    let out = run.before([crate::sys::Step::Umask(0o027)]).run();
    assert_eq!(out.code, 0, "{out:?}");
    // The last one has the container's, which is 0022 where the config says none.
    assert_eq!(lines(&journal), [json!(0o027), json!(0o027), json!(0o022)]);
}

fn create_container_hook_mounts(ctx: &Ctx) {
    // What a GPU hook does: mount into the rootfs before the pivot, by the host's paths.
    let bundle = ctx.bundle();
    let target = bundle.rootfs().join("mnt");
    let before = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let bundle = bundle.hook(
        "createContainer",
        &ctx.helper(),
        &[
            &format!("mount tmpfs {} tmpfs mode=755", target.display()),
            &format!("write {}/from-hook yes", target.display()),
        ],
    );
    let all = ctx.run(&bundle.ops(&["cat /mnt/from-hook"])).all();
    assert_eq!(all[0], "yes");
    assert_eq!(fs::read_to_string("/proc/self/mountinfo").unwrap(), before);
}

fn hook_output_does_not_mix(ctx: &Ctx) {
    // What a hook prints is not the container's output.
    let bundle =
        ctx.bundle().hook("createRuntime", &ctx.helper(), &["say from-the-hook"]).ops(&["say program"]);
    let out = ctx.run(&bundle);
    assert_eq!((out.code, out.stdout.as_str()), (0, "\"program\"\n"));
}

fn hook_descriptors_are_clean(ctx: &Ctx) {
    let journal = journal(ctx);
    let bundle = with_journal(ctx, &journal);
    let note = format!("to {} fds", journal.display());
    let bundle = bundle.hook("createRuntime", &ctx.helper(), &[&note]).hook(
        "createContainer",
        &ctx.helper(),
        &[&note],
    );
    let out = ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(ctx.id());
    let out = out.after([crate::sys::Step::Dup(0, 9), crate::sys::Step::Dup(0, 50)]).run();
    assert_eq!(out.code, 0, "{out:?}");
    assert_eq!(lines(&journal), [json!([0, 1, 2]), json!([0, 1, 2])]);
}

fn hooks_of_a_detached_run(ctx: &Ctx) {
    let journal = journal(ctx);
    let bundle =
        ctx.bundle().hook("poststop", &ctx.helper(), &[&format!("to {} say poststop", journal.display())]);
    let id = ctx.id();
    let bundle = bundle.ops(&["pause"]);
    ctx.rt(["run", "--detach", "--bundle"]).arg(&bundle.dir).arg(&id).ok();
    ctx.rt(["delete", "--force", &id]).silent();
    assert_eq!(lines(&journal), ["poststop"]);
}

fn poststop_runs_on_forced_delete(ctx: &Ctx) {
    let journal = journal(ctx);
    let bundle =
        ctx.bundle().hook("poststop", &ctx.helper(), &[&format!("to {} say poststop", journal.display())]);
    let container = ctx.create(&bundle.ops(&["deaf"]));
    ctx.rt(["delete", "--force", &container.id]).silent();
    container.reap();
    assert_eq!(lines(&journal), ["poststop"]);
    ctx.rt(["delete", "--force", &container.id]).silent();
    assert_eq!(lines(&journal).len(), 1, "once");
}

fn hook_before_anything_is_left(ctx: &Ctx) {
    // A hook that kills the runtime: delete --force cleans up.
    let bundle = ctx.bundle().hook("createRuntime", Path::new("/bin/sh"), &[]);
    let mut bundle = bundle;
    bundle.set("/hooks/createRuntime/0/args", json!(["sh", "-c", "kill -9 $PPID"]));
    let id = ctx.id();
    let out = ctx.rt(["create", "--bundle"]).arg(&bundle.dir).arg(&id).run();
    assert_ne!(out.code, 0, "{out:?}");
    ctx.rt(["delete", "--force", &id]).silent();
    assert!(!ctx.state.join(&id).exists());
}
