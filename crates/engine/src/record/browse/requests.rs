//! The network requests of boxes, as the ledger has them.

use std::collections::HashMap;

use belljar_ledger::{Event, Query, RequestDecided, RequestFinished, Row};
use belljar_model::RunId;

use super::{EventOwner, LedgerBrowser, MAX_EXAMINED};
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::record::reading::read;
use crate::record::runs;

/// The maximum number of runs whose templates are kept in memory.
const MAX_RUNS: usize = 4096;

/// The kind of the events with requests.
const KIND: &str = "request.decided";

/// A request that a box sent, with the decision about it.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    pub index: u64,
    /// The time in nanoseconds since 1970.
    pub time: u64,
    pub run: Option<RunId>,
    pub owner: EventOwner,
    pub request: RequestDecided,
    /// The outcome of an allowed request, if it has ended.
    pub outcome: Option<RequestFinished>,
}

/// The requests that a page can have.
#[derive(Clone, Debug, Default)]
pub struct RequestQuery {
    /// The earliest time, in nanoseconds since 1970.
    pub since: Option<u64>,
    /// The time that requests must precede.
    pub until: Option<u64>,
    /// The index of the last event of the page before.
    pub before: Option<u64>,
}

/// Some requests, the newest first, and the position of the next page.
#[derive(Clone, Debug)]
pub struct RequestPage {
    pub requests: Vec<RecordedRequest>,
    /// The index of the last examined event. `None` if no further request can match.
    pub last: Option<u64>,
}

/// The templates of the boxes that sent requests. Those of recent runs are kept in memory.
#[derive(Debug, Default)]
pub struct Templates(HashMap<RunId, Option<String>>);

impl Templates {
    /// Returns the template of the box that a run belongs to.
    pub fn of(
        &mut self,
        browser: &LedgerBrowser,
        run: Option<RunId>,
    ) -> Result<Option<String>, EngineError> {
        let Some(run) = run else { return Ok(None) };
        if let Some(known) = self.0.get(&run) {
            return Ok(known.clone());
        }
        if self.0.len() >= MAX_RUNS {
            self.0.clear();
        }
        let template = runs::created_of(&browser.reader, run)?.map(|created| created.template);
        self.0.insert(run, template.clone());
        Ok(template)
    }
}

impl LedgerBrowser {
    /// Returns at most `limit` requests, the newest first. `is_visible` decides about the owner of a request
    /// before it is read, and `is_wanted` about the request.
    pub fn requests(
        &mut self,
        query: &RequestQuery,
        limit: usize,
        is_visible: &dyn Fn(&EventOwner) -> bool,
        is_wanted: &dyn Fn(&RecordedRequest) -> bool,
    ) -> Result<RequestPage, EngineError> {
        let rows = self.reader.events(&Query {
            kind: Some(KIND.to_owned()),
            since: query.since,
            until: query.until,
            before: query.before,
            newest_first: true,
            limit: Some(MAX_EXAMINED),
            ..Query::default()
        });
        let rows = rows.kind(ErrorKind::Broken)?;
        let is_last = rows.len() < MAX_EXAMINED;
        let (mut requests, mut last) = (Vec::new(), None);
        for (place, row) in rows.iter().enumerate() {
            let found = self.request_of(row, is_visible)?;
            if let Some(mut found) = found.filter(|it| is_wanted(it)) {
                found.outcome = self.outcome_of(&found)?;
                requests.push(found);
            }
            let is_end = is_last && place + 1 == rows.len();
            last = Some(row.index).filter(|_| !is_end);
            if requests.len() == limit {
                break;
            }
        }
        Ok(RequestPage { requests, last })
    }

    /// Finds a request by the index of its event.
    pub fn request(
        &mut self,
        index: u64,
        is_visible: &dyn Fn(&EventOwner) -> bool,
    ) -> Result<Option<RecordedRequest>, EngineError> {
        let row = self.reader.event(index).kind(ErrorKind::Broken)?;
        match row.filter(|row| row.kind == KIND) {
            Some(row) => self.request_of(&row, is_visible),
            None => Ok(None),
        }
    }

