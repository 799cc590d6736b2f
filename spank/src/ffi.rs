//! The functions of Slurm that are called, and starting a program from inside of slurmstepd. What this file offers to all others
//! but [`crate::entries`] is safe.
//!
//! Facts about the interface are those of slurm/spank.h from 22.05 to 26.05. Slurm's functions are looked up by dlsym(3)
//! when the plugin is loaded: some versions lack some, and a symbol that is missing must not make dlopen(3) fail.

#![allow(unsafe_code, reason = "this is the border to Slurm, which is C")]

use crate::options::Form;
use libc::{c_char, c_int, c_long, c_uint, c_void, gid_t};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;
use std::time::Duration;

// --- What is called of Slurm

/// Slurm's name for a step, of which only Slurm knows what it is (spank_t).
pub(crate) type Handle = *mut c_void;
/// An array of strings.
pub(crate) type Words = *mut *mut c_char;
/// What Slurm calls with an option's index, its argument or null, and whether that comes from another node.
pub(crate) type OptionGiven = extern "C" fn(c_int, *const c_char, c_int) -> c_int;

/// # Safety
/// `words` is null or an array of at least `count` strings that live for `'a`.
pub(crate) unsafe fn strings<'a>(words: Words, count: c_int) -> Vec<&'a CStr> {
    let count = usize::try_from(count).unwrap_or(0);
    if words.is_null() {
        return Vec::new();
    }
    // SAFETY: the caller's promise.
    (0..count).map_while(|n| unsafe { string(*words.add(n)) }).collect()
}

/// # Safety
/// `text` is null or a string that lives for `'a`.
unsafe fn string<'a>(text: *const c_char) -> Option<&'a CStr> {
    // SAFETY: the caller's promise.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}

type Log = unsafe extern "C" fn(*const c_char, ...);

/// struct spank_option.
#[repr(C)]
struct SpankOption {
    name: *const c_char,
    argument: *const c_char,
    usage: *const c_char,
    has_argument: c_int,
    value: c_int,
    callback: OptionGiven,
}

/// The functions; `None` where this Slurm has none of that name.
struct Slurm {
    api_version: Option<unsafe extern "C" fn() -> c_long>,
    log: Option<Log>,
    error: Option<Log>,
    context: Option<unsafe extern "C" fn() -> c_int>,
    register: Option<unsafe extern "C" fn(Handle, *const SpankOption) -> c_int>,
    get_item: Option<unsafe extern "C" fn(Handle, c_int, ...) -> c_int>,
    setenv: Option<unsafe extern "C" fn(Handle, *const c_char, *const c_char, c_int) -> c_int>,
    unsetenv: Option<unsafe extern "C" fn(Handle, *const c_char) -> c_int>,
    /// Since 23.11.
    prepend: Option<unsafe extern "C" fn(Handle, c_int, *const *const c_char) -> c_int>,
}

impl Slurm {
    fn get() -> &'static Slurm {
        static SLURM: OnceLock<Slurm> = OnceLock::new();
        // SAFETY: each name is that of a function of this type in slurm/slurm.h or slurm/spank.h.
        SLURM.get_or_init(|| unsafe {
            Slurm {
                api_version: function(c"slurm_api_version"),
                log: function(c"slurm_spank_log"),
                error: function(c"slurm_error"),
                context: function(c"spank_context"),
                register: function(c"spank_option_register"),
                get_item: function(c"spank_get_item"),
                setenv: function(c"spank_setenv"),
                unsetenv: function(c"spank_unsetenv"),
                prepend: function(c"spank_prepend_task_argv"),
            }
        })
    }
}

