//! One container for the tasks of a Slurm step, or the ranks of a run, on a node: the first makes it, the others join it.
//!
//! Each task reads its own config, so its program, environment, limits and filter are its own. Namespaces, mounts and
//! hooks are those of the task that came first. `store::step` tells a task which of the two it is.

use super::create;
use super::entrypoint;
use super::exec::{self, Exec};
use super::lifecycle::{self, Deletion};
use super::members::{self, Members};
use super::plan::{BundleConfig, Loaded, ProcessPlan};
use super::request::StartRequest;
use super::{Checkpoint, CreateOptions, ExecOptions, ImageMounts, PersistentRequest, hooks, init};
use crate::store::{
    ContainerDir, JoinTarget, LivingMember, Lock, Member, ProcessIdentity, Record, Role, Store, remove_layer,
};
use oci_spec::runtime::LinuxNamespaceType;
use rt_launch::job_environment::JobEnvironment;
use rt_launch::request::{STEP_TASKS, StepContainer};
use rt_launch::slurm::TaskName;
use rt_launch::task::TaskId;
use rt_spec::rootless::UserMap;
use rt_spec::state::Status;
use rt_spec::{Process, annotations, rootless};
use rt_sys::caller::Caller;
use rt_sys::error::{Context, Result};
use rt_sys::ns::{self, Namespace, Namespaces};
use rt_sys::{bail, err, fd, look, process, tty};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs;
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// How often a task looks again whether members are there that it can join, after one millisecond, two, four and so on: a second
/// in all. A member that has just become its program cannot be looked into for a moment, which is long on a full machine.
const TRIES: u32 = 10;

/// Runs a task of a Slurm step and returns its exit code; does not return where the task takes this process's
/// place.
pub(crate) fn run_task(store: &Store, mut options: CreateOptions) -> Result<u8> {
    super::protect::protect_binary()?;
    options.enter_bundle()?;
    let read = options.has_slurms_config().then(|| BundleConfig::read(&options)).transpose()?;
    if let (Some(task), Some(read)) = (&mut options.task, &read) {
        // Slurm has written the job's variables into the config: what the job says is not known before.
        task.job = JobEnvironment::of_config(&read.config.spec, &read.bundle);
        // Not before: until then nobody knows what of this process's environment an image has set.
        rt_launch::slurm::read_own_environment(task);
    }
    if let Some(checkpoint) = checkpoint_of_job(&options)? {
        options.keep(checkpoint);
    }
    let request = StartRequest::settle(options)?;
    let loaded = read.map(|read| load_read(&request, read)).transpose()?;
    let shared = request.task.as_ref().filter(|task| task.share).and_then(|task| task.id.clone());
    let Some((container, step, number)) = shared.and_then(|id| Some((id.container, id.step, id.task?)))
    else {
        return run_alone(store, request, loaded);
    };
    let place = request.persistent.as_ref().and_then(|kept| kept.save.clone());
    let note_save = |dir: &ContainerDir| match place.as_deref().and_then(Path::parent) {
        Some(parent) => dir.note_save(&step.to_string(), parent),
        None => Ok(()),
    };
    share(store, request, &container, number, loaded, note_save)
}

/// The checkpoints that the environment of a job has asked for, of a task whose config Slurm has written.
fn checkpoint_of_job(options: &CreateOptions) -> Result<Option<Box<dyn Checkpoint>>> {
    let (Some(open), Some(task)) = (options.opens_checkpoints, &options.task) else { return Ok(None) };
    let (Some(id), Some(asked)) = (&task.id, StepContainer::of_job(&task.job)?) else { return Ok(None) };
    let Some(dir) = asked.checkpoints(id, task.job.get(STEP_TASKS))? else { return Ok(None) };
    open(&dir, id, &|name| task.job.setting(name)).map(Some)
}

