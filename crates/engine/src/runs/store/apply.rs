//! Turns events of the ledger into rows.
//!
//! Only events decide, never the plan of a run: a rebuild reads no files of runs. So the state of an output
//! that is being checked is `done` until its checks have ended.

use std::collections::HashMap;

use belljar_ledger::{Event, Query, Reader, Row, RunCreated};
use belljar_model::Purpose;
use rusqlite::{Connection, OptionalExtension as _, Transaction};

use super::sqlite::{RUN_COLUMNS, StoredRun, invalid_value, number, position};
use super::{RunStatus, StoreError};
use crate::record::reading::read;
use crate::runs::budget::{Amounts, Limits, Settlement, Unit, settle};
use crate::runs::facts;
use crate::runs::machine::{
    Ended, Fact, FactKind, Output, RefusedBecause, Settled, Status, TaskRef, Try, Verdict,
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
    let mut rows = Rows { transaction, runs: HashMap::new() };
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
}

/// The columns of a task that a fact sets. Those that are `None` stay as they are, except `due`.
#[derive(Default)]
struct TaskChange<'a> {
    state: Option<Status>,
    attempt: Option<u32>,
    tier: Option<u32>,
    box_run: Option<String>,
    due: Option<u64>,
    lease: Option<String>,
    output: Option<&'a Output>,
    reason: Option<String>,
}

