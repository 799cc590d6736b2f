//! `rt checkpoint`: a container's processes become an image.
//!
//! criu leaves the tree stopped. Only when the image is whole and on the disk do the processes end, or go on: whatever fails
//! before that, the program runs on.

use super::affinity::Pinned;
use super::aside::{self, Runtime};
use super::criu::{Criu, Opened};
use super::gpu::{self, Cuda, Parted};
use super::image::{self, Draft, Image};
use super::inside::Inside;
use super::manifest::Manifest;
use super::others::{self, Users};
use super::places::{self, Places};
use super::preflight::{self, Found, Network, Stage};
use super::processes::{self, Process, Tree};
use super::shared_files::{self, SharedFiles};
use super::{
    calls, contents, criu_log, filters, groups, made_calls, memory_files, memory_fs, numbers, reach, removed,
    restore, stops, watches,
};
use crate::container;
use crate::store::{Record, Store};
use rt_spec::state::Status;
use rt_spec::{Spec, annotations};
use rt_sys::caller::{Caller, Privilege};
use rt_sys::error::{Context, Result};
use rt_sys::ns::{self, Namespace, Namespaces};
use rt_sys::process::{self, Memory};
use rt_sys::seccomp::Filter;
use rt_sys::{bail, err, fd, mount, signal};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, Mode, OFlags};
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long criu, which holds the program, may be stuck when this process has ended. Its image is nobody's then, but its end can be the
/// program's, too.
const STUCK_WITHIN: Duration = Duration::from_secs(30);

/// How long a job's own checkpoint waits for another one: longer than that takes.
const AT_LAST_WITHIN: Duration = Duration::from_secs(24 * 3600);

/// What `checkpoint` is asked to do.
#[derive(Debug, Clone, Default)]
pub(crate) struct DumpOptions {
    /// The image.
    pub image: PathBuf,
    /// Where criu writes its log, if not into the image.
    pub work: Option<PathBuf>,
    /// The program goes on.
    pub leave_running: bool,
    /// Connections of TCP on the host's network are closed, for the program to notice.
    pub tcp_close: bool,
    /// Files that have been removed get a name again, in the directory where they were.
    pub link_remap: bool,
    /// What the program writes to the caller's files goes on in others.
    pub for_clones: bool,
    /// The layer that takes what the program writes to the root (`--overlay`).
    pub layer: Option<PathBuf>,
}

/// What is dumped.
struct Subject {
    record: Record,
    /// The container's first process.
    first: OwnedFd,
    spec: Spec,
    namespaces: Namespaces,
    /// The program's filters, in the order in which they were loaded.
    filters: Vec<Filter>,
    /// Those in the kernel are told to nobody here, or are not the ones that the image is to have.
    hidden_filters: bool,
}

impl Subject {
    fn of(store: &Store, id: &str) -> Result<Subject> {
        let dir = store.container(id)?;
        let record = store.load(id)?;
        require_program(store, &record)?;
        if record.shared {
            bail!(
                "container {id} is shared by the tasks of a step or the ranks of a run: criu keeps none that talk to others"
            );
        }
        let Some(first) = record.open_first_process()? else { bail!("container not running: {id}") };
        let spec = dir.spec()?;
        let namespaces = wait_for_init(|| container::namespaces_of(&spec, record.pid))?;
        let (filters, are_kernels) = container::filters_of(&spec, &record, namespaces)?;
        let is_root = Caller::current()?.privilege == Privilege::Root;
        let hidden_filters =
            !filters.is_empty() && (!is_root || namespaces.contains(Namespace::User) || !are_kernels);
        Ok(Subject { record, first, spec, namespaces, filters, hidden_filters })
    }

    /// Fails where the container's user namespace does not know this process's user, who owns the image: who restores it is in such a
    /// namespace, and could not read it.
    fn check_owner(&self) -> Result<()> {
        if !self.namespaces.contains(Namespace::User) {
            return Ok(());
        }
        let own = rustix::process::geteuid().as_raw();
        let maps = ns::maps_of(Path::new(&format!("/proc/{}", self.record.pid)))?.uid;
        match maps.iter().any(|map| own.checked_sub(map.host).is_some_and(|nth| nth < map.size)) {
            true => Ok(()),
            false => Err(err!(
                "container {}: uid {own} is not in its user namespace, where its image could not be read",
                self.record.id
            )
            .hint("map it: linux.uidMappings of config.json")),
        }
    }

