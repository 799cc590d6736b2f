//! The config that a plan is made of: loaded, and changed as the command line and a task of a Slurm step ask.

use crate::container::{CreateOptions, Overrides};
use oci_spec::runtime::{Mount, MountBuilder};
use rt_spec::rootless::UserMap;
use rt_spec::said::{MPI, PREFIXES, Said};
use rt_spec::{Config, Process, Spec, mounts};
use rt_sys::caps::Sets;
use rt_sys::error::Result;
use rt_sys::mount::Param;
use rt_sys::{bail, err};
use std::path::Path;

/// Loads the config of `bundle`, this process's working directory, and changes it as the options ask. Its text stays
/// as it was loaded: where [`CreateOptions::change_config`] is true, that is not what the config says any more.
pub(crate) fn load(options: &CreateOptions, bundle: &Path) -> Result<Config> {
    let mut config = match &options.config {
        Some(path) => Config::load(path)?,
        None => Config::load(Path::new("config.json")).map_err(|e| e.context(bundle.display()))?,
    };
    if options.change_config() {
        override_config(&mut config, options)?;
    }
    Ok(config)
}

impl CreateOptions {
    /// True where the config is to be changed.
    pub(super) fn change_config(&self) -> bool {
        self.overrides.any() || self.user_map.is_some() || self.task.is_some()
    }
}

impl Overrides {
    fn any(&self) -> bool {
        !self.args.is_empty()
            || !self.env.is_empty()
            || self.cwd.is_some()
            || self.terminal.is_some()
            || !self.volumes.is_empty()
            || !self.devices.is_empty()
    }

    /// What hooks are told of it.
    pub(super) fn said(&self) -> Said {
        let env = self.env.iter().filter(|variable| PREFIXES.iter().any(|p| variable.starts_with(p)));
        let mpi = self.mpi.iter().map(|word| format!("{MPI}={word}"));
        let env = env.filter_map(|v| full_variable(v)).chain(mpi).collect();
        Said { env, devices: self.devices.clone(), args: Vec::new() }
    }
}

/// Changes the config as the command line and the task ask. Out of line, because most calls change nothing, and it
/// needs a large stack frame.
#[cold]
#[inline(never)]
fn override_config(config: &mut Config, options: &CreateOptions) -> Result<()> {
    let spec = &mut *config.spec;
    let changes = &options.overrides;
    if let Some(process) = spec.process_mut() {
        override_process(process, changes)?;
    }
    if !changes.volumes.is_empty() {
        let mut mounts = spec.mounts().clone().unwrap_or_default();
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

fn override_process(process: &mut Process, changes: &Overrides) -> Result<()> {
    if !changes.args.is_empty() {
        process.set_args(Some(changes.args.clone()));
    }
    if !changes.env.is_empty() {
        let mut env = process.env().clone().unwrap_or_default();
        env.extend(changes.env.iter().filter_map(|variable| full_variable(variable)));
        process.set_env(Some(env));
    }
    if let Some(cwd) = &changes.cwd {
        if !cwd.is_absolute() {
            bail!("working directory {} is not an absolute path", cwd.display());
        }
        process.set_cwd(cwd.clone());
    }
    if let Some(terminal) = changes.terminal {
        process.set_terminal(Some(terminal));
    }
    Ok(())
}

/// `NAME=VALUE` as it is; a name alone takes this process's value, and is left out where there is none.
pub(crate) fn full_variable(variable: &str) -> Option<String> {
    if variable.contains('=') {
        return Some(variable.to_owned());
    }
    std::env::var(variable).ok().map(|value| format!("{variable}={value}"))
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
