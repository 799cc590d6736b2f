//! The life of a container: create, start, run, exec, kill, pause, delete.

mod account;
mod create;
mod devices;
mod entrypoint;
mod exec;
mod foreground;
mod handover;
mod hidden_state;
mod holder;
mod hooks;
mod images;
mod init;
mod layer;
mod lifecycle;
mod lost;
mod members;
mod mounts;
mod not_executable;
mod package_managers;
mod path_search;
mod pid1;
mod plan;
mod program;
mod protect;
mod ranks;
mod refused;
mod request;
mod restored;
mod root;
mod root_emulation;
mod saving;
mod step;
mod sync;
mod trace;

pub(crate) use create::{create, run};
pub(crate) use entrypoint::EntrypointRequest;
pub(crate) use exec::{exec, filters_of};
pub(crate) use handover::Handover;
pub(crate) use images::{ImageMounts, Way, mount_for as mount_image};
pub(crate) use init::undumpable;
pub(crate) use lifecycle::{
    DUMPED_WITHIN, Deletion, Receiver, delete, end_dumped, kill, note_parted, note_paused, pause, resume,
    start,
};
pub(crate) use not_executable::loader_of;
pub(crate) use pid1::main as init_main;
pub(crate) use plan::criu_filter;
pub(crate) use protect::{copy_executable, executable, protect_binary, sealed};
pub(crate) use ranks::run_rank;
pub(crate) use refused::remedy as namespaces_remedy;
pub(crate) use saving::{keep_layer, show_as_bundle};
pub(crate) use step::{
    RunningTask, StepTask, environment, find_run, find_step, run_task, tasks_delete, tasks_kill, tasks_status,
};

use crate::store::{Confinement, PersistentContainer, Store};
use oci_spec::runtime::Mount;
use rt_image_store::Word;
use rt_launch::task::{TaskContext, TaskId};
use rt_spec::Spec;
use rt_spec::emulation::RootEmulation;
use rt_spec::rootless::UserMap;
use rt_spec::state::Step;
use rt_sys::bail;
use rt_sys::caller::Caller;
use rt_sys::error::Result;
use rt_sys::ns::Namespaces;
use rt_sys::owned::AmongOthers;
use rt_sys::seccomp::Filter;
use rustix::fd::{AsFd, BorrowedFd, RawFd};
use std::path::{Path, PathBuf};

/// What was found out about the config of a container, which its copy does not say.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SavedConfig {
    /// An image, or somebody else than the caller, may have written it.
    pub of_image: bool,
    /// Others could change the bundle.
    pub of_others: bool,
    /// What the program is kept from.
    pub confinement: Confinement,
}

