//! create and run: the runtime's side of making a container.

use super::handover::Streams;
use super::holder::{self, Holder};
use super::images::ImageMounts;
use super::init::{self, Init};
use super::lost::Watch;
use super::plan::{self, BundleConfig, Host, Layer, Loaded, Plan, Root};
use super::request::StartRequest;
use super::restored::{self, Adopted};
use super::root_emulation::Supervisor;
use super::sync::{self, FromInit, Link};
use super::trace::{self, Phase};
use super::{
    CreateOptions, Lifetime, RootAccess, Signalled, foreground, handover, hooks, layer, mounts, refused,
};
use crate::store::{ContainerDir, Member, ProcessIdentity, Record, Store, remove_layer};
use rt_launch::single_copy;
use rt_launch::task::TaskContext;
use rt_spec::Config;
use rt_spec::state::Status;
use rt_sys::caller::Caller;
use rt_sys::error::{Context, Error, Result};
use rt_sys::ns::{self, MountNamespaceId, Namespace, Namespaces, Setgroups};
use rt_sys::process::{self, Child, Memory};
use rt_sys::{bail, err, fd, signal, tty};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, OwnedFd};
use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

/// How many dead containers a run in place removes at most. A container in place leaves no runtime to remove it, so
/// later runs do, each a few: none of them is to take long.
const SWEPT_PER_RUN: usize = 16;

/// Creates a container whose program waits for `start`.
pub(crate) fn create(store: &Store, options: CreateOptions) -> Result<()> {
    let launch = Launch::new(store, CreateOptions { lifetime: Lifetime::Created, ..options })?;
    launch.check_terminal()?;
    launch.reserved(|launch, dir| launch.with_init(dir).map(|_| ()))
}

/// Creates and starts a container and returns its exit code (0 where detached).
///
/// Does not return where the container takes this process's place.
pub(crate) fn run(store: &Store, options: CreateOptions) -> Result<u8> {
    // Never dropped: this process ends with the container, and the kernel frees everything at once.
    let launch = ManuallyDrop::new(Launch::new(store, options)?);
    launch.check_terminal()?;
    if launch.request.lifetime.is_detached() {
        launch.reserved(|launch, dir| launch.with_init(dir).map(|_| ()))?;
        return Ok(0);
    }
    launch.reserved(Launch::attached)
}

/// Runs a container for a request that is settled, with its config where that has been loaded, and returns its exit code; does not
/// return where the container takes this process's place.
pub(super) fn run_settled(store: &Store, request: StartRequest, loaded: Option<Loaded>) -> Result<u8> {
    let id = request.id.clone();
    let launch = ManuallyDrop::new(Launch::settled(store, request, loaded, id)?);
    launch.check_terminal()?;
    launch.reserved(Launch::attached)
}

/// Runs the first of the programs that share the container in `dir`, as [`run_settled`] does. Where it fails, `dir` is removed.
/// A container that cannot be shared is the rank's own, by the id of the request.
pub(super) fn run_shared(
    store: &Store,
    request: StartRequest,
    loaded: Option<Loaded>,
    dir: &ContainerDir,
) -> Result<u8> {
    let layer = request.persistent.as_ref().map(|kept| kept.container.layer.clone());
    let launch = Launch::settled(store, request, loaded, dir.id.clone());
    let launch = launch.and_then(|launch| launch.check_terminal().map(|()| launch));
    let launch = launch.inspect_err(|_| {
        layer.iter().for_each(|layer| give_up_layer(dir, layer));
        store.forget_shared(&dir.id);
        let _ = store.remove(dir);
    })?;
    if launch.request.run.is_some() && launch.is_for_one() {
        store.forget_shared(&dir.id);
        store.remove(dir)?;
        dir.unlock()?;
        return launch.alone().reserved(Launch::attached);
    }
    launch.holding(dir, Launch::attached)
}

/// Removes the layer that was made for a container which could not be started, unless what is in it is kept. Before the container's
/// directory, since whoever waits for the lock makes both anew.
#[cold]
fn give_up_layer(dir: &ContainerDir, layer: &Path) {
    let removed = dir.is_kept().and_then(|kept| if kept { Ok(()) } else { remove_layer(layer) });
    if let Err(e) = removed {
        log::debug!("{e}");
    }
}

