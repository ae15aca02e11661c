//! The state that all requests of the server share.

use std::sync::Arc;
use std::time::Duration;

use belljar_engine::scope::Scoped;
use belljar_engine::server;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::Instant;

use super::call::blocking;
use super::metrics::Metrics;
use super::problem::{Problem, ProblemKind};

/// The maximum number of blocking calls of the engine at once.
const MAX_BLOCKING: usize = 32;

/// The time for which the result of a readiness check is used again. Checks write to the disk, and every
/// client can request them.
const READY_TIME: Duration = Duration::from_secs(1);

/// The state that all requests share.
pub(crate) struct App {
    /// The scope of the tenant `local`.
    pub(crate) state: Scoped,
    pub(crate) metrics: Metrics,
    pub(crate) blocking: Arc<Semaphore>,
    /// The time and the result of the last readiness check.
    ready: Mutex<Option<(Instant, bool)>>,
}

impl App {
    pub(super) fn new(state: Scoped) -> Self {
        Self {
            state,
            metrics: Metrics::new(),
            blocking: Arc::new(Semaphore::new(MAX_BLOCKING)),
            ready: Mutex::new(None),
        }
    }

    /// Checks that the state directory and the ledger can be written.
    pub(super) async fn check_ready(&self) -> Result<(), Problem> {
        let not_ready =
            || Problem::new(ProblemKind::UNAVAILABLE, "the state directory cannot be written");
        let mut last = self.ready.lock().await;
        let known = last.filter(|(time, _)| time.elapsed() < READY_TIME);
        let is_ready = match known {
            Some((_, is_ready)) => is_ready,
            None => {
                let state = self.state.clone();
                let check = move || server::check_writable(&state).map_err(Problem::from);
                let checked = blocking(self, check).await;
                if checked.is_err() {
                    tracing::warn!("the state directory or the ledger cannot be written");
                }
                *last = Some((Instant::now(), checked.is_ok()));
                checked.is_ok()
            }
        };
        if is_ready { Ok(()) } else { Err(not_ready().retry_after(5)) }
    }
}
