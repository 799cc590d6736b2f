//! The system calls by which a process becomes the program of a container: what `run`, `create` and `exec` do last.
//!
//! The kernel dictates their order: most of them take a capability, so the capabilities are dropped late; and a seccomp
//! filter may forbid any of them, so it is loaded last where the kernel allows that.

use super::path_search::find_program;
use super::plan::{ProcessPlan, SeccompPlan, bit_list, devices_filter, shared_filter, terminal_filter};
use super::{FixedIds, Limits, not_executable};
use crate::hooks::{self, Inside};
use oci_spec::runtime::Hook;
use rt_launch::task::JobDirectory;
use rt_sys::error::{Context, Error, Result};
use rt_sys::process::{self, ExecArgs};
use rt_sys::seccomp::Filter;
use rt_sys::{account, bail, caps, fd};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{self, Mode};
use rustix::io::Errno;
use rustix::process::{Gid, Resource, Rlimit, Uid};
use std::ffi::CString;
use std::path::Path;

/// Limits this process to the CPUs in `list` (sched_setaffinity(2)).
pub(super) fn set_affinity(list: &str) -> Result<()> {
    process::set_affinity(&bit_list(list)?).context(|| format!("set the CPU affinity to {list:?}"))
}

/// A program that is ready for execve(2).
#[derive(Debug)]
pub(super) struct Prepared {
    path: CString,
    args: ExecArgs,
    /// The filter is still to be loaded.
    filter: bool,
}

impl Prepared {
    /// Has the program of `plan` get `env`, and be looked for by its PATH.
    pub(super) fn replace_env(&mut self, plan: &ProcessPlan, env: &[String]) -> Result<()> {
        self.path = plan.find(env)?;
        self.args = ExecArgs::new(&plan.args, env)?;
        Ok(())
    }
}

impl ProcessPlan {
    /// What a process of the container has.
    pub(super) fn limits(&self) -> Result<Limits> {
        Ok(Limits {
            caps: self.caps.bounding,
            no_new_privs: self.no_new_privs,
            filters: self.filters()?,
            ids: self.cannot_change_ids().then(|| FixedIds {
                uid: self.uid,
                gid: self.gid,
                groups: self.groups.clone(),
            }),
        })
    }

    /// True where neither a capability nor a file's set-id bits give the program another user or group.
    fn cannot_change_ids(&self) -> bool {
        // What the program has: root by execve(2) all that it may have, and others what is kept.
        let has = if self.uid == 0 { self.caps.bounding } else { self.caps.ambient };
        self.no_new_privs && has & caps::SET_IDS == 0
    }

    /// The filters of a program that is not in its caller's session, in the order in which they are loaded, as a checkpoint has them.
    pub(super) fn filters(&self) -> Result<Vec<Filter>> {
        let devices = self.is_kept_from_devices().then(devices_filter);
        let shared = self.confinement.any().then(|| shared_filter(self.confinement));
        let own = devices.into_iter().chain(shared).collect::<Result<Vec<_>>>()?;
        let config = self.seccomp.as_ref().map(SeccompPlan::kept_filter).transpose()?;
        Ok(own.into_iter().chain(config).collect())
    }

    /// True where the config's filter, if there is one, is loaded by [`ProcessPlan::confine`].
    pub(super) fn is_confined_last(&self) -> bool {
        self.seccomp
            .as_ref()
            .is_none_or(|plan| self.no_new_privs && !plan.filter.notifies && !plan.supervised)
    }

