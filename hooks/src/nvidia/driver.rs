//! The NVIDIA driver as the kernel shows it in /proc/driver/nvidia and /dev. NVML is not used and no device is opened,
//! because opening a GPU initialises it, which can take seconds.

use crate::kit::tree::Tree;
use rt_sys::error::Result;
use rt_sys::{bail, err};

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
    /// All MIG compute instances, in the order of their GPUs.
    pub mig: Vec<Mig>,
    /// The capabilities that the driver has device nodes for.
    pub caps: Vec<Cap>,
}

/// A capability of the driver: who may open its node may use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cap {
    /// Such as `mig/config`.
    pub name: String,
    /// The number in /dev/nvidia-caps/nvidia-capN.
    pub minor: u32,
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
        let caps = host.text("/proc/driver/nvidia-caps/mig-minors").map(|t| caps(&t)).unwrap_or_default();
        let mig = instances(&gpus, &caps);
        Ok(Some(Driver { version: version.to_owned(), text, gpus, mig, caps }))
    }

    /// The minor number of the capability called `name`.
    pub(crate) fn cap(&self, name: &str) -> Option<u32> {
        self.caps.iter().find(|cap| cap.name == name).map(|cap| cap.minor)
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

/// Lines of mig-minors: `gpu0/gi1/ci0/access 12`.
fn caps(text: &str) -> Vec<Cap> {
    let pairs = text.lines().filter_map(|line| line.trim().rsplit_once(' '));
    pairs
        .filter_map(|(name, minor)| Some(Cap { name: name.trim().to_owned(), minor: minor.parse().ok()? }))
        .collect()
}

/// The compute instances among the capabilities. `gpuN` counts device minors.
///
/// The table lists every instance that is possible. [`existing`] keeps those that have been made.
fn instances(gpus: &[Gpu], caps: &[Cap]) -> Vec<Mig> {
    let mut all: Vec<Mig> = caps
        .iter()
        .filter_map(|Cap { name, minor }| {
            let mut parts = name.split('/');
            let number = |part: Option<&str>, prefix: &str| part?.strip_prefix(prefix)?.parse::<u32>().ok();
            let (gpu, gi, ci) =
                (number(parts.next(), "gpu")?, number(parts.next(), "gi")?, number(parts.next(), "ci")?);
            let access = format!("gpu{gpu}/gi{gi}/access");
            let outer = caps.iter().find(|cap| cap.name == access)?.minor;
            let gpu = gpus.iter().position(|g| g.minor == gpu)?;
            Some(Mig { gpu, gi, ci, caps: [outer, *minor] })
        })
        .collect();
    all.sort_unstable_by_key(|m| (m.gpu, m.gi, m.ci));
    all
}

/// Keeps the instances that exist now: those with a directory in procfs.
pub(crate) fn existing(driver: &mut Driver, host: &Tree) {
    let gpus = &driver.gpus;
    driver.mig.retain(|m| {
        let gpu = gpus[m.gpu].minor;
        host.has(format!("{PROC}/capabilities/gpu{gpu}/mig/gi{}/ci{}/access", m.gi, m.ci))
    });
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

    #[test]
    fn instances_belong_to_the_gpu_of_their_minor() {
        let gpu = |minor| Gpu { minor, ..Gpu::default() };
        let table =
            caps("config 1\nmonitor 2\ngpu3/gi1/access 3\ngpu3/gi1/ci0/access 4\ngpu7/gi0/ci0/access 9");
        let found = instances(&[gpu(5), gpu(3)], &table);
        assert_eq!(found, [Mig { gpu: 1, gi: 1, ci: 0, caps: [3, 4] }]);
    }
}
