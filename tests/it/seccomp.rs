//! Seccomp end to end: the filter that the kernel holds answers as the config says. (The compiler itself
//! is held against libseccomp in tests/seccomp.rs.)

use crate::fixture::{Bundle, Ctx, errno};
use crate::runner::tests;
use serde_json::{Value, json};

tests! {
    ALL { errno_and_allow, runs_with_dockers_kind_of_profile }
    BOTH {
        kill_process_and_thread, trap_action, log_action, default_errno, argument_operators, unknown_names_are_ignored,
        architectures, flags, several_rules_of_one_call, bad_sections_fail, notify_listener, works_without_no_new_privs,
        profile_older_than_the_runtime,
        calls_that_end_a_process_are_answered, notify_without_a_listener_fails, filter_covers_children, filter_is_loaded_last, trace_without_tracer, empty_section,
    }
}

// Numbers of x86-64: harmless calls that Rust's own start-up does not need.
const GETPRIORITY: u32 = 140;
const PERSONALITY: u32 = 135;
const SCHED_GETSCHEDULER: u32 = 145;

fn section(default: &str, syscalls: Value) -> Value {
    json!({ "defaultAction": default, "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"], "syscalls": syscalls })
}

fn with(ctx: &Ctx, section: Value) -> Bundle {
    ctx.bundle().with("/linux/seccomp", section)
}

fn call(number: u32, args: &str) -> String {
    format!("syscall {number} {args}")
}

fn errno_and_allow(ctx: &Ctx) {
    let rules = json!([
        { "names": ["getpriority"], "action": "SCMP_ACT_ERRNO" },
        { "names": ["personality"], "action": "SCMP_ACT_ERRNO", "errnoRet": 88 },
    ]);
    let bundle = with(ctx, section("SCMP_ACT_ALLOW", rules));
    let ops = [
        call(GETPRIORITY, "0 0"),
        call(PERSONALITY, "0xffffffff"),
        call(SCHED_GETSCHEDULER, "0"),
        "status".into(),
    ];
    let all = ctx.run(&bundle.ops(&ops.each_ref().map(String::as_str))).all();
    assert_eq!(all[..3], [errno(libc::EPERM), errno(88), json!(0)]);
    assert_eq!((&all[3]["Seccomp"], &all[3]["Seccomp_filters"]), (&json!("2"), &json!("1")));
}

/// Where exec and exit do nothing, nothing waits for the process for ever.
fn calls_that_end_a_process_are_answered(ctx: &Ctx) {
    let names = ["execve", "execveat", "exit", "exit_group"];
    let rules = json!([{ "names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": 0 }]);
    let out = ctx.run(&with(ctx, section("SCMP_ACT_ALLOW", rules)).ops(&["ready"]));
    assert_ne!(out.code, 0, "{out:?}");
}

fn default_errno(ctx: &Ctx) {
    // What is allowed is what the payload needs; everything else gets the default, here with its own number.
    let mut bundle = with(ctx, section("SCMP_ACT_ALLOW", json!([])));
    bundle.set("/linux/seccomp/defaultAction", json!("SCMP_ACT_ERRNO"));
    bundle.set("/linux/seccomp/defaultErrnoRet", json!(99));
    let mut names = everything();
    names.retain(|n| *n != "getpriority");
    bundle.set("/linux/seccomp/syscalls", json!([{ "names": names, "action": "SCMP_ACT_ALLOW" }]));
    let all = ctx.run(&bundle.ops(&[&call(GETPRIORITY, "0 0"), &call(SCHED_GETSCHEDULER, "0")])).all();
    assert_eq!(all, [errno(99), json!(0)]);
}

