//! Terminals: --console-socket for clients, the relay of `run -t` and `exec -t` for people.

use crate::client::Caller;
use crate::fixture::{Bundle, Ctx, eventually};
use crate::runner::{skip, tests};
use crate::sys::{self, Step, c};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

tests! {
    ALL { console_socket_of_create, console_socket_of_exec, relay_of_run }
    BOTH {
        peer_accepts_after_create, program_has_the_terminal, console_size, terminal_without_socket_fails,
        socket_without_terminal, relay_of_exec, relay_resizes, relay_ends_input, relay_restores_the_terminal,
        relay_passes_exit_codes, flags_ask_for_a_terminal, relay_interrupts, process_file_decides_without_tty, relay_without_a_terminal,
        nobody_types_into_the_callers_terminal, job_control_in_place, large_output_is_complete, dev_console_is_the_terminal, bare_rootfs_gets_a_console, unreachable_socket_fails, hosts_dev_with_a_closed_ptmx,
        an_init_and_its_terminal, a_shell_says_that_one_is_inside, a_list_fits_the_terminal,
    }
}

/// A socket that a client listens on, and what arrives there.
struct Socket {
    listener: UnixListener,
    path: std::path::PathBuf,
}

impl Socket {
    fn new(ctx: &Ctx, name: &str) -> Socket {
        let path = ctx.path(name);
        let listener = UnixListener::bind(&path).expect("a socket");
        ctx.give(&path);
        Socket { listener, path }
    }

    /// What conmon and go-runc insist on: one message, some bytes, exactly one descriptor.
    fn receive(&self) -> File {
        let (stream, _) = self.listener.accept().expect("the runtime connects");
        let (bytes, mut fds) = sys::receive(stream.as_raw_fd()).expect("a message");
        assert!(!bytes.is_empty() && bytes.len() < 4096, "{} bytes of payload", bytes.len());
        assert_eq!(fds.len(), 1, "one descriptor");
        sys::nonblocking(stream.as_raw_fd());
        let (more, more_fds) = sys::receive(stream.as_raw_fd()).unwrap_or_default();
        assert!(more.is_empty() && more_fds.is_empty(), "one message only");
        let master = fds.remove(0);
        sys::nonblocking(master.as_raw_fd());
        File::from(master)
    }
}

/// The other side of a terminal, read in the test's own pace.
struct Screen {
    master: File,
    text: String,
}

impl Screen {
    fn new(master: impl Into<OwnedFd>) -> Screen {
        let master: OwnedFd = master.into();
        sys::nonblocking(master.as_raw_fd());
        Screen { master: File::from(master), text: String::new() }
    }

    fn read(&mut self) {
        let mut bytes = [0; 65536];
        while let Ok(n) = self.master.read(&mut bytes) {
            if n == 0 {
                break;
            }
            self.text.push_str(&String::from_utf8_lossy(&bytes[..n]));
        }
    }

    #[track_caller]
    fn wait_for(&mut self, what: &str) {
        let mut last = String::new();
        eventually(&format!("{what:?} on the terminal"), || {
            self.read();
            last.clone_from(&self.text);
            last.contains(what).then_some(())
        });
    }

    /// The first line of JSON that has `needle`.
    #[track_caller]
    fn json(&mut self, needle: &str) -> Value {
        eventually(&format!("a line with {needle:?} on the terminal"), || {
            self.read();
            let end = self.text.rfind('\n')?;
            let line = self.text[..end].lines().find(|l| l.contains(needle))?;
            // What was typed is echoed in front.
            serde_json::from_str(line[line.find('{')?..].trim_end_matches('\r')).ok()
        })
    }

    fn type_(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).expect("typing");
    }
}

fn with_terminal(ctx: &Ctx) -> Bundle {
    ctx.bundle().with("/process/terminal", json!(true))
}

fn console_socket_of_create(ctx: &Ctx) {
    let socket = Socket::new(ctx, "console.sock");
    let bundle = with_terminal(ctx).ops(&["tty 0", "readline", "exit 0"]);
    let container = ctx.create_with(&bundle, &["--console-socket", socket.path.to_str().unwrap()]);
    let mut screen = Screen::new(socket.receive());
    container.start();
    assert_eq!(screen.json("window")["tty"], true);
    screen.type_("typed\n");
    assert_eq!(screen.json("bytes")["text"], "typed\n");
    assert_eq!(container.reap(), 0);
    container.delete();
}

