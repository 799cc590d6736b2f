//! The environment of `rt run`: the caller's below the config's below the command line's; and the image's entrypoint.

use crate::fixture::{Bundle, Ctx};
use crate::run::in_place;
use crate::runner::tests;
use crate::sys::Step;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;

tests! {
    EVERY { callers_environment_is_passed_where_asked_for }
    BOTH {
        nothing_is_passed_unasked, clear_env_passes_nothing, patterns_take_what_matches, env_files,
        wrong_variables_are_refused, terminal_has_a_type, create_and_slurm_pass_nothing, exec_keeps_the_containers,
        pmi_connection_is_kept, pmix_directory_is_shown, detached_runs_inherit_too, ranks_read_no_others_memory, bundle_of_the_host_inherits,
        variables_name_what_is_there, sockets_come_along_with_the_home, wayland_comes_along_with_the_home, x11_comes_along_with_the_home,
        entrypoint_comes_before_the_arguments, entrypoint_is_replaced, wrong_entrypoints_are_refused,
    }
}

/// A bundle as `rt pull` makes one with the hpc profile, as far as the environment goes.
fn pulled(ctx: &Ctx) -> Bundle {
    ctx.bundle()
        .with("/process/env", json!(["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=of-image", "HOME=/home"]))
        .with("/annotations", json!({ "rt.environment": "caller" }))
}

/// What a job's shell has.
const CALLERS: [(&str, &str); 22] = [
    ("TERM", "foot"),
    ("LANG", "of-caller"),
    ("TZ", "UTC"),
    ("SLURM_PROCID", "3"),
    ("PMIX_SERVER_URI", "3"),
    ("OMP_NUM_THREADS", "4"),
    ("DISPLAY", ":1"),
    ("http_proxy", "http://proxy"),
    ("EMPTY", ""),
    ("EQ", "a=b\nc"),
    ("PATH", "/host/bin"),
    ("HOME", "/host/home"),
    ("SHELL", "/bin/hostsh"),
    ("LD_LIBRARY_PATH", "/host/lib"),
    ("LD_PRELOAD", ""),
    ("TMPDIR", "/host/tmp"),
    ("XDG_RUNTIME_DIR", "/host/run"),
    ("PWD", "/host"),
    ("SHLVL", "9"),
    ("LOADEDMODULES", "gcc/12"),
    ("BASH_FUNC_module%%", "() {  :\n}"),
    ("NOTIFY_SOCKET", "/host/notify"),
];

fn passed() -> BTreeMap<&'static str, Value> {
    CALLERS.iter().take(10).map(|(name, value)| (*name, json!(value))).collect()
}

fn with_callers(mut cmd: crate::fixture::Cmd) -> crate::fixture::Cmd {
    for (name, value) in CALLERS {
        cmd = cmd.env(name, value);
    }
    cmd
}

fn env_of(ctx: &Ctx, bundle: &Bundle, flags: &[&str]) -> BTreeMap<String, Value> {
    let out = with_callers(ctx.rt(["run"]).args(flags).arg(&bundle.dir)).ok();
    assert_eq!(out.stderr, "");
    out.line(0).as_object().unwrap().clone().into_iter().collect()
}

fn callers_environment_is_passed_where_asked_for(ctx: &Ctx) {
    for bundle in [pulled(ctx), in_place(pulled(ctx))] {
        let bundle = bundle.ops(&["env"]);
        let mut expected = passed();
        expected.insert("LANG", json!("of-image"));
        expected.insert("HOME", json!("/home"));
        expected.insert("PATH", json!("/usr/sbin:/usr/bin:/sbin:/bin"));
        let expected: BTreeMap<String, Value> =
            expected.into_iter().map(|(n, v)| (n.to_owned(), v)).collect();
        assert_eq!(env_of(ctx, &bundle, &[]), expected);
        // The command line's word is the last one, also about what is never passed.
        let env = env_of(ctx, &bundle, &["-e", "LANG", "-e", "TZ=CET", "-e", "TMPDIR", "--env=PATH=/x"]);
        let words = [("LANG", "of-caller"), ("TZ", "CET"), ("TMPDIR", "/host/tmp"), ("PATH", "/x")];
        for (name, value) in words {
            assert_eq!(env[name], value, "{name}");
        }
    }
    // What has run in place is removed by the next command.
    ctx.rt(["list", "-q"]).ok();
    let bundle = pulled(ctx).with("/annotations", json!({ "rt.environment": "all" }));
    ctx.rt(["run"]).arg(&bundle.dir).fails(&["rt.environment", "\"all\" is not \"caller\""]);
}

