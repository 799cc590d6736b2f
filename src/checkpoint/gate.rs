//! The moment at which criu has made all processes and still holds them by ptrace(2).
//!
//! What has been restored is compared with the config before it runs. A process that criu has left stopped (SIGSTOP) is no safe
//! object for that: a timer of its own, or a file that sends signals (F_SETSIG, fcntl(2)), continues it. While criu traces it,
//! nothing does. criu executes a program then (`--action-script`, pre-resume), and waits for its end: this executable, which asks
//! the container's init, and ends when that has answered.

use crate::container::{self, Held};
use rt_sys::error::{Context, Result};
use rt_sys::process::{self, Child};
use rt_sys::{bail, fd, start};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, Mode, OFlags};
use rustix::pipe::{PipeFlags, pipe_with};
use std::ffi::OsStr;
use std::path::Path;

/// What this executable is told that is to ask, before the numbers of criu's descriptors: one to ask by, one for the answer.
const NAME: &str = "rt-criu-gate";
/// The action of criu at that moment, and the variable that has it (criu(8), "--action-script").
const ACTION: &str = "pre-resume";
const ACTION_VARIABLE: &str = "CRTOOLS_SCRIPT_ACTION";
/// The variable with the number of the program in criu's PID namespace.
const PID_VARIABLE: &str = "CRTOOLS_INIT_PID";

/// Both pipes.
pub(super) struct Gate<'a> {
    /// This executable.
    exe: &'a OwnedFd,
    asked: OwnedFd,
    asks: OwnedFd,
    answers: OwnedFd,
    answered: OwnedFd,
}

impl<'a> Gate<'a> {
    pub(super) fn new(exe: &'a OwnedFd) -> Result<Gate<'a>> {
        let pipe = || pipe_with(PipeFlags::CLOEXEC).context(|| "make a pipe");
        let ((asked, asks), (answered, answers)) = (pipe()?, pipe()?);
        Ok(Gate { exe, asked, asks, answers, answered })
    }

    /// The words by which criu is told of it, in the process that becomes criu. The program that criu executes has none of criu's
    /// descriptors, and finds them in procfs.
    pub(super) fn arguments(&self) -> Result<(Vec<String>, OwnedFd)> {
        let of_criu = |fd: &OwnedFd| format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd());
        let line = format!(
            "#!{} {NAME}:{}:{}\n",
            of_criu(self.exe),
            self.asks.as_raw_fd(),
            self.answered.as_raw_fd()
        );
        let script = container::sealed(Path::new(NAME), |file| fd::write_all(file, line.as_bytes()))?;
        Ok((vec!["--action-script".to_owned(), of_criu(&script)], script))
    }

    /// What criu gets of it.
    pub(super) fn descriptors(&self) -> [&OwnedFd; 3] {
        [self.exe, &self.asks, &self.answered]
    }

    /// Waits until criu asks, and has `look` look at what it holds. Where that fails, it has ended what was restored. Returns whether
    /// criu has asked before it ended.
    ///
    /// # Errors
    /// Those of `look`; the runtime has died.
    pub(super) fn wait(
        self,
        criu: &Child,
        runtime: Option<BorrowedFd<'_>>,
        look: &mut dyn FnMut(Held) -> Result<()>,
    ) -> Result<bool> {
        let Gate { asked, asks, answers, answered, .. } = self;
        drop((asks, answered));
        // Its own ends are criu's alone now, so that criu's end is the end of the pipe, too.
        let mut fds = vec![PollFd::new(&asked, PollFlags::IN), PollFd::new(&criu.pidfd, PollFlags::IN)];
        fds.extend(runtime.map(|runtime| PollFd::from_borrowed_fd(runtime, PollFlags::IN)));
        process::poll(&mut fds, None)?;
        if fds[0].revents().contains(PollFlags::IN) {
            let mut said = [0; 8];
            let read = rustix::io::read(&asked, &mut said).context(|| "listen to criu")?;
            if read != said.len() {
                bail!("criu's program has said {read} bytes");
            }
            let [a, b, c, d, e, f, g, h] = said;
            let (program, own) = (i32::from_ne_bytes([a, b, c, d]), i32::from_ne_bytes([e, f, g, h]));
            look(Held { program, by: [criu.pid.as_raw_nonzero().get(), own] })?;
            fd::write_all(&answers, b"g").context(|| "answer criu")?;
            return Ok(true);
        }
        match fds[0].revents().is_empty() && fds[1].revents().is_empty() {
            true => bail!("the runtime has died"),
            false => Ok(false),
        }
    }
}

/// The program that criu executes. Returns only where this process is not to be that.
pub(crate) fn main() {
    // Each start of rt comes by here.
    if !start::exec_path().is_some_and(|path| path.as_encoded_bytes().starts_with(b"/proc/")) {
        return;
    }
    let mut args = std::env::args_os().skip(1);
    let (Some(words), Some(_script), None) = (args.next(), args.next(), args.next()) else { return };
    let Some(numbers) = words.to_str().and_then(|words| words.strip_prefix(NAME)?.strip_prefix(':')) else {
        return;
    };
    if std::env::var_os(ACTION_VARIABLE).as_deref() != Some(OsStr::new(ACTION)) {
        process::exit_now(0);
    }
    process::exit_now(ask(numbers).is_none().into())
}

/// Says which processes the program and this one are, and waits for the answer.
fn ask(numbers: &str) -> Option<()> {
    let (asks, answered) = numbers.split_once(':')?;
    let program: i32 = std::env::var(PID_VARIABLE).ok()?.parse().ok()?;
    let of_criu = |number: &str, flags: OFlags| {
        let path = format!("/proc/{}/fd/{number}", std::os::unix::process::parent_id());
        fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()).ok()
    };
    let answered = of_criu(answered, OFlags::RDONLY)?;
    let both = [program.to_ne_bytes(), (std::process::id() as i32).to_ne_bytes()].concat();
    fd::write_all(of_criu(asks, OFlags::WRONLY)?, &both).ok()?;
    (rustix::io::read(answered, &mut [0]) == Ok(1)).then_some(())
}
