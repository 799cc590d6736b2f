//! AMD GPUs: /dev/kfd and the DRM nodes of the GPUs that KFD's topology names, and ROCm's libraries where they are
//! asked for.

use super::drm;
use crate::kit::bundle::Bundle;
use crate::kit::edits::Edits;
use crate::kit::fit::{self, Fit};
use crate::kit::libraries;
use crate::kit::numbering::{self, is_for_any_vendor, job_list, renumbered, words};
use crate::kit::tree::Tree;
use rt_sys::error::{Context, Result};
use rt_sys::{bail, err};

const NODES: &str = "/sys/class/kfd/kfd/topology/nodes";
const LIBRARIES: &str = "RT_AMD_LIBRARIES";
/// Sets of ROCm's libraries, each by its name without a version. The first library of a set must be on the node; the
/// others are added if they are there. The libraries that these need are added too.
const SETS: &[(&str, &[&str])] = &[
    ("hsa", &["libhsa-runtime64.so"]),
    // libamdhip64 opens libamd_comgr with dlopen(3), so no NEEDED entry names it.
    ("hip", &["libamdhip64.so", "libamd_comgr.so", "libhiprtc.so"]),
    ("smi", &["librocm_smi64.so", "libamd_smi.so"]),
];

/// A GPU of KFD's topology.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Gpu {
    /// `GPU-…` of ROCR_VISIBLE_DEVICES.
    uuid: String,
    /// PCI address.
    pci: String,
    /// The number in /dev/dri/renderD….
    render: u32,
}

/// What the environment asks for.
enum Request {
    Nothing,
    All,
    These(Vec<String>),
}

/// What `bundle` gets of the AMD GPUs on `host`.
pub(crate) fn edits(bundle: &Bundle, host: &Tree, container: &Tree) -> Result<Edits> {
    let mut edits = Edits::default();
    let request = request(bundle);
    if matches!(request, Request::Nothing) {
        return Ok(edits);
    }
    let gpus = gpus(host)?;
    if gpus.is_empty() {
        edits.note("no AMD GPU on this node: nothing is added");
        return Ok(edits);
    }
    let chosen = match request {
        Request::These(list) => pick(&list, &gpus).context(|| "AMD_VISIBLE_DEVICES")?,
        _ => match share(bundle, &gpus)? {
            None => (0..gpus.len()).collect(),
            Some(Share { name, list, gpus: share }) => {
                if renumbered(&list, &share, share.len()).is_some_and(|new| new == list) {
                    share
                } else {
                    edits.note(format!(
                        "{name}={} counts all GPUs of the node, so all are there (as a precreate hook, this hook \
                         would give the job's only, and renumber)",
                        list.join(",")
                    ));
                    (0..gpus.len()).collect()
                }
            }
        },
    };
    // All compute of ROCm goes through this one node; which GPUs it may use the render nodes say, and the device cgroup.
    edits.device("/dev/kfd");
    for gpu in chosen.into_iter().map(|n| &gpus[n]) {
        drm::add(&mut edits, &gpu.pci, host);
        let render = format!("/dev/dri/renderD{}", gpu.render);
        if !host.has(&render) {
            bail!("AMD GPU {} has no {render} (load the amdgpu module, or check /dev/dri)", gpu.pci);
        }
        edits.device(render);
    }
    add_libraries(&mut edits, bundle, host, container)?;
    Ok(edits)
}

/// Adds the sets of libraries that are asked for. A container that has the first library of a set keeps its own set,
/// because the parts of ROCm work only with those of the same release.
fn add_libraries(edits: &mut Edits, bundle: &Bundle, host: &Tree, container: &Tree) -> Result<()> {
    let asked = words(bundle.env(LIBRARIES).unwrap_or_default());
    if asked.is_empty() {
        return Ok(());
    }
    let fit = Fit::new(host, container);
    let dir = libraries::private_dir(container, "gpu").join("lib");
    for word in &asked {
        let Some((_, stems)) = SETS.iter().find(|(name, _)| name == word) else {
            let known: Vec<&str> = SETS.iter().map(|(name, _)| *name).collect();
            bail!("{LIBRARIES}: unknown set {word:?} ({}, none)", known.join(", "));
        };
        if fit.container.newest(stems[0], fit.flags).is_some() {
            edits.note(format!("the container's own {} is used", stems[0]));
            continue;
        }
        let found = stems.iter().filter_map(|stem| fit.host.newest(stem, fit.flags));
        let wanted: Vec<_> = found.collect();
        let set = match wanted.first() {
            Some(library) if library.name.starts_with(stems[0]) => fit.set(&wanted),
            _ => Err(format!("neither container nor host has {} (install ROCm on the node)", stems[0])),
        };
        match set {
            Ok(set) => fit::bring(edits, &set, &dir, fit.flags, host),
            Err(why) => edits.warn(format!("{LIBRARIES}: {word} is not added: {why}")),
        }
    }
    Ok(())
}

