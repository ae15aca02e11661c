//! Turns events of the ledger into rows.
//!
//! Only events decide, never the plan of a run: a rebuild reads no files of runs. So the state of an output
//! that is being checked is `done` until its checks have ended.

mod boxes;

use std::collections::HashMap;

use belljar_ledger::{Event, Query, Reader, Row, RunCreated};
use belljar_model::Purpose;
use rusqlite::{Connection, OptionalExtension as _, Transaction};

use self::boxes::BoxRows;
use super::accounts::TenantRows;
use super::sqlite::{RUN_COLUMNS, StoredRun, invalid_value, number, position};
use super::{RunStatus, StoreError};
use crate::record::reading::read;
use crate::runs::budget::period::{Booking, Held, book, booked_instance};
use crate::runs::budget::{Limits, Unit};
use crate::runs::facts;
use crate::runs::machine::{
    Ended, Fact, FactKind, Moment, Output, Settled, Status, TaskRef, Verdict,
};

/// The number of rows of the ledger's index in memory at once.
const STRETCH: usize = 1024;

/// The part of the ledger that the rows contain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Applied {
    /// The index of the first event that is not applied.
    pub(super) next: u64,
    /// The hash of the last event that is applied.
    tail: Vec<u8>,
}

impl Applied {
    pub(super) fn read(connection: &Connection) -> rusqlite::Result<Self> {
        let sql = "SELECT applied, tail FROM meta WHERE id = 0";
        connection.query_row(sql, [], |row| Ok(Self { next: position(row, 0)?, tail: row.get(1)? }))
    }

    pub(super) fn write(&self, transaction: &Transaction<'_>) -> rusqlite::Result<()> {
        let sql = "UPDATE meta SET applied = ?1, tail = ?2 WHERE id = 0";
        match transaction.execute(sql, (number(self.next), &self.tail))? {
            1 => Ok(()),
            _ => Err(rusqlite::Error::QueryReturnedNoRows),
        }
    }

    /// Returns whether the ledger still has the events that are applied.
    pub(super) fn fits(&self, reader: &Reader) -> Result<bool, StoreError> {
        let Some(last) = self.next.checked_sub(1) else { return Ok(true) };
        if self.next > reader.size() {
            return Ok(false);
        }
        let last = reader.event(last).map_err(|error| StoreError::Ledger(error.into()))?;
        Ok(last.is_some_and(|row| row.leaf.as_bytes().as_slice() == self.tail))
    }
}

/// Applies the events up to the index `until`.
pub(super) fn apply(
    transaction: &Transaction<'_>,
    reader: &Reader,
    applied: &mut Applied,
    until: u64,
) -> Result<(), StoreError> {
    let (tenant, boxes) = (TenantRows::default(), BoxRows::default());
    let mut rows = Rows { transaction, runs: HashMap::new(), tenant, boxes };
    while applied.next < until {
        let query = Query {
            after: applied.next.checked_sub(1),
            before: Some(until),
            limit: Some(STRETCH),
            ..Query::default()
        };
        let events = reader.events(&query).map_err(|error| StoreError::Ledger(error.into()))?;
        if events.is_empty() {
            return Err(StoreError::Gap { index: applied.next });
        }
        for event in &events {
            if event.index != applied.next {
                return Err(StoreError::Gap { index: applied.next });
            }
            rows.add(reader, event)?;
            applied.next = event.index + 1;
            applied.tail = event.leaf.as_bytes().to_vec();
        }
    }
    Ok(rows.finish()?)
}

/// The owner of the account of a run.
pub(super) fn run_owner(run: &str) -> String {
    format!("run {run}")
}

/// The rows that one transaction changes.
struct Rows<'t> {
    transaction: &'t Transaction<'t>,
    /// The runs with events in this transaction; `None` for runs that are not of plans.
    runs: HashMap<String, Option<StoredRun>>,
    tenant: TenantRows,
    boxes: BoxRows,
}

/// The columns of a task that a fact sets. Those that are `None` stay as they are, except `due`.
#[derive(Default)]
struct TaskChange<'a> {
    state: Option<Status>,
    attempt: Option<u32>,
    tier: Option<u32>,
    box_run: Option<String>,
    due: Option<u64>,
    output: Option<&'a Output>,
    reason: Option<String>,
}

