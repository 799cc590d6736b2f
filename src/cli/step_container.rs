//! `rt slurm prepare`, `task` and `end`: the container that a step of Slurm asks for by variables `RT_CONTAINER_*`.
//!
//! Slurm's plugin calls `prepare` once for each node, has Slurm execute `task` in the place of each task's program, and
//! calls `end` when the step has ended. All of them have the step's environment.

use super::companion::{become_companion, with_companion};
use super::operand;
use super::table::*;
use super::{Call, broadcast, create, image};
use crate::container::{self, AskedEntrypoint, CreateOptions, KeptContainer, Overrides, RootAccess};
use crate::store::{self, Kept, Store};
use oci_spec::runtime::Mount;
use rt_cli::flag::{LOG, LOG_FORMAT, LOG_LEVEL};
use rt_launch::job_environment::JobEnvironment;
use rt_launch::request::{self, ARGV0, IMAGE, Image, Mode, Name, StepContainer};
use rt_launch::slurm::arguments;
use rt_launch::task::{Directories, JobDirectory, TaskContext, TaskId};
use rt_spec::rootless::UserMap;
use rt_spec::state::Status;
use rt_spec::{annotations, asked_mounts};
use rt_sys::error::{Context, Error, Result};
use rt_sys::rootfs::{is_in_memory, name_of_overlay_stranger};
use rt_sys::{bail, caller, err, fd, log, look, process, signal, start, tty};
use rustix::fs::{self, Access, AtFlags, FileType, Mode as Bits, OFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Slurm's number for the step of a batch script (slurm.h, SLURM_BATCH_SCRIPT).
const BATCH: u32 = 0xffff_fffb;

/// Tells a task that its parent is the one that saves the container.
const SAVED_BY_PARENT: &str = "RT_CONTAINER_SAVED_BY_PARENT";

/// What this process's environment asks for.
pub(super) fn read() -> Result<StepContainer> {
    let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    StepContainer::read(&rt_config::own_variable, &here)
}

/// Prints the name of an image with its digest. A file or a bundle has none, and is printed as it was named.
pub(super) fn digest(call: &Call) -> Result<u8> {
    let text = call.operand(1, "the image")?;
    let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    match request::image(text, &here)? {
        Image::Name(name) if !is_image_path(&name)? => {
            become_companion("rt-pull", ["inspect", "--pinned", "--", &name].map(Into::into).into())
        }
        _ => super::print(format!("{text}\n")),
    }
}

/// Checks what is asked for, has the image pulled, and prints the bundle or the file that the tasks start from.
pub(super) fn prepare(call: &Call) -> Result<u8> {
    if let Some(dir) = caller::variable("RT_CONTAINER_SUBMIT_DIR") {
        // It may be there on the node of the submission alone.
        let _ = std::env::set_current_dir(dir);
    }
    let asked = read()?;
    asked.check_sources()?;
    check_mpi(&asked)?;
    asked.save.as_deref().map_or(Ok(()), check_place_to_save)?;
    let id = id(call, &asked)?;
    let id = TaskId::parse(&id).ok_or_else(|| err!("{id:?} is no id of a task"))?;
    let store = store_of_job(call)?;
    if let Some(named) = named_container(call, &store, &asked, &id)? {
        tell_what_is_ignored(&store, &asked, &named.id);
        return super::print(format!("{}\n", named.kept.image.display()));
    }
    match resolve(call, &asked, true)? {
        Some(source) => {
            tell_of_memory(&asked, &source);
            let (Source::Bundle(path) | Source::File(path)) = source;
            super::print(format!("{}\n", path.display()))
        }
        // rt-pull has said why.
        None => Ok(1),
    }
}

/// Says to who asks for a root to write to that what is written takes the job's memory, where that is so.
fn tell_of_memory(asked: &StepContainer, source: &Source) {
    let wants_to_write = asked.writable == Some(true) || asked.as_root == Some(true);
    if !wants_to_write || is_users_bundle(asked, source) || is_disk(asked.tmpfs()) {
        return;
    }
    let tmpfs = asked.tmpfs().display();
    let bound = if asked.name.is_some() || asked.save.is_some() { "" } else { ", half of it at the most" };
    log::tell(format_args!(
        "what is written to the root takes memory of the job{bound}: {tmpfs} (TmpFS) is no disk"
    ));
}

/// Refuses the one pair that would hang: PMIx compares the id that a program has inside with that of the caller.
fn check_mpi(asked: &StepContainer) -> Result<()> {
    let is_pmix = caller::variable("SLURM_MPI_TYPE").is_some_and(|kind| kind.starts_with("pmix"));
    if asked.as_root == Some(true) && is_pmix {
        return Err(err!("RT_CONTAINER_REMAP_ROOT: under PMIx the user keeps his own uid inside")
            .hint("without --container-remap-root, or with --mpi=none"));
    }
    Ok(())
}

/// Looks whether a file can be made where the container is to be saved, which is hours before that is done.
fn check_place_to_save(path: &Path) -> Result<()> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    let context = || format!("RT_CONTAINER_SAVE: no file can be made in {}", dir.display());
    let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
    match fs::open(dir, flags, Bits::RUSR | Bits::WUSR) {
        Ok(_) => Ok(()),
        // File systems without files that have no name, of which NFS is one, say the one or the other.
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => {
            fs::accessat(fs::CWD, dir, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS).context(context)
        }
        Err(e) => Err(e).context(context),
    }
}

