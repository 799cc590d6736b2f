//! The process section: ids, capabilities, limits, scheduling, what is inherited and what is not.

use crate::client::{Caller, GROUPS};
use crate::fixture::{Bundle, Ctx, errno, hex};
use crate::runner::{skip, tests};
use crate::sys::Step;
use serde_json::{Value, json};
use std::fs;

tests! {
    EVERY { capabilities_by_set }
    ALL { rlimits, no_new_privileges, signals_are_default, descriptors, umask_and_cwd }
    BOTH {
        ambient_and_inheritable, no_capabilities, unknown_capability_is_a_warning, rlimits_above_the_hard_limit,
        bad_rlimits_fail, oom_score, missing_cwd_is_made, bad_cwd_fails, personality, scheduler_is_set, io_priority,
        cpu_affinity, home_is_set, path_is_searched, args_zero_is_kept, apparmor_and_selinux_without_the_lsm,
        session_keyring, preserved_descriptors, socket_activation, memory_policy,
        umask_default, umask_of_a_person, exec_cpu_affinity, oci_versions, scheduler_errors, dumpable_and_ptrace,
        env_without_equals, bounding_is_what_setuid_can_reach, no_process_section,
    }
    USER { groups_are_kept }
    ROOT { ids_and_groups, another_user_loses_capabilities, standard_streams_are_the_users }
}

const CAP_SYS_RESOURCE: u32 = 24;
const DEFAULT: u64 = 1 << 29 | 1 << 5 | 1 << 10;

fn capabilities_by_set(ctx: &Ctx) {
    let status = ctx.run(&ctx.bundle().ops(&["status"])).all().remove(0);
    for set in ["CapBnd", "CapPrm", "CapEff"] {
        assert_eq!(hex(&status[set]), DEFAULT, "{set}");
    }
    assert_eq!((hex(&status["CapInh"]), hex(&status["CapAmb"])), (0, 0), "empty unless asked");
}

fn ambient_and_inheritable(ctx: &Ctx) {
    let caps = json!(["CAP_KILL", "CAP_CHOWN"]);
    let sets = json!({ "bounding": caps, "effective": ["CAP_KILL"], "permitted": caps, "inheritable": caps, "ambient": ["CAP_KILL"] });
    let bundle = ctx.bundle().with("/process/capabilities", sets);
    let status = ctx.run(&bundle.ops(&["status"])).all().remove(0);
    let (kill, chown) = (1 << 5, 1);
    assert_eq!(hex(&status["CapBnd"]), kill | chown);
    assert_eq!(hex(&status["CapInh"]), kill | chown);
    assert_eq!(hex(&status["CapAmb"]), kill);
    assert_eq!(hex(&status["CapPrm"]) & kill, kill);
    // What an ambient set without the inheritable one means is refused by the kernel.
    let sets = json!({ "bounding": caps, "effective": [], "permitted": caps, "ambient": ["CAP_KILL"] });
    let out = ctx.run(&ctx.bundle().with("/process/capabilities", sets).ops(&["status"]));
    if out.code == 0 {
        assert_eq!(hex(&out.line(0)["CapAmb"]), 0);
    } else {
        out.failed(&["apabilit"]);
    }
}

fn no_capabilities(ctx: &Ctx) {
    for sets in [json!({}), json!({ "bounding": [], "effective": [], "permitted": [] })] {
        let bundle = ctx.bundle().with("/process/capabilities", sets).ops(&["status", "chroot /"]);
        let all = ctx.run(&bundle).all();
        for set in ["CapBnd", "CapPrm", "CapEff", "CapInh", "CapAmb"] {
            assert_eq!(hex(&all[0][set]), 0, "{set}");
        }
        assert_eq!(all[1], errno(libc::EPERM));
    }
}

fn unknown_capability_is_a_warning(ctx: &Ctx) {
    let caps = json!(["CAP_KILL", "CAP_TIME_TRAVEL"]);
    let sets = json!({ "bounding": caps, "effective": caps, "permitted": caps });
    let out = ctx.run(&ctx.bundle().with("/process/capabilities", sets).ops(&["status"]));
    assert_eq!((out.code, out.stderr.as_str()), (0, ""));
    assert_eq!(hex(&out.line(0)["CapEff"]), 1 << 5);
}

