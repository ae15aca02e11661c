//! Who may depend on whom: the table that keeps each crate's rule a rule.
//!
//! Only what is linked counts: a test may use anything.

use anyhow::{Context as _, Result};
use serde_json::Value;

/// Each crate with the crates of ours that it may name. `*` means all but those of [`LEAVES`].
const TABLE: &[(&str, &[&str])] = &[
    ("belljar-model", &[]),
    ("belljar-sys", &[]),
    ("belljar-wire", &["belljar-model"]),
    ("belljar-ledger", &["belljar-model"]),
    ("belljar-broker", &["belljar-ledger", "belljar-model"]),
    ("belljar-code", &["belljar-model", "belljar-wire"]),
    ("belljar-worker", &["belljar-model", "belljar-wire"]),
    ("belljar-gateway", &["belljar-code", "belljar-engine", "belljar-model", "belljar-wire"]),
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
    ("belljar", &["*"]),
    ("belljar-testkit", &["*"]),
    ("xtask", &[]),
];

/// Nothing that is shipped links these. The worker runs only inside a box.
const LEAVES: [&str; 4] = ["belljar", "belljar-testkit", "belljar-worker", "xtask"];

pub(super) fn check(metadata: &Value) -> Result<Vec<String>> {
    let members = list(metadata, "workspace_members")?;
    let packages = list(metadata, "packages")?;
    let ours: Vec<&Value> = packages
        .iter()
        .filter(|package| package.get("id").is_some_and(|id| members.contains(id)))
        .collect();
    let names: Vec<&str> = ours.iter().filter_map(|package| text(package, "name")).collect();
    let mut complaints = Vec::new();
    for package in ours {
        let name = text(package, "name").context("a package without a name")?;
        let Some((_, may)) = TABLE.iter().find(|(row, _)| *row == name) else {
            complaints
                .push(format!("{name}: not in the table of crates; add it with what it may name"));
            continue;
        };
        for dependency in list(package, "dependencies")? {
            let other = text(dependency, "name").context("a dependency without a name")?;
            let is_dev = text(dependency, "kind") == Some("dev");
            let allowed = may.contains(&other) || (may.contains(&"*") && !LEAVES.contains(&other));
            if names.contains(&other) && !is_dev && !allowed {
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

    /// A workspace of these crates; each dependency is (from, to, kind).
    #[track_caller]
    fn complaints(crates: &[&str], arrows: &[(&str, &str, Option<&str>)], expect: &[&str]) {
        let packages: Vec<Value> = crates
            .iter()
            .map(|&name| {
                let own = arrows.iter().filter(|(from, ..)| *from == name);
                let dependencies: Vec<Value> =
                    own.map(|(_, to, kind)| json!({ "name": to, "kind": kind })).collect();
                json!({ "id": name, "name": name, "dependencies": dependencies })
            })
            .collect();
        let metadata = json!({ "workspace_members": crates, "packages": packages });
        assert_eq!(check(&metadata).unwrap(), expect);
    }

    #[test]
    fn arrows_outside_the_table_are_refused() {
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
    fn the_binary_may_name_all_but_nothing_may_name_it() {
        let crates = ["belljar-model", "belljar", "belljar-testkit"];
        complaints(&crates, &[("belljar", "belljar-model", None)], &[]);
        complaints(
            &crates,
            &[("belljar", "belljar-testkit", None), ("belljar-model", "belljar", None)],
            &[
                "belljar-model: may not depend on belljar",
                "belljar: may not depend on belljar-testkit",
            ],
        );
    }

    #[test]
    fn a_new_crate_needs_a_row() {
        complaints(
            &["belljar-new"],
            &[],
            &["belljar-new: not in the table of crates; add it with what it may name"],
        );
    }
}
