//! The host's MPI library in a container: who asks, what is seen inside, and what a refusal leaves.

use crate::devices::standin::{Library, StandIn, glibc_root};
use crate::devices::{definition, definitions, program};
use crate::fixture::{Bundle, Ctx, Out};
use crate::runner::tests;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

tests! {
    ALL { the_hosts_library_is_seen_everywhere, beside_what_is_bound, the_hosts_library_is_seen_under_any_mounts }
    BOTH { each_way_to_ask, a_task_of_slurm_asks, the_hook_is_found_without_definition, a_refusal_changes_nothing }
}

const PATH: &str = "/usr/lib/libmpi.so.40";

/// MPI's own library of Open MPI, in which `mark` stands.
fn open_mpi(mark: &'static str) -> Library {
    let functions = ["MPI_Init", "PMPI_Init"].map(|name| (name, None));
    Library {
        symbols: functions.into_iter().chain([("ompi_mpi_comm_world", Some(512))]).collect(),
        note: Some(("mark", mark)),
        ..Library::named("libmpi.so.40")
    }
}

/// A node with Open MPI.
fn node(ctx: &Ctx) -> StandIn {
    let tree = StandIn::new(ctx.path("node"));
    glibc_root(&tree);
    tree.library("/usr/lib/libmpi.so.40.30.4", &open_mpi("from-the-host"));
    tree
}

/// A bundle of an image with Open MPI, also in a place of its own; prints what is in both libraries.
fn image(ctx: &Ctx) -> Bundle {
    let bundle = ctx.bundle().with("/process/env", json!([])).with("/annotations", json!({}));
    for dir in ["run", "etc", "usr/lib", "usr/local/lib", "lib"] {
        bundle.mkdir(dir);
    }
    let put = |path: &str, library: &Library| {
        let path = bundle.file(path, "");
        std::fs::write(path, library.bytes()).unwrap();
    };
    put("lib/libc.so.6", &Library { defines: vec!["GLIBC_2.34"], ..Library::named("libc.so.6") });
    put("usr/lib/libmpi.so.40", &open_mpi("from-the-image"));
    put("usr/local/lib/libmpi.so.40", &open_mpi("from-the-image"));
    bundle.ops(&[
        &format!("cat {PATH}"),
        "cat /usr/local/lib/libmpi.so.40",
        "exists /run/rt/mpi/lib/libmpi.so.40",
    ])
}

/// hooks.d as `make install-hooks` has it, for that node.
fn hooks_dir(ctx: &Ctx, node: &StandIn) -> PathBuf {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("hooks/rt-hook-mpi.json"))
        .unwrap();
    let shipped: Value = serde_json::from_str(&text).unwrap();
    let root = node.dir.to_str().unwrap();
    let mut hook = definition(
        &program(ctx, "rt-hook-mpi"),
        &["--root", root],
        shipped["when"].clone(),
        &["createRuntime"],
    );
    assert_eq!(hook["stages"], shipped["stages"]);
    hook["hook"]["args"][0] = json!("rt-hook-mpi");
    definitions(ctx, "mpi.json", &hook)
}

/// Whose library is seen, at each of the image's places.
fn whose(out: &Out) -> &'static str {
    assert_eq!(out.code, 0, "{out:?}");
    let all = out.all();
    let of = |value: &Value, mark: &str| value.to_string().contains(mark);
    let host = all[..2].iter().filter(|value| of(value, "from-the-host")).count();
    let image = all[..2].iter().filter(|value| of(value, "from-the-image")).count();
    match (host, image, &all[2]) {
        (2, 0, Value::Bool(true)) => "host",
        (0, 2, Value::Bool(false)) => "image",
        _ => panic!("{all:?}"),
    }
}

fn the_hosts_library_is_seen_everywhere(ctx: &Ctx) {
    let node = node(ctx);
    let dir = hooks_dir(ctx, &node);
    for readonly in [false, true] {
        let bundle = image(ctx).with("/root/readonly", json!(readonly));
        bundle.write();
        let before = bundle.strict_tree();
        let out = ctx.run_with(&bundle, &["--hooks-dir", dir.to_str().unwrap(), "--mpi", "host"]);
        assert_eq!(whose(&out), "host");
        assert_eq!(bundle.strict_tree(), before, "the image was changed");
        assert_eq!(out.stderr, "");
    }
}

