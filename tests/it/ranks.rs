//! The ranks of a run share one container (`rt run --share`): by the variables of each launcher, with several processes in
//! place of its ranks. Real launchers are in integration/mpi.sh.

use crate::client::{Caller, UID};
use crate::fixture::{Bundle, Cmd, Ctx, Job, errno, eventually, namespace};
use crate::runner::{skip, tests};
use crate::slurm::end;
use crate::sys::{self, Step};
use serde_json::{Value, json};
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixStream;

tests! {
    ALL { each_launcher, who_asks_for_the_same, written_roots, named_by_hand, roots_in_a_teams_store, never_shared, killed_and_made_anew }
    BOTH {
        runs_are_apart, each_has_its_own, sixty_four_at_once, memory_of_another_rank, killed_at_any_time, killed_while_it_is_made, calls_of_one_rank,
        found_by_run_and_rank, hooks_of_the_first, precreate_hooks_see_each_rank, what_an_image_sets_shares_nothing, descriptor_of_pmi,
        more_descriptors_than_one, covers_stay, one_after_the_other, a_layer_for_each, held_while_the_launcher_lives, who_holds_is_confined,
    }
    USER { configured, other_users_do_not_join, one_session_keyring }
}

/// What each launcher says to rank N of two, and what a run of it is called. A new one stands at the end: tests name others by
/// their places.
const LAUNCHERS: [(&str, &str); 9] = [
    (
        "mpirun-1759444993",
        "OMPI_COMM_WORLD_RANK=N OMPI_COMM_WORLD_LOCAL_RANK=N OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=1759444993 \
         PMIX_RANK=N PMIX_SERVER_URI2=1759444992.0;tcp4://127.0.0.1:36809",
    ),
    ("mpirun-prterun-n1-33_1", "OMPI_COMM_WORLD_RANK=N PMIX_NAMESPACE=prterun-n1-33@1 PMIX_RANK=N"),
    ("mpiexec-", "PMI_RANK=N PMI_SIZE=2 MPI_LOCALRANKID=N MPI_LOCALNRANKS=2"),
    ("pals-5f1c", "PALS_RANKID=N PALS_LOCAL_RANKID=N PALS_LOCAL_SIZE=2 PALS_APID=5f1c PMI_RANK=N PMI_SIZE=2"),
    ("flux-99", "FLUX_TASK_RANK=N FLUX_TASK_LOCAL_ID=N FLUX_JOB_SIZE=2 FLUX_JOB_ID=99"),
    ("jsrun-88", "JSM_NAMESPACE_RANK=N JSM_NAMESPACE_LOCAL_SIZE=2 LSB_JOBID=88 PMIX_NAMESPACE=5 PMIX_RANK=N"),
    ("mvapich2-n1_44", "MV2_COMM_WORLD_RANK=N MV2_COMM_WORLD_LOCAL_SIZE=2 PMI_PORT=n1:44"),
    ("torchrun-none", "RANK=N LOCAL_RANK=N LOCAL_WORLD_SIZE=2 TORCHELASTIC_RUN_ID=none MASTER_PORT=29500"),
    ("srun-42.0", "SLURM_JOB_ID=42 SLURM_STEP_ID=0 SLURM_LOCALID=N SLURM_PROCID=N SLURM_STEP_NUM_TASKS=2"),
];

/// A bundle as of `rt pull`: without a PID namespace.
fn app(ctx: &Ctx) -> Bundle {
    let bundle = ctx.bundle().without_namespace("pid");
    // The host's, which a container without that namespace gets.
    let bundle = bundle.without_mount("/proc").mount("/proc", "bind", "/proc", &["rbind"]);
    bundle.write();
    bundle
}

/// A rank, by what its launcher says to it.
fn with(mut cmd: Cmd, variables: &str, rank: u32) -> Cmd {
    for variable in variables.split(' ') {
        let (name, value) = variable.split_once('=').unwrap();
        cmd = cmd.env(name, if value == "N" { rank.to_string() } else { value.to_owned() });
    }
    cmd
}

fn call(ctx: &Ctx, bundle: &Bundle, flags: &[&str], operations: &[&str]) -> Cmd {
    ctx.rt(["run"]).args(flags).arg(&bundle.dir).args(["--", "/probe"]).args(operations)
}

/// A rank of Open MPI's, with more flags.
fn rank(ctx: &Ctx, bundle: &Bundle, rank: u32, flags: &[&str], operations: &[&str]) -> Cmd {
    with(call(ctx, bundle, flags, operations), LAUNCHERS[0].1, rank)
}

/// One that has printed its first line.
fn begun(mut job: Job) -> Job {
    job.line(0);
    job
}

fn pause(ctx: &Ctx, bundle: &Bundle, number: u32, flags: &[&str]) -> Job {
    begun(rank(ctx, bundle, number, flags, &["ready", "pause"]).spawn())
}

fn ids(ctx: &Ctx) -> Vec<String> {
    ctx.rt(["list", "-q"]).ok().stdout.lines().map(String::from).collect()
}

#[track_caller]
fn share(a: &Job, b: &Job) -> bool {
    namespace(a.pid(), "mnt") == namespace(b.pid(), "mnt")
}

/// The processes that hold containers for ranks to come.
fn holders(ctx: &Ctx) -> Vec<i32> {
    let first = |dir: fs::DirEntry| fs::read_link(dir.path().join("first")).ok();
    let firsts = fs::read_dir(&ctx.state).into_iter().flatten().flatten().filter_map(first);
    let pid =
        |text: std::path::PathBuf| text.to_str()?.strip_prefix("hold ")?.split(' ').next()?.parse().ok();
    firsts.filter_map(pid).filter(|pid| lives(*pid)).collect()
}

/// False for one that has ended, and for one that nobody has waited for yet.
fn lives(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
}

#[track_caller]
fn ended(what: &str, pid: i32) {
    eventually(what, || Some(()).filter(|()| !lives(pid)));
}

