//! The runs of plans in the list of runs.

use std::os::unix::fs::MetadataExt as _;

use belljar_engine::error::{EngineError, ErrorKind, WithKind as _};
use belljar_engine::moment;
use belljar_engine::record::runs::Purposes;
use belljar_engine::runs::machine::{Phase, Status};
use belljar_engine::runs::view::{self, RunView};
use belljar_engine::scope::Scoped;
use belljar_model::{Purpose, RunId, RunState, display};
use serde::Serialize;

use crate::print;

/// A run of a plan in the list of runs.
pub(super) struct PlanRun {
    pub(super) id: RunId,
    view: Result<RunView, EngineError>,
}

/// Returns the runs of plans, newest first, if the list has runs of plans.
pub(super) fn list(
    state: &Scoped,
    purposes: Option<&Purposes>,
) -> Result<Vec<PlanRun>, EngineError> {
    if purposes.is_some_and(|purposes| !purposes.include(Some(Purpose::Plan))) {
        return Ok(Vec::new());
    }
    let runs = view::stored(state)?.into_iter();
    Ok(runs.map(|id| PlanRun { id, view: view::run(state, id) }).collect())
}

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
    tasks: usize,
    done: usize,
    /// The tasks that wait for a person.
    needs_person: Vec<String>,
}

impl PlanRun {
    /// Returns whether a person must act before the run can continue.
    pub(super) fn waits(&self) -> bool {
        let waits = |view: &RunView| matches!(view.phase, Phase::Waiting | Phase::Attention);
        self.view.as_ref().is_ok_and(waits)
    }

    /// Returns whether the plan was submitted from this directory.
    pub(super) fn belongs_to_directory(&self, current_dir: (u64, u64)) -> bool {
        self.view.as_ref().map_or(true, |view| {
            view.base.metadata().is_ok_and(|it| (it.dev(), it.ino()) == current_dir)
        })
    }

    pub(super) fn print(&self, with_purpose: bool, json: bool) -> Result<(), EngineError> {
        match (&self.view, json) {
            (Ok(view), false) => print::out(&text_line(view, with_purpose)),
            (Ok(view), true) => print::json(&json_line(view)),
            (Err(error), false) => {
                let why = display::safe_line(format!("{error:#}"));
                print::out(&format!("{}  cannot be shown: {why}\n", self.id))
            }
            (Err(error), true) => {
                let why = format!("{error:#}");
                print::json(&serde_json::json!({ "id": self.id, "damaged": true, "why": why }))
            }
        }
        .kind(ErrorKind::Broken)
    }
}

fn json_line(view: &RunView) -> PlanRunLine<'_> {
    let needs_person = |status| matches!(status, Status::Gated | Status::Attention);
    let waiting = view.tasks.iter().filter(|task| needs_person(task.status));
    PlanRunLine {
        id: view.run,
        name: &view.name,
        created: view.accepted.0,
        template: view.plan.template(),
        state: if view.outcome.is_some() { RunState::Finished } else { RunState::Running },
        reason: view.outcome.map(|outcome| outcome.name()),
        purpose: Purpose::Plan,
        phase: view.phase.name(),
        tasks: view.tasks.len(),
        done: view.done(),
        needs_person: waiting.map(|task| task.of.to_string()).collect(),
    }
}

fn text_line(view: &RunView, with_purpose: bool) -> String {
    let purpose =
        if with_purpose { format!("{:<12}  ", Purpose::Plan.name()) } else { String::new() };
    let (id, name) = (view.run, display::safe(&view.name));
    let when = moment::readable_seconds(view.accepted.0.saturating_mul(1_000_000));
    let end = match view.phase {
        Phase::Attention => "attention",
        Phase::Running | Phase::Waiting | Phase::Ended => {
            view.outcome.map_or_else(|| view.phase.name(), |outcome| outcome.name())
        }
    };
    let tasks = format!("{} of {} tasks", view.done(), view.tasks.len());
    format!("{id}  {when}  {name:<12}  {purpose}{end:<12}  {tasks:<16}  plan\n")
}
