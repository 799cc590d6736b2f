//! The plan: a plain value that says exactly what a container's init will do.
//!
//! Everything that can fail without the kernel fails here, before the first process is made.

mod account;
mod chosen_namespaces;
mod devices;
mod foreign;
mod hosts_root;
mod image_files;
mod kernel;
mod load;
mod mounts;
mod namespaces;
mod pip;
mod process;
mod prompt;
mod seccomp;
mod session;

pub(super) use account::Account;
pub(super) use devices::DevicePlan;
pub(crate) use foreign::CallersConfig;
pub(super) use image_files::{Root, needed as needed_images};
pub(super) use kernel::{NetDevice, Sysctl};
pub(super) use load::{BundleConfig, Loaded, enter_bundle, enter_bundle_of_slurm};
pub(super) use mounts::{MountKind, MountPlan};
pub(super) use namespaces::configured as configured_namespaces;
pub(super) use process::{ProcessPlan, bit_list};
pub(crate) use seccomp::criu_filter;
pub(super) use seccomp::{SeccompPlan, devices_filter, shared_filter, terminal_filter};

use super::entrypoint::EntrypointPlan;
use super::hidden_state;
use super::images::ImageMounts;
use super::layer::Seen;
use super::request::StartRequest;
use super::restored::Late;
use oci_spec::runtime::{Hooks, LinuxDeviceType};
use rt_image_store::others::OthersRoot;
use rt_launch::job_environment::JobEnvironment;
use rt_launch::{single_copy, slurm};
use rt_spec::caller_request::{CallerRequest, Program};
use rt_spec::emulation::RootEmulation;
use rt_spec::rootless::{self, Adapted};
use rt_spec::{Config, Linux, SHARES_FILES, annotations};
use rt_sys::caller::{Caller, Privilege};
use rt_sys::caps;
use rt_sys::error::Result;
use rt_sys::mount::Propagation;
use rt_sys::ns::{IdMaps, Namespace, Namespaces};
use rt_sys::{err, look};
use std::path::{Path, PathBuf};

/// CAP_SYS_ADMIN, with which mounts are made and removed.
const SYS_ADMIN: caps::Mask = 1 << 21;
/// CAP_MKNOD, with which device nodes are made in the host's user namespace.
const MKNOD: caps::Mask = 1 << 27;

/// A layer over the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Layer {
    /// A tmpfs of the container's own.
    Memory,
    /// A directory of the caller's, absolute.
    Overlay(PathBuf),
    /// What is kept in such a directory, below a tmpfs of the container's own that ends up read-only.
    Shown(PathBuf),
}

/// A directory that is to be the root.
#[derive(Debug)]
pub(super) struct FoundRoot {
    /// Its path from the bundle on.
    pub way: PathBuf,
    /// Its device and inode.
    pub id: (u64, u64),
}

