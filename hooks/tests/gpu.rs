//! rt-hook-gpu: variables to edits.

use crate::standin::{self, Library, StandIn};
use rt_hooks::kit::bundle::Bundle;
use rt_hooks::kit::edits::{Access, Edits};
use rt_hooks::kit::tree::Tree;
use rt_spec::Config;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// A node and a container's root.
struct Node {
    host: StandIn,
    root: StandIn,
}

fn node() -> Node {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let n = COUNT.fetch_add(1, Ordering::Relaxed);
    let dir = |kind: &str| std::env::temp_dir().join(format!("rt-gpu-{kind}-{}-{n}", std::process::id()));
    let node = Node { host: StandIn::new(dir("host")), root: StandIn::new(dir("root")) };
    standin::glibc_root(&node.root);
    node
}

fn nvidia_node() -> Node {
    let node = node();
    standin::nvidia(&node.host, 4);
    node
}

/// A bundle with these variables; those behind `|` are the caller's.
pub fn bundle(variables: &str) -> Bundle {
    let (own, caller) = variables.split_once('|').unwrap_or((variables, ""));
    let env: Vec<&str> = own.split_ascii_whitespace().map(|v| v.trim()).collect();
    let env = serde_json::to_string(&env.iter().map(|v| v.replace('~', " ")).collect::<Vec<_>>()).unwrap();
    let text = format!(
        r#"{{"ociVersion":"1.0.0","root":{{"path":"rootfs"}},"process":{{"cwd":"/","user":{{"uid":0,"gid":0}},
            "args":["a"],"env":{env}}}}}"#
    );
    let spec = Config::parse(text.into_bytes()).unwrap().spec;
    let caller = caller.split_ascii_whitespace().filter_map(|v| v.split_once('='));
    let caller: Vec<_> = caller.map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
    Bundle::from_spec(&spec, Path::new("/")).unwrap().called_with(caller)
}

impl Node {
    fn edits(&self, variables: &str) -> Result<Edits, String> {
        let (host, root) = (Tree::open(&self.host.dir).unwrap(), Tree::open(&self.root.dir).unwrap());
        rt_hooks::gpu::edits(&bundle(variables), &host, &root).map_err(|e| e.to_string())
    }

    #[track_caller]
    fn ok(&self, variables: &str) -> Edits {
        self.edits(variables).unwrap_or_else(|e| panic!("{variables}: {e}"))
    }

    /// The devices that `variables` bring, without the directory, sorted.
    #[track_caller]
    fn devices(&self, variables: &str) -> String {
        let edits = self.ok(variables);
        let mut names: Vec<&str> =
            edits.devices.iter().map(|d| d.path.strip_prefix("/dev").unwrap().to_str().unwrap()).collect();
        names.sort_unstable();
        names.join(" ")
    }

    #[track_caller]
    fn fails(&self, variables: &str, expected: &str) {
        let error = self.edits(variables).expect_err(variables);
        assert!(error.contains(expected), "{variables}: {error}");
    }
}

/// Short for what any compute container gets.
const BASE: &str = "nvidia-uvm nvidia-uvm-tools";

#[test]
fn visible_devices() {
    let node = nvidia_node();
    let gpus = |minors: &str| -> String {
        let mut all: Vec<String> = BASE.split(' ').map(String::from).collect();
        all.extend(minors.split_ascii_whitespace().map(|m| format!("nvidia{m}")));
        all.push("nvidiactl".into());
        all.sort_unstable();
        all.join(" ")
    };
    let none = String::new();
    // Minors count downwards: GPU 0 is /dev/nvidia3.
    for (variables, expected) in [
        ("", none.clone()),
        ("NVIDIA_VISIBLE_DEVICES=", none.clone()),
        ("NVIDIA_VISIBLE_DEVICES=void", none.clone()),
        ("NVIDIA_VISIBLE_DEVICES=none", gpus("")),
        ("NVIDIA_VISIBLE_DEVICES=all", gpus("0 1 2 3")),
        ("NVIDIA_VISIBLE_DEVICES=0", gpus("3")),
        ("NVIDIA_VISIBLE_DEVICES=3,1", gpus("0 2")),
        ("NVIDIA_VISIBLE_DEVICES=1,all", gpus("0 1 2 3")),
        ("NVIDIA_VISIBLE_DEVICES=GPU-2aaaaaaa-0000", gpus("1")),
        ("NVIDIA_VISIBLE_DEVICES=GPU-2a,0000:01:00.0", gpus("1 3")),
        // an image of old, and one of now without a device list
        ("CUDA_VERSION=9.0.176", gpus("0 1 2 3") + " all"),
        ("CUDA_VERSION=12.2.0 NVIDIA_REQUIRE_CUDA=cuda>=12.2", none.clone()),
        ("CUDA_VERSION=9.0.176 NVIDIA_VISIBLE_DEVICES=void", none),
    ] {
        let (expected, legacy) =
            expected.strip_suffix(" all").map_or((expected.as_str(), false), |e| (e, true));
        let found = node.devices(variables);
        if legacy {
            // with graphics, too
            assert!(found.contains("nvidia-modeset") && found.contains("dri/card0"), "{found}");
            let compute: Vec<&str> =
                found.split(' ').filter(|n| !n.starts_with("dri") && *n != "nvidia-modeset").collect();
            assert_eq!(compute.join(" "), expected, "{variables}");
        } else {
            assert_eq!(found, expected, "{variables}");
        }
    }
    for (variables, error) in [
        ("NVIDIA_VISIBLE_DEVICES=4", "no GPU 4: this node has 4"),
        ("NVIDIA_VISIBLE_DEVICES=GPU-9", "no GPU GPU-9 on this node"),
        ("NVIDIA_VISIBLE_DEVICES=fast", "no GPU \"fast\" on this node"),
        ("NVIDIA_VISIBLE_DEVICES=0:0", "GPU 0 has 0"),
    ] {
        node.fails(variables, error);
    }
}

