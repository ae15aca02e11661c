//! `belljar forward`: ports of the host that lead to a box.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use belljar_testkit::{Lab, eventually};

use super::{status, up};
use crate::lab;

/// A server in Python that answers each connection with its name and what it received.
const SERVER: &str = r#"
import socket, sys, threading
def serve(address, port, name):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    server = socket.create_server((address, int(port)), family=family)
    while True:
        client, _ = server.accept()
        data = b""
        while chunk := client.recv(65536): data += chunk
        client.sendall(name.encode() + b" got " + str(len(data)).encode())
        client.close()
servers = [it.split(",") for it in sys.argv[1:]]
threads = [threading.Thread(target=serve, args=it) for it in servers]
for it in threads: it.start()
print("listening", flush=True)
"#;

/// Starts a box with servers, each as `address,port,name`, and waits until they listen.
fn up_with_servers(lab: &Lab, name: &str, options: &[&str], servers: &[&str]) {
    lab.write("server.py", SERVER);
    let up = lab.belljar(["up", name]).args(options).args(["--", "python3", "server.py"]);
    up.args(servers).succeed();
    eventually("the servers listen", || {
        lab.belljar(["logs", name]).run().out().contains("listening")
    });
}

/// Returns a port of the host that is free now.
fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

/// Sends bytes to a port of the host and returns the answer, which is empty if the connection is closed.
fn ask(port: u16, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    stream.write_all(bytes).ok(); // the forward can close the connection at once
    stream.shutdown(std::net::Shutdown::Write).ok();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok(); // as above
    String::from_utf8(answer).unwrap()
}

fn is_closed(port: u16) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err()
}

#[test]
fn forward_leads_to_a_server_of_the_box_until_the_box_stops() {
    let lab = lab();
    up_with_servers(&lab, "web", &[], &["127.0.0.1,3000,four", "::1,3001,six"]);
    let (port, other) = (free_port(), free_port());
    let forward = |args: &[&str]| lab.belljar(["forward", "web"]).args(args);
    let ended = forward(&[&format!("{port}:3000")]).run();
    ended.expect(0);
    let url = format!("http://127.0.0.1:{port}");
    assert!(
        ended.err().contains(&format!("{url} leads to port 3000 of box web")),
        "{}",
        ended.err()
    );
    let large = vec![7; 3_000_000];
    assert_eq!(ask(port, &large), "four got 3000000");
    // A server that listens on IPv6 only, as some development servers do.
    forward(&[&format!("{other}:3001")]).succeed();
    assert_eq!(ask(other, b"x"), "six got 1");
    let shown = lab.belljar(["status", "web"]).succeed();
    assert!(shown.contains(&format!("forward    {url} to port 3000")), "{shown}");
    assert_eq!(status(&lab, "web")["live"]["forwards"][1]["port"], 3001);
    let log = lab.belljar(["ledger", "log", "--kind", "box.forwarded"]).succeed();
    assert!(log.contains(&format!("127.0.0.1:{port} to port 3000 of web")), "{log}");
    forward(&[&other.to_string(), "--remove"]).succeed();
    assert!(is_closed(other));
    assert_eq!(ask(port, b"x"), "four got 1");
    lab.belljar(["stop", "--now", "web"]).succeed();
    assert!(is_closed(port), "the forward ends with the box");
}

