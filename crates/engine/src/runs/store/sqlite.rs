//! The tables of runs in SQLite.
//!
//! SQLite finds the write-ahead log beside its database by name. Opening and removing the database therefore
//! hold a lock, so that no process combines files of two databases.

pub(in crate::runs) mod boxes;
pub(in crate::runs) mod listed;
mod principals;
mod slots;
mod tenants;
pub(in crate::runs) mod usage;

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use belljar_ledger::{Digest, LedgerId, Reader};
use belljar_model::caller::TenantId;
use rusqlite::config::DbConfig;
use rusqlite::types::{FromSqlError, Type, Value};
use rusqlite::{Connection, OpenFlags, Row, TransactionBehavior, params_from_iter};

use super::apply::{self, Applied};
use super::{Cursor, Page, RunRow, RunStatus, RunsQuery, StoreError, TaskCounts};
use crate::runs::machine::Moment;
use crate::store::layout::Layout;
use crate::store::lock::{self, LockGuard, Rank};

/// The version of the tables, raised with every change; a database of another version is rebuilt.
const VERSION: i64 = 4;

/// The maximum time that a caller waits for other processes.
const BUSY: Duration = Duration::from_secs(5);

/// The suffixes of the files that SQLite creates beside the database.
const BESIDE: [&str; 3] = ["-wal", "-shm", "-journal"];

/// `item` is -1 for a task without instances. `sum` is a checksum of the other columns; of the accounts, only
/// those of the tenant have one. The table `box` has the runs that are not of plans. The columns `micros` and
/// `money` of the usage have millionths of seconds and of US dollars.
const TABLES: &str = "
CREATE TABLE meta (
    id BIGINT PRIMARY KEY,
    ledger TEXT NOT NULL,
    applied BIGINT NOT NULL,
    tail BLOB NOT NULL
);
CREATE TABLE run (
    run TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    principal TEXT NOT NULL,
    name TEXT NOT NULL,
    state TEXT NOT NULL,
    plan BLOB,
    seq BIGINT NOT NULL,
    opened BIGINT NOT NULL,
    ended BIGINT,
    template TEXT NOT NULL,
    directory BLOB,
    tasks BIGINT,
    done BIGINT,
    sum BIGINT NOT NULL
);
CREATE UNIQUE INDEX run_of_tenant ON run (tenant, seq);
CREATE INDEX run_in_state ON run (tenant, state, seq);
CREATE INDEX run_with_name ON run (tenant, name, seq);
CREATE INDEX run_in_directory ON run (tenant, directory, seq);
CREATE INDEX run_open ON run (state) WHERE ended IS NULL;
CREATE TABLE task (
    run TEXT NOT NULL,
    task TEXT NOT NULL,
    item BIGINT NOT NULL,
    state TEXT NOT NULL,
    attempt BIGINT NOT NULL,
    tier BIGINT NOT NULL,
    box TEXT,
    due BIGINT,
    lease TEXT,
    labels TEXT,
    output BLOB,
    reason TEXT,
    PRIMARY KEY (run, task, item)
);
CREATE INDEX task_open ON task (run, state)
    WHERE state NOT IN ('done', 'failed', 'skipped', 'stopped', 'cancelled');
CREATE INDEX task_due ON task (due) WHERE due IS NOT NULL;
CREATE TABLE account (
    owner TEXT NOT NULL,
    unit TEXT NOT NULL,
    reserved BIGINT NOT NULL,
    spent BIGINT NOT NULL,
    over BIGINT NOT NULL,
    sum BIGINT,
    PRIMARY KEY (owner, unit)
);
CREATE TABLE gate (
    digest BLOB PRIMARY KEY,
    run TEXT NOT NULL,
    task TEXT NOT NULL,
    deadline BIGINT NOT NULL,
    answered_by TEXT
);
CREATE INDEX gate_open ON gate (run) WHERE answered_by IS NULL;
CREATE INDEX gate_due ON gate (deadline) WHERE answered_by IS NULL;
CREATE TABLE slot (
    schedule TEXT NOT NULL,
    instant BIGINT NOT NULL,
    run TEXT NOT NULL,
    PRIMARY KEY (schedule, instant)
);
CREATE TABLE box (
    run TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    principal TEXT NOT NULL,
    name TEXT NOT NULL,
    purpose TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT,
    seq BIGINT NOT NULL,
    opened BIGINT NOT NULL,
    ended BIGINT,
    template TEXT NOT NULL,
    directory BLOB,
    sum BIGINT NOT NULL
);
CREATE UNIQUE INDEX box_of_tenant ON box (tenant, seq);
CREATE INDEX box_open ON box (tenant, seq) WHERE ended IS NULL;
CREATE TABLE usage (
    kind TEXT NOT NULL,
    hour BIGINT NOT NULL,
    name TEXT NOT NULL,
    principal TEXT NOT NULL,
    calls BIGINT NOT NULL,
    tokens BIGINT NOT NULL,
    money BIGINT NOT NULL,
    micros BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    PRIMARY KEY (kind, hour, name, principal)
);
";

