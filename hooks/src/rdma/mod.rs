//! RDMA devices: what the container asks for, the libraries that use them, and which fabric the job will have.

mod discover;
mod nccl;

use super::command::{self, HookProgram};
use crate::kit::bundle::Bundle;
use crate::kit::edits::{Access, Edits};
use crate::kit::fit::{self, Fit};
use crate::kit::libraries::{self, NamedLibrary};
use crate::kit::numbering::words;
use crate::kit::tree::Tree;
use discover::{CLASSES, Fabric, FabricDevice};
use rt_sys::bail;
use rt_sys::caller::{Caller, Privilege};
use rt_sys::error::{Context, Result};
use std::path::{Path, PathBuf};

const MELLANOX: &str = "MELLANOX_VISIBLE_DEVICES";
const DEVICES: &str = "RT_RDMA_DEVICES";
const LIBRARIES: &str = "RT_RDMA_LIBRARIES";
/// Device nodes that belong to no RDMA device: shared memory between processes (xpmem, knem) and with GPUs (gdrdrv).
const SHARED: [&str; 3] = ["/dev/xpmem", "/dev/knem", "/dev/gdrdrv"];

/// libibverbs' providers by the kernel's driver.
const PROVIDERS: &[(&str, &str)] = &[
    ("mlx5_core", "mlx5"),
    ("mlx4_core", "mlx4"),
    ("efa", "efa"),
    ("hfi1", "hfi1verbs"),
    ("irdma", "irdma"),
    ("bnxt_en", "bnxt_re"),
    ("bnxt_re", "bnxt_re"),
    ("qede", "qedr"),
    ("hns3", "hns"),
];

/// Runs the command line of `rt-hook-rdma`; returns its exit status.
pub fn main() -> u8 {
    command::main(&HookProgram {
        name: "rt-hook-rdma",
        about: "Puts RDMA devices into a container, and the libraries that use them where it has none that fit.",
        edits,
        precreate: None,
        commands: &[],
    })
}

/// What `bundle` gets of the fabrics on `host`.
pub fn edits(bundle: &Bundle, host: &Tree, container: &Tree) -> Result<Edits> {
    edits_for(bundle, host, container, Caller::current()?.privilege)
}

/// What `bundle` gets if such a caller calls. Only root of the node gets the nodes for administrators.
pub fn edits_for(bundle: &Bundle, host: &Tree, container: &Tree, caller: Privilege) -> Result<Edits> {
    let mut edits = Edits::default();
    let all = discover::devices(host);
    let Some(chosen) = chosen(bundle, &all)? else {
        if !all.is_empty() && bundle.env(MELLANOX).or(bundle.env(DEVICES)).is_none() {
            edits.warn(format!(
                "this node has {}, and the container asks for no device: its jobs will use tcp ({DEVICES}=all asks \
                 for all)",
                listed(&all)
            ));
        }
        return finish(edits, bundle);
    };
    match all.is_empty() {
        true if is_strict(bundle) => edits.warn("no RDMA device on this node: MPI and NCCL will use tcp"),
        true => edits.note("no RDMA device on this node: nothing is added"),
        false => {}
    }
    for device in &chosen {
        add_device(&mut edits, device, caller)?;
    }
    // librdmacm makes connections by it, whichever device they go over.
    if chosen.iter().any(|d| d.fabric != Fabric::Cxi) && host.has("/dev/infiniband/rdma_cm") {
        edits.device("/dev/infiniband/rdma_cm");
    }
    if chosen.iter().any(|d| d.fabric == Fabric::Cxi) && host.has("/dev/ss0") {
        edits.device("/dev/ss0");
    }
    if !all.is_empty() || bundle.env(DEVICES).is_some() {
        SHARED.iter().filter(|path| host.has(path)).for_each(|path| edits.device(*path));
    }
    hide_others(&mut edits, &all, &chosen, host);
    if !chosen.is_empty() {
        add_libraries(&mut edits, bundle, &chosen, host, container)?;
    }
    if !edits.is_empty() {
        edits.private = Some(libraries::private_dir(container, "rdma"));
        libraries::announce(&mut edits, container)?;
    }
    finish(edits, bundle)
}

/// Turns the first warning into an error where the site or the job would rather fail than run slowly.
fn finish(edits: Edits, bundle: &Bundle) -> Result<Edits> {
    match edits.warnings.first() {
        Some(warning) if is_strict(bundle) => bail!("{warning} (RT_RDMA_STRICT=1)"),
        _ => Ok(edits),
    }
}

fn listed(devices: &[FabricDevice]) -> String {
    let each = devices.iter().map(|d| format!("{} ({})", d.name, d.fabric.name()));
    each.collect::<Vec<_>>().join(", ")
}

