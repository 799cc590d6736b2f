//! What the site and the user have configured, and whom it is for.

use crate::client::Caller;
use crate::devices::definition;
use crate::fixture::{Bundle, Cmd, Ctx};
use crate::runner::{skip, tests};
use crate::sys;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

tests! {
    ALL { files_count_for_the_direct_form, clients_are_left_alone, links_of_others_in_a_home }
    BOTH { trace_says_who_has_said_what, variables_count_more, optional_and_missing_mounts, errors_name_the_line, tasks_have_the_jobs_variables }
    USER { another_users_file_is_refused, config_is_a_table }
    ROOT { the_account_says_what_no_variable_does, users_files_are_not_roots, the_sites_file_counts_less }
    USER { nothing_else_is_opened }
}

/// The caller's directory of configuration files, with `text` as config.toml.
fn config_home(ctx: &Ctx, text: &str) -> PathBuf {
    let home = ctx.mkdir("config-home");
    for (path, mode) in [(&home, 0o755), (&ctx.mkdir("config-home/rt"), 0o755)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let file = ctx.file("config-home/rt/config.toml", text);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    home
}

fn direct(ctx: &Ctx, bundle: &Bundle, home: &Path) -> Cmd {
    bundle.write();
    ctx.rt(["run"]).arg(&bundle.dir).env("XDG_CONFIG_HOME", home)
}

/// A bundle that shows its environment and the directory /there.
fn showing(ctx: &Ctx) -> Bundle {
    ctx.bundle().push("/process/env", json!("GONE_X=1")).ops(&["env", "exists /there/file"])
}

fn source(ctx: &Ctx) -> PathBuf {
    let dir = ctx.mkdir("source");
    ctx.file("source/file", "x");
    dir
}

fn full(ctx: &Ctx) -> PathBuf {
    config_home(
        ctx,
        &format!(
            "[run]\nmounts = [\"{}:/there:ro\"]\nenv = {{ SITE = \"alpha\" }}\npass-env = [\"PASS*\"]\nunset-env = [\"GONE*\"]\n",
            source(ctx).display()
        ),
    )
}

fn config_is_a_table(ctx: &Ctx) {
    let home = config_home(ctx, "[run]\nenv = { SITE = \"al\\tpha\" }\n");
    let out = ctx.rt(["config"]).env("XDG_CONFIG_HOME", &home).ok();
    let rows: Vec<Vec<&str>> = out.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["KEY", "VALUE", "FROM"]);
    let from = format!("{}:2", home.join("rt/config.toml").display());
    assert!(rows.contains(&vec!["run.env", "SITE=al\\tpha", &from]), "{out:?}");
    assert!(rows.contains(&vec!["run.mounts", "-", "-"]), "{out:?}");
    let column = out.stdout.find("FROM").unwrap();
    assert!(out.stdout.lines().all(|line| line.as_bytes()[column - 1] == b' '), "{out:?}");
}

fn files_count_for_the_direct_form(ctx: &Ctx) {
    let home = full(ctx);
    let out = direct(ctx, &showing(ctx), &home).env("PASSED", "p").ok();
    assert_eq!((&out.line(0)["SITE"], &out.line(0)["PASSED"]), (&json!("alpha"), &json!("p")));
    assert_eq!(out.line(0)["GONE_X"], Value::Null);
    assert_eq!(out.line(1), true);
    // What the command line says counts more.
    let bundle = showing(ctx);
    bundle.write();
    let run = ctx.rt(["run", "-e", "SITE=beta"]).arg(&bundle.dir).env("XDG_CONFIG_HOME", &home);
    let out = run.ok();
    assert_eq!((&out.line(0)["SITE"], &out.line(0)["PASSED"]), (&json!("beta"), &Value::Null));
}

