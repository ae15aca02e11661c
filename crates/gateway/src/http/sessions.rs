//! The sessions of one token.
//!
//! Each token has its own table, so the session of another token is unknown here. No code compares
//! owners, so no code can forget to. The server generates session ids; clients never choose one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use belljar_model::Caller;
use futures_core::Stream;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError, SessionTransport,
};
use rmcp::transport::streamable_http_server::session::{
    RestoreOutcome, ServerSseMessage, SessionId, SessionManager,
};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use crate::mcp::context::StateLifetime;
use crate::mcp::service::Service;
use crate::mcp::session::NoRandomness;
use crate::mcp::slot::{BusyGuard, KeptSessions, SessionLimits, SessionSlot};

/// The timeout for the running calls of a session that ends.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// All MCP sessions of one token, and the sessions of its requests that name none.
pub(super) struct Sessions<S> {
    service: Arc<S>,
    owner: Caller,
    /// The number of the client, which is the index of the token.
    client: usize,
    sdk: LocalSessionManager,
    limits_per_session: SessionLimits,
    max_sessions: usize,
    table: Mutex<SessionTable>,
    /// The limit of running calls of all requests without a session.
    stateless_calls: Arc<Semaphore>,
    closing: TaskTracker,
}

#[derive(Default)]
struct SessionTable {
    slots: HashMap<SessionId, Arc<SessionSlot>>,
    /// The number of reserved sessions that are not yet in `slots`.
    starting: usize,
    /// The guards of sessions without a first response, so that they do not expire.
    opening: HashMap<SessionId, BusyGuard>,
    /// The sessions of requests that name none. Such a session ends with its request, unless the
    /// request keeps it.
    stateless: HashMap<String, Arc<SessionSlot>>,
}

/// The reason why a session could not be created or used.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionsError {
    #[error(transparent)]
    Random(#[from] NoRandomness),
    #[error(transparent)]
    Sdk(#[from] LocalSessionManagerError),
    #[error("the generated session id is already in use")]
    DuplicateId,
}

/// A reservation for a session that is about to be created.
pub(super) struct SessionReservation<'a, S: Service>(&'a Sessions<S>);

impl<S: Service> Drop for SessionReservation<'_, S> {
    fn drop(&mut self) {
        self.0.table().starting -= 1;
    }
}

impl<S: Service> Sessions<S> {
    pub(super) fn new(
        service: Arc<S>,
        owner: Caller,
        client: usize,
        limits_per_session: SessionLimits,
        max_sessions: usize,
    ) -> Self {
        let mut sdk = LocalSessionManager::default();
        // Idle sessions are tracked here: a session with a long call is not idle.
        sdk.session_config.keep_alive = None;
        let (table, closing) = (Mutex::default(), TaskTracker::new());
        let stateless_calls = Arc::new(Semaphore::new(limits_per_session.calls));
        Self {
            service,
            owner,
            client,
            sdk,
            limits_per_session,
            max_sessions,
            table,
            stateless_calls,
            closing,
        }
    }

    fn table(&self) -> MutexGuard<'_, SessionTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves space for one more session. If the limit is reached, the session that was idle for the
    /// longest time ends. Returns `None` if all sessions are busy.
    pub(super) fn reserve(self: &Arc<Self>) -> Option<SessionReservation<'_, S>> {
        let mut table = self.table();
        if table.slots.len() + table.starting >= self.max_sessions {
            let id = longest_idle(table.slots.iter().map(|(id, slot)| (id, slot.idle_time())))?;
            let id = Arc::clone(id);
            let slot = table.slots.remove(&id);
            let sessions = Arc::clone(self);
            self.closing.spawn(async move { sessions.close(&id, slot).await });
        }
        table.starting += 1;
        Some(SessionReservation(self))
    }

    /// Returns the session with this id and a guard, so that it does not expire during a request.
    pub(super) fn find(&self, id: &str) -> Option<(Arc<SessionSlot>, BusyGuard)> {
        let table = self.table();
        let slot = table.slots.get(id)?;
        Some((Arc::clone(slot), slot.busy()))
    }

    /// Creates the session of a request that names none. It ends with the request, unless the
    /// request keeps it.
    pub(super) fn stateless(
        self: &Arc<Self>,
    ) -> Result<(Arc<SessionSlot>, BusyGuard), NoRandomness> {
        let slot = SessionSlot::for_request(&self.owner, self.client, &self.stateless_calls)?;
        let busy = slot.busy();
        self.table().stateless.insert(slot.id.to_string(), Arc::clone(&slot));
        let (sessions, watched) = (Arc::clone(self), Arc::clone(&slot));
        self.closing.spawn(async move {
            tokio::select! {
                () = watched.wait_until_idle() => sessions.end_of_request(&watched),
                () = watched.ending.cancelled() => {}
            }
        });
        Ok((slot, busy))
    }

    /// Ends the session of a request, unless the request kept it. Kept sessions above the limit end,
    /// the longest idle ones first.
    fn end_of_request(&self, slot: &SessionSlot) {
        let ended = {
            let mut table = self.table();
            match slot.retention.lifetime() {
                StateLifetime::Request => {
                    Vec::from_iter(table.stateless.remove(&slot.id.to_string()))
                }
                StateLifetime::Session => table.remove_kept_above(self.max_sessions),
            }
        };
        ended.into_iter().for_each(|slot| self.end(slot));
    }

    /// Ends all sessions that were idle for `after`.
    pub(super) async fn expire(&self, after: Duration) {
        let over = |slot: &Arc<SessionSlot>| slot.idle_time().is_some_and(|idle| idle >= after);
        let (ids, stateless) = {
            let mut table = self.table();
            let over_ids = table.slots.iter().filter(|(_, slot)| over(slot));
            let ids: Vec<SessionId> = over_ids.map(|(id, _)| Arc::clone(id)).collect();
            let stateless = table.stateless.extract_if(|_, slot| over(slot));
            (ids, stateless.map(|(_, slot)| slot).collect::<Vec<_>>())
        };
        stateless.into_iter().for_each(|slot| self.end(slot));
        for id in ids {
            // Checked again under the lock: a request can have arrived since.
            let slot = {
                let mut table = self.table();
                let still = table.slots.get(&id).is_some_and(over);
                still.then(|| table.slots.remove(&id)).flatten()
            };
            self.close(&id, slot).await;
        }
    }

    /// Ends all sessions and waits until they are closed.
    pub(super) async fn close_all(&self) {
        let (slots, stateless) = {
            let mut table = self.table();
            (std::mem::take(&mut table.slots), std::mem::take(&mut table.stateless))
        };
        stateless.into_values().for_each(|slot| self.end(slot));
        for (id, slot) in slots {
            self.close(&id, Some(slot)).await;
        }
        self.closing.close();
        self.closing.wait().await;
    }

    async fn close(&self, id: &SessionId, slot: Option<Arc<SessionSlot>>) {
        let Some(slot) = slot else { return };
        self.end(slot);
        // An error means that the session is already gone. The timeout protects other sessions from
        // a client that does not read; such a session ends with its connection.
        drop(tokio::time::timeout(CLOSE_TIMEOUT, self.sdk.close_session(id)).await);
    }

    /// Cancels the calls of a session and notifies the service when they have ended.
    fn end(&self, slot: Arc<SessionSlot>) {
        let service = Arc::clone(&self.service);
        self.closing.spawn(async move {
            slot.ending.cancel();
            drop(tokio::time::timeout(CLOSE_TIMEOUT, slot.wait_until_idle()).await);
            service.closed(&slot.caller);
        });
    }
}