/// # Safety
/// `F` is the type of a pointer to the function of that name.
unsafe fn function<F: Copy>(name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the name is a string.
    let found = unsafe { old::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    // SAFETY: a pointer that is not null, to a function of the type that the caller promises.
    (!found.is_null()).then(|| unsafe { std::mem::transmute_copy(&found) })
}

/// What would otherwise ask for the glibc that the plugin is linked with: symbols that are new, or have a new version, since
/// 2.17. The standard library is linked with these, and the plugin thus loads into any glibc from then on.
mod old {
    use libc::{c_char, c_void};

    unsafe extern "C" {
        #[cfg_attr(all(target_env = "gnu", target_arch = "x86_64"), link_name = "dlsym@GLIBC_2.2.5")]
        #[cfg_attr(all(target_env = "gnu", target_arch = "aarch64"), link_name = "dlsym@GLIBC_2.17")]
        pub(super) fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    }

    /// Functions of glibc that are a system call, with the same arguments and, on 64-bit machines, the same structures.
    macro_rules! calls {
        ($($version:literal $name:ident($($argument:ident: $type:ty),*) = $number:ident($($value:expr),*);)*) => { $(
            #[doc = concat!("In glibc since ", $version, ".")]
            ///
            /// # Safety
            /// That of the system call.
            #[cfg(all(not(test), target_env = "gnu"))]
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($argument: $type),*) -> libc::c_int {
                // SAFETY: the caller's promise.
                libc::c_int::try_from(unsafe { libc::syscall(libc::$number, $($value),*) }).unwrap_or(-1)
            }
        )* };
    }

    calls! {
        "2.28" statx(at: libc::c_int, path: *const c_char, flags: libc::c_int, mask: u32, into: *mut c_void)
            = SYS_statx(at, path, flags, mask, into);
        "2.30" gettid() = SYS_gettid();
        "2.33" stat64(path: *const c_char, into: *mut c_void) = SYS_newfstatat(libc::AT_FDCWD, path, into, 0);
        "2.33" fstat64(fd: libc::c_int, into: *mut c_void) = SYS_fstat(fd, into);
    }
}

/// The number of the API of the Slurm that has loaded the plugin; `None` where that does not say.
pub(crate) fn api_number() -> Option<c_long> {
    // SAFETY: long slurm_api_version(void).
    Slurm::get().api_version.map(|version| unsafe { version() })
}

/// A line for the user: srun's stderr, or the job's output.
pub(crate) fn say(text: &str) {
    print(Slurm::get().log, text);
}

/// A line for the user with Slurm's own `error:` before it.
pub(crate) fn error(text: &str) {
    print(Slurm::get().error, text);
}

/// How many characters of a line are shown.
const MOST_CHARACTERS: usize = 1000;

/// A line as it may stand in root's log, whoever wrote it: not longer than [`MOST_CHARACTERS`], and without what steers a
/// terminal or shows text in another order than it has, as rt's own log (`rt_sys::log`).
pub(crate) fn shown(text: &str) -> String {
    let mut all = String::new();
    for c in text.trim_end().chars().take(MOST_CHARACTERS) {
        match c {
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                all.extend(c.escape_default());
            }
            _ if c.is_control() => all.extend(c.escape_default()),
            _ => all.push(c),
        }
    }
    all.chars().take(MOST_CHARACTERS).collect()
}

fn print(log: Option<Log>, text: &str) {
    let Ok(text) = CString::new(format!("rt: {}", shown(text))) else { return };
    if let Some(log) = log {
        // SAFETY: printf's contract, with one string for one %s.
        unsafe { log(c"%s".as_ptr(), text.as_ptr()) };
    }
}

/// Where the plugin has been loaded (enum spank_context).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Context {
    /// srun.
    Local,
    /// slurmstepd.
    Remote,
    /// sbatch and salloc.
    Allocator,
    /// slurmd, or its process around prolog and epilog.
    Other,
}

pub(crate) fn context() -> Context {
    // SAFETY: spank_context(void).
    match Slurm::get().context.map_or(0, |context| unsafe { context() }) {
        1 => Context::Local,
        2 => Context::Remote,
        3 => Context::Allocator,
        _ => Context::Other,
    }
}

/// Numbers that Slurm knows of a step (enum spank_item).
#[derive(Debug, Clone, Copy)]
pub(crate) enum Number {
    Uid = 0,
    Gid = 1,
    Job = 2,
    Step = 3,
    Node = 5,
    LocalTasks = 6,
    /// That of a task in its step.
    Task = 12,
}

const ARGV: c_int = 9;
const ENVIRONMENT: c_int = 10;
const GROUPS: c_int = 19;
const STEP_MEMORY: c_int = 28;

/// SLURM_BATCH_SCRIPT: the number of the step that is a batch script.
pub(crate) const BATCH: u32 = 0xffff_fffb;

/// Slurm's handle, for the length of one call.
pub(crate) struct Spank<'a> {
    handle: Handle,
    option_given: OptionGiven,
    call: PhantomData<&'a ()>,
}

