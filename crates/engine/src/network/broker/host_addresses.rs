//! Lists the IP addresses of the host. Services that listen on them often trust local clients.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns all IP addresses of the host that the kernel lists.
pub(in crate::network) fn addresses() -> Vec<IpAddr> {
    let ipv4 = std::fs::read_to_string("/proc/self/net/fib_trie").unwrap_or_default();
    let ipv6 = std::fs::read_to_string("/proc/self/net/if_inet6").unwrap_or_default();
    let mut all: Vec<IpAddr> = ipv4_addresses(&ipv4).map(IpAddr::V4).collect();
    all.extend(ipv6.lines().filter_map(ipv6_address).map(IpAddr::V6));
    all.sort_unstable();
    all.dedup();
    all
}

/// Parses `/proc/net/fib_trie`. The line `/32 host LOCAL` follows each local address.
fn ipv4_addresses(trie: &str) -> impl Iterator<Item = Ipv4Addr> {
    let mut last = None;
    trie.lines().filter_map(move |line| {
        let line = line.trim_start();
        if let Some((_, address)) = line.split_once("-- ") {
            last = address.trim().parse().ok();
            return None;
        }
        line.contains("host LOCAL").then_some(last).flatten()
    })
}

/// Parses a line of `/proc/net/if_inet6`, which starts with the address as 32 hexadecimal digits.
fn ipv6_address(line: &str) -> Option<Ipv6Addr> {
    let mut octets = [0; 16];
    hex::decode_to_slice(line.split_whitespace().next()?, &mut octets).ok()?;
    Some(Ipv6Addr::from(octets))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a03_host_addresses_include_loopback() {
        let found = addresses();
        assert!(found.contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)), "{found:?}");
    }

    #[test]
    fn host_address_parsers_return_only_local_addresses() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.0.0.0\n        /24 link UNICAST\n     \
                    |-- 10.0.0.7\n        /32 host LOCAL\n     |-- 10.0.0.255\n        /32 link BROADCAST\n";
        assert_eq!(ipv4_addresses(trie).collect::<Vec<_>>(), [Ipv4Addr::new(10, 0, 0, 7)]);
        let line = "fe800000000000000000000000000001 02 40 20 80     eth0";
        assert_eq!(ipv6_address(line), Some("fe80::1".parse().unwrap()));
    }
}
