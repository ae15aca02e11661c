//! Where connections really go: names that lead inside, names that change, addresses of the box's
//! own choice, this machine itself.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::{IpAddr, TcpListener, UdpSocket};

use belljar_testkit::{A, AAAA, NameServer, Wire};

use super::*;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// An address that nobody has been given: it is public, and nothing answers there.
const NOBODY: &str = "2d00::1";

/// Places that no name of the world may lead to, and what they would lead to.
const INSIDE: [&str; 18] = [
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
fn a03_a_name_that_leads_inside_is_refused_and_on_record() {
    let authority = Authority::new();
    // It listens where loopback leads, at the very port that the rule allows.
    let wire = Wire::tls(&authority, &["fixed.example.com"], |_| OK.to_vec());
    let port = wire.address().port();
    let mut zone: BTreeMap<String, Vec<IpAddr>> = BTreeMap::new();
    for (number, inside) in INSIDE.iter().enumerate() {
        zone.insert(format!("n{number}.example.net"), vec![inside.parse().unwrap()]);
    }
    let nobody: IpAddr = NOBODY.parse().unwrap();
    zone.insert("mixed.example.net".to_owned(), vec![nobody, "127.0.0.1".parse().unwrap()]);
    zone.insert("control.example.net".to_owned(), vec![nobody]);
    let names: Vec<String> = zone.keys().cloned().collect();
    let server = NameServer::start(move |name, _| zone.get(name).cloned().unwrap_or_default());
    let rules = [
        format!("[[template.default.allow]]\nhost = \"*.example.net\"\nport = {port}\n"),
        rule("fixed.example.com", wire.address(), &format!("port = {port}")),
        format!("[dns]\nservers = [\"{}\"]\n", server.address()),
    ];
    let lab = site(&authority, &rules);
    let script = format!(
        "names = {names:?}\n\
         control = fetch('https://fixed.example.com:{port}/')\n\
         tell([control] + at_once(lambda name: fetch(f'https://{{name}}:{port}/'), names))"
    );
    let told = told(&lab, &script);
    assert_eq!(told[0]["status"], 200, "{told}");
    for (name, got) in names.iter().zip(told.as_array().unwrap().iter().skip(1)) {
        if name == "control.example.net" {
            assert_eq!(got["belljar"], "upstream", "public, so it is dialled: {got}");
        } else {
            assert_eq!((&got["status"], &got["belljar"]), (&403.into(), &"private-address".into()));
            on_record(&lab, name, "private-address");
        }
        let times = |kind| server.asked().iter().filter(|it| **it == (name.clone(), kind)).count();
        assert_eq!((times(A), times(AAAA)), (1, 1), "{name}");
    }
    assert_eq!(wire.connections(), 1, "the control's");
}

#[test]
fn a04_a_name_that_changes_its_mind_leads_nowhere_else() {
    let authority = Authority::new();
    let wire = Wire::tls(&authority, &["fixed.example.com"], |_| OK.to_vec());
    let port = wire.address().port();
    let server = NameServer::start(|_, before| {
        let now = if before == 0 { NOBODY } else { "127.0.0.1" };
        vec![now.parse().unwrap()]
    });
    let rules = [
        format!("[[template.default.allow]]\nhost = \"flip.example.net\"\nport = {port}\n"),
        rule("fixed.example.com", wire.address(), &format!("port = {port}")),
        format!("[dns]\nservers = [\"{}\"]\n", server.address()),
    ];
    let lab = site(&authority, &rules);
    let script = format!(
        "tell([fetch(f'https://{{name}}:{port}/') for name in \
         ('fixed.example.com', 'flip.example.net', 'flip.example.net', 'flip.example.net')])"
    );
    let told = told(&lab, &script);
    assert_eq!(told[0]["status"], 200, "{told}");
    // One lookup, whose answer is what is dialled: the second answer never helps the first request.
    assert_eq!(told[1]["belljar"], "upstream", "{told}");
    assert_eq!(told[2]["belljar"], "private-address", "{told}");
    assert_eq!(told[3]["belljar"], "private-address", "{told}");
    let asked = server.asked();
    for kind in [A, AAAA] {
        assert_eq!(asked.iter().filter(|(_, it)| *it == kind).count(), 3, "{asked:?}");
    }
    assert_eq!(wire.connections(), 1, "the control's");
    on_record(&lab, "flip.example.net", "private-address");
}

#[test]
fn a05_no_connection_outlives_its_run_or_its_rule() {
    let authority = Authority::new();
    let wires = [(); 2].map(|()| Wire::tls(&authority, &["api.example.com"], |_| OK.to_vec()));
    let [first, second] = &wires;
    let lab = site(&authority, &[rule("api.example.com", first.address(), "")]);
    let script = "tell([fetch('https://api.example.com/')['status'] for _ in range(3)])";
    assert_eq!(told(&lab, script), serde_json::json!([200, 200, 200]));
    assert_eq!((first.connections(), first.requests().len()), (1, 3), "it is used again");
    assert_eq!(told(&lab, script), serde_json::json!([200, 200, 200]));
    assert_eq!((first.connections(), first.requests().len()), (2, 6), "by its own run only");
    let moved = rule("api.example.com", second.address(), "");
    lab.configure_for(&authority, &format!("[template.default]\nnet = \"restricted\"\n{moved}"));
    assert_eq!(told(&lab, script), serde_json::json!([200, 200, 200]));
    assert_eq!((first.connections(), second.connections()), (2, 1));
    assert_eq!(record(&lab, "request.finished").len(), 9);
}

#[test]
fn a15_the_address_that_was_dialled_decides_nothing() {
    let authority = Authority::new();
    let ours = Wire::tls(&authority, &["api.example.com"], |_| OK.to_vec());
    let theirs = Wire::tls(&authority, &["drop.example.net", "api.example.com"], |_| OK.to_vec());
    let rules = [
        rule("api.example.com", ours.address(), ""),
        rule("drop.example.net", theirs.address(), "methods = [\"HEAD\"]"),
    ];
    let lab = site(&authority, &rules);
    // `theirs` is an attacker's server: reached by its own name, by a method that carries nothing.
    let script = "theirs = socket.gethostbyname('drop.example.net')\n\
         tell([\n\
           fetch('https://drop.example.net/', 'HEAD'),\n\
           fetch('https://api.example.com/by/number', dial='203.0.113.66'),\n\
           fetch('https://api.example.com/by/number', dial='2d00::66'),\n\
           fetch('https://api.example.com/by/name', dial=theirs),\n\
           fetch('http://api.example.com/plain', dial='203.0.113.66'),\n\
         ])";
    let told = told(&lab, script);
    assert_eq!(told[0]["status"], 200, "{told}");
    assert_eq!((&told[1]["status"], &told[2]["status"]), (&200.into(), &200.into()), "{told}");
    // The hello names somebody else than the address stands for.
    assert_eq!(told[3]["status"], "tls", "{told}");
    assert_eq!(told[3]["why"], "TLSV1_UNRECOGNIZED_NAME", "{told}");
    assert_eq!((&told[4]["status"], &told[4]["belljar"]), (&421.into(), &"misdirected".into()));
    let theirs = theirs.requests();
    assert!(theirs.len() == 1 && theirs[0].starts_with("HEAD / "), "{theirs:?}");
    let ours = ours.requests();
    assert!(ours.len() == 2 && ours.iter().all(|it| it.starts_with("GET /by/number ")), "{ours:?}");
    on_record(&lab, "api.example.com", "misdirected");
    on_record(&lab, "203.0.113.66", "misdirected");
}

/// The address by which this machine would reach the world, if it has one. Nothing is sent.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect("192.0.2.200:9").ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

#[test]
fn a28_no_rule_leads_back_to_this_machine() {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    listener.set_nonblocking(true).unwrap();
    let own = own_address().unwrap_or(IpAddr::from([127, 0, 0, 1]));
    // Control: it can be reached at that address, by programs of the host.
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
        "tell(at_once(lambda host: fetch(f'http://{{host}}:{port}/'), {hosts:?} + ['127.0.0.1']))"
    );
    let told = told(&lab, &script);
    for at in 0..3 {
        assert_eq!(told[at]["belljar"], "private-address", "{told}");
        on_record(&lab, hosts[at], "private-address");
    }
    // Inside the box its own loopback is meant, where nothing listens.
    assert_eq!(told[3]["status"], "errno 111", "{told}");
    let refused = listener.accept().expect_err("nobody came");
    assert_eq!(refused.kind(), std::io::ErrorKind::WouldBlock);
    // A service of the host is opened by a rule of its own kind, or not at all.
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
