//! The context of a running call: its cancellation, and where it reports progress.

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// How many reports may wait for the wire. More are dropped: the next one says more anyway.
const REPORTS: usize = 16;

/// What a running call shares with its client.
#[derive(Debug, Clone)]
pub struct CallContext {
    pub progress: Progress,
    /// The client does not want the answer any more, or is gone.
    pub cancelled: CancellationToken,
}

impl CallContext {
    /// For a caller that listens to nothing and never cancels.
    pub fn deaf() -> Self {
        Self { progress: Progress::nobody(), cancelled: CancellationToken::new() }
    }
}

/// Where a call says how far it is. Costs nothing when the client did not ask.
#[derive(Debug, Clone)]
pub struct Progress(Option<mpsc::Sender<Report>>);

/// One report of a call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Report {
    pub(crate) done: f64,
    pub(crate) total: Option<f64>,
    pub(crate) message: String,
}

impl Progress {
    /// For a client that did not ask.
    pub fn nobody() -> Self {
        Self(None)
    }

    pub(crate) fn channel() -> (Self, mpsc::Receiver<Report>) {
        let (sender, receiver) = mpsc::channel(REPORTS);
        (Self(Some(sender)), receiver)
    }

    /// Whether anybody listens, for callers whose report is dear to make.
    pub fn is_wanted(&self) -> bool {
        self.0.is_some()
    }

    /// Says how far the work is. `done` must grow; what does not is not sent on. Never waits.
    pub fn report(&self, done: f64, total: Option<f64>, message: String) {
        if let Some(sender) = &self.0 {
            // Full means that the client reads slower than we report: it misses one.
            drop(sender.try_send(Report { done, total, message }));
        }
    }
}
