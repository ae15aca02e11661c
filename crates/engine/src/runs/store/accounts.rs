//! The rows of the accounts of a tenant and of its principals.
//!
//! A tenant has an account for its whole history, which also has the reservations, and one for each day and
//! month with usage. So the period of its budget can change without a rebuild. A principal has an account for
//! each day on which its runs used something. Limits are not stored.
//!
//! The rest of a budget depends on these rows, and SQLite has no checksums, so each row has one.

use std::collections::BTreeMap;

use belljar_ledger::Digest;
use belljar_model::tenant::Period;
use rusqlite::{Connection, Transaction};

use super::sqlite::{invalid_value, number, position};
use crate::runs::budget::period::{Booking, Day, Used};
use crate::runs::budget::{Amounts, Unit};
use crate::runs::machine::Moment;

/// The owner of the account for the whole history.
pub(super) const TENANT: &str = "tenant";

/// Returns the owner of the account for the period of a day.
pub(super) fn tenant_owner(day: Day, period: Period) -> String {
    match day.name(period) {
        Some(name) => format!("{TENANT} {name}"),
        None => TENANT.to_owned(),
    }
}

/// Returns the owner of the account of a principal for a day.
pub(super) fn principal_owner(principal: &str, day: Day) -> String {
    // A principal contains no space.
    format!("by {principal} {}", day.name(Period::Day).unwrap_or_default())
}

/// The amounts of an account.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct AccountRow {
    pub(super) reserved: Amounts,
    pub(super) used: Used,
}

/// Reads an account of the tenant or of a principal. A row with a wrong checksum is an error.
pub(super) fn read(connection: &Connection, owner: &str) -> rusqlite::Result<AccountRow> {
    let sql = "SELECT unit, reserved, spent, over, sum FROM account WHERE owner = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([owner])?;
    let mut account = AccountRow::default();
    while let Some(row) = rows.next()? {
        let name: String = row.get(0)?;
        let unit = Unit::named(&name).ok_or(invalid_value(0))?;
        let amounts = [position(row, 1)?, position(row, 2)?, position(row, 3)?];
        if row.get::<_, Option<i64>>(4)? != Some(sum(owner, unit, amounts)) {
            return Err(invalid_value(4));
        }
        let [reserved, spent, over] = amounts;
        account.reserved = account.reserved.with(unit, reserved);
        account.used.spent = account.used.spent.with(unit, spent);
        account.used.over = account.used.over.with(unit, over);
    }
    Ok(account)
}

fn write(connection: &Connection, owner: &str, account: &AccountRow) -> rusqlite::Result<()> {
    let sql = "INSERT INTO account VALUES (?1, ?2, ?3, ?4, ?5, ?6)
        ON CONFLICT (owner, unit) DO UPDATE SET reserved = ?3, spent = ?4, over = ?5, sum = ?6";
    let mut statement = connection.prepare_cached(sql)?;
    for unit in Unit::ALL {
        let AccountRow { reserved, used: Used { spent, over } } = account;
        // The largest number that a column can have.
        let amounts = [reserved, spent, over].map(|amounts| number(amounts.get(unit)));
        let [reserved, spent, over] = amounts;
        let sum = sum(owner, unit, amounts.map(i64::unsigned_abs));
        statement.execute((owner, unit.name(), reserved, spent, over, sum))?;
    }
    Ok(())
}

fn sum(owner: &str, unit: Unit, amounts: [u64; 3]) -> i64 {
    let numbers = amounts.map(u64::to_be_bytes);
    let mut parts: Vec<&[u8]> = vec![owner.as_bytes(), b"\0", unit.name().as_bytes(), b"\0"];
    parts.extend(numbers.iter().map(<[u8; 8]>::as_slice));
    let [a, b, c, d, e, f, g, h, ..] = *Digest::of(&parts).as_bytes();
    i64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// Returns the newest day with usage.
pub(super) fn newest_day(connection: &Connection) -> rusqlite::Result<Option<Day>> {
    // The name of a month is before those of its days, and each month has the account of a day.
    let sql = "SELECT max(owner) FROM account WHERE owner > ?1 AND owner < ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let bounds = (format!("{TENANT} "), format!("{TENANT}!"));
    let owner: Option<String> = statement.query_row(bounds, |row| row.get(0))?;
    let day = |owner: String| Day::parse(owner.strip_prefix(TENANT)?.trim_start());
    owner.map(|owner| day(owner).ok_or(invalid_value(0))).transpose()
}

/// The accounts of the tenant and of its principals that one transaction changes.
#[derive(Debug, Default)]
pub(super) struct TenantRows {
    accounts: BTreeMap<String, AccountRow>,
    /// The newest day with usage, once it was read.
    newest: Option<Option<Day>>,
}

impl TenantRows {
    /// Adds what a fact of a principal's run books.
    pub(super) fn add(
        &mut self,
        transaction: &Transaction<'_>,
        principal: &str,
        booking: &Booking,
        at: Moment,
    ) -> rusqlite::Result<()> {
        let account = self.account(transaction, TENANT)?;
        account.reserved = account.reserved.plus(booking.reserved).minus(booking.returned);
        if booking.used.all().is_zero() {
            return Ok(());
        }
        let newest = match self.newest {
            Some(newest) => newest,
            None => newest_day(transaction)?,
        };
        let day = newest.into_iter().fold(Day::of(at), Day::max);
        self.newest = Some(Some(day));
        let periods = [Period::Total, Period::Month, Period::Day];
        let owners = periods.map(|period| tenant_owner(day, period));
        for owner in owners.into_iter().chain([principal_owner(principal, day)]) {
            let used = &mut self.account(transaction, &owner)?.used;
            used.spent = used.spent.plus(booking.used.spent);
            used.over = used.over.plus(booking.used.over);
        }
        Ok(())
    }

    fn account(
        &mut self,
        transaction: &Transaction<'_>,
        owner: &str,
    ) -> rusqlite::Result<&mut AccountRow> {
        if !self.accounts.contains_key(owner) {
            self.accounts.insert(owner.to_owned(), read(transaction, owner)?);
        }
        Ok(self.accounts.entry(owner.to_owned()).or_default())
    }

    /// Writes the accounts.
    pub(super) fn finish(self, transaction: &Transaction<'_>) -> rusqlite::Result<()> {
        self.accounts.iter().try_for_each(|(owner, account)| write(transaction, owner, account))
    }
}
