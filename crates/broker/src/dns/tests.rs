//! Tests of the DNS server, with hickory's codec as an independent reader and writer of messages.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use belljar_model::net::{Budget, Hostname, Policy, Rule};
use belljar_model::{AskTimeout, Net};
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RecordType};
use proptest::prelude::*;

use super::{Decided, Kind, Limiter, Note, Pool, TTL, answer, frame};
use crate::rules::Rules;

fn rules(net: Net, allow: &[&str]) -> Rules {
    let allow = allow.iter().map(|text| Rule::allow(text).unwrap()).collect();
    Rules::new(&Policy {
        net,
        allow,
        deny: vec![],
        ask: vec![],
        ask_timeout: AskTimeout::default(),
        secrets: vec![],
        budget: Budget::default(),
        proxy: None,
    })
}

fn usual() -> Rules {
    rules(Net::Restricted, &["api.example.com", "*.below.example", "host-port:5432"])
}

fn query(name: &str, kind: RecordType) -> Message {
    let mut message = Message::new(4711, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    message
}

fn ask(message: &Message, rules: &Rules, pool: &mut Pool) -> (Message, Decided) {
    let bytes = message.to_vec().unwrap();
    let answered = answer(&bytes, rules, pool, Instant::now());
    let reply = answered.reply.unwrap();
    // The reply contains the question byte for byte, in the same case.
    let end = 12 + message.queries[0].name().len() + 4;
    assert_eq!(reply[12..end], bytes[12..end]);
    assert!(reply.len() <= 512);
    let reply = Message::from_vec(&reply).unwrap();
    assert_eq!((reply.metadata.id, reply.metadata.message_type), (4711, MessageType::Response));
    assert_eq!(reply.queries, message.queries);
    (reply, answered.decided)
}

fn address(reply: &Message) -> IpAddr {
    let [record] = reply.answers.as_slice() else { panic!("{reply:?}") };
    assert_eq!((record.ttl, &record.name), (TTL, reply.queries[0].name()));
    record.data.ip_addr().unwrap()
}

#[test]
fn allowed_dns_name_gets_an_address_of_the_pool() {
    let (rules, mut pool) = (usual(), Pool::new(true));
    for name in ["api.example.com.", "a.b.below.example.", "host.belljar.internal."] {
        for kind in [RecordType::A, RecordType::AAAA] {
            let (reply, decided) = ask(&query(name, kind), &rules, &mut pool);
            assert_eq!(reply.metadata.response_code, ResponseCode::NoError);
            let address = address(&reply);
            assert_eq!(address.is_ipv4(), kind == RecordType::A);
            let behind = pool.name(address, Instant::now()).unwrap();
            assert_eq!(format!("{behind}."), name);
            assert!(matches!(decided, Decided::Allowed { .. }), "{decided:?}");
        }
    }
    let (reply, _) =
        ask(&query("api.example.com.", RecordType::AAAA), &rules, &mut Pool::new(false));
    assert_eq!((reply.answers.len(), reply.metadata.response_code), (0, ResponseCode::NoError));
}

#[test]
fn a16_dns_name_without_a_rule_does_not_exist_for_any_record_type() {
    let (rules, mut pool) = (usual(), Pool::new(true));
    let names = [
        "c2VjcmV0.evil.com.",
        "example.com.",
        "below.example.",
        "xapi.example.com.",
        "api.example.com.evil.com.",
    ];
    for name in names {
        for kind in (0..=300).map(RecordType::from) {
            // OPT is part of the protocol, not a query type.
            if kind == RecordType::OPT {
                continue;
            }
            let (reply, decided) = ask(&query(name, kind), &rules, &mut pool);
            assert_eq!(reply.metadata.response_code, ResponseCode::NXDomain, "{name} {kind}");
            assert!(reply.answers.is_empty() && reply.authorities.is_empty());
            assert!(matches!(decided, Decided::Denied { .. }), "{name} {kind} {decided:?}");
        }
    }
}

#[test]
fn a14_a16_allowed_dns_name_has_only_address_records() {
    let (rules, mut pool) = (usual(), Pool::new(true));
    for kind in (0..=300).map(RecordType::from) {
        if kind == RecordType::OPT {
            continue;
        }
        let (reply, _) = ask(&query("api.example.com.", kind), &rules, &mut pool);
        assert_eq!(reply.metadata.response_code, ResponseCode::NoError, "{kind}");
        let expected = usize::from(matches!(kind, RecordType::A | RecordType::AAAA));
        assert_eq!(
            reply.answers.len(),
            expected,
            "{kind}: HTTPS and SVCB records can contain keys for encrypted names"
        );
    }
}

#[test]
fn a02_dns_resolves_a_name_only_with_a_rule_or_full_network() {
    let mut pool = Pool::new(true);
    let (reply, _) =
        ask(&query("example.com.", RecordType::A), &rules(Net::Restricted, &[]), &mut pool);
    assert_eq!(reply.metadata.response_code, ResponseCode::NXDomain);
    let (reply, _) = ask(&query("example.com.", RecordType::A), &rules(Net::Full, &[]), &mut pool);
    assert!(address(&reply).is_ipv4());
}

#[test]
fn localhost_resolves_to_loopback_and_reverse_lookups_find_nothing() {
    for rules in [usual(), rules(Net::Full, &[])] {
        let mut pool = Pool::new(true);
        let (reply, decided) = ask(&query("localhost.", RecordType::A), &rules, &mut pool);
        assert_eq!(address(&reply), IpAddr::from(Ipv4Addr::LOCALHOST));
        assert!(matches!(decided, Decided::Local));
        let (reply, _) = ask(&query("x.localhost.", RecordType::AAAA), &rules, &mut pool);
        assert_eq!(address(&reply), IpAddr::from(Ipv6Addr::LOCALHOST));
        for name in ["1.0.18.198.in-addr.arpa.", "1.0.0.127.in-addr.arpa.", "a.f.ip6.arpa."] {
            let (reply, decided) = ask(&query(name, RecordType::PTR), &rules, &mut pool);
            assert_eq!(reply.metadata.response_code, ResponseCode::NXDomain);
            assert!(matches!(decided, Decided::Local));
        }
    }
}

#[test]
fn dns_reply_repeats_the_letter_case_of_the_query() {
    let (rules, mut pool) = (usual(), Pool::new(true));
    let (reply, _) = ask(&query("aPi.eXAMPLE.cOm.", RecordType::A), &rules, &mut pool);
    assert_eq!(reply.queries[0].name().to_ascii(), "aPi.eXAMPLE.cOm.");
    let (again, _) = ask(&query("api.example.com.", RecordType::A), &rules, &mut pool);
    assert_eq!(address(&reply), address(&again));
}

#[test]
fn edns_query_gets_an_edns_reply() {
    let (rules, mut pool) = (usual(), Pool::new(true));
    let mut message = query("api.example.com.", RecordType::A);
    let (reply, _) = ask(&message, &rules, &mut pool);
    assert!(reply.edns.is_none());
    let mut edns = Edns::new();
    edns.set_max_payload(4096);
    message.set_edns(edns);
    let (reply, _) = ask(&message, &rules, &mut pool);
    let edns = reply.edns.as_ref().unwrap();
    assert_eq!((edns.version(), edns.max_payload()), (0, 1232));
    assert!(address(&reply).is_ipv4());
    message.edns.as_mut().unwrap().set_version(1);
    let (reply, decided) = ask(&message, &rules, &mut pool);
    assert_eq!(u16::from(reply.metadata.response_code), 16, "bad version");
    assert!(matches!(decided, Decided::Malformed) && reply.answers.is_empty());
}

fn raw(bytes: &[u8]) -> Option<u8> {
    let answered = answer(bytes, &usual(), &mut Pool::new(true), Instant::now());
    answered.reply.map(|reply| reply[3] & 15)
}

#[test]
fn malformed_dns_queries_are_refused() {
    const FORMAT: Option<u8> = Some(1);
    let good = query("api.example.com.", RecordType::A).to_vec().unwrap();
    assert_eq!(raw(&good), Some(0), "control: a valid query");
    assert_eq!(raw(&good[..11]), None);
    assert_eq!(raw(&good[..good.len() - 1]), FORMAT);
    assert_eq!(raw(&[&good[..], &[0]].concat()), FORMAT);
    let corrupted = |place: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[place] = byte;
        raw(&bytes)
    };
    assert_eq!(corrupted(2, 0x80), None, "a reply gets no answer");
    assert_eq!(corrupted(2, 0x28), Some(4), "an update");
    assert_eq!(corrupted(2, 0x02), FORMAT, "cut short");
    for (place, count) in [(5, 0), (5, 2), (7, 1), (9, 1), (11, 1)] {
        assert_eq!(corrupted(place, count), FORMAT, "{place} {count}");
    }
    assert_eq!(corrupted(12, 0xc0), FORMAT, "a pointer");
    assert_eq!(corrupted(12, 64), FORMAT, "label too long");
    assert_eq!(corrupted(good.len() - 1, 3), Some(5), "class CHAOS");
    assert_eq!(corrupted(good.len() - 1, 255), Some(5), "any class");
    let long =
        [&good[..12], &[&[63u8][..], &[b'a'; 63]].concat().repeat(4), &[0, 0, 1, 0, 1]].concat();
    assert_eq!(raw(&long), FORMAT, "257 bytes of name");
    assert_eq!(raw(&[&good[..12], &[0, 0, 2, 0, 1]].concat()), Some(5), "the root");
}

