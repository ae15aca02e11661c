//! The usage of all boxes of a tenant in hours.

use std::collections::BTreeMap;

use rusqlite::{Connection, params};

use super::{RunDb, number, position};
use crate::runs::store::StoreError;

/// What the rows of the usage count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::runs) enum UsageKind {
    /// The usage of all boxes; the name is empty.
    All,
    /// The requests to a model, by its name.
    Model,
    /// The requests that carry a secret, by its name.
    Secret,
}

impl UsageKind {
    const fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Model => "model",
            Self::Secret => "secret",
        }
    }
}

/// The key of a row of the usage.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::runs) struct UsageKey {
    pub(in crate::runs) kind: UsageKind,
    /// Hours since 1970.
    pub(in crate::runs) hour: u64,
    pub(in crate::runs) name: String,
    pub(in crate::runs) principal: String,
}

/// What brokers and supervisors observed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Observed {
    /// The allowed requests and connections.
    pub calls: u64,
    pub tokens: u64,
    /// Millionths of a US dollar.
    pub money: u64,
    /// The time of boxes in microseconds.
    pub micros: u64,
    /// The bytes that passed the brokers.
    pub bytes: u64,
}

impl Observed {
    /// Adds two amounts; a sum above the maximum is the maximum.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            calls: self.calls.saturating_add(other.calls),
            tokens: self.tokens.saturating_add(other.tokens),
            money: self.money.saturating_add(other.money),
            micros: self.micros.saturating_add(other.micros),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }
}

/// Adds amounts to the rows of the usage.
pub(in crate::runs::store) fn add(
    connection: &Connection,
    rows: &BTreeMap<UsageKey, Observed>,
) -> rusqlite::Result<()> {
    let sql = "INSERT INTO usage VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
        ON CONFLICT (kind, hour, name, principal) DO UPDATE SET calls = calls + ?5,
        tokens = tokens + ?6, money = money + ?7, micros = micros + ?8, bytes = bytes + ?9";
    let mut statement = connection.prepare_cached(sql)?;
    for (key, observed) in rows {
        let UsageKey { kind, hour, name, principal } = key;
        let Observed { calls, tokens, money, micros, bytes } = *observed;
        statement.execute(params![
            kind.name(),
            number(*hour),
            name,
            principal,
            number(calls),
            number(tokens),
            number(money),
            number(micros),
            number(bytes)
        ])?;
    }
    Ok(())
}

impl RunDb {
    /// Calls `show` for each row of the usage in a range of hours, in the order of hours and names, until it
    /// returns `false`.
    pub(in crate::runs) fn usage(
        &self,
        kind: UsageKind,
        hours: std::ops::Range<u64>,
        show: &mut dyn FnMut(UsageKey, Observed) -> bool,
    ) -> Result<(), StoreError> {
        let sql = "SELECT hour, name, principal, calls, tokens, money, micros, bytes FROM usage
            WHERE kind = ?1 AND hour >= ?2 AND hour < ?3 ORDER BY hour, name, principal";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows =
            statement.query(params![kind.name(), number(hours.start), number(hours.end)])?;
        while let Some(row) = rows.next()? {
            let key = UsageKey {
                kind,
                hour: position(row, 0)?,
                name: row.get(1)?,
                principal: row.get(2)?,
            };
            let observed = Observed {
                calls: position(row, 3)?,
                tokens: position(row, 4)?,
                money: position(row, 5)?,
                micros: position(row, 6)?,
                bytes: position(row, 7)?,
            };
            if !show(key, observed) {
                break;
            }
        }
        Ok(())
    }
}
