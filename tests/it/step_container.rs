//! `rt slurm prepare`, `task` and `end` as Slurm's plugin has them called, without Slurm: the container that a step asks for
//! by `RT_CONTAINER_*`.

use crate::client::Caller;
use crate::devices::{definition, definitions};
use crate::fixture::{Bundle, Cmd, Ctx, Job, Out, children, eventually, namespace};
use crate::images;
use crate::runner::{skip, tests};
use crate::slurm::end;
use crate::sys;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

tests! {
    BOTH {
        tasks_share_a_container, steps_of_one_job_at_once, the_link_is_a_task, environment_of_a_task, image_wins_over_the_job,
        pytorch_is_told_its_rank, mounts_of_a_step, wrong_mounts_start_nothing, mounts_that_are_left_out,
        working_directory, root_inside, home_of_the_caller, who_may_write, own_namespaces, pmix_of_a_task, prepare_checks_everything,
        batch_script_at_its_place, first_task_killed, a_step_runs_again, end_of_a_step, program_of_the_image,
        pmi_connection_of_a_task, as_oci_conf_calls_it, arguments_of_a_pattern,
        asked_for_a_bundle, entrypoint_runs_once, a_name_outlives_the_step, names_and_their_modes, failed_starts_leave_nothing, a_step_is_a_name, names_of_jobs_and_of_all,
        a_name_is_of_one_image, a_layer_that_is_gone, written_to_disk, written_to_memory, a_layer_that_is_still_used, no_place_to_save, remapped_under_pmix,
        named_and_killed, namespaces_of_a_name, layers_of_somebody_else, wrong_values_name_their_variable, state_beside_that_of_others,
        copies_of_an_image_file, what_hooks_confine_holds_for_all, checkpoints_of_one_task,
    }
    NESTED { tasks_share_a_container, who_may_write }
    ALL { images_by_name, saved_at_the_end, saved_by_the_last_task, saved_while_the_job_ends, saved_under_any_name, saved_under_one_name, what_is_not_saved_stays, a_layer_that_is_not_seen, an_image_that_is_not_seen, a_save_that_is_cut_off, a_running_step_is_saved, signals_of_a_script_that_is_saved, saving_writes_through_no_link, what_a_team_saves, what_leads_to_a_teams_bundle_is_saved, links_in_the_place_of_a_layer, the_place_to_save_is_no_link }
    USER { end_by_root, mounts_in_tmpfs_stop_nobody, environment_of_somebody_else }
}

/// A step of job 42 on a node of its own.
struct Step<'a> {
    ctx: &'a Ctx,
    bundle: Bundle,
    node: String,
    job: u32,
    step: u32,
    env: Vec<(String, String)>,
}

impl<'a> Step<'a> {
    fn new(ctx: &'a Ctx) -> Self {
        Self::of(ctx, ctx.bundle())
    }

    /// Of a bundle whose root is not to be written, so that what is written goes to a layer.
    fn read_only(ctx: &'a Ctx) -> Self {
        Self::of(ctx, ctx.bundle().with("/root/readonly", json!(true)))
    }

    fn of(ctx: &'a Ctx, bundle: Bundle) -> Self {
        bundle.write();
        let node = ctx.id();
        let step = Step { ctx, bundle, node, job: 42, step: 0, env: Vec::new() };
        ctx.remember(&step.container());
        step
    }

    /// The same with a variable more.
    fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.push((name.to_owned(), value.into()));
        self
    }

    /// The same step once more, without further variables.
    fn again(&self) -> Step<'a> {
        let copy =
            Bundle { dir: self.bundle.dir.clone(), config: self.bundle.config.clone(), ids: self.bundle.ids };
        Step {
            ctx: self.ctx,
            bundle: copy,
            node: self.node.clone(),
            job: self.job,
            step: self.step,
            env: Vec::new(),
        }
    }

    /// To be saved as `file` by the last of its `tasks`, with its layer in the directory of the test.
    fn saved_as(self, file: impl AsRef<Path>, tasks: u32) -> Self {
        let (tmpfs, path) = (self.ctx.dir.display().to_string(), images::search_path(self.ctx));
        let step = self.with("RT_CONTAINER_SAVE", file.as_ref().display().to_string());
        step.with("RT_CONTAINER_TASKS", tasks.to_string())
            .with("RT_CONTAINER_TMPFS", tmpfs)
            .with("PATH", path)
    }

    fn container(&self) -> String {
        format!("{}.{}.{}", self.node, self.job, self.step)
    }

    /// A command with the environment of task `task`.
    fn environment(&self, task: u32, cmd: Cmd) -> Cmd {
        let numbers = [("SLURM_JOB_ID", self.job), ("SLURM_STEP_ID", self.step)];
        let cmd = numbers.iter().fold(cmd, |cmd, (name, value)| cmd.env(name, value.to_string()));
        let cmd = cmd.env("SLURM_LOCALID", task.to_string()).env("SLURM_PROCID", (task + 4).to_string());
        let cmd = cmd.env("SLURMD_NODENAME", &self.node).env("RT_CONTAINER_IMAGE", &self.bundle.dir);
        let cmd = cmd.env("RT_CONTAINER_ARGV0", "probe");
        self.env.iter().fold(cmd, |cmd, (name, value)| cmd.env(name, value))
    }

    fn command(&self, task: u32, operations: &[&str]) -> Cmd {
        self.environment(task, self.ctx.rt(["slurm", "task", "--"]).args(operations))
    }

    /// A task that has printed its first line.
    fn task(&self, task: u32, operations: &[&str]) -> Job {
        let mut job = self.command(task, operations).spawn();
        job.line(0);
        job
    }

    fn ok(&self, operations: &[&str]) -> Out {
        self.command(0, operations).ok()
    }

    fn prepare(&self) -> Cmd {
        self.environment(0, self.ctx.rt(["slurm", "prepare"]))
    }

    /// As the plugin ends a step: nothing may be left then.
    fn end(&self) {
        self.environment(0, self.ctx.rt(["slurm", "end"])).silent();
        self.empty();
    }

    fn empty(&self) {
        let left: Vec<_> = fs::read_dir(&self.ctx.state).unwrap().flatten().map(|e| e.path()).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

fn tasks_share_a_container(ctx: &Ctx) {
    let step = Step::new(ctx);
    let before = step.bundle.strict_tree();
    let jobs: Vec<Job> = (0..4).map(|n| step.task(n, &["ready", "pause"])).collect();
    for job in &jobs {
        for name in ["user", "mnt", "pid", "net", "uts"] {
            assert_eq!(namespace(job.pid(), name), namespace(jobs[0].pid(), name), "{name}");
        }
    }
    let list = ctx.rt(["list", "--format", "json"]).ok().json();
    let list = list.as_array().unwrap();
    assert_eq!((list.len(), &list[0]["id"]), (1, &json!(step.container())), "{list:?}");
    assert_eq!((&list[0]["job"], &list[0]["step"]), (&json!("42"), &json!("0")));
    for name in ["42", "42.0", "42.0.3"] {
        let out = ctx.rt(["exec", name, "/bin/probe", "env"]).ok();
        let task = if name == "42.0.3" { json!("3") } else { json!("0") };
        assert_eq!(out.line(0)["SLURM_LOCALID"], task, "{name}");
    }
    end(jobs);
    step.end();
    assert_eq!(before, step.bundle.strict_tree(), "the image is as it was");
}

fn steps_of_one_job_at_once(ctx: &Ctx) {
    let first = Step::new(ctx);
    let second = Step { step: 1, ..first.again() };
    ctx.remember(&second.container());
    let jobs: Vec<Job> = [&first, &second, &first, &second]
        .iter()
        .enumerate()
        .map(|(n, step)| step.task(n as u32, &["ready", "pause"]))
        .collect();
    let mnt: Vec<String> = jobs.iter().map(|job| namespace(job.pid(), "mnt")).collect();
    assert_eq!((&mnt[0], &mnt[1]), (&mnt[2], &mnt[3]));
    assert_ne!(mnt[0], mnt[1], "a container for each step");
    // The end of one step leaves the other alone.
    let mut jobs = jobs.into_iter();
    let (a, b, c, d) =
        (jobs.next().unwrap(), jobs.next().unwrap(), jobs.next().unwrap(), jobs.next().unwrap());
    first.environment(0, ctx.rt(["slurm", "end"])).silent();
    assert_eq!((a.wait().code, c.wait().code), (137, 137));
    assert_eq!(ctx.rt(["list", "-q"]).ok().stdout.trim(), second.container());
    end(vec![b, d]);
    second.end();
}

/// `rt-slurm-task` is a link to `rt`, which Slurm executes in the place of the program.
fn the_link_is_a_task(ctx: &Ctx) {
    let step = Step::new(ctx);
    let link = ctx.path("rt-slurm-task");
    symlink(ctx.rt_path(), &link).unwrap();
    let run = ctx.mkdir("run");
    let by_link = |ops: &[&str]| {
        let cmd = ctx.command(&link).args(ops).env("XDG_RUNTIME_DIR", &run);
        step.environment(0, cmd)
    };
    // Whatever looks like a flag or a command of rt belongs to the program.
    let out = by_link(&["args", "--help"]).ok();
    assert_eq!(out.line(0), json!(["probe", "args", "--help"]));
    by_link(&["exit 7"]).run();
    assert_eq!(by_link(&["exit 7"]).run().code, 7);
    step.environment(0, ctx.command(ctx.rt_path()).args(["slurm", "end"]).env("XDG_RUNTIME_DIR", &run))
        .silent();
    // The state was where a caller has it who names no other place.
    for dir in fs::read_dir(&run).unwrap().flatten() {
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "{dir:?}");
    }
    // Without a program there is nothing to run.
    let cmd = ctx.command(&link).env("XDG_RUNTIME_DIR", &run);
    step.environment(0, cmd).env("RT_CONTAINER_ARGV0", "").fails(&["RT_CONTAINER_ARGV0 is not set"]);
}

fn environment_of_a_task(ctx: &Ctx) {
    let step = Step::new(ctx)
        .with("FOO", "bar")
        .with("LANG", "de_DE.UTF-8")
        .with("LANGUAGE", "de")
        .with("LC_ALL", "C.UTF-8")
        .with("LC_CTYPE", "C.UTF-8")
        .with("LD_LIBRARY_PATH", "/host/lib")
        .with("RT_CONTAINER_ENTRYPOINT", "0")
        .with("RT_CONTAINER_ENTRYPOINT_LOG", "")
        .with("EMPTY", "");
    let env = step.ok(&["env"]).line(0);
    assert_eq!((&env["FOO"], &env["EMPTY"], &env["SLURM_PROCID"]), (&json!("bar"), &json!(""), &json!("4")));
    assert_eq!(env["LC_CTYPE"], "C.UTF-8");
    for name in ["LANG", "LANGUAGE", "LC_ALL", "LD_LIBRARY_PATH"] {
        assert!(env.get(name).is_none(), "{name}");
    }
    let own = env.as_object().unwrap().keys().filter(|name| name.starts_with("RT_CONTAINER_")).count();
    assert_eq!(own, 0, "{env}");
    // What is named comes along.
    let step = step.with("RT_CONTAINER_ENV", "LC_ALL,LD_LIBRARY_PATH,NOT_SET");
    let env = step.ok(&["env"]).line(0);
    assert_eq!((&env["LC_ALL"], &env["LD_LIBRARY_PATH"]), (&json!("C.UTF-8"), &json!("/host/lib")));
    assert!(env.get("LANG").is_none() && env.get("NOT_SET").is_none(), "{env}");
    // A task that joins has its own.
    let first = step.task(0, &["ready", "pause"]);
    let env = step.again().with("ONLY1", "x").command(1, &["env"]).ok().line(0);
    assert_eq!((&env["ONLY1"], &env["SLURM_LOCALID"]), (&json!("x"), &json!("1")));
    assert!(env.get("FOO").is_none(), "{env}");
    end(vec![first]);
    step.end();
}

fn image_wins_over_the_job(ctx: &Ctx) {
    let mut bundle = ctx.bundle();
    let env = bundle.config["process"]["env"].as_array_mut().unwrap();
    env.extend([json!("CUDA_VERSION=11.8.0"), json!("PATH=/image/bin:/bin")]);
    let step = Step::of(ctx, bundle).with("CUDA_VERSION", "12.0.0").with("TERM", "dumb");
    let env = step.ok(&["env"]).line(0);
    assert_eq!((&env["CUDA_VERSION"], &env["PATH"]), (&json!("11.8.0"), &json!("/image/bin:/bin")));
    let step = step.with("RT_CONTAINER_ENV", "CUDA_VERSION");
    assert_eq!(step.ok(&["env"]).line(0)["CUDA_VERSION"], "12.0.0");
    step.end();
}

fn pytorch_is_told_its_rank(ctx: &Ctx) {
    let mut bundle = ctx.bundle();
    bundle.config["process"]["env"].as_array_mut().unwrap().push(json!("PYTORCH_VERSION=2"));
    let step = Step::of(ctx, bundle).with("RANK", "77");
    let step = step
        .with("SLURM_STEP_NODELIST", "n[07-08],m1")
        .with("SLURM_STEP_NUM_TASKS", "8")
        .with("WORLD_SIZE", "3");
    for task in [0, 1] {
        let env = step.command(task, &["env"]).ok().line(0);
        assert_eq!(env["RANK"], json!((task + 4).to_string()));
        assert_eq!(env["LOCAL_RANK"], json!(task.to_string()));
        assert_eq!((&env["MASTER_ADDR"], &env["MASTER_PORT"]), (&json!("n07"), &json!("61042")));
        assert_eq!(env["WORLD_SIZE"], "3", "what the user says");
    }
    step.end();
    let plain = Step::new(ctx).ok(&["env"]).line(0);
    assert!(plain.get("RANK").is_none() && plain.get("LOCAL_RANK").is_none(), "{plain}");
    ctx.rt(["list"]).ok();
}

fn mounts_of_a_step(ctx: &Ctx) {
    let data = ctx.mkdir("data");
    ctx.file("data/x", "hello");
    ctx.file("single", "one");
    let mounts =
        format!("{}:/d:ro,./data:/rel,{}:/e,tmpfs:/t:mode=700,./single:/f", data.display(), data.display());
    let step = Step::new(ctx)
        .with("RT_CONTAINER_MOUNTS", mounts)
        .with("RT_CONTAINER_SUBMIT_DIR", ctx.dir.display().to_string());
    let step_ops =
        ["cat /d/x", "cat /rel/x", "cat /f", "write /d/new x", "write /e/new x", "write /t/y z", "cat /t/y"];
    let out = step.command(0, &step_ops).cwd(Path::new("/")).ok();
    let all = out.all();
    assert_eq!(all[..3], [json!("hello"), json!("hello"), json!("one")]);
    assert_eq!(all[3], crate::fixture::errno(libc::EROFS), "read-only");
    assert_eq!((&all[4], &all[6]), (&Value::Null, &json!("z")));
    assert_eq!(fs::read_to_string(data.join("new")).unwrap(), "x");
    step.end();
    // Without a place for the submission, from the directory of the task; a source alone is its own place.
    let step = Step::new(ctx).with("RT_CONTAINER_MOUNTS", format!("{},./data:/rel", data.display()));
    let out = step.command(0, &["cat /rel/x", &format!("cat {}/x", data.display())]).cwd(&ctx.dir).ok();
    assert_eq!(out.all()[..2], [json!("hello"), json!("hello")]);
    // A task that joins is not asked to mount.
    let first = step.command(0, &["ready", "pause"]).cwd(&ctx.dir).spawn();
    let mut first = first;
    first.line(0);
    fs::write(data.join("x"), "later").unwrap();
    let out = step.command(1, &["cat /rel/x"]).cwd(&ctx.dir).ok();
    assert_eq!(out.line(0), "later");
    end(vec![first]);
    step.end();
}

