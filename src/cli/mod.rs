//! The command line: [`args`] describes it, [`parse`] reads it, and each command has a file of its own.
//!
//! A command prints its answer on stdout and nothing else: callers read stdout and stderr together.
//! What went wrong is one line on stderr, and one in the log where `--log` names one.

mod args;
mod create;
mod delete;
mod events;
mod exec;
mod features;
mod generate;
pub mod image;
mod kill;
mod list;
mod parse;
mod pause;
mod ps;
mod resume;
mod run;
mod slurm;
mod spec;
mod start;
mod state;
mod update;

use crate::container::{self, StepTask};
use crate::error::{Context, Error, Result};
use crate::store::{OCI_VERSION, Store};
use crate::{bail, log};
use ::log::LevelFilter;
use args::Command;
use parse::{Call, Flags, Request};
use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;

/// The version that `--version`, `features` and the man pages name.
const PROGRAM_VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit that this was built from, where the build says so (`RT_COMMIT`).
const COMMIT: Option<&str> = option_env!("RT_COMMIT");

/// What differs between the programs that have this command line.
struct Program {
    /// Does what a command asks for.
    act: fn(&'static Command, &Call) -> Result<u8>,
    /// The form of log lines, where no flag says.
    log_format: log::Format,
    /// What is logged, where no flag says.
    log_level: LevelFilter,
}

/// `rt`'s main: runs the command line of this process and returns the exit code.
pub fn main() -> u8 {
    run_program(&Program {
        act: |command, call| (command.run)(call),
        log_format: log::Format::Text,
        log_level: LevelFilter::Error,
    })
}

fn run_program(program: &Program) -> u8 {
    let words = crate::sys::start::args();
    let mut failure = 1;
    match run(program, words.get(1..).unwrap_or_default(), &mut failure) {
        Ok(code) => code,
        Err(error) => {
            report(&error);
            failure
        }
    }
}

/// Does what `words` ask for and returns the exit code; `failure` is that of an error.
fn run(program: &Program, words: &[OsString], failure: &mut u8) -> Result<u8> {
    let mut flags = Flags::default();
    let request = parse::globals(words, &mut flags);
    // Before the parser's error is looked at: callers want that one in their log too.
    let log = set_up_log(program, &flags);
    let request = request?;
    log?;
    let (command, words) = match request {
        Request::Command(command, words) => (command, words),
        Request::Help(None) => return print(generate::help()),
        Request::Help(Some(command)) => return print(generate::command_help(command)),
        Request::Version => return print(version()),
        Request::Nothing => return print(generate::help()),
    };
    match parse::call(command, flags, words).context(|| command.name)? {
        None => print(generate::command_help(command)),
        Some(call) => {
            *failure = command.failure;
            (program.act)(command, &call)
        }
    }
}

fn set_up_log(program: &Program, flags: &Flags) -> Result<()> {
    let file = flags.path(&args::LOG);
    let format = match flags.text(&args::LOG_FORMAT)? {
        None if file.is_none() => program.log_format,
        None | Some("" | "text") => log::Format::Text,
        Some("json") => log::Format::Json,
        Some(other) => bail!("invalid log-format: {other}"),
    };
    let level = match flags.text(&args::LOG_LEVEL)? {
        _ if flags.has(&args::DEBUG) => LevelFilter::Debug,
        None => program.log_level,
        Some("" | "error") => LevelFilter::Error,
        Some("warning" | "warn") => LevelFilter::Warn,
        Some("info") => LevelFilter::Info,
        Some("debug") => LevelFilter::Debug,
        Some("trace") => LevelFilter::Trace,
        Some(other) => bail!("invalid log-level: {other}"),
    };
    log::init(level, format, file.as_deref())
}

/// Says what went wrong. A person reads `rt: text`; a program that names a log puts its own name in
/// front.
fn report(error: &Error) {
    let kernel = too_old(error.errno(), &crate::sys::kernel_release());
    let text = one_line(&format!("{error}{}", kernel.unwrap_or_default()));
    let line = match log::report(&text) {
        Ok(true) => format!("{text}\n"),
        Ok(false) => format!("rt: {text}\n"),
        Err(e) => match one_line(&e.to_string()) {
            // That there is no log is the error itself.
            same if same == text => format!("rt: {text}\n"),
            other => format!("rt: {text}\nrt: {other}\n"),
        },
    };
    // Whoever closed stderr does not want to know.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// What to add to the error of a call that a kernel refuses which it does not know: that it is too old.
fn too_old(errno: Option<i32>, release: &str) -> Option<String> {
    const OLDEST: (u32, u32) = (5, 14);
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|n| n.parse::<u32>().ok());
    let (major, minor) = (numbers.next()?, numbers.next()?);
    let unknown = matches!(errno, Some(libc::ENOSYS | libc::EINVAL | libc::EOPNOTSUPP));
    (unknown && (major, minor) < OLDEST)
        .then(|| format!(" (rt needs Linux {}.{}, this is {major}.{minor})", OLDEST.0, OLDEST.1))
}

/// `text` with its control characters escaped: names come from configs and images, lines go to
/// terminals.
fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.trim_end().chars() {
        if c.is_control() { line.extend(c.escape_default()) } else { line.push(c) }
    }
    line
}

