//! Init: what happens between clone and exec, in the process that becomes the container's program.
//!
//! The order of the steps is forced at many places, because each step takes away what an earlier one needs: ids and
//! capabilities, the host's /proc, the way back to the host. The comments say so where it is.

use super::handover::Streams;
use super::hidden_state::HiddenState;
use super::holder::{self, Holder};
use super::lost::Watch;
use super::plan::{Plan, ProcessPlan, Sysctl};
use super::program::Prepared;
use super::sync::{FromInit, Link};
use super::trace::{self, Phase};
use super::{
    Checkpoint, Held, account, devices, entrypoint, layer, mounts, package_managers, pid1, refused, root,
};
use crate::hooks::{self, Stage};
use crate::store::ContainerDir;
use rt_spec::Spec;
use rt_spec::state::Status;
use rt_sys::error::{Context, Error, Result};
use rt_sys::ns::{self, IdMaps, MountNamespaceId, Namespace, Namespaces, Setgroups};
use rt_sys::rootfs::{MountPoint, Rootfs, Symlink};
use rt_sys::{bail, caps, err, fd, net, process, signal, tty};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Gid, Signal, Uid};
use std::convert::Infallible;
use std::path::Path;
use std::time::Duration;

/// What init has beside the plan.
pub(super) struct Init<'a> {
    /// The container's id, where the tasks of a step or the ranks of a run share it.
    pub shared: Option<&'a str>,
    /// What to do.
    pub plan: &'a Plan,
    /// The host's procfs.
    pub proc: BorrowedFd<'a>,
    /// The container's state directory, for notes about what is made in the image.
    pub state: BorrowedFd<'a>,
    /// Where state is looked for when nobody names a place, for [`HiddenState`].
    pub state_places: &'a [std::path::PathBuf],
    /// Detached copies that the runtime had to make of what is bound, by the mount's place in the plan.
    pub copies: &'a [Option<OwnedFd>],
    /// Namespaces that init joins itself.
    pub joins: &'a [(Namespace, OwnedFd)],
    /// Namespaces that init makes itself, after joining.
    pub unshare: Namespaces,
    /// The runtime's process: init ends with it.
    pub runtime: Option<BorrowedFd<'a>>,
    /// The program stays in the caller's session and process group, although the runtime lives beside it.
    pub in_session: bool,
    /// To the runtime, which says what the program has written to a layer in memory.
    pub watch: Option<&'a Watch>,
    /// Where the program comes from an image, and the container's config.
    pub restored: Option<(&'a dyn Checkpoint, &'a Spec)>,
    /// To the runtime, where it has something to do or to hear.
    pub link: Option<&'a Link>,
    /// The socket that gets the terminal's master side.
    pub console: Option<BorrowedFd<'a>>,
    /// Takes the place of standard streams.
    pub streams: Option<&'a Streams>,
    /// Init waits on this before it goes on to the program.
    pub fifo: Option<BorrowedFd<'a>>,
    /// Init outlives the runtime.
    pub detach: bool,
    /// The process has called [`hide`].
    pub hidden: bool,
    /// Makes the container known, where there is no runtime to do it.
    pub publish: &'a dyn Fn(&process::Stat, Option<MountNamespaceId>) -> Result<()>,
    /// Holds the container for ranks that are still to come, and where that is made known.
    pub holder: Option<(&'a Holder, &'a ContainerDir)>,
    /// The container's state as hooks get it, for a status and a pid.
    pub state_json: &'a dyn Fn(Status, i32) -> Result<Vec<u8>>,
}

