//! The program of a container: what `run`, `create` and `exec` do last, in the process that becomes it.

use crate::hooks::{self, Inside};
use oci_spec::runtime::{
    Hook, IOPriorityClass, LinuxPersonalityDomain, LinuxSchedulerPolicy, LinuxSeccomp, LinuxSeccompAction,
    LinuxSeccompArgBuilder, LinuxSeccompBuilder, LinuxSeccompOperator, LinuxSyscallBuilder,
    MemoryPolicyFlagType, MemoryPolicyModeType, PosixRlimitType, Scheduler,
};
use rt_spec::rootless::Adapted;
use rt_spec::slurm::{JobDirectory, Task};
use rt_spec::{Linux, Process, Spec};
use rt_sys::error::{Context, Error, Result};
use rt_sys::process::{self, ExecArgs, SchedAttr};
use rt_sys::seccomp::Filter;
use rt_sys::{bail, caps, err, fd};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, Mode};
use rustix::io::Errno;
use rustix::process::{Gid, Resource, Rlimit, Uid};
use std::collections::HashMap;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Everything about the program.
#[derive(Debug)]
pub(super) struct ProcessPlan {
    /// Arguments; never empty.
    pub args: Vec<String>,
    /// Environment; each name once.
    pub env: Vec<String>,
    /// Working directory, absolute.
    pub cwd: PathBuf,
    /// User id inside.
    pub uid: u32,
    /// Group id inside.
    pub gid: u32,
    /// Supplementary groups to set; `None` keeps the caller's.
    pub groups: Option<Vec<u32>>,
    /// File mode creation mask.
    pub umask: u32,
    /// Capabilities.
    pub caps: caps::Sets,
    /// Set no_new_privs.
    pub no_new_privs: bool,
    /// Limits.
    pub rlimits: Vec<(Resource, Rlimit)>,
    /// Adjustment of the OOM killer's score.
    pub oom_score_adj: Option<i32>,
    /// AppArmor profile.
    pub apparmor: Option<String>,
    /// SELinux label.
    pub selinux: Option<String>,
    /// Scheduling policy.
    pub scheduler: Option<SchedAttr>,
    /// I/O class and priority.
    pub io_priority: Option<(u32, u32)>,
    /// Execution domain.
    pub personality: Option<u64>,
    /// Memory policy: mode and node mask.
    pub memory_policy: Option<(u32, Vec<u64>)>,
    /// The compiled filter.
    pub seccomp: Option<SeccompPlan>,
    /// The program gets a terminal.
    pub terminal: bool,
    /// Rows and columns of the terminal.
    pub console_size: Option<(u16, u16)>,
    /// CPUs for `exec`: before joining and after (config.md "execCPUAffinity").
    pub affinity: (Option<String>, Option<String>),
    /// How many descriptors above 2 stay open.
    pub preserve_fds: u32,
    /// How many of them are sockets that a service manager listens on, the first ones.
    pub listen_fds: u32,
    /// One more that stays open at its number: a connection to the scheduler.
    pub keep_fd: Option<i32>,
    /// The job's working directory, which is entered in place of `cwd` where the container has it.
    pub job_cwd: Option<JobDirectory>,
}

/// The filter and where its notifications go.
#[derive(Debug)]
pub(super) struct SeccompPlan {
    /// The filter.
    pub filter: Filter,
    /// System calls that the section names and no kernel has.
    pub unknown: Vec<String>,
    /// The socket that gets the listener.
    pub listener: Option<PathBuf>,
    /// What is sent with it.
    pub metadata: String,
}

