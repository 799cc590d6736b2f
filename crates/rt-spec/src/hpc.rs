//! The parts of a config of the profile hpc that no image has a say in: the host's network, processes and devices, as the
//! caller's own user. `rt-pull` writes them into bundles, and `rt-image` into those of images that are files.

use serde_json::{Value, json};

/// Files of the host that a container shows. A node may lack some of them.
pub const HOST_FILES: [&str; 5] =
    ["/etc/hosts", "/etc/resolv.conf", "/etc/hostname", "/etc/localtime", "/etc/machine-id"];

/// What a container whose root is the host's root must not write in procfs: settings of the whole host.
pub const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];
/// What it must not see there: the memory, the keys and the hardware of the whole host.
pub const MASKED: [&str; 9] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
];

/// The mounts.
pub fn mounts() -> Vec<Value> {
    let bind = |path: &str, options: &[&str]| json!({ "destination": path, "type": "bind", "source": path, "options": options });
    let tmpfs = |path: &str, mode: &str| json!({ "destination": path, "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev", mode] });
    let mut mounts = vec![
        bind("/proc", &["rbind", "nosuid", "noexec", "nodev"]),
        bind("/sys", &["rbind", "rro", "nosuid", "noexec", "nodev"]),
        bind("/dev", &["rbind", "nosuid"]),
        tmpfs("/tmp", "mode=1777"),
        tmpfs("/run", "mode=1777"),
    ];
    // rt.mounts.optional names these files: a node that lacks one starts the container without it.
    mounts.extend(HOST_FILES.iter().map(|path| bind(path, &["bind", "ro", "nosuid", "nodev", "noexec"])));
    mounts
}

/// The section `linux`, for the caller of these ids.
pub fn linux(uid: u32, gid: u32) -> Value {
    json!({ "namespaces": [{ "type": "user" }, { "type": "mount" }], "uidMappings": one_id_map(uid),
            "gidMappings": one_id_map(gid) })
}

/// A map of the one id that a caller without root has.
pub fn one_id_map(id: u32) -> Value {
    json!([{ "containerID": 0, "hostID": id, "size": 1 }])
}