fn wrong_mounts_start_nothing(ctx: &Ctx) {
    for (mounts, why) in [
        ("/not/there:/x", "source path does not exist: /not/there"),
        ("/tmp:/x,./not-there:/y", "source path does not exist"),
        (":", "the source is missing"),
        ("/tmp:", "is no path"),
        ("/tmp:/x,", "the source is missing"),
        ("/tmp:x", "is no path"),
        ("devpts:/x", "neither a path nor tmpfs or umount"),
        ("/tmp:../x", "leads up"),
        ("/tmp:/x/../../y", "leads up"),
        ("/tmp:/", "the root"),
        ("/tmp:/x:sideways", "sideways"),
        ("umount:/x:ro", "no flag"),
    ] {
        let step = Step::new(ctx).with("RT_CONTAINER_MOUNTS", mounts);
        step.command(0, &["say no"]).fails(&["RT_CONTAINER_MOUNTS", why]);
        step.prepare().fails(&["RT_CONTAINER_MOUNTS", why]);
    }
    let left = fs::read_dir(&ctx.state).map(|dir| dir.count()).unwrap_or(0);
    assert_eq!(left, 0);
}

fn mounts_that_are_left_out(ctx: &Ctx) {
    let data = ctx.mkdir("data");
    let bundle = ctx.bundle().mount("/mnt/in", "bind", data.to_str().unwrap(), &["rbind"]);
    bundle.mkdir("mnt/in");
    let step = Step::of(ctx, bundle);
    let write = "write /mnt/in/x y";
    assert_eq!(step.ok(&[write]).line(0), Value::Null);
    assert!(data.join("x").exists());
    fs::remove_file(data.join("x")).unwrap();
    for place in ["/mnt", "/mnt/in"] {
        let step = step
            .again()
            .with("RT_CONTAINER_MOUNTS", format!("umount:{place}"))
            .with("RT_CONTAINER_WRITABLE", "1");
        step.ok(&[write]);
        assert!(!data.join("x").exists(), "{place}");
        let _ = fs::remove_file(step.bundle.rootfs().join("mnt/in/x"));
    }
    step.end();
}

fn working_directory(ctx: &Ctx) {
    let step = Step::of(ctx, ctx.bundle().with("/process/cwd", json!("/home")));
    assert_eq!(step.ok(&["cwd"]).line(0), "/home", "that of the image");
    for (asked, found) in [("/etc", "/etc"), ("../", "/"), ("/etc/../mnt", "/mnt")] {
        let step = step.again().with("RT_CONTAINER_WORKDIR", asked);
        assert_eq!(step.ok(&["cwd"]).line(0), found, "{asked}");
    }
    let wrong = step.again().with("RT_CONTAINER_WORKDIR", "/pyxis");
    wrong.command(0, &["cwd"]).fails(&["/pyxis: no such file or directory"]);
    assert!(!step.bundle.rootfs().join("pyxis").exists());
    // Each task has its own; one that fails leaves the others alone.
    let first = step.task(0, &["ready", "pause"]);
    assert_eq!(step.again().with("RT_CONTAINER_WORKDIR", "/etc").command(1, &["cwd"]).ok().line(0), "/etc");
    wrong.command(2, &["cwd"]).fails(&["/pyxis: no such file or directory"]);
    end(vec![first]);
    step.end();
}

fn root_inside(ctx: &Ctx) {
    let (uid, _) = ctx.caller.host_ids();
    let ids = |step: &Step| {
        let out = step.ok(&["id", "cat /proc/self/uid_map"]);
        let map = out
            .line(1)
            .as_str()
            .unwrap()
            .split_whitespace()
            .map(|n| n.parse().unwrap())
            .collect::<Vec<u32>>();
        (out.line(0)["uid"][0].clone(), map)
    };
    let step = Step::new(ctx).with("RT_CONTAINER_REMAP_ROOT", "1");
    let (inside, map) = ids(&step);
    assert_eq!((inside, map[0]), (json!(0), 0));
    step.end();
    if uid != 0 {
        let step = Step::new(ctx).with("RT_CONTAINER_REMAP_ROOT", "0");
        assert_eq!(ids(&step), (json!(uid), vec![uid, uid, 1]));
        step.end();
    }
}

fn home_of_the_caller(ctx: &Ctx) {
    let home = ctx.mkdir("home");
    ctx.file("home/x", "mine");
    let there = format!("cat {}/x", home.display());
    let with_home = |step: Step<'_>| step.ok(&[&there, "cat /root/x"]).all();
    let step = |ctx| Step::new(ctx).with("HOME", home.display().to_string());
    let missing = crate::fixture::errno(libc::ENOENT);
    assert_eq!(with_home(step(ctx))[0], missing);
    assert_eq!(with_home(step(ctx).with("RT_CONTAINER_MOUNT_HOME", "1"))[0], "mine");
    let root = || step(ctx).with("RT_CONTAINER_MOUNT_HOME", "1").with("RT_CONTAINER_REMAP_ROOT", "1");
    assert_eq!(with_home(root())[1], "mine", "the home of root");
    assert_eq!(with_home(root().with("RT_CONTAINER_MOUNTS", "umount:/root"))[1], missing);
    // What the bundle asks for is refused.
    let bundle = ctx.bundle().with("/annotations", json!({ "rt.home": "bind" }));
    let of_bundle = Step::of(ctx, bundle).with("HOME", home.display().to_string());
    assert_eq!(of_bundle.ok(&[&there]).line(0), "mine");
    assert_eq!(of_bundle.with("RT_CONTAINER_MOUNT_HOME", "0").ok(&[&there]).line(0), missing);
    ctx.rt(["list"]).ok();
}

fn who_may_write(ctx: &Ctx) {
    let write = ["write /new x", "cat /new"];
    let refused = crate::fixture::errno(libc::EROFS);
    // A bundle of the user's says it itself.
    assert_eq!(Step::read_only(ctx).ok(&write).line(0), refused);
    let step = Step::read_only(ctx).with("RT_CONTAINER_WRITABLE", "1");
    let first = step.task(0, &["write /new x", "pause"]);
    assert_eq!(step.command(1, &["cat /new"]).ok().line(0), "x", "one layer for all tasks");
    end(vec![first]);
    assert!(!step.bundle.rootfs().join("new").exists());
    assert_eq!(step.ok(&["cat /new"]).line(0), crate::fixture::errno(libc::ENOENT), "gone with the step");
    let step = Step::new(ctx).with("RT_CONTAINER_WRITABLE", "0");
    assert_eq!(step.ok(&write).line(0), refused);
    ctx.rt(["list"]).ok();
}

fn own_namespaces(ctx: &Ctx) {
    let host = |name: &str| namespace(std::process::id() as i32, name);
    for (asked, own) in
        [("net", vec!["net"]), ("ipc,uts", vec!["ipc", "uts"]), ("net,ipc,uts", vec!["net", "ipc", "uts"])]
    {
        let step = Step::new(ctx).with("RT_CONTAINER_UNSHARE", asked);
        let jobs: Vec<Job> = (0..2).map(|n| step.task(n, &["ready", "pause"])).collect();
        for name in ["net", "uts", "pid"] {
            let inside = namespace(jobs[0].pid(), name);
            assert_eq!(inside != host(name), own.contains(&name), "{asked}: {name}");
            assert_eq!(inside, namespace(jobs[1].pid(), name), "{asked}: {name} of the second");
        }
        end(jobs);
        step.end();
    }
    // Shared memory goes with the IPC namespace.
    for unshare in ["net", "ipc"] {
        let step = Step::new(ctx).with("RT_CONTAINER_UNSHARE", unshare);
        let file = format!("/dev/shm/{}", step.node);
        assert_eq!(step.ok(&[&format!("write {file} x")]).line(0), Value::Null, "{unshare}");
        assert_eq!(fs::remove_file(&file).is_ok(), unshare == "net", "{unshare}");
        step.end();
    }
}

/// What PMIx' clients read, and what a program finds that looks for the directory.
fn pmix_of_a_task(ctx: &Ctx) {
    let spool = ctx.mkdir("spool");
    let server = ctx.mkdir("spool/pmix.42.0");
    let tmpfs = ctx.mkdir("tmpfs");
    let applications = format!("tmpfs/spmix_appdir_{}_42.0", ctx.caller.host_ids().0);
    ctx.mkdir(&applications);
    let step = Step::new(ctx)
        .with("PMIX_SERVER_TMPDIR", server.display().to_string())
        .with("PMIX_SECURITY_MODE", "munge,native")
        .with("PMIX_GDS_MODULE", "hash")
        .with("PMIX_MCA_gds", "mine")
        .with("RT_CONTAINER_TMPFS", tmpfs.display().to_string());
    let applications = format!("exists {}", ctx.path(&applications).display());
    let out = step.ok(&["env", "cat /proc/self/mountinfo", &applications]);
    let env = out.line(0);
    assert_eq!((&env["PMIX_MCA_psec"], &env["PMIX_MCA_gds"]), (&json!("munge,native"), &json!("mine")));
    assert!(env.get("PMIX_MCA_ptl").is_none());
    let mounts = out.line(1);
    for dir in [&spool, &server] {
        assert!(mounts.as_str().unwrap().contains(&format!(" {} ", dir.display())), "{mounts}");
    }
    assert_eq!(out.line(2), json!(true), "the application's directory in TmpFS");
    step.end();
}

fn prepare_checks_everything(ctx: &Ctx) {
    let step = Step::new(ctx);
    assert_eq!(step.prepare().ok().stdout, format!("{}\n", step.bundle.dir.display()));
    // Relative to the directory of the submission.
    let name = step.bundle.dir.file_name().unwrap().to_str().unwrap().to_owned();
    let relative = step
        .again()
        .with("RT_CONTAINER_SUBMIT_DIR", ctx.dir.display().to_string())
        .with("RT_CONTAINER_IMAGE", format!("./{name}"));
    assert_eq!(
        relative.prepare().cwd(Path::new("/")).ok().stdout,
        format!("{}\n", step.bundle.dir.display())
    );
    let wrong = |name: &str, value: &str, why: &str| {
        step.again().with(name, value).prepare().fails(&[name, why]);
    };
    wrong("RT_CONTAINER_NAME", "/tmp/foo", "no name of a container");
    wrong("RT_CONTAINER_NAME", "x:attach", "none of auto");
    wrong("RT_CONTAINER_SAVE", "/tmp/", "target is a directory");
    wrong("RT_CONTAINER_SAVE", "/tmp", "target is a directory");
    wrong("RT_CONTAINER_UNSHARE", "pid", "unknown namespace \"pid\": none of net");
    wrong("RT_CONTAINER_ENV", "A,", "no name of a variable");
    wrong("RT_CONTAINER_SCOPE", "node", "neither job nor global");
    let image = |value: &str| {
        let step = step.again().with("RT_CONTAINER_IMAGE", value).with("RT_CONTAINER_TMPFS", "/dev/shm");
        step.prepare().env("PATH", "/not/there")
    };
    image("").fails(&["RT_CONTAINER_IMAGE is not set"]);
    image("/not/there").fails(&["/not/there", "no such file"]);
    ctx.file("x.tar", "");
    image(ctx.path("x.tar").to_str().unwrap()).fails(&["neither a squashfs nor a SIF image"]);
    assert!(fs::read_dir(&ctx.state).map(|dir| dir.count()).unwrap_or(0) == 0, "prepare makes no container");
}

/// sbcast(1) is a stand-in, which copies a file to where it is told.
/// integration/checkpoint/slurm has what comes of it where there is a criu.
fn checkpoints_of_one_task(ctx: &Ctx) {
    let asked = || Step::new(ctx).with("RT_CONTAINER_CHECKPOINT", "./ck.%j").with("RT_CRIU", "/no-criu");
    let task = |step: Step<'_>, texts: &[&str]| drop(step.command(0, &["ready"]).fails(texts));
    task(asked(), &["/no-criu", "no such program"]);
    task(asked().with("SLURM_STEP_NUM_TASKS", "2"), &["RT_CONTAINER_CHECKPOINT: the step has 2 tasks"]);
    task(asked().with("RT_CONTAINER_NAME", "x"), &["RT_CONTAINER_CHECKPOINT and RT_CONTAINER_NAME exclude"]);
}

fn copies_of_an_image_file(ctx: &Ctx) {
    let bin = ctx.mkdir("bin");
    let log = ctx.file("log", "");
    let text = format!(
        "#!/bin/sh\n[ -z \"$SBCAST_FORCE\" ] || exit 9\necho \"$1 $2\" >>{}\n[ ! -e \"$4\" ] || {{ echo there >&2; exit 1; }}\n\
         exec cp -p \"$3\" \"$4\"\n",
        log.display()
    );
    fs::write(bin.join("sbcast"), text).unwrap();
    fs::set_permissions(bin.join("sbcast"), PermissionsExt::from_mode(0o755)).unwrap();
    let image = ctx.file("x.sqsh", "hsqs and more of it");
    let image = Path::new(&image);
    let tmp = ctx.mkdir("tmpfs");
    let step = Step::new(ctx)
        .with("RT_CONTAINER_IMAGE", image.display().to_string())
        .with("RT_CONTAINER_TMPFS", tmp.display().to_string())
        .with("RT_CONTAINER_BROADCAST", "1");
    let broadcast = |job: &str| {
        let path = format!("{}:/usr/bin:/bin", bin.display());
        step.environment(0, ctx.rt(["slurm", "broadcast", job])).env("PATH", path).env("SBCAST_FORCE", "1")
    };
    let copies = || -> Vec<_> { fs::read_dir(&tmp).unwrap().flatten().map(|entry| entry.path()).collect() };
    let original = format!("{}\n", image.display());
    let prepared = || {
        let out = step.prepare().ok();
        assert_eq!(out.stderr, "");
        out.stdout
    };
    // No srun has made a copy: a batch script's step, for one.
    assert_eq!(prepared(), original);
    broadcast("42").silent();
    let [copy] = &copies()[..] else { panic!("{:?}", copies()) };
    assert!(copy.file_name().unwrap().to_str().unwrap().starts_with("rt-image-42-"), "{copy:?}");
    assert_eq!(prepared(), format!("{}\n", copy.display()));
    // Another step of the job.
    broadcast("42").silent();
    assert_eq!(fs::read_to_string(&log).unwrap(), "--preserve --jobid=42\n");
    // Another job's is not taken, nor one that is not whole, a link, or older than the image.
    let refused = || {
        let why = "sbcast: no room";
        let out = step.prepare().env("SLURM_RT_NOT_BROADCAST", why).ok();
        assert_eq!(out.stdout, original);
        assert!(out.stderr.contains("was not copied to this node: sbcast: no room"), "{out:?}");
    };
    let elsewhere = ctx.path("elsewhere");
    fs::rename(copy, &elsewhere).unwrap();
    refused();
    symlink(&elsewhere, copy).unwrap();
    refused();
    broadcast("42").fails(&["there"]);
    fs::remove_file(copy).unwrap();
    fs::write(copy, "hsqs").unwrap();
    refused();
    fs::remove_file(copy).unwrap();
    fs::rename(&elsewhere, copy).unwrap();
    assert_eq!(prepared(), format!("{}\n", copy.display()));
    fs::write(image, "hsqs and something newer").unwrap();
    refused();
    // What a container is started from for all jobs stays where it is.
    fs::remove_file(copy).unwrap();
    broadcast("42").silent();
    let global = step.prepare().env("RT_CONTAINER_NAME", "x").env("RT_CONTAINER_SCOPE", "global");
    assert_eq!(global.ok().stdout, original);
    broadcast("x").fails(&["\"x\" is no job"]);
    broadcast("42")
        .env("RT_CONTAINER_IMAGE", &step.bundle.dir)
        .fails(&["is no file", "rt pull IMAGE FILE.sqsh"]);
    broadcast("43").env("PATH", "/not/there").fails(&["execute sbcast"]);
    // TmpFS is for everybody, and a copy there lets nobody read what he could not read before.
    let dir = ctx.mkdir("closed");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
    let public = ctx.dir.ancestors().all(|dir| mode(dir) & 1 != 0);
    let set_mode = |path: &Path, bits| fs::set_permissions(path, fs::Permissions::from_mode(bits)).unwrap();
    for (n, (of_dir, of_file)) in
        [(0o700, 0o644), (0o750, 0o644), (0o755, 0o640), (0o755, 0o600), (0o755, 0o644)]
            .into_iter()
            .enumerate()
    {
        let (image, job) = (dir.join("x.sqsh"), format!("{}", 50 + n));
        fs::write(&image, "hsqs and more of it").unwrap();
        ctx.give(&image);
        set_mode(&image, of_file);
        set_mode(&dir, of_dir);
        let image = || image.display().to_string();
        broadcast(&job).env("RT_CONTAINER_IMAGE", image()).silent();
        let copies = copies();
        let copy =
            copies.iter().find(|copy| copy.display().to_string().contains(&format!("rt-image-{job}-")));
        let copy = copy.unwrap();
        let expected = if public && of_dir == 0o755 && of_file == 0o644 { 0o644 } else { 0o600 };
        assert_eq!(mode(copy) & 0o777, expected, "{of_dir:o} {of_file:o}");
        let out = step.prepare().env("RT_CONTAINER_IMAGE", image()).env("SLURM_JOB_ID", &job).ok();
        assert_eq!(out.stdout, format!("{}\n", copy.display()), "{out:?}");
    }
}

