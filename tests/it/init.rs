//! The init of `rt run --init` and the annotation `rt.init`: signals, reaping, exit codes, and what it shows of the host.

use crate::fixture::{Bundle, Ctx, Job, errno, eventually, stat};
use crate::runner::tests;
use crate::sys;
use serde_json::json;
use std::fs;

tests! {
    ALL { signals_reach_a_program_without_handlers, it_shows_nothing_of_the_host, exit_codes_of_an_init }
    BOTH {
        the_program_is_its_child, orphans_are_reaped, the_flag_beats_the_annotation, created_with_an_init,
        program_that_cannot_run, sockets_of_a_service_manager,
    }
    USER { the_init_is_small }
}

fn with_init(ctx: &Ctx) -> Bundle {
    ctx.bundle().with("/annotations", json!({ "rt.init": "true" }))
}

fn started(ctx: &Ctx, bundle: &Bundle, id: &str, flags: &[&str]) -> Job {
    let mut job = ctx.rt(["run"]).args(flags).arg("--bundle").arg(&bundle.dir).arg(id).spawn();
    assert_eq!(job.line(0), "ready");
    job
}

fn signals_reach_a_program_without_handlers(ctx: &Ctx) {
    let bundle = with_init(ctx).ops(&["ready", "sleep 60000"]);
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1] {
        let job = started(ctx, &bundle, &ctx.id(), &[]);
        sys::kill(job.pid(), signal).unwrap();
        assert_eq!(job.wait().code, 128 + signal);
    }
    // Without an init the kernel keeps them from the first process of a PID namespace.
    let id = ctx.id();
    let job = started(ctx, &bundle, &id, &["--init=false"]);
    sys::kill(job.pid(), libc::SIGTERM).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(200));
    ctx.rt(["kill", &id, "KILL"]).silent();
    assert_eq!(job.wait().code, 128 + libc::SIGKILL, "SIGTERM did nothing");
    // By rt kill, which signals the container's first process.
    let id = ctx.id();
    let job = started(ctx, &bundle, &id, &[]);
    ctx.rt(["kill", &id, "TERM"]).silent();
    assert_eq!(job.wait().code, 128 + libc::SIGTERM);
    // A program with handlers gets each once, and in order.
    let bundle = with_init(ctx).ops(&["signals"]);
    let mut job = started(ctx, &bundle, &ctx.id(), &[]);
    for (n, signal) in [libc::SIGUSR1, libc::SIGWINCH, libc::SIGHUP, libc::SIGTERM].into_iter().enumerate() {
        sys::kill(job.pid(), signal).unwrap();
        assert_eq!(job.line(n + 1)["signal"], signal);
    }
    assert_eq!(job.wait().code, 7);
}

fn exit_codes_of_an_init(ctx: &Ctx) {
    for code in [0, 9, 255] {
        assert_eq!(ctx.run(&with_init(ctx).ops(&[&format!("exit {code}")])).code, code);
    }
    for signal in [libc::SIGKILL, libc::SIGSEGV, libc::SIGTERM] {
        assert_eq!(ctx.run(&with_init(ctx).ops(&[&format!("die {signal}")])).code, 128 + signal);
    }
    // What the program leaves behind ends with it.
    let out = ctx.run(&with_init(ctx).ops(&["fork sleep 60000", "exit 3"]));
    assert_eq!((out.code, out.stderr.as_str()), (3, ""));
}