fn console_socket_of_exec(ctx: &Ctx) {
    let container = ctx.started(&ctx.bundle().ops(&["pause"]));
    let socket = Socket::new(ctx, "exec.sock");
    let pid_file = ctx.path("exec.pid");
    let out = ctx
        .rt(["exec", "--tty", "--detach", "--console-socket"])
        .arg(&socket.path)
        .arg("--pid-file")
        .arg(&pid_file)
        .args([&container.id, "/probe", "tty 0", "exit 3"])
        .run();
    assert_eq!((out.code, out.stdout.as_str(), out.stderr.as_str()), (0, "", ""));
    let mut screen = Screen::new(socket.receive());
    assert_eq!(screen.json("window")["tty"], true);
    let pid = std::fs::read_to_string(pid_file).unwrap().parse().unwrap();
    assert_eq!(eventually("its end", || sys::reap(pid).unwrap()), 3);
}

fn process_file_decides_without_tty(ctx: &Ctx) {
    // conmon 2.2.1 sends no --tty any more.
    let container = ctx.started(&ctx.bundle().ops(&["pause"]));
    let socket = Socket::new(ctx, "exec.sock");
    let process = json!({ "terminal": true, "args": ["/probe", "tty 0", "exit 0"], "cwd": "/",
        "env": [], "user": { "uid": 0, "gid": 0 } });
    let file = ctx.file("process.json", &process.to_string());
    let pid_file = ctx.path("exec.pid");
    let cmd = ctx.rt(["exec", "--detach", "--console-socket"]).arg(&socket.path).arg("--process").arg(&file);
    cmd.arg("--pid-file").arg(&pid_file).arg(&container.id).silent();
    let mut screen = Screen::new(socket.receive());
    assert_eq!(screen.json("window")["tty"], true);
    let pid = std::fs::read_to_string(pid_file).unwrap().parse().unwrap();
    assert_eq!(eventually("its end", || sys::reap(pid).unwrap()), 0);
}

fn peer_accepts_after_create(ctx: &Ctx) {
    // go-runc accepts only once create has exited: nothing may wait for an answer.
    let socket = Socket::new(ctx, "late.sock");
    let bundle = with_terminal(ctx).ops(&["tty 0", "exit 0"]);
    let container = ctx.create_with(&bundle, &["--console-socket", socket.path.to_str().unwrap()]);
    container.start();
    let mut screen = Screen::new(socket.receive());
    screen.json("window");
    assert_eq!(container.reap(), 0);
}

fn program_has_the_terminal(ctx: &Ctx) {
    let socket = Socket::new(ctx, "console.sock");
    let bundle =
        with_terminal(ctx).ops(&["tty 0", "tty 1", "tty 2", "stat /dev/tty", "open /dev/tty", "pid", "fds"]);
    let container = ctx.create_with(&bundle, &["--console-socket", socket.path.to_str().unwrap()]);
    let mut screen = Screen::new(socket.receive());
    container.start();
    let fds = {
        screen.wait_for("]\r\n");
        screen.text.lines().map(|l| serde_json::from_str::<Value>(l).expect("JSON")).collect::<Vec<_>>()
    };
    for line in &fds[..3] {
        assert_eq!(line["tty"], true, "{line}");
        // It is its controlling terminal, and it is in the foreground.
        assert_eq!(line["foreground"], fds[5]["pid"], "{line}");
        assert!(line["name"].as_str().unwrap().starts_with("/dev/pts/"), "{line}");
    }
    assert_eq!(fds[4], Value::Null, "a controlling terminal");
    assert_eq!(fds[6], json!([0, 1, 2]));
    container.reap();
}

fn console_size(ctx: &Ctx) {
    let socket = Socket::new(ctx, "console.sock");
    let bundle = with_terminal(ctx).with("/process/consoleSize", json!({ "height": 33, "width": 111 }));
    let container =
        ctx.create_with(&bundle.ops(&["tty 1"]), &["--console-socket", socket.path.to_str().unwrap()]);
    let mut screen = Screen::new(socket.receive());
    container.start();
    assert_eq!(screen.json("window")["window"], json!([33, 111]));
    container.reap();
}