/// Makes or joins `container`, or runs in one of its own where that is of another image or cannot be joined. `number` is what
/// the process is known by in it, and `loaded` its config, where that has been loaded.
pub(super) fn share(
    store: &Store,
    request: StartRequest,
    container: &str,
    number: u32,
    mut loaded: Option<Loaded>,
    note_save: impl Fn(&ContainerDir) -> Result<()>,
) -> Result<u8> {
    let proc = fd::open_proc()?;
    let (mut lock, mut tries) = (Lock::Shared, 0);
    loop {
        match store.enter_shared(container, lock, request.run.is_some(), proc.as_fd())? {
            Role::Maker(dir) => {
                if let Some(kept) = &request.persistent {
                    begin_persistent(store, kept, &dir)?;
                }
                note_save(&dir)?;
                return create::run_shared(store, request, loaded, &dir);
            }
            Role::Joiner(dir, target) => {
                note_save(&dir)?;
                let user_map = match request.persistent {
                    // The ids are those of the user namespace that is there, whatever this step asks for.
                    Some(_) => annotations::user_map(&dir.spec()?)?,
                    None => request.user_map,
                };
                let found = match loaded.take() {
                    Some(found) => found,
                    None => load_to_join(&request, user_map, &dir)?,
                };
                let task =
                    Joining::new(&request, user_map, found, &dir, number, target.ignored, proc.as_fd())?;
                let same_image = task.is_of_image(store, &target.rootfs)?;
                if same_image && let Some(code) = task.join(store, &dir, target)? {
                    return Ok(code);
                }
                if !same_image || tries == TRIES {
                    // Another image, or members that have made themselves undumpable for good.
                    return run_alone(store, request, None);
                }
                // The members have ended, or are joining themselves and cannot be looked into until their exec. The
                // exclusive lock is there when those that join have become their programs. One that is killed lives on for
                // a moment in which nobody can join it.
                if lock == Lock::Exclusive {
                    drop(dir);
                    let pause = rustix::time::Timespec { tv_sec: 0, tv_nsec: 1_000_000 << tries };
                    let _ = rustix::thread::nanosleep(&pause);
                    tries += 1;
                }
                lock = Lock::Exclusive;
            }
        }
    }
}

/// Looks whether a container that outlives its step may be started, in which nobody lives.
#[cold]
fn begin_persistent(store: &Store, kept: &PersistentRequest, dir: &ContainerDir) -> Result<()> {
    if kept.must_run {
        store.forget(dir)?;
        bail!("container {} is not running", dir.id);
    }
    if dir.is_kept()? {
        return require_layer(kept, dir);
    }
    // The state does not survive the node's end, and a layer may.
    remove_layer(&kept.container.layer)
}

/// Looks whether the layer is still there, and fits: where TmpFS is a job's own (job_container/tmpfs), it goes with that job. Who has
/// named an image gets a container that begins with it; for others the name is free again.
fn require_layer(kept: &PersistentRequest, dir: &ContainerDir) -> Result<()> {
    let layer = &kept.container.layer;
    if fs::lstat(layer).err() != Some(Errno::NOENT) {
        return kept.container.check_file().map_err(|e| e.context(format_args!("container {}", dir.id)));
    }
    if !kept.image_named {
        dir.unkeep()?;
        bail!("container {} is gone: {} was another job's", dir.id, layer.display());
    }
    rt_sys::log::tell(format_args!(
        "container {} begins anew: {} was another job's",
        dir.id,
        layer.display()
    ));
    let tmpfs = layer.ancestors().nth(2).unwrap_or(Path::new("/"));
    crate::store::layer_directory(tmpfs, &dir.id).map(drop)
}

/// True where a program that joins has run the hooks of the stage precreate, as [`load_to_join`] has it: what they have confined is in its
/// own config, and what they have put into its environment. Elsewhere it is in that of the container alone.
fn has_run_hooks(request: &StartRequest) -> bool {
    request.image_file.is_none()
}

/// `process` with what keeps the programs of a container from anything, as `first` has it, which made the container. One that
/// has `own` confinement takes the capabilities that it names none of: without those it cannot uncover what is covered there.
fn confined_as(process: &Process, first: Option<&Process>, own: bool) -> Process {
    let mut process = process.clone();
    let Some(first) = first else { return process };
    if !own || process.capabilities().is_none() {
        process.set_capabilities(first.capabilities());
    }
    if !own {
        process.set_rlimits(first.rlimits().clone());
        process.set_no_new_privileges(first.no_new_privileges());
        process.set_apparmor_profile(first.apparmor_profile().clone());
        process.set_selinux_label(first.selinux_label().clone());
    }
    process
}

/// The config of a program that joins the container in `dir`, with `user_map`.
fn load_to_join(request: &StartRequest, user_map: Option<UserMap>, dir: &ContainerDir) -> Result<Loaded> {
    match &request.image_file {
        // What a hook of the stage precreate makes of the config is the program's environment, too.
        None => Loaded::new(request, BundleConfig::read(request)?, user_map)?.with_hooks(request),
        Some(file) => load_image(request, user_map, dir.image_config()?, file),
    }
}