impl<'a> Spank<'a> {
    /// Options that are offered call `option_given`.
    ///
    /// # Safety
    /// `handle` is valid for `'a`, and the process' other threads do not change the step's arrays meanwhile. Slurm calls
    /// plugins from the one thread that does.
    pub(crate) unsafe fn new(handle: Handle, option_given: OptionGiven) -> Spank<'a> {
        Spank { handle, option_given, call: PhantomData }
    }

    /// Offers an option. Slurm calls back with its index.
    pub(crate) fn register(&self, form: &Form, index: usize) -> bool {
        let text = |text: &str| CString::new(text).unwrap_or_default();
        let (name, usage) = (text(form.name), text(form.usage));
        let argument = form.argument.map(text);
        let option = SpankOption {
            name: name.as_ptr(),
            argument: argument.as_ref().map_or(ptr::null(), |argument| argument.as_ptr()),
            usage: usage.as_ptr(),
            has_argument: argument.is_some().into(),
            value: c_int::try_from(index).unwrap_or(-1),
            callback: self.option_given,
        };
        // SAFETY: spank_option_register copies what it is given.
        Slurm::get().register.is_some_and(|register| unsafe { register(self.handle, &raw const option) } == 0)
    }

    /// A number; `None` where this context has none.
    pub(crate) fn number(&self, item: Number) -> Option<u32> {
        let mut value = 0_u32;
        let get = Slurm::get().get_item?;
        // SAFETY: each of these items takes a pointer to 32 bits.
        (unsafe { get(self.handle, item as c_int, &raw mut value) } == 0).then_some(value)
    }

    /// The memory of the step on this node in MiB; `None` where it has all of the node's.
    pub(crate) fn memory(&self) -> Option<u64> {
        let mut value = 0_u64;
        let get = Slurm::get().get_item?;
        // SAFETY: this item takes a pointer to 64 bits.
        (unsafe { get(self.handle, STEP_MEMORY, &raw mut value) } == 0 && value > 0).then_some(value)
    }

    /// The user's supplementary groups.
    pub(crate) fn groups(&self) -> Vec<gid_t> {
        let (mut groups, mut count): (*mut gid_t, c_int) = (ptr::null_mut(), 0);
        let Some(get) = Slurm::get().get_item else { return Vec::new() };
        // SAFETY: this item takes a pointer to an array and one to its length.
        let result = unsafe { get(self.handle, GROUPS, &raw mut groups, &raw mut count) };
        match usize::try_from(count) {
            Ok(count) if result == 0 && !groups.is_null() => {
                // SAFETY: the array is Slurm's and is copied here.
                unsafe { std::slice::from_raw_parts(groups, count) }.to_vec()
            }
            _ => Vec::new(),
        }
    }

    /// The step's environment.
    pub(crate) fn environment(&self) -> Vec<&'a CStr> {
        let mut words: Words = ptr::null_mut();
        let Some(get) = Slurm::get().get_item else { return Vec::new() };
        // SAFETY: this item takes a pointer to an array, which ends with null.
        if unsafe { get(self.handle, ENVIRONMENT, &raw mut words) } != 0 {
            return Vec::new();
        }
        // SAFETY: as above.
        unsafe { strings(words, c_int::MAX) }
    }

    /// Changes the step's environment. An empty value is none.
    pub(crate) fn set(&self, name: &CStr, value: &[u8]) {
        let slurm = Slurm::get();
        match (CString::new(value), slurm.setenv, slurm.unsetenv) {
            (Ok(value), Some(setenv), _) if !value.is_empty() => {
                // SAFETY: spank_setenv copies two strings.
                unsafe { setenv(self.handle, name.as_ptr(), value.as_ptr(), 1) };
            }
            (_, _, Some(unsetenv)) => {
                // SAFETY: spank_unsetenv reads a string.
                unsafe { unsetenv(self.handle, name.as_ptr()) };
            }
            _ => {}
        }
    }

    /// The arguments, in srun those of the command line, elsewhere the step's.
    pub(crate) fn arguments(&self) -> Vec<&'a CStr> {
        // SAFETY: the array has that many strings.
        self.argv().map_or(Vec::new(), |(words, count)| unsafe { strings(words, count) })
    }

    /// Puts another string in the place of one of them. In srun it is what is sent to the nodes, and in a task what is
    /// executed.
    pub(crate) fn set_argument(&self, index: usize, value: CString) -> bool {
        match self.argv() {
            Some((words, count)) if index < usize::try_from(count).unwrap_or(0) && !words.is_null() => {
                // SAFETY: the array has that many places. The string stays for as long as the process; what was there
                // does, too: nobody else may have kept it.
                unsafe { *words.add(index) = value.into_raw() };
                true
            }
            _ => false,
        }
    }

    fn argv(&self) -> Option<(Words, c_int)> {
        let (mut words, mut count): (Words, c_int) = (ptr::null_mut(), 0);
        let get = Slurm::get().get_item?;
        // SAFETY: this item takes a pointer to a count and one to an array.
        (unsafe { get(self.handle, ARGV, &raw mut count, &raw mut words) } == 0).then_some((words, count))
    }

    /// Puts a program before those of a task's arguments. False where this Slurm cannot.
    pub(crate) fn prepend(&self, program: &CStr) -> bool {
        let words = [program.as_ptr(), ptr::null()];
        // SAFETY: the function copies one string.
        Slurm::get().prepend.is_some_and(|prepend| unsafe { prepend(self.handle, 1, words.as_ptr()) } == 0)
    }
}