/// The devices that the environment names; `None` where it names none on purpose, or says nothing.
fn chosen(bundle: &Bundle, all: &[FabricDevice]) -> Result<Option<Vec<FabricDevice>>> {
    let mellanox: Vec<&FabricDevice> =
        all.iter().filter(|d| matches!(&*d.driver, "mlx4_core" | "mlx5_core")).collect();
    let every: Vec<&FabricDevice> = all.iter().collect();
    let mut chosen: Option<Vec<FabricDevice>> = None;
    for (name, candidates, names) in
        [(MELLANOX, mellanox, Naming::OrByNumber), (DEVICES, every, Naming::ByName)]
    {
        let value = match bundle.env(name).map(str::trim) {
            None | Some("" | "void" | "none") => continue,
            Some(value) => value,
        };
        let list = chosen.get_or_insert_default();
        let found = match value {
            "all" => candidates,
            _ => pick(&words(value), &candidates, names).context(|| name)?,
        };
        list.extend(found.into_iter().cloned());
        list.sort_by(|a, b| (&a.pci, &a.name).cmp(&(&b.pci, &b.name)));
        list.dedup();
    }
    Ok(chosen)
}

/// How a variable names devices.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Naming {
    /// By name, PCI address, GUID or node.
    ByName,
    /// In the same ways, or by number, the n-th in the order of PCI addresses: images for NVIDIA's own hook do so.
    OrByNumber,
}

/// The devices that `list` names.
fn pick<'a>(list: &[String], devices: &[&'a FabricDevice], naming: Naming) -> Result<Vec<&'a FabricDevice>> {
    let mut chosen = Vec::new();
    for word in list {
        let named = |d: &&&FabricDevice| {
            d.name == *word
                || d.pci.eq_ignore_ascii_case(word)
                || (!d.pci.is_empty() && d.pci.trim_start_matches("0000:") == word)
                || (!d.guid.is_empty() && same_guid(&d.guid, word))
                || d.nodes.iter().any(|node| node == word || node.rsplit('/').next() == Some(word))
        };
        let number = word.parse::<usize>().ok().filter(|_| naming == Naming::OrByNumber);
        let found = match number {
            Some(n) => devices.get(n),
            None => devices.iter().find(named),
        };
        let Some(found) = found else {
            let known: Vec<&str> = devices.iter().map(|d| d.name.as_str()).collect();
            bail!("no RDMA device {word:?} on this node (it has {})", or_none(&known.join(", ")));
        };
        chosen.push(*found);
    }
    Ok(chosen)
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "none" } else { text }
}

/// GUIDs with or without colons and 0x.
fn same_guid(a: &str, b: &str) -> bool {
    let digits = |text: &str| text.trim_start_matches("0x").replace(':', "").to_ascii_lowercase();
    digits(a) == digits(b)
}

fn add_device(edits: &mut Edits, device: &FabricDevice, caller: Privilege) -> Result<()> {
    if device.nodes.is_empty() {
        bail!(
            "{} has no node in /dev (load ib_uverbs, or the driver's own module for user space)",
            device.name
        );
    }
    device.nodes.iter().for_each(|node| edits.device(node));
    // Who may send management datagrams can reconfigure the fabric of all nodes.
    if caller == Privilege::Root {
        device.admin.iter().for_each(|node| edits.device(node));
    } else if !device.admin.is_empty() {
        edits.note(format!("{}: {} only for root of the node", device.name, device.admin.join(" ")));
    }
    Ok(())
}

/// Hides the devices of the node that were not chosen from /sys/class, where libibverbs and others look for devices.
fn hide_others(edits: &mut Edits, all: &[FabricDevice], chosen: &[FabricDevice], host: &Tree) {
    if all.iter().all(|d| d.fabric == Fabric::Cxi || chosen.contains(d)) {
        return;
    }
    for class in CLASSES {
        let dir = format!("/sys/class/{class}");
        if !host.has_dir(&dir) {
            continue;
        }
        edits.mask(&dir);
        // Without the version libibverbs takes the kernel for one that has no verbs.
        if let Some(version) = host.read(format!("{dir}/abi_version")) {
            edits.file(format!("{dir}/abi_version"), version);
        }
        for (_, entry) in chosen.iter().flat_map(|d| &d.classes).filter(|(of, _)| *of == class) {
            if let Some(target) = host.link(format!("{dir}/{entry}")) {
                edits.link(format!("{dir}/{entry}"), target);
            }
        }
    }
}

/// Whether a container can use a fabric that it has devices of.
struct FabricUse {
    fabric: Fabric,
    /// The names of the devices.
    devices: Vec<String>,
    /// The error says why the container cannot use it.
    usable: Result<(), String>,
}