    /// Sets everything but the seccomp filter of a process with no_new_privs, which comes last.
    ///
    /// The process is in all its namespaces and its root. `on_terminal` is true where it stays in its caller's session
    /// and that has a controlling terminal. `listener` is called with a seccomp listener. Nothing after this needs a
    /// capability.
    pub(super) fn prepare(
        &self,
        on_terminal: bool,
        listener: impl Fn(OwnedFd) -> Result<()>,
    ) -> Result<Prepared> {
        // To raise a hard limit takes CAP_SYS_RESOURCE, to set a real-time policy CAP_SYS_NICE, and to drop from the
        // bounding set CAP_SETPCAP. The program may have none of them.
        self.set_limits()?;
        caps::limit_bounding(self.caps.bounding)?;
        self.set_ids()?;
        rustix::process::umask(Mode::from_raw_mode(self.umask));
        // As the user, who may enter what root may not: a directory on a network file system that trusts no root.
        self.enter_cwd()?;
        let env = self.full_env();
        let path = if self.is_restored { CString::default() } else { self.find(&env)? };
        let args = ExecArgs::new(&self.args, &env)?;
        if on_terminal {
            self.load_own(terminal_filter())
                .context(|| "protect the caller's terminal")
                .map_err(|e| e.hint("with -t the program gets a terminal of its own"))?;
        }
        if self.is_kept_from_devices() {
            self.load_own(devices_filter()).context(|| "protect the host's devices")?;
        }
        if self.confinement.any() {
            self.load_own(shared_filter(self.confinement)).context(|| "protect the caller's keys")?;
        }
        // seccomp(2) wants no_new_privs or CAP_SYS_ADMIN: without no_new_privs the filter is loaded before the
        // capabilities are dropped. A filter with a listener is loaded now in any case, while there is a runtime that
        // takes the listener; that of root's calls behind the capabilities, because it would answer capset(2). Any other is
        // loaded last, so that it need not allow what happens until execve(2).
        let load = |plan: &SeccompPlan| {
            let loaded = match plan.supervised {
                true => rt_sys::seccomp::load_supervised(&plan.filter)?,
                false => rt_sys::seccomp::load(&plan.filter)?,
            };
            loaded.map_or(Ok(()), &listener)
        };
        let mut filter = self.seccomp.as_ref();
        let is_first = |plan: &&SeccompPlan| !self.no_new_privs || plan.filter.notifies && !plan.supervised;
        if let Some(plan) = filter.take_if(|plan| is_first(plan)) {
            if self.no_new_privs {
                rustix::thread::set_no_new_privs(true)?;
            }
            load(plan)?;
        }
        // Capabilities come after the ids: setresuid(2) to another id than root's empties the effective set.
        let missing = caps::set(&self.caps)?;
        if missing != 0 {
            log::debug!("capabilities {missing:#x} are not there to be given");
        }
        if self.no_new_privs {
            rustix::thread::set_no_new_privs(true).context(|| "set no_new_privs")?;
        }
        if let Some(plan) = filter.take_if(|plan| plan.supervised) {
            load(plan)?;
        }
        Ok(Prepared { path, args, filter: filter.is_some() })
    }

    /// Loads a filter of `rt`'s own, while the capabilities are still there. The config's filter comes on top of it: of
    /// several, the strictest answer counts.
    #[cold]
    fn load_own(&self, filter: Result<Filter>) -> Result<()> {
        if self.no_new_privs {
            rustix::thread::set_no_new_privs(true)?;
        }
        rt_sys::seccomp::load(&filter?).map(|_| ())
    }

    /// Becomes the program; returns only the error. `ignored` are the signals that this process ignores.
    pub(super) fn exec(&self, prepared: &Prepared, ignored: u64) -> Error {
        rt_sys::signal::reset(ignored);
        if let Err(e) = self.confine(prepared) {
            return e;
        }
        let error = not_executable::explain(prepared.args.exec(&prepared.path), &prepared.path);
        error.context(format!("exec {:?}", self.args[0]))
    }

    /// Becomes the program in a child of the process that was prepared; returns only the error.
    pub(super) fn exec_in_child(&self, prepared: &mut Prepared, ignored: u64) -> Error {
        if self.listen_fds > 0 {
            // The variables of sd_listen_fds(3) name the process that is meant.
            match ExecArgs::new(&self.args, &self.full_env()) {
                Ok(args) => prepared.args = args,
                Err(e) => return e,
            }
        }
        self.exec(prepared, ignored)
    }

    /// Loads the filter of a process with no_new_privs, which comes last. Under it, as an image may have written it, a call of this
    /// process may end it: it leaves no core in the container then, in which the caller's environment would be.
    pub(super) fn confine(&self, prepared: &Prepared) -> Result<()> {
        match &self.seccomp {
            Some(plan) if prepared.filter => {
                super::init::undumpable()?;
                rt_sys::seccomp::load(&plan.filter).map(|_| ())
            }
            _ => Ok(()),
        }
    }

    /// Runs the hooks of the stage startContainer, which are confined as the program is.
    pub(super) fn run_hooks(
        &self,
        prepared: &Prepared,
        hooks: &Option<Vec<Hook>>,
        state: &[u8],
    ) -> Result<()> {
        let Some(hooks) = hooks.as_deref().filter(|hooks| !hooks.is_empty()) else { return Ok(()) };
        let inside = Inside { env: &self.full_env(), confine: &|| self.confine(prepared) };
        hooks::run_inside(hooks, state, &inside)
    }

