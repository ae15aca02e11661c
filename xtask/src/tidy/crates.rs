//! Checks that each crate depends only on the crates of this repository that it may use.
//!
//! Dependencies of tests do not count.

use anyhow::{Context as _, Result};
use serde_json::Value;

/// Each crate, with the crates of this repository that it may depend on. `*` means all crates except
/// those of [`LEAVES`].
const ALLOWED: &[(&str, &[&str])] = &[
    ("belljar-model", &[]),
    ("belljar-sys", &[]),
    ("belljar-wire", &["belljar-model"]),
    ("belljar-ledger", &["belljar-model"]),
    ("belljar-broker", &["belljar-ledger", "belljar-model"]),
    ("belljar-code", &["belljar-model", "belljar-wire"]),
    ("belljar-worker", &["belljar-model", "belljar-wire"]),
    ("belljar-console", &["belljar-model"]),
    ("belljar-gateway", &["belljar-console", "belljar-engine", "belljar-model"]),
    ("belljar-workspace", &["belljar-model"]),
    ("belljar-init", &["belljar-model", "belljar-sys"]),
    ("belljar-embedded", &[]),
    ("belljar-box", &["belljar-embedded", "belljar-init", "belljar-model", "belljar-sys"]),
    ("belljar-probe", &["belljar-sys"]),
    ("belljar-attacks", &["belljar-model"]),
    (
        "belljar-engine",
        &[
            "belljar-box",
            "belljar-broker",
            "belljar-code",
            "belljar-embedded",
            "belljar-init",
            "belljar-ledger",
            "belljar-model",
            "belljar-sys",
            "belljar-wire",
            "belljar-workspace",
        ],
    ),
    (
        "belljar",
        &[
            "belljar-attacks",
            "belljar-engine",
            "belljar-gateway",
            "belljar-ledger",
            "belljar-model",
            "belljar-sys",
            "belljar-workspace",
        ],
    ),
    ("belljar-testkit", &["*"]),
    ("xtask", &[]),
];

/// Crates that no released program links. The worker runs only inside a box.
const LEAVES: [&str; 4] = ["belljar", "belljar-testkit", "belljar-worker", "xtask"];

pub(super) fn check(metadata: &Value) -> Result<Vec<String>> {
    let members = list(metadata, "workspace_members")?;
    let packages = list(metadata, "packages")?;
    let own: Vec<&Value> = packages
        .iter()
        .filter(|package| package.get("id").is_some_and(|id| members.contains(id)))
        .collect();
    let names: Vec<&str> = own.iter().filter_map(|package| text(package, "name")).collect();
    let mut complaints = Vec::new();
    for package in own {
        let name = text(package, "name").context("cargo metadata has a package without a name")?;
        let Some((_, allowed)) = ALLOWED.iter().find(|(row, _)| *row == name) else {
            complaints
                .push(format!("{name}: not in the table of xtask/src/tidy/crates.rs; add the crate and its dependencies"));
            continue;
        };
        for dependency in list(package, "dependencies")? {
            let other = text(dependency, "name")
                .context("cargo metadata has a dependency without a name")?;
            let is_dev = text(dependency, "kind") == Some("dev");
            let is_allowed =
                allowed.contains(&other) || (allowed.contains(&"*") && !LEAVES.contains(&other));
            if names.contains(&other) && !is_dev && !is_allowed {
                complaints.push(format!("{name}: may not depend on {other}"));
            }
        }
    }
    Ok(complaints)
}

fn list<'a>(value: &'a Value, key: &str) -> Result<&'a Vec<Value>> {
    value
        .get(key)
        .and_then(Value::as_array)
        .with_context(|| format!("cargo metadata has no `{key}`"))
}

fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Checks a workspace with these crates. Each dependency is (from, to, kind).
    #[track_caller]
    fn complaints(crates: &[&str], dependencies: &[(&str, &str, Option<&str>)], expect: &[&str]) {
        let packages: Vec<Value> = crates
            .iter()
            .map(|&name| {
                let own = dependencies.iter().filter(|(from, ..)| *from == name);
                let dependencies: Vec<Value> =
                    own.map(|(_, to, kind)| json!({ "name": to, "kind": kind })).collect();
                json!({ "id": name, "name": name, "dependencies": dependencies })
            })
            .collect();
        let metadata = json!({ "workspace_members": crates, "packages": packages });
        assert_eq!(check(&metadata).unwrap(), expect);
    }

    #[test]
    fn dependencies_outside_the_table_are_refused_except_in_tests() {
        let crates = ["belljar-model", "belljar-sys", "belljar-workspace"];
        complaints(&crates, &[("belljar-workspace", "belljar-model", None)], &[]);
        complaints(
            &crates,
            &[("belljar-model", "belljar-sys", Some("build"))],
            &["belljar-model: may not depend on belljar-sys"],
        );
        complaints(&crates, &[("belljar-model", "belljar-sys", Some("dev"))], &[]);
        complaints(&crates, &[("belljar-model", "serde", None)], &[]);
    }

    #[test]
    fn star_in_the_table_allows_all_crates_except_leaves() {
        let crates = ["belljar-broker", "belljar-worker", "belljar-testkit"];
        complaints(&crates, &[("belljar-testkit", "belljar-broker", None)], &[]);
        complaints(
            &crates,
            &[("belljar-testkit", "belljar-worker", None)],
            &["belljar-testkit: may not depend on belljar-worker"],
        );
    }

    #[test]
    fn front_ends_may_not_depend_on_crates_below_the_engine() {
        let crates = ["belljar", "belljar-gateway", "belljar-engine", "belljar-broker"];
        complaints(
            &crates,
            &[
                ("belljar", "belljar-engine", None),
                ("belljar-gateway", "belljar-engine", None),
                ("belljar", "belljar-broker", Some("dev")),
            ],
            &[],
        );
        complaints(
            &crates,
            &[
                ("belljar", "belljar-broker", None),
                ("belljar-gateway", "belljar-broker", None),
                ("belljar-engine", "belljar", None),
            ],
            &[
                "belljar: may not depend on belljar-broker",
                "belljar-gateway: may not depend on belljar-broker",
                "belljar-engine: may not depend on belljar",
            ],
        );
    }

    #[test]
    fn crate_that_is_missing_in_the_table_is_refused() {
        complaints(
            &["belljar-new"],
            &[],
            &[
                "belljar-new: not in the table of xtask/src/tidy/crates.rs; add the crate and its dependencies",
            ],
        );
    }
}