/// Everything that making one container needs.
struct Launch<'a> {
    store: &'a Store,
    request: StartRequest,
    /// The container's id. That of the request is the process's own, and another one where the container is shared.
    id: String,
    caller: Caller,
    plan: Plan,
    config: Config,
    images: ImageMounts,
    state_places: Vec<PathBuf>,
    proc: OwnedFd,
    copies: mounts::Trees,
    /// What is written to the root is gone with the container, and the caller has not asked for that.
    watch: Option<Watch>,
    /// Holds the container for ranks that are still to come.
    holder: Option<Holder>,
    /// The signal that has ended this before a program was restored.
    interrupted: Cell<Option<i32>>,
}

/// A running init and what is left to do with it.
struct Running {
    child: Child,
    record: Record,
    /// The terminal's master side, of a foreground container.
    terminal: Option<OwnedFd>,
    /// Answers the calls of root, where owners are recorded.
    supervisor: Option<Supervisor>,
}

impl<'a> Launch<'a> {
    fn new(store: &'a Store, mut options: CreateOptions) -> Result<Self> {
        super::protect::protect_binary()?;
        options.make_absolute()?;
        let id = options.id.clone();
        trace::begin(&options, &id)?;
        let request = StartRequest::settle(options);
        let made = request.and_then(|request| Self::planned(store, request, None, id));
        made.inspect_err(|e| trace::finish(None, Some(e)))
    }

    fn settled(store: &'a Store, request: StartRequest, loaded: Option<Loaded>, id: String) -> Result<Self> {
        trace::begin(&request, &id)?;
        let made = Self::planned(store, request, loaded, id);
        made.inspect_err(|e| trace::finish(None, Some(e)))
    }

    /// Plans the container. The images that are files are mounted before, in namespaces that this process enters: what the
    /// caller may do there, and where the paths of the config start, is known then.
    fn planned(store: &'a Store, request: StartRequest, loaded: Option<Loaded>, id: String) -> Result<Self> {
        let mut caller = Caller::current()?;
        let mut images = ImageMounts::new(request.extract);
        let mut loaded = match loaded {
            Some(loaded) => {
                trace::end(Phase::Load);
                loaded
            }
            None => load(&request, &mut images)?,
        };
        rt_spec::check(&loaded.config.spec, &caller)?;
        let state_places = crate::store::default_places(&caller)?;
        let root = Root::of(&loaded.config.spec, &loaded.bundle, loaded.foreign)?;
        let files = plan::needed_images(&loaded.config.spec, &loaded.bundle, &root)?;
        if !files.is_empty() {
            let made = images.mount(store, &files)?;
            // Relative paths start in the bundle, the working directory, as these namespaces show it.
            (loaded.bundle, _) = plan::enter_bundle(made.as_deref().unwrap_or(Path::new(".")))?;
            caller = Caller::current()?;
        }
        let host =
            Host { caller: &caller, images: &images, state: store.path(), state_places: &state_places };
        let (mut plan, config) = Plan::make(&request, &host, loaded, &root)?;
        if let Some(checkpoint) = &request.checkpoint {
            plan.refuse_filters()?;
            checkpoint.check_filters(&plan.process.filters()?, plan.hides_filters(&caller))?;
        }
        if request.restored().is_some() {
            restored::check(&plan)?;
            plan.process.is_restored = true;
        }
        if request.makes_first() {
            restored::leave_to_criu(&mut plan)?;
        }
        for note in &plan.notes {
            log::debug!("{note}");
        }
        layer::prepare(&mut plan, &id)?;
        let watch = if loses_in_silence(&plan, &request) { Some(Watch::new()?) } else { None };
        let proc = fd::open_proc()?;
        let copies = mounts::open_early(&plan, proc.as_fd())?;
        trace::end(Phase::Plan);
        if request.trace.is_some() {
            trace::describe(&config.spec, &plan.hooks, &request);
        }
        let holder = holder(&request, &plan);
        Ok(Launch {
            store,
            request,
            id,
            caller,
            plan,
            config,
            images,
            state_places,
            proc,
            copies,
            watch,
            holder,
            interrupted: Cell::new(None),
        })
    }

    /// This container, by the id of the request, for this process alone.
    fn alone(mut self) -> Self {
        self.id.clone_from(&self.request.id);
        self.plan.layer_user.clone_from(&self.id);
        let apart = if self.plan.is_supervised() { "--root-emulation" } else { "what waits for its end" };
        self.plan.apart = Some(apart.to_owned());
        if self.plan.maps.is_some() {
            single_copy::avoid(&mut self.plan.process.env);
        }
        Launch { request: self.request.alone(), ..self }
    }

