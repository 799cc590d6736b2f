//! The namespaces of a plan: which are made, and which are joined.

use oci_spec::runtime::LinuxNamespaceType;
use rt_spec::{Config, Linux, Spec};
use rt_sys::caller::Caller;
use rt_sys::error::Result;
use rt_sys::ns::{self, Namespace, Namespaces};
use std::path::{Path, PathBuf};

/// True where the user namespace that the config names by its path is the caller's own, which setns(2) refuses to join.
/// podman names it where a container is to share the user namespace of another. For a caller without privilege it cannot
/// be meant: its own namespace gives it no right to make the others.
pub(super) fn names_own_user(spec: &Spec, caller: &Caller) -> bool {
    let list = spec.linux().as_ref().and_then(|linux| linux.namespaces().as_deref()).unwrap_or_default();
    let path = list.iter().find(|n| n.typ() == LinuxNamespaceType::User).and_then(|n| n.path().as_ref());
    !caller.is_unprivileged()
        && path.is_some_and(|path| ns::same_namespace(path, Path::new("/proc/self/ns/user")))
}

/// Takes the user namespace out of the config.
#[cold]
#[inline(never)]
pub(super) fn leave_out_user(config: &mut Config) {
    if let Some(linux) = config.spec.linux_mut() {
        let mut namespaces = linux.namespaces().clone().unwrap_or_default();
        namespaces.retain(|n| n.typ() != LinuxNamespaceType::User);
        linux.set_namespaces(Some(namespaces));
    }
    config.changed();
}

fn kind_of(typ: LinuxNamespaceType) -> Namespace {
    match typ {
        LinuxNamespaceType::Mount => Namespace::Mount,
        LinuxNamespaceType::Cgroup => Namespace::Cgroup,
        LinuxNamespaceType::Uts => Namespace::Uts,
        LinuxNamespaceType::Ipc => Namespace::Ipc,
        LinuxNamespaceType::User => Namespace::User,
        LinuxNamespaceType::Pid => Namespace::Pid,
        LinuxNamespaceType::Network => Namespace::Network,
        LinuxNamespaceType::Time => Namespace::Time,
    }
}

/// The namespaces of a config: the new ones, and those to join with the user namespace first.
pub(crate) fn configured(linux: &Linux, caller: &Caller) -> Result<(Namespaces, Vec<(Namespace, PathBuf)>)> {
    let mut new = Namespaces::NONE;
    let mut join = Vec::new();
    for namespace in linux.namespaces().iter().flatten() {
        let kind = kind_of(namespace.typ());
        match namespace.path().as_ref().filter(|p| !p.as_os_str().is_empty()) {
            Some(path) => join.push((kind, path.clone())),
            None => new = new.with(kind),
        }
    }
    if caller.is_unprivileged() && !join.iter().any(|(kind, _)| *kind == Namespace::User) {
        new = new.with(Namespace::User);
    }
    join.sort_by_key(|(kind, _)| *kind != Namespace::User);
    Ok((new, join))
}