/// All tables except `meta`.
const DERIVED: [&str; 7] = ["run", "task", "account", "gate", "slot", "box", "usage"];

pub(super) const RUN_COLUMNS: &str = "run, tenant, principal, name, state, plan, seq, opened, ended, \
                                      template, directory, tasks, done, sum";

/// The device and inode number of a file.
type Identity = (u64, u64);

/// A connection of this process to the database of runs.
#[derive(Debug)]
pub(in crate::runs) struct RunDb {
    connection: Connection,
    path: PathBuf,
    /// The file that is locked while the database is opened or removed.
    lock: PathBuf,
    ledger: LedgerId,
    /// The open file; `None` if the tables are in memory.
    identity: Option<Identity>,
}

/// How far a call of [`RunDb::catch_up`] came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::runs) struct Progress {
    /// The number of events that are applied.
    pub(in crate::runs) applied: u64,
    /// Whether all events that the reader has are applied.
    pub(in crate::runs) is_complete: bool,
}

impl RunDb {
    /// Opens or creates the database of a ledger. [`RunDb::catch_up`] then adds the missing rows.
    pub(in crate::runs) fn open(layout: &Layout, ledger: LedgerId) -> Result<Self, StoreError> {
        Self::open_file(layout.runs_database(), layout.plans().join("runs.lock"), ledger)
    }

    fn open_file(path: PathBuf, lock: PathBuf, ledger: LedgerId) -> Result<Self, StoreError> {
        match open(&path, &lock, ledger) {
            Ok((connection, identity)) => {
                Ok(Self { connection, path, lock, ledger, identity: Some(identity) })
            }
            Err(StoreError::Unwritable(_) | StoreError::Damaged(_)) => {
                Self::in_memory(path, lock, ledger)
            }
            Err(error) => Err(error),
        }
    }

    fn in_memory(path: PathBuf, lock: PathBuf, ledger: LedgerId) -> Result<Self, StoreError> {
        let mut connection = Connection::open_in_memory()?;
        create(&mut connection, ledger)?;
        Ok(Self { connection, path, lock, ledger, identity: None })
    }

    /// Returns whether the tables are in a file.
    pub(in crate::runs) const fn is_on_disk(&self) -> bool {
        self.identity.is_some()
    }

    /// Applies at most `limit` events that are not applied yet, up to the size of the reader.
    ///
    /// A damaged or replaced database is rebuilt, and one that cannot be written is replaced by tables in
    /// memory: the result then begins again from the first event.
    pub(in crate::runs) fn catch_up(
        &mut self,
        reader: &Reader,
        limit: u64,
    ) -> Result<Progress, StoreError> {
        if self.is_gone() || self.ledger != reader.id() {
            *self = Self::open_file(self.path.clone(), self.lock.clone(), reader.id())?;
        }
        match self.follow(reader, limit) {
            Err(StoreError::Damaged(_)) => {
                tracing::warn!("the database of runs is damaged; it is rebuilt from the ledger");
                self.remove();
                *self = Self::open_file(self.path.clone(), self.lock.clone(), self.ledger)?;
                self.follow(reader, limit)
            }
            Err(StoreError::Unwritable(_)) => {
                *self = Self::in_memory(self.path.clone(), self.lock.clone(), self.ledger)?;
                self.follow(reader, limit)
            }
            done => done,
        }
    }