    /// runc's rules on --console-socket; and the supervisor of root's calls is this process's to watch.
    fn check_terminal(&self) -> Result<()> {
        if self.plan.is_supervised() && self.request.lifetime.is_detached() {
            bail!("--root-emulation needs a container in the foreground");
        }
        let socket = self.request.handover.console_socket.is_some();
        match (self.plan.process.terminal, socket, self.request.lifetime.is_detached()) {
            (true, false, true) => {
                bail!("cannot allocate tty if the container is detached without --console-socket")
            }
            (false, true, _) => bail!("cannot use console socket if the config asks for no terminal"),
            (true, true, false) => bail!("cannot use console socket if the container is not detached"),
            _ => Ok(()),
        }
    }

    /// True where nothing is left to do for the runtime once the program runs: this process can become the program.
    fn fits_in_place(&self) -> bool {
        self.could_be_in_place() && !self.looks_at_end()
    }

    /// True where something is left to do with the layer when the program has ended, and nothing before that.
    fn looks_at_end(&self) -> bool {
        self.watch.is_some() || self.request.removes_layer
    }

    /// True where the program could be this process, and so is in the caller's session.
    fn could_be_in_place(&self) -> bool {
        self.request.lifetime == Lifetime::Foreground
            && !self.plan.has_pid_namespace()
            && !self.plan.process.terminal
            && !self.plan.needs_runtime()
            && self.request.handover.pidfd_socket.is_none()
    }

    /// Reserves the id, does `work`, and takes everything back where it fails.
    fn reserved<T>(&self, work: impl FnOnce(&Self, &ContainerDir) -> Result<T>) -> Result<T> {
        if self.request.restored().is_some() {
            // Those that end this process are taken while criu works, also of a detached container.
            signal::block_all();
        }
        // Never closed: the descriptor holds the lock until this process ends.
        let dir = ManuallyDrop::new(self.store.reserve(&self.id)?);
        self.holding(&dir, work)
    }

    /// Does `work` in a directory that this process has locked, and takes everything back where it fails.
    fn holding<T>(
        &self,
        dir: &ContainerDir,
        work: impl FnOnce(&Self, &ContainerDir) -> Result<T>,
    ) -> Result<T> {
        trace::end(Phase::State);
        work(self, dir).inspect_err(|e| {
            trace::finish(None, Some(e));
            self.request.handover.remove_pid();
            if self.member().is_some() {
                self.store.forget_shared(&dir.id);
            }
            if let Some(kept) = self.request.persistent.as_ref().filter(|_| self.is_of_step(dir)) {
                give_up_layer(dir, &kept.container.layer);
            }
            // A process that has entered the container's namespaces does not see the image where the host has it. What
            // was made in the image is removed by the next `rt`.
            let removed = if self.fits_in_place() { self.store.forget(dir) } else { self.store.remove(dir) };
            if let Err(e) = removed {
                log::debug!("{e}");
            }
        })
    }

    /// Becomes the container, or waits for its end.
    fn attached(&self, dir: &ContainerDir) -> Result<u8> {
        if self.fits_in_place() { Err(self.in_place(dir)) } else { self.foreground(dir) }
    }

