//! What the caller's session has for its programs, and the caller's variables name: sockets of ssh-agent, X11 and Wayland, and
//! credentials. A container shows them, or is not told of them.

use crate::container::Overrides;
use oci_spec::runtime::{Mount, MountBuilder};
use rt_spec::{Spec, annotations, environment, mounts};
use rt_sys::error::Result;
use rt_sys::{caller, err, fd};
use std::path::{Component, Path, PathBuf};

/// Shows what the caller's variables name beside the home that the caller asks for: sockets of ssh-agent, X11 and Wayland, and
/// credentials.
/// Only what is the caller's own, or a socket of root's, and no link leads there. What another bind covers stays covered: a mount
/// point would be made in its source.
pub(super) fn bring_along(spec: &mut Spec) -> Result<()> {
    let home = caller::path("HOME").filter(|home| home != Path::new("/"));
    for path in files().map(|file| file.path).chain(display()) {
        let is_plain = path.components().skip(1).all(|part| matches!(part, Component::Normal(_)));
        let covers = |mount: &&Mount| path.starts_with(mount.destination());
        let bound = spec.mounts().iter().flatten().rfind(covers).is_some_and(mounts::is_bind);
        let below_home = home.as_ref().is_some_and(|home| path.starts_with(home));
        if !is_plain || bound || below_home || shows(spec, &path) {
            continue;
        }
        let Some((device, inode)) = fd::own_identity(&path) else { continue };
        let identity = format!("{}={device}:{inode}", mounts::IDENTITY);
        let options =
            ["bind", "nosuid", "nodev", mounts::WITHOUT_LINKS, &identity].map(str::to_owned).to_vec();
        let mount = MountBuilder::default().destination(&path).source(&path).typ("bind").options(options);
        let mount = mount.build().map_err(|e| err!("mount {}: {e}", path.display()))?;
        spec.mounts_mut().get_or_insert_default().push(mount);
    }
    Ok(())
}

/// Leaves out what is inherited and names a file of the host's that the container does not show: a program that is told of a
/// socket takes it for one that is broken. A name in WAYLAND_DISPLAY becomes the path of what is shown.
pub(super) fn leave_out_hidden(spec: &mut Spec, changes: &Overrides) -> Result<()> {
    let home = if annotations::asks_for_home(spec)? { caller::path("HOME") } else { None };
    let mut hidden = Vec::new();
    for file in files() {
        if changes.env.iter().any(|word| environment::asks_for(word, file.name)) {
            continue;
        }
        let shown = home.as_ref().is_some_and(|home| file.path.starts_with(home)) || shows(spec, &file.path);
        let told = file.told.filter(|_| shown).map(|told| format!("{}={told}", file.name));
        if told.is_some() || !shown {
            hidden.push((format!("{}={}", file.name, file.value), told));
        }
    }
    if let Some(process) = spec.process_mut().as_mut().filter(|_| !hidden.is_empty()) {
        let said = |variable: &String| match hidden.iter().find(|(name, _)| name == variable) {
            Some((_, told)) => told.clone(),
            None => Some(variable.clone()),
        };
        let env = process.env().iter().flatten().filter_map(said).collect();
        process.set_env(Some(env));
    }
    Ok(())
}

/// True where a mount of the config shows the host's file `path` at its own place.
fn shows(spec: &Spec, path: &Path) -> bool {
    let covers = |mount: &&Mount| path.starts_with(mount.destination());
    let Some(mount) = spec.mounts().iter().flatten().rfind(covers) else {
        return spec.root().as_ref().is_some_and(|root| root.path() == Path::new("/"));
    };
    let below = path.strip_prefix(mount.destination()).unwrap_or(Path::new(""));
    mounts::is_bind(mount) && mount.source().as_ref().is_some_and(|source| source.join(below) == path)
}

/// Variables that name a file or a socket of the host's which a container seldom has: of ssh-agent, X11, Kerberos and Wayland.
const FILES: [&str; 4] = ["SSH_AUTH_SOCK", "XAUTHORITY", "KRB5CCNAME", WAYLAND];

const WAYLAND: &str = "WAYLAND_DISPLAY";

/// A variable of the caller that names a file.
#[derive(Debug)]
struct FileVariable {
    /// Its name.
    name: &'static str,
    /// Its value.
    value: String,
    /// The file that the value names.
    path: PathBuf,
    /// What the program is told in place of the value, where that is another.
    told: Option<String>,
}

/// The caller's variables that name files of the host.
fn files() -> impl Iterator<Item = FileVariable> {
    FILES.into_iter().filter_map(|name| {
        let value = std::env::var(name).ok()?;
        if let Some(path) = file_of(name, &value) {
            let path = path.into();
            return Some(FileVariable { name, value, path, told: None });
        }
        let path = wayland_socket(name, &value, &std::env::var("XDG_RUNTIME_DIR").ok()?)?;
        Some(FileVariable { name, value, path: path.clone().into(), told: Some(path) })
    })
}

/// The socket that a name in WAYLAND_DISPLAY means. A program that is told of its path needs no XDG_RUNTIME_DIR, where the sockets
/// of the caller's session are (wl_display_connect(3)).
fn wayland_socket(name: &str, value: &str, runtime_dir: &str) -> Option<String> {
    let is_name = !matches!(value, "" | "." | "..") && !value.contains('/');
    (name == WAYLAND && is_name && runtime_dir.starts_with('/')).then(|| format!("{runtime_dir}/{value}"))
}

/// The socket of the X11 server on this host that DISPLAY names. One that is reached by TCP has none.
fn display() -> Option<PathBuf> {
    display_socket(&std::env::var("DISPLAY").ok()?).map(PathBuf::from)
}

fn display_socket(value: &str) -> Option<String> {
    let (host, number) = value.split_once(':')?;
    let number = number.split_once('.').map_or(number, |(number, _)| number);
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    (matches!(host, "" | "unix") && is_number).then(|| format!("/tmp/.X11-unix/X{number}"))
}

/// The file that a value names. A cache of credentials may also be the kernel's, or a server's (krb5.conf(5), ccache types).
fn file_of<'a>(name: &str, value: &'a str) -> Option<&'a str> {
    let path = match name {
        "KRB5CCNAME" => value.strip_prefix("FILE:").or_else(|| value.strip_prefix("DIR:")).unwrap_or(value),
        _ => value,
    };
    path.starts_with('/').then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_name_files() {
        assert_eq!(file_of("SSH_AUTH_SOCK", "/tmp/agent"), Some("/tmp/agent"));
        for value in ["FILE:/tmp/krb5cc_1", "DIR:/tmp/krb5cc_1", "/tmp/krb5cc_1"] {
            assert_eq!(file_of("KRB5CCNAME", value), Some("/tmp/krb5cc_1"));
        }
        for value in ["KEYRING:persistent:1", "KCM:", "MEMORY:x", ""] {
            assert_eq!(file_of("KRB5CCNAME", value), None);
        }
    }

    #[test]
    fn displays_have_sockets() {
        for value in [":12", ":12.0", "unix:12"] {
            assert_eq!(display_socket(value).unwrap(), "/tmp/.X11-unix/X12");
        }
        assert!(
            ["", ":", ":../x", "localhost:10.0", "::1:0"].into_iter().all(|v| display_socket(v).is_none())
        );
    }
}
