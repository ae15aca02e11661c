//! Tests that the `belljar.toml` of a project can tighten the operator's settings but not loosen them.

use belljar_engine::error::ErrorKind;
use serde_json::json;

use crate::test_engine::TestEngine;

#[test]
fn project_file_can_lower_limits_and_choose_a_stricter_mode() {
    let engine = TestEngine::new();
    engine.lab.configure("[template.default]\nmemory = \"512MiB\"\n");
    let text = "[template.default]\nmemory = \"64MiB\"\nmode = \"read-only\"\n";
    engine.lab.write("belljar.toml", text);
    let ended = engine.run(json!({}), "touch x 2> /dev/null || echo refused");
    assert_eq!(ended.succeeded(), "refused");
    assert_eq!(ended.result.limits.memory.to_string(), "64MiB");
}

#[test]
fn project_file_that_loosens_a_setting_of_the_operator_is_refused() {
    let engine = TestEngine::new();
    engine.lab.configure("[template.default]\nmemory = \"512MiB\"\n");
    let file = engine.lab.workspace().join("belljar.toml");
    for (line, expected) in [
        ("memory = \"1GiB\"", "`memory` of template `default`: 1GiB, but the operator has 512MiB"),
        ("mode = \"direct\"", "`mode` of template `default`: direct, but the operator has overlay"),
        ("mounts = [\"/etc:/x\"]", "`mounts` of template `default`"),
        ("env = [\"LD_PRELOAD=x\"]", "LD_PRELOAD, which controls"),
        ("env = [\"TOKEN\"]", "TOKEN inherited"),
        ("weaken = [\"seccomp\"]", "seccomp weakened"),
        ("timeout = \"none\"", "`timeout` of template `default`: none"),
        ("user = 0", "`user` of template `default`: 0"),
    ] {
        engine.lab.write("belljar.toml", format!("# a comment\n[template.default]\n{line}\n"));
        let message = engine.fail(&engine.spec(json!({}), "true"), ErrorKind::Invalid);
        assert!(message.contains(&format!("{}:3: ", file.display())), "{message}");
        assert!(message.contains(expected), "{message}");
    }
    assert!(engine.runs().is_empty(), "no run was started");
}
