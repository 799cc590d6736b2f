//! Containers of images that are files.

use crate::sif::sif;
use crate::{Caller, Place, built, callers, have};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A tree with busybox in it.
fn tree(place: &Place, name: &str) -> Option<String> {
    let found = have("busybox") && have("mksquashfs");
    let busybox =
        String::from_utf8(Command::new("sh").args(["-c", "command -v busybox"]).output().unwrap().stdout);
    let root = place.join(name);
    for dir in ["bin", "etc", "data"] {
        std::fs::create_dir_all(root.join(dir)).unwrap();
    }
    if !found {
        return None;
    }
    std::fs::copy(busybox.unwrap().trim(), root.join("bin/busybox")).unwrap();
    for applet in
        ["sh", "cat", "id", "ls", "sleep", "env", "touch", "stat", "grep", "echo", "pwd", "ps", "readlink"]
    {
        symlink("busybox", root.join("bin").join(applet)).unwrap();
    }
    std::fs::write(root.join("data/file"), "contents\n").unwrap();
    Some(place.text(name))
}

fn image(place: &Place, tree: &str, name: &str) -> String {
    let image = place.text(name);
    let made = Command::new("mksquashfs")
        .args([tree, &image, "-comp", "zstd", "-quiet", "-no-progress", "-noappend", "-all-root"])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    image
}

/// A file of the tree, with directories above it.
fn put(tree: &str, path: &str, text: &str) {
    let path = Path::new(tree).join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

#[test]
fn a_plain_image_runs() {
    let place = Place::new("plain");
    let Some(tree) = tree(&place, "tree") else { return };
    let image = image(&place, &tree, "x.sqsh");
    for caller in callers() {
        let run = |words: &[&str]| place.good(caller, &[&["rt", "run", &image, "--"], words].concat());
        assert_eq!(run(&["cat", "/data/file"]), "contents\n", "{caller:?}");
        assert!(run(&["sh", "-c", "echo $PATH"]).contains("/usr/bin"));
        if caller == Caller::User {
            assert!(run(&["cat", "/etc/passwd"]).contains(crate::UID));
        }
        let output = place.run(caller, &["rt", "run", &image, "--", "sh", "-c", "touch /x || exit 6"]);
        assert_eq!(output.status.code(), Some(6), "{caller:?}");
        let output = place.run(caller, &["rt", "run", &image, "--", "/no/program"]);
        assert_eq!(output.status.code(), Some(1), "{caller:?}: {output:?}");
        // By a name without a slash.
        let mut command = place.command(caller, &["rt", "run", "x.sqsh", "--", "echo", "here"]);
        assert_eq!(command.current_dir(place.join("")).output().unwrap().stdout, b"here\n", "{caller:?}");
        place.no_server(caller);
        // Nothing is left of it, and nothing is told of it.
        let state = place.text(&format!("home/state-{caller:?}"));
        let script = format!(
            "rt --root {state} run {image} -- sh -c : && rt --root {state} list -q; ls -A {state}/.mounted"
        );
        assert_eq!(place.good(caller, &["sh", "-c", &script]), "", "{caller:?}");
    }
}

#[test]
fn a_shell_is_what_runs_where_an_image_says_nothing() {
    let place = Place::new("shell");
    let Some(tree) = tree(&place, "tree") else { return };
    let image = image(&place, &tree, "x.sqsh");
    for caller in callers() {
        let script = format!("echo 'cat /data/file; exit 5' | rt run {image}");
        let output = place.run(caller, &["sh", "-c", &script]);
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(5), &b"contents\n"[..]), "{caller:?}");
    }
}

/// A bundle in the caller's home directory whose root is the place's x.sqsh.
fn bundle_of_file(place: &Place, caller: Caller) -> String {
    let bundle = place.text(&format!("home/bundle-{caller:?}"));
    let spec = format!(
        "mkdir {bundle} && rt spec -b {bundle} </dev/null && sed -i 's|\"path\": *\"rootfs\"|\"path\": \"../../x.sqsh\"|' {bundle}/config.json"
    );
    place.good(caller, &["sh", "-c", &spec]);
    bundle
}

#[test]
fn a_config_names_an_image() {
    let place = Place::new("config");
    let Some(tree) = tree(&place, "tree") else { return };
    let file = image(&place, &tree, "x.sqsh");
    for caller in callers() {
        let bundle = bundle_of_file(&place, caller);
        let relative = format!("bundle-{caller:?}");
        for named in [&bundle, &format!("./{relative}")] {
            assert_eq!(place.good(caller, &["rt", "run", named, "--", "cat", "/data/file"]), "contents\n");
        }
        // All of a container's life, with its server.
        let script = format!(
            "rt run -d -b {bundle} life -- sleep 60 && rt exec life cat /data/file && rt state life | grep -o running && \
             rt kill life KILL && while rt delete life 2>&1 | grep -q running; do :; done; \
             rt create -b {bundle} two <&- && rt start two && rt delete --force two && echo end"
        );
        assert_eq!(place.good(caller, &["sh", "-c", &script]), "contents\nrunning\nend\n", "{caller:?}");
        // An annotation names it where the root has to be a directory for others.
        let annotate = format!(
            "mkdir {bundle}/rootfs && sed -i 's|\"path\": \"../../x.sqsh\"|\"path\": \"rootfs\"|; \
             s|\"annotations\": *{{|&\"rt.image.file\": \"{file}\",|; s|,}}|}}|' {bundle}/config.json"
        );
        place.good(caller, &["sh", "-c", &annotate]);
        assert_eq!(place.good(caller, &["rt", "run", &bundle, "--", "cat", "/data/file"]), "contents\n");
    }
}

