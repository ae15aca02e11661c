//! Attack tools of other projects against `belljar serve`: slow clients and weak TLS.

use std::fs;
use std::time::Duration;

use belljar_testkit::{Lab, Signal};
use serde_json::Value;

use super::{get, start};
use crate::lab;

/// The number of connections of the attack. The server has 1,024 for all clients.
const CONNECTIONS: &str = "1500";
const SECONDS: &str = "20";

/// Runs slowhttptest with these options, and asserts that the server stayed available for the tool's probes
/// and for another client.
#[track_caller]
fn withstands(options: &[&str]) {
    let lab = lab();
    let (live, address, _) = start(&lab);
    let url = format!("http://{address}/healthz");
    let attack = lab.program("slowhttptest").args(options);
    let attack =
        attack.args(["-c", CONNECTIONS, "-r", "300", "-l", SECONDS, "-p", "5", "-u", &url]);
    let attack = std::thread::spawn(move || attack.run());
    let mut answered = 0;
    while !attack.is_finished() {
        assert!(get(&address, "/readyz").starts_with("HTTP/1.1 200 "), "{options:?}");
        answered += 1;
    }
    assert!(answered > 0, "control: requests were sent during the attack");
    let report = attack.join().unwrap();
    let text = report.out();
    let probes: Vec<&str> =
        text.lines().filter(|line| line.contains("service available")).collect();
    assert!(probes.len() > 1, "control: the tool probed the server\n{text}");
    assert!(probes.iter().all(|line| line.contains("YES")), "{options:?}\n{text}");
    live.signal(Signal::TERM);
    assert_eq!(live.wait().code(), 0);
}

#[test]
fn f14_slowhttptest_with_slow_heads_does_not_make_the_server_unavailable() {
    withstands(&["-H", "-i", "5", "-t", "GET", "-x", "24"]);
}

#[test]
fn f14_slowhttptest_with_slow_bodies_does_not_make_the_server_unavailable() {
    withstands(&["-B", "-i", "5", "-s", "8192", "-x", "10", "-f", "application/json"]);
}

#[test]
fn f14_slowhttptest_with_slow_readers_does_not_make_the_server_unavailable() {
    withstands(&["-X", "-w", "10", "-y", "20", "-n", "5", "-z", "32", "-k", "3"]);
}

/// Makes a certificate authority and a certificate for the server with openssl.
fn certificate(lab: &Lab) {
    let script = "
        openssl ecparam -name prime256v1 -genkey -noout -out key.pem
        openssl req -x509 -key key.pem -days 30 -subj /CN=belljar.example \
            -addext subjectAltName=DNS:belljar.example -out cert.pem
        chmod 600 key.pem";
    lab.program("sh").args(["-ec", script]).cwd(lab.home()).succeed();
}

#[test]
fn f17_testssl_finds_no_weakness_of_the_encrypted_server() {
    /// The number of findings of a complete run, so that a run that tests nothing fails.
    const FINDINGS: usize = 50;
    /// The certificate of the test is signed by itself, is valid for a month and has no revocation. The
    /// second finding is about the openssl that testssl uses.
    const NOT_OF_THE_SERVER: [&str; 2] = ["cert", "engine_problem"];
    let lab = lab();
    certificate(&lab);
    let files = |name: &str| lab.home().join(name).display().to_string();
    lab.configure(&format!(
        "[serve]\nlisten = \"127.0.0.1:0\"\nhost = \"belljar.example\"\ncert = {:?}\nkey = {:?}\n",
        files("cert.pem"),
        files("key.pem")
    ));
    let live = lab.belljar(["serve"]).start().within(Duration::from_secs(500));
    let text = live.wait_for_error_output("serving at https://belljar.example:");
    let (_, port) = text.split_once("serving at https://belljar.example:").unwrap();
    let port = port.lines().next().unwrap().trim();
    let report = lab.home().join("testssl.json");
    let testssl = lab.program("testssl").args(["--quiet", "--color", "0", "--ip", "127.0.0.1"]);
    let testssl = testssl.args(["--nodns", "min", "--warnings", "off", "--jsonfile"]).arg(&report);
    let tests = ["--protocols", "--server-preference", "--fs", "--headers", "--vulnerable"];
    let testssl = testssl.args(tests).arg(format!("https://belljar.example:{port}/healthz"));
    let ended = testssl.start().within(Duration::from_secs(400)).wait();
    let text = fs::read_to_string(&report).unwrap_or_else(|error| panic!("{error} {ended:?}"));
    let findings: Vec<Value> = serde_json::from_str(&text).unwrap();
    assert!(findings.len() >= FINDINGS, "control: {} findings", findings.len());
    let is_weak = |it: &&Value| {
        let severity = it["severity"].as_str().unwrap_or_default();
        let id = it["id"].as_str().unwrap_or_default();
        let is_excluded = NOT_OF_THE_SERVER.iter().any(|excluded| id.starts_with(excluded));
        !matches!(severity, "OK" | "INFO") && !is_excluded
    };
    let weak: Vec<&Value> = findings.iter().filter(is_weak).collect();
    assert!(weak.is_empty(), "{weak:#?}");
    live.signal(Signal::TERM);
    assert_eq!(live.wait().code(), 0);
}
