//! Mounts: every option of config.md, and mount points that the rootfs lacks.

use crate::client::{Caller, RANGE, UID};
use crate::fixture::{Bundle, Ctx, errno, tree};
use crate::runner::{skip, tests};
use crate::sys;
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

tests! {
    EVERY { bind_directory_and_file, missing_mount_points_appear, tmpfs_options, mount_points_in_binds, tmpfs_is_as_open_as_what_it_covers }
    ALL {
        mount_options, bind_read_only, recursive_options, cgroups_that_came_with_sys, readonly_root, masked_and_readonly_paths,
        default_devices, missing_points_in_a_readonly_root, missing_points_of_a_shared_root, nothing_shows_on_the_host,
        proc_sys_and_mqueue, device_mounts, propagation_of_mounts,
    }
    BOTH {
        type_none_and_type_bind, bind_by_option_alone, relative_source, sources_with_symlinks,
        destinations_through_symlinks, relative_destination, order_is_kept, mount_over_a_file, tmpcopyup,
        missing_source_fails, unknown_type_and_option, overlay_mount, overlay_of_long_paths, rootfs_propagation, writable_root_is_written,
        many_containers_on_one_root, deep_missing_destinations, missing_file_mount_points, dev_is_bind_mounted,
        options_are_the_last_one, root_mount_flags, mounts_of_fifo_and_socket, bind_of_a_bind_source_mounts,
        cgroup_mount_is_readonly, bind_inherits_locked_flags, dev_shm_and_pts, spaces_in_paths, tmpfs_noexec,
        root_path_forms, many_mounts, devpts_without_gid, root_is_a_mount_point, proc_is_not_hidden,
        mount_on_top_of_a_mount, symlink_mount, destination_that_is_a_link, locked_access_times, ptmx_of_the_config, idmap_of_a_mount, mount_label_and_rdt_are_refused_or_noted,
        mount_points_in_read_only_binds, mount_points_used_by_others, covers_keep_what_is_mounted_below,
        what_rt_has_not_made_stays, failed_start_leaves_no_mount_point, mount_points_are_no_cgroups, deep_tmpcopyup, tmpcopyup_has_bounds, read_only_tmpfs_holds_mounts,
        read_only_dev,
    }
    USER { a_bind_uncovers_nothing, root_that_the_caller_cannot_write, unreadable_parts_of_a_root, mount_points_that_cannot_be_made }
    ROOT { strict_atime_and_friends, idmap_by_the_containers_namespace, sources_that_root_alone_reaches, covers_have_the_owner, many_layers_on_an_older_kernel, shared_root_on_a_mount_with_blanks }
}

/// The mount table inside, as (destination, options, optional fields, type, source, super options).
fn mounts(ctx: &Ctx, bundle: Bundle) -> Vec<[String; 6]> {
    let out = ctx.run(&bundle.ops(&["cat /proc/self/mountinfo"]));
    parse(out.all()[0].as_str().unwrap())
}

fn parse(table: &str) -> Vec<[String; 6]> {
    let entry = |line: &str| -> Option<[String; 6]> {
        let (left, right) = line.split_once(" - ")?;
        let left: Vec<_> = left.split(' ').collect();
        let right: Vec<_> = right.split(' ').collect();
        let optional = left[6..].join(" ");
        Some([left[4], left[5], &optional, right[0], right[1], right.get(2).unwrap_or(&"")].map(String::from))
    };
    table.lines().filter_map(entry).collect()
}

#[track_caller]
fn at<'a>(table: &'a [[String; 6]], destination: &str) -> &'a [String; 6] {
    table
        .iter()
        .rfind(|m| m[0] == destination)
        .unwrap_or_else(|| panic!("no mount at {destination}: {table:#?}"))
}

#[track_caller]
fn has(mount: &[String; 6], words: &[&str]) {
    for word in words {
        assert!(mount[1].split(',').any(|o| o == *word), "{word} is not in {mount:?}");
    }
}

