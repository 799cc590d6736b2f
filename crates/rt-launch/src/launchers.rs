//! The launchers that `rt run` knows a rank of: what each says to a rank, and what names the run that the rank is of.
//!
//! Whoever calls `rt run` says it, by `rt`'s own environment. A row follows the launcher's documentation or source:
//! Open MPI "Environment variables set for MPI applications", and pmix(5) of prterun; hydra_pmi_proxy of MPICH, whose
//! descendants Intel MPI and MVAPICH2 have; mpirun_rsh of MVAPICH2; mpiexec(1) and aprun(1) of Cray PALS; flux-environment(7);
//! jsrun(1); torchrun's agent; srun(1). A launcher in another one's run leaves that one's variables to its own ranks.

use crate::request::STEP_TASKS;
use crate::slurm;
use rt_spec::state::Step;
use rt_sys::error::Result;
use rt_sys::{caller, fd, ns, process};
use std::fmt::Write;

/// What one launcher says to its ranks.
#[derive(Debug)]
pub struct Launcher {
    /// What a run of it is called, before what names it.
    pub name: &'static str,
    /// The variable with a rank's number.
    pub rank: &'static str,
    /// The variables with the number of ranks on this node, or of all: the first that is there counts.
    pub count: &'static [&'static str],
    /// The variables that name the run. There is no rank without the first one.
    pub run: &'static [&'static str],
    /// Its variables name the run seldom. The process at the other end of PMI_FD does, or the parent where nothing else does.
    pub by_process: bool,
}

/// All of them, in the order in which they give a run its name.
pub const LAUNCHERS: [Launcher; 9] = [
    // Job families of Open MPI 4 are hashes of 16 bits, so the server's port tells two runs apart.
    of(
        "mpirun",
        "OMPI_COMM_WORLD_RANK",
        &["OMPI_COMM_WORLD_LOCAL_SIZE"],
        &["PMIX_NAMESPACE", "PMIX_SERVER_URI2"],
    ),
    of("pals", "PALS_RANKID", &["PALS_LOCAL_SIZE"], &["PALS_APID"]),
    of("flux", "FLUX_TASK_RANK", &["FLUX_JOB_SIZE"], &["FLUX_JOB_ID", "FLUX_URI"]),
    of("jsrun", "JSM_NAMESPACE_RANK", &["JSM_NAMESPACE_LOCAL_SIZE"], &["LSB_JOBID", "PMIX_NAMESPACE"]),
    // The id is "none" unless somebody gives one.
    of("torchrun", "RANK", &["LOCAL_WORLD_SIZE"], &["TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"]),
    SRUN,
    of("pmix", "PMIX_RANK", &[], &["PMIX_NAMESPACE", "PMIX_SERVER_URI2"]),
    // mpirun_rsh names the socket of mpispawn. Under Hydra the next row counts.
    of("mvapich2", "MV2_COMM_WORLD_RANK", &["MV2_COMM_WORLD_LOCAL_SIZE"], &["PMI_PORT"]),
    Launcher {
        by_process: true,
        ..of("mpiexec", "PMI_RANK", &["MPI_LOCALNRANKS", "PMI_SIZE"], &["PMI_PORT"])
    },
];

/// A step's tasks. A batch script has a rank, and no step in its variables.
const SRUN: Launcher = of("srun", "SLURM_LOCALID", &[STEP_TASKS], &["SLURM_STEP_ID", "SLURM_JOB_ID"]);

const fn of(
    name: &'static str,
    rank: &'static str,
    count: &'static [&'static str],
    run: &'static [&'static str],
) -> Launcher {
    Launcher { name, rank, count, run, by_process: false }
}

/// Beginnings of the names of variables by which launchers say what a task has of the node. Our hooks are told them.
pub const HOOK_PREFIXES: [&str; 1] = ["SLURM_"];

/// A rank, and the run that it is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rank {
    /// The run's name for people, of characters that an id may have.
    pub run: String,
    /// All that the launchers say of the run: that of two ranks is the same where they are of one run.
    pub key: String,
    /// The rank's number; of a step of Slurm that on this node.
    pub number: u32,
    /// The step, where the run is one of Slurm's.
    pub step: Option<Step>,
    /// How many ranks there are on this node, or in all, as far as the launcher says.
    pub ranks: Option<u32>,
    /// The pid of the process that has started this one for the launcher; `None` where none is known, or where the end of an orphan
    /// would be taken for that of a rank.
    pub launcher: Option<i32>,
}

