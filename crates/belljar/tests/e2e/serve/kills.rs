//! `kill -9` of the server under load: nothing recorded is lost, no request is carried out twice, and clients
//! continue with equal bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use belljar_testkit::{Lab, Live, Signal};
use serde_json::{Value, json};

use super::started;
use crate::lab;
use crate::mcp::installed;

/// The number of times that the test kills the server.
const KILLS: u32 = 100;
/// The time that the load has to recover and to end.
const LOAD_TIME: Duration = Duration::from_secs(900);

#[test]
fn server_that_is_killed_under_load_loses_nothing_and_does_nothing_twice() {
    let lab = lab();
    lab.configure("[serve]\nreads-per-second = 10000\nwrites-per-second = 10000\n");
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let mut server = serve(&lab, &address);
    let (token, stop) = (lab.dir().join("token"), lab.dir().join("stop"));
    std::fs::write(&token, make_token(&lab)).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/serve/kill_load.py");
    let python = lab.program("/usr/bin/python3").env("PYTHONPATH", installed("python"));
    let python = python.arg(script).arg(format!("http://{address}"));
    let mut load = python.args([&token, &stop]).start().within(LOAD_TIME);
    load.wait_for_output("ready");
    let seed = u64::from(std::process::id());
    let mut random = seed;
    for kill in 0..KILLS {
        assert!(!load.ended(), "kill {kill}, seed {seed}: {}", load.error_output());
        // The moments of the kills differ, which is all that the test needs of these numbers.
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        std::thread::sleep(Duration::from_millis(random >> 33 & 511));
        server.signal(Signal::KILL);
        server.wait();
        server = serve(&lab, &address);
    }
    std::fs::write(&stop, "").unwrap();
    let text = load.wait().expect(0);
    let report: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    println!("seed {seed}: {report}");
    server.signal(Signal::TERM);
    assert_eq!(server.wait().code(), 0);
    check_load(&report);
    lab.belljar(["ledger", "verify"]).succeed();
    let mut created = events(&lab, "run.created");
    created.retain(|event| event["fields"]["purpose"] == "run");
    check_recorded(&report["commands"], &created, "/command/hash");
    check_recorded(&report["plans"], &events(&lab, "plan.accepted"), "/plan");
    lab.belljar(["down", "busy", "--discard-work"]).run();
}

fn serve(lab: &Lab, address: &str) -> Live {
    started(lab.belljar(["serve", "--listen", address]).start()).0
}

/// Makes a token over the local socket.
fn make_token(lab: &Lab) -> String {
    let scopes = ["boxes:read", "boxes:write", "runs:read", "runs:write", "ledger:read"];
    let body = json!({ "name": "load", "kind": "service", "scopes": scopes });
    let socket = lab.state().join("server/socket");
    let curl = lab.program("curl").args(["--silent", "--fail-with-body", "--unix-socket"]);
    let curl = curl.arg(socket).args(["http://localhost/v1/tokens", "--json", &body.to_string()]);
    let made: Value = serde_json::from_str(&curl.succeed()).unwrap();
    made["token"].as_str().unwrap().to_owned()
}

/// Asserts that each client did something and connected again.
fn check_load(report: &Value) {
    let number = |pointer: &str| report.pointer(pointer).and_then(Value::as_u64).unwrap();
    for pointer in [
        "/numbers/connections",
        "/echo/connections",
        "/screen/connections",
        "/events/connections",
        "/repeated",
    ] {
        assert!(number(pointer) >= u64::from(KILLS) / 4, "control: {pointer} of {report}");
    }
    for pointer in ["/boxes", "/numbers/lines", "/echo/bytes", "/screen/commands"] {
        assert!(number(pointer) > 0, "control: {pointer} of {report}");
    }
}

/// Returns the events of a kind from the ledger.
fn events(lab: &Lab, kind: &str) -> Vec<Value> {
    let text = lab.belljar(["ledger", "log", "--json", "--kind", kind]).succeed();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Asserts that what each request that succeeded asked for was recorded once, and that of each other request
/// at most once. `digest` is the field of the hash of a command or plan. All of them differ.
fn check_recorded(requests: &Value, events: &[Value], digest: &str) {
    let mut runs_by_digest: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for event in events {
        let digest = event["fields"].pointer(digest).and_then(Value::as_str).unwrap();
        runs_by_digest.entry(digest).or_default().push(event["run"].as_str().unwrap());
    }
    for runs in runs_by_digest.values() {
        assert_eq!(runs.len(), 1, "one request was carried out more than once: {runs:?}");
    }
    let runs: BTreeSet<&str> = runs_by_digest.into_values().flatten().collect();
    let done = requests["done"].as_array().unwrap();
    assert!(!done.is_empty(), "control: {requests}");
    for run in done {
        assert!(runs.contains(run.as_str().unwrap()), "the ledger has no {run}");
    }
    let unknown = requests["unknown"].as_array().unwrap();
    assert!(runs.len() <= done.len() + unknown.len(), "{runs:?} {requests}");
}
