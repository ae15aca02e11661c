//! Attacks on the address that the broker connects to: names that resolve to private addresses, DNS
//! rebinding, addresses that the box chooses, and addresses of the host.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::{IpAddr, TcpListener, UdpSocket};

use belljar_testkit::{A, AAAA, NameServer, Wire};

use super::*;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// A public address that is not assigned, so no server answers there.
const UNASSIGNED: &str = "2d00::1";

/// Private and reserved addresses that the broker refuses whatever name resolves to them.
const PRIVATE_ADDRESSES: [&str; 18] = [
    "127.0.0.1",
    "127.8.8.8",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "169.254.1.1",
    "169.254.169.254",
    "0.0.0.0",
    "224.0.0.1",
    "198.18.0.5",
    "::1",
    "fe80::1",
    "fd00::1",
    "::ffff:127.0.0.1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
    "fd00:ec2::254",
];

#[test]
fn a03_broker_refuses_and_records_names_that_resolve_to_private_addresses() {
    let authority = Authority::new();
    // The server listens on loopback, at the port that the rule allows.
    let wire = Wire::tls(&authority, &["fixed.example.com"], |_| OK.to_vec());
    let port = wire.address().port();
    let mut zone: BTreeMap<String, Vec<IpAddr>> = BTreeMap::new();
    for (number, address) in PRIVATE_ADDRESSES.iter().enumerate() {
        zone.insert(format!("n{number}.example.net"), vec![address.parse().unwrap()]);
    }
    let unassigned: IpAddr = UNASSIGNED.parse().unwrap();
    zone.insert("mixed.example.net".to_owned(), vec![unassigned, "127.0.0.1".parse().unwrap()]);
    zone.insert("control.example.net".to_owned(), vec![unassigned]);
    let names: Vec<String> = zone.keys().cloned().collect();
    let server = NameServer::start(move |name, _| zone.get(name).cloned().unwrap_or_default());
    let rules = [
        format!("[[template.default.allow]]\nhost = \"*.example.net\"\nport = {port}\n"),
        rule("fixed.example.com", wire.address(), &format!("port = {port}")),
        format!("[dns]\nservers = [\"{}\"]\n", server.address()),
    ];
    let lab = lab_with_rules(&authority, &rules);
    let script = format!(
        "names = {names:?}\n\
         control = fetch('https://fixed.example.com:{port}/')\n\
         print_json([control] + in_parallel(lambda name: fetch(f'https://{{name}}:{port}/'), names))"
    );
    let results = run_script(&lab, &script);
    assert_eq!(results[0]["status"], 200, "{results}");
    for (name, got) in names.iter().zip(results.as_array().unwrap().iter().skip(1)) {
        if name == "control.example.net" {
            assert_eq!(
                got["belljar"], "upstream",
                "the broker connects to a public address: {got}"
            );
        } else {
            assert_eq!((&got["status"], &got["belljar"]), (&403.into(), &"private-address".into()));
            assert_denied(&lab, name, "private-address");
        }
        let queries =
            |kind| server.queries().iter().filter(|it| **it == (name.clone(), kind)).count();
        assert_eq!((queries(A), queries(AAAA)), (1, 1), "{name}");
    }
    assert_eq!(wire.connections(), 1, "only the connection of the control");
}

#[test]
fn a04_broker_refuses_dns_rebinding_to_a_private_address() {
    let authority = Authority::new();
    let wire = Wire::tls(&authority, &["fixed.example.com"], |_| OK.to_vec());
    let port = wire.address().port();
    let server = NameServer::start(|_, before| {
        let address = if before == 0 { UNASSIGNED } else { "127.0.0.1" };
        vec![address.parse().unwrap()]
    });
    let rules = [
        format!("[[template.default.allow]]\nhost = \"flip.example.net\"\nport = {port}\n"),
        rule("fixed.example.com", wire.address(), &format!("port = {port}")),
        format!("[dns]\nservers = [\"{}\"]\n", server.address()),
    ];
    let lab = lab_with_rules(&authority, &rules);
    let script = format!(
        "print_json([fetch(f'https://{{name}}:{port}/') for name in \
         ('fixed.example.com', 'flip.example.net', 'flip.example.net', 'flip.example.net')])"
    );
    let results = run_script(&lab, &script);
    assert_eq!(results[0]["status"], 200, "{results}");
    // The broker resolves the name once per request and connects to that address.
    assert_eq!(results[1]["belljar"], "upstream", "{results}");
    assert_eq!(results[2]["belljar"], "private-address", "{results}");
    assert_eq!(results[3]["belljar"], "private-address", "{results}");
    let queries = server.queries();
    for kind in [A, AAAA] {
        assert_eq!(queries.iter().filter(|(_, it)| *it == kind).count(), 3, "{queries:?}");
    }
    assert_eq!(wire.connections(), 1, "only the connection of the control");
    assert_denied(&lab, "flip.example.net", "private-address");
}

