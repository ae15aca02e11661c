//! The database of the server, `gateway.db`: tenants, principals, tokens, sessions, login links and execs.
//!
//! Secrets are stored as SHA-256. Every object of a tenant is found by a [`TenantKey`], so no function can
//! return or change an object of another tenant by its id alone. A credential is the exception: its hash
//! finds the tenant.

mod credentials;
mod execs;
mod idempotency;
mod people;
mod policies;
mod schema;
mod sessions;
mod tokens;
mod webhooks;

use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use belljar_model::caller::{Principal, TenantId};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

pub(crate) use credentials::{StoredCredential, Version};
pub(crate) use execs::ExecRow;
pub(crate) use idempotency::{KeyState, RequestKey, StoredResponse};
pub(crate) use people::{GroupChange, PersonChange, PersonChanged, PersonRow, RoleFrom};
pub(crate) use policies::{PolicyRow, ProposalRow, ProposalState};
pub use schema::StoreError;
pub(crate) use sessions::{Invite, Link, LinkUse, SessionRow};
pub(crate) use tokens::{TokenLimits, TokenRow};
pub(crate) use webhooks::{Attempt, DeliveryRow, DeliveryState, NewDelivery, WebhookRow};

/// The key of an object of one tenant. Only authentication and the local socket create tenants.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct TenantKey<T>(pub(crate) TenantId, pub(crate) T);

/// A time in milliseconds since 1970.
pub(crate) type Millis = u64;

/// The database of the server.
#[derive(Debug)]
pub(crate) struct Store {
    connection: Mutex<Connection>,
    /// The number of rows that this process has changed.
    changes: AtomicU64,
    /// A number that differs after a change of another process.
    version: AtomicI64,
}

/// The state of the database, for comparisons.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    own: u64,
    version: i64,
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

impl Store {
    /// Opens or creates the database.
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        Ok(Self {
            connection: Mutex::new(schema::open(path)?),
            changes: AtomicU64::new(0),
            version: AtomicI64::new(0),
        })
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

    /// Returns numbers that differ after every change of the database. Does not wait for the database: while another
    /// thread uses it, a change of another process can be unnoticed.
    pub(crate) fn changes(&self) -> Changes {
        if let Ok(connection) = self.connection.try_lock() {
            let version = connection
                .prepare_cached("PRAGMA data_version")
                .and_then(|mut query| query.query_row([], |row| row.get(0)));
            // A version that cannot be read is like a change.
            let version = version.unwrap_or_else(|_| self.version.load(Ordering::Acquire) + 1);
            self.version.store(version, Ordering::Release);
        }
        Changes {
            own: self.changes.load(Ordering::Acquire),
            version: self.version.load(Ordering::Acquire),
        }
    }

    fn locked(&self) -> Locked<'_> {
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        Locked { connection, changes: &self.changes }
    }
}

/// The connection to the database in the hands of one thread. The number of changes is published at the end.
struct Locked<'s> {
    connection: MutexGuard<'s, Connection>,
    changes: &'s AtomicU64,
}

impl Deref for Locked<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.changes.store(self.connection.total_changes(), Ordering::Release);
    }
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