/// A variable that names a socket or a file of the host's comes along with what it names.
fn variables_name_what_is_there(ctx: &Ctx) {
    let home = ctx.mkdir("home");
    let (agent, cache) = (ctx.file("home/agent", ""), ctx.file("cache", ""));
    let text = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let (agent, cache) = (text(&agent), format!("FILE:{}", text(&cache)));
    let volume = |path: &str| format!("{path}:{path}");
    let names = |flags: &[&str]| {
        let bundle = pulled(ctx).mount("/tmp", "tmpfs", "tmpfs", &["mode=1777"]).ops(&["env"]);
        let run = ctx.rt(["run"]).args(flags).arg(&bundle.dir).env("HOME", &home);
        let run = run.env("SSH_AUTH_SOCK", &agent).env("KRB5CCNAME", &cache).env("XAUTHORITY", "relative");
        let env = run.ok().line(0);
        ["SSH_AUTH_SOCK", "KRB5CCNAME", "XAUTHORITY"].map(|name| env.get(name).is_some())
    };
    assert_eq!(names(&[]), [false, false, true]);
    assert_eq!(names(&["--home"]), [true, true, true]);
    assert_eq!(names(&["-v", &volume(&agent)]), [true, false, true]);
    assert_eq!(names(&["-v", &volume(ctx.path("cache").to_str().unwrap())]), [false, true, true]);
    assert_eq!(names(&["-v", &format!("{agent}:/elsewhere")]), [false, false, true]);
    assert_eq!(names(&["-e", "SSH_*", "-e", "KRB5CCNAME"]), [true, true, true]);
}

/// What is the caller's own, and nothing that a link leads to, that is somebody else's, or that another bind covers.
fn sockets_come_along_with_the_home(ctx: &Ctx) {
    let (home, place, elsewhere) = (ctx.mkdir("home"), ctx.mkdir("place"), ctx.mkdir("elsewhere"));
    let listen = |path: std::path::PathBuf| {
        let socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
        ctx.give(&path);
        (path, socket)
    };
    let (agent, _agent) = listen(place.join("agent"));
    std::os::unix::fs::symlink(&agent, place.join("link")).unwrap();
    std::os::unix::fs::symlink(&place, ctx.path("way")).unwrap();
    let run = |value: &std::path::Path, flags: &[&str]| {
        let name = value.display();
        let bundle = pulled(ctx).mount("/tmp", "tmpfs", "tmpfs", &["mode=1777"]);
        let bundle = bundle.ops(&["env", &format!("exists {name}"), &format!("lstat {name}")]);
        let out =
            ctx.rt(["run"]).args(flags).arg(&bundle.dir).env("HOME", &home).env("SSH_AUTH_SOCK", value).ok();
        ((out.line(0)["SSH_AUTH_SOCK"] == json!(name.to_string()), out.line(1) == json!(true)), out.line(2))
    };
    let (shown, found) = run(&agent, &["--home"]);
    assert_eq!((shown, &found["kind"]), ((true, true), &json!("socket")), "{found}");
    assert_eq!(run(&agent, &[]).0, (false, false));
    assert_eq!(run(&agent, &["--home", "--clear-env"]).0, (false, false));
    for path in
        [place.join("link"), ctx.path("way").join("agent"), place.join("../place/agent"), place.join("none")]
    {
        assert_eq!(run(&path, &["--home"]).0, (false, false), "{}", path.display());
    }
    let volume = format!("{}:{}", elsewhere.display(), place.display());
    assert_eq!(run(&agent, &["--home", "-v", &volume]).0, (false, false));
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0, "nothing is made there");
    if crate::client::Caller::tests_are_root() {
        let other = place.join("other");
        let _other = std::os::unix::net::UnixListener::bind(&other).unwrap();
        crate::sys::chown(&other, 4711, 4711).unwrap();
        assert_eq!(run(&other, &["--home"]).0, (false, false), "somebody else's");
        // A file system of his, which never answers.
        let served = ctx.mkdir("served");
        if let Some(server) = crate::sys::silent_fuse(&served, 4711, ",allow_other") {
            assert_eq!(shown_beside(ctx, &home, &served.join("agent")), json!(null));
            crate::sys::umount(served.to_str().unwrap(), libc::MNT_DETACH).unwrap();
            drop(server);
        }
    }
}

