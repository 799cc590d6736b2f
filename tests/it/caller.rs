//! What a bundle leaves to be settled for whoever runs it: account files, home, optional mounts, and what root
//! of one id cannot do.

use crate::client::Caller;
use crate::fixture::{Bundle, Ctx, errno};
use crate::runner::tests;
use serde_json::{Value, json};
use std::os::unix::fs::MetadataExt;

tests! {
    USER {
        the_caller_has_an_account, account_of_a_read_only_root, account_files_of_the_image_are_hostile,
        images_annotations_show_nothing_of_the_caller, images_annotations_decide_no_mount, account_leaves_mounts_of_the_config, home_is_mounted, home_that_is_missing_is_left_out,
        root_is_emulated, root_of_a_config_is_not_emulated, own_filter_beats_the_emulation, exec_emulates_root_too,
        root_has_every_capability, listed_capabilities_stay, an_allowing_filter_is_emulated_through,
    }
    BOTH { optional_mounts_are_left_out, annotations_of_the_caller_are_checked }
    NESTED {
        root_has_every_capability, root_is_emulated, root_of_a_config_is_not_emulated, own_filter_beats_the_emulation,
        exec_emulates_root_too, an_allowing_filter_is_emulated_through, a_variable_asks_for_the_emulation,
    }
    EVERY { another_users_bundle, only_one_id_is_emulated, images_annotations_choose_no_user }
    ROOT { root_keeps_the_images_account, real_root_is_not_emulated }
}

/// A bundle as `rt pull` makes one.
fn pulled(ctx: &Ctx, annotations: &[(&str, &str)]) -> Bundle {
    let mut all = serde_json::Map::new();
    all.insert("rt.user".into(), json!("caller"));
    all.extend(annotations.iter().map(|(key, value)| ((*key).to_owned(), json!(value))));
    ctx.bundle().with("/annotations", Value::Object(all))
}

fn run(ctx: &Ctx, bundle: &Bundle, env: &[(&str, &str)]) -> Vec<Value> {
    let mut cmd = ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(ctx.id());
    for (name, value) in env {
        cmd = cmd.env(name, value);
    }
    let out = cmd.run();
    assert_eq!((out.code, out.stderr.as_str()), (0, ""), "{out:?}");
    out.all()
}

const IMAGE_PASSWD: &str = "root:x:0:0:root:/root:/bin/probe\nalice:x:1000:1000::/home:/bin/probe\n";

fn the_caller_has_an_account(ctx: &Ctx) {
    let (uid, gid) = ctx.caller.host_ids();
    let bundle = pulled(ctx, &[("rt.passwd", "caller")]).ops(&[
        "cat /etc/passwd",
        "cat /etc/group",
        "env",
        "write /etc/passwd x",
        "write /etc/new x",
    ]);
    let before = bundle.tree();
    let all = run(ctx, &bundle, &[("USER", "jane.doe"), ("HOME", "/home/jane")]);
    // The home is not mounted, so that it cannot be it.
    assert_eq!(all[0], format!("jane.doe:*:{uid}:{gid}::/tmp:/bin/sh\n{IMAGE_PASSWD}"));
    assert_eq!(all[1], format!("root:x:0:\nalice:x:1000:\njane.doe:x:{gid}:\n"));
    assert_eq!(all[2]["HOME"], "/tmp");
    assert_eq!(all[3], errno(libc::EROFS));
    assert_eq!(all[4], Value::Null, "the rest of the directory is as it was");
    std::fs::remove_file(bundle.rootfs().join("etc/new")).unwrap();
    assert_eq!(bundle.tree(), before, "the image was written to");
    // A name of somebody else in the image, and one that is none.
    for (name, shown) in [("alice", format!("u{uid}")), ("a:b", "user".to_owned())] {
        let all = run(ctx, &bundle, &[("USER", name)]);
        let line = all[0].as_str().unwrap().lines().next().unwrap().to_owned();
        assert_eq!(line, format!("{shown}:*:{uid}:{gid}::/tmp:/bin/sh"));
    }
}

