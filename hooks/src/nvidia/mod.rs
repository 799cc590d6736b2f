//! NVIDIA GPUs: what the container asks for by `NVIDIA_*`, what the node has, and the edits that follow.

pub mod compat;
pub(crate) mod driver;
mod parts;
pub(crate) mod request;
pub mod require;
pub(crate) mod select;

use super::drm;
use crate::kit::bundle::Bundle;
use crate::kit::edits::{Access, Bind, Edits};
use crate::kit::libraries::{self, FoundLibrary, Libraries};
use crate::kit::tree::Tree;
use driver::Driver;
use ld_so_cache::elf::{self, Class, machine};
use request::{Capability, Request, Visible};
use rt_sys::bail;
use rt_sys::error::{Context, Result};
use select::{JobGpus, Selected};
use std::path::{Path, PathBuf};

const PROC: &str = "/proc/driver/nvidia";

/// What `bundle` gets of the driver on `host`.
pub fn edits(bundle: &Bundle, host: &Tree, container: &Tree) -> Result<Edits> {
    let mut edits = Edits::default();
    let request = Request::of(bundle)?;
    if matches!(request.visible, Visible::Nothing | Visible::Cdi(_)) {
        return Ok(edits);
    }
    // Images for CUDA set NVIDIA_VISIBLE_DEVICES, and run on nodes without a GPU too.
    let Some(driver) = Driver::find(host)? else {
        edits.note("no NVIDIA driver is loaded on this node: nothing is added");
        return Ok(edits);
    };
    let selected = select::select(&request.visible, &driver, &JobGpus::of(bundle), &mut edits.notes)
        .context(|| "NVIDIA_VISIBLE_DEVICES")?;
    check_requirements(&request, &driver, &selected)?;
    let private = libraries::private_dir(container, "gpu");
    add_user_space(&mut edits, &request, &driver, &Places { host, container, bundle, private: &private })?;
    add_devices(&mut edits, &request, &driver, &selected, host);
    add_sockets(&mut edits, &request, &Places { host, container, bundle, private: &private });
    add_proc(&mut edits, &driver, &selected, host);
    if request.wants(Capability::Compute) {
        compat::prefer(&mut edits, &driver, container);
    }
    edits.private = Some(private);
    Ok(edits)
}

/// What a precreate hook changes in the environment: the numbers of the job's GPUs.
pub fn renumbered(bundle: &Bundle, host: &Tree) -> Result<Vec<String>> {
    let request = Request::of(bundle)?;
    if request.visible != Visible::All {
        return Ok(Vec::new());
    }
    let Some(driver) = Driver::find(host)? else { return Ok(Vec::new()) };
    let new = select::renumber(&request.visible, &driver, &JobGpus::of(bundle))?;
    let variables = new.map(|new| {
        vec![format!("CUDA_VISIBLE_DEVICES={}", new.cuda), format!("NVIDIA_VISIBLE_DEVICES={}", new.visible)]
    });
    Ok(variables.unwrap_or_default())
}

/// The trees between which files are bound, and the hook's directory.
struct Places<'a> {
    host: &'a Tree,
    container: &'a Tree,
    bundle: &'a Bundle,
    private: &'a Path,
}

/// Fails where the driver or a selected GPU is not what the image needs.
fn check_requirements(request: &Request, driver: &Driver, selected: &Selected) -> Result<()> {
    let gpus = selected.all_gpus(driver);
    for request::Requirement { variable, expression } in &request.requires {
        let facts = |gpu: Option<&driver::Gpu>| require::Facts {
            cuda: parts::cuda_version(driver).to_owned(),
            driver: driver.version.clone(),
            arch: gpu.map(parts::compute_capability).unwrap_or_default().to_owned(),
            brand: gpu.map_or("unknown", parts::brand).to_owned(),
        };
        let of_each: Vec<require::Facts> = match gpus[..] {
            [] => vec![facts(None)],
            _ => gpus.iter().map(|n| facts(Some(&driver.gpus[*n]))).collect(),
        };
        for facts in of_each {
            if !require::holds(expression, &facts).context(|| variable)? {
                bail!(
                    "the image needs {expression:?} ({variable}); this node has cuda {}, driver {}, arch {}, brand {} \
                     (NVIDIA_DISABLE_REQUIRE=1 goes on nevertheless)",
                    or_unknown(&facts.cuda),
                    facts.driver,
                    or_unknown(&facts.arch),
                    facts.brand
                );
            }
        }
    }
    Ok(())
}

fn or_unknown(text: &str) -> &str {
    if text.is_empty() { "unknown" } else { text }
}

