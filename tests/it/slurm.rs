//! `rt slurm` as slurmstepd calls it, with several processes in place of Slurm: one container for the tasks of
//! a step, and the calls by root at its end.

use crate::client::Caller;
use crate::fixture::{Bundle, Ctx, Job, Out, children, errno, eventually, namespace};
use crate::runner::{skip, tests};
use crate::sys::{self, Step};
use serde_json::{Value, json};
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

tests! {
    BOTH {
        tasks_share_one_container, memory_of_another_task, first_task_killed, all_gone_then_made_anew,
        any_order_of_ends, killed_while_setting_up, killed_at_any_time, sixty_four_at_once, a_task_is_replaced,
        own_program_and_environment, descriptors_of_a_task, dispositions_of_a_task, signals_and_codes, state_answers_always,
        kill_means_term, delete_ends_every_task, a_single_task_ends_alone, another_image_is_another_container,
        not_shared, other_ids, hooks_run_once, host_names_stay, job_directory, swept_without_delete,
        failing_task_leaves_nothing, hidden_member_is_no_hindrance, processes_left_behind, number_of_a_strangers_namespace,
        enter_by_job,
    }
    NESTED { user_namespaces_switched_off }
    USER {
        ids_of_a_silent_config, what_an_image_sets_is_not_the_jobs, no_scontrol_of_an_image, directories_of_others_are_not_bound,
        pmix_needs_the_callers_uid, home_by_the_jobs_environment, called_by_root, root_trusts_nothing,
        roots_job_touches_nothing_of_others, root_of_nobody, missing_state_directory, prolog_gives_nothing_away,
        epilog_ends_well, root_asks_no_file_system_of_a_users, roots_call_is_stopped_by_no_user,
        config_of_somebody_else, bundles_of_a_team_are_refused, labels_in_a_merged_config,
        found_by_any_command, poststop_hooks_are_not_roots, any_users_name, umask_of_the_job, tmpdir_of_the_job, rank_of_a_step_in_a_script, no_group_of_the_directorys,
    }
}

/// A step's directory on a node, with a generated bundle for each task.
struct Step42<'a> {
    ctx: &'a Ctx,
    bundle: Bundle,
    container: String,
}

impl<'a> Step42<'a> {
    fn new(ctx: &'a Ctx) -> Self {
        Self::of(ctx, ctx.bundle())
    }

    fn of(ctx: &'a Ctx, bundle: Bundle) -> Self {
        let container = format!("{}.42.0", ctx.id());
        ctx.remember(&container);
        Step42 { ctx, bundle, container }
    }

    fn id(&self, task: i32) -> String {
        format!("{}.{task}", self.container)
    }

    /// What Slurm makes of the bundle for a task: the config with its own arguments and environment.
    fn generated(&self, task: i32, operations: &[&str]) -> PathBuf {
        let dir = self.ctx.mkdir(&format!("{}-task{task}", self.container));
        let mut config = self.bundle.config.clone();
        let root = self.bundle.dir.join(config["root"]["path"].as_str().unwrap());
        config["root"]["path"] = json!(root);
        let mut args = vec!["/probe"];
        args.extend(operations);
        config["process"]["args"] = json!(args);
        let env = config["process"]["env"].as_array_mut().unwrap();
        env.extend([json!(format!("SLURM_PROCID={task}")), json!(format!("ONLY{task}=1"))]);
        let copy = Bundle { dir: dir.clone(), config, ids: self.bundle.ids };
        copy.write();
        dir
    }

    fn command(&self, task: i32, operations: &[&str]) -> crate::fixture::Cmd {
        let dir = self.generated(task, operations);
        self.ctx.rt(["slurm", "run", "--bundle"]).arg(dir).arg(self.id(task))
    }

    /// A task that has printed its first line.
    fn task(&self, task: i32, operations: &[&str]) -> Job {
        let mut job = self.command(task, operations).spawn();
        job.line(0);
        job
    }

    fn call(&self, form: &str, task: i32) -> Out {
        self.ctx.rt(["slurm", form, &self.id(task)]).run()
    }

    fn status(&self, task: i32) -> String {
        let out = self.call("state", task);
        assert_eq!((out.code, out.stderr.as_str()), (0, ""), "{out:?}");
        assert_eq!(out.json()["id"], self.id(task));
        out.json()["status"].as_str().unwrap().into()
    }

    /// As Slurm ends a step: nothing may be left then.
    fn delete(&self) {
        let out = self.call("delete", -1);
        assert_eq!((out.code, out.stdout.as_str(), out.stderr.as_str()), (0, "", ""), "{out:?}");
        let left: Vec<_> = fs::read_dir(&self.ctx.state).unwrap().flatten().map(|e| e.path()).collect();
        assert!(left.is_empty(), "{left:?}");
        for entry in fs::read_dir(&self.ctx.dir).unwrap().flatten() {
            if entry.file_name().to_string_lossy().contains("-task") {
                let names: Vec<_> =
                    fs::read_dir(entry.path()).unwrap().flatten().map(|e| e.file_name()).collect();
                assert_eq!(names, ["config.json"], "in the generated bundle");
            }
        }
    }
}

/// Ends programs that end with 0 at SIGTERM.
pub fn end(jobs: Vec<Job>) {
    for job in jobs {
        sys::kill(job.pid(), libc::SIGTERM).unwrap();
        assert_eq!(job.wait().code, 0);
    }
}

fn tasks_share_one_container(ctx: &Ctx) {
    let step = Step42::new(ctx);
    let before = step.bundle.strict_tree();
    let jobs: Vec<Job> = (0..4).map(|n| step.task(n, &["ns", "pause"])).collect();
    let first = jobs[0].pid();
    for job in &jobs {
        for name in ["user", "mnt", "ipc", "pid", "net", "uts", "cgroup"] {
            assert_eq!(namespace(job.pid(), name), namespace(first, name), "{name}");
        }
        assert!(children(job.pid() as u32).is_empty(), "no process beside the task's");
    }
    let own = std::process::id() as i32;
    for name in ["pid", "net", "uts"] {
        assert_eq!(namespace(first, name), namespace(own, name), "the host's {name}");
    }
    assert_ne!(namespace(first, "mnt"), namespace(own, "mnt"));
    let list = ctx.rt(["list", "-q"]).ok().stdout;
    assert_eq!(list.lines().collect::<Vec<_>>(), [step.container.as_str()], "one container");
    end(jobs);
    step.delete();
    assert_eq!(before, step.bundle.strict_tree(), "the image is as it was");
}

fn memory_of_another_task(ctx: &Ctx) {
    let step = Step42::new(ctx);
    let mut first = step.task(0, &["secret", "pause"]);
    let secret = first.line(0);
    let peek = format!("peek {} {} {}", secret["pid"], secret["address"], secret["len"]);
    let out = step.command(1, &[&peek]).ok();
    assert_eq!(out.line(0), format!("secret of {}", secret["pid"]));
    end(vec![first]);
    step.delete();
}

fn first_task_killed(ctx: &Ctx) {
    let step = Step42::new(ctx);
    let first = step.task(0, &["pause"]);
    let second = step.task(1, &["pause"]);
    let user = namespace(second.pid(), "mnt");
    sys::kill(first.pid(), libc::SIGKILL).unwrap();
    assert_eq!(first.wait().code, 137);
    assert_eq!((step.status(0).as_str(), step.status(-1).as_str()), ("stopped", "running"));
    let third = step.task(2, &["pause"]);
    assert_eq!(namespace(third.pid(), "mnt"), user, "the second keeps the container");
    let inside = ctx.rt(["exec", &step.container, "/probe", "ns"]).ok();
    assert_eq!(inside.line(0)["mnt"], user, "exec finds a member that lives");
    end(vec![second, third]);
    step.delete();
}

fn all_gone_then_made_anew(ctx: &Ctx) {
    let step = Step42::new(ctx);
    for n in [0, 1, 0] {
        step.command(n, &["say x", "ns"]).ok();
        assert_eq!(step.status(-1), "stopped");
    }
    step.delete();
}

fn any_order_of_ends(ctx: &Ctx) {
    let step = Step42::new(ctx);
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [1, 2, 0]] {
        let mut jobs: Vec<Option<Job>> = (0..3).map(|n| Some(step.task(n, &["pause"]))).collect();
        for (ended, n) in order.into_iter().enumerate() {
            assert_eq!(step.status(-1), "running");
            assert_eq!(step.status(n as i32), "running");
            end(vec![jobs[n].take().unwrap()]);
            assert_eq!(step.status(n as i32), "stopped");
            if ended < 2 {
                // One more comes and goes meanwhile.
                step.command(9, &["ns"]).ok();
            }
        }
        assert_eq!(step.status(-1), "stopped");
    }
    step.delete();
}

fn killed_while_setting_up(ctx: &Ctx) {
    let hung = ctx.path("hung");
    let bundle = ctx.bundle().hook("createRuntime", &ctx.helper(), &["to HUNG say x", "sleep 60000"]);
    let mut step = Step42::of(ctx, bundle);
    let text = step.bundle.config["hooks"].to_string().replace("HUNG", hung.to_str().unwrap());
    step.bundle.config["hooks"] = serde_json::from_str(&text).unwrap();
    let first = step.command(0, &["ready"]).spawn();
    eventually("the hook", || hung.exists().then_some(()));
    step.bundle.config.as_object_mut().unwrap().remove("hooks");
    let second = step.command(1, &["pause"]).spawn();
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert!(second.lines().is_empty(), "the second waits for the first");
    sys::kill(first.pid(), libc::SIGKILL).unwrap();
    first.wait();
    let mut second = second;
    assert_eq!(second.line(0), "ready");
    end(vec![second]);
    step.delete();
}

fn killed_at_any_time(ctx: &Ctx) {
    let step = Step42::new(ctx);
    for n in 0..40u64 {
        let first = step.command(0, &["pause"]).spawn();
        let other = step.command(1, &["ready"]).spawn();
        std::thread::sleep(std::time::Duration::from_micros(n * 150));
        sys::kill(first.pid(), libc::SIGKILL).unwrap();
        let out = other.wait();
        assert_eq!((out.code, out.stderr.as_str()), (0, ""), "{out:?}");
        first.wait();
        step.command(2, &["ready"]).ok();
    }
    step.delete();
}