/// True where this Slurm can put a program before a task's, whatever the task's arguments come from.
pub(crate) fn can_prepend() -> bool {
    Slurm::get().prepend.is_some()
}

/// A variable of this process, for srun and what it sends to the nodes.
pub(crate) fn set_own_variable(name: &CStr, value: &CStr) {
    // SAFETY: two strings, which are copied. srun does the same in its threads.
    unsafe { libc::setenv(name.as_ptr(), value.as_ptr(), 1) };
}

/// Takes one away again.
pub(crate) fn unset_own_variable(name: &CStr) {
    // SAFETY: a string. srun does the same in its threads.
    unsafe { libc::unsetenv(name.as_ptr()) };
}

/// Ends a task in the place of its program, with a status that is not 0.
pub(crate) fn end_task() -> ! {
    // SAFETY: ends the process, which is a fork of slurmstepd, without running what that has registered for its end.
    unsafe { libc::_exit(1) }
}

// --- Programs

/// Who executes a program.
#[derive(Debug, Clone)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<gid_t>,
}

/// A program that runs, and its output.
pub(crate) struct Running {
    /// The program, or its keeper.
    pid: libc::pid_t,
    kept: bool,
    pidfd: OwnedFd,
    /// Stdout and stderr, until they end.
    pub(crate) outputs: [Option<File>; 2],
}

/// Executes a program as `user`, or as this process' user, with the mounts of the namespace `mounts` where one is given. It inherits no
/// descriptor but its output's. Below a program of a user stands a keeper, which is still root where this process is: nothing that the
/// program leaves outlives the program.
///
/// slurmstepd has threads, and may be anywhere in its locks: nothing that takes one, or that is registered for fork(3), is
/// called between the fork and the exec. Its real user id is root while it acts as the user, so all three ids are set.
pub(crate) fn start(
    program: &Path,
    arguments: &[&CStr],
    environment: &[CString],
    user: Option<&User>,
    mounts: Option<RawFd>,
) -> io::Result<Running> {
    let program = CString::new(program.as_os_str().as_bytes())?;
    let null = File::options().read(true).open("/dev/null")?;
    let (out, out_end) = io::pipe()?;
    let (err, err_end) = io::pipe()?;
    let ends = [null.as_raw_fd(), out_end.as_raw_fd(), err_end.as_raw_fd()];
    let pointers = |words: &mut dyn Iterator<Item = *const c_char>| -> Vec<*const c_char> {
        words.chain([ptr::null()]).collect()
    };
    let argv = pointers(&mut arguments.iter().map(|word| word.as_ptr()));
    let envp = pointers(&mut environment.iter().map(|word| word.as_ptr()));
    // SAFETY: a fork: with no memory shared, the child is a copy of this thread. Zero for a stack is this one's copy.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    if pid == 0 {
        // SAFETY: this is the child, and the strings are its copies.
        unsafe { become_program(&program, &argv, &envp, ends, user, mounts) }
    }
    let kept = user.is_some();
    let pid = libc::pid_t::try_from(pid).ok().filter(|pid| *pid > 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: a system call on a child that nobody else waits for.
    let pidfd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let Some(pidfd) = RawFd::try_from(pidfd).ok().filter(|fd| *fd >= 0) else {
        let error = io::Error::last_os_error();
        let mut status = 0;
        // SAFETY: a child of this process that has not been waited for.
        unsafe {
            libc::kill(pid, libc::SIGKILL);
            libc::waitpid(pid, &raw mut status, 0);
        }
        return Err(error);
    };
    // SAFETY: a new descriptor.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Running {
        pid,
        kept,
        pidfd,
        outputs: [Some(OwnedFd::from(out).into()), Some(OwnedFd::from(err).into())],
    })
}

