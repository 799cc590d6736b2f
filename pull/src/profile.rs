//! `config.json` of a pulled bundle: the image-spec's conversion rules within a profile.

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::filter;
use super::image_config::{self, User};
use super::manifest::{Execution, ImageConfig, Manifest};
use super::source::Image;
use oci_content::digest::Digest;
use oci_layer::merge::MAX_PATH;
use rt_spec::host_files;
use rt_spec::hpc::{self, HOST_FILES};
use rt_spec::rootless::UserMap;
use rt_spec::{
    ANNOTATION_CMD, ANNOTATION_COPIED, ANNOTATION_DIGEST, ANNOTATION_ENTRYPOINT, ANNOTATION_ENVIRONMENT,
    ANNOTATION_HOME, ANNOTATION_INIT, ANNOTATION_NAME, ANNOTATION_OPTIONAL, ANNOTATION_PASSWD,
    ANNOTATION_RESOLVED, ANNOTATION_USER, DEFAULT_CAPABILITIES,
};
use rt_sys::disk::{self, Ids};
use rt_sys::error::{Context, Result};
use rt_sys::{bail, fd};

/// How a bundle is to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    /// The host's network, processes and devices; the caller's own user.
    Hpc,
    /// Namespaces, masks and a filter as podman has them.
    Isolated,
}

/// What the user chose besides.
#[derive(Debug, Clone)]
pub(crate) struct Choices {
    /// The profile.
    pub profile: Profile,
    /// `rt.user`, where it is not the profile's.
    pub user: Option<UserMap>,
    /// The rootfs may be written.
    pub writable: bool,
    /// Mount the caller's home.
    pub home: bool,
}

impl Choices {
    /// True where no container writes into the root.
    pub(crate) fn is_read_only(&self) -> bool {
        self.profile == Profile::Hpc && !self.writable
    }
}

/// Each is a mount, and perhaps directories in the tree.
const MAX_VOLUMES: usize = 256;

/// What the config of a bundle is made from.
#[derive(Clone, Copy)]
pub(crate) struct BundledImage<'a> {
    /// The image's name as it was given.
    pub name: &'a str,
    /// The digest of its manifest.
    pub digest: &'a Digest,
    /// The digest that the name stood for.
    pub resolved: &'a Digest,
    /// Its manifest.
    pub manifest: &'a Manifest,
    /// Its config.
    pub config: &'a ImageConfig,
}

impl<'a> BundledImage<'a> {
    /// The image that the user called `name`.
    pub(crate) fn of(image: &'a Image, name: &'a str) -> BundledImage<'a> {
        let Image { digest, resolved, manifest, config, .. } = image;
        BundledImage { name, digest, resolved, manifest, config }
    }
}

/// Builds the config for an image whose tree is below `root`. Without a tree that could be read the image's user is not
/// looked up, as the hpc profile allows.
pub(crate) fn config(image: &BundledImage, root: Option<&OwnedFd>, choices: &Choices) -> Result<Value> {
    let nothing = Execution::default();
    let execution = image.config.config.as_ref().unwrap_or(&nothing);
    let hpc = choices.profile == Profile::Hpc;
    // In the hpc profile the container's user is the caller, so a user that the image asks for and lacks is no error.
    let user = match root.map(|root| image_config::user(execution, root)) {
        None => User::default(),
        Some(Ok(user)) => user,
        Some(Err(_)) if hpc => User::default(),
        Some(Err(e)) => return Err(e),
    };
    let mut env = image_config::environment(execution);
    if !env.iter().any(|e| e.starts_with("HOME=")) && !hpc {
        env.push(image_config::home_of(&user));
    }
    let mut mounts = if hpc { hpc::mounts() } else { isolated_mounts() };
    let volumes = execution.volumes.iter().flatten();
    if volumes.clone().count() > MAX_VOLUMES {
        bail!("the image has more than {MAX_VOLUMES} volumes");
    }
    for volume in volumes.map(|(path, _)| path) {
        mounts.push(volume_mount(volume)?);
    }
    let mut config = json!({
        "ociVersion": "1.2.0",
        "process": {
            "terminal": false,
            "user": { "uid": user.uid, "gid": user.gid, "additionalGids": user.groups },
            "args": image_config::arguments(execution),
            "env": env,
            "cwd": image_config::working_dir(execution),
            "noNewPrivileges": hpc,
        },
        "root": { "path": "rootfs", "readonly": choices.is_read_only() },
        "mounts": mounts,
        "linux": if hpc { hpc::linux(disk::caller().uid, disk::caller().gid) } else { isolated_linux() },
        "annotations": annotations(image, execution, choices),
    });
    // The hpc profile lists none: the caller's own uid has none, and root inside has what its user namespace gives.
    let capabilities = DEFAULT_CAPABILITIES;
    if !hpc {
        config["hostname"] = json!("rt");
        config["process"]["capabilities"] =
            json!({ "bounding": capabilities, "effective": capabilities, "permitted": capabilities });
        config["linux"]["seccomp"] = filter::section(&capabilities)?;
    }
    // The runtime answers calls which one id cannot do (chown and the like) by a filter, which takes no_new_privs.
    if choices.user == Some(UserMap::Root) {
        config["process"]["noNewPrivileges"] = json!(true);
    }
    Ok(config)
}