/// An image is pulled once, whoever asks first, and again where it has been removed.
fn images_by_name(ctx: &Ctx) {
    let path = images::search_path(ctx);
    let with = |cmd: Cmd| {
        let cmd = cmd.env("PATH", &path);
        cmd.env("RT_IMAGES", ctx.path("images")).env("RT_CACHE", ctx.path("cache"))
    };
    let name = format!("oci:{}:t", ctx.path("layout").display());
    let step = Step::new(ctx).with("RT_CONTAINER_IMAGE", &name);
    with(ctx.rt(["save", "-q"])).arg(&step.bundle.dir).arg(&name).ok();
    let prepared = with(step.prepare()).ok().stdout;
    let bundle = prepared.trim_end().to_owned();
    assert!(bundle.starts_with(ctx.path("images/bundles").to_str().unwrap()), "{prepared}");
    let resolved = step.again().with("RT_CONTAINER_IMAGE", &name).with("RT_CONTAINER_RESOLVED", &bundle);
    let first = with(resolved.command(0, &["write /new x", "pause"])).spawn();
    let mut first = first;
    assert_eq!(first.line(0), Value::Null, "an image can be written to");
    // With and without the answer of prepare it is the same container.
    for step in [&step, &resolved] {
        assert_eq!(with(step.command(1, &["cat /new"])).ok().line(0), "x");
    }
    assert!(!Path::new(&bundle).join("rootfs/new").exists());
    end(vec![first]);
    // Removed between prepare and the task.
    with(ctx.rt(["rmi", "--force", &name])).run();
    with(ctx.rt(["prune", "--all"])).run();
    assert!(!Path::new(&bundle).exists(), "removed");
    assert_eq!(with(resolved.command(0, &["say again"])).ok().line(0), "again");
    assert!(Path::new(&bundle).exists());
    // An image that is not there ends the task before anything is made.
    let wrong = step.again().with("RT_CONTAINER_IMAGE", format!("{name}ypo"));
    for cmd in [wrong.prepare(), wrong.command(0, &["say no"])] {
        with(cmd).fails(&["no image \"typo\""]);
    }
    step.end();
}

fn batch_script_at_its_place(ctx: &Ctx) {
    // Slurm keeps the script in a directory of its own, which no image has.
    let spool = ctx.mkdir("spool/job00042");
    let script = spool.join("slurm_script");
    fs::write(&script, "#!/bin/probe\n").unwrap();
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    ctx.give(&ctx.path("spool"));
    let step = Step::new(ctx).with("RT_CONTAINER_ARGV0", script.display().to_string());
    let batch = |cmd: Cmd| cmd.env("SLURM_STEP_ID", "").env("RT_CONTAINER_STEPID", "4294967291");
    let id = format!("{}.42.4294967291", step.node);
    ctx.remember(&id);
    // No other step is shown it.
    step.command(0, &["args"]).fails(&["slurm_script", "no such file"]);
    // The kernel calls the interpreter with the script's path, which is none of its operations.
    let out = batch(step.command(0, &["args"])).ok();
    assert_eq!(out.line(1), json!(["/bin/probe", script.display().to_string(), "args"]));
    let out = batch(step.command(0, &[&format!("write {} x", script.display())])).ok();
    assert_eq!(out.line(1), crate::fixture::errno(libc::EROFS), "and read-only");
    batch(step.environment(0, ctx.rt(["slurm", "end"]))).silent();
    step.empty();
}

fn first_task_killed(ctx: &Ctx) {
    let step = Step::read_only(ctx).with("RT_CONTAINER_WRITABLE", "1");
    let first = step.task(0, &["write /new x", "pause"]);
    let second = step.task(1, &["ready", "pause"]);
    sys::kill(first.pid(), libc::SIGKILL).unwrap();
    assert_eq!(first.wait().code, 137);
    let third = step.command(2, &["cat /new"]).ok();
    assert_eq!(third.line(0), "x", "the second keeps the container");
    sys::kill(second.pid(), libc::SIGKILL).unwrap();
    second.wait();
    // Killed at any moment of its start, too.
    for n in 0..20u64 {
        let first = step.command(0, &["pause"]).spawn();
        let other = step.command(1, &["ready"]).spawn();
        std::thread::sleep(std::time::Duration::from_micros(n * 300));
        sys::kill(first.pid(), libc::SIGKILL).unwrap();
        let out = other.wait();
        assert_eq!((out.code, out.stderr.as_str()), (0, ""), "{out:?}");
        first.wait();
    }
    step.end();
}

/// A requeued job has the same numbers.
fn a_step_runs_again(ctx: &Ctx) {
    let step = Step::read_only(ctx).with("RT_CONTAINER_WRITABLE", "1");
    for _ in 0..3 {
        let jobs: Vec<Job> = (0..2).map(|n| step.task(n, &["cat /left", "write /left x", "pause"])).collect();
        let mut jobs = jobs.into_iter();
        let (mut first, second) = (jobs.next().unwrap(), jobs.next().unwrap());
        assert_eq!(first.line(0), crate::fixture::errno(libc::ENOENT), "nothing of the run before");
        for job in [first, second] {
            sys::kill(job.pid(), libc::SIGKILL).unwrap();
            job.wait();
        }
    }
    step.end();
}

fn arguments_of_a_pattern(ctx: &Ctx) {
    let shell = |arguments: &str| {
        let rt = ctx.rt_path();
        // As in oci.conf, where the shell substitutes what rt prints before it comes to the comment.
        let pattern =
            format!("echo --arguments=$({} slurm arguments) end #arguments {arguments}", rt.display());
        ctx.command("/bin/sh").args(["-c", &pattern]).run()
    };
    for (arguments, encoded) in [
        ("'id'", "id"),
        ("'sh' '-c' 'echo $HOME `x`; #arguments '", "sh+-c+echo%20%24HOME%20%60x%60%3b%20%23arguments%20"),
        ("'it'\"'\"''s' ''", "it%27s+"),
    ] {
        let out = shell(arguments);
        assert_eq!(
            (out.stdout.as_str(), out.stderr.as_str()),
            (&*format!("--arguments={encoded} end\n"), ""),
            "{out:?}"
        );
    }
    for wrong in ["", "id", "'id"] {
        let out = shell(wrong);
        assert!(out.stderr.contains("oci.conf: ") && out.stdout == "--arguments= end\n", "{wrong}: {out:?}");
    }
}

fn end_of_a_step(ctx: &Ctx) {
    let step = Step::new(ctx);
    step.end_of_nothing();
    let mut job = step.command(0, &["orphan count COUNTER"]).spawn();
    job.line(0);
    assert_eq!(job.wait().code, 0);
    step.end();
    ctx.rt(["slurm", "end"]).fails(&["SLURM_JOB_ID is not set"]);
    ctx.rt(["slurm", "end"]).env("SLURM_JOB_ID", "x/../y").fails(&["no number"]);
}

impl Step<'_> {
    fn end_of_nothing(&self) {
        self.environment(0, self.ctx.rt(["slurm", "end"])).silent();
    }
}

fn program_of_the_image(ctx: &Ctx) {
    // The name is looked for in the image's PATH, not in the host's.
    let step = Step::of(ctx, ctx.bundle().with("/process/env", json!(["PATH=/bin"])));
    let out = step.command(0, &["exe"]).env("PATH", "/usr/bin:/host").ok();
    assert_eq!(out.line(0), "/bin/probe");
    step.command(0, &[]).env("RT_CONTAINER_ARGV0", "no-such-program").fails(&["no-such-program", "PATH"]);
    step.command(0, &[]).env("RT_CONTAINER_ARGV0", "./bin/x").fails(&["./bin/x", "no such file"]);
    let at = step.again().with("RT_CONTAINER_WORKDIR", "/bin");
    assert_eq!(at.command(0, &["exe"]).env("RT_CONTAINER_ARGV0", "./probe").ok().line(0), "/bin/probe");
    step.end();
}

