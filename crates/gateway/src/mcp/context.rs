//! The context of a running call: its cancellation token and its progress channel.

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// The maximum number of queued progress reports of a call. Further reports are dropped; a later
/// one is more recent anyway.
const MAX_QUEUED_REPORTS: usize = 16;

/// The progress channel and cancellation token of a running tool call.
#[derive(Debug, Clone)]
pub struct CallContext {
    pub progress: Progress,
    /// A token that is cancelled when the client cancels the call or disconnects.
    pub cancelled: CancellationToken,
}

impl CallContext {
    /// Creates the context of a call without progress reports and without cancellation.
    pub fn without_client() -> Self {
        Self { progress: Progress::none(), cancelled: CancellationToken::new() }
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
