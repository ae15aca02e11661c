//! Limits of long-lived streams, and the reasons why the server ends one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::app::App;
use super::identity::{Credential, Identity};
use super::problem::{Problem, ProblemKind};
use super::store::TenantKey;

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

/// The number of open streams of each principal.
#[derive(Default)]
pub(crate) struct OpenStreams(Arc<Mutex<HashMap<Key, usize>>>);

/// An open stream. Dropping the value closes it.
pub(crate) struct OpenStream {
    open: Arc<Mutex<HashMap<Key, usize>>>,
    key: Key,
}

impl OpenStreams {
    /// Counts a new stream of a sender. Refuses a stream above the limit.
    pub(crate) fn open(&self, kind: StreamKind, who: &Identity) -> Result<OpenStream, Problem> {
        let key = (kind, who.key(who.caller.principal.to_string()));
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(key.clone()).or_default();
        if *count >= kind.max() {
            let detail = format!("you have {} open streams already; close one", kind.max());
            return Err(Problem::new(ProblemKind::TOO_MANY, detail).retry_after(5));
        }
        *count += 1;
        Ok(OpenStream { open: Arc::clone(&self.0), key })
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
}

/// Waits until a stream of this sender must end.
pub(crate) async fn end(app: &App, who: &Identity) -> StreamEnd {
    let expires = match &who.credential {
        Credential::LocalSocket => None,
        Credential::Session { expires, .. } | Credential::Token { expires, .. } => Some(*expires),
    };
    let expired = async {
        match expires {
            Some(at) => {
                let left = Duration::from_millis(at.saturating_sub(app.now()));
                tokio::time::sleep(left).await;
            }
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = app.stop.cancelled() => StreamEnd::Drain,
        () = expired => StreamEnd::Expired,
    }
}