/// What a precreate hook changes in the environment.
pub(crate) fn renumbered_env(bundle: &Bundle, host: &Tree) -> Result<Vec<String>> {
    if !matches!(request(bundle), Request::All) {
        return Ok(Vec::new());
    }
    let gpus = gpus(host)?;
    if gpus.is_empty() {
        return Ok(Vec::new());
    }
    let Some(job) = share(bundle, &gpus)? else { return Ok(Vec::new()) };
    let Share { name, list, gpus: share } = job;
    let new = renumbered(&list, &share, share.len()).filter(|new| *new != list);
    let devices: Vec<String> = share.iter().map(usize::to_string).collect();
    Ok(new.map_or(Vec::new(), |new| {
        vec![format!("{name}={}", new.join(",")), format!("AMD_VISIBLE_DEVICES={}", devices.join(","))]
    }))
}

fn request(bundle: &Bundle) -> Request {
    match bundle.env("AMD_VISIBLE_DEVICES").map(str::trim) {
        Some("" | "void" | "none") => Request::Nothing,
        Some("all") => Request::All,
        Some(list) => Request::These(words(list)),
        None if bundle.env("ROCR_VISIBLE_DEVICES").or(bundle.env("HIP_VISIBLE_DEVICES")).is_some() => {
            Request::All
        }
        None => Request::Nothing,
    }
}

/// The GPUs of the job, if the job does not have the whole node.
struct Share {
    /// The variable that names them.
    name: &'static str,
    /// The variable's list.
    list: Vec<String>,
    gpus: Vec<usize>,
}

fn share(bundle: &Bundle, gpus: &[Gpu]) -> Result<Option<Share>> {
    // HIP numbers the GPUs that ROCR_VISIBLE_DEVICES leaves, so that variable decides which GPUs there are.
    let names = ["ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"];
    let found = names.into_iter().find_map(|name| Some((name, job_list(bundle, name)?)));
    let slurm = numbering::slurm_gpus(bundle);
    let Some((name, list)) = found.or_else(|| slurm.clone().map(|_| (names[0], Vec::new()))) else {
        return Ok(None);
    };
    match pick(slurm.as_ref().unwrap_or(&list), gpus) {
        Err(_) if is_for_any_vendor(bundle, name) => Ok(None),
        gpus => Ok(Some(Share { name, list, gpus: gpus.context(|| name)? })),
    }
}

fn pick(list: &[String], gpus: &[Gpu]) -> Result<Vec<usize>> {
    let mut all = Vec::new();
    for word in list {
        let found = match word.parse::<usize>() {
            Ok(index) => Some(index).filter(|index| *index < gpus.len()),
            Err(_) => gpus.iter().position(|g| g.uuid.eq_ignore_ascii_case(word) || g.pci == *word),
        };
        let count = gpus.len();
        all.push(
            found.ok_or_else(|| err!("no AMD GPU {word:?}: this node has {count} (rocminfo lists them)"))?,
        );
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

/// The GPUs of KFD's topology, in the order in which ROCR numbers them.
fn gpus(host: &Tree) -> Result<Vec<Gpu>> {
    let mut nodes: Vec<u32> = host.list(NODES).iter().filter_map(|name| name.parse().ok()).collect();
    nodes.sort_unstable();
    let mut gpus = Vec::new();
    for node in nodes {
        // The kernel lets nobody read the id of a GPU that the device cgroup denies: it is another job's.
        let id = host.text(format!("{NODES}/{node}/gpu_id"));
        if id.is_none_or(|id| id == "0" || id.is_empty()) {
            continue;
        }
        let Some(text) = host.text(format!("{NODES}/{node}/properties")) else { continue };
        gpus.push(gpu(&text).context(|| format!("{NODES}/{node}/properties"))?);
    }
    Ok(gpus)
}

fn gpu(properties: &str) -> Result<Gpu> {
    let value = |name: &str| -> Result<u64> {
        let mut pairs = properties.lines().filter_map(|line| line.trim().split_once(' '));
        let found = pairs.find(|(key, _)| *key == name).and_then(|(_, value)| value.trim().parse().ok());
        found.ok_or_else(|| err!("{name} is missing"))
    };
    // KFD gives the PCI bus, device and function in one number, as the kernel's PCI_DEVID and PCI_DEVFN have them.
    let location = value("location_id")?;
    let pci = format!(
        "{:04x}:{:02x}:{:02x}.{:x}",
        value("domain").unwrap_or(0),
        location >> 8 & 0xff,
        location >> 3 & 0x1f,
        location & 7
    );
    let uuid = format!("GPU-{:016x}", value("unique_id").unwrap_or(0));
    Ok(Gpu { uuid, pci, render: value("drm_render_minor")? as u32 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_name_the_nodes() {
        let text = "cpu_cores_count 0\nsimd_count 440\nlocation_id 50432\ndomain 0\ndrm_render_minor 129\n\
                    unique_id 12345";
        let expected = Gpu { uuid: "GPU-0000000000003039".into(), pci: "0000:c5:00.0".into(), render: 129 };
        assert_eq!(gpu(text).unwrap(), expected);
        assert!(gpu("simd_count 1").is_err());
    }
}
