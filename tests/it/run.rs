//! `rt run`: runc's form and the direct one, exit codes, signals, and exec in place.

use crate::fixture::{Bundle, Ctx, eventually, namespace, stat};
use crate::runner::tests;
use crate::sys::{self, Step};
use serde_json::json;
use std::fs;

tests! {
    EVERY { exit_code_is_the_programs }
    ALL {
        death_by_signal_is_128_plus_n, signals_are_forwarded, state_is_gone_afterwards,
        in_place_is_the_same_process, in_place_container_is_like_any_other, input_and_output_pass,
    }
    BOTH {
        direct_form_takes_a_bundle, direct_form_args, direct_form_options, volumes, detach_returns, detached_output_goes_to_a_log,
        detached_output_goes_to_a_file, detached_errors_go_with_the_output, stop_ends_what_does_not_hear, several_are_stopped_and_removed, keep_keeps_the_state,
        pid_file_of_run, in_place_death_counts_as_gone, not_in_place_with_poststop, orphans_are_reaped,
        pid_namespace_ends_with_init, run_twice_one_after_another, killed_runner_leaves_nothing, args_are_kept,
        exit_code_of_a_stopped_reader, environment_is_the_configs, parent_ignores_sigchld,
        failing_run_leaves_no_state, in_place_index_is_swept, run_in_a_closed_world, nothing_resident_in_place, trace_of_a_start,
    }
}

fn exit_code_is_the_programs(ctx: &Ctx) {
    for code in [0, 1, 3, 42, 255] {
        let out = ctx.run(&ctx.bundle().ops(&["ready", &format!("exit {code}")]));
        assert_eq!((out.code, out.stderr.as_str()), (code, ""));
        assert_eq!(out.line(0), "ready");
    }
}

fn death_by_signal_is_128_plus_n(ctx: &Ctx) {
    // Without a pid namespace: there, init cannot kill itself.
    let bundle = in_place(ctx.bundle());
    for signal in [libc::SIGKILL, libc::SIGTERM, libc::SIGSEGV] {
        let out = ctx.run(&bundle_ops(&bundle, &format!("die {signal}")));
        assert_eq!(out.code, 128 + signal, "{out:?}");
    }
    // And with one: a signal from outside.
    let id = ctx.id();
    let mut job = ctx.rt(["run", "--bundle"]).arg(&ctx.bundle().ops(&["deaf"]).dir).arg(&id).spawn();
    job.line(0);
    ctx.rt(["kill", &id, "KILL"]).silent();
    assert_eq!(job.wait().code, 137);
}

fn bundle_ops(bundle: &Bundle, operation: &str) -> Bundle {
    let copy = Bundle { dir: bundle.dir.clone(), config: bundle.config.clone(), ids: bundle.ids };
    copy.ops(&[operation])
}

/// No new pid namespace, no terminal, no poststop hook; /proc is the host's.
pub fn in_place(bundle: Bundle) -> Bundle {
    bundle.without_namespace("pid").without_mount("/proc").mount("/proc", "none", "/proc", &["rbind"])
}

fn input_and_output_pass(ctx: &Ctx) {
    for bundle in [ctx.bundle(), in_place(ctx.bundle())] {
        let bundle = bundle.ops(&["readall", "stderr trouble", "exit 2"]);
        let out = ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(ctx.id()).input("hello\nworld").run();
        assert_eq!((out.code, out.stderr.as_str()), (2, "trouble\n"));
        assert_eq!(out.line(0)["text"], "hello\nworld");
    }
}

fn signals_are_forwarded(ctx: &Ctx) {
    for bundle in [ctx.bundle(), in_place(ctx.bundle())] {
        let bundle = bundle.ops(&["signals"]);
        let mut job = ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(ctx.id()).spawn();
        job.line(0);
        let all = [libc::SIGUSR1, libc::SIGHUP, libc::SIGINT, libc::SIGUSR2, libc::SIGQUIT, libc::SIGTERM];
        for (n, signal) in all.into_iter().enumerate() {
            sys::kill(job.pid(), signal).unwrap();
            assert_eq!(job.line(n + 1), json!({ "signal": signal }));
        }
        assert_eq!(job.wait().code, 7);
    }
}

