//! Network devices: the loopback of a new namespace, and devices of the host for it.

use super::check;
use super::netlink::{Netlink, attributes, put};
use crate::bail;
use crate::error::{Context, Result};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};

/// What the name service says of a host's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// It has an address.
    Found,
    /// There is no such name, or it has no address.
    NoSuchName,
    /// No server answers, or it answers that it cannot.
    NoAnswer,
}

/// True where the first part of an image's name, up to its first `/`, is a registry's host rather than a part of the repository
/// (distribution's reference package).
pub fn is_registry_host(first: &str) -> bool {
    first.contains(['.', ':']) || first == "localhost" || first.starts_with('[')
}

/// Asks the name service (getaddrinfo(3)), which std does by an error without a number.
pub fn look_up(host: &str) -> Lookup {
    let Ok(host) = std::ffi::CString::new(host.trim_matches(['[', ']'])) else { return Lookup::NoSuchName };
    let mut found = std::ptr::null_mut();
    // SAFETY: the host is a C string, no service and no hints are given, and `found` can take a pointer.
    let code = unsafe { libc::getaddrinfo(host.as_ptr(), std::ptr::null(), std::ptr::null(), &mut found) };
    if !found.is_null() {
        // SAFETY: getaddrinfo has allocated it, and nothing refers to it.
        unsafe { libc::freeaddrinfo(found) };
    }
    /// netdb.h: the name exists, and has no address.
    const EAI_NODATA: libc::c_int = -5;
    match code {
        0 => Lookup::Found,
        libc::EAI_NONAME | EAI_NODATA => Lookup::NoSuchName,
        _ => Lookup::NoAnswer,
    }
}

/// Moves the network device `name` into `namespace`, as `inside`, and sets it up (config-linux.md "Network
/// Devices"). Where `inside` ends in `%d`, the lowest free number stands for it.
///
/// The kernel keeps what belongs to the device (hardware address, MTU); its permanent global addresses, which
/// it drops, are added again.
pub fn move_device(name: &str, inside: &str, namespace: &OwnedFd) -> Result<()> {
    relocate(name, inside, namespace).context(|| format!("network device {name:?}"))
}

fn relocate(name: &str, inside: &str, namespace: &OwnedFd) -> Result<()> {
    check_name(name)?;
    let here = Netlink::open()?;
    let index = netdevice::name_to_index(&here, name)?;
    let there = Netlink::open_in(namespace)?;
    // The kernel moves the device first and renames it then, and leaves it moved if that fails. A name that is taken must
    // be found out before.
    let inside = free_name(inside, |name| netdevice::name_to_index(&there, name).is_ok())?;
    let addresses = here
        .dump(libc::RTM_GETADDR, &[0; ADDRESS_HEADER])
        .context(|| "list the addresses of this host")?
        .into_iter()
        .filter(|address| is_kept(address, index))
        .collect::<Vec<_>>();

    let mut request = link_header(index, 0);
    put(&mut request, libc::IFLA_IFNAME, &[inside.as_bytes(), b"\0"].concat());
    put(&mut request, libc::IFLA_NET_NS_FD, &namespace.as_raw_fd().to_ne_bytes());
    here.change(libc::RTM_NEWLINK, 0, &request)
        .context(|| format!("move it into the container as {inside:?}"))?;

    let index = netdevice::name_to_index(&there, &inside).context(|| format!("find {inside:?} inside"))?;
    for address in addresses {
        there
            .change(
                libc::RTM_NEWADDR,
                libc::NLM_F_CREATE | libc::NLM_F_EXCL,
                &moved(&address, index, &inside),
            )
            .context(|| format!("keep its address {}", address_text(&address)))?;
    }
    there.change(libc::RTM_NEWLINK, 0, &link_header(index, libc::IFF_UP)).context(|| "set it up inside")
}

/// What the kernel takes for a name (dev_valid_name), plus a number for a `%d` at its end.
fn free_name(wanted: &str, taken: impl Fn(&str) -> bool) -> Result<String> {
    let Some(stem) = wanted.strip_suffix("%d") else {
        check_name(wanted)?;
        if taken(wanted) {
            bail!("the container's network namespace has a {wanted:?} already");
        }
        return Ok(wanted.to_owned());
    };
    let mut number = 0u32;
    loop {
        let name = format!("{stem}{number}");
        check_name(&name)?;
        if !taken(&name) {
            return Ok(name);
        }
        number += 1;
    }
}

