//! What OCI runtimes have been broken by: each row of the security page, with a hostile bundle. Refusing to
//! start with a clear error is right; an attack that had an effect is not.

use crate::client::Caller;
use crate::fixture::{Bundle, Cmd, Ctx, Out, errno, eventually, hex, tree};
use crate::runner::{skip, tests};
use crate::sys::{self, Step};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

tests! {
    ALL {
        own_binary_is_not_writable, joining_process_shows_nothing_of_the_host, cwd_through_descriptors,
        proc_of_the_image_is_a_link, destinations_stay_inside, masked_paths_with_a_fake_dev_null, proc_is_not_mounted_over,
        procfs_writes_are_not_redirected, readonly_sys_has_no_writable_cgroup, children_of_init_see_nothing_of_the_host,
    }
    BOTH {
        cve_2026_30892_exec_as_a_number, own_read_only_binary_is_copied, hosts_root_makes_no_user_namespace, closed_streams_stay_empty, entry_point_is_proc_self_exe, exec_target_is_proc_self_exe, cwd_makes_nothing_outside, exec_cwd_through_descriptors,
        sys_of_the_image_is_a_link, destination_swapped_during_the_mount, dev_of_the_image_is_a_link, dev_links_in_the_image,
        cve_2026_41579_and_47766_dev_of_the_image_leads_to_the_host, cve_2026_88264_console_is_made_on_the_host, cve_2026_88265_streams_become_a_file_of_the_host,
        dev_links_in_a_shared_volume, console_of_the_image_is_a_link, allowed_files_below_proc,
        masked_and_readonly_links, delete_follows_no_link, state_root_links_are_not_followed, exec_into_a_hostile_root,
        device_nodes_of_the_image_are_dead, devices_are_not_usable, devices_have_a_place_of_their_own, bundle_with_links, pid_file_is_not_followed_inside, passwd_of_the_image_is_hostile,
        destination_of_nothing_but_dots, cover_follows_no_link, notes_are_not_followed_elsewhere, file_destination_swapped, default_links_of_dev,
        old_root_is_not_reachable, hosts_proc_without_pivot, console_of_the_image_is_a_link_inside, init_is_not_ptraced, path_of_the_image_with_links, constants_are_read_only,
    }
    USER { nobodys_lock_stops_a_start }
    ROOT { proc_moved_while_it_starts, hosts_settings_and_disks, hosts_root_with_less, devices_of_privileged_containers }
}

/// A directory of the host beside the bundle that nothing may touch, and what it looked like.
struct Outside {
    dir: PathBuf,
    before: BTreeMap<PathBuf, String>,
}

impl Outside {
    fn new(ctx: &Ctx) -> Outside {
        let dir = ctx.mkdir("outside");
        ctx.mkdir("outside/dir");
        ctx.file("outside/file", "untouched");
        ctx.file("outside/host-marker", "");
        Outside { before: tree(&dir, true), dir }
    }

    #[track_caller]
    fn untouched(&self) {
        assert_eq!(tree(&self.dir, true), self.before, "the host was touched");
    }

    /// A link's target that leads here from the root of a bundle, if it is followed on the host.
    fn targets(&self) -> [String; 2] {
        [self.dir.display().to_string(), format!("../../../../../../../..{}", self.dir.display())]
    }
}

fn runs_or_refuses(ctx: &Ctx, bundle: &Bundle) -> Option<Vec<Value>> {
    let out = ctx.run(bundle);
    assert!(out.code != 101 && out.code != 134 && !out.stderr.contains("panicked"), "{out:?}");
    if out.code == 0 {
        return Some(out.all());
    }
    assert_eq!(out.stderr.trim_end().lines().count(), 1, "{out:?}");
    None
}

/// `rt` as a copy that the caller owns and could write.
fn own_rt(ctx: &Ctx) -> PathBuf {
    let path = ctx.path("own-rt");
    fs::copy(ctx.rt_path(), &path).unwrap();
    ctx.give(&path);
    path
}

fn rt_at(ctx: &Ctx, path: &Path, args: &[&str]) -> Cmd {
    let cmd = ctx.command(path);
    cmd.arg("--root").arg(&ctx.state).args(args)
}

/// Who can read an image, or a directory that is bound, can lock it. That stops nobody's container.
fn nobodys_lock_stops_a_start(ctx: &Ctx) {
    if !Caller::tests_are_root() {
        skip!("the tests do not run as root");
    }
    use std::os::unix::process::CommandExt;
    let data = ctx.mkdir("data");
    let bundle = ctx.bundle().with("/root/readonly", json!(false));
    let bundle = bundle.mount("/missing/place", "bind", "/", &["rbind", "ro"]);
    let bundle = bundle.mount("/data", "bind", data.to_str().unwrap(), &["rbind"]);
    let bundle = bundle.mount("/data/missing", "tmpfs", "tmpfs", &[]);
    let places = [bundle.rootfs(), data.clone()];
    // Anybody may pass the directories above, as in a shared store.
    for place in &places {
        for above in place.ancestors().take_while(|above| above.starts_with("/tmp/")) {
            let mode = fs::metadata(above).unwrap().permissions().mode();
            fs::set_permissions(above, PermissionsExt::from_mode(mode | 0o555)).unwrap();
        }
    }
    let mut attackers = places.each_ref().map(|place| {
        let mut command = std::process::Command::new("flock");
        command.arg(place).args(["sleep", "300"]).uid(65533).gid(65533).process_group(0);
        command.spawn().unwrap()
    });
    crate::fixture::eventually("the locks are held", || {
        let locked = |place: &PathBuf| fs::File::open(place).unwrap().try_lock_shared().is_err();
        places.iter().all(locked).then_some(())
    });
    let start = std::time::Instant::now();
    let out = ctx.run(&bundle.ops(&["ready"]));
    assert_eq!(out.code, 0, "{out:?}");
    assert!(start.elapsed() < std::time::Duration::from_secs(8), "{:?}", start.elapsed());
    for attacker in &mut attackers {
        sys::kill(-(attacker.id() as i32), libc::SIGKILL).unwrap();
        attacker.wait().unwrap();
    }
}

fn own_binary_is_not_writable(ctx: &Ctx) {
    // CVE-2019-5736: somebody inside waits for a process whose executable is the runtime.
    let rt = own_rt(ctx);
    let before = fs::read(&rt).unwrap();
    let bundle =
        ctx.bundle().caps(&["CAP_SYS_PTRACE", "CAP_DAC_OVERRIDE"]).ops(&["wait-for-writable-exe 800"]);
    let id = ctx.id();
    let mut job = rt_at(ctx, &rt, &["run", "--bundle"]).arg(&bundle.dir).arg(&id).spawn();
    job.line(0);
    while job.lines().len() < 2 {
        rt_at(ctx, &rt, &["exec", &id, "/probe", "ready"]).run();
        rt_at(ctx, &rt, &["exec", &id, "/proc/self/exe", "--version"]).run();
    }
    let got = job.line(1);
    assert_eq!(got["writable"], json!([]), "{got}");
    job.wait();
    assert!(fs::read(&rt).unwrap() == before, "the runtime's binary was changed");
}

fn own_read_only_binary_is_copied(ctx: &Ctx) {
    // Its owner, which a process inside is, could make it writable again.
    let rt = own_rt(ctx);
    fs::set_permissions(&rt, fs::Permissions::from_mode(0o555)).unwrap();
    let bundle = ctx.bundle().ops(&["ready", "pause"]);
    let id = ctx.id();
    let mut job = rt_at(ctx, &rt, &["run", "--bundle"]).arg(&bundle.dir).arg(&id).spawn();
    job.line(0);
    let exe = fs::read_link(format!("/proc/{}/exe", job.pid())).unwrap();
    assert!(exe.to_string_lossy().starts_with("/memfd:/"), "{exe:?}");
    ctx.rt(["kill", &id, "KILL"]).ok();
    job.wait();
}

fn closed_streams_stay_empty(ctx: &Ctx) {
    // Without care the first file that the runtime opens would be the container's standard input.
    let bundle = ctx.bundle().ops(&["links /proc/self/fd"]);
    let sh = ctx.command("/bin/sh").args(["-c", "exec \"$@\" <&- 2>&-", "sh"]);
    let run = sh.arg(ctx.rt_path()).arg("--root").arg(&ctx.state).args(["run", "--bundle"]);
    let out = run.arg(&bundle.dir).arg(ctx.id()).ok();
    let links: serde_json::Value = serde_json::from_str(&out.stdout).unwrap();
    assert_eq!((&links["0"], &links["2"]), (&json!("/dev/null"), &json!("/dev/null")), "{links}");
}

fn entry_point_is_proc_self_exe(ctx: &Ctx) {
    let rt = own_rt(ctx);
    let before = fs::read(&rt).unwrap();
    let bundle = ctx.bundle();
    bundle.link("entry", "/proc/self/exe");
    let mut bundle = bundle;
    for entry in ["/proc/self/exe", "/entry", "/proc/1/exe", "/proc/self/fd/3", "/proc/thread-self/exe"] {
        bundle.set("/process/args", json!([entry, "--version"]));
        let out = rt_at(ctx, &rt, &["run", "--bundle"]).arg(&bundle.dir).arg(ctx.id()).run();
        // Where it runs, it must not be the host's file: a sealed copy, at most.
        assert!(out.code != 101 && out.code != 134, "{entry}: {out:?}");
        assert!(fs::read(&rt).unwrap() == before, "{entry}: the runtime's binary was changed");
    }
}

