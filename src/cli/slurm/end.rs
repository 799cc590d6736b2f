//! `rt slurm begin` and `end`: what is made for a job's user, and what is removed when a step or a job has ended.

use super::persistent::container_to_save;
use super::save::save_of_step;
use super::{as_user, broadcast, open_store_of_job, read, step_name, task_id};
use crate::cli::Call;
use crate::container;
use crate::store::{self, Unsaved};
use rt_launch::request;
use rt_launch::task::TaskId;
use rt_sys::error::Result;
use rt_sys::{bail, caller, err, process, signal};

/// How long what is left may be ended, in seconds.
const END_WITHIN: u32 = 600;

/// Makes the state directory of the job's user, for a prolog of root's.
pub(super) fn begin(call: &Call) -> Result<u8> {
    let root = crate::cli::root(call)?.ok_or_else(|| err!("slurm begin: --root is missing"))?;
    // The directory's parent is closed to others, so a name with a slash or an empty one would close something else.
    let user = caller::variable("SLURM_JOB_USER").filter(|user| !user.contains('/'));
    let is_users = |user: &String| !user.starts_with('.') && root.file_name() == Some(user.as_ref());
    if !user.is_some_and(|user| is_users(&user)) {
        bail!("slurm begin: {} is not named by SLURM_JOB_USER", root.display());
    }
    let number = |name: &str| caller::variable(name).and_then(|number| number.parse::<u32>().ok());
    let uid = number("SLURM_JOB_UID").ok_or_else(|| err!("SLURM_JOB_UID is no number"))?;
    store::make_for_job(&root, uid, number("SLURM_JOB_GID").unwrap_or(uid))?;
    Ok(0)
}

/// Ends what is left of the step on this node; called by root, what is left of the job.
pub(super) fn end(call: &Call) -> Result<u8> {
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
    process::end_after(END_WITHIN);
    let request = read()?;
    let id = task_id(call, &request)?;
    let named = TaskId::parse(&id).ok_or_else(|| err!("{id:?} is no id of a task"))?;
    let store = open_store_of_job(call)?;
    let container = container_to_save(&store, &request, &named)?;
    let step = step_name(&named);
    // The last of the tasks has saved it, unless one was killed, or that one.
    let has_saved = |tasks| {
        let ended = store.container(&container).and_then(|dir| dir.ended(&step));
        ended.is_ok_and(|ended| ended >= tasks)
    };
    let is_due = match store.find(&container)?.map_or(Ok(None), |dir| dir.unsaved(&step))? {
        Some(unsaved) => unsaved == Unsaved::Pending,
        None => !request.tasks.is_some_and(has_saved),
    };
    let save =
        request.save.as_ref().filter(|_| is_due && matches!(store.persistent(&container), Ok(Some(_))));
    let saved = save.map_or(Ok(0), |path| {
        // The plugin ends this call so when it takes too long.
        let ends = [libc::SIGTERM, libc::SIGALRM];
        signal::block(&ends);
        let saved = save_of_step(call, &store, &container, &named, path, &ends, request.in_jobs_own);
        signal::reset(0);
        process::end_after(END_WITHIN);
        saved
    });
    let tasks = format!("{}.-1", named.container);
    match store.find(&named.container)?.map_or(Ok(false), |dir| dir.is_unsaved())? {
        // It is the job's now, whose end removes it. Another step may be the one that is to save it.
        true => container::tasks_kill(&store, &tasks, libc::SIGKILL)?,
        false => container::tasks_delete(&store, &tasks)?,
    }
    if let Some(dir) = store.find(&container)? {
        dir.forget_ends(&step)?;
    }
    saved
}

/// True for the name of a layer that a container of `job` had: `JOB.NAME`, or that of a step, `NODE.JOB.STEP`.
fn is_layer_of(job: &str, name: &str) -> bool {
    match name.split_once('.') {
        Some((first, _)) if first.parse::<u32>().is_ok() => first == job,
        _ => TaskId::parse(&format!("{name}.-1")).is_some_and(|id| id.step.job == job),
    }
}

/// Ends everything of a job of another user, as that user: nothing in a user's directory is to be read or signalled with
/// root's privileges.
fn end_of_job(call: &Call, job: &str) -> Result<u8> {
    let uid: u32 = caller::variable("SLURM_JOB_UID")
        .and_then(|uid| uid.parse().ok())
        .ok_or_else(|| err!("SLURM_JOB_UID is no number"))?;
    let open = || {
        store::become_owner(uid)?;
        open_store_of_job(call)
    };
    as_user(END_WITHIN, open, |store| {
        let deleted = container::tasks_delete(store, job);
        // What a start that failed, or was killed, has made, and nobody knows any more.
        let layers = request::layers(&rt_config::own_variable);
        let swept = store.sweep_layers(&layers, |name| is_layer_of(job, name));
        broadcast::remove(job).and(deleted).and(swept).map(|()| Vec::new())
    })?;
    Ok(0)
}
