//! hooks.d, `--device`, and our hooks in real containers, on stand-in nodes.

#[path = "../../hooks/tests/standin.rs"]
pub mod standin;

use crate::client::Caller;
use crate::fixture::{Bundle, Ctx, errno, tree};
use crate::runner::{skip, tests};
use serde_json::{Value, json};
use standin::StandIn;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

tests! {
    NESTED { words_of_nobody }
    ALL { gpu_hook_fills_a_container, device_by_its_cdi_name }
    BOTH {
        image_stays_untouched, twice_is_once, rdma_hook_shows_the_chosen_device, hooks_directory, precreate_changes_the_config,
        hooks_directory_errors, hooks_of_somebody_else, an_image_names_no_path_of_the_host, an_image_names_no_cdi_device, slurms_variables_for_other_vendors,
        numbers_follow_the_share, numbers_of_the_callers_environment, failing_gpu_hook_names_the_gpu, node_without_gpus, hook_writes_no_bind, a_spec_beside_what_is_bound, a_root_that_is_exchanged_is_left_alone,
    }
}

/// One of our hooks, where the container's caller can run it.
pub fn program(ctx: &Ctx, name: &str) -> PathBuf {
    other_package(
        ctx,
        name,
        &["hooks", "crates/ld-so-cache", "crates/rt-cli", "crates/rt-spec", "crates/rt-sys"],
    )
}

/// A program that is made of these packages, where the container's caller can run it.
pub fn other_package(ctx: &Ctx, name: &str, packages: &[&str]) -> PathBuf {
    // Another package's: `cargo test` of the workspace builds it beside rt.
    let built = Path::new(env!("CARGO_BIN_EXE_rt")).with_file_name(name);
    assert!(built.exists(), "{} is not there: cargo build --workspace", built.display());
    // `cargo test --test it` builds only the package rt: an older program would be tested without notice.
    let modified = |path: &Path| path.metadata().and_then(|m| m.modified()).unwrap();
    if let Some(source) = sources(packages).into_iter().find(|source| modified(source) > modified(&built)) {
        panic!("{} is older than {}: cargo build --workspace", built.display(), source.display());
    }
    let path = ctx.path(name);
    if !path.exists() {
        std::fs::copy(built, &path).unwrap();
        ctx.give(&path);
    }
    path
}

/// The sources of these packages.
fn sources(packages: &[&str]) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut dirs: Vec<PathBuf> = packages.iter().map(|package| root.join(package).join("src")).collect();
    let mut files = Vec::new();
    while let Some(dir) = dirs.pop() {
        for path in std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() { dirs.push(path) } else { files.push(path) }
        }
    }
    files
}

/// A node with GPUs, whose device nodes are stand-ins.
fn node(ctx: &Ctx) -> StandIn {
    let tree = StandIn::new(ctx.path("node"));
    standin::nvidia(&tree, 2);
    tree
}

/// A bundle that asks for a GPU of the node by the hook.
fn with_gpu(ctx: &Ctx, node: &StandIn, devices: &str) -> Bundle {
    let root = node.dir.to_str().unwrap();
    let mut bundle = ctx.bundle().hook("createRuntime", &program(ctx, "rt-hook-gpu"), &[]);
    bundle.set("/hooks/createRuntime/0/args", json!(["rt-hook-gpu", "--root", root]));
    for dir in ["run", "usr/local/sbin", "etc"] {
        bundle.mkdir(dir);
    }
    bundle.with("/process/env", json!([format!("NVIDIA_VISIBLE_DEVICES={devices}")]))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value}"))
}

