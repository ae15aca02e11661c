//! The tables of `gateway.db`, and the errors of the database.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode};

/// The maximum time that a call waits for another process, such as a backup.
const BUSY: Duration = Duration::from_secs(5);

/// The changes of the tables, one for each version. The last one makes the current version.
const CHANGES: [&str; 6] = [TABLES, REQUEST_KEYS, POLICIES, EXECS, ACCOUNTS, WEBHOOKS];

const POLICIES: &str = "
CREATE TABLE policy_version (
    tenant TEXT NOT NULL,
    version BIGINT NOT NULL,
    text TEXT NOT NULL,
    saved_by TEXT NOT NULL,
    saved BIGINT NOT NULL,
    proposal TEXT,
    written BIGINT NOT NULL,
    PRIMARY KEY (tenant, version)
);
CREATE TABLE policy_proposal (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    base BIGINT NOT NULL,
    text TEXT NOT NULL,
    reason TEXT NOT NULL,
    maker TEXT NOT NULL,
    created BIGINT NOT NULL,
    state TEXT NOT NULL,
    decided_by TEXT,
    decided BIGINT,
    version BIGINT,
    PRIMARY KEY (tenant, id)
);
";

const EXECS: &str = "
CREATE TABLE exec (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    box TEXT NOT NULL,
    maker TEXT NOT NULL,
    created BIGINT NOT NULL,
    PRIMARY KEY (tenant, id)
);
CREATE INDEX exec_of_box ON exec (tenant, box, created);
";

const WEBHOOKS: &str = "
CREATE TABLE webhook (
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    url TEXT NOT NULL,
    kinds TEXT NOT NULL,
    secret TEXT NOT NULL,
    allow_private BIGINT NOT NULL,
    enabled BIGINT NOT NULL,
    version BIGINT NOT NULL,
    maker TEXT NOT NULL,
    changed BIGINT NOT NULL,
    next_event BIGINT NOT NULL,
    PRIMARY KEY (tenant, name)
);
CREATE TABLE delivery (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL,
    webhook TEXT NOT NULL,
    id TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    created BIGINT NOT NULL,
    state TEXT NOT NULL,
    attempts BIGINT NOT NULL,
    due BIGINT NOT NULL,
    last BIGINT,
    status BIGINT,
    error TEXT
);
CREATE INDEX delivery_of_webhook ON delivery (tenant, webhook, number);
CREATE INDEX delivery_by_time ON delivery (state, due);
";

const REQUEST_KEYS: &str = "
CREATE TABLE request_key (
    tenant TEXT NOT NULL,
    principal TEXT NOT NULL,
    name TEXT NOT NULL,
    digest BLOB NOT NULL,
    created BIGINT NOT NULL,
    status BIGINT,
    content_type TEXT,
    body BLOB,
    PRIMARY KEY (tenant, principal, name)
);
CREATE INDEX request_key_by_age ON request_key (created);
";

/// `role_from` tells who decides about the role, and `left_groups` is the time of a login without a group. A
/// link with a role is an invitation, which `maker` made. `used_login` has the logins with an identity provider
/// whose answer was used.
const ACCOUNTS: &str = "
ALTER TABLE principal ADD COLUMN version BIGINT NOT NULL DEFAULT 1;
ALTER TABLE principal ADD COLUMN role_from TEXT NOT NULL DEFAULT 'person';
ALTER TABLE principal ADD COLUMN disabled BIGINT;
ALTER TABLE principal ADD COLUMN left_groups BIGINT;
ALTER TABLE principal ADD COLUMN seen BIGINT;
CREATE INDEX principal_by_id ON principal (id);
ALTER TABLE token ADD COLUMN networks TEXT NOT NULL DEFAULT '';
ALTER TABLE token ADD COLUMN money_per_day BIGINT;
ALTER TABLE token ADD COLUMN boxes BIGINT;
ALTER TABLE link ADD COLUMN role TEXT;
ALTER TABLE link ADD COLUMN maker TEXT;
CREATE TABLE used_login (hash BLOB PRIMARY KEY, expires BIGINT NOT NULL);
";