fn state_is_gone_afterwards(ctx: &Ctx) {
    let id = ctx.id();
    ctx.rt(["run", "--bundle"]).arg(&ctx.bundle().dir).arg(&id).ok();
    ctx.rt(["state", &id]).fails(&["does not exist"]);
    assert!(!ctx.state.join(&id).exists());
}

fn direct_form_takes_a_bundle(ctx: &Ctx) {
    let bundle = ctx.bundle().ops(&["say direct", "exit 4"]);
    let out = ctx.rt(["run"]).arg(&bundle.dir).run();
    assert_eq!((out.code, out.line(0)), (4, json!("direct")));
    // Relative, and with a made-up id that is gone afterwards.
    let out = ctx.rt(["run"]).arg(bundle.dir.file_name().unwrap()).cwd(&ctx.dir).run();
    assert_eq!((out.code, out.line(0)), (4, json!("direct")));
    let out = ctx.rt(["run", "."]).cwd(&bundle.dir).run();
    assert_eq!((out.code, out.line(0)), (4, json!("direct")));
    assert_eq!(fs::read_dir(&ctx.state).unwrap().count(), 0);
    // Two of one bundle at a time.
    let bundle = bundle.ops(&["deaf"]);
    let mut jobs: Vec<_> = (0..2).map(|_| ctx.rt(["run"]).arg(&bundle.dir).spawn()).collect();
    jobs.iter_mut().for_each(|job| assert_eq!(job.line(0), "ready"));
    let ids = ctx.rt(["list", "-q"]).ok().stdout;
    assert_eq!(ids.lines().count(), 2, "{ids}");
    for id in ids.lines() {
        ctx.rt(["kill", id, "KILL"]).silent();
    }
    for job in jobs {
        assert_eq!(job.wait().code, 137);
    }
    ctx.rt(["run", "/not/there"]).fails(&["/not/there"]);
    ctx.rt(["run"]).fails(&[]);
}

fn direct_form_args(ctx: &Ctx) {
    let bundle = ctx.bundle().ops(&["say config"]);
    let out = ctx.rt(["run"]).arg(&bundle.dir).args(["--", "/probe", "args", "say -v"]).ok();
    assert_eq!(out.line(0), json!(["/probe", "args", "say -v"]));
    assert_eq!(out.line(1), "-v");
    // Found in the container's PATH, with flags that are not rt's.
    let out = ctx.rt(["run"]).arg(&bundle.dir).args(["--", "probe", "say -it", "say --help"]).ok();
    assert_eq!(out.line(1), "--help");
    ctx.rt(["run"]).arg(&bundle.dir).args(["--", "nope"]).fails(&["executable file not found in $PATH"]);
}

fn direct_form_options(ctx: &Ctx) {
    let bundle = ctx.bundle().ops(&["env", "cwd"]);
    bundle.mkdir("deep/er");
    let out = ctx
        .rt(["run", "-e", "NEW=1", "--env=TERM=dumb", "-e", "FROM_HERE", "-w", "/deep/er"])
        .arg(&bundle.dir)
        .env("FROM_HERE", "yes")
        .env("NOT_ASKED", "no")
        .ok();
    let env = out.line(0);
    assert_eq!((&env["NEW"], &env["TERM"], &env["FROM_HERE"]), (&json!("1"), &json!("dumb"), &json!("yes")));
    assert_eq!(env["PATH"], "/usr/sbin:/usr/bin:/sbin:/bin", "the rest of the config's environment stays");
    assert!(env.get("NOT_ASKED").is_none());
    assert_eq!(out.line(1), "/deep/er");
}

fn volumes(ctx: &Ctx) {
    let data = ctx.mkdir("data");
    ctx.file("data/file", "content");
    let bundle =
        ctx.bundle().ops(&["cat /data/file", "write /data/new x", "cat /ro/file", "write /ro/new x"]);
    let (rw, ro) = (format!("{}:/data", data.display()), format!("{}:/ro:ro", data.display()));
    let before = bundle.tree();
    let out = ctx.rt(["run", "-v", &rw, &format!("--volume={ro}")]).arg(&bundle.dir).run();
    assert_eq!(
        out.all(),
        [json!("content"), json!(null), json!("content"), crate::fixture::errno(libc::EROFS)]
    );
    assert_eq!(bundle.tree(), before, "the rootfs has no new mount points");
    for bad in ["/only-a-source", "relative:/x:nonsense", ":/x", "/not/there:/x"] {
        ctx.rt(["run", "-v", bad]).arg(&bundle.dir).fails(&[]);
    }
}

