//! `belljar serve`: start, refusals, socket activation and the end of the server.

mod browser;
mod full_disk;
mod kills;
mod probes;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use belljar_testkit::{Lab, Live, Signal};

use crate::lab;

/// The program of the Debian package `chromium`.
pub(crate) const CHROMIUM: &str = "/usr/bin/chromium";

/// Starts a server on a free port and returns it with its address and its URL.
pub(crate) fn start(lab: &Lab) -> (Live, String, String) {
    started(lab.belljar(["serve", "--listen", "127.0.0.1:0"]).start())
}

/// Waits until a server serves, and returns it with its address and its URL.
fn started(live: Live) -> (Live, String, String) {
    let text = live.wait_for_error_output("serving at http://");
    let (_, rest) = text.split_once("serving at http://").unwrap();
    let name = rest.lines().next().unwrap().trim();
    // The resolver of the host need not know names below `localhost`.
    let (_, port) = name.split_once(".localhost:").unwrap();
    (live, format!("127.0.0.1:{port}"), format!("http://{name}"))
}

/// Sends a GET request and returns the response as text.
fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn serve_answers_until_a_signal_ends_it_and_refuses_a_second_server() {
    let lab = lab();
    let (live, address, url) = start(&lab);
    assert!(get(&address, "/readyz").starts_with("HTTP/1.1 200 "));
    let second = lab.belljar(["serve", "--listen", "127.0.0.1:0"]).run();
    second.fails_with(2, &format!("another server at {url} uses the state directory"));
    live.signal(Signal::HUP);
    assert!(get(&address, "/healthz").starts_with("HTTP/1.1 200 "), "SIGHUP does not end it");
    live.signal(Signal::TERM);
    assert_eq!(live.wait().code(), 0);
    let (live, ..) = start(&lab);
    live.signal(Signal::INT);
    assert_eq!(live.wait().code(), 0);
}

#[test]
fn serve_refuses_a_used_port_and_an_address_without_a_certificate() {
    let lab = lab();
    let used = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = used.local_addr().unwrap().to_string();
    let refused = lab.belljar(["serve", "--listen", &address]).run();
    refused.fails_with(2, &format!("--listen: cannot listen on {address}"));
    assert!(refused.err().contains("choose another address with --listen"), "{}", refused.err());
    let refused = lab.belljar(["serve", "--listen", "0.0.0.0:0"]).run();
    refused.fails_with(2, "is reachable from other machines");
    lab.configure(
        "[serve]\nlisten = \"127.0.0.1:0\"\ncert = \"missing.pem\"\nkey = \"missing.key\"\n",
    );
    let refused = lab.belljar(["serve"]).run();
    refused.fails_with(2, "missing.pem");
    lab.configure("[serve]\nlisten = \"here\"\n");
    lab.belljar(["serve"]).run().fails_with(2, "belljar.toml:2");
}

/// Passes a listening socket as descriptor 3, as systemd does.
const ACTIVATE: &str = "
import os, socket, sys
listener = socket.socket()
listener.bind(('127.0.0.1', 0))
listener.listen()
os.dup2(listener.fileno(), 3)
os.set_inheritable(3, True)
os.environ.update(LISTEN_FDS=sys.argv[1], LISTEN_PID=str(os.getpid()))
os.execv(sys.argv[2], sys.argv[2:])
";

#[test]
fn serve_takes_the_sockets_that_systemd_passes() {
    let lab = lab();
    let activate = |count: &str| {
        let python = lab.program("python3").args(["-c", ACTIVATE, count]);
        python.arg(belljar_testkit::belljar(env!("CARGO_BIN_EXE_belljar"))).arg("serve")
    };
    let (live, address, _) = started(activate("1").start());
    assert!(get(&address, "/healthz").starts_with("HTTP/1.1 200 "));
    live.signal(Signal::TERM);
    assert_eq!(live.wait().code(), 0);
    activate("2").run().fails_with(2, "descriptor 4 is no listening socket");
    let both = activate("1").args(["--listen", "127.0.0.1:0"]).run();
    both.fails_with(2, "systemd passed the sockets");
}

#[test]
fn login_link_logs_in_once_and_needs_a_running_server() {
    let lab = lab();
    lab.belljar(["login-link"]).run().fails_with(2, "start one with `belljar serve`");
    let (live, address, url) = start(&lab);
    let link = lab.belljar(["login-link"]).succeed();
    let (page, code) = link.trim().split_once('#').unwrap();
    assert_eq!(page, format!("{url}/login"));
    assert!(!live.error_output().contains(code), "the log contains no link");
    let host = url.strip_prefix("http://").unwrap();
    let post = || {
        let mut stream = TcpStream::connect(&address).unwrap();
        let body = format!("{{\"code\":\"{code}\"}}");
        let request = format!(
            "POST /auth/link HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    assert!(post().starts_with("HTTP/1.1 204 "));
    assert!(post().starts_with("HTTP/1.1 410 "));
    lab.belljar(["login-link", "team-7"]).run().fails_with(2, "there is no tenant team-7");
    let create = ["tenant", "create", "team-7", "--owner", "https://id.example", "ada"];
    lab.belljar(create).succeed();
    lab.belljar(create).run().fails_with(2, "the tenant already exists");
    assert!(lab.belljar(["login-link", "team-7"]).succeed().starts_with(&url));
    live.signal(Signal::TERM);
    assert_eq!(live.wait().code(), 0);
}

#[test]
fn serve_refuses_a_damaged_database_and_names_it() {
    let lab = lab();
    std::fs::create_dir_all(lab.state()).unwrap();
    std::fs::write(lab.state().join("gateway.db"), "no database ".repeat(500)).unwrap();
    let refused = lab.belljar(["serve", "--listen", "127.0.0.1:0"]).run();
    refused.fails_with(2, "gateway.db is damaged");
}

#[test]
fn f05_log_of_the_server_has_the_request_id_and_no_path_query_or_header() {
    let lab = lab();
    let serve = lab.belljar(["serve", "--listen", "127.0.0.1:0"]);
    let serve = serve.env("BELLJAR_LOG", "trace,json").without_env("BELLJAR_LOG_DIR");
    let (live, address, _) = started(serve.start());
    let mut stream = TcpStream::connect(&address).unwrap();
    let request = format!(
        "GET /healthz/canary-path?canary=query HTTP/1.1\r\nHost: {address}\r\nX-Canary: canary-header\r\n\
         Authorization: Bearer canary-token\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (_, id) = text.split_once("x-request-id: ").unwrap();
    let id = id.lines().next().unwrap().to_owned();
    live.signal(Signal::TERM);
    let log = live.wait().err();
    let line = log.lines().find(|line| line.contains(&id)).unwrap_or_else(|| panic!("{log}"));
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    assert!(line.to_string().contains("404"), "control: {line}");
    assert!(!log.contains("canary"), "{log}");
}
