//! The addresses of this machine: what listens on them often trusts whoever comes from here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// All of them, as far as the kernel tells.
pub(super) fn addresses() -> Vec<IpAddr> {
    let trie = std::fs::read_to_string("/proc/self/net/fib_trie").unwrap_or_default();
    let six = std::fs::read_to_string("/proc/self/net/if_inet6").unwrap_or_default();
    let mut all: Vec<IpAddr> = four(&trie).map(IpAddr::V4).collect();
    all.extend(six.lines().filter_map(in_hex).map(IpAddr::V6));
    all.sort_unstable();
    all.dedup();
    all
}

/// `/32 host LOCAL` stands below the address that it is about.
fn four(trie: &str) -> impl Iterator<Item = Ipv4Addr> {
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

/// 32 digits, then what is not asked for here.
fn in_hex(line: &str) -> Option<Ipv6Addr> {
    let mut octets = [0; 16];
    hex::decode_to_slice(line.split_whitespace().next()?, &mut octets).ok()?;
    Some(Ipv6Addr::from(octets))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a03_the_addresses_of_this_machine_are_known() {
        let found = addresses();
        assert!(found.contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)), "{found:?}");
    }

    #[test]
    fn only_local_addresses_are_taken_from_the_table() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.0.0.0\n        /24 link UNICAST\n     \
                    |-- 10.0.0.7\n        /32 host LOCAL\n     |-- 10.0.0.255\n        /32 link BROADCAST\n";
        assert_eq!(four(trie).collect::<Vec<_>>(), [Ipv4Addr::new(10, 0, 0, 7)]);
        let line = "fe800000000000000000000000000001 02 40 20 80     eth0";
        assert_eq!(in_hex(line), Some("fe80::1".parse().unwrap()));
    }
}