/// True for annotations by which the runtime, or an engine's choice of devices, is configured. The labels of an image must
/// not become such annotations.
pub(crate) fn configures_runtime(key: &str) -> bool {
    ["rt.", "run.oci.", "cdi.k8s.io/"].iter().any(|prefix| key.starts_with(prefix))
}

/// The annotations that the image-spec's conversion makes of an image's fields.
pub(crate) const COMPUTED: [&str; 6] = [
    "org.opencontainers.image.os",
    "org.opencontainers.image.architecture",
    "org.opencontainers.image.author",
    "org.opencontainers.image.created",
    "org.opencontainers.image.stopSignal",
    "org.opencontainers.image.exposedPorts",
];

/// image-spec, conversion: annotation fields; labels win over them.
fn annotations(image: &BundledImage, execution: &Execution, choices: &Choices) -> Value {
    let BundledImage { name, digest, resolved, manifest, config } = *image;
    let mut all = Map::new();
    let mut set = |key: &str, value: Option<&str>| {
        if let Some(value) = value.filter(|v| !v.is_empty()) {
            all.insert(key.to_owned(), json!(value));
        }
    };
    let ports: Vec<&str> = execution.exposed_ports.iter().flatten().map(|(port, _)| port.as_str()).collect();
    let ports = ports.join(",");
    let fields = [
        Some(&config.os),
        Some(&config.architecture),
        config.author.as_ref(),
        config.created.as_ref(),
        execution.stop_signal.as_ref(),
        Some(&ports),
    ];
    for (key, value) in COMPUTED.into_iter().zip(fields) {
        set(key, value.map(String::as_str));
    }
    for (key, value) in manifest.annotations.iter().flatten().chain(execution.labels.iter().flatten()) {
        if !configures_runtime(key) {
            set(key, Some(value));
        }
    }
    let hpc = choices.profile == Profile::Hpc;
    set(ANNOTATION_USER, choices.user.map(UserMap::as_str).or(hpc.then_some("caller")));
    if hpc {
        set(ANNOTATION_PASSWD, Some("caller"));
        set(ANNOTATION_ENVIRONMENT, Some("caller"));
        set(ANNOTATION_OPTIONAL, Some(&HOST_FILES.join(",")));
        set(ANNOTATION_COPIED, Some(&HOST_FILES.join(",")));
    }
    // Programs of images seldom have handlers of their own, without which the first process of a PID namespace gets no ^C.
    set(ANNOTATION_INIT, (!hpc).then_some("true"));
    set(ANNOTATION_HOME, choices.home.then_some("bind"));
    set(ANNOTATION_NAME, Some(name));
    set(ANNOTATION_DIGEST, Some(digest.as_str()));
    set(ANNOTATION_RESOLVED, Some(resolved.as_str()));
    set(ANNOTATION_ENTRYPOINT, image_config::words(execution.entrypoint.as_deref()).as_deref());
    set(ANNOTATION_CMD, image_config::words(execution.cmd.as_deref()).as_deref());
    Value::Object(all)
}

/// Refuses what cannot be a volume.
pub(crate) fn check_volume(path: &str) -> Result<()> {
    match path.starts_with('/') && path.split('/').all(|part| part != "..") {
        true => Ok(()),
        false => bail!("volume {path:?}: not an absolute path"),
    }
}

/// A volume's data never go into the rootfs; what the image has there is copied up, into a directory with the mode of the image's:
/// programs such as PostgreSQL refuse others.
fn volume_mount(path: &str) -> Result<Value> {
    check_volume(path)?;
    Ok(json!({
        "destination": path, "type": "tmpfs", "source": "tmpfs",
        "options": ["nosuid", "nodev", "tmpcopyup"],
    }))
}