/// Adds libraries where the container has none for its devices, and notes which fabrics it can use.
fn add_libraries(
    edits: &mut Edits,
    bundle: &Bundle,
    chosen: &[FabricDevice],
    host: &Tree,
    container: &Tree,
) -> Result<()> {
    let asked = bundle.env(LIBRARIES).unwrap_or("verbs,fabric");
    let asked: Vec<&str> = asked.split(',').map(str::trim).filter(|w| !matches!(*w, "" | "none")).collect();
    if let Some(word) = asked.iter().find(|w| !matches!(**w, "verbs" | "fabric" | "ucx")) {
        bail!("{LIBRARIES}: unknown set {word:?} (verbs, fabric, ucx, none)");
    }
    let space = UserSpace {
        fit: Fit::new(host, container),
        host,
        container,
        dir: libraries::private_dir(container, "rdma").join("lib"),
        verbs: asked.contains(&"verbs"),
        fabric: asked.contains(&"fabric"),
    };
    let mut fabrics: Vec<Fabric> = chosen.iter().map(|d| d.fabric).collect();
    fabrics.sort_unstable();
    fabrics.dedup();
    let mut used = Vec::new();
    for fabric in fabrics {
        let devices: Vec<&FabricDevice> = chosen.iter().filter(|d| d.fabric == fabric).collect();
        let names = devices.iter().map(|d| d.name.clone()).collect();
        let usable = match fabric {
            Fabric::Verbs => space.add_verbs(edits, &devices),
            Fabric::Efa => {
                space.add_verbs(edits, &devices).and_then(|()| space.add_fabric(edits, "libefa.so.1", "efa"))
            }
            Fabric::Psm2 => space.add_fabric(edits, "libpsm2.so.2", "psm2"),
            Fabric::Cxi => space.add_fabric(edits, "libcxi.so.1", "cxi"),
        };
        let found = FabricUse { fabric, devices: names, usable };
        say(edits, &found);
        if found.usable.is_ok() {
            used.push(fabric);
        }
    }
    if asked.contains(&"ucx")
        && let Err(why) = space.add_ucx(edits)
    {
        edits.warn(format!("UCX is not added: {why}"));
    }
    let names: Vec<&str> = used.iter().map(|fabric| fabric.name()).collect();
    edits.note(format!("fabric: {}", if names.is_empty() { "tcp".to_owned() } else { names.join(", ") }));
    say_nccl(edits, bundle, nccl::transport(bundle, &used, edits, &space.fit), || {
        nccl::is_there(bundle, &space.fit)
    });
    Ok(())
}

/// Says which transport NCCL will have. A job that would rather fail than run slowly is warned, if the container has NCCL.
fn say_nccl(
    edits: &mut Edits,
    bundle: &Bundle,
    transport: Result<String, String>,
    is_there: impl Fn() -> bool,
) {
    match transport {
        Ok(by) => edits.note(format!("NCCL: {by}")),
        Err(why) if is_strict(bundle) && is_there() => edits.warn(format!("NCCL will use tcp: {why}")),
        Err(why) => edits.note(format!("NCCL: tcp: {why}")),
    }
}

fn is_strict(bundle: &Bundle) -> bool {
    bundle.job("RT_RDMA_STRICT") == Some("1")
}

fn say(edits: &mut Edits, found: &FabricUse) {
    let (fabric, names) = (found.fabric.name(), found.devices.join(", "));
    match &found.usable {
        Ok(()) => edits.note(format!("{fabric} over {names} can be used")),
        Err(why) => edits.warn(format!(
            "{fabric} over {names} is there, but the container cannot use it, and MPI and NCCL will use tcp: {why}"
        )),
    }
}

/// The libraries of node and container, and where those go that the container gets.
struct UserSpace<'a> {
    fit: Fit<'a>,
    host: &'a Tree,
    container: &'a Tree,
    dir: PathBuf,
    verbs: bool,
    fabric: bool,
}

