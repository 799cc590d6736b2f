//! What a config must give up, and what is shown, so that the tasks of a step on a node can share one container and reach each
//! other.

use crate::slurm;
use crate::task::{TaskContext, is_plain};
use oci_spec::runtime::{LinuxNamespace, LinuxNamespaceType, Mount, MountBuilder};
use rt_spec::annotations::{self, ANNOTATION_OPTIONAL, ANNOTATION_USER, annotate};
use rt_spec::rootless::UserMap;
use rt_spec::{Spec, mounts};
use std::path::{Path, PathBuf};

/// Changes `spec` as a task of a step needs it. Each change is a note.
///
/// `is_missing` says of a directory of the host that it is not there.
pub fn adapt(
    spec: &mut Spec,
    task: &TaskContext,
    asked: Option<UserMap>,
    is_missing: impl Fn(&Path) -> bool,
) -> Vec<String> {
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
        use_own_shm(spec, is_missing);
    }
    if let Some(process) = spec.process_mut()
        && process.terminal() == Some(true)
        && !task.has_terminal
    {
        // A launcher gives its terminal to the first task only (srun --pty).
        process.set_terminal(Some(false));
    }
    if task.unbound
        && let Some(process) = spec.process_mut()
        && process.oom_score_adj().is_none()
    {
        // Where the job's memory is full, the kernel ends who has most of it: slurmstepd, without which srun waits for ever.
        process.set_oom_score_adj(Some(FIRST_TO_END));
    }
    if let Some(dir) = pmix {
        show(spec, dir, &mut notes);
        // Programs look whether it is a mount.
        if let Some(own) = task.directories.pmix.as_ref().filter(|_| task.has_own_environment) {
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
    slurm::add_variables(spec, task, &mut notes);
    notes
}

/// Half of the job's memory beyond what a program has itself (proc_pid_oom_score_adj(5)).
const FIRST_TO_END: i32 = 500;

/// True where a bind shows `dir` already, as the user has asked for it.
fn is_shown(spec: &Spec, dir: &Path) -> bool {
    let shows = |mount: &Mount| dir.starts_with(mount.destination()) && mounts::is_bind(mount);
    spec.mounts().iter().flatten().any(shows)
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
fn use_own_shm(spec: &mut Spec, is_missing: impl Fn(&Path) -> bool) {
    let own = [
        ("/dev/shm", "tmpfs", &["nosuid", "nodev", "mode=1777"][..]),
        ("/dev/mqueue", "mqueue", &["nosuid", "nodev", "noexec"]),
    ];
    let mut all = spec.mounts().clone().unwrap_or_default();
    let hosts_dev =
        all.iter().any(|mount| mount.destination() == Path::new("/dev") && mounts::is_bind(mount));
    for (at, kind, options) in own {
        if hosts_dev && is_missing(Path::new(at)) {
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
    use crate::job_environment::JobEnvironment;
    use crate::slurm::{directories, pmi_fd};
    use crate::task::{Directories, TaskId};

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
        let task =
            TaskContext { share: true, id: TaskId::parse("n.1.0.0"), directories, ..TaskContext::default() };
        let notes = adapt(&mut config, &task, None, |_| false);
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
    fn only_a_jobs_own_tmpdir_is_shown() {
        let mounts = |tmpdir: &str, more: &str| {
            let mut config = spec(CONFIG);
            let mut all = config.mounts().clone().unwrap();
            if !more.is_empty() {
                all.push(bind(Path::new(more), &["rbind"]));
            }
            config.set_mounts(Some(all));
            let task = TaskContext::of_job("n.42.0.0", format!("TMPDIR={tmpdir}"));
            let task = TaskContext { directories: directories(&task, |_| true), ..task };
            adapt(&mut config, &task, None, |_| false);
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
        let chosen = |json: &str, task: &TaskContext, asked| {
            let mut config = spec(json);
            adapt(&mut config, task, asked, |_| false);
            config.annotations().as_ref().and_then(|a| a.get(ANNOTATION_USER).cloned())
        };
        let plain = TaskContext::default();
        let directories = Directories { pmix: Some("/spool/pmix.1.0".into()), ..Directories::default() };
        let pmix = TaskContext { directories, ..TaskContext::default() };
        assert_eq!(chosen(mapped, &plain, None), None);
        assert_eq!(chosen(mapped, &pmix, None).as_deref(), Some("caller"));
        assert_eq!(chosen(CONFIG, &plain, Some(UserMap::Root)), None);
    }
}
