//! Processes: making them, waiting for them, replacing them, and their odd settings.

use super::check;
use super::ns::Namespaces;
use crate::bail;
use crate::error::{Context, Error, Result};
use rustix::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use rustix::process::{Pid, PidfdFlags, WaitStatus, pidfd_open};
use std::cell::UnsafeCell;
use std::cmp;
use std::ffi::{CStr, CString, OsStr};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};

/// A process that [`spawn`] made.
#[derive(Debug)]
pub struct Child {
    /// Its id in this pid namespace.
    pub pid: Pid,
    /// A descriptor that stands for it (pidfd_open(2)).
    pub pidfd: OwnedFd,
}

impl Child {
    /// Kills the process. One that has ended needs it no more.
    pub fn kill(&self) {
        let _ = super::signal::send_pidfd(&self.pidfd, libc::SIGKILL);
    }

    /// How long it has run on processors, without its children; `None` where the kernel does not say so.
    pub fn processor_time(&self) -> Option<std::time::Duration> {
        let (mut clock, mut time) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
        // SAFETY: both write to what is passed.
        let got = unsafe {
            libc::clock_getcpuclockid(self.pid.as_raw_nonzero().get(), &raw mut clock) == 0
                && libc::clock_gettime(clock, &raw mut time) == 0
        };
        got.then(|| std::time::Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32))
    }

    /// Kills the process and waits for its end.
    pub fn end(&self) {
        self.kill();
        let _ = wait(self.pid);
    }
}

/// In which memory a child runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// The child gets a copy, as with fork(2).
    Copied,
    /// The child runs in this process's memory, and this process sleeps until the child execs or exits, as
    /// with vfork(2). This saves the copy of the page tables and the page faults after it.
    Shared,
}

/// The stack of a child in this process's memory, and room for two pages, of which one is the guard.
const STACK: usize = 256 * 1024 + 2 * 64 * 1024;

/// Pages of the executable that cost nothing until they are touched.
struct Stack(UnsafeCell<MaybeUninit<[u128; STACK / 16]>>);

// SAFETY: [`STACK_TAKEN`] keeps it for one child at a time.
unsafe impl Sync for Stack {}

static CHILD_STACK: Stack = Stack(UnsafeCell::new(MaybeUninit::uninit()));
static STACK_TAKEN: AtomicBool = AtomicBool::new(false);

/// A stack for the child of a child, which finds [`CHILD_STACK`] taken by its parent.
struct SecondStack(*mut libc::c_void);

impl SecondStack {
    fn new() -> Result<Self> {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: new memory is asked for, wherever the kernel has room.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), STACK, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error().into());
        }
        Ok(SecondStack(base))
    }
}

impl Drop for SecondStack {
    fn drop(&mut self) {
        // SAFETY: it is what `new` has mapped, and the child that used it has left this memory.
        unsafe { libc::munmap(self.0, STACK) };
    }
}

/// Closes the lowest page of the stack at `base`: a child that needs more ends there, instead of writing over what
/// stands below. Every compiled function touches its frame page by page.
fn guard(base: usize) -> Result<()> {
    /// linux/mman.h, since Linux 6.13: no mapping is split, which takes a third of the time.
    const MADV_GUARD_INSTALL: libc::c_int = 102;
    let page = crate::start::page_size();
    let lowest = base.next_multiple_of(page) as *mut libc::c_void;
    // SAFETY: the page is inside the stack, whose room for two pages nothing else uses.
    let closed = unsafe {
        libc::madvise(lowest, page, MADV_GUARD_INSTALL) == 0
            || libc::mprotect(lowest, page, libc::PROT_NONE) == 0
    };
    if closed { Ok(()) } else { Err(std::io::Error::last_os_error().into()) }
}

/// Makes a child in new namespaces of these kinds, which runs `child`.
///
/// What `child` returns, if it does not exec, is the exit code. With [`Memory::Shared`] everything it writes
/// is seen here afterwards.
pub fn spawn<F: FnOnce() -> i32>(new: impl Into<Namespaces>, memory: Memory, child: F) -> Result<Child> {
    let new = new.into().bits();
    match memory {
        Memory::Copied => clone_copied(new | libc::SIGCHLD as u64, child),
        Memory::Shared => clone_shared(new, child),
    }
}