impl ProcessPlan {
    /// The plan of `process` with the ids that `adapted` decided, and with what `linux` says about the program.
    #[inline(never)]
    pub(super) fn new(
        process: &Process,
        adapted: &Adapted,
        linux: Option<&Linux>,
        preserve_fds: u32,
        notes: &mut Vec<String>,
    ) -> Result<Self> {
        let filter = linux.and_then(|l| l.seccomp());
        let user = process.user();
        let groups = (!adapted.keep_groups).then(|| user.additional_gids().clone().unwrap_or_default());
        let text = |label: &Option<String>| label.clone().filter(|l| !l.is_empty());
        let seccomp = match filter {
            Some(section) => {
                if adapted.emulate_root {
                    log::debug!("the config's seccomp section stays: root is not emulated");
                }
                Some(seccomp_plan(section)?)
            }
            None if adapted.emulate_root => Some(seccomp_plan(&rt_spec::rootless::root_emulation()?)?),
            None => None,
        };
        if let Some(plan) = &seccomp {
            notes.extend(
                plan.unknown.iter().map(|name| format!("seccomp: unknown system call {name} is ignored")),
            );
        }
        let mut plan = ProcessPlan {
            args: process.args().clone().unwrap_or_default(),
            env: unique(process.env().as_deref().unwrap_or_default()),
            cwd: process.cwd().clone(),
            uid: adapted.uid,
            gid: adapted.gid,
            groups,
            umask: user.umask().unwrap_or(0o022),
            // Without `capabilities` a process has none.
            caps: process.capabilities().unwrap_or_default(),
            no_new_privs: process.no_new_privileges().unwrap_or(false),
            rlimits: process
                .rlimits()
                .iter()
                .flatten()
                .map(|l| (resource(l.typ()), rlimit(l.soft(), l.hard())))
                .collect(),
            oom_score_adj: process.oom_score_adj(),
            apparmor: text(process.apparmor_profile()),
            selinux: text(process.selinux_label()),
            scheduler: process.scheduler().as_ref().map(scheduler),
            io_priority: process.io_priority().as_ref().map(|p| {
                let class = match p.class() {
                    IOPriorityClass::IoprioClassRt => 1,
                    IOPriorityClass::IoprioClassBe => 2,
                    IOPriorityClass::IoprioClassIdle => 3,
                };
                (class, p.priority() as u32)
            }),
            personality: None,
            memory_policy: None,
            seccomp,
            terminal: process.terminal().unwrap_or(false),
            console_size: process.console_size().map(|size| (size.height() as u16, size.width() as u16)),
            affinity: match process.exec_cpu_affinity() {
                Some(affinity) => (cpus("initial", affinity.initial())?, cpus("final", affinity.last())?),
                None => (None, None),
            },
            preserve_fds,
            listen_fds: 0,
            keep_fd: None,
            job_cwd: None,
        };
        if let Some(linux) = linux {
            plan.set_linux(linux)?;
        }
        Ok(plan)
    }

    /// Takes what a task of a Slurm step gets from its caller.
    pub(super) fn set_task(&mut self, spec: &Spec, task: &Task) {
        self.keep_fd = rt_spec::slurm::pmi_fd(spec).filter(|fd| fd::is_inherited(*fd));
        if spec.process().as_ref().is_some_and(|process| process.user().umask().is_none()) {
            self.umask = task.umask;
        }
        self.job_cwd = task.cwd.clone().filter(|dir| dir.asked || self.cwd == Path::new("/"));
    }

    /// Has every descriptor but those of the program closed by its exec.
    pub(super) fn close_others(&self) -> Result<()> {
        fd::cloexec_from(3 + self.preserve_fds)?;
        self.keep_fd.map_or(Ok(()), fd::keep_over_exec)
    }