fn detach_returns(ctx: &Ctx) {
    for bundle in [ctx.bundle(), in_place(ctx.bundle())] {
        let id = ctx.id();
        let pid_file = ctx.path(&format!("{id}.pid"));
        let out = ctx
            .rt(["run", "--detach", "--pid-file"])
            .arg(&pid_file)
            .arg("--bundle")
            .arg(&bundle.ops(&["pause"]).dir)
            .arg(&id)
            .ok();
        let pid: i32 = fs::read_to_string(&pid_file).unwrap().parse().expect("digits only");
        assert_eq!(stat(pid).expect("it runs").parent, std::process::id() as i32, "{out:?}");
        assert_eq!(ctx.rt(["state", &id]).ok().json()["status"], "running");
        ctx.rt(["kill", &id, "KILL"]).silent();
        eventually("its end", || sys::reap(pid).unwrap());
        assert_eq!(ctx.rt(["state", &id]).ok().json()["status"], "stopped");
        ctx.rt(["delete", &id]).silent();
    }
}

/// The pid of a container.
fn pid(ctx: &Ctx, id: &str) -> i32 {
    ctx.rt(["state", id]).ok().json()["pid"].as_i64().unwrap() as i32
}

/// Starts a container in the background, with pipes for output, as in a shell's `$(...)`; returns what rt has printed. The
/// pipes end with rt, and not with the container.
fn detached(ctx: &Ctx, flags: &[&str], bundle: &Bundle) -> String {
    let job = ctx.rt(["run", "-d"]).args(flags).arg(&bundle.dir).piped().spawn();
    let out = job.child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    assert_eq!((out.status.code(), text(out.stderr).as_str()), (Some(0), ""));
    text(out.stdout)
}

fn detached_output_goes_to_a_log(ctx: &Ctx) {
    for bundle in [ctx.bundle(), in_place(ctx.bundle())] {
        let id = ctx.id();
        let bundle = bundle.ops(&["stderr trouble", "say hello", "pause"]);
        assert_eq!(detached(ctx, &["--name", &id], &bundle), format!("{id}\n"));
        let logged = || ctx.rt(["logs", &id]).ok().stdout;
        eventually("the output", || (logged().ends_with("\"ready\"\n")).then_some(()));
        assert_eq!(logged(), "trouble\nnull\n\"hello\"\n\"ready\"\n");
        ctx.rt(["run", "-d", "--name", &id]).arg(&bundle.dir).fails(&[&id, "already exists"]);
        let process = pid(ctx, &id);
        let follower = ctx.rt(["logs", "-f", &id]).spawn();
        ctx.rt(["stop", &id]).silent();
        eventually("its end", || sys::reap(process).unwrap());
        let followed = follower.wait();
        assert_eq!((followed.code, followed.stdout), (0, logged()));
        assert_eq!(ctx.rt(["state", &id]).ok().json()["status"], "stopped");
        ctx.rt(["stop", &id]).silent();
        ctx.rt(["rm", &id]).silent();
        ctx.rt(["logs", &id]).fails(&["does not exist"]);
        ctx.rt(["stop", &id]).fails(&["does not exist"]);
    }
    // An id that rt makes up.
    let printed = detached(ctx, &[], &ctx.bundle().ops(&["pause"]));
    let id = printed.trim_end();
    assert_eq!(id.len(), 12, "{id}");
    let process = pid(ctx, id);
    ctx.rt(["rm", "-f", id]).silent();
    eventually("its end", || sys::reap(process).unwrap());
    // runc's form prints nothing, and its output is the caller's.
    let bundle = ctx.bundle().ops(&["pause"]);
    let id = ctx.id();
    ctx.rt(["run", "-d", "--name", "x", "-b"]).arg(&bundle.dir).arg(&id).fails(&["--name x", "twice"]);
    ctx.rt(["run", "-d", "--name", "a/b"]).arg(&bundle.dir).fails(&["invalid container ID"]);
}

