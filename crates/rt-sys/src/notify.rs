//! The listener of a seccomp filter: calls that wait for an answer, and the memory of who made them (seccomp_unotify(2)).

use super::check;
use crate::error::{Context, Error, Result};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;

/// `struct seccomp_notif`, with `struct seccomp_data` in it.
#[repr(C)]
#[derive(Default)]
struct RawCall {
    id: u64,
    pid: u32,
    flags: u32,
    number: i32,
    arch: u32,
    instruction: u64,
    args: [u64; 6],
}

/// `struct seccomp_notif_resp`
#[repr(C)]
#[derive(Default)]
struct RawAnswer {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

// _IOWR('!', 0, struct seccomp_notif), _IOWR('!', 1, struct seccomp_notif_resp), _IOW('!', 2, __u64)
const RECEIVE: u32 = 0xc050_2100;
const SEND: u32 = 0xc018_2101;
const ID_VALID: u32 = 0x4008_2102;
// _IOW('!', 4, __u64), of Linux 6.6
const SET_FLAGS: u32 = 0x4008_2104;
const FLAG_SYNC_WAKE_UP: libc::c_ulong = 1;
const FLAG_CONTINUE: u32 = 1;
/// A path is read up to each multiple of it: no page is smaller, and what lies behind the end of a path may not be there.
const PAGE: u64 = 4096;

/// A system call that waits for an answer.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    /// By what it is answered.
    pub id: u64,
    /// The thread, in the PID namespace of whoever has the listener. Another's by now, unless [`Listener::waits`] says otherwise.
    pub thread: u32,
    /// The number of the call.
    pub number: i32,
    /// `AUDIT_ARCH_*`
    pub arch: u32,
    /// Its arguments.
    pub args: [u64; 6],
}

/// What a call gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It has succeeded.
    Done,
    /// It has returned this, which is not negative.
    Returned(i64),
    /// It has failed.
    Failed(Errno),
    /// The kernel does it. Never a permission: the arguments may be others by then.
    Continue,
}

/// The listener of a filter.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    /// Receiving ends when nobody is left who could make a call. Before Linux 6.11 only poll(2) ends then.
    ends: bool,
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Listener {
    /// That of this descriptor.
    pub fn new(fd: OwnedFd) -> Listener {
        let ends = crate::kernel_numbers(&crate::kernel_release()).is_some_and(|release| release >= (6, 11));
        let listener = Listener { fd, ends };
        // Without it, everything is as it was but slower.
        if !listener.wakes_beside() {
            log::debug!("the kernel wakes who waits for calls on any processor");
        }
        listener
    }

    /// Has whoever waits for the other side, for a call or for its answer, woken on the processor on which that side is about to
    /// sleep: waking another one, which sleeps, takes longer than most answers. False where the kernel is older than Linux 6.6.
    fn wakes_beside(&self) -> bool {
        // SAFETY: the request takes a number.
        unsafe { libc::ioctl(self.fd.as_raw_fd(), SET_FLAGS as _, FLAG_SYNC_WAKE_UP) == 0 }
    }

    /// Waits for a call; none when nobody is left who could make one.
    pub fn receive(&self) -> Result<Option<Call>> {
        let mut polls = !self.ends;
        loop {
            if polls && !self.is_called()? {
                return Ok(None);
            }
            let mut raw = RawCall::default();
            // SAFETY: the kernel fills a `struct seccomp_notif`, which must be zero.
            match check(unsafe { libc::ioctl(self.fd.as_raw_fd(), RECEIVE as _, &raw mut raw) }.into()) {
                Ok(_) => {
                    let RawCall { id, pid, number, arch, args, .. } = raw;
                    return Ok(Some(Call { id, thread: pid, number, arch, args }));
                }
                // Its process has been killed meanwhile, or nobody is left.
                Err(e) if e.is(libc::ENOENT) => polls = true,
                Err(e) if e.is(libc::EINTR) => {}
                Err(e) => return Err(e.context("receive a system call")),
            }
        }
    }

    /// Waits until there is a call; false when nobody is left who could make one.
    fn is_called(&self) -> Result<bool> {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        crate::process::poll(&mut fds, None)?;
        Ok(fds[0].revents().contains(PollFlags::IN))
    }

    /// True while the call waits, so that its thread is still the one that made it.
    pub fn waits(&self, call: &Call) -> bool {
        // SAFETY: the request reads one u64.
        let ret = unsafe { libc::ioctl(self.fd.as_raw_fd(), ID_VALID as _, &raw const call.id) };
        ret == 0
    }

    /// Answers a call. One that waits no more is none.
    pub fn answer(&self, call: &Call, answer: Answer) -> Result<()> {
        let mut raw = RawAnswer { id: call.id, ..RawAnswer::default() };
        match answer {
            Answer::Done => {}
            Answer::Returned(value) => raw.value = value,
            Answer::Failed(errno) => raw.error = -errno.raw_os_error(),
            Answer::Continue => raw.flags = FLAG_CONTINUE,
        }
        // SAFETY: the request reads a `struct seccomp_notif_resp`.
        match check(unsafe { libc::ioctl(self.fd.as_raw_fd(), SEND as _, &raw const raw) }.into()) {
            Err(e) if e.is(libc::ENOENT) => Ok(()),
            sent => sent.map(drop).context(|| "answer a system call"),
        }
    }
}

