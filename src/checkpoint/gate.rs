//! Two moments at which criu waits for `rt`.
//!
//! At the first, criu has made the namespaces of a first process, and the processes have opened nothing yet: the paths that they
//! open are the program's, and must lead through no /proc but the container's own, which can be mounted by now.
//!
//! At the second, criu has made all processes and still holds them by ptrace(2). What has been restored is compared with the config
//! before it runs. A process that criu has left stopped (SIGSTOP) is no safe object for that: a timer of its own, or a file that sends
//! signals (F_SETSIG, fcntl(2)), continues it. While criu traces it, nothing does.
//!
//! criu executes a program at both (`--action-script`), and waits for its end: this executable, which asks the container's init, and
//! ends when that has answered. criu executes it by a path, and with none of its own descriptors. So it lies in a file system of its
//! own, which covers a directory that every procfs has, and is mounted once more when another procfs has taken the place of that one.

use crate::container::{self, Held, Moment};
use rt_sys::error::{Context, Result};
use rt_sys::mount::{self, Param, Recursive};
use rt_sys::process::{self, Child};
use rt_sys::{bail, fd, start};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, Mode, OFlags};
use rustix::mount::UnmountFlags;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{PidfdFlags, PidfdGetfdFlags};
use std::path::Path;

/// Where this executable lies for criu.
const PLACE: &str = "/proc/bus";
/// What its name there begins with, before the numbers of criu's descriptors: one to ask by, one for the answer.
const NAME: &str = "rt-criu-gate";
/// The actions of criu at those moments, and the variable that has it (criu(8), "--action-script").
const ACTIONS: [(&str, Moment); 2] =
    [("post-setup-namespaces", Moment::Namespaces), ("pre-resume", Moment::Made)];
const ACTION_VARIABLE: &str = "CRTOOLS_SCRIPT_ACTION";
/// The variable with the number of the program in criu's PID namespace.
const PID_VARIABLE: &str = "CRTOOLS_INIT_PID";

/// Both pipes, and the file system with this executable.
pub(super) struct Gate {
    /// What criu executes.
    path: String,
    /// The same file system once more, mounted nowhere.
    spare: OwnedFd,
    asked: OwnedFd,
    asks: OwnedFd,
    answers: OwnedFd,
    answered: OwnedFd,
}

impl Gate {
    /// `exe` is this executable. This process is in the container's root.
    pub(super) fn new(exe: &OwnedFd) -> Result<Gate> {
        let pipe = || pipe_with(PipeFlags::CLOEXEC).context(|| "make a pipe");
        let ((asked, asks), (answered, answers)) = (pipe()?, pipe()?);
        let name = format!("{NAME}:{}:{}", asks.as_raw_fd(), answered.as_raw_fd());
        let spare = mounted(&name, exe).context(|| "give criu a program of rt's")?;
        Ok(Gate { path: format!("{PLACE}/{name}"), spare, asked, asks, answers, answered })
    }

    /// The words by which criu is told of it.
    pub(super) fn arguments(&self) -> [String; 2] {
        ["--action-script".to_owned(), self.path.clone()]
    }

    /// What criu gets of it.
    pub(super) fn descriptors(&self) -> [&OwnedFd; 2] {
        [&self.asks, &self.answered]
    }

