//! Finds the user of a TCP socket of this machine. See sock_diag(7).

use std::io;
use std::net::{IpAddr, SocketAddr};

use rustix::net::netlink::SOCK_DIAG;

use super::netlink;

/// `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;
/// Sockets in every state.
const ALL_STATES: u32 = u32::MAX;
/// `INET_DIAG_NOCOOKIE`: the socket is identified by its addresses only.
const NO_COOKIE: u32 = u32::MAX;
/// The offset of `idiag_uid` in `struct inet_diag_msg`: four bytes, the id of the socket, three numbers.
const UID: usize = 4 + 48 + 12;

/// Returns the user id of the process that created the TCP socket with these addresses. `None` if there is
/// no such socket. The kernel finds the socket without a search through all sockets.
pub fn tcp_socket_user(own: SocketAddr, other: SocketAddr) -> io::Result<Option<u32>> {
    let response = match netlink::ask(SOCK_DIAG, BY_FAMILY, &request(own, other)) {
        Ok(response) => response,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let uid = response.get(UID..).and_then(<[u8]>::first_chunk);
    uid.map(|bytes| Some(u32::from_ne_bytes(*bytes))).ok_or(io::ErrorKind::InvalidData.into())
}

/// Encodes `struct inet_diag_req_v2`. An IPv6 socket with IPv4 addresses is found by these.
fn request(own: SocketAddr, other: SocketAddr) -> Vec<u8> {
    let (own_ip, other_ip) = (own.ip().to_canonical(), other.ip().to_canonical());
    let family = if own_ip.is_ipv4() { AF_INET } else { AF_INET6 };
    let mut request = vec![family, IPPROTO_TCP, 0, 0];
    request.extend(ALL_STATES.to_ne_bytes());
    request.extend(own.port().to_be_bytes());
    request.extend(other.port().to_be_bytes());
    for ip in [own_ip, other_ip] {
        let mut bytes = [0; 16];
        let octets = match ip {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        bytes.iter_mut().zip(octets).for_each(|(to, from)| *to = from);
        request.extend(bytes);
    }
    request.extend(0_u32.to_ne_bytes()); // any interface
    request.extend(NO_COOKIE.to_ne_bytes());
    request.extend(NO_COOKIE.to_ne_bytes());
    request
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn tcp_socket_user_finds_the_user_of_the_own_process() {
        let own = rustix::process::geteuid().as_raw();
        for address in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let port = listener.local_addr().unwrap().port();
            let to = if address == "[::]:0" { "127.0.0.1" } else { address };
            let to = to.trim_end_matches(":0");
            let client = TcpStream::connect(format!("{to}:{port}")).unwrap();
            let (accepted, peer) = listener.accept().unwrap();
            let local = accepted.local_addr().unwrap();
            assert_eq!(tcp_socket_user(peer, local).unwrap(), Some(own), "{address}");
            drop(client);
        }
    }

    #[test]
    fn tcp_socket_user_is_none_for_addresses_without_a_socket() {
        let nobody = "127.0.0.1:1".parse().unwrap();
        assert_eq!(tcp_socket_user(nobody, nobody).unwrap(), None);
    }
}