fn account_of_a_read_only_root(ctx: &Ctx) {
    let bundle = pulled(ctx, &[("rt.passwd", "caller")]).with("/root/readonly", json!(true));
    std::fs::remove_file(bundle.rootfs().join("etc/group")).unwrap();
    let bundle =
        bundle.ops(&["cat /etc/passwd", "cat /etc/group", "write /etc/x x", "ls /", "ls /proc/self/fd"]);
    let before = bundle.strict_tree();
    let all = run(ctx, &bundle, &[("USER", "jane")]);
    assert!(all[0].as_str().unwrap().starts_with("jane:*:"));
    assert_eq!(all[1], format!("jane:x:{}:\n", ctx.caller.host_ids().1));
    assert_eq!(all[2], errno(libc::EROFS));
    assert!(all[3].as_array().unwrap().contains(&json!("etc")), "the root is the image's again: {}", all[3]);
    assert_eq!(all[4], json!(["0", "1", "2", "3"]), "nothing stays open");
    assert_eq!(bundle.strict_tree(), before, "the image was touched");
}

fn account_files_of_the_image_are_hostile(ctx: &Ctx) {
    let secret = ctx.file("secret", "secret");
    for target in [
        secret.display().to_string(),
        format!("../../../../../../..{}", secret.display()),
        "/proc/self/environ".to_owned(),
        "/proc/self/exe".to_owned(),
        "/etc".to_owned(),
        "loop".to_owned(),
    ] {
        let bundle = pulled(ctx, &[("rt.passwd", "caller")]).ops(&["cat /etc/passwd"]);
        bundle.link("etc/passwd", &target);
        bundle.link("etc/loop", "loop");
        let out = ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(ctx.id()).env("SECRET", "1").run();
        assert!(!out.stdout.contains("secret") && !out.stdout.contains("SECRET"), "{target}: {out:?}");
        if out.code != 0 {
            assert_eq!(out.stderr.trim_end().lines().count(), 1, "{target}: {out:?}");
        }
        assert_eq!(std::fs::read_to_string(&secret).unwrap(), "secret");
    }
    // A FIFO must not block, and a huge file not be read.
    let bundle = pulled(ctx, &[("rt.passwd", "caller")]).ops(&["cat /etc/passwd", "cat /etc/group"]);
    std::fs::remove_file(bundle.rootfs().join("etc/passwd")).unwrap();
    crate::sys::mknod(&bundle.rootfs().join("etc/passwd").display().to_string(), libc::S_IFIFO | 0o644, 0, 0)
        .unwrap();
    let huge = std::fs::File::create(bundle.rootfs().join("etc/group")).unwrap();
    huge.set_len(1 << 40).unwrap();
    let all = run(ctx, &bundle, &[("USER", "jane")]);
    assert!(
        all[0].as_str().unwrap().starts_with("jane:*:") && all[1].as_str().unwrap().starts_with("jane:x:")
    );
}

fn account_leaves_mounts_of_the_config(ctx: &Ctx) {
    let own = ctx.file("passwd", "own:x:1:1::/:/\n");
    let bundle = pulled(ctx, &[("rt.passwd", "caller")])
        .mount("/etc/passwd", "bind", own.to_str().unwrap(), &["bind", "ro"])
        .ops(&["cat /etc/passwd", "cat /etc/group"]);
    let all = run(ctx, &bundle, &[("USER", "jane")]);
    assert_eq!(all[0], "own:x:1:1::/:/\n");
    assert!(all[1].as_str().unwrap().contains("jane:x:"));
}

fn images_annotations_show_nothing_of_the_caller(ctx: &Ctx) {
    // podman gives a container the annotations of its image's manifest, beside its own.
    let home = ctx.mkdir("home/jane");
    ctx.file("home/jane/secret", "secret");
    let home = home.to_str().unwrap();
    let secret = format!("{home}/secret");
    let asked = [("rt.home", "bind"), ("rt.environment", "caller")];
    for (marker, pulled_by_rt) in
        [(None, false), (Some(PODMANS), false), (Some(UMOCIS), false), (Some(UMOCIS), true)]
    {
        let annotations: Vec<_> = asked.into_iter().chain(marker).collect();
        let bundle = pulled(ctx, &annotations).ops(&[&format!("exists {secret}"), "env"]);
        if pulled_by_rt {
            std::fs::write(bundle.dir.join("image.json"), "{}").unwrap();
        }
        let all = run(ctx, &bundle, &[("HOME", home), ("TOKEN", "secret")]);
        let shown = json!(marker.is_none() || pulled_by_rt);
        assert_eq!((&all[0], json!(all[1]["TOKEN"] == "secret")), (&shown, shown.clone()), "{marker:?}");
        // A copy that the caller has made counts as the config itself.
        let text = std::fs::read_to_string(bundle.dir.join("config.json")).unwrap();
        let copy = ctx.file("copy.json", &text);
        let cmd = ctx.rt(["run", "-f"]).arg(&copy).arg("--bundle").arg(&bundle.dir).arg(ctx.id());
        assert_eq!(cmd.env("HOME", home).ok().line(0), shown, "{marker:?}");
    }
}