    /// Takes what the config's `linux` section says about the program.
    fn set_linux(&mut self, linux: &Linux) -> Result<()> {
        self.personality = linux.personality().as_ref().map(|p| match p.domain() {
            LinuxPersonalityDomain::PerLinux => 0,
            LinuxPersonalityDomain::PerLinux32 => 8,
        });
        if let Some(policy) = linux.memory_policy() {
            let mode = match policy.mode() {
                MemoryPolicyModeType::MpolDefault => 0,
                MemoryPolicyModeType::MpolPreferred => 1,
                MemoryPolicyModeType::MpolBind => 2,
                MemoryPolicyModeType::MpolInterleave => 3,
                MemoryPolicyModeType::MpolLocal => 4,
                MemoryPolicyModeType::MpolPreferredMany => 5,
                MemoryPolicyModeType::MpolWeightedInterleave => 6,
            };
            let flags = policy.flags().iter().flatten().fold(0, |all, flag| {
                all | match flag {
                    MemoryPolicyFlagType::MpolFNumaBalancing => 1 << 13,
                    MemoryPolicyFlagType::MpolFRelativeNodes => 1 << 14,
                    MemoryPolicyFlagType::MpolFStaticNodes => 1 << 15,
                }
            });
            let nodes = match policy.nodes().as_deref() {
                None | Some("") => Vec::new(),
                Some(list) => bit_list(list).context(|| "config.json: linux.memoryPolicy.nodes")?,
            };
            self.memory_policy = Some((mode | flags, nodes));
        }
        Ok(())
    }
}

fn compile(section: &LinuxSeccomp) -> Result<oci_seccomp::Program> {
    oci_seccomp::compile(section).map_err(|e| Error::new(e.to_string()))
}

/// The kernel's form of a compiled program.
fn filter_of(program: &oci_seccomp::Program) -> Filter {
    let instruction =
        |i: &oci_seccomp::Instruction| libc::sock_filter { code: i.code, jt: i.jt, jf: i.jf, k: i.k };
    Filter {
        instructions: program.instructions.iter().map(instruction).collect(),
        flags: program.flags,
        notifies: program.notifies,
    }
}

/// Compiles a seccomp section.
pub(super) fn seccomp_plan(section: &LinuxSeccomp) -> Result<SeccompPlan> {
    let mut program = compile(section).context(|| "config.json: linux.seccomp")?;
    let listener = section.listener_path().clone().filter(|p| !p.as_os_str().is_empty());
    if program.notifies && listener.is_none() {
        bail!("config.json: linux.seccomp: SCMP_ACT_NOTIFY needs a listenerPath");
    }
    let unknown = std::mem::take(&mut program.unknown);
    Ok(SeccompPlan {
        filter: filter_of(&program),
        unknown,
        listener,
        metadata: section.listener_metadata().clone().unwrap_or_default(),
    })
}

/// The section that refuses what puts input into a terminal as if it had been typed there: TIOCSTI, and the selections of
/// a console (TIOCLINUX). The kernel takes the lower 32 bits of the command, so these are what is compared.
fn terminal_section() -> Result<LinuxSeccomp> {
    let refused = [libc::TIOCSTI, libc::TIOCLINUX].map(|command| {
        let command = LinuxSeccompArgBuilder::default()
            .index(1usize)
            .op(LinuxSeccompOperator::ScmpCmpMaskedEq)
            .value(u64::from(u32::MAX))
            // A C library's type for it is its own.
            .value_two(command as u32)
            .build()?;
        LinuxSyscallBuilder::default()
            .names(["ioctl".to_owned()])
            .action(LinuxSeccompAction::ScmpActErrno)
            .args([command])
            .build()
    });
    let section = refused.into_iter().collect::<Result<Vec<_>, _>>().and_then(|refused| {
        LinuxSeccompBuilder::default()
            .default_action(LinuxSeccompAction::ScmpActAllow)
            .architectures(oci_seccomp::native_architectures().collect::<Vec<_>>())
            .syscalls(refused)
            .build()
    });
    section.map_err(|e| err!("{e}"))
}