fn pmi_connection_of_a_task(ctx: &Ctx) {
    use crate::sys::Step as Before;
    use std::os::fd::AsRawFd;
    let (passed, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
    let step = Step::new(ctx).with("PMI_FD", "17").with("PMI_RANK", "0");
    let first = step.task(3, &["ready", "pause"]);
    for task in [0, 1] {
        let steps = [5, 17, 18].map(|to| Before::Dup(passed.as_raw_fd(), to));
        let out = step.command(task, &["fds", "env"]).before(steps).ok();
        assert_eq!(out.line(0), json!([0, 1, 2, 17]), "task {task}");
        assert_eq!(out.line(1)["PMI_FD"], "17");
    }
    end(vec![first]);
    step.end();
}

/// With `IgnoreFileConfigJson` Slurm passes the name of an image on, and the task's environment in a file.
fn as_oci_conf_calls_it(ctx: &Ctx) {
    let here = ctx.mkdir("here");
    let source = here.to_str().unwrap();
    let step = Step::of(ctx, ctx.bundle().mount(source, "bind", source, &["rbind"]));
    let bundle = step.bundle.dir.to_str().unwrap();
    let file = |task: u32, more: &[&str]| {
        let numbers =
            format!("SLURM_JOB_ID=42\0SLURM_STEP_ID=0\0SLURM_LOCALID={task}\0SLURM_PROCID={task}\0");
        let text = format!("{numbers}TWO=a\nb\0PATH=/host/bin\0{}\0", more.join("\0"));
        ctx.file(&format!("environment{task}"), &text)
    };
    let call = |task: u32, more: &[&str], args: &[&str]| {
        let cmd = ctx.rt(["slurm", "task", "--image", bundle, "--environment"]).arg(file(task, more));
        let cmd = cmd.arg(format!("{}.{task}", step.container())).arg("--").args(args);
        cmd.env("SLURMD_NODENAME", "n7").env("OF_SLURMSTEPD", "x").cwd(&here)
    };
    // Words of the program that look like this call's own.
    let out = call(0, &["X=1"], &["probe", "env", "cwd", "args", "--environment", "--image=x"]).ok();
    let env = out.line(0);
    assert_eq!(
        (&env["TWO"], &env["X"], &env["SLURMD_NODENAME"]),
        (&json!("a\nb"), &json!("1"), &json!("n7"))
    );
    assert!(env.get("OF_SLURMSTEPD").is_none() && env["PATH"] != "/host/bin", "{env}");
    assert_eq!(out.line(1), source, "the job's directory, which the container has");
    assert_eq!(out.line(2), json!(["probe", "env", "cwd", "args", "--environment", "--image=x"]));
    // Slurm has looked the program up on the host.
    assert_eq!(call(0, &[], &["/usr/local/bin/probe", "exe"]).ok().line(0), "/bin/probe");
    call(0, &[], &["/usr/local/bin/no-probe", "exe"]).fails(&["/usr/local/bin/no-probe", "no such file"]);
    // What users set counts here, too; what a plugin sets for another step does not.
    let data = ctx.mkdir("data");
    ctx.file("data/x", "hello");
    let mounts = format!("RT_CONTAINER_MOUNTS={}:/mnt", data.display());
    let more = [
        &mounts,
        "RT_CONTAINER_ARGV0=sh",
        "RT_CONTAINER_RESOLVED=/not/there",
        "RT_CONTAINER_IMAGE=/not/there",
    ];
    assert_eq!(call(0, &more, &["probe", "cat /mnt/x"]).ok().line(0), "hello");
    call(0, &["RT_CONTAINER_MOUNTS=/not/there:/x"], &["probe"])
        .fails(&["source path does not exist: /not/there"]);
    // Tasks share, and what is left the next step removes: nobody calls delete.
    let mut first = call(0, &[], &["probe", "ready", "pause"]).spawn();
    first.line(0);
    let mut second = call(1, &[], &["probe", "env", "pause"]).spawn();
    assert_eq!(second.line(0)["SLURM_PROCID"], "1");
    assert_eq!(namespace(first.pid(), "mnt"), namespace(second.pid(), "mnt"));
    end(vec![first, second]);
    let missing =
        ctx.rt(["slurm", "task", "--environment", "/not/there", "--image", bundle, "a.1.0.0", "--", "x"]);
    missing.fails(&["--environment: read /not/there"]);
    assert_eq!(ctx.rt(["list", "-q"]).ok().stdout, "");
    step.empty();
}

/// Slurm's directory for a task, which has the file, is open to the group of the job. The file is all of the environment.
fn environment_of_somebody_else(ctx: &Ctx) {
    if !Caller::tests_are_root() {
        skip!("the tests do not run as root");
    }
    let step = Step::new(ctx);
    let text = "SLURM_JOB_ID=42\0SLURM_STEP_ID=0\0SLURM_LOCALID=0\0SLURM_PROCID=0\0";
    let dir = ctx.mkdir("task");
    let (file, elsewhere) = (ctx.file("task/environment", text), ctx.file("elsewhere", text));
    let run = || {
        let cmd = ctx.rt(["slurm", "task", "--image"]).arg(&step.bundle.dir).arg("--environment").arg(&file);
        cmd.arg(format!("{}.0", step.container())).args(["--", "probe", "say hello"])
    };
    assert_eq!(run().ok().line(0), "hello");
    sys::chown(&file, 12345, 12345).unwrap();
    run().fails(&["--environment", "a file of uid 12345"]);
    fs::remove_file(&file).unwrap();
    symlink(&elsewhere, &file).unwrap();
    run().fails(&["--environment"]);
    fs::remove_file(&file).unwrap();
    fs::rename(&elsewhere, &file).unwrap();
    assert_eq!(run().ok().line(0), "hello");
    // By way of the directory.
    let aside = ctx.path("aside");
    fs::rename(&dir, &aside).unwrap();
    symlink(&aside, &dir).unwrap();
    ctx.give_link(&dir);
    run().fails(&["--environment", "others can have put"]);
    step.end();
}

/// In a bundle's generated config, the job's variables are those of the program.
fn asked_for_a_bundle(ctx: &Ctx) {
    let data = ctx.mkdir("data");
    ctx.file("data/x", "hello");
    let step = Step::read_only(ctx);
    let run = |task: u32, more: &[String], ops: &[&str]| {
        let dir = ctx.mkdir(&format!("generated{task}"));
        let mut config = step.bundle.config.clone();
        config["root"]["path"] = json!(step.bundle.rootfs());
        let mut args = vec!["/probe"];
        args.extend(ops);
        config["process"]["args"] = json!(args);
        let env = config["process"]["env"].as_array_mut().unwrap();
        env.extend(more.iter().map(|variable| json!(variable)));
        Bundle { dir: dir.clone(), config, ids: step.bundle.ids }.write();
        ctx.rt(["slurm", "run", "--bundle"]).arg(dir).arg(format!("{}.{task}", step.container()))
    };
    let asked = [
        format!("RT_CONTAINER_MOUNTS={}:/mnt:ro,./data:/home", data.display()),
        format!("SLURM_SUBMIT_DIR={}", ctx.dir.display()),
        "RT_CONTAINER_WORKDIR=/etc".to_owned(),
        "RT_CONTAINER_WRITABLE=1".to_owned(),
        "RT_CONTAINER_UNSHARE=uts".to_owned(),
    ];
    let out =
        run(0, &asked, &["cat /mnt/x", "cat /home/x", "cwd", "write /new x", "write /mnt/y z", "env"]).ok();
    let all = out.all();
    assert_eq!(all[..4], [json!("hello"), json!("hello"), json!("/etc"), Value::Null], "{out:?}");
    assert_eq!(all[4], crate::fixture::errno(libc::EROFS));
    let shown = all[5].as_object().unwrap().keys().filter(|name| name.starts_with("RT_CONTAINER_")).count();
    assert_eq!(shown, 0, "{}", all[5]);
    assert!(!step.bundle.rootfs().join("new").exists());
    run(0, &["RT_CONTAINER_MOUNTS=/not/there:/x".to_owned()], &["say no"])
        .fails(&["source path does not exist"]);
    run(0, &["RT_CONTAINER_WORKDIR=/pyxis".to_owned()], &["say no"]).fails(&["/pyxis: no such file"]);
    let root = run(0, &["RT_CONTAINER_REMAP_ROOT=1".to_owned()], &["id", "write /new x"]).ok();
    assert_eq!((&root.line(0)["uid"][0], &root.line(1)), (&json!(0), &Value::Null));
    ctx.rt(["list"]).ok();
    step.end();
}

/// What an epilog calls: root becomes the user, and ends what the job has left.
fn end_by_root(ctx: &Ctx) {
    if !crate::client::Caller::tests_are_root() {
        crate::runner::skip!("the tests do not run as root");
    }
    let step = Step::new(ctx);
    let other = Step { job: 43, ..step.again() };
    ctx.remember(&other.container());
    let jobs: Vec<Job> = [&step, &other].iter().map(|step| step.task(0, &["ready", "pause"])).collect();
    let mut jobs = jobs.into_iter();
    let (killed, stays) = (jobs.next().unwrap(), jobs.next().unwrap());
    let uid = ctx.caller.host_ids().0.to_string();
    let epilog = |job: &str| {
        let cmd = ctx.rt(["slurm", "end"]).by_tests().env("SLURM_JOB_ID", job);
        cmd.env("SLURM_JOB_UID", &uid)
    };
    epilog("42").silent();
    assert_eq!(killed.wait().code, 137);
    assert_eq!(ctx.rt(["list", "-q"]).ok().stdout.trim(), other.container());
    // A job that is not there.
    epilog("41").silent();
    epilog("x").fails(&["SLURM_JOB_ID", "no number"]);
    epilog("42").env("SLURM_JOB_UID", "jo").fails(&["SLURM_JOB_UID is no number"]);
    end(vec![stays]);
    epilog("43").silent();
    step.empty();
    // Copies of images end with their job, and others' files stay.
    let tmp = ctx.mkdir("tmpfs");
    let names = ["rt-image-42-1-2-3", "rt-image-43-1-2-3", "rt-image-42-of-another"];
    names.iter().for_each(|name| fs::write(tmp.join(name), "").unwrap());
    names[..2].iter().for_each(|name| ctx.give_link(&tmp.join(name)));
    epilog("42").env("RT_CONTAINER_TMPFS", &tmp).silent();
    assert_eq!(names.map(|name| tmp.join(name).exists()), [false, true, true]);
    // So do layers of which no container is there any more. What has another job's number in its name is that job's.
    let dir = tmp.join(format!("rt-layers-{uid}"));
    let of_job = ["42.tools", "node.42.0", "a.node.42.7"];
    let stays = ["43.42.1", "42", "node.43.42", "420.tools", "42.shared"];
    fs::create_dir(&dir).unwrap();
    ctx.give_link(&dir);
    for name in of_job.iter().chain(&stays) {
        fs::create_dir(dir.join(name)).unwrap();
        ctx.give_link(&dir.join(name));
    }
    // A container that is there for all jobs.
    let all = step.again().with("RT_CONTAINER_TMPFS", tmp.display().to_string());
    let all = all.with("RT_CONTAINER_NAME", "42.shared").with("RT_CONTAINER_SCOPE", "global");
    ctx.remember("42.shared");
    all.ok(&["ready"]);
    epilog("42").env("RT_CONTAINER_TMPFS", &tmp).silent();
    let mut left: Vec<_> =
        fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    left.sort();
    assert_eq!(left, ["42", "42.shared", "420.tools", "43.42.1", "node.43.42"]);
    ctx.rt(["delete", "42.shared"]).silent();
}

/// Only the first task runs the hooks of the stage precreate: what they confine holds for those that join it, too.
fn what_hooks_confine_holds_for_all(ctx: &Ctx) {
    let step = Step::read_only(ctx);
    let limits = r#""rlimits": [{ "type": "RLIMIT_NPROC", "soft": 777, "hard": 777 }], "args""#;
    let section = r#""seccomp": { "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
        { "names": ["sync"], "action": "SCMP_ACT_ERRNO", "errnoRet": 42 }] }, "namespaces""#;
    let script = format!("sed 's/\"args\"/{limits}/; s/\"namespaces\"/{}/'", section.replace('\n', " "));
    let mut hook = definition(Path::new("/bin/sh"), &[], json!({ "always": true }), &["precreate"]);
    hook["hook"]["args"] = json!(["sh", "-c", script]);
    let dir = definitions(ctx, "confine.json", &hook);
    let task = |n: u32, operations: &[&str]| {
        let words = ["slurm", "task", "--hooks-dir", dir.to_str().unwrap(), "--"];
        step.environment(n, ctx.rt(words).args(operations))
    };
    // RLIMIT_NPROC is 6, and sync 162 on x86_64.
    let mut first = task(0, &["rlimit 6", "syscall 162", "pause"]).spawn();
    let expected = [json!([777, 777]), crate::fixture::errno(42)];
    assert_eq!([first.line(0), first.line(1)], expected);
    let out = task(1, &["rlimit 6", "syscall 162"]).ok();
    assert_eq!([out.line(0), out.line(1)], expected, "{out:?}");
    sys::kill(first.pid(), libc::SIGTERM).unwrap();
    first.wait();
    step.end();
}

/// Another user may mount a file system at what is his in a directory for everybody, whose server refuses all others, never
/// answers, or is gone.
fn mounts_in_tmpfs_stop_nobody(ctx: &Ctx) {
    if !crate::client::Caller::tests_are_root() || !Path::new("/dev/fuse").exists() {
        crate::runner::skip!("the tests do not run as root, or there is no /dev/fuse");
    }
    let base = Step::read_only(ctx);
    let (uid, _) = ctx.caller.host_ids();
    for (n, options) in ["", ",allow_other", "gone"].iter().enumerate() {
        let tmpfs = ctx.mkdir(&format!("tmpfs{n}"));
        fs::set_permissions(&tmpfs, PermissionsExt::from_mode(0o1777)).unwrap();
        let taken = [
            format!("rt-layers-{uid}"),
            "rt".to_owned(),
            "rt-image-42-1-2-3".to_owned(),
            format!("spmix_appdir_{uid}_42.0"),
        ]
        .map(|name| tmpfs.join(name));
        [0, 1, 3].iter().for_each(|n| fs::create_dir(&taken[*n]).unwrap());
        fs::write(&taken[2], "").unwrap();
        let mut servers: Vec<_> =
            taken.iter().map(|at| sys::silent_fuse(at, 12345, options.trim_start_matches("gone"))).collect();
        if *options == "gone" {
            servers.clear();
        }
        let limited = |cmd: Cmd| cmd.env("RT_CONTAINER_TMPFS", &tmpfs).env("XDG_RUNTIME_DIR", &tmpfs);
        // The tests' own limit is longer than this.
        let start = std::time::Instant::now();
        limited(base.environment(0, base.command(0, &["say yes"]))).ok();
        limited(ctx.command(ctx.rt_path()).arg("list")).ok();
        let named = with_name(&base, 42, 0, "x");
        limited(named.command(0, &["say yes"])).ok();
        let epilog = ctx
            .rt(["slurm", "end"])
            .by_tests()
            .env("SLURM_JOB_ID", "42")
            .env("SLURM_JOB_UID", uid.to_string());
        limited(epilog).silent();
        assert!(start.elapsed() < std::time::Duration::from_secs(20), "{options}: {:?}", start.elapsed());
        for at in &taken {
            sys::umount(at.to_str().unwrap(), libc::MNT_DETACH).unwrap();
        }
        assert!(taken[2].exists(), "what is not known to be the user's stays");
    }
    base.empty();
}

fn entrypoint_runs_once(ctx: &Ctx) {
    let Some(busybox) =
        ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| Path::new(path).exists())
    else {
        crate::runner::skip!("busybox is not installed");
    };
    let script = "#!/bin/sh\necho \"entry $GREETING $PRIVATE $ASKED\"\necho x >>/count\nexport MADE=\"two\nlines\" GREETING=bye\n\
        [ -z \"$FAIL\" ] || { echo refused; exit 3; }\nexec \"$@\"\n";
    let mut bundle = ctx.bundle().with("/annotations", json!({ "rt.image.entrypoint": "[\"/entry\"]" }));
    bundle.config["process"]["env"].as_array_mut().unwrap().push(json!("GREETING=hello"));
    for applet in ["sh", "cat"] {
        fs::copy(busybox, bundle.rootfs().join("bin").join(applet)).unwrap();
    }
    fs::write(bundle.rootfs().join("entry"), script).unwrap();
    fs::set_permissions(bundle.rootfs().join("entry"), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let base = Step::of(ctx, bundle.with("/root/readonly", json!(true)));
    ctx.give(&base.bundle.rootfs());
    let step = |entrypoint: &str| {
        let step =
            base.again().with("RT_CONTAINER_ENTRYPOINT", entrypoint).with("RT_CONTAINER_WRITABLE", "1");
        step.with("GREETING", "job").with("PRIVATE", "p").with("ASKED", "a").with("RT_CONTAINER_ENV", "ASKED")
    };
    let out = step("0").ok(&["env"]);
    assert_eq!((&out.line(0)["GREETING"], out.line(0).get("MADE")), (&json!("hello"), None));
    let with =
        |more: &[(&str, &str)]| more.iter().fold(step("1"), |step, (name, value)| step.with(name, *value));
    let first = with(&[("RT_CONTAINER_NAME", "e"), ("RT_CONTAINER_TMPFS", ctx.dir.to_str().unwrap())]);
    ctx.remember("42.e");
    let mut jobs: Vec<Job> =
        (0..3).map(|n| first.command(n, &["env", "cat /count", "pause"]).spawn()).collect();
    for job in &mut jobs {
        let env = job.line(0);
        assert_eq!((&env["MADE"], &env["GREETING"]), (&json!("two\nlines"), &json!("bye")), "{env}");
        assert_eq!((&env["PRIVATE"], &env["ASKED"]), (&json!("p"), &json!("a")));
        assert_eq!(job.line(1), "x\n", "run once");
    }
    for job in jobs {
        sys::kill(job.pid(), libc::SIGTERM).unwrap();
        let out = job.wait();
        assert_eq!((out.code, out.stderr.as_str()), (0, ""), "what it prints is not shown");
    }
    ctx.rt(["delete", "42.e"]).silent();
    // Shown where that is asked; it has the image's variables, and of the job's those that were named.
    let log = with(&[("RT_CONTAINER_ENTRYPOINT_LOG", "1")]).command(0, &["say done"]).run();
    assert_eq!(
        (log.code, log.stderr.as_str(), log.line(0)),
        (0, "entry hello  a\n", json!("done")),
        "{log:?}"
    );
    let failed = with(&[("FAIL", "1"), ("RT_CONTAINER_ENV", "FAIL")]).command(0, &["say no"]);
    failed.fails(&["the image's entrypoint: exit code 3: refused", "RT_CONTAINER_ENTRYPOINT=0"]);
    fs::remove_file(base.bundle.rootfs().join("entry")).unwrap();
    step("1").command(0, &["say no"]).fails(&["the image's entrypoint", "/entry", "no such file"]);
    assert_eq!(step("0").ok(&["say yes"]).line(0), "yes");
    step("0").end();
}

/// A step of another number or job with a container of this name, whose layers are below the test's directory.
fn with_name<'a>(step: &Step<'a>, job: u32, number: u32, name: &str) -> Step<'a> {
    let tmpfs = step.ctx.dir.display().to_string();
    let step = Step { job, step: number, ..step.again() };
    let id = name.split(':').next().unwrap();
    step.ctx.remember(&format!("{job}.{id}"));
    step.with("RT_CONTAINER_NAME", name).with("RT_CONTAINER_TMPFS", tmpfs)
}

