//! One session inside this process: who it is, what it has under way, and when it was last heard of.
//!
//! A slot is *busy* while somebody holds a [`Busy`] of it: a call that runs, an answer that is still being
//! sent, a stream that is open. Only a slot that is not busy grows idle.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use belljar_model::caller::{Caller, SessionId};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::mcp::session::{NoRandomness, new_session};

/// What one session may have under way at a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shares {
    pub(crate) calls: usize,
    pub(crate) streams: usize,
}

/// The state of one session.
#[derive(Debug)]
pub(crate) struct SessionSlot {
    pub(crate) id: SessionId,
    /// Who asks, with this session.
    pub(crate) caller: Caller,
    /// Ends every call of the session.
    pub(crate) ending: CancellationToken,
    calls: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    busy: AtomicUsize,
    free: Notify,
    heard: Mutex<Instant>,
}

impl SessionSlot {
    /// A new session for `owner`.
    pub(crate) fn new(owner: &Caller, shares: Shares) -> Result<Arc<Self>, NoRandomness> {
        let id = new_session()?;
        Ok(Arc::new(Self {
            id,
            caller: Caller { session: Some(id), ..owner.clone() },
            ending: CancellationToken::new(),
            calls: Arc::new(Semaphore::new(shares.calls)),
            streams: Arc::new(Semaphore::new(shares.streams)),
            busy: AtomicUsize::new(0),
            free: Notify::new(),
            heard: Mutex::new(Instant::now()),
        }))
    }

    /// Keeps the session from growing idle until it is dropped.
    pub(crate) fn busy(self: &Arc<Self>) -> Busy {
        self.busy.fetch_add(1, Ordering::AcqRel);
        Busy { slot: Arc::clone(self), share: None }
    }

    /// Room for one more call, if there is any.
    pub(crate) fn call(self: &Arc<Self>) -> Option<Busy> {
        self.with_share(&self.calls)
    }

    /// Room for one more stream that stays open, if there is any.
    pub(crate) fn stream(self: &Arc<Self>) -> Option<Busy> {
        self.with_share(&self.streams)
    }

    fn with_share(self: &Arc<Self>, of: &Arc<Semaphore>) -> Option<Busy> {
        let share = Arc::clone(of).try_acquire_owned().ok()?;
        let mut busy = self.busy();
        busy.share = Some(share);
        Some(busy)
    }

    /// How long nothing has been under way, or nothing if something is.
    pub(crate) fn idle(&self) -> Option<Duration> {
        let heard = *self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        (self.busy.load(Ordering::Acquire) == 0).then(|| heard.elapsed())
    }

    /// Waits until nothing is under way.
    pub(crate) async fn free(&self) {
        loop {
            let freed = self.free.notified();
            if self.busy.load(Ordering::Acquire) == 0 {
                return;
            }
            freed.await;
        }
    }
}

/// Something of a session that is under way.
#[derive(Debug)]
pub(crate) struct Busy {
    slot: Arc<SessionSlot>,
    /// Held for its drop, which gives the room back.
    share: Option<OwnedSemaphorePermit>,
}

impl Drop for Busy {
    fn drop(&mut self) {
        *self.slot.heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        if self.slot.busy.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.slot.free.notify_waiters();
        }
    }
}