/// The child's part. Only system calls.
///
/// # Safety
/// Called in a process of its own; both arrays end with null.
unsafe fn become_program(
    program: &CStr,
    argv: &[*const c_char],
    envp: &[*const c_char],
    ends: [RawFd; 3],
    user: Option<&User>,
    mounts: Option<RawFd>,
) -> ! {
    // SAFETY: system calls with numbers, and with memory of this process.
    unsafe {
        // Nobody may look into what is still a copy of slurmstepd once it is the user's. exec sets it again.
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        if let Some(mounts) = mounts {
            // Root may be the real user alone. Where it fails, the program sees what slurmstepd sees, and says what it does not find.
            if libc::getuid() == 0 {
                libc::syscall(libc::SYS_setresuid, 0, 0, 0);
            }
            libc::setns(mounts, libc::CLONE_NEWNS);
        }
        for (target, end) in ends.iter().enumerate() {
            let target = target as c_int;
            if *end == target {
                libc::fcntl(target, libc::F_SETFD, 0);
            } else if libc::dup2(*end, target) < 0 {
                libc::_exit(127);
            }
        }
        if libc::syscall(libc::SYS_close_range, 3, c_uint::MAX, 0) != 0 {
            for fd in 3..4096 {
                libc::close(fd);
            }
        }
        let empty = [0_u64; 1];
        for signal in 1..=64 {
            // What a caller ignores stays ignored after an exec.
            libc::signal(signal, libc::SIG_DFL);
        }
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, empty.as_ptr(), ptr::null::<u64>(), 8);
        if let Some(user) = user {
            keep();
            // slurmstepd has set them already where it acts as the user, and may not any more.
            let is_root = libc::geteuid() == 0;
            if is_root && libc::syscall(libc::SYS_setgroups, user.groups.len(), user.groups.as_ptr()) != 0
                || libc::syscall(libc::SYS_setresgid, user.gid, user.gid, user.gid) != 0
                || libc::syscall(libc::SYS_setresuid, user.uid, user.uid, user.uid) != 0
            {
                libc::_exit(126);
            }
        }
        // After the ids, whose change forgets it: it does not outlive slurmstepd.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM, 0, 0, 0);
        libc::execve(program.as_ptr(), argv.as_ptr(), envp.as_ptr());
        libc::_exit(127)
    }
}

/// The signals that a keeper waits for: a child's end, "end" and "be killed". A keeper that is killed would keep nothing.
const KEPT: [c_int; 3] = [libc::SIGCHLD, libc::SIGTERM, libc::SIGQUIT];

/// How many seconds a keeper spends on what its program has left. A process that waits in the kernel for a file system of its
/// user's does not end, others may start new ones for ever, and root waits for no user.
const ENDING: libc::time_t = 5;

/// Goes on in a child, whose keeper this process becomes: the parent of everything that the child starts and leaves, as a
/// subreaper (prctl(2)), which ends it after the child's end and then exits with the child's status. It has root's ids where
/// this process may take them, so the user cannot signal it. Only system calls.
///
/// # Safety
/// Called in a process of its own, with no descriptor above 2, and with the default for every signal.
unsafe fn keep() {
    // SAFETY: system calls with numbers, and with memory of this function.
    unsafe {
        if libc::getuid() == 0 {
            libc::syscall(libc::SYS_setresuid, 0, 0, 0);
        }
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM, 0, 0, 0);
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in KEPT {
            libc::sigaddset(&raw mut set, signal);
        }
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut());
        let child = libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as libc::pid_t;
        if child == 0 {
            libc::sigprocmask(libc::SIG_UNBLOCK, &raw const set, ptr::null_mut());
            return;
        }
        if child < 0 {
            libc::_exit(126);
        }
        let mut status = None;
        while status.is_none() {
            match libc::sigwaitinfo(&raw const set, ptr::null_mut()) {
                libc::SIGTERM => drop(libc::kill(child, libc::SIGTERM)),
                libc::SIGQUIT => drop(libc::kill(child, libc::SIGKILL)),
                _ => status = reap(child),
            }
        }
        let (deadline, pause) = (seconds() + ENDING, libc::timespec { tv_sec: 0, tv_nsec: 100_000_000 });
        while kill_children() && seconds() < deadline {
            libc::sigtimedwait(&raw const set, ptr::null_mut(), &raw const pause);
            reap(child);
        }
        libc::_exit(status.map_or(126, exit_status))
    }
}