/// What the caller of `create`, `run` or a task of a step asks for, beyond what config.json says. [`request::StartRequest`] adds
/// what the site, the user and the step say.
#[derive(Debug, Default)]
pub(crate) struct CreateOptions {
    /// The container's id; checked by [`crate::store`].
    pub id: String,
    /// The bundle directory, as given.
    pub bundle: PathBuf,
    /// The bundle is the working directory by now: whose word it is.
    pub entered: Option<Word>,
    /// The same, of a bundle that Slurm has made for a task.
    pub slurms_directory: Option<AmongOthers>,
    /// The image file that a task's container is made from, in place of a bundle.
    pub image_file: Option<PathBuf>,
    /// Another name than `<bundle>/config.json` (crun's `--config`).
    pub config: Option<PathBuf>,
    /// What was read there, where the caller has named it.
    pub callers_config: Option<plan::CallersConfig>,
    /// What the caller gets of the container's first process.
    pub handover: Handover,
    /// Use chroot(2) instead of pivot_root(2) (for a ramfs root).
    pub no_pivot: bool,
    /// What was found out about the config, where it is one that was saved with a container.
    pub saved: Option<SavedConfig>,
    /// Keep the caller's session keyring.
    pub no_new_keyring: bool,
    /// How many descriptors above 2 the container gets, behind `listen_fds`.
    pub preserve_fds: u32,
    /// How many descriptors from 3 on a service manager has passed to this process (sd_listen_fds(3)).
    pub listen_fds: u32,
    /// Turns each silent adaptation of a root config into an error (`--strict`).
    pub strict: bool,
    /// Which id the process has inside (`--user-map`), over the annotation `rt.user`.
    pub user_map: Option<UserMap>,
    /// Directories of hook definitions beyond the usual ones (`--hooks-dir`).
    pub hooks_dirs: Vec<PathBuf>,
    /// No definitions of hooks are read: those of the config are all.
    pub no_hooks: bool,
    /// How long the runtime and the state live beside the container.
    pub lifetime: Lifetime,
    /// The directory of the layer is removed when the container has ended.
    pub removes_layer: bool,
    /// A log takes what the program of a detached container writes to a terminal or a pipe of the caller's.
    pub log: bool,
    /// What the command line changes in the config, and of a task that Slurm or its plugin starts also its step.
    pub overrides: Overrides,
    /// The program gets the caller's environment where the config asks for that.
    pub inherit_env: bool,
    /// The program gets the caller's environment in any case, as a task of this job.
    pub env_of_job: Option<String>,
    /// The image's entrypoint is run before the first program of a step's container.
    pub entrypoint_first: Option<EntrypointRequest>,
    /// The MPI library that the container runs with: that of the `host` or of the `image`.
    pub mpi: Option<String>,
    /// The task of a Slurm step that the container is for.
    pub task: Option<TaskContext>,
    /// The run with whose other processes the container is shared.
    pub run: Option<Run>,
    /// What keeps a rank from the container of the others of its run, for an error.
    pub apart: Option<String>,
    /// The task's container outlives the step.
    pub persistent: Option<PersistentRequest>,
    /// Images that are files are unpacked and not mounted (`--extract`).
    pub extract: bool,
    /// The file that gets a line about where the start's time went (`--trace`).
    pub trace: Option<PathBuf>,
    /// Where the program comes from an image, or is to become one.
    pub checkpoint: Option<Box<dyn Checkpoint>>,
    /// Opens the directory of checkpoints that a task's environment names, where that is known later than these options.
    pub opens_checkpoints: Option<OpenCheckpoints>,
    /// What the site and the user have configured counts too, below what the caller says.
    pub configured: bool,
    /// The program has the caller's umask where the config names none: a person calls, and files in the home that is bound are
    /// that person's.
    pub callers_umask: bool,
}

/// A run whose processes on this node share a container.
#[derive(Debug)]
pub(crate) struct Run {
    /// What people call it.
    pub name: String,
    /// What tells it from every other run.
    pub key: String,
    /// This process, by which it is known in the container: a rank may be several processes, one after the other or at once.
    pub pid: u32,
    /// Its number among the ranks.
    pub rank: Option<u32>,
    /// The step of Slurm that it is.
    pub step: Option<Step>,
    /// The caller has named it, and not a launcher.
    pub named: bool,
    /// The caller has said that it shares, whatever is configured.
    pub explicit: bool,
    /// The pid of its launcher, while which lives the container is held for ranks to come.
    pub launcher: Option<i32>,
    /// How many ranks the launcher starts, on this node or in all.
    pub ranks: Option<u32>,
}

/// What a step asks of a container that outlives it.
#[derive(Debug)]
pub(crate) struct PersistentRequest {
    /// What it is made from, and where its layer is.
    pub container: PersistentContainer,
    /// The container has to run.
    pub must_run: bool,
    /// A step that has not made it gets mounts of its own.
    pub own_mounts: bool,
    /// The image file that it is saved to when the step ends.
    pub save: Option<PathBuf>,
    /// The step names an image, and not the container alone.
    pub image_named: bool,
}

/// How long the runtime stays beside a container, and the state after it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// `run`: the runtime stays until the program has ended, and removes the state then.
    #[default]
    Foreground,
    /// `run --keep`: the runtime stays until the program has ended, and leaves the state to `delete`.
    ForegroundKept,
    /// `run --detach`: the runtime ends when the program runs.
    Detached,
    /// `create`: the runtime ends when init waits for `start`.
    Created,
}

