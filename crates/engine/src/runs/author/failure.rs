//! The errors for questions without an answer: what happened, and what the person can do.

use belljar_model::net::SecretName;

use crate::error::{EngineError, ErrorKind};
use crate::runs::budget::Unit;
use crate::runs::machine::{FailReason, Outcome, TaskRef};
use crate::runs::view::RunView;

/// Returns the error for a budget that is used up before the next question. `key` is its name in `--budget`.
pub(super) fn used_up(unit: Unit, limit: u64, key: &str) -> EngineError {
    let text = format!("the budget for writing the plan is used up ({})", unit.text(limit));
    EngineError::message(ErrorKind::Broken, text).advise(format!("raise it with --budget {key}=…"))
}

/// Returns the error for a run that ended without an answer. `secret` is the key of the tier.
pub(super) fn of_question(
    view: &RunView,
    of: &TaskRef,
    secret: Option<&SecretName>,
) -> EngineError {
    let run = view.run;
    if view.outcome == Some(Outcome::Cancelled) {
        return EngineError::message(ErrorKind::Broken, format!("run {run} was cancelled"));
    }
    let reason = view.task(of).and_then(|task| task.reason.as_deref()).unwrap_or("unknown reason");
    let text = format!("the model did not write a plan (run {run}): {reason}");
    let name = reason.split_once(':').map_or(reason, |(name, _)| name);
    let advice = advice(FailReason::named(name), secret).unwrap_or_else(|| match view.outcome {
        Some(Outcome::OverBudget) => "raise the budget with --budget KEY=VALUE".to_owned(),
        _ => format!("`belljar runs show {run}` shows the details"),
    });
    EngineError::message(ErrorKind::Broken, text).advise(advice)
}

/// Returns what the person can do about a failed question.
fn advice(reason: Option<FailReason>, secret: Option<&SecretName>) -> Option<String> {
    Some(match reason? {
        FailReason::Refused => "write the goal in other words, or use another --tier".to_owned(),
        FailReason::BadKey => match secret {
            Some(secret) => format!("store a valid key with `belljar secret set {secret}`"),
            None => "the server needs a key; set `secret` of the tier".to_owned(),
        },
        FailReason::Unavailable | FailReason::CutOff => {
            "try again later, or use another --tier".to_owned()
        }
        FailReason::TooLong | FailReason::TooLarge => {
            "ask for a smaller plan, or use another --tier".to_owned()
        }
        FailReason::OverBudget => "raise the budget with --budget tokens=… or money=…".to_owned(),
        FailReason::Invalid => "try again, or use another --tier".to_owned(),
        FailReason::Exit
        | FailReason::Signal
        | FailReason::Timeout
        | FailReason::Limit
        | FailReason::CannotStart
        | FailReason::Throw
        | FailReason::NoChange
        | FailReason::Turns
        | FailReason::Stub => return None,
    })
}