/// Says what of the step's options means nothing in a container that runs.
fn tell_what_is_ignored(store: &Store, asked: &StepContainer, container: &str) {
    let runs = |record| matches!(store.status(&record), Ok(Status::Running));
    if !store.load(container).is_ok_and(runs) {
        return;
    }
    if !asked.mounts.is_empty() {
        let what = "ignoring --container-mounts when attaching to a running container";
        log::tell(format_args!("RT_CONTAINER_MOUNTS: {what}"));
    }
    let spec = store.container(container).and_then(|dir| dir.spec());
    let Ok(Some(map)) = spec.and_then(|spec| annotations::user_map(&spec)) else { return };
    let is_root = map == UserMap::Root;
    if is_root != (asked.as_root == Some(true)) {
        let who = if is_root { "as root" } else { "with its user's own ids" };
        let what = format!("container {container} runs {who}, and so does this step");
        log::tell(format_args!("RT_CONTAINER_REMAP_ROOT: {what}"));
    }
}

/// True for an image file or a bundle. A name with `://` is none, whatever is here.
///
/// # Errors
/// Others can have put here what has that name.
fn is_image_path(name: &str) -> Result<bool> {
    let path = Path::new(name);
    if name.contains("://") {
        return Ok(false);
    }
    match operand::own_or_named(path)? {
        Some(FileType::RegularFile) => Ok(true),
        // What is no path is the name of an image, also where a directory of something else has that name.
        Some(FileType::Directory) => {
            rt_image_store::word::require_own(path, Path::new("config.json"))?;
            look::is_file(path.join("config.json"))
        }
        _ => Ok(false),
    }
}

/// What the tasks of a step start from.
enum Source {
    Bundle(PathBuf),
    File(PathBuf),
}

/// Finds the image, and has it pulled where it is not there. None where `rt-pull` has said why not.
fn resolve(call: &Call, asked: &StepContainer, shown: bool) -> Result<Option<Source>> {
    let image = asked.image.as_ref().ok_or_else(|| err!("{IMAGE} is not set"))?;
    let path = match image {
        Image::Path(path) => path.as_path(),
        Image::Name(name) => match is_image_path(name)? {
            true => Path::new(name),
            false => {
                if asked.broadcast && shown {
                    broadcast::say_why_not(&format!("{name} is not copied to the nodes"));
                }
                let policy = if asked.ask_registry { "always" } else { "missing" };
                let how = image::Pull { policy, platform: None, shown };
                return Ok(image::pulled(call, name, &how)?.map(Source::Bundle));
            }
        },
    };
    let path = rt_sys::fd::absolute(path)?;
    if look::is_file(&path)? {
        operand::check_image_file(&path)?;
        return Ok(Some(Source::File(broadcast::copy_or_original(asked, path, shown)?)));
    }
    std::fs::metadata(path.join("config.json")).context(|| format!("bundle {}", path.display()))?;
    Ok(Some(Source::Bundle(path)))
}