/// The files of the host's cgroups are root's by the uid, and whoever has CAP_SYS_ADMIN in a user namespace mounts them.
fn hosts_root_makes_no_user_namespace(ctx: &Ctx) {
    // unshare is 272 and clone 56 on x86_64; CLONE_NEWUSER is 0x10000000, SIGCHLD 17. clone3 is 435.
    let calls = ["syscall 272 0x10000000", "syscall 56 0x10000011 0", "syscall 435 0 0"];
    let mut bundle = ctx.bundle().with("/annotations", json!({ "rt.environment": "caller" })).ops(&calls);
    bundle.write();
    let check = |bundle: &Bundle, flags: &[&str]| {
        let out = ctx.rt(["run"]).args(flags).arg(&bundle.dir).ok();
        let all = [0, 1, 2].map(|n| out.line(n));
        if ctx.caller == Caller::Root {
            assert_eq!(all, [errno(libc::EPERM), errno(libc::EPERM), errno(libc::ENOSYS)], "{flags:?}");
        } else {
            assert!(all[0] != errno(libc::EPERM) || std::env::consts::ARCH != "x86_64", "{all:?}");
        }
    };
    for flags in [&[][..], &["--clear-env"], &["--no-new-keyring"]] {
        check(&bundle, flags);
    }
    // Nor in what rt makes of an image in another profile.
    bundle.set("/annotations", json!({ "rt.image.name": "debian" })).write();
    check(&bundle, &[]);
    // A filter of the config's own takes nothing away.
    bundle.set("/linux/seccomp", json!({ "defaultAction": "SCMP_ACT_ALLOW" })).write();
    check(&bundle, &[]);
}

fn exec_target_is_proc_self_exe(ctx: &Ctx) {
    // The image's own program is a link to it, so that exec of "sh" runs the runtime inside.
    let rt = own_rt(ctx);
    let before = fs::read(&rt).unwrap();
    let bundle = ctx.bundle();
    bundle.link("bin/sh", "/proc/self/exe");
    let container = ctx.started(&bundle.ops(&["pause"]));
    for _ in 0..5 {
        rt_at(ctx, &rt, &["exec", &container.id, "/bin/sh", "-c", "true"]).run();
    }
    assert!(fs::read(&rt).unwrap() == before);
}

/// The most that a container may have and still must not see the host: one with a user namespace of its own
/// gets CAP_SYS_PTRACE there; with the caller's, that capability would be the caller's own.
fn peeping(ctx: &Ctx, bundle: Bundle) -> Bundle {
    let all: &[&str] = &["CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_SYS_PTRACE"];
    bundle.caps(if ctx.caller == Caller::User { all } else { &all[..2] })
}

fn joining_process_shows_nothing_of_the_host(ctx: &Ctx) {
    // CVE-2016-9962: a process of the container looks at the one that exec sends in.
    let bundle = peeping(ctx, ctx.bundle());
    for dir in [&ctx.dir, &bundle.dir] {
        fs::write(dir.join("host-marker"), "").unwrap();
    }
    let id = ctx.id();
    let bundle = bundle.ops(&["watch-descriptors 800"]);
    let mut job = ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(&id).spawn();
    job.line(0);
    fs::write(ctx.state.join("host-marker"), "").unwrap();
    let dir = fs::File::open(&ctx.dir).unwrap();
    while job.lines().len() < 2 {
        let leaks = [Step::Dup(dir.as_raw_fd(), 3), Step::Dup(dir.as_raw_fd(), 9)];
        ctx.rt(["exec", &id, "/probe", "ready"]).cwd(&ctx.dir).before(leaks).run();
    }
    let got = job.line(1);
    job.wait();
    fs::remove_file(ctx.state.join("host-marker")).unwrap();
    assert_eq!(got["outside"], json!([]), "{got}");
}

fn host_directories(ctx: &Ctx) -> (fs::File, Vec<Step>) {
    fs::write(ctx.dir.join("host-marker"), "").unwrap();
    let dir = fs::File::open(&ctx.dir).unwrap();
    let steps = (3..12).map(|fd| Step::Dup(dir.as_raw_fd(), fd)).collect();
    (dir, steps)
}

const LOOK_AROUND: [&str; 4] =
    ["cwd", "exists host-marker", "exists ../host-marker", "exists ../../../../../etc/hostname"];

fn cwd_through_descriptors(ctx: &Ctx) {
    // CVE-2024-21626.
    let (_dir, steps) = host_directories(ctx);
    let bundle = ctx.bundle().ops(&LOOK_AROUND);
    bundle.link("via", "/proc/self/fd");
    for n in 3..14 {
        bundle.link(&format!("link{n}"), &format!("/proc/self/fd/{n}"));
    }
    let mut bundle = bundle;
    for n in 3..14 {
        for cwd in [
            format!("/proc/self/fd/{n}"),
            format!("/proc/self/fd/{n}/../.."),
            format!("/link{n}"),
            format!("/via/{n}"),
        ] {
            // Links are tried with a third of the numbers: they resolve to the same.
            if n % 3 != 0 && !cwd.starts_with("/proc/self/fd/") {
                continue;
            }
            bundle.set("/process/cwd", json!(cwd));
            let out = ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(ctx.id()).before(steps.clone()).run();
            if out.code == 0 {
                assert_eq!(
                    (out.line(1), out.line(2), out.line(3)),
                    (json!(false), json!(false), json!(false)),
                    "{cwd}: {out:?}"
                );
            }
        }
    }
}

fn exec_cwd_through_descriptors(ctx: &Ctx) {
    let (_dir, steps) = host_directories(ctx);
    let bundle = ctx.bundle();
    for n in 3..14 {
        bundle.link(&format!("link{n}"), &format!("/proc/self/fd/{n}"));
    }
    let container = ctx.started(&bundle.ops(&["pause"]));
    for n in 3..14 {
        for cwd in [format!("/proc/self/fd/{n}"), format!("/link{n}")] {
            let out = container.exec_with(&["--cwd", &cwd], &LOOK_AROUND).before(steps.clone()).run();
            if out.code == 0 {
                assert_eq!(
                    (out.line(1), out.line(2), out.line(3)),
                    (json!(false), json!(false), json!(false)),
                    "{cwd}: {out:?}"
                );
            }
        }
    }
}

fn cwd_makes_nothing_outside(ctx: &Ctx) {
    let outside = Outside::new(ctx);
    for target in outside.targets() {
        let bundle = ctx.bundle();
        bundle.link("way", &target);
        let bundle = bundle.with("/process/cwd", json!("/way/made/by/cwd"));
        runs_or_refuses(ctx, &bundle);
        let bundle = ctx.bundle();
        bundle.link("way", &target);
        let container = ctx.started(&bundle.ops(&["pause"]));
        container.exec_with(&["--cwd", "/way/made/by/exec"], &["cwd"]).run();
        outside.untouched();
    }
}

fn proc_of_the_image_is_a_link(ctx: &Ctx) {
    // CVE-2019-19921, CVE-2023-27561, CVE-2025-54867.
    let outside = Outside::new(ctx);
    let [absolute, upward] = outside.targets();
    for target in [&absolute, &upward, "/tmp", "/tmp/../etc", "proc", "/dev"] {
        let bundle = ctx.bundle().with("/linux/maskedPaths", json!(["/proc/timer_list", "/proc/keys"]));
        bundle.link("proc", target);
        let ops = ["cat /proc/timer_list", "cat /proc/self/mountinfo", "write /proc/sys/kernel/domainname x"];
        if let Some(all) = runs_or_refuses(ctx, &bundle.ops(&ops)) {
            // Whatever /proc is now, the mask holds and the read-only part is read-only.
            assert!(
                all[0] == "" || all[0] == errno(libc::ENOENT),
                "{target}: timer_list is readable: {}",
                all[0]
            );
            assert_ne!(all[2], Value::Null, "{target}: /proc/sys is writable");
        }
        outside.untouched();
    }
}