    fn set_limits(&self) -> Result<()> {
        for (resource, limit) in &self.rlimits {
            set_rlimit(*resource, limit)?;
        }
        if let Some(attr) = self.scheduler {
            process::set_scheduler(attr).context(|| "set the scheduler")?;
        }
        if let Some(priority) = &self.io_priority {
            process::set_io_priority(priority.class, priority.level).context(|| "set ioPriority")?;
        }
        if let Some(persona) = self.personality {
            process::set_personality(persona).context(|| "set the personality")?;
        }
        if let Some(policy) = &self.memory_policy {
            process::set_memory_policy(policy.mode, &policy.nodes).context(|| "set linux.memoryPolicy")?;
        }
        Ok(())
    }

    /// Sets what is set by writing to files of this process in `proc`. Children inherit it. It is done before the
    /// process becomes undumpable: the files of an undumpable process belong to root (proc_pid(5)).
    pub(super) fn set_by_proc(&self, proc: BorrowedFd<'_>) -> Result<()> {
        if let Some(adj) = self.oom_score_adj {
            let text = adj.to_string();
            match fd::write_proc(proc, "self/oom_score_adj", text.as_bytes()) {
                // To lower the value takes CAP_SYS_RESOURCE (proc_pid_oom_score_adj(5)).
                Err(e) if e.is(libc::EACCES) || e.is(libc::EPERM) => {
                    log::debug!("oomScoreAdj {adj} is not permitted: left as it is");
                }
                result => result?,
            }
        }
        if let Some(profile) = &self.apparmor {
            let text = format!("exec {profile}");
            let wrote = match fd::write_proc(proc, "self/attr/apparmor/exec", text.as_bytes()) {
                Err(e) if e.is(libc::ENOENT) => fd::write_proc(proc, "self/attr/exec", text.as_bytes()),
                result => result,
            };
            wrote.context(|| format!("apply AppArmor profile {profile:?}"))?;
        }
        if let Some(label) = &self.selinux {
            fd::write_proc(proc, "self/attr/exec", label.as_bytes())
                .context(|| format!("apply SELinux label {label:?}"))?;
        }
        Ok(())
    }

    /// Becomes the user. The permitted capabilities are kept: they are set by [`caps::set`].
    fn set_ids(&self) -> Result<()> {
        let user_changes = rustix::process::getuid().as_raw() != self.uid;
        let group_changes = rustix::process::getgid().as_raw() != self.gid;
        if user_changes {
            give_stdio(self.uid);
            // Without it setresuid(2) from root to another id empties the permitted set too.
            rustix::thread::set_keep_capabilities(true)?;
        }
        if let Some(groups) = &self.groups {
            let list: Vec<Gid> = groups.iter().map(|g| Gid::from_raw(*g)).collect();
            match rustix::thread::set_thread_groups(&list) {
                // A user namespace in which a caller without root has mapped a group must deny setgroups(2)
                // (user_namespaces(7)): the caller's groups stay.
                Ok(()) => {}
                Err(Errno::PERM) => log::debug!("setgroups is denied here: the caller's groups are kept"),
                Err(e) => return Err(e).context(|| format!("set additional groups {groups:?}")),
            }
        }
        // The group before the user, who has no right to change it.
        if group_changes {
            let gid = Gid::from_raw(self.gid);
            rustix::thread::set_thread_res_gid(gid, gid, gid).map_err(|e| unmapped(e, "gid", self.gid))?;
        }
        if user_changes {
            let uid = Uid::from_raw(self.uid);
            rustix::thread::set_thread_res_uid(uid, uid, uid).map_err(|e| unmapped(e, "uid", self.uid))?;
            // setresuid(2) has emptied the effective set. It is filled from the permitted one, because loading the filter
            // and entering the working directory may need it.
            caps::raise()?;
        }
        Ok(())
    }

    /// The program, which is looked for by the PATH of `env`.
    fn find(&self, env: &[String]) -> Result<CString> {
        find_program(&self.args[0], env).or_else(|e| self.find_by_name(env).ok_or(e))
    }

    /// The program of the container that has the name of the host's.
    #[cold]
    fn find_by_name(&self, env: &[String]) -> Option<CString> {
        let path = Path::new(&self.args[0]);
        let name = path.file_name()?.to_str().filter(|_| self.looked_up && path.is_absolute())?;
        find_program(name, env).ok()
    }

