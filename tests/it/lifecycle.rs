//! create, start, state, kill, delete: the spec's operations and what clients build on (clients.md section 2).

use crate::client::RANGE;
use crate::fixture::{Container, Ctx, eventually, stat};
use crate::run::in_place;
use crate::runner::{skip, tests};
use crate::sys;
use serde_json::json;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

tests! {
    EVERY { whole_life }
    ALL {
        state_has_runcs_fields, zombie_init_is_stopped, created_container_can_be_deleted,
        running_container_needs_force, delete_force_of_unknown_is_silent, missing_command_fails_create,
        kill_names_and_numbers, kill_all_reaches_every_process,
    }
    BOTH {
        program_waits_for_start, pid_file_is_digits_only, init_reparents_to_the_creator,
        no_helper_process_stays, nobody_holds_the_output, unknown_id_does_not_exist, start_twice_fails,
        kill_of_stopped_fails, kill_all_of_stopped_succeeds, kill_defaults_to_term, bad_signal_is_refused,
        kill_of_created_ends_it, second_create_of_an_id_fails, two_creates_one_wins,
        config_is_consumed_by_create, command_that_cannot_run, program_that_cannot_start, ids_that_are_refused, ids_that_are_accepted,
        state_directory_is_private, list_shows_containers, ps_lists_processes, pause_and_resume,
        pause_states, start_of_dead_init_fails, delete_while_paused, old_pid_is_never_signalled, old_mount_namespace_is_never_signalled,
        missing_bundle, events_stats_reads, events_until_the_end, update_answers, create_defaults_to_the_working_directory,
        annotations_show_in_state, kill_all_without_a_pid_namespace, ps_without_a_pid_namespace,
        broken_state_can_be_deleted, container_that_is_being_created, kill_reaches_all_before_linux_6_11,
        what_nobody_can_know_is_said, kill_without_a_pid_namespace_reaches_all, what_waits_for_start_is_killed,
    }
    USER { default_root_is_found_again, default_root_must_be_the_callers }
    ROOT { init_ends_with_a_killed_runtime }
}

/// Also where init became another user in between, as which the kernel forgets to end it.
fn init_ends_with_a_killed_runtime(ctx: &Ctx) {
    let map = json!([{ "containerID": 0, "hostID": RANGE.1, "size": RANGE.2 }]);
    let (pids, hook) = (ctx.path("pids"), ctx.path("hook"));
    let script = format!("echo $$ >{}; cat >{}; exec sleep 100", hook.display(), pids.display());
    let bundle = ctx.bundle().namespace("user", None);
    let bundle = bundle.with("/linux/uidMappings", map.clone()).with("/linux/gidMappings", map);
    let hooks = json!({ "createRuntime": [{ "path": "/bin/sh", "args": ["sh", "-c", script] }] });
    let bundle = bundle.with("/hooks", hooks).ops(&["ready"]);
    let id = ctx.id();
    let job = ctx.rt(["run", "-b"]).arg(&bundle.dir).arg(&id).spawn();
    let read = |path: &Path| {
        eventually("the hook runs", || {
            fs::read_to_string(path).ok().filter(|text| text.ends_with(['}', '\n']))
        })
    };
    let state: serde_json::Value = serde_json::from_str(&read(&pids)).unwrap();
    let init = state["pid"].as_i64().unwrap() as i32;
    sys::kill(job.pid(), libc::SIGKILL).unwrap();
    job.wait();
    eventually("init has ended", || stat(init).is_none_or(|stat| stat.state == 'Z').then_some(()));
    sys::kill(read(&hook).trim().parse().unwrap(), libc::SIGKILL).unwrap();
    ctx.rt(["delete", "-f", &id]).run();
}

fn whole_life(ctx: &Ctx) {
    let bundle = ctx.bundle().ops(&["signals"]);
    let container = ctx.create(&bundle);
    assert_eq!(container.status(), "created");
    container.start();
    assert_eq!(container.line(0), "ready");
    assert_eq!(container.status(), "running");
    container.kill("USR1");
    assert_eq!(container.line(1), json!({ "signal": libc::SIGUSR1 }));
    container.kill("TERM");
    assert_eq!(container.reap(), 7);
    assert_eq!(container.status(), "stopped");
    container.delete();
    ctx.rt(["state", &container.id]).fails(&["does not exist"]);
}

fn program_waits_for_start(ctx: &Ctx) {
    let bundle = ctx.bundle().ops(&["ready"]);
    let container = ctx.create(&bundle);
    let exe = fs::read_link(format!("/proc/{}/exe", container.pid));
    assert!(!exe.is_ok_and(|p| p.ends_with("probe")), "the program runs before start");
    assert_eq!(fs::read_to_string(&container.out).unwrap(), "");
    container.start();
    assert_eq!(container.reap(), 0);
    assert_eq!(container.line(0), "ready");
}

fn state_has_runcs_fields(ctx: &Ctx) {
    let bundle = ctx.bundle().ops(&["pause"]);
    let container = ctx.started(&bundle);
    let state = container.state();
    assert_eq!(state["id"], json!(container.id));
    assert_eq!(state["pid"], json!(container.pid));
    assert_eq!(state["status"], "running");
    assert_eq!(state["bundle"], json!(bundle.dir));
    assert_eq!(state["rootfs"], json!(bundle.rootfs()));
    assert!(state["ociVersion"].as_str().unwrap().starts_with("1."), "{state}");
    let created = state["created"].as_str().expect("created");
    assert!(is_rfc3339(created), "created: {created}");
    container.kill("TERM");
    container.reap();
    let state = container.state();
    assert_eq!((&state["status"], &state["pid"]), (&json!("stopped"), &json!(0)), "{state}");
}

