//! Builds the network of a box: every address is local, and init sends listening sockets to the supervisor.
//!
//! A socket stays in the network namespace in which it was created, so its owner outside the box accepts
//! the connections of the box. The local address of an accepted socket is the address that the box
//! connected to.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use belljar_sys::net::{self, Family, Redirects};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrAny, SocketFlags, SocketType, sockopt};

use crate::plan::{DNS, Event, NetPlan, Socket, Stage};
use crate::{Context, Failure, wire};

/// The first port that a process without privileges can bind; no process of a box has privileges.
const FIRST_UNPRIVILEGED: u16 = 1024;

/// The maximum number of connections that wait to be accepted; equal to the kernel's limit.
const BACKLOG: i32 = 4096;

/// Builds the network of the box and sends its sockets to the supervisor.
pub(crate) fn open(plan: &NetPlan, control: BorrowedFd<'_>) -> Result<(), Failure> {
    let family = route().context(Stage::Net, || "cannot make every address local".to_owned())?;
    let sockets = listen(plan, family)?;
    for chunk in sockets.chunks(wire::MAX_DESCRIPTORS) {
        let names = chunk.iter().map(|(name, _)| *name).collect();
        let with: Vec<BorrowedFd<'_>> = chunk.iter().map(|(_, socket)| socket.as_fd()).collect();
        wire::send(control, &Event::Sockets(names), &with)
            .context(Stage::Protocol, || "cannot send the sockets to the supervisor".to_owned())?;
    }
    Ok(())
}

/// Makes every IP address local, so that all connections reach the listening sockets. Returns the
/// family for the sockets: IPv6, or IPv4 if IPv6 is disabled.
fn route() -> io::Result<Family> {
    net::make_every_address_local(Family::V4)?;
    match net::make_every_address_local(Family::V6) {
        Ok(()) => Ok(Family::V6),
        // IPv6 is disabled on the kernel command line, not built, or disabled for new namespaces.
        Err(error) if is_disabled(&error) => Ok(Family::V4),
        Err(error) => Err(error),
    }
}

/// Returns whether an error means that the kernel does not provide an address family.
fn is_disabled(error: &io::Error) -> bool {
    let errnos = [Errno::OPNOTSUPP, Errno::AFNOSUPPORT, Errno::ACCESS, Errno::NODEV, Errno::INVAL];
    Errno::from_io_error(error).is_some_and(|errno| errnos.contains(&errno))
}

/// Creates the listening sockets of the plan and the redirects to them.
fn listen(plan: &NetPlan, family: Family) -> Result<Vec<(Socket, OwnedFd)>, Failure> {
    let mut sockets = Vec::new();
    let mut redirects = Redirects { excluded: vec![DNS], ..Redirects::default() };
    let at = |port: u16| move || format!("cannot listen on port {port}");
    let udp = bind(family, SocketType::DGRAM, DNS).context(Stage::Net, at(DNS))?;
    sockets.push((Socket::DnsUdp, udp));
    sockets.push((Socket::DnsTcp, tcp(family, DNS).context(Stage::Net, at(DNS))?));
    for port in plan.ports.iter().copied().filter(|port| *port != DNS) {
        let socket = if port < FIRST_UNPRIVILEGED {
            redirects.excluded.push(port);
            tcp(family, port).context(Stage::Net, at(port))?
        } else {
            // A redirect instead of a bind lets a program of the box bind this port on the loopback.
            let (socket, to) = transparent(family).context(Stage::Net, at(port))?;
            redirects.ports.push((port, to));
            socket
        };
        sockets.push((Socket::Tcp(port), socket));
    }
    if plan.any_port {
        let doing = || "cannot listen on every port".to_owned();
        let (socket, to) = transparent(family).context(Stage::Net, doing)?;
        redirects.others = Some(to);
        sockets.push((Socket::Any, socket));
    }
    if plan.any_port || !redirects.ports.is_empty() {
        redirect(&redirects)?;
    }
    Ok(sockets)
}

fn redirect(redirects: &Redirects) -> Result<(), Failure> {
    // With a SYN cookie a connection has no socket when its third packet arrives, and that packet is not
    // redirected. Failure is ignored: cookies need a SYN flood, which only the box can send to itself.
    std::fs::write("/proc/sys/net/ipv4/tcp_syncookies", "0").ok();
    net::redirect_tcp(redirects)
        .context(Stage::Redirect, || "cannot redirect connections".to_owned())
}

/// Creates a transparent listening socket for redirected connections, and returns it with its port.
/// Returns the socket and its port.
fn transparent(family: Family) -> io::Result<(OwnedFd, u16)> {
    let socket = new(family, SocketType::STREAM)?;
    net::set_transparent(socket.as_fd(), family)?;
    rustix::net::bind(&socket, &unspecified(family, 0))?;
    rustix::net::listen(&socket, BACKLOG)?;
    let name: SocketAddrAny = rustix::net::getsockname(&socket)?;
    let port = SocketAddr::try_from(name).map_err(io::Error::from)?.port();
    Ok((socket, port))
}

fn tcp(family: Family, port: u16) -> io::Result<OwnedFd> {
    let socket = bind(family, SocketType::STREAM, port)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

fn bind(family: Family, kind: SocketType, port: u16) -> io::Result<OwnedFd> {
    let socket = new(family, kind)?;
    rustix::net::bind(&socket, &unspecified(family, port))?;
    Ok(socket)
}

fn new(family: Family, kind: SocketType) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let domain = match family {
        Family::V4 => AddressFamily::INET,
        Family::V6 => AddressFamily::INET6,
    };
    let socket = rustix::net::socket_with(domain, kind, flags, None)?;
    if family == Family::V6 {
        sockopt::set_ipv6_v6only(&socket, false)?;
    }
    Ok(socket)
}

/// Returns the unspecified address of a family with this port.
fn unspecified(family: Family, port: u16) -> SocketAddr {
    match family {
        Family::V4 => (Ipv4Addr::UNSPECIFIED, port).into(),
        Family::V6 => (Ipv6Addr::UNSPECIFIED, port).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv6_is_skipped_only_when_the_kernel_lacks_it() {
        let error = |errno: Errno| io::Error::from(errno);
        assert!(is_disabled(&error(Errno::ACCESS)), "EACCES means disable_ipv6 is set");
        assert!(is_disabled(&error(Errno::AFNOSUPPORT)) && is_disabled(&error(Errno::OPNOTSUPP)));
        assert!(!is_disabled(&error(Errno::PERM)), "a missing privilege is an error");
        assert!(!is_disabled(&error(Errno::NOMEM)) && !is_disabled(&io::ErrorKind::Other.into()));
    }
}