/// Opens the directory of checkpoints of a task, by the variables of its job.
pub(crate) type OpenCheckpoints = fn(&Path, &TaskId, rt_config::Lookup<'_>) -> Result<Box<dyn Checkpoint>>;

impl CreateOptions {
    /// Has the program go on from the image of `checkpoint`, and become one, in a container that is nobody else's.
    pub(crate) fn keep(&mut self, checkpoint: Box<dyn Checkpoint>) {
        self.checkpoint = Some(checkpoint);
        // criu makes processes by their numbers, which are free in a PID namespace of their own only.
        self.overrides.namespaces.pid = Some(Choice::Private);
        self.overrides.init = Some(true);
        if let Some(task) = &mut self.task {
            task.share = false;
        }
    }

    /// True where the program comes from an image, and as the first process of its PID namespace.
    fn makes_first(&self) -> bool {
        self.checkpoint.as_ref().is_some_and(|checkpoint| checkpoint.makes_first())
    }

    /// The image that the program comes from.
    fn restored(&self) -> Option<&dyn Checkpoint> {
        self.checkpoint.as_deref().filter(|checkpoint| checkpoint.is_there())
    }
}

impl Lifetime {
    /// True where the container outlives the runtime.
    fn is_detached(self) -> bool {
        matches!(self, Lifetime::Detached | Lifetime::Created)
    }
}

/// Changes to the config. The default changes nothing.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Overrides {
    /// Binds of the site and the user, below `volumes`.
    pub defaults: Vec<rt_config::Setting>,
    /// Names of variables that are removed from `process.env`.
    pub unset_env: Vec<String>,
    /// Replaces `process.args` where not empty, behind the entrypoint.
    pub args: Vec<String>,
    /// What stands before `args`.
    pub entrypoint: Entrypoint,
    /// Added to `process.env`, as [`rt_spec::environment::expand`] has it.
    pub env: Vec<String>,
    /// Where what the program writes to the root goes.
    pub root: RootAccess,
    /// Whether the caller's home is mounted, over the annotation `rt.home`.
    pub home: Option<bool>,
    /// Replaces `process.cwd`.
    pub cwd: Option<PathBuf>,
    /// Replaces `process.terminal`.
    pub terminal: Option<bool>,
    /// `SRC:DST[:OPTIONS]` each, options as podman's `-v`.
    pub volumes: Vec<String>,
    /// Whether an init of `rt`'s own is the first process of a new PID namespace, over the annotation `rt.init`.
    pub init: Option<bool>,
    /// More mounts, behind the config's and the volumes.
    pub mounts: Vec<Mount>,
    /// The config's mounts at these places and below are left out.
    pub unmounted: Vec<PathBuf>,
    /// CDI names, `VENDOR/CLASS=NAME` each.
    pub devices: Vec<String>,
    /// Namespaces that are not to be as the config says.
    pub namespaces: NamespaceChoices,
    /// Replaces `process.user`.
    pub user: Option<Ids>,
    /// What becomes of the owners that root of one id gives (`--root-emulation`), over the annotation.
    pub root_emulation: Option<RootEmulation>,
}

/// A user id and a group id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ids {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

impl Ids {
    /// The value of `--user`: `UID[:GID]`; without a gid the group is 0, as in runc. Of the names root is known, which is the same
    /// number everywhere.
    pub(crate) fn parse(text: &str) -> Result<Ids> {
        let number = if text == "root" { "0" } else { text };
        let (uid, gid) = number.split_once(':').unwrap_or((number, "0"));
        match (uid.parse(), gid.parse()) {
            (Ok(uid), Ok(gid)) => Ok(Ids { uid, gid }),
            _ => bail!("--user {text:?} is not UID[:GID] in numbers"),
        }
    }
}

/// Who has the namespace that the program runs in: what `--net`, `--pid` and `--ipc` take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The caller's.
    Host,
    /// The container's own.
    Private,
}

/// Which namespaces the command line chooses.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct NamespaceChoices {
    /// The network: the caller's, or loopback alone.
    pub net: Option<Choice>,
    /// The processes.
    pub pid: Option<Choice>,
    /// System V IPC, POSIX message queues and shared memory.
    pub ipc: Option<Choice>,
    /// The host name, in a UTS namespace of the container's own.
    pub hostname: Option<String>,
}

/// What stands before the arguments of the command line.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) enum Entrypoint {
    /// Nothing: they are the whole command.
    Without,
    /// The image's, where there are arguments.
    #[default]
    OfImage,
    /// This program, or none, whether there are arguments or not.
    Command(Option<String>),
}

