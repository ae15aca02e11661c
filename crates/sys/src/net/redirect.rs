//! Redirects TCP connections to listening sockets on other ports, with nf_tables. See nft(8), `tproxy`.
//!
//! ```text
//! chain prerouting {
//!     type filter hook prerouting priority mangle
//!     meta l4proto != tcp accept
//!     tcp flags & syn == 0 accept           later packets already belong to a socket
//!     ip daddr 127.0.0.0/8 accept           and ::1: services inside the namespace
//!     tcp dport EXCLUDED accept
//!     tcp dport PORT tproxy to :TO accept
//!     tproxy to :OTHERS accept
//! }
//! ```
//! Connections are not tracked and addresses are not rewritten: the local address of an accepted socket
//! is the address and port that the client connected to.

use std::io;

use rustix::net::netlink;

use super::netlink::{APPEND, Attributes, Batch, CREATE};

/// The TCP redirects of a network namespace. Connections to loopback addresses are never redirected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redirects {
    /// The ports whose connections are not redirected.
    pub excluded: Vec<u16>,
    /// The redirected ports: pairs of a destination port and the port of the transparent socket
    /// that gets its connections.
    pub ports: Vec<(u16, u16)>,
    /// The port of the transparent socket that gets the connections to all other ports.
    pub others: Option<u16>,
}

/// Installs TCP redirects in this network namespace as nf_tables rules. Needs CAP_NET_ADMIN in the
/// network namespace.
pub fn redirect_tcp(redirects: &Redirects) -> io::Result<()> {
    let mut batch = Batch::default();
    batch.unacknowledged(BATCH_BEGIN, &header(0, NF_TABLES))?;
    let table = Attributes::default().text(TABLE_NAME, NAME).finish();
    batch.acknowledged(NEW_TABLE, CREATE, &[&header(INET, 0), &table[..]].concat())?;
    let hook = Attributes::default().big_endian(1, PREROUTING).big_endian(2, MANGLE);
    let chain = Attributes::default()
        .text(CHAIN_TABLE, NAME)
        .text(CHAIN_NAME, CHAIN)
        .nested(CHAIN_HOOK, &hook)
        .text(CHAIN_TYPE, "filter")
        .finish();
    batch.acknowledged(NEW_CHAIN, CREATE, &[&header(INET, 0), &chain[..]].concat())?;
    for rule in rules(redirects) {
        let rule = Attributes::default()
            .text(RULE_TABLE, NAME)
            .text(RULE_CHAIN, CHAIN)
            .nested(RULE_EXPRESSIONS, &rule)
            .finish();
        batch.acknowledged(NEW_RULE, CREATE | APPEND, &[&header(INET, 0), &rule[..]].concat())?;
    }
    batch.unacknowledged(BATCH_END, &header(0, NF_TABLES))?;
    batch.send(Some(netlink::NETFILTER))
}

const NAME: &str = "belljar";
const CHAIN: &str = "prerouting";

// linux/netfilter/nfnetlink.h and nf_tables.h.
const NF_TABLES: u16 = 10;
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
const NEW_TABLE: u16 = NF_TABLES << 8;
const NEW_CHAIN: u16 = (NF_TABLES << 8) | 3;
const NEW_RULE: u16 = (NF_TABLES << 8) | 6;
/// The nf_tables family `NFPROTO_INET`: IPv4 and IPv6.
const INET: u8 = 1;
/// The family `NFPROTO_UNSPEC`, which means IPv4 and IPv6 in a `tproxy` expression.
const BOTH: u32 = 0;
const IPV4: u8 = 2;
const IPV6: u8 = 10;
const PREROUTING: u32 = 0;
/// The priority `NF_IP_PRI_MANGLE` (-150) of a netfilter hook.
const MANGLE: u32 = (-150_i32).cast_unsigned();
const TABLE_NAME: u16 = 1;
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_TYPE: u16 = 7;
const RULE_TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
const RULE_EXPRESSIONS: u16 = 4;
const REGISTER_VERDICT: u32 = 0;
const REGISTER: u32 = 1;
const ACCEPT: u32 = 1;
const META_PROTOCOL_FAMILY: u32 = 15;
const META_TRANSPORT: u32 = 16;
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;
const EQUAL: u32 = 0;
const NOT_EQUAL: u32 = 1;
const TCP: u8 = 6;
const SYN: u8 = 2;