impl Rows<'_> {
    fn add(&mut self, reader: &Reader, row: &Row) -> Result<(), StoreError> {
        let Some(run) = row.run.filter(|_| is_relevant(&row.kind)) else { return Ok(()) };
        let run = run.to_string();
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
            FactKind::DriverOpened { .. } | FactKind::PlanCancelling { .. } => Ok(()),
            FactKind::TaskStarted { of, box_run, tier, lease, .. } => {
                self.reserve(run, of, lease)?;
                let change = TaskChange {
                    state: Some(Status::Running),
                    attempt: Some(of.attempt),
                    tier: Some(*tier),
                    box_run: box_run.map(|run| run.to_string()),
                    lease: Some(lease_text(lease)),
                    ..TaskChange::default()
                };
                self.task(run, &of.instance(), &change)
            }
            FactKind::BudgetLeased { of, more } => {
                self.reserve(run, of, more)?;
                let lease = self.lease(run, &of.instance())?.unwrap_or_default().plus(more);
                let change =
                    TaskChange { lease: Some(lease_text(&lease)), ..TaskChange::default() };
                self.task(run, &of.instance(), &change)
            }
            FactKind::TaskEnded { of, end, usage } => {
                self.settle(run, &of.instance(), usage.as_ref())?;
                let (state, output, reason) = match end {
                    Ended::Done(output) => (Status::Done, Some(output), None),
                    Ended::Failed { reason, .. } => (Status::Failed, None, Some(reason.name())),
                    Ended::Lost(evidence) => (Status::Ready, None, Some(evidence.name())),
                };
                self.end(run, &of.instance(), state, output, reason)
            }
            FactKind::TaskJudged { of, verdict, usage, .. } => {
                self.spend(run, &of.instance(), usage.as_ref())?;
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
                self.settle(run, &of.instance(), None)?;
                let reason = Some(evidence.name());
                self.end(run, &of.instance(), Status::Attention, None, reason)
            }
            FactKind::TaskStopped { of, reason, usage } => {
                self.settle(run, of, usage.as_ref())?;
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
                let reason = match why {
                    RefusedBecause::Rejected => "rejected",
                    RefusedBecause::Expired => "expired",
                };
                self.end(run, &of.instance(), Status::Failed, None, Some(reason))
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
        let TaskChange { state, attempt, tier, box_run, due, lease, output, reason } = change;
        let labels = output.map(|output| {
            let labels: Vec<String> = output.labels.iter().map(ToString::to_string).collect();
            labels.join(" ")
        });
        let sql = "INSERT INTO task VALUES (?1, ?2, ?3, coalesce(?4, 'waiting'), coalesce(?5, 0),
                coalesce(?6, 0), ?7, ?8, ?9, ?10, ?11, ?12)
            ON CONFLICT (run, task, item) DO UPDATE SET state = coalesce(?4, state),
                attempt = coalesce(?5, attempt), tier = coalesce(?6, tier), box = coalesce(?7, box),
                due = ?8, lease = coalesce(?9, lease), labels = coalesce(?10, labels),
                output = coalesce(?11, output), reason = ?12";
        self.transaction.prepare_cached(sql)?.execute((
            run,
            of.task.as_str(),
            of.item.map_or(-1, i64::from),
            state.map(Status::name),
            attempt,
            tier,
            box_run,
            due.map(number),
            lease,
            labels,
            output.map(|output| output.digest.as_bytes()),
            reason,
        ))?;
        Ok(())
    }

    /// Returns the lease of the last attempt of a task; `None` if it has no row.
    fn lease(&self, run: &str, of: &TaskRef) -> rusqlite::Result<Option<Limits>> {
        let sql = "SELECT lease FROM task WHERE run = ?1 AND task = ?2 AND item = ?3";
        let key = (run, of.task.as_str(), of.item.map_or(-1, i64::from));
        let mut statement = self.transaction.prepare_cached(sql)?;
        let text: Option<Option<String>> = statement.query_row(key, |row| row.get(0)).optional()?;
        text.flatten().map(|text| parse_lease(&text).ok_or(invalid_value(0))).transpose()
    }

    fn reserve(&self, run: &str, of: &Try, lease: &Limits) -> rusqlite::Result<()> {
        self.change_accounts(run, of.task.as_str(), lease.amounts(), Settlement::default())
    }

    /// Settles the lease of the last attempt. Without a usage, all of it is spent.
    fn settle(&self, run: &str, of: &TaskRef, usage: Option<&Amounts>) -> rusqlite::Result<()> {
        let Some(lease) = self.lease(run, of)? else { return self.spend(run, of, usage) };
        let sql = "UPDATE task SET lease = NULL WHERE run = ?1 AND task = ?2 AND item = ?3";
        let key = (run, of.task.as_str(), of.item.map_or(-1, i64::from));
        self.transaction.prepare_cached(sql)?.execute(key)?;
        let settlement = settle(&lease, usage);
        self.change_accounts(run, of.task.as_str(), Amounts::default(), settlement)
    }

    /// Counts a usage without a lease.
    fn spend(&self, run: &str, of: &TaskRef, usage: Option<&Amounts>) -> rusqlite::Result<()> {
        let over = usage.copied().unwrap_or_default().with(Unit::Boxes, 0);
        let settlement = Settlement { over, ..Settlement::default() };
        self.change_accounts(run, of.task.as_str(), Amounts::default(), settlement)
    }

    fn change_accounts(
        &self,
        run: &str,
        task: &str,
        reserved: Amounts,
        Settlement { spent, released, over }: Settlement,
    ) -> rusqlite::Result<()> {
        let returned = spent.plus(released);
        let used = spent.plus(over);
        if reserved.is_zero() && returned.is_zero() && used.is_zero() {
            return Ok(());
        }
        let owners = ["tenant".to_owned(), run_owner(run), format!("task {run}/{task}")];
        let sql = "INSERT INTO account VALUES (?1, ?2, max(0, ?3), ?4)
            ON CONFLICT (owner, unit) DO UPDATE SET
            reserved = max(0, reserved + ?3), spent = spent + ?4";
        let mut statement = self.transaction.prepare_cached(sql)?;
        for unit in Unit::ALL {
            let change = number(reserved.get(unit)).saturating_sub(number(returned.get(unit)));
            let used = number(used.get(unit));
            if change == 0 && used == 0 {
                continue;
            }
            for owner in &owners {
                statement.execute((owner, unit.name(), change, used))?;
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
        Ok(())
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

fn lease_text(lease: &Limits) -> String {
    let text = |unit: Unit| Some(format!("{}={}", unit.name(), lease.get(unit)?));
    Unit::ALL.into_iter().filter_map(text).collect::<Vec<_>>().join(" ")
}

fn parse_lease(text: &str) -> Option<Limits> {
    text.split_whitespace().try_fold(Limits::default(), |limits, part| {
        let (name, amount) = part.split_once('=')?;
        let unit = Unit::ALL.into_iter().find(|unit| unit.name() == name)?;
        Some(limits.with(unit, Some(amount.parse().ok()?)))
    })
}
