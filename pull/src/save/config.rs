//! The way back from a bundle's config to an image's: the reverse of `profile.rs`.
//!
//! What config.json says counts, since that is what users edit and what the container was run with. The image's own
//! config, which `rt pull` keeps beside it, has what config.json has no place for, and the form in which the image said
//! what config.json still says.

use std::os::fd::OwnedFd;

use serde_json::{Map, Value, json};

use crate::image_config::{self, User};
use crate::manifest::Execution;
use crate::platform::Platform;
use crate::profile::{COMPUTED, configures_runtime};
use oci_content::digest::Digest;
use rt_spec::{ANNOTATION_CMD, ANNOTATION_ENTRYPOINT};

/// Fields of docker's configs that are about the container or the layers that the image was made of.
const STALE: [&str; 5] = ["id", "parent", "container", "container_config", "throwaway"];

/// What a saved image says of itself.
pub(crate) struct SavedConfig {
    /// Its config.
    pub config: Value,
    /// The annotations of its manifest.
    pub annotations: Map<String, Value>,
}

/// Makes the config of an image with the layers of these digests: that of the root, and perhaps that of an overlay. `bundle`
/// is the bundle's config, `original` that of the image that the bundle was made from, and `root` has the accounts by which
/// the image's user was found. `kept`: the history, where the layers are those that the image was made of.
pub(crate) fn saved_config(
    bundle: &Value,
    original: Option<Value>,
    root: &OwnedFd,
    diff_ids: &[&Digest],
    kept: Option<KeptHistory>,
) -> SavedConfig {
    let pulled = original.is_some();
    let mut image = match original {
        Some(Value::Object(image)) => image,
        _ => without_original(bundle),
    };
    let execution = image.get("config").cloned().unwrap_or_default();
    let execution: Execution = serde_json::from_value(execution).unwrap_or_default();
    let mut section = match image.remove("config") {
        Some(Value::Object(section)) => section,
        _ => Map::new(),
    };
    let before = Before { execution: &execution, pulled, process: &bundle["process"] };
    before.command(bundle, &mut section);
    before.environment(root, &mut section);
    before.directory_and_user(root, &mut section);
    let annotations = labels(bundle, &before, &mut section);
    for stale in STALE {
        image.remove(stale);
    }
    let architecture = image.get("architecture").and_then(Value::as_str).filter(|a| !a.is_empty());
    let architecture = json!(architecture.map_or_else(|| Platform::host().architecture, str::to_owned));
    image.insert("architecture".into(), architecture);
    image.insert("os".into(), json!("linux"));
    image.insert("config".into(), Value::Object(section));
    image.insert("rootfs".into(), json!({ "type": "layers", "diff_ids": diff_ids }));
    let of_image = image.remove("history");
    let history = match kept {
        Some(KeptHistory(kept)) => kept,
        None => Some(history(of_image, diff_ids.len())),
    };
    if let Some(history) = history {
        image.insert("history".into(), Value::Array(history));
    }
    SavedConfig { config: Value::Object(image), annotations }
}

/// What a bundle says in the words of an image's config, where that of an image was not kept.
pub(crate) fn without_image(bundle: &Value) -> Value {
    let mut image = without_original(bundle);
    let process = &bundle["process"];
    let words = |annotation: &str| -> Option<Value> {
        serde_json::from_str(bundle["annotations"][annotation].as_str()?).ok()
    };
    let (entrypoint, cmd) = (words(ANNOTATION_ENTRYPOINT), words(ANNOTATION_CMD));
    let cmd = cmd.or_else(|| entrypoint.is_none().then(|| process["args"].clone()));
    if let Some(Value::Object(section)) = image.get_mut("config") {
        section.insert("Entrypoint".into(), json!(entrypoint));
        section.insert("Cmd".into(), json!(cmd));
        section.insert("Env".into(), process["env"].clone());
        section.insert("WorkingDir".into(), process["cwd"].clone());
    }
    image.entry("architecture").or_insert_with(|| json!(Platform::host().architecture));
    image.insert("os".into(), json!("linux"));
    Value::Object(image)
}

/// What the annotations of a bundle tell of an image: of one that `rt pull` did not make, or made before it kept the image's
/// config.
fn without_original(bundle: &Value) -> Map<String, Value> {
    let annotation = |key: &str| bundle["annotations"][format!("org.opencontainers.image.{key}")].as_str();
    let mut image = Map::new();
    for key in ["architecture", "author", "created"] {
        if let Some(value) = annotation(key) {
            image.insert(key.into(), json!(value));
        }
    }
    let mut section = Map::new();
    if let Some(signal) = annotation("stopSignal") {
        section.insert("StopSignal".into(), json!(signal));
    }
    let ports = annotation("exposedPorts").unwrap_or_default().split(',').filter(|port| !port.is_empty());
    let ports: Map<String, Value> = ports.map(|port| (port.to_owned(), json!({}))).collect();
    if !ports.is_empty() {
        section.insert("ExposedPorts".into(), Value::Object(ports));
    }
    image.insert("config".into(), Value::Object(section));
    image
}

