//! Tests that a program in a box reaches only the broker's sockets and its own services.

use crate::fixture::{Broker, Fixture, net};

const REFUSED: &str = "errno ECONNREFUSED";

#[test]
fn connection_to_any_address_reaches_the_socket_of_its_port() {
    let acts = [
        "greet-tcp 203.0.113.9:443",
        "greet-tcp 10.0.0.1:443",
        "greet-tcp 169.254.169.254:80",
        "greet-tcp [2001:db8::9]:443",
        "greet-tcp [fd00::1]:443",
        "greet-tcp 198.51.100.7:5432",
        "greet-tcp [2001:db8::7]:5432",
        "greet-tcp 8.8.8.8:53",
        "greet-tcp 203.0.113.9:444",
        "greet-tcp [2001:db8::9]:22",
    ];
    let answers = Fixture::new().acts(net(&[80, 443, 5432], false), &acts);
    let want = [
        "ok port 443 for 203.0.113.9:443",
        "ok port 443 for 10.0.0.1:443",
        "ok port 80 for 169.254.169.254:80",
        "ok port 443 for [2001:db8::9]:443",
        "ok port 443 for [fd00::1]:443",
        "ok port 5432 for 198.51.100.7:5432",
        "ok port 5432 for [2001:db8::7]:5432",
        "ok dns for 8.8.8.8:53",
        REFUSED,
        REFUSED,
    ];
    assert_eq!(answers, want);
}

#[test]
fn catch_all_socket_of_a_box_gets_other_ports_and_the_dialled_address() {
    let acts = [
        "greet-tcp 203.0.113.9:1",
        "greet-tcp 203.0.113.9:22",
        "greet-tcp 203.0.113.9:8080",
        "greet-tcp 203.0.113.9:65535",
        "greet-tcp [2001:db8::9]:25",
        "greet-tcp 203.0.113.9:443",
        "greet-tcp 203.0.113.9:5432",
        "greet-tcp 1.1.1.1:53",
        "greet-tcp 127.0.0.1:8080",
        "greet-tcp [::1]:8080",
    ];
    let answers = Fixture::new().acts(net(&[443, 5432], true), &acts);
    let want = [
        "ok any for 203.0.113.9:1",
        "ok any for 203.0.113.9:22",
        "ok any for 203.0.113.9:8080",
        "ok any for 203.0.113.9:65535",
        "ok any for [2001:db8::9]:25",
        "ok port 443 for 203.0.113.9:443",
        "ok port 5432 for 203.0.113.9:5432",
        "ok dns for 1.1.1.1:53",
        REFUSED,
        REFUSED,
    ];
    assert_eq!(answers, want);
}

#[test]
fn dns_query_to_any_server_reaches_the_broker() {
    let acts = ["ask-udp 8.8.8.8:53", "ask-udp 192.0.2.53:53", "ask-udp 127.0.0.1:53"];
    let answers = Fixture::new().acts(net(&[], false), &acts);
    assert_eq!(answers, ["ok dns got belljar-probe"; 3]);
}

#[test]
fn service_of_the_box_is_reachable_over_loopback() {
    let acts = [
        "own-service 127.0.0.1:8080 127.0.0.1:8080",
        "own-service 127.0.0.1:5432 127.0.0.1:5432",
        "own-service [::1]:5432 [::1]:5432",
        "own-service 0.0.0.0:5432 127.9.9.9:5432",
        "own-service [::]:5432 127.0.0.1:5432",
    ];
    let want = [
        "ok true 127.0.0.1:8080",
        "ok true 127.0.0.1:5432",
        "ok true [::1]:5432",
        "ok true 127.9.9.9:5432",
        "ok true [::ffff:127.0.0.1]:5432",
    ];
    for any in [false, true] {
        assert_eq!(Fixture::new().acts(net(&[443, 5432], any), &acts), want, "any: {any}");
    }
    // Outside loopback, the broker gets a port of a rule even if the box listens on it.
    let acts = ["own-service 0.0.0.0:5432 203.0.113.9:5432"];
    assert_eq!(Fixture::new().acts(net(&[5432], false), &acts), ["errno EAGAIN"]);
}