/// The launcher of most ranks here is this process, which lives on: what holds a container for more of them is ended.
#[track_caller]
fn nothing_is_left(ctx: &Ctx) {
    for pid in holders(ctx) {
        sys::kill(pid, libc::SIGKILL).unwrap();
        ended("what has held the container", pid);
    }
    nothing_is_left_of_launchers(ctx);
}

#[track_caller]
fn nothing_is_left_of_launchers(ctx: &Ctx) {
    assert_eq!(ids(ctx), [""; 0]);
    let left: Vec<_> = fs::read_dir(&ctx.state).into_iter().flatten().flatten().map(|e| e.path()).collect();
    assert!(left.is_empty(), "{left:?}");
}

fn each_launcher(ctx: &Ctx) {
    let bundle = app(ctx);
    let before = bundle.strict_tree();
    for (run, variables) in LAUNCHERS {
        let ranks =
            [0, 1].map(|n| begun(with(call(ctx, &bundle, &[], &["ready", "pause"]), variables, n).spawn()));
        for name in ["user", "mnt", "ipc", "pid", "net", "uts"] {
            assert_eq!(namespace(ranks[0].pid(), name), namespace(ranks[1].pid(), name), "{run}: {name}");
        }
        assert!(namespace(ranks[0].pid(), "mnt") != namespace(std::process::id() as i32, "mnt"), "{run}");
        let all = ids(ctx);
        assert!(all.len() == 1 && all[0].starts_with(run), "{run}: {all:?}");
        end(ranks.into());
        nothing_is_left(ctx);
    }
    assert_eq!(before, bundle.strict_tree(), "the image is as it was");
}

/// The kernel counts a user's keyrings, and lets him have fewer than a node has processors.
fn one_session_keyring(ctx: &Ctx) {
    // keyctl 250: KEYCTL_GET_KEYRING_ID 0 of the session keyring -3.
    const ASK: &str = "syscall 250 0 -3 0";
    let Ok(callers) = sys::syscall(250, &[0, -3i64 as u64, 0]) else { skip!("no keyrings") };
    let bundle = app(ctx);
    let asked = |run: usize, number: u32, call: &str| {
        let operations = [ASK, call, "pause"];
        let mut job = with(self::call(ctx, &bundle, &[], &operations), LAUNCHERS[run].1, number).spawn();
        let said = [job.line(0), job.line(1)];
        (job, said)
    };
    let (first, [keyring, _]) = asked(0, 0, "ready");
    let (second, [of_second, _]) = asked(0, 1, "ready");
    assert_eq!(keyring, of_second);
    assert_ne!(keyring, json!(callers), "not the caller's");
    // Another container of the same user has another one. KEYCTL_LINK 8: who has a key in his own keyring possesses it.
    let (other, [of_other, linked]) = asked(1, 0, &format!("syscall 250 8 {keyring} -3"));
    assert_ne!(keyring, of_other);
    assert_eq!(linked, errno(libc::EACCES));
    end(vec![first, second, other]);
    nothing_is_left(ctx);
}

fn runs_are_apart(ctx: &Ctx) {
    let bundle = app(ctx);
    for (run, variables) in LAUNCHERS.into_iter().filter(|(run, _)| *run != "mpiexec-") {
        let others = match run {
            "torchrun-none" => variables.replace("29500", "29501"),
            _ => {
                let name = [
                    "URI2=1759444992.0;tcp4://127.0.0.1:3",
                    "prterun-n1-3",
                    "5f1",
                    "ID=9",
                    "JOBID=8",
                    "n1:4",
                    "STEP_ID=",
                ];
                let found = name.into_iter().find(|name| variables.contains(name)).unwrap();
                variables.replace(found, &format!("{found}7"))
            }
        };
        let start =
            |variables: &str| begun(with(call(ctx, &bundle, &[], &["ready", "pause"]), variables, 0).spawn());
        let (one, other) = (start(variables), start(&others));
        assert!(!share(&one, &other), "{variables} and {others}");
        end(vec![one, other]);
    }
    // Another mpirun in a rank, and in another rank.
    let nested = |outer: &str| {
        let cmd =
            with(call(ctx, &bundle, &[], &["ready", "pause"]), LAUNCHERS[8].1, 0).env("SLURM_STEP_ID", outer);
        begun(with(cmd, LAUNCHERS[0].1, 0).spawn())
    };
    let (one, other, again) = (nested("0"), nested("1"), nested("0"));
    assert_eq!((share(&one, &other), share(&one, &again)), (false, true));
    end(vec![one, other, again]);
    // Without a variable that names the run it is the launcher, here this process and a shell.
    let hydra = |cmd| with(cmd, LAUNCHERS[2].1, 0);
    let one = begun(hydra(call(ctx, &bundle, &[], &["ready", "pause"])).spawn());
    let rt = ctx.rt_path();
    let line = format!(
        "{} --root {} run {} -- /probe ns; exit 0",
        rt.display(),
        ctx.state.display(),
        bundle.dir.display()
    );
    let out = hydra(ctx.command("/bin/sh").args(["-c", &line])).ok();
    assert_ne!(out.line(0)["mnt"], json!(namespace(one.pid(), "mnt")));
    end(vec![one]);
    nothing_is_left(ctx);
}

