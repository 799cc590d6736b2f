//! The program of a plan: everything about it that the config says, in the kernel's terms.

use super::seccomp::{self, SeccompPlan};
use super::{MKNOD, SYS_ADMIN};
use crate::store::Confinement;
use oci_spec::runtime::{
    IOPriorityClass, LinuxPersonalityDomain, LinuxSchedulerPolicy, LinuxSeccomp, MemoryPolicyFlagType,
    MemoryPolicyModeType, PosixRlimitType, Scheduler,
};
use rt_launch::task::{JobDirectory, TaskContext};
use rt_spec::emulation::{self, RootEmulation};
use rt_spec::rootless::Adapted;
use rt_spec::{Linux, Process, Spec};
use rt_sys::error::{Context, Result};
use rt_sys::process::SchedAttr;
use rt_sys::{bail, caller, caps, fd, tty};
use rustix::process::{Resource, Rlimit};
use serde_json::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Everything about the program.
#[derive(Debug)]
pub(crate) struct ProcessPlan {
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
    /// The program's user namespace is the host's, where CAP_MKNOD makes devices.
    pub in_hosts_namespace: bool,
    /// `linux.resources.devices` allows every device.
    pub all_devices: bool,
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
    /// Priority of its input and output.
    pub io_priority: Option<IoPriority>,
    /// Execution domain.
    pub personality: Option<u64>,
    /// Memory policy.
    pub memory_policy: Option<MemoryPolicy>,
    /// The compiled filter.
    pub seccomp: Option<SeccompPlan>,
    /// The program gets a terminal.
    pub terminal: bool,
    /// Rows and columns of the terminal.
    pub console_size: Option<tty::Size>,
    /// The CPUs that a program of `exec` runs on.
    pub affinity: Affinity,
    /// How many descriptors above 2 stay open.
    pub preserve_fds: u32,
    /// How many of them are sockets that a service manager listens on, the first ones.
    pub listen_fds: u32,
    /// What it is kept from beside the config's filter.
    pub confinement: Confinement,
    /// One more that stays open at its number: a connection to the scheduler.
    pub keep_fd: Option<i32>,
    /// The job's working directory, which is entered in place of `cwd` where the container has it.
    pub job_cwd: Option<JobDirectory>,
    /// The program's path may be one of the host: Slurm looks its name up there. Where the container lacks it, the name is
    /// looked up in the container.
    pub looked_up: bool,
    /// The program comes from an image of its memory: `args` do not say what it is, and nobody looks for them.
    pub is_restored: bool,
}

/// Priority of input and output (ioprio_set(2)).
#[derive(Debug)]
pub(crate) struct IoPriority {
    /// `IOPRIO_CLASS_*`.
    pub class: u32,
    /// The level in the class, 0 the highest.
    pub level: u32,
}

/// Where memory comes from (set_mempolicy(2)).
#[derive(Debug)]
pub(crate) struct MemoryPolicy {
    /// `MPOL_*` and its flags.
    pub mode: u32,
    /// The nodes as a bit mask.
    pub nodes: Vec<u64>,
}

/// Lists of CPUs for `exec` (config.md "execCPUAffinity").
#[derive(Debug, Default)]
pub(crate) struct Affinity {
    /// Set before the process joins the container.
    pub before: Option<String>,
    /// Set in the container.
    pub inside: Option<String>,
}