#[test]
fn an_image_is_a_volume() {
    let place = Place::new("volume");
    let Some(tree) = tree(&place, "tree") else { return };
    let image = image(&place, &tree, "x.sqsh");
    let data = place.seed("gzip.sqsh");
    for caller in callers() {
        let volumes =
            [format!("{data}:/hello:noexec"), format!("{image}:/again"), format!("{data}:/data/file.sqsh")];
        let [hello, again, file] = volumes.each_ref().map(String::as_str);
        let script =
            "cat /hello/dir/hello /again/data/file; stat -c %s /f.sqsh; grep ' /hello ' /proc/mounts";
        let file = file.replace("/data/file.sqsh", "/f.sqsh");
        let said = place.good(
            caller,
            &["rt", "run", "-v", hello, "-v", again, "-v", &file, &image, "--", "sh", "-c", script],
        );
        let size = std::fs::metadata(&data).unwrap().len();
        assert!(said.starts_with(&format!("hello\ncontents\n{size}\n")), "{caller:?}: {said}");
        assert!(said.contains("ro,nosuid,nodev,noexec"), "{caller:?}: {said}");
    }
}

#[test]
fn an_image_is_unpacked_where_asked() {
    let place = Place::new("unpacked");
    let Some(tree) = tree(&place, "tree") else { return };
    let image = image(&place, &tree, "x.sqsh");
    for caller in callers() {
        let volume = format!("{image}:/again");
        let words = [
            "rt",
            "run",
            "--extract",
            "-v",
            &volume,
            &image,
            "--",
            "sh",
            "-c",
            "cat /data/file /again/data/file",
        ];
        let mut command = place.command_with(
            caller,
            "mknod -m 000 $0/dev/fuse c 10 229 && mount --bind $0/dev/fuse /dev/fuse",
            &words,
        );
        let output = command.output().unwrap();
        assert_eq!(output.stdout, b"contents\ncontents\n", "{caller:?}: {output:?}");
        assert!(place.servers().is_empty(), "{caller:?}");
    }
}

#[test]
fn an_image_has_a_layer_to_write_to() {
    let place = Place::new("layer");
    let Some(tree) = tree(&place, "tree") else { return };
    let image = image(&place, &tree, "x.sqsh");
    let before = std::fs::read(&image).unwrap();
    for caller in callers() {
        let write = "echo new >/data/new && echo changed >/data/file && cat /data/new /data/file; rm /bin/echo; ls /bin/echo 2>&1; true";
        let run = |flags: &[&str]| {
            let words = [&["rt", "run"], flags, &[&image, "--", "sh", "-c", write]].concat();
            place.good(caller, &words)
        };
        let expected = "new\nchanged\nls: /bin/echo: No such file or directory\n";
        assert_eq!(run(&["--writable"]), expected, "{caller:?}");
        let kept = place.text(&format!("home/layer-{caller:?}"));
        assert_eq!(run(&["--overlay", &kept]), expected, "{caller:?}");
        let again = place.good(caller, &["rt", "run", "--overlay", &kept, &image, "--", "cat", "/data/new"]);
        assert_eq!(again, "new\n", "{caller:?}");
        if caller == Caller::User {
            let words = ["rt", "run", "--as-root", &image, "--", "sh", "-c", "id -u; touch /new && ls /new"];
            let output = place.run(caller, &words);
            assert_eq!(String::from_utf8_lossy(&output.stdout), "0\n/new\n");
            let lost = String::from_utf8_lossy(&output.stderr);
            assert!(lost.contains("--overlay DIR") && lost.lines().count() == 1, "{lost}");
        }
    }
    assert!(std::fs::read(&image).unwrap() == before, "the image has changed");
}

/// The tasks of a step on a node have one mount, one server and one container, whoever of them comes first.
#[test]
fn tasks_of_a_step_share_an_image() {
    let place = Place::new("step");
    let Some(tree) = tree(&place, "tree") else { return };
    let image = image(&place, &tree, "x.sqsh");
    for caller in callers().into_iter().filter(|caller| *caller != Caller::Nested) {
        let script = "for task in 0 1 2 3; do
                SLURM_LOCALID=$task rt slurm task -- -c 'readlink /proc/self/ns/mnt; cat /data/file; sleep 2' &
            done
            sleep 1
            rt list -q
            SLURM_LOCALID=4 rt slurm task -- -c 'readlink /proc/self/ns/mnt; touch /new && echo written'
            rt exec 42.0.2 sh -c 'ls /new; echo task $SLURM_LOCALID'
            wait
            rt slurm end; echo left $(rt list -q | grep 42.0)";
        let file = format!("RT_CONTAINER_IMAGE={image}");
        let job =
            ["SLURM_JOB_ID=42", "SLURM_STEP_ID=0", "SLURMD_NODENAME=n1", "RT_CONTAINER_ARGV0=sh", &file];
        let words = [&["env"][..], &job, &["sh", "-c", script]].concat();
        let mut command = place.command(caller, &words);
        let child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
        // Before the end of the first tasks, when all of them are there.
        std::thread::sleep(std::time::Duration::from_millis(1700));
        let servers = place.servers().len();
        let output = child.wait_with_output().unwrap();
        place.no_server(caller);
        let text = String::from_utf8(output.stdout).unwrap();
        let lines = |wanted: &str| text.lines().filter(|line| line.starts_with(wanted)).collect::<Vec<_>>();
        let namespaces = lines("mnt:");
        assert_eq!(namespaces.len(), 5, "{caller:?}: {text}");
        assert!(namespaces.iter().all(|namespace| namespace == &namespaces[0]), "{caller:?}: {text}");
        assert_eq!(lines("contents").len(), 4, "{caller:?}: {text}");
        assert_eq!((lines("n1.42.0"), servers), (vec!["n1.42.0"], 2), "{caller:?}: {text}");
        assert_eq!(
            lines("written").len() + lines("/new").len() + lines("task 2").len(),
            3,
            "{caller:?}: {text}"
        );
        assert_eq!(lines("left"), ["left"], "{caller:?}: {text}");
    }
}

