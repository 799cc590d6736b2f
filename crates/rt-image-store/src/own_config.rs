//! A config that somebody else may have written, without what reaches beyond the container: that which `rt` writes into an
//! image file, and that of a bundle in a store of images which others than root and the caller can write.
//!
//! `rt pull` and `rt save` put the bundle's config.json into the file. A bundle's config is its owner's and may ask for
//! everything; a file may be anybody's. So this takes over what is named here, and nothing else: what runs, with which
//! environment, in which namespaces, under which filter, on which file systems of the kernel.

use rt_spec::annotations::ANNOTATION_BYTES;
use rt_spec::{DEFAULT_CAPABILITIES, hpc};
use rt_sys::error::{Error, Result};
use serde_json::{Map, Value, json};
use std::path::{Component, Path};

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
/// What of `linux` names something of the host.
const HOSTS: [&str; 3] = ["cgroupsPath", "intelRdt", "netDevices"];
/// Annotations with these beginnings configure a runtime.
const CONFIGURES: [&str; 3] = ["rt.", "run.oci.", "cdi.k8s.io/"];

/// What is taken of the config `said` for the image whose tree is mounted at `path`, of a caller with these ids.
///
/// # Errors
/// Its filter has a form in which what is left out of it could not be told.
pub fn config(said: &Value, path: &Path, uid: u32, gid: u32) -> Result<Value> {
    let mut linux = only(&said["linux"], &LINUX);
    match linux.get_mut("seccomp") {
        Some(Value::Object(filter)) => {
            // A socket of the host.
            filter.remove("listenerPath");
            filter.remove("listenerMetadata");
        }
        None | Some(Value::Null) => {}
        // A list of its fields without their names would be read as the same.
        Some(_) => return Err(Error::new("linux.seccomp: not an object".to_owned())),
    }
    // Those that it makes, not those that are somewhere.
    let mut namespaces: Vec<Value> = list(&said["linux"]["namespaces"])
        .filter(|namespace| is_made(namespace))
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

/// What the config `said` takes of the host and [`config`] leaves out, as it is to be shown: by hooks, mounts, devices and paths, and by
/// annotations that steer; for root, by ids, of which a container has one.
pub fn of_host(said: &Value, is_root: bool) -> Vec<String> {
    let mut all = hooks(said);
    if is_root && said["annotations"]["rt.user"].is_null() {
        let user = &said["process"]["user"];
        let id = |key: &str| user[key].as_u64().unwrap_or(0);
        if id("uid") != 0 || id("gid") != 0 {
            all.push(format!("user {}:{}", id("uid"), id("gid")));
        }
        if list(&user["additionalGids"]).next().is_some() {
            all.push("additionalGids".to_owned());
        }
    }
    all.extend(lost_mounts(said));
    let root = said["root"]["path"].as_str().unwrap_or_default();
    if !Path::new(root).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
        all.push(format!("root {root}"));
    }
    let linux = &said["linux"];
    let is_allowed = |device: &Value| device["allow"] == true;
    if list(&linux["devices"]).next().is_some() || list(&linux["resources"]["devices"]).any(is_allowed) {
        all.push("devices".to_owned());
    }
    let joined = list(&linux["namespaces"]).filter(|namespace| !is_made(namespace));
    all.extend(
        joined.map(|namespace| format!("namespace {}", namespace["type"].as_str().unwrap_or_default())),
    );
    let keys = HOSTS.iter().filter(|key| is_said(&linux[**key]));
    all.extend(keys.map(|key| (*key).to_owned()));
    if is_said(&linux["seccomp"]["listenerPath"]) {
        all.push("listenerPath".to_owned());
    }
    all.extend(annotations_but(said, |key| is_taken_annotation(key) || key == ANNOTATION_BYTES));
    all
}

fn hooks(said: &Value) -> Vec<String> {
    let has_some =
        said["hooks"].as_object().into_iter().flatten().any(|(_, of_stage)| list(of_stage).next().is_some());
    has_some.then(|| "hooks".to_owned()).into_iter().collect()
}