fn detached_output_goes_to_a_file(ctx: &Ctx) {
    let id = ctx.id();
    let bundle = ctx.bundle().ops(&["say hello", "pause"]);
    let run = ctx.rt(["run", "-d", "--name", &id]).arg(&bundle.dir);
    let file = run.out.clone();
    run.ok();
    // The program may be faster than rt.
    let written = [format!("{id}\n"), "\"hello\"\n\"ready\"\n".to_owned()];
    eventually("the output", || {
        let text = fs::read_to_string(&file).unwrap();
        written.iter().all(|part| text.contains(part)).then_some(())
    });
    let process = pid(ctx, &id);
    ctx.rt(["logs", &id]).fails(&["has no log"]);
    ctx.rt(["rm", "-f", &id]).silent();
    eventually("its end", || sys::reap(process).unwrap());
}

/// A script's standard error is a file, such as a job's, and `id=$(rt run -d ...)` leaves it as it is.
fn detached_errors_go_with_the_output(ctx: &Ctx) {
    let id = ctx.id();
    let bundle = ctx.bundle().ops(&["stderr trouble", "say hello", "pause"]);
    bundle.write();
    let script = ctx.command("sh").args(["-c", "id=$(\"$@\") && echo $id", "sh"]).arg(ctx.rt_path());
    let out = script.arg("--root").arg(&ctx.state).args(["run", "-d", "--name", &id]).arg(&bundle.dir).ok();
    assert_eq!((out.stdout, out.stderr), (format!("{id}\n"), String::new()));
    let logged = || ctx.rt(["logs", &id]).ok().stdout;
    eventually("the output", || (logged() == "trouble\nnull\n\"hello\"\n\"ready\"\n").then_some(()));
    let process = pid(ctx, &id);
    ctx.rt(["rm", "-f", &id]).silent();
    eventually("its end", || sys::reap(process).unwrap());
}

fn stop_ends_what_does_not_hear(ctx: &Ctx) {
    let id = ctx.id();
    detached(ctx, &["--name", &id], &ctx.bundle().ops(&["deaf"]));
    eventually("its start", || (!ctx.rt(["logs", &id]).ok().stdout.is_empty()).then_some(()));
    let process = pid(ctx, &id);
    ctx.rt(["stop", "-t", "1", &id]).silent();
    eventually("its end", || sys::reap(process).unwrap());
    assert_eq!(ctx.rt(["state", &id]).ok().json()["status"], "stopped");
    ctx.rt(["rm", &id]).silent();
}

/// As docker's commands of these names. What is wrong with one is said, and the others are not left.
fn several_are_stopped_and_removed(ctx: &Ctx) {
    let ids = [ctx.id(), ctx.id()];
    let bundle = ctx.bundle().ops(&["pause"]);
    for id in &ids {
        detached(ctx, &["--name", id], &bundle);
    }
    ctx.rt(["run", "--name", &ids[0]]).arg(&bundle.dir).fails(&[&ids[0], "already exists", "rt rm "]);
    let processes = ids.each_ref().map(|id| pid(ctx, id));
    ctx.rt(["stop", &ids[0], "nosuch", &ids[1]]).fails(&["container does not exist: nosuch"]);
    for (id, process) in ids.iter().zip(processes) {
        eventually("its end", || sys::reap(process).unwrap());
        assert_eq!(ctx.rt(["state", id]).ok().json()["status"], "stopped");
    }
    ctx.rt(["rm", "nosuch", &ids[0], &ids[1]]).fails(&["container does not exist: nosuch"]);
    assert_eq!(ctx.rt(["list", "-q"]).ok().stdout, "");
    // That of runc takes one.
    ctx.rt(["delete", &ids[0], &ids[1]]).fails(&["extra operand"]);
}

fn keep_keeps_the_state(ctx: &Ctx) {
    let id = ctx.id();
    ctx.rt(["run", "--keep", "--bundle"]).arg(&ctx.bundle().dir).arg(&id).ok();
    assert_eq!(ctx.rt(["state", &id]).ok().json()["status"], "stopped");
    ctx.rt(["delete", &id]).silent();
}