/// Makes a process in new namespaces of these kinds, in a copy of this one's memory, which is a child of this process's
/// parent (CLONE_PARENT): the parent can wait for it when this process has ended.
pub fn spawn_sibling<F: FnOnce() -> i32>(new: impl Into<Namespaces>, child: F) -> Result<Child> {
    // With CLONE_PARENT the kernel takes the signal at the end from this process's own clone.
    clone_copied(new.into().bits() | libc::CLONE_PARENT as u64, child)
}

/// Makes a child in new namespaces of these kinds, in this process's memory, that also has this process's descriptors (CLONE_FILES): what it opens is open
/// here too.
pub fn spawn_sharing_descriptors<F: FnOnce() -> i32>(new: impl Into<Namespaces>, child: F) -> Result<Child> {
    clone_shared(libc::CLONE_FILES as u64 | new.into().bits(), child)
}

/// The kernel's `struct clone_args` (clone3(2)), up to `set_tid_size`.
#[repr(C, align(8))]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
}

/// Makes a child with the id `pid` in the PID namespace of this process, in a copy of its memory (clone3(2), `set_tid`).
/// What `child` returns, if it does not exec, is the exit code.
///
/// # Errors
/// EEXIST where a process has this id, EPERM without CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN over the PID namespace.
pub fn spawn_as<F: FnOnce() -> i32>(pid: i32, child: F) -> Result<Child> {
    let mut pidfd: libc::c_int = -1;
    let args = CloneArgs {
        flags: libc::CLONE_PIDFD as u64,
        pidfd: (&raw mut pidfd) as u64,
        exit_signal: libc::SIGCHLD as u64,
        set_tid: (&raw const pid) as u64,
        set_tid_size: 1,
        ..CloneArgs::default()
    };
    // SAFETY: as in `clone_copied`; the kernel reads `args` and `pid` and writes `pidfd`, all of which live over the call.
    let made = check(unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<CloneArgs>()) })?;
    if made == 0 {
        exit_now(child());
    }
    // SAFETY: the kernel has just made this descriptor (close-on-exec) for us.
    Ok(Child { pid: as_pid(made as i32)?, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) } })
}

/// `flags` are those of clone(2), with the signal that the parent gets at the end.
fn clone_copied<F: FnOnce() -> i32>(flags: u64, child: F) -> Result<Child> {
    let mut pidfd: libc::c_int = -1;
    let flags = flags | libc::CLONE_PIDFD as u64;
    // Not clone3(2), because a container's hook may be started under a seccomp filter that does not know it.
    // SAFETY: without CLONE_VM the child has its own copy of memory and continues on its own copy of
    // this stack; the process has one thread, so no lock is held by another.
    let pid = check(unsafe { libc::syscall(libc::SYS_clone, flags, 0, &raw mut pidfd, 0, 0) })?;
    if pid == 0 {
        exit_now(child());
    }
    // SAFETY: the kernel has just made this descriptor (close-on-exec) for us.
    Ok(Child { pid: as_pid(pid as i32)?, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) } })
}

/// `flags` are further flags of clone(2).
fn clone_shared<F: FnOnce() -> i32>(flags: u64, child: F) -> Result<Child> {
    extern "C" fn enter<F: FnOnce() -> i32>(arg: *mut libc::c_void) -> libc::c_int {
        // SAFETY: `arg` is the Option<F> below, alive because the parent sleeps in clone.
        let child = unsafe { &mut *arg.cast::<Option<F>>() };
        match child.take() {
            Some(child) => exit_now(child()),
            None => 127,
        }
    }
    let mut child = Some(child);
    // A child's child gets another stack.
    let taken = STACK_TAKEN.swap(true, Ordering::Relaxed);
    let second = if taken { Some(SecondStack::new()?) } else { None };
    let base = second.as_ref().map_or(CHILD_STACK.0.get().cast(), |second| second.0);
    guard(base as usize)?;
    let clone_flags = flags as libc::c_int | libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the child has a stack of its own; CLONE_VFORK keeps this thread asleep until the child has
    // left the memory, so `child` and the stack outlive its use of them.
    let pid = unsafe { libc::clone(enter::<F>, base.add(STACK), clone_flags, (&raw mut child).cast()) };
    STACK_TAKEN.store(taken, Ordering::Relaxed);
    check(pid.into())?;
    let pid = as_pid(pid)?;
    // The pidfd is opened after the fact, while the child's program starts. Nobody else waits for the child, so
    // its pid is still its own, even if it has ended.
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).context(|| "open a pidfd")?;
    Ok(Child { pid, pidfd })
}

fn as_pid(pid: i32) -> Result<Pid> {
    Pid::from_raw(pid).ok_or_else(|| Error::new("clone returned no pid"))
}

