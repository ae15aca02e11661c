//! The sockets that listen inside a box.

use std::os::fd::OwnedFd;

use belljar_init::plan::Socket;

/// Sockets that were made inside a box, all of them non-blocking. What they accept or receive is what
/// the box dialled: the local address of an accepted connection is the one that was asked for. Closed,
/// the box is refused.
#[derive(Debug)]
pub struct Sockets {
    /// Each port that was asked for, with its socket.
    pub tcp: Vec<(u16, OwnedFd)>,
    pub dns_udp: OwnedFd,
    pub dns_tcp: OwnedFd,
    /// Gets the connections to every port that no other socket has, if that was asked for.
    pub any: Option<OwnedFd>,
}

/// Sockets as they come from init, a few at a time.
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

    /// `None`: there are none, as for a box without a network.
    pub(crate) fn finish(self) -> Option<Sockets> {
        let Self { tcp, dns_udp, dns_tcp, any } = self;
        Some(Sockets { tcp, dns_udp: dns_udp?, dns_tcp: dns_tcp?, any })
    }
}
