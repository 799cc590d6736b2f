//! The plugin's arguments in plugstack.conf(5): those of pyxis, and ours. What is not understood is refused.

use crate::options::switch;
use std::path::PathBuf;
use std::time::Duration;

/// What the administrator has said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Arguments {
    /// The program `rt`. `rt-slurm-task` is beside it.
    pub(crate) rt: PathBuf,
    /// Images' entry points are executed where the user says nothing.
    pub(crate) execute_entrypoint: bool,
    /// Named containers end with the job where the user says nothing, instead of when they are removed.
    pub(crate) scope_is_job: bool,
    /// sbatch and salloc have the options, too.
    pub(crate) sbatch_support: bool,
    /// srun, sbatch and salloc ask for the image's digest, and the job takes that one.
    pub(crate) pin: bool,
    /// How long the image is waited for before the tasks are started, which then wait on their own.
    pub(crate) launch_wait: Duration,
    /// Slurm's TmpFS on the nodes, where slurm.conf does not say it.
    pub(crate) tmpfs: Option<String>,
    /// Where layers are, if not there.
    pub(crate) layers: Option<String>,
}

impl Default for Arguments {
    fn default() -> Arguments {
        Arguments {
            rt: "/usr/local/bin/rt".into(),
            execute_entrypoint: false,
            // A container of an earlier job is a surprise, and one that has spoilt runs.
            scope_is_job: true,
            sbatch_support: true,
            pin: false,
            // Before it has tasks, a step hears neither scancel nor Ctrl-C, and srun gives up after ten minutes.
            launch_wait: Duration::from_secs(10),
            tmpfs: None,
            layers: None,
        }
    }
}

impl Arguments {
    /// Reads the words behind the plugin's name.
    pub(crate) fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Arguments, String> {
        let mut all = Arguments::default();
        for word in words {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let truth = || switch(value.as_bytes()).ok_or_else(|| format!("{word}: neither 0 nor 1"));
            match name {
                "rt" if value.starts_with('/') => all.rt = value.into(),
                "rt" => return Err(format!("{word}: not an absolute path")),
                "execute_entrypoint" => all.execute_entrypoint = truth()?,
                "container_scope" => {
                    all.scope_is_job = match value {
                        "job" => true,
                        "global" => false,
                        _ => return Err(format!("{word}: neither job nor global")),
                    }
                }
                "sbatch_support" => all.sbatch_support = truth()?,
                "pin" => all.pin = truth()?,
                "launch_wait" => {
                    let seconds = value.parse().map_err(|_| format!("{word}: not a number of seconds"))?;
                    all.launch_wait = Duration::from_secs(seconds);
                }
                "tmpfs" if value.starts_with('/') => all.tmpfs = Some(value.to_owned()),
                "layers" if value.starts_with('/') => all.layers = Some(value.to_owned()),
                "tmpfs" | "layers" => return Err(format!("{word}: not an absolute path")),
                // Where pyxis keeps squashfs files between import and start, and how enroot makes a container of one. rt
                // has no such file, and mounts those that it is given.
                "runtime_path" => {}
                "use_enroot_load" | "use_squashfuse" => {
                    truth()?;
                }
                "importer" if value.is_empty() => {}
                "importer" => {
                    return Err(format!(
                        "{word}: rt pulls images itself; mirrors stand in registries.conf, the store in rt's config.toml"
                    ));
                }
                "container_cache_data_path" | "container_cache_gc_high" | "container_cache_gc_low" => {
                    return Err(format!(
                        "{word}: the place of images and their limits stand in rt's config.toml"
                    ));
                }
                _ => return Err(format!("{word}: unknown")),
            }
        }
        Ok(all)
    }

    /// What Slurm executes in the place of a task's program.
    pub(crate) fn task_program(&self) -> PathBuf {
        self.rt.with_file_name("rt-slurm-task")
    }
}

/// TmpFS in the text of slurm.conf(5), where it has no pattern but those of the node's name.
pub(crate) fn tmpfs(text: &str, node: &str) -> Option<String> {
    let path = value(text, "TmpFS")?.replace("%n", node).replace("%h", node);
    (path.starts_with('/') && !path.contains('%')).then_some(path)
}

/// UnkillableStepTimeout in the text of slurm.conf(5), or Slurm's own: so long after the kill of a step Slurm waits for slurmstepd before it
/// drains the node.
pub(crate) fn unkillable_step_timeout(text: &str) -> Duration {
    let seconds = value(text, "UnkillableStepTimeout").and_then(|value| value.parse().ok());
    Duration::from_secs(seconds.unwrap_or(60))
}

fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let value = |line: &'a str| {
        let (name, value) = line.split('#').next()?.split_once('=')?;
        name.trim().eq_ignore_ascii_case(key).then(|| value.trim())
    };
    text.lines().filter_map(value).next_back()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tmpfs_is_read_from_slurm_conf() {
        let of = |text| tmpfs(text, "n1");
        assert_eq!(of("ClusterName=x\nTmpFS = /scratch # fast\n").as_deref(), Some("/scratch"));
        assert_eq!(of("tmpfs=/local/%n").as_deref(), Some("/local/n1"));
        for other in ["", "#TmpFS=/x", "TmpFS=x", "TmpFS=/x/%u", "SlurmdSpoolDir=/var"] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn the_wait_for_a_killed_step_is_read_from_slurm_conf() {
        let of = |text| unkillable_step_timeout(text).as_secs();
        assert_eq!((of("a=b\nUnkillableStepTimeout=180 # s\n"), of("unkillablesteptimeout = 20")), (180, 20));
        assert_eq!((of(""), of("UnkillableStepTimeout=x"), of("UnkillableStepProgram=/x")), (60, 60, 60));
    }

    fn of(line: &str) -> Result<Arguments, String> {
        Arguments::parse(line.split_whitespace())
    }

    #[test]
    fn sites_lines_are_understood() {
        assert_eq!(of(""), Ok(Arguments::default()));
        assert!(Arguments::default().scope_is_job && of("container_scope=job").unwrap().scope_is_job);
        let pyxis = "runtime_path=/run/pyxis execute_entrypoint=1 container_scope=global sbatch_support=no \
                     use_enroot_load=1 use_squashfuse=0 importer=";
        let all = of(pyxis).unwrap();
        assert!(all.execute_entrypoint && !all.scope_is_job && !all.sbatch_support);
        let all = of("rt=/opt/rt/bin/rt pin=1 launch_wait=7 tmpfs=/scratch layers=/local").unwrap();
        assert_eq!(all.task_program(), PathBuf::from("/opt/rt/bin/rt-slurm-task"));
        assert_eq!(all.launch_wait, Duration::from_secs(7));
        assert!(all.pin);
        assert_eq!((all.tmpfs.as_deref(), all.layers.as_deref()), (Some("/scratch"), Some("/local")));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for (line, text) in [
            ("importer=/opt/importer", "rt pulls images itself"),
            ("container_scope=step", "neither job nor global"),
            ("execute_entrypoint=maybe", "neither 0 nor 1"),
            ("rt=bin/rt", "absolute"),
            ("container_cache_gc_high=85", "config.toml"),
            ("colour=red", "colour=red: unknown"),
            ("launch_wait=soon", "seconds"),
        ] {
            let error = of(line).unwrap_err();
            assert!(error.contains(text), "{line}: {error}");
        }
    }
}
