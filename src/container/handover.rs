//! What the caller of `create`, `run` and `exec` gets by files and sockets that it names: the pid, a pidfd, the
//! terminal; and what the agent of a seccomp filter gets.

use super::plan::SeccompPlan;
use crate::store::ContainerDir;
use rt_sys::error::{Context, Result};
use rt_sys::{err, tty};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// Where the caller wants what, as the flags of the command line say it.
#[derive(Debug, Default)]
pub(crate) struct Handover {
    /// The file that gets the pid (`--pid-file`): digits only, no newline.
    pub pid_file: Option<PathBuf>,
    /// The AF_UNIX socket that receives the terminal's master side (`--console-socket`).
    pub console_socket: Option<PathBuf>,
    /// The AF_UNIX socket that receives a pidfd (`--pidfd-socket`).
    pub pidfd_socket: Option<PathBuf>,
}

/// The two ends by which the terminal's master side goes to whoever shows it.
#[derive(Debug, Default)]
pub(super) struct ConsoleSockets {
    /// The socket that the process with the terminal sends the master side to.
    pub sender: Option<OwnedFd>,
    /// This process's end, where the runtime itself shows the terminal.
    pub receiver: Option<OwnedFd>,
}

impl Handover {
    /// Makes every path independent of the working directory, which will be the bundle or the container's.
    pub(super) fn make_absolute(&mut self) -> Result<()> {
        let paths = [&mut self.pid_file, &mut self.console_socket, &mut self.pidfd_socket];
        for path in paths.into_iter().flatten() {
            *path = rt_sys::fd::absolute(&*path)?;
        }
        Ok(())
    }

    /// Gives the caller the pid and the pidfd of a process that is there and whose program is about to run.
    pub(super) fn hand_over_process(&self, pid: i32, pidfd: &OwnedFd) -> Result<()> {
        self.write_pid(pid)?;
        match &self.pidfd_socket {
            Some(path) => send_pidfd(path, pidfd),
            None => Ok(()),
        }
    }

    /// Writes the pid file, where the caller wants one.
    pub(super) fn write_pid(&self, pid: i32) -> Result<()> {
        self.pid_file.as_ref().map_or(Ok(()), |path| write_pid_file(path, pid))
    }

    /// Removes the pid file of a process that did not come to be.
    pub(super) fn remove_pid(&self) {
        if let Some(path) = &self.pid_file {
            let _ = rustix::fs::unlink(path);
        }
    }

    /// The sockets for the terminal; none where the process gets no terminal. Without `--console-socket` the runtime
    /// shows the terminal itself, and the sockets are a pair.
    pub(super) fn console(&self, terminal: bool) -> Result<ConsoleSockets> {
        if !terminal {
            return Ok(ConsoleSockets::default());
        }
        match &self.console_socket {
            Some(path) => {
                let socket =
                    tty::connect(path).context(|| format!("connect to console socket {}", path.display()))?;
                Ok(ConsoleSockets { sender: Some(socket), receiver: None })
            }
            None => {
                let (ours, theirs) = tty::socket_pair()?;
                Ok(ConsoleSockets { sender: Some(theirs), receiver: Some(ours) })
            }
        }
    }
}

/// What a detached program has in place of the caller's standard streams. A terminal and a pipe would outlive their use: the
/// caller types on at the one, and a shell's `$(...)` waits for the end of the other. A standard output that is something else,
/// such as a file, is where the caller wants it. Standard error goes with it to the log.
#[derive(Debug)]
pub(super) struct Streams {
    /// None where no stream needs it.
    log: Option<OwnedFd>,
    null: OwnedFd,
}