/// Libraries, programs, configuration and firmware.
fn add_user_space(edits: &mut Edits, request: &Request, driver: &Driver, places: &Places<'_>) -> Result<()> {
    let mut host = Libraries::of(places.host);
    let unknown = |stem| host.named(stem).iter().all(|found| is_32bit(found.flags));
    if parts::ESSENTIAL.iter().all(|(stem, _)| unknown(stem)) {
        let brought = ["lib64", "lib"].map(|dir| format!("{}/{dir}", parts::BROUGHT));
        host = Libraries::in_dirs(places.host, &brought.each_ref().map(String::as_str));
    }
    let mut other_version = None;
    let (mut dirs, mut missing) = (Vec::new(), Vec::new());
    for (stem, capabilities) in parts::LIBRARIES {
        if !parts::wanted(request, capabilities) {
            continue;
        }
        let mut is_missing = true;
        for found in host.named(stem) {
            // The kernel module refuses libraries of another release than its own.
            let fits = found.file_name().ends_with(&format!(".so.{}", driver.version))
                || parts::OWN_VERSION.contains(stem);
            if !fits {
                other_version.get_or_insert_with(|| found.path.clone());
                continue;
            }
            if is_32bit(found.flags) && !request.wants(Capability::Compat32) {
                continue;
            }
            if !is_32bit(found.flags) {
                is_missing = false;
                add_driver_dirs(&mut dirs, &found.path, places.host);
            }
            add_library(edits, &found, places.private);
        }
        if is_missing {
            missing.push(*stem);
        }
    }
    for stem in missing {
        if let Some(found) = dirs.iter().find_map(|dir| beside(&host, dir, stem, driver)) {
            add_library(edits, &found, places.private);
        }
    }
    check_essential(edits, request, driver, other_version)?;
    let programs = libraries::program_dir(places.container, places.bundle.env("PATH"));
    for (name, _) in parts::PROGRAMS.iter().filter(|(_, c)| request.wants(*c)) {
        let dirs =
            ["/usr/bin", "/usr/local/bin", "/usr/sbin", "/usr/lib/nvidia/current", "/usr/local/nvidia/bin"];
        let found = || dirs.iter().map(|dir| Path::new(dir).join(name)).filter(|path| places.host.has(path));
        // A script of the node's that starts the program leads to a path that the container does not have.
        if let Some(path) = found().find(|path| places.host.elf(path).is_some()).or_else(|| found().next()) {
            let source = places.host.real(&path).unwrap_or(path);
            edits.bind_at(source, programs.join(name), Access::ReadOnly);
        }
    }
    let firmware = format!("/lib/firmware/nvidia/{}", driver.version);
    // Without /lib the image has no dynamic loader, and so no use for firmware: its root is not covered for it.
    if let Some(source) = places.host.real(&firmware).filter(|_| places.container.has_dir("/lib")) {
        edits.bind_at(source, &firmware, Access::ReadOnly);
    }
    let graphics = parts::wanted(request, &[Capability::Graphics, Capability::Display]);
    for (wanted, files) in
        [(graphics, parts::GRAPHICS_FILES), (request.wants(Capability::Compute), parts::COMPUTE_FILES)]
    {
        for alternatives in files.iter().filter(|_| wanted) {
            if let Some(path) = alternatives.iter().find(|p| places.host.has(p)) {
                let source = places.host.real(path).unwrap_or_else(|| path.into());
                edits.bind_at(source, *path, Access::ReadOnly);
                continue;
            }
            // What reads it looks below /usr/share.
            let shared = alternatives.iter().find_map(|path| Some((path, path.strip_prefix("/usr")?)));
            if let Some((path, rest)) = shared
                && let Some(source) = places.host.real(format!("{}{rest}", parts::BROUGHT))
            {
                edits.bind_at(source, *path, Access::ReadOnly);
            }
        }
    }
    if request.wants(Capability::Display) {
        let mut files = dirs.iter().flat_map(|dir| parts::DISPLAY_FILES.iter().map(|file| dir.join(file)));
        let file = files.find(|path| places.host.has(path));
        edits.binds.extend(file.map(|path| Bind { source: path.clone(), path, access: Access::ReadOnly }));
    }
    Ok(())
}

/// Adds the directory of a library at `path` to those of the driver, and the one that belongs to it: Debian has what alternatives
/// lead to in nvidia/current, which no loader searches, and the rest above it.
fn add_driver_dirs(dirs: &mut Vec<PathBuf>, path: &Path, host: &Tree) {
    let Some(dir) = path.parent() else { return };
    if dirs.iter().any(|known| known == dir) {
        return;
    }
    let above = dir.to_str().and_then(|dir| dir.strip_suffix("/nvidia/current")).map(PathBuf::from);
    let other = above.unwrap_or_else(|| dir.join("nvidia/current"));
    dirs.push(dir.to_owned());
    if host.has_dir(&other) && !dirs.contains(&other) {
        dirs.push(other);
    }
}

