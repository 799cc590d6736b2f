//! The types of a config that every start reads (runtime-spec, config.md and config-linux.md), and how they are read.
//! What is below them is oci-spec's, but for what a runtime that touches no cgroup has no use for.

use super::json::{Read, Reader, Value};
use getset::{CopyGetters, Getters, MutGetters, Setters};
use oci_spec::OciSpecError;
use oci_spec::runtime::{
    Box as Size, Hooks, LinuxDevice, LinuxIOPriority, LinuxIdMapping, LinuxIdMappingBuilder,
    LinuxMemoryPolicy, LinuxNamespace, LinuxNetDevice, LinuxPersonality, LinuxSeccomp, LinuxSeccompArg,
    LinuxSeccompArgBuilder, LinuxSeccompOperator, LinuxSyscall, LinuxTimeOffset, Mount, PosixRlimit,
    PosixRlimitBuilder, PosixRlimitType, Root, Scheduler, User,
};
use rt_sys::caps::{self, Sets};
use serde::de::value::StrDeserializer;
use serde::ser::{Error as _, SerializeMap};
use serde::{Deserialize, Serialize, Serializer};
use std::collections::HashMap;
use std::path::PathBuf;

/// A config.json (config.md).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Getters, MutGetters, Setters)]
#[serde(rename_all = "camelCase")]
#[getset(get = "pub", get_mut = "pub", set = "pub")]
pub struct Spec {
    /// `ociVersion`.
    #[serde(rename = "ociVersion")]
    version: String,
    /// `root`.
    #[serde(skip_serializing_if = "Option::is_none")]
    root: Option<Root>,
    /// `mounts`.
    #[serde(skip_serializing_if = "Option::is_none")]
    mounts: Option<Vec<Mount>>,
    /// `process`.
    #[serde(skip_serializing_if = "Option::is_none")]
    process: Option<Process>,
    /// `hostname`.
    #[serde(skip_serializing_if = "Option::is_none")]
    hostname: Option<String>,
    /// `domainname`.
    #[serde(skip_serializing_if = "Option::is_none")]
    domainname: Option<String>,
    /// `hooks`.
    #[serde(skip_serializing_if = "Option::is_none")]
    hooks: Option<Hooks>,
    /// `annotations`.
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<HashMap<String, String>>,
    /// `linux`.
    #[serde(skip_serializing_if = "Option::is_none")]
    linux: Option<Linux>,
}

/// `process` (config.md "Process").
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Getters, CopyGetters, MutGetters, Setters)]
#[serde(rename_all = "camelCase")]
#[getset(set = "pub")]
pub struct Process {
    /// `terminal`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[getset(get_copy = "pub")]
    terminal: Option<bool>,
    /// `consoleSize`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[getset(get_copy = "pub")]
    console_size: Option<Size>,
    /// `user`.
    #[getset(get = "pub", get_mut = "pub")]
    user: User,
    /// `args`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[getset(get = "pub")]
    args: Option<Vec<String>>,
    /// `env`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[getset(get = "pub")]
    env: Option<Vec<String>>,
    /// `cwd`.
    #[getset(get = "pub")]
    cwd: PathBuf,
    /// `capabilities`: those of them that are known.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "write_capabilities")]
    #[getset(get_copy = "pub")]
    capabilities: Option<Sets>,
    /// `rlimits`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[getset(get = "pub")]
    rlimits: Option<Vec<PosixRlimit>>,
    /// `noNewPrivileges`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[getset(get_copy = "pub")]
    no_new_privileges: Option<bool>,
    /// `apparmorProfile`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[getset(get = "pub")]
    apparmor_profile: Option<String>,
    /// `oomScoreAdj`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[getset(get_copy = "pub")]
    oom_score_adj: Option<i32>,
    /// `selinuxLabel`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[getset(get = "pub")]
    selinux_label: Option<String>,
    /// `ioPriority`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[getset(get = "pub")]
    io_priority: Option<LinuxIOPriority>,
    /// `scheduler`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[getset(get = "pub")]
    scheduler: Option<Scheduler>,
    /// `execCPUAffinity`.
    #[serde(rename = "execCPUAffinity", skip_serializing_if = "Option::is_none")]
    #[getset(get = "pub")]
    exec_cpu_affinity: Option<CpuAffinity>,
}

