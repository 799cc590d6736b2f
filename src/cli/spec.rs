//! `rt spec`: a config.json to start from.

use super::Call;
use super::table::*;
use rt_spec::rootless::{UserMap, parse_user_map};
use rt_spec::{ANNOTATION_ENVIRONMENT, ANNOTATION_INIT, ANNOTATION_USER, DEFAULT_CAPABILITIES, OCI_VERSION};
use rt_sys::error::{Context, Result};
use rt_sys::{bail, fd, look};
use rustix::fs::{Mode, OFlags};
use rustix::process::{getegid, geteuid};
use serde_json::json;
use std::fs::{self, File};
use std::io::{ErrorKind, IsTerminal, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Writes config.json into the bundle, and with `--host` a directory for its root.
pub(super) fn run(call: &Call) -> Result<u8> {
    let bundle = call.flags.path(&BUNDLE).unwrap_or_else(|| PathBuf::from("."));
    let host = call.flags.has(&HOST);
    let user_map = match call.flags.text(&SPEC_USER_MAP)? {
        Some("config") => bail!("spec: --user-map is caller or root"),
        Some(name) => parse_user_map(name)?,
        None if host => UserMap::Caller,
        None => UserMap::Root,
    };
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    let caller = Caller {
        uid,
        gid,
        inside: if user_map == UserMap::Caller { (uid, gid) } else { (0, 0) },
        user_namespace: uid != 0 || call.flags.has(&SPEC_ROOTLESS),
        terminal: std::io::stdin().is_terminal() && std::io::stdout().is_terminal(),
    };
    // By a descriptor of the place alone: whoever has mounted a file system there need not answer.
    let place = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if rustix::fs::open(bundle.join("config.json"), place, Mode::empty()).is_ok() {
        bail!("File config.json exists. Remove it first");
    }
    make_dir(&bundle)?;
    let mounts = if host { Some(make_host_root(Path::new("/"), &bundle.join("rootfs"))?) } else { None };
    let path = bundle.join("config.json");
    let write = || File::create_new(&path)?.write_all(config(&caller, mounts.as_deref()).as_bytes());
    write().context(|| format!("write {}", path.display()))?;
    Ok(0)
}

/// Who calls, and as whom.
struct Caller {
    uid: u32,
    gid: u32,
    /// The uid and gid that the caller has in the container.
    inside: (u32, u32),
    user_namespace: bool,
    terminal: bool,
}

/// What `runc spec --rootless` writes, less what costs something and protects nobody: no cgroup
/// mount, no limit of 1024 open files. Root in its own user namespace has the capabilities that
/// package managers need.
///
/// `host` are the mounts of the host's userland, where the root is that.
fn config(caller: &Caller, host: Option<&[String]>) -> String {
    let (uid, gid) = caller.inside;
    let capabilities: &[&str] = if uid == 0 { &DEFAULT_CAPABILITIES } else { &[] };
    let (mut env, mut term, mut namespace) = ("", ",\n      \"TERM=xterm\"", "");
    let (mut mounts, mut mappings, mut annotations) = (String::new(), String::new(), Vec::new());
    if let Some(binds) = host {
        // The caller's is passed on.
        term = "";
        // The one place that the process may write to.
        env = "\n      \"HOME=/tmp\",";
        let private = [("/tmp", "mode=1777"), ("/var/tmp", "mode=1777"), ("/run", "mode=755")];
        let private = private.map(|(place, mode)| mount(place, "tmpfs", "tmpfs", &["nosuid", "nodev", mode]));
        mounts = private.iter().chain(binds).map(|mount| format!(",\n    {mount}")).collect::<String>();
    }
    if caller.user_namespace {
        namespace = ",\n      { \"type\": \"user\" }";
        for (what, inside, outside) in [("uid", uid, caller.uid), ("gid", gid, caller.gid)] {
            mappings += &format!(
                "\n    \"{what}Mappings\": [{{ \"containerID\": {inside}, \"hostID\": {outside}, \"size\": 1 }}],"
            );
        }
        if caller.inside != (0, 0) {
            // So that rt serves other callers with this bundle too.
            annotations.push(format!("\"{ANNOTATION_USER}\": \"caller\""));
        }
    }
    if host.is_some() {
        annotations.push(format!("\"{ANNOTATION_ENVIRONMENT}\": \"caller\""));
        // So that ^C ends whatever program is named.
        annotations.push(format!("\"{ANNOTATION_INIT}\": \"true\""));
    }
    let annotations = match annotations.is_empty() {
        true => String::new(),
        false => format!(" {} ", annotations.join(", ")),
    };
    [
        ("@version@", OCI_VERSION),
        ("@terminal@", if caller.terminal { "true" } else { "false" }),
        ("@uid@", &uid.to_string()),
        ("@gid@", &gid.to_string()),
        ("@env@", env),
        ("@term@", term),
        ("@capabilities@", &format!("{capabilities:?}")),
        ("@annotations@", &annotations),
        ("@namespace@", namespace),
        ("@mappings@", &mappings),
        ("@mounts@", &mounts),
    ]
    .iter()
    .fold(include_str!("spec.json.in").to_owned(), |config, (name, text)| config.replace(name, text))
}

/// One element of `mounts`.
fn mount(destination: &str, kind: &str, source: &str, options: &[&str]) -> String {
    let (destination, source) = (json!(destination), json!(source));
    format!(
        r#"{{ "destination": {destination}, "type": "{kind}", "source": {source}, "options": {options:?} }}"#
    )
}

/// The mount of a directory or file of the host's at its own place.
fn bind(path: &Path) -> Result<String> {
    let Some(path) = path.to_str() else { bail!("{} is not UTF-8", path.display()) };
    Ok(mount(path, "none", path, &["rbind", "nosuid", "nodev", "rro"]))
}

/// Makes the root's directory, with a mount point for each part of the userland below `from`, and
/// returns the mounts. A link, as /bin is one where /usr is merged, is made again.
fn make_host_root(from: &Path, rootfs: &Path) -> Result<Vec<String>> {
    make_dir(rootfs)?;
    // In a directory of another user's a link may have that name.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(rootfs, flags, Mode::empty())
        .context(|| format!("open {}, which may be no link", rootfs.display()))?;
    if !look::names(&opened)?.is_empty() {
        bail!("{} is not empty: remove it first", rootfs.display());
    }
    let rootfs = PathBuf::from(fd::link(&opened));
    let mut binds = Vec::new();
    for name in USERLAND {
        let host = from.join(name);
        let metadata = match fs::symlink_metadata(&host) {
            Err(e) if e.kind() == ErrorKind::NotFound => continue,
            found => found.context(|| format!("look at {}", host.display()))?,
        };
        if metadata.is_symlink() {
            let link = rootfs.join(name);
            fs::read_link(&host)
                .and_then(|to| symlink(to, &link))
                .context(|| format!("make {}", link.display()))?;
        } else if metadata.is_dir() {
            make_dir(&rootfs.join(name))?;
            binds.push(bind(&host)?);
        }
    }
    for name in ["proc", "dev", "sys", "tmp", "run", "var", "var/tmp", "home", "root", "mnt"] {
        make_dir(&rootfs.join(name))?;
    }
    // Where a resolver keeps the file in /run, /etc has a link to it.
    let resolv = from.join("etc/resolv.conf");
    match fs::canonicalize(&resolv) {
        Ok(real) if real.starts_with(from.join("run")) => binds.push(bind(&real)?),
        Ok(_) => {}
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(e) => return Err(e).context(|| format!("look at {}", resolv.display())),
    }
    Ok(binds)
}

/// What of the host's root is mounted by `--host`.
const USERLAND: &[&str] = &["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "opt"];

fn make_dir(path: &Path) -> Result<()> {
    match fs::create_dir(path) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists && look::is_dir(path)? => Ok(()),
        done => done.context(|| format!("make {}", fd::shown_path(path))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oci_spec::runtime::Spec;
    use serde_json::Value;

    fn caller(inside: (u32, u32)) -> Caller {
        Caller { uid: 1000, gid: 100, inside, user_namespace: true, terminal: false }
    }

    /// Reads a config by the specification's types, and sees to it that it has no key but theirs.
    fn read(text: &str) -> Spec {
        let spec: Spec = serde_json::from_str(text).unwrap();
        let kept = serde_json::to_value(&spec).unwrap();
        assert_all_kept(&serde_json::from_str(text).unwrap(), &kept, "");
        spec
    }

    /// Keys that begin with `//` are remarks.
    fn assert_all_kept(given: &Value, kept: &Value, place: &str) {
        match given {
            Value::Object(fields) => {
                for (key, value) in fields.iter().filter(|(key, _)| !key.starts_with("//")) {
                    assert_all_kept(value, &kept[key], &format!("{place}/{key}"));
                }
            }
            Value::Array(values) => {
                assert_eq!(kept.as_array().map(Vec::len), Some(values.len()), "{place}");
                // The types keep some lists of words as sets.
                let sorted = |value: &Value| {
                    let mut list = value.as_array().unwrap().clone();
                    list.sort_by_key(|value| value.as_str().map(String::from));
                    list
                };
                for (given, kept) in sorted(given).iter().zip(&sorted(kept)) {
                    assert_all_kept(given, kept, place);
                }
            }
            value => assert_eq!(value, kept, "{place}"),
        }
    }

    #[test]
    fn the_caller_is_root_or_itself() {
        for inside in [(0, 0), (1000, 100)] {
            let spec = read(&config(&caller(inside), None));
            let user = spec.process().as_ref().unwrap().user();
            assert_eq!((user.uid(), user.gid()), inside);
            let linux = spec.linux().as_ref().unwrap();
            let map = &linux.uid_mappings().as_ref().unwrap()[0];
            assert_eq!((map.container_id(), map.host_id(), map.size()), (inside.0, 1000, 1));
            let map = &linux.gid_mappings().as_ref().unwrap()[0];
            assert_eq!((map.container_id(), map.host_id(), map.size()), (inside.1, 100, 1));
            assert!(linux.resources().is_none());
        }
    }

    #[test]
    fn root_needs_no_user_namespace() {
        let root = Caller { uid: 0, gid: 0, user_namespace: false, ..caller((0, 0)) };
        assert!(read(&config(&root, None)).linux().as_ref().unwrap().uid_mappings().is_none());
    }

    #[test]
    fn the_hosts_userland_is_mounted_over_the_rest() {
        let binds = [bind(Path::new("/usr\"")).unwrap()];
        let spec = read(&config(&caller((1000, 100)), Some(&binds)));
        let mounts = spec.mounts().as_ref().unwrap();
        let places: Vec<_> =
            mounts.iter().skip(6).map(|mount| mount.destination().to_str().unwrap()).collect();
        assert_eq!(places, ["/tmp", "/var/tmp", "/run", "/usr\""]);
        assert_eq!(spec.process().as_ref().unwrap().env().as_ref().unwrap()[0], "HOME=/tmp");
        assert_eq!(spec.annotations().as_ref().unwrap()["rt.user"], "caller");
        assert_eq!(spec.annotations().as_ref().unwrap()["rt.environment"], "caller");
    }

    #[test]
    fn the_hosts_links_are_links_again() {
        let dir = std::env::temp_dir().join(format!("rt-spec-{}", std::process::id()));
        let (host, rootfs) = (dir.join("host"), dir.join("rootfs"));
        for part in ["usr", "etc", "opt", "run/resolver"] {
            fs::create_dir_all(host.join(part)).unwrap();
        }
        symlink("usr/bin", host.join("bin")).unwrap();
        fs::write(host.join("run/resolver/resolv.conf"), "").unwrap();
        symlink("../run/resolver/resolv.conf", host.join("etc/resolv.conf")).unwrap();
        let binds = make_host_root(&host, &rootfs).unwrap();
        let expected =
            ["usr", "etc", "opt", "run/resolver/resolv.conf"].map(|part| bind(&host.join(part)).unwrap());
        assert_eq!(binds, expected);
        assert_eq!(fs::read_link(rootfs.join("bin")).unwrap(), Path::new("usr/bin"));
        assert!(rootfs.join("var/tmp").is_dir() && !rootfs.join("lib64").exists());
        let again = make_host_root(&host, &rootfs).unwrap_err().to_string();
        assert!(again.ends_with("is not empty: remove it first"), "{again}");
        fs::remove_dir_all(&dir).unwrap();
    }

    /// The example beside the README is read as any config is.
    #[test]
    fn the_example_is_a_config() {
        let spec = read(include_str!("../../config.json.example"));
        assert_eq!(spec.version(), OCI_VERSION);
    }
}
