//! Requests to the driver: files in the directory of a run, which survive a crash of the driver.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use belljar_model::RunId;
use belljar_model::caller::Principal;
use serde::{Deserialize, Serialize};

use super::driver;
use super::executors::Context;
use super::files::RunFiles;
use super::gate::Sender;
use super::machine::{End, InputKind, Settled, TaskRef, Try};
use super::view::{self, Loaded, RunView};
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::scope::Scoped;
use crate::store::durable;
use crate::store::layout::Layout;

/// The decision of a person about a lost attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// The attempt is repeated.
    Rerun,
    /// The task is done, and this is its output.
    Done(Vec<u8>),
    /// The task failed.
    Failed,
}

/// A settlement, as the file of its request contains it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StoredSettlement {
    Rerun,
    Failed,
    /// The output is in this file of the same directory.
    Done {
        file: String,
    },
}

/// A request to the driver, as its file contains it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Request {
    Cancel { task: Option<String>, by: Principal },
    Settle { task: String, attempt: u32, how: StoredSettlement, by: Principal },
}

/// A request that the driver has read.
#[derive(Debug)]
pub(super) struct Asked {
    /// The files that the driver removes after it has carried out the request.
    pub(super) files: Vec<PathBuf>,
    /// The input of the machine; `None` if the request has no effect any more.
    pub(super) input: Option<InputKind>,
}

/// Cancels a run, or one task of it. The driver ends the boxes afterwards.
pub fn cancel(state: &Scoped, run: RunId, of: Option<&TaskRef>) -> Result<(), EngineError> {
    let view = view::run(state, run)?;
    if let Some(of) = of {
        // A task with instances can be cancelled as a whole.
        let is_part =
            |task: &view::TaskView| task.of == *of || of.item.is_none() && task.of.task == of.task;
        let mut parts = view.tasks.iter().filter(|task| is_part(task)).peekable();
        if parts.peek().is_none() {
            return Err(no_task(run, of));
        }
        if let Some(status) = parts.clone().map(|task| task.status).next()
            && parts.all(|task| task.status.is_final())
        {
            let text = format!("task {of} of run {run} has ended: {}", status.name());
            return Err(EngineError::message(ErrorKind::WrongState, text));
        }
    }
    let by = state.caller().principal.clone();
    request(state, &view, &Request::Cancel { task: of.map(ToString::to_string), by })
}

/// Decides what happens to a lost attempt that may have had an effect.
pub fn settle(state: &Scoped, run: RunId, of: &Try, how: Settlement) -> Result<(), EngineError> {
    let view = view::run(state, run)?;
    let Some(task) = view.task(&of.instance()) else { return Err(no_task(run, &of.instance())) };
    if task.lost != Some(of.attempt) {
        let text = format!("{} of run {run} does not wait for a decision", of.instance());
        return Err(EngineError::message(ErrorKind::WrongState, text));
    }
    let how = match how {
        Settlement::Rerun => StoredSettlement::Rerun,
        Settlement::Failed => StoredSettlement::Failed,
        Settlement::Done(content) => store_given(state, run, of, &content)?,
    };
    let by = state.caller().principal.clone();
    let (task, attempt) = (of.instance().to_string(), of.attempt);
    request(state, &view, &Request::Settle { task, attempt, how, by })
}

/// Checks the output that a person gives, and stores it beside its request.
fn store_given(
    state: &Scoped,
    run: RunId,
    of: &Try,
    content: &[u8],
) -> Result<StoredSettlement, EngineError> {
    let loaded = Loaded::read(state, run)?;
    let context = loaded.context(state, run);
    context.check_output(&of.instance(), content).map_err(|fault| {
        invalid(fault).context(format!("the file cannot be the output of {}", of.instance()))
    })?;
    let file = format!("{}.output", state.new_id()?.0);
    durable::write(&loaded.files.control(), &file, content)
        .context("cannot store the output of the task")
        .kind(ErrorKind::Broken)?;
    Ok(StoredSettlement::Done { file })
}