/// `process.execCPUAffinity` (config.md): lists of CPUs as in cpuset(7). oci-spec's checks them by a regular expression,
/// whose engine is a third of an executable that has no other use for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Getters)]
#[getset(get = "pub")]
pub struct CpuAffinity {
    /// `initial`: for what prepares the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    initial: Option<String>,
    /// `final`: for the process.
    #[serde(rename = "final", skip_serializing_if = "Option::is_none")]
    last: Option<String>,
}

/// `linux` (config-linux.md).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Getters, MutGetters, Setters)]
#[serde(rename_all = "camelCase")]
#[getset(get = "pub", set = "pub")]
pub struct Linux {
    /// `netDevices`.
    #[serde(skip_serializing_if = "Option::is_none")]
    net_devices: Option<HashMap<String, LinuxNetDevice>>,
    /// `uidMappings`.
    #[serde(skip_serializing_if = "Option::is_none")]
    uid_mappings: Option<Vec<LinuxIdMapping>>,
    /// `gidMappings`.
    #[serde(skip_serializing_if = "Option::is_none")]
    gid_mappings: Option<Vec<LinuxIdMapping>>,
    /// `sysctl`.
    #[serde(skip_serializing_if = "Option::is_none")]
    sysctl: Option<HashMap<String, String>>,
    /// `resources`, which are not applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    resources: Option<Unread>,
    /// `cgroupsPath`, which is not followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    cgroups_path: Option<PathBuf>,
    /// `namespaces`.
    #[serde(skip_serializing_if = "Option::is_none")]
    namespaces: Option<Vec<LinuxNamespace>>,
    /// `devices`.
    #[serde(skip_serializing_if = "Option::is_none")]
    devices: Option<Vec<LinuxDevice>>,
    /// `seccomp`.
    #[serde(skip_serializing_if = "Option::is_none")]
    seccomp: Option<LinuxSeccomp>,
    /// `rootfsPropagation`.
    #[serde(skip_serializing_if = "Option::is_none")]
    rootfs_propagation: Option<String>,
    /// `maskedPaths`.
    #[serde(skip_serializing_if = "Option::is_none")]
    masked_paths: Option<Vec<String>>,
    /// `readonlyPaths`.
    #[serde(skip_serializing_if = "Option::is_none")]
    readonly_paths: Option<Vec<String>>,
    /// `mountLabel`.
    #[serde(skip_serializing_if = "Option::is_none")]
    mount_label: Option<String>,
    /// `intelRdt`, which is not applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    intel_rdt: Option<Unread>,
    /// `memoryPolicy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_policy: Option<LinuxMemoryPolicy>,
    /// `personality`.
    #[serde(skip_serializing_if = "Option::is_none")]
    personality: Option<LinuxPersonality>,
    /// `timeOffsets`.
    #[serde(skip_serializing_if = "Option::is_none")]
    time_offsets: Option<HashMap<String, LinuxTimeOffset>>,
}

/// The JSON text of what nobody here reads.
#[derive(Clone, Debug)]
pub struct Unread(String);

impl PartialEq for Unread {
    fn eq(&self, other: &Self) -> bool {
        let value = |text| serde_json::from_str::<serde_json::Value>(text).ok();
        self.0 == other.0 || value(&self.0) == value(&other.0)
    }
}

impl Eq for Unread {}

impl Serialize for Unread {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let value: serde_json::Value = serde_json::from_str(&self.0).map_err(S::Error::custom)?;
        value.serialize(serializer)
    }
}

impl Value for Unread {
    fn read(r: &mut Reader<'_>) -> Read<Self> {
        r.skip().map(|text| Unread(text.to_owned()))
    }
}