/// The config `text` of an image without a bundle, for a program that joins its container. The bundle that is made of it is in the
/// first program's namespaces alone.
pub(super) fn load_image(
    request: &StartRequest,
    user_map: Option<UserMap>,
    text: Vec<u8>,
    file: &Path,
) -> Result<Loaded> {
    Loaded::new(request, BundleConfig::of_image(text, file, PathBuf::new())?, user_map)
}

/// The config of a bundle that has been read.
pub(super) fn load_read(request: &StartRequest, read: BundleConfig) -> Result<Loaded> {
    Loaded::new(request, read, request.user_map)?.with_hooks(request)
}

/// Runs a task in a container of its own; one of the same id that has ended is replaced.
pub(super) fn run_alone(store: &Store, request: StartRequest, loaded: Option<Loaded>) -> Result<u8> {
    if let Ok(dir) = store.container(&request.id)
        && dir.load().is_ok_and(|record| record.pid == 0)
    {
        // Without a record after that, whoever made or removed it was killed while doing so.
        dir.wait_until_made()?;
        if dir.load().is_ok_and(|record| record.pid == 0) {
            store.remove(&dir)?;
        }
    }
    if let Ok(record) = store.container(&request.id).and_then(|dir| dir.load())
        && record.pid != 0
    {
        // Slurm uses an id again as soon as its task has ended. The container's first process may not have been reaped
        // by then.
        if let Some(init) = record.open_first_process()? {
            lifecycle::wait_for_end(&init, 2)?;
        }
        if !record.is_alive()? {
            lifecycle::delete(store, &request.id, Deletion::IfStopped)?;
        }
    }
    create::run_settled(store, request.alone(), loaded)
}

/// A task that joins a container which is there.
struct Joining<'a> {
    /// The program has the caller's session keyring (`--no-new-keyring`).
    keeps_keyring: bool,
    number: u32,
    rank: Option<u32>,
    /// How many ranks the launcher starts.
    ranks: Option<u32>,
    /// The signals that the caller ignored: of a task those of the container's first one, since one process starts all.
    ignored: u64,
    config: rt_spec::Config,
    caller: Caller,
    plan: ProcessPlan,
    rootfs: PathBuf,
    proc: BorrowedFd<'a>,
    /// The task gets a copy of the container's mounts.
    own_mounts: bool,
    /// The container's config says which namespaces it has: another step may have made it.
    persistent: bool,
    /// Namespaces that the step wants to be the container's own.
    unshare: Vec<LinuxNamespaceType>,
}

impl<'a> Joining<'a> {
    fn new(
        request: &StartRequest,
        user_map: Option<UserMap>,
        Loaded { bundle, config, inherits_env, confinement, .. }: Loaded,
        dir: &ContainerDir,
        number: u32,
        ignored: u64,
        proc: BorrowedFd<'a>,
    ) -> Result<Self> {
        let caller = Caller::current()?;
        let spec = &config.spec;
        rt_spec::check(spec, &caller)?;
        let adapted = rootless::adapt(spec, &caller, user_map)?;
        let process = spec.process().as_ref().ok_or_else(|| err!("config.json: process is missing"))?;
        let own = has_run_hooks(request);
        // The container's config is long to read, and a join short: a program that has all of its own needs nothing of it.
        let made = if own && process.capabilities().is_some() { None } else { Some(dir.spec()?) };
        let first = made.as_ref().and_then(|made| made.process().as_ref());
        let process = &confined_as(process, first, own);
        let all_ids = rootless::all_ids(&caller, &adapted);
        let open_fds = request.preserve_fds.saturating_add(request.listen_fds);
        let linux = made.as_ref().filter(|_| !own).unwrap_or(spec).linux().as_ref();
        let mut plan = ProcessPlan::new(process, &adapted, linux, all_ids, open_fds, &mut Vec::new())?;
        plan.listen_fds = request.listen_fds;
        plan.confinement = confinement;
        if let Some(task) = &request.task {
            plan.set_task(spec, task);
        }
        let (mut rank, mut ignored) = (None, ignored);
        if let Some(run) = &request.run {
            plan.take_umask(Some(process), rt_sys::process::umask());
            if inherits_env {
                plan.inherit_pmi();
            }
            rank = run.rank;
            // A script may be between a rank and its launcher, and who names a run calls as he likes.
            ignored = process::stat(proc, "self")?.ignored;
        }
        if let Some(asked) = &request.entrypoint_first {
            // The first task has run it.
            plan.env = entrypoint::merge(&plan.env, &entrypoint::saved(dir.fd())?, &asked.env);
        }
        let root = spec.root().as_ref().ok_or_else(|| err!("config.json: root is missing"))?;
        let rootfs = match &request.image_file {
            Some(file) => file.clone(),
            None => bundle.join(annotations::image_file(spec).unwrap_or(root.path())),
        };
        let own_mounts = match (&request.persistent, &request.task) {
            (Some(kept), Some(task)) if kept.own_mounts => {
                let step = task.id.as_ref().map(|id| &id.step);
                let record = dir.load()?;
                record.step.as_ref().zip(step).is_none_or(|(a, b)| (&a.job, &a.step) != (&b.job, &b.step))
            }
            _ => false,
        };
        let unshare = request.task.as_ref().map(|task| task.unshare.clone()).unwrap_or_default();
        let persistent = request.persistent.is_some();
        Ok(Joining {
            keeps_keyring: request.no_new_keyring,
            number,
            rank,
            ranks: request.run.as_ref().and_then(|run| run.ranks),
            ignored,
            caller,
            plan,
            rootfs,
            proc,
            config,
            own_mounts,
            persistent,
            unshare,
        })
    }

