//! The command line from outside, as far as it needs no container.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, unreachable_pub)]

use rt_cli::habits::{HABITS, Hint, OPERAND_EXTRA, OPERAND_MISSING};
use rt_manual::Kind;
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

/// podman takes these words for a runtime that can put a restored container into a pod.
#[test]
fn restore_into_a_pod_does_not_exist() {
    for words in [&["restore", "--lsm-mount-context"][..], &["restore", "--lsm-mount-context", "x", "c1"]] {
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
        (&["shell", "x"], 1, "rt: unknown command \"shell\"; did you mean rt run -t IMAGE -- sh?\n"),
        (
            &["run", "--nv", "x"],
            1,
            "rt: run: unknown flag --nv; did you mean -e NVIDIA_VISIBLE_DEVICES=all?\n",
        ),
        (&["run", "--bind", "/a", "x"], 1, "rt: run: unknown flag --bind; did you mean --volume?\n"),
        (&["state", "--bind", "x"], 1, "rt: state: unknown flag --bind\n"),
        (&["create", "c1", "-b"], 1, "rt: create: flag -b needs a value\n"),
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
        (&["state", "a\u{1b}[1m\n", "b"], 1, "rt: state: extra operand \"b\"; usage: rt state "),
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
fn habits_from_other_programs_get_a_hint() {
    for (words, line) in [
        (&["run", "-Bdata:/data", "x"][..], "run: unknown flag -Bdata:/data; did you mean -v?"),
        (&["run", "-privileged", "x"], "run: unknown flag -privileged (nobody gets rights"),
        (
            &["run", "--shm-size=1g", "x"],
            "run: unknown flag --shm-size; did you mean --ipc private --tmpfs /dev/shm:size=SIZE?",
        ),
        (
            &["run", "--mount", "/opt:/data", "x"],
            "mount \"/opt:/data\": \"/opt:/data\" is no key (SRC:DST is for -v; here it is source=SRC,target=DST)",
        ),
        (
            &["run", "--writable", "disk", "debian:12"],
            "run: image \"disk\" is not what --writable takes (--writable=disk)",
        ),
        (
            &["run", "--root", "debian"],
            "run: flag --root must come before the command (root inside is --as-root)",
        ),
        (
            &["build", "-v", "/a:/b", "context"],
            "build: unknown flag -v; did you mean RUN --mount=type=bind in the file, with --build-context",
        ),
        (&["cp", "c1:/a", "."], "unknown command \"cp\" (bind a directory with rt run -v, or use rt exec"),
        (&["ps"], "ps: missing operand; usage: rt ps ID [PS-ARGS...] (rt list lists the containers)"),
        (&["save", "./tool"], "save: missing operand; usage: rt save "),
        (
            &["convert", "x.sif"],
            "convert: missing operand; usage: rt convert FROM TO, or rt convert --runfile",
        ),
        (&["start", "tool", "ls"], "start: extra operand \"ls\"; usage: rt start ID (rt run starts images,"),
    ] {
        let output = rt(words);
        let text = err(&output);
        assert!(text.starts_with(&format!("rt: {line}")) && text.matches('\n').count() == 1, "{text}");
    }
    for (command, word, hint) in HABITS {
        let words: Vec<_> = match *word {
            OPERAND_MISSING => vec![*command],
            OPERAND_EXTRA => vec![*command, "x", "y"],
            word => [*command, word].into_iter().filter(|word| !word.is_empty()).collect(),
        };
        let output = rt(&words);
        let said = match hint {
            Hint::Meant(ours) => format!("did you mean {ours}?"),
            Hint::Because(why) => format!("({why})\n"),
        };
        let text = err(&output);
        assert!(text.contains(&said) && text.matches('\n').count() == 1, "{words:?}: {text}");
        assert!(!output.status.success() && output.stdout.is_empty(), "{words:?}");
    }
}

#[test]
fn a_file_has_no_digest() {
    let output = rt(&["slurm", "digest", "./x.sqsh"]);
    assert_eq!(
        (output.status.code(), String::from_utf8_lossy(&output.stdout).as_ref()),
        (Some(0), "./x.sqsh\n")
    );
    let output = rt(&["slurm", "digest", "a b"]);
    assert!(!output.status.success() && err(&output).matches('\n').count() == 1, "{}", err(&output));
}

#[test]
fn exec_of_an_image_says_what_starts_one() {
    for operand in ["./x", "/x", "docker://debian:12", "debian:12"] {
        let output = rt(&["exec", operand, "id"]);
        let text = err(&output);
        assert!(!output.status.success() && text.matches('\n').count() == 1, "{text}");
        assert!(
            text.contains("(rt run starts images and bundles; rt exec enters a container that runs)"),
            "{text}"
        );
    }
}

#[test]
fn an_unknown_container_is_said_to_be_unknown() {
    let dir = Dir::new("unknown");
    let root = dir.path("state");
    for command in ["state", "start", "kill", "delete", "ps", "pause", "resume", "events", "update"] {
        let output = rt(&["--root", &root, command, "c1"]);
        assert_eq!(output.status.code(), Some(1), "{command}");
        let said = "container does not exist: c1 (rt list shows those that do; rt run starts images)\n";
        assert!(err(&output).ends_with(said), "{command}: {}", err(&output));
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

/// What `rt-manual` writes, and its word for it.
const KINDS: [(Kind, &str); 4] =
    [(Kind::Man, "man"), (Kind::Bash, "bash"), (Kind::Zsh, "zsh"), (Kind::Fish, "fish")];

/// A directory with the man pages and completions.
fn generated(name: &str) -> Dir {
    let dir = Dir::new(name);
    for (kind, _) in KINDS {
        rt_manual::write(kind, &dir.0).unwrap();
    }
    dir
}

/// A page without the marks of roff.
fn page(dir: &Dir, path: &str) -> String {
    let text = fs::read_to_string(dir.0.join(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
    text.replace("\\-", "-").replace("\\fB", "").replace("\\fR", "")
}

#[test]
fn man_pages_and_completions_are_written() {
    let dir = generated("generate");
    for command in COMMANDS {
        let page = page(&dir, &format!("man1/rt-{command}.1"));
        assert!(page.starts_with(&format!(".TH RT-{} 1 ", command.to_uppercase())), "{command}");
    }
    for name in
        ["man1/rt.1", "man5/rt-config.5", "man7/rt-annotations.7", "man7/rt-hooks.7", "_rt", "rt.fish"]
    {
        assert!(dir.0.join(name).is_file(), "{name}");
    }
    for entry in
        ["man1", "man5", "man7"].iter().flat_map(|dir_name| fs::read_dir(dir.0.join(dir_name)).unwrap())
    {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        // A page of another name.
        if let Some(other) = text.strip_prefix(".so ") {
            assert!(dir.0.join(other.trim_end()).is_file(), "{}: {other}", path.display());
        } else {
            assert!(text.contains("\n.SH NAME\n") && text.contains("\n.SH SEE ALSO\n"), "{}", path.display());
        }
        let groff = Command::new("groff")
            .args(["-man", "-ww", "-z", "-Tutf8"])
            .arg(&path)
            .current_dir(&dir.0)
            .output();
        match groff {
            Ok(output) => assert!(output.stderr.is_empty(), "{}: {}", path.display(), err(&output)),
            Err(_) => eprintln!("skipped: groff is not installed"),
        }
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

/// What is completed, and how: the word behind the last blank becomes one of these.
const COMPLETED: &[(&str, &[&str])] = &[
    ("rt cac", &["cache"]),
    ("rt --roo", &["--root", "--rootless"]),
    ("rt --root /tmp lis", &["list"]),
    ("rt --log-format j", &["json"]),
    ("rt run deb", &["debian:12", "debian:13"]),
    ("rt run debian:1", &["debian:12", "debian:13"]),
    ("rt run reg", &["reg.example:5000/a/b:1"]),
    ("rt run ./d", &["./data/"]),
    ("rt run ./x", &["./x.sif", "./x.sqsh"]),
    ("rt run -v ./d", &["./data"]),
    ("rt run --volume=./d", &["--volume=./data"]),
    ("rt run -v ./data:/d", &[]),
    ("rt run -v data:/x reg", &["reg.example:5000/a/b:1"]),
    ("rt run --pull=al", &["--pull=always"]),
    ("rt run --net n", &["none"]),
    ("rt run -e HOM", &["HOME"]),
    ("rt run debian:12 -- ./d", &["./data/"]),
    ("rt rmi debian:12 reg.example:5000/", &["reg.example:5000/a/b:1"]),
    ("rt kill job", &["job1", "job2"]),
    ("rt kill job1 US", &["USR1", "USR2"]),
    ("rt create j", &[]),
    ("rt cache p", &["prune"]),
    ("rt slurm k", &["kill"]),
    ("rt slurm kill job1 KI", &["KILL"]),
    ("rt delete --fo", &["--force"]),
    ("rt exec job", &["job1", "job2"]),
    ("rt save ./d", &["./data/"]),
];

/// Names of images and of a directory, which anybody may have made, and which a shell would execute.
const EVIL: [&str; 4] = [
    "evil$(touch${IFS}evaluated)",
    "evil`touch${IFS}evaluated`",
    "evil;touch${IFS}evaluated",
    "evil'<(touch${IFS}evaluated)",
];
const EVIL_DIR: &str = "a $(touch evaluated) `touch evaluated`;touch evaluated";

/// The scripts of the shells with an `rt` that knows two containers and images, and with a directory `data`.
fn shell_world(name: &str) -> Dir {
    let dir = generated(name);
    fs::create_dir_all(dir.0.join("work/data")).unwrap();
    fs::create_dir_all(dir.0.join("work/a bundle")).unwrap();
    for file in ["x.sqsh", "x.sif", "x.txt", "a bundle/config.json"] {
        fs::write(dir.0.join("work").join(file), "").unwrap();
    }
    fs::create_dir_all(dir.0.join("work/other").join(EVIL_DIR)).unwrap();
    fs::write(dir.0.join("images"), EVIL.map(|name| format!("{name} x\n")).concat()).unwrap();
    fs::create_dir(dir.0.join("bin")).unwrap();
    let program = dir.0.join("bin/rt");
    let answers = "case $1 in
list) printf 'job1\\njob2\\n' ;;
images) printf 'NAME DIGEST\\ndebian:12 x\\ndebian:13 y\\n<none> z\\nreg.example:5000/a/b:1 k\\n'; cat ../images ;;
esac";
    fs::write(&program, format!("#!/bin/sh\n{answers}\n")).unwrap();
    fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

/// A shell in that world.
fn shell(name: &str, dir: &Dir) -> Command {
    let mut shell = Command::new(name);
    shell.current_dir(dir.0.join("work")).env_clear().env("HOME", dir.path("work")).env("TERM", "dumb");
    shell.env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", dir.path("bin")));
    shell
}

#[test]
fn bash_completes_words() {
    let dir = shell_world("bash");
    // What readline does: it cuts the line at blanks, and at runs of : and =, each of which is a word, too.
    let script = r#"
        source "$1"
        compopt() { [ "$2" != filenames ] || names=yes; }
        COMP_LINE=$2 COMP_POINT=${#2} COMP_WORDS=() names=
        mapfile -t COMP_WORDS < <(grep -oE '[^ :=]+|[:=]+' <<<"$2")
        [ "${2: -1}" != ' ' ] || COMP_WORDS+=('')
        case ${COMP_WORDS[-1]} in [:=]*) COMP_WORDS+=('') ;; esac
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        complete -p rt | grep -q 'complete -F _rt rt' || exit
        _rt
        for reply in "${COMPREPLY[@]}"; do
            [ -z "$names" ] || [ ! -d "$reply" ] || reply+=/
            echo "$reply"
        done"#;
    for (line, expected) in COMPLETED {
        let output =
            shell("bash", &dir).args(["-c", script, "bash"]).arg(dir.0.join("rt")).arg(line).output();
        let output = match output {
            Ok(output) => output,
            Err(_) => return eprintln!("skipped: bash is not installed"),
        };
        assert!(output.stderr.is_empty(), "{line}: {}", err(&output));
        // Bash replaces what is behind the last : or =, and the paths are completed by bash itself behind `--`.
        let start = line.rfind([' ', ':', '=']).unwrap() + 1;
        let word = line.rfind(' ').unwrap() + 1;
        let replies: Vec<_> =
            out(&output).lines().map(|reply| line[word..start].to_owned() + reply).collect();
        let expected: Vec<_> = expected.iter().map(|word| (*word).to_owned()).collect();
        match line.contains(" -- ") {
            true => assert!(replies.is_empty(), "{line}: {replies:?}"),
            // A bind goes on behind a directory.
            false if line.contains("-v") || line.contains("--volume") => {
                let bare: Vec<_> = replies.iter().map(|reply| reply.trim_end_matches('/')).collect();
                assert_eq!(bare, expected, "{line}");
            }
            false => assert_eq!(replies, expected, "{line}"),
        }
    }
    // Names are known by their last part; a bundle is a whole word.
    for (line, expected) in
        [("rt run b", "reg.example:5000/a/b:1"), ("rt run b:", ""), ("rt run ./a", "./a\\ bundle")]
    {
        let output =
            shell("bash", &dir).args(["-c", script, "bash"]).arg(dir.0.join("rt")).arg(line).output();
        let output = output.unwrap();
        assert_eq!((out(&output).trim_end(), err(&output).as_str()), (expected, ""), "{line}");
    }
    // What is offered becomes the word that was meant, and nothing of it is executed: not now, and not with the line.
    for (line, names) in [("rt run ev", &EVIL[..]), ("rt run evil$", &[]), ("rt run ./other/a", &[EVIL_DIR])]
    {
        let output = shell("bash", &dir)
            .args(["-c", script, "bash"])
            .arg(dir.0.join("rt"))
            .arg(line)
            .output()
            .unwrap();
        assert!(output.stderr.is_empty(), "{line}: {}", err(&output));
        let replies = out(&output);
        if line.contains("./") {
            // readline quotes the names of files.
            assert_eq!(replies.trim_end(), format!("./other/{EVIL_DIR}/"), "{line}");
        } else if !names.is_empty() {
            let words = format!("printf '%s\\n' {}", replies.replace('\n', " "));
            let output = shell("bash", &dir).args(["-c", &words]).output().unwrap();
            assert_eq!(out(&output).lines().collect::<Vec<_>>(), names, "{line}: {replies}");
        }
    }
    assert!(!dir.0.join("work/evaluated").exists(), "a name was executed");
}

#[test]
fn fish_completes_words() {
    let dir = shell_world("fish");
    for (line, expected) in COMPLETED {
        let script = "source $argv[1]; complete -C $argv[2]";
        let output =
            shell("fish", &dir).args(["-N", "-c", script]).arg(dir.0.join("rt.fish")).arg(line).output();
        let output = match output {
            Ok(output) => output,
            Err(_) => return eprintln!("skipped: fish is not installed"),
        };
        assert!(output.stderr.is_empty(), "{line}: {}", err(&output));
        let mut replies: Vec<String> =
            out(&output).lines().map(|reply| reply.split('\t').next().unwrap().to_owned()).collect();
        replies.sort();
        let bind = line.contains("-v") || line.contains("--volume");
        replies
            .iter_mut()
            .filter(|_| bind)
            .for_each(|reply| reply.truncate(reply.trim_end_matches('/').len()));
        assert_eq!(replies, *expected, "{line}");
    }
    for line in ["rt run ev", "rt run ./other/a"] {
        let script = "source $argv[1]; complete -C $argv[2]";
        shell("fish", &dir).args(["-N", "-c", script]).arg(dir.0.join("rt.fish")).arg(line).output().unwrap();
    }
    assert!(!dir.0.join("work/evaluated").exists(), "a name was executed");
}

#[test]
fn zsh_completes_words() {
    let dir = shell_world("zsh");
    // An interactive zsh on a terminal of its own, in which the lines are typed, each with a tab and with a key that
    // appends the edited line to a file.
    let script = r#"
        zmodload zsh/zpty
        zpty z zsh -f -i
        drain() { local text; while zpty -rt z text; do :; done; sleep 0.05 }
        type() { # TEXT FILE LINES: until the file has so many
            zpty -n -w z "$1"
            local n
            for n in {1..400}; do
                drain
                [[ -e $2 ]] && (( $(wc -l <$2) >= $3 )) && return
            done
            print -u2 "no answer to $1"
            exit 1
        }
        type "fpath=($1 \$fpath); autoload -Uz compinit; compinit -u -D; setopt no_beep no_auto_menu
            show() { print -r -- \$BUFFER >>$1/shown; BUFFER= }; zle -N show; bindkey '^]' show; print ready >$1/ready"$'\r' $1/ready 1
        shift_to=$1
        integer n=0
        for line in "${@[2,-1]}"; do
            n+=1
            type "$line"$'\t\x1d' $shift_to/shown $n
        done
        zpty -d z
        cat $shift_to/shown"#;
    let mut zsh = shell("zsh", &dir);
    let evil = ["rt run evil", "rt run ./other/a"];
    let lines = COMPLETED.iter().map(|(line, _)| *line).chain(evil);
    zsh.args(["-f", "-c", script, "zsh"]).arg(&dir.0).args(lines);
    let output = match zsh.output() {
        Ok(output) => output,
        Err(_) => return eprintln!("skipped: zsh is not installed"),
    };
    assert!(output.status.success(), "{}", err(&output));
    let text = out(&output);
    assert_eq!(text.lines().count(), COMPLETED.len() + evil.len(), "{text}");
    assert!(!dir.0.join("work/evaluated").exists(), "a name was executed");
    for (shown, (line, expected)) in text.lines().zip(COMPLETED) {
        // Of several, what they have in common.
        let common = expected.iter().copied().reduce(|a, b| {
            let len = a.bytes().zip(b.bytes()).take_while(|(x, y)| x == y).count();
            &a[..len]
        });
        let word = line.rfind(' ').unwrap() + 1;
        let wanted = format!("{}{}", &line[..word], common.unwrap_or(&line[word..]));
        assert_eq!(shown.trim_end(), wanted, "{line}");
    }
}

/// What the code reads and knows is in the pages: keys, annotations, stages and conditions of hooks.
#[test]
fn pages_about_files_name_all_of_it() {
    let dir = generated("topics");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = |path: &str| fs::read_to_string(sources.join(path)).unwrap();
    let annotations = page(&dir, "man7/rt-annotations.7");
    let mut known = BTreeSet::new();
    for path in ["src", "crates", "pull/src", "hooks/src", "image/src"] {
        literals(&sources.join(path), &mut |word| {
            let name = word.strip_prefix("rt.").unwrap_or_default();
            let dotted = !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'.');
            // What `rt features` says of itself, and files.
            if dotted
                && !["version", "commit", "checkpoint.enabled", "checkpoint.gpus", "json", "fish", "bash"]
                    .contains(&name)
            {
                known.insert(word.to_owned());
            }
        });
    }
    assert!(known.len() > 14 && known.contains("rt.cdi.merged"), "{known:?}");
    for name in known {
        assert!(annotations.contains(&format!("\n{name}=")), "{name}");
    }
    let hooks = page(&dir, "man7/rt-hooks.7");
    let stages = source("src/hooks/run.rs");
    let stages: Vec<_> =
        stages.lines().filter_map(|line| line.trim().strip_prefix("Stage::")?.split('"').nth(1)).collect();
    assert_eq!(stages.len(), 6, "{stages:?}");
    let conditions = source("src/hooks/definitions.rs");
    let (_, conditions) = conditions.split_once("\nstruct When {\n").unwrap();
    let (conditions, _) = conditions.split_once("\n}").unwrap();
    let conditions = conditions.lines().filter_map(|line| line.trim().split_once(": ")).map(|(name, _)| {
        let mut words = name.split('_');
        let first = words.next().unwrap().to_owned();
        words.fold(first, |all, word| all + &word[..1].to_uppercase() + &word[1..])
    });
    let conditions: Vec<String> = conditions.collect();
    assert!(conditions.contains(&"hasBindMounts".to_owned()), "{conditions:?}");
    for name in stages.into_iter().chain(conditions.iter().map(String::as_str)) {
        assert!(hooks.contains(name), "{name}");
    }
    for name in ["NVIDIA_VISIBLE_DEVICES", "RT_RDMA_DEVICES", "AMD_VISIBLE_DEVICES", "RT_MPI_LIBRARY"] {
        assert!(hooks.contains(name), "{name}");
    }
    let config = page(&dir, "man5/rt-config.5");
    for name in ["run.mounts", "pull.max-size", "images.stores"] {
        assert!(config.contains(&format!("\n{name}\n")), "{name}");
    }
}

/// The texts in the sources below a path, without those of comments and of tests at the end of a file.
fn literals(path: &Path, found: &mut impl FnMut(&str)) {
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            literals(&entry.unwrap().path(), found);
        }
    } else if path.extension().is_some_and(|extension| extension == "rs") {
        let text = fs::read_to_string(path).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        let code = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        code.flat_map(|line| line.split('"').skip(1).step_by(2)).for_each(found);
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
        let reads = ["env::var", "own_dir(", "caller::path", "caller::said", "variable("]
            .iter()
            .any(|call| code.contains(call));
        if !reads {
            continue;
        }
        let code = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        let literals = code.flat_map(|line| line.split('"').skip(1).step_by(2));
        let is_name = |word: &&str| {
            let upper = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_';
            // What ends in _ is the beginning of several names.
            let name =
                word.len() > 3 && word.starts_with(|c: char| c.is_ascii_uppercase()) && !word.ends_with('_');
            name && word.bytes().all(upper) || word.ends_with("_proxy")
        };
        names.extend(literals.filter(is_name).map(str::to_owned));
    }
}

#[test]
fn the_man_page_names_every_variable_and_state_directory() {
    let dir = Dir::new("environment");
    rt_manual::write(Kind::Man, &dir.0).unwrap();
    let page = fs::read_to_string(dir.0.join("man1/rt.1")).unwrap().replace("\\-", "-");
    let (_, page) = page.split_once("\n.SH ENVIRONMENT\n").unwrap();
    let (environment, files) = page.split_once("\n.SH FILES\n").unwrap();
    let items = environment.lines().filter_map(|line| line.strip_prefix("\\fB")?.strip_suffix("\\fR"));
    let named: BTreeSet<String> = items.flat_map(|item| item.split(", ")).map(str::to_owned).collect();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut read = BTreeSet::new();
    for path in [
        "src",
        "pull/src",
        "crates/oci-registry/src",
        "crates/rt-config/src",
        "crates/rt-image-store/src",
        "crates/rt-spec/src/rootless.rs",
        "crates/rt-launch/src/request.rs",
        "crates/rt-sys/src/caller.rs",
    ] {
        variables_read(&sources.join(path), &mut read);
    }
    // One for the lower-case name is enough. criu's are for what it executes, which nobody else does.
    read.retain(|name| !name.ends_with("_PROXY") && !name.starts_with("CRTOOLS_"));
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
    // Every file of the host that the sources name, but those that are a container's too: these are the bundle's.
    let mut seen = 0;
    for path in
        ["src", "pull/src", "crates/oci-registry/src", "crates/rt-config/src", "crates/rt-image-store/src"]
    {
        literals(&sources.join(path), &mut |word| {
            let hosts =
                ["/etc/", "/usr/share/"].iter().any(|dir| word.starts_with(dir)) && !word.contains(' ');
            let containers = ["/etc/passwd", "/etc/group", "/etc/apt/", "/etc/ld.so."]
                .iter()
                .any(|file| word.starts_with(file));
            if hosts && !containers {
                seen += 1;
                assert!(files.contains(word), "{word}");
            }
        });
    }
    assert!(seen > 10, "{seen} files found");
}

/// Root, who installs, often has no cargo.
#[test]
fn what_is_built_is_installed_and_removed_without_cargo() {
    let dir = Dir::new("install");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR"));
    let parts = [
        "Makefile",
        "LICENSE",
        "README.md",
        "CHANGELOG.md",
        "SECURITY.md",
        "config.json.example",
        "docs",
        "packaging",
        "contrib",
        "integration",
        "hooks",
    ];
    let mut copy = Command::new("tar");
    copy.args(["-c", "--exclude=integration/work", "-C"]).arg(sources).args(parts);
    let mut tar = copy.stdout(Stdio::piped()).spawn().unwrap();
    let unpack = Command::new("tar").arg("-xC").arg(&dir.0).stdin(tar.stdout.take().unwrap()).status();
    assert!(unpack.unwrap().success() && tar.wait().unwrap().success());
    fs::create_dir(dir.0.join("build")).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_rt"), dir.0.join("build/rt")).unwrap();
    // Each directory of what `rt-manual` would write.
    let manual = Dir::new("manual");
    for (kind, word) in KINDS {
        fs::create_dir(manual.0.join(word)).unwrap();
        rt_manual::write(kind, &manual.0.join(word)).unwrap();
    }
    let copies = format!("#!/bin/sh\ncp -r '{}'/\"$1\"/. \"$2\"\n", manual.0.display());
    for name in ["rt-pull", "rt-image", "rt-hook-gpu", "rt-hook-mpi", "rt-hook-rdma", "rt-manual"] {
        let text = if name == "rt-manual" { &copies } else { "#!/bin/sh\n" };
        fs::write(dir.0.join("build").join(name), text).unwrap();
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(dir.0.join("build").join(name), mode).unwrap();
    }
    if Command::new("make").arg("--version").output().is_err() {
        return eprintln!("skipped: no make");
    }
    let make = |target: &str| {
        let mut make = Command::new("make");
        make.arg(target).arg(format!("DESTDIR={}", dir.path("dest"))).arg("PREFIX=/opt/a&b");
        make.current_dir(&dir.0).env_clear().env("PATH", "/usr/bin:/bin").env("CARGO", "false");
        make.output().unwrap()
    };
    let dest = dir.0.join("dest");
    fs::create_dir_all(dest.join("opt/a&b/bin")).unwrap();
    fs::write(dest.join("opt/a&b/bin/other"), "").unwrap();

    let output = make("install");
    assert!(output.status.success() && output.stderr.is_empty(), "{}", err(&output));
    let text = |path: &str| fs::read_to_string(dest.join(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
    let share = |path: &str| text(&format!("opt/a&b/share/{path}"));
    assert!(dest.join("opt/a&b/bin/rt-hook-rdma").is_file());
    assert!(share("man/man1/rt-run.1").contains("rt run"));
    for (file, word) in [
        ("rt/slurm/oci.conf", "exec /opt/a&b/bin/rt '--root"),
        ("rt/slurm/epilog", "/opt/a&b/bin/rt --root"),
        ("rt/slurm/prolog", "/opt/a&b/bin/rt --root"),
        ("rt/slurm/tmpfiles.conf", "/run/rt-slurm"),
        ("rt/podman/containers.conf", "\"/opt/a&b/bin/rt\""),
        ("rt/hooks/rt-hook-gpu.json", "\"/opt/a&b/bin/rt-hook-gpu\""),
        ("doc/rt/LICENSE", "Apache License"),
    ] {
        assert!(share(file).contains(word), "{file}: {}", share(file));
    }
    let pages = dest.join("opt/a&b/share/doc/rt");
    for page in [&pages, &pages.join("docs"), &pages.join("hooks")]
        .iter()
        .flat_map(|dir| fs::read_dir(dir).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "md"))
    {
        let text = fs::read_to_string(&page).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = link.split('#').next().unwrap();
            let leads = link.contains("://") || page.parent().unwrap().join(path).exists();
            assert!(leads, "{}: {link}", page.display());
        }
    }
    assert!(share("doc/rt/docs/slurm.md").contains("](../../../rt/slurm/oci.conf)"));
    assert!(share("doc/rt/docs/gpu-and-fabric.md").contains("[hooks/README.md](../hooks/README.md)"));
    assert!(text("etc/apparmor.d/rt").contains("profile rt /opt/a&b/bin/rt{,-image} flags"));
    let mode = fs::metadata(dest.join("opt/a&b/share/rt/slurm/epilog")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
    assert!(!dest.join("etc/rt").exists());

    // Once more, with hooks and without a file of this version, over it.
    fs::remove_file(dir.0.join("integration/docker/daemon.json")).unwrap();
    let stage = fs::read_to_string(dir.0.join("packaging/stage")).unwrap();
    let lines = stage.lines().filter(|line| !line.contains("daemon.json"));
    fs::write(dir.0.join("packaging/stage"), lines.map(|l| format!("{l}\n")).collect::<String>()).unwrap();
    assert!(dest.join("opt/a&b/share/rt/docker/daemon.json").exists());
    assert!(make("install-hooks").status.success());
    assert!(text("etc/rt/hooks.d/rt-hook-mpi.json").contains("/opt/a&b/bin/rt-hook-mpi"));
    assert!(!dest.join("opt/a&b/share/rt/docker/daemon.json").exists());

    fs::remove_dir_all(dir.0.join("build")).unwrap();
    let output = make("uninstall");
    assert!(output.status.success() && output.stderr.is_empty(), "{}", err(&output));
    let find = Command::new("find").arg(&dest).args(["-mindepth", "1", "-printf", "%P "]).output().unwrap();
    assert_eq!(out(&find), "opt opt/a&b opt/a&b/bin opt/a&b/bin/other ");
    // What is not there is not removed twice.
    let output = make("uninstall");
    assert!(!output.status.success() && err(&output).contains("nothing was installed"), "{}", err(&output));
}
