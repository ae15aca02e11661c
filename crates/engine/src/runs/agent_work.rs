//! The box of an agent task that is running, and the commits and changes in its clone.

use std::fs;
use std::io;

use anyhow::Context as _;
use belljar_model::RunId;

use super::host;
use super::machine::Status;
use super::view::TaskView;
use crate::clones::{self, Work};
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::scope::Scoped;
use crate::supervisor::task_run::{ClonedAt, files};

/// Returns the box run of a task whose box is running.
pub fn running_box(state: &Scoped, task: &TaskView) -> Option<RunId> {
    let box_run = task.box_run.filter(|_| task.status == Status::Running);
    box_run.filter(|box_run| host::is_running(state, *box_run))
}

/// Reads the commits and the uncommitted changes of an agent while its box is running. The program that reads
/// the clone runs in a box of its own, so a hostile clone cannot harm the host.
///
/// Returns `None` if the agent has changed nothing so far. Fails if the box is not running, or if its program
/// is not an agent.
pub fn read(state: &Scoped, box_run: RunId) -> Result<Option<Work>, EngineError> {
    let missing = || {
        let text = format!("box run {box_run} has no clone of a repository that could be compared");
        EngineError::message(ErrorKind::WrongState, text)
    };
    if !host::is_running(state, box_run) {
        return Err(missing());
    }
    let dir = state.store().layout().run(box_run);
    let text = match fs::read(dir.join(files::CLONED_AT)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(missing()),
        text => text.context("cannot read the description of the clone").kind(ErrorKind::Broken)?,
    };
    let ClonedAt { name, at } = serde_json::from_slice(&text)
        .context("cannot parse the description of the clone")
        .kind(ErrorKind::Damaged)?;
    let work = clones::read_work(state, &name, &at, &dir.join(files::CLONE))?;
    Ok(work.filter(|work| !work.is_empty()))
}
