//! What a running box reaches, while that changes; and who can speak to it.

use std::io::Read as _;
use std::net::{IpAddr, TcpListener};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use belljar_testkit::{Authority, Upstream, root_or_skip};

use super::approvals::{REAL, Worker, recorded, site, waiting};
use super::*;

const GET: &str = "curl -sS -o /dev/null -m 20 -w '%{http_code}' https://api.example.com/ 2>/dev/null; echo \" $?\"";

/// A lab whose rules lead to one server, and to a listener of bytes.
fn open(upstream: &Upstream, authority: &Authority, bytes: &TcpListener, more: &str) -> Lab {
    let lab = lab();
    let (web, bytes) = (upstream.address(), bytes.local_addr().unwrap());
    lab.configure_for(
        authority,
        &format!(
            "[[template.default.allow]]\nhost = \"api.example.com\"\nconnect = \"{web}\"\n{more}\n\
             [[template.default.allow]]\ntcp = \"db.example.com:5432\"\nconnect = \"{bytes}\"\n"
        ),
    );
    lab
}

#[test]
fn network_command_changes_the_rules_of_a_running_box_and_of_later_starts() {
    let authority = Authority::new();
    let upstream = Upstream::echo(&authority, &["api.example.com"]);
    let bytes = TcpListener::bind("127.0.0.1:0").unwrap();
    let lab = open(&upstream, &authority, &bytes, "");
    let worker = Worker::up(&lab, "one", &["--net", "none"]);
    let refused = |told: String| assert_ne!(told, "200 0");
    refused(worker.does(GET));
    lab.belljar(["network", "one", "restricted"]).succeed();
    assert_eq!(worker.does(GET), "200 0");
    lab.belljar(["network", "one", "restricted", "--deny", "api.example.com"]).succeed();
    refused(worker.does(GET));
    lab.belljar(["network", "one", "restricted"]).succeed();
    assert_eq!(worker.does(GET), "200 0");
    let told = lab.belljar(["network", "one", "none", "--json"]).succeed();
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!((told["net"].as_str(), told["running"].as_bool()), (Some("none"), Some(true)));
    refused(worker.does(GET));
    assert_eq!(upstream.received().len(), 2);
    assert_eq!(recorded(&lab, "network.changed").len(), 4);

    // What was said last holds for the next start too, and can be said before that.
    lab.belljar(["stop", "--now", "one"]).succeed();
    worker.forget();
    lab.belljar(["start", "one"]).succeed();
    refused(worker.does(GET));
    lab.belljar(["stop", "--now", "one"]).succeed();
    worker.forget();
    lab.belljar(["network", "one", "restricted"]).run().expect(0);
    lab.belljar(["start", "one"]).succeed();
    assert_eq!(worker.does(GET), "200 0");
    lab.belljar(["network", "one", "sideways"]).run().complains(2, "NET");
    lab.belljar(["network", "two", "none"]).run().complains(2, "there is no box two");
}

/// Opens a WebSocket, says so, and waits for its end.
const LIVE: &str = r#"
import os, socket, ssl
raw = socket.create_connection(("api.example.com", 443))
tls = ssl.create_default_context().wrap_socket(raw, server_hostname="api.example.com")
tls.sendall((
    "GET /live HTTP/1.1\r\nHost: api.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n").encode())
print(tls.recv(4096).split()[1].decode(), flush=True)
open(os.path.expanduser("~/live"), "w").close()
try:
    while tls.recv(4096):
        pass
except OSError:
    pass
print("cut", flush=True)
"#;

