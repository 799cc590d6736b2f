//! CDI, the container device interface, version 1.1: devices by name, described in files.
//!
//! A hook of the stage createRuntime adds files and devices. Variables, hooks of other stages and network devices must be
//! in the config, where the same program puts them as a precreate hook.

pub(crate) mod generate;

use crate::kit::bundle::Bundle;
use crate::kit::edits::{Access, Edits};
use crate::kit::tree::Tree;
use crate::nvidia::{compat, driver::Driver};
use rt_spec::ANNOTATION_MERGED;
use rt_sys::error::Result;
use rt_sys::{bail, err};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The directories of specs. Devices of later directories replace those of earlier ones.
const DIRS: &[&str] = &["/etc/cdi", "/var/run/cdi"];
/// The prefix of annotations that name devices to Kubernetes' engines.
pub const ANNOTATION: &str = "cdi.k8s.io/";

/// A CDI file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Spec {
    /// Version of the specification.
    pub cdi_version: String,
    /// `vendor/class`.
    pub kind: String,
    /// The devices.
    #[serde(default)]
    pub devices: Vec<Device>,
    /// What comes with any of the devices.
    #[serde(default)]
    pub container_edits: ContainerEdits,
}

/// One device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Device {
    /// The name behind `vendor/class=`.
    pub name: String,
    /// What comes with it.
    #[serde(default)]
    pub container_edits: ContainerEdits,
}

/// Changes to a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerEdits {
    /// `NAME=VALUE` each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Device nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub device_nodes: Vec<DeviceNode>,
    /// Network interfaces to move in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub net_devices: Vec<NetDevice>,
    /// OCI hooks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<Hook>,
    /// Mounts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
    /// Cache allocation, which needs the resctrl file system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intel_rdt: Option<Value>,
    /// Supplementary groups.
    #[serde(default, rename = "additionalGids", skip_serializing_if = "Vec::is_empty")]
    pub additional_gids: Vec<u32>,
}

/// A device node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceNode {
    /// In the container.
    pub path: PathBuf,
    /// On the host, where it is not the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_path: Option<PathBuf>,
    /// Permissions in the device cgroup, which hooks never change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<String>,
    /// Owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NetDevice {
    /// On the host.
    pub host_interface_name: String,
    /// In the container.
    pub name: String,
}

/// An OCI hook.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Hook {
    /// Its stage.
    pub hook_name: String,
    /// The program.
    pub path: PathBuf,
    /// Its arguments, the first one its name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Its environment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<i64>,
}

/// A mount.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Mount {
    /// On the host.
    pub host_path: PathBuf,
    /// In the container.
    pub container_path: PathBuf,
    /// Mount options.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// `tmpfs`, or a bind.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `.json`
    Json,
    /// `.yaml` or `.yml`
    Yaml,
}

/// Parses and checks one file.
pub fn parse(text: &[u8], format: Format) -> Result<Spec> {
    let spec: Spec = if format == Format::Yaml {
        let text = std::str::from_utf8(text).map_err(|_| err!("not UTF-8"))?;
        serde_saphyr::from_str(text)
            .map_err(|e| err!("{}", e.to_string().lines().next().unwrap_or("not YAML")))?
    } else {
        serde_json::from_slice(text).map_err(rt_spec::json_error)?
    };
    check(&spec)?;
    Ok(spec)
}

