//! Networks of clients: an address, or an address with the length of its prefix.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A network, written `10.0.0.0/8` or `2001:db8::/32`. A single address is a network too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Network {
    /// The first address.
    first: IpAddr,
    prefix: u32,
}

/// A text is not a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid network; write an address or a network, such as `192.0.2.7` or `10.0.0.0/8`")]
pub(crate) struct BadNetwork;

impl Network {
    /// Returns whether an address is in the network. An IPv4 address in the form of IPv6 is an IPv4 address.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.first.is_ipv4() && masked(address, self.prefix) == self.first
    }
}

/// The number of bits of addresses of the same kind.
const fn bits(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// Returns the first address of the network with this prefix.
fn masked(address: IpAddr, prefix: u32) -> IpAddr {
    let rest = bits(address).saturating_sub(prefix);
    // A shift by all bits overflows.
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(rest).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask))
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(rest).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
        }
    }
}

impl FromStr for Network {
    type Err = BadNetwork;

    fn from_str(text: &str) -> Result<Self, BadNetwork> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| BadNetwork)?;
        let max = bits(address);
        let prefix = match prefix {
            None => max,
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().map_err(|_| BadNetwork)?
            }
            Some(_) => return Err(BadNetwork),
        };
        // A network of IPv4 addresses in the form of IPv6 would contain no address.
        if prefix > max || address.to_canonical() != address {
            return Err(BadNetwork);
        }
        Ok(Self { first: masked(address, prefix), prefix })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_contains_the_addresses_with_its_prefix() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.1"),
            ("10.1.2.3/8", "10.0.0.0", "9.255.255.255"),
            ("192.0.2.7", "192.0.2.7", "192.0.2.6"),
            ("192.0.2.7", "::ffff:192.0.2.7", "::ffff:192.0.2.6"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("::/0", "2001:db8::1", "10.0.0.1"),
            ("2001:db8::/33", "2001:db8:7fff::1", "2001:db8:8000::1"),
            ("::1", "::1", "::2"),
        ] {
            let parsed: Network = network.parse().unwrap();
            assert!(parsed.contains(inside.parse().unwrap()), "{network} {inside}");
            assert!(!parsed.contains(outside.parse().unwrap()), "{network} {outside}");
            assert_eq!(parsed.to_string().parse(), Ok(parsed));
        }
        let invalid = [
            "",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/",
            "10.0.0/8",
            "a/8",
            "10.0.0.0/+8",
            "::ffff:10.0.0.0/104",
            "10.0.0.0/8/8",
        ];
        for text in invalid {
            assert_eq!(text.parse::<Network>(), Err(BadNetwork), "{text}");
        }
    }
}