#[track_caller]
fn lacks(mount: &[String; 6], words: &[&str]) {
    for word in words {
        assert!(!mount[1].split(',').any(|o| o == *word), "{word} is in {mount:?}");
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn bind_directory_and_file(ctx: &Ctx) {
    let dir = ctx.mkdir("data");
    let file = ctx.file("data/file", "content");
    let bundle = ctx.bundle().mount("/mnt", "bind", text(&dir), &["rbind", "rw"]).mount(
        "/etc/group",
        "bind",
        text(&file),
        &["bind", "ro"],
    );
    let out = ctx.run(&bundle.ops(&[
        "cat /mnt/file",
        "cat /etc/group",
        "write /mnt/new made-inside",
        "write /etc/group x",
        "stat /etc/group",
    ]));
    let all = out.all();
    assert_eq!(all[..4], [json!("content"), json!("content"), Value::Null, errno(libc::EROFS)], "{out:?}");
    assert_eq!(all[4]["kind"], "file");
    assert_eq!(fs::read_to_string(ctx.path("data/new")).unwrap(), "made-inside");
}

fn type_none_and_type_bind(ctx: &Ctx) {
    let dir = ctx.mkdir("data");
    ctx.file("data/file", "content");
    for kind in ["none", "bind", "", "ext4"] {
        for option in ["bind", "rbind"] {
            let bundle = ctx.bundle().mount("/mnt", kind, text(&dir), &[option]);
            assert_eq!(
                ctx.run(&bundle.ops(&["cat /mnt/file"])).all()[0],
                "content",
                "type {kind:?}, {option}"
            );
        }
    }
}

fn bind_by_option_alone(ctx: &Ctx) {
    let dir = ctx.mkdir("data");
    ctx.file("data/file", "content");
    let mount = json!({ "destination": "/mnt", "source": dir, "options": ["rbind"] });
    let bundle = ctx.bundle().push("/mounts", mount).ops(&["cat /mnt/file"]);
    assert_eq!(ctx.run(&bundle).all()[0], "content");
}

fn relative_source(ctx: &Ctx) {
    // Relative to the bundle.
    let bundle = ctx.bundle().mount("/mnt", "bind", "data", &["bind"]);
    fs::create_dir(bundle.dir.join("data")).unwrap();
    fs::write(bundle.dir.join("data/file"), "in the bundle").unwrap();
    assert_eq!(ctx.run(&bundle.ops(&["cat /mnt/file"])).all()[0], "in the bundle");
}

fn sources_with_symlinks(ctx: &Ctx) {
    // On the host, links in a source are followed.
    ctx.mkdir("real");
    ctx.file("real/file", "content");
    std::os::unix::fs::symlink("real", ctx.path("link")).unwrap();
    let bundle = ctx.bundle().mount("/mnt", "bind", text(&ctx.path("link")), &["bind"]);
    assert_eq!(ctx.run(&bundle.ops(&["cat /mnt/file"])).all()[0], "content");
}

fn bind_read_only(ctx: &Ctx) {
    let dir = ctx.mkdir("data");
    let bundle = ctx.bundle().mount("/mnt", "bind", text(&dir), &["bind", "ro", "nosuid", "nodev", "noexec"]);
    let bundle = bundle.ops(&["write /mnt/x y", "cat /proc/self/mountinfo"]);
    let all = ctx.run(&bundle).all();
    assert_eq!(all[0], errno(libc::EROFS));
    has(at(&parse(all[1].as_str().unwrap()), "/mnt"), &["ro", "nosuid", "nodev", "noexec"]);
    fs::write(dir.join("host"), "still writable").unwrap();
}

fn mount_options(ctx: &Ctx) {
    let cases: &[(&[&str], &[&str], &[&str])] = &[
        (&["nosuid"], &["nosuid", "rw"], &["noexec"]),
        (&["nodev", "noexec"], &["nodev", "noexec"], &[]),
        (&["nosuid", "suid"], &[], &["nosuid"]),
        (&["noexec", "exec"], &[], &["noexec"]),
        (&["ro", "rw"], &["rw"], &["ro"]),
        (&["noatime"], &["noatime"], &["relatime"]),
        (&["nodiratime"], &["nodiratime"], &[]),
        (&["relatime"], &["relatime"], &["noatime"]),
        (&["noatime", "atime"], &[], &["noatime"]),
        (&["strictatime"], &[], &["noatime", "relatime"]),
        (&["nosymfollow"], &["nosymfollow"], &[]),
        (&["nosymfollow", "symfollow"], &[], &["nosymfollow"]),
        (&["defaults"], &["rw"], &["ro"]),
        (&["ro"], &["ro"], &["rw"]),
    ];
    let mut bundle = ctx.bundle();
    for (n, (options, ..)) in cases.iter().enumerate() {
        bundle.mkdir(&format!("mnt/{n}"));
        bundle = bundle.mount(&format!("/mnt/{n}"), "tmpfs", "tmpfs", options);
    }
    let table = mounts(ctx, bundle);
    for (n, (options, set, unset)) in cases.iter().enumerate() {
        let mount = at(&table, &format!("/mnt/{n}"));
        println!("{options:?}");
        has(mount, set);
        lacks(mount, unset);
    }
}

fn options_are_the_last_one(ctx: &Ctx) {
    let dir = ctx.mkdir("data");
    let bundle = ctx.bundle().mount("/mnt", "bind", text(&dir), &["bind", "ro", "nosuid", "rw", "suid"]);
    let table = mounts(ctx, bundle);
    has(at(&table, "/mnt"), &["rw"]);
}

fn strict_atime_and_friends(ctx: &Ctx) {
    let bundle =
        ctx.bundle().mount("/mnt", "tmpfs", "tmpfs", &["sync", "dirsync", "mand", "lazytime", "iversion"]);
    let out = ctx.run(&bundle.ops(&["cat /proc/self/mountinfo"]));
    let all = out.all();
    let table = parse(all[0].as_str().unwrap());
    assert!(at(&table, "/mnt")[5].contains("sync"), "{table:?}");
}

fn recursive_options(ctx: &Ctx) {
    // The machine's /sys has sub-mounts (cgroup, or others): each recursive option reaches all of them.
    let mut options = vec!["rro", "rnoexec", "rnosuid", "rnodev", "rnosymfollow"];
    if ctx.caller == Caller::Root {
        // The kernel lets nobody else change the atime flags of the host's mounts.
        options.extend(["rnoatime", "rnodiratime"]);
    }
    for option in options {
        let table = mounts(ctx, ctx.bundle().mount("/sys", "none", "/sys", &["rbind", option]));
        for mount in table.iter().filter(|m| m[0].starts_with("/sys")) {
            has(mount, &[&option[1..]]);
        }
    }
    let table =
        mounts(ctx, ctx.bundle().mount("/sys", "none", "/sys", &["rbind", "rro", "rnoexec", "nosuid"]));
    assert!(table.iter().filter(|m| m[0].starts_with("/sys/")).count() > 0, "no sub-mounts to test with");
    table.iter().filter(|m| m[0].starts_with("/sys")).for_each(|m| has(m, &["ro", "noexec"]));
    // A sub-mount that the container makes later is not touched by an earlier mount's rro.
    let data = ctx.mkdir("data");
    ctx.mkdir("data/sub");
    let bundle = ctx.bundle().mount("/mnt", "bind", text(&data), &["rbind", "rro"]).mount(
        "/mnt/sub",
        "tmpfs",
        "tmpfs",
        &["mode=755"],
    );
    let all = ctx.run(&bundle.ops(&["write /mnt/sub/x y", "write /mnt/x y"])).all();
    assert_eq!(all, [Value::Null, errno(libc::EROFS)]);
}

/// With the host's /sys comes its cgroup tree: it is not mounted twice, and gets the attributes asked for.
fn cgroups_that_came_with_sys(ctx: &Ctx) {
    let below = |table: &[[String; 6]]| -> Vec<[String; 6]> {
        table.iter().filter(|m| m[0].starts_with("/sys/fs/cgroup")).cloned().collect()
    };
    let own = parse(&std::fs::read_to_string("/proc/self/mountinfo").unwrap());
    let cgroup =
        |bundle: Bundle| bundle.mount("/sys/fs/cgroup", "cgroup", "cgroup", &["nosuid", "nodev", "ro"]);
    let sys = || ctx.bundle().mount("/sys", "none", "/sys", &["rbind", "nosuid"]);
    let table = mounts(ctx, cgroup(sys()));
    has(at(&table, "/sys/fs/cgroup"), &["ro", "nodev"]);
    if ctx.caller != Caller::Root {
        below(&table).iter().for_each(|m| has(m, &["ro", "nodev"]));
        assert_eq!(below(&table).len(), below(&own).len(), "{table:#?}");
    }
    // Where something covers it, it is mounted there.
    let covered = sys().mount("/sys/fs", "tmpfs", "tmpfs", &["mode=755"]);
    let table = mounts(ctx, cgroup(covered));
    has(at(&table, "/sys/fs/cgroup"), &["ro", "nodev"]);
    assert_eq!(at(&table, "/sys/fs")[3], "tmpfs");
}

fn tmpfs_options(ctx: &Ctx) {
    let bundle = ctx
        .bundle()
        .mount("/mnt", "tmpfs", "tmpfs", &["size=64k", "mode=1700", "nr_inodes=20"])
        .ops(&["stat /mnt", "cat /proc/self/mountinfo"]);
    let all = ctx.run(&bundle).all();
    assert_eq!(all[0]["mode"], 0o1700);
    let table = parse(all[1].as_str().unwrap());
    let data = &at(&table, "/mnt")[5];
    assert!(data.contains("size=64k") && data.contains("nr_inodes=20"), "{data}");
}

fn tmpfs_noexec(ctx: &Ctx) {
    let bundle = ctx.bundle().mount("/mnt", "tmpfs", "tmpfs", &["noexec"]);
    let out = ctx.run(&bundle.ops(&["write /mnt/prog x", "exec /mnt/prog"]));
    assert_eq!(out.all()[1], errno(libc::EACCES));
}

fn tmpcopyup(ctx: &Ctx) {
    let bundle = ctx.bundle().mount("/etc", "tmpfs", "tmpfs", &["tmpcopyup", "mode=755"]);
    bundle.mkdir("etc/sub");
    bundle.file("etc/sub/deep", "deep content");
    bundle.link("etc/link", "sub/deep");
    fs::set_permissions(bundle.rootfs().join("etc/sub/deep"), fs::Permissions::from_mode(0o640)).unwrap();
    let before = bundle.tree();
    let bundle = bundle.ops(&[
        "cat /etc/sub/deep",
        "readlink /etc/link",
        "stat /etc/sub/deep",
        "write /etc/new x",
        "ls /etc",
    ]);
    let all = ctx.run(&bundle).all();
    assert_eq!(all[..2], [json!("deep content"), json!("sub/deep")]);
    assert_eq!((&all[2]["mode"], &all[2]["uid"]), (&json!(0o640), &json!(0)));
    assert_eq!(all[3], Value::Null);
    assert_eq!(all[4], json!(["group", "link", "new", "passwd", "sub"]));
    assert_eq!(bundle.tree(), before, "the copy alone was written");
}

fn deep_tmpcopyup(ctx: &Ctx) {
    let bundle = ctx.bundle().mount("/v", "tmpfs", "tmpfs", &["tmpcopyup"]);
    let deep = |top: &str| {
        let path = [top].into_iter().chain(std::iter::repeat_n("deepest", 450)).collect::<Vec<_>>().join("/");
        fs::create_dir_all(bundle.rootfs().join(&path)).unwrap();
        path
    };
    let (first, second) = (deep("v"), deep("w"));
    // Not even its owner may write there: what is in it comes along all the same.
    fs::create_dir(bundle.rootfs().join("v/closed")).unwrap();
    fs::write(bundle.rootfs().join("v/closed/file"), "x").unwrap();
    ctx.give(&bundle.rootfs().join("v"));
    fs::set_permissions(bundle.rootfs().join("v/closed"), fs::Permissions::from_mode(0o555)).unwrap();
    let bundle = bundle.ops(&[&format!("exists /{first}"), "stat /v/closed", "cat /v/closed/file"]);
    let out = ctx.run(&bundle);
    let all = out.all();
    assert_eq!((&all[0], &all[1]["mode"], &all[2]), (&json!(true), &json!(0o555), &json!("x")), "{out:?}");
    // Together they are longer than any path may be.
    let (from, to) = (bundle.rootfs().join("w"), bundle.rootfs().join(&first).join("w"));
    fs::rename(&from, &to).unwrap();
    ctx.give_link(&to);
    ctx.run(&bundle).failed(&["/v", "4096 bytes"]);
    fs::rename(&to, &from).unwrap();
    assert!(bundle.rootfs().join(second).is_dir());
}

fn tmpcopyup_has_bounds(ctx: &Ctx) {
    // The size of the tmpfs, of which holes take none.
    let bundle = ctx.bundle().mount("/v", "tmpfs", "tmpfs", &["tmpcopyup", "size=1m"]);
    bundle.mkdir("v");
    let sparse = bundle.file("v/sparse", "start");
    fs::OpenOptions::new().write(true).open(&sparse).unwrap().set_len(1 << 36).unwrap();
    fs::OpenOptions::new().append(true).open(&sparse).unwrap().write_all(b"end").unwrap();
    let bundle = bundle.ops(&["stat /v/sparse", "head /v/sparse 5", "tail /v/sparse 3"]);
    let out = ctx.run(&bundle);
    let all = out.all();
    assert_eq!(
        (&all[0]["size"], &all[1], &all[2]),
        (&json!((1u64 << 36) + 3), &json!("start"), &json!("end"))
    );
    bundle.file("v/large", &"x".repeat(2 << 20));
    ctx.run(&bundle).failed(&["/v", "large", "no space left on device", "size="]);
}

fn tmpfs_is_as_open_as_what_it_covers(ctx: &Ctx) {
    let mut bundle = ctx.bundle();
    let cases: &[(&str, u32, &[&str], u32)] = &[
        ("etc", 0o755, &[], 0o755),
        ("etc", 0o755, &["tmpcopyup"], 0o755),
        ("tmp", 0o1777, &[], 0o1777),
        ("home", 0o2750, &["ro"], 0o2750),
        ("home", 0o700, &["mode=0711"], 0o711),
        ("home", 0o700, &["tmpcopyup", "mode=0711"], 0o711),
    ];
    let mounts = bundle.config["mounts"].clone();
    for (dir, mode, options, expected) in cases {
        println!("{dir} {mode:o} {options:?}");
        fs::set_permissions(bundle.rootfs().join(dir), fs::Permissions::from_mode(*mode)).unwrap();
        bundle.set("/mounts", mounts.clone());
        bundle = bundle.mount(&format!("/{dir}"), "tmpfs", "tmpfs", options).ops(&[&format!("stat /{dir}")]);
        assert_eq!(ctx.run(&bundle).line(0)["mode"], *expected);
    }
}

fn read_only_tmpfs_holds_mounts(ctx: &Ctx) {
    // What belongs into it is made first: podman's pods, docker's `--tmpfs /t:ro -v ...:/t/x`.
    let data = ctx.mkdir("data");
    let file = ctx.file("data/file", "content");
    for cover in [false, true] {
        let mut bundle = ctx
            .bundle()
            .mount("/mnt", "tmpfs", "tmpfs", &["ro"])
            .mount("/mnt/dir/deep", "bind", text(&data), &["rbind"])
            .mount("/mnt/file", "bind", text(&file), &["bind", "ro"]);
        if cover {
            // A cover of the root shows a copy of the mount.
            bundle = bundle.with("/root/readonly", json!(true)).mount("/new", "tmpfs", "tmpfs", &[]);
        }
        let bundle = bundle.ops(&[
            "cat /mnt/dir/deep/file",
            "cat /mnt/file",
            "write /mnt/dir/deep/out x",
            "write /mnt/x y",
            "mkdir /mnt/dir/x",
        ]);
        let out = ctx.run(&bundle);
        assert_eq!(out.all()[..3], [json!("content"), json!("content"), Value::Null], "{out:?}");
        assert_eq!(out.all()[3..], [errno(libc::EROFS), errno(libc::EROFS)], "{out:?}");
    }
}

fn read_only_dev(ctx: &Ctx) {
    let mut bundle = ctx.bundle();
    bundle.set("/mounts/1/options", json!(["nosuid", "strictatime", "mode=755", "size=65536k", "ro"]));
    let out = ctx.run(&bundle.ops(&[
        "write /dev/null x",
        "readlink /dev/fd",
        "write /dev/x y",
        "write /dev/shm/x y",
    ]));
    assert_eq!(out.all(), [Value::Null, json!("/proc/self/fd"), errno(libc::EROFS), Value::Null], "{out:?}");
}

fn missing_source_fails(ctx: &Ctx) {
    let bundle = ctx.bundle().mount("/mnt", "bind", "/not/there", &["bind"]);
    ctx.run(&bundle).failed(&["/not/there", "no such file or directory"]);
}

fn unknown_type_and_option(ctx: &Ctx) {
    let bundle = ctx.bundle().mount("/mnt", "nonsensefs", "x", &[]);
    ctx.run(&bundle).failed(&["nonsensefs"]);
    let bundle = ctx.bundle().mount("/mnt", "tmpfs", "tmpfs", &["nonsense=1"]);
    ctx.run(&bundle).failed(&["/mnt"]);
}

fn overlay_mount(ctx: &Ctx) {
    let (lower, upper, work) = (ctx.mkdir("lower"), ctx.mkdir("upper"), ctx.mkdir("work"));
    ctx.file("lower/file", "lower");
    let data = [
        format!("lowerdir={}", lower.display()),
        format!("upperdir={}", upper.display()),
        format!("workdir={}", work.display()),
    ];
    let mut options: Vec<&str> = data.iter().map(String::as_str).collect();
    if ctx.caller != Caller::Root {
        options.push("userxattr");
    }
    let bundle = ctx.bundle().mount("/mnt", "overlay", "overlay", &options);
    let node = lower.join("node");
    let dead =
        Caller::tests_are_root() && sys::mknod(node.to_str().unwrap(), libc::S_IFCHR | 0o666, 1, 5).is_ok();
    let words = ["cat /mnt/file", "write /mnt/file upper", "cat /mnt/file", "head /mnt/node 1"];
    let out = ctx.run(&bundle.ops(&words));
    let of_node = errno(if dead { libc::EACCES } else { libc::ENOENT });
    assert_eq!(out.all(), [json!("lower"), Value::Null, json!("upper"), of_node], "{out:?}");
    assert_eq!(fs::read_to_string(lower.join("file")).unwrap(), "lower");
    assert_eq!(fs::read_to_string(upper.join("file")).unwrap(), "upper");
}

fn overlay_of_long_paths(ctx: &Ctx) {
    // fsconfig(2) takes values of 255 bytes; podman's paths are longer than that.
    let name = format!("deep/{}", "x".repeat(120));
    ctx.mkdir("deep");
    let layers: Vec<_> = (0..16).map(|n| ctx.mkdir(&format!("{name}{n}"))).collect();
    for n in 0..layers.len() {
        ctx.file(&format!("{name}{n}/file{n}"), &format!("layer {n}"));
    }
    // A colon and a backslash are written with a backslash in front.
    let odd = ctx.mkdir(&format!("{name}:\\"));
    ctx.file(&format!("{name}:\\/odd"), "odd");
    let odd = odd.display().to_string().replace('\\', "\\\\").replace(':', "\\:");
    let lower = layers.iter().map(|l| l.display().to_string()).chain([odd]).collect::<Vec<_>>().join(":");
    let options = [format!("lowerdir={lower}"), "userxattr".into(), "private".into()];
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let bundle = ctx.bundle().mount("/mnt", "overlay", "overlay", &options);
    let out = ctx.run(&bundle.ops(&["cat /mnt/file0", "cat /mnt/file15", "cat /mnt/odd"]));
    assert_eq!(out.all(), [json!("layer 0"), json!("layer 15"), json!("odd")], "{out:?}");
    let options = ["lowerdir=/no/such:".to_owned() + &lower];
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let bundle = ctx.bundle().mount("/mnt", "overlay", "overlay", &options);
    ctx.run(&bundle).failed(&["/mnt", "/no/such", "no such file or directory"]);
}

fn many_layers_on_an_older_kernel(ctx: &Ctx) {
    // Before Linux 6.7 the kernel does not know `lowerdir+`; strace says so for it.
    if std::process::Command::new("strace").arg("-V").output().is_err() {
        skip!("strace is not installed");
    }
    let layers: Vec<String> = (0..20)
        .map(|n| {
            let layer = ctx.mkdir(&format!("layer{n}"));
            ctx.file(&format!("layer{n}/file{n}"), &format!("layer {n}"));
            layer.display().to_string()
        })
        .collect();
    let lower = format!("lowerdir={}", layers.join(":"));
    let bundle = ctx.bundle().without_mount("/dev").without_mount("/dev/pts").without_mount("/dev/shm");
    // The host's, because devices of the container's own need a tmpfs.
    let bundle = bundle.mount("/dev", "bind", "/dev", &["rbind"]);
    let bundle = bundle.mount("/mnt", "overlay", "overlay", &[&lower, "private"]);
    let bundle = bundle.ops(&["cat /mnt/file0", "cat /mnt/file19"]);
    let out = ctx
        .command("strace")
        .args(["-f", "-o", "/dev/null", "-e", "trace=fsconfig", "-e", "inject=fsconfig:error=EINVAL"])
        .arg(ctx.rt_path())
        .args(["--root", text(&ctx.state), "run", "--bundle", text(&bundle.dir), &ctx.id()])
        .run();
    assert_eq!(out.all(), [json!("layer 0"), json!("layer 19")], "{out:?}");
}

fn readonly_root(ctx: &Ctx) {
    let bundle = ctx.bundle().with("/root/readonly", json!(true));
    let bundle = bundle.ops(&["write /etc/x y", "write /dev/shm/x y", "mkdir /new", "cat /etc/passwd"]);
    let before = bundle.strict_tree();
    let all = ctx.run(&bundle).all();
    assert_eq!(all[..3], [errno(libc::EROFS), Value::Null, errno(libc::EROFS)]);
    assert!(all[3].as_str().unwrap().starts_with("root:"));
    assert_eq!(bundle.strict_tree(), before);
}

fn writable_root_is_written(ctx: &Ctx) {
    // What the container itself does to a writable root stays.
    let bundle = ctx.bundle().ops(&["write /etc/made y", "mkdir /home/dir", "rm /etc/group"]);
    assert_eq!(ctx.run(&bundle).all(), [Value::Null, Value::Null, Value::Null]);
    assert_eq!(fs::read_to_string(bundle.rootfs().join("etc/made")).unwrap(), "y");
    assert!(bundle.rootfs().join("home/dir").is_dir());
    assert!(!bundle.rootfs().join("etc/group").exists());
}

fn missing_mount_points_appear(ctx: &Ctx) {
    let data = ctx.mkdir("data");
    let file = ctx.file("data/file", "content");
    let bundle = ctx
        .bare_bundle()
        .mount("/a/b/c", "bind", text(&data), &["bind"])
        .mount("/d/e.conf", "bind", text(&file), &["bind", "ro"])
        .mount("/t", "tmpfs", "tmpfs", &[]);
    let before = bundle.tree();
    let bundle =
        bundle.ops(&["cat /a/b/c/file", "cat /d/e.conf", "write /t/x y", "stat /d/e.conf", "ls /proc/self"]);
    let out = ctx.run(&bundle);
    let all = out.all();
    assert_eq!(all[..3], [json!("content"), json!("content"), Value::Null], "{out:?}");
    assert_eq!(all[3]["kind"], "file");
    assert_eq!(bundle.tree(), before, "nothing is left behind in the rootfs");
}

fn missing_points_in_a_readonly_root(ctx: &Ctx) {
    let data = ctx.mkdir("data");
    ctx.file("data/file", "content");
    let bundle = ctx.bare_bundle().with("/root/readonly", json!(true)).mount(
        "/deep/ly/missing",
        "bind",
        text(&data),
        &["bind"],
    );
    let before = bundle.strict_tree();
    let bundle =
        bundle.ops(&["cat /deep/ly/missing/file", "write /x y", "write /deep/ly/x y", "mkdir /deep/z"]);
    let all = ctx.run(&bundle).all();
    assert_eq!(all[0], "content");
    assert_eq!(all[1..], [errno(libc::EROFS), errno(libc::EROFS), errno(libc::EROFS)]);
    assert_eq!(bundle.strict_tree(), before);
}

fn a_bind_uncovers_nothing(ctx: &Ctx) {
    let bundle = ctx.bundle().ops(&["ready"]);
    // Terminals and shared memory are mounted below.
    ctx.rt(["run", "-v", "/dev:/mnt:bind"]).arg(&bundle.dir).fails(&["/mnt", "/dev", "rbind"]);
    ctx.rt(["run", "-v", "/dev:/mnt:rbind"]).arg(&bundle.dir).ok();
    ctx.rt(["run", "-v", "/dev:/mnt"]).arg(&bundle.dir).ok();
}

fn root_that_the_caller_cannot_write(ctx: &Ctx) {
    if !Caller::tests_are_root() {
        skip!("a rootfs of another owner needs root to make it");
    }
    // Somebody else's image, as on a shared file system: readable, not writable, without mount points.
    let data = ctx.mkdir("data");
    ctx.file("data/file", "content");
    let bundle = ctx.bare_bundle().mount("/new/data", "bind", text(&data), &["bind", "ro"]);
    for path in tree(&bundle.rootfs(), false).keys() {
        sys::chown(path, 0, 0).unwrap();
    }
    let before = bundle.strict_tree();
    let bundle = bundle.ops(&["cat /new/data/file", "ls /dev", "id", "write /mine x"]);
    let out = ctx.run(&bundle);
    let all = out.all();
    assert_eq!(all[0], "content", "{out:?}");
    assert!(all[1].as_array().unwrap().contains(&json!("null")));
    assert_eq!(bundle.strict_tree(), before);
    // As caller, too.
    let out = ctx.run_with(&bundle, &["--user-map", "caller"]);
    assert_eq!((out.code, &out.line(0), &out.line(2)["uid"][0]), (0, &json!("content"), &json!(UID)));
    assert_eq!(bundle.strict_tree(), before);
}

fn unreadable_parts_of_a_root(ctx: &Ctx) {
    if !Caller::tests_are_root() {
        skip!("a rootfs of another owner needs root to make it");
    }
    // Directories that only their owner may enter (/root 0700) do not stop a container.
    let bundle = ctx.bundle();
    fs::set_permissions(bundle.rootfs().join("root"), fs::Permissions::from_mode(0o700)).unwrap();
    sys::chown(&bundle.rootfs().join("root"), 0, 0).unwrap();
    fs::remove_dir(bundle.rootfs().join("proc")).unwrap();
    let all = ctx.run(&bundle.ops(&["ls /root", "ls /proc/self"])).all();
    assert_eq!(all[0], errno(libc::EACCES));
    assert!(all[1].is_array());
}

fn missing_points_of_a_shared_root(ctx: &Ctx) {
    // A writable root that lacks the mount points: the container's own writes still land in the rootfs.
    let bundle = ctx.bare_bundle();
    bundle.mkdir("work");
    let bundle = bundle.ops(&["write /work/result 42", "write /dev/null x", "cat /work/result"]);
    assert_eq!(ctx.run(&bundle).all(), [Value::Null, Value::Null, json!("42")]);
    let kept = fs::read_to_string(bundle.rootfs().join("work/result"));
    let left: Vec<_> = ["dev", "proc"].iter().filter(|d| bundle.rootfs().join(d).exists()).collect();
    assert!(left.is_empty(), "left in the rootfs: {left:?}");
    assert_eq!(kept.ok().as_deref(), Some("42"), "a writable root is changed by what the container does");
}

fn many_containers_on_one_root(ctx: &Ctx) {
    let data = ctx.mkdir("data");
    ctx.file("data/file", "content");
    let bundle = ctx.bare_bundle().mount("/x/y", "bind", text(&data), &["bind"]);
    let bundle = bundle.ops(&["cat /x/y/file"]);
    let before = bundle.tree();
    let jobs: Vec<_> =
        (0..16).map(|_| ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(ctx.id()).spawn()).collect();
    for job in jobs {
        assert_eq!(job.wait().all()[0], "content");
    }
    // Where many end at once, a mount point can stay, which is noted and goes with the next container.
    if bundle.tree() != before {
        assert_eq!(ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(ctx.id()).ok().all()[0], "content");
    }
    assert_eq!(bundle.tree(), before);
}

fn deep_missing_destinations(ctx: &Ctx) {
    // A missing point below a mount: it is made in that mount, not in the rootfs.
    let data = ctx.mkdir("data");
    ctx.file("data/file", "content");
    let bundle = ctx.bundle().mount("/run", "tmpfs", "tmpfs", &["mode=755"]).mount(
        "/run/secrets/app",
        "bind",
        text(&data),
        &["bind"],
    );
    let before = bundle.tree();
    let bundle = bundle.ops(&["cat /run/secrets/app/file", "stat /run/secrets"]);
    let all = ctx.run(&bundle).all();
    assert_eq!((&all[0], &all[1]["kind"]), (&json!("content"), &json!("dir")));
    assert_eq!(bundle.tree(), before);
    let bundle = ctx.bundle().mount("/mnt", "bind", text(&data), &["bind", "rw"]);
    let inner = ctx.file("inner", "inner");
    let bundle = bundle.mount("/mnt/made/file", "bind", text(&inner), &["bind"]);
    let all = ctx.run(&bundle.ops(&["cat /mnt/made/file"])).all();
    assert_eq!(all[0], "inner");
}

/// A directory of the caller's on another file system than the bundles.
struct Elsewhere(std::path::PathBuf);

impl Elsewhere {
    fn new(ctx: &Ctx) -> Elsewhere {
        let dir = Path::new("/dev/shm").join(ctx.dir.file_name().unwrap());
        fs::create_dir(&dir).unwrap();
        ctx.give(&dir);
        Elsewhere(dir)
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A bundle with `outer` at /data, and `inner` at `/data/new`.
fn nested(ctx: &Ctx, outer: &Path, options: &[&str], inner: &Path) -> Bundle {
    let bundle = ctx.bundle().mount("/data", "bind", text(outer), options);
    bundle.mount("/data/new", "bind", text(inner), &["rbind"])
}

fn mount_points_in_binds(ctx: &Ctx) {
    // What the program writes beside a mount point must arrive in the source.
    let elsewhere = Elsewhere::new(ctx);
    let inner = ctx.mkdir("inner");
    ctx.file("inner/file", "inner");
    for source in [ctx.mkdir("data"), elsewhere.0.clone()] {
        // More entries than a directory of the image may have that is covered by single binds.
        (0..80).for_each(|n| fs::write(source.join(format!("old{n}")), "old").unwrap());
        fs::create_dir(source.join("sub")).unwrap();
        ctx.give(&source);
        let names = || tree(&source, false).into_keys().collect::<Vec<_>>();
        let before = names();
        for (readonly, wanted) in [(false, "/data/new"), (true, "/data/new"), (true, "/data/sub/a/b")] {
            println!("{}, read-only root: {readonly}, {wanted}", source.display());
            let bundle = ctx.bundle().with("/root/readonly", json!(readonly));
            let bundle = bundle.mount("/data", "bind", text(&source), &["rbind"]);
            let bundle = bundle.mount(wanted, "bind", text(&inner), &["rbind"]).ops(&[
                "write /data/out result",
                "write /data/old3 changed",
                &format!("cat {wanted}/file"),
                "mkdir /data/dir",
                "write /data/sub/out result",
            ]);
            let out = ctx.run(&bundle);
            assert_eq!(
                out.all(),
                [json!(null), json!(null), json!("inner"), json!(null), json!(null)],
                "{out:?}"
            );
            for (name, content) in [("out", "result"), ("old3", "changed"), ("sub/out", "result")] {
                assert_eq!(fs::read_to_string(source.join(name)).ok().as_deref(), Some(content), "{name}");
            }
            fs::remove_dir(source.join("dir")).unwrap();
            ["out", "sub/out"].iter().for_each(|name| fs::remove_file(source.join(name)).unwrap());
            fs::write(source.join("old3"), "old").unwrap();
            assert_eq!(names(), before, "left in the source");
        }
    }
}

fn covers_keep_what_is_mounted_below(ctx: &Ctx) {
    // An overlay would show the image's file again.
    let file = ctx.file("file", "bound");
    let bundle = ctx.bundle().with("/root/readonly", json!(true));
    let bundle = bundle.mount("/etc/passwd", "bind", text(&file), &["bind"]);
    let bundle = bundle.mount("/etc/new", "bind", text(&file), &["bind"]);
    (0..80).for_each(|n| drop(bundle.file(&format!("etc/many{n}"), "")));
    let before = bundle.strict_tree();
    let bundle =
        bundle.ops(&["cat /etc/passwd", "cat /etc/new", "write /etc/x y", "write /etc/passwd bound"]);
    let all = ctx.run(&bundle).all();
    assert_eq!(all, [json!("bound"), json!("bound"), errno(libc::EROFS), Value::Null]);
    assert_eq!(bundle.strict_tree(), before);
}

fn mount_points_in_read_only_binds(ctx: &Ctx) {
    // Nobody asked for a change of the source, and nothing written there can be lost: it is covered.
    let data = ctx.mkdir("data");
    let inner = ctx.mkdir("inner");
    ctx.file("data/file", "data");
    ctx.file("inner/file", "inner");
    for many in [0, 80] {
        (0..many).for_each(|n| drop(ctx.file(&format!("data/{n}"), "")));
        let before = tree(&data, true);
        let bundle = nested(ctx, &data, &["rbind", "ro"], &inner).ops(&[
            "cat /data/file",
            "cat /data/new/file",
            "write /data/x y",
            "write /data/file y",
            "write /data/new/x y",
        ]);
        let all = ctx.run(&bundle).all();
        assert_eq!(all[..2], [json!("data"), json!("inner")]);
        assert_eq!(all[2..], [errno(libc::EROFS), errno(libc::EROFS), Value::Null]);
        assert_eq!(tree(&data, true), before);
    }
}

fn mount_points_that_cannot_be_made(ctx: &Ctx) {
    if !Caller::tests_are_root() {
        skip!("a directory of another owner needs root to make it");
    }
    let data = ctx.mkdir("data");
    chown(&data, Some(0), Some(0)).unwrap();
    let bundle = nested(ctx, &data, &["rbind"], &ctx.mkdir("inner")).ops(&["ready"]);
    let out = ctx.run(&bundle);
    out.failed(&["/data/new", &format!("make new in {}", text(&data)), "permission denied", "beforehand"]);
    // What the user then makes is the user's.
    fs::create_dir(data.join("new")).unwrap();
    assert_eq!(ctx.run(&bundle).line(0), "ready");
    assert!(data.join("new").is_dir());
}

fn what_rt_has_not_made_stays(ctx: &Ctx) {
    let data = ctx.mkdir("data");
    let bundle = nested(ctx, &data, &["rbind"], &ctx.mkdir("inner"));
    // Behind the bind the image has a directory of the same name.
    bundle.mkdir("data/new");
    let bundle = bundle.ops(&["ready"]);
    assert_eq!(ctx.run(&bundle).line(0), "ready");
    assert!(bundle.rootfs().join("data/new").is_dir(), "a directory of the image was removed");
    assert!(!data.join("new").exists(), "left in the source");
    // What something was put into stays, too.
    let container = ctx.started(&bundle.ops(&["pause"]));
    fs::write(data.join("new/kept"), "").unwrap();
    container.end();
    assert!(data.join("new/kept").exists());
}

fn mount_points_are_no_cgroups(ctx: &Ctx) {
    // A directory that is made in a cgroup file system is a cgroup: a missing mount point is covered there.
    let name = ctx.id();
    let places: Vec<_> = ["", "memory/", "unified/", "pids/"]
        .iter()
        .map(|tree| Path::new("/sys/fs/cgroup").join(tree))
        .filter(|tree| tree.join("cgroup.procs").exists())
        .collect();
    for place in places {
        let wanted = place.join(&name);
        let bundle = ctx.bundle().mount("/sys", "none", "/sys", &["rbind"]);
        let bundle = bundle.mount(text(&wanted), "tmpfs", "tmpfs", &["mode=755"]);
        let bundle = bundle.ops(&[&format!("write {}/file x", wanted.display()), "pause"]);
        let container = ctx.started(&bundle);
        assert_eq!(container.line(0), Value::Null, "{}", wanted.display());
        assert!(!wanted.exists(), "a cgroup was made: {}", wanted.display());
        container.end();
    }
}

fn failed_start_leaves_no_mount_point(ctx: &Ctx) {
    let (data, inner) = (ctx.mkdir("data"), ctx.mkdir("inner"));
    let bundle = nested(ctx, &data, &["rbind"], &inner).mount("/mnt", "bind", "/not/there", &["bind"]);
    let before = bundle.tree();
    ctx.run(&bundle).failed(&["/not/there"]);
    assert!(!data.join("new").exists(), "left in the source");
    assert_eq!(bundle.tree(), before);
}

fn mount_points_used_by_others(ctx: &Ctx) {
    // The removal of a mount point takes away what others have mounted there.
    let (data, inner) = (ctx.mkdir("data"), ctx.mkdir("inner"));
    ctx.file("inner/file", "inner");
    let first = ctx.started(&nested(ctx, &data, &["rbind"], &inner).ops(&["pause"]));
    let other =
        nested(ctx, &data, &["rbind"], &inner).ops(&["ready", "until /data/go", "cat /data/new/file"]);
    let mut job = ctx.rt(["run", "--bundle"]).arg(&other.dir).arg(ctx.id()).spawn();
    job.line(0);
    first.kill("KILL");
    first.reap();
    ctx.rt(["delete", &first.id]).silent();
    assert!(data.join("new").is_dir(), "another container uses it");
    fs::write(data.join("go"), "").unwrap();
    assert_eq!(job.wait().line(2), "inner");
    assert!(!data.join("new").exists(), "left in the source");
}

fn covers_have_the_owner(ctx: &Ctx) {
    // A user's own directory stays the user's, by whatever it is covered.
    let inner = ctx.mkdir("inner");
    for many in [0, 80] {
        let bundle = ctx.bundle().with("/root/readonly", json!(true));
        let bundle = bundle.mount("/home/alice/new", "bind", text(&inner), &["rbind"]);
        let home = bundle.mkdir("home/alice");
        (0..many).for_each(|n| drop(bundle.file(&format!("home/alice/{n}"), "")));
        chown(&home, Some(1000), Some(1000)).unwrap();
        fs::set_permissions(&home, fs::Permissions::from_mode(0o2700)).unwrap();
        let bundle = bundle.with("/process/user", json!({ "uid": 1000, "gid": 1000 }));
        let out = ctx.run(&bundle.ops(&["stat /home/alice", "exists /home/alice/new"]));
        let (stat, exists) = (out.line(0), out.line(1));
        assert_eq!((&stat["mode"], &stat["uid"], &stat["gid"]), (&json!(0o2700), &json!(1000), &json!(1000)));
        assert_eq!(exists, true, "{out:?}");
    }
}

fn missing_file_mount_points(ctx: &Ctx) {
    let resolv = ctx.file("resolv.conf", "nameserver 192.0.2.1");
    let bundle = ctx.bundle().mount("/etc/resolv.conf", "bind", text(&resolv), &["bind", "ro"]).mount(
        "/etc/hosts",
        "bind",
        text(&resolv),
        &["bind", "ro"],
    );
    let before = bundle.tree();
    let bundle = bundle.ops(&["cat /etc/resolv.conf", "cat /etc/hosts", "cat /etc/group"]);
    assert_eq!(ctx.run(&bundle).all()[1], "nameserver 192.0.2.1");
    assert_eq!(bundle.tree(), before);
}

fn destinations_through_symlinks(ctx: &Ctx) {
    // Links of the image are resolved inside it: /var/run -> /run, absolute and upward ones stay inside.
    let data = ctx.mkdir("data");
    ctx.file("data/file", "content");
    for (target, seen) in
        [("/run", "/run/x/file"), ("../run", "/run/x/file"), ("../../../../../run", "/run/x/file")]
    {
        let bundle = ctx.bundle().mount("/var/run/x", "bind", text(&data), &["bind"]);
        bundle.link("var/run", target);
        bundle.mkdir("run/x");
        assert_eq!(ctx.run(&bundle.ops(&[&format!("cat {seen}")])).all()[0], "content", "{target}");
    }
    // A link as the last part, to a directory and to a file.
    let bundle = ctx.bundle().mount("/data", "bind", text(&data), &["bind"]);
    bundle.link("data", "/mnt");
    assert_eq!(ctx.run(&bundle.ops(&["cat /mnt/file"])).all()[0], "content");
    let file = ctx.file("a-file", "bound");
    let bundle = ctx.bundle().mount("/etc/resolv.conf", "bind", text(&file), &["bind"]);
    bundle.file("run/real", "original");
    bundle.link("etc/resolv.conf", "../run/real");
    assert_eq!(ctx.run(&bundle.ops(&["cat /run/real"])).all()[0], "bound");
}

fn relative_destination(ctx: &Ctx) {
    // Older clients leave the first slash out; the spec lets a runtime take it as below /.
    let data = ctx.mkdir("data");
    ctx.file("data/file", "content");
    let out = ctx.run(&ctx.bundle().mount("mnt", "bind", text(&data), &["bind"]).ops(&["cat /mnt/file"]));
    if out.code == 0 {
        assert_eq!(out.line(0), "content");
    } else {
        out.failed(&["mnt"]);
    }
}

fn order_is_kept(ctx: &Ctx) {
    let (a, b) = (ctx.mkdir("a"), ctx.mkdir("b"));
    ctx.file("a/which", "first");
    ctx.file("b/which", "second");
    let bundle = ctx.bundle().mount("/mnt", "bind", text(&a), &["bind"]);
    let bundle = bundle.mount("/mnt", "bind", text(&b), &["bind"]);
    assert_eq!(ctx.run(&bundle.ops(&["cat /mnt/which"])).all()[0], "second");
}

fn mount_on_top_of_a_mount(ctx: &Ctx) {
    let a = ctx.mkdir("a");
    ctx.file("a/which", "bind");
    let bundle = ctx
        .bundle()
        .mount("/mnt", "tmpfs", "tmpfs", &["mode=755"])
        .mount("/mnt/x", "tmpfs", "tmpfs", &["mode=755"])
        .mount("/mnt/x/y", "bind", text(&a), &["bind"]);
    assert_eq!(ctx.run(&bundle.ops(&["cat /mnt/x/y/which"])).all()[0], "bind");
}

fn mount_over_a_file(ctx: &Ctx) {
    // A directory cannot be mounted on a file: an error that names the place.
    let data = ctx.mkdir("data");
    let bundle = ctx.bundle().mount("/etc/passwd", "bind", text(&data), &["bind"]);
    ctx.run(&bundle).failed(&["/etc/passwd", "not a directory"]);
}

fn mounts_of_fifo_and_socket(ctx: &Ctx) {
    let fifo = ctx.path("fifo");
    sys::mkfifo(&fifo).unwrap();
    ctx.give(&fifo);
    let socket = ctx.path("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let bundle = ctx.bundle().mount("/run/fifo", "bind", text(&fifo), &["bind"]).mount(
        "/run/socket",
        "bind",
        text(&socket),
        &["bind"],
    );
    let all = ctx.run(&bundle.ops(&["stat /run/fifo", "stat /run/socket"])).all();
    assert_eq!((&all[0]["kind"], &all[1]["kind"]), (&json!("fifo"), &json!("socket")));
}

fn spaces_in_paths(ctx: &Ctx) {
    let data = ctx.mkdir("with space,comma:colon=and\\backslash");
    fs::write(data.join("file"), "content").unwrap();
    let bundle = ctx.bundle().mount("/mnt/a b,c", "bind", text(&data), &["bind"]);
    let out = ctx.run(&bundle.with("/process/args", json!(["/probe", "ls /mnt", "ready"])));
    assert_eq!(out.all()[0], json!(["a b,c"]));
}

fn masked_and_readonly_paths(ctx: &Ctx) {
    let bundle = ctx.bundle();
    bundle.mkdir("secret");
    bundle.file("secret/key", "hidden");
    bundle.file("secret-file", "hidden");
    bundle.mkdir("fixed");
    let bundle = bundle
        .with(
            "/linux/maskedPaths",
            json!([
                "/secret",
                "/proc/../secret-file",
                "/proc/timer_list",
                "/absent",
                "/absent/too",
                "/secret"
            ]),
        )
        .with("/linux/readonlyPaths", json!(["/fixed", "/etc/passwd", "/proc/sys", "/absent"]))
        .ops(&[
            "ls /secret",
            "cat /secret-file",
            "cat /proc/timer_list",
            "write /fixed/x y",
            "append /etc/passwd x",
            "write /proc/sys/kernel/domainname x",
            "stat /secret-file",
            "write /secret/x y",
            "exists /absent",
            "cat /proc/self/mountinfo",
        ]);
    let all = ctx.run(&bundle).all();
    assert_eq!(all[..3], [json!([]), json!(""), json!("")]);
    for denied in &all[3..6] {
        assert!([errno(libc::EROFS), errno(libc::EACCES)].contains(denied), "{denied}");
    }
    assert_eq!((&all[6]["kind"], &all[6]["major"], &all[6]["minor"]), (&json!("char"), &json!(1), &json!(3)));
    assert_ne!(all[7], Value::Null, "a masked directory cannot be written");
    assert_eq!(all[8], false);
    let masks = all[9].as_str().unwrap().lines().filter(|line| line.contains(" /secret ")).count();
    assert_eq!(masks, 1, "what is listed twice is masked once");
}

fn default_devices(ctx: &Ctx) {
    let bundle = ctx.bundle().ops(&[
        "stat /dev/null",
        "stat /dev/zero",
        "stat /dev/full",
        "stat /dev/random",
        "stat /dev/urandom",
        "stat /dev/tty",
        "readlink /dev/fd",
        "readlink /dev/stdin",
        "readlink /dev/stdout",
        "readlink /dev/stderr",
        "readlink /dev/ptmx",
        "write /dev/null x",
        "head /dev/zero 2",
        "write /dev/full x",
        "ls /dev",
    ]);
    let all = ctx.run(&bundle).all();
    let numbers = [(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0)];
    for (device, (major, minor)) in all.iter().zip(numbers) {
        assert_eq!(
            (&device["kind"], &device["major"], &device["minor"]),
            (&json!("char"), &json!(major), &json!(minor))
        );
        assert_eq!(device["mode"], 0o666, "{device}");
    }
    assert_eq!(
        all[6..10],
        [
            json!("/proc/self/fd"),
            json!("/proc/self/fd/0"),
            json!("/proc/self/fd/1"),
            json!("/proc/self/fd/2")
        ]
    );
    assert_eq!(all[10], "pts/ptmx");
    assert_eq!(all[11..14], [Value::Null, json!("\0\0"), errno(libc::ENOSPC)]);
    let names: Vec<&str> = all[14].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    for name in &names {
        let known = [
            "console", "core", "fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm", "stderr",
            "stdin", "stdout", "tty", "urandom", "zero",
        ];
        assert!(known.contains(name), "/dev/{name} was not asked for");
    }
}

fn device_mounts(ctx: &Ctx) {
    // Rootless podman gives devices as bind mounts.
    let options = ["slave", "nosuid", "noexec", "rw", "rbind"];
    let bundle = ctx.bundle().mount("/dev/my-zero", "bind", "/dev/zero", &options);
    let all = ctx.run(&bundle.ops(&["stat /dev/my-zero", "head /dev/my-zero 1"])).all();
    assert_eq!((&all[0]["minor"], &all[1]), (&json!(5), &json!("\0")));
}

fn dev_is_bind_mounted(ctx: &Ctx) {
    // /dev from the host: its devices are there, and none is made in it. Others make terminals and shared memory meanwhile.
    let changes = |path: &PathBuf| ["/dev/pts", "/dev/shm/"].iter().any(|dir| path.starts_with(dir));
    let devices =
        || tree(Path::new("/dev"), false).into_keys().filter(|path| !changes(path)).collect::<Vec<_>>();
    let before = devices();
    let bundle = ctx.bundle().without_mount("/dev").without_mount("/dev/pts").without_mount("/dev/shm");
    let bundle =
        bundle.mount("/dev", "bind", "/dev", &["rbind", "rw"]).ops(&["write /dev/null x", "stat /dev/null"]);
    let all = ctx.run(&bundle).all();
    assert_eq!((&all[0], &all[1]["minor"]), (&Value::Null, &json!(3)));
    assert_eq!(before, devices());
}

fn dev_shm_and_pts(ctx: &Ctx) {
    let bundle = ctx.bundle().ops(&[
        "write /dev/shm/x y",
        "stat /dev/shm",
        "open /dev/ptmx",
        "flags /dev/shm",
        "ls /dev/pts",
    ]);
    let all = ctx.run(&bundle).all();
    assert_eq!((&all[0], &all[1]["mode"], &all[2]), (&Value::Null, &json!(0o1777), &Value::Null));
    assert_eq!(all[4], json!(["ptmx"]), "a devpts of its own");
}

fn devpts_without_gid(ctx: &Ctx) {
    // Every containerd spec has gid=5, which one id does not have.
    let bundle = ctx.bundle().without_mount("/dev/pts").mount(
        "/dev/pts",
        "devpts",
        "devpts",
        &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"],
    );
    let all = ctx.run(&bundle.ops(&["open /dev/ptmx"])).all();
    assert_eq!(all[0], Value::Null);
}

fn proc_sys_and_mqueue(ctx: &Ctx) {
    let bundle = ctx
        .bundle()
        .namespace("network", None)
        .mount("/sys", "sysfs", "sysfs", &["nosuid", "noexec", "nodev", "ro"])
        .mount("/dev/mqueue", "mqueue", "mqueue", &["nosuid", "noexec", "nodev"]);
    let table = mounts(ctx, bundle);
    assert_eq!(at(&table, "/proc")[3], "proc");
    assert_eq!(at(&table, "/sys")[3], "sysfs");
    has(at(&table, "/sys"), &["ro", "nosuid", "nodev", "noexec"]);
    assert_eq!(at(&table, "/dev/mqueue")[3], "mqueue");
}

fn proc_is_not_hidden(ctx: &Ctx) {
    // The host's /proc does not shine through: init is pid 1 and alone.
    let all = ctx.run(&ctx.bundle().ops(&["ps", "pid"])).all();
    assert_eq!((&all[0], &all[1]["pid"]), (&json!([1]), &json!(1)));
}

fn cgroup_mount_is_readonly(ctx: &Ctx) {
    let bundle = ctx
        .bundle()
        .namespace("network", None)
        .namespace("cgroup", None)
        .mount("/sys", "sysfs", "sysfs", &["nosuid", "noexec", "nodev", "ro"])
        .mount("/sys/fs/cgroup", "cgroup", "cgroup", &["nosuid", "noexec", "nodev", "relatime", "ro"]);
    let bundle = bundle.ops(&[
        "ls /sys/fs/cgroup",
        "mkdir /sys/fs/cgroup/x",
        "cat /proc/self/mountinfo",
        "mkdir /sys/fs/cgroup/memory/x",
    ]);
    let all = ctx.run(&bundle).all();
    assert!(!all[0].as_array().unwrap().is_empty(), "something to read: {}", all[0]);
    for denied in [&all[1], &all[3]] {
        let denials = [libc::EROFS, libc::EACCES, libc::EPERM, libc::ENOENT].map(errno);
        assert!(denials.contains(denied), "{denied}");
    }
    for mount in parse(all[2].as_str().unwrap()).iter().filter(|m| m[0].starts_with("/sys/fs/cgroup")) {
        has(mount, &["ro"]);
    }
}

fn propagation_of_mounts(ctx: &Ctx) {
    let data = ctx.mkdir("data");
    for (option, field) in
        [("shared", "shared:"), ("private", ""), ("unbindable", "unbindable"), ("rprivate", "")]
    {
        let bundle = ctx.bundle().mount("/mnt", "bind", text(&data), &["bind", option]);
        let table = mounts(ctx, bundle);
        let optional = &at(&table, "/mnt")[2];
        if field.is_empty() {
            assert_eq!(optional, "", "{option}");
        } else {
            assert!(optional.contains(field), "{option}: {optional}");
        }
    }
    for option in ["slave", "rslave", "rshared", "runbindable"] {
        mounts(ctx, ctx.bundle().mount("/mnt", "bind", text(&data), &["rbind", option]));
    }
}

fn rootfs_propagation(ctx: &Ctx) {
    for (value, field) in [
        ("private", ""),
        ("rprivate", ""),
        ("shared", "shared:"),
        ("rshared", "shared:"),
        ("slave", ""),
        ("rslave", ""),
        ("unbindable", "unbindable"),
    ] {
        let table = mounts(ctx, ctx.bundle().with("/linux/rootfsPropagation", json!(value)));
        let optional = &at(&table, "/")[2];
        match field {
            "" => assert!(
                !optional.contains("shared:") && !optional.contains("unbindable"),
                "{value}: {optional}"
            ),
            field => assert!(optional.contains(field), "{value}: {optional}"),
        }
    }
    ctx.run(&ctx.bundle().with("/linux/rootfsPropagation", json!("sideways"))).failed(&["sideways"]);
}

fn shared_root_on_a_mount_with_blanks(ctx: &Ctx) {
    // The image is itself a shared mount, whose name mountinfo writes with escapes: pivot_root wants it private.
    let bundle = ctx.bundle().with("/linux/rootfsPropagation", json!("rshared"));
    let odd = ctx.mkdir("an odd\\name");
    let bundle = bundle.with("/root/path", json!(odd)).ops(&["cat /proc/self/mountinfo"]);
    let script = r#"mount --bind "$1" "$2" && mount --make-shared "$2" && shift 2 && exec "$@""#;
    let out = ctx
        .command("unshare")
        .args(["--mount", "sh", "-c", script, "sh", text(&bundle.rootfs()), text(&odd)])
        .arg(ctx.rt_path())
        .args(["--root", text(&ctx.state), "run", "--bundle", text(&bundle.dir), &ctx.id()])
        .run();
    let table = parse(out.all()[0].as_str().unwrap());
    assert!(at(&table, "/")[2].contains("shared:"), "{out:?}");
}

fn nothing_shows_on_the_host(ctx: &Ctx) {
    // While it runs, also with shared propagation: not one mount on the host's side.
    let data = ctx.mkdir("data");
    let bundle = ctx
        .bundle()
        .with("/linux/rootfsPropagation", json!("rshared"))
        .caps(&["CAP_SYS_ADMIN"])
        .mount("/mnt", "bind", text(&data), &["rbind", "rshared"])
        .mount("/mnt/sub", "tmpfs", "tmpfs", &[]);
    let before = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let container = ctx.started(&bundle.ops(&["mount tmpfs /tmp tmpfs", "pause"]));
    container.line(1);
    assert_eq!(fs::read_to_string("/proc/self/mountinfo").unwrap(), before);
    assert!(!data.join("sub/x").exists());
    container.end();
}

fn root_mount_flags(ctx: &Ctx) {
    let table = mounts(ctx, ctx.bundle());
    let roots: Vec<_> = table.iter().filter(|m| m[0] == "/").collect();
    assert_eq!(roots.len(), 1, "the old root is gone: {table:#?}");
    lacks(roots[0], &["ro"]);
    for mount in &table {
        assert!(!mount[0].contains("rt-test"), "the host's paths do not show: {mount:?}");
    }
}

fn root_is_a_mount_point(ctx: &Ctx) {
    // The parent of the root is not reachable.
    let out = ctx.run(&ctx.bundle().ops(&["stat /", "stat /..", "stat /../../.."]));
    let all = out.all();
    assert_eq!((&all[0]["ino"], &all[0]["ino"]), (&all[1]["ino"], &all[2]["ino"]));
}

fn root_path_forms(ctx: &Ctx) {
    // Absolute, relative, through a link, with a slash at the end.
    let bundle = ctx.bundle().ops(&["ready"]);
    std::os::unix::fs::symlink("rootfs", bundle.dir.join("link")).unwrap();
    let absolute = bundle.rootfs().display().to_string();
    let mut bundle = bundle;
    for path in ["rootfs", "./rootfs/", &absolute] {
        bundle.set("/root/path", json!(path));
        assert_eq!(ctx.run(&bundle).all()[0], "ready", "{path}");
    }
    // runc refuses a link here; it is the host's own, so following it is right, too.
    bundle.set("/root/path", json!("link"));
    let out = ctx.run(&bundle);
    assert!(out.code == 0 || out.stderr.contains("link"), "{out:?}");
    let bundle = bundle.unset("", "root");
    ctx.run(&bundle).failed(&["root"]);
}

fn bind_of_a_bind_source_mounts(ctx: &Ctx) {
    // rbind takes the mounts below, bind does not.
    let table = mounts(ctx, ctx.bundle().mount("/sys", "none", "/sys", &["rbind"]));
    let host = parse(&fs::read_to_string("/proc/self/mountinfo").unwrap());
    let below = |t: &[[String; 6]]| t.iter().filter(|m| m[0].starts_with("/sys/")).count();
    assert_eq!(below(&table), below(&host));
    if ctx.caller == Caller::Root {
        let table = mounts(ctx, ctx.bundle().mount("/sys", "none", "/sys", &["bind"]));
        assert_eq!(below(&table), 0);
    }
}

fn bind_inherits_locked_flags(ctx: &Ctx) {
    // /proc and /sys are nosuid,nodev,noexec on the host: a read-only bind of them must keep that. Below
    // /sys/kernel there may be mounts, which a bind by a plain user must not uncover.
    let bundle = ctx.bundle().mount("/mnt", "bind", "/sys/class", &["bind", "ro"]);
    let out = ctx.run(&bundle.ops(&["ls /mnt", "write /mnt/x y", "cat /proc/self/mountinfo"]));
    let all = out.all();
    assert!(all[0].is_array(), "{out:?}");
    has(at(&parse(all[2].as_str().unwrap()), "/mnt"), &["ro"]);
}

fn many_mounts(ctx: &Ctx) {
    let data = ctx.mkdir("data");
    ctx.file("data/file", "content");
    let mut bundle = ctx.bundle();
    for n in 0..150 {
        bundle.config["mounts"].as_array_mut().unwrap().push(
            json!({ "destination": format!("/mnt/{n}"), "type": "bind", "source": data, "options": ["bind", "ro"] }),
        );
    }
    bundle.write();
    let all = ctx.run(&bundle.ops(&["ls /mnt", "cat /mnt/149/file"])).all();
    assert_eq!((all[0].as_array().unwrap().len(), &all[1]), (150, &json!("content")));
}

fn symlink_mount(ctx: &Ctx) {
    // podman 5.8: `copy-symlink` makes the link itself at the destination.
    std::os::unix::fs::symlink("/etc/passwd", ctx.path("a-link")).unwrap();
    ctx.give(&ctx.path("a-link"));
    let bundle =
        ctx.bundle().mount("/mnt/link", "bind", text(&ctx.path("a-link")), &["bind", "copy-symlink"]);
    let out = ctx.run(&bundle.ops(&["readlink /mnt/link"]));
    if out.code == 0 {
        assert_eq!(out.line(0), "/etc/passwd", "{out:?}");
    } else {
        out.failed(&["copy-symlink"]);
    }
}

fn destination_that_is_a_link(ctx: &Ctx) {
    // `dest-nofollow`: the mount is on the link, and what it leads to stays as it is.
    let file = ctx.file("a-file", "bound");
    let dir = ctx.mkdir("a-dir");
    for target in ["/etc/real", "/nowhere"] {
        let options = ["bind", "dest-nofollow"];
        let bundle = ctx.bundle().mount("/etc/link", "bind", text(&file), &options);
        bundle.file("etc/real", "real");
        bundle.link("etc/link", target);
        let bundle = bundle.ops(&["cat /etc/link", "cat /etc/real"]);
        assert_eq!(ctx.run(&bundle).all(), [json!("bound"), json!("real")], "{target}");
        // A directory can only be mounted on a directory.
        let bundle = bundle.mount("/etc/link", "bind", text(&dir), &options);
        ctx.run(&bundle).failed(&["/etc/link", "not a directory"]);
        assert_eq!(fs::read_link(bundle.rootfs().join("etc/link")).unwrap(), Path::new(target));
    }
}

fn locked_access_times(ctx: &Ctx) {
    // In a user namespace of its own a container cannot change them: they stay as they are.
    if !Caller::tests_are_root() {
        skip!("a mount needs root to make it");
    }
    let data = ctx.mkdir("data");
    for (given, stays) in [("nodiratime,mode=777", "nodiratime"), ("noatime,mode=777", "noatime")] {
        ctx.command("mount").args(["-t", "tmpfs", "-o", given, "tmpfs", text(&data)]).by_tests().ok();
        for option in ["nodiratime", "diratime", "rnodiratime", "relatime", "noatime", "strictatime"] {
            let bundle = ctx.bundle().mount("/mnt", "bind", text(&data), &["rbind", option, "ro"]);
            let table = mounts(ctx, bundle);
            has(at(&table, "/mnt"), &["ro"]);
            if ctx.caller == Caller::User {
                has(at(&table, "/mnt"), &[stays]);
            }
        }
        ctx.command("umount").arg(&data).by_tests().ok();
    }
}

fn ptmx_of_the_config(ctx: &Ctx) {
    // A node of the host's would open terminals of the host's.
    let device = json!({ "path": "/dev/ptmx", "type": "c", "major": 5, "minor": 2 });
    let bundle = ctx.bundle().push("/linux/devices", device).ops(&["readlink /dev/ptmx"]);
    assert_eq!(ctx.run(&bundle).line(0), "pts/ptmx");
}

fn idmap_of_a_mount(ctx: &Ctx) {
    let data = ctx.mkdir("data");
    ctx.file("data/file", "content");
    // With privilege it works on the file systems that can; without it is an error before anything is made.
    let mount = json!({ "destination": "/mnt", "type": "bind", "source": data, "options": ["bind", "idmap"],
        "uidMappings": [{ "containerID": 0, "hostID": 1000, "size": 1 }],
        "gidMappings": [{ "containerID": 0, "hostID": 1000, "size": 1 }] });
    let out = ctx.run(&ctx.bundle().push("/mounts", mount).ops(&["stat /mnt/file"]));
    if out.code == 0 {
        assert_eq!(ctx.caller, Caller::Root, "{out:?}");
        assert_eq!(out.line(0)["uid"], 1000);
    } else {
        out.failed(&["map"]);
    }
}

fn idmap_by_the_containers_namespace(ctx: &Ctx) {
    // podman's `-v x:y:idmap`: no map of its own, so the container's.
    let data = ctx.mkdir("data");
    ctx.file("data/file", "content");
    chown(data.join("file"), Some(7), Some(7)).unwrap();
    let maps = json!([{ "containerID": 0, "hostID": RANGE.1, "size": RANGE.2 }]);
    let bundle = ctx
        .bundle()
        .namespace("user", None)
        .with("/linux/uidMappings", maps.clone())
        .with("/linux/gidMappings", maps)
        .mount("/mnt", "bind", data.to_str().unwrap(), &["rbind", "idmap", "ro"]);
    let out = ctx.run(&bundle.ops(&["stat /mnt/file", "write /mnt/file x"]));
    assert_eq!(out.line(0)["uid"], 7, "{out:?}");
    assert_eq!(out.line(1), errno(libc::EROFS));
}

fn sources_that_root_alone_reaches(ctx: &Ctx) {
    // Below somebody's 0700 directory: the root of another user namespace may not go there, root may.
    let closed = ctx.mkdir("closed");
    let data = ctx.mkdir("closed/data");
    ctx.file("closed/data/file", "content");
    chown(&closed, Some(UID), Some(UID)).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    let maps = json!([{ "containerID": 0, "hostID": RANGE.1, "size": RANGE.2 }]);
    let bundle = ctx
        .bundle()
        .namespace("user", None)
        .with("/linux/uidMappings", maps.clone())
        .with("/linux/gidMappings", maps)
        .mount("/mnt", "bind", text(&data), &["rbind", "ro"]);
    let out = ctx.run(&bundle.ops(&["cat /mnt/file", "write /mnt/file x", "cat /proc/self/mountinfo"]));
    assert_eq!((out.line(0), out.line(1)), (json!("content"), errno(libc::EROFS)), "{out:?}");
    let table = parse(out.all()[2].as_str().unwrap());
    assert!(!at(&table, "/mnt")[2].contains("shared:"), "{table:?}");
}

fn mount_label_and_rdt_are_refused_or_noted(ctx: &Ctx) {
    // No SELinux here: a label cannot be honoured.
    let bundle = ctx.bundle().with("/linux/mountLabel", json!("system_u:object_r:container_file_t:s0"));
    let out = ctx.run(&bundle.ops(&["ready"]));
    assert!(out.code == 0 || out.stderr.contains("mountLabel") || out.stderr.contains("SELinux"), "{out:?}");
}
