//! `rt exec`: another program in a running container.

use crate::fixture::{Container, Ctx, errno, eventually, hex, namespace, stat};
use crate::runner::tests;
use crate::sys::{self, Step};
use serde_json::json;
use std::fs;

tests! {
    EVERY { joins_every_namespace, exit_codes }
    ALL {
        environment_adds, detach_and_pid_file, process_file, capabilities_are_the_containers,
        preserve_fds, no_other_descriptors,
    }
    BOTH {
        cwd_of_exec, flags_end_at_the_id, missing_command_in_exec, exec_into_created_or_stopped,
        seccomp_and_nnp_hold, cap_adds, many_at_once, signals_reach_exec, input_reaches_exec,
        masks_hold_in_exec, exec_sees_the_same_root, umask_and_rlimits_in_process_file, signal_state_is_clean,
        exec_in_the_hosts_pid_namespace, double_dash_before_the_id, exec_survives_init_chroot,
        process_file_errors, exec_with_its_own_no_new_privs, oom_score_is_the_containers, session_of_its_own,
    }
    ROOT { user_by_number }
    USER { user_that_is_not_mapped }
}

fn container(ctx: &Ctx) -> Container<'_> {
    ctx.started(&ctx.bundle().ops(&["pause"]))
}

fn joins_every_namespace(ctx: &Ctx) {
    let bundle = ctx.bundle().namespace("cgroup", None).namespace("network", None);
    let container = ctx.started(&bundle.ops(&["pause"]));
    let inside = container.exec(&["ns", "names", "ps", "cwd"]);
    let all = inside.all();
    for name in ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"] {
        assert_eq!(all[0][name], namespace(container.pid, name), "{name}");
    }
    assert_eq!(all[1][0], "probe");
    assert_eq!(all[2][0], 1, "the container's own processes: {}", all[2]);
    assert_eq!(all[2].as_array().unwrap().len(), 2, "init and this one: {}", all[2]);
    assert_eq!(all[3], "/");
}

fn exit_codes(ctx: &Ctx) {
    let container = container(ctx);
    for code in [0, 1, 77, 255] {
        let out = container.exec(&[&format!("exit {code}")]);
        assert_eq!((out.code, out.stderr.as_str()), (code, ""));
    }
    let out = container.exec(&["die 9"]);
    assert_eq!(out.code, 137);
    let out = container.exec(&["die 15"]);
    assert_eq!(out.code, 143);
}

fn environment_adds(ctx: &Ctx) {
    let bundle = ctx.bundle().push("/process/env", json!("FROM=config")).ops(&["pause"]);
    let container = ctx.started(&bundle);
    let out = container.exec_with(&["-e", "A=1", "--env", "B=2", "--env=TERM=dumb"], &["env"]);
    let env = out.env("CALLER", "x").ok().line(0);
    assert_eq!((&env["A"], &env["B"], &env["FROM"]), (&json!("1"), &json!("2"), &json!("config")));
    assert_eq!((&env["TERM"], &env["PATH"]), (&json!("dumb"), &json!("/usr/sbin:/usr/bin:/sbin:/bin")));
    assert!(env.get("CALLER").is_none(), "the caller's environment stays outside");
}

fn cwd_of_exec(ctx: &Ctx) {
    let bundle = ctx.bundle().with("/process/cwd", json!("/home")).ops(&["pause"]);
    let container = ctx.started(&bundle);
    assert_eq!(container.exec(&["cwd"]).all()[0], "/home");
    assert_eq!(container.exec_with(&["--cwd", "/tmp"], &["cwd"]).ok().line(0), "/tmp");
    assert_eq!(container.exec_with(&["--cwd=/etc"], &["cwd"]).ok().line(0), "/etc");
    container.exec_with(&["--cwd", "/etc/passwd"], &["cwd"]).fails(&["/etc/passwd"]);
    container.exec_with(&["--cwd", "relative"], &["cwd"]).fails(&["absolute"]);
}

fn user_by_number(ctx: &Ctx) {
    let container = container(ctx);
    let out = container.exec_with(&["--user", "1000:1001"], &["id", "status"]).ok();
    assert_eq!(
        (&out.line(0)["uid"], &out.line(0)["gid"]),
        (&json!([1000, 1000, 1000]), &json!([1001, 1001, 1001]))
    );
    assert_eq!(hex(&out.line(1)["CapEff"]), 0, "another user than root keeps no effective capability");
    let out = container.exec_with(&["-u", "1000", "-g", "5", "-g", "6"], &["id"]).ok();
    assert_eq!(out.line(0)["uid"][0], 1000);
    assert_eq!(out.line(0)["groups"], json!([5, 6]));
}