/// A job of `sbatch --export=NONE` has neither HOME nor USER: passwd(5) has both.
fn the_account_says_what_no_variable_does(ctx: &Ctx) {
    for program in ["/usr/bin/unshare", "/usr/bin/setpriv", "/usr/bin/mount"] {
        if !Path::new(program).exists() {
            skip!("no {program}");
        }
    }
    let uid = Caller::User.host_ids().0;
    let home = ctx.mkdir("home/.config/rt").ancestors().nth(2).unwrap().to_owned();
    let text = "[images]\nstores = [\"/srv/$USER\"]\n[run]\nenv = { SITE = \"home\" }\n";
    let file = ctx.file("home/.config/rt/config.toml", text);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let passwd = ctx.file("passwd", &format!("ada:x:{uid}:{uid}::{}:/bin/sh\n", home.display()));
    let script = format!(
        "mount --bind {} /etc/passwd; exec setpriv --reuid {uid} --regid {uid} --clear-groups env -i {} config",
        passwd.display(),
        ctx.rt_path().display()
    );
    let out = ctx.command("/usr/bin/unshare").args(["-m", "sh", "-ec", &script]).ok();
    let has = |words: [&str; 2]| out.stdout.lines().any(|line| line.split_whitespace().take(2).eq(words));
    assert!(has(["images.stores", "/srv/ada"]) && has(["run.env", "SITE=home"]), "{out:?}");
}

fn clients_are_left_alone(ctx: &Ctx) {
    let home = full(ctx);
    let bundle = showing(ctx);
    bundle.write();
    let with_bundle = ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(ctx.id());
    let out = with_bundle.env("XDG_CONFIG_HOME", &home).env("RT_MOUNTS", "/nonexistent").ok();
    assert_eq!((&out.line(0)["SITE"], &out.line(0)["GONE_X"]), (&Value::Null, &json!("1")));
    assert_eq!(out.line(1), false);
    // Not even a file that is wrong.
    fs::write(home.join("rt/config.toml"), "nonsense").unwrap();
    let id = ctx.id();
    ctx.rt(["create", "--bundle"]).arg(&bundle.dir).arg(&id).env("XDG_CONFIG_HOME", &home).ok();
    ctx.rt(["delete", "--force", &id]).silent();
}

fn variables_count_more(ctx: &Ctx) {
    let home = config_home(ctx, "[run]\nenv = { A = \"file\", B = \"file\" }\nwritable = true\n");
    let source = source(ctx);
    let mounts = format!("{0}:/there:ro,nosuid,{0}:/mnt", source.display());
    let bundle = ctx.bundle().with("/root/readonly", json!(true)).ops(&[
        "env",
        "exists /there/file",
        "exists /mnt/file",
        "write /made x",
    ]);
    let call = |writable: &str| {
        let call = direct(ctx, &bundle, &home).env("RT_MOUNTS", &mounts).env("RT_ENV", "A=variable,C");
        call.env("C", "c").env("RT_WRITABLE", writable).run()
    };
    let out = call("1");
    let env = out.line(0);
    assert_eq!((&env["A"], &env["B"], &env["C"]), (&json!("variable"), &json!("file"), &json!("c")));
    assert_eq!((out.line(1), out.line(2)), (json!(true), json!(true)));
    assert_eq!(out.line(3), Value::Null, "{out:?}");
    assert!(!bundle.rootfs().join("made").exists(), "it was in memory");
    let out = call("0");
    assert_eq!(out.line(3), crate::fixture::errno(libc::EROFS), "{out:?}");
    direct(ctx, &bundle, &home)
        .env("RT_WRITABLE", "perhaps")
        .fails(&["RT_WRITABLE: \"perhaps\" is not 1 or 0"]);
}

fn optional_and_missing_mounts(ctx: &Ctx) {
    let source = source(ctx);
    let text = format!(
        "[run]\nmounts = [\n  {{ source = \"{0}\", target = \"/there\", options = [\"ro\"] }},\n  {{ source = \"{0}-none\", optional = true }},\n  \"/$NONE/x:/y:optional\",\n]\n",
        source.display()
    );
    let home = config_home(ctx, &text);
    let out = direct(ctx, &showing(ctx), &home).ok();
    assert_eq!(out.line(1), true);
    let home = config_home(ctx, &text.replace(", optional = true", ""));
    let file = home.join("rt/config.toml");
    let place =
        format!("{}:4: mount \"{}-none\": no such file or directory", file.display(), source.display());
    direct(ctx, &showing(ctx), &home).fails(&[&place, "optional = true leaves it out"]);
}

