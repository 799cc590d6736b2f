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

/// True where `dir` is, or would be made, in a directory that Slurm or a site's prolog has made for `job` and removes with it, such as
/// the /tmp of job_container/tmpfs: it is called by the job's number, and is `tmpdir` or mounted at another place.
pub(super) fn ends_with(dir: &Path, job: &str, tmpdir: Option<&str>) -> Result<bool> {
    let dir = fd::absolute(dir)?;
    if tmpdir.is_some_and(|tmpdir| has_number(tmpdir, job) && dir.starts_with(tmpdir)) {
        return Ok(true);
    }
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

/// True where a number in `path` is `job`.
fn has_number(path: &str, job: &str) -> bool {
    path.split(|c: char| !c.is_ascii_digit()).any(|number| number == job)
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

/// What scontrol(1) says to `words`; nothing where it fails, which is not this job's end.
fn shown(words: &[&str]) -> String {
    match output::of(scontrol().arg("-o").arg("show").args(words)) {
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Err(e) => {
            log::debug!("scontrol show {}: {e}", words.join(" "));
            String::new()
        }
    }
}

/// The value of `name` in a line of `scontrol -o show`. A job's name is its user's, who can have written any words in it: what has it
/// on both sides is looked at.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (before, behind) = match (line.find(" JobName="), line.rfind(" UserId=")) {
        (Some(from), Some(to)) if from < to => (&line[..from], &line[to..]),
        _ => (line, ""),
    };
    let mut words = before.split_whitespace().chain(behind.split_whitespace());
    words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

/// The line of `text` that is of `job` alone. The task of an array that was started last has the array's number, and for that Slurm
/// shows all of its tasks.
fn line_of<'a>(text: &'a str, job: &str) -> Option<&'a str> {
    text.lines().find(|line| field(line, "JobId") == Some(job))
}

/// How `job`, of which Slurm says `line`, is called by a command that is to mean it alone; `None` where it may be the task of an array
/// that is not known. The number of an array means all of its tasks, those that have ended among them (scontrol(1), requeue).
fn name(job: &str, line: Option<&str>, in_array: bool) -> Option<String> {
    let is_number = |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let array = line.and_then(|line| field(line, "ArrayJobId"));
    let task = line.and_then(|line| field(line, "ArrayTaskId")).filter(is_number);
    match (array, task) {
        (Some(array), Some(task)) => Some(format!("{array}_{task}")),
        (Some(_), None) => None,
        (None, _) => (line.is_some() || !in_array).then(|| job.to_owned()),
    }
}

/// True where Slurm requeues the job of `line` by itself when it ends with [`AGAIN`]: it is being preempted with a time of grace, and
/// slurm.conf has that exit code in RequeueExit. Slurm 24.11 requeues a job that has asked for it meanwhile once more when it has come to
/// its end, and it would begin anew. Without RequeueExit nobody else does it.
fn is_requeued_anyway(line: &str) -> bool {
    // The year of a time, or a word for none.
    if !field(line, "PreemptTime").is_some_and(|time| time.starts_with(|c: char| c.is_ascii_digit())) {
        return false;
    }
    let Some(partition) = field(line, "Partition") else { return false };
    let partition = shown(&["partition", partition]);
    let mode = field(&partition, "PreemptMode");
    mode.is_some_and(|mode| mode.split(',').any(|mode| mode.eq_ignore_ascii_case("requeue")))
        && requeues_exit(&shown(&["config"]), AGAIN)
}

/// True where `config`, what scontrol shows of slurm.conf(5), has `code` in RequeueExit: a list of numbers and ranges.
fn requeues_exit(config: &str, code: u8) -> bool {
    let line = config
        .lines()
        .find_map(|line| line.trim().strip_prefix("RequeueExit ")?.trim_start().strip_prefix('='));
    line.unwrap_or_default().split(',').any(|part| {
        let part = part.trim();
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let range = first.parse().and_then(|first: u8| Ok(first..=last.parse()?));
        range.is_ok_and(|range| range.contains(&code))
    })
}

/// Asks Slurm to requeue `job`. The image is on the disk, so that a refusal is only told: the next job can restore it.
pub(super) fn request(job: &str) {
    let text = shown(&["job", job]);
    let line = line_of(&text, job);
    if line.is_some_and(is_requeued_anyway) {
        return;
    }
    let Some(name) = name(job, line, caller::said("SLURM_ARRAY_JOB_ID").is_some()) else {
        log::warn!("job {job} is not requeued: Slurm does not say which task of its array it is");
        return;
    };
    match output::of(scontrol().args(["requeue", &name])) {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            log::warn!("scontrol requeue {name}: {}", said.lines().next().unwrap_or("refused"));
        }
        Err(e) => log::warn!("scontrol requeue {name}: {e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_that_are_requeued_are_known() {
        let of = |value: &str| {
            let text = format!(
                "ReconfigFlags           = (null)\nRequeueExit             = {value}\nRequeueExitHold         = 75\n"
            );
            requeues_exit(&text, 75)
        };
        assert_eq!(
            ["75", "1,75", "70-80", "(null)", "7", "74,76-80"].map(of),
            [true, true, true, false, false, false]
        );
    }

    #[test]
    fn a_directory_of_a_job_has_its_number() {
        let of = |path| has_number(path, "281");
        assert!(["/scratch/281", "/tmp/slurm.281", "/local/u_281/tmp"].into_iter().all(of));
        assert!(!["/scratch/2811", "/tmp", "", "/1281/28/1"].into_iter().any(of));
    }

    #[test]
    fn a_task_of_an_array_is_named_alone() {
        // Of Slurm 22.05: the last task has the array's number.
        let text = "JobId=1 ArrayJobId=1 ArrayTaskId=2 JobName=a JobState=RUNNING PreemptTime=None Partition=low\n\
            JobId=3 ArrayJobId=1 ArrayTaskId=1 JobName=a JobState=RUNNING PreemptTime=2026-11-26T18:00:00 Partition=low\n\
            JobId=2 ArrayJobId=1 ArrayTaskId=0 JobName=a JobState=COMPLETED PreemptTime=None Partition=low\n";
        let named = |job| name(job, line_of(text, job), true);
        assert_eq!(["1", "2", "3"].map(named), ["1_2", "1_0", "1_1"].map(|name| Some(name.to_owned())));
        assert_eq!(line_of(text, "1").and_then(|line| field(line, "PreemptTime")), Some("None"));
        // No task yet, and what is not known.
        assert_eq!(name("1", Some("JobId=1 ArrayJobId=1 ArrayTaskId=3-5%2"), true), None);
        assert_eq!((name("7", None, true), name("7", None, false)), (None, Some("7".into())));
        assert_eq!(name("7", Some("JobId=7 JobName=x"), true), Some("7".into()));
    }
}