fn who_asks_for_the_same(ctx: &Ctx) {
    let (bundle, other) = (app(ctx), app(ctx));
    let here = ctx.dir.to_str().unwrap();
    let volume = format!("{here}:/mnt");
    let first = pause(ctx, &bundle, 0, &[]);
    // What is the program's own.
    let umask = vec![Step::Umask(0o77)];
    let same =
        [&["-e", "A=1"][..], &["-w", "/home"], &["-t=false"], &["--clear-env"], &["--entrypoint", "/probe"]];
    for flags in same {
        let job = begun(rank(ctx, &bundle, 1, flags, &["ready", "pause"]).after(umask.clone()).spawn());
        assert!(share(&first, &job), "{flags:?}");
        end(vec![job]);
    }
    let mut asked = vec![
        vec!["-v", &volume],
        vec!["--tmpfs", "/mnt"],
        vec!["--net", "none"],
        vec!["--ipc", "host"],
        vec!["--hostname", "other"],
        vec!["--read-only"],
        vec!["--writable"],
        vec!["--no-pivot"],
    ];
    if ctx.foreign() {
        asked.retain(|flags| flags[0] != "--net");
    } else {
        asked.push(vec!["--user-map", "caller"]);
    }
    for flags in asked {
        let [one, two] = [1, 2].map(|n| pause(ctx, &bundle, n, &flags));
        assert_eq!((share(&first, &one), share(&one, &two)), (false, true), "{flags:?}");
        end(vec![one, two]);
    }
    let job = pause(ctx, &other, 1, &[]);
    assert!(!share(&first, &job), "another bundle");
    end(vec![job]);
    // Another one in its place.
    let config = bundle.config.clone();
    fs::rename(bundle.rootfs(), bundle.dir.join("old")).unwrap();
    fs::rename(other.rootfs(), bundle.rootfs()).unwrap();
    let job = pause(ctx, &bundle, 1, &[]);
    assert!(!share(&first, &job), "another root of the same path");
    end(vec![job, first]);
    assert_eq!(config, bundle.config);
    nothing_is_left(ctx);
}

fn written_roots(ctx: &Ctx) {
    let bundle = app(ctx).with("/root/readonly", json!(true));
    bundle.write();
    let layer = ctx.mkdir("layer");
    let overlay = ["--overlay", layer.to_str().unwrap()];
    for flags in [&["--writable"][..], &overlay] {
        let first = begun(rank(ctx, &bundle, 0, flags, &["write /made x", "pause"]).spawn());
        let out = rank(ctx, &bundle, 1, flags, &["cat /made", "append /made y"]).ok();
        assert_eq!((out.line(0), out.line(1)), (json!("x"), Value::Null), "{flags:?}");
        let out = rank(ctx, &bundle, 2, flags, &["cat /made"]).ok();
        assert_eq!(out.line(0), "xy", "{flags:?}");
        end(vec![first]);
    }
    assert_eq!(fs::read_to_string(layer.join("upper/made")).unwrap(), "xy");
    // A run that comes later has the layer, and not the memory.
    let out = rank(ctx, &bundle, 0, &overlay, &["cat /made"]).ok();
    assert_eq!(out.line(0), "xy");
    assert_eq!(rank(ctx, &bundle, 0, &["--writable"], &["cat /made"]).ok().line(0), errno(libc::ENOENT));
    for (flags, seen) in [
        (&["--read-only"][..], errno(libc::ENOENT)),
        (&[&overlay[..], &["--read-only"]].concat(), json!("xy")),
    ] {
        let first = pause(ctx, &bundle, 0, flags);
        let out = rank(ctx, &bundle, 1, flags, &["cat /made", "write /new x", "ns"]).ok();
        assert_eq!((out.line(0), out.line(1)), (seen, errno(libc::EROFS)), "{flags:?}");
        assert_eq!(out.line(2)["mnt"], json!(namespace(first.pid(), "mnt")), "{flags:?}");
        end(vec![first]);
    }
    // A layer that is thrown away with one rank is that rank's. A client's root is another user in the directories for layers.
    if ctx.caller != Caller::Nested {
        let tmp = ctx.mkdir("tmp");
        let start = |n| {
            begun(
                rank(ctx, &bundle, n, &["--writable=disk"], &["ready", "pause"]).env("TMPDIR", &tmp).spawn(),
            )
        };
        let (first, second) = (start(0), start(1));
        assert_ne!(mnt_of(&first), mnt_of(&second));
        end(vec![first, second]);
    }
    nothing_is_left(ctx);
}

fn named_by_hand(ctx: &Ctx) {
    let bundle = app(ctx);
    let start = |flags: &[&str]| begun(call(ctx, &bundle, flags, &["ready", "pause"]).spawn());
    let [one, two] = [0, 1].map(|_| start(&["--share", "mine"]));
    let other = start(&["--share=other"]);
    let by_variable = begun(call(ctx, &bundle, &[], &["ready", "pause"]).env("RT_SHARE", "mine").spawn());
    let flag_counts_more =
        begun(call(ctx, &bundle, &["--share", "auto"], &["ready", "pause"]).env("RT_SHARE", "mine").spawn());
    // In the name of nobody's run, whichever launcher there is.
    let of_a_rank = pause(ctx, &bundle, 0, &["--share", "mine"]);
    let shared = [&two, &other, &by_variable, &flag_counts_more, &of_a_rank].map(|job| share(&one, job));
    assert_eq!(shared, [true, false, true, false, true]);
    let inside = ctx.rt(["exec", "mine", "/probe", "ns"]).ok();
    assert_eq!(inside.line(0)["mnt"], json!(namespace(one.pid(), "mnt")));
    end(vec![one, two, other, by_variable, flag_counts_more, of_a_rank]);
    for (flags, texts) in [
        (&["--share", "a b"][..], &["--share or RT_SHARE", "invalid container ID"][..]),
        (&["--share", "mine", "-d"], &["--share mine and --detach exclude each other"]),
        (&["--share", "mine", "--name", "x"], &["--share mine and --name exclude each other"]),
        (
            &["--share", "mine", "--as-root", "--overlay", "ov", "--root-emulation", "fast"],
            &["--share mine and --root-emulation exclude each other"],
        ),
        (&["--share", "mine", "--writable=disk"], &["--share mine and --writable=disk exclude each other"]),
        (&["--share", "mine", "--pid", "private"], &["--share mine", "PID namespace of its own"]),
    ] {
        call(ctx, &bundle, flags, &["ready"]).fails(texts);
    }
    nothing_is_left(ctx);
}