impl Value for Spec {
    fn read(r: &mut Reader<'_>) -> Read<Self> {
        let mut spec = Spec::default();
        r.object(&mut |r, key| {
            match key {
                "ociVersion" => spec.version = Value::read(r)?,
                "root" => spec.root = Value::read(r)?,
                "mounts" => spec.mounts = Value::read(r)?,
                "process" => spec.process = Value::read(r)?,
                "hostname" => spec.hostname = Value::read(r)?,
                "domainname" => spec.domainname = Value::read(r)?,
                "hooks" => spec.hooks = r.rare()?,
                "annotations" => spec.annotations = Value::read(r)?,
                "linux" => spec.linux = Value::read(r)?,
                _ => drop(r.skip()?),
            }
            Ok(())
        })?;
        Ok(spec)
    }
}

impl Value for Process {
    fn read(r: &mut Reader<'_>) -> Read<Self> {
        let mut process = Process::default();
        r.object(&mut |r, key| {
            match key {
                "terminal" => process.terminal = Value::read(r)?,
                "consoleSize" => process.console_size = r.rare()?,
                "user" => process.user = Option::read(r)?.unwrap_or_default(),
                "args" => process.args = Value::read(r)?,
                "env" => process.env = Value::read(r)?,
                "cwd" => process.cwd = Option::read(r)?.unwrap_or_default(),
                "capabilities" => process.capabilities = Value::read(r)?,
                "rlimits" => process.rlimits = Value::read(r)?,
                "noNewPrivileges" => process.no_new_privileges = Value::read(r)?,
                "apparmorProfile" => process.apparmor_profile = Value::read(r)?,
                "oomScoreAdj" => process.oom_score_adj = Value::read(r)?,
                "selinuxLabel" => process.selinux_label = Value::read(r)?,
                "ioPriority" => process.io_priority = r.rare()?,
                "scheduler" => process.scheduler = scheduler(r)?,
                "execCPUAffinity" => process.exec_cpu_affinity = r.rare()?,
                _ => drop(r.skip()?),
            }
            Ok(())
        })?;
        Ok(process)
    }
}

/// Reads a process's scheduler: oci-spec has a name of its own for one of the flags (config.md "Scheduler").
#[cold]
fn scheduler(r: &mut Reader<'_>) -> Read<Option<Scheduler>> {
    let mut value: serde_json::Value = r.rare()?;
    for flag in value.get_mut("flags").and_then(|flags| flags.as_array_mut()).into_iter().flatten() {
        if *flag == "SCHED_FLAG_RESET_ON_FORK" {
            *flag = "SCHED_RESET_ON_FORK".into();
        }
    }
    serde_json::from_value(value).or_else(|e| r.wrong(e.to_string()))
}

impl Value for Linux {
    fn read(r: &mut Reader<'_>) -> Read<Self> {
        let mut linux = Linux::default();
        r.object(&mut |r, key| {
            match key {
                "netDevices" => linux.net_devices = r.rare()?,
                "uidMappings" => linux.uid_mappings = Value::read(r)?,
                "gidMappings" => linux.gid_mappings = Value::read(r)?,
                "sysctl" => linux.sysctl = Value::read(r)?,
                "resources" => linux.resources = Value::read(r)?,
                "cgroupsPath" => linux.cgroups_path = Value::read(r)?,
                "namespaces" => linux.namespaces = Value::read(r)?,
                "devices" => linux.devices = r.rare()?,
                "seccomp" => linux.seccomp = Value::read(r)?,
                "rootfsPropagation" => linux.rootfs_propagation = Value::read(r)?,
                "maskedPaths" => linux.masked_paths = Value::read(r)?,
                "readonlyPaths" => linux.readonly_paths = Value::read(r)?,
                "mountLabel" => linux.mount_label = Value::read(r)?,
                "intelRdt" => linux.intel_rdt = Value::read(r)?,
                "memoryPolicy" => linux.memory_policy = r.rare()?,
                "personality" => linux.personality = r.rare()?,
                "timeOffsets" => linux.time_offsets = r.rare()?,
                _ => drop(r.skip()?),
            }
            Ok(())
        })?;
        Ok(linux)
    }
}

