//! Checks that no crate enables a feature of tokio that the system call filter of the broker blocks.
//!
//! Features are enabled for a whole build. With `signal` or `process` (both are in `full`), every
//! runtime uses system calls that the filter of the broker blocks, so every box with a network would
//! fail. Tests may use these features, because they are not part of a release.

use anyhow::{Context as _, Result};
use serde_json::Value;

const BANNED: [&str; 3] = ["signal", "process", "full"];

/// Checks the features in the manifests, and in `built`: the output of `cargo tree` without dependencies
/// of tests, with lines `name vVERSION features`.
pub(super) fn check(metadata: &Value, built: &str) -> Result<Vec<String>> {
    let members = metadata.get("workspace_members").and_then(Value::as_array);
    let members = members.context("cargo metadata has no workspace members")?;
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
            complaints.extend(
                banned.map(|feature| {
                    format!("{name}: may not enable the feature `{feature}` of tokio")
                }),
            );
        }
    }
    let mut lines = built.lines().filter(|line| line.starts_with("tokio v")).peekable();
    lines.peek().context("tokio is not in the list of built packages")?;
    let features = lines.flat_map(|line| line.split(' ').nth(2).unwrap_or_default().split(','));
    let mut found: Vec<&str> = features.filter(|feature| BANNED.contains(feature)).collect();
    found.sort_unstable();
    found.dedup();
    complaints.extend(found.into_iter().map(|feature| {
        format!(
            "tokio: the feature `{feature}` is enabled; find the package that enables it with \
             `cargo tree --workspace --edges=no-dev,features --invert tokio`"
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
        let own = json!({ "id": "a", "name": "a", "dependencies": [dependency] });
        let foreign = json!({ "id": "f", "name": "f", "dependencies": [
            { "name": "tokio", "kind": null, "features": ["full"] }
        ] });
        let metadata = json!({ "workspace_members": ["a"], "packages": [own, foreign] });
        assert_eq!(check(&metadata, built).unwrap(), expect);
    }

    #[test]
    fn banned_features_in_manifests_are_refused_except_for_tests() {
        let built = "tokio v1.0.0 net,rt\n";
        complaints(None, &["net", "rt"], built, &[]);
        complaints(
            None,
            &["net", "signal"],
            built,
            &["a: may not enable the feature `signal` of tokio"],
        );
        complaints(
            Some("build"),
            &["full"],
            built,
            &["a: may not enable the feature `full` of tokio"],
        );
        complaints(Some("dev"), &["process"], built, &[]);
    }

    #[test]
    fn banned_features_that_another_package_enables_are_refused() {
        let built = "a v1.0.0 process\ntokio v1.0.0 net,process,rt (*)\ntokio v1.0.0 process\n";
        let expect = "tokio: the feature `process` is enabled; find the package that enables it with \
                      `cargo tree --workspace --edges=no-dev,features --invert tokio`";
        complaints(None, &[], built, &[expect]);
    }

    #[test]
    fn list_of_packages_without_tokio_is_an_error() {
        let metadata = json!({ "workspace_members": [], "packages": [] });
        assert!(check(&metadata, "tokio-util v1.0.0 rt\n").is_err());
    }
}