#[test]
fn network_command_closes_open_connections_that_the_new_rules_deny() {
    let authority = Authority::new();
    let upstream = Upstream::websocket(&authority, &["api.example.com"]);
    let bytes = TcpListener::bind("127.0.0.1:0").unwrap();
    let lab = open(&upstream, &authority, &bytes, "websocket = true");
    let worker = Worker::up(&lab, "one", &["--net", "restricted"]);
    let websocket = worker.begin(&format!("python3 - <<'END'\n{LIVE}\nEND"));
    let tunnel = "exec 3<>/dev/tcp/db.example.com/5432; cat <&3; echo cut";
    let tunnel = worker.begin(&format!("bash -c '{tunnel}'"));
    let (mut far, _) = bytes.accept().unwrap();
    let home = lab.state().join("boxes/one/home");
    eventually("the WebSocket is open", || home.join("live").exists());
    // A change that still allows them leaves them alone.
    lab.belljar(["network", "one", "restricted", "--allow", "other.example.com"]).succeed();
    assert!(!worker.is_done(websocket) && !worker.is_done(tunnel));

    lab.belljar(["network", "one", "restricted", "--deny", "tcp://db.example.com:5432"]).succeed();
    assert!(worker.end(tunnel).ends_with("cut"));
    far.read_to_end(&mut Vec::new()).ok(); // ends, however it does
    assert!(!worker.is_done(websocket), "what is still allowed goes on");
    lab.belljar(["network", "one", "none"]).succeed();
    assert_eq!(worker.end(websocket), "101\ncut");
    let ends = recorded(&lab, "request.finished");
    let cut = |it: &&Value| it["fields"]["error"].as_str().is_some_and(|why| why.contains("rules"));
    assert_eq!(ends.iter().filter(cut).count(), 2, "{ends:?}");
}

#[test]
fn network_command_denies_requests_that_wait_for_approval() {
    let (lab, upstream) = site("");
    let worker = Worker::up(&lab, "one", &[]);
    let get = worker.begin("curl -sS https://api.example.com/");
    eventually("it asks", || waiting(&lab).len() == 1);
    let id = waiting(&lab)[0]["id"].as_str().unwrap().to_owned();
    lab.belljar(["network", "one", "none"]).succeed();
    assert!(worker.end(get).contains("rules of the box changed"));
    lab.belljar(["approve", &id]).run().complains(2, "nothing waits");
    assert!(upstream.received().is_empty());
}

/// An address of this machine that is not its loopback, if it has one.
fn own_address() -> Option<IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Asks the supervisor that listens at a path for its status, with the messages of its protocol.
const SPEAK: &str = r#"
import json, socket, struct, sys
line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
def send(message):
    text = json.dumps(message).encode()
    line.sendall(struct.pack("<I", len(text)) + text)
def receive():
    head = line.recv(4, socket.MSG_WAITALL)
    return json.loads(line.recv(struct.unpack("<I", head)[0], socket.MSG_WAITALL)) if head else None
try:
    line.connect(sys.argv[1])
    send({"protocol": 2, "build": "a test"})
    send("Status")
    hello = receive()
    print("answered" if hello and "Status" in receive() else "turned away")
except (ConnectionResetError, BrokenPipeError):
    print("turned away")
except OSError as error:
    print(type(error).__name__)
"#;

#[test]
fn a28_g07_box_cannot_reach_its_supervisor_or_an_mcp_server_on_the_host() {
    let lab = lab();
    // A server of ours on all addresses, as `belljar mcp --http` would be.
    let token = lab.home().join("token");
    let own = own_address().unwrap_or(IpAddr::from([127, 0, 0, 1]));
    let free = TcpListener::bind((own, 0)).unwrap().local_addr().unwrap();
    let mcp = lab.belljar(["mcp", "--http", &format!("127.0.0.1:{}", free.port())]);
    let mcp = mcp.arg("--token-file").arg(&token).start();
    let ours = format!("127.0.0.1:{}", free.port());
    eventually("it listens", || std::net::TcpStream::connect(&ours).is_ok());
    let worker = Worker::up(&lab, "one", &["--net", "full"]);
    let socket = lab.state().join("boxes/one/socket");
    let speak = |path: &str| format!("python3 - '{path}' <<'END'\n{SPEAK}\nEND");
    // Control: from outside the supervisor answers.
    let outside = lab.program("python3").args(["-c", SPEAK]).arg(&socket).succeed();
    assert_eq!(outside, "answered");
    assert_eq!(worker.does(&speak(socket.to_str().unwrap())), "FileNotFoundError");
    let found =
        worker.does("find / -xdev -type s 2>/dev/null; ss -xl 2>/dev/null | grep -c belljar");
    assert!(!found.contains("socket"), "{found}");
    // What answered, and whether that was the broker.
    let get = |host: &str| {
        worker.does(&format!(
            "curl -s -m 20 -o /dev/null -w '%{{http_code}} %header{{x-belljar}}' -H 'host: {ours}' http://{host}:{}/mcp; true",
            free.port()
        ))
    };
    for host in ["127.0.0.1", "localhost", &own.to_string(), "host.belljar.internal"] {
        let told = get(host);
        assert!(told == "000" || told.split(' ').nth(1).is_some(), "{host}: {told}");
    }
    // Control: a rule of its own kind opens it, by port.
    let rule = format!("host-port:{}", free.port());
    lab.belljar(["network", "one", "full", "--allow", &rule]).succeed();
    assert_eq!(get("host.belljar.internal"), "401", "it wants its token");
    drop(mcp);
}

