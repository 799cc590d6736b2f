//! The config that a plan is made of: loaded, and changed as the command line and a task of a Slurm step ask.

use super::Layer;
use super::{asked_namespaces, foreign, pip, prompt};
use crate::container::entrypoint::EntrypointPlan;
use crate::container::trace::{self, Phase};
use crate::container::{CreateOptions, Entrypoint, Ids, Overrides, RootAccess};
use crate::hooks::definitions;
use crate::store::KeptFrom;
use oci_spec::runtime::{Mount, MountBuilder};
use rt_launch::job_environment::JobEnvironment;
use rt_launch::request::StepContainer;
use rt_launch::task::JobDirectory;
use rt_spec::rootless::UserMap;
use rt_spec::said::{MPI, Said};
use rt_spec::{Config, Process, Spec, annotations, asked_mounts, environment, mounts};
use rt_sys::caller::Caller;
use rt_sys::caps::Sets;
use rt_sys::error::{Context, Error, Result};
use rt_sys::{bail, caller, err, fd, look};
use rustix::io::Errno;
use std::collections::HashSet;
use std::path::{Component, Path, PathBuf};

/// A config as it was loaded.
pub(crate) struct Loaded {
    /// The config, changed as the options ask.
    pub config: Config,
    /// Something has been changed, which [`Config::text`] does not say.
    changed: bool,
    /// The program has the caller's environment, below that of the config.
    pub inherits_env: bool,
    /// What takes what the program writes to the root.
    pub layer: Option<Layer>,
    /// The image's entrypoint, which is run first.
    pub entrypoint: Option<EntrypointPlan>,
    /// Others can have written the bundle, and the config asks for nothing of the host.
    pub foreign: bool,
    /// What the program is kept from.
    pub kept_from: KeptFrom,
}

/// The image's own config, in a bundle of `rt pull`.
const IMAGE_CONFIG: &str = "image.json";

/// Loads the config of `bundle`, this process's working directory, and changes it as the options and it itself ask.
pub(crate) fn load(options: &mut CreateOptions, bundle: &Path) -> Result<Loaded> {
    let shown = || bundle.display();
    let mut others = None;
    let mut config = match (options.images.config(), &options.config) {
        (Some(text), _) => Config::parse(text.to_owned())?,
        (None, Some(path)) => Config::load(path)?,
        (None, None) => {
            others = foreign::config(bundle).context(shown)?;
            match &others {
                Some(text) => Config::parse(text.clone()),
                None => Config::load(Path::new("config.json")),
            }
            .context(shown)?
        }
    };
    if options.images.image_config().is_none() && annotations::may_be_labels(&config.spec) {
        forget_labels(&mut config).context(shown)?;
    }
    let of_image = others.is_some() || options.images.image_config().is_some();
    Ok(Loaded { foreign: others.is_some(), ..change(options, config, bundle, of_image)? })
}

/// The same, with the hooks of all directories in the config, and with what hooks of the stage precreate make of it.
pub(crate) fn load_with_hooks(options: &mut CreateOptions, bundle: &Path) -> Result<Loaded> {
    let mut loaded = load(options, bundle)?;
    trace::end(Phase::Load);
    if loaded.changed {
        loaded.config.changed()?;
    }
    if !options.no_hooks {
        definitions::add_to(&mut loaded.config, &options.hooks_dirs, &options.overrides.said(), bundle)?;
    }
    Ok(loaded)
}

/// Leaves out what an image's labels may say in the config of the bundle that is the working directory. `rt pull`, which keeps
/// such labels out, puts the image's own config beside that of the bundle. No image puts anything there.
#[cold]
fn forget_labels(config: &mut Config) -> Result<()> {
    match rustix::fs::stat(IMAGE_CONFIG) {
        Ok(_) => return Ok(()),
        Err(Errno::NOENT) => {}
        Err(e) => return Err(e).context(|| IMAGE_CONFIG),
    }
    for name in annotations::forget_labels(&mut config.spec) {
        config.warnings.push(format!("annotation {name} may be a label of the image and is not heeded"));
    }
    config.changed()
}