fn dev_console_is_the_terminal(ctx: &Ctx) {
    let socket = Socket::new(ctx, "console.sock");
    let bundle = with_terminal(ctx).ops(&["stat /dev/console", "tty 0", "write /dev/console to-the-console"]);
    let container = ctx.create_with(&bundle, &["--console-socket", socket.path.to_str().unwrap()]);
    let mut screen = Screen::new(socket.receive());
    container.start();
    let console = screen.json("\"kind\"");
    // Unix98 pty slaves are major 136 to 143.
    assert_eq!((&console["kind"], &console["major"]), (&json!("char"), &json!(136)), "{console}");
    screen.wait_for("to-the-console");
    container.reap();
}

fn bare_rootfs_gets_a_console(ctx: &Ctx) {
    let socket = Socket::new(ctx, "console.sock");
    let bundle = ctx.bare_bundle().with("/process/terminal", json!(true)).with("/root/readonly", json!(true));
    let before = bundle.tree();
    let bundle = bundle.ops(&["tty 0", "stat /dev/console"]);
    let container = ctx.create_with(&bundle, &["--console-socket", socket.path.to_str().unwrap()]);
    let mut screen = Screen::new(socket.receive());
    container.start();
    assert_eq!(screen.json("\"kind\"")["kind"], "char");
    container.reap();
    container.delete();
    assert_eq!(bundle.tree(), before);
}

fn terminal_without_socket_fails(ctx: &Ctx) {
    let bundle = with_terminal(ctx);
    let create = ctx.rt(["create", "--bundle"]).arg(&bundle.dir).arg(ctx.id());
    create.fails(&["console"]);
    let detached = ctx.rt(["run", "--detach", "--bundle"]).arg(&bundle.dir).arg(ctx.id());
    detached.fails(&["console"]);
}

fn socket_without_terminal(ctx: &Ctx) {
    // runc: an error; crun: ignored. Either way nothing hangs and nothing is sent.
    let socket = Socket::new(ctx, "console.sock");
    let id = ctx.id();
    let out = ctx.rt(["create", "--console-socket"]).arg(&socket.path).arg("--bundle").arg(&ctx.bundle().dir);
    let out = out.arg(&id).run();
    if out.code != 0 {
        out.failed(&["console"]);
    }
    socket.listener.set_nonblocking(true).unwrap();
    if let Ok((stream, _)) = socket.listener.accept() {
        let (_, fds) = sys::receive(stream.as_raw_fd()).unwrap_or_default();
        assert!(fds.is_empty());
    }
}

fn unreachable_socket_fails(ctx: &Ctx) {
    let bundle = with_terminal(ctx);
    let id = ctx.id();
    let out = ctx.rt(["create", "--console-socket", "/not/there.sock", "--bundle"]).arg(&bundle.dir).arg(&id);
    out.fails(&["/not/there.sock"]);
    ctx.rt(["state", &id]).fails(&["does not exist"]);
}

/// Runs `args` of rt on a terminal of the test, as a person's shell does.
struct Session {
    screen: Screen,
    slave: OwnedFd,
    job: crate::fixture::Job,
}

impl Session {
    fn new(ctx: &Ctx, args: &[&str]) -> Session {
        Session::of(ctx.rt(args))
    }

    fn of(command: crate::fixture::Cmd) -> Session {
        let (master, slave) = sys::openpty().expect("a terminal");
        sys::set_window(master.as_raw_fd(), 24, 80).unwrap();
        let fd = slave.as_raw_fd();
        // After the runtime's own stdio was set up by std.
        let steps = [Step::Dup(fd, 0), Step::Dup(fd, 1), Step::Dup(fd, 2), Step::Terminal(0)];
        let job = command.before(steps).spawn();
        Session { screen: Screen::new(master), slave, job }
    }

    /// The exit code; the terminal must be as it was.
    fn end(self) -> (i32, String) {
        let mut screen = self.screen;
        let mut job = self.job;
        let status = eventually("the end", || {
            screen.read();
            job.child.try_wait().unwrap()
        });
        screen.read();
        let flags = sys::local_flags(self.slave.as_raw_fd()).unwrap();
        assert_eq!(
            flags & (libc::ICANON | libc::ECHO),
            libc::ICANON | libc::ECHO,
            "the terminal is left raw"
        );
        (sys::exit_code(std::os::unix::process::ExitStatusExt::into_raw(status)), screen.text)
    }
}

