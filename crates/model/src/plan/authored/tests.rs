use std::collections::BTreeSet;

use super::*;

/// A plan that a model may write, with every executor that it may use.
const GOOD: &str = r#"
[run]
budget = { tokens = 100000, time = "1h", boxes = 2, secrets.models = { requests = 9 } }
input.issue = { file = "docs/issue.md", labels = ["untrusted"] }
[task.triage]
do = { model = "cheap", prompt_file = "prompts/triage.md" }
data = ["input.issue"]
output = { type = "json", schema = "schemas/triage.json" }
check = [{ schema = "./schemas/other.json" }]
[task.fix]
do = { agent = "claude", repo = ".", prompt = "Fix it." }
data = ["triage"]
labels = ["untrusted"]
[task.count]
do = { code_file = "count.ts" }
data = ["triage"]
[task.test]
do = { command = ["make", "test"], workspace = ".", overlay = true }
labels = ["untrusted"]
on_crash = "ask"
[task.take]
do = { approval = "Take the fix?", apply = "fix" }
needs = ["fix", "test"]
"#;

fn faults(text: &str) -> Vec<String> {
    let plan = Plan::parse(text, "p.toml").unwrap_or_else(|faults| panic!("{faults}\n{text}"));
    let secrets = BTreeSet::from(["models".parse().unwrap()]);
    let checked = plan.check_authored(&secrets);
    checked.err().map_or_else(Vec::new, |it| it.list().iter().map(ToString::to_string).collect())
}

/// Replaces a part of the good plan, and expects exactly this fault.
#[track_caller]
fn refuses(from: &str, to: &str, expected: &str) {
    assert!(GOOD.contains(from), "{from}");
    assert_eq!(faults(&GOOD.replace(from, to)), [expected]);
}

#[test]
fn plan_that_names_only_paths_of_its_directory_and_limits_its_usage_is_accepted() {
    assert_eq!(faults(GOOD), Vec::<String>::new());
}

#[test]
fn paths_of_a_plan_are_listed_with_purpose_and_line() {
    let plan = Plan::parse(GOOD, "p.toml").unwrap();
    let line = |path: &PlanPath| {
        format!("{} {} {} {}", path.line, path.of, path.purpose.name(), path.path.display())
    };
    let paths: Vec<String> = plan.paths().iter().map(line).collect();
    let expected = [
        "4 input.issue input docs/issue.md",
        "6 task `triage` prompt prompts/triage.md",
        "8 task `triage` schema schemas/triage.json",
        "9 task `triage` schema ./schemas/other.json",
        "11 task `fix` repository .",
        "15 task `count` program count.ts",
        "18 task `test` workspace with changes for review .",
    ];
    assert_eq!(paths, expected);
}

#[test]
fn h14_path_outside_of_the_directory_is_refused_for_every_key() {
    for (from, line, of, purpose) in [
        ("docs/issue.md", 4, "input.issue", "input"),
        ("prompts/triage.md", 6, "task `triage`", "prompt"),
        ("schemas/triage.json", 8, "task `triage`", "schema"),
        ("./schemas/other.json", 9, "task `triage`", "schema"),
        ("count.ts", 15, "task `count`", "program"),
    ] {
        for to in ["/etc/passwd", "../secret-plans.md", "a/../../b"] {
            let reason = "must be a relative path inside of the directory, without `..`";
            refuses(from, to, &format!("p.toml:{line}: {of}: {purpose} `{to}`: {reason}"));
        }
        let reason =
            "files with this name usually have credentials, which a plan of a model cannot name";
        refuses(from, "a/.env", &format!("p.toml:{line}: {of}: {purpose} `a/.env`: {reason}"));
    }
    let reason = "must be a relative path inside of the directory, without `..`";
    refuses(
        "repo = \".\"",
        "repo = \"/\"",
        &format!("p.toml:11: task `fix`: repository `/`: {reason}"),
    );
    refuses(
        "workspace = \".\"",
        "workspace = \"..\"",
        &format!("p.toml:18: task `test`: workspace with changes for review `..`: {reason}"),
    );
}

#[test]
fn h14_decisions_of_a_person_are_refused() {
    refuses(
        "on_crash = \"ask\"",
        "on_crash = \"rerun\"",
        "p.toml:20: task `test`: only a person can decide that effects are repeated; remove `on_crash` or write \"ask\"",
    );
    refuses(
        "apply = \"fix\"",
        "apply = \"fix\", clears = [\"untrusted\"]",
        "p.toml:22: task `take`: only a person can decide to clear labels; remove `clears`",
    );
    refuses(
        "do = { code_file = \"count.ts\" }",
        "do = { stub = \"all tests pass\" }",
        "p.toml:15: task `count`: a stub does no work; use another executor",
    );
}

#[test]
fn h14_files_without_the_label_untrusted_are_refused() {
    refuses(
        "issue.md\", labels = [\"untrusted\"] }",
        "issue.md\" }",
        "p.toml:4: input.issue: only a person can declare a file as trusted; add `labels = [\"untrusted\"]`",
    );
    let reason =
        "the task reads files that strangers can have written; add `labels = [\"untrusted\"]`";
    refuses(
        "labels = [\"untrusted\"]\n[task.count]",
        "[task.count]",
        &format!("p.toml:11: task `fix`: {reason}"),
    );
    refuses(
        "labels = [\"untrusted\"]\non_crash",
        "labels = [\"mine\"]\non_crash",
        &format!("p.toml:18: task `test`: {reason}"),
    );
}

#[test]
fn h14_unlimited_usage_and_unknown_secrets_are_refused() {
    refuses(
        "time = \"1h\", ",
        "",
        "p.toml:3: `budget` of `[run]` has no `time`; write for example \"1h\"",
    );
    refuses(
        "tokens = 100000, ",
        "",
        "p.toml:3: `budget` of `[run]` has neither `tokens` nor `money`, but a task uses a model",
    );
    refuses("secrets.models", "secrets.github", "p.toml:3: unknown secret `github` in the budget");
    let without_budget = "[task.a]\ndo = { command = [\"true\"] }\n";
    let expected = "p.toml:1: `budget` of `[run]` has no `time`; write for example \"1h\"";
    assert_eq!(faults(without_budget), [expected]);
}

#[test]
fn faults_of_two_lists_are_joined_in_the_order_of_the_file_and_limited() {
    let list = |lines: std::ops::Range<usize>| {
        PlanFaults::of("p", lines.map(|line| (line, "wrong".to_owned()))).unwrap()
    };
    let joined = list(15..30).and(list(1..30));
    assert_eq!((joined.list().len(), joined.more()), (20, 24));
    assert!(joined.list().is_sorted_by_key(|fault| fault.line));
    assert_eq!(PlanFaults::of("p", []), None);
}