/// The layers that are there, of all names.
fn layers(ctx: &Ctx) -> Vec<String> {
    let dirs = fs::read_dir(&ctx.dir).unwrap().flatten();
    let own = dirs.filter(|entry| entry.file_name().to_string_lossy().starts_with("rt-layers-"));
    let names = own.flat_map(|dir| fs::read_dir(dir.path()).unwrap().flatten());
    let mut names: Vec<String> = names.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn a_name_outlives_the_step(ctx: &Ctx) {
    let base = Step::read_only(ctx);
    let before = base.bundle.strict_tree();
    let step = |number| with_name(&base, 42, number, "tools");
    let missing = crate::fixture::errno(libc::ENOENT);
    let out = step(0).ok(&["cat /new", "write /new x", "mkdir /closed", "rm /etc/group"]);
    assert_eq!((&out.line(0), &out.line(1)), (&missing, &Value::Null), "{out:?}");
    step(0).environment(0, ctx.rt(["slurm", "end"])).silent();
    let list = || ctx.rt(["list", "--format", "json"]).ok().json().as_array().unwrap().clone();
    assert_eq!(
        (&list()[0]["id"], &list()[0]["status"]),
        (&json!("42.tools"), &json!("stopped")),
        "{:?}",
        list()
    );
    ctx.rt(["exec", "42.tools", "/bin/probe", "say no"]).fails(&["has stopped"]);
    // Another step finds what was written, and needs no image.
    let second = step(1).with("RT_CONTAINER_IMAGE", "");
    assert_eq!(second.prepare().ok().stdout, format!("{}\n", base.bundle.dir.display()));
    let out = second.ok(&["cat /new", "cat /etc/group", "append /new y"]);
    assert_eq!((&out.line(0), &out.line(1)), (&json!("x"), &missing), "{out:?}");
    // Two steps at once are in one container, and a task of each is its member.
    let first = step(2).task(0, &["ready", "pause"]);
    let other = step(3).task(0, &["ready", "pause"]);
    assert_eq!(namespace(first.pid(), "mnt"), namespace(other.pid(), "mnt"));
    assert_eq!((list().len(), &list()[0]["status"]), (1, &json!("running")));
    assert_eq!(ctx.rt(["exec", "42.tools", "/bin/probe", "cat /new"]).ok().line(0), "xy");
    ctx.rt(["delete", "42.tools"]).fails(&["not stopped"]);
    end(vec![first]);
    assert_eq!(list()[0]["status"], "running", "the other keeps it");
    end(vec![other]);
    assert_eq!((list()[0]["status"].clone(), layers(ctx)), (json!("stopped"), vec!["42.tools".to_owned()]));
    // What a plain step of the same job sees is the image.
    assert_eq!(base.again().ok(&["cat /new"]).line(0), missing);
    ctx.rt(["delete", "42.tools"]).silent();
    assert_eq!((list().len(), layers(ctx).len()), (0, 0));
    step(4).with("RT_CONTAINER_IMAGE", "").command(0, &["say no"]).fails(&["42.tools does not exist"]);
    assert_eq!(before, base.bundle.strict_tree(), "the image is as it was");
    base.empty();
}

/// A start that fails removes the layer that it has made, and the end of a job removes what is kept of a container whose last start
/// has failed.
fn failed_starts_leave_nothing(ctx: &Ctx) {
    let base = Step::read_only(ctx);
    let step = |number| with_name(&base, 42, number, "tools");
    let works = base.bundle.config.clone();
    // The container is planned by then, and has a layer, and no record.
    let fails = |step: Step<'_>| {
        let mut broken = works.clone();
        broken["hooks"] = json!({ "createRuntime": [{ "path": ctx.helper(), "args": ["probe", "exit 1"] }] });
        base.bundle.raw(&broken.to_string());
        let out = step.command(0, &["say no"]).run();
        assert!(out.code != 0 && out.stderr.contains("createRuntime"), "{out:?}");
        base.bundle.write();
    };
    // The first start of a container with a name, and one of a step that is to be saved.
    fails(step(0));
    assert!(layers(ctx).is_empty(), "{:?}", layers(ctx));
    let saved = base.again().with("RT_CONTAINER_SAVE", ctx.path("x.sqsh").display().to_string());
    fails(saved.with("RT_CONTAINER_TMPFS", ctx.dir.display().to_string()));
    base.empty();
    assert!(layers(ctx).is_empty(), "{:?}", layers(ctx));
    // What has been written before stays.
    step(1).ok(&["write /new x"]);
    fails(step(2));
    assert_eq!(step(3).ok(&["cat /new"]).line(0), "x");
    // The last start of all of them.
    fails(step(4));
    for job in [43, 423] {
        with_name(&base, job, 0, "tools").ok(&["write /new x"]);
        fails(with_name(&base, job, 1, "tools"));
    }
    with_name(&base, 42, 0, "all").with("RT_CONTAINER_SCOPE", "global").ok(&["write /new x"]);
    fails(with_name(&base, 42, 1, "all").with("RT_CONTAINER_SCOPE", "global"));
    assert_eq!(layers(ctx), ["42.tools", "423.tools", "43.tools", "all"]);
    ctx.rt(["slurm", "delete", "42"]).silent();
    assert_eq!(layers(ctx), ["423.tools", "43.tools", "all"]);
    ["43", "423"].iter().for_each(|job| ctx.rt(["slurm", "delete", job]).silent());
    ctx.rt(["delete", "-f", "all"]).silent();
    assert!(layers(ctx).is_empty());
    base.empty();
}

fn names_and_their_modes(ctx: &Ctx) {
    let base = Step::read_only(ctx);
    let step = |number, mode: &str| with_name(&base, 42, number, &format!("x{mode}"));
    step(0, ":exec").prepare().fails(&["container 42.x is not running"]);
    step(0, ":exec").command(0, &["say no"]).fails(&["container 42.x is not running"]);
    // All tasks of the step that makes it may say so.
    let jobs: Vec<Job> = (0..2).map(|n| step(1, ":create").task(n, &["write /new x", "pause"])).collect();
    assert_eq!(namespace(jobs[0].pid(), "mnt"), namespace(jobs[1].pid(), "mnt"));
    let again = step(2, ":create");
    again.prepare().fails(&["container 42.x exists already"]);
    again.command(0, &["say no"]).fails(&["container 42.x exists already"]);
    let joined = step(3, ":exec").task(0, &["ready", "pause"]);
    assert_eq!(namespace(joined.pid(), "mnt"), namespace(jobs[0].pid(), "mnt"));
    let apart = step(4, ":no_exec").task(0, &["cat /new", "pause"]);
    assert_ne!(namespace(apart.pid(), "mnt"), namespace(jobs[0].pid(), "mnt"), "not joined");
    step(5, ":no_exec").ok(&["write /more y"]);
    assert_eq!(step(6, "").ok(&["cat /more"]).line(0), "y", "the same files");
    end(jobs);
    end(vec![joined, apart]);
    step(7, ":exec").command(0, &["say no"]).fails(&["container 42.x is not running"]);
    assert_eq!(step(8, ":no_exec").ok(&["cat /new"]).line(0), "x");
    step(9, ":create").prepare().fails(&["exists already"]);
    // One that can be read only.
    let refused = step(10, "").with("RT_CONTAINER_WRITABLE", "0").ok(&["cat /new", "write /z z"]);
    assert_eq!((&refused.line(0), &refused.line(1)), (&json!("x"), &crate::fixture::errno(libc::EROFS)));
    ctx.rt(["delete", "42.x"]).silent();
    // An image that cannot be run leaves no name; a program that is missing does, as in pyxis.
    let broken = base.again();
    let broken = with_name(&broken, 42, 11, "x").with("RT_CONTAINER_IMAGE", "/not/there");
    broken.command(0, &["say no"]).fails(&["/not/there"]);
    step(12, ":create").command(0, &[]).env("RT_CONTAINER_ARGV0", "/not/there").fails(&["/not/there"]);
    step(13, ":create").prepare().fails(&["exists already"]);
    ctx.rt(["delete", "42.x"]).silent();
    base.empty();
    assert!(layers(ctx).is_empty());
}

/// `JOB.STEP` is the name of a step's container while it runs.
fn a_step_is_a_name(ctx: &Ctx) {
    let base = Step::read_only(ctx);
    let step = |number| with_name(&base, 42, number, "42.0").with("RT_CONTAINER_IMAGE", "");
    let missing = "container 42.42.0 does not exist";
    step(1).prepare().fails(&[missing]);
    step(1).command(0, &["say no"]).fails(&[missing]);
    let own = base.again().with("RT_CONTAINER_REMAP_ROOT", "1");
    let running = own.task(0, &["write /new x", "pause"]);
    assert_eq!(step(1).prepare().ok().stdout, format!("{}\n", base.bundle.dir.display()));
    let joined = step(1).task(0, &["cat /new", "pause"]);
    for name in ["mnt", "user"] {
        assert_eq!(namespace(joined.pid(), name), namespace(running.pid(), name), "{name}");
    }
    assert_eq!(step(1).ok(&["cat /new"]).line(0), "x");
    let mounts = step(2).with("RT_CONTAINER_MOUNTS", "/tmp:/mnt").prepare().run();
    assert!(mounts.stderr.contains("ignoring --container-mounts"), "{mounts:?}");
    assert!(mounts.stderr.contains("runs as root, and so does this step"), "{mounts:?}");
    // Steps of other numbers are not meant, and with an image it is the name of a new container.
    with_name(&base, 42, 1, "42.3").with("RT_CONTAINER_IMAGE", "").prepare().fails(&["42.3 does not exist"]);
    let new = with_name(&base, 42, 3, "42.0").task(0, &["ready", "pause"]);
    assert_ne!(namespace(new.pid(), "mnt"), namespace(running.pid(), "mnt"));
    end(vec![new, joined, running]);
    ctx.rt(["slurm", "delete", "42"]).silent();
    step(1).command(0, &["say no"]).fails(&[missing]);
    base.empty();
    assert!(layers(ctx).is_empty());
}

fn names_of_jobs_and_of_all(ctx: &Ctx) {
    let base = Step::read_only(ctx);
    let of_job = |job| with_name(&base, job, 0, "x");
    let of_all = |job| with_name(&base, job, 0, "y").with("RT_CONTAINER_SCOPE", "global");
    ctx.remember("y");
    for job in [42, 43] {
        let missing = crate::fixture::errno(libc::ENOENT);
        assert_eq!(of_job(job).ok(&["cat /new", "write /new x"]).line(0), missing, "each job its own");
    }
    of_all(42).ok(&["write /new y"]);
    assert_eq!(of_all(43).with("RT_CONTAINER_IMAGE", "").ok(&["cat /new"]).line(0), "y");
    assert_eq!(ctx.rt(["list", "-q"]).ok().stdout, "42.x\n43.x\ny\n");
    // The end of a job takes what is the job's.
    ctx.rt(["slurm", "delete", "42"]).silent();
    ctx.rt(["slurm", "delete", "43"]).silent();
    assert_eq!((ctx.rt(["list", "-q"]).ok().stdout.as_str(), layers(ctx)), ("y\n", vec!["y".to_owned()]));
    assert_eq!(of_all(44).ok(&["cat /new"]).line(0), "y");
    ctx.rt(["delete", "y"]).silent();
    base.empty();
    assert!(layers(ctx).is_empty());
}

/// A name with another image than the one that it was made from is refused: the program would run in the wrong root.
fn a_name_is_of_one_image(ctx: &Ctx) {
    let base = Step::read_only(ctx);
    let step = |number| with_name(&base, 42, number, "tools");
    step(0).ok(&["write /new x"]);
    let other = ctx.bundle();
    other.write();
    let other = step(1).with("RT_CONTAINER_IMAGE", other.dir.display().to_string());
    let made_from = format!("container 42.tools was made from {}", base.bundle.dir.display());
    other.prepare().fails(&[&made_from, "rt delete 42.tools"]);
    other.command(0, &["say no"]).fails(&[&made_from, "rt delete 42.tools"]);
    let missing = step(2).with("RT_CONTAINER_IMAGE", "/no/such/image");
    missing.prepare().fails(&["/no/such/image"]);
    // The same one by another path.
    let link = ctx.path("link");
    symlink(&base.bundle.dir, &link).unwrap();
    ctx.give_link(&link);
    let dir = base.bundle.dir.display();
    let same = step(3).with("RT_CONTAINER_IMAGE", format!("{dir}/./"));
    assert_eq!(same.prepare().ok().stdout, format!("{dir}\n"));
    assert_eq!(same.ok(&["cat /new"]).line(0), "x");
    ctx.rt(["delete", "42.tools"]).silent();
    base.empty();
}

/// TmpFS can be a job's own. What a name has there is gone with that job, while its state is not.
fn a_layer_that_is_gone(ctx: &Ctx) {
    let base = Step::read_only(ctx);
    let step = |number| with_name(&base, 42, number, "tools");
    let missing = crate::fixture::errno(libc::ENOENT);
    let lose_layer = || fs::remove_dir_all(ctx.dir.join(format!("rt-layers-{}", sys_uid(ctx)))).unwrap();
    step(0).ok(&["write /new x"]);
    lose_layer();
    let out = step(1).command(0, &["cat /new", "write /new y"]).run();
    assert_eq!((out.code, out.line(0)), (0, missing), "{out:?}");
    assert!(out.stderr.contains("container 42.tools begins anew"), "{out:?}");
    assert_eq!(step(2).ok(&["cat /new"]).line(0), "y");
    lose_layer();
    let nameless = step(3).with("RT_CONTAINER_IMAGE", "");
    nameless.command(0, &["say no"]).fails(&["container 42.tools is gone"]);
    nameless.command(0, &["say no"]).fails(&["42.tools does not exist"]);
    step(4).ok(&["write /new z"]);
    ctx.rt(["delete", "42.tools"]).silent();
    base.empty();
}

/// With the plugin, what is written to the root is on TmpFS where that is a disk, and is gone with the step.
fn written_to_disk(ctx: &Ctx) {
    let tmpfs = ctx.dir.display().to_string();
    let step = Step::read_only(ctx);
    let bundle = step.bundle.dir.display().to_string();
    let of = |number, writable: &str| {
        let step = Step { step: number, ..step.again() };
        ctx.remember(&step.container());
        let step = step.with("RT_CONTAINER_IMAGE", "a.name/image:1").with("RT_CONTAINER_RESOLVED", &bundle);
        step.with("RT_CONTAINER_TMPFS", &tmpfs)
            .with("RT_CONTAINER_TASKS", "1")
            .with("RT_CONTAINER_WRITABLE", writable)
    };
    let first = of(0, "");
    let job = first.task(0, &["write /new x", "pause"]);
    assert_eq!(layers(ctx), [first.container()]);
    end(vec![job]);
    first.end();
    assert!(layers(ctx).is_empty());
    let read_only = of(1, "0");
    let job = read_only.task(0, &["ready", "pause"]);
    assert!(layers(ctx).is_empty());
    end(vec![job]);
    read_only.end();
}

/// Where TmpFS is no disk, that is the job's memory: half of it, and who asks for a root to write to hears so.
fn written_to_memory(ctx: &Ctx) {
    let step = Step::read_only(ctx);
    let bundle = step.bundle.dir.display().to_string();
    let of = |env: &[(&str, &str)]| {
        let step = step.again().with("RT_CONTAINER_IMAGE", "a.name/image:1");
        let step = step.with("RT_CONTAINER_RESOLVED", &bundle);
        let step = step.with("RT_CONTAINER_TMPFS", "/dev/shm").with("RT_CONTAINER_TASKS", "1");
        env.iter().fold(step, |step, (name, value)| step.with(name, *value))
    };
    let mib = |out: Out| out.line(0).as_u64().unwrap() >> 20;
    let half = of(&[("SLURM_MEM_PER_NODE", "60")]).ok(&["size /", "write /new x"]);
    assert_eq!((half.line(1), mib(half)), (json!(null), 30));
    let of_cpus = [("SLURM_MEM_PER_CPU", "8"), ("SLURM_CPUS_ON_NODE", "4")];
    assert_eq!(mib(of(&of_cpus).ok(&["size /"])), 16);
    assert!(mib(of(&[("SLURM_MEM_PER_NODE", "0")]).ok(&["size /"])) > 60);
    // srun says nothing of --mem in the environment, and slurmstepd knows it.
    assert_eq!(mib(of(&[("RT_CONTAINER_MEMORY", "40"), ("SLURM_MEM_PER_NODE", "60")]).ok(&["size /"])), 20);
    // A layer that outlives the step has no bound there. So the program is ended by the kernel before slurmstepd is.
    let name = |tmpfs: &str| {
        let named = with_name(&step, 42, 0, "tools").with("RT_CONTAINER_TMPFS", tmpfs);
        let score = named.ok(&["cat /proc/self/oom_score_adj"]).line(0);
        ctx.rt(["delete", "42.tools"]).silent();
        score.as_str().unwrap().trim().parse::<i32>().unwrap()
    };
    let own: i32 = fs::read_to_string("/proc/self/oom_score_adj").unwrap().trim().parse().unwrap();
    assert_eq!((name("/dev/shm"), name(ctx.dir.to_str().unwrap())), (500, own));
    let uid = ctx.caller.host_ids().0;
    let _ = fs::remove_dir(format!("/dev/shm/rt-layers-{uid}"));
    // The image is a file: a bundle of the user's own says in its config where what is written goes.
    let file = ctx.path("image.sqsh");
    fs::write(&file, b"hsqs").unwrap();
    let prepare = |name: &str, value: &str, tmpfs: &str| {
        let step = step.again().with("RT_CONTAINER_IMAGE", file.to_str().unwrap());
        step.with("RT_CONTAINER_TMPFS", tmpfs).with(name, value).prepare().ok().stderr
    };
    let disk = ctx.dir.to_str().unwrap();
    for (name, value) in [("RT_CONTAINER_WRITABLE", "1"), ("RT_CONTAINER_REMAP_ROOT", "1")] {
        let said = prepare(name, value, "/dev/shm");
        assert!(said.starts_with("rt: ") && said.contains("half") && said.contains("/dev/shm"), "{said:?}");
        assert_eq!(prepare(name, value, disk), "");
    }
    assert!(prepare("RT_CONTAINER_NAME", "new", "/dev/shm").contains("memory of the job: /dev/shm"));
    assert_eq!(prepare("RT_CONTAINER_ENV", "X", "/dev/shm"), "");
    // A place that takes no layer is somebody's mistake, of which who asks for nothing hears, too.
    let missing = ctx.path("missing");
    let is_wrong = |place: &Path, fault: &str| {
        let place = place.to_str().unwrap();
        for (name, value, what) in [
            ("RT_CONTAINER_ENV", "X", "takes memory of the job, half"),
            ("RT_CONTAINER_WRITABLE", "1", "takes memory of the job, half"),
            ("RT_CONTAINER_NAME", "new", "can be kept nowhere"),
        ] {
            let said = prepare(name, value, place);
            let expected = format!("{place} (TmpFS) {fault}\n");
            assert!(
                said.lines().count() == 1 && said.contains(what) && said.ends_with(&expected),
                "{said:?}"
            );
        }
        assert_eq!(prepare("RT_CONTAINER_WRITABLE", "0", place), "");
    };
    is_wrong(&missing, "is not there");
    is_wrong(&file, "is no directory");
    let closed = ctx.mkdir("closed");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).unwrap();
    if ctx.caller.host_ids().0 != 0 {
        is_wrong(&closed, "is closed to you");
    }
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A container whose step was cancelled a moment ago is waited for.
fn a_layer_that_is_still_used(ctx: &Ctx) {
    let base = Step::read_only(ctx);
    let first = with_name(&base, 42, 0, "tools").task(0, &["write /new x", "pause"]);
    // Somebody who looks into its mounts has them stay.
    let mounts = fs::File::open(format!("/proc/{}/ns/mnt", first.pid())).unwrap();
    end(vec![first]);
    let second = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(3500));
        drop(mounts);
    });
    let out = with_name(&base, 42, 1, "tools").command(0, &["cat /new"]).run();
    second.join().unwrap();
    assert_eq!((out.code, out.line(0)), (0, json!("x")), "{out:?}");
    assert!(out.stderr.contains("waiting for the end of processes"), "{out:?}");
    ctx.rt(["delete", "42.tools"]).silent();
    base.empty();
}