    fn follow(&mut self, reader: &Reader, limit: u64) -> Result<Progress, StoreError> {
        let size = reader.size();
        let applied = Applied::read(&self.connection)?;
        if applied.next == size && applied.fits(reader)? {
            return Ok(Progress { applied: size, is_complete: true });
        }
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Another process can have applied events meanwhile.
        let mut applied = Applied::read(&transaction)?;
        if !applied.fits(reader)? {
            // The log was restored from a copy, or lost its end in a power failure.
            for table in DERIVED {
                transaction.execute(&format!("DELETE FROM {table}"), [])?;
            }
            applied = Applied::default();
        }
        let until = size.min(applied.next.saturating_add(limit));
        apply::apply(&transaction, reader, &mut applied, until)?;
        applied.write(&transaction)?;
        transaction.commit()?;
        Ok(Progress { applied: applied.next, is_complete: applied.next >= size })
    }

    /// Returns a page of the runs of a tenant, newest first.
    pub(in crate::runs) fn page(
        &self,
        tenant: &TenantId,
        query: &RunsQuery,
    ) -> Result<Page<RunRow>, StoreError> {
        let found = self.find(tenant, query);
        if let Err(StoreError::Damaged(_)) = found {
            self.remove();
        }
        found
    }

    fn find(&self, tenant: &TenantId, query: &RunsQuery) -> Result<Page<RunRow>, StoreError> {
        let limit = query.limit();
        let mut rows = Vec::new();
        // One query for each state and directory, because each of them reads its rows in the order of an
        // index.
        let statuses = query.statuses.iter().map(|status| Some(*status));
        let statuses: Vec<Option<RunStatus>> = match query.statuses.is_empty() {
            true => vec![None],
            false => statuses.collect(),
        };
        let directories = match query.directory {
            None => vec![None],
            Some(wanted) => self.directories(tenant, wanted)?.into_iter().map(Some).collect(),
        };
        for (status, directory) in
            statuses.iter().flat_map(|status| directories.iter().map(move |it| (status, it)))
        {
            let mut conditions = vec!["tenant = ?", "seq < ?"];
            let before = query.after.map_or(i64::MAX, |Cursor(before)| number(before));
            let mut values: Vec<Value> = vec![tenant.to_string().into(), before.into()];
            if let Some(status) = status {
                conditions.push("state = ?");
                values.push(status.name().to_owned().into());
            }
            if let Some(directory) = directory {
                // Few runs are open, and `+` excludes the index of directories.
                conditions.push(match status {
                    Some(RunStatus::Ended(_)) | None => "directory IS ?",
                    Some(_) => "+directory IS ?",
                });
                values.push(directory.clone());
            }
            if let Some(name) = &query.name {
                conditions.push("name = ?");
                values.push(name.clone().into());
            }
            // One more row tells whether there is another page.
            values.push(number(limit as u64 + 1).into());
            let conditions = conditions.join(" AND ");
            let sql = format!(
                "SELECT {RUN_COLUMNS} FROM run WHERE {conditions} ORDER BY seq DESC LIMIT ?"
            );
            let mut statement = self.connection.prepare_cached(&sql)?;
            let found = statement.query_map(params_from_iter(values), StoredRun::read)?;
            for row in found {
                rows.push(row?);
            }
            #[cfg(test)]
            count_steps(&statement);
        }
        rows.sort_by_key(|row: &StoredRun| std::cmp::Reverse(row.seq));
        rows.dedup_by_key(|row| row.seq);
        let has_more = rows.len() > limit;
        rows.truncate(limit);
        let next = rows.last().filter(|_| has_more).map(|last| Cursor(last.seq));
        let rows = rows.into_iter().map(|row| self.complete(row)).collect::<Result<_, _>>()?;
        Ok(Page { rows, next })
    }