impl Streams {
    /// With the log of the container in `dir`.
    pub(super) fn logged(dir: &ContainerDir) -> Result<Streams> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let null = fs::open("/dev/null", flags, Mode::empty()).context(|| "open /dev/null")?;
        let logs = goes_away(rustix::stdio::stdout())? || goes_away(rustix::stdio::stderr())?;
        Ok(Streams { log: if logs { Some(dir.make_log()?) } else { None }, null })
    }

    /// Puts them in the place of this process's streams.
    pub(super) fn take_over(&self) -> Result<()> {
        let (input, output, errors) =
            (rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr());
        if rustix::termios::isatty(input) {
            rustix::stdio::dup2_stdin(&self.null).context(|| "take standard input from /dev/null")?;
        }
        let Some(log) = &self.log else { return Ok(()) };
        let logs_output = goes_away(output)?;
        if logs_output {
            rustix::stdio::dup2_stdout(log).context(|| "have the log take standard output")?;
        }
        // In a script, `id=$(rt run -d ...)` leaves the script's own: half of what is written would not be in the log.
        if logs_output || goes_away(errors)? {
            rustix::stdio::dup2_stderr(log).context(|| "have the log take standard error")?;
        }
        Ok(())
    }
}

/// True for a terminal and a pipe. A stream that is closed is none.
fn goes_away(stream: BorrowedFd<'_>) -> Result<bool> {
    match fs::fstat(stream) {
        Err(Errno::BADF) => Ok(false),
        stat => {
            let kind = FileType::from_raw_mode(stat.context(|| "look at a standard stream")?.st_mode);
            Ok(kind == FileType::Fifo || rustix::termios::isatty(stream))
        }
    }
}

/// Hands the seccomp listener of the process behind `pidfd` to the agent that the config names
/// (config-linux.md "The Container Process State"). `listener` is its number in that process, `pid` the process's pid,
/// and `state` the container's state.
pub(super) fn pass_listener(
    plan: &SeccompPlan,
    pidfd: &OwnedFd,
    listener: i32,
    pid: i32,
    state: &[u8],
) -> Result<()> {
    let Some(path) = &plan.listener else { return Ok(()) };
    let context = || format!("send the seccomp listener to {}", path.display());
    let fd = rustix::process::pidfd_getfd(pidfd, listener, rustix::process::PidfdGetfdFlags::empty())
        .context(context)?;
    let state: serde_json::Value = serde_json::from_slice(state).map_err(|e| err!("{e}"))?;
    let message = serde_json::json!({
        "ociVersion": rt_spec::OCI_VERSION,
        "fds": ["seccompFd"],
        "pid": pid,
        "metadata": plan.metadata,
        "state": state,
    });
    let socket = tty::connect(path).context(context)?;
    tty::send_fds(&socket, message.to_string().as_bytes(), &[fd.as_fd()]).context(context)
}

fn send_pidfd(path: &Path, pidfd: &OwnedFd) -> Result<()> {
    let context = || format!("send the pidfd to {}", path.display());
    let socket = tty::connect(path).context(context)?;
    tty::send_fds(&socket, b"pidfd", &[pidfd.as_fd()]).context(context)
}

/// A client reads the pid file as soon as it appears. It appears by rename, so that nobody reads half a number. Others may
/// be able to write in its directory, so nothing that is there is written to.
fn write_pid_file(path: &Path, pid: i32) -> Result<()> {
    let context = || format!("write pid file {}", path.display());
    let name = path.file_name().ok_or_else(|| err!("pid file {} has no name", path.display()))?;
    let mut new = std::ffi::OsString::from(".");
    new.push(name);
    let new = path.with_file_name(new);
    let file = make_new(&new).context(context)?;
    rt_sys::fd::write_all(&file, pid.to_string().as_bytes()).context(context)?;
    std::fs::rename(&new, path).context(context)
}

/// Makes the file `path`. What is there is removed: a call that was killed has left it, or somebody else has made it.
fn make_new(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let make = || fs::open(path, flags, Mode::from_raw_mode(0o666));
    match make() {
        Err(Errno::EXIST) => {
            fs::unlink(path)?;
            make()
        }
        made => made,
    }
}