/// Runs a task of the step, in the step's container on this node.
pub(super) fn task(call: &Call) -> Result<u8> {
    if let Some(file) = call.flags.path(&ENVIRONMENT) {
        return Err(execute_with(call, &file)?);
    }
    let asked = read()?;
    if let (Some(path), Some(tasks)) = (&asked.save, asked.tasks)
        && caller::variable(SAVED_BY_PARENT).is_none()
    {
        return task_and_save(call, &asked, tasks, path);
    }
    let id = id(call, &asked)?;
    let mut named = TaskId::parse(&id).ok_or_else(|| err!("{id:?} is no id of a task"))?;
    let store = store_of_job(call)?;
    let exists = named_container(call, &store, &asked, &named)?;
    let source = match exists.as_ref().map(|named| &named.kept) {
        Some(kept) if kept.is_file => Some(Source::File(kept.image.clone())),
        Some(kept) => {
            image::mark(&kept.image)?;
            Some(Source::Bundle(kept.image.clone()))
        }
        None => None,
    };
    let source = source.map_or_else(|| task_source(call, &asked), |source| Ok(Some(source)))?;
    // rt-pull has said why.
    let Some(source) = source else { return Ok(1) };
    asked.check_sources()?;
    let mut options = create::options(call, id.clone(), PathBuf::from("/"))?;
    options.kept = kept_container(&asked, &mut named, &source, exists)?;
    match source {
        Source::Bundle(bundle) => options.bundle = bundle,
        Source::File(file) => options.image_file = Some(file),
    }
    let args = program(call, &asked)?;
    let here = PathBuf::from("/");
    // With an id it is oci.conf that calls, and a task is where a task in a bundle is.
    let job_directory = || super::slurm::job_directory(call.flags.path(&CHDIR), &here);
    let job_directory = call.operands.get(1).map_or(Ok(None), |_| job_directory())?;
    options.overrides = overrides(call, &asked, &options, &named, args)?;
    options.user_map = match asked.as_root {
        Some(true) => Some(UserMap::Root),
        Some(false) => Some(UserMap::Caller),
        None => options.user_map,
    };
    options.configured = true;
    let tmpfs = asked.tmpfs().to_owned();
    options.task = Some(TaskContext {
        share: call.flags.switch(&SHARE) != Some(false) && named.task.is_some(),
        id: Some(named),
        job: JobEnvironment::own(),
        directories: Directories::default(),
        has_terminal: tty::stdin_is_terminal(),
        pmix_dir: caller::variable("PMIX_SERVER_TMPDIR").map(PathBuf::from),
        node: caller::variable("SLURMD_NODENAME"),
        uid: rustix::process::geteuid().as_raw(),
        pid: std::process::id(),
        umask: process::umask(),
        cwd: asked
            .workdir
            .map(|path| JobDirectory { path, identity: None, asked: true, required: true })
            .or(job_directory),
        looked_up: call.operands.get(1).is_some(),
        asked: true,
        unshare: asked.unshare,
        tmpfs: Some(tmpfs),
    });
    container::run_task(&store, options)
}

/// Runs a task in a child. The last one on the node saves the container: it has the mounts of the job, which slurmstepd need
/// not have, and its exit code is the step's.
fn task_and_save(call: &Call, asked: &StepContainer, tasks: usize, path: &Path) -> Result<u8> {
    let program = start::program()?;
    let mut command = Command::new(&program);
    command.args(super::own_words()).env(SAVED_BY_PARENT, "1");
    let child = command.spawn().context(|| format!("execute {}", program.display()))?;
    // Slurm signals all processes of a step, and a terminal all of its group: so the child has it, too.
    signal::block_all();
    let code = exit_code(child)?;
    let id = id(call, asked)?;
    let named = TaskId::parse(&id).ok_or_else(|| err!("{id:?} is no id of a task"))?;
    let container = container_of(asked, &named);
    let store = open_store_of_job(call)?;
    // It is not there where no task could make it.
    if !store.holds(&container)? {
        return Ok(code);
    }
    let ended = store.container(&container)?.note_end(&step_name(&named), named.task.unwrap_or(0))?;
    if ended < tasks {
        return Ok(code);
    }
    let saved = save_in_child(call, &store, &container, &named.step.to_string(), path)?;
    Ok(if code == 0 { saved } else { code })
}

