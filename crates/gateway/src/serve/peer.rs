//! Finds the user of a process that connected over the loopback interface.
//!
//! Every process of the machine can connect there, also those of other users. The kernel finds the socket of
//! a connection with its user. A kernel without this query lists all sockets in `/proc/net/tcp`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use belljar_engine::server::client_user;

/// Returns whether the client of a loopback connection runs as the user of the server. Connections of other
/// machines have no user and are not checked.
pub(super) async fn is_own_user(peer: SocketAddr, local: SocketAddr) -> bool {
    if !peer.ip().to_canonical().is_loopback() {
        return true;
    }
    let user = match client_user(peer, local) {
        Ok(user) => user,
        Err(_) => {
            tokio::task::spawn_blocking(move || listed_user(peer, local)).await.unwrap_or(None)
        }
    };
    user == Some(rustix::process::geteuid().as_raw())
}

/// Reads the user from the tables of all sockets, whose length is the number of sockets.
fn listed_user(peer: SocketAddr, local: SocketAddr) -> Option<u32> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(std::fs::read_to_string);
    tables.into_iter().flatten().find_map(|table| user_of(&table, peer, local))
}

/// Finds the socket of the client in a table of the kernel, and returns its user.
fn user_of(table: &str, peer: SocketAddr, local: SocketAddr) -> Option<u32> {
    table.lines().skip(1).find_map(|line| {
        let mut columns = line.split_whitespace().skip(1);
        let (own, other) = (address(columns.next()?)?, address(columns.next()?)?);
        // The columns st, queues, timer and retransmissions.
        let user = columns.nth(4)?;
        (same(own, peer) && same(other, local)).then(|| user.parse().ok()).flatten()
    })
}

fn same(a: SocketAddr, b: SocketAddr) -> bool {
    a.port() == b.port() && a.ip().to_canonical() == b.ip().to_canonical()
}

/// Parses an address of the table: hexadecimal words in the byte order of the machine, `:`, and the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let word = |at: usize| {
        let digits = address.get(at * 8..at * 8 + 8)?;
        u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes)
    };
    let ip = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?];
            IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(words.concat()).ok()?))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1B9E 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
   1: 0100007F:D431 0100007F:1B9E 01 00000000:00000000 00:00000000 00000000  1000        0 2 1 0 20 4 30 10 -1
   2: 0100007F:1B9E 0100007F:D431 01 00000000:00000000 00:00000000 00000000     0        0 3 1 0 20 4 30 10 -1
   3: 00000000000000000000000001000000:D432 00000000000000000000000001000000:1B9E 01 0:0 00:0 0 7 0 4
";

    #[test]
    #[cfg(target_endian = "little")]
    fn user_of_finds_the_socket_of_the_client_and_not_that_of_the_server() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let server = at("127.0.0.1:7070");
        assert_eq!(user_of(TABLE, at("127.0.0.1:54321"), server), Some(1000));
        let mapped = at("[::ffff:127.0.0.1]:54321");
        assert_eq!(user_of(TABLE, mapped, at("[::ffff:127.0.0.1]:7070")), Some(1000));
        assert_eq!(user_of(TABLE, at("[::1]:54322"), at("[::1]:7070")), Some(7));
        assert_eq!(user_of(TABLE, at("127.0.0.1:54321"), at("127.0.0.1:7071")), None);
        assert_eq!(user_of(TABLE, at("127.0.0.1:54320"), server), None);
        assert_eq!(user_of("", at("127.0.0.1:54321"), server), None);
    }

    #[tokio::test]
    async fn own_process_on_the_loopback_interface_is_recognised() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = tokio::net::TcpListener::bind(address).await else { continue };
            let local = listener.local_addr().unwrap();
            let client = tokio::net::TcpStream::connect(local).await.unwrap();
            let (_stream, peer) = listener.accept().await.unwrap();
            assert!(is_own_user(peer, local).await, "{address}");
            let own = Some(rustix::process::geteuid().as_raw());
            assert_eq!(listed_user(peer, local), own, "a kernel without the query");
            drop(client);
        }
        let other = "192.0.2.1:1".parse().unwrap();
        assert!(is_own_user(other, other).await, "another machine has no user here");
        let nobody = "127.0.0.1:1".parse().unwrap();
        assert!(!is_own_user(nobody, nobody).await, "a socket that does not exist");
    }
}
