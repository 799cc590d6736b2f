//! A task that a launcher has started: one of the ranks of a run on this node.

use crate::job_environment::JobEnvironment;
use oci_spec::runtime::LinuxNamespaceType;
use rt_spec::state::Step;
use std::path::{Component, Path, PathBuf};

/// Which task it is: its run's step, and its number on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskId {
    /// The id without its task: the name of the container that the step's tasks on this node share.
    pub container: String,
    /// The job and the step.
    pub step: Step,
    /// The task's number on this node; `None` is every task (`-1`).
    pub task: Option<u32>,
}

/// What the runtime knows of a task beside its config.
#[derive(Debug, Clone, Default)]
pub struct TaskContext {
    /// Its id; `None` where the id has another form.
    pub id: Option<TaskId>,
    /// What the job has said, and no image.
    pub job: JobEnvironment,
    /// Directories of the host that the launcher or the site has said by it.
    pub directories: Directories,
    /// The container is shared by the tasks of the step.
    pub share: bool,
    /// Its standard input is a terminal.
    pub has_terminal: bool,
    /// The PMIX_SERVER_TMPDIR of whoever calls the runtime.
    pub pmix_dir: Option<PathBuf>,
    /// The node's name.
    pub node: Option<String>,
    /// The caller's uid.
    pub uid: u32,
    /// The runtime's own pid, which is the task's.
    pub pid: u32,
    /// The file mode creation mask that the job has.
    pub umask: u32,
    /// The job's working directory (`--chdir`), entered where the container has it.
    pub cwd: Option<JobDirectory>,
    /// The program's path is what the launcher has found on the host.
    pub looked_up: bool,
    /// This process's environment is the task's own, and what it asks of the container counts.
    pub has_own_environment: bool,
    /// Namespaces that the step has asked for, of those that its tasks share with the host otherwise.
    pub unshare: Vec<LinuxNamespaceType>,
    /// Where the launcher makes directories for PMIx' applications.
    pub tmpfs: Option<PathBuf>,
    /// What is written to the root takes the job's memory, and nothing bounds it.
    pub unbound: bool,
}

/// Directories of the host that a launcher has made for a task, which the container shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Directories {
    /// That of the PMIx server (PMIX_SERVER_TMPDIR). Its clients map files of several directories beside it, too.
    pub pmix: Option<PathBuf>,
    /// That of the step's application, where the launcher makes it elsewhere.
    pub pmix_application: Option<PathBuf>,
    /// TMPDIR, where that is the job's own.
    pub tmpdir: Option<PathBuf>,
}

/// A directory of the host that a task is to start in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobDirectory {
    /// Its path, absolute.
    pub path: PathBuf,
    /// Device and inode, where the container's must be the same directory.
    pub identity: Option<(u64, u64)>,
    /// Somebody has named it, so it comes before the config's.
    pub explicit: bool,
    /// Without it the task does not start.
    pub required: bool,
}

/// True for an absolute path of names alone.
pub(crate) fn is_plain(dir: &Path) -> bool {
    dir.is_absolute() && dir.components().skip(1).all(|part| matches!(part, Component::Normal(_)))
}

#[cfg(test)]
impl TaskContext {
    /// A task by its id, in a job with one variable.
    pub(crate) fn of_job(id: &str, variable: String) -> TaskContext {
        TaskContext {
            id: TaskId::parse(id),
            job: JobEnvironment::of_variables(vec![variable]),
            ..TaskContext::default()
        }
    }
}