#[test]
fn box_without_a_network_has_no_sockets_and_no_route() {
    let fixture = Fixture::new();
    let mut running = fixture.build(None, &["/probe", "batch"]).unwrap();
    assert!(running.take_sockets().is_none());
    let acts = "greet-tcp 203.0.113.9:443\nask-udp 8.8.8.8:53\ngreet-tcp 127.0.0.1:53\nown-service 127.0.0.1:80 127.0.0.1:80\n";
    let output = fixture.run(running, acts);
    let answers: Vec<&str> =
        output.out.lines().filter_map(|line| line.split_once(" => ")).map(|(_, a)| a).collect();
    let unreachable = "errno ENETUNREACH";
    assert_eq!(answers, [unreachable, unreachable, REFUSED, "errno EACCES"]);
}

#[test]
fn connection_from_a_box_to_a_closed_socket_is_refused() {
    let fixture = Fixture::new();
    let mut running = fixture.build(net(&[443], true), &["/probe", "batch"]).unwrap();
    drop(running.take_sockets().expect("sockets"));
    assert!(running.take_sockets().is_none(), "the sockets can be taken only once");
    let acts = ["greet-tcp 203.0.113.9:443", "greet-tcp 203.0.113.9:9999", "ask-udp 8.8.8.8:53"];
    let output = fixture.run(running, &(acts.join("\n") + "\n"));
    let want: Vec<String> = acts.iter().map(|act| format!("{act} => {REFUSED}")).collect();
    assert_eq!(output.out, want.join("\n"));
}

#[test]
fn box_network_supports_two_hundred_ports_and_refuses_one_more() {
    let fixture = Fixture::new();
    let ports: Vec<u16> = (900..1100).collect();
    let acts =
        ["greet-tcp 203.0.113.9:900", "greet-tcp 203.0.113.9:1099", "greet-tcp 1.2.3.4:1100"];
    let answers = fixture.acts(net(&ports, false), &acts);
    assert_eq!(
        answers[..2],
        ["ok port 900 for 203.0.113.9:900", "ok port 1099 for 203.0.113.9:1099"]
    );
    assert_eq!(answers[2], REFUSED);
    let ports: Vec<u16> = (900..1101).collect();
    let error = fixture.build(net(&ports, false), &["/probe"]).unwrap_err();
    assert!(error.to_string().contains("201 ports"), "{error}");
}

#[test]
fn a18_datagrams_and_other_sockets_reach_nothing_in_a_box_with_a_network() {
    let fixture = Fixture::new();
    let outside = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = outside.local_addr().unwrap();
    assert_eq!(fixture.outside(&format!("send-udp {at}")), "ok 13");
    let mut buffer = [0; 64];
    assert_eq!(outside.recv(&mut buffer).unwrap(), 13, "control: the datagram arrives");
    outside.set_nonblocking(true).unwrap();
    let refused = [
        format!("ask-udp {at}"),
        "ask-udp 8.8.8.8:443".to_owned(),
        "ask-udp 8.8.8.8:853".to_owned(),
        "ask-udp [2001:db8::1]:443".to_owned(),
        "ask-udp 10.0.0.1:123".to_owned(),
    ];
    let no_family = [
        "socket inet dgram 1",
        "socket inet raw 1",
        "socket inet raw 6",
        "socket inet stream 132",
        "socket inet stream 262",
        "socket inet6 dgram 58",
        "socket inet6 raw 58",
        "socket packet raw 0",
        "socket packet dgram 768",
        "socket vsock stream 0",
        "socket netlink raw 0",
        "socket netlink raw 12",
    ];
    let acts: Vec<&str> = refused.iter().map(String::as_str).chain(no_family).collect();
    for any in [false, true] {
        let answers = fixture.acts(net(&[443], any), &acts);
        for (act, answer) in acts.iter().zip(&answers) {
            let want = if act.starts_with("ask") { REFUSED } else { "errno EAFNOSUPPORT" };
            assert_eq!(answer, want, "{act}, any: {any}");
        }
    }
    let nothing = outside.recv(&mut buffer).unwrap_err();
    assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock, "a datagram left the box");
}

#[test]
fn payload_has_no_broker_socket_and_no_network_privilege() {
    let fixture = Fixture::new();
    let mut running = fixture.build(net(&[443, 5432], true), &["/probe", "batch"]).unwrap();
    let broker = running.take_sockets().map(Broker::serve);
    let acts = ["descriptors", "own-service 203.0.113.9:443 203.0.113.9:443", "interfaces"];
    let output = fixture.run(running, &(acts.join("\n") + "\n"));
    drop(broker);
    assert_eq!(
        output.out,
        "descriptors => ok\nown-service 203.0.113.9:443 203.0.113.9:443 => errno EACCES\ninterfaces => ok lo"
    );
    assert_eq!(output.exit, Some(0));
}
