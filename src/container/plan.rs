//! The plan: a plain value that says exactly what a container's init will do.
//!
//! Everything that can fail without the kernel fails here, before the first process is made.

use super::account::{self, Account};
use super::program::ProcessPlan;
use super::{CreateOptions, Overrides};
use crate::hooks::definitions;
use oci_spec::runtime::{Hooks, LinuxDevice, LinuxDeviceType, LinuxNamespaceType, Mount, MountBuilder};
use rt_spec::rootless::{self, Adapted};
use rt_spec::said::{PREFIXES, Said};
use rt_spec::{Config, Linux, Process, Spec, mounts};
use rt_sys::caller::Caller;
use rt_sys::error::{Context, Result};
use rt_sys::mount::Param;
use rt_sys::ns::{self, IdMaps, Kind};
use rt_sys::{bail, err};
use rustix::io::Errno;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// What init will do, in this order.
#[derive(Debug)]
pub(super) struct Plan {
    /// The bundle, absolute; the runtime's working directory, and init's until it mounts.
    pub bundle: PathBuf,
    /// The root file system, absolute.
    pub rootfs: PathBuf,
    /// `CLONE_NEW*` bits of the namespaces to make.
    pub new: u64,
    /// The namespaces to join, the user namespace first.
    pub join: Vec<(Kind, PathBuf)>,
    /// Maps of the new user namespace.
    pub maps: Option<IdMaps>,
    /// Init writes its maps itself: one id each, which is the caller's.
    pub own_maps: bool,
    /// Text for /proc/self/timens_offsets.
    pub time_offsets: String,
    /// Network devices to move in, by name, with the name inside.
    pub net_devices: Vec<(String, String)>,
    /// Propagation of the container's root.
    pub propagation: Option<(u64, bool)>,
    /// The root ends up read-only.
    pub readonly_root: bool,
    /// Use chroot rather than pivot_root.
    pub no_pivot: bool,
    /// Mounts, in order.
    pub mounts: Vec<MountPlan>,
    /// The caller's lines in passwd and group.
    pub account: Option<Account>,
    /// Device nodes and links in /dev; empty where /dev is bound from the host.
    pub devices: Vec<DevicePlan>,
    /// False where /dev is bound from the host.
    pub own_dev: bool,
    /// Paths to hide.
    pub masked: Vec<PathBuf>,
    /// Paths to make read-only.
    pub readonly: Vec<PathBuf>,
    /// Host name.
    pub hostname: Option<String>,
    /// NIS domain name.
    pub domainname: Option<String>,
    /// Kernel settings: key as given, path below /proc/sys, and value.
    pub sysctl: Vec<(String, String, String)>,
    /// Device nodes can be made (real root outside a user namespace).
    pub may_mknod: bool,
    /// Keep the caller's session keyring.
    pub no_new_keyring: bool,
    /// Hooks of all stages.
    pub hooks: Hooks,
    /// What the caller has said, for hooks.
    pub said: Said,
    /// The program.
    pub process: ProcessPlan,
    /// What was adapted or will not be applied, for the log.
    pub notes: Vec<String>,
}

/// One mount.
#[derive(Debug)]
pub(super) struct MountPlan {
    /// Where, in the container.
    pub destination: PathBuf,
    /// What.
    pub what: What,
    /// Its options.
    pub options: mounts::Options,
    /// Maps of the mount (idmap), where they are its own.
    pub maps: Option<IdMaps>,
}

/// What is mounted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum What {
    /// A path of the host.
    Bind(PathBuf),
    /// The cgroup file system, as the host has it.
    Cgroup,
    /// A new instance of a file system.
    New {
        /// Its type.
        fstype: String,
        /// Its source, as mountinfo shows it.
        source: String,
    },
}

