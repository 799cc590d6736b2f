//! exec: another program in a running container.

use super::handover::{self, ConsoleSockets};
use super::plan::{self, ProcessPlan};
use super::sync::{self, FromInit, Link};
use super::{ExecOptions, Ids, Signalled, devices, foreground, hooks, init, program};
use crate::store::{Record, Store};
use oci_spec::runtime::{LinuxNamespace, LinuxNamespaceType};
use rt_spec::rootless::{self, Adapted};
use rt_spec::state::Status;
use rt_spec::{Linux, Process, Spec, environment};
use rt_sys::caller::{Caller, Privilege};
use rt_sys::error::{Context, Error, Result};
use rt_sys::ns::{self, Namespace, Namespaces};
use rt_sys::process::{self, Child, Memory};
use rt_sys::seccomp::Filter;
use rt_sys::{bail, err, fd, signal, tty};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::convert::Infallible;
use std::path::Path;

/// Runs another program in a running container and returns its exit code (0 where detached).
pub(crate) fn exec(store: &Store, mut options: ExecOptions) -> Result<u8> {
    super::protect::protect_binary()?;
    options.handover.make_absolute()?;
    let dir = store.container(&options.id)?;
    let record = store.load(&options.id)?;
    match store.status(&record)? {
        Status::Running | Status::Created => {}
        Status::Paused if options.ignore_paused => {}
        Status::Paused => bail!("cannot exec in a paused container"),
        Status::Creating => {
            bail!("cannot exec in a container that is being created: container not running: {}", options.id)
        }
        Status::Stopped => {
            bail!("cannot exec in a container that has stopped: container not running: {}", options.id)
        }
    }
    let Some(init) = record.open_first_process()? else {
        bail!("cannot exec in a container that has stopped: container not running: {}", options.id)
    };
    let config = dir.spec()?;
    let caller = Caller::current()?;
    let adapted = rootless::adapt(&config, &caller, None)?;
    let proc = fd::open_proc()?;
    let namespaces = namespaces(&config, &caller, proc.as_fd(), record.pid)?;
    let in_hosts_namespace = caller.privilege == Privilege::Root && !namespaces.contains(Namespace::User);
    let mut plan = process_plan(&options, &config, adapted, in_hosts_namespace)?;
    plan.confinement = record.confinement;
    let socket = options.handover.console_socket.is_some();
    match (plan.terminal, socket, options.detach) {
        (true, false, true) => {
            bail!("cannot allocate tty if the process is detached without --console-socket")
        }
        (false, true, _) => bail!("cannot use console socket if the process asks for no terminal"),
        _ => {}
    }
    let own = process::stat(&proc, "self")?;
    let exec = Exec {
        shared: (record.shared && shares_keyring(&caller, &config, namespaces)).then_some(&*options.id),
        options: &options,
        plan: &plan,
        keeps_keyring: record.keeps_keyring,
        record,
        init,
        proc: proc.as_fd(),
        namespaces,
        ignored: own.ignored,
        on_terminal: own.terminal,
        joined: &|| Ok(()),
    };
    let alone = !namespaces.contains(Namespace::Pid)
        && !plan.terminal
        && !options.detach
        && options.handover.pidfd_socket.is_none();
    if alone {
        return Err(exec.in_place());
    }
    exec.in_child()
}

/// One program that is about to enter a container.
pub(super) struct Exec<'a> {
    /// The container's id, where its programs share a session keyring.
    pub shared: Option<&'a str>,
    pub options: &'a ExecOptions,
    pub plan: &'a ProcessPlan,
    pub record: Record,
    /// The container's first process.
    pub init: OwnedFd,
    pub proc: BorrowedFd<'a>,
    /// The namespaces to join.
    pub namespaces: Namespaces,
    /// The signals that the caller ignores, bit n-1 for signal n. The program gets their default actions.
    pub ignored: u64,
    /// The caller's session has a controlling terminal.
    pub on_terminal: bool,
    /// The program has the caller's session keyring, as the container was asked to (`--no-new-keyring`).
    pub keeps_keyring: bool,
    /// Called in the process that becomes the program, once it is in all namespaces.
    pub joined: &'a dyn Fn() -> Result<()>,
}

