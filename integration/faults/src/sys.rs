//! The system calls of the tracer: ptrace(2), a child that waits to be seized, and the clock that wakes a wait.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::io::{self, Write};
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

/// What is followed, and that no tracee outlives its tracer.
const OPTIONS: libc::c_int = libc::PTRACE_O_TRACESYSGOOD
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_EXITKILL;

/// Result of a call that answers -1 on errors.
fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Everything that the child needs between fork(2) and execve(2), made before.
pub(crate) struct Start {
    /// The program.
    pub(crate) program: CString,
    /// argv, with argv[0].
    pub(crate) arguments: Vec<CString>,
    /// NAME=VALUE.
    pub(crate) environment: Vec<CString>,
    /// The working directory.
    pub(crate) dir: CString,
    /// Standard output.
    pub(crate) stdout: OwnedFd,
    /// Standard error.
    pub(crate) stderr: OwnedFd,
    /// Who it runs as; none leaves it as it is.
    pub(crate) uid: Option<u32>,
}

/// Starts a process and seizes it before its first instruction of the new program.
///
/// # Errors
/// Those of fork(2) and ptrace(2).
pub(crate) fn start(start: &Start) -> io::Result<i32> {
    let pointers = |texts: &[CString]| {
        let ends = [ptr::null()];
        texts.iter().map(|t| t.as_ptr()).chain(ends).collect::<Vec<_>>()
    };
    let (arguments, environment) = (pointers(&start.arguments), pointers(&start.environment));
    let null = std::fs::File::open("/dev/null")?;
    let mut gate = [0; 2];
    // SAFETY: pipe2 writes two descriptors into the array that it gets.
    check(unsafe { libc::pipe2(gate.as_mut_ptr(), libc::O_CLOEXEC) }.into())?;
    // SAFETY: both were just made and belong to nobody else.
    let (reader, writer) = unsafe { (OwnedFd::from_raw_fd(gate[0]), OwnedFd::from_raw_fd(gate[1])) };
    // SAFETY: the child calls only functions that are safe after fork in a process with threads (signal-safety(7)).
    let pid = check(unsafe { libc::fork() }.into())? as i32;
    if pid == 0 {
        // SAFETY: all pointers were made above and live, since the child has a copy of the memory; _exit ends it.
        unsafe {
            let mut byte = 0_u8;
            libc::read(reader.as_raw_fd(), (&raw mut byte).cast(), 1);
            libc::dup2(null.as_raw_fd(), 0);
            libc::dup2(start.stdout.as_raw_fd(), 1);
            libc::dup2(start.stderr.as_raw_fd(), 2);
            libc::setsid();
            libc::umask(0o022);
            if let Some(uid) = start.uid
                && (libc::setgroups(0, ptr::null()) != 0
                    || libc::setresgid(uid, uid, uid) != 0
                    || libc::setresuid(uid, uid, uid) != 0)
            {
                libc::_exit(125);
            }
            if libc::chdir(start.dir.as_ptr()) == 0 {
                libc::execve(start.program.as_ptr(), arguments.as_ptr(), environment.as_ptr());
            }
            libc::_exit(126);
        }
    }
    drop(reader);
    // SAFETY: ptrace reads no memory of ours for PTRACE_SEIZE; the options are its data argument.
    let seized = check(unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0_usize, OPTIONS as usize) });
    if let Err(e) = seized {
        kill(pid, libc::SIGKILL);
        return Err(e);
    }
    std::fs::File::from(writer).write_all(b"1")?;
    Ok(pid)
}

/// Lets a tracee go on: PTRACE_CONT, PTRACE_SYSCALL or PTRACE_LISTEN, with a signal to deliver or 0.
pub(crate) fn go_on(request: libc::c_uint, pid: i32, signal: i32) {
    // SAFETY: none of these requests reads or writes memory of ours. A tracee that was killed meanwhile is no error here: its
    // end is reported by wait.
    unsafe { libc::ptrace(request, pid, 0_usize, signal as usize) };
}

/// A system call that a tracee is about to make.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    /// Its number.
    pub(crate) number: i64,
    /// Its arguments.
    pub(crate) arguments: [u64; 6],
}

/// At a stop for a system call: its entry, or none at its exit.
pub(crate) fn entry(pid: i32) -> Option<Entry> {
    // SAFETY: all zero is a value of this plain structure.
    let mut info: libc::ptrace_syscall_info = unsafe { mem::zeroed() };
    let size = mem::size_of_val(&info);
    // SAFETY: the kernel writes at most `size` bytes into `info`.
    let got = unsafe { libc::ptrace(libc::PTRACE_GET_SYSCALL_INFO, pid, size, &raw mut info) };
    if got <= 0 || info.op != libc::PTRACE_SYSCALL_INFO_ENTRY {
        return None;
    }
    // SAFETY: the kernel says that this member of the union is the one that it wrote.
    let entry = unsafe { info.u.entry };
    (info.arch == ARCH).then_some(Entry { number: entry.nr as i64, arguments: entry.args })
}