fn pid_file_of_run(ctx: &Ctx) {
    for bundle in [ctx.bundle(), in_place(ctx.bundle())] {
        let pid_file = ctx.path("run.pid");
        let _ = fs::remove_file(&pid_file);
        let id = ctx.id();
        let mut job = ctx
            .rt(["run", "--pid-file"])
            .arg(&pid_file)
            .arg("--bundle")
            .arg(&bundle.ops(&["deaf"]).dir)
            .arg(&id)
            .spawn();
        job.line(0);
        let text =
            eventually("the pid file", || fs::read_to_string(&pid_file).ok().filter(|t| !t.is_empty()));
        let pid: i32 = text.parse().expect("digits only");
        assert_eq!(ctx.rt(["state", &id]).ok().json()["pid"], pid);
        sys::kill(pid, libc::SIGKILL).unwrap();
        assert_eq!(job.wait().code, 137);
    }
}

fn in_place_is_the_same_process(ctx: &Ctx) {
    let id = ctx.id();
    let bundle = in_place(ctx.bundle()).ops(&["pid", "pause"]);
    let mut job = ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(&id).spawn();
    assert_eq!(job.line(0)["pid"], job.pid(), "the program has the pid of the rt that was called");
    assert_eq!(job.line(0)["ppid"], std::process::id());
    job.line(1);
    assert_ne!(namespace(job.pid(), "mnt"), namespace(std::process::id() as i32, "mnt"));
    sys::kill(job.pid(), libc::SIGTERM).unwrap();
    assert_eq!(job.wait().code, 0);
}

fn nothing_resident_in_place(ctx: &Ctx) {
    let before = crate::fixture::children(std::process::id());
    let bundle = in_place(ctx.bundle()).ops(&["pause"]);
    let mut job = ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(ctx.id()).spawn();
    job.line(0);
    let mut now = crate::fixture::children(std::process::id());
    now.retain(|pid| !before.contains(pid));
    assert_eq!(now, [job.child.id()], "one process, the program");
    assert!(crate::fixture::children(job.child.id()).is_empty());
    let exe = fs::read_link(format!("/proc/{}/exe", job.pid())).unwrap();
    assert!(exe.ends_with("probe"), "{exe:?}");
    sys::kill(job.pid(), libc::SIGTERM).unwrap();
    job.wait();
}

fn in_place_container_is_like_any_other(ctx: &Ctx) {
    let id = ctx.id();
    let bundle = in_place(ctx.bundle()).ops(&["signals"]);
    let mut job = ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(&id).spawn();
    job.line(0);
    let state = ctx.rt(["state", &id]).ok().json();
    assert_eq!((&state["status"], &state["pid"]), (&json!("running"), &json!(job.pid())));
    let out = ctx.rt(["exec", &id, "/probe", "names", "ns", "exit 9"]).run();
    assert_eq!((out.code, &out.line(0)[0]), (9, &json!("probe")), "{out:?}");
    assert_eq!(out.line(1)["mnt"], namespace(job.pid(), "mnt"));
    ctx.rt(["delete", &id]).fails(&[]);
    ctx.rt(["kill", &id, "USR1"]).silent();
    assert_eq!(job.line(1), json!({ "signal": libc::SIGUSR1 }));
    ctx.rt(["pause", &id]).silent();
    assert_eq!(ctx.rt(["state", &id]).ok().json()["status"], "paused");
    ctx.rt(["resume", &id]).silent();
    ctx.rt(["delete", "--force", &id]).silent();
    assert_eq!(job.wait().code, 137);
    ctx.rt(["state", &id]).fails(&["does not exist"]);
}

fn in_place_death_counts_as_gone(ctx: &Ctx) {
    // Nobody is there to remove the state: the next call that sees it does.
    let bundle = in_place(ctx.bundle()).ops(&["ready"]);
    let id = ctx.id();
    for _ in 0..3 {
        ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(&id).ok();
    }
    ctx.rt(["state", &id]).fails(&["does not exist"]);
    assert_eq!(ctx.rt(["list", "-q"]).ok().stdout, "");
}

fn not_in_place_with_poststop(ctx: &Ctx) {
    let done = ctx.path("poststop");
    let bundle = in_place(ctx.bundle()).ops(&["pid", "exit 3"]);
    let bundle = bundle.hook("poststop", &ctx.helper(), &[&format!("to {} say done", done.display())]);
    let job = ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(ctx.id()).spawn();
    let pid = job.pid();
    let out = job.wait();
    assert_ne!(out.line(0)["pid"], pid);
    assert_eq!(out.code, 3);
    assert!(done.exists(), "the poststop hook ran");
}