/// The mounts of the profile isolated.
pub(crate) fn isolated_mounts() -> Vec<Value> {
    let mount = |path: &str, kind: &str, options: &[&str]| json!({ "destination": path, "type": kind, "source": kind, "options": options });
    vec![
        mount("/proc", "proc", &["nosuid", "noexec", "nodev"]),
        mount("/dev", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
        mount("/dev/pts", "devpts", &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]),
        mount("/dev/shm", "tmpfs", &["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]),
        mount("/dev/mqueue", "mqueue", &["nosuid", "noexec", "nodev"]),
        mount("/sys", "sysfs", &["nosuid", "noexec", "nodev", "ro"]),
    ]
}

/// Its section `linux`, without a filter.
pub(crate) fn isolated_linux() -> Value {
    let Ids { uid, gid } = disk::caller();
    let masked: Vec<&str> =
        hpc::MASKED.into_iter().chain(["/sys/firmware", "/sys/devices/virtual/powercap"]).collect();
    json!({
        "namespaces": [
            { "type": "user" }, { "type": "mount" }, { "type": "pid" }, { "type": "ipc" }, { "type": "uts" },
            { "type": "network" },
        ],
        "uidMappings": hpc::one_id_map(uid),
        "gidMappings": hpc::one_id_map(gid),
        "maskedPaths": masked,
        "readonlyPaths": hpc::READ_ONLY,
    })
}

/// Makes what the config mounts on, where the image has nothing, so that a read-only tree needs no
/// overlay. In the hpc profile the host's files replace links of the image: a mount over
/// /etc/localtime would else land on the zone that it points to.
pub(crate) fn prepare_mount_points(root: &OwnedFd, config: &Value) -> Result<()> {
    mount_points(config).try_for_each(|(path, what)| prepare(root, path, what))
}

/// What the config needs of the tree, less what is on a file system that it mounts itself.
pub(crate) fn mount_points(config: &Value) -> impl Iterator<Item = (&str, MountPoint)> {
    let mounts = config["mounts"].as_array().into_iter().flatten();
    let destinations = mounts.filter_map(|mount| mount["destination"].as_str());
    let of_mounts = destinations.filter(|path| !path.starts_with("/dev/")).map(|path| {
        (path, if HOST_FILES.contains(&path) { MountPoint::File } else { MountPoint::Directory })
    });
    of_mounts.chain(config["process"]["cwd"].as_str().map(|dir| (dir, MountPoint::Directory)))
}

/// The record of what the image itself has at the places of host files: a bind hides it, so a copy may replace it.
pub(crate) fn host_files_record(root: &OwnedFd) -> Result<Vec<u8>> {
    let mut record = Vec::new();
    for path in HOST_FILES {
        let Some((dir, name)) = path.trim_start_matches('/').rsplit_once('/') else { continue };
        let Some(dir) = disk::open_if_dir(root.as_fd(), dir.as_bytes())? else { continue };
        let file = match disk::open_if_file(dir.as_fd(), name.as_bytes()) {
            // The file is not there, or nobody may read it.
            Err(e) if e.is(libc::ENOENT) || e.is(libc::EACCES) => None,
            opened => opened.context(|| format!("the image's {path}"))?,
        };
        let Some(file) = file else { continue };
        let text = fd::read_regular(file, host_files::MOST).context(|| format!("read {path}"))?;
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            record.extend(host_files::line(Path::new(path), &text));
        }
    }
    Ok(record)
}

/// Where apt's configuration is.
pub(crate) const APT_DIR: &str = "etc/apt/apt.conf.d";
/// The file in it, and what it says.
pub(crate) const APT_CONFIG: &str = "zz-one-user";
pub(crate) const APT_SAYS: &[u8] = b"APT::Sandbox::User \"root\";\n";

/// apt checks that it became its user `_apt`, which an answered setresgid(2) does not make true; one
/// line tells it to stay root. The only package manager that needs to be told.
pub(crate) fn prepare_package_managers(root: &OwnedFd) -> Result<()> {
    let mut dir = disk::open_dir_again(root.as_fd())?;
    for part in APT_DIR.split('/') {
        let Some(next) = disk::open_if_dir(dir.as_fd(), part.as_bytes())? else { return Ok(()) };
        dir = next;
    }
    let name = APT_CONFIG.as_bytes();
    if disk::mode_at(dir.as_fd(), name)?.is_none() {
        let mut file = disk::create_file(dir.as_fd(), name, 0o644)?;
        file.write_all(APT_SAYS).context(|| format!("write {}", fd::shown(&file)))?;
    }
    Ok(())
}

/// What a mount needs below it: a file is mounted on a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MountPoint {
    /// A file, empty where the image has none.
    File,
    /// A directory.
    Directory,
}