fn bounding_is_what_setuid_can_reach(ctx: &Ctx) {
    // An effective capability outside the bounding set is not given.
    let sets = json!({ "bounding": ["CAP_KILL"], "effective": ["CAP_KILL", "CAP_CHOWN"], "permitted": ["CAP_KILL", "CAP_CHOWN"] });
    let out = ctx.run(&ctx.bundle().with("/process/capabilities", sets).ops(&["exec /probe status"]));
    if out.code == 0 {
        assert_eq!(hex(&out.line(0)["CapBnd"]), 1 << 5);
        assert_eq!(hex(&out.line(0)["CapEff"]), 1 << 5, "after an exec as root");
    }
}

fn rlimits(ctx: &Ctx) {
    let limits = json!([
        { "type": "RLIMIT_NOFILE", "soft": 128, "hard": 256 },
        { "type": "RLIMIT_CORE", "soft": 0, "hard": 0 },
        { "type": "RLIMIT_CPU", "soft": 1000, "hard": 2000 },
        { "type": "RLIMIT_STACK", "soft": 4_194_304, "hard": 8_388_608 },
    ]);
    let bundle = ctx.bundle().with("/process/rlimits", limits);
    let all = ctx.run(&bundle.ops(&["rlimit 7", "rlimit 4", "rlimit 0", "rlimit 3"])).all();
    assert_eq!(all, [json!([128, 256]), json!([0, 0]), json!([1000, 2000]), json!([4_194_304, 8_388_608])]);
}

fn rlimits_above_the_hard_limit(ctx: &Ctx) {
    // A site's limit is lower than what the config asks for: clamped for users, not an error.
    let limits = json!([{ "type": "RLIMIT_NOFILE", "soft": 4096, "hard": 1_000_000 }]);
    let bundle = ctx.bundle().with("/process/rlimits", limits).ops(&["rlimit 7"]);
    let run = ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(ctx.id());
    let out = run.before([Step::FileLimit(512, 512)]).run();
    assert_eq!((out.code, out.stderr.as_str()), (0, ""), "{out:?}");
    let expected = if ctx.root_has(CAP_SYS_RESOURCE) { json!([4096, 1_000_000]) } else { json!([512, 512]) };
    assert_eq!(out.line(0), expected);
}

fn bad_rlimits_fail(ctx: &Ctx) {
    let limit = |kind: &str| json!({ "type": kind, "soft": 10, "hard": 20 });
    ctx.run(&ctx.bundle().with("/process/rlimits", json!([limit("RLIMIT_NONSENSE")])))
        .failed(&["RLIMIT_NONSENSE"]);
    let twice = json!([limit("RLIMIT_NOFILE"), limit("RLIMIT_NOFILE")]);
    ctx.run(&ctx.bundle().with("/process/rlimits", twice)).failed(&["RLIMIT_NOFILE"]);
    let upside_down = json!([{ "type": "RLIMIT_NOFILE", "soft": 20, "hard": 10 }]);
    ctx.run(&ctx.bundle().with("/process/rlimits", upside_down)).failed(&["RLIMIT_NOFILE"]);
}

fn oom_score(ctx: &Ctx) {
    for score in [0, 500, 1000] {
        let bundle = ctx.bundle().with("/process/oomScoreAdj", json!(score));
        let all = ctx.run(&bundle.ops(&["cat /proc/self/oom_score_adj"])).all();
        assert_eq!(all[0], format!("{score}\n"));
    }
    // Below what the caller has needs privilege: as good as it can be had, for users.
    let bundle = ctx.bundle().with("/process/oomScoreAdj", json!(-500));
    let out = ctx.run(&bundle.ops(&["cat /proc/self/oom_score_adj"]));
    assert_eq!((out.code, out.stderr.as_str()), (0, ""), "{out:?}");
    let expected = if ctx.root_has(CAP_SYS_RESOURCE) { "-500\n" } else { "0\n" };
    assert_eq!(out.line(0), expected);
    // Left alone where the config says nothing.
    let before = fs::read_to_string("/proc/self/oom_score_adj").unwrap();
    assert_eq!(ctx.run(&ctx.bundle().ops(&["cat /proc/self/oom_score_adj"])).all()[0], before);
    ctx.run(&ctx.bundle().with("/process/oomScoreAdj", json!(1001))).failed(&["oom"]);
}

