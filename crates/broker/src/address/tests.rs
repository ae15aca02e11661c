//! Tests of every address range in every spelling.

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[track_caller]
fn check(text: &str, expect: Option<Range>) {
    assert_eq!(range(ip(text)), expect, "{text}");
    assert_eq!(Public::check(ip(text)).is_ok(), expect.is_none(), "{text}");
}

#[test]
fn range_is_none_for_public_addresses() {
    for text in [
        "8.8.8.8",
        "1.1.1.1",
        "140.82.121.4",
        "100.63.255.255",
        "100.128.0.0",
        "172.15.0.1",
        "172.32.0.1",
        "192.0.1.1",
        "198.17.0.1",
        "198.20.0.1",
        "223.255.255.255",
        "2606:4700::1111",
        "2001:4860:4860::8888",
        "2a00:1450:4001::1",
        "64:ff9b::8.8.8.8",
    ] {
        check(text, None);
    }
}

#[test]
fn range_classifies_special_addresses() {
    for (text, expect) in [
        ("0.0.0.0", Range::Unspecified),
        ("0.1.2.3", Range::Reserved),
        ("10.0.0.1", Range::Local),
        ("100.64.0.1", Range::Local),
        ("127.0.0.1", Range::Loopback),
        ("127.255.255.255", Range::Loopback),
        ("169.254.1.1", Range::LinkLocal),
        ("172.16.0.1", Range::Local),
        ("172.31.255.255", Range::Local),
        ("192.0.0.1", Range::Reserved),
        ("192.0.2.1", Range::Reserved),
        ("192.88.99.1", Range::Reserved),
        ("192.168.0.1", Range::Local),
        ("198.18.0.1", Range::Reserved),
        ("198.19.255.255", Range::Reserved),
        ("198.51.100.1", Range::Reserved),
        ("203.0.113.1", Range::Reserved),
        ("224.0.0.1", Range::Multicast),
        ("240.0.0.1", Range::Reserved),
        ("255.255.255.255", Range::Reserved),
        ("::", Range::Unspecified),
        ("::1", Range::Loopback),
        ("fe80::1", Range::LinkLocal),
        ("fec0::1", Range::Reserved),
        ("fc00::1", Range::Local),
        ("fdff::1", Range::Local),
        ("ff02::1", Range::Multicast),
        ("2001::1", Range::Reserved),
        ("2001:db8::1", Range::Reserved),
        ("2001:10::1", Range::Reserved),
        ("3fff::1", Range::Reserved),
        ("100::1", Range::Reserved),
        ("64:ff9b:1::1", Range::Reserved),
        ("5f00::1", Range::Reserved),
        ("4000::1", Range::Reserved),
    ] {
        check(text, Some(expect));
    }
}

#[test]
fn a06_metadata_addresses_are_never_dialled() {
    let filter = Filter::default();
    for text in [
        "169.254.169.254",
        "169.254.170.2",
        "169.254.170.23",
        "100.100.100.200",
        "192.0.0.192",
        "168.63.129.16",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",
        "fd00:42::42",
        "::ffff:169.254.169.254",
        "::169.254.169.254",
        "64:ff9b::169.254.169.254",
        "2002:a9fe:a9fe::1",
        "64:ff9b::168.63.129.16",
        "::ffff:168.63.129.16",
    ] {
        check(text, Some(Range::Metadata));
        for reach in [Reach::Public, Reach::Named] {
            let refused = filter.check(ip(text), reach).unwrap_err();
            assert_eq!(refused.range, Range::Metadata, "{text}");
        }
        let refused = filter.check_connect(SocketAddr::new(ip(text), 80)).unwrap_err();
        assert_eq!(refused.range, Range::Metadata, "{text}");
    }
    // Control: neighbouring addresses are not metadata services.
    check("168.63.129.17", None);
    assert!(filter.check(ip("100.100.100.201"), Reach::Named).is_ok());
    assert!(filter.check_connect("127.0.0.1:1".parse().unwrap()).is_ok());
}

