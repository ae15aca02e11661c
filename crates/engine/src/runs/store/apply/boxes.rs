//! Turns events of boxes into the rows of single runs, and into the usage of the tenant.
//!
//! The usage is what brokers and supervisors observed. An event counts for the principal that started its box,
//! in the hour of its record.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use belljar_ledger::{Event, Reader, Row, RunCreated};
use belljar_model::Purpose;
use rusqlite::Connection;

use super::run_owner;
use crate::record::reading::read;
use crate::runs::budget::Unit;
use crate::runs::store::sqlite::boxes::StoredBox;
use crate::runs::store::sqlite::number;
use crate::runs::store::sqlite::usage::{self, Observed, UsageKey, UsageKind};
use crate::runs::store::{SingleStatus, StoreError};

const HOUR: u64 = 3_600_000_000_000; // in nanoseconds
const MILLI: u64 = 1_000_000; // in nanoseconds

/// The name of a model that its server did not report.
const UNKNOWN_MODEL: &str = "unknown";

/// Returns whether events of a kind change rows of boxes, beside `run.created`.
pub(super) fn is_relevant(kind: &str) -> bool {
    matches!(
        kind,
        "run.ended" | "run.failed" | "request.decided" | "request.finished" | "model.called"
    )
}

/// The rows of boxes that one transaction changes.
#[derive(Default)]
pub(super) struct BoxRows {
    /// The boxes with events in this transaction, each with whether its row has changed; `None` for unknown runs.
    boxes: HashMap<String, Option<(StoredBox, bool)>>,
    /// The usage of single runs.
    runs: BTreeMap<String, Observed>,
    usage: BTreeMap<UsageKey, Observed>,
    /// The secrets of the requests in this transaction, by the index of the event.
    secrets: HashMap<u64, BTreeSet<String>>,
}

impl BoxRows {
    pub(super) fn created(&mut self, run: &str, created: &RunCreated, row: &Row) {
        // Runs of version 0.1 have no purpose.
        let purpose = created.purpose.as_deref().map_or(Ok(Purpose::Run), str::parse);
        let Ok(purpose) = purpose else { return };
        let stored = StoredBox {
            run: run.to_owned(),
            tenant: created.tenant.clone().unwrap_or_default(),
            principal: created.principal.clone().unwrap_or_default(),
            name: created.name.clone().unwrap_or_default(),
            purpose,
            status: SingleStatus::Running,
            reason: None,
            seq: row.index,
            opened: row.time / MILLI,
            ended: None,
            template: created.template.clone(),
            directory: created.workspace.clone(),
        };
        self.boxes.insert(run.to_owned(), Some((stored, true)));
    }