fn the_program_is_its_child(ctx: &Ctx) {
    let bundle = with_init(ctx).ops(&["pid", "ps", "fds", "dispositions", "until /tmp/go"]);
    let mut job = ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(ctx.id()).spawn();
    assert_eq!(job.line(0), json!({ "pid": 2, "ppid": 1 }));
    assert_eq!((job.line(1), job.line(2)), (json!([1, 2]), json!([0, 1, 2])));
    assert_eq!(job.line(3), json!({ "blocked": [], "ignored": [] }), "the program starts as any other");
    let init = crate::fixture::children(job.pid() as u32)[0];
    let read = |name: &str| fs::read_to_string(format!("/proc/{init}/{name}")).unwrap();
    eventually("the init's name", || (read("comm") == "rt-init\n").then_some(()));
    assert_eq!(read("cmdline"), "rt-init\x002\x00");
    bundle.file("tmp/go", "");
    assert_eq!(job.wait().code, 0);
    // A client's config has no annotation, and its program is the first process.
    assert_eq!(ctx.run(&ctx.bundle().ops(&["pid"])).line(0)["pid"], 1);
}

fn orphans_are_reaped(ctx: &Ctx) {
    let bundle =
        with_init(ctx).ops(&["orphan ready", "orphan ready", "orphan ready", "ready", "until /tmp/go", "ps"]);
    let mut job = ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(ctx.id()).spawn();
    job.line(6);
    // The program runs in the meantime; what has ended goes away without its help.
    let init = eventually("the init", || crate::fixture::children(job.pid() as u32).first().copied());
    let zombies = || {
        crate::fixture::children(init)
            .into_iter()
            .filter(|pid| stat(*pid as i32).is_some_and(|s| s.state == 'Z'))
            .count()
    };
    eventually("no zombie", || (zombies() == 0).then_some(()));
    bundle.file("tmp/go", "");
    let out = job.wait();
    assert_eq!((out.code, out.all().last()), (0, Some(&json!([1, 2]))), "{out:?}");
}

fn the_flag_beats_the_annotation(ctx: &Ctx) {
    let pid =
        |bundle: Bundle, flags: &[&str]| ctx.run_with(&bundle.ops(&["pid"]), flags).line(0)["pid"].clone();
    assert_eq!(pid(ctx.bundle(), &["--init"]), 2);
    assert_eq!(pid(with_init(ctx), &["--init=false"]), 1);
    assert_eq!(pid(ctx.bundle().with("/annotations", json!({ "rt.init": "false" })), &[]), 1);
    ctx.run(&ctx.bundle().with("/annotations", json!({ "rt.init": "yes" }))).failed(&["rt.init", "\"yes\""]);
    // Without a PID namespace of its own there is no first process. A bundle may say so all the same.
    let shared = || {
        with_init(ctx).without_namespace("pid").without_mount("/proc").mount(
            "/proc",
            "bind",
            "/proc",
            &["rbind"],
        )
    };
    ctx.run_with(&shared(), &["--init"]).failed(&["--init", "PID namespace"]);
    assert_eq!(ctx.run(&shared().ops(&["cat /proc/self/comm"])).line(0), "probe\n");
}

fn created_with_an_init(ctx: &Ctx) {
    let container = ctx.create(&with_init(ctx).ops(&["ready", "sleep 60000"]));
    assert_eq!(ctx.rt(["state", &container.id]).run().json()["status"], "created");
    container.start();
    container.line(0);
    assert_eq!(ctx.rt(["state", &container.id]).run().json()["pid"], container.pid);
    let all = container.exec(&["ps", "pid"]).all();
    assert!(all[0].as_array().unwrap().starts_with(&[json!(1), json!(2)]), "{all:?}");
    ctx.rt(["pause", &container.id]).silent();
    ctx.rt(["resume", &container.id]).silent();
    container.kill("TERM");
    assert_eq!(container.reap(), 128 + libc::SIGTERM);
    container.delete();
}