fn errors_name_the_line(ctx: &Ctx) {
    for (text, line, wrong) in [
        ("[run]\nmount = []", 2, "unknown key \"mount\"; did you mean mounts?"),
        ("[rnu]\nmounts = []", 1, "unknown table \"rnu\"; did you mean run?"),
        ("[run]\n\nwritable = \"yes\"", 3, "run.writable: it takes true or false"),
        ("[run]\nmounts = [\n\"/a:/b:rp\"]", 3, "run.mounts: mount \"/a:/b:rp\": unknown option \"rp\""),
        ("[run]\nmounts = [\"a:/b\"]", 2, "source \"a\" is not an absolute path"),
        (
            "[run]\nmounts = [{ source = \"/a\", optinal = true }]",
            2,
            "unknown key \"optinal\"; did you mean optional?",
        ),
        ("[run]\nmounts = [\"/$NONE\"]", 2, "the variable NONE is not set"),
        ("[run]\nenv = { \"A=B\" = \"x\" }", 2, "run.env: A=B: it takes a name and a text"),
        (
            "[pull]\nprofile = \"isolate\"",
            2,
            "pull.profile: \"isolate\" is not hpc or isolated; did you mean isolated?",
        ),
        ("[run\n", 1, "unclosed table"),
        ("[pull]\nretries = -1", 2, "pull.retries: it takes a whole number, 0 or more"),
        ("run = 1", 1, "run is a table"),
    ] {
        let home = config_home(ctx, text);
        let place = format!("{}:{line}: ", home.join("rt/config.toml").display());
        for command in [direct(ctx, &showing(ctx), &home), ctx.rt(["config"]).env("XDG_CONFIG_HOME", &home)] {
            command.fails(&[&place, wrong]);
        }
    }
}

/// The bundle that Slurm generates: with the job's variables, beside that of the image.
fn generated(ctx: &Ctx, variables: &[&str]) -> Bundle {
    let image = showing(ctx);
    image.write();
    let mut config = image.config.clone();
    config["root"]["path"] = json!(image.rootfs());
    config["process"]["env"].as_array_mut().unwrap().extend(variables.iter().map(|variable| json!(variable)));
    let dir = image.dir.with_extension("generated");
    fs::create_dir(&dir).unwrap();
    ctx.give(&dir);
    let generated = Bundle { dir, config, ids: image.ids };
    generated.write();
    generated
}

/// Slurm calls rt without the job's variables, which are in the config.
fn tasks_have_the_jobs_variables(ctx: &Ctx) {
    let home = full(ctx);
    let container = format!("{}.42.0", ctx.id());
    ctx.remember(&container);
    let bundle = generated(
        ctx,
        &[&format!("XDG_CONFIG_HOME={}", home.display()), "RT_MOUNTS=/nonexistent/x:/x:optional"],
    );
    for task in 0..2 {
        let out =
            ctx.rt(["slurm", "run", "--bundle"]).arg(&bundle.dir).arg(format!("{container}.{task}")).ok();
        assert_eq!((&out.line(0)["SITE"], &out.line(0)["GONE_X"]), (&json!("alpha"), &Value::Null));
        assert_eq!(out.line(1), true);
    }
    let bundle = generated(ctx, &["RT_MOUNTS=/nonexistent/x:/x"]);
    ctx.rt(["slurm", "run", "--bundle"])
        .arg(&bundle.dir)
        .arg(format!("{container}.3"))
        .fails(&["RT_MOUNTS: mount \"/nonexistent/x\""]);
}