/// Where a container cannot be saved, that is said before anything runs.
fn no_place_to_save(ctx: &Ctx) {
    let tmpfs = ctx.dir.display().to_string();
    let step = |path: &str| {
        let step = Step::read_only(ctx).with("RT_CONTAINER_SAVE", path).with("RT_CONTAINER_TASKS", "1");
        step.with("RT_CONTAINER_TMPFS", &tmpfs)
    };
    let refused = |path: &str, text: &str| {
        let out = step(path).command(0, &["say hello"]).fails(&["RT_CONTAINER_SAVE", text]);
        assert!(!out.stderr.contains("--force") && layers(ctx).is_empty(), "{out:?}");
    };
    refused("/not/there/x.sqsh", "no file can be made in /not/there");
    if sys_uid(ctx) != 0 {
        refused("/etc/x.sqsh", "no file can be made in /etc");
    }
    // Nor can it where something else is that is not replaced in the end.
    ctx.mkdir("dir.sqsh");
    symlink(ctx.path("dir.sqsh"), ctx.path("to-dir.sqsh")).unwrap();
    ctx.file("text", "mine, and no image");
    let long = format!("{}.sqsh", "x".repeat(245));
    for (wrong, text) in [
        ("dir.sqsh", "a directory"),
        ("to-dir.sqsh", "a directory"),
        ("text", "not an image file, and would not be replaced"),
        (&long, "the name is too long"),
    ] {
        refused(&format!("{tmpfs}/{wrong}"), text);
    }
    // The plugin has a step prepared where the job's own /tmp is not there yet.
    step(&format!("{tmpfs}/text")).prepare().ok();
    // An image there is left to the tasks, too, whatever has its name on the node.
    let image = |name: &str, tmpfs: &str| {
        let image = ctx.path(name).display().to_string();
        Step::read_only(ctx).with("RT_CONTAINER_IMAGE", image).with("RT_CONTAINER_TMPFS", tmpfs)
    };
    for name in ["text", "missing.sqsh", "dir.sqsh"] {
        assert_eq!(image(name, &tmpfs).prepare().ok().stdout, "");
        image(name, "/not/there").prepare().fails(&[name]);
    }
}

/// A save that is killed leaves the layer, and the end of the step saves it; where that is told to end, its user is told.
fn a_save_that_is_cut_off(ctx: &Ctx) {
    let path = images::search_path(ctx);
    let tmpfs = ctx.dir.display().to_string();
    let base = Step::read_only(ctx);
    // By a link of the caller's, which was there before the step.
    symlink(ctx.mkdir("kept"), ctx.path("own")).unwrap();
    ctx.give_link(&ctx.path("own"));
    let file = ctx.path("own/out.sqsh");
    let of = |number| {
        let step = Step { step: number, ..base.again() };
        ctx.remember(&step.container());
        step.with("RT_CONTAINER_TMPFS", &tmpfs).with("RT_CONTAINER_TASKS", "1").with("PATH", &path)
    };
    let saved = |number| of(number).with("RT_CONTAINER_SAVE", file.display().to_string());
    let end_step = |step: &Step<'_>| step.environment(0, ctx.rt(["slurm", "end"]));
    let drafts = || -> Vec<_> {
        let names = fs::read_dir(ctx.path("kept")).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().starts_with("out.sqsh.partial-")).collect()
    };
    let begun = |job: &mut Job, before: &[std::ffi::OsString]| {
        eventually("a save", || match drafts().iter().any(|draft| !before.contains(draft)) {
            true => Some(()),
            false => job.child.try_wait().unwrap().map(|_| ()),
        });
    };
    // On a machine that is busy a save may have come to its end before it is cut off.
    let cut_off = |number, start: &dyn Fn(&Step<'_>) -> Job, signal: i32| {
        for _ in 0..20 {
            let step = saved(number);
            let before = drafts();
            let mut job = start(&step);
            begun(&mut job, &before);
            sys::kill(job.pid(), signal).unwrap();
            let out = job.wait();
            if out.code != 0 {
                return (step, out);
            }
            end_step(&of(number)).silent();
            fs::remove_file(&file).unwrap();
        }
        panic!("no save was cut off");
    };
    let running = |step: &Step<'_>| step.command(0, &["write /result x"]).spawn();
    for (number, by_end) in [(0, true), (1, false)] {
        let (step, out) = cut_off(number, &running, libc::SIGKILL);
        assert_eq!(out.code, 137, "{out:?}");
        // Nobody goes on with it.
        std::thread::sleep(std::time::Duration::from_millis(500));
        assert!(!file.exists());
        match by_end {
            true => end_step(&step).silent(),
            // The last call of the plugin's knows of no save.
            false => end_step(&of(number)).silent(),
        };
        assert_eq!((file.exists(), layers(ctx).len()), (by_end, usize::from(!by_end)));
        let _ = fs::remove_file(&file);
    }
    ctx.rt(["slurm", "save", &of(1).container()]).arg(&file).env("PATH", &path).ok();
    assert!(fs::read(&file).unwrap().starts_with(b"hsqs"));
    ctx.rt(["slurm", "delete", "42"]).silent();
    fs::remove_file(&file).unwrap();
    // As the plugin ends a call that takes too long.
    let ending = |step: &Step<'_>| {
        let killed = step.task(0, &["write /result x", "pause"]);
        for pid in children(killed.pid() as u32) {
            sys::kill(pid as i32, libc::SIGKILL).unwrap();
        }
        sys::kill(killed.pid(), libc::SIGKILL).unwrap();
        killed.wait();
        end_step(step).spawn()
    };
    let (step, out) = cut_off(2, &ending, libc::SIGTERM);
    assert!(out.stderr.contains("it takes too long, and was ended"), "{out:?}");
    assert!(out.stderr.contains(&format!("slurm save {} FILE", step.container())), "{out:?}");
    assert!(!file.exists() && layers(ctx).len() == 1);
    // It was told, and is not done again.
    end_step(&step).silent();
    assert!(!file.exists() && layers(ctx).len() == 1);
    ctx.rt(["slurm", "delete", "42"]).silent();
    assert!(layers(ctx).is_empty());
}

/// The container of a step that runs is saved by the name of that step.
fn a_running_step_is_saved(ctx: &Ctx) {
    let tmpfs = ctx.dir.display().to_string();
    let base = Step::read_only(ctx);
    let file = ctx.path("out.sqsh");
    let named = || {
        let step = base.again().with("RT_CONTAINER_IMAGE", "a.name/image:1").with("RT_CONTAINER_TASKS", "1");
        step.with("RT_CONTAINER_RESOLVED", base.bundle.dir.display().to_string())
    };
    let own = named().with("RT_CONTAINER_TMPFS", &tmpfs);
    let saving = |name: &str| with_name(&base, 42, 1, name).with("RT_CONTAINER_IMAGE", "").saved_as(&file, 1);
    let running = own.task(0, &["write /first x", "pause"]);
    saving("42.0").ok(&["cat /first", "write /second y"]);
    assert!(fs::read(&file).unwrap().starts_with(b"hsqs"));
    saving("42.0").environment(0, ctx.rt(["slurm", "end"])).silent();
    assert_eq!(layers(ctx).len(), 1, "the other step goes on");
    end(vec![running]);
    own.environment(0, ctx.rt(["slurm", "end"])).silent();
    assert!(layers(ctx).is_empty());
    // The end of that step ends the program, and what it has written is saved nevertheless.
    fs::remove_file(&file).unwrap();
    let running = own.task(0, &["write /first x", "pause"]);
    let joined = saving("42.0").task(0, &["write /second y", "pause"]);
    end(vec![running]);
    own.environment(0, ctx.rt(["slurm", "end"])).silent();
    assert_eq!(layers(ctx).len(), 1);
    assert_eq!(joined.wait().code, 137);
    assert!(fs::read(&file).unwrap().starts_with(b"hsqs"));
    ctx.rt(["slurm", "delete", "42"]).silent();
    assert!(layers(ctx).is_empty());
    // Of two steps that save it, each has its own word: what the one could not save stays when the other has.
    fs::remove_file(&file).unwrap();
    let own = Step { step: 2, ..base.again() };
    ctx.remember(&own.container());
    let own = own.saved_as(ctx.path("own.sqsh"), 1);
    let running = own.task(0, &["write /first x", "pause"]);
    let place = ctx.mkdir("place");
    let joined =
        with_name(&base, 42, 1, "42.2").with("RT_CONTAINER_IMAGE", "").saved_as(place.join("x.sqsh"), 1);
    let joined = joined.task(0, &["write /second y", "pause"]);
    fs::remove_dir(&place).unwrap();
    let kill_child = |job: &Job| {
        children(job.pid() as u32).iter().for_each(|pid| sys::kill(*pid as i32, libc::SIGKILL).unwrap());
    };
    kill_child(&joined);
    let out = joined.wait();
    assert!(out.stderr.contains("place: ") && out.stderr.contains("stays in"), "{out:?}");
    kill_child(&running);
    running.wait();
    assert!(fs::read(ctx.path("own.sqsh")).unwrap().starts_with(b"hsqs"));
    own.environment(0, ctx.rt(["slurm", "end"])).silent();
    assert_eq!(layers(ctx).len(), 1);
    ctx.rt(["slurm", "save", &own.container()]).arg(&file).env("PATH", images::search_path(ctx)).ok();
    ctx.rt(["slurm", "delete", "42"]).silent();
    // Of one in memory nothing can be saved.
    let in_memory = named().with("RT_CONTAINER_TMPFS", "/dev/shm").task(0, &["ready", "pause"]);
    let out = saving("42.0").command(0, &["say no"]).run();
    assert_eq!(out.stderr.lines().count(), 1, "{out:?}");
    saving("42.0").command(0, &["say no"]).fails(&["RT_CONTAINER_SAVE", "42.0", "memory"]);
    end(vec![in_memory]);
    ctx.rt(["slurm", "delete", "42"]).silent();
    base.empty();
}

/// Slurm signals the first process of a batch job's script alone.
fn signals_of_a_script_that_is_saved(ctx: &Ctx) {
    let script = Step { step: 0xffff_fffb, ..Step::read_only(ctx) };
    ctx.remember(&script.container());
    let script = script.saved_as(ctx.path("out.sqsh"), 1);
    let mut job = script.task(0, &["signals"]);
    for (n, signal) in [(1, libc::SIGUSR1), (2, libc::SIGTERM)] {
        sys::kill(job.pid(), signal).unwrap();
        assert_eq!(job.line(n)["signal"], signal);
    }
    assert_eq!(job.wait().code, 7);
    assert!(ctx.path("out.sqsh").exists());
    script.environment(0, ctx.rt(["slurm", "end"])).silent();
}

/// PMIx compares the id inside with the caller's, and MPI_Init would hang.
fn remapped_under_pmix(ctx: &Ctx) {
    let step = |mpi: &str| Step::new(ctx).with("RT_CONTAINER_REMAP_ROOT", "1").with("SLURM_MPI_TYPE", mpi);
    for mpi in ["pmix", "pmix_v4"] {
        step(mpi).prepare().fails(&["RT_CONTAINER_REMAP_ROOT", "under PMIx", "--mpi=none"]);
    }
    step("pmi2").prepare().ok();
    step("pmix").with("RT_CONTAINER_REMAP_ROOT", "0").prepare().ok();
}

fn named_and_killed(ctx: &Ctx) {
    let base = Step::read_only(ctx);
    let step = |number| with_name(&base, 42, number, "x");
    for n in 0..10u64 {
        let first = step(n as u32).command(0, &["write /new x", "pause"]).spawn();
        std::thread::sleep(std::time::Duration::from_micros(n * 1500));
        sys::kill(first.pid(), libc::SIGKILL).unwrap();
        first.wait();
        step(50).ok(&["ready"]);
    }
    let mut running = step(60).task(0, &["write /last x", "pause"]);
    sys::kill(running.pid(), libc::SIGKILL).unwrap();
    running = step(61).task(0, &["cat /last", "pause"]);
    assert_eq!(running.line(0), "x");
    // Of a job that is over, also what runs.
    ctx.rt(["slurm", "delete", "42"]).silent();
    assert_eq!(running.wait().code, 137);
    base.empty();
    assert!(layers(ctx).is_empty());
}

/// Namespaces are those of the step that has made the container.
fn namespaces_of_a_name(ctx: &Ctx) {
    let base = Step::read_only(ctx);
    let step = |number, name: &str| with_name(&base, 42, number, name);
    let own = step(0, "own").with("RT_CONTAINER_UNSHARE", "net,uts").task(0, &["ready", "pause"]);
    let plain = step(1, "plain").task(0, &["ready", "pause"]);
    let joined = step(2, "own").task(0, &["ready", "pause"]);
    let asked = step(3, "own").with("RT_CONTAINER_UNSHARE", "uts").task(0, &["ready", "pause"]);
    for name in ["net", "uts", "mnt", "user"] {
        assert_eq!(namespace(joined.pid(), name), namespace(own.pid(), name), "{name}");
        assert_eq!(namespace(asked.pid(), name), namespace(own.pid(), name), "{name}");
    }
    assert_ne!(namespace(own.pid(), "net"), namespace(plain.pid(), "net"));
    for (kind, text) in
        [("net", "not in a separate network namespace"), ("uts", "not in a separate UTS namespace")]
    {
        let wrong = step(4, "plain").with("RT_CONTAINER_UNSHARE", kind);
        wrong.command(0, &["say no"]).fails(&["42.plain", text]);
    }
    // So are the ids.
    let root = step(6, "root").with("RT_CONTAINER_REMAP_ROOT", "1").task(0, &["ready", "pause"]);
    let joined_root = step(7, "root").with("RT_CONTAINER_REMAP_ROOT", "0").ok(&["id"]);
    assert_eq!(joined_root.line(0)["uid"][0], 0);
    let told = |number, name: &str, as_root: &str| {
        step(number, name).with("RT_CONTAINER_REMAP_ROOT", as_root).prepare().run().stderr
    };
    assert!(told(8, "root", "0").contains("container 42.root runs as root, and so does this step"));
    assert_eq!(told(9, "root", "1"), "");
    let user = step(10, "user").with("RT_CONTAINER_REMAP_ROOT", "0").task(0, &["ready", "pause"]);
    assert!(told(11, "user", "1").contains("container 42.user runs with its user's own ids"));
    assert_eq!(told(12, "user", "0"), "");
    end(vec![user]);
    end(vec![root]);
    // Mounts of a step that joins mean nothing, and prepare says so.
    let mounts = step(5, "plain").with("RT_CONTAINER_MOUNTS", "/tmp:/mnt");
    let out = mounts.prepare().run();
    assert_eq!(out.code, 0, "{out:?}");
    assert!(
        out.stderr.contains("ignoring --container-mounts when attaching to a running container"),
        "{out:?}"
    );
    end(vec![own, plain, joined, asked]);
    assert_eq!(mounts.prepare().run().stderr, "");
    ctx.rt(["slurm", "delete", "42"]).silent();
    base.empty();
}