fn gpu_hook_fills_a_container(ctx: &Ctx) {
    let node = node(ctx);
    let bundle = with_gpu(ctx, &node, "0").ops(&[
        "links /dev",
        "links /run/rt/gpu/lib",
        "cat /proc/driver/nvidia/params",
        "links /proc/driver/nvidia/gpus",
        "cat /etc/ld.so.cache",
        "write /run/rt/gpu/lib/x y",
        "stat /usr/local/sbin/nvidia-smi",
    ]);
    let out = ctx.run(&bundle);
    assert_eq!(out.code, 0, "{out:?}");
    let all = out.all();
    // GPU 0 has minor 1.
    assert!(all[0].get("nvidia1").is_some() && all[0].get("nvidiactl").is_some(), "{}", all[0]);
    assert!(all[0].get("nvidia0").is_none(), "{}", all[0]);
    assert_eq!(all[1]["libcuda.so.1"], format!("libcuda.so.{}", standin::DRIVER), "{}", all[1]);
    assert!(all[2].to_string().contains("ModifyDeviceFiles: 0"), "{}", all[2]);
    assert!(all[3].get("0000:01:00.0").is_some() && all[3].get("0000:02:00.0").is_none(), "{}", all[3]);
    assert!(all[4].to_string().contains("/run/rt/gpu/lib/libcuda.so.1"), "{}", all[4]);
    assert!(all[6].get("errno").is_none(), "{}", all[6]);
}

fn image_stays_untouched(ctx: &Ctx) {
    for readonly in [false, true] {
        let node = node(ctx);
        let bundle = with_gpu(ctx, &node, "all").with("/root/readonly", json!(readonly));
        let bundle = bundle.ops(&["write /run/new x", "links /run"]);
        bundle.write();
        let before = bundle.strict_tree();
        let out = ctx.run(&bundle);
        assert_eq!(out.code, 0, "{out:?}");
        assert_eq!(out.all()[0].get("errno").is_some(), readonly, "{out:?}");
        assert!(out.all()[1].get("rt").is_some(), "{out:?}");
        assert_eq!(bundle.strict_tree(), before);
    }
}

fn twice_is_once(ctx: &Ctx) {
    let node = node(ctx);
    let once = with_gpu(ctx, &node, "all").ops(&["cat /proc/self/mountinfo"]);
    let out = ctx.run(&once);
    assert_eq!(out.code, 0, "{out:?}");
    let mounts = |out: &crate::fixture::Out| text(&out.all()[0]).lines().count();
    let first = mounts(&out);
    let mut twice = with_gpu(ctx, &node, "all").ops(&["cat /proc/self/mountinfo"]);
    let hook = json!({
        "path": program(ctx, "rt-hook-gpu"), "args": ["rt-hook-gpu", "--root", node.dir],
    });
    twice.set("/hooks/createRuntime", json!([hook, hook]));
    twice.set("/hooks/prestart", json!([hook]));
    let out = ctx.run(&twice);
    assert_eq!(out.code, 0, "{out:?}");
    assert_eq!(mounts(&out), first);
}

fn failing_gpu_hook_names_the_gpu(ctx: &Ctx) {
    let node = node(ctx);
    let bundle = with_gpu(ctx, &node, "7").ops(&["exit 0"]);
    ctx.rt(["run", "--bundle"])
        .arg(&bundle.dir)
        .arg(ctx.id())
        .fails(&["NVIDIA_VISIBLE_DEVICES: no GPU 7: this node has 2"]);
}

fn node_without_gpus(ctx: &Ctx) {
    let node = StandIn::new(ctx.path("node"));
    let bundle = with_gpu(ctx, &node, "all").ops(&["cat /proc/self/mountinfo"]);
    let out = ctx.run(&bundle);
    assert_eq!(out.code, 0, "{out:?}");
    assert!(!text(&out.all()[0]).contains("/run/rt"), "{out:?}");
}