fn proc_moved_while_it_starts(ctx: &Ctx) {
    // The root's owner exchanges its /proc with another directory, all the time. What the program finds at either
    // place is masked, or no procfs.
    let bundle = ctx
        .bundle()
        .namespace("network", None)
        .mount("/sys", "sysfs", "sysfs", &["nosuid", "noexec", "nodev"])
        .with("/linux/maskedPaths", json!(["/proc/timer_list", "/sys/kernel"]))
        .with("/linux/readonlyPaths", json!(["/proc/sys"]));
    let swap = |a: &str| {
        bundle.mkdir(&format!("other-{a}"));
        let (a, b) = (bundle.rootfs().join(a), bundle.rootfs().join(format!("other-{a}")));
        let swapper = ctx.command(ctx.helper()).arg("--exchange").arg(a).arg(b).spawn();
        (swapper.pid(), swapper)
    };
    let mut swappers = [swap("proc"), swap("sys")];
    swappers.iter_mut().for_each(|(_, s)| drop(s.line(0)));
    let ops: Vec<String> = ["/proc", "/other-proc"]
        .iter()
        .flat_map(|proc| [format!("cat {proc}/timer_list"), format!("write {proc}/sys/kernel/domainname x")])
        .chain(["/sys", "/other-sys"].iter().map(|sys| format!("ls {sys}/kernel")))
        .collect();
    let ops: Vec<&str> = ops.iter().cycle().take(ops.len() * 4).map(String::as_str).collect();
    let bundle = bundle.ops(&ops);
    let mut ran = 0;
    for _ in 0..80 {
        let out = ctx.run(&bundle);
        if out.code != 0 {
            assert_eq!(out.stderr.trim_end().lines().count(), 1, "{out:?}");
            continue;
        }
        ran += 1;
        for (op, value) in ops.iter().zip(out.all()) {
            let open = match value {
                Value::Null => op.starts_with("write"),
                Value::String(text) => !text.is_empty(),
                Value::Array(names) => !names.is_empty(),
                _ => false,
            };
            assert!(!open, "start {ran}: {op}");
        }
    }
    for (_, mut swapper) in swappers {
        swapper.child.kill().unwrap();
        swapper.child.wait().unwrap();
    }
    println!("{ran} of 80 starts won the race");
    assert!(ran > 0);
}

fn hosts_proc_without_pivot(ctx: &Ctx) {
    // The host's procfs stays below the image: it must not let anybody mount a procfs without masks.
    const NEW: i32 = libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWPID;
    for flags in [&[][..], &["--no-pivot"]] {
        let bundle = ctx.bundle().mount("/sys", "none", "/sys", &["rbind", "ro"]);
        let bundle = bundle.ops(&[&format!("unshare {NEW}"), "fork mount proc /mnt proc", "wait"]);
        let out = ctx.run_with(&bundle, flags);
        let mounted = out.all().into_iter().filter(|line| line.get("child").is_none()).collect::<Vec<_>>();
        assert!(mounted.contains(&errno(libc::EPERM)), "{flags:?}: {out:?}");
    }
}

fn console_of_the_image_is_a_link_inside(ctx: &Ctx) {
    // The terminal goes to /dev/console, and nowhere else in the image.
    let bundle = ctx.bundle().without_mount("/dev").without_mount("/dev/shm");
    bundle.mkdir("dev/pts");
    bundle.link("dev/console", "/etc/passwd");
    let bundle =
        bundle.with("/process/terminal", json!(true)).ops(&["stat /dev/console", "stat /etc/passwd"]);
    let out = ctx.run(&bundle);
    assert_eq!(out.code, 0, "{out:?}");
    assert_eq!((&out.line(0)["kind"], &out.line(1)["kind"]), (&json!("char"), &json!("file")), "{out:?}");
}

fn sys_of_the_image_is_a_link(ctx: &Ctx) {
    let outside = Outside::new(ctx);
    for target in outside.targets() {
        let bundle = ctx.bundle().namespace("network", None).mount("/sys", "sysfs", "sysfs", &["ro"]);
        bundle.link("sys", &target);
        runs_or_refuses(ctx, &bundle);
        outside.untouched();
    }
}

fn destinations_stay_inside(ctx: &Ctx) {
    let outside = Outside::new(ctx);
    let data = ctx.mkdir("data");
    let [absolute, upward] = outside.targets();
    let dots = format!("/mnt/../../../../../../..{absolute}/dir");
    for target in [&absolute, &upward] {
        for destination in
            ["/way", "/way/dir", "/way/new/deep", "/way/file", "/a/b/way/dir", &dots, "/way/../dir"]
        {
            for kind in ["bind", "tmpfs"] {
                let bundle = ctx.bundle().mount(
                    destination,
                    kind,
                    data.to_str().unwrap(),
                    &[if kind == "bind" { "bind" } else { "ro" }],
                );
                bundle.link("way", target);
                bundle.mkdir("a/b");
                bundle.link("a/b/way", target);
                runs_or_refuses(ctx, &bundle);
                outside.untouched();
            }
        }
    }
}

fn destination_of_nothing_but_dots(ctx: &Ctx) {
    let data = ctx.mkdir("data");
    ctx.file("data/file", "content");
    for destination in ["/", "/.", "/..", "/../..", ".", "..", "//", "/a/.."] {
        let bundle = ctx.bundle().mount(destination, "bind", data.to_str().unwrap(), &["bind"]);
        // What is mounted over the root itself would not be seen.
        ctx.run(&bundle.ops(&["ready"])).failed(&["over the root"]);
    }
}

fn destination_swapped_during_the_mount(ctx: &Ctx) {
    // CVE-2021-30465: another process exchanges a directory of the root with a link, all the time.
    let outside = Outside::new(ctx);
    let data = ctx.mkdir("data");
    ctx.file("data/made-by-mount", "");
    let bundle = ctx
        .bundle()
        .mount("/race", "bind", data.to_str().unwrap(), &["bind"])
        .mount("/race/sub/deeper", "tmpfs", "tmpfs", &[])
        .mount("/race2/new", "tmpfs", "tmpfs", &[]);
    bundle.mkdir("race/sub");
    bundle.mkdir("race2");
    bundle.link("evil", &outside.targets()[1]);
    bundle.link("evil2", &outside.targets()[0]);
    let mut swappers: Vec<_> = [("race", "evil"), ("race2", "evil2")]
        .iter()
        .map(|(a, b)| {
            let (a, b) = (bundle.rootfs().join(a), bundle.rootfs().join(b));
            ctx.command(ctx.helper()).arg("--exchange").arg(a).arg(b).spawn()
        })
        .collect();
    swappers.iter_mut().for_each(|s| drop(s.line(0)));
    let bundle = bundle.ops(&["ready"]);
    let mut ran = 0;
    for _ in 0..12 {
        ran += i32::from(ctx.run(&bundle).code == 0);
        outside.untouched();
    }
    for mut swapper in swappers {
        swapper.child.kill().unwrap();
        swapper.child.wait().unwrap();
    }
    println!("{ran} of 12 starts won the race");
}

fn file_destination_swapped(ctx: &Ctx) {
    let outside = Outside::new(ctx);
    let data = ctx.file("data", "bound");
    let bundle = ctx.bundle().mount("/etc/conf", "bind", data.to_str().unwrap(), &["bind"]);
    let bundle = bundle.mount("/etc/fresh", "bind", data.to_str().unwrap(), &["bind"]);
    bundle.file("etc/conf", "image's");
    bundle.link("etc/evil", &format!("{}/file", outside.targets()[1]));
    let mut swapper = ctx
        .command(ctx.helper())
        .arg("--exchange")
        .arg(bundle.rootfs().join("etc/conf"))
        .arg(bundle.rootfs().join("etc/evil"))
        .spawn();
    swapper.line(0);
    let bundle = bundle.ops(&["write /etc/conf pwned"]);
    for _ in 0..10 {
        ctx.run(&bundle);
        outside.untouched();
    }
    swapper.child.kill().unwrap();
    swapper.child.wait().unwrap();
}

fn cover_follows_no_link(ctx: &Ctx) {
    // Where missing mount points appear without writing the root, the entries beside them are the image's.
    let outside = Outside::new(ctx);
    let data = ctx.mkdir("data");
    let bundle = ctx.bundle().with("/root/readonly", json!(true)).mount(
        "/etc/new/point",
        "bind",
        data.to_str().unwrap(),
        &["bind"],
    );
    bundle.link("etc/abs", &outside.targets()[0]);
    bundle.link("etc/up", &outside.targets()[1]);
    let ops = ["exists /etc/abs/host-marker", "exists /etc/up/host-marker", "readlink /etc/abs", "ls /etc"];
    if let Some(all) = runs_or_refuses(ctx, &bundle.ops(&ops)) {
        assert_eq!((&all[0], &all[1], &all[2]), (&json!(false), &json!(false), &json!(outside.targets()[0])));
        assert_eq!(all[3], json!(["abs", "group", "new", "passwd", "up"]));
    }
    outside.untouched();
}