/// The same with the config `text`, of the image `file`.
pub(crate) fn load_text(options: &mut CreateOptions, text: Vec<u8>, file: &Path) -> Result<Loaded> {
    let config = Config::parse(text).map_err(|e| e.context(file.display()))?;
    change(options, config, file.parent().unwrap_or(Path::new("/")), true)
}

/// Changes the config as the options and it itself ask. `of_image` says that an image, or somebody else, may have written it.
fn change(options: &mut CreateOptions, mut config: Config, bundle: &Path, of_image: bool) -> Result<Loaded> {
    // Once: a task loads its config again where it cannot join a container.
    if std::mem::take(&mut options.configured) {
        if let Some(task) = options.task.as_mut().filter(|task| !task.asked) {
            task.job = JobEnvironment::of_config(&config.spec, bundle);
            // Not before: until then nobody knows what of it an image has set.
            rt_launch::slurm::read_own_environment(task);
        }
        options.configure()?;
        if let Some(task) = &mut options.task {
            task.directories = rt_launch::slurm::directories(task, fd::is_trusted_directory);
        }
    }
    let changes = &options.overrides;
    let is_hpc = annotations::asks_for_environment(&config.spec)?;
    let inherits_env = changes.env_of_job.is_some() || changes.inherit_env && is_hpc;
    let kept_from = match of_image || is_hpc || inherits_env || annotations::is_of_image(&config.spec) {
        true => KeptFrom {
            keys: !options.no_new_keyring,
            user_namespaces: Caller::current()?.has_hosts_root_uid()?,
        },
        // What a client has written stays as it is.
        false => KeptFrom::default(),
    };
    let entrypoint = match &changes.entrypoint_first {
        Some(asked) => EntrypointPlan::of(&config.spec, asked)?,
        None => None,
    };
    let changed = inherits_env || options.change_config();
    let mut layer = None;
    if changed {
        override_config(&mut config, options, inherits_env)?;
        layer = override_root(&mut config.spec, &options.overrides.root);
    }
    Ok(Loaded { config, changed, inherits_env, layer, entrypoint, foreign: false, kept_from })
}

impl CreateOptions {
    /// Takes over what the site and the user have configured. The variables of a task are those of its job: Slurm calls
    /// `rt run` without them, and has written them into the config ([`JobEnvironment::of_config`]).
    fn configure(&mut self) -> Result<()> {
        let job = self.task.as_ref().filter(|task| !task.asked).map(|task| task.job.clone());
        let found = match &job {
            Some(job) => rt_config::Config::read(&|name| job.setting(name))?,
            None => rt_config::Config::read(&rt_config::own_variable)?,
        };
        if !found.settings.is_empty() {
            self.take_over(&found);
        }
        if let Some(job) = job.filter(|job| job.has(environment::REQUEST_PREFIX)) {
            let here = job.get("SLURM_SUBMIT_DIR").unwrap_or("/");
            let said = |name: &str| job.get(name).map(str::to_owned);
            self.ask(StepContainer::read(&said, Path::new(here))?)?;
        }
        Ok(())
    }

    /// Takes over what the job's environment asks of a step's container, for a bundle: that it says what the image is, how
    /// long the container lives, and where it is saved has no meaning there.
    #[cold]
    fn ask(&mut self, asked: StepContainer) -> Result<()> {
        asked.check_sources()?;
        let changes = &mut self.overrides;
        changes.mounts.extend(asked.mounts);
        changes.unmounted = asked.unmounted;
        changes.unset_env.push(format!("{}*", environment::REQUEST_PREFIX));
        changes.home = asked.home.or(changes.home);
        changes.root = match (asked.writable, asked.as_root) {
            (Some(false), _) => RootAccess::ReadOnly,
            (Some(true), _) | (None, Some(true)) => RootAccess::Writable,
            _ => std::mem::take(&mut changes.root),
        };
        self.user_map = match asked.as_root {
            Some(true) => Some(UserMap::Root),
            Some(false) => Some(UserMap::Caller),
            None => self.user_map,
        };
        if let Some(task) = &mut self.task {
            task.unshare = asked.unshare;
            task.cwd = match asked.workdir {
                Some(path) => Some(JobDirectory { path, identity: None, asked: true, required: true }),
                None => task.cwd.take(),
            };
        }
        Ok(())
    }

