//! Ends the streams of credentials that were revoked, and of people whose role has changed.
//!
//! A request is authenticated once, but a stream lives on. While streams are open, [`run`] compares each of
//! their credentials with the database at intervals. So it does not matter which function or which process
//! revoked a credential. Sessions that expire are no concern of this module: a stream knows that time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::access::Role;
use super::app::App;
use super::identity::{Credential, Identity};
use super::store::{Store, StoreError, StoredCredential, Version};

/// The time between two comparisons. A stream ends within one second after its credential was revoked.
const INTERVAL: Duration = Duration::from_millis(400);

/// A credential with the role that its streams were opened with.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Opened {
    credential: StoredCredential,
    role: Role,
}

/// The credentials with open streams.
#[derive(Default)]
pub(crate) struct Credentials {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    open: Mutex<HashMap<Opened, Entry>>,
    /// Wakes the comparison when the first stream is opened.
    added: Notify,
}

struct Entry {
    /// The number of open streams.
    streams: usize,
    /// The version of the database that the credential was compared with.
    compared: Option<Version>,
    revoked: CancellationToken,
}

/// Tells one stream whether its credential was revoked. Dropping the value ends the watch.
pub(crate) struct Watch {
    /// `None` for clients of the local socket, which have no credential.
    watched: Option<(Arc<Shared>, Opened)>,
    revoked: CancellationToken,
}

impl Shared {
    fn open(&self) -> MutexGuard<'_, HashMap<Opened, Entry>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Credentials {
    /// Watches the credential of a sender who opens a stream.
    pub(crate) fn watch(&self, who: &Identity) -> Watch {
        let credential = match &who.credential {
            Credential::LocalSocket => {
                return Watch { watched: None, revoked: CancellationToken::new() };
            }
            Credential::Session { id, .. } => StoredCredential::Session(who.key(id.clone())),
            Credential::Token { id, .. } => StoredCredential::Token(who.key(id.clone())),
        };
        let opened = Opened { credential, role: who.role };
        let mut open = self.shared.open();
        let entry = open.entry(opened.clone()).or_insert_with(|| Entry {
            streams: 0,
            compared: None,
            revoked: CancellationToken::new(),
        });
        entry.streams += 1;
        let revoked = entry.revoked.clone();
        drop(open);
        self.shared.added.notify_one();
        Watch { watched: Some((Arc::clone(&self.shared), opened)), revoked }
    }

    /// Returns the credentials that were not compared with this version of the database.
    fn changed_since(&self, version: Version) -> Vec<Opened> {
        let open = self.shared.open();
        let is_old = |entry: &Entry| entry.compared != Some(version);
        open.iter().filter(|(_, entry)| is_old(entry)).map(|(opened, _)| opened.clone()).collect()
    }

    fn compared(&self, opened: &Opened, version: Version, is_valid: bool) {
        if let Some(entry) = self.shared.open().get_mut(opened) {
            entry.compared = Some(version);
            if !is_valid {
                entry.revoked.cancel();
            }
        }
    }

    /// Waits until a stream is open, and then for the time of the next comparison.
    async fn next_comparison(&self) {
        while self.shared.open().is_empty() {
            self.shared.added.notified().await;
        }
        tokio::time::sleep(INTERVAL).await;
    }

    /// Compares the credentials with the database, if the database has changed. Blocks.
    fn compare(&self, store: &Store) -> Result<(), StoreError> {
        // A change after this line has another version, and is found the next time.
        let version = store.version()?;
        for opened in self.changed_since(version) {
            let role = store.role_of_credential(&opened.credential)?;
            self.compared(&opened, version, role == Some(opened.role));
        }
        Ok(())
    }

    /// Ends all streams. Their clients authenticate again.
    fn end_all(&self) {
        self.shared.open().values().for_each(|entry| entry.revoked.cancel());
    }
}

impl Watch {
    /// Waits until the credential is revoked, or the role of its person has changed.
    pub(crate) async fn revoked(&self) {
        self.revoked.cancelled().await;
    }

    pub(crate) fn is_revoked(&self) -> bool {
        self.revoked.is_cancelled()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let Some((shared, opened)) = &self.watched else { return };
        let mut open = shared.open();
        if let Some(entry) = open.get_mut(opened) {
            entry.streams -= 1;
            if entry.streams == 0 {
                open.remove(opened);
            }
        }
    }
}

