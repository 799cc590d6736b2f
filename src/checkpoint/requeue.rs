//! Asking Slurm to run a batch job again.

use rt_config::Lookup;
use rt_sys::error::{Context, Result};
use rt_sys::{caller, disk, fd, mount, output};
use rustix::fd::AsFd;
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

/// The exit code that says: run it again (EX_TEMPFAIL of sysexits.h), as RequeueExit of slurm.conf may name it.
pub(super) const AGAIN: u8 = 75;

/// The job that this process is the batch script of. A step that srun has started is part of a job that goes on.
pub(crate) fn own_job() -> Option<String> {
    caller::said("SLURM_JOB_ID").filter(|_| caller::said("SLURM_STEP_ID").is_none())
}

/// True where Slurm has run the job before.
pub(super) fn is_again(variable: Lookup<'_>) -> bool {
    variable("SLURM_RESTART_COUNT").is_some_and(|count| count != "0")
}

/// True where `dir` is, or would be made, in a directory that Slurm has made for `job` and removes with it, such as the /tmp of
/// job_container/tmpfs: such a one is called by the job's number, and mounted at another place.
pub(super) fn ends_with(dir: &Path, job: &str) -> Result<bool> {
    let dir = fd::absolute(dir)?;
    let open = |dir: &Path| fs::open(dir, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    // It is made later.
    let is_none =
        |opened: &Result<_, Errno>| matches!(opened, Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS));
    let Some(found) = dir.ancestors().map(open).find(|opened| !is_none(opened)) else { return Ok(false) };
    let found = found.context(|| format!("open {}", dir.display()))?;
    let Some(mount) = disk::mount_id(found.as_fd()) else { return Ok(false) };
    let is_of_job =
        |part: &OsStr| part.to_str().is_some_and(|part| part.strip_prefix('.').unwrap_or(part) == job);
    Ok(mount::table()?.iter().any(|mounted| mounted.id == mount && mounted.root.iter().any(is_of_job)))
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

/// True where Slurm requeues `job` by itself when it ends, since it is being preempted with a time of grace. Slurm 24.11 requeues a job
/// that has asked for it meanwhile once more when it has come to its end, and it would begin anew.
fn is_preempted(job: &str) -> bool {
    let shown = |words: [&str; 4]| match output::of(scontrol().args(words)) {
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Err(e) => {
            log::debug!("scontrol {}: {e}", words.join(" "));
            String::new()
        }
    };
    let field = |text: &str, name: &str| {
        text.split_whitespace().find_map(|word| Some(word.strip_prefix(name)?.strip_prefix('=')?.to_owned()))
    };
    let shown_job = shown(["-o", "show", "job", job]);
    // The year of a time, or a word for none.
    if !field(&shown_job, "PreemptTime").is_some_and(|time| time.starts_with(|c: char| c.is_ascii_digit())) {
        return false;
    }
    let Some(partition) = field(&shown_job, "Partition") else { return false };
    let mode = field(&shown(["-o", "show", "partition", &partition]), "PreemptMode");
    mode.is_some_and(|mode| mode.split(',').any(|mode| mode.eq_ignore_ascii_case("requeue")))
}

/// Asks Slurm to requeue `job`. The image is on the disk, so that a refusal is only told: the next job can restore it.
pub(super) fn request(job: &str) {
    if is_preempted(job) {
        return;
    }
    match output::of(scontrol().args(["requeue", job])) {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            log::warn!("scontrol requeue {job}: {}", said.lines().next().unwrap_or("refused"));
        }
        Err(e) => log::warn!("scontrol requeue {job}: {e}"),
    }
}
