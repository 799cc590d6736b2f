//! `rt slurm task` and `arguments`: a task's program in the container that its step asks for.

use super::persistent::{is_disk, is_users_bundle, named_container, persistent_request};
use super::prepare::{Source, task_source};
use super::run::job_directory;
use super::save::{check_place_to_save, save_of_step};
use super::{container_of, open_checkpoints, open_store_of_job, read, step_name, store_of_job, task_id};
use crate::cli::table::*;
use crate::cli::{Call, create, image};
use crate::container::{self, CreateOptions, Entrypoint, EntrypointRequest, Overrides, RootAccess};
use crate::store::Unsaved;
use oci_spec::runtime::Mount;
use rt_launch::job_environment::JobEnvironment;
use rt_launch::request::{ARGV0, IMAGE, Image, STEP_TASKS, StepContainer};
use rt_launch::slurm::{self, arguments};
use rt_launch::task::{JobDirectory, TaskContext, TaskId};
use rt_spec::asked_mounts;
use rt_spec::rootless::UserMap;
use rt_sys::error::{Context, Error, Result};
use rt_sys::owned::AmongOthers;
use rt_sys::{bail, caller, err, fd, look, process, signal, start, tty};
use rustix::event::{PollFd, PollFlags};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Tells a task that its parent is the one that saves the container.
pub(super) const SAVED_BY_PARENT: &str = "RT_CONTAINER_SAVED_BY_PARENT";

/// Runs a task of the step, in the step's container on this node.
pub(super) fn task(call: &Call) -> Result<u8> {
    if let Some(file) = call.flags.path(&ENVIRONMENT) {
        return Err(execute_with(call, &file)?);
    }
    let mut request = read()?;
    if let (Some(path), Some(tasks)) = (&request.save, request.tasks)
        && caller::variable(SAVED_BY_PARENT).is_none()
    {
        return task_and_save(call, &request, tasks, path);
    }
    let id = task_id(call, &request)?;
    let mut named = TaskId::parse(&id).ok_or_else(|| err!("{id:?} is no id of a task"))?;
    let store = store_of_job(call)?;
    let exists = named_container(call, &store, &request, &named)?;
    let source = match exists.as_ref().map(|named| &named.kept) {
        Some(kept) if kept.is_file => Some(Source::File(kept.image.clone())),
        Some(kept) => {
            image::mark(&kept.image)?;
            Some(Source::Bundle(kept.image.clone()))
        }
        None => None,
    };
    let checkpoints = request.checkpoints(&named, caller::variable(STEP_TASKS).as_deref())?;
    let checkpoint =
        checkpoints.map(|dir| open_checkpoints(&dir, &named, &rt_config::own_variable)).transpose()?;
    let source = source.map_or_else(|| task_source(call, &request), |source| Ok(Some(source)))?;
    // rt-pull has said why.
    let Some(source) = source else { return Ok(1) };
    // criu keeps no file of a layer that is on another file system than the image.
    if request.checkpoint.is_some() && !is_users_bundle(&request, &source) {
        request.writable = request.writable.or(Some(false));
    }
    request.check_sources()?;
    let mut options = create::options(call, id.clone(), PathBuf::from("/"))?;
    options.persistent = persistent_request(&request, &mut named, &source, exists)?;
    match source {
        Source::Bundle(bundle) => {
            options.bundle = options.persistent.as_ref().map_or(bundle, |kept| kept.container.image.clone())
        }
        Source::File(file) => options.image_file = Some(file),
    }
    let args = program(call, &request)?;
    let here = PathBuf::from("/");
    // With an id it is oci.conf that calls, and a task is where a task in a bundle is.
    let job_directory = || job_directory(call.flags.path(&CHDIR), &here);
    let job_directory = call.operands.first().map_or(Ok(None), |_| job_directory())?;
    options.overrides = overrides(call, &request, &options, &named, args)?;
    options.user_map = match request.as_root {
        Some(true) => Some(UserMap::Root),
        Some(false) => Some(UserMap::Caller),
        None => options.user_map,
    };
    let entrypoint = EntrypointRequest { log: request.entrypoint_log, env: request.env.clone() };
    options.entrypoint_first = request.entrypoint.then_some(entrypoint);
    options.env_of_job = Some(named.step.job.clone());
    options.mpi = create::mpi(call)?;
    options.configured = true;
    let tmpfs = request.tmpfs().to_owned();
    let unbound = request.keeps_root() && !is_disk(request.layers());
    let mut context = TaskContext {
        share: call.flags.switch(&SHARE) != Some(false) && named.task.is_some(),
        id: Some(named),
        job: JobEnvironment::own(),
        has_terminal: tty::stdin_is_terminal(),
        uid: rustix::process::geteuid().as_raw(),
        pid: std::process::id(),
        umask: process::umask(),
        cwd: request
            .workdir
            .map(|path| JobDirectory { path, identity: None, explicit: true, required: true })
            .or(job_directory),
        looked_up: !call.operands.is_empty(),
        has_own_environment: true,
        unshare: request.unshare,
        unbound,
        tmpfs: Some(tmpfs),
        ..TaskContext::default()
    };
    rt_launch::slurm::read_own_environment(&mut context);
    options.task = Some(context);
    if let Some(checkpoint) = checkpoint {
        options.keep(checkpoint);
    }
    container::run_task(&store, options)
}