impl Init<'_> {
    /// Does everything and becomes the program; returns only the error.
    pub(super) fn run(&self) -> Error {
        match self.enter_namespaces().and_then(|()| self.set_up()) {
            Ok(never) => match never {},
            Err(e) => e,
        }
    }

    /// Joins and makes the namespaces that clone(2) did not make, and gets ids.
    ///
    /// Namespaces are joined before any is made: those that are made then belong to the user namespace that was joined.
    /// The user namespace comes first among the joined ones (the plan has sorted them), because setns(2) to the others
    /// takes the capabilities that it gives.
    pub(super) fn enter_namespaces(&self) -> Result<()> {
        end_with(self.runtime)?;
        for (kind, namespace) in self.joins {
            ns::enter(namespace, *kind)?;
        }
        if !self.unshare.is_empty() {
            ns::unshare(self.unshare).map_err(|e| refused::namespaces(e, self.unshare))?;
        }
        if let Some(maps) = &self.plan.maps {
            if self.plan.own_maps {
                maps.write(self.proc, "self", Setgroups::Deny).map_err(|e| refused::maps(e, maps))?;
            } else {
                self.tell(&FromInit::WantMaps)?;
                self.wait()?;
            }
        }
        if self.plan.makes(Namespace::Time) {
            self.enter_time_namespace()?;
        }
        Ok(())
    }

    /// Makes a time namespace and enters it. unshare(2) makes it for children only, and the kernel takes offsets only
    /// until the first process is in it (time_namespaces(7)); so the offsets come between, and setns(2) after them.
    fn enter_time_namespace(&self) -> Result<()> {
        ns::unshare(Namespace::Time).map_err(|e| refused::namespaces(e, Namespace::Time))?;
        if !self.plan.time_offsets.is_empty() {
            fd::write_proc(self.proc, "self/timens_offsets", self.plan.time_offsets.as_bytes())
                .context(|| "set timeOffsets")?;
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let namespace = fs::openat(self.proc, "self/ns/time_for_children", flags, Mode::empty())?;
        ns::join(namespace, Namespace::Time).context(|| "enter the time namespace")
    }

    /// Makes the container's root and becomes the program.
    pub(super) fn set_up(&self) -> Result<Infallible> {
        let plan = self.plan;
        trace::end(Phase::Namespaces);
        // A container with pids of its own must not share a process group with the host: kill(2) of pid 0 signals the
        // caller's whole group, across PID namespaces. In place the program stays in the caller's session, as any
        // program that a shell starts. setsid(2) fails only for a process that leads a group already.
        if self.runtime.is_some() && !self.in_session {
            let _ = rustix::process::setsid();
        }
        // Before anything is mounted: the way to the host's /proc ends with the pivot.
        let own_exe = if plan.init { Some(super::protect::executable(self.proc)?) } else { None };
        // With umask 0 files and directories get exactly the modes that the code names. Hooks and the program get the
        // caller's umask again.
        let callers_umask = rustix::process::umask(Mode::empty());
        let mut rootfs = root::attach(plan, self.state)?;
        let layer = layer::open(plan)?;
        let joins_user = plan.join.iter().any(|(kind, _)| *kind == Namespace::User);
        let sources = if joins_user || (plan.maps.is_some() && !plan.own_maps) {
            // The caller may read what the container's root may not, so the sources are opened first. What init makes
            // from here on belongs to the container's root, as its programs expect.
            let sources = mounts::open_sources(plan, self.copies)?;
            self.become_container_root()?;
            sources
        } else {
            Vec::new()
        };
        let in_memory = match layer {
            Some(layer) => layer.put_over(plan, &mut rootfs)?,
            None => None,
        };
        let hidden = HiddenState::find(self.proc, self.state, self.state_places, plan)?;
        mounts::mount_all(&mut rootfs, plan, self.copies, sources, &hidden)
            .map_err(|e| self.closed_root(&rootfs, e))?;
        if let Some(account) = &plan.account {
            account::show(&mut rootfs, &plan.mounts, account)?;
        }
        if plan.emulate_root {
            package_managers::tell(&mut rootfs)?;
        }
        devices::make(&mut rootfs, plan)?;
        let pty = match plan.process.terminal {
            true => Some(devices::make_console(&mut rootfs, self.proc, plan.process.console_size)?),
            false => None,
        };
        if plan.process.cwd != Path::new("/") {
            if plan.asked_cwd {
                tell_of_cwd(&rootfs, plan);
            }
            rootfs
                .resolve_or_make(&plan.process.cwd, MountPoint::Directory, Symlink::Follow)
                .context(|| format!("cwd {:?}", plan.process.cwd.display().to_string()))?;
        }
        trace::end(Phase::Mounts);
        // Hooks see the container's mounts and the host's files, and can still mount: after the mounts, before masks
        // and pivot_root.
        let pid = self.run_early_hooks(callers_umask)?;
        trace::end(Phase::Hooks);
        self.set_kernel()?;
        // Masks come after the hooks, which may mount below /proc and /sys too, and before pivot_root, because they are
        // binds of the host's /dev/null.
        rootfs.find_kernel_fs()?;
        mounts::mask(&rootfs, &plan.masked)?;
        mounts::make_readonly(&rootfs, &plan.readonly)?;
        // Read-only at the end: until now mount points were made.
        rootfs.finish()?;
        if let (Some(watch), Some(tmpfs)) = (self.watch, in_memory) {
            watch.begin(&tmpfs)?;
        }
        rootfs.release_locks();
        root::pivot(plan, &rootfs)?;
        trace::end(Phase::Pivot);
        if let Some(streams) = self.streams {
            streams.take_over()?;
        }
        // Descriptors of the host must not reach the program: one of a directory leads out of the new root
        // (CVE-2016-9962, CVE-2024-21626).
        plan.process.close_others()?;
        if let Some(pty) = pty {
            let console = self.console.ok_or_else(|| err!("no socket for the terminal"))?;
            let shown = if self.detach { Shown::ByCaller } else { Shown::ByRuntime };
            hand_over(pty, console, shown, plan.process.uid)?;
        }
        // The OOM score and the labels of AppArmor and SELinux are written through the host's procfs, because a /proc of
        // the image's could be a fake. A process that joins namespaces of others has written them before that, in `hide`.
        if !self.hidden {
            plan.process.set_by_proc(self.proc)?;
        }
        let own = process::stat(self.proc, "self").context(|| "look at the container's init")?;
        let mount_id = self.mount_id()?;
        let exported = match plan.entrypoint {
            Some(_) => Some(entrypoint::make_file(self.state)?),
            None => None,
        };
        // Whatever runs in the container beside this process must find nothing of the host in it: neither descriptors, by
        // /proc/PID/fd, nor the runtime's memory and environment.
        if self.fifo.is_some() || plan.has_children_of_init() || self.is_beside_criu() {
            self.close_hosts(rootfs, own_exe.as_ref(), exported.as_ref())?;
        } else if plan.late.is_some() {
            // It has the /proc that is unmounted when the program is there.
            drop(rootfs);
        }
        // Before this process loses the capabilities that criu needs, and as the first one of the PID namespace.
        let program = match self.restored {
            Some((checkpoint, config)) if checkpoint.makes_first() => {
                return self.restore_first(checkpoint, config);
            }
            Some((checkpoint, config)) => {
                // criu follows links of the container's, by which it is not to come into this process.
                undumpable()?;
                let most = plan.process.limits()?;
                // criu holds them by ptrace(2), and its own end would let them go. All that this process can reach are those of its
                // PID namespace.
                let mut held = |held: Held| {
                    let checked = checkpoint.check(config, &most, &held.by);
                    checked.inspect_err(|_| drop(signal::send(-1, libc::SIGKILL)))
                };
                let program = checkpoint.restore(config, &most, self.runtime, &mut held)?;
                checkpoint.forget_stops()?;
                Some((checkpoint, program))
            }
            None => None,
        };
        let on_terminal = (self.runtime.is_none() || self.in_session) && own.terminal;
        let mut prepared = plan.process.prepare(on_terminal, |listener| {
            self.tell(&FromInit::Listener(listener.as_raw_fd()))?;
            self.wait()
        })?;
        if self.fifo.is_some() {
            // Whoever joins a container that is only created looks at this process.
            process::forget_environment();
        }
        // Once more: the kernel clears the death signal when ids change (prctl(2), PR_SET_PDEATHSIG).
        end_with(self.runtime)?;
        // The container is known before its program runs, so that nothing runs that `delete` cannot find.
        if self.link.is_some() {
            if self.hidden || program.is_some() {
                self.tell(&FromInit::Is(own.start_time, own.ignored))?;
            }
            self.tell(&FromInit::Ready(mount_id))?;
            self.wait()?;
        } else {
            (self.publish)(&own, mount_id)?;
        }
        trace::end(Phase::Settings);
        if self.detach {
            rustix::process::set_parent_process_death_signal(None)?;
            self.tell(&FromInit::Detached)?;
        }
        let hooks = plan.hooks.start_container();
        let state = match hooks {
            Some(hooks) if !hooks.is_empty() => (self.state_json)(Status::Created, pid)?,
            _ => Vec::new(),
        };
        if let Some(fifo) = self.fifo {
            fd::close_each(&self.last_hosts());
            // `close_each` has closed descriptors that Rust values still own. To return would run their destructors, which
            // would close whatever has these numbers by then. So this branch becomes the program, or ends.
            let mut run = || self.run_before_program(&mut prepared, &state, exported.as_ref());
            end_started(&match wait_for_start(fifo).and_then(|()| run()) {
                Ok(()) => self.become_program(own_exe, &mut prepared, own.ignored),
                Err(e) => e,
            });
        }
        if let (Some((checkpoint, program)), Some(exe)) = (program, &own_exe) {
            return Err(pid1::become_init_of(checkpoint, program, exe));
        }
        self.run_before_program(&mut prepared, &state, exported.as_ref())?;
        if let Some((holder, dir)) = self.holder {
            let note = |pid, identity| dir.note_holder(pid, identity);
            if let Err(e) = holder.start(&plan.process, &prepared, own.ignored, note) {
                holder::tell(&e);
            }
        }
        if self.runtime.is_none() {
            trace::finish(Some(own.pid), None);
        }
        Err(self.become_program(own_exe, &mut prepared, own.ignored))
    }

    /// Runs in the container what comes before its program: the hooks of startContainer, and the image's entrypoint, which
    /// writes what it exports to `exported`.
    fn run_before_program(
        &self,
        prepared: &mut Prepared,
        state: &[u8],
        exported: Option<&OwnedFd>,
    ) -> Result<()> {
        if !self.plan.has_children_of_init() {
            return Ok(());
        }
        // The container's processes must not look into this memory, which execve(2) takes away.
        undumpable()?;
        let process = &self.plan.process;
        process.run_hooks(prepared, self.plan.hooks.start_container(), state)?;
        match (&self.plan.entrypoint, exported) {
            (Some(entrypoint), Some(exported)) => entrypoint.run(process, prepared, exported),
            _ => Ok(()),
        }
    }

    /// Becomes the program, or its init; returns only the error.
    fn become_program(&self, own_exe: Option<OwnedFd>, prepared: &mut Prepared, ignored: u64) -> Error {
        match own_exe {
            Some(exe) => pid1::become_init(&self.plan.process, &exe, prepared, ignored),
            None => self.plan.process.exec(prepared, ignored),
        }
    }

    /// Closes the descriptors of the host, but for those that this process needs until it waits for start, or becomes the
    /// program: whoever is in the container meanwhile must find none of them in /proc/PID/fd. It is done before the
    /// container's seccomp filter is loaded, since the filter may not allow close_range(2).
    fn close_hosts(
        &self,
        rootfs: Rootfs<'_>,
        own_exe: Option<&OwnedFd>,
        exported: Option<&OwnedFd>,
    ) -> Result<()> {
        // The link's descriptors are closed below, so its destructor must not close them again.
        std::mem::forget(rootfs);
        let mut keep = self.last_hosts();
        keep.extend(self.fifo.map(|fifo| fifo.as_raw_fd()));
        keep.extend(own_exe.into_iter().chain(exported).map(AsRawFd::as_raw_fd));
        keep.extend(self.restored.iter().flat_map(|(checkpoint, _)| checkpoint.descriptors()));
        fd::close_all_but(3 + self.plan.process.preserve_fds, &keep)
    }

    /// True where criu restores the program below this process, which stays as its init.
    fn is_beside_criu(&self) -> bool {
        self.restored.is_some_and(|(checkpoint, _)| !checkpoint.makes_first())
    }

    /// The descriptors of the host that are needed longest.
    fn last_hosts(&self) -> Vec<RawFd> {
        let link = self.link.map(|link| link.as_raw_fd());
        let runtime = self.runtime.map(|runtime| runtime.as_raw_fd());
        [link, runtime, rt_sys::log::descriptor()].into_iter().flatten().collect()
    }

    /// The id of the container's mount namespace, by which its processes are found where it has no PID namespace of its
    /// own. `None` for all other containers.
    pub(super) fn mount_id(&self) -> Result<Option<MountNamespaceId>> {
        let plan = self.plan;
        let wanted = plan.makes(Namespace::Mount) && !plan.makes(Namespace::Pid);
        wanted.then(|| ns::mount_namespace_id(self.proc, "self")).transpose()
    }

    fn tell(&self, message: &FromInit) -> Result<()> {
        self.link.map_or(Ok(()), |link| link.tell(message))
    }

    fn wait(&self) -> Result<()> {
        self.link.map_or(Ok(()), |link| link.wait().map(|_| ()))
    }

    /// The error of mounting. Where the image may not be entered at all, the first mount fails with the same errno, and
    /// the text should name the image rather than that mount.
    #[cold]
    fn closed_root(&self, rootfs: &Rootfs, e: Error) -> Error {
        if e.is(libc::EACCES) && process::may_access(rootfs.as_fd(), libc::X_OK).is_ok_and(|may| !may) {
            return Error::from_errno(libc::EACCES).context(format!("rootfs {}", self.plan.rootfs.display()));
        }
        e
    }

    /// Becomes the container's root, with several ids mapped or in a joined user namespace: what init makes belongs to
    /// it, and files are made by ids that exist in the namespace, since the kernel refuses others (EOVERFLOW).
    fn become_container_root(&self) -> Result<()> {
        let Some(maps) = &self.plan.maps else {
            // The maps of a joined namespace are not known. If no root exists in it, the ids stay as they are.
            let _ = rustix::thread::set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT);
            let _ = rustix::thread::set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT);
            return end_with(self.runtime);
        };
        let pick = |list, other| if IdMaps::has(list, 0) { 0 } else { other };
        let gid = Gid::from_raw(pick(&maps.gid, self.plan.process.gid));
        let uid = Uid::from_raw(pick(&maps.uid, self.plan.process.uid));
        // Without PR_SET_KEEPCAPS, a change from root to another uid takes all capabilities. The group comes first,
        // since after the change of the uid it may be refused.
        rustix::thread::set_keep_capabilities(true)?;
        rustix::thread::set_thread_res_gid(gid, gid, gid).context(|| "become the container's root group")?;
        rustix::thread::set_thread_res_uid(uid, uid, uid).context(|| "become the container's root")?;
        // The kernel has cleared the death signal (PR_SET_PDEATHSIG(2const)), and all of the root is still to be made.
        end_with(self.runtime)?;
        caps::raise()
    }

    /// Lets the runtime run its hooks, then runs createContainer's, with the caller's umask. Returns this process's pid
    /// as the runtime sees it.
    fn run_early_hooks(&self, umask: Mode) -> Result<i32> {
        let Some(link) = self.link else { return Ok(0) };
        if !self.plan.needs_runtime() {
            return Ok(0);
        }
        link.tell(&FromInit::Mounted)?;
        let pid = link.wait()?.pid;
        let hooks = self.plan.hooks.create_container();
        if hooks.as_ref().is_some_and(|h| !h.is_empty()) {
            let ours = rustix::process::umask(umask);
            hooks::run_all(
                Stage::CreateContainer,
                hooks,
                &(self.state_json)(Status::Creating, pid)?,
                crate::container::hooks::place(&self.plan.bundle, self.plan.of_others),
            )?;
            rustix::process::umask(ours);
        }
        Ok(pid)
    }

    /// Sets what belongs to the namespaces of the container rather than to the process.
    fn set_kernel(&self) -> Result<()> {
        let plan = self.plan;
        if !plan.no_new_keyring {
            let has_own_user = plan.own_maps && plan.makes(Namespace::User);
            leave_session_keyring(self.shared.filter(|_| has_own_user))?;
        }
        if let Some(name) = &plan.hostname {
            rustix::system::sethostname(name.as_bytes()).context(|| "set the host name")?;
        }
        if let Some(name) = &plan.domainname {
            rustix::system::setdomainname(name.as_bytes()).context(|| "set the domain name")?;
        }
        // A new network namespace has a loopback device, and it is down.
        if plan.makes(Namespace::Network) {
            net::loopback_up()?;
        }
        for Sysctl { key, path, value } in &plan.sysctl {
            match fd::write_proc(self.proc, &format!("sys/{path}"), value.as_bytes()) {
                // podman asks for "0 0" always, also where one id is mapped that is not root's.
                Err(e) if e.is(libc::EINVAL) && key == "net.ipv4.ping_group_range" && !plan.may_mknod => {
                    log::debug!("sysctl {key}={value:?} is left out: no such groups inside");
                }
                result => result.context(|| format!("set sysctl {key} to {value:?}"))?,
            }
        }
        Ok(())
    }
}

