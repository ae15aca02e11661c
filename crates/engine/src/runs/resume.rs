//! Continues the open runs: starts a driver if none is running, and reports what the driver found.

use std::time::{Duration, Instant};

use belljar_model::RunId;

use super::driver;
use super::fence::DriverLock;
use super::machine::{Status, TaskRef};
use super::schedules;
use super::view::{self, FollowedRun, RunView, TaskView};
use crate::error::{EngineError, ErrorKind};
use crate::scope::Scoped;

/// The maximum time that a driver needs to open all runs.
const OPEN_TIMEOUT: Duration = Duration::from_secs(60);
/// The pause between two looks at the ledger.
const PAUSE: Duration = Duration::from_millis(10);

/// What a driver found when it continued the open runs.
#[derive(Debug)]
pub struct Resumed {
    /// Whether a driver was running before.
    pub was_running: bool,
    /// The number of the driver; 0 if no run is open.
    pub epoch: u64,
    pub runs: Vec<ResumedRun>,
    /// Runs that cannot continue, with the reasons.
    pub damaged: Vec<(RunId, EngineError)>,
}

/// An open run that a driver continues.
#[derive(Debug)]
pub struct ResumedRun {
    pub view: RunView,
    /// The tasks that had a running box when the driver opened the run, and the tasks that wait for a person.
    pub tasks: Vec<(TaskRef, Found)>,
}

/// What a driver found about a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The box runs, and the driver waits for it.
    Adopted,
    /// The box ended in the meantime, and the driver took its result.
    Taken(Status),
    /// The box died without an effect, and another attempt was started or will be.
    StartedAgain,
    /// A person decides about the lost attempt.
    Attention,
    /// A person answers the gate.
    Gated,
}

/// Returns whether a run is open or a schedule is enabled, so that a driver has to run.
pub fn is_needed(state: &Scoped) -> Result<bool, EngineError> {
    Ok(!view::open(state)?.is_empty() || schedules::is_any_enabled(state))
}

/// Starts a driver if a run is open or a schedule is enabled, and none is running. Waits until it has opened all runs.
pub fn resume(state: &Scoped) -> Result<Resumed, EngineError> {
    let open = view::open(state)?;
    let was_running = DriverLock::is_held(state.store());
    let mut resumed = Resumed { was_running, epoch: 0, runs: Vec::new(), damaged: Vec::new() };
    let mut followed = Vec::new();
    for run in open {
        match FollowedRun::open(state, run) {
            Ok(run) => {
                let before = run.view(state);
                followed.push((run, before));
            }
            Err(error) => resumed.damaged.push((run, error)),
        }
    }
    if followed.is_empty() && !schedules::is_any_enabled(state) {
        return Ok(resumed);
    }
    driver::wake(state)?;
    let deadline = Instant::now() + OPEN_TIMEOUT;
    for (mut run, before) in followed {
        let after = loop {
            run.refresh()?;
            let after = run.view(state);
            if was_running || after.epoch > before.epoch || after.outcome.is_some() {
                break after;
            }
            if Instant::now() > deadline {
                let text = format!("the driver has not opened run {}", before.run);
                let log = state.store().layout().plans().join("driver.log");
                let advice = format!("see {}", log.display());
                return Err(EngineError::message(ErrorKind::Busy, text).advise(advice));
            }
            std::thread::sleep(PAUSE);
        };
        resumed.epoch = resumed.epoch.max(after.epoch);
        let tasks = after.tasks.iter();
        let found = tasks.filter_map(|task| Some((task.of.clone(), found(&before, task)?)));
        resumed.runs.push(ResumedRun { tasks: found.collect(), view: after });
    }
    Ok(resumed)
}

fn found(before: &RunView, after: &TaskView) -> Option<Found> {
    let had_box = before
        .task(&after.of)
        .filter(|task| task.status == Status::Running)
        .and_then(|task| task.box_run);
    match after.status {
        Status::Attention => Some(Found::Attention),
        Status::Gated => Some(Found::Gated),
        Status::Running if after.box_run == had_box => had_box.map(|_| Found::Adopted),
        Status::Running | Status::Ready => had_box.map(|_| Found::StartedAgain),
        Status::Waiting
        | Status::Judging
        | Status::Backoff
        | Status::Done
        | Status::Failed
        | Status::Skipped
        | Status::Stopped
        | Status::Cancelled => had_box.map(|_| Found::Taken(after.status)),
    }
}
