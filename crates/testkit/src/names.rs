//! A DNS server for tests, which records its queries.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};

/// The DNS record type of IPv4 addresses.
pub const A: u16 = 1;
/// The DNS record type of IPv6 addresses.
pub const AAAA: u16 = 28;

/// A DNS server on loopback, for the setting `[dns] servers`. Its records have a TTL of 0, so they
/// are not cached.
#[derive(Debug, Clone)]
pub struct NameServer {
    address: SocketAddr,
    queries: Arc<Mutex<Vec<(String, u16)>>>,
}

impl NameServer {
    /// Starts a server. `answer` returns the addresses of a name, given the number of earlier queries for
    /// the same name and record type.
    pub fn start<F>(answer: F) -> Self
    where
        F: Fn(&str, usize) -> Vec<IpAddr> + Send + 'static,
    {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("cannot bind a socket");
        let address = socket.local_addr().expect("address of the socket");
        let queries = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&queries);
        std::thread::spawn(move || {
            let mut query = [0; 1500];
            while let Ok((length, from)) = socket.recv_from(&mut query) {
                let Some((name, kind, end)) = question(query.get(..length).unwrap_or_default())
                else {
                    continue;
                };
                let before = {
                    let mut queries = kept.lock().unwrap_or_else(PoisonError::into_inner);
                    let before = queries.iter().filter(|known| **known == (name.clone(), kind));
                    let before = before.count();
                    queries.push((name.clone(), kind));
                    before
                };
                let found = answer(&name, before);
                let reply = reply(query.get(..end).unwrap_or_default(), kind, &found);
                socket.send_to(&reply, from).ok(); // the client can retry
            }
        });
        Self { address, queries }
    }

    /// Returns the address of the DNS server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the names and record types of all DNS queries so far.
    pub fn queries(&self) -> Vec<(String, u16)> {
        self.queries.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Parses the name and record type of a DNS query. Returns them with the end offset of the
/// question.
fn question(query: &[u8]) -> Option<(String, u16, usize)> {
    let (mut at, mut labels) = (12, Vec::new());
    loop {
        let length = usize::from(*query.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(query.get(at..at + length)?).to_ascii_lowercase());
        at += length;
    }
    let kind = u16::from_be_bytes([*query.get(at)?, *query.get(at + 1)?]);
    Some((labels.join("."), kind, at + 4))
}

/// Encodes a DNS response with the addresses that match the record type `kind`.
fn reply(query: &[u8], kind: u16, found: &[IpAddr]) -> Vec<u8> {
    let fits = |address: &&IpAddr| match address {
        IpAddr::V4(_) => kind == A,
        IpAddr::V6(_) => kind == AAAA,
    };
    let found: Vec<&IpAddr> = found.iter().filter(fits).collect();
    let mut reply = query.to_vec();
    let count = u8::try_from(found.len()).expect("a few addresses");
    // Flags: response, recursion available. Counts: one question, `count` answers.
    reply.splice(2..12, [0x81, 0x80, 0, 1, 0, count, 0, 0, 0, 0]);
    for address in found {
        let bytes = match address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        reply.extend([0xc0, 12]); // pointer to the name of the question
        reply.extend(kind.to_be_bytes());
        reply.extend([0, 1, 0, 0, 0, 0, 0]); // class IN, TTL 0, high byte of the length
        reply.push(u8::try_from(bytes.len()).expect("an address"));
        reply.extend(bytes);
    }
    reply
}
