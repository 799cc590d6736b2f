//! A request for a start, settled once: what the caller, the step, the user and the site say, as one value that nothing changes
//! afterwards.
//!
//! Of values that exclude each other the first of these counts: the variables `RT_CONTAINER_*` of a job whose config Slurm has
//! written; the command line (of a task of the plugin together with its step); the variables `RT_*`, the user's config.toml
//! and the site's, in the order of `rt_config`; and last the config of the bundle or the image, to which [`super::plan`] applies
//! the request. Lists add up.

use super::{CreateOptions, RootAccess};
use crate::hooks::definitions;
use rt_config::{Config, Key, Setting, Value};
use rt_launch::request::StepContainer;
use rt_launch::task::{JobDirectory, TaskContext};
use rt_spec::caller_request::{CallerRequest, MPI};
use rt_spec::environment::{self, REQUEST_PREFIX};
use rt_spec::rootless::UserMap;
use rt_sys::error::Result;
use rt_sys::fd;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::path::PathBuf;

/// What is asked of a start. It is read as [`CreateOptions`] are, and cannot be written.
#[derive(Debug)]
pub(super) struct StartRequest {
    options: CreateOptions,
    origins: Origins,
}

impl Deref for StartRequest {
    type Target = CreateOptions;

    fn deref(&self) -> &CreateOptions {
        &self.options
    }
}

impl StartRequest {
    /// Adds what the site, the user and the job's environment say to what the caller asks for.
    ///
    /// # Errors
    /// A file of the configuration, or a variable, says what nobody can mean.
    pub(super) fn settle(options: CreateOptions) -> Result<StartRequest> {
        let job = options.task.as_ref().filter(|task| !task.has_own_environment).map(|task| &task.job);
        let found = match job {
            _ if !options.configured => Config::default(),
            Some(job) => Config::read(&|name| job.setting(name))?,
            None => Config::read(&rt_config::own_variable)?,
        };
        let step = match job {
            Some(job) => StepContainer::of_job(job)?,
            None => None,
        };
        step.as_ref().map_or(Ok(()), StepContainer::check_sources)?;
        let caller = match &options.task {
            Some(task) if task.has_own_environment => Origin::Step,
            _ => Origin::CommandLine,
        };
        let mut request = StartRequest { options, origins: Origins::default() };
        request.settle_values(&found, step.as_ref(), &caller);
        request.settle_lists(&found, step.as_ref(), &caller);
        if let Some(task) = &mut request.options.task {
            settle_task(task, step);
        }
        Ok(request)
    }

    /// This request for a container that is this process's own, and no run's.
    pub(super) fn alone(mut self) -> StartRequest {
        self.options.run = None;
        self
    }

    /// This request, with what keeps a rank from the container of the others of its run.
    pub(super) fn apart(mut self, by: &str) -> StartRequest {
        self.options.apart = Some(by.to_owned());
        self
    }

    /// What hooks are told of the request, which no image can have said.
    pub(super) fn for_hooks(&self) -> CallerRequest {
        let mut env = environment::expand(&self.overrides.env);
        env.retain(|variable| definitions::is_for_hooks(variable));
        env.extend(self.mpi.iter().map(|word| format!("{MPI}={word}")));
        CallerRequest { env, devices: self.overrides.devices.clone(), ..CallerRequest::default() }
    }

    /// Who has said each value that several may say, by its name.
    pub(super) fn origins(&self) -> BTreeMap<&'static str, Vec<String>> {
        let mut all: BTreeMap<_, Vec<String>> = BTreeMap::new();
        for (name, origin) in &self.origins.0 {
            all.entry(*name).or_default().push(origin.to_string());
        }
        all
    }

    /// The values of which one counts.
    fn settle_values(&mut self, found: &Config, step: Option<&StepContainer>, caller: &Origin) {
        let StartRequest { options, origins } = self;
        let changes = &mut options.overrides;
        let by_step = |value| Some((value?, Origin::Step));
        let by_caller = |value| Some((value?, caller.clone()));
        let root = std::mem::take(&mut changes.root);
        changes.root = origins
            .first(
                "root",
                [
                    step.and_then(root_of_step).map(|root| (root, Origin::Step)),
                    (root != RootAccess::AsConfigured).then(|| (root, caller.clone())),
                    switch(found, &rt_config::WRITABLE)
                        .map(|(writable, from)| (root_of_site(writable), from)),
                ],
            )
            .unwrap_or_default();
        let home = switch(found, &rt_config::RUN_HOME).filter(|(home, _)| *home);
        changes.home =
            origins.first("home", [by_step(step.and_then(|step| step.home)), by_caller(changes.home), home]);
        changes.init = origins.first("init", [by_caller(changes.init), switch(found, &rt_config::INIT)]);
        let map = step.and_then(|step| step.as_root).map(map_of_step).map(|map| (map, Origin::Step));
        let callers = options.user_map.map(|map| (map, caller.clone()));
        options.user_map = origins.first("user-map", [map, callers]);
        if let Some((true, from)) = switch(found, &rt_config::CLEAR_ENV) {
            options.inherit_env = false;
            origins.note("clear-env", from);
        }
        let share =
            found.of(&rt_config::SHARE).last().filter(|share| share.value == Value::Text("never".into()));
        if let (Some(share), Some(run)) = (share, &options.run)
            && !run.explicit
        {
            options.run = None;
            origins.note("share", Origin::Configured(share.from.clone()));
        }
    }

    /// The lists. In each, what the caller says comes last, and counts.
    fn settle_lists(&mut self, found: &Config, step: Option<&StepContainer>, caller: &Origin) {
        let StartRequest { options, origins } = self;
        let changes = &mut options.overrides;
        changes.defaults = found.of(&rt_config::MOUNTS).cloned().collect();
        for setting in &changes.defaults {
            origins.note("mounts", Origin::Configured(setting.from.clone()));
        }
        if !changes.mounts.is_empty() || !changes.volumes.is_empty() {
            origins.note("mounts", caller.clone());
        }
        changes.unset_env =
            origins.all("unset-env", found.of(&rt_config::UNSET_ENV), text, &mut Vec::new(), caller);
        let variables = found.of(&rt_config::ENV).chain(found.of(&rt_config::PASS_ENV));
        changes.env = origins.all("env", variables, text, &mut changes.env, caller);
        changes.devices =
            origins.all("devices", found.of(&rt_config::DEVICES), text, &mut changes.devices, caller);
        let directories = found.of(&rt_config::HOOKS_DIRS);
        options.hooks_dirs =
            origins.all("hooks-dirs", directories, |dir| text(dir).into(), &mut options.hooks_dirs, caller);
        let Some(step) = step else { return };
        if !step.mounts.is_empty() || !step.unmounted.is_empty() {
            origins.note("mounts", Origin::Step);
        }
        changes.mounts.extend(step.mounts.iter().cloned());
        changes.unmounted.clone_from(&step.unmounted);
        changes.unset_env.push(format!("{REQUEST_PREFIX}*"));
    }
}