/// What a Rust program and a runtime's last steps need, about as podman's default profile allows it.
fn everything() -> Vec<&'static str> {
    "accept accept4 access alarm arch_prctl bind brk capget capset chdir chmod chown clock_getres clock_gettime \
     clock_nanosleep clone clone3 close close_range connect copy_file_range creat dup dup2 dup3 epoll_create \
     epoll_create1 epoll_ctl epoll_pwait epoll_wait eventfd eventfd2 execve execveat exit exit_group faccessat \
     faccessat2 fadvise64 fallocate fchdir fchmod fchmodat fchown fchownat fcntl fdatasync fgetxattr flock fork \
     fstat fstatfs fsync ftruncate futex getcpu getcwd getdents getdents64 getegid geteuid getgid getgroups \
     getitimer getpeername getpgid getpgrp getpid getppid getpriority getrandom getresgid getresuid getrlimit \
     get_robust_list getrusage getsid getsockname getsockopt gettid gettimeofday getuid ioctl kill lchown link \
     linkat listen lseek lstat madvise membarrier memfd_create mincore mkdir mkdirat mknod mknodat mlock mmap \
     mprotect mremap munmap nanosleep newfstatat open openat openat2 pause pidfd_open pipe pipe2 poll ppoll \
     prctl pread64 preadv prlimit64 pselect6 pwrite64 read readlink readlinkat readv recvfrom recvmsg rename \
     renameat renameat2 restart_syscall rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo \
     rt_sigreturn rt_sigsuspend rt_sigtimedwait sched_getaffinity sched_getscheduler sched_setaffinity \
     sched_yield seccomp select sendfile sendmsg sendto setgid setgroups setitimer setpgid setpriority setresgid \
     setresuid setrlimit set_robust_list setsid setsockopt set_tid_address setuid shutdown sigaltstack socket \
     socketpair splice stat statfs statx symlink symlinkat sysinfo tgkill time timer_create tkill truncate umask \
     uname unlink unlinkat utimensat vfork wait4 waitid write writev"
        .split_whitespace()
        .collect()
}

fn runs_with_dockers_kind_of_profile(ctx: &Ctx) {
    // Deny by default, with groups by name, by argument and for other architectures, as Docker's.
    let section = json!({
        "defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 1,
        "archMap": [{ "architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86", "SCMP_ARCH_X32"] }],
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
        "syscalls": [
            { "names": everything(), "action": "SCMP_ACT_ALLOW" },
            { "names": ["personality"], "action": "SCMP_ACT_ALLOW", "args": [{ "index": 0, "value": 0, "op": "SCMP_CMP_EQ" }] },
            { "names": ["personality"], "action": "SCMP_ACT_ALLOW", "args": [{ "index": 0, "value": 4_294_967_295u64, "op": "SCMP_CMP_EQ" }] },
            { "names": ["mount", "umount2"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38 },
        ],
    });
    let bundle = with(ctx, section).ops(&[
        &call(PERSONALITY, "0xffffffff"),
        &call(PERSONALITY, "8"),
        "mount a /mnt tmpfs",
        "write /tmp/x y",
        "spawn /probe ready",
    ]);
    let all = ctx.run(&bundle).all();
    assert_eq!(all[..4], [json!(0), errno(1), errno(38), Value::Null]);
    assert_eq!(all[4]["out"], "\"ready\"\n");
}

fn kill_process_and_thread(ctx: &Ctx) {
    for action in ["SCMP_ACT_KILL", "SCMP_ACT_KILL_PROCESS", "SCMP_ACT_KILL_THREAD"] {
        let rules = json!([{ "names": ["getpriority"], "action": action }]);
        let out = ctx.run(&with(ctx, section("SCMP_ACT_ALLOW", rules)).ops(&[
            "ready",
            &call(GETPRIORITY, "0 0"),
            "ready",
        ]));
        assert_eq!((out.code, out.stdout.lines().count()), (128 + libc::SIGSYS, 1), "{action}: {out:?}");
    }
}

fn trap_action(ctx: &Ctx) {
    let rules = json!([{ "names": ["getpriority"], "action": "SCMP_ACT_TRAP" }]);
    let out = ctx.run(&with(ctx, section("SCMP_ACT_ALLOW", rules)).ops(&[&call(GETPRIORITY, "0 0")]));
    assert_eq!(out.code, 128 + libc::SIGSYS, "{out:?}");
}

fn trace_without_tracer(ctx: &Ctx) {
    // With nobody to trace, the kernel answers ENOSYS.
    let rules = json!([{ "names": ["getpriority"], "action": "SCMP_ACT_TRACE" }]);
    let all = ctx.run(&with(ctx, section("SCMP_ACT_ALLOW", rules)).ops(&[&call(GETPRIORITY, "0 0")])).all();
    assert_eq!(all[0], errno(libc::ENOSYS));
}

fn log_action(ctx: &Ctx) {
    let rules = json!([{ "names": ["getpriority"], "action": "SCMP_ACT_LOG" }]);
    let all = ctx.run(&with(ctx, section("SCMP_ACT_ALLOW", rules)).ops(&[&call(GETPRIORITY, "0 0")])).all();
    let own = crate::sys::syscall(GETPRIORITY.into(), &[0, 0]).unwrap();
    assert_eq!(all[0], own, "logged and let through");
}