/// The socket of Wayland is in the caller's runtime directory, where the session has others, and rt its state: that directory is
/// not passed on, and the program is told of the socket by its path.
fn wayland_comes_along_with_the_home(ctx: &Ctx) {
    let (home, runtime) = (ctx.mkdir("home"), ctx.mkdir("runtime"));
    let socket = runtime.join("wayland-7");
    let _socket = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    ctx.give(&socket);
    let run = |value: &str, flags: &[&str]| {
        let bundle = pulled(ctx).mount("/tmp", "tmpfs", "tmpfs", &["mode=1777"]);
        let (exists, list) = (format!("exists {}", socket.display()), format!("ls {}", runtime.display()));
        let bundle = bundle.ops(&["env", &exists, &list]);
        let run = ctx.rt(["run"]).args(flags).arg(&bundle.dir).env("HOME", &home);
        let out = run.env("XDG_RUNTIME_DIR", &runtime).env("WAYLAND_DISPLAY", value).ok();
        let env = out.line(0);
        (env.get("WAYLAND_DISPLAY").cloned(), env.get("XDG_RUNTIME_DIR").cloned(), out.line(1), out.line(2))
    };
    let path = Some(json!(socket.to_str().unwrap()));
    let sockets = json!(["wayland-7"]);
    assert_eq!(run("wayland-7", &["--home"]), (path.clone(), None, json!(true), sockets.clone()));
    assert_eq!(run(socket.to_str().unwrap(), &["--home"]), (path.clone(), None, json!(true), sockets));
    for (value, flags) in
        [("wayland-7", &[][..]), ("none", &["--home"]), ("wayland-7", &["--home", "--clear-env"])]
    {
        let (display, directory, shown, _) = run(value, flags);
        assert_eq!((display, directory, shown), (None, None, json!(false)), "{value} {flags:?}");
    }
    // Words that would mean the directory, or lead out of it, are no names.
    for value in [".", "..", "", "../runtime/wayland-7"] {
        assert_eq!(run(value, &["--home"]).2, json!(false), "{value:?}");
    }
    // Whoever wants the whole directory says so. The state in it is hidden there as anywhere (trust.rs).
    let volume = format!("{0}:{0}", runtime.display());
    let (display, directory, shown, _) = run("wayland-7", &["-v", &volume, "-e", "XDG_RUNTIME_DIR"]);
    assert_eq!((display, directory, shown), (path, Some(json!(runtime.to_str().unwrap())), json!(true)));
}

/// X11's sockets are in a directory of /tmp, which is private inside. DISPLAY stays, since a server may listen elsewhere, too.
fn x11_comes_along_with_the_home(ctx: &Ctx) {
    let (home, number) = (ctx.mkdir("home"), std::process::id());
    let sockets = std::path::Path::new("/tmp/.X11-unix");
    let socket = sockets.join(format!("X{number}"));
    // The test of another caller may remove the directory.
    let _socket = crate::fixture::eventually("a socket of X11", || {
        let _ = fs::create_dir(sockets);
        std::os::unix::net::UnixListener::bind(&socket).ok()
    });
    ctx.give(&socket);
    let run = |value: &str, flags: &[&str]| {
        let bundle = pulled(ctx).mount("/tmp", "tmpfs", "tmpfs", &["mode=1777"]);
        let bundle = bundle.ops(&["env", &format!("exists {}", socket.display())]);
        let out = ctx.rt(["run"]).args(flags).arg(&bundle.dir).env("HOME", &home).env("DISPLAY", value).ok();
        assert_eq!(out.line(0)["DISPLAY"], json!(value));
        out.line(1) == json!(true)
    };
    for (value, flags, shown) in [
        (format!(":{number}"), &["--home"][..], true),
        (format!("unix:{number}.0"), &["--home"], true),
        (format!("localhost:{number}.0"), &["--home"], false),
        (format!(":{number}/../X{number}"), &["--home"], false),
        (format!(":{number}"), &[], false),
    ] {
        assert_eq!(run(&value, flags), shown, "{value} {flags:?}");
    }
    fs::remove_file(&socket).unwrap();
    let _ = fs::remove_dir(sockets);
}