#[test]
fn a_uuid_that_is_not_known_yet() {
    let node = nvidia_node();
    let path = "/proc/driver/nvidia/gpus/0000:01:00.0/information";
    node.host.file(path, "Model: \t x\nGPU UUID: \t GPU-????????-????\nDevice Minor: \t 3\n");
    node.fails("NVIDIA_VISIBLE_DEVICES=GPU-0aaaaaaa", "nvidia-persistenced");
}

#[test]
fn driver_capabilities() {
    let node = nvidia_node();
    let libraries = |capabilities: &str| -> String {
        let edits = node.ok(&format!("NVIDIA_VISIBLE_DEVICES=0 NVIDIA_DRIVER_CAPABILITIES={capabilities}"));
        let binds = edits.binds.iter().filter(|b| b.path.starts_with("/run/rt/gpu"));
        let mut names: Vec<String> = binds
            .map(|b| b.path.strip_prefix("/run/rt/gpu").unwrap().display().to_string())
            .map(|name| name.replace(&format!(".so.{}", standin::DRIVER), ""))
            .collect();
        names.sort_unstable();
        names.join(" ")
    };
    let all = "lib/libGLX_nvidia lib/libcuda lib/libnvidia-encode lib/libnvidia-fbc lib/libnvidia-ml \
               lib/libnvidia-ngx lib/libnvidia-ptxjitcompiler lib32/libcuda";
    for (capabilities, expected) in [
        ("", "lib/libcuda lib/libnvidia-ml lib/libnvidia-ptxjitcompiler"),
        ("utility", "lib/libnvidia-ml"),
        ("compute", "lib/libcuda lib/libnvidia-ptxjitcompiler"),
        ("utility,compute", "lib/libcuda lib/libnvidia-ml lib/libnvidia-ptxjitcompiler"),
        ("compute,compat32", "lib/libcuda lib/libnvidia-ptxjitcompiler lib32/libcuda"),
        ("video", "lib/libnvidia-encode"),
        ("graphics", "lib/libGLX_nvidia lib/libnvidia-fbc"),
        ("display", "lib/libGLX_nvidia lib/libnvidia-fbc"),
        ("ngx", "lib/libnvidia-ngx"),
        ("all", all),
        ("utility,all", all),
    ] {
        assert_eq!(libraries(capabilities), expected, "{capabilities}");
    }
    node.fails(
        "NVIDIA_VISIBLE_DEVICES=0 NVIDIA_DRIVER_CAPABILITIES=compute,fly",
        "unknown capability \"fly\" (all, compat32, compute, display, graphics, ngx, utility, video)",
    );
    // without a GPU nobody asks about capabilities
    assert!(node.ok("NVIDIA_DRIVER_CAPABILITIES=fly").is_empty());
    let utility = node.devices("NVIDIA_VISIBLE_DEVICES=0 NVIDIA_DRIVER_CAPABILITIES=utility");
    assert_eq!(utility, "nvidia3 nvidiactl");
    let graphics = node.ok("NVIDIA_VISIBLE_DEVICES=0 NVIDIA_DRIVER_CAPABILITIES=graphics");
    let paths: Vec<&str> = graphics.devices.iter().map(|d| d.path.to_str().unwrap()).collect();
    assert!(paths.contains(&"/dev/dri/card0") && paths.contains(&"/dev/nvidia-modeset"), "{paths:?}");
    assert!(!paths.contains(&"/dev/dri/card1") && !paths.contains(&"/dev/nvidia-uvm"), "{paths:?}");
    assert!(graphics.links.iter().any(|l| l.path.ends_with("by-path/pci-0000:01:00.0-card")));
    let files = |capability: &str| -> Vec<String> {
        let edits = node.ok(&format!("NVIDIA_VISIBLE_DEVICES=0 NVIDIA_DRIVER_CAPABILITIES={capability}"));
        let names = edits.binds.iter().filter_map(|b| b.path.file_name()?.to_str().map(str::to_owned));
        let mut names: Vec<String> = names.filter(|n| !n.contains(".so.") && !n.contains(':')).collect();
        names.sort_unstable();
        names
    };
    let version = standin::DRIVER;
    let shared = [
        "10_nvidia.json",
        "15_nvidia_gbm.json",
        version,
        "nvidia_icd.aarch64.json",
        "nvidia_icd.json",
        "nvoptix.bin",
    ];
    assert_eq!(files("graphics"), shared);
    assert!(
        files("compute").contains(&"nvidia.icd".to_owned())
            && !files("utility").contains(&"nvidia.icd".to_owned())
    );
    let nvvm = format!("/usr/lib/x86_64-linux-gnu/libnvidia-nvvm70.so.{version}");
    node.host.library(&nvvm, &Library::named("libnvidia-nvvm70.so.4"));
    assert!(libraries("compute").contains("lib/libnvidia-nvvm70") && !libraries("utility").contains("nvvm"));
    assert_eq!(files("display"), [&shared[..3], &["nvidia_drv.so"], &shared[3..]].concat());
    let profile = graphics.files.iter().find(|f| f.path.ends_with("10-container.conf")).unwrap();
    assert!(String::from_utf8_lossy(&profile.contents).contains("[\"EGLVisibleDGPUDevices\",8]"));
}