    /// Waits until criu asks, and has `look` look at what it holds. Where that fails, it has ended what was restored. Returns whether
    /// criu has asked at the last moment before it ended.
    ///
    /// # Errors
    /// Those of `look`; the runtime has died.
    pub(super) fn wait(
        self,
        criu: &Child,
        runtime: Option<BorrowedFd<'_>>,
        look: &mut dyn FnMut(Held) -> Result<()>,
    ) -> Result<bool> {
        let Gate { spare, asked, asks, answers, answered, .. } = self;
        // Its own ends are criu's alone now, so that criu's end is the end of the pipe, too.
        drop((asks, answered));
        loop {
            let mut fds = vec![PollFd::new(&asked, PollFlags::IN), PollFd::new(&criu.pidfd, PollFlags::IN)];
            fds.extend(runtime.map(|runtime| PollFd::from_borrowed_fd(runtime, PollFlags::IN)));
            process::poll(&mut fds, None)?;
            if !fds[0].revents().contains(PollFlags::IN) {
                match fds[0].revents().is_empty() && fds[1].revents().is_empty() {
                    true => bail!("the runtime has died"),
                    false => return Ok(false),
                }
            }
            let held = heard(&asked, criu)?;
            // criu's program is executed from there, and is not mounted in what is looked at.
            rustix::mount::unmount(PLACE, UnmountFlags::DETACH).context(|| format!("unmount {PLACE}"))?;
            look(held)?;
            if held.at == Moment::Namespaces {
                mount::attach_to(&spare, Path::new(PLACE)).context(|| format!("mount {PLACE}"))?;
            }
            fd::write_all(&answers, b"g").context(|| "answer criu")?;
            if held.at == Moment::Made {
                return Ok(true);
            }
        }
    }
}

/// Mounts a file system with the program `name`, a copy of `exe`, for criu, and returns it once more.
fn mounted(name: &str, exe: &OwnedFd) -> Result<OwnedFd> {
    let tree = mount::new_fs("tmpfs", "tmpfs", &[Param::Value("mode".into(), "555".into())], 0)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = fs::openat(&tree, name, flags, Mode::from_raw_mode(0o555))?;
    container::copy_executable(exe, &file)?;
    mount::attach_to(&tree, Path::new(PLACE))?;
    mount::clone_fd(&tree, Recursive::No)
}

/// What criu's program says: which moment it is, and who is held by whom.
fn heard(asked: &OwnedFd, criu: &Child) -> Result<Held> {
    let mut said = [0; 12];
    let read = rustix::io::read(asked, &mut said).context(|| "listen to criu")?;
    let [at, program, own] =
        [0, 4, 8].map(|n| i32::from_ne_bytes([said[n], said[n + 1], said[n + 2], said[n + 3]]));
    match usize::try_from(at).ok().and_then(|at| ACTIONS.get(at)) {
        Some((_, at)) if read == said.len() => {
            Ok(Held { at: *at, program, by: [criu.pid.as_raw_nonzero().get(), own] })
        }
        _ => bail!("criu's program has said {said:?}"),
    }
}

/// The program that criu executes. Returns only where this process is not to be that.
pub(crate) fn main() {
    // Each start of rt comes by here.
    let Some(path) = start::exec_path().filter(|path| path.as_encoded_bytes().starts_with(PLACE.as_bytes()))
    else {
        return;
    };
    let name = path.to_str().and_then(|path| path.strip_prefix(PLACE)?.strip_prefix('/')?.strip_prefix(NAME));
    let Some(numbers) = name.and_then(|name| name.strip_prefix(':')) else { return };
    let action = std::env::var(ACTION_VARIABLE).unwrap_or_default();
    match ACTIONS.iter().position(|(name, _)| *name == action) {
        Some(at) => process::exit_now(ask(at as i32, numbers).is_none().into()),
        None => process::exit_now(0),
    }
}

/// Says which moment it is and which processes the program and this one are, and waits for the answer.
fn ask(at: i32, numbers: &str) -> Option<()> {
    let (asks, answered) = numbers.split_once(':')?;
    let program: i32 = std::env::var(PID_VARIABLE).ok()?.parse().ok()?;
    // criu has closed its descriptors for this process, and the procfs that is mounted may be another PID namespace's.
    let criu = rustix::process::pidfd_open(rustix::process::getppid()?, PidfdFlags::empty()).ok()?;
    let of_criu = |number: &str| {
        rustix::process::pidfd_getfd(&criu, number.parse().ok()?, PidfdGetfdFlags::empty()).ok()
    };
    let answered = of_criu(answered)?;
    let said = [at, program, std::process::id() as i32].map(i32::to_ne_bytes).concat();
    fd::write_all(of_criu(asks)?, &said).ok()?;
    (rustix::io::read(answered, &mut [0]) == Ok(1)).then_some(())
}