/// SSH_AUTH_SOCK inside, where it is `value` outside.
fn shown_beside(ctx: &Ctx, home: &std::path::Path, value: &std::path::Path) -> Value {
    let bundle = pulled(ctx).ops(&["env"]);
    let out = ctx.rt(["run", "--home"]).arg(&bundle.dir).env("HOME", home).env("SSH_AUTH_SOCK", value).ok();
    out.line(0).get("SSH_AUTH_SOCK").cloned().unwrap_or_default()
}

/// A rank in a container of its own may not read the memory of another one, which MPI's libraries do not find out. The
/// variables that tell them are those of programs with a launcher alone, and below what anybody else says.
fn ranks_read_no_others_memory(ctx: &Ctx) {
    let bundle = pulled(ctx).ops(&["env"]);
    let env = |variables: &[(&str, &str)], flags: &[&str]| {
        let run = ctx.rt(["run"]).args(flags).arg(&bundle.dir);
        let run = variables.iter().fold(run, |run, (name, value)| run.env(name, value));
        run.ok().line(0).clone()
    };
    let none = "OMPI_MCA_btl_vader_single_copy_mechanism";
    // Real root's container has no user namespace of its own here: the kernel allows it there.
    let own = json!((ctx.caller != crate::client::Caller::Root).then_some("none"));
    assert_eq!(env(&[("PMIX_RANK", "0")], &[])[none], own);
    assert_eq!(env(&[("OMPI_COMM_WORLD_SIZE", "2"), (none, "knem")], &[])[none], "knem");
    assert_eq!(env(&[("PMI_RANK", "0")], &["-e", &format!("{none}=emulated")])[none], "emulated");
    assert_eq!(env(&[("OMP_NUM_THREADS", "2")], &[])[none], Value::Null);
}

fn nothing_is_passed_unasked(ctx: &Ctx) {
    let bundle = ctx.bundle().ops(&["env"]);
    let env = env_of(ctx, &bundle, &[]);
    assert_eq!(env.keys().collect::<Vec<_>>(), ["HOME", "PATH", "TERM"]);
    assert_eq!(env["TERM"], "xterm", "the config's");
}

fn clear_env_passes_nothing(ctx: &Ctx) {
    let bundle = pulled(ctx).ops(&["env"]);
    for flag in ["--clear-env", "--cleanenv"] {
        let env = env_of(ctx, &bundle, &[flag]);
        assert_eq!(env.keys().collect::<Vec<_>>(), ["HOME", "LANG", "PATH"]);
    }
    let env = env_of(ctx, &bundle, &["--clear-env", "-e", "TZ", "-e", "A=1"]);
    assert_eq!((&env["TZ"], &env["A"], env.len()), (&json!("UTC"), &json!("1"), 5));
}

fn patterns_take_what_matches(ctx: &Ctx) {
    let bundle = ctx.bundle().ops(&["env"]);
    let env = env_of(ctx, &bundle, &["-e", "SLURM_*", "-e", "PMI*", "-e", "NONE_*", "-e", "LD_LIB*"]);
    let names = ["HOME", "LD_LIBRARY_PATH", "PATH", "PMIX_SERVER_URI", "SLURM_PROCID", "TERM"];
    assert_eq!(env.keys().collect::<Vec<_>>(), names);
    // All that a container inherits.
    let env = env_of(ctx, &bundle, &["-e", "*"]);
    assert_eq!((&env["TZ"], &env["TERM"]), (&json!("UTC"), &json!("foot")));
    assert!(!env.contains_key("LD_LIBRARY_PATH") && env["PATH"] != "/host/bin");
}

