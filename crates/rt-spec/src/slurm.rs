//! A task of a Slurm step: its id as oci.conf names it, and what a config must give up so that the tasks of
//! a step on a node can share one container (oci.conf(5); docs/slurm.md).

use super::annotations::{self, ANNOTATION_OPTIONAL, ANNOTATION_USER, annotate};
use super::job_environment::JobEnvironment;
use super::rootless::UserMap;
use super::{Spec, hostlist, mounts, variable};
use oci_spec::runtime::{LinuxNamespace, LinuxNamespaceType, Mount, MountBuilder};
use serde::{Deserialize, Serialize};
use std::path::{Component, Path, PathBuf};

/// A job's step, as `%j.%s` of oci.conf names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The job's number.
    pub job: String,
    /// The step's number, or `batch`, `interactive`, `extern`.
    pub step: String,
    /// What users call the job where it is one of an array: `281_1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<String>,
}

impl Step {
    /// The same with what the job's environment says of its array.
    pub fn of_array(&self, job: &JobEnvironment) -> Step {
        let number = |name| job.get(name)?.parse::<u32>().ok();
        let name = |job: u32| Some(format!("{job}_{}", number("SLURM_ARRAY_TASK_ID")?));
        // A job that is submitted by a task of an array inherits the variables of that array, which is not its own.
        let own = job.get("SLURM_JOB_ID") == Some(self.job.as_str());
        let array = number("SLURM_ARRAY_JOB_ID").filter(|_| own).and_then(name);
        Step { array, ..self.clone() }
    }
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.array.as_ref().unwrap_or(&self.job), self.step)
    }
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

/// What an id of the form `NAME.JOB.STEP.TASK` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskId {
    /// The id without its task: the name of the container that the step's tasks on this node share.
    pub container: String,
    /// The job and the step.
    pub step: Step,
    /// The task's number on this node; `None` is every task (`-1`).
    pub task: Option<u32>,
}

/// The numbers of the steps that have names (slurm.h, SLURM_BATCH_SCRIPT and the like).
const NAMED: [(u32, &str); 3] =
    [(0xffff_fffb, "batch"), (0xffff_fffa, "interactive"), (0xffff_fffc, "extern")];

impl TaskId {
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
        let number: u32 = step.parse().ok()?;
        let _: u32 = job.parse().ok()?;
        let name = NAMED.iter().find(|(known, _)| *known == number).map(|(_, name)| *name);
        Some(TaskId {
            container: container.to_owned(),
            step: Step { job: job.to_owned(), step: name.unwrap_or(step).to_owned(), array: None },
            task,
        })
    }
}

/// What the runtime knows of a task beside its config.
#[derive(Debug, Clone, Default)]
pub struct Task {
    /// Its id; `None` where the id has another form.
    pub id: Option<TaskId>,
    /// What the job has said, and no image.
    pub job: JobEnvironment,
    /// Directories of the host that Slurm or the site has said by it.
    pub directories: Directories,
    /// The container is shared by the tasks of the step.
    pub share: bool,
    /// Its standard input is a terminal.
    pub has_terminal: bool,
    /// The caller's PMIX_SERVER_TMPDIR: Slurm 22.05 puts it there and not into the config.
    pub pmix_dir: Option<PathBuf>,
    /// The caller's SLURMD_NODENAME.
    pub node: Option<String>,
    /// The caller's uid.
    pub uid: u32,
    /// The runtime's own pid, which is the task's.
    pub pid: u32,
    /// The file mode creation mask that the job has.
    pub umask: u32,
    /// The job's working directory (`--chdir`), entered where the container has it.
    pub cwd: Option<JobDirectory>,
    /// The program's path is what Slurm has found on the host.
    pub looked_up: bool,
    /// What the step's environment asks of the container counts: it is the task's own.
    pub asked: bool,
    /// Namespaces that the step has asked for, of those that its tasks share with the host otherwise.
    pub unshare: Vec<LinuxNamespaceType>,
    /// Where Slurm makes directories for PMIx' applications (TmpFS).
    pub tmpfs: Option<PathBuf>,
}