#[test]
fn a29_forward_reaches_only_its_own_port_of_its_own_box() {
    let lab = lab();
    let servers = ["127.0.0.1,3000,wanted", "127.0.0.1,3001,other"];
    up_with_servers(&lab, "web", &[], &servers);
    up_with_servers(&lab, "second", &[], &["127.0.0.1,3000,second"]);
    let port = free_port();
    lab.belljar(["forward", "web", &format!("{port}:3000")]).succeed();
    for _ in 0..3 {
        assert_eq!(ask(port, b"x"), "wanted got 1");
    }
    // The forward listens on the loopback only, and on its own port only.
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let listening = |port: u16| {
        let (suffix, is_listening) = (format!(":{port:04X}"), "0A");
        let rows = table.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
        let rows = rows.filter(|row| row.len() > 3 && row[3] == is_listening);
        rows.filter(|row| row[1].ends_with(&suffix))
            .map(|row| row[1].to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(listening(port), [format!("0100007F:{port:04X}")]);
    // The box gets no way to the host: a server of the host is not reachable from the box.
    let host = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let script =
        format!("exec 3<>/dev/tcp/127.0.0.1/{} && echo reached", host.local_addr().unwrap().port());
    let tried = lab.belljar(["exec", "web", "--", "bash", "-c", &script]).run();
    assert_ne!(tried.code(), 0, "{}", tried.out());
    // Control: a second forward leads to the other server, and one of the second box to that box.
    let (other, second) = (free_port(), free_port());
    lab.belljar(["forward", "web", &format!("{other}:3001")]).succeed();
    lab.belljar(["forward", "second", &format!("{second}:3000")]).succeed();
    assert_eq!(ask(other, b"x"), "other got 1");
    assert_eq!(ask(second, b"x"), "second got 1");
    assert_eq!(ask(port, b"x"), "wanted got 1");
    lab.belljar(["stop", "--now", "web", "second"]).succeed();
}

#[test]
fn forward_reports_ports_that_are_taken_reserved_or_without_a_server() {
    let lab = lab();
    up(&lab, "task", "true");
    let forward = |ports: &str| lab.belljar(["forward", "task", ports]).run();
    for low in ["80", "1023:3000", "3000:80"] {
        forward(low).fails_with(2, "below 1024");
    }
    forward("x").fails_with(2, "not a port");
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    forward(&format!("{port}:3000")).fails_with(2, "is in use; choose another one");
    drop(taken);
    let early = forward(&format!("{port}:3000"));
    early.expect(0);
    assert!(
        early.err().contains("no program in box task listens on port 3000 yet"),
        "{}",
        early.err()
    );
    assert_eq!(ask(port, b"x"), "", "the connection is closed");
    forward(&format!("{port}:3001")).fails_with(2, "is already forwarded to port 3000");
    // The forward works when a server starts later.
    let server = "import socket; s = socket.create_server(('127.0.0.1', 3000)); c, _ = s.accept(); c.sendall(b'late')";
    let later = lab.belljar(["exec", "task", "--", "python3", "-c", server]).start();
    eventually("the server answers", || ask(port, b"") == "late");
    later.wait().expect(0);
    let none = lab.belljar(["forward", "task", "39999", "--remove"]).run();
    none.fails_with(2, "port 39999 is not forwarded");
    lab.belljar(["stop", "--now", "task"]).succeed();
    forward("3000").fails_with(2, "belljar start task");
    lab.belljar(["forward", "none", "3000"]).run().fails_with(2, "there is no box none");
}

#[test]
fn forward_opens_the_address_in_the_browser_that_the_user_chose() {
    let lab = lab();
    up(&lab, "task", "true");
    let browser = lab.write("browser", "#!/bin/sh\necho \"$1\" > \"$HOME/opened\"\n");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&browser, mode).unwrap();
    let port = free_port();
    let args = ["forward", "task", &format!("{port}:3000"), "--open"];
    lab.belljar(args).env("BROWSER", &browser).succeed();
    let opened = lab.home().join("opened");
    let url = format!("http://127.0.0.1:{port}\n");
    eventually("the browser opens", || {
        std::fs::read_to_string(&opened).is_ok_and(|text| text == url)
    });
    let args = ["forward", "task", &format!("{}:3000", free_port()), "--open"];
    let missing = lab.belljar(args).env("BROWSER", "/no/such/browser").run();
    assert!(missing.err().contains("set BROWSER to the program"), "{}", missing.err());
    assert_ne!(missing.code(), 0);
    lab.belljar(["stop", "--now", "task"]).succeed();
}