/// One device.
#[derive(Debug)]
pub(super) struct DevicePlan {
    /// Where, in the container.
    pub path: PathBuf,
    /// `S_IFCHR`, `S_IFBLK` or `S_IFIFO`, and the permission bits.
    pub mode: u32,
    /// Major and minor number.
    pub number: (u32, u32),
    /// Owner.
    pub owner: (u32, u32),
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

impl Plan {
    /// Enters the bundle, and loads, checks and adapts its config. Returns the config too, for the state.
    pub(super) fn make(options: &CreateOptions, caller: &Caller) -> Result<(Plan, Config)> {
        let (bundle, mut config, changed) = load(options)?;
        if changed {
            config.changed()?;
        }
        definitions::add_to(&mut config, &options.hooks_dirs, &options.overrides.said(), &bundle)?;
        rt_spec::check(&config.spec, caller)?;
        if names_own_user_namespace(&config.spec, caller) {
            leave_out_user_namespace(&mut config)?;
        }
        let adapted = rootless::adapt(&config.spec, caller, options.user_map)?;
        let plan = Self::from_config(&config, bundle, caller, adapted, options)?;
        if options.strict
            && let Some(note) = plan.notes.first()
        {
            return Err(err!("{note}").hint("--strict"));
        }
        Ok((plan, config))
    }

    // Like the other steps of `make`, out of line: one after another they use the same stack pages.
    #[inline(never)]
    fn from_config(
        config: &Config,
        bundle: PathBuf,
        caller: &Caller,
        adapted: Adapted,
        options: &CreateOptions,
    ) -> Result<Plan> {
        let spec = &config.spec;
        let mut notes = config.warnings.clone();
        notes.extend(adapted.notes.iter().cloned());
        let root = spec.root().as_ref().ok_or_else(|| err!("config.json: root is missing"))?;
        let rootfs = bundle.join(root.path());
        let found = rustix::fs::stat(&rootfs).context(|| format!("rootfs {}", rootfs.display()))?;
        if rustix::fs::FileType::from_raw_mode(found.st_mode) != rustix::fs::FileType::Directory {
            bail!("rootfs {}: not a directory", rootfs.display());
        }
        let process = spec.process().as_ref().ok_or_else(|| err!("config.json: process is missing"))?;
        let linux = spec.linux().as_ref().ok_or_else(|| err!("config.json: linux is missing"))?;
        let (new, join) = namespaces(linux, caller)?;
        let all_ids = rootless::all_ids(caller, &adapted);
        let inside = adapted.maps.as_ref().unwrap_or(&caller.maps);
        // selinux(8): the label of every file in a new file system.
        let label = linux.mount_label().clone().filter(|l| !l.is_empty());
        let mut mounts = Vec::new();
        let optional = rt_spec::annotation(spec, rt_spec::ANNOTATION_OPTIONAL);
        let home = account::home_mount(spec)?;
        for mount in in_order(spec.mounts().as_deref().unwrap_or_default(), home.as_ref()) {
            let mut plan = mount_plan(mount, &bundle)?;
            if optional.is_some_and(|list| is_left_out(&plan, list)) {
                log::debug!("mount {}: left out, the host has no source for it", plan.destination.display());
                continue;
            }
            if let (Some(label), What::New { fstype, .. }) = (&label, &plan.what)
                && !matches!(fstype.as_str(), "proc" | "sysfs")
            {
                plan.options.data.push(Param::Value("context".to_owned(), label.clone()));
            }
            if !all_ids {
                rootless::drop_unmapped(&mut plan.options, inside, &plan.destination, &mut notes);
            }
            mounts.push(plan);
        }
        if !all_ids {
            note_substitutes(&mounts, new, linux, &mut notes);
        }
        let own_dev =
            !mounts.iter().any(|m| m.destination.as_os_str() == "/dev" && matches!(m.what, What::Bind(_)));
        let mut devices: Vec<DevicePlan> =
            linux.devices().iter().flatten().map(device_plan).collect::<Result<_>>()?;
        if own_dev {
            let given = devices.len();
            for (path, major, minor) in DEFAULT_DEVICES {
                if !devices[..given].iter().any(|d| d.path == Path::new(path)) {
                    let mode = libc::S_IFCHR | 0o666;
                    devices.push(DevicePlan {
                        path: path.into(),
                        mode,
                        number: (major, minor),
                        owner: (0, 0),
                        default: true,
                    });
                }
            }
        }
        let own_maps = adapted.maps.is_some() && caller.is_unprivileged();
        // One that is listed twice is not mounted over twice.
        let paths = |list: &Option<Vec<String>>| {
            let mut paths: Vec<PathBuf> = Vec::new();
            for path in list.iter().flatten().map(PathBuf::from) {
                if !paths.contains(&path) {
                    paths.push(path);
                }
            }
            paths
        };
        let open_fds = options.preserve_fds.saturating_add(options.listen_fds);
        let mut process = ProcessPlan::new(process, &adapted, Some(linux), open_fds, &mut notes)?;
        process.listen_fds = options.listen_fds;
        let account = Account::asked_for(spec, (adapted.uid, adapted.gid), &mounts)?;
        if let Some(task) = &options.task {
            process.set_task(spec, task);
        }
        Ok(Plan {
            rootfs,
            new,
            join,
            own_maps,
            time_offsets: time_offsets(linux),
            net_devices: net_devices(linux),
            propagation: linux.rootfs_propagation().as_deref().and_then(mounts::root_propagation),
            readonly_root: root.readonly().unwrap_or(false),
            no_pivot: options.no_pivot,
            mounts,
            account,
            devices,
            own_dev,
            masked: paths(linux.masked_paths()),
            readonly: paths(linux.readonly_paths()),
            hostname: spec.hostname().clone().filter(|n| !n.is_empty()),
            domainname: spec.domainname().clone().filter(|n| !n.is_empty()),
            sysctl: sysctl(linux),
            may_mknod: all_ids,
            no_new_keyring: options.no_new_keyring,
            hooks: spec.hooks().clone().unwrap_or_default(),
            said: options.overrides.said(),
            process,
            maps: adapted.maps,
            bundle,
            notes,
        })
    }