#[test]
fn programs_sockets_firmware_and_proc() {
    let node = nvidia_node();
    let edits = node.ok("NVIDIA_VISIBLE_DEVICES=1");
    let bound = |path: &str| edits.binds.iter().find(|b| b.path == Path::new(path));
    for path in [
        "/usr/local/sbin/nvidia-smi",
        "/usr/local/sbin/nvidia-cuda-mps-control",
        "/run/nvidia-persistenced/socket",
        "/run/nvidia-fabricmanager/socket",
        "/tmp/nvidia-mps",
        "/lib/firmware/nvidia/535.261.03",
        "/proc/driver/nvidia/gpus/0000:02:00.0",
    ] {
        assert!(bound(path).is_some(), "{path}: {:?}", edits.binds);
    }
    assert!(bound("/proc/driver/nvidia/gpus/0000:01:00.0").is_none());
    assert!(
        bound("/tmp/nvidia-mps").unwrap().access == Access::Writable
            && bound("/usr/local/sbin/nvidia-smi").unwrap().access == Access::ReadOnly
    );
    assert_eq!(edits.masks, [Path::new("/proc/driver/nvidia")]);
    let params = edits.files.iter().find(|f| f.path.ends_with("params")).unwrap();
    assert_eq!(params.contents, b"ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 0\n");
    let links = |name: &str| edits.links.iter().find(|l| l.path.ends_with(name)).map(|l| l.target.clone());
    assert_eq!(links("lib/libcuda.so.1").unwrap(), Path::new("libcuda.so.535.261.03"));
    assert_eq!(links("lib/libcuda.so").unwrap(), Path::new("libcuda.so.535.261.03"));
    let elsewhere = node.ok("NVIDIA_VISIBLE_DEVICES=1 PATH=/usr/bin|CUDA_MPS_PIPE_DIRECTORY=/run/udev");
    assert!(elsewhere.binds.iter().any(|b| b.path == Path::new("/run/udev")));
    assert!(elsewhere.binds.iter().any(|b| b.path == Path::new("/usr/bin/nvidia-smi")));
}

/// A driver that was mounted at a place of its own, where no loader of the node looks.
#[test]
fn a_driver_that_was_brought() {
    let node = nvidia_node();
    let host = &node.host.dir;
    for (from, to) in [("usr/lib/x86_64-linux-gnu", "lib64"), ("usr/share", "share")] {
        std::fs::rename(host.join(from), node.host.at(&format!("/usr/local/nvidia/{to}"))).unwrap();
    }
    // Such a node has a script at the usual place, or none at all.
    let smi = Library::named("nvidia-smi");
    node.host.library("/usr/local/nvidia/bin/nvidia-smi", &smi).file("/usr/bin/nvidia-smi", "#!/bin/sh\n");
    let edits = node.ok("NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=all");
    for (source, path) in [
        ("/usr/local/nvidia/lib64/libcuda.so.535.261.03", "/run/rt/gpu/lib/libcuda.so.535.261.03"),
        ("/usr/local/nvidia/bin/nvidia-smi", "/usr/local/sbin/nvidia-smi"),
        ("/usr/local/nvidia/share/vulkan/icd.d/nvidia_icd.json", "/usr/share/vulkan/icd.d/nvidia_icd.json"),
    ] {
        let found = edits.binds.iter().find(|b| b.path == Path::new(path));
        assert_eq!(found.map(|b| b.source.as_path()), Some(Path::new(source)), "{:?}", edits.binds);
    }
}