    fn foreground(&self, dir: &ContainerDir) -> Result<u8> {
        signal::block_all();
        // In shared memory init saves the record itself, and can do so only as the user who owns the store. The kernel
        // lets a process enter a time namespace only if it shares its memory with nobody (setns(2), EUSERS).
        let same_user = self.plan.own_maps || self.plan.process.uid == self.caller.uid;
        let shared = same_user
            && self.request.restored().is_none()
            && !self.plan.needs_runtime()
            && !self.plan.process.terminal
            && self.plan.join.is_empty()
            && !self.plan.makes(Namespace::Time);
        let running = match if shared { self.shared_memory(dir) } else { self.with_init(dir) } {
            Ok(running) => running,
            Err(e) => return self.ended_early(dir, e),
        };
        if self.member().is_some() {
            // The program runs: others may join.
            dir.unlock()?;
        }
        let running = ManuallyDrop::new(running);
        let look =
            || running.supervisor.as_ref().map_or(Ok(()), |supervisor| supervisor.look(&running.child));
        if let Some(checkpoint) = &self.request.checkpoint {
            checkpoint.begin();
        }
        let signalled = |number| match &self.request.checkpoint {
            Some(checkpoint) => checkpoint.signalled(self.store, &self.id, number),
            None => Ok(Signalled::PassOn),
        };
        let code = match &running.terminal {
            Some(master) => foreground::relay(&running.child, master, signalled, look)?,
            None if self.could_be_in_place() => foreground::wait_beside(&running.child)?,
            None => foreground::wait(&running.child, signalled, look)?,
        };
        let supervised = running.supervisor.as_ref().map_or(Ok(()), Supervisor::finish);
        if let Some(checkpoint) = &self.request.checkpoint {
            checkpoint.ended(code)?;
        }
        self.watch.as_ref().map_or(Ok(()), Watch::end)?;
        if self.request.lifetime == Lifetime::ForegroundKept {
            return supervised.map(|()| code);
        }
        let last = match self.member() {
            Some(task) => self.store.leave(dir, task)?,
            None => self.store.remove(dir).map(|()| true)?,
        };
        if last {
            hooks::run_poststop(&self.plan.hooks, &running.record);
        }
        supervised.map(|()| code)
    }

    /// The exit code of a call that a signal has ended before the program was restored; where it has none, `e`.
    fn ended_early(&self, dir: &ContainerDir, e: Error) -> Result<u8> {
        let (Some(signal), Some(checkpoint)) = (self.interrupted.get(), self.request.restored()) else {
            return Err(e);
        };
        let Some(code) = checkpoint.interrupted(signal) else { return Err(e) };
        self.request.handover.remove_pid();
        self.store.remove(dir).map(|()| code)
    }

    /// True where only this process can be in the container: a PID namespace ends with its first process, a hook waits for the
    /// end, or an agent gets the filter of the first program alone.
    fn is_for_one(&self) -> bool {
        let waits = self.plan.hooks.poststop().as_ref().is_some_and(|hooks| !hooks.is_empty());
        let notifies = self.plan.process.seccomp.as_ref().is_some_and(|s| s.filter.notifies);
        self.plan.has_pid_namespace() || waits || notifies
    }

    /// The number that this task has among those that share the container.
    fn member(&self) -> Option<u32> {
        if let Some(run) = &self.request.run {
            return Some(run.pid);
        }
        let task = self.request.task.as_ref().filter(|task| task.share)?;
        task.id.as_ref()?.task
    }

    /// True where `dir` is the container that the tasks of a step share, and not one of a task of its own.
    fn is_of_step(&self, dir: &ContainerDir) -> bool {
        self.request.task.as_ref().and_then(|task| task.id.as_ref()).is_some_and(|id| id.container == dir.id)
    }

    /// Saves the record for the first time. `ignored` are the signals that init ignores.
    fn publish(&self, dir: &ContainerDir, record: &Record, ignored: u64) -> Result<()> {
        dir.save_new(record, &self.config.text()?)?;
        let Some(task) = self.member() else { return Ok(()) };
        if let Some(config) = self.images.image_config() {
            dir.save_image_config(config)?;
        }
        match &self.request.persistent {
            Some(kept) => dir.keep(&kept.container)?,
            None => self.store.note_shared(&dir.id)?,
        }
        // The member is this process, unless a runtime stays beside the container.
        let own = rustix::process::getpid();
        let is_own = own.as_raw_nonzero().get() == record.pid;
        let identity = is_own.then(|| ProcessIdentity::of(own, None)).flatten();
        let identity = identity.unwrap_or(ProcessIdentity::StartTime(record.start_time));
        let rank = self.request.run.as_ref().and_then(|run| run.rank);
        let member = Member { task, pid: record.pid, identity, rank };
        dir.add_member(member)?;
        // A runtime that stays beside the container has given SIGCHLD its default by now (signal::block_all). The tasks
        // that join may have come with it ignored.
        dir.note_first(member, ignored | 1 << (libc::SIGCHLD - 1), &record.rootfs)
    }