fn check(spec: &Spec) -> Result<()> {
    let mut version = spec.cdi_version.trim_start_matches('v').split('.').map(str::parse::<u32>);
    match (version.next(), version.next()) {
        (Some(Ok(0)), _) | (Some(Ok(1)), Some(Ok(0 | 1))) => {}
        _ => bail!("cdiVersion {:?} is not supported (0.x, 1.0 or 1.1)", spec.cdi_version),
    }
    let (vendor, class) =
        spec.kind.split_once('/').ok_or_else(|| err!("kind {:?} is no vendor/class", spec.kind))?;
    let plain = |text: &str, more: &str| {
        text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.ends_with(|c: char| c.is_ascii_alphanumeric())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
    };
    if !plain(vendor, "_-.") || !plain(class, "_-.") {
        bail!("kind {:?} is no vendor/class", spec.kind);
    }
    if let Some(device) = spec.devices.iter().find(|d| !plain(&d.name, "_-.:")) {
        bail!("device name {:?} is not allowed", device.name);
    }
    for edits in spec.devices.iter().map(|d| &d.container_edits).chain([&spec.container_edits]) {
        let relative =
            edits.device_nodes.iter().map(|n| &n.path).chain(edits.mounts.iter().map(|m| &m.container_path));
        if let Some(path) = relative.into_iter().find(|p| !p.is_absolute()) {
            bail!("{}: not an absolute path", path.display());
        }
        if let Some(variable) = edits.env.iter().find(|v| !v.contains('=') || v.starts_with('=')) {
            bail!("env {variable:?} is not NAME=VALUE");
        }
    }
    Ok(())
}

/// A file with a spec.
#[derive(Debug)]
struct SpecFile {
    path: PathBuf,
    /// The place of its directory in [`DIRS`]: the devices of later directories win.
    rank: usize,
    spec: Spec,
}

/// All specs of a node.
#[derive(Debug, Default)]
pub struct Registry {
    files: Vec<SpecFile>,
    /// Why files could not be parsed. The reason is shown only if a device is found in no other file.
    broken: Vec<String>,
}

impl Registry {
    /// Reads every spec of the node.
    pub fn load(host: &Tree) -> Result<Registry> {
        let mut registry = Registry::default();
        for (rank, dir) in DIRS.iter().enumerate() {
            for name in host.list(dir) {
                let path = Path::new(dir).join(&name);
                let format = match path.extension().and_then(|e| e.to_str()) {
                    Some("json") => Format::Json,
                    Some("yaml" | "yml") => Format::Yaml,
                    _ => continue,
                };
                let Some(text) = host.read(&path) else { continue };
                match parse(&text, format) {
                    Ok(spec) => registry.files.push(SpecFile { path, rank, spec }),
                    Err(e) => registry.broken.push(e.context(path.display()).to_string()),
                }
            }
        }
        Ok(registry)
    }

    /// The edits of the devices called `names`, those of each file once.
    pub fn resolve(&self, names: &[String]) -> Result<ContainerEdits> {
        let mut all = ContainerEdits::default();
        let mut used: Vec<&Path> = Vec::new();
        for name in names {
            let (file, device) = self.find(name)?;
            if !used.contains(&file.path.as_path()) {
                used.push(&file.path);
                all.extend(&file.spec.container_edits);
            }
            all.extend(&device.container_edits);
        }
        Ok(all)
    }

    /// The device called `name`, and the file that describes it.
    fn find(&self, name: &str) -> Result<(&SpecFile, &Device)> {
        let (kind, wanted) = split(name)?;
        let mut found: Vec<(&SpecFile, &Device)> = Vec::new();
        for file in self.files.iter().filter(|file| file.spec.kind == kind) {
            let devices = file.spec.devices.iter().filter(|d| d.name == wanted);
            found.extend(devices.map(|device| (file, device)));
        }
        let best = found.iter().map(|(file, _)| file.rank).max();
        found.retain(|(file, _)| Some(file.rank) == best);
        match found[..] {
            [(file, device)] => Ok((file, device)),
            [] => {
                let mut remedy = format!("{} describe it", DIRS.join(" or "));
                for broken in &self.broken {
                    remedy.push_str(&format!("; {broken}"));
                }
                bail!("unresolvable CDI device {name} (no file of {remedy})")
            }
            _ => bail!(
                "CDI device {name} is described twice: {} and {}",
                found[0].0.path.display(),
                found[1].0.path.display()
            ),
        }
    }
}