fn rdma_hook_shows_the_chosen_device(ctx: &Ctx) {
    let node = StandIn::new(ctx.path("node"));
    let hca =
        |name, pci, uverbs| standin::Hca { name, pci, driver: "mlx5_core", uverbs, umad: None, cm: false };
    standin::rdma(&node, &[hca("mlx5_0", "0000:3b:00.0", 1), hca("mlx5_1", "0000:5e:00.0", 0)]);
    standin::rdma_core(&node, "34", "GLIBC_2.34", "mlx5");
    let root = node.dir.to_str().unwrap();
    let mut bundle = ctx.bundle().hook("createRuntime", &program(ctx, "rt-hook-rdma"), &[]);
    bundle.set("/hooks/createRuntime/0/args", json!(["rt-hook-rdma", "--root", root]));
    for dir in ["run", "etc", "usr/local/lib"] {
        bundle.mkdir(dir);
    }
    let libc = standin::Library { defines: vec!["GLIBC_2.34"], ..standin::Library::named("libc.so.6") };
    let libc_path = bundle.file("usr/local/lib/libc.so.6", "");
    std::fs::write(libc_path, libc.bytes()).unwrap();
    let bundle = bundle.with("/process/env", json!(["RT_RDMA_DEVICES=mlx5_0"])).ops(&[
        "links /dev/infiniband",
        "links /run/rt/rdma/lib",
        "cat /etc/libibverbs.d/mlx5.driver",
    ]);
    let out = ctx.run(&bundle);
    assert_eq!(out.code, 0, "{out:?}");
    let all = out.all();
    assert!(all[0].get("uverbs1").is_some() && all[0].get("rdma_cm").is_some(), "{}", all[0]);
    assert!(all[0].get("uverbs0").is_none(), "{}", all[0]);
    assert!(
        all[1].get("libmlx5-rdmav34.so").is_some() && all[1].get("libibverbs.so.1").is_some(),
        "{}",
        all[1]
    );
    assert_eq!(text(&all[2]).trim(), "driver /run/rt/rdma/lib/libmlx5");
}

/// A directory of definitions with one file.
pub fn definitions(ctx: &Ctx, name: &str, definition: &Value) -> PathBuf {
    let dir = ctx.path("definitions");
    if !dir.exists() {
        ctx.mkdir("definitions");
    }
    std::fs::write(dir.join(name), definition.to_string()).unwrap();
    ctx.give(&dir.join(name));
    dir
}

pub fn definition(path: &Path, args: &[&str], when: Value, stages: &[&str]) -> Value {
    let args: Vec<&str> = ["probe"].iter().chain(args).copied().collect();
    json!({ "version": "1.0.0", "hook": { "path": path, "args": args }, "when": when, "stages": stages })
}

fn hooks_directory(ctx: &Ctx) {
    let journal = ctx.file("journal", "");
    let note = format!("to {} say called", journal.display());
    for (when, called) in [
        (json!({ "always": true }), true),
        (json!({ "annotations": { "^a\\.key$": "^v" } }), true),
        (json!({ "annotations": { "^a\\.key$": "^w" } }), false),
        (json!({ "commands": ["^/probe$"] }), true),
        (json!({ "hasBindMounts": true, "commands": ["nothing"] }), false),
    ] {
        std::fs::write(&journal, "").unwrap();
        let dir = definitions(
            ctx,
            "note.json",
            &definition(&ctx.helper(), &[&note], when.clone(), &["createRuntime", "poststop"]),
        );
        let bundle = ctx.bundle().with("/annotations", json!({ "a.key": "value" })).ops(&["say program"]);
        let out = ctx.run_with(&bundle, &["--hooks-dir", dir.to_str().unwrap()]);
        assert_eq!((out.code, out.stdout.as_str()), (0, "\"program\"\n"), "{when}: {out:?}");
        let lines = std::fs::read_to_string(&journal).unwrap().lines().count();
        assert_eq!(lines, if called { 2 } else { 0 }, "{when}");
    }
}

fn precreate_changes_the_config(ctx: &Ctx) {
    let args = ["sh", "-c", "sed 's/before/after/'"];
    let mut filter = definition(Path::new("/bin/sh"), &[], json!({ "always": true }), &["precreate"]);
    filter["hook"]["args"] = json!(args);
    let dir = definitions(ctx, "filter.json", &filter);
    let bundle = ctx.bundle().with("/process/env", json!(["WHEN=before"])).ops(&["env"]);
    let out = ctx.run_with(&bundle, &["--hooks-dir", dir.to_str().unwrap()]);
    assert_eq!(out.json()["WHEN"], "after", "{out:?}");
    filter["hook"]["args"] = json!(["sh", "-c", "echo nonsense"]);
    let dir = definitions(ctx, "filter.json", &filter);
    let out = ctx.run_with(&bundle, &["--hooks-dir", dir.to_str().unwrap()]);
    assert!(out.code == 1 && out.stderr.contains("filter.json returns"), "{out:?}");
}

