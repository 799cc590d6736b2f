//! What the command line of `rt run` chooses over the config: mounts, namespaces, the host name and the user.

use crate::client::Caller;
use crate::fixture::{Bundle, Ctx, errno, namespace};
use crate::run::in_place;
use crate::runner::{skip, tests};
use serde_json::{Value, json};
use std::fs;

tests! {
    USER { readonly_is_what_is_below_too }
    EVERY { long_mounts, network_is_chosen }
    ALL { tmpfs_by_flag, processes_are_chosen, ipc_is_chosen, host_name_by_flag }
    BOTH { missing_sources_are_named, wrong_mounts_are_refused, wrong_choices_are_refused, mounts_are_relative_to_the_caller }
    USER { user_is_the_one_id }
    ROOT { user_of_root }
}

fn run(ctx: &Ctx, bundle: &Bundle, flags: &[&str]) -> Vec<Value> {
    let out = ctx.rt(["run"]).args(flags).arg(&bundle.dir).ok();
    assert_eq!(out.stderr, "");
    // What has run in place is removed by the next command.
    ctx.rt(["list", "-q"]).ok();
    out.all()
}

fn long_mounts(ctx: &Ctx) {
    let data = ctx.mkdir("with,comma");
    ctx.file("with,comma/file", "content");
    let bundle = ctx.bundle().ops(&[
        "cat /data/file",
        "write /data/new x",
        "cat /ro/file",
        "write /ro/new x",
        "write /mem/x y",
        "stat /mem",
        "mkdir /mem/dir",
    ]);
    let before = bundle.tree();
    let source = data.display();
    let all = run(
        ctx,
        &bundle,
        &[
            "--mount",
            &format!("type=bind,\"source={source}\",target=/data"),
            "--mount",
            &format!("\"src={source}\",dst=/ro,readonly"),
            "--mount",
            "type=tmpfs,target=/mem,tmpfs-mode=750,tmpfs-size=1m",
        ],
    );
    let expected = [json!("content"), json!(null), json!("content"), errno(libc::EROFS), json!(null)];
    assert_eq!((&all[..5], &all[5]["mode"], &all[6]), (&expected[..], &json!(0o750), &json!(null)));
    assert_eq!(bundle.tree(), before, "the rootfs has no new mount points");
}

fn tmpfs_by_flag(ctx: &Ctx) {
    let bundle = ctx.bundle().with("/root/readonly", json!(true));
    bundle.file("etc/here", "image");
    let bundle =
        bundle.ops(&["ls /etc", "write /etc/x y", "stat /etc", "cat /proc/self/mounts", "write /new/x y"]);
    let all = run(ctx, &bundle, &["--tmpfs", "/etc", "--tmpfs=/new:size=64k,mode=700,noexec"]);
    assert_eq!((&all[0], &all[1], &all[2]["mode"]), (&json!([]), &json!(null), &json!(0o1777)));
    let mounts = all[3].as_str().unwrap();
    let line = |at: &str| mounts.lines().find(|l| l.split(' ').nth(1) == Some(at)).unwrap().to_owned();
    assert!(line("/etc").contains("nosuid,nodev") && !line("/etc").contains("noexec"), "{}", line("/etc"));
    assert!(line("/new").contains("noexec") && line("/new").contains("size=64k"), "{}", line("/new"));
    assert_eq!(all[4], json!(null));
}

fn mounts_are_relative_to_the_caller(ctx: &Ctx) {
    ctx.mkdir("data");
    ctx.file("data/file", "content");
    let bundle = ctx.bundle().ops(&["cat /a/file", "cat /b/file"]);
    let run = ctx.rt(["run", "-v", "data:/a", "--mount", "src=./data,dst=/b"]).arg(&bundle.dir).cwd(&ctx.dir);
    assert_eq!(run.ok().all(), [json!("content"), json!("content")]);
}