impl Exec<'_> {
    /// Becomes the program in this process; returns only the error.
    fn in_place(&self) -> Error {
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        let written = self.hide().and_then(|()| {
            // The user namespace is joined by itself, as where there is a child: become_program joins the others. The
            // pid file is written in between, while this process still has the host's mount namespace.
            ns::join(&self.init, self.namespaces.only(Namespace::User))?;
            self.options.handover.write_pid(pid)
        });
        match written.and_then(|()| self.become_program(None, None, None)) {
            Ok(never) => match never {},
            Err(e) => {
                self.options.handover.remove_pid();
                e
            }
        }
    }

    /// Has a child become the program, and waits for it unless it is detached.
    fn in_child(&self) -> Result<u8> {
        let (child, receiver) = self.start_child()?;
        if self.options.detach { Ok(0) } else { watch(&child, receiver) }
    }

    /// Has a child become the program. Returns when that runs, with the socket that its terminal comes by.
    pub(super) fn start_child(&self) -> Result<(Child, Option<OwnedFd>)> {
        signal::block_all();
        let (link, child_link) = sync::pair()?;
        let ConsoleSockets { sender: console, receiver } =
            self.options.handover.console(self.plan.terminal)?;
        let runtime =
            rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty())
                .context(|| "open a pidfd")?;
        // The kernel lets a process join a time namespace only if it shares its memory with nobody (setns(2), EUSERS):
        // the namespace decides which clock page is mapped in that memory.
        let copied = self.plan.terminal
            || self.options.detach
            || self.notifies()
            || self.namespaces.contains(Namespace::Time);
        let memory = if copied { Memory::Copied } else { Memory::Shared };
        self.hide()?;
        // setns(2) moves into a PID namespace the children that are made after it, never the caller. The user namespace
        // is joined with it, because it gives the right to join the PID namespace that it owns. The child joins the
        // others itself: this process must stay on the host, where it has files and sockets of its caller's.
        let first = Namespaces::from_iter([Namespace::Pid, Namespace::User]);
        ns::join(&self.init, self.namespaces.only(first)).context(|| "join the container")?;
        let child = process::spawn(Namespaces::NONE, memory, || {
            let console = console.as_ref().map(AsFd::as_fd);
            let error = match self.become_program(Some(&child_link), console, Some(runtime.as_fd())) {
                Ok(never) => match never {},
                Err(e) => e,
            };
            let _ = child_link.tell(&FromInit::Failed(error));
            1
        })
        .context(|| "start a process in the container")?;
        drop(child_link);
        drop(console);
        if let Err(e) = self.attend(&link, &child) {
            child.end();
            return Err(e);
        }
        Ok((child, receiver))
    }

    /// Keeps processes of the container, which may be hostile, from looking into this one once it has joined: it
    /// still has memory and descriptors of the host's.
    pub(super) fn hide(&self) -> Result<()> {
        // These CPUs are for the time until the process is in the container (config.md "execCPUAffinity").
        if let Some(cpus) = &self.plan.affinity.before {
            program::set_affinity(cpus)?;
        }
        init::hide(self.plan, self.proc)
    }

    /// Joins the rest of the namespaces and becomes the program, in the process that does so.
    fn become_program(
        &self,
        link: Option<&Link>,
        console: Option<BorrowedFd<'_>>,
        runtime: Option<BorrowedFd<'_>>,
    ) -> Result<Infallible> {
        init::end_with(runtime)?;
        let rest = self.namespaces.without(Namespace::Pid).without(Namespace::User);
        ns::join(&self.init, rest).context(|| "join the container's namespaces")?;
        self.finish(link, console, runtime)
    }

    /// Becomes the program in a process that is in all namespaces.
    pub(super) fn finish(
        &self,
        link: Option<&Link>,
        console: Option<BorrowedFd<'_>>,
        runtime: Option<BorrowedFd<'_>>,
    ) -> Result<Infallible> {
        if !self.keeps_keyring {
            init::leave_session_keyring(self.shared)?;
        }
        (self.joined)()?;
        // kill(2) with pid 0 reaches the whole process group, also its members in other PID namespaces: without a
        // session of its own a program could end processes of its caller's.
        let new_session =
            self.options.detach || self.plan.terminal || self.namespaces.contains(Namespace::Pid);
        if new_session {
            let _ = rustix::process::setsid();
        }
        self.plan.close_others()?;
        if let Some(console) = console {
            self.make_terminal(console)?;
        }
        let prepared = self.plan.prepare(self.on_terminal && !new_session, |listener| match link {
            Some(link) => {
                link.tell(&FromInit::Listener(listener.as_raw_fd()))?;
                link.wait().map(|_| ())
            }
            None => Ok(()),
        })?;
        if let Some(cpus) = &self.plan.affinity.inside {
            program::set_affinity(cpus)?;
        }
        // Asked for again: the kernel clears the parent-death signal where a process changes its effective ids or gains
        // capabilities (PR_SET_PDEATHSIG(2const)).
        init::end_with(runtime)?;
        if self.options.detach
            && let Some(link) = link
        {
            link.tell(&FromInit::Ready(None))?;
            link.wait()?;
            rustix::process::set_parent_process_death_signal(None)?;
        }
        Err(self.plan.exec(&prepared, self.ignored))
    }

    fn make_terminal(&self, console: BorrowedFd<'_>) -> Result<()> {
        let pty = devices::open_terminal(self.proc)?;
        tty::set_size(&pty.slave, self.plan.console_size)?;
        let shown = match self.options.handover.console_socket {
            None => init::Shown::ByRuntime,
            Some(_) => init::Shown::ByCaller,
        };
        init::hand_over(pty, console, shown, self.plan.uid)
    }

    /// Does what the child asks for; returns when the program runs.
    fn attend(&self, link: &Link, child: &Child) -> Result<()> {
        let pid = child.pid.as_raw_nonzero().get();
        loop {
            match link.hear()? {
                Some(FromInit::Ready(_)) => link.go(pid)?,
                Some(FromInit::Failed(e)) => return Err(e),
                Some(FromInit::Listener(fd)) => {
                    if let Some(plan) = &self.plan.seccomp {
                        let state = hooks::state_json(&self.record, Status::Running)?;
                        handover::pass_listener(plan, &child.pidfd, fd, pid, &state)?;
                    }
                    link.go(pid)?;
                }
                Some(_) => {}
                None => break,
            }
        }
        self.options.handover.hand_over_process(pid, &child.pidfd)
    }

    fn notifies(&self) -> bool {
        self.plan.seccomp.as_ref().is_some_and(|s| s.filter.notifies)
    }
}