fn sixty_four_at_once(ctx: &Ctx) {
    let step = Step42::new(ctx);
    let go = ctx.path("go");
    let wait = format!("until {}", go.display());
    let here = ctx.dir.to_str().unwrap();
    let step = Step42 { bundle: step.bundle.mount(here, "bind", here, &["bind"]), ..step };
    let mut jobs: Vec<Job> =
        (0..64).map(|n| step.command(n, &["ns", "env", &wait, &format!("exit {n}")]).spawn()).collect();
    let all: Vec<(Value, Value)> = jobs.iter_mut().map(|job| (job.line(0), job.line(1))).collect();
    for (n, (namespaces, env)) in all.iter().enumerate() {
        assert_eq!(namespaces, &all[0].0, "task {n}");
        assert_eq!(env["SLURM_PROCID"], n.to_string());
        let of_tasks = env.as_object().unwrap().keys().filter(|name| name.starts_with("ONLY")).count();
        assert_eq!(of_tasks, 1, "{env}");
    }
    ctx.file("go", "");
    for (n, job) in jobs.into_iter().enumerate() {
        assert_eq!(job.wait().code as usize, n);
    }
    step.delete();
}

fn a_task_is_replaced(ctx: &Ctx) {
    // A step that is run again with the same ids: killed, and never deleted.
    let step = Step42::new(ctx);
    for _ in 0..3 {
        let first = step.task(0, &["pause"]);
        let second = step.task(1, &["pause"]);
        for job in [first, second] {
            sys::kill(job.pid(), libc::SIGKILL).unwrap();
            job.wait();
        }
    }
    step.delete();
    let alone = |task| step.command(task, &["pause"]).arg("--share=false");
    for _ in 0..2 {
        let mut job = alone(0).spawn();
        job.line(0);
        sys::kill(job.pid(), libc::SIGKILL).unwrap();
        job.wait();
    }
    step.delete();
}

fn own_program_and_environment(ctx: &Ctx) {
    let mut step = Step42::new(ctx);
    let first = step.task(0, &["pause"]);
    step.bundle.config["process"]["cwd"] = json!("/home");
    step.bundle.config["process"]["rlimits"] = json!([{ "type": "RLIMIT_NOFILE", "soft": 100, "hard": 200 }]);
    step.bundle.config["process"]["user"]["umask"] = json!(0o077);
    let out = step
        .command(1, &["env", "cwd", "rlimit 7", "umask", "affinity", "status"])
        .before([Step::Cpu(0)])
        .env("LEAK", "x")
        .ok();
    let env = out.line(0);
    assert_eq!((&env["SLURM_PROCID"], &env["ONLY1"]), (&json!("1"), &json!("1")));
    assert!(env.get("ONLY0").is_none() && env.get("LEAK").is_none(), "{env}");
    assert_eq!((out.line(1), out.line(2), out.line(3)), (json!("/home"), json!([100, 200]), json!(0o077)));
    assert_eq!(out.line(4), json!([0]), "the affinity that Slurm has set");
    assert_eq!(out.line(5)["NoNewPrivs"], "1");
    end(vec![first]);
    step.delete();
}

fn descriptors_of_a_task(ctx: &Ctx) {
    let mut step = Step42::new(ctx);
    let (passed, _peer) = UnixStream::pair().unwrap();
    let file = fs::File::open("/dev/zero").unwrap();
    let env = step.bundle.config["process"]["env"].as_array_mut().unwrap();
    env.push(json!("PMI_FD=17"));
    for task in [0, 1] {
        let steps = [5, 17, 18].map(|to| Step::Dup(passed.as_raw_fd(), to));
        let out = step.command(task, &["fds", "readlink /proc/self/fd/17"]).before(steps).ok();
        assert_eq!(out.line(0), json!([0, 1, 2, 17]), "task {task}");
        assert!(out.line(1).as_str().unwrap().starts_with("socket:"), "{out:?}");
        // A connection is a socket: no other file that Slurm has left open is passed on.
        let out = step.command(task + 4, &["fds"]).before([Step::Dup(file.as_raw_fd(), 17)]).ok();
        assert_eq!(out.line(0), json!([0, 1, 2]), "task {task}");
        // One that was not passed is not there, and none of rt's is left open in its place.
        let steps = [3, 5, 17].map(Step::Close);
        let out = step.command(task + 2, &["fds"]).before(steps).ok();
        assert_eq!(out.line(0), json!([0, 1, 2]), "task {task}");
    }
    step.delete();
}

/// What the tasks' parent ignores, slurmd from a unit or from a shell's nohup, reaches no program.
fn dispositions_of_a_task(ctx: &Ctx) {
    let mark = format!("to {} say x", ctx.path("mark").display());
    // The first in place, or with a process beside it.
    for bundle in [ctx.bundle(), ctx.bundle().hook("createRuntime", &ctx.helper(), &[&mark])] {
        let step = Step42::of(ctx, bundle);
        let steps = [libc::SIGPIPE, libc::SIGHUP, libc::SIGCHLD, libc::SIGXFSZ].map(Step::Ignore);
        let mut first = step.command(0, &["dispositions", "pause"]).after(steps.clone()).spawn();
        let joining = step.command(1, &["dispositions"]);
        assert_eq!(first.line(0), json!({ "blocked": [], "ignored": [] }), "first");
        let out = joining.after(steps).ok();
        assert_eq!(out.line(0), json!({ "blocked": [], "ignored": [] }), "joining");
        end(vec![first]);
        step.delete();
    }
}

fn signals_and_codes(ctx: &Ctx) {
    let step = Step42::new(ctx);
    let keeper = step.task(0, &["pause"]);
    for task in [1, 2] {
        let mut job = step.task(task, &["signals"]);
        sys::kill(job.pid(), libc::SIGUSR1).unwrap();
        assert_eq!(job.line(1), json!({ "signal": libc::SIGUSR1 }));
        sys::kill(job.pid(), libc::SIGTERM).unwrap();
        assert_eq!(job.wait().code, 7);
        assert_eq!(step.command(task, &["exit 42"]).run().code, 42);
        assert_eq!(step.command(task, &["die 9"]).run().code, 137);
    }
    end(vec![keeper]);
    step.delete();
}

fn state_answers_always(ctx: &Ctx) {
    let step = Step42::new(ctx);
    for task in [0, -1] {
        assert_eq!(step.status(task), "stopped", "unknown, and no state directory");
    }
    let job = step.task(0, &["pause"]);
    assert_eq!((step.status(0).as_str(), step.status(-1).as_str()), ("running", "running"));
    assert_eq!(step.status(1), "stopped");
    end(vec![job]);
    assert_eq!((step.status(0).as_str(), step.status(-1).as_str()), ("stopped", "stopped"));
    // What is there is no state.
    let entry = ctx.state.join(&step.container);
    fs::remove_file(entry.join("state.json")).unwrap();
    for text in ["", "{}", "nonsense", "{\"id\":7}"] {
        fs::write(entry.join("state.json"), text).unwrap();
        assert_eq!((step.status(0).as_str(), step.status(-1).as_str()), ("stopped", "stopped"), "{text}");
    }
    // More than memory holds: nobody's limits but the service's bound what root reads.
    fs::File::create(entry.join("state.json")).unwrap().set_len(3 << 30).unwrap();
    for form in ["state", "kill", "delete"] {
        let limited = "ulimit -v 1000000; exec \"$@\"";
        let cmd = ctx.command("/bin/sh").args(["-c", limited, "sh"]).arg(ctx.rt_path()).arg("--root");
        let out = cmd.arg(&ctx.state).args(["slurm", form, &step.id(-1)]).run();
        assert!(out.code < 128, "{out:?}");
    }
    assert_eq!(step.status(-1), "stopped");
    fs::create_dir_all(&entry).unwrap();
    let _ = fs::remove_file(entry.join("state.json"));
    sys::mkfifo(&entry.join("state.json")).unwrap();
    assert_eq!(step.status(-1), "stopped", "and no waiting for a writer");
    ctx.give(&entry);
    for id in ["", "../../etc", "a/b"] {
        let out = ctx.rt(["slurm", "state", id]).run();
        assert_eq!((out.code, out.stderr.as_str()), (0, ""), "{out:?}");
        assert_eq!(out.json()["status"], "stopped");
    }
    step.delete();
}

fn kill_means_term(ctx: &Ctx) {
    let step = Step42::new(ctx);
    let jobs = vec![step.task(0, &["signals"]), step.task(1, &["signals"])];
    assert_eq!(step.call("kill", -1).code, 0);
    for job in jobs {
        assert_eq!(job.wait().code, 7, "every task got TERM");
    }
    let mut jobs = vec![step.task(0, &["signals"]), step.task(1, &["signals"])];
    ctx.rt(["slurm", "kill", &step.id(1), "USR1"]).silent();
    assert_eq!(jobs[1].line(1), json!({ "signal": libc::SIGUSR1 }));
    step.call("kill", 1);
    assert_eq!(jobs.pop().unwrap().wait().code, 7);
    assert_eq!(step.status(0), "running", "the other task is left alone");
    assert_eq!(jobs[0].lines().len(), 1);
    ctx.rt(["slurm", "kill", &step.id(5)]).silent();
    step.call("kill", 0);
    assert_eq!(jobs.pop().unwrap().wait().code, 7);
    step.delete();
}

fn delete_ends_every_task(ctx: &Ctx) {
    let step = Step42::new(ctx);
    let mut jobs: Vec<Job> = (0..3).map(|n| step.task(n, &["deaf"])).collect();
    // One that is nobody's child.
    jobs.push(step.task(3, &["orphan deaf", "deaf"]));
    step.delete();
    for job in jobs {
        assert_eq!(job.wait().code, 137);
    }
    ctx.rt(["slurm", "delete", &step.id(-1)]).silent();
    ctx.rt(["slurm", "delete", &step.id(3)]).silent();
}

fn a_single_task_ends_alone(ctx: &Ctx) {
    // Slurm 22.05 asks for each task by its number.
    let step = Step42::new(ctx);
    let (first, second) = (step.task(0, &["deaf"]), step.task(1, &["deaf"]));
    ctx.rt(["slurm", "delete", &step.id(0)]).silent();
    assert_eq!(first.wait().code, 137);
    assert_eq!((step.status(0).as_str(), step.status(1).as_str()), ("stopped", "running"));
    ctx.rt(["slurm", "delete", &step.id(1)]).silent();
    assert_eq!(second.wait().code, 137);
    assert!(fs::read_dir(&ctx.state).unwrap().next().is_none(), "the last one takes the container along");
}

