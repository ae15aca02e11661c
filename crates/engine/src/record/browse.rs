//! Pages of events of a tenant's ledger, and single events with all their data, for the server.
//!
//! A page examines a limited number of events, so that a filter that few events match does not read the
//! whole ledger at once. The next page continues after the last examined event.

pub mod requests;

use belljar_ledger::{
    Entry, Event, LedgerPaths, Query, Reader, ReaderError, Row, Value, parse_path,
};
use belljar_model::caller::Principal;
use belljar_model::{RunId, display};

use super::bodies::{self, BodyState};
use super::owners::{EventOwner, Owners};
use super::proofs::{self, Proof, SignedProof};
use super::reading::{damaged, read};
use super::sentences;
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::scope::Scoped;

/// The maximum number of events that one page examines.
pub const MAX_EXAMINED: usize = 4096;
/// The maximum number of effects of an event that are listed.
const MAX_EFFECTS: usize = 100;
/// The maximum number of causes of an event that are listed.
const MAX_CAUSES: usize = 64;

/// The events that a page can have. The index of the ledger finds them.
#[derive(Clone, Debug, Default)]
pub struct EventQuery {
    pub run: Option<RunId>,
    /// A kind, such as `request.decided`, or a family of kinds, such as `request`.
    pub kind: Option<String>,
    /// The index of the last event of the page before.
    pub from: Option<u64>,
    pub newest_first: bool,
    /// Texts in lower case that the description of an event contains.
    pub texts: Vec<String>,
}

/// An event in a list.
#[derive(Clone, Debug)]
pub struct EventSummary {
    pub index: u64,
    /// The leaf hash in hexadecimal.
    pub hash: String,
    /// The time in nanoseconds since 1970.
    pub time: u64,
    pub kind: String,
    pub actor: &'static str,
    pub run: Option<RunId>,
    pub owner: EventOwner,
    /// The event in English, on one line without control characters.
    pub words: String,
}

/// Some events, and the position of the next page.
#[derive(Clone, Debug)]
pub struct EventPage {
    pub events: Vec<EventSummary>,
    /// The index of the last examined event. `None` if no further event can match.
    pub last: Option<u64>,
}

/// The properties of an event that a caller decides about before the event is read.
#[derive(Clone, Copy, Debug)]
pub struct EventProperties<'a> {
    pub kind: &'a str,
    pub actor: &'static str,
    pub owner: &'a EventOwner,
}

/// The ledger of one tenant, open for reading.
#[derive(Debug)]
pub struct LedgerBrowser {
    reader: Reader,
    owners: Owners,
}

/// An event that exists, with its owner.
#[derive(Clone, Debug)]
pub struct FoundEvent {
    row: Row,
    pub owner: EventOwner,
}

/// One event with all its data.
#[derive(Clone, Debug)]
pub struct EventDetail {
    pub summary: EventSummary,
    /// The description of the kind of event.
    pub about: &'static str,
    /// The position of the event in its run.
    pub sequence: u64,
    /// The hash of the previous event of the run.
    pub previous: Option<String>,
    /// The encoded event, which is the input of the leaf hash.
    pub bytes: Vec<u8>,
    pub fields: Vec<(String, FieldValue)>,
    pub bodies: Vec<BodyDetail>,
    /// The events that led to this event, the nearest first.
    pub causes: Vec<u64>,
    /// The first events that this event led to.
    pub effects: Vec<u64>,
}

/// The value of a field of an event. Texts have no control characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldValue {
    Text(String),
    Bytes(Vec<u8>),
    Number(u64),
    Truth(bool),
    List(Vec<String>),
    /// A hash in hexadecimal.
    Hash(String),
    /// The hash of a body.
    Body(String),
}

/// A body that an event references.
#[derive(Clone, Debug)]
pub struct BodyDetail {
    pub hash: String,
    pub size: u64,
    pub state: BodyState,
    /// The content, if it was requested, is available and is not too large.
    pub content: Option<Vec<u8>>,
}

impl LedgerBrowser {
    /// Opens the ledger of a tenant. `None` if the tenant has no ledger yet.
    pub fn open(state: &Scoped) -> Result<Option<Self>, EngineError> {
        match Reader::open(&LedgerPaths::under(state.home())) {
            Err(ReaderError::None { .. }) => Ok(None),
            opened => {
                let reader = opened.map_err(|error| damaged(&anyhow::Error::new(error)))?;
                Ok(Some(Self { reader, owners: Owners::default() }))
            }
        }
    }

