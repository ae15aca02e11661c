//! The web console in Chromium, with real boxes and runs. The scripts are in `console/`.

use std::fs;
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
    walk_as(lab, script, &["login-link"], |_| {})
}

/// Like [`walk`], with the command of the login, and what is done as soon as the server runs.
fn walk_as(lab: &Lab, script: &str, login: &[&str], prepare: impl FnOnce(&Lab)) -> Value {
    let (live, ..) = start(lab);
    let live = live.within(Duration::from_secs(400)); // the script and the end of the server
    prepare(lab);
    let link = lab.belljar(login).succeed();
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

#[test]
fn box_has_a_form_a_terminal_a_review_and_its_removal() {
    let lab = lab();
    let result = walk(&lab, "box.mjs");
    let hostile = r#"x\u{202e}<img src=x onerror=alert(1)>"><script>.txt"#;
    let expect = json!({
        "left": "The whole log as text",
        "reversed": false,
        "disabled": true,
        "cut": "none",
        "checked": false,
        "names": [".envrc", "notes.txt", "sub/deep.txt", hostile],
        "sign": "export A=1",
        "applied": {
            "notes": "one\n2 <img src=x onerror=alert(1)>\u{1b}[2J\nthree\n",
            "deep": true,
            "envrc": false,
        },
        "envrc": "export A=1\n",
        "conflict": "of the host\n",
        "boxes": 0,
        "faults": [],
    });
    assert_eq!(result, expect);
}

#[test]
fn commits_of_a_box_are_applied_and_its_terminal_is_shared_and_connects_again() {
    let lab = lab();
    let result = walk(&lab, "clone.mjs");
    let expect = json!({
        "sockets": true,
        "rows": 3000,
        "subject": "rows <b>",
        "text": "a<script>alert(1)</script>\\u{202e}b\n",
        "removed": [204, 204],
        "faults": [],
    });
    assert_eq!(result, expect);
}

#[test]
fn g02_person_submits_a_plan_answers_its_gates_and_pauses_a_schedule_in_the_console() {
    let lab = lab();
    let plan = lab.dir().join("plan.toml");
    fs::write(&plan, "[task.a]\ndo = { stub = 'x' }\n").unwrap();
    let plan = plan.display();
    lab.configure(&format!("[schedule.nightly]\nplan = '{plan}'\ncron = '0 12 1 1 *'\n"));
    let result = walk(&lab, "runs.mjs");
    let expect = json!({ "cancelled": "cancelled", "paused": "paused", "images": 0, "faults": [] });
    assert_eq!(result, expect);
}

#[test]
fn owner_of_a_tenant_controls_rules_secrets_people_and_tokens() {
    let lab = lab();
    let create = ["tenant", "create", "team-7", "--owner", "https://id.example", "ada"];
    let prepare = |lab: &Lab| drop(lab.belljar(create).succeed());
    let result = walk_as(&lab, "control.mjs", &["login-link", "team-7"], prepare);
    let expect = json!({
        "secrets": ["deploy-key"],
        "box": 201,
        "saved": [2, true, true],
        "invited": [true, false],
        "token": [200, 403, 401],
        "disabled": "/login",
        "faults": [],
    });
    assert_eq!(result, expect);
}