/// The exit code of a child that has ended, 128 and the signal where that was one.
fn exit_code(mut child: Child) -> Result<u8> {
    let status = child.wait().context(|| "wait for the task")?;
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// What a step is called in the state of its container.
fn step_name(id: &TaskId) -> String {
    format!("{}.{}", id.step.job, id.step.step)
}

/// The id of the step's container.
fn container_of(asked: &StepContainer, id: &TaskId) -> String {
    asked.name.as_ref().map_or_else(|| id.container.clone(), |name| container_id(name, id))
}

/// What a task starts from: what `prepare` has found, or what is found now. None where `rt-pull` has said why not.
fn task_source(call: &Call, asked: &StepContainer) -> Result<Option<Source>> {
    match &asked.resolved {
        // Pruned since it was resolved, or a store that this node has not.
        Some(path) if look::is_dir(path)? && image::mark(path)? => Ok(Some(Source::Bundle(path.clone()))),
        Some(path) if look::is_file(path)? => Ok(Some(Source::File(path.clone()))),
        // One of the tasks shows what is fetched. The others wait for it in silence.
        _ => resolve(call, asked, caller::variable("SLURM_PROCID").is_some_and(|rank| rank == "0")),
    }
}

/// A container that is there, of the name that is asked for.
struct Named {
    /// Its id.
    id: String,
    /// What it is made from.
    kept: Kept,
    /// It has no name: it is that of a step, which runs, and ends with it.
    is_steps: bool,
}

/// The container of the name that is asked for, where it is there and may be used.
fn named_container(call: &Call, store: &Store, asked: &StepContainer, id: &TaskId) -> Result<Option<Named>> {
    let Some(name) = &asked.name else { return Ok(None) };
    let container = container_id(name, id);
    let kept = store.kept(&container)?;
    let step = step_name(id);
    if kept.is_none()
        && asked.image.is_none()
        && matches!(name.mode, Mode::Auto | Mode::Exec)
        && let Some(named) = container_of_step(store, &name.name, asked.tmpfs())?
    {
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
        (None, _) if asked.image.is_none() => {
            bail!("container {container} does not exist, and {IMAGE} is not set")
        }
        _ => {}
    }
    if let Some(kept) = &kept {
        require_same_image(call, asked, &container, kept)?;
    }
    Ok(kept.map(|kept| Named { id: container, kept, is_steps: false }))
}

/// Refuses a container that was made from another image than the one that is asked for: the program would run in a root that
/// is not the one that it names.
fn require_same_image(call: &Call, asked: &StepContainer, container: &str, kept: &Kept) -> Result<()> {
    let Some(image) = &asked.image else { return Ok(()) };
    let text = image_text(image)?;
    if text == kept.asked {
        return Ok(());
    }
    // Two names may be those of one image.
    let same = match resolve(call, asked, false)? {
        Some(Source::Bundle(path) | Source::File(path)) => path == kept.image,
        None => bail!("container {container} is there, and {text} is not"),
    };
    let made_from = if kept.asked.is_empty() { &*kept.image.to_string_lossy() } else { &kept.asked };
    match same {
        true => Ok(()),
        false => Err(err!("container {container} was made from {made_from}, and not from {text}")
            .hint(format!("take another name, or remove it: rt delete {container}"))),
    }
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
fn container_of_step(store: &Store, name: &str, tmpfs: &Path) -> Result<Option<Named>> {
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
    // It is joined only, so nothing is ever in its layer.
    let layer = store::layer_directory(tmpfs, &step.container)?;
    let kept = Kept {
        image: if is_file { record.rootfs } else { record.bundle },
        is_file,
        asked: String::new(),
        layer,
        global: false,
        maker: maker.to_string(),
    };
    Ok(Some(Named { id: step.container, kept, is_steps: true }))
}

/// The id of a container that is named.
fn container_id(name: &Name, id: &TaskId) -> String {
    match name.global {
        true => name.name.clone(),
        false => format!("{}.{}", id.step.job, name.name),
    }
}

/// What a container is that outlives the step: one with a name, or one that is to be saved. Tasks of several steps are in
/// one that has a name, so each is known by its pid there.
fn kept_container(
    asked: &StepContainer,
    id: &mut TaskId,
    source: &Source,
    exists: Option<Named>,
) -> Result<Option<KeptContainer>> {
    let mut on_disk = None;
    if asked.name.is_none() && asked.save.is_none() {
        on_disk = layer_on_disk(asked, source, &id.container);
        if on_disk.is_none() {
            return Ok(None);
        }
    }
    if let Some(name) = &asked.name {
        id.container = exists.as_ref().map_or_else(|| container_id(name, id), |named| named.id.clone());
        id.task = Some(std::process::id());
    }
    let mode = asked.name.as_ref().map(|name| name.mode);
    let (image, is_file) = match source {
        Source::Bundle(path) => (path, false),
        Source::File(path) => (path, true),
    };
    let is_steps = exists.as_ref().is_some_and(|named| named.is_steps);
    let what = match exists {
        Some(named) => {
            match store::open_layer(&named.kept.layer) {
                // It is made when the first task starts. The container of a step without a name has none: it is joined only.
                Err(e) if e.is(libc::ENOENT) => {}
                opened => drop(opened?),
            }
            named.kept
        }
        None => Kept {
            image: image.clone(),
            is_file,
            asked: asked.image.as_ref().map_or_else(|| Ok(String::new()), image_text)?,
            layer: on_disk.map_or_else(|| store::layer_directory(asked.tmpfs(), &id.container), Ok)?,
            global: asked.name.as_ref().is_some_and(|name| name.global),
            maker: step_name(id),
        },
    };
    let (must_run, own_mounts) = (mode == Some(Mode::Exec) || is_steps, mode == Some(Mode::NoExec));
    Ok(Some(KeptContainer {
        what,
        must_run,
        own_mounts,
        image_named: asked.image.is_some(),
        save: asked.save.clone(),
    }))
}

/// The directory in TmpFS for what a step writes to the root of `container`, where that goes there and not to the job's memory:
/// a job that writes more than it has memory would end with slurmstepd. Wants a call at the end of the step, which the plugin
/// has (and tells the tasks), a disk, and a root that is not the user's own bundle's affair.
fn layer_on_disk(asked: &StepContainer, source: &Source, container: &str) -> Option<PathBuf> {
    if asked.tasks.is_none() || asked.writable == Some(false) || is_users_bundle(asked, source) {
        return None;
    }
    // Where somebody has taken the place, memory is what every node has.
    if is_disk(asked.tmpfs()) { store::layer_directory(asked.tmpfs(), container).ok() } else { None }
}

/// The image is a bundle of the user's, whose config says where what is written goes.
fn is_users_bundle(asked: &StepContainer, source: &Source) -> bool {
    matches!(asked.image, Some(Image::Path(_))) && matches!(source, Source::Bundle(_))
}

/// True where a layer can be in `dir`, and is no memory then. Where the kernel does not say, it cannot.
fn is_disk(dir: &Path) -> bool {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    fs::open(dir, flags, Bits::empty()).is_ok_and(|dir| {
        !is_in_memory(&dir).unwrap_or(true) && name_of_overlay_stranger(&dir).is_ok_and(|name| name.is_none())
    })
}

/// Prints the arguments that Slurm has written into the pattern of oci.conf. The shell that has been given the pattern is
/// the parent of this process, and has not read beyond the comment in which they stand.
pub(super) fn arguments() -> Result<u8> {
    let context = || "read the command line of the shell";
    let parent = std::os::unix::process::parent_id();
    let line = fd::read_at(fd::open_proc()?, format!("{parent}/cmdline").as_str()).context(context)?;
    // sh -c PATTERN
    let pattern =
        line.split(|byte| *byte == 0).nth(2).ok_or_else(|| err!("it has no pattern")).context(context)?;
    let arguments = arguments::of_pattern(pattern).map_err(|e| e.context("oci.conf"))?;
    super::print(format!("{}\n", arguments::encode(&arguments)))
}

/// Executes this call again with the variables in `file`: what hooks and `rt-pull` are told comes from there too. Returns
/// the error only.
fn execute_with(call: &Call, file: &Path) -> Result<Error> {
    let text = fd::read_file(file).context(|| format!("--environment: read {}", file.display()))?;
    let mut words = super::own_words();
    // The words before the operands, without this flag: what stands behind -- is the program's.
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    words = without(&words[..end], ENVIRONMENT.long).chain(words[end..].iter().cloned()).collect();
    let program = start::program()?;
    let mut command = Command::new(&program);
    command.args(words).env_clear();
    for variable in text.split(|byte| *byte == 0) {
        if let Some(at) = variable.iter().position(|byte| *byte == b'=') {
            command.env(OsStr::from_bytes(&variable[..at]), OsStr::from_bytes(&variable[at + 1..]));
        }
    }
    // slurmstepd's own, where the task has none.
    for name in ["SLURMD_NODENAME", "PMIX_SERVER_TMPDIR", "SLURM_MPI_TYPE"] {
        if let Some(value) = std::env::var_os(name)
            && !command.get_envs().any(|(known, _)| known == name)
        {
            command.env(name, value);
        }
    }
    // What the plugin says of a task is not for this one.
    for name in ["RT_CONTAINER_RESOLVED", ARGV0, "RT_CONTAINER_STEPID", "RT_CONTAINER_TASKS"] {
        command.env_remove(name);
    }
    if let Some(image) = call.flags.text(&IMAGE_NAME)? {
        command.env(IMAGE, image);
    }
    Ok(Error::from(command.exec()).context(format!("execute {}", program.display())))
}

/// `words` without the flag `--NAME VALUE`, in both of its forms.
fn without<'a>(words: &'a [OsString], name: &'static str) -> impl Iterator<Item = OsString> + 'a {
    let mut is_value = false;
    words
        .iter()
        .filter(move |word| {
            let text = word.as_bytes().strip_prefix(b"--").unwrap_or_default();
            let is_flag = text == name.as_bytes();
            let is_both = text.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.starts_with(b"="));
            let drop = is_flag || is_both || is_value;
            is_value = is_flag;
            !drop
        })
        .cloned()
}

/// `NODE.JOB.STEP.TASK`, the id of oci.conf's pattern.
fn id(call: &Call, asked: &StepContainer) -> Result<String> {
    if let Some(id) = call.operands.get(1) {
        return Ok(id.to_str().ok_or_else(|| err!("{id:?} is no id of a task"))?.to_owned());
    }
    let job = caller::variable("SLURM_JOB_ID")
        .ok_or_else(|| err!("SLURM_JOB_ID is not set: this is no task of Slurm"))?;
    let step = asked.step.or_else(|| caller::variable("SLURM_STEP_ID")?.parse().ok()).unwrap_or(BATCH);
    let task = caller::variable("SLURM_LOCALID").unwrap_or_else(|| "0".to_owned());
    let node = caller::variable("SLURMD_NODENAME").unwrap_or_else(|| "node".to_owned());
    Ok(format!("{node}.{job}.{step}.{task}"))
}

/// The program and its arguments.
fn program(call: &Call, asked: &StepContainer) -> Result<Vec<String>> {
    let mut args: Vec<String> = asked.program.iter().cloned().collect();
    if let Some(text) = call.flags.text(&ARGUMENTS)? {
        args.extend(arguments::decode(text).map_err(|e| e.context("--arguments"))?);
    }
    args.extend(call.rest()?);
    if args.is_empty() {
        bail!("{ARGV0} is not set, and there are no arguments: there is no program");
    }
    Ok(args)
}

fn overrides(
    call: &Call,
    asked: &StepContainer,
    options: &CreateOptions,
    id: &TaskId,
    args: Vec<String>,
) -> Result<Overrides> {
    let mut mounts = asked.mounts.clone();
    mounts.extend(batch_script(id, &args)?);
    let mut home = asked.home;
    if let (Some(true), Some(true)) = (home, asked.as_root) {
        // The home of root.
        home = None;
        let unmounted = asked.unmounted.iter().any(|place| place == Path::new("/root"));
        if let Some(dir) = caller::variable("HOME").filter(|_| !unmounted)
            && look::is_dir(&dir)?
        {
            let options = ["rbind", "nosuid", "nodev"].map(str::to_owned).to_vec();
            mounts.insert(0, asked_mounts::bind(&dir, "/root", options)?);
        }
    }
    let mut env = asked.env.clone();
    env.extend(super::environment(call)?);
    let entrypoint = AskedEntrypoint { log: asked.entrypoint_log, env: asked.env.clone() };
    Ok(Overrides {
        args,
        entrypoint_first: asked.entrypoint.then_some(entrypoint),
        env_of_job: Some(id.step.job.clone()),
        env,
        root: root_access(asked, options),
        home,
        volumes: call.flags.texts(&VOLUME)?,
        mounts,
        unmounted: asked.unmounted.clone(),
        devices: call.flags.texts(&DEVICE)?,
        mpi: create::mpi(call)?,
        ..Overrides::default()
    })
}

/// Where what the program writes to the root goes. An image is written to in a layer, as enroot's and pyxis' containers
/// are; in a bundle its config says whether it can be.
fn root_access(asked: &StepContainer, options: &CreateOptions) -> RootAccess {
    let is_users_bundle = matches!(asked.image, Some(Image::Path(_))) && options.image_file.is_none();
    if let Some(kept) = &options.kept {
        return RootAccess::Kept { dir: kept.what.layer.clone(), readonly: asked.writable == Some(false) };
    }
    match (asked.writable, is_users_bundle) {
        (Some(false), _) => RootAccess::ReadOnly,
        (None, true) if asked.as_root != Some(true) => RootAccess::AsConfigured,
        (_, true) => RootAccess::Writable,
        (_, false) => RootAccess::InMemory,
    }
}

/// The script of a batch job, which Slurm keeps in a directory of its own, at its place.
fn batch_script(id: &TaskId, args: &[String]) -> Result<Option<Mount>> {
    let Some(script) = args.first().filter(|_| id.step.step == "batch") else { return Ok(None) };
    if !script.starts_with('/') || !look::is_file(script)? {
        return Ok(None);
    }
    let options = ["bind", "ro", "nosuid", "nodev"].map(str::to_owned).to_vec();
    asked_mounts::bind(script, script, options).map(Some)
}

/// The state directory of the job's containers: that of `--root`, or else the user's among those that sites give to Slurm,
/// or else the usual one.
fn store_of_job(call: &Call) -> Result<Store> {
    match super::root(call)? {
        Some(root) => Store::create(Some(&root)),
        None => Store::create_for_job(user_of_job().as_deref()),
    }
}

/// The user's name.
fn user_of_job() -> Option<String> {
    caller::variable("SLURM_JOB_USER").or_else(|| caller::variable("USER"))
}

/// Ends what is left of the step on this node; called by root, what is left of the job.
pub(super) fn end(call: &Call) -> Result<u8> {
    process::end_after(600);
    // slurmstepd or slurmd has made this process. Neither is in the job, nor has the limits of its tasks.
    process::step_outside_of_jobs();
    let job = caller::variable("SLURM_JOB_ID")
        .ok_or_else(|| err!("SLURM_JOB_ID is not set: this is no job of Slurm"))?;
    if job.parse::<u32>().is_err() {
        bail!("SLURM_JOB_ID: {job:?} is no number");
    }
    if rustix::process::geteuid().is_root() && caller::variable("SLURM_JOB_UID").is_some_and(|uid| uid != "0")
    {
        return end_of_job(call, &job);
    }
    let asked = read()?;
    let id = id(call, &asked)?;
    let named = TaskId::parse(&id).ok_or_else(|| err!("{id:?} is no id of a task"))?;
    let container = container_of(&asked, &named);
    let store = open_store_of_job(call)?;
    // The last of the tasks has saved it, unless one was killed.
    let has_saved = |tasks| {
        let ended = store.container(&container).and_then(|dir| dir.ended(&step_name(&named)));
        ended.is_ok_and(|ended| ended >= tasks)
    };
    let save = asked.save.as_ref().filter(|_| !asked.tasks.is_some_and(has_saved));
    let save = save.filter(|_| matches!(store.kept(&container), Ok(Some(_))));
    let saved =
        save.map_or(Ok(0), |path| save_in_child(call, &store, &container, &named.step.to_string(), path));
    container::tasks_delete(&store, &format!("{}.-1", named.container))?;
    saved
}

/// Has a child save a container for the step `step`, which enters namespaces for it. Returns its exit code. The child is in
/// the directory of the file and gets no more than the file's name: a program of the step that still runs may be able to
/// change what the path leads to.
fn save_in_child(call: &Call, store: &Store, id: &str, step: &str, path: &Path) -> Result<u8> {
    let context = || format!("save container {id} as {}", path.display());
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(err!("not a file name")).context(context);
    };
    let place = store.container(id)?.open_place(step, parent).context(context)?;
    let program = start::program()?;
    let mut command = Command::new(&program);
    command.current_dir(format!("/proc/self/fd/{}", place.as_raw_fd()));
    for flag in [&LOG, &LOG_FORMAT, &LOG_LEVEL] {
        if let Some(value) = call.globals.path(flag) {
            let value = if std::ptr::eq(flag, &LOG) { fd::absolute(value)? } else { value };
            command.arg(format!("--{}", flag.long)).arg(value);
        }
    }
    let root = fd::absolute(store.path())?;
    command.arg("--root").arg(root).args(["slurm", "save", id]).arg(Path::new(".").join(name));
    let status =
        command.stdout(Stdio::null()).status().context(|| format!("execute {}", program.display()))?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// Writes the root of a container to an image file.
pub(super) fn save(call: &Call) -> Result<u8> {
    let id = call.operand(1, "the id")?;
    let path = call.operands.get(2).ok_or_else(|| err!("save: missing operand: the image file"))?;
    let store = open_store_of_job(call)?;
    if store.kept(id)?.is_none() {
        bail!("save: no container {id} that has a name, or is to be saved");
    }
    let bundle = container::show_as_bundle(&store, create::images(call), id)?;
    let mut failed = Ok(1);
    // In the mount namespace of this process, which is where the bundle is.
    with_companion("rt-pull", |program| {
        let words = [OsStr::new("save"), OsStr::new("--force"), OsStr::new("--quiet"), OsStr::new("--")];
        let status = Command::new(program).args(words).arg(&bundle).arg(path).stdin(Stdio::null()).status();
        let missing = status.as_ref().is_err_and(|e| e.kind() == ErrorKind::NotFound);
        failed = status
            .map(|status| status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
            .context(|| format!("execute {}", program.display()));
        !missing
    })?;
    failed
}

/// The same, where it need not be there.
fn open_store_of_job(call: &Call) -> Result<Store> {
    match super::root(call)? {
        Some(root) => Store::open(Some(&root)),
        None => Store::open_for_job(user_of_job().as_deref()),
    }
}

/// Ends everything of a job of another user, as that user: nothing in a user's directory is to be read or signalled with
/// root's privileges.
fn end_of_job(call: &Call, job: &str) -> Result<u8> {
    let uid: u32 = caller::variable("SLURM_JOB_UID")
        .and_then(|uid| uid.parse().ok())
        .ok_or_else(|| err!("SLURM_JOB_UID is no number"))?;
    store::become_owner(uid)?;
    container::tasks_delete(&open_store_of_job(call)?, job)?;
    broadcast::remove(job)?;
    Ok(0)
}
