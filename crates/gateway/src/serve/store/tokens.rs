//! Tokens of the API.

use belljar_model::caller::{Principal, TenantId};
use belljar_model::net::MicroUsd;
use rusqlite::{OptionalExtension as _, Row, params};

use super::people::role;
use super::{
    Millis, Store, StoreError, TenantKey, invalid, millis, optional_millis, parsed, stored,
};
use crate::auth::api_token::TokenId;
use crate::auth::network::Network;
use crate::serve::access::{Role, Scope, TokenKind};

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
    pub(crate) limits: TokenLimits,
    pub(crate) created: Millis,
    pub(crate) expires: Millis,
    pub(crate) revoked: Option<Millis>,
}

/// The limits of a token beside its scopes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TokenLimits {
    /// The networks of the clients that can use the token. Without networks, all clients can.
    pub(crate) networks: Vec<Network>,
    /// The money that runs of the token may spend in a day of UTC.
    pub(crate) money_per_day: Option<MicroUsd>,
    /// The boxes of the token that may run at once.
    pub(crate) boxes: Option<u32>,
}

const TOKEN_COLUMNS: &str = "tenant, id, maker, name, kind, scopes, hash, created, expires, revoked, \
                             networks, money_per_day, boxes";

impl Store {
    /// Stores a new token. Returns `false` if another token has its public part.
    pub(crate) fn put_token(&self, row: &TokenRow) -> Result<bool, StoreError> {
        let scopes: Vec<&str> = row.scopes.iter().map(|scope| scope.name()).collect();
        let TokenLimits { networks, money_per_day, boxes } = &row.limits;
        let networks: Vec<String> = networks.iter().map(ToString::to_string).collect();
        let added = self.locked().execute(
            "INSERT INTO token (id, tenant, maker, name, kind, scopes, hash, created, expires,
                                networks, money_per_day, boxes)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12) ON CONFLICT DO NOTHING",
            params![
                row.key.1.as_str(),
                row.key.0.as_str(),
                row.maker.to_string(),
                row.name,
                row.kind.name(),
                scopes.join(" "),
                row.hash,
                stored(row.created),
                stored(row.expires),
                networks.join(" "),
                money_per_day.map(|money| stored(money.0)),
                boxes
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

    /// Returns a person and the principals of all tokens that the person made. The name of a token is never
    /// given to a token of another person.
    pub(crate) fn principals_of(
        &self,
        person: &TenantKey<Principal>,
    ) -> Result<Vec<Principal>, StoreError> {
        let connection = self.locked();
        let mut query = connection.prepare_cached(
            "SELECT DISTINCT kind, name FROM token WHERE tenant = ?1 AND maker = ?2",
        )?;
        let TenantKey(tenant, maker) = person;
        let rows = query.query_map(params![tenant.as_str(), maker.to_string()], |row| {
            let kind = token_kind(row, 0)?.principal();
            Principal::new(kind, &row.get::<_, String>(1)?).map_err(|_| invalid(1))
        })?;
        let mut principals = rows.collect::<Result<Vec<_>, _>>()?;
        principals.push(maker.clone());
        Ok(principals)
    }

    /// Sets the time at which a valid token expires.
    pub(crate) fn renew(
        &self,
        key: &TenantKey<TokenId>,
        expires: Millis,
    ) -> Result<(), StoreError> {
        self.locked().execute(
            "UPDATE token SET expires = ?3 WHERE tenant = ?1 AND id = ?2 AND revoked IS NULL",
            params![key.0.as_str(), key.1.as_str(), stored(expires)],
        )?;
        Ok(())
    }

    /// Revokes a token. Returns `false` if the tenant has no such token, or if it is revoked already.
    pub(crate) fn revoke(&self, key: &TenantKey<TokenId>, now: Millis) -> Result<bool, StoreError> {
        let revoked = self.locked().execute(
            "UPDATE token SET revoked = ?3 WHERE tenant = ?1 AND id = ?2 AND revoked IS NULL",
            params![key.0.as_str(), key.1.as_str(), stored(now)],
        )?;
        Ok(revoked == 1)
    }
}

fn token_row(row: &Row<'_>) -> rusqlite::Result<TokenRow> {
    let id = TokenId::parse(&row.get::<_, String>(1)?).ok_or_else(|| invalid(1))?;
    let scopes: String = row.get(5)?;
    let scopes = scopes.split_whitespace().map(str::parse).collect::<Result<_, _>>();
    Ok(TokenRow {
        key: TenantKey(parsed(row, 0)?, id),
        maker: parsed(row, 2)?,
        name: row.get(3)?,
        kind: token_kind(row, 4)?,
        scopes: scopes.map_err(|_| invalid(5))?,
        hash: row.get(6)?,
        created: millis(row, 7)?,
        expires: millis(row, 8)?,
        revoked: optional_millis(row, 9)?,
        limits: limits(row)?,
    })
}

/// Reads the limits of a token. A limit that cannot be read is an error, not a missing limit.
fn limits(row: &Row<'_>) -> rusqlite::Result<TokenLimits> {
    let networks: String = row.get(10)?;
    let networks = networks.split_whitespace().map(str::parse).collect::<Result<_, _>>();
    Ok(TokenLimits {
        networks: networks.map_err(|_| invalid(10))?,
        money_per_day: optional_millis(row, 11)?.map(MicroUsd),
        boxes: row.get(12)?,
    })
}

fn token_kind(row: &Row<'_>, column: usize) -> rusqlite::Result<TokenKind> {
    let name: String = row.get(column)?;
    let kind = TokenKind::ALL.into_iter().find(|known| known.name() == name);
    kind.ok_or_else(|| invalid(column))
}