    /// True where `rootfs`, the root of a container, is this task's image, or the place where that is mounted.
    fn is_of_image(&self, store: &Store, rootfs: &Path) -> Result<bool> {
        Ok(self.rootfs == rootfs
            || look::is_file(&self.rootfs)? && ImageMounts::root_of(store, &self.rootfs)? == rootfs)
    }

    /// Becomes the task's program beside a member that lives. `None` where none can be joined (any more).
    fn join(&self, store: &Store, dir: &ContainerDir, target: JoinTarget) -> Result<Option<u8>> {
        let tried = target.member;
        let holder = match (target.holds, self.ranks) {
            (true, Some(ranks)) => Some((target.pidfd.try_clone().context(|| "copy a pidfd")?, ranks)),
            _ => None,
        };
        if let Some(code) = self.join_member(store, dir, tried, target.pidfd, holder.as_ref())? {
            return Ok(Some(code));
        }
        // One that holds the container may not have executed its program yet.
        for member in dir.members()?.into_iter().filter(|member| member.pid != tried.pid) {
            if let Some(pidfd) = member.open(self.proc)?
                && let Some(code) = self.join_member(store, dir, member, pidfd, holder.as_ref())?
            {
                return Ok(Some(code));
            }
        }
        Ok(None)
    }

    /// Becomes the task's program beside `member`. `None` where that cannot be joined. The last of so many ranks ends the
    /// process that has held the container for them.
    fn join_member(
        &self,
        store: &Store,
        dir: &ContainerDir,
        member: Member,
        pidfd: OwnedFd,
        holder: Option<&(OwnedFd, u32)>,
    ) -> Result<Option<u8>> {
        let namespaces = match self.persistent {
            true => self.namespaces_of_persistent(dir)?,
            false => exec::configured_namespaces(&self.config.spec, &self.caller)?.0,
        };
        // The link of the member is made only after joining. Other tasks pass the pidfd of a member that they find to
        // setns(2), so who is listed must be inside already.
        let joined = || {
            dir.add_member(self.own_member(member.identity)?)?;
            match holder {
                Some((holder, ranks)) if dir.count_members()? >= *ranks as usize => {
                    rt_sys::signal::send_pidfd(holder, libc::SIGKILL).map(|_| ())
                }
                _ => Ok(()),
            }
        };
        let mut exec = Exec {
            shared: exec::shares_keyring(&self.caller, &self.config.spec, namespaces).then_some(&*dir.id),
            options: &ExecOptions::default(),
            plan: &self.plan,
            keeps_keyring: self.keeps_keyring,
            // Only a runtime that stays beside the program needs it, which is the case with a terminal.
            record: Record::default(),
            init: pidfd,
            proc: self.proc,
            namespaces,
            ignored: self.ignored,
            // Asked by opening /dev/tty while that is the host's. The other tasks' answers say nothing about this
            // one: srun --pty gives its terminal to one of them.
            on_terminal: !self.plan.terminal && tty::is_controlled(),
            joined: &joined,
        };
        if self.plan.terminal {
            // `enter` calls setns(2) again without the user namespace where this process is in it already. start_child does
            // not, so the namespaces to join are compared here, in the member's /proc. That is closed while the member is
            // undumpable, before its exec: then it cannot be joined.
            let Ok(namespaces) = exec::namespaces(&self.config.spec, &self.caller, self.proc, member.pid)
            else {
                return Ok(None);
            };
            exec.namespaces = namespaces;
            exec.record = dir.load()?;
            return self.in_child(store, dir, &exec).map(Some);
        }
        // The container may be hostile: from here until the exec its processes cannot look into this one.
        exec.hide()?;
        if let Err(e) = enter(&exec.init, exec.namespaces) {
            init::show()?;
            return match e.is(libc::ESRCH) || e.is(libc::EPERM) {
                // ESRCH: the member has ended. EPERM: it is undumpable, and setns(2) asks for the right to ptrace it.
                true => Ok(None),
                false => Err(e.context("join the step's container")),
            };
        }
        if self.own_mounts {
            ns::unshare(Namespace::Mount).context(|| "copy the container's mounts")?;
        }
        match exec.finish(None, None, None) {
            Ok(never) => match never {},
            Err(e) => {
                dir.remove_member(self.number);
                Err(e)
            }
        }
    }