impl ProcessPlan {
    /// The plan of `process` with the ids that `adapted` decided, and with what `linux` says about the program.
    #[inline(never)]
    pub(crate) fn new(
        process: &Process,
        adapted: &Adapted,
        linux: Option<&Linux>,
        in_hosts_namespace: bool,
        preserve_fds: u32,
        notes: &mut Vec<String>,
    ) -> Result<Self> {
        let filter = linux.and_then(|l| l.seccomp());
        let user = process.user();
        rt_spec::check_id("uid", adapted.uid)?;
        rt_spec::check_id("gid", adapted.gid)?;
        user.additional_gids()
            .iter()
            .flatten()
            .try_for_each(|gid| rt_spec::check_id("additional gid", *gid))?;
        let groups = (!adapted.keep_groups).then(|| user.additional_gids().clone().unwrap_or_default());
        let text = |label: &Option<String>| label.clone().filter(|l| !l.is_empty());
        let seccomp = match (filter, adapted.emulate_root) {
            (Some(section), false) => Some(seccomp::plan_filter(section)?),
            (Some(section), true) => {
                Some(seccomp::plan_filter(&emulation::with_root_emulation(section, RootEmulation::Off)?)?)
            }
            (None, true) => Some(seccomp::plan_filter(&emulation::root_emulation(RootEmulation::Off)?)?),
            (None, false) => None,
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
            caps: match process.capabilities() {
                Some(listed) => listed,
                // What root can do in its own user namespace, as package managers expect of root.
                None if adapted.emulate_root && adapted.uid == 0 => caps::Sets::all(),
                // Without `capabilities` a process has none.
                None => caps::Sets::default(),
            },
            in_hosts_namespace,
            all_devices: linux.is_some_and(allows_all_devices),
            // With it the filter is loaded last. Before that it would answer the runtime's own calls. There is no program that could
            // become somebody else, where there is only one id.
            no_new_privs: process.no_new_privileges().unwrap_or(false)
                || (adapted.emulate_root && filter.is_some()),
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
                IoPriority { class, level: p.priority() as u32 }
            }),
            personality: None,
            memory_policy: None,
            seccomp,
            terminal: process.terminal().unwrap_or(false),
            console_size: process
                .console_size()
                .map(|size| tty::Size { rows: size.height() as u16, columns: size.width() as u16 }),
            affinity: match process.exec_cpu_affinity() {
                Some(affinity) => Affinity {
                    before: cpus("initial", affinity.initial())?,
                    inside: cpus("final", affinity.last())?,
                },
                None => Affinity::default(),
            },
            preserve_fds,
            listen_fds: 0,
            confinement: Confinement::default(),
            keep_fd: None,
            job_cwd: None,
            looked_up: false,
            is_restored: false,
        };
        if let Some(linux) = linux {
            plan.set_linux(linux)?;
        }
        Ok(plan)
    }

    /// Has a supervisor record the owners that the process gives as root of one id.
    pub(crate) fn record_owners(
        &mut self,
        section: Option<&LinuxSeccomp>,
        emulation: RootEmulation,
    ) -> Result<()> {
        self.seccomp = Some(seccomp::plan_supervised(section, emulation)?);
        // The filter comes last then, and answers no call of the runtime's.
        self.no_new_privs = true;
        Ok(())
    }

    /// True where the program could make device nodes that work, and its config does not say that it may have all of the
    /// host. A file with set-user-ID root can give a program whatever the bounding set has.
    pub(crate) fn is_kept_from_devices(&self) -> bool {
        let caps = self.caps.bounding | self.caps.permitted | self.caps.inheritable;
        let privileged = self.all_devices && caps & SYS_ADMIN != 0;
        self.in_hosts_namespace && caps & MKNOD != 0 && !privileged
    }

    /// Takes what a task of a Slurm step gets from its caller.
    pub(crate) fn set_task(&mut self, spec: &Spec, task: &TaskContext) {
        self.keep_fd = rt_launch::slurm::pmi_fd(&task.job).filter(|fd| fd::is_inherited_socket(*fd));
        self.take_umask(spec.process().as_ref(), task.umask);
        self.looked_up = task.looked_up;
        self.job_cwd = task.cwd.clone().filter(|dir| dir.explicit || self.cwd == Path::new("/"));
    }

    /// Takes the umask of whoever calls, unless `process`, that of the config, names one.
    pub(crate) fn take_umask(&mut self, process: Option<&Process>, callers: u32) {
        if process.is_some_and(|process| process.user().umask().is_none()) {
            self.umask = callers;
        }
    }

    /// Keeps the connection to the scheduler open that PMI_FD of the caller's environment names: the program has that
    /// variable, too. What the image says does not count.
    pub(crate) fn inherit_pmi(&mut self) {
        let named = caller::variable("PMI_FD").and_then(|fd| fd.parse().ok());
        self.keep_fd = named.filter(|number| *number > 2 && fd::is_inherited_socket(*number));
    }

    /// Has every descriptor but those of the program closed by its exec.
    pub(crate) fn close_others(&self) -> Result<()> {
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
            self.memory_policy = Some(MemoryPolicy { mode: mode | flags, nodes });
        }
        Ok(())
    }
}

/// True where the rules for devices end with one that allows all of them (config-linux.md "Allowed Device list").
fn allows_all_devices(linux: &Linux) -> bool {
    let rules = linux.resources().as_ref().and_then(|resources| resources.get("devices"));
    let Some(last) = rules.and_then(Value::as_array).and_then(|rules| rules.last()) else { return false };
    let any = |key: &str| matches!(last.get(key), None | Some(Value::Null)) || last[key] == -1;
    last["allow"] == true
        && (any("type") || last["type"] == "a")
        && any("major")
        && any("minor")
        && last["access"].as_str().is_some_and(|access| "rwm".chars().all(|kind| access.contains(kind)))
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

/// A value from 2^63-1 on means "no limit": RLIM_INFINITY is 2^64-1, and Slurm clamps it to 2^63-1.
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
pub(crate) fn bit_list(list: &str) -> Result<Vec<u64>> {
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
}
