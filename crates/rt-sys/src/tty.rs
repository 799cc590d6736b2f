//! Terminals: pseudo terminals, raw mode, sizes, and handing a descriptor over a socket.

use super::check;
use crate::error::{Context, Error, Result};
use crate::{bail, err};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{self, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::termios::{self, LocalModes, OptionalActions, Termios, Winsize};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::path::Path;

/// Both sides of a pseudo terminal.
#[derive(Debug)]
pub struct Pty {
    /// Whoever shows the terminal.
    pub master: OwnedFd,
    /// The program's side.
    pub slave: OwnedFd,
    /// The number N of /dev/pts/N.
    pub number: u32,
}

/// How both sides of a terminal are opened.
const PTY_FLAGS: OFlags = OFlags::RDWR.union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Opens a new terminal of the devpts instance whose root is `pts`.
///
/// By the instance's own ptmx where that may be opened. The kernel gives it the mode 000 unless the mount says
/// `ptmxmode=`, as on many hosts, where programs use the node /dev/ptmx beside it. `beside` opens that one.
pub fn open_pty(pts: impl AsFd, beside: impl FnOnce() -> Result<OwnedFd>) -> Result<Pty> {
    let pts = pts.as_fd();
    let master = match rustix::fs::openat(pts, "ptmx", PTY_FLAGS | OFlags::NOFOLLOW, Mode::empty()) {
        Err(Errno::ACCESS) => beside(),
        opened => opened.map_err(Error::from),
    };
    let pty = pty_of(master.context(|| "open ptmx")?)?;
    // A ptmx beside a devpts opens terminals of what is mounted at pts in its own directory.
    if rustix::fs::fstat(&pty.slave)?.st_dev != rustix::fs::fstat(pts)?.st_dev {
        bail!("open ptmx: its terminals are of another devpts");
    }
    Ok(pty)
}

/// Opens the ptmx that the O_PATH descriptor `node` stands for, if it is one, through the host's procfs `proc`.
pub fn open_ptmx(node: impl AsFd, proc: impl AsFd) -> Result<OwnedFd> {
    /// The kernel's number of ptmx (Documentation/admin-guide/devices.txt).
    const PTMX: (u32, u32) = (5, 2);
    let stat = rustix::fs::fstat(&node)?;
    let is_device = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
    if !is_device || stat.st_rdev != rustix::fs::makedev(PTMX.0, PTMX.1) {
        bail!("/dev/ptmx is another file");
    }
    let path = format!("self/fd/{}", node.as_fd().as_raw_fd());
    Ok(rustix::fs::openat(proc, path, PTY_FLAGS, Mode::empty())?)
}

/// The terminal whose master side is `master`.
fn pty_of(master: OwnedFd) -> Result<Pty> {
    let mut unlock: libc::c_int = 0;
    // SAFETY: TIOCSPTLCK reads one int.
    check(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK, &raw mut unlock) }.into())
        .context(|| "unlock the terminal")?;
    // SAFETY: TIOCGPTPEER takes open flags and returns a new descriptor; no path is walked.
    let slave = check(
        unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER as _, PTY_FLAGS.bits() as libc::c_int) }
            .into(),
    )
    .context(|| "open the terminal's other side")?;
    // SAFETY: the kernel has just made it for us.
    let slave = unsafe { OwnedFd::from_raw_fd(slave as i32) };
    let mut number: libc::c_uint = 0;
    // SAFETY: TIOCGPTN writes one unsigned int.
    check(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGPTN as _, &raw mut number) }.into())
        .context(|| "ask the terminal's number")?;
    Ok(Pty { master, slave, number })
}

/// Makes `tty` the controlling terminal of this process, which must lead a session without one.
pub fn set_controlling(tty: impl AsFd) -> Result<()> {
    // SAFETY: TIOCSCTTY takes an integer.
    check(unsafe { libc::ioctl(tty.as_fd().as_raw_fd(), libc::TIOCSCTTY, 0) }.into())
        .context(|| "set the controlling terminal")?;
    Ok(())
}

/// Makes `fd` this process's standard input, output and error.
pub fn become_stdio(fd: impl AsFd) -> Result<()> {
    rustix::stdio::dup2_stdin(fd.as_fd())?;
    rustix::stdio::dup2_stdout(fd.as_fd())?;
    rustix::stdio::dup2_stderr(fd.as_fd())?;
    Ok(())
}

/// Gives this process these three as standard input, output and error.
pub fn become_hook_stdio(input: impl AsFd, output: impl AsFd, errors: impl AsFd) -> Result<()> {
    rustix::stdio::dup2_stdin(input)?;
    rustix::stdio::dup2_stdout(output)?;
    rustix::stdio::dup2_stderr(errors)?;
    Ok(())
}

/// The size of a terminal in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub columns: u16,
}

/// Gives `tty` this size, or without one the size of the terminal that is standard input.
pub fn set_size(tty: impl AsFd, size: Option<Size>) -> Result<()> {
    match size {
        Some(Size { rows, columns }) => {
            let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
            Ok(termios::tcsetwinsize(tty, size)?)
        }
        None => {
            copy_size(rustix::stdio::stdin(), tty);
            Ok(())
        }
    }
}

/// True where this process's session has a controlling terminal: opening /dev/tty fails with ENXIO where there is none.
/// Also true where that cannot be known.
pub fn is_controlled() -> bool {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    !matches!(rustix::fs::open("/dev/tty", flags, Mode::empty()), Err(rustix::io::Errno::NXIO))
}