/// `2024-01-02T03:04:05[.6]Z`, or with an offset.
pub fn is_rfc3339(text: &str) -> bool {
    let digits = |range: std::ops::Range<usize>| {
        text.get(range).is_some_and(|t| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit()))
    };
    let at = |i: usize| text.as_bytes().get(i).copied();
    let zone = text.get(19..).unwrap_or("").trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
    digits(0..4)
        && digits(5..7)
        && digits(8..10)
        && digits(11..13)
        && digits(14..16)
        && digits(17..19)
        && [at(4), at(7), at(10), at(13), at(16)] == [b'-', b'-', b'T', b':', b':'].map(Some)
        && (zone == "Z" || zone.len() == 6 && matches!(at(text.len() - 6), Some(b'+' | b'-')))
}

fn pid_file_is_digits_only(ctx: &Ctx) {
    let bundle = ctx.bundle().ops(&["pause"]);
    let container = ctx.create(&bundle);
    let text = fs::read_to_string(ctx.path(&format!("{}.pid", container.id))).unwrap();
    assert!(text.bytes().all(|b| b.is_ascii_digit()), "{text:?}");
    assert_eq!(container.state()["pid"], json!(container.pid));
}

fn init_reparents_to_the_creator(ctx: &Ctx) {
    // conmon and containerd's shim are subreapers and wait for this very pid; so does the test's process.
    let container = ctx.create(&ctx.bundle().ops(&["exit 5"]));
    assert_eq!(stat(container.pid).expect("init").parent, std::process::id() as i32);
    container.start();
    assert_eq!(container.reap(), 5);
}

fn no_helper_process_stays(ctx: &Ctx) {
    let before = crate::fixture::children(std::process::id());
    let container = ctx.started(&ctx.bundle().ops(&["pause"]));
    let mut after = crate::fixture::children(std::process::id());
    after.retain(|pid| !before.contains(pid));
    assert_eq!(after, [container.pid as u32], "only the container's process is left of create and start");
    assert!(crate::fixture::children(container.pid as u32).is_empty());
}

fn nobody_holds_the_output(ctx: &Ctx) {
    // Where the program closes its output, a reader sees the end: nobody else has it.
    use std::io::Read;
    let id = ctx.id();
    let bundle = ctx.bundle().ops(&["exec /probe fds"]);
    let mut create = ctx.rt(["create", "--bundle"]).arg(&bundle.dir).arg(&id).piped().spawn();
    let mut pipe = create.child.stdout.take().unwrap();
    assert!(create.child.wait().unwrap().success());
    ctx.rt(["start", &id]).silent();
    let mut text = String::new();
    assert!(sys::readable(std::os::fd::AsRawFd::as_raw_fd(&pipe), 10_000), "the program prints");
    pipe.read_to_string(&mut text).unwrap();
    assert_eq!(text.trim(), "[0,1,2]");
}

/// While its hooks run a container is there, and answers as one that has not begun.
fn container_that_is_being_created(ctx: &Ctx) {
    let (begun, go) = (ctx.path("begun"), ctx.path("go"));
    let text = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let (write, until) = (format!("write {} x", text(&begun)), format!("until {}", text(&go)));
    let bundle = ctx.bundle().hook("createRuntime", &ctx.helper(), &[&write, &until]).ops(&["exit 0"]);
    let id = ctx.id();
    let job = ctx.rt(["create", "--bundle"]).arg(&bundle.dir).arg(&id).spawn();
    eventually("the hook", || begun.exists().then_some(()));
    assert_eq!(ctx.rt(["state", &id]).ok().json()["status"], "creating");
    let owner = || ctx.rt(["list", "-f", "json"]).ok().json()[0]["owner"].clone();
    let creates = owner();
    ctx.rt(["start", &id]).fails(&["cannot start a container that is being created"]);
    ctx.rt(["exec", &id, "/probe"]).fails(&["cannot exec in a container that is being created"]);
    ctx.rt(["delete", &id]).fails(&["that is being created"]);
    for command in ["kill", "pause"] {
        ctx.rt([command, &id]).fails(&["container not running"]);
    }
    fs::write(&go, "").unwrap();
    assert_eq!(job.wait().code, 0);
    assert_eq!(ctx.rt(["state", &id]).ok().json()["status"], "created");
    assert_eq!(owner(), creates);
    ctx.rt(["delete", "--force", &id]).silent();
}

fn zombie_init_is_stopped(ctx: &Ctx) {
    let container = ctx.create(&ctx.bundle().ops(&["exit 3"]));
    container.start();
    container.ended();
    assert_eq!(stat(container.pid).expect("not reaped yet").state, 'Z');
    assert_eq!(container.status(), "stopped");
    assert_eq!(container.state()["pid"], 0);
    ctx.rt(["kill", &container.id, "9"]).fails(&["container not running"]);
    container.delete();
    assert_eq!(container.reap(), 3);
}

fn created_container_can_be_deleted(ctx: &Ctx) {
    let container = ctx.create(&ctx.bundle().ops(&["ready"]));
    container.delete();
    container.reap();
    assert_eq!(fs::read_to_string(&container.out).unwrap(), "", "the program never ran");
}