fn check_name(name: &str) -> Result<()> {
    const LONGEST: usize = libc::IFNAMSIZ - 1;
    if name.len() > LONGEST {
        bail!("the name {name:?} is longer than {LONGEST} bytes");
    }
    let bad = |b: u8| matches!(b, b'/' | b':' | b'%' | 0) || b.is_ascii_whitespace();
    if matches!(name, "" | "." | "..") || name.bytes().any(bad) {
        bail!("{name:?} cannot be a device's name");
    }
    Ok(())
}

/// struct ifinfomsg: the device, and the flags to set.
fn link_header(index: u32, flags: i32) -> Vec<u8> {
    let mut body = vec![0; 4];
    body.extend(index.to_ne_bytes());
    // The flags, and which of them are meant.
    body.extend([flags.to_ne_bytes(), flags.to_ne_bytes()].concat());
    body
}

/// The size of struct ifaddrmsg: family, prefix length, flags, scope, and the device as u32.
const ADDRESS_HEADER: usize = 8;
/// The attribute with all of an address's flags; the header has room for eight (linux/if_addr.h).
const IFA_FLAGS: u16 = 8;

/// True for a permanent address of global scope on device `index`.
fn is_kept(address: &[u8], index: u32) -> bool {
    let Some(&[_, _, flags, scope, a, b, c, d]) = address.first_chunk::<ADDRESS_HEADER>() else {
        return false;
    };
    let flags = attribute(address, IFA_FLAGS)
        .and_then(|flags| flags.first_chunk())
        .map_or(flags.into(), |flags| u32::from_ne_bytes(*flags));
    u32::from_ne_bytes([a, b, c, d]) == index
        && scope == libc::RT_SCOPE_UNIVERSE
        && flags & libc::IFA_F_PERMANENT != 0
}

/// `address` for device `index`, which is called `name`; everything else in it is as the kernel told it.
fn moved(address: &[u8], index: u32, name: &str) -> Vec<u8> {
    let (header, rest) = address.split_at(ADDRESS_HEADER);
    let mut body = [&header[..4], &index.to_ne_bytes()].concat();
    for (kind, value) in attributes(rest) {
        if kind != libc::IFA_LABEL {
            put(&mut body, kind, value);
            continue;
        }
        // An alias: the device's name and a suffix. Without a label, the kernel takes the name.
        let suffix = value.iter().position(|&b| b == b':').map_or(&b"\0"[..], |colon| &value[colon..]);
        let label = [name.as_bytes(), suffix].concat();
        if label.len() <= libc::IFNAMSIZ {
            put(&mut body, kind, &label);
        }
    }
    body
}

fn address_text(address: &[u8]) -> String {
    let value = attribute(address, libc::IFA_LOCAL).or_else(|| attribute(address, libc::IFA_ADDRESS));
    let value = value.unwrap_or_default();
    let ip = match (<[u8; 4]>::try_from(value), <[u8; 16]>::try_from(value)) {
        (Ok(v4), _) => std::net::IpAddr::from(v4).to_string(),
        (_, Ok(v6)) => std::net::IpAddr::from(v6).to_string(),
        _ => format!("{value:02x?}"),
    };
    format!("{ip}/{}", address[1])
}

fn attribute(address: &[u8], wanted: u16) -> Option<&[u8]> {
    let all = attributes(address.get(ADDRESS_HEADER..)?);
    all.into_iter().find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
}

/// Brings the loopback interface of this network namespace up (netdevice(7)).
pub fn loopback_up() -> Result<()> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
        .context(|| "open a socket for the loopback interface")?;
    // SAFETY: ifreq is plain data; all zeroes is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads an ifreq, which lives over the call.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw mut request) }.into())
        .context(|| "bring the loopback interface up")?;
    Ok(())
}

/// A unix socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnixSocket {
    /// Its inode, as /proc/PID/fd shows it.
    pub inode: u64,
    /// That of the other end; 0 where it is not connected.
    pub peer: u64,
    /// The lower 32 bits of the inode of the file that it was bound to, if it was.
    pub file: Option<u32>,
    /// It sends datagrams, each by itself.
    pub datagrams: bool,
}

