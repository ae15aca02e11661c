//! Tests against a real DNS server on loopback with scripted answers, over UDP and TCP.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use belljar_model::net::Hostname;
use hickory_proto::op::{Message, MessageType, ResponseCode};
use hickory_proto::rr::{RData, Record, RecordType};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UdpSocket};

use super::{ResolveError, Resolver, ResolverConf, servers};
use crate::address::{Filter, Reach};
use crate::dns::frame;

/// The DNS queries that the server received, in order: name, type, and whether over TCP.
type Asked = Arc<Mutex<Vec<(String, RecordType, bool)>>>;

/// Returns the addresses for the n-th DNS query of a type; `None` for no reply.
type Script = fn(usize, &str) -> Option<Vec<IpAddr>>;

/// Starts a DNS server whose answers have a TTL of 0.
async fn server(script: Script) -> (SocketAddr, Asked) {
    let asked = Asked::default();
    let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = udp.local_addr().unwrap();
    let tcp = TcpListener::bind(address).await.unwrap();
    let log = Arc::clone(&asked);
    tokio::spawn(async move {
        let mut buffer = [0; 2048];
        loop {
            let (length, peer) = udp.recv_from(&mut buffer).await.unwrap();
            if let Some(reply) = reply(&buffer[..length], script, &log, false) {
                udp.send_to(&reply, peer).await.unwrap();
            }
        }
    });
    let log = Arc::clone(&asked);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = tcp.accept().await.unwrap();
            while let Ok(length) = stream.read_u16().await {
                let mut query = vec![0; length.into()];
                stream.read_exact(&mut query).await.unwrap();
                if let Some(reply) = reply(&query, script, &log, true) {
                    stream.write_all(&frame(&reply)).await.unwrap();
                }
            }
        }
    });
    (address, asked)
}

fn reply(query: &[u8], script: Script, asked: &Asked, tcp: bool) -> Option<Vec<u8>> {
    let mut message = Message::from_vec(query).unwrap();
    let question = message.queries[0].clone();
    let (name, kind) = (question.name().to_ascii(), question.query_type());
    let number = {
        let mut asked = asked.lock().unwrap();
        asked.push((name.clone(), kind, tcp));
        asked.iter().filter(|(_, other, _)| *other == kind).count()
    };
    let addresses = script(number, &name)?;
    message.metadata.message_type = MessageType::Response;
    message.metadata.recursion_available = true;
    if addresses.is_empty() {
        message.metadata.response_code = ResponseCode::NXDomain;
    }
    for address in addresses {
        if address.is_ipv4() == (kind == RecordType::A) {
            let record = Record::from_rdata(question.name().clone(), 0, RData::from(address));
            message.add_answer(record);
        }
    }
    // A long answer is truncated, so that the client retries over TCP.
    if !tcp && message.answers.len() > 20 {
        message.answers.clear();
        message.metadata.truncation = true;
    }
    Some(message.to_vec().unwrap())
}

fn name(text: &str) -> Hostname {
    text.parse().unwrap()
}