    /// Becomes the container; returns only the error.
    fn in_place(&self, dir: &ContainerDir) -> Error {
        let joins = match rt_sys::log::keep_open().and_then(|()| open_joins(&self.plan.join)) {
            Ok(joins) => joins,
            Err(e) => return e,
        };
        let state_json = |_: Status, _: i32| Ok(Vec::new());
        let init = Init {
            joins: &joins,
            unshare: self.plan.new.without(Namespace::Time),
            ..self.init(dir, None, &state_json)
        };
        let result = init.enter_namespaces().and_then(|()| {
            let own = process::stat(&self.proc, "self")?;
            let record = self.record(own.pid, own.start_time, init.mount_id()?);
            let record = Record { in_place: true, processors: self.processors_of(0)?, ..record };
            self.store.sweep(SWEPT_PER_RUN);
            self.publish(dir, &record, own.ignored)?;
            if !record.shared {
                self.store.note_in_place(&dir.id, own.pid)?;
            }
            self.request.handover.write_pid(own.pid)?;
            init.set_up()
        });
        match result {
            Ok(never) => match never {},
            Err(e) => e,
        }
    }

    /// Starts init in this process's memory. clone(2) returns here when init has called exec or failed (CLONE_VFORK).
    fn shared_memory(&self, dir: &ContainerDir) -> Result<Running> {
        let runtime = own_pidfd()?;
        let state_json = |_: Status, _: i32| Ok(Vec::new());
        let publish = |own: &process::Stat, mount_ns: Option<MountNamespaceId>| {
            let record = self.record(own.pid, own.start_time, mount_ns);
            self.publish(dir, &Record { processors: self.processors_of(0)?, ..record }, own.ignored)
        };
        let runtime = Some(runtime.as_fd());
        let init = Init { runtime, publish: &publish, ..self.init(dir, None, &state_json) };
        let mut failure = None;
        let new = self.plan.new.without(Namespace::Time);
        let child = process::spawn(new, Memory::Shared, || {
            failure = Some(init.run());
            1
        })
        .map_err(|e| refused::namespaces(e, new))?;
        if self.plan.init {
            // Init has hidden what was its memory too.
            init::show()?;
        }
        if let Some(e) = failure {
            process::wait(child.pid)?;
            return Err(e);
        }
        trace::finish(Some(child.pid.as_raw_nonzero().get()), None);
        match self.request.handover.hand_over_process(child.pid.as_raw_nonzero().get(), &child.pidfd) {
            // Only hooks need the record, and there are none here.
            Ok(()) => Ok(Running { child, record: Record::default(), terminal: None, supervisor: None }),
            Err(e) => {
                child.end();
                Err(e)
            }
        }
    }

    /// Starts init as a process of its own and does the runtime's part until init needs nothing more.
    fn with_init(&self, dir: &ContainerDir) -> Result<Running> {
        let (link, init_link) = sync::pair()?;
        let runtime = own_pidfd()?;
        let fifo = if self.request.lifetime == Lifetime::Created { Some(dir.make_fifo()?) } else { None };
        let console = self.request.handover.console(self.plan.process.terminal)?;
        let streams = if self.request.log { Some(Streams::logged(dir)?) } else { None };
        let state_json = |status: Status, pid: i32| self.hook_state(pid, status);
        let adopted = self.plan.late.as_ref().map(|_| Adopted::begin(self.proc.as_fd())).transpose()?;
        let init = Init {
            streams: streams.as_ref(),
            runtime: Some(runtime.as_fd()),
            console: console.sender.as_ref().map(AsFd::as_fd),
            fifo: fifo.as_ref().map(AsFd::as_fd),
            ..self.init(dir, Some(&init_link), &state_json)
        };
        let (child, early) = self.spawn_init(init, &link)?;
        drop(init_link);
        drop(console.sender);
        let attended = self.attend(dir, &link, &child, early).and_then(|attended| {
            let Some(checkpoint) = self.request.restored() else { return Ok(attended) };
            checkpoint.goes_on(self.store, &self.id).map(|()| attended)
        });
        match attended {
            Ok((record, supervisor)) => {
                let child = match adopted {
                    Some(_) => self.adopt(&child, record.pid)?,
                    None => child,
                };
                trace::finish(Some(record.pid), None);
                let terminal = console.receiver.map(|socket| tty::receive_fd(&socket)).transpose()?;
                Ok(Running { child, record, terminal, supervisor })
            }
            Err(e) => {
                child.end();
                if let Some(Err(e)) = adopted.map(|adopted| adopted.end()) {
                    log::debug!("{e}");
                }
                // Poststop hooks undo what the hooks before have done (runtime.md "Lifecycle" steps 3 to 5, 9 and 13).
                let record = self.record(child.pid.as_raw_nonzero().get(), 0, None);
                hooks::run_poststop(&self.plan.hooks, &record);
                Err(e)
            }
        }
    }

