//! One container for the tasks of a step on a node: the first makes it, the others join it.
//!
//! A task reads its own config, so its program, environment, limits and filter are its own; namespaces,
//! mounts and hooks are those of the task that came first. Which of the two a task is, `store::step` tells.

use super::create;
use super::exec::{self, Exec};
use super::members::{self, Members};
use super::plan::{self, ProcessPlan};
use super::{CreateOptions, ExecOptions, hooks, init, lifecycle};
use crate::store::{Entry, Found, Living, Mark, Member, Note, State, Status, Store};
use rt_spec::rootless;
use rt_spec::slurm::{TaskId, TaskName};
use rt_sys::caller::Caller;
use rt_sys::error::{Context, Result};
use rt_sys::ns::{self, Namespace, Namespaces};
use rt_sys::{bail, err, fd, process, tty};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// Runs a task of a Slurm step and returns its exit code; does not return where the task takes this process's
/// place.
pub(crate) fn run_task(store: &Store, mut options: CreateOptions) -> Result<u8> {
    super::protect::protect_binary()?;
    options.bundle = std::path::absolute(&options.bundle).context(|| "bundle")?;
    // Before who looks for a container to join enters the bundle.
    options.make_absolute()?;
    let shared = options.task.as_ref().filter(|task| task.share).and_then(|task| task.id.clone());
    let Some((container, number)) = shared.and_then(|id| Some((id.container, id.task?))) else {
        return run_alone(store, options);
    };
    let proc = fd::open_proc()?;
    let mut alone = false;
    loop {
        match store.enter_shared(&container, alone, proc.as_fd())? {
            Found::Nobody(entry) => {
                options.id = container;
                return create::run_shared(store, options, &entry);
            }
            Found::Member(entry, living) => {
                let task = Joining::new(&options, number, living.ignored, proc.as_fd())?;
                let same = task.rootfs == living.rootfs;
                if same && let Some(code) = task.join(store, &entry, living)? {
                    return Ok(code);
                }
                if !same || alone {
                    // Another image, or members that nobody may look into.
                    return run_alone(store, options);
                }
                // The one that lived has gone, or is not ready itself.
                alone = true;
            }
        }
    }
}

/// Runs a task in a container of its own; one of the same id that has ended is replaced.
fn run_alone(store: &Store, options: CreateOptions) -> Result<u8> {
    if let Ok(state) = store.entry(&options.id).and_then(|entry| entry.load())
        && state.pid != 0
    {
        // Slurm uses an id again when its task has ended; the container's processes may still be about to.
        if let Some(init) = state.open_first()? {
            lifecycle::wait_for_end(&init, 2)?;
        }
        if !state.is_alive() {
            lifecycle::delete(store, &options.id, false)?;
        }
    }
    create::run(store, options)
}

/// A task that finds its container made.
struct Joining<'a> {
    number: u32,
    /// The signals that its caller ignores.
    ignored: u64,
    config: rt_spec::Config,
    caller: Caller,
    plan: ProcessPlan,
    rootfs: PathBuf,
    proc: BorrowedFd<'a>,
}

impl<'a> Joining<'a> {
    fn new(options: &CreateOptions, number: u32, ignored: u64, proc: BorrowedFd<'a>) -> Result<Self> {
        let caller = Caller::current()?;
        let bundle = create::enter_bundle(&options.bundle)?;
        let config = plan::load(options, &bundle)?;
        let spec = &config.spec;
        rt_spec::check(spec, &caller)?;
        let adapted = rootless::adapt(spec, &caller, options.user_map)?;
        let process = spec.process().as_ref().ok_or_else(|| err!("config.json: process is missing"))?;
        let linux = spec.linux().as_ref();
        let mut plan = ProcessPlan::new(process, &adapted, linux, options.preserve_fds, &mut Vec::new())?;
        if let Some(task) = &options.task {
            plan.set_task(spec, task);
        }
        let root = spec.root().as_ref().ok_or_else(|| err!("config.json: root is missing"))?;
        let rootfs = bundle.join(root.path());
        Ok(Joining { number, ignored, caller, plan, rootfs, proc, config })
    }