    /// The program's processes.
    fn tree(&self, store: &Store) -> Result<Tree> {
        again(|| self.tree_now(store))
    }

    fn tree_now(&self, store: &Store) -> Result<Tree> {
        let all = container::processes(store, &self.record.id)?;
        let first = self.record.pid;
        let program = match (self.record.own_pid_namespace, annotations::asks_for_init(&self.spec)?) {
            (true, true) => processes::child_of(&all, first)?,
            (true, false) => first,
            (false, _) if !self.namespaces.contains(Namespace::Pid) => first,
            (false, _) => {
                return Err(err!("the container shares the PID namespace of another one")
                    .hint("criu keeps none whose processes are not all the program's"));
            }
        };
        Tree::find(&all, first, program)
    }

    /// Looks at everything of the program's processes, from within the container's user namespace: an image file that is mounted by
    /// FUSE lets nobody else look at what is open or in memory of it, not even its user.
    fn check(&self, tree: &Tree, stage: Stage<'_>) -> Result<Found> {
        let own = memory_fs::own(&self.spec);
        let check = || preflight::check(tree, self.network(), self.filters.len(), &own, stage);
        if !self.namespaces.contains(Namespace::User) {
            return check();
        }
        let said = aside::ask(|| {
            self.join_user()?;
            serde_json::to_vec(&check()?).map_err(|e| err!("{e}"))
        })?;
        serde_json::from_slice(&said).map_err(|e| err!("what is known of the processes: {e}"))
    }

    /// Enters the container's user namespace, in a process beside this one.
    fn join_user(&self) -> Result<()> {
        container::undumpable()?;
        ns::join(&self.first, Namespace::User).context(|| "join the container's user namespace")
    }

    /// Has the tree, which is stopped, keep memory of removed files in files that criu knows. What is found of it then.
    fn keep_removed(&self, store: &Store, several_ids: bool) -> Result<Found> {
        removed::try_calls(&self.filters)?;
        let tree = self.tree_now(store)?;
        let own = memory_fs::own(&self.spec);
        let mut inside = Inside::of(&tree.program().dir(), &own)?;
        let files = self.check(&tree, Stage::Before)?.removed;
        let users = Users::Of(tree.program().users()?);
        others::check_others(&tree, &inside, &files, &users, "a file that has been removed, ")?;
        inside.note_roots(files.iter().filter_map(|[.., path]| Path::new(path).parent()))?;
        self.run_for_user(|| removed::replace(&tree, &inside, several_ids))?;
        self.check(&tree, Stage::Stopped)
    }

    /// Which files of `found` are copied beside the file systems `memory`.
    ///
    /// # Errors
    /// There is one, and the image is `for_clones`.
    fn shared(
        &self,
        tree: &Tree,
        found: &Found,
        memory: &[PathBuf],
        for_clones: bool,
    ) -> Result<BTreeSet<[String; 3]>> {
        if found.shared.is_empty() {
            return Ok(BTreeSet::new());
        }
        let mounts = mount::table_in(&tree.program().dir())?;
        let files = shared_files::apart(&found.shared, memory, &mounts);
        match files.first() {
            Some([.., path]) if for_clones => Err(shared_files::refused_for_clones(path)),
            _ => Ok(files),
        }
    }

    /// Copies `files`, those of [`Subject::shared`], into `image`.
    fn save_shared(&self, tree: &Tree, files: &BTreeSet<[String; 3]>, image: &Image) -> Result<SharedFiles> {
        if files.is_empty() {
            return Ok(SharedFiles::default());
        }
        self.check_shared(tree, files)?;
        let inside = Inside::of(&tree.program().dir(), &[])?;
        let said = aside::ask(|| {
            self.join_all()?;
            serde_json::to_vec(&shared_files::save(&inside, files, image)?).map_err(|e| err!("{e}"))
        })?;
        let saved: SharedFiles =
            serde_json::from_slice(&said).map_err(|e| err!("what is known of shared files: {e}"))?;
        others::check_others(tree, &inside, &saved.of_all(), &Users::All, "")?;
        Ok(saved)
    }

    /// Fails where a process outside of `tree`, which is stopped, has one of these files.
    fn check_shared(&self, tree: &Tree, files: &BTreeSet<[String; 3]>) -> Result<()> {
        match files.is_empty() {
            true => Ok(()),
            false => {
                let users = Users::Of(tree.program().users()?);
                others::check_others(tree, &Inside::of(&tree.program().dir(), &[])?, files, &users, "")
            }
        }
    }