/// Leaves the caller's session keyring, whose keys are none of the program's, for one of its own, or for that of the container `shared`.
///
/// The kernel counts keyrings, and a user may have 200 (kernel.keys.maxkeys): fewer than the tasks of a step on a node with 256
/// processors. In a user namespace of its own, with one id, all tasks of a container therefore share one, by a name that nobody outside
/// knows. Elsewhere another user could have made one of that name; and who joins the namespace of a container, as in a pod, would have
/// its keys.
pub(super) fn leave_session_keyring(shared: Option<&str>) -> Result<()> {
    let left = match shared {
        Some(id) => process::join_session_keyring(&format!("rt.{id}")),
        None => process::new_session_keyring(),
    };
    match left {
        // Where the kernel has no keyrings or a client's filter refuses the call, the program cannot read keys either.
        Err(e) if [libc::ENOSYS, libc::EPERM].iter().any(|n| e.is(*n)) => Ok(()),
        Err(e) if e.is(libc::EDQUOT) => Err(e
            .context("make a session keyring: the user's quota of keys is used up")
            .hint("kernel.keys.maxkeys is the quota; --no-new-keyring keeps the caller's keyring")),
        result => result.context(|| "make a session keyring"),
    }
}

/// Keeps the processes of namespaces that this one is about to join from looking into it, by /proc or ptrace(2): they
/// could take its descriptors of the host or write to its memory (CVE-2016-9962, CVE-2019-5736).
///
/// The files in /proc/self of an undumpable process belong to root (proc(5)), so what is written there comes first.
pub(super) fn hide(process: &ProcessPlan, proc: BorrowedFd<'_>) -> Result<()> {
    process.set_by_proc(proc)?;
    undumpable()
}

