//! rt-hook-rdma: variables, asymmetric nodes, and libraries that fit or do not.

use crate::gpu::bundle;
use crate::standin::{self, Hca, Library, StandIn};
use rt_hooks::kit::edits::Edits;
use rt_hooks::kit::tree::Tree;
use rt_sys::caller::Privilege;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

struct Node {
    host: StandIn,
    root: StandIn,
}

/// A VF without umad first by PCI address, a BlueField whose numbers do not agree, one of an older kind, and EFA.
const DEVICES: [Hca; 4] = [
    Hca { name: "mlx5_2", pci: "0000:3b:00.1", driver: "mlx5_core", uverbs: 0, umad: None, cm: false },
    Hca { name: "mlx5_bond_0", pci: "0000:3b:00.0", driver: "mlx5_core", uverbs: 3, umad: Some(0), cm: true },
    Hca { name: "mlx4_0", pci: "0000:5e:00.0", driver: "mlx4_core", uverbs: 1, umad: Some(2), cm: false },
    Hca { name: "efa_0", pci: "0000:86:00.0", driver: "efa", uverbs: 2, umad: None, cm: false },
];

fn node(devices: &[Hca]) -> Node {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let n = COUNT.fetch_add(1, Ordering::Relaxed);
    let dir = |kind: &str| std::env::temp_dir().join(format!("rt-rdma-{kind}-{}-{n}", std::process::id()));
    let node = Node { host: StandIn::new(dir("host")), root: StandIn::new(dir("root")) };
    standin::glibc_root(&node.root);
    standin::glibc_root(&node.host);
    if !devices.is_empty() {
        standin::rdma(&node.host, devices);
    }
    node
}

impl Node {
    fn of(&self, variables: &str, caller: Privilege) -> Result<Edits, String> {
        let (host, root) = (Tree::open(&self.host.dir).unwrap(), Tree::open(&self.root.dir).unwrap());
        let edits = rt_hooks::rdma::edits_for(&bundle(variables), &host, &root, caller);
        Tree::within_bounds([&host, &root], edits).map_err(|e| e.to_string())
    }

    #[track_caller]
    fn ok(&self, variables: &str) -> Edits {
        self.of(variables, Privilege::Unprivileged).unwrap_or_else(|e| panic!("{variables}: {e}"))
    }

    #[track_caller]
    fn devices(&self, variables: &str) -> String {
        shown(&self.ok(variables))
    }

    #[track_caller]
    fn fails(&self, variables: &str, expected: &str) {
        let error = self.of(variables, Privilege::Unprivileged).expect_err(variables);
        assert!(error.contains(expected), "{variables}: {error}");
    }
}

fn shown(edits: &Edits) -> String {
    let mut names: Vec<String> = edits
        .devices
        .iter()
        .map(|d| d.path.strip_prefix("/dev").unwrap().display().to_string().replace("infiniband/", ""))
        .collect();
    names.sort_unstable();
    names.join(" ")
}

#[test]
fn devices_are_named_and_never_counted() {
    let node = node(&DEVICES);
    for (variables, expected) in [
        ("", ""),
        ("MELLANOX_VISIBLE_DEVICES=void", ""),
        ("MELLANOX_VISIBLE_DEVICES=none RT_RDMA_DEVICES=", ""),
        ("MELLANOX_VISIBLE_DEVICES=all", "rdma_cm uverbs0 uverbs1 uverbs3"),
        // the n-th Mellanox device by PCI address
        ("MELLANOX_VISIBLE_DEVICES=0", "rdma_cm uverbs3"),
        ("MELLANOX_VISIBLE_DEVICES=1", "rdma_cm uverbs0"),
        ("MELLANOX_VISIBLE_DEVICES=0,2", "rdma_cm uverbs1 uverbs3"),
        ("MELLANOX_VISIBLE_DEVICES=mlx5_2", "rdma_cm uverbs0"),
        ("RT_RDMA_DEVICES=all", "rdma_cm uverbs0 uverbs1 uverbs2 uverbs3"),
        ("RT_RDMA_DEVICES=efa_0", "rdma_cm uverbs2"),
        ("RT_RDMA_DEVICES=0000:5e:00.0", "rdma_cm uverbs1"),
        ("RT_RDMA_DEVICES=3b:00.1", "rdma_cm uverbs0"),
        ("RT_RDMA_DEVICES=0c42:a103:0000:0003", "rdma_cm uverbs3"),
        ("RT_RDMA_DEVICES=0x0c42a10300000003", "rdma_cm uverbs3"),
        ("RT_RDMA_DEVICES=/dev/infiniband/uverbs1", "rdma_cm uverbs1"),
        ("RT_RDMA_DEVICES=uverbs1,mlx4_0", "rdma_cm uverbs1"),
        ("MELLANOX_VISIBLE_DEVICES=0 RT_RDMA_DEVICES=efa_0", "rdma_cm uverbs2 uverbs3"),
    ] {
        assert_eq!(node.devices(variables), expected, "{variables}");
    }
    node.fails(
        "RT_RDMA_DEVICES=0",
        "no RDMA device \"0\" on this node (it has mlx5_bond_0, mlx5_2, mlx4_0, efa_0)",
    );
    node.fails("MELLANOX_VISIBLE_DEVICES=efa_0", "no RDMA device \"efa_0\"");
    node.fails("MELLANOX_VISIBLE_DEVICES=3", "no RDMA device \"3\"");
    // Management is for the node's root, and only of devices that have it.
    let root = shown(&node.of("RT_RDMA_DEVICES=mlx5_2,mlx4_0", Privilege::Root).unwrap());
    assert_eq!(root, "issm2 rdma_cm umad2 uverbs0 uverbs1");
}

