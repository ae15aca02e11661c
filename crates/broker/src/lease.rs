//! Waits until the supervisor answers the request for a larger lease.

use std::time::Duration;

use tokio::sync::watch;

/// The maximum time that a request waits for a larger lease.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The lease of a box.
#[derive(Debug)]
pub(crate) struct Leases {
    /// The number of answers so far.
    answers: watch::Sender<u64>,
}

impl Default for Leases {
    fn default() -> Self {
        Self { answers: watch::Sender::new(0) }
    }
}

impl Leases {
    /// Notes an answer: the lease grew, or it stays as it is.
    pub(crate) fn changed(&self) {
        self.answers.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Asks for a larger lease and waits for the next answer.
    pub(crate) async fn wait(&self, ask: impl FnOnce()) {
        let mut answers = self.answers.subscribe();
        ask();
        let answered = tokio::time::timeout(TIMEOUT, answers.changed()).await;
        if answered.is_err() {
            tracing::warn!("no answer to the request for a larger lease");
        }
    }
}