/// The root of a bundle of the caller's is in a store that others can write, and a link of his leads there.
fn roots_in_a_teams_store(ctx: &Ctx) {
    let mut bundle = app(ctx);
    let stored = ctx.mkdir(&format!("images/bundles/sha256-{}", "ab".repeat(32)));
    fs::set_permissions(&stored, fs::Permissions::from_mode(0o775)).unwrap();
    fs::rename(bundle.rootfs(), stored.join("rootfs")).unwrap();
    symlink(stored.join("rootfs"), bundle.rootfs()).unwrap();
    symlink(&stored, ctx.path("link")).unwrap();
    for root in [json!("rootfs"), json!(ctx.path("link/rootfs"))] {
        bundle = bundle.with("/root/path", root.clone());
        bundle.write();
        let [one, two] =
            [0, 1].map(|_| begun(call(ctx, &bundle, &["--share", "mine"], &["ready", "pause"]).spawn()));
        assert!(share(&one, &two), "{root}");
        end(vec![one, two]);
    }
    fs::remove_file(bundle.rootfs()).unwrap();
    fs::rename(stored.join("rootfs"), bundle.rootfs()).unwrap();
    nothing_is_left(ctx);
}

fn never_shared(ctx: &Ctx) {
    let bundle = app(ctx);
    let first = pause(ctx, &bundle, 0, &[]);
    let pid_file = ctx.path("pid");
    let flags = [
        &["--share", "never"][..],
        &["--pid", "private"],
        &["--pid-file", pid_file.to_str().unwrap()],
        &["--name", "own"],
        &["--strict"],
    ];
    for flags in flags {
        if flags[0] == "--strict" && ctx.caller != Caller::Root {
            continue;
        }
        let [one, two] = [1, 2].map(|n| {
            begun(
                rank(
                    ctx,
                    &bundle,
                    n,
                    if n == 2 && flags[0] == "--name" { &["--name", "two"] } else { flags },
                    &["ready", "pause"],
                )
                .spawn(),
            )
        });
        let mounts = [&first, &one, &two].map(sys_children);
        assert!(mounts[0] != mounts[1] && mounts[1] != mounts[2] && mounts[0] != mounts[2], "{flags:?}");
        end(vec![one, two]);
    }
    let job = begun(rank(ctx, &bundle, 1, &[], &["ready", "pause"]).env("RT_SHARE", "never").spawn());
    assert!(!share(&first, &job));
    // One rank alone is no run of several.
    let alone = with(call(ctx, &bundle, &[], &["ready", "pause"]), LAUNCHERS[0].1, 0)
        .env("OMPI_COMM_WORLD_LOCAL_SIZE", "1");
    let alone = [
        alone,
        with(call(ctx, &bundle, &[], &["ready", "pause"]), LAUNCHERS[0].1, 1)
            .env("OMPI_COMM_WORLD_LOCAL_SIZE", "1"),
    ];
    let [one, two] = alone.map(|cmd| begun(cmd.spawn()));
    assert!(!share(&one, &two));
    // What keeps a library from reading another rank's memory is only for these.
    let env = |flags: &[&str]| rank(ctx, &bundle, 1, flags, &["env"]).ok().line(0);
    let variable = "OMPI_MCA_btl_vader_single_copy_mechanism";
    let inherits = ["-e", "OMPI_COMM_WORLD_RANK", "-e", "PMIX_NAMESPACE"];
    assert_eq!(env(&inherits)[variable], Value::Null);
    let own = env(&[&inherits[..], &["--share", "never"]].concat());
    let has_own_user = ctx.caller == Caller::User;
    assert_eq!(own[variable], if has_own_user { json!("none") } else { Value::Null });
    end(vec![first, job, one, two]);
    nothing_is_left(ctx);
}

/// The mount namespace of a program, which may be a child of the process that was started.
fn sys_children(job: &Job) -> String {
    let below = crate::fixture::children(job.pid() as u32);
    namespace(below.first().map_or(job.pid(), |pid| *pid as i32), "mnt")
}

fn each_has_its_own(ctx: &Ctx) {
    let bundle = app(ctx);
    let first = pause(ctx, &bundle, 0, &[]);
    let mut own = app(ctx);
    own.config = bundle.config.clone();
    own.dir = bundle.dir.clone();
    own.set("/process/rlimits", json!([{ "type": "RLIMIT_NOFILE", "soft": 100, "hard": 200 }]));
    own.set(
        "/linux/seccomp",
        json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
        { "names": ["sethostname"], "action": "SCMP_ACT_ERRNO", "errnoRet": 77 }] }),
    );
    own.write();
    let operations = [
        "env",
        "cwd",
        "rlimit 7",
        "umask",
        "affinity",
        "sethostname x",
        "readline",
        "dispositions",
        "ns",
        "exit 9",
    ];
    let out = rank(ctx, &own, 1, &["-e", "ONLY=1", "-w", "/home"], &operations)
        .before([Step::Cpu(0)])
        .after([Step::Umask(0o27), Step::Ignore(libc::SIGHUP), Step::Ignore(libc::SIGUSR1)])
        .input("text\n")
        .run();
    assert_eq!(out.code, 9, "{out:?}");
    assert_eq!((&out.line(0)["ONLY"], out.line(1)), (&json!("1"), json!("/home")));
    assert_eq!((out.line(2), out.line(3), out.line(4)), (json!([100, 200]), json!(0o27), json!([0])));
    assert_eq!((out.line(5), &out.line(6)["text"]), (errno(77), &json!("text\n")));
    assert_eq!(out.line(7), json!({ "blocked": [], "ignored": [] }));
    assert_eq!(out.line(8)["mnt"], json!(namespace(first.pid(), "mnt")), "in one container");
    let second = pause(ctx, &bundle, 1, &[]);
    sys::kill(second.pid(), libc::SIGKILL).unwrap();
    assert_eq!(second.wait().code, 137);
    rank(ctx, &bundle, 1, &[], &["ready"]).ok();
    let out = ctx.rt(["run"]).arg(&bundle.dir).args(["--", "/not/there"]);
    let out = with(out, LAUNCHERS[0].1, 1).run();
    assert_eq!(out.code, 1);
    assert!(out.stderr.contains("/not/there"), "{out:?}");
    end(vec![first]);
    nothing_is_left(ctx);
}