fn lost_mounts(said: &Value) -> impl Iterator<Item = String> {
    let lost = list(&said["mounts"]).filter(|mount| mounts(&json!([mount])).is_empty());
    lost.filter_map(|mount| mount["destination"].as_str()).map(|place| format!("mount {place}"))
}

fn annotations_but(said: &Value, is_taken: impl Fn(&str) -> bool) -> impl Iterator<Item = String> {
    let keys = said["annotations"].as_object().into_iter().flatten().map(|(key, _)| key);
    keys.filter(move |key| !is_taken(key)).map(|key| format!("annotation {key}"))
}

/// What the config `said` asks for and [`config`] has not `taken`, as it is to be shown.
pub fn left_out(said: &Value, taken: &Value) -> Vec<String> {
    let mut all = hooks(said);
    all.extend(lost_mounts(said));
    if list(&said["process"]["rlimits"]).next().is_some() {
        all.push("limits".to_owned());
    }
    if said["linux"]["sysctl"].as_object().is_some_and(|settings| !settings.is_empty()) {
        all.push("sysctl".to_owned());
    }
    if said["root"]["readonly"] != true {
        all.push("a writable root".to_owned());
    }
    let is_of_image = |key: &str| key.strip_prefix("rt.").is_some_and(|name| name.starts_with("image."));
    let is_known = |key: &str| is_of_image(key) || taken["annotations"].get(key).is_some();
    all.extend(annotations_but(said, is_known));
    all
}

/// What else the config `said` asks for and [`config`] has not `taken`, as it is to be shown. A job and the kernel bound what a container
/// takes, and its ids are the caller's, whatever it says.
pub fn also_left_out(said: &Value, taken: &Value) -> Vec<String> {
    let lost = |section: &str, known: &[&str]| {
        let is_lost = |key: &str, value: &Value| {
            let is_known = known.contains(&key) || key == "capabilities" && are_usual(value);
            is_said(value) && !is_known && taken[section].get(key).is_none()
        };
        let keys = said[section].as_object().into_iter().flatten();
        keys.filter(|(key, value)| is_lost(key, value)).map(|(key, _)| key.clone()).collect::<Vec<_>>()
    };
    let domain = is_said(&said["domainname"]).then(|| "domainname".to_owned());
    let of_process = lost("process", &["rlimits", "noNewPrivileges", "terminal", "consoleSize"]);
    domain.into_iter().chain(of_process).chain(lost("linux", &["sysctl", "resources", "devices"])).collect()
}

/// True for capabilities that say little where a container has one id: those of every config that is made by `spec`.
fn are_usual(sets: &Value) -> bool {
    let names = sets.as_object().into_iter().flatten().flat_map(|(_, set)| list(set));
    names
        .filter_map(Value::as_str)
        .all(|name| name == "CAP_AUDIT_WRITE" || DEFAULT_CAPABILITIES.contains(&name))
}

fn is_said(value: &Value) -> bool {
    !(value.is_null() || value == "" || value == &json!({}) || value == &json!([]))
}

/// True for a namespace that is made, and not one that is somewhere.
fn is_made(namespace: &Value) -> bool {
    namespace["path"].as_str().unwrap_or_default().is_empty()
}