fn running_container_needs_force(ctx: &Ctx) {
    let container = ctx.started(&ctx.bundle().ops(&["deaf"]));
    ctx.rt(["delete", &container.id]).fails(&[]);
    assert_eq!(container.status(), "running");
    ctx.rt(["delete", "--force", &container.id]).silent();
    assert_eq!(container.reap(), 137);
    ctx.rt(["delete", &container.id]).fails(&["does not exist"]);
}

fn delete_force_of_unknown_is_silent(ctx: &Ctx) {
    ctx.rt(["delete", "--force", "never-made"]).silent();
    ctx.rt(["delete", "-f", "never-made"]).silent();
    ctx.rt(["delete", "--force", "never-made"]).env("XDG_RUNTIME_DIR", &ctx.dir).silent();
}

fn unknown_id_does_not_exist(ctx: &Ctx) {
    for command in [&["state", "gone"][..], &["kill", "gone", "9"], &["delete", "gone"], &["start", "gone"]] {
        let out = ctx.rt(command).fails(&["does not exist"]);
        assert_eq!(out.code, 1, "{out:?}");
    }
    for command in [&["exec", "gone", "x"][..], &["ps", "gone"], &["pause", "gone"], &["resume", "gone"]] {
        ctx.rt(command).fails(&["does not exist"]);
    }
}

fn start_twice_fails(ctx: &Ctx) {
    let container = ctx.started(&ctx.bundle().ops(&["pause"]));
    ctx.rt(["start", &container.id]).fails(&[]);
    assert_eq!(container.status(), "running");
    container.kill("TERM");
    container.reap();
    ctx.rt(["start", &container.id]).fails(&[]);
}

fn kill_of_stopped_fails(ctx: &Ctx) {
    let container = ctx.create(&ctx.bundle());
    container.start();
    container.reap();
    let out = ctx.rt(["kill", &container.id, "KILL"]).fails(&["container not running"]);
    assert_eq!(out.code, 1);
}

fn kill_all_of_stopped_succeeds(ctx: &Ctx) {
    let container = ctx.create(&ctx.bundle());
    container.start();
    container.ended();
    for flag in ["--all", "-a"] {
        ctx.rt(["kill", flag, &container.id, "9"]).silent();
    }
    container.reap();
    ctx.rt(["kill", "--all", &container.id, "9"]).silent();
}

fn kill_defaults_to_term(ctx: &Ctx) {
    let container = ctx.started(&ctx.bundle().ops(&["signals"]));
    ctx.rt(["kill", &container.id]).silent();
    assert_eq!(container.line(1), json!({ "signal": libc::SIGTERM }));
    assert_eq!(container.reap(), 7);
}

fn kill_names_and_numbers(ctx: &Ctx) {
    let container = ctx.started(&ctx.bundle().ops(&["signals"]));
    let words = ["USR1", "SIGUSR1", "10", "sigusr1", "usr1"];
    for (n, word) in words.into_iter().enumerate() {
        container.kill(word);
        assert_eq!(container.line(n + 1), json!({ "signal": libc::SIGUSR1 }), "{word}");
    }
    container.kill("WINCH");
    assert_eq!(container.line(words.len() + 1), json!({ "signal": libc::SIGWINCH }));
    container.kill("9");
    assert_eq!(container.reap(), 137);
}

fn bad_signal_is_refused(ctx: &Ctx) {
    let container = ctx.started(&ctx.bundle().ops(&["pause"]));
    for word in ["FOO", "SIGFOO", "99", "-1"] {
        ctx.rt(["kill", "--", &container.id, word]).fails(&["signal"]);
    }
    assert_eq!(container.status(), "running");
}

fn kill_of_created_ends_it(ctx: &Ctx) {
    let container = ctx.create(&ctx.bundle().ops(&["ready"]));
    container.kill("KILL");
    assert_eq!(container.reap(), 137);
    assert_eq!(container.status(), "stopped");
    container.delete();
}

fn kill_all_reaches_every_process(ctx: &Ctx) {
    let container = ctx.started(&ctx.bundle().ops(&["fork deaf", "orphan deaf", "deaf"]));
    container.line(4);
    let pids = ctx.rt(["ps", "--format", "json", &container.id]).ok().json();
    assert_eq!(pids.as_array().expect("pids").len(), 3, "{pids}");
    ctx.rt(["kill", "--all", &container.id, "KILL"]).silent();
    assert_eq!(container.reap(), 137);
    for pid in pids.as_array().unwrap() {
        let pid = pid.as_i64().unwrap() as i32;
        eventually("its end", || stat(pid).is_none_or(|s| s.state == 'Z').then_some(()));
    }
}

fn kill_all_without_a_pid_namespace(ctx: &Ctx) {
    // No cgroup to ask: the processes are found by the container's other namespaces.
    if sys::kernel() < (6, 11) {
        skip!("before Linux 6.11 nothing tells whose processes are left once init is dead");
    }
    let (container, pids) = without_a_pid_namespace(ctx);
    // Also once init is dead: containerd does this always when the pid namespace is shared.
    sys::kill(container.pid, libc::SIGKILL).unwrap();
    container.reap();
    ctx.rt(["kill", "--all", &container.id, "9"]).silent();
    all_end(&pids);
}