/// Keeps other processes from looking into the memory of this one.
pub(crate) fn undumpable() -> Result<()> {
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
        .context(|| "become undumpable")
}

/// Undoes [`hide`], for a process that has joined nobody.
pub(super) fn show() -> Result<()> {
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable)
        .context(|| "become dumpable")
}

/// Asks the kernel to end this process with the runtime.
///
/// The signal only comes for a death that is yet to happen. A look at the pidfd after the call finds a runtime that had
/// ended before it; the parent's pid would not show that, since it is 0 for a parent in another PID namespace.
pub(super) fn end_with(runtime: Option<BorrowedFd<'_>>) -> Result<()> {
    let Some(runtime) = runtime else { return Ok(()) };
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let mut fds = [PollFd::from_borrowed_fd(runtime, PollFlags::IN)];
    if process::poll(&mut fds, Some(Duration::ZERO))? > 0 {
        bail!("the runtime has died");
    }
    Ok(())
}

/// Who shows the terminal of a new process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    /// The runtime, on its own standard streams, which the new process still has.
    ByRuntime,
    /// Whoever listens on the console socket.
    ByCaller,
}

/// Sends a terminal's master side to `console`, and takes the slave as controlling terminal and standard streams.
pub(super) fn hand_over(pty: tty::Pty, console: BorrowedFd<'_>, shown: Shown, uid: u32) -> Result<()> {
    // Where the output goes to a pipe or a file, the carriage returns that only a terminal needs must not be in it.
    if shown == Shown::ByRuntime && !tty::is_terminal(rustix::stdio::stdout()) {
        tty::keep_line_ends(&pty.slave)?;
    }
    tty::send_fds(console, b"/dev/ptmx", &[pty.master.as_fd()]).context(|| "send the terminal")?;
    // The receiver may wait for the end of the connection, which this process keeps open until its exec.
    let _ = rustix::net::shutdown(console, rustix::net::Shutdown::Both);
    // The program must be able to open its terminal by name (/dev/pts/N) after it has become `uid`. Where one id is
    // mapped, the terminal belongs to that id already, and an error means nothing.
    let _ = fs::fchown(&pty.slave, Some(Uid::from_raw(uid)), None);
    tty::set_controlling(&pty.slave)?;
    tty::become_stdio(&pty.slave)
}

