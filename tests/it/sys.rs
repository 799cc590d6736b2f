//! The system calls that the tests and their payload make: the suite's only unsafe code.
#![allow(unsafe_code, reason = "the tests' own system calls")]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

/// A system call's result: -1 becomes the errno.
pub fn check(result: i64) -> io::Result<i64> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// `text` for the C library.
pub fn c(text: impl AsRef<std::ffi::OsStr>) -> CString {
    CString::new(text.as_ref().as_encoded_bytes()).expect("no NUL in a test's string")
}

/// What a child does between fork and exec, in order.
#[derive(Debug, Clone)]
pub enum Step {
    /// setgroups(2).
    Groups(Vec<u32>),
    /// setresgid(2), then setresuid(2).
    Ids(u32, u32),
    /// setns(2) with a descriptor of any namespace.
    Join(RawFd),
    /// dup2(2): the second descriptor becomes a copy of the first, without close-on-exec.
    Dup(RawFd, RawFd),
    /// close(2).
    Close(RawFd),
    /// Blocks a signal.
    Block(i32),
    /// Ignores a signal.
    Ignore(i32),
    /// umask(2).
    Umask(u32),
    /// setrlimit(2) of RLIMIT_NOFILE: soft, hard.
    FileLimit(u64, u64),
    /// setrlimit(2) of RLIMIT_AS, in bytes.
    Memory(u64),
    /// setsid(2), then TIOCSCTTY on the descriptor.
    Terminal(RawFd),
    /// sched_setaffinity(2) to one CPU.
    Cpu(usize),
    /// chdir(2).
    Chdir(CString),
    /// unshare(2).
    Unshare(i32),
    /// mount(2): source, target, type, flags, data.
    Mount(CString, CString, CString, u64, CString),
    /// umount2(2) with MNT_DETACH.
    Detach(CString),
}

/// Makes `command`'s child take `steps` before it executes.
pub fn before_exec(command: &mut Command, steps: Vec<Step>) {
    // SAFETY: take() makes only system calls that are safe after fork; it allocates nothing.
    unsafe { command.pre_exec(move || steps.iter().try_for_each(take)) };
}

fn take(step: &Step) -> io::Result<()> {
    // SAFETY: every pointer below comes from a live reference or CString for the call's duration.
    let result = unsafe {
        match step {
            Step::Groups(groups) => libc::setgroups(groups.len(), groups.as_ptr()) as i64,
            Step::Ids(uid, gid) => {
                check(libc::setresgid(*gid, *gid, *gid).into())?;
                libc::setresuid(*uid, *uid, *uid) as i64
            }
            Step::Join(fd) => libc::setns(*fd, 0) as i64,
            Step::Dup(from, to) if from == to => libc::fcntl(*to, libc::F_SETFD, 0) as i64,
            Step::Dup(from, to) => libc::dup2(*from, *to) as i64,
            Step::Close(fd) => libc::close(*fd) as i64,
            Step::Block(signal) => {
                let mut set: libc::sigset_t = std::mem::zeroed();
                libc::sigemptyset(&mut set);
                libc::sigaddset(&mut set, *signal);
                libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) as i64
            }
            Step::Ignore(signal) => {
                libc::signal(*signal, libc::SIG_IGN);
                0
            }
            Step::Umask(mask) => {
                libc::umask(*mask);
                0
            }
            Step::FileLimit(soft, hard) => {
                let limit = libc::rlimit { rlim_cur: *soft, rlim_max: *hard };
                libc::setrlimit(libc::RLIMIT_NOFILE, &limit) as i64
            }
            Step::Memory(bytes) => {
                let limit = libc::rlimit { rlim_cur: *bytes, rlim_max: *bytes };
                libc::setrlimit(libc::RLIMIT_AS, &limit) as i64
            }
            Step::Terminal(fd) => {
                libc::setsid();
                libc::ioctl(*fd, libc::TIOCSCTTY, 0) as i64
            }
            Step::Cpu(cpu) => {
                let mut set: libc::cpu_set_t = std::mem::zeroed();
                libc::CPU_SET(*cpu, &mut set);
                libc::sched_setaffinity(0, size_of_val(&set), &set) as i64
            }
            Step::Chdir(path) => libc::chdir(path.as_ptr()) as i64,
            Step::Unshare(flags) => libc::unshare(*flags) as i64,
            Step::Mount(source, target, kind, flags, data) => libc::mount(
                source.as_ptr(),
                target.as_ptr(),
                kind.as_ptr(),
                *flags as _,
                data.as_ptr().cast(),
            ) as i64,
            Step::Detach(path) => libc::umount2(path.as_ptr(), libc::MNT_DETACH) as i64,
        }
    };
    check(result).map(drop)
}

