//! A restored program that is the first process of its PID namespace, as those of podman and containerd are.
//!
//! Such a process can be made only together with its namespace, so criu makes both. The init that has made the container's
//! mounts (the maker) stays outside of the namespace, and ends when the program goes on. Until there is a process to mount the
//! container's own /proc for, it is that of the maker's namespace, which criu needs. What the restored processes open by the
//! program's paths they open behind that.
//!
//! The kernel does not end the processes of a namespace with whoever has had them made. So maker and runtime look at each
//! other: the one that is left ends what was restored, whose orphans both take (PR_SET_CHILD_SUBREAPER).

use super::init::Init;
use super::plan::{MountKind, MountPlan, Plan};
use super::sync::{FromInit, Link};
use super::{Checkpoint, Held, Moment, lifecycle, mounts};
use rt_sys::error::{Context, Result};
use rt_sys::mount::{self, Follow, Recursive};
use rt_sys::ns::{self, Namespace, Namespaces};
use rt_sys::process::{self, Child, Memory};
use rt_sys::rootfs::{Image, PROC_MAGIC, Rootfs};
use rt_sys::{bail, err};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{self, Mode, OFlags};
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, PidfdFlags};
use std::convert::Infallible;
use std::path::{Path, PathBuf};

const PROC: &str = "/proc";

/// What is hidden or made read-only below /proc, when that is the container's.
#[derive(Debug, Default)]
pub(super) struct Late {
    masked: Vec<PathBuf>,
    readonly: Vec<PathBuf>,
}

/// Looks at the plan of any container whose program is restored.
///
/// # Errors
/// It has a mount namespace of somebody else's, in which criu would follow no links for the others as well.
pub(super) fn check(plan: &Plan) -> Result<()> {
    match plan.makes(Namespace::Mount) {
        true => Ok(()),
        false => {
            Err(err!("the config joins a mount namespace").hint("a program is restored in one of its own"))
        }
    }
}

/// Has `plan` leave the PID namespace to criu.
///
/// # Errors
/// The config gives the program another place.
pub(super) fn leave_to_criu(plan: &mut Plan) -> Result<()> {
    let remedy = "the image's program was the first process of its PID namespace, and has to be it again";
    if !plan.makes(Namespace::Pid) || plan.init {
        return Err(
            err!("the config gives the program no PID namespace whose first process it is").hint(remedy)
        );
    }
    if plan.process.terminal {
        bail!("the config asks for a terminal, which criu cannot give to a first process without root");
    }
    if let Some(below) = plan.mounts.iter().find(|mount| is_below_proc(&mount.destination)) {
        let shown = below.destination.display();
        bail!("{shown} is mounted below /proc, which is mounted anew when the program is there");
    }
    if proc_of(plan).is_none() {
        bail!("the config mounts no procfs at /proc, where rt looks at what criu has made");
    }
    let take = |paths: &mut Vec<PathBuf>| paths.extract_if(.., |path| is_below_proc(path)).collect();
    plan.late = Some(Late { masked: take(&mut plan.masked), readonly: take(&mut plan.readonly) });
    Ok(())
}

fn is_below_proc(path: &Path) -> bool {
    path.starts_with(PROC) && path != Path::new(PROC)
}

fn proc_of(plan: &Plan) -> Option<&MountPlan> {
    let is_proc = |kind: &MountKind| matches!(kind, MountKind::New { fstype, .. } if fstype == "proc");
    plan.mounts
        .iter()
        .rfind(|mount| mount.destination == Path::new(PROC))
        .filter(|mount| is_proc(&mount.kind))
}

impl Init<'_> {
    /// Has the program made as a first process, and ends when it goes on.
    pub(super) fn restore_first(
        &self,
        checkpoint: &dyn Checkpoint,
        config: &rt_spec::Spec,
    ) -> Result<Infallible> {
        let adopted = Adopted::begin(self.proc)?;
        // It ends what was made where the runtime ends, instead of ending with it.
        rustix::process::set_parent_process_death_signal(None)?;
        match self.make_first(checkpoint, config) {
            Ok(()) => process::exit_now(0),
            Err(e) => {
                adopted.end()?;
                Err(e)
            }
        }
    }

    fn make_first(&self, checkpoint: &dyn Checkpoint, config: &rt_spec::Spec) -> Result<()> {
        let most = self.plan.process.limits()?;
        let mut known = None;
        checkpoint.restore(config, &most, self.runtime, &mut |held: Held| match (held.at, &known) {
            (Moment::Namespaces, None) => {
                let first = known.insert(open(held.program)?);
                self.show_own_proc(first).inspect_err(|_| first.kill())
            }
            (Moment::Made, Some(first)) => {
                // Where criu ends before the program has, its end lets that go.
                beside(|| checkpoint.check(config, &most, &[])).inspect_err(|_| first.kill())
            }
            _ => bail!("criu has made another process than a first one"),
        })?;
        let Some(first) = known else { bail!("criu has not shown what it has made") };
        if self.only_child()?.pid != first.pid {
            bail!("criu has left another process than it has shown");
        }
        beside_first(&first, || checkpoint.forget_stops())?;
        if let Some(link) = self.link {
            link.tell(&FromInit::Pid(first.pid.as_raw_nonzero().get()))?;
            link.tell(&FromInit::Ready(None))?;
            self.wait_for_runtime(link)?;
            link.wait()?;
            if self.detach {
                link.tell(&FromInit::Detached)?;
            }
        }
        beside_first(&first, || checkpoint.continue_all())
    }

    /// Gives the container the procfs of the PID namespace whose first process is `first`.
    fn show_own_proc(&self, first: &Child) -> Result<()> {
        // For the children of this process.
        ns::join(&first.pidfd, Namespace::Pid).context(|| "join the PID namespace that criu has made")?;
        beside(|| self.plan.mount_proc())
    }

    /// Waits until the runtime has said something. This process has a copy of its end of the link, so that it does not see that end
    /// closed.
    fn wait_for_runtime(&self, link: &Link) -> Result<()> {
        let mut fds = vec![PollFd::new(link, PollFlags::IN)];
        fds.extend(self.runtime.map(|runtime| PollFd::from_borrowed_fd(runtime, PollFlags::IN)));
        process::poll(&mut fds, None)?;
        if fds[0].revents().is_empty() {
            bail!("the runtime has died");
        }
        Ok(())
    }

    /// The process that criu has left to this one.
    fn only_child(&self) -> Result<Child> {
        let children = children(self.proc)?;
        let [pid] = children[..] else {
            bail!("criu has left {} processes, and not the program alone", children.len());
        };
        open(pid)
    }
}