/// The unix sockets of this network namespace (sock_diag(7)).
///
/// # Errors
/// ENOENT where the kernel does not tell of unix sockets (CONFIG_UNIX_DIAG).
pub fn unix_sockets() -> Result<Vec<UnixSocket>> {
    const SOCK_DIAG_BY_FAMILY: u16 = 20;
    const UDIAG_SHOW_VFS: u32 = 2;
    const UDIAG_SHOW_PEER: u32 = 4;
    /// struct unix_diag_vfs begins with the inode.
    const UNIX_DIAG_VFS: u16 = 1;
    const UNIX_DIAG_PEER: u16 = 2;
    /// struct unix_diag_msg
    const HEADER: usize = 16;
    // struct unix_diag_req: family and protocol, all states, any inode, what is shown, and a cookie.
    let mut request = vec![libc::AF_UNIX as u8, 0, 0, 0];
    for number in [u32::MAX, 0, UDIAG_SHOW_VFS | UDIAG_SHOW_PEER, u32::MAX, u32::MAX] {
        request.extend(number.to_ne_bytes());
    }
    let number = |bytes: &[u8]| bytes.first_chunk().map(|n| u32::from_ne_bytes(*n));
    let socket = |answer: &Vec<u8>| {
        let said = answer.get(HEADER..)?;
        let value =
            |wanted| attributes(said).find(|(kind, _)| *kind == wanted).and_then(|(_, value)| number(value));
        Some(UnixSocket {
            inode: number(answer.get(4..8)?)?.into(),
            peer: value(UNIX_DIAG_PEER).unwrap_or(0).into(),
            file: value(UNIX_DIAG_VFS),
            datagrams: i32::from(*answer.get(1)?) == libc::SOCK_DGRAM,
        })
    };
    let netlink = Netlink::open_for(Some(rustix::net::netlink::SOCK_DIAG))?;
    let answers = netlink.dump(SOCK_DIAG_BY_FAMILY, &request).context(|| "list unix sockets")?;
    Ok(answers.iter().filter_map(socket).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10.1.2.3/24, label eth0:a, on device 7, as the kernel lists it.
    fn listed(scope: u8, flags: u32) -> Vec<u8> {
        let mut body = vec![libc::AF_INET as u8, 24, flags as u8, scope, 0, 0, 0, 0];
        body[4..].copy_from_slice(&7u32.to_ne_bytes());
        put(&mut body, libc::IFA_LOCAL, &[10, 1, 2, 3]);
        put(&mut body, libc::IFA_LABEL, b"eth0:a\0");
        put(&mut body, IFA_FLAGS, &flags.to_ne_bytes());
        body
    }

    #[test]
    fn only_permanent_global_addresses_of_the_device_are_kept() {
        let permanent = listed(libc::RT_SCOPE_UNIVERSE, libc::IFA_F_PERMANENT | 0x200);
        assert!(is_kept(&permanent, 7));
        assert!(!is_kept(&permanent, 8));
        assert!(!is_kept(&listed(libc::RT_SCOPE_UNIVERSE, 0), 7));
        assert!(!is_kept(&listed(libc::RT_SCOPE_LINK, libc::IFA_F_PERMANENT), 7));
        assert!(!is_kept(&permanent[..7], 7));
        assert_eq!(address_text(&permanent), "10.1.2.3/24");
    }

    #[test]
    fn a_moved_address_differs_in_device_and_label() {
        let address = listed(libc::RT_SCOPE_UNIVERSE, libc::IFA_F_PERMANENT);
        let body = moved(&address, 9, "net1");
        assert_eq!(body[..4], address[..4]);
        assert!(is_kept(&body, 9));
        assert_eq!(attribute(&body, libc::IFA_LOCAL), Some(&[10, 1, 2, 3][..]));
        assert_eq!(attribute(&body, libc::IFA_LABEL), Some(&b"net1:a\0"[..]));
        let long = moved(&address, 9, "fifteen-letters");
        assert_eq!(attribute(&long, libc::IFA_LABEL), None);
    }

    #[test]
    fn names_are_checked_and_numbered() {
        let taken = |name: &str| matches!(name, "eth0" | "eth1" | "lo");
        assert_eq!(free_name("net0", taken).unwrap(), "net0");
        assert_eq!(free_name("eth%d", taken).unwrap(), "eth2");
        let refused = |name: &str| free_name(name, taken).unwrap_err().to_string();
        assert_eq!(refused("lo"), "the container's network namespace has a \"lo\" already");
        assert_eq!(refused("sixteen-letters0"), "the name \"sixteen-letters0\" is longer than 15 bytes");
        assert_eq!(free_name("fifteen-letter%d", |_| false).unwrap(), "fifteen-letter0");
        for name in ["", ".", "a/b", "a b", "a:b", "%d0", "a%db%d"] {
            assert!(refused(name).contains("cannot be"), "{name}");
        }
    }
}