/// The driver's library in one of its directories, where no loader finds it. libvdpau opens libvdpau_nvidia by its path.
fn beside(host: &Libraries<'_>, dir: &Path, stem: &str, driver: &Driver) -> Option<FoundLibrary> {
    let dir = if stem == "libvdpau_nvidia.so" { dir.join("vdpau") } else { dir.to_owned() };
    let path = host.tree().real(dir.join(format!("{stem}.{}", driver.version)))?;
    let elf = host.elf(&path)?;
    let flags = elf.cache_flags().filter(|flags| !is_32bit(*flags))?;
    Some(FoundLibrary { names: elf.soname.clone().into_iter().collect(), flags, path })
}

fn is_32bit(flags: i32) -> bool {
    elf::cache_flags(machine::I386, Class::Elf32) == Some(flags)
}

/// The library in the private directory, with a link and an entry of ld.so.cache for each of its names.
fn add_library(edits: &mut Edits, found: &FoundLibrary, private: &Path) {
    let dir = private.join(if is_32bit(found.flags) { "lib32" } else { "lib" });
    let file = found.file_name();
    edits.bind_at(&found.path, dir.join(file), Access::ReadOnly);
    let mut names: Vec<&str> = found.names.iter().map(String::as_str).collect();
    for (link, target) in parts::LINKS {
        if names.contains(target) && !names.contains(link) {
            names.push(link);
        }
    }
    for name in names {
        if name != file {
            edits.link(dir.join(name), file);
        }
        edits.library(name, dir.join(name), found.flags);
    }
}

/// Fails where a capability that was asked for lacks its library of the kernel module's version.
fn check_essential(edits: &Edits, request: &Request, driver: &Driver, other: Option<PathBuf>) -> Result<()> {
    for (stem, capability) in parts::ESSENTIAL.iter().filter(|(_, c)| request.wants(*c)) {
        if edits.libraries.iter().any(|l| l.name.starts_with(stem)) {
            continue;
        }
        let version = &driver.version;
        let Some(other) = other else {
            bail!(
                "{stem}.{version} is not among the host's libraries (install the driver's libraries for {capability:?}, \
                 and run ldconfig)"
            );
        };
        bail!(
            "{} does not fit the loaded NVIDIA module, which is {version} (reload the module, or install the \
             driver's libraries of {version})",
            other.display()
        );
    }
    Ok(())
}

fn add_devices(edits: &mut Edits, request: &Request, driver: &Driver, selected: &Selected, host: &Tree) {
    let mut optional = |path: String| {
        if host.has(&path) {
            edits.device(path);
        }
    };
    // The driver's libraries open it before any GPU.
    optional("/dev/nvidiactl".into());
    if request.wants(Capability::Compute) {
        // CUDA does not initialise without unified memory.
        optional("/dev/nvidia-uvm".into());
        optional("/dev/nvidia-uvm-tools".into());
    }
    let graphics = parts::wanted(request, &[Capability::Graphics, Capability::Display]);
    if graphics {
        optional("/dev/nvidia-modeset".into());
    }
    let gpus = selected.all_gpus(driver);
    for gpu in gpus.iter().map(|n| &driver.gpus[*n]) {
        edits.device(format!("/dev/nvidia{}", gpu.minor));
        if graphics {
            drm::add(edits, &gpu.pci, host);
        }
    }
    if graphics {
        // EGL asks the driver for its GPUs, and not /dev. The profile's mask has 64 bits.
        let mask =
            gpus.iter().map(|n| driver.gpus[*n].minor).filter(|n| *n < 64).fold(0u64, |m, n| m | 1 << n);
        edits.file("/etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf", profile(mask));
    }
    for mig in selected.mig.iter().map(|n| &driver.mig[*n]) {
        mig.caps.iter().for_each(|cap| edits.device(cap_device(*cap)));
    }
    for (asked, name) in [(request.mig_config, "config"), (request.mig_monitor, "monitor")] {
        if !asked {
            continue;
        }
        let caps = driver::caps(host);
        if let Some(minor) = caps.get(name).or_else(|| caps.get(&format!("mig/{name}"))) {
            edits.device(cap_device(*minor));
        }
    }
    add_switched(edits, request, host);
}

fn cap_device(minor: u32) -> String {
    format!("/dev/nvidia-caps/nvidia-cap{minor}")
}

