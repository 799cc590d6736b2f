//! The environment of a job: what Slurm says to a task, and no image.
//!
//! Slurm calls `rt slurm run` without the job's variables. It has mixed them into the config's, which may be an image's:
//! where both set a name, either may be what stands there. So a name that the image's own config sets tells nothing of the
//! job. That config lies beside the root file system; the one that Slurm generates lies elsewhere.
//! Reads that file, and the environment of this process.

use rt_spec::Spec;
use rt_sys::{caller, fd};
use serde::Deserialize;
use std::collections::HashSet;
use std::path::Path;

/// A config of an image is not longer. A longer one is not read, and then nothing is the job's.
const MOST: usize = 16 << 20;

/// Variables of a job. Whatever decides a bind, a descriptor or a directory of configuration is asked of these.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobEnvironment {
    /// `NAME=VALUE` each; the last one of a name counts.
    variables: Vec<String>,
}

/// As much of a config as says what the image sets.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ImageConfig {
    process: ImageProcess,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ImageProcess {
    env: Vec<String>,
}

impl JobEnvironment {
    /// The environment of this process, which Slurm has started as the task itself.
    pub fn own() -> Self {
        JobEnvironment { variables: caller::variables().collect() }
    }

    /// What is the job's of the variables of `spec`, a config that Slurm has generated. `bundle` is where relative paths in
    /// it start. Nothing is where the image's own config cannot be read.
    pub fn of_config(spec: &Spec, bundle: &Path) -> Self {
        let root = spec.root().as_ref().map(|root| bundle.join(root.path()));
        let images = root.and_then(|root| image_variables(root.parent()?));
        let env = spec.process().as_ref().and_then(|process| process.env().as_deref()).unwrap_or_default();
        let images = names(images.as_deref().unwrap_or(env));
        let job = Self::without(env, &images);
        // Slurm 25.05 starts the runtime with the same variables.
        caller::leave_out_variables(images);
        job
    }

    fn without(env: &[String], images: &[String]) -> Self {
        let images: HashSet<&str> = images.iter().map(String::as_str).collect();
        let variables = env.iter().filter(|variable| !images.contains(name(variable))).cloned().collect();
        JobEnvironment { variables }
    }

    /// With these variables, `NAME=VALUE` each.
    pub fn of_variables(variables: Vec<String>) -> Self {
        JobEnvironment { variables }
    }

    /// The value of a variable.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables.iter().rev().find_map(|v| v.strip_prefix(name)?.strip_prefix('='))
    }

    /// True where a name begins with `prefix`.
    pub fn has(&self, prefix: &str) -> bool {
        self.variables.iter().any(|variable| variable.starts_with(prefix))
    }

    /// A variable that says where the user's own files are: of this process, else of the job, else, for HOME and the user's
    /// name, of passwd(5).
    pub fn of_user(&self, name: &str) -> Option<String> {
        let job = || self.get(name).map(str::to_owned);
        caller::said(name).or_else(job).or_else(|| caller::by_account(name))
    }

    /// What configuration is looked up by: see [`JobEnvironment::of_user`] for the places of files, [`JobEnvironment::get`]
    /// for all else.
    pub fn setting(&self, name: &str) -> Option<String> {
        match name {
            "HOME" | "USER" | "LOGNAME" => self.of_user(name),
            _ if name.starts_with("XDG_") => self.of_user(name),
            _ => self.get(name).map(str::to_owned),
        }
    }
}

fn name(variable: &str) -> &str {
    variable.split_once('=').map_or(variable, |(name, _)| name)
}

fn names(variables: &[String]) -> Vec<String> {
    variables.iter().map(|variable| name(variable).to_owned()).collect()
}

/// The variables that the config in `dir` sets; `None` where there is none that can be read.
fn image_variables(dir: &Path) -> Option<Vec<String>> {
    let text = fd::read_hostile(&dir.join("config.json"), MOST)?;
    let config: ImageConfig = serde_json::from_slice(&text).ok()?;
    Some(config.process.env)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_image_sets_is_not_the_jobs() {
        let words = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let env = words(&["PATH=/bin", "TMPDIR=/image", "TMPDIR=/job", "JOB=1", "JOB=2", "EMPTY="]);
        let job = JobEnvironment::without(&env, &words(&["PATH", "TMPDIR"]));
        assert_eq!((job.get("PATH"), job.get("TMPDIR")), (None, None));
        assert_eq!((job.get("JOB"), job.get("EMPTY"), job.get("JO")), (Some("2"), Some(""), None));
        assert!(job.has("JO") && !job.has("TMP"));
    }
}