/// The last value of each name, at the place of the first.
fn unique(env: &[String]) -> Vec<String> {
    fn name(variable: &str) -> &str {
        variable.split_once('=').map_or(variable, |(name, _)| name)
    }
    if env.len() <= 16 {
        let mut list: Vec<String> = Vec::with_capacity(env.len() + 1);
        for variable in env {
            match list.iter_mut().find(|v| name(v) == name(variable)) {
                Some(old) => old.clone_from(variable),
                None => list.push(variable.clone()),
            }
        }
        return list;
    }
    let mut places: HashMap<&str, usize> = HashMap::with_capacity(env.len());
    let mut list: Vec<String> = Vec::with_capacity(env.len() + 1);
    for variable in env {
        match places.get(name(variable)) {
            Some(&place) => list[place].clone_from(variable),
            None => {
                places.insert(name(variable), list.len());
                list.push(variable.clone());
            }
        }
    }
    list
}

fn resource(typ: PosixRlimitType) -> Resource {
    match typ {
        PosixRlimitType::RlimitCpu => Resource::Cpu,
        PosixRlimitType::RlimitFsize => Resource::Fsize,
        PosixRlimitType::RlimitData => Resource::Data,
        PosixRlimitType::RlimitStack => Resource::Stack,
        PosixRlimitType::RlimitCore => Resource::Core,
        PosixRlimitType::RlimitRss => Resource::Rss,
        PosixRlimitType::RlimitNproc => Resource::Nproc,
        PosixRlimitType::RlimitNofile => Resource::Nofile,
        PosixRlimitType::RlimitMemlock => Resource::Memlock,
        PosixRlimitType::RlimitAs => Resource::As,
        PosixRlimitType::RlimitLocks => Resource::Locks,
        PosixRlimitType::RlimitSigpending => Resource::Sigpending,
        PosixRlimitType::RlimitMsgqueue => Resource::Msgqueue,
        PosixRlimitType::RlimitNice => Resource::Nice,
        PosixRlimitType::RlimitRtprio => Resource::Rtprio,
        PosixRlimitType::RlimitRttime => Resource::Rttime,
    }
}

/// Above i64's range means "no limit": Slurm clamps to 2^63-1 what was 2^64-1.
fn rlimit(soft: u64, hard: u64) -> Rlimit {
    let value = |v: u64| (v < i64::MAX as u64).then_some(v);
    Rlimit { current: value(soft), maximum: value(hard) }
}

fn scheduler(s: &Scheduler) -> SchedAttr {
    let policy = match s.policy() {
        LinuxSchedulerPolicy::SchedOther => 0,
        LinuxSchedulerPolicy::SchedFifo => 1,
        LinuxSchedulerPolicy::SchedRr => 2,
        LinuxSchedulerPolicy::SchedBatch => 3,
        LinuxSchedulerPolicy::SchedIso => 4,
        LinuxSchedulerPolicy::SchedIdle => 5,
        LinuxSchedulerPolicy::SchedDeadline => 6,
    };
    let flags = s.flags().iter().flatten().fold(0, |all, flag| {
        use oci_spec::runtime::LinuxSchedulerFlag::*;
        all | match flag {
            SchedResetOnFork => 0x01,
            SchedFlagReclaim => 0x02,
            SchedFlagDLOverrun => 0x04,
            SchedFlagKeepPolicy => 0x08,
            SchedFlagKeepParams => 0x10,
            SchedFlagUtilClampMin => 0x20,
            SchedFlagUtilClampMax => 0x40,
        }
    });
    SchedAttr {
        policy,
        flags,
        nice: s.nice().unwrap_or(0),
        priority: s.priority().unwrap_or(0) as u32,
        runtime: s.runtime().unwrap_or(0),
        deadline: s.deadline().unwrap_or(0),
        period: s.period().unwrap_or(0),
        ..SchedAttr::default()
    }
}

/// A list as in cpuset(7), "0-3,7", as a bit mask.
pub(super) fn bit_list(list: &str) -> Result<Vec<u64>> {
    let mut words = vec![0u64];
    for part in list.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        let number = |text: &str| text.trim().parse::<usize>().ok().filter(|n| *n < 8192);
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (Some(first), Some(last)) = (number(first), number(last)) else {
            bail!("{list:?} is not a list of numbers")
        };
        if first > last {
            bail!("{list:?}: {first}-{last} is not ascending");
        }
        for n in first..=last {
            if words.len() <= n / 64 {
                words.resize(n / 64 + 1, 0);
            }
            words[n / 64] |= 1 << (n % 64);
        }
    }
    Ok(words)
}