impl Task {
    /// The memory that Slurm gives the job on this node, in bytes; `None` where it does not say, or gives all.
    pub fn memory(&self) -> Option<u64> {
        let number = |name: &str| self.job.get(name)?.parse::<u64>().ok().filter(|number| *number > 0);
        let of_cpus = || number("SLURM_MEM_PER_CPU")?.checked_mul(number("SLURM_CPUS_ON_NODE")?);
        number("SLURM_MEM_PER_NODE").or_else(of_cpus)?.checked_mul(1 << 20)
    }
}

/// Directories of the host that a launcher has made for a task, which the container shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Directories {
    /// That of the PMIx server (PMIX_SERVER_TMPDIR). Its clients map files of several directories beside it, too.
    pub pmix: Option<PathBuf>,
    /// That of the step's application, which Slurm's PMIx makes elsewhere for a step without `--container`.
    pub pmix_application: Option<PathBuf>,
    /// TMPDIR, where that is the job's own.
    pub tmpdir: Option<PathBuf>,
}

impl Directories {
    /// Those that are said by `task`, as far as `is_trusted` takes them: each is to be a directory of root's or of the
    /// caller's that is there, and whose path has no link.
    pub fn of(task: &Task, is_trusted: impl Fn(&Path) -> bool) -> Directories {
        let trusted = |dir: PathBuf| (is_plain(&dir) && is_trusted(&dir)).then_some(dir);
        Directories {
            pmix: pmix_server(task).and_then(trusted),
            pmix_application: pmix_application(task).and_then(trusted),
            tmpdir: tmpdir(task).and_then(trusted),
        }
    }
}

/// True for an absolute path of names alone.
fn is_plain(dir: &Path) -> bool {
    dir.is_absolute() && dir.components().skip(1).all(|part| matches!(part, Component::Normal(_)))
}

/// A directory of the host that a task is to start in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobDirectory {
    /// Its path, absolute.
    pub path: PathBuf,
    /// Device and inode, where the container's must be the same directory.
    pub identity: Option<(u64, u64)>,
    /// It was asked for, so it comes before the config's.
    pub asked: bool,
    /// Without it the task does not start.
    pub required: bool,
}

