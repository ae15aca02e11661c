//! Login links and sessions.

use belljar_model::caller::{Principal, TenantId};
use rusqlite::{OptionalExtension as _, Row, params};

use super::people::role;
use super::{Millis, Store, StoreError, TenantKey, millis, owner, parsed, stored};
use crate::serve::access::Role;

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

/// A login link or an invitation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    /// The person that the link logs in.
    pub(crate) owner: TenantKey<Principal>,
    /// The host on which the link is valid.
    pub(crate) host: String,
    pub(crate) invite: Option<Invite>,
    pub(crate) expires: Millis,
}

/// What makes a link an invitation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Invite {
    /// The role that the invited person gets.
    pub(crate) role: Role,
    /// The person who made the invitation.
    pub(crate) maker: Principal,
}

/// The result of using the code of a login link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LinkUse {
    /// The code is valid and cannot be used again.
    Valid { owner: TenantKey<Principal>, host: String, invite: Option<Invite> },
    /// The code was used before, has expired or never existed.
    Gone,
}

impl Store {
    /// Stores a login link or an invitation by the hash of its code.
    pub(crate) fn put_link(&self, hash: [u8; 32], link: &Link) -> Result<(), StoreError> {
        let Link { owner: TenantKey(tenant, principal), host, invite, expires } = link;
        self.locked().execute(
            "INSERT INTO link (hash, tenant, principal, host, expires, role, maker)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![
                hash,
                tenant.as_str(),
                principal.to_string(),
                host,
                stored(*expires),
                invite.as_ref().map(|invite| invite.role.name()),
                invite.as_ref().map(|invite| invite.maker.to_string())
            ],
        )?;
        Ok(())
    }

    /// Returns whether a code is that of a valid invitation. The invitation stays valid.
    pub(crate) fn is_invite(
        &self,
        hash: [u8; 32],
        host: &str,
        now: Millis,
    ) -> Result<bool, StoreError> {
        let sql = "SELECT EXISTS (SELECT 1 FROM link WHERE hash = ?1 AND host = ?2 AND expires > ?3
                   AND role IS NOT NULL)";
        Ok(self.locked().query_row(sql, params![hash, host, stored(now)], |row| row.get(0))?)
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
            "DELETE FROM link WHERE hash = ?1 AND host = ?2
             RETURNING tenant, principal, host, role, maker",
            params![hash, host],
            |row| {
                let has_role = row.get::<_, Option<String>>(3)?.is_some();
                let invite = match has_role {
                    true => Some(Invite { role: parsed(row, 3)?, maker: parsed(row, 4)? }),
                    false => None,
                };
                Ok(LinkUse::Valid { owner: owner(row, 0, 1)?, host: row.get(2)?, invite })
            },
        );
        let row = row.optional()?;
        change.commit()?;
        Ok(row.unwrap_or(LinkUse::Gone))
    }

    /// Notes that the answer of an identity provider to a login was used. Returns `false` if it was used
    /// before. An answer is forgotten when its login has expired.
    pub(crate) fn use_login(
        &self,
        hash: [u8; 32],
        now: Millis,
        expires: Millis,
    ) -> Result<bool, StoreError> {
        let mut connection = self.locked();
        let change = connection.transaction()?;
        change.execute("DELETE FROM used_login WHERE expires <= ?1", [stored(now)])?;
        let added = change.execute(
            "INSERT INTO used_login (hash, expires) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
            params![hash, stored(expires)],
        )?;
        change.commit()?;
        Ok(added == 1)
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
