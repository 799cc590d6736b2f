//! What a container asks for, by its environment.

use crate::kit::bundle::Bundle;
use crate::kit::numbering::words;
use rt_sys::error::Result;
use rt_sys::{bail, err};

/// Which devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Visible {
    /// The container has nothing to do with NVIDIA.
    Nothing,
    /// The driver's libraries, but no GPU.
    NoDevice,
    /// Every GPU.
    All,
    /// These: index, UUID, PCI address, MIG.
    These(Vec<String>),
    /// Devices by their CDI names.
    Cdi(Vec<String>),
}

/// A part of the driver (`NVIDIA_DRIVER_CAPABILITIES`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capability {
    /// 32-bit libraries.
    Compat32,
    /// CUDA and OpenCL.
    Compute,
    /// X11.
    Display,
    /// OpenGL and Vulkan.
    Graphics,
    /// DLSS and the like.
    Ngx,
    /// nvidia-smi and NVML.
    Utility,
    /// Encoding and decoding.
    Video,
}

/// Names, in the order of the documentation.
const CAPABILITIES: &[(&str, Capability)] = &[
    ("compat32", Capability::Compat32),
    ("compute", Capability::Compute),
    ("display", Capability::Display),
    ("graphics", Capability::Graphics),
    ("ngx", Capability::Ngx),
    ("utility", Capability::Utility),
    ("video", Capability::Video),
];

/// Everything that the environment says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// `NVIDIA_VISIBLE_DEVICES`.
    pub visible: Visible,
    /// `NVIDIA_DRIVER_CAPABILITIES`.
    pub capabilities: Vec<Capability>,
    /// `NVIDIA_REQUIRE_*`: name and expression.
    pub requires: Vec<(String, String)>,
    /// `NVIDIA_MIG_CONFIG_DEVICES` is set to something.
    pub mig_config: bool,
    /// `NVIDIA_MIG_MONITOR_DEVICES` is set to something.
    pub mig_monitor: bool,
    /// `NVIDIA_IMEX_CHANNELS`.
    pub imex: Vec<String>,
    /// `NVIDIA_GDS=enabled`.
    pub gds: bool,
    /// `NVIDIA_GDRCOPY=enabled`.
    pub gdrcopy: bool,
    /// `NVIDIA_NVSWITCH=enabled`.
    pub nvswitch: bool,
    /// `NVIDIA_MOFED=enabled`.
    pub mofed: bool,
}

impl Request {
    /// Reads the environment of `bundle`. A wrong value is an error only where the container asks for GPUs.
    pub(crate) fn of(bundle: &Bundle) -> Result<Request> {
        // Images of before CUDA 10: they say only their version, and mean everything.
        let legacy = bundle.env("CUDA_VERSION").is_some() && bundle.env("NVIDIA_REQUIRE_CUDA").is_none();
        let visible = visible(bundle, legacy);
        if visible == Visible::Nothing {
            return Ok(Request::nothing());
        }
        let switch = |name: &str| bundle.env(name) == Some("enabled");
        let devices = |name: &str| !words(bundle.env(name).unwrap_or_default()).is_empty();
        Ok(Request {
            visible,
            capabilities: capabilities(bundle.env("NVIDIA_DRIVER_CAPABILITIES"), legacy)?,
            requires: requires(bundle, legacy)?,
            mig_config: devices("NVIDIA_MIG_CONFIG_DEVICES"),
            mig_monitor: devices("NVIDIA_MIG_MONITOR_DEVICES"),
            imex: words(bundle.env("NVIDIA_IMEX_CHANNELS").unwrap_or_default()),
            gds: switch("NVIDIA_GDS"),
            gdrcopy: switch("NVIDIA_GDRCOPY"),
            nvswitch: switch("NVIDIA_NVSWITCH"),
            mofed: switch("NVIDIA_MOFED"),
        })
    }

    fn nothing() -> Request {
        Request {
            visible: Visible::Nothing,
            capabilities: Vec::new(),
            requires: Vec::new(),
            mig_config: false,
            mig_monitor: false,
            imex: Vec::new(),
            gds: false,
            gdrcopy: false,
            nvswitch: false,
            mofed: false,
        }
    }

    /// True where the container wants this part of the driver.
    pub(crate) fn wants(&self, capability: Capability) -> bool {
        self.capabilities.contains(&capability)
    }
}

fn visible(bundle: &Bundle, legacy: bool) -> Visible {
    let value = match bundle.env("NVIDIA_VISIBLE_DEVICES") {
        Some(value) => value,
        None if legacy => "all",
        // An image that knows nothing of NVIDIA, in a job that has GPUs.
        None if bundle.env("CUDA_VISIBLE_DEVICES").is_some_and(|v| !words(v).is_empty()) => "all",
        None => return Visible::Nothing,
    };
    match value.trim() {
        "" | "void" => Visible::Nothing,
        "none" => Visible::NoDevice,
        "all" => Visible::All,
        list => {
            let list = words(list);
            if list.iter().any(|w| w == "all") {
                Visible::All
            } else if list.iter().any(|w| w.contains('=')) {
                Visible::Cdi(list)
            } else {
                Visible::These(list)
            }
        }
    }
}

fn capabilities(value: Option<&str>, legacy: bool) -> Result<Vec<Capability>> {
    let value = match value.map(str::trim) {
        None if legacy => "all",
        None | Some("") => "utility,compute",
        Some(value) => value,
    };
    let mut all = Vec::new();
    for word in words(value) {
        if word == "all" {
            return Ok(CAPABILITIES.iter().map(|(_, capability)| *capability).collect());
        }
        let Some((_, capability)) = CAPABILITIES.iter().find(|(name, _)| *name == word) else {
            let known: Vec<&str> = CAPABILITIES.iter().map(|(name, _)| *name).collect();
            bail!("NVIDIA_DRIVER_CAPABILITIES: unknown capability {word:?} (all, {})", known.join(", "));
        };
        if !all.contains(capability) {
            all.push(*capability);
        }
    }
    Ok(all)
}

fn requires(bundle: &Bundle, legacy: bool) -> Result<Vec<(String, String)>> {
    if matches!(bundle.env("NVIDIA_DISABLE_REQUIRE"), Some("1" | "t" | "T" | "true" | "TRUE" | "True")) {
        return Ok(Vec::new());
    }
    let named = bundle.env_with_prefix("NVIDIA_REQUIRE_").into_iter();
    let mut all: Vec<(String, String)> = named.map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
    if legacy && let Some(version) = bundle.env("CUDA_VERSION") {
        let mut parts = version.split('.');
        let mut number = || parts.next().and_then(|n| n.parse::<u32>().ok());
        let major = number().ok_or_else(|| err!("CUDA_VERSION {version:?} is not a version"))?;
        let minor = number().unwrap_or(0);
        all.push(("CUDA_VERSION".to_owned(), format!("cuda>={major}.{minor}")));
    }
    Ok(all)
}
