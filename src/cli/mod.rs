//! `rt`'s commands: `table.rs` describes them, and each has a file of its own.

mod checkpoint;
#[cfg(test)]
mod command_lines;
mod companion;
mod config;
mod create;
mod delete;
mod doctor;
mod events;
mod exec;
mod features;
mod fork;
mod image;
mod kill;
mod list;
mod logs;
mod mount;
mod operand;
mod pause;
mod ps;
mod restore;
mod resume;
mod run;
mod slurm;
mod spec;
mod start;
mod state;
mod stop;
mod table;
mod update;

use crate::checkpoint::gate_main;
use crate::container::{self, RunningTask, StepTask};
use crate::store::Store;
use ::log::LevelFilter;
use rt_cli::command::Program;
use rt_cli::flag::ROOT;
use rt_cli::parse::Call;
use rt_cli::{print, print_json};
use rt_spec::{OCI_VERSION, environment};
use rt_sys::error::{Context, Result};
use rt_sys::{bail, fd, log};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The commands and flags of `rt`.
pub static PROGRAM: Program = Program {
    summary: "run OCI containers without root, with one user id, and without touching a cgroup",
    commands: table::COMMANDS,
    version: || rt_cli::version(OCI_VERSION),
    log_format: log::Format::Text,
    log_level: LevelFilter::Error,
};

/// `rt`'s main: runs the command line of this process and returns the exit code.
pub fn main() -> u8 {
    container::init_main();
    gate_main();
    rt_cli::run_words(&PROGRAM, &own_words())
}

/// The name under which Slurm executes this program in the place of a task's own.
const TASK_PROGRAM: &str = "rt-slurm-task";

/// The words of this process's command line, without its own name. That of a task means a command.
fn own_words() -> Vec<OsString> {
    let mut words = std::env::args_os();
    let is_task =
        words.next().is_some_and(|name| Path::new(&name).file_name() == Some(TASK_PROGRAM.as_ref()));
    let command: &[&str] = if is_task { &["slurm", "task", "--"] } else { &[] };
    command.iter().map(OsString::from).chain(words).collect()
}

/// The state directory that `--root` names, or the default one. Makes none.
fn store(call: &Call) -> Result<Store> {
    Store::open(root(call)?.as_deref())
}

/// The state directory that `--root` names, or the default one, made where it is missing.
fn new_store(call: &Call) -> Result<Store> {
    Store::create(root(call)?.as_deref())
}

/// The variables that `--env-file` and `--env` ask for, in the order in which they count.
fn environment(call: &Call) -> Result<Vec<String>> {
    let mut words = Vec::new();
    for path in call.flags.paths(&table::ENV_FILE) {
        let text = fd::read_file(&path).context(|| format!("--env-file: read {}", path.display()))?;
        words.extend(environment::of_file(&text).context(|| format!("--env-file {}", path.display()))?);
    }
    for word in call.flags.texts(&table::ENV)? {
        environment::check(&word)?;
        words.push(word);
    }
    Ok(words)
}

/// Does `what` with each operand, also where that fails with one before it. The first error counts.
fn for_each(call: &Call, mut what: impl FnMut(&str) -> Result<()>) -> Result<u8> {
    let mut failed = Ok(0);
    for n in 0..call.operands.len() {
        let done = what(call.operand(n, "an id")?);
        if let (Ok(_), Err(e)) = (&failed, done) {
            failed = Err(e);
        }
    }
    failed
}

/// What an operand names: a container, and where it is.
struct Named {
    store: Store,
    id: String,
    /// The task, where the operand names one.
    task: Option<RunningTask>,
}

/// Finds the container that the operand names: by its id, by its Slurm job, whose store may lie where oci.conf puts it, or by
/// its run of ranks. A container that is in no store is looked for in the default one by the caller, which says that it is not there.
fn find(call: &Call) -> Result<Named> {
    find_named(call, call.id()?)
}

/// Finds the container that `name`, one of several operands, stands for, as [`find`] does.
fn find_named(call: &Call, name: &str) -> Result<Named> {
    let store = store(call)?;
    let of = |store: Store, id: &str, task| Ok(Named { store: store.for_use()?, id: id.to_owned(), task });
    if store.holds(name)? {
        return of(store, name, None);
    }
    let jobs = if root(call)?.is_none() { Store::of_jobs()? } else { Vec::new() };
    let mut stores: Vec<Store> = jobs.into_iter().chain([store]).collect();
    for (n, store) in stores.iter().enumerate() {
        if store.holds(name)? {
            return of(stores.swap_remove(n), name, None);
        }
    }
    for (n, store) in stores.iter().enumerate() {
        if let Some(StepTask { container, task }) = container::find_step(store, name)? {
            return of(stores.swap_remove(n), &container, task);
        }
    }
    for (n, store) in stores.iter().enumerate() {
        if let Some(StepTask { container, task }) = container::find_run(store, name)? {
            return of(stores.swap_remove(n), &container, task);
        }
    }
    of(stores.swap_remove(stores.len() - 1), name, None)
}

fn root(call: &Call) -> Result<Option<PathBuf>> {
    match call.globals.path(&ROOT) {
        Some(root) if root.as_os_str() == "/" => bail!("--root: / cannot be the directory of the states"),
        root => Ok(root),
    }
}