/// Ends this process at once, running no destructor and no atexit function; by a signal where a filter of the container's answers
/// exit_group(2) in the kernel's place, since _exit(3) would ask again for ever.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: the call reads no memory.
    unsafe { libc::syscall(libc::SYS_exit_group, code) };
    // SAFETY: an instruction that the processor knows as none raises SIGILL, and nothing comes after it.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        std::arch::asm!("ud2", options(noreturn, nomem, nostack));
        #[cfg(target_arch = "aarch64")]
        std::arch::asm!("udf #0", options(noreturn, nomem, nostack));
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        std::process::abort()
    }
}

/// True where `thread` has the descriptors and the directories of process `pid`, as threads have unless they ask for others
/// (unshare(2)), and where it has ended. See kcmp(2).
///
/// # Errors
/// The caller may not look at the process, or the kernel cannot compare (CONFIG_KCMP).
pub fn shares_files(pid: i32, thread: i32) -> Result<bool> {
    /// KCMP_FILES and KCMP_FS (linux/kcmp.h).
    const KINDS: [i32; 2] = [2, 3];
    for kind in KINDS {
        // SAFETY: no pointer is passed.
        match check(unsafe { libc::syscall(libc::SYS_kcmp, pid, thread, kind, 0, 0) }) {
            Ok(0) => {}
            Err(e) if e.is(libc::ESRCH) => {}
            Ok(_) => return Ok(false),
            Err(e) => return Err(e).context(|| format!("compare thread {thread} with process {pid}")),
        }
    }
    Ok(true)
}

/// Compares two descriptors, each of a process. They are equal where they are of the same open file, and share its position; else one comes
/// before the other in an order of the kernel's. See kcmp(2).
///
/// # Errors
/// As [`shares_files`]; EBADF where one is closed.
pub fn compare_files(one: (i32, i32), other: (i32, i32)) -> Result<cmp::Ordering> {
    /// linux/kcmp.h
    const KCMP_FILE: i32 = 0;
    // SAFETY: no pointer is passed.
    let compared = unsafe { libc::syscall(libc::SYS_kcmp, one.0, other.0, KCMP_FILE, one.1, other.1) };
    let shown = || format!("compare files of processes {} and {}", one.0, other.0);
    match check(compared).context(shown)? {
        0 => Ok(cmp::Ordering::Equal),
        1 => Ok(cmp::Ordering::Less),
        2 => Ok(cmp::Ordering::Greater),
        _ => bail!("{}: the kernel has no order for them", shown()),
    }
}

/// Waits for the process behind `pid` and returns how it ended.
pub fn wait(pid: Pid) -> Result<WaitStatus> {
    loop {
        match rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty()) {
            Ok(Some((_, status))) => return Ok(status),
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e).context(|| "wait for process"),
        }
    }
}

/// The exit code that a shell would report: the code, or 128 plus the signal.
pub fn exit_code(status: WaitStatus) -> u8 {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => 128u8.wrapping_add(signal as u8),
        _ => 255,
    }
}

/// Overwrites this process's environment with zeros, where /proc/PID/environ shows it. Called where no other thread runs, in
/// memory that nobody shares; afterwards each variable is empty.
pub fn forget_environment() {
    unsafe extern "C" {
        static mut environ: *mut *mut libc::c_char;
    }
    // SAFETY: environ(7) is a list of C strings that ends with a null pointer, in memory that can be written.
    unsafe {
        let mut next = environ;
        while !next.is_null() && !(*next).is_null() {
            std::ptr::write_bytes(*next, 0, libc::strlen(*next));
            next = next.add(1);
        }
    }
}

/// Argument and environment vectors in the form that execve(2) takes, built before they are needed.
#[derive(Debug)]
pub struct ExecArgs {
    strings: Vec<CString>,
    split: usize,
}

impl ExecArgs {
    /// Fails on a string with a NUL byte in it.
    pub fn new<S: AsRef<OsStr>>(args: &[S], env: &[S]) -> Result<Self> {
        let c = |s: &S| {
            let s = s.as_ref();
            CString::new(s.as_bytes()).map_err(|_| crate::err!("{s:?} contains a NUL byte"))
        };
        let strings = args.iter().chain(env).map(c).collect::<Result<Vec<_>>>()?;
        Ok(ExecArgs { strings, split: args.len() })
    }