fn layers_of_somebody_else(ctx: &Ctx) {
    let base = Step::read_only(ctx);
    let own = ctx.mkdir(&format!("rt-layers-{}", sys_uid(ctx)));
    fs::set_permissions(&own, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let step = with_name(&base, 42, 0, "x");
    assert_eq!(step.ok(&["write /x y", "cat /x"]).line(1), "y");
    fs::remove_dir(&own).unwrap();
    symlink("/tmp", &own).unwrap();
    ctx.give_link(&own);
    assert_eq!(step.ok(&["cat /x"]).line(0), "y");
    assert!(ctx.dir.join(format!("rt-layers-{}.1/42.x/upper/x", sys_uid(ctx))).exists());
    fs::remove_file(&own).unwrap();
    ctx.rt(["delete", "42.x"]).silent();
    // Somebody takes the name while a container has a layer there.
    if Caller::tests_are_root() && sys_uid(ctx) != 0 {
        with_name(&base, 43, 0, "x").ok(&["write /x y"]);
        let taken = ctx.dir.join(format!("rt-layers-{}.1", sys_uid(ctx)));
        fs::remove_dir_all(&taken).unwrap();
        fs::create_dir(&taken).unwrap();
        fs::set_permissions(&taken, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        ctx.rt(["delete", "43.x"]).silent();
        fs::remove_dir(&taken).unwrap();
    }
    base.empty();
}

/// The uid that the runtime has, in the client's user namespace.
/// The id that rt has of its own.
pub fn sys_uid(ctx: &Ctx) -> u32 {
    match ctx.caller {
        crate::client::Caller::User | crate::client::Caller::Root => ctx.caller.host_ids().0,
        _ => 0,
    }
}

fn saved_at_the_end(ctx: &Ctx) {
    let path = images::search_path(ctx);
    let file = ctx.path("out.sqsh");
    let step = Step::read_only(ctx)
        .with("RT_CONTAINER_SAVE", "./out.sqsh")
        .with("RT_CONTAINER_SUBMIT_DIR", ctx.dir.display().to_string())
        .with("RT_CONTAINER_TMPFS", ctx.dir.display().to_string());
    let end_step = || step.environment(0, ctx.rt(["slurm", "end"])).env("PATH", &path);
    let jobs: Vec<Job> = (0..2).map(|n| step.task(n, &[&format!("write /of{n} x"), "pause"])).collect();
    end(jobs);
    assert!(!file.exists());
    end_step().silent();
    let first = fs::read(&file).unwrap();
    assert!(first.starts_with(b"hsqs"), "a squashfs");
    step.empty();
    assert!(layers(ctx).is_empty());
    // Once more, over the file that is there, and nothing beside it.
    step.ok(&["write /other y"]);
    end_step().silent();
    assert!(fs::read(&file).unwrap() != first);
    let beside = fs::read_dir(&ctx.dir).unwrap().flatten();
    let beside = beside.filter(|e| e.file_name().to_string_lossy().contains("out.sqsh")).count();
    assert_eq!(beside, 1);
    // What cannot be written is said, and the step is over in any case.
    let nowhere = step.again().with("RT_CONTAINER_SAVE", "/not/there/x.sqsh");
    let nowhere = nowhere.with("RT_CONTAINER_TMPFS", ctx.dir.display().to_string());
    nowhere.ok(&["write /x y"]);
    let end = nowhere.environment(0, ctx.rt(["slurm", "end"])).env("PATH", &path);
    not_saved(ctx, end, &["/not/there"]);
    step.empty();
    // By hand, one that has a name.
    with_name(&step, 42, 5, "tools").ok(&["write /by-hand x"]);
    let hand = ctx.path("hand.sqsh");
    let save = |id: &str| ctx.rt(["slurm", "save", id]).arg(&hand).env("PATH", &path);
    assert_eq!(save("42.tools").ok().stdout.trim(), hand.display().to_string());
    assert!(fs::read(&hand).unwrap().starts_with(b"hsqs"));
    save("42.other").fails(&["no container 42.other"]);
    ctx.rt(["delete", "42.tools"]).silent();
    assert!(layers(ctx).is_empty());
}

/// Where it is known how many tasks there are, the last one saves the container, and its exit code says whether that went well.
fn saved_by_the_last_task(ctx: &Ctx) {
    let base = Step::read_only(ctx);
    let of = |number, dir: &str| {
        let step = Step { step: number, ..base.again() };
        ctx.remember(&step.container());
        step.saved_as(ctx.path(dir).join("out.sqsh"), 2)
    };
    ctx.mkdir("place");
    let file = ctx.path("place/out.sqsh");
    let step = of(0, "place");
    assert_eq!(step.command(1, &["write /one x", "exit 7"]).run().code, 7);
    assert!(!file.exists(), "one task is to come");
    let out = step.command(0, &["cat /one", "env"]).ok();
    assert_eq!(out.line(0), "x");
    assert!(!out.stdout.contains("RT_CONTAINER_"), "{out:?}");
    let saved = fs::read(&file).unwrap();
    assert!(saved.starts_with(b"hsqs"), "a squashfs");
    // The end of the step does it no second time.
    fs::remove_file(&file).unwrap();
    step.end();
    assert!(!file.exists() && layers(ctx).is_empty());
    // One that was killed leaves it to that.
    let step = of(1, "place");
    let killed = step.task(1, &["write /one x", "pause"]);
    sys::kill(killed.pid(), libc::SIGKILL).unwrap();
    killed.wait();
    step.ok(&["ready"]);
    assert!(!file.exists());
    step.end();
    assert!(file.exists());
    // A job that is requeued has the same step again, in a container that is still there.
    let step = Step { step: 3, ..base.again() };
    for _ in 0..2 {
        fs::remove_file(&file).unwrap();
        let step = with_name(&step, 42, 3, "tools").saved_as(&file, 2);
        step.ok(&["write /one x"]);
        assert!(!file.exists(), "one task is to come");
        step.command(1, &["write /two x"]).ok();
        assert!(file.exists());
        step.environment(0, ctx.rt(["slurm", "end"])).silent();
    }
    ctx.rt(["delete", "42.tools"]).silent();
    // Where nothing can be noted any more, as when other users have filled the file system, the end of the step saves it.
    fs::remove_file(&file).unwrap();
    let step = of(4, "place");
    step.ok(&["write /one x"]);
    let state = ctx.state.join(step.container());
    let allow = |mode| fs::set_permissions(&state, fs::Permissions::from_mode(mode)).unwrap();
    allow(0o500);
    step.command(1, &["ready"]).run();
    step.environment(0, ctx.rt(["slurm", "end"])).run();
    assert!(file.exists());
    // Root has noted all of it, and the end has removed the rest.
    if state.exists() {
        allow(0o700);
        step.end();
    }
    // A directory that is gone by then.
    ctx.mkdir("other");
    let step = of(2, "other");
    let first = step.task(0, &["write /one x", "ready"]);
    assert_eq!(first.wait().code, 0);
    fs::remove_dir(ctx.path("other")).unwrap();
    not_saved(ctx, step.command(1, &["ready"]), &["other"]);
    step.empty();
}

/// Slurm empties a directory of the job's own when the job ends. A save that begins then replaces no image.
fn saved_while_the_job_ends(ctx: &Ctx) {
    let base = Step::read_only(ctx);
    let file = ctx.path("out.sqsh");
    let of = |number| {
        let step = Step { step: number, ..base.again() }.with("RT_CONTAINER_IN_JOBS_OWN", "1");
        ctx.remember(&step.container());
        step.saved_as(&file, 1)
    };
    let ended = |step: &Step| {
        let running = step.task(0, &["write /one x", "pause"]);
        let children = format!("/proc/{0}/task/{0}/children", running.pid());
        let child = fs::read_to_string(children).unwrap().trim().parse().unwrap();
        [running.pid(), child].iter().for_each(|pid| sys::kill(*pid, libc::SIGTERM).unwrap());
        running.wait()
    };
    let end = |step: &Step| step.environment(0, ctx.rt(["slurm", "end"])).silent();
    let out = ended(&of(0));
    end(&of(0));
    assert!(out.stderr.contains("out.sqsh may lack files: the job may be ending"), "{out:?}");
    let good = fs::metadata(&file).unwrap().ino();
    let out = ended(&of(1));
    end(&of(1));
    assert!(out.stderr.contains("out.sqsh.42.1 may lack files: the job may be ending"), "{out:?}");
    assert_eq!(fs::metadata(&file).unwrap().ino(), good);
    assert!(fs::read(ctx.path("out.sqsh.42.1")).unwrap().starts_with(b"hsqs"));
    // A task that ends by itself does so before its job.
    let step = of(2);
    assert_eq!(step.ok(&["write /two x"]).stderr, "");
    assert_ne!(fs::metadata(&file).unwrap().ino(), good);
    end(&step);
    base.empty();
}

/// Runs a command that fails to save the container of a step of job 42, which stays until that job ends.
#[track_caller]
fn not_saved(ctx: &Ctx, cmd: Cmd, texts: &[&str]) {
    let out = cmd.run();
    assert_ne!(out.code, 0, "{out:?}");
    assert!(texts.iter().all(|text| out.stderr.contains(text)), "{texts:?}: {out:?}");
    assert_eq!(layers(ctx).len(), 1, "{out:?}");
    ctx.rt(["slurm", "delete", "42"]).silent();
    assert!(layers(ctx).is_empty());
}

/// A squashfs is written whatever the file is called, in the place of a link or an empty file, too.
fn saved_under_any_name(ctx: &Ctx) {
    let base = Step::read_only(ctx);
    for (at, link) in ["to-old.sqsh", "to-text", "to-nothing"].iter().zip(["old.sqsh", "text", "nothing"]) {
        symlink(link, ctx.path(at)).unwrap();
        ctx.give_link(&ctx.path(at));
    }
    ctx.file("old.sqsh", "hsqs of an earlier step");
    ctx.file("text", "mine");
    ctx.file("empty", "");
    let names = ["noext", "x.tar", "x.sif", "to-old.sqsh", "to-text", "to-nothing", "empty"];
    for (number, name) in (0..).zip(names) {
        let file = ctx.path(name);
        let step = Step { step: number, ..base.again() };
        ctx.remember(&step.container());
        let step = step.saved_as(&file, 1);
        step.prepare().ok();
        step.ok(&["write /result x"]);
        assert!(fs::symlink_metadata(&file).unwrap().is_file(), "{name}");
        assert!(fs::read(&file).unwrap().starts_with(b"hsqs"), "{name}");
        step.end();
    }
    // What the links led to is as it was.
    assert_eq!(fs::read_to_string(ctx.path("old.sqsh")).unwrap(), "hsqs of an earlier step");
    assert_eq!(fs::read_to_string(ctx.path("text")).unwrap(), "mine");
    assert!(!ctx.path("nothing").exists() && layers(ctx).is_empty());
}

/// Steps of a job, or jobs of an array, save under the same name at once: each writes a whole image, and the last one stays.
fn saved_under_one_name(ctx: &Ctx) {
    let base = Step::read_only(ctx);
    let file = ctx.path("out.sqsh");
    for round in 0..2 {
        let steps: Vec<Step<'_>> = (0..4).map(|n| Step { step: 4 * round + n, ..base.again() }).collect();
        steps.iter().for_each(|step| ctx.remember(&step.container()));
        let steps: Vec<Step<'_>> = steps.into_iter().map(|step| step.saved_as(&file, 1)).collect();
        let jobs: Vec<Job> = steps.iter().map(|step| step.command(0, &["write /result x"]).spawn()).collect();
        for job in jobs {
            let out = job.wait();
            assert_eq!(out.code, 0, "{out:?}");
        }
        assert!(fs::read(&file).unwrap().starts_with(b"hsqs"));
        steps.iter().for_each(|step| step.environment(0, ctx.rt(["slurm", "end"])).silent());
    }
    base.empty();
}

/// Where a save fails, what the step has written stays until the job's end, and its user is told how to save it.
fn what_is_not_saved_stays(ctx: &Ctx) {
    let path = images::search_path(ctx);
    let place = ctx.mkdir("place");
    let step = Step::read_only(ctx)
        .saved_as(ctx.path("place/out"), 1)
        .with("RT_CONTAINER_MOUNTS", format!("{}:/work", place.display()));
    step.prepare().ok();
    // The program itself makes something there that is no image.
    let out = step.command(0, &["write /result x", "write /work/out text"]).run();
    assert_ne!(out.code, 0, "{out:?}");
    let id = step.container();
    for text in
        [&ctx.path("place/out").display().to_string(), &format!("slurm save {id} FILE"), "until the job ends"]
    {
        assert!(out.stderr.contains(text), "{out:?}");
    }
    assert!(!out.stderr.contains("--force"), "{out:?}");
    step.environment(0, ctx.rt(["slurm", "end"])).silent();
    assert_eq!(layers(ctx), std::slice::from_ref(&id));
    // Where srun has gone before it was said, nobody has read it.
    let out = ctx.rt(["list"]).ok();
    let said = format!("{id} was not saved as {}", ctx.path("place/out").display());
    assert!(out.stderr.contains(&said) && out.stderr.contains(&format!("slurm save {id} FILE")), "{out:?}");
    assert_eq!(ctx.rt(["list", "-q"]).ok().stderr, "");
    assert_eq!(fs::read_to_string(ctx.path("place/out")).unwrap(), "text");
    let later = ctx.path("later");
    ctx.rt(["slurm", "save", &id]).arg(&later).env("PATH", &path).ok();
    assert!(fs::read(&later).unwrap().starts_with(b"hsqs"));
    ctx.rt(["slurm", "delete", "42"]).silent();
    step.empty();
    assert!(layers(ctx).is_empty());
}

/// `rt slurm end` may be outside of the job's own /tmp, in which the layer is.
fn a_layer_that_is_not_seen(ctx: &Ctx) {
    let path = images::search_path(ctx);
    let file = ctx.path("out.sqsh");
    let step = Step::read_only(ctx).saved_as(&file, 1);
    let killed = step.task(0, &["write /result x", "pause"]);
    children(killed.pid() as u32).iter().for_each(|pid| sys::kill(*pid as i32, libc::SIGSTOP).unwrap());
    sys::kill(killed.pid(), libc::SIGKILL).unwrap();
    killed.wait();
    let layers_of = ctx.path(&format!("rt-layers-{}", sys_uid(ctx)));
    for is_made_anew in [false, true] {
        fs::rename(&layers_of, ctx.path("seen")).unwrap();
        if is_made_anew {
            ctx.mkdir(layers_of.file_name().unwrap().to_str().unwrap());
        }
        let out = step.environment(0, ctx.rt(["slurm", "end"])).run();
        // Of that its user is told once.
        assert_eq!(
            (out.code, out.stderr.contains("srun --jobid=")),
            if is_made_anew { (0, false) } else { (1, true) },
            "{out:?}"
        );
        let _ = fs::remove_dir(&layers_of);
        fs::rename(ctx.path("seen"), &layers_of).unwrap();
    }
    ctx.rt(["slurm", "save", &step.container()]).arg(&file).env("PATH", &path).ok();
    assert!(fs::read(&file).unwrap().starts_with(b"hsqs"));
    ctx.rt(["slurm", "delete", "42"]).silent();
    step.empty();
}

/// `rt slurm end` may be outside of the job's own /tmp, in which the image is, while the layer is not.
fn an_image_that_is_not_seen(ctx: &Ctx) {
    let path = images::search_path(ctx);
    let file = ctx.path("out.sqsh");
    let step = Step::read_only(ctx).saved_as(&file, 1);
    let killed = step.task(0, &["write /result x", "pause"]);
    children(killed.pid() as u32).iter().for_each(|pid| sys::kill(*pid as i32, libc::SIGSTOP).unwrap());
    sys::kill(killed.pid(), libc::SIGKILL).unwrap();
    killed.wait();
    fs::rename(&step.bundle.dir, ctx.path("seen")).unwrap();
    let out = step.environment(0, ctx.rt(["slurm", "end"])).run();
    assert_eq!(out.code, 1, "{out:?}");
    assert!(
        out.stderr.contains("is lost if the job has ended") && out.stderr.contains("srun --jobid="),
        "{out:?}"
    );
    fs::rename(ctx.path("seen"), &step.bundle.dir).unwrap();
    ctx.rt(["slurm", "save", &step.container()]).arg(&file).env("PATH", &path).ok();
    assert!(fs::read(&file).unwrap().starts_with(b"hsqs"));
    ctx.rt(["slurm", "delete", "42"]).silent();
    step.empty();
}

/// A container that TmpFS is mounted in writes beside its own layer. What it makes there is neither written through nor read
/// through when the container is saved.
fn saving_writes_through_no_link(ctx: &Ctx) {
    let path = images::search_path(ctx);
    let file = ctx.path("out.sqsh");
    let base = Step::read_only(ctx);
    fs::write(base.bundle.dir.join("image.json"), r#"{"config":{"Cmd":["curl evil"]}}"#).unwrap();
    let step = with_name(&base, 42, 0, "tools");
    let tmpfs = ctx.dir.display().to_string();
    let step = step.with("RT_CONTAINER_MOUNTS", format!("{tmpfs}:/tmpfs"));
    let profile = ctx.path("profile");
    fs::write(&profile, "mine").unwrap();
    ctx.give_link(&profile);
    let layer = format!("/tmpfs/rt-layers-{}/42.tools", sys_uid(ctx));
    let plant = |name: &str| format!("symlink {} {layer}/bundle/{name}", profile.display());
    step.ok(&[&format!("mkdir {layer}/bundle"), &plant("image.json"), &plant("config.json"), "write /x y"]);
    let outside = ctx.dir.join(layer.strip_prefix("/tmpfs/").unwrap());
    assert!(fs::read_link(outside.join("bundle/image.json")).is_ok(), "the attack is in place");
    let save = || ctx.rt(["slurm", "save", "42.tools"]).arg(&file).env("PATH", &path);
    save().ok();
    assert_eq!(fs::read_to_string(&profile).unwrap(), "mine");
    assert!(fs::read(&file).unwrap().starts_with(b"hsqs"));
    // Another directory in the place of what was written.
    fs::remove_file(&file).unwrap();
    let secret = ctx.mkdir("secret");
    fs::rename(outside.join("upper"), outside.join("moved")).unwrap();
    symlink(&secret, outside.join("upper")).unwrap();
    save().fails(&["upper"]);
    assert!(!file.exists());
    fs::remove_file(outside.join("upper")).unwrap();
    fs::rename(outside.join("moved"), outside.join("upper")).unwrap();
    ctx.rt(["delete", "42.tools"]).silent();
    assert!(layers(ctx).is_empty());
}

/// Somebody of a team puts another thing in the place of a bundle in the team's store while a container of it is there.
fn what_a_team_saves(ctx: &Ctx) {
    let path = images::search_path(ctx);
    let mut base = Step::read_only(ctx);
    let bundles = fs::canonicalize(ctx.mkdir("images/bundles")).unwrap();
    let bundle = bundles.join(format!("sha256-{}", "ab".repeat(32)));
    fs::rename(&base.bundle.dir, &bundle).unwrap();
    // The user has a link to it.
    let link = ctx.path("link");
    symlink(&bundle, &link).unwrap();
    base.bundle.dir = link.clone();
    let step = with_name(&base, 42, 0, "tools");
    step.ok(&["write /x y"]);
    let file = ctx.path("out.sqsh");
    let save = || ctx.rt(["slurm", "save", "42.tools"]).arg(&file).env("PATH", &path);
    save().ok();
    fs::remove_file(&file).unwrap();
    // A directory that shows the user's own files, by a link from somewhere.
    let (secret, shows) = (ctx.mkdir("secret"), ctx.mkdir("shows"));
    fs::write(secret.join("key"), "k").unwrap();
    let config = fs::read_to_string(bundle.join("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    config["root"]["path"] = json!(secret);
    let hooked = ctx.path("hooked");
    config["hooks"] = json!({ "createRuntime": [{ "path": "/bin/sh",
        "args": ["sh", "-c", format!("echo >{}", hooked.display())] }] });
    fs::write(shows.join("config.json"), config.to_string()).unwrap();
    let aside = ctx.path("aside");
    fs::rename(&bundle, &aside).unwrap();
    symlink(&shows, &bundle).unwrap();
    save().fails(&["in a store no link leads to a bundle"]);
    let again = || {
        let numbers =
            [("SLURM_JOB_ID", "42"), ("SLURM_STEP_ID", "1"), ("SLURM_LOCALID", "0"), ("SLURM_PROCID", "0")];
        let named = [
            ("RT_CONTAINER_NAME", "tools"),
            ("RT_CONTAINER_ARGV0", "probe"),
            ("SLURMD_NODENAME", &base.node),
        ];
        let cmd = numbers
            .iter()
            .chain(&named)
            .fold(ctx.rt(["slurm", "task", "--"]), |cmd, (name, value)| cmd.env(name, value));
        cmd.env("RT_IMAGES", ctx.path("images")).env("RT_CONTAINER_TMPFS", &ctx.dir).args(["cat /x"])
    };
    again().fails(&["bundle", "symbolic links"]);
    assert!(!hooked.exists(), "a hook of somebody else");
    fs::remove_file(&bundle).unwrap();
    fs::rename(&aside, &bundle).unwrap();
    fs::remove_file(&link).unwrap();
    symlink(&shows, &link).unwrap();
    save().ok();
    assert_eq!(again().ok().line(0), "y");
    fs::remove_file(&file).unwrap();
    // The root, and what nobody ends to read.
    let root = bundle.join("rootfs");
    fs::rename(&root, &aside).unwrap();
    symlink(&secret, &root).unwrap();
    save().fails(&["rootfs"]);
    fs::remove_file(&root).unwrap();
    fs::rename(&aside, &root).unwrap();
    for name in ["config.json", "image.json"] {
        let (file, own) = (bundle.join(name), secret.join("config.json"));
        fs::write(&own, fs::read(shows.join("config.json")).unwrap()).unwrap();
        let _ = fs::rename(&file, &aside);
        symlink(&own, &file).unwrap();
        save().fails(&[name, "symbolic links"]);
        fs::remove_file(&file).unwrap();
        let _ = fs::rename(&aside, &file);
    }
    fs::rename(bundle.join("config.json"), &aside).unwrap();
    sys::mkfifo(&bundle.join("config.json")).unwrap();
    save().fails(&["config.json"]);
    assert!(!file.exists());
    fs::remove_file(bundle.join("config.json")).unwrap();
    fs::rename(&aside, bundle.join("config.json")).unwrap();
    ctx.rt(["delete", "42.tools"]).silent();
    assert!(layers(ctx).is_empty());
}

/// The same where only the root of the user's bundle is in the team's, or where the user's bundle lies below its root.
fn what_leads_to_a_teams_bundle_is_saved(ctx: &Ctx) {
    let path = images::search_path(ctx);
    let mut base = Step::read_only(ctx);
    let stored = ctx.mkdir(&format!("images/bundles/sha256-{}", "ab".repeat(32)));
    fs::set_permissions(&stored, fs::Permissions::from_mode(0o775)).unwrap();
    let (root, aside, secret) = (stored.join("rootfs"), ctx.path("aside"), ctx.mkdir("secret"));
    fs::rename(base.bundle.rootfs(), &root).unwrap();
    symlink(&root, base.bundle.rootfs()).unwrap();
    let file = ctx.path("out.sqsh");
    let save = || ctx.rt(["slurm", "save", "42.tools"]).arg(&file).env("PATH", &path);
    with_name(&base, 42, 0, "tools").ok(&["write /x y"]);
    fs::rename(&root, &aside).unwrap();
    symlink(&secret, &root).unwrap();
    save().fails(&["rootfs: not a directory, and others"]);
    fs::remove_file(&root).unwrap();
    fs::rename(&aside, &root).unwrap();
    save().ok();
    fs::remove_file(&file).unwrap();
    ctx.rt(["delete", "42.tools"]).silent();

    let below = root.join("below");
    fs::remove_file(base.bundle.rootfs()).unwrap();
    fs::rename(&base.bundle.dir, &below).unwrap();
    fs::rename(&root, &aside).unwrap();
    fs::create_dir(&root).unwrap();
    fs::rename(aside.join("below"), &below).unwrap();
    fs::rename(&aside, below.join("rootfs")).unwrap();
    base.bundle.dir = below.clone();
    with_name(&base, 42, 0, "tools").ok(&["write /x y"]);
    let mut config: Value =
        serde_json::from_str(&fs::read_to_string(below.join("config.json")).unwrap()).unwrap();
    config["root"]["path"] = json!(secret);
    fs::write(below.join("config.json"), config.to_string()).unwrap();
    save().ok();
    fs::remove_file(&file).unwrap();
    fs::rename(below.join("rootfs"), &aside).unwrap();
    save().fails(&["rootfs", "no such file"]);
    fs::rename(&aside, below.join("rootfs")).unwrap();
    ctx.rt(["delete", "42.tools"]).silent();
}

/// A program that has the directory of its layer puts a link in the place of one of its parts.
fn links_in_the_place_of_a_layer(ctx: &Ctx) {
    let path = images::search_path(ctx);
    let base = Step::read_only(ctx);
    let step = with_name(&base, 42, 0, "tools");
    step.ok(&["write /x y"]);
    let all = format!("rt-layers-{}", sys_uid(ctx));
    let secret = ctx.mkdir("secret");
    for part in ["42.tools/upper", "42.tools/work", "42.tools", ""] {
        let (place, aside) = (ctx.dir.join(&all).join(part), ctx.path("aside"));
        let place: std::path::PathBuf = place.components().collect();
        fs::rename(&place, &aside).unwrap();
        // To what has the same names, and to what has none.
        for target in [&aside, &secret] {
            symlink(target, &place).unwrap();
            ctx.give_link(&place);
            step.command(0, &["say no"]).fails(&["rt-layers-"]);
            // What overlayfs needs beside the layer is not saved.
            if part != "42.tools/work" {
                let file = ctx.path("out.sqsh");
                ctx.rt(["slurm", "save", "42.tools"]).arg(&file).env("PATH", &path).fails(&["rt-layers-"]);
                assert!(!file.exists(), "{part}");
            }
            fs::remove_file(&place).unwrap();
        }
        fs::rename(&aside, &place).unwrap();
    }
    // A directory that others can write is not the caller's alone.
    let top = ctx.dir.join(&all).join("42.tools");
    fs::set_permissions(&top, PermissionsExt::from_mode(0o777)).unwrap();
    ctx.rt(["slurm", "save", "42.tools"])
        .arg(ctx.path("out.sqsh"))
        .env("PATH", &path)
        .fails(&["42.tools", "others"]);
    fs::set_permissions(&top, PermissionsExt::from_mode(0o700)).unwrap();
    assert_eq!(step.ok(&["cat /x"]).line(0), "y");
    ctx.rt(["delete", "42.tools"]).silent();
    assert!(layers(ctx).is_empty() && fs::read_dir(&secret).unwrap().next().is_none());
}

/// A program that can write above the place where its container is saved puts a link there. What it was not shown stays.
fn the_place_to_save_is_no_link(ctx: &Ctx) {
    let path = images::search_path(ctx);
    let work = ctx.mkdir("work");
    ctx.mkdir("private");
    let private = ctx.file("private/out.sqsh", "hsqs of somebody");
    let link = format!("symlink {} /work/sub", ctx.path("private").display());
    let step = |save: &str| {
        Step::read_only(ctx)
            .with("RT_CONTAINER_SAVE", save)
            .with("RT_CONTAINER_TMPFS", ctx.dir.display().to_string())
            .with("RT_CONTAINER_MOUNTS", format!("{}:/work", work.display()))
    };
    let end = |step: &Step| step.environment(0, ctx.rt(["slurm", "end"])).env("PATH", &path);
    let place = work.join("sub/out.sqsh").display().to_string();
    let is_refused = |operations: &[&str], text: &str| {
        let step = step(&place);
        let out = step.ok(operations);
        assert!(out.all().iter().all(Value::is_null), "the attack is in place: {out:?}");
        not_saved(ctx, end(&step), &[&place, text]);
        assert_eq!(fs::read_to_string(&private).unwrap(), "hsqs of somebody");
        step.empty();
        assert!(layers(ctx).is_empty());
    };
    // The directory is there, and another one has its name at the end.
    ctx.mkdir("work/sub");
    is_refused(&["rename /work/sub /work/old", &link], "not the directory that it was");
    fs::remove_file(work.join("sub")).unwrap();
    // It is not there, and has a link in its path at the end.
    is_refused(&[&link], "a link in its path was not there");
    fs::remove_file(work.join("sub")).unwrap();
    is_refused(&["mkdir /work/sub", "rmdir /work/sub", &link], "a link in its path was not there");
    fs::remove_file(work.join("sub")).unwrap();
    // Whatever is there at the end, the step ends.
    ctx.mkdir("work/sub");
    let ended = step(&place);
    ended.ok(&["mkdir /work/sub/out.sqsh"]);
    not_saved(ctx, end(&ended), &["out.sqsh: not an image file"]);
    ended.empty();
    // Links that were there before are the caller's own, and a directory that the program makes is one.
    ctx.mkdir("work/kept");
    symlink(work.join("kept"), ctx.path("own")).unwrap();
    ctx.give_link(&ctx.path("own"));
    for (save, operation) in
        [(ctx.path("own/out.sqsh"), "write /work/x y"), (work.join("made/out.sqsh"), "mkdir /work/made")]
    {
        let step = step(&save.display().to_string());
        step.ok(&[operation]);
        end(&step).silent();
        assert!(fs::read(&save).unwrap().starts_with(b"hsqs"), "{}", save.display());
        step.empty();
    }
}

fn wrong_values_name_their_variable(ctx: &Ctx) {
    for name in ["WRITABLE", "MOUNT_HOME", "REMAP_ROOT", "ENTRYPOINT", "ENTRYPOINT_LOG", "CACHE"] {
        let name = format!("RT_CONTAINER_{name}");
        Step::new(ctx)
            .with(&name, "maybe")
            .command(0, &["say no"])
            .fails(&[&name, "\"maybe\" is not 1 or 0"]);
    }
}

/// What another user has made under the name of this one's state is not used.
fn state_beside_that_of_others(ctx: &Ctx) {
    let step = Step::new(ctx);
    let state = ctx.mkdir("taken");
    fs::set_permissions(&state, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let cmd = ctx.command(ctx.rt_path()).arg("--root").arg(&state).args(["slurm", "task", "--", "say no"]);
    step.environment(0, cmd).fails(&["must belong to uid", "nobody else"]);
    assert!(fs::metadata(&state).unwrap().is_dir());
}