    /// Applies an event of a box.
    pub(super) fn add(
        &mut self,
        connection: &Connection,
        reader: &Reader,
        run: String,
        row: &Row,
    ) -> Result<(), StoreError> {
        if !self.boxes.contains_key(&run) {
            let stored = StoredBox::find(connection, &run)?.map(|stored| (stored, false));
            self.boxes.insert(run.clone(), stored);
        }
        let Some(Some((stored, _))) = self.boxes.get(&run) else { return Ok(()) };
        let (purpose, principal) = (stored.purpose, stored.principal.clone());
        let ledger = |error| StoreError::Ledger(anyhow::anyhow!("{error:#}"));
        let entry = read(reader, row).map_err(ledger)?;
        let Ok(event) = Event::read(&entry.kind, &entry.fields) else { return Ok(()) };
        let observed = observed(&event);
        let mut key = UsageKey {
            kind: UsageKind::All,
            hour: row.time / HOUR,
            name: String::new(),
            principal,
        };
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "the table has columns for these events only"
        )]
        match &event {
            Event::RunEnded(ended) => {
                let status = SingleStatus::ended(&ended.reason, ended.exit);
                self.end(&run, status, &ended.reason, row.time);
            }
            Event::RunFailed(_) => self.end(&run, SingleStatus::Failed, "failed", row.time),
            Event::RequestDecided(request) if !request.secrets.is_empty() => {
                let secrets = request.secrets.iter().cloned().collect();
                self.secrets.insert(row.index, secrets);
            }
            Event::ModelCalled(called) => {
                let model = called.model.clone().unwrap_or_else(|| UNKNOWN_MODEL.to_owned());
                let calls = Observed { calls: 1, ..observed };
                self.count(UsageKey { kind: UsageKind::Model, name: model, ..key.clone() }, calls);
            }
            _ => {}
        }
        let request = if row.kind == "request.decided" { Some(row.index) } else { entry.cause };
        for secret in self.secrets_of(reader, request)? {
            self.count(UsageKey { kind: UsageKind::Secret, name: secret, ..key.clone() }, observed);
        }
        if purpose != Purpose::Task {
            // The usage of a task is in the account of its plan.
            let of_run = self.runs.entry(run).or_default();
            *of_run = of_run.plus(observed);
        }
        key.name.clear();
        self.count(key, observed);
        Ok(())
    }

    fn end(&mut self, run: &str, status: SingleStatus, reason: &str, time: u64) {
        if let Some(Some((stored, has_changed))) = self.boxes.get_mut(run) {
            (stored.status, stored.reason) = (status, Some(reason.to_owned()));
            (stored.ended, *has_changed) = (Some(time / MILLI), true);
        }
    }

    fn count(&mut self, key: UsageKey, observed: Observed) {
        if observed != Observed::default() {
            let sum = self.usage.entry(key).or_default();
            *sum = sum.plus(observed);
        }
    }

    /// Returns the secrets of a request by the index of its decision.
    fn secrets_of(
        &mut self,
        reader: &Reader,
        request: Option<u64>,
    ) -> Result<BTreeSet<String>, StoreError> {
        let Some(index) = request else { return Ok(BTreeSet::new()) };
        if let Some(known) = self.secrets.get(&index) {
            return Ok(known.clone());
        }
        let failed = |error: anyhow::Error| StoreError::Ledger(error);
        let row = reader.event(index).map_err(|error| failed(error.into()))?;
        let Some(row) = row.filter(|row| row.kind == "request.decided") else {
            return Ok(BTreeSet::new());
        };
        let entry = read(reader, &row).map_err(|error| failed(anyhow::anyhow!("{error:#}")))?;
        let secrets = match Event::read(&entry.kind, &entry.fields) {
            Ok(Event::RequestDecided(request)) => request.secrets.into_iter().collect(),
            _ => BTreeSet::new(),
        };
        self.secrets.insert(index, secrets);
        Ok(self.secrets.get(&index).cloned().unwrap_or_default())
    }

    /// Writes the rows.
    pub(super) fn finish(self, connection: &Connection) -> rusqlite::Result<()> {
        let changed = self.boxes.into_values().flatten().filter(|(_, has_changed)| *has_changed);
        for (stored, _) in changed {
            stored.write(connection)?;
        }
        let sql = "INSERT INTO account VALUES (?1, ?2, 0, ?3, 0, NULL)
            ON CONFLICT (owner, unit) DO UPDATE SET spent = spent + ?3";
        let mut statement = connection.prepare_cached(sql)?;
        for (run, observed) in &self.runs {
            for (unit, amount) in amounts(observed).into_iter().filter(|(_, amount)| *amount > 0) {
                statement.execute((run_owner(run), unit.name(), number(amount)))?;
            }
        }
        usage::add(connection, &self.usage)
    }
}

/// Returns what an event reports as used.
fn observed(event: &Event) -> Observed {
    let nothing = Observed::default();
    #[expect(clippy::wildcard_enum_match_arm, reason = "other events report no usage")]
    match event {
        Event::RunEnded(ended) => Observed { micros: ended.wall_micros, ..nothing },
        Event::RequestDecided(request) if request.verdict == "allow" => {
            Observed { calls: 1, ..nothing }
        }
        Event::RequestFinished(finished) => {
            let bytes = finished.sent_bytes.saturating_add(finished.received_bytes);
            Observed { bytes, ..nothing }
        }
        Event::ModelCalled(called) => {
            let parts = [called.input, called.cache_read, called.cache_write, called.output];
            let tokens = parts.into_iter().fold(0, u64::saturating_add);
            Observed { tokens, money: called.microusd, ..nothing }
        }
        _ => nothing,
    }
}

/// Returns the amounts of a single run. A started second of a box counts as a whole one.
fn amounts(observed: &Observed) -> [(Unit, u64); 5] {
    let Observed { calls, tokens, money, micros, bytes } = *observed;
    [
        (Unit::Calls, calls),
        (Unit::Tokens, tokens),
        (Unit::Money, money),
        (Unit::Seconds, micros.div_ceil(1_000_000)),
        (Unit::Bytes, bytes),
    ]
}