/// As on Debian: what alternatives link to is in a directory that the loader does not search, and the rest beside it or above.
#[test]
fn a_driver_in_several_directories() {
    let node = nvidia_node();
    let (usr, current) = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu/nvidia/current");
    let version = standin::DRIVER;
    let mut cache = ld_so_cache::Cache::default();
    for name in ["libcuda", "libnvidia-ml"] {
        let file = format!("{name}.so.{version}");
        node.host.remove(&format!("{usr}/{file}"));
        let library = Library::named(if name == "libcuda" { "libcuda.so.1" } else { "libnvidia-ml.so.1" });
        node.host.library(&format!("{current}/{file}"), &library);
        node.host.link(&format!("{usr}/{name}.so.1"), &format!("nvidia/current/{name}.so.1"));
        let flags = ld_so_cache::elf::Elf::read(library.bytes().as_slice()).unwrap().cache_flags().unwrap();
        cache.entries.push(ld_so_cache::CacheEntry::owned(
            format!("{name}.so.1"),
            format!("{usr}/{name}.so.1"),
            flags,
        ));
        if name == "libcuda" {
            // That of another version is all that the loader knows of it.
            let old = format!("{usr}/libnvidia-ptxjitcompiler.so.1");
            cache.entries.push(ld_so_cache::CacheEntry::owned("libnvidia-ptxjitcompiler.so.1", old, flags));
        }
    }
    node.host.file("/etc/ld.so.cache", cache.to_bytes());
    let compiler = Library::named("libnvidia-ptxjitcompiler.so.1");
    node.host.remove(&format!("{usr}/libnvidia-ptxjitcompiler.so.{version}"));
    node.host.library(&format!("{usr}/libnvidia-ptxjitcompiler.so.530.1"), &compiler);
    node.host.library(&format!("{current}/libnvidia-ptxjitcompiler.so.{version}"), &compiler);
    node.host
        .library(&format!("{usr}/libnvidia-rtcore.so.{version}"), &Library::named("libnvidia-rtcore.so"));
    let edits = node.ok("NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility,graphics");
    for (dir, stem) in
        [(current, "libcuda.so"), (current, "libnvidia-ptxjitcompiler.so"), (usr, "libnvidia-rtcore.so")]
    {
        let (from, to) = (format!("{dir}/{stem}.{version}"), format!("/run/rt/gpu/lib/{stem}.{version}"));
        let found: Vec<_> = edits.binds.iter().filter(|b| b.path == Path::new(&to)).collect();
        assert!(found.len() == 1 && found[0].source == Path::new(&from), "{stem}: {:?}", edits.binds);
    }
    assert!(
        edits.libraries.iter().any(|l| l.name == "libnvidia-ptxjitcompiler.so.1"),
        "{:?}",
        edits.libraries
    );
    assert!(!edits.binds.iter().any(|b| b.source.ends_with("libnvidia-ptxjitcompiler.so.530.1")));
}

#[test]
fn requirements() {
    let node = nvidia_node();
    let gpu = "NVIDIA_VISIBLE_DEVICES=0";
    for (requirement, fits) in [
        ("NVIDIA_REQUIRE_CUDA=cuda>=12.2", true),
        ("NVIDIA_REQUIRE_CUDA=cuda>=12.3", false),
        ("NVIDIA_REQUIRE_CUDA=cuda>=12.4~brand=tesla,driver>=470~brand=nvidia,driver>=535,driver<536", true),
        ("NVIDIA_REQUIRE_CUDA=cuda>=9.0 NVIDIA_REQUIRE_ARCH=arch>=9.0", false),
        ("NVIDIA_REQUIRE_X=arch=8.0,driver=535.261.03,brand!=geforce", true),
        ("NVIDIA_REQUIRE_CUDA=cuda>=99 NVIDIA_DISABLE_REQUIRE=1", true),
        ("NVIDIA_REQUIRE_CUDA=cuda>=99 NVIDIA_DISABLE_REQUIRE=true", true),
        ("NVIDIA_REQUIRE_CUDA=cuda>=99 NVIDIA_DISABLE_REQUIRE=0", false),
        ("CUDA_VERSION=12.2.1", true),
        ("CUDA_VERSION=13.0", false),
        ("CUDA_VERSION=13.0 NVIDIA_REQUIRE_CUDA=cuda>=9", true),
    ] {
        let variables = format!("{gpu} {requirement}");
        if fits {
            node.ok(&variables);
        } else {
            node.fails(&variables, "this node has cuda 12.2, driver 535.261.03, arch 8.0, brand nvidia");
        }
    }
    node.fails(&format!("{gpu} NVIDIA_REQUIRE_CUDA=cuda"), "NVIDIA_REQUIRE_CUDA: \"cuda\" has no operator");
    node.fails(&format!("{gpu} CUDA_VERSION=new"), "CUDA_VERSION \"new\" is not a version");
}

