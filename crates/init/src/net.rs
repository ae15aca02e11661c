//! The network of a box: every address is local, and the sockets that listen go to the supervisor.
//!
//! A socket stays in the network namespace that it was made in, so whoever holds it outside accepts
//! what the box dials. Whatever address that was is the accepted socket's own address.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use belljar_sys::net::{self, Family, Redirects};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrAny, SocketFlags, SocketType, sockopt};

use crate::plan::{DNS, Event, NetPlan, Socket, Stage};
use crate::{During, Failure, wire};

/// Ports below this one are for the privileged, which nobody in a box is.
const FIRST_FREE: u16 = 1024;

/// Connections that wait to be accepted; the kernel's own limit is the same.
const BACKLOG: i32 = 4096;

/// Builds the network and hands its sockets over.
pub(crate) fn open(plan: &NetPlan, control: BorrowedFd<'_>) -> Result<(), Failure> {
    let family = route().during(Stage::Net, || "make every address local".to_owned())?;
    let sockets = listen(plan, family)?;
    for some in sockets.chunks(wire::MAX_DESCRIPTORS) {
        let names = some.iter().map(|(name, _)| *name).collect();
        let with: Vec<BorrowedFd<'_>> = some.iter().map(|(_, socket)| socket.as_fd()).collect();
        wire::send(control, &Event::Sockets(names), &with)
            .during(Stage::Protocol, || "hand the sockets over".to_owned())?;
    }
    Ok(())
}

/// The family of sockets that take everything: IPv6, unless this machine goes without.
fn route() -> io::Result<Family> {
    net::make_every_address_local(Family::V4)?;
    match net::make_every_address_local(Family::V6) {
        Ok(()) => Ok(Family::V6),
        // Switched off on the command line of the kernel, not built, or off for new namespaces.
        Err(error) if is_off(&error) => Ok(Family::V4),
        Err(error) => Err(error),
    }
}

fn is_off(error: &io::Error) -> bool {
    let off = [Errno::OPNOTSUPP, Errno::AFNOSUPPORT, Errno::ACCESS, Errno::NODEV, Errno::INVAL];
    Errno::from_io_error(error).is_some_and(|errno| off.contains(&errno))
}

fn listen(plan: &NetPlan, family: Family) -> Result<Vec<(Socket, OwnedFd)>, Failure> {
    let mut sockets = Vec::new();
    let mut redirects = Redirects { excluded: vec![DNS], ..Redirects::default() };
    let at = |port: u16| move || format!("listen on port {port}");
    let udp = bind(family, SocketType::DGRAM, DNS).during(Stage::Net, at(DNS))?;
    sockets.push((Socket::DnsUdp, udp));
    sockets.push((Socket::DnsTcp, tcp(family, DNS).during(Stage::Net, at(DNS))?));
    for port in plan.ports.iter().copied().filter(|port| *port != DNS) {
        let socket = if port < FIRST_FREE {
            redirects.excluded.push(port);
            tcp(family, port).during(Stage::Net, at(port))?
        } else {
            // A program of the box may want to listen there itself, on its loopback.
            let (socket, to) = transparent(family).during(Stage::Net, at(port))?;
            redirects.ports.push((port, to));
            socket
        };
        sockets.push((Socket::Tcp(port), socket));
    }
    if plan.any_port {
        let doing = || "listen on every port".to_owned();
        let (socket, to) = transparent(family).during(Stage::Net, doing)?;
        redirects.others = Some(to);
        sockets.push((Socket::Any, socket));
    }
    if plan.any_port || !redirects.ports.is_empty() {
        redirect(&redirects)?;
    }
    Ok(sockets)
}

fn redirect(redirects: &Redirects) -> Result<(), Failure> {
    // A connection that was answered with a cookie has no socket when its third packet comes, which
    // is not redirected. Best effort: it takes a flood, from the box against itself.
    std::fs::write("/proc/sys/net/ipv4/tcp_syncookies", "0").ok();
    net::redirect_tcp(redirects).during(Stage::Redirect, || "redirect connections".to_owned())
}

/// A socket that gets what is redirected to it, and the port that it has for this.
fn transparent(family: Family) -> io::Result<(OwnedFd, u16)> {
    let socket = new(family, SocketType::STREAM)?;
    net::set_transparent(socket.as_fd(), family)?;
    rustix::net::bind(&socket, &everywhere(family, 0))?;
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
    rustix::net::bind(&socket, &everywhere(family, port))?;
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

fn everywhere(family: Family, port: u16) -> SocketAddr {
    match family {
        Family::V4 => (Ipv4Addr::UNSPECIFIED, port).into(),
        Family::V6 => (Ipv6Addr::UNSPECIFIED, port).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_missing_protocol_is_done_without() {
        let error = |errno: Errno| io::Error::from(errno);
        assert!(is_off(&error(Errno::ACCESS)), "disable_ipv6 of the namespace");
        assert!(is_off(&error(Errno::AFNOSUPPORT)) && is_off(&error(Errno::OPNOTSUPP)));
        assert!(!is_off(&error(Errno::PERM)), "a right that is missing is an error");
        assert!(!is_off(&error(Errno::NOMEM)) && !is_off(&io::ErrorKind::Other.into()));
    }
}