/// A container without PID namespace, of three processes.
fn without_a_pid_namespace(ctx: &Ctx) -> (Container<'_>, Vec<i32>) {
    let container = ctx.started(&in_place(ctx.bundle()).ops(&["fork deaf", "orphan deaf", "deaf"]));
    container.line(4);
    let pids = ctx.rt(["ps", "--format", "json", &container.id]).ok().json();
    let pids: Vec<i32> = serde_json::from_value(pids).unwrap();
    assert_eq!(pids.len(), 3, "{pids:?}");
    (container, pids)
}

fn all_end(pids: &[i32]) {
    for pid in pids {
        eventually("its end", || stat(*pid).is_none_or(|s| s.state == 'Z').then_some(()));
    }
}

/// What rt writes into the state where the kernel gives no id of a mount namespace (below 6.11).
/// While the file that is returned is open, no other namespace gets the number.
fn state_of_an_old_kernel(ctx: &Ctx, id: &str, pid: i32) -> fs::File {
    let path = ctx.state.join(id).join("state.json");
    let text = fs::read_to_string(&path).unwrap();
    let (state, config) = text.split_once('\n').unwrap();
    let mut state: serde_json::Value = serde_json::from_str(state).unwrap();
    assert!(state["mountNs"].is_object(), "{state}");
    let namespace = fs::File::open(format!("/proc/{pid}/ns/mnt")).unwrap();
    state["mountNs"] = json!({ "inode": namespace.metadata().unwrap().ino() });
    fs::write(&path, format!("{state}\n{config}")).unwrap();
    namespace
}

fn kill_reaches_all_before_linux_6_11(ctx: &Ctx) {
    for args in [&["kill", "--all"][..], &["delete", "--force"]] {
        let (container, pids) = without_a_pid_namespace(ctx);
        let _number = state_of_an_old_kernel(ctx, &container.id, container.pid);
        let signal = (args[0] == "kill").then_some("KILL");
        ctx.rt(args).arg(&container.id).args(signal).silent();
        all_end(&pids);
        if args[0] == "kill" {
            delete_ended(ctx, container);
        } else {
            container.reap();
        }
    }
}

fn what_nobody_can_know_is_said(ctx: &Ctx) {
    let first_dead = || {
        let (container, pids) = without_a_pid_namespace(ctx);
        let number = state_of_an_old_kernel(ctx, &container.id, container.pid);
        sys::kill(container.pid, libc::SIGKILL).unwrap();
        container.reap();
        (container, pids, number)
    };
    // Those that are left may be a later container's.
    let (container, pids, _number) = first_dead();
    ctx.rt(["kill", "--all", &container.id, "KILL"]).fails(&["first process has ended", "6.11"]);
    ctx.rt(["ps", &container.id]).fails(&["6.11"]);
    ctx.rt(["delete", "--force", &container.id]).fails(&["first process has ended", "6.11"]);
    ctx.rt(["state", &container.id]).fails(&["does not exist"]);
    // Who puts a container away that has ended by itself gets no error.
    let (container, others, _number) = first_dead();
    container.delete();
    let left: Vec<i32> = [&pids[..], &others].concat();
    assert_eq!(left.iter().filter(|pid| stat(**pid).is_some_and(|s| s.state != 'Z')).count(), 4);
    left.iter().for_each(|pid| drop(sys::kill(*pid, libc::SIGKILL)));
    all_end(&left);
    // Nobody is left, or the number is another container's by now: that is known.
    let (container, pids, _number) = first_dead();
    pids.iter().for_each(|pid| drop(sys::kill(*pid, libc::SIGKILL)));
    all_end(&pids);
    ctx.rt(["kill", "--all", &container.id, "KILL"]).silent();
    let (other, pids) = without_a_pid_namespace(ctx);
    let _numbers = [&container.id, &other.id].map(|id| state_of_an_old_kernel(ctx, id, other.pid));
    ctx.rt(["kill", "--all", &container.id, "KILL"]).silent();
    ctx.rt(["delete", "--force", &container.id]).silent();
    assert!(pids.iter().all(|pid| stat(*pid).is_some_and(|s| s.state != 'Z')), "a stranger was killed");
    ctx.rt(["kill", "--all", &other.id, "KILL"]).silent();
    all_end(&pids);
    delete_ended(ctx, other);
}

/// Deletes a container whose processes have ended, while the number of its namespace is held.
fn delete_ended(ctx: &Ctx, container: Container<'_>) {
    let id = container.id.clone();
    container.reap();
    let out = ctx.rt(["delete", &id]).run();
    assert_eq!(out.code, 0, "{out:?}");
}

fn what_waits_for_start_is_killed(ctx: &Ctx) {
    // Nobody may look at a process that waits, so its namespace says nothing.
    for pid_namespace in [true, false] {
        for (old_kernel, all) in [(false, false), (false, true), (true, false), (true, true)] {
            let bundle = ctx.bundle().ops(&["pause"]);
            let bundle = if pid_namespace { bundle } else { bundle.without_namespace("pid") };
            let container = ctx.create(&bundle);
            let _number = (old_kernel && !pid_namespace)
                .then(|| state_of_an_old_kernel(ctx, &container.id, container.pid));
            ctx.rt(["kill"]).args(all.then_some("--all")).arg(&container.id).arg("KILL").silent();
            delete_ended(ctx, container);
        }
    }
}

fn kill_without_a_pid_namespace_reaches_all(ctx: &Ctx) {
    // As runc 1.2 does it: what the first process leaves behind nobody else would end.
    let (container, pids) = without_a_pid_namespace(ctx);
    container.kill("KILL");
    all_end(&pids);
    container.reap();
}

