//! `rt slurm`: the forms of run, state, kill and delete that Slurm's oci.conf(5) calls.
//!
//! Slurm calls `run` as the user, in the task's place, and the others as root when the step has ended. What it
//! reads of `state` are stdout and stderr together, and what it cannot read it reports into the job's output.

use super::Call;
use super::table::*;
use super::{broadcast, create, kill, step_container};
use crate::container::{self, Overrides};
use crate::store::Store;
use rt_launch::task::{JobDirectory, TaskContext, TaskId};
use rt_spec::OCI_VERSION;
use rt_spec::state::Status;
use rt_sys::error::{Context, Result};
use rt_sys::{bail, caller, err, process, tty};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Runs one of the forms.
pub(super) fn run(call: &Call) -> Result<u8> {
    let form = call.operands[0].to_str().unwrap_or_default();
    let most = match form {
        "kill" | "save" => 3,
        "prepare" | "arguments" | "begin" => 1,
        _ => 2,
    };
    if let Some(extra) = call.operands.get(most) {
        bail!("slurm {form}: extra operand {extra:?}");
    }
    match form {
        "run" => run_task(call),
        "task" => step_container::task(call),
        "prepare" => step_container::prepare(call),
        "begin" => begin(call),
        "end" => step_container::end(call),
        "save" => step_container::save(call),
        "arguments" => step_container::arguments(),
        "digest" => step_container::digest(call),
        "broadcast" => broadcast::run(call),
        "state" => state(call),
        "kill" => {
            let signal = call.operands.get(2).map_or(Ok(15), |name| kill::signal(&name.to_string_lossy()))?;
            container::tasks_kill(&owners_store(call)?, id(call)?, signal)?;
            Ok(0)
        }
        "delete" => {
            container::tasks_delete(&owners_store(call)?, id(call)?)?;
            Ok(0)
        }
        other => {
            bail!(
                "slurm: {other:?} is none of begin, run, task, arguments, prepare, digest, broadcast, end, save, state, kill and delete"
            )
        }
    }
}

fn id<'a>(call: &Call<'a>) -> Result<&'a str> {
    call.operand(1, "the id")
}

fn run_task(call: &Call) -> Result<u8> {
    // slurmd has neither. Slurm 25.05 may have taken them from the image, whose variables are known when the config is loaded.
    caller::leave_out_variables(["XDG_RUNTIME_DIR", "RT_MPI"].map(str::to_owned));
    let id = id(call)?;
    let flags = &call.flags;
    let mut options =
        create::options(call, id.to_owned(), flags.path(&BUNDLE).unwrap_or_else(|| ".".into()))?;
    options.overrides = Overrides {
        args: call.rest()?,
        env: super::environment(call)?,
        volumes: flags.texts(&VOLUME)?,
        devices: flags.texts(&DEVICE)?,
        mpi: create::mpi(call)?,
        ..Overrides::default()
    };
    options.configured = true;
    let id = TaskId::parse(id);
    options.task = Some(TaskContext {
        share: flags.switch(&SHARE) != Some(false) && id.as_ref().is_some_and(|id| id.task.is_some()),
        id,
        has_terminal: tty::stdin_is_terminal(),
        pid: std::process::id(),
        umask: process::umask(),
        cwd: job_directory(flags.path(&CHDIR), &options.bundle)?,
        looked_up: true,
        ..TaskContext::default()
    });
    let store = super::new_store(call).map_err(|e| match e.errno() {
        Some(libc::EACCES) => e.hint("a prolog makes a directory for each user, or tmpfiles.d one for all"),
        _ => e,
    })?;
    container::run_task(&store, options)
}

/// Where the task is to start: the directory that was asked for, or the one that Slurm has entered.
///
/// # Errors
/// The kernel does not say what the working directory is.
pub(super) fn job_directory(asked: Option<PathBuf>, bundle: &Path) -> Result<Option<JobDirectory>> {
    if let Some(path) = asked.filter(|path| path.is_absolute()) {
        return Ok(Some(JobDirectory { path, identity: None, asked: true, required: false }));
    }
    // Slurm 22.05 enters the bundle.
    let found = std::env::current_dir().and_then(|path| Ok((std::fs::metadata(&path)?, path)));
    match found {
        Ok((_, path)) if path == Path::new("/") || path == bundle => Ok(None),
        Ok((found, path)) => {
            let identity = Some((found.dev(), found.ino()));
            Ok(Some(JobDirectory { path, identity, asked: false, required: false }))
        }
        // Removed, or below a directory that the user may not search: no path leads to it, in the container neither.
        Err(e) if [ErrorKind::NotFound, ErrorKind::PermissionDenied].contains(&e.kind()) => Ok(None),
        Err(e) => Err(e).context(|| "find the working directory"),
    }
}

/// Makes the state directory of the job's user, for a prolog of root's.
fn begin(call: &Call) -> Result<u8> {
    let root = super::root(call)?.ok_or_else(|| err!("slurm begin: --root is missing"))?;
    // Its parent is closed to others, so a name with a slash or an empty one would close something else.
    let user = caller::variable("SLURM_JOB_USER").filter(|user| !user.contains('/'));
    let is_users = |user: &String| !user.starts_with('.') && root.file_name() == Some(user.as_ref());
    if !user.is_some_and(|user| is_users(&user)) {
        bail!("slurm begin: {} is not named by SLURM_JOB_USER", root.display());
    }
    let number = |name: &str| caller::variable(name).and_then(|number| number.parse::<u32>().ok());
    let uid = number("SLURM_JOB_UID").ok_or_else(|| err!("SLURM_JOB_UID is no number"))?;
    crate::store::make_for_job(&root, uid, number("SLURM_JOB_GID").unwrap_or(uid))?;
    Ok(0)
}

/// The state directory, as its owner. Slurm waits for this call without a limit, and the user's file system may never
/// answer.
fn owners_store(call: &Call) -> Result<Store> {
    process::end_after(20);
    match super::root(call)? {
        Some(root) => Store::open_as_owner(&root),
        None => Store::open(None),
    }
}

/// Prints the state of a task, or of all tasks of a step. Whatever is wrong, the answer is that none runs: it is
/// then deleted, and nothing is reported into the job's output.
fn state(call: &Call) -> Result<u8> {
    let id = id(call)?;
    let status = owners_store(call).and_then(|store| container::tasks_status(&store, id));
    let status = status.unwrap_or(Status::Stopped).as_str();
    // Less than a state of the specification: a task has no bundle of its own, and Slurm reads the status alone.
    let json = serde_json::json!({ "ociVersion": OCI_VERSION, "id": id, "status": status });
    super::print_json(&json)
}