/// AUDIT_ARCH_X86_64 of linux/audit.h.
#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xc000_003e;
/// AUDIT_ARCH_AARCH64 of linux/audit.h.
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xc000_00b7;

/// The registers of a stopped tracee.
fn registers(pid: i32) -> io::Result<libc::user_regs_struct> {
    // SAFETY: all zero is a value of this plain structure.
    let mut registers: libc::user_regs_struct = unsafe { mem::zeroed() };
    let mut vector =
        libc::iovec { iov_base: (&raw mut registers).cast(), iov_len: mem::size_of_val(&registers) };
    // SAFETY: the vector describes `registers`, which the kernel fills (1 is NT_PRSTATUS).
    check(unsafe { libc::ptrace(libc::PTRACE_GETREGSET, pid, 1_usize, &raw mut vector) })?;
    Ok(registers)
}

/// Sets them.
fn set_registers(pid: i32, mut registers: libc::user_regs_struct) -> io::Result<()> {
    let mut vector =
        libc::iovec { iov_base: (&raw mut registers).cast(), iov_len: mem::size_of_val(&registers) };
    // SAFETY: the vector describes `registers`, which the kernel reads.
    check(unsafe { libc::ptrace(libc::PTRACE_SETREGSET, pid, 1_usize, &raw mut vector) }).map(drop)
}

/// At the entry of a call: the kernel does not make it.
///
/// # Errors
/// Those of ptrace(2).
#[cfg(target_arch = "x86_64")]
pub(crate) fn skip(pid: i32) -> io::Result<()> {
    let mut all = registers(pid)?;
    all.orig_rax = u64::MAX;
    set_registers(pid, all)
}

/// At the entry of a call: the kernel does not make it.
///
/// # Errors
/// Those of ptrace(2).
#[cfg(target_arch = "aarch64")]
pub(crate) fn skip(pid: i32) -> io::Result<()> {
    let mut number: libc::c_int = -1;
    let mut vector = libc::iovec { iov_base: (&raw mut number).cast(), iov_len: mem::size_of_val(&number) };
    // SAFETY: the vector describes `number`, which the kernel reads (0x404 is NT_ARM_SYSTEM_CALL).
    check(unsafe { libc::ptrace(libc::PTRACE_SETREGSET, pid, 0x404_usize, &raw mut vector) }).map(drop)
}

/// At the exit of a call: what it returns.
///
/// # Errors
/// Those of ptrace(2).
pub(crate) fn set_result(pid: i32, result: i64) -> io::Result<()> {
    let mut all = registers(pid)?;
    #[cfg(target_arch = "x86_64")]
    {
        all.rax = result as u64;
    }
    #[cfg(target_arch = "aarch64")]
    {
        all.regs[0] = result as u64;
    }
    set_registers(pid, all)
}

/// At the entry of a call: changes one of its arguments.
///
/// # Errors
/// Those of ptrace(2).
pub(crate) fn set_argument(pid: i32, index: usize, value: u64) -> io::Result<()> {
    let mut all = registers(pid)?;
    #[cfg(target_arch = "x86_64")]
    {
        let places = [&mut all.rdi, &mut all.rsi, &mut all.rdx, &mut all.r10, &mut all.r8, &mut all.r9];
        if let Some(place) = places.into_iter().nth(index) {
            *place = value;
        }
    }
    #[cfg(target_arch = "aarch64")]
    {
        all.regs[index] = value;
    }
    set_registers(pid, all)
}

/// The text at an address of a tracee; none where that cannot be read.
pub(crate) fn text(pid: i32, address: u64) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    let mut address = address;
    while all.len() < 4096 {
        // What lies on one page is there or not there.
        let most = 256.min(4096 - (address & 4095) as usize);
        let mut piece = [0_u8; 256];
        let local = libc::iovec { iov_base: piece.as_mut_ptr().cast(), iov_len: most };
        let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: most };
        // SAFETY: `local` describes `piece`; the other address is one of the tracee's, which the kernel checks.
        let got = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
        let got = usize::try_from(got).ok().filter(|got| *got > 0)?;
        match piece[..got].iter().position(|b| *b == 0) {
            Some(end) => {
                all.extend_from_slice(&piece[..end]);
                return Some(all);
            }
            None => all.extend_from_slice(&piece[..got]),
        }
        address += got as u64;
    }
    Some(all)
}

