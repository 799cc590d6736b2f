//! Tests: what callers type, read by the parser with rt's table.

use super::PROGRAM;
use super::table::*;
use rt_cli::parse::{Flags, Request, call, globals};
use rt_sys::error::Result;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// Parses `line`, split at blanks, and prints it: the command, its flags, operands and rest.
/// Global flags come first.
fn parse(line: &str) -> Result<String> {
    let words: Vec<OsString> = line.split(' ').filter(|w| !w.is_empty()).map(OsString::from).collect();
    let mut flags = Flags::default();
    let (command, words) = match globals(&PROGRAM, &words, &mut flags)? {
        Request::Command(command, words) => (command, words),
        other => return Ok(format!("{other:?}")),
    };
    let Some(call) = call(command, flags, words)? else { return Ok(format!("help {}", command.name)) };
    let mut out = String::new();
    let print = |out: &mut String, flags: &Flags| {
        for (flag, value) in flags.iter() {
            *out += &format!("{}={} ", flag.long, value.to_str().unwrap());
        }
    };
    print(&mut out, &call.globals);
    out += &format!("{}: ", command.name);
    print(&mut out, &call.flags);
    out += &format!("{:?} {:?}", call.operands, call.rest);
    Ok(out)
}

#[test]
fn real_callers() {
    // Every command line of the table "The contract in one page" of the clients' survey.
    for (line, read) in [
        // podman through conmon
        (
            "--log-format=json --log /l --cgroup-manager disabled create --bundle /b --pid-file /p --no-pivot \
             --no-new-keyring --preserve-fds 2 --console-socket /s c1",
            r#"log-format=json log=/l cgroup-manager=disabled create: bundle=/b pid-file=/p no-pivot=true no-new-keyring=true preserve-fds=2 console-socket=/s ["c1"] []"#,
        ),
        ("create --bundle /b --pid-file /p c1", r#"create: bundle=/b pid-file=/p ["c1"] []"#),
        // conmon exec, before and since 2.2.1
        (
            "--log /l --log-format=json exec --pid-file /p --process /f --detach --tty --preserve-fds 1 \
             --console-socket /s c1",
            r#"log=/l log-format=json exec: pid-file=/p process=/f detach=true tty=true preserve-fds=1 console-socket=/s ["c1"] []"#,
        ),
        (
            "exec --pid-file /p --process /f --detach c1",
            r#"exec: pid-file=/p process=/f detach=true ["c1"] []"#,
        ),
        // podman
        ("start c1", r#"start: ["c1"] []"#),
        ("kill c1 15", r#"kill: ["c1", "15"] []"#),
        ("kill --all c1 9", r#"kill: all=true ["c1", "9"] []"#),
        ("delete --force c1", r#"delete: force=true ["c1"] []"#),
        ("pause c1", r#"pause: ["c1"] []"#),
        ("resume c1", r#"resume: ["c1"] []"#),
        ("state c1", r#"state: ["c1"] []"#),
        ("update --resources=/f c1", r#"update: resources=/f ["c1"] []"#),
        ("--version", "Version"),
        (
            "--debug --cgroup-manager=cgroupfs state c1",
            r#"debug=true cgroup-manager=cgroupfs state: ["c1"] []"#,
        ),
        ("--systemd-cgroup create -b /b c1", r#"systemd-cgroup=true create: bundle=/b ["c1"] []"#),
        // buildah
        (
            "create --bundle /b --pid-file /p --no-pivot --no-new-keyring --console-socket /s c1",
            r#"create: bundle=/b pid-file=/p no-pivot=true no-new-keyring=true console-socket=/s ["c1"] []"#,
        ),
        ("kill c1", r#"kill: ["c1"] []"#),
        ("kill c1 SIGKILL", r#"kill: ["c1", "SIGKILL"] []"#),
        ("delete c1", r#"delete: ["c1"] []"#),
        // containerd's shim, docker, nerdctl
        (
            "--root /r/ns --log /b/log.json --log-format json --systemd-cgroup create --bundle /b \
             --pid-file /b/init.pid --console-socket /s --no-pivot --no-new-keyring c1",
            r#"root=/r/ns log=/b/log.json log-format=json systemd-cgroup=true create: bundle=/b pid-file=/b/init.pid console-socket=/s no-pivot=true no-new-keyring=true ["c1"] []"#,
        ),
        (
            "--root /r exec --process /f --console-socket /s --detach --pid-file /p c1",
            r#"root=/r exec: process=/f console-socket=/s detach=true pid-file=/p ["c1"] []"#,
        ),
        ("ps --format json c1", r#"ps: format=json ["c1"] []"#),
        ("update --resources - c1", r#"update: resources=- ["c1"] []"#),
        ("update --resources=- c1", r#"update: resources=- ["c1"] []"#),
        ("features", "features: [] []"),
        (
            "create --pidfd-socket /s -no-subreaper c1",
            r#"create: pidfd-socket=/s no-subreaper=true ["c1"] []"#,
        ),
        // CRI-O
        ("--root=/r --systemd-cgroup state c1", r#"root=/r systemd-cgroup=true state: ["c1"] []"#),
        ("kill c1 KILL", r#"kill: ["c1", "KILL"] []"#),
        ("--root /r exec --process /f c1", r#"root=/r exec: process=/f ["c1"] []"#),
        // conmon-rs repeats its global options
        (
            "--root=/r --root=/r --systemd-cgroup --systemd-cgroup create --bundle /b --pid-file /p \
             --console-socket=/s c1",
            r#"root=/r root=/r systemd-cgroup=true systemd-cgroup=true create: bundle=/b pid-file=/p console-socket=/s ["c1"] []"#,
        ),
        (
            "exec -d --console-socket=/s --tty --pid-file=/p c1 sh -c true",
            r#"exec: detach=true console-socket=/s tty=true pid-file=/p ["c1"] ["sh", "-c", "true"]"#,
        ),
        // Slurm's oci.conf
        ("run --bundle /b n.u.1.0.0", r#"run: bundle=/b ["n.u.1.0.0"] []"#),
    ] {
        assert_eq!(parse(line).unwrap(), read, "{line}");
    }
}

#[test]
fn every_way_to_write_a_flag() {
    for (line, read) in [
        ("run -b /b c1", r#"run: bundle=/b ["c1"] []"#),
        ("run -b/b c1", r#"run: bundle=/b ["c1"] []"#),
        ("run -b=/b c1", r#"run: bundle=/b ["c1"] []"#),
        ("run -bundle /b c1", r#"run: bundle=/b ["c1"] []"#),
        ("run -bundle=/b c1", r#"run: bundle=/b ["c1"] []"#),
        ("-root /r create c1 -b /b", r#"root=/r create: bundle=/b ["c1"] []"#),
        ("run -it c1", r#"run: interactive=true tty=true ["c1"] []"#),
        ("run -itb /b c1", r#"run: interactive=true tty=true bundle=/b ["c1"] []"#),
        ("run -itb/b c1", r#"run: interactive=true tty=true bundle=/b ["c1"] []"#),
        ("run --tty=false -t=true c1", r#"run: tty=false tty=true ["c1"] []"#),
        ("run --env A=1 -eB=2 -e C c1", r#"run: env=A=1 env=B=2 env=C ["c1"] []"#),
        ("run --env=A=1 c1", r#"run: env=A=1 ["c1"] []"#),
        ("run --workdir /w c1", r#"run: cwd=/w ["c1"] []"#),
        ("run --bundle= c1", r#"run: bundle= ["c1"] []"#),
        ("run ./b -- sh -c true --", r#"run: ["./b"] ["sh", "-c", "true", "--"]"#),
        ("run -t ./b sh -t -- x", r#"run: tty=true ["./b"] ["sh", "-t", "--", "x"]"#),
        ("run -- ./b -- sh", r#"run: ["./b"] ["sh"]"#),
        ("kill c1 -a", r#"kill: all=true ["c1"] []"#),
        ("kill c1 9 -a", r#"kill: all=true ["c1", "9"] []"#),
        ("kill -- c1 -a", r#"kill: ["c1", "-a"] []"#),
        ("exec c1 echo -l --zz", r#"exec: ["c1"] ["echo", "-l", "--zz"]"#),
        ("exec c1 -- -x --", r#"exec: ["c1"] ["-x", "--"]"#),
        ("exec -- c1 -x", r#"exec: ["c1"] ["-x"]"#),
        ("ps c1 -aux", r#"ps: ["c1"] ["-aux"]"#),
        ("ps -f json c1", r#"ps: format=json ["c1"] []"#),
        ("list -qf json", "list: quiet=true format=json [] []"),
        ("pull --help x", "help pull"),
        ("run -q x y -q", r#"run: quiet=true ["x"] ["y", "-q"]"#),
        ("pull -q x y", r#"pull: quiet=true ["x", "y"] []"#),
        ("state -", r#"state: ["-"] []"#),
        ("kill --help", "help kill"),
        ("create c1 -h", "help create"),
        ("-h", "Help(None)"),
        ("--debug --help=false", "Nothing"),
        ("-v", "Version"),
        ("", "Nothing"),
    ] {
        assert_eq!(parse(line).unwrap(), read, "{line}");
    }
}

#[test]
fn what_is_wrong_is_said() {
    for (line, error) in [
        ("strat c1", r#"unknown command "strat"; did you mean start?"#),
        ("help lst", r#"unknown command "lst"; did you mean list?"#),
        ("generat", r#"unknown command "generat" (rt --help lists the commands)"#),
        ("--foo state c1", "unknown flag --foo"),
        ("--rot /r state c1", "unknown flag --rot; did you mean --root?"),
        ("state --foo=1 c1", "unknown flag --foo"),
        ("delete --froce c1", "unknown flag --froce; did you mean --force?"),
        ("run --bunle=/b c1", "unknown flag --bunle; did you mean --bundle?"),
        ("state -x c1", "unknown flag -x"),
        ("run -itx c1", "unknown flag -x in -itx"),
        ("state -=x c1", "unknown flag -"),
        ("state --root /r c1", "flag --root must come before the command"),
        ("state -root=/r c1", "flag -root must come before the command"),
        ("state -v c1", "flag -v must come before the command"),
        ("--detach run c1", "flag --detach must come after the command"),
        ("-b /b run c1", "flag -b must come after the command"),
        ("--root", "flag --root needs a value"),
        ("create c1 -b", "flag -b needs a value"),
        ("create c1 -bundle", "flag -bundle needs a value"),
        ("run -itb", "flag -b needs a value"),
        ("delete --force=maybe c1", r#"invalid value "maybe" for flag --force: it takes true or false"#),
        ("slurm", "missing operand; usage: rt slurm FORM"),
        ("slurm state", "missing operand; usage: rt slurm state ID"),
        ("slurm kill a b c", r#"extra operand "c"; usage: rt slurm kill ID [SIGNAL]"#),
        ("slurm end x", r#"extra operand "x"; usage: rt slurm end"#),
        ("slurm stat x", r#"slurm: unknown command "stat"; did you mean state?"#),
        ("slurm state --force x", "unknown flag --force"),
        ("state", "missing operand; usage: rt state ID"),
        ("run", "missing operand; usage: rt run IMAGE|BUNDLE [ARGS...], or rt run [-b BUNDLE] ID [ARGS...]"),
        ("state c1 c2", r#"extra operand "c2"; usage: rt state ID"#),
        ("list c1", r#"extra operand "c1"; usage: rt list"#),
    ] {
        assert_eq!(parse(line).unwrap_err().to_string(), error, "{line}");
    }
    let text = parse("slurm run a b").unwrap_err().to_string();
    assert!(text.ends_with(" (the program's arguments come after --)"), "{text}");
}

#[test]
fn the_last_one_wins_and_bytes_survive() {
    let path = OsString::from_vec(b"/b\xff".to_vec());
    let mut long = OsString::from("--pid-file=");
    long.push(&path);
    let words =
        ["--bundle", "/a", "-b"].map(OsString::from).into_iter().chain([path.clone(), long, "c1".into()]);
    let words: Vec<OsString> = words.collect();
    let call = call(PROGRAM.command("create").unwrap(), Flags::default(), &words).unwrap().unwrap();
    assert_eq!(call.flags.path(&BUNDLE), Some(path.clone().into()));
    assert_eq!(call.flags.path(&PID_FILE), Some(path.into()));
    assert_eq!(call.flags.number(&PRESERVE_FDS).unwrap(), 0);
    assert!(call.flags.text(&PID_FILE).unwrap_err().to_string().contains("not UTF-8"));
}
