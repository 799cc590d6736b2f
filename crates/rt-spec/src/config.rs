//! The types of a config that every start reads (runtime-spec, config.md and config-linux.md), and how they are read.
//! What is below them is oci-spec's, but for what a runtime that touches no cgroup has no use for.

use getset::{CopyGetters, Getters, MutGetters, Setters};
use oci_spec::runtime::{
    Box as Size, Hooks, LinuxDevice, LinuxIOPriority, LinuxIdMapping, LinuxMemoryPolicy, LinuxNamespace,
    LinuxNetDevice, LinuxPersonality, LinuxSeccomp, LinuxSeccompAction, LinuxSyscall, LinuxTimeOffset, Mount,
    PosixRlimit, Root, Scheduler, User,
};
use rt_sys::caps::{self, Sets};
use serde::de::value::StrDeserializer;
use serde::de::{DeserializeOwned, Error as _};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::HashMap;
use std::path::PathBuf;

/// A config.json (config.md).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Getters, MutGetters, Setters)]
#[serde(rename_all = "camelCase")]
#[getset(get = "pub", get_mut = "pub", set = "pub")]
pub struct Spec {
    /// `ociVersion`.
    #[serde(rename = "ociVersion", default)]
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
#[derive(
    Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Getters, CopyGetters, MutGetters, Setters,
)]
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
    #[serde(default, deserialize_with = "or_default")]
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
    #[serde(default, deserialize_with = "or_default")]
    #[getset(get = "pub")]
    cwd: PathBuf,
    /// `capabilities`: those of them that are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[getset(skip)]
    capabilities: Option<Capabilities>,
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
    #[serde(default, deserialize_with = "scheduler", skip_serializing_if = "Option::is_none")]
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Getters, MutGetters, Setters)]
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
    resources: Option<serde_json::Value>,
    /// `cgroupsPath`, which is not followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    cgroups_path: Option<PathBuf>,
    /// `namespaces`.
    #[serde(skip_serializing_if = "Option::is_none")]
    namespaces: Option<Vec<LinuxNamespace>>,
    /// `devices`.
    #[serde(skip_serializing_if = "Option::is_none")]
    devices: Option<Vec<LinuxDevice>>,
    /// `seccomp`: what is known of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[getset(skip)]
    seccomp: Option<Seccomp>,
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
    intel_rdt: Option<serde_json::Value>,
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

impl Spec {
    /// Takes what was read and cannot be used: capabilities and seccomp's words that nobody knows (config.md), each once.
    pub(super) fn take_warnings(&mut self) -> Vec<String> {
        let capabilities = self.process.as_mut().and_then(|p| p.capabilities.as_mut());
        let mut warnings = capabilities.map(|c| std::mem::take(&mut c.warnings)).unwrap_or_default();
        let seccomp = self.linux.as_mut().and_then(|l| l.seccomp.as_mut());
        warnings.extend(seccomp.into_iter().flat_map(|s| std::mem::take(&mut s.warnings)));
        let mut seen: Vec<String> = Vec::new();
        for warning in warnings {
            if !seen.contains(&warning) {
                seen.push(warning);
            }
        }
        seen
    }

    /// What it says of the container, and not of its program: all but `process` and `linux.seccomp`, with names in order.
    pub fn of_container(&mut self) -> serde_json::Result<serde_json::Value> {
        let process = self.process.take();
        let seccomp = self.linux.as_mut().and_then(|linux| linux.seccomp.take());
        let value = serde_json::to_value(&*self);
        self.process = process;
        if let Some(linux) = &mut self.linux {
            linux.seccomp = seccomp;
        }
        value
    }
}

impl Process {
    /// `capabilities`: those of them that are known.
    pub fn capabilities(&self) -> Option<Sets> {
        self.capabilities.as_ref().map(|c| c.sets)
    }

    /// Sets `capabilities`.
    pub fn set_capabilities(&mut self, sets: Option<Sets>) {
        self.capabilities = sets.map(|sets| Capabilities { sets, warnings: Vec::new() });
    }
}