fn sixty_four_at_once(ctx: &Ctx) {
    let bundle = app(ctx);
    let go = ctx.path("go");
    let here = format!("{0}:{0}", ctx.dir.display());
    let wait = format!("until {}", go.display());
    for _ in 0..2 {
        let start =
            |n: u32| rank(ctx, &bundle, n, &["-v", &here], &["ns", &wait, &format!("exit {n}")]).spawn();
        let mut jobs: Vec<Job> = (0..64).map(start).collect();
        let all: Vec<Value> = jobs.iter_mut().map(|job| job.line(0)).collect();
        assert!(all.iter().all(|namespaces| namespaces == &all[0]), "one container");
        ctx.file("go", "");
        for (n, job) in jobs.into_iter().enumerate() {
            assert_eq!(job.wait().code as usize, n);
        }
        fs::remove_file(&go).unwrap();
    }
    nothing_is_left(ctx);
}

fn memory_of_another_rank(ctx: &Ctx) {
    let bundle = app(ctx);
    let mut first = begun(rank(ctx, &bundle, 0, &[], &["secret", "pause"]).spawn());
    let secret = first.line(0);
    let peek = format!("peek {} {} {}", secret["pid"], secret["address"], secret["len"]);
    let out = rank(ctx, &bundle, 1, &[], &[&peek]).ok();
    assert_eq!(out.line(0), format!("secret of {}", secret["pid"]));
    end(vec![first]);
    nothing_is_left(ctx);
}

fn killed_and_made_anew(ctx: &Ctx) {
    let bundle = app(ctx);
    let [first, second] = [0, 1].map(|n| pause(ctx, &bundle, n, &[]));
    let mounts = namespace(second.pid(), "mnt");
    sys::kill(first.pid(), libc::SIGKILL).unwrap();
    first.wait();
    let third = pause(ctx, &bundle, 2, &[]);
    assert_eq!(namespace(third.pid(), "mnt"), mounts, "the second keeps the container");
    for job in [second, third] {
        sys::kill(job.pid(), libc::SIGKILL).unwrap();
        job.wait();
    }
    // Whoever comes when all have ended makes another one.
    let next = pause(ctx, &bundle, 3, &[]);
    let last = pause(ctx, &bundle, 0, &[]);
    assert!(share(&next, &last));
    end(vec![next, last]);
    for _ in 0..3 {
        rank(ctx, &bundle, 0, &[], &["ready"]).ok();
    }
    nothing_is_left(ctx);
}

fn killed_at_any_time(ctx: &Ctx) {
    let bundle = app(ctx);
    for n in 0..40u64 {
        let first = rank(ctx, &bundle, 0, &[], &["pause"]).spawn();
        let other = rank(ctx, &bundle, 1, &[], &["ready"]).spawn();
        std::thread::sleep(std::time::Duration::from_micros(n * 150));
        sys::kill(first.pid(), libc::SIGKILL).unwrap();
        let out = other.wait();
        assert_eq!((out.code, out.stderr.as_str()), (0, ""), "{out:?}");
        first.wait();
        rank(ctx, &bundle, 2, &[], &["ready"]).ok();
    }
    nothing_is_left(ctx);
}

/// A script in a rank calls twice: at once, and one after the other.
fn calls_of_one_rank(ctx: &Ctx) {
    let bundle = app(ctx);
    let [first, second, third] = [0, 0, 0].map(|n| pause(ctx, &bundle, n, &[]));
    assert!(share(&first, &second) && share(&first, &third));
    end(vec![first, third]);
    // The second is still a member, whose rank is that of the others.
    let fourth = pause(ctx, &bundle, 0, &[]);
    assert!(share(&second, &fourth));
    assert_eq!(ids(ctx).len(), 1);
    end(vec![second, fourth]);
    nothing_is_left(ctx);
}

fn found_by_run_and_rank(ctx: &Ctx) {
    let (bundle, other) = (app(ctx), app(ctx));
    let ranks = [0, 1]
        .map(|n| begun(rank(ctx, &bundle, n, &["-e", &format!("ONLY{n}=1")], &["ready", "pause"]).spawn()));
    let run = LAUNCHERS[0].0;
    let id = ids(ctx).remove(0);
    for name in [run, &id] {
        let out = ctx.rt(["exec", name, "/probe", "ns"]).ok();
        assert_eq!(out.line(0)["mnt"], json!(namespace(ranks[0].pid(), "mnt")));
        let env = ctx.rt(["exec", &format!("{name}.1"), "/probe", "env"]).ok().line(0);
        assert_eq!((&env["ONLY1"], &env["ONLY0"]), (&json!("1"), &Value::Null), "{name}.1");
        assert_eq!(ctx.rt(["state", name]).ok().json()["status"], "running");
    }
    ctx.rt(["exec", &format!("{run}.2"), "/probe", "ns"]).run().failed(&["container does not exist"]);
    let apart = pause(ctx, &other, 2, &[]);
    ctx.rt(["exec", run, "/probe", "ns"])
        .run()
        .failed(&["run mpirun-1759444993 has several containers here", &id]);
    ctx.rt(["exec", &format!("{run}.2"), "/probe", "ns"]).ok();
    end(vec![apart]);
    // By Slurm's names, too.
    let tasks =
        [0, 1].map(|n| begun(with(call(ctx, &bundle, &[], &["ready", "pause"]), LAUNCHERS[8].1, n).spawn()));
    for name in ["42.0", "42", "42.0.1", "srun-42.0", "srun-42.0.1"] {
        let out = ctx.rt(["exec", name, "/probe", "ns"]).ok();
        assert_eq!(out.line(0)["mnt"], json!(namespace(tasks[0].pid(), "mnt")), "{name}");
    }
    assert!(ctx.rt(["list", "--format", "table"]).ok().stdout.contains("42.0"));
    // A script in a rank asks which run it is of.
    let doctor =
        |cmd: Cmd| cmd.run().stdout.lines().find(|line| line.contains("launcher:")).unwrap().to_owned();
    assert!(
        doctor(with(ctx.rt(["doctor"]), LAUNCHERS[0].1, 1))
            .contains(&format!("{run}, rank 1: its ranks here share"))
    );
    assert!(doctor(ctx.rt(["doctor"])).contains("none"));
    end(tasks.into());
    // A signal goes to one container's first process; delete ends all.
    ctx.rt(["delete", "--force", run]).silent();
    for job in ranks {
        assert_eq!(job.wait().code, 137);
    }
    nothing_is_left(ctx);
}