#[test]
fn mig_instances() {
    let node = nvidia_node();
    standin::mig(&node.host);
    let caps = |variables: &str| -> Vec<String> {
        let devices = node.devices(&format!("NVIDIA_DRIVER_CAPABILITIES=utility {variables}"));
        devices
            .split(' ')
            .filter(|d| *d != "nvidiactl")
            .map(|d| d.replace("nvidia-caps/nvidia-", ""))
            .collect()
    };
    // GPU 3 has minor 0
    for (variables, expected) in [
        ("NVIDIA_VISIBLE_DEVICES=3:0", "cap3 cap4 nvidia0"),
        ("NVIDIA_VISIBLE_DEVICES=3:1", "cap5 cap6 nvidia0"),
        ("NVIDIA_VISIBLE_DEVICES=3", "cap3 cap4 cap5 cap6 nvidia0"),
        ("NVIDIA_VISIBLE_DEVICES=MIG-GPU-3aaaaaaa-0000/2/0", "cap5 cap6 nvidia0"),
        ("NVIDIA_VISIBLE_DEVICES=0,3:0", "cap3 cap4 nvidia0 nvidia3"),
        ("NVIDIA_VISIBLE_DEVICES=all", "cap3 cap4 cap5 cap6 nvidia0 nvidia1 nvidia2 nvidia3"),
        (
            "NVIDIA_VISIBLE_DEVICES=0 NVIDIA_MIG_CONFIG_DEVICES=all|NVIDIA_MIG_CONFIG_DEVICES=all",
            "cap1 nvidia3",
        ),
        (
            "NVIDIA_VISIBLE_DEVICES=0 NVIDIA_MIG_MONITOR_DEVICES=0|NVIDIA_MIG_MONITOR_DEVICES=0",
            "cap2 nvidia3",
        ),
        ("NVIDIA_VISIBLE_DEVICES=0 NVIDIA_MIG_CONFIG_DEVICES=none|NVIDIA_MIG_CONFIG_DEVICES=none", "nvidia3"),
        ("NVIDIA_VISIBLE_DEVICES=0 NVIDIA_MIG_CONFIG_DEVICES=all NVIDIA_MIG_MONITOR_DEVICES=0", "nvidia3"),
    ] {
        assert_eq!(caps(variables).join(" "), expected, "{variables}");
    }
    let edits = node.ok("NVIDIA_VISIBLE_DEVICES=3:0");
    let access = "/proc/driver/nvidia/capabilities/gpu0/mig/gi1/ci0/access";
    assert!(edits.binds.iter().any(|b| b.path == Path::new(access)));
    node.fails("NVIDIA_VISIBLE_DEVICES=3:2", "GPU 3 has 2");
    node.fails("NVIDIA_VISIBLE_DEVICES=MIG-1234", "name it as GPU:MIG index");
    node.host.remove("/proc/driver/nvidia/capabilities/gpu0/mig/gi2");
    assert_eq!(
        caps("NVIDIA_VISIBLE_DEVICES=MIG-1234").join(" "),
        "cap3 cap4 nvidia0",
        "the only one there is"
    );
}

#[test]
fn switches() {
    let node = nvidia_node();
    let more = |variables: &str| -> String {
        let all = node.devices(&format!("NVIDIA_VISIBLE_DEVICES=none {variables}"));
        let more: Vec<&str> = all.split(' ').filter(|d| !BASE.contains(d) && *d != "nvidiactl").collect();
        more.join(" ")
    };
    for (variables, expected) in [
        ("", ""),
        ("NVIDIA_GDS=enabled", "nvidia-fs0"),
        ("NVIDIA_GDRCOPY=enabled", "gdrdrv"),
        ("NVIDIA_NVSWITCH=enabled", "nvidia-nvlink nvidia-nvswitchctl"),
        ("NVIDIA_MOFED=enabled", "infiniband/rdma_cm infiniband/uverbs0"),
        ("NVIDIA_GDS=1 NVIDIA_GDRCOPY=yes", ""),
        ("NVIDIA_IMEX_CHANNELS=1", "nvidia-caps-imex-channels/channel1"),
        ("NVIDIA_IMEX_CHANNELS=0,1", "nvidia-caps-imex-channels/channel0 nvidia-caps-imex-channels/channel1"),
        ("NVIDIA_IMEX_CHANNELS=all", "nvidia-caps-imex-channels/channel0 nvidia-caps-imex-channels/channel1"),
        ("NVIDIA_IMEX_CHANNELS=9", ""),
    ] {
        assert_eq!(more(variables), expected, "{variables}");
    }
    let gds = node.ok("NVIDIA_VISIBLE_DEVICES=0 NVIDIA_GDS=enabled");
    assert!(gds.binds.iter().any(|b| b.path == Path::new("/etc/cufile.json")));
    assert!(!node.ok("NVIDIA_VISIBLE_DEVICES=0 NVIDIA_IMEX_CHANNELS=9").warnings.is_empty());
}

