//! Requests to the kernel's network configuration (netlink(7), rtnetlink(7)).

use super::check;
use super::ns::{self, Namespace, Namespaces};
use super::process;
use crate::bail;
use crate::error::{Context, Error, Result};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{self, AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};

/// A connection to the kernel, about the network namespace in which it was opened.
#[derive(Debug)]
pub(crate) struct Netlink(OwnedFd);

impl Netlink {
    /// Connects to this process's network namespace.
    pub(crate) fn open() -> Result<Self> {
        Self::open_for(None)
    }

    /// Connects to the part of the kernel that speaks `protocol`, in this process's network namespace.
    pub(crate) fn open_for(protocol: Option<Protocol>) -> Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let socket = net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)
            .context(|| "open a netlink socket")?;
        // An answer that says why in words, and does not repeat the question.
        for option in [libc::NETLINK_EXT_ACK, libc::NETLINK_CAP_ACK] {
            let on: libc::c_int = 1;
            let (value, size) = ((&raw const on).cast(), size_of_val(&on) as libc::socklen_t);
            // SAFETY: `value` points to an int of that size, which lives over the call.
            let set = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_NETLINK, option, value, size) };
            check(set.into()).context(|| "set up a netlink socket")?;
        }
        // From here on nobody but the kernel can send to it.
        net::connect(&socket, &SocketAddrNetlink::new(0, 0)).context(|| "connect a netlink socket")?;
        Ok(Netlink(socket))
    }

    /// Connects to another network namespace.
    ///
    /// A short-lived process joins that namespace and opens the socket. This process may have no privilege over its own
    /// network namespace, and could not come back into it.
    pub(crate) fn open_in(namespace: impl AsFd) -> Result<Self> {
        let mut opened = None;
        let child = process::spawn_sharing_descriptors(Namespaces::NONE, || {
            let joined = ns::join(namespace, Namespace::Network).context(|| "join the network namespace");
            opened = Some(joined.and_then(|()| Netlink::open()));
            0
        })?;
        process::wait(child.pid)?;
        opened.unwrap_or_else(|| bail!("the process that joins the network namespace died"))
    }

    /// Asks for a change (`RTM_NEW*`) and waits until it is made.
    pub(crate) fn change(&self, kind: u16, flags: i32, body: &[u8]) -> Result<()> {
        self.send(kind, flags | libc::NLM_F_ACK, body)?;
        self.receive(|_| {})?;
        Ok(())
    }

    /// All that there is of a kind (`RTM_GET*`), as message bodies.
    pub(crate) fn dump(&self, kind: u16, body: &[u8]) -> Result<Vec<Vec<u8>>> {
        loop {
            let mut list = Vec::new();
            self.send(kind, libc::NLM_F_DUMP, body)?;
            // The kernel marks a list that changed while it was read (NLM_F_DUMP_INTR): it may lack something.
            if self.receive(|body| list.push(body.to_vec()))? {
                return Ok(list);
            }
        }
    }

    fn send(&self, kind: u16, flags: i32, body: &[u8]) -> Result<()> {
        let packet = message(kind, flags | libc::NLM_F_REQUEST, body);
        net::send(&self.0, &packet, SendFlags::empty()).context(|| "send a netlink request")?;
        Ok(())
    }

    /// Hands out the bodies of an answer up to its end; false where the kernel says it is inconsistent.
    fn receive(&self, mut each: impl FnMut(&[u8])) -> Result<bool> {
        // The kernel fills up to 32 KiB at once (netlink_recvmsg).
        let mut packet = Vec::with_capacity(32 * 1024);
        let mut consistent = true;
        loop {
            packet.clear();
            let buffer = rustix::buffer::spare_capacity(&mut packet);
            match net::recv(&self.0, buffer, RecvFlags::empty()) {
                Err(rustix::io::Errno::INTR) => continue,
                received => received.context(|| "receive a netlink answer")?,
            };
            for Message { kind, flags, body } in messages(&packet) {
                consistent &= flags & libc::NLM_F_DUMP_INTR == 0;
                match kind.into() {
                    libc::NLMSG_NOOP => {}
                    libc::NLMSG_ERROR => return outcome(body, ERROR_HEADER).map(|()| consistent),
                    libc::NLMSG_DONE => return outcome(body, DONE_HEADER).map(|()| consistent),
                    _ => each(body),
                }
            }
        }
    }
}

impl AsFd for Netlink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Appends an attribute (struct rtattr) to a message body.
pub(crate) fn put(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = ATTRIBUTE_HEADER + value.len();
    body.extend((length as u16).to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(ALIGN), 0);
}

/// The attributes in `bytes`, as kind and value; ends before the first broken one.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(bytes, 0)?);
        let kind = u16_at(bytes, 2)? & libc::NLA_TYPE_MASK as u16;
        let value = bytes.get(ATTRIBUTE_HEADER..length)?;
        bytes = bytes.get(length.next_multiple_of(ALIGN)..).unwrap_or_default();
        Some((kind, value))
    })
}