impl Linux {
    /// `seccomp`: what is known of it.
    pub fn seccomp(&self) -> Option<&LinuxSeccomp> {
        self.seccomp.as_ref().map(|s| &s.section)
    }

    /// Sets `seccomp`.
    pub fn set_seccomp(&mut self, section: Option<LinuxSeccomp>) {
        self.seccomp = section.map(|section| Seccomp { section, warnings: Vec::new() });
    }
}

/// Reads a field that has a default, which it also has where it is null, as for runc.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Reads a process's scheduler: oci-spec has a name of its own for one of the flags (config.md "Scheduler").
fn scheduler<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Scheduler>, D::Error> {
    let mut value = serde_json::Value::deserialize(deserializer)?;
    for flag in value.get_mut("flags").and_then(|flags| flags.as_array_mut()).into_iter().flatten() {
        if *flag == "SCHED_FLAG_RESET_ON_FORK" {
            *flag = "SCHED_RESET_ON_FORK".into();
        }
    }
    serde_json::from_value(value).map_err(D::Error::custom)
}

/// `process.capabilities`: those that are known. The others are warnings (config.md).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Capabilities {
    sets: Sets,
    warnings: Vec<String>,
}

impl<'de> Deserialize<'de> for Capabilities {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Names {
            bounding: Option<Vec<String>>,
            effective: Option<Vec<String>>,
            inheritable: Option<Vec<String>>,
            permitted: Option<Vec<String>>,
            ambient: Option<Vec<String>>,
        }
        let names = Names::deserialize(deserializer)?;
        let mut read = Capabilities::default();
        for (key, names, set) in [
            ("bounding", names.bounding, &mut read.sets.bounding),
            ("effective", names.effective, &mut read.sets.effective),
            ("inheritable", names.inheritable, &mut read.sets.inheritable),
            ("permitted", names.permitted, &mut read.sets.permitted),
            ("ambient", names.ambient, &mut read.sets.ambient),
        ] {
            for name in names.iter().flatten() {
                match caps::by_name(name) {
                    Some(capability) => *set |= capability,
                    None => read.warnings.push(format!("unknown capability {name:?} in {key} is ignored")),
                }
            }
        }
        Ok(read)
    }
}

impl Serialize for Capabilities {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (key, set) in [
            ("bounding", self.sets.bounding),
            ("effective", self.sets.effective),
            ("inheritable", self.sets.inheritable),
            ("permitted", self.sets.permitted),
            ("ambient", self.sets.ambient),
        ] {
            if set != 0 {
                map.serialize_entry(key, &caps::names(set))?;
            }
        }
        map.end()
    }
}

/// `linux.seccomp` (config-linux.md) with the architectures and flags that oci-spec knows. The others are warnings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seccomp {
    pub(super) section: LinuxSeccomp,
    warnings: Vec<String>,
}

impl<'de> Deserialize<'de> for Seccomp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Section {
            default_action: LinuxSeccompAction,
            default_errno_ret: Option<u32>,
            architectures: Option<Vec<String>>,
            flags: Option<Vec<String>>,
            listener_path: Option<PathBuf>,
            listener_metadata: Option<String>,
            syscalls: Option<Vec<LinuxSyscall>>,
        }
        let read = Section::deserialize(deserializer)?;
        let mut warnings = Vec::new();
        let architectures = read.architectures.map(|words| known(&words, "architecture", &mut warnings));
        let flags = read.flags.map(|words| known(&words, "flag", &mut warnings));
        let mut section = LinuxSeccomp::default();
        section.set_default_action(read.default_action).set_default_errno_ret(read.default_errno_ret);
        section.set_architectures(architectures).set_flags(flags).set_listener_path(read.listener_path);
        section.set_listener_metadata(read.listener_metadata).set_syscalls(read.syscalls);
        Ok(Seccomp { section, warnings })
    }
}

impl Serialize for Seccomp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.section.serialize(serializer)
    }
}

