//! `rt build`: files from elsewhere than the context's directory: archives, URLs, repositories, contexts of other names, and an agent
//! of ssh.

use crate::build::{BASE, build, built, bundle, context, is_clean, refused, rt, said};
use crate::fixture::{Cmd, Ctx, Out};
use crate::runner::{skip, tests};
use serde_json::json;
use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

tests! {
    BOTH {
        files_by_url, repositories_by_url, contexts_from_standard_input, contexts_by_url, contexts_of_other_names, an_agent_where_it_is_asked_for,
        keys_are_the_callers,
    }
}

/// Files by http, each with the time 784111777; and what was asked for.
struct Server {
    address: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn of(files: HashMap<String, Vec<u8>>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = asked.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
                let Some(request) = lines.next() else { continue };
                lines.find(String::is_empty);
                let path =
                    request.split(' ').nth(1).unwrap_or_default().split('?').next().unwrap().to_owned();
                log.lock().unwrap().push(path.clone());
                let head = match files.get(&path) {
                    Some(bytes) => format!(
                        "HTTP/1.1 200 OK\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Length: {}\r\n",
                        bytes.len()
                    ),
                    None => "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n".to_owned(),
                };
                let none = Vec::new();
                let body = files.get(&path).unwrap_or(&none);
                let _ = stream.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes());
                let _ = stream.write_all(body);
            }
        });
        Server { address, asked }
    }

    /// All files below `dir`.
    fn of_dir(dir: &Path) -> Server {
        let mut files = HashMap::new();
        let mut left = vec![dir.to_owned()];
        while let Some(next) = left.pop() {
            for entry in fs::read_dir(next).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => left.push(path),
                    false => {
                        let name = path.strip_prefix(dir).unwrap().to_str().unwrap();
                        files.insert(format!("/{name}"), fs::read(&path).unwrap());
                    }
                }
            }
        }
        Server::of(files)
    }
}

fn read(ctx: &Ctx, out: &Out, path: &str) -> String {
    fs::read_to_string(bundle(ctx, out).join("rootfs").join(path)).unwrap_or_else(|e| format!("{path}: {e}"))
}

/// An archive of a context: a Containerfile and a file that it copies.
fn archive(ctx: &Ctx, flags: &str) -> Vec<u8> {
    let dir = ctx.mkdir("packed");
    fs::write(dir.join("Containerfile"), "FROM scratch\nCOPY . /all/\n").unwrap();
    fs::write(dir.join("file"), "text").unwrap();
    fs::write(dir.join("left-out"), "text").unwrap();
    fs::write(dir.join(".dockerignore"), "left-out\n").unwrap();
    let made = Command::new("tar").arg("-C").arg(&dir).args([flags, "-", "."]).output().unwrap();
    assert!(made.status.success());
    fs::remove_dir_all(dir).unwrap();
    made.stdout
}

fn files_by_url(ctx: &Ctx) {
    context(ctx);
    let files = [("/d/f.txt", b"text".to_vec()), ("/a.tar", archive(ctx, "-cf")), ("/", b"top".to_vec())];
    let server = Server::of(files.map(|(name, bytes)| (name.to_owned(), bytes)).into());
    let url = &server.address;
    let sum = "sha256:982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1";
    let file = format!(
        "FROM scratch\nADD {url}/d/f.txt?query=1 /in/\nADD --chmod=0755 --chown=7:8 {url}/d/f.txt /named\nADD {url}/a.tar /t/\n\
         ADD --unpack=true {url}/a.tar /u/\nADD {url}/ /top\n"
    );
    let out = built(ctx, &file, &[]);
    assert_eq!(
        [read(ctx, &out, "in/f.txt"), read(ctx, &out, "named"), read(ctx, &out, "top")],
        ["text", "text", "top"]
    );
    let root = bundle(ctx, &out).join("rootfs");
    let of = |path: &str| fs::metadata(root.join(path)).unwrap();
    assert_eq!((of("in/f.txt").mode() & 0o777, of("in/f.txt").mtime()), (0o600, 784_111_777));
    assert_eq!(of("named").mode() & 0o777, 0o755);
    assert!(root.join("t/a.tar").is_file() && root.join("u/file").is_file());
    // Of what has a checksum nothing is asked a second time.
    let file = format!("FROM scratch\nADD --checksum={sum} {url}/d/f.txt /x\n");
    let first = built(ctx, &file, &[]);
    let asked = || server.asked.lock().unwrap().len();
    let before = asked();
    assert_eq!((built(ctx, &file, &[]).stdout, asked()), (first.stdout, before));
    let wrong = file.replace("982d", "982e");
    refused(build(ctx, &wrong, &[]), &["line 2: ADD --checksum", "its bytes hash to sha256:982d9e"]);
    refused(build(ctx, &file.replace(sum, "md5:00"), &[]), &["line 2", "--checksum"]);
    refused(build(ctx, &format!("FROM scratch\nADD {url}/none /x\n"), &[]), &["line 2", "/none", "404"]);
    refused(build(ctx, &format!("FROM scratch\nADD {url}/ /x/\n"), &[]), &["line 2", "it has no name"]);
    is_clean(ctx);
}

