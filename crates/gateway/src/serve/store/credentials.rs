//! What long-lived streams need to know about their credentials.

use belljar_model::caller::Principal;
use rusqlite::{OptionalExtension as _, params};

use super::people::role;
use super::{Store, StoreError, TenantKey, parsed};
use crate::auth::api_token::TokenId;
use crate::serve::access::Role;

/// A credential in the database: the public id of a session, or of a token.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum StoredCredential {
    Session(TenantKey<String>),
    Token(TenantKey<TokenId>),
}

/// The version of the database. Every change makes another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    /// The number of rows that this connection has changed.
    own: u64,
    /// The number that SQLite increments for changes of other connections.
    others: i64,
}

impl Store {
    /// Returns the version of the database. This is cheaper than a query.
    pub(crate) fn version(&self) -> Result<Version, StoreError> {
        let connection = self.locked();
        let others = connection.query_row("PRAGMA data_version", [], |row| row.get(0))?;
        Ok(Version { own: connection.total_changes(), others })
    }

    /// Returns the current role of the person who has a session or made a token. `None` if the credential was
    /// revoked, or the person has no role any more. The time at which the credential expires is not compared.
    pub(crate) fn role_of_credential(
        &self,
        credential: &StoredCredential,
    ) -> Result<Option<Role>, StoreError> {
        let connection = self.locked();
        let (tenant, id, sql) = match credential {
            StoredCredential::Session(TenantKey(tenant, id)) => {
                let sql = "SELECT principal FROM session WHERE tenant = ?1 AND id = ?2";
                (tenant, id.as_str(), sql)
            }
            StoredCredential::Token(TenantKey(tenant, id)) => {
                let sql = "SELECT maker FROM token
                           WHERE tenant = ?1 AND id = ?2 AND revoked IS NULL";
                (tenant, id.as_str(), sql)
            }
        };
        let mut query = connection.prepare_cached(sql)?;
        let found = query.query_row(params![tenant.as_str(), id], |row| parsed(row, 0));
        let person: Option<Principal> = found.optional()?;
        person.map_or(Ok(None), |person| role(&connection, &TenantKey(tenant.clone(), person)))
    }
}