/// podman's name in a config, beside which annotations may be those of the image's manifest.
const PODMANS: (&str, &str) = ("io.container.manager", "libpod");
/// What umoci writes, beside which annotations may be the image's labels.
const UMOCIS: (&str, &str) = ("org.opencontainers.image.created", "2026-01-01T00:00:00Z");

fn images_annotations_choose_no_user(ctx: &Ctx) {
    let podmans = |annotation, marker| {
        let list = json!({ "uid": 7, "gid": 8, "additionalGids": if ctx.caller == Caller::Root { json!([9]) } else { json!([]) } });
        pulled(ctx, &[annotation, marker]).with("/process/user", list)
    };
    let one_id = [Caller::User, Caller::Nested].contains(&ctx.caller);
    for (name, value) in [
        ("rt.user", "root"),
        ("rt.user", "caller"),
        ("rt.user", "nonsense"),
        ("run.oci.keep_original_groups", "1"),
    ] {
        for marker in [PODMANS, UMOCIS] {
            let bundle = match one_id {
                // In a user namespace of the container's own it has the id that the config names.
                true => of_another_user(podmans((name, value), marker)),
                false => podmans((name, value), marker),
            };
            let id = &run(ctx, &bundle.ops(&["id"]), &[])[0];
            assert_eq!((&id["uid"], &id["gid"]), (&json!([7, 7, 7]), &json!([8, 8, 8])), "{name} {marker:?}");
            match ctx.caller {
                Caller::Root => assert_eq!(id["groups"], json!([9]), "{name} {marker:?}"),
                // A user's podman has no other word for keep-groups.
                Caller::Range if name == "run.oci.keep_original_groups" && marker == PODMANS => {}
                Caller::Range => assert_eq!(id["groups"], json!([]), "{name} {marker:?}"),
                _ => {}
            }
        }
    }
    // Nor has root more than the config says, where the annotation only repeats it.
    let bundle = podmans(("rt.user", "root"), PODMANS).with("/process/user", json!({ "uid": 0, "gid": 0 }));
    let bundle = bundle.unset("/process", "capabilities").ops(&["status"]);
    assert_eq!(sets(&run(ctx, &bundle, &[])[0])[1], "0000000000000000");
}

fn images_annotations_decide_no_mount(ctx: &Ctx) {
    let missing = |marker: Option<(&str, &str)>| {
        let annotations: Vec<_> = marker.into_iter().chain([("rt.mounts.optional", "/mnt")]).collect();
        ctx.run(&pulled(ctx, &annotations).mount("/mnt", "bind", "/not/there", &["bind"]).ops(&["ready"]))
    };
    assert_eq!(missing(None).code, 0);
    for marker in [PODMANS, UMOCIS] {
        missing(Some(marker)).failed(&["/not/there", "no such file or directory"]);
        let bundle = pulled(ctx, &[("rt.passwd", "caller"), marker]).ops(&["cat /etc/passwd"]);
        assert_eq!(run(ctx, &bundle, &[("USER", "jane.doe")])[0], IMAGE_PASSWD);
    }
}

fn home_is_mounted(ctx: &Ctx) {
    let home = ctx.mkdir("home/jane");
    ctx.mkdir("data");
    let home = home.to_str().unwrap();
    let file = format!("{home}/made");
    let bundle = pulled(ctx, &[("rt.passwd", "caller"), ("rt.home", "bind")])
        .mount(&format!("{home}/data"), "bind", ctx.path("data").to_str().unwrap(), &["bind"])
        .ops(&["env", &format!("write {file} x"), &format!("write {home}/data/below x"), "cat /etc/passwd"]);
    ctx.mkdir("home/jane/data");
    let all = run(ctx, &bundle, &[("USER", "jane"), ("HOME", home)]);
    assert_eq!((&all[0]["HOME"], &all[1], &all[2]), (&json!(home), &Value::Null, &Value::Null));
    assert!(all[3].as_str().unwrap().contains(&format!("::{home}:/bin/sh\n")));
    assert!(std::path::Path::new(&file).is_file());
    assert!(ctx.path("data/below").is_file(), "a mount below home is not hidden by it");
}