fn missing_sources_are_named(ctx: &Ctx) {
    let bundle = ctx.bundle();
    let remedy = "rt makes no source of a bind";
    for flags in [["-v", "/not/there:/x"], ["--mount", "src=/not/there,dst=/x"]] {
        let out = ctx.rt(["run"]).args(flags).arg(&bundle.dir);
        out.fails(&["bind /not/there to /x: no such file or directory", remedy]);
    }
    let names: Vec<_> = fs::read_dir(&ctx.state).into_iter().flatten().collect();
    assert!(names.is_empty(), "{names:?}");
    // What the config lets be missing may be missing.
    let bundle = ctx.bundle().with("/annotations", json!({ "rt.mounts.optional": "/x" })).ops(&["exists /x"]);
    assert_eq!(run(ctx, &bundle, &["-v", "/not/there:/x"])[0], false);
}

fn wrong_mounts_are_refused(ctx: &Ctx) {
    let bundle = ctx.bundle();
    for (flag, text, why) in [
        ("--mount", "type=volume,src=a,dst=/b", "rt keeps no volumes"),
        ("--mount", "src=/etc,dst=/b,fly", "unknown key \"fly\""),
        ("--mount", "src=/etc", "target is missing"),
        ("--mount", "src=/etc,dst=b", "not an absolute path"),
        ("--tmpfs", "relative", "not an absolute path"),
        ("--tmpfs", "/", "nothing can be mounted over the root"),
        ("-v", "/etc:/b:fly", "unknown option \"fly\""),
    ] {
        ctx.rt(["run", flag, text]).arg(&bundle.dir).fails(&[why]);
    }
}

fn own(kind: &str) -> Value {
    json!(namespace(std::process::id() as i32, kind))
}

fn network_is_chosen(ctx: &Ctx) {
    for bundle in [ctx.bundle(), in_place(ctx.bundle()), ctx.bundle().namespace("network", None)] {
        let bundle = bundle.ops(&["ns", "cat /proc/self/net/dev"]);
        let all = run(ctx, &bundle, &["--net", "none"]);
        assert_ne!(all[0]["net"], own("net"));
        let devices: Vec<String> =
            all[1].as_str().unwrap().lines().skip(2).map(|l| l.trim()[..3].to_owned()).collect();
        assert!(devices.iter().any(|d| d == "lo:"), "{devices:?}");
        for flag in ["--net=host", "--network=host"] {
            assert_eq!(run(ctx, &bundle, &[flag])[0]["net"], own("net"));
        }
    }
}

fn processes_are_chosen(ctx: &Ctx) {
    // The first as `rt pull` makes it, with the host's /proc.
    for bundle in [in_place(ctx.bundle()), ctx.bundle()] {
        let bundle = bundle.ops(&["ns", "pid", "ps"]);
        let all = run(ctx, &bundle, &["--pid", "private"]);
        assert_ne!(all[0]["pid"], own("pid"));
        assert_eq!((&all[1]["pid"], &all[2]), (&json!(1), &json!([1])));
        let all = run(ctx, &bundle, &["--pid=host"]);
        assert_eq!(all[0]["pid"], own("pid"));
        assert!(all[2].as_array().unwrap().contains(&all[1]["pid"]), "{all:?}");
    }
}

fn ipc_is_chosen(ctx: &Ctx) {
    for bundle in [ctx.bundle(), ctx.bundle().without_namespace("ipc").without_mount("/dev/shm")] {
        let file = format!("/dev/shm/{}", ctx.id());
        let bundle = bundle.ops(&["ns", "stat /dev/shm", &format!("write {file} y")]);
        let all = run(ctx, &bundle, &["--ipc", "private"]);
        assert_ne!(all[0]["ipc"], own("ipc"));
        assert_eq!((&all[1]["mode"], &all[2]), (&json!(0o1777), &json!(null)));
        assert!(!std::path::Path::new(&file).exists());
        let bundle = bundle.ops(&["ns", "stat /dev/shm"]);
        let all = run(ctx, &bundle, &["--ipc=host"]);
        assert_eq!(all[0]["ipc"], own("ipc"));
        use std::os::unix::fs::MetadataExt;
        assert_eq!(all[1]["dev"], json!(fs::metadata("/dev/shm").unwrap().dev()));
    }
}