    /// Returns whether the log is still the one that is open. Otherwise the ledger must be opened again.
    pub fn is_current(&self) -> bool {
        self.reader.is_current()
    }

    /// Reads new events.
    pub fn refresh(&mut self) -> Result<(), EngineError> {
        self.reader.refresh().map(drop).kind(ErrorKind::Broken)
    }

    pub const fn reader(&self) -> &Reader {
        &self.reader
    }

    /// Returns at most `limit` events that match the query and for which `is_wanted` returns true.
    pub fn page(
        &mut self,
        query: &EventQuery,
        limit: usize,
        is_wanted: &dyn Fn(EventProperties<'_>) -> bool,
    ) -> Result<EventPage, EngineError> {
        let EventQuery { run, kind, from, newest_first, texts } = query;
        let (after, before) = if *newest_first { (None, *from) } else { (*from, None) };
        let rows = self.reader.events(&Query {
            run: *run,
            kind: kind.clone(),
            after,
            before,
            newest_first: *newest_first,
            limit: Some(MAX_EXAMINED),
            ..Query::default()
        });
        let rows = rows.kind(ErrorKind::Broken)?;
        let is_last = rows.len() < MAX_EXAMINED;
        let (mut events, mut last) = (Vec::new(), None);
        for (place, row) in rows.iter().enumerate() {
            if let Some(event) = self.matching(row, texts, is_wanted)? {
                events.push(event);
            }
            let is_end = is_last && place + 1 == rows.len();
            last = Some(row.index).filter(|_| !is_end);
            if events.len() == limit {
                break;
            }
        }
        Ok(EventPage { events, last })
    }

    fn matching(
        &mut self,
        row: &Row,
        texts: &[String],
        is_wanted: &dyn Fn(EventProperties<'_>) -> bool,
    ) -> Result<Option<EventSummary>, EngineError> {
        let owner = self.owners.of(&self.reader, row)?;
        let (kind, actor) = (row.kind.as_str(), row.actor.name());
        if !is_wanted(EventProperties { kind, actor, owner: &owner }) {
            return Ok(None);
        }
        let summary = summary(row, &read(&self.reader, row)?, owner);
        let is_match = texts.is_empty() || summary.contains(texts);
        Ok(is_match.then_some(summary))
    }

    /// Finds an event and its owner by the index of the event.
    pub fn find(&mut self, index: u64) -> Result<Option<FoundEvent>, EngineError> {
        let Some(row) = self.reader.event(index).kind(ErrorKind::Broken)? else { return Ok(None) };
        let owner = self.owners.of(&self.reader, &row)?;
        Ok(Some(FoundEvent { row, owner }))
    }

    /// Proves that an event is in the tree of the newest checkpoint.
    pub fn prove(&self, found: &FoundEvent) -> Result<SignedProof, EngineError> {
        proofs::signed(&self.reader, &found.row)
    }

    /// Proves that the ledger of one size starts with the ledger of another size. Without a second size,
    /// that of the newest checkpoint is taken.
    pub fn prove_consistency(&self, from: u64, to: Option<u64>) -> Result<Proof, EngineError> {
        let to = proofs::tree_head(&self.reader, to)?;
        if from > to.size {
            let text = format!("no proof exists from {from} to {} events", to.size);
            let error = EngineError::message(ErrorKind::WrongState, text);
            return Err(error.advise("the first size must not be larger than the second"));
        }
        proofs::consistency(&self.reader, proofs::tree_head(&self.reader, Some(from))?, to)
    }

    /// Returns the newest signed checkpoint as text.
    pub fn checkpoint(&self) -> Result<String, EngineError> {
        Ok(self.reader.checkpoint().kind(ErrorKind::Broken)?.1)
    }

    /// Returns the content of a tile, such as `tile/0/001.p/5`. `None` if the tree of the newest checkpoint
    /// has no such tile.
    pub fn tile(&self, path: &str) -> Result<Option<Vec<u8>>, EngineError> {
        let Some(path) = parse_path(path) else { return Ok(None) };
        self.reader.tile(&path).kind(ErrorKind::Broken)
    }

    /// Returns an event with all its data. The contents of bodies up to `max_content` bytes are included.
    pub fn detail(
        &self,
        found: &FoundEvent,
        max_content: Option<u64>,
    ) -> Result<EventDetail, EngineError> {
        let FoundEvent { row, owner } = found;
        let entry = read(&self.reader, row)?;
        let mut bodies = Vec::new();
        for body in entry.fields.bodies() {
            let mut content = None;
            let (hash, was_kept) = (body.hash(), body.is_kept());
            let state = if max_content.is_some_and(|max| body.size() <= max) {
                let mut bytes = Vec::new();
                let state = bodies::copy(&self.reader, hash, was_kept, &mut bytes)?;
                content = (state == BodyState::Kept).then_some(bytes);
                state
            } else {
                bodies::unchecked_state(&self.reader, hash, was_kept)?
            };
            bodies.push(BodyDetail { hash: hash.to_string(), size: body.size(), state, content });
        }
        let about = Event::KINDS.iter().find(|(kind, _)| *kind == entry.kind);
        let effects = self.reader.first_effects_of(row.index, MAX_EFFECTS);
        Ok(EventDetail {
            about: about.map_or("", |(_, about)| about.trim()),
            sequence: entry.sequence,
            previous: entry.previous.map(|hash| hash.to_string()),
            bytes: entry.encode().kind(ErrorKind::Broken)?,
            fields: entry.fields.iter().map(|(name, it)| (name.to_owned(), field(it))).collect(),
            bodies,
            causes: self.causes(&entry)?,
            effects: effects.kind(ErrorKind::Broken)?.iter().map(|row| row.index).collect(),
            summary: summary(row, &entry, owner.clone()),
        })
    }

    fn causes(&self, entry: &Entry) -> Result<Vec<u64>, EngineError> {
        let mut causes = Vec::new();
        let mut next = entry.cause;
        while let Some(index) = next.filter(|_| causes.len() < MAX_CAUSES) {
            causes.push(index);
            let row = self.reader.event(index).kind(ErrorKind::Broken)?;
            next = row.and_then(|row| row.cause).filter(|cause| *cause < index);
        }
        Ok(causes)
    }
}

impl EventSummary {
    /// Returns whether the event contains all texts, which are in lower case.
    fn contains(&self, texts: &[String]) -> bool {
        let maker = self.owner.maker.as_ref().map(Principal::to_string);
        let run = self.run.map(|run| run.to_string());
        let parts = [
            Some(self.kind.as_str()),
            Some(self.actor),
            run.as_deref(),
            self.owner.box_name.as_deref(),
            maker.as_deref(),
            Some(&self.words),
        ];
        let all = parts.into_iter().flatten().collect::<Vec<_>>().join(" ").to_ascii_lowercase();
        texts.iter().all(|text| all.contains(text))
    }
}

fn summary(row: &Row, entry: &Entry, owner: EventOwner) -> EventSummary {
    EventSummary {
        index: row.index,
        hash: row.leaf.to_string(),
        time: row.time,
        kind: row.kind.clone(),
        actor: row.actor.name(),
        run: row.run,
        owner,
        words: sentences::words(entry),
    }
}

fn field(value: &Value) -> FieldValue {
    match value {
        Value::Text(text) => FieldValue::Text(display::safe(text)),
        Value::Bytes(bytes) => FieldValue::Bytes(bytes.clone()),
        Value::Number(number) => FieldValue::Number(*number),
        Value::Truth(truth) => FieldValue::Truth(*truth),
        Value::List(items) => FieldValue::List(items.iter().map(display::safe).collect()),
        Value::Hash(hash) => FieldValue::Hash(hash.to_string()),
        Value::Body(body) => FieldValue::Body(body.hash().to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scope::of_test;
    use crate::server::{self, AccessChange};

    fn change(state: &Scoped, act: &str, subject: &str) {
        let tenant = &state.caller().tenant;
        let change = AccessChange { act, subject, tenant, from: "test", details: &[] };
        server::record_access_change(state, &change).unwrap();
    }

    fn indices(page: &EventPage) -> Vec<u64> {
        page.events.iter().map(|event| event.index).collect()
    }

    #[test]
    fn pages_have_all_matching_events_once_in_both_directions() {
        let dir = tempfile::tempdir().unwrap();
        let state = of_test(dir.path());
        assert!(LedgerBrowser::open(&state).unwrap().is_none(), "there is no ledger yet");
        for subject in ["one", "two", "three", "four"] {
            change(&state, "box.created", subject);
        }
        let mut browser = LedgerBrowser::open(&state).unwrap().unwrap();
        for newest_first in [true, false] {
            let mut query = EventQuery { newest_first, ..EventQuery::default() };
            let mut all = Vec::new();
            loop {
                let page = browser.page(&query, 2, &|_| true).unwrap();
                all.extend(indices(&page));
                query.from = page.last;
                if query.from.is_none() {
                    break;
                }
            }
            let mut expect = vec![4, 3, 2, 1, 0];
            if !newest_first {
                expect.reverse();
            }
            assert_eq!(all, expect);
        }
        let query =
            EventQuery { texts: vec!["two".to_owned()], newest_first: true, ..Default::default() };
        let page = browser.page(&query, 50, &|_| true).unwrap();
        assert_eq!((indices(&page), page.last), (vec![2], None));
        assert_eq!(page.events[0].owner.box_name.as_deref(), Some("two"));
        let is_three = |it: EventProperties<'_>| it.owner.box_name.as_deref() == Some("three");
        let page = browser.page(&EventQuery::default(), 50, &is_three).unwrap();
        assert_eq!(indices(&page), [3]);
        let kind = EventQuery { kind: Some("ledger".to_owned()), ..EventQuery::default() };
        assert_eq!(indices(&browser.page(&kind, 50, &|_| true).unwrap()), [0]);
    }

    #[test]
    fn page_examines_a_limited_number_of_events() {
        let dir = tempfile::tempdir().unwrap();
        let state = of_test(dir.path());
        let ledger = crate::record::open(&state).unwrap();
        let draft = |_| belljar_ledger::Draft::new(belljar_ledger::TrashEmptied { trash: vec![] });
        for _ in 0..5 {
            ledger.record_all((0..1000).map(draft).collect()).map(drop).unwrap();
        }
        let mut browser = LedgerBrowser::open(&state).unwrap().unwrap();
        let size = browser.reader().size();
        let query = EventQuery { newest_first: true, ..EventQuery::default() };
        let page = browser.page(&query, 1, &|_| false).unwrap();
        let last = size - u64::try_from(MAX_EXAMINED).unwrap();
        assert_eq!((page.events.len(), page.last), (0, Some(last)));
        let query = EventQuery { from: page.last, ..query };
        let page = browser.page(&query, 1, &|_| false).unwrap();
        assert_eq!((page.events.len(), page.last), (0, None));
    }

    #[test]
    fn detail_has_the_bytes_of_the_leaf_and_contents_only_on_request() {
        let dir = tempfile::tempdir().unwrap();
        let state = of_test(dir.path());
        let report = crate::doctor::Examination {
            proved: false,
            passed: 1,
            failed: 0,
            report: b"{\"a report\":1}",
        };
        crate::doctor::record(&state, &report).unwrap();
        let mut browser = LedgerBrowser::open(&state).unwrap().unwrap();
        let index = browser.reader().size() - 1;
        let found = browser.find(index).unwrap().unwrap();
        let detail = browser.detail(&found, Some(100)).unwrap();
        let leaf = belljar_ledger::Digest::leaf(&detail.bytes).to_string();
        assert_eq!(leaf, detail.summary.hash);
        assert_eq!(detail.bodies[0].content.as_deref(), Some(report.report));
        for max in [None, Some(3)] {
            let detail = browser.detail(&found, max).unwrap();
            assert_eq!(
                (&detail.bodies[0].state, &detail.bodies[0].content),
                (&BodyState::Kept, &None)
            );
        }
        let hash = detail.bodies[0].hash.clone();
        let bodies = super::super::redaction::bodies_of(browser.reader(), &[index], &[hash]);
        let bodies = bodies.unwrap();
        assert_eq!(bodies.len(), 1);
        let redacted = super::super::redaction::redact(&state, &bodies, "a test").unwrap();
        assert_eq!(redacted.contents, 1);
        browser.refresh().unwrap();
        for max in [None, Some(100)] {
            let detail = browser.detail(&found, max).unwrap();
            assert_eq!(detail.bodies[0].state, BodyState::Redacted { by: index + 1 });
            assert_eq!(detail.bodies[0].content, None);
        }
        assert!(browser.find(index + 9).unwrap().is_none());
    }
}