impl ContainerEdits {
    fn extend(&mut self, more: &ContainerEdits) {
        self.env.extend_from_slice(&more.env);
        self.device_nodes.extend_from_slice(&more.device_nodes);
        self.net_devices.extend_from_slice(&more.net_devices);
        self.hooks.extend_from_slice(&more.hooks);
        self.mounts.extend_from_slice(&more.mounts);
        self.additional_gids.extend_from_slice(&more.additional_gids);
        if more.intel_rdt.is_some() {
            self.intel_rdt.clone_from(&more.intel_rdt);
        }
    }
}

/// `vendor/class=name`.
fn split(name: &str) -> Result<(&str, &str)> {
    let parts = name.split_once('=').filter(|(kind, device)| kind.contains('/') && !device.is_empty());
    parts.ok_or_else(|| err!("{name:?} is no CDI device (VENDOR/CLASS=NAME)"))
}

/// The files and devices of `cdi` as edits.
pub fn edits(cdi: &ContainerEdits, bundle: &Bundle, host: &Tree, container: &Tree) -> Edits {
    let mut edits = Edits::default();
    for node in &cdi.device_nodes {
        let source =
            node.host_path.clone().filter(|p| !p.as_os_str().is_empty()).unwrap_or_else(|| node.path.clone());
        if node.uid.or(node.gid).is_some_and(|id| id != 0) {
            edits.note(format!("{}: the owner is the host's", node.path.display()));
        }
        if node.permissions.as_deref().is_some_and(|p| !p.is_empty() && p != "rw" && p != "rwm") {
            edits.note(format!(
                "{}: permissions are the host's; no device cgroup is written",
                node.path.display()
            ));
        }
        edits.device_at(source, node.path.clone());
    }
    for mount in &cdi.mounts {
        if mount.kind.as_deref() == Some("tmpfs") {
            edits.mask(&mount.container_path);
        } else {
            let access = match mount.options.iter().any(|o| o == "ro") {
                true => Access::ReadOnly,
                false => Access::Writable,
            };
            edits.bind_at(&mount.host_path, &mount.container_path, access);
        }
    }
    let merged = bundle.annotations.contains_key(ANNOTATION_MERGED);
    for hook in &cdi.hooks {
        if !add_known_hook(&mut edits, hook, host, container) && !merged {
            edits.warn(format!(
                "CDI hook {} of stage {} is not run (this hook runs it as a precreate hook)",
                hook.path.display(),
                hook.hook_name
            ));
        }
    }
    if !merged {
        edits.env.extend_from_slice(&cdi.env);
        for (there, what) in
            [(!cdi.env.is_empty(), "variables are"), (!cdi.net_devices.is_empty(), "network devices are")]
        {
            if there {
                edits.warn(format!("CDI: {what} not set (this hook sets them as a precreate hook)"));
            }
        }
    }
    if !cdi.additional_gids.is_empty() {
        edits.note("CDI: additionalGids are left out; one id has the caller's groups");
    }
    if cdi.intel_rdt.is_some() {
        edits.note("CDI: intelRdt is left out; it needs root and resctrl");
    }
    edits
}

