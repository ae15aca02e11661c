//! The senders of the last second, so that not every request of a busy client waits for a thread and the database.
//!
//! **Invariant:** a sender is known only while nobody has written to the database since it was read, and for at most
//! a second. So a revocation has effect at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::HeaderMap;
use http::header::{AUTHORIZATION, COOKIE, HOST};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::identity::{Credential, Identity};
use super::store::{Changes, Millis};

/// The time for which a sender is known.
const MAX_AGE: Duration = Duration::from_secs(1);
/// The maximum number of known senders.
const MAX_SENDERS: usize = 1024;

/// The hash of the headers that decide who sends a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct CredentialHash([u8; 32]);

impl CredentialHash {
    /// Returns the hash of the headers of a request. `None` without a credential.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let has_credential = headers.contains_key(AUTHORIZATION) || headers.contains_key(COOKIE);
        has_credential.then(|| {
            let mut hash = Sha256::new();
            for name in [HOST, AUTHORIZATION, COOKIE] {
                for value in headers.get_all(&name) {
                    hash.update(name.as_str());
                    hash.update(value.len().to_be_bytes());
                    hash.update(value.as_bytes());
                }
            }
            Self(hash.finalize().into())
        })
    }
}

#[derive(Debug)]
struct Known {
    sender: Arc<Identity>,
    /// The state of the database before the sender was read.
    changes: Changes,
    since: Instant,
}

/// The senders of the last second.
#[derive(Debug, Default)]
pub(crate) struct KnownSenders(Mutex<HashMap<CredentialHash, Known>>);

impl KnownSenders {
    /// Finds a sender. `changes` is the current state of the database, and `now` the time of day.
    pub(crate) fn find(
        &self,
        hash: CredentialHash,
        changes: Changes,
        now: Millis,
    ) -> Option<Arc<Identity>> {
        let senders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = senders.get(&hash)?;
        let is_expired = match known.sender.credential {
            Credential::LocalSocket => false,
            Credential::Session { expires, .. } | Credential::Token { expires, .. } => {
                expires <= now
            }
        };
        let is_current = known.changes == changes && known.since.elapsed() < MAX_AGE;
        (is_current && !is_expired).then(|| Arc::clone(&known.sender))
    }

    /// Adds a sender. `changes` is the state of the database before the sender was read.
    pub(crate) fn add(&self, hash: CredentialHash, changes: Changes, sender: Arc<Identity>) {
        let mut senders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if senders.len() >= MAX_SENDERS {
            senders.retain(|_, known| known.changes == changes && known.since.elapsed() < MAX_AGE);
        }
        if senders.len() < MAX_SENDERS {
            senders.insert(hash, Known { sender, changes, since: Instant::now() });
        }
    }
}

#[cfg(test)]
mod tests {
    use belljar_model::caller::Caller;

    use super::*;
    use crate::auth::api_token::TokenId;
    use crate::serve::store::{Store, TenantKey};

    fn hash(headers: &[(&'static str, &'static str)]) -> Option<CredentialHash> {
        let pairs = headers.iter().map(|(name, value)| {
            (name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap())
        });
        CredentialHash::of(&pairs.collect())
    }

    #[test]
    fn hash_depends_on_host_and_credential_only() {
        assert_eq!(hash(&[("host", "a")]), None);
        let token = hash(&[("host", "a"), ("authorization", "Bearer x")]);
        assert!(token.is_some());
        assert_eq!(token, hash(&[("host", "a"), ("authorization", "Bearer x"), ("range", "1")]));
        for other in [
            &[("host", "b"), ("authorization", "Bearer x")][..],
            &[("host", "a"), ("authorization", "Bearer y")],
            &[("host", "a"), ("cookie", "Bearer x")],
            &[("host", "a"), ("authorization", "Bearer x"), ("cookie", "a=b")],
        ] {
            assert_ne!(hash(other), token, "{other:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn f17_sender_is_forgotten_after_a_change_an_expiry_or_a_second() {
        let hash = hash(&[("authorization", "Bearer x")]).unwrap();
        let mut sender = Identity::local(Caller::local(1000));
        let id = TokenId::parse("0123abcd").unwrap();
        sender.credential = Credential::Token { id, expires: 100 };
        let sender = Arc::new(sender);
        let senders = KnownSenders::default();
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("gateway.db")).unwrap();
        let changes = store.changes();
        assert!(senders.find(hash, changes, 99).is_none());
        senders.add(hash, changes, Arc::clone(&sender));
        assert!(senders.find(hash, store.changes(), 99).is_some(), "control");
        assert!(senders.find(hash, changes, 100).is_none(), "the token has expired");
        store.installation().unwrap();
        assert!(senders.find(hash, store.changes(), 99).is_none(), "this process wrote");
        let other = Store::open(&dir.path().join("gateway.db")).unwrap();
        let changes = store.changes();
        let owner = TenantKey("local".parse().unwrap(), "user:1".parse().unwrap());
        other.create_tenant(&owner, 1).unwrap();
        assert_ne!(store.changes(), changes, "another process wrote");
        let changes = store.changes();
        senders.add(hash, changes, sender);
        assert!(senders.find(hash, changes, 99).is_some(), "control");
        tokio::time::advance(MAX_AGE).await;
        assert!(senders.find(hash, changes, 99).is_none());
    }
}