impl Value for Root {
    fn read(r: &mut Reader<'_>) -> Read<Self> {
        let (mut path, mut readonly) = (None, None);
        r.object(&mut |r, key| {
            match key {
                "path" => path = Value::read(r)?,
                "readonly" => readonly = Value::read(r)?,
                _ => drop(r.skip()?),
            }
            Ok(())
        })?;
        let mut root = Root::default();
        root.set_path(path.unwrap_or_default()).set_readonly(readonly);
        Ok(root)
    }
}

impl Value for User {
    fn read(r: &mut Reader<'_>) -> Read<Self> {
        let (mut uid, mut gid, mut umask, mut gids, mut name) = (None, None, None, None, None);
        r.object(&mut |r, key| {
            match key {
                "uid" => uid = Value::read(r)?,
                "gid" => gid = Value::read(r)?,
                "umask" => umask = Value::read(r)?,
                "additionalGids" => gids = Value::read(r)?,
                "username" => name = Value::read(r)?,
                _ => drop(r.skip()?),
            }
            Ok(())
        })?;
        let mut user = User::default();
        user.set_uid(uid.unwrap_or_default()).set_gid(gid.unwrap_or_default()).set_umask(umask);
        user.set_additional_gids(gids).set_username(name);
        Ok(user)
    }
}

impl Value for Mount {
    fn read(r: &mut Reader<'_>) -> Read<Self> {
        let (mut destination, mut typ, mut source, mut options) = (None, None, None, None);
        let (mut uids, mut gids) = (None, None);
        r.object(&mut |r, key| {
            match key {
                "destination" => destination = Value::read(r)?,
                "type" => typ = Value::read(r)?,
                "source" => source = Value::read(r)?,
                "options" => options = Value::read(r)?,
                "uidMappings" => uids = Value::read(r)?,
                "gidMappings" => gids = Value::read(r)?,
                _ => drop(r.skip()?),
            }
            Ok(())
        })?;
        let mut mount = Mount::default();
        mount.set_destination(destination.unwrap_or_default()).set_typ(typ).set_source(source);
        mount.set_options(options).set_uid_mappings(uids).set_gid_mappings(gids);
        Ok(mount)
    }
}

impl Value for LinuxIdMapping {
    fn read(r: &mut Reader<'_>) -> Read<Self> {
        let (mut container, mut host, mut size) = (0u32, 0u32, 0u32);
        r.object(&mut |r, key| {
            match key {
                "containerID" => container = Value::read(r)?,
                "hostID" => host = Value::read(r)?,
                "size" => size = Value::read(r)?,
                _ => drop(r.skip()?),
            }
            Ok(())
        })?;
        built(r, LinuxIdMappingBuilder::default().container_id(container).host_id(host).size(size).build())
    }
}

/// Every field is given, so there is nothing that could fail.
fn built<T>(r: &mut Reader<'_>, value: Result<T, OciSpecError>) -> Read<T> {
    value.or_else(|e| r.wrong(e.to_string()))
}

impl Value for LinuxNamespace {
    fn read(r: &mut Reader<'_>) -> Read<Self> {
        let (mut typ, mut path) = (None, None);
        r.object(&mut |r, key| {
            match key {
                "type" => typ = Some(word(r)?),
                "path" => path = Value::read(r)?,
                _ => drop(r.skip()?),
            }
            Ok(())
        })?;
        let Some(typ) = typ else { return r.wrong("a namespace without a type") };
        let mut namespace = LinuxNamespace::default();
        namespace.set_typ(typ).set_path(path);
        Ok(namespace)
    }
}

impl Value for PosixRlimit {
    fn read(r: &mut Reader<'_>) -> Read<Self> {
        let (mut typ, mut soft, mut hard) = (None, 0u64, 0u64);
        r.object(&mut |r, key| {
            match key {
                "type" => typ = Some(word(r)?),
                "soft" => soft = Value::read(r)?,
                "hard" => hard = Value::read(r)?,
                _ => drop(r.skip()?),
            }
            Ok(())
        })?;
        let Some(typ) = typ else { return r.wrong("an rlimit without a type") };
        built(r, PosixRlimitBuilder::default().typ::<PosixRlimitType>(typ).soft(soft).hard(hard).build())
    }
}