    /// Becomes the task's program beside a member that lives. `None` where none can be joined (any more).
    fn join(&self, store: &Store, entry: &Entry, living: Living) -> Result<Option<u8>> {
        let tried = living.member;
        if let Some(code) = self.join_member(store, entry, tried, living.pidfd)? {
            return Ok(Some(code));
        }
        for member in entry.members().into_iter().filter(|member| member.pid != tried.pid) {
            if let Some(pidfd) = member.open(self.proc)
                && let Some(code) = self.join_member(store, entry, member, pidfd)?
            {
                return Ok(Some(code));
            }
        }
        Ok(None)
    }

    /// The same beside `member`.
    fn join_member(&self, store: &Store, entry: &Entry, member: Note, pidfd: OwnedFd) -> Result<Option<u8>> {
        let joined = || entry.add_member(self.note(member.mark)?);
        let mut exec = Exec {
            options: &ExecOptions::default(),
            plan: &self.plan,
            // Only a process beside the program asks for it.
            state: State::default(),
            init: pidfd,
            proc: self.proc,
            namespaces: exec::configured_namespaces(&self.config.spec, &self.caller)?.0,
            ignored: self.ignored,
            // Its own session, while the host's /dev is still there: the others' say nothing of it.
            on_terminal: !self.plan.terminal && tty::is_controlled(),
            joined: &joined,
        };
        if self.plan.terminal {
            // It may be between joining and its exec, when its namespaces are not to be seen.
            let Ok(namespaces) = exec::namespaces(&self.config.spec, &self.caller, self.proc, member.pid)
            else {
                return Ok(None);
            };
            exec.namespaces = namespaces;
            exec.state = entry.load()?;
            return self.in_child(store, entry, &exec).map(Some);
        }
        exec.hide()?;
        if let Err(e) = enter(&exec.init, exec.namespaces) {
            init::show()?;
            // Gone, or not to be looked into.
            return match e.is(libc::ESRCH) || e.is(libc::EPERM) {
                true => Ok(None),
                false => Err(e.context("join the step's container")),
            };
        }
        match exec.finish(None, None, None) {
            Ok(never) => match never {},
            Err(e) => {
                entry.remove_member(self.number);
                Err(e)
            }
        }
    }

    /// This process as a member, beside one with the mark `other`.
    fn note(&self, other: Mark) -> Result<Note> {
        let own = rustix::process::getpid();
        // With a terminal it is a child, whose own idea of its pid is another where it has a PID namespace.
        if !self.plan.terminal
            && let Some(mark) = Mark::own(own, Some(other))
        {
            return Ok(Note { task: self.number, pid: own.as_raw_nonzero().get(), mark });
        }
        let own = process::stat(self.proc, "self")?;
        Ok(Note { task: self.number, pid: own.pid, mark: Mark::Start(own.start_time) })
    }

    /// With a terminal, which this process shows.
    fn in_child(&self, store: &Store, entry: &Entry, exec: &Exec<'_>) -> Result<u8> {
        let (child, terminal) = exec.start_child()?;
        entry.unlock()?;
        let code = exec::watch(&child, terminal)?;
        let hooks = hooks::saved(entry).unwrap_or_default();
        if store.leave(entry, self.number)? {
            hooks::run_poststop(&hooks, &exec.state);
        }
        Ok(code)
    }
}

/// Joins these namespaces. To join the user namespace that one is in is an error, which costs less to meet than to
/// look for.
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
    shared: Option<(Entry, TaskId)>,
    /// Containers that are a task's alone.
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
        let own = own.into_iter().filter(|id| store.entry(id).is_ok()).collect();
        let shared = parsed.and_then(|id| Some((store.entry(&id.container).ok()?, id)));
        Ok(Tasks { shared, own })
    }

    /// The members of the shared container that are meant and live.
    fn living(&self) -> Vec<Member> {
        let Some((entry, id)) = &self.shared else { return Vec::new() };
        let meant = |member: &Member| id.task.is_none_or(|task| task == member.task);
        entry.living_members().into_iter().filter(meant).collect()
    }
}