    fn pointers(&self) -> (Vec<*const libc::c_char>, Vec<*const libc::c_char>) {
        let terminated = |part: &[CString]| {
            part.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect::<Vec<*const libc::c_char>>()
        };
        (terminated(&self.strings[..self.split]), terminated(&self.strings[self.split..]))
    }

    /// Replaces this process by the program at `path`; returns only the error.
    pub fn exec(&self, path: &CStr) -> Error {
        let (args, env) = self.pointers();
        // SAFETY: all pointers are to NUL-terminated strings of `self`, the vectors end in null.
        unsafe { libc::execve(path.as_ptr(), args.as_ptr(), env.as_ptr()) };
        std::io::Error::last_os_error().into()
    }

    /// Replaces this process by the program in an open file (execveat(2) with AT_EMPTY_PATH); returns only the error.
    pub fn exec_fd(&self, file: impl AsFd) -> Error {
        let (args, env) = self.pointers();
        // SAFETY: as in `exec`; the path is a literal.
        unsafe {
            libc::syscall(
                libc::SYS_execveat,
                file.as_fd().as_raw_fd(),
                c"".as_ptr(),
                args.as_ptr(),
                env.as_ptr(),
                libc::AT_EMPTY_PATH,
            )
        };
        std::io::Error::last_os_error().into()
    }
}

/// Whether this process has been told that it is in no job of the user for whom it works ([`outside_of_jobs`]).
static OUTSIDE_OF_JOBS: AtomicBool = AtomicBool::new(false);

/// Whether this process was root before it became a user.
static WAS_ROOT: AtomicBool = AtomicBool::new(false);

/// True where this process has become a user ([`become_user`]). Whoever has called it, such as Slurm, waits for it: it must not
/// touch paths that the user names, behind which a file system may never answer.
pub fn was_root() -> bool {
    WAS_ROOT.load(Ordering::Relaxed)
}

/// Says that this process is in no job of the user for whom it works: it was root, or root's service has made it. Its limits,
/// its cgroup and its environment are those of that service. There is no way back.
pub fn step_outside_of_jobs() {
    OUTSIDE_OF_JOBS.store(true, Ordering::Relaxed);
}

/// True where that was said. Such a process must run no program of the user's.
pub fn outside_of_jobs() -> bool {
    OUTSIDE_OF_JOBS.load(Ordering::Relaxed)
}

/// Becomes `uid` and `gid` for good, with no other group and no capability. From then on it is in no job of that user's
/// ([`outside_of_jobs`]).
pub fn become_user(uid: u32, gid: u32) -> Result<()> {
    step_outside_of_jobs();
    WAS_ROOT.store(true, Ordering::Relaxed);
    use rustix::process::{Gid, Uid};
    let (user, group) = (Uid::from_raw(uid), Gid::from_raw(gid));
    let context = || format!("become uid {uid}");
    rustix::thread::set_thread_groups(&[]).context(context)?;
    rustix::thread::set_thread_res_gid(group, group, group).context(context)?;
    rustix::thread::set_thread_res_uid(user, user, user).context(context)
}

/// Gets the ids and the capabilities `caps` of another process, for good, to have the kernel answer what that one may do.
pub fn act_as(uid: u32, gid: u32, groups: &[u32], caps: crate::caps::Mask) -> Result<()> {
    use rustix::process::{Gid, Uid};
    let (user, group) = (Uid::from_raw(uid), Gid::from_raw(gid));
    let groups: Vec<Gid> = groups.iter().copied().map(Gid::from_raw).collect();
    let context = || format!("act as uid {uid}");
    // A change of ids would take some capabilities away, or give them.
    let fixed = rustix::thread::CapabilitiesSecureBits::NO_SETUID_FIXUP;
    rustix::thread::set_capabilities_secure_bits(fixed).context(context)?;
    rustix::thread::set_thread_groups(&groups).context(context)?;
    rustix::thread::set_thread_res_gid(group, group, group).context(context)?;
    rustix::thread::set_thread_res_uid(user, user, user).context(context)?;
    crate::caps::hold(caps).context(context)
}

/// This process's file mode creation mask. To read it is to change it for a moment (umask(2)).
pub fn umask() -> u32 {
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask);
    mask.as_raw_mode()
}

/// Has the kernel end this process after `seconds` (alarm(2)).
pub fn end_after(seconds: u32) {
    // SAFETY: no pointer is passed, and the signal has no handler here.
    unsafe { libc::alarm(seconds) };
}

/// Sets the execution domain and its flags (personality(2)).
pub fn set_personality(persona: u64) -> Result<()> {
    // SAFETY: no pointer is passed.
    check(unsafe { libc::syscall(libc::SYS_personality, persona) })?;
    Ok(())
}