/// The capabilities that are known; the others are warnings (config.md).
impl Value for Sets {
    fn read(r: &mut Reader<'_>) -> Read<Self> {
        let mut sets = Sets::default();
        r.object(&mut |r, key| {
            let set = match key {
                "bounding" => &mut sets.bounding,
                "effective" => &mut sets.effective,
                "inheritable" => &mut sets.inheritable,
                "permitted" => &mut sets.permitted,
                "ambient" => &mut sets.ambient,
                _ => return r.skip().map(drop),
            };
            if r.null() {
                return Ok(());
            }
            r.array(&mut |r| {
                let name = r.text()?;
                match caps::by_name(&name) {
                    Some(capability) => *set |= capability,
                    None => warn(r, format!("unknown capability {name:?} in {key} is ignored")),
                }
                Ok(())
            })
        })?;
        Ok(sets)
    }
}

fn write_capabilities<S: Serializer>(sets: &Option<Sets>, serializer: S) -> Result<S::Ok, S::Error> {
    let sets = sets.unwrap_or_default();
    let mut map = serializer.serialize_map(None)?;
    for (key, set) in [
        ("bounding", sets.bounding),
        ("effective", sets.effective),
        ("inheritable", sets.inheritable),
        ("permitted", sets.permitted),
        ("ambient", sets.ambient),
    ] {
        if set != 0 {
            map.serialize_entry(key, &caps::names(set))?;
        }
    }
    map.end()
}

impl Value for LinuxSeccomp {
    fn read(r: &mut Reader<'_>) -> Read<Self> {
        let (mut default, mut errno, mut architectures, mut flags) = (None, None, None, None);
        let (mut path, mut metadata, mut calls) = (None, None, None);
        r.object(&mut |r, key| {
            match key {
                "defaultAction" => default = Some(word(r)?),
                "defaultErrnoRet" => errno = Value::read(r)?,
                "architectures" => architectures = known(r, "architecture")?,
                "flags" => flags = known(r, "flag")?,
                "listenerPath" => path = Value::read(r)?,
                "listenerMetadata" => metadata = Value::read(r)?,
                "syscalls" => calls = Value::read(r)?,
                _ => drop(r.skip()?),
            }
            Ok(())
        })?;
        let Some(default) = default else { return r.wrong("seccomp without a defaultAction") };
        let mut section = LinuxSeccomp::default();
        section.set_default_action(default).set_default_errno_ret(errno).set_architectures(architectures);
        section.set_flags(flags).set_listener_path(path).set_listener_metadata(metadata).set_syscalls(calls);
        Ok(section)
    }
}

impl Value for LinuxSyscall {
    fn read(r: &mut Reader<'_>) -> Read<Self> {
        let (mut names, mut action, mut errno, mut args) = (None, None, None, None);
        r.object(&mut |r, key| {
            match key {
                "names" => names = Value::read(r)?,
                "action" => action = Some(word(r)?),
                "errnoRet" => errno = Value::read(r)?,
                "args" => args = Value::read(r)?,
                _ => drop(r.skip()?),
            }
            Ok(())
        })?;
        let (Some(names), Some(action)) = (names, action) else {
            return r.wrong("a seccomp rule without names or action");
        };
        let mut call = LinuxSyscall::default();
        call.set_names(names).set_action(action).set_errno_ret(errno).set_args(args);
        Ok(call)
    }
}

impl Value for LinuxSeccompArg {
    fn read(r: &mut Reader<'_>) -> Read<Self> {
        let (mut index, mut value, mut two, mut op) = (None, None, None, None);
        r.object(&mut |r, key| {
            match key {
                "index" => index = Some(usize::read(r)?),
                "value" => value = Some(u64::read(r)?),
                "valueTwo" => two = Option::<u64>::read(r)?,
                "op" => op = Some(word::<LinuxSeccompOperator>(r)?),
                _ => drop(r.skip()?),
            }
            Ok(())
        })?;
        let (Some(index), Some(value), Some(op)) = (index, value, op) else {
            return r.wrong("a seccomp argument without index, value or op");
        };
        let mut arg = LinuxSeccompArgBuilder::default().index(index).value(value).op(op);
        if let Some(two) = two {
            arg = arg.value_two(two);
        }
        built(r, arg.build())
    }
}