fn orphans_are_reaped(ctx: &Ctx) {
    // Without a pid namespace, run becomes the reaper unless it is told not to (or is the program itself).
    let out = ctx.run(&ctx.bundle().ops(&["orphan exit 0", "orphan exit 0", "wait", "exit 0"]));
    assert_eq!((out.code, out.stderr.as_str()), (0, ""));
    let bundle = in_place(ctx.bundle());
    let out = ctx.run(&bundle.ops(&["orphan exit 0", "wait"]));
    assert_eq!((out.code, out.stderr.as_str()), (0, ""));
}

fn pid_namespace_ends_with_init(ctx: &Ctx) {
    let out = ctx.run(&ctx.bundle().ops(&["orphan deaf", "fork deaf", "exit 0"]));
    assert_eq!(out.code, 0);
    // The check at the end of every test finds survivors.
}

fn run_twice_one_after_another(ctx: &Ctx) {
    let id = ctx.id();
    let bundle = ctx.bundle().ops(&["ready"]);
    for _ in 0..3 {
        ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(&id).ok();
    }
}

fn killed_runner_leaves_nothing(ctx: &Ctx) {
    // Where the runtime stays resident (pid namespace), its death by SIGKILL ends the container or leaves
    // one that delete --force removes; nothing is out of reach.
    let id = ctx.id();
    let mut job = ctx.rt(["run", "--bundle"]).arg(&ctx.bundle().ops(&["deaf"]).dir).arg(&id).spawn();
    job.line(0);
    let pid = ctx.rt(["state", &id]).ok().json()["pid"].as_i64().unwrap() as i32;
    sys::kill(job.pid(), libc::SIGKILL).unwrap();
    job.wait();
    ctx.rt(["delete", "--force", &id]).silent();
    eventually("the container's end", || stat(pid).is_none_or(|s| s.state == 'Z').then_some(()));
}

fn args_are_kept(ctx: &Ctx) {
    let args = json!(["/probe", "args", "", " ", "  two  words ", "ünï\n\"quoted\" $HOME \\"]);
    let out = ctx.run(&ctx.bundle().with("/process/args", args.clone()));
    assert_eq!(out.line(0), args);
}

fn exit_code_of_a_stopped_reader(ctx: &Ctx) {
    // Nobody reads: the program dies of SIGPIPE, as in a shell, or sees EPIPE; rt itself does not panic.
    for bundle in [ctx.bundle(), in_place(ctx.bundle())] {
        let bundle = bundle.ops(&["readline", "ready", "ready", "exit 6"]);
        let mut job =
            ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(ctx.id()).input("go\n").piped().spawn();
        drop(job.child.stdout.take());
        let out = job.wait();
        assert!([6, 141].contains(&out.code), "{out:?}");
    }
}

fn environment_is_the_configs(ctx: &Ctx) {
    for bundle in [ctx.bundle(), in_place(ctx.bundle())] {
        let env = json!(["A=1", "EMPTY=", "EQ=a=b", "PATH=/bin"]);
        let bundle = bundle.with("/process/env", env).ops(&["env"]);
        let out = ctx
            .rt(["run", "--bundle"])
            .arg(&bundle.dir)
            .arg(ctx.id())
            .env("SECRET", "x")
            .env("LD_PRELOAD", "/none")
            .run();
        let mut env = out.line(0);
        // runc and crun add HOME from the rootfs's passwd where the config has none.
        env.as_object_mut().unwrap().remove("HOME");
        assert_eq!(env, json!({ "A": "1", "EMPTY": "", "EQ": "a=b", "PATH": "/bin" }));
    }
}

fn parent_ignores_sigchld(ctx: &Ctx) {
    // Some daemons start with SIGCHLD ignored: children must not vanish unseen.
    let bundle = ctx.bundle().ops(&["exit 8"]);
    let run = ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(ctx.id());
    assert_eq!(run.after([Step::Ignore(libc::SIGCHLD)]).run().code, 8);
}

fn in_place_index_is_swept(ctx: &Ctx) {
    for _ in 0..3 {
        let id = ctx.id();
        assert_eq!(ctx.rt(["run", "--bundle"]).arg(&in_place(ctx.bundle()).dir).arg(&id).run().code, 0);
        ctx.rt(["delete", "--force", &id]).silent();
    }
    for entry in fs::read_dir(&ctx.state).unwrap().flatten() {
        assert_eq!(fs::read_dir(entry.path()).unwrap().count(), 0, "{} is not empty", entry.path().display());
    }
}

