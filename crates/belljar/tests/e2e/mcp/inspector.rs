//! The inspector of the protocol, as strict as it can be.

use belljar_testkit::{Ended, Lab};
use serde_json::{Value, json};

use super::{Served, npm};
use crate::lab;

/// Asks `target` for one thing.
fn inspect(lab: &Lab, target: &[&str], asks: &[&str]) -> Ended {
    let (node, inspector) = npm("inspector");
    lab.program(node).arg(inspector).arg("--cli").args(target).args(asks).run()
}

/// What any client wants first, over the way that `target` says.
#[track_caller]
fn judge(lab: &Lab, target: &[&str]) {
    let ask = |asks: &[&str]| -> Value {
        let ended = inspect(lab, target, asks);
        let out = ended.expect(0);
        serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}\n{}", ended.err()))
    };
    // Returns 6 for a schema that some model would not take.
    let tools = ask(&["--method", "tools/list", "--strict"]);
    let names: Vec<_> =
        tools["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert!(names.contains(&&json!("execute_code")), "{names:?}");
    let code = "code=export default 6 * 7";
    let answer =
        ask(&["--method", "tools/call", "--tool-name", "execute_code", "--tool-arg", code]);
    assert_eq!(answer["structuredContent"]["result"], 42, "{answer}");
    assert!(ask(&["--method", "resources/list"])["resources"].is_array());
    let templates = ask(&["--method", "resources/templates/list"]);
    assert!(templates["resourceTemplates"].as_array().is_some_and(|all| !all.is_empty()));
    assert!(ask(&["--method", "prompts/list"])["prompts"].is_array());
}

#[test]
fn mcp_inspector_accepts_the_server_over_standard_streams() {
    let lab = lab();
    let home = format!("BELLJAR_HOME={}", lab.state().display());
    let belljar = belljar_testkit::belljar(env!("CARGO_BIN_EXE_belljar"));
    judge(&lab, &["-e", &home, belljar.to_str().unwrap(), "mcp"]);
}

#[test]
fn mcp_inspector_accepts_the_server_over_http() {
    let served = Served::start();
    let token = format!("Authorization: Bearer {}", served.token);
    judge(&served.lab, &[&served.url, "--transport", "http", "--header", &token]);
    // The control: another token is told that it is not let in.
    let other = "Authorization: Bearer 0123456789012345678901234567890123456789";
    let target = [&served.url, "--transport", "http", "--header", other];
    let refused = inspect(&served.lab, &target, &["--method", "tools/list", "--strict"]);
    refused.complains(3, "auth_required");
    served.end();
}
