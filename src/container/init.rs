//! Init: what happens between clone and exec, in the process that becomes the container's program.

use super::plan::{Plan, ProcessPlan, Sysctl};
use super::sync::{FromInit, Link};
use super::{account, devices, mounts, refused};
use crate::hooks::{self, Stage};
use rt_sys::error::{Context, Error, Result};
use rt_sys::mount as sys_mount;
use rt_sys::mount::{Attr, Follow, Propagation, PropagationType, Recursive};
use rt_sys::ns::{self, IdMaps, MountNamespaceId, Namespace, Namespaces, Setgroups};
use rt_sys::rootfs::{Image, MountPoint, Rootfs, Symlink};
use rt_sys::{bail, caps, err, fd, net, process, tty};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, UnmountFlags};
use rustix::process::{Gid, Signal, Uid};
use std::convert::Infallible;
use std::path::{Path, PathBuf};

/// What init has beside the plan.
pub(super) struct Init<'a> {
    /// What to do.
    pub plan: &'a Plan,
    /// The host's procfs.
    pub proc: BorrowedFd<'a>,
    /// The container's state directory, for notes about what is made in the image.
    pub state: BorrowedFd<'a>,
    /// Copies of what is bound that the runtime had to make, by the mount's place in the plan.
    pub opened: &'a [Option<OwnedFd>],
    /// Namespaces that init joins itself.
    pub joins: &'a [(Namespace, OwnedFd)],
    /// Namespaces that init makes itself, after joining.
    pub unshare: Namespaces,
    /// The runtime's process: init ends with it.
    pub runtime: Option<BorrowedFd<'a>>,
    /// To the runtime, where it has something to do or to hear.
    pub link: Option<&'a Link>,
    /// The socket that gets the terminal's master side.
    pub console: Option<BorrowedFd<'a>>,
    /// Init waits on this before it goes on to the program.
    pub fifo: Option<BorrowedFd<'a>>,
    /// Init outlives the runtime.
    pub detach: bool,
    /// The process has called [`hide`].
    pub hidden: bool,
    /// Makes the container known, where there is no runtime to do it.
    pub publish: &'a dyn Fn(&process::Stat, Option<MountNamespaceId>) -> Result<()>,
    /// The container's state as hooks get it, for a status and a pid.
    pub state_json: &'a dyn Fn(&str, i32) -> Vec<u8>,
}