/// The rank that this process is; `None` where no launcher says so, or it has started one alone.
///
/// # Errors
/// The kernel does not say which process has started this one.
pub fn rank() -> Result<Option<Rank>> {
    let variable = caller::said;
    let found = LAUNCHERS.iter().filter(|launcher| launcher.has_started(&variable));
    let found: Vec<&Launcher> = found.collect();
    if found.is_empty() || are_alone(&found, &variable) {
        return Ok(None);
    }
    let process = if found.iter().any(|launcher| launcher.by_process) {
        process(found.len() == 1 && variable("PMI_PORT").is_none())?
    } else {
        None
    };
    let launcher = match process {
        Some(process) if process.counts_orphans()? => None,
        Some(process) => Some(process.pid),
        None => parent(),
    };
    Ok(of_variables(&found, &variable, process).map(|rank| Rank { launcher, ..rank }))
}

/// The parent, but not the first process of the PID namespace, which everybody's parent is when his own has ended.
fn parent() -> Option<i32> {
    Some(std::os::unix::process::parent_id() as i32).filter(|pid| *pid > 1)
}

/// True where all launchers that say how many ranks there are say that there is one.
fn are_alone(found: &[&Launcher], variable: &dyn Fn(&str) -> Option<String>) -> bool {
    let mut counts = found.iter().filter_map(|launcher| launcher.count(variable)).peekable();
    counts.peek().is_some() && counts.all(|count| count == "1")
}

fn of_variables(
    found: &[&Launcher],
    variable: &dyn Fn(&str) -> Option<String>,
    process: Option<Process>,
) -> Option<Rank> {
    let mut key = String::new();
    for launcher in found {
        for name in launcher.run {
            // A value has no zero byte.
            let _ = write!(key, "{name}={}\0", variable(name).unwrap_or_default());
        }
    }
    if let Some(Process { pid, start_time, .. }) = process {
        let _ = write!(key, "{pid} {start_time}\0");
    }
    let first = found.first()?;
    let number = variable(first.rank)?.parse().ok()?;
    let named = first.run.first().and_then(|name| variable(name));
    let named = named.or_else(|| process.map(|process| process.pid.to_string()))?;
    let step =
        (first.name == SRUN.name).then(|| slurm::step(&variable("SLURM_JOB_ID").unwrap_or_default(), &named));
    let run = match &step {
        Some(step) => format!("{}-{}.{}", first.name, step.job, step.step),
        None => format!("{}-{named}", first.name),
    };
    let ranks = first.count(variable).and_then(|count| count.parse().ok());
    Some(Rank { run: plain(&run), key, number, step, ranks, launcher: None })
}

/// `name` with what an id may have, and not longer than leaves room in one.
fn plain(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    name.chars().map(|c| if is_plain(c) { c } else { '_' }).take(100).collect()
}

impl Launcher {
    /// How many ranks it says that there are.
    fn count(&self, variable: &dyn Fn(&str) -> Option<String>) -> Option<String> {
        self.count.iter().find_map(|name| variable(name))
    }

    /// True where it has started the process with these variables as a rank.
    pub(crate) fn has_started(&self, variable: &dyn Fn(&str) -> Option<String>) -> bool {
        let is_number = |text: String| text.parse::<u32>().is_ok();
        variable(self.rank).is_some_and(is_number)
            && (self.by_process || self.run.first().is_some_and(|name| variable(name).is_some()))
    }
}

/// The process that has started the ranks of a node.
#[derive(Debug, Clone, Copy)]
struct Process {
    pid: i32,
    parent: i32,
    start_time: u64,
}

impl Process {
    /// True where the launcher takes the end of any orphan for that of a rank which has failed: as the first process of a container
    /// Hydra's mpiexec, whose child this process then is, is the parent of all orphans. On the machine itself the first process is
    /// init, which has adopted daemons such as slurmstepd, too.
    ///
    /// # Errors
    /// The kernel does not say in which PID namespace this process is.
    fn counts_orphans(self) -> Result<bool> {
        Ok(self.parent == 1 && !ns::is_initial_pid_namespace()?)
    }
}