fn another_image_is_another_container(ctx: &Ctx) {
    let step = Step42::new(ctx);
    let job = step.task(0, &["pause"]);
    let other = Step42 { bundle: ctx.bundle(), ctx, container: step.container.clone() };
    // Relative to where rt was called, also when it has looked into the bundle before.
    ctx.mkdir("data");
    ctx.file("data/x", "mine");
    let mut second = other.command(1, &["cat /mnt/x", "pause"]).args(["-v", "data:/mnt"]).spawn();
    assert_eq!((second.line(0), second.line(1)), (json!("mine"), json!("ready")));
    assert_ne!(namespace(job.pid(), "mnt"), namespace(second.pid(), "mnt"));
    assert_eq!((step.status(1).as_str(), step.status(-1).as_str()), ("running", "running"));
    end(vec![job]);
    assert_eq!(step.status(-1), "running");
    end(vec![second]);
    step.delete();
}

fn not_shared(ctx: &Ctx) {
    let step = Step42::new(ctx);
    let alone = |n| {
        let mut job = step.command(n, &["pause"]).arg("--share=false").spawn();
        job.line(0);
        job
    };
    let jobs = vec![alone(0), alone(1)];
    assert_eq!(step.status(-1), "running");
    let ids: Vec<String> = ctx.rt(["list", "-q"]).ok().stdout.lines().map(String::from).collect();
    assert_eq!(ids, [step.id(0), step.id(1)], "a container for each");
    for job in jobs {
        // Here the program is the first process of a pid namespace, below rt.
        sys::kill(job.pid(), libc::SIGTERM).unwrap();
        assert_eq!(job.wait().code, 0);
    }
    step.delete();
    // What a runtime leaves that is killed while it makes or removes a container.
    let left = ctx.state.join(step.id(0));
    std::fs::create_dir(&left).unwrap();
    ctx.give(&left);
    step.command(0, &["ready"]).arg("--share=false").ok();
    step.delete();
}

fn other_ids(ctx: &Ctx) {
    let step = Step42::new(ctx);
    let dir = step.generated(0, &["say x", "exit 5"]);
    let id = ctx.id();
    let out = ctx.rt(["slurm", "run", "--bundle"]).arg(&dir).arg(&id).run();
    assert_eq!((out.code, out.line(0)), (5, json!("x")), "{out:?}");
    ctx.rt(["slurm", "delete", &id]).silent();
    ctx.rt(["slurm", "fly", "x"]).fails(&["unknown command \"fly\"", "rt slurm --help"]);
}

fn hooks_run_once(ctx: &Ctx) {
    let marks = ctx.path("marks");
    let mark = |name: &str| format!("to {} say {name}", marks.display());
    let helper = ctx.helper();
    let bundle = ctx
        .bundle()
        .hook("createRuntime", &helper, &[&mark("createRuntime")])
        .hook("poststart", &helper, &[&mark("poststart")])
        .hook("poststop", &helper, &[&mark("poststop")]);
    let step = Step42::of(ctx, bundle);
    let lines = || {
        let text = fs::read_to_string(&marks).unwrap_or_default();
        text.lines().map(String::from).collect::<Vec<_>>()
    };
    let first = step.task(0, &["pause"]);
    let second = step.task(1, &["pause"]);
    eventually("poststart", || (lines().len() == 2).then_some(()));
    end(vec![first]);
    assert_eq!(lines(), ["\"createRuntime\"", "\"poststart\""], "the container goes on");
    end(vec![second]);
    step.delete();
    assert_eq!(lines().last().unwrap(), "\"poststop\"");
    assert_eq!(lines().len(), 3);
}