/// What the step says of its task: the namespaces of its own, and where it starts. What the image is, how long the container
/// lives, and where it is saved has no meaning for a bundle.
fn settle_task(task: &mut TaskContext, step: Option<StepContainer>) {
    if let Some(step) = step {
        task.unshare = step.unshare;
        let of_step = |path: PathBuf| JobDirectory { path, identity: None, explicit: true, required: true };
        task.cwd = step.workdir.map(of_step).or(task.cwd.take());
    }
    task.directories = rt_launch::slurm::directories(task, fd::is_trusted_directory);
}

/// Where a step of a bundle writes, if it says so.
fn root_of_step(step: &StepContainer) -> Option<RootAccess> {
    match (step.writable, step.as_root) {
        (Some(false), _) => Some(RootAccess::ReadOnly),
        (Some(true), _) | (None, Some(true)) => Some(RootAccess::Writable),
        _ => None,
    }
}

/// What the key `run.writable` means.
fn root_of_site(writable: bool) -> RootAccess {
    if writable { RootAccess::InMemory } else { RootAccess::ReadOnly }
}

/// What RT_CONTAINER_REMAP_ROOT means.
fn map_of_step(as_root: bool) -> UserMap {
    if as_root { UserMap::Root } else { UserMap::Caller }
}

/// The value of a switch of the configuration, and who has said it.
fn switch(found: &Config, key: &Key) -> Option<(bool, Origin)> {
    let from = found.of(key).next()?.from.clone();
    Some((found.switch(key)?, Origin::Configured(from)))
}

/// An entry of a list of texts or of variables.
fn text(setting: &Setting) -> String {
    setting.value.to_string()
}

/// Who has said a value.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Origin {
    /// A line of config.toml, or a variable `RT_*`.
    Configured(rt_config::Origin),
    /// The command line.
    CommandLine,
    /// The variables `RT_CONTAINER_*` of a step; of a task of the plugin also its command line.
    Step,
}

/// `FILE:LINE`, the variable's name, or a word.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Configured(from) => from.fmt(f),
            Origin::CommandLine => f.write_str("command line"),
            Origin::Step => f.write_str("step"),
        }
    }
}

/// Who has said what, of all that several may say. What is not listed is as the config has it.
#[derive(Debug, Default)]
struct Origins(Vec<(&'static str, Origin)>);

impl Origins {
    /// Notes that `origin` has a part in the value `name`.
    fn note(&mut self, name: &'static str, origin: Origin) {
        let new = (name, origin);
        if !self.0.contains(&new) {
            self.0.push(new);
        }
    }

    /// The first of `values` that is there.
    fn first<T, const N: usize>(
        &mut self,
        name: &'static str,
        values: [Option<(T, Origin)>; N],
    ) -> Option<T> {
        let (value, origin) = values.into_iter().flatten().next()?;
        self.note(name, origin);
        Some(value)
    }

    /// What is configured, each entry by `read`, and behind it what the caller says.
    fn all<'a, T>(
        &mut self,
        name: &'static str,
        configured: impl Iterator<Item = &'a Setting>,
        read: impl Fn(&Setting) -> T,
        callers: &mut Vec<T>,
        caller: &Origin,
    ) -> Vec<T> {
        let mut list = Vec::new();
        for setting in configured {
            self.note(name, Origin::Configured(setting.from.clone()));
            list.push(read(setting));
        }
        if !callers.is_empty() {
            self.note(name, caller.clone());
        }
        list.append(callers);
        list
    }
}