/// The hook makes nothing in what is bound, whatever it is, as the host's /run for a service that is asked by its socket: it has
/// another place.
fn beside_what_is_bound(ctx: &Ctx) {
    let node = node(ctx);
    let dir = hooks_dir(ctx, &node);
    let run = node.dir.join("run");
    std::fs::create_dir_all(&run).unwrap();
    std::fs::set_permissions(&run, std::fs::Permissions::from_mode(0o755)).unwrap();
    let home = ctx.mkdir("home");
    let at = |source: &Path, place: &str| format!("{}:{place}", source.display());
    let (hosts, read_only) = (at(&run, "/run"), at(&run, "/run:ro"));
    let (homes, homes_tmp, homes_mnt) = (at(&home, "/run"), at(&home, "/tmp"), at(&home, "/mnt"));
    let (homes_rt, homes_mpi) = (at(&home, "/run/rt"), at(&home, "/run/rt/mpi"));
    let dev = "/dev:/dev:rbind";
    let run_with = |tmp: Option<&str>, place: &str, flags: &[&str]| {
        let bundle = image(ctx).ops(&[
            &format!("cat {PATH}"),
            "cat /usr/local/lib/libmpi.so.40",
            &format!("exists {place}/rt/mpi/lib/libmpi.so.40"),
        ]);
        bundle.mkdir("mnt");
        match tmp {
            Some(target) => drop(bundle.link("tmp", target)),
            None => drop(bundle.mkdir("tmp")),
        }
        let out = ctx
            .run_with(&bundle, &[&["--hooks-dir", dir.to_str().unwrap(), "--mpi", "host"], flags].concat());
        std::fs::remove_dir_all(&bundle.dir).unwrap();
        for source in [&run, &home] {
            assert_eq!(
                std::fs::read_dir(source).unwrap().count(),
                0,
                "{flags:?}: something is made in a bind"
            );
        }
        out
    };
    for (tmp, place, flags) in [
        (None, "/dev", &["-v", &hosts][..]),
        (None, "/dev", &["-v", &read_only]),
        (None, "/dev", &["-v", &homes]),
        (None, "/tmp", &["-v", &homes, "-v", dev]),
        (None, "/dev", &["-v", &homes_rt]),
        (None, "/dev", &["-v", &homes_mpi]),
        (None, "/mnt", &["-v", &hosts, "-v", dev, "-v", &homes_tmp]),
        (Some("run"), "/mnt", &["-v", &hosts, "-v", dev]),
        // The root lacks a directory: the image's own are mounted one by one.
        (None, "/tmp", &["-v", &homes, "-v", dev, "-w", "/new"]),
        (None, "/run", &["-w", "/new"]),
        (None, "/run", &["--tmpfs", "/run"]),
    ] {
        let out = run_with(tmp, place, flags);
        assert!(out.code == 0, "{flags:?}: {out:?}");
        assert_eq!(whose(&out), "host", "{flags:?}");
    }
    let none = run_with(None, "/none", &["-v", &homes, "-v", dev, "-v", &homes_tmp, "-v", &homes_mnt]);
    none.failed(&["make /run/rt/mpi", "make rt/mpi in", home.to_str().unwrap(), "mount at another place"]);
}

/// The bundle's own directory is bound, as a home is, and the root lacks a directory: both copy what is mounted in the
/// container.
fn the_hosts_library_is_seen_under_any_mounts(ctx: &Ctx) {
    let node = node(ctx);
    let dir = hooks_dir(ctx, &node);
    let home = ctx.path("");
    let home = home.to_str().unwrap().trim_end_matches('/');
    let at = |place: &str| format!("{home}:{place}:rbind");
    let (at_its_path, at_a_new_one) = (at(home), at("/new"));
    for readonly in [false, true] {
        let bundle = image(ctx).with("/root/readonly", json!(readonly));
        let bundle = bundle.mount("/tmp", "tmpfs", "tmpfs", &["nosuid", "nodev", "mode=1777"]);
        let bundle = bundle.mount("/run", "tmpfs", "tmpfs", &["nosuid", "nodev", "mode=1777"]);
        bundle.write();
        let before = bundle.tree();
        for flags in [
            &["-v", &at_its_path][..],
            &["-v", &at_a_new_one],
            &["-w", "/new/directory"],
            &["--tmpfs", "/new"],
            &["-v", &at_its_path, "-w", home, "--tmpfs", "/new"],
            &["--writable", "-v", &at_its_path],
            &["--home"],
        ] {
            let flags = [&["--hooks-dir", dir.to_str().unwrap(), "--mpi", "host"], flags].concat();
            let out = ctx.rt(["run"]).args(&flags).arg(&bundle.dir).env("HOME", home).run();
            assert_eq!(whose(&out), "host", "{flags:?}");
            assert_eq!(bundle.tree(), before, "{flags:?}: the image was changed");
        }
    }
}