/// Reads a path of another process's: the bytes before its zero, at most PATH_MAX with it.
pub fn read_path(thread: u32, address: u64) -> Result<Vec<u8>, Errno> {
    let mut path = Vec::with_capacity(256);
    let mut buffer = [0u8; PAGE as usize];
    while path.len() < libc::PATH_MAX as usize {
        let from = address.checked_add(path.len() as u64).ok_or(Errno::FAULT)?;
        let most = (PAGE - from % PAGE) as usize;
        let read = copy(thread, from, &mut buffer[..most], true)?;
        if let Some(end) = buffer[..read].iter().position(|byte| *byte == 0) {
            path.extend_from_slice(&buffer[..end]);
            return if path.len() < libc::PATH_MAX as usize { Ok(path) } else { Err(Errno::NAMETOOLONG) };
        }
        path.extend_from_slice(&buffer[..read]);
    }
    Err(Errno::NAMETOOLONG)
}

/// Writes all of `bytes` into another process's memory.
pub fn write_memory(thread: u32, address: u64, bytes: &mut [u8]) -> Result<(), Errno> {
    let length = bytes.len();
    if copy(thread, address, bytes, false)? == length { Ok(()) } else { Err(Errno::FAULT) }
}

/// What a file is said to be, in place of what the kernel says.
#[derive(Debug, Clone, Copy)]
pub struct Told {
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The type in st_mode, major and minor number, where it is said to be a device.
    pub device: Option<(u32, u32, u32)>,
}

/// The bytes of the `struct stat` of an open file, with what is told of it.
pub fn stat_of(file: impl AsFd, told: &Told) -> Result<Vec<u8>, Errno> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::zeroed();
    let (fd, flags) = (file.as_fd().as_raw_fd(), libc::AT_EMPTY_PATH);
    // SAFETY: the path ends at its zero, and the kernel writes a `struct stat`, which is that of the C libraries here.
    let ret = unsafe { libc::syscall(libc::SYS_newfstatat, fd, c"".as_ptr(), stat.as_mut_ptr(), flags) };
    check(ret).map_err(|e| errno_of(&e))?;
    // SAFETY: it was zero, and all of its fields are numbers.
    let mut stat = unsafe { stat.assume_init() };
    (stat.st_uid, stat.st_gid) = (told.uid, told.gid);
    if let Some((kind, major, minor)) = told.device {
        stat.st_mode = stat.st_mode & !libc::S_IFMT | kind;
        stat.st_rdev = libc::makedev(major, minor);
    }
    // SAFETY: a `struct stat` that was zero has no byte that nobody has written.
    let bytes =
        unsafe { std::slice::from_raw_parts((&raw const stat).cast::<u8>(), size_of::<libc::stat>()) };
    Ok(bytes.to_vec())
}

/// The bytes of its `struct statx`, of which `mask` is asked for.
pub fn statx_of(file: impl AsFd, mask: u32, told: &Told) -> Result<Vec<u8>, Errno> {
    // statx(2): where the fields are, in a structure of this length.
    const UID: usize = 20;
    const GID: usize = 24;
    const MODE: usize = 28;
    const MAJOR: usize = 128;
    const MINOR: usize = 132;
    const LENGTH: usize = 256;
    let mut statx = vec![0u8; LENGTH];
    let (fd, flags) = (file.as_fd().as_raw_fd(), libc::AT_EMPTY_PATH);
    // SAFETY: the path ends at its zero, and the kernel writes a `struct statx`, which is as long as this.
    let ret = unsafe { libc::syscall(libc::SYS_statx, fd, c"".as_ptr(), flags, mask, statx.as_mut_ptr()) };
    check(ret).map_err(|e| errno_of(&e))?;
    let mut put = |at: usize, number: u32| statx[at..at + 4].copy_from_slice(&number.to_ne_bytes());
    put(UID, told.uid);
    put(GID, told.gid);
    if let Some((kind, major, minor)) = told.device {
        put(MAJOR, major);
        put(MINOR, minor);
        let mode = u16::from_ne_bytes([statx[MODE], statx[MODE + 1]]) & 0o7777 | kind as u16;
        statx[MODE..MODE + 2].copy_from_slice(&mode.to_ne_bytes());
    }
    Ok(statx)
}