/// A system call by number, with integer arguments.
pub fn syscall(number: i64, args: &[u64]) -> io::Result<i64> {
    let a = |i: usize| args.get(i).copied().unwrap_or(0);
    // SAFETY: used with numbers whose arguments are integers or null pointers (the kernel checks them).
    check(unsafe { libc::syscall(number, a(0), a(1), a(2), a(3), a(4), a(5)) })
}

/// ioctl(2) with a pointer to one byte, and all 64 bits of the command.
pub fn ioctl_byte(fd: i32, command: u64, byte: u8) -> io::Result<i64> {
    // SAFETY: the byte lives over the call; used with commands that read one.
    check(unsafe { libc::syscall(libc::SYS_ioctl, fd, command, &raw const byte) })
}

/// The effective user id.
pub fn euid() -> u32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// The effective group id.
pub fn egid() -> u32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::getegid() }
}

/// kill(2).
pub fn kill(pid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: plain integers.
    check(unsafe { libc::kill(pid, signal) }.into()).map(drop)
}

/// Makes this process the reaper of its orphaned descendants.
pub fn become_subreaper() {
    // SAFETY: plain integers.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
}

/// A raw wait status as an exit code, 128+n for a signal.
pub fn exit_code(status: i32) -> i32 {
    if libc::WIFSIGNALED(status) { 128 + libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) }
}

/// waitpid(2) on a child without blocking: its exit code (128+n for a signal) once it has ended.
pub fn reap(pid: i32) -> io::Result<Option<i32>> {
    let mut status = 0;
    // SAFETY: `status` lives through the call.
    let got = check(unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) }.into())?;
    Ok((got != 0).then(|| exit_code(status)))
}

/// waitpid(2) for any child; false once there is none.
pub fn reap_any() -> bool {
    let mut status = 0;
    // SAFETY: `status` lives through the call.
    unsafe { libc::waitpid(-1, &mut status, 0) > 0 }
}

/// fork(2): `None` in the child.
pub fn fork() -> io::Result<Option<i32>> {
    // SAFETY: the probe has one thread.
    let pid = check(unsafe { libc::fork() }.into())?;
    Ok((pid != 0).then_some(pid as i32))
}

/// _exit(2).
pub fn exit_now(code: i32) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(code) }
}

/// prctl(2).
pub fn prctl(option: i32, a: u64, b: u64) -> io::Result<i64> {
    // SAFETY: the options used take integers.
    check(unsafe { libc::prctl(option, a, b, 0, 0) }.into())
}

/// umask(2): the present one.
pub fn umask() -> u32 {
    // SAFETY: cannot fail; the old mask is put back at once.
    unsafe {
        let mask = libc::umask(0);
        libc::umask(mask);
        mask
    }
}

/// fcntl(F_GETFD): the descriptor's flags, or EBADF.
pub fn fd_flags(fd: RawFd) -> io::Result<i64> {
    // SAFETY: plain integers.
    check(unsafe { libc::fcntl(fd, libc::F_GETFD) }.into())
}

/// The soft and hard limit of a resource.
pub fn rlimit(resource: u32) -> io::Result<(u64, u64)> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` lives through the call.
    check(unsafe { libc::getrlimit(resource as _, &mut limit) }.into())?;
    Ok((limit.rlim_cur, limit.rlim_max))
}

/// A clock's time in seconds.
pub fn clock(id: i32) -> io::Result<i64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` lives through the call.
    check(unsafe { libc::clock_gettime(id, &mut time) }.into())?;
    Ok(time.tv_sec)
}

/// The node name and the domain name of the UTS namespace.
pub fn names() -> io::Result<(String, String)> {
    // SAFETY: utsname is plain bytes, and the kernel NUL-terminates each field.
    unsafe {
        let mut name: libc::utsname = std::mem::zeroed();
        check(libc::uname(&mut name).into())?;
        let text =
            |field: &[libc::c_char]| std::ffi::CStr::from_ptr(field.as_ptr()).to_string_lossy().into_owned();
        Ok((text(&name.nodename), text(&name.domainname)))
    }
}

