//! Review of the changes of a box: finds the run, and discards its changes.

pub mod by_digest;
pub mod cloned;
mod damaged;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use belljar_ledger::BoxDiscarded;
use belljar_model::{Review, RunState};

use crate::box_store::trash::{TrashKind, TrashNote};
use crate::box_store::{self, NamedBox, parts};
use crate::boxes::unapplied;
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::record;
use crate::scope::Scoped;
use crate::store::lock::{self, CHANGE_TIMEOUT, LockGuard, Rank};
use crate::store::{Run, is_empty};

/// Finds the run to review: the latest run of a box, a run by its name or id prefix, or a default.
///
/// The default is the newest run of the directory `current_dir` whose changes wait for review.
pub fn find(state: &Scoped, current_dir: &Path, which: Option<&str>) -> Result<Run, EngineError> {
    if let Some(run) =
        which.map(|name| box_store::latest_run_of(state, name)).transpose()?.flatten()
    {
        return Ok(run);
    }
    let mut runs = state.store().runs().kind(ErrorKind::Broken)?;
    runs.extend(box_store::runs(state));
    runs.sort_by_key(|run| std::cmp::Reverse(run.record.id));
    match which {
        Some(name) => match find_named(runs, name) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                damaged::find(state, name)?.ok_or(error)
            }
            found => found,
        },
        None => newest_of_directory(runs, current_dir),
    }
}

/// Returns the run with this name or id prefix.
fn find_named(runs: Vec<Run>, name: &str) -> Result<Run, EngineError> {
    let mut found: Vec<Run> = runs
        .into_iter()
        .filter(|run| {
            run.record.name.as_ref().is_some_and(|own| own.as_str() == name)
                || (name.len() >= 4 && run.record.id.to_string().starts_with(name))
        })
        .collect();
    match found.len() {
        0 => {
            let text = format!("there is no run {name:?}; `belljar runs --all` lists all runs");
            Err(EngineError::message(ErrorKind::NotFound, text))
        }
        1 => Ok(found.remove(0)),
        // Several runs can have the same name: the newest is returned. An id prefix must be unambiguous.
        _ if found
            .iter()
            .all(|run| run.record.name.as_ref().is_some_and(|own| own.as_str() == name)) =>
        {
            Ok(found.remove(0))
        }
        matches => Err(invalid(format!(
            "run id prefix {name:?} is ambiguous ({matches} matches); use a longer prefix"
        ))),
    }
}

/// Returns the newest run of the directory `current_dir` whose changes wait for review.
fn newest_of_directory(runs: Vec<Run>, current_dir: &Path) -> Result<Run, EngineError> {
    let meta =
        fs::metadata(current_dir).context("cannot read the metadata of the current directory");
    let meta = meta.kind(ErrorKind::Broken)?;
    let inode = (meta.dev(), meta.ino());
    let is_here =
        |run: &Run| run.record.workspace.as_ref().is_some_and(|at| (at.dev, at.ino) == inode);
    let newest = runs.into_iter().filter(is_here).find(|run| run.record.review.is_pending());
    newest.ok_or_else(|| {
        invalid("no run of this directory waits for review; `belljar runs --all` lists all runs")
    })
}

/// The lock for reviewing a run. Dropping the value releases the lock.
#[derive(Debug)]
#[must_use]
pub struct ReviewLock {
    _held: LockGuard,
}

/// Waits for the lock for applying or discarding the changes of a run.
pub fn lock(run: &Run) -> Result<ReviewLock, EngineError> {
    lock_within(run, CHANGE_TIMEOUT)
}

/// Reads a run again under its [`ReviewLock`]: another command may have reviewed it before.
pub fn reload(state: &Scoped, run: &Run) -> Result<Run, EngineError> {
    damaged::reload(state, run)
}

fn lock_within(run: &Run, timeout: Duration) -> Result<ReviewLock, EngineError> {
    let held = match lock::acquire(&run.dir.join("review"), Rank::Review, timeout) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let text = format!("run {} was removed by another command", run.id());
            return Err(EngineError::message(ErrorKind::NotFound, text));
        }
        held => held,
    };
    let held = held.context("cannot lock the run for a review").kind(ErrorKind::Broken)?;
    let held = held.ok_or_else(|| {
        let id = run.id();
        let text = format!("another command is reviewing run {id}; try again when it has ended");
        EngineError::message(ErrorKind::Busy, text)
    })?;
    Ok(ReviewLock { _held: held })
}