    /// Fails where the program has gone on meanwhile, by `rt resume` or anybody's SIGCONT: its files and its memory would be of two times.
    fn check_stopped(&self, store: &Store) -> Result<()> {
        let tree = self.tree_now(store)?;
        for process in tree.processes.iter().filter(|process| !process.ends) {
            // One that has little of a processor can still be on its way to the stop in which criu leaves it.
            if !stops::is_stopped(process.pid, process.pid)? {
                return Err(err!("{} was continued meanwhile", process.shown()).hint("try again"));
            }
        }
        match store.load(&self.record.id)?.paused {
            true => Ok(()),
            false => Err(err!("the program was continued meanwhile").hint("try again")),
        }
    }

    /// Enters all namespaces of the container, in a process beside this one.
    fn join_all(&self) -> Result<()> {
        // The container's processes must not look into it: it has descriptors of the host.
        container::undumpable()?;
        ns::join(&self.first, self.namespaces).context(|| "join the container's namespaces")
    }

    /// Has the program, which is stopped, go on, and no process of it learn that its children have been stopped.
    fn continue_all(&self, store: &Store) -> Result<()> {
        if !store.load(&self.record.id)?.paused {
            return Ok(());
        }
        let tree = self.tree_now(store)?;
        self.run_for_user(|| stops::go_on(&tree.processes))
    }

    /// Has the program, which is stopped, wait anew in calls that a stop has interrupted, in its image and if it goes on.
    fn make_calls_anew(&self, store: &Store) -> Result<()> {
        let tree = self.tree_now(store)?;
        self.run_for_user(|| calls::make_anew(&tree))
    }

    /// Does `work`, which signals or traces the program, where this process may do that, and where no signal ends it halfway: threads that
    /// it holds would go on with other signal masks or registers than their own.
    fn run_for_user(&self, work: impl FnOnce() -> Result<()>) -> Result<()> {
        aside::run(|| {
            signal::block_all();
            if self.namespaces.contains(Namespace::User) {
                self.join_user()?;
            }
            work()
        })
    }

    fn network(&self) -> Network {
        if self.namespaces.contains(Namespace::Network) { Network::Own } else { Network::Host }
    }
}

/// Fails where a container has no program, or that has not begun.
pub(super) fn require_program(store: &Store, record: &Record) -> Result<()> {
    let id = &record.id;
    match store.status(record)? {
        Status::Running | Status::Paused => Ok(()),
        Status::Created => bail!("container {id} cannot be checkpointed in created state"),
        Status::Creating | Status::Stopped => bail!("container not running: {id}"),
    }
}

/// The file of the caller that is the standard input of the program of container `id`, if it is one ([`preflight::input_of`]).
pub(super) fn input_of(store: &Store, id: &str) -> Result<Option<OwnedFd>> {
    preflight::input_of(Subject::of(store, id)?.tree(store)?.program())
}

/// Repeats `look` for a second while the kernel refuses it: the init of a container that has just begun hides what it still has
/// of the host.
fn wait_for_init<T>(look: impl Fn() -> Result<T>) -> Result<T> {
    for _ in 0..50 {
        match look() {
            Err(e) if e.is(libc::EACCES) => {}
            looked => return looked,
        }
        pause();
    }
    look()
}

/// Repeats `look` up to four times where it fails. A program that runs changes while it is looked at: a process whose parent ends is
/// nobody's for a moment, and a descriptor can be another one when the second thing about it is read.
fn again<T>(look: impl Fn() -> Result<T>) -> Result<T> {
    for _ in 0..4 {
        if let Ok(found) = look() {
            return Ok(found);
        }
        pause();
    }
    look()
}

fn pause() {
    let _ = rustix::thread::nanosleep(&rustix::time::Timespec { tv_sec: 0, tv_nsec: 20_000_000 });
}

/// The programs of the host that an image needs.
#[derive(Debug)]
pub(crate) struct Programs {
    pub(super) criu: Criu,
    /// Only programs on GPUs need it.
    pub(super) cuda: Option<Cuda>,
}

impl Programs {
    /// Finds them.
    pub(super) fn find() -> Result<Programs> {
        Self::find_by(&rt_config::own_variable)
    }

    /// The same, where the caller's variables are `variable`.
    pub(super) fn find_by(variable: rt_config::Lookup<'_>) -> Result<Programs> {
        Ok(Programs { criu: Criu::find_by(variable)?, cuda: Cuda::find_by(variable)? })
    }
}