/// The history of an image whose layers stay as they are; none where nothing is known of it.
pub(crate) struct KeptHistory(pub Option<Vec<Value>>);

/// The image's entries, one for the layer that takes the place of all of its layers, and those of overlays. A history has as many
/// entries that are not empty as the image has layers.
fn history(of_image: Option<Value>, layers: usize) -> Vec<Value> {
    let mut root = json!({ "created_by": "rt save" });
    let mut entries = Vec::new();
    if let Some(Value::Array(of_image)) = of_image {
        entries = of_image;
        entries.retain(Value::is_object);
        for entry in &mut entries {
            entry["empty_layer"] = json!(true);
        }
        root["comment"] = json!("the layers before are merged into this one");
    }
    entries.push(root);
    entries.extend((1..layers).map(|_| json!({ "created_by": "rt save --overlay" })));
    entries
}

/// The image before it became a bundle, and what the bundle runs now.
struct Before<'a> {
    execution: &'a Execution,
    /// There is an image: the bundle is one of `rt pull`.
    pulled: bool,
    process: &'a Value,
}

impl Before<'_> {
    /// Entrypoint and Cmd, apart as far as `args` still has them.
    fn command(&self, bundle: &Value, section: &mut Map<String, Value>) {
        let words = |key: &str| -> Vec<Value> {
            let text = bundle["annotations"][key].as_str().unwrap_or("[]");
            serde_json::from_str(text).unwrap_or_default()
        };
        let (entrypoint, cmd) = (words(ANNOTATION_ENTRYPOINT), words(ANNOTATION_CMD));
        let args = self.process["args"].as_array().cloned().unwrap_or_default();
        // An image may name no command. Its bundle runs a shell.
        let none = self.pulled && entrypoint.is_empty() && cmd.is_empty() && args == [json!("/bin/sh")];
        let (entrypoint, cmd) = match (args.strip_prefix(&entrypoint[..]), none) {
            (_, true) => (Vec::new(), Vec::new()),
            (Some(rest), _) => {
                let rest = rest.to_vec();
                (entrypoint, rest)
            }
            (None, _) => (Vec::new(), args),
        };
        set(section, "Entrypoint", (!entrypoint.is_empty()).then(|| json!(entrypoint)));
        set(section, "Cmd", (!cmd.is_empty()).then(|| json!(cmd)));
    }

    /// Env, without what a bundle has in addition to it.
    fn environment(&self, root: &OwnedFd, section: &mut Map<String, Value>) {
        let mut env = self.process["env"].as_array().cloned().unwrap_or_default();
        if self.pulled {
            let own: Vec<&String> = self.execution.env.iter().flatten().collect();
            let home = image_config::home_of(&self.user(root));
            let added = |entry: &Value| {
                entry.as_str().is_some_and(|e| {
                    (e == image_config::PATH || e == home) && !own.iter().any(|known| *known == e)
                })
            };
            env.retain(|entry| !added(entry));
        }
        set(section, "Env", (!env.is_empty()).then(|| json!(env)));
    }

    /// WorkingDir and User, as the image wrote them where they still mean the same.
    fn directory_and_user(&self, root: &OwnedFd, section: &mut Map<String, Value>) {
        let cwd = self.process["cwd"].as_str().unwrap_or("/");
        if cwd != image_config::working_dir(self.execution) {
            set(section, "WorkingDir", Some(json!(cwd)));
        }
        let user = &self.process["user"];
        let id = |key: &str| user[key].as_u64().unwrap_or(0);
        let was = self.user(root);
        if (id("uid"), id("gid")) != (u64::from(was.uid), u64::from(was.gid)) {
            set(section, "User", Some(json!(format!("{}:{}", id("uid"), id("gid")))));
        }
    }

    /// The user that a pull finds. It makes root of one whom the image's accounts lack.
    fn user(&self, root: &OwnedFd) -> User {
        image_config::user(self.execution, root).unwrap_or_default()
    }
}

/// Labels, by what the bundle's annotations say now. What was no label of the image is returned, to be an annotation of the
/// manifest: it came from there, or the user wrote it.
fn labels(bundle: &Value, before: &Before, section: &mut Map<String, Value>) -> Map<String, Value> {
    let nothing = Map::new();
    let annotations = bundle["annotations"].as_object().unwrap_or(&nothing);
    let mut labels = Map::new();
    for (key, value) in before.execution.labels.iter().flatten() {
        // Variables that a pull leaves out cannot be found in the bundle.
        if configures_runtime(key) || value.is_empty() || annotations.contains_key(key) {
            labels.insert(key.clone(), json!(value));
        }
    }
    let mut others = Map::new();
    for (key, value) in annotations.iter().filter(|(key, _)| !configures_runtime(key)) {
        let known = labels.contains_key(key);
        if known || (!before.pulled && !key.starts_with("org.opencontainers.image.")) {
            labels.insert(key.clone(), value.clone());
        } else if before.pulled && !COMPUTED.contains(&key.as_str()) {
            others.insert(key.clone(), value.clone());
        }
    }
    set(section, "Labels", (!labels.is_empty()).then_some(Value::Object(labels)));
    others
}