/// Does itself what the NVIDIA toolkit's hooks do: those mount procfs and run the host's ldconfig, which fails
/// without root. False for any other hook.
fn add_known_hook(edits: &mut Edits, hook: &Hook, host: &Tree, container: &Tree) -> bool {
    let Some((name, options)) = toolkit_hook(hook) else { return false };
    let values = |flag: &str| -> Vec<&str> {
        let mut values = Vec::new();
        let mut words = options.iter();
        while let Some(word) = words.next() {
            match word.strip_prefix(flag) {
                Some("") => values.extend(words.next().map(String::as_str)),
                Some(rest) => values.extend(rest.strip_prefix('=')),
                None => {}
            }
        }
        values
    };
    match name {
        "create-symlinks" => {
            for (target, link) in values("--link").into_iter().filter_map(|pair| pair.split_once("::")) {
                edits.link(link, target);
            }
        }
        "update-ldcache" => {
            let folders: Vec<PathBuf> = values("--folder").into_iter().map(PathBuf::from).collect();
            add_folders(edits, &folders, host);
        }
        "enable-cuda-compat" => {
            if let Some(version) = values("--host-driver-version").first() {
                let driver = Driver { version: (*version).to_owned(), ..Driver::default() };
                compat::prefer(edits, &driver, container);
            }
        }
        "disable-device-node-modification" => {
            const PARAMS: &str = "/proc/driver/nvidia/params";
            if let Some(text) = host.read(PARAMS) {
                edits.file(PARAMS, super::nvidia::without_device_files(&text));
            }
        }
        "chmod" | "update-application-profile" => edits.note(format!("CDI: {name} is not needed")),
        _ => return false,
    }
    true
}

/// The toolkit's subcommand and its options: `nvidia-cdi-hook NAME …` or `nvidia-ctk hook NAME …`.
fn toolkit_hook(hook: &Hook) -> Option<(&str, &[String])> {
    let program = hook.path.file_name()?.to_str()?;
    let rest = match program {
        "nvidia-cdi-hook" => hook.args.get(1..)?,
        "nvidia-ctk" if hook.args.get(1)? == "hook" => hook.args.get(2..)?,
        _ => return None,
    };
    let (name, options) = rest.split_first()?;
    Some((name, options))
}

/// Entries of ld.so.cache for the libraries that are bound into `folders`.
fn add_folders(edits: &mut Edits, folders: &[PathBuf], host: &Tree) {
    let in_folders = |path: &Path| path.parent().is_some_and(|dir| folders.iter().any(|f| f == dir));
    let bound: Vec<_> = edits.binds.iter().filter(|b| in_folders(&b.path)).cloned().collect();
    for bind in bound {
        let Some(elf) = host.elf(&bind.source) else { continue };
        let (Some(flags), Some(file)) = (elf.cache_flags(), bind.path.file_name()) else { continue };
        let file = file.to_string_lossy().into_owned();
        for name in elf.soname.iter().filter(|name| **name != file).chain([&file]) {
            edits.library(name, &bind.path, flags);
        }
    }
}

/// Writes what concerns the config into it: variables, hooks that this program does not do itself, network
/// devices.
pub fn merge(cdi: &ContainerEdits, config: &mut Value) -> Result<()> {
    for variable in &cdi.env {
        set_variable(config, variable)?;
    }
    for hook in cdi.hooks.iter().filter(|hook| toolkit_hook(hook).is_none()) {
        let list = entry(config, &["hooks", &hook.hook_name], Value::Array(Vec::new()))?;
        let list =
            list.as_array_mut().ok_or_else(|| err!("config.json: hooks.{} is no list", hook.hook_name))?;
        let mut new = serde_json::json!({ "path": hook.path });
        if !hook.args.is_empty() {
            new["args"] = hook.args.clone().into();
        }
        if !hook.env.is_empty() {
            new["env"] = hook.env.clone().into();
        }
        if let Some(timeout) = hook.timeout {
            new["timeout"] = timeout.into();
        }
        list.push(new);
    }
    for device in &cdi.net_devices {
        let new = serde_json::json!({ "name": device.name });
        *entry(config, &["linux", "netDevices", &device.host_interface_name], Value::Null)? = new;
    }
    *entry(config, &["annotations", ANNOTATION_MERGED], Value::Null)? = "1".into();
    Ok(())
}

/// Sets one `NAME=VALUE` in `process.env`, over an older one.
pub fn set_variable(config: &mut Value, variable: &str) -> Result<()> {
    let list = entry(config, &["process", "env"], Value::Array(Vec::new()))?;
    let list = list.as_array_mut().ok_or_else(|| err!("config.json: process.env is no list"))?;
    let name = variable.split_inclusive('=').next().unwrap_or_default();
    list.retain(|old| !old.as_str().is_some_and(|old| old.starts_with(name)));
    list.push(variable.into());
    Ok(())
}