/// Whether the root can be written, and where to.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) enum RootAccess {
    /// As the config says.
    #[default]
    AsConfigured,
    /// The root cannot be written.
    ReadOnly,
    /// To the image where the config says that it can be written, else to a layer in memory.
    Writable,
    /// To a layer in memory, which is gone with the container.
    InMemory,
    /// To a layer in this directory.
    Overlay {
        /// The directory.
        dir: PathBuf,
        /// What is in the layer is shown, and nothing can be written.
        readonly: bool,
    },
}

impl CreateOptions {
    /// Makes the bundle the working directory, once, by the way that the caller has named: whoever can rename in a directory
    /// above cannot put another one in its place then. The config may be read twice.
    fn enter_bundle(&mut self) -> Result<()> {
        self.make_absolute()?;
        self.entered = Some(match self.has_slurms_config() {
            true => {
                self.slurms_directory = Some(plan::enter_bundle_of_slurm(&self.bundle)?);
                Word::Callers
            }
            false => plan::enter_bundle(&self.bundle)?.1,
        });
        self.bundle = PathBuf::from(".");
        Ok(())
    }

    /// True for a task whose config Slurm has written.
    fn has_slurms_config(&self) -> bool {
        self.task.as_ref().is_some_and(|task| !task.has_own_environment)
    }

    /// Makes every path independent of the working directory, which will be the bundle.
    fn make_absolute(&mut self) -> Result<()> {
        self.handover.make_absolute()?;
        if self.callers_config.is_none() && self.saved.is_none() {
            self.callers_config = self.config.as_deref().map(plan::CallersConfig::read);
        }
        let files = self.config.iter_mut().chain(&mut self.image_file).chain(&mut self.trace);
        for path in files.chain(&mut self.hooks_dirs) {
            *path = rt_sys::fd::absolute(&*path)?;
        }
        if let RootAccess::Overlay { dir, .. } = &mut self.overrides.root {
            *dir = rt_sys::fd::absolute(&*dir)?;
        }
        for volume in &mut self.overrides.volumes {
            if !volume.starts_with('/')
                && let Some((source, rest)) = volume.split_once(':')
                && !source.is_empty()
            {
                *volume = format!("{}:{rest}", rt_sys::fd::absolute(source)?.display());
            }
        }
        for mount in self.overrides.mounts.iter_mut().filter(|mount| mount.typ().as_deref() == Some("bind")) {
            let source = mount.source().as_ref().map(rt_sys::fd::absolute).transpose()?;
            mount.set_source(source);
        }
        Ok(())
    }
}

/// What `exec` is asked to do.
#[derive(Debug, Default)]
pub(crate) struct ExecOptions {
    /// The container to enter.
    pub id: String,
    /// A file with an OCI `process` object (`--process`); overrides everything below it.
    pub process: Option<PathBuf>,
    /// The command, where no process file is given.
    pub args: Vec<String>,
    /// Replaces the container's environment.
    pub base_env: Option<Vec<String>>,
    /// `NAME=VALUE` each, added to the container's environment.
    pub env: Vec<String>,
    /// Replaces the container's working directory.
    pub cwd: Option<PathBuf>,
    /// `UID[:GID]`.
    pub user: Option<String>,
    /// Additional group ids.
    pub additional_gids: Vec<u32>,
    /// Capabilities added to the container's (`CAP_*` names).
    pub caps: Vec<String>,
    /// Sets no_new_privs whatever the config says.
    pub no_new_privs: bool,
    /// Gives the process a terminal; `None` follows the process file.
    pub tty: Option<bool>,
    /// Return once the process runs.
    pub detach: bool,
    /// What the caller gets of the new process.
    pub handover: Handover,
    /// How many descriptors above 2 the process gets.
    pub preserve_fds: u32,
    /// Enter also where the container is paused.
    pub ignore_paused: bool,
    /// AppArmor profile for the new process.
    pub apparmor: Option<String>,
    /// SELinux label for the new process.
    pub process_label: Option<String>,
}

/// Where a container's program comes from an image of its memory and not from execve(2), and where one is made of it.
pub(crate) trait Checkpoint: std::fmt::Debug {
    /// True where there is an image.
    fn is_there(&self) -> bool;

    /// True where the program was the first process of its PID namespace. The namespace is made together with it.
    fn makes_first(&self) -> bool;