fn second_create_of_an_id_fails(ctx: &Ctx) {
    let bundle = ctx.bundle().ops(&["pause"]);
    let container = ctx.create(&bundle);
    let again = || ctx.rt(["create", "--bundle"]).arg(&bundle.dir).arg(&container.id);
    again().fails(&["already exists"]);
    ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(&container.id).fails(&["already exists"]);
    assert_eq!(container.status(), "created");
    container.kill("KILL");
    container.reap();
    again().fails(&["already exists"]);
}

fn two_creates_one_wins(ctx: &Ctx) {
    let bundle = ctx.bundle().ops(&["pause"]);
    for _ in 0..5 {
        let id = ctx.id();
        let jobs: Vec<_> = (0..6)
            .map(|n| {
                let pid_file = ctx.path(&format!("{id}.{n}"));
                ctx.rt(["create", "--bundle"])
                    .arg(&bundle.dir)
                    .arg("--pid-file")
                    .arg(pid_file)
                    .arg(&id)
                    .spawn()
            })
            .collect();
        let outs: Vec<_> = jobs.into_iter().map(|j| j.wait()).collect();
        let winners: Vec<usize> = (0..6).filter(|n| outs[*n].code == 0).collect();
        assert_eq!(winners.len(), 1, "{outs:#?}");
        for (n, out) in outs.iter().enumerate().filter(|(n, _)| *n != winners[0]) {
            out.failed(&["already exists"]);
            assert!(!ctx.path(&format!("{id}.{n}")).exists(), "a loser wrote a pid file");
        }
        let pid = fs::read_to_string(ctx.path(&format!("{id}.{}", winners[0]))).unwrap();
        assert_eq!(ctx.rt(["state", &id]).ok().json()["pid"].to_string(), pid);
    }
}

fn config_is_consumed_by_create(ctx: &Ctx) {
    let bundle = ctx.bundle().ops(&["say first"]);
    let container = ctx.create(&bundle);
    let bundle = bundle.ops(&["say second"]);
    container.start();
    assert_eq!(container.line(0), "first");
    container.reap();
    fs::remove_file(bundle.dir.join("config.json")).unwrap();
    assert_eq!(container.status(), "stopped");
    container.delete();
}

fn missing_command_fails_create(ctx: &Ctx) {
    for (args, text) in [
        (json!(["/not/there"]), "exec: \"/not/there\": stat /not/there: no such file or directory"),
        (json!(["not-there"]), "exec: \"not-there\": executable file not found in $PATH"),
    ] {
        let bundle = ctx.bundle().with("/process/args", args);
        let id = ctx.id();
        let create = ctx.rt(["create", "--bundle"]).arg(&bundle.dir).arg(&id).fails(&[text]);
        assert_eq!(create.code, 1);
        ctx.rt(["state", &id]).fails(&["does not exist"]);
        let run = ctx.run(&bundle);
        run.failed(&[text]);
    }
}

fn command_that_cannot_run(ctx: &Ctx) {
    let bundle = ctx.bundle();
    let file = bundle.file("plain", "no program");
    fs::set_permissions(file, fs::Permissions::from_mode(0o644)).unwrap();
    let mut bundle = bundle;
    for (path, text) in [("/plain", "exec: \"/plain\": permission denied"), ("/etc", "is a directory")] {
        bundle.set("/process/args", json!([path]));
        let out = ctx.run(&bundle);
        out.failed(&[text]);
        assert!(out.stderr.contains("permission denied"), "clients make 126 of it: {out:?}");
    }
    for args in [json!([]), json!([""]), json!(null)] {
        bundle.set("/process/args", args);
        ctx.run(&bundle).failed(&[]);
    }
    // What the kernel itself refuses comes after the point of no return only if it was not a file at all.
    let broken = bundle.file("broken", "\u{7f}ELF nonsense");
    fs::set_permissions(broken, fs::Permissions::from_mode(0o755)).unwrap();
    bundle.set("/process/args", json!(["/broken"]));
    ctx.run(&bundle).failed(&["/broken", "exec format error"]);
}

fn program_that_cannot_start(ctx: &Ctx) {
    // Only exec finds out that the interpreter is missing, and then nobody waits for an answer any more.
    let bundle = ctx.bundle();
    let script = bundle.file("script", "#!/no/such/interpreter\n");
    fs::set_permissions(script, fs::Permissions::from_mode(0o755)).unwrap();
    let container = ctx.create(&bundle.with("/process/args", json!(["/script"])));
    container.start();
    assert_eq!(container.reap(), 1);
    let said = fs::read_to_string(&container.err).unwrap();
    assert!(said.starts_with("rt: exec \"/script\": no such file or directory (the interpreter "), "{said}");
    assert_eq!(said.matches('\n').count(), 1, "{said}");
}

fn ids_that_are_refused(ctx: &Ctx) {
    let bundle = ctx.bundle();
    for id in ["", ".", "..", "a/b", "/abs", "../up", "a b", "a\nb", "ü", "-x/..", "x/"] {
        for command in ["create", "run"] {
            ctx.rt([command, "--bundle"]).arg(&bundle.dir).arg(id).fails(&[]);
        }
        ctx.rt(["create", "--bundle"]).arg(&bundle.dir).arg("--").arg(id).fails(&["id"]);
        for command in ["state", "delete", "kill", "start"] {
            ctx.rt([command, "--", id]).fails(&[]);
        }
        ctx.rt(["delete", "--force", "--", id]).run();
    }
    let long = "x".repeat(2000);
    ctx.rt(["create", "--bundle"]).arg(&bundle.dir).arg(long).fails(&[]);
    assert!(!ctx.path("up").exists());
}