fn relay_of_run(ctx: &Ctx) {
    let id = ctx.id();
    let bundle = with_terminal(ctx).ops(&["tty 0", "readline", "exit 3"]);
    let mut session = Session::new(ctx, &["run", "--bundle", bundle.dir.to_str().unwrap(), &id]);
    let tty = session.screen.json("window");
    assert_eq!((&tty["tty"], &tty["window"]), (&json!(true), &json!([24, 80])), "{tty}");
    session.screen.type_("hello\r");
    assert_eq!(session.screen.json("bytes")["text"], "hello\n");
    let (code, text) = session.end();
    assert_eq!(code, 3);
    // Raw outside: the container's terminal echoes, once.
    assert_eq!(text.matches("hello\r\n").count(), 1, "{text:?}");
}

fn relay_of_exec(ctx: &Ctx) {
    let container = ctx.started(&ctx.bundle().ops(&["pause"]));
    let mut session =
        Session::new(ctx, &["exec", "-t", &container.id, "/probe", "tty 0", "readline", "exit 4"]);
    let tty = session.screen.json("window");
    assert_eq!((&tty["tty"], &tty["window"]), (&json!(true), &json!([24, 80])));
    session.screen.type_("x\r");
    assert_eq!(session.screen.json("bytes")["text"], "x\n");
    assert_eq!(session.end().0, 4);
}

