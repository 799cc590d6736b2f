//! Root of one id whose owners are kept: a process beside the container, the supervisor, answers the calls that give owners and
//! make devices, and those that ask for them (`--root-emulation`).
//!
//! The supervisor is in the user and mount namespaces of the container, outside its PID namespace, and undumpable: no program in the
//! container can look into it. It has the capabilities that the container's programs may have, and three more: CAP_SYS_PTRACE, to read
//! the paths that they name, CAP_SYS_CHROOT, to look them up as they would, and CAP_SETFCAP, for records of links. They count in the
//! container's user namespace alone.
//! So what a program says of its memory, or changes meanwhile, harms nobody but itself (seccomp_unotify(2)).
//!
//! The supervisor ends when nobody is left who could make a call. Where it ends before, the container is ended too.
//!
//! | file | what it knows |
//! |---|---|
//! | `mod.rs` | the process: how it begins, and how its end is noticed |
//! | `call.rs` | which call asks for what |
//! | `target.rs` | the file that a call names |
//! | `answer.rs` | what becomes of a call |

mod answer;
mod call;
mod target;

use super::plan::Plan;
use rt_sys::error::{Context, Result};
use rt_sys::notify::Listener;
use rt_sys::ns::{self, Namespace, Namespaces};
use rt_sys::process::{self, Child, Memory};
use rt_sys::{bail, caps, err, fd};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::Mode;
use rustix::process::{DumpableBehavior, Signal, WaitOptions};
use std::cell::Cell;
use std::path::PathBuf;
use std::time::Duration;

/// What the supervisor says when it begins; anything else is why it cannot.
const BEGUN: &str = "begun";
/// How long the end of a supervisor takes at most that is not held up.
const PATIENCE: Duration = Duration::from_secs(5);
/// What the supervisor has beyond the container's programs.
const ITS_CAPABILITIES: [&str; 3] = ["CAP_SYS_PTRACE", "CAP_SYS_CHROOT", "CAP_SETFCAP"];

/// The supervisor of a container, as the runtime sees it.
#[derive(Debug)]
pub(super) struct Supervisor {
    child: Child,
    ended: Cell<Option<u8>>,
    /// How long it may take to end behind the container's program. Nobody is left then who makes calls, if the program was the
    /// first one of a PID namespace.
    patience: Duration,
}

impl Supervisor {
    /// Starts it for the container of `init`, whose filter has the listener `number` of init's.
    pub(super) fn start(plan: &Plan, proc: BorrowedFd<'_>, init: &Child, number: i32) -> Result<Supervisor> {
        let context = || "supervise root's calls";
        let flags = rustix::process::PidfdGetfdFlags::empty();
        let listener = rustix::process::pidfd_getfd(&init.pidfd, number, flags).context(context)?;
        let place = Place::of(init.pid.as_raw_nonzero().get())?;
        let (ready, says) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).context(context)?;
        let own = rustix::process::getpid();
        // What the closure owns is closed in this process when the child is there.
        let child = process::spawn(Namespaces::NONE, Memory::Copied, move || {
            let entered = place.enter(plan, proc, own);
            drop(place);
            let began = entered.and_then(|()| keep_open(proc, &listener, &says));
            let said = began.as_ref().map_or_else(|e| e.to_string(), |()| BEGUN.to_owned());
            let _ = fd::write_all(&says, said.as_bytes());
            drop(says);
            match began.and_then(|()| serve(proc, &Listener::new(listener))) {
                Ok(()) => 0,
                Err(e) => {
                    log::debug!("{}: {e}", context());
                    1
                }
            }
        })
        .context(context)?;
        let patience = if plan.makes(Namespace::Pid) { PATIENCE } else { Duration::ZERO };
        let supervisor = Supervisor { child, ended: Cell::new(None), patience };
        match String::from_utf8_lossy(&fd::read_all(ready).context(context)?).as_ref() {
            BEGUN => Ok(supervisor),
            why => {
                supervisor.child.end();
                Err(err!("{why}").context(context()))
            }
        }
    }

    /// Ends the container where its supervisor has failed: from then on its calls would fail one by one.
    pub(super) fn look(&self, container: &Child) -> Result<()> {
        if self.ended.get().is_some() {
            return Ok(());
        }
        self.take_end()?;
        if self.ended.get().is_some_and(|code| code != 0) {
            container.kill();
        }
        Ok(())
    }

    /// Notes how it has ended, if it has.
    fn take_end(&self) -> Result<()> {
        let ended = rustix::process::waitpid(Some(self.child.pid), WaitOptions::NOHANG);
        if let Some((_, status)) = ended.context(|| "wait for the supervisor")? {
            self.ended.set(Some(process::exit_code(status)));
        }
        Ok(())
    }

    /// Takes its end, after that of the container's program.
    ///
    /// # Errors
    /// The supervisor failed before, so calls of the container's were not answered.
    pub(super) fn finish(&self) -> Result<()> {
        if self.ended.get().is_none() {
            let mut fds = [PollFd::new(&self.child.pidfd, PollFlags::IN)];
            process::poll(&mut fds, Some(self.patience))?;
            self.take_end()?;
        }
        match self.ended.get() {
            Some(0) => Ok(()),
            None => {
                self.child.end();
                Ok(())
            }
            Some(_) => Err(err!("the supervisor of root's calls has died, and the container with it")
                .hint("--root-emulation off needs none")),
        }
    }
}

