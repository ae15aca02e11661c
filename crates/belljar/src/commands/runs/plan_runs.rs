//! The lines of runs of plans in the list of runs.

use belljar_engine::error::{EngineError, ErrorKind, WithKind as _};
use belljar_engine::moment;
use belljar_engine::runs::list::PlanRun;
use belljar_engine::runs::machine::Status;
use belljar_engine::runs::rows::{RunStatus, TaskCounts};
use belljar_engine::runs::view::RunView;
use belljar_model::{Purpose, RunId, RunState, display};
use serde::Serialize;

use crate::print;

/// A run of a plan, as JSON. It has the fields of other runs, and its tasks.
#[derive(Serialize)]
struct PlanRunLine<'a> {
    id: RunId,
    name: &'a str,
    /// The time of the submission in milliseconds since 1970.
    created: u64,
    template: &'a str,
    state: RunState,
    /// The outcome; null if the run has not ended.
    reason: Option<&'a str>,
    purpose: Purpose,
    phase: &'a str,
    /// The number of tasks and instances; null if the run is open and its files are missing.
    tasks: Option<u64>,
    done: Option<u64>,
    /// The tasks that wait for a person.
    needs_person: Vec<String>,
}

impl<'a> PlanRunLine<'a> {
    fn of(PlanRun { row, .. }: &'a PlanRun, view: Option<&'a RunView>) -> Self {
        let (phase, state, reason) = match row.status {
            RunStatus::Ended(outcome) => ("ended", RunState::Finished, Some(outcome.name())),
            RunStatus::Running | RunStatus::Waiting | RunStatus::Attention => {
                (row.status.name(), RunState::Running, None)
            }
        };
        let counts = match view {
            Some(view) => {
                let [all, done] = [view.tasks.len(), view.done()].map(|number| number as u64);
                Some(TaskCounts { all, done })
            }
            None => row.tasks,
        };
        let needs_person = |status| matches!(status, Status::Gated | Status::Attention);
        let tasks = view.into_iter().flat_map(|view| &view.tasks);
        let waiting = tasks.filter(|task| needs_person(task.status));
        Self {
            id: row.run,
            name: &row.name,
            created: row.accepted.0,
            template: &row.template,
            state,
            reason,
            purpose: Purpose::Plan,
            phase,
            tasks: counts.map(|counts| counts.all),
            done: counts.map(|counts| counts.done),
            needs_person: waiting.map(|task| task.of.to_string()).collect(),
        }
    }

    fn text(&self, with_purpose: bool) -> String {
        let purpose =
            if with_purpose { format!("{:<12}  ", self.purpose.name()) } else { String::new() };
        let (id, name) = (self.id, display::safe(self.name));
        let when = moment::readable_seconds(self.created.saturating_mul(1_000_000));
        let end = self.reason.unwrap_or(self.phase);
        let tasks = match (self.done, self.tasks) {
            (Some(done), Some(tasks)) => format!("{done} of {tasks} tasks"),
            _ => "-".to_owned(),
        };
        format!("{id}  {when}  {name:<12}  {purpose}{end:<12}  {tasks:<16}  plan\n")
    }
}

/// Prints a run of a plan.
pub(super) fn print(run: &PlanRun, with_purpose: bool, json: bool) -> Result<(), EngineError> {
    let view = match &run.open {
        None => None,
        Some(Ok(view)) => Some(view),
        Some(Err(error)) => return print_damaged(run.row.run, error, json),
    };
    let line = PlanRunLine::of(run, view);
    let printed = if json { print::json(&line) } else { print::out(&line.text(with_purpose)) };
    printed.kind(ErrorKind::Broken)
}

/// Prints an open run whose files cannot be read.
fn print_damaged(id: RunId, error: &EngineError, json: bool) -> Result<(), EngineError> {
    let why = format!("{error:#}");
    let printed = if json {
        print::json(&serde_json::json!({ "id": id, "damaged": true, "why": why }))
    } else {
        print::out(&format!("{id}  cannot be shown: {}\n", display::safe_line(why)))
    };
    printed.kind(ErrorKind::Broken)
}
