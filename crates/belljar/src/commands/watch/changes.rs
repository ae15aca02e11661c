//! The changes of a run as lines of text and as JSON.

use belljar_engine::moment;
use belljar_engine::runs::machine::{
    Ended, Fact, FactKind, Moment, RefusedBecause, Settled, Status, TaskRef, Verdict,
};
use belljar_engine::runs::taint;
use belljar_engine::runs::view::{RunView, TaskView};
use belljar_model::{RunId, display};
use serde_json::{Value as Json, json};

use crate::commands::runs::checks;

/// A change of a task, or of the whole run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    at: Moment,
    /// The task; `None` for the run.
    task: Option<TaskRef>,
    state: &'static str,
    attempt: Option<u32>,
    /// A reason, or the name of a person.
    text: Option<String>,
}

/// Returns the states of all tasks that have begun, and the outcome.
pub(super) fn known(view: &RunView) -> Vec<Change> {
    let is_begun = |task: &&TaskView| !matches!(task.status, Status::Waiting | Status::Ready);
    let begun = view.tasks.iter().filter(is_begun);
    let change = |task: &TaskView| Change {
        at: task.ended.or(task.started).unwrap_or(view.accepted),
        task: Some(task.of.clone()),
        state: task.status.name(),
        attempt: (task.attempt > 0).then_some(task.attempt),
        text: task.reason.clone().or_else(|| task.by.clone()),
    };
    let mut changes: Vec<Change> = begun.map(change).collect();
    if let (Some(outcome), Some(at)) = (view.outcome, view.ended) {
        changes.push(Change { at, task: None, state: outcome.name(), attempt: None, text: None });
    }
    changes
}

impl Change {
    /// Returns the change that a fact describes; `None` for facts that only the driver needs.
    pub(super) fn of(fact: &Fact) -> Option<Self> {
        let (task, attempt, state, text) = match &fact.kind {
            FactKind::TaskStarted { of, .. } => {
                (of.instance(), Some(of.attempt), Status::Running.name(), None)
            }
            FactKind::TaskEnded { of, end, .. } => {
                let (state, text) = match end {
                    Ended::Done(_) => (Status::Done.name(), None),
                    Ended::Failed { reason, text } => {
                        (Status::Failed.name(), Some(format!("{}: {text}", reason.name())))
                    }
                    Ended::Lost(evidence) => ("lost", Some(evidence.name().to_owned())),
                };
                (of.instance(), Some(of.attempt), state, text)
            }
            FactKind::TaskJudged { of, verdict, checks, .. } => {
                let (state, text) = match verdict {
                    Verdict::Passed => {
                        let summary = checks::summary(&checks.results);
                        (Status::Done.name(), (!summary.is_empty()).then_some(summary))
                    }
                    Verdict::Rejected { check, text } => {
                        ("rejected", Some(format!("check {check}: {text}")))
                    }
                };
                (of.instance(), Some(of.attempt), state, text)
            }
            FactKind::TaskRetrying { of, due, .. } => {
                let text = format!("at {}", seconds(*due));
                (of.instance(), Some(of.attempt), Status::Backoff.name(), Some(text))
            }
            FactKind::TaskLost { of, evidence } => {
                let text = Some(evidence.name().to_owned());
                (of.instance(), Some(of.attempt), Status::Attention.name(), text)
            }
            FactKind::TaskStopped { of, reason, used_up, .. } => {
                let used_up = used_up.as_ref().map(|it| format!(": {it}")).unwrap_or_default();
                let text = Some(format!("{}{used_up}", reason.name()));
                (of.clone(), None, reason.status().name(), text)
            }
            FactKind::ApprovalAsked { of, deadline, .. } => {
                let text = Some(format!("until {}", seconds(*deadline)));
                (of.instance(), Some(of.attempt), Status::Gated.name(), text)
            }
            FactKind::ApprovalGiven { of, by, .. } => {
                (of.instance(), Some(of.attempt), Status::Done.name(), Some(format!("by {by}")))
            }
            FactKind::GrantRemoved { of, removed } => {
                let by = taint::sentence(&removed.label, &removed.from);
                let text = format!("{}, because of {by}", removed.grant);
                (of.instance(), Some(of.attempt), "grant_removed", Some(text))
            }
            FactKind::ApprovalRefused { of, why, by, text, .. } => {
                let text = match (why, by) {
                    (RefusedBecause::Rejected, Some(by)) => format!("rejected by {by}"),
                    (RefusedBecause::Labels, _) => {
                        format!("excluded by labels: {}", text.as_deref().unwrap_or_default())
                    }
                    (why, _) => why.name().to_owned(),
                };
                (of.instance(), Some(of.attempt), Status::Failed.name(), Some(text))
            }
            FactKind::AttentionSettled { of, how, by } => {
                let state = match how {
                    Settled::Rerun => Status::Ready.name(),
                    Settled::Done(_) => Status::Done.name(),
                    Settled::Failed => Status::Failed.name(),
                };
                (of.instance(), Some(of.attempt), state, Some(format!("settled by {by}")))
            }
            FactKind::PlanCancelling { of, by } => {
                let text = Some(format!("by {by}"));
                return Some(Self {
                    at: fact.at,
                    task: of.clone(),
                    state: "cancelling",
                    attempt: None,
                    text,
                });
            }
            FactKind::PlanEnded { outcome } => {
                let state = outcome.name();
                return Some(Self { at: fact.at, task: None, state, attempt: None, text: None });
            }
            FactKind::PlanAccepted { .. }
            | FactKind::DriverOpened { .. }
            | FactKind::BudgetLeased { .. } => return None,
        };
        // A task that was judged has ended before.
        Some(Self { at: fact.at, task: Some(task), state, attempt, text })
    }

