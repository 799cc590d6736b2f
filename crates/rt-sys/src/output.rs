//! What another program prints.
//!
//! [`Command::output`] and [`std::process::Child::wait_with_output`] panic where a read of their pipes fails. Here the program
//! prints into files in memory, which are read when it has ended. clippy.toml refuses those functions.

use crate::process;
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

/// Runs `command` with an empty standard input, and returns what it prints to standard output and standard error.
///
/// # Errors
/// It cannot be started, or what it has printed cannot be read.
pub fn of(command: &mut Command) -> io::Result<Output> {
    let mut errors = file()?;
    command.stderr(errors.try_clone()?);
    let (status, stdout) = stdout_of(command, None)?;
    Ok(Output { status, stdout, stderr: all(&mut errors)? })
}

/// The same of a program that is killed where it takes longer than `limit`.
///
/// # Errors
/// ETIMEDOUT where it was; and as [`of`].
pub fn of_within(command: &mut Command, limit: Duration) -> io::Result<Output> {
    let in_time = |child: &Child, _: [&File; 2]| match wait_within(child, limit)? {
        true => Ok(()),
        false => Err(Errno::TIMEDOUT.into()),
    };
    watched(command, in_time, Child::kill)
}

/// Runs `command` for as long as `watch` lets it, which is given the program and what it prints, and returns when the program has
/// ended. Where it fails, `kill` ends the program.
fn watched(
    command: &mut Command,
    watch: impl FnOnce(&Child, [&File; 2]) -> io::Result<()>,
    kill: impl FnOnce(&mut Child) -> io::Result<()>,
) -> io::Result<Output> {
    let (mut printed, mut errors) = (file()?, file()?);
    command.stdin(Stdio::null()).stdout(printed.try_clone()?).stderr(errors.try_clone()?);
    let mut child = command.spawn()?;
    let watched = watch(&child, [&printed, &errors]);
    if watched.is_err() {
        kill(&mut child)?;
    }
    let status = child.wait()?;
    watched?;
    Ok(Output { status, stdout: all(&mut printed)?, stderr: all(&mut errors)? })
}

fn wait_within(child: &Child, limit: Duration) -> io::Result<bool> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    let ended = process::poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(limit));
    ended.map(|count| count > 0).map_err(io::Error::other)
}

/// Runs `command`, and returns what it prints to standard output. Its standard input is `input`, which it
/// need not read, or empty.
///
/// # Errors
/// It cannot be started, or what it has printed cannot be read.
pub fn stdout_of(command: &mut Command, input: Option<&[u8]>) -> io::Result<(ExitStatus, Vec<u8>)> {
    let mut printed = file()?;
    command.stdout(printed.try_clone()?);
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    let mut child = command.spawn()?;
    // The pipe is closed with the value, or the program would wait for more.
    if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
        let _ = stdin.write_all(input);
    }
    let status = child.wait()?;
    Ok((status, all(&mut printed)?))
}

/// How many bytes [`of_talking`] takes from each of the two streams.
pub const MOST: u64 = 16 << 20;

/// As [`of`], for a program that prints to standard error while it works. It is ended, and whatever it has started in its process
/// group, where it prints nothing for the time `longest`, where `goes_on` says no, and where it has printed more than [`MOST`]:
/// what it prints can be a server's, and is kept in memory.
///
/// # Errors
/// As of [`of`]; TimedOut, Interrupted and FileTooLarge for the three.
pub fn of_talking(
    command: &mut Command,
    longest: Duration,
    goes_on: impl Fn() -> bool,
) -> io::Result<Output> {
    const LOOK: Duration = Duration::from_millis(100);
    let talks = |child: &Child, [printed, errors]: [&File; 2]| {
        let (mut last, mut size) = (Instant::now(), 0);
        loop {
            let has_ended = wait_within(child, LOOK.min(longest))?;
            let now = errors.metadata()?.len();
            if now.max(printed.metadata()?.len()) > MOST {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            if has_ended {
                return Ok(());
            }
            if now != size {
                (last, size) = (Instant::now(), now);
            }
            if last.elapsed() > longest {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if !goes_on() {
                return Err(io::ErrorKind::Interrupted.into());
            }
        }
    };
    // The group's leader has not been waited for, so the group is this one.
    let kill =
        |child: &mut Child| Ok(rustix::process::kill_process_group(Pid::from_child(child), Signal::KILL)?);
    watched(command.process_group(0), talks, kill)
}

fn file() -> io::Result<File> {
    Ok(memfd_create("output", MemfdFlags::CLOEXEC)?.into())
}

fn all(file: &mut File) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut all)?;
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_streams_are_returned() {
        let output = of(Command::new("sh").args(["-c", "echo out; echo err >&2; exit 3"])).unwrap();
        assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
        assert_eq!(output.status.code(), Some(3));
    }

    #[test]
    fn a_program_that_takes_too_long_is_killed() {
        let limit = Duration::from_millis(50);
        let error = of_within(Command::new("sleep").arg("1000"), limit).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ETIMEDOUT));
        let output = of_within(Command::new("echo").arg("x"), Duration::from_secs(60)).unwrap();
        assert_eq!(output.stdout, b"x\n");
    }

    #[test]
    fn a_program_reads_its_input_or_not() {
        let (status, printed) = stdout_of(&mut Command::new("cat"), Some(b"word")).unwrap();
        assert_eq!((status.success(), &printed[..]), (true, &b"word"[..]));
        let (status, printed) = stdout_of(&mut Command::new("true"), Some(&[b'x'; 1 << 20])).unwrap();
        assert_eq!((status.success(), &printed[..]), (true, &b""[..]));
    }

    #[test]
    fn a_program_that_says_nothing_is_ended() {
        let mut silent = Command::new("sh");
        silent.args(["-c", "sleep 100 & echo begun >&2; wait"]);
        let ended = of_talking(&mut silent, Duration::from_millis(50), || true).unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
        let ended = of_talking(&mut silent, Duration::from_secs(100), || false).unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::Interrupted);
        let mut talking = Command::new("sh");
        talking.args(["-c", "for n in 1 2 3; do echo $n >&2; sleep 0.2; done; echo end"]);
        let output = of_talking(&mut talking, Duration::from_secs(2), || true).unwrap();
        assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"end\n"[..], &b"1\n2\n3\n"[..]));
    }

    #[test]
    fn a_program_that_prints_without_end_is_ended() {
        for stream in ["1", "2"] {
            let mut endless = Command::new("sh");
            endless.args(["-c", &format!("yes >&{stream} & wait")]);
            let begun = Instant::now();
            let goes_on = || begun.elapsed() < Duration::from_secs(10);
            let ended = of_talking(&mut endless, Duration::from_secs(100), goes_on).unwrap_err();
            assert_eq!(ended.kind(), io::ErrorKind::FileTooLarge, "{stream}");
        }
        // Also between two looks, and where it has ended by itself.
        let mut short = Command::new("sh");
        short.args(["-c", "head -c 17000000 /dev/zero >&2"]);
        let ended = of_talking(&mut short, Duration::from_secs(100), || true).unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::FileTooLarge);
    }
}
