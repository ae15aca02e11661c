//! The conformance suite of the protocol, for the newest revision and the one before it.
//!
//! Most scenarios of the suite need tools, resources and prompts of its own example server, so they
//! cannot test another server. The tests list the scenarios that can test any server, each with the
//! number of its checks and with the checks that need a tool of the example server.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::proxy;
use super::{HttpServer, npm};

/// A scenario of the suite: the minimum number of passed checks, and the ids of checks that need the
/// example server.
struct Scenario {
    name: &'static str,
    passes: usize,
    untestable: &'static [&'static str],
}

/// Returns a scenario all of whose checks can be tested.
const fn all(name: &'static str, passes: usize) -> Scenario {
    Scenario { name, passes, untestable: &[] }
}

/// The configuration of the servers. Each declared API is a resource, and the suite needs at least one.
const CONFIG: &str = "[api.weather]\nhosts = [\"api.example.com\"]\n";

/// Runs the suite for a revision of the protocol and asserts that the checks of these scenarios pass.
#[track_caller]
fn assert_conforms(server: HttpServer, revision: &str, scenarios: &[Scenario]) {
    let url = format!("http://{}/mcp", proxy::with_token(server.address(), &server.token));
    let (node, conformance) = npm("conformance");
    let out = server.lab.dir().join("checks");
    let args = ["server", "--url", &url, "--requirements", revision, "-o"];
    // The suite exits with 1 for scenarios that it cannot test here, so only its reports are checked.
    let ended = server.lab.program(node).arg(conformance).args(args).arg(&out).run();
    for scenario in scenarios {
        let checks = checks(&out, scenario.name);
        let checks = checks.unwrap_or_else(|| panic!("{} did not run: {ended:?}", scenario.name));
        let with = |status: &str| {
            checks.iter().filter(|check| check["status"] == status).collect::<Vec<_>>()
        };
        let untestable = |check: &&Value| {
            let id = check["id"].as_str().unwrap_or_default();
            check["details"]["untestable"] == true && scenario.untestable.contains(&id)
        };
        let failed: Vec<_> = with("FAILURE").into_iter().filter(|it| !untestable(it)).collect();
        assert!(failed.is_empty(), "{revision} {}: {failed:#?}", scenario.name);
        let passed = with("SUCCESS").len();
        assert!(passed >= scenario.passes, "{}: {passed} of {}", scenario.name, scenario.passes);
    }
    server.end();
}

/// Reads the checks of a scenario from its report directory `server-SCENARIO-TIME`.
fn checks(out: &Path, scenario: &str) -> Option<Vec<Value>> {
    let prefix = format!("server-{scenario}-20");
    let found = fs::read_dir(out)
        .ok()?
        .flatten()
        .find(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(&prefix)))?;
    let text = fs::read_to_string(found.path().join("checks.json")).ok()?;
    serde_json::from_str(&text).ok()
}

// These checks need tools of the example server.
const UNTESTABLE_2026: &[&str] = &[
    "sep-2575-server-rejects-undeclared-capability",
    "sep-2575-missing-capability-http-400",
    "sep-2575-http-server-no-independent-requests-on-stream",
    "sep-2575-server-no-log-without-loglevel",
];

const OF_2026_07_28: &[Scenario] = &[
    Scenario { name: "server-stateless", passes: 21, untestable: UNTESTABLE_2026 },
    all("tools-list", 4),
    all("resources-list", 2),
    all("prompts-list", 2),
    all("caching", 8),
    all("http-header-validation", 14),
    all("sep-2164-resource-not-found", 4),
    all("dns-rebinding-protection", 2),
    all("server-sse-multiple-streams", 1),
    all("input-required-result-unsupported-methods", 2),
    all("input-required-result-validate-input", 3),
];

const OF_2025_11_25: &[Scenario] = &[
    all("server-initialize", 3),
    all("ping", 2),
    all("tools-list", 3),
    all("resources-list", 2),
    all("prompts-list", 2),
    all("server-sse-multiple-streams", 2),
    all("server-sse-polling", 2),
    all("server-session-lifecycle", 3),
    all("dns-rebinding-protection", 2),
];

#[test]
fn mcp_server_passes_the_conformance_suite_of_2026_07_28() {
    assert_conforms(HttpServer::with(CONFIG), "2026-07-28", OF_2026_07_28);
}

#[test]
fn mcp_server_passes_the_conformance_suite_of_2025_11_25() {
    assert_conforms(HttpServer::with(CONFIG), "2025-11-25", OF_2025_11_25);
}

#[test]
fn serve_passes_the_conformance_suite_of_2026_07_28_over_mcp() {
    assert_conforms(HttpServer::of_serve(CONFIG), "2026-07-28", OF_2026_07_28);
}

#[test]
fn serve_passes_the_conformance_suite_of_2025_11_25_over_mcp() {
    assert_conforms(HttpServer::of_serve(CONFIG), "2025-11-25", OF_2025_11_25);
}
