//! The NVIDIA driver as the kernel shows it in /proc/driver/nvidia and /dev. NVML is not used and no device is opened,
//! because opening a GPU initialises it, which can take seconds.

use crate::kit::tree::Tree;
use rt_sys::error::Result;
use rt_sys::{bail, err};
use std::collections::HashMap;

const PROC: &str = "/proc/driver/nvidia";

/// The loaded driver and its devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Driver {
    /// The module's version, such as `535.261.03`.
    pub version: String,
    /// The text of /proc/driver/nvidia/version.
    pub text: Vec<u8>,
    /// In the order of PCI addresses, as nvidia-smi and CUDA (PCI_BUS_ID) number them.
    pub gpus: Vec<Gpu>,
    /// The MIG compute instances that have been made, in the order of their GPUs.
    pub mig: Vec<Mig>,
}

/// A GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gpu {
    /// PCI address as in /proc/driver/nvidia/gpus.
    pub pci: String,
    /// `GPU-…`; with question marks while nothing has initialised the GPU since boot.
    pub uuid: String,
    /// The number in /dev/nvidiaN.
    pub minor: u32,
    /// `NVIDIA A100-SXM4-40GB` and the like.
    pub model: String,
    /// PCI device number, 0 where unknown.
    pub device: u16,
}

/// A MIG compute instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mig {
    /// Index of its GPU in [`Driver::gpus`].
    pub gpu: usize,
    /// GPU instance.
    pub gi: u32,
    /// Compute instance.
    pub ci: u32,
    /// The capabilities that open both.
    pub caps: [u32; 2],
}

impl Driver {
    /// Looks for the driver below `host`; `None` where none is loaded.
    pub(crate) fn find(host: &Tree) -> Result<Option<Driver>> {
        let Some(text) = host.read(format!("{PROC}/version")) else { return Ok(None) };
        let shown = String::from_utf8_lossy(&text);
        let version =
            version_of(&shown).ok_or_else(|| err!("{PROC}/version names no version: {:?}", shown.trim()))?;
        let mut gpus = Vec::new();
        for pci in host.list(format!("{PROC}/gpus")) {
            let Some(text) = host.text(format!("{PROC}/gpus/{pci}/information")) else { continue };
            gpus.push(gpu(host, pci, &text)?);
        }
        let mig = instances(&gpus, host);
        Ok(Some(Driver { version: version.to_owned(), text, gpus, mig }))
    }

    /// The part of the version in front of the first dot.
    pub(crate) fn branch(&self) -> u32 {
        self.version.split('.').next().and_then(|n| n.parse().ok()).unwrap_or(0)
    }
}

/// `NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.261.03  …`: the first word that is a version.
fn version_of(text: &str) -> Option<&str> {
    let line = text.lines().find(|l| l.starts_with("NVRM"))?;
    line.split_ascii_whitespace().find(|word| {
        word.contains('.') && word.split('.').all(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    })
}

fn gpu(host: &Tree, pci: String, text: &str) -> Result<Gpu> {
    let field = |name: &str| {
        let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
        pairs.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
    };
    let Some(minor) = field("Device Minor").and_then(|n| n.parse().ok()) else {
        bail!(
            "{PROC}/gpus/{pci}/information names no device minor (the driver may have lost the GPU: see dmesg)"
        );
    };
    let device = host.text(format!("/sys/bus/pci/devices/{pci}/device"));
    let device = device.and_then(|d| u16::from_str_radix(d.trim_start_matches("0x"), 16).ok()).unwrap_or(0);
    Ok(Gpu {
        uuid: field("GPU UUID").unwrap_or_default(),
        model: field("Model").unwrap_or_default(),
        pci,
        minor,
        device,
    })
}

/// The capabilities that the driver has device nodes for (who may open a node may use it): the number in
/// /dev/nvidia-caps/nvidia-capN by the name, such as `gpu0/gi1/ci0/access`.
///
/// The table has a line for each instance that could be made, 3000 in all, and the driver takes 5 ms to write it. So it is
/// read only by those who need a number of it.
pub(crate) fn caps(host: &Tree) -> HashMap<String, u32> {
    let text = host.text("/proc/driver/nvidia-caps/mig-minors").unwrap_or_default();
    let pairs = text.lines().filter_map(|line| line.trim().rsplit_once(' '));
    pairs.filter_map(|(name, minor)| Some((name.trim().to_owned(), minor.parse().ok()?))).collect()
}

/// The compute instances that exist: those with a directory in procfs, which counts GPUs by their device minors.
fn instances(gpus: &[Gpu], host: &Tree) -> Vec<Mig> {
    let numbered = |dir: &str, prefix: &str| -> Vec<u32> {
        host.list(dir).iter().filter_map(|name| name.strip_prefix(prefix)?.parse().ok()).collect()
    };
    let mut found = Vec::new();
    for (gpu, Gpu { minor, .. }) in gpus.iter().enumerate() {
        let dir = format!("{PROC}/capabilities/gpu{minor}/mig");
        for gi in numbered(&dir, "gi") {
            found.extend(numbered(&format!("{dir}/gi{gi}"), "ci").into_iter().map(|ci| (gpu, gi, ci)));
        }
    }
    if found.is_empty() {
        return Vec::new();
    }
    found.sort_unstable();
    let caps = caps(host);
    let known = found.into_iter().filter_map(|(gpu, gi, ci)| {
        let instance = format!("gpu{}/gi{gi}", gpus[gpu].minor);
        let outer = caps.get(&format!("{instance}/access"))?;
        let inner = caps.get(&format!("{instance}/ci{ci}/access"))?;
        Some(Mig { gpu, gi, ci, caps: [*outer, *inner] })
    });
    known.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_both_modules_are_read() {
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.261.03  Tue Jun 10 2025\nGCC version: 12.2.0";
        assert_eq!(version_of(closed), Some("535.261.03"));
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.14  Release Build";
        assert_eq!(version_of(open), Some("550.54.14"));
        assert_eq!(version_of("GCC version: 12.2.0"), None);
    }
}
