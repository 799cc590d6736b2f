//! `rt slurm prepare` and `digest`: what the tasks of a step start from, found once for each node.

use super::persistent::{Fault, fault_of, is_users_bundle, named_container};
use super::{broadcast, read, store_of_job, task_id};
use crate::cli::companion::become_companion;
use crate::cli::{Call, image, operand};
use crate::store::Store;
use rt_image_store::{PullPolicy, word};
use rt_launch::request::{self, IMAGE, Image, StepContainer};
use rt_launch::task::TaskId;
use rt_spec::annotations;
use rt_spec::asked_mounts::is_image;
use rt_spec::rootless::UserMap;
use rt_spec::state::Status;
use rt_sys::error::{Context, Result};
use rt_sys::{caller, err, log, look};
use rustix::fs::FileType;
use std::path::{Path, PathBuf};

/// Prints the name of an image with its digest. A file or a bundle has none, and is printed as it was named.
pub(super) fn digest(call: &Call) -> Result<u8> {
    let text = call.operand(0, "the image")?;
    let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    match request::image(text, &here)? {
        Image::Name(name) if !is_image_path(&name)? => {
            become_companion("rt-pull", ["inspect", "--pinned", "--", &name].map(Into::into).into())
        }
        _ => crate::cli::print(format!("{text}\n")),
    }
}

/// Checks what is asked for, has the image pulled, and prints the bundle or the file that the tasks start from.
///
/// What the user has told a pull to execute, as a helper for credentials, is in no step: the plugin ends what it leaves.
pub(super) fn prepare(call: &Call) -> Result<u8> {
    if let Some(dir) = caller::variable("RT_CONTAINER_SUBMIT_DIR") {
        // The image may be there on the node of the submission alone.
        let _ = std::env::set_current_dir(dir);
    }
    let request = read()?;
    request.check_sources()?;
    check_mpi(&request)?;
    let id = task_id(call, &request)?;
    let id = TaskId::parse(&id).ok_or_else(|| err!("{id:?} is no id of a task"))?;
    let store = store_of_job(call)?;
    if let Some(named) = named_container(call, &store, &request, &id)? {
        tell_what_is_ignored(&store, &request, &named.id);
        return crate::cli::print(format!("{}\n", named.kept.image.display()));
    }
    let found = match resolve(call, &request, true) {
        // TmpFS may be the job's own (job_container/tmpfs), which the tasks see: what is wrong here is of another user's, perhaps.
        Err(_) if is_in_tmpfs(&request) => return Ok(0),
        found => found?,
    };
    match found {
        Some(source) => {
            tell_of_memory(&request, &source);
            let (Source::Bundle(path) | Source::File(path)) = source;
            crate::cli::print(format!("{}\n", path.display()))
        }
        // rt-pull has said why.
        None => Ok(1),
    }
}

fn is_in_tmpfs(request: &StepContainer) -> bool {
    matches!(&request.image, Some(Image::Path(path)) if path.starts_with(request.tmpfs()))
}

/// Says that what is written to the root takes the job's memory, where that is so: to who asks for a root to write to, and to
/// everybody where layers were to be in a place that takes none.
fn tell_of_memory(request: &StepContainer, source: &Source) {
    let kept = request.keeps_root();
    let wants_to_write = match request.writable {
        Some(writable) => writable,
        None => kept || request.as_root == Some(true),
    };
    if is_users_bundle(request, source) {
        return;
    }
    let (is_memory, fault) = match fault_of(request.layers()) {
        Some(Fault::NoDisk) if wants_to_write => (true, "is no disk"),
        Some(Fault::Mistake(fault)) if wants_to_write || request.writable.is_none() => (false, fault),
        _ => return,
    };
    let place = request.layers();
    let (said, layers) = (if place == request.tmpfs() { "TmpFS" } else { "layers=" }, place.display());
    let what = match (kept, is_memory) {
        (true, true) => "what is written to the root takes memory of the job",
        (true, false) => "what is written to the root can be kept nowhere",
        (false, _) => "what is written to the root takes memory of the job, half of it at the most",
    };
    log::tell(format_args!("{what}: {layers} ({said}) {fault}"));
}

/// Refuses the one pair that would hang: PMIx compares the id that a program has inside with that of the caller.
fn check_mpi(request: &StepContainer) -> Result<()> {
    let is_pmix = caller::variable("SLURM_MPI_TYPE").is_some_and(|kind| kind.starts_with("pmix"));
    if request.as_root == Some(true) && is_pmix {
        return Err(err!("RT_CONTAINER_REMAP_ROOT: under PMIx the user keeps his own uid inside")
            .hint("without --container-remap-root, or with --mpi=none"));
    }
    Ok(())
}

