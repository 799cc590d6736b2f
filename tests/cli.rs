//! The command line from outside, as far as it needs no container.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, unreachable_pub)]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn rt(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rt")).args(words).output().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A directory that is removed at the end of its test.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let dir = std::env::temp_dir().join(format!("rt-cli-{name}-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        Dir(dir)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const COMMANDS: [&str; 28] = [
    "run", "exec", "list", "state", "ps", "kill", "delete", "create", "start", "pause", "resume", "spec",
    "config", "doctor", "features", "events", "update", "pull", "images", "rmi", "prune", "inspect", "save",
    "push", "login", "logout", "cache", "mount",
];

#[test]
fn every_command_has_help() {
    let help = rt(&["--help"]);
    assert!(help.status.success() && help.stderr.is_empty());
    for command in COMMANDS {
        assert!(out(&help).contains(&format!("\n  {command} ")), "{command}");
        for words in [[command, "--help"], [command, "-h"], ["help", command]] {
            let output = rt(&words);
            assert!(output.status.success() && output.stderr.is_empty(), "{words:?}");
            assert!(out(&output).starts_with(&format!("rt {command}: ")), "{words:?}");
        }
    }
}

/// podman takes a success, or these words, for a runtime that can checkpoint.
#[test]
fn checkpoint_and_restore_do_not_exist() {
    for words in [
        &["checkpoint", "--help"][..],
        &["checkpoint", "c1"],
        &["help", "checkpoint"],
        &["restore", "--lsm-mount-context"],
        &["restore", "--lsm-mount-context", "x", "c1"],
    ] {
        let output = rt(words);
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        assert!(output.stdout.is_empty());
        let text = err(&output);
        assert!(!text.contains("requires an argument") && !text.contains("flag needs an argument"), "{text}");
    }
}

/// docker reads the words before the version, the commit and the specification's version.
#[test]
fn the_version_is_in_dockers_form() {
    let output = rt(&["--version"]);
    let text = out(&output);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], format!("rt version {}", env!("CARGO_PKG_VERSION")));
    assert_eq!(lines.last(), Some(&"spec: 1.3.0"));
    assert!(lines[1..lines.len() - 1].iter().all(|line| line.starts_with("commit: ")));
    assert_eq!(out(&rt(&["-v"])), text);
}

#[test]
fn an_error_is_one_line_and_a_code() {
    for (words, code, line) in [
        (&["frobnicate"][..], 1, "rt: unknown command \"frobnicate\" (rt --help lists the commands)\n"),
        (&["state"], 1, "rt: state: missing operand; usage: rt state ID\n"),
        (&["strat", "c1"], 1, "rt: unknown command \"strat\"; did you mean start?\n"),
        (&["run", "c1", "-b"], 1, "rt: run: flag -b needs a value\n"),
        (&["state", "--root", "/r", "c1"], 1, "rt: state: flag --root must come before the command\n"),
        (
            &["create", "--preserve-fds=-1", "c1"],
            1,
            "rt: invalid value \"-1\" for flag --preserve-fds: it takes a number, 0 or more\n",
        ),
        (&["state", "--frob", "c1"], 1, "rt: state: unknown flag --frob\n"),
        (&["exec", "--frob", "c1"], 1, "rt: exec: unknown flag --frob\n"),
        (&["--log-format", "xml", "list"], 1, "rt: invalid log-format: xml\n"),
        (&["--root", "/", "list"], 1, "rt: --root: / cannot be the directory of the states\n"),
        (&["run", "--rm", "-d", "c1"], 1, "rt: run: --rm cannot be kept with --detach"),
        (&["spec", "--user-map", "config"], 1, "rt: spec: --user-map is caller or root\n"),
        (&["run", "a\u{1b}[1m\n", "b"], 1, "rt: run: extra operand \"b\"; usage: rt run "),
        (&["--frob\n\u{1b}"], 1, "rt: unknown flag --frob\\n\\u{1b}\n"),
    ] {
        let output = rt(words);
        assert_eq!(output.status.code(), Some(code), "{words:?}");
        let text = err(&output);
        assert!(text.starts_with(line) && text.matches('\n').count() == 1, "{words:?}: {text}");
        assert!(output.stdout.is_empty(), "{words:?}");
    }
}

#[test]
fn an_unknown_container_is_said_to_be_unknown() {
    let dir = Dir::new("unknown");
    let root = dir.path("state");
    for command in ["state", "start", "kill", "delete", "ps", "pause", "resume", "events", "update"] {
        let output = rt(&["--root", &root, command, "c1"]);
        assert_eq!(output.status.code(), Some(1), "{command}");
        assert!(err(&output).contains("container does not exist"), "{command}: {}", err(&output));
    }
    // Its own failures are no exit code of a program's.
    assert_eq!(rt(&["--root", &root, "exec", "c1", "true"]).status.code(), Some(255));
    // podman and containerd delete what is not there, and expect silence.
    let output = rt(&["--root", &root, "delete", "--force", "c1"]);
    assert!(output.status.success() && output.stderr.is_empty() && output.stdout.is_empty());
}