fn host_name_by_flag(ctx: &Ctx) {
    for bundle in [ctx.bundle(), in_place(ctx.bundle().without_namespace("uts").unset("", "hostname"))] {
        let all = run(ctx, &bundle.ops(&["names", "ns"]), &["--hostname", "box"]);
        assert_eq!(all[0][0], "box");
        assert_ne!(all[1]["uts"], own("uts"));
    }
}

fn wrong_choices_are_refused(ctx: &Ctx) {
    let bundle = ctx.bundle();
    for (flags, texts) in [
        (&["--net", "bridge"][..], ["--net", "host or none"]),
        (&["--pid", "none"], ["--pid", "host or private"]),
        (&["--ipc=shareable"], ["--ipc", "host or private"]),
        (&["-u", "jo"], ["UID[:GID] in numbers", "--as-root"]),
        (&["-u", "7", "--as-root"], ["--as-root", "--user 7"]),
        (&["-u", "7", "--user-map=caller"], ["--user", "--user-map caller"]),
    ] {
        ctx.rt(["run"]).args(flags).arg(&bundle.dir).fails(&texts);
    }
}

fn user_is_the_one_id(ctx: &Ctx) {
    let (uid, _) = ctx.caller.host_ids();
    let bundle = ctx.bundle().with("/annotations", json!({ "rt.user": "caller" })).ops(&[
        "id",
        "write /tmp/f x",
        "stat /tmp/f",
    ]);
    for (flag, (user, group)) in
        [("0", (0, 0)), ("root", (0, 0)), ("1000:100", (1000, 100)), ("1000", (1000, 0))]
    {
        let all = run(ctx, &bundle, &["-u", flag]);
        assert_eq!((&all[0]["uid"][0], &all[0]["gid"][0]), (&json!(user), &json!(group)), "{flag}");
        assert_eq!((&all[2]["uid"], &all[2]["gid"]), (&json!(user), &json!(group)), "{flag}");
        use std::os::unix::fs::MetadataExt;
        assert_eq!(
            fs::metadata(bundle.rootfs().join("tmp/f")).unwrap().uid(),
            uid,
            "on the host it is the caller's"
        );
    }
    let out = ctx.rt(["run", "--user=0", "--user-map=root"]).arg(&bundle.dir).ok();
    assert_eq!(out.line(0)["uid"][0], 0);
}

fn user_of_root(ctx: &Ctx) {
    assert_eq!(ctx.caller, Caller::Root);
    let all = run(ctx, &ctx.bundle().ops(&["id"]), &["-u", "1000:100"]);
    assert_eq!((&all[0]["uid"][0], &all[0]["gid"][0]), (&json!(1000), &json!(100)));
}

/// `ro` of `-v` and `--mount` is that of all that is mounted below, too, unless it is said otherwise.
fn readonly_is_what_is_below_too(ctx: &Ctx) {
    for program in ["/usr/bin/unshare", "/usr/bin/mount"] {
        if !std::path::Path::new(program).exists() {
            skip!("no {program}");
        }
    }
    let dir = ctx.mkdir("data/below").parent().unwrap().to_owned();
    ctx.give(&dir);
    let bundle = ctx.bundle().ops(&["write /data/x x", "write /data/below/x x"]);
    let run = |flag: &str, value: &str| {
        let value = value.replace("DIR", dir.to_str().unwrap());
        let script = format!(
            "mount -t tmpfs none {}/below; exec {} --root {} run {flag} {value} {}",
            dir.display(),
            ctx.rt_path().display(),
            ctx.state.display(),
            bundle.dir.display()
        );
        ctx.command("/usr/bin/unshare").args(["-Urm", "sh", "-ec", &script]).ok().all()
    };
    let read_only = json!({ "errno": libc::EROFS });
    for (flag, value) in
        [("-v", "DIR:/data:ro"), ("--mount", "type=bind,src=DIR,dst=/data,ro"), ("-v", "DIR:/data:rro")]
    {
        let got = run(flag, value);
        assert_eq!((&got[0], &got[1]), (&read_only, &read_only), "{flag} {value}");
    }
    let got = run("--mount", "type=bind,src=DIR,dst=/data,ro,bind-recursive=writable");
    assert!(got[0] == read_only && got[1] != read_only, "{got:?}");
}
