//! Reads the events of a ledger in order, with the owner of each event, for clients that follow the ledger.

use std::path::PathBuf;

use belljar_ledger::{LedgerPaths, Query, Reader, ReaderError, Row};
use belljar_model::RunId;
use belljar_model::caller::Principal;

use super::owners::Owners;
use super::reading::damaged;
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::scope::Scoped;

/// An event of the ledger, without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedEvent {
    /// The position in the ledger.
    pub index: u64,
    /// The time in nanoseconds since 1970.
    pub time: u64,
    pub kind: String,
    pub run: Option<RunId>,
    /// The named box that the event concerns.
    pub box_name: Option<String>,
    /// The principal that started the run, or that did what the event records.
    pub maker: Option<Principal>,
}

/// Reads the events of the ledger of one tenant.
#[derive(Debug)]
pub struct EventFeed {
    reader: Reader,
    owners: Owners,
}

impl EventFeed {
    /// Opens the ledger of a tenant. `None` if the tenant has no ledger yet.
    pub fn open(state: &Scoped) -> Result<Option<Self>, EngineError> {
        match Reader::open_uncounted(&LedgerPaths::under(state.home())) {
            Err(ReaderError::None { .. }) => Ok(None),
            opened => {
                let reader = opened.kind(ErrorKind::Broken)?;
                Ok(Some(Self { reader, owners: Owners::default() }))
            }
        }
    }

    /// Returns the file that grows with every event.
    pub fn log_file(state: &Scoped) -> PathBuf {
        LedgerPaths::under(state.home()).log()
    }

    /// Returns whether the feed still reads the file of the ledger. Otherwise it must be opened again.
    pub fn is_current(&self) -> bool {
        self.reader.is_current()
    }

    /// Reads new events, and returns the number of all events.
    pub fn refresh(&mut self) -> Result<u64, EngineError> {
        self.reader.refresh().kind(ErrorKind::Broken)
    }

    /// Returns at most `limit` events from the position `from`, in order.
    pub fn events(&mut self, from: u64, limit: usize) -> Result<Vec<FeedEvent>, EngineError> {
        let query = Query {
            after: from.checked_sub(1),
            before: Some(from.saturating_add(u64::try_from(limit).unwrap_or(u64::MAX))),
            ..Query::default()
        };
        let rows = self.reader.events(&query).kind(ErrorKind::Broken)?;
        if rows.first().is_some_and(|row| row.index != from) {
            let error = anyhow::anyhow!("the index of the ledger has a gap");
            return Err(damaged(&error));
        }
        rows.iter().map(|row| self.event(row)).collect()
    }

    fn event(&mut self, row: &Row) -> Result<FeedEvent, EngineError> {
        let owner = self.owners.of(&self.reader, row)?;
        Ok(FeedEvent {
            index: row.index,
            time: row.time,
            kind: row.kind.clone(),
            run: row.run,
            box_name: owner.box_name,
            maker: owner.maker,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scope::of_test;
    use crate::server::{self, AccessChange};

    fn change(state: &Scoped, subject: &str) {
        let tenant = &state.caller().tenant;
        let change = AccessChange { act: "login", subject, tenant, from: "test", details: &[] };
        server::record_access_change(state, &change).unwrap();
    }

    #[test]
    fn feed_returns_events_in_order_from_a_position_with_their_maker() {
        let dir = tempfile::tempdir().unwrap();
        let state = of_test(dir.path());
        assert!(EventFeed::open(&state).unwrap().is_none(), "there is no ledger yet");
        change(&state, "one");
        let mut feed = EventFeed::open(&state).unwrap().unwrap();
        let first = feed.refresh().unwrap();
        change(&state, "two");
        change(&state, "three");
        let size = feed.refresh().unwrap();
        assert_eq!(size, first + 2);
        let events = feed.events(first, 10).unwrap();
        let indices: Vec<u64> = events.iter().map(|event| event.index).collect();
        assert_eq!(indices, [first, first + 1]);
        assert!(events.iter().all(|event| event.maker.as_ref() == Some(&state.caller().principal)));
        assert_eq!(feed.events(first, 1).unwrap().len(), 1);
        assert!(feed.events(size, 10).unwrap().is_empty());
    }
}
