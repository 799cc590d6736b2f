//! The command line that `rt` and `rt-pull` share: tables of flags and commands, and everything that reads them.
//!
//! A command that succeeds prints only its answer, on stdout, because callers read stdout and stderr as one stream. An
//! error is one line on stderr, and one in the log if `--log` names a log.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod command;
pub mod flag;
pub mod habits;
pub mod help;
pub mod image;
pub mod parse;
pub mod signals;
pub mod wrong;

use ::log::LevelFilter;
use command::Program;
use parse::{Flags, Request};
use rt_sys::error::{Context, Error, Result};
use rt_sys::log::one_line;
use rt_sys::{bail, log};
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{ErrorKind, Write};

/// The version that `--version`, `features` and the man pages name.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit that this was built from, where the build says so (`RT_COMMIT`).
pub const COMMIT: Option<&str> = option_env!("RT_COMMIT");

/// Runs the command line of this process and returns the exit code.
pub fn run(program: &Program) -> u8 {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    run_words(program, &words)
}

/// Runs the command line `words`, without the program's own name, and returns the exit code.
pub fn run_words(program: &Program, words: &[OsString]) -> u8 {
    let mut failure = 1;
    match act(program, words, &mut failure) {
        Ok(code) => code,
        Err(error) => {
            report(&error);
            failure
        }
    }
}

/// Does what `words` ask for and returns the exit code; `failure` is that of an error.
fn act(program: &Program, words: &[OsString], failure: &mut u8) -> Result<u8> {
    let mut flags = Flags::default();
    let request = parse::globals(program, words, &mut flags);
    // The log is opened before the parser's error is returned, because callers look for that error in their log too.
    let log = set_up_log(program, &flags);
    let request = request?;
    log?;
    let (command, words) = match request {
        Request::Command(command, words) => (command, words),
        Request::Help(None) => return print(help::of_program(program)),
        Request::Help(Some(command)) => return print(help::of_command(command)),
        Request::Version => return print((program.version)()),
        Request::Nothing => return print(help::of_program(program)),
    };
    match parse::call(command, flags, words).context(|| command.name)? {
        None => print(help::of_command(command)),
        Some(call) => {
            *failure = command.failure;
            (command.run)(&call)
        }
    }
}

fn set_up_log(program: &Program, flags: &Flags) -> Result<()> {
    let file = flags.path(&flag::LOG);
    let format = match flags.text(&flag::LOG_FORMAT)? {
        None if file.is_none() => program.log_format,
        None | Some("" | "text") => log::Format::Text,
        Some("json") => log::Format::Json,
        Some("caller") => log::Format::Caller,
        Some(other) => bail!("invalid log-format: {other}"),
    };
    let level = match flags.text(&flag::LOG_LEVEL)? {
        _ if flags.has(&flag::DEBUG) => LevelFilter::Debug,
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

/// Prints an error. People get `rt: text`. A program that names a log gets the text alone, because it puts a name of its
/// own in front.
pub fn report(error: &Error) {
    let kernel = too_old(error.errno(), &rt_sys::kernel_release());
    let text = one_line(&format!("{error}{}", kernel.unwrap_or_default()));
    let line = match log::report(&text) {
        Ok(log::Told::Caller) => return,
        Ok(log::Told::Log) => format!("{text}\n"),
        Ok(log::Told::Nobody) => format!("rt: {text}\n"),
        Err(e) => match one_line(&e.to_string()) {
            // The error is that the log cannot be opened: once is enough.
            same if same == text => format!("rt: {text}\n"),
            other => format!("rt: {text}\nrt: {other}\n"),
        },
    };
    // There is nobody left to tell that stderr is closed.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// A remark for the error of a system call that an old kernel may not know.
fn too_old(errno: Option<i32>, release: &str) -> Option<String> {
    const OLDEST: (u32, u32) = (5, 14);
    let (major, minor) = rt_sys::kernel_numbers(release)?;
    let unknown = matches!(errno, Some(libc::ENOSYS | libc::EINVAL | libc::EOPNOTSUPP));
    (unknown && (major, minor) < OLDEST)
        .then(|| format!(" (rt needs Linux {}.{}, this is {major}.{minor})", OLDEST.0, OLDEST.1))
}

/// Writes a command's answer to stdout. It is no error if the reader has closed the pipe.
pub fn print(answer: impl AsRef<[u8]>) -> Result<u8> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(answer.as_ref()).and_then(|()| stdout.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(e).context(|| "write to stdout"),
        _ => Ok(0),
    }
}

/// Writes JSON to stdout, in a line of its own. What is in it can be anybody's, so nothing in it steers a terminal.
pub fn print_json(json: &impl Display) -> Result<u8> {
    print(log::json(json) + "\n")
}

/// The answer to `--version`: of the program, and of the specification that it follows.
pub fn version(spec: &str) -> String {
    let commit = COMMIT.unwrap_or("unknown");
    format!("rt version {VERSION}\ncommit: {commit}\nspec: {spec}\n")
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