fn failing_run_leaves_no_state(ctx: &Ctx) {
    let id = ctx.id();
    let bundle = ctx.bundle().mount("/mnt", "bind", "/not/there", &["bind"]);
    let out = ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(&id).fails(&["/not/there"]);
    assert_eq!(out.code, 1);
    ctx.rt(["state", &id]).fails(&["does not exist"]);
}

fn run_in_a_closed_world(ctx: &Ctx) {
    // Slurm and cron: no environment, no stdio at all.
    for bundle in [ctx.bundle(), in_place(ctx.bundle())] {
        let mut cmd = ctx.rt(["run", "--bundle"]).arg(&bundle.ops(&["fds", "exit 5"]).dir).arg(ctx.id());
        cmd.command.env_clear();
        let out = cmd.after([Step::Close(0), Step::Close(1), Step::Close(2)]).run();
        assert_eq!(out.code, 5, "{out:?}");
    }
}

/// A line a start, from every way in which init is made.
fn trace_of_a_start(ctx: &Ctx) {
    let file = ctx.path("trace.jsonl");
    let lines = || {
        let text = fs::read_to_string(&file).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<serde_json::Value>>()
    };
    let hooked =
        ctx.bundle().hook("createRuntime", &ctx.helper(), &[]).hook("startContainer", "/probe".as_ref(), &[]);
    let bundles = [in_place(ctx.bundle()), ctx.bundle(), hooked];
    for (n, bundle) in bundles.into_iter().enumerate() {
        let bundle = bundle.with("/annotations", json!({ "rt.image.name": "some/image:1" })).ops(&["ready"]);
        bundle.write();
        let id = ctx.id();
        ctx.rt(["run", "--trace"]).arg(&file).arg("--bundle").arg(&bundle.dir).arg(&id).ok();
        let all = lines();
        assert_eq!(all.len(), n + 1);
        let line = &all[n];
        assert_eq!((&line["id"], &line["image"]), (&json!(id), &json!("some/image:1")), "{line}");
        assert!(line["pid"].as_i64().unwrap() > 1 && line["time"].as_str().unwrap().ends_with('Z'), "{line}");
        let names: Vec<_> =
            line["phases"].as_array().unwrap().iter().map(|phase| phase["name"].clone()).collect();
        let expected =
            ["load", "plan", "state", "namespaces", "mounts", "hooks", "pivot", "settings", "exec"];
        assert_eq!(names, expected, "{line}");
        let sum: i64 =
            line["phases"].as_array().unwrap().iter().map(|phase| phase["us"].as_i64().unwrap()).sum();
        let total = line["totalUs"].as_i64().unwrap();
        assert!(total > 0 && sum <= total && total - sum < 20_000, "{line}");
        let hooks = line["hooks"].as_array().unwrap();
        assert_eq!(hooks.len(), if n == 2 { 2 } else { 0 }, "{line}");
        if n == 2 {
            assert_eq!(
                (&hooks[0]["stage"], &hooks[1]["stage"]),
                (&json!("createRuntime"), &json!("startContainer"))
            );
            assert_eq!((&hooks[1]["path"], &hooks[1]["status"]), (&json!("/probe"), &json!("ok")));
        }
    }
    // A start that fails says why, and a file that cannot be written is an error before anything is made.
    let bundle = ctx.bundle().mount("/x", "bind", "/no/such/source", &["bind"]);
    bundle.write();
    ctx.rt(["run", "--trace"])
        .arg(&file)
        .arg("--bundle")
        .arg(&bundle.dir)
        .arg(ctx.id())
        .fails(&["/no/such/source"]);
    let last = lines().pop().unwrap();
    assert!(last["error"].as_str().unwrap().contains("/no/such/source"), "{last}");
    ctx.rt(["create", "--trace", "/no/such/dir/file", "--bundle"])
        .arg(&bundle.dir)
        .arg(ctx.id())
        .fails(&["open trace"]);
    let container = ctx.create_with(&ctx.bundle().ops(&["ready"]), &["--trace", file.to_str().unwrap()]);
    assert_eq!(lines().pop().unwrap()["error"], serde_json::Value::Null);
    ctx.rt(["delete", "--force", &container.id]).silent();
}
