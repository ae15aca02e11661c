//! No crate turns on a feature of tokio that the locked broker cannot bear.
//!
//! Features are the same for a whole build. With `signal` or `process` (both are in `full`) every
//! runtime opens what the system call filter of the broker refuses, so every box with a network would
//! fail. Tests may use them: what only tests need is not part of the build that is shipped.

use anyhow::{Context as _, Result};
use serde_json::Value;

const BANNED: [&str; 3] = ["signal", "process", "full"];

/// `built` is what `cargo tree` lists without dependencies of tests, as `name vVERSION features`.
pub(super) fn check(metadata: &Value, built: &str) -> Result<Vec<String>> {
    let members = metadata.get("workspace_members").and_then(Value::as_array);
    let members = members.context("cargo metadata has no members")?;
    let packages = metadata.get("packages").and_then(Value::as_array);
    let mut complaints = Vec::new();
    for package in packages.context("cargo metadata has no packages")? {
        if !package.get("id").is_some_and(|id| members.contains(id)) {
            continue;
        }
        let name = package.get("name").and_then(Value::as_str).unwrap_or_default();
        let dependencies = package.get("dependencies").and_then(Value::as_array);
        for dependency in dependencies.into_iter().flatten() {
            let is_dev = dependency.get("kind").and_then(Value::as_str) == Some("dev");
            if is_dev || dependency.get("name").and_then(Value::as_str) != Some("tokio") {
                continue;
            }
            let features = dependency.get("features").and_then(Value::as_array);
            let features = features.into_iter().flatten().filter_map(Value::as_str);
            let banned = features.filter(|feature| BANNED.contains(feature));
            complaints
                .extend(banned.map(|feature| format!("{name}: may not use `{feature}` of tokio")));
        }
    }
    let mut lines = built.lines().filter(|line| line.starts_with("tokio v")).peekable();
    lines.peek().context("tokio is not in the list of what is built")?;
    let features = lines.flat_map(|line| line.split(' ').nth(2).unwrap_or_default().split(','));
    let mut found: Vec<&str> = features.filter(|feature| BANNED.contains(feature)).collect();
    found.sort_unstable();
    found.dedup();
    complaints.extend(found.into_iter().map(|feature| {
        format!(
            "tokio: is built with `{feature}`; `cargo tree --workspace --edges=no-dev,features \
             --invert tokio` shows who asks for it"
        )
    }));
    Ok(complaints)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn complaints(kind: Option<&str>, features: &[&str], built: &str, expect: &[&str]) {
        let dependency = json!({ "name": "tokio", "kind": kind, "features": features });
        let ours = json!({ "id": "a", "name": "a", "dependencies": [dependency] });
        let foreign = json!({ "id": "f", "name": "f", "dependencies": [
            { "name": "tokio", "kind": null, "features": ["full"] }
        ] });
        let metadata = json!({ "workspace_members": ["a"], "packages": [ours, foreign] });
        assert_eq!(check(&metadata, built).unwrap(), expect);
    }

    #[test]
    fn banned_features_of_our_crates_are_refused_outside_tests() {
        let built = "tokio v1.0.0 net,rt\n";
        complaints(None, &["net", "rt"], built, &[]);
        complaints(None, &["net", "signal"], built, &["a: may not use `signal` of tokio"]);
        complaints(Some("build"), &["full"], built, &["a: may not use `full` of tokio"]);
        complaints(Some("dev"), &["process"], built, &[]);
    }

    #[test]
    fn banned_features_that_another_package_turns_on_are_refused() {
        let built = "a v1.0.0 process\ntokio v1.0.0 net,process,rt (*)\ntokio v1.0.0 process\n";
        let expect = "tokio: is built with `process`; `cargo tree --workspace \
                      --edges=no-dev,features --invert tokio` shows who asks for it";
        complaints(None, &[], built, &[expect]);
    }

    #[test]
    fn a_build_without_tokio_is_an_error() {
        let metadata = json!({ "workspace_members": [], "packages": [] });
        assert!(check(&metadata, "tokio-util v1.0.0 rt\n").is_err());
    }
}