/// The line of `--trace` has for each value that several may say the files, lines, variables and callers it comes from.
fn trace_says_who_has_said_what(ctx: &Ctx) {
    let home = full(ctx);
    let file = home.join("rt/config.toml");
    let line = |number: usize| format!("{}:{number}", file.display());
    let trace = ctx.path("trace.jsonl");
    let origins = || {
        let text = fs::read_to_string(&trace).unwrap();
        let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        last["origins"].clone()
    };
    let bundle = showing(ctx);
    bundle.write();
    let run = ctx.rt(["run", "-e", "X=1", "--read-only", "--trace"]).arg(&trace).arg(&bundle.dir);
    run.env("XDG_CONFIG_HOME", &home).env("RT_WRITABLE", "1").env("RT_ENV", "Y=2").ok();
    let expected = json!({
        "mounts": [line(2)],
        "env": [line(3), "RT_ENV", line(4), "command line"],
        "unset-env": [line(5)],
        "root": ["command line"],
    });
    assert_eq!(origins(), expected);
    // The plugin's variables count in a bundle that Slurm has generated, over the command line.
    let config = format!("XDG_CONFIG_HOME={}", home.display());
    let bundle = generated(ctx, &[&config, "RT_CONTAINER_WRITABLE=0", "RT_CONTAINER_REMAP_ROOT=0"]);
    let id = format!("{}.42.0.0", ctx.id());
    ctx.remember(&id);
    let run = ctx.rt(["slurm", "run", "--share=false", "--user-map", "root", "--trace"]).arg(&trace);
    run.arg("--bundle").arg(&bundle.dir).arg(&id).ok();
    let found = origins();
    assert_eq!((&found["root"], &found["user-map"]), (&json!(["step"]), &json!(["step"])), "{found}");
    assert_eq!(found["mounts"], json!([line(2)]), "{found}");
    // Where nobody says anything, there is nothing to tell.
    let bundle = showing(ctx);
    bundle.write();
    ctx.rt(["run", "--trace"]).arg(&trace).arg("--bundle").arg(&bundle.dir).arg(ctx.id()).run();
    assert_eq!(origins(), Value::Null);
}

fn another_users_file_is_refused(ctx: &Ctx) {
    let home = full(ctx);
    let file = home.join("rt/config.toml");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    direct(ctx, &showing(ctx), &home).fails(&["others than its owner may write it (chmod go-w)"]);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    if sys::euid() != 0 {
        skip!("only root can give a file away");
    }
    sys::chown(&file, 4321, 4321).unwrap();
    assert_eq!(direct(ctx, &showing(ctx), &home).ok().line(0)["SITE"], Value::Null);
    sys::chown(&file, 0, 0).unwrap();
    direct(ctx, &showing(ctx), &home).ok();
}

/// After su, HOME may be that of a user, who must not choose what root mounts.
fn users_files_are_not_roots(ctx: &Ctx) {
    let home = full(ctx);
    for path in [home.join("rt/config.toml"), home.join("rt"), home.clone()] {
        sys::chown(&path, 4321, 4321).unwrap();
        let out = direct(ctx, &showing(ctx), &home).ok();
        assert_eq!(out.line(0)["SITE"], Value::Null);
        sys::chown(&path, 0, 0).unwrap();
    }
    assert_eq!(direct(ctx, &showing(ctx), &home).ok().line(0)["SITE"], "alpha");
}