#[test]
fn other_devices_are_hidden() {
    let node = node(&DEVICES);
    let edits = node.ok("RT_RDMA_DEVICES=mlx5_bond_0");
    let masks: Vec<&str> = edits.masks.iter().map(|m| m.to_str().unwrap()).collect();
    assert_eq!(
        masks,
        [
            "/sys/class/infiniband",
            "/sys/class/infiniband_verbs",
            "/sys/class/infiniband_mad",
            "/sys/class/infiniband_cm"
        ]
    );
    let mut links: Vec<&str> = edits.links.iter().map(|l| l.path.to_str().unwrap()).collect();
    links.sort_unstable();
    assert_eq!(
        links,
        [
            "/sys/class/infiniband/mlx5_bond_0",
            "/sys/class/infiniband_cm/ucm3",
            "/sys/class/infiniband_mad/issm0",
            "/sys/class/infiniband_mad/umad0",
            "/sys/class/infiniband_verbs/uverbs3",
        ]
    );
    let target = edits.links.iter().find(|l| l.path.ends_with("uverbs3")).unwrap();
    assert_eq!(target.target, Path::new("../../devices/pci0000:3a/0000:3b:00.0/infiniband_verbs/uverbs3"));
    assert!(
        edits.files.iter().any(|f| f.path.ends_with("infiniband_verbs/abi_version") && f.contents == b"6\n")
    );
    // Nothing to hide.
    assert!(node.ok("RT_RDMA_DEVICES=all").masks.is_empty());
    // A node without infiniband_cm.
    node.host.remove("/sys/class/infiniband_cm");
    assert_eq!(node.ok("RT_RDMA_DEVICES=mlx5_2").masks.len(), 3);
}

#[test]
fn nodes_without_and_devices_without() {
    let node = node(&[]);
    let edits = node.ok("RT_RDMA_DEVICES=all");
    assert!(edits.is_empty() && edits.warnings.is_empty(), "a node without starts unchanged: {edits:?}");
    standin::rdma(&node.host, &DEVICES[..1]);
    node.host.remove("/dev/infiniband/uverbs0");
    node.fails("RT_RDMA_DEVICES=all", "mlx5_2 has no node in /dev (load ib_uverbs");
}

#[test]
fn all_kinds_of_fabric() {
    let node = node(&[Hca {
        name: "hfi1_0",
        pci: "0000:18:00.0",
        driver: "hfi1",
        uverbs: 0,
        umad: None,
        cm: false,
    }]);
    node.host.file("/dev/hfi1_0", "");
    standin::cxi(&node.host, 2);
    assert_eq!(node.devices("RT_RDMA_DEVICES=cxi1"), "cxi1 ss0 xpmem");
    assert_eq!(node.devices("RT_RDMA_DEVICES=hfi1_0"), "hfi1_0 rdma_cm uverbs0 xpmem");
    assert_eq!(node.devices("RT_RDMA_DEVICES=cxi0,cxi1"), "cxi0 cxi1 ss0 xpmem");
    assert_eq!(node.devices("MELLANOX_VISIBLE_DEVICES=all"), "xpmem");
    node.host.file("/dev/knem", "").file("/dev/gdrdrv", "");
    assert_eq!(node.devices("RT_RDMA_DEVICES=cxi1"), "cxi1 gdrdrv knem ss0 xpmem");
}

