//! The rows of runs that are not of plans, such as single commands.

use belljar_model::Purpose;
use rusqlite::{Connection, OptionalExtension as _, Row};

use super::{checksum, invalid_value, number, position};
use crate::runs::store::SingleStatus;

pub(in crate::runs::store) const BOX_COLUMNS: &str = "run, tenant, principal, name, purpose, state, \
     reason, seq, opened, ended, template, directory, sum";

/// A row of the table `box`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::runs) struct StoredBox {
    pub(in crate::runs) run: String,
    pub(in crate::runs) tenant: String,
    pub(in crate::runs) principal: String,
    pub(in crate::runs) name: String,
    pub(in crate::runs) purpose: Purpose,
    pub(in crate::runs) status: SingleStatus,
    /// Why the program ended, such as `exited` or `timeout`.
    pub(in crate::runs) reason: Option<String>,
    pub(in crate::runs) seq: u64,
    pub(in crate::runs) opened: u64,
    pub(in crate::runs) ended: Option<u64>,
    pub(in crate::runs) template: String,
    pub(in crate::runs) directory: Option<Vec<u8>>,
}

impl StoredBox {
    pub(in crate::runs) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let text = |column: usize| row.get::<_, String>(column);
        let ended: Option<i64> = row.get(9)?;
        let stored = Self {
            run: text(0)?,
            tenant: text(1)?,
            principal: text(2)?,
            name: text(3)?,
            purpose: text(4)?.parse().map_err(|_| invalid_value(4))?,
            status: SingleStatus::named(&text(5)?).ok_or(invalid_value(5))?,
            reason: row.get(6)?,
            seq: position(row, 7)?,
            opened: position(row, 8)?,
            ended: ended.map(|_| position(row, 9)).transpose()?,
            template: text(10)?,
            directory: row.get(11)?,
        };
        match row.get::<_, i64>(12)? == stored.sum() {
            true => Ok(stored),
            false => Err(invalid_value(12)),
        }
    }

    /// Returns the row of a run.
    pub(in crate::runs::store) fn find(
        connection: &Connection,
        run: &str,
    ) -> rusqlite::Result<Option<Self>> {
        let sql = format!("SELECT {BOX_COLUMNS} FROM box WHERE run = ?1");
        connection.prepare_cached(&sql)?.query_row([run], Self::read).optional()
    }

    pub(in crate::runs::store) fn write(&self, connection: &Connection) -> rusqlite::Result<()> {
        let sql = "INSERT INTO box VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
            ON CONFLICT (run) DO UPDATE SET tenant = ?2, principal = ?3, name = ?4, purpose = ?5,
            state = ?6, reason = ?7, seq = ?8, opened = ?9, ended = ?10, template = ?11,
            directory = ?12, sum = ?13";
        let values = (
            &self.run,
            &self.tenant,
            &self.principal,
            &self.name,
            self.purpose.name(),
            self.status.name(),
            &self.reason,
            number(self.seq),
            number(self.opened),
            self.ended.map(number),
            &self.template,
            &self.directory,
            self.sum(),
        );
        connection.prepare_cached(sql)?.execute(values).map(drop)
    }

    /// Returns a checksum of all columns, because SQLite has none.
    fn sum(&self) -> i64 {
        // Destructured without `..`, so that a new column cannot be forgotten here.
        let Self { run, tenant, principal, name, purpose, status, reason, .. } = self;
        let Self { seq, opened, ended, template, directory, .. } = self;
        let others = format!("{reason:?} {seq} {opened} {ended:?} {directory:?}");
        let texts =
            [run, tenant, principal, name, purpose.name(), status.name(), template, &others];
        checksum(&texts)
    }
}