/// True where standard input is a terminal (isatty(3)). The standard library's stdin would allocate a buffer of 8 KiB.
pub fn stdin_is_terminal() -> bool {
    is_terminal(rustix::stdio::stdin())
}

/// True where `fd` is a terminal (isatty(3)).
pub fn is_terminal(fd: impl AsFd) -> bool {
    termios::isatty(fd)
}

/// The columns of the terminal `fd`, 0 where nobody has told it; none where it is no terminal.
pub fn width(fd: impl AsFd) -> Option<usize> {
    termios::tcgetwinsize(fd).ok().map(|size| usize::from(size.ws_col))
}

/// Lets the line ends that programs write to `tty` through as they are (termios(3), ONLCR).
pub fn keep_line_ends(tty: impl AsFd) -> Result<()> {
    let mut modes = termios::tcgetattr(&tty)?;
    modes.output_modes.remove(termios::OutputModes::ONLCR);
    Ok(termios::tcsetattr(&tty, OptionalActions::Now, &modes)?)
}

/// Copies the size of one terminal to another; of no effect where `from` is none.
pub fn copy_size(from: impl AsFd, to: impl AsFd) {
    if let Ok(size) = termios::tcgetwinsize(from) {
        let _ = termios::tcsetwinsize(to, size);
    }
}

/// A terminal in raw mode until this is dropped.
#[derive(Debug)]
pub struct RawMode<'a> {
    tty: BorrowedFd<'a>,
    before: Termios,
}

impl<'a> RawMode<'a> {
    /// Puts `tty` into raw mode; `None` where it is no terminal.
    pub fn enter(tty: BorrowedFd<'a>) -> Option<Self> {
        let before = termios::tcgetattr(tty).ok()?;
        let mut raw = before.clone();
        raw.make_raw();
        termios::tcsetattr(tty, OptionalActions::Flush, &raw).ok()?;
        Some(RawMode { tty, before })
    }
}

impl Drop for RawMode<'_> {
    fn drop(&mut self) {
        let _ = termios::tcsetattr(self.tty, OptionalActions::Drain, &self.before);
    }
}

/// Connects to the AF_UNIX stream socket at `path`. A socket address holds 108 bytes (unix(7)), so a longer path is
/// opened and named by /proc/self/fd/N.
pub fn connect(path: &Path) -> Result<OwnedFd> {
    let socket =
        net::socket_with(net::AddressFamily::UNIX, net::SocketType::STREAM, net::SocketFlags::CLOEXEC, None)?;
    let address = match net::SocketAddrUnix::new(path) {
        Ok(address) => address,
        Err(_) => {
            let dir = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
            net::SocketAddrUnix::new(crate::fd::link(&dir))?
        }
    };
    net::connect(&socket, &address)?;
    Ok(socket)
}

/// Sends `fds` and a payload in one message (SCM_RIGHTS, unix(7)).
pub fn send_fds(socket: impl AsFd, payload: &[u8], fds: &[BorrowedFd<'_>]) -> Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(fds)) {
        bail!("too many descriptors for one message");
    }
    let sent = net::sendmsg(socket, &[IoSlice::new(payload)], &mut control, SendFlags::NOSIGNAL)?;
    if sent != payload.len() {
        return Err(err!("short write to socket"));
    }
    Ok(())
}

/// A connected pair of sockets over which a descriptor can be sent.
pub fn socket_pair() -> Result<(OwnedFd, OwnedFd)> {
    let flags = net::SocketFlags::CLOEXEC;
    net::socketpair(net::AddressFamily::UNIX, net::SocketType::STREAM, flags, None)
        .context(|| "make a socket pair")
}

/// Receives the one descriptor that a message carries.
pub fn receive_fd(socket: impl AsFd) -> Result<OwnedFd> {
    Ok(receive_fd_with::<64>(socket)?.0)
}

/// Receives the one descriptor that a message carries, and the message, up to so many bytes.
pub fn receive_fd_with<const MOST: usize>(socket: impl AsFd) -> Result<(OwnedFd, [u8; MOST])> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = net::RecvAncillaryBuffer::new(&mut space);
    let mut payload = [0u8; MOST];
    let mut buffers = [std::io::IoSliceMut::new(&mut payload)];
    net::recvmsg(socket, &mut buffers, &mut control, net::RecvFlags::CMSG_CLOEXEC)?;
    let received = control
        .drain()
        .find_map(|message| match message {
            net::RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        })
        .ok_or_else(|| err!("no descriptor came over the socket"))?;
    Ok((received, payload))
}

/// Width of the terminal on standard error; none where there is no terminal.
pub fn width_on_stderr() -> Option<usize> {
    width(std::io::stderr()).map(|columns| columns.max(20))
}

/// The terminal on standard input does not show what is typed, until this is dropped.
pub struct Silence(Termios);

impl Silence {
    /// # Errors
    /// Standard input is no terminal.
    pub fn new() -> Result<Silence> {
        let before = termios::tcgetattr(std::io::stdin()).context(|| "read the settings of the terminal")?;
        let mut modes = before.clone();
        modes.local_modes.remove(LocalModes::ECHO);
        termios::tcsetattr(std::io::stdin(), OptionalActions::Now, &modes).context(|| "set the terminal")?;
        Ok(Silence(before))
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        let _ = termios::tcsetattr(std::io::stdin(), OptionalActions::Now, &self.0);
    }
}