fn argument_operators(ctx: &Ctx) {
    // personality(2) of a number that asks only (0xffffffff) and others; the rule answers before the kernel.
    let cases = [
        ("SCMP_CMP_EQ", 7u64, 0u64, &[7u64][..], &[6, 8, 0x1_0000_0007][..]),
        ("SCMP_CMP_NE", 7, 0, &[6, 8, 0x1_0000_0007], &[7]),
        ("SCMP_CMP_LT", 7, 0, &[0, 6], &[7, 8, 0x1_0000_0000]),
        ("SCMP_CMP_LE", 7, 0, &[6, 7], &[8, 0x1_0000_0000]),
        ("SCMP_CMP_GT", 7, 0, &[8, 0x1_0000_0000], &[6, 7]),
        ("SCMP_CMP_GE", 7, 0, &[7, 8, 0x1_0000_0000], &[6]),
        ("SCMP_CMP_MASKED_EQ", 0xf0, 0x50, &[0x50, 0x5f, 0x150], &[0x40, 0]),
        ("SCMP_CMP_GT", 0x1_0000_0000, 0, &[0x1_0000_0001, 0x2_0000_0000], &[0x1_0000_0000, 0xffff_ffff]),
    ];
    for (op, value, two, hit, miss) in cases {
        // getpriority's second argument is an id that does not exist: ESRCH where the rule does not match.
        let args = json!([{ "index": 1, "value": value, "valueTwo": two, "op": op }]);
        let rules =
            json!([{ "names": ["getpriority"], "action": "SCMP_ACT_ERRNO", "errnoRet": 77, "args": args }]);
        let ops: Vec<String> =
            hit.iter().chain(miss).map(|v| call(GETPRIORITY, &format!("9 {v:#x}"))).collect();
        let ops: Vec<&str> = ops.iter().map(String::as_str).collect();
        let all = ctx.run(&with(ctx, section("SCMP_ACT_ALLOW", rules)).ops(&ops)).all();
        for (n, answer) in all.iter().enumerate() {
            // 9 is no kind of id that getpriority knows.
            let expected = if n < hit.len() { errno(77) } else { errno(libc::EINVAL) };
            assert_eq!(*answer, expected, "{op} {value:#x} {two:#x}: {}", ops[n]);
        }
    }
}

fn several_rules_of_one_call(ctx: &Ctx) {
    // Arguments of one rule are joined by and, rules of one call by or.
    let both = json!([{ "index": 0, "value": 9, "op": "SCMP_CMP_EQ" }, { "index": 1, "value": 1, "op": "SCMP_CMP_EQ" }]);
    let one = json!([{ "index": 1, "value": 5, "op": "SCMP_CMP_EQ" }]);
    let rules = json!([
        { "names": ["getpriority"], "action": "SCMP_ACT_ERRNO", "errnoRet": 70, "args": both },
        { "names": ["getpriority"], "action": "SCMP_ACT_ERRNO", "errnoRet": 71, "args": one },
    ]);
    let ops = ["9 1", "8 1", "9 5", "9 2"].map(|a| call(GETPRIORITY, a));
    let all =
        ctx.run(&with(ctx, section("SCMP_ACT_ALLOW", rules)).ops(&ops.each_ref().map(String::as_str))).all();
    assert_eq!(all, [errno(70), errno(libc::EINVAL), errno(71), errno(libc::EINVAL)]);
}

fn unknown_names_are_ignored(ctx: &Ctx) {
    let rules =
        json!([{ "names": ["from_the_future", "getpriority"], "action": "SCMP_ACT_ERRNO", "errnoRet": 77 }]);
    let out = ctx.run(&with(ctx, section("SCMP_ACT_ALLOW", rules)).ops(&[&call(GETPRIORITY, "0 0")]));
    assert_eq!((out.all(), out.stderr.as_str()), (vec![errno(77)], ""));
}

