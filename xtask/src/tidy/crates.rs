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
    ("belljar-gateway", &["belljar-engine", "belljar-model"]),
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
    fn a_star_stands_for_all_crates_but_the_leaves() {
        let crates = ["belljar-broker", "belljar-worker", "belljar-testkit"];
        complaints(&crates, &[("belljar-testkit", "belljar-broker", None)], &[]);
        complaints(
            &crates,
            &[("belljar-testkit", "belljar-worker", None)],
            &["belljar-testkit: may not depend on belljar-worker"],
        );
    }

    #[test]
    fn front_ends_reach_the_layers_below_the_engine_only_through_it() {
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
    fn a_new_crate_needs_a_row() {
        complaints(
            &["belljar-new"],
            &[],
            &["belljar-new: not in the table of crates; add it with what it may name"],
        );
    }
}
