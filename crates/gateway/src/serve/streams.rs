//! Limits of long-lived streams, and the reasons why the server ends one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::app::App;
use super::identity::{Credential, Identity};
use super::problem::{Problem, ProblemKind};
use super::revocation::{Credentials, Watch};
use super::store::{Millis, TenantKey};

/// A kind of stream with a limit per principal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum StreamKind {
    /// Server-sent events.
    Events,
    WebSocket,
}

impl StreamKind {
    const fn max(self) -> usize {
        match self {
            Self::Events => 8,
            Self::WebSocket => 16,
        }
    }
}

type Key = (StreamKind, TenantKey<String>);

/// The number of open streams of each principal, and their credentials.
#[derive(Default)]
pub(crate) struct OpenStreams {
    open: Arc<Mutex<HashMap<Key, usize>>>,
    pub(super) credentials: Credentials,
}

/// An open stream. Dropping the value closes it.
pub(crate) struct OpenStream {
    open: Arc<Mutex<HashMap<Key, usize>>>,
    key: Key,
    /// The time at which the credential expires.
    expires: Option<Millis>,
    watch: Watch,
}

impl OpenStreams {
    /// Counts a new stream of a sender. Refuses a stream above the limit.
    pub(crate) fn open(&self, kind: StreamKind, who: &Identity) -> Result<OpenStream, Problem> {
        let key = (kind, who.key(who.caller.principal.to_string()));
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(key.clone()).or_default();
        if *count >= kind.max() {
            let detail = format!("you have {} open streams already; close one", kind.max());
            return Err(Problem::new(ProblemKind::TOO_MANY, detail).retry_after(5));
        }
        *count += 1;
        let expires = match &who.credential {
            Credential::LocalSocket => None,
            Credential::Session { expires, .. } | Credential::Token { expires, .. } => {
                Some(*expires)
            }
        };
        let watch = self.credentials.watch(who);
        Ok(OpenStream { open: Arc::clone(&self.open), key, expires, watch })
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.key);
            }
        }
    }
}

/// Why the server ends a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamEnd {
    /// The server stops.
    Drain,
    /// The credential has expired.
    Expired,
    /// The credential was revoked, or the rights of its person have changed.
    Revoked,
}

impl OpenStream {
    /// Waits until the stream must end.
    pub(crate) async fn end(&self, app: &App) -> StreamEnd {
        let expired = async {
            match self.expires {
                Some(at) => {
                    let left = Duration::from_millis(at.saturating_sub(app.now()));
                    tokio::time::sleep(left).await;
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = app.stop.cancelled() => StreamEnd::Drain,
            () = self.watch.revoked() => StreamEnd::Revoked,
            () = expired => StreamEnd::Expired,
        }
    }

    /// Returns whether the stream must end now.
    pub(crate) fn must_end(&self, app: &App) -> bool {
        let is_expired = self.expires.is_some_and(|at| at <= app.now());
        app.stop.is_cancelled() || self.watch.is_revoked() || is_expired
    }
}