/// podman reads the whole file as one object; containerd reads a stream, keyed by level and msg.
#[test]
fn the_log_gets_the_error_and_nothing_else() {
    let dir = Dir::new("log");
    let (root, log) = (dir.path("state"), dir.path("log.json"));
    let call = |words: &[&str]| rt(&[&["--root", &root, "--log", &log, "--log-format=json"], words].concat());
    assert!(call(&["list"]).status.success());
    assert!(!Path::new(&log).exists(), "nothing was to be said");

    let output = call(&["state", "c1"]);
    let text = fs::read_to_string(&log).unwrap();
    let line: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(line["level"], "error");
    assert!(line["msg"].as_str().unwrap().contains("container does not exist"));
    let time = line["time"].as_str().unwrap();
    assert!(time.len() == 30 && time.ends_with('Z') && &time[10..11] == "T", "{time}");
    assert_eq!(line.as_object().unwrap().len(), 3);
    // The plain message: the caller puts a name in front.
    assert_eq!(err(&output), format!("{}\n", line["msg"].as_str().unwrap()));

    // Appended, also where the command line itself is wrong.
    call(&["state", "--frob"]);
    let both = fs::read_to_string(&log).unwrap();
    assert!(both.starts_with(&text) && both.lines().count() == 2, "{both}");
    assert!(both.contains("unknown flag"));

    let text_log = dir.path("log.text");
    rt(&["--root", &root, "--log", &text_log, "state", "c1"]);
    let text = fs::read_to_string(&text_log).unwrap();
    assert!(
        text.starts_with("time=\"20") && text.contains(" level=error msg=\"container does not exist"),
        "{text}"
    );
}

#[test]
fn a_log_that_cannot_be_written_is_said_too() {
    let output = rt(&["--log", "/nonexistent/log", "frob"]);
    assert_eq!(output.status.code(), Some(1));
    let text = err(&output);
    assert!(
        text.starts_with("rt: unknown command") && text.contains("\nrt: open log /nonexistent/log: "),
        "{text}"
    );
}

/// podman closes its end of the pipes early.
#[test]
fn closed_pipes_are_no_reason_to_panic() {
    for (words, code) in [(&["features"][..], 0), (&["--help"], 0), (&["frob"], 1)] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_rt"));
        let status = command.args(words).stdout(writer.try_clone().unwrap()).stderr(writer).status().unwrap();
        assert_eq!(status.code(), Some(code), "{words:?}");
    }
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_rt")).arg("features").stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(err(&output), "rt: write to stdout: no space left on device\n");
}

#[test]
fn spec_writes_a_bundle_once() {
    let dir = Dir::new("spec");
    let plain = dir.path("plain");
    let output = rt(&["spec", "-b", &plain]);
    assert!(output.status.success() && output.stdout.is_empty() && output.stderr.is_empty());
    let config = fs::read(format!("{plain}/config.json")).unwrap();
    let config: serde_json::Value = serde_json::from_slice(&config).unwrap();
    assert_eq!(config["process"]["terminal"], false, "stdout is no terminal here");
    let again = rt(&["spec", "-b", &plain]);
    assert_eq!(again.status.code(), Some(1));
    assert_eq!(err(&again), "rt: File config.json exists. Remove it first\n");

    let host = dir.path("host");
    assert!(rt(&["spec", "--host", "--bundle", &host]).status.success());
    assert!(Path::new(&host).join("rootfs/usr").is_dir());
    let linked = fs::symlink_metadata("/bin").unwrap().is_symlink();
    let bin = fs::symlink_metadata(format!("{host}/rootfs/bin")).unwrap();
    assert_eq!(bin.is_symlink(), linked);
}

#[test]
fn pull_is_a_program_of_its_own() {
    let dir = Dir::new("pull");
    let program = dir.0.join("rt-pull");
    fs::write(&program, "#!/bin/sh\nprintf '%s,' \"$@\"\nexit 3\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    // Beside rt comes first, so rt has to stand where no rt-pull is.
    let alone = Dir::new("alone");
    let copy = alone.0.join("rt");
    fs::copy(env!("CARGO_BIN_EXE_rt"), &copy).unwrap();
    // A test beside this one may just have forked while a program was being written.
    let call = |path: &Path| loop {
        match Command::new(&copy).args(["--debug", "pull", "-q", "alpine"]).env("PATH", path).output() {
            Err(e) if e.kind() == std::io::ErrorKind::ExecutableFileBusy => {}
            Ok(output) if err(&output).contains("Text file busy") => {}
            output => break output.unwrap(),
        }
    };
    let output = call(&dir.0);
    assert_eq!((output.status.code(), out(&output).as_str()), (Some(3), "--debug,pull,-q,alpine,"));
    let output = call(&alone.0);
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("rt-pull is installed neither"), "{}", err(&output));
    // What is wrong with the command line is said without it.
    assert!(err(&rt(&["pull", "--nonsense"])).contains("unknown flag"));
    fs::copy(&program, alone.0.join("rt-pull")).unwrap();
    assert_eq!(call(&alone.0).status.code(), Some(3));
}