/// Reads a number that can be missing. A negative number means that the database is damaged.
fn optional_millis(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Millis>> {
    let number = row.get::<_, Option<i64>>(column)?;
    number.map(|number| Millis::try_from(number).map_err(|_| invalid(column))).transpose()
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
    use belljar_model::net::MicroUsd;

    use super::*;
    use crate::auth::api_token::TokenId;
    use crate::serve::access::{Role, Scope, TokenKind};

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
        let link = |invite| Link { owner: ada.clone(), host: "a".to_owned(), invite, expires: 100 };
        store.put_link([1; 32], &link(None)).unwrap();
        assert_eq!(store.take_link([1; 32], "b", 50).unwrap(), LinkUse::Gone);
        let (owner, host) = (ada.clone(), "a".to_owned());
        let valid = LinkUse::Valid { owner, host, invite: None };
        assert!(!store.is_invite([1; 32], "a", 50).unwrap());
        assert_eq!(store.take_link([1; 32], "a", 50).unwrap(), valid);
        assert_eq!(store.take_link([1; 32], "a", 50).unwrap(), LinkUse::Gone);
        store.put_link([2; 32], &link(None)).unwrap();
        assert_eq!(store.take_link([2; 32], "a", 100).unwrap(), LinkUse::Gone);
        let invite = Invite { role: Role::Member, maker: "user:2".parse().unwrap() };
        store.put_link([3; 32], &link(Some(invite.clone()))).unwrap();
        assert!(store.is_invite([3; 32], "a", 50).unwrap(), "looking does not use the link");
        assert!(!store.is_invite([3; 32], "b", 50).unwrap());
        assert!(!store.is_invite([3; 32], "a", 100).unwrap());
        let LinkUse::Valid { invite: Some(found), .. } = store.take_link([3; 32], "a", 50).unwrap()
        else {
            panic!("the invitation is valid")
        };
        assert_eq!(found, invite);
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
    fn answer_of_a_provider_is_used_once() {
        let (_dir, store) = open();
        assert!(store.use_login([1; 32], 10, 100).unwrap());
        assert!(!store.use_login([1; 32], 99, 100).unwrap());
        assert!(store.use_login([2; 32], 99, 100).unwrap(), "control");
    }

    #[test]
    fn disabled_person_has_no_session_and_no_token_and_the_last_owner_stays() {
        let (_dir, store) = open();
        let (ada, bob) = (key("local", "user:1"), key("local", "user:2"));
        store.create_tenant(&ada, 1).unwrap();
        let change = |role, disabled| PersonChange { role, disabled };
        let demote = change(Some(Role::Member), None);
        let disable = change(None, Some(true));
        for refused in [demote, disable] {
            let result = store.change_person(&ada, 1, refused, 5).unwrap();
            assert_eq!(result, PersonChanged::LastOwner);
        }
        store.put_person(&bob, Role::Owner, 2).unwrap();
        store.put_session([1; 32], &session(&bob, "s")).unwrap();
        assert_eq!(store.change_person(&bob, 2, disable, 5).unwrap(), PersonChanged::Stale);
        let PersonChanged::Yes(row) = store.change_person(&bob, 1, disable, 5).unwrap() else {
            panic!("another owner is left")
        };
        assert_eq!((row.version, row.disabled), (2, Some(5)));
        assert_eq!(store.session([1; 32], 2, 100).unwrap(), None);
        let result = store.change_person(&ada, 1, demote, 5).unwrap();
        assert_eq!(result, PersonChanged::LastOwner, "a disabled owner does not count");
        let enable = change(None, Some(false));
        assert!(matches!(
            store.change_person(&bob, 2, enable, 6).unwrap(),
            PersonChanged::Yes(row) if row.disabled.is_none() && row.version == 3
        ));
        assert!(matches!(store.change_person(&ada, 1, demote, 5).unwrap(), PersonChanged::Yes(_)));
        let unknown = key("team-7", "user:1");
        assert_eq!(store.change_person(&unknown, 1, demote, 5).unwrap(), PersonChanged::Unknown);
    }

    #[test]
    fn person_without_a_group_leaves_the_tenant_until_a_group_is_back() {
        let (_dir, store) = open();
        let ada = key("local", "person:https://id.example#ada");
        store.create_tenant(&key("local", "user:1"), 1).unwrap();
        store.apply_groups(&ada, GroupChange::Join(Role::Member), 2).unwrap();
        store.put_session([1; 32], &session(&ada, "s")).unwrap();
        store.apply_groups(&ada, GroupChange::Leave, 3).unwrap();
        assert_eq!(store.session([1; 32], 4, 100).unwrap(), None);
        assert_eq!(store.role_of(&ada).unwrap(), None);
        store.apply_groups(&ada, GroupChange::Become(Role::Auditor), 5).unwrap();
        assert_eq!(store.role_of(&ada).unwrap(), Some(Role::Auditor));
        let rows = store.memberships(&ada.1).unwrap();
        assert_eq!(
            (rows.len(), rows[0].role_from, rows[0].left_groups),
            (1, RoleFrom::Groups, None)
        );
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
            limits: TokenLimits {
                networks: vec!["10.0.0.0/8".parse().unwrap(), "::1".parse().unwrap()],
                money_per_day: Some(MicroUsd(1_500_000)),
                boxes: Some(2),
            },
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
