//! Containers with a name, which outlive their step: which one is meant, and what it is started from.

use super::prepare::{Source, is_image_path, resolve};
use super::{container_of, step_name};
use crate::cli::Call;
use crate::container::{self, PersistentRequest};
use crate::store::{self, PersistentContainer, Store};
use rt_launch::request::{IMAGE, Image, Mode, Name, StepContainer};
use rt_launch::task::TaskId;
use rt_spec::state::Status;
use rt_sys::error::{Context, Result};
use rt_sys::rootfs::{is_in_memory, name_of_overlay_stranger};
use rt_sys::{bail, err, fd};
use rustix::fs::{self, Mode as Bits, OFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// A container that is there, of the name that is asked for.
pub(super) struct Named {
    /// Its id.
    pub id: String,
    /// What it is made from.
    pub kept: PersistentContainer,
    /// It has no name: it is that of a step, which runs, and ends with it.
    pub is_steps: bool,
}

/// The container of the name that is asked for, where it is there and may be used.
pub(super) fn named_container(
    call: &Call,
    store: &Store,
    request: &StepContainer,
    id: &TaskId,
) -> Result<Option<Named>> {
    let Some(name) = &request.name else { return Ok(None) };
    let container = container_id(name, id);
    let kept = store.persistent(&container)?;
    let step = step_name(id);
    if kept.is_none()
        && request.image.is_none()
        && matches!(name.mode, Mode::Auto | Mode::Exec)
        && let Some(named) = container_of_step(store, &name.name, request.layers())?
    {
        if request.save.is_some() && !store.container(&named.id)?.is_kept()? {
            bail!("RT_CONTAINER_SAVE: step {} has its root in memory, of which nothing is saved", name.name);
        }
        return Ok(Some(named));
    }
    match (&kept, name.mode) {
        // The other tasks of the step that has made it find it there, too.
        (Some(kept), Mode::Create) if kept.maker != step => bail!("container {container} exists already"),
        (None, Mode::Exec) => bail!("container {container} is not running"),
        (Some(_), Mode::Exec) => {
            let record = store.load(&container)?;
            if store.status(&record)? == Status::Stopped {
                bail!("container {container} is not running");
            }
        }
        (None, _) if request.image.is_none() => {
            bail!("container {container} does not exist, and {IMAGE} is not set")
        }
        _ => {}
    }
    if let Some(kept) = &kept {
        require_same_image(call, request, &container, kept)?;
    }
    Ok(kept.map(|kept| Named { id: container, kept, is_steps: false }))
}

/// Refuses a container that was made from another image than the one that is asked for: the program would run in a root that
/// is not the one that it names.
fn require_same_image(
    call: &Call,
    request: &StepContainer,
    container: &str,
    kept: &PersistentContainer,
) -> Result<()> {
    let Some(image) = &request.image else { return Ok(()) };
    let text = image_text(image)?;
    if text == kept.image_name {
        return Ok(());
    }
    // Two names may be those of one image.
    let same = match resolve(call, request, false)? {
        Some(Source::Bundle(path) | Source::File(path)) => resolved(&path)? == kept.image,
        None => bail!("container {container} is there, and {text} is not"),
    };
    let made_from =
        if kept.image_name.is_empty() { &*kept.image.to_string_lossy() } else { &kept.image_name };
    match same {
        true => Ok(()),
        false => Err(err!("container {container} was made from {made_from}, and not from {text}")
            .hint(format!("take another name, or remove it: rt delete {container}"))),
    }
}

/// Where an image lies, by no link: somebody else may be able to put one in its place later. In a store that has been done already,
/// perhaps, so nothing of what is below the store is followed.
fn resolved(image: &Path) -> Result<PathBuf> {
    if let Some(bundle) = rt_image_store::find_stored(image)? {
        return Ok(bundle);
    }
    let context = || format!("image {}", image.display());
    if rt_image_store::others::first_on_way(image)?.is_none() {
        return std::fs::canonicalize(image).context(context);
    }
    // What is asked of a path later knows no `..`: whether it is one of a store, above all.
    let (dir, _) = rt_image_store::open_bundle(image).map_err(|e| e.context(context()))?;
    fd::path_of(&dir)
}

/// How an image was asked for, in one form for all directories.
fn image_text(image: &Image) -> Result<String> {
    let path = match image {
        Image::Name(name) if !is_image_path(name)? => {
            return Ok(name.strip_prefix("docker://").unwrap_or(name).to_owned());
        }
        Image::Name(name) => Path::new(name),
        Image::Path(path) => path,
    };
    Ok(rt_sys::fd::absolute(path)?.to_string_lossy().into_owned())
}

/// The container of the step that `JOB.STEP` names, where it runs: pyxis, too, has it under that name.
fn container_of_step(store: &Store, name: &str, layers: &Path) -> Result<Option<Named>> {
    if !name.contains('.') {
        return Ok(None);
    }
    let Some(step) = container::find_step(store, name)? else { return Ok(None) };
    let dir = store.container(&step.container)?;
    let record = dir.load()?;
    let Some(maker) = record.step.filter(|_| record.shared) else { return Ok(None) };
    // The bundle of an image without one is in the container's namespaces alone.
    let is_file = match dir.image_config() {
        Err(e) if e.is(libc::ENOENT) => false,
        config => config.map(|_| true)?,
    };
    // The container is joined only, so nothing is ever in its layer.
    let layer = store::layer_directory(layers, &step.container)?;
    let kept = PersistentContainer {
        image: if is_file { record.rootfs } else { record.bundle },
        is_file,
        file: None,
        image_name: String::new(),
        layers: store::layers_note(&layer),
        layer,
        global: false,
        maker: maker.to_string(),
    };
    Ok(Some(Named { id: step.container, kept, is_steps: true }))
}

/// The id of a container that is named.
pub(super) fn container_id(name: &Name, id: &TaskId) -> String {
    match name.global {
        true => name.name.clone(),
        false => format!("{}.{}", id.step.job, name.name),
    }
}

/// The id of the container that a step saves: its own, one of a name, or that of another step, which `JOB.STEP` names.
pub(super) fn container_to_save(store: &Store, request: &StepContainer, id: &TaskId) -> Result<String> {
    let own = container_of(request, id);
    let Some(name) = request.name.as_ref().filter(|_| request.image.is_none()) else { return Ok(own) };
    if store.holds(&own)? {
        return Ok(own);
    }
    let of_step = container_of_step(store, &name.name, request.layers())?;
    Ok(of_step.map_or(own, |named| named.id))
}

/// What a container is that outlives the step: one with a name, or one that is to be saved. Tasks of several steps are in
/// one that has a name, so each is known by its pid there.
pub(super) fn persistent_request(
    request: &StepContainer,
    id: &mut TaskId,
    source: &Source,
    exists: Option<Named>,
) -> Result<Option<PersistentRequest>> {
    let mut on_disk = None;
    if !request.keeps_root() {
        on_disk = layer_on_disk(request, source, &id.container);
        if on_disk.is_none() {
            return Ok(None);
        }
    }
    if let Some(name) = &request.name {
        id.container = exists.as_ref().map_or_else(|| container_id(name, id), |named| named.id.clone());
        id.task = Some(std::process::id());
    }
    let mode = request.name.as_ref().map(|name| name.mode);
    let (image, is_file) = match source {
        Source::Bundle(path) => (path, false),
        Source::File(path) => (path, true),
    };
    let is_steps = exists.as_ref().is_some_and(|named| named.is_steps);
    let container = match exists {
        Some(named) => {
            match store::open_layer(&named.kept.layer) {
                // It is made when the first task starts. The container of a step without a name has none: it is joined only.
                Err(e) if e.is(libc::ENOENT) => {}
                opened => drop(opened?),
            }
            named.kept
        }
        None => {
            let layer =
                on_disk.map_or_else(|| store::layer_directory(request.layers(), &id.container), Ok)?;
            PersistentContainer {
                image: resolved(image)?,
                is_file,
                file: is_file.then(|| store::file_note(image)).transpose()?,
                image_name: request.image.as_ref().map_or_else(|| Ok(String::new()), image_text)?,
                layers: store::layers_note(&layer),
                layer,
                global: request.name.as_ref().is_some_and(|name| name.global),
                maker: step_name(id),
            }
        }
    };
    let (must_run, own_mounts) = (mode == Some(Mode::Exec) || is_steps, mode == Some(Mode::NoExec));
    Ok(Some(PersistentRequest {
        container,
        must_run,
        own_mounts,
        image_named: request.image.is_some(),
        save: request.save.clone(),
    }))
}

/// The directory for what a step writes to the root of `container`, where that goes there and not to the job's memory:
/// a job that writes more than it has memory would end with slurmstepd. Wants a call at the end of the step, which the plugin
/// has (and tells the tasks), a disk, and a root that is not the user's own bundle's affair.
fn layer_on_disk(request: &StepContainer, source: &Source, container: &str) -> Option<PathBuf> {
    if request.tasks.is_none() || request.writable == Some(false) || is_users_bundle(request, source) {
        return None;
    }
    // Where somebody has taken the place, memory is what every node has.
    if is_disk(request.layers()) { store::layer_directory(request.layers(), container).ok() } else { None }
}

/// The image is a bundle of the user's, whose config says where what is written goes.
pub(super) fn is_users_bundle(request: &StepContainer, source: &Source) -> bool {
    matches!(request.image, Some(Image::Path(_))) && matches!(source, Source::Bundle(_))
}

/// True where a layer can be in `dir`, and is no memory then.
pub(super) fn is_disk(dir: &Path) -> bool {
    fault_of(dir).is_none()
}

/// Why no layer can be in a directory, or would be memory there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// A mistake of who has named it.
    Mistake(&'static str),
    NoDisk,
}

/// What is wrong with `dir` for layers. Where the kernel does not say, it is no disk.
pub(super) fn fault_of(dir: &Path) -> Option<Fault> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match fs::open(dir, flags, Bits::empty()) {
        Err(Errno::NOENT) => Some(Fault::Mistake("is not there")),
        Err(Errno::NOTDIR) => Some(Fault::Mistake("is no directory")),
        Err(Errno::ACCESS | Errno::PERM) => Some(Fault::Mistake("is closed to you")),
        Ok(_) if !store::takes_layers(dir) => Some(Fault::Mistake("is closed to you")),
        Ok(dir)
            if !is_in_memory(&dir).unwrap_or(true)
                && name_of_overlay_stranger(&dir).is_ok_and(|name| name.is_none()) =>
        {
            None
        }
        _ => Some(Fault::NoDisk),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn nothing_below_a_store_is_followed() {
        let dir = std::env::temp_dir().join(format!("rt-resolved-{}", std::process::id()));
        let (store, bundle) = (dir.join("store"), format!("bundles/sha256-{}", "ab".repeat(32)));
        std::fs::create_dir_all(store.join("bundles")).unwrap();
        symlink("/", store.join(&bundle)).unwrap();
        symlink(&store, dir.join("link")).unwrap();
        let store = std::fs::canonicalize(&store).unwrap();
        assert_eq!(resolved(&dir.join("link").join(&bundle)).unwrap(), store.join(&bundle));
        // By a path that somebody has named.
        symlink(store.join("bundles"), dir.join("own")).unwrap();
        assert_eq!(resolved(&dir.join("own")).unwrap(), store.join("bundles"));
        // Through a bundle and out again, where it is one and where it is a link.
        let through = dir.join("link").join(&bundle).join("rootfs/..");
        assert!(resolved(&through).is_err());
        std::fs::remove_file(store.join(&bundle)).unwrap();
        std::fs::create_dir_all(store.join(&bundle).join("rootfs")).unwrap();
        assert_eq!(resolved(&through).unwrap(), store.join(&bundle));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