fn addresses(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn resolver(server: SocketAddr, hosts: &str) -> Resolver {
    Resolver::new(ResolverConf::new(vec![server], hosts)).unwrap()
}

#[tokio::test]
async fn resolver_returns_ipv4_and_ipv6_addresses_for_the_exact_name() {
    let (server, asked) =
        server(|_, _| Some(addresses(&["2001:db8::7", "192.0.2.7", "192.0.2.8"]))).await;
    let found = resolver(server, "").resolve(&name("db")).await.unwrap();
    assert_eq!(found, addresses(&["192.0.2.7", "192.0.2.8", "2001:db8::7"]));
    let mut asked = asked.lock().unwrap().clone();
    asked.sort_unstable_by_key(|(_, kind, _)| u16::from(*kind));
    let db = || "db.".to_owned();
    assert_eq!(asked, [(db(), RecordType::A, false), (db(), RecordType::AAAA, false)]);
}

#[tokio::test]
async fn a04_resolver_queries_each_name_once_per_lookup() {
    let (server, asked) = server(|number, _| {
        Some(addresses(if number % 2 == 1 { &["192.0.2.7"] } else { &["127.0.0.1"] }))
    })
    .await;
    let resolver = resolver(server, "");
    for (round, expected) in ["192.0.2.7", "127.0.0.1", "192.0.2.7"].iter().enumerate() {
        let found = resolver.resolve(&name("rebind.example")).await.unwrap();
        assert_eq!(found, addresses(&[expected]));
        let count =
            asked.lock().unwrap().iter().filter(|(_, kind, _)| *kind == RecordType::A).count();
        assert_eq!(count, round + 1, "exactly one query for one connection");
    }
}

#[tokio::test]
async fn resolver_reads_long_answers_over_tcp_and_limits_their_addresses() {
    let (server, asked) =
        server(|_, _| Some((0..100).map(|number| IpAddr::from([192, 0, 2, number])).collect()))
            .await;
    let found = resolver(server, "").resolve(&name("many.example")).await.unwrap();
    assert_eq!(found.len(), super::MAX_ADDRESSES);
    assert!(asked.lock().unwrap().iter().any(|(_, _, tcp)| *tcp));
}

#[tokio::test]
async fn hosts_file_entries_are_used_without_a_query() {
    let (server, asked) = server(|_, _| Some(addresses(&["192.0.2.7", "2001:db8::7"]))).await;
    let hosts = "# comment\n10.1.2.3 db.internal Other.Internal # more\nbad x\n10.1.2.4 db.internal under_score\n";
    let resolver = resolver(server, hosts);
    assert_eq!(
        resolver.resolve(&name("db.internal")).await.unwrap(),
        addresses(&["10.1.2.3", "10.1.2.4"])
    );
    assert_eq!(resolver.resolve(&name("other.internal")).await.unwrap(), addresses(&["10.1.2.3"]));
    assert!(asked.lock().unwrap().is_empty());
    assert_eq!(resolver.resolve(&name("else.internal")).await.unwrap().len(), 2);
}

#[tokio::test]
async fn resolver_distinguishes_a_missing_address_from_a_timeout() {
    let (server, _asked) =
        server(|_, name| if name.starts_with("silent") { None } else { Some(vec![]) }).await;
    let mut resolver = resolver(server, "");
    let error = resolver.resolve(&name("gone.example")).await.unwrap_err();
    assert!(matches!(error, ResolveError::NoAddress(_)), "{error}");
    resolver.deadline = Duration::from_millis(300);
    let start = Instant::now();
    let error = resolver.resolve(&name("silent.example")).await.unwrap_err();
    assert!(matches!(error, ResolveError::Timeout(_)), "{error}");
    assert!(start.elapsed() < Duration::from_secs(2));
}

#[tokio::test]
async fn resolver_configuration_survives_a_round_trip() {
    let (server, _asked) = server(|_, _| Some(addresses(&["192.0.2.7"]))).await;
    let conf = ResolverConf::new(vec![server], "10.0.0.1 a.example\n");
    let bytes = postcard::to_allocvec(&conf).unwrap();
    let again: ResolverConf = postcard::from_bytes(&bytes).unwrap();
    assert_eq!(again, conf);
    assert!(Resolver::new(again).unwrap().resolve(&name("b.example")).await.is_ok());
}

#[test]
fn resolv_conf_is_parsed_like_the_c_library() {
    let text = "# nameserver 192.0.2.1\nsearch corp.example\nnameserver 192.0.2.2\nnameserver fe80::1%eth0\n\
                nameserver nonsense\noptions ndots:5\nnameserver 192.0.2.3\nnameserver 192.0.2.4\n";
    let expected: Vec<SocketAddr> = ["192.0.2.2:53", "[fe80::1]:53", "192.0.2.3:53"]
        .iter()
        .map(|text| text.parse().unwrap())
        .collect();
    assert_eq!(servers(text), expected);
    assert_eq!(servers(""), ["127.0.0.1:53".parse().unwrap()]);
}

/// Checks that a resolved address that is not public cannot be dialled.
#[tokio::test]
async fn a03_host_name_that_resolves_to_a_private_address_cannot_be_dialled() {
    const INSIDE: [&str; 14] = [
        "127.0.0.1",
        "127.255.255.254",
        "0.0.0.0",
        "10.0.0.1",
        "172.16.0.1",
        "172.31.255.254",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "198.18.0.1",
        "::1",
        "fe80::1",
        "fd00:ec2::254",
        "::ffff:10.0.0.1",
    ];
    let (server, asked) = server(|_, name| {
        let number: usize = name.trim_start_matches("inside").split('.').next()?.parse().ok()?;
        Some(addresses(&["93.184.216.34", INSIDE[number]]))
    })
    .await;
    let (resolver, filter) = (resolver(server, ""), Filter::default());
    for (number, inside) in INSIDE.iter().enumerate() {
        let found = resolver.resolve(&name(&format!("inside{number}.example"))).await.unwrap();
        let judged: Vec<bool> =
            found.iter().map(|address| filter.check(*address, Reach::Public).is_ok()).collect();
        assert_eq!(found, addresses(&["93.184.216.34", inside]), "the control: both came back");
        assert_eq!(judged, [true, false], "{inside}");
    }
    assert_eq!(asked.lock().unwrap().len(), 2 * INSIDE.len(), "one query of each type");
}