fn only(said: &Value, keys: &[&str]) -> Map<String, Value> {
    let taken = said.as_object().into_iter().flatten().filter(|(key, _)| keys.contains(&key.as_str()));
    taken.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn list(said: &Value) -> impl Iterator<Item = &Value> {
    said.as_array().into_iter().flatten()
}

/// Of the binds only those of the profile hpc, which every container of it has, and in its form that of /sys.
fn mounts(said: &Value) -> Vec<Value> {
    let usual = hpc::mounts();
    let is_bind = |mount: &Value| {
        let words = list(&mount["options"]).filter_map(Value::as_str);
        mount["type"] == "bind" || words.into_iter().any(|word| matches!(word, "bind" | "rbind"))
    };
    let is_sys = |mount: &Value| ["destination", "source"].iter().all(|key| mount[key] == "/sys");
    let usual_sys = usual.iter().find(|mount| is_sys(mount));
    // Another config may have it writable, or what is mounted below.
    let as_usual = |mount: Value| match usual_sys {
        Some(usual) if is_bind(&mount) && is_sys(&mount) => usual.clone(),
        _ => mount,
    };
    let is_taken = |mount: &Value| match is_bind(mount) {
        true => usual.contains(mount),
        false => mount["type"].as_str().is_some_and(|kind| FILE_SYSTEMS.contains(&kind)),
    };
    let is_in_place = |mount: &Value| match mount["type"].as_str() {
        Some("proc") => mount["destination"] == "/proc",
        Some("sysfs") => mount["destination"] == "/sys",
        _ => true,
    };
    list(said).cloned().map(as_usual).filter(is_taken).filter(is_in_place).map(read_only).collect()
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
    let said = said.as_object().into_iter().flatten().filter(|(key, _)| is_taken_annotation(key));
    said.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn is_taken_annotation(key: &str) -> bool {
    ANNOTATIONS.contains(&key) || !CONFIGURES.iter().any(|beginning| key.starts_with(beginning))
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
        let config = config(&text, Path::new("/at"), 7, 8).unwrap();
        let map = |id| json!([{ "containerID": 0, "hostID": id, "size": 1 }]);
        let expected = json!({
            "ociVersion": "1.2.0",
            "process": { "args": ["a"], "env": ["A=b"], "cwd": "/", "user": { "uid": 0, "gid": 0 }, "noNewPrivileges": true },
            "root": { "path": "/at", "readonly": true },
            "mounts": [
                { "destination": "/run", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid"] },
                { "destination": "/sys/fs/cgroup", "type": "cgroup", "source": "c", "options": ["nosuid", "ro"] },
                hpc::mounts()[1],
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
        let mounts = ["/home", "/x", "/y", "/z"].map(|place| format!("mount {place}"));
        let annotations = ["cdi.k8s.io/x", "rt.home", "rt.mpi", "run.oci.keep_original_groups"];
        let annotations = annotations.map(|key| format!("annotation {key}"));
        let whole = [
            &["hooks".to_owned()][..],
            &mounts,
            &["sysctl", "a writable root"].map(str::to_owned),
            &annotations,
        ]
        .concat();
        assert_eq!(left_out(&text, &config), whole);
    }

    #[test]
    fn what_a_config_takes_of_the_host() {
        let config = |mounts: Value, linux: Value| json!({ "root": { "path": "rootfs" }, "mounts": mounts, "linux": linux });
        let sys = |options: Value| json!([{ "destination": "/sys", "type": "none", "source": "/sys", "options": options }]);
        let mut free = config(
            sys(json!(["rbind", "rro"])),
            json!({
                "namespaces": [{ "type": "pid" }, { "type": "network", "path": "" }], "cgroupsPath": "",
                "resources": { "devices": [{ "allow": false, "access": "rwm" }] }, "maskedPaths": [], "sysctl": { "net.x": "1" },
                "uidMappings": [{ "containerID": 0, "hostID": 7, "size": 9 }],
            }),
        );
        free["process"] =
            json!({ "rlimits": [{}], "capabilities": { "bounding": ["CAP_CHOWN"] }, "user": { "uid": 7 } });
        free["annotations"] = json!({ "org.label": "x", "rt.user": "caller", "rt.image.bytes": "7" });
        assert_eq!(of_host(&free, false), Vec::<String>::new());
        assert_eq!(of_host(&config(json!(hpc::mounts()), json!({})), false), Vec::<String>::new());
        let mount = |said: Value| of_host(&config(json!([said]), json!({})), false);
        for said in [
            json!({ "destination": "/x", "type": "bind", "source": "/home" }),
            json!({ "destination": "/x", "type": "proc", "source": "proc" }),
            json!({ "destination": "/x", "type": "overlay", "source": "overlay", "options": ["lowerdir=/"] }),
            json!({ "destination": "/x", "type": "none", "source": "/sys", "options": ["rbind", "rro"] }),
        ] {
            assert_eq!(mount(said.clone()), ["mount /x"], "{said}");
        }
        // Whatever it says of these, they are read-only.
        let usual = json!([hpc::mounts()[1]]);
        for options in [json!(["rbind", "ro"]), json!(["rbind", "rro", "rrw"]), json!(["bind", "rw"])] {
            let said = config(sys(options.clone()), json!({}));
            assert_eq!(of_host(&said, false), Vec::<String>::new(), "{options}");
            assert_eq!(super::config(&said, Path::new("/at"), 7, 8).unwrap()["mounts"], usual);
        }
        let cgroup = json!({ "destination": "/x", "type": "cgroup", "source": "cgroup", "options": ["rw"] });
        assert_eq!(mount(cgroup), Vec::<String>::new());
        // Two at one place, of which one is usual.
        let twice =
            [hpc::mounts()[1].clone(), json!({ "destination": "/sys", "type": "bind", "source": "/home" })];
        assert_eq!(of_host(&config(json!(twice), json!({})), false), ["mount /sys"]);
        for (linux, what) in [
            (json!({ "devices": [{ "path": "/dev/sda" }] }), "devices"),
            (json!({ "resources": { "devices": [{ "allow": true, "access": "rwm" }] } }), "devices"),
            (json!({ "namespaces": [{ "type": "pid", "path": "/proc/1/ns/pid" }] }), "namespace pid"),
            (json!({ "cgroupsPath": "/system.slice" }), "cgroupsPath"),
            (json!({ "netDevices": { "eth0": {} } }), "netDevices"),
            (json!({ "intelRdt": { "closID": "x" } }), "intelRdt"),
            (json!({ "seccomp": { "listenerPath": "/run/socket" } }), "listenerPath"),
        ] {
            assert_eq!(of_host(&config(json!([]), linux), false), [what]);
        }
        for path in ["/", "..", "x/../.."] {
            assert_eq!(of_host(&json!({ "root": { "path": path } }), false), [format!("root {path}")]);
        }
        let steers = json!({ "rt.image.file": "/x", "rt.home": "bind" });
        let steers =
            of_host(&json!({ "annotations": steers, "hooks": { "prestart": [{ "path": "/x" }] } }), false);
        assert_eq!(steers, ["hooks", "annotation rt.home", "annotation rt.image.file"]);
        // Root's container has one id, unless it is to be the caller's.
        let mut ids = json!({ "process": { "user": { "uid": 7, "gid": 8, "additionalGids": [9] } } });
        assert_eq!(of_host(&ids, true), ["user 7:8", "additionalGids"]);
        assert_eq!(of_host(&ids, false), Vec::<String>::new());
        ids["annotations"] = json!({ "rt.user": "caller" });
        assert_eq!(of_host(&ids, true), Vec::<String>::new());
        let mut more = json!({
            "domainname": "d", "process": { "args": [], "oomScoreAdj": 1, "terminal": true, "capabilities": { "bounding": ["CAP_KILL"] } },
            "linux": { "personality": { "domain": "LINUX32" }, "namespaces": [], "timeOffsets": {}, "maskedPaths": ["/x"] },
        });
        let taken = super::config(&more, Path::new("/at"), 7, 8).unwrap();
        assert_eq!(also_left_out(&more, &taken), ["domainname", "oomScoreAdj", "personality"]);
        more["process"]["capabilities"]["bounding"] = json!(["CAP_KILL", "CAP_MKNOD"]);
        assert_eq!(also_left_out(&more, &taken)[1], "capabilities");
        // What serde reads as the same, a list without the names, is nothing.
        let listed = json!({
            "process": [false, null], "hooks": [null, [{ "path": "/bin/sh" }]], "mounts": [["/x", "bind", "/home", ["rbind"]]],
            "root": ["../..", false], "linux": { "rootfsPropagation": "shared", "namespaces": [["network", "/proc/1/ns/net"]] },
        });
        let taken = super::config(&listed, Path::new("/at"), 7, 8).unwrap();
        assert_eq!((&taken["mounts"], &taken["hooks"]), (&json!([]), &Value::Null));
        assert_eq!(taken["root"], json!({ "path": "/at", "readonly": true }));
        assert!(taken["linux"].get("rootfsPropagation").is_none());
        let filter = json!({ "linux": { "seccomp": ["SCMP_ACT_ALLOW", null, [], [], "/run/socket"] } });
        assert!(super::config(&filter, Path::new("/at"), 7, 8).is_err());
    }
}