    /// Fails where the program's filters keep it from being restored, or from becoming an image, as far as that is wanted. They are
    /// hidden where criu cannot suspend them.
    fn check_filters(&self, filters: &[Filter], are_hidden: bool) -> Result<()>;

    /// What [`Checkpoint::restore`] needs open beside the standard streams.
    fn descriptors(&self) -> Vec<RawFd>;

    /// Makes the program's processes, stopped. This one is in the container's root, with all capabilities there, and it is the
    /// first of the container's PID namespace unless that comes with the program. They are its children, or will be those of
    /// who takes its orphans. `config` is the container's; what is made ends with `runtime`. `held` is called while none
    /// of them can run; where it fails, it has ended them all. Returns the number of the program inside.
    fn restore(
        &self,
        config: &Spec,
        most: &Limits,
        runtime: Option<BorrowedFd<'_>>,
        held: &mut dyn FnMut(Held) -> Result<()>,
    ) -> Result<i32>;

    /// Compares all processes of this one's /proc, but this one and `others`, with what `config`, the container's, gives, and all that
    /// they have open with the container.
    fn check(&self, config: &Spec, most: &Limits, others: &[i32]) -> Result<()>;

    /// Called when they have been made, while this process has its capabilities still: none of them is to learn that its children have
    /// been stopped. They are those of this one's /proc.
    fn forget_stops(&self) -> Result<()>;

    /// Has all processes of this one's /proc go on, a first one of its PID namespace last.
    fn continue_all(&self) -> Result<()>;

    /// Called in the runtime when the program goes on, or is about to: it gets back what no memory holds.
    fn goes_on(&self, store: &Store, id: &str) -> Result<()>;

    /// The signals that end a call before the program is restored.
    fn interrupts(&self) -> &'static [i32];

    /// Called when signal `number` of those has done so, and nothing of the container is left. Returns the exit code in place of an
    /// error.
    fn interrupted(&self, number: i32) -> Option<u8>;

    /// Called when the program runs, in the foreground, which has blocked all signals.
    fn begin(&self);

    /// Called when the program has ended by itself, with its exit code.
    fn ended(&self, code: u8) -> Result<()>;

    /// Says what becomes of a signal that the foreground got for the program.
    fn signalled(&self, store: &Store, id: &str, number: i32) -> Result<Signalled>;
}

/// What has become of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signalled {
    /// The signal is the program's.
    PassOn,
    /// The signal is done with.
    Taken,
    /// The container has ended, and this is the exit code.
    Ended(u8),
}

/// How far restored processes are that cannot run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The program is there, and with it the PID namespace whose first process it is. It has opened nothing, and is alone.
    Namespaces,
    /// All have been made.
    Made,
}

/// Restored processes that cannot run, by their numbers in the PID namespace of who has had them made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held {
    pub at: Moment,
    /// The program.
    pub program: i32,
    /// The processes that hold them.
    pub by: [i32; 2],
}

/// What restored processes have.
#[derive(Debug)]
pub(crate) struct Limits {
    /// The most of every set of capabilities.
    pub caps: rt_sys::caps::Mask,
    /// Each has no_new_privs.
    pub no_new_privs: bool,
    /// Each has these filters, in the order in which they are loaded.
    pub filters: Vec<Filter>,
    /// Each has these ids; `None` where the config lets a program change them.
    pub ids: Option<FixedIds>,
}

/// The user and the groups of a process that cannot change them.
#[derive(Debug)]
pub(crate) struct FixedIds {
    /// User id inside.
    pub uid: u32,
    /// Group id inside.
    pub gid: u32,
    /// The supplementary groups; `None` where they are the caller's.
    pub groups: Option<Vec<u32>>,
}

/// The namespaces of the container of this config, whose first process is `pid`, that are not the caller's.
pub(crate) fn namespaces_of(config: &Spec, pid: i32) -> Result<Namespaces> {
    let proc = rt_sys::fd::open_proc()?;
    exec::namespaces(config, &Caller::current()?, proc.as_fd(), pid)
}

/// The pids of all the container's processes as the caller sees them, ascending.
pub(crate) fn processes(store: &Store, id: &str) -> Result<Vec<i32>> {
    members::Members::of(store, &store.load(id)?)?.list()
}