fn no_new_privileges(ctx: &Ctx) {
    for value in [true, false] {
        let bundle = ctx.bundle().with("/process/noNewPrivileges", json!(value));
        assert_eq!(ctx.run(&bundle.ops(&["nnp"])).all()[0], i32::from(value));
    }
}

fn umask_and_cwd(ctx: &Ctx) {
    let bundle = ctx.bundle().with("/process/user/umask", json!(0o27)).with("/process/cwd", json!("/home"));
    let all = ctx.run(&bundle.ops(&["umask", "write made x", "stat /home/made", "cwd", "env"])).all();
    assert_eq!((&all[0], &all[2]["mode"], &all[3]), (&json!(0o27), &json!(0o640), &json!("/home")));
}

fn umask_default(ctx: &Ctx) {
    // 0022, whatever the caller's is.
    let bundle = ctx.bundle().ops(&["umask", "stat /dev", "stat /dev/shm"]);
    let out = ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(ctx.id()).after([Step::Umask(0o77)]).run();
    assert_eq!(out.line(0), 0o22, "{out:?}");
    assert_eq!(
        (&out.line(1)["mode"], &out.line(2)["mode"]),
        (&json!(0o755), &json!(0o1777)),
        "the caller's umask"
    );
}

/// A person who runs a bundle, and who enters a container, has the own umask there, as files in the home that is bound are
/// that person's. What the config says counts.
fn umask_of_a_person(ctx: &Ctx) {
    let bundle = ctx.bundle().ops(&["umask"]);
    let out = ctx.rt(["run"]).arg(&bundle.dir).after([Step::Umask(0o77)]).ok();
    assert_eq!(out.line(0), 0o77, "{out:?}");
    let bundle = ctx.bundle().with("/process/user/umask", json!(0o27)).ops(&["umask"]);
    let out = ctx.rt(["run"]).arg(&bundle.dir).after([Step::Umask(0o77)]).ok();
    assert_eq!(out.line(0), 0o27, "{out:?}");
    let container = ctx.started(&ctx.bundle().ops(&["pause"]));
    let out = ctx.rt(["exec", &container.id, "/probe", "umask"]).after([Step::Umask(0o77)]).ok();
    assert_eq!(out.line(0), 0o77, "{out:?}");
}

fn missing_cwd_is_made(ctx: &Ctx) {
    let bundle = ctx.bundle().with("/process/cwd", json!("/new/dir")).ops(&["cwd"]);
    let out = ctx.run(&bundle);
    assert_eq!(out.all()[0], "/new/dir");
}

fn bad_cwd_fails(ctx: &Ctx) {
    for cwd in ["relative", "/etc/passwd", ""] {
        let out = ctx.run(&ctx.bundle().with("/process/cwd", json!(cwd)).with("/root/readonly", json!(true)));
        out.failed(&[]);
        assert!(out.stderr.to_lowercase().contains("cwd") || out.stderr.contains("/etc/passwd"), "{out:?}");
    }
}

fn personality(ctx: &Ctx) {
    let query = "syscall 135 0xffffffff";
    assert_eq!(ctx.run(&ctx.bundle().ops(&[query])).all()[0], 0);
    let bundle = ctx.bundle().with("/linux/personality", json!({ "domain": "LINUX32" }));
    assert_eq!(ctx.run(&bundle.ops(&[query])).all()[0], 8);
    let bundle = ctx.bundle().with("/linux/personality", json!({ "domain": "LINUX" }));
    assert_eq!(ctx.run(&bundle.ops(&[query])).all()[0], 0);
    ctx.run(&ctx.bundle().with("/linux/personality", json!({ "domain": "VMS" }))).failed(&["VMS"]);
}