/// Whether a task runs, or any task of the step. Of tasks that nobody knows the answer is `Stopped`.
pub(crate) fn tasks_status(store: &Store, id: &str) -> Result<Status> {
    let tasks = Tasks::find(store, id)?;
    let mut all = tasks.own.iter().filter_map(|id| Some(store.status(&store.load(id).ok()?)));
    let runs = !tasks.living().is_empty() || all.any(|status| status != Status::Stopped);
    Ok(if runs { Status::Running } else { Status::Stopped })
}

/// Sends `number` to a task, or to every process of the step's container. What is not there needs no signal.
pub(crate) fn tasks_kill(store: &Store, id: &str, number: i32) -> Result<()> {
    let tasks = Tasks::find(store, id)?;
    for id in &tasks.own {
        if let Ok(state) = store.load(id) {
            Members::of(store, &state)?.signal(number)?;
        }
    }
    let Some((entry, id)) = &tasks.shared else { return Ok(()) };
    let state = entry.load()?;
    if id.task.is_none() || entry.living_members().is_empty() {
        return Members::of(store, &state)?.signal(number);
    }
    for member in tasks.living() {
        members::signal_first(&member_state(&state, member), number)?;
    }
    Ok(())
}

/// The container of a step, and one task of it where the user has named one.
#[derive(Debug)]
pub(crate) struct StepTask {
    /// The container's id.
    pub container: String,
    /// The task's id and its pid. It lives.
    pub task: Option<(String, i32)>,
}

/// The container of the step that a user names. `None` where `name` is no such name, or no container of that job is
/// here.
pub(crate) fn find_step(store: &Store, name: &str) -> Result<Option<StepTask>> {
    let Some(wanted) = TaskName::parse(name) else { return Ok(None) };
    let meant = |state: &State| state.step.as_ref().is_some_and(|step| wanted.means(step));
    let states: Vec<State> = store.list()?.into_iter().filter(meant).collect();
    let Some(task) = wanted.task else {
        return match states.as_slice() {
            [] => Ok(None),
            [state] => Ok(Some(StepTask { container: state.id.clone(), task: None })),
            several => {
                let names: Vec<String> =
                    several.iter().filter_map(|s| Some(s.step.as_ref()?.to_string())).collect();
                bail!("job {name} has several containers here: {}", names.join(", "))
            }
        };
    };
    for state in states {
        let entry = store.entry(&state.id)?;
        let own = TaskId::parse(&state.id).filter(|_| !state.shared);
        let own = own.filter(|id| id.task == Some(task)).map(|_| (state.id.clone(), state.pid));
        let member = || entry.living_members().into_iter().find(|member| member.task == task);
        let member = || member().map(|member| (format!("{}.{task}", state.id), member.pid));
        if let Some(task) = own.or_else(member) {
            return Ok(Some(StepTask { container: state.id, task: Some(task) }));
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

/// Ends a task, every task of the step, or (`id` is a number) of the job, and forgets it. What is not there is
/// forgotten already.
pub(crate) fn tasks_delete(store: &Store, id: &str) -> Result<()> {
    if let Some(job) = TaskName::parse(id).filter(|name| name.step.is_none()) {
        let of_job = |state: &State| state.step.as_ref().is_some_and(|step| job.means(step));
        for state in store.list()?.into_iter().filter(of_job) {
            lifecycle::delete(store, &state.id, true)?;
        }
        return Ok(());
    }
    let tasks = Tasks::find(store, id)?;
    for id in &tasks.own {
        lifecycle::delete(store, id, true)?;
    }
    let Some((entry, id)) = &tasks.shared else { return Ok(()) };
    if let Some(task) = id.task {
        let state = entry.load()?;
        for member in tasks.living() {
            lifecycle::end(&member_state(&state, member))?;
        }
        entry.remove_member(task);
        if !entry.living_members().is_empty() {
            return Ok(());
        }
    }
    lifecycle::delete(store, &id.container, true)?;
    // Also where the state could not be read.
    store.forget_shared(&id.container);
    Ok(())
}

/// `state` with `member` as first process.
fn member_state(state: &State, member: Member) -> State {
    State { pid: member.pid, start_time: member.start_time, ..state.clone() }
}