/// Makes a repository with two commits, and returns their names.
fn repository(ctx: &Ctx) -> [String; 2] {
    if Command::new("git").arg("version").output().is_err() {
        skip!("no git");
    }
    let dir = ctx.mkdir("work");
    let git = |words: &[&str]| {
        let out = Command::new("git")
            .args(["-c", "safe.directory=*", "-c", "user.name=a", "-c", "user.email=b"])
            .args(words)
            .current_dir(&dir)
            .env("HOME", &dir)
            .output();
        let out = out.unwrap();
        assert!(out.status.success(), "{out:?}");
        String::from_utf8(out.stdout).unwrap().trim().to_owned()
    };
    git(&["init", "-q", "-b", "main"]);
    fs::create_dir(dir.join("sub")).unwrap();
    fs::write(dir.join("Containerfile"), "FROM scratch\nCOPY . /all/\n").unwrap();
    fs::write(dir.join("sub/Containerfile"), "FROM scratch\nCOPY file /sub-file\n").unwrap();
    let commit = |text: &str| {
        fs::write(dir.join("sub/file"), text).unwrap();
        git(&["add", "."]);
        git(&["commit", "-q", "-m", text]);
        git(&["rev-parse", "HEAD"])
    };
    let first = commit("one");
    git(&["tag", "v1"]);
    let second = commit("two");
    // A branch whose submodule is a repository of this machine.
    git(&["checkout", "-q", "-b", "submodule"]);
    let module = format!("[submodule \"m\"]\npath = m\nurl = file://{}\n", dir.display());
    fs::write(dir.join(".gitmodules"), module).unwrap();
    git(&["add", ".gitmodules"]);
    git(&["update-index", "--add", "--cacheinfo", &format!("160000,{first},m")]);
    git(&["commit", "-q", "-m", "three"]);
    git(&["checkout", "-q", "main"]);
    git(&["clone", "-q", "--bare", ".", "../served.git"]);
    let update =
        Command::new("git").args(["-C", "served.git", "update-server-info"]).current_dir(&ctx.dir).status();
    assert!(update.unwrap().success());
    let mut left = vec![ctx.path("served.git")];
    while let Some(path) = left.pop() {
        ctx.give(&path);
        left.extend(fs::read_dir(path).into_iter().flatten().map(|entry| entry.unwrap().path()));
    }
    [first, second]
}

fn repositories_by_url(ctx: &Ctx) {
    context(ctx);
    let [first, second] = repository(ctx);
    let served = ctx.mkdir("served");
    fs::rename(ctx.path("served.git"), served.join("x.git")).unwrap();
    let server = Server::of_dir(&served);
    let url = format!("{}/x.git", server.address);
    // What the caller's git is told counts for nothing.
    let add = |what: &str| {
        let cmd = build(ctx, &format!("FROM scratch\nADD {what} /to\n"), &[]);
        cmd.env("GIT_DIR", "/none").env("GIT_CONFIG_COUNT", "x").env("GIT_SSH_COMMAND", "false")
    };
    let out = add(&url).ok();
    assert_eq!(read(ctx, &out, "to/sub/file"), "two");
    assert!(!bundle(ctx, &out).join("rootfs/to/.git").exists());
    for reference in
        [format!("{url}#v1:sub"), format!("{url}?ref=v1&subdir=sub"), format!("{url}#{first}:sub")]
    {
        assert_eq!(read(ctx, &add(&reference).ok(), "to/file"), "one", "{reference}");
    }
    let out = add(&format!("--keep-git-dir=true --checksum={second} {url}#main")).ok();
    assert!(bundle(ctx, &out).join("rootfs/to/.git/HEAD").exists());
    refused(add(&format!("--checksum={first} {url}#main")), &["line 2", "the commit is", &second]);
    refused(add(&format!("{url}#none")), &["line 2", "x.git", "none"]);
    // No path leads out of it.
    assert_eq!(read(ctx, &add(&format!("{url}#main:../../..")).ok(), "to/sub/file"), "two");
    refused(add(&format!("{}/gone.git", server.address)), &["line 2", "gone.git", "git fetch"]);
    refused(add(&format!("{url}#submodule")), &["line 2", "git submodule"]);
    let programs = format!("{}:{}", ctx.rt_path().parent().unwrap().display(), crate::images::path(ctx));
    let cmd = add(&url).env("PATH", programs);
    refused(cmd, &["line 2", "git: no such program on this host"]);
    is_clean(ctx);
}