fn home_that_is_missing_is_left_out(ctx: &Ctx) {
    let bundle = pulled(ctx, &[("rt.home", "bind")]).ops(&["ready"]);
    for home in ["/not/there", "relative", "/", ""] {
        assert_eq!(run(ctx, &bundle, &[("HOME", home)])[0], "ready", "{home}");
    }
}

fn optional_mounts_are_left_out(ctx: &Ctx) {
    let there = ctx.file("there", "there");
    let bundle = |list: &str| {
        ctx.bundle()
            .with("/annotations", json!({ "rt.mounts.optional": list }))
            .mount("/mnt/a", "bind", "/not/there", &["bind"])
            .mount("/mnt/b", "bind", there.to_str().unwrap(), &["bind"])
            .ops(&["exists /mnt/a", "cat /mnt/b"])
    };
    let out = ctx.run_with(&bundle("/mnt/b, /mnt/a"), &[]);
    assert_eq!((out.code, out.all()), (0, vec![json!(false), json!("there")]));
    ctx.run(&bundle("/mnt/b")).failed(&["/not/there", "no such file or directory"]);
}

fn annotations_of_the_caller_are_checked(ctx: &Ctx) {
    for name in ["rt.passwd", "rt.home", "rt.user"] {
        let bundle = ctx.bundle().with("/annotations", json!({ name: "nonsense" }));
        ctx.run(&bundle).failed(&["nonsense"]);
    }
}

fn root_keeps_the_images_account(ctx: &Ctx) {
    let bundle = pulled(ctx, &[("rt.passwd", "caller")]).ops(&["cat /etc/passwd"]);
    assert_eq!(run(ctx, &bundle, &[("USER", "jane")])[0], IMAGE_PASSWD);
}

/// chown to ids that do not exist, the calls of who becomes somebody else, and a device node.
const PRIVILEGED: [&str; 5] =
    ["chown /tmp 7 7", "setuid 33", "setgroups 33", "mknod /tmp/null 1 3", "exists /tmp/null"];

fn root_is_emulated(ctx: &Ctx) {
    let ops = [&PRIVILEGED[..], &["id", "stat /tmp", "mkfifo /tmp/fifo", "exists /tmp/fifo"]].concat();
    let by_annotation = pulled(ctx, &[("rt.user", "root")]).ops(&ops);
    let by_flag = ctx.bundle().ops(&ops);
    for (bundle, flags) in [(&by_annotation, &[][..]), (&by_flag, &["--user-map=root"])] {
        let out = ctx.run_with(bundle, flags);
        let all = out.all();
        assert_eq!(all[..4], [Value::Null, Value::Null, Value::Null, Value::Null], "{out:?}");
        assert_eq!(all[4], false, "nothing was made");
        assert_eq!((&all[5]["uid"], &all[6]["uid"]), (&json!([0, 0, 0]), &json!(0)), "nothing was changed");
        assert_eq!(all[6..][1..3], [Value::Null, json!(true)], "what can be made is made");
        std::fs::remove_file(bundle.rootfs().join("tmp/fifo")).unwrap();
    }
    assert_eq!(ctx.run_with(&by_flag, &["--user-map", "caller"]).line(0), errno(libc::EINVAL));
}

/// What every set of capabilities is where it is full, as /proc/PID/status shows it.
fn every_capability() -> Value {
    let last = std::fs::read_to_string("/proc/sys/kernel/cap_last_cap").unwrap();
    json!(format!("{:016x}", (1u64 << (last.trim().parse::<u32>().unwrap() + 1)) - 1))
}

const SETS: [&str; 5] = ["CapPrm", "CapEff", "CapBnd", "CapInh", "CapAmb"];

fn sets(status: &Value) -> [Value; 5] {
    SETS.map(|set| status[set].clone())
}

/// A bundle that was pulled by somebody else, whose ids its config maps.
fn of_another_user(bundle: Bundle) -> Bundle {
    let maps = json!([{ "containerID": 0, "hostID": 4242, "size": 1 }]);
    let bundle = bundle.namespace("user", None);
    bundle.with("/linux/uidMappings", maps.clone()).with("/linux/gidMappings", maps)
}