/// As [`beside`], where the program may go on, also by itself (a timer that sends SIGCONT), and end: its end is that of all in its PID
/// namespace.
fn beside_first(first: &Child, work: impl FnOnce() -> Result<()>) -> Result<()> {
    beside(work).or_else(|e| match lifecycle::wait_for_end(&first.pidfd, 1)? {
        true => Ok(()),
        false => Err(e),
    })
}

/// Does `work` in a child, which is in the PID namespace of this process's children.
fn beside(work: impl FnOnce() -> Result<()>) -> Result<()> {
    let mut done = Err(err!("a process beside the restored ones has been killed"));
    let child = process::spawn(Namespaces::NONE, Memory::Shared, || {
        done = work();
        0
    })?;
    process::wait(child.pid)?;
    done
}

impl Plan {
    /// Mounts the procfs of this process's PID namespace in place of the one at /proc, with what is hidden there.
    fn mount_proc(&self) -> Result<()> {
        let (Some(late), Some(mount)) = (&self.late, proc_of(self)) else { return Ok(()) };
        // Before the other one goes: the kernel gives a user namespace a new one where it sees one in full.
        let tree = mounts::new_proc(mount)?;
        // What hooks have mounted there, such as the one for GPUs, comes along.
        let below = take_below_proc()?;
        // It is another PID namespace's, and criu has it until its end.
        rustix::mount::unmount(PROC, UnmountFlags::DETACH).context(|| "unmount /proc")?;
        mount::attach_to(&tree, Path::new(PROC)).context(|| "mount /proc")?;
        for (point, tree) in &below {
            mount::attach_to(tree, point).context(|| format!("mount {}", point.display()))?;
        }
        let root = fs::open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let mut rootfs = Rootfs::for_hook(root, Image { path: Path::new("/"), readonly: true });
        rootfs.add_kernel_fs(PROC, PROC_MAGIC, Some(tree));
        mounts::mask(&rootfs, &late.masked)?;
        mounts::make_readonly(&rootfs, &late.readonly)
    }
}

/// Unmounts everything below /proc, and returns copies of it by their places, the outermost first.
fn take_below_proc() -> Result<Vec<(PathBuf, OwnedFd)>> {
    let mut below = Vec::new();
    for mounted in mount::table()?.into_iter().filter(|mounted| is_below_proc(&mounted.point)) {
        let copy = mount::clone_path(&mounted.point, Recursive::No, Follow::Links);
        below.push((mounted.point.clone(), copy.context(|| format!("copy {}", mounted.point.display()))?));
    }
    for (point, _) in below.iter().rev() {
        rustix::mount::unmount(point, UnmountFlags::empty())
            .context(|| format!("unmount {}", point.display()))?;
    }
    Ok(below)
}

/// The children that come to this process because their parents have ended, beside those that it had.
#[derive(Debug)]
pub(super) struct Adopted<'a> {
    proc: BorrowedFd<'a>,
    own: Vec<i32>,
}

impl<'a> Adopted<'a> {
    /// Takes orphans from now on. `proc` is the procfs of this process's PID namespace.
    pub(super) fn begin(proc: BorrowedFd<'a>) -> Result<Self> {
        let own = children(proc)?;
        rustix::process::set_child_subreaper(Some(rustix::process::getpid())).context(|| "take orphans")?;
        Ok(Adopted { proc, own })
    }

    /// Kills all that have come, and what comes then.
    pub(super) fn end(&self) -> Result<()> {
        loop {
            let strangers: Vec<i32> =
                children(self.proc)?.into_iter().filter(|pid| !self.own.contains(pid)).collect();
            if strangers.is_empty() {
                return Ok(());
            }
            strangers.into_iter().try_for_each(|pid| open(pid).map(|child| child.end()))?;
        }
    }
}

/// The children of this process, which has one thread.
fn children(proc: BorrowedFd<'_>) -> Result<Vec<i32>> {
    process::children(proc, "thread-self").context(|| "look at the children of this process")
}

/// A child of this process, by its number: it is nobody else's before this process has waited for it.
pub(super) fn open(pid: i32) -> Result<Child> {
    let pid = Pid::from_raw(pid).ok_or_else(|| err!("a process has no number"))?;
    let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).context(|| "open a pidfd")?;
    Ok(Child { pid, pidfd })
}