fn env_files(ctx: &Ctx) {
    let bundle = ctx.bundle().ops(&["env"]);
    let file = ctx.file("variables", "# remark\nA=1\nB=\"x y\"\n\nTZ\nSLURM_*\nNOT_THERE\nC=3\n");
    let more = ctx.file("more", "A=2\n");
    let flags = ["--env-file", file.to_str().unwrap(), "-e", "C=4", "--env-file", more.to_str().unwrap()];
    let env = env_of(ctx, &bundle, &flags);
    let expected = [("A", "2"), ("B", "\"x y\""), ("C", "4"), ("TZ", "UTC"), ("SLURM_PROCID", "3")];
    for (name, value) in expected {
        assert_eq!(env[name], value, "{name}");
    }
    assert!(!env.contains_key("NOT_THERE"));
    // Relative to where the caller is, and for exec.
    let out = ctx.rt(["run", "--env-file", "more"]).arg(&bundle.dir).cwd(&ctx.dir).ok();
    assert_eq!(out.line(0)["A"], "2");
    let container = ctx.started(&ctx.bundle().ops(&["pause"]));
    let out = container.exec_with(&["--env-file", more.to_str().unwrap()], &["env"]).ok();
    assert_eq!(out.line(0)["A"], "2");
    container.end();
}

fn wrong_variables_are_refused(ctx: &Ctx) {
    let bundle = ctx.bundle();
    let file = ctx.file("wrong", "A=1\nB C=2\n");
    let run = |flags: &[&str]| ctx.rt(["run"]).args(flags).arg(&bundle.dir);
    run(&["--env-file", file.to_str().unwrap()]).fails(&["wrong", "line 2", "\"B C\""]);
    run(&["--env-file", "/not/there"]).fails(&["--env-file", "/not/there", "no such file"]);
    run(&["-e", "A*B"]).fails(&["A*B", "last character"]);
    run(&["-e", "=x"]).fails(&["no name"]);
    assert!(!ctx.state.exists(), "nothing was made");
}

fn terminal_has_a_type(ctx: &Ctx) {
    let bundle = ctx.bundle().with("/process/env", json!(["PATH=/bin"])).ops(&["env"]);
    let term = |flags: &[&str], bundle: &Bundle, callers: &str| {
        let run = ctx.rt(["run"]).args(flags).arg(&bundle.dir);
        let run = if callers.is_empty() { run } else { run.env("TERM", callers) };
        run.ok().line(0).get("TERM").cloned()
    };
    assert_eq!(term(&["-t"], &bundle, ""), Some(json!("xterm")));
    assert_eq!(term(&["-t"], &bundle, "foot"), Some(json!("xterm")), "nobody asks for the caller's");
    assert_eq!(term(&["-t", "-e", "TERM"], &bundle, "foot"), Some(json!("foot")));
    assert_eq!(term(&[], &bundle, "foot"), None);
    let pulled = pulled(ctx).ops(&["env"]);
    assert_eq!(term(&["-t"], &pulled, "foot"), Some(json!("foot")));
    assert_eq!(term(&["-t"], &pulled, ""), Some(json!("xterm")));
    assert_eq!(term(&[], &pulled, ""), None);
    // A program that is started with a terminal later.
    let container = ctx.started(&bundle.ops(&["pause"]));
    assert_eq!(container.exec_with(&["-t"], &["env"]).ok().line(0)["TERM"], "xterm");
    assert_eq!(container.exec_with(&["-t"], &["env"]).env("TERM", "foot").ok().line(0)["TERM"], "foot");
    assert!(container.exec_with(&[], &["env"]).env("TERM", "foot").ok().line(0).get("TERM").is_none());
    container.end();
}

fn create_and_slurm_pass_nothing(ctx: &Ctx) {
    let bundle = pulled(ctx).ops(&["env", "pause"]);
    let id = ctx.id();
    let cmd = ctx.rt(["create", "--bundle"]).arg(&bundle.dir).arg(&id);
    let out = cmd.out.clone();
    with_callers(cmd).silent();
    ctx.rt(["start", &id]).silent();
    let names = |text: &str| -> Vec<String> {
        let env: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        env.as_object().unwrap().keys().cloned().collect()
    };
    crate::fixture::eventually("its output", || {
        fs::read_to_string(&out).ok().filter(|t| t.lines().count() > 1)
    });
    assert_eq!(names(&fs::read_to_string(&out).unwrap()), ["HOME", "LANG", "PATH"]);
    ctx.rt(["delete", "--force", &id]).silent();
    let bundle = pulled(ctx).ops(&["env"]);
    let id = format!("{}.7.0.0", ctx.id());
    ctx.remember(&id);
    let run = ctx.rt(["slurm", "run", "--share=false", "--bundle"]).arg(&bundle.dir).arg(&id);
    assert_eq!(names(&with_callers(run).ok().stdout), ["HOME", "LANG", "PATH"]);
}

