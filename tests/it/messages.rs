//! Errors that name what is missing: what somebody gets wrong on the first day.

use crate::fixture::{Bundle, Ctx};
use crate::runner::tests;
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

tests! {
    ALL { values_in_other_programs_places, a_container_is_no_image, programs_that_cannot_be_executed, relative_programs_say_where_they_begin, noexec_mounts_are_named, nothing_foreign_steers_a_terminal }
    USER { options_suggest_the_nearest, parameters_of_a_tmpfs, a_closed_working_directory }
}

/// What an image, a config or another user has named steers no terminal and turns no text around, on stdout, on stderr or in
/// a log.
fn nothing_foreign_steers_a_terminal(ctx: &Ctx) {
    // CSI as one character, marks of direction (UAX #9), and delete.
    let evil = "\u{9b}31m\u{202e}a\u{2066}b\u{200f}c\u{61c}d\u{7f}";
    let is_plain = |text: &str, from: &str| {
        let steers = |c: char| c.is_control() && c != '\n' || "\u{202e}\u{2066}\u{200f}\u{61c}".contains(c);
        assert!(!text.chars().any(steers), "{from}: {text:?}");
        assert!(text.contains("31m"), "{from} does not name it: {text:?}");
    };
    let bundle = ctx.bundle().with("/annotations", json!({ evil: evil }));
    bundle.write();
    let dir = ctx.path(evil);
    fs::rename(&bundle.dir, &dir).unwrap();
    let id = ctx.id();
    ctx.rt(["create", "--bundle"]).arg(&dir).arg(&id).silent();
    let state = ctx.rt(["state", &id]).ok();
    assert_eq!((&state.json()["annotations"][evil], &state.json()["bundle"]), (&json!(evil), &json!(dir)));
    is_plain(&state.stdout, "state");
    let list = ctx.rt(["list", "--format", "json"]).ok();
    assert_eq!(list.json()[0]["bundle"], json!(dir));
    is_plain(&list.stdout, "list --format json");
    is_plain(&ctx.rt(["list"]).ok().stdout, "list");
    ctx.rt(["delete", "--force", &id]).silent();
    for format in ["text", "json"] {
        let log = ctx.path(&format!("log-{format}"));
        let missing = dir.join("not/there");
        let run = || ctx.rt(["--log-format", format, "--log"]).arg(&log).args(["run", "--bundle"]);
        let out = run().arg(&missing).arg(ctx.id()).run();
        assert_ne!(out.code, 0, "{out:?}");
        is_plain(&out.stderr, "stderr");
        is_plain(&fs::read_to_string(&log).unwrap(), format);
    }
}