#[test]
fn a29_supervisor_refuses_connections_of_other_users() {
    let lab = lab();
    let _worker = Worker::up(&lab, "one", &[]);
    let dir = lab.state().join("boxes/one");
    let mode = fs::metadata(&dir).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "only its owner looks inside: {mode:o}");
    let socket = dir.join("socket");
    let speak = |program: belljar_testkit::Program| program.arg(SPEAK).arg(&socket).succeed();
    assert_eq!(speak(lab.program("python3").arg("-c")), "answered");
    if !root_or_skip("a plain user cannot connect as another user") {
        return;
    }
    let other = ["--reuid=65533", "--regid=65533", "--clear-groups", "python3", "-c"];
    let as_other = || lab.program("setpriv").args(other);
    assert_eq!(speak(as_other()), "PermissionError");
    // With every directory on the path open, the supervisor still checks the user of its client.
    let mut path = socket.clone();
    let open = |path: &std::path::Path| {
        let mode = fs::metadata(path).unwrap().mode() | 0o777;
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    open(&path);
    while path.pop() && path.starts_with(lab.dir()) {
        open(&path);
    }
    assert_eq!(speak(as_other()), "turned away");
    assert_eq!(speak(lab.program("python3").arg("-c")), "answered");
}

#[test]
fn a30_b14_placeholder_of_a_named_box_is_refused_in_other_boxes_and_after_restart() {
    let (lab, authority) = (lab(), Authority::new());
    let upstream = Upstream::echo(&authority, &["api.example.com"]);
    let connect = upstream.address();
    lab.configure_for(
        &authority,
        &format!(
            "[template.default]\nnet = \"restricted\"\nsecrets = [\"token\"]\n\
             [[template.default.allow]]\nhost = \"api.example.com\"\nconnect = \"{connect}\"\n\
             [secret.token]\nhosts = [\"api.example.com\"]\nslots = [\"header:authorization\"]\n\
             shape = \"ghp_{{36}}\"\nenv = \"TOKEN\"\n"
        ),
    );
    lab.belljar(["secret", "set", "token"]).input(REAL).succeed();
    let (one, two) = (Worker::up(&lab, "one", &[]), Worker::up(&lab, "two", &[]));
    let show = |token: &str| {
        format!(
            "curl -sS -o /dev/null -w '%{{http_code}}' -H \"authorization: Bearer {token}\" https://api.example.com/"
        )
    };
    let token = one.does("echo $TOKEN");
    assert!(token.starts_with("ghp_") && token != REAL && token != two.does("echo $TOKEN"));
    assert_eq!(one.does(&show("$TOKEN")), "200", "control: in its own box it works");
    assert_eq!(two.does(&show("$TOKEN")), "200");
    assert_eq!(two.does(&show(&token)), "403");
    let authorities = [&one, &two].map(|worker| {
        worker.does("cat $SSL_CERT_FILE /etc/ssl/certs/ca-certificates.crt 2>/dev/null | sha256sum")
    });
    assert_ne!(authorities[0], authorities[1], "each trusts an authority of its own");
    // After its end it is worth nothing anywhere, also not in the next life of its own box.
    lab.belljar(["stop", "--now", "one"]).succeed();
    assert_eq!(two.does(&show(&token)), "403");
    one.forget();
    lab.belljar(["start", "one"]).succeed();
    assert_eq!(one.does(&show(&token)), "403");
    assert_eq!(one.does(&show("$TOKEN")), "200");
    let alarms = recorded(&lab, "alarm.raised");
    let foreign = |it: &&Value| it["fields"]["alarm"] == "foreign-credential";
    assert_eq!(alarms.iter().filter(foreign).count(), 3, "{alarms:?}");
    let real = format!("Bearer {REAL}");
    assert!(upstream.received().iter().all(|it| it.header("authorization") == Some(&real)));
}