/// A hook of the stage precreate gets the config as the command line has changed it, of each rank.
fn precreate_hooks_see_each_rank(ctx: &Ctx) {
    let bundle = app(ctx).ops(&["exit 9"]);
    bundle.write();
    let dir = ctx.mkdir("hooks");
    let definition = json!({
        "version": "1.0.0", "hook": { "path": "/bin/cat" }, "when": { "always": true }, "stages": ["precreate"],
    });
    ctx.file("hooks/cat.json", &definition.to_string());
    let flags = ["--hooks-dir", dir.to_str().unwrap()];
    let first = pause(ctx, &bundle, 0, &flags);
    for n in 1..4 {
        let out = rank(ctx, &bundle, n, &flags, &["exit 7"]).run();
        assert_eq!(out.code, 7, "{out:?}");
    }
    assert_eq!(ids(ctx).len(), 1);
    end(vec![first]);
    nothing_is_left(ctx);
}

fn hooks_of_the_first(ctx: &Ctx) {
    let log = ctx.path("log");
    let note = format!("to {} say x", log.display());
    let count = || fs::read_to_string(&log).unwrap_or_default().lines().count();
    let mut bundle = app(ctx).hook("createRuntime", &ctx.helper(), &[&note]);
    bundle.write();
    let [first, second] = [0, 1].map(|n| pause(ctx, &bundle, n, &[]));
    assert_eq!((mnt_of(&first) == mnt_of(&second), count()), (true, 1), "the hooks run once");
    end(vec![first, second]);
    nothing_is_left(ctx);
    // Nobody could run those that wait for the end of all.
    fs::remove_file(&log).unwrap();
    bundle.config.as_object_mut().unwrap().remove("hooks");
    let bundle = bundle.hook("poststop", &ctx.helper(), &[&note]);
    bundle.write();
    let [first, second] = [0, 1].map(|n| pause(ctx, &bundle, n, &[]));
    assert_ne!(mnt_of(&first), mnt_of(&second));
    end(vec![first, second]);
    assert_eq!(count(), 2);
    nothing_is_left(ctx);
}

fn mnt_of(job: &Job) -> String {
    eventually("the program", || Some(sys_children(job)).filter(|found| !found.is_empty()))
}

fn what_an_image_sets_shares_nothing(ctx: &Ctx) {
    for variables in [LAUNCHERS[0].1, "RT_SHARE=mine"] {
        let env: Vec<String> = variables.replace("=N", "=0").split(' ').map(String::from).collect();
        let bundle = app(ctx).with("/process/env", json!(env));
        bundle.write();
        let [one, two] = [0, 1].map(|_| begun(call(ctx, &bundle, &[], &["ready", "pause"]).spawn()));
        assert!(!share(&one, &two), "{variables}");
        // Nor does it give a run another name.
        let [three, four] = [0, 1]
            .map(|n| begun(with(call(ctx, &bundle, &[], &["ready", "pause"]), LAUNCHERS[3].1, n).spawn()));
        assert!(share(&three, &four));
        assert_eq!(ids(ctx).iter().filter(|id| id.starts_with("pals-5f1c-")).count(), 1);
        assert!(!ids(ctx).iter().any(|id| id.starts_with("mpirun") || id.starts_with("mine")));
        end(vec![one, two, three, four]);
    }
    // A client names its container, and the launcher's variables are those of whoever has started the client.
    let bundle = app(ctx);
    let client = || {
        let cmd =
            ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(ctx.id()).args(["/probe", "ready", "pause"]);
        begun(with(cmd, LAUNCHERS[0].1, 0).spawn())
    };
    let (one, two) = (client(), client());
    assert!(!share(&one, &two));
    end(vec![one, two]);
    nothing_is_left(ctx);
}

/// Hydra's connection names the run, and the program has it.
fn descriptor_of_pmi(ctx: &Ctx) {
    let bundle = app(ctx).with("/annotations", json!({ "rt.environment": "caller" }));
    bundle.write();
    let (passed, _peer) = UnixStream::pair().unwrap();
    let start = |n: u32, operations: &[&str]| {
        let cmd = with(call(ctx, &bundle, &[], operations), LAUNCHERS[2].1, n).env("PMI_FD", "17");
        cmd.before([Step::Dup(passed.as_raw_fd(), 17)])
    };
    let first = begun(start(0, &["ready", "pause"]).spawn());
    let out = start(1, &["ns", "fds", "readlink /proc/self/fd/17"]).ok();
    assert_eq!(out.line(0)["mnt"], json!(namespace(first.pid(), "mnt")));
    assert_eq!(out.line(1), json!([0, 1, 2, 17]));
    assert!(out.line(2).as_str().unwrap().starts_with("socket:"), "{out:?}");
    // A script between the launcher and its rank.
    let line = format!(
        "{} --root {} run {} -- /probe ns; exit 0",
        ctx.rt_path().display(),
        ctx.state.display(),
        bundle.dir.display()
    );
    let script = with(ctx.command("/bin/sh").args(["-c", &line]), LAUNCHERS[2].1, 1).env("PMI_FD", "17");
    let out = script.before([Step::Dup(passed.as_raw_fd(), 17)]).ok();
    assert_eq!(out.line(0)["mnt"], json!(namespace(first.pid(), "mnt")));
    assert_eq!(ids(ctx).len(), 1);
    assert!(ids(ctx)[0].starts_with(&format!("mpiexec-{}-", std::process::id())));
    end(vec![first]);
    nothing_is_left(ctx);
}

