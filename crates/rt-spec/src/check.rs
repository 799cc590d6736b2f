//! Checks of a config, before anything is made.

use super::mounts;
use super::{Linux, Process, Spec};
use oci_spec::runtime::{Hook, LinuxIdMapping, LinuxNamespaceType};
use rt_sys::caller::Caller;
use rt_sys::error::Result;
use rt_sys::{bail, err, look};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Checks `spec` as `caller` would run it. The only I/O is a look whether an LSM that the config names is there.
#[inline(never)]
pub fn check(spec: &Spec, caller: &Caller) -> Result<()> {
    version(spec.version())?;
    let Some(root) = spec.root() else { bail!("config.json: root is missing") };
    if root.path().as_os_str().is_empty() {
        bail!("config.json: root.path is empty");
    }
    if let Some(process) = spec.process() {
        check_process(process)?;
    }
    for mount in spec.mounts().iter().flatten() {
        let destination = mount.destination();
        if destination.as_os_str().is_empty() {
            bail!("config.json: a mount has no destination");
        }
        let words = mount.options().iter().flatten().map(String::as_str);
        let options = mounts::parse(words);
        let mapped = mount.uid_mappings().is_some() || mount.gid_mappings().is_some();
        if (mapped || options.idmap.is_some()) && caller.is_unprivileged() {
            bail!("mount {}: an idmap needs privilege over the source's file system", destination.display());
        }
        if mapped {
            for (what, maps) in [("uidMappings", mount.uid_mappings()), ("gidMappings", mount.gid_mappings())]
            {
                check_maps(&format!("mount {}: {what}", destination.display()), maps)?;
            }
        }
        if !options.bind && options.idmap.is_some() {
            bail!("mount {}: idmap is for bind mounts", destination.display());
        }
        let cleaned = mounts::clean(destination);
        if cleaned.as_os_str().as_bytes().starts_with(b"/proc/") && !allowed_below_proc(destination) {
            bail!("mount {}: nothing may be mounted inside /proc", destination.display());
        }
        if cleaned.as_os_str() == "/proc" && !options.bind && !matches!(kind(mount), "proc") {
            bail!("mount /proc: only a proc file system may be mounted there, not {:?}", kind(mount));
        }
    }
    if let Some(hooks) = spec.hooks() {
        let stages = [
            #[allow(deprecated, reason = "configs still carry prestart hooks")]
            hooks.prestart(),
            hooks.create_runtime(),
            hooks.create_container(),
            hooks.start_container(),
            hooks.poststart(),
            hooks.poststop(),
        ];
        stages.into_iter().flatten().flatten().try_for_each(check_hook)?;
    }
    match spec.linux() {
        Some(linux) => check_linux(spec, linux, caller),
        None => bail!("config.json: linux is missing: without a mount namespace there is no container"),
    }
}

fn kind(mount: &oci_spec::runtime::Mount) -> &str {
    mount.typ().as_deref().unwrap_or("")
}

/// The files that lxcfs and the like put over procfs, as runc allows them, and paths that the kernel itself
/// makes for the purpose.
pub fn allowed_below_proc(destination: &Path) -> bool {
    const FILES: [&str; 9] = [
        "/proc/cpuinfo",
        "/proc/diskstats",
        "/proc/meminfo",
        "/proc/stat",
        "/proc/swaps",
        "/proc/uptime",
        "/proc/loadavg",
        "/proc/slabinfo",
        "/proc/net/dev",
    ];
    let trees = ["/proc/sys/kernel/ns_last_pid", "/proc/sys/crypto", "/proc/sys/fs/binfmt_misc"];
    FILES.iter().chain(&trees).any(|file| destination == Path::new(file))
}

fn version(version: &str) -> Result<()> {
    match version.split('.').next() {
        Some("1") => Ok(()),
        _ => Err(err!("config.json: ociVersion {version:?} is not a version 1")),
    }
}

/// Refuses the number that is no id: setresuid(2) and its kin take it for "as it is", so that a program stays what `rt` is.
pub fn check_id(what: &str, id: u32) -> Result<()> {
    match id {
        u32::MAX => Err(err!("{what} {id}: no id, but the kernel's word for none")),
        _ => Ok(()),
    }
}

