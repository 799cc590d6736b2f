//! Containers of images that are files.

use crate::sif::sif;
use crate::{Caller, Place, callers, have};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

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
    for applet in ["sh", "cat", "id", "ls", "sleep", "env", "touch", "stat", "grep", "echo", "pwd", "ps"] {
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

#[test]
fn a_config_names_an_image() {
    let place = Place::new("config");
    let Some(tree) = tree(&place, "tree") else { return };
    let file = image(&place, &tree, "x.sqsh");
    for caller in callers() {
        let bundle = place.text(&format!("home/bundle-{caller:?}"));
        std::fs::create_dir(&bundle).unwrap();
        crate::open_to_all(Path::new(&bundle));
        let spec = format!(
            "rt spec -b {bundle} </dev/null && sed -i 's|\"path\": *\"rootfs\"|\"path\": \"../../x.sqsh\"|' {bundle}/config.json"
        );
        place.good(caller, &["sh", "-c", &spec]);
        let relative = format!("bundle-{caller:?}");
        for named in [&bundle, &format!("./{relative}"), &relative] {
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
            let said = place.good(
                caller,
                &["rt", "run", "--as-root", &image, "--", "sh", "-c", "id -u; touch /new && ls /new"],
            );
            assert_eq!(said, "0\n/new\n");
        }
    }
    assert!(std::fs::read(&image).unwrap() == before, "the image has changed");
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
