//! The official client for Python, which finds out by itself what a server speaks.

use belljar_testkit::Lab;
use serde_json::{Value, json};

use super::{Served, judges};
use crate::lab;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/mcp/client.py");

/// Has the client do everything it does, once as it likes and once as older clients do.
#[track_caller]
fn judge(lab: &Lab, target: &[&str]) {
    for (mode, version) in [("auto", "2026-07-28"), ("legacy", "2025-11-25")] {
        let client = lab.program("/usr/bin/python3").arg(SCRIPT).arg(mode).args(target);
        let ended = client.env("PYTHONPATH", judges().join("python")).run();
        let out = ended.expect(0);
        let done: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}"));
        assert_eq!(done["version"], version, "{done}");
        assert_eq!(done["server"], "belljar", "{done}");
        assert!(done["tools"].as_array().unwrap().contains(&json!("execute_code")), "{done}");
        assert_eq!(done["sum"], 42, "{done}");
        assert_eq!(done["failed"], true, "{done}");
        assert_eq!(done["unknown"], -32602, "{done}");
        assert_eq!(done["together"], json!([0, 1, 4, 9]), "{done}");
        // Older revisions have a code of their own for it.
        let missing = if mode == "auto" { -32602 } else { -32002 };
        assert_eq!(done["missing"], missing, "{done}");
    }
}

#[test]
fn python_mcp_client_works_over_standard_streams() {
    let lab = lab();
    let belljar = belljar_testkit::belljar(env!("CARGO_BIN_EXE_belljar"));
    let home = lab.state();
    judge(&lab, &["stdio", belljar.to_str().unwrap(), home.to_str().unwrap()]);
}

#[test]
fn python_mcp_client_works_over_http() {
    let served = Served::start();
    judge(&served.lab, &["http", &served.url, &served.token]);
    served.end();
}