/// What steps have written over an image file is there for the next one, and is saved with it.
#[test]
fn a_container_of_an_image_is_kept_and_saved() {
    let place = Place::new("kept");
    let Some(tree) = tree(&place, "tree") else { return };
    let image = image(&place, &tree, "x.sqsh");
    let pull = built("rt-pull");
    std::fs::copy(pull, place.join("bin/rt-pull")).unwrap();
    for caller in [Caller::User, Caller::Root].into_iter().filter(|caller| callers().contains(caller)) {
        let saved = place.text(&format!("home/saved-{caller:?}.sqsh"));
        let script = "rt slurm task -- -c 'echo one >/new; rm /data/file'
            export SLURM_STEP_ID=1 RT_CONTAINER_IMAGE=
            rt slurm prepare
            rt slurm task -- -c 'cat /new; ls /data; sleep 1' &
            sleep 0.5; rt slurm task -- -c 'cat /new; echo two >/two'; wait
            rt list -q | grep -x 42.x
            RT_CONTAINER_SAVE=$SAVED rt slurm end
            rt delete 42.x; echo left $(rt list -q | grep -x 42.x) $(ls -d tmp/rt-layers-*/* 2>/dev/null)
            rt run $SAVED -- sh -c 'cat /new /two; ls /data'";
        std::fs::create_dir_all(place.join("home/tmp")).unwrap();
        crate::open_to_all(&place.join("home/tmp"));
        let file = format!("RT_CONTAINER_IMAGE={image}");
        let tmpfs = format!("RT_CONTAINER_TMPFS={}", place.text("home/tmp"));
        let saved = format!("SAVED={saved}");
        let job = [
            "SLURM_JOB_ID=42",
            "SLURM_STEP_ID=0",
            "SLURMD_NODENAME=n1",
            "RT_CONTAINER_ARGV0=sh",
            "RT_CONTAINER_NAME=x",
        ];
        let words = [&["env"][..], &job, &[&file, &tmpfs, &saved, "sh", "-c", script]].concat();
        let text = place.good(caller, &words);
        let prepared = format!("{image}\none\none\n42.x\nleft\none\ntwo\n");
        assert_eq!(text, prepared, "{caller:?}");
    }
}

#[test]
fn an_image_of_enroot_runs_its_script() {
    let place = Place::new("enroot");
    let Some(tree) = tree(&place, "tree") else { return };
    put(
        &tree,
        "etc/rc",
        "cd /data\necho \"rc with $# arguments\"\nif [ $# -gt 0 ]; then exec \"$@\"; else exec cat file; fi\n",
    );
    put(&tree, "etc/environment", "# comment\nCOLOUR=blue\nPATH=/bin\nQUOTED=\"a b\"\n");
    put(&tree, "etc/fstab", "tmpfs /scratch tmpfs x-create=dir,rw\n/etc /host none x-create=dir,bind\n");
    let image = image(&place, &tree, "x.sqsh");
    for caller in callers() {
        assert_eq!(
            place.good(caller, &["rt", "run", &image]),
            "rc with 0 arguments\ncontents\n",
            "{caller:?}"
        );
        let script = "pwd; echo $COLOUR/$PATH/$QUOTED; touch /scratch/x; ls /scratch; ls /host 2>&1; true";
        let said = place.good(caller, &["rt", "run", &image, "--", "sh", "-c", script]);
        let expected = "rc with 3 arguments\n/data\nblue//bin/a b\nx\n";
        assert!(said.starts_with(expected) && said.contains("No such file"), "{caller:?}: {said}");
        let said = place.good(caller, &["rt", "run", "--entrypoint", "", &image, "--", "echo", "bare"]);
        assert_eq!(said, "bare\n", "{caller:?}");
    }
}

#[test]
fn an_image_of_apptainer_runs_its_script() {
    let place = Place::new("apptainer");
    let Some(tree) = tree(&place, "tree") else { return };
    put(&tree, ".singularity.d/env/10-docker2singularity.sh", "export COLOUR=${COLOUR:-red}\n");
    put(&tree, ".singularity.d/env/90-environment.sh", "export SHAPE=round\n");
    put(&tree, ".singularity.d/runscript", "#!/bin/sh\necho \"runscript $SHAPE $COLOUR\"\n");
    std::fs::set_permissions(
        Path::new(&tree).join(".singularity.d/runscript"),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let squashfs = std::fs::read(image(&place, &tree, "x.sqsh")).unwrap();
    let file = place.text("x.sif");
    std::fs::write(&file, sif(&[(1, 2, &squashfs)])).unwrap();
    for caller in callers() {
        assert_eq!(place.good(caller, &["rt", "run", &file]), "runscript round red\n", "{caller:?}");
        let said = place.good(caller, &["rt", "run", &file, "--", "sh", "-c", "echo $SHAPE $0 $#"]);
        assert_eq!(said, "round sh 0\n", "{caller:?}");
    }
}

#[test]
fn an_image_of_ours_says_how_it_runs() {
    let place = Place::new("own");
    let Some(tree) = tree(&place, "tree") else { return };
    put(
        &tree,
        ".rt/image.json",
        r#"{"config": {"Env": ["COLOUR=green", "PATH=/bin"], "Entrypoint": ["sh", "-c"], "Cmd": ["echo $COLOUR; pwd"],
            "WorkingDir": "/data", "Volumes": {"/empty": {}}, "Labels": {"rt.user": "root"}}}"#,
    );
    let image = image(&place, &tree, "x.sqsh");
    for caller in callers() {
        assert_eq!(place.good(caller, &["rt", "run", &image]), "green\n/data\n", "{caller:?}");
        let said = place.good(caller, &["rt", "run", &image, "--", "touch /empty/x; ls /empty; id -u"]);
        let uid = if caller == Caller::User { crate::UID } else { "0" };
        if caller != Caller::Current {
            assert_eq!(said, format!("x\n{uid}\n"), "{caller:?}");
        }
    }
}

#[test]
fn a_bundles_config_in_an_image_reaches_nothing_of_the_host() {
    let place = Place::new("own-config");
    let Some(tree) = tree(&place, "tree") else { return };
    let secret = place.text("home/secret");
    std::fs::write(&secret, "of the host").unwrap();
    let mark = place.text("home/hook-ran");
    let config = format!(
        r#"{{"ociVersion": "1.2.0",
        "process": {{"args": ["sh", "-c", "cat /host/secret 2>&1; echo $COLOUR; echo $$"], "env": ["COLOUR=black", "PATH=/bin"],
            "cwd": "/data", "user": {{"uid": 0, "gid": 0}}}},
        "hooks": {{"createRuntime": [{{"path": "/bin/sh", "args": ["sh", "-c", "touch {mark}"]}}],
            "poststop": [{{"path": "/bin/sh", "args": ["sh", "-c", "touch {mark}"]}}]}},
        "mounts": [{{"destination": "/host", "type": "bind", "source": "{home}", "options": ["rbind"]}},
            {{"destination": "/proc", "type": "proc", "source": "proc"}}],
        "linux": {{"namespaces": [{{"type": "pid"}}, {{"type": "network", "path": "/proc/1/ns/net"}}]}}}}"#,
        home = place.text("home")
    );
    put(&tree, ".rt/config.json", &config);
    let image = image(&place, &tree, "x.sqsh");
    for caller in callers() {
        let said = place.good(caller, &["rt", "run", &image]);
        assert_eq!(
            said, "cat: can't open '/host/secret': No such file or directory\nblack\n1\n",
            "{caller:?}"
        );
        assert!(!Path::new(&mark).exists(), "{caller:?}: a hook of the image has run");
    }
}

/// An image's own config gets no power over the host where root runs the image, nor over what a user's binds show.
#[test]
fn an_images_config_uncovers_nothing() {
    let place = Place::new("uncovers");
    let Some(tree) = tree(&place, "tree") else { return };
    symlink("busybox", Path::new(&tree).join("bin/umount")).unwrap();
    let all = r#"["CAP_SYS_ADMIN", "CAP_DAC_OVERRIDE"]"#;
    let bind = |path: &str, options: &str| {
        format!(r#"{{"destination": "{path}", "type": "bind", "source": "{path}", "options": [{options}]}}"#)
    };
    let binds =
        [bind("/proc", r#""rbind", "nosuid", "noexec", "nodev""#), bind("/dev", r#""rbind", "nosuid""#)];
    let kernels = r#"{"destination": "/proc", "type": "proc", "source": "proc"}, {"destination": "/sys", "type": "sysfs", "source": "sysfs"},
        {"destination": "/data", "type": "proc", "source": "proc"}"#;
    let namespaces = |more: &str| format!(r#""namespaces": [{{"type": "user"}}, {{"type": "mount"}}{more}]"#);
    let allowing = r#""seccomp": {"defaultAction": "SCMP_ACT_ALLOW"}"#;
    let cases = [
        (binds.join(", "), String::new(), ""),
        (binds.join(", "), allowing.to_owned(), ""),
        (binds.join(", "), String::new(), r#""rt.user": "config""#),
        (binds.join(", "), String::new(), r#""rt.user": "caller""#),
        (kernels.to_owned(), namespaces(""), r#""rt.user": "caller""#),
        (kernels.to_owned(), namespaces(r#", {"type": "pid"}, {"type": "network"}"#), ""),
        (format!("{}, {kernels}", binds[1]), namespaces(""), ""),
    ];
    for (n, (mounts, linux, annotations)) in cases.into_iter().enumerate() {
        let config = format!(
            r#"{{"ociVersion": "1.2.0", "process": {{"args": ["sh"], "env": ["PATH=/bin"], "cwd": "/", "user": {{"uid": 0, "gid": 0}}, "noNewPrivileges": false,
                "capabilities": {{"bounding": {all}, "effective": {all}, "permitted": {all}, "inheritable": {all}, "ambient": {all}}}}},
            "mounts": [{mounts}], "linux": {{{linux}}}, "annotations": {{{annotations}}}}}"#
        );
        put(&tree, ".rt/config.json", &config);
        let image = image(&place, &tree, &format!("x{n}.sqsh"));
        let open = place.join("open");
        std::fs::create_dir_all(&open).unwrap();
        std::fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        for caller in callers() {
            let inside = "umount /proc/sys; umount /sys; \
                for S in /proc/sys/kernel/core_uses_pid /data/sys/kernel/core_uses_pid /sys/kernel/mm/ksm/run; do \
                [ -e $S ] && V=$(cat $S) && echo $V >$S && echo WRITTEN; done; umount /host/state && echo UNCOVERED; grep -e CapEff -e Seccomp -e NoNewPrivs /proc/self/status";
            let above = place.text(&format!("open/{caller:?}"));
            let script = format!(
                "mkdir -p {above}/state && rt --root {above}/state run -v {above}:/host {image} sh -c '{inside}'"
            );
            let out = place.command(caller, &["sh", "-c", &script]).output().unwrap();
            let said = String::from_utf8_lossy(&out.stdout).into_owned();
            assert!(said.contains("CapEff:\t0000000000000000"), "{caller:?} {n}: {out:?}");
            // Its own filter is loaded last.
            assert!(said.contains("NoNewPrivs:\t1"), "{caller:?} {n}: {said}");
            // A filter of rt's own keeps the caller's keys from each of them, and a config's comes beside it.
            let filters = if linux.contains("seccomp") { 2 } else { 1 };
            assert!(said.contains(&format!("Seccomp_filters:\t{filters}")), "{caller:?} {n}: {said}");
            assert!(!said.contains("WRITTEN") && !said.contains("UNCOVERED"), "{caller:?} {n}: {said}");
        }
    }
    // Nor does a PID namespace that the caller asks for, whose procfs has the host's settings, too.
    std::fs::remove_dir_all(Path::new(&tree).join(".rt")).unwrap();
    let plain = image(&place, &tree, "plain.sqsh");
    let inside =
        "S=/proc/sys/kernel/core_uses_pid; V=$(cat $S); (echo $V >$S) 2>/dev/null && echo WRITTEN; echo end";
    for caller in callers() {
        let said = place.good(caller, &["rt", "run", "--pid", "private", &plain, "--", "sh", "-c", inside]);
        assert_eq!(said, "end\n", "{caller:?}");
    }
}

#[test]
fn hooks_of_a_directory_run_for_an_image() {
    let place = Place::new("hooks");
    let Some(tree) = tree(&place, "tree") else { return };
    let image = image(&place, &tree, "x.sqsh");
    let dir = place.text("hooks.d");
    let hook = r#"{"version": "1.0.0", "when": {"always": true}, "stages": ["precreate"],
        "hook": {"path": "/bin/sh", "args": ["sh", "-c", "sed 's/\"env\": *\\[/&\"HOOKED=yes\",/'"]}}"#;
    put(&dir, "hook.json", hook);
    let words = ["rt", "run", "--hooks-dir", &dir, &image, "--", "sh", "-c", "echo $HOOKED"];
    for caller in callers() {
        // The directory is root's, who has no id in the namespace in which the image is mounted.
        assert_eq!(place.good(caller, &words), "yes\n", "{caller:?}");
        if caller == Caller::User {
            // What a stranger has written is refused, though there the stranger has no id either.
            std::os::unix::fs::chown(&dir, Some(12345), Some(12345)).unwrap();
            assert!(place.bad(caller, &words).contains("it belongs to uid 12345"));
            std::os::unix::fs::chown(&dir, Some(0), Some(0)).unwrap();
        }
    }
}

/// The config is read once, before the image is mounted, and its hooks of the stage precreate run once.
#[test]
fn a_precreate_hook_runs_once() {
    let place = Place::new("once");
    let Some(tree) = tree(&place, "tree") else { return };
    let image = image(&place, &tree, "x.sqsh");
    let dir = place.text("hooks.d");
    for caller in callers() {
        let runs = place.text(&format!("home/runs-{caller:?}"));
        let hook = format!(
            r#"{{"version": "1.0.0", "when": {{"always": true}}, "stages": ["precreate"],
            "hook": {{"path": "/bin/sh", "args": ["sh", "-c", "echo run >>{runs}; cat"]}}}}"#
        );
        put(&dir, "hook.json", &hook);
        let bundle = bundle_of_file(&place, caller);
        for started in [&image, &bundle] {
            let words = ["rt", "run", "--hooks-dir", &dir, started, "--", "cat", "/data/file"];
            assert_eq!(place.good(caller, &words), "contents\n", "{caller:?}");
            assert_eq!(std::fs::read_to_string(&runs).unwrap(), "run\n", "{caller:?} {started}");
            std::fs::remove_file(&runs).unwrap();
        }
    }
}

/// A store's bundle that root has made may ask for the host's files, also where its root is an image, for which a user goes on
/// in a user namespace that root has no id in. A stranger's has no such root, which he could exchange for a link.
#[test]
fn roots_bundle_of_a_store_asks_for_the_hosts_files() {
    let place = Place::new("roots-bundle");
    let Some(tree) = tree(&place, "tree") else { return };
    std::fs::create_dir(Path::new(&tree).join("seen")).unwrap();
    let bundle = place.text(&format!("store/bundles/sha256-{}", "0".repeat(64)));
    std::fs::create_dir_all(&bundle).unwrap();
    image(&place, &tree, &format!("{}/rootfs", bundle.strip_prefix(&place.text("")).unwrap()));
    put(&place.text("shown"), "file", "of the host\n");
    let mount = format!(
        r#"{{"destination": "/seen", "type": "bind", "source": "{}", "options": ["bind"]}},"#,
        place.text("shown")
    );
    let config = std::fs::read_to_string(spec_of_root(&place)).unwrap();
    let config = config.replacen("\"mounts\": [", &format!("\"mounts\": [{mount}"), 1);
    std::fs::write(format!("{bundle}/config.json"), config).unwrap();
    let words = ["rt", "run", &bundle, "--", "cat", "/seen/file"];
    // Everybody can put a bundle of root's there.
    assert!(place.bad(Caller::User, &words).contains("rootfs: not a directory, and others can change"));
    let closed = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(place.text(""), closed).unwrap();
    assert_eq!(place.good(Caller::User, &words), "of the host\n");
    std::os::unix::fs::chown(&bundle, Some(12345), Some(12345)).unwrap();
    assert!(place.bad(Caller::User, &words).contains("rootfs: not a directory, and others can change"));
}

/// A config.json of `rt spec`, as root has it.
fn spec_of_root(place: &Place) -> String {
    place.good(Caller::Root, &["sh", "-c", "mkdir spec && rt spec -b spec </dev/null"]);
    place.text("home/spec/config.json")
}

#[test]
fn a_hook_is_told_where_the_image_is_mounted() {
    let place = Place::new("told");
    let Some(tree) = tree(&place, "tree") else { return };
    image(&place, &tree, "x.sqsh");
    let dir = place.text("hooks.d");
    let script = r#"cat $(grep -o 'rootfs\": *\"[^\"]*' | grep -o '/.*')/data/file >&2; exit 3"#;
    let hook = format!(
        r#"{{"version": "1.0.0", "when": {{"always": true}}, "stages": ["createRuntime"],
        "hook": {{"path": "/bin/sh", "args": ["sh", "-c", "{script}"], "env": ["PATH=/bin:/usr/bin"]}}}}"#
    );
    put(&dir, "hook.json", &hook);
    for caller in callers() {
        let bundle = bundle_of_file(&place, caller);
        let said = place.bad(caller, &["rt", "run", "--hooks-dir", &dir, &bundle]);
        assert!(said.contains("exit status 3: contents"), "{caller:?}: {said}");
    }
}

#[test]
fn what_rt_saves_runs() {
    let place = Place::new("saved");
    let Some(tree) = tree(&place, "bundle/rootfs") else { return };
    put(&tree, "data/more", "more\n");
    std::fs::copy(crate::built("rt-pull"), place.join("bin/rt-pull")).unwrap();
    let bundle = place.text("bundle");
    for dir in ["bundle", "bundle/rootfs"] {
        crate::open_to_all(&place.join(dir));
    }
    for caller in callers() {
        let image = place.text(&format!("home/{caller:?}.sqsh"));
        let script = format!(
            "rm -f {bundle}/config.json; rt spec -b {bundle} </dev/null && rt save --quiet {bundle} {image} && \
             rt run {image} -- cat /data/file /data/more"
        );
        let said = place.good(caller, &["sh", "-c", &script]);
        assert!(said.ends_with("contents\nmore\n"), "{caller:?}: {said}");
    }
}

/// Tasks that can read each other's memory (cross-memory attach) are in one container.
#[test]
fn tasks_with_a_bundle_share_an_image() {
    let place = Place::new("bundle-step");
    let Some(tree) = tree(&place, "tree") else { return };
    image(&place, &tree, "x.sqsh");
    let other = image(&place, &tree, "y.sqsh");
    // Namespaces of other callers are no namespaces of one user.
    for caller in callers().into_iter().filter(|caller| *caller != Caller::Nested) {
        let (bundle, state) =
            (place.text(&format!("home/{caller:?}")), place.text(&format!("home/s-{caller:?}")));
        std::fs::create_dir(&bundle).unwrap();
        crate::open_to_all(Path::new(&bundle));
        let spec = format!(
            "rt spec -b {bundle} </dev/null && sed -i '/\"type\": *\"pid\"/d; s|\"path\": *\"rootfs\"|\"path\": \"../../x.sqsh\"|' {bundle}/config.json"
        );
        place.good(caller, &["sh", "-c", &spec]);
        let task = |n: usize| {
            let id = format!("n.7.0.{n}");
            let script = format!("echo $(readlink /proc/self/ns/mnt) {n} $(cat /data/file); read line");
            let words =
                ["rt", "--root", &state, "slurm", "run", "-b", &bundle, &id, "--", "sh", "-c", &script];
            let mut task = place.command(caller, &words);
            task.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let line = |task: &mut Child| {
            let mut line = String::new();
            BufReader::new(task.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
            line
        };
        let mut tasks: Vec<Child> = (0..6).map(task).collect();
        let lines: Vec<String> = tasks.iter_mut().map(line).collect();
        let namespaces: std::collections::BTreeSet<_> =
            lines.iter().map(|line| line.split_whitespace().next()).collect();
        assert!(
            lines.iter().enumerate().all(|(n, line)| line.ends_with(&format!(" {n} contents\n"))),
            "{lines:?}"
        );
        assert_eq!((namespaces.len(), place.servers().len()), (1, 2), "{caller:?}: {lines:?}");
        // The task that has made the container may end first, and others may still come.
        drop(tasks.remove(0).stdin.take());
        tasks.push(task(6));
        assert_eq!(line(&mut tasks[5]).split_whitespace().next(), *namespaces.first().unwrap(), "{caller:?}");
        // Another image is another container.
        let config = format!("{bundle}/config.json");
        let text = std::fs::read_to_string(&config).unwrap().replace("x.sqsh", "y.sqsh");
        std::fs::write(&config, text).unwrap();
        let mut of_other = task(7);
        let said = line(&mut of_other);
        assert!(
            said.ends_with(" 7 contents\n") && said.split_whitespace().next() != *namespaces.first().unwrap()
        );
        assert_eq!(place.servers().len(), 4, "{other}");
        for mut task in tasks.into_iter().chain([of_other]) {
            drop(task.stdin.take());
            let output = task.wait_with_output().unwrap();
            assert!(output.stderr.is_empty(), "{caller:?}: {output:?}");
        }
        place.no_server(caller);
    }
}

/// A place with `rt-pull`, and a bundle whose program says what it was called with.
fn bundle(place: &Place) -> Option<String> {
    tree(place, "bundle/rootfs")?;
    std::fs::copy(crate::built("rt-pull"), place.join("bin/rt-pull")).unwrap();
    for dir in ["bundle", "bundle/rootfs"] {
        crate::open_to_all(&place.join(dir));
    }
    Some(place.text("bundle"))
}

fn spec(bundle: &str) -> String {
    let program = r#"[\"sh\", \"-c\", \"echo called with $#: $*\", \"name\"]"#;
    format!(
        "rm -f {bundle}/config.json; rt spec -b {bundle} </dev/null && tr -d '\\n' <{bundle}/config.json >{bundle}/c && \
         sed 's|\"args\": *\\[[^]]*\\]|\"args\": {program}|; s|\"terminal\": *true|\"terminal\": false|' {bundle}/c >{bundle}/config.json"
    )
}

#[test]
fn a_program_of_one_file_needs_no_rt() {
    let place = Place::new("run-file");
    let Some(bundle) = bundle(&place) else { return };
    let data = place.seed("gzip.sqsh");
    for caller in callers() {
        let (app, copy) =
            (place.text(&format!("home/app-{caller:?}")), place.text(&format!("home/{caller:?}.sqsh")));
        let save = format!("{} && rt save --quiet --runfile {app} {bundle}", spec(&bundle));
        assert_eq!(place.good(caller, &["sh", "-c", &save]), format!("{app}\n"));
        // Nothing of rt is in PATH, nor beside it.
        let run = |words: &[&str]| {
            place.good(caller, &[&["env", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", &app], words].concat())
        };
        assert_eq!(run(&[]), "called with 0:\n", "{caller:?}");
        assert_eq!(run(&["a", "--help", "--rt-help"]), "called with 3: a --help --rt-help\n");
        assert!(run(&["--rt-help"]).contains("--rt-volume"));
        assert_eq!(run(&["--rt-shell", "-c", "cat /data/file"]), "contents\n");
        // Which takes the rt-image in the file once more.
        let volume = format!("--rt-volume={data}:/hello");
        assert_eq!(run(&[&volume, "--rt-shell", "-c", "cat /hello/dir/hello"]), "hello\n");
        assert_eq!(run(&["--rt-extract", "--rt-shell", "-c", "cat /data/file"]), "contents\n");
        let bad = place.bad(caller, &[&app, "--rt-no-such-flag"]);
        assert!(bad.contains("no-such-flag"), "{bad}");
        // By the name rt it is rt, and for rt and squashfs it is an image.
        let others = format!(
            "ln -sf {app} rt && ./rt --version | head -n 1 | cut -d ' ' -f 1,2 && rt run {app} -- x && \
             rt convert --quiet {app} {copy} && rt run --entrypoint '' {copy} -- cat /data/file"
        );
        let said = place.good(caller, &["sh", "-c", &others]);
        assert_eq!(said, format!("rt version\ncalled with 1: x\n{copy}\ncontents\n"), "{caller:?}");
        let said = place.bad(caller, &["rt", "save", "--runfile", "rt-image", &bundle]);
        assert!(said.contains("rt-image: a program of the name rt-image"), "{said}");
        // Cut off, it is no program.
        let cut = format!("head -c 3000000 {app} >cut; chmod 755 cut; ./cut; true");
        place.run(caller, &["sh", "-c", &cut]);
    }
}

/// By its name, as `rt pull` takes it. The flag stands behind the name, too.
#[test]
fn a_name_becomes_a_program() {
    let place = Place::new("run-name");
    let Some(bundle) = bundle(&place) else { return };
    for caller in callers() {
        let at = place.text(&format!("home/{caller:?}"));
        std::fs::create_dir(&at).unwrap();
        crate::open_to_all(Path::new(&at));
        let script = format!(
            "cd {at} && {} && rt save --quiet {bundle} oci:layout:t >/dev/null && \
             rt save --quiet oci:layout:t --runfile app && ./app && ./app echo instead && \
             env PATH=/usr/bin:/bin ./app --rt-shell -c 'cat /data/file'",
            spec(&bundle)
        );
        let said = place.good(caller, &["sh", "-c", &script]);
        assert_eq!(said, format!("{at}/app\ncalled with 0:\ninstead\ncontents\n"), "{caller:?}");
        // One that is there stays: it has programs in it, too, so it is never said to be unchanged.
        let before = std::fs::metadata(format!("{at}/app")).unwrap();
        let again = ["rt", "save", &format!("oci:{at}/layout:t"), "--runfile", &format!("{at}/app")];
        let said = place.bad(caller, &again);
        assert!(said.contains("exists") && said.contains("--force"), "{caller:?}: {said}");
        let after = std::fs::metadata(format!("{at}/app")).unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::ino(&before), std::os::unix::fs::MetadataExt::ino(&after));
        assert!(place.bad(caller, &["rt", "save", "oci:none:t", "--runfile", "x"]).contains("none"));
    }
}

#[test]
fn forms_of_an_image_become_each_other() {
    let place = Place::new("convert");
    let Some(bundle) = bundle(&place) else { return };
    let squashfs = std::fs::read(image(&place, &format!("{bundle}/rootfs"), "x.sqsh")).unwrap();
    std::fs::write(place.text("x.sif"), sif(&[(1, 2, &squashfs)])).unwrap();
    for caller in callers() {
        let at = place.text(&format!("home/{caller:?}"));
        std::fs::create_dir(&at).unwrap();
        crate::open_to_all(Path::new(&at));
        let script = format!(
            "cd {at} && {} && c() {{ rt convert --quiet \"$@\" >/dev/null; }} && r() {{ rt run --entrypoint '' $1 -- cat /data/file; }} && \
             c {bundle} a.sqsh && r a.sqsh && c a.sqsh b.sqsh && cmp a.sqsh b.sqsh && c --compress lz4 a.sqsh c.sqsh && r c.sqsh && \
             c ../../x.sif d.sqsh && r d.sqsh && c ../../x.sif oci:layout:t && c oci:layout:t e && r ./e && \
             c a.sqsh docker-archive:f.tar:x:1 && c docker-archive:f.tar g.sqsh && r g.sqsh && rt run g.sqsh && \
             c a.sqsh h && r ./h && c --runfile i ../../x.sif && ./i --rt-shell -c 'cat /data/file' && c oci:layout:t oci-archive:j.tar && \
             c oci-archive:j.tar k.sqsh && r k.sqsh && rt mount --bundle ../../x.sif ../../mnt -- ls ../../mnt ../../mnt/rootfs/data; \
             ls -A | grep -c convert",
            spec(&bundle)
        );
        let said = place.run(caller, &["sh", "-c", &script]);
        assert_eq!(
            String::from_utf8_lossy(&said.stdout),
            "contents\ncontents\ncontents\ncontents\ncontents\ncalled with 0:\ncontents\ncontents\ncontents\n\
             ../../mnt:\nconfig.json\nrootfs\n\n../../mnt/rootfs/data:\nfile\n0\n",
            "{caller:?}: {said:?}"
        );
        assert!(said.stderr.is_empty(), "{caller:?}: {said:?}");
        for (words, why) in [
            (&["convert", &bundle, "out"][..], "a bundle, as what it is made of"),
            (&["convert", "--runfile", "a", "b", "c"], "extra operand"),
            (&["convert", "x"], "missing"),
        ] {
            let said = place.bad(caller, &[&["rt"], words].concat());
            assert!(said.contains(why), "{caller:?}: {said}");
        }
    }
}

/// Opens `at` to all, but as /tmp is: what others can rename is no place for a draft.
fn nobody_renames(place: &Place, at: &str) {
    for dir in [place.text(""), place.text("home"), at.to_owned()] {
        std::fs::set_permissions(dir, std::os::unix::fs::PermissionsExt::from_mode(0o1777)).unwrap();
    }
}

/// What is asked to end while it writes leaves nothing.
#[test]
fn what_is_terminated_leaves_nothing() {
    let place = Place::new("terminated");
    let Some(bundle) = bundle(&place) else { return };
    // Large enough to be met in the middle, and not to be compressed.
    let noise = format!("head -c 100000000 /dev/urandom > {bundle}/rootfs/data/large");
    assert!(Command::new("sh").args(["-c", &noise]).status().unwrap().success());
    let file = image(&place, &format!("{bundle}/rootfs"), "x.sqsh");
    for caller in callers().into_iter().take(1) {
        for (n, words) in
            [format!("save --runfile app {file}"), format!("convert {file} out")].iter().enumerate()
        {
            let at = place.text(&format!("home/{caller:?}{n}"));
            std::fs::create_dir(&at).unwrap();
            nobody_renames(&place, &at);
            let script = format!(
                "export TMPDIR={at} && cd {at} && {{ rt {words} & }} && \
                 while kill -0 $! && ! ls -A | grep -q -e convert -e partial; do :; done; kill $! && wait $!; \
                 echo $?; ls -A"
            );
            let said = place.run(caller, &["sh", "-c", &script]);
            assert_eq!(String::from_utf8_lossy(&said.stdout), "1\n", "{words}: {said:?}");
            assert!(String::from_utf8_lossy(&said.stderr).contains("interrupted"), "{words}: {said:?}");
        }
    }
}

/// A conversion that was killed leaves nothing once another one has run.
#[test]
fn a_killed_conversion_leaves_nothing() {
    let place = Place::new("convert-killed");
    let Some(bundle) = bundle(&place) else { return };
    // Large enough to be met in the middle.
    std::fs::write(format!("{bundle}/rootfs/data/large"), vec![b'x'; 200 << 20]).unwrap();
    let file = image(&place, &format!("{bundle}/rootfs"), "x.sqsh");
    for caller in callers() {
        let at = place.text(&format!("home/{caller:?}"));
        std::fs::create_dir(&at).unwrap();
        nobody_renames(&place, &at);
        let script = |then: &str| format!("export TMPDIR={at} && cd {at} && {then}");
        let killed = format!(
            "rt convert --quiet {file} out & \
             while kill -0 $! && ! ls -A | grep -q -e convert -e partial; do :; done; kill -9 $!; wait; ls -A"
        );
        let said = place.run(caller, &["sh", "-c", &script(&killed)]);
        assert!(!said.stdout.is_empty() && !said.stdout.starts_with(b"out\n"), "too late: {said:?}");
        // What it had started ends by itself.
        place.no_server(caller);
        let converted = format!("rt convert --quiet {file} out >&2 && sleep 0.1 && ls -A");
        let said = place.run(caller, &["sh", "-c", &script(&converted)]);
        assert_eq!(String::from_utf8_lossy(&said.stdout), "out\n", "{caller:?}: {said:?}");
    }
}

/// What an image says is about the inside: a link of it leads nowhere else, and no file of it is waited for.
#[test]
fn an_image_reads_nothing_of_the_host() {
    let place = Place::new("inside");
    let Some(tree) = tree(&place, "tree") else { return };
    std::fs::create_dir(Path::new(&tree).join(".rt")).unwrap();
    let secret = place.text("home/secret.json");
    std::fs::write(&secret, r#"{"config": {"Cmd": ["echo", "of the host"]}}"#).unwrap();
    symlink(&secret, Path::new(&tree).join(".rt/config.json")).unwrap();
    put(&tree, "etc/rc", "echo rc\n");
    assert!(Command::new("mkfifo").arg(format!("{tree}/etc/environment")).status().unwrap().success());
    symlink(format!("../../../../../..{secret}"), Path::new(&tree).join("etc/fstab")).unwrap();
    let image = image(&place, &tree, "x.sqsh");
    for caller in callers() {
        assert_eq!(place.good(caller, &["timeout", "20", "rt", "run", &image]), "rc\n", "{caller:?}");
    }
}

/// Only the first task of a step runs the hooks of the stage precreate. What they confine holds for those that join it, too.
#[test]
fn what_hooks_confine_holds_for_who_joins() {
    let place = Place::new("confined");
    let Some(tree) = tree(&place, "tree") else { return };
    let image = image(&place, &tree, "x.sqsh");
    let open = place.join("open");
    std::fs::create_dir_all(&open).unwrap();
    std::fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    for caller in callers() {
        let above = place.text(&format!("open/{caller:?}"));
        let script = format!(
            r#"mkdir -p {above}/hooks && cd {above} && cat >hooks/a.json <<'END'
{{"version":"1.0.0","hook":{{"path":"/bin/sed","args":["sed","s/\"args\"/\"rlimits\":[{{\"type\":\"RLIMIT_NPROC\",\"soft\":777,\"hard\":777}}],\"args\"/"]}},"when":{{"always":true}},"stages":["precreate"]}}
END
export SLURM_JOB_ID=77 SLURM_STEP_ID=0 SLURMD_NODENAME=n RT_CONTAINER_IMAGE={image} RT_CONTAINER_WRITABLE=0 RT_CONTAINER_ARGV0=sh
task() {{ SLURM_LOCALID=$1 SLURM_PROCID=$1 exec rt --root {above}/state slurm task --hooks-dir {above}/hooks -- -c "grep processes /proc/self/limits; readlink /proc/self/ns/mnt; $2"; }}
(task 0 'sleep 30') >first 2>&1 & FIRST=$!
N=0; until [ $(wc -l <first) -ge 2 ] || [ $N -gt 100 ]; do N=$((N + 1)); sleep 0.1; done
(task 1 true) >second 2>&1; kill $FIRST; wait; cat first second"#
        );
        let out = place.command(caller, &["sh", "-c", &script]).output().unwrap();
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines.len(), 4, "{caller:?}: {out:?}");
        assert_eq!(lines[1], lines[3], "one container");
        for limits in [lines[0], lines[2]] {
            assert_eq!(limits.split_whitespace().filter(|word| *word == "777").count(), 2, "{said}");
        }
    }
}