fn another_users_bundle(ctx: &Ctx) {
    if ctx.caller == Caller::Root {
        // The map is honoured: real root is not the caller that it means, and can map any id.
        let bundle = of_another_user(ctx.bundle()).ops(&["cat /proc/self/uid_map"]);
        std::os::unix::fs::chown(bundle.rootfs(), Some(4242), Some(4242)).unwrap();
        return assert_eq!(numbers(&run(ctx, &bundle, &[])[0]), [0, 4242, 1]);
    }
    let inside = if ctx.caller == Caller::User { ctx.caller.host_ids() } else { (0, 0) };
    for (user, ids) in [("caller", inside), ("root", (0, 0))] {
        let bundle = of_another_user(pulled(ctx, &[("rt.user", user)])).ops(&["id", "write /etc/made x"]);
        let all = run(ctx, &bundle, &[]);
        assert_eq!((&all[0]["uid"][0], &all[0]["gid"][0]), (&json!(ids.0), &json!(ids.1)), "{user}");
        assert_eq!(all[1], Value::Null);
        let made = std::fs::metadata(bundle.rootfs().join("etc/made")).unwrap();
        assert_eq!((made.uid(), made.gid()), ctx.caller.host_ids(), "{user}: it is the caller");
    }
    // Where the config's word is asked for, and one id is all there is, nobody else can be meant either.
    if ctx.caller == Caller::Nested {
        let bundle = of_another_user(ctx.bundle()).ops(&["id"]);
        assert_eq!(run(ctx, &bundle, &[])[0]["uid"][0], 0);
        ctx.run_with(&bundle, &["--strict"]).failed(&["uid mappings are reduced"]);
    }
}

fn numbers(map: &Value) -> Vec<u32> {
    map.as_str().unwrap().split_whitespace().map(|w| w.parse().unwrap()).collect()
}

fn root_has_every_capability(ctx: &Ctx) {
    let all = every_capability();
    let full = [all.clone(), all.clone(), all, json!("0000000000000000"), json!("0000000000000000")];
    let pulled = || of_another_user(pulled(ctx, &[("rt.user", "root")])).unset("/process", "capabilities");
    let bundle = pulled().ops(&["status", "chown /tmp 7 7", "write /etc/closed x", "stat /tmp"]);
    let closed = bundle.file("etc/closed", "");
    std::fs::set_permissions(&closed, std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
    let out = run(ctx, &bundle, &[]);
    assert_eq!(sets(&out[0]), full);
    assert_eq!(out[1..3], [Value::Null, Value::Null], "what it cannot do is answered, what it can is done");
    assert_eq!(out[3]["uid"], 0);
    // Asked for by the command line, of a bundle that is made for the caller's own uid.
    let bundle = of_another_user(ctx.bundle()).caps(&[]).ops(&["status", "pause"]);
    let id = ctx.id();
    let mut job = ctx.rt(["run", "--user-map=root", "--bundle"]).arg(&bundle.dir).arg(&id).spawn();
    assert_eq!(sets(&job.line(0)), full);
    assert_eq!(sets(&ctx.rt(["exec", &id, "/probe", "status"]).run().line(0)), full, "exec");
    // Another user than root gets none.
    let other = ctx.rt(["exec", "--user=7:7", &id, "/probe", "status"]).run();
    assert!(other.code != 0 || sets(&other.line(0))[1] == "0000000000000000", "{other:?}");
    ctx.rt(["kill", &id, "KILL"]).silent();
    job.wait();
    // A caller's bundle stays without any.
    let bundle = of_another_user(ctx.bundle()).with("/annotations", json!({ "rt.user": "caller" }));
    let bundle = bundle.unset("/process", "capabilities").ops(&["status"]);
    assert_eq!(sets(&run(ctx, &bundle, &[])[0])[1], "0000000000000000");
}

fn listed_capabilities_stay(ctx: &Ctx) {
    // CAP_KILL is number 5.
    let bundle = ctx.bundle().caps(&["CAP_KILL"]).ops(&["status"]);
    let one = json!("0000000000000020");
    assert_eq!(
        sets(&ctx.run_with(&bundle, &["--user-map=root"]).line(0))[..3],
        [one.clone(), one.clone(), one]
    );
    // An empty list is a word, too, where only an annotation asks for root: a client's --cap-drop=all.
    let bundle = pulled(ctx, &[("rt.user", "root")]).caps(&[]).ops(&["status"]);
    let none = json!("0000000000000000");
    assert_eq!(sets(&run(ctx, &bundle, &[])[0])[..3], [none.clone(), none.clone(), none]);
}

fn root_of_a_config_is_not_emulated(ctx: &Ctx) {
    let bundle = ctx.bundle().ops(&PRIVILEGED);
    assert_eq!(ctx.run(&bundle).line(0), errno(libc::EINVAL));
    assert_eq!(ctx.run_with(&bundle, &["--user-map=config"]).line(0), errno(libc::EINVAL));
}

fn own_filter_beats_the_emulation(ctx: &Ctx) {
    let section = json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [{ "names": ["chown", "fchownat"], "action": "SCMP_ACT_ERRNO", "errnoRet": libc::EDOM }],
    });
    let bundle = ctx.bundle().with("/linux/seccomp", section).ops(&["chown /tmp 7 7"]);
    assert_eq!(ctx.run_with(&bundle, &["--user-map=root"]).line(0), errno(libc::EDOM));
}