fn user_that_is_not_mapped(ctx: &Ctx) {
    let container = container(ctx);
    // One id is mapped: what was asked cannot be had, and that is said or adapted, never ignored as root.
    let out = container.exec_with(&["--user", "1000"], &["id"]).run();
    if out.code == 0 {
        assert_eq!(out.line(0)["uid"][0], 0, "the mapped user");
    } else {
        out.failed(&["1000"]);
    }
}

fn process_file(ctx: &Ctx) {
    let container = container(ctx);
    let process = json!({
        "args": ["probe", "args", "env", "cwd", "status", "rlimit 7", "exit 11"],
        "env": ["PATH=/bin", "ONLY=this"],
        "cwd": "/home",
        "user": { "uid": 0, "gid": 0 },
        "rlimits": [{ "type": "RLIMIT_NOFILE", "soft": 100, "hard": 200 }],
        "noNewPrivileges": true,
    });
    let file = ctx.file("process.json", &process.to_string());
    for flags in [&["--process"][..], &["-p"]] {
        let out = ctx.rt(["exec"]).args(flags).arg(&file).arg(&container.id).run();
        assert_eq!((out.code, out.stderr.as_str()), (11, ""));
        assert_eq!(out.line(0), process["args"]);
        let mut env = out.line(1);
        env.as_object_mut().unwrap().remove("HOME");
        assert_eq!(env, json!({ "PATH": "/bin", "ONLY": "this" }), "it replaces, it does not add");
        assert_eq!(out.line(2), "/home");
        assert_eq!(hex(&out.line(3)["CapEff"]), 1 << 29 | 1 << 5 | 1 << 10, "none named: the container's");
        assert_eq!(out.line(4), json!([100, 200]));
    }
}

fn umask_and_rlimits_in_process_file(ctx: &Ctx) {
    let container = container(ctx);
    let process = json!({
        "args": ["/probe", "umask", "rlimit 4"], "cwd": "/", "env": [],
        "user": { "uid": 0, "gid": 0, "umask": 0o27 },
        "rlimits": [{ "type": "RLIMIT_CORE", "soft": 0, "hard": 0 }],
    });
    let file = ctx.file("process.json", &process.to_string());
    let all = ctx.rt(["exec", "--process"]).arg(&file).arg(&container.id).run().all();
    assert_eq!(all, [json!(0o27), json!([0, 0])]);
}

fn process_file_errors(ctx: &Ctx) {
    let container = container(ctx);
    ctx.rt(["exec", "--process", "/not/there", &container.id])
        .fails(&["/not/there", "no such file or directory"]);
    for text in ["", "{", "[]", r#"{"cwd":"/"}"#, r#"{"args":[],"cwd":"/"}"#] {
        let file = ctx.file("process.json", text);
        ctx.rt(["exec", "--process"]).arg(&file).arg(&container.id).fails(&[]);
    }
    ctx.rt(["exec", &container.id]).fails(&[]);
}

fn detach_and_pid_file(ctx: &Ctx) {
    let container = container(ctx);
    let pid_file = ctx.path("exec.pid");
    let cmd = ctx.rt(["exec", "--detach", "--pid-file"]).arg(&pid_file);
    let out = cmd.args([&container.id, "/probe", "pause"]).ok();
    let text = fs::read_to_string(&pid_file).unwrap();
    let pid: i32 = text.parse().unwrap_or_else(|_| panic!("digits only: {text:?}"));
    // conmon waits for this pid: it is the test's own child now.
    assert_eq!(stat(pid).expect("it runs").parent, std::process::id() as i32, "{out:?}");
    assert_eq!(namespace(pid, "mnt"), namespace(container.pid, "mnt"));
    let pids = ctx.rt(["ps", "--format", "json", &container.id]).ok().json();
    assert!(pids.as_array().unwrap().contains(&json!(pid)) || ctx.foreign(), "{pids}");
    sys::kill(pid, libc::SIGKILL).unwrap();
    eventually("its end", || sys::reap(pid).unwrap());
    assert_eq!(container.status(), "running");
}

fn missing_command_in_exec(ctx: &Ctx) {
    let container = container(ctx);
    for (command, text) in [
        ("/not/there", "exec: \"/not/there\": stat /not/there: no such file or directory"),
        ("not-there", "exec: \"not-there\": executable file not found in $PATH"),
        ("/etc", "is a directory"),
        ("/etc/passwd", "permission denied"),
    ] {
        for detach in [false, true] {
            let pid_file = ctx.path("no.pid");
            let flags: &[&str] = if detach { &["--detach"] } else { &[] };
            let cmd = ctx.rt(["exec"]).args(flags).arg("--pid-file").arg(&pid_file);
            let out = cmd.args([&container.id, command]).fails(&[text]);
            assert_eq!(out.code, 255, "exec's own failure, as runc's: {out:?}");
            assert!(!pid_file.exists(), "no pid file of a failed exec");
        }
    }
}