/// Has `programs`, or those that are found now, write an image of container `id`, and ends it unless it is to go on.
pub(crate) fn dump(
    store: &Store,
    id: &str,
    options: &DumpOptions,
    programs: Option<&Programs>,
) -> Result<()> {
    dump_within(container::DUMPED_WITHIN, store, id, options, programs, &mut |_| {})
}

/// The same, where another checkpoint of the container is waited for so long. `wrote` gets the directory of the image as soon as that has its
/// place, whatever becomes of the program then.
fn dump_within(
    wait: Duration,
    store: &Store,
    id: &str,
    options: &DumpOptions,
    programs: Option<&Programs>,
    wrote: &mut dyn FnMut(OwnedFd),
) -> Result<()> {
    let _lock = store.container(id)?.lock_images_within(wait, OFlags::CREATE)?;
    let mut subject = Subject::of(store, id)?;
    let found;
    let programs = match programs {
        Some(programs) => programs,
        None => {
            found = Programs::find()?;
            &found
        }
    };
    let cuda = programs.cuda.as_ref();
    if !subject.record.parted.is_empty() {
        // A call that was killed has left it so.
        go_on(store, id, cuda)?;
        subject = Subject::of(store, id)?;
    }
    subject.check_owner()?;
    made_calls::check(&subject.filters, subject.hidden_filters)?;
    let tree = subject.tree(store)?;
    // containerd pauses a container before, and resumes it. What was paused can have been continued past `rt`.
    let is_stopped = |process: &Process| process.ends || process.state == 'T';
    let is_paused = subject.record.paused && tree.processes.iter().all(is_stopped);
    if let Some(stopped) = tree.processes.iter().find(|process| process.state == 'T' && !is_paused) {
        return Err(err!("{} is stopped", stopped.shown()).hint("continue or end it first"));
    }
    let parted = Parted::of(&tree, cuda)?;
    if is_paused && !parted.is_empty() {
        return Err(err!("container {id} is paused, and has processes on GPUs").hint("rt resume it first"));
    }
    let written = parted
        .part(store, id, cuda)
        .and_then(|()| write(store, &programs.criu, &subject, &tree, &parted, options))
        .map(wrote)
        // To have all of it on the disk can have taken minutes.
        .and_then(|()| if options.leave_running { Ok(()) } else { subject.check_stopped(store) });
    if written.is_err() || options.leave_running {
        // The program goes on all the same.
        if !is_paused {
            // The rest of it goes on below in any case.
            let continued =
                subject.continue_all(store).and_then(|()| container::note_paused(store, id, false));
            continued.unwrap_or_else(|e| log::debug!("continue {id}: {e}"));
        }
        let resumed = if is_paused { Ok(()) } else { go_on(store, id, cuda) };
        return match (written, resumed) {
            (Err(e), Err(resumed)) => Err(e.hint(resumed)),
            // The program has come to its end as soon as it went on, and whoever waits for it removes the container.
            (Ok(()), Err(_)) if !subject.record.is_alive()? => Ok(()),
            (written, resumed) => written.and(resumed),
        };
    }
    container::end_dumped(store, id)
}

/// The same, with a second try: what is in criu's way can be there for a moment only, such as a connection that nobody has accepted
/// yet, and there may be no later time. So, where the program is to end, another checkpoint is waited for as long as it takes: who has set an
/// end to the job ends it.
pub(super) fn dump_at_last(
    store: &Store,
    id: &str,
    options: &DumpOptions,
    programs: &Programs,
    wrote: &mut dyn FnMut(OwnedFd),
) -> Result<()> {
    let wait = if options.leave_running { container::DUMPED_WITHIN } else { AT_LAST_WITHIN };
    let mut dump = || dump_within(wait, store, id, options, Some(programs), wrote);
    dump().or_else(|_| {
        pause();
        dump()
    })
}

/// Continues a paused container, and gives its processes back the GPUs that a checkpoint which was killed has parted them from.
pub(crate) fn resume(store: &Store, id: &str) -> Result<()> {
    let lock = store.container(id)?.lock_images_within(container::DUMPED_WITHIN, OFlags::empty());
    if let Err(e) = &lock {
        log::warn!("{e}: {id} goes on nevertheless");
    }
    match store.load(id)?.parted.is_empty() {
        true => container::resume(store, id),
        false => go_on(store, id, Cuda::find()?.as_ref()),
    }
}

