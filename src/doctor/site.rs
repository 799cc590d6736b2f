//! What the site has set up: configuration, hooks, Slurm.

use super::{Check, Status, is_program, places, program};
use crate::hooks::definitions;
use rt_launch::launchers;
use rt_sys::error::Context;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub(super) fn checks() -> Vec<Check> {
    let mut all = vec![configuration(), launcher()];
    all.extend(hooks());
    let slurm = slurm();
    let is_rts = slurm.as_ref().is_some_and(|check| check.status == Status::Ok);
    all.extend(slurm);
    if is_rts {
        all.extend(spool());
    }
    all
}

fn configuration() -> Check {
    const NAME: &str = "configuration";
    match rt_config::Config::read(&rt_config::own_variable) {
        Ok(config) if config.files.is_empty() => Check::ok(NAME, "no config.toml"),
        Ok(config) => {
            let files: Vec<_> = config.files.iter().map(|path| path.display().to_string()).collect();
            Check::ok(NAME, files.join(", "))
        }
        Err(e) => Check::problem(NAME, e.to_string()).remedy("mend it; rt config shows what is read"),
    }
}

/// Which run the calls in this environment are of.
fn launcher() -> Check {
    const NAME: &str = "launcher";
    match launchers::rank() {
        Ok(None) => Check::ok(NAME, "none: each rt run has a container of its own"),
        Ok(Some(rank)) => {
            let run = rank.run;
            Check::ok(
                NAME,
                format!("{run}, rank {}: its ranks here share a container (rt exec {run})", rank.number),
            )
        }
        Err(e) => Check::problem(NAME, e.to_string()).remedy("RT_SHARE=never does without"),
    }
}

fn hooks() -> Vec<Check> {
    const NAME: &str = "hooks.d";
    let programs = match definitions::programs() {
        Ok(programs) if programs.is_empty() => return vec![Check::ok(NAME, "no definition")],
        Ok(programs) => programs,
        Err(e) => return vec![Check::problem(NAME, e.to_string()).remedy("mend or remove the file")],
    };
    let check = |(file, hook): (PathBuf, PathBuf)| match is_program(&hook) {
        true => Check::ok(NAME, file.display().to_string()),
        false => {
            let text = format!("{}: {} is no program that can be executed", file.display(), hook.display());
            Check::problem(NAME, text).remedy("install it, or remove the definition")
        }
    };
    programs.into_iter().map(check).collect()
}

/// Where slurm.conf and oci.conf are.
fn slurm_dir() -> Option<PathBuf> {
    // What cannot be looked at is there: its reader says why it cannot.
    let there = |path: &Path| !matches!(rt_sys::look::exists(path), Ok(false));
    let named = rt_sys::caller::path("SLURM_CONF").and_then(|file| Some(file.parent()?.to_owned()));
    let usual = ["/etc/slurm", "/etc/slurm-llnl", "/usr/local/etc"].map(PathBuf::from);
    named.into_iter().chain(usual).find(|dir| there(&dir.join("slurm.conf")))
}

fn slurm() -> Option<Check> {
    const NAME: &str = "Slurm";
    let dir = slurm_dir();
    if dir.is_none() && program("srun").is_none() {
        return None;
    }
    let path = dir.unwrap_or_else(|| "/etc/slurm".into()).join("oci.conf");
    let shown = path.display();
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(_) => {
            let text = format!("{shown} is missing: srun --container does not work");
            return Some(
                Check::note(NAME, text).remedy("share/rt/slurm/oci.conf of the installation is one for rt"),
            );
        }
    };
    Some(match pattern(&text, "RunTimeRun").or_else(|| pattern(&text, "RunTimeCreate")) {
        None => Check::note(NAME, format!("{shown} has no RunTimeRun"))
            .remedy("share/rt/slurm/oci.conf of the installation is one for rt"),
        Some(pattern) => match runtime(pattern) {
            Some(program) if program.is_absolute() && !is_program(program) => {
                Check::note(NAME, format!("{shown} names {}, which cannot be executed", program.display()))
                    .remedy("install rt there, or correct the path")
            }
            Some(program) if program.ends_with("rt") => {
                Check::ok(NAME, format!("{shown} names {}", program.display()))
            }
            _ => Check::note(NAME, format!("{shown} names another runtime: {pattern}")),
        },
    })
}

/// Whether files that everybody's programs make can be moved below slurmd's directory: Slurm opens those for tasks to the group of the job,
/// and who can rename there could put a file of the user's in the place of the config that `rt slurm run` reads.
fn spool() -> Option<Check> {
    const NAME: &str = "SlurmdSpoolDir";
    let file = slurm_dir()?.join("slurm.conf");
    let look = || -> rt_sys::error::Result<Check> {
        let text = std::fs::read_to_string(&file).context(|| file.display())?;
        let value = |key| pattern(&text, key).and_then(|value| value.split_whitespace().next());
        // What it has of the node's name stands at its end.
        let spool = value(NAME).unwrap_or("/var/spool/slurmd").split('%').next().unwrap_or_default();
        let of_spool = device(spool)?;
        let mut shared = Vec::new();
        for dir in ["/tmp", "/var/tmp", "/dev/shm"].into_iter().chain(value("TmpFS")) {
            if device(dir)? == of_spool && !shared.contains(&dir) {
                shared.push(dir);
            }
        }
        if shared.is_empty() {
            return Ok(Check::ok(NAME, format!("{spool}: a file system of its own")));
        }
        let shared = shared.join(", ");
        let text = format!(
            "{spool} shares a file system with {shared}: members of a job's group can move the user's files into a task's directory"
        );
        Ok(Check::note(NAME, text).remedy("give it a file system of its own (SECURITY.md)"))
    };
    Some(look().unwrap_or_else(|e| Check::note(NAME, e.to_string())))
}

/// The number of the file system that `dir` is on, or will be.
fn device(dir: &str) -> rt_sys::error::Result<Option<u64>> {
    let Some(found) = places::nearest(Path::new(dir))? else { return Ok(None) };
    Ok(Some(found.metadata().context(|| found.display())?.dev()))
}

/// The value of `key` in the text of an oci.conf or slurm.conf.
fn pattern<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let value = lines
        .filter_map(|line| line.split_once('='))
        .find(|(name, _)| name.trim().eq_ignore_ascii_case(key))?
        .1;
    Some(value.trim().trim_matches('"'))
}

/// The program that a pattern executes.
fn runtime(pattern: &str) -> Option<&Path> {
    let mut words = pattern.split_whitespace().skip_while(|word| *word == "exec" || word.contains('='));
    words.next().map(Path::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oci_conf_is_read() {
        let text = "# RunTimeRun=\"no\"\nRunTimeRun=\"exec /usr/local/bin/rt '--root=/x' slurm run\"\n";
        let found = pattern(text, "RunTimeRun").unwrap();
        assert_eq!(runtime(found), Some(Path::new("/usr/local/bin/rt")));
        assert_eq!(runtime("A=b crun run"), Some(Path::new("crun")));
        assert_eq!(pattern(text, "RunTimeKill"), None);
    }
}