impl Init<'_> {
    /// Does everything and becomes the program; returns only the error.
    pub(super) fn run(&self) -> Error {
        match self.enter_namespaces().and_then(|()| self.set_up()) {
            Ok(never) => match never {},
            Err(e) => e,
        }
    }

    /// Joins and makes the namespaces that clone did not, and gets ids.
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
                maps.write(self.proc, "self", Setgroups::Deny).map_err(refused::maps)?;
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

    /// A new time namespace takes offsets only until the first process is in it.
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
        // A container with pids of its own must not share a process group with the host: kill(0) would reach
        // there. In place the program stays where any program started here would be.
        if self.runtime.is_some() {
            let _ = rustix::process::setsid();
        }
        let callers = rustix::process::umask(Mode::empty());
        let mut rootfs = self.attach_root()?;
        let joins_user = plan.join.iter().any(|(kind, _)| *kind == Namespace::User);
        let sources = if joins_user || (plan.maps.is_some() && !plan.own_maps) {
            // The caller may read what the container's root may not.
            let sources = mounts::open_sources(self)?;
            self.become_container_root()?;
            sources
        } else {
            Vec::new()
        };
        mounts::mount_all(&mut rootfs, self, sources).map_err(|e| self.closed_root(&rootfs, e))?;
        if let Some(account) = &plan.account {
            account::show(&mut rootfs, self, account)?;
        }
        devices::make(&mut rootfs, plan)?;
        let pty = match plan.process.terminal {
            true => Some(devices::make_console(&mut rootfs, plan.process.console_size)?),
            false => None,
        };
        if plan.process.cwd != Path::new("/") {
            rootfs
                .resolve_or_make(&plan.process.cwd, MountPoint::Directory, Symlink::Follow)
                .context(|| format!("cwd {:?}", plan.process.cwd.display().to_string()))?;
        }
        let pid = self.run_early_hooks(callers)?;
        self.set_kernel()?;
        rootfs.find_kernel_fs()?;
        mounts::mask(&rootfs, &plan.masked)?;
        mounts::make_readonly(&rootfs, &plan.readonly)?;
        rootfs.finish()?;
        rootfs.release_locks();
        self.pivot(&rootfs)?;
        plan.process.close_others()?;
        if let Some(pty) = pty {
            let console = self.console.ok_or_else(|| err!("no socket for the terminal"))?;
            hand_over(pty, console, !self.detach, plan.process.uid)?;
        }
        if !self.hidden {
            plan.process.set_by_proc(self.proc)?;
        }
        let own = process::stat(self.proc, "self").context(|| "look at the container's init")?;
        let mount_id = self.mount_id()?;
        if self.fifo.is_some() {
            self.close_hosts(rootfs)?;
        }
        let on_terminal = self.runtime.is_none() && own.terminal;
        let prepared = plan.process.prepare(on_terminal, |listener| {
            self.tell(&FromInit::Listener(listener.as_raw_fd()))?;
            self.wait()
        })?;
        end_with(self.runtime)?;
        // The container is known before its program runs.
        if self.link.is_some() {
            self.tell(&FromInit::Ready(mount_id))?;
            self.wait()?;
        } else {
            (self.publish)(&own, mount_id)?;
        }
        if self.detach {
            rustix::process::set_parent_process_death_signal(None)?;
            self.tell(&FromInit::Detached)?;
        }
        let hooks = plan.hooks.start_container();
        let state = match hooks {
            Some(hooks) if !hooks.is_empty() => (self.state_json)("created", pid),
            _ => Vec::new(),
        };
        if let Some(fifo) = self.fifo {
            fd::close_each(&self.last_hosts());
            // No descriptor that is closed may have its owner run: there is no way back from here.
            let hooks = || plan.process.run_hooks(&prepared, hooks, &state);
            end_started(&match wait_for_start(fifo).and_then(|()| hooks()) {
                Ok(()) => plan.process.exec(&prepared, own.ignored),
                Err(e) => e,
            });
        }
        plan.process.run_hooks(&prepared, hooks, &state)?;
        Err(plan.process.exec(&prepared, own.ignored))
    }

    /// Closes what this process has of the host, but for what it needs until it waits for start: whoever enters the
    /// container then must find none of it in /proc/PID/fd. It is done before the container's seccomp filter is
    /// loaded, which need not know close_range(2).
    fn close_hosts(&self, rootfs: Rootfs<'_>) -> Result<()> {
        std::mem::forget(rootfs);
        let mut keep = self.last_hosts();
        keep.extend(self.fifo.map(|fifo| fifo.as_raw_fd()));
        fd::close_all_but(3 + self.plan.process.preserve_fds, &keep)
    }

    /// The descriptors of the host that are needed longest.
    fn last_hosts(&self) -> Vec<RawFd> {
        let link = self.link.map(|link| link.as_raw_fd());
        let runtime = self.runtime.map(|runtime| runtime.as_raw_fd());
        [link, runtime, rt_sys::log::descriptor()].into_iter().flatten().collect()
    }

    /// The id of the container's mount namespace, where its processes are to be found by it.
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

    /// Mounts the image where it is, in this mount namespace only.
    fn attach_root(&self) -> Result<Rootfs<'_>> {
        let plan = self.plan;
        let context = || format!("mount rootfs {}", plan.rootfs.display());
        if self.stays_shared() {
            make_parent_private(&plan.rootfs)?;
        } else if !plan.makes(Namespace::User) {
            // In a new user namespace the kernel has made every shared mount a slave already.
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let root = fs::open("/", flags, Mode::empty())?;
            sys_mount::set_attr(&root, Recursive::Yes, Attr::SLAVE)
                .context(|| "change the propagation of /")?;
        }
        // The copy is a slave, as in runc: what the host mounts below the image later is seen.
        let tree = sys_mount::clone_path(&plan.rootfs, Recursive::Yes, Follow::Links).context(context)?;
        if !plan.may_mknod {
            // Without root no device of the image is the container's: those it has are bound over it.
            let nodev = Attr::setting(sys_mount::ATTR_NODEV);
            sys_mount::set_attr(&tree, Recursive::No, nodev).context(context)?;
        }
        sys_mount::attach_to(&tree, &plan.rootfs).context(context)?;
        let image = Image { path: &plan.rootfs, readonly: plan.readonly_root };
        Ok(Rootfs::new(tree, image, Some(self.state)))
    }

    /// The first mount fails where the image may not be entered at all: then that is what is wrong.
    #[cold]
    fn closed_root(&self, rootfs: &Rootfs, e: Error) -> Error {
        if e.is(libc::EACCES) && !process::may_access(rootfs.as_fd(), libc::X_OK) {
            return Error::from_errno(libc::EACCES).context(format!("rootfs {}", self.plan.rootfs.display()));
        }
        e
    }

    /// True where mounts made in the container are to reach the host: only root may ask for that.
    fn stays_shared(&self) -> bool {
        matches!(self.plan.propagation, Some(Propagation { kind: PropagationType::Shared, .. }))
            && !self.plan.makes(Namespace::User)
    }

    /// With several ids mapped, what init makes belongs to the container's root.
    fn become_container_root(&self) -> Result<()> {
        let Some(maps) = &self.plan.maps else {
            // Of a joined namespace the maps are not known: without a root in it there is nothing to become.
            let _ = rustix::thread::set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT);
            let _ = rustix::thread::set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT);
            return Ok(());
        };
        let pick = |list, other| if IdMaps::has(list, 0) { 0 } else { other };
        let gid = Gid::from_raw(pick(&maps.gid, self.plan.process.gid));
        let uid = Uid::from_raw(pick(&maps.uid, self.plan.process.uid));
        rustix::thread::set_keep_capabilities(true)?;
        rustix::thread::set_thread_res_gid(gid, gid, gid).context(|| "become the container's root group")?;
        rustix::thread::set_thread_res_uid(uid, uid, uid).context(|| "become the container's root")?;
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
                &(self.state_json)("creating", pid),
                &self.plan.bundle,
            )?;
            rustix::process::umask(ours);
        }
        Ok(pid)
    }

    /// What belongs to namespaces rather than to the process.
    fn set_kernel(&self) -> Result<()> {
        let plan = self.plan;
        if !plan.no_new_keyring {
            match process::new_session_keyring(c"_ses") {
                // Kernels without keyrings, quotas, and seccomp around the caller.
                Err(e) if [libc::ENOSYS, libc::EDQUOT, libc::EPERM].iter().any(|n| e.is(*n)) => {}
                result => result.context(|| "make a session keyring")?,
            }
        }
        if let Some(name) = &plan.hostname {
            rustix::system::sethostname(name.as_bytes()).context(|| "set the host name")?;
        }
        if let Some(name) = &plan.domainname {
            rustix::system::setdomainname(name.as_bytes()).context(|| "set the domain name")?;
        }
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

    /// Pivots and detaches the old root. False where that is impossible; nothing has changed then.
    fn change_root(&self) -> Result<bool> {
        let old = match self.stays_shared() {
            true => Some(fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?),
            false => None,
        };
        if !pivot_root()? {
            return Ok(false);
        }
        if let Some(old) = old {
            // What is detached here must not be detached on the host.
            sys_mount::set_attr(&old, Recursive::Yes, Attr::SLAVE)
                .context(|| "change the propagation of the old root")?;
        }
        rustix::mount::unmount(".", UnmountFlags::DETACH).context(|| "detach the old root")?;
        Ok(true)
    }

    /// Mounts the image over the host's root, which stays below. The kernel lets whoever makes a user namespace mount
    /// what its mount namespace has in full: so the host's procfs and sysfs must go, whose files are not masked.
    fn move_root(&self, rootfs: &Rootfs<'_>) -> Result<()> {
        let image = fd::path_of(rootfs.as_fd())?;
        let hosts = sys_mount::table()?.into_iter().filter(|mounted| {
            matches!(mounted.fstype.as_slice(), b"proc" | b"sysfs")
                && mounted.root == Path::new("/")
                && !mounted.point.starts_with(&image)
        });
        for mounted in hosts {
            let context = || format!("hide the host's {}", mounted.point.display());
            match self.hide_hosts(&mounted.point) {
                // It was below another.
                Err(e) if e.is(libc::ENOENT) => {}
                result => result.context(context)?,
            }
        }
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        rustix::mount::move_mount(rootfs.as_fd(), "", fs::CWD, "/", flags).context(|| "move the root")?;
        rustix::process::chroot(".").context(|| "chroot")
    }

    /// Unmounts what the host has at `point`, in this namespace, or covers it where the kernel has locked it.
    fn hide_hosts(&self, point: &Path) -> Result<()> {
        if self.stays_shared() {
            let at = fs::open(point, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
            sys_mount::set_attr(at, Recursive::Yes, Attr::SLAVE)?;
        }
        match rustix::mount::unmount(point, UnmountFlags::DETACH) {
            Err(Errno::INVAL | Errno::PERM) => {
                let tmpfs = sys_mount::new_fs("tmpfs", "tmpfs", &[], sys_mount::ATTR_RDONLY)?;
                sys_mount::attach_to(&tmpfs, point)
            }
            result => Ok(result?),
        }
    }

    /// Makes the image the root and lets go of the host's.
    fn pivot(&self, rootfs: &Rootfs<'_>) -> Result<()> {
        rustix::process::fchdir(rootfs.as_fd())?;
        if self.plan.no_pivot || !self.change_root()? {
            self.move_root(rootfs)?;
        }
        if let Some(Propagation { kind, recursive }) = self.plan.propagation {
            sys_mount::set_attr(rootfs.as_fd(), recursive, Attr::propagating(kind))
                .context(|| "set rootfsPropagation")?;
        }
        Ok(())
    }
}

/// pivot_root(2), which the kernel's first root file system does not allow: false where that is the host's, as on a
/// node without a disk that has stayed in its initramfs.
fn pivot_root() -> Result<bool> {
    // The old root ends up on top of the new one, at the same place.
    match rustix::process::pivot_root(".", ".") {
        Ok(()) => Ok(true),
        Err(Errno::INVAL) if is_first_root()? => Ok(false),
        Err(e) => Err(e).context(|| "pivot_root"),
    }
}

/// True where nothing is below this process's root, as mountinfo shows it.
fn is_first_root() -> Result<bool> {
    let table = sys_mount::table()?;
    Ok(table
        .iter()
        .rfind(|mounted| mounted.point == Path::new("/"))
        .is_some_and(|root| root.fstype == b"rootfs"))
}

/// Keeps the processes of namespaces that this one is about to join from looking into it through /proc or
/// ptrace. What needs its own /proc files is done before.
pub(super) fn hide(process: &ProcessPlan, proc: BorrowedFd<'_>) -> Result<()> {
    process.set_by_proc(proc)?;
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
        .context(|| "become undumpable")
}

/// Undoes [`hide`], for a process that has joined nobody.
pub(super) fn show() -> Result<()> {
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable)
        .context(|| "become dumpable")
}