const TABLES: &str = "
CREATE TABLE installation (id BIGINT PRIMARY KEY, name TEXT NOT NULL, key BLOB NOT NULL);
CREATE TABLE tenant (id TEXT PRIMARY KEY, created BIGINT NOT NULL);
CREATE TABLE principal (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    role TEXT NOT NULL,
    created BIGINT NOT NULL,
    PRIMARY KEY (tenant, id)
);
CREATE TABLE link (
    hash BLOB PRIMARY KEY,
    tenant TEXT NOT NULL,
    principal TEXT NOT NULL,
    host TEXT NOT NULL,
    expires BIGINT NOT NULL
);
CREATE TABLE session (
    hash BLOB PRIMARY KEY,
    id TEXT NOT NULL,
    tenant TEXT NOT NULL,
    principal TEXT NOT NULL,
    host TEXT NOT NULL,
    created BIGINT NOT NULL,
    seen BIGINT NOT NULL,
    expires BIGINT NOT NULL
);
CREATE UNIQUE INDEX session_of_tenant ON session (tenant, id);
CREATE TABLE token (
    id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    maker TEXT NOT NULL,
    name TEXT NOT NULL,
    kind TEXT NOT NULL,
    scopes TEXT NOT NULL,
    hash BLOB NOT NULL,
    created BIGINT NOT NULL,
    expires BIGINT NOT NULL,
    revoked BIGINT
);
CREATE INDEX token_of_tenant ON token (tenant, created);
";

/// Why the database cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error(
        "the database {} was made by a newer version of Belljar; use that version, or move the file away (tokens and sessions are lost, boxes and runs are not)",
        .0.display()
    )]
    Newer(PathBuf),
    #[error(
        "the database {} is damaged; restore it from a backup, or move the file away (tokens and sessions are lost, boxes and runs are not)",
        path.display()
    )]
    Damaged { path: PathBuf, source: rusqlite::Error },
    #[error("cannot open the database {}", path.display())]
    Open { path: PathBuf, source: rusqlite::Error },
    #[error("cannot create the database {}", path.display())]
    Create { path: PathBuf, source: std::io::Error },
    #[error("cannot use the database of the server")]
    Query(#[from] rusqlite::Error),
    #[error("the database of the server contains an invalid value")]
    Value,
    #[error("the kernel returned no random bytes")]
    Random,
}

/// Opens the database, and creates its tables if it is new.
pub(super) fn open(path: &Path) -> Result<Connection, StoreError> {
    // SQLite would create the file with the permissions of the umask.
    let file = std::fs::File::options().create(true).append(true).mode(0o600).open(path);
    file.map_err(|source| StoreError::Create { path: path.to_owned(), source })?;
    let failed = |source: rusqlite::Error| {
        let path = path.to_owned();
        match source.sqlite_error_code() {
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
                StoreError::Damaged { path, source }
            }
            _ => StoreError::Open { path, source },
        }
    };
    let mut connection = Connection::open(path).map_err(failed)?;
    let version = prepare(&mut connection).map_err(failed)?;
    if usize::try_from(version).map_or(true, |version| version > CHANGES.len()) {
        return Err(StoreError::Newer(path.to_owned()));
    }
    let result: String =
        connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(failed)?;
    if result != "ok" {
        let source = rusqlite::Error::InvalidQuery;
        return Err(StoreError::Damaged { path: path.to_owned(), source });
    }
    Ok(connection)
}

/// Sets up the connection, makes the tables current, and returns the version that the database had.
fn prepare(connection: &mut Connection) -> rusqlite::Result<i64> {
    connection.busy_timeout(BUSY)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // A revoked token must stay revoked after a power failure.
    connection.pragma_update(None, "synchronous", "FULL")?;
    let change = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let version: i64 = change.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let missing = usize::try_from(version).ok().and_then(|version| CHANGES.get(version..));
    if let Some(missing) = missing.filter(|missing| !missing.is_empty()) {
        missing.iter().try_for_each(|sql| change.execute_batch(sql))?;
        let current = i64::try_from(CHANGES.len()).unwrap_or(i64::MAX);
        change.pragma_update(None, "user_version", current)?;
    }
    change.commit()?;
    Ok(version)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn damaged_and_newer_databases_are_refused_with_their_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gateway.db");
        drop(open(&path).unwrap());
        drop(open(&path).expect("control: it can be opened again"));
        Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
        let error = open(&path).unwrap_err();
        assert!(matches!(error, StoreError::Newer(_)), "{error:?}");
        assert!(error.to_string().contains("gateway.db"), "{error}");
        for suffix in ["-wal", "-shm"] {
            std::fs::remove_file(dir.path().join(format!("gateway.db{suffix}"))).ok();
        }
        std::fs::write(
            &path,
            "no database, but a text that is long enough for a header".repeat(99),
        )
        .unwrap();
        let error = open(&path).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error:?}");
    }

    #[test]
    fn f17_database_is_readable_by_its_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gateway.db");
        drop(open(&path).unwrap());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
