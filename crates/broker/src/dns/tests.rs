//! The responder, with hickory's codec as an independent reader and writer of messages.

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
    let said = answer(&bytes, rules, pool, Instant::now());
    let reply = said.reply.unwrap();
    // One question is asked; its bytes come back, in the letters it was asked in.
    let end = 12 + message.queries[0].name().len() + 4;
    assert_eq!(reply[12..end], bytes[12..end]);
    assert!(reply.len() <= 512);
    let reply = Message::from_vec(&reply).unwrap();
    assert_eq!((reply.metadata.id, reply.metadata.message_type), (4711, MessageType::Response));
    assert_eq!(reply.queries, message.queries);
    (reply, said.decided)
}

fn address(reply: &Message) -> IpAddr {
    let [record] = reply.answers.as_slice() else { panic!("{reply:?}") };
    assert_eq!((record.ttl, &record.name), (TTL, reply.queries[0].name()));
    record.data.ip_addr().unwrap()
}

#[test]
fn an_allowed_name_gets_an_address_that_stands_for_it() {
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
fn a16_a_name_that_no_rule_allows_does_not_exist_for_any_kind_of_query() {
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
            // Not a question but a part of the protocol.
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
fn a14_a16_an_allowed_name_has_addresses_and_nothing_else() {
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
            "{kind}: HTTPS and SVCB carry keys for hidden names"
        );
    }
}

#[test]
fn a02_without_rules_no_name_exists_and_with_all_every_one_does() {
    let mut pool = Pool::new(true);
    let (reply, _) =
        ask(&query("example.com.", RecordType::A), &rules(Net::Restricted, &[]), &mut pool);
    assert_eq!(reply.metadata.response_code, ResponseCode::NXDomain);
    let (reply, _) = ask(&query("example.com.", RecordType::A), &rules(Net::Full, &[]), &mut pool);
    assert!(address(&reply).is_ipv4());
}

#[test]
fn localhost_is_this_box_and_addresses_have_no_names() {
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
fn letters_are_echoed_as_they_were_asked() {
    let (rules, mut pool) = (usual(), Pool::new(true));
    let (reply, _) = ask(&query("aPi.eXAMPLE.cOm.", RecordType::A), &rules, &mut pool);
    assert_eq!(reply.queries[0].name().to_ascii(), "aPi.eXAMPLE.cOm.");
    let (again, _) = ask(&query("api.example.com.", RecordType::A), &rules, &mut pool);
    assert_eq!(address(&reply), address(&again));
}

#[test]
fn edns_is_answered_in_kind() {
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
    let said = answer(bytes, &usual(), &mut Pool::new(true), Instant::now());
    said.reply.map(|reply| reply[3] & 15)
}

#[test]
fn what_no_resolver_sends_is_refused() {
    const FORMAT: Option<u8> = Some(1);
    let good = query("api.example.com.", RecordType::A).to_vec().unwrap();
    assert_eq!(raw(&good), Some(0), "the control");
    assert_eq!(raw(&good[..11]), None);
    assert_eq!(raw(&good[..good.len() - 1]), FORMAT);
    assert_eq!(raw(&[&good[..], &[0]].concat()), FORMAT);
    let bent = |place: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[place] = byte;
        raw(&bytes)
    };
    assert_eq!(bent(2, 0x80), None, "an answer is not answered");
    assert_eq!(bent(2, 0x28), Some(4), "an update");
    assert_eq!(bent(2, 0x02), FORMAT, "cut short");
    for (place, count) in [(5, 0), (5, 2), (7, 1), (9, 1), (11, 1)] {
        assert_eq!(bent(place, count), FORMAT, "{place} {count}");
    }
    assert_eq!(bent(12, 0xc0), FORMAT, "a pointer");
    assert_eq!(bent(12, 64), FORMAT, "a label that is too long");
    assert_eq!(bent(good.len() - 1, 3), Some(5), "class CHAOS");
    assert_eq!(bent(good.len() - 1, 255), Some(5), "any class");
    let long =
        [&good[..12], &[&[63u8][..], &[b'a'; 63]].concat().repeat(4), &[0, 0, 1, 0, 1]].concat();
    assert_eq!(raw(&long), FORMAT, "257 bytes of name");
    assert_eq!(raw(&[&good[..12], &[0, 0, 2, 0, 1]].concat()), Some(5), "the root");
}

