//! The special ranges of IP addresses, and the names that can only exist in a private network.
//!
//! The table lists the ranges outside the public internet (IANA's special-purpose registries). An
//! IPv6 address that contains an IPv4 address is also checked by that IPv4 address (A07).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Hostname;

/// The kind of an IP address outside the public internet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Range {
    /// An address of a cloud metadata service, which hands out credentials; no rule can allow it
    /// (A06).
    Metadata,
    /// An address of a private network; a rule that names the target can allow it.
    Local,
    Loopback,
    LinkLocal,
    /// An address of the machine that the broker runs on.
    Own,
    Multicast,
    Unspecified,
    /// An address reserved for documentation, tests or tunnels; includes the addresses of names
    /// inside the box.
    Reserved,
}

impl Range {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Metadata => "a metadata service, which no rule can allow",
            Self::Local => "in a private network",
            Self::Loopback => "the loopback of this machine",
            Self::LinkLocal => "link-local",
            Self::Own => "an address of this machine",
            Self::Multicast => "a multicast address",
            Self::Unspecified => "the unspecified address",
            Self::Reserved => "reserved for special use",
        }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The IP addresses of cloud metadata services, which return credentials of the machine.
const METADATA: [IpAddr; 11] = [
    v4(169, 254, 169, 254), // AWS, Google, Azure, DigitalOcean, OpenStack, …
    v4(169, 254, 170, 2),   // AWS ECS
    v4(169, 254, 170, 23),  // AWS EKS
    v4(169, 254, 42, 42),   // Scaleway
    v4(100, 100, 100, 200), // Alibaba
    v4(192, 0, 0, 192),     // Oracle
    v4(168, 63, 129, 16),   // Azure's wire server; looks public
    v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254]), // AWS
    v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23]), // AWS EKS
    v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254]), // Google
    v6([0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42]), // Scaleway
];

/// The host names of cloud metadata services; all names below them count as well.
const METADATA_NAMES: [&str; 12] = [
    "metadata",
    "metadata.google.internal",
    "metadata.goog",
    "metadata.internal",
    "metadata.azure.internal",
    "metadata.azure.com",
    "metadata.tencentyun.com",
    "metadata.platformequinix.com",
    "metadata.packet.net",
    "instance-data",
    "instance-data.ec2.internal",
    "rancher-metadata",
];

/// Returns whether a name belongs to a metadata service.
pub fn is_metadata_name(name: &Hostname) -> bool {
    METADATA_NAMES.iter().any(|known| name.is_within(known))
}

const fn v4(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

const fn v6(s: [u16; 8]) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]))
}

/// Returns the special range of an address; `None` for the public internet.
pub fn range(address: IpAddr) -> Option<Range> {
    if METADATA.contains(&address) {
        return Some(Range::Metadata);
    }
    match address {
        IpAddr::V4(address) => range_v4(address),
        IpAddr::V6(address) => match embedded_v4(address) {
            Some(inside) => range(inside.into()).or_else(|| range_of_embedding(address)),
            None => range_v6(address),
        },
    }
}

/// Returns the IPv4 address that an IPv6 address contains, if any.
pub fn embedded(address: IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V4(_) => None,
        IpAddr::V6(address) => embedded_v4(address),
    }
}

fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let low = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None, // `::` and `::1` themselves
        // Compatible (RFC 4291 §2.5.5.1), mapped (§2.5.5.2), translated (RFC 2765), NAT64 (RFC
        // 6052).
        [0, 0, 0, 0, 0, 0, a, b]
        | [0, 0, 0, 0, 0, 0xffff, a, b]
        | [0, 0, 0, 0, 0xffff, 0, a, b]
        | [0x64, 0xff9b, 0, 0, 0, 0, a, b] => Some(low(a, b)),
        // 6to4 (RFC 3056).
        [0x2002, a, b, ..] => Some(low(a, b)),
        // ISATAP (RFC 5214), under any prefix.
        [_, _, _, _, 0 | 0x200, 0x5efe, a, b] => Some(low(a, b)),
        _ => None,
    }
}

/// Returns the range of an IPv6 address that embeds a public IPv4 address.
fn range_of_embedding(address: Ipv6Addr) -> Option<Range> {
    match address.segments() {
        // Only NAT64 leads to the public internet. A kernel or a tunnel translates the other forms,
        // and no public name has such an address.
        [0x64, 0xff9b, ..] => None,
        _ => Some(Range::Reserved),
    }
}

fn range_v4(address: Ipv4Addr) -> Option<Range> {
    Some(match address.octets() {
        [0, 0, 0, 0] => Range::Unspecified,
        [127, ..] => Range::Loopback,
        [169, 254, ..] => Range::LinkLocal,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..] => Range::Local,
        [224..=239, ..] => Range::Multicast,
        [0, ..]
        | [192, 0, 0 | 2, _]
        | [192, 88, 99, _]
        | [198, 18..=19, ..]
        | [198, 51, 100, _]
        | [203, 0, 113, _]
        | [240..=255, ..] => Range::Reserved,
        _ => return None,
    })
}

fn range_v6(address: Ipv6Addr) -> Option<Range> {
    Some(match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => Range::Unspecified,
        [0, 0, 0, 0, 0, 0, 0, 1] => Range::Loopback,
        [0xfe80..=0xfebf, ..] => Range::LinkLocal,
        [0xfc00..=0xfdff, ..] => Range::Local,
        [0xff00..=0xffff, ..] => Range::Multicast,
        // Teredo, benchmarks, ORCHID and the rest of the registry's block; documentation.
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Range::Reserved,
        [0x2000..=0x3fff, ..] => return None,
        // Nothing else has been assigned as global unicast (RFC 4291 §2.4).
        _ => Range::Reserved,
    })
}

/// Top-level domains that the public DNS root will never contain (RFC 6762, RFC 8375, ICANN's
/// resolution on `.internal`, and those that ICANN refused to delegate because private networks use
/// them).
const PRIVATE: [&str; 12] = [
    "corp",
    "home",
    "home.arpa",
    "internal",
    "intranet",
    "invalid",
    "lan",
    "local",
    "localdomain",
    "localhost",
    "mail",
    "private",
];

/// Returns whether names below a domain can only exist in a private network, at least some of them.
pub fn has_private_names(parent: &Hostname) -> bool {
    let is_below =
        |known: &str| known.strip_suffix(parent.as_str()).is_some_and(|rest| rest.ends_with('.'));
    PRIVATE.iter().any(|known| parent.is_within(known) || is_below(known))
}

/// Returns whether a name can only exist in a private network, such as a name without a dot.
pub fn is_private_name(name: &Hostname) -> bool {
    !name.as_str().contains('.') || PRIVATE.iter().any(|known| name.is_within(known))
}
