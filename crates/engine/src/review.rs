//! Review of what a box changed: find the run, and discard its changes.

pub mod cloned;
pub mod list;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use belljar_ledger::BoxDiscarded;
use belljar_model::{Review, RunState};

use crate::box_store::trash::{Note, What};
use crate::box_store::{self, NamedBox, parts};
use crate::boxes::unapplied;
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::record;
use crate::scope::Scoped;
use crate::store::lock::{self, CHANGE_TIMEOUT, Held, Rank};
use crate::store::{Run, is_empty};

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
    let newest = runs.into_iter().filter(of_here).find(|run| run.record.review.is_pending());
    newest.ok_or_else(|| {
        invalid("no run of this directory waits for review; `belljar runs --all` lists the others")
    })
}

/// The right to review a run, as long as it is held.
#[derive(Debug)]
#[must_use]
pub struct ReviewLock {
    _held: Held,
}

/// Waits for the right to apply or discard the changes of a run.
pub fn lock(run: &Run) -> Result<ReviewLock, EngineError> {
    lock_within(run, CHANGE_TIMEOUT)
}

fn lock_within(run: &Run, timeout: Duration) -> Result<ReviewLock, EngineError> {
    let held = lock::wait(&run.dir.join("review"), Rank::Review, timeout);
    let held = held.context("open the review lock of the run").kind(ErrorKind::Broken)?;
    let held = held.ok_or_else(|| {
        let text = format!("another command reviews run {}; try again when it has ended", run.id());
        EngineError::message(ErrorKind::Busy, text)
    })?;
    Ok(ReviewLock { _held: held })
}

/// Whether the changes of a run can be discarded. `false`: it holds none back.
pub fn can_discard(run: &Run) -> Result<bool, EngineError> {
    if run.record.state == RunState::Running {
        return Err(invalid(format!("run {} is still running", run.id())));
    }
    Ok(run.record.review.is_pending())
}

/// Removes the changes of a run.
pub fn discard(state: &Scoped, run: &mut Run) -> Result<(), EngineError> {
    let _lock = lock(run)?;
    *run = Run::load(&run.dir).kind(ErrorKind::Damaged)?;
    if !can_discard(run)? {
        return Err(invalid(format!("run {} holds nothing back any more", run.id())));
    }
    let ledger = record::open(state).kind(ErrorKind::Unrecorded)?;
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
    let ledger = record::open(state).kind(ErrorKind::Unrecorded)?;
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

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use belljar_model::{Mode, RunRecord};

    use super::*;
    use crate::scope;

    const TIMEOUT: Duration = Duration::from_millis(50);

    fn run(state: &Scoped) -> Run {
        let record = RunRecord {
            id: state.new_id().unwrap().0,
            name: None,
            created: 0,
            workspace: None,
            mode: Mode::Overlay,
            argv: vec!["true".to_owned()],
            template: "default".to_owned(),
            state: RunState::Finished,
            review: Review::Pending,
            result: None,
        };
        state.store().create(record).unwrap().0
    }

    #[test]
    fn review_of_a_run_under_review_is_busy_after_the_timeout_and_says_what_to_do() {
        assert_eq!(CHANGE_TIMEOUT, Duration::from_secs(30));
        let home = tempfile::tempdir().unwrap();
        let state = scope::of_test(home.path());
        let (run, other) = (run(&state), run(&state));
        let held = lock_within(&run, TIMEOUT).unwrap();
        let began = Instant::now();
        let on_another_thread = |run: &Run| {
            let review = || lock_within(run, TIMEOUT).map(drop);
            std::thread::scope(|scope| scope.spawn(review).join().unwrap())
        };
        let error = on_another_thread(&run).unwrap_err();
        assert!(began.elapsed() >= TIMEOUT, "{:?}", began.elapsed());
        assert_eq!(error.kind(), ErrorKind::Busy);
        let text = error.to_string();
        let expected =
            format!("another command reviews run {}; try again when it has ended", run.id());
        assert_eq!(text, expected);
        on_another_thread(&other).expect("control: another run");
        drop(held);
        on_another_thread(&run).expect("control: the review has ended");
    }

    #[test]
    fn discard_waits_for_a_review_and_then_reads_the_record_again() {
        let home = tempfile::tempdir().unwrap();
        let state = scope::of_test(home.path());
        let mut run = run(&state);
        let held = lock_within(&run, TIMEOUT).unwrap();
        let discarded = std::thread::scope(|scope| {
            let mut seen = Run::load(&run.dir).unwrap();
            let state = &state;
            let waiting = scope.spawn(move || discard(state, &mut seen));
            run.record.review = Review::Applied;
            run.save().unwrap();
            drop(held);
            waiting.join().unwrap()
        });
        let error = discarded.unwrap_err();
        assert!(error.to_string().contains("holds nothing back any more"), "{error}");
    }
}