fn ids_that_are_accepted(ctx: &Ctx) {
    let bundle = ctx.bundle().ops(&["ready"]);
    for id in ["a", "A.b_c+d-9", "0", &"f".repeat(64), "_x", "x..y"] {
        ctx.remember(id);
        ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(id).ok();
    }
}

fn state_directory_is_private(ctx: &Ctx) {
    let container = ctx.create(&ctx.bundle());
    let mode = |path: &std::path::Path| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&ctx.state) & 0o077, 0, "the state root");
    for (path, _) in crate::fixture::tree(&ctx.state.join(&container.id), false) {
        assert_eq!(mode(&path) & 0o077, 0, "{}", path.display());
    }
}

fn list_shows_containers(ctx: &Ctx) {
    let empty = ctx.rt(["list", "--format", "json"]).ok().json();
    assert!(empty.is_null() || empty == json!([]), "{empty}");
    let bundle = ctx.bundle().ops(&["pause"]);
    let (a, b) = (ctx.started(&bundle), ctx.create(&bundle));
    let list = ctx.rt(["list", "--format=json"]).ok().json();
    let of = |id: &str| {
        list.as_array().unwrap().iter().find(|e| e["id"] == id).unwrap_or_else(|| panic!("{list}")).clone()
    };
    assert_eq!((&of(&a.id)["status"], &of(&b.id)["status"]), (&json!("running"), &json!("created")));
    assert_eq!(of(&a.id)["pid"], json!(a.pid));
    assert_eq!(of(&a.id)["bundle"], json!(bundle.dir));
    let quiet = ctx.rt(["list", "-q"]).ok();
    let mut ids: Vec<_> = quiet.stdout.lines().collect();
    ids.sort_unstable();
    assert_eq!(ids, [a.id.as_str(), b.id.as_str()]);
    let table = ctx.rt(["list"]).ok();
    let head: Vec<_> = table.stdout.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(head, ["ID", "PID", "STATUS", "BUNDLE", "CREATED", "OWNER"]);
    assert!(table.stdout.lines().any(|l| l.starts_with(&a.id) && l.contains("running")), "{table:?}");
}

fn ps_lists_processes(ctx: &Ctx) {
    let container = ctx.started(&ctx.bundle().ops(&["fork pause", "pause"]));
    container.line(2);
    let pids = ctx.rt(["ps", "--format", "json", &container.id]).ok().json();
    let pids: Vec<i32> = serde_json::from_value(pids).unwrap();
    assert!(pids.contains(&container.pid) && pids.len() == 2, "{pids:?}");
    let table = ctx.rt(["ps", &container.id]).ok();
    assert!(pids.iter().all(|pid| table.stdout.contains(&pid.to_string())), "{table:?}");
    assert!(table.stdout.lines().next().unwrap().contains("PID"), "{table:?}");
}

fn ps_without_a_pid_namespace(ctx: &Ctx) {
    let bundle = ctx.bundle().without_namespace("pid").ops(&["orphan pause", "pause"]);
    let bundle = bundle.without_mount("/proc").mount("/proc", "none", "/proc", &["rbind"]);
    let container = ctx.started(&bundle);
    container.line(2);
    let pids = ctx.rt(["ps", "-f", "json", &container.id]).ok().json();
    assert_eq!(pids.as_array().unwrap().len(), 2, "{pids}");
    ctx.rt(["kill", "--all", &container.id, "KILL"]).silent();
    container.reap();
}

fn pause_and_resume(ctx: &Ctx) {
    let count = ctx.file("count", "");
    let source = count.to_str().unwrap();
    let bundle = ctx.bundle().mount("/count", "bind", source, &["bind", "rw"]);
    let container = ctx.started(&bundle.ops(&["fork pause", "count /count"]));
    let read = || fs::read_to_string(&count).unwrap().parse::<u64>().ok();
    eventually("counting", || read().filter(|n| *n > 2));
    ctx.rt(["pause", &container.id]).silent();
    assert_eq!(container.status(), "paused");
    let pids: Vec<i32> =
        serde_json::from_value(ctx.rt(["ps", "--format", "json", &container.id]).ok().json()).unwrap();
    assert_eq!(pids.len(), 2);
    for pid in &pids {
        let state = stat(*pid).unwrap().state;
        assert!("TD".contains(state), "every process is stopped or frozen, {pid} is {state}");
    }
    let before = read();
    std::thread::sleep(std::time::Duration::from_millis(30));
    assert_eq!(read(), before, "nothing runs while paused");
    ctx.rt(["exec", &container.id, "/probe", "ready"]).fails(&["paused"]);
    ctx.rt(["resume", &container.id]).silent();
    assert_eq!(container.status(), "running");
    eventually("counting again", || read().filter(|n| Some(*n) > before));
}

fn pause_states(ctx: &Ctx) {
    let container = ctx.started(&ctx.bundle().ops(&["deaf"]));
    ctx.rt(["resume", &container.id]).fails(&["not paused"]);
    ctx.rt(["pause", &container.id]).silent();
    let again = ctx.rt(["pause", &container.id]).run();
    assert_eq!(container.status(), "paused", "{again:?}");
    // A fatal signal ends a paused container, too.
    container.kill("KILL");
    assert_eq!(container.reap(), 137);
    assert_eq!(container.status(), "stopped");
    ctx.rt(["pause", &container.id]).fails(&["not running"]);
    ctx.rt(["resume", &container.id]).fails(&["not paused"]);
}