fn numbers_follow_the_share(ctx: &Ctx) {
    // What the command line and the first stage set, the second sees.
    let node = node(ctx);
    let mut hook = definition(
        &program(ctx, "rt-hook-gpu"),
        &["--root", node.dir.to_str().unwrap()],
        json!({ "always": true }),
        &["precreate", "createRuntime"],
    );
    hook["hook"]["args"][0] = json!("rt-hook-gpu");
    let dir = definitions(ctx, "gpu.json", &hook);
    let bundle = ctx.bundle().ops(&["env", "links /dev"]);
    for dir in ["run", "usr/local/sbin", "etc"] {
        bundle.mkdir(dir);
    }
    let flags = [
        "--hooks-dir",
        dir.to_str().unwrap(),
        "-e",
        "NVIDIA_VISIBLE_DEVICES=all",
        "-e",
        "CUDA_VISIBLE_DEVICES=1",
    ];
    let out = ctx.run_with(&bundle, &flags);
    assert_eq!(out.code, 0, "{out:?}");
    let all = out.all();
    assert_eq!(all[0]["CUDA_VISIBLE_DEVICES"], "0", "{}", all[0]);
    // GPU 1 has minor 0.
    assert!(all[1].get("nvidia0").is_some() && all[1].get("nvidia1").is_none(), "{}", all[1]);
}

fn numbers_of_the_callers_environment(ctx: &Ctx) {
    // As srun sets them, for a bundle that `rt pull` has made.
    let node = node(ctx);
    let dir = gpu_definition(ctx, &node);
    let bundle = ctx.bundle().with("/annotations", json!({ "rt.environment": "caller" }));
    for dir in ["run", "usr/local/sbin", "etc"] {
        bundle.mkdir(dir);
    }
    let bundle = bundle.push("/process/env", json!("NVIDIA_VISIBLE_DEVICES=all")).ops(&["env", "links /dev"]);
    let run = |flags: &[&str], visible: &str| {
        let run = ctx.rt(["run", "--hooks-dir"]).arg(&dir).args(flags).arg(&bundle.dir);
        run.env("CUDA_VISIBLE_DEVICES", "1").env("NVIDIA_VISIBLE_DEVICES", visible).ok().all()
    };
    for flags in [&[][..], &["--writable"]] {
        let all = run(flags, "void");
        assert_eq!(all[0]["CUDA_VISIBLE_DEVICES"], "0");
        // GPU 1 has minor 0.
        assert!(all[1].get("nvidia0").is_some() && all[1].get("nvidia1").is_none(), "{}", all[1]);
    }
    // What the command line says wins over the image.
    let all = run(&["-e", "NVIDIA_VISIBLE_DEVICES"], "void");
    assert!(all[1].get("nvidia0").is_none(), "{}", all[1]);
}