/// The process at the other end of PMI_FD, or the parent where that `counts`: a script may be between a rank and its launcher.
fn process(counts: bool) -> Result<Option<Process>> {
    let peer = caller::said("PMI_FD").and_then(|fd| fd::peer(fd.parse().ok()?));
    let parent = || counts.then(|| std::os::unix::process::parent_id() as i32);
    let Some(pid) = peer.or_else(parent) else { return Ok(None) };
    // One of root's is not shown where /proc is mounted with hidepid. A parent outside of this PID namespace is 0.
    let (parent, start_time) = process::find(pid)?.map_or((0, 0), |stat| (stat.parent, stat.start_time));
    Ok(Some(Process { pid, parent, start_time }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rank that a process with these variables is, whose launcher has the pid 7.
    fn rank(variables: &str) -> Option<Rank> {
        let variable = |name: &str| {
            let found = variables.split(' ').find_map(|v| v.strip_prefix(name)?.strip_prefix('='));
            found.map(str::to_owned)
        };
        let found: Vec<_> = LAUNCHERS.iter().filter(|launcher| launcher.has_started(&variable)).collect();
        if found.is_empty() || are_alone(&found, &variable) {
            return None;
        }
        let by_process = found.iter().any(|launcher| launcher.by_process);
        of_variables(&found, &variable, by_process.then_some(Process { pid: 7, parent: 6, start_time: 9 }))
    }

    /// What each launcher says to the second of two ranks of a node.
    const RANKS: [(&str, &str); 9] = [
        (
            "mpirun-1759444993",
            "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=1759444993 PMIX_RANK=1 \
             PMIX_SERVER_URI2=1759444992.0;tcp4://127.0.0.1:36809",
        ),
        ("mpirun-prterun-n1-33_1", "OMPI_COMM_WORLD_RANK=1 PMIX_NAMESPACE=prterun-n1-33@1 PMIX_RANK=1"),
        ("mpiexec-7", "PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2"),
        ("pals-5f1c", "PALS_RANKID=1 PALS_LOCAL_RANKID=1 PALS_APID=5f1c PMI_RANK=1 PMI_SIZE=2"),
        ("flux-_2Xk", "FLUX_TASK_RANK=1 FLUX_TASK_LOCAL_ID=1 FLUX_JOB_SIZE=2 FLUX_JOB_ID=ƒ2Xk"),
        ("jsrun-88", "JSM_NAMESPACE_RANK=1 JSM_NAMESPACE_LOCAL_SIZE=2 LSB_JOBID=88 PMIX_NAMESPACE=5"),
        ("mvapich2-n1_4444", "MV2_COMM_WORLD_RANK=1 MV2_COMM_WORLD_LOCAL_SIZE=2 PMI_PORT=n1:4444"),
        (
            "torchrun-none",
            "RANK=1 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 TORCHELASTIC_RUN_ID=none MASTER_PORT=29500",
        ),
        (
            "srun-42.0",
            "SLURM_JOB_ID=42 SLURM_STEP_ID=0 SLURM_LOCALID=1 SLURM_PROCID=9 SLURM_STEP_NUM_TASKS=2",
        ),
    ];

    #[test]
    fn each_launcher_names_run_and_rank() {
        for (run, variables) in RANKS {
            let rank = rank(variables).unwrap();
            assert_eq!((rank.run.as_str(), rank.number), (run, 1), "{variables}");
            assert_eq!(rank.step.is_some(), run.starts_with("srun"), "{variables}");
            let says_none = run.contains("prterun") || run.starts_with("pals");
            assert_eq!(rank.ranks, if says_none { None } else { Some(2) }, "{variables}");
        }
        assert_eq!(rank(RANKS[8].1).unwrap().step.unwrap().to_string(), "42.0");
    }

    #[test]
    fn what_one_launcher_says_is_in_the_key_of_the_run_in_it() {
        let mut keys: Vec<String> = RANKS.iter().map(|(_, variables)| rank(variables).unwrap().key).collect();
        // An mpirun in a step of Slurm, and in another step.
        for step in [0, 1] {
            let srun = format!("SLURM_JOB_ID=42 SLURM_STEP_ID={step} SLURM_LOCALID=0 SLURM_STEP_NUM_TASKS=1");
            let nested = rank(&format!("{} {srun}", RANKS[0].1)).unwrap();
            assert_eq!(nested.run, "mpirun-1759444993");
            keys.push(nested.key);
        }
        let all = keys.len();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), all);
        // A rank differs from the next one by nothing of that.
        let next = RANKS[0].1.replace("RANK=1", "RANK=0");
        assert_eq!(rank(&next).unwrap().key, rank(RANKS[0].1).unwrap().key);
    }

    #[test]
    fn one_alone_and_half_a_rank_are_none() {
        for none in [
            "",
            "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1 PMIX_NAMESPACE=1 PMIX_RANK=0",
            "PMI_RANK=0 PMI_SIZE=1",
            "PMI_RANK=x PMI_SIZE=2",
            "RANK=1 LOCAL_RANK=1",
            "SLURM_JOB_ID=42 SLURM_LOCALID=0 SLURM_PROCID=0 SLURM_NTASKS=8",
            "SLURM_JOB_ID=42 SLURM_STEP_ID=0 SLURM_LOCALID=0 SLURM_STEP_NUM_TASKS=1",
        ] {
            assert_eq!(rank(none), None, "{none}");
        }
    }
}
