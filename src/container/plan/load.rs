//! The config that a plan is made of: loaded, and changed as the command line and a task of a Slurm step ask.

use crate::container::{CreateOptions, Entrypoint, Overrides};
use oci_spec::runtime::{Mount, MountBuilder};
use rt_spec::rootless::UserMap;
use rt_spec::said::{PREFIXES, Said};
use rt_spec::{Config, Process, Spec, annotations, environment, mounts};
use rt_sys::caps::Sets;
use rt_sys::error::{Error, Result};
use rt_sys::{bail, err};
use rustix::io::Errno;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// A config as it was loaded.
pub(crate) struct Loaded {
    /// The config, changed as the options ask.
    pub config: Config,
    /// Something has been changed, which [`Config::text`] does not say.
    pub changed: bool,
    /// The program has the caller's environment, below that of the config.
    pub inherits_env: bool,
}

/// Loads the config of `bundle`, this process's working directory, and changes it as the options and it itself ask.
pub(crate) fn load(options: &mut CreateOptions, bundle: &Path) -> Result<Loaded> {
    let mut config = match &options.config {
        Some(path) => Config::load(path)?,
        None => Config::load(Path::new("config.json")).map_err(|e| e.context(bundle.display()))?,
    };
    // Once: a task loads its config again where it cannot join a container.
    if std::mem::take(&mut options.configured) {
        options.configure(&config.spec)?;
    }
    let inherits_env = options.overrides.inherit_env && annotations::asks_for_environment(&config.spec)?;
    let changed = inherits_env || options.change_config();
    if changed {
        override_config(&mut config, options, inherits_env)?;
    }
    Ok(Loaded { config, changed, inherits_env })
}

impl CreateOptions {
    /// Takes over what the site and the user have configured. The variables of a task are those of its job: Slurm calls
    /// `rt` without them, and has written them into the config.
    fn configure(&mut self, spec: &Spec) -> Result<()> {
        let of_task = |name: &str| {
            let env = spec.process().as_ref()?.env().as_ref()?;
            env.iter()
                .rev()
                .find_map(|variable| Some(variable.strip_prefix(name)?.strip_prefix('=')?.to_owned()))
        };
        let found = match &self.task {
            Some(_) => rt_config::Config::read(&of_task)?,
            None => rt_config::Config::read(&rt_config::own_variable)?,
        };
        if !found.settings.is_empty() {
            self.take_over(&found);
        }
        Ok(())
    }

    #[cold]
    fn take_over(&mut self, found: &rt_config::Config) {
        let changes = &mut self.overrides;
        changes.mounts = found.of(&rt_config::MOUNTS).cloned().collect();
        changes.unset_env = found.texts(&rt_config::UNSET_ENV).map(str::to_owned).collect();
        changes.writable = found.switch(&rt_config::WRITABLE);
        // What the command line says comes last, and counts.
        changes.env.splice(0..0, found.variables());
        changes.devices.splice(0..0, found.texts(&rt_config::DEVICES).map(str::to_owned));
        self.hooks_dirs.splice(0..0, found.texts(&rt_config::HOOKS_DIRS).map(PathBuf::from));
    }

    /// True where the options change the config.
    fn change_config(&self) -> bool {
        self.overrides.any() || self.user_map.is_some() || self.task.is_some()
    }
}

impl Overrides {
    fn any(&self) -> bool {
        !self.args.is_empty()
            || matches!(self.entrypoint, Entrypoint::Command(_))
            || !self.env.is_empty()
            || self.cwd.is_some()
            || self.terminal.is_some()
            || !self.volumes.is_empty()
            || !self.devices.is_empty()
            || !self.mounts.is_empty()
            || !self.unset_env.is_empty()
            || self.writable.is_some()
    }

    /// What hooks are told of it.
    pub(super) fn said(&self) -> Said {
        let mut env = environment::asked(&self.env);
        env.retain(|variable| PREFIXES.iter().any(|p| variable.starts_with(p)));
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
        rt_spec::slurm::show_callers_pmix(spec);
    }
    if let Some(writable) = changes.writable
        && let Some(root) = spec.root_mut()
    {
        root.set_readonly(Some(!writable));
    }
    if !changes.volumes.is_empty() || !changes.mounts.is_empty() {
        let mut mounts = spec.mounts().clone().unwrap_or_default();
        for setting in &changes.mounts {
            mounts.extend(configured_mount(setting).map_err(|e| e.context(&setting.from))?);
        }
        for volume in &changes.volumes {
            mounts.push(volume_mount(volume)?);
        }
        spec.set_mounts(Some(mounts));
    }
    if let Some(map) = options.user_map {
        // Kept with the config, so that exec finds the same ids.
        rt_spec::annotate(spec, rt_spec::ANNOTATION_USER, map.as_str());
        if map == UserMap::Root {
            forget_empty_capabilities(spec);
        }
    }
    if let Some(task) = &options.task {
        config.warnings.extend(rt_spec::slurm::adapt(spec, task, options.user_map));
    }
    Ok(())
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
        let callers = environment::inherited().filter(|variable| !configs.contains(&name(variable)));
        let callers: Vec<String> = callers.collect();
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

/// `SRC:DST[:OPTIONS]`, options separated by commas, as podman's `-v`.
fn volume_mount(volume: &str) -> Result<Mount> {
    let mut parts = volume.splitn(3, ':');
    let (source, destination) = match (parts.next(), parts.next()) {
        (Some(source), Some(destination)) if !source.is_empty() => (source, destination),
        _ => bail!("volume {volume:?} is not SRC:DST[:OPTIONS]"),
    };
    if !destination.starts_with('/') {
        bail!("volume {volume:?}: destination {destination:?} is not an absolute path");
    }
    // podman's words for labels, ownership and overlays have no meaning here.
    let words = parts.next().unwrap_or("").split(',').filter(|w| !matches!(*w, "" | "z" | "Z" | "U" | "O"));
    bind(source, destination, words).map_err(|e| e.context(format!("volume {volume:?}")))
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
    bind(&mount.source, &mount.target, mount.options.iter().map(String::as_str)).map(Some)
}

/// A bind with these options; private where they say nothing about propagation.
fn bind<'a>(source: &str, destination: &str, words: impl Iterator<Item = &'a str>) -> Result<Mount> {
    let mut options = vec!["rbind".to_owned()];
    for word in words {
        rt_config::check_option(word)?;
        options.push(word.to_owned());
    }
    if mounts::parse(options.iter().map(String::as_str)).propagation.is_empty() {
        options.push("rprivate".to_owned());
    }
    let mount = MountBuilder::default().destination(destination).source(source).typ("bind").options(options);
    mount.build().map_err(|e| err!("{e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_become_binds() {
        let mount = volume_mount("/a:/b:ro,z").unwrap();
        assert_eq!(mount.source().as_deref(), Some(Path::new("/a")));
        assert_eq!(mount.options().as_deref().unwrap(), ["rbind", "ro", "rprivate"]);
        for bad in ["/a", "/a:b", ":/b", "/a:/b:fly"] {
            assert!(volume_mount(bad).is_err(), "{bad}");
        }
    }
}
