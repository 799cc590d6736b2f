//! A CDI spec of the node's NVIDIA GPUs, for engines that read such specs themselves.

use super::{ContainerEdits, Device, DeviceNode, Hook, Mount, Spec};
use crate::command::{self, Call};
use crate::kit::bundle::{Bundle, State};
use crate::kit::edits::{Access, Edits};
use crate::kit::tree::Tree;
use crate::kit::{apply, libraries};
use crate::nvidia::{self, driver::Driver};
use rt_sys::bail;
use rt_sys::error::{Context, Result};
use std::path::{Path, PathBuf};

/// The directory of a spec's libraries in the container. Every image has /run.
const FOLDER: &str = "/run/rt/gpu/lib";

/// Prints the spec.
pub(crate) fn run(call: &Call) -> Result<String> {
    let host = Tree::open(&call.root)?;
    let Some(driver) = Driver::find(&host)? else {
        bail!("no NVIDIA driver is loaded on this node (/proc/driver/nvidia/version is missing)");
    };
    let text =
        serde_json::to_string_pretty(&spec(&driver, &host, &call.root)?).map_err(rt_spec::json_error)?;
    Ok(text + "\n")
}

/// A device for each GPU by index and by UUID, and one for all.
fn spec(driver: &Driver, host: &Tree, root: &Path) -> Result<Spec> {
    // A spec is for any image, so it is made for one that is empty and asks for everything.
    let config = r#"{"ociVersion":"1.0.0","root":{"path":"proc"},"process":{"cwd":"/","user":{"uid":0,"gid":0},
        "env":["NVIDIA_VISIBLE_DEVICES=all","NVIDIA_DRIVER_CAPABILITIES=all"]}}"#;
    let config = rt_spec::Config::parse(config.into())?;
    let bundle = Bundle::from_spec(&config.spec, Path::new("/"))?;
    let empty = Tree::open(Path::new("/proc/self/fdinfo"))?;
    let all = nvidia::edits(&bundle, host, &empty)?;
    let of_gpu = |path: &Path| driver.gpus.iter().position(|g| belongs(path, g, host));
    let mut devices = Vec::new();
    for (n, gpu) in driver.gpus.iter().enumerate() {
        let nodes =
            all.devices.iter().filter(|d| of_gpu(&d.path) == Some(n)).map(|d| node(&d.source, &d.path, root));
        let edits = ContainerEdits { device_nodes: nodes.collect(), ..ContainerEdits::default() };
        let names = [n.to_string(), gpu.uuid.clone()].into_iter();
        let named = names.filter(|name| !name.is_empty() && !name.contains('?'));
        devices.extend(named.map(|name| Device { name, container_edits: edits.clone() }));
    }
    let nodes =
        all.devices.iter().filter(|d| of_gpu(&d.path).is_some()).map(|d| node(&d.source, &d.path, root));
    let edits = ContainerEdits { device_nodes: nodes.collect(), ..ContainerEdits::default() };
    devices.push(Device { name: "all".to_owned(), container_edits: edits });
    let common =
        all.devices.iter().filter(|d| of_gpu(&d.path).is_none()).map(|d| node(&d.source, &d.path, root));
    Ok(Spec {
        cdi_version: "0.5.0".to_owned(),
        kind: "nvidia.com/gpu".to_owned(),
        devices,
        container_edits: ContainerEdits {
            device_nodes: common.collect(),
            mounts: mounts(&all, root),
            hooks: vec![ldcache_hook()?],
            ..ContainerEdits::default()
        },
    })
}

/// True for the nodes that are this GPU's only.
fn belongs(path: &Path, gpu: &nvidia::driver::Gpu, host: &Tree) -> bool {
    path == Path::new(&format!("/dev/nvidia{}", gpu.minor))
        || path.strip_prefix("/dev/dri").is_ok_and(|node| {
            host.has(Path::new("/sys/bus/pci/devices").join(&gpu.pci).join("drm").join(node))
        })
}

fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

fn node(source: &Path, path: &Path, root: &Path) -> DeviceNode {
    let host = below(root, source);
    let host_path = (host != path).then_some(host);
    DeviceNode {
        path: path.to_owned(),
        host_path,
        permissions: Some("rw".to_owned()),
        ..DeviceNode::default()
    }
}

/// Libraries are mounted in one directory, and other files at their own places. Files of /proc are left out, because
/// engines refuse mounts there.
fn mounts(all: &Edits, root: &Path) -> Vec<Mount> {
    let outside = all.binds.iter().filter(|b| !b.path.starts_with("/proc"));
    outside
        .map(|bind| {
            let private = all.private.as_deref().is_some_and(|private| bind.path.starts_with(private));
            let path = match bind.path.file_name() {
                Some(name) if private => Path::new(FOLDER).join(name),
                _ => bind.path.clone(),
            };
            let mode = match bind.access {
                Access::Writable => "rw",
                Access::ReadOnly => "ro",
            };
            let options = [mode, "nosuid", "nodev", "rbind", "rprivate"].map(str::to_owned).to_vec();
            Mount { host_path: below(root, &bind.source), container_path: path, options, kind: None }
        })
        .collect()
}

fn ldcache_hook() -> Result<Hook> {
    let path = std::env::current_exe().context(|| "find this program")?;
    let args = vec!["rt-hook-gpu".to_owned(), "ldcache".to_owned()];
    Ok(Hook { hook_name: "createContainer".to_owned(), path, args, ..Hook::default() })
}

/// Enters the libraries of the spec's directory in the container's ld.so.cache; the spec names this command as its hook.
pub(crate) fn ldcache(_: &Call) -> Result<String> {
    let state = State::parse(&command::stdin()?)?;
    let bundle = Bundle::load(&state.bundle, Some(&state))?;
    // The state that crun gives to createContainer hooks has no pid; these hooks are in the container already.
    if state.pid != 0 || !bundle.has_mount_namespace {
        apply::enter(&state, &bundle)?;
    }
    let container = Tree::of(bundle.open_root()?, &bundle.rootfs);
    let mut edits =
        Edits { private: Some(libraries::private_dir(&container, "ldcache")), ..Edits::default() };
    for name in container.list(FOLDER) {
        let path = Path::new(FOLDER).join(&name);
        let Some(elf) = container.elf(&path) else { continue };
        let Some(flags) = elf.cache_flags() else { continue };
        for name in elf.soname.iter().filter(|soname| **soname != name).chain([&name]) {
            edits.library(name, &path, flags);
        }
    }
    libraries::announce(&mut edits, &container)?;
    apply::apply(&edits, &bundle, Path::new("/"))?;
    Ok(String::new())
}