/// Who can write in a store can put something else in the place of a root while hooks run.
fn a_root_that_is_exchanged_is_left_alone(ctx: &Ctx) {
    let node = node(ctx);
    let hooks = gpu_definition(ctx, &node);
    let bundle = ctx.bundle().with("/process/env", json!(["NVIDIA_VISIBLE_DEVICES=0"])).ops(&["links /dev"]);
    for dir in ["run", "usr/local/sbin", "etc"] {
        bundle.mkdir(dir);
    }
    let stored = ctx.mkdir("store/bundles").join(format!("sha256-{}", "ab".repeat(32)));
    std::fs::rename(&bundle.dir, &stored).unwrap();
    std::fs::set_permissions(&stored, std::fs::Permissions::from_mode(0o775)).unwrap();
    let (root, aside, other) = (stored.join("rootfs"), stored.join("aside"), ctx.mkdir("other"));
    let run = |script: &str| {
        let mut first = definition(Path::new("/bin/sh"), &[], json!({ "always": true }), &["createRuntime"]);
        first["hook"]["args"] = json!(["sh", "-c", script]);
        definitions(ctx, "first.json", &first);
        ctx.rt(["run", "--hooks-dir"]).arg(&hooks).arg(&stored).run()
    };
    let out = run("true");
    assert!(out.code == 0 && out.stdout.contains("nvidia1"), "{out:?}");
    // By a config of the caller's, and a link of his.
    let by_link = ctx.path("by-link");
    std::os::unix::fs::symlink(&stored, &by_link).unwrap();
    let mut config: Value =
        serde_json::from_slice(&std::fs::read(stored.join("config.json")).unwrap()).unwrap();
    config["root"]["path"] = json!(by_link.join("rootfs"));
    let callers = ctx.file("callers.json", &config.to_string());
    let out = ctx.rt(["run", "--hooks-dir"]).arg(&hooks).arg("-f").arg(&callers).arg(&stored).ok();
    assert!(out.stdout.contains("nvidia1"), "{out:?}");
    // The bundle itself is none.
    config["root"]["path"] = json!(by_link);
    let callers = ctx.file("callers.json", &config.to_string());
    let says = [stored.to_str().unwrap(), "a bundle that others can change, and no root"];
    ctx.rt(["run", "-f"]).arg(&callers).arg(&stored).fails(&says);
    config["root"]["path"] = json!("../../../other");
    let callers = ctx.file("callers.json", &config.to_string());
    ctx.rt(["run", "-f"]).arg(&callers).arg(&stored).fails(&["leads out of a bundle that others can change"]);
    let (there, to) = (root.display(), aside.display());
    for (put, says) in
        [("mkdir", "somebody has put another directory in its place"), ("ln -s ../../../other", "rootfs")]
    {
        let out = run(&format!("mv {there} {to} && {put} {there}"));
        assert!(out.code != 0 && out.stderr.contains(says), "{put}: {out:?}");
        assert!(std::fs::read_dir(&other).unwrap().next().is_none(), "{put}");
        // A link, or a directory in which nothing was made.
        std::fs::remove_file(&root).or_else(|_| std::fs::remove_dir(&root)).unwrap();
        std::fs::rename(&aside, &root).unwrap();
    }
}

/// A node with one CDI device, whose description binds a directory of the node.
fn node_with_cdi(ctx: &Ctx) -> StandIn {
    let node = node(ctx);
    node.file("/home/alice/secret", "s");
    node.file(
        "/etc/cdi/thing.json",
        r#"{"cdiVersion":"0.6.0","kind":"vendor.com/thing","devices":[{"name":"a","containerEdits":{
            "env":["THING=a"],"mounts":[{"hostPath":"/home/alice","containerPath":"/home/alice"}]}}]}"#,
    );
    node
}

/// A bundle with these variables and annotations, as an image may have them, and the GPU hook in hooks.d; prints
/// whether a file of the node's is seen.
fn of_an_image(ctx: &Ctx, env: Value, annotations: Value) -> Bundle {
    let bundle = ctx.bundle().with("/process/env", env).with("/annotations", annotations);
    for dir in ["run", "usr/local/sbin", "etc"] {
        bundle.mkdir(dir);
    }
    bundle.ops(&["cat /home/alice/secret", "env"])
}

/// hooks.d with the GPU hook for that node, at both stages.
fn gpu_definition(ctx: &Ctx, node: &StandIn) -> PathBuf {
    let args = ["--root", node.dir.to_str().unwrap()];
    let mut hook = definition(
        &program(ctx, "rt-hook-gpu"),
        &args,
        json!({ "always": true }),
        &["precreate", "createRuntime"],
    );
    hook["hook"]["args"][0] = json!("rt-hook-gpu");
    definitions(ctx, "gpu.json", &hook)
}

fn an_image_names_no_path_of_the_host(ctx: &Ctx) {
    let node = node_with_cdi(ctx);
    let dir = gpu_definition(ctx, &node);
    let dir = dir.to_str().unwrap();
    let mps = "CUDA_MPS_PIPE_DIRECTORY=/home/alice";
    let told = format!("[\"{mps}\"]");
    for (env, annotations) in [
        (json!(["NVIDIA_VISIBLE_DEVICES=0", mps]), json!({})),
        (json!(["NVIDIA_VISIBLE_DEVICES=0"]), json!({ "rt.env": told })),
    ] {
        let bundle = of_an_image(ctx, env, annotations);
        let out = ctx.run_with(&bundle, &["--hooks-dir", dir]);
        assert_eq!(out.code, 0, "{out:?}");
        assert_ne!(out.all()[0], "s", "an image has chosen a directory of the host: {out:?}");
        // The caller may, by a flag and by the environment.
        let out = ctx.run_with(&bundle, &["--hooks-dir", dir, "-e", mps]);
        assert_eq!((out.code, &out.all()[0]), (0, &json!("s")), "{out:?}");
        let run = ctx.rt(["run", "--hooks-dir", dir, "--bundle"]).arg(&bundle.dir).arg(ctx.id());
        let out = run.env("CUDA_MPS_PIPE_DIRECTORY", "/home/alice").run();
        assert_eq!((out.code, &out.all()[0]), (0, &json!("s")), "{out:?}");
    }
}