fn architectures(ctx: &Ctx) {
    // Without the list: the machine's own. With foreign ones in it: they do no harm.
    for list in [
        json!(null),
        json!([]),
        json!(["SCMP_ARCH_X86_64"]),
        json!(["SCMP_ARCH_AARCH64", "SCMP_ARCH_X86_64", "SCMP_ARCH_S390X"]),
    ] {
        let rules = json!([{ "names": ["getpriority"], "action": "SCMP_ACT_ERRNO", "errnoRet": 77 }]);
        let bundle =
            with(ctx, section("SCMP_ACT_ALLOW", rules)).with("/linux/seccomp/architectures", list.clone());
        assert_eq!(ctx.run(&bundle.ops(&[&call(GETPRIORITY, "0 0")])).all()[0], errno(77), "{list}");
    }
    // x32's numbers are x86-64's with bit 30: they must not slip past a filter that covers x32.
    let rules = json!([{ "names": ["getpriority"], "action": "SCMP_ACT_ERRNO", "errnoRet": 77 }]);
    let all = ctx
        .run(&with(ctx, section("SCMP_ACT_ALLOW", rules)).ops(&[&call(GETPRIORITY | 0x4000_0000, "0 0")]))
        .all();
    assert!([errno(77), errno(libc::ENOSYS)].contains(&all[0]), "{}", all[0]);
}

fn flags(ctx: &Ctx) {
    for flags in [
        json!([]),
        json!(["SECCOMP_FILTER_FLAG_LOG"]),
        json!(["SECCOMP_FILTER_FLAG_SPEC_ALLOW"]),
        json!(["SECCOMP_FILTER_FLAG_TSYNC"]),
    ] {
        let rules = json!([{ "names": ["getpriority"], "action": "SCMP_ACT_ERRNO", "errnoRet": 77 }]);
        let bundle = with(ctx, section("SCMP_ACT_ALLOW", rules)).with("/linux/seccomp/flags", flags.clone());
        assert_eq!(ctx.run(&bundle.ops(&[&call(GETPRIORITY, "0 0")])).all()[0], errno(77), "{flags}");
    }
}

fn bad_sections_fail(ctx: &Ctx) {
    for (section, word) in [
        (json!({ "defaultAction": "SCMP_ACT_NONSENSE" }), "SCMP_ACT_NONSENSE"),
        (section("SCMP_ACT_ALLOW", json!([{ "names": ["read"], "action": "NONSENSE" }])), "NONSENSE"),
        (
            section(
                "SCMP_ACT_ALLOW",
                json!([{ "names": ["read"], "action": "SCMP_ACT_ERRNO", "args": [{ "index": 6, "value": 0, "op": "SCMP_CMP_EQ" }] }]),
            ),
            "",
        ),
        (
            section(
                "SCMP_ACT_ALLOW",
                json!([{ "names": ["read"], "action": "SCMP_ACT_ERRNO", "args": [{ "index": 0, "value": 0, "op": "NONSENSE" }] }]),
            ),
            "NONSENSE",
        ),
        (json!({}), ""),
    ] {
        let id = ctx.id();
        let out = ctx.rt(["create", "--bundle"]).arg(&with(ctx, section).dir).arg(&id).run();
        out.failed(&[word]);
        assert!(!ctx.state.join(&id).exists());
    }
}

fn empty_section(ctx: &Ctx) {
    // Allow everything: no rule, and still a program that starts.
    let out = ctx.run(&with(ctx, json!({ "defaultAction": "SCMP_ACT_ALLOW" })).ops(&["ready"]));
    assert_eq!(out.all()[0], "ready");
}

fn filter_covers_children(ctx: &Ctx) {
    let rules = json!([{ "names": ["getpriority"], "action": "SCMP_ACT_ERRNO", "errnoRet": 77 }]);
    let bundle = with(ctx, section("SCMP_ACT_ALLOW", rules));
    let all = ctx.run(&bundle.ops(&["fork syscall 140 0 0", "wait", "syscall 140 0 0"])).all();
    assert_eq!(all.iter().filter(|v| **v == errno(77)).count(), 2, "{all:?}");
}

fn filter_is_loaded_last(ctx: &Ctx) {
    // A profile that denies what only the runtime needs must not stop it.
    let denied = [
        "mount",
        "umount2",
        "pivot_root",
        "setns",
        "unshare",
        "chroot",
        "sethostname",
        "mknod",
        "mknodat",
        "setrlimit",
        "open_tree",
        "move_mount",
        "fsopen",
        "fsconfig",
        "fsmount",
        "mount_setattr",
        "keyctl",
        "personality",
        "umask",
    ];
    let rules = json!([{ "names": denied, "action": "SCMP_ACT_KILL_PROCESS" }]);
    let out = ctx.run(&with(ctx, section("SCMP_ACT_ALLOW", rules)).ops(&["ready"]));
    assert_eq!(out.all()[0], "ready");
}

