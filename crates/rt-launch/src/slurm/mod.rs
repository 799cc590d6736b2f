//! Slurm: the ids of its tasks, the environment of a job, and what of that says which directories, descriptors and variables a
//! container needs (oci.conf(5); docs/slurm.md).

pub mod arguments;
pub(crate) mod hostlist;
mod id;

pub(crate) use id::step;
pub use id::{TaskName, of_array};

use crate::job_environment::JobEnvironment;
use crate::request::STEP_TASKS;
use crate::task::{Directories, TaskContext, TaskId, is_plain};
use rt_spec::environment::names_number;
use rt_spec::state::Step;
use rt_spec::{Spec, variable};
use rt_sys::caller;
use std::path::{Path, PathBuf};

/// The directories that are said by `task`, as far as `is_trusted` takes them: each is to be a directory of root's or of the
/// caller's that is there, and whose path has no link.
pub fn directories(task: &TaskContext, is_trusted: impl Fn(&Path) -> bool) -> Directories {
    let trusted = |dir: PathBuf| (is_plain(&dir) && is_trusted(&dir)).then_some(dir);
    Directories {
        pmix: pmix_server(task).and_then(trusted),
        pmix_application: pmix_application(task).and_then(trusted),
        tmpdir: tmpdir(task).and_then(trusted),
    }
}

/// True where the cgroups of a task, as /proc/self/cgroup has them, tell Slurm which processes the step has (proctrack/cgroup): a
/// signal but KILL goes to the children of slurmstepd alone then, and to all processes of the step otherwise.
pub fn signals_children_alone(cgroups: &str) -> bool {
    // Of version 1 the freezer is what proctrack/cgroup uses. Others may only bound what a task has.
    let tracks = |controllers: &str| controllers.split(',').any(|name| name.is_empty() || name == "freezer");
    cgroups.lines().any(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        fields.next().is_some_and(tracks) && fields.next().is_some_and(|path| path.contains("/step_"))
    })
}

/// The directory of the step's application that Slurm's PMIx makes in TmpFS.
fn pmix_application(task: &TaskContext) -> Option<PathBuf> {
    let Step { job, step, .. } = &task.id.as_ref()?.step;
    Some(task.tmpfs.as_ref()?.join(format!("spmix_appdir_{}_{job}.{step}", task.uid)))
}

/// The directory of the PMIx server of the step. Slurm names it `pmix.JOB.STEP`, and another name is that of another job
/// in the environment of a job that it has started. Where the job says none, slurmstepd's own variable counts.
fn pmix_server(task: &TaskContext) -> Option<PathBuf> {
    let is_jobs = |dir: &PathBuf| {
        let name = dir.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let step = name.strip_prefix("pmix.").and_then(|name| name.split_once('.'));
        let job = task.id.as_ref().map(|id| id.step.job.as_str());
        is_plain(dir) && step.is_some_and(|(of, number)| Some(of) == job && number.parse::<u32>().is_ok())
    };
    let of_job =
        task.job.get("PMIX_SERVER_TMPDIR").map(|dir| Path::new(dir).components().collect::<PathBuf>());
    of_job.filter(is_jobs).or_else(|| task.pmix_dir.clone())
}

/// The job's TMPDIR, where that is a directory of its own: the job's number is in the path.
fn tmpdir(task: &TaskContext) -> Option<PathBuf> {
    let dir = task.job.get("TMPDIR")?;
    let job = task.id.as_ref().map(|id| id.step.job.as_str());
    // A list of directories is separated by commas.
    (names_number(dir, job?) && !dir.contains(',')).then(|| PathBuf::from(dir))
}

/// The descriptor of the PMI2 connection, which the task must inherit at its number.
pub fn pmi_fd(job: &JobEnvironment) -> Option<i32> {
    job.get("PMI_FD")?.parse().ok().filter(|fd| *fd > 2)
}

/// Takes what slurmstepd has said in the environment of the runtime alone.
pub fn read_own_environment(task: &mut TaskContext) {
    task.pmix_dir = caller::path("PMIX_SERVER_TMPDIR");
    task.node = caller::variable("SLURMD_NODENAME");
}

/// The memory of a step on this node in MiB, which the plugin asks slurmstepd for.
const MEMORY: &str = "RT_CONTAINER_MEMORY";

/// The memory that Slurm gives the job on this node, in bytes; `None` where it does not say, or gives all.
pub fn memory(job: &JobEnvironment) -> Option<u64> {
    let number = |name: &str| job.get(name)?.parse::<u64>().ok().filter(|number| *number > 0);
    let of_cpus = || number("SLURM_MEM_PER_CPU")?.checked_mul(number("SLURM_CPUS_ON_NODE")?);
    number(MEMORY).or_else(|| number("SLURM_MEM_PER_NODE")).or_else(of_cpus)?.checked_mul(1 << 20)
}