    /// Calls `show` for each request since a time, the newest first, until it returns `false`.
    pub fn each_request(
        &mut self,
        since: u64,
        is_visible: &dyn Fn(&EventOwner) -> bool,
        show: &mut dyn FnMut(&Self, RecordedRequest) -> Result<bool, EngineError>,
    ) -> Result<(), EngineError> {
        let mut query = RequestQuery { since: Some(since), ..RequestQuery::default() };
        loop {
            let rows = self.reader.events(&Query {
                kind: Some(KIND.to_owned()),
                since: query.since,
                before: query.before,
                newest_first: true,
                limit: Some(MAX_EXAMINED),
                ..Query::default()
            });
            let rows = rows.kind(ErrorKind::Broken)?;
            for row in &rows {
                if let Some(found) = self.request_of(row, is_visible)?
                    && !show(self, found)?
                {
                    return Ok(());
                }
            }
            match rows.last() {
                Some(last) if rows.len() == MAX_EXAMINED => query.before = Some(last.index),
                Some(_) | None => return Ok(()),
            }
        }
    }

    fn request_of(
        &mut self,
        row: &Row,
        is_visible: &dyn Fn(&EventOwner) -> bool,
    ) -> Result<Option<RecordedRequest>, EngineError> {
        let owner = self.owners.of(&self.reader, row)?;
        if !is_visible(&owner) {
            return Ok(None);
        }
        let entry = read(&self.reader, row)?;
        let Ok(Event::RequestDecided(request)) = Event::read(&entry.kind, &entry.fields) else {
            return Ok(None);
        };
        let (index, time, run) = (row.index, row.time, row.run);
        Ok(Some(RecordedRequest { index, time, run, owner, request, outcome: None }))
    }

    fn outcome_of(&self, of: &RecordedRequest) -> Result<Option<RequestFinished>, EngineError> {
        if of.request.verdict != "allow" {
            return Ok(None);
        }
        let effects = self.reader.effects_of(of.index).kind(ErrorKind::Broken)?;
        let Some(row) = effects.iter().find(|row| row.kind == "request.finished") else {
            return Ok(None);
        };
        let entry = read(&self.reader, row)?;
        Ok(match Event::read(&entry.kind, &entry.fields) {
            Ok(Event::RequestFinished(outcome)) => Some(outcome),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use belljar_ledger::Draft;

    use super::*;
    use crate::record;
    use crate::scope::of_test;

    fn request(host: &str) -> RequestDecided {
        RequestDecided {
            method: "GET".to_owned(),
            scheme: "https".to_owned(),
            host: host.to_owned(),
            port: 443,
            path: "/".to_owned(),
            verdict: "deny".to_owned(),
            rule: None,
            reason: "no-rule: no rule allows it".to_owned(),
            secrets: Vec::new(),
            body: None,
            upgrade: None,
        }
    }

    fn hosts(requests: &[RecordedRequest]) -> Vec<&str> {
        requests.iter().map(|it| it.request.host.as_str()).collect()
    }

    #[test]
    fn requests_are_found_newest_first_and_only_those_of_visible_owners() {
        let dir = tempfile::tempdir().unwrap();
        let state = of_test(dir.path());
        let ledger = record::open(&state).unwrap();
        for host in ["a.example", "b.example", "c.example"] {
            drop(ledger.record(Draft::new(request(host))).unwrap());
        }
        let mut browser = LedgerBrowser::open(&state).unwrap().unwrap();
        let query = RequestQuery::default();
        let all = browser.requests(&query, 50, &|_| true, &|_| true).unwrap();
        assert_eq!((hosts(&all.requests), all.last).0, ["c.example", "b.example", "a.example"]);
        assert_eq!(all.last, None);
        let first = browser.requests(&query, 1, &|_| true, &|_| true).unwrap();
        let next = RequestQuery { before: first.last, ..RequestQuery::default() };
        let rest = browser.requests(&next, 50, &|_| true, &|_| true).unwrap();
        assert_eq!(hosts(&rest.requests), ["b.example", "a.example"]);
        let hidden = browser.requests(&query, 50, &|_| false, &|_| true).unwrap();
        assert!(hidden.requests.is_empty());
        let index = all.requests[0].index;
        assert!(browser.request(index, &|_| false).unwrap().is_none());
        assert!(browser.request(0, &|_| true).unwrap().is_none(), "another kind of event");
        assert!(browser.request(index, &|_| true).unwrap().is_some(), "control");
        let mut seen = Vec::new();
        let mut show = |_: &LedgerBrowser, found: RecordedRequest| {
            seen.push(found.request.host);
            Ok(seen.len() < 2)
        };
        browser.each_request(0, &|_| true, &mut show).unwrap();
        assert_eq!(seen, ["c.example", "b.example"]);
    }
}
