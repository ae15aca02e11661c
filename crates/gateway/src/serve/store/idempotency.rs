//! The idempotency keys of requests, with the responses of requests that have ended.

use rusqlite::{OptionalExtension as _, params};

use super::{Millis, Store, StoreError, TenantKey, stored};

/// The time for which a key is kept.
const LIFETIME: Millis = 24 * 60 * 60 * 1000;

/// The stored response of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredResponse {
    pub(crate) status: u16,
    pub(crate) content_type: Option<String>,
    /// `None` if the body contained a credential and was not kept.
    pub(crate) body: Option<Vec<u8>>,
}

/// What the server knows about a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeyState {
    /// The key was unknown, and belongs to this request now.
    New,
    /// The request with this key has ended.
    Done(StoredResponse),
    /// The request with this key runs, or the server was killed while it ran.
    Open,
    /// The key belongs to another request.
    Reused,
}

/// A key of a principal. `1` is the name of the principal.
pub(crate) type RequestKey = TenantKey<(String, String)>;

impl Store {
    /// Takes a key for a request with this digest, before the request has an effect.
    pub(crate) fn take_key(
        &self,
        key: &RequestKey,
        digest: [u8; 32],
        now: Millis,
    ) -> Result<KeyState, StoreError> {
        let mut connection = self.locked();
        let change = connection.transaction()?;
        change.execute(
            "DELETE FROM request_key WHERE created <= ?1",
            [stored(now).saturating_sub(stored(LIFETIME))],
        )?;
        let TenantKey(tenant, (principal, name)) = key;
        let found = change.query_row(
            "SELECT digest, status, content_type, body FROM request_key
             WHERE tenant = ?1 AND principal = ?2 AND name = ?3",
            params![tenant.as_str(), principal, name],
            |row| {
                let status = row.get::<_, Option<u16>>(1)?;
                let (content_type, body) = (row.get(2)?, row.get(3)?);
                let response = status.map(|status| StoredResponse { status, content_type, body });
                Ok((row.get::<_, [u8; 32]>(0)?, response))
            },
        );
        let state = match found.optional()? {
            Some((known, _)) if known != digest => KeyState::Reused,
            Some((_, Some(response))) => KeyState::Done(response),
            Some((_, None)) => KeyState::Open,
            None => {
                change.execute(
                    "INSERT INTO request_key (tenant, principal, name, digest, created)
                     VALUES (?1, ?2, ?3, ?4, ?5)",
                    params![tenant.as_str(), principal, name, digest, stored(now)],
                )?;
                KeyState::New
            }
        };
        change.commit()?;
        Ok(state)
    }

    /// Stores the response of the request with this key.
    pub(crate) fn finish_key(
        &self,
        key: &RequestKey,
        response: &StoredResponse,
    ) -> Result<(), StoreError> {
        let TenantKey(tenant, (principal, name)) = key;
        let StoredResponse { status, content_type, body } = response;
        self.locked().execute(
            "UPDATE request_key SET status = ?4, content_type = ?5, body = ?6
             WHERE tenant = ?1 AND principal = ?2 AND name = ?3",
            params![tenant.as_str(), principal, name, status, content_type, body],
        )?;
        Ok(())
    }

    /// Forgets the key of a request that had no effect.
    pub(crate) fn release_key(&self, key: &RequestKey) -> Result<(), StoreError> {
        let TenantKey(tenant, (principal, name)) = key;
        self.locked().execute(
            "DELETE FROM request_key WHERE tenant = ?1 AND principal = ?2 AND name = ?3",
            params![tenant.as_str(), principal, name],
        )?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(tenant: &str, principal: &str) -> RequestKey {
        TenantKey(tenant.parse().unwrap(), (principal.to_owned(), "k".to_owned()))
    }

    #[test]
    fn key_of_a_request_is_open_then_done_and_free_after_a_day() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("gateway.db")).unwrap();
        let ada = key("local", "user:1");
        let take =
            |key: &RequestKey, digest: u8, now| store.take_key(key, [digest; 32], now).unwrap();
        assert_eq!(take(&ada, 1, 0), KeyState::New);
        assert_eq!(take(&ada, 1, 1), KeyState::Open);
        assert_eq!(take(&ada, 2, 1), KeyState::Reused);
        let response =
            StoredResponse { status: 201, content_type: None, body: Some(b"{}".to_vec()) };
        store.finish_key(&ada, &response).unwrap();
        assert_eq!(take(&ada, 1, 2), KeyState::Done(response));
        for other in [key("local", "user:2"), key("team-7", "user:1")] {
            assert_eq!(take(&other, 1, 3), KeyState::New, "{other:?}");
        }
        assert_eq!(take(&ada, 1, LIFETIME), KeyState::New);
        store.release_key(&ada).unwrap();
        assert_eq!(take(&ada, 2, LIFETIME), KeyState::New);
    }
}