/// Encodes the netlink header `struct nfgenmsg`.
fn header(family: u8, resource: u16) -> [u8; 4] {
    let [high, low] = resource.to_be_bytes();
    [family, 0, high, low]
}

/// Returns the expressions of every nf_tables rule, in the order of the module documentation.
fn rules(redirects: &Redirects) -> Vec<Attributes> {
    let transport = |comparison| Rule::default().meta(META_TRANSPORT).compare(comparison, &[TCP]);
    let mut rules = vec![
        transport(NOT_EQUAL).accept(),
        Rule::default().payload(TRANSPORT_HEADER, 13, 1).and(&[SYN]).compare(EQUAL, &[0]).accept(),
        Rule::default().family(IPV4).payload(NETWORK_HEADER, 16, 1).compare(EQUAL, &[127]).accept(),
        Rule::default()
            .family(IPV6)
            .payload(NETWORK_HEADER, 24, 16)
            .compare(EQUAL, &std::net::Ipv6Addr::LOCALHOST.octets())
            .accept(),
    ];
    rules.extend(redirects.excluded.iter().map(|port| Rule::default().port(*port).accept()));
    let ports = redirects.ports.iter();
    rules.extend(ports.map(|(port, to)| Rule::default().port(*port).redirect(*to).accept()));
    rules.extend(redirects.others.map(|to| transport(EQUAL).redirect(to).accept()));
    rules.into_iter().map(|rule| rule.0).collect()
}

/// The expressions of one nf_tables rule. The kernel evaluates them in order until one does not match.
#[derive(Default)]
struct Rule(Attributes);

impl Rule {
    fn expression(self, name: &str, data: &Attributes) -> Self {
        let expression = Attributes::default().text(1, name).nested(2, data);
        Self(self.0.nested(1, &expression))
    }

    fn meta(self, key: u32) -> Self {
        let data = Attributes::default().big_endian(1, REGISTER).big_endian(2, key);
        self.expression("meta", &data)
    }

    fn family(self, family: u8) -> Self {
        self.meta(META_PROTOCOL_FAMILY).compare(EQUAL, &[family])
    }

    /// Adds an expression that matches the destination port of a TCP packet.
    fn port(self, port: u16) -> Self {
        self.payload(TRANSPORT_HEADER, 2, 2).compare(EQUAL, &port.to_be_bytes())
    }

    fn payload(self, base: u32, offset: u32, length: u32) -> Self {
        let data = Attributes::default()
            .big_endian(1, REGISTER)
            .big_endian(2, base)
            .big_endian(3, offset)
            .big_endian(4, length);
        self.expression("payload", &data)
    }

    fn and(self, mask: &[u8]) -> Self {
        let length = u32::try_from(mask.len()).unwrap_or(u32::MAX);
        let data = Attributes::default()
            .big_endian(1, REGISTER)
            .big_endian(2, REGISTER)
            .big_endian(3, length)
            .nested(4, &Attributes::default().bytes(1, mask))
            .nested(5, &Attributes::default().bytes(1, &vec![0; mask.len()]));
        self.expression("bitwise", &data)
    }

    fn compare(self, comparison: u32, value: &[u8]) -> Self {
        let data = Attributes::default()
            .big_endian(1, REGISTER)
            .big_endian(2, comparison)
            .nested(3, &Attributes::default().bytes(1, value));
        self.expression("cmp", &data)
    }

    fn redirect(self, port: u16) -> Self {
        let value = Attributes::default().bytes(1, &port.to_be_bytes());
        let load = Attributes::default().big_endian(1, REGISTER).nested(2, &value);
        let to = Attributes::default().big_endian(1, BOTH).big_endian(3, REGISTER);
        self.expression("immediate", &load).expression("tproxy", &to)
    }

    fn accept(self) -> Self {
        let verdict = Attributes::default().big_endian(1, ACCEPT);
        let value = Attributes::default().nested(2, &verdict);
        let data = Attributes::default().big_endian(1, REGISTER_VERDICT).nested(2, &value);
        self.expression("immediate", &data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirect_has_one_rule_per_port_and_one_for_other_ports() {
        let none = Redirects::default();
        assert_eq!(rules(&none).len(), 4);
        let all =
            Redirects { excluded: vec![53, 443], ports: vec![(5432, 40000)], others: Some(40001) };
        assert_eq!(rules(&all).len(), 8);
    }
}
