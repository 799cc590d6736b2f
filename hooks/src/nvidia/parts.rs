//! The parts of the NVIDIA driver in user space: which libraries, programs and files belong to which capability.

use super::driver::{Driver, Gpu};
use super::request::{Capability, Request};
use Capability::{Compute, Display, Graphics, Ngx, Utility, Video};

/// Libraries by the name in front of their version, and the capabilities that want them.
///
/// The file that is taken is the one whose name ends with the version of the loaded module.
pub(super) const LIBRARIES: &[(&str, &[Capability])] = &[
    ("libnvidia-ml.so", &[Utility]),
    ("libnvidia-cfg.so", &[Utility]),
    ("libnvidia-nscq.so", &[Utility]),
    ("libcuda.so", &[Compute]),
    ("libcudadebugger.so", &[Compute]),
    ("libnvidia-opencl.so", &[Compute]),
    ("libnvidia-gpucomp.so", &[Compute, Graphics]),
    ("libnvidia-ptxjitcompiler.so", &[Compute]),
    ("libnvidia-fatbinaryloader.so", &[Compute]),
    ("libnvidia-allocator.so", &[Compute, Graphics, Display]),
    ("libnvidia-compiler.so", &[Compute]),
    ("libnvidia-pkcs11.so", &[Compute]),
    ("libnvidia-pkcs11-openssl3.so", &[Compute]),
    ("libnvidia-nvvm.so", &[Compute]),
    ("libnvidia-nvvm70.so", &[Compute]),
    ("libnvidia-tileiras.so", &[Compute]),
    ("libnvidia-sandboxutils.so", &[Utility]),
    ("libvdpau_nvidia.so", &[Video]),
    ("libnvidia-encode.so", &[Video]),
    ("libnvidia-opticalflow.so", &[Video]),
    ("libnvcuvid.so", &[Video]),
    ("libnvidia-eglcore.so", &[Graphics, Display]),
    ("libnvidia-glcore.so", &[Graphics, Display]),
    ("libnvidia-tls.so", &[Graphics, Display]),
    ("libnvidia-glsi.so", &[Graphics, Display]),
    ("libnvidia-fbc.so", &[Graphics, Display]),
    ("libnvidia-ifr.so", &[Graphics, Display]),
    ("libnvidia-rtcore.so", &[Graphics, Display]),
    ("libnvoptix.so", &[Graphics, Display]),
    ("libGLX_nvidia.so", &[Graphics, Display]),
    ("libEGL_nvidia.so", &[Graphics, Display]),
    ("libGLESv2_nvidia.so", &[Graphics, Display]),
    ("libGLESv1_CM_nvidia.so", &[Graphics, Display]),
    ("libnvidia-glvkspirv.so", &[Graphics, Display]),
    ("libnvidia-cbl.so", &[Graphics, Display]),
    ("libnvidia-egl-gbm.so", &[Graphics, Display]),
    ("libnvidia-egl-wayland.so", &[Graphics, Display]),
    ("libnvidia-egl-xcb.so", &[Graphics, Display]),
    ("libnvidia-egl-xlib.so", &[Graphics, Display]),
    ("libnvidia-wayland-client.so", &[Graphics, Display]),
    ("libnvidia-vulkan-producer.so", &[Graphics, Display]),
    ("libnvidia-ngx.so", &[Ngx]),
];

/// Libraries that have a version of their own.
pub(super) const OWN_VERSION: &[&str] =
    &["libnvidia-egl-gbm.so", "libnvidia-egl-wayland.so", "libnvidia-nscq.so"];

/// The libraries without which a capability cannot be used.
pub(super) const ESSENTIAL: &[(&str, Capability)] = &[("libnvidia-ml.so", Utility), ("libcuda.so", Compute)];

/// Links that programs expect beside the libraries: link, the name that it leads to.
pub(super) const LINKS: &[(&str, &str)] = &[
    ("libcuda.so", "libcuda.so.1"),
    ("libnvidia-opticalflow.so", "libnvidia-opticalflow.so.1"),
    ("libGLX_indirect.so.0", "libGLX_nvidia.so.0"),
];

/// Programs.
pub(super) const PROGRAMS: &[(&str, Capability)] = &[
    ("nvidia-smi", Utility),
    ("nvidia-debugdump", Utility),
    ("nvidia-persistenced", Utility),
    ("nv-fabricmanager", Utility),
    ("nvidia-cuda-mps-control", Compute),
    ("nvidia-cuda-mps-server", Compute),
    ("nvidia-imex", Compute),
    ("nvidia-imex-ctl", Compute),
];

/// Where a driver is that was brought to the node from elsewhere, as on nodes of Kubernetes: the tree has `bin`, `lib64` and
/// `share`, and no loader may know of it.
pub(super) const BROUGHT: &str = "/usr/local/nvidia";

