//! Finds the named box that an event concerns, and the principal that caused the event.

use std::collections::HashMap;

use belljar_ledger::{Event, Reader, Row};
use belljar_model::caller::Principal;
use belljar_model::{Purpose, RunId};

use super::reading::read;
use super::runs;
use crate::error::EngineError;

/// The maximum number of runs whose owners are kept in memory.
const MAX_RUNS: usize = 4096;

/// The named box that an event concerns, and the principal that caused the event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventOwner {
    pub box_name: Option<String>,
    /// The principal that started the run, or that did what the event records.
    pub maker: Option<Principal>,
}

/// Finds the owners of events. The owners of recent runs are kept in memory.
#[derive(Debug, Default)]
pub struct Owners {
    runs: HashMap<RunId, EventOwner>,
}

impl Owners {
    /// Returns the owner of the event of a row.
    pub fn of(&mut self, reader: &Reader, row: &Row) -> Result<EventOwner, EngineError> {
        match row.run {
            Some(run) => self.of_run(reader, run),
            None => of_event(reader, row),
        }
    }

    fn of_run(&mut self, reader: &Reader, run: RunId) -> Result<EventOwner, EngineError> {
        if let Some(known) = self.runs.get(&run) {
            return Ok(known.clone());
        }
        let owner = match runs::created_of(reader, run)? {
            None => EventOwner::default(),
            Some(created) => EventOwner {
                maker: created.principal.as_deref().and_then(|text| text.parse().ok()),
                box_name: created
                    .name
                    .filter(|_| created.purpose.as_deref() == Some(Purpose::Box.name())),
            },
        };
        if self.runs.len() >= MAX_RUNS {
            self.runs.clear();
        }
        self.runs.insert(run, owner.clone());
        Ok(owner)
    }
}

/// Returns the owner that an event without a run names.
fn of_event(reader: &Reader, row: &Row) -> Result<EventOwner, EngineError> {
    let entry = read(reader, row)?;
    let of_box = |name: String| EventOwner { box_name: Some(name), maker: None };
    Ok(match Event::read(&entry.kind, &entry.fields) {
        Ok(Event::AccessChanged(event)) => EventOwner {
            maker: event.by.parse().ok(),
            box_name: event.act.starts_with("box.").then_some(event.subject),
        },
        Ok(Event::AccessDenied(event)) => {
            EventOwner { box_name: None, maker: event.by.parse().ok() }
        }
        Ok(Event::BoxRemoved(event)) => of_box(event.name),
        Ok(Event::BoxDiscarded(event)) => of_box(event.name),
        Ok(Event::BoxRestored(event)) => of_box(event.name),
        Ok(Event::BoxSnapshot(event)) => of_box(event.name),
        Ok(Event::BoxReset(event)) => of_box(event.name),
        Ok(Event::BoxForked(event)) => of_box(event.name),
        Ok(Event::BoxForwarded(event)) => of_box(event.name),
        _ => EventOwner::default(),
    })
}