fn scheduler_is_set(ctx: &Ctx) {
    // sched_getscheduler is 145; getpriority 140 answers 20 - nice.
    let ops = ["syscall 145 0", "syscall 140 0 0"];
    // Only root may go below what the tests themselves were started with.
    let own = 20 - crate::sys::syscall(140, &[0, 0]).unwrap();
    for (policy, number, nice) in [("SCHED_BATCH", 3, own.max(5)), ("SCHED_OTHER", 0, own.max(10))] {
        let bundle = ctx.bundle().with("/process/scheduler", json!({ "policy": policy, "nice": nice }));
        assert_eq!(ctx.run(&bundle.ops(&ops)).all(), [json!(number), json!(20 - nice)], "{policy}");
    }
    let flag = json!({ "policy": "SCHED_BATCH", "nice": own.max(5), "flags": ["SCHED_FLAG_RESET_ON_FORK"] });
    assert_eq!(ctx.run(&ctx.bundle().with("/process/scheduler", flag).ops(&ops)).line(0), 3 | 0x4000_0000);
}

fn standard_streams_are_the_users(ctx: &Ctx) {
    // Else another user could not open /dev/stdout. The standard input of these tests is /dev/null, the host's.
    let bundle = ctx.bundle().with("/process/user", json!({ "uid": 1000, "gid": 1000 }));
    let ops = ["stat /proc/self/fd/0", "stat /proc/self/fd/1", "open /proc/self/fd/2"];
    let all = ctx.run(&bundle.ops(&ops)).all();
    let host = std::os::unix::fs::MetadataExt::uid(&fs::metadata("/dev/null").unwrap());
    assert_eq!((&all[0]["uid"], &all[1]["uid"]), (&json!(host), &json!(1000)), "{all:?}");
    let container = ctx.started(&ctx.bundle().ops(&["pause"]));
    let out = container.exec_with(&["--user", "1000"], &["stat /proc/self/fd/1"]).run();
    assert_eq!(out.line(0)["uid"], 1000);
}

fn scheduler_errors(ctx: &Ctx) {
    for bad in [
        json!({ "policy": "SCHED_NONSENSE" }),
        json!({ "policy": "SCHED_BATCH", "flags": ["SCHED_FLAG_NONSENSE"] }),
    ] {
        ctx.run(&ctx.bundle().with("/process/scheduler", bad)).failed(&["NONSENSE"]);
    }
}

fn io_priority(ctx: &Ctx) {
    // ioprio_get is 252: who = process. Class best effort is 2, idle 3.
    let op = "syscall 252 1 0";
    let bundle =
        ctx.bundle().with("/process/ioPriority", json!({ "class": "IOPRIO_CLASS_BE", "priority": 6 }));
    assert_eq!(ctx.run(&bundle.ops(&[op])).all()[0], 2 << 13 | 6);
    let bundle =
        ctx.bundle().with("/process/ioPriority", json!({ "class": "IOPRIO_CLASS_IDLE", "priority": 0 }));
    let class = ctx.run(&bundle.ops(&[op])).all()[0].as_i64().unwrap() >> 13;
    assert_eq!(class, 3);
    let bad = json!({ "class": "IOPRIO_CLASS_NONSENSE", "priority": 0 });
    ctx.run(&ctx.bundle().with("/process/ioPriority", bad)).failed(&["IOPRIO_CLASS_NONSENSE"]);
}

fn cpu_affinity(ctx: &Ctx) {
    // The scheduler's binding stays: run, and exec from another CPU mask.
    let bundle = ctx.bundle().ops(&["affinity", "pause"]);
    let own = crate::sys::affinity();
    let id = ctx.id();
    let run = ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(&id).before([Step::Cpu(own[0])]);
    let mut job = run.spawn();
    assert_eq!(job.line(0), json!([own[0]]));
    job.line(1);
    let out = ctx.rt(["exec", &id, "/probe", "affinity"]).before([Step::Cpu(*own.last().unwrap())]).ok();
    assert_eq!(out.line(0), json!([own.last().unwrap()]));
    ctx.rt(["kill", &id, "KILL"]).silent();
    job.wait();
}

