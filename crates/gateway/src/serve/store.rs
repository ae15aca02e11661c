//! The database of the server, `gateway.db`: tenants, principals, tokens, sessions and login links.
//!
//! Secrets are stored as SHA-256. Every object of a tenant is found by a [`TenantKey`], so no function can
//! return or change an object of another tenant by its id alone. A credential is the exception: its hash
//! finds the tenant.

mod schema;

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use belljar_model::caller::{Principal, TenantId};
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, params};

use super::access::{Role, Scope, TokenKind};
use crate::auth::api_token::TokenId;
pub use schema::StoreError;

/// The key of an object of one tenant. Only authentication and the local socket create tenants.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct TenantKey<T>(pub(crate) TenantId, pub(crate) T);

/// A time in milliseconds since 1970.
pub(crate) type Millis = u64;

/// The database of the server.
#[derive(Debug)]
pub(crate) struct Store {
    connection: Mutex<Connection>,
}

/// Random values that belong to one installation.
#[derive(Clone)]
pub(crate) struct Installation {
    /// The name of the server on the loopback interface. Cookies ignore ports, so the name must not be one
    /// that other local servers have.
    pub(crate) name: String,
    /// The key of all values that the server signs.
    pub(crate) key: [u8; 32],
}

/// A session of a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionRow {
    pub(crate) owner: TenantKey<Principal>,
    /// The public id of the session.
    pub(crate) id: String,
    /// The host that the session is bound to.
    pub(crate) host: String,
    pub(crate) created: Millis,
    pub(crate) seen: Millis,
    pub(crate) expires: Millis,
}

/// A token of the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TokenRow {
    pub(crate) key: TenantKey<TokenId>,
    /// The person who made the token.
    pub(crate) maker: Principal,
    pub(crate) name: String,
    pub(crate) kind: TokenKind,
    pub(crate) scopes: Vec<Scope>,
    pub(crate) hash: Vec<u8>,
    pub(crate) created: Millis,
    pub(crate) expires: Millis,
    pub(crate) revoked: Option<Millis>,
}

/// The result of using the code of a login link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LinkUse {
    /// The code is valid and cannot be used again.
    Valid { owner: TenantKey<Principal>, host: String },
    /// The code was used before, has expired or never existed.
    Gone,
}