#[test]
fn man_pages_and_completions_are_written() {
    let dir = Dir::new("generate");
    for kind in ["man", "bash", "zsh", "fish"] {
        assert!(rt(&["generate", kind, &dir.path("")]).status.success(), "{kind}");
    }
    for command in COMMANDS {
        let page = fs::read_to_string(dir.0.join(format!("rt-{command}.1"))).unwrap();
        assert!(page.starts_with(&format!(".TH RT\\-{} 1 ", command.to_uppercase())), "{command}");
    }
    for name in ["rt.1", "_rt", "rt.fish"] {
        assert!(dir.0.join(name).is_file(), "{name}");
    }
    // Each shell, where there is one, checks its own.
    for (shell, script) in [("bash", "rt"), ("zsh", "_rt"), ("fish", "rt.fish")] {
        let check = Command::new(shell).arg("-n").arg(dir.0.join(script)).stderr(Stdio::piped()).output();
        match check {
            Ok(output) => assert!(output.status.success(), "{shell}: {}", err(&output)),
            Err(_) => eprintln!("skipped: {shell} is not installed"),
        }
    }
}

/// The variables that the programs' sources read. Literals like `"RT_CACHE"` in a file that reads the environment are
/// names of variables; tests at the end of a file do not count.
fn variables_read(path: &Path, names: &mut BTreeSet<String>) {
    let entries: Vec<_> = match path.is_dir() {
        true => fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect(),
        false => vec![path.to_owned()],
    };
    for entry in entries {
        if entry.is_dir() {
            variables_read(&entry, names);
            continue;
        }
        let text = fs::read_to_string(&entry).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        let reads =
            ["env::var", "own_dir(", "caller::path", "variable("].iter().any(|call| code.contains(call));
        if !reads {
            continue;
        }
        let code = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        let literals = code.flat_map(|line| line.split('"').skip(1).step_by(2));
        let is_name = |word: &&str| {
            let upper = word.len() > 3 && word.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
            upper || word.ends_with("_proxy")
        };
        names.extend(literals.filter(is_name).map(str::to_owned));
    }
}

#[test]
fn the_man_page_names_every_variable_and_state_directory() {
    let dir = Dir::new("environment");
    assert!(rt(&["generate", "man", &dir.path("")]).status.success());
    let page = fs::read_to_string(dir.0.join("rt.1")).unwrap().replace("\\-", "-");
    let (_, page) = page.split_once("\n.SH ENVIRONMENT\n").unwrap();
    let (environment, files) = page.split_once("\n.SH FILES\n").unwrap();
    let items = environment.lines().filter_map(|line| line.strip_prefix("\\fB")?.strip_suffix("\\fR"));
    let named: BTreeSet<String> = items.flat_map(|item| item.split(", ")).map(str::to_owned).collect();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut read = BTreeSet::new();
    for path in [
        "src",
        "pull/src",
        "crates/rt-config/src",
        "crates/rt-image-store/src",
        "crates/rt-spec/src/rootless.rs",
    ] {
        variables_read(&sources.join(path), &mut read);
    }
    // One for the lower-case name is enough.
    read.retain(|name| !name.ends_with("_PROXY"));
    assert_eq!(named, read);
    for place in ["/run/rt.", "$XDG_RUNTIME_DIR/rt", "/run/user/UID/rt", "/dev/shm/rt-UID", "/tmp/rt-UID"] {
        assert!(files.contains(place), "{place}");
    }
    for place in [
        "/run/rt-slurm",
        "/usr/share/rt/hooks.d",
        "/etc/rt/hooks.d",
        "rt-cache-UID",
        "$XDG_DATA_HOME/rt/images",
    ] {
        assert!(files.contains(place), "{place}");
    }
}

/// Root, who installs, often has no cargo.
#[test]
fn what_is_built_is_installed_without_cargo() {
    let dir = Dir::new("install");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR"));
    fs::copy(sources.join("Makefile"), dir.0.join("Makefile")).unwrap();
    for part in ["build", "contrib/apparmor"] {
        fs::create_dir_all(dir.0.join(part)).unwrap();
    }
    fs::copy(sources.join("contrib/apparmor/rt"), dir.0.join("contrib/apparmor/rt")).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_rt"), dir.0.join("build/rt")).unwrap();
    let mut make = Command::new("make");
    make.arg("install").arg(format!("DESTDIR={}", dir.path("dest"))).current_dir(&dir.0);
    let output = match make.env_clear().env("PATH", "/usr/bin:/bin").env("CARGO", "false").output() {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return eprintln!("skipped: no make"),
        output => output.unwrap(),
    };
    assert!(output.status.success(), "{}", err(&output));
    for file in ["bin/rt", "share/man/man1/rt-run.1"] {
        assert!(dir.0.join("dest/usr/local").join(file).is_file(), "{file}");
    }
}