impl Rows<'_> {
    fn add(&mut self, reader: &Reader, row: &Row) -> Result<(), StoreError> {
        let Some(run) = row.run else { return Ok(()) };
        let run = run.to_string();
        if boxes::is_relevant(&row.kind) {
            return self.boxes.add(self.transaction, reader, run, row);
        }
        if !is_relevant(&row.kind) {
            return Ok(());
        }
        let ledger = |error| StoreError::Ledger(anyhow::anyhow!("{error:#}"));
        let is_first = row.kind == "run.created";
        if !is_first && self.run(&run)?.is_none() {
            return Ok(());
        }
        let entry = read(reader, row).map_err(ledger)?;
        let Ok(event) = Event::read(&entry.kind, &entry.fields) else { return Ok(()) };
        if let Event::RunCreated(created) = &event {
            self.created(run, created, row);
            return Ok(());
        }
        if let Event::ScheduleFired(fired) = &event {
            let sql = "INSERT INTO slot VALUES (?1, ?2, ?3)
                ON CONFLICT (schedule, instant) DO NOTHING";
            let values = (&fired.schedule, number(fired.slot), &run);
            self.transaction.prepare_cached(sql)?.execute(values)?;
            return Ok(());
        }
        match facts::fact(&event) {
            Ok(Some(fact)) => Ok(self.fact(&run, &fact)?),
            Ok(None) => Ok(()),
            Err(error) => {
                // The event is of a newer version. The run is still listed.
                tracing::warn!(%run, %error, "an event of a run is not shown");
                Ok(())
            }
        }
    }

    fn created(&mut self, run: String, created: &RunCreated, row: &Row) {
        let purpose = created.purpose.as_deref().and_then(|purpose| purpose.parse().ok());
        if purpose != Some(Purpose::Plan) {
            self.boxes.created(&run, created, row);
        }
        let stored = (purpose == Some(Purpose::Plan)).then(|| StoredRun {
            run: run.clone(),
            tenant: created.tenant.clone().unwrap_or_default(),
            principal: created.principal.clone().unwrap_or_default(),
            name: created.name.clone().unwrap_or_default(),
            state: RunStatus::Running.name().to_owned(),
            plan: None,
            seq: row.index,
            opened: row.time / 1_000_000, // milliseconds
            ended: None,
            template: created.template.clone(),
            directory: created.workspace.clone(),
            tasks: None,
            done: None,
        });
        self.runs.insert(run, stored);
    }

    /// Returns the row of a run; `None` if it is not the run of a plan.
    fn run(&mut self, run: &str) -> rusqlite::Result<Option<&mut StoredRun>> {
        if !self.runs.contains_key(run) {
            let sql = format!("SELECT {RUN_COLUMNS} FROM run WHERE run = ?1");
            let mut statement = self.transaction.prepare_cached(&sql)?;
            let stored = statement.query_row([run], StoredRun::read).optional()?;
            self.runs.insert(run.to_owned(), stored);
        }
        Ok(self.runs.get_mut(run).and_then(Option::as_mut))
    }

    fn fact(&mut self, run: &str, fact: &Fact) -> rusqlite::Result<()> {
        let held = self.book(run, fact)?;
        self.change(run, fact)?;
        match held {
            Some((of, held)) => self.hold(run, &of, &held),
            None => Ok(()),
        }
    }

    fn change(&mut self, run: &str, fact: &Fact) -> rusqlite::Result<()> {
        let at = fact.at.0;
        match &fact.kind {
            FactKind::PlanAccepted { plan, .. } => {
                if let Some(stored) = self.run(run)? {
                    (stored.plan, stored.opened) = (Some(plan.as_bytes().to_vec()), at);
                }
                Ok(())
            }
            FactKind::PlanEnded { outcome } => {
                if let Some(stored) = self.run(run)? {
                    stored.state = RunStatus::Ended(*outcome).name().to_owned();
                    stored.ended = Some(at);
                }
                Ok(())
            }
            FactKind::DriverOpened { .. }
            | FactKind::PlanCancelling { .. }
            | FactKind::GrantRemoved { .. } => Ok(()),
            FactKind::TaskStarted { of, box_run, tier, .. } => {
                let change = TaskChange {
                    state: Some(Status::Running),
                    attempt: Some(of.attempt),
                    tier: Some(*tier),
                    box_run: box_run.map(|run| run.to_string()),
                    ..TaskChange::default()
                };
                self.task(run, &of.instance(), &change)
            }
            FactKind::BudgetLeased { of, .. } => {
                self.task(run, &of.instance(), &TaskChange::default())
            }
            FactKind::TaskEnded { of, end, .. } => {
                let (state, output, reason) = match end {
                    Ended::Done(output) => (Status::Done, Some(output), None),
                    Ended::Failed { reason, .. } => (Status::Failed, None, Some(reason.name())),
                    Ended::Lost(evidence) => (Status::Ready, None, Some(evidence.name())),
                };
                self.end(run, &of.instance(), state, output, reason)
            }
            FactKind::TaskJudged { of, verdict, .. } => {
                let (state, reason) = match verdict {
                    Verdict::Passed => (Status::Done, None),
                    Verdict::Rejected { .. } => (Status::Failed, Some("rejected")),
                };
                self.end(run, &of.instance(), state, None, reason)
            }
            FactKind::TaskRetrying { of, tier, due, .. } => {
                let change = TaskChange {
                    state: Some(Status::Backoff),
                    tier: Some(*tier),
                    due: Some(due.0),
                    ..TaskChange::default()
                };
                self.task(run, &of.instance(), &change)
            }
            FactKind::TaskLost { of, evidence } => {
                let reason = Some(evidence.name());
                self.end(run, &of.instance(), Status::Attention, None, reason)
            }
            FactKind::TaskStopped { of, reason, .. } => {
                self.end(run, of, reason.status(), None, Some(reason.name()))
            }
            FactKind::ApprovalAsked { of, digest, deadline } => {
                let sql = "INSERT INTO gate VALUES (?1, ?2, ?3, ?4, NULL)
                    ON CONFLICT (digest) DO NOTHING";
                let task = of.instance().to_string();
                let values = (digest.as_bytes(), run, task, number(deadline.0));
                self.transaction.prepare_cached(sql)?.execute(values)?;
                let change = TaskChange {
                    state: Some(Status::Gated),
                    attempt: Some(of.attempt),
                    due: Some(deadline.0),
                    ..TaskChange::default()
                };
                self.task(run, &of.instance(), &change)
            }
            FactKind::ApprovalGiven { of, digest, by, output, .. } => {
                self.answered(digest, &by.to_string())?;
                self.end(run, &of.instance(), Status::Done, Some(output), None)
            }
            FactKind::ApprovalRefused { of, digest, why, by, .. } => {
                let by = by.as_ref().map_or_else(|| "deadline".to_owned(), ToString::to_string);
                self.answered(digest, &by)?;
                self.end(run, &of.instance(), Status::Failed, None, Some(why.name()))
            }
            FactKind::AttentionSettled { of, how, .. } => {
                let (state, output) = match how {
                    Settled::Rerun => (Status::Ready, None),
                    Settled::Done(output) => (Status::Done, Some(output)),
                    Settled::Failed => (Status::Failed, None),
                };
                self.end(run, &of.instance(), state, output, None)
            }
        }
    }

    fn answered(&self, digest: &belljar_ledger::Digest, by: &str) -> rusqlite::Result<()> {
        let sql = "UPDATE gate SET answered_by = ?2 WHERE digest = ?1";
        self.transaction.prepare_cached(sql)?.execute((digest.as_bytes(), by)).map(drop)
    }

    fn end(
        &self,
        run: &str,
        of: &TaskRef,
        state: Status,
        output: Option<&Output>,
        reason: Option<&str>,
    ) -> rusqlite::Result<()> {
        let reason = reason.map(str::to_owned);
        let change = TaskChange { state: Some(state), output, reason, ..TaskChange::default() };
        self.task(run, of, &change)
    }

    fn task(&self, run: &str, of: &TaskRef, change: &TaskChange<'_>) -> rusqlite::Result<()> {
        let TaskChange { state, attempt, tier, box_run, due, output, reason } = change;
        let labels = output.map(|output| {
            let labels: Vec<String> = output.labels.iter().map(ToString::to_string).collect();
            labels.join(" ")
        });
        let sql = "INSERT INTO task VALUES (?1, ?2, ?3, coalesce(?4, 'waiting'), coalesce(?5, 0),
                coalesce(?6, 0), ?7, ?8, NULL, ?9, ?10, ?11)
            ON CONFLICT (run, task, item) DO UPDATE SET state = coalesce(?4, state),
                attempt = coalesce(?5, attempt), tier = coalesce(?6, tier), box = coalesce(?7, box),
                due = ?8, labels = coalesce(?9, labels), output = coalesce(?10, output),
                reason = ?11";
        self.transaction.prepare_cached(sql)?.execute((
            run,
            of.task.as_str(),
            of.item.map_or(-1, i64::from),
            state.map(Status::name),
            attempt,
            tier,
            box_run,
            due.map(number),
            labels,
            output.map(|output| output.digest.as_bytes()),
            reason,
        ))?;
        Ok(())
    }

    /// Changes the accounts. Returns what the attempt holds after the fact.
    fn book(&mut self, run: &str, fact: &Fact) -> rusqlite::Result<Option<(TaskRef, Held)>> {
        let Some(of) = booked_instance(&fact.kind) else { return Ok(None) };
        // A new attempt starts after the earlier one was settled.
        let held = match matches!(fact.kind, FactKind::TaskStarted { .. }) {
            true => Held::Nothing,
            false => self.held(run, &of)?,
        };
        let booking = book(&fact.kind, &held);
        self.change_accounts(run, of.task.as_str(), &booking, fact.at)?;
        Ok((booking.held != held).then_some((of, booking.held)))
    }

    /// Returns what the last attempt of a task holds.
    fn held(&self, run: &str, of: &TaskRef) -> rusqlite::Result<Held> {
        let sql = "SELECT lease FROM task WHERE run = ?1 AND task = ?2 AND item = ?3";
        let key = (run, of.task.as_str(), of.item.map_or(-1, i64::from));
        let mut statement = self.transaction.prepare_cached(sql)?;
        let text: Option<Option<String>> = statement.query_row(key, |row| row.get(0)).optional()?;
        let Some(text) = text.flatten() else { return Ok(Held::Nothing) };
        let (limits, held): (_, fn(Limits) -> Held) = match text.strip_prefix(REST) {
            Some(limits) => (limits, Held::Rest),
            None => (text.as_str(), Held::Lease),
        };
        parse_lease(limits).map(held).ok_or(invalid_value(0))
    }

    fn hold(&self, run: &str, of: &TaskRef, held: &Held) -> rusqlite::Result<()> {
        let text = match held {
            Held::Nothing => None,
            Held::Lease(lease) => Some(lease_text(lease)),
            Held::Rest(rest) => Some(format!("{REST}{}", lease_text(rest))),
        };
        let sql = "UPDATE task SET lease = ?4 WHERE run = ?1 AND task = ?2 AND item = ?3";
        let key = (run, of.task.as_str(), of.item.map_or(-1, i64::from), text);
        self.transaction.prepare_cached(sql)?.execute(key).map(drop)
    }

    fn change_accounts(
        &mut self,
        run: &str,
        task: &str,
        booking: &Booking,
        at: Moment,
    ) -> rusqlite::Result<()> {
        let Booking { reserved, returned, used, held: _ } = booking;
        if reserved.is_zero() && returned.is_zero() && used.all().is_zero() {
            return Ok(());
        }
        let principal = self.run(run)?.map(|stored| stored.principal.clone()).unwrap_or_default();
        self.tenant.add(self.transaction, &principal, booking, at)?;
        let owners = [run_owner(run), format!("task {run}/{task}")];
        let sql = "INSERT INTO account VALUES (?1, ?2, max(0, ?3), ?4, ?5, NULL)
            ON CONFLICT (owner, unit) DO UPDATE SET
            reserved = max(0, reserved + ?3), spent = spent + ?4, over = over + ?5";
        let mut statement = self.transaction.prepare_cached(sql)?;
        for unit in Unit::ALL {
            let change = number(reserved.get(unit)).saturating_sub(number(returned.get(unit)));
            let (spent, over) = (number(used.spent.get(unit)), number(used.over.get(unit)));
            if (change, spent, over) == (0, 0, 0) {
                continue;
            }
            for owner in &owners {
                statement.execute((owner, unit.name(), change, spent, over))?;
            }
        }
        Ok(())
    }

    /// Writes the rows of the runs.
    fn finish(self) -> rusqlite::Result<()> {
        let sql = "INSERT INTO run VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
            ON CONFLICT (run) DO UPDATE SET tenant = ?2, principal = ?3, name = ?4, state = ?5,
            plan = ?6, seq = ?7, opened = ?8, ended = ?9, template = ?10, directory = ?11, tasks = ?12,
            done = ?13, sum = ?14";
        let mut statement = self.transaction.prepare_cached(sql)?;
        for mut stored in self.runs.into_values().flatten() {
            if stored.ended.is_none() {
                stored.state = open_status(self.transaction, &stored.run)?.name().to_owned();
            } else {
                let sql = "SELECT count(*), count(*) FILTER (WHERE state = 'done') FROM task
                    WHERE run = ?1";
                let mut count = self.transaction.prepare_cached(sql)?;
                (stored.tasks, stored.done) = count.query_row([&stored.run], |row| {
                    Ok((Some(position(row, 0)?), Some(position(row, 1)?)))
                })?;
            }
            statement.execute((
                &stored.run,
                &stored.tenant,
                &stored.principal,
                &stored.name,
                &stored.state,
                &stored.plan,
                number(stored.seq),
                number(stored.opened),
                stored.ended.map(number),
                &stored.template,
                &stored.directory,
                stored.tasks.map(number),
                stored.done.map(number),
                stored.sum(),
            ))?;
        }
        self.boxes.finish(self.transaction)?;
        self.tenant.finish(self.transaction)
    }
}