fn poststop_hooks_are_not_roots(ctx: &Ctx) {
    if !Caller::tests_are_root() {
        skip!("the tests do not run as root");
    }
    let marks = ctx.path("marks");
    let mark = format!("to {} say poststop", marks.display());
    // slurmstepd's and slurmd's environment, priority and cgroup are not the job's. `end` is always theirs.
    let calls = [("delete", true), ("end", true), ("delete -f", true), ("end", false), ("delete", false)];
    for (form, by_root) in calls {
        let mut step = Step42::of(ctx, ctx.bundle().hook("poststop", &ctx.helper(), &[&mark]));
        step.bundle.config["process"]["env"].as_array_mut().unwrap().push(json!("SLURM_JOB_ID=42"));
        let job = step.task(0, &["pause"]);
        // Nobody is left to run them but who deletes.
        sys::kill(job.pid(), libc::SIGKILL).unwrap();
        job.wait();
        // Written by its owner so that it is not swept away first.
        let state = ctx.state.join(&step.container).join("state.json");
        let text = fs::read_to_string(&state).unwrap();
        let text = text.replacen(r#""inPlace":true"#, r#""inPlace":false"#, 1);
        fs::write(&state, text.replacen(r#""shared":true"#, r#""shared":false"#, 1)).unwrap();
        let _ = fs::remove_dir_all(ctx.state.join(".in-place"));
        let call = match form {
            "delete" => ctx.rt(["slurm", "delete", &step.id(-1)]),
            "end" => {
                let call = ctx.rt(["slurm", "end"]).env("SLURM_JOB_ID", "42").env("SLURM_STEP_ID", "0");
                let call = call.env("RT_CONTAINER_IMAGE", "/");
                let call = call.env("SLURMD_NODENAME", step.container.trim_end_matches(".42.0"));
                let uid = ctx.caller.host_ids().0.to_string();
                if by_root { call.env("SLURM_JOB_UID", uid) } else { call }
            }
            _ => ctx.rt(["slurm", "delete", "42"]),
        };
        if by_root {
            call.by_tests().silent()
        } else {
            call.silent()
        }
        assert!(!ctx.state.join(&step.container).exists(), "{form}, called by root: {by_root}");
        assert_eq!(marks.exists(), form == "delete" && !by_root, "{form}, called by root: {by_root}");
    }
}

/// A job of root's of the same number touches nothing of another user's: neither his state nor his hooks are read.
fn roots_job_touches_nothing_of_others(ctx: &Ctx) {
    if !Caller::tests_are_root() {
        skip!("the tests do not run as root");
    }
    fs::create_dir_all(ctx.path("run/rt-slurm")).unwrap();
    let marks = ctx.path("marks");
    let mark = format!("to {} say poststop", marks.display());
    let mut victim = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let stat = fs::read_to_string(format!("/proc/{}/stat", victim.id())).unwrap();
    let started = stat[stat.rfind(')').unwrap()..].split(' ').nth(20).unwrap().to_owned();
    let bundle = ctx.bundle().hook("poststop", &ctx.helper(), &[&mark]);
    let state = ctx.mkdir("run/rt-slurm/mallory");
    let text = json!({ "id": "n.77.0", "pid": victim.id(), "startTime": started.parse::<u64>().unwrap(),
        "bundle": "/", "rootfs": "/", "created": "", "owner": 0, "step": { "job": "77", "step": "0" } });
    for id in ["n.77.0", "77.tools"] {
        let dir = ctx.mkdir(&format!("run/rt-slurm/mallory/{id}"));
        fs::write(dir.join("state.json"), format!("{text}\n{}", bundle.config)).unwrap();
    }
    let layer = ctx.mkdir("layer");
    let kept = json!({ "image": ctx.path("image"), "is_file": false, "layer": &layer, "global": true, "maker": "77.0" });
    fs::write(state.join("77.tools/kept.json"), kept.to_string()).unwrap();
    ctx.give(&state);
    let rt = |args: &[&str]| {
        let cmd = at_site(ctx, ctx.command(ctx.rt_path()).args(args)).by_tests();
        let cmd = cmd.env("SLURM_JOB_ID", "77").env("SLURM_STEP_ID", "0").env("SLURMD_NODENAME", "n");
        cmd.env("SLURM_LOCALID", "0").env("RT_CONTAINER_IMAGE", "/")
    };
    rt(&["slurm", "end"]).silent();
    assert!(state.join("n.77.0/state.json").exists() && !marks.exists(), "his state is his");
    assert!(victim.try_wait().unwrap().is_none(), "root's process lives");
    rt(&["slurm", "save", "77.tools"]).arg(ctx.path("x.sqsh")).fails(&["no container 77.tools"]);
    victim.kill().unwrap();
    victim.wait().unwrap();
}

fn host_names_stay(ctx: &Ctx) {
    // Other nodes know the tasks by the name of theirs.
    let step = Step42::new(ctx);
    assert_eq!(step.command(0, &["names"]).ok().line(0)[0], sys::names().unwrap().0);
    step.delete();
}

fn job_directory(ctx: &Ctx) {
    let here = ctx.mkdir("here");
    let source = here.to_str().unwrap();
    let step = Step42::new(ctx);
    assert_eq!(step.command(0, &["cwd"]).cwd(&here).ok().line(0), "/", "the container has no such directory");
    let step = Step42 { bundle: step.bundle.mount(source, "bind", source, &["rbind"]), ..step };
    assert_eq!(step.command(0, &["cwd"]).cwd(&here).ok().line(0), source);
    let out = step.command(1, &["cwd"]).cwd(Path::new("/tmp")).ok();
    assert_eq!(out.line(0), "/", "its own /tmp is another directory");
    let out = step.command(1, &["cwd"]).arg("--chdir=/tmp").ok();
    assert_eq!(out.line(0), "/tmp", "asked for, it is what the container has there");
    assert_eq!(step.command(1, &["cwd"]).arg("--chdir=/not/there").ok().line(0), "/");
    step.delete();
}

fn swept_without_delete(ctx: &Ctx) {
    // Slurm 23.02 never deletes. The next step does.
    for n in 0..5 {
        let step = Step42::new(ctx);
        step.command(0, &["say x"]).ok();
        let left =
            fs::read_dir(&ctx.state).unwrap().flatten().filter(|e| e.file_name() != ".in-place").count();
        assert_eq!(left, 1, "step {n}");
    }
    assert_eq!(ctx.rt(["list", "-q"]).ok().stdout, "");
    assert!(fs::read_dir(&ctx.state).unwrap().next().is_none());
}

fn failing_task_leaves_nothing(ctx: &Ctx) {
    let step = Step42::new(ctx);
    let run = |dir: &Path| ctx.rt(["slurm", "run", "--bundle"]).arg(dir).arg(step.id(0));
    run(&ctx.path("no-bundle")).fails(&["no-bundle", "no such file"]);
    let dir = step.generated(0, &["ready"]);
    fs::write(dir.join("config.json"), "{ broken").unwrap();
    run(&dir).fails(&["config.json", "line 1"]);
    let missing = Step42 { bundle: ctx.bundle().with("/root/path", json!("nowhere")), ..Step42::new(ctx) };
    let dir = missing.generated(0, &["ready"]);
    run(&dir).fails(&["nowhere", "no such file"]);
    if ctx.caller == Caller::User && Caller::tests_are_root() {
        let closed = Step42::new(ctx);
        let dir = closed.generated(0, &["ready"]);
        sys::chown(&closed.bundle.rootfs(), 0, 0).unwrap();
        fs::set_permissions(closed.bundle.rootfs(), PermissionsExt::from_mode(0o000)).unwrap();
        run(&dir).fails(&["rootfs", "permission denied"]);
        ctx.rt(["run", "--bundle"]).arg(&dir).arg(ctx.id()).fails(&["rootfs", "permission denied"]);
    }
    let dir = step.generated(0, &["ready"]);
    let text = fs::read_to_string(dir.join("config.json")).unwrap().replace("/probe", "/not/there");
    fs::write(dir.join("config.json"), text).unwrap();
    run(&dir).fails(&["/not/there", "no such file"]);
    assert!(fs::read_dir(&ctx.state).unwrap().next().is_none(), "no state is left");
    // A task that cannot be run beside others leaves those alone.
    let job = step.task(1, &["pause"]);
    run(&dir).fails(&["/not/there", "no such file"]);
    assert_eq!((step.status(0).as_str(), step.status(1).as_str()), ("stopped", "running"));
    end(vec![job]);
    step.delete();
}

fn hidden_member_is_no_hindrance(ctx: &Ctx) {
    // A program that makes itself undumpable cannot be looked into by a plain user.
    let step = Step42::new(ctx);
    let hide = format!("syscall {} {} 0 0 0 0", libc::SYS_prctl, libc::PR_SET_DUMPABLE);
    let first = step.task(0, &[&hide, "ready", "pause"]);
    let second = step.task(1, &["pause"]);
    let third = step.task(2, &["ready", "exit 3"]);
    assert_eq!(third.wait().code, 3);
    assert_eq!(step.status(-1), "running");
    end(vec![first, second]);
    step.delete();
}

fn enter_by_job(ctx: &Ctx) {
    let step = Step42::new(ctx);
    let first = step.task(0, &["pause"]);
    let second = step.task(1, &["pause"]);
    let exec = |name: &str| ctx.rt(["exec", name, "/probe", "ns", "env"]).run();
    for name in ["42", "42.0", "42.0.0", "42.0.1"] {
        let out = exec(name);
        assert_eq!(out.all()[0]["mnt"], namespace(first.pid(), "mnt"), "{name}");
    }
    let env = exec("42.0.1").line(1);
    assert_eq!((&env["SLURM_PROCID"], env.get("ONLY0")), (&json!("1"), None), "{env}");
    for name in ["43", "42.1", "42.0.7", "42.batch"] {
        exec(name).failed(&["container does not exist"]);
    }
    let list = ctx.rt(["list"]).ok().stdout;
    let lines: Vec<Vec<&str>> = list.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!((lines[0].last(), lines[1].last()), (Some(&"JOB"), Some(&"42.0")), "{list}");
    let json = ctx.rt(["list", "--format=json"]).ok().json();
    assert_eq!((&json[0]["job"], &json[0]["step"]), (&json!("42"), &json!("0")));
    let dir = step.generated(0, &["pause"]);
    let batch = step.container.replace(".42.0", ".42.4294967291");
    ctx.remember(&batch);
    let mut job = ctx.rt(["slurm", "run", "--bundle"]).arg(dir).arg(format!("{batch}.0")).spawn();
    job.line(0);
    exec("42").failed(&["several containers", "42.0", "42.batch"]);
    assert_eq!(exec("42.batch").line(0)["mnt"], namespace(job.pid(), "mnt"));
    // What an epilog calls.
    ctx.rt(["slurm", "delete", "41"]).silent();
    assert_eq!(step.status(-1), "running");
    ctx.rt(["slurm", "delete", "42"]).silent();
    for job in [first, second, job] {
        assert_eq!(job.wait().code, 137);
    }
    assert!(fs::read_dir(&ctx.state).unwrap().next().is_none());
}

fn processes_left_behind(ctx: &Ctx) {
    if sys::kernel() < (6, 11) {
        skip!("before Linux 6.11 nothing tells whose processes are left once the first has ended");
    }
    let step = Step42::new(ctx);
    let mut job = step.command(0, &["orphan count COUNTER"]).spawn();
    job.line(0);
    assert_eq!(job.wait().code, 0);
    assert_eq!(step.status(-1), "stopped");
    step.delete();
}

/// Before Linux 6.11 the state has the number of the mount namespace, which the kernel gives to another one as soon as the
/// container has ended. Slurm ends what is left of a step, so that nobody can know whose a process is keeps none of its
/// calls from their work: an error would be in the job's output, and would drain the node where an epilog calls.
fn number_of_a_strangers_namespace(ctx: &Ctx) {
    let stranger = fs::metadata("/proc/self/ns/mnt").unwrap().ino();
    // A step that has ended, in whose state is the number of the namespace that this test, a stranger, is in.
    let ended = |number: u32| {
        let mut step = Step42::new(ctx);
        step.container = step.container.replace(".42.0", &format!(".42.{number}"));
        ctx.remember(&step.container);
        let job = step.task(0, &["pause"]);
        let path = ctx.state.join(&step.container).join("state.json");
        let text = fs::read_to_string(&path).unwrap();
        let (state, config) = text.split_once('\n').unwrap();
        let mut state: Value = serde_json::from_str(state).unwrap();
        state["mountNs"] = json!({ "inode": stranger });
        fs::write(&path, format!("{state}\n{config}")).unwrap();
        sys::kill(job.pid(), libc::SIGKILL).unwrap();
        job.wait();
        step
    };
    let nothing_left = || fs::read_dir(&ctx.state).map_or(0, Iterator::count) == 0;
    let step = ended(0);
    ctx.rt(["slurm", "kill", &step.id(-1), "KILL"]).silent();
    ctx.rt(["slurm", "kill", &step.id(0), "KILL"]).silent();
    step.delete();
    assert!(nothing_left());
    // Whoever asks for the end of every process still learns that it cannot be promised.
    let step = ended(0);
    ctx.rt(["delete", "--force", &step.container]).fails(&["first process has ended", "6.11"]);
    // What an epilog calls: one step does not keep it from the others.
    let _steps = [ended(0), ended(1)];
    ctx.rt(["slurm", "delete", "42"]).silent();
    assert!(nothing_left());
}

fn ids_of_a_silent_config(ctx: &Ctx) {
    let silent = || {
        let bundle = ctx.bundle().unset("/linux", "uidMappings").unset("/linux", "gidMappings");
        bundle.without_namespace("user")
    };
    let (uid, gid) = ctx.caller.host_ids();
    let step = Step42::of(ctx, silent());
    let out = step.command(0, &["id", "cat /proc/self/uid_map"]).ok();
    assert_eq!((&out.line(0)["uid"][0], &out.line(0)["gid"][0]), (&json!(uid), &json!(gid)));
    let map: Vec<u32> =
        out.line(1).as_str().unwrap().split_whitespace().map(|n| n.parse().unwrap()).collect();
    assert_eq!(map, [uid, uid, 1]);
    step.delete();
    let out = step.command(0, &["id"]).arg("--user-map=root").ok();
    assert_eq!(out.line(0)["uid"][0], 0);
    step.delete();
    let step = Step42::of(ctx, silent().with("/annotations", json!({ "rt.user": "root" })));
    assert_eq!(step.command(0, &["id"]).ok().line(0)["uid"][0], 0);
    step.delete();
    // What a config says is done, and plain run is as ever.
    assert_eq!(Step42::new(ctx).command(0, &["id"]).ok().line(0)["uid"][0], 0);
    assert_eq!(ctx.run(&silent().ops(&["id"])).line(0)["uid"][0], 0);
    ctx.rt(["list"]).ok();
}

fn pmix_needs_the_callers_uid(ctx: &Ctx) {
    let spool = ctx.mkdir("spool");
    let server = ctx.mkdir("spool/pmix.42.0");
    let uid = ctx.caller.host_ids().0;
    let step = Step42::new(ctx);
    let touch = format!("write {}/made x", spool.display());
    let ops = ["id", touch.as_str()];
    // By the task's environment, and as Slurm 22.05 has it by the runtime's.
    for n in [0, 1] {
        let mut step = Step42 { bundle: ctx.bundle(), ctx, container: step.container.clone() };
        let cmd = if n == 0 {
            let env = step.bundle.config["process"]["env"].as_array_mut().unwrap();
            env.push(json!(format!("PMIX_SERVER_TMPDIR={}", server.display())));
            step.command(n, &ops)
        } else {
            step.command(n, &ops).env("PMIX_SERVER_TMPDIR", &server)
        };
        let out = cmd.ok();
        assert_eq!((&out.line(0)["uid"][0], &out.line(1)), (&json!(uid), &Value::Null), "{out:?}");
        fs::remove_file(spool.join("made")).expect("made by the task, seen by the host");
        step.delete();
    }
}

fn home_by_the_jobs_environment(ctx: &Ctx) {
    // Slurm calls without HOME; the config has the job's.
    let home = ctx.mkdir("home");
    let annotations = json!({ "rt.user": "caller", "rt.home": "bind", "rt.passwd": "caller" });
    let mut step = Step42::of(ctx, ctx.bundle().with("/annotations", annotations));
    let env = step.bundle.config["process"]["env"].as_array_mut().unwrap();
    env.extend([json!(format!("HOME={}", home.display())), json!("USER=jo")]);
    let touch = format!("write {}/made x", home.display());
    let out = step.command(0, &[&touch, "cat /etc/passwd"]).ok();
    assert_eq!(fs::read_to_string(home.join("made")).unwrap(), "x");
    assert!(out.line(1).as_str().unwrap().starts_with("jo:*:"), "{out:?}");
    step.delete();
    // An image may say so, too: what is not the caller's own is not bound.
    let env = step.bundle.config["process"]["env"].as_array_mut().unwrap();
    env.retain(|v| !v.as_str().unwrap().starts_with("HOME="));
    env.push(json!("HOME=/etc"));
    let out = step.command(0, &["cat /etc/passwd"]).ok();
    assert!(out.line(0).as_str().unwrap().contains(":/tmp:"), "{out:?}");
    step.delete();
}

fn called_by_root(ctx: &Ctx) {
    if !Caller::tests_are_root() {
        skip!("the tests do not run as root");
    }
    let step = Step42::new(ctx);
    let job = step.task(0, &["deaf"]);
    let call = |form: &str| ctx.rt(["slurm", form, &step.id(-1)]).by_tests().run();
    assert_eq!(call("state").json()["status"], "running");
    assert_eq!(call("kill").code, 0);
    let out = call("delete");
    assert_eq!((out.code, out.stdout.as_str(), out.stderr.as_str()), (0, "", ""), "{out:?}");
    assert_eq!(job.wait().code, 137);
    assert_eq!(call("state").json()["status"], "stopped");
    assert_eq!(fs::metadata(&ctx.state).unwrap().uid(), ctx.caller.host_ids().0);
    assert!(fs::read_dir(&ctx.state).unwrap().next().is_none());
}

fn root_trusts_nothing(ctx: &Ctx) {
    if !Caller::tests_are_root() {
        skip!("the tests do not run as root");
    }
    // A process of root's, named by a user's state as a member, as first process, and as an alone container.
    let mut victim = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let stat = fs::read_to_string(format!("/proc/{}/stat", victim.id())).unwrap();
    let started = stat[stat.rfind(')').unwrap()..].split(' ').nth(20).unwrap().to_owned();
    let step = Step42::new(ctx);
    let state = ctx.mkdir("state");
    for id in [step.container.clone(), step.id(3)] {
        let dir = ctx.mkdir(&format!("state/{id}"));
        let text = json!({ "id": id, "pid": victim.id(), "startTime": started.parse::<u64>().unwrap(),
            "bundle": "/", "rootfs": "/", "created": "", "owner": 0, "shared": true, "inPlace": true });
        fs::write(dir.join("state.json"), format!("{text}\n{{}}")).unwrap();
        std::os::unix::fs::symlink(format!("{} {started}", victim.id()), dir.join("task.0")).unwrap();
    }
    fs::set_permissions(&state, PermissionsExt::from_mode(0o700)).unwrap();
    ctx.give(&ctx.path("state"));
    for form in ["state", "kill", "delete"] {
        ctx.rt(["slurm", form, &step.id(-1)]).by_tests().run();
        ctx.rt(["slurm", form, &step.id(0)]).by_tests().run();
    }
    assert!(victim.try_wait().unwrap().is_none(), "root's process lives");
    victim.kill().unwrap();
    victim.wait().unwrap();
    fs::remove_dir_all(&state).unwrap();
    // A link in the directory's place is not followed.
    let target = ctx.path("root-only");
    fs::create_dir(&target).unwrap();
    std::os::unix::fs::symlink(&target, &state).unwrap();
    let out = ctx.rt(["slurm", "state", &step.id(0)]).by_tests().run();
    assert_eq!((out.code, out.json()["status"].as_str()), (0, Some("stopped")));
    fs::remove_file(&state).unwrap();
}

fn no_group_of_the_directorys(ctx: &Ctx) {
    if !Caller::tests_are_root() {
        skip!("the tests do not run as root");
    }
    // With the set-group-ID bit a directory has its parent's group: what that may read, root's call must not.
    let step = Step42::new(ctx);
    let job = step.task(0, &["deaf"]);
    sys::chown(&ctx.state, ctx.caller.host_ids().0, 0).unwrap();
    let entry = ctx.state.join(&step.container);
    let text = fs::read(entry.join("state.json")).unwrap();
    fs::remove_file(entry.join("state.json")).unwrap();
    fs::write(entry.join("state.json"), text).unwrap();
    fs::set_permissions(entry.join("state.json"), PermissionsExt::from_mode(0o040)).unwrap();
    let out = ctx.rt(["slurm", "kill", &step.id(-1), "KILL"]).by_tests().run();
    out.failed(&["state", "permission denied"]);
    ctx.give(&entry);
    ctx.give_link(&ctx.state);
    fs::set_permissions(entry.join("state.json"), PermissionsExt::from_mode(0o600)).unwrap();
    let out = ctx.rt(["slurm", "delete", &step.id(-1)]).by_tests().run();
    assert_eq!(out.code, 0, "{out:?}");
    assert_eq!(job.wait().code, 137);
}

/// Slurm's directory for a task is open to the group of the job.
fn config_of_somebody_else(ctx: &Ctx) {
    if !Caller::tests_are_root() {
        skip!("the tests do not run as root");
    }
    let step = Step42::new(ctx);
    let bundle = step.generated(0, &["ready"]);
    sys::chown(&bundle.join("config.json"), 12345, 12345).unwrap();
    let run = || ctx.rt(["slurm", "run", "--bundle"]).arg(&bundle).arg(step.id(0));
    run().fails(&["config.json", "a file of uid 12345"]);
    fs::remove_file(bundle.join("config.json")).unwrap();
    std::os::unix::fs::symlink(step.bundle.dir.join("config.json"), bundle.join("config.json")).unwrap();
    run().fails(&["config.json"]);
    // The caller's own, with somebody else's words, as in a repository that he has cloned.
    fs::remove_file(bundle.join("config.json")).unwrap();
    fs::rename(&bundle, ctx.path("aside")).unwrap();
    std::os::unix::fs::symlink(&step.bundle.dir, &bundle).unwrap();
    ctx.give_link(&bundle);
    run().fails(&["others can have put", bundle.to_str().unwrap()]);
    // Brought there by a link that does not follow the name, as to what others may write to.
    fs::remove_file(&bundle).unwrap();
    fs::rename(ctx.path("aside"), &bundle).unwrap();
    fs::hard_link(step.bundle.dir.join("config.json"), bundle.join("config.json")).unwrap();
    run().fails(&["config.json", "another name"]);
    // A directory of the caller's that was there before, as of an archive that he has unpacked where the group may write.
    let job = ctx.mkdir("oci-job");
    fs::set_permissions(&job, fs::Permissions::from_mode(0o770)).unwrap();
    fs::rename(&bundle, job.join("task")).unwrap();
    let run = || ctx.rt(["slurm", "run", "--bundle"]).arg(job.join("task")).arg(step.id(0));
    run().fails(&["bundle", "others can have put", "oci-job/task"]);
    // Below a directory of the other one's, which is older than what he has brought into it.
    let his = ctx.mkdir("his");
    ctx.mkdir("his/task");
    fs::rename(job.join("task/config.json"), his.join("task/config.json")).unwrap();
    sys::chown(&his, 12345, 12345).unwrap();
    fs::rename(&his, job.join("his")).unwrap();
    let in_his = job.join("his/task");
    ctx.rt(["slurm", "run", "--bundle"])
        .arg(&in_his)
        .arg(step.id(0))
        .fails(&["others can have put", "oci-job/his"]);
    fs::rename(in_his.join("config.json"), job.join("task/config.json")).unwrap();
    fs::create_dir(job.join("new")).unwrap();
    ctx.give(&job.join("new"));
    fs::rename(job.join("task/config.json"), job.join("new/config.json")).unwrap();
    fs::remove_dir_all(job.join("task")).unwrap();
    fs::rename(job.join("new"), job.join("task")).unwrap();
    fs::remove_file(step.bundle.dir.join("config.json")).unwrap();
    run().fails(&["config.json", "older than the directory in which others can rename"]);
}

/// Slurm takes over what a bundle says, hooks among it, wherever the bundle lies and whoever can write it.
fn bundles_of_a_team_are_refused(ctx: &Ctx) {
    let mut step = Step42::new(ctx);
    let stored = ctx.mkdir("images/bundles").join(format!("sha256-{}", "ab".repeat(32)));
    fs::rename(&step.bundle.dir, &stored).unwrap();
    step.bundle.dir = stored.clone();
    let hooked = ctx.path("hooked");
    step.bundle.config["hooks"] = json!({ "createRuntime": [{ "path": "/bin/sh",
        "args": ["sh", "-c", format!("echo >{}", hooked.display())] }] });
    step.bundle.write();
    let bundle = step.generated(0, &["say hello"]);
    // By a link, too.
    let link = ctx.path("link");
    std::os::unix::fs::symlink(&stored, &link).unwrap();
    let by_link = step.generated(1, &["say hello"]);
    let text = fs::read_to_string(by_link.join("config.json")).unwrap();
    let text = text.replace(stored.to_str().unwrap(), link.to_str().unwrap());
    fs::write(by_link.join("config.json"), text).unwrap();
    // And with a root below the bundle's own.
    fs::create_dir(step.bundle.rootfs().join("below")).unwrap();
    let below = step.generated(2, &["say hello"]);
    let text = fs::read_to_string(below.join("config.json")).unwrap();
    fs::write(below.join("config.json"), text.replace("/rootfs\"", "/rootfs/below\"")).unwrap();
    let run = |bundle: &Path, task| ctx.rt(["slurm", "run", "--bundle"]).arg(bundle).arg(step.id(task));
    run(&bundle, 0).ok();
    assert!(hooked.exists(), "a bundle of the caller's own");
    for path in [stored.join("config.json"), stored.clone()] {
        fs::remove_file(&hooked).unwrap_or_default();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode | 0o020)).unwrap();
        run(&bundle, 0).fails(&["others can write this bundle", "--container-image"]);
        run(&by_link, 1).fails(&["others can write this bundle"]);
        run(&below, 2).fails(&["others can write this bundle"]);
        assert!(!hooked.exists(), "{}", path.display());
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    // A link in the place of the bundle, to one that is in no store.
    fs::remove_file(&hooked).unwrap_or_default();
    fs::rename(&stored, ctx.path("elsewhere")).unwrap();
    std::os::unix::fs::symlink(ctx.path("elsewhere"), &stored).unwrap();
    for (bundle, task) in [(&bundle, 0), (&by_link, 1)] {
        run(bundle, task).fails(&["root", "in a store no link leads to a bundle"]);
    }
    assert!(!hooked.exists());
}

/// Labels of an image stand in a config that Slurm has made, and whoever can write beside that says that they are none.
fn labels_in_a_merged_config(ctx: &Ctx) {
    let mut step = Step42::new(ctx);
    let home = ctx.mkdir("home");
    fs::write(home.join("secret"), "").unwrap();
    ctx.give(&home);
    let asked = json!({ "rt.home": "bind" });
    let labels = json!({ "rt.home": "bind", "org.opencontainers.image.created": "2026-01-01T00:00:00Z" });
    let env = step.bundle.config["process"]["env"].as_array_mut().unwrap();
    env.push(json!(format!("HOME={}", home.display())));
    let secret = format!("exists {}", home.join("secret").display());
    for (task, annotations, is_home) in [(0, asked, true), (1, labels, false)] {
        step.bundle.config["annotations"] = annotations;
        let bundle = step.generated(task, &[&secret]);
        for beside in [false, true] {
            if beside {
                fs::write(bundle.join("image.json"), "{}").unwrap();
            }
            let out = ctx.rt(["slurm", "run", "--bundle"]).arg(&bundle).arg(step.id(task)).ok();
            assert_eq!(out.line(0), is_home, "{beside}: {out:?}");
        }
    }
}

/// A user stops what looks through his state for Slurm, which waits for it.
fn roots_call_is_stopped_by_no_user(ctx: &Ctx) {
    if !Caller::tests_are_root() {
        skip!("the tests do not run as root");
    }
    // In memory: ext4 looks past each inode that was removed in the last minutes, in whatever test.
    let memory = ctx.mkdir("memory");
    sys::mount("memory", memory.to_str().unwrap(), "tmpfs", 0, "mode=755").unwrap();
    let state = ctx.mkdir("memory/many");
    for n in 0..20_000 {
        fs::create_dir(state.join(format!("n.9.{n}"))).unwrap();
    }
    ctx.give(&state);
    let uid = ctx.caller.host_ids().0.to_string();
    let delete = ["slurm", "delete", "9"];
    let mut job = ctx.command(ctx.rt_path()).arg("--root").arg(&state).args(delete).by_tests().spawn();
    let is_users = |pid: &i32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.lines().any(|line| line.starts_with("Uid:") && line.split_whitespace().nth(2) == Some(&uid))
    };
    let users = eventually("a process of the user's", || {
        let children = children(job.pid() as u32).into_iter().map(|pid| pid as i32);
        std::iter::once(job.pid()).chain(children).find(is_users)
    });
    sys::kill(users, libc::SIGSTOP).unwrap();
    let end = Instant::now() + Duration::from_secs(30);
    while job.child.try_wait().unwrap().is_none() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(50));
    }
    job.wait().failed(&["it takes more than 20 s"]);
    sys::umount(memory.to_str().unwrap(), libc::MNT_DETACH).unwrap();
}

