//! The inspector of the protocol, in its strict mode.

use belljar_testkit::{Ended, Lab};
use serde_json::{Value, json};

use super::{HttpServer, npm};
use crate::lab;

/// Runs the inspector against the server `target` with these arguments.
fn inspect(lab: &Lab, target: &[&str], args: &[&str]) -> Ended {
    let (node, inspector) = npm("inspector");
    lab.program(node).arg(inspector).arg("--cli").args(target).args(args).run()
}

/// Asserts that the inspector can list tools, call a tool, and list resources and prompts.
#[track_caller]
fn assert_inspector_accepts(lab: &Lab, target: &[&str]) {
    let inspect = |args: &[&str]| -> Value {
        let ended = inspect(lab, target, args);
        let out = ended.expect(0);
        serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}\n{}", ended.err()))
    };
    // With `--strict` the exit code is 6 for a schema that some models refuse.
    let tools = inspect(&["--method", "tools/list", "--strict"]);
    let names: Vec<_> =
        tools["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert!(names.contains(&&json!("execute_code")), "{names:?}");
    let code = "code=export default 6 * 7";
    let answer =
        inspect(&["--method", "tools/call", "--tool-name", "execute_code", "--tool-arg", code]);
    assert_eq!(answer["structuredContent"]["result"], 42, "{answer}");
    assert!(inspect(&["--method", "resources/list"])["resources"].is_array());
    let templates = inspect(&["--method", "resources/templates/list"]);
    assert!(templates["resourceTemplates"].as_array().is_some_and(|all| !all.is_empty()));
    assert!(inspect(&["--method", "prompts/list"])["prompts"].is_array());
}

#[test]
fn mcp_inspector_accepts_the_server_over_standard_streams() {
    let lab = lab();
    let home = format!("BELLJAR_HOME={}", lab.state().display());
    let belljar = belljar_testkit::belljar(env!("CARGO_BIN_EXE_belljar"));
    assert_inspector_accepts(&lab, &["-e", &home, belljar.to_str().unwrap(), "mcp"]);
}

#[test]
fn mcp_inspector_accepts_the_server_over_http() {
    let server = HttpServer::start();
    let token = format!("Authorization: Bearer {}", server.token);
    assert_inspector_accepts(
        &server.lab,
        &[&server.url, "--transport", "http", "--header", &token],
    );
    // Control: the server refuses another token.
    let other = "Authorization: Bearer 0123456789012345678901234567890123456789";
    let target = [&server.url, "--transport", "http", "--header", other];
    let refused = inspect(&server.lab, &target, &["--method", "tools/list", "--strict"]);
    refused.fails_with(3, "auth_required");
    server.end();
}