    /// True where a namespace of `kind` is made, not joined or inherited.
    pub(super) fn makes(&self, kind: Kind) -> bool {
        self.new & kind.0 != 0
    }

    /// True where the container has a pid namespace of its own or another's.
    pub(super) fn has_pid_namespace(&self) -> bool {
        self.makes(Kind::PID) || self.join.iter().any(|(kind, _)| *kind == Kind::PID)
    }

    /// True where the runtime has to do something while init waits.
    pub(super) fn needs_runtime(&self) -> bool {
        let some = |hooks: &Option<Vec<_>>| hooks.as_ref().is_some_and(|h| !h.is_empty());
        #[allow(deprecated, reason = "configs still carry prestart hooks")]
        let prestart = some(self.hooks.prestart());
        prestart
            || some(self.hooks.create_runtime())
            || some(self.hooks.create_container())
            || some(self.hooks.start_container())
            || some(self.hooks.poststart())
            || some(self.hooks.poststop())
            || (self.maps.is_some() && !self.own_maps)
            || !self.net_devices.is_empty()
            || self.process.seccomp.as_ref().is_some_and(|s| s.filter.notifies)
    }
}

/// Enters the bundle and loads its config, as the command line and a task of a step change it. The config's text is
/// as it was; true where that is not what it says any more.
pub(super) fn load(options: &CreateOptions) -> Result<(PathBuf, Config, bool)> {
    // The bundle is where everything relative is relative to, hooks included.
    let shown = || format!("bundle {}", options.bundle.display());
    rustix::process::chdir(&options.bundle).context(shown)?;
    let bundle = rustix::process::getcwd(Vec::new()).context(shown)?;
    let bundle = PathBuf::from(std::ffi::OsStr::from_bytes(bundle.as_bytes()));
    let mut config = match &options.config {
        Some(path) => Config::load(path)?,
        None => Config::load(Path::new("config.json")).map_err(|e| e.context(bundle.display()))?,
    };
    let changed = options.overrides.any() || options.user_map.is_some() || options.task.is_some();
    if changed {
        override_config(&mut config, options)?;
    }
    Ok((bundle, config, changed))
}

/// True where the user namespace by path is the caller's own, which setns(2) refuses: podman names it where a
/// container is to share that of another. A plain user's own cannot be meant, since it gives no right to anything.
fn names_own_user_namespace(spec: &Spec, caller: &Caller) -> bool {
    let list = spec.linux().as_ref().and_then(|linux| linux.namespaces().as_deref()).unwrap_or_default();
    let path = list.iter().find(|n| n.typ() == LinuxNamespaceType::User).and_then(|n| n.path().as_ref());
    !caller.is_unprivileged()
        && path.is_some_and(|path| ns::same_namespace(path, Path::new("/proc/self/ns/user")))
}

#[cold]
#[inline(never)]
fn leave_out_user_namespace(config: &mut Config) -> Result<()> {
    if let Some(linux) = config.spec.linux_mut() {
        let mut namespaces = linux.namespaces().clone().unwrap_or_default();
        namespaces.retain(|n| n.typ() != LinuxNamespaceType::User);
        linux.set_namespaces(Some(namespaces));
    }
    config.changed()
}

fn kind_of(typ: LinuxNamespaceType) -> Kind {
    match typ {
        LinuxNamespaceType::Mount => Kind::MOUNT,
        LinuxNamespaceType::Cgroup => Kind::CGROUP,
        LinuxNamespaceType::Uts => Kind::UTS,
        LinuxNamespaceType::Ipc => Kind::IPC,
        LinuxNamespaceType::User => Kind::USER,
        LinuxNamespaceType::Pid => Kind::PID,
        LinuxNamespaceType::Network => Kind::NETWORK,
        LinuxNamespaceType::Time => Kind::TIME,
    }
}

/// The namespaces of a config: bits of the new ones, and those to join with the user namespace first.
pub(super) fn namespaces(linux: &Linux, caller: &Caller) -> Result<(u64, Vec<(Kind, PathBuf)>)> {
    let mut new = 0;
    let mut join = Vec::new();
    for namespace in linux.namespaces().iter().flatten() {
        let kind = kind_of(namespace.typ());
        match namespace.path().as_ref().filter(|p| !p.as_os_str().is_empty()) {
            Some(path) => join.push((kind, path.clone())),
            None => new |= kind.0,
        }
    }
    if caller.is_unprivileged() && !join.iter().any(|(kind, _)| *kind == Kind::USER) {
        new |= Kind::USER.0;
    }
    join.sort_by_key(|(kind, _)| *kind != Kind::USER);
    Ok((new, join))
}

/// What the kernel will not give without privilege over the host's namespaces, and what there is instead.
fn note_substitutes(mounts: &[MountPlan], new: u64, linux: &Linux, notes: &mut Vec<String>) {
    for mount in mounts {
        let at = mount.destination.display();
        match &mount.what {
            What::New { fstype, .. } => {
                let owner = match fstype.as_str() {
                    "proc" => Kind::PID,
                    "sysfs" => Kind::NETWORK,
                    "mqueue" => Kind::IPC,
                    _ => continue,
                };
                if new & owner.0 == 0 {
                    let file = owner.file();
                    notes.push(format!(
                        "mount {at}: without a {file} namespace of its own, the host's {fstype} is bound"
                    ));
                }
            }
            What::Cgroup => notes.push(format!("mount {at}: the host's cgroup tree is bound")),
            What::Bind(_) => {}
        }
    }
    for device in linux.devices().iter().flatten().filter(|d| d.typ() != LinuxDeviceType::P) {
        notes.push(format!("device {} is the host's, bound", device.path().display()));
    }
}

/// `mounts`, and `home` before the first one that is to be seen below it.
fn in_order<'a>(mounts: &'a [Mount], home: Option<&'a Mount>) -> impl Iterator<Item = &'a Mount> {
    let below = |home: &Mount| mounts.iter().position(|m| m.destination().starts_with(home.destination()));
    let at = home.and_then(below).unwrap_or(mounts.len());
    mounts[..at].iter().chain(home).chain(&mounts[at..])
}

/// True for a bind that `list` names and whose source is missing.
fn is_left_out(mount: &MountPlan, list: &str) -> bool {
    let What::Bind(source) = &mount.what else { return false };
    list.split(',').any(|path| Path::new(path.trim()) == mount.destination)
        && matches!(rustix::fs::stat(source), Err(Errno::NOENT | Errno::NOTDIR))
}

fn mount_plan(mount: &Mount, bundle: &Path) -> Result<MountPlan> {
    let words = mount.options().iter().flatten().map(String::as_str);
    let mut options = mounts::parse(words);
    let fstype = mount.typ().clone().unwrap_or_default();
    // A relative destination was allowed before 1.0; runc still takes it from the root.
    let destination = mounts::clean(&Path::new("/").join(mount.destination())).into_owned();
    if is_root(&destination) {
        bail!(
            "mount {}: nothing can be mounted over the root (set root.path instead)",
            mount.destination().display()
        );
    }
    if fstype == "bind" {
        options.bind = true;
    }
    let maps = match (mount.uid_mappings(), mount.gid_mappings()) {
        (Some(uid), Some(gid)) => {
            options.idmap = options.idmap.or(Some(false));
            let convert = |maps: &[oci_spec::runtime::LinuxIdMapping]| {
                maps.iter()
                    .map(|m| rt_sys::ns::IdMap {
                        container: m.container_id(),
                        host: m.host_id(),
                        size: m.size(),
                    })
                    .collect()
            };
            Some(IdMaps { uid: convert(uid), gid: convert(gid) })
        }
        _ => None,
    };
    let what = if options.bind {
        let source = mount.source().as_ref().filter(|s| !s.as_os_str().is_empty());
        let source = source.ok_or_else(|| err!("mount {}: a bind needs a source", destination.display()))?;
        // Data makes no sense for a bind; runc ignores it too.
        options.data.clear();
        What::Bind(bundle.join(source))
    } else if matches!(fstype.as_str(), "cgroup" | "cgroup2") {
        What::Cgroup
    } else if fstype.is_empty() || fstype == "none" {
        bail!("mount {}: type {fstype:?} without bind", destination.display());
    } else {
        let source = mount.source().as_ref().map_or_else(|| fstype.clone(), |s| s.display().to_string());
        What::New { fstype, source }
    };
    Ok(MountPlan { destination, what, options, maps })
}

/// True for a destination of nothing but `..`, and what leads up again.
fn is_root(destination: &Path) -> bool {
    let depth = destination.components().fold(0u32, |depth, part| match part {
        Component::Normal(_) => depth + 1,
        Component::ParentDir => depth.saturating_sub(1),
        _ => depth,
    });
    depth == 0
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
        number: (number(device.major())?, number(device.minor())?),
        owner: (device.uid().unwrap_or(0), device.gid().unwrap_or(0)),
        default: false,
    })
}

