//! Review of what a box changed: find the run, and discard its changes.

pub mod cloned;
pub mod list;

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::Context as _;
use belljar_ledger::BoxDiscarded;
use belljar_model::{Review, RunState};

use crate::box_store::trash::{Note, What};
use crate::box_store::{self, NamedBox, parts};
use crate::boxes::unapplied;
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::record;
use crate::scope::Scoped;
use crate::store::{Run, is_empty, lock};

/// What was named, first among the boxes, or the newest run of this workspace whose changes wait.
pub fn find(state: &Scoped, here: &Path, which: Option<&str>) -> Result<Run, EngineError> {
    if let Some(run) = which.map(|name| box_store::run_named(state, name)).transpose()?.flatten() {
        return Ok(run);
    }
    let mut runs = state.store().runs().kind(ErrorKind::Broken)?;
    runs.extend(box_store::runs(state));
    runs.sort_by_key(|run| std::cmp::Reverse(run.record.id));
    match which {
        Some(name) => named(runs, name),
        None => newest_here(runs, here),
    }
}

fn named(runs: Vec<Run>, name: &str) -> Result<Run, EngineError> {
    let mut found: Vec<Run> = runs
        .into_iter()
        .filter(|run| {
            run.record.name.as_ref().is_some_and(|own| own.as_str() == name)
                || (name.len() >= 4 && run.record.id.to_string().starts_with(name))
        })
        .collect();
    match found.len() {
        0 => {
            let text = format!("there is no run {name:?}; `belljar runs --all` lists them");
            Err(EngineError::message(ErrorKind::NotFound, text))
        }
        1 => Ok(found.remove(0)),
        // A name may be used again; an id that is cut short must say which.
        _ if found
            .iter()
            .all(|run| run.record.name.as_ref().is_some_and(|own| own.as_str() == name)) =>
        {
            Ok(found.remove(0))
        }
        many => {
            Err(invalid(format!("{name:?} is the beginning of {many} run ids; write more of it")))
        }
    }
}

fn newest_here(runs: Vec<Run>, here: &Path) -> Result<Run, EngineError> {
    let here =
        fs::metadata(here).context("look at the current directory").kind(ErrorKind::Broken)?;
    let here = (here.dev(), here.ino());
    let of_here =
        |run: &Run| run.record.workspace.as_ref().is_some_and(|at| (at.dev, at.ino) == here);
    let newest = runs.into_iter().filter(of_here).find(|run| run.record.review.waits());
    newest.ok_or_else(|| {
        invalid("no run of this directory waits for review; `belljar runs --all` lists the others")
    })
}

/// The right to review a run, as long as it is held.
#[derive(Debug)]
pub struct ReviewLock {
    _file: File,
}

/// Waits for the right to apply or discard the changes of a run.
pub fn lock(run: &Run) -> Result<ReviewLock, EngineError> {
    let file = File::create(run.dir.join("review")).context("open the review lock of the run");
    let file = file.kind(ErrorKind::Broken)?;
    if lock::take(&file, lock::CHANGE_TIMEOUT) {
        return Ok(ReviewLock { _file: file });
    }
    let text = format!("another command reviews run {}; try again when it has ended", run.id());
    Err(EngineError::message(ErrorKind::Busy, text))
}

/// Whether the changes of a run can be discarded. `false`: it holds none back.
pub fn can_discard(run: &Run) -> Result<bool, EngineError> {
    if run.record.state == RunState::Running {
        return Err(invalid(format!("run {} is still running", run.id())));
    }
    Ok(run.record.review.waits())
}

/// Removes the changes of a run.
pub fn discard(state: &Scoped, run: &mut Run) -> Result<(), EngineError> {
    let _lock = lock(run)?;
    *run = Run::load(&run.dir).kind(ErrorKind::Damaged)?;
    if !can_discard(run)? {
        return Err(invalid(format!("run {} holds nothing back any more", run.id())));
    }
    let ledger = record::open(state).kind(ErrorKind::Broken)?;
    record::discarded(&ledger, run.id())
        .map(drop)
        .context("record the discard")
        .kind(ErrorKind::Broken)?;
    belljar_workspace::discard(&run.dir).context("discard the changes").kind(ErrorKind::Broken)?;
    run.record.review = Review::Discarded;
    run.save().kind(ErrorKind::Broken)?;
    record::settle(&ledger, state, run.id(), "the operator discarded its changes")
        .kind(ErrorKind::Broken)
}

/// Moves the changes of a stopped box to the trash. Returns false if it holds none back.
pub fn discard_of_box(
    state: &Scoped,
    of: &NamedBox,
    discard_work: bool,
) -> Result<bool, EngineError> {
    let name = of.name();
    let _turn = of.turn_while_down("discard")?;
    let Some(run) = of.run().filter(|_| !is_empty(&of.dir.join("upper"))) else {
        return Ok(false);
    };
    let unapplied = unapplied::guard(state, of, "discard", discard_work)?;
    let note = Note::new(state, name, What::Changes, "discard", unapplied)?;
    let event = BoxDiscarded {
        name: name.to_string(),
        trash: note.place(),
        unapplied: note.unapplied.clone(),
    };
    record::fact(state, event)?;
    let ledger = record::open(state).kind(ErrorKind::Broken)?;
    record::discarded(&ledger, run.id())
        .map(drop)
        .context("record the discard")
        .kind(ErrorKind::Broken)?;
    let next = parts::prepare(of)?;
    parts::write_run(&next, run.record.clone()).kind(ErrorKind::Broken)?;
    parts::exchange(of, &parts::CHANGES, note)?;
    record::settle(&ledger, state, run.id(), "the operator discarded its changes")
        .kind(ErrorKind::Broken)?;
    Ok(true)
}
