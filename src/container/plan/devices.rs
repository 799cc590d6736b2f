//! The devices of a plan: those that every container has, and those of the config.

use oci_spec::runtime::{LinuxDevice, LinuxDeviceType};
use rt_spec::Linux;
use rt_sys::error::Result;
use rt_sys::{bail, err};
use std::path::{Path, PathBuf};

/// One device.
#[derive(Debug)]
pub(crate) struct DevicePlan {
    /// Where, in the container.
    pub path: PathBuf,
    /// `S_IFCHR`, `S_IFBLK` or `S_IFIFO`, and the permission bits.
    pub mode: u32,
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// The owner inside.
    pub uid: u32,
    /// The group inside.
    pub gid: u32,
    /// One of those that every container has: the host has it at the same path.
    pub default: bool,
}

/// The devices that every container has (config-linux.md "Default Devices").
const DEFAULT_DEVICES: [(&str, u32, u32); 6] = [
    ("/dev/null", 1, 3),
    ("/dev/zero", 1, 5),
    ("/dev/full", 1, 7),
    ("/dev/random", 1, 8),
    ("/dev/urandom", 1, 9),
    ("/dev/tty", 5, 0),
];

/// The devices of `linux`, and those that every container has where /dev is the container's own.
pub(super) fn plan_devices(linux: &Linux, own_dev: bool) -> Result<Vec<DevicePlan>> {
    let mut devices: Vec<DevicePlan> =
        linux.devices().iter().flatten().map(device_plan).collect::<Result<_>>()?;
    if own_dev {
        let given = devices.len();
        for (path, major, minor) in DEFAULT_DEVICES {
            if !devices[..given].iter().any(|device| device.path == Path::new(path)) {
                let mode = libc::S_IFCHR | 0o666;
                let path = path.into();
                devices.push(DevicePlan { path, mode, major, minor, uid: 0, gid: 0, default: true });
            }
        }
    }
    Ok(devices)
}

fn device_plan(device: &LinuxDevice) -> Result<DevicePlan> {
    let shown = device.path().display();
    let kind = match device.typ() {
        LinuxDeviceType::C | LinuxDeviceType::U => libc::S_IFCHR,
        LinuxDeviceType::B => libc::S_IFBLK,
        LinuxDeviceType::P => libc::S_IFIFO,
        LinuxDeviceType::A => bail!("config.json: device {shown}: type \"a\" is for cgroup rules only"),
    };
    if !device.path().is_absolute() {
        bail!("config.json: device path {shown} is not absolute");
    }
    let number = |n: i64| {
        u32::try_from(n).map_err(|_| err!("config.json: device {shown}: number {n} is out of range"))
    };
    Ok(DevicePlan {
        path: device.path().clone(),
        mode: kind | (device.file_mode().unwrap_or(0o666) & 0o7777),
        major: number(device.major())?,
        minor: number(device.minor())?,
        uid: device.uid().unwrap_or(0),
        gid: device.gid().unwrap_or(0),
        default: false,
    })
}