    /// Returns the paths in the column `directory` that lead to the wanted directory, and the value of runs
    /// without a directory.
    ///
    /// Several paths can lead to one directory, for example through links. The cost is one search in the index
    /// for each different path.
    fn directories(&self, tenant: &TenantId, wanted: Identity) -> Result<Vec<Value>, StoreError> {
        let sql = "SELECT min(directory) FROM run WHERE tenant = ?1 AND directory > ?2";
        let mut statement = self.connection.prepare_cached(sql)?;
        let (mut found, mut last) = (vec![Value::Null], Vec::new());
        let tenant = tenant.to_string();
        while let Some(path) = statement.query_row((&tenant, &last), |row| row.get(0))? {
            let path: Vec<u8> = path;
            // Unlike the identity of the database, that of a directory follows symbolic links.
            let meta = fs::metadata(Path::new(OsStr::from_bytes(&path)));
            if meta.is_ok_and(|meta| (meta.dev(), meta.ino()) == wanted) {
                found.push(Value::Blob(path.clone()));
            }
            last = path;
        }
        #[cfg(test)]
        count_steps(&statement);
        Ok(found)
    }

    /// Adds the usage to a row.
    fn complete(&self, stored: StoredRun) -> Result<RunRow, StoreError> {
        let invalid = || StoreError::Damaged(None);
        let spent = self.spent(&apply::run_owner(&stored.run))?;
        Ok(RunRow {
            run: stored.run.parse().map_err(|_| invalid())?,
            status: RunStatus::named(&stored.state).ok_or_else(invalid)?,
            tenant: stored.tenant,
            principal: stored.principal,
            name: stored.name,
            sequence: stored.seq,
            accepted: Moment(stored.opened),
            ended: stored.ended.map(Moment),
            spent,
            template: stored.template,
            directory: stored.directory.map(|path| OsString::from_vec(path).into()),
            tasks: stored.tasks.zip(stored.done).map(|(all, done)| TaskCounts { all, done }),
        })
    }

    /// Returns whether the open file was removed or replaced.
    fn is_gone(&self) -> bool {
        self.identity.is_some_and(|own| identity(&self.path).ok() != Some(own))
    }

    /// Removes the file of a damaged database, unless another process replaced it.
    fn remove(&self) {
        let Some(own) = self.identity else { return };
        let Ok(_lock) = acquire(&self.lock) else { return };
        if identity(&self.path).is_ok_and(|found| found == own) {
            remove_files(&self.path).ok(); // if it fails, the next process does it
        }
    }
}

#[cfg(test)]
thread_local! {
    /// The number of steps of SQLite for the pages of this thread.
    pub(in crate::runs) static STEPS: std::cell::Cell<i64> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
fn count_steps(statement: &rusqlite::Statement<'_>) {
    let steps = statement.reset_status(rusqlite::StatementStatus::VmStep);
    STEPS.with(|all| all.set(all.get() + i64::from(steps)));
}

/// A row of the table `run`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StoredRun {
    pub(super) run: String,
    pub(super) tenant: String,
    pub(super) principal: String,
    pub(super) name: String,
    pub(super) state: String,
    pub(super) plan: Option<Vec<u8>>,
    pub(super) seq: u64,
    pub(super) opened: u64,
    pub(super) ended: Option<u64>,
    pub(super) template: String,
    pub(super) directory: Option<Vec<u8>>,
    /// The number of tasks and instances, once the run has ended.
    pub(super) tasks: Option<u64>,
    /// The number of tasks and instances that are done, once the run has ended.
    pub(super) done: Option<u64>,
}

impl StoredRun {
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let optional = |column: usize| -> rusqlite::Result<Option<u64>> {
            let value: Option<i64> = row.get(column)?;
            value.map(|_| position(row, column)).transpose()
        };
        let stored = Self {
            run: row.get(0)?,
            tenant: row.get(1)?,
            principal: row.get(2)?,
            name: row.get(3)?,
            state: row.get(4)?,
            plan: row.get(5)?,
            seq: position(row, 6)?,
            opened: position(row, 7)?,
            ended: optional(8)?,
            template: row.get(9)?,
            directory: row.get(10)?,
            tasks: optional(11)?,
            done: optional(12)?,
        };
        match row.get::<_, i64>(13)? == stored.sum() {
            true => Ok(stored),
            false => Err(invalid_value(13)),
        }
    }

    /// Returns a checksum of all columns, because SQLite has none.
    pub(super) fn sum(&self) -> i64 {
        let Self { run, tenant, principal, name, state, plan, seq, opened, .. } = self;
        let Self { ended, template, directory, tasks, done, .. } = self;
        let numbers = [Some(*seq), Some(*opened), *ended, *tasks, *done];
        let numbers = numbers.map(|number| format!("{number:?}"));
        let directory = format!("{directory:?}"); // tells a missing one from an empty one
        let texts = [run, tenant, principal, name, state, template, &directory];
        let texts = texts.into_iter().chain(&numbers).map(String::as_bytes);
        let mut parts: Vec<&[u8]> = texts.flat_map(|text| [text, b"\0"]).collect();
        parts.push(plan.as_deref().unwrap_or_default());
        let [a, b, c, d, e, f, g, h, ..] = *Digest::of(&parts).as_bytes();
        i64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
}