/// Runs a task in a child. The last one on the node saves the container: it has the mounts of the job, which slurmstepd need
/// not have, and its exit code is the step's.
fn task_and_save(call: &Call, request: &StepContainer, tasks: usize, path: &Path) -> Result<u8> {
    // Here, and not once for the node: where the plugin prepares a step, a job's own /tmp is not there yet (job_container/tmpfs).
    check_place_to_save(path)?;
    let id = task_id(call, request)?;
    let named = TaskId::parse(&id).ok_or_else(|| err!("{id:?} is no id of a task"))?;
    let (store, step) = (store_of_job(call)?, step_name(&named));
    // Before the program runs: the step that `JOB.STEP` names may have ended when it has, and leaves what is to be saved.
    let container = match named_container(call, &store, request, &named)? {
        Some(container) => {
            store.container(&container.id)?.note_unsaved(&step, &Unsaved::Pending)?;
            container.id
        }
        None => container_of(request, &named),
    };
    let program = start::program()?;
    let mut command = Command::new(&program);
    command.args(crate::cli::own_words()).env(SAVED_BY_PARENT, "1");
    let child = command.spawn().context(|| format!("execute {}", program.display()))?;
    // Of a batch job's script Slurm signals the first process alone (`--signal=B:`, `scancel -b`).
    let passes_on = named.is_batch_script() || signals_children_alone()?;
    let (code, told) = exit_code(child, passes_on)?;
    let was_told = told.is_some_and(|told| told.elapsed() < EMPTYING);
    // Slurm may not have come to this process of the step yet.
    let is_ending = request.in_jobs_own && (was_told || waits_to_end(Duration::from_millis(100))?);
    let store = open_store_of_job(call)?;
    if !store.holds(&container)? {
        return match code {
            0 => Err(err!("container {container} is there no more, and was not saved")),
            // No task could make it, for instance.
            code => Ok(code),
        };
    }
    let dir = store.container(&container)?;
    // Before the task counts as ended: where all do, and nothing is noted, the container is saved.
    let noted = dir.note_unsaved(&step, &Unsaved::Pending);
    match noted.and_then(|()| dir.note_end(&step, named.task.unwrap_or(0))) {
        Ok(ended) if ended >= tasks => {}
        Ok(_) => return Ok(code),
        // Other users may have filled the file system. The end of the step saves what its last task has not.
        Err(e) => {
            rt_sys::log::tell(&e);
            return Ok(if code == 0 { 1 } else { code });
        }
    }
    let saved = save_of_step(call, &store, &container, &named, path, &[], is_ending)?;
    Ok(if code == 0 { saved } else { code })
}

/// True where Slurm signals this process alone, and not the program, which is its child.
fn signals_children_alone() -> Result<bool> {
    let cgroups = fd::read_at(fd::open_proc()?, "self/cgroup").context(|| "read /proc/self/cgroup")?;
    Ok(slurm::signals_children_alone(&String::from_utf8_lossy(&cgroups)))
}

/// True where Slurm tells this process, which blocks all signals, to end, by now or within `limit`.
fn waits_to_end(limit: Duration) -> Result<bool> {
    let told = signal::waiting(&[libc::SIGTERM]).context(|| "look for signals")?;
    let mut asked = [PollFd::new(&told, PollFlags::IN)];
    process::poll(&mut asked, Some(limit))?;
    Ok(asked[0].revents().contains(PollFlags::IN))
}

/// Slurm begins to empty a job's own directory when it tells the job's tasks to end, and kills them after KillWait, 30 s mostly. Who
/// was told earlier (`--signal`) is in a job that goes on.
const EMPTYING: Duration = Duration::from_secs(120);