fn time_offsets(linux: &Linux) -> String {
    let mut text = String::new();
    for (clock, offset) in linux.time_offsets().iter().flatten() {
        let line = format!("{clock} {} {}\n", offset.secs().unwrap_or(0), offset.nanosecs().unwrap_or(0));
        text.push_str(&line);
    }
    text
}

fn net_devices(linux: &Linux) -> Vec<(String, String)> {
    let devices = linux.net_devices().iter().flatten();
    let mut list: Vec<(String, String)> = devices
        .map(|(name, device)| {
            let inside = device.name().clone().filter(|n| !n.is_empty());
            (name.clone(), inside.unwrap_or_else(|| name.clone()))
        })
        .collect();
    list.sort();
    list
}

fn sysctl(linux: &Linux) -> Vec<(String, String, String)> {
    let mut list: Vec<(String, String, String)> = linux
        .sysctl()
        .iter()
        .flatten()
        .map(|(key, value)| {
            // As sysctl(8): a key with a slash before any dot has slashes as separators.
            let path = match key.find(['.', '/']) {
                Some(n) if key.as_bytes()[n] == b'/' => key.clone(),
                _ => key
                    .chars()
                    .map(|c| match c {
                        '.' => '/',
                        '/' => '.',
                        c => c,
                    })
                    .collect(),
            };
            (key.clone(), path, value.clone())
        })
        .collect();
    list.sort();
    list
}

