//! Trees that look like nodes with GPUs and fabrics: files for /proc, /sys and /dev, and libraries that are real
//! ELF files, though small.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// `e_machine` of the machine that runs the tests, since the hooks take no other, its relocations GLOB_DAT and COPY, and the
/// flags that ld.so.cache has for its libraries. The directories are x86_64's on every machine.
const MACHINE: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
const GLOB_DAT: u64 = if cfg!(target_arch = "aarch64") { 1025 } else { 6 };
const COPY: u64 = if cfg!(target_arch = "aarch64") { 1024 } else { 5 };
pub const CACHE_FLAGS: i32 = if cfg!(target_arch = "aarch64") { 0xa03 } else { 0x303 };

/// What an ELF file is to contain.
#[derive(Clone, Debug, Default)]
pub struct Library {
    /// DT_SONAME.
    pub soname: Option<&'static str>,
    /// DT_NEEDED.
    pub needed: Vec<&'static str>,
    /// Versions that it defines.
    pub defines: Vec<&'static str>,
    /// Versions that it needs, by library.
    pub requires: Vec<(&'static str, Vec<&'static str>)>,
    /// DT_RUNPATH.
    pub runpath: Option<&'static str>,
    /// Symbols that it defines, with the size of those that are data.
    pub symbols: Vec<(&'static str, Option<u64>)>,
    /// Symbols that it takes from others.
    pub takes: Vec<&'static str>,
    /// Data of others that it has copies of, with their sizes.
    pub copies: Vec<(&'static str, u64)>,
    /// A note: owner and description.
    pub note: Option<(&'static str, &'static str)>,
    /// 32-bit x86 rather than 64-bit.
    pub i386: bool,
}

impl Library {
    /// A library of that SONAME.
    pub fn named(soname: &'static str) -> Library {
        Library { soname: Some(soname), ..Library::default() }
    }

    /// The bytes of the file: headers, one segment with everything, a dynamic section and what it names.
    pub fn bytes(&self) -> Vec<u8> {
        let wide = !self.i386;
        let mut strings = vec![0u8];
        let mut known: BTreeMap<String, u32> = BTreeMap::new();
        let mut string = |text: &str| -> u32 {
            *known.entry(text.to_owned()).or_insert_with(|| {
                let at = strings.len() as u32;
                strings.extend(text.as_bytes());
                strings.push(0);
                at
            })
        };
        let soname = self.soname.map(&mut string);
        let needed: Vec<u32> = self.needed.iter().map(|n| string(n)).collect();
        let mut needs = Vec::new();
        for (n, (library, versions)) in self.requires.iter().enumerate() {
            let last = n + 1 == self.requires.len();
            let size = 16 + 16 * versions.len() as u32;
            half(&mut needs, &[1, versions.len() as u16]);
            word(&mut needs, &[string(library), 16, if last { 0 } else { size }]);
            for (m, version) in versions.iter().enumerate() {
                word(&mut needs, &[0]);
                half(&mut needs, &[0, 2]);
                word(&mut needs, &[string(version), if m + 1 == versions.len() { 0 } else { 16 }]);
            }
        }
        let mut definitions = Vec::new();
        let own = self.soname.unwrap_or("self");
        let all: Vec<&str> = [own].into_iter().chain(self.defines.iter().copied()).collect();
        for (n, version) in all.iter().enumerate() {
            let last = n + 1 == all.len();
            half(&mut definitions, &[1, u16::from(n == 0), n as u16 + 1, 1]);
            word(&mut definitions, &[0, 20, if last { 0 } else { 28 }]);
            word(&mut definitions, &[string(version), 0]);
        }
        let mut notes = Vec::new();
        if let Some((owner, description)) = self.note {
            word(&mut notes, &[owner.len() as u32 + 1, description.len() as u32, 1]);
            for text in [format!("{owner}\0"), description.to_owned()] {
                notes.extend(text.as_bytes());
                notes.resize(notes.len().next_multiple_of(4), 0);
            }
        }

        let runpath = self.runpath.map(&mut string);
        // Elf64_Sym each, the first of them empty, and an Elf64_Rela for each of the others' symbols.
        let (mut symbols, mut relocations) = (vec![0; 24], Vec::new());
        let taken = self.takes.iter().map(|name| (*name, 0, 0, Some(GLOB_DAT)));
        let copies = self.copies.iter().map(|(name, size)| (*name, 1, *size, Some(COPY)));
        let own = self.symbols.iter().map(|(name, size)| (*name, 1, size.unwrap_or(0), None));
        for (name, section, size, relocation) in taken.chain(copies).chain(own) {
            let index = symbols.len() as u64 / 24;
            word(&mut symbols, &[string(name)]);
            symbols.extend([if size > 0 { 0x11 } else { 0x12 }, 0]);
            half(&mut symbols, &[section]);
            address(&mut symbols, true, &[0, size]);
            relocation.iter().for_each(|kind| address(&mut relocations, true, &[0, index << 32 | kind, 0]));
        }
        let mut hash = Vec::new();
        word(&mut hash, &[1, symbols.len() as u32 / 24]);

        // header, three program headers, then the parts
        let (header, program) = if wide { (64, 56) } else { (52, 32) };
        let base = header + 3 * program;
        let place = |before: &[&[u8]]| base + before.iter().map(|b| b.len()).sum::<usize>();
        pad(&mut strings);
        pad(&mut needs);
        pad(&mut definitions);
        pad(&mut notes);
        let (at_strings, at_needs) = (place(&[]), place(&[&strings]));
        let at_definitions = place(&[&strings, &needs]);
        let at_notes = place(&[&strings, &needs, &definitions]);
        let at_symbols = place(&[&strings, &needs, &definitions, &notes]);
        let at_relocations = at_symbols + symbols.len();
        let at_hash = at_relocations + relocations.len();
        let at_dynamic = at_hash + hash.len();
        let mut entries: Vec<(u64, u64)> = vec![(5, at_strings as u64), (10, strings.len() as u64)];
        entries.extend(needed.iter().map(|at| (1, u64::from(*at))));
        entries.extend(soname.map(|at| (14, u64::from(at))));
        if !self.requires.is_empty() {
            entries.push((0x6fff_fffe, at_needs as u64));
            entries.push((0x6fff_ffff, self.requires.len() as u64));
        }
        if !self.defines.is_empty() {
            entries.push((0x6fff_fffc, at_definitions as u64));
            entries.push((0x6fff_fffd, all.len() as u64));
        }
        entries.extend(runpath.map(|at| (29, u64::from(at))));
        if wide && symbols.len() > 24 {
            let relocations = [(7, at_relocations as u64), (8, relocations.len() as u64)];
            entries.extend(
                [(6, at_symbols as u64), (11, 24), (4, at_hash as u64)].into_iter().chain(relocations),
            );
        }
        entries.push((0, 0));
        let mut dynamic = Vec::new();
        for (tag, value) in entries {
            address(&mut dynamic, wide, &[tag, value]);
        }
        let size = at_dynamic + dynamic.len();

        let mut file = vec![0x7f, b'E', b'L', b'F', if wide { 2 } else { 1 }, 1, 1, 0];
        file.resize(16, 0);
        half(&mut file, &[3, if wide { MACHINE } else { 3 }]);
        word(&mut file, &[1]);
        address(&mut file, wide, &[0, header as u64, 0]);
        word(&mut file, &[0]);
        half(&mut file, &[header as u16, program as u16, 3, 0, 0, 0]);
        for (kind, offset, length) in
            [(1, 0, size), (2, at_dynamic, dynamic.len()), (4, at_notes, notes.len())]
        {
            let (offset, length) = (offset as u64, length as u64);
            if wide {
                word(&mut file, &[kind, 4]);
                address(&mut file, true, &[offset, offset, offset, length, length, 4]);
            } else {
                word(&mut file, &[kind]);
                address(&mut file, false, &[offset, offset, offset, length, length, 4, 4]);
            }
        }
        for part in [strings, needs, definitions, notes, symbols, relocations, hash, dynamic] {
            file.extend(part);
        }
        assert_eq!(file.len(), size);
        file
    }
}

fn pad(part: &mut Vec<u8>) {
    part.resize(part.len().next_multiple_of(8), 0);
}

fn half(to: &mut Vec<u8>, values: &[u16]) {
    values.iter().for_each(|v| to.extend(v.to_le_bytes()));
}

fn word(to: &mut Vec<u8>, values: &[u32]) {
    values.iter().for_each(|v| to.extend(v.to_le_bytes()));
}

fn address(to: &mut Vec<u8>, wide: bool, values: &[u64]) {
    for value in values {
        if wide { to.extend(value.to_le_bytes()) } else { to.extend((*value as u32).to_le_bytes()) }
    }
}

/// A tree under construction.
#[derive(Debug)]
pub struct StandIn {
    /// Where it is.
    pub dir: PathBuf,
}

impl StandIn {
    /// An empty tree in `dir`.
    pub fn new(dir: PathBuf) -> StandIn {
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        StandIn { dir }
    }

    /// The real place of `path`, its directory made.
    pub fn at(&self, path: &str) -> PathBuf {
        let path = self.dir.join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    /// A file.
    pub fn file(&self, path: &str, text: impl AsRef<[u8]>) -> &Self {
        fs::write(self.at(path), text).unwrap();
        self
    }

    /// A link.
    pub fn link(&self, path: &str, target: &str) -> &Self {
        let path = self.at(path);
        let _ = fs::remove_file(&path);
        std::os::unix::fs::symlink(target, path).unwrap();
        self
    }

    /// A directory.
    pub fn dir(&self, path: &str) -> &Self {
        fs::create_dir_all(self.dir.join(path.trim_start_matches('/'))).unwrap();
        self
    }

    /// A library and the link of its SONAME beside it.
    pub fn library(&self, path: &str, library: &Library) -> &Self {
        self.file(path, library.bytes());
        let (dir, file) = path.rsplit_once('/').unwrap();
        if let Some(soname) = library.soname.filter(|name| *name != file) {
            self.link(&format!("{dir}/{soname}"), file);
        }
        self
    }

    /// Removes what is at `path`.
    pub fn remove(&self, path: &str) -> &Self {
        let path = self.at(path);
        if path.is_dir() && !path.is_symlink() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
            .unwrap();
        self
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// The version of the stand-in's NVIDIA driver.
pub const DRIVER: &str = "535.261.03";
const LIB: &str = "/usr/lib/x86_64-linux-gnu";

/// Adds an NVIDIA driver with `gpus` GPUs at PCI addresses 0000:01:00.0 and up; device minors count downwards, so
/// that nobody takes one number for the other.
pub fn nvidia(tree: &StandIn, gpus: usize) {
    let proc = "/proc/driver/nvidia";
    tree.file(
        &format!("{proc}/version"),
        format!(
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {DRIVER}  Tue Jun 10 2025\nGCC version: 12\n"
        ),
    );
    tree.file(&format!("{proc}/params"), "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\n");
    tree.file(&format!("{proc}/registry"), "Binary: \"\"\n");
    for n in 0..gpus {
        let (pci, minor) = (format!("0000:0{}:00.0", n + 1), gpus - 1 - n);
        tree.file(
            &format!("{proc}/gpus/{pci}/information"),
            format!(
                "Model: \t\t NVIDIA A100-SXM4-40GB\nIRQ: \t\t 47\nGPU UUID: \t GPU-{n}aaaaaaa-0000\n\
                 Bus Location: \t {pci}\nDevice Minor: \t {minor}\n"
            ),
        );
        let device = format!("/sys/bus/pci/devices/{pci}");
        tree.file(&format!("{device}/device"), "0x20b0\n");
        tree.dir(&format!("{device}/drm/card{n}")).dir(&format!("{device}/drm/renderD{}", 128 + n));
        tree.file(&format!("/dev/nvidia{minor}"), "");
        tree.file(&format!("/dev/dri/card{n}"), "").file(&format!("/dev/dri/renderD{}", 128 + n), "");
        tree.link(&format!("/dev/dri/by-path/pci-{pci}-card"), &format!("../card{n}"));
    }
    for name in [
        "nvidiactl",
        "nvidia-uvm",
        "nvidia-uvm-tools",
        "nvidia-modeset",
        "nvidia-fs0",
        "nvidia-nvswitchctl",
        "nvidia-nvlink",
        "gdrdrv",
        "infiniband/uverbs0",
        "infiniband/rdma_cm",
        "nvidia-caps-imex-channels/channel0",
        "nvidia-caps-imex-channels/channel1",
    ] {
        tree.file(&format!("/dev/{name}"), "");
    }
    for (name, soname) in [
        ("libcuda", "libcuda.so.1"),
        ("libnvidia-ml", "libnvidia-ml.so.1"),
        ("libnvidia-ptxjitcompiler", "libnvidia-ptxjitcompiler.so.1"),
        ("libnvidia-encode", "libnvidia-encode.so.1"),
        ("libnvidia-ngx", "libnvidia-ngx.so.1"),
        ("libGLX_nvidia", "libGLX_nvidia.so.0"),
        ("libnvidia-fbc", "libnvidia-fbc.so.1"),
    ] {
        tree.library(&format!("{LIB}/{name}.so.{DRIVER}"), &Library::named(soname));
    }
    let i386 = Library { i386: true, ..Library::named("libcuda.so.1") };
    tree.library(&format!("/usr/lib/i386-linux-gnu/libcuda.so.{DRIVER}"), &i386);
    for program in ["nvidia-smi", "nvidia-cuda-mps-control"] {
        tree.file(&format!("/usr/bin/{program}"), "#!/bin/sh\n");
    }
    tree.file("/etc/cufile.json", "{}").dir("/run/udev");
    tree.file("/run/nvidia-persistenced/socket", "").file("/run/nvidia-fabricmanager/socket", "");
    tree.dir("/tmp/nvidia-mps").file(&format!("/lib/firmware/nvidia/{DRIVER}/gsp_ga10x.bin"), "");
    for path in [
        "/usr/share/vulkan/icd.d/nvidia_icd.json",
        "/usr/share/vulkan/icd.d/nvidia_icd.aarch64.json",
        "/usr/share/glvnd/egl_vendor.d/10_nvidia.json",
        "/usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json",
        "/usr/share/nvidia/nvoptix.bin",
        "/etc/OpenCL/vendors/nvidia.icd",
        "/usr/lib/x86_64-linux-gnu/nvidia/xorg/nvidia_drv.so",
    ] {
        tree.file(path, "{}");
    }
}

/// Puts the last GPU of [`nvidia`] (minor 0) into MIG mode, with two compute instances.
pub fn mig(tree: &StandIn) {
    tree.file(
        "/proc/driver/nvidia-caps/mig-minors",
        "config 1\nmonitor 2\ngpu0/gi1/access 3\ngpu0/gi1/ci0/access 4\ngpu0/gi2/access 5\ngpu0/gi2/ci0/access 6\n\
         gpu0/gi3/access 7\ngpu0/gi3/ci0/access 8\n",
    );
    let capabilities = "/proc/driver/nvidia/capabilities/gpu0/mig";
    for gi in [1, 2] {
        tree.file(&format!("{capabilities}/gi{gi}/access"), "")
            .file(&format!("{capabilities}/gi{gi}/ci0/access"), "");
    }
    for cap in 1..9 {
        tree.file(&format!("/dev/nvidia-caps/nvidia-cap{cap}"), "");
    }
}

/// Adds AMD GPUs to KFD's topology, behind one node that is a CPU.
pub fn amd(tree: &StandIn, gpus: usize) {
    let nodes = "/sys/class/kfd/kfd/topology/nodes";
    tree.file("/dev/kfd", "").file(&format!("{nodes}/0/gpu_id"), "0\n");
    tree.file(&format!("{nodes}/0/properties"), "cpu_cores_count 64\ndrm_render_minor 0\n");
    for n in 0..gpus {
        let (bus, render) = (0xc1 + n, 128 + n);
        tree.file(&format!("{nodes}/{}/gpu_id", n + 1), "4711\n");
        tree.file(
            &format!("{nodes}/{}/properties", n + 1),
            format!(
                "simd_count 440\nlocation_id {}\ndomain 0\ndrm_render_minor {render}\nunique_id {}\n",
                bus << 8,
                100 + n
            ),
        );
        let device = format!("/sys/bus/pci/devices/0000:{bus:x}:00.0/drm");
        tree.dir(&format!("{device}/card{n}")).dir(&format!("{device}/renderD{render}"));
        tree.file(&format!("/dev/dri/card{n}"), "").file(&format!("/dev/dri/renderD{render}"), "");
    }
}

/// Adds ROCm's runtime and HIP of one release to `dir`, which need `glibc`.
pub fn rocm(tree: &StandIn, dir: &str, release: &'static str, glibc: &'static str) {
    let libc = ("libc.so.6", vec![glibc]);
    let named = |soname: &str| -> &'static str { soname.to_owned().leak() };
    let kmt = Library {
        requires: vec![libc.clone()],
        needed: vec!["libc.so.6"],
        ..Library::named("libhsakmt.so.1")
    };
    tree.library(&format!("{dir}/libhsakmt.so.1.0.6"), &kmt);
    let hsa = Library {
        needed: vec!["libhsakmt.so.1", "libc.so.6"],
        defines: vec!["ROCR_1"],
        requires: vec![libc.clone()],
        ..Library::named("libhsa-runtime64.so.1")
    };
    tree.library(&format!("{dir}/libhsa-runtime64.so.1.{release}"), &hsa);
    let hip = Library {
        needed: vec!["libhsa-runtime64.so.1", "libc.so.6"],
        requires: vec![("libhsa-runtime64.so.1", vec!["ROCR_1"]), libc],
        ..Library::named(named(&format!("libamdhip64.so.{release}")))
    };
    tree.library(&format!("{dir}/libamdhip64.so.{release}.2"), &hip);
}

/// Adds Intel GPUs.
pub fn intel(tree: &StandIn, gpus: usize) {
    for n in 0..gpus {
        let (pci, render) = (format!("0000:{:x}:00.0", 0x4d + n), 128 + n);
        let device = format!("/sys/devices/pci0000:4c/{pci}");
        tree.file(&format!("{device}/vendor"), "0x8086\n");
        tree.dir(&format!("{device}/drm/card{n}")).dir(&format!("{device}/drm/renderD{render}"));
        tree.link(&format!("/sys/bus/pci/devices/{pci}"), &format!("../../../devices/pci0000:4c/{pci}"));
        tree.link(&format!("{device}/drm/renderD{render}/device"), "../..");
        tree.link(
            &format!("/sys/class/drm/renderD{render}"),
            &format!("../../devices/pci0000:4c/{pci}/drm/renderD{render}"),
        );
        tree.file(&format!("/dev/dri/card{n}"), "").file(&format!("/dev/dri/renderD{render}"), "");
    }
}

/// An RDMA device of [`rdma`].
pub struct Hca {
    /// `mlx5_0`.
    pub name: &'static str,
    /// PCI address.
    pub pci: &'static str,
    /// The kernel's driver.
    pub driver: &'static str,
    /// The number in uverbsN.
    pub uverbs: u32,
    /// The number in umadN and issmN, which a VF has not.
    pub umad: Option<u32>,
    /// It shows in infiniband_cm.
    pub cm: bool,
}

/// Adds RDMA devices.
pub fn rdma(tree: &StandIn, devices: &[Hca]) {
    tree.file("/sys/class/infiniband_verbs/abi_version", "6\n").file("/dev/infiniband/rdma_cm", "");
    for hca in devices {
        let (name, pci) = (hca.name, hca.pci);
        let device = format!("/sys/devices/pci0000:3a/{pci}");
        tree.link(&format!("{device}/driver"), &format!("../../../bus/pci/drivers/{}", hca.driver));
        tree.file(
            &format!("{device}/infiniband/{name}/node_guid"),
            format!("0c42:a103:0000:{:04x}\n", hca.uverbs),
        );
        let entry = |class: &str, entry: &str| {
            if class != "infiniband" {
                tree.file(&format!("{device}/{class}/{entry}/ibdev"), format!("{name}\n"));
            }
            tree.link(&format!("{device}/{class}/{entry}/device"), "../..");
            tree.link(
                &format!("/sys/class/{class}/{entry}"),
                &format!("../../devices/pci0000:3a/{pci}/{class}/{entry}"),
            );
        };
        entry("infiniband", name);
        entry("infiniband_verbs", &format!("uverbs{}", hca.uverbs));
        tree.file(&format!("/dev/infiniband/uverbs{}", hca.uverbs), "");
        if let Some(n) = hca.umad {
            entry("infiniband_mad", &format!("umad{n}"));
            entry("infiniband_mad", &format!("issm{n}"));
            tree.file(&format!("/dev/infiniband/umad{n}"), "").file(&format!("/dev/infiniband/issm{n}"), "");
        }
        if hca.cm {
            entry("infiniband_cm", &format!("ucm{}", hca.uverbs));
        }
    }
}

/// Adds Slingshot devices.
pub fn cxi(tree: &StandIn, count: usize) {
    for n in 0..count {
        let pci = format!("0000:2{n}:00.0");
        tree.dir(&format!("/sys/devices/pci0000:20/{pci}/cxi/cxi{n}"));
        tree.link(&format!("/sys/devices/pci0000:20/{pci}/cxi/cxi{n}/device"), "../..");
        tree.link(&format!("/sys/class/cxi/cxi{n}"), &format!("../../devices/pci0000:20/{pci}/cxi/cxi{n}"));
        tree.file(&format!("/dev/cxi{n}"), "");
    }
    tree.file("/dev/ss0", "").file("/dev/xpmem", "");
}

/// Adds rdma-core of one release: libibverbs, librdmacm and a provider, which need `glibc`.
pub fn rdma_core(tree: &StandIn, abi: &'static str, glibc: &'static str, provider: &str) {
    let private: &'static str = format!("IBVERBS_PRIVATE_{abi}").leak();
    let libc = ("libc.so.6", vec![glibc]);
    let verbs = Library {
        needed: vec!["libc.so.6", "libnl-3.so.200"],
        defines: vec!["IBVERBS_1.0", "IBVERBS_1.1", private],
        requires: vec![libc.clone()],
        ..Library::named("libibverbs.so.1")
    };
    tree.library(&format!("{LIB}/libibverbs.so.1.14.{abi}"), &verbs);
    let netlink = Library {
        needed: vec!["libc.so.6"],
        requires: vec![libc.clone()],
        ..Library::named("libnl-3.so.200")
    };
    tree.library(&format!("{LIB}/libnl-3.so.200.26.0"), &netlink);
    let cm = Library {
        needed: vec!["libibverbs.so.1", "libc.so.6"],
        requires: vec![("libibverbs.so.1", vec!["IBVERBS_1.1", private]), libc.clone()],
        ..Library::named("librdmacm.so.1")
    };
    tree.library(&format!("{LIB}/librdmacm.so.1.3.{abi}"), &cm);
    let plugin = Library {
        needed: vec!["libibverbs.so.1", "libc.so.6"],
        requires: vec![("libibverbs.so.1", vec![private]), libc],
        ..Library::default()
    };
    tree.file(&format!("{LIB}/libibverbs/lib{provider}-rdmav{abi}.so"), plugin.bytes());
    tree.file(&format!("/etc/libibverbs.d/{provider}.driver"), format!("driver {provider}\n"));
}

/// Adds libfabric with what it is linked to.
pub fn libfabric(tree: &StandIn, versions: &[&'static str], needed: &[&'static str], glibc: &'static str) {
    for library in needed {
        let part = Library {
            requires: vec![("libc.so.6", vec![glibc])],
            needed: vec!["libc.so.6"],
            ..Library::named(library)
        };
        tree.library(&format!("{LIB}/{library}.0.0"), &part);
    }
    let fabric = Library {
        needed: ["libc.so.6"].iter().chain(needed).copied().collect(),
        defines: versions.to_vec(),
        requires: vec![("libc.so.6", vec![glibc])],
        ..Library::named("libfabric.so.1")
    };
    tree.library(&format!("{LIB}/libfabric.so.1.17.0"), &fabric);
}

/// A container's root with glibc, or what passes for it.
pub fn glibc_root(tree: &StandIn) {
    for dir in ["/run", "/dev", "/proc", "/sys", "/tmp", "/usr/local/sbin", "/usr/bin", "/etc"] {
        tree.dir(dir);
    }
    let libc =
        Library { defines: vec!["GLIBC_2.2.5", "GLIBC_2.28", "GLIBC_2.34"], ..Library::named("libc.so.6") };
    tree.library("/lib/x86_64-linux-gnu/libc.so.6", &libc);
    tree.file("/lib64/ld-linux-x86-64.so.2", Library::named("ld-linux-x86-64.so.2").bytes());
}

/// Is there a file at the real place of `path`?
pub fn exists(dir: &Path, path: &str) -> bool {
    dir.join(path.trim_start_matches('/')).symlink_metadata().is_ok()
}