/// Asks the kernel to end this process with the runtime, which may have died already.
pub(super) fn end_with(runtime: Option<BorrowedFd<'_>>) -> Result<()> {
    let Some(runtime) = runtime else { return Ok(()) };
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let mut fds = [PollFd::from_borrowed_fd(runtime, PollFlags::IN)];
    if rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? > 0 {
        bail!("the runtime has died");
    }
    Ok(())
}

/// Sends a terminal's master side to `console` and takes the slave as controlling terminal and standard
/// streams. `relayed`: the runtime is who gets it, and shows it on its own standard streams, which this process still has.
pub(super) fn hand_over(pty: tty::Pty, console: BorrowedFd<'_>, relayed: bool, uid: u32) -> Result<()> {
    // What reads a pipe is not to find the carriage returns that only a terminal needs.
    if relayed && !tty::is_terminal(rustix::stdio::stdout()) {
        tty::keep_line_ends(&pty.slave)?;
    }
    tty::send_fds(console, b"/dev/ptmx", &[pty.master.as_fd()]).context(|| "send the terminal")?;
    // The receiver may wait for the end of the connection, which this process keeps open until its exec.
    let _ = rustix::net::shutdown(console, rustix::net::Shutdown::Both);
    // Of one id there is nothing to change, and nobody to forbid it.
    let _ = fs::fchown(&pty.slave, Some(Uid::from_raw(uid)), None);
    tty::set_controlling(&pty.slave)?;
    tty::become_stdio(&pty.slave)
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

/// Ends a container that was started and cannot run. Nobody waits for an answer any more, so it goes where the
/// program's own errors would have gone.
fn end_started(error: &Error) -> ! {
    let _ = rustix::io::write(rustix::stdio::stderr(), format!("rt: {error}\n").as_bytes());
    process::exit_now(1)
}

/// pivot_root(2) wants the new root's parent mount not to be shared.
fn make_parent_private(rootfs: &Path) -> Result<()> {
    let rootfs = rootfs.canonicalize()?;
    let point = sys_mount::table()?
        .into_iter()
        .map(|mounted| mounted.point)
        .filter(|point| rootfs.starts_with(point))
        .max_by_key(|point| point.as_os_str().len())
        .unwrap_or_else(|| PathBuf::from("/"));
    let fd = fs::open(&point, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    sys_mount::set_attr(fd, Recursive::No, Attr::propagating(PropagationType::Private))
        .context(|| format!("make the mount {} private", point.display()))
}