    #[cold]
    fn take_over(&mut self, found: &rt_config::Config) {
        let changes = &mut self.overrides;
        changes.defaults = found.of(&rt_config::MOUNTS).cloned().collect();
        changes.unset_env = found.texts(&rt_config::UNSET_ENV).map(str::to_owned).collect();
        if let (RootAccess::AsConfigured, Some(writable)) =
            (&changes.root, found.switch(&rt_config::WRITABLE))
        {
            changes.root = if writable { RootAccess::InMemory } else { RootAccess::ReadOnly };
        }
        changes.home = changes.home.or(found.switch(&rt_config::RUN_HOME).filter(|home| *home));
        changes.init = changes.init.or(found.switch(&rt_config::INIT));
        changes.inherit_env &= found.switch(&rt_config::CLEAR_ENV) != Some(true);
        // What the command line says comes last, and counts.
        changes.env.splice(0..0, found.variables());
        changes.devices.splice(0..0, found.texts(&rt_config::DEVICES).map(str::to_owned));
        let is_shared = found.texts(&rt_config::SHARE).last() != Some("never");
        self.run = self.run.take().filter(|run| run.asked || is_shared);
        self.hooks_dirs.splice(0..0, found.paths(&rt_config::HOOKS_DIRS));
    }

    /// True where the options change the config.
    fn change_config(&self) -> bool {
        self.overrides.any()
            || self.user_map.is_some()
            || self.root_emulation.is_some()
            || self.task.is_some()
    }
}

impl Overrides {
    fn any(&self) -> bool {
        !self.args.is_empty()
            || matches!(self.entrypoint, Entrypoint::Command(_))
            || !self.env.is_empty()
            || self.cwd.is_some()
            || self.terminal.is_some()
            || self.init.is_some()
            || !matches!(self.root, RootAccess::AsConfigured)
            || self.home.is_some()
            || !self.volumes.is_empty()
            || !self.mounts.is_empty()
            || !self.unmounted.is_empty()
            || self.namespaces.any()
            || self.user.is_some()
            || !self.devices.is_empty()
            || !self.defaults.is_empty()
            || !self.unset_env.is_empty()
    }

    /// What hooks are told of it.
    pub(in crate::container) fn said(&self) -> Said {
        let mut env = environment::asked(&self.env);
        env.retain(|variable| definitions::is_for_hooks(variable));
        env.extend(self.mpi.iter().map(|word| format!("{MPI}={word}")));
        Said { env, devices: self.devices.clone(), ..Said::default() }
    }
}

