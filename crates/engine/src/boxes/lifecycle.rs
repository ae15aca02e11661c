//! Starts, pauses, stops and removes named boxes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use belljar_model::boxes::BoxState;

use crate::box_store::{NamedBox, trash};
use crate::boxes::unapplied;
use crate::error::{EngineError, ErrorKind, invalid};
use crate::scope::Scoped;
use crate::supervisor::{self, Starting, protocol::ToSupervisor};

/// How long `stop` waits for a box to stop. The supervisor kills the program earlier than this.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// The result of [`stop`]: whether the box was running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The box was running and is stopped now.
    Now,
    NotRunning,
}

/// Starts boxes in parallel, and resumes those that are paused. Returns one result per box, in the order of
/// `boxes`.
pub fn start(state: &Scoped, boxes: &[NamedBox]) -> Vec<Result<(), EngineError>> {
    let mut by_path: Vec<(usize, &NamedBox)> = boxes.iter().enumerate().collect();
    // Boxes are locked in the order of their paths, so that two commands cannot deadlock.
    by_path.sort_by(|(_, left), (_, right)| left.dir.cmp(&right.dir));
    let mut previous: Option<&NamedBox> = None;
    let mut starting = BTreeMap::new();
    for (index, named_box) in by_path {
        let is_duplicate =
            previous.replace(named_box).is_some_and(|previous| previous.dir == named_box.dir);
        let started = match is_duplicate {
            true => Err(invalid(format!("box {} is named twice; name it once", named_box.name()))),
            false => named_box
                .lock_for_change()
                .and_then(|lock| Ok((lock, start_or_resume(state, named_box)?))),
        };
        starting.insert(index, started);
    }
    let finish = |(lock, starting): (_, Option<Starting>)| {
        starting.map_or(Ok(()), |starting| starting.finish(state)).map(|()| drop(lock))
    };
    starting.into_values().map(|started| started.and_then(finish)).collect()
}

/// Starts the supervisor of a box. Resumes a paused box instead, and returns `None`.
fn start_or_resume(state: &Scoped, named_box: &NamedBox) -> Result<Option<Starting>, EngineError> {
    if named_box.state() == BoxState::Paused {
        return supervisor::ask(state, named_box, &ToSupervisor::Resume).map(|_| None);
    }
    supervisor::start(state, named_box).map(Some)
}

/// Pauses a running box until it is resumed, started or stopped. Does nothing if it is paused already.
///
/// The supervisor keeps the pause, so it outlives this process. The limits of the box continue: a box that
/// exceeds its timeout while it is paused is killed.
pub fn pause(state: &Scoped, named_box: &NamedBox) -> Result<(), EngineError> {
    let _lock = named_box.lock_for_change()?;
    supervisor::ask(state, named_box, &ToSupervisor::PauseUntilResumed).map(drop)
}

/// Resumes a paused box. Does nothing if the box runs already.
pub fn resume(state: &Scoped, named_box: &NamedBox) -> Result<(), EngineError> {
    let _lock = named_box.lock_for_change()?;
    supervisor::ask(state, named_box, &ToSupervisor::Resume).map(drop)
}

/// Stops a box and waits until it has stopped. `now` kills the program instead of terminating it.
pub fn stop(state: &Scoped, named_box: &NamedBox, now: bool) -> Result<Stopped, EngineError> {
    let _lock = named_box.lock_for_change()?;
    if !named_box.is_up() {
        return Ok(Stopped::NotRunning);
    }
    halt(state, named_box, now)?;
    Ok(Stopped::Now)
}

fn halt(state: &Scoped, named_box: &NamedBox, now: bool) -> Result<(), EngineError> {
    match supervisor::ask(state, named_box, &ToSupervisor::Stop { now }) {
        // The program of the box has ended, and the supervisor is about to exit: wait for it.
        Err(error) if matches!(error.kind(), ErrorKind::WrongState | ErrorKind::Busy) => {}
        asked => drop(asked?),
    }
    let deadline = Instant::now() + STOP_TIMEOUT;
    while named_box.is_up() {
        if Instant::now() > deadline {
            let text = format!(
                "box {} did not stop within {} s; use --now to kill it",
                named_box.name(),
                STOP_TIMEOUT.as_secs()
            );
            return Err(EngineError::message(ErrorKind::Broken, text));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Stops a box and moves it to the trash. Fails if it has unapplied work, unless `discard_work` is true.
pub fn remove(state: &Scoped, named_box: &NamedBox, discard_work: bool) -> Result<(), EngineError> {
    let _lock = named_box.lock_for_change()?;
    let mut unapplied = unapplied::guard(state, named_box, "down", discard_work)?;
    if named_box.is_up() {
        halt(state, named_box, false)?;
        // The program may have changed more files before it stopped.
        unapplied = unapplied::guard(state, named_box, "down", discard_work)?;
    }
    trash::move_box(state, named_box, "down", unapplied)?;
    Ok(())
}
