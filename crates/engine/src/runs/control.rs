//! Requests to the driver: files in the directory of a run, which survive a crash of the driver.

use std::fs;
use std::io;
use std::path::PathBuf;

use anyhow::Context as _;
use belljar_model::RunId;
use belljar_model::caller::Principal;
use serde::{Deserialize, Serialize};

use super::driver;
use super::files::RunFiles;
use super::gate::Sender;
use super::machine::{InputKind, Settled, TaskRef, Try};
use super::view;
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::scope::Scoped;
use crate::store::durable;

/// The decision of a person about a lost attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Settlement {
    /// The attempt is repeated.
    Rerun,
    /// The task failed.
    Failed,
}

/// A request to the driver, as its file contains it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Request {
    Cancel { task: Option<String>, by: Principal },
    Settle { task: String, attempt: u32, how: Settlement, by: Principal },
}

/// Cancels a run, or one task of it. The driver ends the boxes afterwards.
pub fn cancel(state: &Scoped, run: RunId, of: Option<&TaskRef>) -> Result<(), EngineError> {
    let by = state.caller().principal.clone();
    request(state, run, &Request::Cancel { task: of.map(ToString::to_string), by })
}

/// Decides what happens to a lost attempt that may have had an effect.
pub fn settle(state: &Scoped, run: RunId, of: &Try, how: Settlement) -> Result<(), EngineError> {
    let view = view::run(state, run)?;
    let waits = |task: &view::TaskView| task.of == of.instance() && task.lost == Some(of.attempt);
    if !view.tasks.iter().any(waits) {
        let text = format!("{} of run {run} does not wait for a decision", of.instance());
        return Err(EngineError::message(ErrorKind::WrongState, text));
    }
    let by = state.caller().principal.clone();
    let (task, attempt) = (of.instance().to_string(), of.attempt);
    request(state, run, &Request::Settle { task, attempt, how, by })
}

/// Stores a request durably and wakes the driver.
fn request(state: &Scoped, run: RunId, request: &Request) -> Result<(), EngineError> {
    let view = view::run(state, run)?;
    if let Some(outcome) = view.outcome {
        let text = format!("run {run} has ended: {}", outcome.name());
        return Err(EngineError::message(ErrorKind::WrongState, text));
    }
    let dir = RunFiles::of(state.store().layout(), run).control();
    let text = serde_json::to_vec(request).kind(ErrorKind::Broken)?;
    durable::write(&dir, &format!("{}.json", state.new_id()?.0), &text)
        .context("cannot store the request to the driver")
        .kind(ErrorKind::Broken)?;
    driver::wake(state)
}

/// Reads the requests of a run, oldest first, each with its file.
pub(super) fn requests(files: &RunFiles) -> io::Result<Vec<(PathBuf, InputKind)>> {
    let mut paths: Vec<PathBuf> = fs::read_dir(files.control())?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    let read = |path: PathBuf| {
        let request: Request = serde_json::from_slice(&fs::read(&path).ok()?).ok()?;
        Some((path, input(request)?))
    };
    Ok(paths.into_iter().filter_map(read).collect())
}

fn input(request: Request) -> Option<InputKind> {
    Some(match request {
        Request::Cancel { task, by } => {
            let of = task.map(|task| task.parse()).transpose().ok()?;
            InputKind::Cancel { of, by }
        }
        Request::Settle { task, attempt, how, by } => {
            let TaskRef { task, item } = task.parse().ok()?;
            let how = match how {
                Settlement::Rerun => Settled::Rerun,
                Settlement::Failed => Settled::Failed,
            };
            InputKind::Settled(Try { task, item, attempt }, how, Sender::outside(by))
        }
    })
}