/// Returns a checksum of texts.
fn checksum(texts: &[&str]) -> i64 {
    let parts: Vec<&[u8]> = texts.iter().flat_map(|text| [text.as_bytes(), b"\0"]).collect();
    let [a, b, c, d, e, f, g, h, ..] = *Digest::of(&parts).as_bytes();
    i64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// Converts a number, which is below 2^63 like every index and time.
pub(super) fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(super) fn position(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    u64::try_from(row.get::<_, i64>(column)?).map_err(|_| invalid_value(column))
}

pub(super) fn invalid_value(column: usize) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(
        column,
        Type::Null,
        Box::new(FromSqlError::InvalidType),
    )
}

/// Opens the database of a ledger, or creates it if no usable one exists.
fn open(
    path: &Path,
    lock_file: &Path,
    ledger: LedgerId,
) -> Result<(Connection, Identity), StoreError> {
    let unwritable = |_| StoreError::Unwritable(None);
    let _lock = acquire(lock_file)?;
    if fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file()) {
        let opened = connect(path).map_err(StoreError::from);
        let opened = opened.and_then(|connection| Ok((is_ours(&connection, ledger)?, connection)));
        match opened {
            Ok((true, connection)) => {
                return Ok((connection, identity(path).map_err(unwritable)?));
            }
            Ok((false, _)) | Err(StoreError::Damaged(_)) => {
                tracing::info!("the database of runs cannot be used; it is rebuilt");
            }
            Err(error) => return Err(error),
        }
    }
    remove_files(path).map_err(unwritable)?;
    // The file is created here to set its mode, which the files of SQLite beside it inherit.
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(unwritable)?;
    let mut connection = connect(path)?;
    create(&mut connection, ledger)?;
    Ok((connection, identity(path).map_err(unwritable)?))
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    // If the file system has no shared memory, SQLite chooses another mode, which works too.
    connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "normal")?;
    connection.set_prepared_statement_cache_capacity(32);
    Ok(connection)
}

fn is_ours(connection: &Connection, ledger: LedgerId) -> rusqlite::Result<bool> {
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if version != VERSION {
        return Ok(false);
    }
    // A trigger or a view would be foreign too.
    let tables: String = connection.query_row(
        "SELECT group_concat(sql, ';') FROM
         (SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid)",
        [],
        |row| row.get(0),
    )?;
    let stored: String =
        connection.query_row("SELECT ledger FROM meta WHERE id = 0", [], |row| row.get(0))?;
    let expected: Vec<&str> = TABLES.trim().split_terminator(';').map(str::trim).collect();
    Ok(stored == ledger.to_string() && tables == expected.join(";"))
}

fn create(connection: &mut Connection, ledger: LedgerId) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    transaction.execute_batch(TABLES)?;
    transaction.execute("INSERT INTO meta VALUES (0, ?1, 0, x'')", [ledger.to_string()])?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()
}

fn identity(path: &Path) -> io::Result<Identity> {
    let meta = fs::symlink_metadata(path)?;
    Ok((meta.dev(), meta.ino()))
}

fn remove_files(path: &Path) -> io::Result<()> {
    let beside = BESIDE.iter().map(|end| {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        PathBuf::from(name)
    });
    // The database goes first, because the other files mean nothing without it.
    for file in [path.to_owned()].into_iter().chain(beside) {
        match fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

fn acquire(file: &Path) -> Result<LockGuard, StoreError> {
    let unwritable = |_| StoreError::Unwritable(None);
    if let Some(directory) = file.parent() {
        let created = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        created.map_err(unwritable)?;
    }
    let acquired = lock::acquire(file, Rank::Directory, BUSY).map_err(unwritable)?;
    acquired.ok_or(StoreError::Busy)
}
