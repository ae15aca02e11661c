//! The question to a model as a plan with one task, and the budget of all questions for a goal. Pure.

use std::time::Duration;

use belljar_model::net::MicroUsd;
use belljar_model::plan::{PlanFaults, RunBudget, TierName};
use serde_json::{Map, Value as Json, json};

use super::{TASK, failure, prompt};
use crate::error::EngineError;
use crate::runs::budget::{Amounts, Limits, Unit};

/// The name of the runs in which models write plans.
const NAME: &str = "write-plan";
/// The maximum length of the plan of a model. It must fit into one input of the next question.
const MAX_PLAN: &str = "48 KiB";

/// The limits of all questions together, if the caller sets no others.
const DEFAULT_TOKENS: u64 = 200_000;
const DEFAULT_CALLS: u64 = 30;
const DEFAULT_TIME: Duration = Duration::from_secs(15 * 60);

/// The content of one question.
#[derive(Debug)]
pub(super) struct Question<'a> {
    pub(super) tier: &'a TierName,
    /// The name of the template of the box.
    pub(super) template: &'a str,
    pub(super) prompt: String,
    /// The facts about the directory.
    pub(super) facts: &'a str,
    /// The text and the faults of the last plan.
    pub(super) refused: Option<(&'a str, &'a PlanFaults)>,
    /// The key `budget` of the plan.
    pub(super) budget: Map<String, Json>,
}

impl Question<'_> {
    /// Returns the plan with the question, as JSON. Everything that strangers can have written is an input
    /// with the label `untrusted`.
    pub(super) fn plan(&self) -> Json {
        let Self { tier, template, prompt, facts, refused, budget } = self;
        let untrusted = |name: &str, text: &str| {
            (name.to_owned(), json!({ "text": text, "labels": ["untrusted"] }))
        };
        let mut inputs = Map::from_iter([untrusted("directory", facts)]);
        if let Some((text, faults)) = refused {
            inputs.extend([
                untrusted("refused_plan", text),
                untrusted("faults", &prompt::faults(faults)),
            ]);
        }
        let data: Vec<String> = inputs.keys().map(|name| format!("input.{name}")).collect();
        json!({
            "run": {
                "name": NAME,
                "template": template,
                "answer": TASK,
                "budget": budget,
                "input": inputs,
            },
            "task": { TASK: {
                "do": { "model": tier, "prompt": prompt },
                "data": data,
                "output": { "type": "text", "max": MAX_PLAN },
                // The box has no workspace. A template with mode `direct` must not prevent the question.
                "box": { "mode": "read-only" },
            } },
        })
    }
}

/// Returns the rest of a budget as the key `budget` of a plan, or an error if a unit is used up.
pub(super) fn rest(budget: &RunBudget, used: Amounts) -> Result<Map<String, Json>, EngineError> {
    let limits = Limits::from(budget);
    let mut rest = Map::new();
    for (unit, key) in [
        (Unit::Calls, "calls"),
        (Unit::Tokens, "tokens"),
        (Unit::Money, "money"),
        (Unit::Seconds, "time"),
    ] {
        let Some(limit) = limits.get(unit) else { continue };
        let left = limit.saturating_sub(used.get(unit));
        if left == 0 {
            return Err(failure::used_up(unit, limit, key));
        }
        let value = match key {
            "money" => json!(MicroUsd(left).to_string()),
            "time" => json!(format!("{left}s")),
            _ => json!(left),
        };
        rest.insert(key.to_owned(), value);
    }
    Ok(rest)
}

/// Returns the limits of all questions: those of the caller or else the defaults, and at most those of the
/// tenant.
pub(super) fn limited(own: &RunBudget, tenant: &RunBudget) -> RunBudget {
    fn min<T: Ord>(own: Option<T>, tenant: Option<T>) -> Option<T> {
        match (own, tenant) {
            (Some(own), Some(tenant)) => Some(own.min(tenant)),
            (own, None) => own,
            (None, Some(_)) => None,
        }
    }
    RunBudget {
        calls: min(own.calls.or(Some(DEFAULT_CALLS)), tenant.calls),
        tokens: min(own.tokens.or(Some(DEFAULT_TOKENS)), tenant.tokens),
        money: min(own.money, tenant.money),
        time: min(own.time.or(Some(DEFAULT_TIME)), tenant.time),
        ..RunBudget::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_the_questions_are_at_most_those_of_the_tenant() {
        let none = RunBudget::default();
        let defaults = limited(&none, &none);
        assert_eq!((defaults.calls, defaults.tokens), (Some(30), Some(200_000)));
        assert_eq!((defaults.time, defaults.money), (Some(DEFAULT_TIME), None));
        let tenant = RunBudget { tokens: Some(5_000), calls: Some(99), ..RunBudget::default() };
        let own = RunBudget { money: Some(MicroUsd(7)), calls: Some(2), ..RunBudget::default() };
        let both = limited(&own, &tenant);
        assert_eq!(
            (both.calls, both.tokens, both.money),
            (Some(2), Some(5_000), Some(MicroUsd(7)))
        );
    }

    #[test]
    fn rest_of_a_budget_is_written_as_in_a_plan_and_an_empty_rest_is_an_error() {
        let own = RunBudget { money: Some(MicroUsd(1_500_000)), ..RunBudget::default() };
        let budget = limited(&own, &RunBudget::default());
        let used = Amounts::NONE.with(Unit::Calls, 2).with(Unit::Money, 500_000);
        let expected = json!({ "calls": 28, "tokens": 200_000, "money": "1 USD", "time": "900s" });
        assert_eq!(Json::Object(rest(&budget, used).unwrap()), expected);
        let error = rest(&budget, used.with(Unit::Seconds, 900)).unwrap_err();
        let expected =
            "the budget for writing the plan is used up (15m); raise it with --budget time=…";
        assert_eq!(format!("{error:#}"), expected);
    }
}
