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

/// What an image needs of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Requirement {
    /// The variable that says so.
    pub variable: String,
    /// See [`super::require`].
    pub expression: String,
}

/// How an image says what it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    /// Images from before CUDA 10 say only `CUDA_VERSION`, and mean all GPUs and capabilities.
    Legacy,
    /// By `NVIDIA_*`.
    Variables,
}

impl Style {
    fn of(bundle: &Bundle) -> Style {
        match bundle.env("CUDA_VERSION").is_some() && bundle.env("NVIDIA_REQUIRE_CUDA").is_none() {
            true => Style::Legacy,
            false => Style::Variables,
        }
    }
}

/// Everything that the environment says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// `NVIDIA_VISIBLE_DEVICES`.
    pub visible: Visible,
    /// `NVIDIA_DRIVER_CAPABILITIES`.
    pub capabilities: Vec<Capability>,
    /// `NVIDIA_REQUIRE_*`.
    pub requires: Vec<Requirement>,
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
        let style = Style::of(bundle);
        let visible = visible(bundle, style);
        if visible == Visible::Nothing {
            return Ok(Request::nothing());
        }
        let switch = |name: &str| bundle.env(name) == Some("enabled");
        let devices = |name: &str| !words(bundle.env(name).unwrap_or_default()).is_empty();
        Ok(Request {
            visible,
            capabilities: capabilities(bundle.env("NVIDIA_DRIVER_CAPABILITIES"), style)?,
            requires: requires(bundle, style)?,
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

fn visible(bundle: &Bundle, style: Style) -> Visible {
    let value = match bundle.env("NVIDIA_VISIBLE_DEVICES") {
        Some(value) => value,
        None if style == Style::Legacy => "all",
        // An image that does not name NVIDIA's variables, in a job that has GPUs.
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

fn capabilities(value: Option<&str>, style: Style) -> Result<Vec<Capability>> {
    let value = match value.map(str::trim) {
        None if style == Style::Legacy => "all",
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

fn requires(bundle: &Bundle, style: Style) -> Result<Vec<Requirement>> {
    if matches!(bundle.env("NVIDIA_DISABLE_REQUIRE"), Some("1" | "t" | "T" | "true" | "TRUE" | "True")) {
        return Ok(Vec::new());
    }
    let named = bundle.env_with_prefix("NVIDIA_REQUIRE_").into_iter();
    let requirement = |(variable, expression): (&str, &str)| Requirement {
        variable: variable.to_owned(),
        expression: expression.to_owned(),
    };
    let mut all: Vec<Requirement> = named.map(requirement).collect();
    if style == Style::Legacy
        && let Some(version) = bundle.env("CUDA_VERSION")
    {
        let mut parts = version.split('.');
        let mut number = || parts.next().and_then(|n| n.parse::<u32>().ok());
        let major = number().ok_or_else(|| err!("CUDA_VERSION {version:?} is not a version"))?;
        let minor = number().unwrap_or(0);
        all.push(requirement(("CUDA_VERSION", &format!("cuda>={major}.{minor}"))));
    }
    Ok(all)
}
