//! Asking Slurm to run a batch job again.

use rt_sys::caller;
use rt_sys::output;
use std::process::Command;

/// The exit code that says: run it again (EX_TEMPFAIL of sysexits.h), as RequeueExit of slurm.conf may name it.
pub(super) const AGAIN: u8 = 75;

/// The job that this process is the batch script of. A step that srun has started is part of a job that goes on.
pub(crate) fn own_job() -> Option<String> {
    caller::said("SLURM_JOB_ID").filter(|_| caller::said("SLURM_STEP_ID").is_none())
}

/// Where programs are, where the caller has not said it.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// scontrol(1) as the caller has it: an image's variables, which Slurm may mix with this process's, choose no program and no
/// configuration of one.
fn scontrol() -> Command {
    let mut command = Command::new("scontrol");
    let variables: Vec<String> = caller::variables().collect();
    command.env_clear().envs(variables.iter().filter_map(|variable| variable.split_once('=')));
    // By this one it is looked for, too.
    command.env("PATH", caller::path("PATH").unwrap_or_else(|| PATH.into()));
    command
}

/// Asks Slurm to requeue `job`. The image is on the disk, so that a refusal is only told: the next job can restore it.
pub(super) fn request(job: &str) {
    match output::of(scontrol().args(["requeue", job])) {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            log::warn!("scontrol requeue {job}: {}", said.lines().next().unwrap_or("refused"));
        }
        Err(e) => log::warn!("scontrol requeue {job}: {e}"),
    }
}
