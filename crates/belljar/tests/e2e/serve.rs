//! `belljar serve`: start, refusals, socket activation and the end of the server.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use belljar_testkit::{Lab, Live, Signal};

use crate::lab;

/// Starts a server on a free port and returns it with its address.
fn start(lab: &Lab) -> (Live, String) {
    started(lab.belljar(["serve", "--listen", "127.0.0.1:0"]).start())
}

/// Waits until a server serves, and returns it with its address.
fn started(live: Live) -> (Live, String) {
    let text = live.wait_for_error_output("serving at http://");
    let (_, rest) = text.split_once("serving at http://").unwrap();
    let address = rest.lines().next().unwrap().trim().to_owned();
    (live, address)
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
    let (live, address) = start(&lab);
    assert!(get(&address, "/readyz").starts_with("HTTP/1.1 200 "));
    let second = lab.belljar(["serve", "--listen", "127.0.0.1:0"]).run();
    second.fails_with(2, &format!("another server at http://{address} uses the state directory"));
    live.signal(Signal::HUP);
    assert!(get(&address, "/healthz").starts_with("HTTP/1.1 200 "), "SIGHUP does not end it");
    live.signal(Signal::TERM);
    assert_eq!(live.wait().code(), 0);
    let (live, _) = start(&lab);
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
    let (live, address) = started(activate("1").start());
    assert!(get(&address, "/healthz").starts_with("HTTP/1.1 200 "));
    live.signal(Signal::TERM);
    assert_eq!(live.wait().code(), 0);
    activate("2").run().fails_with(2, "descriptor 4 is no listening socket");
    let both = activate("1").args(["--listen", "127.0.0.1:0"]).run();
    both.fails_with(2, "systemd passed the sockets");
}