#[test]
fn a_job_has_its_gpus() {
    let node = nvidia_node();
    let gpus = |variables: &str| -> String {
        let all = node.devices(variables);
        let minors: Vec<&str> = all
            .split(' ')
            .filter_map(|d| d.strip_prefix("nvidia"))
            .filter(|d| d.parse::<u32>().is_ok())
            .collect();
        minors.join(" ")
    };
    let slurm = "SLURM_JOB_ID=7";
    for (variables, expected) in [
        // Slurm confines devices: numbers are the job's
        (format!("NVIDIA_VISIBLE_DEVICES=all CUDA_VISIBLE_DEVICES=0,1|{slurm} SLURM_STEP_GPUS=2,3"), "0 1"),
        (format!("NVIDIA_VISIBLE_DEVICES=all|{slurm} SLURM_JOB_GPUS=1"), "2"),
        (format!("NVIDIA_VISIBLE_DEVICES=all|{slurm} SLURM_JOB_GPUS=0,1 SLURM_STEP_GPUS=1"), "2"),
        // Slurm does not: numbers are the node's, and must stay true
        (
            format!("NVIDIA_VISIBLE_DEVICES=all CUDA_VISIBLE_DEVICES=2,3|{slurm} SLURM_STEP_GPUS=2,3"),
            "0 1 2 3",
        ),
        (format!("NVIDIA_VISIBLE_DEVICES=all|{slurm} CUDA_VISIBLE_DEVICES=0"), "3"),
        // no Slurm: what the caller has set for himself is not the container's
        ("NVIDIA_VISIBLE_DEVICES=all|CUDA_VISIBLE_DEVICES=0".to_owned(), "0 1 2 3"),
        ("NVIDIA_VISIBLE_DEVICES=all CUDA_VISIBLE_DEVICES=GPU-1aaaaaaa-0000".to_owned(), "2"),
        ("CUDA_VISIBLE_DEVICES=0,1".to_owned(), "2 3"),
        ("CUDA_VISIBLE_DEVICES=NoDevFiles".to_owned(), ""),
        // who names devices gets them
        (format!("NVIDIA_VISIBLE_DEVICES=0 CUDA_VISIBLE_DEVICES=0|{slurm} SLURM_STEP_GPUS=3"), "3"),
    ] {
        assert_eq!(gpus(&variables), expected, "{variables}");
    }
    let host = Tree::open(&node.host.dir).unwrap();
    let new = |variables: &str| rt_hooks::gpu::renumbered(&bundle(variables), &host).unwrap().join(" ");
    assert_eq!(
        new("NVIDIA_VISIBLE_DEVICES=all CUDA_VISIBLE_DEVICES=3,2|SLURM_JOB_ID=7 SLURM_STEP_GPUS=2,3"),
        "CUDA_VISIBLE_DEVICES=1,0 NVIDIA_VISIBLE_DEVICES=2,3"
    );
    assert_eq!(
        new("NVIDIA_VISIBLE_DEVICES=all CUDA_VISIBLE_DEVICES=0,1|SLURM_JOB_ID=7 SLURM_STEP_GPUS=2,3"),
        ""
    );
    assert_eq!(new("NVIDIA_VISIBLE_DEVICES=1 CUDA_VISIBLE_DEVICES=7"), "");
}

#[test]
fn versions_that_do_not_fit() {
    let node = nvidia_node();
    let lib = "/usr/lib/x86_64-linux-gnu";
    let gpu = "NVIDIA_VISIBLE_DEVICES=0";
    node.host.remove(&format!("{lib}/libcuda.so.535.261.03"));
    node.fails(gpu, "libcuda.so.535.261.03 is not among the host's libraries");
    node.host.library(&format!("{lib}/libcuda.so.550.54.14"), &Library::named("libcuda.so.1"));
    node.fails(gpu, "libcuda.so.550.54.14 does not fit the loaded NVIDIA module, which is 535.261.03");
    node.ok("NVIDIA_VISIBLE_DEVICES=0 NVIDIA_DRIVER_CAPABILITIES=utility");
    node.host.file("/proc/driver/nvidia/version", "something else\n");
    node.fails(gpu, "names no version");
    node.host.remove("/proc/driver/nvidia");
    let edits = node.ok(gpu);
    assert!(edits.is_empty() && edits.notes[0].contains("no NVIDIA driver is loaded"));
}

#[test]
fn forward_compatibility() {
    let node = nvidia_node();
    let used = || -> bool {
        let edits = node.ok("NVIDIA_VISIBLE_DEVICES=0");
        let first = edits.libraries.iter().find(|l| l.name == "libcuda.so.1").unwrap();
        first.path.starts_with("/usr/local/cuda/compat")
    };
    assert!(!used());
    let compat =
        |note: Option<(&'static str, &'static str)>| Library { note, ..Library::named("libcuda.so.1") };
    let newer = "/usr/local/cuda/compat/libcuda.so.550.54.14";
    node.root.library(newer, &compat(None));
    assert!(used(), "by its name");
    for (description, expected) in [
        ("{\"Format\":1,\"CUDA Version\":\"12.4\",\"Driver\":[470,535,550]}", true),
        ("{\"Format\":1,\"CUDA Version\":\"12.4\",\"Driver\":[470]}", false),
        ("{\"Format\":1,\"CUDA Version\":\"12.2\",\"Driver\":[535]}", false),
    ] {
        node.root.library(newer, &compat(Some(("NVIDIA Corporation", description))));
        assert_eq!(used(), expected, "{description}");
    }
    node.root.remove(newer);
    node.root.library("/usr/local/cuda/compat/libcuda.so.470.1", &compat(None));
    assert!(!used(), "older");
}

