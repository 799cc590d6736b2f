//! The config that a plan is made of: read, and changed as the request asks.

use super::Layer;
use super::image_files::Root;
use super::{chosen_namespaces, foreign, pip, prompt, session};
use crate::container::entrypoint::EntrypointPlan;
use crate::container::hooks;
use crate::container::request::StartRequest;
use crate::container::trace::{self, Phase};
use crate::container::{CreateOptions, Entrypoint, Ids, Overrides, RootAccess};
use crate::hooks::definitions;
use crate::store::Confinement;
use oci_spec::runtime::Mount;
use rt_image_store::{Word, others};
use rt_spec::rootless::UserMap;
use rt_spec::{Config, Process, Spec, annotations, asked_mounts, environment};
use rt_sys::caller::Caller;
use rt_sys::caps::Sets;
use rt_sys::error::{Context, Error, Result};
use rt_sys::owned::AmongOthers;
use rt_sys::{bail, caller, err, fd, look};
use rustix::fs::{OFlags, ResolveFlags};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The config of a bundle, or of an image that has none, as it was read.
pub(crate) struct BundleConfig {
    /// Where its relative paths start: the bundle, absolute.
    pub bundle: PathBuf,
    /// What it says.
    pub config: Config,
    /// An image, or somebody else, may have written it.
    of_image: bool,
    /// Others can have written the bundle. Its own config asks for nothing of the host then.
    foreign: bool,
    /// `rt` has made it of an image, whatever a client has added.
    is_rts: bool,
}

/// A config as it was loaded: with all that the request and the hooks of the stage precreate change.
pub(crate) struct Loaded {
    /// Where its relative paths start: the bundle, absolute.
    pub bundle: PathBuf,
    /// The config, changed as the request asks.
    pub config: Config,
    /// The program has the caller's environment, below that of the config.
    pub inherits_env: bool,
    /// What takes what the program writes to the root.
    pub layer: Option<Layer>,
    /// The image's entrypoint, which is run first.
    pub entrypoint: Option<EntrypointPlan>,
    /// An image, or somebody else, may have written the config.
    pub of_image: bool,
    /// Others can have written the bundle.
    pub foreign: bool,
    /// What the program is kept from.
    pub confinement: Confinement,
}

/// The image's own config, in a bundle of `rt pull`.
const IMAGE_CONFIG: &str = "image.json";

impl BundleConfig {
    /// Reads the config of the bundle, or the file in its place that `options` names. The bundle becomes this process's working
    /// directory.
    pub(crate) fn read(options: &CreateOptions) -> Result<BundleConfig> {
        let (bundle, word) = match options.entered {
            Some(word) => (entered(&options.bundle)?, word),
            None => enter_bundle(&options.bundle)?,
        };
        let shown = || bundle.display();
        let others = foreign::OthersBundle::entered(&bundle, word).context(shown)?;
        // Also where the config is the caller's: the root is a directory that others can exchange. Who copies a container may find its
        // bundle elsewhere.
        let foreign = others.is_some() || options.saved.is_some_and(|saved| saved.of_others);
        let is_others = match &options.callers_config {
            Some(read) => read.is_anothers,
            None => foreign,
        };
        let of_image = options.saved.map_or(is_others, |saved| saved.of_image);
        let mut config = match (&options.config, others) {
            (Some(path), _) => match &options.callers_config {
                Some(read) => read.config(path, foreign)?,
                // That of a container which is copied.
                None => Config::load(path)?,
            },
            (None, Some(others)) => others.config(&bundle).and_then(Config::parse).context(shown)?,
            (None, None) => match &options.slurms_directory {
                Some(dir) => merged(dir, &bundle),
                None if word == Word::Owners => foreign::config_of_owner(),
                None => Config::load(Path::new("config.json")),
            }
            .context(shown)?,
        };
        // Beside a bundle of others, whose labels are forgotten, the program is confined no less than beside one of the caller's.
        let was_rts = foreign && is_rts(&config.spec)?;
        // A config that was saved with a container has been looked at.
        if options.saved.is_none() && annotations::may_be_labels(&config.spec) {
            // Beside a config of Slurm's, whoever can write there may have put it; so may who can write in the bundle, beside which the
            // caller has a config of his own.
            let elsewhere = options.config.is_some() && foreign;
            let is_believed = options.slurms_directory.is_none() && !elsewhere;
            if !(is_believed && has_image_config(word).context(shown)?) {
                if elsewhere {
                    // A root that is refused is the one line of the call.
                    Root::of(&config.spec, &bundle, foreign)?;
                }
                forget_labels(&mut config, elsewhere);
            }
        }
        let is_rts = was_rts || is_rts(&config.spec)?;
        Ok(BundleConfig { bundle, config, of_image, foreign, is_rts })
    }

