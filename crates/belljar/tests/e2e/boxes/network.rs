//! `belljar network` on running boxes, and connections to supervisors and between boxes.

use std::io::Read as _;
use std::net::{IpAddr, TcpListener};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use belljar_testkit::{Authority, Upstream, root_or_skip};

use super::approvals::{SECRET_VALUE, ScriptBox, lab_with_ask_rule, ledger_events, waiting};
use super::*;

/// A command that prints the status of a request to the test server and the exit code of curl.
const GET: &str = "curl -sS -o /dev/null -m 20 -w '%{http_code}' https://api.example.com/ 2>/dev/null; echo \" $?\"";

/// Creates a lab whose rules allow one HTTPS server and one raw TCP listener.
fn lab_with_servers(
    upstream: &Upstream,
    authority: &Authority,
    bytes: &TcpListener,
    more: &str,
) -> Lab {
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
    let lab = lab_with_servers(&upstream, &authority, &bytes, "");
    let sandbox = ScriptBox::up(&lab, "one", &["--net", "none"]);
    let assert_refused = |output: String| assert_ne!(output, "200 0");
    assert_refused(sandbox.run(GET));
    lab.belljar(["network", "one", "restricted"]).succeed();
    assert_eq!(sandbox.run(GET), "200 0");
    lab.belljar(["network", "one", "restricted", "--deny", "api.example.com"]).succeed();
    assert_refused(sandbox.run(GET));
    lab.belljar(["network", "one", "restricted"]).succeed();
    assert_eq!(sandbox.run(GET), "200 0");
    let output = lab.belljar(["network", "one", "none", "--json"]).succeed();
    let output: Value = serde_json::from_str(&output).unwrap();
    assert_eq!((output["net"].as_str(), output["running"].as_bool()), (Some("none"), Some(true)));
    assert_refused(sandbox.run(GET));
    assert_eq!(upstream.received().len(), 2);
    assert_eq!(ledger_events(&lab, "network.changed").len(), 4);

    // The last rules also apply to the next start, and can be changed while the box is stopped.
    lab.belljar(["stop", "--now", "one"]).succeed();
    sandbox.reset();
    lab.belljar(["start", "one"]).succeed();
    assert_refused(sandbox.run(GET));
    lab.belljar(["stop", "--now", "one"]).succeed();
    sandbox.reset();
    lab.belljar(["network", "one", "restricted"]).run().expect(0);
    lab.belljar(["start", "one"]).succeed();
    assert_eq!(sandbox.run(GET), "200 0");
    lab.belljar(["network", "one", "sideways"]).run().fails_with(2, "NET");
    lab.belljar(["network", "two", "none"]).run().fails_with(2, "there is no box two");
}

/// A Python script that opens a WebSocket, creates the file `live`, and waits until it is closed.
const WEBSOCKET_CLIENT: &str = r#"
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
    let lab = lab_with_servers(&upstream, &authority, &bytes, "websocket = true");
    let sandbox = ScriptBox::up(&lab, "one", &["--net", "restricted"]);
    let websocket = sandbox.start_script(&format!("python3 - <<'END'\n{WEBSOCKET_CLIENT}\nEND"));
    let tunnel = "exec 3<>/dev/tcp/db.example.com/5432; cat <&3; echo cut";
    let tunnel = sandbox.start_script(&format!("bash -c '{tunnel}'"));
    let (mut peer, _) = bytes.accept().unwrap();
    let home = lab.state().join("boxes/one/home");
    eventually("the WebSocket is open", || home.join("live").exists());
    // A change that still allows both connections does not close them.
    lab.belljar(["network", "one", "restricted", "--allow", "other.example.com"]).succeed();
    assert!(!sandbox.is_done(websocket) && !sandbox.is_done(tunnel));

    lab.belljar(["network", "one", "restricted", "--deny", "tcp://db.example.com:5432"]).succeed();
    assert!(sandbox.output(tunnel).ends_with("cut"));
    peer.read_to_end(&mut Vec::new()).ok(); // the connection ends, with or without an error
    assert!(!sandbox.is_done(websocket), "an allowed connection stays open");
    lab.belljar(["network", "one", "none"]).succeed();
    assert_eq!(sandbox.output(websocket), "101\ncut");
    let is_cut =
        |it: &&Value| it["fields"]["error"].as_str().is_some_and(|why| why.contains("rules"));
    // The broker records the end of a connection after it has closed the connection.
    eventually("the ledger has the end of both connections", || {
        ledger_events(&lab, "request.finished").iter().filter(is_cut).count() == 2
    });
}

#[test]
fn network_command_denies_requests_that_wait_for_approval() {
    let (lab, upstream) = lab_with_ask_rule("");
    let sandbox = ScriptBox::up(&lab, "one", &[]);
    let get = sandbox.start_script("curl -sS https://api.example.com/");
    eventually("the request waits for approval", || waiting(&lab).len() == 1);
    let id = waiting(&lab)[0]["id"].as_str().unwrap().to_owned();
    lab.belljar(["network", "one", "none"]).succeed();
    assert!(sandbox.output(get).contains("rules of the box changed"));
    lab.belljar(["approve", &id]).run().fails_with(2, "waits for an answer");
    assert!(upstream.received().is_empty());
}

/// Returns an address of this machine that is not loopback, if any.
fn own_address() -> Option<IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// A Python script that requests the status from the supervisor that listens on a socket path.
const STATUS_CLIENT: &str = r#"
import json, socket, struct, sys
connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
def send(message):
    text = json.dumps(message).encode()
    connection.sendall(struct.pack("<I", len(text)) + text)