fn delete_while_paused(ctx: &Ctx) {
    let container = ctx.started(&ctx.bundle().ops(&["deaf"]));
    ctx.rt(["pause", &container.id]).silent();
    ctx.rt(["delete", &container.id]).fails(&[]);
    ctx.rt(["delete", "--force", &container.id]).silent();
    assert_eq!(container.reap(), 137);
}

fn start_of_dead_init_fails(ctx: &Ctx) {
    let container = ctx.create(&ctx.bundle());
    sys::kill(container.pid, libc::SIGKILL).unwrap();
    container.ended();
    ctx.rt(["start", &container.id]).fails(&[]);
    container.reap();
    ctx.rt(["start", &container.id]).fails(&[]);
    assert_eq!(container.status(), "stopped");
    container.delete();
}

/// A pid that now belongs to somebody else: what state.json says of the start time does not fit.
fn old_pid_is_never_signalled(ctx: &Ctx) {
    let container = ctx.started(&ctx.bundle().ops(&["pause"]));
    // Start times are counted in hundredths of a second: a pid comes again much later than that.
    std::thread::sleep(std::time::Duration::from_millis(30));
    let mut other = ctx.command(ctx.helper()).args(["--exchange", "/nowhere", "/nothing"]).spawn();
    other.line(0);
    let path = ctx.state.join(&container.id).join("state.json");
    let text = fs::read_to_string(&path).unwrap();
    let changed = text.replace(&format!("\"pid\":{}", container.pid), &format!("\"pid\":{}", other.pid()));
    assert_ne!(changed, text, "state.json has no pid");
    fs::write(&path, changed).unwrap();
    assert_eq!(container.status(), "stopped");
    ctx.rt(["kill", &container.id, "KILL"]).fails(&["container not running"]);
    ctx.rt(["kill", "--all", &container.id, "KILL"]).run();
    let _ = ctx.rt(["delete", "--force", &container.id]).run();
    assert!(other.child.try_wait().unwrap().is_none(), "an innocent process was killed");
    sys::kill(container.pid, libc::SIGKILL).unwrap();
    container.reap();
    other.child.kill().unwrap();
    other.child.wait().unwrap();
}

fn old_mount_namespace_is_never_signalled(ctx: &Ctx) {
    // The kernel gives a dead namespace's number to the next one: kill --all and delete --force of a
    // stopped container must not take others for its own.
    let bundle = crate::run::in_place(ctx.bundle()).ops(&["deaf"]);
    let dead: Vec<_> = (0..6).map(|_| ctx.started(&bundle)).collect();
    for container in &dead {
        container.kill("KILL");
        container.reap();
    }
    let others: Vec<_> = (0..6).map(|_| ctx.started(&bundle)).collect();
    for container in &dead {
        ctx.rt(["kill", "--all", &container.id, "KILL"]).silent();
        ctx.rt(["delete", "--force", &container.id]).silent();
    }
    for other in &others {
        assert_eq!(other.status(), "running", "a stranger was killed");
    }
}

fn broken_state_can_be_deleted(ctx: &Ctx) {
    for text in ["", "{", "{}", "null", "[1,2]"] {
        let container = ctx.create(&ctx.bundle());
        container.kill("KILL");
        container.reap();
        fs::write(ctx.state.join(&container.id).join("state.json"), text).unwrap();
        // An empty one looks like a create that is under way. The others are damaged, which list and delete say: what it
        // was that ran there nobody knows.
        ctx.rt(["state", &container.id]).run();
        if text.is_empty() {
            ctx.rt(["list"]).ok();
            ctx.rt(["delete", "--force", &container.id]).silent();
        } else {
            ctx.rt(["list"]).fails(&["is damaged"]);
            ctx.rt(["delete", "--force", &container.id]).fails(&["is damaged"]);
        }
        assert!(!ctx.state.join(&container.id).exists());
    }
}

fn missing_bundle(ctx: &Ctx) {
    let create = |dir: &str| ctx.rt(["create", "--bundle", dir, &ctx.id()]);
    create("/not/there").fails(&["/not/there", "no such file or directory"]);
    let empty = ctx.mkdir("empty");
    create(empty.to_str().unwrap()).fails(&["config.json", "no such file or directory"]);
    let bundle = ctx.bundle().with("/root/path", json!("absent"));
    create(bundle.dir.to_str().unwrap()).fails(&["absent", "no such file or directory"]);
}

fn create_defaults_to_the_working_directory(ctx: &Ctx) {
    let bundle = ctx.bundle().ops(&["ready"]);
    let id = ctx.id();
    ctx.rt(["run", &id]).cwd(&bundle.dir).ok();
    // A relative bundle is absolute in the state.
    let id = ctx.id();
    let name = bundle.dir.file_name().unwrap();
    ctx.rt(["create", "-b"]).arg(name).arg(&id).cwd(&ctx.dir).silent();
    assert_eq!(ctx.rt(["state", &id]).ok().json()["bundle"], json!(bundle.dir));
}