fn root_of_nobody(ctx: &Ctx) {
    if !Caller::tests_are_root() {
        skip!("the tests do not run as root");
    }
    let step = Step42::new(ctx);
    let out = ctx.rt(["slurm", "state", &step.id(-1)]).by_tests().run();
    assert_eq!((out.code, out.json()["status"].as_str()), (0, Some("stopped")));
    ctx.rt(["slurm", "delete", &step.id(-1)]).by_tests().silent();
    assert!(!ctx.state.exists(), "root makes no directory");
}

/// A script of the site's (integration/slurm), with the test's places in it, called as slurmd calls it.
fn site_script(ctx: &Ctx, text: &str, user: &str) -> crate::fixture::Cmd {
    let text = text
        .replace("/run/rt-slurm", ctx.path("site").to_str().unwrap())
        .replace("/usr/local/bin/rt", ctx.rt_path().to_str().unwrap());
    let cmd = ctx.command("/bin/sh").args(["-c", &text]).by_tests().env("SLURM_JOB_USER", user);
    let (uid, gid) = ctx.caller.host_ids();
    cmd.env("SLURM_JOB_UID", uid.to_string()).env("SLURM_JOB_GID", gid.to_string()).env("SLURM_JOB_ID", "42")
}

/// Every oci.conf of ours bears any name that a directory service makes: AD's, LDAP's, one with blanks.
fn any_users_name(ctx: &Ctx) {
    ctx.mkdir("site");
    let files = [
        include_str!("../../integration/slurm/oci.conf"),
        include_str!("../../integration/slurm/oci-23.11.conf"),
    ];
    for (n, user) in
        ["jo@example.org", r"DOM\jo", "jo doe", "a$HOME", "müller", "x;y"].into_iter().enumerate()
    {
        let step = Step42::new(ctx);
        let dir = step.generated(0, &["pause"]);
        // As slurmstepd does it: the patterns filled in, then /bin/sh -c.
        let call = |key: &str, task: &str| {
            let line = files[n % 2].lines().find_map(|line| line.strip_prefix(key)?.strip_prefix("=\""));
            let pattern = line
                .expect(key)
                .trim_end_matches('"')
                .replace("/run/rt-slurm", ctx.path("site").to_str().unwrap());
            let id = ["42", "0", task];
            let text = [
                ("%j", id[0]),
                ("%s", id[1]),
                ("%t", id[2]),
                ("%n", "n1"),
                ("%u", user),
                ("%b", dir.to_str().unwrap()),
            ];
            let filled = text.iter().fold(pattern, |filled, (mark, value)| filled.replace(mark, value));
            let filled = filled.replace("/usr/local/bin/rt", ctx.rt_path().to_str().unwrap());
            ctx.command("/bin/sh").args(["-c", &filled])
        };
        let mut job = call("RunTimeRun", "0").spawn();
        job.line(0);
        assert!(ctx.path("site").join(user).is_dir(), "{user}");
        let status = |task| call("RunTimeQuery", task).ok().json()["status"].clone();
        assert_eq!((status("0"), status("-1")), (json!("running"), json!("running")), "{user}");
        call("RunTimeKill", "0").silent();
        assert_eq!(job.wait().code, 0);
        call("RunTimeDelete", "-1").silent();
        assert_eq!(fs::read_dir(ctx.path("site").join(user)).unwrap().count(), 0, "{user}");
    }
}