/// Refuses mappings that reach as far as that number.
fn check_maps(what: &str, maps: &Option<Vec<LinuxIdMapping>>) -> Result<()> {
    for map in maps.iter().flatten() {
        let (container, host, size) = (map.container_id(), map.host_id(), map.size());
        check_id(what, container.max(host))?;
        if container.max(host).checked_add(size).is_none() {
            bail!("{what}: {size} ids from {container} and {host} on: the last id is {}", u32::MAX - 1);
        }
    }
    Ok(())
}

/// Checks a process object, of the config or of `exec --process`.
pub fn check_process(process: &Process) -> Result<()> {
    if process.args().as_ref().is_none_or(Vec::is_empty) {
        bail!("config.json: process.args is empty");
    }
    if !process.cwd().is_absolute() {
        bail!("config.json: process.cwd {:?} is not an absolute path", process.cwd().display().to_string());
    }
    for variable in process.env().iter().flatten() {
        if variable.contains('\0') {
            // The value may be a secret.
            let name = variable.split(['=', '\0']).next().unwrap_or_default();
            bail!("config.json: process.env: {name:?} contains a NUL byte");
        }
    }
    let mut seen = 0u32;
    for limit in process.rlimits().iter().flatten() {
        let bit = 1 << limit.typ() as u32;
        if seen & bit != 0 {
            bail!("config.json: rlimit {} is given twice", limit.typ());
        }
        seen |= bit;
        if limit.soft() > limit.hard() {
            bail!("config.json: rlimit {}: soft is above hard", limit.typ());
        }
    }
    if let Some(adj) = process.oom_score_adj()
        && !(-1000..=1000).contains(&adj)
    {
        bail!("config.json: oomScoreAdj {adj} is not between -1000 and 1000");
    }
    if let Some(priority) = process.io_priority()
        && !(0..=7).contains(&priority.priority())
    {
        bail!("config.json: ioPriority {} is not between 0 and 7", priority.priority());
    }
    if process.apparmor_profile().as_ref().is_some_and(|p| !p.is_empty())
        && !look::exists("/sys/module/apparmor/parameters/enabled")?
    {
        bail!("config.json: an apparmorProfile is given, but AppArmor is not enabled on this host");
    }
    if process.selinux_label().as_ref().is_some_and(|l| !l.is_empty()) {
        require_selinux("process.selinuxLabel")?;
    }
    Ok(())
}

fn require_selinux(key: &str) -> Result<()> {
    if look::exists("/sys/fs/selinux/enforce")? {
        return Ok(());
    }
    bail!("config.json: {key} is given, but SELinux is not enabled on this host")
}

fn check_hook(hook: &Hook) -> Result<()> {
    if !hook.path().is_absolute() {
        bail!("config.json: hook path {:?} is not absolute", hook.path().display().to_string());
    }
    if hook.timeout().is_some_and(|seconds| seconds <= 0) {
        bail!("config.json: hook {}: the timeout must be above 0", hook.path().display());
    }
    Ok(())
}