    /// Returns the change as one line of text; text of a task is escaped.
    pub(super) fn line(&self, width: usize) -> String {
        let Self { at, task, state, attempt, text } = self;
        let task = task.as_ref().map_or_else(|| "run".to_owned(), ToString::to_string);
        let attempt = match attempt {
            None | Some(0 | 1) => String::new(),
            Some(attempt) => format!(", attempt {attempt}"),
        };
        let text = text.as_ref().map_or_else(String::new, |text| {
            format!(": {}", display::safe_line(text.replace('\n', "; ")))
        });
        let state = state.replace('_', " ");
        format!("{}  {task:<width$}  {state}{attempt}{text}\n", seconds(*at))
    }

    /// Returns the change as JSON.
    pub(super) fn json(&self, run: RunId) -> Json {
        let Self { at, task, state, attempt, text } = self;
        let task = task.as_ref().map(ToString::to_string);
        json!({
            "run": run, "at": at.0, "task": task, "state": state, "attempt": attempt, "text": text,
        })
    }
}

fn seconds(at: Moment) -> String {
    moment::readable_seconds(at.0.saturating_mul(1_000_000))
}

#[cfg(test)]
mod tests {
    use belljar_engine::runs::machine::{FailReason, Outcome, Try};

    use super::*;

    fn line(kind: FactKind) -> String {
        Change::of(&Fact { at: Moment(1_000), kind }).unwrap().line(4)
    }

    #[test]
    fn f13_change_line_has_no_escape_sequences_or_line_breaks_of_a_task() {
        let of = Try { task: "a".parse().unwrap(), item: Some(1), attempt: 2 };
        let text = "exit status 1: \x1b[2J\nnext \u{202e}".to_owned();
        let end = Ended::Failed { reason: FailReason::Exit, text };
        let shown = line(FactKind::TaskEnded { of, end, usage: None });
        let expected = "1970-01-01 00:00:01Z  a[1]  failed, attempt 2: exit: exit status 1: \\x1b[2J; next \\u{202e}\n";
        assert_eq!(shown, expected);
    }

    #[test]
    fn change_of_the_run_names_its_outcome() {
        let shown = line(FactKind::PlanEnded { outcome: Outcome::OverBudget });
        assert_eq!(shown, "1970-01-01 00:00:01Z  run   over budget\n");
    }
}