/// What the job has, its tasks have, too.
fn umask_of_the_job(ctx: &Ctx) {
    let step = Step42::new(ctx);
    let first = step.command(0, &["umask", "pause"]).before([Step::Umask(0o027)]).spawn();
    let joining = step.command(1, &["umask"]).before([Step::Umask(0o007)]);
    let mut first = first;
    assert_eq!((first.line(0), first.line(1)), (json!(0o027), json!("ready")));
    assert_eq!(joining.ok().line(0), json!(0o007));
    end(vec![first]);
    let out = step.command(2, &["umask"]).arg("--share=false").before([Step::Umask(0o077)]).ok();
    assert_eq!(out.line(0), json!(0o077));
    step.delete();
}

fn tmpdir_of_the_job(ctx: &Ctx) {
    let with = |value: &Path| {
        let mut step = Step42::new(ctx);
        let env = step.bundle.config["process"]["env"].as_array_mut().unwrap();
        env.push(json!(format!("TMPDIR={}", value.display())));
        step
    };
    let dir = ctx.mkdir("scratch/job.42");
    let step = with(&dir);
    let write = format!("write {}/made x", dir.display());
    assert_eq!(step.command(0, &[&write]).ok().line(0), Value::Null);
    assert_eq!(fs::read_to_string(dir.join("made")).unwrap(), "x");
    step.delete();
    // Not what an image may have said, and not what is not there.
    let home = ctx.mkdir("home");
    for other in [home, ctx.path("scratch/gone.42")] {
        let step = with(&other);
        let out = step.command(0, &[&format!("stat {}", other.display())]).ok();
        assert_eq!(out.line(0), errno(libc::ENOENT), "{other:?}");
        step.delete();
    }
}

/// Slurm mixes what the image sets and what the job has in one config. The image's own config lies beside its root.
fn what_an_image_sets_is_not_the_jobs(ctx: &Ctx) {
    let ran = ctx.path("ran");
    let hooks = ctx.mkdir("image-home/rt/hooks.d");
    let definition = json!({
        "version": "1.0.0", "when": { "always": true }, "stages": ["poststop", "createRuntime"],
        "hook": { "path": ctx.helper(), "args": ["probe", format!("to {} say x", ran.display())] },
    });
    ctx.file("image-home/rt/hooks.d/x.json", &definition.to_string());
    ctx.file("image-home/rt/config.toml", &format!("hooks-dirs = [{hooks:?}]\n"));
    ctx.give(&ctx.path("image-home"));
    let secret = ctx.mkdir("secret/job.42/pmix.42.0");
    ctx.give(&ctx.path("secret"));
    let of_image = [
        format!("XDG_CONFIG_HOME={}", ctx.path("image-home").display()),
        format!("HOME={}", ctx.path("secret").display()),
        format!("RT_CONTAINER_MOUNTS={}:/bound", ctx.path("secret").display()),
        format!("RT_MOUNTS={}:/bound", ctx.path("secret").display()),
        format!("TMPDIR={}", secret.parent().unwrap().display()),
        format!("PMIX_SERVER_TMPDIR={}", secret.display()),
        "PMI_FD=17".to_owned(),
    ];
    let mut bundle = ctx.bundle().with("/annotations", json!({ "rt.home": "bind", "rt.user": "caller" }));
    bundle.config["process"]["env"].as_array_mut().unwrap().extend(of_image.map(Value::from));
    bundle.write();
    let step = Step42::of(ctx, bundle);
    let (passed, _peer) = UnixStream::pair().unwrap();
    let secret = format!("exists {}", ctx.path("secret").display());
    // Also where Slurm starts the runtime with the same variables (25.05).
    for with_own in [false, true] {
        let mut cmd = step.command(0, &[&secret, "exists /bound", "fds", "env"]);
        let home = ctx.path("image-home");
        if with_own {
            let jobs = ctx.path("secret/job.42");
            cmd = cmd.env("XDG_CONFIG_HOME", &home).env("HOME", ctx.path("secret")).env("PMI_FD", "17");
            cmd = cmd.env("PMIX_SERVER_TMPDIR", jobs.join("pmix.42.0")).env("TMPDIR", jobs);
        }
        let out = cmd.before([Step::Dup(passed.as_raw_fd(), 17)]).ok();
        assert_eq!((out.line(0), out.line(1)), (json!(false), json!(false)), "{out:?}");
        assert_eq!(out.line(2), json!([0, 1, 2]), "{out:?}");
        // It has them in its own environment, as any container has what its image sets.
        assert_eq!(out.line(3)["PMI_FD"], "17");
        assert!(!ran.exists());
        step.delete();
    }
}