fn exec_cpu_affinity(ctx: &Ctx) {
    let own = crate::sys::affinity();
    let last = own.last().unwrap().to_string();
    let bundle = ctx.bundle().with("/process/execCPUAffinity", json!({ "initial": last, "final": last }));
    let container = ctx.started(&bundle.ops(&["affinity", "pause"]));
    assert_eq!(container.line(0), json!(own), "it is for exec, not for init");
    assert_eq!(container.exec(&["affinity"]).all()[0], json!([own.last().unwrap()]));
    let empty = ctx.bundle().with("/process/execCPUAffinity", json!({ "initial": "", "final": null }));
    let container = ctx.started(&empty.ops(&["pause"]));
    assert_eq!(container.exec(&["affinity"]).all()[0], json!(own), "an empty list is none");
    // Machines have more than 1,024 of them. Of a list, those count that this one has.
    let beyond = format!("{last},2000");
    let bundle = ctx.bundle().with("/process/execCPUAffinity", json!({ "initial": beyond, "final": beyond }));
    let container = ctx.started(&bundle.ops(&["pause"]));
    assert_eq!(container.exec(&["affinity"]).all()[0], json!([own.last().unwrap()]));
    let none = ctx.bundle().with("/process/execCPUAffinity", json!({ "final": "2000" }));
    let container = ctx.started(&none.ops(&["pause"]));
    let out = container.exec_with(&[], &["affinity"]).run();
    assert!(
        out.code != 0 && out.stderr.contains("set the CPU affinity to \"2000\": invalid argument"),
        "{out:?}"
    );
    for (name, bad) in [("initial", "x-y"), ("final", "3-1"), ("final", "1,,-")] {
        let bundle = ctx.bundle().with("/process/execCPUAffinity", json!({ name: bad }));
        ctx.run(&bundle).failed(&[&format!("process.execCPUAffinity.{name}: {bad:?}")]);
    }
}

fn home_is_set(ctx: &Ctx) {
    // From the rootfs's passwd, where the config's environment has no HOME.
    let all = ctx.run(&ctx.bundle().ops(&["env"])).all();
    assert_eq!(all[0]["HOME"], "/root");
    let bundle = ctx.bundle().push("/process/env", json!("HOME=/elsewhere"));
    assert_eq!(ctx.run(&bundle.ops(&["env"])).all()[0]["HOME"], "/elsewhere");
    // An empty one is none, and the last one counts.
    let bundle =
        ctx.bundle().push("/process/env", json!("HOME=/elsewhere")).push("/process/env", json!("HOME="));
    assert_eq!(ctx.run(&bundle.ops(&["env"])).all()[0]["HOME"], "/root");
    let bundle = ctx.bundle();
    fs::remove_file(bundle.rootfs().join("etc/passwd")).unwrap();
    let all = ctx.run(&bundle.ops(&["env"])).all();
    assert!(all[0]["HOME"].is_null() || all[0]["HOME"] == "/", "{}", all[0]);
}

fn path_is_searched(ctx: &Ctx) {
    // The config's PATH, inside the rootfs.
    let out = ctx.run(&ctx.bundle().with("/process/args", json!(["probe", "ready"])));
    assert_eq!(out.all()[0], "ready");
    let bundle = ctx.bundle().with("/process/env", json!(["PATH=/nowhere:/etc"]));
    ctx.run(&bundle.with("/process/args", json!(["probe"]))).failed(&["executable file not found in $PATH"]);
    // A command with a slash is relative to the working directory.
    let bundle =
        ctx.bundle().with("/process/cwd", json!("/bin")).with("/process/args", json!(["./probe", "ready"]));
    assert_eq!(ctx.run(&bundle).all()[0], "ready");
    // A file without the execute bit is passed over.
    let bundle = ctx.bundle().with("/process/env", json!(["PATH=/etc:/bin"]));
    bundle.file("etc/probe", "no program");
    assert_eq!(ctx.run(&bundle.with("/process/args", json!(["probe", "ready"]))).all()[0], "ready");
}

fn args_zero_is_kept(ctx: &Ctx) {
    let out = ctx.run(&ctx.bundle().with("/process/args", json!(["probe", "args"])));
    assert_eq!(out.all()[0], json!(["probe", "args"]), "argv[0] is what the config says");
}

fn env_without_equals(ctx: &Ctx) {
    // Clients have sent such; it must not stop a container or come from the caller's environment.
    let bundle = ctx.bundle().push("/process/env", json!("CALLERS")).ops(&["env"]);
    let out = ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(ctx.id()).env("CALLERS", "secret").run();
    assert!(!out.stdout.contains("secret"), "{out:?}");
}