/// Returns the state of an open run from the rows of its tasks and gates.
fn open_status(transaction: &Transaction<'_>, run: &str) -> rusqlite::Result<RunStatus> {
    let exists =
        |sql: &str| -> rusqlite::Result<bool> { transaction.prepare_cached(sql)?.exists([run]) };
    let open = "state NOT IN ('done', 'failed', 'skipped', 'stopped', 'cancelled')";
    let attention =
        format!("SELECT 1 FROM task WHERE run = ?1 AND {open} AND state = 'attention' LIMIT 1");
    let active =
        format!("SELECT 1 FROM task WHERE run = ?1 AND {open} AND state != 'gated' LIMIT 1");
    if exists(&attention)? {
        return Ok(RunStatus::Attention);
    }
    let has_gate = exists("SELECT 1 FROM gate WHERE run = ?1 AND answered_by IS NULL LIMIT 1")?;
    Ok(if has_gate && !exists(&active)? { RunStatus::Waiting } else { RunStatus::Running })
}

/// Returns whether events of a kind can change rows.
fn is_relevant(kind: &str) -> bool {
    let family = kind.split_once('.').map_or(kind, |(family, _)| family);
    kind == "run.created"
        || kind == "schedule.fired"
        || matches!(family, "plan" | "task" | "approval" | "attention" | "budget")
}

/// The start of the column `lease` if it has the rest of a lease.
const REST: &str = "rest ";

fn lease_text(lease: &Limits) -> String {
    let text = |unit: Unit| Some(format!("{}={}", unit.name(), lease.get(unit)?));
    Unit::ALL.into_iter().filter_map(text).collect::<Vec<_>>().join(" ")
}

fn parse_lease(text: &str) -> Option<Limits> {
    text.split_whitespace().try_fold(Limits::default(), |limits, part| {
        let (name, amount) = part.split_once('=')?;
        let unit = Unit::named(name)?;
        Some(limits.with(unit, Some(amount.parse().ok()?)))
    })
}