def receive():
    head = connection.recv(4, socket.MSG_WAITALL)
    return json.loads(connection.recv(struct.unpack("<I", head)[0], socket.MSG_WAITALL)) if head else None
try:
    connection.connect(sys.argv[1])
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
    // An MCP server on the host.
    let token = lab.home().join("token");
    let own = own_address().unwrap_or(IpAddr::from([127, 0, 0, 1]));
    let free = TcpListener::bind((own, 0)).unwrap().local_addr().unwrap();
    let mcp = lab.belljar(["mcp", "--http", &format!("127.0.0.1:{}", free.port())]);
    let mcp = mcp.arg("--token-file").arg(&token).start();
    let address = format!("127.0.0.1:{}", free.port());
    eventually("the MCP server listens", || std::net::TcpStream::connect(&address).is_ok());
    let sandbox = ScriptBox::up(&lab, "one", &["--net", "full"]);
    let socket = lab.state().join("boxes/one/socket");
    let status_script = |path: &str| format!("python3 - '{path}' <<'END'\n{STATUS_CLIENT}\nEND");
    // Control: the supervisor answers a client on the host.
    let outside = lab.program("python3").args(["-c", STATUS_CLIENT]).arg(&socket).succeed();
    assert_eq!(outside, "answered");
    assert_eq!(sandbox.run(&status_script(socket.to_str().unwrap())), "FileNotFoundError");
    let found =
        sandbox.run("find / -xdev -type s 2>/dev/null; ss -xl 2>/dev/null | grep -c belljar");
    assert!(!found.contains("socket"), "{found}");
    // Prints the status of the response, and the header that only the broker sets.
    let get = |host: &str| {
        sandbox.run(&format!(
            "curl -s -m 20 -o /dev/null -w '%{{http_code}} %header{{x-belljar}}' -H 'host: {address}' http://{host}:{}/mcp; true",
            free.port()
        ))
    };
    for host in ["127.0.0.1", "localhost", &own.to_string(), "host.belljar.internal"] {
        let response = get(host);
        let is_refused = response == "000" || response.split(' ').nth(1).is_some();
        assert!(is_refused, "{host}: {response}");
    }
    // Control: a `host-port` rule opens the MCP server.
    let rule = format!("host-port:{}", free.port());
    lab.belljar(["network", "one", "full", "--allow", &rule]).succeed();
    assert_eq!(get("host.belljar.internal"), "401", "the MCP server requires its token");
    drop(mcp);
}

#[test]
fn a29_supervisor_refuses_connections_of_other_users() {
    let lab = lab();
    let _sandbox = ScriptBox::up(&lab, "one", &[]);
    let dir = lab.state().join("boxes/one");
    let mode = fs::metadata(&dir).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "only the owner has access: {mode:o}");
    let socket = dir.join("socket");
    let request_status =
        |program: belljar_testkit::Program| program.arg(STATUS_CLIENT).arg(&socket).succeed();
    assert_eq!(request_status(lab.program("python3").arg("-c")), "answered");
    if !root_or_skip("a plain user cannot connect as another user") {
        return;
    }
    let other = ["--reuid=65533", "--regid=65533", "--clear-groups", "python3", "-c"];
    let as_other = || lab.program("setpriv").args(other);
    assert_eq!(request_status(as_other()), "PermissionError");
    // Also with accessible directories, the supervisor checks the user id of the client.
    let mut path = socket.clone();
    let make_accessible = |path: &std::path::Path| {
        let mode = fs::metadata(path).unwrap().mode() | 0o777;
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    make_accessible(&path);
    while path.pop() && path.starts_with(lab.dir()) {
        make_accessible(&path);
    }
    assert_eq!(request_status(as_other()), "turned away");
    assert_eq!(request_status(lab.program("python3").arg("-c")), "answered");
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
    lab.belljar(["secret", "set", "token"]).input(SECRET_VALUE).succeed();
    let (one, two) = (ScriptBox::up(&lab, "one", &[]), ScriptBox::up(&lab, "two", &[]));
    let request_with = |token: &str| {
        format!(
            "curl -sS -o /dev/null -w '%{{http_code}}' -H \"authorization: Bearer {token}\" https://api.example.com/"
        )
    };
    let token = one.run("echo $TOKEN");
    assert!(token.starts_with("ghp_") && token != SECRET_VALUE && token != two.run("echo $TOKEN"));
    assert_eq!(
        one.run(&request_with("$TOKEN")),
        "200",
        "control: the placeholder works in its own box"
    );
    assert_eq!(two.run(&request_with("$TOKEN")), "200");
    assert_eq!(two.run(&request_with(&token)), "403");
    let certificates = [&one, &two].map(|sandbox| {
        sandbox.run("cat $SSL_CERT_FILE /etc/ssl/certs/ca-certificates.crt 2>/dev/null | sha256sum")
    });
    assert_ne!(certificates[0], certificates[1], "each box has its own certificate authority");
    // After the box stopped, its placeholder is refused everywhere, also after the next start.
    lab.belljar(["stop", "--now", "one"]).succeed();
    assert_eq!(two.run(&request_with(&token)), "403");
    one.reset();
    lab.belljar(["start", "one"]).succeed();
    assert_eq!(one.run(&request_with(&token)), "403");
    assert_eq!(one.run(&request_with("$TOKEN")), "200");
    let alarms = ledger_events(&lab, "alarm.raised");
    let is_foreign = |it: &&Value| it["fields"]["alarm"] == "foreign-credential";
    assert_eq!(alarms.iter().filter(is_foreign).count(), 3, "{alarms:?}");
    let real = format!("Bearer {SECRET_VALUE}");
    assert!(upstream.received().iter().all(|it| it.header("authorization") == Some(&real)));
}