/// The namespaces of a container.
struct Place {
    /// None where the container has this process's own.
    user: Option<OwnedFd>,
    mounts: Option<OwnedFd>,
}

impl Place {
    fn of(pid: i32) -> Result<Place> {
        let open = |kind: Namespace| -> Result<Option<OwnedFd>> {
            let path = PathBuf::from(format!("/proc/{pid}/ns/{}", kind.file()));
            let own = PathBuf::from(format!("/proc/self/ns/{}", kind.file()));
            if ns::same_namespace(&path, &own) { Ok(None) } else { ns::open(&path).map(Some) }
        };
        Ok(Place { user: open(Namespace::User)?, mounts: open(Namespace::Mount)? })
    }

    /// Enters them, and gives up what a supervisor must not have.
    fn enter(&self, plan: &Plan, proc: BorrowedFd<'_>, runtime: rustix::process::Pid) -> Result<()> {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        if rustix::process::getppid() != Some(runtime) {
            bail!("the runtime has died");
        }
        rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        for (kind, namespace) in [(Namespace::User, &self.user), (Namespace::Mount, &self.mounts)] {
            if let Some(namespace) = namespace {
                ns::enter(namespace, kind)?;
            }
        }
        let own = ITS_CAPABILITIES.iter().filter_map(|name| caps::by_name(name));
        let all = plan.process.caps.bounding | own.fold(0, |all, one| all | one);
        caps::set(&caps::Sets { effective: all, permitted: all, ..caps::Sets::default() })?;
        rustix::thread::set_no_new_privs(true)?;
        // Changes of ids and capabilities have cleared both (prctl(2)).
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        rustix::process::umask(Mode::empty());
        fd::enter(proc)
    }
}

/// Closes every descriptor but the standard streams, the log's and these.
fn keep_open(proc: BorrowedFd<'_>, listener: &OwnedFd, says: &OwnedFd) -> Result<()> {
    let own = [proc.as_raw_fd(), listener.as_raw_fd(), says.as_raw_fd()];
    let log = rt_sys::log::descriptor();
    fd::close_all_but(3, &own.into_iter().chain(log).collect::<Vec<_>>())
}

/// Answers calls until nobody is left who could make one.
fn serve(proc: BorrowedFd<'_>, listener: &Listener) -> Result<()> {
    let view = target::View::new(proc)?;
    while let Some(call) = listener.receive()? {
        listener.answer(&call, answer::answer(&view, listener, &call))?;
    }
    Ok(())
}