/// A word that oci-spec has a variant for.
fn word<T: for<'de> Deserialize<'de>>(r: &mut Reader<'_>) -> Read<T> {
    let word = r.text()?;
    match named(&word) {
        Some(value) => Ok(value),
        None => r.wrong(format!("unknown word {word:?}")),
    }
}

fn named<T: for<'de> Deserialize<'de>>(word: &str) -> Option<T> {
    T::deserialize(StrDeserializer::<serde::de::value::Error>::new(word)).ok()
}

/// The words of a list that are known; the others are warnings.
fn known<T: for<'de> Deserialize<'de>>(r: &mut Reader<'_>, what: &str) -> Read<Option<Vec<T>>> {
    if r.null() {
        return Ok(None);
    }
    let mut list = Vec::new();
    r.array(&mut |r| {
        let name = r.text()?;
        match named(&name) {
            Some(value) => list.push(value),
            None => warn(r, format!("unknown seccomp {what} {name:?} is ignored")),
        }
        Ok(())
    })?;
    Ok(Some(list))
}

#[cold]
fn warn(r: &mut Reader<'_>, warning: String) {
    if !r.warnings.contains(&warning) {
        r.warnings.push(warning);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oci_spec::runtime::Spec as Theirs;

    /// Whatever oci-spec reads is read the same here, and written so that oci-spec reads it again.
    fn is_read_alike(text: &str) {
        let theirs: Theirs = serde_json::from_str(text).unwrap();
        let mut reader = Reader::new(text);
        let ours: Spec = reader.whole().unwrap();
        assert_eq!(reader.warnings, [""; 0]);
        let written = serde_json::to_string(&ours).unwrap();
        assert_eq!(serde_json::from_str::<Theirs>(&written).unwrap(), theirs, "{text}");
        assert_eq!(Reader::new(&written).whole::<Spec>().unwrap(), ours);
    }

    #[test]
    fn configs_are_read_as_oci_spec_reads_them() {
        is_read_alike(include_str!("../../../config.json.example"));
        is_read_alike(&serde_json::to_string(&Theirs::default()).unwrap());
        is_read_alike(&serde_json::to_string(&Theirs::rootless(7, 8)).unwrap());
        is_read_alike(EVERYTHING);
    }

    #[test]
    fn null_is_nothing() {
        let all: serde_json::Value = serde_json::from_str(EVERYTHING).unwrap();
        let nulls = |object: &serde_json::Value| -> String {
            let object = object.as_object().unwrap();
            let fields: Vec<String> = object.keys().map(|key| format!("{key:?}:null")).collect();
            format!("{{{}}}", fields.join(","))
        };
        let text = format!(
            r#"{{"ociVersion":"1","process":{},"linux":{},"root":{},"mounts":[{}]}}"#,
            nulls(&all["process"]),
            nulls(&all["linux"]),
            nulls(&all["root"]),
            nulls(&all["mounts"][0])
        );
        let spec: Spec = Reader::new(&text).whole().unwrap();
        assert_eq!(spec.process, Some(Process::default()));
        assert_eq!(spec.linux, Some(Linux::default()));
    }

    #[test]
    fn what_is_missing_or_unknown_is_named() {
        let wrong = |linux: &str| {
            let text = format!("{{\"linux\":{{{linux}}}}}");
            Reader::new(&text).whole::<Spec>().unwrap_err().to_string()
        };
        for (linux, reason) in [
            (r#""namespaces":[{"path":"/x"}]"#, "a namespace without a type"),
            (r#""namespaces":[{"type":"moon"}]"#, "type: unknown word \"moon\""),
            (r#""seccomp":{}"#, "seccomp without a defaultAction"),
            (
                r#""seccomp":{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["read"]}]}"#,
                "without names or action",
            ),
            (r#""devices":[{"path":7}]"#, "invalid type: integer `7`, expected path string at line 1 column"),
            (r#""maskedPaths":{}"#, "maskedPaths: expected an array"),
        ] {
            assert!(wrong(linux).contains(reason), "{}", wrong(linux));
        }
    }

    /// Every key that is read.
    const EVERYTHING: &str = r#"{
        "ociVersion": "1.3.0", "hostname": "h", "domainname": "d", "annotations": {"a": "b", "c\n": "\u00e9"},
        "root": {"path": "r", "readonly": true},
        "mounts": [{"destination": "/d", "type": "bind", "source": "/s", "options": ["ro", "rbind"],
            "uidMappings": [{"containerID": 1, "hostID": 2, "size": 3}],
            "gidMappings": [{"containerID": 4, "hostID": 5, "size": 6}]}],
        "process": {"terminal": true, "consoleSize": {"height": 2, "width": 3},
            "user": {"uid": 1, "gid": 2, "umask": 18, "additionalGids": [5, 6], "username": "u"},
            "args": ["a", "b"], "env": ["A=1"], "cwd": "/c",
            "capabilities": {"bounding": ["CAP_CHOWN", "CAP_BPF"], "effective": ["CAP_KILL"],
                "inheritable": ["CAP_MKNOD"], "permitted": ["CAP_SETUID"], "ambient": ["CAP_SETGID"]},
            "rlimits": [{"type": "RLIMIT_NOFILE", "soft": 1, "hard": 18446744073709551615}],
            "noNewPrivileges": true, "apparmorProfile": "p", "oomScoreAdj": -5, "selinuxLabel": "l",
            "ioPriority": {"class": "IOPRIO_CLASS_BE", "priority": 4},
            "scheduler": {"policy": "SCHED_DEADLINE", "flags": ["SCHED_FLAG_RECLAIM"], "runtime": 1, "deadline": 2,
                "period": 3},
            "execCPUAffinity": {"initial": "0-1", "final": "2"}},
        "hooks": {"prestart": [{"path": "/h", "args": ["h"], "env": ["B=2"], "timeout": 3}],
            "poststop": [{"path": "/i"}]},
        "linux": {"netDevices": {"eth0": {"name": "inside"}},
            "uidMappings": [{"containerID": 0, "hostID": 4294967295, "size": 1}],
            "gidMappings": [{"containerID": 0, "hostID": 1, "size": 1}],
            "sysctl": {"net.core.somaxconn": "7"}, "cgroupsPath": "/x",
            "resources": {"devices": [{"allow": false, "access": "rwm"}], "pids": {"limit": 9}},
            "namespaces": [{"type": "pid"}, {"type": "network", "path": "/n"}, {"type": "mount"}, {"type": "time"}],
            "devices": [{"path": "/dev/x", "type": "c", "major": 1, "minor": 2, "fileMode": 438, "uid": 0, "gid": 0}],
            "seccomp": {"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 38,
                "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86"], "flags": ["SECCOMP_FILTER_FLAG_LOG"],
                "listenerPath": "/l", "listenerMetadata": "m",
                "syscalls": [{"names": ["read", "write"], "action": "SCMP_ACT_ALLOW"},
                    {"names": ["clone"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1,
                     "args": [{"index": 0, "value": 18446744073709551615, "valueTwo": 7, "op": "SCMP_CMP_MASKED_EQ"},
                              {"index": 1, "value": 2, "op": "SCMP_CMP_NE"}]}]},
            "rootfsPropagation": "slave", "maskedPaths": ["/m"], "readonlyPaths": ["/r"], "mountLabel": "ml",
            "intelRdt": {"closID": "c"},
            "memoryPolicy": {"mode": "MPOL_BIND", "nodes": "0", "flags": ["MPOL_F_STATIC_NODES"]},
            "personality": {"domain": "LINUX32"},
            "timeOffsets": {"monotonic": {"secs": 5, "nanosecs": 6}}}}"#;
}