fn notes_are_not_followed_elsewhere(ctx: &Ctx) {
    // While the container runs, something else takes the place of what mount points were made in.
    let (data, inner) = (ctx.mkdir("data"), ctx.mkdir("inner"));
    let other = ctx.mkdir("other");
    ["other/dev", "other/proc", "other/new", "other/b", "other/b/c"]
        .iter()
        .for_each(|dir| drop(ctx.mkdir(dir)));
    for link in [false, true] {
        let bundle = ctx.bare_bundle().mount("/data", "bind", data.to_str().unwrap(), &["rbind"]);
        let bundle = bundle.mount("/data/new", "bind", inner.to_str().unwrap(), &["rbind"]);
        let bundle = bundle.mount("/a/b/c", "bind", inner.to_str().unwrap(), &["rbind"]);
        bundle.mkdir("data");
        bundle.mkdir("a");
        let rootfs = bundle.rootfs();
        let container = ctx.started(&bundle.ops(&["pause"]));
        assert!(rootfs.join("a/b/c").is_dir() && data.join("new").is_dir());
        let before = tree(&other, true);
        let replace = |path: &Path| {
            fs::rename(path, path.with_extension("old")).unwrap();
            if link {
                std::os::unix::fs::symlink(&other, path).unwrap();
            } else {
                fs::rename(&other, path).unwrap();
            }
        };
        let back = |path: &Path| {
            if link {
                fs::remove_file(path).unwrap();
            } else {
                fs::rename(path, &other).unwrap();
            }
            fs::rename(path.with_extension("old"), path).unwrap();
        };
        // The image, then what is bound, at the same time where links can be.
        let places: &[&Path] = if link { &[&data, &rootfs] } else { &[&rootfs] };
        places.iter().for_each(|path| replace(path));
        container.end();
        places.iter().for_each(|path| back(path));
        assert_eq!(
            tree(&other, false).keys().collect::<Vec<_>>(),
            before.keys().collect::<Vec<_>>(),
            "link: {link}"
        );
        let _ = fs::remove_dir(data.join("new"));
    }
    // A link within the image.
    let bundle = ctx.bare_bundle().mount("/a/b/c", "bind", inner.to_str().unwrap(), &["rbind"]);
    bundle.mkdir("a");
    bundle.mkdir("real/b/c");
    let rootfs = bundle.rootfs();
    let container = ctx.started(&bundle.ops(&["pause"]));
    fs::rename(rootfs.join("a"), rootfs.join("moved")).unwrap();
    std::os::unix::fs::symlink("real", rootfs.join("a")).unwrap();
    container.end();
    assert!(rootfs.join("real/b/c").is_dir(), "a directory that rt had not made was removed");
}

fn dev_of_the_image_is_a_link(ctx: &Ctx) {
    let outside = Outside::new(ctx);
    for target in outside.targets() {
        for with_mounts in [true, false] {
            let mut bundle = ctx.bundle();
            if !with_mounts {
                bundle = bundle.without_mount("/dev").without_mount("/dev/pts").without_mount("/dev/shm");
            }
            bundle.link("dev", &target);
            runs_or_refuses(ctx, &bundle);
            outside.untouched();
        }
    }
}

/// CVE-2026-41579 (runc) and CVE-2026-47766 (crun): ptmx and the links of /dev were removed and made by a path through the
/// image's /dev, a link to a directory of the host.
fn cve_2026_41579_and_47766_dev_of_the_image_leads_to_the_host(ctx: &Ctx) {
    let outside = Outside::new(ctx);
    ctx.file("outside/ptmx", "the host's");
    let outside = Outside { before: tree(&outside.dir, true), ..outside };
    for mounts in [&[][..], &["/dev"], &["/dev/pts"], &["/dev", "/dev/pts", "/dev/shm"]] {
        for (target, terminal) in outside.targets().iter().zip([false, true]) {
            let mut bundle = ctx.bundle().with("/process/terminal", json!(terminal));
            for mount in ["/dev", "/dev/pts", "/dev/shm"] {
                bundle = if mounts.contains(&mount) { bundle } else { bundle.without_mount(mount) };
            }
            bundle.link("dev", target);
            runs_or_refuses(ctx, &bundle);
            outside.untouched();
        }
    }
}

/// CVE-2026-88264 (crun): where nothing is mounted on /dev, the file of the terminal was made through the image's
/// /dev/console, a link to a place of the host where nothing is.
fn cve_2026_88264_console_is_made_on_the_host(ctx: &Ctx) {
    let outside = Outside::new(ctx);
    for read_only in [false, true] {
        for target in outside.targets() {
            let bundle = ctx.bundle().without_mount("/dev").without_mount("/dev/shm");
            let bundle =
                bundle.with("/process/terminal", json!(true)).with("/root/readonly", json!(read_only));
            bundle.mkdir("dev/pts");
            bundle.link("dev/console", &format!("{target}/made"));
            runs_or_refuses(ctx, &bundle);
            outside.untouched();
        }
    }
}

/// CVE-2026-88265 (crun): streams that are /dev/null were opened again as the image's /dev/null, which can be a link to a file
/// of the host, and given to the container's user.
fn cve_2026_88265_streams_become_a_file_of_the_host(ctx: &Ctx) {
    let outside = Outside::new(ctx);
    for target in outside.targets() {
        let bundle = ctx.bundle().without_mount("/dev").without_mount("/dev/pts").without_mount("/dev/shm");
        bundle.link("dev/null", &format!("{target}/file"));
        let bundle = bundle.ops(&["say pwned"]);
        bundle.write();
        let script = "exec \"$0\" run \"$1\" </dev/null >/dev/null 2>/dev/null";
        ctx.command("sh").args(["-c", script]).arg(ctx.rt_path()).arg(&bundle.dir).run();
        outside.untouched();
    }
}

/// Everything that a runtime makes in /dev, as links to the outside.
fn plant(ctx: &Ctx, dir: &Path, outside: &Outside) {
    for (n, name) in
        ["null", "zero", "full", "random", "urandom", "tty", "console", "ptmx", "fd", "stdin", "core"]
            .iter()
            .enumerate()
    {
        let _ = fs::remove_file(dir.join(name));
        let file = if *name == "zero" { "new-file" } else { "file" };
        std::os::unix::fs::symlink(format!("{}/{file}", outside.targets()[n % 2]), dir.join(name)).unwrap();
        ctx.give_link(&dir.join(name));
    }
}

fn dev_links_in_the_image(ctx: &Ctx) {
    // No tmpfs on /dev: the devices go where the image has its links.
    let outside = Outside::new(ctx);
    let bundle = ctx.bundle().without_mount("/dev").without_mount("/dev/pts").without_mount("/dev/shm");
    plant(ctx, &bundle.rootfs().join("dev"), &outside);
    if let Some(all) = runs_or_refuses(ctx, &bundle.ops(&["stat /dev/null", "write /dev/null pwned"])) {
        // All links lead to one place inside, so which device is there in the end is the image's own affair.
        assert_eq!(all[0]["kind"], "char", "{}", all[0]);
    }
    outside.untouched();
}

fn dev_links_in_a_shared_volume(ctx: &Ctx) {
    let outside = Outside::new(ctx);
    let volume = ctx.mkdir("volume");
    plant(ctx, &volume, &outside);
    let bundle = ctx.bundle().without_mount("/dev").without_mount("/dev/pts").without_mount("/dev/shm");
    let bundle = bundle.mount("/dev", "bind", volume.to_str().unwrap(), &["bind", "rw"]);
    runs_or_refuses(ctx, &bundle.ops(&["write /dev/null pwned"]));
    outside.untouched();
}

fn default_links_of_dev(ctx: &Ctx) {
    // The links that a runtime makes must not go through links that are there.
    let outside = Outside::new(ctx);
    let volume = ctx.mkdir("volume");
    std::os::unix::fs::symlink(&outside.dir, volume.join("pts")).unwrap();
    std::os::unix::fs::symlink(&outside.dir, volume.join("shm")).unwrap();
    let bundle = ctx.bundle().without_mount("/dev");
    let mount = json!({ "destination": "/dev", "type": "bind", "source": volume, "options": ["bind", "rw"] });
    let mut bundle = bundle;
    bundle.config["mounts"].as_array_mut().unwrap().insert(1, mount);
    bundle.write();
    runs_or_refuses(ctx, &bundle);
    outside.untouched();
}

fn masked_paths_with_a_fake_dev_null(ctx: &Ctx) {
    // CVE-2025-31133: the mask is a bind of the image's /dev/null, which is a link to something to be exposed.
    let outside = Outside::new(ctx);
    for target in ["/secret", "/proc/sys/kernel/core_pattern", &outside.targets()[0], &outside.targets()[1]] {
        let bundle = ctx
            .bundle()
            .without_mount("/dev")
            .without_mount("/dev/pts")
            .without_mount("/dev/shm")
            .with("/linux/maskedPaths", json!(["/secret", "/secret-dir", "/proc/timer_list"]));
        bundle.file("secret", "hidden");
        bundle.mkdir("secret-dir");
        bundle.file("secret-dir/key", "hidden");
        bundle.link("dev/null", target);
        let ops = [
            "stat /secret",
            "cat /secret",
            "exists /secret-dir/key",
            "cat /proc/timer_list",
            "open /proc/timer_list",
        ];
        if let Some(all) = runs_or_refuses(ctx, &bundle.ops(&ops)) {
            let numbers = (&all[0]["kind"], &all[0]["major"], &all[0]["minor"]);
            assert_eq!(
                numbers,
                (&json!("char"), &json!(1), &json!(3)),
                "{target}: the mask is not the null device"
            );
            assert_eq!((&all[1], &all[2], &all[3]), (&json!(""), &json!(false), &json!("")), "{target}");
        }
        outside.untouched();
    }
}

