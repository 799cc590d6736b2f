//! A config that somebody else may have written, without what reaches beyond the container: that which `rt` writes into an
//! image file, and that of a bundle in a store of images which others than root and the caller can write.
//!
//! `rt pull` and `rt save` put the bundle's config.json into the file. A bundle's config is its owner's and may ask for
//! everything; a file may be anybody's. So this takes over what is named here, and nothing else: what runs, with which
//! environment, in which namespaces, under which filter, on which file systems of the kernel.

use crate::hpc;
use rt_sys::error::{Error, Result};
use serde_json::{Map, Value, json};
use std::path::Path;

/// What is taken of `process`. Capabilities are not: by them the program could take away what covers the host's files.
const PROCESS: [&str; 4] = ["args", "env", "cwd", "user"];
/// What is taken of `linux`.
const LINUX: [&str; 3] = ["maskedPaths", "readonlyPaths", "seccomp"];
/// File systems of the kernel, which show nothing of the host's files.
const FILE_SYSTEMS: [&str; 6] = ["proc", "sysfs", "tmpfs", "devpts", "mqueue", "cgroup"];
/// Annotations that say how the image is run, and nothing about the host.
const ANNOTATIONS: [&str; 11] = [
    "rt.user",
    "rt.passwd",
    "rt.environment",
    "rt.init",
    "rt.mounts.optional",
    "rt.mounts.copied",
    "rt.image.entrypoint",
    "rt.image.cmd",
    "rt.image.name",
    "rt.image.digest",
    "rt.image.resolved",
];
/// Annotations with these beginnings configure a runtime.
const CONFIGURES: [&str; 3] = ["rt.", "run.oci.", "cdi.k8s.io/"];

/// The config for the image whose tree is mounted at `path`, of a caller with these ids.
pub fn config(text: &[u8], path: &Path, uid: u32, gid: u32) -> Result<Value> {
    let said: Value = serde_json::from_slice(text).map_err(|e| Error::new(e.to_string()))?;
    let mut linux = only(&said["linux"], &LINUX);
    if let Some(filter) = linux.get_mut("seccomp").and_then(Value::as_object_mut) {
        // A socket of the host.
        filter.remove("listenerPath");
        filter.remove("listenerMetadata");
    }
    // Those that it makes, not those that are somewhere.
    let mut namespaces: Vec<Value> = list(&said["linux"]["namespaces"])
        .filter(|namespace| namespace["path"].as_str().unwrap_or_default().is_empty())
        .map(|namespace| json!({ "type": namespace["type"] }))
        .collect();
    for kind in ["user", "mount"] {
        if !namespaces.iter().any(|namespace| namespace["type"] == kind) {
            namespaces.push(json!({ "type": kind }));
        }
    }
    linux.insert("namespaces".to_owned(), json!(namespaces));
    linux.insert("uidMappings".to_owned(), hpc::one_id_map(uid));
    linux.insert("gidMappings".to_owned(), hpc::one_id_map(gid));
    let mut process = only(&said["process"], &PROCESS);
    // With it the filter is loaded last. One that answers the runtime's own calls would open it to the program.
    process.insert("noNewPrivileges".to_owned(), json!(true));
    let mut config = json!({
        "ociVersion": "1.2.0",
        "process": process,
        "root": { "path": path, "readonly": true },
        "mounts": mounts(&said["mounts"]),
        "linux": linux,
        "annotations": annotations(&said["annotations"]),
    });
    if let Some(name) = said["hostname"].as_str() {
        config["hostname"] = json!(name);
    }
    Ok(config)
}

/// What the config `text` asks for and [`config`] has not `taken`, as it is to be shown.
///
/// # Errors
/// It is no JSON.
pub fn left_out(text: &[u8], taken: &Value) -> Result<Vec<String>> {
    let said: Value = serde_json::from_slice(text).map_err(|e| Error::new(e.to_string()))?;
    let mut all = Vec::new();
    if said["hooks"].as_object().into_iter().flatten().any(|(_, of_stage)| list(of_stage).next().is_some()) {
        all.push("hooks".to_owned());
    }
    let is_of =
        |mount: &Value, other: &Value| ["destination", "type"].iter().all(|key| mount[key] == other[key]);
    let is_taken = |mount: &&Value| list(&taken["mounts"]).any(|other| is_of(mount, other));
    let lost = list(&said["mounts"])
        .filter(|mount| !is_taken(mount))
        .filter_map(|mount| mount["destination"].as_str());
    all.extend(lost.map(|place| format!("mount {place}")));
    if list(&said["process"]["rlimits"]).next().is_some() {
        all.push("limits".to_owned());
    }
    if said["root"]["readonly"] != true {
        all.push("a writable root".to_owned());
    }
    let keys = said["annotations"].as_object().into_iter().flatten().map(|(key, _)| key);
    let is_of_image = |key: &str| key.strip_prefix("rt.").is_some_and(|name| name.starts_with("image."));
    let lost = keys.filter(|key| !is_of_image(key) && taken["annotations"].get(key.as_str()).is_none());
    all.extend(lost.map(|key| format!("annotation {key}")));
    Ok(all)
}