/// Configuration for graphics: each at the first place where the host has it.
pub(super) const GRAPHICS_FILES: &[&[&str]] = &[
    &["/etc/vulkan/icd.d/nvidia_icd.json", "/usr/share/vulkan/icd.d/nvidia_icd.json"],
    &["/etc/vulkan/icd.d/nvidia_icd.x86_64.json", "/usr/share/vulkan/icd.d/nvidia_icd.x86_64.json"],
    &["/etc/vulkan/icd.d/nvidia_icd.aarch64.json", "/usr/share/vulkan/icd.d/nvidia_icd.aarch64.json"],
    &[
        "/etc/vulkan/implicit_layer.d/nvidia_layers.json",
        "/usr/share/vulkan/implicit_layer.d/nvidia_layers.json",
    ],
    &["/usr/share/glvnd/egl_vendor.d/10_nvidia.json", "/etc/glvnd/egl_vendor.d/10_nvidia.json"],
    &["/usr/share/egl/egl_external_platform.d/10_nvidia_wayland.json"],
    &["/usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json"],
    &["/usr/share/egl/egl_external_platform.d/20_nvidia_xcb.json"],
    &["/usr/share/egl/egl_external_platform.d/20_nvidia_xlib.json"],
    &["/usr/share/nvidia/nvoptix.bin"],
];

/// Where OpenCL's loader looks for the driver's library, as nvidia-container-toolkit has it since 1.20.
pub(super) const COMPUTE_FILES: &[&[&str]] = &[&["/etc/OpenCL/vendors/nvidia.icd"]];

/// X11's driver, below the library directory of the host.
pub(super) const DISPLAY_FILES: &[&str] =
    &["xorg/modules/drivers/nvidia_drv.so", "nvidia/xorg/nvidia_drv.so"];

/// The newest CUDA version of each driver branch, from NVIDIA's release notes. A branch that is not listed has that of the
/// branch before it.
const CUDA: &[(u32, &str)] = &[
    (384, "9.0"),
    (390, "9.1"),
    (396, "9.2"),
    (410, "10.0"),
    (418, "10.1"),
    (440, "10.2"),
    (450, "11.0"),
    (455, "11.1"),
    (460, "11.2"),
    (465, "11.3"),
    (470, "11.4"),
    (495, "11.5"),
    (510, "11.6"),
    (515, "11.7"),
    (520, "11.8"),
    (525, "12.0"),
    (530, "12.1"),
    (535, "12.2"),
    (545, "12.3"),
    (550, "12.4"),
    (555, "12.5"),
    (560, "12.6"),
    (565, "12.7"),
    (570, "12.8"),
    (575, "12.9"),
    (580, "13.0"),
    (590, "13.1"),
];

/// The newest CUDA version that `driver` runs; empty, which means unknown, for branches newer than this program.
pub(super) fn cuda_version(driver: &Driver) -> &'static str {
    let branch = driver.branch();
    if CUDA.last().is_some_and(|(newest, _)| branch >= newest + 10) {
        return "";
    }
    CUDA.iter().rev().find(|(first, _)| *first <= branch).map_or("8.0", |(_, version)| version)
}

/// Compute capability by the upper half of the PCI device number, which is the chip.
const CHIPS: &[(u8, u8, &str)] = &[
    (0x13, 0x14, "5.2"),
    (0x15, 0x15, "6.0"),
    (0x16, 0x17, "5.2"),
    (0x1b, 0x1c, "6.1"),
    (0x1d, 0x1d, "7.0"),
    (0x1e, 0x1f, "7.5"),
    (0x20, 0x20, "8.0"),
    (0x21, 0x21, "7.5"),
    (0x22, 0x22, "8.6"),
    (0x23, 0x23, "9.0"),
    (0x24, 0x25, "8.6"),
    (0x26, 0x28, "8.9"),
    (0x29, 0x29, "10.0"),
    (0x2b, 0x2d, "12.0"),
];

/// Compute capability of a GPU; empty where unknown.
pub(super) fn compute_capability(gpu: &Gpu) -> &'static str {
    let chip = (gpu.device >> 8) as u8;
    CHIPS.iter().find(|(first, last, _)| (*first..=*last).contains(&chip)).map_or("", |(_, _, arch)| arch)
}

/// The brand in a GPU's name.
pub(super) fn brand(gpu: &Gpu) -> &'static str {
    let model = gpu.model.to_ascii_lowercase();
    let known = ["tesla", "quadro", "geforce", "titan", "grid", "nvs"];
    let found = known.into_iter().find(|brand| model.split([' ', '-']).any(|word| word == *brand));
    found.unwrap_or(if model.is_empty() { "unknown" } else { "nvidia" })
}

/// True where one of `capabilities` is asked for.
pub(super) fn wanted(request: &Request, capabilities: &[Capability]) -> bool {
    capabilities.iter().any(|capability| request.wants(*capability))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_run_the_cuda_of_their_branch() {
        let cuda = |version: &str| cuda_version(&Driver { version: version.into(), ..Driver::default() });
        assert_eq!(cuda("535.261.03"), "12.2");
        assert_eq!(cuda("538.10"), "12.2");
        assert_eq!(cuda("580.65.06"), "13.0");
        assert_eq!(cuda("999.1"), "");
        assert_eq!(cuda("375.1"), "8.0");
    }

    #[test]
    fn gpus_tell_brand_and_chip() {
        let gpu = |model: &str, device| Gpu { model: model.into(), device, ..Gpu::default() };
        assert_eq!(brand(&gpu("NVIDIA A100-SXM4-40GB", 0)), "nvidia");
        assert_eq!(brand(&gpu("Tesla V100-SXM2-16GB", 0)), "tesla");
        assert_eq!(brand(&gpu("NVIDIA GeForce RTX 3090", 0)), "geforce");
        assert_eq!(compute_capability(&gpu("", 0x20b0)), "8.0");
        assert_eq!(compute_capability(&gpu("", 0x2330)), "9.0");
        assert_eq!(compute_capability(&gpu("", 0)), "");
    }
}
