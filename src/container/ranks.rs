//! One container for the ranks of a run on a node, whoever has started them: which container it is.
//!
//! Its id is made of the run and of all that is asked for the container: image, ids, mounts, namespaces, hooks. So a rank that
//! asks for something else is in another one. `step` makes and joins it.

use super::plan::{BundleConfig, Loaded, Root};
use super::request::StartRequest;
use super::{CreateOptions, Run, step};
use crate::store::Store;
use oci_spec::runtime::LinuxNamespaceType;
use rt_spec::caller_request::{ANNOTATION_ENV, PREFIXES};
use rt_sys::error::Result;
use rt_sys::ns::{self, Namespace};
use rt_sys::{err, fd};
use rustix::fs::Stat;
use std::hash::{DefaultHasher, Hash, Hasher};

/// What an image without a bundle is looked up by, before anybody has read what it says.
const UNREAD: &str = r#"{"ociVersion":"1.0.0","root":{"path":"rootfs"},"process":{"cwd":"/","user":{"uid":0,"gid":0}},
    "linux":{},"annotations":{"rt.environment":"caller"}}"#;

/// Runs a program in the container of its run, and returns its exit code; does not return where the program takes this
/// process's place.
pub(crate) fn run_rank(store: &Store, mut options: CreateOptions) -> Result<u8> {
    super::protect::protect_binary()?;
    options.enter_bundle()?;
    let request = StartRequest::settle(options)?;
    let mut loaded = match &request.image_file {
        None => step::load_read(&request, BundleConfig::read(&request)?)?,
        Some(file) => step::load_image(&request, request.user_map, UNREAD.into(), file)?,
    };
    // What is read of an image is not its config yet.
    let use_again = |loaded| Some(loaded).filter(|_| request.image_file.is_none());
    // The site may have said that nothing is shared.
    let Some(run) = &request.run else {
        let loaded = use_again(loaded);
        return step::run_alone(store, request, loaded);
    };
    if has_pid_namespace(&loaded) {
        if run.named {
            let error = err!("--share {}: the container has a PID namespace of its own", run.name);
            return Err(error.hint("it ends with its first process; --pid host has none"));
        }
        let loaded = use_again(loaded);
        return step::run_alone(store, request.apart("a PID namespace of its own"), loaded);
    }
    let pid = run.pid;
    let id = format!("{}-{:012x}", run.name, container_key(run, &request, &mut loaded)? >> 16);
    let loaded = use_again(loaded);
    step::share(store, request, &id, pid, loaded, |_| Ok(()))
}

fn has_pid_namespace(loaded: &Loaded) -> bool {
    let linux = loaded.config.spec.linux().as_ref();
    let mut namespaces = linux.iter().flat_map(|linux| linux.namespaces().iter().flatten());
    namespaces.any(|namespace| namespace.typ() == LinuxNamespaceType::Pid)
}

/// A number for the run and for what is asked for its container, the same for all who ask for the same. What is a program's
/// own does not count: arguments, environment, directory, limits, filter.
fn container_key(run: &Run, request: &StartRequest, loaded: &mut Loaded) -> Result<u64> {
    let mut all = DefaultHasher::new();
    (&run.key, run.named).hash(&mut all);
    let spec = &mut *loaded.config.spec;
    let mut text = spec.of_container().map_err(|e| err!("{e}"))?;
    let told = text.get_mut("annotations").and_then(|all| all.as_object_mut()?.remove(ANNOTATION_ENV));
    text.to_string().hash(&mut all);
    let process = spec.process().as_ref();
    process.map(|process| (process.user().uid(), process.user().gid())).hash(&mut all);
    if told.is_some() {
        // What hooks are told, but not by launchers: that is each rank's own.
        let env = process.iter().flat_map(|process| process.env().iter().flatten());
        let told = env.filter(|variable| PREFIXES.iter().any(|prefix| variable.starts_with(prefix)));
        told.for_each(|variable| variable.hash(&mut all));
    }
    let Root { path, found, .. } = match &request.image_file {
        Some(file) => Root::at(file.clone())?,
        None => Root::of(spec, &loaded.bundle, loaded.foreign)?,
    };
    let identity = |s: &Stat| (s.st_dev, s.st_ino);
    (&path, identity(&found)).hash(&mut all);
    if request.image_file.is_some() {
        (found.st_size, found.st_mtime, found.st_mtime_nsec).hash(&mut all);
    }
    format!("{:?} {:?} {:?}", loaded.layer, request.user_map, request.extract).hash(&mut all);
    (&request.overrides.devices, &request.mpi, &request.hooks_dirs, request.no_hooks, request.no_pivot)
        .hash(&mut all);
    rustix::process::getegid().as_raw().hash(&mut all);
    // Ranks that live in other namespaces are on another node, as far as they can tell.
    let proc = fd::open_proc()?;
    for kind in [
        Namespace::User,
        Namespace::Mount,
        Namespace::Pid,
        Namespace::Network,
        Namespace::Ipc,
        Namespace::Uts,
    ] {
        ns::id(&proc, "self", kind)?.inode.hash(&mut all);
    }
    Ok(all.finish())
}