/// What init will do, in this order.
#[derive(Debug)]
pub(super) struct Plan {
    /// The bundle, absolute; the runtime's working directory, and init's until it mounts.
    pub bundle: PathBuf,
    /// The root file system, absolute.
    pub rootfs: PathBuf,
    /// The directory that was found there; none where an image is mounted.
    pub root_found: Option<FoundRoot>,
    /// The root, where it is in a bundle in which others can have written.
    pub others_root: Option<OthersRoot>,
    /// An image, or somebody else, may have written the config.
    pub of_image: bool,
    /// Others can change the bundle.
    pub of_others: bool,
    /// The namespaces to make.
    pub new: Namespaces,
    /// The namespaces to join, the user namespace first.
    pub join: Vec<(Namespace, PathBuf)>,
    /// Id maps of the new user namespace.
    pub maps: Option<IdMaps>,
    /// Init writes its maps itself: one id each, which is the caller's.
    pub own_maps: bool,
    /// Text for /proc/self/timens_offsets.
    pub time_offsets: String,
    /// Network devices to move in.
    pub net_devices: Vec<NetDevice>,
    /// Propagation of the container's root.
    pub propagation: Option<Propagation>,
    /// The root ends up read-only.
    pub readonly_root: bool,
    /// What takes what is written to the root in place of the image. Where there is one, the root is this container's own
    /// from its first mount on: whatever is made in it is made in the layer.
    pub layer: Option<Layer>,
    /// How many bytes a layer in memory takes at most; half of the node's memory where that is not said.
    pub layer_bound: Option<u64>,
    /// What was looked at of a layer that is kept, before init is made.
    pub layer_seen: Seen,
    /// The container's id, by which others know who uses the layer.
    pub layer_user: String,
    /// What keeps a rank from the container of the others of its run.
    pub apart: Option<String>,
    /// The layer is a step's, and another step of which Slurm says that it has ended may still use it.
    pub waits_for_layer: bool,
    /// Use chroot rather than pivot_root.
    pub no_pivot: bool,
    /// Mounts, in order.
    pub mounts: Vec<MountPlan>,
    /// The caller's lines in passwd and group.
    pub account: Option<Account>,
    /// What root of one id cannot do is answered with success.
    pub emulate_root: bool,
    /// Device nodes and links in /dev; empty where /dev is bound from the host.
    pub devices: Vec<DevicePlan>,
    /// False where /dev is bound from the host.
    pub own_dev: bool,
    /// Paths to hide.
    pub masked: Vec<PathBuf>,
    /// Paths to make read-only.
    pub readonly: Vec<PathBuf>,
    /// Host name.
    pub hostname: Option<String>,
    /// NIS domain name.
    pub domainname: Option<String>,
    /// Kernel settings.
    pub sysctl: Vec<Sysctl>,
    /// Device nodes can be made (real root outside a user namespace).
    pub may_mknod: bool,
    /// Keep the caller's session keyring.
    pub no_new_keyring: bool,
    /// Hooks of all stages.
    pub hooks: Hooks,
    /// What the caller has said, for hooks.
    pub caller_request: CallerRequest,
    /// The first process of the new PID namespace is an init of `rt`'s own.
    pub init: bool,
    /// Somebody has asked for the working directory by a flag, and is told where it is an empty one.
    pub asked_cwd: bool,
    /// The image's entrypoint, which is run before the program.
    pub entrypoint: Option<EntrypointPlan>,
    /// The program.
    pub process: ProcessPlan,
    /// What was adapted or will not be applied, for the log.
    pub notes: Vec<String>,
    /// Set where the PID namespace comes with restored processes.
    pub late: Option<Late>,
}

/// What of the host decides what a container can have.
pub(super) struct Host<'a> {
    /// Who calls.
    pub caller: &'a Caller,
    /// Images that are files, which are mounted.
    pub images: &'a ImageMounts,
    /// The state directory.
    pub state: &'a Path,
    /// Where state is looked for when nobody names a place.
    pub state_places: &'a [PathBuf],
}

/// What the caller has said, for hooks. The hook for MPI looks at the program, which may not be that of the config's file.
fn caller_request(spec: &rt_spec::Spec, request: &StartRequest) -> CallerRequest {
    let mut asked = request.for_hooks();
    if rt_spec::asks_for_mpi(spec) {
        asked.program = spec.process().as_ref().map(Program::of);
    }
    asked
}

/// Refuses to write into the root of a bundle whose files other images have, too.
#[cold]
fn require_own_files(rootfs: &Path) -> Result<()> {
    // Whose bundle it is may have a file system of his there, which never answers.
    match look::kind_unserved(rootfs.join("..").join(SHARES_FILES)) {
        Ok(None) => return Ok(()),
        Ok(Some(_)) => {}
        // What its user may not look at is no bundle of his store.
        Err(e) if e.is(libc::EACCES) => return Ok(()),
        Err(e) => return Err(e),
    }
    let text = "other images have the same files, so nobody may write to them";
    Err(err!("rootfs {}: {text}", rootfs.display()).hint(
        "--writable and --overlay DIR take what is written; rt pull IMAGE DIR and rt build -o DIR make a bundle of your own",
    ))
}

/// Says that root in the container is the caller, who asks for that to install something.
#[cold]
fn tell_of_others_files(root: &Root, caller: &Caller) {
    let owner = root.found.st_uid;
    if caller.is_unprivileged() && !root.is_image() && owner != caller.uid {
        rt_sys::log::tell(format_args!(
            "the image's files belong to uid {owner} and stay as they are, also for root here (rt pull IMAGE DIR makes them yours)"
        ));
    }
}