fn more_descriptors_than_one(ctx: &Ctx) {
    let bundle = app(ctx);
    let file = fs::File::open("/dev/zero").unwrap();
    let first = pause(ctx, &bundle, 0, &[]);
    let steps = [3, 4, 5].map(|to| Step::Dup(file.as_raw_fd(), to));
    let out = rank(ctx, &bundle, 1, &["--preserve-fds", "2"], &["fds"]).before(steps).ok();
    assert_eq!(out.line(0), json!([0, 1, 2, 3, 4]));
    end(vec![first]);
    nothing_is_left(ctx);
}

/// A rank that is root inside cannot unmount what covers the state directory, neither the first nor another one.
fn covers_stay(ctx: &Ctx) {
    let mut bundle = app(ctx);
    bundle.config["process"].as_object_mut().unwrap().remove("capabilities");
    bundle.write();
    let state = format!("{0}:{0}", ctx.dir.display());
    let flags = ["--as-root", "-v", &state];
    let first = begun(rank(ctx, &bundle, 0, &flags, &["status", "pause"]).spawn());
    let seen = format!("ls {}", ctx.state.display());
    let umount = format!("umount {}", ctx.state.display());
    let out = rank(ctx, &bundle, 1, &flags, &["status", &umount, &seen]).ok();
    let bounding = |status: &Value| u64::from_str_radix(status["CapBnd"].as_str().unwrap(), 16).unwrap();
    let mut first = first;
    assert_eq!(bounding(&out.line(0)), bounding(&first.line(0)));
    assert_eq!(bounding(&out.line(0)) & 1 << 21, 0, "CAP_SYS_ADMIN");
    assert_eq!((out.line(1), out.line(2)), (errno(libc::EPERM), json!([])));
    end(vec![first]);
    nothing_is_left(ctx);
}

fn configured(ctx: &Ctx) {
    let bundle = app(ctx);
    let home = ctx.mkdir("config");
    ctx.give(&home);
    let dir = ctx.mkdir("config/rt");
    ctx.give(&dir);
    let set = |text: &str| ctx.give(&ctx.file("config/rt/config.toml", text));
    let start = |n: u32, flags: &[&str], share: &str| {
        let cmd = rank(ctx, &bundle, n, flags, &["ready", "pause"]).env("XDG_CONFIG_HOME", &home);
        begun(cmd.env("RT_SHARE", share).spawn())
    };
    set("[run]\nshare = \"never\"\n");
    let jobs = [
        (0, &[][..], ""),
        (1, &[], ""),
        (2, &["--share", "auto"], ""),
        (3, &[], "auto"),
        (4, &["--share", "x"], ""),
    ];
    let jobs = jobs.map(|(n, flags, variable)| start(n, flags, variable));
    assert!(!share(&jobs[0], &jobs[1]) && !share(&jobs[0], &jobs[2]) && !share(&jobs[4], &jobs[2]));
    assert!(share(&jobs[2], &jobs[3]), "the command line and the environment count more");
    end(jobs.into());
    set("[run]\nshare = \"mine\"\n");
    rank(ctx, &bundle, 0, &[], &["ready"])
        .env("XDG_CONFIG_HOME", &home)
        .fails(&["run.share", "auto or never"]);
    nothing_is_left(ctx);
}

/// Another user who says the same, and has the same state directory named, is in no container of this one.
fn other_users_do_not_join(ctx: &Ctx) {
    if sys::euid() != 0 {
        skip!("only root can become another user");
    }
    let bundle = app(ctx);
    let first = pause(ctx, &bundle, 0, &[]);
    let other = [Step::Groups(Vec::new()), Step::Ids(UID + 1, UID + 1)];
    let mine = ctx.state.to_str().unwrap().to_owned();
    let cmd = rank(ctx, &bundle, 1, &[], &["ns"]).by_tests().after(other);
    let out = cmd.run();
    assert!(out.code == 1 && out.stderr.contains(&mine), "{out:?}");
    assert_eq!(out.stdout, "");
    end(vec![first]);
    nothing_is_left(ctx);
}

/// Ranks are killed at any time while they make the container, before anything is known of it, and nobody comes after them.
fn killed_while_it_is_made(ctx: &Ctx) {
    let bundle = app(ctx);
    for n in 0..60u64 {
        let jobs = [0, 1, 2].map(|number| rank(ctx, &bundle, number, &[], &["pause"]).spawn());
        std::thread::sleep(std::time::Duration::from_micros(n * 60));
        for job in jobs {
            sys::kill(job.pid(), libc::SIGKILL).unwrap();
            job.wait();
        }
    }
    nothing_is_left(ctx);
}

/// A launcher that starts two of three ranks, one after the other, and then does `last`.
fn launcher(ctx: &Ctx, bundle: &Bundle, flags: &str, operation: &str, last: &str) -> Cmd {
    let rank = |n: u32| {
        format!(
            "OMPI_COMM_WORLD_RANK={n} {} --root {} run {flags} {} -- /probe {operation}; ",
            ctx.rt_path().display(),
            ctx.state.display(),
            bundle.dir.display()
        )
    };
    let line = format!("{}{}{last}", rank(0), rank(1));
    with(ctx.command("/bin/sh").args(["-c", &line]), LAUNCHERS[0].1, 0).env("OMPI_COMM_WORLD_LOCAL_SIZE", "3")
}