#[test]
fn a05_broker_reuses_no_connection_across_runs_or_rule_changes() {
    let authority = Authority::new();
    let wires = [(); 2].map(|()| Wire::tls(&authority, &["api.example.com"], |_| OK.to_vec()));
    let [first, second] = &wires;
    let lab = lab_with_rules(&authority, &[rule("api.example.com", first.address(), "")]);
    let script = "print_json([fetch('https://api.example.com/')['status'] for _ in range(3)])";
    assert_eq!(run_script(&lab, script), serde_json::json!([200, 200, 200]));
    assert_eq!(
        (first.connections(), first.requests().len()),
        (1, 3),
        "one run reuses its connection"
    );
    assert_eq!(run_script(&lab, script), serde_json::json!([200, 200, 200]));
    assert_eq!(
        (first.connections(), first.requests().len()),
        (2, 6),
        "another run opens its own connection"
    );
    let moved = rule("api.example.com", second.address(), "");
    lab.configure_for(&authority, &format!("[template.default]\nnet = \"restricted\"\n{moved}"));
    assert_eq!(run_script(&lab, script), serde_json::json!([200, 200, 200]));
    assert_eq!((first.connections(), second.connections()), (2, 1));
    assert_eq!(ledger_events(&lab, "request.finished").len(), 9);
}

#[test]
fn a15_broker_selects_the_upstream_by_tls_name_never_by_dialled_address() {
    let authority = Authority::new();
    let api = Wire::tls(&authority, &["api.example.com"], |_| OK.to_vec());
    let attacker = Wire::tls(&authority, &["drop.example.net", "api.example.com"], |_| OK.to_vec());
    let rules = [
        rule("api.example.com", api.address(), ""),
        rule("drop.example.net", attacker.address(), "methods = [\"HEAD\"]"),
    ];
    let lab = lab_with_rules(&authority, &rules);
    // The box may reach the attacker's server by its own name, with a method that has no body.
    let script = "attacker = socket.gethostbyname('drop.example.net')\n\
         print_json([\n\
           fetch('https://drop.example.net/', 'HEAD'),\n\
           fetch('https://api.example.com/by/number', dial='203.0.113.66'),\n\
           fetch('https://api.example.com/by/number', dial='2d00::66'),\n\
           fetch('https://api.example.com/by/name', dial=attacker),\n\
           fetch('http://api.example.com/plain', dial='203.0.113.66'),\n\
         ])";
    let results = run_script(&lab, script);
    assert_eq!(results[0]["status"], 200, "{results}");
    assert_eq!(
        (&results[1]["status"], &results[2]["status"]),
        (&200.into(), &200.into()),
        "{results}"
    );
    // The ClientHello names another host than the one that the dialled address belongs to.
    assert_eq!(results[3]["status"], "tls", "{results}");
    assert_eq!(results[3]["why"], "TLSV1_UNRECOGNIZED_NAME", "{results}");
    assert_eq!(
        (&results[4]["status"], &results[4]["belljar"]),
        (&421.into(), &"misdirected".into())
    );
    let stolen = attacker.requests();
    assert!(stolen.len() == 1 && stolen[0].starts_with("HEAD / "), "{stolen:?}");
    let sent = api.requests();
    assert!(sent.len() == 2 && sent.iter().all(|it| it.starts_with("GET /by/number ")), "{sent:?}");
    assert_denied(&lab, "api.example.com", "misdirected");
    assert_denied(&lab, "203.0.113.66", "misdirected");
}

/// Returns the source address of packets to the internet, without sending a packet.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect("192.0.2.200:9").ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

#[test]
fn a28_broker_refuses_allowed_hosts_that_resolve_to_the_local_machine() {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    listener.set_nonblocking(true).unwrap();
    let own = own_address().unwrap_or(IpAddr::from([127, 0, 0, 1]));
    // Control: programs of the host can reach the listener at that address.
    std::net::TcpStream::connect((own, port)).unwrap();
    listener.accept().unwrap();
    let server = NameServer::start(move |_, _| vec![own]);
    let lab = lab();
    let text = |rules: &str| {
        format!(
            "[template.default]\nnet = \"restricted\"\n{rules}\n\
             [dns]\nservers = [\"{}\"]\n",
            server.address()
        )
    };
    let http = |host: &str| {
        format!("[[template.default.allow]]\nhost = \"{host}\"\nscheme = \"http\"\nport = {port}\n")
    };
    let hosts = ["me.example.net", "gateway.internal", &own.to_string()];
    lab.configure(&text(&hosts.map(http).concat()));
    let script = format!(
        "print_json(in_parallel(lambda host: fetch(f'http://{{host}}:{port}/'), {hosts:?} + ['127.0.0.1']))"
    );
    let results = run_script(&lab, &script);
    for at in 0..3 {
        assert_eq!(results[at]["belljar"], "private-address", "{results}");
        assert_denied(&lab, hosts[at], "private-address");
    }
    // 127.0.0.1 is the loopback interface of the box, where no server listens.
    assert_eq!(results[3]["status"], "errno 111", "{results}");
    let refused = listener.accept().expect_err("no connection");
    assert_eq!(refused.kind(), std::io::ErrorKind::WouldBlock);
    // Control: a `host-port` rule opens a service of the host.
    let port = format!("host-port:{port}");
    let script = format!(
        "stream = tcp('host.belljar.internal', {}); stream.sendall(b'x'); print(stream.recv(9).decode())",
        &port[10..]
    );
    lab.write("kit.py", KIT);
    let run = ["run", "--allow", &port, "--", "/usr/bin/python3", "-c"];
    let run = lab.belljar(run).arg(format!("from kit import *\n{script}"));
    listener.set_nonblocking(false).unwrap();
    let served = std::thread::spawn(move || listener.accept().unwrap().0.write_all(b"in"));
    assert_eq!(run.run().expect(0), "in");
    served.join().unwrap().unwrap();
}