/// Tells the caller that the working directory he has asked for is made, where no program can write to it: he may have meant one
/// of the host's, or another name.
fn tell_of_cwd(rootfs: &Rootfs, plan: &Plan) {
    let cwd = &plan.process.cwd;
    let is_mounted = plan.mounts.iter().any(|mount| cwd.starts_with(&mount.destination));
    let is_missing = || matches!(rootfs.open(cwd, OFlags::PATH), Err(Errno::NOENT));
    if plan.readonly_root && plan.layer.is_none() && !is_mounted && is_missing() {
        let shown = cwd.display();
        rt_sys::log::tell(format_args!(
            "the working directory {shown} is in no image and no mount: it is empty and read-only (-v {shown} shows the host's)"
        ));
    }
}

/// Blocks until `start` writes.
fn wait_for_start(fifo: BorrowedFd<'_>) -> Result<()> {
    let mut byte = [0u8; 1];
    loop {
        match rustix::io::read(fifo, &mut byte) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e).context(|| "wait for start"),
        }
    }
}

/// Ends a container that was started and cannot run. `start` has returned and nobody waits for an answer any more, so the
/// error goes where the program's own would have gone.
fn end_started(error: &Error) -> ! {
    rt_sys::log::tell(error);
    process::exit_now(1)
}
