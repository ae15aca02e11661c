//! The tables of the index, and the opening, checking and creation of its file.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::frame::{HEADER, LedgerId};
use crate::random;

/// The version of the schema, raised with every change; an index of another version is rebuilt.
const VERSION: i64 = 2;

const BUSY: Duration = Duration::from_secs(10);

/// The suffixes of the files that SQLite creates beside the database.
const BESIDE: [&str; 3] = ["-wal", "-shm", "-journal"];

/// `idx` is the row id, so each index of `event` below is sorted by `idx` too.
const TABLES: &str = "
CREATE TABLE meta (
    id INTEGER PRIMARY KEY CHECK (id = 0),
    ledger TEXT NOT NULL,
    next INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    tail_offset INTEGER NOT NULL,
    tail_length INTEGER NOT NULL,
    tail_leaf BLOB NOT NULL,
    runs INTEGER NOT NULL,
    intents INTEGER NOT NULL,
    salts INTEGER NOT NULL,
    secret BLOB NOT NULL
);
CREATE TABLE name (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);
CREATE TABLE run (
    id INTEGER PRIMARY KEY,
    run TEXT NOT NULL UNIQUE,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    last_sequence INTEGER NOT NULL,
    last_hash BLOB NOT NULL
);
CREATE TABLE event (
    idx INTEGER PRIMARY KEY,
    offset INTEGER NOT NULL,
    length INTEGER NOT NULL,
    leaf BLOB NOT NULL,
    run INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    family INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    actor INTEGER NOT NULL,
    cause INTEGER,
    time INTEGER NOT NULL,
    sum INTEGER NOT NULL
);
CREATE INDEX event_of_run ON event (run);
CREATE INDEX event_in_run ON event (run, sequence);
CREATE INDEX event_of_family ON event (family);
CREATE INDEX event_of_kind ON event (kind);
CREATE INDEX event_of_cause ON event (cause) WHERE cause IS NOT NULL;
CREATE TABLE span (block INTEGER PRIMARY KEY, earliest INTEGER NOT NULL, latest INTEGER NOT NULL);
CREATE TABLE body (
    hash BLOB NOT NULL,
    idx INTEGER NOT NULL,
    size INTEGER NOT NULL,
    kept INTEGER NOT NULL,
    PRIMARY KEY (hash, idx)
) WITHOUT ROWID;
CREATE TABLE open_intent (idx INTEGER PRIMARY KEY, run INTEGER NOT NULL, kind TEXT NOT NULL);
CREATE INDEX open_intent_of_run ON open_intent (run);
CREATE TABLE salt (
    hash BLOB NOT NULL,
    place INTEGER NOT NULL,
    PRIMARY KEY (hash, place)
) WITHOUT ROWID;
CREATE TABLE content (
    scope BLOB NOT NULL,
    id BLOB NOT NULL,
    hash BLOB NOT NULL,
    size INTEGER NOT NULL,
    PRIMARY KEY (scope, id)
) WITHOUT ROWID;
CREATE INDEX content_of_hash ON content (hash);
";

/// The consequence of an SQLite error for the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IndexFault {
    /// Another process has locked the database for too long.
    Busy,
    /// The file cannot be written; an index in memory is possible.
    Unwritable,
    /// The file has invalid content.
    Damaged,
}

/// The device and inode number of a file.
pub(super) type Identity = (u64, u64);

pub(super) fn fault_of(error: &rusqlite::Error) -> IndexFault {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => IndexFault::Busy,
        Some(
            ErrorCode::ReadOnly
            | ErrorCode::CannotOpen
            | ErrorCode::SystemIoFailure
            | ErrorCode::DiskFull
            | ErrorCode::PermissionDenied
            | ErrorCode::FileLockingProtocolFailed
            | ErrorCode::OutOfMemory,
        ) => IndexFault::Unwritable,
        // Includes values that do not fit their column, and missing rows.
        Some(_) | None => IndexFault::Damaged,
    }
}