/// The major and minor number of the kernel's version.
pub fn kernel() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// mount(2).
pub fn mount(source: &str, target: &str, kind: &str, flags: u64, data: &str) -> io::Result<()> {
    let (source, target, kind, data) = (c(source), c(target), c(kind), c(data));
    // SAFETY: the strings live through the call.
    check(
        unsafe {
            libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags as _, data.as_ptr().cast())
        }
        .into(),
    )
    .map(drop)
}

/// umount2(2).
pub fn umount(target: &str, flags: i32) -> io::Result<()> {
    let target = c(target);
    // SAFETY: the string lives through the call.
    check(unsafe { libc::umount2(target.as_ptr(), flags) }.into()).map(drop)
}

/// mknod(2).
pub fn mknod(path: &str, mode: u32, major: u32, minor: u32) -> io::Result<()> {
    let path = c(path);
    // SAFETY: the string lives through the call.
    check(unsafe { libc::mknod(path.as_ptr(), mode, libc::makedev(major, minor)) }.into()).map(drop)
}

/// unshare(2).
pub fn unshare(flags: i32) -> io::Result<()> {
    // SAFETY: plain integers.
    check(unsafe { libc::unshare(flags) }.into()).map(drop)
}

/// chroot(2).
pub fn chroot(path: &str) -> io::Result<()> {
    let path = c(path);
    // SAFETY: the string lives through the call.
    check(unsafe { libc::chroot(path.as_ptr()) }.into()).map(drop)
}

/// sethostname(2).
pub fn sethostname(name: &str) -> io::Result<()> {
    // SAFETY: pointer and length belong to `name`.
    check(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) }.into()).map(drop)
}

/// setresuid(2) to one id.
pub fn setuid(uid: u32) -> io::Result<()> {
    // SAFETY: plain integers.
    check(unsafe { libc::setresuid(uid, uid, uid) }.into()).map(drop)
}

/// setgroups(2).
pub fn setgroups(groups: &[u32]) -> io::Result<()> {
    // SAFETY: pointer and length belong to `groups`.
    check(unsafe { libc::setgroups(groups.len(), groups.as_ptr()) }.into()).map(drop)
}

/// The supplementary groups.
pub fn groups() -> Vec<u32> {
    let mut groups = vec![0; 1024];
    // SAFETY: the vector has room for the 1024 that the call is told of.
    let count = unsafe { libc::getgroups(1024, groups.as_mut_ptr()) };
    groups.truncate(count.max(0) as usize);
    groups
}

/// Real, effective and saved ids: user, then group.
pub fn ids() -> ([u32; 3], [u32; 3]) {
    let (mut u, mut g) = ([0; 3], [0; 3]);
    // SAFETY: the arrays live through the calls.
    unsafe {
        libc::getresuid(&mut u[0], &mut u[1], &mut u[2]);
        libc::getresgid(&mut g[0], &mut g[1], &mut g[2]);
    }
    (u, g)
}

/// chown(2) without following links.
pub fn chown(path: &Path, uid: u32, gid: u32) -> io::Result<()> {
    std::os::unix::fs::lchown(path, Some(uid), Some(gid))
}

/// renameat2(RENAME_EXCHANGE).
pub fn exchange(a: &Path, b: &Path) -> io::Result<()> {
    let (a, b) = (c(a), c(b));
    // SAFETY: the strings live through the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_renameat2,
            libc::AT_FDCWD,
            a.as_ptr(),
            libc::AT_FDCWD,
            b.as_ptr(),
            libc::RENAME_EXCHANGE,
        )
    })
    .map(drop)
}

/// mkfifo(3).
pub fn mkfifo(path: &Path) -> io::Result<()> {
    let path = c(path);
    // SAFETY: the string lives through the call.
    check(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }.into()).map(drop)
}