/// The prompt of a shell of the host's userland, and of none that runs a script.
fn a_shell_says_that_one_is_inside(ctx: &Ctx) {
    let dir = ctx.mkdir("shell");
    ctx.give(&dir);
    ctx.rt(["spec", "--host", "-b"]).arg(&dir).silent();
    let path = dir.join("config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    config["annotations"]["rt.image.name"] = json!("registry.example/team/tool:1.2");
    std::fs::write(&path, config.to_string()).unwrap();
    let dir = dir.to_str().unwrap();
    let seen = |words: &[&str]| {
        let mut session = Session::new(ctx, &[&["run", "-e", "A=b"], words].concat());
        session.screen.type_("exit\r");
        session.end().1
    };
    let said = seen(&[dir, "sh"]);
    assert!(said.contains("rt:tool$ "), "{said:?}");
    let said = seen(&["-e", "PS1=own> ", dir, "sh", "-i"]);
    assert!(said.contains("own> ") && !said.contains("rt:tool"), "{said:?}");
    let said = seen(&[dir, "sh", "-c", "env"]);
    assert!(said.contains("A=b") && !said.contains("PS1") && !said.contains("chroot"), "{said:?}");
    let said = ctx.rt(["run", "-e", "A=b", dir, "sh"]).input("env\n").ok().stdout;
    assert!(said.contains("A=b") && !said.contains("PS1") && !said.contains("chroot"), "{said:?}");
}

/// A person reads the image's name and the owner's; the whole paths are runc's, for programs.
fn a_list_fits_the_terminal(ctx: &Ctx) {
    let name = format!("registry.example/{}/tool:1.2", "team".repeat(20));
    let bundle = ctx.bundle().with("/annotations", json!({ "rt.image.name": name }));
    bundle.write();
    ctx.rt(["create", "--bundle"]).arg(&bundle.dir).arg("tool-7").silent();
    let (code, text) = Session::new(ctx, &["list"]).end();
    assert_eq!(code, 0, "{text}");
    let lines: Vec<_> = text.lines().map(str::trim_end).collect();
    let words: Vec<_> = lines[0].split_whitespace().collect();
    assert_eq!(words, ["ID", "PID", "STATUS", "IMAGE", "CREATED", "OWNER"]);
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{text}");
    let row = lines.iter().find(|line| line.starts_with("tool-7")).expect("the container");
    assert!(row.contains("  created  ...") && row.contains("/tool:1.2  "), "{row}");
    let owner = match ctx.caller {
        Caller::Root | Caller::Nested => "root",
        _ => row.split_whitespace().last().unwrap(),
    };
    assert!(row.ends_with(owner) && !row.contains('#'), "{row}");
    let (_, table) = Session::new(ctx, &["list", "-f", "table"]).end();
    assert!(table.contains("BUNDLE") && table.contains(bundle.dir.to_str().unwrap()), "{table}");
    ctx.rt(["delete", "--force", "tool-7"]).silent();
}

fn an_init_and_its_terminal(ctx: &Ctx) {
    let bundle = with_terminal(ctx).with("/annotations", json!({ "rt.init": "true" }));
    // ^C ends a program that has no handler, and ^Z does nothing, since nobody could have it go on.
    let bundle = bundle.ops(&["tty 0", "pid", "readline", "sleep 60000"]);
    let mut session = Session::new(ctx, &["run", "--bundle", bundle.dir.to_str().unwrap(), &ctx.id()]);
    assert_eq!(session.screen.json("window")["foreground"], 2, "the program's process group");
    session.screen.type_("\u{1a}");
    session.screen.wait_for("^Z");
    session.screen.type_("on\r");
    assert_eq!(session.screen.json("bytes")["text"], "on\n");
    session.screen.type_("\u{3}");
    assert_eq!(session.end().0, 130);
    // A program with a handler gets one signal, not a second one by way of its init.
    let bundle = bundle.ops(&["signals"]);
    let mut session = Session::new(ctx, &["run", "--bundle", bundle.dir.to_str().unwrap(), &ctx.id()]);
    session.screen.wait_for("ready");
    session.screen.type_("\u{3}");
    session.screen.wait_for("\"signal\":2");
    sys::kill(session.job.pid(), libc::SIGTERM).unwrap();
    let (code, text) = session.end();
    assert_eq!((code, text.matches("\"signal\":2").count()), (7, 1), "{text:?}");
}

/// What is done before a command of the caller, so that it sees a /dev whose devpts nobody may open ptmx of.
fn closed_ptmx() -> Vec<Step> {
    if Caller::tests_are_root() {
        return vec![
            Step::Unshare(libc::CLONE_NEWNS),
            Step::Mount(c("none"), c("/"), c(""), libc::MS_REC | libc::MS_PRIVATE, c("")),
            Step::Mount(c("devpts"), c("/dev/pts"), c("devpts"), 0, c("mode=600,ptmxmode=000")),
        ];
    }
    let mode = std::fs::metadata("/dev/pts/ptmx").map_or(0o666, |m| m.permissions().mode());
    if mode & 0o777 != 0 {
        skip!("only root can mount another devpts");
    }
    Vec::new()
}

fn hosts_dev_with_a_closed_ptmx(ctx: &Ctx) {
    // The kernel gives ptmx of a devpts the mode 000 unless the mount says otherwise. The host's programs use the node
    // beside it.
    let bundle =
        ["/dev/pts", "/dev/shm", "/dev"].iter().fold(with_terminal(ctx), |b, at| b.without_mount(at));
    let bundle = bundle.mount("/dev", "bind", "/dev", &["rbind", "nosuid"]);
    let bundle = bundle.ops(&["tty 0", "stat /dev/console", "readline", "exit 3"]);
    let id = ctx.id();
    let mut run =
        Session::of(ctx.rt(["run", "--bundle", bundle.dir.to_str().unwrap(), &id]).before(closed_ptmx()));
    let tty = run.screen.json("window");
    assert_eq!((&tty["tty"], &tty["window"]), (&json!(true), &json!([24, 80])), "{tty}");
    assert!(tty["name"].as_str().unwrap().starts_with("/dev/pts/"), "{tty}");
    assert_eq!(run.screen.json("\"kind\"")["major"], 136);
    let mut exec = Session::new(ctx, &["exec", "-t", &id, "/probe", "tty 0", "readline", "exit 4"]);
    let tty = exec.screen.json("window");
    assert_eq!((&tty["tty"], &tty["window"]), (&json!(true), &json!([24, 80])), "{tty}");
    exec.screen.type_("x\r");
    assert_eq!(exec.screen.json("bytes")["text"], "x\n");
    assert_eq!(exec.end().0, 4);
    run.screen.type_("x\r");
    assert_eq!(run.end().0, 3);
}

fn relay_resizes(ctx: &Ctx) {
    let bundle = with_terminal(ctx).ops(&["tty 0", "readline", "tty 0"]);
    let mut session = Session::new(ctx, &["run", "--bundle", bundle.dir.to_str().unwrap(), &ctx.id()]);
    session.screen.wait_for("[24,80]");
    sys::set_window(session.screen.master.as_raw_fd(), 50, 132).unwrap();
    // SIGWINCH reaches the relay on its own time: ask until the new size is there.
    let (job, slave) = (session.job.pid(), session.slave.as_raw_fd());
    assert_eq!(sys::window(slave).unwrap(), (50, 132));
    let _ = sys::kill(job, libc::SIGWINCH);
    let inner =
        eventually("the container's process", || crate::fixture::children(job as u32).first().copied());
    eventually("the new size inside", || {
        let tty = std::fs::OpenOptions::new()
            .read(true)
            .custom_flags_noctty()
            .open(format!("/proc/{inner}/fd/0"))
            .ok()?;
        (sys::window(tty.as_raw_fd()).ok()? == (50, 132)).then_some(())
    });
    session.screen.type_("\r");
    session.screen.wait_for("[50,132]");
    assert_eq!(session.end().0, 0);
}

trait NoControllingTerminal {
    fn custom_flags_noctty(&mut self) -> &mut Self;
}

impl NoControllingTerminal for std::fs::OpenOptions {
    fn custom_flags_noctty(&mut self) -> &mut Self {
        std::os::unix::fs::OpenOptionsExt::custom_flags(self, libc::O_NOCTTY | libc::O_NONBLOCK)
    }
}

fn relay_ends_input(ctx: &Ctx) {
    let bundle = with_terminal(ctx).ops(&["ready", "readall", "exit 5"]);
    let mut session = Session::new(ctx, &["run", "--bundle", bundle.dir.to_str().unwrap(), &ctx.id()]);
    session.screen.wait_for("ready");
    session.screen.type_("line\r\u{4}");
    assert_eq!(session.screen.json("bytes")["text"], "line\n");
    assert_eq!(session.end().0, 5);
}

fn relay_restores_the_terminal(ctx: &Ctx) {
    // Also where the container cannot be made, and where it dies of a signal.
    let bundle = with_terminal(ctx).with("/process/args", json!(["/not/there"]));
    let session = Session::new(ctx, &["run", "--bundle", bundle.dir.to_str().unwrap(), &ctx.id()]);
    let (code, text) = session.end();
    assert_eq!(code, 1, "{text:?}");
    assert!(text.contains("no such file or directory"), "{text:?}");
    let id = ctx.id();
    let bundle = bundle.ops(&["deaf"]);
    let mut session = Session::new(ctx, &["run", "--bundle", bundle.dir.to_str().unwrap(), &id]);
    session.screen.wait_for("ready");
    ctx.rt(["kill", &id, "KILL"]).silent();
    assert_eq!(session.end().0, 137);
}

fn relay_passes_exit_codes(ctx: &Ctx) {
    for code in [0, 9, 255] {
        let bundle = with_terminal(ctx).ops(&[&format!("exit {code}")]);
        let session = Session::new(ctx, &["run", "--bundle", bundle.dir.to_str().unwrap(), &ctx.id()]);
        assert_eq!(session.end().0, code);
    }
}

fn flags_ask_for_a_terminal(ctx: &Ctx) {
    // The config says no, the command line says yes; and the other way round.
    let bundle = ctx.bundle().ops(&["tty 0", "exit 8"]);
    for flags in ["-t", "-it", "--tty"] {
        let mut session = Session::new(ctx, &["run", flags, bundle.dir.to_str().unwrap()]);
        assert_eq!(session.screen.json("window")["tty"], true, "{flags}");
        assert_eq!(session.end().0, 8);
    }
    let bundle = with_terminal(ctx).ops(&["tty 0", "exit 8"]);
    let out = ctx.rt(["run", "--tty=false"]).arg(&bundle.dir).run();
    assert_eq!((out.code, &out.line(0)["tty"]), (8, &json!(false)));
}

fn relay_interrupts(ctx: &Ctx) {
    // ^C is the container's business: its terminal turns it into SIGINT.
    let bundle = with_terminal(ctx).ops(&["signals"]);
    let mut session = Session::new(ctx, &["run", "--bundle", bundle.dir.to_str().unwrap(), &ctx.id()]);
    session.screen.wait_for("ready");
    session.screen.type_("\u{3}");
    assert_eq!(session.screen.json("\"signal\":")["signal"], libc::SIGINT);
    sys::kill(session.job.pid(), libc::SIGTERM).unwrap();
    assert_eq!(session.end().0, 7);
}

fn relay_without_a_terminal(ctx: &Ctx) {
    // -t where stdin is no terminal: the container still gets one, output arrives, and it ends.
    let bundle = with_terminal(ctx).ops(&["tty 1", "exit 2"]);
    let out = ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(ctx.id()).run();
    if out.code == 2 {
        assert!(out.stdout.contains("\"tty\":true"), "{out:?}");
        assert!(!out.stdout.contains('\r'), "lines end as the program wrote them: {out:?}");
    } else {
        out.failed(&["terminal"]);
    }
}

fn large_output_is_complete(ctx: &Ctx) {
    let bundle = with_terminal(ctx);
    let text = "x".repeat(4000);
    bundle.file("big", &format!("{text}\n").repeat(100));
    let bundle = bundle.ops(&["cat /big", "exit 0"]);
    let session = Session::new(ctx, &["run", "--bundle", bundle.dir.to_str().unwrap(), &ctx.id()]);
    let (code, output) = session.end();
    assert_eq!(code, 0);
    assert_eq!(output.matches('x').count(), 400_000, "nothing is lost at the end");
}

fn nobody_types_into_the_callers_terminal(ctx: &Ctx) {
    let injected = |session: Session| -> Value {
        let mut session = session;
        let seen = session.screen.json("inject")["inject"].clone();
        let (code, text) = session.end();
        assert_eq!(code, 0, "{text}");
        assert!(!text.contains('#'), "typed into the caller's terminal: {text:?}");
        seen
    };
    let eperm = json!([[1, 1, 1], [1, 1, 1]]);
    let filter = json!({ "defaultAction": "SCMP_ACT_ALLOW", "architectures": ["SCMP_ARCH_X86_64"], "syscalls": [
        { "names": ["chmod", "seccomp"], "action": "SCMP_ACT_ERRNO" } ] });
    for no_new_privs in [false, true] {
        for seccomp in [json!(null), filter.clone()] {
            let bundle = ctx.bundle().without_namespace("pid");
            let bundle = bundle.with("/process/noNewPrivileges", json!(no_new_privs));
            let bundle = bundle.with("/linux/seccomp", seccomp.clone());
            let dir = bundle.dir.to_str().unwrap().to_owned();
            let bundle = bundle.ops(&["inject"]);
            let in_place = Session::new(ctx, &["run", "--bundle", &dir, &ctx.id()]);
            assert_eq!(injected(in_place), eperm, "run in place, {no_new_privs} {seccomp}");
            let container = ctx.started(&bundle.ops(&["pause"]));
            let exec = Session::new(ctx, &["exec", &container.id, "/probe", "inject"]);
            assert_eq!(injected(exec), eperm, "exec, {no_new_privs} {seccomp}");
            ctx.rt(["delete", "--force", &container.id]).silent();
        }
    }
    // A session of its own needs no filter: its terminal is not this one, or is its own.
    let bundle = ctx.bundle().ops(&["inject", "status"]);
    let mut session = Session::new(ctx, &["run", "--bundle", bundle.dir.to_str().unwrap(), &ctx.id()]);
    assert_eq!(session.screen.json("Seccomp")["Seccomp"], "0");
    assert!(!session.end().1.contains('#'));
    let bundle = ctx.bundle().without_namespace("pid").ops(&["status"]);
    let out = ctx.run(&bundle);
    assert_eq!(out.json()["Seccomp"], "0", "without a terminal there is nothing to protect");
}

fn job_control_in_place(ctx: &Ctx) {
    job_control(ctx, "");
    // Here the runtime stays beside the program, to say what is lost.
    job_control(ctx, "--as-root");
}

fn job_control(ctx: &Ctx, flags: &str) {
    let bundle = ctx.bundle().without_namespace("pid").with("/root/readonly", json!(true));
    let bundle = bundle.ops(&["say ready", "pause"]);
    let mut shell = Session::of(ctx.command("/bin/sh").args(["-i"]));
    let rt = format!("{} --root {}", ctx.rt_path().display(), ctx.state.display());
    let id = ctx.id();
    shell.screen.type_(&format!("{rt} run {flags} --bundle {} {id}\n", bundle.dir.display()));
    shell.screen.wait_for("\"ready\"");
    shell.screen.type_("\x1a");
    shell.screen.wait_for("Stopped");
    let foreground = |shell: &Session| sys::foreground(shell.screen.master.as_raw_fd()).unwrap();
    let own = foreground(&shell);
    shell.screen.type_("fg\n");
    eventually("the program in the foreground again", || {
        shell.screen.read();
        (foreground(&shell) != own).then_some(())
    });
    shell.screen.type_("\x03");
    shell.screen.type_("echo interrupted=$?\n");
    shell.screen.wait_for("interrupted=130");
    shell.screen.type_("exit 7\n");
    assert_eq!(shell.end().0, 7);
    ctx.rt(["delete", "--force", &id]).run();
}