impl Plan {
    /// Adapts the config, which [`rt_spec::check`] has accepted, whose `root` has been looked at, and whose bundle is this process's
    /// working directory. Returns the config too, for the state.
    pub(super) fn make(
        request: &StartRequest,
        host: &Host<'_>,
        loaded: Loaded,
        root: &Root,
    ) -> Result<(Plan, Config)> {
        let Loaded {
            bundle,
            mut config,
            inherits_env,
            layer,
            entrypoint,
            of_image,
            foreign,
            confinement,
            ..
        } = loaded;
        let caller = host.caller;
        if namespaces::names_own_user(&config.spec, caller) {
            namespaces::leave_out_user(&mut config);
        }
        let adapted = rootless::adapt(&config.spec, caller, request.user_map)?;
        let mut plan = Self::from_config(&config, bundle, root, host, adapted, request)?;
        let protected =
            hosts_root::protect_host(&mut plan, &config.spec, caller, request.user_map, of_image)?;
        if plan.could_unmount(&config) {
            if protected {
                plan.forbid_unmounting("the host's settings and disks, which stay hidden", &mut config);
            } else if plan.shows_state(host)? {
                plan.forbid_unmounting("rt's state directory, which stays covered", &mut config);
            }
        }
        if foreign {
            plan.caller_request.config = Some(String::from_utf8_lossy(&config.text()?).into_owned());
        }
        (plan.of_image, plan.of_others) = (of_image, foreign);
        plan.asked_cwd = request.callers_umask && request.overrides.cwd.is_some();
        plan.layer = layer;
        if !plan.readonly_root && plan.layer.is_none() {
            require_own_files(&plan.rootfs)?;
        }
        // A person's `rt run`, or a task.
        let by_hand = request.callers_umask || request.task.is_some();
        if by_hand && request.user_map == Some(rootless::UserMap::Root) && plan.layer.is_some() {
            tell_of_others_files(root, caller);
        }
        plan.entrypoint = entrypoint;
        plan.process.confinement = confinement;
        if inherits_env {
            plan.process.inherit_pmi();
        }
        // Tasks and ranks that share a container read each other's memory.
        let alone = request.task.is_none() && request.run.is_none();
        if (inherits_env || request.callers_umask) && plan.maps.is_some() && alone {
            single_copy::avoid(&mut plan.process.env);
        }
        if request.strict
            && let Some(note) = plan.notes.first()
        {
            return Err(err!("{note}").hint("--strict"));
        }
        Ok((plan, config))
    }