/// A new pseudo-terminal: master and slave, both close-on-exec.
pub fn openpty() -> io::Result<(OwnedFd, OwnedFd)> {
    // SAFETY: the calls take descriptors made here; the buffer is larger than any pts name.
    unsafe {
        let master = check(libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC).into())?;
        let master = OwnedFd::from_raw_fd(master as RawFd);
        check(libc::grantpt(master.as_raw_fd()).into())?;
        check(libc::unlockpt(master.as_raw_fd()).into())?;
        let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
        let slave = check(libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER as _, flags).into())?;
        Ok((master, OwnedFd::from_raw_fd(slave as RawFd)))
    }
}

/// Rows and columns of a terminal.
pub fn window(fd: RawFd) -> io::Result<(u16, u16)> {
    // SAFETY: winsize is plain integers and lives through the call.
    unsafe {
        let mut size: libc::winsize = std::mem::zeroed();
        check(libc::ioctl(fd, libc::TIOCGWINSZ, &mut size).into())?;
        Ok((size.ws_row, size.ws_col))
    }
}

/// Sets rows and columns of a terminal.
pub fn set_window(fd: RawFd, rows: u16, columns: u16) -> io::Result<()> {
    let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: `size` lives through the call.
    check(unsafe { libc::ioctl(fd, libc::TIOCSWINSZ, &size) }.into()).map(drop)
}

/// The terminal's local flags (termios c_lflag).
pub fn local_flags(fd: RawFd) -> io::Result<u32> {
    // SAFETY: termios is plain integers and lives through the call.
    unsafe {
        let mut term: libc::termios = std::mem::zeroed();
        check(libc::tcgetattr(fd, &mut term).into())?;
        Ok(term.c_lflag)
    }
}

/// isatty(3).
pub fn isatty(fd: RawFd) -> bool {
    // SAFETY: plain integer.
    unsafe { libc::isatty(fd) == 1 }
}

/// The foreground process group of a terminal.
pub fn foreground(fd: RawFd) -> io::Result<i32> {
    // SAFETY: plain integer.
    check(unsafe { libc::tcgetpgrp(fd) }.into()).map(|g| g as i32)
}

/// Sets or clears O_NONBLOCK.
pub fn nonblocking(fd: RawFd) {
    // SAFETY: plain integers.
    unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK | libc::fcntl(fd, libc::F_GETFL)) };
}

/// A message of an AF_UNIX socket: its bytes and the descriptors that came with it, in one recvmsg(2).
pub fn receive(socket: RawFd) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut bytes = vec![0u8; 4096];
    let mut control = [0u64; 64];
    let mut fds = Vec::new();
    // SAFETY: all buffers outlive the call; the control messages are walked by the C library's macros
    // within the length that the kernel set.
    unsafe {
        let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        let got = check(libc::recvmsg(socket, &mut message, libc::MSG_CMSG_CLOEXEC) as i64)?;
        bytes.truncate(got as usize);
        let mut header = libc::CMSG_FIRSTHDR(&message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let count = ((*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize) / size_of::<RawFd>();
                for i in 0..count {
                    let fd = libc::CMSG_DATA(header).cast::<RawFd>().add(i).read_unaligned();
                    fds.push(OwnedFd::from_raw_fd(fd));
                }
            }
            header = libc::CMSG_NXTHDR(&message, header);
        }
    }
    Ok((bytes, fds))
}

/// ppoll(2) for input: true when `fd` has some (or its peer has gone) within `ms` milliseconds.
pub fn readable(fd: RawFd, ms: i32) -> bool {
    let mut one = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: `one` lives through the call.
    unsafe { libc::poll(&mut one, 1, ms) > 0 }
}

/// Blocks signals, so that [`next_signal`] can take them.
pub fn block_signals(signals: &[i32]) {
    // SAFETY: the set lives through the calls.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in signals {
            libc::sigaddset(&mut set, *signal);
        }
        libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
    }
}

/// Waits for one of the blocked `signals`.
pub fn next_signal(signals: &[i32]) -> i32 {
    // SAFETY: the set and the number live through the calls.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in signals {
            libc::sigaddset(&mut set, *signal);
        }
        let mut got = 0;
        libc::sigwait(&set, &mut got);
        got
    }
}

/// Sets a signal's disposition to ignored or default.
pub fn dispose(signal: i32, ignore: bool) {
    // SAFETY: no handler is installed.
    unsafe { libc::signal(signal, if ignore { libc::SIG_IGN } else { libc::SIG_DFL }) };
}

