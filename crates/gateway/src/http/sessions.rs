//! The sessions of one token.
//!
//! There is one of these for each token, so that the session of another is not refused but unknown: no
//! code compares owners, and none can forget to. Ids are made here and are never a client's choice.

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
use tokio_util::task::TaskTracker;

use crate::mcp::service::Service;
use crate::mcp::session::NoRandomness;
use crate::mcp::slot::{Busy, SessionSlot, Shares};

/// How long what a session has under way may take to end.
const LAST_CALLS: Duration = Duration::from_secs(5);

/// Every session of one token, and the one that its stateless requests share.
pub(super) struct Sessions<S> {
    service: Arc<S>,
    owner: Caller,
    sdk: LocalSessionManager,
    shares: Shares,
    most: usize,
    table: Mutex<Table>,
    endings: TaskTracker,
}

#[derive(Default)]
struct Table {
    slots: HashMap<SessionId, Arc<SessionSlot>>,
    /// Sessions that are being made and not among the slots yet.
    starting: usize,
    /// Sessions whose first answer is not there yet, which must not grow idle before it is.
    opening: HashMap<SessionId, Busy>,
    stateless: Option<Arc<SessionSlot>>,
}

/// A session that could not be made or used.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionsError {
    #[error(transparent)]
    Random(#[from] NoRandomness),
    #[error(transparent)]
    Sdk(#[from] LocalSessionManagerError),
    #[error("the id of this session is taken")]
    Taken,
}

/// Room for a session that is about to be made.
pub(super) struct Starting<'a, S: Service>(&'a Sessions<S>);

impl<S: Service> Drop for Starting<'_, S> {
    fn drop(&mut self) {
        self.0.table().starting -= 1;
    }
}

impl<S: Service> Sessions<S> {
    pub(super) fn new(service: Arc<S>, owner: Caller, shares: Shares, most: usize) -> Self {
        let mut sdk = LocalSessionManager::default();
        // We know better when a session is idle: a call that runs for long is not.
        sdk.session_config.keep_alive = None;
        let (table, endings) = (Mutex::default(), TaskTracker::new());
        Self { service, owner, sdk, shares, most, table, endings }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for one more session, if there is any.
    pub(super) fn begin(&self) -> Option<Starting<'_, S>> {
        let mut table = self.table();
        let room = table.slots.len() + table.starting < self.most;
        table.starting += usize::from(room);
        room.then(|| Starting(self))
    }

    /// The session of this id, busy from now on, so that it cannot expire under a request.
    pub(super) fn find(&self, id: &str) -> Option<(Arc<SessionSlot>, Busy)> {
        let table = self.table();
        let slot = table.slots.get(id)?;
        Some((Arc::clone(slot), slot.busy()))
    }

    /// The session of all requests that name none.
    pub(super) fn stateless(&self) -> Result<(Arc<SessionSlot>, Busy), NoRandomness> {
        let mut table = self.table();
        let slot = match &table.stateless {
            Some(slot) => Arc::clone(slot),
            None => SessionSlot::new(&self.owner, self.shares)?,
        };
        table.stateless = Some(Arc::clone(&slot));
        let busy = slot.busy();
        Ok((slot, busy))
    }

    /// Ends what nothing has been heard of for so long.
    pub(super) async fn expire(&self, after: Duration) {
        let over = |slot: &Arc<SessionSlot>| slot.idle().is_some_and(|idle| idle >= after);
        let (ids, stateless) = {
            let mut table = self.table();
            let over_ids = table.slots.iter().filter(|(_, slot)| over(slot));
            let ids: Vec<SessionId> = over_ids.map(|(id, _)| Arc::clone(id)).collect();
            (ids, table.stateless.take_if(|slot| over(slot)))
        };
        stateless.into_iter().for_each(|slot| self.end(slot));
        for id in ids {
            // Looked at again under the lock: a request may have come since.
            let slot = {
                let mut table = self.table();
                let still = table.slots.get(&id).is_some_and(over);
                still.then(|| table.slots.remove(&id)).flatten()
            };
            self.close(&id, slot).await;
        }
    }

    /// Ends everything, and waits for it.
    pub(super) async fn close_all(&self) {
        let (slots, stateless) = {
            let mut table = self.table();
            (std::mem::take(&mut table.slots), table.stateless.take())
        };
        stateless.into_iter().for_each(|slot| self.end(slot));
        for (id, slot) in slots {
            self.close(&id, Some(slot)).await;
        }
        self.endings.close();
        self.endings.wait().await;
    }

    async fn close(&self, id: &SessionId, slot: Option<Arc<SessionSlot>>) {
        let Some(slot) = slot else { return };
        self.end(slot);
        // It fails for sessions that are gone, which is what we want, and waits for a client that does not
        // read, which must not hold up others: such a session ends with its connection.
        drop(tokio::time::timeout(LAST_CALLS, self.sdk.close_session(id)).await);
    }

    /// Stops what the session does, and tells the service once it has stopped.
    fn end(&self, slot: Arc<SessionSlot>) {
        let service = Arc::clone(&self.service);
        self.endings.spawn(async move {
            slot.ending.cancel();
            drop(tokio::time::timeout(LAST_CALLS, slot.free()).await);
            service.closed(&slot.caller);
        });
    }
}

impl<S: Service> SessionManager for Sessions<S> {
    type Error = SessionsError;
    type Transport = SessionTransport;

    async fn create_session(&self) -> Result<(SessionId, SessionTransport), SessionsError> {
        let slot = SessionSlot::new(&self.owner, self.shares)?;
        let id: SessionId = slot.id.to_string().into();
        // The only function of the SDK that takes an id of ours.
        let restored = self.sdk.restore_session(Arc::clone(&id)).await?;
        let RestoreOutcome::Restored(transport) = restored else {
            return Err(SessionsError::Taken);
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