fn console_of_the_image_is_a_link(ctx: &Ctx) {
    // CVE-2025-52565: /dev/console and /dev/pts/N lead elsewhere.
    let outside = Outside::new(ctx);
    for target in outside.targets() {
        let socket = ctx.path("console.sock");
        let _ = fs::remove_file(&socket);
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        ctx.give(&socket);
        let bundle = ctx
            .bundle()
            .without_mount("/dev")
            .without_mount("/dev/shm")
            .with("/process/terminal", json!(true))
            .ops(&["write /dev/console pwned", "exit 0"]);
        bundle.mkdir("dev/pts");
        bundle.link("dev/console", &format!("{target}/file"));
        let id = ctx.id();
        let out = ctx
            .rt(["create", "--console-socket"])
            .arg(&socket)
            .arg("--bundle")
            .arg(&bundle.dir)
            .arg(&id)
            .run();
        if out.code == 0 {
            let (stream, _) = listener.accept().unwrap();
            let fds = sys::receive(stream.as_raw_fd()).unwrap().1;
            let pid = ctx.rt(["state", &id]).ok().json()["pid"].as_i64().unwrap() as i32;
            ctx.rt(["start", &id]).run();
            crate::fixture::eventually("the program's end", || sys::reap(pid).unwrap());
            drop(fds);
        }
        ctx.rt(["delete", "--force", &id]).silent();
        outside.untouched();
    }
}

fn proc_is_not_mounted_over(ctx: &Ctx) {
    // CVE-2019-16884.
    let data = ctx.mkdir("data");
    let file = ctx.file("data/file", "fake");
    let (data, file) = (data.to_str().unwrap(), file.to_str().unwrap());
    for (destination, kind, source) in [
        ("/proc", "bind", data),
        ("/proc", "tmpfs", "tmpfs"),
        ("/proc/self/attr", "bind", data),
        ("/proc/self/attr/exec", "bind", file),
        ("/proc/sys", "bind", data),
        ("/proc/sys/kernel", "tmpfs", "tmpfs"),
        ("/proc/./self", "bind", data),
        ("/tmp/../proc/sys", "bind", data),
        ("/alias/self/attr", "bind", data),
        ("/alias", "bind", data),
        ("/proc/1/oom_score_adj", "bind", file),
    ] {
        let bundle =
            ctx.bundle().mount(destination, kind, source, &[if kind == "bind" { "bind" } else { "ro" }]);
        bundle.link("alias", "/proc");
        println!("{destination} {kind}");
        let out = ctx.run(&bundle.ops(&["ready"]));
        out.failed(&["/proc"]);
    }
}

fn allowed_files_below_proc(ctx: &Ctx) {
    // LXCFS: the few files that runc lets one replace.
    let file = ctx.file("fake", "fake\n");
    for name in ["cpuinfo", "meminfo", "stat", "uptime", "loadavg", "swaps", "diskstats"] {
        let bundle =
            ctx.bundle().mount(&format!("/proc/{name}"), "bind", file.to_str().unwrap(), &["bind", "ro"]);
        assert_eq!(ctx.run(&bundle.ops(&[&format!("cat /proc/{name}")])).all()[0], "fake\n", "{name}");
    }
}

fn procfs_writes_are_not_redirected(ctx: &Ctx) {
    // CVE-2025-52881: no proc is mounted, and the image has files where the runtime's writes would go.
    let bundle = ctx
        .bundle()
        .without_mount("/proc")
        .with("/linux/maskedPaths", json!([]))
        .with("/linux/readonlyPaths", json!([]))
        .with("/linux/sysctl", json!({ "kernel.msgmax": "4321" }))
        .with("/process/oomScoreAdj", json!(777));
    let mut planted = Vec::new();
    for dir in ["proc/self", "proc/thread-self/attr", "proc/self/attr", "proc/1", "proc/sys/kernel"] {
        bundle.mkdir(dir);
    }
    for file in [
        "proc/self/oom_score_adj",
        "proc/sys/kernel/msgmax",
        "proc/self/attr/exec",
        "proc/1/oom_score_adj",
        "proc/self/uid_map",
        "proc/self/setgroups",
    ] {
        planted.push(bundle.file(file, "planted"));
    }
    let id = ctx.id();
    let bundle = bundle.ops(&["pause"]);
    let pid_file = ctx.path("pid");
    let out = ctx.rt(["create", "--pid-file"]).arg(&pid_file).arg("--bundle").arg(&bundle.dir).arg(&id).run();
    for path in planted {
        assert_eq!(fs::read_to_string(&path).unwrap(), "planted", "{} was written", path.display());
    }
    if out.code == 0 {
        let pid = fs::read_to_string(&pid_file).unwrap();
        assert_eq!(
            fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap(),
            "777\n",
            "not applied, and not said"
        );
    } else {
        out.failed(&[]);
    }
}

/// Root's own container of the host's /proc and /dev: uid 0 owns the files there, whatever namespace it is in.
/// The host's root is the same to its kernel without capabilities, and in a user namespace, whatever his number is there.
fn hosts_root_with_less(ctx: &Ctx) {
    const SETTING: &str = "/proc/sys/kernel/core_uses_pid";
    let now = fs::read_to_string(SETTING).unwrap();
    let bundle = ctx
        .bundle()
        .with("/annotations", json!({ "rt.user": "caller", "rt.environment": "caller" }))
        .with("/linux/namespaces", json!([{ "type": "mount" }, { "type": "uts" }]))
        .with("/mounts", json!([]))
        .mount("/proc", "bind", "/proc", &["rbind", "nosuid", "noexec", "nodev"])
        .ops(&[&format!("write {SETTING} {}", now.trim()), "syscall 272 0x10000000"]);
    bundle.write();
    let without = ["--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"];
    for (program, flags) in [
        ("unshare", &["-U", "-r"][..]),
        ("unshare", &["-U", "--map-user=77", "--map-group=77"]),
        ("setpriv", &without),
    ] {
        let state = ctx.path(&flags.concat());
        let rt = ctx.command(program).args(flags).arg(ctx.rt_path()).arg("--root").arg(state);
        let out = rt.arg("run").arg(&bundle.dir).ok();
        assert_eq!(
            [out.line(0), out.line(1)],
            [errno(libc::EROFS), errno(libc::EPERM)],
            "{program}: {out:?}"
        );
    }
}

fn hosts_settings_and_disks(ctx: &Ctx) {
    const SETTING: &str = "/proc/sys/kernel/core_uses_pid";
    let now = fs::read_to_string(SETTING).unwrap();
    let write = format!("write {SETTING} {}", now.trim());
    // Disks, and devices by which commands are sent to one or which are for root alone.
    let devices = [
        ("/dev/rt-test-disk", "b", "7", "250"),
        ("/dev/rt-test-dir/a/b/disk", "b", "7", "250"),
        ("/dev/sg9876", "c", "1", "5"),
        ("/dev/rt-test-dir/bsg", "c", "1", "5"),
        ("/dev/rt-test-tape", "c", "1", "5"),
    ];
    let clean = || {
        let _ = fs::remove_dir("/dev/rt-test-made");
        let _ = fs::remove_dir_all("/dev/rt-test-dir");
        for (path, ..) in devices {
            let _ = fs::remove_file(path);
        }
    };
    clean();
    // Deeper than anything is looked at, and what everybody may use.
    fs::create_dir_all("/dev/rt-test-dir/a/b/c/d").unwrap();
    let mknod = |path: &str, mode| {
        let made = Command::new("mknod").args(["-m", mode, path, "c", "1", "5"]).status().unwrap();
        made.success()
    };
    let made_more = mknod("/dev/rt-test-dir/a/b/c/d/e", "600") && mknod("/dev/rt-test-dir/a/open", "666");
    let made = devices.map(|(path, kind, major, minor)| {
        Command::new("mknod").args(["-m", "600", path, kind, major, minor]).status().unwrap().success()
    });
    let operations = [
        "umount /proc/sys",
        &write,
        "write /dev/null x",
        "mkdir /dev/rt-test-made",
        "stat /dev/rt-test-dir/a/b/c/d/e",
        "stat /dev/rt-test-dir/a/open",
    ];
    let (before, null) = (operations.len(), (&json!(1), &json!(3)));
    let looks = devices.map(|(path, ..)| format!("stat {path}"));
    let operations: Vec<&str> = operations.into_iter().chain(looks.iter().map(String::as_str)).collect();
    // The user of the config, and whether the container has a user namespace. As root inside, the program would be one that
    // can unmount. A config without that annotation is that of an image, or of a client whose mounts are others.
    for (user, namespace) in
        [("caller", false), ("caller", true), ("root", true), ("", true), ("config", true)]
    {
        let bundle = ctx
            .bundle()
            .with("/linux/readonlyPaths", json!([]))
            .with("/linux/maskedPaths", json!([]))
            .with("/linux/namespaces", json!([{ "type": "mount" }, { "type": "uts" }]))
            .with("/mounts", json!([]))
            .unset("/process", "capabilities")
            .mount("/proc", "bind", "/proc", &["rbind", "nosuid", "noexec", "nodev"])
            .mount("/dev", "bind", "/dev", &["rbind", "nosuid"]);
        let one = json!([{ "containerID": 0, "hostID": 0, "size": 1 }]);
        let bundle = match namespace {
            true => bundle
                .namespace("user", None)
                .with("/linux/uidMappings", one.clone())
                .with("/linux/gidMappings", one),
            false => bundle,
        };
        let bundle = match user {
            "" => bundle,
            user => bundle.with("/annotations", json!({ "rt.user": user })),
        };
        let out = ctx.run(&bundle.ops(&operations)).all();
        assert!(out[0]["errno"].is_number(), "{user} {namespace} {out:?}");
        assert_eq!(out[1], errno(libc::EROFS), "{user} {namespace} {out:?}");
        assert_eq!(out[2], json!(null), "{user} {namespace} {out:?}");
        assert_eq!(out[3], errno(libc::EROFS), "{user} {namespace} {out:?}");
        for (n, _) in made.iter().enumerate().filter(|(_, made)| **made) {
            assert_eq!(
                (&out[before + n]["major"], &out[before + n]["minor"]),
                null,
                "{user} {namespace} {n} {out:?}"
            );
        }
        if made_more {
            assert_eq!(out[4], errno(libc::ENOENT), "{user} {namespace} {out:?}");
            assert_eq!(out[5]["minor"], json!(5), "{user} {namespace} {out:?}");
        }
    }
    clean();
}