/// The CPUs that this process may use.
pub fn affinity() -> Vec<usize> {
    // SAFETY: cpu_set_t is plain bits and lives through the calls.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &mut set);
        (0..1024).filter(|cpu| libc::CPU_ISSET(*cpu, &set)).collect()
    }
}

/// process_vm_readv(2) of one range.
pub fn read_memory(pid: i32, address: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0u8; len];
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: len };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: len };
    // SAFETY: the kernel writes at most `len` bytes, to `bytes`; the remote address is not touched here.
    let got =
        check(unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) } as i64)?;
    bytes.truncate(got as usize);
    Ok(bytes)
}

/// setsid(2).
pub fn setsid() {
    // SAFETY: takes nothing.
    unsafe { libc::setsid() };
}

/// pause(2) for ever.
pub fn pause() -> ! {
    loop {
        // SAFETY: takes nothing.
        unsafe { libc::pause() };
    }
}

/// statvfs(3): the mount flags (ST_*) of a path.
pub fn statfs_flags(path: &str) -> io::Result<u64> {
    let path = c(path);
    // SAFETY: statvfs is plain integers and lives through the call.
    unsafe {
        let mut info: libc::statvfs = std::mem::zeroed();
        check(libc::statvfs(path.as_ptr(), &mut info).into())?;
        Ok(info.f_flag)
    }
}

/// The size of the file system that `path` is on, in bytes.
pub fn statfs_size(path: &str) -> io::Result<u64> {
    let path = c(path);
    // SAFETY: statvfs is plain integers and lives through the call.
    unsafe {
        let mut info: libc::statvfs = std::mem::zeroed();
        check(libc::statvfs(path.as_ptr(), &mut info).into())?;
        Ok(info.f_blocks * info.f_frsize)
    }
}

/// Signals that are blocked, and those ignored, as this process found them when it was executed.
pub fn inherited_signals() -> (Vec<i32>, Vec<i32>) {
    let bits = |word: u64| (1..=64).filter(|n| word >> (n - 1) & 1 == 1).collect();
    let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
    (bits(load(&BLOCKED)), bits(load(&IGNORED)))
}

static BLOCKED: AtomicU64 = AtomicU64::new(0);
static IGNORED: AtomicU64 = AtomicU64::new(0);

/// Runs before main: Rust's own start-up code ignores SIGPIPE.
extern "C" fn note_signals() {
    let (mut blocked, mut ignored) = (0, 0);
    for signal in 1..=64 {
        // SAFETY: null pointers ask only; the structures live through the calls.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signal, std::ptr::null(), &mut action) == 0
                && action.sa_sigaction == libc::SIG_IGN
            {
                ignored |= 1u64 << (signal - 1);
            }
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigprocmask(libc::SIG_BLOCK, std::ptr::null(), &mut set);
            if libc::sigismember(&set, signal) == 1 {
                blocked |= 1u64 << (signal - 1);
            }
        }
    }
    BLOCKED.store(blocked, Ordering::Relaxed);
    IGNORED.store(ignored, Ordering::Relaxed);
}

// SAFETY: a function pointer of the type that the C library's start-up code calls.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE_SIGNALS: extern "C" fn() = note_signals;

/// Takes a write lease on an open file, of which the holder is not told (fcntl(2)).
pub fn set_write_lease(file: &std::fs::File) -> i32 {
    // SAFETY: no pointer is passed.
    unsafe {
        libc::signal(libc::SIGIO, libc::SIG_IGN);
        libc::fcntl(std::os::fd::AsRawFd::as_raw_fd(file), libc::F_SETLEASE, libc::F_WRLCK)
    }
}

/// A file system of `uid`'s at `at`, as fusermount(1) mounts it, whose server does not answer; dropped, the server is gone.
/// Its options are those of fuse(4), such as `allow_other`. None where there is no /dev/fuse.
pub fn silent_fuse(at: &std::path::Path, uid: u32, options: &str) -> Option<std::fs::File> {
    let server = std::fs::File::options().read(true).write(true).open("/dev/fuse").ok()?;
    let mode = if at.is_dir() { "40000" } else { "100000" };
    let fd = std::os::fd::AsRawFd::as_raw_fd(&server);
    let options = format!("fd={fd},rootmode={mode},user_id={uid},group_id={uid}{options}");
    mount("hang", at.to_str()?, "fuse", 0, &options).unwrap();
    Some(server)
}