fn contexts_from_standard_input(ctx: &Ctx) {
    let from = |input: Vec<u8>, flags: &[&str]| rt(ctx, &[&["build"], flags, &["-"]].concat()).input(input);
    for flags in ["-cf", "-czf"] {
        let out = from(archive(ctx, flags), &[]).ok();
        assert_eq!(read(ctx, &out, "all/file"), "text");
        assert!(!bundle(ctx, &out).join("rootfs/all/left-out").exists());
    }
    let out = from(b"FROM scratch\nCOPY <<E /made\ntext\nE\n".to_vec(), &[]).ok();
    assert_eq!(read(ctx, &out, "made"), "text\n");
    refused(from(b"FROM scratch\nCOPY file /\n".to_vec(), &[]), &["standard input: line 2", "not found"]);
    refused(from(b"FROM scratch\n".to_vec(), &["-f", "x"]), &["--file"]);
    refused(from(Vec::new(), &["-f", "-"]), &["--file -"]);
    refused(from(Vec::new(), &[]), &["standard input", "no FROM"]);
    // A file of the archive, and none of this machine.
    ctx.file("outside", "FROM scratch\n");
    let named = |name: &str| from(archive(ctx, "-cf"), &["-f", name]);
    named("./Containerfile").ok();
    refused(named("outside"), &["outside: no such file"]);
    is_clean(ctx);
}

fn contexts_by_url(ctx: &Ctx) {
    let files =
        [("/c.tar.gz", archive(ctx, "-czf")), ("/Containerfile", b"FROM scratch\nENV A=b\n".to_vec())];
    let server = Server::of(files.map(|(name, bytes)| (name.to_owned(), bytes)).into());
    let of = |url: &str| rt(ctx, &["build", url]);
    let url = |path: &str| format!("{}/{path}", server.address);
    assert_eq!(read(ctx, &of(&url("c.tar.gz")).ok(), "all/file"), "text");
    of(&url("Containerfile")).ok();
    refused(of(&url("none")), &["context", "/none", "404"]);
    repository(ctx);
    let repository = format!("file://{}", ctx.path("served.git").display());
    let out = of(&repository).ok();
    assert_eq!(read(ctx, &out, "all/sub/file"), "two");
    assert_eq!(read(ctx, &of(&format!("{repository}#v1:sub")).ok(), "sub-file"), "one");
    is_clean(ctx);
}

fn contexts_of_other_names(ctx: &Ctx) {
    context(ctx);
    for (path, text) in
        [("other/file", "other"), ("other/left-out", "x"), ("other/.dockerignore", "left-out\n")]
    {
        if path == "other/file" {
            ctx.mkdir("other");
        }
        ctx.file(path, text);
    }
    built(ctx, &format!("{BASE}RUN write /of-image yes\n"), &["-t", "team/base:1"]);
    let file = format!(
        "FROM scratch AS replaced\nCOPY none /\n{}RUN --mount=type=bind,from=more,target=/m [\"/probe\",\"cat /m/file\",\"exists /m/left-out\"]\n\
         COPY --from=more . /more/\nCOPY --from=replaced /of-image /a\nFROM Base-Image\nCOPY --from=1 /more /more\n",
        BASE
    );
    let other = ctx.path("other").display().to_string();
    let flags = [
        "--build-context",
        &format!("more={other}"),
        "--build-context",
        "replaced=docker-image://team/base:1",
        "--build-context",
        "base-image=docker-image://team/base:1",
    ];
    let out = built(ctx, &file, &flags);
    assert_eq!((read(ctx, &out, "more/file"), read(ctx, &out, "of-image")), ("other".into(), "yes".into()));
    assert!(!bundle(ctx, &out).join("rootfs/more/left-out").exists());
    assert!(out.stderr.contains("\"other\"") && out.stderr.contains("false"), "{out:?}");
    let refuse = |file: &str, context: &str, texts: &[&str]| {
        drop(refused(build(ctx, file, &["--build-context", context]), texts))
    };
    refuse("FROM more\n", &format!("more={other}"), &["line 1: FROM more", "files, and not an image"]);
    refuse(BASE, "more", &["--build-context more"]);
    refuse(BASE, "more=/none", &["--build-context", "/none"]);
    is_clean(ctx);
}