fn masked_and_readonly_links(ctx: &Ctx) {
    let outside = Outside::new(ctx);
    let bundle = ctx
        .bundle()
        .with("/linux/maskedPaths", json!(["/mask-link", "/mask-dir-link", "/mask-out"]))
        .with("/linux/readonlyPaths", json!(["/ro-link", "/ro-out"]));
    bundle.file("secret", "hidden");
    bundle.mkdir("secret-dir");
    bundle.file("secret-dir/key", "hidden");
    bundle.mkdir("fixed");
    bundle.link("mask-link", "/secret");
    bundle.link("mask-dir-link", "secret-dir");
    bundle.link("ro-link", "fixed");
    bundle.link("mask-out", &outside.targets()[1]);
    bundle.link("ro-out", &outside.targets()[0]);
    let ops = ["cat /mask-link", "exists /mask-dir-link/key", "write /ro-link/x y", "write /fixed/x y"];
    if let Some(all) = runs_or_refuses(ctx, &bundle.ops(&ops)) {
        assert_eq!((&all[0], &all[1]), (&json!(""), &json!(false)), "masked through the link");
        assert_eq!(
            (&all[2], &all[3]),
            (&errno(libc::EROFS), &errno(libc::EROFS)),
            "read-only through the link"
        );
    }
    outside.untouched();
}

fn readonly_sys_has_no_writable_cgroup(ctx: &Ctx) {
    // CVE-2023-25809: `runc spec --rootless` binds /sys recursively with ro, and the cgroups below stay writable.
    let forms: [(&str, &str, &[&str]); 3] = [
        ("none", "/sys", &["rbind", "nosuid", "noexec", "nodev", "ro"]),
        ("bind", "/sys", &["rbind", "ro"]),
        ("sysfs", "sysfs", &["nosuid", "noexec", "nodev", "ro"]),
    ];
    for (kind, source, options) in forms {
        let bundle = ctx.bundle().mount("/sys", kind, source, options);
        let all = ctx
            .run(&bundle.ops(&[
                "cat /proc/self/mountinfo",
                "mkdir /sys/fs/cgroup/x",
                "mkdir /sys/fs/cgroup/memory/x",
            ]))
            .all();
        for line in all[0].as_str().unwrap().lines() {
            let fields: Vec<_> = line.split(' ').collect();
            if fields[4].starts_with("/sys") {
                assert!(
                    fields[5].split(',').any(|o| o == "ro"),
                    "{kind}: writable below a read-only /sys: {line}"
                );
            }
        }
        for denied in &all[1..] {
            assert_ne!(*denied, Value::Null, "{kind}");
        }
    }
}

fn delete_follows_no_link(ctx: &Ctx) {
    let outside = Outside::new(ctx);
    let container = ctx.create(&ctx.bundle());
    container.kill("KILL");
    container.reap();
    // A file and a directory of the state are links to the outside.
    let state = ctx.state.join(&container.id);
    std::os::unix::fs::symlink(&outside.dir, state.join("link-dir")).unwrap();
    std::os::unix::fs::symlink(outside.dir.join("file"), state.join("link-file")).unwrap();
    let out = ctx.rt(["delete", "--force", &container.id]).run();
    outside.untouched();
    if out.code != 0 {
        // What it did not make itself, it may leave.
        out.failed(&["not empty"]);
        fs::remove_file(state.join("link-dir")).unwrap();
        fs::remove_file(state.join("link-file")).unwrap();
    }
}

fn state_root_links_are_not_followed(ctx: &Ctx) {
    // An id's directory that is itself a link.
    let outside = Outside::new(ctx);
    fs::create_dir_all(&ctx.state).unwrap();
    ctx.give(&ctx.state);
    std::os::unix::fs::symlink(&outside.dir, ctx.state.join("planted")).unwrap();
    for command in [
        &["delete", "--force", "planted"][..],
        &["state", "planted"],
        &["kill", "planted", "9"],
        &["delete", "planted"],
    ] {
        ctx.rt(command).run();
        outside.untouched();
    }
    ctx.rt(["create", "--bundle"]).arg(&ctx.bundle().dir).arg("planted").run();
    outside.untouched();
    let _ = fs::remove_file(ctx.state.join("planted"));
}

fn exec_into_a_hostile_root(ctx: &Ctx) {
    // The container has replaced what an exec may look at: passwd, PATH's programs, /proc, /dev, cwd.
    let outside = Outside::new(ctx);
    let bundle = ctx.bundle();
    bundle.mkdir("cwd");
    let bundle = bundle.with("/process/cwd", json!("/cwd")).caps(&["CAP_SYS_ADMIN", "CAP_SYS_CHROOT"]);
    let target = outside.targets()[1].clone();
    let container = ctx.started(&bundle.ops(&[
        "rm /etc/passwd",
        &format!("symlink {target}/file /etc/passwd"),
        "rm /etc/group",
        "symlink /proc/1/mem /etc/group",
        "umount /proc",
        "pause",
    ]));
    container.line(5);
    fs::remove_dir(ctx.path("bundle1").join("rootfs/cwd")).ok();
    let out = container.exec(&["exists /host-marker", "args"]);
    assert!(out.code != 101 && out.code != 134 && !out.stderr.contains("panicked"), "{out:?}");
    if out.code == 0 {
        assert_eq!(out.line(0), false);
    }
    outside.untouched();
    container.end();
}

fn devices_are_not_usable(ctx: &Ctx) {
    // CAP_MKNOD is there as it is listed. Root keeps it in the host's user namespace, where the kernel would make devices.
    let denied = errno(libc::EPERM);
    let ops =
        ["mknod /tmp/mem 1 1", "mknod /dev/sda 8 0", "mknod /dev/shm/kmsg 1 11", "mkdisk /dev/shm/sda 8 0"];
    let mut others = vec!["mknod /tmp/whiteout 0 0", "mkfifo /tmp/fifo", "status"];
    if ctx.caller != Caller::Root {
        others.remove(0);
    }
    for no_new_privs in [false, true] {
        let bundle = ctx.bundle().caps(&["CAP_MKNOD"]).with("/process/noNewPrivileges", json!(no_new_privs));
        let all = ctx.run(&bundle.ops(&[&ops[..], &others].concat())).all();
        assert_eq!(all[..4], [const { Value::Null }; 4].map(|_| denied.clone()), "{all:?}");
        for made in &all[4..all.len() - 1] {
            assert_eq!(made, &Value::Null, "{all:?}");
        }
        let status = all.last().unwrap();
        assert_eq!(status["NoNewPrivs"], u8::from(no_new_privs).to_string());
        assert_eq!(hex(&status["CapBnd"]), 1 << 27);
    }
    // A user's program that has no capability gets it from a file with set-user-ID.
    let bundle = ctx.bundle().caps(&[]).with("/process/capabilities", json!({ "bounding": ["CAP_MKNOD"] }));
    assert_eq!(ctx.run(&bundle.ops(&ops)).all(), [const { Value::Null }; 4].map(|_| denied.clone()));
    // A filter of the config's that allows next to nothing, and a program that joins.
    let container = ctx.started(&ctx.bundle().caps(&["CAP_MKNOD"]).ops(&["pause"]));
    assert_eq!(container.exec(&ops).all(), [const { Value::Null }; 4].map(|_| denied.clone()));
    let container = ctx.started(&ctx.bundle().caps(&[]).ops(&["pause"]));
    let out = container.exec_with(&["--cap", "CAP_MKNOD"], &ops).run();
    assert_eq!(out.all(), [const { Value::Null }; 4].map(|_| denied.clone()));
}

fn devices_of_privileged_containers(ctx: &Ctx) {
    // Whoever allows every device and lists CAP_SYS_ADMIN as well holds nothing back.
    let made = |caps: &[&str], devices: Value| {
        let bundle = ctx.bundle().caps(caps).with("/linux/resources", json!({ "devices": devices }));
        ctx.run(&bundle.ops(&["mkdisk /dev/shm/sda 8 0"])).all()[0].clone()
    };
    let all = json!({ "allow": true, "access": "rwm" });
    let none = json!({ "allow": false, "access": "rwm" });
    let disk = json!({ "allow": true, "type": "b", "major": 8, "access": "rwm" });
    let privileged = ["CAP_SYS_ADMIN", "CAP_MKNOD"];
    assert_eq!(made(&privileged, json!([none, all])), Value::Null);
    assert_eq!(made(&privileged, json!([{ "allow": true, "type": "a", "access": "rwm" }])), Value::Null);
    for (caps, devices) in [
        (&privileged[..], json!([])),
        (&privileged, json!([none, disk])),
        (&privileged, json!([all, none])),
        (&privileged, json!([{ "allow": true, "access": "rw" }])),
        (&privileged[1..], json!([all])),
    ] {
        assert_eq!(made(caps, devices.clone()), errno(libc::EPERM), "{caps:?} {devices}");
    }
}

