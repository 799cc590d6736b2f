//! `rt slurm run`: a task whose config Slurm has generated (oci.conf(5)).

use super::{id, open_checkpoints};
use crate::cli::table::*;
use crate::cli::{Call, create};
use crate::container::{self, Entrypoint, Overrides};
use rt_launch::task::{JobDirectory, TaskContext, TaskId};
use rt_sys::error::{Context, Result};
use rt_sys::{caller, process, tty};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Runs a task in the container that its bundle says.
pub(super) fn run_task(call: &Call) -> Result<u8> {
    // slurmd has neither. Slurm 25.05 may have taken them from the image, whose variables are known when the config is loaded.
    caller::leave_out_variables(["XDG_RUNTIME_DIR", "RT_MPI"].map(str::to_owned));
    let id = id(call)?;
    let flags = &call.flags;
    let mut options =
        create::options(call, id.to_owned(), flags.path(&BUNDLE).unwrap_or_else(|| ".".into()))?;
    options.overrides = Overrides {
        args: call.rest()?,
        entrypoint: Entrypoint::Without,
        env: crate::cli::environment(call)?,
        volumes: flags.texts(&VOLUME)?,
        devices: flags.texts(&DEVICE)?,
        ..Overrides::default()
    };
    options.mpi = create::mpi(call)?;
    options.opens_checkpoints = Some(open_checkpoints);
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
    let store = crate::cli::new_store(call).map_err(|e| match e.errno() {
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
        return Ok(Some(JobDirectory { path, identity: None, explicit: true, required: false }));
    }
    // Slurm 22.05 enters the bundle.
    let found = std::env::current_dir().and_then(|path| Ok((std::fs::metadata(&path)?, path)));
    match found {
        Ok((_, path)) if path == Path::new("/") || path == bundle => Ok(None),
        Ok((found, path)) => {
            let identity = Some((found.dev(), found.ino()));
            Ok(Some(JobDirectory { path, identity, explicit: false, required: false }))
        }
        // Removed, or below a directory that the user may not search: no path leads to it, in the container neither.
        Err(e) if [ErrorKind::NotFound, ErrorKind::PermissionDenied].contains(&e.kind()) => Ok(None),
        Err(e) => Err(e).context(|| "find the working directory"),
    }
}
