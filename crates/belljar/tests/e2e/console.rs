//! The web console in Chromium, with real boxes and runs. The scripts are in `console/`.

use std::path::Path;
use std::time::Duration;

use belljar_testkit::{Lab, Signal};
use serde_json::{Value, json};

use crate::lab;
use crate::mcp::installed;
use crate::serve::{CHROMIUM, start};

/// Starts a server, runs a script in Chromium as the owner, and returns what the script prints. Every fault of a
/// page fails the test.
fn walk(lab: &Lab, script: &str) -> Value {
    let (live, ..) = start(lab);
    let link = lab.belljar(["login-link"]).succeed();
    let node = installed("mcp").join("npm/node_modules/node/bin/node");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/console").join(script);
    let browser = lab.program(node).arg(path).arg(installed("browser")).arg(CHROMIUM);
    let ended = browser.arg(link.trim()).start().within(Duration::from_secs(280)).wait();
    let text = ended.expect(0);
    let result: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{ended:?}"));
    assert_eq!(result["faults"], json!([]));
    live.signal(Signal::TERM);
    assert_eq!(live.wait().code(), 0);
    result
}

#[test]
fn h01_browser_checks_the_proof_of_an_event_and_refuses_a_changed_one() {
    let result = walk(&lab(), "ledger.mjs");
    let expect =
        json!({ "entry": "bad", "path": "bad", "size": "bad", "checkpoint": "bad", "none": "ok" });
    assert_eq!(result["results"], expect);
}

#[test]
fn overview_and_boxes_follow_what_happens_and_have_no_fault() {
    let lab = lab();
    let result = walk(&lab, "overview.mjs");
    assert_eq!(result, json!({ "created": 201, "after": "/login", "faults": [] }));
    lab.belljar(["down", "busy", "--discard-work"]).succeed();
}
