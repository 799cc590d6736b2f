//! `rt slurm`: what Slurm calls, by oci.conf(5) and by the plugin.
//!
//! oci.conf(5): Slurm calls `run` as the user, in the task's place, and `state`, `kill` and `delete` as root when the step has
//! ended. What it reads of `state` are stdout and stderr together, and what it cannot read it reports into the job's output.
//!
//! The plugin calls `prepare` once for each node, has Slurm execute `task` in the place of each task's program, and calls `end`
//! when the step has ended. All of them have the step's environment, with the variables `RT_CONTAINER_*`.

mod broadcast;
mod end;
mod forms;
mod persistent;
mod prepare;
mod query;
mod run;
mod save;
mod task;

use crate::checkpoint::Restore;
use crate::cli::Call;
use crate::container::Checkpoint;
use crate::store::Store;
pub(super) use forms::FORMS;
use persistent::container_id;
use rt_config::Lookup;
use rt_launch::request::StepContainer;
use rt_launch::task::TaskId;
use rt_sys::error::Result;
use rt_sys::{aside, caller, err};
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Slurm's number for the step of a batch script (slurm.h, SLURM_BATCH_SCRIPT).
const BATCH: u32 = 0xffff_fffb;

fn id<'a>(call: &Call<'a>) -> Result<&'a str> {
    call.operand(0, "the id")
}

/// Does `work` in a process beside this one, in which `open` has become a user. Returns what it says. Whoever has called this process
/// waits for it. So it stays root's, whom the user can neither stop nor end (kill(2)), and kills the other one, which he can have stopped,
/// after so many seconds.
fn as_user(
    seconds: u32,
    open: impl FnOnce() -> Result<Store>,
    work: impl FnOnce(&Store) -> Result<Vec<u8>>,
) -> Result<Vec<u8>> {
    let own = getpid();
    let said = aside::ask_within(Duration::from_secs(seconds.into()), || {
        let store = open()?;
        // Now, because the kernel clears the death signal when ids change (PR_SET_PDEATHSIG(2const)).
        set_parent_process_death_signal(Some(Signal::KILL))?;
        match getppid() == Some(own) {
            true => work(&store),
            false => Err(err!("who waits for this process has ended")),
        }
    })?;
    said.ok_or_else(|| err!("it takes more than {seconds} s"))
}

/// What this process's environment asks for.
fn read() -> Result<StepContainer> {
    let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    StepContainer::read(&rt_config::own_variable, &here)
}

/// Has a task go on from the last checkpoint in `dir`, and be written there.
fn open_checkpoints(dir: &Path, id: &TaskId, variable: Lookup<'_>) -> Result<Box<dyn Checkpoint>> {
    // A step that srun has started is part of a job that goes on.
    let job = id.is_batch_script().then(|| id.step.job.clone());
    Ok(Box::new(Restore::last_of(dir, 0, job, variable)?))
}

/// What a step is called in the state of its container.
fn step_name(id: &TaskId) -> String {
    format!("{}.{}", id.step.job, id.step.step)
}

/// The id of the step's container.
fn container_of(request: &StepContainer, id: &TaskId) -> String {
    request.name.as_ref().map_or_else(|| id.container.clone(), |name| container_id(name, id))
}

/// `NODE.JOB.STEP.TASK`, the id of oci.conf's pattern.
fn task_id(call: &Call, request: &StepContainer) -> Result<String> {
    if let Some(id) = call.operands.first() {
        return Ok(id.to_str().ok_or_else(|| err!("{id:?} is no id of a task"))?.to_owned());
    }
    let job = caller::variable("SLURM_JOB_ID")
        .ok_or_else(|| err!("SLURM_JOB_ID is not set: this is no task of Slurm"))?;
    let step = request.step.or_else(|| caller::variable("SLURM_STEP_ID")?.parse().ok()).unwrap_or(BATCH);
    let task = caller::variable("SLURM_LOCALID").unwrap_or_else(|| "0".to_owned());
    let node = caller::variable("SLURMD_NODENAME").unwrap_or_else(|| "node".to_owned());
    Ok(format!("{node}.{job}.{step}.{task}"))
}

/// The state directory of the job's containers: that of `--root`, or else the user's among those that sites give to Slurm,
/// or else the usual one.
fn store_of_job(call: &Call) -> Result<Store> {
    match crate::cli::root(call)? {
        Some(root) => Store::create(Some(&root)),
        None => Store::create_for_job(user_of_job().as_deref()),
    }
}

/// The state directory of [`store_of_job`], where that is there. Makes none.
fn open_store_of_job(call: &Call) -> Result<Store> {
    match crate::cli::root(call)? {
        Some(root) => Store::open(Some(&root)),
        None => Store::open_for_job(user_of_job().as_deref()),
    }
}

/// The user's name.
fn user_of_job() -> Option<String> {
    caller::variable("SLURM_JOB_USER").or_else(|| caller::variable("USER"))
}
