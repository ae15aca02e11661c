//! Tables of well-known names, addresses and ports that the rules treat specially.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use belljar_model::net::Hostname;

/// The TCP ports of protocols that look up names: DNS, DNS over TLS and QUIC, multicast DNS, LLMNR
/// (A17).
pub(super) const NAME_PORTS: [u16; 4] = [53, 853, 5353, 5355];

/// The host names of public DNS resolvers that answer over HTTPS. A box that reaches one can look
/// up names, and send data in them, without the broker's control (A17).
const DOH: &[&str] = &[
    "cloudflare-dns.com",
    "one.one.one.one",
    "1dot1dot1dot1.cloudflare-dns.com",
    "cloudflare-gateway.com",
    "dns.google",
    "dns.google.com",
    "dns64.dns.google",
    "8888.google",
    "quad9.net",
    "dns.quad9.net",
    "doh.opendns.com",
    "dns.opendns.com",
    "umbrella.com",
    "dns.umbrella.com",
    "nextdns.io",
    "adguard-dns.com",
    "adguard-dns.io",
    "dns.adguard.com",
    "cleanbrowsing.org",
    "controld.com",
    "mullvad.net",
    "doh.mullvad.net",
    "dns0.eu",
    "dns4.eu",
    "joindns4.eu",
    "doh.pub",
    "dns.pub",
    "doh.360.cn",
    "dns.alidns.com",
    "alidns.com",
    "dns.sb",
    "doh.sb",
    "doh.dns.sb",
    "doh.li",
    "doh.la",
    "doh.tiar.app",
    "doh.tiarap.org",
    "dns.hostux.net",
    "dns.switch.ch",
    "dns.nextdns.io",
    "dnsforge.de",
    "dnsforfamily.com",
    "dns.digitale-gesellschaft.ch",
    "doh.appliedprivacy.net",
    "doh.ffmuc.net",
    "doh.libredns.gr",
    "libredns.gr",
    "doh.crypto.sx",
    "odvr.nic.cz",
    "blahdns.com",
    "dns.twnic.tw",
    "dns.njal.la",
    "rubyfish.cn",
    "rethinkdns.com",
    "max.rethinkdns.com",
    "sky.rethinkdns.com",
    "doh.xfinity.com",
    "doh.cox.net",
    "doh.centraleu.pi-dns.com",
    "pi-dns.com",
    "uncensoreddns.org",
    "public.dns.iij.jp",
    "dns.aa.net.uk",
    "wikimedia-dns.org",
    "decloudus.com",
    "freedns.controld.com",
    "oszx.co",
    "dns.oszx.co",
    "ahadns.net",
    "dns.belnet.be",
    "dns.rabbitdns.org",
    "kaitain.restena.lu",
    "basic.rethinkdns.com",
    "mozilla.cloudflare-dns.com",
    "chrome.cloudflare-dns.com",
    "firefox.dns.nextdns.io",
];

/// Returns whether a name is a public DNS resolver or lies below one.
pub(super) fn is_doh(name: &Hostname) -> bool {
    DOH.iter().any(|known| name.is_within(known))
}

/// The IP addresses of public DNS resolvers, for clients that connect without a name.
pub(super) const DOH_ADDRESSES: [IpAddr; 16] = [
    v4(1, 1, 1, 1),
    v4(1, 0, 0, 1),
    v4(1, 1, 1, 2),
    v4(1, 1, 1, 3),
    v4(8, 8, 8, 8),
    v4(8, 8, 4, 4),
    v4(9, 9, 9, 9),
    v4(9, 9, 9, 10),
    v4(149, 112, 112, 112),
    v4(208, 67, 222, 222),
    v4(208, 67, 220, 220),
    v4(94, 140, 14, 14),
    v6(0x2606, 0x4700, 0x4700, 0x1111),
    v6(0x2606, 0x4700, 0x4700, 0x1001),
    v6(0x2001, 0x4860, 0x4860, 0x8888),
    v6(0x2001, 0x4860, 0x4860, 0x8844),
];

const fn v4(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

const fn v6(a: u16, b: u16, c: u16, last: u16) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, last))
}
