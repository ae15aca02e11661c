//! The context of a running call: its client, its state, its cancellation token and its progress
//! channel.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// The maximum number of queued progress reports of a call. Further reports are dropped; a later
/// one is more recent anyway.
const MAX_QUEUED_REPORTS: usize = 16;

/// The client, the state, the progress channel and the cancellation token of a running tool call.
#[derive(Debug, Clone)]
pub struct CallContext {
    /// The number of the client, which is the index of its token. A service must not let one client
    /// use up what all clients share.
    pub client: usize,
    /// Whether the state of the call is kept for later calls.
    pub retention: StateRetention,
    pub progress: Progress,
    /// A token that is cancelled when the client cancels the call or disconnects.
    pub cancelled: CancellationToken,
}

impl CallContext {
    /// Creates the context of a call without progress reports and without cancellation.
    pub fn without_client() -> Self {
        Self {
            client: 0,
            retention: StateRetention::for_session(),
            progress: Progress::none(),
            cancelled: CancellationToken::new(),
        }
    }
}

/// How long the server keeps the state of a caller, for example its workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateLifetime {
    /// Until the session ends. Later calls of the session find the state.
    Session,
    /// Until the request ends. No later call finds the state.
    Request,
}

/// Decides how long the state of a caller is kept.
#[derive(Debug, Clone)]
pub struct StateRetention {
    /// Whether the state of a request is kept; `None` for the state of a session.
    is_kept: Option<Arc<AtomicBool>>,
}

impl StateRetention {
    /// Creates the retention for the state of a session.
    pub(crate) fn for_session() -> Self {
        Self { is_kept: None }
    }

    /// Creates the retention for the state of one request.
    pub(crate) fn for_request() -> Self {
        Self { is_kept: Some(Arc::default()) }
    }

    /// Returns how long the state of the caller is kept.
    pub fn lifetime(&self) -> StateLifetime {
        match &self.is_kept {
            Some(is_kept) if !is_kept.load(Ordering::Acquire) => StateLifetime::Request,
            _ => StateLifetime::Session,
        }
    }

    /// Keeps the state of the request for later calls that name the id of its session. No other call
    /// finds it.
    pub fn keep(&self) {
        if let Some(is_kept) = &self.is_kept {
            is_kept.store(true, Ordering::Release);
        }
    }
}

/// The sender of a tool call's progress reports. Does nothing if the client did not request them.
#[derive(Debug, Clone)]
pub struct Progress(Option<mpsc::Sender<ProgressReport>>);

/// One progress report of a tool call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ProgressReport {
    pub(crate) done: f64,
    pub(crate) total: Option<f64>,
    pub(crate) message: String,
}

impl Progress {
    /// Creates a sender that drops all progress reports, for a client that did not request
    /// progress.
    pub fn none() -> Self {
        Self(None)
    }

    /// Creates a sender of progress reports and the receiver of its reports.
    pub(crate) fn channel() -> (Self, mpsc::Receiver<ProgressReport>) {
        let (sender, receiver) = mpsc::channel(MAX_QUEUED_REPORTS);
        (Self(Some(sender)), receiver)
    }

    /// Returns whether the client requested progress, for reports that are expensive to create.
    pub fn is_requested(&self) -> bool {
        self.0.is_some()
    }

    /// Sends a progress report without waiting. `done` must increase; other reports are dropped.
    pub fn report(&self, done: f64, total: Option<f64>, message: String) {
        if let Some(sender) = &self.0 {
            // The queue is full because the client reads slowly: the report is dropped.
            drop(sender.try_send(ProgressReport { done, total, message }));
        }
    }
}