/// Ends streams of revoked credentials until the server stops.
pub(super) async fn run(app: &Arc<App>) {
    loop {
        tokio::select! {
            () = app.streams.credentials.next_comparison() => {}
            () = app.stop.cancelled() => return,
        }
        let shared = Arc::clone(app);
        // Not one of the limited calls of requests, which can all be busy.
        let compared =
            tokio::task::spawn_blocking(move || shared.streams.credentials.compare(&shared.store));
        if !matches!(compared.await, Ok(Ok(()))) {
            tracing::error!("the credentials of open streams cannot be checked; the streams end");
            app.streams.credentials.end_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use belljar_model::caller::{Caller, Principal};

    use super::*;
    use crate::auth::api_token::TokenId;
    use crate::serve::access::{Scope, TokenKind};
    use crate::serve::store::{SessionRow, TenantKey, TokenLimits, TokenRow};

    fn store() -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("gateway.db")).unwrap();
        (dir, store)
    }

    fn person() -> TenantKey<Principal> {
        TenantKey("local".parse().unwrap(), "user:1".parse().unwrap())
    }

    fn with_session(id: &str) -> Identity {
        let mut who = Identity::local(Caller::local(1));
        let (id, csrf) = (id.to_owned(), String::new());
        who.credential = Credential::Session { id, csrf, created: 1, expires: u64::MAX };
        who
    }

    fn put_session(store: &Store, number: u8) {
        let (id, host) = (number.to_string(), "a".to_owned());
        let row = SessionRow { owner: person(), id, host, created: 1, seen: 1, expires: u64::MAX };
        store.put_session([number; 32], &row).unwrap();
    }

    #[test]
    fn f17_streams_of_an_ended_session_end_and_those_of_others_do_not() {
        let (_dir, store) = store();
        store.create_tenant(&person(), 1).unwrap();
        [1, 2].into_iter().for_each(|number| put_session(&store, number));
        let credentials = Credentials::default();
        let (first, again) = (with_session("1"), credentials.watch(&with_session("1")));
        let (first, second) = (credentials.watch(&first), credentials.watch(&with_session("2")));
        let local = credentials.watch(&Identity::local(Caller::local(1)));
        let unknown = credentials.watch(&with_session("3"));
        credentials.compare(&store).unwrap();
        let is_revoked = || [&first, &again, &second, &local].map(Watch::is_revoked);
        assert_eq!((is_revoked(), unknown.is_revoked()), ([false; 4], true), "control");
        assert!(store.end_session(&TenantKey(person().0, "1".to_owned())).unwrap());
        credentials.compare(&store).unwrap();
        assert_eq!(is_revoked(), [true, true, false, false]);
        drop((first, again, second, local, unknown));
        assert!(credentials.shared.open().is_empty(), "nothing is watched without a stream");
    }

    #[test]
    fn f17_streams_of_a_revoked_token_end_also_if_another_process_revoked_it() {
        let (dir, store) = store();
        store.create_tenant(&person(), 1).unwrap();
        let id = TokenId::parse("0123abcd").unwrap();
        let row = TokenRow {
            key: TenantKey(person().0, id.clone()),
            maker: person().1,
            name: "ci".to_owned(),
            kind: TokenKind::Service,
            scopes: vec![Scope::BoxesRead],
            hash: vec![7; 32],
            created: 1,
            expires: u64::MAX >> 1,
            revoked: None,
            limits: TokenLimits::default(),
        };
        assert!(store.put_token(&row).unwrap());
        let mut who = with_session("1");
        who.credential = Credential::Token { id, expires: row.expires };
        let credentials = Credentials::default();
        let watch = credentials.watch(&who);
        credentials.compare(&store).unwrap();
        assert!(!watch.is_revoked(), "control");
        let other = Store::open(&dir.path().join("gateway.db")).unwrap();
        assert!(other.revoke(&row.key, 5).unwrap());
        credentials.compare(&store).unwrap();
        assert!(watch.is_revoked());
    }

    #[test]
    fn f17_streams_of_a_person_whose_role_has_changed_end() {
        let (_dir, store) = store();
        store.create_tenant(&person(), 1).unwrap();
        put_session(&store, 1);
        let credentials = Credentials::default();
        let mut who = with_session("1");
        let owner = credentials.watch(&who);
        who.role = Role::Operator; // the role before the change
        let operator = credentials.watch(&who);
        credentials.compare(&store).unwrap();
        assert_eq!((owner.is_revoked(), operator.is_revoked()), (false, true));
    }
}
