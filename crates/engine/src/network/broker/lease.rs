//! The lease of a task's box: it asks for more before the lease is used up, and raises the limits of the
//! broker when more is granted.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use belljar_model::net::Budget;

use super::control::BrokerControl;
use super::summary::NetworkUsage;
use crate::network::lowest;

/// The lease of one box. Clones share it.
#[derive(Clone)]
pub struct LeaseWatch {
    shared: Arc<Mutex<Shared>>,
    /// Asks the driver for more.
    ask: Arc<dyn Fn() + Send + Sync>,
}

#[derive(Debug)]
struct Shared {
    /// The limits of the box itself, which no lease raises.
    own: Budget,
    lease: Budget,
    /// Whether the driver was asked since the lease last grew.
    is_asked: bool,
    control: Option<BrokerControl>,
}

impl fmt::Debug for LeaseWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseWatch").field("shared", &self.shared).finish_non_exhaustive()
    }
}

impl LeaseWatch {
    /// Creates the lease of a box with limits of its own. `ask` asks the driver for more.
    pub fn new(own: Budget, lease: Budget, ask: impl Fn() + Send + Sync + 'static) -> Self {
        let shared = Shared { own, lease, is_asked: false, control: None };
        Self { shared: Arc::new(Mutex::new(shared)), ask: Arc::new(ask) }
    }

    /// Sets the broker whose limits grow with the lease.
    pub(super) fn connect(&self, control: BrokerControl) {
        self.shared().control = Some(control);
    }

    /// Notes what the box has used so far. Asks for more once 80 % of a limit are used.
    pub(super) fn note(&self, usage: &NetworkUsage) {
        let mut shared = self.shared();
        if shared.is_asked || !needs_more(&shared.lease, usage) {
            return;
        }
        shared.is_asked = true;
        drop(shared);
        (self.ask)();
    }

    /// Asks for more, because a request waits for it. Every request gets an answer.
    pub(super) fn ask(&self) {
        self.shared().is_asked = true;
        (self.ask)();
    }

    /// Sets the lease that the driver granted last. Returns when the broker applies it.
    pub fn extend(&self, lease: Budget) -> Result<(), String> {
        let (control, budget) = {
            let mut shared = self.shared();
            shared.lease = lease;
            shared.is_asked = false;
            (shared.control.clone(), lowest(shared.own, lease))
        };
        control.map_or(Ok(()), |control| control.change_budget(budget))
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether 80 % of a limit are used.
fn needs_more(lease: &Budget, usage: &NetworkUsage) -> bool {
    let bytes = usage.sent_bytes.saturating_add(usage.received_bytes);
    let units = [
        (lease.requests, usage.requests),
        (lease.bytes.map(|bytes| bytes.as_u64()), bytes),
        (lease.tokens, usage.tokens),
        (lease.money.map(|money| money.0), usage.money.0),
    ];
    units.into_iter().any(|(limit, used)| {
        limit.is_some_and(|limit| u128::from(used) * 5 >= u128::from(limit) * 4)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn more_is_requested_once_at_80_percent_and_again_after_the_lease_grew() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let lease = |requests| Budget { requests: Some(requests), ..Budget::default() };
        let watch = LeaseWatch::new(Budget::default(), lease(10), move || {
            count.fetch_add(1, Ordering::SeqCst);
        });
        let used = |requests| NetworkUsage { requests, ..NetworkUsage::default() };
        let note = |requests| {
            watch.note(&used(requests));
            asked.load(Ordering::SeqCst)
        };
        assert_eq!((note(7), note(8), note(9)), (0, 1, 1));
        watch.extend(lease(20)).unwrap();
        assert_eq!((note(15), note(16)), (1, 2));
    }
}
