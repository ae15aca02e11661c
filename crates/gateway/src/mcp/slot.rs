//! The state of one session: its owner, its running calls and its idle time.
//!
//! A session is *busy* while a [`BusyGuard`] of it exists: for a running call, a response in
//! transmission or an open stream. Only a session without guards becomes idle.
//!
//! A request that names no session gets a session of its own, which ends with the request unless the
//! request keeps it. A later request can use a kept session only if it knows its id.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use belljar_model::caller::{Caller, SessionId};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::mcp::context::StateRetention;
use crate::mcp::session::{NoRandomness, new_session};

/// The limits of one MCP session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SessionLimits {
    pub(crate) calls: usize,
    pub(crate) streams: usize,
}

/// The state of one MCP session: owner, limits and activity.
#[derive(Debug)]
pub(crate) struct SessionSlot {
    pub(crate) id: SessionId,
    /// The owner of the session, together with the session id.
    pub(crate) caller: Caller,
    /// The number of the client, which is the index of its token.
    pub(crate) client: usize,
    /// Decides whether the session outlives the request that created it.
    pub(crate) retention: StateRetention,
    /// The token that cancels every call of the session.
    pub(crate) ending: CancellationToken,
    calls: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    busy: AtomicUsize,
    free: Notify,
    last_active: Mutex<Instant>,
}

impl SessionSlot {
    /// Creates a new MCP session for `owner`.
    pub(crate) fn new(
        owner: &Caller,
        client: usize,
        limits_per_session: SessionLimits,
    ) -> Result<Arc<Self>, NoRandomness> {
        let calls = Arc::new(Semaphore::new(limits_per_session.calls));
        let streams = limits_per_session.streams;
        Self::create(owner, client, StateRetention::for_session(), calls, streams)
    }

    /// Creates the session of one request. `calls` limits the running calls of all such sessions of
    /// the client together.
    pub(crate) fn for_request(
        owner: &Caller,
        client: usize,
        calls: &Arc<Semaphore>,
    ) -> Result<Arc<Self>, NoRandomness> {
        Self::create(owner, client, StateRetention::for_request(), Arc::clone(calls), 0)
    }

    fn create(
        owner: &Caller,
        client: usize,
        retention: StateRetention,
        calls: Arc<Semaphore>,
        streams: usize,
    ) -> Result<Arc<Self>, NoRandomness> {
        let id = new_session()?;
        Ok(Arc::new(Self {
            id,
            caller: Caller { session: Some(id), ..owner.clone() },
            client,
            retention,
            ending: CancellationToken::new(),
            calls,
            streams: Arc::new(Semaphore::new(streams)),
            busy: AtomicUsize::new(0),
            free: Notify::new(),
            last_active: Mutex::new(Instant::now()),
        }))
    }

    /// Returns a guard that keeps the session busy until it is dropped.
    pub(crate) fn busy(self: &Arc<Self>) -> BusyGuard {
        self.busy.fetch_add(1, Ordering::AcqRel);
        BusyGuard { slot: Arc::clone(self), permit: None }
    }

    /// Returns a guard for one more running call of the session, or `None` if the limit is reached.
    pub(crate) fn call(self: &Arc<Self>) -> Option<BusyGuard> {
        self.acquire(&self.calls)
    }

    /// Returns a guard for one more open stream of the session, or `None` if the limit is reached.
    pub(crate) fn stream(self: &Arc<Self>) -> Option<BusyGuard> {
        self.acquire(&self.streams)
    }

    fn acquire(self: &Arc<Self>, of: &Arc<Semaphore>) -> Option<BusyGuard> {
        let permit = Arc::clone(of).try_acquire_owned().ok()?;
        let mut busy = self.busy();
        busy.permit = Some(permit);
        Some(busy)
    }

    /// Returns the time since the last activity of the session, or `None` if the session is busy.
    pub(crate) fn idle_time(&self) -> Option<Duration> {
        let last_active = *self.last_active.lock().unwrap_or_else(PoisonError::into_inner);
        (self.busy.load(Ordering::Acquire) == 0).then(|| last_active.elapsed())
    }

    /// Waits until the session is not busy.
    pub(crate) async fn wait_until_idle(&self) {
        loop {
            let freed = self.free.notified();
            if self.busy.load(Ordering::Acquire) == 0 {
                return;
            }
            freed.await;
        }
    }
}

/// A guard that keeps a session busy, for example during a call.
#[derive(Debug)]
pub(crate) struct BusyGuard {
    slot: Arc<SessionSlot>,
    /// Released on drop.
    permit: Option<OwnedSemaphorePermit>,
}

impl Drop for BusyGuard {
    fn drop(&mut self) {
        *self.slot.last_active.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        if self.slot.busy.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.slot.free.notify_waiters();
        }
    }
}

/// The session of an HTTP request, as the handler of the request gets it.
#[derive(Clone)]
pub(crate) struct RequestSession {
    pub(crate) slot: Arc<SessionSlot>,
    /// The sessions that other requests without a session have kept; `None` if the request names its
    /// session itself.
    pub(crate) kept: Option<Arc<dyn KeptSessions>>,
    /// Keeps the session of a request alive until its handler has ended.
    #[expect(dead_code, reason = "held until drop, which marks the session as idle")]
    pub(crate) busy: Option<Arc<BusyGuard>>,
}

/// Finds the sessions that requests without a session have kept.
pub(crate) trait KeptSessions: Send + Sync {
    /// Returns the kept session with this id and a guard, so that it does not expire during a request.
    fn find_kept(&self, id: &str) -> Option<(Arc<SessionSlot>, BusyGuard)>;
}