    /// The namespaces of a container that another step may have made, and asked other things of.
    fn namespaces_of_persistent(&self, dir: &ContainerDir) -> Result<Namespaces> {
        let namespaces = exec::configured_namespaces(&dir.spec()?, &self.caller)?.0;
        for kind in &self.unshare {
            let (namespace, name) = match kind {
                LinuxNamespaceType::Network => (Namespace::Network, "network"),
                LinuxNamespaceType::Ipc => (Namespace::Ipc, "IPC"),
                _ => (Namespace::Uts, "UTS"),
            };
            if !namespaces.contains(namespace) {
                bail!("RT_CONTAINER_UNSHARE: container {} is not in a separate {name} namespace", dir.id);
            }
        }
        Ok(namespaces)
    }

    /// This process as a member, beside one with the identity `other`.
    fn own_member(&self, other: ProcessIdentity) -> Result<Member> {
        let own = rustix::process::getpid();
        // With a terminal this is a child, and where the container has a PID namespace its getpid(2) is another number
        // than the host's.
        if !self.plan.terminal
            && let Some(identity) = ProcessIdentity::of(own, Some(other))
        {
            let pid = own.as_raw_nonzero().get();
            return Ok(Member { task: self.number, pid, identity, rank: self.rank });
        }
        let own = process::stat(self.proc, "self")?;
        let identity = ProcessIdentity::StartTime(own.start_time);
        Ok(Member { task: self.number, pid: own.pid, identity, rank: self.rank })
    }

    /// Has a child become the program, and shows its terminal.
    fn in_child(&self, store: &Store, dir: &ContainerDir, exec: &Exec<'_>) -> Result<u8> {
        let (child, terminal) = exec.start_child()?;
        // The child has become the program. This process stays, and must not keep others from joining.
        dir.unlock()?;
        let code = exec::watch(&child, terminal)?;
        // Read before the container is removed.
        let hooks = hooks::saved(dir).unwrap_or_else(|e| {
            log::warn!("poststop hooks do not run: {e}");
            Default::default()
        });
        if store.leave(dir, self.number)? {
            hooks::run_poststop(&hooks, &exec.record);
        }
        Ok(code)
    }
}

/// Joins the namespaces `kinds` of the process behind `pidfd` by one setns(2).
///
/// A process cannot join the user namespace that it is in already, as it is where the caller made none for the step:
/// setns(2) fails with EINVAL then, before it has joined any of them. To call it again without the user namespace
/// costs less than to compare the namespaces of both processes in /proc before.
fn enter(pidfd: &OwnedFd, kinds: Namespaces) -> Result<()> {
    match ns::join(pidfd, kinds) {
        Err(e) if e.is(libc::EINVAL) && kinds.contains(Namespace::User) => {
            ns::join(pidfd, kinds.without(Namespace::User))
        }
        result => result,
    }
}

/// What an id of a task, or of all tasks of a step, stands for.
struct Tasks {
    /// The container that tasks share.
    shared: Option<(ContainerDir, TaskId)>,
    /// The ids of containers that belong to one task each.
    own: Vec<String>,
}