/// Sets this process's I/O class and priority (ioprio_set(2)).
pub fn set_io_priority(class: u32, priority: u32) -> Result<()> {
    const WHO_PROCESS: libc::c_int = 1;
    // SAFETY: no pointer is passed.
    check(unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, (class << 13) | priority) })?;
    Ok(())
}

/// The kernel's `struct sched_attr` (sched_setattr(2)), times in nanoseconds.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedAttr {
    /// Size of this structure in bytes; filled by [`set_scheduler`].
    pub size: u32,
    /// `SCHED_*`.
    pub policy: u32,
    /// `SCHED_FLAG_*`.
    pub flags: u64,
    /// For SCHED_OTHER and SCHED_BATCH.
    pub nice: i32,
    /// For SCHED_FIFO and SCHED_RR.
    pub priority: u32,
    /// For SCHED_DEADLINE.
    pub runtime: u64,
    /// For SCHED_DEADLINE.
    pub deadline: u64,
    /// For SCHED_DEADLINE.
    pub period: u64,
}

/// Sets this process's scheduling policy.
pub fn set_scheduler(attr: SchedAttr) -> Result<()> {
    let attr = SchedAttr { size: size_of::<SchedAttr>() as u32, ..attr };
    // SAFETY: `attr` lives over the call and says its size.
    check(unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) })?;
    Ok(())
}

/// Limits this process to the CPUs in `mask`, see [`set_affinity_of`].
///
/// # Errors
/// EINVAL where the machine, or the cpuset of this process, has none of these CPUs.
pub fn set_affinity(mask: &[u64]) -> Result<()> {
    set_affinity_of(0, mask)
}

/// Limits `thread`, 0 for this one, to the CPUs in `mask`, in words of 64 bits (sched_setaffinity(2)). The kernel takes masks of any
/// length, and counts only the CPUs that there are.
///
/// # Errors
/// EINVAL as for [`set_affinity`]; ESRCH where the thread has ended.
pub fn set_affinity_of(thread: i32, mask: &[u64]) -> Result<()> {
    let (pid, bytes): (libc::pid_t, _) = (thread, std::mem::size_of_val(mask));
    // SAFETY: the kernel reads `bytes` bytes of `mask`.
    check(unsafe { libc::syscall(libc::SYS_sched_setaffinity, pid, bytes, mask.as_ptr()) })?;
    Ok(())
}

/// The CPUs of `thread`, 0 for this one, as such a mask (sched_getaffinity(2)).
///
/// # Errors
/// ESRCH where the thread has ended.
pub fn affinity_of(thread: i32) -> Result<Vec<u64>> {
    // The kernel refuses a mask that is shorter than its own, which has a bit for each CPU that there could be.
    let mut mask = [0_u64; MOST_CPUS / 64];
    let (pid, bytes): (libc::pid_t, _) = (thread, size_of_val(&mask));
    // SAFETY: the kernel writes at most `bytes` bytes to `mask`.
    let got = unsafe { libc::syscall(libc::SYS_sched_getaffinity, pid, bytes, mask.as_mut_ptr()) };
    check(got)?;
    let last = mask.iter().rposition(|word| *word != 0);
    Ok(mask[..last.map_or(0, |last| last + 1)].to_vec())
}

/// How many CPUs the kernel can be built for, and more (8192, NR_CPUS of x86).
const MOST_CPUS: usize = 1 << 16;

/// Sets this process's memory policy (set_mempolicy(2)); `nodes` is a bit mask in words of 64.
pub fn set_memory_policy(mode: u32, nodes: &[u64]) -> Result<()> {
    let (mask, bits) = match nodes {
        [] => (std::ptr::null(), 0),
        // The kernel reads one bit less than it is told.
        _ => (nodes.as_ptr(), nodes.len() * 64 + 1),
    };
    // SAFETY: `mask` points to `nodes`, or is null with a length of 0.
    check(unsafe { libc::syscall(libc::SYS_set_mempolicy, mode as libc::c_int, mask, bits) })?;
    Ok(())
}

/// Gives this process a new session keyring (keyctl(2)). It has no name of ours: with one the kernel would join a keyring
/// of that name which another user has left open to search.
pub fn new_session_keyring() -> Result<()> {
    // No name is a null pointer.
    keyctl(JOIN_SESSION_KEYRING, 0, 0).map(drop)
}