fn check_linux(spec: &Spec, linux: &Linux, caller: &Caller) -> Result<()> {
    check_maps("config.json: linux.uidMappings", linux.uid_mappings())?;
    check_maps("config.json: linux.gidMappings", linux.gid_mappings())?;
    let namespaces = linux.namespaces().as_deref().unwrap_or_default();
    for (n, namespace) in namespaces.iter().enumerate() {
        if namespaces[..n].iter().any(|other| other.typ() == namespace.typ()) {
            bail!("config.json: the {} namespace is given twice", namespace.typ());
        }
        if namespace.path().as_ref().is_some_and(|p| !p.is_absolute() && !p.as_os_str().is_empty()) {
            bail!("config.json: the path of the {} namespace is not absolute", namespace.typ());
        }
    }
    let has = |typ| namespaces.iter().any(|n| n.typ() == typ);
    let given = |path: LinuxNamespaceType| {
        namespaces
            .iter()
            .any(|n| n.typ() == path && n.path().as_ref().is_some_and(|p| !p.as_os_str().is_empty()))
    };
    if !has(LinuxNamespaceType::Mount) {
        bail!("config.json: without a mount namespace there is no container");
    }
    for (key, name) in [("hostname", spec.hostname()), ("domainname", spec.domainname())] {
        if name.as_ref().is_some_and(|n| n.contains('\0')) {
            bail!("config.json: {key} contains a NUL byte");
        }
        if name.as_ref().is_some_and(|n| !n.is_empty()) && !has(LinuxNamespaceType::Uts) {
            bail!("config.json: {key} needs a UTS namespace");
        }
    }
    let maps = [linux.uid_mappings(), linux.gid_mappings()];
    if maps.iter().any(|m| m.as_ref().is_some_and(|m| !m.is_empty()))
        && !has(LinuxNamespaceType::User)
        && !caller.is_unprivileged()
    {
        bail!("config.json: id mappings need a user namespace");
    }
    for map in maps.into_iter().flatten().flatten() {
        if map.size() == 0 {
            bail!("config.json: an id mapping has size 0");
        }
    }
    if linux.time_offsets().as_ref().is_some_and(|o| !o.is_empty()) {
        if !has(LinuxNamespaceType::Time) || given(LinuxNamespaceType::Time) {
            bail!("config.json: timeOffsets needs a new time namespace");
        }
        for clock in linux.time_offsets().iter().flatten().map(|(clock, _)| clock) {
            if !matches!(clock.as_str(), "monotonic" | "boottime") {
                bail!("config.json: timeOffsets: {clock:?} is neither monotonic nor boottime");
            }
        }
    }
    for key in linux.sysctl().iter().flatten().map(|(key, _)| key) {
        check_sysctl(key, spec, &has)?;
    }
    if let Some(device) = linux.net_devices().iter().flatten().map(|(name, _)| name).min() {
        if !has(LinuxNamespaceType::Network) {
            bail!("config.json: netDevices needs a network namespace");
        }
        if caller.is_unprivileged() {
            bail!("config.json: netDevices: moving network device {device:?} needs root");
        }
    }
    for path in linux.masked_paths().iter().chain(linux.readonly_paths()).flatten() {
        if !path.starts_with('/') {
            bail!("config.json: masked or read-only path {path:?} is not absolute");
        }
    }
    if let Some(word) = linux.rootfs_propagation().as_deref().filter(|word| !word.is_empty())
        && mounts::propagation(word).is_none()
    {
        bail!("config.json: rootfsPropagation {word:?} is unknown");
    }
    if linux.mount_label().as_ref().is_some_and(|l| !l.is_empty()) {
        require_selinux("linux.mountLabel")?;
    }
    Ok(())
}

/// Checks that a sysctl(8) key belongs to a namespace of the container. Any other would change the host.
fn check_sysctl(key: &str, spec: &Spec, has: &dyn Fn(LinuxNamespaceType) -> bool) -> Result<()> {
    const IPC: [&str; 9] = [
        "kernel.msgmax",
        "kernel.msgmnb",
        "kernel.msgmni",
        "kernel.sem",
        "kernel.shmall",
        "kernel.shmmax",
        "kernel.shmmni",
        "kernel.shm_rmid_forced",
        "kernel.msg_next_id",
    ];
    let dotted = key.replace('/', ".");
    if key.split(['/', '.']).any(|part| part.is_empty() || part == "..") {
        bail!("config.json: sysctl {key:?} is not a key");
    }
    let need = |typ, name| {
        if has(typ) { Ok(()) } else { Err(err!("config.json: sysctl {key:?} needs {name} namespace")) }
    };
    if IPC.contains(&dotted.as_str()) || dotted.starts_with("fs.mqueue.") {
        return need(LinuxNamespaceType::Ipc, "an IPC");
    }
    if dotted.starts_with("net.") {
        return need(LinuxNamespaceType::Network, "a network");
    }
    if dotted == "kernel.domainname" {
        return need(LinuxNamespaceType::Uts, "a UTS");
    }
    if dotted == "kernel.hostname" {
        if spec.hostname().is_some() {
            bail!("config.json: sysctl {key:?} and hostname are both given");
        }
        return need(LinuxNamespaceType::Uts, "a UTS");
    }
    if dotted.starts_with("user.") {
        return need(LinuxNamespaceType::User, "a user");
    }
    bail!("config.json: sysctl {key:?} is not in a namespace of the container")
}