fn apparmor_and_selinux_without_the_lsm(ctx: &Ctx) {
    // Where the kernel has not the LSM, a profile cannot be honoured: an error that says so.
    if !fs::read_to_string("/sys/kernel/security/lsm").unwrap_or_default().contains("apparmor") {
        let bundle = ctx.bundle().with("/process/apparmorProfile", json!("docker-default"));
        ctx.run(&bundle).failed(&["pparmor"]);
    }
    if fs::metadata("/sys/fs/selinux/enforce").is_err() {
        let bundle = ctx.bundle().with("/process/selinuxLabel", json!("system_u:system_r:container_t:s0"));
        let out = ctx.run(&bundle);
        assert_ne!(out.code, 0, "{out:?}");
        assert!(out.stderr.to_lowercase().contains("selinux"), "{out:?}");
    }
    // Empty means none.
    let bundle =
        ctx.bundle().with("/process/apparmorProfile", json!("")).with("/process/selinuxLabel", json!(""));
    assert_eq!(ctx.run(&bundle).code, 0);
}

fn session_keyring(ctx: &Ctx) {
    // keyctl 250: KEYCTL_GET_KEYRING_ID 0 of the session keyring -3.
    if let Err(e) = crate::sys::syscall(250, &[0, -3i64 as u64, 0]) {
        skip!("no keyrings: {e}");
    }
    const ASK: &str = "syscall 250 0 -3 0";
    let bundle = ctx.bundle().ops(&["say ready", ASK, "pause"]);
    let ids = |flags: &[&str]| {
        let id = ctx.id();
        let mut job = ctx.rt(["run"]).args(flags).arg("-b").arg(&bundle.dir).arg(&id).spawn();
        job.line(0);
        let of_container = job.line(1);
        let exec = || ctx.rt(["exec", &id, "/probe", ASK]).ok().line(0);
        let all = [of_container, exec(), exec()];
        ctx.rt(["kill", &id, "KILL"]).silent();
        job.wait();
        all
    };
    let [first, second, third] = ids(&[]);
    assert!(first != second && second != third && first != third, "a keyring of its own each");
    let [first, second, third] = ids(&["--no-new-keyring"]);
    assert!(first == second && second == third, "the caller's was asked for");
    // The kernel gives a user's keys to whoever has his uid: profiles of ours refuse the calls.
    let mut bundle = bundle.with("/annotations", json!({ "rt.environment": "caller" }));
    bundle.write();
    let ids = |bundle: &Bundle, flags: &[&str]| {
        let id = ctx.id();
        let mut job = ctx.rt(["run"]).args(flags).arg("-b").arg(&bundle.dir).arg(&id).spawn();
        job.line(0);
        let all = [job.line(1), ctx.rt(["exec", &id, "/probe", ASK]).ok().line(0)];
        ctx.rt(["kill", &id, "KILL"]).silent();
        job.wait();
        all
    };
    let refused = [errno(libc::EPERM), errno(libc::EPERM)];
    assert_eq!(ids(&bundle, &[]), refused);
    let [first, second] = ids(&bundle, &["--no-new-keyring"]);
    assert!(first == second && first.is_number(), "{first}");
    // Without the caller's environment, and beside a filter of the config's own, too.
    assert_eq!(ids(&bundle, &["--clear-env"]), refused);
    bundle.set("/linux/seccomp", json!({ "defaultAction": "SCMP_ACT_ALLOW" })).write();
    assert_eq!([ids(&bundle, &[]), ids(&bundle, &["--clear-env"])], [refused.clone(), refused]);
}

fn memory_policy(ctx: &Ctx) {
    // get_mempolicy is 239; MPOL_INTERLEAVE is 3. All-null pointers ask nothing but that it exists.
    let Ok(nodes) = fs::read_to_string("/sys/devices/system/node/online") else {
        skip!("no NUMA in this kernel");
    };
    let policy = json!({ "mode": "MPOL_BIND", "nodes": nodes.trim() });
    let bundle = ctx.bundle().with("/linux/memoryPolicy", policy).ops(&["cat /proc/self/numa_maps"]);
    let out = ctx.run(&bundle);
    if out.code == 0 {
        let maps = out.line(0);
        if let Some(maps) = maps.as_str() {
            assert!(maps.contains("bind"), "{maps}");
        }
    } else {
        out.failed(&["memoryPolicy"]);
    }
    let bad = json!({ "mode": "MPOL_NONSENSE", "nodes": "0" });
    ctx.run(&ctx.bundle().with("/linux/memoryPolicy", bad))
        .failed(&["unknown variant `MPOL_NONSENSE`", " at line "]);
    let bad = json!({ "mode": "MPOL_BIND", "nodes": "x" });
    ctx.run(&ctx.bundle().with("/linux/memoryPolicy", bad)).failed(&["linux.memoryPolicy.nodes: \"x\""]);
}