    /// Makes init, and returns what init has said before its pid was known.
    ///
    /// Some namespaces init cannot join itself: a PID namespace, into which setns(2) moves only children that are made
    /// later; and any other where clone(2) makes a user namespace for init, because a process in that has no right to
    /// namespaces outside it. This process must not join them either: it still serves its caller on the host. A helper
    /// process in between joins them, and makes init.
    fn spawn_init(&self, init: Init<'_>, link: &Link) -> Result<(Child, Vec<FromInit>)> {
        let mut new = self.plan.new.without(Namespace::Time);
        if self.plan.late.is_some() {
            new = new.without(Namespace::Pid);
        }
        let joins = open_joins(&self.plan.join)?;
        let joins_user_or_pid =
            joins.iter().any(|(kind, _)| *kind == Namespace::User || *kind == Namespace::Pid);
        if !joins_user_or_pid && (joins.is_empty() || !new.contains(Namespace::User)) {
            let init = Init { joins: &joins, ..init };
            let child = process::spawn(new, Memory::Copied, || fail(&init));
            return Ok((child.map_err(|e| refused::namespaces(e, new))?, Vec::new()));
        }
        // A process that is to write its own id maps must not be undumpable: its files in /proc would belong to root.
        let init = Init { hidden: !self.plan.own_maps, ..init };
        let helper = process::spawn(Namespaces::NONE, Memory::Copied, || {
            let hidden = if init.hidden { init::hide(&self.plan.process, init.proc) } else { Ok(()) };
            let entered = hidden
                .and_then(|()| joins.iter().try_for_each(|(kind, namespace)| ns::enter(namespace, *kind)));
            let made = entered.and_then(|()| {
                process::spawn_sibling(new, || fail(&init)).map_err(|e| refused::namespaces(e, new))
            });
            let told = match made {
                Ok(child) => init.link.map(|l| l.tell(&FromInit::Pid(child.pid.as_raw_nonzero().get()))),
                Err(e) => init.link.map(|l| l.tell(&FromInit::Failed(e))),
            };
            i32::from(!matches!(told, Some(Ok(()))))
        })?;
        process::wait(helper.pid)?;
        let mut early = Vec::new();
        loop {
            match link.hear()? {
                Some(FromInit::Pid(pid)) => {
                    let pid = rustix::process::Pid::from_raw(pid).ok_or_else(|| err!("init has no pid"))?;
                    let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())
                        .context(|| "open a pidfd")?;
                    return Ok((Child { pid, pidfd }, early));
                }
                Some(FromInit::Failed(e)) => return Err(e),
                Some(message) => early.push(message),
                None => bail!("the helper that joins namespaces has died"),
            }
        }
    }

    /// Does what init asks for until it needs nothing more, and makes the container known.
    fn attend(
        &self,
        dir: &ContainerDir,
        link: &Link,
        child: &Child,
        early: Vec<FromInit>,
    ) -> Result<(Record, Option<Supervisor>)> {
        let mut pid = child.pid.as_raw_nonzero().get();
        // A program that criu has made with its PID namespace is another process.
        let mut restored = None;
        // What init has said that it is.
        let mut said = None;
        let (mut known, mut supervisor) = (None, None);
        let mut early = early.into_iter();
        loop {
            let message = match early.next() {
                Some(message) => Some(message),
                // From the last answer to init on the program runs: a signal is for that, and waits until it is there.
                None if known.is_some() => link.hear()?,
                None => self.hear(link)?,
            };
            match message {
                Some(FromInit::WantMaps) => {
                    if let Some(maps) = &self.plan.maps {
                        maps.write(&self.proc, &pid.to_string(), Setgroups::Allow)
                            .map_err(|e| refused::maps(e, maps))?;
                    }
                    link.go(pid)?;
                }
                Some(FromInit::Is(start_time, ignored)) => said = Some((start_time, ignored)),
                Some(FromInit::Mounted) => {
                    self.runtime_hooks(pid)?;
                    link.go(pid)?;
                }
                Some(FromInit::Listener(fd)) => {
                    if self.plan.is_supervised() {
                        supervisor = Some(Supervisor::start(&self.plan, self.proc.as_fd(), child, fd)?);
                    } else if let Some(plan) = &self.plan.process.seccomp {
                        let state = hooks::state_json(&self.record(pid, 0, None), Status::Creating)?;
                        handover::pass_listener(plan, &child.pidfd, fd, pid, &state)?;
                    }
                    link.go(pid)?;
                }
                Some(FromInit::Ready(mount_ns)) => {
                    let (start_time, ignored) = match said {
                        Some(said) if self.request.lifetime != Lifetime::Created => said,
                        // Others have to see one that waits, too.
                        _ => {
                            let stat = process::stat(&self.proc, &pid.to_string());
                            let stat = stat.context(|| "look at init")?;
                            (stat.start_time, stat.ignored)
                        }
                    };
                    let record = self.record(pid, start_time, mount_ns);
                    let processors = self.processors_of(child.pid.as_raw_nonzero().get())?;
                    let record = Record { processors, ..record };
                    self.publish(dir, &record, ignored)?;
                    let program = restored.as_ref().unwrap_or(child);
                    self.request.handover.hand_over_process(pid, &program.pidfd)?;
                    known = Some(record);
                    link.go(pid)?;
                }
                Some(FromInit::Detached) if self.request.lifetime == Lifetime::Created => break,
                Some(FromInit::Pid(made)) if self.plan.late.is_some() => {
                    pid = made;
                    restored = Some(restored::open(made)?);
                }
                // The program's exec, or an error, is still to come.
                Some(FromInit::Detached | FromInit::Pid(_)) => {}
                Some(FromInit::Failed(e)) => return Err(e),
                None => break,
            }
        }
        let Some(record) = known else { bail!("the container's init died while it was set up") };
        if self.request.lifetime != Lifetime::Created {
            hooks::run_poststart(&self.plan.hooks, &record)?;
        }
        Ok((record, supervisor))
    }

    /// The next message from init. criu can take minutes, or wait for what somebody has put in the place of a file: who asks this
    /// process to end has it end then.
    fn hear(&self, link: &Link) -> Result<Option<FromInit>> {
        if let Some(checkpoint) = self.request.restored() {
            let signals = signal::waiting(checkpoint.interrupts())?;
            let mut fds = [PollFd::new(link, PollFlags::IN), PollFd::new(&signals, PollFlags::IN)];
            process::poll(&mut fds, None)?;
            if fds[0].revents().is_empty() {
                self.interrupted.set(signal::next(&signals)?);
                bail!("a signal has ended it before the program was restored");
            }
        }
        link.hear()
    }

    /// Waits until `maker` has left the restored program `pid` to this process, or to who takes its orphans.
    fn adopt(&self, maker: &Child, pid: i32) -> Result<Child> {
        let program = restored::open(pid)?;
        process::wait(maker.pid)?;
        Ok(program)
    }

    fn runtime_hooks(&self, pid: i32) -> Result<()> {
        let state = self.hook_state(pid, Status::Creating)?;
        if !self.plan.net_devices.is_empty() {
            let namespace = ns::open(Path::new(&format!("/proc/{pid}/ns/net")))?;
            for device in &self.plan.net_devices {
                rt_sys::net::move_device(&device.name, &device.name_inside, &namespace)?;
            }
        }
        let place = hooks::place(&self.plan.bundle, self.plan.of_others);
        hooks::run_runtime_hooks(&self.plan.hooks, &state, place)
    }

    /// What hooks get on standard input while the container is made.
    fn hook_state(&self, pid: i32, status: Status) -> Result<Vec<u8>> {
        hooks::creation_state_json(&self.record(pid, 0, None), status, &self.plan.caller_request)
    }

    /// The processors of the process `first`, 0 for this one, with which a program without `rt`'s init begins.
    fn processors_of(&self, first: i32) -> Result<Vec<u64>> {
        if self.plan.init { Ok(Vec::new()) } else { process::affinity_of(first) }
    }

    /// What is recorded of the container, whose first process is `pid`.
    fn record(&self, pid: i32, start_time: u64, mount_ns: Option<MountNamespaceId>) -> Record {
        let annotations = self.config.spec.annotations().iter().flatten();
        let step = |task: &TaskContext| Some(rt_launch::slurm::of_array(&task.id.as_ref()?.step, &task.job));
        Record {
            id: self.id.clone(),
            pid,
            start_time,
            bundle: self.plan.bundle.clone(),
            rootfs: self.plan.rootfs.clone(),
            created: rt_sys::time::rfc3339(rt_sys::time::now()),
            owner: self.caller.uid,
            annotations: annotations.map(|(k, v)| (k.clone(), v.clone())).collect(),
            paused: false,
            parted: Vec::new(),
            // Any member may be the last one, and most of them run in place.
            in_place: self.member().is_some(),
            own_pid_namespace: self.plan.makes(Namespace::Pid),
            mount_ns,
            step: match &self.request.run {
                Some(run) => run.step.clone(),
                None => self.request.task.as_ref().and_then(step),
            },
            run: self.request.run.as_ref().map(|run| run.name.clone()),
            shared: self.member().is_some(),
            keeps_keyring: self.plan.no_new_keyring,
            confinement: self.plan.process.confinement,
            of_image: self.plan.of_image,
            of_others: self.plan.of_others,
            processors: Vec::new(),
        }
    }

    fn init<'b>(
        &'b self,
        dir: &'b ContainerDir,
        link: Option<&'b Link>,
        state_json: &'b dyn Fn(Status, i32) -> Result<Vec<u8>>,
    ) -> Init<'b> {
        Init {
            shared: self.member().map(|_| &*dir.id),
            plan: &self.plan,
            proc: self.proc.as_fd(),
            state: dir.fd(),
            state_places: &self.state_places,
            copies: &self.copies,
            joins: &[],
            unshare: Namespaces::NONE,
            runtime: None,
            in_session: self.could_be_in_place(),
            watch: self.watch.as_ref(),
            restored: self.request.restored().map(|checkpoint| (checkpoint, &*self.config.spec)),
            link,
            console: None,
            streams: None,
            fifo: None,
            detach: self.request.lifetime.is_detached(),
            hidden: false,
            publish: &|_, _| Ok(()),
            holder: self.holder.as_ref().filter(|_| self.request.run.is_some()).map(|holder| (holder, dir)),
            state_json,
        }
    }
}