/// Checks that the changes of a run were not discarded. The caller holds the [`ReviewLock`] of the run.
pub fn check_not_discarded(run: &Run) -> Result<(), EngineError> {
    if run.record.review == Review::Discarded {
        let id = run.id();
        return Err(invalid(format!(
            "the changes of run {id} were discarded; nothing was applied"
        )));
    }
    Ok(())
}

/// Returns whether a run has changes to discard.
///
/// A run that is still running is an error, and a run whose changes were applied, too.
pub fn can_discard(run: &Run) -> Result<bool, EngineError> {
    let id = run.id();
    if run.record.state == RunState::Running {
        return Err(invalid(format!("run {id} is still running; wait until it ends")));
    }
    match run.record.review {
        Review::Pending | Review::PartlyApplied => Ok(true),
        Review::None | Review::Discarded => Ok(false),
        Review::Applied => Err(invalid(format!(
            "the changes of run {id} were applied; nothing was discarded; the files that `apply` replaced are in {}",
            run.dir.join("trash").display()
        ))),
    }
}

/// Records that the changes of a run are discarded, then removes them.
///
/// Returns `false` if another command discarded them first.
pub fn discard(state: &Scoped, run: &mut Run) -> Result<bool, EngineError> {
    let _lock = lock(run)?;
    *run = reload(state, run)?;
    if !can_discard(run)? {
        return Ok(false);
    }
    let ledger = record::open(state).kind(ErrorKind::Unrecorded)?;
    record::discarded(&ledger, run.id())
        .map(drop)
        .context("cannot record that changes are discarded")
        .kind(ErrorKind::Broken)?;
    belljar_workspace::discard(&run.dir)
        .context("cannot remove the discarded changes")
        .kind(ErrorKind::Broken)?;
    run.record.review = Review::Discarded;
    run.save().kind(ErrorKind::Broken)?;
    record::settle(&ledger, state, run.id(), "the operator discarded its changes")
        .kind(ErrorKind::Broken)?;
    Ok(true)
}

/// Moves the changes of a stopped box to the trash. Returns false if the box has no changes.
pub fn discard_of_box(
    state: &Scoped,
    named_box: &NamedBox,
    discard_work: bool,
) -> Result<bool, EngineError> {
    let name = named_box.name();
    let _lock = named_box.lock_while_stopped("discard")?;
    let Some(run) = named_box.run().filter(|_| !is_empty(&named_box.dir.join("upper"))) else {
        return Ok(false);
    };
    let unapplied = unapplied::guard(state, named_box, "discard", discard_work)?;
    let note = TrashNote::new(state, name, TrashKind::Changes, "discard", unapplied)?;
    let event = BoxDiscarded {
        name: name.to_string(),
        trash: note.directory_name(),
        unapplied: note.unapplied.clone(),
    };
    record::fact(state, event)?;
    let ledger = record::open(state).kind(ErrorKind::Unrecorded)?;
    record::discarded(&ledger, run.id())
        .map(drop)
        .context("cannot record that changes are discarded")
        .kind(ErrorKind::Broken)?;
    let next = parts::prepare(named_box)?;
    parts::write_run(&next, run.record.clone()).kind(ErrorKind::Broken)?;
    parts::exchange(named_box, &parts::CHANGES, note)?;
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
    fn review_lock_of_a_run_under_review_is_busy_after_the_timeout() {
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
        let id = run.id();
        let expected =
            format!("another command is reviewing run {id}; try again when it has ended");
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
        assert!(error.to_string().contains("were applied; nothing was discarded"), "{error}");
    }

    #[test]
    fn review_of_a_run_that_another_command_removed_fails_with_not_found() {
        let home = tempfile::tempdir().unwrap();
        let state = scope::of_test(home.path());
        let run = run(&state);
        lock(&run).map(drop).expect("control: the run exists");
        fs::remove_dir_all(&run.dir).unwrap();
        let error = lock(&run).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("was removed by another command"), "{error}");
    }
}