fn signals_are_default(ctx: &Ctx) {
    // conmon starts the runtime with SIGPIPE ignored; a shell's nohup with SIGHUP.
    for bundle in [ctx.bundle(), crate::run::in_place(ctx.bundle())] {
        let bundle = bundle.ops(&["dispositions"]);
        let steps = [
            Step::Ignore(libc::SIGPIPE),
            Step::Ignore(libc::SIGUSR2),
            Step::Block(libc::SIGUSR1),
            Step::Block(libc::SIGCHLD),
        ];
        let out = ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(ctx.id()).after(steps).run();
        assert_eq!(out.all()[0], json!({ "blocked": [], "ignored": [] }));
    }
}

fn descriptors(ctx: &Ctx) {
    // podman leaves 5 or 6 open, containerd 3: none of it reaches the program.
    for bundle in [ctx.bundle(), crate::run::in_place(ctx.bundle())] {
        let bundle = bundle.ops(&["fds"]);
        let leaks: Vec<_> = [3, 4, 5, 6, 19, 100, 900].into_iter().map(|fd| Step::Dup(0, fd)).collect();
        let out = ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(ctx.id()).before(leaks).run();
        assert_eq!(out.all()[0], json!([0, 1, 2]));
    }
}

fn preserved_descriptors(ctx: &Ctx) {
    use std::os::fd::AsRawFd;
    let path = ctx.file("passed", "");
    let file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    let fd = file.as_raw_fd();
    let steps = [Step::Dup(fd, 3), Step::Dup(fd, 4), Step::Dup(fd, 5), Step::Dup(fd, 8)];
    for bundle in [ctx.bundle(), crate::run::in_place(ctx.bundle())] {
        let bundle = bundle.push("/process/env", json!("LISTEN_FDS=2")).ops(&["fds", "env"]);
        let run = ctx.rt(["run", "--preserve-fds", "2", "--bundle"]).arg(&bundle.dir).arg(ctx.id());
        let out = run.before(steps.clone()).run();
        assert_eq!(out.all()[0], json!([0, 1, 2, 3, 4]));
        assert_eq!(out.line(1)["LISTEN_FDS"], "2");
    }
    // PMI passes sockets: the very same open file arrives.
    let bundle = ctx.bundle().ops(&["links /proc/self/fd"]);
    let run = ctx.rt(["run", "--preserve-fds=1", "--bundle"]).arg(&bundle.dir).arg(ctx.id());
    let out = run.before([Step::Dup(fd, 3)]).run();
    assert!(out.all()[0]["3"].as_str().unwrap().ends_with("passed"), "{out:?}");
}

fn dumpable_and_ptrace(ctx: &Ctx) {
    // The program's own /proc files are its own: a non-dumpable leftover would make them root's.
    let all =
        ctx.run(&ctx.bundle().ops(&["dumpable", "stat /proc/self/fd", "write /proc/self/comm x"])).all();
    assert_eq!((&all[0], &all[1]["uid"], &all[2]), (&json!(1), &json!(0), &Value::Null));
}

fn oci_versions(ctx: &Ctx) {
    for version in ["1.0.0", "1.0.2-dev", "1.1.0", "1.2.1", "1.3.0"] {
        assert_eq!(ctx.run(&ctx.bundle().with("/ociVersion", json!(version))).code, 0, "{version}");
    }
    for version in ["", "2.0.0", "not a version"] {
        ctx.run(&ctx.bundle().with("/ociVersion", json!(version))).failed(&["ersion"]);
    }
}

fn no_process_section(ctx: &Ctx) {
    // The spec asks for it at start; nothing can run without.
    ctx.run(&ctx.bundle().unset("", "process")).failed(&["process"]);
}