fn an_image_names_no_cdi_device(ctx: &Ctx) {
    let node = node_with_cdi(ctx);
    let dir = gpu_definition(ctx, &node);
    let dir = dir.to_str().unwrap();
    let name = "NVIDIA_VISIBLE_DEVICES=vendor.com/thing=a";
    let told = format!("[\"{name}\"]");
    for (env, annotations) in [
        (json!([name]), json!({})),
        (json!([]), json!({ "cdi.k8s.io/x": "vendor.com/thing=a" })),
        (json!([]), json!({ "rt.env": told })),
    ] {
        let bundle = of_an_image(ctx, env, annotations);
        let out = ctx.run_with(&bundle, &["--hooks-dir", dir]);
        assert_eq!(out.code, 0, "{out:?}");
        assert_ne!(out.all()[0], "s", "an image has chosen a CDI device: {out:?}");
        assert!(out.all()[1].get("THING").is_none(), "{out:?}");
        for flags in [["--device", "vendor.com/thing=a"], ["-e", name]] {
            let out = ctx.run_with(&bundle, &[&["--hooks-dir", dir], &flags[..]].concat());
            assert_eq!((out.code, &out.all()[0]), (0, &json!("s")), "{flags:?}: {out:?}");
            assert_eq!(out.all()[1]["THING"], "a", "{flags:?}: {out:?}");
        }
    }
}

fn slurms_variables_for_other_vendors(ctx: &Ctx) {
    // Slurm sets all of them beside each other, where it has not been told what the GPUs are.
    let node = node(ctx);
    standin::intel(&node, 1);
    let dir = gpu_definition(ctx, &node);
    let bundle = ctx.bundle().ops(&["links /dev"]);
    for dir in ["run", "usr/local/sbin", "etc"] {
        bundle.mkdir(dir);
    }
    let names = ["CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"];
    let given: Vec<String> = names.iter().map(|name| format!("{name}=1")).collect();
    for count in 1..=names.len() {
        let mut flags = vec!["--hooks-dir", dir.to_str().unwrap()];
        given[..count].iter().for_each(|variable| flags.extend(["-e", variable]));
        let out = ctx.run_with(&bundle, &flags);
        assert_eq!(out.code, 0, "{flags:?}: {out:?}");
        assert!(out.all()[0].get("nvidia0").is_some(), "{out:?}");
    }
    let out = ctx.run_with(&bundle, &["--hooks-dir", dir.to_str().unwrap(), "-e", "ROCR_VISIBLE_DEVICES=0"]);
    assert_eq!(out.code, 0, "a node without AMD GPUs: {out:?}");
}