/// Waits for a child with all signals blocked, and returns its exit code, 128 and the signal where that was one, and when it was last
/// told to end. The child has the signals of a terminal, which go to all of its group; those of others only where this process
/// `passes_on` what it gets.
fn exit_code(mut child: Child, passes_on: bool) -> Result<(u8, Option<Instant>)> {
    signal::block_all();
    let mut told = None;
    while passes_on && child.try_wait().context(|| "wait for the task")?.is_none() {
        let taken = signal::take();
        if taken.number != libc::SIGCHLD && !taken.by_kernel {
            if taken.number == libc::SIGTERM {
                told = Some(Instant::now());
            }
            let _ = signal::send(child.id() as i32, taken.number);
        }
    }
    let status = child.wait().context(|| "wait for the task")?;
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    Ok((code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1), told))
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
    crate::cli::print(format!("{}\n", arguments::encode(&arguments)))
}

/// Executes this call again with the variables in `file`: what hooks and `rt-pull` are told comes from there too. Returns
/// the error only.
fn execute_with(call: &Call, file: &Path) -> Result<Error> {
    // The directory that Slurm makes for a task is open to the group of the job.
    let read = || {
        let (Some(dir), Some(name)) = (file.parent(), file.file_name()) else { bail!("it is no file") };
        AmongOthers::open(dir)?.read(name)
    };
    let text = read().context(|| format!("--environment: read {}", file.display()))?;
    let mut words = crate::cli::own_words();
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
    for name in [
        "RT_CONTAINER_RESOLVED",
        ARGV0,
        "RT_CONTAINER_STEPID",
        "RT_CONTAINER_TASKS",
        "RT_CONTAINER_MEMORY",
        "RT_CONTAINER_IN_JOBS_OWN",
    ] {
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

/// The program and its arguments.
fn program(call: &Call, request: &StepContainer) -> Result<Vec<String>> {
    let mut args: Vec<String> = request.program.iter().cloned().collect();
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
    request: &StepContainer,
    options: &CreateOptions,
    id: &TaskId,
    args: Vec<String>,
) -> Result<Overrides> {
    let mut mounts = request.mounts.clone();
    mounts.extend(batch_script(id, &args)?);
    let mut home = request.home;
    if let (Some(true), Some(true)) = (home, request.as_root) {
        // The home of root.
        home = None;
        let unmounted = request.unmounted.iter().any(|place| place == Path::new("/root"));
        if let Some(dir) = caller::variable("HOME").filter(|_| !unmounted)
            && look::is_dir(&dir)?
        {
            let options = ["rbind", "nosuid", "nodev"].map(str::to_owned).to_vec();
            mounts.insert(0, asked_mounts::bind(&dir, "/root", options)?);
        }
    }
    let mut env = request.env.clone();
    env.extend(crate::cli::environment(call)?);
    Ok(Overrides {
        args,
        entrypoint: Entrypoint::Without,
        env,
        root: root_access(request, options),
        home,
        volumes: call.flags.texts(&VOLUME)?,
        mounts,
        unmounted: request.unmounted.clone(),
        devices: call.flags.texts(&DEVICE)?,
        ..Overrides::default()
    })
}

/// Where what the program writes to the root goes. An image is written to in a layer, as enroot's and pyxis' containers
/// are; in a bundle its config says whether it can be.
fn root_access(request: &StepContainer, options: &CreateOptions) -> RootAccess {
    let is_users_bundle = matches!(request.image, Some(Image::Path(_))) && options.image_file.is_none();
    if let Some(kept) = &options.persistent {
        return RootAccess::Overlay {
            dir: kept.container.layer.clone(),
            readonly: request.writable == Some(false),
        };
    }
    match (request.writable, is_users_bundle) {
        (Some(false), _) => RootAccess::ReadOnly,
        (None, true) if request.as_root != Some(true) => RootAccess::AsConfigured,
        (_, true) => RootAccess::Writable,
        (_, false) => RootAccess::InMemory,
    }
}

/// The script of a batch job, which Slurm keeps in a directory of its own, at its place.
fn batch_script(id: &TaskId, args: &[String]) -> Result<Option<Mount>> {
    let Some(script) = args.first().filter(|_| id.is_batch_script()) else { return Ok(None) };
    if !script.starts_with('/') || !look::is_file(script)? {
        return Ok(None);
    }
    let options = ["bind", "ro", "nosuid", "nodev"].map(str::to_owned).to_vec();
    asked_mounts::bind(script, script, options).map(Some)
}