#[test]
fn efa_needs_both_libraries() {
    let node = node(&DEVICES[3..]);
    let ask = "RT_RDMA_DEVICES=efa_0";
    assert_eq!(node.devices(ask), "rdma_cm uverbs2");
    standin::rdma_core(&node.host, "34", "GLIBC_2.28", "efa");
    let edits = node.ok(ask);
    assert!(edits.warnings[0].contains("a libfabric with efa"), "{:?}", edits.warnings);
    assert_eq!(libraries(&edits).1, "tcp");
    standin::libfabric(&node.host, &["FABRIC_1.0"], &["libefa.so.1"], "GLIBC_2.28");
    let edits = node.ok(ask);
    let (names, fabric) = libraries(&edits);
    assert!(
        ["libefa-rdmav34.so", "libibverbs.so.1", "libfabric.so.1", "libefa.so.1"]
            .iter()
            .all(|n| names.contains(n))
    );
    assert_eq!((fabric.as_str(), edits.warnings.len()), ("efa", 0), "{:?}", edits.warnings);
}

/// NCCL goes over EFA by a plug-in alone, which it loads by its name, and else takes tcp without a word.
#[test]
fn nccls_transport_is_told_before_the_start() {
    let said = |node: &Node, variables: &str| {
        let edits = node.ok(variables);
        let found = edits.notes.iter().find_map(|note| note.strip_prefix("NCCL: ").map(str::to_owned));
        (found.unwrap_or_default(), edits.warnings.len())
    };
    let efa = node(&DEVICES[3..]);
    standin::rdma_core(&efa.host, "34", "GLIBC_2.28", "efa");
    standin::libfabric(&efa.host, &["FABRIC_1.0"], &["libefa.so.1"], "GLIBC_2.28");
    let ask = "RT_RDMA_DEVICES=efa_0";
    let strict = |more: &str| format!("{ask} {more}|RT_RDMA_STRICT=1");
    let none = "tcp: the container has no libnccl-net.so, such as aws-ofi-nccl's";
    assert_eq!(said(&efa, ask), (none.into(), 0));
    // Who has no NCCL needs none of its transports.
    efa.of(strict("A=b").as_str(), Privilege::Unprivileged).unwrap();
    efa.fails(&strict("NCCL_VERSION=2.21.5-1"), "NCCL will use tcp: the container has no libnccl-net.so");
    let library = |path: &str, needed: &[&'static str]| {
        efa.root.library(path, &Library { needed: needed.to_vec(), ..Library::default() });
    };
    library("/usr/lib/x86_64-linux-gnu/libnccl.so.2", &[]);
    efa.fails(&strict("A=b"), "NCCL will use tcp");
    library("/opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so", &["libfabric.so.1", "libcuda.so.1"]);
    let path = "LD_LIBRARY_PATH=/opt/amazon/ofi-nccl/lib";
    efa.fails(&strict(path), "libnccl-net-ofi.so is loaded only with NCCL_NET_PLUGIN=ofi");
    let named = format!("{path} NCCL_NET_PLUGIN=ofi");
    efa.of(&strict(&named), Privilege::Unprivileged).unwrap();
    assert_eq!(
        said(&efa, &format!("{ask} {named}")),
        ("/opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so".into(), 0)
    );
    library("/usr/lib/x86_64-linux-gnu/libnccl-net.so", &["libfabric.so.1", "libhwloc.so.15"]);
    efa.fails(&strict("A=b"), "libnccl-net.so needs libhwloc.so.15, which is not there");
    library("/usr/lib/x86_64-linux-gnu/libhwloc.so.15", &[]);
    assert_eq!(said(&efa, ask), ("/usr/lib/x86_64-linux-gnu/libnccl-net.so".into(), 0));
    for (variable, why) in [
        ("NCCL_NET=Socket", "NCCL_NET=Socket asks for that"),
        ("NCCL_NET_PLUGIN=none", "NCCL_NET_PLUGIN=none"),
        ("NCCL_NET_PLUGIN=other", "no plug-in of NCCL's by NCCL_NET_PLUGIN=other"),
    ] {
        efa.fails(&strict(variable), why);
    }
    // A node that has lost its adapter.
    node(&[]).fails("RT_RDMA_DEVICES=all|RT_RDMA_STRICT=1", "no RDMA device on this node");
    // Verbs it speaks itself.
    let verbs = node(&DEVICES[..1]);
    standin::rdma_core(&verbs.host, "34", "GLIBC_2.28", "mlx5");
    assert_eq!(said(&verbs, "RT_RDMA_DEVICES=all"), ("verbs".into(), 0));
    verbs.fails(
        "RT_RDMA_DEVICES=all NCCL_IB_DISABLE=1 NCCL_VERSION=2|RT_RDMA_STRICT=1",
        "NCCL_IB_DISABLE is set",
    );
}