/// What holds the container of a run for ranks that are still to come. A layer that is kept is there for them without it, and
/// whoever writes to it next need not wait for its end.
fn holder(request: &StartRequest, plan: &Plan) -> Option<Holder> {
    let launcher = request.run.as_ref()?.launcher?;
    let fits = request.lifetime == Lifetime::Foreground
        && matches!(plan.layer, None | Some(Layer::Memory))
        && !plan.has_children_of_init()
        && plan.process.is_confined_last();
    if !fits {
        return None;
    }
    Holder::new(launcher).inspect_err(holder::tell).ok().flatten()
}

/// True where what the program writes is gone when it ends, and somebody should say so: the caller has asked for a root that
/// can be written, and not for one that forgets. A step of Slurm has a layer as a matter of course.
fn loses_in_silence(plan: &Plan, request: &StartRequest) -> bool {
    plan.layer == Some(Layer::Memory)
        && matches!(request.overrides.root, RootAccess::Writable)
        && request.task.is_none()
        && !request.lifetime.is_detached()
}

/// The config of the request, with its hooks: that of the bundle, or of the image file, whose server is started for that.
fn load(request: &StartRequest, images: &mut ImageMounts) -> Result<Loaded> {
    let read = match &request.image_file {
        None => BundleConfig::read(request)?,
        Some(file) => {
            let (bundle, _) = plan::enter_bundle(&request.bundle)?;
            let config = images.begin(file, &request.hooks_dirs)?.to_owned();
            BundleConfig::of_image(config, file, bundle)?
        }
    };
    Loaded::new(request, read, request.user_map)?.with_hooks(request)
}

/// Runs init in a child; what comes back is an error for the runtime.
fn fail(init: &Init<'_>) -> i32 {
    let error = init.run();
    if let Some(link) = init.link {
        let _ = link.tell(&FromInit::Failed(error));
    }
    1
}

fn open_joins(join: &[(Namespace, PathBuf)]) -> Result<Vec<(Namespace, OwnedFd)>> {
    let open = |(kind, path): &(Namespace, PathBuf)| {
        let fd = ns::open(path).context(|| format!("{} namespace {}", kind.file(), path.display()))?;
        Ok((*kind, fd))
    };
    join.iter().map(open).collect()
}

/// A descriptor of this process, by which init sees it end.
fn own_pidfd() -> Result<OwnedFd> {
    let own = rustix::process::getpid();
    rustix::process::pidfd_open(own, rustix::process::PidfdFlags::empty()).context(|| "open a pidfd")
}