/// Adds what Slurm has not put into the config of a task, or programs know under other names. Each rank is a note.
pub(crate) fn add_variables(spec: &mut Spec, task: &TaskContext, notes: &mut Vec<String>) {
    if !has_own_environment(spec, task)
        && let Some(variables) = rank(spec, task)
    {
        add_to_environment(spec, &variables.map(Some));
        notes.push("SLURM_PROCID and the like: set from the step's list of nodes".to_owned());
    }
    if task.has_own_environment {
        tell_pytorch(spec);
        tell_pmix(spec);
    }
}

/// True where the config has the task's own environment. Slurm 22.05 puts the job's into it, and with that the rank of
/// the batch script that has started the step.
fn has_own_environment(spec: &Spec, task: &TaskContext) -> bool {
    match variable(spec, "SLURM_TASK_PID") {
        Some(pid) => pid.parse() == Ok(task.pid),
        None => variable(spec, "SLURM_PROCID").is_some(),
    }
}

/// The variables of a task's rank, which Slurm 22.05 does not put into config.json. That version has one task per
/// node in a container, so a rank is a place in the step's list of nodes; a batch script is on the first one.
fn rank(spec: &Spec, task: &TaskContext) -> Option<[String; 6]> {
    let node = task.node.as_deref()?;
    let is_script = task.id.as_ref().is_some_and(TaskId::is_batch_script);
    let place = match variable(spec, "SLURM_STEP_NODELIST").filter(|_| !is_script) {
        Some(list) => {
            let counts = variable(spec, "SLURM_STEP_TASKS_PER_NODE")?;
            let one_each = counts == "1" || (counts.starts_with("1(x") && !counts.contains(','));
            hostlist::position(list, node).filter(|_| one_each)?
        }
        None => {
            hostlist::position(variable(spec, "SLURM_JOB_NODELIST")?, node).filter(|place| *place == 0)?
        }
    };
    Some([
        format!("SLURM_PROCID={place}"),
        format!("SLURM_NODEID={place}"),
        format!("SLURM_GTIDS={place}"),
        "SLURM_LOCALID=0".to_owned(),
        format!("SLURMD_NODENAME={node}"),
        format!("SLURM_TASK_PID={}", task.pid),
    ])
}

/// The rank, in an image of PyTorch, under the names that PyTorch knows.
fn tell_pytorch(spec: &mut Spec) {
    if variable(spec, "PYTORCH_VERSION").is_none() {
        return;
    }
    let names = [("SLURM_PROCID", "RANK"), ("SLURM_LOCALID", "LOCAL_RANK")];
    let mut found =
        names.map(|(from, to)| variable(spec, from).map(|value| format!("{to}={value}"))).to_vec();
    // Where the processes meet, unless the user says it. enroot's hook has the same rule for the port.
    let unset = |name: &str| variable(spec, name).is_none();
    let size = variable(spec, STEP_TASKS).or_else(|| variable(spec, "SLURM_NTASKS"));
    found.push(size.filter(|_| unset("WORLD_SIZE")).map(|size| format!("WORLD_SIZE={size}")));
    let nodes = variable(spec, "SLURM_STEP_NODELIST").or_else(|| variable(spec, "SLURM_JOB_NODELIST"));
    let first = nodes.and_then(hostlist::first).filter(|_| unset("MASTER_ADDR"));
    found.push(first.map(|node| format!("MASTER_ADDR={node}")));
    let job = variable(spec, "SLURM_JOB_ID").and_then(|job| job.parse::<u64>().ok());
    found.push(job.filter(|_| unset("MASTER_PORT")).map(|job| format!("MASTER_PORT={}", job % 4536 + 61000)));
    add_to_environment(spec, &found);
}

/// How PMIx works here, under the names by which its clients read that. enroot's hook does the same.
fn tell_pmix(spec: &mut Spec) {
    let names = [
        ("PMIX_SECURITY_MODE", "PMIX_MCA_psec"),
        ("PMIX_GDS_MODULE", "PMIX_MCA_gds"),
        ("PMIX_PTL_MODULE", "PMIX_MCA_ptl"),
    ];
    let found = names.map(|(from, to)| match variable(spec, to) {
        None => variable(spec, from).map(|value| format!("{to}={value}")),
        Some(_) => None,
    });
    add_to_environment(spec, &found);
}