/// A tree of the caller's, as an image that he has unpacked, is no configuration of his because another user, whose HOME he has after su,
/// leads there.
fn links_of_others_in_a_home(ctx: &Ctx) {
    if !Caller::tests_are_root() {
        skip!("only root gives files to others");
    }
    const OTHER: u32 = 12345;
    let bundle = showing(ctx);
    bundle.write();
    let journal = ctx.file("journal", "");
    let tree = ctx.mkdir("tree");
    ctx.mkdir("tree/rt/hooks.d");
    let note = format!("to {} say called", journal.display());
    let hook = definition(&ctx.helper(), &[&note], json!({ "always": true }), &["createRuntime"]);
    ctx.file("tree/rt/hooks.d/note.json", &hook.to_string());
    ctx.file("tree/rt/config.toml", "[run]\nenv = { SITE = \"alpha\" }\n");
    for (path, mode) in
        [("rt", 0o755), ("rt/hooks.d", 0o755), ("rt/hooks.d/note.json", 0o644), ("rt/config.toml", 0o644)]
    {
        fs::set_permissions(tree.join(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    ctx.give(&tree);
    let home = ctx.mkdir("home");
    let link = home.join(".config");
    symlink(&tree, &link).unwrap();
    let counts = || {
        fs::write(&journal, "").unwrap();
        let out = ctx.rt(["--log-level", "warn", "run"]).arg(&bundle.dir).env("HOME", &home).ok();
        (out.line(0)["SITE"] == "alpha", !fs::read_to_string(&journal).unwrap().is_empty(), out.stderr)
    };
    ctx.give_link(&link);
    let (configured, hooked, stderr) = counts();
    assert_eq!((configured, hooked), (true, true), "the caller's own link: {stderr}");
    // A link of another user's that has come into a directory of the caller's, and one in a home that is not the caller's.
    sys::chown(&link, OTHER, OTHER).unwrap();
    for _ in 0..2 {
        let (configured, hooked, stderr) = counts();
        assert_eq!((configured, hooked), (false, false), "{stderr}");
        for file in ["config.toml", "hooks.d"] {
            assert!(
                stderr.lines().any(|line| line.contains(file) && line.contains("can change")),
                "{stderr}"
            );
        }
        sys::chown(&home, OTHER, OTHER).unwrap();
    }
}

fn the_sites_file_counts_less(ctx: &Ctx) {
    assert_eq!(ctx.caller, Caller::Root);
    let source = source(ctx);
    let home = config_home(ctx, "[run]\nenv = { A = \"user\" }\n");
    sys::mount("none", "/etc", "tmpfs", 0, "mode=755").unwrap();
    let site = Path::new("/etc/rt/config.toml");
    fs::create_dir("/etc/rt").unwrap();
    let text = format!(
        "[run]\nmounts = [\"{}:/there\"]\nenv = {{ A = \"site\", B = \"site\" }}\n",
        source.display()
    );
    fs::write(site, text).unwrap();
    let out = direct(ctx, &showing(ctx), &home).run();
    let listed = ctx.rt(["config", "--json"]).env("XDG_CONFIG_HOME", &home).run();
    sys::chown(site, 4321, 4321).unwrap();
    let others = direct(ctx, &showing(ctx), &home).run();
    sys::umount("/etc", libc::MNT_DETACH).unwrap();
    assert_eq!((&out.line(0)["A"], &out.line(0)["B"]), (&json!("user"), &json!("site")));
    assert_eq!(out.line(1), true);
    let listed = listed.json();
    assert_eq!(listed["keys"]["run.mounts"][0]["file"], "/etc/rt/config.toml");
    assert_eq!(listed["keys"]["run.mounts"][0]["line"], 2);
    assert_eq!(listed["keys"]["run.env"][0]["value"], json!({ "name": "B", "value": "site" }));
    others.failed(&["/etc/rt/config.toml: it belongs to uid 4321, not to root"]);
}

/// A start that nothing is configured for looks whether the two files are there, and does nothing else for them.
fn nothing_else_is_opened(ctx: &Ctx) {
    if !Path::new("/usr/bin/strace").exists() {
        skip!("no strace");
    }
    let bundle = ctx.bundle().ops(&["ready"]);
    bundle.write();
    let trace = |args: &[&str]| {
        let file = ctx.path("trace");
        let cmd = ctx
            .command("/usr/bin/strace")
            .args(["-f", "-qq", "-s", "200", "-o"])
            .arg(&file)
            .arg(ctx.rt_path());
        cmd.arg("--root").arg(&ctx.state).args(args).env("HOME", ctx.path("home")).ok();
        let text = fs::read_to_string(&file).unwrap();
        let named = text.lines().filter(|line| line.contains("config.toml")).map(str::to_owned);
        named.collect::<Vec<_>>()
    };
    let dir = bundle.dir.to_str().unwrap();
    // From then on the kernel remembers that nothing is there, so the way to the user's is not gone.
    trace(&["run", dir]);
    let direct = trace(&["run", dir]);
    assert_eq!(direct.len(), 2, "{direct:#?}");
    assert!(direct.iter().all(|line| line.contains("ENOENT")), "{direct:#?}");
    assert!(direct[0].contains("stat") && direct[1].contains("RESOLVE_CACHED"), "{direct:#?}");
    assert!(trace(&["run", "-b", dir, &ctx.id()]).is_empty());
}
