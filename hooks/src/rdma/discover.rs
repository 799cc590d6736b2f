//! The node's fabrics, from sysfs and /dev.
//!
//! Entries of different classes are matched by the device's name and not by their numbers: a virtual function has no umad,
//! infiniband_cm can be missing, and so the numbers of the classes differ.

use crate::kit::tree::Tree;
use std::path::Path;

/// The library by which programs use a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fabric {
    /// libibverbs.
    Verbs,
    /// libfabric's efa, over verbs.
    Efa,
    /// libpsm2.
    Psm2,
    /// libfabric's cxi.
    Cxi,
}

impl Fabric {
    /// As libfabric calls it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Fabric::Verbs => "verbs",
            Fabric::Efa => "efa",
            Fabric::Psm2 => "psm2",
            Fabric::Cxi => "cxi",
        }
    }
}

/// A device of a fabric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FabricDevice {
    /// `mlx5_0`, `cxi0`.
    pub name: String,
    /// PCI address; empty where it has none.
    pub pci: String,
    /// Node GUID as in sysfs; empty where it has none.
    pub guid: String,
    /// The kernel's driver: `mlx5_core`.
    pub driver: String,
    /// The library that uses it.
    pub fabric: Fabric,
    /// Its nodes in /dev.
    pub nodes: Vec<String>,
    /// Nodes that only an administrator needs: umad, issm.
    pub admin: Vec<String>,
    /// Its entries in /sys/class: class, entry.
    pub classes: Vec<(&'static str, String)>,
}

/// The classes in which InfiniBand devices show.
pub(super) const CLASSES: [&str; 4] = ["infiniband", "infiniband_verbs", "infiniband_mad", "infiniband_cm"];

/// All devices, in the order of their PCI addresses.
pub(super) fn devices(host: &Tree) -> Vec<FabricDevice> {
    let mut all: Vec<FabricDevice> = Vec::new();
    for name in host.list("/sys/class/infiniband") {
        let class = format!("/sys/class/infiniband/{name}");
        all.push(device(host, name, &class, "infiniband"));
    }
    for class in &CLASSES[1..] {
        for entry in host.list(format!("/sys/class/{class}")) {
            let Some(name) = host.text(format!("/sys/class/{class}/{entry}/ibdev")) else { continue };
            let at = match all.iter().position(|d| d.name == name) {
                Some(at) => at,
                // Nodes that hide parts of sysfs can have infiniband_verbs without infiniband.
                None => {
                    all.push(device(host, name, &format!("/sys/class/{class}/{entry}"), class));
                    all.len() - 1
                }
            };
            let node = format!("/dev/infiniband/{entry}");
            if host.has(&node) {
                let device = &mut all[at];
                if *class == "infiniband_verbs" { &mut device.nodes } else { &mut device.admin }.push(node);
            }
            if !all[at].classes.contains(&(*class, entry.clone())) {
                all[at].classes.push((class, entry));
            }
        }
    }
    for device in all.iter_mut().filter(|d| d.driver == "hfi1" || d.name.starts_with("hfi1_")) {
        device.fabric = Fabric::Psm2;
        let node = format!("/dev/{}", device.name);
        device.nodes.extend(host.has(&node).then_some(node));
    }
    for name in host.list("/sys/class/cxi") {
        let node = format!("/dev/{name}");
        let mut device = device(host, name.clone(), &format!("/sys/class/cxi/{name}"), "cxi");
        device.fabric = Fabric::Cxi;
        device.nodes.extend(host.has(&node).then_some(node));
        all.push(device);
    }
    all.sort_by(|a, b| (&a.pci, &a.name).cmp(&(&b.pci, &b.name)));
    all
}

fn device(host: &Tree, name: String, class: &str, kind: &'static str) -> FabricDevice {
    let driver = host.link_name(format!("{class}/device/driver")).unwrap_or_default();
    let pci = host.real(format!("{class}/device")).and_then(|path| pci_of(&path)).unwrap_or_default();
    let guid = host.text(format!("/sys/class/infiniband/{name}/node_guid")).unwrap_or_default();
    let fabric = if driver == "efa" || name.starts_with("efa_") { Fabric::Efa } else { Fabric::Verbs };
    let entry = Path::new(class).file_name().and_then(|n| n.to_str()).unwrap_or_default().to_owned();
    FabricDevice {
        name,
        pci,
        guid,
        driver,
        fabric,
        nodes: Vec::new(),
        admin: Vec::new(),
        classes: vec![(kind, entry)],
    }
}

/// The last part of a path of sysfs that is a PCI address: a sub-function stands below its function.
fn pci_of(path: &Path) -> Option<String> {
    let parts = path.iter().rev().filter_map(|part| part.to_str());
    let is_pci = |part: &&str| {
        let bytes = part.as_bytes();
        bytes.len() == 12 && bytes[4] == b':' && bytes[7] == b':' && bytes[10] == b'.'
    };
    parts.into_iter().find(is_pci).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sub_functions_belong_to_their_function() {
        let path = "/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/mlx5_core.sf.2";
        assert_eq!(pci_of(Path::new(path)).as_deref(), Some("0000:3b:00.0"));
        assert_eq!(pci_of(Path::new("/sys/devices/virtual/infiniband/rxe0")), None);
    }
}