/// Changes the config as the command line and the task ask. Out of line, because most calls change nothing, and it
/// needs a large stack frame.
#[cold]
#[inline(never)]
fn override_config(config: &mut Config, options: &CreateOptions, inherits_env: bool) -> Result<()> {
    let spec = &mut *config.spec;
    let changes = &options.overrides;
    let args = arguments(spec, changes)?;
    if let Some(process) = spec.process_mut() {
        if args.is_some() {
            process.set_args(args);
        }
        override_process(process, changes, inherits_env)?;
    }
    if inherits_env {
        let dir = caller::path("PMIX_SERVER_TMPDIR");
        rt_launch::show_callers_pmix(spec, dir, fd::is_trusted_directory);
    }
    asked_namespaces::choose(spec, &changes.namespaces)?;
    leave_out_mounts(spec, &changes.unmounted);
    add_mounts(spec, changes)?;
    match changes.home {
        Some(true) => rt_spec::annotate(spec, rt_spec::ANNOTATION_HOME, "bind"),
        Some(false) => annotations::forget(spec, rt_spec::ANNOTATION_HOME),
        None => {}
    }
    if inherits_env && changes.env_of_job.is_none() {
        if changes.home == Some(true) {
            bring_along(spec)?;
        }
        leave_out_hidden(spec, changes)?;
    }
    if let Some(Ids { uid, gid }) = changes.user
        && let Some(process) = spec.process_mut()
    {
        process.user_mut().set_uid(uid).set_gid(gid);
    }
    if let Some(init) = changes.init {
        rt_spec::annotate(spec, rt_spec::ANNOTATION_INIT, if init { "true" } else { "false" });
    }
    if let Some(map) = options.user_map {
        // Kept with the config, so that exec finds the same ids.
        rt_spec::annotate(spec, rt_spec::ANNOTATION_USER, map.as_str());
        if map == UserMap::Root {
            forget_empty_capabilities(spec);
        }
    }
    if let Some(emulation) = options.root_emulation {
        rt_spec::annotate(spec, rt_spec::ANNOTATION_ROOT_EMULATION, emulation.as_str());
    }
    if let Some(task) = &options.task {
        // What cannot be looked at is there: the mount on it says why it cannot.
        let is_missing = |dir: &Path| matches!(look::is_dir(dir), Ok(false));
        config.warnings.extend(rt_launch::adapt(spec, task, options.user_map, is_missing));
    } else if options.callers_umask {
        // Only a person's `rt run` has that.
        prompt::set(spec);
        pip::tell(spec, &changes.root)?;
    }
    Ok(())
}

/// Shows what the caller's variables name beside the home that the caller asks for: sockets of ssh-agent, X11 and Wayland, and
/// credentials.
/// Only what is the caller's own, or a socket of root's, and no link leads there. What another bind covers stays covered: a mount
/// point would be made in its source.
fn bring_along(spec: &mut Spec) -> Result<()> {
    let home = caller::path("HOME").filter(|home| home != Path::new("/"));
    for path in environment::files().map(|file| file.path).chain(environment::display()) {
        let is_plain = path.components().skip(1).all(|part| matches!(part, Component::Normal(_)));
        let covers = |mount: &&Mount| path.starts_with(mount.destination());
        let bound = spec.mounts().iter().flatten().rfind(covers).is_some_and(mounts::is_bind);
        let below_home = home.as_ref().is_some_and(|home| path.starts_with(home));
        if !is_plain || bound || below_home || shows(spec, &path) {
            continue;
        }
        let Some((device, inode)) = fd::own_identity(&path) else { continue };
        let identity = format!("{}={device}:{inode}", mounts::IDENTITY);
        let options =
            ["bind", "nosuid", "nodev", mounts::WITHOUT_LINKS, &identity].map(str::to_owned).to_vec();
        let mount = MountBuilder::default().destination(&path).source(&path).typ("bind").options(options);
        let mount = mount.build().map_err(|e| err!("mount {}: {e}", path.display()))?;
        spec.mounts_mut().get_or_insert_default().push(mount);
    }
    Ok(())
}

/// Leaves out what is inherited and names a file of the host's that the container does not show: a program that is told of a
/// socket takes it for one that is broken. A name in WAYLAND_DISPLAY becomes the path of what is shown.
fn leave_out_hidden(spec: &mut Spec, changes: &Overrides) -> Result<()> {
    let home = if annotations::asks_for_home(spec)? { caller::path("HOME") } else { None };
    let mut hidden = Vec::new();
    for file in environment::files() {
        if changes.env.iter().any(|word| environment::asks_for(word, file.name)) {
            continue;
        }
        let shown = home.as_ref().is_some_and(|home| file.path.starts_with(home)) || shows(spec, &file.path);
        let told = file.told.filter(|_| shown).map(|told| format!("{}={told}", file.name));
        if told.is_some() || !shown {
            hidden.push((format!("{}={}", file.name, file.value), told));
        }
    }
    if let Some(process) = spec.process_mut().as_mut().filter(|_| !hidden.is_empty()) {
        let said = |variable: &String| match hidden.iter().find(|(name, _)| name == variable) {
            Some((_, told)) => told.clone(),
            None => Some(variable.clone()),
        };
        let env = process.env().iter().flatten().filter_map(said).collect();
        process.set_env(Some(env));
    }
    Ok(())
}

