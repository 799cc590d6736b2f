//! Messages between the runtime and a container's init, one packet each.

use rt_sys::bail;
use rt_sys::error::{Context, Error, Result};
use rt_sys::ns::MountNamespaceId;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// What init says to the runtime.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FromInit {
    /// The user namespace is there; its maps are to be written.
    WantMaps,
    /// A helper has made init: its pid in the runtime's pid namespace.
    Pid(i32),
    /// Everything is mounted: prestart and createRuntime hooks are to run.
    Mounted,
    /// The seccomp listener is this descriptor of init.
    Listener(RawFd),
    /// An init that is undumpable says when it was started and which signals it ignores: procfs may hide it from the runtime (hidepid).
    Is(u64, u64),
    /// The program has been found and everything is set. It carries the id of the container's mount namespace where
    /// the container's processes are found by that.
    Ready(Option<MountNamespaceId>),
    /// Init lives on without the runtime from here.
    Detached,
    /// Init has failed and is about to exit.
    Failed(Error),
}

/// What the runtime says to init: go on. `pid` is init's pid as the runtime sees it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Go {
    /// Init's pid in the runtime's PID namespace, for hooks that init runs.
    pub pid: i32,
}

/// One end of the connection.
#[derive(Debug)]
pub(super) struct Link(OwnedFd);

/// Both ends: the runtime's and init's.
pub(super) fn pair() -> Result<(Link, Link)> {
    let flags = SocketFlags::CLOEXEC;
    let (a, b) = net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .context(|| "make a socket pair")?;
    Ok((Link(a), Link(b)))
}

impl AsRawFd for Link {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Link {
    /// Sends a message to the runtime.
    pub(super) fn tell(&self, message: &FromInit) -> Result<()> {
        let mut packet = Vec::with_capacity(64);
        match message {
            FromInit::WantMaps => packet.push(b'm'),
            FromInit::Pid(pid) => {
                packet.push(b'p');
                packet.extend(pid.to_ne_bytes());
            }
            FromInit::Mounted => packet.push(b'h'),
            FromInit::Listener(fd) => {
                packet.push(b'l');
                packet.extend(fd.to_ne_bytes());
            }
            FromInit::Is(start_time, ignored) => {
                packet.push(b'i');
                packet.extend([start_time.to_ne_bytes(), ignored.to_ne_bytes()].as_flattened());
            }
            FromInit::Ready(None) => packet.push(b'r'),
            FromInit::Ready(Some(id)) => {
                let (tag, id) = match id {
                    MountNamespaceId::Unique(id) => (b'R', id),
                    MountNamespaceId::Inode(inode) => (b'I', inode),
                };
                packet.push(tag);
                packet.extend(id.to_ne_bytes());
            }
            FromInit::Detached => packet.push(b'd'),
            FromInit::Failed(error) => {
                packet.push(b'f');
                packet.extend(error.errno().unwrap_or(0).to_ne_bytes());
                packet.extend(error.to_string().as_bytes());
            }
        }
        self.send(&packet)
    }

    /// The next message from init; `None` when init has exec'd or died.
    ///
    /// # Errors
    /// The other side died before it has read what it was told: the kernel says so by ECONNRESET.
    pub(super) fn hear(&self) -> Result<Option<FromInit>> {
        let packet = match self.receive() {
            Err(e) if e.is(libc::ECONNRESET) => bail!("the container's init died while it was set up"),
            packet => packet?,
        };
        let Some((&tag, rest)) = packet.split_first() else { return Ok(None) };
        let number = |rest: &[u8]| rest.first_chunk().map(|n| i32::from_ne_bytes(*n));
        let long = |rest: &[u8]| rest.first_chunk().map(|n| u64::from_ne_bytes(*n));
        let id = || long(rest);
        Ok(Some(match (tag, number(rest)) {
            (b'm', _) => FromInit::WantMaps,
            (b'p', Some(pid)) => FromInit::Pid(pid),
            (b'h', _) => FromInit::Mounted,
            (b'l', Some(fd)) => FromInit::Listener(fd),
            (b'i', _) => match (id(), rest.get(8..).and_then(long)) {
                (Some(start_time), Some(ignored)) => FromInit::Is(start_time, ignored),
                _ => bail!("init has not said what it is"),
            },
            (b'r', _) => FromInit::Ready(None),
            (b'R', _) => FromInit::Ready(id().map(MountNamespaceId::Unique)),
            (b'I', _) => FromInit::Ready(id().map(MountNamespaceId::Inode)),
            (b'd', _) => FromInit::Detached,
            (b'f', Some(errno)) => {
                let text = String::from_utf8_lossy(&rest[4..]).into_owned();
                FromInit::Failed(Error::from_parts(text, (errno != 0).then_some(errno)))
            }
            _ => bail!("init sent an unknown message {tag:#x}"),
        }))
    }

    /// Lets init go on.
    pub(super) fn go(&self, pid: i32) -> Result<()> {
        self.send(&pid.to_ne_bytes())
    }

    /// Waits for [`Link::go`]; an error where the runtime has died.
    pub(super) fn wait(&self) -> Result<Go> {
        let packet = match self.receive() {
            Err(e) if e.is(libc::ECONNRESET) => Vec::new(),
            packet => packet?,
        };
        match packet.first_chunk() {
            Some(pid) => Ok(Go { pid: i32::from_ne_bytes(*pid) }),
            None => bail!("the runtime has died"),
        }
    }

    fn send(&self, packet: &[u8]) -> Result<()> {
        // An error text may be longer than a packet. It is cut, because the receiver reads no more than this.
        let packet = &packet[..packet.len().min(PACKET)];
        net::send(self.0.as_fd(), packet, SendFlags::NOSIGNAL).context(|| "send a message")?;
        Ok(())
    }

    fn receive(&self) -> Result<Vec<u8>> {
        let mut packet = Vec::with_capacity(PACKET);
        loop {
            match net::recv(&self.0, rustix::buffer::spare_capacity(&mut packet), RecvFlags::empty()) {
                Ok(_) => return Ok(packet),
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e).context(|| "receive a message"),
            }
        }
    }
}

const PACKET: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_as_they_were() {
        let (runtime, init) = pair().unwrap();
        let failed = FromInit::Failed(Error::from_errno(libc::ENOENT).context("exec"));
        for message in [
            FromInit::WantMaps,
            FromInit::Pid(7),
            FromInit::Listener(3),
            FromInit::Is(7, u64::MAX),
            FromInit::Ready(None),
            FromInit::Ready(Some(MountNamespaceId::Unique(u64::MAX))),
            FromInit::Ready(Some(MountNamespaceId::Inode(7))),
            failed,
        ] {
            init.tell(&message).unwrap();
            assert_eq!(runtime.hear().unwrap(), Some(message));
        }
        runtime.go(42).unwrap();
        assert_eq!(init.wait().unwrap(), Go { pid: 42 });
        drop(init);
        assert_eq!(runtime.hear().unwrap(), None);
    }
}
