//! The results of checks as text and as JSON. The name of a model comes from a server, so it is escaped here.

use belljar_engine::runs::machine::{CheckKind, CheckResult};
use belljar_model::display;
use belljar_model::plan::{Check, Task};
use serde_json::{Value as Json, json};

/// Returns a result in a few words, for example `check 1 (model capable): passed by claude-sonnet-4-5`.
pub(crate) fn line(result: &CheckResult, task: Option<&Task>) -> String {
    let tier = tier(result, task).map_or_else(String::new, |tier| format!(" {tier}"));
    let (check, kind) = (result.check, result.kind.name());
    format!("check {check} ({kind}{tier}): {}", outcome(result))
}

/// Returns the outcomes of judges and verifiers in a few words, or nothing if there were none.
pub(crate) fn summary(results: &[CheckResult]) -> String {
    let decides = |it: &&CheckResult| matches!(it.kind, CheckKind::Model | CheckKind::Verify);
    let outcomes: Vec<String> = results.iter().filter(decides).map(outcome).collect();
    outcomes.join(", ")
}

/// Returns the results as JSON.
pub(crate) fn json(results: &[CheckResult], task: Option<&Task>) -> Json {
    let one = |result: &CheckResult| {
        json!({
            "check": result.check,
            "kind": result.kind.name(),
            "tier": tier(result, task),
            "outcome": result.outcome.name(),
            "model": result.model,
        })
    };
    results.iter().map(one).collect()
}

fn outcome(result: &CheckResult) -> String {
    let by = result.model.as_ref();
    let by = by.map_or_else(String::new, |model| format!(" by {}", display::safe_line(model)));
    format!("{}{by}", result.outcome.name().replace('_', " "))
}

/// Returns the tier of a judge.
fn tier(result: &CheckResult, task: Option<&Task>) -> Option<String> {
    let check = task?.checks.get(usize::try_from(result.check).ok()?)?;
    Check::tier(check).map(ToString::to_string)
}

#[cfg(test)]
mod tests {
    use belljar_engine::runs::machine::CheckOutcome;

    use super::*;

    #[test]
    fn f13_result_of_a_judge_names_its_model_without_escape_sequences() {
        let model = Some("large\x1b[2J\nx");
        let results = [
            CheckResult::new(0, CheckKind::Schema, CheckOutcome::Passed, None),
            CheckResult::new(1, CheckKind::Model, CheckOutcome::Passed, model),
            CheckResult::new(2, CheckKind::Verify, CheckOutcome::Undecided, None),
        ];
        assert_eq!(summary(&results), "passed by large\\x1b[2J\\nx, undecided");
        assert_eq!(line(&results[0], None), "check 0 (schema): passed");
        assert_eq!(line(&results[1], None), "check 1 (model): passed by large\\x1b[2J\\nx");
        assert_eq!(json(&results, None)[2]["outcome"], "undecided");
    }
}