fn annotations_show_in_state(ctx: &Ctx) {
    let annotations =
        json!({ "io.container.manager": "libpod", "run.oci.keep_original_groups": "1", "x": "" });
    let container = ctx.create(&ctx.bundle().with("/annotations", annotations.clone()));
    let state = container.state();
    for (key, value) in annotations.as_object().unwrap() {
        assert_eq!(&state["annotations"][key], value);
    }
}

fn events_stats_reads(ctx: &Ctx) {
    let container = ctx.started(&ctx.bundle().ops(&["pause"]));
    let out = ctx.rt(["events", "--stats", &container.id]).ok();
    let head = format!(r#"{{"type":"stats","id":"{}","data":{{"#, container.id);
    assert!(out.stdout.starts_with(&head), "in runc's order: {}", out.stdout);
    let stats = out.json();
    assert_eq!((&stats["type"], &stats["id"]), (&json!("stats"), &json!(container.id)), "{stats}");
    assert!(stats["data"].is_object(), "{stats}");
    container.kill("KILL");
    container.reap();
    ctx.rt(["events", "--stats", &container.id]).fails(&["not running"]);
}

fn events_until_the_end(ctx: &Ctx) {
    let container = ctx.started(&ctx.bundle().ops(&["pause"]));
    let events = |interval: &str| ctx.rt(["events", "--interval", interval, &container.id]);
    for wrong in ["5 parsecs", "1.2.3s", "ms", "-1s"] {
        events(wrong).fails(&[&format!("--interval: {wrong:?} is no duration")]);
    }
    for zero in ["0", "0ms", ""] {
        events(zero).fails(&["is not greater than 0"]);
    }
    // A duration that is read as a longer one prints no third line in time; one that is read as a shorter one prints more.
    let mut often = events("0m0.01s20ms").spawn();
    let mut rarely = events("1h").spawn();
    for n in 0..3 {
        assert_eq!(often.line(n)["type"], "stats");
    }
    assert_eq!(rarely.line(0)["id"], json!(container.id));
    container.kill("KILL");
    container.reap();
    for job in [often, rarely] {
        let out = job.wait();
        assert_eq!((out.code, out.stderr.as_str()), (0, ""), "{out:?}");
        assert!(!out.command.contains("1h") || out.stdout.lines().count() == 1, "{out:?}");
    }
}

fn update_answers(ctx: &Ctx) {
    let container = ctx.started(&ctx.bundle().ops(&["pause"]));
    let resources = r#"{"memory":{"limit":1048576}}"#;
    let file = ctx.file("resources.json", resources);
    for cmd in [
        ctx.rt(["update", "--resources", "-", &container.id]).input(resources),
        ctx.rt(["update", "--resources=-", &container.id]).input(resources),
        ctx.rt(["update", "--resources"]).arg(&file).arg(&container.id),
        ctx.rt(["update", "--memory", "1048576", &container.id]),
    ] {
        let out = cmd.run();
        // Accepted in silence or refused with the reason: either way nothing is changed.
        if out.code != 0 {
            out.failed(&["scheduler"]);
        }
    }
    assert_eq!(container.status(), "running");
    ctx.rt(["update", "--resources", "-", "gone"]).input("{}").fails(&["does not exist"]);
}

fn default_root_is_found_again(ctx: &Ctx) {
    let runtime_dir = ctx.mkdir("xdg");
    let bundle = ctx.bundle().ops(&["pause"]);
    let rt = |args: &[&str]| ctx.command(ctx.rt_path()).args(args).env("XDG_RUNTIME_DIR", &runtime_dir);
    rt(&["create", "--bundle", bundle.dir.to_str().unwrap(), "by-xdg"]).silent();
    // podman's cleanup calls delete with XDG_RUNTIME_DIR and nothing else.
    let state = rt(&["state", "by-xdg"]);
    let mut state = state;
    state.command.env_remove("PATH");
    assert_eq!(state.ok().json()["status"], "created");
    assert!(runtime_dir.join("rt/by-xdg").is_dir() || ctx.foreign());
    let mut delete = rt(&["delete", "--force", "by-xdg"]);
    delete.command.env_remove("PATH");
    delete.silent();
    // No XDG_RUNTIME_DIR (Slurm): a fallback must be found, the same by every call.
    let id = ctx.id();
    let bare = |args: &[&str]| ctx.command(ctx.rt_path()).args(args);
    bare(&["create", "--bundle", bundle.dir.to_str().unwrap(), &id]).silent();
    assert_eq!(bare(&["state", &id]).ok().json()["status"], "created");
    bare(&["delete", "--force", &id]).silent();
}

fn default_root_must_be_the_callers(ctx: &Ctx) {
    // A directory that others can write, or a link, in the place of the state root is not used.
    let bundle = ctx.bundle().ops(&["ready"]);
    let runtime_dir = ctx.mkdir("xdg");
    let real = ctx.mkdir("elsewhere");
    std::os::unix::fs::symlink(&real, runtime_dir.join("rt")).unwrap();
    let id = ctx.id();
    let out = ctx
        .command(ctx.rt_path())
        .args(["run", "--keep", "--bundle"])
        .arg(&bundle.dir)
        .arg(&id)
        .env("XDG_RUNTIME_DIR", &runtime_dir)
        .run();
    let leaked = fs::read_dir(&real).unwrap().count();
    assert_eq!(leaked, 0, "the state went through a link: {out:?}");
    let delete = ctx.command(ctx.rt_path()).args(["delete", "--force", &id]);
    delete.env("XDG_RUNTIME_DIR", &runtime_dir).run();
}