impl Store {
    /// Opens or creates the database.
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        Ok(Self { connection: Mutex::new(schema::open(path)?) })
    }

    /// Returns the random values of this installation, which are created at the first use.
    pub(crate) fn installation(&self) -> Result<Installation, StoreError> {
        let mut connection = self.locked();
        let change = connection.transaction()?;
        let stored = change.query_row("SELECT name, key FROM installation", [], |row| {
            Ok(Installation { name: row.get(0)?, key: row.get(1)? })
        });
        if let Some(installation) = stored.optional()? {
            return Ok(installation);
        }
        let (mut name, mut key) = ([0; 3], [0; 32]);
        getrandom::fill(&mut name).map_err(|_| StoreError::Random)?;
        getrandom::fill(&mut key).map_err(|_| StoreError::Random)?;
        let name = format!("belljar-{}.localhost", hex::encode(name));
        change.execute(
            "INSERT INTO installation (id, name, key) VALUES (0, ?1, ?2)",
            params![name, key],
        )?;
        change.commit()?;
        Ok(Installation { name, key })
    }

    /// Creates a tenant with its first owner. Returns `false` if the tenant exists.
    pub(crate) fn create_tenant(
        &self,
        owner: &TenantKey<Principal>,
        now: Millis,
    ) -> Result<bool, StoreError> {
        let mut connection = self.locked();
        let change = connection.transaction()?;
        let TenantKey(tenant, principal) = owner;
        let added = change.execute(
            "INSERT INTO tenant (id, created) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
            params![tenant.as_str(), stored(now)],
        )?;
        if added == 1 {
            put_role(&change, tenant, principal, Role::Owner, now)?;
        }
        change.commit()?;
        Ok(added == 1)
    }

    /// Returns the first owner of a tenant. `None` if the tenant does not exist.
    pub(crate) fn first_owner(&self, tenant: &TenantId) -> Result<Option<Principal>, StoreError> {
        let found = self.locked().query_row(
            "SELECT id FROM principal WHERE tenant = ?1 AND role = 'owner' ORDER BY created, id LIMIT 1",
            [tenant.as_str()],
            |row| row.get::<_, String>(0),
        );
        found.optional()?.map(|text| text.parse().map_err(|_| StoreError::Value)).transpose()
    }

    /// Stores a login link by the hash of its code.
    pub(crate) fn put_link(
        &self,
        hash: [u8; 32],
        owner: &TenantKey<Principal>,
        host: &str,
        expires: Millis,
    ) -> Result<(), StoreError> {
        let TenantKey(tenant, principal) = owner;
        self.locked().execute(
            "INSERT INTO link (hash, tenant, principal, host, expires) VALUES (?1, ?2, ?3, ?4, ?5)",
            params![hash, tenant.as_str(), principal.to_string(), host, stored(expires)],
        )?;
        Ok(())
    }

    /// Uses the code of a login link. A code is valid once, on the host of its link.
    pub(crate) fn take_link(
        &self,
        hash: [u8; 32],
        host: &str,
        now: Millis,
    ) -> Result<LinkUse, StoreError> {
        let mut connection = self.locked();
        let change = connection.transaction()?;
        change.execute("DELETE FROM link WHERE expires <= ?1", [stored(now)])?;
        let row = change.query_row(
            "DELETE FROM link WHERE hash = ?1 AND host = ?2 RETURNING tenant, principal, host",
            params![hash, host],
            |row| Ok((owner(row, 0, 1)?, row.get::<_, String>(2)?)),
        );
        let row = row.optional()?;
        change.commit()?;
        Ok(row.map_or(LinkUse::Gone, |(owner, host)| LinkUse::Valid { owner, host }))
    }

    /// Stores a new session by the hash of its secret.
    pub(crate) fn put_session(&self, hash: [u8; 32], row: &SessionRow) -> Result<(), StoreError> {
        let TenantKey(tenant, principal) = &row.owner;
        self.locked().execute(
            "INSERT INTO session (hash, id, tenant, principal, host, created, seen, expires)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![
                hash,
                row.id,
                tenant.as_str(),
                principal.to_string(),
                row.host,
                stored(row.created),
                stored(row.seen),
                stored(row.expires)
            ],
        )?;
        Ok(())
    }

    /// Returns the session with this hash and the role of its person, and notes that it was used.
    pub(crate) fn session(
        &self,
        hash: [u8; 32],
        now: Millis,
        idle: Millis,
    ) -> Result<Option<(SessionRow, Role)>, StoreError> {
        /// Times of use are stored at most once per minute.
        const NOTED: Millis = 60_000;
        let connection = self.locked();
        let found = connection.query_row(
            "SELECT tenant, principal, id, host, created, seen, expires FROM session WHERE hash = ?1",
            [hash],
            session_row,
        );
        let Some(row) = found.optional()? else { return Ok(None) };
        if row.expires <= now || row.seen.saturating_add(idle) <= now {
            connection.execute("DELETE FROM session WHERE hash = ?1", [hash])?;
            return Ok(None);
        }
        if row.seen.saturating_add(NOTED) <= now {
            connection.execute(
                "UPDATE session SET seen = ?2 WHERE hash = ?1",
                params![hash, stored(now)],
            )?;
        }
        Ok(role(&connection, &row.owner)?.map(|role| (row, role)))
    }

    /// Returns the sessions of a tenant that have not expired, the newest first.
    pub(crate) fn sessions(
        &self,
        tenant: &TenantId,
        now: Millis,
    ) -> Result<Vec<SessionRow>, StoreError> {
        let connection = self.locked();
        let mut query = connection.prepare(
            "SELECT tenant, principal, id, host, created, seen, expires FROM session
             WHERE tenant = ?1 AND expires > ?2 ORDER BY created DESC, id",
        )?;
        let rows = query.query_map(params![tenant.as_str(), stored(now)], session_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Ends a session. Returns `false` if the tenant has no such session.
    pub(crate) fn end_session(&self, key: &TenantKey<String>) -> Result<bool, StoreError> {
        let ended = self.locked().execute(
            "DELETE FROM session WHERE tenant = ?1 AND id = ?2",
            params![key.0.as_str(), key.1],
        )?;
        Ok(ended == 1)
    }

    /// Stores a new token. Returns `false` if another token has its public part.
    pub(crate) fn put_token(&self, row: &TokenRow) -> Result<bool, StoreError> {
        let scopes: Vec<&str> = row.scopes.iter().map(|scope| scope.name()).collect();
        let added = self.locked().execute(
            "INSERT INTO token (id, tenant, maker, name, kind, scopes, hash, created, expires)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT DO NOTHING",
            params![
                row.key.1.as_str(),
                row.key.0.as_str(),
                row.maker.to_string(),
                row.name,
                row.kind.name(),
                scopes.join(" "),
                row.hash,
                stored(row.created),
                stored(row.expires)
            ],
        )?;
        Ok(added == 1)
    }

    /// Returns the token with this public part and the current role of its maker. The caller compares the hash.
    pub(crate) fn token(&self, id: &TokenId) -> Result<Option<(TokenRow, Role)>, StoreError> {
        let connection = self.locked();
        let sql = format!("SELECT {TOKEN_COLUMNS} FROM token WHERE id = ?1");
        let found = connection.query_row(&sql, [id.as_str()], token_row).optional()?;
        let Some(row) = found else { return Ok(None) };
        let maker = TenantKey(row.key.0.clone(), row.maker.clone());
        Ok(role(&connection, &maker)?.map(|role| (row, role)))
    }

    /// Returns all tokens of a tenant, the newest first.
    pub(crate) fn tokens(&self, tenant: &TenantId) -> Result<Vec<TokenRow>, StoreError> {
        let connection = self.locked();
        let sql = format!(
            "SELECT {TOKEN_COLUMNS} FROM token WHERE tenant = ?1 ORDER BY created DESC, id"
        );
        let mut query = connection.prepare(&sql)?;
        let rows = query.query_map([tenant.as_str()], token_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Revokes a token. Returns `false` if the tenant has no such token, or if it is revoked already.
    pub(crate) fn revoke(&self, key: &TenantKey<TokenId>, now: Millis) -> Result<bool, StoreError> {
        let revoked = self.locked().execute(
            "UPDATE token SET revoked = ?3 WHERE tenant = ?1 AND id = ?2 AND revoked IS NULL",
            params![key.0.as_str(), key.1.as_str(), stored(now)],
        )?;
        Ok(revoked == 1)
    }

    fn locked(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const TOKEN_COLUMNS: &str =
    "tenant, id, maker, name, kind, scopes, hash, created, expires, revoked";

fn put_role(
    change: &Transaction<'_>,
    tenant: &TenantId,
    principal: &Principal,
    role: Role,
    now: Millis,
) -> Result<(), StoreError> {
    change.execute(
        "INSERT INTO principal (tenant, id, role, created) VALUES (?1, ?2, ?3, ?4)",
        params![tenant.as_str(), principal.to_string(), role.name(), stored(now)],
    )?;
    Ok(())
}

fn role(
    connection: &Connection,
    TenantKey(tenant, principal): &TenantKey<Principal>,
) -> Result<Option<Role>, StoreError> {
    let found = connection.query_row(
        "SELECT role FROM principal WHERE tenant = ?1 AND id = ?2",
        params![tenant.as_str(), principal.to_string()],
        |row| parsed(row, 0),
    );
    Ok(found.optional()?)
}

fn session_row(row: &Row<'_>) -> rusqlite::Result<SessionRow> {
    Ok(SessionRow {
        owner: owner(row, 0, 1)?,
        id: row.get(2)?,
        host: row.get(3)?,
        created: millis(row, 4)?,
        seen: millis(row, 5)?,
        expires: millis(row, 6)?,
    })
}

fn token_row(row: &Row<'_>) -> rusqlite::Result<TokenRow> {
    let id = TokenId::parse(&row.get::<_, String>(1)?).ok_or_else(|| invalid(1))?;
    let kind: String = row.get(4)?;
    let kind = TokenKind::ALL.into_iter().find(|known| known.name() == kind);
    let scopes: String = row.get(5)?;
    let scopes = scopes.split_whitespace().map(str::parse).collect::<Result<_, _>>();
    Ok(TokenRow {
        key: TenantKey(parsed(row, 0)?, id),
        maker: parsed(row, 2)?,
        name: row.get(3)?,
        kind: kind.ok_or_else(|| invalid(4))?,
        scopes: scopes.map_err(|_| invalid(5))?,
        hash: row.get(6)?,
        created: millis(row, 7)?,
        expires: millis(row, 8)?,
        revoked: row.get::<_, Option<i64>>(9)?.and_then(|it| Millis::try_from(it).ok()),
    })
}

fn owner(row: &Row<'_>, tenant: usize, principal: usize) -> rusqlite::Result<TenantKey<Principal>> {
    Ok(TenantKey(parsed(row, tenant)?, parsed(row, principal)?))
}

/// Reads a column whose text has a type of its own. Another text means that the database is damaged.
fn parsed<T: std::str::FromStr>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    row.get::<_, String>(column)?.parse().map_err(|_| invalid(column))
}

fn millis(row: &Row<'_>, column: usize) -> rusqlite::Result<Millis> {
    Millis::try_from(row.get::<_, i64>(column)?).map_err(|_| invalid(column))
}

fn invalid(column: usize) -> rusqlite::Error {
    rusqlite::Error::IntegralValueOutOfRange(column, 0)
}

/// SQLite has signed integers. A time beyond their range is far in the future.
fn stored(time: Millis) -> i64 {
    i64::try_from(time).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open() -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("gateway.db")).unwrap();
        (dir, store)
    }

    fn key(tenant: &str, principal: &str) -> TenantKey<Principal> {
        TenantKey(tenant.parse().unwrap(), principal.parse().unwrap())
    }

    fn session(owner: &TenantKey<Principal>, id: &str) -> SessionRow {
        let (owner, host) = (owner.clone(), "a.localhost:1".to_owned());
        SessionRow { owner, id: id.to_owned(), host, created: 1, seen: 1, expires: 1000 }
    }

    #[test]
    fn installation_has_the_same_random_name_and_key_after_a_restart() {
        let (dir, store) = open();
        let first = store.installation().unwrap();
        drop(store);
        let again = Store::open(&dir.path().join("gateway.db")).unwrap().installation().unwrap();
        assert_eq!((first.name.clone(), first.key), (again.name, again.key));
        assert!(first.name.starts_with("belljar-") && first.name.ends_with(".localhost"));
        assert_ne!(open().1.installation().unwrap().name, first.name);
    }

    #[test]
    fn login_link_is_valid_once_until_it_expires_and_on_its_host_only() {
        let (_dir, store) = open();
        let ada = key("local", "user:1");
        store.put_link([1; 32], &ada, "a", 100).unwrap();
        assert_eq!(store.take_link([1; 32], "b", 50).unwrap(), LinkUse::Gone);
        let valid = LinkUse::Valid { owner: ada.clone(), host: "a".to_owned() };
        assert_eq!(store.take_link([1; 32], "a", 50).unwrap(), valid);
        assert_eq!(store.take_link([1; 32], "a", 50).unwrap(), LinkUse::Gone);
        store.put_link([2; 32], &ada, "a", 100).unwrap();
        assert_eq!(store.take_link([2; 32], "a", 100).unwrap(), LinkUse::Gone);
    }

    #[test]
    fn session_ends_when_it_expires_is_idle_or_loses_its_person() {
        let (_dir, store) = open();
        let ada = key("local", "user:1");
        store.create_tenant(&ada, 1).unwrap();
        for (number, (now, idle, is_valid)) in
            [(999, 1000, true), (1000, 5000, false), (500, 499, false)].into_iter().enumerate()
        {
            let hash = [u8::try_from(number).unwrap(); 32];
            store.put_session(hash, &session(&ada, &number.to_string())).unwrap();
            assert_eq!(store.session(hash, now, idle).unwrap().is_some(), is_valid, "{now} {idle}");
        }
        store.put_session([9; 32], &session(&key("local", "user:2"), "9")).unwrap();
        assert_eq!(store.session([9; 32], 2, 100).unwrap(), None, "a principal without a role");
    }

    #[test]
    fn f08_objects_of_another_tenant_are_unknown() {
        let (_dir, store) = open();
        let (ada, bob) = (key("local", "user:1"), key("team-7", "person:x"));
        for owner in [&ada, &bob] {
            assert!(store.create_tenant(owner, 1).unwrap());
            assert!(!store.create_tenant(owner, 1).unwrap(), "a tenant is created once");
        }
        store.put_session([1; 32], &session(&ada, "s1")).unwrap();
        let token = TokenRow {
            key: TenantKey(ada.0.clone(), TokenId::parse("0123abcd").unwrap()),
            maker: ada.1.clone(),
            name: "ci".to_owned(),
            kind: TokenKind::Service,
            scopes: vec![Scope::BoxesRead, Scope::Mcp],
            hash: vec![7; 32],
            created: 1,
            expires: 9,
            revoked: None,
        };
        assert!(store.put_token(&token).unwrap());
        assert!(!store.put_token(&token).unwrap(), "the public part is unique");
        assert_eq!(store.token(&token.key.1).unwrap(), Some((token.clone(), Role::Owner)));
        assert_eq!(store.tokens(&bob.0).unwrap(), []);
        assert_eq!(store.sessions(&bob.0, 2).unwrap(), []);
        assert!(!store.revoke(&TenantKey(bob.0.clone(), token.key.1.clone()), 5).unwrap());
        assert!(!store.end_session(&TenantKey(bob.0, "s1".to_owned())).unwrap());
        assert_eq!(store.tokens(&ada.0).unwrap(), std::slice::from_ref(&token), "control");
        assert!(store.revoke(&token.key, 5).unwrap());
        assert!(!store.revoke(&token.key, 6).unwrap(), "a token is revoked once");
        assert_eq!(store.token(&token.key.1).unwrap().unwrap().0.revoked, Some(5));
        assert!(store.end_session(&TenantKey(ada.0, "s1".to_owned())).unwrap());
    }
}