fn hooks_of_somebody_else(ctx: &Ctx) {
    let bundle = ctx.bundle().ops(&["exit 0"]);
    let journal = ctx.file("journal", "");
    let note = definition(
        &ctx.helper(),
        &[&format!("to {} say called", journal.display())],
        json!({ "always": true }),
        &["createRuntime"],
    );
    let home = ctx.mkdir("home");
    let dir = ctx.mkdir("home/.config/rt/hooks.d");
    ctx.give(&home);
    let file = dir.join("note.json");
    std::fs::write(&file, note.to_string()).unwrap();
    ctx.give(&file);
    let run =
        |home: &Path| ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(ctx.id()).env("HOME", home).run();
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    let called = || {
        let lines = std::fs::read_to_string(&journal).unwrap().lines().count();
        std::fs::write(&journal, "").unwrap();
        lines
    };
    assert_eq!((run(&home).code, called()), (0, 1));
    // What others could have written is an error.
    for path in [&dir, &file] {
        mode(path, 0o777);
        let out = run(&home);
        assert!(out.code == 1 && out.stderr.contains("chmod go-w"), "{out:?}");
        assert_eq!(called(), 0);
        mode(path, 0o755);
    }
    assert_eq!((run(&home).code, called()), (0, 1));
    if ctx.caller != crate::client::Caller::Root {
        return;
    }
    // What others have written says nothing where it is found by HOME, and is an error where it is named.
    let stranger = Some(12345);
    std::os::unix::fs::chown(&file, stranger, stranger).unwrap();
    let out = run(&home);
    assert!(out.code == 1 && out.stderr.contains("belongs to uid 12345"), "{out:?}");
    std::os::unix::fs::chown(&dir, stranger, stranger).unwrap();
    assert_eq!((run(&home).code, called()), (0, 0), "hooks of somebody else's have run as root");
    let out = ctx.run_with(&bundle, &["--hooks-dir", dir.to_str().unwrap()]);
    assert!(out.code == 1 && out.stderr.contains("belongs to uid 12345"), "{out:?}");
    for path in [&dir, &file] {
        std::os::unix::fs::chown(path, Some(0), Some(0)).unwrap();
    }
    std::os::unix::fs::chown(&home, stranger, stranger).unwrap();
    assert_eq!((run(&home).code, called()), (0, 0), "a home of somebody else's has chosen root's hooks");
    std::os::unix::fs::chown(&home, Some(0), Some(0)).unwrap();
}

/// In a user namespace all whose ids are not mapped look alike: nobody's there is taken for root's on the word of HOME.
fn words_of_nobody(ctx: &Ctx) {
    if !Caller::tests_are_root() {
        skip!("only root gives files to others");
    }
    let bundle = ctx.bundle().ops(&["env"]);
    let journal = ctx.file("journal", "");
    let home = ctx.mkdir("home");
    let (dir, config) = (ctx.mkdir("home/.config/rt/hooks.d"), home.join(".config/rt/config.toml"));
    let call = [format!("to {} say called", journal.display())];
    let note = definition(&ctx.helper(), &[&call[0]], json!({ "always": true }), &["createRuntime"]);
    std::fs::write(dir.join("note.json"), note.to_string()).unwrap();
    let run = || ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(ctx.id()).env("HOME", &home).run();
    let called = || !std::fs::read_to_string(&journal).unwrap().is_empty();
    let give = |path: &Path| std::os::unix::fs::chown(path, Some(12345), Some(12345)).unwrap();
    give(&dir);
    give(&dir.join("note.json"));
    assert_eq!((run().code, called()), (0, false), "the hooks of another user have run");
    std::fs::remove_dir_all(&dir).unwrap();
    std::fs::write(&config, "[run]\nenv = [\"OF=another\"]\n").unwrap();
    give(&config);
    let direct = ctx.rt(["run"]).arg(&bundle.dir).env("HOME", &home).run();
    assert!(!direct.stdout.contains("another"), "the configuration of another user counts: {direct:?}");
}