/// What waitpid(2) reports.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Report {
    /// A change of a process: its id, and the status.
    Change(i32, i32),
    /// The alarm rang.
    Alarm,
    /// There is nobody to wait for.
    Nobody,
}

/// Waits for any tracee or child.
pub(crate) fn wait() -> Report {
    let mut status = 0;
    // SAFETY: waitpid writes the status into the integer that it gets.
    match unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL) } {
        -1 if io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) => Report::Alarm,
        -1 => Report::Nobody,
        pid => Report::Change(pid, status),
    }
}

/// The message of a ptrace event: the new process of a fork.
pub(crate) fn event_message(pid: i32) -> u64 {
    let mut message: libc::c_ulong = 0;
    // SAFETY: the kernel writes one long.
    unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, pid, 0_usize, &raw mut message) };
    message
}

/// Sends a signal; that nobody is there any more is no error.
pub(crate) fn kill(pid: i32, signal: i32) {
    // SAFETY: kill reads and writes no memory.
    unsafe { libc::kill(pid, signal) };
}

extern "C" fn ring(_: libc::c_int) {}

/// Makes orphans children of this process, and wakes [`wait`] some times a second.
///
/// # Errors
/// Those of the calls.
pub(crate) fn prepare() -> io::Result<()> {
    // SAFETY: all zero is a value of this plain structure; without SA_RESTART, a wait ends when the alarm rings. The handler
    // does nothing.
    unsafe {
        check(libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1).into())?;
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = ring as extern "C" fn(libc::c_int) as usize;
        check(libc::sigaction(libc::SIGALRM, &raw const action, ptr::null_mut()).into())?;
        let every = libc::timeval { tv_sec: 0, tv_usec: 50_000 };
        let timer = libc::itimerval { it_interval: every, it_value: every };
        check(libc::setitimer(libc::ITIMER_REAL, &raw const timer, ptr::null_mut()).into())?;
    }
    Ok(())
}

/// Runs `act`, whose threads no alarm wakes: it is for the one that waits.
pub(crate) fn without_alarms<T>(act: impl FnOnce() -> T) -> T {
    // SAFETY: all zero is a value of this plain structure, which sigemptyset fills; the mask is put back below.
    unsafe {
        let mut alarm: libc::sigset_t = mem::zeroed();
        libc::sigemptyset(&raw mut alarm);
        libc::sigaddset(&raw mut alarm, libc::SIGALRM);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const alarm, ptr::null_mut());
        let result = act();
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const alarm, ptr::null_mut());
        result
    }
}

/// Sets an extended attribute.
///
/// # Errors
/// Those of setxattr(2).
pub(crate) fn set_attribute(path: &Path, name: &CStr, value: &[u8]) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let (pointer, length) = (value.as_ptr().cast(), value.len());
    // SAFETY: both texts end in a zero, and pointer and length describe `value`.
    check(unsafe { libc::lsetxattr(path.as_ptr(), name.as_ptr(), pointer, length, 0) }.into()).map(drop)
}

/// Names and values of the extended attributes of a path, behind each other; nothing where there are none.
pub(crate) fn attributes(path: &Path) -> Vec<Vec<u8>> {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return Vec::new() };
    let mut names = vec![0_u8; 4096];
    // SAFETY: the kernel writes at most the length of `names`.
    let length = unsafe { libc::llistxattr(path.as_ptr(), names.as_mut_ptr().cast(), names.len()) };
    names.truncate(usize::try_from(length).unwrap_or(0));
    let mut all = Vec::new();
    for name in names.split_inclusive(|byte| *byte == 0) {
        let mut value = vec![0_u8; 4096];
        // SAFETY: the name ends in its zero, and the kernel writes at most the length of `value`.
        let length = unsafe {
            libc::lgetxattr(path.as_ptr(), name.as_ptr().cast(), value.as_mut_ptr().cast(), value.len())
        };
        value.truncate(usize::try_from(length).unwrap_or(0));
        all.push([name, &value].concat());
    }
    all.sort();
    all
}

/// A pipe for what a process prints: rt keeps a log of what goes to one. Reading from it waits for nobody, since a container
/// may hold the other end.
///
/// # Errors
/// Those of pipe2(2) and fcntl(2).
pub(crate) fn output() -> io::Result<(std::fs::File, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: pipe2 writes two descriptors into the array that it gets.
    check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }.into())?;
    // SAFETY: both were just made and belong to nobody else.
    let (reader, writer) = unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) };
    // SAFETY: fcntl reads and writes no memory here.
    check(unsafe { libc::fcntl(reader.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) }.into())?;
    Ok((reader.into(), writer))
}