#[test]
fn a01_no_odd_byte_comes_through_in_a_name() {
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
            let said = answer(&bytes, &rules, &mut Pool::new(true), Instant::now());
            let edge = place == 0 || place == 4;
            let legal = byte.is_ascii_alphanumeric() || byte == b'-' && !edge;
            assert_eq!(said.reply.unwrap()[3] & 15, if legal { 0 } else { 3 }, "{label:?}");
            match said.decided {
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
fn addresses_stay_with_their_names_and_are_reused_only_when_nobody_needs_them() {
    let mut pool = Pool::new(true);
    let start = Instant::now();
    let (first, six) = pool.assign(&host(0), start).unwrap();
    let others: Vec<Ipv4Addr> =
        (1..4096).map(|number| pool.assign(&host(number), start).unwrap().0).collect();
    assert!(pool.assign(&host(4096), start).is_none(), "full");
    assert!(
        pool.assign(&host(4096), start + Duration::from_secs(100)).is_none(),
        "may still be dialled"
    );
    // Somebody dials the first, so the second is the one that nobody needs.
    let later = start + Duration::from_secs(130);
    let mapped = IpAddr::from(first.to_ipv6_mapped());
    assert_eq!(pool.name(mapped, later), Some(&host(0)));
    let (new, _) = pool.assign(&host(4096), later).unwrap();
    assert_eq!(pool.name(six.unwrap().into(), later), Some(&host(0)));
    assert_eq!(pool.name(new.into(), later), Some(&host(4096)));
    assert!(!others.contains(&new), "an address comes back as late as possible");
    let gone = others.iter().filter(|other| pool.name((**other).into(), later).is_none()).count();
    assert_eq!(gone, 1);
}

#[test]
fn other_addresses_stand_for_nothing() {
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
fn a16_a_box_asks_so_often_and_fills_no_record() {
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
fn a_reply_in_a_stream_begins_with_its_length() {
    assert_eq!(frame(b"one"), b"\0\x03one");
    assert_eq!(frame(b""), b"\0\0");
}

#[test]
fn kinds_are_called_by_their_names() {
    assert_eq!(
        [Kind::A, Kind::Aaaa, Kind::Other(65), Kind::Other(4711)].map(|kind| kind.to_string()),
        ["A", "AAAA", "HTTPS", "TYPE4711"]
    );
}

proptest! {
    #[test]
    fn a33_no_bytes_make_the_responder_fall_over(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let said = answer(&bytes, &usual(), &mut Pool::new(true), Instant::now());
        prop_assert!(said.reply.is_none_or(|reply| reply.len() <= 512 && reply[..2] == bytes[..2]));
    }

    #[test]
    fn a33_no_bent_query_makes_it_fall_over(place in 0usize..50, byte: u8) {
        let mut message = query("api.example.com.", RecordType::A);
        message.set_edns(Edns::new());
        let mut bytes = message.to_vec().unwrap();
        let place = place % bytes.len();
        bytes[place] = byte;
        let said = answer(&bytes, &usual(), &mut Pool::new(true), Instant::now());
        if let Some(reply) = said.reply {
            prop_assert!(Message::from_vec(&reply).is_ok());
        }
    }
}

#[test]
fn only_the_class_of_the_internet_is_served() {
    let mut message = query("api.example.com.", RecordType::A);
    message.queries[0].set_query_class(DNSClass::CH);
    assert_eq!(raw(&message.to_vec().unwrap()), Some(5));
}