/// Gives this process the session keyring `name` of its user namespace, where names are known to whoever is in that namespace
/// (keyctl(2), user_namespaces(7)). It is made where there is none, and other processes of its owner find it.
///
/// # Errors
/// EDQUOT where the user has as many keys as he may; EINVAL for a name with a NUL byte.
pub fn join_session_keyring(name: &str) -> Result<()> {
    let name = CString::new(name).map_err(|_| Error::from_errno(libc::EINVAL))?;
    // From linux/keyctl.h and linux/key.h of the kernel: all rights for who possesses the key; its owner may view it, and search it, or
    // nobody would find it by its name. By the right to link it, which it has at first, another container of his would possess it.
    const SETPERM: libc::c_int = 5;
    const RIGHTS: usize = 0x3f09_0000;
    let serial = keyctl(JOIN_SESSION_KEYRING, name.as_ptr() as usize, 0)?;
    // A program of the container can have given it to another user, who says what its rights are.
    match keyctl(SETPERM, serial, RIGHTS) {
        Err(e) if e.is(libc::EACCES) => Ok(()),
        set => set.map(drop),
    }
}

const JOIN_SESSION_KEYRING: libc::c_int = 1;

fn keyctl(operation: libc::c_int, first: usize, second: usize) -> Result<usize> {
    // SAFETY: of the operations above, one reads a string that its caller borrows, or null, and the other reads no memory.
    let answer = check(unsafe { libc::syscall(libc::SYS_keyctl, operation, first, second) })?;
    Ok(answer.unsigned_abs() as usize)
}

/// Waits for one of `fds`, as poll(2) does, and goes on after a signal. Without `limit` there is none.
///
/// # Errors
/// Those of poll(2) but EINTR.
pub fn poll(fds: &mut [rustix::event::PollFd<'_>], limit: Option<std::time::Duration>) -> Result<usize> {
    // Whoever only looks, as each start does, does not ask for the time: finding the vDSO's clock costs two page faults.
    let end = limit.filter(|limit| !limit.is_zero()).map(|limit| std::time::Instant::now() + limit);
    loop {
        let left = end.map(|end| end.saturating_duration_since(std::time::Instant::now())).or(limit);
        // More than 2^63 seconds are none that anybody waits for.
        let left = left.map(|left| rustix::time::Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        });
        match rustix::event::poll(fds, left.as_ref()) {
            Err(rustix::io::Errno::INTR) => {}
            polled => return polled.context(|| "wait for an event"),
        }
    }
}

/// True where the effective user may read, write or execute (`mode`) what `fd` stands for (faccessat2(2), Linux 5.8).
/// access(2) would answer for the real user.
///
/// # Errors
/// The kernel says neither yes nor no.
pub fn may_access(fd: impl AsFd, mode: i32) -> Result<bool> {
    // SAFETY: the path is a literal.
    let answer = check(unsafe {
        libc::syscall(
            libc::SYS_faccessat2,
            fd.as_fd().as_raw_fd(),
            c"".as_ptr(),
            mode,
            libc::AT_EMPTY_PATH | libc::AT_EACCESS,
        )
    });
    match answer {
        Ok(_) => Ok(true),
        // EROFS: a file system that is read-only for everybody.
        Err(e) if [libc::EACCES, libc::EPERM, libc::EROFS].contains(&e.errno().unwrap_or(0)) => Ok(false),
        Err(e) => Err(e.context(format!("ask for access to {}", crate::fd::shown(&fd)))),
    }
}

/// What is read of a process in proc_pid_stat(5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Its pid, as the procfs shows it.
    pub pid: i32,
    /// Its parent's pid; 0 where that is not in the PID namespace.
    pub parent: i32,
    /// It is a zombie, or being removed.
    pub dead: bool,
    /// When it was started, in clock ticks since boot.
    pub start_time: u64,
    /// The standard signals that it ignores, bit n-1 for signal n. Real-time signals are not shown.
    pub ignored: u64,
    /// Its session has a controlling terminal.
    pub terminal: bool,
}

/// Reads the stat of process `pid` ("self" for this one).
pub fn stat(proc: impl AsFd, pid: &str) -> Result<Stat> {
    let path = format!("{pid}/stat");
    let file = rustix::fs::openat(
        proc,
        path.as_str(),
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )
    .context(|| format!("open /proc/{path}"))?;
    let mut buffer = [0u8; 1024];
    let n = read_line(&file, &mut buffer).context(|| format!("read /proc/{path}"))?;
    parse_stat(&buffer[..n]).ok_or_else(|| crate::err!("/proc/{path} has an unknown form"))
}