    /// The config `text` of the image `file`, which has no bundle: `rt-image` has made it of what the image says. Paths start in
    /// `bundle`.
    pub(crate) fn of_image(text: Vec<u8>, file: &Path, bundle: PathBuf) -> Result<BundleConfig> {
        let config = Config::parse(text).map_err(|e| e.context(file.display()))?;
        Ok(BundleConfig { bundle, config, of_image: true, foreign: false, is_rts: true })
    }
}

/// True for a config that `rt` has made of an image, by its annotations.
fn is_rts(spec: &Spec) -> Result<bool> {
    Ok(annotations::is_of_image(spec) || annotations::asks_for_environment(spec)?)
}

/// The config that Slurm has made for a task of a bundle's, in a directory that is open to the group of the job.
fn merged(dir: &AmongOthers, bundle: &Path) -> Result<Config> {
    let config = Config::load_among_others(dir, Path::new("config.json"))?;
    if let Some(root) = config.spec.root() {
        foreign::refuse_merged(&bundle.join(root.path()))?;
    }
    Ok(config)
}

/// True where the working directory has an image's own config beside that of the bundle, as `rt pull`, which keeps labels out, puts it
/// there. No image puts anything there. `word`: whose the bundle is.
#[cold]
fn has_image_config(word: Word) -> Result<bool> {
    if word == Word::Owners {
        return match others::open_own(rustix::fs::CWD, IMAGE_CONFIG) {
            Err(e) if e.is(libc::ENOENT) => Ok(false),
            found => found.map(|_| true),
        };
    }
    let flags = OFlags::PATH | OFlags::NOFOLLOW;
    match fd::open_unserved(rustix::fs::CWD, IMAGE_CONFIG, flags, ResolveFlags::BENEATH) {
        Ok(_) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(e) => Err(fd::unserved_error(e)).context(|| IMAGE_CONFIG),
    }
}

/// Leaves out what an image's labels may say in the config of the bundle, or in one of the caller's, who is told.
#[cold]
fn forget_labels(config: &mut Config, of_caller: bool) {
    let names = annotations::forget_labels(&mut config.spec);
    if of_caller {
        let names = names.join(", ");
        rt_sys::log::tell(format_args!(
            "others can change the bundle, so these annotations count as its labels, as nothing: {names}"
        ));
    } else {
        let said = |name| format!("annotation {name} may be a label of the image and is not heeded");
        config.warnings.extend(names.into_iter().map(said));
    }
    config.changed();
}

impl Loaded {
    /// Changes a config as the request and it itself ask. `user_map` is that of the request, or that of the container which the
    /// program joins.
    pub(crate) fn new(
        request: &StartRequest,
        read: BundleConfig,
        user_map: Option<UserMap>,
    ) -> Result<Loaded> {
        let BundleConfig { bundle, mut config, of_image, foreign, is_rts } = read;
        let is_hpc = annotations::asks_for_environment(&config.spec)?;
        let inherits_env = request.env_of_job.is_some() || request.inherit_env && is_hpc;
        let confinement = match of_image || is_rts || inherits_env {
            true => Confinement {
                keys: !request.no_new_keyring,
                user_namespaces: Caller::current()?.has_hosts_root_uid()?,
            },
            // What a client has written stays as it is.
            false => Confinement::default(),
        };
        let confinement = request.saved.map_or(confinement, |saved| saved.confinement);
        let entrypoint = match &request.entrypoint_first {
            Some(asked) => EntrypointPlan::of(&config.spec, asked)?,
            None => None,
        };
        let changed = inherits_env
            || user_map.is_some()
            || request.task.is_some()
            || request.overrides != Overrides::default();
        let mut layer = None;
        if changed {
            config.changed();
            override_config(&mut config, request, user_map, inherits_env)?;
            layer = override_root(&mut config.spec, &request.overrides.root);
        }
        Ok(Loaded { bundle, config, inherits_env, layer, entrypoint, of_image, foreign, confinement })
    }

    /// This config with the hooks of all directories, and with what hooks of the stage precreate make of it.
    pub(crate) fn with_hooks(mut self, request: &StartRequest) -> Result<Loaded> {
        trace::end(Phase::Load);
        if !request.no_hooks {
            let place = hooks::place(&self.bundle, self.foreign);
            definitions::add_to(&mut self.config, &request.hooks_dirs, &request.for_hooks(), place)?;
        }
        Ok(self)
    }
}

/// Enters the bundle, from which relative paths of the config and of hooks start. Returns its absolute path, and whose
/// word it is: no link leads to one of a store, which others may be able to write, as they would choose whose word counts.
pub(crate) fn enter_bundle(bundle: &Path) -> Result<(PathBuf, Word)> {
    let (dir, word) = rt_image_store::open_bundle(bundle).map_err(|e| e.context(shown_bundle(bundle)))?;
    rustix::process::fchdir(dir).context(|| shown_bundle(bundle))?;
    Ok((entered(bundle)?, word))
}