/// What podman and docker write: a list of what is allowed.
fn allowing_filter() -> Value {
    json!({
        "defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": libc::EDOM,
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"],
        "syscalls": [{ "names": oci_seccomp::names().filter(|name| *name != "keyctl").collect::<Vec<_>>(), "action": "SCMP_ACT_ALLOW" }],
    })
}

fn an_allowing_filter_is_emulated_through(ctx: &Ctx) {
    let ops = [&PRIVILEGED[..], &["stat /tmp", "mkfifo /tmp/fifo", "exists /tmp/fifo", "status"]].concat();
    let bundle = pulled(ctx, &[("rt.user", "root")]).with("/linux/seccomp", allowing_filter()).ops(&ops);
    let out = ctx.run_with(&bundle, &[]);
    let all = out.all();
    assert_eq!(all[..4], [Value::Null, Value::Null, Value::Null, Value::Null], "{out:?}");
    assert_eq!((&all[4], &all[5]["uid"]), (&json!(false), &json!(0)), "nothing was made or changed");
    assert_eq!(all[6..8], [Value::Null, json!(true)], "what can be made is made");
    assert_eq!((&all[8]["Seccomp"], &all[8]["NoNewPrivs"]), (&json!("2"), &json!("1")));
}

/// Who calls podman cannot write annotations for what it builds, and sets a variable.
fn a_variable_asks_for_the_emulation(ctx: &Ctx) {
    // As podman does it without subordinate ids: no user namespace of the container's own, and a user of the image's.
    let bundle = ctx.bundle().with("/linux/seccomp", allowing_filter());
    let bundle = bundle.with("/process/user", json!({ "uid": 33, "gid": 33, "additionalGids": [44] }));
    let bundle = bundle.ops(&["chown /tmp 7 7", "setgroups 33", "id"]);
    let run = |value: &str| {
        ctx.rt(["run", "-b"]).arg(&bundle.dir).arg(ctx.id()).env("RT_EMULATE_ROOT", value).run()
    };
    let out = run("1");
    let all = out.all();
    assert_eq!((&all[0], &all[1], &all[2]["uid"][0]), (&Value::Null, &Value::Null, &json!(0)), "{out:?}");
    for value in ["0", "", "yes"] {
        run(value).failed(&["uid 33 does not exist"]);
    }
    // The config's own word counts first.
    let bundle = ctx.bundle().with("/annotations", json!({ "rt.user": "config" })).ops(&["chown /tmp 7 7"]);
    let out = ctx.rt(["run", "-b"]).arg(&bundle.dir).arg(ctx.id()).env("RT_EMULATE_ROOT", "1").run();
    assert_eq!(out.line(0), errno(libc::EINVAL));
}

/// The variable is for uid 0 of a user namespace with one id, and for nobody else.
fn only_one_id_is_emulated(ctx: &Ctx) {
    let bundle = ctx.bundle().ops(&["chown /tmp 7 7", "status"]);
    let out = ctx.rt(["run", "-b"]).arg(&bundle.dir).arg(ctx.id()).env("RT_EMULATE_ROOT", "1").run();
    let emulated = ctx.caller == Caller::Nested;
    assert_eq!(out.line(1)["Seccomp"], if emulated { "2" } else { "0" }, "{out:?}");
}

fn exec_emulates_root_too(ctx: &Ctx) {
    let bundle = pulled(ctx, &[("rt.user", "root")]).ops(&["pause"]);
    let container = ctx.started(&bundle);
    assert_eq!(container.exec(&["chown /tmp 7 7"]).all()[0], Value::Null);
}

fn real_root_is_not_emulated(ctx: &Ctx) {
    let bundle = ctx.bundle().ops(&["chown /tmp 7 7", "stat /tmp"]);
    let out = ctx.run_with(&bundle, &["--user-map=root"]);
    if out.line(0) == Value::Null {
        assert_eq!(out.line(1)["uid"], 7, "it was done, not only answered");
    } else {
        assert_eq!(out.line(0), errno(libc::EPERM), "without the capability it is refused");
    }
}
