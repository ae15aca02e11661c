//! The official Python client, which negotiates the revision of the protocol.

use belljar_testkit::Lab;
use serde_json::{Value, json};

use super::{HttpServer, mcp_tools_dir};
use crate::lab;

/// The path of the client script.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/mcp/client.py");

/// Asserts that all requests of the client script succeed, with the newest and with an older revision.
#[track_caller]
fn assert_client_works(lab: &Lab, target: &[&str]) {
    for (mode, version) in [("auto", "2026-07-28"), ("legacy", "2025-11-25")] {
        let client = lab.program("/usr/bin/python3").arg(SCRIPT).arg(mode).args(target);
        let ended = client.env("PYTHONPATH", mcp_tools_dir().join("python")).run();
        let out = ended.expect(0);
        let results: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}"));
        assert_eq!(results["version"], version, "{results}");
        assert_eq!(results["server"], "belljar", "{results}");
        assert!(results["tools"].as_array().unwrap().contains(&json!("execute_code")), "{results}");
        assert_eq!(results["sum"], 42, "{results}");
        assert_eq!(results["failed"], true, "{results}");
        assert_eq!(results["unknown"], -32602, "{results}");
        assert_eq!(results["together"], json!([0, 1, 4, 9]), "{results}");
        // Older revisions have a separate error code for a missing resource.
        let missing = if mode == "auto" { -32602 } else { -32002 };
        assert_eq!(results["missing"], missing, "{results}");
    }
}

#[test]
fn python_mcp_client_works_over_standard_streams() {
    let lab = lab();
    let belljar = belljar_testkit::belljar(env!("CARGO_BIN_EXE_belljar"));
    let home = lab.state();
    assert_client_works(&lab, &["stdio", belljar.to_str().unwrap(), home.to_str().unwrap()]);
}

#[test]
fn python_mcp_client_works_over_http() {
    let server = HttpServer::start();
    assert_client_works(&server.lab, &["http", &server.url, &server.token]);
    server.end();
}
