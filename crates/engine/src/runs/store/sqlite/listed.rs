//! What the index of runs reads: a few columns of many runs, and all columns of some.

use belljar_model::caller::TenantId;
use belljar_model::{Purpose, RunId};
use rusqlite::{OptionalExtension as _, params};

use super::boxes::StoredBox;
use super::{RUN_COLUMNS, RunDb, StoredRun, invalid_value, number, position};
use crate::runs::budget::{Amounts, Unit};
use crate::runs::index::{ListedState, RunKind};
use crate::runs::store::apply;
use crate::runs::store::{RunRow, RunStatus, SingleStatus, StoreError};

/// The columns of a run that the index has.
#[derive(Debug)]
pub(in crate::runs) struct ListedRow {
    pub(in crate::runs) run: RunId,
    pub(in crate::runs) sequence: u64,
    pub(in crate::runs) kind: RunKind,
    pub(in crate::runs) state: ListedState,
    pub(in crate::runs) accepted: u64,
    pub(in crate::runs) name: String,
    pub(in crate::runs) maker: String,
    pub(in crate::runs) template: String,
}

/// The runs of plans and the single runs with an index above a number, in the order of their indices.
const LISTED: &str = "SELECT run, seq, 'plan', state, opened, name, principal, template FROM run
        WHERE tenant = ?1 AND seq > ?2
    UNION ALL
    SELECT run, seq, purpose, state, opened, name, principal, template FROM box
        WHERE tenant = ?1 AND seq > ?2
    ORDER BY seq";

impl RunDb {
    /// Returns the runs that users started, and whose first event has a higher index than `last`.
    pub(in crate::runs) fn listed_after(
        &self,
        tenant: &TenantId,
        last: Option<u64>,
    ) -> Result<Vec<ListedRow>, StoreError> {
        let mut statement = self.connection.prepare_cached(LISTED)?;
        let last = last.map_or(-1, number);
        let mut rows = statement.query(params![tenant.as_str(), last])?;
        let mut listed = Vec::new();
        while let Some(row) = rows.next()? {
            let purpose: String = row.get(2)?;
            let purpose: Purpose = purpose.parse().map_err(|_| invalid_value(2))?;
            let Some(kind) = RunKind::of(purpose) else { continue };
            let run: String = row.get(0)?;
            listed.push(ListedRow {
                run: run.parse().map_err(|_| invalid_value(0))?,
                sequence: position(row, 1)?,
                kind,
                state: state(kind, &row.get::<_, String>(3)?).ok_or(invalid_value(3))?,
                accepted: position(row, 4)?,
                name: row.get(5)?,
                maker: row.get(6)?,
                template: row.get(7)?,
            });
        }
        drop(rows);
        #[cfg(test)]
        super::count_steps(&statement);
        Ok(listed)
    }

    /// Returns the state of a run.
    pub(in crate::runs) fn state(
        &self,
        run: RunId,
        kind: RunKind,
    ) -> Result<Option<ListedState>, StoreError> {
        let sql = match kind {
            RunKind::Plan => "SELECT state FROM run WHERE run = ?1",
            RunKind::Run | RunKind::Call | RunKind::Box => "SELECT state FROM box WHERE run = ?1",
        };
        let mut statement = self.connection.prepare_cached(sql)?;
        let found: Option<String> =
            statement.query_row([run.to_string()], |row| row.get(0)).optional()?;
        #[cfg(test)]
        super::count_steps(&statement);
        let known = found.map(|name| state(kind, &name).ok_or(invalid_value(0)));
        Ok(known.transpose()?)
    }

    /// Returns the run of a plan.
    pub(in crate::runs) fn run(&self, run: RunId) -> Result<Option<RunRow>, StoreError> {
        let sql = format!("SELECT {RUN_COLUMNS} FROM run WHERE run = ?1");
        let mut statement = self.connection.prepare_cached(&sql)?;
        let found = statement.query_row([run.to_string()], StoredRun::read).optional();
        #[cfg(test)]
        super::count_steps(&statement);
        self.checked(found.map_err(Into::into))?.map(|stored| self.complete(stored)).transpose()
    }

    /// Returns a single run with its usage.
    pub(in crate::runs) fn single(
        &self,
        run: RunId,
    ) -> Result<Option<(StoredBox, Amounts)>, StoreError> {
        let found = StoredBox::find(&self.connection, &run.to_string());
        let Some(stored) = self.checked(found.map_err(Into::into))? else { return Ok(None) };
        let spent = self.spent(&apply::run_owner(&stored.run))?;
        Ok(Some((stored, spent)))
    }

    /// Returns the usage of the account of an owner.
    pub(super) fn spent(&self, owner: &str) -> Result<Amounts, StoreError> {
        let sql = "SELECT unit, spent + over FROM account WHERE owner = ?1";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut accounts = statement.query([owner])?;
        let mut spent = Amounts::default();
        while let Some(row) = accounts.next()? {
            let name: String = row.get(0)?;
            let unit = Unit::named(&name).ok_or(StoreError::Damaged(None))?;
            spent = spent.with(unit, position(row, 1)?);
        }
        drop(accounts);
        #[cfg(test)]
        super::count_steps(&statement);
        Ok(spent)
    }

    /// Removes the file of a database with a damaged row.
    fn checked<T>(&self, found: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(StoreError::Damaged(_)) = found {
            self.remove();
        }
        found
    }

    /// Returns the identity of the open file. It changes when the database is made again.
    pub(in crate::runs) const fn opened(&self) -> Option<super::Identity> {
        self.identity
    }
}

fn state(kind: RunKind, name: &str) -> Option<ListedState> {
    match kind {
        RunKind::Plan => RunStatus::named(name).map(Into::into),
        RunKind::Run | RunKind::Call | RunKind::Box => SingleStatus::named(name).map(Into::into),
    }
}