/// Opens the index of the ledger `id`, or creates it if no usable one exists.
///
/// SQLite finds the write-ahead log beside its database by name. If a process removed the database
/// while another process is between opening the two files, unrelated files would be combined.
/// Opening and removing therefore hold a lock on the directory.
pub(super) fn open(path: &Path, id: LedgerId) -> Result<(Connection, Identity), IndexFault> {
    let _lock = lock(path).map_err(|_| IndexFault::Unwritable)?;
    let usable = fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file());
    if usable {
        match connect(path)
            .and_then(|connection| is_ours(&connection, id).map(|is| (connection, is)))
        {
            Ok((connection, true)) => return Ok((connection, identity(path)?)),
            Ok((_, false)) => {}
            Err(error) => match fault_of(&error) {
                IndexFault::Damaged => {}
                fault @ (IndexFault::Busy | IndexFault::Unwritable) => return Err(fault),
            },
        }
    }
    make(path, id)
}

/// Removes the index if its file is still the given one.
pub(super) fn remove(path: &Path, identity: Identity) -> io::Result<()> {
    let _lock = lock(path)?;
    match self::identity(path) {
        Ok(found) if found == identity => remove_files(path),
        Ok(_) | Err(_) => Ok(()),
    }
}

pub(super) fn in_memory(id: LedgerId) -> rusqlite::Result<Connection> {
    let mut connection = Connection::open_in_memory()?;
    fill(&mut connection, id)?;
    Ok(connection)
}

/// Returns the identity of the file at this path.
pub(super) fn identity(path: &Path) -> Result<Identity, IndexFault> {
    let meta = fs::symlink_metadata(path).map_err(|_| IndexFault::Unwritable)?;
    Ok((meta.dev(), meta.ino()))
}

fn make(path: &Path, id: LedgerId) -> Result<(Connection, Identity), IndexFault> {
    remove_files(path).map_err(|_| IndexFault::Unwritable)?;
    // The file is created here to set its mode, which the files of SQLite beside it inherit. No
    // other process has it open yet; closing a file drops all locks of this process on it
    // (fcntl(2)).
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(|_| IndexFault::Unwritable)?;
    let made = connect(path).and_then(|mut connection| {
        fill(&mut connection, id)?;
        Ok(connection)
    });
    let connection = made.map_err(|error| match fault_of(&error) {
        IndexFault::Busy => IndexFault::Busy,
        IndexFault::Unwritable | IndexFault::Damaged => IndexFault::Unwritable,
    })?;
    Ok((connection, identity(path)?))
}

pub(super) fn connect(path: &Path) -> rusqlite::Result<Connection> {
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
    connection.pragma_update(None, "cache_size", -65_536)?; // KiB, for random access to `body`
    connection.pragma_update(None, "wal_autocheckpoint", 8192)?; // pages: 32 MiB
    Ok(connection)
}

pub(super) fn is_ours(connection: &Connection, id: LedgerId) -> rusqlite::Result<bool> {
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
    let ledger: String =
        connection.query_row("SELECT ledger FROM meta WHERE id = 0", [], |row| row.get(0))?;
    let expected: Vec<&str> = TABLES.trim().split_terminator(';').map(str::trim).collect();
    Ok(ledger == id.to_string() && tables == expected.join(";"))
}

pub(super) fn fill(connection: &mut Connection, id: LedgerId) -> rusqlite::Result<()> {
    let secret: [u8; 32] = random::bytes()
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
    let transaction = connection.transaction()?;
    transaction.execute_batch(TABLES)?;
    transaction.execute(
        "INSERT INTO meta VALUES (0, ?1, 0, ?2, 0, 0, x'', 0, 0, ?2, ?3)",
        (id.to_string(), super::query::number(HEADER as u64), secret),
    )?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()
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

fn lock(path: &Path) -> io::Result<File> {
    let directory = File::open(path.parent().unwrap_or_else(|| Path::new(".")))?;
    rustix::io::retry_on_intr(|| {
        rustix::fs::flock(&directory, rustix::fs::FlockOperation::LockExclusive)
    })?;
    Ok(directory)
}