/// Undoes what keeps the processes of a container from going on, as far as its record says that something does.
fn go_on(store: &Store, id: &str, cuda: Option<&Cuda>) -> Result<()> {
    if store.load(id)?.paused {
        container::resume(store, id)?;
    }
    gpu::give_back(store, id, cuda)
}

/// Writes an image of the tree, and leaves it stopped. Returns the image's directory.
fn write(
    store: &Store,
    criu: &Criu,
    subject: &Subject,
    tree: &Tree,
    parted: &Parted<'_>,
    options: &DumpOptions,
) -> Result<OwnedFd> {
    let found = again(|| subject.check(&subject.tree_now(store)?, Stage::Before))?;
    let memory = memory_fs::of_config(&subject.spec);
    let memory = memory_fs::find(memory, &tree.program().dir(), &mount::table()?)?;
    subject.shared(tree, &found, &memory, options.for_clones)?;
    let draft = Draft::begin(&options.image)?;
    // Whoever ends this process while the tree is stopped leaves a container that `rt resume` continues.
    container::note_paused(store, &subject.record.id, true)?;
    let stopped = subject.run_for_user(|| stops::stop(|| subject.tree_now(store)));
    let found = if found.removed.is_empty() {
        stopped.unwrap_or_else(|e| log::debug!("stop {}: {e}", subject.record.id));
        Ok(found)
    } else {
        stopped.and_then(|()| subject.keep_removed(store, found.by_several_ids))
    };
    // Behind the calls that threads have made, and also where the program goes on now.
    subject.make_calls_anew(store).unwrap_or_else(|e| log::debug!("calls of {}: {e}", subject.record.id));
    let found = found?;
    let shared = subject.shared(tree, &found, &memory, options.for_clones)?;
    subject.check_shared(&subject.tree_now(store)?, &shared)?;
    run_criu(criu, subject, tree, &found, &memory, &draft.image, options)?;
    seal(store, subject, memory, parted, draft, options)
}

/// Makes a whole image of a draft in which criu has written.
fn seal(
    store: &Store,
    subject: &Subject,
    memory: Vec<PathBuf>,
    parted: &Parted<'_>,
    draft: Draft,
    options: &DumpOptions,
) -> Result<OwnedFd> {
    // Once more, now that nothing changes: the processes may have done meanwhile what criu damages in silence.
    let tree = subject.tree_now(store)?;
    let found = subject.check(&tree, Stage::Dumped(&reach::without_links(&draft.image)?))?;
    let shared = subject.shared(&tree, &found, &memory, options.for_clones)?;
    let shared = subject.save_shared(&tree, &shared, &draft.image)?;
    shared.take_over(&draft.image, &store.container(&subject.record.id)?)?;
    let mut manifest = Manifest {
        shared,
        streams: found.streams.to_vec(),
        kinds: found.kinds,
        open: found.files,
        memory,
        own_network: subject.network() == Network::Own,
        pinned: Pinned::of(&tree, &subject.record.processors)?,
        layer: match &options.layer {
            Some(layer) if restore::has_something(layer)? => Some(layer.clone()),
            _ => None,
        },
        ids: processes::ids_of(&tree.program().dir())?,
        gpus: parted.gpus.clone(),
        ..Manifest::new(tree.program().inside, tree.highest().max(found.highest))?
    };
    reach::check_queues(&draft.image)?;
    if manifest.is_of_first() {
        numbers::ask_for_pid_namespace(&draft.image)?;
    }
    numbers::forget_death_signal(&draft.image, manifest.program)?;
    numbers::forget_modes(&draft.image)?;
    memory_files::join(&draft.image)?;
    groups::give(&draft.image, &manifest.ids[1])?;
    if options.for_clones {
        numbers::append_to_others(&draft.image, &manifest.outputs())?;
    }
    manifest.files = contents::of(&draft.image)?;
    subject.check_stopped(store)?;
    manifest.write(&draft.image)?;
    draft.finish()
}