/// Says what of the step's options means nothing in a container that runs.
fn tell_what_is_ignored(store: &Store, request: &StepContainer, container: &str) {
    let runs = |record| matches!(store.status(&record), Ok(Status::Running));
    if !store.load(container).is_ok_and(runs) {
        return;
    }
    if !request.mounts.is_empty() {
        let what = "ignoring --container-mounts when attaching to a running container";
        log::tell(format_args!("RT_CONTAINER_MOUNTS: {what}"));
    }
    let spec = store.container(container).and_then(|dir| dir.spec());
    let Ok(Some(map)) = spec.and_then(|spec| annotations::user_map(&spec)) else { return };
    let is_root = map == UserMap::Root;
    if is_root != (request.as_root == Some(true)) {
        let who = if is_root { "as root" } else { "with its user's own ids" };
        let what = format!("container {container} runs {who}, and so does this step");
        log::tell(format_args!("RT_CONTAINER_REMAP_ROOT: {what}"));
    }
}

/// True for an image file or a bundle. A name with `://` is none, whatever is here.
///
/// # Errors
/// Others can have put here what has that name.
pub(super) fn is_image_path(name: &str) -> Result<bool> {
    let path = Path::new(name);
    if name.contains("://") {
        return Ok(false);
    }
    match word::own_or_file(path, is_image)? {
        Some(FileType::RegularFile) => Ok(true),
        // What is no path is the name of an image, also where a directory of something else has that name.
        Some(FileType::Directory) => word::has_own_config(path),
        _ => Ok(false),
    }
}

/// What the tasks of a step start from.
pub(super) enum Source {
    Bundle(PathBuf),
    File(PathBuf),
}

/// Finds the image, and has it pulled where it is not there. None where `rt-pull` has said why not.
pub(super) fn resolve(call: &Call, request: &StepContainer, shown: bool) -> Result<Option<Source>> {
    let image = request.image.as_ref().ok_or_else(|| err!("{IMAGE} is not set"))?;
    let path = match image {
        Image::Path(path) => path.as_path(),
        Image::Name(name) => match is_image_path(name)? {
            true => Path::new(name),
            false => {
                if request.broadcast && shown {
                    broadcast::say_why_not(&format!("{name} is not copied to the nodes"));
                }
                let policy = if request.ask_registry { PullPolicy::Always } else { PullPolicy::Missing };
                let how = image::Pull { policy, platform: None, shown };
                return Ok(image::pulled(call, name, &how)?.map(Source::Bundle));
            }
        },
    };
    let path = rt_sys::fd::absolute(path)?;
    if rt_image_store::is_stored(&path) {
        rt_image_store::open_bundle(&path)
            .map_err(|e| e.context(format_args!("bundle {}", path.display())))?;
        return Ok(Some(Source::Bundle(path)));
    }
    if look::is_file(&path)? {
        operand::check_image_file(&path)?;
        return Ok(Some(Source::File(broadcast::copy_or_original(request, path, shown)?)));
    }
    std::fs::metadata(path.join("config.json")).context(|| format!("bundle {}", path.display()))?;
    Ok(Some(Source::Bundle(path)))
}

/// What `prepare` has found, if it is there still: it can have been pruned, or be in a store that this node has not. A file system that
/// somebody has mounted in the place of a store's bundle is not asked: a task that waits for it outlives its job, for which Slurm drains
/// the node.
fn still_there(path: &Path) -> Result<Option<Source>> {
    if rt_image_store::is_stored(path) {
        if !image::mark(path)? {
            return Ok(None);
        }
        return match rt_image_store::open_bundle(path) {
            Err(e) if e.is(libc::ENOENT) || e.is(libc::ENOTDIR) => Ok(None),
            Err(e) => Err(e.context(format_args!("bundle {}", path.display()))),
            Ok(_) => Ok(Some(Source::Bundle(path.to_owned()))),
        };
    }
    if look::is_dir(path)? {
        return Ok(Some(Source::Bundle(path.to_owned())));
    }
    Ok(look::is_file(path)?.then(|| Source::File(path.to_owned())))
}

/// What a task starts from: what `prepare` has found, or what is found now. None where `rt-pull` has said why not.
pub(super) fn task_source(call: &Call, request: &StepContainer) -> Result<Option<Source>> {
    if let Some(path) = &request.resolved
        && let Some(found) = still_there(path)?
    {
        return match found {
            // The copy may be in the job's own TmpFS.
            Source::File(path) => {
                broadcast::copy_or_original(request, path, false).map(|path| Some(Source::File(path)))
            }
            Source::Bundle(_) => Ok(Some(found)),
        };
    }
    // One of the tasks shows what is fetched. The others wait for it in silence.
    resolve(call, request, caller::variable("SLURM_PROCID").is_some_and(|rank| rank == "0"))
}