const ALIGN: usize = 4;
const MESSAGE_HEADER: usize = 16;
const ATTRIBUTE_HEADER: usize = 4;
/// An error number and the header of the request.
const ERROR_HEADER: usize = 4 + MESSAGE_HEADER;
/// An error number.
const DONE_HEADER: usize = 4;
/// The attribute with an error's text (linux/netlink.h).
const NLMSGERR_ATTR_MSG: u16 = 1;

struct Message<'a> {
    kind: u16,
    flags: i32,
    body: &'a [u8],
}

/// A request (struct nlmsghdr). One is under way at a time, so none needs a number.
fn message(kind: u16, flags: i32, body: &[u8]) -> Vec<u8> {
    let length = MESSAGE_HEADER + body.len();
    let mut packet = Vec::with_capacity(length);
    packet.extend((length as u32).to_ne_bytes());
    packet.extend(kind.to_ne_bytes());
    packet.extend((flags as u16).to_ne_bytes());
    packet.extend([0; 8]);
    packet.extend(body);
    packet
}

fn messages(mut packet: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let length = u32::from_ne_bytes(*packet.first_chunk()?) as usize;
        let (kind, flags) = (u16_at(packet, 4)?, u16_at(packet, 6)?.into());
        let body = packet.get(MESSAGE_HEADER..length)?;
        packet = packet.get(length.next_multiple_of(ALIGN)..).unwrap_or_default();
        Some(Message { kind, flags, body })
    })
}

/// What the last message of an answer says; the kernel's own words, if any, follow after `header` bytes.
fn outcome(body: &[u8], header: usize) -> Result<()> {
    let errno = body.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code).wrapping_neg());
    if errno == 0 {
        return Ok(());
    }
    let error = Error::from_errno(errno);
    let text = attributes(body.get(header..).unwrap_or_default())
        .find(|(kind, _)| *kind == NLMSGERR_ATTR_MSG)
        .map(|(_, text)| String::from_utf8_lossy(text.strip_suffix(&[0]).unwrap_or(text)));
    Err(match text {
        Some(text) => error.hint(text),
        None => error,
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_read_back_what_was_put() {
        let mut body = Vec::new();
        put(&mut body, 3, b"eth0\0");
        put(&mut body, 28, &7u32.to_ne_bytes());
        assert_eq!(body.len(), 12 + 8);
        let all: Vec<_> = attributes(&body).collect();
        assert_eq!(all, [(3, &b"eth0\0"[..]), (28, &7u32.to_ne_bytes()[..])]);
    }

    #[test]
    fn broken_attributes_end_the_list() {
        let mut body = Vec::new();
        put(&mut body, 1, &[1, 2, 3, 4]);
        let whole = body.len();
        put(&mut body, 2, &[5, 6, 7, 8]);
        for length in whole..body.len() {
            assert_eq!(attributes(&body[..length]).count(), 1, "{length}");
        }
        for length in [0u16, 3] {
            assert_eq!(attributes(&[length.to_ne_bytes(), [9, 0]].concat()).count(), 0);
        }
    }

    #[test]
    fn messages_are_told_apart() {
        let mut packet = message(20, 2, &[1, 2, 3]);
        packet.push(0);
        packet.extend(message(3, 2, &0i32.to_ne_bytes()));
        let all: Vec<_> = messages(&packet).map(|m| (m.kind, m.flags, m.body.to_vec())).collect();
        assert_eq!(all, [(20, 2, vec![1, 2, 3]), (3, 2, vec![0; 4])]);
        assert_eq!(messages(&packet[..packet.len() - 1]).count(), 1);
        assert_eq!(messages(&[0; 16]).count(), 0);
    }

    #[test]
    fn errors_carry_the_kernels_words() {
        let mut body = (-libc::EINVAL).to_ne_bytes().to_vec();
        assert_eq!(outcome(&body, ERROR_HEADER).unwrap_err().to_string(), "invalid argument");
        body.resize(ERROR_HEADER, 0);
        put(&mut body, NLMSGERR_ATTR_MSG, b"No wheel\0");
        assert_eq!(outcome(&body, ERROR_HEADER).unwrap_err().to_string(), "invalid argument (No wheel)");
        assert_eq!(outcome(&0i32.to_ne_bytes(), DONE_HEADER), Ok(()));
    }

    #[test]
    fn the_kernel_lists_the_loopback_address() {
        // Where this namespace has one: ifaddrmsg of 127.0.0.1 says family, /8 and host scope.
        let list = Netlink::open().unwrap().dump(libc::RTM_GETADDR, &[0; 8]).unwrap();
        let up = std::net::UdpSocket::bind("127.0.0.1:0").is_ok();
        let has =
            |body: &Vec<u8>| body.starts_with(&[libc::AF_INET as u8, 8]) && body[3] == libc::RT_SCOPE_HOST;
        assert_eq!(list.iter().any(has), up);
    }
}