/// Has criu dump the tree, and saves what is in memory beside it.
fn run_criu(
    criu: &Criu,
    subject: &Subject,
    tree: &Tree,
    found: &Found,
    memory: &[PathBuf],
    image: &Image,
    options: &DumpOptions,
) -> Result<()> {
    let work = options.work.as_deref().map(open_work).transpose()?;
    let (log_in, work) = match &work {
        Some((path, dir)) => (dir, (path.as_path(), dir)),
        None => (&image.dir, (image.path.as_path(), &image.dir)),
    };
    let (opened, dirs) = criu.open_apart(&[(&image.path, &image.dir), work])?;
    let [image_dir, work_dir] = &dirs[..] else { bail!("the directory of the image was not opened") };
    criu_log::make(log_in, "dump.log")?;
    watches::tell(log_in, &found.watched)?;
    let args = arguments(tree, found, image_dir, work_dir, options, subject.network());
    let own = memory_fs::own(&subject.spec);
    let inside = found.by_several_ids.then(|| Inside::of(&tree.program().dir(), &own)).transpose()?;
    let places = inside.as_ref().map(|inside| Places::of_several(inside, &found.files.users));
    let hosts = mount::table()?;
    let this = pidfd_open(getpid(), PidfdFlags::empty()).context(|| "open a pidfd")?;
    let dumped = aside::run(|| {
        let runtime = Runtime::new(Some(this.as_fd()), STUCK_WITHIN);
        subject.join_all()?;
        if subject.namespaces.contains(Namespace::Ipc) {
            preflight::check_ipc()?;
        }
        rustix::process::umask(Mode::RWXG | Mode::RWXO);
        match subject.hidden_filters {
            true => {
                filters::run_criu(&opened, &args, &[image_dir, work_dir], &subject.filters, &runtime)?;
            }
            false => execute(&opened, &args, &[image_dir, work_dir], &runtime)?,
        }
        reach::check_names(image)?;
        places::check_removed(image)?;
        places.as_ref().map_or(Ok(()), |places| places.check_image(image))?;
        memory_fs::save(memory, &hosts, image)
    });
    watches::forget(log_in);
    dumped.map_err(|e| {
        criu_log::explain_in(e, log_in, "dump.log").context(format!("image {}", options.image.display()))
    })
}

/// Opens the directory for criu's log. It is made where it is missing, as runc does.
///
/// # Errors
/// Others could put something else there, such as a link for criu to write to.
pub(super) fn open_work(path: &Path) -> Result<(PathBuf, OwnedFd)> {
    let path = fd::absolute(path)?;
    image::make_all(&path)?;
    image::require_own(&path, &format!("--work-path {}", path.display()))?;
    // containerd's is a link.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = fs::open(&path, flags, Mode::empty()).context(|| format!("open {}", path.display()))?;
    Ok((path, dir))
}

/// Runs criu as a child, which is in the PID namespace that this process has joined.
fn execute(opened: &Opened, args: &[String], dirs: &[&OwnedFd], runtime: &Runtime<'_>) -> Result<()> {
    let child = process::spawn(Namespaces::NONE, Memory::Copied, || aside::report(&opened.exec(args, dirs)))?;
    runtime.wait_for(&child)?;
    aside::succeeded(&child, "criu")
}

/// What both commands of criu are given: `command` and the directories.
pub(super) fn common(command: &str, image: &OwnedFd, work: &OwnedFd) -> Vec<String> {
    let path = |fd: &OwnedFd| fd::link(fd);
    let words = [
        command,
        "--no-default-config",
        "--unprivileged",
        // The usual place of its plugins is the image's here. This directory is the kernel's, and has none.
        "--libdir=/proc/self/ns",
        "--shell-job",
        "--file-locks",
        "--leave-stopped",
        "--manage-cgroups=ignore",
        "-v2",
        "--images-dir",
        &path(image),
        "--work-dir",
        &path(work),
        "--log-file",
        &format!("{command}.log"),
    ];
    words.map(str::to_owned).to_vec()
}

fn arguments(
    tree: &Tree,
    found: &Found,
    image: &OwnedFd,
    work: &OwnedFd,
    options: &DumpOptions,
    network: Network,
) -> Vec<String> {
    let mut words = common("dump", image, work);
    words.extend(["--tree".to_owned(), tree.program().inside.to_string(), "--ghost-limit=1G".to_owned()]);
    if network == Network::Own {
        words.extend(["--tcp-established", "--network-lock=skip"].map(str::to_owned));
    }
    if options.tcp_close {
        words.push("--tcp-close".to_owned());
    }
    if options.link_remap {
        words.push("--link-remap".to_owned());
    }
    if !found.sends_outside.is_empty() {
        words.push("--ext-unix-sk".to_owned());
    }
    if found.watches {
        words.push("--force-irmap".to_owned());
    }
    words.extend(found.external.iter().flat_map(|name| ["--external".to_owned(), name.clone()]));
    words
}