fn exec_keeps_the_containers(ctx: &Ctx) {
    let id = ctx.id();
    let bundle = pulled(ctx).ops(&["pause"]);
    let mut job = with_callers(ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(&id)).spawn();
    job.line(0);
    let out = ctx.rt(["exec", &id, "/probe", "env"]).env("TZ", "another").env("NEW", "1").ok();
    assert_eq!((&out.line(0)["TZ"], &out.line(0)["SLURM_PROCID"]), (&json!("UTC"), &json!("3")));
    assert!(out.line(0).get("NEW").is_none());
    let out = ctx.rt(["exec", "-e", "N*", &id, "/probe", "env"]).env("NEW", "1").ok();
    assert_eq!(out.line(0)["NEW"], "1");
    ctx.rt(["kill", &id, "TERM"]).silent();
    assert_eq!(job.wait().code, 0);
}

fn detached_runs_inherit_too(ctx: &Ctx) {
    let id = ctx.id();
    let run = ctx.rt(["run", "-d", "--bundle"]).arg(pulled(ctx).ops(&["pause"]).dir).arg(&id);
    with_callers(run).ok();
    let out = ctx.rt(["exec", &id, "/probe", "env"]).ok();
    assert_eq!(out.line(0)["SLURM_PROCID"], "3");
    ctx.rt(["delete", "--force", &id]).silent();
}

