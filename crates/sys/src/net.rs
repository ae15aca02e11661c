//! Sets up a network namespace that has only a loopback interface. See netdevice(7), ip(7), ipv6(7).

mod netlink;
mod redirect;
mod route;
mod sock_diag;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SocketType, socket};

use crate::check;

pub use redirect::{Redirects, redirect_tcp};
pub use route::make_every_address_local;
pub use sock_diag::tcp_socket_user;

/// An address family: IPv4 or IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

/// Brings the loopback interface `lo` up. Needs CAP_NET_ADMIN in the network namespace.
pub fn loopback_up() -> io::Result<()> {
    let socket: OwnedFd = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    // SAFETY: ifreq is plain integers and arrays, for which zero is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (slot, byte) in request.ifr_name.iter_mut().zip(b"lo") {
        *slot = libc::c_char::try_from(*byte).map_err(io::Error::other)?;
    }
    let up = libc::IFF_UP | libc::IFF_RUNNING;
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(up).map_err(io::Error::other)?;
    // SAFETY: SIOCSIFFLAGS reads one ifreq, which lives across the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw mut request) };
    check(result.into())?;
    Ok(())
}

/// Lets a listening socket accept connections to any address and port that are redirected to it. Needs
/// CAP_NET_ADMIN in the network namespace. An IPv6 socket also accepts IPv4 connections.
pub fn set_transparent(socket: BorrowedFd<'_>, family: Family) -> io::Result<()> {
    let (level, option) = match family {
        Family::V4 => (libc::SOL_IP, libc::IP_TRANSPARENT),
        Family::V6 => (libc::SOL_IPV6, libc::IPV6_TRANSPARENT),
    };
    let on: libc::c_int = 1;
    let size = libc::socklen_t::try_from(size_of::<libc::c_int>()).map_err(io::Error::other)?;
    // SAFETY: the kernel reads one int, of the size that is passed, that lives across the call.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const on).cast(), size)
    };
    check(result.into())?;
    Ok(())
}