/// Devices and files that have a variable of their own.
fn add_switched(edits: &mut Edits, request: &Request, host: &Tree) {
    const CHANNELS: &str = "/dev/nvidia-caps-imex-channels";
    for channel in &request.imex {
        match channel.as_str() {
            "all" => host.list(CHANNELS).iter().for_each(|name| edits.device(format!("{CHANNELS}/{name}"))),
            number => {
                let path = format!("{CHANNELS}/channel{number}");
                match host.has(&path) {
                    true => edits.device(path),
                    false => edits.warn(format!("NVIDIA_IMEX_CHANNELS: this node has no channel {number}")),
                }
            }
        }
    }
    let listed = |dir: &str, prefix: &str| -> Vec<String> {
        let names = host.list(dir).into_iter().filter(|name| name.starts_with(prefix));
        names.map(|name| format!("{dir}/{name}")).collect()
    };
    if request.gds {
        listed("/dev", "nvidia-fs").into_iter().for_each(|path| edits.device(path));
        for path in ["/etc/cufile.json", "/run/udev"].into_iter().filter(|path| host.has(path)) {
            edits.bind(path);
        }
    }
    if request.gdrcopy && host.has("/dev/gdrdrv") {
        edits.device("/dev/gdrdrv");
    }
    if request.nvswitch {
        listed("/dev", "nvidia-nvswitch").into_iter().for_each(|path| edits.device(path));
        if host.has("/dev/nvidia-nvlink") {
            edits.device("/dev/nvidia-nvlink");
        }
    }
    if request.mofed {
        listed("/dev/infiniband", "uverbs").into_iter().for_each(|path| edits.device(path));
        if host.has("/dev/infiniband/rdma_cm") {
            edits.device("/dev/infiniband/rdma_cm");
        }
    }
}

/// An application profile with which EGL uses only the GPUs in `mask`, which has a bit for each device minor.
fn profile(mask: u64) -> String {
    let profile = serde_json::json!({
        "profiles": [{ "name": "_container_", "settings": ["EGLVisibleDGPUDevices", mask] }],
        "rules": [{ "pattern": [], "profile": "_container_" }],
    });
    format!("{profile}\n")
}

fn add_sockets(edits: &mut Edits, request: &Request, places: &Places<'_>) {
    let mut optional = |path: &str| {
        let top = Path::new("/").join(Path::new(path).iter().nth(1).unwrap_or_default());
        let source = places.host.real(path).filter(|_| places.container.has_dir(top));
        edits.binds.extend(source.map(|source| Bind { source, path: path.into(), access: Access::Writable }));
    };
    // Where something is bound at /run, it has them, or no place for them.
    if request.wants(Capability::Utility) && places.private.starts_with("/run") {
        optional("/run/nvidia-persistenced/socket");
        optional("/run/nvidia-fabricmanager/socket");
    }
    if request.wants(Capability::Compute) {
        optional(places.bundle.caller("CUDA_MPS_PIPE_DIRECTORY").unwrap_or("/tmp/nvidia-mps"));
    }
}

/// Hides /proc/driver/nvidia behind a copy that has only the container's GPUs, and parameters that keep the libraries from
/// making device nodes.
fn add_proc(edits: &mut Edits, driver: &Driver, selected: &Selected, host: &Tree) {
    edits.mask(PROC);
    let read = |name: &str| host.read(format!("{PROC}/{name}"));
    // A process with root's rights makes nodes that are missing, those of other jobs' GPUs too, unless the parameters forbid it.
    let params = read("params").map(|text| without_device_files(&text));
    for (name, text) in
        [("params", params), ("version", Some(driver.text.clone())), ("registry", read("registry"))]
    {
        if let Some(text) = text {
            edits.file(format!("{PROC}/{name}"), text);
        }
    }
    for gpu in selected.all_gpus(driver) {
        edits.bind(format!("{PROC}/gpus/{}", driver.gpus[gpu].pci));
    }
    for mig in selected.mig.iter().map(|n| &driver.mig[*n]) {
        let gi = format!("{PROC}/capabilities/gpu{}/mig/gi{}", driver.gpus[mig.gpu].minor, mig.gi);
        for path in [format!("{gi}/access"), format!("{gi}/ci{}/access", mig.ci)] {
            if host.has(&path) {
                edits.bind(path);
            }
        }
    }
}

/// The driver's parameters with ModifyDeviceFiles off.
pub fn without_device_files(params: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(params);
    let lines = text.lines().map(|line| match line.split_once(':') {
        Some(("ModifyDeviceFiles", _)) => "ModifyDeviceFiles: 0\n".to_owned(),
        _ => format!("{line}\n"),
    });
    lines.collect::<String>().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_shall_make_no_nodes() {
        let params = b"ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\nDeviceFileUID: 0\n";
        let text = String::from_utf8(without_device_files(params)).unwrap();
        assert_eq!(text, "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 0\nDeviceFileUID: 0\n");
    }
}