/// Waits for `child` with its terminal, if it has one, shown on ours, and returns its exit code.
pub(super) fn watch(child: &Child, terminal: Option<OwnedFd>) -> Result<u8> {
    match terminal {
        Some(socket) => {
            foreground::relay(child, &tty::receive_fd(&socket)?, |_| Ok(Signalled::PassOn), || Ok(()))
        }
        None => foreground::wait(child, |_| Ok(Signalled::PassOn), || Ok(())),
    }
}

/// The namespaces that the config makes or joins, and the kinds of those that it joins.
pub(super) fn configured_namespaces(config: &Spec, caller: &Caller) -> Result<(Namespaces, Vec<Namespace>)> {
    let none = Linux::default();
    let (new, joined) = plan::configured_namespaces(config.linux().as_ref().unwrap_or(&none), caller)?;
    let joined: Vec<Namespace> = joined.into_iter().map(|(kind, _)| kind).collect();
    Ok((joined.iter().fold(new, |all, kind| all.with(*kind)), joined))
}

/// The namespaces of the container that are not the caller's.
pub(super) fn namespaces(
    config: &Spec,
    caller: &Caller,
    proc: BorrowedFd<'_>,
    pid: i32,
) -> Result<Namespaces> {
    let (mut kinds, joined) = configured_namespaces(config, caller)?;
    // setns(2) refuses the user namespace that the caller is in already. A namespace that the config names by its path
    // may be the caller's too, and the caller may have no right to join it again.
    for kind in joined.into_iter().chain([Namespace::User]) {
        if !kinds.contains(kind) {
            continue;
        }
        let of_container = ns::id(proc, &pid.to_string(), kind).map_err(|e| match e.is(libc::EACCES) {
            // Init lets nobody look into it while programs of the image run beside it.
            true => e.hint("until its program runs, nobody can enter a container whose startContainer hooks or entrypoint run"),
            false => e,
        })?;
        if ns::id(proc, "self", kind)? == of_container {
            kinds = kinds.without(kind);
        }
    }
    Ok(kinds)
}

/// True where the tasks of a container with this config, which has `namespaces` of its own, share a session keyring: its user namespace has
/// one id, and is no other container's ([`init::leave_session_keyring`]).
pub(super) fn shares_keyring(caller: &Caller, config: &Spec, namespaces: Namespaces) -> bool {
    let named = |one: &LinuxNamespace| one.typ() == LinuxNamespaceType::User && one.path().is_some();
    let all = config.linux().as_ref().and_then(|linux| linux.namespaces().as_ref());
    let is_anothers = all.is_some_and(|all| all.iter().any(named));
    caller.is_unprivileged() && namespaces.contains(Namespace::User) && !is_anothers
}