#[test]
fn amd_gpus() {
    let node = node();
    assert!(node.ok("AMD_VISIBLE_DEVICES=all").is_empty(), "a node without starts unchanged");
    standin::amd(&node.host, 3);
    let (first, second, third) =
        ("dri/card0 dri/renderD128", "dri/card1 dri/renderD129", "dri/card2 dri/renderD130");
    let all = "dri/card0 dri/card1 dri/card2 dri/renderD128 dri/renderD129 dri/renderD130 kfd";
    for (variables, expected) in [
        ("", ""),
        ("AMD_VISIBLE_DEVICES=void ROCR_VISIBLE_DEVICES=1", ""),
        ("AMD_VISIBLE_DEVICES=none", ""),
        ("AMD_VISIBLE_DEVICES=all", all),
        ("AMD_VISIBLE_DEVICES=1", &format!("{second} kfd")),
        ("AMD_VISIBLE_DEVICES=GPU-0000000000000066", &format!("{third} kfd")),
        ("ROCR_VISIBLE_DEVICES=0", &format!("{first} kfd")),
        ("HIP_VISIBLE_DEVICES=0", &format!("{first} kfd")),
        // numbers of the node stay true
        ("ROCR_VISIBLE_DEVICES=2", all),
        ("ROCR_VISIBLE_DEVICES=GPU-0000000000000066", &format!("{third} kfd")),
        (
            "AMD_VISIBLE_DEVICES=all ROCR_VISIBLE_DEVICES=0|SLURM_JOB_ID=7 SLURM_STEP_GPUS=2",
            &format!("{third} kfd"),
        ),
    ] {
        assert_eq!(node.devices(variables), expected, "{variables}");
    }
    node.fails("AMD_VISIBLE_DEVICES=3", "no AMD GPU \"3\": this node has 3");
    let host = Tree::open(&node.host.dir).unwrap();
    let new = rt_hooks::gpu::renumbered(&bundle("ROCR_VISIBLE_DEVICES=2,1"), &host).unwrap();
    assert_eq!(new, ["ROCR_VISIBLE_DEVICES=1,0", "AMD_VISIBLE_DEVICES=1,2"]);
    node.host.remove("/dev/dri/renderD129");
    node.fails("AMD_VISIBLE_DEVICES=1", "load the amdgpu module");
}

#[test]
fn rocm_comes_where_it_is_asked_for_and_missing() {
    let node = node();
    standin::amd(&node.host, 1);
    let names = |variables: &str| -> String {
        let edits = node.ok(&format!("AMD_VISIBLE_DEVICES=all {variables}"));
        let names: Vec<&str> = edits.libraries.iter().map(|l| l.name.as_str()).collect();
        let warned = edits.warnings.join(" ");
        if warned.is_empty() { names.join(" ") } else { warned }
    };
    let none = "neither container nor host has libhsa-runtime64.so (install ROCm on the node)";
    assert!(names("RT_AMD_LIBRARIES=hsa").contains(none));
    // Where ROCm's own packages put it; the node has a cache, which does not know of it.
    standin::rocm(&node.host, "/opt/rocm/lib", "5", "GLIBC_2.28");
    node.host.file("/etc/ld.so.cache", ld_so_cache::Cache::default().to_bytes());
    let hip = "libamdhip64.so.5 libhsa-runtime64.so.1 libhsakmt.so.1";
    for (variables, expected) in [
        ("", ""),
        ("RT_AMD_LIBRARIES=none", ""),
        ("RT_AMD_LIBRARIES=hsa", "libhsa-runtime64.so.1 libhsakmt.so.1"),
        ("RT_AMD_LIBRARIES=hip", hip),
        ("RT_AMD_LIBRARIES=hip,hsa", hip),
    ] {
        assert_eq!(names(variables), expected, "{variables}");
    }
    assert!(node.ok("RT_AMD_LIBRARIES=hip").is_empty(), "without a GPU nobody needs them");
    node.fails("AMD_VISIBLE_DEVICES=all RT_AMD_LIBRARIES=all", "unknown set \"all\" (hsa, hip, smi, none)");
    let edits = node.ok("AMD_VISIBLE_DEVICES=all RT_AMD_LIBRARIES=hip");
    let bind = edits.binds.iter().find(|b| b.path == Path::new("/run/rt/gpu/lib/libamdhip64.so.5")).unwrap();
    assert_eq!(bind.source, Path::new("/opt/rocm/lib/libamdhip64.so.5.2"));
    // Of two releases in the directory, the newer one.
    standin::rocm(&node.host, "/opt/rocm/lib", "10", "GLIBC_2.28");
    assert!(names("RT_AMD_LIBRARIES=hip").starts_with("libamdhip64.so.10 "));
    // The container's own stays.
    standin::rocm(&node.root, "/opt/rocm/lib", "6", "GLIBC_2.28");
    assert_eq!(names("RT_AMD_LIBRARIES=hip"), "");
    node.root.remove("/opt/rocm");
    // A C library that is too old.
    standin::rocm(&node.host, "/opt/rocm/lib", "10", "GLIBC_2.39");
    assert!(names("RT_AMD_LIBRARIES=hip").contains("needs GLIBC_2.39 of libc.so.6"));
}