/// Slurm 25.05 starts the runtime with the variables of the image, too: they say neither which scontrol(1) asks for the job to be
/// requeued nor what that is told. Of an array the task alone is, whose number can be that of the array.
fn no_scontrol_of_an_image(ctx: &Ctx) {
    // No Slurm of this host has it.
    const JOB: &str = "4000000042";
    let asked = ctx.path("asked");
    let program = ctx.mkdir("bin").join("scontrol");
    let line = format!("JobId={JOB} ArrayJobId={JOB} ArrayTaskId=2 JobName=x PreemptTime=None");
    let other =
        "JobId=4000000041 ArrayJobId=4000000042 ArrayTaskId=1 JobName=x PreemptTime=2026-11-26T18:00:00";
    let text = format!(
        "#!/bin/sh\necho \"$@ ${{SLURM_CONF-}} ${{OWN-}}\" >{}\n[ \"$2\" != show ] || printf '%s\\n' '{other}' '{line}'\n",
        asked.display()
    );
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let criu = ctx.path("criu");
    fs::copy(std::env::current_exe().unwrap(), &criu).unwrap();
    let path = format!("{}:/usr/bin:/bin", ctx.path("bin").display());
    for (of_image, expected) in
        [(vec!["PATH", "SLURM_CONF"], None), (vec!["SLURM_CONF"], Some(format!("requeue {JOB}_2  own\n")))]
    {
        let mut bundle = ctx.bundle();
        bundle.config["process"]["env"] =
            json!(of_image.iter().map(|name| format!("{name}=x")).collect::<Vec<_>>());
        bundle.write();
        let mut step = Step42::of(ctx, bundle);
        step.container = step.container.replace(".42.0", &format!(".{JOB}.4294967291"));
        ctx.remember(&step.container);
        let jobs = [
            ("SLURM_JOB_ID", JOB.to_owned()),
            ("RT_CONTAINER_CHECKPOINT", ctx.path("checkpoints").display().to_string()),
            ("RT_CRIU", criu.display().to_string()),
        ];
        let env = step.bundle.config["process"]["env"].as_array_mut().unwrap();
        env.extend(jobs.iter().map(|(name, value)| json!(format!("{name}={value}"))));
        let mut cmd =
            step.command(0, &["ready", "pause"]).env("PATH", &path).env("SLURM_CONF", "x").env("OWN", "own");
        for (name, value) in &jobs {
            cmd = cmd.env(name, value);
        }
        let mut job = cmd.spawn();
        job.line(0);
        sys::kill(job.pid(), libc::SIGUSR1).unwrap();
        let out = job.wait();
        assert_eq!(out.code, 75, "{out:?}");
        assert_eq!(fs::read_to_string(&asked).ok(), expected, "{of_image:?}: {out:?}");
        step.delete();
        fs::remove_dir_all(ctx.path("checkpoints")).unwrap();
    }
}

/// What a launcher names is bound where it is a directory of root's or the caller's, by a path without links.
fn directories_of_others_are_not_bound(ctx: &Ctx) {
    if !Caller::tests_are_root() {
        skip!("the tests do not run as root");
    }
    let real = ctx.mkdir("real/job.42/pmix.42.0");
    fs::write(real.join("file"), "x").unwrap();
    ctx.give(&ctx.path("real"));
    let link = ctx.path("link");
    std::os::unix::fs::symlink(ctx.path("real"), &link).unwrap();
    let others = ctx.mkdir("others/job.42/pmix.42.0");
    fs::write(others.join("file"), "x").unwrap();
    fs::set_permissions(&others, fs::Permissions::from_mode(0o755)).unwrap();
    for dir in [&others, others.parent().unwrap()] {
        sys::chown(dir, 54321, 54321).unwrap();
    }
    for (dir, shown) in [(real, true), (link.join("job.42/pmix.42.0"), false), (others, false)] {
        for name in ["PMIX_SERVER_TMPDIR", "TMPDIR"] {
            let value = if name == "TMPDIR" { dir.parent().unwrap() } else { &dir };
            let mut step = Step42::new(ctx);
            let env = step.bundle.config["process"]["env"].as_array_mut().unwrap();
            env.push(json!(format!("{name}={}", value.display())));
            let out = step.command(0, &[&format!("exists {}/file", dir.display())]).ok();
            assert_eq!(out.line(0), json!(shown), "{name} {dir:?}");
            step.delete();
        }
    }
}

fn rank_of_a_step_in_a_script(ctx: &Ctx) {
    // Slurm 22.05: what the batch script has, its pid and its rank, is in the environment of its steps.
    let mut step = Step42::new(ctx);
    let env = step.bundle.config["process"]["env"].as_array_mut().unwrap();
    for variable in ["SLURM_TASK_PID=1", "SLURM_STEP_NODELIST=n[1-3]", "SLURM_STEP_TASKS_PER_NODE=1(x3)"] {
        env.push(json!(variable));
    }
    let job = step.command(0, &["env", "pause"]).env("SLURMD_NODENAME", "n3").spawn();
    let mut job = job;
    let env = job.line(0);
    let own = |name: &str| env[name].as_str().unwrap().to_owned();
    assert_eq!(
        (own("SLURM_PROCID"), own("SLURM_NODEID"), own("SLURM_LOCALID")),
        ("2".into(), "2".into(), "0".into())
    );
    assert_eq!(own("SLURM_TASK_PID"), job.pid().to_string());
    job.line(1);
    end(vec![job]);
    step.delete();
}

/// Has `cmd` see the test's directory `run` as /run.
fn at_site(ctx: &Ctx, cmd: crate::fixture::Cmd) -> crate::fixture::Cmd {
    let mount = |source: &str, target: &str, flags: u64| {
        Step::Mount(sys::c(Path::new(source)), sys::c(Path::new(target)), c"".into(), flags, c"".into())
    };
    let run = ctx.path("run");
    cmd.before([
        Step::Unshare(libc::CLONE_NEWNS),
        mount("none", "/", libc::MS_REC | libc::MS_PRIVATE),
        mount(run.to_str().unwrap(), "/run", libc::MS_BIND | libc::MS_REC),
    ])
}

fn found_by_any_command(ctx: &Ctx) {
    if !Caller::tests_are_root() {
        skip!("the tests do not run as root");
    }
    // As oci.conf has it: nobody names the state directory.
    fs::create_dir_all(ctx.path("run/rt-slurm")).unwrap();
    ctx.mkdir("run/rt-slurm/jo");
    fs::create_dir_all(ctx.path("run/rt-slurm/others")).unwrap();
    let rt = |args: &[&str]| at_site(ctx, ctx.command(ctx.rt_path()).args(args));
    let mut step = Step42::new(ctx);
    let env = step.bundle.config["process"]["env"].as_array_mut().unwrap();
    for variable in ["SLURM_JOB_ID=42", "SLURM_ARRAY_JOB_ID=41", "SLURM_ARRAY_TASK_ID=7"] {
        env.push(json!(variable));
    }
    let task = |number: i32| {
        let dir = step.generated(number, &["pause"]);
        let run = ["--root=/run/rt-slurm/jo", "slurm", "run", "--bundle", dir.to_str().unwrap()];
        let mut job = rt(&run).arg(format!("n1.42.0.{number}")).spawn();
        job.line(0);
        job
    };
    let (first, second) = (task(0), task(1));
    for name in ["n1.42.0", "42", "42.0", "42.0.1", "41_7", "41_7.0"] {
        let state = rt(&["state", name]).ok().json();
        assert_eq!((&state["id"], &state["status"]), (&json!("n1.42.0"), &json!("running")), "{name}");
        assert_eq!((&state["job"], &state["array"]), (&json!("42"), &json!("41_7")));
        let pids: Vec<i32> = serde_json::from_value(rt(&["ps", "-f", "json", name]).ok().json()).unwrap();
        assert!(pids.contains(&first.pid()) && pids.contains(&second.pid()), "{name}: {pids:?}");
        assert_eq!(rt(&["events", "--stats", name]).ok().json()["type"], "stats");
        assert_eq!(rt(&["exec", name, "/probe", "ns"]).ok().line(0)["mnt"], namespace(first.pid(), "mnt"));
    }
    for name in ["43", "n1.43.0", "41_8", "42.0.2"] {
        rt(&["state", name]).fails(&["container does not exist"]);
    }
    // One task, and no more.
    rt(&["kill", "42.0.1", "TERM"]).silent();
    assert_eq!(second.wait().code, 0);
    assert_eq!(rt(&["state", "42"]).ok().json()["status"], "running");
    let second = task(1);
    rt(&["delete", "42.0.1"]).fails(&["not stopped"]);
    rt(&["delete", "--force", "42.0.1"]).silent();
    assert_eq!(second.wait().code, 137);
    rt(&["delete", "42"]).fails(&["not stopped"]);
    // Root sees whose they are, and becomes their owner for more.
    let list = rt(&["list"]).by_tests().ok().stdout;
    let owner = format!("#{}", ctx.caller.host_ids().0);
    assert!(list.contains("n1.42.0") && list.contains(&owner) && list.contains("41_7.0"), "{list}");
    assert_eq!(rt(&["state", "42"]).by_tests().ok().json()["status"], "running");
    rt(&["exec", "42", "/probe", "ns"]).by_tests().fails(&["another user's"]);
    rt(&["kill", "42", "KILL"]).by_tests().silent();
    assert_eq!(first.wait().code, 137);
    rt(&["delete", "--force", "42"]).silent();
    // What somebody writes there is shown, and nothing more.
    let mut victim = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let stat = fs::read_to_string(format!("/proc/{}/stat", victim.id())).unwrap();
    let started = stat[stat.rfind(')').unwrap()..].split(' ').nth(20).unwrap().to_owned();
    let dir = ctx.mkdir("run/rt-slurm/jo/n1.44.0");
    let state = json!({ "id": "other", "pid": victim.id(), "startTime": started.parse::<u64>().unwrap(), "owner": 0,
        "bundle": "/\u{1b}[2J", "rootfs": "/", "created": "", "step": { "job": "44", "step": "0" } });
    fs::write(dir.join("state.json"), format!("{state}\n{{}}")).unwrap();
    ctx.give(&dir);
    let list = rt(&["list"]).by_tests().ok().stdout;
    assert!(list.contains("n1.44.0") && list.contains(&owner) && !list.contains('\u{1b}'), "{list}");
    rt(&["kill", "44", "KILL"]).by_tests().fails(&["not permitted"]);
    assert!(victim.try_wait().unwrap().is_none(), "root's process lives");
    victim.kill().unwrap();
    victim.wait().unwrap();
}