/// Changes `spec` as a task of a step needs it. Each change is a note.
pub fn adapt(spec: &mut Spec, task: &Task, asked: Option<UserMap>) -> Vec<String> {
    let mut notes = Vec::new();
    let pmix = task.directories.pmix.as_deref().and_then(Path::parent).filter(|dir| *dir != Path::new("/"));
    choose_user(spec, asked, pmix.is_some(), &mut notes);
    let own_ipc = task.unshare.contains(&LinuxNamespaceType::Ipc);
    if task.share {
        use_hosts_namespaces(spec, &task.unshare, &mut notes);
        if !own_ipc {
            use_hosts_shm(spec, &mut notes);
        }
    }
    make_namespaces(spec, &task.unshare);
    if own_ipc {
        use_own_shm(spec);
    }
    if let Some(process) = spec.process_mut()
        && process.terminal() == Some(true)
        && !task.has_terminal
    {
        // srun --pty gives its terminal to the first task only.
        process.set_terminal(Some(false));
    }
    if let Some(dir) = pmix {
        show(spec, dir, &mut notes);
        // Programs look whether it is a mount.
        if let Some(own) = task.directories.pmix.as_ref().filter(|_| task.asked) {
            show(spec, own, &mut notes);
        }
    }
    if let Some(dir) = &task.directories.pmix_application {
        show(spec, dir, &mut notes);
    }
    if let Some(dir) = task.directories.tmpdir.as_deref().filter(|dir| !is_shown(spec, dir)) {
        let optional = annotations::optional_mounts(spec).map(|list| format!("{list},")).unwrap_or_default();
        annotate(spec, ANNOTATION_OPTIONAL, &format!("{optional}{}", dir.display()));
        show(spec, dir, &mut notes);
    }
    if !has_own_environment(spec, task)
        && let Some(variables) = rank(spec, task)
        && let Some(process) = spec.process_mut()
    {
        let mut env = process.env().clone().unwrap_or_default();
        env.extend(variables);
        process.set_env(Some(env));
        notes.push("SLURM_PROCID and the like: set from the step's list of nodes".to_owned());
    }
    if task.asked {
        tell_pytorch(spec);
        tell_pmix(spec);
    }
    notes
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
    let size = variable(spec, "SLURM_STEP_NUM_TASKS").or_else(|| variable(spec, "SLURM_NTASKS"));
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

/// The directory of the step's application that Slurm's PMIx makes in TmpFS.
fn pmix_application(task: &Task) -> Option<PathBuf> {
    let Step { job, step, .. } = &task.id.as_ref()?.step;
    Some(task.tmpfs.as_ref()?.join(format!("spmix_appdir_{}_{job}.{step}", task.uid)))
}

/// True where the config has the task's own environment. Slurm 22.05 puts the job's into it, and with that the rank of
/// the batch script that has started the step.
fn has_own_environment(spec: &Spec, task: &Task) -> bool {
    match variable(spec, "SLURM_TASK_PID") {
        Some(pid) => pid.parse() == Ok(task.pid),
        None => variable(spec, "SLURM_PROCID").is_some(),
    }
}

/// The variables of a task's rank, which Slurm 22.05 does not put into config.json. That version has one task per
/// node in a container, so a rank is a place in the step's list of nodes; a batch script is on the first one.
fn rank(spec: &Spec, task: &Task) -> Option<[String; 6]> {
    let node = task.node.as_deref()?;
    let is_script = task.id.as_ref().is_some_and(|id| id.step.step == "batch");
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

/// The job's TMPDIR, where that is a directory of its own: the job's number is in the path.
fn tmpdir(task: &Task) -> Option<PathBuf> {
    let dir = task.job.get("TMPDIR")?;
    let job = task.id.as_ref().map(|id| id.step.job.as_str());
    let names_job = dir.split(|c: char| !c.is_ascii_digit()).any(|number| Some(number) == job);
    // A list of directories is separated by commas.
    (names_job && !dir.contains(',')).then(|| PathBuf::from(dir))
}

/// True where a bind shows `dir` already, as the user has asked for it.
fn is_shown(spec: &Spec, dir: &Path) -> bool {
    let shows = |mount: &Mount| dir.starts_with(mount.destination()) && is_bind(mount);
    spec.mounts().iter().flatten().any(shows)
}

fn is_bind(mount: &Mount) -> bool {
    let words = mount.options().iter().flatten();
    mount.typ().as_deref() == Some("bind") || words.into_iter().any(|word| word == "bind" || word == "rbind")
}

/// The descriptor of the PMI2 connection, which the task must inherit at its number.
pub fn pmi_fd(job: &JobEnvironment) -> Option<i32> {
    job.get("PMI_FD")?.parse().ok().filter(|fd| *fd > 2)
}

/// The directory of the PMIx server of the step. Slurm names it `pmix.JOB.STEP`, and another name is that of another job
/// in the environment of a job that it has started. Where the job says none, slurmstepd's own variable counts.
fn pmix_server(task: &Task) -> Option<PathBuf> {
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

/// Shows, in a container whose program has the caller's environment, the directories of the PMIx server that this
/// environment names, where `is_trusted` takes that: without them a program that finds the variables cannot reach its
/// server.
pub fn show_callers_pmix(spec: &mut Spec, dir: Option<PathBuf>, is_trusted: impl Fn(&Path) -> bool) {
    let Some(dir) = dir.filter(|dir| is_plain(dir) && is_trusted(dir)) else { return };
    if let Some(parent) = dir.parent().filter(|parent| *parent != Path::new("/")) {
        show(spec, parent, &mut Vec::new());
    }
}

/// A config that says nothing about ids runs as the caller; so does any under PMIx, whose server compares ids
/// and hangs where they differ. `--user-map` and the annotation are asked before.
fn choose_user(spec: &mut Spec, asked: Option<UserMap>, pmix: bool, notes: &mut Vec<String>) {
    if asked.is_some() || annotations::has_user_map(spec) {
        return;
    }
    let mapped = |spec: &Spec| {
        let linux = spec.linux().as_ref()?;
        linux.uid_mappings().as_ref().or(linux.gid_mappings().as_ref()).filter(|m| !m.is_empty())?;
        Some(())
    };
    let user = spec.process().as_ref().map(|p| p.user());
    let silent = mapped(spec).is_none() && user.is_none_or(|u| u.uid() == 0 && u.gid() == 0);
    if !silent && !pmix {
        return;
    }
    if !silent {
        notes.push("PMIx needs the uid inside to be the caller's: the id mappings are not used".to_owned());
    }
    annotate(spec, ANNOTATION_USER, UserMap::Caller.as_str());
}

/// A shared container has no first process that all others end with, and its tasks are known to other nodes by
/// the host's name, pids and addresses.
fn use_hosts_namespaces(spec: &mut Spec, unshare: &[LinuxNamespaceType], notes: &mut Vec<String>) {
    const HOSTS: [LinuxNamespaceType; 3] =
        [LinuxNamespaceType::Pid, LinuxNamespaceType::Network, LinuxNamespaceType::Uts];
    spec.set_hostname(None);
    spec.set_domainname(None);
    let Some(linux) = spec.linux_mut() else { return };
    let mut namespaces = linux.namespaces().clone().unwrap_or_default();
    namespaces.retain(|namespace| {
        let hosts = HOSTS.contains(&namespace.typ())
            && namespace.path().is_none()
            && !unshare.contains(&namespace.typ());
        if hosts {
            notes.push(format!("no {} namespace: the tasks of a step share the host's", namespace.typ()));
        }
        !hosts
    });
    linux.set_namespaces(Some(namespaces));
}

/// Namespaces of the container's own, whatever the config says of them.
fn make_namespaces(spec: &mut Spec, unshare: &[LinuxNamespaceType]) {
    let Some(linux) = spec.linux_mut().as_mut().filter(|_| !unshare.is_empty()) else { return };
    let mut namespaces = linux.namespaces().clone().unwrap_or_default();
    namespaces.retain(|namespace| !unshare.contains(&namespace.typ()));
    namespaces.extend(unshare.iter().map(|kind| {
        let mut namespace = LinuxNamespace::default();
        namespace.set_typ(*kind);
        namespace
    }));
    linux.set_namespaces(Some(namespaces));
}

/// Shared memory of the size that the host has, where MPI looks for it.
fn use_hosts_shm(spec: &mut Spec, notes: &mut Vec<String>) {
    let at = Path::new("/dev/shm");
    let Some(mounts) = spec.mounts_mut() else { return };
    for mount in mounts.iter_mut().filter(|m| m.destination() == at && m.typ().as_deref() == Some("tmpfs")) {
        *mount = bind(at, &["rbind", "nosuid", "nodev"]);
        notes.push("mount /dev/shm: the host's is bound".to_owned());
    }
}

/// Shared memory and message queues of the container's own. Where the container has the host's `/dev`, and that has no such
/// directory, nothing can be mounted there, and there is nothing of the host's to hide.
fn use_own_shm(spec: &mut Spec) {
    let mounts = [
        ("/dev/shm", "tmpfs", &["nosuid", "nodev", "mode=1777"][..]),
        ("/dev/mqueue", "mqueue", &["nosuid", "nodev", "noexec"]),
    ];
    let mut all = spec.mounts().clone().unwrap_or_default();
    let hosts_dev = all.iter().any(|mount| mount.destination() == Path::new("/dev") && is_bind(mount));
    for (at, kind, options) in mounts {
        // What cannot be looked at is there: the mount on it says why it cannot.
        if hosts_dev && matches!(rt_sys::look::is_dir(at), Ok(false)) {
            continue;
        }
        all.retain(|mount| mount.destination() != Path::new(at));
        let options = options.iter().map(|o| (*o).to_owned()).collect::<Vec<_>>();
        let mount = MountBuilder::default().destination(at).source(kind).typ(kind).options(options);
        all.extend(mount.build().ok());
    }
    spec.set_mounts(Some(all));
}

/// Makes a directory of the host visible at its own path, unless the config does.
fn show(spec: &mut Spec, dir: &Path, notes: &mut Vec<String>) {
    let mut all = spec.mounts().clone().unwrap_or_default();
    if all.iter().any(|m| m.destination() == dir) {
        return;
    }
    notes.push(format!("mount {}: the host's is bound for the task", dir.display()));
    all.push(bind(dir, &["rbind", "nosuid", "nodev", mounts::WITHOUT_LINKS]));
    spec.set_mounts(Some(all));
}

fn bind(path: &Path, options: &[&str]) -> Mount {
    let options = options.iter().map(|o| (*o).to_owned()).collect::<Vec<_>>();
    let mount = MountBuilder::default().destination(path).source(path).typ("bind").options(options);
    // The builder fails only where a required field is missing.
    mount.build().unwrap_or_default()
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
            TaskId::parse("n.282.0.0").unwrap().step.of_array(&JobEnvironment::of_variables(env))
        };
        let step = of("SLURM_JOB_ID=282 SLURM_ARRAY_JOB_ID=281 SLURM_ARRAY_TASK_ID=1");
        assert_eq!(step.to_string(), "281_1.0");
        for name in ["282", "281_1", "281_1.0"] {
            assert!(TaskName::parse(name).unwrap().means(&step), "{name}");
        }
        assert!(!TaskName::parse("281").unwrap().means(&step));
        // One that a job of an array has submitted.
        assert_eq!(of("SLURM_JOB_ID=280 SLURM_ARRAY_JOB_ID=281 SLURM_ARRAY_TASK_ID=1").array, None);
    }

    fn spec(json: &str) -> Spec {
        serde_json::from_str(json).unwrap()
    }

    const CONFIG: &str = r#"{"ociVersion":"1.0.0","hostname":"runc",
        "process":{"cwd":"/","user":{"uid":0,"gid":0},"terminal":true,
        "env":[]},
        "mounts":[{"destination":"/dev/shm","type":"tmpfs","source":"shm"}],
        "linux":{"namespaces":[{"type":"pid"},{"type":"network"},{"type":"mount"},{"type":"pid","path":"/p"}]}}"#;

    #[test]
    fn tasks_share_what_mpi_needs() {
        let mut config = spec(CONFIG);
        let directories = Directories { pmix: Some("/spool/pmix.1.0".into()), ..Directories::default() };
        let task = Task { share: true, id: TaskId::parse("n.1.0.0"), directories, ..Task::default() };
        let notes = adapt(&mut config, &task, None);
        assert_eq!(notes.len(), 4, "{notes:?}");
        let namespaces = config.linux().as_ref().unwrap().namespaces().as_ref().unwrap();
        let kinds: Vec<String> = namespaces.iter().map(|n| n.typ().to_string()).collect();
        assert_eq!(kinds, ["mnt", "pid"], "one by path stays");
        let mounts: Vec<_> = config.mounts().iter().flatten().map(|m| m.source().clone().unwrap()).collect();
        assert_eq!(mounts, [Path::new("/dev/shm"), Path::new("/spool")]);
        assert_eq!(config.process().as_ref().unwrap().terminal(), Some(false));
        assert_eq!(config.annotations().as_ref().unwrap()[ANNOTATION_USER], "caller");
        let job = JobEnvironment::of_variables(vec!["PMI_FD=4".into(), "PMI_FD=17".into()]);
        assert_eq!(pmi_fd(&job), Some(17));
        assert_eq!(config.hostname(), &None);
    }

    #[test]
    fn a_rank_is_a_place_among_the_nodes() {
        let of = |env: &[&str], script: bool| {
            let mut config = spec(CONFIG);
            let env = env.iter().map(|v| (*v).to_owned()).collect();
            config.process_mut().as_mut().unwrap().set_env(Some(env));
            let id = TaskId::parse(if script { "n2.42.4294967291.0" } else { "n2.42.0.0" });
            adapt(&mut config, &Task { node: Some("n2".into()), pid: 77, id, ..Task::default() }, None);
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

    fn of_job(id: &str, variable: String) -> Task {
        Task { id: TaskId::parse(id), job: JobEnvironment::of_variables(vec![variable]), ..Task::default() }
    }

    #[test]
    fn the_server_of_pmix_is_that_of_the_step() {
        let server = |id: &str, dir: &str, own: Option<&str>| {
            let task = of_job(id, format!("PMIX_SERVER_TMPDIR={dir}"));
            let task = Task { pmix_dir: own.map(PathBuf::from), ..task };
            Directories::of(&task, |_| true).pmix.map(|dir| dir.display().to_string())
        };
        let is = |dir: &str| Some(dir.to_owned());
        assert_eq!(server("n.1.0.0", "/spool/pmix.1.0/", None), is("/spool/pmix.1.0"));
        assert_eq!(server("n.1.0.0", "/spool/pmix.1.0", Some("/own/x")), is("/spool/pmix.1.0"));
        for other in ["/spool/pmix.7.0", "/home/1.2.3", "/home/1", "/spool/pmix.1.0/x", "spool/pmix.1.0", ""]
        {
            assert_eq!(server("n.1.0.0", other, None), None, "{other}");
            assert_eq!(server("n.1.0.0", other, Some("/own/x")), is("/own/x"), "{other}");
        }
        let task = of_job("n.1.0.0", "PMIX_SERVER_TMPDIR=/spool/pmix.1.0".into());
        assert_eq!(Directories::of(&task, |_| false), Directories::default());
    }

    #[test]
    fn only_a_jobs_own_tmpdir_is_shown() {
        let mounts = |tmpdir: &str, more: &str| {
            let mut config = spec(CONFIG);
            let mut all = config.mounts().clone().unwrap();
            if !more.is_empty() {
                all.push(bind(Path::new(more), &["rbind"]));
            }
            config.set_mounts(Some(all));
            let task = of_job("n.42.0.0", format!("TMPDIR={tmpdir}"));
            let task = Task { directories: Directories::of(&task, |_| true), ..task };
            adapt(&mut config, &task, None);
            let shown = config.mounts().iter().flatten().any(|m| m.destination() == Path::new(tmpdir));
            assert_eq!(annotations::optional_mounts(&config).is_some(), shown, "{tmpdir}");
            shown
        };
        for dir in ["/scratch/42", "/tmp/slurm.42/x", "/local/job42.n1"] {
            assert!(mounts(dir, ""), "{dir}");
        }
        for dir in ["/", "/home/jo", "/scratch/421", "42", "/tmp/../42", "/a/42,b"] {
            assert!(!mounts(dir, ""), "{dir}");
        }
        assert!(!mounts("/scratch/42", "/scratch"), "the user's own");
        assert!(mounts("/scratch/42", "/other"));
    }

    #[test]
    fn what_is_said_about_ids_is_followed() {
        let mapped = r#"{"ociVersion":"1.0.0","process":{"cwd":"/","user":{"uid":0,"gid":0}},
            "linux":{"uidMappings":[{"containerID":0,"hostID":7,"size":1}]}}"#;
        let chosen = |json: &str, task: &Task, asked| {
            let mut config = spec(json);
            adapt(&mut config, task, asked);
            config.annotations().as_ref().and_then(|a| a.get(ANNOTATION_USER).cloned())
        };
        let plain = Task::default();
        let directories = Directories { pmix: Some("/spool/pmix.1.0".into()), ..Directories::default() };
        let pmix = Task { directories, ..Task::default() };
        assert_eq!(chosen(mapped, &plain, None), None);
        assert_eq!(chosen(mapped, &pmix, None).as_deref(), Some("caller"));
        assert_eq!(chosen(CONFIG, &plain, Some(UserMap::Root)), None);
    }
}