/// Writes a command's answer to stdout. A reader that has gone away is no error.
fn print(answer: impl AsRef<[u8]>) -> Result<u8> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(answer.as_ref()).and_then(|()| stdout.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(e).context(|| "write to stdout"),
        _ => Ok(0),
    }
}

fn version() -> String {
    let commit = COMMIT.unwrap_or("unknown");
    format!("rt version {PROGRAM_VERSION}\ncommit: {commit}\nspec: {OCI_VERSION}\n")
}

/// The state directory that `--root` names, or the default one. Makes none.
fn store(call: &Call) -> Result<Store> {
    Store::open(root(call)?.as_deref())
}

/// The same, made where it is missing.
fn new_store(call: &Call) -> Result<Store> {
    Store::create(root(call)?.as_deref())
}

/// What an operand names: a container, and where it is.
struct Named {
    store: Store,
    id: String,
    /// The id and the pid of a task, where the operand names one.
    task: Option<(String, i32)>,
}

/// What the operand names: an id, or a Slurm job, whose state may lie where oci.conf puts it. Of what is nowhere the
/// answer is the default store.
fn find(call: &Call) -> Result<Named> {
    let (store, name) = (store(call)?, call.id()?);
    let of = |store: Store, id: &str, task| Ok(Named { store: store.for_use()?, id: id.to_owned(), task });
    if store.entry(name).is_ok() {
        return of(store, name, None);
    }
    let jobs = if root(call)?.is_none() { Store::of_jobs() } else { Vec::new() };
    let mut stores: Vec<Store> = jobs.into_iter().chain([store]).collect();
    if let Some(holder) = stores.iter().position(|store| store.entry(name).is_ok()) {
        return of(stores.swap_remove(holder), name, None);
    }
    for (n, store) in stores.iter().enumerate() {
        if let Some(StepTask { container, task }) = container::find_step(store, name)? {
            return of(stores.swap_remove(n), &container, task);
        }
    }
    of(stores.swap_remove(stores.len() - 1), name, None)
}

fn root(call: &Call) -> Result<Option<PathBuf>> {
    match call.globals.path(&args::ROOT) {
        Some(root) if root.as_os_str() == "/" => bail!("--root: / cannot be the directory of the states"),
        root => Ok(root),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_is_too_old_is_named() {
        let said = |errno, release| too_old(errno, release).unwrap_or_default();
        assert_eq!(said(Some(libc::ENOSYS), "5.10.0-30-amd64"), " (rt needs Linux 5.14, this is 5.10)");
        assert_eq!(
            said(Some(libc::EINVAL), "4.18.0-553.el8_10.x86_64"),
            " (rt needs Linux 5.14, this is 4.18)"
        );
        for (errno, release) in [
            (Some(libc::ENOSYS), "5.14.0"),
            (Some(libc::ENOSYS), "6.1"),
            (Some(libc::ENOENT), "5.4.1"),
            (None, "5.4.1"),
        ] {
            assert_eq!(said(errno, release), "", "{errno:?} {release}");
        }
    }
}