const PROLOG: &str = include_str!("../../integration/slurm/prolog");
const EPILOG: &str = include_str!("../../integration/slurm/epilog");

fn prolog_gives_nothing_away(ctx: &Ctx) {
    if !Caller::tests_are_root() {
        skip!("the tests do not run as root");
    }
    let mode = |path: &Path| fs::symlink_metadata(path).unwrap().mode() & 0o7777;
    let (uid, gid) = ctx.caller.host_ids();
    let ids = |path: &Path| {
        let meta = fs::symlink_metadata(path).unwrap();
        (meta.is_dir(), meta.uid(), meta.gid(), mode(path))
    };
    // As tmpfiles.conf leaves it.
    let site = ctx.path("site");
    fs::create_dir(&site).unwrap();
    fs::set_permissions(&site, PermissionsExt::from_mode(0o1777)).unwrap();
    let victim = ctx.path("roots");
    fs::create_dir(&victim).unwrap();
    fs::write(victim.join("data"), "x").unwrap();
    let before = ids(&victim);
    std::os::unix::fs::symlink(&victim, site.join("link")).unwrap();
    fs::write(site.join("file"), "").unwrap();
    fs::create_dir_all(site.join("others/step")).unwrap();
    std::os::unix::fs::symlink(&victim, site.join("others/step/link")).unwrap();
    for user in ["new", "link", "file", "others", "jo $(id) \\'ü@x"] {
        site_script(ctx, PROLOG, user).silent();
        assert_eq!(ids(&site.join(user)), (true, uid, gid, 0o700), "{user}");
        assert_eq!(fs::read_dir(site.join(user)).unwrap().count(), 0, "{user}");
        assert_eq!((ids(&site).1, mode(&site)), (0, 0o755), "closed to others");
    }
    assert_eq!((ids(&victim), fs::read(victim.join("data")).unwrap()), (before, b"x".to_vec()));
    // What a job that runs has there stays.
    fs::write(site.join("new/state"), "").unwrap();
    site_script(ctx, PROLOG, "new").silent();
    assert!(site.join("new/state").exists());
    // Nobody's lock holds a job up.
    let locked = fs::File::open(&site).unwrap();
    locked.lock().unwrap();
    let start = std::time::Instant::now();
    site_script(ctx, PROLOG, "while-locked").silent();
    assert!(start.elapsed() < std::time::Duration::from_secs(10));
    assert_eq!(ids(&site.join("while-locked")), (true, uid, gid, 0o700));
    drop(locked);
    // A name that leads elsewhere makes nothing there, and the node is not drained.
    let out = site_script(ctx, PROLOG, "new/../../roots").run();
    assert_eq!(out.code, 0, "{out:?}");
    assert_eq!(ids(&victim), before);
    // Jobs of one user that begin together.
    let jobs: Vec<Job> = (0..8).map(|_| site_script(ctx, PROLOG, "many").spawn()).collect();
    assert!(jobs.into_iter().all(|job| job.wait().code == 0));
    assert_eq!(ids(&site.join("many")), (true, uid, gid, 0o700));
}

fn epilog_ends_well(ctx: &Ctx) {
    if !Caller::tests_are_root() {
        skip!("the tests do not run as root");
    }
    // Slurm drains a node whose epilog fails, so no user may have a say in that.
    let site = ctx.path("site");
    fs::create_dir(&site).unwrap();
    fs::write(site.join("file"), "").unwrap();
    std::os::unix::fs::symlink("/", site.join("link")).unwrap();
    for user in ["file", "link", "missing"] {
        site_script(ctx, EPILOG, user).silent();
    }
    fs::create_dir_all(site.join("open/n.42.0")).unwrap();
    ctx.give(&site.join("open"));
    fs::set_permissions(site.join("open"), PermissionsExt::from_mode(0o777)).unwrap();
    let out = site_script(ctx, EPILOG, "open").run();
    assert_eq!(out.code, 0, "{out:?}");
    assert!(out.stderr.contains("writable by nobody else"), "it says what it could not do: {out:?}");
    // A job's container.
    fs::create_dir(site.join("jo")).unwrap();
    ctx.give(&site.join("jo"));
    let step = Step42::new(ctx);
    let dir = step.generated(0, &["ready", "deaf"]);
    let cmd =
        ctx.command(ctx.rt_path()).arg("--root").arg(site.join("jo")).args(["slurm", "run", "--bundle"]);
    let mut job = cmd.arg(dir).arg("n.42.0.0").spawn();
    job.line(0);
    site_script(ctx, EPILOG, "jo").silent();
    assert_eq!(job.wait().code, 137);
    // The calls at the end of a step, where somebody has made what is no directory.
    for name in ["file", "link"] {
        let call = |form: &str| {
            ctx.command(ctx.rt_path())
                .by_tests()
                .arg("--root")
                .arg(site.join(name))
                .args(["slurm", form, "n.42.0.0"])
        };
        call("delete").silent();
        call("kill").silent();
        assert_eq!(call("state").ok().json()["status"], "stopped");
    }
}

/// What a user has mounted on his state, and a file of it that he has locked, hold up nobody of root's. The server of the file
/// system never answers (`user_allow_other` lets root in).
fn root_asks_no_file_system_of_a_users(ctx: &Ctx) {
    if !Caller::tests_are_root() || !Path::new("/dev/fuse").exists() {
        skip!("the tests do not run as root, or there is no /dev/fuse");
    }
    let run = ctx.path("run");
    fs::create_dir_all(run.join("rt-slurm")).unwrap();
    for place in ["jo", "other/n.42.0", "third/n.42.0"] {
        fs::create_dir_all(run.join("rt-slurm").join(place)).unwrap();
    }
    fs::write(run.join("rt-slurm/third/n.42.0/state.json"), "").unwrap();
    // A list of mount points that were made in an image, which is that file system.
    fs::create_dir(run.join("rt-slurm/third/.images")).unwrap();
    fs::write(run.join("rt-slurm/third/.images/1-1"), "r/run/rt-slurm/jo\0d/x\0").unwrap();
    ["jo", "other", "third"].iter().for_each(|user| ctx.give(&run.join("rt-slurm").join(user)));
    let mounts = ["jo", "other/n.42.0", "third/n.42.0/state.json"].map(|place| {
        let server = fs::File::options().read(true).write(true).open("/dev/fuse").unwrap();
        let at = run.join("rt-slurm").join(place);
        let mode = if at.is_dir() { "40000" } else { "100000" };
        let (uid, gid) = ctx.caller.host_ids();
        let options =
            format!("fd={},rootmode={mode},user_id={uid},group_id={gid},allow_other", server.as_raw_fd());
        sys::mount("hang", at.to_str().unwrap(), "fuse", 0, &options).unwrap();
        (server, at)
    });
    let (uid, gid) = ctx.caller.host_ids();
    let rt = |args: &[&str]| {
        let text = format!("timeout -s KILL 15 {} {}", ctx.rt_path().display(), args.join(" "));
        let cmd = ctx.command("/bin/sh").args(["-c", &text]);
        let cmd = at_site(ctx, cmd).by_tests().env("SLURM_JOB_ID", "42").env("SLURM_JOB_USER", "jo");
        cmd.env("SLURM_JOB_UID", uid.to_string()).env("SLURM_JOB_GID", gid.to_string())
    };
    let start = std::time::Instant::now();
    rt(&["list"]).ok();
    for user in ["other", "third"] {
        rt(&[&format!("--root=/run/rt-slurm/{user}"), "slurm", "state", "n.42.0.0"]).ok();
        rt(&[&format!("--root=/run/rt-slurm/{user}"), "slurm", "delete", "42"]).run();
    }
    rt(&["--root=/run/rt-slurm/jo", "slurm", "state", "n.42.0.0"]).ok();
    rt(&["--root=/run/rt-slurm/jo", "slurm", "delete", "42"]).run();
    rt(&["slurm", "end"]).run();
    rt(&["--root=/run/rt-slurm/jo", "slurm", "begin"]).ok();
    assert!(start.elapsed() < std::time::Duration::from_secs(10), "{:?}", start.elapsed());
    for (_, at) in &mounts {
        sys::umount(at.to_str().unwrap(), libc::MNT_DETACH).unwrap();
    }
}

fn missing_state_directory(ctx: &Ctx) {
    let closed = ctx.path("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, PermissionsExt::from_mode(0o555)).unwrap();
    let dir = Step42::new(ctx).generated(0, &["ready"]);
    let mut cmd = ctx.command(ctx.rt_path()).arg("--root").arg(closed.join("user"));
    cmd = cmd.args(["slurm", "run", "--bundle"]).arg(dir).arg("n.u.1.0.0");
    cmd.fails(&["closed/user", "permission denied", "tmpfiles.d"]);
}

fn user_namespaces_switched_off(ctx: &Ctx) {
    // The limit is the client's user namespace's own.
    let key = "/proc/sys/user/max_user_namespaces";
    ctx.command("/bin/sh").args(["-c", &format!("echo 0 >{key}")]).silent();
    let step = Step42::of(ctx, ctx.bundle().namespace("user", None));
    let said = ["user.max_user_namespaces=15000", "no space left"];
    step.command(0, &["ready"]).fails(&said);
    step.command(0, &["ready"]).arg("--share=false").fails(&said);
    assert!(fs::read_dir(&ctx.state).unwrap().next().is_none());
}