/// True where a mount of the config shows the host's file `path` at its own place.
fn shows(spec: &Spec, path: &Path) -> bool {
    let covers = |mount: &&Mount| path.starts_with(mount.destination());
    let Some(mount) = spec.mounts().iter().flatten().rfind(covers) else {
        return spec.root().as_ref().is_some_and(|root| root.path() == Path::new("/"));
    };
    let below = path.strip_prefix(mount.destination()).unwrap_or(Path::new(""));
    mounts::is_bind(mount) && mount.source().as_ref().is_some_and(|source| source.join(below) == path)
}

/// Leaves the config's mounts at `places` and below them out.
fn leave_out_mounts(spec: &mut Spec, places: &[PathBuf]) {
    if let Some(mounts) = spec.mounts_mut().as_mut().filter(|_| !places.is_empty()) {
        mounts.retain(|mount| !places.iter().any(|place| mount.destination().starts_with(place)));
    }
}

/// Adds what `-v`, `--mount` and `--tmpfs` ask for, behind the config's mounts.
fn add_mounts(spec: &mut Spec, changes: &Overrides) -> Result<()> {
    if changes.volumes.is_empty() && changes.mounts.is_empty() && changes.defaults.is_empty() {
        return Ok(());
    }
    let mut mounts = spec.mounts().clone().unwrap_or_default();
    for setting in &changes.defaults {
        mounts.extend(configured_mount(setting).map_err(|e| e.context(&setting.from))?);
    }
    let volumes = changes.volumes.iter().map(|volume| asked_mounts::volume(volume));
    let asked = volumes.chain(changes.mounts.iter().cloned().map(Ok)).collect::<Result<Vec<_>>>()?;
    let optional = annotations::optional_mounts(spec).unwrap_or_default();
    let is_optional =
        |mount: &Mount| optional.split(',').any(|path| Path::new(path.trim()) == mount.destination());
    asked.iter().filter(|mount| !is_optional(mount)).try_for_each(require_source)?;
    mounts.extend(asked);
    spec.set_mounts(Some(mounts));
    Ok(())
}

/// What the site or the user has configured; `None` of an optional mount whose source is missing.
fn configured_mount(setting: &rt_config::Setting) -> Result<Option<Mount>> {
    let rt_config::Value::Mount(mount) = &setting.value else { return Ok(None) };
    match rustix::fs::stat(mount.source.as_str()) {
        Err(Errno::NOENT | Errno::NOTDIR) if mount.optional => return Ok(None),
        Err(e) => {
            let error = Error::from(e).context(format!("mount {:?}", mount.source));
            return Err(if e == Errno::NOENT { error.hint("optional = true leaves it out") } else { error });
        }
        Ok(_) => {}
    }
    let options = std::iter::once("rbind").chain(mount.options.iter().map(String::as_str));
    asked_mounts::bind(&mount.source, &mount.target, options.map(str::to_owned).collect()).map(Some)
}

/// Refuses a bind whose source is missing: it is made for nobody, since a wrong path is the more frequent reason.
fn require_source(mount: &Mount) -> Result<()> {
    let Some(source) = mount.source().as_ref().filter(|_| mount.typ().as_deref() == Some("bind")) else {
        return Ok(());
    };
    match rustix::fs::stat(source) {
        Err(Errno::NOENT) => Err(Error::from_errno(libc::ENOENT)
            .context(format!("bind {} to {}", source.display(), mount.destination().display()))
            .hint("rt makes no source of a bind: make it, or correct the path")),
        // What only init may reach, or nobody, is known when it is mounted.
        _ => Ok(()),
    }
}

