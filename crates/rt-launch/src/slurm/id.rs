//! Ids of Slurm's tasks, as oci.conf(5) names them and as users do.

use crate::job_environment::JobEnvironment;
use crate::task::TaskId;
use rt_spec::state::Step;

/// `step` with what the job's environment says of its array.
pub fn of_array(step: &Step, job: &JobEnvironment) -> Step {
    let number = |name| job.get(name)?.parse::<u32>().ok();
    let name = |job: u32| Some(format!("{job}_{}", number("SLURM_ARRAY_TASK_ID")?));
    // A job that is submitted by a task of an array inherits the variables of that array, which is not its own.
    let own = job.get("SLURM_JOB_ID") == Some(step.job.as_str());
    let array = number("SLURM_ARRAY_JOB_ID").filter(|_| own).and_then(name);
    Step { array, ..step.clone() }
}

/// What a user calls a task: `JOB[.STEP[.TASK]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskName {
    /// The job's number, or `ARRAY_INDEX`.
    pub job: String,
    /// The step's number or name.
    pub step: Option<String>,
    /// The task's number on this node.
    pub task: Option<u32>,
}

impl TaskName {
    /// `None` where `name` has another form.
    pub fn parse(name: &str) -> Option<TaskName> {
        let mut parts = name.split('.');
        let job = parts.next()?;
        let (number, index) = job.split_once('_').unwrap_or((job, "0"));
        if number.parse::<u32>().is_err() || index.parse::<u32>().is_err() {
            return None;
        }
        let step = parts.next().filter(|step| !step.is_empty());
        let task = parts.next().map(|task| task.parse().ok());
        if parts.next().is_some() || task == Some(None) {
            return None;
        }
        Some(TaskName { job: job.to_owned(), step: step.map(str::to_owned), task: task.flatten() })
    }

    /// True for a container of that step, or of any step of the job.
    pub fn means(&self, step: &Step) -> bool {
        let job = self.job == step.job || step.array.as_ref() == Some(&self.job);
        job && self.step.as_ref().is_none_or(|wanted| *wanted == step.step)
    }
}

/// The numbers of the steps that have names (slurm.h, SLURM_BATCH_SCRIPT and the like).
const NAMED: [(u32, &str); 3] = [(0xffff_fffb, BATCH), (0xffff_fffa, "interactive"), (0xffff_fffc, "extern")];

/// What the step of a batch script is called.
const BATCH: &str = "batch";

impl TaskId {
    /// True for a batch script.
    pub fn is_batch_script(&self) -> bool {
        self.step.step == BATCH
    }

    /// Reads an id from its end, since node and user may contain dots. `None` where it names no task.
    pub fn parse(id: &str) -> Option<TaskId> {
        let (container, task) = id.rsplit_once('.')?;
        let (rest, step) = container.rsplit_once('.')?;
        let job = rest.rsplit('.').next()?;
        let task = match task {
            "-1" => None,
            // %t is unsigned: this is -1 too.
            "4294967295" => None,
            number => Some(number.parse().ok()?),
        };
        let _: u32 = step.parse().ok()?;
        let _: u32 = job.parse().ok()?;
        Some(TaskId { container: container.to_owned(), step: self::step(job, step), task })
    }
}

/// The step `number` of `job`.
pub(crate) fn step(job: &str, number: &str) -> Step {
    let parsed = number.parse::<u32>().ok();
    let name = NAMED.iter().find(|(known, _)| Some(*known) == parsed).map(|(_, name)| *name);
    Step { job: job.to_owned(), step: name.unwrap_or(number).to_owned(), array: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_from_the_end() {
        let id = TaskId::parse("n1.example.org.jo.doe.42.0.3").unwrap();
        assert_eq!(id.container, "n1.example.org.jo.doe.42.0");
        assert_eq!(id.step, Step { job: "42".into(), step: "0".into(), array: None });
        assert_eq!(id.task, Some(3));
        assert_eq!(TaskId::parse("n.u.42.4294967291.0").unwrap().step.step, "batch");
        for every in ["n.u.42.0.-1", "n.u.42.0.4294967295"] {
            assert_eq!(TaskId::parse(every).unwrap().task, None, "{every}");
        }
        for other in ["c1", "a.b", "n.u.42.x.0", "n.u.job.0.0", "n.u.42.0.", "n.u.42.0.-2"] {
            assert_eq!(TaskId::parse(other), None, "{other}");
        }
    }

    #[test]
    fn users_name_job_step_and_task() {
        let name = |text| TaskName::parse(text).map(|n| (n.job, n.step, n.task));
        assert_eq!(name("42"), Some(("42".into(), None, None)));
        assert_eq!(name("42.batch"), Some(("42".into(), Some("batch".into()), None)));
        assert_eq!(name("42.0.3"), Some(("42".into(), Some("0".into()), Some(3))));
        assert_eq!(name("281_1.0"), Some(("281_1".into(), Some("0".into()), None)));
        for other in ["", "x", "c1.0", "42.0.x", "42.0.1.2", "1_", "_1", "1_2_3"] {
            assert_eq!(name(other), None, "{other}");
        }
    }

    #[test]
    fn elements_of_an_array_have_two_names() {
        let of = |env: &str| {
            let env = env.split(' ').map(str::to_owned).collect();
            TaskId::parse("n.282.0.0")
                .map(|id| of_array(&id.step, &JobEnvironment::of_variables(env)))
                .unwrap()
        };
        let step = of("SLURM_JOB_ID=282 SLURM_ARRAY_JOB_ID=281 SLURM_ARRAY_TASK_ID=1");
        assert_eq!(step.to_string(), "281_1.0");
        for name in ["282", "281_1", "281_1.0"] {
            assert!(TaskName::parse(name).unwrap().means(&step), "{name}");
        }
        assert!(!TaskName::parse("281").unwrap().means(&step));
        // A job that a job of an array has submitted.
        assert_eq!(of("SLURM_JOB_ID=280 SLURM_ARRAY_JOB_ID=281 SLURM_ARRAY_TASK_ID=1").array, None);
    }
}