fn pmi_connection_is_kept(ctx: &Ctx) {
    // PMI2: srun passes the descriptor of a socket, and its number in a variable.
    let (socket, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
    let file = fs::File::open("/dev/null").unwrap();
    let steps = || [Step::Dup(std::os::fd::AsRawFd::as_raw_fd(&socket), 5)];
    for bundle in [pulled(ctx), in_place(pulled(ctx))] {
        let bundle = bundle.ops(&["fds"]);
        let fds = |value: &str| {
            let run = ctx.rt(["run"]).arg(&bundle.dir).env("PMI_FD", value).before(steps());
            run.ok().line(0)
        };
        let without = fds("99");
        assert!(!without.as_array().unwrap().contains(&json!(5)), "{without}");
        assert!(fds("5").as_array().unwrap().contains(&json!(5)));
        // No other file that the caller has left open.
        let run = ctx.rt(["run"]).arg(&bundle.dir).env("PMI_FD", "5");
        let out = run.before([Step::Dup(std::os::fd::AsRawFd::as_raw_fd(&file), 5)]).ok().line(0);
        assert!(!out.as_array().unwrap().contains(&json!(5)), "{out}");
    }
    ctx.rt(["list", "-q"]).ok();
    // What the image says is not the caller's word.
    let image = pulled(ctx).push("/process/env", json!("PMI_FD=5")).ops(&["fds"]);
    let out = ctx.rt(["run"]).arg(&image.dir).before(steps()).ok();
    assert!(!out.line(0).as_array().unwrap().contains(&json!(5)));
    let unasked = ctx.bundle().ops(&["fds"]);
    let out = ctx.rt(["run"]).arg(&unasked.dir).env("PMI_FD", "5").before(steps()).ok();
    assert!(!out.line(0).as_array().unwrap().contains(&json!(5)));
}

fn pmix_directory_is_shown(ctx: &Ctx) {
    let dir = ctx.mkdir("spool/pmix.1.0");
    ctx.give(&ctx.path("spool"));
    fs::write(dir.join("nspace"), "n").unwrap();
    let file = dir.join("nspace");
    let bundle = pulled(ctx).ops(&[&format!("cat {}", file.display())]);
    let before = bundle.tree();
    let run = |dir: &str| ctx.rt(["run"]).arg(&bundle.dir).env("PMIX_SERVER_TMPDIR", dir).ok().line(0);
    assert_eq!(run(dir.to_str().unwrap()), "n");
    for wrong in ["", "/not/there/x", "relative"] {
        assert_eq!(run(wrong), crate::fixture::errno(libc::ENOENT), "{wrong}");
    }
    assert_eq!(bundle.tree(), before);
}

fn bundle_of_the_host_inherits(ctx: &Ctx) {
    let dir = ctx.path("host-bundle");
    ctx.rt(["spec", "--host", "-b"]).arg(&dir).silent();
    let run = ctx.rt(["run", "--tty=false"]).arg(&dir).args(["--", "env"]);
    let out = with_callers(run).env("TERM", "foot").ok();
    for line in ["TERM=foot", "SLURM_PROCID=3", "HOME=/tmp"] {
        assert!(out.stdout.lines().any(|l| l == line), "{line}: {out:?}");
    }
}

/// A bundle of an image with an entrypoint that runs what follows it, as `rt pull` writes it.
fn with_entrypoint(ctx: &Ctx) -> Bundle {
    let entrypoint = ["/probe", "say entrypoint", "args"];
    let cmd = ["say cmd"];
    let annotations = json!({
        "rt.image.entrypoint": json!(entrypoint).to_string(),
        "rt.image.cmd": json!(cmd).to_string(),
    });
    let args: Vec<&str> = entrypoint.iter().chain(&cmd).copied().collect();
    ctx.bundle().with("/process/args", json!(args)).with("/annotations", annotations)
}

fn entrypoint_comes_before_the_arguments(ctx: &Ctx) {
    let bundle = with_entrypoint(ctx);
    let args = |out: crate::fixture::Out| out.line(1);
    let entrypoint = ["/probe", "say entrypoint", "args"];
    assert_eq!(args(ctx.rt(["run"]).arg(&bundle.dir).ok()), json!([&entrypoint[..], &["say cmd"]].concat()));
    let own = ["say mine", "say -t"];
    let expected = json!([&entrypoint[..], &own].concat());
    assert_eq!(args(ctx.rt(["run"]).arg(&bundle.dir).arg("--").args(own).ok()), expected);
    let id = ctx.id();
    assert_eq!(args(ctx.rt(["run", "-b"]).arg(&bundle.dir).arg(&id).arg("--").args(own).ok()), expected);
    // An image without an entrypoint.
    let plain = ctx.bundle().with("/annotations", json!({ "rt.image.cmd": "[\"sh\"]" }));
    let out = ctx.rt(["run"]).arg(&plain.dir).args(["--", "/probe", "say plain"]).ok();
    assert_eq!(out.line(0), "plain");
    // A task of Slurm has the whole command, with the entrypoint or without.
    let id = format!("{}.7.0.0", ctx.id());
    ctx.remember(&id);
    let run = ctx.rt(["slurm", "run", "--share=false", "--bundle"]).arg(&bundle.dir).arg(&id);
    assert_eq!(run.args(["--", "/probe", "say task"]).ok().line(0), "task");
}

fn entrypoint_is_replaced(ctx: &Ctx) {
    let bundle = with_entrypoint(ctx);
    let run = |flags: &[&str], args: &[&str]| {
        let run = ctx.rt(["run"]).args(flags).arg(&bundle.dir);
        let run = if args.is_empty() { run } else { run.arg("--").args(args) };
        run.ok().line(0)
    };
    assert_eq!(run(&["--entrypoint", "/probe"], &["args", "say x"]), json!(["/probe", "args", "say x"]));
    for none in [&["--entrypoint", ""][..], &["--entrypoint="]] {
        assert_eq!(run(none, &["/probe", "args"]), json!(["/probe", "args"]));
    }
    // The image's arguments belonged to its own entrypoint.
    let out = ctx.rt(["run", "--entrypoint", "/probe"]).arg(&bundle.dir).ok();
    assert_eq!(out.stdout, "");
}

fn wrong_entrypoints_are_refused(ctx: &Ctx) {
    let bundle = with_entrypoint(ctx);
    ctx.rt(["run", "--entrypoint="]).arg(&bundle.dir).fails(&["--entrypoint", "no program", "--"]);
    let broken = with_entrypoint(ctx).with("/annotations", json!({ "rt.image.entrypoint": "sh -c" }));
    ctx.rt(["run"]).arg(&broken.dir).args(["--", "x"]).fails(&["annotation rt.image.entrypoint"]);
    let out = ctx.rt(["run"]).arg(&broken.dir).ok();
    assert_eq!(out.line(0), "entrypoint", "nothing is asked of it");
}