/// Reads into `bytes`, or writes them. Returns how many.
fn copy(thread: u32, address: u64, bytes: &mut [u8], reads: bool) -> Result<usize, Errno> {
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let remote = libc::iovec { iov_base: address as usize as *mut _, iov_len: bytes.len() };
    let number = if reads { libc::SYS_process_vm_readv } else { libc::SYS_process_vm_writev };
    // As wide as the kernel reads them: the last one is on the stack.
    let (one, no_flags): (libc::c_ulong, libc::c_ulong) = (1, 0);
    let thread = thread as libc::c_long;
    // SAFETY: `local` is `bytes`, which nobody else has; `remote` is an address of another process's, which the kernel checks.
    let ret =
        unsafe { libc::syscall(number, thread, &raw const local, one, &raw const remote, one, no_flags) };
    match check(ret) {
        Ok(0) => Err(Errno::FAULT),
        Ok(count) => Ok(count as usize),
        Err(e) => Err(errno_of(&e)),
    }
}

fn errno_of(e: &Error) -> Errno {
    Errno::from_raw_os_error(e.errno().unwrap_or(libc::EIO))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seccomp::Filter;

    /// A filter for this machine's calls that asks about one of them.
    fn filter_that_asks(number: libc::c_long) -> Filter {
        let op = |code: u32, k: u32, jf: u8| libc::sock_filter { code: code as u16, jt: 0, jf, k };
        let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
        let instructions = vec![
            // The number is the first field of `struct seccomp_data`.
            op(load, 0, 0),
            op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, number as u32, 1),
            op(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_USER_NOTIF, 0),
            op(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0),
        ];
        Filter { instructions, flags: 0, notifies: true }
    }

    #[test]
    fn calls_are_received_and_answered() {
        let (give, take) = std::sync::mpsc::channel();
        let asking = std::thread::spawn(move || {
            rustix::thread::set_no_new_privs(true).unwrap();
            give.send(crate::seccomp::load(&filter_that_asks(libc::SYS_getppid)).unwrap().unwrap()).unwrap();
            // SAFETY: getppid takes nothing.
            [(); 2].map(|()| unsafe { libc::syscall(libc::SYS_getppid) })
        });
        let listener = Listener::new(take.recv().unwrap());
        for value in [7, 8] {
            let call = listener.receive().unwrap().unwrap();
            assert_eq!(i64::from(call.number), libc::SYS_getppid);
            assert!(listener.waits(&call));
            listener.answer(&call, Answer::Returned(value)).unwrap();
            assert!(!listener.waits(&call));
        }
        assert_eq!(asking.join().unwrap(), [7, 8]);
        assert!(listener.receive().unwrap().is_none());
        assert_eq!(listener.wakes_beside(), is_since(6, 6));
    }

    /// True where the kernel is of this version, or later.
    fn is_since(major: u32, minor: u32) -> bool {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
        (numbers.next().unwrap(), numbers.next().unwrap()) >= (major, minor)
    }

    #[test]
    fn paths_are_read_to_their_end() {
        let own = std::process::id();
        let read = |text: &[u8]| read_path(own, text.as_ptr() as u64);
        assert_eq!(read(b"/a/path\0rest").unwrap(), b"/a/path");
        assert_eq!(read(b"\0").unwrap(), b"");
        let longest = [vec![b'a'; 4095], vec![0]].concat();
        assert_eq!(read(&longest).unwrap().len(), 4095);
        assert_eq!(read(&[b'a'; 8192]), Err(Errno::NAMETOOLONG));
        assert_eq!(read_path(own, 16), Err(Errno::FAULT));
        assert_eq!(read_path(own, u64::MAX), Err(Errno::FAULT));
    }

    #[test]
    fn what_is_told_is_in_the_kernels_structures() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let size = file.metadata().unwrap().len();
        let told = Told { uid: 33, gid: 34, device: Some((libc::S_IFCHR, 1, 3)) };
        let bytes = statx_of(&file, 0xfff, &told).unwrap();
        let number = |at: usize| u32::from_ne_bytes(*bytes[at..].first_chunk().unwrap());
        assert_eq!((number(20), number(24), number(128), number(132)), (33, 34, 1, 3));
        assert_eq!((u64::from(number(40)), number(28) & 0o170000), (size, libc::S_IFCHR));
        assert_eq!(stat_of(&file, &told).unwrap().len(), size_of::<libc::stat>());
    }

    #[test]
    fn memory_is_written_whole_or_not() {
        let own = std::process::id();
        let mut target = [0u8; 4];
        write_memory(own, target.as_mut_ptr() as u64, &mut [1, 2, 3, 4]).unwrap();
        assert_eq!(target, [1, 2, 3, 4]);
        assert_eq!(write_memory(own, 16, &mut [1]), Err(Errno::FAULT));
    }
}
