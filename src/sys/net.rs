//! Network interfaces: the loopback of a new namespace.

use super::check;
use crate::error::{Context, Result};
use rustix::fd::AsRawFd;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

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

/// Moves the network device `name` into `namespace`, as `inside`.
pub fn move_device(name: &str, inside: &str, namespace: &rustix::fd::OwnedFd) -> Result<()> {
    let _ = (inside, namespace);
    crate::bail!("move network device {name}: not built yet")
}
