//! The state of one session: its owner, its running calls and its idle time.
//!
//! A session is *busy* while a [`BusyGuard`] of it exists: for a running call, a response in
//! transmission or an open stream. Only a session without guards becomes idle.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use belljar_model::caller::{Caller, SessionId};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

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
        limits_per_session: SessionLimits,
    ) -> Result<Arc<Self>, NoRandomness> {
        let id = new_session()?;
        Ok(Arc::new(Self {
            id,
            caller: Caller { session: Some(id), ..owner.clone() },
            ending: CancellationToken::new(),
            calls: Arc::new(Semaphore::new(limits_per_session.calls)),
            streams: Arc::new(Semaphore::new(limits_per_session.streams)),
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
