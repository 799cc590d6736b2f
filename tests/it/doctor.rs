//! `rt doctor`: a host where containers start, and conditions that can be made.

use crate::fixture::{Ctx, Out};
use crate::runner::{skip, tests};
use serde_json::Value;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

tests! {
    EVERY { a_host_that_works }
    USER { limits_are_named, noexec_and_terminals_are_noted, wrong_files_are_problems, a_full_directory_is_noted,
        slurms_file_is_read, slurms_spool_is_looked_at, no_bundle_where_others_rename }
}

/// The check of this name.
fn check(out: &Out, name: &str) -> Value {
    let checks = out.json()["checks"].clone();
    let found = checks.as_array().unwrap().iter().find(|check| check["name"] == name).cloned();
    found.unwrap_or_else(|| panic!("no check {name}: {checks:#}"))
}

fn a_host_that_works(ctx: &Ctx) {
    let out = ctx.rt(["doctor", "--json"]).cwd(&ctx.dir).ok();
    assert_eq!((out.json()["ok"].clone(), out.stderr.as_str()), (true.into(), ""), "{out:?}");
    for name in ["kernel", "a container"] {
        assert_eq!(check(&out, name)["status"], "ok", "{out:?}");
    }
    let text = ctx.rt(["doctor"]).cwd(&ctx.dir).ok();
    assert!(text.stdout.starts_with("ok       kernel: Linux "), "{text:?}");
    // Nothing is left where it tried to write.
    let left = std::fs::read_dir(&ctx.dir).unwrap().flatten().map(|entry| entry.file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().contains("doctor")).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// `rt doctor --json` behind a shell command in a user and mount namespace, in which the caller is root.
fn behind(ctx: &Ctx, script: &str) -> Out {
    for program in ["/usr/bin/unshare", "/usr/bin/setpriv"] {
        if !std::path::Path::new(program).exists() {
            skip!("no {program}");
        }
    }
    let rt = format!("{} --root {} doctor --json", ctx.rt_path().display(), ctx.state.display());
    ctx.command("/usr/bin/unshare").args(["-Urm", "sh", "-ec", &script.replace("RT", &rt)]).run()
}

fn limits_are_named(ctx: &Ctx) {
    let out =
        behind(ctx, "echo 0 >/proc/sys/user/max_user_namespaces; exec setpriv --bounding-set=-sys_admin RT");
    assert_eq!((out.code, out.json()["ok"].clone()), (1, false.into()), "{out:?}");
    let found = check(&out, "user namespace");
    assert_eq!(found["status"], "problem");
    assert!(found["remedy"].as_str().unwrap().contains("sysctl -w user.max_user_namespaces="), "{found}");
    assert_eq!(check(&out, "a container")["status"], "problem");
}

fn noexec_and_terminals_are_noted(ctx: &Ctx) {
    let out =
        behind(ctx, "mount -t tmpfs none /dev/pts; mount -t tmpfs -o noexec none /mnt; cd /mnt; exec RT");
    assert_eq!(out.code, 0, "{out:?}");
    let bundles = check(&out, "bundles here");
    assert_eq!(bundles["status"], "note");
    assert!(bundles["text"].as_str().unwrap().contains("/mnt is mounted noexec"), "{bundles}");
    let terminals = check(&out, "terminals");
    assert_eq!(terminals["status"], "note");
    assert!(terminals["remedy"].as_str().unwrap().contains("devpts"), "{terminals}");
}

fn a_full_directory_is_noted(ctx: &Ctx) {
    for (option, remedy) in [("nr_inodes=2", "no inode is free"), ("size=4k", "the file system is full")] {
        let fill = "i=0; while [ $i -lt 4 ]; do i=$((i+1)); dd if=/dev/zero of=/mnt/f$i bs=4k count=1 2>/dev/null || :; done";
        let out = behind(ctx, &format!("mount -t tmpfs -o {option} none /mnt; {fill}; cd /mnt; exec RT"));
        let bundles = check(&out, "bundles here");
        assert_eq!(bundles["status"], "note");
        assert!(bundles["remedy"].as_str().unwrap().contains(remedy), "{option}: {bundles}");
    }
}

fn wrong_files_are_problems(ctx: &Ctx) {
    ctx.mkdir("config/rt/hooks.d");
    ctx.file("config/rt/config.toml", "[run]\nmount = []\n");
    ctx.file(
        "config/rt/hooks.d/x.json",
        r#"{"version":"1.0.0","hook":{"path":"/no/such/hook"},"when":{"always":true},"stages":["prestart"]}"#,
    );
    let rt = || {
        let cmd = ctx.rt(["doctor", "--json"]).env("XDG_CONFIG_HOME", ctx.path("config"));
        cmd.env("SSL_CERT_FILE", "/nonexistent").env("http_proxy", "http://user:secret@proxy:port")
    };
    let out = rt().run();
    assert_eq!(out.code, 1, "{out:?}");
    let found = check(&out, "configuration");
    assert_eq!(found["status"], "problem");
    assert!(found["text"].as_str().unwrap().contains("config.toml:2: unknown key"), "{found}");
    let found = check(&out, "hooks.d");
    assert!(found["text"].as_str().unwrap().contains("/no/such/hook is no program"), "{found}");
    assert_eq!(check(&out, "certificates")["status"], "note");
    let proxy = check(&out, "proxy");
    let text = proxy["text"].as_str().unwrap();
    assert!(text.contains("its port is no number") && !text.contains("secret"), "{text}");
}

fn slurms_file_is_read(ctx: &Ctx) {
    ctx.mkdir("slurm");
    let conf = ctx.file("slurm/slurm.conf", "");
    let found = || {
        let out = ctx.rt(["doctor", "--json"]).env("SLURM_CONF", &conf).cwd(&ctx.dir).ok();
        let slurm = check(&out, "Slurm");
        (slurm["status"].as_str().unwrap().to_owned(), slurm["text"].as_str().unwrap().to_owned())
    };
    let (status, text) = found();
    assert!(status == "note" && text.contains("oci.conf is missing"), "{status}: {text}");
    let rt = ctx.rt_path();
    for (line, expected, part) in [
        (format!("RunTimeRun=\"exec {} '--root=/x' slurm run\"", rt.display()), "ok", rt.to_str().unwrap()),
        (
            format!("#RunTimeRun=\"crun\"\n runtimecreate = A=b {} create", rt.display()),
            "ok",
            rt.to_str().unwrap(),
        ),
        ("RunTimeRun=\"/no/such/rt run\"".into(), "note", "/no/such/rt, which cannot be executed"),
        ("RunTimeRun=\"crun run %b\"".into(), "note", "names another runtime: crun run %b"),
        ("RunTimeKill=\"rt kill\"".into(), "note", "has no RunTimeRun"),
    ] {
        ctx.file("slurm/oci.conf", &format!("{line}\n"));
        let (status, text) = found();
        assert!(status == expected && text.contains(part), "{line}: {status}: {text}");
    }
}

/// Below a directory for tasks that shares a file system with one in which everybody's programs make files, these can be moved into it.
fn slurms_spool_is_looked_at(ctx: &Ctx) {
    ctx.mkdir("slurm");
    let spool = ctx.mkdir("spool");
    ctx.file("slurm/oci.conf", &format!("RunTimeRun=\"exec {} slurm run\"\n", ctx.rt_path().display()));
    let found = |conf: &str| {
        let conf = ctx.file("slurm/slurm.conf", conf);
        check(&ctx.rt(["doctor", "--json"]).env("SLURM_CONF", &conf).cwd(&ctx.dir).ok(), "SlurmdSpoolDir")
    };
    for (tmp, status) in [(ctx.dir.as_path(), "note"), (Path::new("/proc"), "ok")] {
        let conf = format!("slurmdspooldir = {}/%n/%h # here\nTmpFS={}\n", spool.display(), tmp.display());
        let found = found(&conf);
        let of_others = ["/tmp", "/var/tmp", "/dev/shm"].iter().any(|dir| is_same_device(dir, &spool));
        assert_eq!(found["status"], if of_others { "note" } else { status }, "{found}");
        let names_it = found["text"].as_str().unwrap().contains(tmp.to_str().unwrap());
        assert_eq!(names_it && found["remedy"].is_string(), status == "note", "{found}");
    }
}

fn is_same_device(dir: &str, other: &Path) -> bool {
    std::fs::metadata(dir).is_ok_and(|found| found.dev() == other.metadata().unwrap().dev())
}

/// Hooks of the bundle that is tried are executed.
fn no_bundle_where_others_rename(ctx: &Ctx) {
    let shared = ctx.mkdir("shared");
    for (mode, good) in [(0o777, false), (0o1777, true)] {
        std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(mode)).unwrap();
        let out = ctx.rt(["doctor", "--json"]).env("TMPDIR", &shared).run();
        let found = check(&out, "a container");
        assert_eq!(found["status"] == "ok", good, "{found}");
        assert_eq!(found.to_string().contains("others can rename"), !good, "{found}");
    }
}
