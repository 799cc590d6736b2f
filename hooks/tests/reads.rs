//! Discovery reads no file twice, as strace sees it.

use crate::standin::{self, Hca, Library, StandIn};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

const STRACE: &str = "/usr/bin/strace";

/// How often `hook` opened each file and then read from it, for a bundle with these variables.
fn reads(hook: &str, host: &StandIn, root: &StandIn, variables: &[&str]) -> BTreeMap<String, u32> {
    let bundle = StandIn::new(root.dir.with_extension("bundle"));
    let config = serde_json::json!({
        "ociVersion": "1.0.2", "root": { "path": root.dir },
        "process": { "cwd": "/", "user": { "uid": 0, "gid": 0 }, "args": ["a"], "env": variables },
    });
    bundle.file("config.json", config.to_string());
    let trace = bundle.at("trace");
    let calls = "trace=open,openat,openat2,read,pread64,readv,preadv,mmap";
    let out = Command::new(STRACE)
        .args(["-f", "-y", "-qq", "-s", "0", "-e", calls, "-o"])
        .arg(&trace)
        .args([hook, "--dry-run", "--bundle"])
        .arg(&bundle.dir)
        .arg("--root")
        .arg(&host.dir)
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let edits: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert!(!edits["libraries"].as_array().unwrap().is_empty(), "{edits}");
    counted(&std::fs::read_to_string(&trace).unwrap())
}

/// Of a trace with `-y`, how often each file was opened and then read from.
fn counted(trace: &str) -> BTreeMap<String, u32> {
    let mut fresh = BTreeMap::new();
    let mut counts = BTreeMap::new();
    let file = |text: &str| Some(text.split_once('<')?.1.split_once('>')?.0.to_owned());
    for line in trace.lines() {
        let call = line.split_once(' ').map_or(line, |(_, call)| call.trim_start());
        if call.starts_with("open") {
            if let Some(path) = call.rsplit_once(" = ").and_then(|(_, result)| file(result)) {
                fresh.insert(path, true);
            }
        } else if ["read", "pread", "mmap"].iter().any(|name| call.starts_with(name))
            && let Some(path) = file(call.split_once(" = ").map_or(call, |(call, _)| call))
            && let Some(fresh) = fresh.get_mut(&path)
            && std::mem::take(fresh)
        {
            *counts.entry(path).or_default() += 1;
        }
    }
    counts
}

fn traced() -> bool {
    let works = Path::new(STRACE).exists()
        && Command::new(STRACE).args(["-o", "/dev/null", "true"]).status().is_ok_and(|s| s.success());
    if !works {
        println!("SKIP reads: no strace, or no leave to trace");
    }
    works
}

#[track_caller]
fn once(counts: &BTreeMap<String, u32>, some: &[&str]) {
    for wanted in some {
        assert!(counts.keys().any(|path| path.ends_with(wanted)), "{wanted} is not among {counts:#?}");
    }
    let twice: Vec<_> = counts.iter().filter(|(_, n)| **n > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
}

fn trees(name: &str) -> (StandIn, StandIn) {
    let dir =
        |kind: &str| std::env::temp_dir().join(format!("rt-reads-{name}-{kind}-{}", std::process::id()));
    let (host, root) = (StandIn::new(dir("host")), StandIn::new(dir("root")));
    standin::glibc_root(&host);
    standin::glibc_root(&root);
    (host, root)
}

#[test]
fn the_gpu_hook_reads_no_file_twice() {
    if !traced() {
        return;
    }
    let (host, root) = trees("gpu");
    standin::nvidia(&host, 2);
    standin::mig(&host);
    standin::amd(&host, 1);
    standin::intel(&host, 1);
    let compat = Library { note: Some(("NVIDIA Corporation", "{}")), ..Library::named("libcuda.so.1") };
    root.library("/usr/local/cuda/compat/libcuda.so.550.54.14", &compat);
    host.file(
        "/etc/cdi/v.json",
        r#"{"cdiVersion":"0.5.0","kind":"v.com/c","devices":[{"name":"0","containerEdits":{"deviceNodes":[{"path":"/dev/kfd"}]}}]}"#,
    );
    let variables = [
        "NVIDIA_VISIBLE_DEVICES=all",
        "NVIDIA_DRIVER_CAPABILITIES=all",
        "AMD_VISIBLE_DEVICES=all",
        "RT_INTEL_DEVICES=all",
    ];
    let counts = reads(env!("CARGO_BIN_EXE_rt-hook-gpu"), &host, &root, &variables);
    let some = [
        "/config.json",
        "/nvidia/version",
        "/nvidia/params",
        "/information",
        "/mig-minors",
        "/libcuda.so.550.54.14",
    ];
    once(&counts, &some);
}

#[test]
fn the_rdma_hook_reads_no_file_twice() {
    if !traced() {
        return;
    }
    let (host, root) = trees("rdma");
    let hca =
        |name, pci, uverbs| Hca { name, pci, driver: "mlx5_core", uverbs, umad: Some(uverbs), cm: true };
    standin::rdma(&host, &[hca("mlx5_0", "0000:3b:00.0", 0), hca("mlx5_1", "0000:5e:00.0", 1)]);
    standin::cxi(&host, 1);
    standin::rdma_core(&host, "34", "GLIBC_2.28", "mlx5");
    standin::libfabric(&host, &["FABRIC_1.0"], &["libcxi.so.1"], "GLIBC_2.34");
    let variables = ["RT_RDMA_DEVICES=mlx5_1,cxi0"];
    let counts = reads(env!("CARGO_BIN_EXE_rt-hook-rdma"), &host, &root, &variables);
    once(
        &counts,
        &["/config.json", "/ibdev", "/libc.so.6", "/libibverbs.so.1.14.34", "/libfabric.so.1.17.0"],
    );
    // With caches on both sides, the libraries that count are read, and each once.
    for tree in [&host, &root] {
        tree.file("/etc/ld.so.cache", ld_so_cache::Cache::default().to_bytes());
    }
    let counts = reads(env!("CARGO_BIN_EXE_rt-hook-rdma"), &host, &root, &variables);
    once(
        &counts,
        &["host-PID/etc/ld.so.cache".replace("PID", &std::process::id().to_string()).as_str(), "/libc.so.6"],
    );
}

#[test]
fn the_count_is_right() {
    let trace = "7 openat2(3</a>, \"b\", {flags=O_RDONLY}, 24) = 4</a/b>\n7 read(4</a/b>, \"\"..., 9) = 9\n\
                 7 pread64(4</a/b>, \"\"..., 9, 0) = 9\n7 openat(AT_FDCWD</x>, \"/c\", O_RDONLY) = 5</c>\n\
                 7 openat2(3</a>, \"b\", {flags=O_RDONLY}, 24) = 4</a/b>\n7 read(4</a/b>, \"\", 9) = 0\n";
    assert_eq!(counted(trace), BTreeMap::from([("/a/b".to_owned(), 2)]));
}