fn works_without_no_new_privs(ctx: &Ctx) {
    let rules = json!([{ "names": ["getpriority"], "action": "SCMP_ACT_ERRNO", "errnoRet": 77 }]);
    let bundle = with(ctx, section("SCMP_ACT_ALLOW", rules)).with("/process/noNewPrivileges", json!(false));
    let all = ctx.run(&bundle.ops(&[&call(GETPRIORITY, "0 0"), "nnp"])).all();
    assert_eq!(all, [errno(77), json!(0)]);
}

fn profile_older_than_the_runtime(ctx: &Ctx) {
    // Without no_new_privs the filter comes early: what the runtime does after it, a profile of 2016 knows.
    let mut names = everything();
    let new = ["clone3", "close_range", "copy_file_range", "faccessat2", "openat2", "pidfd_open", "statx"];
    names.retain(|name| !new.contains(name));
    let rules = json!([{ "names": names, "action": "SCMP_ACT_ALLOW" }]);
    let bundle = with(ctx, section("SCMP_ACT_ERRNO", rules))
        .with("/process/noNewPrivileges", json!(false))
        .hook("startContainer", std::path::Path::new("/probe"), &["ready"])
        .ops(&["fds", "ready", "pause"]);
    let container = ctx.started(&bundle);
    assert_eq!(container.line(1), "ready");
    // The debug log is open until the end, and is not the program's.
    let log = ctx.path("log");
    let id = ctx.id();
    let create =
        ctx.rt(["--debug", "--log"]).arg(&log).args(["create", "--bundle"]).arg(&bundle.dir).arg(&id);
    create.ok();
    let pid = ctx.rt(["state", &id]).ok().json()["pid"].as_i64().unwrap();
    let mut open: Vec<_> = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .map(|fd| std::fs::read_link(fd.unwrap().path()).unwrap().display().to_string())
        .filter(|path| !path.ends_with("/start.fifo"))
        .collect();
    open.sort_unstable();
    assert_eq!(open.len(), 3, "{open:?}");
    container.end();
}

fn notify_without_a_listener_fails(ctx: &Ctx) {
    let rules = json!([{ "names": ["getpriority"], "action": "SCMP_ACT_NOTIFY" }]);
    ctx.run(&with(ctx, section("SCMP_ACT_ALLOW", rules))).failed(&["listenerPath"]);
}

fn notify_listener(ctx: &Ctx) {
    use std::os::fd::AsRawFd;
    let path = ctx.path("seccomp.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    ctx.give(&path);
    let rules = json!([{ "names": ["getpriority"], "action": "SCMP_ACT_NOTIFY" }]);
    let bundle = with(ctx, section("SCMP_ACT_ALLOW", rules))
        .with("/linux/seccomp/listenerPath", json!(path))
        .with("/linux/seccomp/listenerMetadata", json!("hello agent"));
    let container = ctx.create(&bundle.ops(&[&call(GETPRIORITY, "0 0")]));
    // config-linux.md: one message, the container process state as JSON, the descriptor beside it.
    container.start();
    let (stream, _) = listener.accept().unwrap();
    let (bytes, fds) = crate::sys::receive(stream.as_raw_fd()).unwrap();
    let message: Value = serde_json::from_slice(&bytes).unwrap_or_else(|e| panic!("{e}: {bytes:?}"));
    assert_eq!(message["metadata"], "hello agent");
    assert_eq!(message["state"]["id"], json!(container.id));
    assert_eq!(message["pid"], json!(container.pid));
    assert_eq!(message["ociVersion"].as_str().map(|v| &v[..2]), Some("1."));
    let names = message["fds"].as_array().expect("names of the descriptors");
    let at = names.iter().position(|n| n == "seccompFd").expect("seccompFd");
    assert_eq!(names.len(), fds.len());
    // The call waits for the agent's answer; without an agent it is ENOSYS.
    assert!(crate::sys::readable(fds[at].as_raw_fd(), 10_000), "the call arrives");
    drop(fds);
    assert_eq!(container.line(0), errno(libc::ENOSYS));
    container.reap();
}
