//! Starting, stopping and removing boxes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::box_store::{NamedBox, trash};
use crate::boxes::unapplied;
use crate::error::{EngineError, ErrorKind, invalid};
use crate::scope::Scoped;
use crate::supervisor::{self, Starting, protocol::ToSupervisor};

/// Longer than any program is waited for after it was asked to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// Whether a box was running when it was to be stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    Now,
    NotRunning,
}

/// Starts boxes side by side. Returns the result of each, in order.
pub fn start(state: &Scoped, boxes: &[NamedBox]) -> Vec<Result<(), EngineError>> {
    let mut by_path: Vec<(usize, &NamedBox)> = boxes.iter().enumerate().collect();
    // The order of locks: without it two commands could wait for each other.
    by_path.sort_by(|(_, left), (_, right)| left.dir.cmp(&right.dir));
    let mut before: Option<&NamedBox> = None;
    let mut starting = BTreeMap::new();
    for (at, one) in by_path {
        let is_twice = before.replace(one).is_some_and(|before| before.dir == one.dir);
        let begun = match is_twice {
            true => Err(invalid(format!("box {} is named twice", one.name()))),
            false => one.turn().and_then(|turn| Ok((turn, supervisor::start(state, one)?))),
        };
        starting.insert(at, begun);
    }
    let finish = |(turn, starting): (_, Starting)| starting.finish(state).map(|()| drop(turn));
    starting.into_values().map(|begun| begun.and_then(finish)).collect()
}

/// Stops a box and waits for its end. `now` kills its program instead of asking it.
pub fn stop(state: &Scoped, one: &NamedBox, now: bool) -> Result<Stopped, EngineError> {
    let _turn = one.turn()?;
    if !one.is_up() {
        return Ok(Stopped::NotRunning);
    }
    halt(state, one, now)?;
    Ok(Stopped::Now)
}

fn halt(state: &Scoped, one: &NamedBox, now: bool) -> Result<(), EngineError> {
    supervisor::ask(state, one, &ToSupervisor::Stop { now })?;
    let until = Instant::now() + STOP_TIMEOUT;
    while one.is_up() {
        if Instant::now() > until {
            let text = format!("box {} does not end; `--now` does not ask it", one.name());
            return Err(EngineError::message(ErrorKind::Broken, text));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Stops a box and moves it to the trash. Work that nobody applied is lost only with `discard_work`.
pub fn remove(state: &Scoped, one: &NamedBox, discard_work: bool) -> Result<(), EngineError> {
    let _turn = one.turn()?;
    let mut unapplied = unapplied::guard(state, one, "down", discard_work)?;
    if one.is_up() {
        halt(state, one, false)?;
        // It may have done more until it ended.
        unapplied = unapplied::guard(state, one, "down", discard_work)?;
    }
    trash::put(state, one, "down", unapplied)?;
    Ok(())
}