    fn enter_cwd(&self) -> Result<()> {
        match &self.job_cwd {
            Some(dir) if enter_job_directory(dir) => return Ok(()),
            Some(dir) if dir.required => {
                let e = rustix::process::chdir(&dir.path).err().unwrap_or(Errno::NOENT);
                return Err(e).context(|| format!("couldn't chdir to {}", dir.path.display()));
            }
            _ => {}
        }
        let shown = || format!("chdir to cwd {:?} set in config.json failed", self.cwd.display().to_string());
        rustix::process::chdir(&self.cwd).context(shown)?;
        if self.cwd != Path::new("/") {
            let cwd = rustix::process::getcwd(Vec::new()).context(shown)?;
            // The path can lead out of the root by an open descriptor (/proc/self/fd/N, CVE-2024-21626). The kernel
            // shows such a directory as "(unreachable)/...".
            if cwd.as_bytes().first() != Some(&b'/') {
                bail!("{}: current working directory is outside of the container", shown());
            }
        }
        Ok(())
    }

    /// The environment with HOME, which many programs expect, from the container's own passwd(5) where it is not given or
    /// empty, and with what sd_listen_fds(3) looks for.
    pub(super) fn full_env(&self) -> Vec<String> {
        let mut env = self.env.clone();
        let given = env.iter().rev().find_map(|v| v.strip_prefix("HOME="));
        if given.is_none_or(str::is_empty) {
            env.retain(|v| !v.starts_with("HOME="));
            let home = account::in_file(self.uid).map_or_else(|| "/".to_owned(), |account| account.home);
            env.push(format!("HOME={home}"));
        }
        if self.listen_fds > 0 {
            // The pid in the container's PID namespace, which the program compares with its own.
            let pid = rustix::process::getpid().as_raw_nonzero();
            env.retain(|v| !v.starts_with("LISTEN_FDS=") && !v.starts_with("LISTEN_PID="));
            env.extend([format!("LISTEN_FDS={}", self.listen_fds), format!("LISTEN_PID={pid}")]);
        }
        env
    }
}

/// False where the container has no such directory, or another one at this path.
fn enter_job_directory(dir: &JobDirectory) -> bool {
    let same = || match dir.identity {
        Some(identity) => fs::stat(".").is_ok_and(|found| (found.st_dev, found.st_ino) == identity),
        None => true,
    };
    let inside =
        || rustix::process::getcwd(Vec::new()).is_ok_and(|cwd| cwd.as_bytes().first() == Some(&b'/'));
    rustix::process::chdir(&dir.path).is_ok() && same() && inside()
}

/// Gives the standard streams to the user, so that it can open /dev/stdout and its kind, as runc does: the pipes and
/// files among them. Devices are not this container's alone. What cannot be given can still be written to.
fn give_stdio(uid: u32) {
    for stream in [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()] {
        let Ok(stat) = fs::fstat(stream) else { continue };
        if stat.st_uid != uid && fs::FileType::from_raw_mode(stat.st_mode) != fs::FileType::CharacterDevice {
            let _ = fs::fchown(stream, Some(Uid::from_raw(uid)), None);
        }
    }
}

fn unmapped(e: Errno, what: &str, id: u32) -> Error {
    let error = Error::from(e).context(format!("set {what} {id}"));
    if e == Errno::INVAL {
        return error.hint(format!(
            "it does not exist in this user namespace: {}",
            rt_spec::rootless::unmapped(what)
        ));
    }
    error
}

fn set_rlimit(resource: Resource, limit: &Rlimit) -> Result<()> {
    match rustix::process::setrlimit(resource, *limit) {
        Err(Errno::PERM) => {
            // Raising a hard limit takes CAP_SYS_RESOURCE. The limit is then set as high as the caller may.
            let have = rustix::process::getrlimit(resource);
            let least = |a: Option<u64>, b: Option<u64>| match (a, b) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            let maximum = least(limit.maximum, have.maximum);
            let current = least(limit.current, maximum);
            let name = format!("{resource:?}").to_uppercase();
            log::debug!("RLIMIT_{name} is limited to {maximum:?}, the caller's hard limit");
            rustix::process::setrlimit(resource, Rlimit { current, maximum })
                .context(|| format!("set limit {resource:?}"))
        }
        result => result.context(|| format!("set limit {resource:?}")),
    }
}