impl Overrides {
    fn any(&self) -> bool {
        !self.args.is_empty()
            || !self.env.is_empty()
            || self.cwd.is_some()
            || self.terminal.is_some()
            || !self.volumes.is_empty()
            || !self.devices.is_empty()
    }

    /// What hooks are told of it.
    fn said(&self) -> Said {
        let env = self.env.iter().filter(|variable| PREFIXES.iter().any(|p| variable.starts_with(p)));
        Said { env: env.filter_map(|v| full_variable(v)).collect(), devices: self.devices.clone() }
    }
}

/// Changes what the command line changes. Out of line: most have nothing to change, and it needs a large stack
/// frame.
#[cold]
#[inline(never)]
fn override_config(config: &mut Config, options: &CreateOptions) -> Result<()> {
    let spec = &mut *config.spec;
    let changes = &options.overrides;
    if let Some(process) = spec.process_mut() {
        override_process(process, changes)?;
    }
    if !changes.volumes.is_empty() {
        let mut mounts = spec.mounts().clone().unwrap_or_default();
        for volume in &changes.volumes {
            mounts.push(volume_mount(volume)?);
        }
        spec.set_mounts(Some(mounts));
    }
    if let Some(map) = options.user_map {
        // Kept with the config, so that exec finds the same ids.
        rt_spec::annotate(spec, rt_spec::ANNOTATION_USER, map.as_str());
    }
    if let Some(task) = &options.task {
        config.warnings.extend(rt_spec::slurm::adapt(spec, task, options.user_map));
    }
    Ok(())
}

