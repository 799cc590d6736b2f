//! Devices that some containers need: terminals, FUSE, GPUs, fabrics.

use super::start::Bundle;
use super::{Check, program, text_of};
use crate::hooks::definitions;
use rustix::fs::{Access, access};
use std::process::{Command, Stdio};

pub(super) fn checks() -> Vec<Check> {
    let mut all = vec![terminals(), fuse()];
    all.extend(gpus());
    all.extend(fabrics());
    all
}

fn terminals() -> Check {
    const NAME: &str = "terminals";
    match rustix::pty::openpt(rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY) {
        Ok(_) => Check::ok(NAME, "one can be opened"),
        Err(e) => {
            let missing = matches!(rt_sys::look::exists("/dev/pts/ptmx"), Ok(false));
            let remedy = match missing {
                true => "mount -t devpts -o ptmxmode=666 devpts /dev/pts",
                false => "mount -o remount,ptmxmode=666 /dev/pts",
            };
            let text = format!("none can be opened by /dev/ptmx: {}", rt_sys::error::Error::from(e));
            Check::note(NAME, text).remedy(remedy)
        }
    }
}

fn fuse() -> Check {
    const NAME: &str = "FUSE";
    let path = "/dev/fuse";
    match access(path, Access::READ_OK | Access::WRITE_OK) {
        Ok(()) => Check::ok(NAME, "/dev/fuse can be opened"),
        Err(rustix::io::Errno::NOENT) => {
            Check::note(NAME, "/dev/fuse is missing; only image files need it").remedy("modprobe fuse")
        }
        Err(_) => Check::note(NAME, "/dev/fuse cannot be opened by this user; only image files need it")
            .remedy("chmod 666 /dev/fuse, as udev's rules have it"),
    }
}

/// A vendor's GPUs, with what shows that the driver is loaded.
fn gpus() -> Vec<Check> {
    const NAME: &str = "GPUs";
    let nvidia = text_of("/proc/driver/nvidia/version");
    let nvidia = nvidia.lines().next().filter(|line| !line.is_empty()).map(|line| format!("NVIDIA ({line})"));
    let amd = (!matches!(rt_sys::look::exists("/dev/kfd"), Ok(false))).then(|| "AMD (/dev/kfd)".to_owned());
    let render = || {
        let entries = std::fs::read_dir("/dev/dri").into_iter().flatten().flatten();
        entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .any(|name| name.starts_with("renderD"))
    };
    let other = (nvidia.is_none() && amd.is_none() && render()).then(|| "/dev/dri".to_owned());
    let found: Vec<String> = nvidia.into_iter().chain(amd).chain(other).collect();
    if found.is_empty() {
        return vec![Check::ok(NAME, "none, or their driver is not loaded")];
    }
    let found = found.join(", ");
    if !is_defined("rt-hook-gpu") {
        let text = format!("{found}; no definition in hooks.d gives containers their libraries");
        return vec![Check::note(NAME, text).remedy("make install-hooks, or see hooks/README.md")];
    }
    vec![match edits_of("rt-hook-gpu", &["NVIDIA_VISIBLE_DEVICES=all"]) {
        Ok(edits) => Check::ok(NAME, format!("{found}; {edits}")),
        Err(e) => Check::note(NAME, format!("{found}; rt-hook-gpu: {e}")),
    }]
}

fn fabrics() -> Vec<Check> {
    const NAME: &str = "fabrics";
    let named = |dir: &str, start: &str| {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with(start)).count()
    };
    let (verbs, cxi) = (named("/dev/infiniband", "uverbs"), named("/dev", "cxi"));
    if verbs + cxi == 0 {
        return vec![Check::ok(NAME, "no RDMA device")];
    }
    let found = format!("{verbs} devices of verbs, {cxi} of Slingshot");
    if !is_defined("rt-hook-rdma") {
        let text = format!("{found}; no definition in hooks.d gives containers their libraries");
        return vec![Check::note(NAME, text).remedy("make install-hooks, or see hooks/README.md")];
    }
    let mut all = vec![match edits_of("rt-hook-rdma", &[]) {
        Ok(edits) => Check::ok(NAME, format!("{found}; {edits}")),
        Err(e) => Check::note(NAME, format!("{found}; rt-hook-rdma: {e}")),
    }];
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
    if let Some(bytes) = limit {
        let text =
            format!("the limit of locked memory is {} KiB, and RDMA locks what it transfers", bytes >> 10);
        all.push(
            Check::note("locked memory", text)
                .remedy("ulimit -l unlimited; for Slurm, LimitMEMLOCK=infinity of slurmd"),
        );
    }
    all
}

/// True where a definition of hooks.d executes the program `name`.
fn is_defined(name: &str) -> bool {
    definitions::programs().unwrap_or_default().iter().any(|(_, program)| program.ends_with(name))
}

/// What a hook would do for a container of the host's userland, in words.
fn edits_of(hook: &str, env: &[&str]) -> rt_sys::error::Result<String> {
    let Some(path) = program(hook) else { return Err(rt_sys::err!("not installed")) };
    let bundle = Bundle::new()?;
    let config = bundle.path().join("config.json");
    let mut spec: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&config)?).map_err(|e| rt_sys::err!("{e}"))?;
    if let Some(list) = spec["process"]["env"].as_array_mut() {
        list.extend(env.iter().map(|variable| serde_json::json!(variable)));
    }
    std::fs::write(&config, spec.to_string())?;
    let mut command = Command::new(path);
    command.args(["--dry-run", "--bundle"]).arg(bundle.path()).stdin(Stdio::null());
    let output = rt_sys::output::of(&mut command)?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        rt_sys::bail!("{}", text.lines().next().unwrap_or_default());
    }
    let edits: serde_json::Value = serde_json::from_slice(&output.stdout).map_err(|e| rt_sys::err!("{e}"))?;
    let lists = edits
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(name, list)| Some((name, list.as_array()?.len())));
    let counts: Vec<String> = lists.filter(|(_, n)| *n > 0).map(|(name, n)| format!("{n} {name}")).collect();
    Ok(match counts.is_empty() {
        true => format!("{hook} would change nothing"),
        false => format!("{hook} would add {}", counts.join(", ")),
    })
}