fn program_that_cannot_run(ctx: &Ctx) {
    let bundle = with_init(ctx).with("/process/args", json!(["/not/there"]));
    ctx.run(&bundle).failed(&["/not/there", "no such file or directory"]);
    let bundle = with_init(ctx).with("/process/args", json!(["/bad"]));
    let bad = bundle.file("bad", "#!/not/there/either\n");
    fs::set_permissions(&bad, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    ctx.run(&bundle).failed(&["exec \"/bad\"", "no such file or directory"]);
    let container = ctx.create(&bundle);
    container.start();
    assert_eq!(container.reap(), 1);
    assert!(fs::read_to_string(&container.err).unwrap().contains("exec \"/bad\""));
}

fn it_shows_nothing_of_the_host(ctx: &Ctx) {
    let operations = [
        "ready",
        "until /tmp/go",
        "cat /proc/1/environ",
        "ls /proc/1/fd",
        "readlink /proc/1/cwd",
        "readlink /proc/1/root",
        "write /proc/1/exe x",
        "status /proc/1/status",
        "status",
    ];
    let bundle = with_init(ctx).caps(&["CAP_SYS_PTRACE", "CAP_DAC_OVERRIDE"]).ops(&operations);
    // The caller's own copy could be written if it were what runs.
    let own = ctx.path("own-rt");
    fs::copy(ctx.rt_path(), &own).unwrap();
    ctx.give(&own);
    let before = fs::read(&own).unwrap();
    let run = ctx.command(&own).arg("--root").arg(&ctx.state).args(["run", "--bundle"]);
    let mut job = run.arg(&bundle.dir).arg(ctx.id()).env("SECRET", "secret").spawn();
    job.line(0);
    let init = crate::fixture::children(job.pid() as u32)[0];
    let closed =
        || fs::read_dir(format!("/proc/{init}/fd")).is_ok_and(|list| list.count() == 0).then_some(());
    eventually("an init that has closed its files", closed);
    let exe = fs::read_link(format!("/proc/{init}/exe")).unwrap();
    assert!(exe.to_string_lossy().starts_with("/memfd:/"), "{exe:?}");
    bundle.file("tmp/go", "");
    let out = job.wait();
    let all = &out.all()[2..];
    assert_eq!(all[..4], [json!(""), json!([]), json!("/"), json!("/")], "{out:?}");
    assert!([libc::ETXTBSY, libc::EPERM].map(errno).contains(&all[4]), "{}", all[4]);
    for set in ["CapPrm", "CapEff", "CapBnd", "CapInh", "CapAmb", "NoNewPrivs", "Uid", "Gid", "Groups"] {
        assert_eq!(all[5][set], all[6][set], "{set}: it has no more rights than the program");
    }
    assert!(fs::read(&own).unwrap() == before);
}

fn sockets_of_a_service_manager(ctx: &Ctx) {
    // The variables name the program's own process (sd_listen_fds(3)).
    let bundle = with_init(ctx).ops(&["env", "pid", "fds"]);
    let sh = ctx.command("/bin/sh").args([
        "-c",
        "export LISTEN_FDS=1 LISTEN_PID=$$; exec \"$@\" 3</dev/null",
        "sh",
    ]);
    let sh = sh.arg(ctx.rt_path()).arg("--root").arg(&ctx.state).args(["run", "--bundle"]).arg(&bundle.dir);
    let all = sh.arg(ctx.id()).run().all();
    assert_eq!((&all[0]["LISTEN_FDS"], &all[0]["LISTEN_PID"]), (&json!("1"), &json!("2")));
    assert_eq!((&all[1]["pid"], &all[2]), (&json!(2), &json!([0, 1, 2, 3])));
}

fn the_init_is_small(ctx: &Ctx) {
    let job = started(ctx, &with_init(ctx).ops(&["ready", "sleep 60000"]), &ctx.id(), &[]);
    let init = crate::fixture::children(job.pid() as u32)[0];
    let name = || fs::read_to_string(format!("/proc/{init}/comm")).is_ok_and(|name| name == "rt-init\n");
    eventually("the init's own program", || name().then_some(()));
    let rollup = fs::read_to_string(format!("/proc/{init}/smaps_rollup")).unwrap();
    let kib = |name: &str| -> u64 {
        let line = rollup.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    // The C library of a build for tests has its share in it.
    assert!(kib("Private_Dirty:") <= 768, "{rollup}");
    sys::kill(job.pid(), libc::SIGTERM).unwrap();
    job.wait();
}