/// Has the config say whether the root ends up read-only, and says to which layer is written.
fn override_root(spec: &mut Spec, access: &RootAccess) -> Option<Layer> {
    let root = spec.root_mut().as_mut()?;
    let (readonly, layer) = match access {
        RootAccess::AsConfigured => return None,
        RootAccess::ReadOnly => (true, None),
        RootAccess::Writable => (false, root.readonly().unwrap_or(false).then_some(Layer::Memory)),
        RootAccess::InMemory => (false, Some(Layer::Memory)),
        RootAccess::Overlay { dir, readonly: true } => (true, Some(Layer::Shown(dir.clone()))),
        RootAccess::Overlay { dir, readonly: false } => (false, Some(Layer::Overlay(dir.clone()))),
    };
    root.set_readonly(Some(readonly));
    layer
}

/// Leaves out a list of capabilities that is empty, as of a config for the caller's own uid: that uid has none in any
/// case, and whoever asks for root by the command line means a root that has what the user namespace gives.
fn forget_empty_capabilities(spec: &mut Spec) {
    if let Some(process) = spec.process_mut()
        && process.capabilities() == Some(Sets::default())
    {
        process.set_capabilities(None);
    }
}

/// What the program is called with, where the command line says something about it (docker's rules).
fn arguments(spec: &Spec, changes: &Overrides) -> Result<Option<Vec<String>>> {
    let mut args = match &changes.entrypoint {
        Entrypoint::Command(command) => command.iter().cloned().collect(),
        _ if changes.args.is_empty() => return Ok(None),
        Entrypoint::OfImage => annotations::entrypoint(spec)?,
        Entrypoint::Without => Vec::new(),
    };
    args.extend(changes.args.iter().cloned());
    if args.is_empty() {
        return Err(err!("an empty --entrypoint leaves no program").hint("name one behind --"));
    }
    Ok(Some(args))
}

/// The environment of the program: the caller's, where `inherits`; over it the config's; over both what the command line
/// asks for.
fn override_env(process: &mut Process, changes: &Overrides, inherits: bool) {
    let mut env = process.env().clone().unwrap_or_default();
    if inherits {
        let name = |variable: &str| variable.split_once('=').map(|(name, _)| name.to_owned());
        let configs: HashSet<Option<String>> = env.iter().map(|variable| name(variable)).collect();
        let is_new = |variable: &String| !configs.contains(&name(variable));
        let callers: Vec<String> = match &changes.env_of_job {
            Some(job) => environment::of_task(job).filter(is_new).collect(),
            None => environment::inherited().filter(is_new).collect(),
        };
        env.extend(callers);
    }
    env.retain(|variable| {
        let name = variable.split_once('=').map_or(variable.as_str(), |(name, _)| name);
        !changes.unset_env.iter().any(|pattern| environment::means(pattern, name))
    });
    env.extend(environment::asked(&changes.env));
    // Without it, programs on a terminal do not know how to move its cursor.
    let has_term = || env.iter().any(|variable| variable.starts_with("TERM="));
    if process.terminal() == Some(true) && (inherits || changes.terminal == Some(true)) && !has_term() {
        env.push(environment::DEFAULT_TERM.to_owned());
    }
    process.set_env(Some(env));
}

fn override_process(process: &mut Process, changes: &Overrides, inherits_env: bool) -> Result<()> {
    if let Some(cwd) = &changes.cwd {
        if !cwd.is_absolute() {
            bail!("working directory {} is not an absolute path", cwd.display());
        }
        process.set_cwd(cwd.clone());
    }
    if let Some(terminal) = changes.terminal {
        process.set_terminal(Some(terminal));
    }
    let changes_env = !changes.env.is_empty() || !changes.unset_env.is_empty();
    if inherits_env || changes_env || changes.terminal == Some(true) {
        override_env(process, changes, inherits_env);
    }
    Ok(())
}