impl UserSpace<'_> {
    /// libibverbs, librdmacm and the providers of `devices`. A container that has its own for them keeps it.
    fn add_verbs(&self, edits: &mut Edits, devices: &[&FabricDevice]) -> Result<(), String> {
        const VERBS: &str = "libibverbs.so.1";
        let mut providers: Vec<&str> = devices.iter().filter_map(|d| provider(d)).collect();
        providers.sort_unstable();
        providers.dedup();
        if let Some(own) = self.fit.container.find(VERBS, self.fit.flags)
            && providers.iter().all(|p| provider_file(self.container, &own, p).is_some())
        {
            edits.note("the container's own libibverbs serves these devices");
            return Ok(());
        }
        if !self.verbs {
            return Err(format!("the container has no libibverbs for {}", providers.join(", ")));
        }
        let Some(verbs) = self.fit.host.find(VERBS, self.fit.flags) else {
            return Err(format!("neither container nor host has {VERBS} (install rdma-core on the node)"));
        };
        let mut wanted = Vec::new();
        for name in &providers {
            let Some(path) = provider_file(self.host, &verbs, name) else {
                return Err(format!("neither container nor host has libibverbs' provider {name}"));
            };
            let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            wanted.push(NamedLibrary { name: file, path });
        }
        // Providers work only with the libibverbs of their release, and the host's librdmacm needs the host's libibverbs.
        wanted.push(NamedLibrary { name: VERBS.to_owned(), path: verbs });
        let cm = "librdmacm.so.1";
        let found = self.fit.host.find(cm, self.fit.flags);
        wanted.extend(found.map(|path| NamedLibrary { name: cm.to_owned(), path }));
        let set = self.fit.set(&wanted)?;
        fit::bring(edits, &set, &self.dir, self.fit.flags, self.host);
        for name in &providers {
            // libibverbs appends `-rdmavN.so`, with its ABI's number, to the path.
            let text = format!("driver {}\n", self.dir.join(format!("lib{name}")).display());
            edits.file(format!("/etc/libibverbs.d/{name}.driver"), text);
        }
        edits.note(format!("the host's libibverbs is used, with {}", providers.join(", ")));
        Ok(())
    }

    /// libfabric with a provider that needs `library`.
    fn add_fabric(&self, edits: &mut Edits, library: &str, provider: &str) -> Result<(), String> {
        const FABRIC: &str = "libfabric.so.1";
        let serves = |libraries: &libraries::Libraries<'_>, tree: &Tree| -> Option<PathBuf> {
            let path = libraries.find(FABRIC, self.fit.flags)?;
            let elf = libraries.elf(&path)?;
            let plugin = tree.real(&path)?.parent()?.join(format!("libfabric/lib{provider}-fi.so"));
            (elf.needed.iter().any(|n| n == library) || tree.has(plugin)).then_some(path)
        };
        if serves(&self.fit.container, self.container).is_some() {
            edits.note(format!("the container's own libfabric has {provider}"));
            return Ok(());
        }
        if !self.fabric {
            return Err(format!("the container has no libfabric with {provider}"));
        }
        let Some(path) = serves(&self.fit.host, self.host) else {
            return Err(format!("neither container nor host has a libfabric with {provider}"));
        };
        let set = self.fit.set(&[NamedLibrary { name: FABRIC.to_owned(), path }])?;
        fit::bring(edits, &set, &self.dir, self.fit.flags, self.host);
        edits.note(format!("the host's libfabric is used, for {provider}"));
        Ok(())
    }

    /// Adds UCX, with the modules that it looks for in the directory `ucx` beside itself.
    fn add_ucx(&self, edits: &mut Edits) -> Result<(), String> {
        let names = ["libucp.so.0", "libuct.so.0", "libucs.so.0", "libucm.so.0"];
        let mut wanted = Vec::new();
        for name in names {
            let path = self.fit.host.find(name, self.fit.flags);
            let path = path.ok_or_else(|| format!("the host has no {name}"))?;
            wanted.push(NamedLibrary { name: name.to_owned(), path });
        }
        let modules =
            wanted.first().and_then(|first| Some(self.host.real(&first.path)?.parent()?.join("ucx")));
        let set = self.fit.set(&wanted)?;
        fit::bring(edits, &set, &self.dir, self.fit.flags, self.host);
        if let Some(modules) = modules.filter(|dir| self.host.has_dir(dir)) {
            edits.bind_at(modules, self.dir.join("ucx"), Access::ReadOnly);
        }
        Ok(())
    }
}

fn provider(device: &FabricDevice) -> Option<&'static str> {
    PROVIDERS.iter().find(|(driver, _)| *driver == device.driver).map(|(_, provider)| *provider)
}

/// The provider's file for the libibverbs at `verbs`: in the directory beside it, of the ABI that it defines.
fn provider_file(tree: &Tree, verbs: &Path, provider: &str) -> Option<PathBuf> {
    let real = tree.real(verbs)?;
    let elf = tree.elf(&real)?;
    let abi = elf.defines.iter().find_map(|v| v.strip_prefix("IBVERBS_PRIVATE_"))?;
    let file = format!("lib{provider}-rdmav{abi}.so");
    let dirs = [real.parent()?.join("libibverbs"), real.parent()?.to_owned()];
    dirs.into_iter().map(|dir| dir.join(&file)).find(|path| tree.has(path))
}