fn exec_into_created_or_stopped(ctx: &Ctx) {
    let container = ctx.create(&ctx.bundle().ops(&["pause"]));
    // runc and crun let one enter a created container.
    let out = container.exec(&["names"]);
    assert_eq!(out.all()[0][0], "probe");
    container.kill("KILL");
    container.reap();
    container.exec(&["names"]).failed(&[]);
}

fn capabilities_are_the_containers(ctx: &Ctx) {
    let container = container(ctx);
    let status = container.exec(&["status"]).all().remove(0);
    // AUDIT_WRITE 29, KILL 5, NET_BIND_SERVICE 10.
    let expected = 1 << 29 | 1 << 5 | 1 << 10;
    for set in ["CapBnd", "CapPrm", "CapEff"] {
        assert_eq!(hex(&status[set]), expected, "{set}");
    }
    assert_eq!((hex(&status["CapInh"]), hex(&status["CapAmb"])), (0, 0));
    let init = fs::read_to_string(format!("/proc/{}/status", container.pid)).unwrap();
    assert!(init.contains(&format!("CapEff:\t{expected:016x}")), "{init}");
}

fn cap_adds(ctx: &Ctx) {
    let container = container(ctx);
    let out = container.exec_with(&["--cap", "CAP_CHOWN", "-c", "CAP_SYS_NICE"], &["status"]).ok();
    let expected = 1 << 29 | 1 << 5 | 1 << 10 | 1 << 0 | 1 << 23;
    assert_eq!(hex(&out.line(0)["CapEff"]), expected);
    let out = container.exec_with(&["--cap", "CAP_NONSENSE"], &["status"]).run();
    if out.code == 0 {
        assert_eq!(hex(&out.line(0)["CapEff"]), 1 << 29 | 1 << 5 | 1 << 10);
    }
}

fn seccomp_and_nnp_hold(ctx: &Ctx) {
    let seccomp = json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [{ "names": ["getpriority"], "action": "SCMP_ACT_ERRNO", "errnoRet": 77 }],
    });
    let bundle = ctx.bundle().with("/linux/seccomp", seccomp).ops(&["pause"]);
    let container = ctx.started(&bundle);
    let all = container.exec(&["syscall 140 0 0", "status", "nnp"]).all();
    assert_eq!(all[0], errno(77), "the container's filter holds in exec");
    assert_eq!(all[1]["Seccomp"], "2");
    assert_eq!(all[2], 1, "no_new_privs holds in exec");
    let process = json!({ "args": ["/probe", "syscall 140 0 0"], "cwd": "/", "env": [], "user": { "uid": 0, "gid": 0 } });
    let file = ctx.file("process.json", &process.to_string());
    let out = ctx.rt(["exec", "--process"]).arg(file).arg(&container.id).run();
    assert_eq!(out.line(0), errno(77), "{out:?}");
}

fn exec_with_its_own_no_new_privs(ctx: &Ctx) {
    let container = ctx.started(&ctx.bundle().with("/process/noNewPrivileges", json!(false)).ops(&["pause"]));
    assert_eq!(container.exec(&["nnp"]).all()[0], 0);
    assert_eq!(container.exec_with(&["--no-new-privs"], &["nnp"]).ok().line(0), 1);
}

fn flags_end_at_the_id(ctx: &Ctx) {
    let container = container(ctx);
    let out = ctx.rt(["exec", &container.id, "/probe", "args", "-l", "--zz"]).run();
    assert_eq!(out.line(0), json!(["/probe", "args", "-l", "--zz"]));
}

fn double_dash_before_the_id(ctx: &Ctx) {
    let container = container(ctx);
    assert_eq!(ctx.rt(["exec", "--", &container.id, "/probe", "say a"]).ok().line(0), "a");
}

fn preserve_fds(ctx: &Ctx) {
    let container = container(ctx);
    let file = ctx.file("passed", "");
    let fd = fs::OpenOptions::new().append(true).open(&file).unwrap();
    let raw = std::os::fd::AsRawFd::as_raw_fd(&fd);
    let steps = [Step::Dup(raw, 3), Step::Dup(raw, 4), Step::Dup(raw, 5)];
    let out = container.exec_with(&["--preserve-fds", "2"], &["fds"]).before(steps).ok();
    assert_eq!(out.line(0), json!([0, 1, 2, 3, 4]));
}