/// The libraries that came, and where the job's traffic will go.
fn libraries(edits: &Edits) -> (String, String) {
    let names: Vec<&str> = edits.libraries.iter().map(|l| l.name.as_str()).collect();
    let fabric = edits.notes.iter().find_map(|n| n.strip_prefix("fabric: ")).unwrap_or_default();
    (names.join(" "), fabric.to_owned())
}

const HOSTS: &str = "libibverbs.so.1 libmlx5-rdmav34.so libnl-3.so.200 librdmacm.so.1";

#[test]
fn verbs_come_where_they_are_missing_and_fit() {
    let node = node(&DEVICES[..1]);
    let ask = "RT_RDMA_DEVICES=all";
    // Nobody has any.
    let edits = node.ok(ask);
    assert_eq!(libraries(&edits), (String::new(), "tcp".into()));
    assert!(
        edits.warnings[0].contains("neither container nor host has libibverbs.so.1"),
        "{:?}",
        edits.warnings
    );
    // The host's are injected.
    standin::rdma_core(&node.host, "34", "GLIBC_2.28", "mlx5");
    let edits = node.ok(ask);
    assert_eq!(libraries(&edits), (HOSTS.into(), "verbs".into()));
    let driver = edits.files.iter().find(|f| f.path == Path::new("/etc/libibverbs.d/mlx5.driver")).unwrap();
    assert_eq!(driver.contents, b"driver /run/rt/rdma/lib/libmlx5\n");
    assert!(edits.binds.iter().any(|b| b.path == Path::new("/run/rt/rdma/lib/libmlx5-rdmav34.so")));
    assert_eq!(
        libraries(&node.ok("RT_RDMA_DEVICES=all RT_RDMA_LIBRARIES=none")),
        (String::new(), "tcp".into())
    );
    node.fails("RT_RDMA_DEVICES=all RT_RDMA_LIBRARIES=all", "unknown set \"all\"");
    // The container's own matching set stays.
    standin::rdma_core(&node.root, "39", "GLIBC_2.34", "mlx5");
    let edits = node.ok(ask);
    assert_eq!(libraries(&edits), (String::new(), "verbs".into()));
    assert!(
        edits.warnings.is_empty() && edits.notes.iter().any(|n| n.contains("the container's own libibverbs"))
    );
    // Without the provider it gets the host's set, but for what it has itself and fits.
    node.root.remove("/usr/lib/x86_64-linux-gnu/libibverbs");
    let but_own = HOSTS.replace("libnl-3.so.200 ", "");
    assert_eq!(libraries(&node.ok(ask)), (but_own, "verbs".into()));
    // It lacks a version that the container's programs may need.
    let newer = Library {
        defines: vec!["IBVERBS_1.0", "IBVERBS_1.1", "IBVERBS_1.15"],
        ..Library::named("libibverbs.so.1")
    };
    node.root.library("/usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.39", &newer);
    let edits = node.ok(ask);
    assert!(edits.warnings[0].contains("has IBVERBS_1.15, and the host's has not"), "{:?}", edits.warnings);
    assert_eq!(libraries(&edits), (String::new(), "tcp".into()));
}

#[test]
fn a_c_library_that_is_too_old() {
    let node = node(&DEVICES[..1]);
    standin::rdma_core(&node.host, "34", "GLIBC_2.38", "mlx5");
    let ask = "RT_RDMA_DEVICES=all";
    let edits = node.ok(ask);
    assert_eq!(libraries(&edits), (String::new(), "tcp".into()));
    let warning = &edits.warnings[0];
    assert!(
        warning.contains("needs GLIBC_2.38 of libc.so.6, and the container's has GLIBC_2.34"),
        "{warning}"
    );
    assert!(warning.contains("verbs over mlx5_2 is there"), "{warning}");
    node.fails("RT_RDMA_DEVICES=all|RT_RDMA_STRICT=1", "GLIBC_2.38");
    // musl
    node.root.remove("/lib/x86_64-linux-gnu");
    let edits = node.ok(ask);
    assert!(
        edits.warnings[0].contains("needs libc.so.6, which the container has not"),
        "{:?}",
        edits.warnings
    );
}

#[test]
fn somebody_who_does_not_ask_is_warned() {
    let node = node(&DEVICES[..1]);
    let edits = node.ok("");
    assert!(
        edits.is_empty() && edits.warnings[0].contains("this node has mlx5_2 (verbs)"),
        "{:?}",
        edits.warnings
    );
    assert!(node.ok("RT_RDMA_DEVICES=none").warnings.is_empty());
    node.fails("RT_RDMA_STRICT=1", "asks for no device");
}