/// Returns the error about a task that a run does not have.
pub fn no_task(run: RunId, of: &TaskRef) -> EngineError {
    let error = EngineError::message(ErrorKind::NotFound, format!("run {run} has no task {of}"));
    error.advise(format!("`belljar runs show {run}` lists its tasks"))
}

/// Stores a request durably and wakes the driver.
fn request(state: &Scoped, view: &RunView, request: &Request) -> Result<(), EngineError> {
    let run = view.run;
    if let Some(outcome) = view.outcome {
        let text = format!("run {run} has ended: {}", outcome.name());
        return Err(EngineError::message(ErrorKind::WrongState, text));
    }
    store_request(state, run, request)?;
    driver::wake(state)
}

/// Stores a request durably and announces it.
pub(super) fn store_request(
    state: &Scoped,
    run: RunId,
    request: &Request,
) -> Result<(), EngineError> {
    let layout = state.store().layout();
    let text = serde_json::to_vec(request).kind(ErrorKind::Broken)?;
    let name = format!("{}.json", state.new_id()?.0);
    durable::write(&RunFiles::of(layout, run).control(), &name, &text)
        .and_then(|()| announce(layout, run))
        .context("cannot store the request to the driver")
        .kind(ErrorKind::Broken)
}

/// Tells the driver which run has a new request, so that it does not look at all runs.
///
/// The file need not be durable: a new driver reads the requests of all runs.
fn announce(layout: &Layout, run: RunId) -> io::Result<()> {
    let dir = layout.announced_requests();
    DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
    File::create(dir.join(run.to_string())).map(drop)
}

/// Returns the runs with new requests. A request that arrives from now on is announced again.
pub(super) fn take_announced(layout: &Layout) -> io::Result<Vec<RunId>> {
    let entries = match fs::read_dir(layout.announced_requests()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut runs = Vec::new();
    for entry in entries {
        let entry = entry?;
        fs::remove_file(entry.path())?;
        runs.extend(entry.file_name().to_str().and_then(|name| name.parse::<RunId>().ok()));
    }
    Ok(runs)
}

/// Reads the requests of a run, oldest first.
pub(super) fn requests(run: &Context<'_>) -> io::Result<Vec<Asked>> {
    let mut paths: Vec<PathBuf> = fs::read_dir(run.files.control())?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    let mut asked = Vec::new();
    for path in paths {
        let Ok(text) = fs::read(&path) else { continue };
        let Ok(request) = serde_json::from_slice(&text) else { continue };
        asked.push(read_request(run, path, request)?);
    }
    Ok(asked)
}

fn read_request(run: &Context<'_>, path: PathBuf, request: Request) -> io::Result<Asked> {
    let mut files = vec![path];
    let input = match request {
        Request::Cancel { task, by } => match task.map(|task| task.parse()).transpose() {
            Ok(of) => Some(InputKind::Cancel { of, by }),
            Err(_) => None,
        },
        Request::Settle { task, attempt, how, by } => match task.parse() {
            Ok(TaskRef { task, item }) => {
                let of = Try { task, item, attempt };
                let how = match how {
                    StoredSettlement::Rerun => Some(Settled::Rerun),
                    StoredSettlement::Failed => Some(Settled::Failed),
                    StoredSettlement::Done { file } => {
                        let file = run.files.control().join(file);
                        let how = given(run, &of, &file)?;
                        files.push(file);
                        how
                    }
                };
                how.map(|how| InputKind::Settled(of, how, Sender::outside(by)))
            }
            Err(_) => None,
        },
    };
    Ok(Asked { files, input })
}

/// Moves an output that a person gave to its place in the run.
///
/// Returns `None` if the task does not wait for it any more: the task may have another output then.
fn given(run: &Context<'_>, of: &Try, file: &Path) -> io::Result<Option<Settled>> {
    if !run.progress.attention().any(|waiting| waiting == *of) {
        return Ok(None);
    }
    let Ok(content) = fs::read(file) else { return Ok(None) };
    let stored = run.files.store_output(&of.instance(), &content)?;
    Ok(match run.output(&of.instance(), &stored) {
        Ok(End::Done(output)) => Some(Settled::Done(output)),
        Ok(End::Failed { .. }) | Err(_) => None,
    })
}