fn program(bundle: &Bundle, name: &str, text: &[u8]) {
    let path = bundle.file(name, "");
    fs::write(&path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// An ELF file of `machine` (elf(5)) with `loader` as its interpreter.
fn elf(machine: u16, loader: &str) -> Vec<u8> {
    let mut file = vec![0u8; 120];
    file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    file[16..18].copy_from_slice(&2u16.to_le_bytes());
    file[18..20].copy_from_slice(&machine.to_le_bytes());
    file[20..24].copy_from_slice(&1u32.to_le_bytes());
    file[32..40].copy_from_slice(&64u64.to_le_bytes());
    for (at, value) in [(52, 64u16), (54, 56), (56, 1)] {
        file[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }
    file[64..68].copy_from_slice(&3u32.to_le_bytes());
    file[72..80].copy_from_slice(&120u64.to_le_bytes());
    file[96..104].copy_from_slice(&(loader.len() as u64 + 1).to_le_bytes());
    file.extend(loader.as_bytes());
    file.push(0);
    file
}

fn programs_that_cannot_be_executed(ctx: &Ctx) {
    let (own, other, other_name) =
        if cfg!(target_arch = "aarch64") { (183, 62, "x86_64") } else { (62, 183, "aarch64") };
    let mut bundle = ctx.bundle();
    for (text, errno, hint) in [
        (
            b"#!/no/such/python3 -u\nx".to_vec(),
            "no such file or directory",
            "the interpreter of its first line, /no/such/python3: no such file or directory",
        ),
        (b"#!/probe\r\n".to_vec(), "no such file or directory", "ends in a carriage return"),
        (
            elf(own, "/lib/ld-of-another-libc.so.1"),
            "no such file or directory",
            "the dynamic loader that it is linked for, /lib/ld-of-another-libc.so.1: no such file or directory",
        ),
        (elf(other, "/x"), "exec format error", other_name),
        (b"".to_vec(), "exec format error", "the file is empty"),
        (b"echo hello\n".to_vec(), "exec format error", "neither an ELF program nor a script"),
    ] {
        program(&bundle, "prog", &text);
        bundle.set("/process/args", json!(["/prog"]));
        ctx.run(&bundle).failed(&["exec \"/prog\": ", errno, hint]);
    }
}

/// A script of the caller's own directory is not in the container, unless that is mounted.
fn relative_programs_say_where_they_begin(ctx: &Ctx) {
    let bundle = ctx.bundle();
    bundle.write();
    let out = ctx.rt(["run"]).arg(&bundle.dir).arg("./train.sh").run();
    let said = "exec: \"./train.sh\": stat ./train.sh: no such file or directory \
                (the working directory inside is /: rt run has -w DIR and --home for another)";
    assert!(out.code != 0 && out.stderr.contains(said), "{out:?}");
    let out = ctx.rt(["run"]).arg(&bundle.dir).arg("/train.sh").run();
    assert!(out.stderr.contains("no such file") && !out.stderr.contains("--home"), "{out:?}");
}

/// The working directory has a name, and "." has none.
fn a_closed_working_directory(ctx: &Ctx) {
    let dir = ctx.mkdir("closed");
    ctx.give(&dir);
    for words in ["create c1", "spec"] {
        let script = format!("chmod 0 . && exec {} {words}", ctx.rt_path().display());
        let out = ctx.command("sh").args(["-c", &script]).cwd(&dir).run();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
        let said = format!("{}: permission denied", dir.display());
        assert!(out.code != 0 && out.stderr.contains(&said), "{words}: {out:?}");
    }
}

/// What stands where Apptainer's flags take a value, or none, and those of `rt` do not. Nothing is pulled or made before.
fn values_in_other_programs_places(ctx: &Ctx) {
    let bundle = ctx.bundle();
    bundle.write();
    let home = ctx.mkdir("home/me");
    let layer = ctx.path("layer:ro");
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    for (words, texts) in [
        (vec!["-e".into(), "debian:12".into()], &["\"debian:12\" is no name", "--clear-env"][..]),
        (
            vec!["-w".into(), "debian:12".into(), "registry.invalid/x".into()],
            &["debian:12", "absolute", "--writable"],
        ),
        (vec!["--home".into(), text(&home)], &["me", "--home takes no directory", "-v "]),
        (
            vec!["--home".into(), format!("{}:/home/x", text(&home))],
            &["me:/home/x", "--home takes no directory"],
        ),
        (vec!["--overlay".into(), text(&layer)], &["layer:ro", "--overlay DIR --read-only"]),
    ] {
        ctx.rt(["run"]).args(&words).arg(&bundle.dir).fails(texts);
    }
    assert!(!layer.exists() && !ctx.state.exists(), "nothing was made");
    // A directory that has such a name is one.
    fs::create_dir(&layer).unwrap();
    ctx.give(&layer);
    ctx.rt(["run", "--overlay"]).arg(&layer).arg(&bundle.dir).ok();
    let id = ctx.id();
    ctx.rt(["run", "-d", "-b"]).arg(&bundle.ops(&["pause"]).dir).arg(&id).ok();
    let exec = |words: &[&str]| ctx.rt(["exec"]).args(words).args(["/probe", "id"]);
    exec(&["-u", "nobody", &id]).fails(&["--user \"nobody\"", "in numbers"]);
    assert_eq!(exec(&["-u", "root", &id]).run().stderr, exec(&["-u", "0", &id]).run().stderr);
    exec(&[&format!("instance://{id}")]).fails(&["instance://", &format!("rt exec {id}")]);
    ctx.rt(["delete", "--force", &id]).silent();
}

/// docker's `inspect` knows containers, too.
fn a_container_is_no_image(ctx: &Ctx) {
    let id = ctx.id();
    let bundle = ctx.bundle().ops(&["pause"]);
    ctx.rt(["run", "-d", "-b"]).arg(&bundle.dir).arg(&id).ok();
    ctx.rt(["inspect", &id]).fails(&[&id, "a container", &format!("rt state {id}")]);
    ctx.rt(["delete", "--force", &id]).silent();
}

fn noexec_mounts_are_named(ctx: &Ctx) {
    let dir = ctx.mkdir("tools");
    let tool = ctx.file("tools/tool", "#!/probe\n");
    fs::set_permissions(tool, fs::Permissions::from_mode(0o755)).unwrap();
    let mut bundle = ctx.bundle().mount("/tools", "bind", dir.to_str().unwrap(), &["bind", "noexec"]);
    for words in [json!(["/tools/tool"]), json!(["tool"])] {
        bundle.set("/process/args", words);
        bundle.set("/process/env", json!(["PATH=/bin:/tools"]));
        ctx.run(&bundle).failed(&["permission denied", "the file system of /tools/tool is mounted noexec"]);
    }
}

fn options_suggest_the_nearest(ctx: &Ctx) {
    let bundle = ctx.bundle();
    bundle.write();
    let run = |flag: &str, value: &str| ctx.rt(["run"]).args([flag, value]).arg(&bundle.dir);
    run("-v", "/tmp:/x:nosiud").fails(&["volume \"/tmp:/x:nosiud\"", "did you mean nosuid?"]);
    run("--mount", "type=bind,souce=/tmp,target=/x").fails(&["unknown key \"souce\"; did you mean source?"]);
    run("-v", "/no/such/dir:/x").fails(&["/no/such/dir", "no such file or directory"]);
}

/// What is no option of rt goes to the kernel, which says what it does not know.
fn parameters_of_a_tmpfs(ctx: &Ctx) {
    let bundle = ctx.bundle().mount("/x", "tmpfs", "tmpfs", &["szie=64k"]);
    ctx.run(&bundle).failed(&["/x", "szie"]);
}