fn add_to_environment(spec: &mut Spec, variables: &[Option<String>]) {
    if variables.iter().all(Option::is_none) {
        return;
    }
    if let Some(process) = spec.process_mut() {
        let mut env = process.env().clone().unwrap_or_default();
        env.extend(variables.iter().flatten().cloned());
        process.set_env(Some(env));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::TaskId;

    fn spec(json: &str) -> Spec {
        serde_json::from_str(json).unwrap()
    }

    const CONFIG: &str = r#"{"ociVersion":"1.0.0","process":{"cwd":"/","user":{"uid":0,"gid":0},"env":[]}}"#;

    #[test]
    fn who_is_signalled() {
        for (cgroups, expected) in [
            ("9:name=systemd:/\n6:freezer:/slurm/uid_7/job_4/step_0\n", true),
            ("6:cpuset,freezer:/slurm_node1/uid_7/job_4/step_batch\n0::/init.scope\n", true),
            ("0::/system.slice/slurmstepd.scope/job_4/step_0/user/task_0\n", true),
            ("6:freezer:/\n5:cpuset:/slurm/uid_7/job_4/step_0\n0::/\n", false),
            ("0::/user.slice/session-2.scope\n", false),
            ("", false),
        ] {
            assert_eq!(signals_children_alone(cgroups), expected, "{cgroups}");
        }
    }

    #[test]
    fn a_rank_is_a_place_among_the_nodes() {
        let of = |env: &[&str], script: bool| {
            let mut config = spec(CONFIG);
            let env = env.iter().map(|v| (*v).to_owned()).collect();
            config.process_mut().as_mut().unwrap().set_env(Some(env));
            let id = TaskId::parse(if script { "n2.42.4294967291.0" } else { "n2.42.0.0" });
            add_variables(
                &mut config,
                &TaskContext { node: Some("n2".into()), pid: 77, id, ..TaskContext::default() },
                &mut Vec::new(),
            );
            variable(&config, "SLURM_PROCID").map(str::to_owned)
        };
        let ranks = |env: &[&str]| of(env, false);
        let list = "SLURM_STEP_NODELIST=n[1-3]";
        // What a batch script on the first node has left to its step, and a task's own.
        let inherited = [list, "SLURM_STEP_TASKS_PER_NODE=1(x3)", "SLURM_PROCID=0"];
        assert_eq!(ranks(&[&inherited[..], &["SLURM_TASK_PID=70"]].concat()).as_deref(), Some("1"));
        assert_eq!(ranks(&[&inherited[..], &["SLURM_TASK_PID=77"]].concat()).as_deref(), Some("0"));
        let script = ["SLURM_TASK_PID=70", "SLURM_PROCID=1", "SLURM_JOB_NODELIST=n[2-3]"];
        assert_eq!(
            of(&[&script[..], &[list, "SLURM_STEP_TASKS_PER_NODE=1(x3)"]].concat(), true).as_deref(),
            Some("0")
        );
        assert_eq!(ranks(&[list, "SLURM_STEP_TASKS_PER_NODE=1(x3)"]).as_deref(), Some("1"));
        assert_eq!(ranks(&[list, "SLURM_STEP_TASKS_PER_NODE=1(x3)", "SLURM_PROCID=7"]).as_deref(), Some("7"));
        assert_eq!(ranks(&[list, "SLURM_STEP_TASKS_PER_NODE=1(x2),2"]), None, "several tasks on a node");
        assert_eq!(ranks(&["SLURM_JOB_NODELIST=n[2-3]"]).as_deref(), Some("0"), "a batch script");
        assert_eq!(ranks(&["SLURM_JOB_NODELIST=n[1-3]"]), None);
        assert_eq!(ranks(&[]), None);
    }

    #[test]
    fn the_server_of_pmix_is_that_of_the_step() {
        let server = |id: &str, dir: &str, own: Option<&str>| {
            let task = TaskContext::of_job(id, format!("PMIX_SERVER_TMPDIR={dir}"));
            let task = TaskContext { pmix_dir: own.map(PathBuf::from), ..task };
            directories(&task, |_| true).pmix.map(|dir| dir.display().to_string())
        };
        let is = |dir: &str| Some(dir.to_owned());
        assert_eq!(server("n.1.0.0", "/spool/pmix.1.0/", None), is("/spool/pmix.1.0"));
        assert_eq!(server("n.1.0.0", "/spool/pmix.1.0", Some("/own/x")), is("/spool/pmix.1.0"));
        for other in ["/spool/pmix.7.0", "/home/1.2.3", "/home/1", "/spool/pmix.1.0/x", "spool/pmix.1.0", ""]
        {
            assert_eq!(server("n.1.0.0", other, None), None, "{other}");
            assert_eq!(server("n.1.0.0", other, Some("/own/x")), is("/own/x"), "{other}");
        }
        let task = TaskContext::of_job("n.1.0.0", "PMIX_SERVER_TMPDIR=/spool/pmix.1.0".into());
        assert_eq!(directories(&task, |_| false), Directories::default());
    }
}