/// The seccomp filters of a container's program as a checkpoint has them, in the order in which they were loaded, and whether the kernel
/// has the same.
pub(crate) fn filters_of(
    config: &Spec,
    record: &Record,
    namespaces: Namespaces,
) -> Result<(Vec<Filter>, bool)> {
    let caller = Caller::current()?;
    let adapted = rootless::adapt(config, &caller, None)?;
    let process = config.process().as_ref().ok_or_else(|| err!("config.json: process is missing"))?;
    let in_hosts_namespace = caller.privilege == Privilege::Root && !namespaces.contains(Namespace::User);
    let linux = config.linux().as_ref();
    let mut plan = ProcessPlan::new(process, &adapted, linux, in_hosts_namespace, 0, &mut Vec::new())?;
    plan.confinement = record.confinement;
    let is_another = plan.seccomp.as_ref().is_some_and(|plan| plan.is_kept_as_another());
    Ok((plan.filters()?, !is_another))
}

/// What to run: the process file, or the container's process with what the command line changes.
fn process_plan(
    options: &ExecOptions,
    config: &Spec,
    adapted: Adapted,
    in_hosts_namespace: bool,
) -> Result<ProcessPlan> {
    let configured = config.process().as_ref().ok_or_else(|| err!("config.json: process is missing"))?;
    let mut ids = Ids { uid: adapted.uid, gid: adapted.gid };
    let process = match &options.process {
        Some(path) => {
            let mut process = read_process(path)?;
            if process.capabilities().is_none() {
                process.set_capabilities(configured.capabilities());
            }
            ids = Ids { uid: process.user().uid(), gid: process.user().gid() };
            process
        }
        None => {
            let mut process = configured.clone();
            if let Some(user) = &options.user {
                ids = Ids::parse(user)?;
            }
            change_process(&mut process, options, ids)?;
            process
        }
    };
    rt_spec::check_process(&process)?;
    let adapted = Adapted { uid: ids.uid, gid: ids.gid, ..adapted };
    let mut notes = Vec::new();
    let linux = config.linux().as_ref();
    let mut plan =
        ProcessPlan::new(&process, &adapted, linux, in_hosts_namespace, options.preserve_fds, &mut notes)?;
    if options.process.is_none() {
        // A person calls. Clients say all of the process in a file.
        plan.take_umask(Some(&process), rt_sys::process::umask());
    }
    plan.no_new_privs |= options.no_new_privs;
    if let Some(tty) = options.tty {
        plan.terminal = tty;
    }
    plan.apparmor = options.apparmor.clone().or(plan.apparmor);
    plan.selinux = options.process_label.clone().or(plan.selinux);
    for name in &options.caps {
        let cap = rt_sys::caps::by_name(name).ok_or_else(|| err!("unknown capability {name:?}"))?;
        plan.caps.bounding |= cap;
        plan.caps.effective |= cap;
        plan.caps.permitted |= cap;
        plan.caps.ambient |= cap & plan.caps.inheritable;
    }
    Ok(plan)
}

fn read_process(path: &Path) -> Result<Process> {
    let text = fd::read_file(path).context(|| format!("read {}", path.display()))?;
    // Read as a part of a config is, which leaves out capabilities that are not known.
    let wrapped = [b"{\"ociVersion\":\"1.0.0\",\"process\":".as_slice(), &text, b"}"].concat();
    let config = rt_spec::Config::parse(wrapped).context(|| path.display().to_string())?;
    config.spec.process().clone().ok_or_else(|| err!("{}: no process", path.display()))
}

fn change_process(process: &mut Process, options: &ExecOptions, ids: Ids) -> Result<()> {
    process.set_args(Some(options.args.clone()));
    process.set_terminal(Some(false));
    let base = options.base_env.as_ref().or(process.env().as_ref());
    let mut env = base.cloned().unwrap_or_default();
    env.extend(environment::expand(&options.env));
    if options.tty == Some(true) && !env.iter().any(|variable| variable.starts_with("TERM=")) {
        let callers = std::env::var("TERM").ok().filter(|term| !term.is_empty());
        env.push(callers.map_or_else(|| environment::DEFAULT_TERM.to_owned(), |term| format!("TERM={term}")));
    }
    process.set_env(Some(env));
    if let Some(cwd) = &options.cwd {
        process.set_cwd(cwd.clone());
    }
    let user = process.user_mut();
    user.set_uid(ids.uid).set_gid(ids.gid);
    if !options.additional_gids.is_empty() {
        user.set_additional_gids(Some(options.additional_gids.clone()));
    }
    Ok(())
}