/// Gives a field a value, or removes it.
fn set(section: &mut Map<String, Value>, key: &str, value: Option<Value>) {
    match value {
        Some(value) => drop(section.insert(key.to_owned(), value)),
        None => drop(section.remove(key)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rt_sys::disk;

    /// The config section that is saved for a bundle whose image had `original`.
    fn saved(bundle: Value, original: Option<Value>) -> (Value, Map<String, Value>) {
        let root = disk::open_root(std::path::Path::new("/var/empty"))
            .or_else(|_| disk::open_root("/dev/shm".as_ref()));
        let saved = saved_config(&bundle, original, &root.unwrap(), &[&Digest::of(b"x")], None);
        (saved.config, saved.annotations)
    }

    #[test]
    fn what_the_bundle_says_counts() {
        let image = json!({ "os": "linux", "architecture": "arm64", "variant": "v8", "container": "c", "author": "me",
            "history": [{ "created_by": "a" }, { "created_by": "b", "empty_layer": true }],
            "config": { "User": "7:8", "Entrypoint": ["/e"], "Cmd": ["c"], "Env": ["A=b"], "WorkingDir": "w",
                "Healthcheck": { "Test": ["NONE"] }, "Labels": { "k": "v", "gone": "x", "rt.user": "root" },
                "Volumes": { "/data": {} } } });
        let bundle = json!({
            "process": { "args": ["/e", "other"], "env": [image_config::PATH, "A=c", "HOME=/"], "cwd": "/w",
                "user": { "uid": 7, "gid": 8 } },
            "annotations": { "k": "new", "mine": "1", "org.opencontainers.image.os": "linux", "rt.user": "caller",
                ANNOTATION_ENTRYPOINT: r#"["/e"]"#, ANNOTATION_CMD: r#"["c"]"# } });
        let (config, annotations) = saved(bundle, Some(image));
        assert_eq!(
            config["config"],
            json!({ "User": "7:8", "Entrypoint": ["/e"], "Cmd": ["other"], "Env": ["A=c"],
            "WorkingDir": "w", "Healthcheck": { "Test": ["NONE"] }, "Labels": { "k": "new", "rt.user": "root" },
            "Volumes": { "/data": {} } })
        );
        assert_eq!(
            (&config["architecture"], &config["variant"], &config["author"]),
            (&json!("arm64"), &json!("v8"), &json!("me"))
        );
        assert!(config.get("container").is_none());
        let layers = config["history"].as_array().unwrap().iter().filter(|e| e["empty_layer"] != json!(true));
        assert_eq!(layers.count(), 1);
        assert_eq!(Value::Object(annotations), json!({ "mine": "1" }));
    }

    #[test]
    fn other_commands_and_users() {
        let process = |args: &[&str]| {
            json!({ "process": { "args": args, "cwd": "/", "user": { "uid": 5, "gid": 6 } },
            "annotations": { ANNOTATION_ENTRYPOINT: r#"["/e","f"]"# } })
        };
        let (config, _) =
            saved(process(&["/e", "g"]), Some(json!({ "config": { "Entrypoint": ["/e", "f"] } })));
        assert_eq!(config["config"], json!({ "Cmd": ["/e", "g"], "User": "5:6" }));
        let shell = json!({ "process": { "args": ["/bin/sh"], "cwd": "/" } });
        assert_eq!(
            saved(shell.clone(), Some(json!({}))).0["config"],
            json!({}),
            "the image names no command"
        );
        assert_eq!(saved(shell, None).0["config"], json!({ "Cmd": ["/bin/sh"] }));
    }

    #[test]
    fn bundles_without_an_image() {
        let bundle = json!({ "process": { "args": ["x"], "env": [image_config::PATH], "cwd": "/w" },
            "annotations": { "k": "v", "org.opencontainers.image.exposedPorts": "80/tcp", "rt.user": "caller",
                "org.opencontainers.image.stopSignal": "SIGINT", "org.opencontainers.image.created": "now" } });
        let (config, annotations) = saved(bundle, None);
        assert_eq!(
            config["config"],
            json!({ "Cmd": ["x"], "Env": [image_config::PATH], "WorkingDir": "/w",
            "StopSignal": "SIGINT", "ExposedPorts": { "80/tcp": {} }, "Labels": { "k": "v" } })
        );
        assert_eq!(config["created"], "now");
        assert!(annotations.is_empty());
    }
}
