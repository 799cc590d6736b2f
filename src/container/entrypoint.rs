//! The image's entrypoint, run once before the first program of a step's container: what it exports, the programs have.
//!
//! An entrypoint ends by executing the command that it is given. Here that is a shell which writes its environment to a file
//! in memory, as pyxis and enroot have a shell stop there.

use super::path_search::find_program;
use super::plan::ProcessPlan;
use super::program::Prepared;
use rt_spec::{Spec, annotations, environment};
use rt_sys::error::{Context, Result};
use rt_sys::ns::Namespaces;
use rt_sys::process::{self, ExecArgs, Memory};
use rt_sys::{err, fd, signal, tty};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, MemfdFlags, Mode, OFlags};

/// The file in the container's directory of state with the environment, for the tasks that join.
pub(super) const ENVIRONMENT: &str = "entrypoint.env";

/// What a shell sets for itself.
const OF_SHELL: [&str; 4] = ["PWD", "OLDPWD", "SHLVL", "_"];

/// How much of what an entrypoint prints is shown.
const MOST: u64 = 64 << 10;

/// What is asked of an entrypoint.
#[derive(Debug, Clone, Default)]
pub(crate) struct EntrypointRequest {
    /// What it prints is shown.
    pub log: bool,
    /// Variables that keep the caller's values, and that it gets, too.
    pub env: Vec<String>,
}

/// An entrypoint that is to be run.
#[derive(Debug)]
pub(crate) struct EntrypointPlan {
    /// Its words.
    args: Vec<String>,
    /// The image's environment, and what was asked for.
    env: Vec<String>,
    asked: EntrypointRequest,
}

impl EntrypointPlan {
    /// The entrypoint of the image whose config is `spec`, before anything of the job is added; none where it has none.
    pub(super) fn of(spec: &Spec, asked: &EntrypointRequest) -> Result<Option<Self>> {
        let args = annotations::entrypoint(spec)?;
        if args.is_empty() {
            return Ok(None);
        }
        let mut env = spec.process().as_ref().and_then(|process| process.env().clone()).unwrap_or_default();
        env.extend(environment::expand(&asked.env));
        Ok(Some(EntrypointPlan { args, env, asked: asked.clone() }))
    }

    /// Runs the entrypoint in the container, in which `plan` has been prepared, and has `prepared` take over what it has
    /// exported. `exported` is the file of [`make_file`].
    #[cold]
    pub(super) fn run(&self, plan: &ProcessPlan, prepared: &mut Prepared, exported: &OwnedFd) -> Result<()> {
        let context = || "the image's entrypoint";
        let (found, output) = (memory_file()?, memory_file()?);
        let mut args = self.args.clone();
        let file = fd::link(&found);
        args.extend(["/bin/sh", "-c", "cat /proc/$$/environ >\"$0\""].map(str::to_owned));
        args.push(file);
        let path = find_program(&args[0], &self.env).context(context)?;
        let exec = ExecArgs::new(&args, &self.env)?;
        let input = memory_file()?;
        let child = process::spawn(Namespaces::NONE, Memory::Copied, || {
            let ready = tty::become_hook_stdio(&input, &output, &output);
            signal::reset(u64::MAX);
            let ready = ready.and_then(|()| fd::keep_over_exec(found.as_raw_fd()));
            let error = match ready.and_then(|()| plan.confine(prepared)) {
                Ok(()) => exec.exec(&path),
                Err(e) => e,
            };
            let _ = rustix::io::write(rustix::stdio::stderr(), error.to_string().as_bytes());
            127
        })?;
        let status = process::wait(child.pid)?;
        let printed = read(&output)?;
        if self.asked.log {
            let _ = rustix::io::write(rustix::stdio::stderr(), &printed);
        }
        if status.exit_status() != Some(0) {
            let text = String::from_utf8_lossy(&printed);
            let last =
                text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it has said nothing");
            return Err(err!("exit code {}: {last}", process::exit_code(status))
                .context(context())
                .hint("RT_CONTAINER_ENTRYPOINT=0 leaves it out"));
        }
        let text = read(&found)?;
        fd::write_all(exported, &text).context(context)?;
        let env = merge(&plan.full_env(), &text, &self.asked.env);
        prepared.replace_env(plan, &env)
    }
}

/// `env` with the variables of `text`, each ended by a zero byte, but for those that keep their values.
pub(super) fn merge(env: &[String], text: &[u8], kept: &[String]) -> Vec<String> {
    let name = |variable: &str| variable.split_once('=').map_or(variable, |(name, _)| name).to_owned();
    let has_value = |known: &String| env.iter().any(|variable| name(variable) == *known);
    let stays = |variable: &str| {
        let name = name(variable);
        OF_SHELL.contains(&name.as_str()) || kept.contains(&name) && has_value(&name)
    };
    let found: Vec<String> = text
        .split(|byte| *byte == 0)
        .filter_map(|variable| Some(std::str::from_utf8(variable).ok()?.to_owned()))
        .filter(|variable| variable.contains('=') && !stays(variable))
        .collect();
    let is_found = |variable: &String| found.iter().any(|other| name(other) == name(variable));
    let mut all: Vec<String> = env.iter().filter(|variable| !is_found(variable)).cloned().collect();
    all.extend(found);
    all
}

/// What an entrypoint has exported in the container whose directory of state is `dir`; empty where none was run.
pub(super) fn saved(dir: BorrowedFd<'_>) -> Result<Vec<u8>> {
    match fd::read_at(dir, ENVIRONMENT) {
        Err(e) if e.is(libc::ENOENT) => Ok(Vec::new()),
        text => text.context(|| "read what the entrypoint has exported"),
    }
}

/// Makes the file for what an entrypoint exports, in the container's directory of state.
pub(super) fn make_file(state: BorrowedFd<'_>) -> Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    fs::openat(state, ENVIRONMENT, flags, Mode::RUSR | Mode::WUSR)
        .context(|| "make the file for what the entrypoint exports")
}

fn memory_file() -> Result<OwnedFd> {
    fs::memfd_create(c"entrypoint", MemfdFlags::CLOEXEC).context(|| "make a file in memory")
}

/// The beginning of a file in memory.
fn read(file: &OwnedFd) -> Result<Vec<u8>> {
    let size = fd::stat(file.as_fd())?.st_size as u64;
    let mut text = vec![0; size.min(MOST) as usize];
    let n = rustix::io::pread(file, &mut text, 0)?;
    text.truncate(n);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_entrypoint_exports_counts() {
        let env = ["A=1", "B=2", "LANG=de", "PATH=/bin"].map(str::to_owned);
        let found = b"A=7\0NEW=x y\nz\0B=8\0PWD=/x\0SHLVL=3\0PATH=/opt:/bin\0LANG=C\0broken\0";
        let merged = merge(&env, found, &["B".to_owned(), "C".to_owned()]);
        assert_eq!(merged, ["B=2", "A=7", "NEW=x y\nz", "PATH=/opt:/bin", "LANG=C"]);
        assert_eq!(merge(&env, b"", &[]), env);
    }
}