fn each_way_to_ask(ctx: &Ctx) {
    let node = node(ctx);
    let dir = hooks_dir(ctx, &node);
    let dir = dir.to_str().unwrap();
    let env = |value: &str| image(ctx).with("/process/env", json!([format!("RT_MPI={value}")]));
    let annotated = |value: &str| image(ctx).with("/annotations", json!({ "rt.mpi": value }));
    for (bundle, flags, expected) in [
        (image(ctx), &[][..], "image"),
        (image(ctx), &["--mpi", "host"], "host"),
        (image(ctx), &["--mpi=host"], "host"),
        (image(ctx), &["-e", "RT_MPI=host"], "host"),
        (env("host"), &[], "host"),
        (annotated("host"), &[], "host"),
        (annotated("other"), &[], "image"),
        (annotated("host"), &["--mpi", "image"], "image"),
        (env("host"), &["--mpi", "image"], "image"),
        (env("image"), &["--mpi", "host"], "host"),
    ] {
        let out = ctx.run_with(&bundle, &[&["--hooks-dir", dir], flags].concat());
        assert_eq!(whose(&out), expected, "{flags:?} {}", bundle.config);
    }
    let run = |value: &str| {
        let bundle = image(ctx);
        bundle.write();
        ctx.rt(["run", "--hooks-dir", dir, "--bundle"])
            .arg(&bundle.dir)
            .arg(ctx.id())
            .env("RT_MPI", value)
            .run()
    };
    assert_eq!((whose(&run("host")), whose(&run("image"))), ("host", "image"));
    run("hots").failed(&["--mpi or RT_MPI: MPI \"hots\" is neither host nor image"]);
    // Whose program is looked at: that of the command line.
    let out =
        ctx.run_with(&image(ctx), &["--hooks-dir", dir, "--mpi", "host", "-e", "RT_MPI_PROGRAMS=/none"]);
    out.failed(&["RT_MPI_PROGRAMS: the container has no file /none"]);
}

fn a_task_of_slurm_asks(ctx: &Ctx) {
    let node = node(ctx);
    let dir = hooks_dir(ctx, &node);
    let bundle = image(ctx).with("/process/env", json!(["RT_MPI=host", "SLURM_PROCID=0"]));
    bundle.write();
    let container = format!("{}.42.0", ctx.id());
    ctx.remember(&container);
    let run = ctx.rt(["slurm", "run", "--hooks-dir", dir.to_str().unwrap(), "--bundle"]);
    assert_eq!(whose(&run.arg(&bundle.dir).arg(format!("{container}.0")).run()), "host");
}

fn the_hook_is_found_without_definition(ctx: &Ctx) {
    // Beside rt, or by PATH. What it says shows that it has run: the image has no MPI.
    let hook = program(ctx, "rt-hook-mpi");
    let bundle = ctx.bundle().ops(&["exit 0"]);
    bundle.write();
    let run = ctx.rt(["run", "--mpi", "host", "--bundle"]).arg(&bundle.dir).arg(ctx.id());
    run.env("PATH", hook.parent().unwrap()).fails(&["rt-hook-mpi", "the image has no shared MPI library"]);
}

fn a_refusal_changes_nothing(ctx: &Ctx) {
    let node = node(ctx);
    let mpich = Library {
        symbols: ["MPI_Init", "PMPI_Init"].map(|name| (name, None)).to_vec(),
        ..Library::named("libmpich.so.12")
    };
    node.remove("/usr/lib/libmpi.so.40").remove("/usr/lib/libmpi.so.40.30.4");
    node.library("/usr/lib/libmpich.so.12.1", &mpich);
    let dir = hooks_dir(ctx, &node);
    let bundle = image(ctx);
    bundle.write();
    let before = bundle.strict_tree();
    let out = ctx.run_with(&bundle, &["--hooks-dir", dir.to_str().unwrap(), "--mpi", "host"]);
    out.failed(&[
        "the host's MPI cannot replace the image's: the image has Open MPI (libmpi.so.40), and the host has MPICH \
         (libmpich.so.12): another binary interface",
        "--mpi image",
    ]);
    assert_eq!((out.stdout.as_str(), bundle.strict_tree()), ("", before));
    // What is looked at is the program of the command line.
    let host = self::node(ctx);
    let newer = Library { soname: Some("libmpi.so.40"), ..open_mpi("from-the-image") };
    let newer = Library { symbols: [newer.symbols.clone(), vec![("MPI_Newest", None)]].concat(), ..newer };
    std::fs::write(bundle.rootfs().join("usr/lib/libmpi.so.40"), newer.bytes()).unwrap();
    let dir = hooks_dir(ctx, &host);
    let run = ctx.rt(["run", "--hooks-dir", dir.to_str().unwrap(), "--mpi", "host", "--bundle"]);
    let run = run.arg(&bundle.dir).arg(ctx.id()).args(["--", "/bin/other", "x"]);
    run.fails(&["lacks MPI_Newest; /bin/other does not show whether that matters"]);
}