/// The children that the thread with the directory `thread` in `proc` has made (proc_tid_children(5)).
///
/// # Errors
/// ENOENT or ESRCH where it has ended.
pub fn children(proc: impl AsFd, thread: &str) -> Result<Vec<i32>> {
    let path = format!("{thread}/children");
    let text = crate::fd::read_at(proc, path.as_str()).context(|| format!("read /proc/{path}"))?;
    Ok(String::from_utf8_lossy(&text).split_whitespace().filter_map(|pid| pid.parse().ok()).collect())
}

/// When process `pid` was started, in clock ticks since boot; `None` where none of this pid is shown.
///
/// # Errors
/// The kernel does not say.
pub fn start_time(pid: i32) -> Result<Option<u64>> {
    Ok(find(pid)?.map(|stat| stat.start_time))
}

/// The stat of process `pid`; `None` where none of this pid is shown.
///
/// # Errors
/// The kernel does not say.
pub fn find(pid: i32) -> Result<Option<Stat>> {
    match stat(crate::fd::open_proc()?, &pid.to_string()) {
        Ok(stat) => Ok(Some(stat)),
        Err(e) if e.is(libc::ENOENT) || e.is(libc::ESRCH) => Ok(None),
        Err(e) => Err(e.context(format!("look at process {pid}"))),
    }
}