impl SessionTable {
    /// Removes kept sessions above the limit, the longest idle ones first. Busy ones stay.
    fn remove_kept_above(&mut self, most: usize) -> Vec<Arc<SessionSlot>> {
        let mut removed = Vec::new();
        loop {
            let kept = |slot: &SessionSlot| slot.retention.lifetime() == StateLifetime::Session;
            let kept = self.stateless.iter().filter(|(_, slot)| kept(slot));
            let kept: Vec<_> = kept.map(|(id, slot)| (id, slot.idle_time())).collect();
            if kept.len() <= most {
                return removed;
            }
            let Some(id) = longest_idle(kept).cloned() else { return removed };
            removed.extend(self.stateless.remove(&id));
        }
    }
}

/// Returns the session that was idle for the longest time. A busy session has no idle time.
fn longest_idle<T>(sessions: impl IntoIterator<Item = (T, Option<Duration>)>) -> Option<T> {
    let idle = sessions.into_iter().filter_map(|(id, idle)| Some((id, idle?)));
    idle.max_by_key(|(_, idle)| *idle).map(|(id, _)| id)
}

impl<S: Service> KeptSessions for Sessions<S> {
    fn find_kept(&self, id: &str) -> Option<(Arc<SessionSlot>, BusyGuard)> {
        let table = self.table();
        let slot = table.stateless.get(id)?;
        let is_kept = slot.retention.lifetime() == StateLifetime::Session;
        is_kept.then(|| (Arc::clone(slot), slot.busy()))
    }
}

impl<S: Service> SessionManager for Sessions<S> {
    type Error = SessionsError;
    type Transport = SessionTransport;

    async fn create_session(&self) -> Result<(SessionId, SessionTransport), SessionsError> {
        let slot = SessionSlot::new(&self.owner, self.client, self.limits_per_session)?;
        let id: SessionId = slot.id.to_string().into();
        // This is the only function of the SDK that accepts an id of ours.
        let restored = self.sdk.restore_session(Arc::clone(&id)).await?;
        let RestoreOutcome::Restored(transport) = restored else {
            return Err(SessionsError::DuplicateId);
        };
        let mut table = self.table();
        table.opening.insert(Arc::clone(&id), slot.busy());
        table.slots.insert(Arc::clone(&id), slot);
        drop(table);
        Ok((id, transport))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, SessionsError> {
        let busy = self.table().opening.remove(id);
        let answer = self.sdk.initialize_session(id, message).await;
        drop(busy);
        Ok(answer?)
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, SessionsError> {
        Ok(self.table().slots.contains_key(id))
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), SessionsError> {
        let slot = self.table().slots.remove(id);
        self.close(id, slot).await;
        Ok(())
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionsError> {
        Ok(self.sdk.create_stream(id, message).await?)
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), SessionsError> {
        Ok(self.sdk.accept_message(id, message).await?)
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionsError> {
        Ok(self.sdk.create_standalone_stream(id).await?)
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionsError> {
        Ok(self.sdk.resume(id, last_event_id).await?)
    }
}