/// A list of `process.execCPUAffinity`, which must be readable; an empty one is none (config.md).
#[cold]
fn cpus(name: &str, list: &Option<String>) -> Result<Option<String>> {
    let list = list.as_ref().filter(|list| !list.is_empty());
    if let Some(list) = list {
        bit_list(list).context(|| format!("process.execCPUAffinity.{name}"))?;
    }
    Ok(list.cloned())
}

/// Limits this process to the CPUs in `list` (sched_setaffinity(2)).
pub(super) fn set_affinity(list: &str) -> Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    for (word, bits) in bit_list(list)?.into_iter().enumerate() {
        for bit in (0..64).filter(|bit| bits & (1 << bit) != 0) {
            let cpu = word * 64 + bit;
            if cpu >= rustix::thread::CpuSet::MAX_CPU {
                bail!("CPU {cpu} is out of range");
            }
            set.set(cpu);
        }
    }
    rustix::thread::sched_setaffinity(None, &set).context(|| format!("set the CPU affinity to {list:?}"))
}

/// What the program becomes, ready for execve(2).
#[derive(Debug)]
pub(super) struct Prepared {
    path: CString,
    args: ExecArgs,
    filter: bool,
}

impl ProcessPlan {
    /// Sets everything but the seccomp filter of a process with no_new_privs, which comes last.
    ///
    /// The process is in all its namespaces and its root. `on_terminal` is true where it stays in its caller's session
    /// and that has a controlling terminal. `listener` is called with a seccomp listener. Nothing after this needs a
    /// capability.
    pub(super) fn prepare(
        &self,
        on_terminal: bool,
        listener: impl FnOnce(OwnedFd) -> Result<()>,
    ) -> Result<Prepared> {
        self.set_limits()?;
        caps::limit_bounding(self.caps.bounding)?;
        self.set_ids()?;
        rustix::process::umask(Mode::from_raw_mode(self.umask));
        self.enter_cwd()?;
        let env = self.full_env();
        let path = find_program(&self.args[0], &env)?;
        let args = ExecArgs::new(&self.args, &env)?;
        if on_terminal {
            self.protect_terminal().map_err(|e| e.hint("with -t the program gets a terminal of its own"))?;
        }
        // Without no_new_privs a filter needs CAP_SYS_ADMIN, so it comes before the capabilities go. A
        // listener must have a runtime that takes it.
        let mut filter = self.seccomp.as_ref();
        if let Some(plan) = filter
            && (!self.no_new_privs || plan.filter.notifies)
        {
            if self.no_new_privs {
                rustix::thread::set_no_new_privs(true)?;
            }
            filter = None;
            if let Some(fd) = rt_sys::seccomp::load(&plan.filter)? {
                listener(fd)?;
            }
        }
        let missing = caps::set(&self.caps)?;
        if missing != 0 {
            log::debug!("capabilities {missing:#x} are not there to be given");
        }
        if self.no_new_privs {
            rustix::thread::set_no_new_privs(true).context(|| "set no_new_privs")?;
        }
        Ok(Prepared { path, args, filter: filter.is_some() })
    }

    /// Loads a filter that keeps the program from typing into the caller's terminal. The config's filter comes on top of
    /// it: of several, the strictest answer counts.
    #[cold]
    fn protect_terminal(&self) -> Result<()> {
        if self.no_new_privs {
            rustix::thread::set_no_new_privs(true)?;
        }
        let program = terminal_section().and_then(|section| compile(&section));
        program
            .and_then(|program| rt_sys::seccomp::load(&filter_of(&program)))
            .context(|| "protect the caller's terminal")
            .map(|_| ())
    }