#[test]
fn a01_dns_query_for_a_name_with_special_bytes_is_denied() {
    let rules = rules(Net::Full, &[]);
    for place in 0..=4 {
        for byte in 0..=255u8 {
            let mut label = b"evil".to_vec();
            label.insert(place, byte);
            let mut bytes = query("x.", RecordType::A).to_vec().unwrap();
            bytes.truncate(12);
            bytes.push(5);
            bytes.extend_from_slice(&label);
            bytes.extend_from_slice(b"\x03com\0\0\x01\0\x01");
            let answered = answer(&bytes, &rules, &mut Pool::new(true), Instant::now());
            let edge = place == 0 || place == 4;
            let legal = byte.is_ascii_alphanumeric() || byte == b'-' && !edge;
            assert_eq!(answered.reply.unwrap()[3] & 15, if legal { 0 } else { 3 }, "{label:?}");
            match answered.decided {
                Decided::Allowed { name, .. } => assert!(legal && name.as_str().len() == 9),
                Decided::NoHostName { asked, .. } => {
                    assert!(!legal);
                    assert!(asked.bytes().all(|byte| byte.is_ascii_graphic()), "{asked:?}");
                }
                Decided::Denied { .. } | Decided::Local | Decided::Malformed => {
                    panic!("{label:?}")
                }
            }
        }
    }
}