impl Tasks {
    fn find(store: &Store, id: &str) -> Result<Tasks> {
        crate::store::check_id(id)?;
        let parsed = TaskId::parse(id);
        let own = match &parsed {
            Some(TaskId { task: None, container, .. }) => store.tasks_of(container)?,
            _ => vec![id.to_owned()],
        };
        let mut tasks = Tasks { shared: None, own: Vec::new() };
        for id in own {
            if store.find(&id)?.is_some() {
                tasks.own.push(id);
            }
        }
        if let Some(id) = parsed {
            tasks.shared = store.find(&id.container)?.map(|dir| (dir, id));
        }
        Ok(tasks)
    }

    /// The members of the shared container that live, of those that the id means.
    fn living(&self) -> Result<Vec<LivingMember>> {
        let Some((dir, id)) = &self.shared else { return Ok(Vec::new()) };
        let meant = |member: &LivingMember| id.task.is_none_or(|task| task == member.task);
        Ok(dir.living_members()?.into_iter().filter(meant).collect())
    }
}

/// The status of a task, or of all tasks of the step together. A task that is unknown is `Stopped`.
pub(crate) fn tasks_status(store: &Store, id: &str) -> Result<Status> {
    let tasks = Tasks::find(store, id)?;
    let mut runs = !tasks.living()?.is_empty();
    for id in &tasks.own {
        // One that is gone, or whose state says nothing, runs as little as one that has stopped: Slurm then deletes it.
        if let Ok(record) = store.load(id) {
            runs |= store.status(&record)? != Status::Stopped;
        }
    }
    Ok(if runs { Status::Running } else { Status::Stopped })
}

/// Sends `number` to a task, or to every process of the step's container. A task that is not there is no error.
pub(crate) fn tasks_kill(store: &Store, id: &str, number: i32) -> Result<()> {
    let tasks = Tasks::find(store, id)?;
    for id in &tasks.own {
        if let Ok(record) = store.load(id) {
            signal_known(store, &record, number)?;
        }
    }
    let Some((dir, id)) = &tasks.shared else { return Ok(()) };
    let record = dir.load()?;
    if id.task.is_none() || dir.living_members()?.is_empty() {
        return signal_known(store, &record, number);
    }
    for member in tasks.living()? {
        members::signal_first(&member_record(&record, member), number)?;
    }
    Ok(())
}

/// Sends `number` to every process of the container. Processes of which nobody can know whether they are the container's
/// get none: they may be anybody's, and Slurm ends what is left of a step.
fn signal_known(store: &Store, record: &Record, number: i32) -> Result<()> {
    let members = Members::of(store, record)?;
    match members.known() {
        Ok(()) => members.signal(number),
        Err(unknown) => {
            log::warn!("{unknown}");
            Ok(())
        }
    }
}

/// A task of a step that lives.
#[derive(Debug)]
pub(crate) struct RunningTask {
    /// Its id as Slurm names it.
    pub id: String,
    /// Its pid.
    pub pid: i32,
}

/// The container of a step, and one task of it where the user has named one.
#[derive(Debug)]
pub(crate) struct StepTask {
    /// The container's id.
    pub container: String,
    /// The task, which lives.
    pub task: Option<RunningTask>,
}

/// The container of the step that a user names. `None` where `name` is no such name, or no container of that job is
/// here.
pub(crate) fn find_step(store: &Store, name: &str) -> Result<Option<StepTask>> {
    let Some(wanted) = TaskName::parse(name) else { return Ok(None) };
    let runs = |record: &Record| !matches!(store.status(record), Ok(Status::Stopped));
    let meant = |record: &Record| record.step.as_ref().is_some_and(|step| wanted.means(step)) && runs(record);
    let records: Vec<Record> = store.list()?.into_iter().filter(meant).collect();
    let Some(task) = wanted.task else {
        return match records.as_slice() {
            [] => Ok(None),
            [record] => Ok(Some(StepTask { container: record.id.clone(), task: None })),
            several => {
                let names: Vec<String> =
                    several.iter().filter_map(|s| Some(s.step.as_ref()?.to_string())).collect();
                bail!("job {name} has several containers here: {}", names.join(", "))
            }
        };
    };
    for record in records {
        let dir = store.container(&record.id)?;
        let own = TaskId::parse(&record.id).filter(|_| !record.shared);
        let own = own
            .filter(|id| id.task == Some(task))
            .map(|_| RunningTask { id: record.id.clone(), pid: record.pid });
        let member = dir.living_members()?.into_iter().find(|member| member.rank == task);
        let member =
            member.map(|member| RunningTask { id: format!("{}.{task}", record.id), pid: member.pid });
        if let Some(task) = own.or(member) {
            return Ok(Some(StepTask { container: record.id, task: Some(task) }));
        }
    }
    Ok(None)
}