/// The words of a list that oci-spec has a variant for; of the others, the warnings.
fn known<T: DeserializeOwned>(words: &[String], what: &str, warnings: &mut Vec<String>) -> Vec<T> {
    let known = |word: &String| {
        let deserializer = StrDeserializer::<serde::de::value::Error>::new(word);
        T::deserialize(deserializer)
            .map_err(|_| warnings.push(format!("unknown seccomp {what} {word:?} is ignored")))
            .ok()
    };
    words.iter().filter_map(known).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use oci_spec::runtime::Spec as Theirs;

    /// Whatever oci-spec reads is read the same here, and written so that oci-spec reads it again.
    fn is_read_alike(text: &str) {
        let theirs: Theirs = serde_json::from_str(text).unwrap();
        let mut ours: Spec = serde_json::from_str(text).unwrap();
        assert_eq!(ours.take_warnings(), [""; 0]);
        let written = serde_json::to_string(&ours).unwrap();
        assert_eq!(serde_json::from_str::<Theirs>(&written).unwrap(), theirs, "{text}");
        assert_eq!(serde_json::from_str::<Spec>(&written).unwrap(), ours);
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
            r#"{"path":"r","readonly":null}"#,
            r#"{"destination":"/d","type":null,"source":null,"options":null,"uidMappings":null,"gidMappings":null}"#
        );
        let spec: Spec = serde_json::from_str(&text).unwrap();
        assert_eq!(spec.process, Some(Process::default()));
        assert_eq!(spec.linux, Some(Linux::default()));
        let text = r#"{"process":{"user":{"uid":1,"gid":2,"umask":null,"additionalGids":null,"username":null}},
            "mounts":null,"linux":{"seccomp":{"defaultAction":"SCMP_ACT_LOG","defaultErrnoRet":null,
            "architectures":null,"flags":null,"listenerPath":null,"listenerMetadata":null,"syscalls":null}}}"#;
        let without =
            r#"{"process":{"user":{"uid":1,"gid":2}},"linux":{"seccomp":{"defaultAction":"SCMP_ACT_LOG"}}}"#;
        let read = |text| serde_json::from_str::<Spec>(text).unwrap();
        assert_eq!(read(text), read(without));
    }

    fn wrong(text: &str) -> String {
        serde_json::from_str::<Spec>(text).unwrap_err().to_string()
    }

    #[test]
    fn what_is_missing_or_unknown_is_named() {
        for (linux, reason) in [
            (r#""namespaces":[{"path":"/x"}]"#, "missing field `type`"),
            (r#""namespaces":[{"type":"moon"}]"#, "unknown variant `moon`, expected one of "),
            (r#""seccomp":{}"#, "missing field `defaultAction`"),
            (
                r#""seccomp":{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["read"]}]}"#,
                "missing field `action`",
            ),
            (r#""devices":[{"path":7}]"#, "invalid type: integer `7`, expected path string"),
            (r#""maskedPaths":{}"#, "invalid type: map, expected a sequence"),
        ] {
            let text = wrong(&format!("{{\"linux\":\n {{{linux}}}}}"));
            assert!(text.starts_with(reason) && text.contains(" at line 2 column "), "{text}");
        }
    }

    #[test]
    fn what_is_read_twice_or_deep_is_refused() {
        assert!(wrong(r#"{"hostname":"a","hostname":"b"}"#).starts_with("duplicate field `hostname`"));
        let nested = |deep: usize| format!("{}{}", "[".repeat(deep), "]".repeat(deep));
        for (section, key) in [("linux", "resources"), ("linux", "intelRdt"), ("process", "scheduler")] {
            let text = format!(r#"{{"{section}":{{"{key}":{}}}}}"#, nested(100_000));
            assert!(wrong(&text).starts_with("recursion limit exceeded"), "{key}: {}", wrong(&text));
        }
        // What nobody knows is passed over, however deep, without a stack.
        let unknown = format!(r#"{{"unknown":{},"hostname":"h"}}"#, nested(100_000));
        assert_eq!(serde_json::from_str::<Spec>(&unknown).unwrap().hostname(), &Some("h".to_owned()));
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