fn groups_are_kept(ctx: &Ctx) {
    // setgroups is denied: the caller's groups stay, whatever the config asks for.
    let data = ctx.mkdir("for-the-group");
    if Caller::tests_are_root() {
        crate::sys::chown(&data, 0, GROUPS[1]).unwrap();
        fs::set_permissions(&data, std::os::unix::fs::PermissionsExt::from_mode(0o2770)).unwrap();
    }
    let bundle = ctx
        .bundle()
        .with("/process/user", json!({ "uid": 0, "gid": 0, "additionalGids": [10, 20] }))
        .mount("/mnt", "bind", data.to_str().unwrap(), &["bind"]);
    let out = ctx.run(&bundle.ops(&["write /mnt/x y", "id"]));
    assert_eq!((out.code, out.stderr.as_str()), (0, ""));
    assert_eq!(out.line(0), Value::Null, "the caller's group may write");
    if Caller::tests_are_root() {
        assert_eq!(out.line(1)["groups"], json!([0, 65534]));
    }
}

fn ids_and_groups(ctx: &Ctx) {
    let bundle =
        ctx.bundle().with("/process/user", json!({ "uid": 1000, "gid": 1001, "additionalGids": [7, 8] }));
    let all = ctx.run(&bundle.ops(&["id"])).all();
    assert_eq!(all[0], json!({ "uid": [1000, 1000, 1000], "gid": [1001, 1001, 1001], "groups": [7, 8] }));
    let all = ctx.run(&ctx.bundle().ops(&["id"])).all();
    assert_eq!(all[0]["groups"], json!([]), "no groups asked, none kept as root");
}

fn another_user_loses_capabilities(ctx: &Ctx) {
    let user = json!({ "uid": 1000, "gid": 1000 });
    let all = ctx.run(&ctx.bundle().with("/process/user", user.clone()).ops(&["status"])).all();
    assert_eq!((hex(&all[0]["CapEff"]), hex(&all[0]["CapPrm"])), (0, 0));
    assert_eq!(hex(&all[0]["CapBnd"]), DEFAULT);
    // Ambient is how another user keeps one.
    let caps = json!(["CAP_NET_BIND_SERVICE"]);
    let sets = json!({ "bounding": caps, "effective": caps, "permitted": caps, "inheritable": caps, "ambient": caps });
    let bundle: Bundle = ctx.bundle().with("/process/user", user).with("/process/capabilities", sets);
    let all = ctx.run(&bundle.ops(&["status"])).all();
    assert_eq!((hex(&all[0]["CapEff"]), hex(&all[0]["CapAmb"])), (1 << 10, 1 << 10));
}

/// sd_listen_fds(3), as runc passes it on.
fn socket_activation(ctx: &Ctx) {
    use crate::sys::Step;
    let own = [Step::Dup(0, 3), Step::Dup(0, 4), Step::Dup(0, 5), Step::Dup(0, 6)];
    for (bundle, in_place) in [(ctx.bundle(), false), (crate::run::in_place(ctx.bundle()), true)] {
        let bundle = bundle.with("/process/env", json!(["A=b", "LISTEN_PID=7"]));
        let bundle = bundle.ops(&["fds", "env", "pid"]);
        for (of, flags, fds) in [
            ("$$", "", json!([0, 1, 2, 3, 4])),
            ("$$", "--preserve-fds=1", json!([0, 1, 2, 3, 4, 5])),
            // For another process: descriptors of that number mean something else here.
            ("1", "", json!([0, 1, 2])),
        ] {
            let script = format!(
                "LISTEN_PID={of} LISTEN_FDS=2 exec {} --root {} run {flags} --bundle {} {}",
                ctx.rt_path().display(),
                ctx.state.display(),
                bundle.dir.display(),
                ctx.id()
            );
            let out = ctx.command("/bin/sh").args(["-c", &script]).after(own.clone()).run();
            assert_eq!(out.code, 0, "{out:?}");
            let all = out.all();
            assert_eq!(all[0], fds, "{flags} {of}, in place: {in_place}");
            if of == "1" {
                assert!(all[1].get("LISTEN_FDS").is_none(), "{}", all[1]);
                continue;
            }
            let pid = all[2]["pid"].to_string();
            assert_eq!(
                (&all[1]["LISTEN_FDS"], &all[1]["LISTEN_PID"]),
                (&json!("2"), &json!(pid)),
                "{}",
                all[1]
            );
            assert_eq!(pid == "1", !in_place);
        }
    }
}