/// The same for the directory that Slurm has made for a task, in one in which the group of the job can rename.
pub(crate) fn enter_bundle_of_slurm(bundle: &Path) -> Result<AmongOthers> {
    let opened = AmongOthers::open(bundle).context(|| shown_bundle(bundle))?;
    rustix::process::fchdir(&opened.dir).context(|| shown_bundle(bundle))?;
    Ok(opened)
}

fn shown_bundle(bundle: &Path) -> String {
    format!("bundle {}", fd::shown_path(bundle))
}

fn entered(bundle: &Path) -> Result<PathBuf> {
    let shown = || shown_bundle(bundle);
    let entered = rustix::process::getcwd(Vec::new()).context(shown)?;
    Ok(OsStr::from_bytes(entered.as_bytes()).into())
}

/// Changes the config as the request asks. Out of line, because most calls change nothing, and it
/// needs a large stack frame.
#[cold]
#[inline(never)]
fn override_config(
    config: &mut Config,
    request: &StartRequest,
    user_map: Option<UserMap>,
    inherits_env: bool,
) -> Result<()> {
    let spec = &mut *config.spec;
    let changes = &request.overrides;
    let args = arguments(spec, changes)?;
    if let Some(process) = spec.process_mut() {
        if args.is_some() {
            process.set_args(args);
        }
        override_process(process, request, inherits_env)?;
    }
    if inherits_env {
        let dir = caller::path("PMIX_SERVER_TMPDIR");
        rt_launch::show_callers_pmix(spec, dir, fd::is_trusted_directory);
    }
    chosen_namespaces::choose(spec, &changes.namespaces)?;
    leave_out_mounts(spec, &changes.unmounted);
    add_mounts(spec, changes)?;
    match changes.home {
        Some(true) => rt_spec::annotate(spec, rt_spec::ANNOTATION_HOME, "bind"),
        Some(false) => annotations::forget(spec, rt_spec::ANNOTATION_HOME),
        None => {}
    }
    if inherits_env && request.env_of_job.is_none() {
        if changes.home == Some(true) {
            session::bring_along(spec)?;
        }
        session::leave_out_hidden(spec, changes)?;
    }
    if let Some(Ids { uid, gid }) = changes.user
        && let Some(process) = spec.process_mut()
    {
        process.user_mut().set_uid(uid).set_gid(gid);
    }
    if let Some(init) = changes.init {
        rt_spec::annotate(spec, rt_spec::ANNOTATION_INIT, if init { "true" } else { "false" });
    }
    if let Some(map) = user_map {
        // Kept with the config, so that exec finds the same ids.
        rt_spec::annotate(spec, rt_spec::ANNOTATION_USER, map.as_str());
        if map == UserMap::Root {
            forget_empty_capabilities(spec);
        }
    }
    if let Some(emulation) = changes.root_emulation {
        rt_spec::annotate(spec, rt_spec::ANNOTATION_ROOT_EMULATION, emulation.as_str());
    }
    if let Some(task) = &request.task {
        // What cannot be looked at is there: the mount on it says why it cannot.
        let is_missing = |dir: &Path| matches!(look::is_dir(dir), Ok(false));
        config.warnings.extend(rt_launch::adapt(spec, task, user_map, is_missing));
    } else if request.callers_umask {
        // Only a person's `rt run` has that.
        prompt::set(spec);
        pip::tell(spec, &changes.root)?;
    }
    Ok(())
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
fn override_env(process: &mut Process, request: &StartRequest, inherits: bool) {
    let changes = &request.overrides;
    let mut env = process.env().clone().unwrap_or_default();
    if inherits {
        let name = |variable: &str| variable.split_once('=').map(|(name, _)| name.to_owned());
        let configs: HashSet<Option<String>> = env.iter().map(|variable| name(variable)).collect();
        let is_new = |variable: &String| !configs.contains(&name(variable));
        let callers: Vec<String> = match &request.env_of_job {
            Some(job) => environment::of_task(job).filter(is_new).collect(),
            None => environment::inherited().filter(is_new).collect(),
        };
        env.extend(callers);
    }
    env.retain(|variable| {
        let name = variable.split_once('=').map_or(variable.as_str(), |(name, _)| name);
        !changes.unset_env.iter().any(|pattern| environment::means(pattern, name))
    });
    env.extend(environment::expand(&changes.env));
    // Without it, programs on a terminal do not know how to move its cursor.
    let has_term = || env.iter().any(|variable| variable.starts_with("TERM="));
    if process.terminal() == Some(true) && (inherits || changes.terminal == Some(true)) && !has_term() {
        env.push(environment::DEFAULT_TERM.to_owned());
    }
    process.set_env(Some(env));
}

fn override_process(process: &mut Process, request: &StartRequest, inherits_env: bool) -> Result<()> {
    let changes = &request.overrides;
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
        override_env(process, request, inherits_env);
    }
    Ok(())
}