/// Reads until `buffer` is full, or what was read ends as a line does; returns how much that is. One read(2) may give less.
fn read_line(file: impl AsFd, buffer: &mut [u8]) -> Result<usize> {
    let mut read = 0;
    while read < buffer.len() && !buffer[..read].ends_with(b"\n") {
        match rustix::io::read(&file, &mut buffer[read..]) {
            Ok(0) => break,
            Ok(n) => read += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(read)
}

/// Parses a line of proc_pid_stat(5). The process's name, in parentheses, may hold anything, so the fields are counted
/// from the last parenthesis.
fn parse_stat(text: &[u8]) -> Option<Stat> {
    let end = text.iter().rposition(|&b| b == b')')?;
    let pid =
        text.split(|&b| b == b' ').next().and_then(|pid| std::str::from_utf8(pid).ok())?.parse().ok()?;
    let rest = std::str::from_utf8(&text[end + 1..]).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let terminal = fields.nth(2)? != "0";
    let start_time = fields.nth(14)?.parse().ok()?;
    let ignored = fields.nth(10)?.parse().ok()?;
    Some(Stat { pid, parent, dead: matches!(state, "Z" | "X" | "x"), start_time, ignored, terminal })
}

/// Clears the umask, so that files get the mode that is asked for. Returns the mask that the caller of this process had, also
/// where it has been cleared before: what is made for him outside of `rt`'s own directories gets a mode by it.
pub fn clear_umask() -> u32 {
    let now = rustix::process::umask(rustix::fs::Mode::empty()).as_raw_mode();
    *UMASK_OF_CALLER.get_or_init(|| now)
}

/// Has `command` start with the umask of this process's caller, also where this process has cleared its own: what other programs
/// write is not open to everybody.
pub fn give_callers_umask(command: &mut std::process::Command) {
    if let Some(mask) = UMASK_OF_CALLER.get() {
        give_umask(command, *mask);
    }
}

/// The umask that this process began with, once it has been cleared.
static UMASK_OF_CALLER: std::sync::OnceLock<u32> = std::sync::OnceLock::new();

/// Raises the soft limit of open files to the hard one.
pub fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// The processors that this process may use.
pub fn affinity() -> usize {
    let count = |mask: Vec<u64>| mask.iter().map(|word| word.count_ones() as usize).sum::<usize>().max(1);
    affinity_of(0).map_or(1, count)
}

/// True where a process of this PID namespace has that number. EPERM means that it is another user's.
pub fn lives(pid: i32) -> bool {
    match rustix::process::Pid::from_raw(pid) {
        Some(pid) => !matches!(rustix::process::test_kill_process(pid), Err(rustix::io::Errno::SRCH)),
        None => false,
    }
}

/// Asks a child to end. It has not been waited for, so its number is its own.
pub fn terminate(child: &std::process::Child) {
    if let Some(pid) = rustix::process::Pid::from_raw(child.id() as i32) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
}

/// This machine's host name.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Waits for the end of a child, and not to reap it; false where one of `signals`, which are blocked, comes before. It is taken then.
///
/// # Errors
/// Of pidfd_open(2), signalfd(2) or poll(2).
pub fn wait_unless(child: &std::process::Child, signals: &[i32]) -> Result<bool> {
    use rustix::event::{PollFd, PollFlags};
    let pid = rustix::process::Pid::from_raw(child.id() as i32).ok_or(rustix::io::Errno::SRCH)?;
    let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?;
    let waiting = super::signal::waiting(signals)?;
    let mut fds = [PollFd::new(&pidfd, PollFlags::IN), PollFd::new(&waiting, PollFlags::IN)];
    poll(&mut fds, None)?;
    if !fds[0].revents().is_empty() {
        return Ok(true);
    }
    super::signal::next(&waiting).map(|_| false)
}

/// Has `command` killed when this process ends, however it does. Where the command gives up rights or takes any, it has to ask again
/// (prctl(2)).
pub fn end_with_parent(command: &mut std::process::Command) {
    use std::os::unix::process::CommandExt;
    let parent = rustix::process::getpid();
    let bind = move || {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        match rustix::process::getppid() == Some(parent) {
            true => Ok(()),
            false => Err(std::io::Error::from_raw_os_error(libc::ESRCH)),
        }
    };
    // SAFETY: prctl(2) and getppid(2) may be called between fork(2) and execve(2), and nothing is allocated.
    unsafe { command.pre_exec(bind) };
}

/// Has `command` start with this umask in place of this process's.
pub fn give_umask(command: &mut std::process::Command, mask: u32) {
    use std::os::unix::process::CommandExt;
    let give = move || {
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(mask));
        Ok(())
    };
    // SAFETY: umask(2) may be called between fork(2) and execve(2), and nothing is allocated.
    unsafe { command.pre_exec(give) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_comes_in_pieces() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let write = std::thread::spawn(move || {
            for piece in ["7 (a) ", "S 1\n"] {
                rustix::io::write(&writer, piece.as_bytes()).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
        });
        let mut buffer = [0; 64];
        let read = read_line(&reader, &mut buffer).unwrap();
        write.join().unwrap();
        assert_eq!(&buffer[..read], b"7 (a) S 1\n");
        assert_eq!(read_line(&reader, &mut buffer).unwrap(), 0, "the end");
    }

    #[test]
    fn stat_survives_hostile_names() {
        let line =
            b"7 (a) S 1 (b) R 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 12345 1 1 18446744073709551615 \
            1 1 0 0 0 0 0 4096 0 0 0 0 17 0 0 0";
        let stat = Stat { pid: 7, parent: 1, dead: false, start_time: 12345, ignored: 4096, terminal: false };
        assert_eq!(parse_stat(line), Some(stat));
        let on_a_terminal = String::from_utf8_lossy(line).replace(" 7 7 0 -1", " 7 7 34816 7");
        assert_eq!(parse_stat(on_a_terminal.as_bytes()), Some(Stat { terminal: true, ..stat }));
        let zombie = String::from_utf8_lossy(line).replace("(b) R", "(b) Z");
        assert_eq!(parse_stat(zombie.as_bytes()), Some(Stat { dead: true, ..stat }));
        assert_eq!(parse_stat(b"garbage"), None);
    }

    #[test]
    fn a_child_that_needs_too_much_stack_ends_and_harms_nobody() {
        fn deep(n: u64) -> u64 {
            let frame = std::hint::black_box([n; 64]);
            if n == u64::MAX { n } else { deep(n + 1) + frame[1] }
        }
        // The first child of this process, and a child's child, which has a stack of another kind.
        for level in [0, 1] {
            let overflow = || deep(0) as i32;
            let in_between = || {
                spawn(Namespaces::NONE, Memory::Shared, overflow)
                    .map_or(1, |c| exit_code(wait(c.pid).unwrap()).into())
            };
            let child = match level {
                0 => spawn(Namespaces::NONE, Memory::Shared, overflow),
                _ => spawn(Namespaces::NONE, Memory::Shared, in_between),
            };
            assert_eq!(
                exit_code(wait(child.unwrap().pid).unwrap()),
                128 + libc::SIGSEGV as u8,
                "level {level}"
            );
        }
    }

    #[test]
    fn children_in_shared_memory_leave_what_they_wrote() {
        let mut seen = 0;
        let child = spawn(Namespaces::NONE, Memory::Shared, || {
            seen = 7;
            3
        })
        .unwrap();
        assert_eq!(exit_code(wait(child.pid).unwrap()), 3);
        assert_eq!(seen, 7);
    }
}