/// ssh has the caller's keys for the context that he names, and the agent alone, where there is one, for what others name.
fn keys_are_the_callers(ctx: &Ctx) {
    if Command::new("git").arg("version").output().is_err() {
        skip!("no git");
    }
    context(ctx);
    let socket = ctx.path("agent");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o600)).unwrap();
    ctx.give(&socket);
    // It tells how it was called, and reaches nobody.
    ctx.mkdir("programs");
    let told = ctx.path("told");
    ctx.file(
        "programs/ssh",
        &format!("#!/bin/sh\necho \"$* $SSH_AUTH_SOCK\" >>{}\nexit 1\n", told.display()),
    );
    fs::set_permissions(ctx.path("programs/ssh"), fs::Permissions::from_mode(0o755)).unwrap();
    let programs = format!("{}:{}:/usr/bin:/bin", ctx.path("programs").display(), crate::images::path(ctx));
    let called = |cmd: Cmd, texts: &[&str]| {
        let _ = fs::remove_file(&told);
        refused(cmd.env("PATH", &programs), texts);
        fs::read_to_string(&told).unwrap_or_default()
    };
    let file = "FROM scratch\nADD git@host:team/x.git /to\n";
    assert_eq!(called(build(ctx, file, &[]), &["line 2", "--ssh default"]), "");
    let agent = build(ctx, file, &["--ssh", "default"]).env("SSH_AUTH_SOCK", &socket);
    let line = called(agent, &["line 2", "git fetch"]);
    assert!(line.contains("-F none") && line.contains("IdentityFile=none"), "{line}");
    assert!(line.contains(&socket.display().to_string()), "{line}");
    let line = called(rt(ctx, &["build", "ssh://host/x.git"]), &["git fetch"]);
    assert!(line.contains("host") && !line.contains("-F none"), "{line}");
    is_clean(ctx);
}

/// The socket of the caller's agent is in a RUN that asks for it, and in no other.
fn an_agent_where_it_is_asked_for(ctx: &Ctx) {
    context(ctx);
    let socket = ctx.path("agent");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o600)).unwrap();
    ctx.give(&socket);
    let file = format!(
        "{BASE}RUN --mount=type=ssh [\"/probe\",\"env\",\"lstat /run/buildkit/ssh_agent.0\"]\n\
         RUN --mount=type=ssh,id=other,target=/tmp/agent [\"/probe\",\"env\"]\nRUN [\"/probe\",\"env\"]\n"
    );
    let with = |cmd: Cmd| cmd.env("SSH_AUTH_SOCK", &socket);
    let out = with(build(ctx, &file, &["--ssh", "default", "-t", "x"])).ok();
    let lines = said(&out);
    let agent = lines[0]["SSH_AUTH_SOCK"].as_str().unwrap();
    assert!(agent.starts_with("/run/buildkit/ssh_agent."), "{out:?}");
    assert_eq!(lines[1]["kind"], "socket", "{out:?}");
    for line in &lines[2..] {
        assert_eq!(line["SSH_AUTH_SOCK"], json!(null), "{out:?}");
    }
    assert!(!bundle(ctx, &out).join("rootfs/run/buildkit").exists());
    let named = format!("other={}", socket.display());
    let out = build(ctx, &file, &["--no-cache", "--ssh", &named]).ok();
    assert!(said(&out).iter().any(|line| line["SSH_AUTH_SOCK"] == "/tmp/agent"), "{out:?}");
    // Which socket it is, is no reason to run again; and without an agent a RUN that needs one is refused.
    refused(build(ctx, &file, &["--ssh", "default"]), &["--ssh default", "SSH_AUTH_SOCK"]);
    refused(build(ctx, &file, &["--ssh", "default=context/Containerfile"]), &["no socket of an agent"]);
    let required = file.replace("type=ssh ", "type=ssh,required ");
    refused(build(ctx, &required, &["--no-cache"]), &["line 4", "no agent \"default\"", "--ssh default"]);
    is_clean(ctx);
}