#[test]
fn libfabric_and_ucx() {
    let node = node(&[]);
    standin::cxi(&node.host, 1);
    let ask = "RT_RDMA_DEVICES=all";
    assert!(node.ok(ask).warnings[0].contains("a libfabric with cxi"));
    standin::libfabric(&node.host, &["FABRIC_1.0", "FABRIC_1.5"], &["libcxi.so.1"], "GLIBC_2.34");
    assert_eq!(libraries(&node.ok(ask)), ("libcxi.so.1 libfabric.so.1".into(), "cxi".into()));
    // The container's own lacks cxi: the host's replaces it, if it offers as much.
    standin::libfabric(&node.root, &["FABRIC_1.0"], &[], "GLIBC_2.28");
    assert_eq!(libraries(&node.ok(ask)), ("libcxi.so.1 libfabric.so.1".into(), "cxi".into()));
    standin::libfabric(&node.root, &["FABRIC_1.0", "FABRIC_1.7"], &[], "GLIBC_2.28");
    assert!(node.ok(ask).warnings[0].contains("FABRIC_1.7"));
    standin::libfabric(&node.root, &["FABRIC_1.0", "FABRIC_1.7"], &["libcxi.so.1"], "GLIBC_2.28");
    assert_eq!(libraries(&node.ok(ask)), (String::new(), "cxi".into()));

    let ucx = "RT_RDMA_DEVICES=all RT_RDMA_LIBRARIES=ucx";
    assert!(node.ok(ucx).warnings[0].contains("the host has no libucp.so.0"));
    for name in ["libucp.so.0", "libuct.so.0", "libucs.so.0", "libucm.so.0"] {
        node.host.library(&format!("/usr/lib/x86_64-linux-gnu/{name}.0.0"), &Library::named(name));
    }
    node.host.file("/usr/lib/x86_64-linux-gnu/ucx/libuct_ib.so.0", "");
    let edits = node.ok(ucx);
    assert!(libraries(&edits).0.contains("libucp.so.0") && edits.warnings.is_empty(), "{:?}", edits.warnings);
    assert!(edits.binds.iter().any(|b| b.path == Path::new("/run/rt/rdma/lib/ucx")));
}

/// An image without an ld.so.cache, whose libraries are looked for in its directories.
#[test]
fn no_image_keeps_the_search_going() {
    let sparse = |name: &str| Library::named(name.to_owned().leak()).bytes();
    let searched = || {
        let node = node(&DEVICES);
        node.root.dir("/usr/lib");
        node
    };
    // Libraries of a TB each, of which much is to be read.
    let node = searched();
    for n in 0..100 {
        let mut bytes = sparse("libnccl.so.2");
        say_endless(&mut bytes);
        let path = node.root.dir.join(format!("usr/lib/libnccl{n}.so"));
        std::fs::write(&path, bytes).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
    }
    node.fails("RT_RDMA_DEVICES=all", "makes the hook look for too much: more than 512 MiB");
    // More names than a directory has.
    let node = searched();
    let first = node.root.dir.join("usr/lib/libx.so");
    std::fs::write(&first, sparse("libx.so")).unwrap();
    for n in 0..(1 << 17) {
        std::os::unix::fs::symlink("libx.so", node.root.dir.join(format!("usr/lib/x{n}"))).unwrap();
    }
    let start = std::time::Instant::now();
    node.fails("RT_RDMA_DEVICES=all", "makes the hook look for too much");
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
    std::fs::remove_dir_all(&node.root.dir).unwrap();
    // Links in a circle, pipes, and what is no directory.
    let node = searched();
    node.root
        .link("/usr/lib/libloop.so", "libloop.so")
        .link("/usr/lib64", "/usr/lib64")
        .file("/usr/local/lib", "");
    let pipe = node.root.dir.join("usr/lib/libpipe.so");
    assert!(std::process::Command::new("mkfifo").arg(pipe).status().unwrap().success());
    let start = std::time::Instant::now();
    node.ok("RT_RDMA_DEVICES=all");
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
}

/// Makes the dynamic segment of a 64-bit ELF file as long as one may be.
fn say_endless(bytes: &mut [u8]) {
    let u64_at = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let (headers, count) = (u64_at(bytes, 32), usize::from(bytes[56]));
    let dynamic = (0..count).map(|n| headers + n * 56).find(|at| bytes[*at] == 2).unwrap();
    bytes[dynamic + 32..dynamic + 40].copy_from_slice(&(16u64 << 20).to_le_bytes());
}