fn device_nodes_of_the_image_are_dead(ctx: &Ctx) {
    if !Caller::tests_are_root() {
        skip!("device nodes in an image need root to make them");
    }
    let node = |bundle: &Bundle| {
        let node = bundle.mkdir("data").join("node");
        sys::mknod(node.to_str().unwrap(), libc::S_IFCHR | 0o666, 1, 5).unwrap();
        fs::set_permissions(&node, PermissionsExt::from_mode(0o666)).unwrap();
        bundle.rootfs().join("data").display().to_string()
    };
    // A directory that lacks a mount point is covered by binds, or by an overlay where it has many entries.
    for (flags, entries) in [(&[][..], 0), (&[], 100), (&["--writable"], 0)] {
        let bundle = ctx.bundle().with("/root/readonly", json!(flags.is_empty()));
        let data = node(&bundle);
        for n in 0..entries {
            bundle.file(&format!("data/{n}"), "");
        }
        let bundle =
            bundle.mount("/srv", "bind", &data, &["rbind"]).mount("/mnt", "bind", &data, &["bind", "ro"]);
        // The same directory by other paths.
        let link = bundle.dir.join("link");
        symlink(bundle.rootfs(), &link).unwrap();
        let (link, dots) = (format!("{}/data", link.display()), format!("{data}/../data"));
        let bundle =
            bundle.mount("/media", "bind", &link, &["rbind"]).mount("/opt", "bind", &dots, &["bind"]);
        let bundle = bundle.mount("/data/missing", "tmpfs", "tmpfs", &[]);
        let places = ["/data", "/srv", "/mnt", "/media", "/opt"].map(|place| format!("head {place}/node 1"));
        let all = ctx.run_with(&bundle.ops(&places.each_ref().map(String::as_str)), flags).all();
        assert_eq!(
            all,
            [const { Value::Null }; 5].map(|_| errno(libc::EACCES)),
            "{flags:?}: a device node of the image is usable"
        );
    }
}

fn devices_have_a_place_of_their_own(ctx: &Ctx) {
    // Without a mount at /dev the devices are made in the root, whose own nodes are dead.
    let device = json!({ "path": "/srv/mine", "type": "c", "major": 1, "minor": 5, "fileMode": 0o620, "uid": 0, "gid": 0 });
    let zero = json!({ "path": "/srv/zero", "type": "c", "major": 1, "minor": 5 });
    let ops = [
        "write /dev/null x",
        "head /dev/zero 1",
        "head /srv/mine 1",
        "head /srv/zero 1",
        "stat /srv/mine",
        "readlink /dev/fd",
    ];
    for readonly in [false, true] {
        let bundle = ctx
            .bundle()
            .without_mount("/dev/pts")
            .without_mount("/dev/shm")
            .without_mount("/dev/mqueue")
            .without_mount("/dev");
        bundle.mkdir("dev");
        let planted = bundle.rootfs().join("dev/zero");
        fs::write(&planted, "the image's").unwrap();
        let bundle = bundle.push("/linux/devices", device.clone()).push("/linux/devices", zero.clone());
        let bundle = bundle.with("/root/readonly", json!(readonly)).ops(&ops);
        let all = ctx.run(&bundle).all();
        assert_eq!(all[..4], [Value::Null, json!("\0"), json!("\0"), json!("\0")], "{all:?}");
        assert_eq!((&all[4]["minor"], &all[5]), (&json!(5), &json!("/proc/self/fd")), "{all:?}");
        if ctx.caller == Caller::Root {
            assert_eq!(all[4]["mode"], 0o620);
        }
        assert_eq!(fs::read_to_string(&planted).unwrap(), "the image's");
    }
}

fn bundle_with_links(ctx: &Ctx) {
    // The bundle belongs to the caller: its own links are followed on the host, but not out of the rootfs.
    let outside = Outside::new(ctx);
    let bundle = ctx.bundle();
    bundle.link("etc/resolv.conf", &format!("{}/file", outside.targets()[1]));
    let data = ctx.file("resolv", "inside only");
    let bundle = bundle.mount("/etc/resolv.conf", "bind", data.to_str().unwrap(), &["bind", "rw"]);
    runs_or_refuses(ctx, &bundle.ops(&["append /etc/resolv.conf more"]));
    outside.untouched();
}

fn pid_file_is_not_followed_inside(ctx: &Ctx) {
    // The pid file is replaced by rename: a link in its place is not written through.
    let outside = Outside::new(ctx);
    let link = ctx.path("pid-link");
    std::os::unix::fs::symlink(outside.dir.join("file"), &link).unwrap();
    let id = ctx.id();
    ctx.rt(["create", "--pid-file"]).arg(&link).arg("--bundle").arg(&ctx.bundle().dir).arg(&id).run();
    outside.untouched();
}

fn passwd_of_the_image_is_hostile(ctx: &Ctx) {
    // HOME is looked up in the image's passwd: it may be a link, a FIFO, a directory, or endless.
    let outside = Outside::new(ctx);
    for (n, plant) in ["link", "fifo", "dir", "huge", "binary", "device"].iter().enumerate() {
        let bundle = ctx.bundle();
        let path = bundle.rootfs().join("etc/passwd");
        fs::remove_file(&path).unwrap();
        match *plant {
            "link" => drop(bundle.link("etc/passwd", &format!("{}/file", outside.targets()[n % 2]))),
            "fifo" => sys::mkfifo(&path).unwrap(),
            "dir" => fs::create_dir(&path).unwrap(),
            "huge" => fs::write(&path, "x".repeat(8 << 20)).unwrap(),
            "binary" => fs::write(&path, [0u8, 255, 10, 58, 58, 58, 0]).unwrap(),
            _ => drop(bundle.link("etc/passwd", "/dev/zero")),
        }
        println!("{plant}");
        let out = ctx.run(&bundle.ops(&["env"]));
        assert_eq!(out.code, 0, "{plant}: {out:?}");
        assert!(!out.stdout.contains("untouched"), "{plant}");
    }
    outside.untouched();
}

/// The number that setresuid(2) takes for "as it is" is no id, and a number is no name of the image's passwd.
fn cve_2026_30892_exec_as_a_number(ctx: &Ctx) {
    const NONE: u32 = u32::MAX;
    let is_refused = |out: Out| {
        assert!(out.code != 0 && out.stdout.is_empty(), "{out:?}");
        assert_eq!(out.stderr.trim_end().lines().count(), 1, "{out:?}");
        assert!(out.stderr.contains("4294967295"), "{out:?}");
    };
    let bundle = ctx.bundle().ops(&["ready", "pause"]);
    bundle.file("etc/passwd", "root:x:0:0::/:/probe\n1000:x:0:0::/:/probe\n4294967295:x:0:0::/:/probe\n");
    let container = ctx.started(&bundle);
    for user in [format!("{NONE}"), format!("{NONE}:{NONE}"), format!("0:{NONE}"), format!("7:{NONE}")] {
        is_refused(container.exec_with(&["--user", &user], &["id"]).run());
    }
    let mut file = json!({ "args": ["/probe", "id"], "cwd": "/", "user": { "uid": NONE, "gid": 0 } });
    is_refused(ctx.rt(["exec", "--process"]).arg(ctx.file("p", &file.to_string())).arg(&container.id).run());
    file["user"] = json!({ "uid": 0, "gid": 0, "additionalGids": [NONE] });
    is_refused(ctx.rt(["exec", "--process"]).arg(ctx.file("p", &file.to_string())).arg(&container.id).run());
    for user in ["-1", "0x0", " 0", "4294967296"] {
        container.exec_with(&["--user", user], &["id"]).fails(&["is not UID[:GID] in numbers"]);
    }
    let out = container.exec_with(&["--user", "1000"], &["id"]).run();
    assert!(out.code != 0 || out.line(0)["uid"] == json!([1000, 1000, 1000]), "{out:?}");
    for (uid, gid) in [(NONE, 0), (0, NONE)] {
        is_refused(
            ctx.run(&ctx.bundle().with("/process/user", json!({ "uid": uid, "gid": gid })).ops(&["id"])),
        );
    }
    let groups = json!({ "uid": 0, "gid": 0, "additionalGids": [5, NONE] });
    is_refused(ctx.run(&ctx.bundle().with("/process/user", groups).ops(&["id"])));
    let host = ctx.caller.host_ids().0;
    for (container, host, size) in [(NONE, host, 1), (0, NONE, 1), (NONE - 1, host, 2)] {
        let maps = json!([{ "containerID": container, "hostID": host, "size": size }]);
        let bundle = ctx.bundle().without_namespace("user").namespace("user", None);
        let bundle = bundle.with("/linux/uidMappings", maps.clone()).with("/linux/gidMappings", maps);
        let out = ctx.run(&bundle.ops(&["id"]));
        assert!(out.code != 0 && out.stderr.contains("linux.uidMappings"), "{out:?}");
    }
    is_refused(ctx.rt(["run", "--user", &format!("{NONE}")]).arg(&ctx.bundle().ops(&["id"]).dir).run());
}