#[test]
fn intel_gpus_and_gaudi() {
    let node = node();
    assert!(node.ok("ZE_AFFINITY_MASK=0 HABANA_VISIBLE_DEVICES=all").is_empty());
    standin::intel(&node.host, 2);
    let all = "dri/card0 dri/card1 dri/renderD128 dri/renderD129";
    for (variables, expected) in [
        ("", ""),
        ("ZE_AFFINITY_MASK=", all),
        ("ZE_AFFINITY_MASK=0", "dri/card0 dri/renderD128"),
        ("ZE_AFFINITY_MASK=0.1", "dri/card0 dri/renderD128"),
        ("ZE_AFFINITY_MASK=1", all),
        ("RT_INTEL_DEVICES=1 ZE_AFFINITY_MASK=0", "dri/card1 dri/renderD129"),
        ("RT_INTEL_DEVICES=0000:4e:00.0", "dri/card1 dri/renderD129"),
        ("RT_INTEL_DEVICES=all", all),
        ("RT_INTEL_DEVICES=none ZE_AFFINITY_MASK=0", ""),
    ] {
        assert_eq!(node.devices(variables), expected, "{variables}");
    }
    node.fails("ZE_AFFINITY_MASK=7", "no Intel GPU \"7\": this node has 2");
    let host = Tree::open(&node.host.dir).unwrap();
    let new = rt_hooks::gpu::renumbered(&bundle("ZE_AFFINITY_MASK=1.0"), &host).unwrap();
    assert_eq!(new, ["ZE_AFFINITY_MASK=0.0", "RT_INTEL_DEVICES=1"]);
    for name in ["hl0", "hl1", "hl_controlD0"] {
        node.host.file(&format!("/dev/{name}"), "");
    }
    assert_eq!(node.devices("HABANA_VISIBLE_DEVICES=all"), "hl0 hl1 hl_controlD0");
    for name in ["accel0", "accel1", "accel_controlD0", "accel_controlD1"] {
        node.host.file(&format!("/dev/accel/{name}"), "");
    }
    assert_eq!(node.devices("HABANA_VISIBLE_DEVICES=1"), "accel/accel1 accel/accel_controlD1");
    node.fails("HABANA_VISIBLE_DEVICES=2", "no accelerator \"2\" among [0, 1]");
}

#[test]
fn cdi_by_variable() {
    let node = node();
    node.fails(
        "NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=0|NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=0",
        "unresolvable CDI device nvidia.com/gpu=0",
    );
    node.host.file(
        "/etc/cdi/nvidia.yaml",
        "cdiVersion: 0.6.0\nkind: nvidia.com/gpu\ndevices:\n- name: '0'\n  containerEdits:\n    deviceNodes:\n    \
         - path: /dev/nvidia0\n      hostPath: /dev/other\ncontainerEdits:\n  mounts:\n  - hostPath: /usr/lib/x/libx.so.1.2\n    \
         containerPath: /usr/lib/x/libx.so.1.2\n    options: [ro]\n  hooks:\n  - hookName: createContainer\n    \
         path: /usr/bin/nvidia-cdi-hook\n    args: [nvidia-cdi-hook, update-ldcache, --folder, /usr/lib/x]\n  \
         - hookName: createContainer\n    path: /usr/bin/nvidia-cdi-hook\n    args: [nvidia-cdi-hook, \
         create-symlinks, --link, 'libx.so.1::/usr/lib/x/libx.so']\n",
    );
    node.host.library("/usr/lib/x/libx.so.1.2", &Library::named("libx.so.1"));
    let edits = node.ok("NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=0|NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=0");
    assert_eq!(edits.devices[0].source, Path::new("/dev/other"));
    assert_eq!(edits.links[0].path, Path::new("/usr/lib/x/libx.so"));
    let names: Vec<&str> = edits.libraries.iter().map(|l| l.name.as_str()).collect();
    assert_eq!(names, ["libx.so.1", "libx.so.1.2"]);
    assert!(edits.warnings.is_empty(), "{:?}", edits.warnings);
    node.host.file("/var/run/cdi/broken.json", "{");
    node.fails(
        "NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=9|NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=9",
        "/var/run/cdi/broken.json: EOF",
    );
    node.ok("NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=0|NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=0");
}
