//! `belljar watch`: follows the run of a plan until it ends.
//!
//! On a terminal it is a full-screen view with keys that run commands. Elsewhere it prints one line for each
//! change. Both read only the new events of the run from the ledger.

mod changes;
mod page;
mod screen;

use std::io;
use std::time::{Duration, Instant};

use belljar_engine::error::{EngineError, ErrorKind, WithKind as _};
use belljar_engine::runs::driver;
use belljar_engine::runs::fence::DriverLock;
use belljar_engine::runs::machine::Outcome as RunOutcome;
use belljar_engine::runs::view::{self, FollowedRun};
use belljar_engine::scope::Scoped;
use belljar_model::RunId;
use belljar_model::plan::Task;

use self::changes::Change;
use super::runs::show;
use crate::cli::runs::WatchArgs;
use crate::commands::ledger::log::output_is_closed;
use crate::exit::{FAILED, Outcome};
use crate::print;
use crate::scope;

/// The pause between two looks for a driver that has died.
const DRIVER_INTERVAL: Duration = Duration::from_secs(5);
/// The maximum width of the column of tasks, in characters.
const MAX_WIDTH: usize = 20;

/// Runs `belljar watch`.
pub(crate) fn run(args: &WatchArgs) -> Outcome {
    let state = scope::open(None)?;
    let run = view::find(&state, &args.run)?;
    watch(&state, run, args.json)
}

/// Follows a run until it ends. Returns the exit code of the run, or 0 if the user leaves before.
pub(crate) fn watch(state: &Scoped, run: RunId, json: bool) -> Outcome {
    let mut followed = FollowedRun::open(state, run)?;
    let is_terminal = rustix::termios::isatty(io::stdin()) && rustix::termios::isatty(io::stdout());
    if json || !is_terminal {
        return lines(state, &mut followed, json);
    }
    if followed.outcome().is_none() {
        screen::follow(state, &mut followed)?;
    }
    let Some(outcome) = followed.outcome() else {
        print::note(&format!("the run continues; `belljar watch {run}` shows it again"));
        return Ok(0);
    };
    print::out(&show::page(state, &followed)).kind(ErrorKind::Broken)?;
    Ok(code(outcome))
}

/// Returns the exit code of a run that has ended.
const fn code(outcome: RunOutcome) -> u8 {
    match outcome {
        RunOutcome::Succeeded => 0,
        RunOutcome::Failed | RunOutcome::OverBudget | RunOutcome::Cancelled => FAILED,
    }
}

/// Starts a driver if none is running and the last look is long enough ago.
pub(crate) struct DriverCheck {
    last: Option<Instant>,
}

impl DriverCheck {
    pub(crate) const fn new() -> Self {
        Self { last: None }
    }

    pub(crate) fn look(&mut self, state: &Scoped) -> Result<(), EngineError> {
        if self.last.is_some_and(|last| last.elapsed() < DRIVER_INTERVAL) {
            return Ok(());
        }
        self.last = Some(Instant::now());
        if DriverLock::is_held(state.store()) { Ok(()) } else { driver::wake(state) }
    }
}

/// Returns the number of characters of the longest id of a task's instances.
fn max_width(task: &Task) -> usize {
    let id = task.id.as_str().len();
    match task.for_each {
        None => id,
        Some(_) => id + 2 + task.max_instances().saturating_sub(1).to_string().len(),
    }
}

/// Prints one line for each change until the run ends or standard output is closed.
fn lines(state: &Scoped, followed: &mut FollowedRun, json: bool) -> Outcome {
    let mut driver = DriverCheck::new();
    let view = followed.view(state);
    let width = view.plan.tasks().iter().map(max_width).max().unwrap_or(0).clamp(3, MAX_WIDTH);
    let print = |changes: Vec<Change>| -> Result<(), EngineError> {
        for change in changes {
            if json {
                print::json(&change.json(view.run)).kind(ErrorKind::Broken)?;
            } else {
                print::out(&change.line(width)).kind(ErrorKind::Broken)?;
            }
        }
        Ok(())
    };
    print(changes::known(&view))?;
    loop {
        let facts = followed.refresh()?;
        print(facts.iter().filter_map(Change::of).collect())?;
        if let Some(outcome) = followed.outcome() {
            return Ok(code(outcome));
        }
        driver.look(state)?;
        if output_is_closed()? {
            return Ok(0);
        }
    }
}