fn no_other_descriptors(ctx: &Ctx) {
    let container = container(ctx);
    let steps: Vec<_> = [3, 7, 19, 200].into_iter().map(|to| Step::Dup(0, to)).collect();
    let out = container.exec_with(&[], &["fds", "links /proc/self/fd"]).before(steps).ok();
    assert_eq!(out.line(0), json!([0, 1, 2]));
}

fn many_at_once(ctx: &Ctx) {
    let container = container(ctx);
    let jobs: Vec<_> = (0..16)
        .map(|n| container.exec_with(&[], &[&format!("say {n}"), &format!("exit {n}")]).spawn())
        .collect();
    for (n, job) in jobs.into_iter().enumerate() {
        let out = job.wait();
        assert_eq!((out.code as usize, out.line(0)), (n, json!(n.to_string())), "{out:?}");
    }
}

fn signals_reach_exec(ctx: &Ctx) {
    let container = container(ctx);
    let mut job = container.exec_with(&[], &["signals"]).spawn();
    job.line(0);
    sys::kill(job.pid(), libc::SIGUSR1).unwrap();
    assert_eq!(job.line(1), json!({ "signal": libc::SIGUSR1 }));
    sys::kill(job.pid(), libc::SIGTERM).unwrap();
    assert_eq!(job.wait().code, 7);
}

fn input_reaches_exec(ctx: &Ctx) {
    let container = container(ctx);
    let out = container.exec_with(&[], &["readall", "stderr oops"]).input("typed").ok();
    assert_eq!((&out.line(0)["text"], out.stderr.as_str()), (&json!("typed"), "oops\n"));
}

fn masks_hold_in_exec(ctx: &Ctx) {
    let container = container(ctx);
    let all = container.exec(&["cat /proc/timer_list", "write /proc/sys/kernel/domainname x"]).all();
    assert_eq!(all[0], "", "a masked file reads as empty");
    assert!([errno(libc::EROFS), errno(libc::EACCES)].contains(&all[1]), "{}", all[1]);
}

fn exec_sees_the_same_root(ctx: &Ctx) {
    let container = container(ctx);
    container.exec(&["write /tmp/made-by-exec yes"]).all();
    assert_eq!(container.exec(&["cat /tmp/made-by-exec"]).all()[0], "yes");
    assert_eq!(container.exec(&["links /proc/self/ns"]).all()[0]["mnt"], namespace(container.pid, "mnt"));
}

fn signal_state_is_clean(ctx: &Ctx) {
    let container = container(ctx);
    let steps = [Step::Block(libc::SIGUSR1), Step::Ignore(libc::SIGPIPE), Step::Ignore(libc::SIGUSR2)];
    let out = ctx.rt(["exec", &container.id, "/probe", "dispositions"]).before(steps).ok();
    assert_eq!(out.line(0), json!({ "blocked": [], "ignored": [] }), "{out:?}");
}

fn exec_in_the_hosts_pid_namespace(ctx: &Ctx) {
    let container = ctx.started(&crate::run::in_place(ctx.bundle()).ops(&["pause"]));
    let all = container.exec(&["pid", "ns"]).all();
    assert_eq!(all[1]["pid"], namespace(std::process::id() as i32, "pid"));
    assert_eq!(all[1]["mnt"], namespace(container.pid, "mnt"));
}

fn session_of_its_own(ctx: &Ctx) {
    // In the caller's process group kill(0) would reach the caller. Where PIDs are shared that is as it should be.
    let container = container(ctx);
    let stat = container.exec(&["cat /proc/self/stat"]).line(0);
    let fields: Vec<i32> = stat
        .as_str()
        .unwrap()
        .rsplit(')')
        .next()
        .unwrap()
        .split(' ')
        .skip(2)
        .take(3)
        .map(|f| f.parse().unwrap())
        .collect();
    let [_parent, group, session] = fields[..] else { panic!("{stat}") };
    assert!(group > 0 && group == session, "{stat}");
}

fn exec_survives_init_chroot(ctx: &Ctx) {
    // Init may have chrooted since: exec enters the mount namespace's root or init's, and finds a program.
    let container = ctx.started(&ctx.bundle().ops(&["pause"]));
    let out = container.exec(&["stat /", "stat /proc/1/root/"]);
    let all = out.all();
    assert_eq!((&all[0]["ino"], &all[0]["dev"]), (&all[1]["ino"], &all[1]["dev"]), "{out:?}");
}

fn oom_score_is_the_containers(ctx: &Ctx) {
    let container = ctx.started(&ctx.bundle().with("/process/oomScoreAdj", json!(321)).ops(&["pause"]));
    let all = container.exec(&["cat /proc/1/oom_score_adj"]).all();
    assert_eq!(all[0], "321\n");
}