/// The container of the run that a user names by `RUN[.RANK]`, where RUN may be the container's id. `None` where `name` is no
/// such name, or no container of that run is here.
pub(crate) fn find_run(store: &Store, name: &str) -> Result<Option<StepTask>> {
    let runs = |record: &Record| !matches!(store.status(record), Ok(Status::Stopped));
    let all: Vec<Record> = store.list()?.into_iter().filter(|r| r.run.is_some() && runs(r)).collect();
    let of =
        |run: &str| all.iter().filter(|r| r.run.as_deref() == Some(run) || r.id == run).collect::<Vec<_>>();
    match of(name).as_slice() {
        [] => {}
        [record] => return Ok(Some(StepTask { container: record.id.clone(), task: None })),
        several => {
            let ids: Vec<&str> = several.iter().map(|record| record.id.as_str()).collect();
            bail!("run {name} has several containers here: {}", ids.join(", "))
        }
    }
    let Some((run, Ok(rank))) = name.rsplit_once('.').map(|(run, rank)| (run, rank.parse::<u32>())) else {
        return Ok(None);
    };
    for record in of(run) {
        let members = store.container(&record.id)?.living_members()?;
        if let Some(member) = members.into_iter().find(|member| member.rank == rank) {
            let task = RunningTask { id: format!("{}.{rank}", record.id), pid: member.pid };
            return Ok(Some(StepTask { container: record.id.clone(), task: Some(task) }));
        }
    }
    Ok(None)
}

/// The environment that a process was started with.
pub(crate) fn environment(pid: i32) -> Result<Vec<String>> {
    let text = fd::read_at(fd::open_proc()?, format!("{pid}/environ").as_str())
        .context(|| format!("read the environment of process {pid}"))?;
    let variables = text.split(|&b| b == 0).filter(|v| !v.is_empty());
    Ok(variables.map(|v| String::from_utf8_lossy(v).into_owned()).collect())
}

/// Ends a task, every task of the step, or every task of the job where `id` is a number, and removes the containers
/// that no task is left in. A task that is not there is no error.
pub(crate) fn tasks_delete(store: &Store, id: &str) -> Result<()> {
    if let Some(job) = TaskName::parse(id).filter(|name| name.step.is_none()) {
        // A start that has failed may have left no record. What it was to start from still says whose it is.
        let is_kept_for = |id: &str| match store.persistent(id) {
            Ok(Some(kept)) => TaskName::parse(&kept.maker).is_some_and(|maker| maker.job == job.job),
            _ => false,
        };
        let of_job = |record: &Record| match &record.step {
            Some(step) => job.means(step),
            None => is_kept_for(&record.id),
        };
        // What is there for all jobs stays.
        let stays = |record: &Record| matches!(store.persistent(&record.id), Ok(Some(kept)) if kept.global);
        // What holds up one of them keeps no other.
        let mut deleted = Ok(());
        for record in store.list()?.into_iter().filter(of_job).filter(|record| !stays(record)) {
            deleted = deleted.and(lifecycle::delete(store, &record.id, Deletion::ForcedForSlurm));
        }
        return deleted;
    }
    let tasks = Tasks::find(store, id)?;
    for id in &tasks.own {
        lifecycle::delete(store, id, Deletion::ForcedForSlurm)?;
    }
    let Some((dir, id)) = &tasks.shared else { return Ok(()) };
    if let Some(task) = id.task {
        let record = dir.load()?;
        for member in tasks.living()? {
            lifecycle::end(&member_record(&record, member))?;
        }
        dir.remove_member(task);
        if !dir.living_members()?.is_empty() {
            return Ok(());
        }
    }
    lifecycle::delete(store, &id.container, Deletion::ForcedForSlurm)?;
    // Also where the state could not be read.
    store.forget_shared(&id.container);
    Ok(())
}

/// `record` with `member` in the place of the first process.
fn member_record(record: &Record, member: LivingMember) -> Record {
    Record { pid: member.pid, start_time: member.start_time, ..record.clone() }
}