    // Out of line as the other steps of `make`: called one after another, they use the same pages of the stack.
    #[inline(never)]
    fn from_config(
        config: &Config,
        bundle: PathBuf,
        root: &Root,
        host: &Host<'_>,
        adapted: Adapted,
        request: &StartRequest,
    ) -> Result<Plan> {
        let (spec, caller) = (&config.spec, host.caller);
        let mut notes = config.warnings.clone();
        notes.extend(adapted.notes.iter().cloned());
        let mut rootfs = root.path.clone();
        let root_found = (!root.is_image())
            .then(|| FoundRoot { way: root.way.clone(), id: (root.found.st_dev, root.found.st_ino) });
        let mut caller_request = caller_request(spec, request);
        if root.is_image() {
            rootfs = host.images.for_root(&root.path, &root.found)?;
            caller_request.rootfs = Some(rootfs.clone());
        } else if let Some(others) = &root.others {
            // By no link, whatever the config says.
            caller_request.rootfs = Some(others.place().unwrap_or_else(|| rootfs.clone()));
            caller_request.others_root = true;
        }
        let process = spec.process().as_ref().ok_or_else(|| err!("config.json: process is missing"))?;
        let linux = spec.linux().as_ref().ok_or_else(|| err!("config.json: linux is missing"))?;
        let (new, join) = namespaces::configured(linux, caller)?;
        if request.overrides.init == Some(true) && !new.contains(Namespace::Pid) {
            return Err(err!("--init: the container has no PID namespace of its own")
                .hint("signals reach its program without an init"));
        }
        let all_ids = rootless::all_ids(caller, &adapted);
        let ids = (!all_ids).then(|| adapted.maps.as_ref().unwrap_or(&caller.maps));
        let no_job = JobEnvironment::default();
        let job = request.task.as_ref().map_or(&no_job, |task| &task.job);
        let home = account::home_mount(spec, job)?;
        let readonly_root = spec.root().as_ref().and_then(|root| root.readonly()).unwrap_or(false);
        // Only root replaces such files. For everybody else a bind shows each node's own.
        let copied = annotations::copied_mounts(spec).filter(|_| !readonly_root && adapted.uid == 0);
        let mut mounts = mounts::plan_mounts(spec, &bundle, home.as_ref(), copied, ids, &mut notes)?;
        mounts::bind_images(&mut mounts, &bundle, host.images)?;
        if ids.is_some() {
            note_substitutes(&mounts, new, linux, &mut notes);
        }
        let own_dev = !mounts
            .iter()
            .any(|mount| mount.destination.as_os_str() == "/dev" && matches!(mount.kind, MountKind::Bind(_)));
        let devices = devices::plan_devices(linux, own_dev)?;
        let own_maps = adapted.maps.is_some() && caller.is_unprivileged();
        let open_fds = request.preserve_fds.saturating_add(request.listen_fds);
        let mut process = ProcessPlan::new(process, &adapted, Some(linux), all_ids, open_fds, &mut notes)?;
        process.listen_fds = request.listen_fds;
        let emulation = annotations::root_emulation(spec)?;
        if adapted.emulate_root && emulation != RootEmulation::Off {
            process.record_owners(linux.seccomp(), emulation)?;
        }
        let account = Account::asked_for(spec, &adapted, &mounts, job)?;
        if let Some(task) = &request.task {
            process.set_task(spec, task);
        } else if request.callers_umask {
            process.take_umask(spec.process().as_ref(), rt_sys::process::umask());
        }
        Ok(Plan {
            rootfs,
            root_found,
            new,
            join,
            own_maps,
            time_offsets: kernel::time_offsets(linux),
            net_devices: kernel::net_devices(linux),
            propagation: linux.rootfs_propagation().as_deref().and_then(rt_spec::mounts::propagation),
            readonly_root,
            layer: None,
            // A job that has written more than its memory ends with slurmstepd, by the kernel's hand.
            layer_bound: request
                .task
                .as_ref()
                .and_then(|task| slurm::memory(&task.job))
                .map(|bytes| bytes / 2),
            layer_seen: Seen::new(),
            layer_user: String::new(),
            apart: request.apart.clone(),
            waits_for_layer: request.persistent.is_some(),
            others_root: root.others.clone(),
            of_image: false,
            of_others: false,
            asked_cwd: false,
            entrypoint: None,
            no_pivot: request.no_pivot,
            mounts,
            account,
            emulate_root: adapted.emulate_root,
            devices,
            own_dev,
            masked: unique_paths(linux.masked_paths()),
            readonly: unique_paths(linux.readonly_paths()),
            late: None,
            hostname: spec.hostname().clone().filter(|n| !n.is_empty()),
            domainname: spec.domainname().clone().filter(|n| !n.is_empty()),
            sysctl: kernel::sysctl(linux),
            may_mknod: all_ids,
            no_new_keyring: request.no_new_keyring,
            hooks: spec.hooks().clone().unwrap_or_default(),
            caller_request,
            process,
            init: new.contains(Namespace::Pid) && annotations::asks_for_init(spec)?,
            maps: adapted.maps,
            bundle,
            notes,
        })
    }

    /// True where the program could unmount what covers something: as root of a user namespace that no list of capabilities
    /// limits. Whoever lists CAP_SYS_ADMIN in a config means it; an image's own config lists none.
    fn could_unmount(&self, config: &Config) -> bool {
        let process = config.spec.process().as_ref();
        self.maps.is_some()
            && self.process.caps.bounding & SYS_ADMIN != 0
            && process.is_none_or(|process| process.capabilities().is_none())
    }

    /// True where the root or a bind shows a state directory.
    fn shows_state(&self, host: &Host<'_>) -> Result<bool> {
        hidden_state::is_shown(&self.rootfs, &self.mounts, host.state, host.state_places)
    }

    /// Takes CAP_SYS_ADMIN because the root or a bind shows `what`, also from what `exec` starts. A namespace that the program
    /// makes is no way around: there the covers are locked (mount_namespaces(7)).
    #[cold]
    fn forbid_unmounting(&mut self, what: &str, config: &mut Config) {
        let all = self.process.caps;
        let without = |mask: caps::Mask| mask & !SYS_ADMIN;
        self.process.caps = caps::Sets {
            bounding: without(all.bounding),
            effective: without(all.effective),
            permitted: without(all.permitted),
            ..all
        };
        self.notes.push(format!("no CAP_SYS_ADMIN: the root or a bind shows {what}"));
        if let Some(process) = config.spec.process_mut() {
            process.set_capabilities(Some(self.process.caps));
        }
        config.changed();
    }