fn override_process(process: &mut Process, changes: &Overrides) -> Result<()> {
    if !changes.args.is_empty() {
        process.set_args(Some(changes.args.clone()));
    }
    if !changes.env.is_empty() {
        let mut env = process.env().clone().unwrap_or_default();
        env.extend(changes.env.iter().filter_map(|variable| full_variable(variable)));
        process.set_env(Some(env));
    }
    if let Some(cwd) = &changes.cwd {
        if !cwd.is_absolute() {
            bail!("working directory {} is not an absolute path", cwd.display());
        }
        process.set_cwd(cwd.clone());
    }
    if let Some(terminal) = changes.terminal {
        process.set_terminal(Some(terminal));
    }
    Ok(())
}

/// `NAME=VALUE` as it is; a name alone takes this process's value, and is left out where there is none.
pub(super) fn full_variable(variable: &str) -> Option<String> {
    if variable.contains('=') {
        return Some(variable.to_owned());
    }
    std::env::var(variable).ok().map(|value| format!("{variable}={value}"))
}

/// `SRC:DST[:OPTIONS]`, options separated by commas, as podman's `-v`.
fn volume_mount(volume: &str) -> Result<Mount> {
    let mut parts = volume.splitn(3, ':');
    let (source, destination) = match (parts.next(), parts.next()) {
        (Some(source), Some(destination)) if !source.is_empty() => (source, destination),
        _ => bail!("volume {volume:?} is not SRC:DST[:OPTIONS]"),
    };
    if !destination.starts_with('/') {
        bail!("volume {volume:?}: destination {destination:?} is not an absolute path");
    }
    let mut options = vec!["rbind".to_owned()];
    // Labels, ownership and the like are podman's business.
    let words = parts.next().unwrap_or("").split(',').filter(|w| !matches!(*w, "" | "z" | "Z" | "U" | "O"));
    options.extend(words.map(str::to_owned));
    if mounts::parse(options.iter().map(String::as_str)).propagation.is_empty() {
        options.push("rprivate".to_owned());
    }
    let unknown = mounts::parse(options.iter().map(String::as_str)).data;
    if let Some(Param::Flag(word) | Param::Value(word, _)) = unknown.first() {
        bail!("volume {volume:?}: unknown option {word:?}");
    }
    let mount = MountBuilder::default().destination(destination).source(source).typ("bind").options(options);
    mount.build().map_err(|e| err!("volume {volume:?}: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_become_binds() {
        let mount = volume_mount("/a:/b:ro,z").unwrap();
        assert_eq!(mount.source().as_deref(), Some(Path::new("/a")));
        assert_eq!(mount.options().as_deref().unwrap(), ["rbind", "ro", "rprivate"]);
        for bad in ["/a", "/a:b", ":/b", "/a:/b:fly"] {
            assert!(volume_mount(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sysctl_keys_become_paths() {
        let text = r#"{"linux":{"sysctl":{"net.ipv4.conf.eth0/1.forwarding":"1","kernel/shmmax":"7"}}}"#;
        let config = Config::parse(text.into()).unwrap();
        let paths: Vec<String> =
            sysctl(config.spec.linux().as_ref().unwrap()).into_iter().map(|(_, path, _)| path).collect();
        assert_eq!(paths, ["kernel/shmmax", "net/ipv4/conf/eth0.1/forwarding"]);
    }
}