fn prepare(root: &OwnedFd, path: &str, what: MountPoint) -> Result<()> {
    let file = what == MountPoint::File;
    let parts: Vec<&[u8]> =
        path.as_bytes().split(|&b| b == b'/').filter(|p| !matches!(*p, b"" | b".")).collect();
    let Some((last, parents)) = parts.split_last() else { return Ok(()) };
    if parts.contains(&&b".."[..]) {
        return Ok(());
    }
    if path.len() > MAX_PATH {
        bail!("the image's config names a path of {} bytes, longer than {MAX_PATH}", path.len());
    }
    let mut dir: Arc<OwnedFd> = Arc::new(disk::open_dir_again(root.as_fd())?);
    for part in parents {
        match disk::mode_at(dir.as_fd(), part)? {
            None => make_dir(dir.as_fd(), part)?,
            Some(mode) if mode & 0o170000 == 0o040000 => {}
            // The image has a link here. The runtime resolves it inside the container; nothing is made through it.
            Some(_) => return Ok(()),
        }
        dir = Arc::new(disk::open_dir(dir.as_fd(), part)?);
    }
    match disk::mode_at(dir.as_fd(), last)? {
        None if file => disk::create_file(dir.as_fd(), last, 0o644).map(drop),
        None => make_dir(dir.as_fd(), last),
        Some(mode) if file && mode & 0o170000 == 0o120000 => {
            disk::unlink(dir.as_fd(), last)?;
            disk::create_file(dir.as_fd(), last, 0o644).map(drop)
        }
        Some(_) => Ok(()),
    }
}

fn make_dir(parent: std::os::fd::BorrowedFd, name: &[u8]) -> Result<()> {
    disk::make_dir(parent, name)?;
    disk::set_mode(disk::reopen_dir(parent, name)?.as_fd(), 0o755)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configs_are_valid() {
        let dir = std::env::temp_dir().join(format!("rt-profile-{}", rt_sys::unique::name()));
        std::fs::create_dir_all(dir.join("etc")).unwrap();
        std::os::unix::fs::symlink("/usr/share/zoneinfo/Etc/UTC", dir.join("etc/localtime")).unwrap();
        let root = disk::open_root(&dir).unwrap();
        let digest = Digest::of(b"x");
        let manifest: Manifest = serde_json::from_value(json!({
            "config": { "digest": digest, "size": 1 }, "layers": [],
        }))
        .unwrap();
        let image: ImageConfig = serde_json::from_value(json!({
            "os": "linux", "author": "me", "config": {
                "Env": ["A=b"], "Entrypoint": ["/e", "a b"], "Cmd": ["x"], "WorkingDir": "/w/d", "Volumes": { "/data": {} },
                "Labels": { "l": "v", "rt.user": "root", "rt.image.cmd": "[]", "cdi.k8s.io/x": "v/c=d" }, "StopSignal": "SIGINT" } }))
        .unwrap();
        for (profile, user) in
            [(Profile::Hpc, None), (Profile::Isolated, None), (Profile::Isolated, Some(UserMap::Root))]
        {
            let choices = Choices { profile, user, writable: false, home: false };
            let bundled = BundledImage {
                name: "n",
                digest: &digest,
                resolved: &digest,
                manifest: &manifest,
                config: &image,
            };
            let config = config(&bundled, Some(&root), &choices).unwrap();
            let spec: oci_spec::runtime::Spec = serde_json::from_value(config.clone()).unwrap();
            assert_eq!(spec.process().as_ref().unwrap().args().as_ref().unwrap(), &["/e", "a b", "x"]);
            assert_eq!(config["annotations"]["rt.image.entrypoint"], r#"["/e","a b"]"#);
            assert_eq!(
                config["annotations"]["rt.image.cmd"], r#"["x"]"#,
                "a label must not choose what runs"
            );
            assert_eq!(config["annotations"]["l"], "v");
            assert_eq!(config["annotations"]["org.opencontainers.image.stopSignal"], "SIGINT");
            let wanted = match (profile, user) {
                (Profile::Hpc, _) => json!("caller"),
                (_, Some(user)) => json!(user.as_str()),
                _ => Value::Null,
            };
            assert_eq!(config["annotations"]["rt.user"], wanted, "a label must not choose the user");
            assert!(config["annotations"].get("cdi.k8s.io/x").is_none(), "a label must not choose devices");
            let filtered = !config["linux"]["seccomp"].is_null();
            assert_eq!(filtered, profile == Profile::Isolated, "root has the filter, too");
            prepare_mount_points(&root, &config).unwrap();
        }
        assert!(dir.join("w/d").is_dir() && dir.join("data").is_dir() && dir.join("proc").is_dir());
        assert!(dir.join("etc/localtime").symlink_metadata().unwrap().is_file());
        assert!(host_files_record(&root).unwrap().is_empty(), "an empty place needs no line");
        std::fs::write(dir.join("etc/hosts"), "image").unwrap();
        let line = host_files::line(Path::new("/etc/hosts"), b"image");
        assert_eq!(host_files_record(&root).unwrap(), line);
        std::fs::remove_dir_all(dir).unwrap();
    }
}