    /// Becomes the program; returns only the error. `ignored` are the signals that this process ignores.
    pub(super) fn exec(&self, prepared: &Prepared, ignored: u64) -> Error {
        rt_sys::signal::reset(ignored);
        if let Err(e) = self.confine(prepared) {
            return e;
        }
        let error = prepared.args.exec(&prepared.path);
        error.context(format!("exec {:?}", self.args[0]))
    }

    /// Loads the filter of a process with no_new_privs, which comes last.
    fn confine(&self, prepared: &Prepared) -> Result<()> {
        match &self.seccomp {
            Some(plan) if prepared.filter => rt_sys::seccomp::load(&plan.filter).map(|_| ()),
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
        if let Some((class, priority)) = self.io_priority {
            process::set_io_priority(class, priority).context(|| "set ioPriority")?;
        }
        if let Some(persona) = self.personality {
            process::set_personality(persona).context(|| "set the personality")?;
        }
        if let Some((mode, nodes)) = &self.memory_policy {
            process::set_memory_policy(*mode, nodes).context(|| "set linux.memoryPolicy")?;
        }
        Ok(())
    }

    /// What is set by writing to files of `proc`. A process does it for itself, or for its children, while it
    /// still may: one that cannot be dumped cannot write to its own files.
    pub(super) fn set_by_proc(&self, proc: BorrowedFd<'_>) -> Result<()> {
        if let Some(adj) = self.oom_score_adj {
            let text = adj.to_string();
            match fd::write_proc(proc, "self/oom_score_adj", text.as_bytes()) {
                // Below the caller's own value is not for everybody.
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

    /// Becomes the user, keeping the permitted capabilities.
    fn set_ids(&self) -> Result<()> {
        let user_changes = rustix::process::getuid().as_raw() != self.uid;
        let group_changes = rustix::process::getgid().as_raw() != self.gid;
        if user_changes {
            give_stdio(self.uid);
            rustix::thread::set_keep_capabilities(true)?;
        }
        if let Some(groups) = &self.groups {
            let list: Vec<Gid> = groups.iter().map(|g| Gid::from_raw(*g)).collect();
            match rustix::thread::set_thread_groups(&list) {
                // setgroups is denied in a namespace with one id: the caller's groups stay.
                Ok(()) => {}
                Err(Errno::PERM) => log::debug!("setgroups is denied here: the caller's groups are kept"),
                Err(e) => return Err(e).context(|| format!("set additional groups {groups:?}")),
            }
        }
        if group_changes {
            let gid = Gid::from_raw(self.gid);
            rustix::thread::set_thread_res_gid(gid, gid, gid).map_err(|e| unmapped(e, "gid", self.gid))?;
        }
        if user_changes {
            let uid = Uid::from_raw(self.uid);
            rustix::thread::set_thread_res_uid(uid, uid, uid).map_err(|e| unmapped(e, "uid", self.uid))?;
            // Changing from root has emptied the effective set; the filter and the cwd may need it.
            caps::raise()?;
        }
        Ok(())
    }

    fn enter_cwd(&self) -> Result<()> {
        if self.job_cwd.as_ref().is_some_and(enter_job_directory) {
            return Ok(());
        }
        let shown = || format!("chdir to cwd {:?} set in config.json failed", self.cwd.display().to_string());
        rustix::process::chdir(&self.cwd).context(shown)?;
        if self.cwd != Path::new("/") {
            let cwd = rustix::process::getcwd(Vec::new()).context(shown)?;
            // A directory outside the root shows as "(unreachable)/...".
            if cwd.as_bytes().first() != Some(&b'/') {
                bail!("{}: current working directory is outside of the container", shown());
            }
        }
        Ok(())
    }

    /// The environment with HOME, which many programs expect, from the container's own passwd(5) where it is not given or
    /// empty, and with what sd_listen_fds(3) looks for.
    fn full_env(&self) -> Vec<String> {
        let mut env = self.env.clone();
        let given = env.iter().rev().find_map(|v| v.strip_prefix("HOME="));
        if given.is_none_or(str::is_empty) {
            env.retain(|v| !v.starts_with("HOME="));
            env.push(format!("HOME={}", home_of(self.uid).unwrap_or_else(|| "/".to_owned())));
        }
        if self.listen_fds > 0 {
            // The pid as the program itself sees it.
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
            // Only root may raise a hard limit: what may be had is better than no container.
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

fn home_of(uid: u32) -> Option<String> {
    let passwd = fd::read_hostile(Path::new("/etc/passwd"), 4 << 20)?;
    let passwd = String::from_utf8_lossy(&passwd);
    let uid = uid.to_string();
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.nth(2)? == uid)
            .then(|| fields.nth(2))?
            .filter(|home| home.starts_with('/'))
            .map(str::to_owned)
    })
}

/// Finds the program as execvp(3) would, so that a missing one is create's error. The texts are Go's, which
/// clients turn into exit codes 126 and 127.
fn find_program(name: &str, env: &[String]) -> Result<CString> {
    let quoted = format!("exec: {name:?}");
    if name.is_empty() {
        bail!("exec: executable path is empty");
    }
    if name.contains('/') {
        return check_program(Path::new(name)).map_err(|e| match e {
            Errno::NOENT => err!("{quoted}: stat {name}: {}", Error::from(e)),
            Errno::ISDIR => err!("{quoted}: is a directory: permission denied"),
            e => err!("{quoted}: {}", Error::from(e)),
        });
    }
    let path = env.iter().find_map(|v| v.strip_prefix("PATH=")).unwrap_or("");
    let mut refused = None;
    for dir in path.split(':') {
        let dir = if dir.is_empty() { "." } else { dir };
        match check_program(&Path::new(dir).join(name)) {
            Ok(found) => return Ok(found),
            Err(Errno::ACCESS) => refused = Some(Errno::ACCESS),
            Err(_) => {}
        }
    }
    match refused {
        Some(e) => Err(err!("{quoted}: {}", Error::from(e))),
        None => Err(err!("{quoted}: executable file not found in $PATH")),
    }
}

fn check_program(path: &Path) -> Result<CString, Errno> {
    let found = fs::stat(path)?;
    if fs::FileType::from_raw_mode(found.st_mode) == fs::FileType::Directory {
        return Err(Errno::ISDIR);
    }
    fs::accessat(fs::CWD, path, fs::Access::EXEC_OK, AtFlags::EACCESS)?;
    CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::INVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_of_a_variable_wins() {
        let list = |n: usize| -> Vec<String> {
            ["A=1", "B", "A=2"]
                .into_iter()
                .map(String::from)
                .chain((0..n).map(|n| format!("V{n}=x")))
                .collect()
        };
        assert_eq!(unique(&list(0)), ["A=2", "B"]);
        assert_eq!(unique(&list(50))[..2], ["A=2".to_owned(), "B".to_owned()]);
    }

    #[test]
    fn lists_become_masks() {
        assert_eq!(bit_list("0-2,5").unwrap(), [0b100111]);
        assert_eq!(bit_list("64").unwrap(), [0, 1]);
        for bad in ["x", "3-1", "1-", "9999999"] {
            assert!(bit_list(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn missing_programs_have_the_texts_that_clients_match() {
        let env = ["PATH=/usr/bin:/bin".to_owned()];
        let text = |name: &str| find_program(name, &env).unwrap_err().to_string();
        assert_eq!(text("/no/x"), "exec: \"/no/x\": stat /no/x: no such file or directory");
        assert_eq!(text("no-such"), "exec: \"no-such\": executable file not found in $PATH");
        assert_eq!(text("/etc/passwd"), "exec: \"/etc/passwd\": permission denied");
        assert_eq!(text("/tmp"), "exec: \"/tmp\": is a directory: permission denied");
        assert!(find_program("sh", &env).is_ok());
    }
}