fn old_root_is_not_reachable(ctx: &Ctx) {
    fs::write(ctx.dir.join("host-marker"), "").unwrap();
    let path = ctx.dir.join("host-marker");
    let bundle = ctx.bundle().caps(&["CAP_SYS_ADMIN", "CAP_SYS_CHROOT", "CAP_SYS_PTRACE"]);
    let ops = [
        format!("exists {}", path.display()),
        format!("exists /proc/1/root{}", path.display()),
        format!("exists /proc/self/root/../../..{}", path.display()),
        "cat /proc/self/mountinfo".into(),
        "umount /".into(),
        format!("exists {}", path.display()),
    ];
    let all = ctx.run(&bundle.ops(&ops.each_ref().map(String::as_str))).all();
    assert_eq!(
        (&all[0], &all[1], &all[2], &all[5]),
        (&json!(false), &json!(false), &json!(false), &json!(false))
    );
    for line in all[3].as_str().unwrap().lines() {
        let place = line.split(' ').nth(4).unwrap();
        assert!(place == "/" || ["/proc", "/dev"].iter().any(|p| place.starts_with(p)), "{line}");
    }
}

fn init_is_not_ptraced(ctx: &Ctx) {
    // While it waits for start, another process of the same pid namespace must not get at its memory or files.
    let first = ctx.started(&peeping(ctx, ctx.bundle()).ops(&["pause"]));
    let mut bundle = ctx.bundle().namespace("pid", Some(&format!("/proc/{}/ns/pid", first.pid)));
    if ctx.caller == Caller::User {
        bundle = bundle.namespace("user", Some(&format!("/proc/{}/ns/user", first.pid)));
        bundle = bundle.unset("/linux", "uidMappings").unset("/linux", "gidMappings");
    }
    fs::write(ctx.dir.join("host-marker"), "").unwrap();
    let second = ctx.create(&bundle.ops(&["ready"]));
    let out = first.exec(&["ps", "fork watch-descriptors 200", "wait"]);
    let found = out
        .stdout
        .lines()
        .filter_map(|l| serde_json::from_str::<Value>(l).ok())
        .find(|v| v["outside"].is_array());
    let found = found.unwrap_or_else(|| panic!("{out:?}"));
    let host: Vec<_> = found["outside"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|p| !p.as_str().unwrap().ends_with("/root"))
        .collect();
    assert!(host.is_empty(), "the waiting init shows the host: {host:?}");
    second.kill("KILL");
    second.reap();
}

fn path_of_the_image_with_links(ctx: &Ctx) {
    // The command is looked up inside: a PATH entry that is a link out of the root leads nowhere.
    let outside = Outside::new(ctx);
    fs::copy("/proc/self/exe", outside.dir.join("dir/tool")).unwrap();
    let bundle = ctx.bundle();
    bundle.link("sbin", &format!("{}/dir", outside.targets()[1]));
    let bundle = bundle.with("/process/env", json!(["PATH=/sbin"])).with("/process/args", json!(["tool"]));
    ctx.run(&bundle).failed(&["executable file not found in $PATH"]);
    let bundle = bundle.with("/process/args", json!(["/sbin/tool"]));
    ctx.run(&bundle).failed(&["no such file or directory"]);
    fs::remove_file(outside.dir.join("dir/tool")).unwrap();
}

fn constants_are_read_only(ctx: &Ctx) {
    // The runtime waits for the container's end.
    let (bundle, id) = (ctx.bundle().ops(&["ready", "pause"]), ctx.id());
    let mut job = ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(&id).spawn();
    job.line(0);
    let proc = PathBuf::from(format!("/proc/{}", job.pid()));
    let exe = fs::read(proc.join("exe")).unwrap();
    let number = |at: usize, bytes: usize| {
        exe[at..at + bytes].iter().rev().fold(0, |number: usize, byte| number << 8 | usize::from(*byte))
    };
    // elf(5), 64 bits: where the program headers are, how long one is, how many there are.
    let (table, length, count) = (number(0x20, 8), number(0x36, 2), number(0x38, 2));
    const GNU_RELRO: usize = 0x6474_e552;
    let header = (0..count).map(|n| table + n * length).find(|at| number(*at, 4) == GNU_RELRO).unwrap();
    let (begin, end) = (number(header + 16, 8), number(header + 16, 8) + number(header + 40, 8));
    let maps = fs::read_to_string(proc.join("maps")).unwrap();
    let range = |line: &str| {
        let (first, last) = line.split_once(' ')?.0.split_once('-')?;
        Some((usize::from_str_radix(first, 16).ok()?, usize::from_str_radix(last, 16).ok()?))
    };
    const FIXED: usize = 2;
    let base = if number(0x10, 2) == FIXED { 0 } else { range(maps.lines().next().unwrap()).unwrap().0 };
    let (first, last) = ((base + begin) & !0xfff, (base + end) & !0xfff);
    assert!(first < last, "{first:x}-{last:x}");
    for page in (first..last).step_by(0x1000) {
        let line =
            maps.lines().find(|line| range(line).is_some_and(|(a, b)| (a..b).contains(&page))).unwrap();
        assert!(line.contains(" r--p "), "{page:x}: {line}");
    }
    ctx.rt(["kill", &id, "KILL"]).silent();
    job.wait();
}

/// Hooks of the stage startContainer and the image's entrypoint are programs of the image. What runs them has not become the
/// program yet.
fn children_of_init_see_nothing_of_the_host(ctx: &Ctx) {
    let Some(busybox) =
        ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| Path::new(path).exists())
    else {
        skip!("busybox is not installed");
    };
    let look = "#!/bin/sh
        exec 9>/seen
        echo \"environ $(cat /proc/$PPID/environ 2>/dev/null | grep -c SECRET=)\" >&9
        echo \"mem $( (: <>/proc/$PPID/mem) 2>/dev/null && echo 1 || echo 0)\" >&9
        echo \"files $(for fd in /proc/$PPID/fd/*; do [ -f $fd ] || [ -d $fd ] && echo $fd; done | grep -c .)\" >&9
        exec 9>&-
        exec \"$@\"
        ";
    let bundle = || {
        let bundle = ctx.bundle();
        for applet in ["sh", "cat", "grep"] {
            fs::copy(busybox, bundle.rootfs().join("bin").join(applet)).unwrap();
        }
        fs::write(bundle.rootfs().join("look"), look).unwrap();
        fs::set_permissions(bundle.rootfs().join("look"), fs::Permissions::from_mode(0o755)).unwrap();
        bundle
    };
    let seen = |bundle: &Bundle| {
        let file = bundle.rootfs().join("seen");
        // `rt start` does not wait for its hooks.
        let text = eventually("the hook has looked", || {
            fs::read_to_string(&file).ok().filter(|text| text.lines().count() == 3)
        });
        assert_eq!(text, "environ 0\nmem 0\nfiles 0\n");
        fs::remove_file(file).unwrap();
    };
    let hook = bundle().hook("startContainer", Path::new("/look"), &["/bin/cat"]).ops(&["say it runs"]);
    hook.write();
    ctx.give(&hook.rootfs());
    let run = ctx.rt(["run", "-b"]).arg(&hook.dir).arg(ctx.id()).env("SECRET", "s");
    assert_eq!(run.ok().line(0), json!("it runs"));
    seen(&hook);
    let id = ctx.id();
    ctx.rt(["create", "-b"]).arg(&hook.dir).arg(&id).env("SECRET", "s").ok();
    let joined = ctx.rt(["exec", &id, "/bin/sh", "-c", "cat /proc/[0-9]*/environ"]).env("SECRET", "t").ok();
    assert!(!joined.stdout.contains("SECRET=s"), "{joined:?}");
    ctx.rt(["start", &id]).env("SECRET", "s").ok();
    seen(&hook);
    ctx.rt(["delete", "--force", &id]).ok();

    let entry = bundle().with("/annotations", json!({ "rt.image.entrypoint": "[\"/look\"]" }));
    entry.write();
    ctx.give(&entry.rootfs());
    let task = ctx.rt(["slurm", "task"]).env("SECRET", "s").env("RT_CONTAINER_IMAGE", &entry.dir);
    let task = task.env("RT_CONTAINER_ENTRYPOINT", "1").env("RT_CONTAINER_WRITABLE", "1");
    let of_step = [
        ("SLURM_JOB_ID", "42"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_LOCALID", "0"),
        ("SLURM_PROCID", "0"),
        ("SLURMD_NODENAME", "node"),
    ];
    let task = of_step.into_iter().fold(task, |task, (name, value)| task.env(name, value));
    ctx.remember("node.42.0");
    let out = task.args(["--", "/bin/cat", "/seen"]).ok();
    assert_eq!(out.stdout, "environ 0\nmem 0\nfiles 0\n");
}