/// Seconds since some time.
unsafe fn seconds() -> libc::time_t {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a system call that fills a value of this function.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec
}

/// Takes the status of each child that has ended, up to that of `child`, which is the answer.
unsafe fn reap(child: libc::pid_t) -> Option<c_int> {
    let mut status = 0;
    // SAFETY: system calls on this process' children, whose numbers nobody else keeps.
    unsafe {
        loop {
            match libc::waitpid(-1, &raw mut status, libc::WNOHANG) {
                // Its number is free now, and the kernel may give it to another one.
                pid if pid == child => return Some(status),
                pid if pid > 0 => {}
                _ => return None,
            }
        }
    }
}

/// Kills the children, and says whether there was one. Those of a child that ends become this process'. The kernel may keep no
/// list of them (CONFIG_PROC_CHILDREN).
unsafe fn kill_children() -> bool {
    let mut list = [0_u8; 4096];
    // SAFETY: system calls with memory of this function.
    let length = unsafe {
        let file = libc::open(c"/proc/thread-self/children".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        let length = libc::read(file, list.as_mut_ptr().cast(), list.len());
        libc::close(file);
        usize::try_from(length).unwrap_or(0)
    };
    let (mut any, mut pid) = (false, 0);
    // Each number ends in a space; one that the buffer cuts waits for the next look.
    for byte in &list[..length] {
        match byte {
            b'0'..=b'9' => pid = pid * 10 + libc::pid_t::from(byte - b'0'),
            _ => {
                // SAFETY: a system call on a child that has not been waited for.
                unsafe { libc::kill(pid, libc::SIGKILL) };
                (any, pid) = (true, 0);
            }
        }
    }
    any
}

/// The exit status, or 128 and the signal.
fn exit_status(status: c_int) -> c_int {
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 128 + libc::WTERMSIG(status) }
}

impl Running {
    /// Waits for output or the program's end, for at most `limit`. The answer says which outputs have something to be
    /// read, or have ended, and whether the program has.
    pub(crate) fn wait(&self, limit: Option<Duration>) -> ([bool; 2], bool) {
        let fd = |file: &Option<File>| file.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        let [out, err] = &self.outputs;
        let mut list = [fd(out), fd(err), self.pidfd.as_raw_fd()].map(|fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        });
        let limit = limit.map_or(-1, |limit| c_int::try_from(limit.as_millis()).unwrap_or(c_int::MAX));
        // SAFETY: three entries.
        let found = unsafe { libc::poll(list.as_mut_ptr(), 3, limit) };
        let ready = |n: usize| found > 0 && list[n].revents != 0;
        ([ready(0), ready(1)], ready(2))
    }

    /// Its process id.
    #[cfg(test)]
    pub(crate) fn number(&self) -> libc::pid_t {
        self.pid
    }

    /// Sends a signal: SIGTERM or SIGKILL. The program is not waited for before [`Running::status`], so its number is its own.
    pub(crate) fn signal(&self, signal: c_int) {
        let signal = if self.kept && signal == libc::SIGKILL { libc::SIGQUIT } else { signal };
        // SAFETY: a system call.
        unsafe { libc::kill(self.pid, signal) };
    }

    /// Waits for its end: the exit status, or 128 and the signal.
    pub(crate) fn status(self) -> c_int {
        let mut status = 0;
        // SAFETY: a system call; the child is this value's, which ends here.
        while unsafe { libc::waitpid(self.pid, &raw mut status, 0) } < 0 {
            if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return -1;
            }
        }
        exit_status(status)
    }
}