    /// The directory with the record of what has been copied into the root, beside what keeps the copies; `None` where
    /// nothing keeps them.
    pub(super) fn record_dir(&self) -> Option<&Path> {
        match &self.layer {
            None => Some(&self.bundle),
            Some(Layer::Overlay(dir)) => Some(dir),
            Some(Layer::Memory | Layer::Shown(_)) => None,
        }
    }

    /// True where a namespace of `kind` is made, not joined or inherited.
    pub(super) fn makes(&self, kind: Namespace) -> bool {
        self.new.contains(kind)
    }

    /// True where the container has a pid namespace of its own or another's.
    pub(super) fn has_pid_namespace(&self) -> bool {
        self.makes(Namespace::Pid) || self.join.iter().any(|(kind, _)| *kind == Namespace::Pid)
    }

    /// True where the runtime has to do something while init waits.
    pub(super) fn needs_runtime(&self) -> bool {
        let some = |hooks: &Option<Vec<_>>| hooks.as_ref().is_some_and(|h| !h.is_empty());
        #[allow(deprecated, reason = "configs still carry prestart hooks")]
        let prestart = some(self.hooks.prestart());
        prestart
            || some(self.hooks.create_runtime())
            || some(self.hooks.create_container())
            || some(self.hooks.start_container())
            || some(self.hooks.poststart())
            || some(self.hooks.poststop())
            || (self.maps.is_some() && !self.own_maps)
            || !self.net_devices.is_empty()
            || self.process.seccomp.as_ref().is_some_and(|s| s.filter.notifies)
            || self.entrypoint.is_some()
    }

    /// True where a process of the runtime's answers calls of root.
    pub(super) fn is_supervised(&self) -> bool {
        self.process.seccomp.as_ref().is_some_and(|seccomp| seccomp.supervised)
    }

    /// An error where the program gets a seccomp filter, with which it cannot be checkpointed.
    #[cold]
    pub(super) fn refuse_filters(&self) -> Result<()> {
        match &self.process.seccomp {
            Some(plan) if plan.filter.notifies => {
                Err(err!("the program gets a seccomp filter that asks another process, which no image has")
                    .hint("SCMP_ACT_NOTIFY of the config, or --root-emulation"))
            }
            _ => Ok(()),
        }
    }

    /// True where the kernel suspends the program's filters for no tracer of `caller`'s, or a checkpoint has others in their place.
    pub(super) fn hides_filters(&self, caller: &Caller) -> bool {
        let in_user =
            self.makes(Namespace::User) || self.join.iter().any(|(kind, _)| *kind == Namespace::User);
        let is_another = self.process.seccomp.as_ref().is_some_and(SeccompPlan::is_kept_as_another);
        in_user || is_another || caller.privilege != Privilege::Root
    }

    /// True where programs of the image run as children of init before it becomes the program.
    pub(super) fn has_children_of_init(&self) -> bool {
        self.hooks.start_container().as_ref().is_some_and(|hooks| !hooks.is_empty())
            || self.entrypoint.is_some()
    }
}

/// Notes what the kernel does not give without privilege over the host's namespaces, and what is there instead.
fn note_substitutes(mounts: &[MountPlan], new: Namespaces, linux: &Linux, notes: &mut Vec<String>) {
    for mount in mounts {
        let at = mount.destination.display();
        match &mount.kind {
            MountKind::New { fstype, .. } => {
                let owner = match fstype.as_str() {
                    "proc" => Namespace::Pid,
                    "sysfs" => Namespace::Network,
                    "mqueue" => Namespace::Ipc,
                    _ => continue,
                };
                if !new.contains(owner) {
                    let file = owner.file();
                    notes.push(format!(
                        "mount {at}: without a {file} namespace of its own, the host's {fstype} is bound"
                    ));
                }
            }
            MountKind::Cgroup => notes.push(format!("mount {at}: the host's cgroup tree is bound")),
            MountKind::Bind(_) => {}
        }
    }
    for device in linux.devices().iter().flatten().filter(|d| d.typ() != LinuxDeviceType::P) {
        notes.push(format!("device {} is the host's, bound", device.path().display()));
    }
}

/// The paths of a list, each once: a path that is listed twice is not mounted over twice. They are compared letter by letter, since
/// to compare some twenty by their components is a fiftieth of a start; what is spelt in two ways is mounted over twice.
fn unique_paths(list: &Option<Vec<String>>) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = Vec::new();
    for path in list.iter().flatten().map(PathBuf::from) {
        if !paths.iter().any(|known| known.as_os_str() == path.as_os_str()) {
            paths.push(path);
        }
    }
    paths
}