/// The value at `path`, made where it is missing.
fn entry<'a>(config: &'a mut Value, path: &[&str], missing: Value) -> Result<&'a mut Value> {
    let mut at = config;
    for (n, name) in path.iter().enumerate() {
        let context = || path[..n].join(".");
        let object = at.as_object_mut().ok_or_else(|| err!("config.json: {} is no object", context()))?;
        let new = if n + 1 == path.len() { missing.clone() } else { Value::Object(serde_json::Map::new()) };
        at = object.entry(*name).or_insert(Value::Null);
        if at.is_null() {
            *at = new;
        }
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = r#"{"cdiVersion":"1.1.0","kind":"vendor.com/thing","devices":[
        {"name":"a","containerEdits":{"deviceNodes":[{"path":"/dev/a","hostPath":"/dev/b","permissions":"r","gid":44}],
            "env":["A=1"]}},
        {"name":"b:1","containerEdits":{"deviceNodes":[{"path":"/dev/c"}]}}],
        "containerEdits":{"env":["ALL=1"],"additionalGids":[7],"intelRdt":{"closID":"c"},"mounts":[
            {"hostPath":"/usr/x","containerPath":"/opt/x","options":["ro","bind"]},
            {"hostPath":"tmpfs","containerPath":"/opt/t","type":"tmpfs"}],
        "netDevices":[{"hostInterfaceName":"eth7","name":"net0"}],
        "hooks":[{"hookName":"createContainer","path":"/usr/bin/nvidia-ctk",
            "args":["nvidia-ctk","hook","create-symlinks","--link","libx.so.1::/opt/libx.so"]},
            {"hookName":"poststart","path":"/bin/other","args":["other"],"timeout":3}]}}"#;

    const YAML: &str = "cdiVersion: 0.5.0\nkind: vendor.com/thing\ndevices:\n- name: \"0\"\n  containerEdits:\n    \
        deviceNodes:\n    - path: /dev/y\n      permissions: rw\n";

    fn registry(files: &[(&str, usize, &str)]) -> Registry {
        let spec = |(path, rank, text): &(&str, usize, &str)| {
            let format = if text.starts_with('{') { Format::Json } else { Format::Yaml };
            SpecFile { path: path.into(), rank: *rank, spec: parse(text.as_bytes(), format).unwrap() }
        };
        Registry { files: files.iter().map(spec).collect(), broken: Vec::new() }
    }

    #[test]
    fn devices_are_found_and_their_files_count_once() {
        let registry = registry(&[("a.json", 0, JSON), ("b.yaml", 0, YAML)]);
        let names = ["vendor.com/thing=a", "vendor.com/thing=b:1", "vendor.com/thing=0"].map(String::from);
        let all = registry.resolve(&names).unwrap();
        assert_eq!(all.env, ["ALL=1", "A=1"]);
        let paths: Vec<_> = all.device_nodes.iter().map(|n| n.path.to_str().unwrap()).collect();
        assert_eq!(paths, ["/dev/a", "/dev/c", "/dev/y"]);
        for wrong in ["vendor.com/thing=z", "vendor.com/thing", "x=y", ""] {
            assert!(registry.resolve(&[wrong.to_owned()]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn later_directories_win_and_doubles_are_refused() {
        let other = YAML.replace("/dev/y", "/dev/z");
        let name = ["vendor.com/thing=0".to_owned()];
        let both = registry(&[("/etc/cdi/a.yaml", 0, YAML), ("/var/run/cdi/a.yaml", 1, &other)]);
        assert_eq!(both.resolve(&name).unwrap().device_nodes[0].path, Path::new("/dev/z"));
        let double = registry(&[("/etc/cdi/a.yaml", 0, YAML), ("/etc/cdi/b.yaml", 0, &other)]);
        assert!(double.resolve(&name).unwrap_err().to_string().contains("described twice"));
    }

    #[test]
    fn deep_and_self_repeating_files_are_refused() {
        for deep in [1000, 100_000, 1_000_000] {
            let (open, close) = ("[".repeat(deep), "]".repeat(deep));
            let rdt = |value: &str| JSON.replacen(r#"{"closID":"c"}"#, value, 1);
            let text = rdt(&format!("{open}{close}"));
            assert!(
                parse(text.as_bytes(), Format::Json).is_err()
                    && parse(text.as_bytes(), Format::Yaml).is_err(),
                "{deep}"
            );
            let unknown = format!("{YAML}unknown: {open}{close}\n");
            assert!(parse(unknown.as_bytes(), Format::Yaml).is_err(), "{deep}");
            let indented: String = (0..deep.min(5000)).map(|n| format!("{}a:\n", " ".repeat(n))).collect();
            assert!(parse(indented.as_bytes(), Format::Yaml).is_err(), "{deep}");
        }
        let mut laughs = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
        for n in 1..30 {
            let last = format!("*a{}", n - 1);
            laughs += &format!("a{n}: &a{n} [{}]\n", [last.as_str(); 10].join(","));
        }
        assert!(parse(format!("{laughs}{YAML}").as_bytes(), Format::Yaml).is_err());
    }

    #[test]
    fn wrong_files_are_refused() {
        for (from, to) in [
            ("1.1.0", "2.0.0"),
            ("1.1.0", ""),
            ("vendor.com/thing", "thing"),
            ("vendor.com/thing", "ven dor/thing"),
            ("\"b:1\"", "\"b=1\""),
            ("/dev/c", "dev/c"),
            ("A=1", "A"),
            ("\"devices\"", "\"devices"),
        ] {
            assert!(parse(JSON.replacen(from, to, 1).as_bytes(), Format::Json).is_err(), "{from} as {to}");
        }
        assert!(parse(b"\xff", Format::Yaml).is_err() && parse(b": :", Format::Yaml).is_err());
    }

    #[test]
    fn what_a_hook_can_do_and_what_only_the_config_can() {
        let spec = parse(JSON.as_bytes(), Format::Json).unwrap();
        let mut all = spec.devices[0].container_edits.clone();
        all.extend(&spec.container_edits);
        let root = Tree::open(Path::new("/proc/self/fdinfo")).unwrap();
        let edits = edits(&all, &Bundle::default(), &root, &root);
        assert_eq!(edits.devices[0].source, Path::new("/dev/b"));
        assert_eq!(edits.masks, [Path::new("/opt/t")]);
        assert!(edits.binds[0].access == Access::ReadOnly);
        assert_eq!(edits.links[0].target, Path::new("libx.so.1"));
        assert_eq!(edits.notes.len(), 4, "{:?}", edits.notes);
        for about in ["owner", "permissions", "additionalGids", "intelRdt"] {
            assert!(edits.notes.iter().any(|note| note.contains(about)), "{about}: {:?}", edits.notes);
        }
        assert_eq!(edits.warnings.len(), 3, "{:?}", edits.warnings);

        let mut config = serde_json::json!({ "process": { "env": ["A=0", "AB=2"] } });
        merge(&all, &mut config).unwrap();
        assert_eq!(config["process"]["env"], serde_json::json!(["AB=2", "A=1", "ALL=1"]));
        assert_eq!(config["hooks"]["poststart"][0]["path"], "/bin/other");
        assert_eq!(config["linux"]["netDevices"]["eth7"]["name"], "net0");
        assert!(config["hooks"].get("createContainer").is_none());
        assert!(merge(&all, &mut serde_json::json!({ "process": 7 })).is_err());
    }
}