fn host(number: usize) -> Hostname {
    format!("host{number}.example").parse().unwrap()
}

#[test]
fn dns_pool_reuses_an_address_only_after_it_was_unused_for_a_while() {
    let mut pool = Pool::new(true);
    let start = Instant::now();
    let (first, six) = pool.assign(&host(0), start).unwrap();
    let others: Vec<Ipv4Addr> =
        (1..4096).map(|number| pool.assign(&host(number), start).unwrap().0).collect();
    assert!(pool.assign(&host(4096), start).is_none(), "full");
    assert!(
        pool.assign(&host(4096), start + Duration::from_secs(100)).is_none(),
        "the address can still be dialled"
    );
    // The first address was dialled, so the second one is the oldest unused.
    let later = start + Duration::from_secs(130);
    let mapped = IpAddr::from(first.to_ipv6_mapped());
    assert_eq!(pool.name(mapped, later), Some(&host(0)));
    let (new, _) = pool.assign(&host(4096), later).unwrap();
    assert_eq!(pool.name(six.unwrap().into(), later), Some(&host(0)));
    assert_eq!(pool.name(new.into(), later), Some(&host(4096)));
    assert!(!others.contains(&new), "an address is reused as late as possible");
    let gone = others.iter().filter(|other| pool.name((**other).into(), later).is_none()).count();
    assert_eq!(gone, 1);
}

#[test]
fn dns_pool_has_no_name_for_addresses_outside_the_pool() {
    let mut pool = Pool::new(true);
    let now = Instant::now();
    for number in 0..10 {
        pool.assign(&host(number), now).unwrap();
    }
    for text in [
        "198.18.0.0",
        "198.17.255.255",
        "198.20.0.1",
        "127.0.0.1",
        "93.184.216.34",
        "fdbe:11a4:0:1::1",
        "::1",
        "fdbe:11a4::",
        "::ffff:127.0.0.1",
    ] {
        assert_eq!(pool.name(text.parse().unwrap(), now), None, "{text}");
    }
}

#[test]
fn a16_dns_limiter_bounds_queries_and_recorded_names() {
    let start = Instant::now();
    let mut limiter = Limiter::new(start);
    assert_eq!((0..5000).filter(|_| limiter.query(start)).count(), 1000);
    let second = (0..5000)
        .filter(|number| limiter.query(start + Duration::from_micros(number * 200)))
        .count();
    assert!((499..=501).contains(&second), "{second}");
    let noted: Vec<Note> =
        (0..300).map(|number| limiter.refused(&format!("x{number}.evil.com"))).collect();
    assert!(noted[..200].iter().all(|note| *note == Note::First));
    assert_eq!(noted[200], Note::Last);
    assert!(noted[201..].iter().all(|note| *note == Note::Over));
    assert_eq!(limiter.refused("x7.evil.com"), Note::Again);
}

#[test]
fn dns_reply_over_tcp_starts_with_its_length() {
    assert_eq!(frame(b"one"), b"\0\x03one");
    assert_eq!(frame(b""), b"\0\0");
}

#[test]
fn dns_record_types_are_displayed_by_name() {
    assert_eq!(
        [Kind::A, Kind::Aaaa, Kind::Other(65), Kind::Other(4711)].map(|kind| kind.to_string()),
        ["A", "AAAA", "HTTPS", "TYPE4711"]
    );
}

proptest! {
    #[test]
    fn a33_random_bytes_do_not_crash_the_dns_server(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let answered = answer(&bytes, &usual(), &mut Pool::new(true), Instant::now());
        prop_assert!(answered.reply.is_none_or(|reply| reply.len() <= 512 && reply[..2] == bytes[..2]));
    }

    #[test]
    fn a33_corrupted_queries_do_not_crash_the_dns_server(place in 0usize..50, byte: u8) {
        let mut message = query("api.example.com.", RecordType::A);
        message.set_edns(Edns::new());
        let mut bytes = message.to_vec().unwrap();
        let place = place % bytes.len();
        bytes[place] = byte;
        let answered = answer(&bytes, &usual(), &mut Pool::new(true), Instant::now());
        if let Some(reply) = answered.reply {
            prop_assert!(Message::from_vec(&reply).is_ok());
        }
    }
}

#[test]
fn dns_queries_of_classes_other_than_internet_are_refused() {
    let mut message = query("api.example.com.", RecordType::A);
    message.queries[0].set_query_class(DNSClass::CH);
    assert_eq!(raw(&message.to_vec().unwrap()), Some(5));
}
