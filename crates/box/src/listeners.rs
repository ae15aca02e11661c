//! The listening sockets of a box's network.

use std::os::fd::OwnedFd;

use belljar_init::plan::Socket;

/// The listening sockets of a box, created in its network namespace. All are non-blocking.
///
/// They accept the connections that programs in the box open. The local address of an accepted connection
/// is the address that the program dialled. After a socket is closed, connections to it are refused.
#[derive(Debug)]
pub struct Sockets {
    /// The requested TCP ports, each with its listening socket.
    pub tcp: Vec<(u16, OwnedFd)>,
    pub dns_udp: OwnedFd,
    pub dns_tcp: OwnedFd,
    /// The socket for connections to all other TCP ports, if requested.
    pub any: Option<OwnedFd>,
}

/// The listening sockets received from init so far; init sends a few per message.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    tcp: Vec<(u16, OwnedFd)>,
    dns_udp: Option<OwnedFd>,
    dns_tcp: Option<OwnedFd>,
    any: Option<OwnedFd>,
}

impl Collected {
    pub(crate) fn add(&mut self, names: Vec<Socket>, descriptors: Vec<OwnedFd>) {
        for (name, descriptor) in names.into_iter().zip(descriptors) {
            match name {
                Socket::DnsUdp => self.dns_udp = Some(descriptor),
                Socket::DnsTcp => self.dns_tcp = Some(descriptor),
                Socket::Tcp(port) => self.tcp.push((port, descriptor)),
                Socket::Any => self.any = Some(descriptor),
            }
        }
    }

    /// Returns all listening sockets of the box, or `None` for a box without a network.
    pub(crate) fn finish(self) -> Option<Sockets> {
        let Self { tcp, dns_udp, dns_tcp, any } = self;
        Some(Sockets { tcp, dns_udp: dns_udp?, dns_tcp: dns_tcp?, any })
    }
}