fn hooks_directory_errors(ctx: &Ctx) {
    let bundle = ctx.bundle().ops(&["exit 0"]);
    let mut wrong = definition(Path::new("/bin/sh"), &[], json!({ "always": true }), &["sometime"]);
    let dir = definitions(ctx, "wrong.json", &wrong);
    let flag = dir.to_str().unwrap();
    let out = ctx.run_with(&bundle, &["--hooks-dir", flag]);
    assert!(out.code == 1 && out.stderr.contains("wrong.json: unknown stage \"sometime\""), "{out:?}");
    wrong["stages"] = json!(["poststop"]);
    wrong["when"] = json!({});
    definitions(ctx, "wrong.json", &wrong);
    assert_eq!(ctx.run_with(&bundle, &["--hooks-dir", flag]).code, 0);
    assert_eq!(ctx.run_with(&bundle, &["--hooks-dir", "/no/such/directory"]).code, 0);
    // A home that is somebody else's says nothing.
    let home = ctx.mkdir("home");
    std::fs::set_permissions(&home, std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
    ctx.rt(["run", "--bundle"]).arg(&bundle.dir).arg(ctx.id()).env("HOME", &home).ok();
    std::fs::set_permissions(&home, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
}

fn hook_writes_no_bind(ctx: &Ctx) {
    // What is bound is the caller's: a cover would take what the program writes there, and the hook leaves no file.
    let node = node(ctx);
    let volume = ctx.mkdir("volume");
    ctx.file("volume/file", "content");
    let before = tree(&volume, true);
    let bundle = |option: &str| {
        let bundle = with_gpu(ctx, &node, "0")
            .ops(&["exists /usr/local/sbin/nvidia-smi", "write /usr/local/sbin/x y"]);
        bundle.mount("/usr/local/sbin", "bind", volume.to_str().unwrap(), &["rbind", option])
    };
    ctx.run(&bundle("rw")).failed(&["make nvidia-smi in", volume.to_str().unwrap(), "beforehand"]);
    assert_eq!(tree(&volume, true), before);
    let all = ctx.run(&bundle("ro")).all();
    assert_eq!(all, [json!(true), errno(libc::EROFS)]);
    assert_eq!(tree(&volume, true), before);
    // At the place of the hook's own directory it takes another one.
    let bundle = with_gpu(ctx, &node, "0").mount("/run", "bind", volume.to_str().unwrap(), &["rbind"]);
    let all = ctx.run(&bundle.ops(&["links /dev/rt/gpu/lib", "ls /run"])).all();
    assert!(all[0].get("libcuda.so.1").is_some() && all[1] == json!(["file"]), "{all:?}");
    assert_eq!(tree(&volume, true), before);
}

/// The hook of a CDI spec has a file to make, too, and none in what is bound: an engine mounts the spec's libraries in what is bound
/// at /run.
fn a_spec_beside_what_is_bound(ctx: &Ctx) {
    let library = standin::Library::named("libspec.so.1").bytes();
    std::fs::write(ctx.file("libspec.so.1", ""), library).unwrap();
    let volume = ctx.mkdir("volume");
    ctx.mkdir("volume/rt/gpu/lib");
    std::fs::write(ctx.file("volume/rt/gpu/lib/libspec.so.1", ""), "").unwrap();
    let before = tree(&volume, true);
    let bundle = ctx.bundle().hook("createContainer", &program(ctx, "rt-hook-gpu"), &["ldcache"]);
    bundle.mkdir("run");
    bundle.mkdir("etc");
    bundle.file("etc/ld.so.cache", "");
    let (spec, library) = ("/run/rt/gpu/lib/libspec.so.1", ctx.path("libspec.so.1"));
    let bundle = bundle.mount("/run", "bind", volume.to_str().unwrap(), &["rbind"]);
    let bundle = bundle.mount(spec, "bind", library.to_str().unwrap(), &["bind", "ro"]);
    let out = ctx.run(&bundle.ops(&["cat /etc/ld.so.cache"]));
    assert!(out.code == 0 && text(&out.all()[0]).contains(spec), "{out:?}");
    assert_eq!(tree(&volume, true), before);
}

fn device_by_its_cdi_name(ctx: &Ctx) {
    // The hook is looked for beside rt, and then by PATH.
    let hook = program(ctx, "rt-hook-gpu");
    let bundle = ctx.bundle().ops(&["env"]);
    bundle.mkdir("run");
    let out = ctx
        .rt(["run", "--device", "vendor.com/thing=nobody", "--bundle"])
        .arg(&bundle.dir)
        .arg(ctx.id())
        .env("PATH", hook.parent().unwrap())
        .run();
    let expected = "unresolvable CDI device vendor.com/thing=nobody";
    assert!(out.code == 1 && out.stderr.contains(expected), "{out:?}");
    // A caller who may write the binary runs a copy of it in memory, which is beside nothing.
    let rt = hook.with_file_name("rt");
    std::fs::copy(ctx.rt_path(), &rt).unwrap();
    ctx.give(&rt);
    let out = ctx
        .command(&rt)
        .args([
            "--root",
            ctx.state.to_str().unwrap(),
            "run",
            "--device",
            "vendor.com/thing=nobody",
            "--bundle",
        ])
        .arg(&bundle.dir)
        .arg(ctx.id())
        .run();
    assert!(out.code == 1 && out.stderr.contains(expected), "{out:?}");
}