#[test]
fn a06_metadata_names_are_recognized() {
    for name in [
        "metadata.google.internal",
        "metadata.goog",
        "instance-data",
        "metadata",
        "x.metadata.goog",
        "instance-data.ec2.internal",
    ] {
        assert!(is_metadata_name(&name.parse().unwrap()), "{name}");
    }
    for name in
        ["google.internal", "metadata.example.com", "mymetadata.goog", "instance-data.example"]
    {
        assert!(!is_metadata_name(&name.parse().unwrap()), "{name}");
    }
}

#[test]
fn private_addresses_are_dialled_only_if_a_rule_names_them() {
    let filter = Filter::new([ip("203.0.114.7"), ip("10.9.9.9"), ip("2606:4700::7")]);
    for text in ["10.0.0.1", "192.168.1.1", "172.16.0.1", "100.64.0.1", "fd12::1"] {
        assert_eq!(filter.check(ip(text), Reach::Public).unwrap_err().range, Range::Local);
        assert_eq!(filter.check(ip(text), Reach::Named).unwrap().ip(), ip(text));
    }
    for text in [
        "127.0.0.1",
        "::1",
        "169.254.1.1",
        "fe80::1",
        "0.0.0.0",
        "224.0.0.1",
        "198.18.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::10.0.0.1",
        "2002:a00:1::",
    ] {
        assert!(filter.check(ip(text), Reach::Named).is_err(), "{text}");
    }
    for text in ["203.0.114.7", "10.9.9.9", "2606:4700::7", "64:ff9b::203.0.114.7"] {
        let refused = filter.check(ip(text), Reach::Named).unwrap_err();
        assert_eq!(refused.range, Range::Own, "{text}");
    }
    assert!(filter.check(ip("203.0.114.8"), Reach::Public).is_ok());
}

/// Returns all IPv6 addresses that contain an IPv4 address.
fn encodings(inside: Ipv4Addr) -> Vec<Ipv6Addr> {
    let [a, b, c, d] = inside.octets();
    let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    let mut all = vec![
        Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, high, low),
        Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, high, low),
        Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
        Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, high, low),
        Ipv6Addr::new(0x64, 0xff9b, 1, 0xffff, 0, 0, high, low),
        Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
        Ipv6Addr::new(0x2002, high, low, 0xffff, 1, 2, 3, 4),
        Ipv6Addr::new(0x2606, 0x4700, 0, 0, 0, 0x5efe, high, low),
        Ipv6Addr::new(0x2606, 0x4700, 0, 0, 0x200, 0x5efe, high, low),
        Ipv6Addr::new(0x2001, 0, high, low, 0, 0, !high, !low),
    ];
    if u32::from(inside) > 1 {
        all.push(Ipv6Addr::new(0, 0, 0, 0, 0, 0, high, low));
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a07_ipv4_address_inside_an_ipv6_address_is_checked(bits: u32) {
        let inside = Ipv4Addr::from(bits);
        let plain = range(inside.into());
        for outside in encodings(inside) {
            if plain.is_some() {
                prop_assert!(Public::check(outside.into()).is_err(), "{} {}", inside, outside);
                prop_assert!(Filter::default().check(outside.into(), Reach::Named).is_err());
            }
        }
        // Control: only NAT64 reaches a public IPv4 address.
        let through = Ipv6Addr::from(0x0064_ff9b_u128 << 96 | u128::from(bits));
        prop_assert_eq!(range(through.into()).is_none(), plain.is_none());
    }
}

#[test]
fn a07_every_private_range_is_refused_in_every_encoding() {
    for text in [
        "127.0.0.1",
        "10.0.0.1",
        "192.168.0.1",
        "172.16.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "198.18.0.1",
    ] {
        let inside: Ipv4Addr = text.parse().unwrap();
        for outside in encodings(inside) {
            assert!(Public::check(outside.into()).is_err(), "{inside} as {outside}");
        }
    }
}