fn only(said: &Value, keys: &[&str]) -> Map<String, Value> {
    let taken = said.as_object().into_iter().flatten().filter(|(key, _)| keys.contains(&key.as_str()));
    taken.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn list(said: &Value) -> impl Iterator<Item = &Value> {
    said.as_array().into_iter().flatten()
}

/// Of the binds only those of the profile hpc, which every container of it has.
fn mounts(said: &Value) -> Vec<Value> {
    let usual = hpc::mounts();
    let is_bind = |mount: &Value| {
        let words = list(&mount["options"]).filter_map(Value::as_str);
        mount["type"] == "bind" || words.into_iter().any(|word| matches!(word, "bind" | "rbind"))
    };
    let is_taken = |mount: &&Value| match is_bind(mount) {
        true => usual.contains(mount),
        false => mount["type"].as_str().is_some_and(|kind| FILE_SYSTEMS.contains(&kind)),
    };
    let is_in_place = |mount: &&Value| match mount["type"].as_str() {
        Some("proc") => mount["destination"] == "/proc",
        Some("sysfs") => mount["destination"] == "/sys",
        _ => true,
    };
    list(said).filter(is_taken).filter(is_in_place).cloned().map(read_only).collect()
}

/// The cgroups are the scheduler's: on cgroup v1 the files of the caller's own would be open to who asks for them. They come along
/// with sysfs, whose own files are settings of the host.
fn read_only(mut mount: Value) -> Value {
    if mount["type"] == "cgroup" || mount["type"] == "sysfs" {
        let words =
            list(&mount["options"]).filter(|word| !["rw", "rrw", "ro"].map(Value::from).contains(word));
        // What is mounted below comes along with sysfs.
        let all = (mount["type"] == "sysfs").then(|| json!("rro"));
        mount["options"] = words.cloned().chain([json!("ro")]).chain(all).collect();
    }
    mount
}

fn annotations(said: &Value) -> Map<String, Value> {
    let is_taken = |key: &str| {
        ANNOTATIONS.contains(&key) || !CONFIGURES.iter().any(|beginning| key.starts_with(beginning))
    };
    let said = said.as_object().into_iter().flatten().filter(|(key, _)| is_taken(key));
    said.map(|(key, value)| (key.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_reaches_the_host_is_left_out() {
        let text = json!({
            "process": { "args": ["a"], "env": ["A=b"], "cwd": "/", "apparmorProfile": "unconfined",
                "capabilities": { "bounding": ["CAP_SYS_ADMIN"], "effective": ["CAP_SYS_ADMIN"] }, "user": { "uid": 0, "gid": 0 }, "selinuxLabel": "x", "rlimits": [] },
            "root": { "path": "/", "readonly": false },
            "hooks": { "createRuntime": [{ "path": "/bin/evil" }] },
            "mounts": [
                { "destination": "/home", "type": "bind", "source": "/home", "options": ["rbind"] },
                { "destination": "/x", "type": "none", "source": "/", "options": ["bind"] },
                { "destination": "/y", "type": "overlay", "source": "overlay", "options": ["lowerdir=/"] },
                { "destination": "/z", "type": "squashfs", "source": "/z.sqsh" },
                { "destination": "/run", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid"] },
                { "destination": "/sys/fs/cgroup", "type": "cgroup", "source": "c", "options": ["rw", "nosuid"] },
                { "destination": "/sys", "type": "bind", "source": "/sys", "options": ["rbind", "rw"] },
                hpc::mounts()[0],
            ],
            "linux": {
                "namespaces": [{ "type": "pid" }, { "type": "network", "path": "/proc/1/ns/net" }],
                "devices": [{ "path": "/dev/sda" }], "sysctl": { "kernel.x": "1" }, "maskedPaths": ["/proc/kcore"],
                "seccomp": { "defaultAction": "SCMP_ACT_ALLOW", "listenerPath": "/run/socket" },
                "uidMappings": [{ "containerID": 0, "hostID": 0, "size": 4_294_967_295u32 }],
            },
            "annotations": { "rt.user": "caller", "rt.home": "bind", "rt.mpi": "host", "rt.image.file": "/etc/x",
                "cdi.k8s.io/x": "v/c=d", "run.oci.keep_original_groups": "1", "org.label": "kept" },
            "hostname": "rt",
        });
        let config = config(text.to_string().as_bytes(), Path::new("/at"), 7, 8).unwrap();
        let map = |id| json!([{ "containerID": 0, "hostID": id, "size": 1 }]);
        let expected = json!({
            "ociVersion": "1.2.0",
            "process": { "args": ["a"], "env": ["A=b"], "cwd": "/", "user": { "uid": 0, "gid": 0 }, "noNewPrivileges": true },
            "root": { "path": "/at", "readonly": true },
            "mounts": [
                { "destination": "/run", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid"] },
                { "destination": "/sys/fs/cgroup", "type": "cgroup", "source": "c", "options": ["nosuid", "ro"] },
                hpc::mounts()[0],
            ],
            "linux": {
                "namespaces": [{ "type": "pid" }, { "type": "user" }, { "type": "mount" }],
                "uidMappings": map(7), "gidMappings": map(8), "maskedPaths": ["/proc/kcore"],
                "seccomp": { "defaultAction": "SCMP_ACT_ALLOW" },
            },
            "annotations": { "rt.user": "caller", "org.label": "kept" },
            "hostname": "rt",
        });
        assert_eq!(config, expected);
        let mounts = ["/home", "/x", "/y", "/z", "/sys"].map(|place| format!("mount {place}"));
        let annotations = ["cdi.k8s.io/x", "rt.home", "rt.mpi", "run.oci.keep_original_groups"];
        let annotations = annotations.map(|key| format!("annotation {key}"));
        let whole =
            [&["hooks".to_owned()][..], &mounts, &["a writable root".to_owned()], &annotations].concat();
        assert_eq!(left_out(text.to_string().as_bytes(), &config).unwrap(), whole);
    }
}