/// Ranks that never meet are in one container while their launcher lives.
fn one_after_the_other(ctx: &Ctx) {
    let bundle = app(ctx);
    // With --writable a process of rt stays beside the program.
    for flags in ["", "--writable"] {
        let out = launcher(ctx, &bundle, flags, "ns", "exit 7").run();
        assert_eq!(out.code, 7, "{out:?}");
        assert_eq!(out.line(0), out.line(1), "{flags}");
        for pid in holders(ctx) {
            ended("the launcher has ended", pid);
        }
        nothing_is_left_of_launchers(ctx);
    }
}

/// What holds the container is no child of the program and has no stream of it, and ends with the launcher, or with the last
/// rank that it has announced.
fn held_while_the_launcher_lives(ctx: &Ctx) {
    let bundle = app(ctx);
    let held = |what: &str| match holders(ctx)[..] {
        [pid] => pid,
        ref other => panic!("{what}: {other:?} hold the container"),
    };
    // The end of the streams is that of the rank, whose launcher is this process.
    let first = rank(ctx, &bundle, 0, &[], &["ns"]).ok();
    let pid = held("a rank");
    let beside = pause(ctx, &bundle, 1, &[]);
    assert_eq!(first.line(0)["mnt"], json!(namespace(beside.pid(), "mnt")));
    ended("all ranks that were announced have come", pid);
    end(vec![beside]);
    nothing_is_left_of_launchers(ctx);
    let first = pause(ctx, &bundle, 0, &[]);
    let below = crate::fixture::children(first.pid() as u32);
    assert!(below.is_empty(), "the program has children that it has not made: {below:?}");
    end(vec![first]);
    nothing_is_left(ctx);
    // The launcher is killed.
    let mut script = launcher(ctx, &bundle, "", "ready", "echo 1; exec sleep 100").spawn();
    script.line(2);
    let pid = held("a launcher that is killed");
    sys::kill(script.pid(), libc::SIGKILL).unwrap();
    script.wait();
    ended("the launcher was killed", pid);
    nothing_is_left_of_launchers(ctx);
    // It is killed itself: the next rank begins anew.
    rank(ctx, &bundle, 0, &[], &["ready"]).ok();
    let pid = held("one that is killed");
    sys::kill(pid, libc::SIGKILL).unwrap();
    ended("it was killed", pid);
    rank(ctx, &bundle, 1, &[], &["ready"]).ok();
    // A user removes the container.
    let pid = held("one whose container is deleted");
    assert_eq!(ids(ctx), [""; 0], "one in which nobody runs is not listed");
    let all =
        fs::read_dir(&ctx.state).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let id = all.filter(|name| name.starts_with("mpirun-")).collect::<Vec<_>>().remove(0);
    ctx.rt(["delete", &id]).silent();
    ended("the container was deleted", pid);
    // Who shares by hand, and who writes to a layer that is kept, is held by nobody.
    let layer = ctx.mkdir("layer");
    for flags in [&["--share", "mine"][..], &["--overlay", layer.to_str().unwrap()]] {
        rank(ctx, &bundle, 0, flags, &["ready"]).ok();
        assert_eq!(holders(ctx), [0; 0], "{flags:?}");
    }
    nothing_is_left_of_launchers(ctx);
}

/// A hostile program can do nothing by it that it cannot do itself.
fn who_holds_is_confined(ctx: &Ctx) {
    let bundle = app(ctx).with(
        "/linux/seccomp",
        json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
            { "names": ["sethostname"], "action": "SCMP_ACT_ERRNO", "errnoRet": 77 }] }),
    );
    bundle.write();
    let program = pause(ctx, &bundle, 0, &[]);
    let pid = holders(ctx)[0];
    let status = |pid: i32| {
        let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let names = ["Uid:", "Gid:", "Groups:", "Cap", "NoNewPrivs:", "Seccomp"];
        let lines = text.lines().filter(|line| names.iter().any(|name| line.starts_with(name)));
        lines.map(String::from).collect::<Vec<_>>()
    };
    eventually("it executes its program", || {
        Some(()).filter(|()| fs::read(format!("/proc/{pid}/cmdline")).unwrap() == b"rt-holder\0")
    });
    assert_eq!(status(pid), status(program.pid()));
    for name in ["user", "mnt", "ipc", "pid", "net", "uts"] {
        assert_eq!(namespace(pid, name), namespace(program.pid(), name), "{name}");
    }
    assert_eq!(fs::read(format!("/proc/{pid}/environ")).unwrap(), b"");
    let files = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().map(|file| file.unwrap().path());
    let files: Vec<_> = files.map(|file| fs::read_link(file).unwrap()).collect();
    assert!(files.len() == 1 && files[0].to_str().unwrap().contains("pidfd"), "{files:?}");
    end(vec![program]);
    nothing_is_left(ctx);
}

/// Ranks that cannot share a container cannot share a layer that one of them writes to, and are told why.
fn a_layer_for_each(ctx: &Ctx) {
    let bundle = app(ctx).with("/root/readonly", json!(true));
    bundle.write();
    let layer = ctx.mkdir("layer");
    let overlay = ["--as-root", "--overlay", layer.to_str().unwrap()];
    let mut flags = vec![(vec!["--share", "never"], "a rank with --share never shares none")];
    if ctx.caller == Caller::User {
        flags.push((vec!["--root-emulation", "fast"], "a rank with --root-emulation shares none"));
    }
    for (own, text) in flags {
        let flags = [&overlay[..], &own].concat();
        let first = pause(ctx, &bundle, 0, &flags);
        let out = rank(ctx, &bundle, 1, &flags, &["ready"]).run();
        out.failed(&["another container uses it", "needs a directory of its own", text]);
        end(vec![first]);
    }
    nothing_is_left(ctx);
}
