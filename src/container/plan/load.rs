//! The config that a plan is made of: loaded, and changed as the command line and a task of a Slurm step ask.

use crate::container::{CreateOptions, Entrypoint, Overrides};
use oci_spec::runtime::{Mount, MountBuilder};
use rt_spec::rootless::UserMap;
use rt_spec::said::{PREFIXES, Said};
use rt_spec::{Config, Process, Spec, annotations, environment, mounts};
use rt_sys::caps::Sets;
use rt_sys::error::Result;
use rt_sys::mount::Param;
use rt_sys::{bail, err};
use std::collections::HashSet;
use std::path::Path;

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
pub(crate) fn load(options: &CreateOptions, bundle: &Path) -> Result<Loaded> {
    let mut config = match &options.config {
        Some(path) => Config::load(path)?,
        None => Config::load(Path::new("config.json")).map_err(|e| e.context(bundle.display()))?,
    };
    let inherits_env = options.overrides.inherit_env && annotations::asks_for_environment(&config.spec)?;
    let changed = inherits_env || options.change_config();
    if changed {
        override_config(&mut config, options, inherits_env)?;
    }
    Ok(Loaded { config, changed, inherits_env })
}

impl CreateOptions {
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
            || self.init.is_some()
            || !self.volumes.is_empty()
            || !self.devices.is_empty()
    }

    /// What hooks are told of it.
    pub(super) fn said(&self) -> Said {
        let mut env = environment::asked(&self.env);
        env.retain(|variable| PREFIXES.iter().any(|p| variable.starts_with(p)));
        Said { env, devices: self.devices.clone(), args: Vec::new() }
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
    if !changes.volumes.is_empty() {
        let mut mounts = spec.mounts().clone().unwrap_or_default();
        for volume in &changes.volumes {
            mounts.push(volume_mount(volume)?);
        }
        spec.set_mounts(Some(mounts));
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
    if inherits_env || !changes.env.is_empty() || changes.terminal == Some(true) {
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
    let mut options = vec!["rbind".to_owned()];
    // podman's words for labels, ownership and overlays have no meaning here.
    let words = parts.next().unwrap_or("").split(',').filter(|w| !matches!(*w, "" | "z" | "Z" | "U" | "O"));
    options.extend(words.map(str::to_owned));
    if mounts::parse(options.iter().map(String::as_str)).propagation.is_empty() {
        options.push("rprivate".to_owned());
    }
    let unknown = mounts::parse(options.iter().map(String::as_str)).data;
    if let Some(Param::Flag(word) | Param::Value(word, _)) = unknown.first() {
        bail!("volume {volume:?}: unknown option {word:?}");
    }
    let mount = MountBuilder::default().destination(destination).source(source).typ("bind").options(options);
    mount.build().map_err(|e| err!("volume {volume:?}: {e}"))
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
